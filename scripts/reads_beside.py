#!/usr/bin/env python3
"""Reads through SQL beside InnoDB: one server, both engines in turns, and the ratio of their times.

scripts/reads_beside.py SOCKET [ROUNDS [ROWS]] [--wall] [--only TEXT]: on a server with both engines, such as
scripts/sql.sh starts. A statement's time is the processor time of its connection's thread, so that other load
on the machine counts little; with --wall, by the clock. The figure of a case is InnoDB's lowest time divided
by ours: above 1 we are faster. Both engines must give the same answer, or the script ends.
"""
import subprocess
import sys
import time

WALL = "--wall" in sys.argv
ONLY = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
ARGS = [a for a in sys.argv[1:] if not a.startswith("--") and a != ONLY]
SOCKET = ARGS[0] if ARGS else sys.exit(__doc__)
ROUNDS = int(ARGS[1]) if len(ARGS) > 1 else 5
ROWS = int(ARGS[2]) if len(ARGS) > 2 else 200_000
POINTS = 5_000

# The columns of sysbench's table; a narrow one beside it.
WIDE = "create table wide_{e} (id int primary key, k int not null, c char(120) not null, pad char(60) not null, " \
       "key k(k)) engine={e}"
NARROW = "create table narrow_{e} (id int primary key, k int not null, key k(k)) engine={e}"
FILL = [
    "insert into wide_{e} select seq, (seq * 7919) % {n}, concat('c', seq * 31, repeat('-', 90)), "
    "concat('pad', seq) from seq_1_to_{n}",
    "insert into narrow_{e} select seq, (seq * 7919) % {n} from seq_1_to_{n}",
]
# Name, statement, rows that it reads: {n} all rows, {h} a tenth from {f} on.
CASES = [
    ("count(*), primary key", "select count(*) from wide_{e} force index (primary)", 1),
    ("count(*), index", "select count(*) from wide_{e} force index (k)", 1),
    ("count(*), as planned", "select count(*) from wide_{e}", 1),
    ("count(*), narrow rows", "select count(*) from narrow_{e} force index (primary)", 1),
    ("count(*) of a range", "select count(*) from wide_{e} where id between {f} and {t}", 0.1),
    ("count(*) of an index's range", "select count(*) from wide_{e} where k between {f} and {t}", 0.1),
    ("sum over all", "select sum(k) from wide_{e} force index (primary)", 1),
    ("sum over all, narrow rows", "select sum(k) from narrow_{e} force index (primary)", 1),
    ("sum over a range", "select sum(k) from wide_{e} where id between {f} and {t}", 0.1),
    ("condition on all", "select count(*) from wide_{e} where c like 'c77%'", 1),
    ("range backward", "select max(x) from (select k x from wide_{e} where id between {f} and {t} "
     "order by id desc limit {n}) d", 0.1),
    ("entries of an index", "select sum(k) from wide_{e} force index (k) where k between {f} and {t}", 0.1),
    ("entries backward", "select max(x) from (select k x from wide_{e} force index (k) where k between {f} and {t} "
     "order by k desc limit {n}) d", 0.1),
    ("rows by an index", "select sum(length(c)) from wide_{e} force index (k) where k between {f} and {t}", 0.1),
    ("100 rows, 50 times", "begin not atomic declare i int default 0; declare s bigint default 0; while i < 50 do "
     "select s + coalesce(sum(k), 0) into s from wide_{e} where id between 1000 * i + 1 and 1000 * i + 100; "
     "set i = i + 1; end while; select s; end", 5_000),
]


class Client:
    """One connection, a statement at a time."""

    def __init__(self):
        command = ["mariadb", "--no-defaults", "-S", SOCKET, "-uroot", "-N", "-f", "-n", "--delimiter=$$", "test"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        tid = "select tid from information_schema.processlist where id = connection_id()"
        self.tid = int(self.ask([tid])[-1])

    def ask(self, statements):
        # Few at a time, whose answers fit into the pipe.
        return [line for at in range(0, len(statements), 100) for line in self.ask_some(statements[at:at + 100])]

    def ask_some(self, statements):
        text = "".join(f"{statement}$$\n" for statement in statements)
        self.process.stdin.write(text + "select 'the end'$$\n")
        self.process.stdin.flush()
        lines = []
        while (line := self.process.stdout.readline().strip()) != "the end":
            if not line and self.process.poll() is not None:
                sys.exit("the client is gone")
            lines.append(line)
        return lines

    def seconds(self):
        if WALL:
            return time.monotonic()
        with open(f"/proc/{self.tid}/schedstat", encoding="ascii") as stat:
            return int(stat.read().split()[0]) / 1e9


def measure(client, name, of_engine, rows):
    times, answers = {"evenkeel": [], "innodb": []}, {}
    for turn in range(ROUNDS):
        for engine in sorted(times, reverse=turn % 2 == 1):
            statements = of_engine(engine)
            before = client.seconds()
            answers[engine] = client.ask(statements)
            times[engine].append(client.seconds() - before)
    if answers["evenkeel"] != answers["innodb"]:
        sys.exit(f"{name}: {answers['evenkeel'][:3]} instead of {answers['innodb'][:3]}")
    ours, theirs = min(times["evenkeel"]), min(times["innodb"])
    scale = 1e9 / rows
    print(f"{name:30} {ours * scale:8.0f} {theirs * scale:8.0f}  x {theirs / ours:.2f}", flush=True)


def main():
    client = Client()
    places = {"n": ROWS, "f": ROWS // 2, "t": ROWS // 2 + ROWS // 10 - 1}
    for engine in ["evenkeel", "innodb"]:
        for table, create, fill in zip(["wide", "narrow"], [WIDE, NARROW], FILL):
            if client.ask([f"show tables like '{table}_{engine}'"]) == []:
                client.ask([create.format(e=engine), fill.format(e=engine, **places)])
    print(f"{ROWS} rows, {ROUNDS} rounds, {'wall' if WALL else 'processor'} ns a row: ours, InnoDB's, ratio")
    for name, statement, rows in CASES:
        if ONLY in name:
            rows = rows if rows > 1 else rows * ROWS
            measure(client, name, lambda engine, s=statement: [s.format(e=engine, **places)], rows)
    if ONLY in "point selects":
        keys = [i * 7919 % ROWS + 1 for i in range(POINTS)]
        select = "select c from wide_{} where id={}"
        measure(client, "point selects", lambda engine: [select.format(engine, key) for key in keys], POINTS)


if __name__ == "__main__":
    main()
