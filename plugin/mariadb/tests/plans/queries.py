"""Queries made for an access path: each with the hints and switches under which the server should take it.

A query's text has a place for what a plan says of each table: {x} and {y} stand for index hints,
{px} and {py} for PARTITION clauses. `RECIPES` names the paths; each is tried as often as it takes
until the server's EXPLAIN shows it.
"""
import collections

from plans.schema import LOBS

ALL_OFF = ("index_merge=off,mrr=off,rowid_filter=off,semijoin=off,materialization=off,in_to_exists=on,"
           "index_condition_pushdown=off,extended_keys=on,split_materialized=off")
REFERENCE = {"optimizer_switch": f"'{ALL_OFF},join_cache_hashed=on,optimize_join_buffer_size=off'", "join_cache_level": "4",
             "optimizer_use_condition_selectivity": "1"}
SWITCHES = """index_merge index_merge_union index_merge_sort_union index_merge_intersection
index_merge_sort_intersection index_condition_pushdown derived_merge derived_with_keys firstmatch loosescan
materialization in_to_exists semijoin partial_match_rowid_merge partial_match_table_scan subquery_cache mrr
mrr_cost_based mrr_sort_keys outer_join_with_cache semijoin_with_cache join_cache_incremental join_cache_hashed
join_cache_bka optimize_join_buffer_size table_elimination extended_keys exists_to_in orderby_uses_equalities
condition_pushdown_for_derived split_materialized condition_pushdown_for_subquery rowid_filter
condition_pushdown_from_having not_null_range_scan""".split()

def switched(**switches):
    return {"optimizer_switch": "'" + ",".join(f"{k}={v}" for k, v in switches.items()) + "'"}

class Query:
    """A query and the plan that it is made for."""
    def __init__(self, path, column, select, body, hints, settings=None, ordered=False, groups=False, second="t", where=None):
        self.path, self.column = path, column
        self.select, self.body = select, body  # the select list; what follows it, from FROM on
        self.hints, self.settings = hints, settings or {}
        self.ordered, self.groups = ordered, groups
        self.second = second  # the table that y is
        self.where = where    # of a query of one table that a statement may change rows by
        self.partitions = {"px": "", "py": ""}
        self.kinds = [column.kind]

    def text(self, hints, suffix="", distinct=""):
        """The statement with the hints; its columns are o1, o2, ..."""
        shown = ", ".join(f"{e} o{i + 1}" for i, e in enumerate(self.select))
        return f"select {distinct}{shown} {self.filled(self.body, hints)}{suffix}"

    def filled(self, text, hints):
        for name in ("x", "y"):
            text = text.replace("{%s}" % name, f" {hints[name]}" if hints.get(name) else "")
        return text.replace("{px}", self.partitions["px"]).replace("{py}", self.partitions["py"])

    def names(self):
        return [f"o{i + 1}" for i in range(len(self.select))]

