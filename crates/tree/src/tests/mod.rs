//! Tests of the tree over real pages and a real log: a small database, a commit table to set by
//! hand, row operations.
#![allow(clippy::unwrap_used)]

mod chains;
mod concurrent;
mod concurrent_inserts;
mod crash;
mod dead;
mod figures;
mod model;
mod reclaim;

use crate::{
    Direction, LeafDecision, LeafOp, LeafRow, OverflowReader, OverflowWriter, Passed, Size, Tree,
    TreeRedo, TreeReport, Trees, overflow,
};
use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{
    Beat, Cause, CommitTable, Lsn, Result, Stamp, TreeId, TxnId, TxnState, UndoNo,
};
use evenkeel_format::record::{RecordKind, cell_flags};
use evenkeel_io::{Env, Event, Runtime, Task};
use evenkeel_log::{Log, LogOptions, Replay, Share, replay};
use evenkeel_pages::{PageRedo, Pages, PagesOptions};
use evenkeel_sched::Scheduler;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub const PAGE: usize = 4096;
const LOG: u64 = 128 << 20;
pub const TREE: TreeId = TreeId(7);

/// A commit table that tests set by hand; unknown transactions are committed and old.
#[derive(Default)]
pub struct Commits {
    pub states: Mutex<HashMap<TxnId, TxnState>>,
    pub horizon: AtomicU64,
}

impl CommitTable for Commits {
    fn state(&self, txn: TxnId) -> TxnState {
        self.states.lock().get(&txn).copied().unwrap_or(TxnState::Committed(Lsn(0)))
    }
    fn is_dead(&self, stamp: Stamp) -> bool {
        self.state(stamp.txn) == TxnState::Aborted
    }
    fn horizon(&self) -> Lsn {
        Lsn(self.horizon.load(Ordering::SeqCst))
    }
    fn snapshot_between(&self, _: Lsn, _: Lsn) -> bool {
        true
    }
}

/// A database of one tree with its background threads.
pub struct Db {
    pub rt: Arc<Runtime>,
    pub log: Arc<Log>,
    pub pages: Arc<Pages>,
    pub commits: Arc<Commits>,
    pub trees: Arc<Trees>,
    /// Where replay ended at open.
    pub replayed_to: Lsn,
    stop: Arc<AtomicBool>,
    events: Vec<Arc<Event>>,
    tasks: Mutex<Vec<Box<dyn Task>>>,
}

fn log_options(epoch: u32, log_bytes: u64) -> LogOptions {
    LogOptions { log_bytes, buffer_bytes: 1 << 20, epoch }
}

fn pages_options(frames: usize) -> PagesOptions {
    let log_bytes = 64 << 20;
    PagesOptions { page_size: PAGE, pool_bytes: frames * PAGE, doublewrite: true, log_bytes }
}

/// Redo of every record since `from`, in the two passes that `PageRedo` asks for.
struct Pass<'a, 'b> {
    redo: &'a mut PageRedo<'b>,
    first: bool,
}

impl Replay for Pass<'_, '_> {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        if self.first { self.redo.scan(lsn, kind, body) } else { self.redo.apply(lsn, kind, body) }
    }
}

impl Db {
    pub fn create(env: Arc<dyn Env>, frames: usize) -> Db {
        Db::create_sized(env, frames, LOG)
    }

    pub fn create_sized(env: Arc<dyn Env>, frames: usize, log_bytes: u64) -> Db {
        let rt = Runtime::new(env);
        rt.env.create_dir("").unwrap();
        let log = Log::create(rt.clone(), log_options(1, log_bytes), Lsn(0)).unwrap();
        let pages = Pages::create(Scheduler::new(rt.clone()), pages_options(frames)).unwrap();
        Db::start(rt, log, pages)
    }

    /// Opens after a crash or a clean end: replays the whole log.
    pub fn open(env: Arc<dyn Env>, frames: usize) -> Db {
        let rt = Runtime::new(env);
        let pages = Pages::open(Scheduler::new(rt.clone()), pages_options(frames), Lsn(0)).unwrap();
        let mut redo = PageRedo::new(&pages, &TreeRedo);
        let from = Lsn(0);
        let end = replay(&rt, from, None, &mut Pass { redo: &mut redo, first: true }).unwrap();
        replay(&rt, from, Some(end.end), &mut Pass { redo: &mut redo, first: false }).unwrap();
        let log = Log::create(rt.clone(), log_options(end.epoch + 1, LOG), end.end).unwrap();
        let mut db = Db::start(rt, log, pages);
        db.replayed_to = end.end;
        db
    }

