#!/usr/bin/env python3
"""No orphan through SQL: sessions write parents and children under RESTRICT, CASCADE and SET NULL, each transaction at
an isolation level drawn at random, and the server is killed (-9) in between. After each restart full scans of all
tables, by no index, are compared: each value of a child's column is a parent's key. Each index has the rows of its
table.

EVENKEEL_KILLS (8) says how often, EVENKEEL_SEED what is written (printed). Prints the counts of commits, of errors 1451
and 1452, of rows that cascades changed, and of kills; it fails if one of them is zero.
"""
import collections
import os
import random
import sys
import time

from client import Client, Failed
from servers import Problem, beside, run, seed_of

KILLS = int(os.environ.get("EVENKEEL_KILLS", "8"))
SESSIONS = 6
SECONDS = 3
# Commits between two kills, however slow the machine is.
COMMITS = 100
# Few keys, so that sessions meet.
KEYS = 24
LEVELS = ["read uncommitted", "read committed", "repeatable read", "serializable"]
# Each child: its parent, the column of the parent, and what the key does.
CHILDREN = {
    "r": ("p", "id", "restrict"),
    "c": ("p", "id", "cascade"),
    "s": ("p", "u", "set null"),
    # Rows of a child that are parents themselves.
    "cc": ("c", "id", "cascade"),
    "cs": ("c", "k", "set null"),
    "cr": ("s", "id", "restrict"),
}
TABLES = ["p", *CHILDREN]
# A duplicate, a conflict, a wait that was too long, a deadlock, an update by a cascade of a table that is read.
MEANT = {1020, 1062, 1205, 1213, 1442, 1451, 1452, 1761, 1762}
# The server is gone.
GONE = {2002, 2006, 2013, 2026}


def definitions():
    """The tables: `id` is the key, `k` another unique one, `u` one that rows may share, `f` the child's column."""
    for name in TABLES:
        key = ""
        if name in CHILDREN:
            parent, column, action = CHILDREN[name]
            key = f", key f (f), foreign key (f) references {parent} ({column}) on delete {action} on update {action}"
        yield (f"create table {name} (id int primary key, k int, u int, f int, unique k (k), key u (u){key}) "
               "engine=evenkeel")


class Session:
    """One client that writes until the server is gone."""

    def __init__(self, socket, seed):
        self.socket, self.random, self.ended = socket, random.Random(seed), collections.Counter()

    def value(self):
        return self.random.choice(["null", *range(KEYS), *range(KEYS)])

    def statement(self):
        rng, table = self.random, self.random.choice(TABLES + ["p", "p"])
        one = f"where id = {rng.randrange(KEYS)}"
        some = f"where id > {rng.randrange(KEYS - 5, KEYS)}"
        where = rng.choice([one, one, one, some, f"where f = {rng.randrange(KEYS)}" if table != "p" else some])
        kind = rng.randrange(12)
        if kind < 7:
            row = f"({rng.randrange(KEYS)}, {self.value()}, {self.value()}, {self.value()})"
            return f"{rng.choice(['insert into', 'insert into', 'replace into'])} {table} values {row}"
        if kind < 10:
            column = rng.choice(["id", "k", "u", "f", "f"])
            value = rng.randrange(KEYS) if column == "id" else self.value()
            return f"update {table} set {column} = {value} {where}"
        return f"delete from {table} {where}"

    def transaction(self, client):
        """Statements that fail leave what the transaction did before, unless all of it is rolled back."""
        client.run(f"set transaction isolation level {self.random.choice(LEVELS)}")
        client.run("begin")
        for _ in range(self.random.choice([1, 1, 2, 3, 5])):
            try:
                client.run(self.statement())
            except Failed as failed:
                if failed.number not in MEANT:
                    raise
                self.ended[failed.number] += 1
        end = self.random.choice(["commit", "commit", "commit", "rollback"])
        client.run(end)
        self.ended[end] += 1

    def work(self):
        """Returns when the server is gone; any other error ends the test."""
        try:
            client = Client(self.socket, "test")
            client.run("set innodb_lock_wait_timeout = 1, evenkeel_lock_wait_timeout = 1")
            while True:
                self.transaction(client)
        except Failed as failed:
            if failed.number not in GONE:
                raise Problem(f"a session: {failed}") from None


