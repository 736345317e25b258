//! Tests of `check` and `stat` on a closed directory.

use evenkeel::ValueRef::Int;
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Geometry, IndexSpec, Isolation, Options, TableSpec,
};
use evenkeel_tools::{Outcome, check, stat};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A table of 3,000 rows with an index, whose entries are in runs.
fn fill(dir: &Path) {
    let geometry = Geometry { generation_bytes: Some(64 << 10), ..Geometry::default() };
    let db = Database::open_with(dir, Options::new().geometry(geometry)).expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_value", &["value"]));
    db.create_table("t", &spec).expect("creates");
    for batch in 0..30 {
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        let table = txn.table("t").expect("there");
        for id in batch * 100..batch * 100 + 100 {
            table.insert(&[Int(id), Int(id * 7919 % 1009)]).expect("inserts");
        }
        txn.commit().expect("commits");
    }
    db.close().expect("closes");
}

/// Allocated bytes of all files below a directory.
fn all_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let bytes = |path: &Path| match path.is_dir() {
        true => all_bytes(path),
        false => std::fs::metadata(path).expect("a file").blocks() * 512,
    };
    entries.map(|entry| bytes(&entry.path())).sum()
}

#[test]
fn stat_accounts_for_every_byte_and_row() {
    let dir = tempfile::tempdir().expect("directory");
    fill(dir.path());
    std::fs::remove_file(dir.path().join("evenkeel.lock")).expect("nobody has it open");
    // The directory as a crash leaves it that happens while the list of hot pages is written.
    std::fs::write(dir.path().join("evenkeel.warm.new"), [0; 9_000]).expect("writes");
    let found = stat(dir.path());
    assert_eq!(found.outcome, Outcome::Clean, "{}", found.text);
    let space = found.json["space_bytes"].as_object().expect("by kind");
    let sum: u64 = space.values().map(|n| n.as_u64().expect("bytes")).sum();
    assert_eq!(sum, all_bytes(dir.path()), "{}", found.text);
    let table = &found.json["tables"][0];
    let number = |of: &serde_json::Value, name: &str| of[name].as_u64().expect("a number");
    assert!((2_850..=3_150).contains(&number(table, "rows_estimate")), "{table}");
    assert_eq!(number(table, "bytes"), number(table, "leaf_pages") * 4096);
    assert!((300..=1000).contains(&number(table, "fill_per_mille")), "{table}");
    let index = &table["indexes"][0];
    assert!(number(index, "runs") > 0 && number(index, "bytes") > 0, "{index}");
    assert!((300..=1000).contains(&number(index, "fill_per_mille")), "{index}");
    assert_eq!(index["rows_estimate"], table["rows_estimate"]);
    for part in ["table t: ~", "index by_value: ~", "space doublewrite: ", "space ballast: "] {
        assert!(found.text.contains(part), "{part} in\n{}", found.text);
    }
    assert_eq!(check(dir.path()).outcome, Outcome::Clean);
}

/// A missing file of a database is damage, whichever file it is. A directory without any file of a
/// database could not be checked.
#[test]
fn a_missing_file_is_damage_and_a_missing_database_is_not() {
    let dir = tempfile::tempdir().expect("directory");
    fill(dir.path());
    for sub in ["pages", "wal", "runs"] {
        let (from, to) = (dir.path().join(sub), dir.path().join("aside"));
        std::fs::rename(&from, &to).expect("moves");
        std::fs::create_dir(&from).expect("empty");
        let found = check(dir.path());
        assert_eq!(found.outcome, Outcome::Damaged, "{sub}: {}", found.text);
        assert!(found.text.contains(&format!("file={sub}/")) || sub == "wal", "{}", found.text);
        std::fs::remove_dir(&from).expect("empty still");
        std::fs::rename(&to, &from).expect("moves back");
    }
    assert_eq!(check(dir.path()).outcome, Outcome::Clean);
    let found = check(&dir.path().join("none"));
    assert_eq!(found.outcome, Outcome::CouldNot);
    assert!(found.text.contains("found=nothing") && !dir.path().join("none").exists());
    let found = check(&dir.path().join("pages"));
    assert_eq!(found.outcome, Outcome::CouldNot);
    assert!(found.text.contains("found=000000.pg"), "{}", found.text);
}
