//! Salvage of a chunked table: the rows of all its chunks return, long values included.

use crate::salvage::salvage_tests::salvaged_from;
use evenkeel::ValueRef::{Int, Text};
use evenkeel::{
    Access, Chunking, ColumnSpec, ColumnType, Database, Direction, IndexSpec, Isolation, Options,
    SchemaWait, TableSpec, TimeUnit,
};
use evenkeel_io::{Env, MemEnv};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn rows_of_all_chunks_return() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = Database::open_with("unused", Options::new().env(env.clone())).expect("opens");
    let by_minute = Chunking::by("at", Duration::from_secs(60)).unit(TimeUnit::Seconds);
    let spec = TableSpec::new()
        .column(ColumnSpec::new("device", ColumnType::Int64))
        .column(ColumnSpec::new("at", ColumnType::Int64))
        .column(ColumnSpec::new("note", ColumnType::Text { max: 100_000 }))
        .primary_key(&["device", "at"])
        .index(IndexSpec::new("by_at", &["at"]))
        .chunked(by_minute.space("device", 2).between(0, 100_000));
    db.create_table("readings", &spec).expect("creates");
    let long = "long ".repeat(10_000);
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    for n in 0..200 {
        let note = if n % 50 == 0 { &long[..] } else { "short" };
        let row = [Int(n % 3), Int(10 * n - 5), Text(note)];
        txn.table("readings").expect("there").insert(&row).expect("inserts");
    }
    txn.commit().expect("commits");
    // The first minute and what lies before it.
    let done = db.drop_chunks("readings", 60, &SchemaWait::default()).expect("drops");
    assert!(done.dropped.len() >= 2 && done.kept.is_empty());
    let rows = |db: &Database| -> Vec<(i64, i64, String)> {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
        let scan = txn.table("readings").expect("there").scan(.., Direction::Forward);
        let row = |row: evenkeel::Result<evenkeel::Row>| {
            let row = row?;
            Ok((row.get("device")?, row.get("at")?, row.get("note")?))
        };
        scan.expect("scans").map(row).collect::<evenkeel::Result<_>>().expect("reads")
    };
    let before = rows(&db);
    assert_eq!(before.len(), 193);
    db.close().expect("closes");
    let (report, new) = salvaged_from(env).expect("salvages");
    assert_eq!(rows(&new), before);
    assert!(new.definition("readings").expect("there").chunking.is_none());
    let table = &report.tables[0];
    assert_eq!((table.rows, table.lost.len()), (193, 0));
    assert!(table.notes.iter().any(|note| note.contains("chunks")), "{:?}", table.notes);
    assert!(new.check().expect("checks").problems.is_empty());
}
