"""The DDL statements in which test_ddl_crash.py ends the server."""
import collections

# `changes` says how tables change: all at once (all; server: not even in the server), or one by one (each; absent: a
# table may be gone too). `before` are statements that come before it.
Ddl = collections.namedtuple("Ddl", "name changes before statement")

PARTS = """create table parts (id int, a int, b varchar(40), primary key (id), key (a)) engine={engine}
    partition by range (id) (partition p0 values less than (100), partition p1 values less than (1000));
    insert into parts select id, a, b from base"""
SINGLE = PARTS + "; create table single like parts; alter table single remove partitioning; "

STATEMENTS = [
    Ddl("create", "all", "", "create table made (id int primary key, a int, key (a)) engine={engine}"),
    Ddl("create-select", "all", "",
        "create table made (primary key (id), key (a)) engine={engine} select id, a from base"),
    Ddl("create-sequence", "all", "", "create sequence made engine={engine}"),
    # The server drops the old table before it makes the new one (atomic only in later versions).
    Ddl("create-or-replace", "absent", "",
        "create or replace table base (id int primary key, z int, key (z)) engine={engine}"),
    Ddl("drop", "each", "", "drop table base, other"),
    Ddl("drop-database", "each", "", "drop database test"),
    Ddl("rename", "all", "", "rename table base to away, other to base, away to other"),
    Ddl("truncate", "all", "", "truncate table base"),
    Ddl("alter-copy", "all", "", "alter table base modify a bigint, algorithm=copy"),
    # Rows come in another order than that of the new key.
    Ddl("alter-copy-key", "all", "", "alter table base drop primary key, add primary key (b), drop key b, "
        "add unique key i (id), add key (a, b)"),
    Ddl("alter-rename", "all", "",
        "alter table base add column z int default 7, add key (b, a), rename to moved"),
    Ddl("alter-to-innodb", "all", "", "alter table base engine=innodb"),
    Ddl("alter-from-innodb", "all", "alter table other engine=innodb", "alter table other engine={engine}"),
    # The server itself, with InnoDB too, leaves a table without its .par file, which nobody can open, where it is
    # killed between the renamings of the partitions and of that file. So this one is run only where it is named.
    Ddl("partition-by", "server", "", "alter table base drop key b partition by hash (id) partitions 3"),
    Ddl("alter-partitions", "all", PARTS, "alter table parts add key (b), add unique key u (id, b), drop key a, "
        "add column z int default 7, algorithm=nocopy"),
    Ddl("alter-partitions-instant", "all", PARTS,
        "alter table parts drop column a, drop key a, rename column b to c, algorithm=instant"),
    Ddl("remove-partitioning", "all", PARTS, "alter table parts remove partitioning"),
    Ddl("add-partition", "all", PARTS,
        "alter table parts add partition (partition p2 values less than maxvalue)"),
    Ddl("drop-partition", "all", PARTS, "alter table parts drop partition p0"),
    Ddl("truncate-partition", "all", PARTS, "alter table parts truncate partition p0"),
    Ddl("reorganize-partition", "all", PARTS, "alter table parts reorganize partition p0 into "
        "(partition n0 values less than (50), partition n1 values less than (100))"),
    Ddl("exchange-partition", "all", SINGLE + "insert into single values (7, 7, 'single')",
        "alter table parts exchange partition p0 with table single"),
    # The server leaves no definition, or one without its .par file, between these renamings too.
    Ddl("convert-partition", "server", PARTS, "alter table parts convert partition p0 to table single"),
    Ddl("convert-table", "server", SINGLE + "delete from parts where id >= 100; "
        "alter table parts drop partition p1; insert into single values (150, 7, 'single')",
        "alter table parts convert table single to partition p1 values less than (1000)"),
]
