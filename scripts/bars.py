"""The acceptance figures of the embedded engine at their full length, beside the control and
RocksDB in alternating rounds: `make bars`, or
`python3 scripts/bars.py [--only cached,io] [--rounds N] [--seconds S] [--repeats N]
[--scale F] [--out DIR]`.

Prints a line for each figure: what was found, what is asked, whether that holds; writes each
comparison to DIR/bars-NAME.json and the lines to DIR/bars.txt after each part, so that a run that
is stopped keeps what it has. Exit codes: 0 done (met or not), 1 a run failed, 2 wrong usage.

A figure of evenness holds if it is no worse than what is asked or than 0.95 of the control's, and
if no second's waits of our own causes take more than 5 % of the client's time where it is below."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OWN_WAITS_MAX = 0.05
CONTROL_PART = 0.95
MIB = 1 << 20


class Lines:
    """What is printed and kept."""

    def __init__(self, path):
        self.path, self.all = path, []

    def add(self, bar, found, asked, met=None):
        verdict = {True: "met", False: "MISSED", None: "-"}[met]
        self.all.append(f"{bar:4} {verdict:7} {found}; asked: {asked}")
        print(self.all[-1], flush=True)
        self.path.write_text("\n".join(self.all) + "\n")


class Found:
    """The medians of a comparison."""

    def __init__(self, text):
        self.json = json.loads(text)

    def of(self, engine, step, figure):
        return self.json["medians"][engine]["steps"].get(step, {}).get(figure)

    def ratio(self, step, figure, engine="rocksdb"):
        return self.json["ratios"].get(engine, {}).get(step, {}).get(figure, 0.0)

    def peak(self):
        return self.json["medians"]["evenkeel"]["peak_memory_bytes"] / MIB

    def sync_us(self):
        syncs = [r["results"][0]["machine"]["sync_us_p50"] for r in self.json["rounds"]]
        return sorted(syncs)[len(syncs) // 2]

    def steps(self, engine, step):
        """That step of an engine's runs, of the rounds that count; and these runs."""
        runs = [result for r in self.json["rounds"] if r["counts"]
                for result in r["results"] if result["engine"] == engine]
        return [s for run in runs for s in run["steps"] if s["name"] == step], runs

    def rounds(self):
        counted = [r for r in self.json["rounds"] if r["counts"]]
        disturbed = sum(r["disturbed"] for r in counted)
        return (f"{len(counted)} of {len(self.json['rounds'])} rounds count, {disturbed} of them "
                "disturbed")

    def smallest(self, step):
        """Bytes of the smallest directory of an engine after a step."""
        return min(run["steps"][step]["space_bytes"] for name, run in self.json["medians"].items()
                   if name != "null")


def compare(plan, name, engines, arguments):
    path = plan.out / f"bars-{name}.json"
    with tempfile.TemporaryDirectory(prefix="bars-", dir=plan.out) as work:
        command = ["cargo", "run", "--quiet", "--release", "-p", "evenkeel-bench-compare", "--",
                   "--engines", engines, "--rounds", str(plan.rounds),
                   "--repeats", str(plan.repeats), "--json", str(path), "--dir", f"{work}/db", *arguments.split()]
        print("#", *command[5:], flush=True)
        subprocess.run(command, cwd=ROOT, check=True)
    found = Found(path.read_text())
    print("#", found.rounds(), flush=True)
    return found


def even(lines, bar, found, step, asked, counts=True):
    ours, control = (found.of(e, step, "worst_second_ratio") for e in ("evenkeel", "null"))
    if ours is None:
        return lines.add(bar, f"{step}: too short for a worst second", f">= {asked}")
    least = min(asked, CONTROL_PART * (control or 1))
    waits = found.of("evenkeel", step, "own_wait_share_max") or 0.0
    met = ours >= asked or (ours >= least and waits <= OWN_WAITS_MAX)
    lines.add(bar, f"{step} worst second {ours:.2f} (control {control or 0:.2f}), own waits "
              f"{waits:.3f} of the worst of them", f">= {asked} or {least:.2f} by the control",
              met if counts else None)


