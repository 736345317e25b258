#!/usr/bin/env python3
"""What users see when the disk is full, a sync fails or a page is damaged, in one private server whose system calls
fail on demand (failing.c). test_failures.py [PART...]: only the functions of these names, each of which uses what
those before it have made. Prints "N passed, N failed".
"""
import hashlib
import re
import shutil
import subprocess
import sys
import threading
import time

import damage
from client_process import Connection, Gone
from servers import Problem, compile_failing, run, wait_until

OPTIONS = ["--evenkeel-log-size=32M", "--evenkeel-memory-size=16M"]
# A whole run of the server.
SECONDS = 900
ERRNO = {"ENOSPC": 28, "EDQUOT": 122, "EFBIG": 27, "EMFILE": 24, "ENFILE": 23, "ENOMEM": 12, "EAGAIN": 11}
OPENS = ("EMFILE", "ENFILE", "ENOMEM", "EAGAIN")
WRITES = ("ENOSPC", "EDQUOT", "EFBIG", "ENOMEM")
FINAL = [("write", 5), ("write", 30), ("sync", 5), ("sync", 12), ("sync", 30), ("create", 5), ("create", 30)]
UNUSABLE = "its tables cannot be used"
STOPPED = "show global status like 'Evenkeel_writes_stopped'"


def count(pattern, text):
    """Lines in which it is."""
    return sum(bool(re.search(pattern, line)) for line in text.splitlines())


def lines_with(pattern, text):
    return "\n".join(line for line in text.splitlines() if re.search(pattern, line))


class Test:
    def __init__(self, servers):
        self.main, self.folder = servers.server("main"), servers.folder
        self.engine = self.main.data / "#evenkeel"
        self.fail_folder = self.folder / "fail"
        self.fail_folder.mkdir()
        self.how = {"preload": compile_failing(self.folder / "failing.so"),
                    "environment": {"EVENKEEL_FAIL_DIR": str(self.fail_folder)}}
        self.passed = self.failed = 0
        self.main.start(*OPTIONS, **self.how)
        self.main.sql("create database if not exists test")
        self.main.stop()

    def run(self, *items, options=()):
        """What a client of a fresh server is told by each of the items: statements, or a function that is called
        between them and may return lines of its own."""
        self.main.start(*OPTIONS, *options, **self.how)
        limit = threading.Timer(SECONDS, self.main.process.kill)
        limit.start()
        told = []
        try:
            with Connection(self.main.socket) as client:
                for item in items:
                    told.append("\n".join((item() or []) if callable(item) else client.run(item)))
        except Gone:
            print(f"the server is gone at: {items[len(told)]}", file=sys.stderr)
            told += [""] * (len(items) - len(told))
        finally:
            limit.cancel()
        self.main.stop()
        return told

    def expect(self, what, pattern, told):
        text = told if isinstance(told, str) else "\n".join(told)
        if re.search(pattern, text, re.M):
            self.passed += 1
        else:
            self.failed += 1
            print(f"not seen: {what} ({pattern}) in:\n{text}", file=sys.stderr, flush=True)

    def fails(self, how):
        """From here on calls fail."""
        return lambda: (self.fail_folder / how).touch()

    def works(self, how):
        return lambda: (self.fail_folder / how).unlink()

    def does(self, statements):
        """Whether another client can."""
        try:
            return self.main.try_sql(statements, database="test", timeout=90).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def log(self):
        return lines_with("EVENKEEL", self.main.log())

    def clear_log(self):
        self.main.error_log.write_text("")


