#!/usr/bin/env python3
"""kill -9 of the server under sysbench, concurrent writers and ALTER TABLE (crash_load.py), and during recovery, with
the binlog on and sync_binlog=1. After each restart: every acknowledged commit is there, each transaction whole or not
at all, CHECK TABLE is clean, each index has the table's rows, nothing is left of an ALTER that did not end; at the
end the tables are what the binlog says.

EVENKEEL_KILLS (20) says how often, EVENKEEL_SEED when (printed). Prints "N kills, ...".
"""
import collections
import os
import random
import re
import sys
import time

import whole_binlogs
from crash_load import Load, sysbench
from servers import Problem, free_port, on_port, run, seed_of, wait_until

KILLS = int(os.environ.get("EVENKEEL_KILLS", "20"))
# Such kills in all, while none was where it belongs: how soon a start is behind its recovery is the machine's.
RECOVERY_TRIES = 20
SYSBENCH_TABLES = ["sbtest1", "sbtest2"]
OPEN, SERVES = r"EVENKEEL: .*open after", "ready for connections"


class Test:
    def __init__(self, servers):
        self.main, self.copy, self.port = servers.server("main"), servers.server("copy"), free_port()
        self.options = ["--log-bin=binlog", "--server-id=1", "--binlog-format=row", "--sync-binlog=1",
                        "--innodb-flush-log-at-trx-commit=1", *on_port(self.port)]
        self.acks = servers.folder / "acks"
        self.acks.mkdir()
        self.random = random.Random(seed_of("crash"))
        self.count = collections.Counter()
        # How often a kill in the recovery of the engine, or of the server, was tried.
        self.tries = collections.Counter()

    def ask(self, statements):
        return self.main.sql(statements, database="test")

    def acknowledged(self):
        """The lines of the writers' files; of a line that the kill cuts off nothing was said."""
        return [int(line) for file in self.acks.iterdir() for line in file.read_text().split("\n")[:-1] if line]

    def prepare(self):
        self.main.start(*self.options)
        self.main.sql("create database if not exists test")
        for table in ("one", "two"):
            self.ask(f"create table {table} (id int primary key, w int not null, k int not null, "
                     "key by_w (w), key by_k (k)) engine=evenkeel")
        if sysbench(self.main, self.main.folder / "sysbench.prepare", "prepare").wait():
            raise Problem("sysbench prepare: " + (self.main.folder / "sysbench.prepare").read_text())

    def kill_under_load(self, number):
        before = len(self.acknowledged())
        load = Load(self.main, self.acks, number)
        # However slow the machine is, there is something to kill.
        if not wait_until(lambda: len(self.acknowledged()) >= before + 10 and load.alterer.state != "idle", 300):
            raise Problem("no load")
        time.sleep(self.random.randrange(2) + self.random.randrange(8) / 10)
        self.count["under sysbench"] += load.sysbench.poll() is None
        state = load.alterer.state
        self.main.kill()
        self.count["kills"] += 1
        self.count["in alter"] += state != "idle"
        self.count["in build"] += state == "building"
        load.ends()
        self.sysbench_out = load.out

    def kill_in_recovery(self, whose):
        """Starts the server and kills it in the engine's recovery, or behind that, while the server decides what was
        prepared and takes statements back. The directory's files are open where the first has begun. Counted is a
        kill only if the log of this start says neither that the engine is open, nor that the server serves."""
        before = len(self.main.log())
        said = lambda pattern: re.search(pattern, self.main.log()[before:])
        self.main.launch(*self.options)
        begun = self.has_engines_files_open if whose == "engine" else lambda: said(OPEN)
        wait_until(begun, 60, 0.002)
        time.sleep(self.random.randrange(4) / 100)
        self.main.kill()
        self.count["kills"] += 1
        if not said(OPEN):
            self.count["in recovery"] += 1
        elif not said(SERVES):
            self.count["in decisions"] += 1

    def has_engines_files_open(self):
        folder = f"/proc/{self.main.process.pid}/fd"
        try:
            return any("/#evenkeel/" in os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder))
        except OSError:
            # One was closed meanwhile.
            return False

    def kills_in_recovery(self, whose, counted):
        while True:
            self.kill_in_recovery(whose)
            self.tries[whose] += 1
            if self.count[counted] or self.tries[whose] >= RECOVERY_TRIES:
                return

    def check(self):
        rows = {table: self.ask(f"select id from {table} order by id").splitlines() for table in ("one", "two")}
        lost = set(self.acknowledged()) - set(map(int, rows["one"]))
        if lost:
            raise Problem(f"{len(lost)} acknowledged commits are lost: {sorted(lost)[:10]}")
        # Whole or not at all.
        if rows["one"] != rows["two"]:
            raise Problem("half a transaction")
        if self.ask("select count(*) from one, two where one.id=two.id and one.k<>two.k") != "0":
            raise Problem("half an update")
        for table in rows:
            self.check_indexes(table)
        if self.ask("xa recover"):
            raise Problem("prepared transactions are left")
        tables = [*rows, *SYSBENCH_TABLES]
        checked = self.ask("check table " + ", ".join(tables)).splitlines()
        if len(checked) != len(tables) or not all(line.endswith("status\tOK") for line in checked):
            raise Problem(f"CHECK TABLE: {checked}")
        # Of an ALTER that did not end no index is left, of one that did none is missing.
        engines = self.ask("select concat(table_name, '.', index_name) from information_schema.evenkeel_indexes "
                           "where table_schema='test' and state='valid'").splitlines()
        servers = self.ask("select distinct concat(table_name, '.', index_name) from information_schema.statistics "
                           "where table_schema='test' and index_name<>'PRIMARY'").splitlines()
        if sorted(engines) != sorted(servers):
            raise Problem(f"indexes of the engine and of the server differ: {sorted(set(engines) ^ set(servers))}")

    def check_indexes(self, table):
        """Each index has the table's rows."""
        rows = {by: sorted(self.ask(f"select id, w, k from {table} force index ({by}) "
                                    "where k>=0 and w>=0 and id>=0").splitlines())
                for by in ("primary", "by_w", "by_k")}
        for by in rows:
            if rows[by] != rows["primary"]:
                raise Problem(f"index {by} of {table} differs from the table")

    def replay(self):
        """The rows that the binlog says: a replica applies all of it. Conservatively: an ALTER that was killed after
        it was done and before it was logged is logged by the server's recovery without the mark of DDL (10.11, with
        any engine). An optimistic replica begins the transactions after it beside it; they keep its table and wait
        for it to commit, for ever."""
        # The source counts the number of a group that was cut off as logged; with one more behind it a replica
        # does not wait for it.
        self.ask("create table behind (id int) engine=evenkeel")
        whole_binlogs.main(sorted(map(str, self.main.data.glob("binlog.[0-9]*"))))
        self.copy.start("--server-id=2", "--slave-parallel-threads=4", "--slave-parallel-mode=conservative",
                        "--gtid-pos-auto-engines=evenkeel")
        self.copy.follow(self.port)
        if not self.copy.catches_up(self.main):
            raise Problem("the binlog does not apply")
        for table in ("one", "two", *SYSBENCH_TABLES):
            query = f"show create table {table}; select * from {table} order by id"
            # What was rolled back has used numbers that no replica hears of.
            sides = [re.sub(" AUTO_INCREMENT=[0-9]*", "", server.sql(query, database="test")).splitlines()
                     for server in (self.copy, self.main)]
            if sides[0] != sides[1]:
                differ = sorted(set(sides[0]) ^ set(sides[1]))[:20]
                raise Problem(f"table {table} and the binlog differ: {[line[:300] for line in differ]}")

    def judge(self):
        count, acked = self.count, len(self.acknowledged())
        rows = self.ask("select count(*) from one")
        if acked < KILLS * 10:
            raise Problem(f"only {acked} commits were acknowledged")
        if count["under sysbench"] != KILLS:
            raise Problem("sysbench had ended at some kills: " + self.sysbench_out.read_text()[-500:])
        if count["in alter"] < KILLS // 2:
            raise Problem(f"only {count['in alter']} kills were during an ALTER")
        if KILLS >= 10 and not count["in build"]:
            raise Problem("no kill was during an ADD INDEX")
        if KILLS >= 4 and not count["in recovery"]:
            raise Problem("no kill was during recovery")
        if KILLS >= 4 and not count["in decisions"]:
            raise Problem("no kill was between the engine's recovery and the first connection")
        print(f"{count['kills']} kills, {count['under sysbench']} of them under sysbench, {count['in alter']} during "
              f"ALTER ({count['in build']} of ADD INDEX), {count['in recovery']} during recovery, "
              f"{count['in decisions']} behind it before the server served; {acked} acknowledged commits, "
              f"{rows} rows: all there")


def test(servers):
    over = Test(servers)
    over.prepare()
    for number in range(1, KILLS + 1):
        over.kill_under_load(number)
        if number % 4 == 0:
            over.kills_in_recovery("engine", "in recovery")
            over.kills_in_recovery("server", "in decisions")
        over.main.start(*over.options)
        over.check()
    over.replay()
    over.judge()


if __name__ == "__main__":
    sys.exit(run("crash test", test))
