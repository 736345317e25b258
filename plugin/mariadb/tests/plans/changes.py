"""UPDATE and DELETE under many plans: how many rows they change, and what is in the tables afterwards.

Every statement is undone: in a transaction of its own, or back to a savepoint where one is open.
"""
import re

from plans.contexts import quoted
from plans.run import Plan
from plans.schema import Generated
from plans.sides import Failed, attempt

class Change:
    """A statement that changes rows by a query's conditions; its text has the places that a query's has."""
    def __init__(self, verb, text, query):
        self.verb, self.text, self.query = verb, text, query

def assigned(table, r, joined):
    """What an UPDATE sets: each row's new values depend on nothing but the row."""
    real = [c for c in table.columns if not isinstance(c, Generated)]
    forms = ["x.d = x.d + 1000", "x.d = 5000 + x.id % 7", "x.b = 31", "x.b = x.b + 1"]
    if real:
        c = r.choice(real)
        forms += [f"x.{c.name} = {r.choice(c.values)}"] * 2
    if not table.lists and not joined:
        forms.append("x.id = x.id + 200000")
    return r.choice(forms)

def made(query, table, r, verb=None):
    """A Change by the query's conditions, or None where there is no such statement."""
    if query.where:
        verb = verb or r.choice(["update", "update", "delete", "delete of x"])
        # With a subquery the server reads by a join and updates other rows than the first ones (10.11.18, InnoDB alike).
        few = f" order by x.id limit {r.choice([1, 20])}" if r.random() < 0.15 and " in (select " not in query.where else ""
        if verb == "update":
            return Change(verb, f"update t{{px}} x{{x}} set {assigned(table, r, False)} where {query.where}{few}", query)
        if verb == "delete":
            own = re.sub(r"\bx\.(?=[a-z])", "t.", query.where)
            return Change(verb, f"delete from t{{px}} where {own}", query)
        return Change(verb, f"delete x from t{{px}} x{{x}} where {query.where}", query)
    found = re.match(r"from (t\{px\} x.* join [st]\{py\} y.*?) where (.*)$", query.body)
    if not found or " order by " in query.body or " group by " in query.body:
        return None
    joined, where = found.groups()
    verb = verb or r.choice(["update of both", "delete of both"])
    if verb == "update of both":
        other = f", y.pad = 'changed'" if query.second == "s" else ""
        return Change(verb, f"update {joined} set {assigned(table, r, True)}{other} where {where}", query)
    targets = r.choice(["x", "y", "x, y"]) if query.second == "s" else "x"
    return Change(verb, f"delete {targets} from {joined} where {where}", query)

class Changer:
    """Runs changes for a Runner."""
    def __init__(self, runner):
        self.runner, self.table, self.r, self.sides = runner, runner.table, runner.r, runner.sides

    def states(self, key):
        """Queries that tell what is in the tables, read whole and by a key."""
        parts = ", ".join(f"ifnull({e}, '-')" for e in [*self.table.shown(), "x.pad"])
        total = f"select count(*), sum(crc32(concat_ws('|', {parts}))), sum(x.id)"
        return [f"{total} from t x use index ()", f"{total} from s x use index ()",
                f"{total} from t x force index ({key}) where x.b is null or x.b > -1"]

    def run(self, engine, change, plan, key, noting=False):
        """((rows changed or the error, what is in the tables), statements run)."""
        session, runner = self.sides.readers[engine], self.runner
        sql = change.query.filled(change.text, plan.hints)
        calm = runner.mode == "calm"
        before = plan.sets(calm)
        if plan.context == "procedure":
            before = before + [f"create or replace procedure p() {sql}"]
        attempt(session, before)
        explained = runner.explain(session, sql) if noting else None
        begin = (["flush tables t, s"] if plan.flush else []) + ["begin"] if calm else ["savepoint a"]
        asked = {"prepared": [f"prepare q from {quoted(sql)}", "execute q"], "procedure": ["call p()"]}.get(plan.context, [sql])
        attempt(session, begin)
        changed = attempt(session, asked)
        state = [attempt(session, [select]) for select in self.states(key)]
        attempt(session, ["rollback" if calm else "rollback to savepoint a"])
        if explained and not isinstance(changed, Failed):
            self.note(change, explained, changed, state)
        return (changed, state), before + begin + asked + self.states(key)

    def note(self, change, explained, changed, state):
        runner = self.runner
        if not 0 < changed < int(state[0][0][0]) + changed * change.verb.startswith("delete"):
            runner.noted.counts["no row changed, or all"] += 1
            return
        paths = {(path, partitioned) for path, _, partitioned in runner.cells(change.query, explained)}
        runner.noted.changes.update((change.verb, path, partitioned) for path, partitioned in paths)

    def check(self, query, variants, verb=None):
        """A change by the query's conditions, under its plan and some others."""
        runner, r = self.runner, self.r
        change = made(query, self.table, r, verb)
        if change is None:
            return
        runner.restrict(query)
        key = r.choice([k for k in sorted(self.table.keys) if k[0] in "kn" and self.table.keys[k][0] == "b"])
        reference = runner.reference()
        wanted, asked = self.run("InnoDB", change, reference, key)
        ours, _ = self.run("EVENKEEL", change, reference, key)
        if ours != wanted:
            again = lambda: tuple(self.run(engine, change, reference, key)[0] for engine in ("InnoDB", "EVENKEEL"))
            runner.fail(f"the engines differ in {change.verb}", query, wanted, ours, asked, asked, again)
            return
        for plan in [Plan(query.hints, query.settings)] + [runner.variant(query) for _ in range(variants)]:
            self.compare(change, runner.around(plan, changing=True), reference, key, wanted, asked)

    def compare(self, change, plan, reference, key, wanted, reference_asked):
        runner = self.runner
        got, asked = self.run("EVENKEEL", change, plan, key, noting=True)
        runner.noted.counts["changes"] += 1
        if got == wanted:
            return
        if self.run("InnoDB", change, plan, key)[0] == got:
            runner.alike(change.query, plan, asked, got, wanted)
            return
        again = lambda: (self.run("InnoDB", change, reference, key)[0], self.run("EVENKEEL", change, plan, key)[0])
        runner.fail(f"a plan's {change.verb} differs", change.query, wanted, got, asked, reference_asked, again,
                    lambda: self.run("InnoDB", change, plan, key)[0])
