//! D2: the cost of many small indexes: memory of an unused one, files, syncs and records of flushes
//! and of compactions. RFC 13 has the figures; `--nocapture` prints them.
#![allow(unsafe_code)]

use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{
    Beat, CommitTable, IndexId, Lsn, Result, Snapshot, Stamp, TxnId, TxnState, UndoNo,
};
use evenkeel_format::record::{Entry, entry_op};
use evenkeel_io::{Env, RealEnv, Runtime};
use evenkeel_runs::{Direction, IndexSpec, KeyRange, ManifestLog, Runs, RunsOptions, entry_bytes};
use evenkeel_sched::Scheduler;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Bytes of memory that an index takes at most, with a single run or without (D2).
const COLD_BYTES_MAX: i64 = 64;

/// The tests of this file measure the memory of the process: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Bytes currently allocated.
static BYTES: AtomicI64 = AtomicI64::new(0);

struct Counting;

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Every transaction is committed at ten times its id; there are no snapshots.
struct Commits;
impl CommitTable for Commits {
    fn state(&self, txn: TxnId) -> TxnState {
        TxnState::Committed(Lsn(txn.0 * 10))
    }
    fn is_dead(&self, _stamp: Stamp) -> bool {
        false
    }
    fn horizon(&self) -> Lsn {
        Lsn::MAX
    }
    fn snapshot_between(&self, _low: Lsn, _high: Lsn) -> bool {
        false
    }
}

/// Counts records and their bytes.
#[derive(Default)]
struct Log {
    end: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
}
impl ManifestLog for Log {
    fn end(&self) -> Lsn {
        Lsn(self.end.load(Relaxed))
    }
    fn capacity(&self) -> u64 {
        1 << 40
    }
    fn append_manifest(&self, body: &[u8]) -> Result<Lsn> {
        self.records.fetch_add(1, Relaxed);
        self.bytes.fetch_add(body.len() as u64, Relaxed);
        Ok(Lsn(self.end.fetch_add(10, Relaxed)))
    }
}

