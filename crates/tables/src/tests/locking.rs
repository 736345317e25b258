//! Locking scans: their rows against a model, in both directions, by key and by index; where they
//! continue; and the locks that remain. Statements of several reads; numbers; decisions during
//! prepare.

use super::*;
use evenkeel_base::Code;
use std::collections::BTreeMap;
use std::ops::Bound;

const EXCLUSIVE: Locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };

/// Rows `0..n`; column `a` is a permutation of ten values.
fn rows(db: &Db, n: i64) -> (Arc<Table>, BTreeMap<i64, i64>) {
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut model = BTreeMap::new();
    let mut txn = db.begin();
    for id in 0..n {
        let a = (id * 7) % 10;
        txn.insert(&table, &row_values(id, a, None, Some(id))).unwrap();
        model.insert(id, a);
    }
    commit(txn);
    (table, model)
}

fn id_of(row: &Row) -> i64 {
    match row.value(0).unwrap() {
        ValueRef::Int(id) => id,
        other => panic!("{other:?}"),
    }
}

fn all(scan: &mut LockedScan) -> Vec<i64> {
    let (mut row, mut ids) = (Row::new(), Vec::new());
    while scan.next(&mut row).unwrap() {
        ids.push(id_of(&row));
    }
    ids
}

/// Each range, direction and access path returns the rows of the model; continuing behind any row
/// returns the rest.
#[test]
fn locked_scans_against_a_model() {
    let db = Db::new();
    let (table, model) = rows(&db, 200);
    let by_a = table.layout().index("by_a").unwrap();
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        for backward in [false, true] {
            let direction = if backward { Direction::Backward } else { Direction::Forward };
            for (low, high) in [(0i64, 199i64), (17, 61), (50, 50), (300, 400)] {
                let (from, to) = ([ValueRef::Int(low)], [ValueRef::Int(high)]);
                let range = Range {
                    lower: std::ops::Bound::Included(&from[..]),
                    upper: std::ops::Bound::Included(&to[..]),
                };
                let mut txn = db.begin_at(isolation);
                let mut wanted: Vec<i64> = model.range(low..=high).map(|(id, _)| *id).collect();
                if backward {
                    wanted.reverse();
                }
                let mut scan = txn.locked_scan(&table, range, direction, EXCLUSIVE).unwrap();
                assert_eq!(all(&mut scan), wanted);
                go_on(&mut txn, &table, None, range, direction, &wanted);

                let mut wanted: Vec<(i64, i64)> = model.iter().map(|(id, a)| (*a, *id)).collect();
                wanted.retain(|(a, _)| (low..=high).contains(a));
                wanted.sort_unstable();
                if backward {
                    wanted.reverse();
                }
                let wanted: Vec<i64> = wanted.into_iter().map(|(_, id)| id).collect();
                let mut scan =
                    txn.locked_index_scan(&table, by_a, range, direction, EXCLUSIVE).unwrap();
                assert_eq!(all(&mut scan), wanted);
                go_on(&mut txn, &table, Some(by_a), range, direction, &wanted);
                txn.rollback().unwrap();
            }
        }
    }
}

fn go_on(
    txn: &mut TableTxn,
    table: &Arc<Table>,
    index: Option<usize>,
    range: Range<'_>,
    direction: Direction,
    wanted: &[i64],
) {
    let mut open = || match index {
        None => txn.locked_scan(table, range, direction, EXCLUSIVE).unwrap(),
        Some(at) => txn.locked_index_scan(table, at, range, direction, EXCLUSIVE).unwrap(),
    };
    let (mut first, mut row) = (open(), Row::new());
    for at in (0..wanted.len()).step_by(37) {
        for _ in 0..if at == 0 { 1 } else { 37 } {
            assert!(first.next(&mut row).unwrap());
        }
        let (entry, key) = (first.place().0.to_vec(), first.place().1.to_vec());
        let mut second = open();
        // Whether or not it has reached another row already.
        if at % 2 == 0 {
            assert!(second.next(&mut row).unwrap());
        }
        second.resume_after(&entry, &key).unwrap();
        assert_eq!(second.place(), first.place());
        assert_eq!(all(&mut second), wanted[at + 1..]);
        second.resume_after(&entry, &key).unwrap();
        assert_eq!(all(&mut second), wanted[at + 1..], "after its end too");
    }
}

