//! The engine refuses some definitions of chunked tables, foreign keys of them, and operations that
//! do not know chunks.

use super::chunks::{by_time, column, readings, refused, table};
use super::*;
use crate::{Chunking, TableRename, TimeUnit};
use evenkeel_base::Code;

#[test]
fn definitions_that_cannot_be_chunked_are_refused() {
    let db = Db::new();
    let mut number = 0;
    let mut make = |spec: TableSpec| {
        number += 1;
        db.store.create_table(&format!("t{number}"), &spec).map(|_| ())
    };
    let invalid = Code::ChunkingInvalid;
    let keys = ["dev", "ts"];
    refused(make(readings(by_time(), &["dev"])), invalid, &["primary", "ts"]);
    refused(make(readings(by_time().space("v", 2), &keys)), invalid, &["primary", "column=v"]);
    let unique = IndexSpec::new("one", &["dev"]).unique();
    refused(make(readings(by_time(), &keys).index(unique)), invalid, &["one"]);
    let no_unit = Chunking::by("ts", Duration::from_secs(1));
    refused(make(readings(no_unit, &keys)), invalid, &["unit"]);
    let packed = Chunking::by("ts", Duration::from_secs(1)).unit(TimeUnit::PackedSeconds);
    refused(make(readings(packed, &keys)), invalid, &["ts", "does not hold such times"]);
    let by = |width| Chunking::by("ts", width).unit(TimeUnit::Seconds);
    refused(make(readings(by(Duration::ZERO), &keys)), invalid, &["width"]);
    refused(make(readings(by(Duration::from_millis(1500)), &keys)), invalid, &["1.5s"]);
    refused(make(readings(by_time().between(7, 7), &keys)), invalid, &["before they begin"]);
    refused(make(readings(by_time().space("dev", 257), &keys)), invalid, &["slots", "limit=256"]);
    refused(make(readings(by_time().space("ts", 2), &keys)), invalid, &["both"]);
    refused(make(readings(by_time().space("none", 2), &keys)), Code::ColumnMissing, &["none"]);
    let text = Chunking::by("note", Duration::from_secs(1));
    refused(make(readings(text, &keys)), invalid, &["note"]);
    let temporary = db.store.create_temporary_table("tmp", &readings(by_time(), &keys));
    refused(temporary.map(|_| ()), invalid, &["temporary"]);
    make(readings(by_time().space("dev", 256), &keys)).unwrap();
    let child = readings(by_time(), &keys).foreign_key(ForeignKeySpec::new(
        "fk",
        &["dev", "ts"],
        "t16",
        &["dev", "ts"],
    ));
    assert!(make(child).is_err());
}

#[test]
fn what_knows_no_chunks_is_refused() {
    let db = Db::new();
    let table = table(&db);
    let chunked = Code::ChunkedTable;
    let mut txn = db.begin();
    refused(txn.scan(&table, Range::ALL, Direction::Forward).map(|_| ()), chunked, &["r"]);
    refused(txn.large_value(&table).map(|_| ()), chunked, &["r"]);
    drop(txn);
    let store = &db.store;
    refused(store.add_column("r", &column("x", ColumnType::Int32)), chunked, &["r"]);
    refused(store.drop_index("r", "by_v"), chunked, &["r"]);
    refused(
        store.add_indexes("r", &[IndexSpec::new("i", &["v"])], &BuildProgress::default()),
        chunked,
        &["r"],
    );
    let plain = store.create_table("p", &spec()).map(|_| ());
    plain.unwrap();
    refused(store.chunks("p"), Code::ChunkingInvalid, &["p"]);
    let parent = TableSpec::new()
        .column(column("id", ColumnType::Int64))
        .column(column("dev", ColumnType::Int32))
        .column(column("ts", ColumnType::Int64))
        .primary_key(&["id"])
        .index(IndexSpec::new("to", &["dev", "ts"]))
        .foreign_key(ForeignKeySpec::new("fk", &["dev", "ts"], "r", &["dev", "ts"]));
    refused(store.create_table("c", &parent).map(|_| ()), chunked, &["r"]);
}

/// Whatever way a key takes: the definition, an addition, a name that it waits for, a replacement.
#[test]
fn a_chunked_table_is_neither_child_nor_parent() {
    let db = Db::new();
    table(&db);
    let (store, columns, chunked) = (&db.store, ["dev", "ts"], Code::ChunkedTable);
    let make = |name: &str, spec: &TableSpec| store.create_table(name, spec).map(|_| ());
    let plain = |primary: &[&str]| {
        TableSpec::new()
            .column(column("id", ColumnType::Int64))
            .column(column("dev", ColumnType::Int32))
            .column(column("ts", ColumnType::Int64))
            .primary_key(primary)
            .index(IndexSpec::new("to", &columns))
    };
    let key = |parent: &str| {
        let key = ForeignKeySpec::new("fk", &columns, parent, &columns);
        ForeignKeySpec { may_await: true, ..key }
    };
    refused(make("c", &plain(&["id"]).foreign_key(key("r"))), chunked, &["=r", "fk"]);
    let own = readings(by_time(), &columns);
    for parent in ["self", "r", "later"] {
        let child = make("self", &own.clone().foreign_key(key(parent)));
        refused(child, Code::ChunkingInvalid, &["self", "foreign keys"]);
    }
    make("c", &plain(&["id"])).unwrap();
    make("p", &plain(&columns)).unwrap();
    let add = |table: &str, parent: &str| {
        store.add_foreign_keys(table, &[key(parent)], true, &BuildProgress::default())
    };
    refused(add("c", "r"), chunked, &["=r"]);
    for parent in ["p", "r", "later"] {
        refused(add("r", parent), chunked, &["=r"]);
    }
    add("c", "later").unwrap();
    refused(make("later", &own), chunked, &["later", "child=c", "fk"]);
    refused(store.rename_table("r", "later"), chunked, &["later", "child=c", "fk"]);
    assert!(store.table("later").is_err());
    store.rename_table("p", "later").unwrap();
    refused(store.check_replacement("later", "r"), chunked, &["child=c", "fk"]);
    let replaced = Some("later");
    let replacement = TableRename { from: "r", to: "s", replaced, ..TableRename::default() };
    let wait = SchemaWait::default();
    refused(store.rename_as(&replacement, &wait), chunked, &["child=c", "fk"]);
    assert!(store.is_referenced("later").unwrap());
    // Nothing is in the way of a chunked table that no key names.
    store.rename_table("r", "s").unwrap();
    store.drop_table("s").unwrap();
}
