#!/bin/bash
# The rungs of the crates' own tests, which compute nearly all the time: test.sh has built them and runs them
# beside the plugin's.
cd "$(dirname "$0")/.."
source scripts/rungs.sh

rung 1-tests cargo test --quiet --workspace --no-fail-fast --exclude evenkeel-sim
# What readers and writers see of each other at each isolation level; prints the table.
rung 1-isolation cargo test --quiet -p evenkeel-trust --test isolation hermitage -- --nocapture
# Models panic where they should, and `--quiet` hides what these panics print.
rung 2-models cargo test --quiet -p evenkeel-sim --lib --test models
# 2,000 seeds; these, events and states are printed. More seeds before a release. These use every core
# themselves; the others one for each of their tests.
rung 2-simulator cargo test --quiet -p evenkeel-sim --test rungs --test crashes --test builds \
    -- --nocapture --test-threads 1
# The same scripts with a call of the disk that fails, at each of their calls or a sample of them, and
# in the opens after crashes; what came of them is printed, and an outcome that never came fails.
rung 2-failing-calls cargo test --quiet -p evenkeel-sim --test failing_calls \
    -- --nocapture --test-threads 1
simulations=()
for file in crates/sim/tests/*.rs; do
    name=$(basename "$file" .rs)
    case $name in rungs | crashes | failing_calls | builds | planted) ;; *) simulations+=(--test "$name") ;; esac
done
rung 2-simulations cargo test --quiet -p evenkeel-sim "${simulations[@]}" -- --nocapture
# Faults planted on purpose, each caught by the rung named for it; prints the table.
rung 2-planted cargo test --quiet -p evenkeel-sim --test planted -- --nocapture
# The same for those that a test of their own crate catches, a second each once it is built.
rung 2-planted-crates python3 scripts/test_planted.py crates
# With 16 MiB of memory: an update of 5M rows and its rollback, a value of 1 GiB in and out.
rung 3-limits env EVENKEEL_UPDATE_ROWS=5000000 \
    cargo test --quiet -p evenkeel-trust --test limits a_large_update -- --nocapture
rung 3-large-value cargo test --quiet -p evenkeel --test large_values -- --ignored a_value_of_1_gib
rungs_done