def full_disk(test):
    """A full disk: changes fail, reads go on; soon after there is room again changes go on."""
    def again():
        wait_until(lambda: test.does("replace into t values (500, 'again'); replace into u values (1)"), 120)
    out = test.run("create table t (id int primary key, b longblob) engine=evenkeel",
                   "create table u (id int primary key) engine=evenkeel",
                   "insert into t values (1, repeat('a', 100))", test.fails("full"),
                   "insert into t select seq, repeat('b', 1000000) from seq_2_to_200",
                   "select 'rows', count(*) from t", test.works("full"), again,
                   "select 'then', count(*) from t", "check table t")
    test.expect("error of a full disk", "ERROR (1114|1021)", out)
    test.expect("reads on a full disk", "rows\t1$", out)
    test.expect("changes with room again", "then\t2$", out)
    test.expect("a sound table", "check\tstatus\tOK", out)


def failed_sync(test):
    """A failed sync: changes stop with an error, reads go on, the next start recovers. COMMIT of what was changed
    before says so too."""
    out = test.run("insert into u values (2)", "create table w (id int primary key) engine=evenkeel", "begin",
                   "insert into w values (1)", test.fails("sync"),
                   lambda: [test.main.said("insert into u values (30)", database="test")], "commit",
                   "insert into u values (3)", "insert into t values (501, 'no')", test.works("sync"),
                   "insert into t values (502, 'no')", "select 'rows', count(*) from t", STOPPED)
    test.expect("errors of a failed sync", "ERROR .*", out)
    test.expect("COMMIT with changes stopped", "ERROR 1036", out[6])
    test.expect("changes stay stopped", "^ERROR 1036|^ERROR .* read.only", out[7:])
    test.expect("reads after a failed sync", "rows\t2$", out)
    test.expect("the status variable", "Evenkeel_writes_stopped\t1", out)
    test.expect("the reason in the log", "(?i)sync", test.log())
    out = test.run("select 'acknowledged', count(*) from u where id <= 2", "insert into t values (503, 'yes')",
                   "select 'rows', count(*) from t", "check table t, u")
    test.expect("what was acknowledged", "acknowledged\t2$", out)
    test.expect("changes after the restart", "rows\t3$", out)


def provoke(test):
    """Changes until the call that is to fail has come: a flush makes files when a memtable is full, and opens them to
    read; a table that grows takes blocks. Some tens of MB lie between two new files."""
    for n in range(1, 241):
        test.does(f"replace into e select seq, concat(seq * 7919 % 4001, repeat(char(40 + {n % 80}), 600)) "
                  f"from seq_1_to_600; insert into g (b) select repeat(char(40 + {n % 80}), 600) from seq_1_to_600")
        if is_struck(test):
            return


def is_struck(test):
    struck = test.fail_folder / "struck"
    return struck.exists() and struck.stat().st_size > 0


def meet(test, call, number, times):
    """So many calls fail with this error number while a client changes rows; tells whether one was met."""
    (test.fail_folder / "struck").unlink(missing_ok=True)
    (test.fail_folder / "errno").write_text(f"{call} {number} {times}\n")
    provoke(test)
    (test.fail_folder / "errno").unlink()
    return [f"struck {call} {number}"] if is_struck(test) else []


def waited_out(test, call, number):
    told = meet(test, call, number, 2)
    wait_until(lambda: test.does("replace into e select seq, concat(seq * 7919 % 4001, repeat('x', 600)) "
                                 "from seq_1_to_600"), 120)
    return told


def stops_writes(test, call, number):
    told = meet(test, call, number, 1)
    wait_until(lambda: "1" in test.main.said(STOPPED).split(), 60)
    return told


def cells():
    """Calls and the error numbers that are waited out."""
    for name in ERRNO:
        yield "create", name
        if name in OPENS:
            yield "open", name
        if name in WRITES:
            yield "write", name
            yield "reserve", name


