#!/bin/bash
# Plants one fault after another and runs the test named for it, which must fail with the fault and pass
# without it. Of the faults of the simulator crates/sim/tests/planted.rs is in charge.
# scripts/test-planted.sh [crates | plugin]; prints a line for each and "N caught, N not caught".
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
caught=0 missed=0

# tried NAME RUNG COMMAND...: the command fails with the fault, by what it tests and by nothing else, and
# passes without.
tried() {
    local fault=$1 rung=$2
    shift 2
    if ! env -u EVENKEEL_PLANTED "$@" >"$log" 2>&1; then
        missed=$((missed + 1))
        printf '%-22s %-58s fails without it too\n' "$fault" "$rung"
        tail -20 "$log"
    elif EVENKEEL_PLANTED=$fault "$@" >"$log" 2>&1; then
        missed=$((missed + 1))
        printf '%-22s %-58s not caught\n' "$fault" "$rung"
    elif ! grep -qE 'panicked at|\[ ([0-9]+ )?fail \]' "$log"; then
        missed=$((missed + 1))
        printf '%-22s %-58s was not run\n' "$fault" "$rung"
        tail -20 "$log"
    else
        caught=$((caught + 1))
        printf '%-22s %-58s caught\n' "$fault" "$rung"
    fi
}

# caught NAME CRATE TEST: a test of the crate.
caught() { tried "$1" "$2 $3" cargo test --quiet -p "$2" --lib "$3"; }

if [ "${1:-crates}" = crates ]; then
    caught DurableAtSyncEnd evenkeel-log a_sync_acknowledges_what_was_written_before_it
    caught LogEndReadLate evenkeel no_dirty_page_is_older_than_where_page_redo_begins
    caught FirstSlotOnly evenkeel a_torn_slot_leaves_the_other_one
    caught PinsIgnored evenkeel-runs a_generation_is_flushed_only_when_nobody_has_it_pinned
    caught RealSyncSkipped evenkeel-io a_sync_asks_the_system
    caught RealNamesNotSynced evenkeel-io a_sync_asks_the_system
    caught ShortWriteTaken evenkeel-io a_short_write_is_gone_on_with
fi
# caught_by_mtr NAME TEST: a test of our suite of the server, with the planted plugin. A statement that a fault
# has go on for ever is a test that fails after a minute.
caught_by_mtr() {
    tried "$1" "mtr evenkeel.$2" env EVENKEEL_MTR_ARGS=--testcase-timeout=1 EVENKEEL_MTR_JOBS=1 \
        EVENKEEL_MTR_DIR="$PWD/target/mtr-planted" bash scripts/test-mtr.sh "evenkeel.$2"
}

if [ "${1:-plugin}" = plugin ]; then
    release=${EVENKEEL_PLUGIN_DIR:-$PWD/target/plugin}
    bash scripts/build-planted.sh >/dev/null || exit 1
    export EVENKEEL_PLUGIN_DIR=$PWD/target/plugin-planted
    faults=$(sed -nE 's/.*plant\("([A-Za-z]+)"\).*/\1/p' plugin/mariadb/*.cc | sort)
    # No other build has anything of it, by the same look that finds it in the planted one.
    for name in EVENKEEL_PLANTED $faults; do
        if ! grep -qaF "$name" "$EVENKEEL_PLUGIN_DIR/ha_evenkeel.so" || grep -qaF "$name" "$release/ha_evenkeel.so"; then
            echo "$name: not in the planted plugin, or in that of users"
            missed=$((missed + 1))
        fi
    done
    for fault in $faults; do
        caught_by_mtr "$fault" small_things
    done
fi
echo "$caught caught, $missed not caught"
[ "$missed" -eq 0 ] && [ "$caught" -gt 0 ]
