#!/usr/bin/env python3
"""Goes through all codes of errors, and lets each `new` of the plugin fail once.

usage: faults.py SOCKET errors.def [codes | news]

Of a server with a test build of the plugin (fault.h). Prints "N passed, N failed"; fails if one failed.
"""
import re
import sys

from client import Client, Failed

# What each statement does besides, so that the next try begins as it did.
STATEMENTS = [
    ("insert into t (a, b, v) values (7, repeat('b', 9000), 'seven'), (8, 'b', 'eight')",
     "delete from t where v in ('seven', 'eight')"),
    ("insert into t (id, a, v) values (1, 1, 'x') on duplicate key update a= 100", "update t set a= 1 where id= 1"),
    ("replace into t (id, a, b, v) values (1, 50, 'other', 'one')",
     "replace into t (id, a, b, v) values (1, 1, repeat('a', 20000), 'one')"),
    ("insert ignore into t (id, a, v) values (1, 1, 'x'), (50, 50, 'fifty')", "delete from t where id= 50"),
    ("update t set a= a + 1 order by id desc", "update t set a= a - 1"),
    ("update t force index (a) set b= concat(b, 'z') where a > 1", "update t set b= trim(trailing 'z' from b) where a > 1"),
    ("delete from t where a= 3", "insert into t values (3, 3, 'ccc', 'three')"),
    ("select * from t where id= 2", ""),
    ("select id, b from t force index (v) where v > 'a' order by v desc", ""),
    ("select a, count(*) from t group by a order by a desc", ""),
    ("select count(*) from t t1 join t t2 on t1.a= t2.id where t1.v like 't%' for update", ""),
    ("insert into p select id + 10, a, v from t", "delete from p where id > 10"),
    ("update p set a= a * 2 where v > ''", "update p set a= a / 2"),
    ("select next value for s", ""),
    ("create table c (id int auto_increment primary key, v varchar(30) unique) auto_increment= 7 engine=evenkeel",
     "drop table c"),
    ("create table c engine=evenkeel as select * from t", "drop table c"),
    ("create temporary table tt (id int primary key) engine=evenkeel select id from t", "drop temporary table tt"),
    ("create sequence s2 engine=evenkeel", "drop sequence s2"),
    ("rename table t to t2, t2 to t", ""),
    ("alter table t add key added (b(10)), algorithm=inplace", "alter table t drop key added"),
    ("alter table t add column c int default 5, algorithm=instant", "alter table t drop column c"),
    ("alter table t modify a int not null, algorithm=nocopy", "alter table t modify a int"),
    ("alter table t modify a bigint, algorithm=copy", "alter table t modify a int"),
    ("alter table p add key added (a), algorithm=inplace", "alter table p drop key added"),
    ("alter table p add partition partitions 1", "alter table p coalesce partition 1"),
    ("alter table t auto_increment= 1000", ""),
    ("create table c like t; insert into c select * from t; truncate table c; drop table c", "drop table if exists c"),
    ("create database d; create table d.x (id int) engine=evenkeel; drop database d", "drop database if exists d"),
    ("begin; insert into t (a) values (40); savepoint x; delete from t; rollback to x; release savepoint x; "
     "insert into t (a) values (41); rollback", ""),
    ("begin; insert into t (a) values (42); update p set a= 0; commit",
     "delete from t where a= 42; update p set a= id"),
    ("xa start 'x'; insert into t (a) values (43); xa end 'x'; xa prepare 'x'; xa rollback 'x'", ""),
    ("xa start 'x'; insert into t (a) values (44); xa end 'x'; xa prepare 'x'; xa commit 'x'",
     "delete from t where a= 44"),
    ("start transaction with consistent snapshot; select * from t; commit", ""),
    ("handler t open; handler t read a first; handler t read a next; handler t close", ""),
    ("flush tables; select count(*) from t, p", ""),
    ("check table t, p", ""), ("analyze table t, p", ""), ("optimize table t", ""),
    ("show engine evenkeel status", ""), ("show status like 'evenkeel%'", ""),
    ("show table status like 't'", ""), ("show create table t", ""),
    ("select * from information_schema.evenkeel_tables", ""), ("select * from information_schema.evenkeel_indexes", ""),
    ("select * from information_schema.evenkeel_jobs", ""), ("select * from information_schema.evenkeel_waits", ""),
    ("begin; select * from t for update; select * from information_schema.evenkeel_trx; "
     "select * from information_schema.evenkeel_locks; commit", ""),
    ("set global evenkeel_memory_size= 64 << 20", ""), ("flush logs", ""),
]
TABLES = """
create or replace database x
use x
create table t (id int auto_increment primary key, a int, b text, v varchar(30) character set utf8mb4, key (a), unique (v)) engine=evenkeel
insert into t values (1, 1, repeat('a', 20000), 'one'), (2, 2, 'bb', 'two'), (3, 3, 'ccc', 'three')
create table p (id int primary key, a int, v varchar(30), key (a)) engine=evenkeel partition by hash (id) partitions 2
insert into p values (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three')
create sequence s engine=evenkeel
"""
# What InnoDB's users know, whatever the table says.
KNOWN = {"DiskFull": 1114, "LogFull": 1114, "LocksFull": 1206, "RunDamaged": 1712, "TableExists": 1050,
         "RowTooLong": 1118, "KeyTooLong": 1071, "EntryTooLong": 1709, "XidInUse": 1440, "XidUnknown": 1397,
         "TableMissing": 1146, "DeadlockVictim": 1213, "LockWaitTimeout": 1205, "RowChanged": 1020,
         "TableTooNew": 1412, "DuplicateKey": 1062, "StatementCancelled": 1317, "WritesStopped": 1036,
         "PageChecksum": 1034, "AutoIncrementExhausted": 1467, "SavepointMissing": 1305}
