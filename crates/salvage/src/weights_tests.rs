//! A table whose primary key is ordered by a collation, as a server makes it: the new database has
//! the key with the weights of the stored keys.

use super::salvage_tests::options;
use crate::files::{Files, Format};
use crate::salvage::salvage_into;
use crate::target::Target;
use evenkeel::{
    Access, Collations, ColumnSpec, ColumnType, Database, Direction, IndexSpec, Isolation, Options,
    PartSpec, Range, Result, Row, TableSpec, Value,
};
use evenkeel_io::MemEnv;
use std::path::Path;
use std::sync::Arc;

const NOCASE: u16 = 45;
const ROWS: i64 = 3_000;

/// Upper case, in the order of the reversed alphabet: the weights are not the value's bytes.
struct Reversed;

impl Collations for Reversed {
    fn weights(&self, _: u16, chars: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let most = if chars == 0 { usize::MAX } else { chars as usize };
        out.extend(bytes.iter().take(most).map(|byte| 255 - byte.to_ascii_uppercase()));
        Ok(())
    }

    fn bytes_max(&self, _: u16, _: u32, bytes: u32) -> usize {
        2 * bytes as usize
    }

    fn checksum(&self, collation: u16) -> Option<u32> {
        (collation == NOCASE).then_some(4711)
    }
}

fn with_collations(env: Arc<MemEnv>) -> Options {
    Options { collations: Some(&Reversed), ..options(env) }
}

fn part(column: &str, collation: u16, prefix: u32, desc: bool) -> PartSpec {
    PartSpec { column: column.to_string(), desc, prefix, collation }
}

fn name(id: i64) -> String {
    format!("{}\0name{:05}", if id % 2 == 0 { "a" } else { "B" }, id * 7 % ROWS)
}

fn store() -> MemEnv {
    let env = Arc::new(MemEnv::new());
    let db = Database::open_with("unused", with_collations(env.clone())).expect("opens");
    let bytes = ColumnType::Bytes { max: 60 };
    let mut spec = TableSpec::new()
        .column(ColumnSpec::new("name", bytes))
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("other", bytes).nullable())
        .index(IndexSpec::new("by_id", &["id"]))
        .index(IndexSpec {
            name: "by_other".to_string(),
            parts: vec![part("other", NOCASE, 3, false)],
            unique: false,
        });
    spec.primary = vec![part("name", NOCASE, 0, true), part("id", 0, 0, false)];
    db.create_table("t", &spec).expect("makes");
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    for id in 0..ROWS {
        let (name, other) = (name(id), Value::Bytes(vec![id as u8; 20]));
        let row = [Value::Bytes(name.into_bytes()), Value::Int(id), other];
        let row: Vec<_> = row.iter().map(Value::as_ref).collect();
        txn.table("t").expect("there").insert(&row[..]).expect("inserts");
    }
    txn.commit().expect("commits");
    db.close().expect("closes");
    env.fork()
}

fn rows(db: &Database) -> Vec<Vec<Value>> {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let mut scan =
        txn.table("t").expect("there").scan(Range::ALL, Direction::Forward).expect("scans");
    let (mut row, mut rows) = (Row::new(), Vec::new());
    while scan.next(&mut row).expect("reads") {
        rows.push(row.values().expect("decodes"));
    }
    rows
}

#[test]
fn a_primary_key_of_a_collation_is_carried_over_with_its_weights() {
    let files = Arc::new(store());
    let before = rows(&Database::open_with("u", with_collations(files.clone())).expect("opens"));
    let to = Arc::new(MemEnv::new());
    let target = Target::open(Path::new("unused"), options(to.clone())).expect("opens");
    let report = salvage_into(files, "a store", target).expect("salvages");
    let text = report.text();
    assert!(report.is_whole() && report.tables[0].rows == ROWS as u64, "{text}");
    let notes = report.tables[0].notes.join("\n");
    assert!(notes.contains("index by_other is left out: column other"), "{notes}");
    assert!(!notes.contains("primary"), "{notes}");
    // The program with the collations opens it.
    let db = Database::open_with("unused", with_collations(to)).expect("opens");
    assert!(rows(&db) == before, "other rows, or another order");
    let check = db.check().expect("checks");
    assert!(check.problems.is_empty(), "{:?}", check.problems);
    let def = db.definition("t").expect("there");
    assert!(!def.entry.hidden_key && def.entry.primary.len() == 2, "{def:?}");
    assert!(def.entry.primary[0].desc && def.entry.primary[0].collation.is_some(), "{def:?}");
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    let table = txn.table("t").expect("there");
    for id in [0, 1, 777, ROWS - 1] {
        // In another case.
        let key = [Value::Bytes(name(id).to_uppercase().into_bytes()), Value::Int(id)];
        let key: Vec<_> = key.iter().map(Value::as_ref).collect();
        assert!(table.get(&key[..]).expect("reads").is_some(), "{id}");
        assert!(table.delete(&key[..]).expect("deletes"), "{id}");
    }
    txn.commit().expect("commits");
    assert!(db.check().expect("checks").problems.is_empty());
    db.add_indexes(
        "t",
        &[IndexSpec {
            name: "by_other".to_string(),
            parts: vec![part("other", NOCASE, 3, false)],
            unique: false,
        }],
    )
    .expect("the index that was left out is built");
    assert!(db.check().expect("checks").problems.is_empty());
}

/// As SQL the columns are bytes: a prefix has room for its characters, and a comment names the
/// collation.
#[test]
fn sql_keeps_apart_what_a_collation_keeps_apart() {
    let place = tempfile::tempdir().expect("dir");
    let file = place.path().join("s.sql");
    let target = Target::Text(Files::file(Format::Sql, &file).expect("makes"));
    let report = salvage_into(Arc::new(store()), "a store", target).expect("salvages");
    assert!(report.is_whole(), "{}", report.text());
    let text = std::fs::read_to_string(file).expect("reads");
    for part in [
        "PRIMARY KEY (`name` DESC, `id`)",
        "KEY `by_other` (`other`(12))",
        "-- Key PRIMARY: column `name` was ordered by the collation with ID 45",
        "-- Key `by_other`: column `other` was ordered by the collation with ID 45",
    ] {
        assert!(text.contains(part), "{part}: {}", &text[..1_000]);
    }
    assert_eq!(text.matches("x'").count(), 2 * ROWS as usize);
}
