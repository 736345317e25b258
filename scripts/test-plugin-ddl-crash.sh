#!/bin/bash
# Ends the server in the midst of DDL statements: in front of a sync, rename or removal of a file of the
# engine, of the server's ddl_recovery.log or of a table's definition (plugin/mariadb/tests/failing.c). Each
# statement is run once to count such steps, then killed at EVENKEEL_DDL_KILLS (4) of them, evenly over all,
# from EVENKEEL_SEED on; every third restart is killed too. After each restart: every table is as before the
# statement or as after it (all of them alike where the statement is atomic), as after it if it was
# acknowledged; CHECK TABLE is clean; the engine's tables and indexes are those of the server; nothing is left
# of the statement, in the engine nor among the files, and the server's recovery reports no error.
# test-plugin-ddl-crash.sh [NAME]: of that statement alone. EVENKEEL_DDL_ENGINE=innodb shows what the server
# leaves with any engine. Prints "N kills, ...".
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/private.sh
wanted=${EVENKEEL_DDL_KILLS:-4}
engine=${EVENKEEL_DDL_ENGINE:-evenkeel}
seed=${EVENKEEL_SEED:-$RANDOM}
RANDOM=$seed
private_begin
export EVENKEEL_FAIL_DIR=$private_dir/fail
mkdir "$EVENKEEL_FAIL_DIR"
private_preload=$private_dir/failing.so
gcc -shared -fPIC -O1 -o "$private_preload" plugin/mariadb/tests/failing.c -ldl || exit 1
python3 -B scripts/test_failing.py "$private_preload" || exit 1
options=(--log-bin=binlog --server-id=1 --binlog-format=row --sync-binlog=1 --innodb-log-file-size=8M)
names=() atomic=() prepared=() run=()

# NAME, whether all tables change at once (all; server: not even in the server) or one by one (each; absent: a table
# may be gone too), what comes before it, the statement.
ddl() {
    names+=("$1") atomic+=("$2") prepared+=("$3") run+=("$4")
}
parts="create table parts (id int, a int, b varchar(40), primary key (id), key (a)) engine=$engine
    partition by range (id) (partition p0 values less than (100), partition p1 values less than (1000));
    insert into parts select id, a, b from base"
ddl create all "" "create table made (id int primary key, a int, key (a)) engine=$engine"
ddl create-select all "" "create table made (primary key (id), key (a)) engine=$engine select id, a from base"
ddl create-sequence all "" "create sequence made engine=$engine"
# The server drops the old table before it makes the new one (atomic only in later versions).
ddl create-or-replace absent "" "create or replace table base (id int primary key, z int, key (z)) engine=$engine"
ddl drop each "" "drop table base, other"
ddl drop-database each "" "drop database test"
ddl rename all "" "rename table base to away, other to base, away to other"
ddl truncate all "" "truncate table base"
ddl alter-copy all "" "alter table base modify a bigint, algorithm=copy"
# Rows come in another order than that of the new key.
ddl alter-copy-key all "" "alter table base drop primary key, add primary key (b), drop key b, add unique key i (id), add key (a, b)"
ddl alter-rename all "" "alter table base add column z int default 7, add key (b, a), rename to moved"
ddl alter-to-innodb all "" "alter table base engine=innodb"
ddl alter-from-innodb all "alter table other engine=innodb" "alter table other engine=$engine"
# The server itself, with InnoDB too, leaves a table without its .par file, which nobody can open, where it is killed
# between the renamings of the partitions and of that file. So this one is run only where it is named.
ddl partition-by server "" "alter table base drop key b partition by hash (id) partitions 3"
ddl alter-partitions all "$parts" "alter table parts add key (b), add unique key u (id, b), drop key a,
    add column z int default 7, algorithm=nocopy"
ddl alter-partitions-instant all "$parts" "alter table parts drop column a, drop key a, rename column b to c,
    algorithm=instant"
ddl remove-partitioning all "$parts" "alter table parts remove partitioning"
ddl add-partition all "$parts" "alter table parts add partition (partition p2 values less than maxvalue)"
ddl drop-partition all "$parts" "alter table parts drop partition p0"
ddl truncate-partition all "$parts" "alter table parts truncate partition p0"
ddl reorganize-partition all "$parts" "alter table parts reorganize partition p0 into
    (partition n0 values less than (50), partition n1 values less than (100))"
ddl exchange-partition all "$parts; create table single like parts; alter table single remove partitioning;
    insert into single values (7, 7, 'single')" "alter table parts exchange partition p0 with table single"
