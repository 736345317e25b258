"""Runs one query of a table under many plans, and statements that change rows by the same conditions;
compares what comes of each with what both engines answer by reading the whole table."""
import collections

from plans import contexts, paths, queries
from plans.failures import Failure
from plans.sides import Failed, attempt

LEVELS = ["read uncommitted", "read committed", "repeatable read", "serializable"]
TUNED = {"optimizer_use_condition_selectivity": ["1", "3", "4", "5"], "mrr_buffer_size": ["8192"], "join_buffer_size": ["1024", "8192"],
         "max_length_for_sort_data": ["4", "64"], "sort_buffer_size": ["32768"], "max_rowid_filter_size": ["1024"],
         "expensive_subquery_limit": ["0"], "eq_range_index_dive_limit": ["0", "1"]}
class Plan:
    """Hints, switches and the rest of what a run of a query is asked to do."""
    def __init__(self, hints, settings):
        self.hints, self.settings = hints, settings
        self.context, self.level, self.lock, self.flush = "plain", "repeatable read", "", False

    def sets(self, level=True):
        """The statement that sets it, whatever was set before; in a transaction there is no level to set."""
        chosen = dict.fromkeys(["optimizer_switch", "join_cache_level", *TUNED], "default")
        chosen.update(self.settings)
        chosen["optimizer_switch"] = chosen["optimizer_switch"].replace("'", "'default,", 1)
        if level:
            chosen["tx_isolation"] = f"'{self.level.replace(' ', '-')}'"
        return ["set " + ", ".join(f"{k} = {v}" for k, v in chosen.items())]

class Noted:
    """What all runs have taken so far."""
    def __init__(self):
        self.cells = collections.Counter()     # by path, kind of column, partitioned
        self.changes = collections.Counter()   # by verb, path, partitioned
        self.contexts = collections.Counter()  # by context, partitioned
        self.modes = collections.Counter()     # by what was open beside, level; FLUSH TABLES and PARTITION by path
        self.counts = collections.Counter()
        self.alike = []                        # answers that are wrong in InnoDB alike

