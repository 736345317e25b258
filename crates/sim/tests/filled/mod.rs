//! A database with 30 MB of dirty pages, and an index of its rows in the memtable.

use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, IndexSpec, Isolation, Options, TableSpec, ValueRef,
};
use evenkeel_io::SimEnv;

pub const ROWS: i64 = 30_000;
const ROW: [u8; 1000] = [7; 1000];

pub fn opened(sim: &SimEnv) -> Database {
    let options = Options { memory_size: 128 << 20, ..Options::new() }.env(sim.env());
    Database::open_with("db", options).expect("opens")
}

/// Creates a table with rows of 1000 bytes and an index on a number.
fn create(db: &Database, table: &str) {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("a", ColumnType::Int64))
        .column(ColumnSpec::new("data", ColumnType::Bytes { max: 1000 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("a", &["a"]));
    db.create_table(table, &spec).expect("table");
}

/// Writes rows in one transaction.
pub fn put(db: &Database, table: &str, ids: std::ops::Range<i64>, value: i64) {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    for id in ids {
        let row = [ValueRef::Int(id), ValueRef::Int(value), ValueRef::Bytes(&ROW)];
        txn.table(table).expect("is there").put(&row).expect("fits");
    }
    txn.commit().expect("commits");
}

/// Creates a table with this many rows.
pub fn fill(db: &Database, table: &str, rows: i64) {
    create(db, table);
    for first in (0..rows).step_by(100) {
        put(db, table, first..first + 100, first);
    }
}

/// A filled database. No page is old enough to have to be written.
pub fn filled(sim: &SimEnv) -> Database {
    let db = opened(sim);
    fill(&db, "t", ROWS);
    db
}
