//! What the background's laws looked at and said is kept when asked for, and the laws say the same
//! again: all of them in a database whose log and memtables are far smaller than what is written.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Geometry, IndexSpec, Isolation, Law, Metric, Options,
    TableSpec, Value,
};
use std::collections::BTreeMap;

#[test]
fn every_law_is_kept_and_made_again() {
    let geometry = Geometry {
        generation_bytes: Some(64 << 10),
        pool_bytes: Some(1 << 20),
        log_bytes: Some(1 << 20),
        ..Geometry::default()
    };
    let db = Database::open_with("decisions", Options::in_memory().geometry(geometry));
    let db = db.expect("opens");
    db.keep_decisions(true);
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 100 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_value", &["value"]))
        .index(IndexSpec::new("by_pad", &["pad", "value"]));
    db.create_table("t", &spec).expect("creates");
    let mut made = BTreeMap::<&str, usize>::new();
    for batch in 0..400i64 {
        let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        let mut table = txn.table("t").expect("table");
        for i in 0..100 {
            let id = batch * 100 + i;
            let row = [Int(id), Int(id * 7_919 % 100_003), Bytes(&[id as u8; 60])];
            table.insert(&row).expect("inserts");
        }
        txn.commit().expect("commits");
        for decision in db.take_decisions() {
            let (inputs, outputs) = decision.law.fields();
            assert!(decision.inputs.len() >= inputs.len(), "{decision:?}");
            assert_eq!(decision.outputs.len(), outputs.len(), "{decision:?}");
            let again = evenkeel::decide(decision.law, &decision.inputs);
            assert_eq!(again.as_ref(), Some(&decision.outputs), "{decision:?}");
            *made.entry(decision.law.name()).or_default() += 1;
        }
    }
    println!("{made:?}");
    for law in [Law::Merge, Law::Handover, Law::LogSpace] {
        assert!(made.contains_key(law.name()), "{law:?}: {made:?}");
    }
}

/// What an index build reads from storage is background I/O as well: the governor hears of it.
#[test]
fn reads_of_an_index_build_are_asked_for() {
    let geometry = Geometry { pool_bytes: Some(1 << 20), ..Geometry::default() };
    let db = Database::open_with("builds", Options::in_memory().geometry(geometry));
    let db = db.expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 100 }))
        .primary_key(&["id"]);
    db.create_table("t", &spec).expect("creates");
    let row = |id: i64| vec![id.into(), (id * 7_919 % 100_003).into(), Value::Bytes(vec![7; 80])];
    db.load_table("t", (0..60_000).map(row)).expect("loads");
    let before = db.stats();
    db.add_indexes("t", &[IndexSpec::new("by_value", &["value"])]).expect("builds");
    let after = db.stats();
    let grown = |metric| after.get(metric) - before.get(metric);
    let (read, written) = (grown(Metric::PageReadBytes), grown(Metric::BuildWriteBytes));
    let asked = grown(Metric::GovernorAskedDdl);
    println!("read {read}, written {written}, asked for {asked}");
    assert!(read > 5 << 20, "the table does not fit the pool");
    assert!(asked >= written + read / 10 * 9, "{asked} for {read} + {written}");
    assert!(asked <= (written + read) * 3 / 2, "{asked} for {read} + {written}");
}
