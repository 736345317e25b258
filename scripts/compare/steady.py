"""M8: half an hour of writes, its worst second, and its first minutes beside its last."""

import statistics
import time
from pathlib import Path

import control
import sysbench
from evenness import below, errors, even, longest, middle
from inserts import bench
from pair import Pair
from report import shown
from row import row
from watch import Watch, longest_waits, of_device

ASKED, CHANGED = 0.80, 4
DRIFT_S = 60


def ends(seconds, window):
    """The mean of the last `window` values divided by that of the first."""
    first, last = seconds[:window], seconds[-window:]
    return statistics.mean(last) / statistics.mean(first) if sum(first) else None


def long(base, plan, seen):
    return long_writes(base, plan, seen) + long_inserts(base, plan, seen)


def rows_of(what, unit, rounds, length, engines):
    """What both loads are asked."""
    found = [row("M8", what, unit, middle(rounds, "tps"), errors=errors(rounds)),
             even("M8", f"{what}: worst second / median", ASKED, rounds, length),
             longest("M8", f"{what}: longest transaction", 100, rounds)]
    found[0]["runs"] = {e: [of[e] for of in rounds if e in of] for e in engines}
    return found


def long_writes(base, plan, seen):
    """write_only at 16 threads. The control runs before and after: the machine's own drift."""
    sizes = {"tables": 4, "rows": plan.rows(500_000), "cache": plan.bytes(1 << 30)}
    length = plan.length(1800)
    window = max(length // 6, 1)
    pair = Pair(base, plan, sizes["cache"], seen)

    def work(server):
        rate = lambda: control.run(base, min(window, DRIFT_S), CHANGED)["tps"]
        before, waits = rate(), longest_waits(server)
        with Watch(server) as watch:
            load = sysbench.Run(server, "write_only", sizes, length, 16)
            found = load.result()
        per_second = found["per_second"]
        found["device_ms"] = of_device(waits, longest_waits(server))
        found["own"] = watch.own_share(load.begun, below(per_second, ASKED), 16)
        found["drift"] = rate() / before
        found["ends"] = ends(per_second, window) / found["drift"]
        seen(f"M8 write_only {server.engine}: {found['tps']:.0f} tps, worst second "
             f"{shown(found['worst'])}, longest {found['longest']:.0f} ms, last / first "
             f"{found['ends']:.2f} after the control's {found['drift']:.2f}")
        return found

    try:
        pair.prepare("M8", lambda server: sysbench.prepare(server, sizes))
        rounds = control.rounds(plan, pair, "M8 write_only", work,
                                lambda: control.run(base, plan.control_length(length), CHANGED))
        what = f"write_only {length} s"
        return [*rows_of(what, "tps", rounds, length, pair.servers),
                row("M8", f"{what}: last {window} s / first, / the control's drift", "",
                    middle(rounds, "ends"), limit=0.95, errors=errors(rounds))]
    finally:
        pair.stop()


def long_inserts(base, plan, seen):
    """l.i1 larger than the cache: each round adds to the table of the one before."""
    length = plan.length(1800)
    window = max(length // 6, 1)
    pair = Pair(base, plan, plan.bytes(128 << 20), seen)
    out = lambda server: Path(base) / f"{server.engine}.json"
    common = lambda server: ["--rows", f"{plan.rows(8_000_000)},1",
                             "--dir", Path(base) / f"{server.engine}.dir"]

    def work(server):
        waits = longest_waits(server)
        with Watch(server) as watch:
            step = bench(server, out(server),
                         [*common(server), "--steps", f"l.i1:{length}s"])["l.i1"]
            ended = time.monotonic()
        inserted = [second[0] for second in step["per_second"]]
        cpu, written = watch.per_row(inserted, window)
        own = watch.own_share(ended - step["seconds"], below(inserted, ASKED), 1)
        found = {"tps": step["rows_per_s"], "worst": step["worst_second_ratio"], "own": own,
                 "p5": step["p5_second_ratio"], "longest": step["max_op_ms"], "cpu": cpu,
                 "written": written, "device_ms": of_device(waits, longest_waits(server)),
                 "per_second": inserted}
        seen(f"M8 l.i1 {server.engine}: {found['tps']:.0f} rows/s, worst second "
             f"{shown(found['worst'])}, longest {found['longest']:.0f} ms, last / first: CPU "
             f"{cpu or 0:.2f}, bytes {written or 0:.2f}")
        return found

    try:
        pair.prepare("M8 l.i1", lambda s: bench(s, out(s), [*common(s), "--steps", "l.i0,l.x"]))
        rounds = control.rounds(plan, pair, "M8 l.i1", work,
                                lambda: control.figures(control.steps(
                                    base, plan.control_length(length), 50, clients=1)["l.i1"], 1))
        what, apart = f"l.i1 {length} s, IO-bound", f"last {window} s / first"
        figure = lambda name, key: row("M8", f"{what}: {name} of a row, {apart}", "",
                                       middle(rounds, key), None, True, limit=1.05)
        return [*rows_of(what, "rows/s", rounds, length, pair.servers), figure("CPU", "cpu"),
                figure("bytes", "written")]
    finally:
        pair.stop()
