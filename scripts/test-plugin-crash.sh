#!/bin/bash
# kill -9 of the server under concurrent writers and during recovery, with the binlog on and
# sync_binlog=1. After each restart: every acknowledged commit is there, each transaction whole or
# not at all, the tables are what the binlog says, and each index has the table's rows.
#
# EVENKEEL_KILLS (20) says how often. Prints "N kills, ...".
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/private.sh
kills=${EVENKEEL_KILLS:-20}
writers=4
options=(--log-bin=binlog --server-id=1 --binlog-format=row --sync-binlog=1
    --innodb-flush-log-at-trx-commit=1)
private_begin
port=$(private_port)
options+=($private_tcp="$port")
mkdir -p "$private_dir/acks"

# One writer: transactions of two rows of the same number, one in each table, acknowledged into a
# file after COMMIT returned. Some are undone, some change and delete older rows.
writer() {
    local w=$1 round=$2 n=0 base
    base=$((round * 1000000 + w * 100000))
    # Each statement's answer is read back, so that the file says what the server has said.
    {
        while [ $n -lt 3000 ]; do
            n=$((n + 1))
            echo "begin; insert into one values ($((base + n)), $w, $n);"
            if [ $((n % 5)) -eq 0 ]; then
                echo "update one set k=k+1000 where id=$((base + n - 3)); update two set k=k+1000 where id=$((base + n - 3));"
            fi
            if [ $((n % 7)) -eq 0 ]; then
                echo "insert into two values ($((base + n)), $w, $n); rollback;"
            else
                echo "insert into two values ($((base + n)), $w, $n); commit; select $((base + n)) as '';"
            fi
        done
    } | private_sql main --database=test --unbuffered --skip-column-names --silent \
        >>"$private_dir/acks/$w" 2>/dev/null
}

fail() {
    echo "crash test: $*" >&2
    tail -20 "$private_dir/main/error.log" >&2
    exit 1
}

ask() { private_sql main --database=test --skip-column-names -e "$1"; }

check() {
    # No acknowledged commit is lost.
    sort -n "$private_dir"/acks/* >"$private_dir/acked"
    ask 'select id from one order by id' >"$private_dir/one"
    ask 'select id from two order by id' >"$private_dir/two"
    local lost
    lost=$(sort "$private_dir/acked" | comm -23 - <(sort "$private_dir/one") | wc -l)
    [ "$lost" -eq 0 ] || fail "$lost acknowledged commits are lost"
    # Whole or not at all.
    cmp -s "$private_dir/one" "$private_dir/two" || fail "half a transaction"
    [ "$(ask 'select count(*) from one, two where one.id=two.id and one.k<>two.k')" = 0 ] \
        || fail "half an update"
    # Each index has the table's rows.
    local table by
    for table in one two; do
        for by in primary by_w by_k; do
            ask "select id, w, k from $table force index ($by) where k>=0 and w>=0 and id>=0" \
                | sort -n >"$private_dir/$table.$by"
            cmp -s "$private_dir/$table.primary" "$private_dir/$table.$by" \
                || fail "index $by of $table differs from the table"
        done
    done
    [ -z "$(ask 'xa recover')" ] || fail "prepared transactions are left"
}

# The rows that the binlog says: a replica applies all of it.
replay() {
    private_start copy --server-id=2 --slave-parallel-threads=4 --gtid-pos-auto-engines=evenkeel
    private_follow copy "$port"
    private_caught_up copy main || fail "the binlog does not apply"
    local table
    for table in one two; do
        private_sql copy --database=test --skip-column-names \
            -e "select id, w, k from $table order by id" >"$private_dir/copy.$table"
        ask "select id, w, k from $table order by id" >"$private_dir/main.$table"
        cmp -s "$private_dir/copy.$table" "$private_dir/main.$table" \
            || fail "table $table and the binlog differ"
    done
}

private_start main "${options[@]}"
private_sql main -e 'create database if not exists test'
ask "create table one (id int primary key, w int not null, k int not null, key by_w (w), key by_k (k)) engine=evenkeel;
     create table two (id int primary key, w int not null, k int not null, key by_w (w), key by_k (k)) engine=evenkeel"
done_kills=0 in_recovery=0
for round in $(seq "$kills"); do
    pids=()
    for w in $(seq "$writers"); do
        writer "$w" "$round" &
        pids+=($!)
    done
    sleep "0.$((RANDOM % 8 + 2))"
    private_kill main
    done_kills=$((done_kills + 1))
    for pid in "${pids[@]}"; do wait "$pid"; done
    if [ $((round % 4)) -eq 0 ]; then
        # Again, while it recovers or has just begun to serve.
        private_launch main "${options[@]}"
        sleep "0.$((RANDOM % 6 + 1))"
        private_kill main
        done_kills=$((done_kills + 1)) in_recovery=$((in_recovery + 1))
    fi
    private_start main "${options[@]}"
    check
done
replay
rows=$(ask 'select count(*) from one')
acked=$(wc -l <"$private_dir/acked")
[ "$acked" -ge $((kills * 10)) ] || fail "only $acked commits were acknowledged"
echo "$done_kills kills, $in_recovery of them at the start, $acked acknowledged commits, $rows rows: all there"
