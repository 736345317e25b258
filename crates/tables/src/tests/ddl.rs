//! Schema changes: tables, columns, indexes built while writers continue.

use super::*;
use evenkeel_base::{Cause, Code, Kind};
use evenkeel_io::Rng;
use std::ops::Bound;
use std::sync::atomic::AtomicU64;

fn filled(db: &Db, name: &str, rows: i64) -> Arc<Table> {
    let mut spec = spec();
    spec.indexes.clear();
    let table = db.store.create_table(name, &spec).unwrap();
    let mut txn = db.begin();
    let values: Vec<[ValueRef<'_>; 4]> =
        (0..rows).map(|i| row_values(i, i % 10, Some("text"), Some(i))).collect();
    txn.insert_many(&table, values.iter().map(|v| &v[..])).unwrap();
    commit(txn);
    table
}

fn indexes() -> Vec<IndexSpec> {
    spec().indexes
}

#[test]
fn tables_are_created_dropped_and_renamed() {
    let db = Db::new();
    filled(&db, "one", 50);
    let exists = db.store.create_table("one", &spec()).err().unwrap();
    assert_eq!(exists.code(), Code::TableExists);
    db.store.rename_table("one", "two").unwrap();
    assert_eq!(db.store.table("one").err().unwrap().code(), Code::TableMissing);
    let table = db.store.table("two").unwrap();
    assert_eq!(all_rows(&mut db.begin(), &table, Direction::Forward).len(), 50);
    db.store.truncate_table("two").unwrap();
    let mut txn = db.begin();
    assert!(all_rows(&mut txn, &table, Direction::Forward).is_empty());
    txn.insert(&table, &row_values(1, 1, None, None)).unwrap();
    commit(txn);
    check_indexes(&mut db.begin(), &table);
    db.store.drop_table("two").unwrap();
    assert_eq!(db.store.table_names(), Vec::<String>::new());
    let gone = db.begin().insert(&table, &row_values(2, 1, None, None)).unwrap_err();
    assert_eq!(gone.code(), Code::TableMissing);
}

#[test]
fn a_table_in_use_is_not_dropped() {
    let sizes = Sizes { lock_wait: Duration::from_millis(30), ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let table = filled(&db, "t", 5);
    let mut user = db.begin();
    user.update(&table, &[1i64.into()], &[(1, 5i64.into())]).unwrap();
    assert_eq!(db.store.drop_table("t").unwrap_err().code(), Code::TableBusy);
    assert_eq!(db.store.truncate_table("t").unwrap_err().code(), Code::TableBusy);
    // It remains usable, for this transaction and for others.
    user.update(&table, &[2i64.into()], &[(1, 5i64.into())]).unwrap();
    db.begin().update(&table, &[3i64.into()], &[(1, 5i64.into())]).unwrap();
    commit(user);
    db.store.drop_table("t").unwrap();
}

/// Changes of the dropped table are lost with it, those of other tables are not, however the
/// transaction ends. A scan that meets a deadlock aborts its transaction, which learns of it later:
/// by then the table that it fills may be dropped.
#[test]
fn a_transaction_aborted_by_its_scan_drops_a_table_that_it_uses() {
    let db = Db::create(Arc::new(MemEnv::new()), SMALL);
    let other = filled(&db, "other", 5);
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut light = db.begin();
    let lock = |txn: &mut TableTxn, to: i64| {
        let upper = [ValueRef::Int(to)];
        let range = Range { lower: Bound::Unbounded, upper: Bound::Included(&upper) };
        let locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };
        let mut scan = txn.locked_scan(&other, range, Direction::Forward, locking)?;
        while scan.next(&mut Row::new())? {}
        Result::Ok(())
    };
    lock(&mut light, 0).unwrap();
    light.use_table(&table).unwrap();
    let mut heavy = db.begin();
    for id in 1..5i64 {
        heavy.update(&other, &[id.into()], &[(1, 7i64.into())]).unwrap();
    }
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| heavy.update(&other, &[0i64.into()], &[(1, 7i64.into())]));
        while db.store.txns.waiting() < 1 {
            std::thread::yield_now();
        }
        let error = lock(&mut light, 4).unwrap_err();
        assert_eq!(error.kind(), Kind::Deadlock, "{error}");
        let wait = SchemaWait { timeout: Some(Duration::from_millis(30)), ..SchemaWait::default() };
        light.drop_table("t", &wait).unwrap();
        assert!(waits.join().unwrap().unwrap());
    });
    assert_eq!(db.store.table_names(), ["other"]);
}

