//! Tests of the store over real layers on a file system in memory: a small pool, a small log, the
//! background actors on threads; stop and open again, with or without a crash.

mod basic;
mod build;
mod cancelling;
mod chunks;
mod chunks_model;
mod chunks_refused;
mod collated;
mod counting;
mod ddl;
mod dead_leaves;
mod dirty;
mod estimates;
mod figures;
mod foreign;
mod foreign_add;
mod foreign_cascade;
mod foreign_cascade_model;
mod foreign_model;
mod foreign_parents;
mod foreign_parents_model;
mod found_by;
mod handles;
mod hot_row;
mod isolation;
mod large;
mod lock_memory;
mod locking;
mod many;
mod model;
mod newest;
mod numbers;
mod phantoms;
mod plans;
mod protocols;
mod read_rows;
mod recovery;
mod repair;
mod rows_there;
mod statistics;
mod stats_refresh;
mod temporary;
mod together;

use crate::{
    Access, BuildPhase, BuildProgress, Chains, ColumnSpec, ColumnType, Direction, ForeignKeySpec,
    Given, IndexSpec, Insertion, Isolation, LargeValue, Layout, LockWait, LockedScan, Locking,
    Mode, PartSpec, Range, Row, RowPlan, SchemaWait, Store, StoreOptions, StoreParts, Table,
    TableChange, TableSpec, TableTxn, Value, ValueRef, replay_entries, rules,
};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Cause, Lsn, Result};
use evenkeel_format::record::RecordKind;
use evenkeel_io::{Env, Event, MemEnv, Runtime, Task};
use evenkeel_log::{Durability, Log, LogOptions, Replay, replay};
use evenkeel_pages::{PageRedo, Pages, PagesOptions};
use evenkeel_runs::{Runs, RunsOptions};
use evenkeel_sched::Scheduler;
use evenkeel_tree::TreeRedo;
use evenkeel_txn::{TxnOptions, Txns};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const PAGE: usize = 4096;

/// Sizes of a test database.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub frames: usize,
    pub log_bytes: u64,
    pub log_buffer_bytes: usize,
    pub generation_bytes: u64,
    pub lock_wait: Duration,
    pub refresh_every: Duration,
    pub build_arena_bytes: usize,
    pub build_threads: usize,
}

pub const SMALL: Sizes = Sizes {
    frames: 256,
    log_bytes: 64 << 20,
    log_buffer_bytes: 4 << 20,
    generation_bytes: 64 << 10,
    lock_wait: Duration::from_secs(5),
    refresh_every: Duration::ZERO,
    build_arena_bytes: 1 << 20,
    build_threads: 3,
};

/// A store with its background threads.
pub struct Db {
    pub store: Arc<Store>,
    /// Rollback beats that the background may still run.
    reverts: Arc<Mutex<u64>>,
    /// The background writes pages.
    cleans: Arc<Mutex<bool>>,
    stop: Arc<AtomicBool>,
    events: Vec<Arc<Event>>,
    tasks: Mutex<Vec<Box<dyn Task>>>,
}

struct First<'a, 'b> {
    redo: &'a mut PageRedo<'b>,
    runs: &'a Runs,
    txns: &'a Txns,
    chains: &'a Chains,
}

impl Replay for First<'_, '_> {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        if kind == RecordKind::Manifest {
            self.runs.apply_manifest(body)?;
        }
        self.redo.scan(lsn, kind, body)?;
        self.chains.replay(kind, body)?;
        self.txns.replay_record(lsn, kind, body)
    }
}

struct Second<'a, 'b>(&'a mut PageRedo<'b>);

impl Replay for Second<'_, '_> {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        self.0.apply(lsn, kind, body)
    }
}

struct Entries<'a>(&'a Runs);

impl Replay for Entries<'_> {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        replay_entries(self.0, lsn, kind, body)
    }
}

fn log_options(sizes: Sizes, epoch: u32) -> LogOptions {
    LogOptions { log_bytes: sizes.log_bytes, buffer_bytes: sizes.log_buffer_bytes, epoch }
}

