//! `evenkeel backup`: a closed directory is copied, checked, restored and opened again.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Direction, ForeignKeySpec, Geometry, IndexSpec,
    Isolation, Options, ReferenceAction, Row, TableSpec, Value,
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
    let found = backup::take(&at("db"), &at("copy"), None);
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    assert!(content(&at("db")) == before, "the database was changed");
    let found = backup::verify(&at("copy"), &[]);
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    assert!(found.text.ends_with(": intact\n"), "{}", found.text);
    let found = backup::restore(&at("copy"), &at("new"), &[]);
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    assert_eq!(check(&at("new")).outcome, Outcome::Clean);
    assert!(rows(&at("new")) == rows(&at("db")));
    // A second restore into it is refused, and so is a backup.
    for found in
        [backup::restore(&at("copy"), &at("new"), &[]), backup::take(&at("db"), &at("new"), None)]
    {
        assert_eq!(found.outcome, Outcome::CouldNot);
        assert!(found.text.contains("[DirectoryNotEmpty]"), "{}", found.text);
    }
}

#[test]
fn damage_and_incomplete_backups_are_told_by_name() {
    let place = tempfile::tempdir().expect("dir");
    let at = |name: &str| place.path().join(name);
    fill(&at("db"));
    assert_eq!(backup::take(&at("db"), &at("copy"), None).outcome, Outcome::Clean);
    let run = std::fs::read_dir(at("copy/runs")).expect("lists").flatten().next().expect("a run");
    let mut bytes = std::fs::read(run.path()).expect("reads");
    bytes[100] ^= 1;
    std::fs::write(run.path(), bytes).expect("writes");
    std::fs::remove_file(at("copy/pages/000000.pg")).expect("removes");
    let found = backup::verify(&at("copy"), &[]);
    assert_eq!(found.outcome, Outcome::Damaged);
    let name = format!("runs/{}", run.file_name().display());
    for part in [name.as_str(), "pages/000000.pg", "missing", "2 files"] {
        assert!(found.text.contains(part), "{part}: {}", found.text);
    }
    assert_eq!(backup::restore(&at("copy"), &at("new"), &[]).outcome, Outcome::Damaged);
    assert!(!at("new/evenkeel.super").exists());
    std::fs::remove_file(at("copy/COMPLETE")).expect("removes");
    let found = backup::verify(&at("copy"), &[]);
    assert_eq!(found.outcome, Outcome::Damaged);
    assert!(found.text.contains("[BackupIncomplete]"), "{}", found.text);
    assert_eq!(backup::verify(&at("nowhere"), &[]).outcome, Outcome::Damaged);
}

/// The drill of the guide: Monday's full backup, then what has changed by Tuesday and by Wednesday.
#[test]
fn a_week_of_backups_is_restored_to_each_of_its_days() {
    let place = tempfile::tempdir().expect("dir");
    let at = |name: &str| place.path().join(name);
    fill(&at("db"));
    let change = |ids: std::ops::Range<i64>| {
        let db = Database::open_with(at("db"), options()).expect("opens");
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        for id in ids {
            let table = txn.table("t").expect("there");
            table.put(&[Int(id), Bytes(b"changed")]).expect("puts");
        }
        txn.commit().expect("commits");
        db.close().expect("closes");
    };
    let mut days = Vec::new();
    for (day, base) in [("mon", None), ("tue", Some("mon")), ("wed", Some("tue"))] {
        let base = base.map(|base| at(&format!("backup/{base}")));
        let to = at(&format!("backup/{day}"));
        std::fs::create_dir_all(at("backup")).expect("makes");
        let found = backup::take(&at("db"), &to, base.as_deref());
        assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
        days.push((day, rows(&at("db"))));
        let first = days.len() as i64 * 50;
        change(first..first + 20);
    }
    for (day, expected) in &days {
        let (from, to) = (at(&format!("backup/{day}")), at(&format!("new-{day}")));
        let found = backup::verify(&from, &[]);
        assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
        let found = backup::restore(&from, &to, &[]);
        assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
        assert!(rows(&to) == *expected, "{day}: other rows");
        assert_eq!(check(&to).outcome, Outcome::Clean);
    }
    // Tuesday's backup lies elsewhere, then nowhere.
    std::fs::create_dir(at("archive")).expect("makes");
    std::fs::rename(at("backup/tue"), at("archive/of-tuesday")).expect("moves");
    let missing = backup::verify(&at("backup/wed"), &[]);
    assert_eq!(missing.outcome, Outcome::Damaged);
    for part in ["[BackupBase]", "backup/wed", "end=", "no such backup"] {
        assert!(missing.text.contains(part), "{part}: {}", missing.text);
    }
    let found = backup::restore(&at("backup/wed"), &at("again"), &[]);
    assert_eq!(found.outcome, Outcome::Damaged, "{}", found.text);
    assert!(!at("again").exists());
    let archive = at("archive");
    let found = backup::restore(&at("backup/wed"), &at("again"), &[&archive]);
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    assert!(rows(&at("again")) == days[2].1, "other rows");
    // The database that was restored has left the line of these backups.
    let found = backup::take(&at("again"), &at("backup/thu"), Some(&at("backup/wed")));
    assert_eq!(found.outcome, Outcome::Damaged, "{}", found.text);
    assert!(found.text.contains("[BackupBase]"), "{}", found.text);
}

