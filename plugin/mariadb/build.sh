#!/bin/bash
# Builds target/plugin/ha_evenkeel.so for the MariaDB server that is installed here, and changes
# nothing else. Exit codes: 0 built, 1 failed, 3 something is missing (the message says what to do).
# EVENKEEL_PLANTS=1 builds one with planted faults (fault_injection.h) into target/plugin-planted, for tests alone;
# EVENKEEL_UNTRIED_SERVER=1 one for a series that compat.h refuses: the beginning of a port.
# EVENKEEL_HEADERS names other headers than the server's: a test gives wrong ones, and the engine's library as built.
# EVENKEEL_POISON=1 builds target/poison/ha_evenkeel.so, in whose rows the columns that were not read hold
# nonsense (plugin/mariadb/poison.cc): for tests alone.
set -uo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
plants=${EVENKEEL_PLANTS:-}
out=$PWD/target/plugin${plants:+-planted} poison=()
[ -z "${EVENKEEL_POISON:-}" ] || out=$PWD/target/poison poison=(-DEVENKEEL_POISON)
out=${EVENKEEL_PLUGIN_DIR:-$out}
source plugin/mariadb/server.sh
# As a static library alone: beside an rlib, which tests of other crates want, cargo leaves out the
# optimization across crates.
[ -n "${EVENKEEL_HEADERS:-}" ] ||
    cargo rustc --quiet --release -p evenkeel-capi --lib --crate-type staticlib || exit 1
# Objects of one version of the server are none of another's.
objects=$out/obj-$built_for
mkdir -p "$out/gen" "$objects"
cp "$headers/include/probes_mysql_nodtrace.h.in" "$out/gen/probes_mysql_nodtrace.h"
flags=(-O2 -g1 -fPIC -std=c++17 -Wall -Wno-unused-parameter -Wno-register
    -DMYSQL_DYNAMIC_PLUGIN -DHAVE_CONFIG_H -DMYSQL_SERVER -DDBUG_OFF -DNDEBUG "${poison[@]}" ${EVENKEEL_UNTRIED_SERVER:+-DEVENKEEL_UNTRIED_SERVER}
    -I"$out/gen" -isystem "$headers/include" -isystem "$headers/sql" -isystem "$headers/include/mysql"
    -isystem "$headers/wsrep-lib/include" -isystem "$headers/wsrep-lib/wsrep-API/v26"
    -isystem "$headers/libmariadb/include" -isystem "$headers/tpool" -isystem "$generated" -isystem "$headers")
# Templates of the standard library are compiled in, so that their allocations count as the plugin's (fault.h).
[ -z "$plants" ] || flags+=(-DEVENKEEL_PLANTED -D_GLIBCXX_EXTERN_TEMPLATE=0)
pids=() listed=()
source plugin/mariadb/stale.sh
# An object is as old as the beginning of its build: what is edited meanwhile is newer, and a build
# that was cut short leaves none.
begun=$out/begun
touch "$begun"
compile() {
    g++ "${flags[@]}" -MMD -MF "$2.d" -c "$1" -o "$2.new" && touch -r "$begun" "$2.new" && mv "$2.new" "$2"
}
for file in plugin/mariadb/*.cc; do
    object=$objects/$(basename "$file" .cc).o
    listed+=("$object")
    if is_stale "$object"; then
        # As many at a time as there are cores: each takes 300 MB.
        if [ ${#pids[@]} -ge "$(nproc)" ]; then
            wait "${pids[0]}" || exit 1
            pids=("${pids[@]:1}")
        fi
        compile "$file" "$object" &
        pids+=($!)
    fi
done
for pid in "${pids[@]}"; do wait "$pid" || exit 1; done
g++ -shared -o "$out/ha_evenkeel.so.new" "${listed[@]}" "$target/release/libevenkeel_capi.a" \
    -L"$library" -lmysqlservices -Wl,--version-script=plugin/mariadb/evenkeel.map \
    -Wl,-Bsymbolic -Wl,-z,nodelete -lpthread -ldl -lm || exit 1
mv "$out/ha_evenkeel.so.new" "$out/ha_evenkeel.so"
echo "$built_for" >"$out/version"
echo "$out/ha_evenkeel.so, for MariaDB $server"
