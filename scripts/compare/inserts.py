"""M3 and M4: the insert benchmark through SQL, larger than the cache and within it. The JSON of each
engine's last run stays in the output directory, as M3-InnoDB.json."""

import json
import os
import statistics
import subprocess
from pathlib import Path

from pair import Pair
from row import OURS, row
from server import ROOT, Failed

CACHED_QUERIES = "InnoDB's q100 of M4"


def binary():
    found = Path(os.environ.get("EVENKEEL_BIN", ROOT / "target" / "release" / "evenkeel"))
    if not found.exists():
        raise SystemExit(f"{found} is missing: cargo build --release -p evenkeel-cli")
    return found


def bench(server, out, flags):
    """The steps of one run of `evenkeel bench` on a server, by name."""
    url = f"mariadb://root@localhost/bench?socket={server.socket}&engine={server.engine}"
    server.sql("create database if not exists bench")
    run = subprocess.run([binary(), "bench", "--engine", url, "--json", out, *flags],
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        raise Failed(f"evenkeel bench: {run.stderr.strip()[-500:]}")
    return {s["name"]: s for s in json.loads(Path(out).read_text())["steps"]}


def insert_benchmark(base, plan, bar, cache, flags, seen):
    """Steps by engine, one dictionary for each round."""
    pair = Pair(base, plan, cache, seen)

    def work(server):
        server.sql("create or replace database bench")
        # Of the last round, to draw: `evenkeel bench diff A B --report`, `evenkeel bench picture`.
        return bench(server, plan.out / f"{bar}-{server.engine}.json", flags)

    try:
        runs = {engine: [] for engine in plan.engines}
        for _ in range(plan.rounds):
            for engine, steps in pair.each(bar, work).items():
                runs[engine].append(steps)
                seen(f"{bar} {engine}: " + ", ".join(
                    f"{n} {s['queries_per_s'] or s['rows_per_s']:.0f}/s" for n, s in steps.items()))
        return {engine: steps for engine, steps in runs.items() if steps}
    finally:
        pair.stop()


def middle(runs, step, figure):
    """Medians by engine; null figures (of runs too short for them) are left out."""
    values = {e: [r[step][figure] for r in of if r[step][figure] is not None]
              for e, of in runs.items()}
    return {engine: statistics.median(of) for engine, of in values.items() if of}


def insert_cached(base, plan, seen):
    rows = f"{plan.rows(4_000_000)},{plan.rows(1_000_000)}"
    flags = ["--rows", rows, "--steps", "l.i0,l.x,l.i1,q", "--rates", "100", "--seconds",
             str(plan.length(10))]
    runs = insert_benchmark(base, plan, "M4", plan.bytes(4 << 30), flags, seen)
    found = []
    for step, figure, least in (("l.i0", "rows_per_s", None), ("l.x", "rows_per_s", None),
                                ("l.i1", "rows_per_s", 1.1), ("q100.1", "queries_per_s", 1.0),
                                ("q100.2", "queries_per_s", 1.0)):
        unit = figure.replace("_per_s", "/s")
        values = middle(runs, step, figure)
        found.append(row("M4", f"insert benchmark {step}", unit, values, least))
    plan.found[CACHED_QUERIES] = values.get("InnoDB")
    return found


def insert_io_bound(base, plan, seen):
    """Rows for eight times the cache in the smallest of the engines."""
    length = plan.length(10) * 5
    flags = ["--rows", f"{plan.rows(8_000_000)},1", "--steps", f"l.i0,l.x,l.i1:{length}s,q",
             "--rates", "100,1000", "--seconds", str(plan.length(10))]
    runs = insert_benchmark(base, plan, "M3", plan.bytes(128 << 20), flags, seen)
    rate = lambda step, **more: row("M3", f"insert benchmark {step}, IO-bound", "rows/s",
                                    middle(runs, step, "rows_per_s"), **more)
    found = [rate("l.i0"), rate("l.x", wanted=1.5), rate("l.i1", wanted={"ROCKSDB": 1.1})]
    for figure, unit in (("worst_second_ratio", ""), ("max_op_ms", "ms"),
                         ("bytes_read_per_row", "bytes/row"), ("bytes_written_per_row", "bytes/row"),
                         ("cpu_us_per_row", "us/row")):
        name = figure.removesuffix("_per_row").replace("_", " ")
        found.append(row("M3", f"l.i1: {name}", unit, middle(runs, "l.i1", figure),
                         less_is_better=unit != ""))
    for step in ("q100.1", "q100.2", "q1000.1", "q1000.2"):
        found.append(queries(step, middle(runs, step, "queries_per_s"), plan.found))
    return found


def queries(step, values, known):
    """At least 1.5 x MyRocks or 0.85 x the cached InnoDB, whichever is lower."""
    cached, least = known.get(CACHED_QUERIES), []
    if values.get("ROCKSDB"):
        least.append((1.5 * values["ROCKSDB"], f"1.5 x MyRocks {values['ROCKSDB']:,.0f}"))
    if cached:
        least.append((0.85 * cached, f"0.85 x InnoDB cached {cached:,.0f}"))
    limit, note = min(least, default=(None, "no figure of MyRocks"))
    if not cached:
        note += "; without section insert no figure of the cached InnoDB"
    return row("M3", f"insert benchmark {step}, IO-bound", "queries/s",
               values if OURS in values else {}, limit=limit, note=note)