/// A plain scan continues behind any row, from any position: in its middle, at its end, before its
/// start; in front of its range it starts again.
#[test]
fn plain_scans_continue_behind_any_row() {
    let db = Db::new();
    let (table, _) = rows(&db, 500);
    let mut txn = db.begin();
    let mut key_of = |id: i64| {
        let mut row = Row::new();
        assert!(txn.get(&table, &[id.into()], &mut row).unwrap());
        row.key().to_vec()
    };
    let keys: Vec<Vec<u8>> = (0..500).map(&mut key_of).collect();
    let (from, to) = ([100i64.into()], [400i64.into()]);
    let range = Range { lower: Bound::Included(&from), upper: Bound::Included(&to) };
    for direction in [Direction::Forward, Direction::Backward] {
        let mut scan = txn.scan(&table, range, direction).unwrap();
        let mut row = Row::new();
        for step in 0..60usize {
            let at = step * 173 % 500;
            scan.resume_after(&keys[at]).unwrap();
            let mut wanted: Vec<usize> = match direction {
                Direction::Forward => (at + 1..500).collect(),
                Direction::Backward => (0..at).rev().collect(),
            };
            wanted.retain(|id| (100..=400).contains(id));
            // Every other time it stops part-way.
            let take = if step % 2 == 0 { usize::MAX } else { 7 };
            for id in wanted.iter().take(take) {
                assert!(scan.next(&mut row).unwrap());
                assert_eq!(row.key(), keys[*id], "{direction:?} behind {at}");
            }
            if take == usize::MAX {
                assert!(!scan.next(&mut row).unwrap());
                assert!(!scan.next(&mut row).unwrap(), "the end stays");
            }
        }
    }
    // A range of one key.
    let one = [200i64.into()];
    for direction in [Direction::Forward, Direction::Backward] {
        let mut scan = txn.scan(&table, Range::prefix(&one), direction).unwrap();
        let mut row = Row::new();
        let in_front = if direction == Direction::Forward { 3 } else { 300 };
        for _ in 0..2 {
            assert!(scan.next(&mut row).unwrap() && !scan.next(&mut row).unwrap());
            scan.resume_after(&keys[200]).unwrap();
            assert!(!scan.next(&mut row).unwrap());
            scan.resume_after(&keys[in_front]).unwrap();
        }
    }
}

/// A plain scan continues behind any row too, and ends when it is cancelled on its way.
#[test]
fn plain_scans_continue_and_are_cancelled() {
    let db = Db::new();
    let (table, _) = rows(&db, 3000);
    for (direction, rest) in [(Direction::Forward, 2000), (Direction::Backward, 999)] {
        let mut txn = db.begin();
        let mut row = Row::new();
        assert!(txn.get(&table, &[999i64.into()], &mut row).unwrap());
        let mut scan = txn.scan(&table, Range::ALL, direction).unwrap();
        scan.resume_after(row.key()).unwrap();
        let mut count = 0;
        while scan.next(&mut row).unwrap() {
            count += 1;
        }
        assert_eq!(count, rest);
    }
    let mut old = db.begin();
    old.take_snapshot().unwrap();
    let mut txn = db.begin();
    for id in 0..3000i64 {
        assert!(txn.delete(&table, &[id.into()]).unwrap());
    }
    commit(txn);
    let mut txn = db.begin();
    let mut scan = txn.scan(&table, Range::ALL, Direction::Forward).unwrap();
    txn.handle().cancel();
    let error = scan.next(&mut Row::new()).unwrap_err();
    assert_eq!(error.code(), Code::StatementCancelled);
    drop(old);
}

