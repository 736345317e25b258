#!/bin/bash
# What clients are told of every code of an error, and what comes of a plugin that gets no memory, at each of its
# allocations in turn (plugin/mariadb/tests/faults.py, with a test build of the plugin); then the plugin is uninstalled and
# installed beside those who use it (plugin/mariadb/tests/uninstall.py, with the plugin as it is delivered).
# plugin/mariadb/tests/test_faults.py [codes | news | uninstall]...; EVENKEEL_ROUNDS: of the last, 150.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/private.sh
[ $# -gt 0 ] || set -- codes news uninstall
delivered=${EVENKEEL_PLUGIN_DIR:-$PWD/target/plugin}/ha_evenkeel.so
planted=$PWD/target/plugin-planted
failed=0
# Nothing of a fault is in what is delivered.
if grep -qa fault_new "$delivered"; then
    echo "$delivered holds planted faults" >&2
    exit 1
fi
case " $* " in *" codes "* | *" news "*)
    [ -n "${EVENKEEL_BUILT:-}" ] || bash scripts/build-planted.sh || exit 1
    ;;
esac
private_begin
for what in "$@"; do
    if [ "$what" = uninstall ]; then
        ln -sf "$delivered" "$private_dir/plugins/ha_evenkeel.so"
        private_start uninstall --evenkeel-lock-wait-timeout=1 --lock-wait-timeout=2
        timeout 1200 python3 -B plugin/mariadb/tests/uninstall.py "$private_dir/uninstall/socket" "${EVENKEEL_ROUNDS:-150}" || failed=1
        private_sql uninstall -e 'select 1' >/dev/null || { tail -n 80 "$private_dir/uninstall/error.log" >&2; failed=1; }
        continue
    fi
    ln -sf "$planted/ha_evenkeel.so" "$private_dir/plugins/ha_evenkeel.so"
    private_start "$what" --evenkeel-lock-wait-timeout=1
    timeout 3000 python3 -B plugin/mariadb/tests/faults.py "$private_dir/$what/socket" plugin/mariadb/errors.def "$what" || failed=1
    private_sql "$what" -e 'select 1' >/dev/null || { tail -n 40 "$private_dir/$what/error.log" >&2; failed=1; }
    private_stop "$what"
done
exit "$failed"
