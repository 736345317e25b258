"""B6: foreign keys. DELETE of a parent row with 100,000 children and an update of its key, which
cascade, each committed; and what a key costs INSERTs of children, next to the same INSERTs into a
table without it. `python3 scripts/compare --only cascade`."""

import statistics

from evenness import middle
from pair import Pair
from row import row

CHILDREN = 100_000
# Parents for each cascade, and runs of each kind of INSERT.
TIMES = 3
INSERTS = 20_000
BY_CLIENT = 5_000
CASES = {
    "DELETE, ON DELETE CASCADE": "delete from p where id = {}",
    "UPDATE, ON UPDATE CASCADE": "update p set id = id + 1000 where id = {}",
}
# Single INSERTs by a client, the same without a client's overhead, and one that inserts many rows.
KEYED = {
    f"{BY_CLIENT:,} INSERTs by a client": "; ".join(
        f"insert into {{0}} values ({i}, {1 + i % 100}, 'row')" for i in range(BY_CLIENT)),
    f"{INSERTS:,} INSERTs in a procedure": "call fill_{}(" + str(INSERTS) + ")",
    f"INSERT .. SELECT of {CHILDREN:,} rows": "insert into {} select seq, 1 + seq % 100, 'row' from "
                                              f"seq_1_to_{CHILDREN}",
}
CHILD = "(id bigint primary key, p int, c varchar(60), key (p){}) engine={}"
KEY = ", foreign key (p) references {} (id) on delete cascade on update cascade"


def fill(server):
    """The children of the parents lie between each other, as rows that were made over time do."""
    parents = TIMES * len(CASES)
    server.sql("create or replace database cascade_")
    procedures = "".join(
        f"create procedure fill_{name}(n int) for i in 1..n do insert into {name} values "
        "(i, 1 + i % 100, 'row'); end for//\n" for name in ("with_key", "without"))
    for statement in [
            f"create table p (id int primary key, c varchar(60)) engine={server.engine}",
            f"create table q (id int primary key, c varchar(60)) engine={server.engine}",
            f"create table c {CHILD.format(KEY.format('p'), server.engine)}",
            f"create table with_key {CHILD.format(KEY.format('q'), server.engine)}",
            f"create table without {CHILD.format('', server.engine)}",
            f"insert into p select seq, 'parent' from seq_1_to_{parents}",
            "insert into q select seq, 'parent' from seq_1_to_100",
            f"insert into c select seq, 1 + seq % {parents}, repeat('c', 50) from "
            f"seq_1_to_{parents * CHILDREN}",
            f"delimiter //\n{procedures}delimiter ;\nanalyze table p, q, c"]:
        server.sql(statement, "cascade_")


def time_ms(server, statement, end):
    """Of the statement in a transaction of its own, with its end if that is a commit."""
    before, behind = (end, "do 0") if end == "commit" else ("do 0", end)
    found = server.sql(f"begin; set @begun = sysdate(6); {statement}; {before}; "
                       f"select timestampdiff(microsecond, @begun, sysdate(6)); {behind}", "cascade_")
    return int(found[-1][0]) / 1000


def work(server, seen):
    """The median of each figure."""
    found = {}
    for n, (what, statement) in enumerate(CASES.items()):
        found[what] = statistics.median(
            time_ms(server, statement.format(1 + n * TIMES + i), "commit") for i in range(TIMES))
        left = int(server.sql("select count(*) from c", "cascade_")[0][0])
        if left != (TIMES * len(CASES) - TIMES) * CHILDREN:
            raise SystemExit(f"{server.engine}: {what}: {left} children are left")
    moved = int(server.sql("select count(*) from c where p > 1000", "cascade_")[0][0])
    if moved != TIMES * CHILDREN:
        raise SystemExit(f"{server.engine}: {moved} children have another parent")
    for what, statement in KEYED.items():
        times = {name: [] for name in ("with_key", "without")}
        for _ in range(TIMES + 1):
            for name, of in times.items():
                of.append(time_ms(server, statement.format(name), "rollback"))
        # The first of each warms up.
        with_key, without = (statistics.median(of[1:]) for of in times.values())
        found[what], found[f"{what}, without a key"] = with_key, without
        found[f"{what}: a key's cost"] = with_key / without
    for what, figure in found.items():
        seen(f"B6 {server.engine}: {what}: {figure:.2f}")
    return found


def cascade(base, plan, seen):
    pair = Pair(base, plan, plan.bytes(2 << 30), seen)
    try:
        rounds = []
        for _ in range(plan.rounds):
            pair.prepare("B6", fill)
            rounds.append(pair.each("B6", lambda server: work(server, seen)))
    finally:
        pair.stop()
    rows = [row("B6", f"{what}, {CHILDREN:,} rows", "ms", middle(rounds, what), 1 / 1.5, True)
            for what in CASES]
    for what in KEYED:
        cost = middle(rounds, f"{what}: a key's cost")
        rows.append(row("B6", what, "ms", middle(rounds, what), less_is_better=True))
        rows.append(row("B6", f"{what}: with a key / without", "x", cost, less_is_better=True,
                        limit=None if "SELECT" in what else 1.15))
    return rows