/// Rows that the transaction inserts after a scan was opened are not returned by it, in any
/// direction: a scan that moves its rows ahead ends. Rows that it changes are returned with their
/// changes.
#[test]
fn a_scan_does_not_return_rows_inserted_after_its_start() {
    let db = Db::new();
    let (table, _) = rows(&db, 100);
    let by_a = table.layout().index("by_a").unwrap();
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let mut txn = db.begin_at(isolation);
        // Its own earlier rows are returned.
        txn.insert(&table, &row_values(100, 3, None, None)).unwrap();
        let mut scan = txn.locked_scan(&table, Range::ALL, Direction::Forward, EXCLUSIVE).unwrap();
        let (mut row, mut moved) = (Row::new(), Vec::new());
        while scan.next(&mut row).unwrap() {
            let id = id_of(&row);
            assert!(txn.update(&table, &[id.into()], &[(0, (id + 1000).into())]).unwrap());
            moved.push(id);
            assert!(moved.len() < 200, "it meets what it moves");
        }
        assert_eq!(moved, (0..=100).collect::<Vec<_>>());
        let mut scan = txn.locked_scan(&table, Range::ALL, Direction::Forward, EXCLUSIVE).unwrap();
        assert!(scan.next(&mut row).unwrap());
        txn.update(&table, &[1050i64.into()], &[(1, 77i64.into())]).unwrap();
        let ids = all(&mut scan);
        assert_eq!(ids, (1001..=1100).collect::<Vec<_>>());

        let mut scan =
            txn.locked_index_scan(&table, by_a, Range::ALL, Direction::Forward, EXCLUSIVE).unwrap();
        let mut raised = 0;
        while scan.next(&mut row).unwrap() {
            let (id, ValueRef::Int(a)) = (id_of(&row), row.value(1).unwrap()) else { panic!() };
            txn.update(&table, &[id.into()], &[(1, (a + 1000).into())]).unwrap();
            raised += 1;
            assert!(raised < 200, "it meets what it moves");
        }
        assert_eq!(raised, 101);
        check_indexes(&mut txn, &table);
        txn.rollback().unwrap();
    }
}

/// A scan of a transaction that has ended returns no rows, though a range lock covered them.
#[test]
fn a_scan_returns_no_row_after_its_transactions_end() {
    let db = Db::new();
    let (table, _) = rows(&db, 3);
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let mut txn = db.begin_at(isolation);
        let mut scan = txn.locked_scan(&table, Range::ALL, Direction::Forward, EXCLUSIVE).unwrap();
        let mut row = Row::new();
        assert!(scan.next(&mut row).unwrap());
        commit(txn);
        assert_eq!(scan.next(&mut row).unwrap_err().code(), Code::TxnEnded);
    }
}

/// A row that lost the key of its entry before it was locked is unlocked again.
#[test]
fn rows_that_lost_their_key_are_unlocked() {
    let db = Db::new();
    let (table, _) = rows(&db, 200);
    let by_a = table.layout().index("by_a").unwrap();
    let mut txn = db.begin();
    let key = [ValueRef::Int(0)];
    let range = Range::prefix(&key);
    let mut scan =
        txn.locked_index_scan(&table, by_a, range, Direction::Forward, EXCLUSIVE).unwrap();
    let mut row = Row::new();
    assert!(scan.next(&mut row).unwrap());
    let mut other = db.begin();
    other.set_lock_wait(Duration::from_millis(10));
    assert!(other.update(&table, &[100i64.into()], &[(1, 5i64.into())]).unwrap());
    commit(other);
    assert_eq!(all(&mut scan).len(), 18);
    assert_eq!(txn.handle().locked_rows(), 19);
    let mut other = db.begin();
    other.set_lock_wait(Duration::from_millis(10));
    assert!(other.update(&table, &[100i64.into()], &[(1, 6i64.into())]).unwrap());
}

