#!/usr/bin/env python3
"""Tables of a server whose directory `evenkeel salvage` and `evenkeel dump` read: foreign keys in any order of the
tables, keys that wait for their parent, and primary keys that a collation orders.

The new database of `salvage --to` takes the place of the old one under the same definitions; a row is found by its key
in another case, and each key is kept. The SQL of `dump` and of `salvage --sql` is loaded into EVENKEEL and, with the
other engine's name, into InnoDB. Then the salvage of a damaged parent: the key is left out, and its orphans are named.
EVENKEEL names the command (target/release/evenkeel, else target/debug/evenkeel).
"""
import json
import re
import shutil
import sys

import damage
from servers import Problem, run
from test_backup import evenkeel

ROWS = 500
# The child is made first, and two tables refer to each other. The log has no rows of a copy, so it cannot restore a
# damaged page of the parent.
TABLES = f"""
create database f; use f; set foreign_key_checks=0;
create table c (id int primary key, up int, other int, word varchar(20) collate utf8mb4_general_ci,
  key (up), key (other), key (word), constraint c_up foreign key (up) references p (id) on delete cascade on update cascade,
  constraint c_other foreign key (other) references q (id) on delete set null,
  constraint c_later foreign key (other) references f.later (id)) engine=evenkeel charset=utf8mb4;
create table p (id int primary key, q int, pad varchar(300), key (q),
  constraint p_q foreign key (q) references q (id)) engine=evenkeel;
create table q (id int primary key, p int, key (p)) engine=evenkeel;
alter table q add constraint q_p foreign key (p) references p (id);
create table w (word varchar(20) collate utf8mb4_general_ci, n int, pad varchar(100), primary key (word, n))
  engine=evenkeel charset=utf8mb4;
insert into q select seq, seq from seq_0_to_9;
insert into p select seq, seq % 10, if(seq = 250, 'mark of a lost row', repeat('p', 200)) from seq_0_to_{ROWS - 1};
insert into c select seq, seq, null, concat('w', seq) from seq_0_to_{ROWS - 1};
insert into w select concat(if(seq % 2, 'Ä', 'a'), seq), seq, repeat('w', 90) from seq_0_to_{ROWS - 1};
alter table p force, algorithm=copy;
"""
KEYS = ("select constraint_name, table_name, referenced_table_name, delete_rule, update_rule from "
        "information_schema.referential_constraints where constraint_schema = 'f' order by 1")
COUNTS = "select " + ", ".join(f"(select count(*) from f.{table})" for table in "cpqw")


def expect(what, found, wanted):
    if found != wanted:
        raise Problem(f"{what}: {found!r}, not {wanted!r}")


def refused(server, statement, number):
    said = server.try_sql(statement).stderr
    if f"ERROR {number} " not in said:
        raise Problem(f"{statement}: {said!r}, not error {number}")


def keys_hold(server):
    """Each key acts as in the first server; the rows are as before afterwards."""
    refused(server, "insert into f.c values (9000, 9000, null, '')", 1452)
    refused(server, "insert into f.p values (9000, 77, '')", 1452)
    refused(server, "insert into f.q values (77, 9000)", 1452)
    refused(server, "delete from f.q where id = 3", 1451)
    cascaded = server.sql("begin; delete from f.p where id = 400; select count(*) from f.c where id = 400; rollback")
    expect("rows behind a cascade", cascaded, "0")


def beside(servers, main, name):
    """A server with the definitions of the first, without its tables' data."""
    other = servers.server(name)
    other.folder.mkdir()
    shutil.copytree(main.data, other.data, ignore=shutil.ignore_patterns("#evenkeel", "*.pid"))
    return other


def salvaged(servers, main, want):
    other = beside(servers, main, "salvaged")
    evenkeel("salvage", main.data / "#evenkeel", "--to", other.data / "#evenkeel")
    other.start()
    expect("rows", other.sql(COUNTS), want["counts"])
    expect("keys", other.sql(KEYS), want["keys"])
    keys_hold(other)
    # The weights came with the rows: 'ä' is 'Ä' and 'a' here.
    for word, n in (("A7", 7), ("ä8", 8), ("á499", 499)):
        expect(word, other.sql(f"select n from f.w where word = '{word}' and n = {n}"), str(n))
        refused(other, f"insert into f.w values ('{word}', {n}, '')", 1062)
    expect("order", other.sql("select group_concat(n order by word, n) from f.w"), want["order"])
    expect("change", other.sql("delete from f.w where word = 'a8' and n = 8; select row_count()"), "1")
    # A secondary index of a collation is left out until the table is copied.
    refused(other, "select count(*) from f.c force index (word) where word = 'W7'", 1176)
    other.sql("alter table f.c force, algorithm=copy")
    expect("word", other.sql("select count(*) from f.c force index (word) where word = 'W7'"), "1")
    expect("keys of the copy", other.sql(KEYS), want["keys"])
    keys_hold(other)
    said = other.sql("check table f.c, f.p, f.q, f.w")
    if len(re.findall("\tstatus\tOK", said)) != 4:
        raise Problem(f"CHECK TABLE: {said}")
    other.sql("set foreign_key_checks=0; drop table if exists f.later; set foreign_key_checks=1; "
              "create table f.later (id int primary key) engine=evenkeel")
    refused(other, "insert into f.c values (9000, 1, 5, '')", 1452)
    other.sql("insert into f.later values (5); insert into f.c values (9000, 1, 5, '')")
    other.stop()


