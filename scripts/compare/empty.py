"""M7: ADD and DROP INDEX on an empty table among thousands, with most of the cache dirty."""

import statistics

import sysbench
from evenness import middle
from pair import Pair
from row import OURS, row

PAIRS = 200
# The server's own clock, so that no client's start counts.
TIMED = ("set @begun = sysdate(6); alter table e add index k (k); alter table e drop index k; "
         "select timestampdiff(microsecond, @begun, sysdate(6));")


def empty_tables(server, count):
    columns = f"(id bigint primary key, k int, c varchar(120)) engine={server.engine};"
    server.sql("create or replace database small; create or replace database others")
    server.sql("create table e " + columns, "small")
    server.sql("".join(f"create table t{n} {columns}" for n in range(count)), "others")


def pairs_ms(server):
    times = server.sql(TIMED * PAIRS, "small")
    return statistics.median(int(us) for us, in times) / 1000


def add_drop(base, plan, seen):
    sizes = {"tables": 4, "rows": plan.rows(800_000), "cache": plan.bytes(1 << 30)}
    count = max(int(10_000 * plan.scale), 10)
    pair = Pair(base, plan, sizes["cache"], seen)

    def prepare(server):
        sysbench.prepare(server, sizes)
        empty_tables(server, count)

    def work(server):
        sysbench.fill(server, sizes, plan.length(60))
        dirty = server.dirty_share()
        page_reads = lambda: sum(server.status("Evenkeel_page_reads").values())
        at_first = page_reads()
        server.sql(TIMED, "small")
        before = page_reads()
        idle = pairs_ms(server)
        after = page_reads()
        # Longer than the pairs of any engine take; cut off after them.
        load = sysbench.Run(server, "update_non_index", sizes, 3600, 16)
        load.wait(2)
        loaded = pairs_ms(server)
        load.end()
        seen(f"M7 {server.engine}: a pair takes {idle:.2f} ms idle, {loaded:.2f} ms loaded; dirty at "
             f"the start {dirty or 0:.0%}")
        found = {"idle": idle, "loaded": loaded, "dirty": dirty}
        if server.engine == OURS:
            found |= {"first": before - at_first, "reads": after - before}
        return found

    try:
        pair.prepare("M7", prepare)
        rounds = [pair.each("M7", work) for _ in range(plan.rounds)]
        value = lambda key: middle(rounds, key)
        what = f"ADD and DROP INDEX on an empty table beside {count:,}"
        return [row("M7", "cache dirty when they begin", "", value("dirty")),
                row("M7", f"{what}, idle, median of {PAIRS}", "ms", value("idle"), 1.1, True),
                row("M7", f"{what}, loaded, median of {PAIRS}", "ms", value("loaded"), 1.1, True),
                row("M7", "pages read by a first pair, idle", "pages", value("first"),
                    note="the way to the table in the catalog, which the fill had evicted"),
                row("M7", f"pages read by the {PAIRS} pairs, idle", "pages", value("reads"), None,
                    True, limit=0,
                    note="visits to pages in memory are counted by the test "
                         "an_index_of_an_empty_table_visits_no_page_of_other_tables")]
    finally:
        pair.stop()
