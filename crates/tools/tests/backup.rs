//! `evenkeel backup`: a closed directory is copied, checked, restored and opened again.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, Geometry, IndexSpec, Isolation, Options,
    Row, TableSpec, Value,
};
use evenkeel_tools::{Outcome, backup, check};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn options() -> Options {
    let geometry = Geometry { generation_bytes: Some(64 << 10), ..Geometry::default() };
    Options::new().geometry(geometry)
}

/// A table with an index in runs.
fn fill(dir: &Path) {
    let db = Database::open_with(dir, options()).expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Bytes { max: 1000 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_value", &["value"]));
    db.create_table("t", &spec).expect("creates");
    for batch in 0..30 {
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        let table = txn.table("t").expect("there");
        for id in batch * 100..batch * 100 + 100 {
            table.insert(&[Int(id), Bytes(&[id as u8; 100])]).expect("inserts");
        }
        txn.commit().expect("commits");
    }
    db.close().expect("closes");
}

fn rows(dir: &Path) -> Vec<Vec<Value>> {
    let db = Database::open_with(dir, options()).expect("opens");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let mut scan = txn.table("t").expect("there").scan(.., Direction::Forward).expect("scans");
    let (mut rows, mut row) = (Vec::new(), Row::new());
    while scan.next(&mut row).expect("reads") {
        rows.push(row.values().expect("decodes"));
    }
    rows
}

/// The content of all files below a directory.
fn content(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        match entry.path() {
            path if path.is_dir() => all.extend(content(&path)),
            path => _ = all.insert(path.clone(), std::fs::read(path).expect("reads")),
        }
    }
    all
}

#[test]
fn a_closed_directory_is_backed_up_unchanged_and_restored() {
    let place = tempfile::tempdir().expect("dir");
    let at = |name: &str| place.path().join(name);
    fill(&at("db"));
    let before = content(&at("db"));
    let found = backup::take(&at("db"), &at("copy"));
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    assert!(content(&at("db")) == before, "the database was changed");
    let found = backup::verify(&at("copy"));
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    assert!(found.text.ends_with(": intact\n"), "{}", found.text);
    let found = backup::restore(&at("copy"), &at("new"));
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    assert_eq!(check(&at("new")).outcome, Outcome::Clean);
    assert!(rows(&at("new")) == rows(&at("db")));
    // A second restore into it is refused, and so is a backup.
    for found in [backup::restore(&at("copy"), &at("new")), backup::take(&at("db"), &at("new"))] {
        assert_eq!(found.outcome, Outcome::CouldNot);
        assert!(found.text.contains("[DirectoryNotEmpty]"), "{}", found.text);
    }
}

#[test]
fn damage_and_incomplete_backups_are_told_by_name() {
    let place = tempfile::tempdir().expect("dir");
    let at = |name: &str| place.path().join(name);
    fill(&at("db"));
    assert_eq!(backup::take(&at("db"), &at("copy")).outcome, Outcome::Clean);
    let run = std::fs::read_dir(at("copy/runs")).expect("lists").flatten().next().expect("a run");
    let mut bytes = std::fs::read(run.path()).expect("reads");
    bytes[100] ^= 1;
    std::fs::write(run.path(), bytes).expect("writes");
    std::fs::remove_file(at("copy/pages/000000.pg")).expect("removes");
    let found = backup::verify(&at("copy"));
    assert_eq!(found.outcome, Outcome::Damaged);
    let name = format!("runs/{}", run.file_name().display());
    for part in [name.as_str(), "pages/000000.pg", "missing", "2 files"] {
        assert!(found.text.contains(part), "{part}: {}", found.text);
    }
    assert_eq!(backup::restore(&at("copy"), &at("new")).outcome, Outcome::Damaged);
    assert!(!at("new/evenkeel.super").exists());
    std::fs::remove_file(at("copy/COMPLETE")).expect("removes");
    let found = backup::verify(&at("copy"));
    assert_eq!(found.outcome, Outcome::Damaged);
    assert!(found.text.contains("[BackupIncomplete]"), "{}", found.text);
    assert_eq!(backup::verify(&at("nowhere")).outcome, Outcome::Damaged);
}
