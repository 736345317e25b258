"""B1: a hot row. All clients update one row in autocommit, or each takes the first row that is free
(SKIP LOCKED): all commits, how even the clients fare, the longest wait; binlog off and on, with and
without a sync at commit. The control of the longest wait: each client updates a row of its own, so
that no queue of a row has part in it. `python3 scripts/compare --only hot`;
EVENKEEL_HOT_CLIENTS=16,64 and EVENKEEL_HOT_BINLOG=off take a part."""

import os
from pathlib import Path

import sysbench
from evenness import errors, middle
from pair import Pair
from row import OURS, row

SCRIPT = Path(__file__).with_name("hot.lua")
CLIENTS = tuple(map(int, os.environ.get("EVENKEEL_HOT_CLIENTS", "16,64,128,256").split(",")))
BINLOGS = os.environ.get("EVENKEEL_HOT_BINLOG", "off,on").split(",")
ROWS = 1000
TABLE = "create or replace table hot (id int primary key, v bigint not null) engine={engine}"
FILL = f"insert into hot select seq, 0 from seq_1_to_{ROWS}"
DURABLE = {"InnoDB": "innodb_flush_log_at_trx_commit", OURS: "evenkeel_flush_at_commit"}
BINLOG = ["--log-bin=binlog", "--binlog-format=ROW", "--server-id=1", "--sync-binlog=0"]
# The slowest client has this share of the mean; nobody waits longer than so many turns of all.
EVEN, TURNS = 0.5, 2
WHAT = {"update": "update one row", "own": "update a row of its own", "skip": "skip one row"}


def work(server, mode, clients, durable, length, folder):
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*.hot"):
        file.unlink()
    if server.engine in DURABLE:
        server.sql(f"set global {DURABLE[server.engine]} = {durable}")
    sizes = {"tables": 1, "rows": ROWS, "flags": [f"--dir={folder}", f"--mode={mode}"]}
    result = sysbench.run(server, str(SCRIPT), sizes, length, clients)
    found = [list(map(float, file.read_text().split())) for file in folder.glob("*.hot")]
    done = [count for count, _ in found]
    mean = sum(done) / clients
    # With all clients in turn each gets its turn in so many us.
    turn = length * 1e6 / max(mean, 1)
    return {"tps": result["tps"], "errors": result["errors"],
            "even": min(done) / mean if mean else 0, "turns": max(us for _, us in found) / turn,
            "longest": max(us for _, us in found) / 1e3}


def cell(pair, base, plan, seen, mode, clients, durable, what):
    rounds = []
    for _ in range(plan.rounds):
        measure = lambda s: work(s, mode, clients, durable, plan.length(10),
                                 Path(base) / f"{s.engine}.hot")
        rounds.append(pair.each(what, measure))
        for engine, got in rounds[-1].items():
            seen(f"B1 {what} {engine}: {got['tps']:.0f} tps, slowest/mean {got['even']:.2f}, longest "
                 f"{got['longest']:.1f} ms = {got['turns']:.2f} turns, errors {got['errors']}")
    failed = errors(rounds)
    found = [row("B1", what, "tps", middle(rounds, "tps"), 1.0, errors=failed)]
    if mode == "update":
        found += [row("B1", f"{what}: slowest client / mean", "", middle(rounds, "even"), None,
                      False, "", EVEN, failed),
                  row("B1", f"{what}: longest wait in turns", "", middle(rounds, "turns"), None, True,
                      "beside the control below", TURNS, failed),
                  row("B1", f"{what}: longest wait", "ms", middle(rounds, "longest"), None, True,
                      errors=failed)]
    if mode == "own":
        found = [row("B1", f"{what}: longest wait, the control", "ms", middle(rounds, "longest"), None,
                     True, "no row is shared: what is long here is not a queue's", errors=failed)]
    return found


def hot(base, plan, seen):
    found = []
    for binlog in BINLOGS:
        folder = Path(base) / f"binlog-{binlog}"
        folder.mkdir()
        pair = Pair(folder, plan, plan.bytes(512 << 20), seen, extra=BINLOG if binlog == "on" else [])
        try:
            pair.prepare("B1", lambda s: s.sql("create or replace database sbtest; use sbtest;"
                                               f"{TABLE.format(engine=s.engine)}; {FILL}"))
            for durable in (1, 0):
                on = f"binlog {binlog}, durability {durable}"
                for clients in CLIENTS:
                    for mode in ("update", "own", "skip"):
                        if mode != "skip" or clients <= 128:
                            what = f"{WHAT[mode]}, {clients} clients, {on}"
                            found += cell(pair, folder, plan, seen, mode, clients, durable, what)
        finally:
            pair.stop()
    return found