/// A lock that was raised since the scan took it is neither released nor lowered to that of a
/// range.
#[test]
fn locks_raised_during_a_scan_are_kept() {
    let db = Db::new();
    let (table, _) = rows(&db, 3000);
    let shared = Locking { mode: Mode::Shared, wait: LockWait::Wait };
    let mut txn = db.begin_at(Isolation::ReadCommitted);
    let mut scan = txn.locked_scan(&table, Range::ALL, Direction::Forward, shared).unwrap();
    let mut row = Row::new();
    let raise = |txn: &mut TableTxn, id: i64| {
        let mut row = Row::new();
        let (mode, wait) = (Mode::Exclusive, LockWait::Wait);
        assert!(txn.get_locked(&table, &[id.into()], mode, wait, &mut row).unwrap());
    };
    assert!(scan.next(&mut row).unwrap());
    raise(&mut txn, 0);
    scan.unlock();
    for _ in 0..10 {
        assert!(scan.next(&mut row).unwrap());
    }
    raise(&mut txn, 7);
    assert_eq!(all(&mut scan).len(), 2989);
    assert!(txn.handle().locked_rows() < 1100);
    let mut other = db.begin();
    for (id, free) in [(0i64, false), (7, false), (8, true)] {
        let (mode, wait) = (Mode::Shared, LockWait::NoWait);
        let got = other.get_locked(&table, &[id.into()], mode, wait, &mut row);
        assert_eq!(
            got.map_err(|e| e.code()),
            if free { Ok(true) } else { Err(Code::LockNotAvailable) }
        );
    }
}

/// A bound that extends into the clustered key leaves no room for phantoms within one key.
#[test]
fn the_lock_of_a_range_covers_whole_keys() {
    let db = Db::new();
    let (table, _) = rows(&db, 20);
    let by_a = table.layout().index("by_a").unwrap();
    let (low, high) = ([ValueRef::Int(3), ValueRef::Int(9)], [ValueRef::Int(7), ValueRef::Int(1)]);
    use std::ops::Bound::{Excluded, Included};
    for (lower, upper) in
        [(Included(&low[..]), Included(&high[..])), (Excluded(&low[..]), Excluded(&high[..]))]
    {
        let range = Range { lower, upper };
        let mut reader = db.begin_at(Isolation::Serializable);
        let mut scan =
            reader.locked_index_scan(&table, by_a, range, Direction::Forward, EXCLUSIVE).unwrap();
        let before = all(&mut scan);
        for (id, a, blocked) in [(110, 3, true), (-1, 7, true), (110, 2, false), (110, 8, false)] {
            let mut writer = db.begin();
            writer.set_lock_wait(Duration::from_millis(10));
            let written = writer.insert(&table, &row_values(id, a, None, None));
            assert_eq!(written.is_err(), blocked, "({id}, {a})");
            writer.rollback().unwrap();
        }
        let mut scan =
            reader.locked_index_scan(&table, by_a, range, Direction::Forward, EXCLUSIVE).unwrap();
        assert_eq!(all(&mut scan), before);
    }
}

/// A scan sees concurrent changes: inserts ahead are returned, deleted rows are not.
#[test]
fn a_locking_scan_reads_current_rows() {
    let db = Db::new();
    let (table, _) = rows(&db, 10);
    let mut txn = db.begin();
    let mut scan = txn.locked_scan(&table, Range::ALL, Direction::Forward, EXCLUSIVE).unwrap();
    let mut row = Row::new();
    assert!(scan.next(&mut row).unwrap());
    let mut other = db.begin();
    other.insert(&table, &row_values(100, 1, None, Some(100))).unwrap();
    assert!(other.delete(&table, &[5i64.into()]).unwrap());
    commit(other);
    assert_eq!(all(&mut scan), [1, 2, 3, 4, 6, 7, 8, 9, 100]);
}

