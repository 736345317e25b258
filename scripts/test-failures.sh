#!/bin/bash
# What users see when the disk is full, a sync fails or a page is damaged, in one private server whose
# system calls fail on demand (plugin/mariadb/tests/failing.c). Prints "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
export EVENKEEL_SQL_DIR EVENKEEL_FAIL_DIR
EVENKEEL_SQL_DIR=$(mktemp -d)
EVENKEEL_FAIL_DIR=$EVENKEEL_SQL_DIR/fail
trap 'rm -rf "$EVENKEEL_SQL_DIR"' EXIT
mkdir "$EVENKEEL_FAIL_DIR"
gcc -shared -fPIC -O1 -o "$EVENKEEL_SQL_DIR/failing.so" plugin/mariadb/tests/failing.c -ldl || exit 1
log=$EVENKEEL_SQL_DIR/error.log
client="mariadb --no-defaults --socket=$EVENKEEL_SQL_DIR/socket -uroot test"
passed=0 failed=0

# Runs SQL on a fresh server; lines `\! touch FILE` make calls fail from there on.
run() {
    EVENKEEL_SERVER_ARGS="--evenkeel-log-size=32M --evenkeel-memory-size=16M ${args:-}" \
        EVENKEEL_PRELOAD=$EVENKEEL_SQL_DIR/failing.so \
        timeout 900 bash scripts/sql.sh --force --batch -N 2>&1
}
expect() {
    local what=$1 pattern=$2 text=$3
    if grep -qE "$pattern" <<<"$text"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'not seen: %s (%s) in:\n%s\n' "$what" "$pattern" "$text" >&2
    fi
}

# In a file of its own: the client ends a command at a semicolon.
cat >"$EVENKEEL_SQL_DIR/again" <<END
for _ in \$(seq 600); do
    $client -e "replace into t values (500, 'again'); replace into u values (1)" && break
    sleep 0.1
done 2>/dev/null
END

# 1. A full disk: changes fail, reads go on; soon after there is room again changes go on.
out=$(run <<END
create table t (id int primary key, b longblob) engine=evenkeel;
create table u (id int primary key) engine=evenkeel;
insert into t values (1, repeat('a', 100));
\\! touch $EVENKEEL_FAIL_DIR/full
insert into t select seq, repeat('b', 1000000) from seq_2_to_200;
select 'rows', count(*) from t;
\\! rm $EVENKEEL_FAIL_DIR/full
\\! bash $EVENKEEL_SQL_DIR/again
select 'then', count(*) from t;
check table t;
END
)
expect "error of a full disk" 'ERROR (1114|1021)' "$out"
expect "reads on a full disk" $'rows\t1$' "$out"
expect "changes with room again" $'then\t2$' "$out"
expect "a sound table" $'check\tstatus\tOK' "$out"

# 2. A failed sync: changes stop with an error, reads go on, the next start recovers. COMMIT of what
# was changed before says so too.
out=$(run <<END
insert into u values (2);
create table w (id int primary key) engine=evenkeel;
begin;
insert into w values (1);
\\! touch $EVENKEEL_FAIL_DIR/sync
\\! $client -e 'insert into u values (30)'
select 'committing';
commit;
select 'committed';
insert into u values (3);
insert into t values (501, 'no');
\\! rm $EVENKEEL_FAIL_DIR/sync
insert into t values (502, 'no');
select 'rows', count(*) from t;
show global status like 'Evenkeel_writes_stopped';
END
)
expect "errors of a failed sync" 'ERROR .*' "$out"
expect "COMMIT with changes stopped" 'ERROR 1036' \
    "$(sed -n '/^committing$/,/^committed$/p' <<<"$out")"
expect "changes stay stopped" '^ERROR 1036|^ERROR .* read.only' "$out"
expect "reads after a failed sync" $'rows\t2$' "$out"
expect "the status variable" $'Evenkeel_writes_stopped\t1' "$out"
expect "the reason in the log" 'EVENKEEL' "$(grep -i 'sync' "$log")"
out=$(run <<END
select 'acknowledged', count(*) from u where id <= 2;
insert into t values (503, 'yes');
select 'rows', count(*) from t;
check table t, u;
END
)
expect "what was acknowledged" $'acknowledged\t2$' "$out"
expect "changes after the restart" $'rows\t3$' "$out"

