//! Inserts of existing rows, and scans that lock: their cost in counts, and their results while
//! others change the same rows.

use super::*;
use evenkeel_base::{Code, metrics::Metric};

const EXCLUSIVE: Locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };
const ROWS: i64 = 4_000;

/// Every second id exists.
fn rows(db: &Db) -> Arc<Table> {
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    for id in 0..ROWS {
        txn.insert(&table, &row_values(2 * id, id % 7, None, Some(id))).unwrap();
    }
    commit(txn);
    table
}

fn id_of(row: &Row) -> i64 {
    match row.value(0).unwrap() {
        ValueRef::Int(id) => id,
        other => panic!("{other:?}"),
    }
}

/// An insert that has once met an existing row by its primary key searches for the next row first,
/// and reads no index.
#[test]
fn an_insert_finds_an_existing_row_before_it_reads_indexes() {
    let db = Db::new();
    let table = rows(&db);
    db.store.runs.seal_active();
    db.store.runs.flush_event().notify();
    let asked = || db.store.rt.metrics.get(Metric::FilterProbes);
    while db.store.runs.stats(table.layout().indexes[2].id).runs == 0 {
        std::thread::yield_now();
    }
    let mut txn = db.begin();
    let first = txn.insert_or_tell(&table, &row_values(0, 1, None, Some(7_000_000))).unwrap();
    assert_eq!(first, Insertion::Taken(None));
    let before = asked();
    for id in 1..500 {
        let there = txn.insert_or_tell(&table, &row_values(2 * id, 1, None, Some(7_000_000)));
        assert_eq!(there.unwrap(), Insertion::Taken(None));
    }
    assert_eq!(asked() - before, 0, "filters were asked");
    // A new row is prepared as usual; the error names the unique key that is taken.
    let taken = txn.insert_or_tell(&table, &row_values(1, 1, None, Some(5))).unwrap();
    assert_eq!(taken, Insertion::Taken(Some("by_c".into())));
    assert!(asked() > before);
    let done = txn.insert_or_tell(&table, &row_values(3, 1, None, None)).unwrap();
    assert_eq!(done, Insertion::Done(None));
    let both = txn.insert_or_tell(&table, &row_values(4, 1, None, Some(5))).unwrap();
    assert_eq!(both, Insertion::Taken(None), "the primary key comes first");
    commit(txn);
}

/// The result is the same with and without the search before: an undecided or locked row is waited
/// for, a deleted one is no row, an own one is.
#[test]
fn an_insert_waits_for_rows_of_others() {
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { lock_wait: Duration::ZERO, ..SMALL });
    let table = rows(&db);
    for expects in [false, true] {
        let mut other = db.begin();
        other.delete(&table, &[2i64.into()]).unwrap();
        other.insert(&table, &row_values(5, 1, None, None)).unwrap();
        let mut row = Row::new();
        let range = Range::from(&[ValueRef::Int(4)]);
        let mut scan = other.locked_scan(&table, range, Direction::Forward, EXCLUSIVE).unwrap();
        assert!(scan.next(&mut row).unwrap());
        drop(scan);
        let mut txn = db.begin();
        for held in [2, 4, 5] {
            table.expect_rows_there(expects);
            let met = txn.insert_or_tell(&table, &row_values(held, 1, None, None)).unwrap_err();
            assert_eq!(met.code(), Code::LockWaitTimeout, "row {held}, {expects}");
        }
        other.rollback().unwrap();
        txn.delete(&table, &[6i64.into()]).unwrap();
        table.expect_rows_there(expects);
        let mut insert = |id| txn.insert_or_tell(&table, &row_values(id, 1, None, None)).unwrap();
        assert_eq!(insert(6), Insertion::Done(None), "{expects}");
        table.expect_rows_there(expects);
        assert_eq!(insert(6), Insertion::Taken(None), "{expects}");
        txn.rollback().unwrap();
    }
}

/// A locking scan descends the tree once for a leaf, not once for a row.
#[test]
fn a_locking_scan_visits_a_page_a_row() {
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { frames: 4096, ..SMALL });
    let table = rows(&db);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut txn = db.begin_at(Isolation::ReadCommitted);
        let mut scan = txn.locked_scan(&table, Range::ALL, direction, EXCLUSIVE).unwrap();
        let (mut row, mut given) = (Row::new(), 0);
        let before = evenkeel_pages::visits();
        while scan.next(&mut row).unwrap() {
            given += 1;
        }
        let visits = evenkeel_pages::visits() - before;
        assert_eq!(given, ROWS);
        assert!(visits < 3 * ROWS as u64 / 2, "{visits} pages for {ROWS} rows");
    }
}