/// A lock that is granted at the end of the row's deletion is released again where missing keys are
/// not locked: an insert of the key does not wait for the end of the reader.
#[test]
fn a_row_deleted_during_the_wait_for_it_is_not_locked() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let db = Db::new();
        let (table, _) = rows(&db, 3);
        let lock = |txn: &mut TableTxn| {
            let (mode, wait) = (Mode::Exclusive, LockWait::Wait);
            txn.get_locked(&table, &[1i64.into()], mode, wait, &mut Row::new()).unwrap()
        };
        let mut deleter = db.begin();
        assert!(lock(&mut deleter));
        let mut reader = db.begin_at(isolation);
        std::thread::scope(|s| {
            let read = s.spawn(|| lock(&mut reader));
            while db.store.txns.waiting() == 0 && !read.is_finished() {
                std::thread::yield_now();
            }
            assert!(deleter.delete(&table, &[1i64.into()]).unwrap());
            commit(deleter);
            assert!(!read.join().unwrap(), "it is gone");
        });
        // A missing key stays locked at the other level.
        let is_locked = isolation == Isolation::RepeatableRead;
        assert_eq!(reader.handle().locked_rows(), usize::from(is_locked));
        let mut other = db.begin();
        other.set_lock_wait(Duration::ZERO);
        let inserted = other.insert(&table, &row_values(1, 1, None, Some(1)));
        let waited = inserted.map(drop).map_err(|e| e.code());
        let wanted = if is_locked { Err(Code::LockWaitTimeout) } else { Ok(()) };
        assert_eq!(waited, wanted, "{isolation:?}");
    }
}

/// A peek returns the committed version without a lock, once; then the scan waits for the row, or
/// skips it.
#[test]
fn peeking_returns_the_committed_version_of_locked_rows() {
    let db = Db::new();
    let (table, _) = rows(&db, 3);
    let mut holder = db.begin();
    holder.update(&table, &[1i64.into()], &[(1, 77i64.into())]).unwrap();
    let mut txn = db.begin_at(Isolation::ReadCommitted);
    txn.set_lock_wait(Duration::from_millis(20));
    let mut scan = txn.locked_scan(&table, Range::ALL, Direction::Forward, EXCLUSIVE).unwrap();
    let mut row = Row::new();
    assert_eq!(scan.next_or_peek(&mut row).unwrap(), Given::Locked);
    assert_eq!(txn.handle().locked_rows(), 1);
    scan.unlock();
    assert_eq!(txn.handle().locked_rows(), 0);
    assert_eq!(scan.next_or_peek(&mut row).unwrap(), Given::Peeked);
    assert_eq!((id_of(&row), row.value(1).unwrap()), (1, ValueRef::Int(7)));
    // The row matches: the scan waits for it.
    let error = scan.next_or_peek(&mut row).unwrap_err();
    assert_eq!(error.code(), Code::LockWaitTimeout);
    let mut scan = txn.locked_scan(&table, Range::ALL, Direction::Forward, EXCLUSIVE).unwrap();
    scan.next_or_peek(&mut row).unwrap();
    assert_eq!(scan.next_or_peek(&mut row).unwrap(), Given::Peeked);
    // It does not match: the scan continues with the next one.
    scan.unlock();
    assert_eq!(scan.next_or_peek(&mut row).unwrap(), Given::Locked);
    assert_eq!(id_of(&row), 2);
    commit(holder);
    let mut scan = txn.locked_scan(&table, Range::ALL, Direction::Backward, EXCLUSIVE).unwrap();
    assert_eq!(all(&mut scan), [2, 1, 0]);
}

