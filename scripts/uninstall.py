#!/usr/bin/env python3
"""Uninstalls the plugin and installs it again, over and over, beside clients who use it without a table and with
one: the server lives on, and each kind of use has both worked and met the plugin gone.

usage: uninstall.py SOCKET [ROUNDS]
"""
import collections
import sys
import threading

from client import Client, Failed

LOST = {2006, 2013, 2055}
USES = [
    "select * from information_schema.evenkeel_tables", "select * from information_schema.evenkeel_indexes",
    "select count(*) from information_schema.evenkeel_jobs", "select * from information_schema.evenkeel_stalls",
    "select count(*) from information_schema.evenkeel_trx", "select count(*) from information_schema.evenkeel_locks",
    "show status like 'evenkeel%'", "show engine evenkeel status",
    "set global evenkeel_memory_size= 32 << 20", "set global evenkeel_flush_at_commit= 1",
    "check table t", "insert into t (a) values (1)", "select count(*) from t", "drop table if exists d",
    "create table d (id int) engine=evenkeel", "start transaction with consistent snapshot", "flush logs",
]


class Uses:
    def __init__(self, socket):
        self.socket, self.over, self.lost = socket, threading.Event(), []
        self.counts = collections.Counter()
        self.ids = set()

    def use(self, statement):
        """A connection for each use: one that has used a table keeps the plugin."""
        while not self.over.is_set():
            try:
                client = Client(self.socket, "x")
            except Failed as failed:
                self.lost.append(str(failed))
                return
            self.ids.add(client.id)
            try:
                rows = client.run(statement)
                is_empty = statement.startswith("select * from information_schema") and not rows
                self.counts[statement, "nothing" if is_empty else "works"] += 1
            except Failed as failed:
                self.counts[statement, failed.number] += 1
                if failed.number in LOST:
                    self.lost.append("%s: %s" % (statement, failed))
                    return
            self.ids.discard(client.id)
            client.close()

    def kill(self):
        client = Client(self.socket)
        while not self.over.is_set():
            for one in list(self.ids):
                self.counts["kill", client.number("kill query %d" % one)] += 1


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
    for _ in range(rounds):
        if uses.lost:
            break
        admin.number("uninstall soname 'ha_evenkeel'")
        admin.number("flush tables")
        while (number := admin.number("install soname 'ha_evenkeel'")) and not uses.lost:
            # Somebody still uses what was uninstalled.
            if number in LOST:
                uses.lost.append("install: %d" % number)
            admin.number("flush tables")
        # Installed anew: it was gone.
        closed += not uses.lost
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
