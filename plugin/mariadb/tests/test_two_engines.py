#!/usr/bin/env python3
"""kill -9 of a server whose clients commit transactions over an InnoDB and an EVENKEEL table, again and again: with
the binlog, without one, and with sql_log_bin=0; and of a replica with a binlog, without one, and with one that
does not get what it applies. One client and four (a replica: one thread, and four). The clients' own files are
the record of what was acknowledged (two_engine_clients.py, which says what is asserted and what counted). A
replica that logs nothing has its position in a table of EVENKEEL alone, as the user's page advises.

EVENKEEL_ROUNDS (2) is how many kills each combination gets, EVENKEEL_SEED what they are chosen from (printed);
an argument is a pattern of the combinations to run, as "replica: tc-log, 4".
"""
import collections
import os
import random
import re
import subprocess
import sys
import time

import two_engine_clients as clients
from servers import Problem, beside, compile_failing, free_port, on_port, run, seed_of, wait_until

ROUNDS = int(os.environ.get("EVENKEEL_ROUNDS", "2"))
SOURCE = ["--log-bin=binlog", "--server-id=1", "--binlog-format=row"]
TABLES = """
    create table e (id int primary key, n int, pad varchar(300), key by_n (n)) engine=evenkeel;
    create table et like e;
    create table i (id int primary key, n int, pad varchar(300), key by_n (n)) engine=innodb;
    create trigger t after insert on et for each row insert into i values (new.id, new.n, new.pad)"""


class Test:
    def __init__(self, servers, seed, pattern):
        self.servers, self.seed, self.pattern = servers, seed, pattern
        self.random = random.Random(seed)
        # The combination under way, and what was counted of it.
        self.what, self.sums = "the tables", collections.Counter()

    def begins(self, what):
        self.what, self.sums = what, collections.Counter()
        return re.search(self.pattern, what)

    def report(self, *names):
        said = "".join(", %d %s" % (self.sums[name], name.replace("-", " ")) for name in names)
        print(f"{self.what}: {ROUNDS} kills{said}", flush=True)

    def records(self, name):
        folder = self.servers.folder / (name + ".records")
        folder.mkdir()
        return folder

    def load(self, server, records, number, count, mode):
        """Clients at work, in the background."""
        return beside(clients.work, server.socket, records, number, self.seed, count, mode)

    def waits_for_load(self, working, records, before):
        """Until the clients' files have fifty acknowledged commits more than before."""
        enough = lambda: acknowledged(records) >= before + 50
        if not wait_until(lambda: enough() or working.done(), 300, 0.02) or not enough():
            self.result(working)
            raise Problem("no load")

    def waits_a_moment(self):
        """A random moment of the next half second, or just now."""
        if self.random.randrange(3):
            time.sleep(self.random.randrange(500) / 1000)

    def result(self, working):
        return working.result(timeout=600)

    def alone(self, mode, count):
        if not self.begins(f"{mode}, {count} clients"):
            return
        options = ["--skip-log-bin"] if mode == "tc-log" else SOURCE
        server = self.servers.copy(self.servers.server("first"), f"{mode}-{count}")
        records = self.records(server.name)
        server.start(*options)
        for number in range(1, ROUNDS + 1):
            before = acknowledged(records)
            working = self.load(server, records, number, count, mode)
            self.waits_for_load(working, records, before)
            # In turns: under load, and at once behind the last commit, which no other one makes durable.
            if number % 2 == 0:
                self.waits_a_moment()
                server.kill()
            (records / "stop").touch()
            self.result(working)
            server.kill()
            (records / "stop").unlink()
            server.start(*options)
            # Each round is told with all before it; the sums are those of the last one.
            self.sums = clients.check(server.socket, records, mode)
        self.report("acknowledged", "in-doubt", "in-doubt-kept", "lost-in-evenkeel", "lost-in-innodb",
                    "in-one-engine")
        if count == 1 and mode != "unlogged":
            self.counts_syncs(server, mode)
        server.stop()

    def counts_syncs(self, server, mode):
        """What is prepared is synced; the commit where the binlog does not decide. The background adds a few."""
        n = clients.syncs(server.socket)
        least, most = (95, 140) if mode == "binlog" else (195, 240)
        if not least <= n <= most:
            raise Problem(f"{n} syncs for 100 commits")
        print(f"{self.what}: {n} syncs of the log for 100 commits", flush=True)

    def replicated(self, source, port, mode, count):
        if not self.begins(f"replica: {mode}, {count} threads"):
            return
        source.sql("delete from e; delete from et; delete from i; reset master", database="test")
        options = replica_options(mode, count)
        # Who decides there after a crash.
        decides = "binlog" if mode == "binlog" else "nobody"
        server = self.servers.copy(self.servers.server("first"), f"replica-{mode}-{count}")
        records = self.records(server.name)
        server.start(*options)
        if decides == "nobody":
            server.sql("set sql_log_bin=0; alter table mysql.gtid_slave_pos engine=evenkeel")
        server.follow(port)
        for number in range(1, ROUNDS + 1):
            self.killed_replica(source, server, records, number, count, options, decides)
        self.compare(source, server, decides)
        self.report("applied", "lost-in-evenkeel", "lost-in-innodb", "ahead-in-innodb", "rows", "rows-that-differ")
        server.stop()

    def killed_replica(self, source, server, records, number, count, options, decides):
        (records / "stop").unlink(missing_ok=True)
        working = self.load(source, records, number, count, "binlog")
        applied = lambda: int(server.sql("select count(*) from test.i"))
        before = applied()
        if not wait_until(lambda: applied() > before + 50, 300, 0.02):
            raise Problem("it applies nothing")
        self.waits_a_moment()
        server.kill()
        (records / "stop").touch()
        self.result(working)
        server.start(*options, "--skip-slave-start")
        self.sums.update(clients.replica(server.socket, records, decides))
        server.sql("start slave")
        if not server.catches_up(source):
            raise Problem(f"it does not go on after kill {number}")

    def compare(self, source, server, decides):
        for table in ("e", "et", "i"):
            query = f"select id, n from {table} order by id"
            there, here = [one.sql(query, database="test").splitlines() for one in (source, server)]
            self.sums["rows"] += len(there)
            differ = len(set(there) ^ set(here))
            # What InnoDB has lost.
            if differ and (decides == "binlog" or table != "i"):
                raise Problem(f"{differ} rows of {table} differ")
            self.sums["rows-that-differ"] += differ

    def stopped(self, way):
        """A log that cannot be synced any more, with commits that only the binlog has: an orderly end, RESET MASTER
        and a rotation go on or end the server as a kill, and the next start has what was acknowledged."""
        if not self.begins(f"log stopped, {way}"):
            return
        server = self.servers.copy(self.servers.server("first"), "stopped-" + way.replace(" ", "-"))
        fail = self.servers.folder / "fail"
        server.start(*SOURCE, preload=self.servers.folder / "failing.so",
                     environment={"EVENKEEL_FAIL_DIR": str(fail)})
        server.sql("begin; insert into i values (5, 5, 5); insert into e values (5, 5, 5); commit", database="test")
        (fail / "sync").touch()
        wait_until(lambda: server.status("evenkeel_writes_stopped") == 1, 10)
        if way != "shutdown":
            try:
                server.try_sql(way, timeout=20)
            except subprocess.TimeoutExpired:
                pass
        self.ends(server)
        (fail / "sync").unlink()
        server.start(*SOURCE)
        if server.sql("select (select count(*) from e), (select count(*) from i)", database="test") != "1\t1":
            raise Problem("an acknowledged commit is lost")
        server.stop()
        print(f"{self.what}: the server ends and has what was acknowledged", flush=True)

    def ends(self, server):
        if not server.stop(seconds=30):
            raise Problem("the server does not end")

    def damaged(self):
        """A database that cannot be opened holds up neither an end of the server nor its binlog."""
        if not self.begins("damaged"):
            return
        server = self.servers.copy(self.servers.server("first"), "damaged")
        (server.data / "#evenkeel/evenkeel.super").rename(self.servers.folder / "super")
        server.start(*SOURCE)
        try:
            done = server.try_sql("insert into i values (5, 5, 5); flush binary logs; insert into i values (6, 6, 6); "
                                  "reset master; insert into i values (7, 7, 7); flush binary logs",
                                  database="test", timeout=20)
        except subprocess.TimeoutExpired:
            raise Problem("statements of others do not go on") from None
        if done.returncode:
            raise Problem("statements of others do not go on: " + done.stderr)
        self.ends(server)
        print(f"{self.what}: others go on, and the server ends", flush=True)


