#!/bin/bash
# The tests of the crates with unsafe code under a sanitizer: sanitize.sh address|thread|miri [TEST...].
# address: leaks too; the pinned compiler has it as an unstable option (RUSTC_BOOTSTRAP), its standard library
# is not instrumented. thread: with the standard library built anew, of nightly (rust-src). miri: of nightly
# too (its component); the tests of io and capi that need no system calls it does not know, and those of the
# memtable and the buffers. Files of builds go to target/sanitize-*. Exit code 3: the toolchain is not there.
set -uo pipefail
cd "$(dirname "$0")/.."
what=${1:?address, thread or miri}
shift
export CARGO_TARGET_DIR=${EVENKEEL_SANITIZE_DIR:-$PWD/target/sanitize-$what}
target=x86_64-unknown-linux-gnu
crates=(-p evenkeel-io -p evenkeel-pages -p evenkeel-runs -p evenkeel-capi)
# The nightly compiler with a component, fetched if it can be.
nightly_with() {
    rustup component list --toolchain nightly --installed 2>/dev/null | grep -q "^$1" && return
    rustup toolchain install nightly --profile minimal --component "$1" --no-self-update >/dev/null 2>&1 && return
    echo "$1 of the nightly toolchain cannot be had" >&2
    exit 3
}
case $what in
    address)
        export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes"
        export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
        cargo test --quiet --target $target --profile release-tests --lib "${crates[@]}" -- "$@"
        ;;
    thread)
        nightly_with rust-src
        export RUSTUP_TOOLCHAIN=nightly RUSTFLAGS="-Zsanitizer=thread" TSAN_OPTIONS=halt_on_error=1
        cargo test --quiet -Zbuild-std --target $target --profile release-tests --lib "${crates[@]}" -- "$@"
        ;;
    miri)
        nightly_with miri
        nightly_with rust-src
        export RUSTUP_TOOLCHAIN=nightly MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance"
        [ $# -gt 0 ] || set -- buf:: blocks rng:: mem_tests ghosts cgroup
        cargo miri test --quiet -p evenkeel-io --lib -- "$@"
        ;;
esac