#[test]
fn a_transaction_drops_a_table_that_it_uses() {
    let sizes = Sizes { lock_wait: Duration::from_millis(30), ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let other = filled(&db, "other", 5);
    let wait = SchemaWait::default();
    let mut left = 5;
    for end in ["commit", "roll back", "to the savepoint", "prepare"] {
        let table = db.store.create_table("t", &spec()).unwrap();
        let mut txn = db.begin();
        txn.insert(&other, &row_values(100 + left, 1, None, None)).unwrap();
        txn.savepoint("s").unwrap();
        for id in 0..200 {
            txn.insert(&table, &row_values(id, 1, Some("text"), Some(id))).unwrap();
        }
        txn.delete(&table, &[3i64.into()]).unwrap();
        txn.update(&table, &[4i64.into()], &[(1, 5i64.into())]).unwrap();
        // Others wait for it, and it waits for others.
        assert_eq!(db.store.drop_table("t").unwrap_err().code(), Code::TableBusy);
        let mut reader = db.begin();
        assert_eq!(all_rows(&mut reader, &table, Direction::Forward).len(), 0);
        assert_eq!(txn.drop_table("t", &wait).unwrap_err().code(), Code::TableBusy);
        drop(reader);
        txn.drop_table("t", &wait).unwrap();
        let gone = txn.insert(&table, &row_values(500, 1, None, None)).unwrap_err();
        assert_eq!(gone.code(), Code::TableMissing, "{end}");
        let again = db.store.create_table("t", &spec()).unwrap();
        txn.insert(&again, &row_values(1, 1, None, None)).unwrap();
        match end {
            "commit" => {
                commit(txn);
            }
            "roll back" => txn.rollback().unwrap(),
            "to the savepoint" => {
                txn.rollback_to("s").unwrap();
                commit(txn);
            }
            _ => {
                assert!(txn.prepare(b"x").unwrap());
                drop(txn);
                db.store.commit_prepared(b"x", Durability::Sync).unwrap();
            }
        }
        left += i64::from(end != "roll back");
        let rows = i64::from(matches!(end, "commit" | "prepare"));
        assert_eq!(db.store.table_names(), ["other", "t"]);
        let mut after = db.begin();
        let there = |txn: &mut TableTxn, t| all_rows(txn, t, Direction::Forward).len() as i64;
        assert_eq!((there(&mut after, &other), there(&mut after, &again)), (left, rows), "{end}");
        check_indexes(&mut after, &again);
        drop(after);
        db.store.drop_table("t").unwrap();
    }
}

/// A transaction that has only read may leave the tables that it used: it keeps its snapshot.
#[test]
fn a_schema_change_does_not_wait_for_readers_that_left_the_table() {
    let sizes = Sizes { lock_wait: Duration::from_millis(30), ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let table = filled(&db, "t", 5);
    let index = &indexes()[0];
    db.store.add_indexes("t", &indexes()[..1], &BuildProgress::default()).unwrap();
    let mut reader = db.begin();
    let there = |txn: &mut TableTxn| all_rows(txn, &table, Direction::Forward).len();
    assert_eq!(there(&mut reader), 5);
    let busy = |done: Result<()>| assert_eq!(done.unwrap_err().code(), Code::TableBusy);
    busy(db.store.drop_index("t", &index.name));
    assert!(reader.leave_tables());
    db.store.drop_index("t", &index.name).unwrap();
    let mut writer = db.begin();
    writer.insert(&table, &row_values(100, 1, None, None)).unwrap();
    commit(writer);
    assert_eq!((there(&mut reader), there(&mut db.begin())), (5, 6));
    busy(db.store.truncate_table("t"));
    assert!(reader.leave_tables());
    db.store.truncate_table("t").unwrap();
    let read = reader.scan(&table, Range::ALL, Direction::Forward).err().unwrap();
    assert_eq!(read.code(), Code::TableTooNew);
    drop(reader);
    // A transaction that has changed or locked a row stays.
    for locks in [false, true] {
        let mut user = db.begin_at(Isolation::ReadCommitted);
        user.insert(&table, &row_values(1, 1, None, None)).unwrap();
        if locks {
            commit(user);
            user = db.begin_at(Isolation::ReadCommitted);
            let (key, mut row) = ([1i64.into()], Row::new());
            user.get_locked(&table, &key, Mode::Shared, LockWait::Wait, &mut row).unwrap();
        }
        assert!(!user.leave_tables());
        busy(db.store.truncate_table("t"));
        user.rollback().unwrap();
    }
}

/// A transaction may leave one table in which it changed nothing, whatever it changed elsewhere.
#[test]
fn a_transaction_leaves_a_table_that_it_only_read() {
    let sizes = Sizes { lock_wait: Duration::from_millis(30), ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let (read, changed) = (filled(&db, "read", 5), filled(&db, "changed", 5));
    let mut user = db.begin();
    user.insert(&changed, &row_values(100, 1, None, None)).unwrap();
    assert_eq!(all_rows(&mut user, &read, Direction::Forward).len(), 5);
    let busy = |done: Result<()>| assert_eq!(done.unwrap_err().code(), Code::TableBusy);
    busy(db.store.truncate_table("read"));
    user.leave_table(&read);
    user.leave_table(&changed);
    busy(db.store.truncate_table("changed"));
    // It uses the table again, and leaves it again.
    assert_eq!(all_rows(&mut user, &read, Direction::Forward).len(), 5);
    busy(db.store.truncate_table("read"));
    user.leave_table(&read);
    user.leave_table(&read);
    db.store.truncate_table("read").unwrap();
    commit(user);
    db.store.truncate_table("changed").unwrap();
}

/// The tables of a prepared transaction are the ones that it uses.
#[test]
fn a_prepared_transaction_lists_its_tables() {
    let db = Db::new();
    let (read, changed) = (filled(&db, "read", 5), filled(&db, "changed", 5));
    filled(&db, "other", 5);
    let mut user = db.begin();
    user.insert(&changed, &row_values(100, 1, None, None)).unwrap();
    assert_eq!(all_rows(&mut user, &read, Direction::Forward).len(), 5);
    assert!(user.prepare(b"x").unwrap());
    let mut tables = db.store.prepared_tables(b"x").unwrap();
    tables.sort();
    assert_eq!(tables, ["changed", "read"]);
    assert_eq!(db.store.prepared_tables(b"y").unwrap_err().code(), Code::XidUnknown);
    db.store.commit_prepared_ordered(b"x").unwrap();
    assert_eq!(db.store.prepared_tables(b"x").unwrap_err().code(), Code::XidUnknown);
}

/// A schema change waits as long as its caller allows and ends when the caller cancels it; a change
/// that need not wait is made nevertheless.
#[test]
fn a_schema_change_waits_as_long_as_its_caller_allows() {
    let db = Db::create(Arc::new(MemEnv::new()), SMALL);
    let table = filled(&db, "t", 5);
    let mut spec = spec();
    db.store.add_indexes("t", &indexes(), &BuildProgress::default()).unwrap();
    let drop_indexes = vec![spec.indexes.remove(0).name];
    let change = TableChange { drop_indexes, ..TableChange::default() };
    let mut user = db.begin();
    user.update(&table, &[1i64.into()], &[(1, 5i64.into())]).unwrap();
    let short = SchemaWait { timeout: Some(Duration::from_millis(5)), ..SchemaWait::default() };
    let asked = AtomicU64::new(0);
    let third = || asked.fetch_add(1, Ordering::SeqCst) >= 2;
    let killed = SchemaWait { cancelled: Some(&third), ..SchemaWait::default() };
    let store = &db.store;
    for (wait, code) in [(short, Code::TableBusy), (killed, Code::StatementCancelled)] {
        let failed = |done: Result<()>| assert_eq!(done.unwrap_err().code(), code);
        failed(store.drop_table_with("t", &wait));
        failed(store.truncate_table_with("t", &wait));
        failed(store.alter_table_with("t", &change, &wait));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 5);
    commit(user);
    store.alter_table_with("t", &change, &killed).unwrap();
    store.truncate_table_with("t", &killed).unwrap();
    store.drop_table_with("t", &killed).unwrap();
}

#[test]
fn columns_are_added_and_dropped_without_rewriting_rows() {
    let db = Db::new();
    let table = filled(&db, "t", 20);
    let mut old = db.begin();
    let before = all_rows(&mut old, &table, Direction::Forward);
    drop(old);
    let needs = db.store.add_column("t", &ColumnSpec::new("d", ColumnType::Int32)).unwrap_err();
    assert_eq!(needs.code(), Code::DefinitionInvalid);
    let d = ColumnSpec::new("d", ColumnType::Int32).default_value(7i64);
    db.store.add_column("t", &d).unwrap();
    let mut txn = db.begin();
    let rows = all_rows(&mut txn, &table, Direction::Forward);
    assert!(rows.iter().zip(&before).all(|(n, o)| n[..4] == o[..] && n[4] == Value::Int(7)));
    txn.update(&table, &[3i64.into()], &[(4, 8i64.into())]).unwrap();
    commit(txn);
    db.store
        .add_indexes("t", &[IndexSpec::new("by_d", &["d"])], &BuildProgress::default())
        .unwrap();
    assert_eq!(db.store.drop_column("t", "d").unwrap_err().code(), Code::ColumnInUse);
    assert_eq!(db.store.drop_column("t", "id").unwrap_err().code(), Code::ColumnInUse);
    db.store.drop_column("t", "b").unwrap();
    db.store.rename_column("t", "d", "e").unwrap();
    assert_eq!(table.layout().column("e").unwrap(), 3);
    let mut txn = db.begin();
    check_indexes(&mut txn, &table);
    let rows = all_rows(&mut txn, &table, Direction::Forward);
    assert_eq!(rows[3], [Value::Int(3), Value::Int(3), Value::Int(3), Value::Int(8)]);
    assert_eq!(rows[4][3], Value::Int(7));
    txn.insert(&table, &[100i64.into(), 1i64.into(), ValueRef::Null, 5i64.into()]).unwrap();
    check_indexes(&mut txn, &table);
    commit(txn);
    db.store.drop_index("t", "by_d").unwrap();
    assert_eq!(table.layout().indexes.len(), 0);
}

#[test]
fn an_index_is_built_over_existing_rows() {
    let db = Db::new();
    let table = filled(&db, "t", 3000);
    let mut old = db.begin();
    old.take_snapshot().unwrap();
    let mut txn = db.begin();
    txn.delete(&table, &[7i64.into()]).unwrap();
    commit(txn);
    let progress = BuildProgress::default();
    db.store.add_indexes("t", &indexes(), &progress).unwrap();
    assert_eq!((progress.phase(), progress.rows_done()), (BuildPhase::Done, 3000));
    let mut txn = db.begin();
    check_indexes(&mut txn, &table);
    // A snapshot older than VALID cannot use it.
    let scan = old.index_scan(&table, 0, Range::ALL, Direction::Forward, true);
    assert_eq!(scan.err().unwrap().code(), Code::IndexTooNew);
    let twice = db.store.add_indexes("t", &indexes()[..1], &progress).unwrap_err();
    assert_eq!(twice.code(), Code::IndexExists);
}

#[test]
fn duplicates_and_cancelling_leave_nothing_behind() {
    let db = Db::new();
    let table = filled(&db, "t", 100);
    let unique = [IndexSpec::new("u", &["a"]).unique(), IndexSpec::new("v", &["b"])];
    let progress = BuildProgress::default();
    let error = db.store.add_indexes("t", &unique, &progress).unwrap_err();
    assert_eq!(error.code(), Code::DuplicateInBuild);
    let mut row = Row::new();
    let key = progress.duplicate();
    assert!(db.begin().get_by_key(&table, &key, &mut row).unwrap());
    let progress = BuildProgress::default();
    progress.cancel();
    let error = db.store.add_indexes("t", &unique[1..], &progress).unwrap_err();
    assert_eq!(error.code(), Code::BuildCancelled);
    assert_eq!(table.layout().indexes.len(), 0);
    let mut txn = db.begin();
    txn.insert(&table, &row_values(500, 1, None, None)).unwrap();
    commit(txn);
    db.store.add_indexes("t", &unique[1..], &BuildProgress::default()).unwrap();
    check_indexes(&mut db.begin(), &table);
}

/// Writers with savepoints and rollbacks continue while indexes are built and dropped repeatedly.
#[test]
fn indexes_are_built_while_writers_go_on() {
    let db = Db::new();
    let table = filled(&db, "t", 300);
    let stop = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (db, table, stop, written) = (&db, &table, &stop, &written);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                while !stop.load(Ordering::SeqCst) {
                    let mut txn = db.begin();
                    for _ in 0..rng.below(6) {
                        // Each thread has its own ids and unique keys.
                        let id = (rng.below(120) * 3 + thread) as i64;
                        let a = rng.below(10) as i64;
                        let done = match rng.below(4) {
                            0 => txn.delete(table, &[id.into()]),
                            1 => txn.savepoint("s").map(|()| true),
                            2 => match txn.rollback_to("s") {
                                Err(e) if e.code() == Code::SavepointMissing => Ok(true),
                                other => other.map(|()| true),
                            },
                            _ => txn.upsert(table, &row_values(id, a, Some("t"), Some(id)), &[]),
                        };
                        done.unwrap();
                        written.fetch_add(1, Ordering::SeqCst);
                    }
                    match rng.below(4) {
                        0 => txn.rollback().unwrap(),
                        _ => {
                            txn.commit(Durability::Lazy).unwrap();
                        }
                    }
                }
            });
        }
        for round in 0..12 {
            let before = written.load(Ordering::SeqCst);
            db.store.add_indexes("t", &indexes(), &BuildProgress::default()).unwrap();
            check_indexes(&mut db.begin(), &table);
            for index in indexes() {
                db.store.drop_index("t", &index.name).unwrap();
            }
            while written.load(Ordering::SeqCst) < before + 50 {
                std::thread::yield_now();
            }
            println!("round {round}: {} changes", written.load(Ordering::SeqCst) - before);
        }
        db.store.add_indexes("t", &indexes(), &BuildProgress::default()).unwrap();
        stop.store(true, Ordering::SeqCst);
    });
    check_indexes(&mut db.begin(), &table);
}

