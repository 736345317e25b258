#!/usr/bin/env python3
"""The same query under many plans, on tables of EVENKEEL and InnoDB: its rows must be the same.

    differential_plans.py --socket S [--seed N] [--rounds N] [--variants N] [--replays DIR]
    differential_plans.py --socket S --replay FILE

Tables, rows, queries and plans come from the seed. A query is made for an access path and a column
(plugin/mariadb/tests/plans/queries.py); it runs on both engines by reading the whole table, then on EVENKEEL by
the plan that it is made for and by plans of chance, in functions, cursors and the like, calm, in a
transaction that has changed rows, and beside another one's. Where EVENKEEL's rows are others, InnoDB
runs the same plan: if it gives the same wrong rows, the fault is the server's, and is only counted.
UPDATE and DELETE by the same conditions are compared by the tables' contents and undone.

A cell (path x kind of column x partitioned) counts where EXPLAIN shows that the plan was taken and
some rows, but not all, came of it. Cells at 0 are topped up; one that stays there fails the run.

Exit: 0 the same, 1 differences (shown with a command that replays them), 2 cells at 0.
"""
import argparse
import collections
import random
import sys
import time

from plans import cells, contexts, failures, queries, schema
from plans.changes import Changer
from plans.client import Refused
from plans.failures import shown
from plans.run import Noted, Runner
from plans.sides import Sides

MODES = [("calm", 1), ("own", 0.5), ("beside", 0.5)]
SHOWN = 12
SHOWN_OF_A_KIND = 3

def tables_of(seed, round_):
    """(kinds, partitioned) of tables in which every kind is, with and without partitions."""
    out = []
    for partitioned in (False, True):
        r = random.Random(f"{seed}/{round_}/{partitioned}")
        kinds = [k for k in schema.KINDS if not cells.excluded("all", k, partitioned)]
        r.shuffle(kinds)
        # The last table takes some of the first's, so that it has four columns too.
        out += [((kinds + kinds[:3])[i:i + 4], partitioned) for i in range(0, len(kinds), 4)]
    return out

def parted(partitioned):
    return "partitioned" if partitioned else "whole"

