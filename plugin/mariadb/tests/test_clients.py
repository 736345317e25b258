#!/usr/bin/env python3
"""Runs programs of other projects on ENGINE=EVENKEEL: each of sysbench's tests; mariadb-dump --single-transaction while
a client writes, and the load of that dump; the insert benchmark (iibench.py); a program over SQLAlchemy (orm.py); and
SQLAlchemy's own suite for dialects, from whose tables foreign keys are left out. Prints "N passed, N failed".
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from servers import ROOT, TESTS, Missing, run, wait_until

SYSBENCH = "sysbench 1.0.20"
SCRIPTS = pathlib.Path("/usr/share/sysbench")
PACKAGES = ["sqlalchemy==2.0.54", "pymysql==1.2.3", "pytest==9.2.0"]
SUITE_PASSED_LEAST = 1300
BANK = """
create database bank;
use bank;
create table account (id int primary key, money int, note longtext);
insert into account select seq, 100, repeat(seq, 50) from seq_1_to_5000;
delimiter |
create procedure move(n int)
for i in 0..n do
    start transaction;
    update account set money = money - 1 where id = 1 + i % 5000;
    update account set money = money + 1 where id = 5000 - i % 5000;
    commit;
end for|
"""


class Test:
    def __init__(self, servers):
        self.server, self.log = servers.server("a"), servers.folder / "log"
        self.folder = servers.folder
        self.passed = self.failed = 0

    def outcome(self, what, is_right):
        if is_right:
            self.passed += 1
            return
        self.failed += 1
        print(f"failed: {what}", file=sys.stderr)
        print("\n".join(self.log.read_text(errors="replace").splitlines()[-5:]), file=sys.stderr, flush=True)

    def does(self, command, **how):
        """Runs a program with its output in the log; true if it succeeds."""
        with open(self.log, "a") as log:
            try:
                done = subprocess.run(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT, **how)
            except subprocess.TimeoutExpired:
                return False
        return done.returncode == 0

    def sysbench(self, test, step):
        command = ["sysbench", test, "--db-driver=mysql", f"--mysql-socket={self.server.socket}", "--mysql-user=root",
                   "--mysql-db=sbtest", "--mysql_storage_engine=evenkeel", "--threads=4", "--table-size=2000",
                   "--time=2"]
        if test != "bulk_insert":
            command.append("--tables=1" if test.startswith("select_") else "--tables=2")
        return self.does([*command, step])

    def is_all_ours(self):
        tables, ours = self.server.sql("select count(*), sum(engine = 'EVENKEEL') from information_schema.tables "
                                       "where table_schema = 'sbtest'").split("\t")
        return tables == ours != "0"

    def all_of_sysbench(self):
        self.server.sql("create database sbtest")
        for script in sorted(SCRIPTS.glob("*.lua")):
            test = script.stem
            if test == "oltp_common":
                continue
            self.log.write_text("")
            self.outcome(f"sysbench {test}", self.sysbench(test, "prepare") and self.sysbench(test, "run")
                         and re.search(r"transactions: +[1-9]", self.log.read_text())
                         and self.is_all_ours() and self.sysbench(test, "cleanup"))

    def dump(self, program):
        """A client moves money between accounts during the dump; the dump must not contain half of a move."""
        self.log.write_text("")
        self.server.sql(BANK)
        mover = subprocess.Popen(self.server.client("-e", "call move(1000000)", database="bank"),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            moved = "select count(*) from bank.account where money <> 100"
            wait_until(lambda: self.server.sql(moved) != "0" or mover.poll() is not None, 60)
            self.outcome("mariadb-dump --single-transaction", self.dumps(program, mover))
        finally:
            mover.kill()
            mover.wait()

    def dumps(self, program, mover):
        dump = self.folder / "dump.sql"
        command = [program, "--no-defaults", f"--socket={self.server.socket}", "-uroot", "--single-transaction",
                   "--master-data=2", "--gtid", "bank"]
        with open(dump, "w") as out, open(self.log, "a") as log:
            if subprocess.run(command, stdout=out, stderr=log).returncode:
                return False
        if "gtid_slave_pos='0-1-" not in dump.read_text():
            return False
        self.server.sql("create database copy")
        with open(dump) as statements:
            is_there = self.does(self.server.client(database="copy"), stdin=statements)
        wanted = "5000\t500000\t1"
        return is_there and mover.poll() is None and self.server.sql(
            "select count(*), sum(money), count(distinct money) > 1 from copy.account") == wanted

    def python(self):
        """A Python with the packages that these programs need."""
        folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "clients"
        python = folder / "bin/python"
        if not (python.exists() and self.does([python, "-c", "import sqlalchemy, pymysql, pytest"])):
            self.does([sys.executable, "-m", "venv", folder])
            self.does([folder / "bin/pip", "install", "-q", *PACKAGES])
        return python

    def inserted(self):
        return self.server.status("evenkeel_rows_inserted")

    def sqlalchemy_suite(self, python):
        """Its own tests, with one exception: FOREIGN KEY, which the engine refuses, is left out of the CREATE TABLE of
        its tables (sqlalchemy/conftest.py). sqlalchemy/requirements.py says which tests this server or an engine
        without foreign keys cannot pass, and why."""
        for schema in ("test", "test_schema", "test_schema_2"):
            self.server.sql(f"create or replace database {schema} character set utf8mb4")
        before = self.inserted()
        folder = self.folder / "suite"
        shutil.copytree(TESTS / "sqlalchemy", folder)
        self.log.write_text("")
        address = f"mariadb+pymysql://root@localhost/test?unix_socket={self.server.socket}&charset=utf8mb4"
        is_done = self.does([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--dburi", address],
                            cwd=folder, timeout=1200)
        passed = re.search(r"^(\d+) passed", self.log.read_text(), re.M)
        return is_done and passed and int(passed[1]) >= SUITE_PASSED_LEAST and self.inserted() > before


def needed():
    """Checks that the programs are installed; the path of mariadb-dump."""
    if not shutil.which("sysbench"):
        raise Missing("sysbench is missing: bash scripts/deps.sh servers")
    version = subprocess.run(["sysbench", "--version"], capture_output=True, text=True).stdout.strip()
    if version != SYSBENCH:
        raise Missing(f"{SYSBENCH} is wanted: {version}")
    suite = subprocess.run(["bash", ROOT / "scripts/mariadb.sh", "suite"], stdout=subprocess.PIPE, text=True)
    if suite.returncode:
        raise Missing("the server's suite is missing")
    return suite.stdout.strip() + "/usr/bin/mariadb-dump"


def all_programs(servers):
    test, program = Test(servers), needed()
    test.server.start("--default-storage-engine=evenkeel", "--server-id=1", "--log-bin=binlog", "--binlog-format=row")
    test.all_of_sysbench()
    test.dump(program)
    test.log.write_text("")
    python = test.python()
    test.outcome("iibench", test.does([python, TESTS / "iibench.py", test.server.socket, "evenkeel"], timeout=900))
    test.outcome("SQLAlchemy", test.does([python, TESTS / "orm.py", test.server.socket]))
    test.outcome("SQLAlchemy's suite", test.sqlalchemy_suite(python))
    print(f"{test.passed} passed, {test.failed} failed")
    return test.failed > 0


if __name__ == "__main__":
    sys.exit(run("clients", all_programs))
