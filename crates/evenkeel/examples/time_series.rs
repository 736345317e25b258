//! Measurements by device and time: loaded in batches, read as the newest values of one device and
//! by an index over the values, aged by deleting the oldest rows. The primary key (device, time
//! descending) puts the newest value of a device first.
//!
//! `cargo run --example time_series -- [DIRECTORY]` (without one, in memory)

use evenkeel::ValueRef::{DateTime, Float, Int};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, IndexSpec, Isolation, LockWait, Options,
    Range, Result, Row, TableSpec, Value, ValueRef,
};
use std::ops::Bound;

fn create(db: &Database) -> Result<()> {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("device", ColumnType::Int32))
        .column(ColumnSpec::new("time", ColumnType::DateTime))
        .column(ColumnSpec::new("value", ColumnType::Float64))
        .primary_key(&["device", "time desc"])
        .index(IndexSpec::new("by_time", &["time"]))
        .index(IndexSpec::new("by_value", &["value"]));
    db.create_table("measurements", &spec)
}

/// One value of each of `devices` at `time`, in one transaction.
fn record(db: &Database, devices: i64, time: i64) -> Result<()> {
    let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    let mut table = txn.table("measurements")?;
    for device in 0..devices {
        let value = (device * 31 + time / 7) % 1000;
        table.insert(&[Int(device), DateTime(time), Float(value as f64 / 10.0)])?;
    }
    txn.commit()?;
    Ok(())
}

/// The newest `count` values of a device, newest first.
fn newest(db: &Database, device: i64, count: usize) -> Result<Vec<Vec<Value>>> {
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    let key = [Int(device)];
    let mut scan = txn.table("measurements")?.scan(Range::prefix(&key), Direction::Forward)?;
    let (mut row, mut found) = (Row::new(), Vec::new());
    while found.len() < count && scan.next(&mut row)? {
        found.push(row.values()?);
    }
    Ok(found)
}

/// How many values are at least `least`: read from the index alone.
fn count_from(db: &Database, least: f64) -> Result<u64> {
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    let from = [Float(least)];
    let mut index = txn.table("measurements")?.index("by_value")?.keys_only();
    let mut scan = index.scan(Range::from(&from), Direction::Forward)?;
    let (mut row, mut count) = (Row::new(), 0);
    while scan.next(&mut row)? {
        count += 1;
    }
    Ok(count)
}

/// Deletes what is older than `time`, a thousand rows in each transaction, so that neither locks
/// nor undo grow with the table.
fn forget_before(db: &Database, time: i64) -> Result<u64> {
    let mut deleted = 0;
    loop {
        let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
        let until = [DateTime(time)];
        let range = Range { lower: Bound::Unbounded, upper: Bound::Excluded(&until) };
        let mut old: Vec<[Value; 2]> = Vec::new();
        let mut index = txn.table("measurements")?.index("by_time")?;
        index.scan_for_update(range, Direction::Forward, LockWait::Wait, &mut |row| {
            old.push([row.get("device")?.to_owned(), row.get("time")?.to_owned()]);
            Ok(old.len() < 1000)
        })?;
        let mut table = txn.table("measurements")?;
        for key in &old {
            table.delete(&key.each_ref().map(ValueRef::from))?;
        }
        txn.commit()?;
        deleted += old.len() as u64;
        if old.is_empty() {
            return Ok(deleted);
        }
    }
}

fn run(db: &Database, times: i64) -> Result<(u64, u64, usize)> {
    create(db)?;
    for time in 0..times {
        record(db, 20, time * 1_000_000)?;
    }
    let high = count_from(db, 50.0)?;
    let deleted = forget_before(db, times / 2 * 1_000_000)?;
    Ok((high, deleted, newest(db, 7, usize::MAX)?.len()))
}

fn main() -> Result<()> {
    let db = match std::env::args().nth(1) {
        Some(directory) => Database::open(directory)?,
        None => Database::open_with("unused", Options::in_memory())?,
    };
    let (high, deleted, left) = run(&db, 500)?;
    println!("{high} values of 50 or more; {deleted} rows forgotten; device 7 has {left} left");
    for row in newest(&db, 7, 3)? {
        println!("{row:?}");
    }
    db.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_reads_and_forgets() {
        let db = Database::open_with("unused", Options::in_memory()).expect("open");
        let (high, deleted, left) = run(&db, 200).expect("run");
        let expected = (0..200_i64)
            .flat_map(|time| (0..20).map(move |device| (device * 31 + time * 1_000_000 / 7) % 1000))
            .filter(|value| *value >= 500);
        assert_eq!((high, deleted, left), (expected.count() as u64, 2000, 100));
        let newest = newest(&db, 7, 2).expect("newest");
        let times: Vec<_> = newest.iter().map(|row| row[1].clone()).collect();
        assert_eq!(times, [Value::DateTime(199_000_000), Value::DateTime(198_000_000)]);
        assert_eq!(db.check().expect("check").problems, Vec::<String>::new());
    }
}