class Runner:
    """Runs queries on one table. In the mode "calm" no transaction is open; in "own" the reader's has changed rows;
    in "beside" another session's has, at one level for both engines."""
    def __init__(self, sides, table, noted):
        self.sides, self.table, self.r, self.noted = sides, table, table.r, noted
        self.maker = queries.Maker(table, self.r)
        self.failures, self.totals = [], {}
        self.mode, self.level, self.changes = "calm", "repeatable read", []

    def enter(self, mode):
        """Begins the mode's transaction."""
        self.mode, self.changes, self.totals = mode, [], {}
        if mode == "calm":
            return
        made = ["begin", *self.table.changes()]
        for sql in made:
            outcomes = [attempt(session, [sql]) for session in
                        (self.sides.writers if mode == "beside" else self.sides.readers).values()]
            if outcomes[0] != outcomes[1]:
                self.failures.append(Failure(f"a change differs: {mode}", self, outcomes[1], outcomes[0], [sql], [sql],
                                             lambda: (0, 1)))
            self.changes.append(sql)

    def leave(self):
        self.sides.both("rollback", writer=self.mode == "beside")
        self.mode, self.changes = "calm", []

    # How it is asked.

    def around(self, plan, changing=False):
        """Chooses what does not belong to the optimizer."""
        r = self.r
        if self.mode == "beside":
            plan.level = self.level
        elif self.mode == "calm":
            plan.level, plan.flush = r.choice(LEVELS), r.random() < 0.3
        fit = contexts.CALM if self.mode == "own" else contexts.CALM + contexts.DEFINED
        fit = fit + contexts.LOCKING if self.mode == "calm" else fit
        plan.context = r.choice(["plain", "prepared", "procedure"] if changing else ["plain", *fit])
        if changing and self.mode == "own" and plan.context == "procedure":
            plan.context = "plain"
        if not changing and self.mode != "beside" and plan.context in ("plain", "prepared") and r.random() < 0.25:
            plan.lock = r.choice([" for update", " lock in share mode"])
        return plan

    def variant(self, query):
        """A plan that chance chooses."""
        r = self.r
        switches = {name: r.choice(["on", "off"]) for name in r.sample(queries.SWITCHES, r.randint(3, 12))}
        if switches.get("materialization") == "off":
            switches["in_to_exists"] = "on"
        if self.table.partitioned:
            # The server sizes the partitions' buffers by the key that it estimated last: with several keys rows are
            # lost, or 1032, by multi-range reads (10.11.18, InnoDB alike). Plans made for those force one key.
            switches["mrr"] = "off"
        settings = dict(queries.switched(**switches), join_cache_level=str(r.randint(0, 8)))
        settings.update({name: r.choice(values) for name, values in TUNED.items() if r.random() < 0.2})
        return Plan({alias: self.hint(query.hints.get(alias, "")) for alias in ("x", "y")}, settings)

    def hint(self, given):
        r = self.r
        keys = ", ".join(r.sample(sorted(self.table.keys), r.randint(1, 3)))
        return r.choice([given, given, "", f"force index ({keys})", f"ignore index ({keys})", f"use index ({keys})"])

    def reference(self):
        plan = Plan({"x": "use index ()", "y": "use index ()"}, queries.REFERENCE)
        plan.level = self.level if self.mode == "beside" else plan.level
        return plan

    def restrict(self, query):
        """Puts PARTITION clauses on what has partitions."""
        r, clause = self.r, lambda: f" partition ({', '.join(self.table.partitions())})"
        if self.table.partitioned and r.random() < 0.4:
            query.partitions["px"] = clause()
            if query.second == "t" or self.table.second_partitioned:
                query.partitions["py"] = r.choice(["", clause()])

    # What is run.

    def explain(self, session, sql):
        answer = attempt(session, [f"explain format=json {sql}"])
        return None if isinstance(answer, Failed) else answer[0][0].decode(errors="replace")

    def rows(self, engine, query, plan, noting=False):
        """The query's rows under the plan, or the error, and the statements run; `noting` the paths taken."""
        session, sql = self.sides.readers[engine], query.text(plan.hints, plan.lock)
        run = contexts.made(plan.context, sql, query.names())
        locked = plan.lock and self.mode == "calm"
        before = plan.sets(self.mode != "own") + (["begin"] if locked else [])
        attempt(session, before)
        explained = self.explain(session, sql) if noting else None
        middle = (["flush tables t, s"] if plan.flush and not locked else []) + run.before
        back = self.backward(session) if noting and query.path == "index_down" else None
        out, answers = attempt(session, middle), []
        for asked in [] if isinstance(out, Failed) else run.asked:
            out = attempt(session, [asked])
            answers.append(out)
        failed = [a for a in [out, *answers] if isinstance(a, Failed)]
        back = back is not None and self.backward(session) > back
        attempt(session, [*run.after, *(["rollback"] if locked else [])])
        keeps = query.ordered and plan.context in contexts.KEEPING
        got = failed[0] if failed else contexts.answer(run, answers, keeps)
        if explained and not failed:
            self.note(query, plan, explained, got, back)
        return got, before + middle + run.asked

    @staticmethod
    def backward(session):
        return sum(int(n) for _, n in session.run("show session status like 'handler_read_prev'"))

    def total(self, query):
        """How many rows, or groups, there are without the condition."""
        key = (query.partitions["px"], self.mode, query.groups and query.column.name)
        if key not in self.totals:
            inner = "select 1 from t{px} x"
            if query.groups:
                inner += " group by " + query.body.rsplit(" group by ", 1)[1]
            sql = f"select count(*) from ({query.filled(inner, {})}) w"
            self.totals[key] = int(self.sides.readers["EVENKEEL"].run(sql)[0][0])
        return self.totals[key]

    # What is noted.

    def cells(self, query, explained, back=False):
        """{(path, kind, partitioned)} of a plan."""
        where = {"x": self.table.partitioned, "y": self.table.partitioned if query.second == "t" else self.table.second_partitioned}
        out = set()
        for took in paths.taken(explained, self.table.keys):
            names = [query.column.name] if took.columns is None else took.columns
            kinds = {self.table.by[c].kind for c in names if c in self.table.by}
            out |= {(took.path, kind, bool(where.get(took.alias))) for kind in kinds}
            if back and took.path in ("index", "range") and took.alias == "x":
                out.add(("index_down", query.column.kind, self.table.partitioned))
        return out

    def note(self, query, plan, explained, got, back):
        some = len(got) if query.groups or query.ordered else len({row[0] for row in got})
        if not 0 < some < self.total(query):
            self.noted.counts["no row, or all"] += 1
            return
        cells = self.cells(query, explained, back)
        self.noted.cells.update(cells)
        self.noted.contexts[plan.context, self.table.partitioned] += 1
        self.noted.modes[self.mode, plan.level + plan.lock, self.table.partitioned] += 1
        for path in {path for path, _, partitioned in cells if partitioned}:
            self.noted.modes["flush tables", path, True] += plan.flush
            self.noted.modes["partition (..)", path, True] += bool(query.partitions["px"])

    # What is compared.

    def check(self, query, variants):
        """The query under its plan and some others."""
        self.level = self.r.choice(LEVELS[:3] + LEVELS[:1])
        self.restrict(query)
        reference = self.reference()
        wanted, asked = self.rows("InnoDB", query, reference)
        ours, _ = self.rows("EVENKEEL", query, reference)
        if ours != wanted:
            again = lambda: (self.rows("InnoDB", query, reference)[0], self.rows("EVENKEEL", query, reference)[0])
            return self.fail("the engines differ", query, wanted, ours, asked, asked, again)
        if isinstance(wanted, Failed):
            self.noted.counts[f"refused with {wanted.number}"] += 1
            return None
        for plan in [self.around(Plan(query.hints, query.settings))] + [self.around(self.variant(query)) for _ in range(variants)]:
            self.compare(query, plan, wanted, asked)
        return None

    def compare(self, query, plan, wanted, reference_asked):
        right = self.in_order(query, plan, wanted)
        got, asked = self.rows("EVENKEEL", query, plan, noting=True)
        self.noted.counts["queries"] += 1
        if got == right:
            return
        if self.rows("InnoDB", query, plan)[0] == got:
            self.alike(query, plan, asked, got, right)
            return
        again = lambda: (self.in_order(query, plan, self.rows("InnoDB", query, self.reference())[0]),
                         self.rows("EVENKEEL", query, plan)[0])
        self.fail("a plan's rows differ", query, right, got, asked, reference_asked, again, lambda: self.rows("InnoDB", query, plan)[0])

    def in_order(self, query, plan, rows):
        """Rows in the order in which the plan's context gives them."""
        if plan.context in contexts.KEEPING or not query.ordered or isinstance(rows, Failed):
            return rows
        return sorted(rows, key=contexts.sortable)

    def alike(self, query, plan, asked, got, right):
        """InnoDB's answer under this plan is the same wrong one."""
        self.noted.counts["wrong or refused in InnoDB alike"] += 1
        self.noted.alike.append((query.path, plan.context, asked, str(got)[:100], str(right)[:100]))

    def fail(self, what, query, wanted, got, asked, reference, again, theirs=None):
        what = f"{what}: {self.mode}, {query.path} ({query.column.name} {query.column.kind})"
        self.failures.append(Failure(what, self, wanted, got, asked, reference, again, theirs))
