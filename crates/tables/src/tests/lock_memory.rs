//! The number of locks that statements of many rows keep, and the locks that remain when a change
//! is undone.

use super::*;
use evenkeel_base::Code;

const EXCLUSIVE: Locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };
const ROWS: i64 = 20_000;
/// Memory for some 500 locks; a transaction may have half of it.
const LOCK_BYTES: usize = 128 << 10;

/// Every second id exists; `a` has an order of its own.
fn rows(db: &Db, n: i64) -> Arc<Table> {
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    for id in 0..n {
        let a = id * 7_919 % n;
        txn.insert(&table, &row_values(2 * id, a, None, Some(id))).unwrap();
    }
    commit(txn);
    table
}

fn small_locks() -> (Db, Arc<Table>) {
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { frames: 4096, ..SMALL });
    let table = rows(&db, ROWS);
    db.store.txns.set_memory(32 << 20, LOCK_BYTES);
    (db, table)
}

fn id_of(row: &Row) -> i64 {
    match row.value(0).unwrap() {
        ValueRef::Int(id) => id,
        other => panic!("{other:?}"),
    }
}

/// Ids in the order of an index, each locked.
fn lock_by_index(txn: &mut TableTxn, table: &Arc<Table>) -> Vec<i64> {
    let by_a = table.layout().index("by_a").unwrap();
    let (all, forward) = (Range::ALL, Direction::Forward);
    let mut scan = txn.locked_index_scan(table, by_a, all, forward, EXCLUSIVE).unwrap();
    let (mut row, mut ids) = (Row::new(), Vec::new());
    while scan.next(&mut row).unwrap() {
        ids.push(id_of(&row));
    }
    assert_eq!(ids.len() as i64, ROWS);
    ids
}

fn lock(txn: &mut TableTxn, table: &Arc<Table>, id: i64, row: &mut Row) -> bool {
    txn.get_locked(table, &[id.into()], EXCLUSIVE.mode, EXCLUSIVE.wait, row).unwrap()
}

fn refused(db: &Db, table: &Arc<Table>, id: i64) -> bool {
    let mut other = db.begin();
    let (mode, wait) = (Mode::Shared, LockWait::NoWait);
    let got = other.get_locked(table, &[id.into()], mode, wait, &mut Row::new());
    got.is_err_and(|e| e.code() == Code::LockNotAvailable)
}

/// The statements, in the steps of a server, with the number of locks that each may leave.
#[test]
fn statements_of_many_rows_keep_few_locks() {
    type Work = fn(&mut TableTxn, &Arc<Table>);
    let reads_in_no_order: Work = |txn, table| drop(lock_by_index(txn, table));
    let changes_in_another_order: Work = |txn, table| {
        let ids = lock_by_index(txn, table);
        let mut row = Row::new();
        for id in ids {
            assert!(lock(txn, table, id, &mut row));
            assert!(txn.delete_read(table, &row).unwrap());
        }
    };
    let moves: Work = |txn, table| {
        let mut row = Row::new();
        for id in lock_by_index(txn, table) {
            assert!(lock(txn, table, id, &mut row));
            let new = id + 2 * ROWS;
            assert!(txn.update_read(table, &row, &[(0, new.into())]).unwrap());
        }
    };
    let locks_and_changes: Work = |txn, table| {
        let mut row = Row::new();
        for n in 0..ROWS {
            let id = n * 7_919 % ROWS * 2;
            assert!(lock(txn, table, id, &mut row));
            assert!(txn.update_read(table, &row, &[(1, (-id).into())]).unwrap());
            assert_eq!(txn.handle().locked_rows(), 0, "the stamp says it");
        }
    };
    for work in [reads_in_no_order, changes_in_another_order, moves, locks_and_changes] {
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let (db, table) = small_locks();
            let mut txn = db.begin_at(isolation);
            txn.begin_statement();
            work(&mut txn, &table);
            txn.end_statement();
            assert!(db.store.txns.lock_bytes() <= LOCK_BYTES / 2);
            assert!((0..ROWS).step_by(617).all(|n| refused(&db, &table, 2 * n)));
            // Others insert rows in between, and have memory for their own locks.
            let mut other = db.begin();
            other.insert(&table, &row_values(3, 5, None, None)).unwrap();
            assert!(lock(&mut other, &table, 3, &mut Row::new()));
            commit(other);
            txn.rollback().unwrap();
            assert_eq!(db.store.txns.lock_bytes(), 0);
        }
    }
}

/// How a change is undone alone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Undone {
    Statement,
    Savepoint,
}

/// A lock of an earlier statement remains when a later change of its row is undone; one that the
/// undone statement took may be released with it. For each kind of undo, change and path to the
/// row.
#[test]
fn locks_of_earlier_statements_outlive_a_change() {
    type Change = fn(&mut TableTxn, &Arc<Table>, i64, &Row);
    let update: Change = |txn, table, _, row| {
        assert!(txn.update_read(table, row, &[(1, 5i64.into())]).unwrap());
    };
    let delete: Change = |txn, table, _, row| assert!(txn.delete_read(table, row).unwrap());
    let moves: Change = |txn, table, id, row| {
        assert!(txn.update_read(table, row, &[(0, (id + 1001).into())]).unwrap());
    };
    let blind: Change = |txn, table, id, _| {
        assert!(txn.update(table, &[id.into()], &[(1, 6i64.into())]).unwrap());
    };
    for change in [update, delete, moves, blind] {
        for undone in [Undone::Statement, Undone::Savepoint] {
            let db = Db::new();
            let table = rows(&db, 100);
            let mut txn = db.begin_at(Isolation::ReadCommitted);
            let mut row = Row::new();
            txn.begin_statement();
            assert!(lock(&mut txn, &table, 10, &mut row));
            txn.end_statement();
            if undone == Undone::Savepoint {
                txn.savepoint("s").unwrap();
            }
            txn.begin_statement();
            for id in [10, 20] {
                assert!(lock(&mut txn, &table, id, &mut row));
                change(&mut txn, &table, id, &row);
            }
            txn.end_statement();
            // The row with the stamp needs no lock in addition.
            assert_eq!(txn.handle().locked_rows(), 1);
            assert!(refused(&db, &table, 10) && refused(&db, &table, 20));
            match undone {
                Undone::Statement => txn.rollback_statement().unwrap(),
                Undone::Savepoint => txn.rollback_to("s").unwrap(),
            }
            assert!(refused(&db, &table, 10), "{undone:?}");
            assert!(!refused(&db, &table, 20), "{undone:?}");
            let mut other = db.begin();
            other.set_lock_wait(Duration::ZERO);
            let late = other.update(&table, &[10i64.into()], &[(1, 7i64.into())]);
            assert_eq!(late.unwrap_err().code(), Code::LockWaitTimeout);
            drop(other);
            txn.rollback().unwrap();
            assert!(!refused(&db, &table, 10));
        }
    }
}

/// An operation that fails after its first half is undone alone: the row it was to move stays
/// locked, whichever statement locked it.
#[test]
fn a_failed_change_keeps_the_lock_of_its_row() {
    let db = Db::new();
    let table = rows(&db, 100);
    let mut txn = db.begin_at(Isolation::RepeatableRead);
    let mut row = Row::new();
    txn.begin_statement();
    assert!(lock(&mut txn, &table, 10, &mut row));
    let error = txn.update_read(&table, &row, &[(0, 20i64.into())]).unwrap_err();
    assert_eq!(error.code(), Code::DuplicateKey);
    assert!(refused(&db, &table, 10));
    txn.rollback().unwrap();
}
