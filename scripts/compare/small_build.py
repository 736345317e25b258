"""M6, small: ADD INDEX on a table of 200,000 rows, twenty times in a row, alone and beside users of
others, all cached. The figures are those of the twenty together."""

import time

import sysbench
from alter import ADD, DROP, small_table
from evenness import middle
from pair import Pair
from row import row

BUILDS = 20
BEFORE_S = 10


def builds(server):
    """Seconds of the ADD INDEX statements together."""
    took = 0.0
    for _ in range(BUILDS):
        begun = time.monotonic()
        server.sql(ADD, "small")
        took += time.monotonic() - begun
        server.sql(DROP, "small")
    return took


def updates(server):
    """Rows that users have changed since the server began, and when that was read."""
    return sum(server.status("Com_update").values()), time.monotonic()


def rate(server, seconds):
    first, begun = updates(server)
    time.sleep(seconds)
    last, ended = updates(server)
    return (last - first) / (ended - begun)


def figures(server, sizes, seconds, clients):
    small_table(server, sizes["small"])
    idle = builds(server)
    load = sysbench.Run(server, "update_non_index", sizes, 3600, clients)
    load.wait(seconds)
    before = rate(server, BEFORE_S)
    first, begun = updates(server)
    loaded = builds(server)
    last, ended = updates(server)
    after = rate(server, BEFORE_S)
    load.end()
    # The rate drifts while pages become dirty: what it would have been is between both.
    lost = (before + after) / 2 * (ended - begun) - (last - first)
    return {"idle": idle, "loaded": loaded, "ratio": loaded / idle, "before": before, "lost": lost}


def small_builds(base, plan, seen):
    sizes = {"tables": 4, "rows": plan.rows(500_000), "small": plan.rows(200_000)}
    pair = Pair(base, plan, plan.bytes(2 << 30), seen, alone=True)

    def work(server):
        found = figures(server, sizes, plan.length(10), 16)
        seen(f"M6 small {server.engine}: {BUILDS} builds: idle {found['idle']:.2f} s, loaded "
             f"{found['loaded']:.2f} s, {found['lost']:.0f} updates lost, {found['before']:.0f} a second before")
        return found

    try:
        pair.prepare("M6", lambda server: sysbench.prepare(server, sizes))
        rounds = [pair.each("M6 small", work) for _ in range(plan.rounds)]
        value = lambda key: middle(rounds, key)
        theirs = value("lost").get("InnoDB")
        what = f"{BUILDS} ADD INDEX of {sizes['small']:,} rows"
        return [row("M6", f"{what}, idle", "s", value("idle")),
                row("M6", f"{what}, beside update_non_index", "s", value("loaded"), 1.3, True),
                row("M6", f"{what}, beside update_non_index / idle", "", value("ratio"), None, True, limit=1.5),
                row("M6", f"updates before {what}", "a second", value("before")),
                row("M6", f"updates lost by {what}", "", value("lost"), None, True,
                    limit=None if theirs is None else 1.05 * max(theirs, 0), note="1.05 x InnoDB's")]
    finally:
        pair.stop()