# 2b. By error number (crates/io/src/errno.rs): what the system is short of is waited out, whichever call says
# so; what leaves files unknown stops writes, and the next start has all that was acknowledged.
# Changes until the call that is to fail has come: a flush makes files when a memtable is full, and opens them to
# read; a table that grows takes blocks.
cat >"$EVENKEEL_SQL_DIR/provoke" <<END
for n in \$(seq 40); do
    timeout 90 $client -e "replace into e select seq, concat(seq * 7919 % 4001, repeat(char(40 + \$n), 600)) from seq_1_to_600;
        insert into g (b) select repeat(char(40 + \$n), 600) from seq_1_to_600"
    [ -s $EVENKEEL_FAIL_DIR/struck ] && break
done 2>/dev/null
END
cat >"$EVENKEEL_SQL_DIR/refill" <<END
for _ in \$(seq 300); do
    timeout 90 $client -e "replace into e select seq, concat(seq * 7919 % 4001, repeat('x', 600)) from seq_1_to_600" && break
    sleep 0.1
done 2>/dev/null
END
cat >"$EVENKEEL_SQL_DIR/meet" <<END
rm -f $EVENKEEL_FAIL_DIR/struck
echo "\$2 \$3 \$4" >$EVENKEEL_FAIL_DIR/errno
bash $EVENKEEL_SQL_DIR/provoke
rm $EVENKEEL_FAIL_DIR/errno
[ ! -s $EVENKEEL_FAIL_DIR/struck ] || echo "struck \$2 \$3"
case \$1 in
    waited) bash $EVENKEEL_SQL_DIR/refill ;;
    final)
        for _ in \$(seq 100); do
            timeout 90 $client -Ne "show status like 'Evenkeel_writes_stopped'" | grep -q 1 && break
            sleep 0.1
        done
        ;;
esac
END
names=(ENOSPC:28 EDQUOT:122 EFBIG:27 EMFILE:24 ENFILE:23 ENOMEM:12 EAGAIN:11)
cells() {
    local name
    for name in "${names[@]}"; do
        echo "create $name"
        case $name in EMFILE* | ENFILE* | ENOMEM* | EAGAIN*) echo "open $name" ;; esac
        case $name in ENOSPC* | EDQUOT* | EFBIG* | ENOMEM*) echo "write $name" && echo "reserve $name" ;; esac
    done
}
script=$EVENKEEL_SQL_DIR/waited
{
    echo "create table e (id int primary key, b varbinary(700), key (b)) engine=evenkeel;"
    echo "create table g (id int auto_increment primary key, b varbinary(700)) engine=evenkeel;"
    cells | while read -r call name; do
        echo "\! bash $EVENKEEL_SQL_DIR/meet waited $call ${name#*:} 2"
        echo "select '$call ${name%:*}', count(*), variable_value from e, information_schema.global_status" \
            "where variable_name = 'Evenkeel_writes_stopped';"
    done
    echo "check table e, g;"
} >"$script"
out=$(run <"$script")
while read -r call name; do
    expect "$call ${name%:*} was met" "^struck $call ${name#*:}\$" "$out"
    expect "$call ${name%:*} is waited out" "^$call ${name%:*}"$'\t600\t0$' "$out"
done < <(cells)
expect "sound tables after all of them" '^2$' "$(grep -cP '[eg]\tcheck\tstatus\tOK' <<<"$out")"
for cell in "write 5" "write 30" "sync 5" "sync 12" "sync 30" "create 5" "create 30"; do
    out=$(run <<END
replace into e values (0, 'kept');
\\! bash $EVENKEEL_SQL_DIR/meet final $cell 1
insert into e values (-1, 'no');
select 'rows', count(*) > 0 from e;
show global status like 'Evenkeel_writes_stopped';
END
)
    expect "$cell stops changes" $'Evenkeel_writes_stopped\t1' "$out"
    expect "$cell: reads go on" $'^rows\t1$' "$out"
    out=$(run <<<"select 'kept', b from e where id = 0; replace into e values (-2, 'yes'); delete from e where id < 0; check table e;")
    expect "$cell: what was acknowledged" $'^kept\tkept$' "$out"
    expect "$cell: sound after the restart" $'e\tcheck\tstatus\tOK' "$out"