def error_numbers(test):
    """By error number (crates/io/src/errno.rs): what the system is short of is waited out, whichever call says so; what
    leaves files unknown stops writes, and the next start has all that was acknowledged."""
    items = ["create table e (id int primary key, b varbinary(700), key (b)) engine=evenkeel",
             "create table g (id int auto_increment primary key, b varbinary(700)) engine=evenkeel"]
    for call, name in cells():
        items.append(lambda call=call, name=name: waited_out(test, call, ERRNO[name]))
        items.append(f"select '{call} {name}', count(*), variable_value from e, information_schema.global_status "
                     "where variable_name = 'Evenkeel_writes_stopped'")
    out = test.run(*items, "check table e, g")
    for call, name in cells():
        test.expect(f"{call} {name} was met", f"^struck {call} {ERRNO[name]}$", out)
        test.expect(f"{call} {name} is waited out", f"^{call} {name}\t600\t0$", out)
    test.expect("sound tables after all of them", "^2$", str(count("[eg]\tcheck\tstatus\tOK", out[-1])))
    for call, number in FINAL:
        cell = f"{call} {number}"
        out = test.run("replace into e values (0, 'kept')", lambda: stops_writes(test, call, number),
                       "insert into e values (-1, 'no')", "select 'rows', count(*) > 0 from e", STOPPED)
        test.expect(f"{cell} stops changes", "Evenkeel_writes_stopped\t1", out)
        test.expect(f"{cell}: reads go on", "^rows\t1$", out)
        out = test.run("select 'kept', b from e where id = 0", "replace into e values (-2, 'yes')",
                       "delete from e where id < 0", "check table e")
        test.expect(f"{cell}: what was acknowledged", "^kept\tkept$", out)
        test.expect(f"{cell}: sound after the restart", "e\tcheck\tstatus\tOK", out)


def no_thread(test):
    """No thread can be begun: the ALTER of more than a few rows says so, the server goes on."""
    out = test.run("create table h (id int primary key, a int) engine=evenkeel",
                   "insert into h select seq, seq from seq_1_to_3000", test.fails("thread"),
                   "alter table h add index ia (a), algorithm=nocopy", test.works("thread"),
                   "alter table h add index ib (a), algorithm=nocopy",
                   "select 'went on', id from h force index (ib) where a = 1")
    test.expect("the error of a build without a thread", "ERROR .*thread", out)
    test.expect("the server after it", "went on\t1$", out)


def damaged_page(test):
    """A damaged page: its table is crashed, with file and page in the log; others go on."""
    test.run("create table d (id int primary key, c varbinary(1000)) engine=evenkeel",
             "insert into d select seq, concat('damage-me-', seq, repeat('x', 500)) from seq_1_to_3000")
    # Once more: the log of the life that wrote the rows would mend the page.
    test.run("select count(*) from d")
    damage.rows(test.engine, b"damage-me-1500x")
    test.clear_log()
    out = test.run("select 'sum', sum(length(c)) from d", "insert into u values (10)",
                   "select 'others', count(*) from u", "select 'point', id from d where id = 1",
                   "select 'damaged', left(c, 20) from d where id = 1500", "check table d", "check table u")
    test.expect("the error of a damaged page", "ERROR 1034", out)
    # NOT NULL in place reads every row: it fails, nothing of it stays, and nobody's NULL is refused.
    altered = test.run("alter table d modify c varbinary(1000) not null, algorithm=nocopy, lock=none",
                       "select 'nullable', is_nullable from information_schema.columns "
                       "where table_name = 'd' and column_name = 'c'", "insert into d values (4000, null)",
                       "select 'with NULL', count(*) from d where id = 4000 and c is null")
    test.expect("the error of NOT NULL in place", "ERROR 1034", altered)
    test.expect("the column after it", "nullable\tYES$", altered)
    test.expect("a NULL after it", "with NULL\t1$", altered)
    test.expect("other tables", "others\t[34]$", out)
    test.expect("rows on other pages", "point\t1$", out)
    test.expect("CHECK TABLE of it", "d\tcheck\t(error|Warning)", out)
    test.expect("CHECK TABLE of another", "u\tcheck\tstatus\tOK", out)
    test.expect("file and page in the log", "EVENKEEL.*page", test.log())