/// The result of a plain read, in each way to read.
fn plain_reads(txn: &mut TableTxn, table: &Arc<Table>) -> Vec<Option<Code>> {
    let mut row = Row::new();
    let key = [1i64.into()];
    let scan = txn.scan(table, Range::ALL, Direction::Forward).map(|_| ());
    let index = txn.index_scan(table, 0, Range::ALL, Direction::Forward, true).map(|_| ());
    let many = txn.get_many(table, &[&key[..]], &mut |_, _| Ok(()));
    let by_key = txn.get_by_key(table, b"key", &mut row).map(|_| ());
    let get = txn.get(table, &key, &mut row).map(|_| ());
    [scan, index, many, by_key, get].map(|read| read.err().map(|e| e.code())).to_vec()
}

#[test]
fn a_snapshot_older_than_a_table_cannot_read_it() {
    let db = Db::new();
    let mut table = filled(&db, "t", 20);
    db.store.add_indexes("t", &indexes()[..1], &BuildProgress::default()).unwrap();
    let rows = |n: i64| (0..n).map(|id| vec![id.into(), 1i64.into(), Value::Null, Value::Null]);
    let changes: [&dyn Fn(); 4] = [
        &|| db.store.truncate_table("t").unwrap(),
        &|| {
            db.store.load_table("t", rows(3), &BuildProgress::default()).unwrap();
        },
        &|| {
            db.store.drop_table("t").unwrap();
            db.store.create_table("t", &spec()).unwrap();
        },
        &|| db.store.readable_from_now("t").unwrap(),
    ];
    for (n, change) in changes.iter().enumerate() {
        let mut old = db.begin();
        old.take_snapshot().unwrap();
        let mut dirty = db.begin_at(Isolation::ReadUncommitted);
        dirty.begin_statement();
        dirty.view().unwrap();
        if n == 3 {
            // A commit in between: the snapshot is older than now.
            let mut txn = db.begin();
            txn.insert(&table, &row_values(900, 1, None, None)).unwrap();
            commit(txn);
        }
        change();
        table = db.store.table("t").unwrap();
        assert_eq!(plain_reads(&mut old, &table), [Some(Code::TableTooNew); 5], "change {n}");
        // Reads of the current rows work as before, and so do changes.
        let mut row = Row::new();
        assert!(
            old.get_locked(&table, &[700i64.into()], Mode::Exclusive, LockWait::Wait, &mut row)
                .is_ok()
        );
        old.insert(&table, &row_values(800 + n as i64, 1, None, None)).unwrap();
        assert_eq!(plain_reads(&mut old, &table), [Some(Code::TableTooNew); 5], "own row");
        old.rollback().unwrap();
        assert_eq!(plain_reads(&mut dirty, &table), [None; 5]);
        drop(dirty);
        assert_eq!(plain_reads(&mut db.begin(), &table), [None; 5], "a later snapshot");
    }
}

