"""M10: kill -9 under write_only, and the 30 seconds from the first committed transaction on."""

import statistics
import time

import control
import sysbench
from evenness import BAR_SECONDS, even, middle
from pair import Pair
from row import OURS, row
from watch import Watch

ASKED, CHANGED = 0.90, 4


def restart(base, plan, seen):
    sizes = {"tables": 4, "rows": plan.rows(500_000), "cache": plan.bytes(1 << 30)}
    before_s, after_s = plan.length(60), min(plan.length(30), 30)
    pair = Pair(base, plan, sizes["cache"], seen)
    steady = lambda per_second: statistics.median(per_second[len(per_second) // 3:])

    def work(server):
        load = sysbench.Run(server, "write_only", sizes, before_s + 60, 16)
        load.wait(before_s)
        server.kill()
        before = steady(load.result(may_fail=True)["per_second"])
        begun = time.monotonic()
        server.start()
        server.sql("select c from sbtest1 where id = 1", "sbtest")
        first = time.monotonic() - begun
        # The first committed transaction: all seconds of the load that follows count.
        server.sql("update sbtest1 set k = k + 1 where id = 1", "sbtest")
        with Watch(server) as watch:
            # The second that sysbench ends in it does not always report.
            load = sysbench.Run(server, "write_only", sizes, after_s + 2, 16)
            result = load.result()
        after = result["per_second"][:after_s]
        slow = [i for i, rate in enumerate(after) if rate < ASKED * before]
        found = {"first": first, "worst": min(after) / before, "errors": result["errors"],
                 "own": watch.own_share(load.begun, slow, 16), "per_second": after}
        if server.engine == OURS:
            found["over"] = watch.flushed_too_much()
            found["seconds_over"] = len(found["over"])
        seen(f"M10 {server.engine}: first query {first:.2f} s after the start, worst second "
             f"{found['worst']:.2f} of {before:.0f} tps before" + "".join(
                 f"; flushed {done} pages, asked {asked}" for asked, done in found.get("over", ())))
        return found

    def paced():
        found = control.run(base, before_s + after_s, CHANGED)
        rates = found["per_second"]
        found["worst"] = min(rates[before_s:]) / steady(rates[:before_s])
        return found

    try:
        pair.prepare("M10", lambda server: sysbench.prepare(server, sizes))
        rounds = control.rounds(plan, pair, "M10", work, paced)
        value = lambda key: middle(rounds, key)
        # The bar is of 30 seconds, whatever others are of.
        seconds = BAR_SECONDS if after_s == 30 else after_s
        rows = [row("M10", "first query after kill -9", "s", value("first"), None, True, limit=2),
                even("M10", f"worst of the first {after_s} s / median before", ASKED, rounds, seconds),
                row("M10", "seconds that flushed more than 1.1 x asked + 64 pages", "",
                    value("seconds_over"), None, True, limit=0,
                    note="512 pages asked for before may be under way")]
        rows[1]["runs"] = {e: [found[e] for found in rounds if e in found] for e in pair.servers}
        return rows
    finally:
        pair.stop()