    fn start(rt: Arc<Runtime>, log: Arc<Log>, pages: Arc<Pages>) -> Db {
        pages.attach_log(log.clone()).unwrap();
        let commits = Arc::new(Commits::default());
        let trees = Trees::new(rt.clone(), pages.clone(), log.clone(), commits.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let mut db = Db {
            rt,
            log,
            pages,
            commits,
            trees,
            replayed_to: Lsn(0),
            stop,
            events: Vec::new(),
            tasks: Mutex::default(),
        };
        let (pages, log) = (db.pages.clone(), db.log.clone());
        db.drive("free frames", pages.free_frames_event(), move || pages.free_frames_beat());
        let pages = db.pages.clone();
        db.drive("clean", pages.clean_event(), move || pages.clean_beat());
        db.drive("log", log.event(), move || log.beat());
        db
    }

    fn drive(
        &mut self,
        name: &str,
        event: Arc<Event>,
        beat: impl Fn() -> Result<Beat> + Send + 'static,
    ) {
        let (rt, stop) = (self.rt.clone(), self.stop.clone());
        self.events.push(event.clone());
        let run = move || {
            loop {
                let seen = event.now();
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                if !matches!(beat(), Ok(Beat::More)) {
                    rt.wait(&event, seen, Some(Duration::from_millis(50)), Cause::Idle);
                }
            }
        };
        self.tasks.lock().push(self.rt.spawn(name, run).unwrap());
    }

    pub fn stop(mut self) {
        self.end_threads();
    }

    pub fn end_threads(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.events.iter().for_each(|event| event.notify());
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            let _ = task.join();
        }
    }

    pub fn tree(&self) -> Tree {
        self.trees.create(TREE).unwrap()
    }

    /// Runs reclaim beats until none finds work, a second after the earlier changes.
    pub fn reclaim(&self) {
        self.trees.reclaim.pass_second();
        let merges = || self.rt.metrics.get(Metric::LeafMerges);
        let before = merges();
        while self.trees.reclaim_beat().unwrap() == Beat::More {
            assert!(merges() - before < 8_000, "merging goes on and on");
        }
    }

    pub fn put(&self, tree: &Tree, key: &[u8], put: Put<'_>) -> Lsn {
        self.write(tree, key, Some(put)).unwrap()
    }

    pub fn remove(&self, tree: &Tree, key: &[u8]) -> Lsn {
        self.write(tree, key, None).unwrap()
    }

    pub fn write(&self, tree: &Tree, key: &[u8], put: Option<Put<'_>>) -> Result<Lsn> {
        let mut reserved = self.log.reserve(key.len() + PAGE + 100, Share::User)?;
        let mut op = Op { put, prepared: 0, lsn: Lsn(0) };
        tree.write(key, &mut reserved, &mut op)?;
        assert_eq!(op.prepared, 1);
        Ok(op.lsn)
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end_threads();
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    pub flags: u8,
    pub txn: u64,
    pub row: &'a [u8],
}

pub fn plain(row: &[u8]) -> Put<'_> {
    Put { flags: 0, txn: 0, row }
}

struct Op<'a> {
    put: Option<Put<'a>>,
    prepared: u32,
    lsn: Lsn,
}

impl LeafOp for Op<'_> {
    fn decide<'a>(&'a mut self, current: Option<LeafRow<'_>>) -> Result<LeafDecision<'a>> {
        let kind = RecordKind::Row;
        Ok(match self.put {
            None => LeafDecision::Remove { kind },
            Some(Put { flags, txn, row }) => {
                let stamp = Stamp { txn: TxnId(txn), undo_no: UndoNo(1) };
                let stamped = if txn != 0 { cell_flags::STAMPED } else { 0 };
                let flags = if current.is_some() { flags & !cell_flags::FIRST } else { flags };
                LeafDecision::Put { kind, flags: flags | stamped, stamp, row }
            }
        })
    }
    fn prepare(&mut self, _: Option<LeafRow<'_>>) -> &[u8] {
        self.prepared += 1;
        b"logical half"
    }
    fn logged(&mut self, lsn: Lsn) {
        self.lsn = lsn;
    }
}

pub fn get(tree: &Tree, key: &[u8]) -> Option<(u8, Vec<u8>)> {
    let mut found = None;
    tree.get(key, &mut |row| found = row.map(|r| (r.flags, r.row.to_vec()))).unwrap();
    found
}

/// Keys and rows of a range, with both bounds as the cursor takes them.
pub fn scan(
    tree: &Tree,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    dir: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = tree.cursor();
    cursor.seek(from, dir).unwrap();
    let mut rows = Vec::new();
    while let Some((key, row)) = cursor.next().unwrap() {
        let (key, row) = (key.to_vec(), row.row.to_vec());
        if cursor.is_past(&key, to) {
            break;
        }
        rows.push((key, row));
    }
    rows
}

pub fn check(tree: &Tree) -> TreeReport {
    let report = tree.check().unwrap();
    assert_eq!(report.problems, []);
    report
}

/// A seeded generator, so that a failure names its seed.
pub struct Rand(pub u64);

impl Rand {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