# No memory: of a statement; of what a table is made by; of a commit or rollback; of a savepoint.
OUT_OF_MEMORY = {1041, 5, 1037}
NEWS_MAX = 3000


def parts(statements):
    return [part for part in statements.split("; ") if part]


def state(client):
    """All that the tables hold, and what a check says of them."""
    held = [client.run("select * from %s order by id" % table) for table in "tp"]
    problems = [row for row in client.run("check table t, p") if row[3] != "OK"]
    made = client.run("select table_name from information_schema.tables where table_schema= 'x' order by 1")
    shape = [client.run("show create table %s" % table)[0][1] for table in "tp"]
    shape = [re.sub(r" AUTO_INCREMENT=\d+", "", text) for text in shape]
    return held, problems, made, shape


def undo(client):
    """Ends what a failed statement left of the client's transaction, and in the server's cache: the definition of
    a new table that could not be opened, which is in the way of another one, whatever its engine."""
    for statement in ("xa end 'x'", "xa rollback 'x'", "rollback", "handler t close", "drop temporary table tt",
                      "flush tables"):
        client.number(statement)


class Counts:
    passed = failed = 0

    def see(self, is_right, what):
        if is_right:
            self.passed += 1
        else:
            self.failed += 1
            print("failed: " + what, flush=True)


# Errors whose whole text is the server's own. 1451 and 1452 name the key only where the error names its tables.
SERVERS_TEXT = {1020, 1062, 1205, 1213, 1317, 1412, 1451, 1452, 1467}


def codes(client, answers, counts):
    for code, number in KNOWN.items():
        counts.see((code, number) in answers, "%s is not %d in errors.def" % (code, number))
    for place, (code, number) in enumerate(answers):
        client.run("set global evenkeel_fault_code= %d" % place)
        try:
            client.run("insert into t (a) values (900)")
            said, text = 0, ""
        except Failed as failed:
            said, text = failed.number, str(failed)
        client.run("set global evenkeel_fault_code= -1")
        # A number that only the server's own text has comes with the text of the table's columns or keys.
        wanted = {number, 1022, 1586} if number == 1062 else {number}
        own = "[%s]" % code in text or number in SERVERS_TEXT
        own = own and "marked as crashed" not in text
        counts.see(said in wanted and own, "%s: %d wanted, got %s" % (code, number, text))
        counts.see(client.run("select count(*) from t where a= 900") == [["0"]], "%s left a row" % code)


def news(client, watcher, counts):
    for statement, back in STATEMENTS:
        before, fired = state(client), 0
        for count in range(1, NEWS_MAX):
            watcher.run("set global evenkeel_fault_new= %d" % count)
            failed = None
            for part in parts(statement):
                try:
                    client.run(part)
                except Failed as error:
                    failed = error
                    break
            left = watcher.run("select @@global.evenkeel_fault_new")[0][0]
            watcher.run("set global evenkeel_fault_new= 0")
            if failed:
                clear = failed.number in OUT_OF_MEMORY or "ut of memory" in str(failed)
                counts.see(clear and left == "0", "%s, new %d: %s" % (statement, count, failed))
                undo(client)
            # A statement that failed has done nothing, but what was a statement of its own before.
            is_undone = not failed or "if exists" in back
            for part in parts(back) if is_undone else []:
                if number := client.number(part):
                    counts.see(False, "%s, new %d: undone with %d" % (statement, count, number))
            after = state(client)
            counts.see(after == before, "%s, new %d: the tables are not what they were: %s" % (
                statement, count, [(a, b) for a, b in zip(before, after) if a != b]))
            if left != "0":
                break
            fired += 1
            before = after
        print("%4d: %s" % (fired, statement), flush=True)


def main():
    socket, table = sys.argv[1:3]
    what = sys.argv[3:] or ["codes", "news"]
    client, watcher, counts = Client(socket), Client(socket), Counts()
    for statement in TABLES.strip().split("\n"):
        client.run(statement)
    with open(table) as file:
        answers = [line.split("(")[1].split(", ") for line in file if line.startswith("ANSWER(")]
    if "codes" in what:
        codes(client, [(answer[0], int(answer[3])) for answer in answers], counts)
    if "news" in what:
        news(client, watcher, counts)
    print("%d passed, %d failed" % (counts.passed, counts.failed))
    return counts.failed > 0 or counts.passed == 0


if __name__ == "__main__":
    sys.exit(main())