# The server leaves no definition, or one without its .par file, between these renamings too.
ddl convert-partition server "$parts" "alter table parts convert partition p0 to table single"
ddl convert-table server "$parts; create table single like parts; alter table single remove partitioning;
    delete from parts where id >= 100; alter table parts drop partition p1;
    insert into single values (150, 7, 'single')" "alter table parts convert table single to partition p1
    values less than (1000)"

failed=0
fail() {
    failed=$((failed + 1))
    echo "ddl crash: $statement, step $step of $steps ($(step_name)): $*" >&2
}
step_name() { sed -n "s/^$step //p" "$private_dir/killed.at" 2>/dev/null | sed "s|$private_dir/main/data/||" | head -1; }
ask() { private_sql main --skip-column-names --silent -e "$1"; }

prepare() {
    ask "create or replace database test; use test;
        create table base (id int auto_increment primary key, a int, b varchar(40), key (a), unique key b (b))
            engine=$engine;
        insert into base select seq, seq % 13, concat('row ', seq) from seq_1_to_300;
        create table other (id int primary key, a int, key (a)) engine=$engine;
        insert into other values (1, 10), (2, 20);
        ${prepared[$1]}" || { echo "ddl crash: preparing ${names[$1]}" >&2; exit 1; }
}

# A line for each table: its name, its rows and its definition. Numbers that were reserved are lost by a crash.
state() {
    local table
    for table in $(ask "select table_name from information_schema.tables where table_schema='test' order by 1"); do
        echo "$table $(ask "checksum table test.$table; show create table test.$table" | tr -s '\n\t ' ' ' | sed -E 's/AUTO_INCREMENT=3[0-9]{2}/AUTO_INCREMENT=300 or more/')"
    done
}

