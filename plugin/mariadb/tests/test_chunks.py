#!/usr/bin/env python3
"""Random statements on a chunked table of EVENKEEL and on its twin in InnoDB, in one private server: errors and rows must
be the same. test_chunks.py [SEED [STATEMENTS]]; prints how many statements ended with each error, how many chunks were
made and dropped, and "N statements, 0 differ".

Each generation draws the type of the times, the width of the chunks, the slots, and the keys. Times come late, and some
are wild: before 2000, after 2100, zero dates and dates that no calendar has. Plans are forced through each index, in both
directions. Chunks are dropped beside a DELETE of the same rows in InnoDB. Definitions that cannot be chunked come first.
"""
import collections
import random
import re
import sys

from client import Client, Failed
from servers import Problem, run, seed_of, wait_until

GENERATION = 220
COMPARE_EVERY = 25
DAYS = 24
BASE = 1704067200  # 2024-01-01
TIMES = ["datetime", "datetime(6)", "datetime(2)", "timestamp", "timestamp(3)", "date", "int", "bigint unsigned", "bigint"]
UNITS = {"int": ("SECOND", 1), "bigint unsigned": ("MILLISECOND", 1000), "bigint": ("MICROSECOND", 1_000_000)}
PRIMARIES = ["dev, ts", "ts, dev", "ts desc, dev", "dev, ts desc", "dev desc, ts", "p, ts, dev"]
WILD = ["'1975-06-01 10:00:00'", "'2150-01-01'", "'0000-00-00'", "'2024-00-00'", "'2024-02-31'", "'1999-12-31 23:59:59'",
        "'2100-01-01'", "'2024-02-00'"]
COLUMNS = "dev, ts, p, v, s, length(b), left(b, 20), w"

# Definitions, or changes of the chunked table `good`, and what their errors say.
REFUSED = [
    ("create table x (a int primary key, ts datetime not null chunk_interval='1 day')", "unique and must hold column `ts`"),
    ("create table x (ts datetime not null chunk_interval='1 day', a int, primary key (ts), unique u (a))", "key `u`"),
    ("create table x (ts datetime not null chunk_interval='1 day', a int not null chunk_slots=4, primary key (ts))", "`a`"),
    ("create table x (ts datetime not null chunk_interval='1 day')", "PRIMARY KEY"),
    ("create table x (ts datetime not null chunk_interval='1 dy', primary key (ts))", "CHUNK_INTERVAL='1 day'"),
    ("create table x (ts datetime not null chunk_interval='0 days', primary key (ts))", "CHUNK_INTERVAL='1 day'"),
    ("create table x (ts date not null chunk_interval='1 hour', primary key (ts))", "whole days"),
    ("create table x (ts datetime not null chunk_interval='1 day', primary key (ts)) retain='soon'", "RETAIN='1 day'"),
    ("create table x (ts datetime not null, primary key (ts)) retain='1 day'", "RETAIN drops chunks"),
    ("create table x (ts int not null chunk_interval='1 day', primary key (ts))", "CHUNK_UNIT"),
    ("create table x (ts double not null chunk_interval='1 day', primary key (ts))", "DATE, DATETIME"),
    ("create table x (ts time not null chunk_interval='1 day', primary key (ts))", "DATE, DATETIME"),
    ("create table x (ts datetime not null chunk_interval='1 day' chunk_unit=day, primary key (ts))", "its own unit"),
    ("create table x (ts datetime chunk_interval='1 day', a int primary key)", "NOT NULL"),
    ("create table x (ts int not null auto_increment chunk_interval='1 day' chunk_unit=second, primary key (ts))", "AUTO_INC"),
    ("create table x (ts datetime not null chunk_interval='1 day', t2 datetime not null chunk_interval='1 day', "
     "primary key (ts, t2))", "both have"),
    ("create table x (ts datetime not null chunk_interval='1 day' chunk_slots=2, primary key (ts))", "cannot have both"),
    ("create table x (ts datetime not null, a int not null chunk_slots=2, primary key (ts, a))", "CHUNK_SLOTS"),
    ("create table x (ts datetime not null chunk_interval='1 day', a varchar(9) not null chunk_slots=2, "
     "primary key (ts, a))", "collation"),
    ("create temporary table x (ts datetime not null chunk_interval='1 day', primary key (ts))", "temporary"),
    ("create table x (ts datetime not null chunk_interval='1 day', primary key (ts)) with system versioning", "VERSIONING"),
    ("create table x (ts datetime not null chunk_interval='1 day', primary key (ts)) partition by key (ts) partitions 2",
     "Unknown option"),
    ("create table x (ts datetime not null chunk_interval='1 day', dev int, primary key (ts), key (dev), "
     "foreign key (dev) references plain (id))", "FOREIGN KEY"),
    ("create table x (id int primary key, dev int, ts datetime, key (dev, ts), "
     "foreign key (dev, ts) references good (dev, ts))", "chunked"),
    ("alter table good add foreign key (v) references plain (id)", "FOREIGN KEY"),
    ("alter table good modify ts datetime not null", "CHUNK_INTERVAL='1 day'"),
    ("alter table good modify ts datetime not null, algorithm=copy", "CHUNK_INTERVAL='1 day'"),
    ("alter table good change ts t datetime not null", "CHUNK_INTERVAL='1 day'"),
    ("alter table good modify dev int not null", "CHUNK_SLOTS=4"),
    ("alter table good add key k (v), algorithm=inplace", "chunked table"),
    ("alter table good add column c int, algorithm=instant", "chunked table"),
    ("alter table good drop primary key", "PRIMARY KEY"),
    ("alter table good drop primary key, add primary key (dev)", "`ts`"),
    ("alter table good add unique u (v)", "key `u`"),
    ("alter table good partition by key (dev) partitions 2", "PARTITION BY"),
    ("alter table good add system versioning", "VERSIONING"),
    ("alter table parts exchange partition p0 with table good", "different definitions"),
    ("alter table parts convert table good to partition p1 values less than ('2035-01-01')", "different definitions"),
]

