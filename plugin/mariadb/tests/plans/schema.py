"""Tables whose columns are of chosen kinds, each with keys of several forms, and rows for them.

A kind is a column's type, and for strings whether its keys hold the whole column or a prefix
(`varchar`, `varchar_prefix`). Every table has: `id`, different in each row, never NULL; `b`, a small
number; `d`, in no key; `pad`, wide, so that a read by a key costs less than one of the table; and
columns `c1`, `c2`, ... of the kinds, with generated ones over them. Keys by column `ci`:

    ki (ci)   mi (ci, b)   ni (b, ci)   ui unique (ci, id)      and kb (b)
"""
import random
import re

import differential

WHOLE = """tinyint smallint mediumint int bigint ubigint decimal float double date datetime timestamp time year
char varchar binary varbinary enum set bit uuid inet4 inet6""".split()
PREFIXES = differential.PREFIXED
GENERATED = ["virtual", "stored", "virtual_prefix"]
KINDS = WHOLE + [f"{name}_prefix" for name in PREFIXES] + GENERATED
LOBS = [f"{name}_prefix" for name in (*differential.BLOBS, *differential.TEXTS, "json", "geometry")]
PRIMARIES = ["id", "id", "id desc", "whole", "whole", "prefix", "none", "none"]
PARTITIONED = ["range", "range", "hash", "list", "key", "range columns", "sub hash", "sub key", "by b", "by column"]
WANTED = 28  # different values of a column

def is_prefix(kind):
    return kind.endswith("_prefix")

class Column:
    """A column of a kind: its SQL, how long its prefixes are, the values that its rows have."""
    def __init__(self, name, kind, r):
        self.name, self.kind = name, kind
        wanted = kind.removesuffix("_prefix")
        while True:
            ty = next(ty for ty in differential.types(r) if ty.name == wanted)
            # There a prefix and the whole value may be in different orders.
            # Of CHAR without padding in comparisons, an index and the table give different rows (10.11.18, InnoDB alike).
            if wanted == "char" and "nopad" in ty.sql:
                continue
            if ty.key and not (is_prefix(kind) and any(c in ty.sql for c in differential.NOT_BY_PREFIX)):
                break
        self.type, self.sql, self.part = ty, ty.sql, name
        if is_prefix(kind):
            self.part = f"{name}({r.choice([2, 3, ty.prefix or 1])})"
        self.text = wanted in ("char", "varchar", *differential.TEXTS)
        found = re.match(r"(?:datetime|timestamp|time)\((\d)\)", self.sql)
        self.digits = int(found[1]) if found else None
        self.values = self.domain(r)

    def domain(self, r):
        out, long = [], 1
        for _ in range(WANTED * 20):
            made = self.type.literal(r)
            if "repeat" in made:
                if not long:
                    continue
                long -= 1
                made = made.replace("70000", "9000")
            if self.digits is not None:
                # A value of more digits than the column has equals a row's by its key, and not by the whole table.
                made = re.sub(r"\.(\d+)'$", lambda m: ("." + m[1][:self.digits]).rstrip(".") + "'", made)
            if made not in out:
                out.append(made)
        r.shuffle(out)
        # Values that differ behind a prefix only.
        if self.text or self.type.name in ("varbinary", *differential.BLOBS):
            longer = [v[:-1] + ("7a'" if v.startswith("x'") else "zz'") for v in out[:6] if v[-1] == "'" and v != "' '"]
            out = longer + out
        return out[:WANTED]

    def definition(self):
        return f"{self.name} {self.sql}"

    def exact(self):
        """An expression whose value tells the very bytes, without a character that ends a field."""
        if self.kind in LOBS:
            return f"concat(length({self.name}), ' ', crc32({self.name}))"
        if self.type.name in ("float", "double", "decimal"):
            return f"concat({self.name})"
        return f"hex({self.name})"