def scan(client, table):
    """The rows of a table, by a scan of all of it."""
    return client.run(f"select id, k, u, f from {table} ignore index (primary, k, u{', f' * (table in CHILDREN)})")


def orphans(rows):
    """Rows of children, by table, whose value is in no row of their parent."""
    found = []
    for child, (parent, column, _) in CHILDREN.items():
        at = ["id", "k", "u"].index(column)
        there = {row[at] for row in rows[parent]}
        found += [f"{child} {row}" for row in rows[child] if row[3] is not None and row[3] not in there]
    return found


def check(client):
    """Looks for orphans, and at the indexes; returns how many rows refer to a parent."""
    rows = {table: scan(client, table) for table in TABLES}
    found = orphans(rows)
    if found:
        raise Problem(f"{len(found)} rows refer to nothing: {found[:10]}")
    for table in TABLES:
        for index in ["primary", "k", "u"] + ["f"] * (table in CHILDREN):
            column = "id" if index == "primary" else index
            by = client.run(f"select id, k, u, f from {table} force index ({index}) "
                            f"where {column} >= 0 or {column} is null")
            if sorted(by, key=repr) != sorted(rows[table], key=repr):
                raise Problem(f"index {index} of {table} differs from the table")
    checked = client.run("check table " + ", ".join(TABLES))
    if len(checked) != len(TABLES) or any(row[2:] != ["status", "OK"] for row in checked):
        raise Problem(f"CHECK TABLE: {checked}")
    return sum(row[3] is not None for child in CHILDREN for row in rows[child])


def figure(client, name):
    return int(client.run(f"show global status like 'Evenkeel_{name}'")[0][1])


def kill_under_load(server, moments, count):
    """Sessions write until the server is killed."""
    sessions = [Session(server.socket, moments.random()) for _ in range(SESSIONS)]
    working = [beside(session.work) for session in sessions]
    begun, watch = time.monotonic(), Client(server.socket)
    commits = lambda: sum(session.ended["commit"] for session in sessions)
    while time.monotonic() < begun + SECONDS or commits() < COMMITS:
        if any(one.done() for one in working) or time.monotonic() > begun + 300:
            break
        time.sleep(0.05 + moments.random() / 10)
    cascaded = figure(watch, "rows_cascaded")
    time.sleep(moments.random() / 10)
    server.kill()
    count["kills"] += 1
    count["cascaded rows"] += cascaded
    for one in working:
        one.result(timeout=300)
    for session in sessions:
        count.update({str(name): number for name, number in session.ended.items()})
    if commits() < COMMITS:
        raise Problem(f"{commits()} commits before a kill")


def finds_one(client):
    """Fails if a row that refers to nothing is not found: then the test finds none of others either."""
    client.run("set foreign_key_checks = 0")
    client.run("replace into cr values (1, 1, 1, 1000)")
    client.run("set foreign_key_checks = 1")
    if len(orphans({table: scan(client, table) for table in TABLES})) != 1:
        raise Problem("a row that refers to nothing was not found")


def test(servers):
    moments, count = random.Random(seed_of("orphans")), collections.Counter()
    server, options = servers.server("main"), ["--log-bin=binlog", "--server-id=1", "--binlog-format=row"]
    server.start(*options)
    server.sql("create database if not exists test")
    server.sql(";".join(definitions()), database="test")
    while count["kills"] < KILLS:
        kill_under_load(server, moments, count)
        server.start(*options)
        client = Client(server.socket, "test")
        count["rows with a parent"] += check(client)
        client.close()
    finds_one(Client(server.socket, "test"))
    named = ["kills", "commit", "rollback", "1451", "1452", "cascaded rows", "rows with a parent"]
    others = sorted(name for name in count if name not in named)
    print(", ".join(f"{count[name]} {'error ' * name.isdigit()}{name}" for name in named + others) + "; 0 orphans")
    if not all(count[name] for name in named):
        raise Problem("one of these was never met: " + ", ".join(name for name in named if not count[name]))


if __name__ == "__main__":
    sys.exit(run("orphans", test))
