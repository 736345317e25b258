#!/usr/bin/env python3
"""Random statements on tables of InnoDB and of EVENKEEL, in one private server: what a client sees must be the same
(differential.py). test_differential.py [SEED [STATEMENTS]]; EVENKEEL_DIFFERENTIAL_SECONDS (7200) is the limit.
"""
import os
import subprocess
import sys

from servers import ROOT, TESTS, Problem, run

SECONDS = int(os.environ.get("EVENKEEL_DIFFERENTIAL_SECONDS", "7200"))


def test(servers):
    seed, statements = (sys.argv[1:] + ["1", "3000"][len(sys.argv[1:]):])[:2]
    server = servers.server("main")
    server.start("--innodb-buffer-pool-size=64M")
    command = [sys.executable, "-B", TESTS / "differential.py", "--socket", server.socket, "--seed", seed,
               "--statements", statements]
    try:
        return subprocess.run(command, timeout=SECONDS, cwd=ROOT).returncode
    except subprocess.TimeoutExpired:
        raise Problem(f"not done after {SECONDS} s") from None


if __name__ == "__main__":
    sys.exit(run("differential", test))
