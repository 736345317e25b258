"""Every statement that a client may send in each state of an XA transaction, on InnoDB and on EVENKEEL.

    compare(SOCKET, CELL)     CELL: words that a cell's name must have, as "PREPARED / release savepoint s1"

A cell is a state, a statement and how the transaction is ended then: by the connection itself or, once it
is gone, by another one, with COMMIT or ROLLBACK. After each step the answer (rows, error number), what a
second connection sees, and XA RECOVER must be the same with both engines; at the end nobody holds a row.
A cell that differs is printed.
"""
import re
import sys
import time

from client_process import Connection, Gone

ENGINES = ("innodb", "evenkeel")
WORK = ["xa start 'x'", "insert into t values (10, 10)", "savepoint s1", "update t set v = 20 where id = 2",
        "savepoint s2", "insert into t values (11, 11)"]
STATES = {
    "ACTIVE": WORK,
    "IDLE": [*WORK, "xa end 'x'"],
    "PREPARED": [*WORK, "xa end 'x'", "xa prepare 'x'"],
    "PREPARED, read only": ["xa start 'x'", "select v from t where id = 2", "savepoint s1", "savepoint s2",
                            "xa end 'x'", "xa prepare 'x'"],
    "ROLLBACK ONLY": WORK,  # And a deadlock.
}
STATEMENTS = """
release savepoint s1
release savepoint s2
rollback to savepoint s1
savepoint s3
savepoint s1
select 1
do 1
set @a = 1
set @a = (select count(*) from t)
do f_ins(50)
do f_sel()
select f_ins(50)
select f_sel()
select f_lock()
set @a = f_ins(50)
call p_ins(50)
execute ps_sel
execute ps_f
insert into t values (50, 50)
delete from t where id = 1
select id, v from t order by id
select id from t where id = 1 for update
select id from w order by id
select table_name from information_schema.tables where table_schema = database() and table_name = 't'
select index_name from information_schema.statistics where table_schema = database() and table_name = 't'
show tables like 't'
show create table o
show index from o
show status like 'Threads_no'
show open tables like 'no'
show processlist like 'no'
explain select id from t where id = 1
explain extended select f_sel()
handler h read first
begin
commit
rollback
start transaction with consistent snapshot
xa start 'y'
xa start 'x'
xa end 'x'
xa prepare 'x'
xa prepare 'y'
xa commit 'x' one phase
xa commit 'y'
xa rollback 'y'
xa recover
set autocommit = 0
set autocommit = 1
set transaction isolation level serializable
set session transaction read only
create temporary table tt (a int)
drop temporary table if exists tt2
lock tables t read
unlock tables
truncate table t
alter table o add column b int
create table o2 (a int)
drop table o3
analyze table t
check table t
checksum table t
optimize table o
flush tables
flush status
flush local tables t
cache index o in default
kill query connection_id()
kill connection_id()
select sleep(0)
select get_lock('no', 0), release_lock('no')
select last_insert_id()
select a from (select 1 a union select 2) d
values (1)
select nextval(s)
get diagnostics @n = number
signal sqlstate '45000'
update t set v = 1 / 0 where id = 3
insert into t values (1, 1)
insert into t values (60, 1), (61, 1), (1, 1)
""".strip().split("\n")
ENDS = ("commit", "rollback", "commit by another", "rollback by another")
SETUP = """
create table t (id int primary key, v int, key by_v (v));
create table o (a int primary key);
create table h (id int primary key);
insert into h values (1);
create view w as select id from t;
create sequence s;
create function f_ins(n int) returns int begin insert into t values (n, n); return n; end;
create function f_sel() returns int return (select count(*) from t);
create function f_lock() returns int begin declare n int; select count(*) into n from t for update; return n; end;
create procedure p_ins(n int) insert into t values (n, n);
"""


class Differs(Exception):
    pass