/// Rows inserted and deleted between two calls, in the leaf that the scan has copied: the scan
/// returns the current rows when it gets there, once, in both directions.
#[test]
fn a_locking_scan_sees_inserts_into_its_leaf() {
    let db = Db::new();
    let table = rows(&db);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut txn = db.begin_at(Isolation::ReadCommitted);
        let mut scan = txn.locked_scan(&table, Range::ALL, direction, EXCLUSIVE).unwrap();
        let (mut row, mut given) = (Row::new(), Vec::new());
        while scan.next(&mut row).unwrap() {
            let id = id_of(&row);
            given.push(id);
            let ahead = if direction == Direction::Forward { id + 1 } else { id - 1 };
            let last = if direction == Direction::Forward { ahead + 1 } else { ahead - 1 };
            // Sometimes the next place is taken and the place behind it is left free.
            if id % 74 == 0 && (0..2 * ROWS).contains(&last) {
                let mut other = db.begin();
                other.insert(&table, &row_values(ahead, 1, None, None)).unwrap();
                other.delete(&table, &[last.into()]).unwrap();
                commit(other);
            }
        }
        drop(scan);
        let mut wanted: Vec<i64> = {
            let rows = all_rows(&mut txn, &table, Direction::Forward);
            rows.iter().map(|row| if let Value::Int(id) = row[0] { id } else { -1 }).collect()
        };
        if direction == Direction::Backward {
            wanted.reverse();
        }
        assert!(wanted.iter().any(|id| id % 2 != 0));
        assert_eq!(given, wanted);
        commit(txn);
    }
}

/// Each row is changed when it is returned, like UPDATE does.
#[test]
fn a_locking_scan_continues_over_rows_that_it_changes() {
    let db = Db::new();
    let table = rows(&db);
    let mut txn = db.begin_at(Isolation::ReadCommitted);
    let mut scan = txn.locked_scan(&table, Range::ALL, Direction::Forward, EXCLUSIVE).unwrap();
    let (mut row, mut given) = (Row::new(), 0);
    while scan.next(&mut row).unwrap() {
        assert_eq!(id_of(&row), 2 * given);
        given += 1;
        assert!(txn.update_read(&table, &row, &[(1, 9i64.into())]).unwrap());
        scan.unlock();
    }
    assert_eq!(given, ROWS);
    drop(scan);
    commit(txn);
}

/// The lock of a scan: what it holds when the scan stops somewhere, goes on elsewhere, gives rows
/// up, or meets rows that others hold; and others insert between the rows.
#[test]
fn the_lock_of_a_scan_ends_at_its_last_row() {
    let sizes = Sizes { frames: 4096, lock_wait: Duration::ZERO, ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let table = rows(&db);
    let is_free = |n: i64| {
        // The background undoes a rolled back change, and its row has a holder until then.
        db.let_revert(u64::MAX);
        let mut other = db.begin();
        let got = other.update(&table, &[(2 * n).into()], &[(1, 5i64.into())]);
        other.rollback().unwrap();
        got.is_ok()
    };
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        for direction in [Direction::Forward, Direction::Backward] {
            let at = |i: i64| if direction == Direction::Forward { i } else { ROWS - 1 - i };
            let mut other = db.begin();
            let held = at(2_500);
            other.update(&table, &[(2 * held).into()], &[(1, 6i64.into())]).unwrap();
            let mut txn = db.begin_at(isolation);
            let locking = Locking { mode: Mode::Exclusive, wait: LockWait::Skip };
            let mut scan = txn.locked_scan(&table, Range::ALL, direction, locking).unwrap();
            let mut row = Row::new();
            let mut go = |scan: &mut LockedScan, from: i64, to: i64| {
                for i in from..to {
                    assert!(scan.next(&mut row).unwrap());
                    assert_eq!(id_of(&row), 2 * at(i));
                }
            };
            go(&mut scan, 0, 1_000);
            assert!(txn.handle().locked_rows() < 300, "{}", txn.handle().locked_rows());
            assert!((0..1_000).step_by(37).all(|i| !is_free(at(i))));
            assert!(!is_free(at(999)) && is_free(at(1_000)));
            let mut inserter = db.begin();
            inserter.insert(&table, &row_values(2 * at(500) + 1, 1, None, None)).unwrap();
            inserter.rollback().unwrap();
            // The last row is given up.
            scan.unlock();
            assert!(!is_free(at(998)) && is_free(at(999)));
            go(&mut scan, 1_000, 1_400);
            assert!(!is_free(at(1_000)) && !is_free(at(1_399)) && is_free(at(1_400)));
            // It goes on elsewhere.
            let mut row = Row::new();
            assert!(txn.get(&table, &[(2 * at(1_999)).into()], &mut row).unwrap());
            scan.resume_after(&[], row.key()).unwrap();
            go(&mut scan, 2_000, 2_500);
            assert!((1_400..2_000).step_by(37).all(|i| is_free(at(i))));
            // The row of the other one is left out, and stays its.
            for i in 2_501..3_500 {
                assert!(scan.next(&mut row).unwrap());
                assert_eq!(id_of(&row), 2 * at(i));
            }
            assert!(other.update(&table, &[(2 * held).into()], &[(1, 7i64.into())]).unwrap());
            other.rollback().unwrap();
            assert!(is_free(held) && !is_free(at(2_499)) && !is_free(at(2_501)));
            drop(scan);
            txn.rollback().unwrap();
            assert!((0..ROWS).step_by(97).all(is_free));
            assert_eq!(db.store.txns.lock_bytes(), 0);
        }
    }
}
