//! A transaction that changes every row of a table and is killed before its end, or is prepared,
//! for `tests/restart.rs` and `tests/prepared.rs`. Its undo and its pages are many times the size
//! of the log, so only the log size bounds what recovery reads of them.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Durability, Geometry, IndexSpec, Isolation, Metric,
    Options, Result, TableSpec,
};
use std::path::Path;

/// Size of the log in bytes.
pub const LOG_BYTES: u64 = 2 << 20;
/// Least value of the rows that the unfinished transaction inserts.
pub const GONE: i64 = 1 << 40;
/// XID of the prepared transaction.
pub const XID: &[u8] = b"all rows";

/// Opens the database, with a small log and little memory.
///
/// # Errors
/// Those of the database.
pub fn open(dir: &Path) -> Result<Database> {
    let geometry = Geometry {
        log_bytes: Some(LOG_BYTES),
        pool_bytes: Some(4 << 20),
        undo_bytes: Some(1 << 20),
        generation_bytes: Some(512 << 10),
        ..Geometry::default()
    };
    let options = Options { durability: Durability::Lazy, ..Options::default() };
    Database::open_with(dir, options.geometry(geometry))
}

/// Loads `rows` rows. Then a transaction that stays open changes every one and inserts a row
/// between any two of them.
///
/// # Errors
/// Those of the database.
pub fn lose(db: &Database, rows: i64) -> Result<evenkeel::Txn> {
    change_all(db, rows, IndexSpec::new("by_value", &["value"]))
}

/// The same with a unique index, and prepares that transaction.
///
/// # Errors
/// Those of the database.
pub fn prepare(db: &Database, rows: i64) -> Result<bool> {
    change_all(db, rows, IndexSpec::new("by_value", &["value"]).unique())?.prepare(XID)
}

fn change_all(db: &Database, rows: i64, index: IndexSpec) -> Result<evenkeel::Txn> {
    let column = ColumnSpec::new;
    let spec = TableSpec::new()
        .column(column("id", ColumnType::Int64))
        .column(column("value", ColumnType::Int64))
        .column(column("pad", ColumnType::Bytes { max: 200 }))
        .primary_key(&["id"])
        .index(index);
    db.create_table("t", &spec)?;
    for from in (0..rows).step_by(1000) {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
        let table = txn.table("t")?;
        for id in from..(from + 1000).min(rows) {
            table.insert(&[Int(id * 2), Int(id), Bytes(&[id as u8; 60])])?;
        }
        txn.commit()?;
    }
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
    let table = txn.table("t")?;
    for id in 0..rows {
        table.update(&[Int(id * 2)], &[(1, Int(GONE + id))])?;
        table.insert(&[Int(id * 2 + 1), Int(GONE - 1 - id), Bytes(b"gone")])?;
    }
    Ok(txn)
}

/// Waits until this many rows have been rolled back since the database was opened, or all have.
pub fn await_reverted(db: &Database, rows: u64) {
    while db.stats().get(Metric::RollingBackTxns) > 0
        && db.stats().get(Metric::RowsRolledBack) < rows
    {
        std::thread::yield_now();
    }
}

/// The value of a row, by its key.
///
/// # Panics
/// If it cannot be read.
pub fn value(db: &Database, id: i64) -> Option<i64> {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
    let row = txn.table("t").expect("table").get(&[Int(id)]).expect("get")?;
    match row.value(1).expect("a value") {
        Int(value) => Some(value),
        other => panic!("{other:?}"),
    }
}