done

# 3. No thread can be begun: the ALTER of more than a few rows says so, the server goes on.
out=$(run <<END
create table h (id int primary key, a int) engine=evenkeel;
insert into h select seq, seq from seq_1_to_3000;
\\! touch $EVENKEEL_FAIL_DIR/thread
alter table h add index ia (a), algorithm=nocopy;
\\! rm $EVENKEEL_FAIL_DIR/thread
alter table h add index ib (a), algorithm=nocopy;
select 'went on', id from h force index (ib) where a = 1;
END
)
expect "the error of a build without a thread" 'ERROR .*thread' "$out"
expect "the server after it" $'went on\t1$' "$out"

# 4. A damaged page: its table is crashed, with file and page in the log; others go on.
run >/dev/null <<END
create table d (id int primary key, c varbinary(1000)) engine=evenkeel;
insert into d select seq, concat('damage-me-', seq, repeat('x', 500)) from seq_1_to_3000;
END
# Once more: the log of the life that wrote the rows would mend the page.
run >/dev/null <<<"select count(*) from d"
python3 - "$EVENKEEL_SQL_DIR/data/#evenkeel" <<'END' || exit 1
import glob, os, sys
hit = 0
for path in glob.glob(sys.argv[1] + "/**/*", recursive=True):
    # The log is not read again after a clean end.
    if os.path.isfile(path) and "log" not in os.path.basename(path) and "wal" not in path:
        with open(path, "r+b") as f:
            data = f.read()
            at = data.find(b"damage-me-1500x")
            while at >= 0:
                f.seek(at)
                f.write(b"DAMAGE")
                hit += 1
                print("damaged:", os.path.basename(path), at, file=sys.stderr)
                at = data.find(b"damage-me-1500x", at + 1)
sys.exit(0 if hit else 1)
END
: >"$log"
out=$(run <<END
select 'sum', sum(length(c)) from d;
insert into u values (10);
select 'others', count(*) from u;
select 'point', id from d where id = 1;
select 'damaged', left(c, 20) from d where id = 1500;
check table d;
check table u;
END
)
expect "the error of a damaged page" 'ERROR 1034' "$out"
# NOT NULL in place reads every row: it fails, nothing of it stays, and nobody's NULL is refused.
out_alter=$(run <<END
alter table d modify c varbinary(1000) not null, algorithm=nocopy, lock=none;
select 'nullable', is_nullable from information_schema.columns where table_name = 'd' and column_name = 'c';
insert into d values (4000, null);
select 'with NULL', count(*) from d where id = 4000 and c is null;
END
)
expect "the error of NOT NULL in place" 'ERROR 1034' "$out_alter"
expect "the column after it" $'nullable\tYES$' "$out_alter"
expect "a NULL after it" $'with NULL\t1$' "$out_alter"
expect "other tables" $'others\t[34]$' "$out"
expect "rows on other pages" $'point\t1$' "$out"
expect "CHECK TABLE of it" $'d\tcheck\t(error|Warning)' "$out"
expect "CHECK TABLE of another" $'u\tcheck\tstatus\tOK' "$out"
expect "file and page in the log" 'EVENKEEL.*page' "$(grep EVENKEEL "$log")"

# 5. A damaged superblock, a damaged page of the catalog, a missing file of pages, one that cannot be
# opened, and damaged log segments: the server starts, says what is wrong
# and what to do, tables report an error, others work, and nothing is written. With the file brought
# back all is as before.
data=$EVENKEEL_SQL_DIR/data/#evenkeel
sums() { (cd "$data" && find . -type f ! -name '*lock*' | sort | xargs -d '\n' sha256sum); }
before=$(run <<<"create table if not exists i (id int primary key) engine=innodb; select 'u has', count(*) from u;" \
    | grep 'u has')