class Maker:
    """Makes queries on a table; `present` has the literals that its rows hold, by column."""
    def __init__(self, table, r):
        self.table, self.r = table, r
        self.second = "s"

    def value(self, c):
        return self.r.choice(c.values)

    def equal(self, c, alias="x"):
        return f"{alias}.{c.name} = {self.value(c)}"

    def range(self, c, alias="x"):
        r, name = self.r, f"{alias}.{c.name}"
        form = r.randrange(6)
        if form == 0 and c.text:
            words = [v[1:2] for v in c.values if v[:1] == "'" and len(v) > 3 and v[1] not in "%_\\'"]
            if words:
                return f"{name} like '{r.choice(words)}%'"
        if form <= 1:
            return f"{name} between {self.value(c)} and {self.value(c)}"
        if form == 2:
            return f"{name} in ({', '.join(self.value(c) for _ in range(4))})"
        if form == 3:
            return f"({name} = {self.value(c)} or {name} > {self.value(c)})"
        return f"{name} {r.choice(['<', '<=', '>', '>='])} {self.value(c)}"

    def other(self, c):
        """A condition on another column, equal or a range, and its key: for two at once."""
        rest = [o for o in self.table.columns if o is not c]
        return self.r.choice(rest)

    def few(self, alias="x"):
        r = self.r
        low = r.randrange(28)
        return r.choice([f"{alias}.b in ({low}, {low + 1}, {(low * 7) % 30})", f"{alias}.b between {low} and {low + 2}"])

    def single(self, path, c, where, keys, settings=None, select=None, **more):
        hint = f"force index ({', '.join(keys)})" if keys else "use index ()"
        return Query(path, c, select or self.table.shown(), f"from t{{px}} x{{x}} where {where}", {"x": hint}, settings,
                     where=where, **more)

    def key(self, form, c):
        return f"{form}{c.name[1:]}"

    # Of one table.

    def all(self, c):
        return self.single("all", c, self.range(c), [])

    def ref(self, c):
        return self.single("ref", c, self.equal(c), [self.key(self.r.choice("kkm"), c)])

    def const(self, c):
        if not self.table.unique:
            return None
        n, _, holds = self.r.choice([row for row in self.table.sample if row[2][c.name] != "null"])
        return self.single("const", c, f"x.{c.name} = {holds[c.name]} and x.id = {n}", [self.key("u", c)])

    def ref_or_null(self, c):
        return self.single("ref_or_null", c, f"({self.equal(c)} or x.{c.name} is null)", [self.key("k", c)])

    def range_read(self, c):
        form = self.r.choice("kkmu" if self.table.unique else "kkm")
        return self.single("range", c, self.range(c), [self.key(form, c)], switched(mrr="off", index_condition_pushdown="off"))

    def ordered(self, c, down):
        """Rows by an index that gives an order, from its end or its beginning; prefixes give none, so there
        the column stands behind another one, of which alone is told."""
        limit, path = self.r.choice([7, 40, 150]), "index_down" if down else "index"
        if c.part == c.name and self.table.unique:
            order = f"x.{c.name}{down}, x.id{down}"
            where = self.r.choice(["1", "1", f"x.d < {self.r.randint(200, 900)}", self.range(c)])
            body = f"from t{{px}} x{{x}} where {where} order by {order} limit {limit}"
            return Query(path, c, self.table.shown(), body, {"x": f"force index ({self.key('u', c)})"}, ordered=True)
        where = self.r.choice(["1", "x.b > 3"])
        return Query(path, c, ["x.b"], f"from t{{px}} x{{x}} where {where} order by x.b{down} limit {limit}",
                     {"x": f"force index ({self.key('n', c)})"}, ordered=True)

    def index_up(self, c):
        return self.ordered(c, "")

    def index_down(self, c):
        return self.ordered(c, " desc")

    def index_only(self, c):
        r = self.r
        whole = c.part == c.name
        where = r.choice([self.few(), f"x.b > {r.randint(1, 25)}"]) if not whole or r.random() < 0.5 else self.range(c)
        form = "n" if not whole or "x.b" in where else "m"
        exact = [c.exact().replace(c.name, f"x.{c.name}")] if whole else []
        return self.single("index_only", c, where, [self.key(form, c)], select=["x.b", *exact])

    def icp(self, c):
        r = self.r
        where = f"{self.range(c)} and x.b % {r.choice([2, 3])} = 1"
        return self.single("icp", c, where, [self.key("m", c)], switched(index_condition_pushdown="on", mrr="off", rowid_filter="off"))

    def mrr(self, c):
        settings = switched(mrr="on", mrr_cost_based="off", mrr_sort_keys=self.r.choice(["on", "off"]), rowid_filter="off",
                            index_condition_pushdown=self.r.choice(["on", "off"]))
        return self.single("mrr", c, self.range(c), [self.key(self.r.choice("kkm"), c)], settings)

    def two(self, c, join, ranges):
        """Conditions on two columns, each with a key."""
        o = self.other(c)
        made = [self.range(x) if wide else self.equal(x) for x, wide in zip((c, o), ranges)]
        keys = [self.key("k", c), self.key("k", o)]
        if self.r.random() < 0.4 or o.part != o.name and not any(ranges):
            b = self.r.randrange(30)
            made[1], keys[1] = (f"x.b = {b}" if not ranges[1] else f"x.b between {b} and {b + 9}"), "kb"
        end = f" and x.d < {self.r.randint(500, 990)}" if self.r.random() < 0.3 else ""
        return f"({f' {join} '.join(made)}){end}", keys

    def merged(self, path, c, join, ranges):
        where, keys = self.two(c, join, ranges)
        settings = switched(index_merge="on", index_merge_union="on", index_merge_sort_union="on", index_merge_intersection="on",
                            index_merge_sort_intersection="off", rowid_filter="off")
        return self.single(path, c, where, keys, settings)

    def union(self, c):
        return self.merged("union", c, "or", (False, False))

    def sort_union(self, c):
        return self.merged("sort_union", c, "or", self.r.choice([(True, True), (False, True), (True, False)]))

    def intersect(self, c):
        return self.merged("intersect", c, "and", (False, False))

    def counts(self, c):
        """How many rows hold each value of c, or of b."""
        values = [b for _, b, _ in self.table.sample] if c is None else [holds[c.name] for *_, holds in self.table.sample]
        return collections.Counter(v for v in values if v != "null")

    def sort_intersect(self, c):
        """Of two conditions that each hold for a tenth of the rows or so."""
        o = self.r.choice([None, None, *(o for o in self.table.columns if o is not c)])
        least, most = self.table.count // 12, self.table.count // 5
        made = [f"x.{x.name if x else 'b'} in ({', '.join(self.of_size(self.counts(x), least, most)[0])})" for x in (c, o)]
        settings = switched(index_merge="on", index_merge_intersection="on", index_merge_sort_intersection="on", rowid_filter="off")
        return self.single("sort_intersect", c, " and ".join(made), [self.key("k", c), self.key("k", o) if o else "kb"], settings)

    def of_size(self, counts, least, most):
        """Values that so many rows hold together, or nearly."""
        r, out, size = self.r, [], 0
        for value in r.sample(sorted(counts), len(counts)):
            if size + counts[value] <= most or not out:
                out.append(value)
                size += counts[value]
            if size >= least:
                break
        return out, size

    def filter(self, path, c, read_by_b):
        """Conditions on b and c, each with a key: the one that holds for fewer rows reads, the other filters."""
        by_b, by_c = self.counts(None), self.counts(c)
        first, then = (by_b, by_c) if read_by_b else (by_c, by_b)
        fewest = min(min(first.values()) * 2, self.table.count // 6)
        read, size = self.of_size(first, max(fewest, 30), max(fewest, 90))
        kept, _ = self.of_size(then, size * 1.3, size * 2.5)
        b, of_c = (read, kept) if read_by_b else (kept, read)
        if len(of_c) == 1 and c.kind in ("json_prefix", "enum", "set"):
            # A read of rows equal to one value takes no filter; these have few values, each in many rows.
            of_c = [*of_c, "''"]
        where = f"x.b in ({', '.join(b)}) and x.{c.name} in ({', '.join(of_c)})"
        return self.single(path, c, where, ["kb", self.key("k", c)], switched(rowid_filter="on", mrr="off", index_merge="off"))

    def rowid_filter(self, c):
        return self.filter("rowid_filter", c, True)

    def filtered(self, c):
        return self.filter("filtered", c, False)

    def group(self, c):
        r = self.r
        if c.part == c.name:
            # A range makes other plans cheap; a bound on b leaves out groups only where they are small.
            many = len(self.counts(c)) > 8 and r.random() < 0.6
            where = f"x.b > {r.choice([26, 27, 28])}" if many else self.range(c)
            select, by, form = [r.choice(["min(x.b)", "max(x.b)", "max(x.b) - min(x.b)"])], f"x.{c.name}", "m"
        else:
            where, select, by, form = f"x.b between {r.randrange(5)} and {r.randrange(6, 28)}", ["x.b"], "x.b", "n"
        body = f"from t{{px}} x{{x}} where {where} group by {by}"
        return Query("group", c, select, body, {"x": f"force index ({self.key(form, c)})"}, groups=True)

    # Of two tables.

    def other_table(self):
        """Which table y is: where t has partitions and s has none, mostly t."""
        return self.r.choice("sttt" if self.table.partitioned and not self.table.second_partitioned else "sst")

    def pair(self, path, c, key, settings, level="0", condition=None, kind="join", select=None, on=None):
        second = self.other_table()
        where = condition or self.r.choice([f"{self.few()} and x.d < 400", f"x.id between {(n := self.r.randint(1, 400))} and {n + 15}"])
        on = on or f"y.{c.name} = x.{c.name}" + self.r.choice(["", " and y.d < 800", " and y.b + x.b > 9"])
        body = f"from t{{px}} x{{x}} {kind} {second}{{py}} y{{y}} on {on} where {where}"
        select = select or ["x.id"] + self.table.shown("y")
        hint = f"force index ({key})" if key else "use index ()"
        # With MRR a partitioned table is given one key: see Runner.variant.
        free = "force index (kb)" if self.table.partitioned else ""
        return Query(path, c, select, body, {"x": self.r.choice([free, "use index ()"]), "y": hint},
                     dict(settings, join_cache_level=level), second=second)

    def join_ref(self, c):
        kind = self.r.choice(["straight_join", "left join"])
        return self.pair("join_ref", c, self.key(self.r.choice("kkm"), c), {}, kind=kind)

    def eq_ref(self, c):
        if not self.table.unique:
            return None
        return self.pair("eq_ref", c, self.key("u", c), {}, kind=self.r.choice(["straight_join", "left join"]),
                         on=f"y.{c.name} = x.{c.name} and y.id = x.id")

    def cached(self, path, c, key, levels):
        r = self.r
        settings = switched(join_cache_incremental=r.choice(["on", "off"]), join_cache_hashed="on", join_cache_bka="on", mrr="on",
                            mrr_cost_based="off", mrr_sort_keys=r.choice(["on", "on", "off"]), outer_join_with_cache="on",
                            optimize_join_buffer_size="off", index_condition_pushdown=r.choice(["on", "off"]))
        if r.random() < 0.3:
            settings["join_buffer_size"] = r.choice(["1024", "4096", "16384"])
        return self.pair(path, c, key, settings, r.choice(levels), kind=r.choice(["straight_join", "left join"]))

    def bnl(self, c):
        made = self.cached("bnl", c, None, ["1", "2"])
        made.hints["x"] = "use index ()" if self.table.partitioned else ""
        return made

    def bnlh(self, c):
        return self.cached("bnlh", c, None, ["3", "4"])

    def bka(self, c):
        return self.cached("bka", c, self.key(self.r.choice("kkm"), c), ["5", "6"])

    def icp_bka(self, c):
        made = self.cached("icp_bka", c, self.key("m", c), ["6", "8"])
        made.body = made.body.replace(" on ", f" on y.b % {self.r.choice([2, 3])} = 1 and ", 1)
        made.settings["optimizer_switch"] = made.settings["optimizer_switch"].replace("pushdown=off", "pushdown=on")
        return made

    def mrr_by_key(self, c):
        made = self.cached("mrr_by_key", c, self.key("k", c), ["6", "8"])
        made.settings["optimizer_switch"] = made.settings["optimizer_switch"].replace("mrr_sort_keys=off", "mrr_sort_keys=on")
        return made

    def bkah(self, c):
        return self.cached("bkah", c, self.key(self.r.choice("kkm"), c), ["7", "8"])

    def range_checked(self, c):
        sign = self.r.choice(["<", "<=", ">", ">="])
        n = self.r.randint(1, 400)
        made = self.pair("range_checked", c, None, {}, kind="straight_join", on=f"y.{c.name} {sign} x.{c.name}",
                         condition=f"x.id between {n} and {n + 5}", select=["x.id", "y.id", "y.b"])
        made.hints = {"x": "use index ()", "y": self.r.choice([f"use index ({self.key('k', c)})", ""])}
        return made

    def within(self, path, c, switches, hint, inner=None, level="0", also=""):
        """A query with an IN of a subquery over c."""
        second = self.other_table()
        inner = inner or self.few("y")
        where = f"x.{c.name} in (select y.{c.name} from {second}{{py}} y{{y}} where {inner}){also}"
        settings = dict(switches, join_cache_level=level)
        return Query(path, c, self.table.shown(), f"from t{{px}} x{{x}} where {where}", {"x": "", "y": hint}, settings, second=second,
                     where=where)

    def semijoin(self, path, c, on, hint, **more):
        every = {"semijoin": "on", "firstmatch": "off", "loosescan": "off", "materialization": "off"}
        every.update({name: "on" for name in on})
        return self.within(path, c, switched(**every), hint, level=self.r.choice(["0", "0", "2", "4", "6"]), **more)

    def firstmatch(self, c):
        return self.semijoin("firstmatch", c, ["firstmatch"], self.r.choice(["", f"force index ({self.key('k', c)})"]),
                             also=f" and {self.few()}", inner=self.r.choice(["y.d < 700", "y.b < 12"]))

    def loosescan(self, c):
        return self.semijoin("loosescan", c, ["loosescan"], f"force index ({self.key('m', c)})",
                             inner=f"y.b < {self.r.randint(2, 20)}")

    def weedout(self, c):
        return self.semijoin("weedout", c, [], self.r.choice(["", f"force index ({self.key('k', c)})"]))

    def sj_materialization(self, c):
        return self.semijoin("sj_materialization", c, ["materialization"], self.r.choice(["", "use index ()"]))

    def index_subquery(self, c):
        return self.within("index_subquery", c, switched(semijoin="off", materialization="off", in_to_exists="on", subquery_cache="off"),
                           f"force index ({self.key('k', c)})", inner=self.r.choice(["y.d < 60", "y.d < 250", f"y.b = {self.r.randrange(30)}"]))

    def materialization(self, c):
        return self.within("materialization", c, switched(semijoin="off", materialization="on", in_to_exists="off"), "")

    def derived(self, path, c, settings, hint, where=None, second=None):
        second = second or self.other_table()
        inner = f"select y.{c.name} k, count(*) n, max(y.b) m from {second}{{py}} y{{y}} group by y.{c.name}"
        body = f"from t{{px}} x{{x}} join ({inner}) z on z.k = x.{c.name} where {where or self.few()}"
        return Query(path, c, ["x.id", "z.n", "z.m"], body, {"x": "", "y": hint}, settings, second=second)

    def derived_keys(self, c):
        return self.derived("derived_keys", c, dict(switched(split_materialized="off", derived_with_keys="on"), join_cache_level="0"), "")

    def lateral(self, c):
        """With few rows of x, and the server knows by a key that they are few: each reads a group of its own. To the
        server the cost of a group grows with the square of its rows: groups by b as well are small for all columns."""
        r = self.r
        # Without a join buffer the server splits by no blob.
        level = r.choice(["2", "4", "6", "8"]) if c.kind in LOBS else "0"
        made = self.derived("lateral", c, dict(switched(split_materialized="on"), join_cache_level=level),
                            f"force index ({self.key(r.choice('kmm'), c)})", self.known_few(c), r.choice(["t", "t", None]))
        if r.random() < 0.6:
            made.body = made.body.replace(f"group by y.{c.name}", f"group by y.{c.name}, y.b", 1)
            made.body = made.body.replace(" k, count(*) n", " k, y.b g, count(*) n", 1)
            made.body = made.body.replace(f"max(y.b) m", f"max(y.{r.choice('bd')}) m", 1)
            made.body = made.body.replace(" on z.k = ", " on z.g = x.b and z.k = ", 1)
            made.hints["y"] = f"force index ({self.key('m', c)})"
        return made

    def known_few(self, c):
        """A condition that a row or two fulfil, by a key of another column where that has a value."""
        r, (n, b, holds) = self.r, self.r.choice(self.table.sample)
        others = [o for o in self.table.columns if o is not c and holds[o.name] != "null" and o.kind != "float"]
        if not others or b == "null" or r.random() < 0.3:
            return f"x.id between {n} and {n + r.choice([1, 2, 5])}"
        equal = f"x.{(o := r.choice(others)).name} = {holds[o.name]}"
        return f"{equal} and x.id between {n} and {n + 5}" if self.table.unique and r.random() < 0.5 else f"{equal} and x.b = {b}"

RECIPES = {
    "all": Maker.all, "ref": Maker.ref, "const": Maker.const, "ref_or_null": Maker.ref_or_null, "range": Maker.range_read,
    "index": Maker.index_up, "index_down": Maker.index_down, "index_only": Maker.index_only, "icp": Maker.icp, "mrr": Maker.mrr,
    "union": Maker.union, "sort_union": Maker.sort_union, "intersect": Maker.intersect, "sort_intersect": Maker.sort_intersect,
    "rowid_filter": Maker.rowid_filter, "filtered": Maker.filtered, "group": Maker.group, "join_ref": Maker.join_ref,
    "eq_ref": Maker.eq_ref, "bnl": Maker.bnl, "bnlh": Maker.bnlh, "bka": Maker.bka, "bkah": Maker.bkah, "icp_bka": Maker.icp_bka, "mrr_by_key": Maker.mrr_by_key,
    "range_checked": Maker.range_checked, "firstmatch": Maker.firstmatch, "loosescan": Maker.loosescan, "weedout": Maker.weedout,
    "sj_materialization": Maker.sj_materialization, "index_subquery": Maker.index_subquery,
    "materialization": Maker.materialization, "derived_keys": Maker.derived_keys, "lateral": Maker.lateral,
}
CHANGING = [name for name in RECIPES if name in """all ref const ref_or_null range icp mrr union sort_union intersect
sort_intersect rowid_filter filtered firstmatch loosescan weedout sj_materialization index_subquery materialization""".split()]
