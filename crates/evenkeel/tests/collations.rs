//! A database whose keys have collations, opened with and without them (G7).

use evenkeel::{
    Access, Code, Collations, ColumnSpec, ColumnType, Database, Direction, IndexSpec, Isolation,
    Options, PartSpec, Range, Result, Row, TableSpec, Value, ValueRef,
};
use std::sync::Arc;

/// Treats small letters and capitals as equal.
struct Folded;

impl Collations for Folded {
    fn weights(&self, _collation: u16, _chars: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        out.extend(bytes.iter().map(u8::to_ascii_lowercase));
        Ok(())
    }

    fn bytes_max(&self, _collation: u16, _chars: u32, bytes: u32) -> usize {
        2 * bytes as usize
    }

    fn checksum(&self, _collation: u16) -> Option<u32> {
        Some(7)
    }
}

fn spec() -> TableSpec {
    let part = PartSpec { column: "name".into(), collation: 8, ..PartSpec::default() };
    let index = IndexSpec { name: "by_name".into(), parts: vec![part], unique: true };
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("name", ColumnType::Bytes { max: 20 }))
        .primary_key(&["id"])
        .index(index)
}

#[test]
fn without_collations_rows_are_read_and_checked_but_not_changed() {
    let env = Arc::new(evenkeel_io::MemEnv::new());
    let open = |collations: Option<&'static dyn Collations>| {
        let options = Options { collations, ..Options::default() };
        Database::open_with("db", options.env(env.clone())).unwrap()
    };
    let db = open(Some(&Folded));
    db.create_table("t", &spec()).unwrap();
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).unwrap();
    for (id, name) in [(1, "b"), (2, "A"), (3, "aB")] {
        let row = [ValueRef::Int(id), ValueRef::Bytes(name.as_bytes())];
        txn.table("t").unwrap().insert(&row).unwrap();
    }
    let row = [ValueRef::Int(4), ValueRef::Bytes(b"AB")];
    let error = txn.table("t").unwrap().insert(&row).unwrap_err();
    assert_eq!(error.code(), Code::DuplicateKey);
    txn.commit().unwrap();
    let report = db.check().unwrap();
    assert_eq!((report.problems.len(), report.notes.len(), report.entries), (0, 0, 3));
    db.close().unwrap();

    let db = open(None);
    let report = db.check().unwrap();
    assert_eq!((report.problems, report.entries), (vec![], 3));
    assert!(report.notes[0].contains("by_name"), "{:?}", report.notes);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).unwrap();
    let mut names = Vec::new();
    {
        let index = txn.table("t").unwrap().index("by_name").unwrap().keys_only();
        let mut scan = index.scan(Range::ALL, Direction::Forward).unwrap();
        let mut row = Row::new();
        while scan.next(&mut row).unwrap() {
            names.push(row.value("name").unwrap().to_owned());
        }
    }
    assert_eq!(names, ["A", "aB", "b"].map(|name| Value::from(name.as_bytes())));
    let row = [ValueRef::Int(5), ValueRef::Bytes(b"c")];
    let error = txn.table("t").unwrap().insert(&row).unwrap_err();
    assert_eq!(error.code(), Code::CollationMissing);
}
