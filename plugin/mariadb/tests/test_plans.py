#!/usr/bin/env python3
"""The same queries and changes under many plans, on tables of InnoDB and of EVENKEEL in one private server: what comes
of them must be the same (differential_plans.py).

test_plans.py [--seed N] [--rounds N] [--variants N], or [--replay FILE] of a failure.
EVENKEEL_DIFFERENTIAL_SECONDS (7200) is the limit.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from servers import ROOT, TESTS, Problem, run

SECONDS = int(os.environ.get("EVENKEEL_DIFFERENTIAL_SECONDS", "7200"))
MEMORY = pathlib.Path("/dev/shm")


def test(servers):
    server = servers.server("main")
    server.start("--innodb-buffer-pool-size=64M")
    command = [sys.executable, "-B", TESTS / "differential_plans.py", "--socket", server.socket, *sys.argv[1:]]
    try:
        return subprocess.run(command, timeout=SECONDS, cwd=ROOT).returncode
    except subprocess.TimeoutExpired:
        raise Problem(f"not done after {SECONDS} s") from None


if __name__ == "__main__":
    # Nothing here is to outlive the server, and thousands of views and functions are made: in memory where there is
    # room.
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2_000_000_000:
        tempfile.tempdir = str(MEMORY)
    sys.exit(run("plans", test))
