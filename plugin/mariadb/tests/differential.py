#!/usr/bin/env python3
"""Random statements on tables of InnoDB and EVENKEEL; what a client sees must be the same.

    differential.py --socket S [--seed N] [--statements N] [--keep FILE]

The statements come from the seed alone: the same seed makes the same ones again. Every statement
goes to both engines, each in a database of its own; compared are results, counts of rows, warnings
and error numbers. Prints counts by kind of statement and by result. Exit: 0 the same, 1 differences
(the first ones are shown with the statements of their table), 2 the statements are not fit: under 30 %
change or return rows, over 10 % fail, or some column type x index kind x operation did so, or some form of
ALTER was done, under 5 times (looked at from COVERED_FROM statements on: fewer cannot hold them all).
Before a table goes, and at the end, it is checked, summed and read in the order of each of its keys.

What EVENKEEL reads by an index over a virtual column, InnoDB is asked to read from its table. Its own
answer by such an index is wrong where the transaction has changed rows and the rows are sorted by
positions (10.11.18): the column's value is missing when the condition is looked at.

    create table t (id int primary key, b int, c text, g varchar(40) as (concat('v', b)) virtual, key k (g));
    insert into t (id, b, c) values (1, 3, 'x'), (2, 6, 'y');
    begin; update t set b = 12 where id = 1;
    select id, c from t force index (k) where g >= 'v' order by id, hex(c);  -- empty; 2 rows after COMMIT

NOT NULL is added by copying in InnoDB too: in place it gives rows that had NULL the value that its record has by
chance where the default is an expression (10.11.18); a copy gives them '' or 0.

    set sql_mode = ''; create table t (id int primary key, c set('p','q','r') default ('p,r')); insert into t values (1, null);
    alter table t modify c set('p','q','r') not null default ('p,q,r'); select c from t;  -- p,r; by algorithm=copy: ''

Where InnoDB refuses an update for want of undo (1713: many prefixes of long values), the table is left out from
there on.

Keys of prefixes are not made of NOT_BY_PREFIX: there prefixes need not be in the order of the whole
values, and a range of such a key leaves out rows, in every engine: with utf8mb4_uca1400_as_cs 'A' is
below 'a  b' ('A' differs from 'a' only where all else is equal), but above its prefix 'a  '.
"""
import argparse, collections, concurrent.futures, difflib, random, re, subprocess, sys

COVERED_FROM = 50_000
KINDS = "plain desc composite composite_desc unique".split()
OPERATIONS = "insert update delete select order".split()
BLOBS = "tinyblob blob mediumblob longblob".split()
TEXTS = "tinytext text mediumtext longtext".split()
ALTERS = ["add key", "drop key", "add column", "drop column", "rename column", "null", "not null", "default", "reorder", "extend",
          "widen", "rename table", "engine copy", "there and back", "force", "add unique"]
COMPRESSED = "varchar_compressed text_compressed blob_compressed".split()  # the server makes no keys of them
PREFIXED = ["char", "varchar", "binary", "varbinary", "json", "geometry", *BLOBS, *TEXTS]
NUMBERS_OF_G = ("tinyint", "smallint", "year")

COLLATIONS = """utf8mb4_general_ci utf8mb4_bin utf8mb4_unicode_ci utf8mb4_unicode_520_ci utf8mb4_nopad_bin
utf8mb4_general_nopad_ci utf8mb4_unicode_nopad_ci utf8mb4_uca1400_as_cs utf8mb4_czech_ci utf8mb4_german2_ci
utf8mb4_thai_520_w2 latin1_swedish_ci latin1_german2_ci latin1_bin latin2_czech_cs utf16_unicode_ci
ucs2_general_ci utf32_general_ci cp932_japanese_ci big5_chinese_ci""".split()
NOT_BY_PREFIX = ("utf8mb4_uca1400_as_cs", "utf8mb4_czech_ci", "utf8mb4_thai_520_w2", "latin2_czech_cs")
WORDS = ["", " ", "a", "A", "a ", "ab", "Ab", "abc", "ABC", "abd", "b", "b\t", "B", "ch", "cz", "h", "ss", "S",
         "z", "zz", "a b", "a  b", "aa aa", "0", "10", "9", "x" * 30, "abcdefgh", "ABCDEFGH ", "!", "~"]
WIDE = ["ä", "Ä", "ß", "é", "ö", "č"]
# Some with few strokes have high codes.
HAN = ["一", "乙", "人", "中", "中文", "中國", "龍", "龜", "乂", "乜"]

class Type:
    """A column type: its SQL, literals of it, whether keys of it may or must be prefixes, or it is in none."""
    def __init__(self, name, sql, literal, prefix=None, key=True):
        self.name, self.sql, self.literal, self.prefix, self.key = name, sql, literal, prefix, key

def number(low, high):
    return lambda r: str(r.choice([low, high, 0, 1, 2, 3, r.randint(low, high), r.randint(max(low, -9), 9)]))

def text(wide, tabs=True):
    words = [w for w in WORDS + wide if tabs or "\t" not in w]
    return lambda r: "'" + r.choice(words) + (r.choice(words)[:3] if r.random() < 0.2 else "") + "'"