for what in superblock catalog missing unreadable log; do
    cp -a "$data" "$EVENKEEL_SQL_DIR/kept"
    python3 - "$data" "$what" <<'END' || exit 1
import glob, os, sys
data, what = sys.argv[1:]
if what in ("missing", "unreadable"):
    path = sorted(glob.glob(data + "/pages/*"))[0]
    os.remove(path)
    if what == "unreadable":
        os.symlink(os.path.basename(path), path)  # to itself
    print(f"{what}: {path}", file=sys.stderr)
    sys.exit(0)
if what == "log":
    places = [(path, at) for path in glob.glob(data + "/wal/*") for at in range(0, 1 << 20, 512)]
elif what == "superblock":
    places = [(data + "/evenkeel.super", at) for at in range(0, 65536, 512)]
else:
    # Pages that name the tables.
    places = []
    for path in glob.glob(data + "/pages/*"):
        image = open(path, "rb").read()
        at = image.find(b"test/u")
        while at >= 0:
            places.append((path, at))
            at = image.find(b"test/u", at + 1)
for path, at in places:
    with open(path, "r+b") as f:
        f.seek(0, 2)
        if at < f.tell():
            f.seek(at)
            f.write(b"DAMAGE")
print(f"damaged: {len(places)} places of the {what}", file=sys.stderr)
sys.exit(0 if places else 1)
END
    damaged=$(sums)
    : >"$log"
    out=$(run <<END
select 'read', count(*) from u;
insert into u values (77);
create table v (id int primary key) engine=evenkeel;
drop table u;
drop table if exists nosuch;
show warnings;
alter table u add column x int;
start transaction with consistent snapshot;
insert into i values (1);
commit;
delete from i;
show engine evenkeel status;
select 'jobs', count(*) from information_schema.evenkeel_jobs;
flush logs;
select 'others', count(*) from i;
END
)
    expect "$what: the error of a read" "ERROR .* EVENKEEL: its tables cannot be used" "$out"
    expect "$what: each use is an error" "^5$" "$(grep -c 'its tables cannot be used' <<<"$out")"
    expect "$what: a table of no engine" $'^Note\t1051\t' "$out"
    expect "$what: other engines" $'others\t0$' "$out"
    expect "$what: the file in the log" 'EVENKEEL: open: .*(evenkeel.super|pages/|wal/)' "$(grep EVENKEEL "$log")"
    expect "$what: the next step in the log" 'keep a copy of that directory' "$(grep EVENKEEL "$log")"
    expect "$what: nothing is written" '^same$' "$(diff <(echo "$damaged") <(sums) && echo same)"
    rm -rf "$data"
    mv "$EVENKEEL_SQL_DIR/kept" "$data"
    expect "$what: all is there again" "^$before\$" "$(run <<<"select 'u has', count(*) from u;" | grep 'u has')"
done

# 5b. One slot of the superblock is damaged: the other one counts, and the log says so; the start writes it anew.
python3 - "$data/evenkeel.super" <<'END' || exit 1
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(48)
    f.write(b"DAMAGE")
END
: >"$log"
out=$(run <<<"select 'u has', count(*) from u; insert into u values (78); delete from u where id = 78;")
expect "rows with a damaged slot" "^$before\$" "$(grep 'u has' <<<"$out")"
expect "the slot in the log" 'EVENKEEL: evenkeel.super: slot 0 is damaged' "$(cat "$log")"
: >"$log"
run >/dev/null <<<"select 1"
expect "the slot was written anew" '^0$' "$(grep -c 'evenkeel.super: slot' "$log")"