class Side:
    """The connections of a cell to one of the two databases."""

    def __init__(self, socket, engine):
        self.socket, self.engine = socket, engine
        self.other = self.connect()

    def connect(self):
        connection = Connection(self.socket)
        connection.run("use %s; set default_storage_engine = %s" % (self.engine, self.engine))
        return connection

    def begin(self):
        self.other.do("delete from t; insert into t values (1, 1), (2, 2), (3, 3)")
        self.own = self.connect()
        self.gone = False
        self.ask("handler h open; prepare ps_sel from 'select id from t where id = 1';"
                 " prepare ps_f from 'select f_sel()'")

    def ask(self, statement):
        if self.gone:
            return ["gone"]
        try:
            lines = self.own.run(statement)
        except Gone:
            self.gone = True
            return ["gone"]
        # The client tells a failed statement first, in batch mode.
        return [answer(line) for line in lines]

    def seen(self):
        return [self.other.run("select id, v from t order by id"), self.other.run("xa recover")]

    def deadlock(self):
        """The connection closes a circle with one that has changed more: its own transaction goes."""
        rival = self.connect()
        rival.do("begin; insert into t select seq, seq from seq_100_to_150; update t set v = 9 where id = 3")
        me = self.own.run("select connection_id()")[0]
        rival.process.stdin.write("update t set v = 9 where id = 2;\n")
        rival.process.stdin.flush()
        for _ in range(2000):
            waiting = self.other.run("select count(*) from information_schema.processlist where"
                                     " id <> %s and info like 'update t set v = 9 where id = 2'" % me)
            if waiting == ["1"]:
                break
            time.sleep(0.002)
        # It has begun and not ended: it waits, or is about to.
        time.sleep(0.02)
        lines = self.ask("update t set v = 8 where id = 3")
        rival.run("rollback")
        rival.end()
        return lines

    def leave(self):
        self.own.end()
        for _ in range(3000):
            if self.other.run("select count(*) from information_schema.processlist where user = 'root'"
                              " and db = database() and id <> connection_id()") == ["0"]:
                return
            time.sleep(0.002)
        raise Differs("the connection stays")

    def decide_elsewhere(self, word):
        """The server gives up a killed connection's transaction a moment after the connection is off the list."""
        for _ in range(300):
            lines = [answer(line) for line in self.other.run("xa %s 'x'" % word)]
            if "ERROR 1397" not in lines or not any("x" in line.split() for line in self.other.run("xa recover")):
                break
            time.sleep(0.01)
        return lines

    def finish(self, way):
        """Steps that end the transaction, with what they answered."""
        said = []
        word = way.split()[0]
        if way.endswith("another"):
            self.leave()
            said.append((way, self.decide_elsewhere(word)))
        else:
            for statement in ("xa end 'x'", "xa prepare 'x'", "xa %s 'x'" % word, "xa rollback 'x'", "rollback",
                              "select id, v from t order by id", "unlock tables"):
                said.append((statement, self.ask(statement)))
            self.leave()
        said.append(("seen at the end", self.seen()))
        # A statement may have let another transaction begin.
        for xid in ("x", "y"):
            self.other.run("xa rollback '%s'" % xid)
        said.append(("held", self.other.run("select id from t order by id for update nowait")))
        return said


def answer(line):
    """Without what tells the engines or the place apart."""
    line = re.sub(r"^(ERROR \d+) .*", r"\1", line)
    return re.sub("(?i)innodb|evenkeel", "ENGINE", line)


def trace(side, state, statement, way):
    """What each step of a cell answered, and what others saw."""
    side.begin()
    steps = [(step, side.ask(step)) for step in STATES[state]]
    if state == "ROLLBACK ONLY":
        steps.append(("deadlock", side.deadlock()))
        if not any("ERROR 1213" in line for line in steps[-1][1]):
            raise Differs("no deadlock: %s" % steps[-1][1])
    steps.append(("seen before it", side.seen()))
    steps.append((statement, side.ask(statement)))
    steps.append(("seen after it", side.seen()))
    steps += side.finish(way)
    return steps


def cell(sides, state, statement, way):
    """One after the other: both use the same XIDs."""
    traces = [trace(side, state, statement, way) for side in sides]
    for (what, one), (_, two) in zip(*traces):
        if one != two:
            raise Differs("%s\n  %s: %s\n  %s: %s" % (what, ENGINES[0], one, ENGINES[1], two))
    held = sides[1].other.run("select count(*) from information_schema.evenkeel_trx")
    if held != ["0"]:
        raise Differs("a transaction stays: %s" % held)


def compare(socket, wanted):
    """Runs the cells whose name has `wanted` in it; what was run, and how many differ."""
    first = Connection(socket)
    for engine in ENGINES:
        first.run("create database %s; use %s; set default_storage_engine = %s" % (engine, engine, engine))
        for line in SETUP.strip().split("\n"):
            first.do("delimiter |\n%s|\ndelimiter ;\nset @a = 1" % line.rstrip(";"))
    first.end()
    sides = [Side(socket, engine) for engine in ENGINES]
    cells = wrong = 0
    for state in STATES:
        for n, statement in enumerate(STATEMENTS):
            for m, way in enumerate(ENDS):
                # The ways to end it in turns, where nothing is prepared.
                if state != "PREPARED" and m != n % len(ENDS):
                    continue
                name = "%s / %s / %s" % (state, statement, way)
                if wanted and wanted not in name:
                    continue
                cells += 1
                try:
                    cell(sides, state, statement, way)
                except Differs as why:
                    wrong += 1
                    print("xa states: %s: %s" % (name, why), file=sys.stderr)
                    for side in sides:
                        side.own.end()
                        side.other.run("rollback; xa rollback 'x'; xa rollback 'y'")
    for side in sides:
        side.own.end()
        side.other.end()
    said = "%d cells of %d states and %d statements, %d differ" % (cells, len(STATES), len(STATEMENTS), wrong)
    return said, wrong