# Statements that succeed, with what SHOW CREATE TABLE says afterwards.
ACCEPTED = [
    ("alter table good comment 'c', algorithm=instant", "good", ["`CHUNK_INTERVAL`='1 day'", "`CHUNK_SLOTS`=4"]),
    ("alter table good rename column ts to t", "good", ["`t` datetime", "`CHUNK_INTERVAL`='1 day'"]),
    ("alter table good rename column t to ts", "good", ["`ts` datetime", "`CHUNK_INTERVAL`='1 day'"]),
    ("create table copy like good", "copy", ["`CHUNK_INTERVAL`='1 day'", "`CHUNK_SLOTS`=4"]),
    ("rename table copy to other", "other", ["`CHUNK_INTERVAL`='1 day'"]),
    ("alter table other chunked=no", "other", ["`CHUNKED`=no"]),
    ("alter table other add column c int, add unique u (v)", "other", ["`CHUNKED`=no"]),
    ("alter table other drop key u, chunked=yes", "other", ["`CHUNKED`=yes", "`CHUNK_INTERVAL`='1 day'"]),
    ("alter table other chunked=no, modify ts datetime not null, modify dev int not null", "other", ["`CHUNKED`=no"]),
    ("alter table other retain='30 days' chunked=default, modify ts datetime not null chunk_interval='6 hours'", "other",
     ["`CHUNK_INTERVAL`='6 hours'", "`RETAIN`='30 days'"]),
]


