#!/usr/bin/env python3
"""A week of incremental backups of a server (evenkeel_backup_base), and what a restore of each gives.

A full backup, and five that each build on the one before. Four are taken beside writers, schema changes and copies of
tables. Two of these are plain: their end lies between transactions that were acknowledged and transactions that had
begun. Two are armed: while their end holds commits off, all rows are read, and the restored tables must have the same
rows. The last two are of a server at rest; the last one copies little. The test then refuses bases that do not fit: of another database, damaged, gone, and of the history
before a restore. EVENKEEL names the command (target/release/evenkeel, else target/debug/evenkeel).
"""
import shutil
import sys
import threading

from client import Client, Failed
from servers import Problem, run, wait_until
from test_backup import ROWS, WRITERS, Writer, change_schema, check, evenkeel, restore

# Tables whose definitions stay, with all their columns; `l` is loaded anew again and again.
TABLES = ("a", "b", "c", "l")
# More than the extents of one row, the catalog and the map of pages have; the database has over 30 MB.
LITTLE_BYTES = 16 << 20
STAGES = ("start", "flush", "block_ddl", "block_commit")


class Unhurried(Writer):
    """Most of the database stays as it is from day to day."""

    pause_s = 0.5


def rows_of(client):
    """All rows of all tables, as texts; of the long values their digests."""
    columns = {"c": "id, n, length(v), md5(v)"}
    return {table: client.run(f"select {columns.get(table, '*')} from test.{table} order by 1, 2") for table in TABLES}


def dirty_pages(server):
    return int(server.sql("select variable_value from information_schema.global_status where variable_name = "
                          "'evenkeel_dirty_pages'"))


def load(server, stop):
    """Copies and bulk loads: pages that the log does not hold."""
    round_of = 0
    while not stop.is_set():
        round_of += 1
        server.sql(f"use test; create table n like l; insert into n select seq, {round_of}, repeat('l', seq % 300) from "
                   "seq_1_to_4000; alter table n force, algorithm=copy; drop table l; rename table n to l")
        stop.wait(3)


class Week:
    def __init__(self, servers, main, writers):
        self.servers, self.main, self.writers, self.days = servers, main, writers, []

    def place(self, day):
        return self.servers.folder / "week" / day / "evenkeel"

    def base(self):
        base = self.place(self.days[-1][0]) if self.days else ""
        return f"set global evenkeel_backup_base = '{base}';"

    def size(self):
        return int(self.main.sql("select variable_value from information_schema.global_status where variable_name = "
                                 "'evenkeel_backup_bytes'"))

    def go_on(self):
        """Each writer commits five transactions more."""
        done = [w.done for w in self.writers]
        if not wait_until(lambda: all(w.problem or w.done > n + 5 for w, n in zip(self.writers, done)), 300):
            raise Problem("the writers do not get on")

    def note(self, day, bytes_before, least, rows=None):
        said = self.main.sql("select variable_value from information_schema.global_status where variable_name = "
                             "'evenkeel_backup_last'")
        wanted = f", changes since {self.place(self.days[-1][0])}" if self.days else ""
        if f"{day}/evenkeel: complete: " not in said or wanted not in said or bool(wanted) != (", changes since" in said):
            raise Problem(f"{day}: {said}")
        if self.main.sql("select @@global.evenkeel_backup_base is null") != "1":
            raise Problem(f"{day}: the base is still set")
        self.days.append((day, least, [w.begun for w in self.writers], rows))
        self.copied = self.size() - bytes_before
        print(f"{day}: {self.copied} bytes copied; {said.split('complete: ')[1]}", flush=True)

    def plain(self, day):
        self.go_on()
        least, before = [w.done for w in self.writers], self.size()
        self.main.sql(f"{self.base()} set global evenkeel_backup_dir = '{self.place(day)}'")
        self.note(day, before, least)

    def armed(self, day):
        self.go_on()
        least, before = [w.done for w in self.writers], self.size()
        self.main.sql(f"{self.base()} set global evenkeel_backup_armed_dir = '{self.place(day)}'")
        self.go_on()
        client = Client(self.main.socket)
        for stage in STAGES:
            client.run(f"backup stage {stage}")
        rows = rows_of(client)
        client.run("backup stage end")
        client.close()
        self.main.sql("set global evenkeel_backup_armed_dir = ''")
        self.note(day, before, least, rows)

    def check(self):
        for day, least, most, rows in self.days:
            other = restore(self.servers, self.main, self.place(day), f"restored-{day}")
            check(other, least, most)
            if rows is not None:
                client = Client(other.socket)
                found = rows_of(client)
                for table in TABLES:
                    if found[table] != rows[table]:
                        raise Problem(f"{day}: table {table} has {len(found[table])} rows, {len(rows[table])} before; "
                                      f"others: {[p for p in zip(found[table], rows[table]) if p[0] != p[1]][:2]}")
                client.close()
            other.sql("insert into test.a values (100, 1, 1, 'goes on')")
            how = "compared row by row" if rows is not None else "compared"
            print(f"{day}: writers at {least} to {most}, restored and {how}", flush=True)
            if day != self.days[-1][0]:
                other.stop()
        return other


