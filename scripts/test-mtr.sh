#!/bin/bash
# The server's own test suites on ENGINE=EVENKEEL, through the overlay in plugin/mariadb/mysql-test.
# scripts/test-mtr.sh [quick | all | engines | innodb | as-innodb | TEST...]; prints what failed, then the sums.
# quick: our own suite; all: storage_engine too; engines: engines/funcs and
# engines/iuds with EVENKEEL as default (engines.def has the tests left out, and why), and the one that needs larger
# pages with those; innodb: storage_engine as InnoDB runs it, to compare; as-innodb: InnoDB with those results of
# ours that are accepted because they are InnoDB's.
# TEST is a name as MTR has it: storage_engine-evenkeel.1st.
# What overlay and README may leave out, and how much must pass, scripts/mtr_overlay.py says.
# EVENKEEL_MTR_ARGS adds options; the servers' files are in EVENKEEL_MTR_DIR (target/mtr).
set -uo pipefail
cd "$(dirname "$0")/.."
plugin=${EVENKEEL_PLUGIN_DIR:-$PWD/target/plugin}/ha_evenkeel.so
[ -f "$plugin" ] || { echo "make plugin first" >&2; exit 3; }
suite=$(bash scripts/mariadb.sh suite) || exit $?
dir=${EVENKEEL_MTR_DIR:-$PWD/target/mtr}
mkdir -p "$dir"
overlay=$PWD/plugin/mariadb/mysql-test
root=$PWD
held() { python3 "$root/scripts/mtr_overlay.py" "$@"; }
held papers || exit 1
# A tree of links of our own, so that runs of several working copies do not meet.
tree=$dir/usr
rm -rf "$tree"
mkdir -p "$tree/lib/mysql/plugin" "$tree/share/mysql/mysql-test/plugin"
link() { local file; for file in "$1"/*; do ln -sfn "$file" "$2/"; done; }
ln -sfn "$suite/usr/bin" "$suite/usr/sbin" "$tree/"
link "$suite/usr/lib/mysql/plugin" "$tree/lib/mysql/plugin"
cp "$plugin" "$tree/lib/mysql/plugin/ha_evenkeel.so"
for part in "$suite"/usr/share/mysql/*; do
    [ "$(basename "$part")" = mysql-test ] || ln -sfn "$part" "$tree/share/mysql/"
done
tests=$suite/usr/share/mysql/mysql-test
for part in "$tests"/*; do
    case $(basename "$part") in plugin | suite) ;; *) ln -sfn "$part" "$tree/share/mysql/mysql-test/" ;; esac
done
# The server's results of storage_engine are older than the server.
mkdir "$tree/share/mysql/mysql-test/suite"
link "$tests/suite" "$tree/share/mysql/mysql-test/suite"
rm "$tree/share/mysql/mysql-test/suite/storage_engine"
cp -r "$tests/suite/storage_engine" "$tree/share/mysql/mysql-test/suite/"
find "$tree/share/mysql/mysql-test/suite/storage_engine/" -name '*.result' \
    -exec sed -i -f "$overlay/storage_engine/server-text.sed" {} +
link "$tests/plugin" "$tree/share/mysql/mysql-test/plugin"
# A copy: MTR writes beside the results it compares.
cp -r "$overlay" "$tree/share/mysql/mysql-test/plugin/evenkeel"

ours=storage_engine-evenkeel,storage_engine/trx-evenkeel,storage_engine/parts-evenkeel
threshold=
case "${1:-quick}" in
    quick) what=(--suite=evenkeel) ;;
    all) threshold=storage_engine what=(--suite="$ours,evenkeel" --big-test) ;;
    innodb)
        what=(--suite=storage_engine-innobase,storage_engine/trx-innobase,storage_engine/parts-innobase)
        ;;
    as-innodb)
        sed -i 's/EVENKEEL/InnoDB/' "$tree/share/mysql/mysql-test/plugin/evenkeel/storage_engine/define_engine.inc"
        # InnoDB's count of a table's rows is one too high for a while where a recalculation in the background
        # meets an insert; none is needed here.
        what=(--mysqld=--innodb --mysqld=--innodb-stats-auto-recalc=0)
        for test in $(held class I); do
            case $test in
                */*) what+=("storage_engine/${test%/*}-evenkeel.${test#*/}") ;;
                *) what+=("storage_engine-evenkeel.$test") ;;
            esac
        done
        ;;
    engines)
        threshold=engines
        default=(--combination=--default-storage-engine=evenkeel --mysqld=--plugin-load-add=ha_evenkeel.so
            --mysqld=--ignore-db-dirs=#evenkeel --mysqld=--loose-enable-partition)
        what=(--suite=engines/funcs,engines/iuds "${default[@]}" "--skip-test-list=$overlay/engines.def")
        large=(--suite=engines/funcs "${default[@]}" --mysqld=--evenkeel-page-size=16384
            engines/funcs.crash_manycolumns_number)
        ;;
    *) what=("$@") ;;
esac
cd "$tree/share/mysql/mysql-test" || exit 1
# Servers of two workers; a failure is not tried again.
run() {
    local log=$1 code
    shift
    # shellcheck disable=SC2086
    perl mtr --vardir="$dir/var" --force --max-test-fail=0 --retry=0 --parallel="${EVENKEEL_MTR_JOBS:-2}" \
        --testcase-timeout=15 --suite-timeout=120 ${EVENKEEL_MTR_ARGS:-} "$@" >"$log" 2>&1
    code=$?
    # MTR's own verdict also counts the server's remark that the plugin is not stable.
    ! grep -q '^Completed: All' "$log" || code=0
    return $code
}
run "$dir/log" "${what[@]}"
code=$?
if [ -n "${large:-}" ]; then
    run "$dir/log.large" "${large[@]}" || code=1
    cat "$dir/log.large" >>"$dir/log"
fi
if [ "${what[*]}" = "$*" ]; then
    cat "$dir/log"
    exit $code
fi
grep -E '\[ (disabled|skipped) \]' "$dir/log"
# Of a failure what MTR says of it too: who reads this may not have the log.
awk '/\[ ([0-9]+ )?fail \]/ { left = 60 } /\[ ([0-9]+ )?pass \]/ { left = 0 } left-- > 0' "$dir/log"
passed=$(grep -c '\[ pass \]' "$dir/log") failed=$(grep -c '\[ fail \]' "$dir/log")
echo "$passed passed, $failed failed, $(grep -c '\[ disabled \]' "$dir/log") disabled: $dir/log"
[ -z "$threshold" ] || held "$threshold" "$dir/log" "$tests/suite" || code=1
[ $code -eq 0 ] && [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