def loaded(servers, main, engine, text, want):
    """Loads SQL into a new server."""
    other = servers.server(f"loaded-{engine}")
    other.start()
    other.sql("drop database if exists f")
    other.sql(text.replace("ENGINE=EVENKEEL", f"ENGINE={engine}"))
    expect("rows", other.sql(COUNTS), want["counts"])
    # InnoDB may show RESTRICT as NO ACTION, which it does not tell apart.
    expect(f"keys in {engine}", other.sql(KEYS).replace("NO ACTION", "RESTRICT"), want["keys"])
    keys_hold(other)
    used = other.sql("select distinct engine from information_schema.tables where table_schema = 'f'")
    expect("engines", used.lower(), engine.lower())
    other.stop()


def damaged(servers, main):
    """A leaf of the parent is lost: its key is left out, and the report names the rows that referred to it."""
    other = beside(servers, main, "damaged")
    shutil.copytree(main.data / "#evenkeel", servers.folder / "harmed")
    harmed = servers.folder / "harmed"
    damage.rows(harmed, b"mark of a lost row")
    report = json.loads(evenkeel("salvage", harmed, "--to", other.data / "#evenkeel", "--json", code=1))
    child = next(table for table in report["tables"] if table["name"] == "f/c")
    other.start()
    lost = other.sql("select c.id from f.c left join f.p on c.up = p.id where p.id is null order by 1").split()
    if "250" not in lost:
        raise Problem(f"nothing is lost: {lost}")
    [orphans] = child["orphans"]
    expect("orphans", (orphans["count"], orphans["rows"]),
           (len(lost), [f"(id = {n}) refers to (id = {n}) of f/p" for n in lost]))
    names = other.sql("select constraint_name from information_schema.referential_constraints "
                      "where constraint_schema = 'f' order by 1").split()
    expect("keys that are left", names, ["c_later", "c_other", "p_q", "q_p"])
    # As the report says: correct the rows, then add the key.
    [note] = [note for note in child["notes"] if "c_up" in note]
    add = note[note.index("ALTER TABLE"):]
    refused(other, add, 1452)
    other.sql(f"delete from f.c where id in ({', '.join(lost)}); {add}")
    refused(other, "insert into f.c values (9000, 9000, null, '')", 1452)
    other.stop()
    text = servers.folder / "harmed.sql"
    evenkeel("salvage", harmed, "--sql", text, code=1)
    into = servers.server("loaded-evenkeel")
    into.start()
    into.sql("drop database if exists f")
    said = into.try_sql(text.read_text())
    if "ERROR 1452 " not in said.stderr:
        raise Problem(f"the load ends with {said.stderr!r}")
    expect("rows that are loaded", into.sql("select count(*) from f.c"), str(ROWS))
    into.stop()


def test(servers):
    main = servers.server("main")
    main.start()
    main.sql(TABLES)
    want = {"counts": main.sql(COUNTS), "keys": main.sql(KEYS),
            "order": main.sql("select group_concat(n order by word, n) from f.w")}
    expect("keys", len(want["keys"].splitlines()), 5)
    keys_hold(main)
    main.stop()
    salvaged(servers, main, want)
    print("salvage --to: keys and rows are as before", flush=True)
    dump = evenkeel("dump", main.data / "#evenkeel")
    evenkeel("salvage", main.data / "#evenkeel", "--sql", servers.folder / "whole.sql")
    salvage = (servers.folder / "whole.sql").read_text()
    for what, text in (("dump", dump), ("salvage --sql", salvage)):
        for engine in ("evenkeel", "InnoDB"):
            loaded(servers, main, engine, text, want)
            print(f"{what}: {engine} has the keys and the rows", flush=True)
    damaged(servers, main)
    print("a damaged parent: its orphans are named, and its key is left out until they are corrected")
    return 0


if __name__ == "__main__":
    sys.exit(run("salvage", test))
