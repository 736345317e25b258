//! Failures that the protocols exist to prevent, each provoked on purpose
//! (`docs/internals/protocol-tests.md`).

use super::*;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, CommitTable, Stamp, TxnId, UndoNo};
use evenkeel_format::undo::UndoRecord;
use evenkeel_io::sim::{CrashPolicy, SimEnv};
use evenkeel_log::Share;
use evenkeel_txn::RollbackRow;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

fn fill(db: &Db, rows: i64) -> Arc<Table> {
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    for id in 0..rows {
        txn.insert(&table, &row_values(id, 1, Some("old"), Some(id))).unwrap();
    }
    commit(txn);
    table
}

/// The start of redo that a checkpoint sets, and its list of transactions.
struct Checkpoint {
    redo: Lsn,
    blob: Vec<u8>,
}

fn checkpoint(db: &Db) -> Checkpoint {
    let store = &db.store;
    store.pages.flush_all().unwrap();
    let mut redo = store.log.end();
    for needed in [store.pages.oldest_dirty_lsn(), store.runs.low_lsn()].into_iter().flatten() {
        redo = redo.min(needed);
    }
    store.txns.checkpoint_undo(redo).unwrap();
    Checkpoint { redo, blob: store.txns.checkpoint_blob() }
}

/// Rolls rows back, with a checkpoint after the third.
struct CheckpointWithin<'a> {
    db: &'a Db,
    reverted: AtomicUsize,
    taken: Mutex<Option<Checkpoint>>,
}

impl RollbackRow for CheckpointWithin<'_> {
    fn revert(&self, stamp: Stamp, record: &UndoRecord<'_>) -> Result<()> {
        self.db.store.revert(stamp, record)?;
        if self.reverted.fetch_add(1, Ordering::SeqCst) == 2 {
            *self.taken.lock() = Some(checkpoint(self.db));
        }
        Ok(())
    }
}

struct Outcomes<'a>(&'a Txns);

impl Replay for Outcomes<'_> {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        self.0.replay_record(lsn, kind, body)
    }
}

/// A1: entries of a rolled-back statement are in a run; a checkpoint falls into the rollback; the
/// transaction commits; after a crash all changes of the statement are dead.
#[test]
fn a_checkpoint_during_a_rollback_keeps_all_of_it() {
    let db = Db::new();
    let table = fill(&db, 50);
    let mut txn = db.begin();
    txn.update(&table, &[0i64.into()], &[(1, 2i64.into())]).unwrap();
    let mark = txn.inner.mark();
    for id in 1..7i64 {
        txn.update(&table, &[id.into()], &[(1, 2i64.into())]).unwrap();
    }
    let below = txn.inner.mark();
    db.store.runs.seal_active();
    while db.store.runs.low_lsn().is_some() {
        db.store.runs.flush_beat().unwrap();
    }
    let (reverted, taken) = (AtomicUsize::new(0), Mutex::default());
    let revert = CheckpointWithin { db: &db, reverted, taken };
    db.store.txns.rollback_to(&txn.inner, mark, &revert).unwrap();
    let id = txn.inner.id();
    commit(txn);
    assert_eq!(revert.reverted.load(Ordering::SeqCst), 6);
    let Checkpoint { redo, blob } = revert.taken.lock().take().expect("a checkpoint");

    let after = Txns::create(db.store.rt.clone(), TxnOptions::default());
    after.restore(&blob).unwrap();
    replay(&db.store.rt, redo, None, &mut Outcomes(&after)).unwrap();
    let dead = |txns: &Txns, no: u32| txns.is_dead(Stamp { txn: id, undo_no: UndoNo(no) });
    for no in 1..below.0 {
        assert_eq!(dead(&after, no), no >= mark.0, "operation {no} of {below:?}");
        assert_eq!(dead(&db.store.txns, no), no >= mark.0);
    }
    check_indexes(&mut db.begin(), &table);
}

