#!/usr/bin/env python3
"""Short statements through SQL counted in instructions: ours and InnoDB's in one server under callgrind.

scripts/reads_counted.py [--events N] [--rows N] [--out FOLDER] [--busy N] [CASE...]: starts a private server with the
plugin of target/plugin (EVENKEEL_PLUGIN_DIR) under valgrind, fills one table for each engine with sysbench, and runs
each case of reads_counted.lua on both. A figure is the instructions of the server in one statement, from the moment
at which its packet is there to the end of the answer: work of other threads does not count, nor does the client's.
The ratio is InnoDB's figure divided by ours: above 1 we need fewer. --out keeps callgrind's files, for
callgrind_annotate --inclusive=yes FILE. --busy N changes N rows before each case, so that memtables are not empty.
The figures do not depend on the load of the machine.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
AS_ROOT = ["--user=root"] if os.getuid() == 0 else []
ENGINES = ["evenkeel", "innodb"]
CASES = ["point", "simple", "sum", "order", "distinct", "keys", "rows", "update", "update_c", "alone", "child"]
# What a dispatched command does: the function of the server that runs one packet.
COUNTED = "*dispatch_command*"


def run(command, **how):
    done = subprocess.run(command, capture_output=True, text=True, **how)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Counted:
    """The server and its folder."""

    def __init__(self, folder, given):
        self.folder, self.given, self.process = folder, given, None
        self.socket = folder / "socket"

    def start(self):
        data, plugins = self.folder / "data", self.folder / "plugins"
        run(["mariadb-install-db", "--no-defaults", *AS_ROOT, f"--datadir={data}", "--skip-test-db",
             "--auth-root-authentication-method=normal"])
        plugins.mkdir()
        for library in pathlib.Path("/usr/lib/mysql/plugin").glob("*.so"):
            (plugins / library.name).symlink_to(library)
        ours = pathlib.Path(os.environ.get("EVENKEEL_PLUGIN_DIR") or ROOT / "target/plugin") / "ha_evenkeel.so"
        (plugins / ours.name).unlink(missing_ok=True)
        (plugins / ours.name).symlink_to(ours.resolve())
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={COUNTED}",
                   f"--callgrind-out-file={self.folder}/counted", "mariadbd", "--no-defaults", *AS_ROOT,
                   f"--datadir={data}", f"--socket={self.socket}", "--skip-networking", f"--plugin-dir={plugins}",
                   "--plugin-load-add=ha_evenkeel.so", "--ignore-db-dirs=#evenkeel", f"--pid-file={self.folder}/pid",
                   f"--log-error={self.folder}/error.log", f"--tmpdir={self.folder}", "--evenkeel-memory-size=512M",
                   "--innodb-buffer-pool-size=512M", "--innodb-flush-log-at-trx-commit=0",
                   "--evenkeel-flush-at-commit=0", "--thread-stack=512K", "--innodb-use-native-aio=0",
                   "--innodb-buffer-pool-size-max=512M"]
        with open(self.folder / "out", "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        for _ in range(3000):
            if self.sql("select 1", may_fail=True) == "1":
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit("the server did not start: " + (self.folder / "out").read_text()[-2000:])

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def sql(self, statement, may_fail=False):
        command = ["mariadb", "--no-defaults", f"--socket={self.socket}", "-uroot", "-BN", "-e", statement]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode and not may_fail:
            sys.exit(f"{statement}: {done.stderr}")
        return done.stdout.strip()

    def sysbench(self, test, engine, *rest):
        return run(["sysbench", test, "--db-driver=mysql", f"--mysql-socket={self.socket}", "--mysql-user=root",
                    f"--mysql-db={engine}", f"--mysql-storage-engine={engine}", f"--table-size={self.given.rows}",
                    "--threads=1", "--time=0", "--rand-type=uniform", "--rand-seed=7", *rest])

    def control(self, *what):
        run(["callgrind_control", *what, str(self.process.pid)])

    def fill(self):
        for engine in ENGINES:
            self.sql(f"create database {engine}")
            self.sysbench("/usr/share/sysbench/oltp_read_only.lua", engine, "prepare")
            self.sql(f"analyze table {engine}.sbtest1")
            columns = "id int auto_increment primary key, parent int not null, key (parent)"
            self.sql(f"create table {engine}.alone ({columns}) engine={engine}; create table {engine}.child ({columns}, "
                     f"foreign key (parent) references sbtest1 (id)) engine={engine}")
        # Background work that follows a load ends.
        time.sleep(20)

    def events(self, case, engine, number):
        self.sysbench(str(ROOT / "scripts/reads_counted.lua"), engine, f"--case={case}", f"--events={number}", "run")

    def count(self, case, engine):
        """Instructions of a statement."""
        if self.given.busy:
            self.events("update", engine, self.given.busy)
        self.events(case, engine, 30)
        self.control("-z")
        self.events(case, engine, self.given.events)
        before = set(self.folder.glob("counted*"))
        self.control("-d")
        made = sorted(set(self.folder.glob("counted*")) - before)
        total = 0
        for file in made:
            total += sum(int(n) for n in re.findall(r"^(?:totals|summary): (\d+)", file.read_text(), re.M)[-1:])
            if self.given.out:
                shutil.copy(file, pathlib.Path(self.given.out) / f"{case}-{engine}")
        return total / self.given.events


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=300)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--out")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=" ".join(CASES))
    given = parser.parse_args()
    if wrong := set(given.cases) - set(CASES):
        parser.error(f"no such case: {wrong}")
    if given.out:
        pathlib.Path(given.out).mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reads-counted"))
    server = Counted(folder, given)
    try:
        server.start()
        server.fill()
        print(f"{given.rows} rows, {given.events} statements, instructions of a statement: ours, InnoDB's, ratio")
        for case in given.cases or CASES:
            ours, theirs = (server.count(case, engine) for engine in ENGINES)
            print(f"{case:10} {ours:10.0f} {theirs:10.0f}  x {theirs / ours:.3f}", flush=True)
    finally:
        server.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