fn pages_options(sizes: Sizes) -> PagesOptions {
    PagesOptions {
        page_size: PAGE,
        pool_bytes: sizes.frames * PAGE,
        doublewrite: true,
        log_bytes: sizes.log_bytes,
    }
}

fn parts(sched: &Arc<Scheduler>, sizes: Sizes) -> (Arc<Runs>, Arc<Txns>) {
    // So few that tests see both ways of rolling back.
    let txn_options = TxnOptions { eager_rollback_rows: 20, ..TxnOptions::default() };
    let txns = Txns::create(sched.runtime().clone(), txn_options);
    let options = RunsOptions { generation_bytes: sizes.generation_bytes, cache_bytes: 1 << 20 };
    (Runs::create(sched.clone(), options, txns.clone()).unwrap(), txns)
}

fn store_options(sizes: Sizes) -> StoreOptions {
    StoreOptions {
        lock_wait: sizes.lock_wait,
        build_arena_bytes: sizes.build_arena_bytes,
        build_threads: sizes.build_threads,
        logged_value_bytes: None,
        refresh_every: sizes.refresh_every,
        collations: Some(&collated::FOLDED),
    }
}

impl Db {
    pub fn new() -> Db {
        Db::create(Arc::new(MemEnv::new()), SMALL)
    }

    pub fn create(env: Arc<dyn Env>, sizes: Sizes) -> Db {
        let rt = Runtime::new(env);
        let sched = Scheduler::new(rt.clone());
        rt.env.create_dir("").unwrap();
        let log = Log::create(rt.clone(), log_options(sizes, 1), Lsn(0)).unwrap();
        let pages = Pages::create(sched.clone(), pages_options(sizes)).unwrap();
        let (runs, txns) = parts(&sched, sizes);
        pages.attach_log(log.clone()).unwrap();
        runs.attach_log(log.clone());
        txns.attach_log(log.clone());
        let chains = Arc::<Chains>::default();
        let parts = StoreParts { sched, log, pages, runs, txns, chains };
        let stop = Arc::new(AtomicBool::new(false));
        let mut actors = Actors::new(&stop);
        actors.start(&parts);
        let store = Store::create(parts, store_options(sizes)).unwrap();
        actors.start_store(&store);
        let Actors { events, tasks, reverts, cleans, .. } = actors;
        Db { store, reverts, cleans, stop, events, tasks: Mutex::new(tasks) }
    }

    /// Opens after a crash or a stop: replays the whole log.
    pub fn open(env: Arc<dyn Env>, sizes: Sizes, catalog_root: evenkeel_base::PageNo) -> Db {
        let rt = Runtime::new(env);
        let sched = Scheduler::new(rt.clone());
        let pages = Pages::open(sched.clone(), pages_options(sizes), Lsn(0)).unwrap();
        let (runs, txns) = parts(&sched, sizes);
        txns.restore(&[]).unwrap();
        let mut redo = PageRedo::new(&pages, &TreeRedo);
        let from = Lsn(0);
        let chains = Arc::<Chains>::default();
        let mut first = First { redo: &mut redo, runs: &runs, txns: &txns, chains: &chains };
        let end = replay(&rt, from, None, &mut first).unwrap();
        replay(&rt, from, Some(end.end), &mut Second(&mut redo)).unwrap();
        drop(redo);
        let log = Log::create(rt.clone(), log_options(sizes, end.epoch + 1), end.end).unwrap();
        pages.attach_log(log.clone()).unwrap();
        runs.attach_log(log.clone());
        txns.attach_log(log.clone());
        txns.finish_recovery().unwrap();
        let parts = StoreParts { sched, log, pages, runs, txns, chains };
        let stop = Arc::new(AtomicBool::new(false));
        let mut actors = Actors::new(&stop);
        actors.start(&parts);
        let store = Store::open(parts.clone(), store_options(sizes), catalog_root).unwrap();
        replay(parts.sched.runtime(), from, Some(end.end), &mut Entries(&parts.runs)).unwrap();
        parts.runs.finish_restore().unwrap();
        actors.start_store(&store);
        let Actors { events, tasks, reverts, cleans, .. } = actors;
        Db { store, reverts, cleans, stop, events, tasks: Mutex::new(tasks) }
    }

