#!/usr/bin/env python3
"""The SQL scripts beside this file on EVENKEEL and on InnoDB, in one private server: what they print must be the same;
keys of every collation; the page's names of InnoDB's settings against the server's (innodb_names.py).

EVENKEEL_SEED (1722) and EVENKEEL_PAIRS (500) are those of the pairs of values of each collation. Prints
"N passed, N failed".
"""
import difflib
import os
import re
import subprocess
import sys

import innodb_names
from servers import TESTS, run, seed_of

PAIRS = int(os.environ.get("EVENKEEL_PAIRS", "500"))
SECONDS = 900
# A script that ends early prints less.
LINES_LEAST = 20


class Test:
    def __init__(self, servers):
        self.server = servers.server("main")
        # The sizes that users have without settings.
        servers.options = ["--plugin-load-add=ha_evenkeel.so"]
        self.passed = self.failed = 0

    def outcome(self, is_right, what):
        if is_right:
            self.passed += 1
        else:
            self.failed += 1
            print(what, file=sys.stderr, flush=True)

    def printed(self, script, engine):
        """What a script prints on a fresh server, without what the engine's name and its length change."""
        text = f"create or replace database x; use x; set default_storage_engine={engine};\n" + script.read_text()
        self.server.start()
        command = self.server.client("--force", "--table", "--default-character-set=utf8mb4", database="test")
        try:
            done = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=SECONDS)
            said = done.stdout.decode("utf8", "replace")
        except subprocess.TimeoutExpired:
            said = "not to its end\n"
        self.server.stop()
        lines = [re.sub(r"at line [0-9]*", "", line, count=1) for line in said.split("\n")
                 if not re.fullmatch(r"\+-[-+]*", line)]
        return [re.sub(r" +\|", " |", line.replace("EVENKEEL", "InnoDB")) for line in lines]

    def scripts(self):
        for script in sorted(TESTS.glob("*.sql")):
            theirs, ours = [self.printed(script, engine) for engine in ("InnoDB", "EVENKEEL")]
            differ = "\n".join(difflib.unified_diff(theirs, ours, "InnoDB", "EVENKEEL", lineterm=""))
            self.outcome(len(theirs) > LINES_LEAST and not differ, f"{differ}\ndiffers: {script.name}")

    def collations(self, seed):
        """Keys of every collation that the server has (id 63 is binary) against its own comparison."""
        self.server.sql("create or replace function evenkeel_test_collations returns string soname 'ha_evenkeel.so'")
        has = self.server.sql("select count(distinct id) from "
                              "information_schema.collation_character_set_applicability where id <> 63")
        done = self.server.try_sql(f"select evenkeel_test_collations({seed}, {PAIRS})", "--raw", timeout=SECONDS)
        report = done.stdout + done.stderr
        wanted = rf"^{has} collations, [1-9][0-9]* pairs, 0 differ$"
        self.outcome(int(has) > 0 and re.search(wanted, report, re.M), f"collations, seed {seed}: {report[:4000]}")

    def names(self):
        wrong, counted = innodb_names.compare(self.server)
        is_right = not wrong and min(counted) > 50
        self.outcome(is_right, "docs/user/mariadb.md, Coming from InnoDB: " + "\n".join(wrong or map(str, counted)))


def all_parts(servers):
    seed = seed_of("sql scripts", drawn="1722")
    test = Test(servers)
    test.server.start()
    test.server.sql("create database if not exists test")
    test.server.stop()
    test.scripts()
    test.server.start()
    test.collations(seed)
    test.names()
    print(f"{test.passed} passed, {test.failed} failed")
    return test.failed > 0 or test.passed == 0


if __name__ == "__main__":
    sys.exit(run("sql scripts", all_parts))
