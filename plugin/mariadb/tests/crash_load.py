"""What a server does when test_crash.py kills it: writers of transactions, sysbench, and ALTER TABLE in a loop."""
import re
import subprocess

from servers import Problem, beside

WRITERS = 4
TRANSACTIONS = 3000
ALTERATIONS = [
    "alter table sbtest1 add index extra (c, k), algorithm=inplace, lock=none",
    "alter table sbtest1 drop index extra, add column x int default 7",
    "alter table one add index by_kw (k, w), algorithm=inplace, lock=none",
    "alter table sbtest1 drop column x",
    "alter table one drop index by_kw",
    "alter table sbtest2 add unique index extra (c, id), algorithm=inplace, lock=none",
    "alter table sbtest2 drop index extra",
]
# Of a statement that a crash has left done or not, or that meets the locks of others.
GOES_ON = re.compile(r"ERROR (1060|1061|1091|1205|1213)")
# The same, and that the server is gone.
EXPECTED = re.compile(r"ERROR (10[69]1|1060|1205|1213|20..)")


def writers_statements(writer, number):
    """Transactions of two rows of the same number, one in each table, acknowledged after COMMIT returned. Some are
    undone, some change older rows."""
    base = number * 1000000 + writer * 100000
    for n in range(1, TRANSACTIONS + 1):
        row = base + n
        yield f"begin; insert into one values ({row}, {writer}, {n});"
        if n % 5 == 0:
            for table in ("one", "two"):
                yield f"update {table} set k=k+1000 where id={row - 3};"
        yield f"insert into two values ({row}, {writer}, {n});"
        yield "rollback;" if n % 7 == 0 else f"commit; select {row} as '';"


def write(server, acks, writer, number):
    """One writer until the server is gone: the client reads each statement's answer back, so that the file of
    acknowledged commits says what the server has said."""
    with open(acks / str(writer), "a") as file:
        client = subprocess.Popen(server.client("--unbuffered", "--skip-column-names", "--silent", database="test"),
                                  stdin=subprocess.PIPE, stdout=file, stderr=subprocess.DEVNULL, text=True)
        try:
            client.communicate("\n".join(writers_statements(writer, number)))
        except BrokenPipeError:
            client.wait()


def sysbench(server, out, *arguments):
    """The process of sysbench."""
    command = ["sysbench", "oltp_write_only", "--db-driver=mysql", f"--mysql-socket={server.socket}",
               "--mysql-user=root", "--mysql-db=test", "--mysql_storage_engine=evenkeel", "--tables=2",
               "--table-size=5000", "--threads=2", "--rand-type=uniform", "--mysql-ignore-errors=1020,1205,1213,1412",
               *arguments]
    with open(out, "w") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)


class Alterer:
    """ALTER TABLE of each kind in a loop. `state` says whether one is under way, or an ADD INDEX (which may wait
    still)."""

    def __init__(self, server):
        self.server, self.state, self.error = server, "idle", ""

    def run(self):
        for n in range(1000):
            statement = ALTERATIONS[n % len(ALTERATIONS)]
            is_build = "add index" in statement or "add unique" in statement
            self.state = "building" if is_build else "under way"
            done = self.server.try_sql(statement, database="test")
            self.error = done.stderr
            if done.returncode and not GOES_ON.search(done.stderr):
                return
            self.state = "idle"


class Load:
    """All of it, beside each other."""

    def __init__(self, server, acks, number):
        self.alterer = Alterer(server)
        self.out = server.folder / "sysbench"
        self.working = [beside(write, server, acks, writer, number) for writer in range(1, WRITERS + 1)]
        self.sysbench = sysbench(server, self.out, "--time=900", "--report-interval=1", "run")
        self.working.append(beside(self.alterer.run))

    def ends(self):
        """Waits for all of it, when the server is gone."""
        self.sysbench.wait()
        for one in self.working:
            one.result(timeout=600)
        # What ended the loop of ALTERs is the kill.
        if "ERROR" in self.alterer.error and not EXPECTED.search(self.alterer.error):
            raise Problem(f"ALTER TABLE: {self.alterer.error}")