def larger_than_memory(lines, bar, found, step, memory_mib):
    """What is read is not in memory: by the smallest directory of all engines after a step."""
    times = found.smallest(step) / (memory_mib << 20)
    lines.add(bar, f"after {step} the smallest engine's directory is {times:.1f} x its memory",
              ">= 8", times >= 8)


def peak(lines, found, name, memory_mib):
    most = 1.1 * memory_mib + 64
    lines.add("E8", f"{name}: peak resident {found.peak():.0f} MiB", f"<= {most:.0f}",
              found.peak() <= most)


def cached(plan, lines):
    """What fits in memory."""
    rows, more = plan.rows(4_000_000), plan.rows(2_000_000)
    run = compare(plan, "cached", "evenkeel,null,rocksdb",
                  f"--memory 4G --rows {rows},{more} --steps l.i0,l.x,l.i1,q100.1,p")
    loaded, sync = run.ratio("l.i0", "rows_per_s"), run.sync_us()
    of_control = run.ratio("l.i0", "rows_per_s", "null")
    met = loaded >= 1.5 if sync <= 100 else of_control >= 0.85
    lines.add("E1", f"l.i0 {loaded:.2f} x RocksDB, {of_control:.2f} x control, sync {sync:.0f} us",
              ">= 1.5 x RocksDB where a sync takes <= 100 us, else 0.85 x control", met)
    rate, times = run.of("evenkeel", "l.x", "rows_per_s"), run.ratio("l.x", "rows_per_s")
    lines.add("E2", f"l.x {rate:.0f} rows/s, {times:.2f} x RocksDB", ">= 500000 and 2 x",
              rate >= 500_000 and times >= 2)
    range_ = run.ratio("q100.1", "queries_per_s")
    lines.add("E4", f"q100 cached {range_:.2f} x RocksDB", ">= 1.5", range_ >= 1.5)
    point = run.ratio("p", "queries_per_s")
    lines.add("E5", f"point reads {point:.2f} x RocksDB", ">= 2", point >= 2)
    cpu = [run.of(e, "l.i1", "cpu_us_per_row") for e in ("evenkeel", "null")]
    lines.add("E7", f"CPU {cpu[0]:.2f} us a row, the control's {cpu[1]:.2f}", "<= 8 more",
              cpu[0] - cpu[1] <= 8)
    peak(lines, run, "cached", 4096)
    lazy = compare(plan, "lazy", "evenkeel,null,rocksdb",
                   f"--memory 4G --rows {rows},1 --steps l.i0 --durability 2")
    times = lazy.ratio("l.i0", "rows_per_s")
    lines.add("E1", f"l.i0 at durability 2 {times:.2f} x RocksDB", ">= 1.5", times >= 1.5)


# What l.i1 has to have had for its figures to count.
EVENTS_MIN = {"memtable_flushes": 20, "compactions_bottom": 5, "checkpoints": 3, "log_rotations": 3}


def long_enough(lines, found):
    steps, _ = found.steps("evenkeel", "l.i1")
    had = {name: min(s["events"][name] for s in steps) for name in EVENTS_MIN}
    short = any(had[name] < least for name, least in EVENTS_MIN.items())
    text = ", ".join(f"{name} {count}" for name, count in had.items())
    lines.add("E3", f"l.i1 {'too short to count' if short else 'long enough'}: {text}",
              ", ".join(f">= {least}" for least in EVENTS_MIN.values()), None if short else True)
    return not short


def index_reads(lines, found):
    """Blocks of runs that were read, not by builds, merges and renewals of statistics, which are
    counted apart."""
    _, runs = found.steps("evenkeel", "l.i1")
    read = lambda metrics: metrics["run_block_read_bytes"] - metrics["statistics_block_read_bytes"]
    most = max(read(run["engine_details"]["metrics"]) for run in runs)
    lines.add("E3", f"foreground reads for secondary indexes {most} bytes", "0", most == 0)