def sums(folder):
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*")
            if path.is_file() and "lock" not in path.name}


def rows_of_u(test):
    """The line that says how many rows `u` has."""
    return lines_with("^u has\t", "\n".join(test.run("select 'u has', count(*) from u")))


def damaged_database(test):
    """A damaged superblock, a damaged page of the catalog, a missing file of pages, one that cannot be opened, and
    damaged log segments: the server starts, says what is wrong and what to do, tables report an error, others work, and
    nothing is written. With the file brought back all is as before."""
    test.run("create table if not exists i (id int primary key) engine=innodb")
    before = rows_of_u(test)
    if not before:
        raise Problem("table u cannot be read")
    for what in ("superblock", "catalog", "missing", "unreadable", "log"):
        kept = test.folder / "kept"
        shutil.copytree(test.engine, kept, symlinks=True)
        damage.database(test.engine, what)
        damaged = sums(test.engine)
        test.clear_log()
        out = test.run("select 'read', count(*) from u", "insert into u values (77)",
                       "create table v (id int primary key) engine=evenkeel", "drop table u",
                       "drop table if exists nosuch; show warnings", "alter table u add column x int",
                       "start transaction with consistent snapshot", "insert into i values (1)", "commit",
                       "delete from i", "show engine evenkeel status",
                       "select 'jobs', count(*) from information_schema.evenkeel_jobs", "flush logs",
                       "select 'others', count(*) from i")
        test.expect(f"{what}: the error of a read", f"ERROR .* EVENKEEL: {UNUSABLE}", out)
        test.expect(f"{what}: each use is an error", "^5$", str(count(UNUSABLE, "\n".join(out))))
        test.expect(f"{what}: a table of no engine", "^Note\t1051\t", out)
        test.expect(f"{what}: other engines", "others\t0$", out)
        test.expect(f"{what}: the file in the log", "EVENKEEL: open: .*(evenkeel.super|pages/|wal/)", test.log())
        test.expect(f"{what}: the next step in the log", "keep a copy of that directory", test.log())
        test.expect(f"{what}: nothing is written", "^same$", "same" if sums(test.engine) == damaged else "differs")
        shutil.rmtree(test.engine)
        kept.rename(test.engine)
        test.expect(f"{what}: all is there again", f"^{before}$", rows_of_u(test))
    damaged_slot(test, before)


def damaged_slot(test, before):
    """One slot of the superblock is damaged: the other one counts, and the log says so; the start writes it anew."""
    damage.slot(test.engine)
    test.clear_log()
    out = test.run("select 'u has', count(*) from u", "insert into u values (78)", "delete from u where id = 78")
    test.expect("rows with a damaged slot", f"^{before}$", out[0])
    test.expect("the slot in the log", "EVENKEEL: evenkeel.super: slot 0 is damaged", test.main.log())
    test.clear_log()
    test.run("select 1")
    test.expect("the slot was written anew", "^0$", str(count("evenkeel.super: slot", test.main.log())))


def settled_runs(test):
    """The run files, once the background has no more to flush or to compact in the life of a server."""
    runs = lambda: set((test.engine / "runs").iterdir())
    before, now = None, runs()
    while now != before:
        test.run("select 1")
        before, now = now, runs()
    return now


