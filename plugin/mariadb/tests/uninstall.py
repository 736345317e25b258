#!/usr/bin/env python3
"""Uninstalls the plugin and installs it again, over and over, beside clients who use it without a table and with
one: the server lives on, and each kind of use has worked.

Two moments are kept from the clients, because the server itself (10.11.18) may end with signal 11 in them, with any
engine. In INSTALL SONAME, finalize_install does not expect that the last use of a plugin that was uninstalled ends
meanwhile: nothing of the library is left when it is installed. plugin_deinitialize makes a plugin that is about to
be unloaded one that plugin_lock_by_name gives out: statements that look the engine up by its name stand still from
the end of the last table's use until the library is gone.

usage: uninstall.py SOCKET [ROUNDS]
"""
import collections
import contextlib
import sys
import threading
import time

from client import Client, Failed

LOST = {2006, 2013, 2055}
LEFT = "select count(*) from information_schema.plugins where plugin_library like 'ha_evenkeel%'"
CREATES = "create table d (id int) engine=evenkeel"
USES = [
    "select * from information_schema.evenkeel_tables", "select * from information_schema.evenkeel_indexes",
    "select count(*) from information_schema.evenkeel_jobs", "select * from information_schema.evenkeel_waits",
    "select count(*) from information_schema.evenkeel_trx", "select count(*) from information_schema.evenkeel_locks",
    "show status like 'evenkeel%'", "show engine evenkeel status",
    "set global evenkeel_memory_size= 32 << 20", "set global evenkeel_flush_at_commit= 1",
    "check table t", "insert into t (a) values (1)", "select count(*) from t", "drop table if exists d",
    CREATES, "start transaction with consistent snapshot", "flush logs",
]


def looks_up_engine(statement):
    """By its name, for a table of it or for itself."""
    return statement.startswith(("show engine", "check", "insert", "drop", "create")) or statement.endswith("from t")


class Gate:
    """Statements pass it; `closed` waits for those that have passed, and keeps others out."""

    def __init__(self):
        self.changed, self.inside, self.is_closed = threading.Condition(), 0, False

    @contextlib.contextmanager
    def passed(self):
        with self.changed:
            self.changed.wait_for(lambda: not self.is_closed)
            self.inside += 1
        try:
            yield
        finally:
            with self.changed:
                self.inside -= 1
                self.changed.notify_all()

    @contextlib.contextmanager
    def closed(self):
        with self.changed:
            self.is_closed = True
            self.changed.wait_for(lambda: not self.inside)
        try:
            yield
        finally:
            with self.changed:
                self.is_closed = False
                self.changed.notify_all()


class Uses:
    def __init__(self, socket):
        self.socket, self.over, self.lost = socket, threading.Event(), []
        self.counts = collections.Counter()
        self.ids, self.gate = set(), Gate()

    def use(self, statement):
        while not self.over.is_set() and not self.lost:
            with self.gate.passed() if looks_up_engine(statement) else contextlib.nullcontext():
                try:
                    self.use_once(statement)
                except Failed as failed:
                    self.lost.append("%s: %s" % (statement, failed))

    def use_once(self, statement):
        """With a connection of its own: one that has used a table keeps the plugin."""
        client = Client(self.socket, "x")
        self.ids.add(client.id)
        try:
            rows = client.run(statement)
            is_empty = statement.startswith("select * from information_schema") and not rows
            self.counts[statement, "nothing" if is_empty else "works"] += 1
        except Failed as failed:
            self.counts[statement, failed.number] += 1
            if failed.number in LOST:
                raise
        self.ids.discard(client.id)
        client.close()

    def wait_for_creates(self, seconds):
        """Until a table was created, so long at most."""
        before, end = self.counts[CREATES, "works"], time.monotonic() + seconds
        while self.counts[CREATES, "works"] == before and time.monotonic() < end and not self.lost:
            time.sleep(0.001)

    def kill(self):
        client = Client(self.socket)
        while not self.over.is_set():
            for one in list(self.ids):
                self.counts["kill", client.number("kill query %d" % one)] += 1


def install_anew(admin, uses):
    """Uninstalls the plugin while a transaction has changed a table, lets the transaction end, and installs it."""
    holder = Client(uses.socket)
    holder.run("begin")
    holder.run("insert into x.t (a) values (0)")
    admin.run("uninstall soname 'ha_evenkeel'")
    uses.wait_for_creates(0.01)
    with uses.gate.closed():
        holder.close()
        while not uses.lost:
            admin.run("flush tables")
            if admin.run(LEFT) == [["0"]]:
                admin.run("install soname 'ha_evenkeel'")
                return True
    return False


def main():
    socket, rounds = sys.argv[1], int((sys.argv[2:] or ["200"])[0])
    admin = Client(socket)
    for statement in ("create or replace database x",
                      "create table x.t (id int auto_increment primary key, a int, key (a)) engine=evenkeel"):
        admin.run(statement)
    uses = Uses(socket)
    threads = [threading.Thread(target=uses.use, args=(statement,)) for statement in USES]
    threads.append(threading.Thread(target=uses.kill))
    for thread in threads:
        thread.start()
    closed = 0
    try:
        while closed < rounds and not uses.lost:
            uses.wait_for_creates(0.2)
            closed += install_anew(admin, uses)
    except Failed as failed:
        uses.lost.append("uninstall and install: %s" % failed)
    uses.over.set()
    for thread in threads:
        thread.join()
    never = [statement for statement in USES if not uses.counts[statement, "works"]]
    for (statement, result), count in sorted(uses.counts.items(), key=str):
        print("%7d %-8s %s" % (count, result, statement))
    rows = [] if uses.lost else admin.run("check table x.t")
    print("%d rounds, the database was closed in %d of them" % (rounds, closed))
    problems = uses.lost + ["never worked: " + statement for statement in never]
    problems += [] if closed == rounds else ["not gone and installed in each round"]
    problems += [] if rows and rows[-1][3] == "OK" else ["check: %s" % rows]
    for problem in problems:
        print("failed: " + problem)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