def hexes(most):
    return lambda r: "x'" + "".join(r.choice(["00", "01", "20", "61", "62", "ff"]) for _ in range(r.randint(0, most))) + "'"

def long_text(wide, most):
    """Now and then one that lies outside its row."""
    return lambda r: f"repeat('{r.choice(['a', 'ab '])}', {most})" if r.random() < 0.15 else text(wide)(r)

def long_bytes(*lengths):
    return lambda r: r.choice([hexes(8)(r), f"repeat('{r.choice('ab')}', {r.choice(lengths)})"])

def place(r):
    x, y = r.randint(-3, 9), r.randint(0, 5)
    return "st_geomfromtext('" + r.choice([f"POINT({x} {y})", f"POINT({x} {y})", f"LINESTRING(0 0,{x} {y})",
                                           f"POLYGON((0 0,{x} 7,9 {y},0 0))"]) + "')"

def date(r):
    return f"{r.choice([1000, 1970, 1999, 2024, 9999])}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"

def clock(r, most):
    return f"{r.randint(0, most):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02}.{r.choice([0, 5, 123456, 999999]):06}"

def types(r):
    wide = lambda c: WIDE if c.startswith("utf") else HAN if c.startswith("big5") else []
    c, d, e, f = (r.choice(COLLATIONS) for _ in range(4))
    prefix = lambda collation, *lengths: None if collation in NOT_BY_PREFIX else r.choice(lengths)
    charset = lambda c: f"character set {c.split('_')[0]} collate {c}"
    return [
        Type("tinyint", "tinyint", number(-128, 127)), Type("smallint", "smallint unsigned", number(0, 65535)),
        Type("mediumint", "mediumint", number(-8388608, 8388607)), Type("int", "int", number(-2**31, 2**31 - 1)),
        Type("bigint", "bigint", number(-2**63, 2**63 - 1)), Type("ubigint", "bigint unsigned", number(0, 2**64 - 1)),
        Type("decimal", "decimal(12,3)", lambda r: f"{r.randint(-99999, 99999)}.{r.randint(0, 999):03}"),
        Type("float", "float", lambda r: str(r.choice([0, -1.5, 0.25, 3, 1024, -7]))),
        Type("double", "double", lambda r: repr(r.choice([0.0, -0.5, 1e100, -1e-9, 3.25, 7.0]))),
        Type("date", "date", lambda r: f"'{date(r)}'"),
        Type("datetime", f"datetime({r.choice([0, 3, 6])})", lambda r: f"'{date(r)} {clock(r, 23)}'"),
        Type("timestamp", "timestamp(2) null", lambda r: f"'20{r.randint(10, 36)}-0{r.randint(1, 9)}-1{r.randint(0, 9)} {clock(r, 23)}'"),
        Type("time", f"time({r.choice([0, 2, 6])})", lambda r: f"'{r.choice(['', '-'])}{clock(r, 838)[:15]}'"),
        Type("year", "year", lambda r: str(r.choice([1901, 1999, 2024, 2155]))),
        # An index compares CHAR with its padding, the server's own comparison without, which differs where
        # a collation is NOPAD and has characters below the space.
        Type("char", f"char({r.choice([8, 40])}) {charset(c)}", text(wide(c), "nopad" not in c), prefix(c, None, 3, 3)),
        Type("varchar", f"varchar({r.choice([40, 200])}) {charset(d)}", text(wide(d)), prefix(d, None, None, 2, 5)),
        *(Type(name, f"{name} {charset(e)}", text(wide(e)) if name in ("tinytext", "text") else long_text(wide(e), 9000),
               r.choice([3, 10] if name == "tinytext" else [3, 10, 100]), e not in NOT_BY_PREFIX)
          for name in TEXTS),
        Type("binary", "binary(6)", hexes(6), r.choice([None, 2])),
        Type("varbinary", "varbinary(30)", hexes(8), r.choice([None, 3])),
        Type("tinyblob", "tinyblob", long_bytes(10, 200), r.choice([2, 20])),
        Type("blob", "blob", long_bytes(10, 5000, 70000), r.choice([2, 20])),
        Type("mediumblob", "mediumblob", long_bytes(10, 5000, 70000), r.choice([2, 20])),
        Type("longblob", "longblob", long_bytes(10, 5000, 70000), r.choice([2, 20])),
        Type("varchar_compressed", f"varchar(200) compressed {charset(f)}", text(wide(f)), key=False),
        Type("text_compressed", f"text compressed {charset(f)}", long_text(wide(f), 9000), key=False),
        Type("blob_compressed", "blob compressed", long_bytes(10, 5000, 70000), key=False),
        Type("geometry", "geometry", place, r.choice([21, 25])),
        Type("enum", "enum('z','m','a')", lambda r: r.choice(["'z'", "'m'", "'a'"])),
        Type("set", "set('p','q','r')", lambda r: r.choice(["''", "'p'", "'p,r'", "'q'", "'p,q,r'"])),
        Type("bit", "bit(11)", lambda r: f"b'{r.randint(0, 2047):b}'"),
        Type("json", "json", lambda r: r.choice(["'{}'", "'[1,2]'", "'{\"a\":\"b\"}'"]), 8),
        Type("uuid", "uuid", lambda r: f"'{r.randint(0, 3):08x}-0000-1000-8000-{r.randint(0, 9):012x}'"),
        Type("inet4", "inet4", lambda r: f"'10.0.{r.randint(0, 1)}.{r.randint(0, 39)}'"),
        Type("inet6", "inet6", lambda r: f"'::{r.randint(0, 39):x}'"),
    ]

