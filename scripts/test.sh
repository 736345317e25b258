#!/bin/bash
# The ladder that every change must pass, narrowest first.
cd "$(dirname "$0")/.."
source scripts/rungs.sh
# On 2 cores, once built.
budget_minutes=60

# Peers of the comparison are built only by `cargo run -p evenkeel-bench-compare`.
rung 0-style bash -c 'cargo fmt --all --check && cargo xtask tidy'
rung 0-lints cargo clippy --quiet --workspace --all-targets -- -D warnings
if command -v cargo-deny >/dev/null; then
    rung 0-licences cargo deny --offline check licenses bans sources
else
    echo "== rung 0-licences skipped: cargo-deny is not installed; tidy has checked licences and sources"
fi
rung 1-tests cargo test --quiet --workspace --no-fail-fast --exclude evenkeel-sim
# What readers and writers see of each other at each isolation level; prints the table.
rung 1-isolation cargo test --quiet -p evenkeel-trust --test isolation hermitage -- --nocapture
# Models panic where they should; what that prints is nobody's to read.
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
rung 2-planted-crates bash scripts/test-planted.sh crates
# With 16 MiB of memory: an update of 5M rows and its rollback, a value of 1 GiB in and out.
rung 3-limits env EVENKEEL_UPDATE_ROWS=5000000 \
    cargo test --quiet -p evenkeel-trust --test limits a_great_update -- --nocapture
rung 3-large-value cargo test --quiet -p evenkeel --test large_values -- --ignored a_value_of_1_gib
rungs_within 25
rung 1-binary cargo build --quiet --release -p evenkeel-cli
rung 1-examples bash scripts/test-examples.sh
rung 1-report bash scripts/test-report.sh
# By what figures are met or missed; what of a binlog counts after a kill.
rung 1-verdicts bash -c 'python3 -B scripts/compare/test_verdicts.py && python3 -B scripts/test_whole_binlogs.py'
rung 1-plugin bash -c 'bash plugin/mariadb/build.sh && bash scripts/test-plugin.sh'
# Random statements from one seed, on InnoDB and on EVENKEEL.
rung 1-plugin-differential bash scripts/test-plugin-differential.sh 2 50000
# The same queries and changes under many plans, on both; every cell of path x type x partitioned was taken.
rung 1-plugin-plans bash scripts/test-plugin-plans.sh --seed 1
rung 1-plugin-sessions bash scripts/test-plugin-sessions.sh
rung 1-plugin-two-phase bash scripts/test-plugin-two-phase.sh
rung 1-plugin-crash bash scripts/test-plugin-crash.sh
rung 1-plugin-xa-crash env EVENKEEL_KILLS=5 bash scripts/test-plugin-xa-crash.sh
rung 1-plugin-xa-states bash scripts/test-plugin-xa-states.sh
rung 1-plugin-two-engines env EVENKEEL_ROUNDS=2 bash scripts/test-plugin-two-engines.sh
rung 1-plugin-ddl-crash env EVENKEEL_SEED=1 bash scripts/test-plugin-ddl-crash.sh
rung 1-plugin-failures bash scripts/test-failures.sh
# Columns that were not read hold nonsense: those of reads by prefixes, by several handlers, beside open changes.
rung 1-plugin-poison bash scripts/test-plugin-poison.sh 0 evenkeel.prefix_reads evenkeel.plans evenkeel.clones \
    evenkeel.read_uncommitted evenkeel.pushdown
# Every code of an error at a client; every allocation of the plugin fails once; uninstalling beside users.
rung 1-plugin-faults bash scripts/test-plugin-faults.sh
rung 1-plugin-many-tables bash scripts/test-many-tables.sh
# Some of its alterations: a table of virtual functions, its order, the first, middle and last of classes.
rung 1-plugin-layout bash scripts/test-plugin-layout.sh \
    handler-function handler-order handlerton-last thd-middle table-first field
rung 1-plugin-install bash scripts/test-install.sh
# The server's own tests of an engine, less than four minutes together.
rung 1-mtr bash scripts/test-mtr.sh all
# A part of the server's main suites with our engine in the place of the others, beside InnoDB's output.
rung 1-suites python3 scripts/suites.py run quick
# Faults planted in the plugin, in a build of its own, each caught by one test of our suite; users' has none of them.
rung 1-planted-plugin bash scripts/test-planted.sh plugin
rung 1-mtr-as-innodb bash scripts/test-mtr.sh as-innodb
rung 1-mtr-engines bash scripts/test-mtr.sh engines
rungs_done
