#!/bin/bash
# A private MariaDB server with the engine loaded, in a directory of its own, and a client on it.
# scripts/sql.sh [client options]; with standard input it runs that. The server ends with it.
# EVENKEEL_SQL_DIR names the directory (target/sql; kept), EVENKEEL_SERVER_ARGS adds to the server's,
# EVENKEEL_PRELOAD is a library loaded before the server's own.
set -uo pipefail
cd "$(dirname "$0")/.."
dir=${EVENKEEL_SQL_DIR:-$PWD/target/sql}
plugin=${EVENKEEL_PLUGIN_DIR:-$PWD/target/plugin}
[ -f "$plugin/ha_evenkeel.so" ] || { echo "make plugin first" >&2; exit 3; }
user=()
[ "$(id -u)" -eq 0 ] && user=(--user=root)
mkdir -p "$dir"
if [ ! -d "$dir/data/mysql" ]; then
    mariadb-install-db --no-defaults "${user[@]}" --datadir="$dir/data" --skip-test-db \
        --auth-root-authentication-method=normal >"$dir/install.log" 2>&1 \
        || { cat "$dir/install.log" >&2; exit 1; }
    mkdir -p "$dir/data/test"
fi
# Linked, so that the directory's own plugins stay visible beside ours.
mkdir -p "$dir/plugins"
ln -sf /usr/lib/mysql/plugin/*.so "$dir/plugins/" 2>/dev/null
ln -sf "$plugin/ha_evenkeel.so" "$dir/plugins/"
socket=$dir/socket
# shellcheck disable=SC2086
LD_PRELOAD=${EVENKEEL_PRELOAD:-} mariadbd --no-defaults "${user[@]}" --datadir="$dir/data" --socket="$socket" --skip-networking \
    --plugin-dir="$dir/plugins" --plugin-load-add=ha_evenkeel.so \
    --ignore-db-dirs='#evenkeel' --pid-file="$dir/pid" --log-error="$dir/error.log" \
    --tmpdir="$dir" ${EVENKEEL_SERVER_ARGS:-} &
server=$!
stop() { kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; }
trap stop EXIT
for _ in $(seq 3000); do
    mariadb --no-defaults --socket="$socket" -uroot -e 'select 1' >/dev/null 2>&1 && break
    kill -0 "$server" 2>/dev/null || { tail -20 "$dir/error.log" >&2; exit 1; }
    sleep 0.1
done
mariadb --no-defaults --socket="$socket" -uroot --database=test "$@"