def default(ty, r):
    """Of a column added to rows that are there; the session's clock stands still."""
    if ty.name in ("datetime", "timestamp") and r.random() < 0.7:
        digits = re.search(r"\((\d)\)", ty.sql)[1]
        return f" default current_timestamp({digits})" + r.choice(["", f" on update current_timestamp({digits})"])
    return r.choice(["", f" default ({ty.literal(r)})"])

class Table:
    """A table as the generator believes it is; it need not be right, only the same for both engines."""
    def __init__(self, number, r, noted):
        self.name, self.r, self.keys, self.next, self.noted = f"t{number}", r, {}, 0, noted
        self.required = set()
        self.columns = {"id": Type("int", "int", lambda r: str(r.randint(0, 60)))}
        self.generated, self.known = None, collections.defaultdict(list)
        every = types(r)
        chosen = r.sample(every, r.randint(2, 5))
        seldom = min(every, key=lambda ty: min(self.seen(ty.name, kind) for kind in ([*KINDS, "primary"] if ty.key else ["none"])))
        self.columns_made = 0
        for ty in chosen if seldom in chosen else chosen + [seldom]:
            self.columns[self.column_name()] = ty

    def column_name(self):
        self.columns_made += 1
        return f"c{self.columns_made}"

    def seldom(self, key):
        return self.seldom_made(*self.keys[key])

    def seldom_made(self, kind, parts):
        return min(self.seen(self.type_of(c), kind) for c in parts)

    def rarest(self, operation, fit=lambda kind: True):
        """The key by which the operation was done most seldom; None: the primary."""
        keys = [(None, ("primary", self.primary)), *sorted(self.keys.items(), key=str)]
        keys = {k: key for k, key in keys if key[1] and fit(key[0])}
        return min(keys, key=lambda k: min(self.noted[self.type_of(c), keys[k][0], operation] for c in keys[k][1]), default=None)

    def seen(self, ty, kind):
        """How often the rarest operation was made on keys of the kind over columns of the type."""
        return min(self.noted[ty, kind, operation] for operation in OPERATIONS if kind != "none" or operation != "order")

    def key_part(self, name):
        ty = self.columns[name]
        return f"{name}({ty.prefix})" if ty.prefix else name

    def add_key(self, kind=None):
        """A random key, or one of the kind: (name, definition)."""
        r = self.r
        data = [c for c in self.columns if c != "id"] + (["g"] if self.generated else [])
        wanted, kinds = kind, ["plain", "plain", "desc", "composite", "unique", "composite_desc", "generated", "long_unique"]
        kind = wanted or r.choice(kinds)
        name = f"k{self.next}"
        self.next += 1
        if kind == "generated" and self.generated:
            parts = ["g"]
        elif kind == "long_unique":
            longs = [c for c in data if c in self.columns and self.columns[c].name in TEXTS + BLOBS]
            if not longs:
                return None
            longs.sort(key=lambda c: self.noted[self.columns[c].name, kind, "update"])
            self.keys[name] = (kind, [longs[0]])
            return name, f"unique key {name} ({longs[0]})"
        else:
            kind = "plain" if kind == "generated" else kind
            count = 2 if kind.startswith("composite") else 1
            plain = [c for c in data if c != "g" and self.columns[c].key]
            if not plain:
                return None
            parts = r.sample(plain, min(count, len(plain)))
            if wanted or r.random() < 0.75:
                # Later a unique key meets duplicates and is refused.
                kinds = [wanted] if wanted else KINDS if not self.known else [k for k in KINDS if k != "unique"]
                least = min((self.seen(self.columns[c].name, k), k, c) for k in kinds for c in plain)
                kind, first = least[1], least[2]
                others = [c for c in plain if c != first]
                parts = [first] + ([r.choice(others)] if kind.startswith("composite") and others else [])
            if kind == "composite" and r.random() < 0.3:
                parts.append("id")
        part = lambda c: (c if c in ("g", "id") else self.key_part(c))
        shown = [part(c) + (" desc" if "desc" in kind and (i == 0 or r.random() < 0.5) else "") for i, c in enumerate(parts)]
        unique = "unique " if kind == "unique" else ""
        self.keys[name] = (kind, parts)
        return name, f"{unique}key {name} ({', '.join(shown)})"

    def create(self):
        r = self.r
        lines = ["id int not null"] + [f"{c} {t.sql}" for c, t in self.columns.items() if c != "id"]
        numbers = [c for c, t in self.columns.items() if t.name in NUMBERS_OF_G and c != "id"]
        if numbers:
            self.generated = numbers[0]  # the column that g is made of
            self.stored = r.choice(["virtual", "virtual", "stored"])
            lines.append(f"g varchar(40) as (concat('v', {numbers[0]} div 3)) {self.stored}")
        primary = r.choice(["id", "text", "composite", "composite", "composite", "composite", "none"])
        strings = [c for c, t in self.columns.items() if t.name in ("char", "varchar") and t.key]
        if primary == "text" and strings:
            lines[list(self.columns).index(strings[0])] += " not null"
            lines += [f"primary key ({strings[0]})"]
            self.primary = [strings[0]]
        elif primary == "composite":
            other = [c for c, t in self.columns.items() if t.key and c != "id"]
            other = sorted(other, key=lambda c: self.seen(self.columns[c].name, "primary"))[:1]
            self.primary = other + ["id"]
            for c in other:
                lines[list(self.columns).index(c)] = f"{c} {self.columns[c].sql.removesuffix(' null')} not null"
            lines.append(f"primary key ({', '.join([self.key_part(c) for c in other] + ['id'])})")
        elif primary == "none":
            self.primary = []
        else:
            self.primary = ["id"]
            lines.append(f"primary key (id{r.choice(['', '', ' desc'])})")
        for _ in range(r.randint(2, 4)):
            key = self.add_key()
            if key:
                lines.append(key[1])
        return f"create table {self.name} ({', '.join(lines)})"

    def type_of(self, c):
        return self.stored if c == "g" else self.columns[c].name

    def all(self):
        return list(self.columns) + (["g"] if self.generated else [])

    def exact(self, c):
        """Expressions whose values tell what is in the column, the bytes too."""
        ty = self.columns.get(c)
        if ty and ty.name in BLOBS + TEXTS + COMPRESSED:
            return f"length({c}), crc32({c})"
        # HEX of a number is that of its integer.
        return c if ty and ty.name in ("float", "double", "decimal") else f"hex({c})"

    def shown(self):
        hexed = ("binary", "varbinary", "bit", "char", "varchar", "geometry", *BLOBS, *TEXTS, *COMPRESSED)
        return ", ".join(self.exact(c) if c in self.columns and self.columns[c].name in hexed else c for c in self.all())

    def sums(self):
        """What CHECKSUM TABLE says, of the generated column too."""
        return ", ".join(f"ifnull({'crc32' if 'crc32' in self.exact(c) else 'hex'}({c}), '-')" for c in self.all())

    def total(self):
        """An order without ties but of equal rows."""
        return ", ".join(["id"] + [self.exact(c) for c in self.all() if c != "id"])

    def checksum(self):
        if self.generated:
            # CHECKSUM TABLE does not read generated columns: their NULL bits are what InnoDB's row cache leaves.
            return f"select count(*), sum(crc32(concat_ws(' ', {self.sums()}))) from {self.name}"
        return f"checksum table {self.name}"

    def closing(self):
        """The whole table once more, by each of its keys: [(kind, table, SQL)]."""
        out = [self.checksum(), f"check table {self.name}"]
        keys = [("primary", self.primary)] if self.primary else []
        keys += [(k, parts) for k, (kind, parts) in self.keys.items() if kind != "long_unique"]
        for key, parts in keys:
            out.append(f"select {self.shown()} from {self.name} force index ({key}) order by {', '.join(parts)}, {self.total()}")
        return [("closing", self.name, sql) for sql in out]

    def literal_in_row(self, c):
        """Now and then the default."""
        return "default" if self.r.random() < 0.03 and c not in self.primary and c != "id" else self.literal(c)

    def literal(self, c):
        if self.r.random() < 0.08 and c not in self.primary and c != "id" and c not in self.required:
            return "null"
        made = self.columns[c].literal(self.r)
        self.known[c] = self.known[c][-20:] + [made]
        return made

    def sought(self, c):
        """A value that may be there."""
        known = self.known[c]
        return self.r.choice(known) if known and self.r.random() < 0.6 else self.columns[c].literal(self.r)

    def row(self):
        return "(" + ", ".join(self.literal_in_row(c) for c in self.columns) + ")"

    def where(self, key=None, wide=False):
        """A condition over the first parts of a key; a wide one holds for about half of the rows."""
        r = self.r
        if key:
            kind, parts = self.keys[key]
        else:
            kind, parts = "primary", self.primary or ["id"]
        out = []
        for c in parts:
            if c == "g":
                lit = lambda: f"'v{r.randint(-3, 9)}'"
            else:
                lit = lambda c=c: self.sought(c)
            form = 9 if wide else r.randrange(9)
            if form <= 2:
                out.append(f"{c} = {lit()}")
                continue
            if form == 3:
                out.append(f"{c} in ({lit()}, {lit()}, {lit()})")
            elif form == 4:
                out.append(f"{c} between {lit()} and {lit()}")
            elif form == 5 and c in self.columns and self.columns[c].name in ("char", "varchar", *TEXTS):
                out.append(f"{c} like '{r.choice('abAcz')}%'")
            elif form == 6:
                out.append(f"{c} is null" if r.random() < 0.4 else f"{c} <=> {lit()}")
            else:
                out.append(f"{c} {r.choice(['<', '<=', '>', '>='])} {lit()}")
            break
        unkeyed = [c for c, ty in self.columns.items() if ty.name in COMPRESSED]
        if not key and unkeyed and r.random() < 0.3:
            c = r.choice(unkeyed)
            out.append(r.choice([f"{c} = {self.sought(c)}", f"({c} is null or {c} <> {self.sought(c)})"]))
        return " and ".join(out)

    def alter(self, fresh):
        """An ALTER of a form other than ADD and DROP KEY, often of one seldom made: (its form, SQL, what follows or None)."""
        forms = self.r.sample(ALTERS[2:], len(ALTERS) - 2)
        if self.r.random() < 0.5:
            forms.sort(key=lambda form: self.noted[form])
        for form in forms:
            name, made = self.name, self.alter_as(form, fresh)
            if made:
                self.noted[form] += 1
                sql, *after = made if isinstance(made, tuple) else (f"alter table {name} {made}",)
                return form, sql, *(after or [None])

    def alter_as(self, form, fresh):
        """What follows ALTER TABLE, or whole statements, or None where the table does not have what the form needs."""
        r, name = self.r, self.name
        free = [c for c in self.columns if c not in ("id", self.generated)]
        bare = [c for c in free if c not in self.primary and not any(c in parts for _, parts in self.keys.values())]
        free_of_primary = [c for c in free if c not in self.primary]
        if form == "add column" and len(self.columns) < 10:
            ty, c = r.choice(types(r)), self.column_name()
            sql = f"add column {c} {ty.sql}{default(ty, r)}" + r.choice(["", "", " first", " after id"])
            self.columns[c] = ty
        elif form == "drop column" and bare and len(self.columns) > 3:
            c = r.choice(bare)
            del self.columns[c]
            sql = f"drop column {c}"
        elif form == "rename column" and free:
            c, to = r.choice(free), self.column_name()
            self.columns = {to if x == c else x: ty for x, ty in self.columns.items()}
            swap = lambda parts: [to if x == c else x for x in parts]
            self.primary = swap(self.primary)
            self.keys = {k: (kind, swap(parts)) for k, (kind, parts) in self.keys.items()}
            self.known[to] = self.known.pop(c, [])
            self.required = set(swap(self.required))
            sql = f"rename column {c} to {to}"
        elif form in ("null", "not null", "reorder") and free_of_primary:
            c = r.choice(free_of_primary)
            ty = self.columns[c]
            # '' is no value of these.
            required = form == "not null" and ty.name not in ("json", "geometry") or form == "reorder" and c in self.required
            (self.required.add if required else self.required.discard)(c)
            sql = f"modify {c} {ty.sql.removesuffix(' null')} " + (f"not null default ({ty.literal(r)})" if required else "null")
            sql += r.choice([" first", " after id"]) if form == "reorder" else ""
        elif form == "default" and free_of_primary:
            c = r.choice(free_of_primary)
            sql = f"alter column {c} set default ({self.columns[c].literal(r)})"
        elif form == "extend" and (short := [c for c in free if re.match(r"varchar\((40|200)\) ch", self.columns[c].sql)]):
            c = r.choice(short)
            old = self.columns[c]
            longer = old.sql.replace("varchar(200)", "varchar(250)").replace("varchar(40)", f"varchar({r.choice([60, 200])})")
            self.columns[c] = Type(old.name, longer, old.literal, old.prefix, old.key)
            sql = f"modify {c} {longer}" + (" not null" if c in self.primary or c in self.required else "")
        elif form == "widen" and (ints := [c for c in free_of_primary if self.columns[c].name == "int"]):
            c = r.choice(ints)
            self.columns[c] = next(ty for ty in types(r) if ty.name == "bigint")
            self.required.discard(c)
            sql = f"modify {c} bigint"
        elif form == "rename table":
            self.name = fresh()
            return r.choice([f"alter table {name} rename to {self.name}", f"rename table {name} to {self.name}"]),
        elif form == "engine copy":
            sql = r.choice(["engine=EVENKEEL", "force, algorithm=copy", "engine=EVENKEEL, algorithm=copy"])
        elif form == "there and back":
            return f"alter table {name} engine=InnoDB", f"alter table {name} engine=EVENKEEL"
        # Of rows with equal keys the first one stays: in the order in which each engine reads them.
        elif form == "add unique" and self.primary == ["id"] and len(self.keys) < 6 and (made := self.add_key("unique")):
            return f"alter ignore table {name} add {made[1]}",
        elif form == "force":
            sql = "force"
        else:
            return None
        return sql

