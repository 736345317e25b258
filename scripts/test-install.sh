#!/bin/bash
# `make install` into a directory of its own: a server starts with the config file and has the engine;
# a plugin for another version is built again. Prints one line.
set -uo pipefail
cd "$(dirname "$0")/.."
export DESTDIR
DESTDIR=$(mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server"; wait; rm -rf "$DESTDIR"' EXIT
fail() { echo "install: $*" >&2; exit 1; }
bash scripts/install.sh install >/dev/null || fail "does not install"
config=$DESTDIR/etc/mysql/mariadb.conf.d/evenkeel.cnf
user=()
[ "$(id -u)" -eq 0 ] && user=(--user=root)
mariadb-install-db --no-defaults "${user[@]}" --datadir="$DESTDIR/data" --skip-test-db \
    --auth-root-authentication-method=normal >"$DESTDIR/log" 2>&1 || fail "$(tail -3 "$DESTDIR/log")"
start() {
    mariadbd --defaults-file="$config" "${user[@]}" --datadir="$DESTDIR/data" --tmpdir="$DESTDIR" \
        --socket="$DESTDIR/socket" --skip-networking --plugin-dir="$DESTDIR/usr/lib/mysql/plugin" \
        --pid-file="$DESTDIR/pid" --log-error="$DESTDIR/error.log" &
    server=$!
    for _ in $(seq 3000); do
        sql 'select 1' >/dev/null 2>&1 && return 0
        kill -0 "$server" 2>/dev/null || { server=; return 1; }
        sleep 0.1
    done
    return 1
}
sql() { mariadb --no-defaults --socket="$DESTDIR/socket" -uroot -N -e "$1"; }
stop() { kill "$server"; wait "$server"; server=; }

start || fail "the server does not start: $(tail -3 "$DESTDIR/error.log")"
sql 'create database d; create table d.t (a int primary key) engine=evenkeel; insert into d.t values (7)' \
    || fail "no table"
[ "$(sql 'show databases' | grep -c evenkeel)" = 0 ] || fail "its directory is shown as a database"
sql 'uninstall soname "ha_evenkeel"' 2>/dev/null && fail "it can be taken away from under its tables"
stop
# Without the plugin the server must not start: tables would be missing.
mv "$DESTDIR/usr/lib/mysql/plugin/ha_evenkeel.so" "$DESTDIR/away"
start 2>/dev/null && fail "it starts without the engine"
mv "$DESTDIR/away" "$DESTDIR/usr/lib/mysql/plugin/ha_evenkeel.so"
start || fail "it does not start again"
[ "$(sql 'select a from d.t')" = 7 ] || fail "the row is gone"
stop
# Another version of the server: the hook builds and installs. What it runs as root nobody else can change.
hook=$DESTDIR/etc/apt/apt.conf.d/90evenkeel rebuild=$DESTDIR/usr/lib/evenkeel/install.sh
grep -q "'/usr/lib/evenkeel/install.sh' rebuild" "$hook" || fail "the hook: $(cat "$hook")"
grep -q "$PWD" "$hook" && fail "the hook runs what is in the working copy"
[ "$(stat -c '%U %a' "$rebuild")" = "$(id -un) 755" ] || fail "who may change the hook's program"
bash "$rebuild" rebuild 2>"$DESTDIR/log" || fail "rebuild"
[ ! -s "$DESTDIR/log" ] || fail "it builds for the same version"
echo 10.11.1 >"$DESTDIR/usr/lib/evenkeel/version"
rm "$DESTDIR/usr/lib/mysql/plugin/ha_evenkeel.so"
bash "$rebuild" rebuild >"$DESTDIR/log" 2>&1 || fail "$(cat "$DESTDIR/log")"
[ -f "$DESTDIR/usr/lib/mysql/plugin/ha_evenkeel.so" ] || fail "it was not built again"
# The server was taken away: nothing to build, no complaint.
mkdir "$DESTDIR/bin"
for tool in bash dirname realpath cat; do ln -s "$(command -v $tool)" "$DESTDIR/bin/"; done
echo 10.11.1 >"$DESTDIR/usr/lib/evenkeel/version"
PATH=$DESTDIR/bin bash "$rebuild" rebuild 2>"$DESTDIR/log" || fail "rebuild without a server"
[ ! -s "$DESTDIR/log" ] || fail "without a server: $(cat "$DESTDIR/log")"
# A plugin that was built for another server is not installed.
cp -r "${EVENKEEL_PLUGIN_DIR:-$PWD/target/plugin}" "$DESTDIR/other"
echo 10.11.1 >"$DESTDIR/other/version"
EVENKEEL_PLUGIN_DIR=$DESTDIR/other bash scripts/install.sh install >"$DESTDIR/log" 2>&1 \
    && fail "a plugin for another server is installed"
grep -q 10.11.1 "$DESTDIR/log" || fail "does not say what it is built for"
# Who may not remove it is told so.
if [ "$(id -u)" -eq 0 ]; then
    chmod 755 "$DESTDIR"
    (cd / && runuser -u nobody -- env DESTDIR="$DESTDIR" bash -s remove) <scripts/install.sh \
        >"$DESTDIR/log" 2>&1 && fail "says that it is removed"
    grep -q root "$DESTDIR/log" || fail "does not say who may remove it: $(cat "$DESTDIR/log")"
fi
bash scripts/install.sh remove >/dev/null
bash "$rebuild" rebuild 2>/dev/null && fail "the hook's program is left"
[ -z "$(find "$DESTDIR/etc" "$DESTDIR/usr" -type f)" ] || fail "something is left"
echo "install: the server loads the engine, refuses to start without it, and it is built again"
