//! Foreign keys through a salvage: kept where all saved rows keep them, else left out with the rows
//! that break them.

use super::salvage_tests::{options, overwrite, salvaged_from};
use crate::catalog::Catalog;
use crate::dump::Dump;
use crate::files::{Files, Format};
use crate::leaves::Piece;
use crate::picture::Picture;
use crate::report::Report;
use crate::salvage::salvage_into;
use crate::source::Source;
use crate::target::Target;
use evenkeel::ReferenceAction::{Cascade, Restrict, SetNull};
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
/// a tree among themselves. The child is the first table of the catalog.
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
        .foreign_key(ForeignKeySpec::new("of_own", &["above"], "c", &["id"]));
    db.create_table("c", &children).expect("makes");
    db.create_table("p", &parents).expect("makes");
    db.create_table("whole", &others).expect("makes");
    let cascading = ForeignKeySpec::new("of_parent", &["parent"], "p", &["a"]);
    let cascading = cascading.on_delete(SetNull).on_update(Cascade);
    let restricting = ForeignKeySpec::new("of_other", &["other"], "whole", &["id"]);
    for key in [cascading, restricting] {
        db.add_foreign_key("c", &key).expect("adds");
    }
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

/// Overwrites a leaf in the midst of the table of parents. The log begins behind its content.
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
}

fn notes(report: &Report) -> Vec<String> {
    report.tables.iter().find(|t| t.name == "c").expect("saved").notes.clone()
}

#[test]
fn keys_whose_rows_all_hold_are_carried_over() {
    let (report, db) = salvaged_from(Arc::new(store())).expect("salvages");
    assert!(report.is_whole(), "{}", report.text());
    assert_eq!(keys(&db), ["of_own", "of_parent", "of_other"], "{}", report.text());
    assert!(notes(&report).is_empty(), "{:?}", notes(&report));
    let def = db.definition("c").expect("there");
    let actions: Vec<_> = def.foreign_keys.iter().map(|k| (k.on_delete, k.on_update)).collect();
    assert_eq!(actions, [(Restrict, Restrict), (SetNull, Cascade), (Restrict, Restrict)]);
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
    assert_eq!(keys(&db), ["of_own", "of_other"], "{text}");
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
    for part in ["foreign key of_parent is left out", "rows that p does not have", "ADD CONSTRAINT"]
    {
        assert!(note.contains(part), "{part}: {note}");
    }
    assert!(text.contains("rows break foreign key of_parent:"), "{text}");
    assert_eq!(try_insert(&db, [9_000, 5, 5, 5]).err().map(|e| e.code()), None);
    let refused = try_insert(&db, [9_000, -5, 50, 5]).expect_err("an orphan");
    assert_eq!(refused.code(), Code::ParentRowMissing);
    assert_eq!(report.json()["tables"][0]["orphans"][0]["count"], expected.len());
}

/// A key whose parent does not exist waits in the new database too, and the parent may follow.
#[test]
fn a_key_that_waits_for_its_parent_still_waits() {
    let env = Arc::new(MemEnv::new());
    let db = Database::open_with("unused", options(env.clone())).expect("opens");
    db.create_table("c", &waiting()).expect("makes");
    insert(&db, "c", 0..3, |id| vec![Value::Int(id), Value::Null]);
    db.close().expect("closes");
    let (report, db) = salvaged_from(Arc::new(env.fork())).expect("salvages");
    assert!(report.is_whole() && notes(&report).is_empty(), "{}", report.text());
    let def = db.definition("c").expect("there");
    let [key] = &def.foreign_keys[..] else { panic!("{def:?}") };
    assert_eq!(key.awaited.as_ref().map(|awaited| &*awaited.table), Some("later"));
    assert_eq!((key.on_delete, key.on_update), (SetNull, Cascade));
    let add = |id, up| {
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
        txn.table("c")?.insert(&[ValueRef::Int(id), ValueRef::Int(up)])?;
        txn.commit().map(drop)
    };
    assert_eq!(add(7, 1).err().map(|e| e.code()), Some(Code::ParentRowMissing));
    db.create_table("later", &TableSpec::new().column(int("id")).primary_key(&["id"]))
        .expect("makes");
    insert(&db, "later", 0..2, |id| vec![Value::Int(id)]);
    add(7, 1).expect("its parent is there");
    assert_eq!(add(8, 2).err().map(|e| e.code()), Some(Code::ParentRowMissing));
}