class Test:
    """A run of the whole test."""
    def __init__(self, args):
        self.args, self.sides, self.noted = args, Sides(args.socket, args.databases), Noted()
        self.made, self.seen = 0, collections.Counter()

    def table(self, kinds, partitioned, number=None):
        number = self.made if number is None else number
        self.made += 1
        table = schema.Table(number, self.args.seed, kinds, partitioned)
        for sql in table.setup():
            self.sides.both(sql)
        self.running = Runner(self.sides, table, self.noted)
        return self.running

    def one(self, runner, path, column):
        query = queries.RECIPES[path](runner.maker, column)
        if query:
            runner.check(query, self.args.variants)

    def whole(self, kinds, partitioned):
        """Every path of every column of one table, in each mode."""
        runner = self.table(kinds, partitioned)
        changer = Changer(runner)
        for mode, share in MODES:
            runner.enter(mode)
            for path, make in queries.RECIPES.items():
                for c in runner.table.columns:
                    if runner.r.random() > share or cells.excluded(path, c.kind, partitioned):
                        continue
                    self.one(runner, path, c)
                    if mode != "beside" and runner.r.random() < 0.3 and (query := make(runner.maker, c)):
                        changer.check(query, 1)
            runner.leave()
        self.top_up(runner, self.args.attempts)
        self.top_up_changes(runner, changer)
        return self.end(runner)

    def top_up_changes(self, runner, changer):
        """More statements of the verbs and paths that none has taken yet."""
        for verb, path, partitioned in cells.changes():
            if partitioned == runner.table.partitioned and not self.noted.changes[verb, path, partitioned]:
                for _ in range(2):
                    query = queries.RECIPES[path](runner.maker, runner.r.choice(runner.table.columns))
                    if query:
                        changer.check(query, 0, verb)

    def top_up(self, runner, attempts):
        """More queries of the paths that the table's kinds still lack."""
        for path in queries.RECIPES:
            for c in runner.table.columns:
                cell = path, c.kind, runner.table.partitioned
                for _ in range(attempts):
                    if self.noted.cells[cell] or cells.excluded(*cell):
                        break
                    self.one(runner, path, c)

    def end(self, runner):
        for failure in runner.failures:
            kind = failure.signature()
            self.seen[kind] += 1
            if self.seen[kind] > SHOWN_OF_A_KIND:
                continue
            failure.reduce()
            if failure.alike:
                # With other rows InnoDB chose another plan; with these it takes this one, and gives the same.
                self.seen[kind] -= 1
                self.noted.counts["wrong or refused in InnoDB alike, with fewer rows"] += 1
                self.noted.alike.append((kind, "fewest rows", failure.asked, shown(failure.got), shown(failure.wanted)))
                continue
            if len(self.seen) <= SHOWN:
                failure.show(f"{self.args.replays}/{self.args.seed}-{len(self.seen)}.json", self.args.command)
        return runner

    def missing(self):
        """Tables of the kinds that lack cells."""
        for partitioned in (False, True):
            lacking = sorted({kind for _, kind, p in cells.missing(self.noted) if p == partitioned})
            for i in range(0, len(lacking), 3):
                runner = self.table(lacking[i:i + 3] + ["int"], partitioned)
                self.top_up(runner, self.args.attempts)
                self.end(runner)

    def run(self):
        for round_ in range(self.args.rounds):
            for kinds, partitioned in tables_of(self.args.seed, round_):
                begun = time.monotonic()
                runner = self.whole(kinds, partitioned)
                print(f"table {runner.table.number}: {', '.join(kinds)}; {runner.table.scheme or 'no partitions'}, primary key "
                      f"{runner.table.primary}; {len(runner.failures)} differ, {time.monotonic() - begun:.1f} s", flush=True)
        for _ in range(self.args.top_ups):
            self.missing()

    def lost(self, refused):
        """The server went down: by which statement on which table."""
        runner = self.running
        print(f"\n-- THE SERVER WENT DOWN: {refused}; mode {runner.mode}")
        for sql in runner.table.setup() + runner.changes:
            print(f"{sql};")
        print("-- then, on an engine each, the last ones first:")
        for sql in reversed(runner.sides.said):
            print(f"{sql};")

    def lacking(self):
        """What was to be tried and was not, by name."""
        noted, by, out = self.noted, collections.defaultdict(list), []
        for path, kind, p in cells.missing(noted):
            by[f"{path} x {parted(p)}"].append(kind)
        out += [f"{cell}: {', '.join(kinds)}" for cell, kinds in by.items()]
        out += [f"{verb} by {path} x {parted(p)}" for verb, path, p in cells.changes() if not noted.changes[verb, path, p]]
        out += [f"{context} x {parted(p)}" for context in contexts.CONTEXTS for p in (False, True) if not noted.contexts[context, p]]
        out += [f"{mode}, {level} x {parted(p)}" for mode, level in cells.MODES for p in (False, True) if not noted.modes[mode, level, p]]
        return out + [f"{path} with {clause}" for clause in ("flush tables", "partition (..)") for path in cells.PARTITIONED
                      if not noted.modes[clause, path, True]]

    def report(self):
        noted, lacking = self.noted, self.lacking()
        counts = ", ".join(f"{n} {what}" for what, n in sorted(noted.counts.items()))
        print(f"seed {self.args.seed}: {self.made} tables; {counts}")
        print("  cells by path, without partitions / with: " + ", ".join(
            f"{path} {'/'.join(str(sum(n for (q, _, p), n in noted.cells.items() if q == path and p == x)) for x in (False, True))}"
            for path in queries.RECIPES))
        print(f"  {len(cells.every())} cells, {len(cells.missing(noted))} of them at 0; {len(noted.changes)} of changes by path")
        for reason, n in collections.Counter(reason for *_, reason in cells.left_out()).items():
            print(f"  {n} cells are left out: {reason}")
        for path, context, asked, got, right in noted.alike[:3]:
            print(f"  in InnoDB alike: {path}, {context}: {asked[-1][:300]}: {got} for {right}")
        for what, n in (+self.seen).most_common():
            print(f"  DIFFERENT {n} times: {what}")
        if lacking:
            print(f"  NEVER TAKEN ({len(lacking)}):\n    " + "\n    ".join(lacking))
        return lacking

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--variants", type=int, default=2)
    parser.add_argument("--attempts", type=int, default=10)
    parser.add_argument("--top-ups", type=int, default=20)
    parser.add_argument("--replays", default="target/plans")
    parser.add_argument("--replay")
    parser.add_argument("--databases", default="p", help="what their names begin with")
    parser.add_argument("--command", default="python3 plugin/mariadb/tests/test_plans.py")
    args = parser.parse_args()
    if args.replay:
        failures.replay(args.replay, Sides(args.socket, args.databases))
        return 0
    test = Test(args)
    try:
        test.run()
    except Refused as refused:
        test.lost(refused)
        return 1
    lacking = test.report()
    return 1 if +test.seen else 2 if lacking else 0

if __name__ == "__main__":
    sys.exit(main())
