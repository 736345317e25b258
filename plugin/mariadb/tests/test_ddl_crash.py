#!/usr/bin/env python3
"""Ends the server in the midst of DDL statements (ddl_statements.py): in front of a sync, rename or removal of a file
of the engine, of the server's ddl_recovery.log or of a table's definition (failing.c). Each statement is run once to
count such steps, then killed at EVENKEEL_DDL_KILLS (4) of them, evenly over all, from EVENKEEL_SEED on; every third
restart is killed too. After each restart: every table is as before the statement or as after it (all of them alike
where the statement is atomic), as after it if it was acknowledged; CHECK TABLE is clean; the engine's tables and
indexes are those of the server; nothing is left of the statement, in the engine nor among the files, and the
server's recovery reports no error.

test_ddl_crash.py [NAME]: of that statement alone. EVENKEEL_DDL_ENGINE=innodb shows what the server leaves with any
engine. Prints "N kills, ...".
"""
import collections
import os
import random
import re
import shutil
import sys
import time

import test_failing
from ddl_statements import STATEMENTS
from servers import Problem, compile_failing, run, seed_of, wait_until

WANTED = int(os.environ.get("EVENKEEL_DDL_KILLS", "4"))
ENGINE = os.environ.get("EVENKEEL_DDL_ENGINE", "evenkeel")
OPTIONS = ["--log-bin=binlog", "--server-id=1", "--binlog-format=row", "--sync-binlog=1",
           "--innodb-log-file-size=8M"]
BASE = f"""create or replace database test; use test;
    create table base (id int auto_increment primary key, a int, b varchar(40), key (a), unique key b (b))
        engine={ENGINE};
    insert into base select seq, seq % 13, concat('row ', seq) from seq_1_to_300;
    create table other (id int primary key, a int, key (a)) engine={ENGINE};
    insert into other values (1, 10), (2, 20);"""
ENGINES_TABLES = "select distinct concat(table_schema, '/', table_name) from information_schema.evenkeel_tables"
SERVERS_TABLES = """select concat(t.table_schema, '/', t.table_name, ifnull(concat('#P#', p.partition_name), ''))
    from information_schema.tables t join information_schema.partitions p using (table_schema, table_name)
    where t.engine = 'EVENKEEL' or t.table_type = 'SEQUENCE' or p.partition_name is not null"""
ENGINES_INDEXES = """select distinct concat(substring_index(table_name, '#P#', 1), '.', index_name)
    from information_schema.evenkeel_indexes where table_schema = 'test' and state = 'valid'"""
SERVERS_INDEXES = """select distinct concat(table_name, '.', index_name) from information_schema.statistics join
    information_schema.tables using (table_schema, table_name) where table_schema = 'test'
    and index_name <> 'PRIMARY' and engine <> 'InnoDB'"""


