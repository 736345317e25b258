"""M9: requests at their own random times, whether the engine keeps up or not."""

import control
import sysbench
from evenness import errors, longest, middle
from pair import Pair
from row import CONTROL, OURS, row
from watch import OWN_CAUSES, longest_waits, of_device

CHANGED = 4


def open_loop(base, plan, seen):
    """write_only: the highest rate, then 60 % and 95 % of it. Latencies count from the intended
    start. Before the last the server starts anew, for it tells the longest wait of each cause since
    its start."""
    sizes = {"tables": 4, "rows": plan.rows(500_000), "cache": plan.bytes(1 << 30)}
    held, length = plan.length(300), plan.length(600)
    pair = Pair(base, plan, sizes["cache"], seen)

    def paced():
        steps = control.steps(base, held, CHANGED, "--open-loop", "60")
        found = control.figures(steps["l.i1"], CHANGED)
        at_60 = steps["l.i1@60"]["op"]["insert_intended"]
        seen(f"M9 control: at 60 % p99.9 {at_60['p999_us'] / 1000:.2f} ms")
        return found | {"p999": at_60["p999_us"] / 1000, "longest_60": at_60["max_us"] / 1000}

    def work(server):
        top = sysbench.run(server, "write_only", sizes, held)["tps"]
        waits = longest_waits(server)
        at_60 = sysbench.run(server, "write_only", sizes, length, rate=0.60 * top)
        device = of_device(waits, longest_waits(server))
        server.stop()
        server.start()
        at_95 = sysbench.run(server, "write_only", sizes, held, rate=0.95 * top)
        found = {"tps": top, "p999": at_60["p99_9_ms"], "longest": at_60["longest"],
                 "device_ms": device, "errors": at_60["errors"] + at_95["errors"],
                 "p999_95": at_95["p99_9_ms"], "longest_95": at_95["longest"]}
        waits = longest_waits(server)
        own = {cause: waits[cause] for cause in OWN_CAUSES if waits.get(cause)}
        if server.engine == OURS:
            found["wait"] = max(own.values(), default=0.0)
        seen(f"M9 {server.engine}: highest {top:.0f} tps; at 60 % p99.9 {found['p999']:.2f} ms, "
             f"longest {found['longest']:.1f}; at 95 % p99.9 {found['p999_95']:.2f}, longest "
             f"{found['longest_95']:.1f}" + "".join(f", {c} {ms:.2f}" for c, ms in own.items()))
        return found

    try:
        pair.prepare("M9", lambda server: sysbench.prepare(server, sizes))
        rounds = control.rounds(plan, pair, "M9", work, paced)
        for found in rounds:
            found[CONTROL]["longest"] = found[CONTROL]["longest_60"]
        value, wrong, name = lambda key: middle(rounds, key), errors(rounds), "write_only, open loop"
        return [row("M9", f"{name}: highest rate held for {held} s", "tps", value("tps")),
                row("M9", f"{name} at 60 %, {length} s: p99.9", "ms", value("p999"), None, True,
                    limit=max(5.0, 3 * value("p999")[CONTROL]), note="5 ms or 3 x control",
                    errors=wrong),
                longest("M9", f"{name} at 60 %, {length} s: longest", 50, rounds),
                row("M9", f"{name} at 95 %, {held} s: p99.9", "ms", value("p999_95")),
                row("M9", f"{name} at 95 %, {held} s: longest wait by our own causes", "ms",
                    value("wait"), None, True, limit=5)]
    finally:
        pair.stop()
