//! Counts equal the number of rows that scans return: over many leaves, for readers of every kind,
//! beside changes that are undecided, newer than the snapshot or taken back.

use super::*;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Kind};
use evenkeel_io::Rng;
use std::ops::Bound;

/// Counts of the table, of each index, and of what a scan has left equal the rows that scans read.
pub fn check_counts(txn: &mut TableTxn, table: &Arc<Table>) {
    let rows = all_rows(txn, table, Direction::Forward).len() as u64;
    assert_eq!(txn.count(table).unwrap(), rows);
    let mut row = Row::new();
    let indexes = table.layout().indexes.len();
    for direction in [Direction::Forward, Direction::Backward] {
        for read in [0, 1, 70] {
            let mut scan = txn.scan(table, Range::ALL, direction).unwrap();
            let read = (0..read).filter(|_| scan.next(&mut row).unwrap()).count() as u64;
            assert_eq!(read + scan.count().unwrap(), rows, "{direction:?} after {read} rows");
        }
        for (index, keys_only) in (0..indexes).flat_map(|at| [(at, true), (at, false)]) {
            for read in [0, 1, 7] {
                let range = Range::ALL;
                let mut scan = txn.index_scan(table, index, range, direction, keys_only).unwrap();
                let read = (0..read).filter(|_| scan.next(&mut row).unwrap()).count() as u64;
                let counted = read + scan.count().unwrap();
                assert_eq!(counted, rows, "index {index}, {direction:?}, {keys_only}, {read} read");
            }
        }
    }
}

/// A count of a range of the primary key equals the rows of a scan of that range.
fn check_range(txn: &mut TableTxn, table: &Arc<Table>, from: i64, to: i64) {
    let (from, to) = ([ValueRef::Int(from)], [ValueRef::Int(to)]);
    for upper in [Bound::Included(&to[..]), Bound::Excluded(&to[..]), Bound::Unbounded] {
        let range = Range { lower: Bound::Excluded(&from[..]), upper };
        let mut scan = txn.scan(table, range, Direction::Forward).unwrap();
        let (mut row, mut rows) = (Row::new(), 0);
        while scan.next(&mut row).unwrap() {
            rows += 1;
        }
        let count = txn.scan(table, range, Direction::Forward).unwrap().count().unwrap();
        assert_eq!(count, rows, "{range:?}");
    }
}

const KEYS: u64 = 600;

/// A change of some neighbouring rows.
fn change(rng: &mut Rng, txn: &mut TableTxn, table: &Arc<Table>) -> Result<()> {
    let (from, len, what) = (rng.below(KEYS), 1 + rng.below(40), rng.below(4));
    let text = "t".repeat(rng.below(60) as usize);
    for id in from..from + len {
        let id = id as i64;
        let there = match what {
            0 => txn.delete(table, &[id.into()])?,
            _ => txn.update(table, &[id.into()], &[(1, (id % 7).into())])?,
        };
        if !there && what > 1 {
            txn.insert(table, &row_values(id, id % 5, Some(&text), Some(id)))?;
        }
    }
    Ok(())
}

#[test]
fn counts_equal_scans_beside_writers() {
    let seed = std::env::var("EVENKEEL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    println!("EVENKEEL_SEED={seed}");
    let mut rng = Rng::new(seed);
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { lock_wait: Duration::ZERO, ..SMALL });
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut writers: Vec<TableTxn> = (0..2).map(|_| db.begin()).collect();
    let mut readers: Vec<TableTxn> = Vec::new();
    let mut counts = std::collections::BTreeSet::new();
    for _ in 0..120 {
        let at = rng.below(2) as usize;
        match rng.below(6) {
            0 => {
                let txn = writers.remove(at);
                match rng.below(3) {
                    0 => txn.rollback().unwrap(),
                    _ => drop(commit(txn)),
                }
                writers.insert(at, db.begin());
            }
            1 => {
                let mut reader = db.begin();
                reader.take_snapshot().unwrap();
                readers.push(reader);
                if readers.len() > 3 {
                    readers.remove(rng.below(4) as usize);
                }
            }
            2 => db.store.runs.seal_active(),
            _ => match change(&mut rng, &mut writers[at], &table) {
                Ok(()) => {}
                Err(e) => {
                    assert!([Kind::LockTimeout, Kind::Conflict].contains(&e.kind()), "{e}");
                }
            },
        }
        let mut fresh = [db.begin(), db.begin_at(Isolation::ReadUncommitted)];
        let all = fresh.iter_mut().chain(&mut readers).chain(&mut writers);
        for txn in all {
            counts.insert(txn.count(&table).unwrap());
            check_counts(txn, &table);
            let from = rng.below(KEYS) as i64 - 5;
            check_range(txn, &table, from, from + 1 + rng.below(KEYS) as i64);
        }
    }
    assert!(counts.len() > 20, "{counts:?}");
}

/// Each leaf is latched once, as by a scan; the counter of rows shows what was counted.
#[test]
fn a_count_visits_each_leaf_once() {
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { frames: 1024, ..SMALL });
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    for id in 0..3_000i64 {
        txn.insert(&table, &row_values(id, 1, Some("some text, so that there are leaves"), None))
            .unwrap();
    }
    commit(txn);
    let leaves = db.store.size_estimate(&table).unwrap().leaves;
    assert!(leaves > 40, "{leaves}");
    let mut reader = db.begin();
    let visits = |f: &mut dyn FnMut() -> u64| {
        let before = evenkeel_pages::visits();
        assert_eq!(f(), 3_000);
        evenkeel_pages::visits() - before
    };
    let by_scan = visits(&mut || all_rows(&mut reader, &table, Direction::Forward).len() as u64);
    let rows_read = db.store.rt.metrics.get(Metric::RowsRead);
    let by_count = visits(&mut || reader.count(&table).unwrap());
    assert_eq!(db.store.rt.metrics.get(Metric::RowsRead) - rows_read, 3_000);
    println!("{leaves} leaves; pages visited by a scan: {by_scan}, by a count: {by_count}");
    assert!(by_count <= by_scan + 4, "{by_count} visits, {by_scan} by a scan");
}

#[test]
fn a_cancelled_count_ends() {
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    for id in 0..500i64 {
        txn.insert(&table, &row_values(id, 1, None, None)).unwrap();
    }
    txn.handle().cancel();
    for index in [None, Some(0)] {
        let (range, direction) = (Range::ALL, Direction::Forward);
        let counted = match index {
            None => txn.scan(&table, range, direction).unwrap().count(),
            Some(at) => txn.index_scan(&table, at, range, direction, true).unwrap().count(),
        };
        assert_eq!(counted.unwrap_err().code(), Code::StatementCancelled);
    }
}
