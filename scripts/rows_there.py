#!/usr/bin/env python3
"""Inserts of rows that exist and locking scans beside InnoDB: times in alternation, and their ratios.

scripts/rows_there.py SOCKET [ROUNDS [ROWS]]: on a server with both engines, such as scripts/sql.sh
starts. A statement's time is the processor time of its connection's thread, so that other load on the
machine counts little; with --wall, by the clock.
"""
import subprocess
import sys
import time
from statistics import median

WALL = "--wall" in sys.argv
ARGS = [a for a in sys.argv[1:] if not a.startswith("--")]
SOCKET = ARGS[0] if ARGS else sys.exit(__doc__)
ROUNDS = int(ARGS[1]) if len(ARGS) > 1 else 5
ROWS = int(ARGS[2]) if len(ARGS) > 2 else 100_000

TABLE = "create or replace table there_{e} (id int primary key, k int, c char(60), key k(k), " \
        "unique key c(c)) engine={e}"
PLAIN = "create or replace table plain_{e} (id int primary key, k int, c char(60)) engine={e}"
SETUP = [
    "create or replace table source (id int primary key, k int, c char(60)) engine=myisam",
    f"insert into source select seq, seq % 1000, concat('row number ', seq) from seq_1_to_{ROWS}",
    "create or replace table other (id int primary key, k int, c char(60)) engine=myisam",
    "insert into other select id + 10000000, k, c from source",
]
FILL = ["insert into there_{e} select * from source", "insert into plain_{e} select * from source"]
CASES = [
    ("INSERT IGNORE, primary key", "insert ignore into plain_{e} select * from source"),
    ("INSERT IGNORE, two indexes", "insert ignore into there_{e} select * from source"),
    ("INSERT IGNORE, unique key", "insert ignore into there_{e} select * from other"),
    ("failing INSERTs", "begin not atomic declare i int default 0; declare continue handler for 1062 "
     "begin end; start transaction; while i < {n} do set i = i + 1; "
     "insert into there_{e} values (i, 1, 'x'); end while; commit; end"),
    ("FOR UPDATE, all", "select sum(k) from plain_{e} for update"),
    ("FOR UPDATE, range", "select sum(k) from plain_{e} where id between 1000 and {n} for update"),
    ("SHARE MODE, range", "select sum(k) from plain_{e} where id between 1000 and {n} "
     "lock in share mode"),
    ("FOR UPDATE, index", "select sum(id) from there_{e} force index (k) where k < 500 for update"),
]


class Client:
    """One connection, a statement at a time; an empty result line tells its end."""

    def __init__(self):
        command = ["mariadb", "--no-defaults", "-S", SOCKET, "-uroot", "-N", "-f", "-n", "--delimiter=$$",
                   "test"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.tid = int(self.ask("select tid from information_schema.processlist where id = "
                                "connection_id()").split()[-1])

    def ask(self, statement):
        self.process.stdin.write(statement + "$$\nselect 'the end'$$\n")
        self.process.stdin.flush()
        lines = []
        while (line := self.process.stdout.readline().strip()) != "the end":
            if not line and self.process.poll() is not None:
                sys.exit("the client is gone")
            lines.append(line)
        return "\n".join(lines)

    def seconds(self):
        if WALL:
            return time.monotonic()
        with open(f"/proc/{self.tid}/schedstat") as stat:
            return int(stat.read().split()[0]) / 1e9


def main():
    client = Client()
    engines = ["evenkeel", "innodb"]
    for statement in SETUP:
        client.ask(statement)
    for engine in engines:
        for statement in [TABLE, PLAIN] + FILL:
            client.ask(statement.format(e=engine))
    print(f"{ROWS} rows, {ROUNDS} rounds, {'wall' if WALL else 'processor'} us a row")
    for name, statement in CASES:
        times = {engine: [] for engine in engines}
        for turn in range(ROUNDS):
            for engine in engines[:: 1 if turn % 2 == 0 else -1]:
                client.ask("start transaction")
                before = client.seconds()
                client.ask(statement.format(e=engine, n=ROWS))
                times[engine].append(client.seconds() - before)
                client.ask("rollback")
        ours, theirs = (median(times[engine]) for engine in engines)
        scale = 1e6 / ROWS
        print(f"{name:28} {ours * scale:8.2f} {theirs * scale:8.2f}  x {ours / theirs:.2f}", flush=True)


if __name__ == "__main__":
    main()