def io(plan, lines):
    """l.i1 on data larger than memory."""
    run = compare(plan, "io", "evenkeel,null,rocksdb",
                  f"--memory 64M --rows {plan.rows(7_000_000)},1 "
                  f"--steps l.i0,l.x,l.i1:{plan.seconds}s")
    larger_than_memory(lines, "E3", run, "l.x", 64)
    figure = lambda name: run.of("evenkeel", "l.i1", name)
    counts = long_enough(lines, run)
    add = lambda found, asked, met: lines.add("E3", found, asked, met if counts else None)
    times = run.ratio("l.i1", "rows_per_s")
    add(f"l.i1 {figure('rows_per_s'):.0f} rows/s, {times:.2f} x RocksDB", ">= 1.2", times >= 1.2)
    index_reads(lines, run)
    written = figure("bytes_written_per_row")
    add(f"{written:.0f} bytes written a row", "<= 750", written <= 750)
    even(lines, "E3", run, "l.i1", 0.85, counts)
    steps, _ = run.steps("evenkeel", "l.i1")
    slow = sorted((ms for step in steps for _, ms, _ in step["device_slow"]), reverse=True)
    longest = figure("max_op_own_ms")
    add(f"longest operation {longest:.1f} ms; left out, a single write or sync took more than half: "
        f"{', '.join(f'{ms:.0f}' for ms in slow[:10]) or 'none'} ms ({len(slow)} of 10 ms and more)",
        "<= 50", longest <= 50)
    peak(lines, run, "IO-bound", 64)


def ranges(plan, lines):
    """Range queries on data larger than memory: as many rows for each engine, and long enough for
    what the inserts have left to merge."""
    run = compare(plan, "ranges", "evenkeel,null,rocksdb",
                  f"--memory 64M --rows {plan.rows(6_000_000)},{plan.rows(12_000_000)} "
                  f"--seconds {max(plan.seconds * 2 // 5, 5)} --steps l.i0,l.x,l.i1,q100.1")
    larger_than_memory(lines, "E4", run, "l.i1", 64)
    times = run.ratio("q100.1", "queries_per_s")
    reads = [run.of(e, "q100.1", "bytes_read_per_row") for e in ("evenkeel", "rocksdb")]
    memory = run.json["medians"]["rocksdb"]["peak_memory_bytes"] / MIB
    lines.add("E4", f"q100 IO-bound {times:.2f} x RocksDB (peak {memory:.0f} MiB), bytes read a query "
              f"{reads[0]:.0f} and {reads[1]:.0f}", ">= 1.2, reads no more",
              times >= 1.2 and reads[0] <= reads[1])
    peak(lines, run, "ranges", 64)


def deletes(plan, lines):
    """l.i1 with deletes: its bytes."""
    run = compare(plan, "deletes", "evenkeel,null",
                  f"--memory 64M --rows {plan.rows(6_000_000)},1 --deletes "
                  f"--steps l.i0,l.x,l.i1:{plan.seconds}s")
    written = run.of("evenkeel", "l.i1", "bytes_written_per_row")
    lines.add("E3", f"with deletes {written:.0f} bytes written a row", "<= 1300", written <= 1300)


def updates(plan, lines):
    """Random updates on data larger than memory."""
    run = compare(plan, "updates", "evenkeel,null,rocksdb",
                  f"--memory 64M --rows {plan.rows(14_000_000)},1 --steps l.i0,u:{plan.seconds}s")
    larger_than_memory(lines, "E6", run, "l.i0", 64)
    times = run.ratio("u", "rows_per_s")
    lines.add("E6", f"updates {times:.2f} x RocksDB", ">= 1", times >= 1)
    written = run.of("evenkeel", "u", "bytes_written_per_row")
    lines.add("E6", f"{written:.0f} bytes written an update", "<= 9216", written <= 9216)
    even(lines, "E6", run, "u", 0.80)


def small(plan, lines):
    """The least memory."""
    run = compare(plan, "small", "evenkeel,null",
                  f"--memory 16M --rows {plan.rows(2_000_000)},{plan.rows(500_000)} "
                  "--steps l.i0,l.x,l.i1,u,q100.1")
    peak(lines, run, "16 MiB", 16)


def ms(text):
    """A duration as Rust shows it."""
    number, unit = re.fullmatch(r"([\d.]+)(ns|µs|ms|s)", text).groups()
    return float(number) * {"ns": 1e-6, "µs": 1e-3, "ms": 1, "s": 1e3}[unit]


