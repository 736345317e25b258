//! A7: of a locker that locks a range and a writer that inserts a row into it one sees the other.
//! The locker registers first and then scans; the writer inserts first and then checks (an index),
//! or checks and inserts under one latch (a table). Either order reversed admits a row that the
//! locker has not seen: a phantom.
//!
//! Every seed is another schedule of two sessions; `sim/tests/models/phantoms.rs` runs all
//! schedules of the steps alone.

use super::*;
use evenkeel_base::Kind;
use evenkeel_io::Rng;
use evenkeel_io::sim::SimEnv;

const SEEDS: u64 = 150;
const ROUNDS: i64 = 8;

#[derive(Default)]
struct Counts {
    deadlocks: usize,
    /// Counts of runs in which the locker was before the writer, or behind it.
    before: usize,
    behind: usize,
}

/// Rows whose `a`, or whose `id`, is 50 or more, locked.
fn look(txn: &mut TableTxn, table: &Arc<Table>, by_index: bool) -> Result<Vec<i64>> {
    let locking = Locking { mode: Mode::Shared, wait: LockWait::Wait };
    let from = [ValueRef::Int(50)];
    let (range, forward) = (Range::from(&from), Direction::Forward);
    let by_a = table.layout().index("by_a")?;
    let scan = match by_index {
        true => txn.locked_index_scan(table, by_a, range, forward, locking)?,
        false => txn.locked_scan(table, range, forward, locking)?,
    };
    let mut ids = Vec::new();
    scan.each(&mut |row| {
        if let ValueRef::Int(id) = row.value(0)? {
            ids.push(id);
        }
        Ok(true)
    })?;
    Ok(ids)
}

/// Looks twice; none after a deadlock.
fn lock_and_look(db: &Db, table: &Arc<Table>, by_index: bool) -> Option<Vec<i64>> {
    let mut txn = db.begin_at(Isolation::Serializable);
    let mut looks = Vec::new();
    for _ in 0..2 {
        match look(&mut txn, table, by_index) {
            Ok(ids) => looks.push(ids),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Deadlock, "{error}");
                return None;
            }
        }
        db.store.rt.delay(Duration::from_millis(1), Cause::Idle);
    }
    assert_eq!(looks[0], looks[1], "a phantom, by index: {by_index}");
    commit(txn);
    looks.pop()
}

/// Inserts a row into both ranges, or moves one there. False after a deadlock.
fn write(store: &Arc<Store>, table: &Arc<Table>, id: i64, moves: bool) -> bool {
    let mut txn = store.begin(Isolation::ReadCommitted, Access::ReadWrite);
    let done = match moves {
        true => txn.update(table, &[id.into()], &[(1, (100 + id).into())]).map(|_| ()),
        false => txn.insert(table, &row_values(1000 + id, 100 + id, None, None)).map(|_| ()),
    };
    match done {
        Ok(()) => drop(commit(txn)),
        Err(error) => {
            assert_eq!(error.kind(), Kind::Deadlock, "{error}");
            return false;
        }
    }
    true
}

fn schedule(seed: u64, counts: &Arc<Mutex<Counts>>) {
    let sim = SimEnv::new(seed);
    let (env, counts) = (sim.env(), counts.clone());
    let mut rng = Rng::new(seed);
    // Often at the same time: then both are ready at every step.
    let mut some = move || Duration::from_micros(200 * rng.below(2));
    sim.run(vec![Box::new(move || {
        let db = Db::create(env, SMALL);
        let table = db.store.create_table("t", &spec()).unwrap();
        let mut txn = db.begin();
        for id in 0..30 {
            txn.insert(&table, &row_values(id, id, None, None)).unwrap();
        }
        commit(txn);
        for id in 0..ROUNDS {
            let (by_index, moves) = (id % 2 == 0, id % 4 == 0);
            let (store, table2) = (db.store.clone(), table.clone());
            let written = Arc::new(AtomicBool::new(false));
            let done = written.clone();
            let (early, late) = (some(), some());
            let body = move || {
                store.rt.delay(early, Cause::Idle);
                done.store(write(&store, &table2, id, moves), Ordering::SeqCst);
            };
            let writer = db.store.rt.spawn("writer", body).unwrap();
            db.store.rt.delay(late, Cause::Idle);
            let seen = lock_and_look(&db, &table, by_index);
            writer.join().unwrap();
            let written = written.load(Ordering::SeqCst);
            let mut counts = counts.lock();
            match seen {
                Some(ids) if written => {
                    let here = if moves { id } else { 1000 + id };
                    match ids.contains(&here) {
                        true => counts.behind += 1,
                        false => counts.before += 1,
                    }
                }
                _ => counts.deadlocks += 1,
            }
        }
    })]);
}

#[test]
fn no_row_enters_a_locked_range() {
    let counts = Arc::new(Mutex::new(Counts::default()));
    (0..SEEDS).for_each(|seed| schedule(seed, &counts));
    let Counts { deadlocks, before, behind } = *counts.lock();
    println!("{before} lockers before their writer, {behind} behind it, {deadlocks} deadlocks");
    assert!(before > 100 && behind > 100, "{before} before, {behind} behind");
}
