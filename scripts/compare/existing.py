"""B5: statements that meet rows that exist. INSERT IGNORE of a whole table, single INSERTs that fail,
and a locking scan, each by the server's own clock. `python3 scripts/compare --only existing`."""

import statistics

from evenness import middle
from pair import Pair
from row import row

TIMES = 5
FAILING = 20_000
COLUMNS = "(id bigint primary key, k int, c varchar(120), key (k))"
# Each inserts a row that exists; the handler goes on behind the error.
FAIL = """create or replace procedure fail(n int)
begin
  declare continue handler for 1062 begin end;
  for i in 1..n do insert into t values (i, i, 'exists'); end for;
end"""
CASES = {
    "INSERT IGNORE .. SELECT of all rows": "insert ignore into t select * from s",
    f"{FAILING:,} INSERTs that fail": f"call fail({FAILING})",
    "SELECT .. FOR UPDATE of all rows": "select count(c) into @n from t for update",
    "SELECT .. LOCK IN SHARE MODE of all rows": "select count(c) into @n from t lock in share mode",
}


def fill(server, rows):
    server.sql("create or replace database existing")
    values = f"select seq, seq % 1000, repeat('c', 100) from seq_1_to_{rows}"
    for name in ("t", "s"):
        server.sql(f"create table {name} {COLUMNS} engine={server.engine}; insert into {name} {values}", "existing")
    server.sql(f"delimiter //\n{FAIL}//\ndelimiter ;\nanalyze table t, s", "existing")


def time_ms(server, statement):
    """Of the statement in a transaction of its own, which is rolled back behind the clock."""
    found = server.sql(f"begin; set @begun = sysdate(6); {statement}; "
                       "select timestampdiff(microsecond, @begun, sysdate(6)); rollback", "existing")
    return int(found[-1][0]) / 1000


def existing(base, plan, seen):
    rows = plan.rows(200_000)
    pair = Pair(base, plan, plan.bytes(1 << 30), seen)

    def work(server):
        found = {}
        for what, statement in CASES.items():
            time_ms(server, statement)
            found[what] = statistics.median(time_ms(server, statement) for _ in range(TIMES))
            seen(f"B5 {server.engine}: {what}: {found[what]:.1f} ms")
        return found

    try:
        pair.prepare("B5", lambda server: fill(server, rows))
        rounds = [pair.each("B5", work) for _ in range(plan.rounds)]
        return [row("B5", f"{what}, {rows:,} rows", "ms", middle(rounds, what), 1.5, True)
                for what in CASES]
    finally:
        pair.stop()