fn waiting() -> TableSpec {
    let key = ForeignKeySpec::new("of_later", &["up"], "later", &["id"]);
    let key = key.on_delete(SetNull).on_update(Cascade);
    TableSpec::new()
        .column(int("id"))
        .column(int("up").nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_up", &["up"]))
        .foreign_key(ForeignKeySpec { may_await: true, ..key })
}

/// A row that was written without checks is an orphan in an undamaged database too.
#[test]
fn an_orphan_of_an_undamaged_database_is_named() {
    let files = store();
    let env = Arc::new(files.fork());
    let db = Database::open_with("unused", options(env.clone())).expect("opens");
    let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    txn.set_foreign_key_checks(false);
    let row = [9_000, -5, 77, 5].map(ValueRef::Int);
    txn.table("c").expect("there").insert(&row).expect("inserts");
    txn.commit().expect("commits");
    db.close().expect("closes");
    let (report, db) = salvaged_from(env).expect("salvages");
    assert_eq!(keys(&db), ["of_own", "of_parent"], "{}", report.text());
    let saved = report.tables.iter().find(|t| t.name == "c").expect("saved");
    let [orphans] = &saved.orphans[..] else { panic!("{:?}", saved.orphans) };
    assert_eq!((&*orphans.key, orphans.count), ("of_other", 1));
    assert_eq!(orphans.rows, ["(id = 9000) refers to (id = 77) of whole"]);
}

/// The statements that add keys, with the comment before each.
fn statements(text: &str) -> Vec<&str> {
    let is_it = |line: &&str| {
        ["--", "ALTER", "SET SESSION foreign"].iter().any(|begin| line.starts_with(begin))
    };
    text.lines().filter(is_it).collect()
}

/// SQL of a damaged database: the key that lost rows may break comes last, because the server
/// refuses it.
#[test]
fn sql_adds_the_keys_that_may_fail_last() {
    let files = store();
    damage(&files);
    let place = tempfile::tempdir().expect("dir");
    let file = place.path().join("s.sql");
    let target = Target::Text(Files::file(Format::Sql, &file).expect("makes"));
    salvage_into(Arc::new(files), "a store", target).expect("salvages");
    let text = std::fs::read_to_string(file).expect("reads");
    let added = statements(&text);
    let parts = ["`of_own`", "`of_other`", "rows of p may be lost", "`of_parent`"];
    assert_eq!(added.len(), parts.len(), "{added:?}");
    for part in parts {
        assert_eq!(added.iter().filter(|line| line.contains(part)).count(), 1, "{part}: {added:?}");
    }
    assert!(added[2].starts_with("-- The next statement may fail") && added[3].contains(parts[3]));
    assert!(text.trim_end().ends_with(added[3]), "something follows");
}

/// A dump adds the keys behind all tables. A key that waits is added without checks, because its
/// parent does not exist.
#[test]
fn a_dump_adds_the_keys_behind_all_tables() {
    let place = tempfile::tempdir().expect("dir");
    let dir = place.path().join("db");
    let db = Database::open(&dir).expect("opens");
    db.create_table("c", &waiting()).expect("makes");
    db.create_table("p", &TableSpec::new().column(int("id")).primary_key(&["id"])).expect("makes");
    db.add_foreign_key("c", &ForeignKeySpec::new("of\np", &["up"], "p", &["id"])).expect("adds");
    insert(&db, "p", 0..3, |id| vec![Value::Int(id)]);
    insert(&db, "c", 0..3, |id| vec![Value::Int(id), Value::Null]);
    db.close().expect("closes");
    let of_p = "ALTER TABLE `c` ADD CONSTRAINT `of p` FOREIGN KEY (`up`) REFERENCES `p` (`id`) ON \
                DELETE RESTRICT ON UPDATE RESTRICT;";
    let of_later = "ALTER TABLE `c` ADD CONSTRAINT `of_later` FOREIGN KEY (`up`) REFERENCES \
                    `later` (`id`) ON DELETE SET NULL ON UPDATE CASCADE;";
    let (off, on) = ("SET SESSION foreign_key_checks = 0;", "SET SESSION foreign_key_checks = 1;");
    let mut dump = Dump { dir, format: Format::Sql, tables: Vec::new(), to: None };
    let dumped = |dump: &Dump| {
        let mut out = Vec::new();
        dump.run(&mut out).expect("dumps");
        String::from_utf8(out).expect("text")
    };
    let text = dumped(&dump);
    assert_eq!(statements(&text), [off, of_later, on, of_p]);
    assert!(text.trim_end().ends_with(of_p), "something follows: {text}");
    // Beside files of tables the keys have their own.
    let to = place.path().join("files");
    dump.to = Some(to.clone());
    assert_eq!(dumped(&dump), "");
    let text = std::fs::read_to_string(to.join("foreign.keys.sql")).expect("made");
    assert_eq!(statements(&text), [off, of_later, on, of_p]);
    let text = std::fs::read_to_string(to.join("c.sql")).expect("made");
    assert_eq!(statements(&text), Vec::<&str>::new());
    // One table alone: its parent may not be there.
    (dump.to, dump.tables) = (None, vec!["c".to_string()]);
    let text = dumped(&dump);
    let doubt = "-- The next statement may fail, because table p is not among these.";
    assert_eq!(statements(&text), [off, of_later, on, doubt, of_p]);
}
