//! Visibility, waits and conflicts between transactions at each isolation level.

use super::*;
use evenkeel_base::{Code, Kind};
use std::sync::mpsc;

fn two_rows(db: &Db) -> Arc<Table> {
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    txn.insert(&table, &row_values(1, 10, None, Some(1))).unwrap();
    txn.insert(&table, &row_values(2, 20, None, Some(2))).unwrap();
    commit(txn);
    table
}

fn a_of(txn: &mut TableTxn, table: &Arc<Table>, id: i64) -> i64 {
    let mut row = Row::new();
    assert!(txn.get(table, &[id.into()], &mut row).unwrap());
    match row.value(1).unwrap() {
        ValueRef::Int(a) => a,
        other => panic!("{other:?}"),
    }
}

fn set_a(txn: &mut TableTxn, table: &Arc<Table>, id: i64, a: i64) -> Result<bool> {
    txn.update(table, &[id.into()], &[(1, a.into())])
}

#[test]
fn each_level_reads_at_its_own_snapshot() {
    let db = Db::new();
    let table = two_rows(&db);
    let mut writer = db.begin();
    let mut dirty = db.begin_at(Isolation::ReadUncommitted);
    let mut committed = db.begin_at(Isolation::ReadCommitted);
    let mut repeatable = db.begin();
    assert_eq!(a_of(&mut repeatable, &table, 1), 10);
    set_a(&mut writer, &table, 1, 11).unwrap();
    let by_a = table.layout().index("by_a").unwrap();
    let eleven = [ValueRef::Int(11)];
    let seen = |txn: &mut TableTxn| {
        let range = Range::prefix(&eleven);
        let mut scan = txn.index_scan(&table, by_a, range, Direction::Forward, true).unwrap();
        scan.next(&mut Row::new()).unwrap()
    };
    assert_eq!(a_of(&mut dirty, &table, 1), 11);
    assert_eq!(a_of(&mut committed, &table, 1), 10);
    assert!(!seen(&mut committed) && !seen(&mut repeatable) && seen(&mut writer));
    commit(writer);
    assert_eq!(a_of(&mut committed, &table, 1), 11);
    assert_eq!(a_of(&mut repeatable, &table, 1), 10);
    assert!(seen(&mut committed) && !seen(&mut repeatable));
    // First updater wins: it holds a snapshot and the row is younger.
    let error = set_a(&mut repeatable, &table, 1, 12).unwrap_err();
    assert_eq!((error.code(), error.kind()), (Code::RowChanged, Kind::Conflict));
    let mut row = Row::new();
    let locked =
        repeatable.get_locked(&table, &[1i64.into()], Mode::Shared, LockWait::Wait, &mut row);
    assert_eq!(locked.unwrap_err().code(), Code::RowChanged);
    // Without a snapshot there is no conflict.
    set_a(&mut committed, &table, 1, 13).unwrap();
    commit(committed);
    let mut late = db.begin();
    set_a(&mut late, &table, 1, 14).unwrap();
    assert_eq!(a_of(&mut late, &table, 1), 14);
}

#[test]
fn a_row_deleted_after_the_snapshot_is_a_conflict() {
    let db = Db::new();
    let table = two_rows(&db);
    let mut old = db.begin();
    assert_eq!(a_of(&mut old, &table, 2), 20);
    let mut other = db.begin();
    other.delete(&table, &[1i64.into()]).unwrap();
    commit(other);
    assert_eq!(a_of(&mut old, &table, 1), 10);
    assert_eq!(set_a(&mut old, &table, 1, 5).unwrap_err().code(), Code::RowChanged);
    assert_eq!(old.delete(&table, &[1i64.into()]).unwrap_err().code(), Code::RowChanged);
    check_indexes(&mut old, &table);
}

#[test]
fn writers_wait_for_each_other() {
    let db = Db::new();
    let table = two_rows(&db);
    for rollback in [false, true] {
        let mut first = db.begin();
        set_a(&mut first, &table, 1, 50).unwrap();
        first.insert(&table, &row_values(9, 1, None, Some(9))).unwrap();
        let (sent, got) = mpsc::channel();
        std::thread::scope(|scope| {
            let (db, table) = (&db, &table);
            for what in 0..3 {
                let sent = sent.clone();
                scope.spawn(move || {
                    let mut txn = db.begin();
                    let done = match what {
                        0 => set_a(&mut txn, table, 1, 60).map(|_| ()),
                        1 => txn.insert(table, &row_values(9, 2, None, None)).map(|_| ()),
                        _ => txn.insert(table, &row_values(10, 2, None, Some(9))).map(|_| ()),
                    };
                    sent.send((what, done.map_err(|e| e.code()))).unwrap();
                });
            }
            while db.store.txns.waiting() < 3 {
                std::thread::yield_now();
            }
            assert!(got.try_recv().is_err(), "nobody went on");
            if rollback {
                first.rollback().unwrap();
            } else {
                commit(first);
            }
            let mut results: Vec<_> = (0..3).map(|_| got.recv().unwrap()).collect();
            results.sort_by_key(|r| r.0);
            let duplicate = if rollback { Ok(()) } else { Err(Code::DuplicateKey) };
            assert_eq!(results, [(0, Ok(())), (1, duplicate), (2, duplicate)]);
        });
        check_indexes(&mut db.begin(), &table);
        let mut txn = db.begin();
        txn.delete(&table, &[9i64.into()]).unwrap();
        commit(txn);
    }
}

