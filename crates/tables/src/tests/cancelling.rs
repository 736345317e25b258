//! A statement is cancelled at each of its waits, and leaves no trace.

use super::protocols::{largest_reservation, within_a_minute};
use super::*;
use evenkeel_base::Code;
use evenkeel_io::sim::SimEnv;
use evenkeel_log::Share;
use evenkeel_sched::laws::depths::RUNS_TRIGGER;
use evenkeel_sched::laws::ingest::ADVANCE_PART;
use std::cell::Cell;

/// Inserts a row, which waits for `cause`, and cancels the insert.
fn cancel_insert(db: &Db, table: &Arc<Table>, cause: Cause) {
    let (handle, done) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    let (store, table) = (db.store.clone(), table.clone());
    let (its_handle, its_done) = (handle.clone(), done.clone());
    let insert = move || {
        let mut txn = store.begin(Isolation::RepeatableRead, Access::ReadWrite);
        *its_handle.lock() = Some(txn.handle());
        let result = txn.insert(&table, &row_values(1000, 7, Some("b"), Some(7)));
        *its_done.lock() = Some(result.map(drop).map_err(|e| e.code()));
        let rows = all_rows(&mut txn, &table, Direction::Forward);
        assert!(rows.iter().all(|row| row[0] != Value::Int(1000)), "it left a row");
        txn.rollback().unwrap();
    };
    let inserter = db.store.rt.spawn("inserter", insert).unwrap();
    db.store.rt.delay(Duration::from_secs(1), Cause::Idle);
    assert_eq!(*done.lock(), None, "it waits for {cause:?}");
    handle.lock().take().unwrap().cancel();
    let is_over = within_a_minute(db, &|| done.lock().is_some());
    assert!(is_over, "the wait for {cause:?} ends");
    inserter.join().unwrap();
    assert_eq!(done.lock().take(), Some(Err(Code::StatementCancelled)));
}

fn in_simulation(body: impl FnOnce(Arc<dyn Env>) + Send + 'static) {
    let sim = SimEnv::new(5);
    let env = sim.env();
    sim.run(vec![Box::new(move || body(env))]);
}

fn put(db: &Db, table: &Arc<Table>, id: i64) {
    let mut txn = db.begin();
    txn.insert(table, &row_values(id, 1, None, None)).unwrap();
    commit(txn);
}

#[test]
fn a_wait_for_compactions_is_cancelled() {
    in_simulation(|env| {
        let mut db = Db::create(env, SMALL);
        let table = db.store.create_table("t", &spec()).unwrap();
        // No thread compacts.
        db.end_threads();
        let runs = db.store.runs.clone();
        for n in 0..RUNS_TRIGGER as i64 {
            put(&db, &table, n);
            runs.seal_active();
            while runs.flush_beat().unwrap() == Beat::More {}
        }
        // Spends the initial credit.
        let advance = (SMALL.generation_bytes / ADVANCE_PART) as usize;
        let spent = runs.reserve(advance).unwrap();
        cancel_insert(&db, &table, Cause::CompactionDebt);
        drop(spent);
        while runs.compaction_beat().unwrap() == Beat::More {}
        put(&db, &table, 1000);
    });
}

#[test]
fn a_wait_for_log_space_is_cancelled() {
    in_simulation(|env| {
        let db = Db::create(env, SMALL);
        let table = db.store.create_table("t", &spec()).unwrap();
        put(&db, &table, 0);
        let held = db.store.log.reserve(largest_reservation(&db), Share::User).unwrap();
        cancel_insert(&db, &table, Cause::LogSpace);
        drop(held);
        put(&db, &table, 1000);
    });
}

/// The same holds for a copy that inserts rows: a cancellation of the copy cancels the insert.
#[test]
fn a_copy_that_waits_for_log_space_is_cancelled() {
    in_simulation(|env| {
        let db = Db::create(env, SMALL);
        db.store.create_table("t", &spec()).unwrap();
        let progress = BuildProgress::default();
        let mut copy = db.store.copy_into("t", true, &progress).unwrap();
        let row = |id| row_values(id, 1, Some("b"), None);
        // The second row is out of order: from it on rows are inserted.
        copy.push(&row(5)).unwrap();
        copy.push(&row(3)).unwrap();
        let held = db.store.log.reserve(largest_reservation(&db), Share::User).unwrap();
        let done = Arc::new(Mutex::new(None));
        let its_done = done.clone();
        let push = move || {
            let pushed = copy.push(&row_values(4, 1, Some("b"), None));
            *its_done.lock() = Some(pushed.map_err(|error| error.code()));
        };
        let copier = db.store.rt.spawn("copier", push).unwrap();
        db.store.rt.delay(Duration::from_secs(1), Cause::Idle);
        assert_eq!(*done.lock(), None, "it waits");
        progress.cancel();
        assert!(within_a_minute(&db, &|| done.lock().is_some()), "the wait ends");
        copier.join().unwrap();
        assert_eq!(done.lock().take(), Some(Err(Code::BuildCancelled)));
        drop(held);
        let mut copy = db.store.copy_into("t", true, &progress);
        assert!(copy.as_mut().is_err() || copy.unwrap().push(&row(9)).is_err(), "for good");
    });
}

#[test]
fn a_wait_for_undo_space_is_cancelled() {
    in_simulation(|env| {
        let mut db = Db::create(env, SMALL);
        let table = db.store.create_table("t", &spec()).unwrap();
        put(&db, &table, 0);
        // No thread writes undo to files.
        db.end_threads();
        let mut other = db.begin();
        other.update(&table, &[0i64.into()], &[(1, 5i64.into())]).unwrap();
        db.store.txns.set_memory(0, 0);
        cancel_insert(&db, &table, Cause::DeviceSlow);
    });
}

/// A long statement checks for cancellation between its batches.
#[test]
fn a_statement_of_many_inserts_is_cancelled_between_batches() {
    let db = Db::new();
    let plain = TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64));
    let plain = plain.primary_key(&["id"]).index(IndexSpec::new("i", &["id"]));
    let table = db.store.create_table("t", &plain).unwrap();
    let mut txn = db.begin();
    txn.insert(&table, &[5000i64.into()]).unwrap();
    let (handle, given) = (txn.handle(), Cell::new(0));
    let rows: Vec<[ValueRef<'_>; 1]> = (0..2000i64).map(|id| [id.into()]).collect();
    let rows = rows.iter().map(|row| {
        given.set(given.get() + 1);
        if given.get() == 700 {
            handle.cancel();
        }
        &row[..]
    });
    let done = txn.insert_many(&table, rows);
    assert_eq!(done.map_err(|e| e.code()), Err(Code::StatementCancelled));
    assert!(given.get() < 1100, "{} rows", given.get());
    txn.begin_statement();
    assert_eq!(all_rows(&mut txn, &table, Direction::Forward).len(), 1);
    commit(txn);
}
