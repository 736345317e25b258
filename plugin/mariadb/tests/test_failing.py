#!/usr/bin/env python3
"""The fault library counts each step of a DDL statement, whether a file is named from the root, from the server's
directory with ./ or without, and no step of other files.

usage: test_failing.py LIBRARY
"""
import os
import subprocess
import sys
import tempfile

STEPS = """
import os
os.rename("#evenkeel/runs/1", "#evenkeel/runs/2")
os.rename("./#evenkeel/runs/2", os.getcwd() + "/#evenkeel/runs/3")
os.rename("t.new", "t.frm")
os.rename("./test/p.new", "./test/p.par")
fd = os.open("#evenkeel/runs/3", os.O_RDWR)
os.fsync(fd)
os.unlink("ddl_recovery.log")
os.unlink("#evenkeel/runs/3")
os.rename("other", "not#evenkeel/other")
os.unlink("old_ddl_recovery.log")
"""
WANTED = ["1 rename #evenkeel/runs/2", "2 rename {}/#evenkeel/runs/3", "3 rename t.frm", "4 rename ./test/p.par",
          "5 sync {}/#evenkeel/runs/3", "6 remove ddl_recovery.log", "7 remove #evenkeel/runs/3"]


def counted(library):
    """Steps that the library counts, and those that it has to count."""
    with tempfile.TemporaryDirectory() as place:
        place = os.path.realpath(place)
        data, control = place + "/data", place + "/control"
        for folder in (data + "/#evenkeel/runs", data + "/test", data + "/not#evenkeel", control):
            os.makedirs(folder)
        for name in ("#evenkeel/runs/1", "t.new", "test/p.new", "ddl_recovery.log", "other", "old_ddl_recovery.log"):
            open(f"{data}/{name}", "w").close()
        with open(control + "/crash", "w") as armed:
            armed.write("0")
        environment = dict(os.environ, LD_PRELOAD=library, EVENKEEL_FAIL_DIR=control)
        subprocess.run([sys.executable, "-c", STEPS], cwd=data, env=environment, check=True)
        with open(control + "/steps") as found:
            return found.read().splitlines(), [line.format(data) for line in WANTED]


def main():
    steps, wanted = counted(os.path.abspath(sys.argv[1]))
    if steps != wanted:
        print("steps counted:", *steps, "steps wanted:", *wanted, sep="\n")
    return steps != wanted


if __name__ == "__main__":
    sys.exit(main())