def refused(server, base, to, *parts):
    """A backup onto this base fails with a text that has all parts, and `evenkeel_backup_last` has them too."""
    client = Client(server.socket)
    client.run(f"set global evenkeel_backup_base = '{base}'")
    try:
        client.run(f"set global evenkeel_backup_dir = '{to}'")
    except Failed as failed:
        said = str(failed)
    else:
        raise Problem(f"{base} was taken for a base")
    last = server.sql("select variable_value from information_schema.global_status where variable_name = "
                      "'evenkeel_backup_last'")
    for part in (*parts, str(base)):
        if part not in said or part not in last:
            raise Problem(f"{part} is not in: {said}; {last}")
    # A refused backup leaves nothing, and an earlier one that has its directory whole.
    if (to / "COMPLETE").exists() != (to == base):
        raise Problem(f"{to}: complete is not {to == base}")
    if to == base:
        evenkeel("backup", "verify", to)
    client.run("set global evenkeel_backup_base = ''")
    client.close()


def test(servers):
    main = servers.server("main")
    # With a small log pages are written beside the writers.
    main.start("--max-allowed-packet=64M", "--evenkeel-log-size=32M")
    main.sql("create database if not exists test; use test;"
             "create table test.a (w int, id int, n int, pad varchar(255), primary key (w, id), key (n, w)) engine=evenkeel;"
             "create table test.b (w int, id int, n int, primary key (w, id)) engine=evenkeel;"
             "create table test.c (id int primary key, n int, v longtext, key (n)) engine=evenkeel;"
             "create table test.l (id int primary key, n int, v varchar(300), key (n)) engine=evenkeel;"
             "create table test.still (id int primary key, v varchar(2000)) engine=evenkeel;"
             f"insert into test.a select w.seq, i.seq, 0, '' from seq_0_to_{WRITERS - 1} w, seq_1_to_{ROWS} i;"
             "insert into test.b select w, id, 0 from test.a;"
             # Most of a database does not change in a day.
             "insert into test.still select seq, repeat('s', 1900) from seq_1_to_15000")
    writers = [Unhurried(main, number) for number in range(WRITERS)]
    stop = threading.Event()
    changer = threading.Thread(target=change_schema, args=(main, stop), daemon=True)
    loader = threading.Thread(target=load, args=(main, stop), daemon=True)
    threads = (*writers, changer, loader)
    for thread in threads:
        thread.start()
    week = Week(servers, main, writers)
    for day, how in (("mon", week.plain), ("tue", week.plain), ("wed", week.armed), ("thu", week.armed)):
        how(day)
    for writer in writers:
        writer.stop = True
    stop.set()
    for thread in threads:
        thread.join()
    for writer in writers:
        if writer.problem:
            raise Problem(str(writer.problem))
    client = Client(main.socket)
    for day in ("fri", "sat"):
        # A page counts as changed since a base that may have it in an older state: all are written first.
        if not wait_until(lambda: dirty_pages(main) == 0, 120):
            raise Problem("a server at rest does not write its pages")
        before = week.size()
        main.sql(f"{week.base()} set global evenkeel_backup_dir = '{week.place(day)}'")
        week.note(day, before, [w.done for w in writers], rows_of(client))
        if day == "sat" and week.copied > LITTLE_BYTES:
            raise Problem(f"{week.copied} bytes were copied, and one row was changed")
        client.run("update test.still set v = 'changed' where id = 7")
    client.close()
    main.stop()
    # The server of the last restore goes on.
    again = week.check()
    folder = servers.folder
    refused(again, week.place("sat"), folder / "refused", "BackupBase", "restored from a backup")
    other = servers.server("other")
    other.start()
    other.sql("create database if not exists test; create table test.t (id int primary key) engine=evenkeel")
    refused(other, week.place("mon"), folder / "refused", "BackupBase", "another database")
    other.stop()
    own, damaged = folder / "own" / "evenkeel", folder / "damaged" / "evenkeel"
    again.sql(f"set global evenkeel_backup_dir = '{own}'")
    shutil.copytree(own, damaged)
    with open(damaged / "MANIFEST", "a") as manifest:
        manifest.write("damage\n")
    refused(again, damaged, folder / "refused", "BackupDamaged", "MANIFEST")
    refused(again, folder / "gone", folder / "refused", "BackupIncomplete")
    refused(again, own, own, "BackupBase", "same directory")
    again.sql(f"set global evenkeel_backup_base = '{own}'; set global evenkeel_backup_dir = '{folder / 'next' / 'evenkeel'}'")
    again.stop()
    # A chain with a hole.
    shutil.move(week.place("tue").parent, folder / "elsewhere")
    evenkeel("backup", "verify", week.place("sat"), code=1)
    evenkeel("backup", "restore", week.place("sat"), folder / "none", code=1)
    if (folder / "none").exists():
        raise Problem("a restore without a base has written something")
    evenkeel("backup", "verify", week.place("sat"), "--bases", folder)
    print("bases that do not fit are refused; a chain with a hole is named, and found elsewhere")
    return 0


if __name__ == "__main__":
    sys.exit(run("test_increments", test))
