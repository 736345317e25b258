"""The statements in which a query may stand: each gives the query's rows by another way of the server.

A context turns a query into statements to prepare it, those whose rows are looked at, and what to make
of a row. In a transaction only those of `CALM` run: the others commit. Beside an open transaction of
another session none runs that reads with locks.
"""
SEPARATOR = "|"
CALM = ["plain", "prepared", "derived", "cte", "union"]
LOCKING = ["set", "trigger", "insert_select", "create_select"]
KEEPING = ["plain", "prepared", "cursor", "procedure"]  # the query's order
DEFINED = ["view", "function", "function_into", "cursor", "procedure", "prepared_view"]
CONTEXTS = CALM + LOCKING + DEFINED

class Run:
    """What a context runs for a query."""
    def __init__(self, before, asked, after=(), times=1, packed=False):
        self.before, self.asked, self.after = before, asked, after
        self.times = times    # how often each row comes
        self.packed = packed  # all rows come as one value

def quoted(sql):
    return "'" + sql.replace("\\", "\\\\").replace("'", "''") + "'"

def packing(names, sql):
    parts = ", ".join(f"ifnull({n}, '~')" for n in names)
    return f"select group_concat(concat_ws('{SEPARATOR}', {parts}) separator '\\n') from ({sql}) w"

def cursor(names, sql):
    variables = ", ".join(f"v{n}" for n in names)
    return (f"create or replace procedure p() begin declare done int default 0; declare {variables} longblob; "
            f"declare k cursor for {sql}; declare continue handler for not found set done = 1; open k; "
            f"l: loop fetch k into {variables}; if done then leave l; end if; insert into r values ({variables}); end loop; "
            "close k; end")

def made(context, sql, names):
    """The context's Run of the query."""
    columns = ", ".join(f"{n} longblob" for n in names)
    result = f"create or replace temporary table r ({columns}) engine=MyISAM"
    body = packing(names, sql)
    if context == "prepared":
        return Run([f"prepare q from {quoted(sql)}", "execute q"], ["execute q"], ["deallocate prepare q"])
    if context == "view":
        return Run([f"create or replace view v as {sql}"], ["select * from v"])
    if context == "prepared_view":
        return Run([f"create or replace view v as {sql}", "prepare q from 'select * from v'", "execute q"], ["execute q"],
                   ["deallocate prepare q"])
    if context == "derived":
        return Run([], [f"select * from ({sql}) w"])
    if context == "cte":
        return Run([], [f"with w as ({sql}) select * from w"])
    if context == "union":
        return Run([], [f"({sql}) union all ({sql})"], times=2)
    if context == "set":
        return Run([f"set @packed = ({body})"], ["select @packed"], packed=True)
    if context == "function":
        return Run([f"create or replace function f() returns longblob reads sql data return ({body})"], ["select f()"], packed=True)
    if context == "function_into":
        into = body.replace(" from (", " into a from (", 1)
        return Run([f"create or replace function f() returns longblob reads sql data begin declare a longblob; {into}; return a; end"],
                   ["select f()"], packed=True)
    if context == "cursor":
        return Run([cursor(names, sql), result, "call p()"], ["select * from r"])
    if context == "procedure":
        return Run([f"create or replace procedure p() {sql}", "call p()"], ["call p()"])
    if context == "trigger":
        return Run([result, "create table if not exists trg (n int)",
                    f"create or replace trigger tr after insert on trg for each row insert into r {sql}",
                    "insert into trg values (1)"], ["select * from r"])
    if context == "insert_select":
        return Run([result, f"insert into r {sql}"], ["select * from r"])
    if context == "create_select":
        return Run([f"create or replace temporary table r as {sql}"], ["select * from r"])
    return Run([], [sql])

def unpacked(rows):
    """The rows of a packed answer, as the fields' texts."""
    text = rows[0][0]
    if text is None:
        return []
    return [tuple(None if field == b"~" else field for field in line.split(SEPARATOR.encode())) for line in text.split(b"\n")]

def answer(run, answers, keeps):
    """The query's rows from a context's answers; in an order of their own unless the query's is to be kept."""
    rows = [row for rows in answers for row in (unpacked(rows) if run.packed else rows)]
    if keeps:
        return rows
    rows.sort(key=sortable)
    several = [rows[i:i + run.times] for i in range(0, len(rows), run.times)]
    return [some[0] for some in several] if all(some == some[:1] * run.times for some in several) else rows

def sortable(row):
    return tuple((field is not None, field or b"") for field in row)