struct Bed {
    rt: Arc<Runtime>,
    log: Arc<Log>,
    runs: Arc<Runs>,
    _dir: tempfile::TempDir,
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::tempdir().expect("a directory");
        let rt = Runtime::new(Arc::new(RealEnv::new(dir.path())) as Arc<dyn Env>);
        let options = RunsOptions { generation_bytes: 256 << 20, cache_bytes: 1 << 20 };
        let runs =
            Runs::create(Scheduler::new(rt.clone()), options, Arc::new(Commits)).expect("creates");
        let log = Arc::<Log>::default();
        log.end.store(1 << 30, Relaxed);
        runs.attach_log(log.clone());
        runs.finish_restore().expect("starts");
        runs.set_resident_bytes(0);
        Bed { rt, log, runs, _dir: dir }
    }

    fn add(&self, indexes: u32) {
        for id in 1..=indexes {
            let id = IndexId(id);
            let spec = IndexSpec { id, unique_key: false, building: false, valid_from: Lsn::ZERO };
            self.runs.add_index(spec);
        }
    }

    /// A run of each index.
    fn flush(&self, indexes: u32, rows: u64) {
        for id in 1..=indexes {
            for n in 0..rows {
                let key = (n * 1000 + self.log.end.load(Relaxed)).to_be_bytes();
                let mut reserved = self.runs.reserve(entry_bytes(8, 8, 0)).expect("space");
                let (pin, lsn) = (self.runs.pin(), Lsn(self.log.end.fetch_add(10, Relaxed)));
                let op = entry_op::INS | entry_op::FRESH;
                let entry = Entry { index: IndexId(id), op, key: &key, value: b"" };
                let stamp = Stamp { txn: TxnId(lsn.0 / 10), undo_no: UndoNo(1) };
                self.runs.insert(&pin, &mut reserved, &entry, &n.to_be_bytes(), stamp, lsn);
            }
        }
        self.runs.seal_active();
        while self.runs.flush_beat().expect("flushes") == Beat::More {}
    }

    fn rows(&self, index: u32) -> usize {
        let (range, all) = (KeyRange::all(), Snapshot::committed_at(Lsn::MAX));
        let cursor = self.runs.cursor(IndexId(index), range, Direction::Forward, all);
        let (mut cursor, mut rows) = (cursor.expect("opens"), 0);
        while cursor.next().expect("reads").is_some() {
            rows += 1;
        }
        rows
    }

    fn figures(&self) -> Figures {
        Figures {
            files: self.rt.env.list("runs").expect("lists").len() as u64,
            syncs: self.rt.metrics.get(Metric::FileSyncs),
            records: self.log.records.load(Relaxed),
            record_bytes: self.log.bytes.load(Relaxed),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Figures {
    files: u64,
    syncs: u64,
    records: u64,
    record_bytes: u64,
}

impl Figures {
    fn since(self, before: Figures) -> Figures {
        Figures {
            files: self.files,
            syncs: self.syncs - before.syncs,
            records: self.records - before.records,
            record_bytes: self.record_bytes - before.record_bytes,
        }
    }
}

fn bytes_each(before: i64, indexes: u32) -> i64 {
    (BYTES.load(Relaxed) - before) / i64::from(indexes)
}

#[test]
fn many_small_indexes_take_little_memory() {
    let _alone = ALONE.lock();
    const INDEXES: u32 = 20_000;
    let bed = Bed::new();
    let before = BYTES.load(Relaxed);
    bed.add(INDEXES);
    let empty = bytes_each(before, INDEXES);
    assert!(empty <= COLD_BYTES_MAX, "{empty} bytes of an index without runs");
    let start = bed.figures();
    bed.flush(INDEXES, 4);
    let one = bytes_each(before, INDEXES);
    let flush = bed.figures().since(start);
    println!(
        "memory of an index: {empty} bytes, {one} with a run; a flush of {INDEXES}: {flush:?}"
    );
    assert_eq!((flush.files, flush.records), (1, 1), "a flush is one file and one record");
    assert!(flush.syncs <= 2, "{flush:?}");
    assert!(one <= COLD_BYTES_MAX, "{one} bytes of an index with a run");
    drop(bed);
}

#[test]
fn metadata_of_read_indexes_leaves_memory_when_room_is_short() {
    let _alone = ALONE.lock();
    const INDEXES: u32 = 5_000;
    let bed = Bed::new();
    let before = BYTES.load(Relaxed);
    bed.add(INDEXES);
    bed.flush(INDEXES, 4);
    bed.runs.set_resident_bytes(1 << 30);
    let read = || bed.rt.metrics.get(Metric::FileReads);
    let start = read();
    assert!((1..=INDEXES).all(|id| bed.runs.stats(IndexId(id)).run_entries == 4));
    let (warm, reads) = (bytes_each(before, INDEXES), read() - start);
    bed.runs.set_resident_bytes(0);
    let cold = bytes_each(before, INDEXES);
    println!(
        "memory of an index: {warm} bytes in use, {cold} when there is no room; {reads} reads"
    );
    assert!(reads <= 3, "{reads} reads: the footer is read once");
    assert!(warm > 300, "{warm} bytes of an index in memory");
    assert!(cold <= COLD_BYTES_MAX, "{cold} bytes of an index that was used");
    assert_eq!(bed.rows(1), 4);
}

#[test]
fn compactions_of_many_small_indexes_are_shared() {
    let _alone = ALONE.lock();

    const MERGED: u32 = 500;
    let bed = Bed::new();
    bed.add(MERGED);
    (0..4).for_each(|_| bed.flush(MERGED, 4));
    let start = bed.figures();
    assert_eq!(start.files, 4);
    bed.runs.compact_to_rest().expect("merges");
    let compaction = bed.figures().since(start);
    println!("merges of {MERGED} indexes: {compaction:?}");
    assert!((1..=MERGED).all(|id| bed.runs.stats(IndexId(id)).runs == 1));
    assert_eq!((bed.rows(1), bed.rows(MERGED)), (16, 16));
    assert!(
        compaction.files <= 2 && compaction.records <= 2 && compaction.syncs <= 4,
        "{compaction:?}"
    );
}