/// B2: a writer waits for memtable space, which only a flush can make. The flush, a checkpoint and
/// readers need nothing that the writer holds: no position in the log, no latch.
#[test]
fn a_writer_that_waits_for_memory_holds_no_log_and_no_latch() {
    const ROWS: i64 = 6000;
    let sim = SimEnv::new(2);
    let env = sim.env();
    sim.run(vec![Box::new(move || {
        let db = Db::create(env, SMALL);
        let table = fill(&db, 10);
        let (store, written) = (db.store.clone(), Arc::new(AtomicUsize::new(0)));
        // A pinned generation is not flushed.
        let pin = store.runs.pin();
        let (table2, count) = (table.clone(), written.clone());
        let (store2, rt) = (store.clone(), store.rt.clone());
        let writer = move || {
            let mut txn = store2.begin(Isolation::RepeatableRead, Access::ReadWrite);
            for id in 100..100 + ROWS {
                txn.insert(&table2, &row_values(id, 7, Some("new"), None)).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
            commit(txn);
        };
        let writer = rt.spawn("writer", writer).unwrap();
        rt.delay(Duration::from_secs(60), Cause::Idle);
        let stuck = written.load(Ordering::SeqCst);
        assert!(stuck > 0 && stuck < ROWS as usize, "the writer waits: {stuck} rows");
        // Another thread does it, so that a failure does not hang.
        let (done, looked) = (Arc::new(AtomicBool::new(false)), db.begin());
        let (done2, table2, store2) = (done.clone(), table.clone(), store.clone());
        let look = move || {
            let mut looked = looked;
            store2.log.wait_durable(Lsn(store2.log.end().0 - 1)).unwrap();
            let mut reserved = store2.log.reserve(64, Share::System).unwrap();
            let lsn = store2.log.append(&mut reserved, RecordKind::End, &[&[1]]);
            store2.log.wait_durable(lsn).unwrap();
            store2.pages.flush_all().unwrap();
            assert_eq!(all_rows(&mut looked, &table2, Direction::Forward).len(), 10);
            done2.store(true, Ordering::SeqCst);
        };
        let look = rt.spawn("looker", look).unwrap();
        rt.delay(Duration::from_secs(60), Cause::Idle);
        assert!(done.load(Ordering::SeqCst), "the waiting writer holds what others need");
        look.join().unwrap();
        assert_eq!(written.load(Ordering::SeqCst), stuck, "it still waits");
        drop(pin);
        writer.join().unwrap();
        let mut txn = db.begin();
        assert_eq!(all_rows(&mut txn, &table, Direction::Forward).len(), 10 + ROWS as usize);
        check_indexes(&mut txn, &table);
    })]);
}

/// The most log that an operation may reserve. It is granted only if no other thread holds a
/// reservation.
pub(super) fn largest_reservation(db: &Db) -> usize {
    let refused = db.store.log.reserve(1 << 40, Share::User).map(|_| ()).unwrap_err();
    let limit: usize = refused.context("limit").unwrap().parse().unwrap();
    let granted = |bytes: &usize| db.store.log.reserve(*bytes, Share::User).is_ok();
    (0..limit).map(|less| limit - less).find(granted).unwrap()
}

type Step = fn(&mut TableTxn, &Arc<Table>) -> Result<()>;

fn insert(txn: &mut TableTxn, table: &Arc<Table>, id: i64, a: i64, c: i64) -> Result<()> {
    txn.insert(table, &row_values(id, a, None, Some(c))).map(|_| ())
}

/// Locks an index key that no row has.
fn lock_key(txn: &mut TableTxn, table: &Arc<Table>, index: &str, key: i64) -> Result<()> {
    let (index, key) = (table.layout().index(index).unwrap(), [ValueRef::Int(key)]);
    let locking = Locking { mode: Mode::Shared, wait: LockWait::Wait };
    let (range, forward) = (Range::prefix(&key), Direction::Forward);
    txn.locked_index_scan(table, index, range, forward, locking)?.each(&mut |_| Ok(true))
}

/// The thread that has the resource first, and the one that waits for it.
const WAITS: &[(&str, Step, Step)] = &[
    ("a row", |t, at| insert(t, at, 100, 1, 100), |t, at| insert(t, at, 100, 1, 101)),
    ("a unique key", |t, at| insert(t, at, 100, 1, 100), |t, at| insert(t, at, 101, 1, 100)),
    (
        "a locked row",
        |t, at| t.get(at, &[100i64.into()], &mut Row::new()).map(|_| ()),
        |t, at| insert(t, at, 100, 1, 100),
    ),
    ("a locked unique key", |t, at| lock_key(t, at, "by_c", 100), |t, at| insert(t, at, 9, 1, 100)),
    ("a locked range", |t, at| lock_key(t, at, "by_a", 77), |t, at| insert(t, at, 9, 77, 50)),
    (
        "a row of several",
        |t, _| {
            let table = t.store.table("plain")?;
            t.insert(&table, &[105i64.into(), 1i64.into()]).map(|_| ())
        },
        |t, _| {
            let table = t.store.table("plain")?;
            let rows: Vec<_> = (100..110i64).map(|id| [id.into(), id.into()]).collect();
            t.insert_many(&table, rows.iter().map(|r: &[ValueRef<'_>; 2]| &r[..])).map(|_| ())
        },
    ),
];

/// B2: a transaction that waits for another holds no log space, which that one may need to end.
#[test]
fn a_transaction_that_waits_for_another_holds_no_log_space() {
    for (what, first, second) in WAITS {
        let sim = SimEnv::new(3);
        let env = sim.env();
        sim.run(vec![Box::new(move || {
            let db = Db::create(env, SMALL);
            let table = fill(&db, 3);
            fill_plain(&db, "plain");
            let (store, rt, largest) =
                (db.store.clone(), db.store.rt.clone(), largest_reservation(&db));
            let mut holder = db.begin_at(Isolation::Serializable);
            first(&mut holder, &table).unwrap();
            let waiter = move || {
                let mut txn = store.begin(Isolation::ReadCommitted, Access::ReadWrite);
                second(&mut txn, &table).unwrap();
                commit(txn);
            };
            let waiter = rt.spawn("waiter", waiter).unwrap();
            rt.delay(Duration::from_millis(100), Cause::Idle);
            assert_eq!(db.store.txns.waiting(), 1, "{what}");
            // Another thread asks, so that a failure does not hang.
            let (store, granted) = (db.store.clone(), Arc::new(AtomicBool::new(false)));
            let done = granted.clone();
            let ask = move || {
                drop(store.log.reserve(largest, Share::User).unwrap());
                done.store(true, Ordering::SeqCst);
            };
            let asker = rt.spawn("asker", ask).unwrap();
            rt.delay(Duration::from_secs(1), Cause::Idle);
            assert_eq!(db.store.txns.waiting(), 1, "{what}");
            assert!(granted.load(Ordering::SeqCst), "who waits for {what} holds log space");
            holder.rollback().unwrap();
            waiter.join().unwrap();
            asker.join().unwrap();
        })]);
    }
}

/// B4: a transaction changes rows on many pages, and pages from which reorganization may drop its
/// stamps are written before its commit is waited for. After a crash all changes are found, or
/// none.
fn stamps_and_crash(committed: bool) {
    const ROWS: i64 = 200;
    // No flush of a generation may sync the log meanwhile.
    const SIZES: Sizes = Sizes { frames: 1024, generation_bytes: 8 << 20, ..SMALL };
    let sim = SimEnv::new(4);
    let (env, disk) = (sim.env(), sim.disk().clone());
    let (send, root) = mpsc::channel();
    sim.run(vec![Box::new(move || {
        let db = Db::create(env, SIZES);
        let table = fill(&db, ROWS);
        let _ = send.send(db.store.catalog_root());
        let mut txn = db.begin();
        for id in 0..ROWS {
            txn.update(&table, &[id.into()], &[(1, 2i64.into())]).unwrap();
        }
        let id: TxnId = txn.inner.id();
        let mut cts = None;
        if committed {
            let lsn = txn.commit(Durability::Lazy).unwrap();
            assert!(!db.store.log.is_durable(lsn));
            cts = Some(lsn);
        } else {
            std::mem::forget(txn);
        }
        assert_eq!(db.store.txns.state(id).is_undecided(), !committed);
        // Leaves fill up, so that they are reorganized.
        let compactions = || db.store.rt.metrics.get(Metric::LeafReorganizations);
        let before = compactions();
        let mut other = db.begin();
        for id in ROWS..4 * ROWS {
            other.insert(&table, &row_values(-id, 3, Some("other"), None)).unwrap();
        }
        for id in 0..ROWS {
            let long = ValueRef::Text("a text that is a good deal longer than before");
            let done = other.update(&table, &[id.into()], &[(2, long)]);
            assert!(committed || done.is_err(), "a row of an undecided transaction");
            if !committed {
                break;
            }
        }
        assert!(!committed || compactions() > before, "stamps were dropped");
        std::mem::forget(other);
        assert!(cts.is_none_or(|cts| !db.store.log.is_durable(cts)), "the log is behind");
        db.store.pages.flush_all().unwrap();
        if let Some(cts) = cts {
            assert!(db.store.log.is_durable(cts), "pages were written ahead of the log");
        }
        disk.crash_now();
        std::mem::forget(db);
    })]);
    let after = sim.crash(CrashPolicy::LoseAll, 4);
    let root = root.try_recv().expect("the table was made");
    let (env, (send, end)) = (after.env(), mpsc::channel());
    after.run(vec![Box::new(move || {
        let db = Db::open(env, SIZES, root);
        let table = db.store.table("t").unwrap();
        let mut txn = db.begin();
        let expected = if committed { 2 } else { 1 };
        let rows = all_rows(&mut txn, &table, Direction::Forward);
        assert_eq!(rows.len(), ROWS as usize);
        let other = |row: &&Vec<Value>| row[1] != Value::Int(expected);
        assert_eq!(rows.iter().filter(other).count(), 0, "half a transaction");
        check_indexes(&mut txn, &table);
        let _ = send.send(());
    })]);
    end.try_recv().expect("the check ran");
}

#[test]
fn a_stamp_is_dropped_on_disk_only_after_its_commit() {
    stamps_and_crash(false);
    stamps_and_crash(true);
}

/// F3: a duplicate is inserted while the index is between proved and VALID. Either the build fails
/// or the statement does.
#[test]
fn no_duplicate_enters_between_the_proof_and_valid() {
    let mut outcomes = [0; 3];
    for seed in 0..60u64 {
        let sim = SimEnv::new(seed);
        let env = sim.env();
        let (send, outcome) = mpsc::channel();
        sim.run(vec![Box::new(move || {
            let db = Db::create(env, SMALL);
            let table = fill_plain(&db, "t");
            let (store, progress) = (db.store.clone(), Arc::new(BuildProgress::default()));
            let (seen, table2) = (progress.clone(), table.clone());
            let rt = store.rt.clone();
            let inserted = Arc::new(AtomicBool::new(false));
            let result = inserted.clone();
            let writer = move || {
                while !matches!(seen.phase(), BuildPhase::Checking | BuildPhase::Done) {
                    store.rt.delay(Duration::from_micros(20), Cause::Idle);
                }
                store.rt.delay(Duration::from_micros(1 + seed * 97 % 4000), Cause::Idle);
                let mut txn = store.begin(Isolation::RepeatableRead, Access::ReadWrite);
                let done = txn.insert(&table2, &[100i64.into(), 3i64.into()]);
                result.store(done.is_ok(), Ordering::SeqCst);
                commit(txn);
            };
            let writer = rt.spawn("writer", writer).unwrap();
            let unique = IndexSpec::new("by_a", &["a"]).unique();
            let built = db.store.add_indexes("t", &[unique], &progress).is_ok();
            writer.join().unwrap();
            let _ = send.send((built, inserted.load(Ordering::SeqCst)));
        })]);
        match outcome.try_recv().expect("the build ended") {
            (true, true) => panic!("seed {seed}: a VALID unique index with a duplicate"),
            (true, false) => outcomes[0] += 1,
            (false, true) => outcomes[1] += 1,
            (false, false) => outcomes[2] += 1,
        }
    }
    assert!(outcomes[0] > 0, "no seed came late enough: {outcomes:?}");
}

fn fill_plain(db: &Db, name: &str) -> Arc<Table> {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("a", ColumnType::Int64))
        .primary_key(&["id"]);
    let table = db.store.create_table(name, &spec).unwrap();
    let mut txn = db.begin();
    for id in 0..10i64 {
        txn.insert(&table, &[id.into(), id.into()]).unwrap();
    }
    commit(txn);
    table
}

/// F3: a writer has prepared its change for an index that is being checked, and waits for log
/// space; meanwhile the build is abandoned. The writer prepares the change again, without the
/// index.
#[test]
fn an_abandoned_build_is_no_error_for_a_writer() {
    let sim = SimEnv::new(5);
    let env = sim.env();
    sim.run(vec![Box::new(move || {
        let db = Db::create(env, SMALL);
        let table = fill_plain(&db, "t");
        let (store, rt) = (db.store.clone(), db.store.rt.clone());
        let put = |id: i64| {
            let mut txn = db.begin();
            txn.insert(&table, &[id.into(), id.into()]).unwrap();
            txn
        };
        // The first holds up the build before its scan, the second before its proof.
        let first = put(200);
        let progress = Arc::new(BuildProgress::default());
        let reach = |phase: BuildPhase| {
            rt.delay(Duration::from_millis(500), Cause::Idle);
            assert_eq!(progress.phase(), phase);
        };
        let (watch, builder) = (progress.clone(), store.clone());
        let build = move || {
            let unique = IndexSpec::new("by_a", &["a"]).unique();
            let done = builder.add_indexes("t", &[unique], &watch);
            assert_eq!(done.map_err(|e| e.code()), Err(Code::BuildCancelled));
        };
        let build = rt.spawn("build", build).unwrap();
        reach(BuildPhase::Waiting);
        let second = put(201);
        commit(first);
        reach(BuildPhase::Checking);

        let held = store.log.reserve(largest_reservation(&db), Share::User).unwrap();
        let (late, into) = (Arc::new(Mutex::new(None)), table.clone());
        let result = late.clone();
        let write = move || {
            let mut txn = store.begin(Isolation::RepeatableRead, Access::ReadWrite);
            let done = txn.insert(&into, &[300i64.into(), 300i64.into()]).map(|_| ());
            *result.lock() = Some(done);
            commit(txn);
        };
        let writer = rt.spawn("writer", write).unwrap();
        rt.delay(Duration::from_millis(100), Cause::Idle);
        progress.cancel();
        build.join().unwrap();
        assert!(late.lock().is_none(), "it waits for log space");
        drop(held);
        writer.join().unwrap();
        assert_eq!(late.lock().take().map(|d| d.map_err(|e| e.code())), Some(Ok(())));
        commit(second);
        let mut txn = db.begin();
        assert_eq!(all_rows(&mut txn, &table, Direction::Forward).len(), 13);
        check_indexes(&mut txn, &table);
    })]);
}

/// G7: the check reports an index that has more or fewer entries than its rows require.
#[test]
fn a_check_compares_indexes_with_rows() {
    use evenkeel_format::record::{Entry, entry_op};
    for (op, id) in [(entry_op::INS, 100i64), (entry_op::DEL, 3)] {
        let db = Db::new();
        let table = fill(&db, 20);
        let mut other = db.begin();
        let committed = other.inner.id();
        other.insert(&table, &row_values(50, 5, None, Some(50))).unwrap();
        commit(other);
        let sound = db.store.check_table("t").unwrap();
        assert_eq!((sound.rows, sound.problems), (21, Vec::<String>::new()));

        let layout = table.layout();
        let (index, values) = (&layout.indexes[0], row_values(id, 1, Some("old"), Some(id)));
        let (mut pk, mut key) = (Vec::new(), Vec::new());
        layout.encode_key(&|i| Ok(values[i]), &mut pk).unwrap();
        index.encode(&|i| Ok(values[i]), pk.len(), &mut key).unwrap();
        let entry = Entry { index: index.id, op, key: &key, value: &[] };
        let mut memory = db.store.runs.reserve(1000).unwrap();
        let stamp = Stamp { txn: committed, undo_no: UndoNo(9) };
        let pin = db.store.runs.pin();
        db.store.runs.insert(&pin, &mut memory, &entry, &pk, stamp, db.store.log.end());
        drop(pin);
        let found = db.store.check_table("t").unwrap();
        let names = found.problems.iter().any(|p| p.contains(&index.name));
        assert!(names, "op {op}: {:?}", found.problems);
    }
}

/// E4, B6: a table is dropped while a row of it is being rolled back. Its pages stay until that is
/// over: a record after the free of its page would refer to no page.
#[test]
fn pages_of_a_dropped_table_stay_during_a_rollback() {
    let sim = SimEnv::new(6);
    let env = sim.env();
    sim.run(vec![Box::new(move || {
        for lock_wait in [Duration::from_secs(5), Duration::from_millis(1)] {
            let db = Db::create(env.clone(), Sizes { lock_wait, ..SMALL });
            let tree = fill(&db, 50).state().tree.id();
            let within = db.store.open_trees.enter(tree).expect("a tree");
            let store = db.store.clone();
            let dropper = move || store.drop_table("t").unwrap();
            let dropper = db.store.rt.spawn("dropper", dropper).unwrap();
            db.store.rt.delay(Duration::from_secs(1), Cause::Idle);
            assert!(db.store.table("t").is_err(), "it is dropped");
            assert!(db.store.pages.trees().contains(&tree), "its pages are in use");
            assert!(db.store.open_trees.enter(tree).is_none(), "nobody enters it any more");
            assert_eq!(db.store.remove_orphans().unwrap(), 0);
            drop(within);
            dropper.join().unwrap();
            db.store.chain_beat().unwrap();
            assert!(!db.store.pages.trees().contains(&tree), "its pages are free");
            for file in env.list("").unwrap() {
                let _ = env.remove(&file);
            }
        }
    })]);
}

/// B2: a writer that waits for undo memory holds no log space. The background, which frees that
/// memory, queues for log space before it rolls back: otherwise each would wait for the other.
#[test]
fn a_writer_that_waits_for_undo_memory_holds_no_log_space() {
    let sim = evenkeel_io::sim::SimEnv::new(3);
    let env = sim.env();
    sim.run(vec![Box::new(move || {
        let db = Db::create(env, SMALL);
        let pass = |ms| db.store.rt.delay(Duration::from_millis(ms), Cause::Idle);
        let spec = TableSpec::new()
            .column(ColumnSpec::new("id", ColumnType::Int64))
            .column(ColumnSpec::new("text", ColumnType::Text { max: 200 }))
            .primary_key(&["id"]);
        let table = db.store.create_table("t", &spec).unwrap();
        let mut loser = db.begin();
        insert_texts(&mut loser, &table, 0..2000);

        // All of the log's buffer is reserved: a small part and the rest.
        const SMALL_PART: usize = 64 << 10;
        let reserve = |bytes| db.store.log.reserve(bytes, evenkeel_log::Share::User);
        let largest = reserve(1 << 40).map(drop).unwrap_err();
        let largest: usize = largest.context("limit").unwrap().parse().unwrap();
        let beside = (0..).find(|less| reserve(largest - less).is_ok()).unwrap();
        let rest = reserve(largest - SMALL_PART - beside).unwrap();
        let small = reserve(SMALL_PART - beside).unwrap();
        // The background waits for it, to roll back; it frees no memory meanwhile.
        drop(loser);
        pass(100);
        db.store.txns.set_memory(0, 32 << 20);
        // The small part of the log has room for the first of these inserts only.
        let done = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for n in 1..4i64 {
            let (store, table, done) = (db.store.clone(), table.clone(), done.clone());
            let insert = move || {
                let mut txn = store.begin(Isolation::RepeatableRead, Access::ReadWrite);
                insert_texts(&mut txn, &table, n * 10_000..n * 10_000 + 250);
                txn.commit(Durability::Lazy).unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            };
            tasks.push(db.store.rt.spawn("inserts", insert).unwrap());
        }
        pass(100);
        drop(small);
        assert!(within_a_minute(&db, &|| done.load(Ordering::SeqCst) == 3));
        drop(rest);
        tasks.into_iter().for_each(|task| task.join().unwrap());
    })]);
}

/// B2: an operation that holds log space splits leaves, which needs more of it. The split does not
/// wait for operations that wait for this one's space: here nearly all of the buffer.
#[test]
fn a_split_does_not_wait_for_waiters_of_its_own_operation() {
    let sim = SimEnv::new(6);
    let env = sim.env();
    sim.run(vec![Box::new(move || {
        const BUFFER: usize = 256 << 10;
        let sizes = Sizes { log_buffer_bytes: BUFFER, generation_bytes: 4 << 20, ..SMALL };
        let db = Db::create(env, sizes);
        let columns = |max| {
            TableSpec::new()
                .column(ColumnSpec::new("id", ColumnType::Int64))
                .column(ColumnSpec::new("text", ColumnType::Text { max }))
                .primary_key(&["id"])
        };
        let small = db.store.create_table("small", &columns(200)).unwrap();
        let mut spec = columns(30_000);
        spec.indexes = (0..8).map(|n| IndexSpec::new(&format!("i{n}"), &["text"])).collect();
        let large = db.store.create_table("large", &spec).unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for n in 0..4i64 {
            let (store, done) = (db.store.clone(), done.clone());
            let (small, large) = (small.clone(), large.clone());
            let insert = move || {
                let text = "x".repeat(BUFFER / 8 - 4000);
                for round in 0..20 {
                    let mut txn = store.begin(Isolation::RepeatableRead, Access::ReadWrite);
                    let id = (n * 20 + round) * 1000;
                    match n % 2 {
                        0 => insert_texts(&mut txn, &small, id..id + 250),
                        _ => {
                            txn.insert(&large, &[id.into(), ValueRef::Text(&text)]).unwrap();
                        }
                    }
                    txn.commit(Durability::Lazy).unwrap();
                }
                done.fetch_add(1, Ordering::SeqCst);
            };
            tasks.push(db.store.rt.spawn("inserts", insert).unwrap());
        }
        assert!(within_a_minute(&db, &|| done.load(Ordering::SeqCst) == 4));
        tasks.into_iter().for_each(|task| task.join().unwrap());
    })]);
}

/// True if `is_so` becomes true within a minute of virtual time: no correct wait is that long.
pub(super) fn within_a_minute(db: &Db, is_so: &dyn Fn() -> bool) -> bool {
    (0..600).any(|_| {
        db.store.rt.delay(Duration::from_millis(100), Cause::Idle);
        is_so()
    })
}

fn insert_texts(txn: &mut TableTxn, table: &Arc<Table>, ids: std::ops::Range<i64>) {
    let text = "t".repeat(100);
    let rows: Vec<[ValueRef<'_>; 2]> = ids.map(|id| [id.into(), ValueRef::Text(&text)]).collect();
    txn.insert_many(table, rows.iter().map(|row| &row[..])).unwrap();
}
