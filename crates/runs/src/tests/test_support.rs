//! A commit table, a log of manifest records, and a database directory.

use crate::{Direction, IndexSpec, KeyRange, ManifestLog, Runs, RunsOptions, entry_bytes};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{
    Beat, Code, CommitTable, Error, IndexId, Lsn, Result, Snapshot, Stamp, TxnId, TxnState, UndoNo,
};
use evenkeel_format::record::Entry;
use evenkeel_io::{Env, RealEnv, Runtime};
use evenkeel_sched::Scheduler;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
pub(super) struct Commits {
    pub inner: Mutex<CommitsInner>,
}

#[derive(Default)]
pub(super) struct CommitsInner {
    pub states: HashMap<TxnId, TxnState>,
    pub dead: HashMap<TxnId, Vec<(u32, u32)>>,
    pub snapshots: Vec<Lsn>,
    pub published: Lsn,
}

impl Commits {
    pub(super) fn set(&self, txn: TxnId, state: TxnState) {
        let mut inner = self.inner.lock();
        inner.states.insert(txn, state);
        if let TxnState::Committed(cts) = state {
            inner.published = inner.published.max(cts);
        }
    }

    /// Operations from..=to of a transaction are rolled back.
    pub(super) fn revert(&self, txn: TxnId, from: u32, to: u32) {
        self.inner.lock().dead.entry(txn).or_default().push((from, to));
    }
}

impl CommitTable for Commits {
    fn state(&self, txn: TxnId) -> TxnState {
        self.inner.lock().states.get(&txn).copied().unwrap_or(TxnState::Committed(Lsn::ZERO))
    }
    fn is_dead(&self, stamp: Stamp) -> bool {
        let inner = self.inner.lock();
        if inner.states.get(&stamp.txn) == Some(&TxnState::Aborted) {
            return true;
        }
        let dead = inner.dead.get(&stamp.txn);
        dead.is_some_and(|d| d.iter().any(|(a, b)| (*a..=*b).contains(&stamp.undo_no.0)))
    }
    fn horizon(&self) -> Lsn {
        let inner = self.inner.lock();
        inner.snapshots.iter().copied().min().unwrap_or(inner.published)
    }
    fn snapshot_between(&self, low: Lsn, high: Lsn) -> bool {
        self.inner.lock().snapshots.iter().any(|s| low <= *s && *s < high)
    }
}

#[derive(Default)]
pub(super) struct TestLog {
    pub end: AtomicU64,
    pub records: Mutex<Vec<(Lsn, Vec<u8>)>>,
    /// The sync of a record fails, though it is in the log.
    pub sync_fails: AtomicBool,
}

impl TestLog {
    pub(super) fn next(&self) -> Lsn {
        Lsn(self.end.fetch_add(10, Ordering::SeqCst))
    }
}

impl ManifestLog for TestLog {
    fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::SeqCst))
    }
    fn capacity(&self) -> u64 {
        1 << 40
    }
    fn append_manifest(&self, body: &[u8]) -> Result<Lsn> {
        let lsn = self.next();
        self.records.lock().push((lsn, body.to_vec()));
        match self.sync_fails.load(Ordering::SeqCst) {
            true => Err(Error::new(Code::WritesStopped)),
            false => Ok(lsn),
        }
    }
}

pub(super) struct Fixture {
    pub dir: tempfile::TempDir,
    pub rt: Arc<Runtime>,
    pub commits: Arc<Commits>,
    pub log: Arc<TestLog>,
    pub runs: Arc<Runs>,
    pub options: RunsOptions,
}

impl Fixture {
    pub(super) fn new(generation_bytes: u64) -> Fixture {
        let dir = tempfile::tempdir().expect("temporary directory");
        let env = Arc::new(RealEnv::new(dir.path()));
        Fixture::over(env, dir, generation_bytes)
    }

    /// A fixture on a simulated disk, for use in one of its threads.
    pub(super) fn simulated(env: Arc<dyn Env>, generation_bytes: u64) -> Fixture {
        let dir = tempfile::tempdir().expect("temporary directory");
        Fixture::over(env, dir, generation_bytes)
    }

    fn over(env: Arc<dyn Env>, dir: tempfile::TempDir, generation_bytes: u64) -> Fixture {
        let options = RunsOptions { generation_bytes, cache_bytes: 8 << 20 };
        let rt = Runtime::new(env);
        let commits = Arc::new(Commits::default());
        let log = Arc::new(TestLog { end: AtomicU64::new(1000), ..TestLog::default() });
        let runs =
            Runs::create(Scheduler::new(rt.clone()), options, commits.clone()).expect("creates");
        runs.attach_log(log.clone());
        runs.finish_restore().expect("starts");
        Fixture { dir, rt, commits, log, runs, options }
    }

    /// A new component over the same directory, before any restore.
    pub(super) fn reopen(&mut self) {
        self.rt = Runtime::new(self.rt.env.clone());
        self.runs =
            Runs::create(Scheduler::new(self.rt.clone()), self.options, self.commits.clone())
                .expect("opens");
        self.runs.attach_log(self.log.clone());
    }

    /// Approximate size of the files of compacted runs, and so of compaction pieces.
    pub(super) fn set_segment_bytes(&self, bytes: u64) {
        self.runs.segment_bytes_set.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn flush(&self) {
        self.runs.seal_active();
        while self.runs.flush_beat().expect("flushes") == Beat::More {}
    }
}

pub(super) fn stamp(txn: u64, undo_no: u32) -> Stamp {
    Stamp { txn: TxnId(txn), undo_no: UndoNo(undo_no) }
}

/// A repeatable random number generator (SplitMix64).
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

pub(super) fn spec(id: u32, unique_key: bool, building: bool) -> IndexSpec {
    IndexSpec { id: IndexId(id), unique_key, building, valid_from: Lsn::ZERO }
}

impl Fixture {
    /// One committed operation of a transaction of its own.
    pub(super) fn put(&self, index: u32, op: u8, key: &[u8], pk: &[u8]) {
        let mut reserved = self.runs.reserve(entry_bytes(key.len(), pk.len(), 0)).expect("space");
        let pin = self.runs.pin();
        let lsn = self.log.next();
        self.commits.set(TxnId(lsn.0), TxnState::Active);
        let entry = Entry { index: IndexId(index), op, key, value: b"" };
        self.runs.insert(&pin, &mut reserved, &entry, pk, stamp(lsn.0, 1), lsn);
        self.commits.set(TxnId(lsn.0), TxnState::Committed(self.log.next()));
    }

    pub(super) fn count(&self, index: u32) -> usize {
        let (range, all) = (KeyRange::all(), Snapshot::committed_at(Lsn::MAX));
        let mut cursor = self
            .runs
            .cursor(IndexId(index), range.clone(), Direction::Forward, all)
            .expect("opens");
        let mut count = 0;
        while cursor.next().expect("reads").is_some() {
            count += 1;
        }
        count
    }
}
