#!/usr/bin/env python3
"""Scripts of several sessions (sessions/*.txt, sessions.py has their syntax) on EVENKEEL and on InnoDB, in one private
server: what they print must be the same, but where SCRIPT.evenkeel says what ours prints. Then connections that
others kill while they end (leaving.c). Prints "N passed, N failed". With arguments: those scripts only.
EVENKEEL_KEEP names a folder for what was printed.
"""
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys

from servers import TESTS, run

SECONDS = 900
LINES_LEAST = 20
CONNECTIONS = 60000


class Test:
    def __init__(self, servers):
        self.server, self.folder = servers.server("main"), servers.folder
        self.passed = self.failed = 0

    def outcome(self, is_right, what):
        if is_right:
            self.passed += 1
        else:
            self.failed += 1
            print(what, file=sys.stderr, flush=True)

    def printed(self, script, engine):
        self.server.sql("create or replace database x")
        out = self.folder / f"{engine}.out"
        command = [sys.executable, "-B", TESTS / "sessions.py", self.server.socket, engine, script]
        with open(out, "w") as file:
            try:
                code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=SECONDS).returncode
            except subprocess.TimeoutExpired:
                code = "the limit of time"
        if code:
            with open(out, "a") as file:
                print(f"ended with {code}", file=file)
        if os.environ.get("EVENKEEL_KEEP"):
            shutil.copy(out, os.environ["EVENKEEL_KEEP"])
        return out.read_text()

    def script(self, script):
        theirs, ours = [self.printed(script, engine) for engine in ("InnoDB", "EVENKEEL")]
        own = script.with_suffix(".evenkeel")
        wanted = own.read_text() if own.exists() else theirs
        # A script that ended early ends so on both engines.
        early = re.findall(r"^(?:ended with|Traceback).*|.* hangs.*", theirs + ours, re.M)
        differ = "\n".join(difflib.unified_diff(wanted.splitlines(), ours.splitlines(), "wanted", "EVENKEEL",
                                                lineterm=""))
        if early:
            self.outcome(False, f"{early}\nnot to its end: {script}")
        else:
            is_long = len(theirs.splitlines()) > LINES_LEAST
            self.outcome(is_long and wanted == ours, f"{differ}\ndiffers: {script}")

    def leaving(self):
        program = self.folder / "leaving"
        subprocess.run(["gcc", "-O1", "-Wall", "-I/usr/include/mariadb", "-o", program, TESTS / "leaving.c",
                        "-lmariadb", "-lpthread"], check=True)
        self.server.sql("create or replace database x; create table x.t (id int primary key) engine=evenkeel; "
                        "insert into x.t values (1)")
        code = subprocess.run([program, self.server.socket, "x.t", str(CONNECTIONS)]).returncode
        self.outcome(code == 0, "connections that are killed while they end: failed")


def all_scripts(servers):
    test, named = Test(servers), [pathlib.Path(name) for name in sys.argv[1:]]
    test.server.start()
    for script in named or sorted((TESTS / "sessions").glob("*.txt")):
        test.script(script)
    if not named:
        test.leaving()
    print(f"{test.passed} passed, {test.failed} failed")
    return test.failed > 0 or test.passed == 0


if __name__ == "__main__":
    sys.exit(run("sessions", all_scripts))
