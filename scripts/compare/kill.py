"""M11: KILL of what a server may be at, from the KILL until its client has ended."""

import subprocess
import time

import sysbench
from evenness import middle
from pair import Pair
from row import row
from server import Failed

# What, the statement, what comes before it in the same session. Each that writes has a table of its
# own: others may still be at taking back what it did.
STATEMENTS = (
    ("a long SELECT", "select count(*) from sbtest1 a join sbtest1 b on a.c < b.c", ""),
    ("INSERT ... SELECT", "insert into copied select * from sbtest1", ""),
    ("CREATE TABLE ... SELECT", "create table made as select * from sbtest1", ""),
    ("a bulk UPDATE", "update sbtest2 set c = reverse(c), k = k + 1", ""),
    ("the rollback of a bulk UPDATE", "rollback",
     "begin; update sbtest3 set c = reverse(c), k = k + 1;"),
    ("a bulk DELETE", "delete from sbtest4", ""),
    ("a wait for a row lock", "update locked set k = 2 where id = 1", ""),
    ("a wait for a table's definition", "alter table locked add column v int", ""),
    ("ADD INDEX", "alter table sbtest1 add index c_pad (c, pad)", ""),
    ("a copying ALTER", "alter table sbtest1 force, algorithm=copy", ""),
    ("CHECK TABLE", "check table sbtest1 extended", ""),
    ("ANALYZE TABLE", "analyze table sbtest1 persistent for all", ""),
)
AT_WORK_S, GIVEN_UP_S = 0.2, 120


def at_work(server, statement, before=""):
    """A client and the number of its connection once the statement runs; none if it was over."""
    client = server.sql_later(f"{before}{statement};", "sbtest")
    while not (running := server.sql("select id from information_schema.processlist where "
                                     f"info = '{statement}' and command = 'Query'")):
        if client.poll() is not None:
            return client, None
        time.sleep(0.01)
    return client, running[0][0]


def killed(server, statement, before):
    """Seconds from the KILL until the client has ended; None if the statement was over before."""
    client, number = at_work(server, statement, before)
    time.sleep(AT_WORK_S)
    begun = time.monotonic()
    if number is None or server.sql(f"kill {number}", check=False) is None:
        return None
    try:
        client.wait(timeout=GIVEN_UP_S)
    except subprocess.TimeoutExpired:
        client.kill()
    return time.monotonic() - begun


def of_rounds(what, rounds):
    values = middle(rounds, what)
    early = [e for found in rounds[:1] for e in found if e not in values]
    note = f"over before its KILL: {', '.join(early)}" if early else ""
    return row("M11", f"KILL of {what}", "s", values, None, True, limit=1, note=note)


def kills(base, plan, seen):
    sizes = {"tables": 4, "rows": plan.rows(2_000_000), "cache": plan.bytes(1 << 30)}
    pair = Pair(base, plan, sizes["cache"], seen)

    def work(server):
        server.sql("drop table if exists copied, made, locked; create table copied like sbtest1;"
                   f"create table locked (id int primary key, k int) engine={server.engine};"
                   "insert into locked values (1, 1)", "sbtest")
        holder, number = at_work(server, "select sleep(3600)",
                                 "begin; update locked set k = 3 where id = 1;")
        if number is None:
            raise Failed(f"{server.engine}: no row lock: {holder.stdout.read()}")
        found = {}
        for what, statement, before in STATEMENTS:
            found[what] = killed(server, statement, before)
            took = "over before its KILL" if found[what] is None else f"{found[what]:.2f} s"
            seen(f"M11 {server.engine}: {what}: {took}")
        server.sql(f"kill {number}")
        holder.wait()
        return found

    try:
        pair.prepare("M11", lambda server: sysbench.prepare(server, sizes))
        rounds = [pair.each("M11", work) for _ in range(plan.rounds)]
        return [of_rounds(what, rounds) for what, *_ in STATEMENTS]
    finally:
        pair.stop()
