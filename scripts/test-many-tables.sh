#!/bin/bash
# Schema changes beside many tables: EVENKEEL_TABLES (2,000) tables of two indexes, most of their pages
# dirty; then ADD INDEX and DROP INDEX on an empty table, 50 times. None of it may read a page, visit a
# row, flush pages or cost more for more tables; a restart opens them all. Prints what was counted.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/private.sh
private_begin
tables=${EVENKEEL_TABLES:-2000}
pairs=50

fail() {
    echo "many tables: $*" >&2
    grep -E "ERROR|EVENKEEL:" "$private_dir"/*/error.log | head -8 | cut -c1-400 >&2
    exit 1
}
ask() { private_sql many --database=test --skip-column-names -e "$1" 2>&1; }
is() { [ "$2" = "$3" ] || fail "$1: $2, not $3"; }
count() { ask "show global status like 'Evenkeel_$1'" | cut -f2; }
memory() { awk '/^VmRSS/ {print $2}' "/proc/${private_pids[many]}/status"; }
ms() { echo $(($(date +%s%N) / 1000000)); }

options=(--table-open-cache=400 --evenkeel-memory-size=256M)
private_start many "${options[@]}"
private_sql many -e "create database test"
before=$(memory) began=$(ms)
for tenth in $(seq 0 9); do
    from=$((tables * tenth / 10)) to=$((tables * (tenth + 1) / 10)) at=$(ms)
    for ((i = from; i < to; i++)); do
        echo "create table t$i (id int primary key, a int, b varchar(20), index (a), index (b)) engine=evenkeel;"
        echo "insert into t$i values (1, $i, 'one'), (2, $i, 'two');"
    done | private_sql many --database=test || fail "tables of tenth $tenth"
    took[tenth]=$(($(ms) - at))
done
made=$(($(ms) - began)) after=$(memory)
is "tables" "$(ask "select count(*) from information_schema.tables where table_schema='test' and engine='EVENKEEL'")" "$tables"

ask "create table empty (id int primary key, a int) engine=evenkeel; select * from empty"
names="page_reads build_read_bytes rows_read run_block_reads run_flush_bytes flush_done_pages"
# Pages are written in the background, more the longer this takes; not those of all tables.
declare -A first most=([flush_done_pages]=$((tables * 3 / 4)))
# On a machine with slow syncs other work of the background may come between: so some tries.
for ((try = 1; try <= 5; try++)); do
    if [ "$try" -gt 1 ]; then
        # Most pages are dirty again.
        {
            echo "begin;"
            for ((i = 0; i < tables; i++)); do echo "update t$i set b = 'try $try' where id = 1;"; done
            echo "commit;"
        } | private_sql many --database=test || fail "changing all tables"
    fi
    for name in $names; do first[$name]=$(count "$name"); done
    began=$(ms) beyond=
    for ((i = 0; i < pairs; i++)); do
        echo "alter table empty add index ia (a), algorithm=nocopy, lock=none; alter table empty drop index ia, algorithm=nocopy;"
    done | private_sql many --database=test || fail "pairs of ADD and DROP INDEX"
    each=$((($(ms) - began) / pairs))
    for name in $names; do
        more=$(($(count "$name") - first[$name]))
        [ "$more" -le "${most[$name]:-0}" ] || beyond+=" $more $name, not ${most[$name]:-0};"
    done
    [ -n "$beyond" ] || break
    echo "try $try, $pairs pairs of ADD and DROP INDEX of $each ms:$beyond"
done
[ -z "$beyond" ] || fail "no try of $((try - 1)) was without"

private_stop many
began=$(ms)
private_start many "${options[@]}"
opened=$(($(ms) - began)) start=$(memory)
is "a row after the restart" "$(ask "select count(*) from t$((tables - 1)) force index (a) where a = $((tables - 1))")" 2
is "a row of the first table" "$(ask "select b from t0 where id = 2")" two
echo "$tables tables in $made ms (tenths: ${took[*]}), $(((after - before) * 1024 / tables)) bytes each;" \
    "ADD and DROP INDEX $each ms a pair; server start $opened ms, $start KiB"