class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.tables, self.made, self.in_transaction = {}, 0, False
        self.noted, self.last, self.pending = collections.Counter(), [], []

    def fresh(self):
        self.made += 1
        return f"t{self.made - 1}"

    def table(self):
        return self.tables[self.r.choice(sorted(self.tables))]

    def note(self, table, operation, key=None, column=None):
        """The statement reads by the key (None: the primary), or changes entries of keys over the column
        or, if that is "*", of all."""
        by = key or "primary"
        for k, (kind, parts) in [("primary", ("primary", table.primary)), *table.keys.items()]:
            if column == "*" or column in parts or column is None and k == by or operation != "insert" and k == by:
                self.last += [(table.type_of(c), kind, operation) for c in parts]
                self.last += [(table.type_of(c), "prefix", operation) for c in parts
                              if c in table.columns and table.columns[c].prefix and kind != "long_unique"]
        if operation != "update" or column in table.columns:
            self.last += [(ty.name, "none", operation) for c, ty in table.columns.items()
                          if ty.name in COMPRESSED and (operation != "update" or column == c)]

    def statement(self):
        """(kind, table or None, SQL, what it covers, SQL for InnoDB) of the next statement."""
        self.last = []
        kind, name, sql = self.pending.pop(0) if self.pending else self.draw()
        if kind == "drop":
            del self.tables[name]
        self.noted.update(self.last)
        theirs = sql.replace("engine=EVENKEEL", "engine=InnoDB")
        if re.match(r"alter table \w+ modify .* not null default", sql):
            theirs += ", algorithm=copy"
        if name in self.tables and self.tables[name].generated and self.tables[name].stored == "virtual":
            for key, (kind_of_key, _) in self.tables[name].keys.items():
                if kind_of_key == "generated":
                    theirs = theirs.replace(f"force index ({key})", "use index ()")
        return kind, name, sql, self.last, theirs

    def draw(self):
        r = self.r
        if len(self.tables) < 4 or r.random() < 0.008:
            if len(self.tables) >= 7:
                name = r.choice(sorted(self.tables))
                self.in_transaction = False
                self.pending = self.tables[name].closing() + [("drop", name, f"drop table {name}")]
                return self.pending.pop(0)
            table = Table(self.made, r, self.noted)
            self.made += 1
            self.tables[table.name] = table
            self.in_transaction = False
            return "create", table.name, table.create()
        table = self.table()
        if r.random() < 0.3:
            table = min(self.tables.values(), key=lambda t: (min(map(t.seldom, t.keys), default=10**9), t.name))
        name, key = table.name, r.choice(sorted(table.keys)) if table.keys and r.random() < 0.8 else None
        if key and r.random() < 0.5:
            key = min(sorted(table.keys), key=table.seldom)
        dice = r.random()
        if table.primary and table.seldom_made("primary", table.primary) < 15 and r.random() < 0.6:
            key = None
            # Which are the seldom ones among the statements below.
            dice = r.choice([dice, dice, 0.3, 0.37, 0.5, 0.65, 0.65])
        if dice < 0.20:
            verb = r.choice(["insert", "insert", "insert ignore", "replace"])
            rows = ", ".join(table.row() for _ in range(r.choice([1, 1, 3, 8])))
            if verb != "insert" and r.random() < 0.5:
                rows = table.row()
            columns = ", ".join(table.columns)
            end = ""
            # Of several duplicates the first one found is updated; long unique keys are looked at after
            # the row is written in EVENKEEL, before it in InnoDB (which at READ COMMITTED does as EVENKEEL).
            ordered = all(kind != "long_unique" for kind, _ in table.keys.values())
            if verb == "insert" and ordered and r.random() < 0.3:
                c = r.choice([c for c in table.columns if c != "id"])
                end = f" on duplicate key update {c} = {table.literal(c)}"
            self.note(table, "insert", column="*")
            return verb + (" odku" if end else ""), name, f"{verb} into {name} ({columns}) values {rows}{end}"
        if dice < 0.33:
            c = r.choice([c for c in table.columns if c != "id" or r.random() < 0.3])
            wide = r.random() < 0.6
            if wide:
                key = table.rarest("update")
                unique = {*table.primary, *(p for kind, parts in table.keys.values() if "unique" in kind for p in parts)}
                c = r.choice([x for x in table.columns if x not in unique] or [c])
            self.note(table, "update", key, c)
            return "update", name, f"update {name} set {c} = {table.literal(c)} where {table.where(key, wide)}"
        if dice < 0.38:
            if r.random() < 0.9:
                key = table.rarest("delete")
                self.note(table, "delete", key, "*")
                # Rows stay for the next.
                few = "" if key and table.keys[key][0] == "generated" else f" order by {table.total()} limit 2"
                return "delete", name, f"delete from {name} where {table.where(key, wide=True)}{few}"
            self.note(table, "delete", key, "*")
            return "delete", name, f"delete from {name} where {table.where(key)}"
        if dice < 0.60:
            wide = r.random() < 0.6
            if wide:
                key = table.rarest("select")
            hint = f" force index ({key})" if key and table.keys[key][0] != "long_unique" else ""
            self.note(table, "select", key)
            return "select", name, f"select {table.shown()} from {name}{hint} where {table.where(key, wide)} order by {table.total()}"
        if dice < 0.72 and r.random() < 0.7 and any(kind != "long_unique" for kind, _ in table.keys.values()):
            key = table.rarest("order", lambda kind: kind != "long_unique")
        if dice < 0.72 and (table.keys[key][0] != "long_unique" if key else table.primary):
            parts = table.keys[key][1] if key else table.primary
            order = ", ".join(p + (r.choice([" desc", ""])) for p in parts)
            self.note(table, "order", key)
            limit = r.choice(["", "", " limit 5"])
            shown = ", ".join(map(table.exact, parts))
            # Ties are told apart by the very values.
            ties = f"{shown}{limit}" if limit else table.total()
            return "order", name, f"select {shown} from {name} force index ({key or 'primary'}) order by {order}, {ties}"
        if dice < 0.77:
            c = r.choice(table.all())
            value = table.exact(c).split(", ")[-1]
            forms = [f"select count(*), count(distinct {c}), min({value}), max({value}) from {name}",
                     f"select count(*) from {name} where {table.where(key)}",
                     f"select count(*) n, min(id) from {name} group by {c} order by n, 2"]
            return "aggregate", name, r.choice(forms)
        if dice < 0.80:
            other = self.table()
            a, b = r.choice(table.all()), r.choice([c for c in other.columns if other.columns[c].name == "int"] or ["id"])
            return "join", name, (f"select count(*), sum(x.id), sum(y.id) from {name} x join {other.name} y on x.id = y.{b} "
                                  f"where x.id < {r.randint(5, 90)}")
        if dice < 0.93:
            if self.in_transaction:
                what = r.random()
                if what < 0.3:
                    self.in_transaction = False
                    return "transaction", None, r.choice(["commit", "rollback"])
                return "transaction", None, r.choice([f"savepoint s{r.randint(0, 2)}", f"rollback to savepoint s{r.randint(0, 2)}"])
            if r.random() < 0.5:
                self.in_transaction = True
                return "transaction", None, "begin"
            return "checksum", name, table.checksum()
        if dice < 0.94:
            self.in_transaction = False
            if r.random() < 0.5 and len(table.keys) > 1:
                gone = r.choice(sorted(table.keys))
                del table.keys[gone]
                return "alter drop key", name, f"alter table {name} drop key {gone}"
            made = table.add_key() if len(table.keys) < 6 else None
            if made:
                return "alter add key", name, f"alter table {name} add {made[1]}"
            return "alter force", name, f"alter table {name} force"
        if dice < 0.957:
            self.in_transaction = False
            if r.random() < 0.1:
                return "truncate", name, f"truncate table {name}"
            form, sql, after = table.alter(self.fresh)
            if table.name != name:
                self.tables[table.name] = self.tables.pop(name)
            if after:
                self.pending = [(f"alter {form}", name, after)]
            return f"alter {form}", name, sql
        columns = ", ".join(table.columns)
        shifted = ", ".join(["id + 61" if c == "id" else c for c in table.columns])
        if r.random() < 0.5:
            self.note(table, "insert", column="*")
            return "insert select", name, f"insert ignore into {name} ({columns}) select {shifted} from {name} where id < {r.randint(0, 30)} order by {table.total()} limit 5"
        self.note(table, "delete", None, "*")
        return "delete", name, f"delete from {name} where id > 60"

