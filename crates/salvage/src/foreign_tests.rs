//! Foreign keys through a salvage: kept where all saved rows keep them, else left out with the rows
//! that break them.

use super::salvage_tests::{options, overwrite, salvaged_from};
use crate::catalog::Catalog;
use crate::dump::Dump;
use crate::files::Format;
use crate::leaves::Piece;
use crate::picture::Picture;
use crate::report::Report;
use crate::source::Source;
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Direction, Error, ForeignKeySpec, IndexSpec,
    Isolation, Range, Row, TableSpec, Value, ValueRef,
};
use evenkeel_io::MemEnv;
use std::collections::BTreeSet;
use std::sync::Arc;

const PARENTS: i64 = 2_000;
const CHILDREN: i64 = 3_000;
const PAGE: u64 = 4096;

fn int(name: &str) -> ColumnSpec {
    ColumnSpec::new(name, ColumnType::Int64)
}

fn insert(db: &Database, table: &str, ids: std::ops::Range<i64>, row: impl Fn(i64) -> Vec<Value>) {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    for id in ids {
        let row = row(id);
        let row: Vec<_> = row.iter().map(Value::as_ref).collect();
        txn.table(table).expect("there").insert(&row[..]).expect("inserts");
    }
    txn.commit().expect("commits");
}

