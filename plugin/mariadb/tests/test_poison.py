#!/usr/bin/env python3
"""Our own suite on a plugin in whose rows the columns that were not read hold nonsense (poison.cc): a server that
reads such a column, or an update that writes one back, fails a test. Then random statements beside InnoDB.

test_poison.py [STATEMENTS [TEST...]]; without tests the suite is run, EVENKEEL_SEED is the seed.
"""
import os
import subprocess
import sys

from servers import ROOT, TESTS


def main():
    statements, *tests = sys.argv[1:] or ["5000"]
    environment = dict(os.environ, EVENKEEL_POISON="1", EVENKEEL_PLUGIN_DIR=str(ROOT / "target/poison"))
    environment.setdefault("EVENKEEL_MTR_DIR", str(ROOT / "target/mtr-poison"))
    commands = [["bash", ROOT / "plugin/mariadb/build.sh"],
                ["bash", ROOT / "scripts/test-mtr.sh", *(tests or ["quick"])]]
    if statements != "0":
        seed = os.environ.get("EVENKEEL_SEED", "3")
        commands.append([sys.executable, "-B", TESTS / "test_differential.py", seed, statements])
    for command in commands:
        code = subprocess.run(command, env=environment).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
