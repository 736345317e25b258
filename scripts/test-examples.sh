#!/bin/bash
# The examples as the README runs them: each in a directory of its own, which is then checked.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
stores=$(mktemp -d)
trap 'rm -rf "$stores"' EXIT
for example in queue time_series event_store ledger cache documents; do
    cargo run --quiet --profile test -p evenkeel --example "$example" -- "$stores/$example"
    "$target/release/evenkeel" check "$stores/$example"
done