    pub fn begin(&self) -> TableTxn {
        self.store.begin(Isolation::RepeatableRead, Access::ReadWrite)
    }

    pub fn begin_at(&self, isolation: Isolation) -> TableTxn {
        self.store.begin(isolation, Access::ReadWrite)
    }

    /// From now on the background writes no pages: enough frames are free for a test.
    pub fn hold_cleaning(&self) {
        *self.cleans.lock() = false;
    }

    /// From now on the background rolls nothing back.
    pub fn hold_reverts(&self) {
        *self.reverts.lock() = 0;
    }

    /// Lets the background run `beats` rollback beats, and waits until they are done; with
    /// `u64::MAX` until no rollback is left.
    pub fn let_revert(&self, beats: u64) {
        *self.reverts.lock() = beats;
        self.store.txns.event().notify();
        let is_all = || match beats {
            u64::MAX => self.store.txns.rolling_back_count() == 0,
            _ => *self.reverts.lock() == 0,
        };
        while !is_all() {
            std::thread::yield_now();
        }
    }

    fn end_threads(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.events.iter().for_each(|event| event.notify());
        for task in self.tasks.lock().drain(..) {
            let _ = task.join();
        }
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end_threads();
        }
    }
}

struct Actors {
    stop: Arc<AtomicBool>,
    reverts: Arc<Mutex<u64>>,
    cleans: Arc<Mutex<bool>>,
    events: Vec<Arc<Event>>,
    tasks: Vec<Box<dyn Task>>,
}

impl Actors {
    fn new(stop: &Arc<AtomicBool>) -> Actors {
        let reverts = Arc::new(Mutex::new(u64::MAX));
        let (stop, cleans) = (stop.clone(), Arc::new(Mutex::new(true)));
        Actors { stop, reverts, cleans, events: Vec::new(), tasks: Vec::new() }
    }

    fn start(&mut self, parts: &StoreParts) {
        let rt = parts.sched.runtime();
        let (p, l) = (parts.pages.clone(), parts.log.clone());
        self.drive(rt, "free frames", p.free_frames_event(), move || p.free_frames_beat());
        let (p, cleans) = (parts.pages.clone(), self.cleans.clone());
        self.drive(rt, "clean", p.clean_event(), move || {
            let cleans = cleans.lock();
            if *cleans { p.clean_beat() } else { Ok(Beat::Idle) }
        });
        self.drive(rt, "log", l.event(), move || l.beat());
        let r = parts.runs.clone();
        self.drive(rt, "flush", r.flush_event(), move || r.flush_beat());
        let r = parts.runs.clone();
        self.drive(rt, "merge", r.compaction_event(), move || r.compaction_beat());
    }

    fn start_store(&mut self, store: &Arc<Store>) {
        let rt = store.rt.clone();
        let (s, reverts) = (store.clone(), self.reverts.clone());
        self.drive(&rt, "purge", s.txns.event(), move || {
            let mut left = reverts.lock();
            let more = *left > 0 && s.rollback_beat()? == Beat::More;
            *left -= u64::from(more && *left < u64::MAX);
            drop(left);
            let more = s.chain_beat()? == Beat::More || more;
            s.txns.spill_beat()?;
            let end = s.log.end();
            let low = s.runs.low_lsn().unwrap_or(end);
            let keep = |id| s.runs.is_pending(id) || s.is_needed(id);
            let purged = s.txns.purge_beat_but(Some(low), &keep)? == Beat::More;
            Ok(if more || purged { Beat::More } else { Beat::Idle })
        });
        let s = store.clone();
        self.drive(&rt, "reclaim", s.trees.reclaim_event(), move || s.trees.reclaim_beat());
    }