/// The locks of a long scan take bounded memory, and still exclude others.
#[test]
fn many_row_locks_escalate_to_range_locks() {
    let db = Db::new();
    let (table, _) = rows(&db, 6000);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut txn = db.begin();
        let mut scan = txn.locked_scan(&table, Range::ALL, direction, EXCLUSIVE).unwrap();
        assert_eq!(all(&mut scan).len(), 6000);
        assert!(txn.handle().locked_rows() <= 1100, "{}", txn.handle().locked_rows());
        let mut other = db.begin();
        for id in [0i64, 1, 1024, 1025, 3000, 5998, 5999] {
            let mut row = Row::new();
            let locked =
                other.get_locked(&table, &[id.into()], Mode::Shared, LockWait::NoWait, &mut row);
            assert_eq!(locked.unwrap_err().code(), Code::LockNotAvailable, "row {id}");
        }
        txn.rollback().unwrap();
        assert!(other.update(&table, &[3000i64.into()], &[(1, 5i64.into())]).unwrap());
    }
}

/// A unique key that is absent stays so, from REPEATABLE READ on.
#[test]
fn absent_keys_are_locked() {
    let db = Db::new();
    let (table, _) = rows(&db, 3);
    for (isolation, held) in [(Isolation::ReadCommitted, false), (Isolation::RepeatableRead, true)]
    {
        let mut txn = db.begin_at(isolation);
        let key = [ValueRef::Int(50)];
        let range = Range::prefix(&key);
        let mut scan = txn.locked_scan(&table, range, Direction::Forward, EXCLUSIVE).unwrap();
        assert!(!scan.next(&mut Row::new()).unwrap());
        let mut other = db.begin();
        other.set_lock_wait(Duration::from_millis(10));
        let inserted = other.insert(&table, &row_values(50, 1, None, Some(50)));
        assert_eq!(inserted.err().map(|e| e.code()), held.then_some(Code::LockWaitTimeout));
        other.rollback().unwrap();
    }
}

/// A scan that skips rows locked by others locks no key that does not exist, and does not wait for
/// locks on such keys. At SERIALIZABLE it locks no range.
#[test]
fn a_scan_that_skips_locked_rows_locks_no_absent_keys() {
    let db = Db::new();
    let (table, _) = rows(&db, 3);
    let hidden = TableSpec::new()
        .column(ColumnSpec::new("k", ColumnType::Bytes { max: 3000 }))
        .primary_key(&["k"]);
    let hidden = db.store.create_table("hidden", &hidden).unwrap();
    assert!(hidden.layout().key.is_empty());
    let by_c = table.layout().index("by_c").unwrap();
    let skip = Locking { wait: LockWait::Skip, ..EXCLUSIVE };
    let (key, name) = ([ValueRef::Int(50)], [ValueRef::Bytes(b"name")]);
    let (range, forward) = (Range::prefix(&key), Direction::Forward);
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let mut txn = db.begin_at(isolation);
        let mut row = Row::new();
        let mut look = |txn: &mut TableTxn| {
            let mut scan = txn.locked_scan(&table, range, forward, skip).unwrap();
            assert!(!scan.next(&mut row).unwrap());
            let mut scan = txn.locked_index_scan(&table, by_c, range, forward, skip).unwrap();
            assert!(!scan.next(&mut row).unwrap());
            let mut scan = txn.locked_scan(&table, Range::from(&key), forward, skip).unwrap();
            assert!(!scan.next(&mut row).unwrap());
            let (mode, wait) = (skip.mode, skip.wait);
            assert!(!txn.get_locked(&table, &key, mode, wait, &mut row).unwrap());
            assert!(!txn.get_locked(&hidden, &name, mode, wait, &mut row).unwrap());
        };
        txn.set_lock_wait(Duration::from_millis(10));
        look(&mut txn);
        let mut other = db.begin();
        other.set_lock_wait(Duration::from_millis(10));
        other.insert(&table, &row_values(50, 1, None, Some(50))).unwrap();
        other.insert(&hidden, &name).unwrap();
        look(&mut txn);
        other.rollback().unwrap();
        assert_eq!(db.store.txns.lock_bytes(), 0);
    }
}

