"""What is compared: each section gives rows. Engines take turns in every round; medians count."""

import statistics

import alter
import sysbench
from cascade import cascade
from churn import queue
from empty import add_drop
from existing import existing
from hot import hot
from inserts import insert_cached, insert_io_bound
from kill import kills
from pace import open_loop
from pair import Pair
from restart import restart
from report import shown
from row import row
from small_build import small_builds
from steady import long, long_inserts, long_writes


def sysbench_tests(base, plan, bar, sizes, wanted, seen):
    """M1 and M2: each test in rounds. `wanted`: by test, the bar against InnoDB or by peer."""
    pair = Pair(base, plan, sizes["cache"], seen)
    rows = []
    try:
        pair.prepare(bar, lambda server: sysbench.prepare(server, sizes))
        runs = {test: {engine: [] for engine in plan.engines} for test in wanted}
        for test in wanted:
            for _ in range(plan.rounds):
                got = pair.each(f"{bar} {test}",
                                lambda s: sysbench.run(s, test, sizes, plan.length(10)))
                for engine, result in got.items():
                    runs[test][engine].append(result)
                    seen(f"{bar} {test} {engine}: {result['tps']:.0f} tps, worst second "
                         f"{shown(result['worst'])}, errors {result['errors']}")
        for test, least in wanted.items():
            done = {e: r for e, r in runs[test].items() if r}
            middle = lambda key: {e: statistics.median(r[key] for r in of) for e, of in done.items()}
            errors = {e: sum(r["errors"] for r in of) for e, of in done.items()}
            rows.append(row(bar, test, "tps", middle("tps"), least, errors=errors))
            rows[-1]["runs"] = done
            bytes_bar = 1 / 3 if (bar, test) == ("M2", "update_non_index") else None
            rows.append(row(bar, f"{test}: written", "bytes/tx", middle("written_bytes_per_tx"),
                            bytes_bar, True))
            rows.append(row(bar, f"{test}: p99", "ms", middle("p99_ms")))
        peaks = {e: s.peak_bytes() / 2**20 for e, s in pair.servers.items()}
        rows.append(row("M5", f"peak memory of the server after {bar}", "MiB", peaks, 1.1, True))
        return rows
    finally:
        pair.stop()


MEMORY_BARS = {"read_only": 1.0, "point_select": 1.1, "insert": 1.5, "update_non_index": 1.4,
               "update_index": 1.5, "write_only": 1.3, "read_write": 1.1}
IO_BARS = {"point_select": 1.1, "update_non_index": 1.2, "update_index": {"ROCKSDB": 1.2},
           "insert": 1.1, "write_only": {"ROCKSDB": 1.3}, "read_write": 1.2}


def in_memory(base, plan, seen):
    sizes = {"tables": 4, "rows": plan.rows(500_000), "cache": plan.bytes(1 << 30)}
    return sysbench_tests(base, plan, "M1", sizes, MEMORY_BARS, seen)


def io_bound(base, plan, seen):
    sizes = {"tables": 8, "rows": plan.rows(1_000_000), "cache": plan.bytes(256 << 20)}
    return sysbench_tests(base, plan, "M2", sizes, IO_BARS, seen)


SECTIONS = {"memory": in_memory, "io": io_bound, "insert": insert_cached,
            "insert-io": insert_io_bound, "ddl": alter.add_index, **alter.PARTS,
            "ddl-small": small_builds, "empty": add_drop, "existing": existing,
            "cascade": cascade,
            "long": long, "long-writes": long_writes, "long-inserts": long_inserts,
            "open": open_loop, "restart": restart, "kill": kills, "queue": queue,
            "hot": hot}
# Hours: only when asked for.
LENGTHY = ("ddl", *alter.PARTS, "long", "long-writes", "long-inserts", "open", "queue", "hot")
