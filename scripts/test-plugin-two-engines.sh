#!/bin/bash
# kill -9 of a server whose clients commit transactions over an InnoDB and an EVENKEEL table, again and again: with
# the binlog, without one, and with sql_log_bin=0; and of a replica with a binlog, without one, and with one that
# does not get what it applies. One client and four (a replica: one thread, and four). The clients' own files are
# the record of what was acknowledged (scripts/two_engine_clients.py, which says what is asserted and what counted).
# A replica that logs nothing has its position in a table of EVENKEEL alone, as the user's page advises.
#
# EVENKEEL_ROUNDS (2) is how many kills each combination gets, EVENKEEL_SEED what they are chosen from (printed);
# an argument is a pattern of the combinations to run, as "replica: tc-log, 4".
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/private.sh
rounds=${EVENKEEL_ROUNDS:-2}
seed=${EVENKEEL_SEED:-$((RANDOM * 32768 + RANDOM))}
echo "two engines: seed $seed, $rounds kills of each combination"
RANDOM=$((seed % 32768))
pattern=${1:-}
private_begin

fail() {
    echo "two engines test: $*; seed $seed" >&2
    local log
    for log in "$private_dir"/*/error.log; do
        echo "== $log" >&2
        tail -20 "$log" | cut -c1-300 >&2
    done
    exit 1
}

clients() { python3 -B scripts/two_engine_clients.py "$@"; }

declare -A sums
# Adds NAME=NUMBER ... to the sums of a combination.
add() {
    local pair
    for pair in $1; do sums[${pair%=*}]=$((${sums[${pair%=*}]:-0} + ${pair#*=})); done
}

report() {
    local name said=""
    for name in "$@"; do said+=", ${sums[$name]:-0} $name"; done
    echo "$what: $rounds kills${said//-/ }"
}

# A server that is as another one with the tables was when it ended.
fresh() {
    mkdir -p "$private_dir/$1"
    cp -r "$private_dir/first/data" "$private_dir/$1/data"
}

# Waits until a file of notes has so many acknowledged commits more than before.
acknowledged() {
    local wanted=$(($(cat "$records"/* 2>/dev/null | grep -c acknowledged) + $1))
    for _ in $(seq 6000); do
        [ "$(cat "$records"/* 2>/dev/null | grep -c acknowledged)" -ge "$wanted" ] && return 0
        kill -0 "$worker" 2>/dev/null || break
        sleep 0.02
    done
    fail "$what: no load"
}

# A random moment of the next half second, or just now.
wait_a_moment() { [ $((RANDOM % 3)) -eq 0 ] || sleep "0.$(printf %03d $((RANDOM % 500)))"; }

options_of() {
    case $1 in
        tc-log) options=(--skip-log-bin) ;;
        *) options=(--log-bin=binlog --server-id=1 --binlog-format=row) ;;
    esac
}

wanted() { [[ $what =~ ${pattern:-} ]]; }

alone() {
    local mode=$1 count=$2 round out n least most
    server=$mode-$count what="$mode, $count clients"
    wanted || return
    records=$private_dir/$server.records sums=()
    mkdir "$records"
    options_of "$mode"
    fresh "$server"
    private_start "$server" "${options[@]}"
    for round in $(seq "$rounds"); do
        clients work "$private_dir/$server/socket" "$records" "$round" "$seed" "$count" "$mode" \
            2>"$private_dir/work.error" &
        worker=$!
        acknowledged 50
        # In turns: under load, and at once behind the last commit, which no other one makes durable.
        if [ $((round % 2)) -eq 0 ]; then
            wait_a_moment
            private_kill "$server"
        fi
        touch "$records/stop"
        wait "$worker" || fail "$what: $(cat "$private_dir/work.error")"
        [ $((round % 2)) -eq 0 ] || private_kill "$server"
        rm "$records/stop"
        private_start "$server" "${options[@]}"
        out=$(clients check "$private_dir/$server/socket" "$records" "$mode") || fail "$what, after kill $round"
        # Each round is told with all before it; the sums are those of the last one.
        sums=()
        add "$out"
    done
    report acknowledged in-doubt in-doubt-kept lost-in-evenkeel lost-in-innodb in-one-engine
    if [ "$count" = 1 ] && [ "$mode" != unlogged ]; then
        n=$(clients syncs "$private_dir/$server/socket")
        # What is prepared is synced; the commit where the binlog does not decide. The background adds a few.
        least=95 most=140
        [ "$mode" = binlog ] || least=195 most=240
        [ "$n" -ge "$least" ] && [ "$n" -le "$most" ] || fail "$what: $n syncs for 100 commits"
        echo "$what: $n syncs of the log for 100 commits"
    fi
    private_stop "$server"
}

# The replica's options, and who decides there after a crash.
replica_options() {
    options=(--server-id=2 --gtid-pos-auto-engines=evenkeel --slave-parallel-threads="$([ "$2" = 1 ] && echo 0 || echo 4)"
        --slave-parallel-mode=optimistic --slave-transaction-retries=100 --slave-exec-mode=IDEMPOTENT)
    decides=nobody
    case $1 in
        binlog) options+=(--log-bin=binlog --log-slave-updates) decides=binlog ;;
        no-updates) options+=(--log-bin=binlog) ;;
        tc-log) ;;
    esac
}

replicated() {
    local mode=$1 count=$2 round out before now rows table
    what="replica: $mode, $count threads"
    wanted || return
    records=$private_dir/replica-$mode-$count.records sums=()
    local server=replica-$mode-$count
    mkdir "$records"
    private_sql source --database=test -e 'delete from e; delete from et; delete from i; reset master'
    replica_options "$mode" "$count"
    fresh "$server"
    private_start "$server" "${options[@]}"
    [ "$decides" = binlog ] || private_sql "$server" -e 'set sql_log_bin=0;
        alter table mysql.gtid_slave_pos engine=evenkeel'
    private_follow "$server" "$source_port"
    for round in $(seq "$rounds"); do
        rm -f "$records/stop"
        clients work "$private_dir/source/socket" "$records" "$round" "$seed" "$count" binlog \
            2>"$private_dir/work.error" &
        worker=$!
        before=$(private_sql "$server" -N -e 'select count(*) from test.i')
        for _ in $(seq 3000); do
            now=$(private_sql "$server" -N -e 'select count(*) from test.i')
            [ "$now" -le "$((before + 50))" ] || break
            sleep 0.02
        done
        [ "$now" -gt "$((before + 50))" ] || fail "$what: it applies nothing"
        wait_a_moment
        private_kill "$server"
        touch "$records/stop"
        wait "$worker" || fail "$what: $(cat "$private_dir/work.error")"
        private_start "$server" "${options[@]}" --skip-slave-start
        out=$(clients replica "$private_dir/$server/socket" "$records" "$decides") || fail "$what, after kill $round"
        add "$out"
        private_sql "$server" -e 'start slave'
        private_caught_up "$server" source || fail "$what: it does not go on after kill $round"
    done
    rows=0
    for table in e et i; do
        private_sql source --database=test -N -e "select id, n from $table order by id" >"$private_dir/there"
        private_sql "$server" --database=test -N -e "select id, n from $table order by id" >"$private_dir/here"
        rows=$((rows + $(wc -l <"$private_dir/there")))
        now=$(diff "$private_dir/there" "$private_dir/here" | grep -c '^[<>]')
        [ "$now" = 0 ] && continue
        # What InnoDB has lost.
        if [ "$decides" = binlog ] || [ "$table" != i ]; then fail "$what: $now rows of $table differ"; fi
        sums[rows-that-differ]=$((${sums[rows-that-differ]:-0} + now))
    done
    sums[rows]=$rows
    report applied lost-in-evenkeel lost-in-innodb ahead-in-innodb rows rows-that-differ
    private_stop "$server"
}

# A log that cannot be synced any more, with commits that only the binlog has: an orderly end, RESET MASTER and a
# rotation go on or end the server as a kill, and the next start has what was acknowledged. And a database that
# cannot be opened holds up neither.
stopped() {
    what="log stopped, $1" server=stopped-${1// /-}
    wanted || return
    local way=$1 pid
    options_of binlog
    fresh "$server"
    EVENKEEL_FAIL_DIR=$private_dir/fail private_preload=$private_dir/failing.so private_start "$server" "${options[@]}"
    printf 'begin; insert into i values (5, 5, 5); insert into e values (5, 5, 5); commit;\n\\! touch %s/fail/sync\n' \
        "$private_dir" | private_sql "$server" --database=test
    for _ in $(seq 100); do
        [ "$(private_sql "$server" -N -e "select variable_value from information_schema.global_status
            where variable_name = 'evenkeel_writes_stopped'")" = 1 ] && break
        sleep 0.1
    done
    pid=${private_pids[$server]}
    [ "$way" = shutdown ] || timeout 20 mariadb --no-defaults --socket="$private_dir/$server/socket" -uroot -e "$way" \
        2>/dev/null
    ends "$pid"
    rm "$private_dir/fail/sync"
    private_start "$server" "${options[@]}"
    [ "$(private_sql "$server" --database=test -N -e 'select (select count(*) from e), (select count(*) from i)')" \
        = $'1\t1' ] || fail "$what: an acknowledged commit is lost"
    private_stop "$server"
    echo "$what: the server ends and has what was acknowledged"
}

# An orderly end in time.
ends() {
    {
        kill "$1"
        for _ in $(seq 300); do
            kill -0 "$1" || break
            sleep 0.1
        done
        kill -0 "$1" && touch "$private_dir/does-not-end"
        [ -e "$private_dir/does-not-end" ] || wait "$1"
    } 2>/dev/null
    [ -e "$private_dir/does-not-end" ] && fail "$what: the server does not end"
    unset "private_pids[$server]"
}

damaged() {
    what="damaged" server=damaged
    wanted || return
    options_of binlog
    fresh "$server"
    mv "$private_dir/$server/data/#evenkeel/evenkeel.super" "$private_dir/super"
    private_start "$server" "${options[@]}"
    timeout 20 mariadb --no-defaults --socket="$private_dir/$server/socket" -uroot --database=test -e "
        insert into i values (5, 5, 5); flush binary logs; insert into i values (6, 6, 6); reset master;
        insert into i values (7, 7, 7); flush binary logs" || fail "$what: statements of others do not go on"
    ends "${private_pids[$server]}"
    echo "$what: others go on, and the server ends"
}

private_start first
private_sql first -e 'create database test'
private_sql first --database=test -e "
    create table e (id int primary key, n int, pad varchar(300), key by_n (n)) engine=evenkeel;
    create table et like e;
    create table i (id int primary key, n int, pad varchar(300), key by_n (n)) engine=innodb;
    create trigger t after insert on et for each row insert into i values (new.id, new.n, new.pad)"
private_stop first
mkdir "$private_dir/fail"
gcc -shared -fPIC -O1 -o "$private_dir/failing.so" plugin/mariadb/tests/failing.c -ldl || exit 1
for way in shutdown 'reset master' 'flush binary logs'; do stopped "$way"; done
damaged
for mode in binlog tc-log unlogged; do
    for count in 1 4; do alone "$mode" "$count"; done
done
source_port=$(private_port)
fresh source
# No faster than its replicas.
private_start source --log-bin=binlog --server-id=1 --binlog-format=row --sync-binlog=1 $private_tcp="$source_port"
for mode in binlog tc-log no-updates; do
    for count in 1 4; do replicated "$mode" "$count"; done
done