/// At READ COMMITTED a statement of several reads has one snapshot, which causes no conflicts.
#[test]
fn a_statement_has_one_snapshot_at_read_committed() {
    let db = Db::new();
    let (table, _) = rows(&db, 3);
    let mut txn = db.begin_at(Isolation::ReadCommitted);
    let read = |txn: &mut TableTxn| {
        let mut row = Row::new();
        assert!(txn.get(&table, &[1i64.into()], &mut row).unwrap());
        match row.value(1).unwrap() {
            ValueRef::Int(a) => a,
            other => panic!("{other:?}"),
        }
    };
    let set = |a: i64| {
        let mut other = db.begin();
        assert!(other.update(&table, &[1i64.into()], &[(1, a.into())]).unwrap());
        commit(other);
    };
    txn.begin_statement();
    assert_eq!(read(&mut txn), 7);
    set(70);
    assert_eq!(read(&mut txn), 7);
    assert!(txn.update(&table, &[1i64.into()], &[(1, 71i64.into())]).unwrap());
    txn.end_statement();
    assert_eq!(read(&mut txn), 71);
    commit(txn);
    let mut txn = db.begin_at(Isolation::ReadCommitted);
    assert_eq!(read(&mut txn), 71);
    set(72);
    assert_eq!(read(&mut txn), 72);
}

/// A cancelled statement fails; the next one of the transaction does not.
#[test]
fn a_cancellation_ends_with_its_statement() {
    let db = Db::new();
    let (table, _) = rows(&db, 3);
    let mut txn = db.begin();
    txn.begin_statement();
    txn.handle().cancel();
    let mut scan = txn.locked_scan(&table, Range::ALL, Direction::Forward, EXCLUSIVE).unwrap();
    assert_eq!(scan.next(&mut Row::new()).unwrap_err().code(), Code::StatementCancelled);
    txn.begin_statement();
    let mut scan = txn.locked_scan(&table, Range::ALL, Direction::Forward, EXCLUSIVE).unwrap();
    assert_eq!(all(&mut scan), [0, 1, 2]);
}

/// A decision made before the table's use is handed over leaves no use behind.
#[test]
fn a_decision_before_the_use_is_handed_over_leaves_no_use() {
    let db = Db::new();
    let (table, _) = rows(&db, 3);
    for commits in [true, false] {
        let mut txn = db.begin();
        txn.update(&table, &[1i64.into()], &[(1, 5i64.into())]).unwrap();
        let inner = txn.handle();
        assert!(db.store.txns.prepare(&inner, b"x").unwrap());
        // Another session decides here.
        match commits {
            true => db.store.commit_prepared_ordered(b"x").map(|_| ()).unwrap(),
            false => db.store.rollback_prepared(b"x", Durability::Sync).unwrap(),
        }
        let user = u64::MAX;
        let write = crate::table::Use::Write;
        table.enter(&db.store.rt, user, write, Duration::ZERO, &|| false).unwrap();
        db.store.keep_in_use(&inner, user, vec![table.clone()]);
        drop(txn);
        db.store.truncate_table("t").unwrap();
        commit_rows(&db, &table);
    }
    // Prepared without changes: there is nothing to decide.
    let mut txn = db.begin();
    assert!(!txn.prepare(b"y").unwrap());
    assert!(db.store.txns.prepared_xids().is_empty());
}

fn commit_rows(db: &Db, table: &Arc<Table>) {
    let mut txn = db.begin();
    txn.insert(table, &row_values(1, 1, None, Some(1))).unwrap();
    commit(txn);
}