class Generated(Column):
    """A column over another one."""
    def __init__(self, name, kind, of):
        self.name, self.kind, self.of = name, kind, of
        self.text, self.part = True, f"{name}(3)" if is_prefix(kind) else name
        self.stored = "stored" if kind == "stored" else "virtual"
        self.values = [f"'v{n}'" for n in range(-3, 12)]

    def definition(self):
        return (f"{self.name} varchar(40) character set latin1 as (concat('v', ({self.of} * 7) % 15 - 3)) {self.stored}")

    def exact(self):
        return f"hex({self.name})"

class Table:
    """A table `t` and a smaller one `s` like it, in which part of t's rows are."""
    def __init__(self, number, seed, kinds, partitioned):
        self.r = r = random.Random(f"{seed}/{number}")
        self.number, self.partitioned = number, partitioned
        generated = [k for k in kinds if k in GENERATED]
        self.columns = [Column(f"c{i + 1}", kind, r) for i, kind in enumerate(k for k in kinds if k not in GENERATED)]
        for kind in generated:
            self.columns.append(Generated(f"c{len(self.columns) + 1}", kind, "d"))
        self.by = {c.name: c for c in self.columns}
        self.scheme = r.choice(PARTITIONED) if partitioned else None
        self.free = self.scheme in ("by b", "by column") or r.random() < 0.25
        self.primary = "none" if self.scheme in ("by b", "by column") else r.choice(PRIMARIES)
        self.unique = self.scheme not in ("by b", "by column")
        self.second_partitioned = partitioned and r.random() < 0.7
        self.lists = self.scheme == "list"
        self.keys, self.primary_parts = {}, []
        self.count = r.choice([500, 800])
        self.create()
        self.rows()

    def key_parts(self):
        r = self.r
        down = lambda: r.choice(["", "", "", "", " desc"])
        out = [("kb", ["b"], f"key kb (b{down()})")]
        for i, c in enumerate(self.columns, 1):
            out.append((f"k{i}", [c.name], f"key k{i} ({c.part}{down()})"))
            out.append((f"m{i}", [c.name, "b"], f"key m{i} ({c.part}{down()}, b)"))
            out.append((f"n{i}", ["b", c.name], f"key n{i} (b, {c.part})"))
            if self.unique:
                out.append((f"u{i}", [c.name, "id"], f"unique key u{i} ({c.part}, id)"))
        return out

    def primary_key(self):
        real = [c for c in self.columns if not isinstance(c, Generated)]
        whole = [c for c in real if not is_prefix(c.kind)]
        cut = [c for c in real if is_prefix(c.kind) and c.kind not in ("json_prefix", "geometry_prefix")]
        choice = cut if self.primary == "prefix" else whole
        if self.primary == "none":
            return None, None
        if self.primary.startswith("id") or not choice:
            self.primary_parts = ["id"]
            return None, f"primary key ({self.primary if self.primary.startswith('id') else 'id'})"
        first = self.r.choice(choice)
        self.primary_parts = [first.name, "id"]
        return first, f"primary key ({first.part}, id)"

    def partitioning(self):
        r, n = self.r, self.count
        at = sorted(r.sample(range(n // 10, n), 3))
        ranges = [*(f"partition p{i} values less than ({v})" for i, v in enumerate(at)), "partition p3 values less than maxvalue"]
        lists = [f"partition p{i} values in ({', '.join(str(v) for v in range(12) if v % 4 == i)})" for i in range(4)]
        forms = {
            "range": f"range (id) ({', '.join(ranges)})",
            "range columns": f"range columns (id) ({', '.join(ranges).replace('maxvalue', '(maxvalue)')})",
            "hash": "hash (id) partitions 4", "key": "key (id) partitions 4",
            "list": f"list (id % 12) ({', '.join(lists)})",
            "sub hash": f"range (id) subpartition by hash (id) subpartitions 2 ({', '.join(ranges)})",
            "sub key": f"range (id) subpartition by key (id) subpartitions 2 ({', '.join(ranges)})",
            "by b": "hash (b) partitions 4",
        }
        forms["by column"] = f"key ({self.parting()}) partitions 4"
        return " partition by " + forms[self.scheme]

    def parting(self):
        fit = [c.name for c in self.columns if c.kind not in LOBS and not isinstance(c, Generated)]
        return self.r.choice(fit or ["b"])

    def create(self):
        """Chooses the statements that make t and s."""
        first, primary = self.primary_key()
        lines = ["id int not null", "b int", "d int"]
        for c in self.columns:
            required = first is c
            lines.append(c.definition().removesuffix(" null") + " not null" if required else c.definition())
        lines.append("pad char(120) character set latin1 default 'x'")
        keys = self.key_parts()
        self.keys = {name: parts for name, parts, _ in keys}
        lines += [primary] if primary else []
        lines += [shown for *_, shown in keys]
        self.required = {first.name} if first else set()
        body, parts = f"({', '.join(lines)})", self.partitioning() if self.partitioned else ""
        self.created = [f"create table t {body}{parts}", f"create table s {body}{parts if self.second_partitioned else ''}"]

    def rows(self):
        """Chooses t's rows and s's."""
        r, made, self.sample = self.r, [], []
        real = [c for c in self.columns if not isinstance(c, Generated)]
        weights = {c.name: [r.choice([1, 1, 2, 5]) for _ in c.values] for c in real}
        for i in r.sample(range(1, self.count + 1), self.count):
            d = r.randrange(1000)
            row = [str(i), "null" if r.random() < 0.03 else str(r.randrange(30)), str(d)]
            for c in real:
                null = c.name not in self.required and r.random() < 0.05
                row.append("null" if null else r.choices(c.values, weights[c.name])[0])
            made.append(f"({', '.join(row)})")
            holds = {c.name: f"'v{d * 7 % 15 - 3}'" for c in self.columns if isinstance(c, Generated)}
            holds.update({c.name: v for c, v in zip(real, row[3:])})
            self.sample.append((i, row[1], holds))
        self.made = {"t": made, "s": r.sample(made, self.count // 5)}

    def setup(self):
        """Statements that make both tables and their rows."""
        real = [c.name for c in self.columns if not isinstance(c, Generated)]
        names, out = ", ".join(["id", "b", "d", *real]), ["drop table if exists t, s", *self.created]
        for table, rows in self.made.items():
            for i in range(0, len(rows), 400):
                out.append(f"insert into {table} ({names}) values {', '.join(rows[i:i + 400])}")
        return [*out, "analyze table t, s"]

    def changes(self):
        """Statements that a transaction runs and leaves open."""
        r, out = self.r, []
        for c in self.columns:
            if not isinstance(c, Generated):
                value = r.choice(c.values)
                out.append(f"update t set {c.name} = {value} where id % 13 = {r.randrange(13)}")
        out += [f"update t set b = {r.randrange(30)}, d = d + 1 where id % 7 = {r.randrange(7)}",
                f"delete from t where id % 11 = {r.randrange(11)}",
                f"update s set b = b + 1 where id % 5 = {r.randrange(5)}"]
        if not self.lists and self.unique:
            out.append(f"update t set id = id + 100000 where id % 17 = {r.randrange(17)}")
        r.shuffle(out)
        return out

    def shown(self, alias="x"):
        """The select list that tells a whole row."""
        out = [f"{alias}.id", f"{alias}.b", f"{alias}.d"]
        out += [re.sub(rf"\b{c.name}\b", f"{alias}.{c.name}", c.exact()) for c in self.columns]
        return out

    def partitions(self):
        """Some of the partitions' names."""
        names = ["p0", "p1", "p2", "p3"]
        if self.scheme.startswith("sub"):
            names += [f"p{i}sp{j}" for i in range(4) for j in range(2)]
        return self.r.sample(names, self.r.choice([1, 1, 2, 3]))
