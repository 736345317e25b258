#!/bin/bash
# kill -9 of the server under sysbench, concurrent writers and ALTER TABLE, and during recovery, with
# the binlog on and sync_binlog=1. After each restart: every acknowledged commit is there, each
# transaction whole or not at all, CHECK TABLE is clean, each index has the table's rows, nothing is
# left of an ALTER that did not end; at the end the tables are what the binlog says.
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

# sysbench until the server is gone.
sysbench_on() {
    sysbench oltp_write_only --db-driver=mysql --mysql-socket="$private_dir/main/socket" --mysql-user=root \
        --mysql-db=test --mysql_storage_engine=evenkeel --tables=2 --table-size=5000 --threads=2 \
        --rand-type=uniform --mysql-ignore-errors=1020,1205,1213,1412 "$@"
}

# ALTER TABLE of each kind in a loop; the file says whether one is under way, or an ADD INDEX (which may wait still).
alterer() {
    local statement n=0 state=$private_dir/alter.state
    local statements=(
        "alter table sbtest1 add index extra (c, k), algorithm=inplace, lock=none"
        "alter table sbtest1 drop index extra, add column x int default 7"
        "alter table one add index by_kw (k, w), algorithm=inplace, lock=none"
        "alter table sbtest1 drop column x"
        "alter table one drop index by_kw"
        "alter table sbtest2 add unique index extra (c, id), algorithm=inplace, lock=none"
        "alter table sbtest2 drop index extra"
    )
    echo idle >"$state"
    while [ $n -lt 1000 ]; do
        statement=${statements[$((n % ${#statements[@]}))]}
        n=$((n + 1))
        case $statement in
        *"add index"* | *"add unique"*) echo building >"$state" ;;
        *) echo "under way" >"$state" ;;
        esac
        # A crash may have left a statement done or not.
        private_sql main --database=test -e "$statement" >/dev/null 2>"$private_dir/alter.error" \
            || grep -qE 'ERROR (1060|1061|1091|1205|1213)' "$private_dir/alter.error" || return
        echo idle >"$state"
    done
}

# How many commits were acknowledged so far.
acknowledged() { cat "$private_dir"/acks/* 2>/dev/null | wc -l; }

# Waits until the writers have had ten commits and an ALTER has begun: however slow the machine is,
# there is something to kill.
under_load() {
    local wanted=$(($1 + 10))
    for _ in $(seq 3000); do
        [ "$(acknowledged)" -ge "$wanted" ] && grep -qE "under way|building" "$private_dir/alter.state" 2>/dev/null \
            && return 0
        sleep 0.1
    done
    fail "no load"
}

# Starts the server and kills it in the engine's recovery, or behind that, while the server decides what was
# prepared and takes statements back. The directory's files are open where the first has begun. Counted is a
# kill only if the log of this start says neither that the engine is open, nor that the server serves.
kill_in_recovery() {
    local log=$private_dir/main/error.log from said
    from=$(wc -c <"$log")
    said() { tail -c "+$((from + 1))" "$log" | grep -qE "$1"; }
    private_launch main "${options[@]}"
    for _ in $(seq 6000); do
        if [ "$1" = engine ]; then
            find "/proc/${private_pids[main]}/fd" -lname '*/#evenkeel/*' 2>/dev/null | grep -q . && break
        else
            said 'EVENKEEL: .*open after' && break
        fi
        sleep 0.002
    done
    sleep "0.0$((RANDOM % 4))"
    private_kill main
    done_kills=$((done_kills + 1))
    if ! said 'EVENKEEL: .*open after'; then
        in_recovery=$((in_recovery + 1))
    elif ! said 'ready for connections'; then
        in_decisions=$((in_decisions + 1))
    fi
    return 0
}

# One such kill, and others, up to 20 in all, while none was where it belongs: how soon a start is
# behind its recovery is the machine's.
declare -A recovery_tries=([engine]=0 [server]=0)
kills_in_recovery() {
    local -n hit=$2
    while kill_in_recovery "$1"; do
        recovery_tries[$1]=$((recovery_tries[$1] + 1))
        [ "$hit" -eq 0 ] && [ "${recovery_tries[$1]}" -lt 20 ] || return 0
    done
}

fail() {
    echo "crash test: $*" >&2
    local log
    for log in "$private_dir"/*/error.log; do
        echo "== $(basename "$(dirname "$log")")" >&2
        grep -E "ERROR|panic|EVENKEEL:" "$log" | tail -10 | cut -c1-400 >&2
        tail -20 "$log" >&2
    done
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
    local bad
    bad=$(ask 'check table one, two, sbtest1, sbtest2' | grep -v $'status\tOK$')
    [ -z "$bad" ] || fail "CHECK TABLE: $bad"
    # Of an ALTER that did not end no index is left, of one that did none is missing.
    bad=$(ask "select concat(table_name, '.', index_name) from information_schema.evenkeel_indexes
               where table_schema='test' and state='valid' order by 1" | sort |
        diff - <(ask "select distinct concat(table_name, '.', index_name) from information_schema.statistics
               where table_schema='test' and index_name<>'PRIMARY'" | sort))
    [ -z "$bad" ] || fail "indexes of the engine and of the server differ: $bad"
}

# What was rolled back has used numbers that no replica hears of.
numbers_apart() { sed 's/ AUTO_INCREMENT=[0-9]*//'; }

# The rows that the binlog says: a replica applies all of it. Conservatively: an ALTER that was killed
# after it was done and before it was logged is logged by the server's recovery without the mark of
# DDL (10.11, with any engine). An optimistic replica begins the transactions after it beside it; they
# keep its table and wait for it to commit, for ever.
replay() {
    # The source counts the number of a group that was cut off as logged; with one more behind it a replica
    # does not wait for it.
    ask 'create table behind (id int) engine=evenkeel' || fail "a table after the last kill"
    python3 -B scripts/whole_binlogs.py "$private_dir"/main/data/binlog.[0-9]* || fail "a binlog is not to be read"
    private_start copy --server-id=2 --slave-parallel-threads=4 --slave-parallel-mode=conservative \
        --gtid-pos-auto-engines=evenkeel
    private_follow copy "$port"
    private_caught_up copy main || fail "the binlog does not apply"
    local table
    for table in one two sbtest1 sbtest2; do
        private_sql copy --database=test --skip-column-names \
            -e "show create table $table; select * from $table order by id" | numbers_apart >"$private_dir/copy.$table"
        ask "show create table $table; select * from $table order by id" | numbers_apart >"$private_dir/main.$table"
        cmp -s "$private_dir/copy.$table" "$private_dir/main.$table" \
            || fail "table $table and the binlog differ: $(diff "$private_dir/copy.$table" "$private_dir/main.$table" | cut -c1-300 | head -20)"
    done
}

private_start main "${options[@]}"
private_sql main -e 'create database if not exists test'
ask "create table one (id int primary key, w int not null, k int not null, key by_w (w), key by_k (k)) engine=evenkeel;
     create table two (id int primary key, w int not null, k int not null, key by_w (w), key by_k (k)) engine=evenkeel"
sysbench_on prepare >"$private_dir/sysbench.prepare" || fail "sysbench prepare"
done_kills=0 in_recovery=0 in_decisions=0 in_alter=0 in_build=0 under_sysbench=0
for round in $(seq "$kills"); do
    rm -f "$private_dir/alter.state"
    before=$(acknowledged)
    pids=()
    for w in $(seq "$writers"); do
        writer "$w" "$round" &
        pids+=($!)
    done
    sysbench_on --time=900 --report-interval=1 run >"$private_dir/sysbench" 2>&1 &
    sysbench_pid=$!
    alterer &
    pids+=($!)
    under_load "$before"
    sleep "$((RANDOM % 2)).$((RANDOM % 8))"
    kill -0 "$sysbench_pid" 2>/dev/null && under_sysbench=$((under_sysbench + 1))
    private_kill main
    done_kills=$((done_kills + 1))
    grep -qE "under way|building" "$private_dir/alter.state" && in_alter=$((in_alter + 1))
    grep -q building "$private_dir/alter.state" && in_build=$((in_build + 1))
    wait "$sysbench_pid"
    # What ended the loop of ALTERs is the kill.
    for pid in "${pids[@]}"; do wait "$pid"; done
    grep -q ERROR "$private_dir/alter.error" && ! grep -qE 'ERROR (10[69]1|1060|1205|1213|20..)' "$private_dir/alter.error" \
        && fail "ALTER TABLE: $(cat "$private_dir/alter.error")"
    if [ $((round % 4)) -eq 0 ]; then
        kills_in_recovery engine in_recovery
        kills_in_recovery server in_decisions
    fi
    private_start main "${options[@]}"
    check
done
replay
rows=$(ask 'select count(*) from one')
acked=$(wc -l <"$private_dir/acked")
[ "$acked" -ge $((kills * 10)) ] || fail "only $acked commits were acknowledged"
[ "$under_sysbench" -eq "$kills" ] || fail "sysbench had ended at some kills: $(tail -5 "$private_dir/sysbench")"
[ "$in_alter" -ge $((kills / 2)) ] || fail "only $in_alter kills were during an ALTER"
[ "$kills" -lt 10 ] || [ "$in_build" -ge 1 ] || fail "no kill was during an ADD INDEX"
[ "$kills" -lt 4 ] || [ "$in_recovery" -ge 1 ] || fail "no kill was during recovery"
[ "$kills" -lt 4 ] || [ "$in_decisions" -ge 1 ] || fail "no kill was between the engine's recovery and the first connection"
echo "$done_kills kills, $under_sysbench of them under sysbench, $in_alter during ALTER ($in_build of ADD INDEX), $in_recovery during recovery," \
    "$in_decisions behind it before the server served; $acked acknowledged commits, $rows rows: all there"