class Test:
    def __init__(self, servers, seed):
        self.main = servers.server("main")
        self.random = random.Random(seed)
        self.fail_folder = servers.folder / "fail"
        self.fail_folder.mkdir()
        self.how = {"preload": compile_failing(servers.folder / "failing.so"),
                    "environment": {"EVENKEEL_FAIL_DIR": str(self.fail_folder)}}
        self.new_data = servers.folder / "new-data"
        self.failed = self.kills = self.restarts_killed = self.tried = self.done_steps = 0
        self.ends = collections.Counter(old=0, new=0, between=0)
        self.ddl, self.step, self.steps = None, 0, []

    def fails(self, what):
        self.failed += 1
        name = next((line.split(" ", 1)[1] for line in self.steps if line.startswith(f"{self.step} ")), "")
        name = name.replace(f"{self.main.data}/", "")
        print(f"ddl crash: {self.ddl.name}, step {self.step} of {self.count} ({name}): {what}", file=sys.stderr,
              flush=True)

    def start(self):
        self.main.start(*OPTIONS, **self.how)

    def prepare(self):
        self.main.sql(BASE + self.ddl.before.format(engine=ENGINE))

    def state(self):
        """Of each table its rows and its definition. Numbers that were reserved are lost by a crash."""
        names = self.main.sql("select table_name from information_schema.tables where table_schema='test'")
        told = {}
        for table in sorted(names.split()):
            text = self.main.sql(f"checksum table test.{table}; show create table test.{table}")
            text = re.sub(r"(\s|\\n|\\t)+", " ", text)
            told[table] = re.sub(r"AUTO_INCREMENT=3\d\d\b", "AUTO_INCREMENT=300 or more", text)
        return told

    def arm(self, step):
        armed = self.fail_folder / "armed"
        armed.write_text(f"{step}\n")
        armed.rename(self.fail_folder / "crash")

    def attempt(self, step):
        """Arms the library for a step (0: none) and runs the statement; the error, "" if it was acknowledged."""
        for file in self.fail_folder.iterdir():
            file.unlink()
        self.arm(step)
        done = self.main.try_sql(self.ddl.statement.format(engine=ENGINE), database="test")
        (self.fail_folder / "crash").unlink()
        # A thread of the background may have seen it and end the server yet.
        time.sleep(0.05)
        steps = self.fail_folder / "steps"
        self.steps = steps.read_text().splitlines() if steps.exists() else []
        return (done.stderr or "no answer") if done.returncode else ""

    def restart(self):
        """The server with what the kill left; every third time it is killed in its first steps as well."""
        self.main.kill()
        if self.kills % 3 == 0:
            self.arm(self.random.randrange(40) + 1)
            self.main.launch(*OPTIONS, **self.how)
            wait_until(lambda: not self.main.is_alive() or self.main.answers(), 600)
            self.restarts_killed += not self.main.is_alive()
            (self.fail_folder / "crash").unlink()
            self.main.kill()
        self.start()

    def rescue(self):
        """What the user's page says of a crash behind the last renaming of a partition: the .par file is there under
        its temporary name."""
        files = self.main.data / "test"
        found = list(files.glob("#sql-alter-*.par"))
        if found and not (files / "base.par").exists() and self.main.sql(
                "select count(distinct table_name) from information_schema.evenkeel_tables "
                "where table_name like 'base#P#%'") == "3":
            found[0].rename(files / "base.par")

    def check(self, old, new, is_acknowledged, said):
        """Returns what the tables are like: old, new, or between."""
        if self.ddl.changes == "server":
            self.rescue()
        now = self.state()
        outcome = "new"
        if now != new:
            if is_acknowledged:
                self.fails("was acknowledged and is not as after it")
            outcome = "old" if now == old else "between"
        if outcome == "between":
            self.check_each(old, new, now)
        for table in now:
            # Sequences have none, of any engine.
            bad = [line for line in self.main.said(f"check table test.{table}").splitlines()
                   if not line.endswith("status\tOK") and "note\tThe storage engine for the table" not in line]
            if bad:
                self.fails(f"CHECK TABLE: {bad}")
        left = [str(path) for word in ("sql-", "#TMP#", "#REN#") for path in self.main.data.rglob(f"*{word}*")
                if "#evenkeel" not in path.parts]
        if left:
            self.fails(f"files are left: {left}")
        errors = [line for line in self.main.log().splitlines()[said:] if "ERROR" in line]
        if errors:
            self.fails("\n".join(errors))
        if ENGINE == "evenkeel":
            self.same("tables", ENGINES_TABLES, SERVERS_TABLES)
            self.same("indexes", ENGINES_INDEXES, SERVERS_INDEXES)
        return outcome

    def check_each(self, old, new, now):
        if self.ddl.changes in ("all", "server"):
            differ = sorted(table for table in {*old, *now} if old.get(table) != now.get(table))
            self.fails("neither as before nor as after it: "
                       + "; ".join(f"{table}: {old.get(table)} -> {now.get(table)}" for table in differ))
        for table in sorted({*old, *new, *now}):
            is_absent = self.ddl.changes == "absent" and table not in now
            if now.get(table) not in (old.get(table), new.get(table)) and not is_absent:
                self.fails(f"table {table} is neither as before nor as after it")

    def same(self, what, engines, servers):
        engines, servers = [sorted(self.main.sql(query).splitlines()) for query in (engines, servers)]
        if engines != servers:
            self.fails(f"the engine's {what} {engines} are not the server's {servers}")

    def begin_anew(self):
        """After a fault, which was reported, all begins anew: what it left would be in the way of the next."""
        self.main.kill()
        shutil.rmtree(self.main.data)
        shutil.copytree(self.new_data, self.main.data)
        self.start()

    def kill_in(self, ddl):
        self.ddl, self.step, self.count = ddl, 0, 0
        self.tried += 1
        self.prepare()
        old = self.state()
        if error := self.attempt(0):
            self.fails(f"without a kill: {error}")
            return
        new = self.state()
        self.count = len(self.steps)
        self.done_steps += self.count
        stride = max(self.count // WANTED, 1)
        outcome = "new"
        for self.step in range(1 + self.random.randrange(stride), self.count + 1, stride):
            if outcome != "old":
                self.prepare()
            before, said = self.failed, len(self.main.log().splitlines())
            error = self.attempt(self.step)
            # Steps of the background may have come between: without them it had fewer.
            if not self.main.answers():
                self.kills += 1
                self.restart()
            elif error:
                self.fails(error)
            outcome = self.check(old, new, not error, said)
            self.ends[outcome] += 1
            if self.failed > before:
                self.begin_anew()
                outcome = "anew"

    def all(self, only):
        self.start()
        self.main.stop()
        shutil.copytree(self.main.data, self.new_data)
        self.start()
        for ddl in STATEMENTS:
            if ddl.name == only if only else ddl.changes != "server":
                self.kill_in(ddl)
        # Steps of the background are counted with the statement's when it is first run, and may not come again.
        if not only and self.kills < self.tried * 2:
            self.fails(f"only {self.kills} kills")
        if not only and self.ends["new"] < 10:
            self.fails(f"only {self.ends['new']} came to their end")


def test(servers):
    seed = seed_of("ddl crash")
    library = servers.folder / "counted.so"
    steps, wanted = test_failing.counted(str(compile_failing(library)))
    if steps != wanted:
        raise Problem(f"the library counts the steps {steps}, not {wanted}")
    over = Test(servers, seed)
    over.all(sys.argv[1] if len(sys.argv) > 1 else None)
    print(f"{over.tried} statements of {over.done_steps} steps: {over.kills} kills, {over.restarts_killed} of "
          f"restarts; tables as before {over.ends['old']}, as after {over.ends['new']}, between "
          f"{over.ends['between']}; {over.failed} failed (EVENKEEL_SEED={seed})")
    return over.failed > 0 or over.kills == 0


if __name__ == "__main__":
    sys.exit(run("ddl crash", test))