def damaged_index(test):
    """A run file that lost its footer: its index is damaged, with its names, its file and the next step, the table and
    its other index go on, and dropping it and adding it again makes all whole."""
    test.run("create table x (id int primary key, a int, b int, index ia (a)) engine=evenkeel",
             "insert into x select seq, seq, seq from seq_1_to_2000")
    before = settled_runs(test)
    test.run("alter table x add unique index ub (b), algorithm=nocopy")
    new = sorted(set((test.engine / "runs").iterdir()) - before)
    for file in new:
        damage.footer(file)
    test.expect("a file of the new index", "^1$", str(len(new)))
    test.clear_log()
    out = test.run("select 'damaged', id from x force index (ub) where b = 7", "insert into x values (9001, 1, 9001)",
                   "update x set a = -1 where id = 5", "delete from x where id = 6",
                   "select 'table', count(*) from x force index (primary)",
                   "select 'other', id from x force index (ia) where a = -1", "check table x",
                   "alter table x drop index ub, algorithm=nocopy", "insert into x values (9001, 1, 9001)",
                   "alter table x add unique index ub (b), algorithm=nocopy",
                   "select 'whole', id from x force index (ub) where b = 7", "check table x")
    test.expect("the error of a damaged index", "ERROR 1034|ERROR .*damaged", out[0])
    test.expect("a unique key is not guessed at", "ERROR 1034|ERROR .*damaged", out[1])
    test.expect("the table of a damaged index", "table\t1999$", out)
    test.expect("its other index", "other\t5$", out)
    test.expect("CHECK TABLE names the index", "x\tcheck\t(error|Warning).*ub.*runs/", out)
    test.expect("the index made again", "whole\t7$", out)
    test.expect("sound again", "x\tcheck\tstatus\tOK", out[-1])
    test.expect("its names in the log", "EVENKEEL.*table=test/x, index=ub, file=runs/.*REPAIR TABLE", test.log())
    test.expect("its space", "^gone$", "gone" if new and not new[-1].exists() else "there")


def wide(name):
    columns = ", ".join(f"c{i} int" for i in range(1, 1000))
    return f"create table {name} (id int primary key, {columns}, key k (c999)) engine=evenkeel"


def wide_rows(test):
    """Rows that no page takes are refused when the table is made; larger pages take a thousand INT. In another data
    directory: pages have the size with which the database was made."""
    test.expect("a table of rows that fit no page", "ERROR .*too long.*limit=1982", test.run(wide("narrow")))
    large = f"--evenkeel-data-dir={test.folder}/large"
    out = test.run(wide("broad"), "insert into broad (id, c1, c500, c999) select seq, -seq, seq, seq % 7 "
                   "from seq_1_to_500", "update broad set c500 = null where id % 3 = 0",
                   "update broad set c999 = 8 where id = 11",
                   "alter table broad add column more int default 5, add index k5 (c500), algorithm=nocopy",
                   "select 'wide', sum(c1), count(c500), sum(more) from broad",
                   "select 'by index', id from broad force index (k) where c999 = 8",
                   options=[large, "--evenkeel-page-size=16384"])
    test.expect("rows of 1,000 columns", "wide\t-125250\t334\t2500$", out)
    test.expect("their index", "by index\t11$", out)
    out = test.run("select 'wide', sum(c1) from broad", "check table broad", options=[large])
    test.expect("pages of the size they have", "wide\t-125250$", out)
    test.expect("a sound wide table", "broad\tcheck\tstatus\tOK", out)
    # A wrong setting is no damage: the engine is not there, and nobody is sent for a backup.
    for size in (8192, 12288):
        test.clear_log()
        out = test.run("select 1 from broad", options=[large, f"--evenkeel-page-size={size}"])
        test.expect(f"page size {size}", "EVENKEEL: open: .*page.size", test.main.log())
        test.expect(f"no table with page size {size}", "ERROR 1(286|932)", out)
        test.expect("no word of damage", "^0$", str(count("the last backup", test.main.log())))


def all_parts(servers):
    test = Test(servers)
    for part in (full_disk, failed_sync, error_numbers, no_thread, damaged_page, damaged_database, damaged_index,
                 wide_rows):
        if sys.argv[1:] and part.__name__ not in sys.argv[1:]:
            continue
        began = time.monotonic()
        part(test)
        print(f"{part.__name__}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{test.passed} passed, {test.failed} failed")
    return test.failed > 0 or test.passed == 0


if __name__ == "__main__":
    sys.exit(run("failures", all_parts))