# Of each line that the example prints: a pattern, what is asked of what it finds, whether that holds.
E9_S, E10_MS = 3, {"": 10, " beside an older snapshot": 50}
SINGLE = (
    ("E5", r"cached: (\d+) ns, with begin and commit (\d+) ns", "<= 1000 ns, <= 1500 ns",
     lambda inside, alone: int(inside) <= 1000 and int(alone) <= 1500),
    ("E9", r"(\d+) MiB of log, .* first query after ([\d.]+) s", f"1024 MiB and more; <= {E9_S} s",
     lambda mib, first: None if int(mib) < 1024 else float(first) <= E9_S),
    ("E9", r"(\d+) MiB of log of random updates.* first query after ([\d.]+) s; .*: ([\d.]+) s$",
     f"1024 MiB and more; <= {E9_S} s and what the reads take",
     lambda mib, first, reads:
         None if int(mib) < 1024 else float(first) <= E9_S + float(reads)),
    ("E9", r"from the fifth second on \d+ \(([\d.]+)\); .* pages: (\[.*\])$",
     ">= 0.80; no second flushed too much",
     lambda later, over: float(later) >= 0.80 and over == "[]"),
    ("E10", r"/s\)(.*): slowest min\(pk\) (\S+), in \d+ s after (\S+)$",
     "<= 10 ms; beside an older snapshot <= 50 ms",
     lambda beside, throughout, after: max(ms(throughout), ms(after)) <= E10_MS[beside]),
    ("E11", r"snapshot held \(([\d.]+)\)", ">= 0.8", lambda with_: float(with_) >= 0.8),
    ("E12", r"empty store (\S+), (\d+) KiB; idle 3 s: (\d+) wake-ups, (\d+) writes$",
     "open <= 20 ms and <= 40960 KiB; no wake-ups, no writes",
     lambda open_, kib, woken, writes: ms(open_) <= 20 and int(kib) <= 40960
     and woken == writes == "0"),
    ("E12", r"close with \d+ MiB of dirty pages .*: (\S+); ", "<= 5 s",
     lambda close: ms(close) <= 5000),
)
# The scales of the example that have the sizes of the bars.
FULL = {"e5": 10, "e9": 11, "e10": 20, "e11": 30, "e12": 20}


def judge(lines, text):
    """A line of the example: some only tell more."""
    name, found = text.split(" ", 1)
    for bar, pattern, asked, holds in SINGLE:
        match = re.search(pattern, found) if bar == name else None
        if match:
            return lines.add(name, found, asked, holds(*match.groups()))
    return lines.add(name, found, "nothing")


def single(plan, lines):
    """What the insert benchmark does not measure."""
    for name, full in FULL.items():
        scale = max(int(full * plan.scale), 1)
        with tempfile.TemporaryDirectory(prefix="bars-", dir=plan.out) as work:
            command = ["cargo", "run", "--quiet", "--release", "-p", "evenkeel-bench", "--example",
                       "bars", "--", work, name, "--scale", str(scale)]
            print("#", *command[5:], flush=True)
            done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        for text in done.stdout.splitlines():
            judge(lines, text)


PARTS = {part.__name__: part for part in (cached, io, ranges, deletes, updates, small, single)}


class Plan:
    def __init__(self, flags):
        self.rounds, self.repeats = flags.rounds, flags.repeats
        self.seconds, self.scale = flags.seconds, flags.scale
        self.out = flags.out.resolve()

    def rows(self, full):
        return max(int(full * self.scale), 10_000)


def main():
    flags = argparse.ArgumentParser(prog="bars", description=__doc__.split("\n\n")[0])
    flags.add_argument("--only", default=",".join(PARTS), help="parts, of " + ", ".join(PARTS))
    flags.add_argument("--rounds", type=int, default=3, help="rounds in which the engines take turns")
    flags.add_argument("--repeats", type=int, default=5, help="of rounds whose control was disturbed")
    flags.add_argument("--seconds", type=int, default=300, help="length of the steps of evenness")
    flags.add_argument("--scale", type=float, default=1.0, help="1: the sizes of the bars")
    flags.add_argument("--out", type=Path, default=Path("out"))
    flags = flags.parse_args()
    names = flags.only.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"--only: no part {unknown[0]}: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    flags.out.mkdir(parents=True, exist_ok=True)
    lines = Lines(flags.out / "bars.txt")
    for name in names:
        try:
            PARTS[name](Plan(flags), lines)
        except subprocess.CalledProcessError as error:
            print(f"bars: {name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
