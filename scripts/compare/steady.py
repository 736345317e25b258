"""M8: half an hour of writes, the first minutes beside the last; M9: requests at their own times,
whether the engine keeps up or not. Both have the control beside them (`evenkeel bench --engine
null`): the same client, commits and syncs and no engine."""

import json
import os
import statistics
import subprocess
import threading
import time
from pathlib import Path

import sysbench
from inserts import bench, binary
from pair import Pair
from row import OURS, row

# Waits that the engine makes itself; others are of the device, of locks, of the client.
OWN_CAUSES = ("log_space", "free_frame", "page_latch", "memtable_full", "merge_debt", "governor")
TICKS = os.sysconf("SC_CLK_TCK")


def control(base, seconds, *flags):
    """Steps of the control, by name."""
    out = Path(base) / "control.json"
    subprocess.run([binary(), "bench", "--engine", "null", "--dir", Path(base) / "control-files",
                    "--rows", "1000,1000", "--steps", f"l.i0,l.x,l.i1:{seconds}s", "--json", out,
                    *flags], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", Path(base) / "control-files"], check=True)
    return {step["name"]: step for step in json.loads(out.read_text())["steps"]}


def ends(seconds, window):
    """The mean of the last `window` values divided by that of the first."""
    first, last = seconds[:window], seconds[-window:]
    return statistics.mean(last) / statistics.mean(first) if sum(first) else None


class Usage(threading.Thread):
    """CPU and bytes of a server's process, each second."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.over, self.seen = server, threading.Event(), []

    def run(self):
        while True:
            fields = Path(f"/proc/{self.server.process.pid}/stat").read_text().rsplit(")", 1)[1]
            utime, stime = fields.split()[11:13]
            cpu = (int(utime) + int(stime)) / TICKS * 1e6
            self.seen.append((cpu, self.server.written_bytes()))
            if self.over.wait(1):
                return

    def end(self):
        self.over.set()
        self.join()

    def per_row(self, rows, window):
        """CPU and bytes for a row in the last `window` seconds / in the first."""
        found = []
        for which in (0, 1):
            used = [b[which] - a[which] for a, b in zip(self.seen, self.seen[1:])]
            first = sum(used[:window]) / max(sum(rows[:window]), 1)
            last = sum(used[-window:]) / max(sum(rows[-window:]), 1)
            found.append(last / first if first else None)
        return found


def long(base, plan, seen):
    return long_writes(base, plan, seen) + long_inserts(base, plan, seen)


def long_writes(base, plan, seen):
    """write_only at 16 threads. The control runs before and after: the machine's own drift."""
    sizes = {"tables": 4, "rows": plan.rows(500_000), "cache": plan.bytes(1 << 30)}
    window = max(plan.long // 6, 1)
    pair = Pair(base, plan, sizes["cache"], seen)

    def work(server):
        sysbench.prepare(server, sizes)
        rate = lambda: control(base, min(window, 60))["l.i1"]["rows_per_s"]
        before = rate()
        result = sysbench.run(server, "write_only", sizes, plan.long)
        result["drift"] = rate() / before
        result["ends"] = ends(result["per_second"], window) / result["drift"]
        seen(f"M8 write_only {server.engine}: {result['tps']:.0f} tps, worst second "
             f"{result['worst_second_ratio']:.2f}, longest {result['max_ms']:.0f} ms, last / first "
             f"{result['ends']:.2f} after the control's {result['drift']:.2f}")
        return result

    try:
        got = pair.each("M8 write_only", work)
        value = lambda key: {e: r[key] for e, r in got.items()}
        errors = {e: r["errors"] + r["reconnects"] for e, r in got.items()}
        what = f"write_only {plan.long} s"
        rows = [row("M8", what, "tps", value("tps"), errors=errors),
                row("M8", f"{what}: worst second / median", "", value("worst_second_ratio"),
                    limit=0.80),
                row("M8", f"{what}: longest transaction", "ms", value("max_ms"), None, True,
                    limit=100),
                row("M8", f"{what}: last {window} s / first, / the control's drift", "",
                    value("ends"), limit=0.95)]
        rows[0]["runs"] = {e: [r] for e, r in got.items()}
        return rows
    finally:
        pair.stop()


def long_inserts(base, plan, seen):
    """l.i1 larger than the cache."""
    window = max(plan.long // 6, 1)
    pair = Pair(base, plan, plan.bytes(128 << 20), seen)

    def work(server):
        common = ["--rows", f"{plan.rows(8_000_000)},1", "--dir", Path(base) / f"{server.engine}.dir"]
        out = Path(base) / f"{server.engine}.json"
        bench(server, out, [*common, "--steps", "l.i0,l.x"])
        usage = Usage(server)
        usage.start()
        try:
            step = bench(server, out, [*common, "--steps", f"l.i1:{plan.long}s"])["l.i1"]
        finally:
            usage.end()
        inserted = [second[0] for second in step["per_second"]]
        cpu, written = usage.per_row(inserted, window)
        inner = inserted[1:-1] or inserted
        worst = min(inner) / statistics.median(inner) if statistics.median(inner) else 0.0
        if step["worst_second_ratio"] is not None:
            worst = step["worst_second_ratio"]
        seen(f"M8 l.i1 {server.engine}: {step['rows_per_s']:.0f} rows/s, worst second {worst:.2f}, "
             f"longest {step['max_op_ms']:.0f} ms, last / first: CPU {cpu:.2f}, bytes {written:.2f}")
        return {"rate": step["rows_per_s"], "worst": worst, "longest": step["max_op_ms"], "cpu": cpu,
                "written": written, "per_second": inserted}

    try:
        got = pair.each("M8 l.i1", work)
        value = lambda key: {e: r[key] for e, r in got.items()}
        what = f"l.i1 {plan.long} s, IO-bound"
        apart = f"last {window} s / first"
        rows = [row("M8", what, "rows/s", value("rate")),
                row("M8", f"{what}: worst second / median", "", value("worst"), limit=0.80),
                row("M8", f"{what}: longest transaction", "ms", value("longest"), None, True,
                    limit=100),
                row("M8", f"{what}: CPU of a row, {apart}", "", value("cpu"), None, True, limit=1.05),
                row("M8", f"{what}: bytes of a row, {apart}", "", value("written"), None, True,
                    limit=1.05)]
        rows[0]["runs"] = {e: [r] for e, r in got.items()}
        return rows
    finally:
        pair.stop()


def open_loop(base, plan, seen):
    """write_only: the highest rate, then 60 % and 95 % of it at random times. Latencies count from
    the intended start. Before the last the server starts anew, for it tells the longest wait of each
    cause since its start."""
    sizes = {"tables": 4, "rows": plan.rows(500_000), "cache": plan.bytes(1 << 30)}
    half = max(plan.open // 2, 1)
    paced = control(base, half, "--open-loop", "60")["l.i1@60"]["op"]["insert_intended"]["p999_us"]
    allowed = max(5.0, 3 * paced / 1000)
    seen(f"M9 control: p99.9 {paced / 1000:.2f} ms at 60 % of its own highest rate")
    pair = Pair(base, plan, sizes["cache"], seen)

    def work(server):
        sysbench.prepare(server, sizes)
        top = sysbench.run(server, "write_only", sizes, half)["tps"]
        at_60 = sysbench.run(server, "write_only", sizes, plan.open, rate=0.60 * top)
        server.stop()
        server.start()
        at_95 = sysbench.run(server, "write_only", sizes, half, rate=0.95 * top)
        found = {"top": top, "p999": at_60["p99_9_ms"], "max": at_60["max_ms"], "errors":
                 at_60["errors"] + at_60["reconnects"] + at_95["errors"] + at_95["reconnects"],
                 "p999_95": at_95["p99_9_ms"], "max_95": at_95["max_ms"]}
        if server.engine == OURS:
            waits = {cause: int(us) / 1000 for cause, us in server.sql(
                "select cause, longest_us from information_schema.evenkeel_stalls")}
            own = {cause: waits[cause] for cause in OWN_CAUSES if cause in waits}
            found["waits"], found["wait"] = own, max(own.values(), default=0.0)
        seen(f"M9 {server.engine}: highest {top:.0f} tps; at 60 % p99.9 {found['p999']:.2f} ms, "
             f"longest {found['max']:.1f}; at 95 % p99.9 {found['p999_95']:.2f}, longest "
             f"{found['max_95']:.1f}" + "".join(f", {c} {ms:.2f}" for c, ms in
                                                found.get("waits", {}).items() if ms))
        return found

    try:
        got = pair.each("M9", work)
        value = lambda key: {e: r[key] for e, r in got.items() if key in r}
        errors = value("errors")
        name = "write_only, open loop"
        return [row("M9", f"{name}: highest rate held for {half} s", "tps", value("top")),
                row("M9", f"{name} at 60 %, {plan.open} s: p99.9", "ms", value("p999"), None, True,
                    limit=allowed, note=f"control {paced / 1000:.2f} ms", errors=errors),
                row("M9", f"{name} at 60 %, {plan.open} s: longest", "ms", value("max"), None, True,
                    limit=50, errors=errors),
                row("M9", f"{name} at 95 %, {half} s: p99.9", "ms", value("p999_95")),
                row("M9", f"{name} at 95 %, {half} s: longest wait by our own causes", "ms",
                    value("wait"), None, True, limit=5)]
    finally:
        pair.stop()