class Table:
    """A random table, and statements on it."""

    def __init__(self, rng):
        self.rng = rng
        self.time = rng.choice(TIMES)
        self.width = rng.choice(["1 day", "1 day", "3 days", "1 week"])
        if self.time != "date":
            self.width = rng.choice([self.width, "6 hours", "90 minutes"])
        self.slots = rng.choice([0, 0, 1, 4])
        self.primary = rng.choice(PRIMARIES)
        self.keys = ["v", "ts", rng.choice(["s", "s desc"]), rng.choice(["v, ts", "ts desc, v", "v, ts desc"]),
                     rng.choice(["w", "dev, v"]), rng.choice(["s(3), ts", "dev, ts"])]
        self.unique = rng.choice([None, "v, ts, dev", "ts, dev, s", "dev, ts"])

    def definition(self, chunked):
        unit = UNITS.get(self.time)
        of_time = f" chunk_interval='{self.width}'" + (f" chunk_unit={unit[0]}" if unit else "")
        of_space = f" chunk_slots={self.slots}" if self.slots else ""
        # InnoDB's answers by an index over a virtual column are wrong in transactions (differential.py).
        columns = [key if chunked or key != "w" else "dev, v" for key in self.keys]
        keys = "".join(f", key k{n} ({key})" for n, key in enumerate(columns))
        keys += f", unique u ({self.unique})" if self.unique else ""
        return (f"create table r (dev int not null{of_space if chunked else ''}, ts {self.time} not null "
                f"{'default 0 ' if 'timestamp' in self.time else ''}{of_time if chunked else ''}, p int not null, v int, "
                f"s varchar(20) collate utf8mb4_general_ci, b mediumtext, w int as (v + dev) virtual, "
                f"n bigint not null auto_increment, primary key ({self.primary}), key n (n){keys}) default charset=utf8mb4")

    def at(self, wild=30):
        """A time."""
        rng, unit = self.rng, UNITS.get(self.time)
        if unit:
            if rng.randrange(wild) == 0:
                return rng.choice(["0", "-5", "17", str(2 ** 40 * unit[1] // 1000), str(2 ** 62)])
            return str((BASE + rng.randrange(DAYS) * 86400 + rng.choice([0, 0, 0, 3600, 86399])) * unit[1])
        if rng.randrange(wild) == 0:
            return rng.choice(WILD)
        day = rng.randrange(DAYS) + 17
        date = f"2024-01-{day:02}" if day <= 31 else f"2024-02-{day - 31:02}"
        return f"'{date} {rng.choice(['00:00:00', '00:00:00', '01:30:00', '12:00:00.25', '23:59:59', '23:59:59.75'])}'"

    def later(self, days):
        unit = UNITS.get(self.time)
        return f"ts + {days * 86400 * unit[1]}" if unit else f"ts + interval {days} day"

    def text(self):
        return self.rng.choice(["null", "'a'", "'A'", "'ab'", "'b'", "'c'", "'Dd'"])

    def number(self):
        return self.rng.choice(["null"] + [str(n) for n in range(12)] * 2)

    def row(self):
        rng = self.rng
        long = rng.choice(["null", "'x'", "repeat('long ', 3)", "repeat('y', 3000)", "repeat('z', 90000)"])
        long = long if rng.randrange(4) == 0 else "'t'"
        return f"({rng.randrange(5)}, {self.at()}, {rng.randrange(3)}, {self.number()}, {self.text()}, {long})"

    def insert(self, what="insert", rows=(1, 1, 2, 12)):
        rows = ", ".join(self.row() for _ in range(self.rng.choice(rows)))
        return f"{what} into r (dev, ts, p, v, s, b) values {rows}"

    def where(self):
        rng = self.rng
        low, high = self.at(), self.at()
        return rng.choice([
            f"dev = {rng.randrange(5)}", f"ts = {self.at()}", f"ts >= {low}", f"ts < {low}", f"ts between {low} and {high}",
            f"dev = {rng.randrange(5)} and ts between {low} and {high}", f"dev in (1, 3) and ts >= {low}",
            f"v = {rng.randrange(12)}", f"v between 3 and {rng.randrange(3, 12)}", f"v in (1, 4, 7) and s like 'a%'",
            f"v = {rng.randrange(12)} and ts > {low}", f"s = {self.text()}", f"w > {rng.randrange(16)}", "v is null",
            f"dev = {rng.randrange(5)} and ts = {self.at()}", "1 = 1", f"ts > {low} or v = 3",
            f"v = {rng.randrange(12)} and ts in ({self.at()}, {low}, {high})"])

    def order(self):
        """All parts of the key, so that the order is total."""
        return self.rng.choice(["ts, dev, p", "ts desc, dev desc, p desc", "dev, ts, p", "dev desc, ts desc, p desc",
                                "v, ts, dev, p", "v desc, ts desc, dev desc, p desc", "s, ts, dev, p"])

    def index(self):
        key = self.rng.choice(["primary", "n", *(f"k{n}" for n in range(len(self.keys)))])
        return self.rng.choice([f" force index ({key})"] * 3 + [""])

    def select(self):
        rng = self.rng
        locks = rng.choice([""] * 5 + [" for update", " lock in share mode"])
        kind = rng.randrange(8)
        if kind == 0:
            what = rng.choice(["count(*), sum(v), min(ts), max(ts)", "max(ts)", "min(ts), count(distinct dev)"])
            return f"select {what} from r{self.index()} where {self.where()}{locks}"
        if kind == 1:
            return f"select dev, max(ts), count(*) from r{self.index()} where {self.where()} group by dev order by dev"
        if kind == 2:
            return (f"select a.dev, a.ts, a.p, z.v from r a join r z{self.index()} on z.v = a.v and z.dev = a.dev "
                    f"where a.v < 4 "
                    f"order by a.dev, a.ts, a.p, z.dev, z.ts, z.p limit 40")
        limit = rng.choice(["", "", f" limit {rng.randrange(1, 9)}"])
        columns = rng.choice([COLUMNS, COLUMNS, "ts, dev, p", "v, ts, dev, p"])
        return f"select {columns} from r{self.index()} where {self.where()} order by {self.order()}{limit}{locks}"

    def change(self):
        rng = self.rng
        kind, order = rng.randrange(14), self.order()
        if kind < 5:
            return self.insert()
        if kind == 5:
            return self.insert("insert ignore")
        if kind == 6:
            return self.insert("replace", (1, 1, 3))
        if kind == 7:
            update = rng.choice([f"v = {self.number()}", f"ts = {self.at()}", f"s = {self.text()}, v = v + 1"])
            return self.insert(rows=(1, 2)) + f" on duplicate key update {update}"
        if kind < 10:
            return f"update r set v = {self.number()}, s = {self.text()} where {self.where()}"
        if kind == 10:
            value = rng.choice([self.at(), self.later(1), self.later(-2)])
            return f"update r set ts = {value} where {self.where()} order by {order} limit {rng.randrange(1, 5)}"
        if kind == 11:
            ignore = rng.choice(["", "ignore "])
            return (f"update {ignore}r set {rng.choice(['dev = dev + 1', f'ts = {self.at()}', 'p = 2'])} "
                    f"where dev = {rng.randrange(5)} and ts = {self.at(999)} order by {order} limit 1")
        return f"delete from r where {self.where()} order by {order} limit {rng.randrange(1, 7)}"

    def statement(self):
        kind = self.rng.randrange(40)
        if kind < 18:
            return self.change()
        if kind < 34:
            return self.select()
        if kind < 38:
            return self.rng.choice(["begin", "begin", "commit", "commit", "rollback", "savepoint s", "rollback to s",
                                    "release savepoint s"])
        if kind == 38:
            return self.rng.choice(["set tx_isolation='read-committed'", "set tx_isolation='repeatable-read'",
                                    "set tx_isolation='serializable'"])
        return self.rng.choice(["truncate r", "alter table r force", "alter table r add column x int default 7 first",
                                "alter table r drop column if exists x", "alter table r add key v2 (v, s)",
                                "alter table r drop key if exists v2", "optimize table r", "analyze table r",
                                "insert into r (dev, ts, p, v) select dev + 5, ts, p, v from r order by dev, ts, p limit 9",
                                "load", "rename table r to q, q to r", "unchunked", "dropped", "dropped", "dropped"])


class Both:
    """A client for each engine."""

    def __init__(self, server):
        self.server, self.clients, self.ended, self.kinds = server, {}, collections.Counter(), collections.Counter()
        for engine in ("innodb", "evenkeel"):
            client = self.clients[engine] = Client(server.socket)
            for statement in (f"create database {engine}", f"use {engine}", f"set default_storage_engine={engine}",
                              "set time_zone='+02:00'", "set sql_mode='ALLOW_INVALID_DATES'", "set tx_read_only=0",
                              "set optimizer_switch='mrr=on,mrr_cost_based=off,mrr_sort_keys=on'"):
                client.run(statement)

    def answers(self, statement):
        """Of each engine the number of the error, and the rows."""
        found = []
        for client in self.clients.values():
            try:
                found.append((0, client.run(statement)))
            except Failed as failed:
                found.append((failed.number, []))
        if statement.startswith(("analyze", "optimize", "alter", "check")):
            found = [(number, []) for number, _ in found]
        self.ended[found[1][0]] += 1
        self.kinds[statement.split()[0]] += 1
        return found

    def step(self, table, statement):
        """Runs a statement on both; says how they differ, or None."""
        if statement == "unchunked":
            ours = self.clients["evenkeel"]
            for chunked in ("no", "yes"):
                self.clients["innodb"].number("commit")
                number = ours.number(f"alter table r chunked={chunked}")
                if number:
                    return f"chunked={chunked}: error {number}"
                differs = self.compare()
                if differs:
                    return differs
            return None
        if statement == "load":
            rows = self.clients["innodb"].run(f"select {table.row()[1:-1]}")
            with open(self.server.folder / "rows.txt", "w") as file:
                for dev, ts, p, v, s, b in rows * 2:
                    null = lambda value: "\\N" if value is None else value
                    file.write(f"{dev}\t{ts}\t{p}\t{null(v)}\t{null(s)}\t{null(b)}\n")
            statement = f"load data infile '{self.server.folder}/rows.txt' ignore into table r (dev, ts, p, v, s, b)"
        if statement == "dropped":
            return self.dropped(table)
        theirs, ours = self.answers(statement)
        return None if theirs == ours else f"{str(theirs)[:1500]}\n{str(ours)[:1500]}"

    def dropped(self, table):
        """Drops chunks, and deletes their rows in InnoDB."""
        theirs, ours = self.clients["innodb"], self.clients["evenkeel"]
        theirs.run("commit")
        ours.run("commit")
        ends = ours.run("select distinct ends from information_schema.evenkeel_chunks where table_schema = 'evenkeel' "
                        "and table_name = 'r' and ends is not null order by 1 limit 12")
        if not ends:
            return None
        end = table.rng.choice(ends)[0]
        before = end if table.time in UNITS else f"'{end}'"
        there = "select count(*) from information_schema.evenkeel_chunks where table_schema='evenkeel' and table_name='r'"
        count = int(ours.run(there)[0][0])
        gone = int(ours.run(f"{table.rng.choice(['select', 'SELECT'])} evenkeel_drop_chunks('r', {before})")[0][0])
        if gone < 1 or int(ours.run(there)[0][0]) != count - gone:
            return f"{gone} of {count} chunks dropped before {before}"
        # Dates with a month or day 0 are with the first day.
        if "-01-01" in before and before.rstrip("'").endswith(("-01", "00:00:00")):
            before = before.replace("-01-01", "-00-00")
        elif re.search("-01( 00:00:00)?'$", before):
            before = re.sub("-01( 00:00:00)?'$", r"-00\1'", before)
        theirs.run(f"delete from r where ts < {before}")
        return self.compare()

    def compare(self):
        return self.differing(f"select {COLUMNS} from r order by dev, ts, p")

    def differing(self, statement):
        theirs, ours = self.answers(statement)
        return None if theirs == ours else f"{statement}\n{str(theirs)[:3000]}\n{str(ours)[:3000]}"


def definitions(both):
    """What is refused, and what is shown."""
    client = both.clients["evenkeel"]
    client.run("create table plain (id int primary key)")
    client.run("create table good (dev int not null chunk_slots=4, ts datetime not null chunk_interval='1 day', v int, "
               "primary key (dev, ts))")
    client.run("create table parts (dev int not null, ts datetime not null, v int, primary key (dev, ts)) "
               "partition by range columns (ts) (partition p0 values less than ('2030-01-01'))")
    client.run("insert into good values (1, '2024-01-01', 1), (1, '2024-01-02', 2), (2, '2150-01-01', 3)")
    for statement, why in REFUSED:
        try:
            client.run(statement)
        except Failed as failed:
            if why not in str(failed):
                raise Problem(f"{statement}: {failed}, not: {why}")
        else:
            raise Problem(f"not refused: {statement}")
    for statement, table, shown in ACCEPTED:
        client.run(statement)
        text = client.run(f"show create table {table}")[0][1]
        if any(part.lower() not in text.lower() for part in shown):
            raise Problem(f"{statement}: {text}, without {shown}")
    if client.run("select * from good order by dev, ts") != [
            ["1", "2024-01-01 00:00:00", "1"], ["1", "2024-01-02 00:00:00", "2"], ["2", "2150-01-01 00:00:00", "3"]]:
        raise Problem("rows were lost")
    client.run("insert into other (dev, ts) select 1, '2024-01-01' + interval seq day from seq_1_to_900")
    if client.number("insert into other (dev, ts) select 2, '2024-01-01' + interval seq day from seq_1000_to_2100") != 1478:
        raise Problem("a statement made more than 1,000 chunks")
    client.run("insert into other (dev, ts) select 2, '2024-01-01' + interval seq day from seq_1000_to_1600")
    client.run("alter table other force")
    if client.run("select count(*) from other") != [["1501"]]:
        raise Problem("a copy of many chunks lost rows")
    drops(both.server, client)
    client.run("drop table good, other, plain, parts")
    print(f"{len(REFUSED)} definitions refused, {len(ACCEPTED)} changes shown")


# Calls that are refused, and the numbers of their errors.
CALLS = [
    ("select evenkeel_drop_chunks('plain', 3)", 1221), ("select evenkeel_drop_chunks('nowhere.t', 3)", 1221),
    ("select evenkeel_drop_chunks(null, '2024-01-01')", 1221), ("select evenkeel_drop_chunks('good', 'soon')", 1221),
    ("select evenkeel_drop_chunks('good', null)", 1221), ("select evenkeel_drop_chunks('good', '2024-02-31')", 1221),
    ("select evenkeel_drop_chunks('good', '2024-01-02') from plain", 1221),
    ("select 1 + evenkeel_drop_chunks('good', '2024-01-02')", 1221),
    ("select evenkeel_drop_chunks('good', '2024-01-02'), 1", 1221),
    ("select (select evenkeel_drop_chunks('good', '2024-01-02'))", 1221),
    ("select evenkeel_drop_chunks('good', '2024-01-02') union select 1", 1221),
    ("set @a = evenkeel_drop_chunks('good', '2024-01-02')", 1221),
    ("insert into plain values (evenkeel_drop_chunks('good', '2024-01-02'))", 1221),
    ("explain select evenkeel_drop_chunks('good', '2024-01-02')", 1221),
    ("create view drops as select evenkeel_drop_chunks('good', '2024-01-02')", 1221),
    ("create table x (a int, b int as (evenkeel_drop_chunks('good', '2024-01-02')))", 1901),
    ("select evenkeel_drop_chunks('good')", 1582), # DO hides errors.
    ("insert into triggered values (1)", 0), ("do evenkeel_drop_chunks('plain', 3)", 0)]


def drops(server, client):
    """What keeps chunks, and which calls are refused."""
    client.run("create table triggered (a int)")
    client.run("create trigger drops_too before insert on triggered for each row "
               "begin do evenkeel_drop_chunks('good', '2024-01-02'); end")
    for call, number in CALLS:
        ended = client.number(call)
        if ended != number:
            raise Problem(f"{call}: error {ended}, not {number}")
    if client.run("select count(*) from good") != [["3"]]:
        raise Problem("a refused call has dropped rows")
    other = Client(server.socket, "evenkeel")
    other.run("begin")
    other.run("insert into good values (1, '2024-01-01 10:00:00', 4)")
    client.run("begin")
    client.run("insert into plain values (9)")
    if client.number("select evenkeel_drop_chunks('good', '2024-01-03')") != 1179:
        raise Problem("not refused in a transaction")
    client.run("rollback")
    if client.run("select evenkeel_drop_chunks('good', '2024-01-03')") != [["1"]]:
        raise Problem("not one chunk dropped")
    said = client.run("show warnings")
    if len(said) != 1 or "transaction" not in said[0][2]:
        raise Problem(f"the chunk that is kept: {said}")
    other.run("commit")
    other.run("lock tables good read")
    client.run("set lock_wait_timeout=1")
    if client.number("select evenkeel_drop_chunks('good', '2024-01-03')") != 1205:
        raise Problem("not stopped by LOCK TABLES")
    other.run("unlock tables")
    client.run("select evenkeel_drop_chunks('evenkeel.good', '2024-01-03')")
    if client.run("select * from good") != [["2", "2150-01-01 00:00:00", "3"]]:
        raise Problem("wrong rows dropped")
    client.run("drop table triggered")
    other.close()


# Types of times, and expressions of the present one and of ten days ago.
CLOCKS = [("datetime(3)", "", "now()", "now() - interval 10 day"), ("timestamp", "", "now()", "now() - interval 10 day"),
          ("date", "", "curdate()", "curdate() - interval 10 day"),
          ("int", "chunk_unit=second", "unix_timestamp()", "unix_timestamp() - 864000"),
          ("bigint", "chunk_unit=millisecond", "unix_timestamp() * 1000", "(unix_timestamp() - 864000) * 1000"),
          ("int", "chunk_unit=day", "unix_timestamp() div 86400", "unix_timestamp() div 86400 - 10")]


def retention(server, client):
    """RETAIN drops what is older, on the server's clock, but not where a transaction writes."""
    for n, (time, unit, now, old) in enumerate(CLOCKS):
        client.run(f"create table kept{n} (ts {time} not null chunk_interval='1 day' {unit}, a int, primary key (ts)) "
                   "retain='3 days'")
        client.run(f"insert into kept{n} values ({now}, 1), ({old}, 2)")
    client.run("create table for_ever (ts date not null chunk_interval='1 day' primary key)")
    client.run("insert into for_ever values ('2001-01-01'), ('0000-00-00')")
    other = Client(server.socket, "evenkeel")
    other.run("begin")
    other.run("update kept0 set a = 3 where a = 2")
    client.run("set global evenkeel_retention_interval = 1")
    rows = lambda: [client.run(f"select group_concat(a order by a) from kept{n}")[0][0] for n in range(len(CLOCKS))]
    if not wait_until(lambda: rows() == ["1,2"] + ["1"] * (len(CLOCKS) - 1), 60):
        raise Problem(f"RETAIN: {rows()}")
    other.run("commit")
    if not wait_until(lambda: rows() == ["1"] * len(CLOCKS), 60):
        raise Problem(f"RETAIN after the commit: {rows()}")
    client.run("set global evenkeel_retention_interval = default")
    gone = server.status("evenkeel_chunks_expired")
    if gone != len(CLOCKS) or client.run("select count(*) from for_ever") != [["2"]]:
        raise Problem(f"RETAIN has dropped {gone} chunks, not {len(CLOCKS)}")
    client.run("drop table for_ever, " + ", ".join(f"kept{n}" for n in range(len(CLOCKS))))
    other.close()


def test(servers):
    seed = seed_of("chunks", drawn=sys.argv[1] if sys.argv[1:] else None)
    count = int(sys.argv[2]) if sys.argv[2:] else 4000
    server = servers.server("main")
    server.start("--innodb-lock-wait-timeout=5", "--secure-file-priv=")
    both, rng = Both(server), random.Random(seed)
    definitions(both)
    retention(server, both.clients["evenkeel"])
    for client in both.clients.values():
        # NULL in a TIMESTAMP is the present time.
        client.run("set timestamp=1706000000")
    done, history = 0, []
    while done < count:
        table = Table(rng)
        history = [table.definition(True)]
        for engine, client in both.clients.items():
            client.run("drop table if exists r")
            client.run(table.definition(engine == "evenkeel"))
        for step in range(GENERATION):
            statement = table.insert() if step < 10 else table.statement()
            history.append(statement)
            differs = both.step(table, statement)
            done += 1
            if not differs and (step % COMPARE_EVERY == 0 or step == GENERATION - 1):
                differs = both.compare()
            if differs:
                print(";\n".join(history), file=sys.stderr)
                raise Problem(f"seed {seed}, statement {done}: {statement}: {differs}")
        for engine, client in both.clients.items():
            client.run("commit")
        bad = [row for row in both.clients["evenkeel"].run("check table r") if row[3] != "OK"]
        if bad:
            raise Problem(f"seed {seed}: CHECK TABLE: {bad}")
    for number, times in sorted(both.ended.items()):
        print(f"error {number}: {times} statements" if number else f"without error: {times} statements")
    print(", ".join(f"{kind} {times}" for kind, times in sorted(both.kinds.items())))
    made, gone = server.status("evenkeel_chunks_made"), server.status("evenkeel_chunks_dropped")
    print(f"{made} chunks made, {gone} dropped")
    if made < count // 10 or (count >= 2000 and gone < count // 100):
        raise Problem("too few chunks were made or dropped")
    if count >= 2000 and both.ended[1062] < count // 100:
        raise Problem("too few duplicates")
    print(f"{done} statements, 0 differ")
    return 0


if __name__ == "__main__":
    sys.exit(run("chunks", test))
