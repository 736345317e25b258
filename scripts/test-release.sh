#!/bin/bash
# Longer than a change can wait for: run before a release, after `make test`.
cd "$(dirname "$0")/.."
source scripts/rungs.sh

# cargo-deny takes minutes to build, so only this ladder installs it; `make test` runs it where it
# is there, and its rules for licences and sources are also in `cargo xtask tidy`.
command -v cargo-deny >/dev/null || rung 0-cargo-deny cargo install --quiet --locked cargo-deny
rung 0-licences cargo deny --offline check licenses bans sources
# Known faults of dependencies: the database of them comes from GitHub.
if cargo deny fetch db >/dev/null 2>&1; then
    rung 0-advisories cargo deny check advisories
else
    echo "== rung 0-advisories skipped: the database of advisories cannot be fetched"
fi
# The crates with unsafe code. Two of them need components of the nightly compiler.
rung 0-address-sanitizer bash scripts/sanitize.sh address
for sanitizer in thread miri; do
    if bash scripts/sanitize.sh $sanitizer has-no-such-test >/dev/null 2>&1; then
        rung 0-$sanitizer bash scripts/sanitize.sh $sanitizer
    else
        echo "== rung 0-$sanitizer skipped: it cannot be built here"
    fi
done
bash scripts/deps.sh compare
lib=$(dirname "$(find /usr/lib -name librocksdb.so | head -n 1)")
rung 1-peers env ROCKSDB_LIB_DIR="$lib" cargo test --quiet --target-dir target/peers \
    --manifest-path crates/bench-compare/peers/Cargo.toml \
    --features rocksdb,sqlite,lmdb,redb,fjall

# The flame graph that `make profile` draws.
rung 1-profile bash scripts/test-profile.sh

# As long as README.md says.
rung 1-bench bash scripts/test-bench.sh

# The acceptance figures, at a size that shows only that they can be had.
rung 1-bars python3 scripts/bars.py --rounds 1 --seconds 25 --scale 0.02 --out target/bars

# As fast as a release, without linking each test with the optimizer.
tests=(cargo test --quiet --profile release-tests)

# Properties with 40 times the cases of `make test`, most of which have 256 there.
rung 0-properties env PROPTEST_CASES=10240 "${tests[@]}" -p evenkeel-format -p evenkeel-pages \
    -p evenkeel-tree -p evenkeel-runs -p evenkeel-txn -p evenkeel --lib

# The limit keeps a defect from hanging.
rung 1-large-value timeout 1800 \
    "${tests[@]}" -p evenkeel --test large_values -- --ignored --test-threads 1 a_value
rung 1-small-log timeout 1800 env EVENKEEL_OPS=10000000 \
    "${tests[@]}" -p evenkeel --test large_values -- --ignored --nocapture small_op

rung 1-churn timeout 3600 "${tests[@]}" -p evenkeel --test churn -- \
    --ignored --nocapture

# The trust rungs at their release sizes. Seeds of the simulator from a place of this run's own.
first=$((RANDOM * 100000))
rung 2-simulator env EVENKEEL_SIM_FROM="$first" EVENKEEL_SIM_SEEDS=20000 \
    "${tests[@]}" -p evenkeel-sim --test rungs -- --nocapture seeds
# A preemption more: three of two threads, two of more, which are a million schedules.
rung 3-models env EVENKEEL_SCHEDULES=20000 EVENKEEL_PREEMPTIONS=1 \
    "${tests[@]}" -p evenkeel-sim --test models -- --nocapture
rung 2-crashes env EVENKEEL_SIM_FROM="$first" EVENKEEL_SIM_ROUNDS=100 \
    "${tests[@]}" -p evenkeel-sim --test crashes -- --nocapture
# Every call of the scripts, of a schedule of this run's own.
rung 2-failing-calls env EVENKEEL_SIM_FROM="$first" EVENKEEL_SIM_CALLS=100000 \
    "${tests[@]}" -p evenkeel-sim --test failing_calls -- --nocapture
rung 4-fuzz env EVENKEEL_FUZZ=50 "${tests[@]}" -p evenkeel-trust --test fuzz
rung 5-rot env EVENKEEL_ROT=50000 "${tests[@]}" -p evenkeel-trust --test rot
rung 6-limits env EVENKEEL_UPDATE_ROWS=5000000 EVENKEEL_BUILD_ROWS=5000000 \
    "${tests[@]}" -p evenkeel-trust --test limits
rung 3-cancelled-builds env EVENKEEL_CANCELLATIONS=120 \
    "${tests[@]}" -p evenkeel-tables --lib -- cancelling_at_any_moment
rung 7-huge-loser env EVENKEEL_LOSER_ROWS=10000000 \
    "${tests[@]}" -p evenkeel-trust --test restart -- --nocapture
rung 7-huge-prepared env EVENKEEL_PREPARED_ROWS=10000000 \
    "${tests[@]}" -p evenkeel-trust --test prepared -- --nocapture
rung 7-kills env EVENKEEL_SEED="$RANDOM" EVENKEEL_KILLS=500 "${tests[@]}" -p evenkeel-trust --test kill
# Keys of every collation again, from a seed of this run's own, which the rung's line shows.
rung 1-plugin bash plugin/mariadb/build.sh
rung 1-plugin-collations env EVENKEEL_SEED="$RANDOM" EVENKEEL_PAIRS=20000 bash scripts/test-plugin.sh
# Its self-test with every wrong header, and all of the plugin compiled with one.
rung 1-plugin-layout bash scripts/test-plugin-layout.sh
rung 1-plugin-layout-whole bash scripts/test-plugin-layout.sh whole
# The same with a seed of this run's own, which is printed.
rung 1-plugin-differential bash scripts/test-plugin-differential.sh "$RANDOM" 100000
rung 1-plugin-plans bash scripts/test-plugin-plans.sh --seed "$RANDOM" --rounds 4 --variants 4
rung 1-plugin-many-tables env EVENKEEL_TABLES=10000 bash scripts/test-many-tables.sh
rung 1-plugin-xa-crash env EVENKEEL_KILLS=40 bash scripts/test-plugin-xa-crash.sh
rung 1-plugin-two-engines env EVENKEEL_ROUNDS=10 bash scripts/test-plugin-two-engines.sh
# The server's end in front of every step of a DDL statement.
rung 1-plugin-ddl-crash env EVENKEEL_SEED="$RANDOM" EVENKEEL_DDL_KILLS=1000 bash scripts/test-plugin-ddl-crash.sh
# The server's main suites, each test with our engine in the place of the others, beside InnoDB's output.
rung 1-suites python3 scripts/suites.py run --jobs 4 \
    main innodb gcol vcol parts handler versioning period json binlog rpl sql_sequence
# The longest value that the server lets through.
rung 1-plugin-large-blob bash scripts/test-large-blob.sh
# Programs of others: sysbench, mariadb-dump, iibench, an ORM.
rung 1-plugin-clients bash scripts/test-clients.sh
# Coverage-guided, a minute for each target; longer by EVENKEEL_FUZZ_SECONDS.
rung 4-cargo-fuzz bash scripts/fuzz.sh "${EVENKEEL_FUZZ_SECONDS:-60}"
rungs_done