/// Each day's backup lies in a directory of that day, beside other copies; the destination of a
/// backup is not its base, and does not lie in it.
#[test]
fn bases_are_found_by_the_name_of_the_backup_in_the_directories_of_other_days() {
    let place = tempfile::tempdir().expect("dir");
    let at = |name: &str| place.path().join(name);
    fill(&at("db"));
    for (day, base) in [("mon", None), ("tue", Some("mon")), ("wed", Some("tue"))] {
        std::fs::create_dir_all(at(&format!("backup/{day}/server"))).expect("makes");
        let base = base.map(|base| at(&format!("backup/{base}/evenkeel")));
        let to = at(&format!("backup/{day}/evenkeel"));
        let found = backup::take(&at("db"), &to, base.as_deref());
        assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    }
    let wed = at("backup/wed/evenkeel");
    let found = backup::restore(&wed, &at("new"), &[]);
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    assert!(rows(&at("new")) == rows(&at("db")), "other rows");
    for (to, why) in [("backup/wed/evenkeel", "same directory"), ("backup/wed/evenkeel/x", "in it")]
    {
        let found = backup::take(&at("db"), &at(to), Some(&wed));
        assert_eq!(found.outcome, Outcome::Damaged, "{}", found.text);
        assert!(found.text.contains("[BackupBase]") && found.text.contains(why), "{}", found.text);
    }
    assert_eq!(backup::verify(&wed, &[]).outcome, Outcome::Clean, "the base was changed");
    // All three lie elsewhere.
    std::fs::rename(at("backup"), at("archive")).expect("moves");
    std::fs::create_dir_all(at("lone")).expect("makes");
    std::fs::rename(at("archive/wed/evenkeel"), at("lone/evenkeel")).expect("moves");
    let lone = at("lone/evenkeel");
    assert_eq!(backup::verify(&lone, &[&at("lone")]).outcome, Outcome::Damaged);
    let found = backup::verify(&lone, &[&at("archive")]);
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
}

/// The first foreign key comes between a full backup and an incremental one; another key waits for
/// its parent.
#[test]
fn a_restored_directory_has_its_foreign_keys() {
    let place = tempfile::tempdir().expect("dir");
    let at = |name: &str| place.path().join(name);
    fill(&at("db"));
    assert_eq!(backup::take(&at("db"), &at("full"), None).outcome, Outcome::Clean);
    let key = |name: &str, parent: &str| ForeignKeySpec::new(name, &["up"], parent, &["id"]);
    let cascades = key("of_t", "t").on_delete(ReferenceAction::Cascade);
    let waits = ForeignKeySpec { may_await: true, ..key("of_later", "later") };
    let int = |name: &str| ColumnSpec::new(name, ColumnType::Int64);
    let spec = TableSpec::new().column(int("id")).column(int("up")).primary_key(&["id"]);
    let spec = spec.index(IndexSpec::new("by_up", &["up"]));
    let db = Database::open_with(at("db"), options()).expect("opens");
    db.create_table("c", &spec.clone().foreign_key(cascades)).expect("creates");
    db.create_table("w", &spec.foreign_key(waits)).expect("creates");
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    for id in 0..200 {
        txn.table("c").expect("there").insert(&[Int(id), Int(id % 100)]).expect("inserts");
    }
    txn.commit().expect("commits");
    db.close().expect("closes");
    let found = backup::take(&at("db"), &at("more"), Some(&at("full")));
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    let found = backup::restore(&at("more"), &at("new"), &[]);
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    assert_eq!(check(&at("new")).outcome, Outcome::Clean);
    let db = Database::open_with(at("new"), options()).expect("opens");
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    for (table, up) in [("c", 9_000), ("w", 1)] {
        let refused = txn.table(table).expect("there").insert(&[Int(500), Int(up)]);
        assert_eq!(refused.expect_err("an orphan").code(), Code::ParentRowMissing, "{table}");
    }
    assert!(txn.table("t").expect("there").delete(&[Int(7)]).expect("deletes"));
    let left = txn.table("c").expect("there").scan(.., Direction::Forward).expect("scans");
    assert_eq!(left.count().expect("counts"), 198, "7 and 107 refer to the row");
    drop(txn);
    let def = db.definition("w").expect("there");
    let awaited = def.foreign_keys[0].awaited.as_ref().map(|awaited| &*awaited.table);
    assert_eq!(awaited, Some("later"));
}
