//! Backups of tables with foreign keys: a restored database has the keys, and keeps them.

use crate::ValueRef::Int;
use crate::backup::backup_tests::{hooked, options, restored, restored_onto};
use crate::backup::restore::BackupSource;
use crate::{
    Access, BackupProgress, Code, ColumnSpec, ColumnType, Database, ForeignKeySpec, IndexSpec,
    Isolation, Result, TableSpec,
};
use evenkeel_format::superblock::FOREIGN_KEYS;
use evenkeel_io::{Env, MemEnv};
use std::sync::Arc;

fn parents() -> TableSpec {
    TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64)).primary_key(&["id"])
}

fn children() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("parent", ColumnType::Int64).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_parent", &["parent"]))
        .foreign_key(ForeignKeySpec::new("of_parent", &["parent"], "p", &["id"]))
}

fn change(db: &Database, work: impl FnOnce(&crate::Txn) -> Result<()>) -> Result<()> {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    work(&txn)?;
    txn.commit().map(drop)
}

fn add_parents(db: &Database, ids: std::ops::Range<i64>) {
    let add = |txn: &crate::Txn| {
        ids.into_iter().try_for_each(|id| txn.table("p")?.insert(&[Int(id)]).map(drop))
    };
    change(db, add).expect("inserts");
}

fn add_children(db: &Database, ids: std::ops::Range<i64>) {
    let add = |txn: &crate::Txn| {
        ids.into_iter()
            .try_for_each(|id| txn.table("c")?.insert(&[Int(id), Int(id % 40)]).map(drop))
    };
    change(db, add).expect("inserts");
}

fn code(result: Result<()>) -> Option<Code> {
    result.err().map(|error| error.code())
}

/// The key is there and kept: parents below 40 have children.
fn check(db: &Database, children: i64) {
    let def = db.definition("c").expect("there");
    let names: Vec<&str> = def.foreign_keys.iter().map(|key| &*key.name).collect();
    assert_eq!(names, ["of_parent"]);
    let report = db.check().expect("checks");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(report.rows_without_parent, 0);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let scan = txn.table("c").expect("there").scan(.., crate::Direction::Forward).expect("scans");
    assert_eq!(scan.count().expect("counts"), children as u64);
    drop(txn);
    let orphan = |txn: &crate::Txn| txn.table("c")?.insert(&[Int(9_999), Int(777)]).map(drop);
    assert_eq!(code(change(db, orphan)), Some(Code::ParentRowMissing));
    let cut = |txn: &crate::Txn| txn.table("p")?.delete(&[Int(3)]).map(drop);
    assert_eq!(code(change(db, cut)), Some(Code::RowReferenced));
    let childless = |txn: &crate::Txn| txn.table("p")?.delete(&[Int(45)]).map(drop);
    change(db, childless).expect("nobody refers to it");
    assert_eq!(code(db.drop_table("p")), Some(Code::ForeignKeyNeeds));
}

fn source() -> Database {
    let env = Arc::new(MemEnv::new());
    let db = Database::open_with("source", options().env(env)).expect("opens");
    db.create_table("p", &parents()).expect("makes");
    add_parents(&db, 0..50);
    db
}

#[test]
fn restored_tables_keep_their_foreign_keys() {
    let db = source();
    db.create_table("c", &children()).expect("makes");
    add_children(&db, 0..400);
    let full: Arc<dyn Env> = Arc::new(MemEnv::new());
    db.backup_in(full.clone(), "full", &BackupProgress::default()).expect("backs up");
    add_children(&db, 400..600);
    db.checkpoint().expect("flushes");
    let more: Arc<dyn Env> = Arc::new(MemEnv::new());
    let base = (full.clone(), "full".to_string());
    db.backup_onto_in(base, more.clone(), "more", &BackupProgress::default()).expect("backs up");
    check(&restored(full.clone()).expect("restores"), 400);
    check(&restored_onto(more, &[full]).expect("restores"), 600);
}

/// The first foreign key comes while a full backup, or one onto a base, copies pages: the
/// checkpoint of the backup knows none. Builds that know no foreign keys must refuse the restored
/// directory.
#[test]
fn the_first_foreign_key_may_come_during_a_backup() {
    for onto in [false, true] {
        let db = source();
        let base: Arc<dyn Env> = Arc::new(MemEnv::new());
        db.backup_in(base.clone(), "base", &BackupProgress::default()).expect("backs up");
        let writing = db.clone();
        let to = hooked("pages/", move || {
            writing.create_table("c", &children()).expect("makes");
            add_children(&writing, 0..200);
        });
        let progress = BackupProgress::default();
        match onto {
            true => {
                let from = (base.clone(), "base".to_string());
                db.backup_onto_in(from, to.clone(), "to", &progress).expect("backs up")
            }
            false => db.backup_in(to.clone(), "to", &progress).expect("backs up"),
        };
        let source = BackupSource::open(to.clone(), "to").expect("opens");
        let features = source.superblock().expect("there").features;
        assert_eq!(features.incompatible & FOREIGN_KEYS, FOREIGN_KEYS, "onto a base: {onto}");
        check(&restored_onto(to, &[base]).expect("restores"), 200);
    }
}
