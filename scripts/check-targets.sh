#!/bin/bash
# Compiles the library for the systems it is meant for, with the oldest compiler it promises too, and sees
# that a 32-bit target is refused with a sentence. Exit code 3: a target or compiler cannot be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
checked() { cargo check --quiet --target-dir target/targets "$@"; }
for target in aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-apple-darwin x86_64-pc-windows-gnu; do
    rustup target add "$target" >/dev/null 2>&1 || exit 3
    checked --target "$target" -p evenkeel
    echo "evenkeel compiles for $target"
done
rustup target add i686-unknown-linux-gnu >/dev/null 2>&1 || exit 3
refusal=$(! checked --target i686-unknown-linux-gnu -p evenkeel-base 2>&1) ||
    { echo "a 32-bit target is not refused"; exit 1; }
grep -q "Evenkeel needs a 64-bit target" <<<"$refusal" || { echo "$refusal"; exit 1; }
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
rustup toolchain install "$oldest" --profile minimal --no-self-update >/dev/null 2>&1 || exit 3
RUSTUP_TOOLCHAIN=$oldest cargo check --quiet --target-dir target/oldest -p evenkeel
echo "evenkeel compiles with Rust $oldest; a 32-bit target is refused"