def run(args, engine, script):
    command = ["mariadb", "--no-defaults", f"--socket={args.socket}", "-uroot", "--force", "-vvv", "--unbuffered",
               "--default-character-set=utf8mb4"]
    head = (f"create or replace database d_{engine.lower()} character set utf8mb4; use d_{engine.lower()};\n"
            f"set default_storage_engine={engine}, innodb_lock_wait_timeout=5, autocommit=1;\n"
            "set sql_mode='NO_ENGINE_SUBSTITUTION', optimizer_use_condition_selectivity=1, "
            "timestamp=1700000000.123456;\n")
    done = subprocess.run(command, input=(head + script).encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode(errors="replace")
    answers, number = {}, None
    for part in re.split(r"^--------------\nselect 'Q(\d+)'\n--------------\n", text, flags=re.M)[1:]:
        if part.isdigit() and number is None:
            number = int(part)
            continue
        body = part.split("1 row in set", 1)[-1].split("\n", 1)[-1] if "1 row in set" in part else part
        answers[number] = body
        number = None
    return answers

def clean(answer):
    """What must be the same: rows, counts, error numbers."""
    answer = re.sub(r"\(\d+\.\d+ sec\)", "", answer)
    answer = re.sub(r"ERROR (\d+) \((\w+)\).*", r"ERROR \1", answer)
    answer = re.sub(r"^--------------\n.*?\n--------------\n", "", answer, count=1, flags=re.M | re.S)
    answer = re.sub(r"d_(innodb|evenkeel)", "d", answer)
    answer = re.sub(r"^\+-[-+]*$", "", answer, flags=re.M)
    answer = re.sub(r" +\|", " |", answer)
    return "\n".join(line.rstrip() for line in answer.splitlines() if line.strip() and line.strip() != "Bye")

def result(answer):
    # From the line's beginning: values may hold long runs of digits, which a search would try at each.
    if "ERROR" in answer:
        return "failed"
    rows = re.search(r"^Query OK, (\d+) rows? affected", answer, flags=re.M)
    if rows:
        return "changed" if int(rows.group(1)) else "nothing"
    return "returned" if re.search(r"^\d+ rows? in set", answer, flags=re.M) else "nothing"

def expected():
    """Every type x index kind x operation there has to be."""
    every = [ty.name for ty in types(random.Random(0)) if ty.name not in COMPRESSED]
    out = {(ty, kind, operation) for ty in every for kind in [*KINDS, "primary"] for operation in OPERATIONS}
    out |= {(ty, "prefix", operation) for ty in PREFIXED for operation in OPERATIONS}
    changes = [operation for operation in OPERATIONS if operation != "order"]
    out |= {(ty, "long_unique", operation) for ty in BLOBS + TEXTS for operation in changes}
    out |= {(ty, "none", operation) for ty in COMPRESSED for operation in changes}
    return out | {(stored, "generated", operation) for stored in ("virtual", "stored") for operation in OPERATIONS}

def renamed(sql):
    """The new name, if the statement is a renaming."""
    found = re.match(r"(?:alter|rename) table (\w+) (?:rename )?to (\w+)$", sql)
    return found and found[2]

def compare(statements, one, two):
    """(number, InnoDB's answer, EVENKEEL's) of what differs, outcomes by kind, what was covered."""
    kinds, covered, different, spoiled = collections.Counter(), collections.Counter(), [], set()
    for i, (kind, table, sql, covers, _) in enumerate(statements):
        tables = {table, *re.findall(r" join (\w+) y ", sql)}
        a, b = clean(one.get(i, "(InnoDB: no answer)")), clean(two.get(i, "(EVENKEEL: no answer)"))
        if a == "ERROR 1713":
            # What InnoDB has no room for in its undo: too many prefixes of long values. The tables differ from here on.
            kinds["refused by InnoDB", "failed"] += 1
            spoiled.add(table)
        if kind.startswith("alter") and "failed" not in (result(a), result(b)):
            a = b  # Where one engine copies and the other does not, only one counts rows.
        kinds[kind, result(a)] += 1
        if result(a) in ("changed", "returned"):
            covered.update(set(covers))
        if kind.startswith("alter") and result(a) != "failed":
            covered[kind] += 1
        if kind == "create":
            spoiled.discard(table)
        if a != b and not tables & spoiled:
            different.append((i, a, b))
            spoiled.add(table)
        if table in spoiled and renamed(sql):
            spoiled.add(renamed(sql))
    return different, kinds, covered

def show(statements, different):
    for i, a, b in different[:8]:
        _, table, sql, _, theirs = statements[i]
        print(f"\n-- statement {i}: {sql[:600]}" + ("" if sql == theirs else "  -- InnoDB: use index ()"))
        for kind, name, sql, *_ in reversed(statements[:i]):
            if renamed(sql) == table:
                table = name
            if name == table and kind == "create":
                print(f"-- table: {sql}")
                break
        lines = difflib.unified_diff(a.splitlines(), b.splitlines(), "InnoDB", "EVENKEEL", n=1, lineterm="")
        print("\n".join(list(lines)[:30]))

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--statements", type=int, default=50_000)
    parser.add_argument("--keep")
    args = parser.parse_args()
    engines = subprocess.run(["mariadb", "--no-defaults", f"--socket={args.socket}", "-uroot", "-N", "-e", "show engines"],
                             stdout=subprocess.PIPE, check=True).stdout.decode()
    if not re.search(r"^EVENKEEL\t(YES|DEFAULT)\t", engines, flags=re.M):
        sys.exit("differential: the server has no engine EVENKEEL: InnoDB would be compared with itself")
    generator = Generator(args.seed)
    statements = [generator.statement() for _ in range(args.statements)]
    while generator.pending:
        statements.append(generator.statement())
    generator.pending = [closing for table in generator.tables.values() for closing in table.closing()]
    while generator.pending:
        statements.append(generator.statement())
    if args.keep:
        open(args.keep, "w").write("".join(f"{s[2]};\n" for s in statements))
    script = lambda column: "".join(f"select 'Q{i}';\n{s[column]};\n" for i, s in enumerate(statements))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        one, two = pool.map(lambda engine: run(args, *engine), [("InnoDB", script(4)), ("EVENKEEL", script(2))])
    different, kinds, covered = compare(statements, one, two)
    print(f"seed {args.seed}: {len(statements)} statements, {len(different)} tables or transactions differ")
    outcomes = ("changed", "returned", "nothing", "failed")
    for kind in sorted({k for k, _ in kinds}):
        print(f"  {kind:21}" + "".join(f" {o} {kinds[kind, o]}" for o in outcomes if kinds[kind, o]))
    share = lambda *of: sum(n for (_, outcome), n in kinds.items() if outcome in of) / len(statements)
    useful, failed = share("changed", "returned"), share("failed")
    rare = sorted(t for t in expected() if covered[t] < 5)
    rare += sorted((form,) for form in ALTERS if covered[f"alter {form}"] < 5)
    print(f"  change or return rows {useful:.1%}, fail {failed:.1%}; {len(expected())} of type x index x operation, "
          f"{len(rare)} of them below 5 times{': ' + ', '.join(' x '.join(t) for t in rare[:12]) if rare else ''}")
    show(statements, different)
    if different:
        return 1
    fit = useful >= 0.3 and failed <= 0.1 and not (rare and args.statements >= COVERED_FROM)
    return 0 if fit else 2

if __name__ == "__main__":
    sys.exit(main())
