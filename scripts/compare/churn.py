"""M12: a queue. Rows come at one end and go at the other, for an hour: what a delete and a search
for the lowest row take at the end beside the beginning, and the space of the engine's files."""

from collections import Counter
from pathlib import Path

import sysbench
from evenness import BAR_SECONDS, errors, middle
from pair import Pair
from report import shown
from row import OURS, row
from server import Failed

SCRIPT = Path(__file__).with_name("queue.lua")
CLIENTS, BLOCK = 8, 10
TABLE = """create or replace table queue (id bigint auto_increment primary key, k int not null, came int not null,
    pad char(100) charset latin1 not null, key (k), key (came)) engine={engine}"""
ROWS = """insert into queue select seq, seq * 7919 % 1000003, seq div 100,
    concat(md5(seq), md5(seq * 5), md5(seq * 3), left(md5(seq * 7), 4)) from seq_{first}_to_{last}"""
# The values of a row, and its entries of two indexes: what they have and the primary key.
ROW_BYTES = (8 + 4 + 4 + 100) + 2 * (4 + 8)
FLAT, SPACE, SPACE_EVERY_S = 1.25, 1.3, 5
# In the server's directory; the log is of a size of its own.
FILES = {"InnoDB": ("sbtest", "ibdata1"), "ROCKSDB": ("#rocksdb",), "EVENKEEL": ("#evenkeel",)}
LOG_FOLDER, LOG_SUFFIX = "wal", ".log"
# As in queue.lua.
STEP = 1.02


def fill(server, rows):
    server.sql("create or replace database sbtest")
    server.sql(TABLE.format(engine=server.engine), "sbtest")
    for first in range(1, rows + 1, 100_000):
        server.sql(ROWS.format(first=first, last=min(first + 99_999, rows)), "sbtest")


def space(data, engine):
    """Bytes that the engine's files take, but for its log."""
    found = 0
    for top in (Path(data) / name for name in FILES[engine]):
        for file in [top] if top.is_file() else top.rglob("*"):
            if LOG_FOLDER not in file.relative_to(data).parts and file.suffix != LOG_SUFFIX:
                try:
                    found += file.stat().st_blocks * 512 if file.is_file() else 0
                except FileNotFoundError:
                    # It went meanwhile.
                    pass
    return found


def seconds_of(texts):
    """By what was done: the buckets of each second in which some of it ended, of all clients."""
    found = {}
    for line in "\n".join(texts).split("\n"):
        if line:
            second, what, *pairs = line.split()
            buckets = found.setdefault(what, {}).setdefault(int(second), Counter())
            buckets.update(dict(zip(map(int, pairs[::2]), map(int, pairs[1::2]))))
    return found


def of_share(buckets, share):
    """Milliseconds in which that share of them was done."""
    left = sum(buckets.values()) * share
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 1e-6:
            return STEP ** bucket / 1000
    return None


