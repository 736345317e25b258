//! Locking scans over leaves whose rows only an old snapshot needs: visited pages are counted, and
//! rows that must not be skipped are not: returning rows, conflicts, locks of ranges.

use super::*;
use evenkeel_base::Code;
use std::ops::Bound;

const ROWS: i64 = 20_000;
const LEFT: i64 = 10;
/// The most pages, of some 400, that a plain read visits once all dead leaves are noted: the paths
/// to the dead leaves and to the first other leaf. Another leaf costs it 5.
const VISITS: u64 = 10;
/// The same for a locking scan: it reads a leaf that is not all dead row by row, some 50 rows at 4
/// pages. Each dead leaf that it did not skip would cost as much again.
const LOCKING_VISITS: u64 = 300;
const EXCLUSIVE: Locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };

/// Rows, and a transaction that sees them all; then they are deleted except ten, at the end or at
/// the beginning.
fn queue(direction: Direction) -> (Db, Arc<Table>, TableTxn) {
    let sizes = Sizes { frames: 4_096, lock_wait: Duration::ZERO, ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 100 }))
        .primary_key(&["id"]);
    let table = db.store.create_table("t", &spec).unwrap();
    let pad = [7; 60];
    for from in (0..ROWS).step_by(1_000) {
        let rows: Vec<_> =
            (from..from + 1_000).map(|id| [ValueRef::Int(id), ValueRef::Bytes(&pad)]).collect();
        let mut txn = db.begin();
        txn.insert_many(&table, rows.iter().map(|row| &row[..])).unwrap();
        commit(txn);
    }
    let mut old = db.begin();
    old.take_snapshot().unwrap();
    for from in (0..ROWS - LEFT).step_by(1_000) {
        let mut txn = db.begin();
        for n in from..(from + 1_000).min(ROWS - LEFT) {
            let id = if direction == Direction::Forward { n } else { ROWS - 1 - n };
            assert!(txn.delete(&table, &[id.into()]).unwrap());
        }
        commit(txn);
    }
    (db, table, old)
}

/// Readers and the background note dead leaves until a plain read visits no dead leaf at all: later
/// counts depend on no thread.
fn await_notes(db: &Db, table: &Arc<Table>, direction: Direction) {
    let plain = || {
        let before = evenkeel_pages::visits();
        let mut txn = db.begin();
        let mut scan = txn.scan(table, Range::ALL, direction).unwrap();
        assert!(scan.next(&mut Row::new()).unwrap());
        evenkeel_pages::visits() - before
    };
    let start = std::time::Instant::now();
    loop {
        let pages = plain();
        if pages <= VISITS {
            return;
        }
        assert!(start.elapsed().as_secs() < 120, "not all is noted as dead: {pages} pages");
        std::thread::yield_now();
    }
}

/// The first row that a locking scan returns, and the pages visited for it.
fn first(
    txn: &mut TableTxn,
    table: &Arc<Table>,
    direction: Direction,
    locking: Locking,
) -> Result<(Option<i64>, u64)> {
    let before = evenkeel_pages::visits();
    let mut scan = txn.locked_scan(table, Range::ALL, direction, locking)?;
    let mut row = Row::new();
    let found = scan.next(&mut row)?.then(|| match row.value(0).unwrap() {
        ValueRef::Int(id) => id,
        other => panic!("{other:?}"),
    });
    Ok((found, evenkeel_pages::visits() - before))
}

#[test]
fn locking_scans_skip_dead_leaves() {
    for direction in [Direction::Forward, Direction::Backward] {
        let (db, table, mut old) = queue(direction);
        let end = if direction == Direction::Forward { ROWS - LEFT } else { LEFT - 1 };
        let locking = |wait| Locking { mode: Mode::Exclusive, wait };
        await_notes(&db, &table, direction);
        for isolation in
            [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable]
        {
            for wait in [LockWait::Wait, LockWait::NoWait, LockWait::Skip] {
                let mut txn = db.begin_at(isolation);
                let (found, visits) = first(&mut txn, &table, direction, locking(wait)).unwrap();
                assert_eq!(found, Some(end), "{isolation:?} {wait:?} {direction:?}");
                let what = format!("{isolation:?} {wait:?} {direction:?}: {visits} pages");
                assert!(visits <= LOCKING_VISITS, "{what}");
                println!("{what}");
            }
        }
        let mut txn = db.begin();
        txn.take_snapshot().unwrap();
        let (found, visits) = first(&mut txn, &table, direction, EXCLUSIVE).unwrap();
        assert!(found == Some(end) && visits <= LOCKING_VISITS, "a young snapshot: {visits} pages");
        drop(txn);
        // A reader that sees the rows conflicts with the transactions that deleted them, also if
        // all leaves of the range are dead.
        let middle = [ValueRef::Int(ROWS / 2)];
        let dead = if direction == Direction::Forward {
            Range { lower: Bound::Unbounded, upper: Bound::Included(&middle) }
        } else {
            Range { lower: Bound::Included(&middle), upper: Bound::Unbounded }
        };
        let mut scan = old.locked_scan(&table, dead, direction, EXCLUSIVE).unwrap();
        let error = scan.next(&mut Row::new()).unwrap_err();
        assert_eq!(error.code(), Code::RowChanged, "{error}");
    }
}

#[test]
fn skipped_dead_leaves_are_locked_and_may_get_rows() {
    let (db, table, old) = queue(Direction::Forward);
    await_notes(&db, &table, Direction::Forward);
    let middle = [ValueRef::Int(ROWS / 2), ValueRef::Bytes(b"back")];
    let mut locker = db.begin_at(Isolation::Serializable);
    assert_eq!(
        first(&mut locker, &table, Direction::Forward, EXCLUSIVE).unwrap().0,
        Some(ROWS - LEFT)
    );
    let mut other = db.begin_at(Isolation::ReadCommitted);
    let error = other.insert(&table, &middle).unwrap_err();
    assert_eq!(error.code(), Code::LockWaitTimeout, "the range is locked: {error}");
    drop(locker);
    other.insert(&table, &middle).unwrap();
    let mut waits = db.begin_at(Isolation::ReadCommitted);
    let error = first(&mut waits, &table, Direction::Forward, EXCLUSIVE).unwrap_err();
    assert_eq!(error.code(), Code::LockWaitTimeout, "undecided: {error}");
    commit(other);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut txn = db.begin_at(Isolation::ReadCommitted);
        let mut scan = txn.locked_scan(&table, Range::ALL, direction, EXCLUSIVE).unwrap();
        let (mut row, mut rows) = (Row::new(), 0);
        while scan.next(&mut row).unwrap() {
            rows += 1;
        }
        assert_eq!(rows, LEFT + 1, "{direction:?}");
    }
    drop(old);
}