/// A table clustered on a hidden id: its primary key is found in an index, which a plain read reads
/// at its snapshot without waiting, whatever has changed the key since.
#[test]
fn a_long_primary_key_is_read_at_the_snapshot() {
    let db = Db::new();
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Text { max: 2_000 }))
        .column(ColumnSpec::new("a", ColumnType::Int64))
        .primary_key(&["id"]);
    let table = db.store.create_table("long", &spec).unwrap();
    let key = [ValueRef::Text("k")];
    let put = |a: i64| {
        let mut txn = db.begin();
        txn.delete(&table, &key).unwrap();
        txn.insert(&table, &[key[0], a.into()]).unwrap();
        commit(txn);
    };
    let read = |txn: &mut TableTxn| {
        let mut row = Row::new();
        let found = txn.get(&table, &key, &mut row).unwrap();
        found.then(|| row.value(1).unwrap().to_owned())
    };
    put(1);
    let mut old = db.begin();
    assert_eq!(read(&mut old), Some(Value::Int(1)));
    put(2);
    assert_eq!(read(&mut old), Some(Value::Int(1)), "another row has the key now");
    let mut other = db.begin();
    other.delete(&table, &key).unwrap();
    assert_eq!(read(&mut db.begin()), Some(Value::Int(2)), "no wait for who deletes it");
    let mut row = Row::new();
    let refused = db.begin().get_locked(&table, &key, Mode::Shared, LockWait::NoWait, &mut row);
    assert_eq!(refused.map_err(|e| e.code()), Err(Code::LockNotAvailable));
    commit(other);
    assert_eq!(read(&mut db.begin()), None);
    assert_eq!(read(&mut old), Some(Value::Int(1)), "nobody has it now");
    let gone = old.update(&table, &key, &[(1, 5i64.into())]).map_err(|e| e.code());
    assert_eq!(gone, Err(Code::RowChanged));
}

/// A transaction that waits for a row reads it in its format after the wait, which may be newer
/// than the wait.
#[test]
fn a_lock_waiter_sees_a_column_added_during_its_wait() {
    let db = Db::new();
    let table = two_rows(&db);
    let mut txn = db.begin();
    txn.insert(&table, &row_values(3, 30, None, Some(3))).unwrap();
    txn.insert(&table, &row_values(4, 40, None, Some(4))).unwrap();
    commit(txn);
    let d = ColumnSpec::new("d", ColumnType::Int32).default_value(7i64);
    let mut first = db.begin();
    for id in [1, 3, 4] {
        set_a(&mut first, &table, id, 50).unwrap();
    }
    std::thread::scope(|scope| {
        let (db, table) = (&db, &table);
        let wait = |by_index: bool| {
            let mut txn = db.begin();
            let mut row = Row::new();
            let locking = Locking { mode: Mode::Shared, wait: LockWait::Wait };
            let mut keep = |found: &Row| {
                row = found.clone();
                Ok(true)
            };
            let (all, forward) = (Range::ALL, Direction::Forward);
            match by_index {
                true => txn.locked_index_scan(table, 0, all, forward, locking),
                false => txn.locked_scan(table, all, forward, locking),
            }
            .and_then(|scan| scan.each(&mut keep))
            .unwrap();
            row.values().unwrap().len()
        };
        let waiters = [scope.spawn(move || wait(false)), scope.spawn(move || wait(true))];
        let update = scope.spawn(move || set_a(&mut db.begin(), table, 3, 60).unwrap());
        let delete = scope.spawn(move || db.begin().delete(table, &[4i64.into()]).unwrap());
        while db.store.txns.waiting() < 4 {
            std::thread::yield_now();
        }
        db.store.add_column("t", &d).unwrap();
        for id in [1i64, 2, 3, 4] {
            let change = [(table.layout().column("d").unwrap(), ValueRef::Int(8))];
            first.update(table, &[id.into()], &change).unwrap();
        }
        commit(first);
        assert_eq!(waiters.map(|w| w.join().unwrap()), [5, 5]);
        assert!(update.join().unwrap() && delete.join().unwrap());
    });
}

