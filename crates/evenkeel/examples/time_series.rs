//! Measurements by device and time: loaded in batches, read as the newest values of one device and
//! by an index over the values, aged by deleting the oldest rows. The primary key (device, time
//! descending) puts the newest value of a device first.
//!
//! `cargo run --example time_series -- [DIRECTORY]` (without one, in memory)

use evenkeel::{Database, Direction, LockWait, Options, Result, exactly, record};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

record! {
    /// A measurement.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Measurement in "measurements" {
        device: u32,
        time: SystemTime,
        value: f64,
    }
    key(device, time desc)
    index by_time(time)
    index by_value(value)
}

fn second(number: u32) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(number.into())
}

/// One value of each of `devices` at a second, in one transaction.
fn measure(db: &Database, devices: u32, at: u32) -> Result<()> {
    db.transact(|txn| {
        let measurements = txn.records::<Measurement>()?;
        for device in 0..devices {
            let value = f64::from((device * 31 + at / 7) % 1000) / 10.0;
            measurements.insert(&Measurement { device, time: second(at), value })?;
        }
        Ok(())
    })
}

/// The newest `count` values of a device, newest first.
fn newest(db: &Database, device: u32, count: usize) -> Result<Vec<Measurement>> {
    db.transact(|txn| {
        txn.records()?.scan(exactly(device), Direction::Forward)?.take(count).collect()
    })
}

/// How many values are at least `least`: read from the index alone.
fn count_from(db: &Database, least: f64) -> Result<usize> {
    db.transact(|txn| {
        let by_value = txn.table("measurements")?.index("by_value")?.keys_only();
        by_value.scan(least.., Direction::Forward)?.map(|row| row.map(|_| 1)).sum()
    })
}

/// Deletes what is older than `time`, a thousand rows in each transaction, so that neither locks
/// nor undo grow with the table.
fn forget_before(db: &Database, time: SystemTime) -> Result<usize> {
    let mut all = 0;
    loop {
        let deleted = db.transact(|txn| {
            let (table, mut deleted) = (txn.table("measurements")?, 0);
            let by_time = table.index("by_time")?;
            by_time.scan_for_update(..time, Direction::Forward, LockWait::Wait, &mut |row| {
                deleted += usize::from(table.delete_read(row)?);
                Ok(deleted < 1000)
            })?;
            Ok(deleted)
        })?;
        all += deleted;
        if deleted == 0 {
            return Ok(all);
        }
    }
}

fn run(db: &Database, seconds: u32) -> Result<(usize, usize, usize)> {
    db.create_table_of::<Measurement>()?;
    for at in 0..seconds {
        measure(db, 20, at)?;
    }
    let high = count_from(db, 50.0)?;
    let deleted = forget_before(db, second(seconds / 2))?;
    Ok((high, deleted, newest(db, 7, usize::MAX)?.len()))
}

fn main() -> Result<()> {
    let db = match std::env::args().nth(1) {
        Some(directory) => Database::open(directory)?,
        None => Database::open_with("unused", Options::in_memory())?,
    };
    let (high, deleted, left) = run(&db, 500)?;
    println!("{high} values of 50 or more; {deleted} rows forgotten; device 7 has {left} left");
    for measurement in newest(&db, 7, 3)? {
        println!("{measurement:?}");
    }
    db.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_reads_and_forgets() {
        let db = Database::open_with("unused", Options::in_memory()).expect("opens");
        let (high, deleted, left) = run(&db, 200).expect("runs");
        let values = (0..200u32).flat_map(|at| (0..20).map(move |d| (d * 31 + at / 7) % 1000));
        assert_eq!((high, deleted, left), (values.filter(|v| *v >= 500).count(), 2000, 100));
        let times = newest(&db, 7, 2).expect("reads").into_iter().map(|found| found.time);
        assert!(times.eq([second(199), second(198)]));
        assert_eq!(db.check().expect("checks").problems, Vec::<String>::new());
    }
}