/// Every lookup finds a table that is being renamed, under one of its names.
#[test]
fn a_table_being_renamed_is_always_found() {
    let db = Db::new();
    db.store.create_table("a", &spec()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut nameless = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                nameless += usize::from(db.store.table_names().len() != 1);
            }
            nameless
        });
        for _ in 0..500 {
            db.store.rename_table("a", "b").unwrap();
            db.store.rename_table("b", "a").unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(looks.join().unwrap(), 0);
    });
}

/// Two transactions prepare at a time without changes: neither keeps the table.
#[test]
fn prepared_readers_release_their_tables() {
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let mut txn = db.begin();
                    txn.use_table(&table).unwrap();
                    assert!(!txn.prepare(b"x").unwrap());
                }
            });
        }
    });
    let wait = SchemaWait { timeout: Some(Duration::ZERO), ..SchemaWait::default() };
    db.store.drop_table_with("t", &wait).unwrap();
}

/// A thread that waits for a table which a schema change keeps closed, or for another schema
/// change, notices a cancellation, and waits no longer than its timeout.
#[test]
fn waits_for_schema_changes_are_cancelled() {
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { lock_wait: MANY_SECONDS, ..SMALL });
    let table = filled(&db, "t", 5);
    let mut user = db.begin();
    user.use_table(&table).unwrap();
    let dropped = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let drops = scope.spawn(|| {
            let given_up = || dropped.load(std::sync::atomic::Ordering::SeqCst);
            let wait = SchemaWait { cancelled: Some(&given_up), ..SchemaWait::default() };
            db.store.drop_table_with("t", &wait).unwrap_err().code()
        });
        let late = || {
            let mut late = db.begin();
            late.set_lock_wait(Duration::ZERO);
            late
        };
        while late().use_table(&table).is_ok() {}
        let mut late = late();
        late.set_lock_wait(MANY_SECONDS);
        late.handle().cancel();
        assert_eq!(late.use_table(&table).unwrap_err().code(), Code::StatementCancelled);

        let cancelled = || true;
        let wait = SchemaWait { cancelled: Some(&cancelled), ..SchemaWait::default() };
        let error = db.store.truncate_table_with("t", &wait).unwrap_err();
        assert_eq!(error.code(), Code::StatementCancelled);
        for error in [
            db.store.rename_table_with("t", "u", &wait).unwrap_err(),
            db.store.analyze_table_with("t", &wait).unwrap_err(),
        ] {
            assert_eq!(error.code(), Code::StatementCancelled);
        }
        let wait = SchemaWait { timeout: Some(Duration::ZERO), ..SchemaWait::default() };
        let error = db.store.alter_table_with("t", &TableChange::default(), &wait).unwrap_err();
        assert_eq!(error.code(), Code::TableBusy);
        let progress = BuildProgress::default();
        progress.cancel();
        let error = db.store.add_indexes("t", &[], &progress).unwrap_err();
        assert_eq!(error.code(), Code::BuildCancelled);
        dropped.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(drops.join().unwrap(), Code::StatementCancelled);
    });
}

