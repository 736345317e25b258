"""ENGINE=EVENKEEL beside InnoDB and MyRocks in the same run: `make compare`, or
`python3 scripts/compare [--scale N] [--seconds S] [--rounds R] [--only memory,ddl] [--out DIR]`;
`--only long [--long-seconds S]` and `--only open [--open-seconds S]`.

Prints a table with the bars of `benchmarks.md` section 5, writes DIR/compare.json and
DIR/compare.html. Exit codes: 0 done (bars missed or not), 1 a run failed, 2 wrong usage, 3 something
is missing on this machine."""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report  # noqa: E402
from sections import LENGTHY, SECTIONS  # noqa: E402
from server import COMMON, options_of, rocksdb_folder  # noqa: E402


class Plan:
    """How large and how long. `scale` 1 has the sizes of the bars."""

    def __init__(self, flags):
        self.long, self.open = flags.long_seconds, flags.open_seconds
        folder, self.without = rocksdb_folder()
        self.engines = ["InnoDB", *(["ROCKSDB"] if folder else []), "EVENKEEL"]
        self.folders = {"ROCKSDB": folder}
        # Figures that a later section wants of an earlier one.
        self.found = {}
        self.seconds, self.rounds, self.scale = flags.seconds, flags.rounds, flags.scale

    def rows(self, full):
        return max(int(full * self.scale), 1000)

    def bytes(self, full):
        return max(int(full * self.scale), 64 << 20)


def main():
    flags = argparse.ArgumentParser(prog="compare", description=__doc__)
    flags.add_argument("--scale", type=float, default=0.2, help="1: the sizes of the bars")
    flags.add_argument("--seconds", type=int, default=10, help="length of each run")
    flags.add_argument("--rounds", type=int, default=3, help="rounds in which the engines take turns")
    flags.add_argument("--only", default=",".join(s for s in SECTIONS if s not in LENGTHY),
                       help="sections, of " + ", ".join(SECTIONS) + "; long and open take hours")
    flags.add_argument("--long-seconds", type=int, default=1800, help="length of a run of long")
    flags.add_argument("--open-seconds", type=int, default=600, help="the same of open")
    flags.add_argument("--out", type=Path, default=Path("out"))
    flags = flags.parse_args()
    names = flags.only.split(",")
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        print(f"--only: no section {unknown[0]}: {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    for tool in ("sysbench", "mariadbd", "mariadb-install-db"):
        if not shutil.which(tool):
            print(f"{tool} is missing: bash scripts/deps.sh servers", file=sys.stderr)
            return 3
    # An end from outside ends the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    flags.out.mkdir(parents=True, exist_ok=True)
    plan, rows, begun = Plan(flags), [], time.monotonic()
    seen = lambda line: print(f"{time.monotonic() - begun:6.0f} s  {line}", flush=True)
    if plan.without:
        seen(f"MyRocks takes no part: {plan.without}")
    for name in names:
        base = tempfile.mkdtemp(prefix="compare-", dir=os.environ.get("EVENKEEL_COMPARE_DIR"))
        try:
            rows += SECTIONS[name](base, plan, seen)
        finally:
            shutil.rmtree(base, ignore_errors=True)
    options = {engine: [*COMMON, *options_of(engine, "CACHE")] for engine in plan.engines}
    result = {"format": 2, "cores": os.cpu_count(), "scale": flags.scale, "seconds": flags.seconds,
              "rounds": flags.rounds, "long_seconds": flags.long_seconds,
              "open_seconds": flags.open_seconds, "engines": plan.engines, "without_rocksdb": plan.without,
              "options": options, "rows": rows}
    (flags.out / "compare.json").write_text(json.dumps(result, indent=1))
    (flags.out / "compare.html").write_text(report.html(result))
    print(report.text(result))
    print(f"{flags.out}/compare.json, {flags.out}/compare.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
