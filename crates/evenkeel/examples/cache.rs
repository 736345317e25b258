//! A cache of values by key, each until a time. Keys are bytes: those that begin alike are removed
//! together. What has expired is found by an index, so evicting reads nothing else.
//!
//! `cargo run --example cache -- [DIRECTORY]` (without one, in memory)

use evenkeel::{
    ColumnSpec, ColumnType, Database, Direction, Durability, IndexSpec, LockWait, Options, Result,
    TableSpec, starting_with,
};
use std::time::{Duration, SystemTime};

fn create(db: &Database) -> Result<()> {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("key", ColumnType::Bytes { max: 200 }))
        .column(ColumnSpec::new("value", ColumnType::Bytes { max: u32::MAX }))
        .column(ColumnSpec::new("until", ColumnType::DateTime))
        .primary_key(&["key"])
        .index(IndexSpec::new("by_end", &["until"]));
    db.create_table("cache", &spec)
}

fn put(db: &Database, key: &[u8], value: &[u8], until: SystemTime) -> Result<()> {
    db.transact(|txn| txn.table("cache")?.put((key, value, until)).map(|_| ()))
}

fn get(db: &Database, key: &[u8], now: SystemTime) -> Result<Option<Vec<u8>>> {
    db.transact(|txn| match txn.table("cache")?.get(key)? {
        Some(row) if row.get::<SystemTime>("until")? > now => row.get("value").map(Some),
        _ => Ok(None),
    })
}

/// Removes all keys that begin with `start`; how many there were.
fn remove(db: &Database, start: &[u8]) -> Result<u64> {
    db.transact(|txn| {
        let (cache, mut removed) = (txn.table("cache")?, 0);
        let range = starting_with(start);
        cache.scan_for_update(range, Direction::Forward, LockWait::Wait, &mut |row| {
            removed += u64::from(cache.delete_read(row)?);
            Ok(true)
        })?;
        Ok(removed)
    })
}

/// Removes what has expired, at most a thousand values in a transaction; what others hold is left
/// for the next time.
fn evict(db: &Database, now: SystemTime) -> Result<u64> {
    let mut all = 0;
    loop {
        let evicted = db.transact(|txn| {
            let (cache, mut evicted) = (txn.table("cache")?, 0);
            let expired = cache.index("by_end")?;
            expired.scan_for_update(..=now, Direction::Forward, LockWait::Skip, &mut |row| {
                evicted += u64::from(cache.delete_read(row)?);
                Ok(evicted < 1000)
            })?;
            Ok(evicted)
        })?;
        all += evicted;
        if evicted == 0 {
            return Ok(all);
        }
    }
}

/// A crash may lose the last second of a cache, so nobody waits for the disk.
fn options() -> Options {
    Options { durability: Durability::Lazy, ..Options::new() }
}

fn main() -> Result<()> {
    let db = match std::env::args().nth(1) {
        Some(directory) => Database::open_with(directory, options())?,
        None => Database::open_with("unused", Options::in_memory())?,
    };
    create(&db)?;
    let (now, minute) = (SystemTime::now(), Duration::from_secs(60));
    for user in 0..10 {
        put(&db, format!("user/{user}/name").as_bytes(), b"somebody", now + minute)?;
        put(&db, format!("user/{user}/seen").as_bytes(), b"today", now + minute * (user % 3))?;
    }
    println!("{:?}", get(&db, b"user/7/name", now)?);
    println!("{} keys of user 7 removed", remove(&db, b"user/7/")?);
    println!("{} expired", evict(&db, now + minute)?);
    db.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel::Value;

    #[test]
    fn values_live_until_their_time() {
        let db = Database::open_with("unused", Options::in_memory()).expect("opens");
        create(&db).expect("creates");
        let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        for key in 0..=255u8 {
            put(&db, &[key, 1], &[key; 10], at(u64::from(key))).expect("puts");
        }
        put(&db, &[7, 1], b"replaced", at(7)).expect("puts");
        assert_eq!(get(&db, &[7, 1], at(6)).expect("gets").as_deref(), Some(&b"replaced"[..]));
        assert_eq!(get(&db, &[7, 1], at(7)).expect("gets"), None);
        assert_eq!(get(&db, &[7], at(6)).expect("gets"), None);

        assert_eq!(remove(&db, &[0xff]).expect("removes"), 1);
        assert_eq!(evict(&db, at(99)).expect("evicts"), 100);
        assert_eq!(evict(&db, at(99)).expect("evicts"), 0);
        assert_eq!(remove(&db, &[]).expect("removes"), 155);
    }

    #[test]
    fn more_than_a_thousand_values_are_evicted() {
        let db = Database::open_with("unused", Options::in_memory()).expect("opens");
        create(&db).expect("creates");
        let end = SystemTime::UNIX_EPOCH;
        db.transact(|txn| {
            let row =
                |key: u32| [Value::from(key.to_be_bytes()), Value::from(""), Value::from(end)];
            txn.table("cache")?.bulk_load((0..2500).map(row))
        })
        .expect("loads");
        assert_eq!(evict(&db, end).expect("evicts"), 2500);
    }
}