/// A cancelled refresh keeps nothing of its sample, whether it is cancelled between two rows or in
/// the wait for another schema change, during which the table can be used.
#[test]
fn sampling_for_statistics_is_cancelled() {
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { lock_wait: MANY_SECONDS, ..SMALL });
    let table = filled(&db, "t", 5);
    // It checks after each of 128 draws except the last, then in the wait.
    for (held, at) in [(false, 3), (true, 128)] {
        let _ddl = held.then(|| table.ddl.lock(&db.store.rt, Cause::Schema));
        let asked = std::cell::Cell::new(0);
        let cancelled = || {
            asked.set(asked.get() + 1);
            asked.get() == at
        };
        let wait = SchemaWait { cancelled: Some(&cancelled), ..SchemaWait::default() };
        let error = db.store.analyze_table_with("t", &wait).unwrap_err();
        assert_eq!((error.code(), asked.get()), (Code::StatementCancelled, at));
        assert!(table.statistics(None).is_none());
    }
    db.store.analyze_table("t").unwrap();
    assert!(table.statistics(None).is_some());
}

/// A change by column position waits for a row; a column before it is not dropped meanwhile.
#[test]
fn column_positions_stay_while_a_transaction_uses_them() {
    let db = Db::new();
    let column = |name| ColumnSpec::new(name, ColumnType::Int32);
    let columns = ["id", "x", "y", "z"].map(column);
    let spec = TableSpec { columns: columns.to_vec(), ..TableSpec::new().primary_key(&["id"]) };
    let table = db.store.create_table("t", &spec).unwrap();
    let mut holder = db.begin();
    holder.insert(&table, &[1i64, 2, 3, 4].map(ValueRef::Int)).unwrap();
    commit(holder);
    let mut holder = db.begin();
    holder.update(&table, &[1i64.into()], &[(1, 20i64.into())]).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut txn = db.begin();
            txn.update(&table, &[1i64.into()], &[(2, 30i64.into())]).unwrap();
            commit(txn);
        });
        while db.store.txns.waiting() < 1 {
            std::thread::yield_now();
        }
        let drops = TableChange { drop_columns: vec!["x".into()], ..TableChange::default() };
        let wait = SchemaWait { timeout: Some(Duration::ZERO), ..SchemaWait::default() };
        let dropped = db.store.alter_table_with("t", &drops, &wait);
        commit(holder);
        waits.join().unwrap();
        let rows = all_rows(&mut db.begin(), &table, Direction::Forward);
        assert_eq!(rows, [[1, 20, 30, 4].map(Value::Int)]);
        assert_eq!(dropped.unwrap_err().code(), Code::TableBusy);
        db.store.alter_table_with("t", &drops, &wait).unwrap();
    });
    let rows = all_rows(&mut db.begin(), &table, Direction::Forward);
    assert_eq!(rows, [[1, 30, 4].map(Value::Int)]);
}

/// Longer than any correct test takes.
const MANY_SECONDS: Duration = Duration::from_secs(600);