/// Numbers of a series, for a caller that fills in the column; they never decrease.
#[test]
fn reserved_numbers_of_a_series_never_decrease() {
    let db = Db::new();
    let (table, _) = rows(&db, 0);
    let store = &db.store;
    let reserve = |offset, increment, wanted| {
        store.reserve_numbers(&table, (offset, increment), wanted).unwrap()
    };
    assert_eq!(reserve(1, 1, 1), 1);
    assert_eq!(reserve(1, 1, 3), 2);
    assert_eq!(reserve(1, 1, 1), 5);
    // 3, 13, 23, ...
    assert_eq!(reserve(3, 10, 2), 13);
    assert_eq!(reserve(3, 10, 1), 33);
    store.pass_number(&table, 40).unwrap();
    store.pass_number(&table, 20).unwrap();
    assert_eq!(store.next_auto(&table), 43);
    store.pass_number(&table, 50).unwrap();
    assert_eq!(reserve(1, 1, 1), 51);
    store.pass_number(&table, u64::MAX - 1).unwrap();
    let error = store.reserve_numbers(&table, (1, 1), 1).unwrap_err();
    assert_eq!(error.code(), Code::AutoIncrementExhausted);
    store.restart_numbers(&table, 7).unwrap();
    assert_eq!(store.reserve_numbers(&table, (1, 1), 1).unwrap(), 7);
    // A series of the caller's own: reserved, and returned unless others were given numbers.
    assert!(store.move_numbers(&table, (8, 1100)).unwrap());
    assert!(!store.move_numbers(&table, (8, 20)).unwrap());
    assert!(store.move_numbers(&table, (1100, 900)).unwrap());
    assert_eq!(store.next_auto(&table), 900);
    assert!(store.move_numbers(&table, (900, 50_000)).unwrap());
    assert!(table.auto.logged.load(std::sync::atomic::Ordering::SeqCst) >= 50_000);
}

/// A range of an index, or of the primary key, is locked at every level: others write no row in it,
/// and its holder does.
#[test]
fn ranges_are_locked_at_every_level() {
    let sizes = Sizes { lock_wait: Duration::from_millis(5), ..SMALL };
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable]
    {
        let db = Db::create(Arc::new(MemEnv::new()), sizes);
        let (table, _) = rows(&db, 20);
        let by_a = table.layout().index("by_a").unwrap();
        let (key, id) = ([ValueRef::Int(77)], [ValueRef::Int(500)]);
        let at = |key| Range { lower: Bound::Included(key), upper: Bound::Included(key) };
        let mut holder = db.begin_at(isolation);
        holder.lock_range(&table, Some(by_a), at(&key[..])).unwrap();
        holder.lock_range(&table, None, at(&id[..])).unwrap();
        let mut other = db.begin_at(Isolation::ReadCommitted);
        for (id, a) in [(100, 77), (500, 1)] {
            let refused = other.insert(&table, &row_values(id, a, None, None)).unwrap_err();
            assert_eq!(refused.code(), Code::LockWaitTimeout, "{isolation:?} {id}");
        }
        other.insert(&table, &row_values(101, 78, None, None)).unwrap();
        holder.insert(&table, &row_values(500, 77, None, None)).unwrap();
        commit(holder);
        other.insert(&table, &row_values(100, 77, None, None)).unwrap();
        commit(other);
    }
}

/// Plain reads of a SERIALIZABLE transaction lock nothing if the caller says which reads lock.
#[test]
fn reads_set_plain_in_a_serializable_transaction_lock_nothing() {
    let sizes = Sizes { lock_wait: Duration::from_millis(5), ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let (table, _) = rows(&db, 20);
    for plain in [false, true] {
        let mut reader = db.begin_at(Isolation::Serializable);
        if plain {
            reader.set_reads_plain();
        }
        let mut row = Row::new();
        assert!(reader.get(&table, &[1i64.into()], &mut row).unwrap());
        let key = row.key().to_vec();
        assert!(reader.get_by_key(&table, &key, &mut row).unwrap());
        let mut writer = db.begin_at(Isolation::ReadCommitted);
        let done = writer.update(&table, &[1i64.into()], &[(1, 99i64.into())]);
        assert_eq!(done.is_ok(), plain);
        drop(writer);
        drop(reader);
    }
}
