#!/bin/bash
# Coverage-guided fuzzing with the pinned stable compiler: fuzz.sh [SECONDS [TARGET...]], each target
# for 60 seconds; to ask for more than 64 MiB at once is a failure. Sanitizer and coverage are
# unstable options, hence RUSTC_BOOTSTRAP. Inputs that fail are left in fuzz/artifacts; the corpus
# grows in fuzz/corpus and is not committed.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
targets=("$@")
bash scripts/deps.sh fuzz
command -v cargo-fuzz >/dev/null || cargo install --quiet --locked cargo-fuzz
# What writes the first inputs is built as the rungs before this one have built it, not once more.
cargo build --quiet --profile release-tests -p evenkeel-trust --bin evenkeel-trust-child
child=${CARGO_TARGET_DIR:-target}/release-tests/evenkeel-trust-child
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <("$child" targets)
export RUSTC_BOOTSTRAP=1
export CARGO_TARGET_DIR=${EVENKEEL_FUZZ_TARGET_DIR:-$PWD/target/fuzz}
cargo fuzz build decoder
failed=()
for target in "${targets[@]}"; do
    corpus=fuzz/corpus/$target
    mkdir -p "$corpus" "fuzz/artifacts/$target"
    "$child" corpus "$target" "$corpus"
    log=fuzz/artifacts/$target.log
    if EVENKEEL_TARGET=$target cargo fuzz run decoder "$corpus" -- -max_total_time="$seconds" \
        -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=64 -print_final_stats=1 \
        -artifact_prefix="fuzz/artifacts/$target/" >"$log" 2>&1; then
        echo "$target: $(grep -o 'number_of_executed_units: [0-9]*' "$log" | cut -d ' ' -f 2) runs"
    else
        failed+=("$target")
        tail -n 40 "$log"
        echo "$target: FAILED, see $log"
    fi
done
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