def acknowledged(records):
    return sum(file.read_text().count("acknowledged") for file in records.glob("*-*"))


def replica_options(mode, count):
    options = ["--server-id=2", "--gtid-pos-auto-engines=evenkeel", "--slave-parallel-mode=optimistic",
               f"--slave-parallel-threads={0 if count == 1 else 4}", "--slave-transaction-retries=100",
               "--slave-exec-mode=IDEMPOTENT"]
    return options + {"binlog": ["--log-bin=binlog", "--log-slave-updates"], "no-updates": ["--log-bin=binlog"],
                      "tc-log": []}[mode]


def all_combinations(test):
    servers = test.servers
    first = servers.server("first")
    first.start()
    first.sql("create database test")
    first.sql(TABLES, database="test")
    first.stop()
    (servers.folder / "fail").mkdir()
    compile_failing(servers.folder / "failing.so")
    for way in ("shutdown", "reset master", "flush binary logs"):
        test.stopped(way)
    test.damaged()
    for mode in ("binlog", "tc-log", "unlogged"):
        for count in (1, 4):
            test.alone(mode, count)
    source, port = servers.copy(first, "source"), free_port()
    # No faster than its replicas.
    source.start(*SOURCE, "--sync-binlog=1", *on_port(port))
    for mode in ("binlog", "tc-log", "no-updates"):
        for count in (1, 4):
            test.replicated(source, port, mode, count)


def main():
    seed = seed_of("two engines")
    print(f"two engines: {ROUNDS} kills of each combination", flush=True)

    def test(servers):
        over = Test(servers, seed, sys.argv[1] if len(sys.argv) > 1 else "")
        try:
            all_combinations(over)
        except Problem as problem:
            raise Problem(f"{over.what}: {problem}; seed {seed}") from None
    return run("two engines test", test)


if __name__ == "__main__":
    sys.exit(main())
