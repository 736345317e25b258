#!/usr/bin/env python3
"""SET GLOBAL evenkeel_backup_dir beside writers and schema changes, and what a restore by the guide gives.

Each backup is restored by `evenkeel backup restore` under a second server that has the definitions of the first. Every
writer numbers its transactions and updates its rows of two tables in each: the copy holds whole transactions only, and
no fewer than were acknowledged before the backup began, and no more than were begun when it had ended. A server that is
killed amid a backup leaves no complete one, and recovers. EVENKEEL names the command (target/release/evenkeel, else
target/debug/evenkeel).
"""
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

from client import Client, Failed
from servers import ROOT, Missing, Problem, run, wait_until

WRITERS = 3
ROWS = 40


def command():
    given = os.environ.get("EVENKEEL")
    found = [given] if given else [ROOT / "target/release/evenkeel", ROOT / "target/debug/evenkeel"]
    there = [path for path in found if pathlib.Path(path).exists()]
    if not there:
        raise Missing("cargo build -p evenkeel-cli first")
    return str(there[0])


def evenkeel(*arguments, code=0):
    done = subprocess.run([command(), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != code:
        raise Problem(f"evenkeel {arguments}: exit code {done.returncode}, not {code}: {done.stdout}{done.stderr}")
    return done.stdout


class Writer(threading.Thread):
    """Transaction n sets all rows of its number in `a` and `b` to n, and adds one to `c` with a long value. It counts
    transactions begun and done."""

    # A backup of a busy machine takes long beside sessions that write long values as fast as they can.
    pause_s = 0.1

    def __init__(self, server, number):
        super().__init__(daemon=True)
        self.server, self.number, self.begun, self.done, self.stop = server, number, 0, 0, False
        self.problem = None

    def changes(self, n):
        return (f"update test.a set n = {n}, pad = repeat('p', {n} % 200) where w = {self.number}",
                f"update test.b set n = {n} where w = {self.number}",
                f"replace into test.c values ({self.number * 1000 + n % 50}, {n}, repeat('v', {n % 7} * 300000))")

    def run(self):
        try:
            client = Client(self.server.socket)
            while not self.stop:
                self.begun += 1
                for statement in ("begin", *self.changes(self.begun), "commit"):
                    if client.number(statement):
                        raise Problem(f"{statement[:60]}: an error")
                self.done = self.begun
                time.sleep(self.pause_s)
        except (Failed, Problem) as error:
            if not self.stop:
                self.problem = error


def change_schema(server, stop):
    while not stop.is_set():
        server.sql("use test; create table d (id int primary key, v int) engine=evenkeel;"
                   "insert into d select seq, seq from seq_1_to_3000;"
                   "alter table d add key (v), algorithm=inplace, lock=none; drop table d")


def restore(servers, source, copy, name):
    """A server with the definitions of the source and the restored tables."""
    other = servers.server(name)
    other.folder.mkdir()
    shutil.copytree(source.data, other.data, ignore=shutil.ignore_patterns("#evenkeel", "*.pid"))
    evenkeel("backup", "verify", copy)
    evenkeel("backup", "restore", copy, other.data / "#evenkeel")
    other.start()
    return other


def check(server, least, most):
    for table in ("a", "b", "c"):
        found = server.sql(f"check table test.{table} extended")
        if not found.endswith("OK"):
            raise Problem(f"the copy: {found}")
    for w in range(WRITERS):
        found = server.sql(f"select min(n), max(n), count(*) from test.a where w = {w} union all "
                           f"select min(n), max(n), count(*) from test.b where w = {w}").split("\n")
        low, high, rows = map(int, found[0].split("\t"))
        if len(set(found)) != 1 and len(found) != 1 or low != high or rows != ROWS:
            raise Problem(f"writer {w}: half a transaction: {found}")
        if not least[w] <= low <= most[w]:
            raise Problem(f"writer {w}: transaction {low}, not {least[w]} to {most[w]}")
        newest = server.sql(f"select max(n) from test.c where id div 1000 = {w}")
        if low and newest != str(low):
            raise Problem(f"writer {w}: long value {newest} of transaction {low}")
        wrong = server.sql(f"select count(*) from test.c where id div 1000 = {w} and v <> repeat('v', n % 7 * 300000)")
        if wrong != "0":
            raise Problem(f"writer {w}: {wrong} long values are others")


def test(servers):
    main = servers.server("main")
    main.start("--max-allowed-packet=64M")
    main.sql("create database if not exists test; use test;"
             "create table test.a (w int, id int, n int, pad varchar(255), primary key (w, id), key (n, w)) engine=evenkeel;"
             "create table test.b (w int, id int, n int, primary key (w, id)) engine=evenkeel;"
             "create table test.c (id int primary key, n int, v longtext, key (n)) engine=evenkeel;"
             f"insert into test.a select w.seq, i.seq, 0, '' from seq_0_to_{WRITERS - 1} w, seq_1_to_{ROWS} i;"
             "insert into test.b select w, id, 0 from test.a")
    writers = [Writer(main, number) for number in range(WRITERS)]
    stop = threading.Event()
    changer = threading.Thread(target=change_schema, args=(main, stop), daemon=True)
    for thread in (*writers, changer):
        thread.start()
    copies = []
    for number in range(3):
        if not wait_until(lambda: all(w.done > 20 * (number + 1) or w.problem for w in writers), 300):
            raise Problem("the writers do not get on")
        least = [w.done for w in writers]
        copy = servers.folder / f"copy{number}"
        main.sql(f"set global evenkeel_backup_dir = '{copy}'")
        copies.append((copy, least, [w.begun for w in writers]))
    for writer in writers:
        writer.stop = True
    stop.set()
    for thread in (*writers, changer):
        thread.join()
    for writer in writers:
        if writer.problem:
            raise Problem(str(writer.problem))
    # The definitions of a, b and c have not changed since the copies. A copy may hold table d, which has none.
    main.stop()
    for number, (copy, least, most) in enumerate(copies):
        other = restore(servers, main, copy, f"restored{number}")
        check(other, least, most)
        other.sql("insert into test.a values (100, 1, 1, 'goes on')")
        other.stop()
        print(f"backup {number}: writers at {least} to {most}, restored and compared")
    # A damaged copy is named, and not restored.
    file = next(path for path in sorted((copies[0][0] / "pages").iterdir()))
    with open(file, "r+b") as open_file:
        open_file.seek(5000)
        open_file.write(b"damage")
    found = evenkeel("backup", "verify", copies[0][0], code=1)
    if f"pages/{file.name}" not in found:
        raise Problem(f"verify does not name the file: {found}")
    evenkeel("backup", "restore", copies[0][0], servers.folder / "none", code=1)
    # A server that is killed amid a backup.
    main.start()
    main.sql("use test; insert into c select seq + 100000, 0, repeat('x', 200000) from seq_1_to_300", "--max-allowed-packet=64M")
    killed = servers.folder / "killed"
    client = subprocess.Popen(main.client(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    client.stdin.write(f"set global evenkeel_backup_dir = '{killed}';\n")
    client.stdin.flush()
    client.stdin.close()
    wait_until(lambda: (killed / "pages").is_dir() and any((killed / "pages").iterdir()), 60, 0.005)
    complete = (killed / "COMPLETE").exists()
    main.kill()
    client.wait()
    if not complete and (killed / "COMPLETE").exists():
        evenkeel("backup", "verify", killed)
    elif not complete:
        evenkeel("backup", "verify", killed, code=1)
    main.start()
    if main.sql("check table test.c").endswith("OK") is False:
        raise Problem("the server did not recover")
    main.stop()
    return 0


if __name__ == "__main__":
    sys.exit(run("test_backup", test))
