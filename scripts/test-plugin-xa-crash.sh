#!/bin/bash
# kill -9 of the server under clients with XA transactions of their own, again and again: with the binlog on, and
# without one. After each restart XA RECOVER has what was said to be prepared and not said to be decided, and
# nothing else but what the server was asked and has not answered; each of them is committed or rolled back
# whole, some only after another kill (scripts/xa_clients.py).
#
# EVENKEEL_KILLS (6) says how often at least, in each of the two. Prints what clients were in at the kills.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/private.sh
kills=${EVENKEEL_KILLS:-6}
most=$((kills + 30))
# InnoDB shows what is the server's own.
engine=${EVENKEEL_ENGINE:-evenkeel}
phases=(active prepare prepared commit rollback one-phase)
private_begin

fail() {
    echo "xa crash test: $*" >&2
    [ -z "${server:-}" ] || tail -20 "$private_dir/$server/error.log" >&2
    exit 1
}

# How many transactions were said to be decided.
decided() { cat "$records"/* 2>/dev/null | grep -cE ' (committed|rolled-back)$'; }

# Commits that are in what clients have written: a kill before is of a server without work.
under_load() {
    local wanted=$(($1 + 20))
    for _ in $(seq 3000); do
        [ "$(decided)" -ge "$wanted" ] && return 0
        sleep 0.1
    done
    fail "no load"
}

declare -A at
has_all() {
    local phase
    for phase in "${phases[@]}"; do [ "${at[$phase]:-0}" -gt 0 ] || return 1; done
}

killed_under() {
    server=$1
    shift
    local round=0 found=0 doubt=0 left=0 rows=0 n1 n2 n3 word
    records=$private_dir/$server.records at=()
    mkdir -p "$records"
    private_start "$server" "$@"
    private_sql "$server" -e 'create database if not exists test'
    private_sql "$server" --database=test -e "
        create table one (id int primary key, k int not null, pad varchar(200), key by_k (k)) engine=$engine;
        create table two (id int primary key, k int not null, pad varchar(200), key by_k (k)) engine=$engine"
    while [ "$round" -lt "$kills" ] || { ! has_all && [ "$round" -lt "$most" ]; }; do
        round=$((round + 1))
        local before pid
        before=$(decided)
        python3 -B scripts/xa_clients.py work "$private_dir/$server/socket" "$records" "$round" \
            >"$private_dir/words" 2>"$private_dir/work.error" &
        pid=$!
        under_load "$before"
        sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
        private_kill "$server"
        wait "$pid" || fail "$(cat "$private_dir/work.error")"
        for word in $(cat "$private_dir/words"); do at[$word]=$((${at[$word]:-0} + 1)); done
        private_start "$server" "$@"
        python3 -B scripts/xa_clients.py check "$private_dir/$server/socket" "$records" \
            >"$private_dir/checked" || fail "after kill $round of $server"
        read -r n1 n2 n3 rows <"$private_dir/checked"
        found=$((found + n1)) doubt=$((doubt + n2)) left=$((left + n3))
    done
    python3 -B scripts/xa_clients.py check "$private_dir/$server/socket" "$records" all >/dev/null || fail "at the end"
    [ -z "$(private_sql "$server" -e 'xa recover')" ] || fail "prepared transactions are left"
    local bad
    bad=$(private_sql "$server" --database=test --skip-column-names -e 'check table one, two' | grep -v $'status\tOK$')
    [ -z "$bad" ] || fail "CHECK TABLE: $bad"
    private_stop "$server"
    local said=""
    for word in "${phases[@]}"; do said="$said, ${at[$word]:-0} $word"; done
    echo "$server: $round kills; clients were at$said; $found found prepared, $left left so over a kill;" \
        "$doubt calls in doubt; $rows rows of $(decided) transactions"
    has_all || fail "a phase was never met in $round kills"
    [ "$found" -gt 0 ] && [ "$left" -gt 0 ] || fail "nothing was prepared at a kill"
}

killed_under with-binlog --log-bin=binlog --server-id=1 --binlog-format=row --sync-binlog=1
killed_under without-binlog