# 6. A run file that lost its footer: its index is damaged, with its names, its file and the next step,
# the table and its other index go on, and dropping it and adding it again makes all whole.
run >/dev/null <<END
create table x (id int primary key, a int, b int, index ia (a)) engine=evenkeel;
insert into x select seq, seq, seq from seq_1_to_2000;
END
cp -a "$data/runs" "$EVENKEEL_SQL_DIR/runs-before"
run >/dev/null <<<"alter table x add unique index ub (b), algorithm=nocopy"
hit=0
for file in "$data"/runs/*; do
    [ -e "$EVENKEEL_SQL_DIR/runs-before/$(basename "$file")" ] && continue
    dd if=/dev/zero of="$file" bs=4096 count=1 seek=$(($(stat -c %s "$file") / 4096 - 1)) conv=notrunc status=none
    hit=$((hit + 1)) damaged=$file
done
expect "a file of the new index" '^1$' "$hit"
: >"$log"
out=$(run <<END
select 'damaged', id from x force index (ub) where b = 7;
insert into x values (9001, 1, 9001);
update x set a = -1 where id = 5;
delete from x where id = 6;
select 'table', count(*) from x force index (primary);
select 'other', id from x force index (ia) where a = -1;
check table x;
alter table x drop index ub, algorithm=nocopy;
insert into x values (9001, 1, 9001);
alter table x add unique index ub (b), algorithm=nocopy;
select 'whole', id from x force index (ub) where b = 7;
check table x;
END
)
expect "the error of a damaged index" 'ERROR 1034|ERROR .*damaged' \
    "$(sed -n "/^select 'damaged'/,/^insert/p" <<<"$out")"
expect "a unique key is not guessed at" 'ERROR 1034|ERROR .*damaged' \
    "$(sed -n '/^insert into x/,$p' <<<"$out")"
expect "the table of a damaged index" $'table	1999$' "$out"
expect "its other index" $'other	5$' "$out"
expect "CHECK TABLE names the index" $'x	check	(error|Warning).*ub.*runs/' "$out"
expect "the index made again" $'whole	7$' "$out"
expect "sound again" $'x	check	status	OK' "$out"
expect "its names in the log" 'EVENKEEL.*table=test/x, index=ub, file=runs/.*drop the index' "$(grep EVENKEEL "$log")"
expect "its space" '^gone$' "$([ -e "$damaged" ] || echo gone)"

# 7. Rows that no page takes are refused when the table is made; larger pages take a thousand INT.
# Another data directory: pages have the size with which the database was made.
wide() {
    python3 -c "print('create table', '$1', '(id int primary key,', ', '.join(
        f'c{i} int' for i in range(1, 1000)), ', key k (c999)) engine=evenkeel;')"
}
out=$(run <<<"$(wide narrow)")
expect "a table of rows that fit no page" 'ERROR .*too long.*limit=1982' "$out"
large=$EVENKEEL_SQL_DIR/large
out=$(args="--evenkeel-data-dir=$large --evenkeel-page-size=16384" run <<END
$(wide broad)
insert into broad (id, c1, c500, c999) select seq, -seq, seq, seq % 7 from seq_1_to_500;
update broad set c500 = null where id % 3 = 0;
update broad set c999 = 8 where id = 11;
alter table broad add column more int default 5, add index k5 (c500), algorithm=nocopy;
select 'wide', sum(c1), count(c500), sum(more) from broad;
select 'by index', id from broad force index (k) where c999 = 8;
END
)
expect "rows of 1,000 columns" $'wide\t-125250\t334\t2500$' "$out"
expect "their index" $'by index\t11$' "$out"
out=$(args="--evenkeel-data-dir=$large" run <<<"select 'wide', sum(c1) from broad; check table broad;")
expect "pages of the size they have" $'wide\t-125250$' "$out"
expect "a sound wide table" $'broad\tcheck\tstatus\tOK' "$out"
# A wrong setting is no damage: the engine is not there, and nobody is sent for a backup.
for size in 8192 12288; do
    : >"$log"
    out=$(args="--evenkeel-data-dir=$large --evenkeel-page-size=$size" run <<<"select 1 from broad;")
    expect "page size $size" 'EVENKEEL: open: .*page.size' "$(cat "$log")"
    expect "no table with page size $size" 'ERROR 1(286|932)' "$out"
    expect "no word of damage" '^0$' "$(grep -c 'the last backup' "$log")"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