# Arms the library for the step N (0: none), runs the statement, says whether it was acknowledged.
attempt() {
    rm -f "$EVENKEEL_FAIL_DIR"/*
    echo "$2" >"$EVENKEEL_FAIL_DIR/armed"
    mv "$EVENKEEL_FAIL_DIR/armed" "$EVENKEEL_FAIL_DIR/crash"
    private_sql main --database=test -e "${run[$1]}" >/dev/null 2>"$private_dir/attempt.error"
    local code=$?
    rm -f "$EVENKEEL_FAIL_DIR/crash"
    # A thread of the background may have seen it and end the server yet.
    sleep 0.05
    cp "$EVENKEEL_FAIL_DIR/steps" "$private_dir/killed.at" 2>/dev/null
    return $code
}

# The server with what the kill left; every third time it is killed in its first steps as well.
restart() {
    private_kill main
    if [ $((kills % 3)) -eq 0 ]; then
        echo $((RANDOM % 40 + 1)) >"$EVENKEEL_FAIL_DIR/armed"
        mv "$EVENKEEL_FAIL_DIR/armed" "$EVENKEEL_FAIL_DIR/crash"
        private_launch main "${options[@]}"
        for _ in $(seq 600); do
            kill -0 "${private_pids[main]}" 2>/dev/null || { restarts_killed=$((restarts_killed + 1)); break; }
            ask 'select 1' >/dev/null 2>&1 && break
            sleep 0.1
        done
        rm -f "$EVENKEEL_FAIL_DIR/crash"
        private_kill main
    fi
    private_start main "${options[@]}"
}

# What the user's page says of a crash behind the last renaming of a partition: the .par file is there under its
# temporary name.
rescue() {
    local files=$private_dir/main/data/test par
    par=$(find "$files" -name '#sql-alter-*.par')
    [ -z "$par" ] || [ -f "$files/base.par" ] || [ "$(ask "select count(distinct table_name) from
        information_schema.evenkeel_tables where table_name like 'base#P#%'")" != 3 ] || mv "$par" "$files/base.par"
}

# Of one table, alike in both files, or those of one table.
same() { cmp -s <(grep -E "^$3 " "$1") <(grep -E "^$3 " "$2"); }

check() {
    local i=$1 acknowledged=$2 table found
    [ "${atomic[i]}" != server ] || rescue
    state >"$private_dir/now"
    outcome=new
    if ! cmp -s "$private_dir/now" "$private_dir/new"; then
        [ "$acknowledged" = no ] || fail "was acknowledged and is not as after it"
        outcome=old
        if ! cmp -s "$private_dir/now" "$private_dir/old"; then
            outcome=between
            [[ ${atomic[i]} != all && ${atomic[i]} != server ]] || fail "neither as before nor as after it: $(diff "$private_dir/old" "$private_dir/now")"
            for table in $(cut -d' ' -f1 "$private_dir"/{old,new,now} | sort -u); do
                same "$private_dir/now" "$private_dir/old" "$table" || same "$private_dir/now" "$private_dir/new" "$table" \
                    || { [ "${atomic[i]}" = absent ] && ! grep -q "^$table " "$private_dir/now"; } \
                    || fail "table $table is neither as before nor as after it"
            done
        fi
    fi
    for table in $(cut -d' ' -f1 "$private_dir/now"); do
        # Sequences have none, of any engine.
        found=$(ask "check table test.$table" | grep -vE $'status\tOK$|note\tThe storage engine for the table')
        [ -z "$found" ] || fail "CHECK TABLE: $found"
    done
    found=$(cd "$private_dir/main/data" && find . -path './#evenkeel' -prune -o \( -name '*sql-*' -o -name '*#TMP#*' -o -name '*#REN#*' \) -print)
    [ -z "$found" ] || fail "files are left: $found"
    found=$(tail -n "+$((said + 1))" "$private_dir/main/error.log" | grep 'ERROR')
    [ -z "$found" ] || fail "$found"
    [ "$engine" = evenkeel ] || return 0
    found=$(diff <(ask "select distinct concat(table_schema, '/', table_name) from information_schema.evenkeel_tables" | sort) \
        <(ask "select concat(t.table_schema, '/', t.table_name, ifnull(concat('#P#', p.partition_name), ''))
            from information_schema.tables t join information_schema.partitions p using (table_schema, table_name)
            where t.engine = 'EVENKEEL' or t.table_type = 'SEQUENCE' or p.partition_name is not null" | sort))
    [ -z "$found" ] || fail "the engine's tables (<) are not the server's (>): $found"
    found=$(ask "select distinct concat(substring_index(table_name, '#P#', 1), '.', index_name) from information_schema.evenkeel_indexes
            where table_schema = 'test' and state = 'valid'" | sort |
        diff - <(ask "select distinct concat(table_name, '.', index_name) from information_schema.statistics join
            information_schema.tables using (table_schema, table_name) where table_schema = 'test'
            and index_name <> 'PRIMARY' and engine <> 'InnoDB'" | sort))
    [ -z "$found" ] || fail "the engine's indexes (<) are not the server's (>): $found"
}

# After a fault, which was reported, all begins anew: what it left would be in the way of the next.
begin_anew() {
    private_kill main
    rm -rf "$private_dir/main/data"
    cp -a "$private_dir/new-data" "$private_dir/main/data"
    private_start main "${options[@]}"
    outcome=anew
}

statement=none step=0 steps=0 tried=0 kills=0 restarts_killed=0 done_steps=0
declare -A ends=([old]=0 [new]=0 [between]=0)
private_start main "${options[@]}"
private_stop main
cp -a "$private_dir/main/data" "$private_dir/new-data"
private_start main "${options[@]}"
only=${1:-}
for i in "${!names[@]}"; do
    statement=${names[i]} step=0
    if [ -n "$only" ]; then
        [ "$only" = "$statement" ] || continue
    else
        [ "${atomic[i]}" != server ] || continue
    fi
    tried=$((tried + 1))
    prepare "$i"
    state >"$private_dir/old"
    attempt "$i" 0 || { fail "without a kill: $(cat "$private_dir/attempt.error")"; continue; }
    state >"$private_dir/new"
    steps=$(wc -l <"$private_dir/killed.at")
    done_steps=$((done_steps + steps))
    stride=$((steps > wanted ? steps / wanted : 1)) outcome=new
    for ((step = 1 + RANDOM % stride; step <= steps; step += stride)); do
        [ "$outcome" = old ] || prepare "$i"
        acknowledged=no
        said=$(wc -l <"$private_dir/main/error.log")
        attempt "$i" "$step" && acknowledged=yes
        # Steps of the background may have come between: without them it had fewer.
        if ! ask 'select 1' >/dev/null 2>&1; then
            kills=$((kills + 1))
            restart
        elif [ $acknowledged = no ]; then
            fail "$(cat "$private_dir/attempt.error")"
        fi
        before=$failed
        check "$i" "$acknowledged"
        ends[$outcome]=$((ends[$outcome] + 1))
        [ "$failed" -eq "$before" ] || begin_anew
    done
done
# Steps of the background are counted with the statement's when it is first run, and may not come again.
[ -n "$only" ] || [ "$kills" -ge $((tried * 2)) ] || fail "only $kills kills"
[ -n "$only" ] || [ "${ends[new]}" -ge 10 ] || fail "only ${ends[new]} came to their end"
echo "$tried statements of $done_steps steps: $kills kills, $restarts_killed of restarts; tables as before ${ends[old]}," \
    "as after ${ends[new]}, between ${ends[between]}; $failed failed (EVENKEEL_SEED=$seed)"
[ "$failed" -eq 0 ] && [ "$kills" -gt 0 ]