def tenths(seconds):
    """All that was done in the first tenth of the time, and in the last."""
    first, last = min(seconds), max(seconds) + 1
    part = max((last - first) // 10, 1)
    add = lambda asked: sum((seconds.get(s, Counter()) for s in asked), Counter())
    return add(range(first, first + part)), add(range(last - part, last))


def growth(seconds, share):
    begin, end = (of_share(part, share) for part in tenths(seconds))
    return end / begin if begin and end else None


def figures(seconds):
    """What a run's deletes and searches took, and how much more at its end."""
    deletes, searches = seconds["delete"], seconds["min"]
    all_of = lambda of: sum(of.values(), Counter())
    each = lambda of: [of_share(of[second], 0.99) for second in sorted(of)]
    return {"blocks": sum(all_of(deletes).values()),
            "per_second": [sum(deletes[second].values()) for second in sorted(deletes)],
            "delete": of_share(all_of(deletes), 0.99), "min": of_share(all_of(searches), 0.99),
            "min_median": of_share(all_of(searches), 0.5),
            "delete_grown": growth(deletes, 0.99), "min_grown": growth(searches, 0.99),
            "min_median_grown": growth(searches, 0.5),
            "deletes": each(deletes), "searches": each(searches)}


def churned(server, sizes, length, folder):
    """One run, which goes on where the one before ended."""
    folder.mkdir(exist_ok=True)
    flags = {"flags": [f"--dir={folder}"]}
    load = sysbench.Run(server, str(SCRIPT), sizes | flags, length, CLIENTS)
    most = 0
    while load.wait(load.age() + SPACE_EVERY_S):
        most = max(most, space(server.dir / "data", server.engine))
    result = load.result()
    rows = int(server.sql("select count(*) from queue", "sbtest")[0][0])
    if abs(rows - sizes["rows"]) > CLIENTS * BLOCK:
        raise Failed(f"{server.engine}: {rows} rows in a queue of {sizes['rows']}")
    end, live = space(server.dir / "data", server.engine), rows * ROW_BYTES
    found = figures(seconds_of(file.read_text() for file in folder.glob("*.times")))
    return found | {"tps": found["blocks"] / length, "errors": result["errors"],
                    "replaced": found["blocks"] * BLOCK / rows, "space": end / live,
                    "space_most": max(most, end) / live}


def rows_of(what, rounds, length):
    """Met if flat; a run that is short, or that did not replace the queue, cannot tell."""
    replaced = min(of[OURS]["replaced"] for of in rounds)
    counts, note = length >= BAR_SECONDS and replaced >= 1, ""
    if not counts:
        note = f"too short to count: {length} s, replaced {replaced:.1f} times"
    value = lambda key: middle(rounds, key)
    flat = lambda name, key: row("M12", f"{what}: {name}, last tenth / first", "", value(key), None,
                                 True, note, FLAT, errors(rounds), counts=counts)
    figure = lambda name, unit, key: row("M12", f"{what}: {name}", unit, value(key), None, True)
    found = [row("M12", what, "blocks/s", value("tps"), errors=errors(rounds)),
             figure("times replaced", "", "replaced"),
             figure("delete p99", "ms", "delete"), figure("min(pk) p99", "ms", "min"),
             figure("min(pk) median", "ms", "min_median"),
             flat("delete p99", "delete_grown"), flat("min(pk) p99", "min_grown"),
             flat("min(pk) median", "min_median_grown"),
             figure("highest space / live data", "", "space_most"),
             row("M12", f"{what}: space / live data at the end", "", value("space"), None, True,
                 note, SPACE, counts=counts)]
    for at, key in enumerate(("per_second", None, "deletes", "searches")):
        if key:
            found[at]["runs"] = {e: [{"per_second": of[e][key]} for of in rounds if e in of]
                                 for e in rounds[0]}
    return found


def queue(base, plan, seen):
    blocks = CLIENTS * BLOCK
    sizes = {"tables": 1, "rows": plan.rows(8_000_000) // blocks * blocks}
    length = plan.length(3600)
    pair = Pair(base, plan, plan.bytes(512 << 20), seen)

    def work(server):
        found = churned(server, sizes, length, Path(base) / f"{server.engine}.queue")
        seen(f"M12 {server.engine}: {found['tps']:.0f} blocks/s, replaced {found['replaced']:.1f} "
             f"times; delete p99 {found['delete']:.2f} ms, last tenth / first "
             f"{shown(found['delete_grown'])}; min(pk) p99 {found['min']:.2f} ms, "
             f"{shown(found['min_grown'])}, median {found['min_median']:.2f} ms, "
             f"{shown(found['min_median_grown'])}; space / live data {found['space']:.2f}, highest "
             f"{found['space_most']:.2f}")
        return found

    try:
        pair.prepare("M12", lambda server: fill(server, sizes["rows"]))
        rounds = [pair.each("M12", work) for _ in range(plan.rounds)]
        return rows_of(f"queue of {sizes['rows']:,} rows, {length} s", rounds, length)
    finally:
        pair.stop()