    fn drive(
        &mut self,
        rt: &Arc<Runtime>,
        name: &str,
        event: Arc<Event>,
        beat: impl Fn() -> Result<Beat> + Send + 'static,
    ) {
        let (rt2, stop) = (rt.clone(), self.stop.clone());
        self.events.push(event.clone());
        let run = move || {
            loop {
                let seen = event.now();
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                if !matches!(beat(), Ok(Beat::More)) {
                    rt2.wait(&event, seen, Some(Duration::from_millis(20)), Cause::Idle);
                }
            }
        };
        self.tasks.push(rt.spawn(name, run).unwrap());
    }
}

/// (id int primary key, a int, b text null), indexes on (a), (b desc, a), unique (c).
pub fn spec() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("a", ColumnType::Int32))
        .column(ColumnSpec::new("b", ColumnType::Text { max: 60 }).nullable())
        .column(ColumnSpec::new("c", ColumnType::Int32).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_a", &["a"]))
        .index(IndexSpec::new("by_b", &["b desc", "a"]))
        .index(IndexSpec::new("by_c", &["c"]).unique())
}

pub fn row_values(id: i64, a: i64, b: Option<&str>, c: Option<i64>) -> [ValueRef<'_>; 4] {
    [
        ValueRef::Int(id),
        ValueRef::Int(a),
        b.map_or(ValueRef::Null, ValueRef::Text),
        c.map_or(ValueRef::Null, ValueRef::Int),
    ]
}

/// All rows of a table at a transaction's view, in key order.
pub fn all_rows(txn: &mut TableTxn, table: &Arc<Table>, direction: Direction) -> Vec<Vec<Value>> {
    let mut scan = txn.scan(table, Range::ALL, direction).unwrap();
    let (mut row, mut rows) = (Row::new(), Vec::new());
    while scan.next(&mut row).unwrap() {
        rows.push(row.values().unwrap());
    }
    rows
}

/// Checks that every index holds exactly the rows of the table, in order, both directions,
/// index-only and through the table.
pub fn check_indexes(txn: &mut TableTxn, table: &Arc<Table>) {
    let rows = all_rows(txn, table, Direction::Forward);
    let mut back = all_rows(txn, table, Direction::Backward);
    back.reverse();
    assert_eq!(rows, back, "the table read backwards");
    let layout = table.layout();
    for (at, index) in layout.indexes.iter().enumerate() {
        let mut expected: Vec<(Vec<u8>, Vec<Value>)> = rows
            .iter()
            .map(|row| {
                let mut key = Vec::new();
                index.encode(&|i| Ok(row[i].as_ref()), 0, &mut key).unwrap();
                let mut pk = Vec::new();
                layout.encode_key(&|i| Ok(row[i].as_ref()), &mut pk).unwrap();
                key.extend_from_slice(&pk);
                (key, row.clone())
            })
            .collect();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        for direction in [Direction::Forward, Direction::Backward] {
            for keys_only in [false, true] {
                let mut scan = txn.index_scan(table, at, Range::ALL, direction, keys_only).unwrap();
                let (mut row, mut found) = (Row::new(), Vec::new());
                while scan.next(&mut row).unwrap() {
                    let known = |i: usize| row.value(i).map(|v| v.to_owned());
                    found
                        .push((0..layout.columns.len()).map(|i| known(i).ok()).collect::<Vec<_>>());
                }
                if direction == Direction::Backward {
                    found.reverse();
                }
                assert_eq!(
                    found.len(),
                    expected.len(),
                    "{}: {direction:?} {keys_only}",
                    index.name
                );
                for (found, (_, expected)) in found.iter().zip(&expected) {
                    for (found, expected) in found.iter().zip(expected) {
                        assert!(found.as_ref().is_none_or(|f| f == expected), "{}", index.name);
                        assert!(keys_only || found.is_some());
                    }
                }
            }
        }
    }
}

pub fn commit(txn: TableTxn) -> Lsn {
    txn.commit(Durability::Sync).unwrap()
}
