# Sourced by test-release.sh: the tests of the library at their release sizes.
# As fast as a release, without linking each test with the optimizer.
tests=(cargo test --quiet --profile release-tests)

# Properties with 40 times the cases of `make test`, most of which have 256 there.
rung 0-properties env PROPTEST_CASES=10240 "${tests[@]}" -p evenkeel-format -p evenkeel-pages \
    -p evenkeel-tree -p evenkeel-runs -p evenkeel-txn -p evenkeel --lib

# The limit keeps a defect from hanging.
rung 1-large-value timeout 1800 \
    "${tests[@]}" -p evenkeel --test large_values -- --ignored --test-threads 1 a_value
rung 1-small-log timeout 1800 env EVENKEEL_OPS=10000000 \
    "${tests[@]}" -p evenkeel --test large_values -- --ignored --nocapture small_updates

rung 1-churn timeout 3600 "${tests[@]}" -p evenkeel --test churn -- \
    --ignored --nocapture

# The trust rungs at their release sizes. Seeds of the simulator from a place of this run's own.
first=$((RANDOM * 100000))
rung 2-simulator env EVENKEEL_SIM_FROM="$first" EVENKEEL_SIM_SEEDS=20000 \
    "${tests[@]}" -p evenkeel-sim --test rungs -- --nocapture random_sessions
# A preemption more: three of two threads, two of more, which are a million schedules.
rung 3-models env EVENKEEL_SCHEDULES=20000 EVENKEEL_PREEMPTIONS=1 \
    "${tests[@]}" -p evenkeel-sim --test models -- --nocapture
rung 2-crashes env EVENKEEL_SIM_FROM="$first" EVENKEEL_SIM_ROUNDS=100 EVENKEEL_SIM_SURVIVORS=2 \
    "${tests[@]}" -p evenkeel-sim --test crashes -- --nocapture
# Every call of the scripts, of a schedule of this run's own.
rung 2-failing-calls env EVENKEEL_SIM_FROM="$first" EVENKEEL_SIM_CALLS=100000 \
    "${tests[@]}" -p evenkeel-sim --test failing_calls -- --nocapture
rung 4-fuzz env EVENKEEL_FUZZ=50 "${tests[@]}" -p evenkeel-trust --test fuzz
rung 5-rot env EVENKEEL_ROT=50000 "${tests[@]}" -p evenkeel-trust --test rot
rung 5-hostile-catalog env EVENKEEL_CATALOG_CHANGES=9 "${tests[@]}" -p evenkeel-trust --test hostile_catalog
rung 6-limits env EVENKEEL_UPDATE_ROWS=5000000 EVENKEEL_BUILD_ROWS=5000000 \
    "${tests[@]}" -p evenkeel-trust --test limits
# Stores that are damaged, and stores that a loss of power has left, salvaged.
rung 5-salvage "${tests[@]}" -p evenkeel-salvage --lib -- --ignored --nocapture two_hundred
rung 3-cancelled-builds env EVENKEEL_CANCELLATIONS=120 \
    "${tests[@]}" -p evenkeel-tables --lib -- cancelling_at_any_moment
rung 7-huge-loser env EVENKEEL_LOSER_ROWS=10000000 \
    "${tests[@]}" -p evenkeel-trust --test restart -- --nocapture
rung 7-huge-prepared env EVENKEEL_PREPARED_ROWS=10000000 \
    "${tests[@]}" -p evenkeel-trust --test prepared -- --nocapture
rung 7-kills env EVENKEEL_SEED="$RANDOM" EVENKEEL_KILLS=500 "${tests[@]}" -p evenkeel-trust --test kill
