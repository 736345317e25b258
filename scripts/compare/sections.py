"""What is compared: each section gives rows. Engines take turns in every round; medians count."""

import statistics
import time

import sysbench
from inserts import insert_cached, insert_io_bound
from pair import Pair
from row import row
from steady import long, open_loop


def sysbench_tests(base, plan, bar, sizes, wanted, seen):
    """M1 and M2: each test in rounds. `wanted`: by test, the bar against InnoDB or by peer."""
    pair = Pair(base, plan, sizes["cache"], seen)
    rows = []
    try:
        able = pair.each(f"{bar} prepare", lambda s: sysbench.prepare(s, sizes) or True)
        runs = {test: {engine: [] for engine in plan.engines} for test in wanted}
        for test in wanted:
            for _ in range(plan.rounds):
                got = pair.each(f"{bar} {test}", lambda s: s.engine in able
                                and sysbench.run(s, test, sizes, plan.seconds))
                for engine, result in got.items():
                    if not result:
                        continue
                    runs[test][engine].append(result)
                    seen(f"{bar} {test} {engine}: {result['tps']:.0f} tps, worst second "
                         f"{result['worst_second_ratio']:.2f}, errors {result['errors']}")
        for test, least in wanted.items():
            done = {e: r for e, r in runs[test].items() if r}
            middle = lambda key: {e: statistics.median(r[key] for r in of) for e, of in done.items()}
            errors = {e: sum(r["errors"] + r["reconnects"] for r in of) for e, of in done.items()}
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


def small_table(server, rows):
    server.sql("create or replace database small")
    server.sql(f"create table t (id bigint primary key, k int, c varchar(120)) "
               f"engine={server.engine};"
               f"insert into t select seq, seq * 7919 % 1000003, repeat(char(97 + seq % 26), 40) "
               f"from seq_1_to_{rows}", "small")


def timed_alter(server):
    begun = time.monotonic()
    server.sql("alter table t add index c_k (c, k)", "small")
    took = time.monotonic() - begun
    server.sql("alter table t drop index c_k", "small")
    return took


def ddl_under_load(base, plan, seen):
    """M6: ADD INDEX on one table while others are updated; M7: on an empty table."""
    sizes = {"tables": 4, "rows": plan.rows(500_000), "cache": plan.bytes(1 << 30)}
    pair = Pair(base, plan, sizes["cache"], seen)
    seconds = max(plan.seconds * 3, 15)

    def work(server):
        small_table(server, plan.rows(1_000_000))
        idle = statistics.median(timed_alter(server) for _ in range(3))
        load = sysbench.Run(server, "update_non_index", sizes, seconds, 16)
        time.sleep(seconds / 3)
        # Long enough for three on every machine: the load is cut off at its own end.
        loads, begun = [], time.monotonic()
        while len(loads) < 3 and time.monotonic() - begun < seconds / 2:
            loads.append(timed_alter(server))
        loaded, lasted = statistics.median(loads), time.monotonic() - begun
        result = load.result()
        before = statistics.median(result["per_second"][1:int(seconds / 3)])
        during = result["per_second"][int(seconds / 3):int(seconds / 3 + lasted) + 1]
        server.sql("create or replace table small.e (id bigint primary key, k int, c varchar(120)) "
                   f"engine={server.engine}")
        load = sysbench.Run(server, "update_non_index", sizes, max(plan.seconds, 8), 16)
        time.sleep(1)
        pairs = 100
        begun = time.monotonic()
        server.sql("alter table e add index k (k); alter table e drop index k;" * pairs, "small")
        small = (time.monotonic() - begun) / pairs / 2
        load.result()
        seen(f"M6 {server.engine}: ALTER idle {idle:.2f} s, loaded {loaded:.2f} s, worst second "
             f"{min(during) / before:.2f}; M7: {small * 1000:.2f} ms loaded")
        return {"idle": idle, "loaded": loaded, "worst": min(during) / before, "small": small * 1000,
                "per_second": result["per_second"]}

    try:
        able = pair.each("prepare", lambda s: sysbench.prepare(s, sizes) or True)
        got = pair.each("M6 and M7", lambda s: s.engine in able and work(s))
        got = {engine: result for engine, result in got.items() if result}
        value = lambda key: {e: r[key] for e, r in got.items()}
        rows = [row("M6", "ADD INDEX, idle", "s", value("idle"), 0.7, True),
                row("M6", "ADD INDEX beside update_non_index", "s", value("loaded"), 1.0, True),
                row("M6", "worst second during it / median before", "", value("worst"),
                    limit=0.80),
                row("M7", "ADD or DROP INDEX on an empty table, loaded", "ms", value("small"), 1.1,
                    True)]
        rows[1]["runs"] = {e: [r] for e, r in got.items()}
        return rows
    finally:
        pair.stop()


def restart(base, plan, seen):
    """M10: kill -9 under write_only; M11: KILL of a long statement."""
    sizes = {"tables": 4, "rows": plan.rows(500_000), "cache": plan.bytes(1 << 30)}
    pair = Pair(base, plan, sizes["cache"], seen)

    def work(server):
        load = sysbench.Run(server, "write_only", sizes, max(plan.seconds, 8), 16)
        time.sleep(max(plan.seconds, 8) - 1)
        server.kill()
        before = load.result(may_fail=True)["per_second"]
        open_s = server.start()
        server.sql("select count(*) from sbtest1 where id < 100", "sbtest")
        after = sysbench.run(server, "write_only", sizes, max(plan.seconds, 8))["per_second"]
        ratio = min(after[1:]) / statistics.median(before[1:])
        long = server.sql_later("select count(*) from sbtest1 a join sbtest1 b on a.c < b.c",
                                "sbtest")
        time.sleep(1)
        running = server.sql("select id from information_schema.processlist "
                             "where info like 'select count(*) from sbtest1 a%'")
        begun = time.monotonic()
        server.sql(f"kill {running[0][0]}")
        long.wait()
        kill_s = time.monotonic() - begun
        seen(f"M10 {server.engine}: first query {open_s:.2f} s after kill -9, worst second "
             f"{ratio:.2f}; M11: KILL {kill_s:.2f} s")
        return {"open": open_s, "worst": ratio, "kill": kill_s}

    try:
        able = pair.each("prepare", lambda s: sysbench.prepare(s, sizes) or True)
        got = pair.each("M10 and M11", lambda s: s.engine in able and work(s))
        got = {engine: result for engine, result in got.items() if result}
        value = lambda key: {e: r[key] for e, r in got.items()}
        return [row("M10", "first query after kill -9", "s", value("open"), None, True,
                    limit=2),
                row("M10", "worst second after it / median before", "", value("worst"),
                    limit=0.90),
                row("M11", "KILL of a join", "s", value("kill"), None, True, limit=1)]
    finally:
        pair.stop()


SECTIONS = {"memory": in_memory, "io": io_bound, "insert": insert_cached,
            "insert-io": insert_io_bound, "ddl": ddl_under_load, "restart": restart, "long": long,
            "open": open_loop}
# Hours: only when asked for.
LENGTHY = ("long", "open")