/// Parents with a unique index, one parent that stays whole, and children of both, which also form
/// a tree among themselves.
fn store() -> MemEnv {
    let env = Arc::new(MemEnv::new());
    let db = Database::open_with("unused", options(env.clone())).expect("opens");
    let parents = TableSpec::new()
        .column(int("id"))
        .column(int("a"))
        .column(ColumnSpec::new("pad", ColumnType::Text { max: 300 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_a", &["a"]).unique());
    let others = TableSpec::new().column(int("id")).primary_key(&["id"]);
    let children = TableSpec::new()
        .column(int("id"))
        .column(int("parent").nullable())
        .column(int("other"))
        .column(int("above").nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_parent", &["parent"]))
        .index(IndexSpec::new("by_other", &["other"]))
        .index(IndexSpec::new("by_above", &["above"]))
        .foreign_key(ForeignKeySpec::new("of_parent", &["parent"], "p", &["a"]))
        .foreign_key(ForeignKeySpec::new("of_other", &["other"], "whole", &["id"]))
        .foreign_key(ForeignKeySpec::new("of_own", &["above"], "c", &["id"]));
    db.create_table("p", &parents).expect("makes");
    db.create_table("whole", &others).expect("makes");
    db.create_table("c", &children).expect("makes");
    let pad = || Value::from("p".repeat(200).as_str());
    insert(&db, "p", 0..PARENTS, |id| vec![Value::Int(id), Value::Int(-id), pad()]);
    insert(&db, "whole", 0..10, |id| vec![Value::Int(id)]);
    insert(&db, "c", 0..CHILDREN, |id| {
        let parent = if id % 10 == 0 { Value::Null } else { Value::Int(-(id % PARENTS)) };
        let above = if id == 0 { Value::Null } else { Value::Int(id / 2) };
        vec![Value::Int(id), parent, Value::Int(id % 10), above]
    });
    db.close().expect("closes");
    env.fork()
}

/// The ids of a table's rows.
fn ids(db: &Database, table: &str) -> BTreeSet<i64> {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let mut scan =
        txn.table(table).expect("there").scan(Range::ALL, Direction::Forward).expect("scans");
    let (mut row, mut ids) = (Row::new(), BTreeSet::new());
    while scan.next(&mut row).expect("reads") {
        let Value::Int(id) = row.value(0).expect("decodes").to_owned() else { panic!("no id") };
        ids.insert(id);
    }
    ids
}

fn keys(db: &Database) -> Vec<String> {
    let def = db.definition("c").expect("there");
    def.foreign_keys.iter().map(|key| key.name.clone()).collect()
}

fn try_insert(db: &Database, row: [i64; 4]) -> Result<(), Error> {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    txn.table("c")?.insert(&row.map(ValueRef::Int))?;
    txn.rollback()
}

/// Overwrites a leaf in the midst of the table of parents, in pages and log.
fn damage(files: &MemEnv) {
    let picture = Picture::read(Source::open(Arc::new(files.fork())).expect("whole"));
    let picture = picture.expect("reads");
    let catalog = Catalog::read(&picture).expect("reads");
    let tree = catalog.tables.iter().find(|t| t.def.name == "p").expect("there").def.entry.tree;
    let leaves = picture.leaves.pieces(tree).into_iter().filter_map(|piece| match piece {
        Piece::Of(leaf, _) => Some(leaf.page),
        _ => None,
    });
    let leaves: Vec<_> = leaves.collect();
    let page = leaves[leaves.len() / 2];
    overwrite(files, "pages/000000.pg", page.0 * PAGE, &[7; PAGE as usize]);
    use evenkeel_io::Env;
    for name in files.list("wal").expect("lists") {
        files.remove(&format!("wal/{name}")).expect("removes");
    }
}

fn notes(report: &Report) -> Vec<String> {
    report.tables.iter().find(|t| t.name == "c").expect("saved").notes.clone()
}

#[test]
fn keys_whose_rows_all_hold_are_carried_over() {
    let (report, db) = salvaged_from(Arc::new(store())).expect("salvages");
    assert!(report.is_whole(), "{}", report.text());
    assert_eq!(keys(&db), ["of_parent", "of_other", "of_own"], "{}", report.text());
    assert!(notes(&report).is_empty(), "{:?}", notes(&report));
    let check = db.check().expect("checks");
    assert!(check.problems.is_empty() && check.rows_without_parent == 0, "{:?}", check.problems);
    for (row, code) in [
        ([9_000, 5, 5, 5], Some(Code::ParentRowMissing)),
        ([9_000, -5, 50, 5], Some(Code::ParentRowMissing)),
        ([9_000, -5, 5, 9_001], Some(Code::ParentRowMissing)),
        ([9_000, -5, 5, 5], None),
    ] {
        assert_eq!(try_insert(&db, row).err().map(|e| e.code()), code, "{row:?}");
    }
}

#[test]
fn a_key_that_lost_rows_break_is_left_out_and_its_rows_are_named() {
    let files = store();
    damage(&files);
    let (report, db) = salvaged_from(Arc::new(files)).expect("salvages");
    let text = report.text();
    assert!(!report.is_whole(), "{text}");
    assert_eq!(keys(&db), ["of_other", "of_own"], "{text}");
    let left = ids(&db, "p");
    let is_orphan = |id: &i64| id % 10 != 0 && !left.contains(&(id % PARENTS));
    let expected: Vec<i64> = ids(&db, "c").into_iter().filter(is_orphan).collect();
    assert!(left.len() < PARENTS as usize && !expected.is_empty(), "{text}");
    let saved = report.tables.iter().find(|t| t.name == "c").expect("saved");
    let [orphans] = &saved.orphans[..] else { panic!("{:?}", saved.orphans) };
    assert_eq!((&*orphans.key, orphans.count), ("of_parent", expected.len() as u64));
    let told = |id: &i64| format!("(id = {id}) refers to (a = {}) of p", -(id % PARENTS));
    assert_eq!(orphans.rows, expected.iter().map(told).collect::<Vec<_>>());
    let note = notes(&report).join("\n");
    for part in ["foreign key of_parent is left out", "rows of p that are lost", "ADD CONSTRAINT"] {
        assert!(note.contains(part), "{part}: {note}");
    }
    assert!(text.contains("rows break foreign key of_parent:"), "{text}");
    assert_eq!(try_insert(&db, [9_000, 5, 5, 5]).err().map(|e| e.code()), None);
    let refused = try_insert(&db, [9_000, -5, 50, 5]).expect_err("an orphan");
    assert_eq!(refused.code(), Code::ParentRowMissing);
    assert_eq!(report.json()["tables"][2]["orphans"][0]["count"], expected.len());
}

/// A dump has the keys as comments behind their table, with statements that add them.
#[test]
fn a_dump_has_the_statements_that_add_the_keys() {
    let place = tempfile::tempdir().expect("dir");
    let dir = place.path().join("db");
    let db = Database::open(&dir).expect("opens");
    let parents = TableSpec::new().column(int("id")).primary_key(&["id"]);
    let children = TableSpec::new()
        .column(int("id"))
        .column(int("up").nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_up", &["up"]))
        .foreign_key(ForeignKeySpec::new("of\np", &["up"], "p", &["id"]));
    db.create_table("p", &parents).expect("makes");
    db.create_table("c", &children).expect("makes");
    insert(&db, "p", 0..3, |id| vec![Value::Int(id)]);
    insert(&db, "c", 0..3, |id| vec![Value::Int(id), Value::Int(id)]);
    db.close().expect("closes");
    let dump = Dump { dir, format: Format::Sql, tables: Vec::new(), to: None };
    let mut out = Vec::new();
    dump.run(&mut out).expect("dumps");
    let text = String::from_utf8(out).expect("text");
    let comments: Vec<&str> = text.lines().filter(|line| line.starts_with("--")).collect();
    let added = "-- When all tables are loaded: ALTER TABLE `c` ADD CONSTRAINT `of p` FOREIGN KEY \
                 (`up`) REFERENCES `p` (`id`) ON DELETE RESTRICT ON UPDATE RESTRICT;";
    assert_eq!(comments, [added]);
    assert_eq!(text.matches("FOREIGN KEY").count(), 1, "{text}");
}