#[test]
fn a_deadlock_is_found_and_the_victim_is_rolled_back() {
    let db = Db::new();
    let table = two_rows(&db);
    let mut first = db.begin();
    set_a(&mut first, &table, 1, 100).unwrap();
    std::thread::scope(|scope| {
        let (db, table) = (&db, &table);
        let other = scope.spawn(move || {
            let mut second = db.begin();
            set_a(&mut second, table, 2, 200).unwrap();
            let done = set_a(&mut second, table, 1, 201);
            (done.map_err(|e| e.kind()), second.is_ended())
        });
        while db.store.txns.waiting() < 1 {
            std::thread::yield_now();
        }
        let mine = set_a(&mut first, table, 2, 101).map_err(|e| e.kind());
        let mine = (mine, first.is_ended());
        // Lets the other transaction continue, whichever is the victim.
        drop(first);
        let other = other.join().unwrap();
        let (victim, winner) = if mine.1 { (mine, other) } else { (other, mine) };
        assert_eq!(victim, (Err(Kind::Deadlock), true));
        assert_eq!(winner.0, Ok(true));
    });
}

#[test]
fn locking_reads_wait_skip_and_refuse() {
    let db = Db::new();
    let table = two_rows(&db);
    let mut first = db.begin();
    let mut row = Row::new();
    let one = [ValueRef::Int(1)];
    assert!(first.get_locked(&table, &one, Mode::Shared, LockWait::Wait, &mut row).unwrap());
    let mut second = db.begin();
    assert!(second.get_locked(&table, &one, Mode::Shared, LockWait::NoWait, &mut row).unwrap());
    let refused =
        second.get_locked(&table, &one, Mode::Exclusive, LockWait::NoWait, &mut row).unwrap_err();
    assert_eq!(refused.code(), Code::LockNotAvailable);
    let locking = Locking { mode: Mode::Exclusive, wait: LockWait::Skip };
    let ids = |txn: &mut TableTxn, by_index: bool| {
        let mut ids = Vec::new();
        let mut f = |row: &Row| {
            ids.push(row.value(0)?.to_owned());
            Ok(true)
        };
        let (range, forward) = (Range::ALL, Direction::Forward);
        let by_a = table.layout().index("by_a").unwrap();
        let scan = match by_index {
            true => txn.locked_index_scan(&table, by_a, range, forward, locking),
            false => txn.locked_scan(&table, range, forward, locking),
        };
        scan.unwrap().each(&mut f).unwrap();
        ids
    };
    let mut third = db.begin();
    assert_eq!(ids(&mut third, false), [Value::Int(2)]);
    assert_eq!(ids(&mut third, true), [Value::Int(2)]);
    drop((first, second));
    assert_eq!(ids(&mut third, true), [Value::Int(1), Value::Int(2)]);
    // Other transactions cannot write its locked rows.
    let mut fourth = db.begin();
    fourth.set_lock_wait(Duration::from_millis(20));
    assert_eq!(set_a(&mut fourth, &table, 1, 1).unwrap_err().kind(), Kind::LockTimeout);
}

#[test]
fn serializable_locks_ranges_and_absent_keys() {
    let db = Db::new();
    let table = two_rows(&db);
    let mut reader = db.begin_at(Isolation::Serializable);
    let mut row = Row::new();
    assert!(!reader.get(&table, &[5i64.into()], &mut row).unwrap());
    let mut writer = db.begin();
    writer.set_lock_wait(Duration::from_millis(20));
    let blocked = writer.insert(&table, &row_values(5, 1, None, None)).unwrap_err();
    assert_eq!(blocked.kind(), Kind::LockTimeout);
    writer.insert(&table, &row_values(6, 1, None, None)).unwrap();
    drop(writer);
    drop(reader);
    let locking = Locking { mode: Mode::Shared, wait: LockWait::Wait };
    for by_index in [false, true] {
        let mut reader = db.begin_at(Isolation::Serializable);
        let from = [ValueRef::Int(15)];
        let (range, forward) = (Range::from(&from), Direction::Forward);
        let by_a = table.layout().index("by_a").unwrap();
        let scan = match by_index {
            true => reader.locked_index_scan(&table, by_a, range, forward, locking),
            false => reader.locked_scan(&table, range, forward, locking),
        };
        scan.unwrap().each(&mut |_| Ok(true)).unwrap();
        let mut writer = db.begin();
        writer.set_lock_wait(Duration::from_millis(20));
        let inside = writer.insert(&table, &row_values(30, 30, None, None)).unwrap_err();
        assert_eq!(inside.kind(), Kind::LockTimeout, "by index: {by_index}");
        writer.insert(&table, &row_values(11, 11, None, None)).unwrap();
        drop(writer);
        check_indexes(&mut db.begin(), &table);
    }
}
