"""M6: ADD INDEX on a table of a million rows beside users of others, and alone. Each ADD INDEX under
load is set beside the five seconds before it."""

import functools
import statistics
import time

import control
import sysbench
from evenness import errors, even, middle
from pair import Pair
from report import shown
from row import OURS, row
from server import Failed
from watch import Watch

ADD, DROP = "alter table t add index c_k (c, k)", "alter table t drop index c_k"
BEFORE_S = 5
# Rows that a transaction of the load changes.
CHANGED = {"update_non_index": 1, "write_only": 4}
# Name, test, clients, cache.
LOADS = (("update_non_index", "update_non_index", 16, 12 << 30),
         ("write_only at 64 threads", "write_only", 64, 12 << 30),
         ("update_non_index, IO-bound", "update_non_index", 16, 1 << 30))


def small_table(server, rows):
    server.sql("create or replace database small")
    server.sql(f"create table t (id bigint primary key, k int, c varchar(120)) "
               f"engine={server.engine};"
               f"insert into t select seq, seq * 7919 % 1000003, repeat(char(97 + seq % 26), 40) "
               f"from seq_1_to_{rows}", "small")


def timed(server):
    begun = time.monotonic()
    server.sql(ADD, "small")
    took = time.monotonic() - begun
    server.sql(DROP, "small")
    return took


def windows(server, load, seconds):
    """Adds and drops the index from a third of the load's time on: when each ADD INDEX began and
    ended, seconds since the load began."""
    found = []
    under_way = load.wait(seconds / 3)
    while under_way and load.wait(load.age() + BEFORE_S + 1):
        at = load.age()
        took = timed(server)
        if at + took + 1 > seconds:
            break
        found.append((at, at + took))
    return found


def during(window, per_second):
    """The numbers of its seconds, the rate before it, its own seconds' rates."""
    numbers = range(int(window[0]), min(int(window[1]) + 1, len(per_second)))
    before = statistics.median(per_second[max(numbers.start - BEFORE_S, 0):numbers.start])
    return numbers, before, [per_second[i] for i in numbers]


def worst(found, per_second):
    ratios = [min(rates) / before for _, before, rates in
              (during(window, per_second) for window in found) if before and rates]
    return min(ratios, default=None)


def figures(server, sizes, seconds, clients, test, asked):
    """Of one round on one server."""
    small_table(server, sizes["small"])
    sysbench.fill(server, sizes, seconds)
    idle = statistics.median(timed(server) for _ in range(3))
    load = sysbench.Run(server, test, sizes, seconds, clients)
    with Watch(server) as watch:
        load.wait(seconds / 3 - 1)
        dirty = server.dirty_share()
        found = windows(server, load, seconds)
        result = load.result()
    if not found:
        raise Failed(f"no ADD INDEX on {server.engine} ended within its load of {seconds} s")
    per_second, lost, slow = result["per_second"], [], []
    for window in found:
        numbers, before, rates = during(window, per_second)
        lost.append(sum(before - rate for rate in rates))
        slow += [i for i, rate in zip(numbers, rates) if rate < asked * before]
    took = statistics.median(end - begin for begin, end in found)
    return {"idle": idle, "loaded": took, "ratio": took / idle, "lost": statistics.median(lost),
            "worst": worst(found, per_second), "own": watch.own_share(load.begun, slow, clients),
            "dirty": dirty, "tps": result["tps"], "errors": result["errors"], "windows": found,
            "per_second": per_second}


def add_index(base, plan, seen, loads=LOADS):
    """The machine has no room for the caches of all: one server runs at a time."""
    sizes = {"tables": 8, "rows": plan.rows(5_000_000), "small": plan.rows(1_000_000)}
    pair, rows = Pair(base, plan, plan.bytes(12 << 30), seen, log="8G", alone=True), []
    try:
        pair.prepare("M6", lambda server: sysbench.prepare(server, sizes))
        for load in loads:
            rows += beside(base, plan, pair, sizes, *load)
        return rows
    finally:
        pair.stop()


def beside(base, plan, pair, sizes, name, test, clients, cache):
    seconds, asked = plan.length(300), 0.80
    for server in pair.servers.values():
        server.cache = plan.bytes(cache)

    def work(server):
        found = figures(server, sizes, seconds, clients, test, asked)
        pair.seen(f"M6 {name} {server.engine}: ADD INDEX idle {found['idle']:.2f} s, loaded "
                  f"{found['loaded']:.2f} s ({len(found['windows'])} times), worst second "
                  f"{shown(found['worst'])}, {found['lost']:.0f} transactions lost of "
                  f"{found['tps']:.0f} a second")
        return found

    rounds = control.rounds(plan, pair, f"M6 {name}", work, lambda: control.run(
        base, seconds, CHANGED[test], clients=clients))
    # The control's worst second is that of the same seconds of its run as ours.
    for found in rounds:
        found["control"]["worst"] = worst(found[OURS]["windows"], found["control"]["per_second"])
    value, wrong = lambda key: middle(rounds, key), errors(rounds)
    theirs = value("lost").get("InnoDB")
    rows = [row("M6", f"beside {name}", "tps", value("tps"), errors=wrong),
            row("M6", f"beside {name}: cache dirty when it begins", "", value("dirty")),
            row("M6", f"ADD INDEX, idle, before {name}", "s", value("idle"), 0.7, True),
            row("M6", f"ADD INDEX beside {name}", "s", value("loaded"), 1.0, True, errors=wrong),
            row("M6", f"ADD INDEX beside {name} / idle", "", value("ratio")),
            even("M6", f"beside {name}: worst second / before", asked, rounds, seconds),
            # Not as a ratio: of two engines that lose nothing it says nothing.
            row("M6", f"beside {name}: transactions lost by an ADD INDEX", "", value("lost"), None,
                True, limit=None if theirs is None else 0.5 * max(theirs, 0), errors=wrong,
                note="0.5 x InnoDB's")]
    rows[0]["runs"] = {e: [found[e] for found in rounds if e in found] for e in pair.servers}
    return rows


# A load alone.
PARTS = {f"ddl-{name}": functools.partial(add_index, loads=[load])
         for name, load in zip(("update", "write", "io"), LOADS, strict=True)}
