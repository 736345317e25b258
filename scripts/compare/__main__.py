"""ENGINE=EVENKEEL beside InnoDB and MyRocks in the same run: `make compare`, or
`python3 scripts/compare [--scale N] [--seconds S] [--rounds R] [--only memory,ddl]
[--engines InnoDB,ROCKSDB] [--out DIR]`.

Prints each figure with what the bars of `benchmarks.md` section 5 ask and whether it is met, then a
table; after each section DIR/compare.txt, DIR/compare.json and DIR/compare.html have what there is.
Exit codes: 0 done (bars missed or not), 1 a run failed, 2 wrong usage, 3 something is missing on
this machine."""

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
from row import OURS, PEERS  # noqa: E402
from sections import LENGTHY, SECTIONS  # noqa: E402
from server import COMMON, options_of, rocksdb_folder  # noqa: E402


class Plan:
    """How large and how long. `scale` 1 has the sizes of the bars."""

    def __init__(self, flags, peers):
        folder, self.without = rocksdb_folder() if "ROCKSDB" in peers else (None, None)
        self.engines = [*(p for p in peers if p != "ROCKSDB" or folder), OURS]
        self.folders = {"ROCKSDB": folder}
        # Figures that a later section wants of an earlier one.
        self.found = {}
        self.seconds, self.scale = flags.seconds, flags.scale
        self.rounds, self.repeats = flags.rounds, flags.repeats
        self.control_seconds, self.out = flags.control_seconds, flags.out

    def rows(self, full):
        return max(int(full * self.scale), 1000)

    def bytes(self, full):
        return max(int(full * self.scale), 64 << 20)

    def length(self, full):
        """Seconds of a run that the bars want this long."""
        return self.seconds or full

    def control_length(self, length):
        """Seconds of the control beside a run of so many."""
        return min(length, self.control_seconds or length)


class Result:
    """The rows, printed and written as they come."""

    def __init__(self, out, plan):
        options = {engine: [*COMMON, *options_of(engine, "CACHE")] for engine in plan.engines}
        self.out, self.lines, self.rows = out, [], []
        self.about = {"format": 2, "cores": os.cpu_count(), "scale": plan.scale,
                      "seconds": plan.seconds, "rounds": plan.rounds, "repeats": plan.repeats,
                      "control_seconds": plan.control_seconds, "engines": plan.engines,
                      "without_rocksdb": plan.without, "options": options}

    def add(self, command, rows):
        self.rows += rows
        added = [f"# {command}", *map(report.line, rows)]
        print("\n".join(added), flush=True)
        self.lines += added
        found = self.about | {"rows": self.rows}
        (self.out / "compare.txt").write_text("\n".join(self.lines) + "\n")
        (self.out / "compare.json").write_text(json.dumps(found, indent=1))
        (self.out / "compare.html").write_text(report.html(found))


def main():
    flags = argparse.ArgumentParser(prog="compare", description=__doc__)
    flags.add_argument("--scale", type=float, default=0.2, help="1: the sizes of the bars")
    flags.add_argument("--seconds", type=int, help="length of each run; else 10, or what its bar says")
    flags.add_argument("--control-seconds", type=int,
                       help="length of the control of long, at most; else that of the run")
    flags.add_argument("--rounds", type=int, default=3, help="rounds in which the engines take turns")
    flags.add_argument("--repeats", type=int, default=5, help="of rounds whose control was disturbed")
    flags.add_argument("--only", default=",".join(s for s in SECTIONS if s not in LENGTHY),
                       help=f"sections, of {', '.join(SECTIONS)}; {', '.join(LENGTHY)} take hours")
    flags.add_argument("--engines", default=",".join(PEERS), help="those beside ours, of %(default)s")
    flags.add_argument("--out", type=Path, default=Path("out"))
    flags = flags.parse_args()
    names, peers = flags.only.split(","), [name for name in flags.engines.split(",") if name]
    for flag, given, known in (("only", names, SECTIONS), ("engines", peers, PEERS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            print(f"--{flag}: no {unknown[0]}: {', '.join(known)}", file=sys.stderr)
            return 2
    for tool in ("sysbench", "mariadbd", "mariadb-install-db"):
        if not shutil.which(tool):
            print(f"{tool} is missing: bash scripts/deps.sh servers", file=sys.stderr)
            return 3
    # An end from outside ends the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    flags.out.mkdir(parents=True, exist_ok=True)
    plan, begun = Plan(flags, peers), time.monotonic()
    result = Result(flags.out, plan)
    seen = lambda line: print(f"{time.monotonic() - begun:6.0f} s  {line}", flush=True)
    if plan.without:
        seen(f"MyRocks takes no part: {plan.without}")
    for name in names:
        base = tempfile.mkdtemp(prefix="compare-", dir=os.environ.get("EVENKEEL_COMPARE_DIR"))
        try:
            rows = SECTIONS[name](base, plan, seen)
        finally:
            shutil.rmtree(base, ignore_errors=True)
        length = f" --seconds {plan.seconds}" if plan.seconds else ""
        length += f" --control-seconds {plan.control_seconds}" if plan.control_seconds else ""
        result.add(f"python3 scripts/compare --only {name} --scale {plan.scale} --rounds "
                   f"{plan.rounds}{length} --engines {','.join(plan.engines[:-1])}", rows)
    print(report.text({"rows": result.rows}))
    print(f"{flags.out}/compare.txt, {flags.out}/compare.json, {flags.out}/compare.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
