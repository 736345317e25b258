#!/usr/bin/env python3
"""kill -9 of the server under clients with XA transactions of their own, again and again: with the binlog on, and
without one. After each restart XA RECOVER has what was said to be prepared and not said to be decided, and nothing
else but what the server was asked and has not answered; each of them is committed or rolled back whole, some only
after another kill (xa_clients.py).

EVENKEEL_KILLS (6) says how often at least, in each of the two, EVENKEEL_SEED when (printed). Prints what clients
were in at the kills.
"""
import collections
import os
import random
import re
import sys
import time

import xa_clients as clients
from servers import Problem, beside, run, seed_of, wait_until

KILLS = int(os.environ.get("EVENKEEL_KILLS", "6"))
MOST = KILLS + 30
# InnoDB shows what is the server's own.
ENGINE = os.environ.get("EVENKEEL_ENGINE", "evenkeel")
PHASES = ("active", "prepare", "prepared", "commit", "rollback", "one-phase")
TABLES = ["one", "two"]


def decided(records):
    """How many transactions were said to be decided."""
    return sum(len(re.findall(r" (?:committed|rolled-back)$", file.read_text(), re.M)) for file in records.iterdir())


def kill_under_load(server, records, number, moments):
    """One kill of the server under clients; returns what each of them was in."""
    before = decided(records)
    working = beside(clients.work, server.socket, records, number)
    # Commits that are in what clients have written: a kill before is of a server without work.
    if not wait_until(lambda: decided(records) >= before + 20 or working.done(), 300) or working.done():
        working.result(timeout=1)
        raise Problem("no load")
    time.sleep(moments.randrange(100) / 100)
    server.kill()
    return working.result(timeout=600)


def killed_under(server, moments, *options):
    records = server.servers.folder / (server.name + ".records")
    records.mkdir()
    server.start(*options)
    server.sql("create database if not exists test")
    for table in TABLES:
        server.sql(f"create table {table} (id int primary key, k int not null, pad varchar(200), key by_k (k)) "
                   f"engine={ENGINE}", database="test")
    number, at, count = 0, collections.Counter(), collections.Counter()
    while number < KILLS or not all(at[phase] for phase in PHASES) and number < MOST:
        number += 1
        at.update(kill_under_load(server, records, number, moments))
        server.start(*options)
        try:
            found = clients.check(server.socket, records, False)
        except Problem as problem:
            raise Problem(f"after kill {number} of {server.name}: {problem}") from None
        count.update(found)
        rows = found["rows"]
    clients.check(server.socket, records, True)
    if server.sql("xa recover"):
        raise Problem("prepared transactions are left")
    checked = server.sql("check table " + ", ".join(TABLES), database="test").splitlines()
    bad = [line for line in checked if not line.endswith("status\tOK")]
    if bad or len(checked) != len(TABLES):
        raise Problem(f"CHECK TABLE: {checked}")
    server.stop()
    said = "".join(f", {at[phase]} {phase}" for phase in PHASES)
    print(f"{server.name}: {number} kills; clients were at{said}; {count['found']} found prepared, {count['left']} "
          f"left so over a kill; {count['in doubt']} calls in doubt; {rows} rows of {decided(records)} transactions",
          flush=True)
    if not all(at[phase] for phase in PHASES):
        raise Problem(f"a phase was never met in {number} kills")
    if not count["found"] or not count["left"]:
        raise Problem("nothing was prepared at a kill")


def test(servers):
    moments = random.Random(seed_of("xa crash"))
    killed_under(servers.server("with-binlog"), moments, "--log-bin=binlog", "--server-id=1", "--binlog-format=row",
                 "--sync-binlog=1")
    killed_under(servers.server("without-binlog"), moments)


if __name__ == "__main__":
    sys.exit(run("xa crash test", test))
