//! Many transactions want one row: none waits twice for one change, none is overtaken, few give up.

use super::*;
use evenkeel_base::Code;
use evenkeel_base::metrics::Metric;
use std::sync::atomic::{AtomicUsize, Ordering};

const KEY: &[ValueRef<'static>] = &[ValueRef::Int(1)];
const LOCKED: Locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };

fn one_row(db: &Db) -> Arc<Table> {
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    txn.insert(&table, &row_values(1, 0, None, Some(1))).unwrap();
    commit(txn);
    table
}

fn a_of(row: &Row) -> i64 {
    match row.value(1).unwrap() {
        ValueRef::Int(a) => a,
        other => panic!("{other:?}"),
    }
}

/// Like a server: finds the row, locks it, changes it and commits.
fn increment_read(txn: &mut TableTxn, table: &Arc<Table>) {
    let (range, direction) = (Range::prefix(KEY), Direction::Forward);
    let mut scan = txn.locked_scan(table, range, direction, LOCKED).unwrap();
    let mut row = Row::new();
    assert!(scan.next(&mut row).unwrap());
    let a = a_of(&row) + 1;
    assert!(txn.update_read(table, &row, &[(1, a.into())]).unwrap());
    scan.unlock();
}

/// Changes the row without reading it, then reads the result.
fn change(txn: &mut TableTxn, table: &Arc<Table>) {
    assert!(txn.update(table, KEY, &[(2, ValueRef::Text("x"))]).unwrap());
    increment_read(txn, table);
}

fn upsert(txn: &mut TableTxn, table: &Arc<Table>) {
    let inserted =
        txn.upsert(table, &row_values(1, 0, None, Some(1)), &[(2, ValueRef::Text("y"))]).unwrap();
    assert!(!inserted);
    increment_read(txn, table);
}

/// Each change is applied and has waited at most once: a woken waiter has the row.
#[test]
fn each_change_of_a_hot_row_waits_once() {
    const THREADS: i64 = 8;
    const ROUNDS: i64 = 40;
    for work in [increment_read, change, upsert] {
        let db = Db::new();
        let table = one_row(&db);
        std::thread::scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mut txn = db.begin_at(Isolation::ReadCommitted);
                        work(&mut txn, &table);
                        txn.commit(Durability::Lazy).unwrap();
                    }
                });
            }
        });
        let mut row = Row::new();
        assert!(db.begin().get(&table, KEY, &mut row).unwrap());
        assert_eq!(a_of(&row), THREADS * ROUNDS);
        let waits = db.store.rt.metrics.get(Metric::LockWaits);
        assert!(waits <= (THREADS * ROUNDS) as u64, "{waits} waits");
        assert_eq!((db.store.txns.waiting(), db.store.txns.lock_bytes()), (0, 0));
    }
}

/// Of the transactions that share a row and then want to change it one continues; the others give
/// up once each. Readers do not get in between.
#[test]
fn transactions_that_read_and_then_write_give_up_once_each() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 25;
    let db = Db::new();
    let table = one_row(&db);
    let victims = AtomicUsize::new(0);
    let increment = || {
        let mut txn = db.begin_at(Isolation::Serializable);
        let mut row = Row::new();
        txn.get(&table, KEY, &mut row)?;
        let a = a_of(&row) + 1;
        txn.update(&table, KEY, &[(1, a.into())])?;
        txn.commit(Durability::Lazy)
    };
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                for _ in 0..ROUNDS {
                    while let Err(error) = increment() {
                        assert_eq!(error.code(), Code::DeadlockVictim);
                        victims.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let mut row = Row::new();
    assert!(db.begin().get(&table, KEY, &mut row).unwrap());
    assert_eq!(a_of(&row), (THREADS * ROUNDS) as i64);
    let victims = victims.load(Ordering::SeqCst);
    assert!(victims <= THREADS * ROUNDS * (THREADS - 1), "{victims} gave up");
}

/// A change that fails after its wait, and one that is rolled back, pass the row to the next
/// waiter.
#[test]
fn a_waiter_that_does_not_change_the_row_passes_it_on() {
    let db = Db::new();
    let table = one_row(&db);
    let mut other = db.begin();
    other.insert(&table, &row_values(2, 0, None, Some(2))).unwrap();
    commit(other);
    let mut holder = db.begin_at(Isolation::ReadCommitted);
    holder.update(&table, KEY, &[(1, 5i64.into())]).unwrap();
    let mut waiter = db.begin_at(Isolation::ReadCommitted);
    std::thread::scope(|s| {
        let failing = s.spawn(|| waiter.delete(&table, KEY).unwrap());
        while db.store.txns.waiting() < 1 {
            std::thread::yield_now();
        }
        holder.delete(&table, KEY).unwrap();
        commit(holder);
        assert!(!failing.join().unwrap(), "it is gone");
    });
    // The missing row has no owner.
    let mut third = db.begin_at(Isolation::ReadCommitted);
    third.set_lock_wait(Duration::ZERO);
    third.insert(&table, &row_values(1, 9, None, Some(9))).unwrap();
    commit(third);
    // Changed after a savepoint, waited for, rolled back.
    let mut writer = db.begin_at(Isolation::ReadCommitted);
    writer.update(&table, &[2i64.into()], &[(1, 1i64.into())]).unwrap();
    writer.savepoint("s").unwrap();
    writer.update(&table, KEY, &[(1, 1i64.into())]).unwrap();
    std::thread::scope(|s| {
        let next = s.spawn(|| {
            let mut txn = db.begin_at(Isolation::ReadCommitted);
            change(&mut txn, &table);
            commit(txn)
        });
        while db.store.txns.waiting() < 1 {
            std::thread::yield_now();
        }
        writer.rollback_to("s").unwrap();
        // Before the writer ends.
        next.join().unwrap();
    });
    commit(writer);
    commit(waiter);
    assert_eq!(db.store.txns.lock_bytes(), 0);
}
