//! G4: on a full disk compactions free the garbage in runs, within the space of the ballast.

use super::test_support::{Commits, Random, TestLog, spec, stamp};
use crate::{Direction, KeyRange, Runs, RunsOptions, entry_bytes};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, IndexId, Lsn, Snapshot, TxnId, TxnState};
use evenkeel_format::record::Entry;
use evenkeel_format::record::entry_op::{DEL, FRESH, INS};
use evenkeel_io::sim::SimEnv;
use evenkeel_sched::Scheduler;
use evenkeel_sched::laws::compaction::Spare;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BALLAST: u64 = 256 << 10;
/// A sixteenth of a generation.
const PIECE: u64 = 64 << 10;

struct Disk {
    sim: SimEnv,
    commits: Arc<Commits>,
    log: Arc<TestLog>,
    runs: Arc<Runs>,
}

impl Disk {
    fn new() -> Disk {
        let sim = SimEnv::new(7);
        let (commits, log) = (Arc::<Commits>::default(), Arc::<TestLog>::default());
        let options = RunsOptions { generation_bytes: 16 << 20, cache_bytes: 1 << 20 };
        let runs =
            Runs::create(Scheduler::new(sim.runtime()), options, commits.clone()).expect("creates");
        runs.segment_bytes_set.store(1 << 20, Ordering::Relaxed);
        runs.attach_log(log.clone());
        runs.finish_restore().expect("starts");
        (1..=3).for_each(|index| runs.add_index(spec(index, false, false)));
        Disk { sim, commits, log, runs }
    }

    /// A run of an index with these keys, in mixed order.
    fn run(&self, index: u32, op: u8, keys: impl Iterator<Item = u64>) {
        self.run_with(index, op, keys, 0);
    }

    /// With values of `bytes` bytes, all different.
    fn run_with(&self, index: u32, op: u8, keys: impl Iterator<Item = u64>, bytes: usize) {
        let mut random = Random(1);
        for n in keys {
            let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            let value: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
            let mut reserved = self.runs.reserve(entry_bytes(8, 1, bytes)).expect("space");
            let (pin, lsn) = (self.runs.pin(), self.log.next());
            let entry = Entry { index: IndexId(index), op, key: &key, value: &value };
            self.runs.insert(&pin, &mut reserved, &entry, b"p", stamp(lsn.0, 1), lsn);
            self.commits.set(TxnId(lsn.0), TxnState::Committed(self.log.next()));
        }
        self.runs.seal_active();
        while self.runs.flush_beat().expect("flushes") == Beat::More {}
    }

    /// From now on there is room for the ballast and no more; generations, and so pieces, are
    /// small.
    fn is_full(&self) -> u64 {
        let small = RunsOptions { generation_bytes: 16 * PIECE, cache_bytes: 1 << 20 };
        self.runs.set_memory(small);
        let used = self.sim.disk().used_bytes();
        self.sim.disk().set_capacity(Some(used + BALLAST));
        used
    }

    /// Compacts until no work is left; returns the most bytes used meanwhile.
    fn compaction(&self) -> u64 {
        let mut most = 0;
        while self.runs.compaction_beat().expect("merges") == Beat::More {
            most = self.sim.disk().used_bytes().max(most);
            self.runs.state.read().check();
        }
        most
    }

    fn runs(&self, index: u32) -> u64 {
        self.runs.stats(IndexId(index)).runs
    }

    fn rows(&self, index: u32) -> usize {
        let all = Snapshot::committed_at(Lsn::MAX);
        let (range, forward) = (KeyRange::all(), Direction::Forward);
        let mut cursor = self.runs.cursor(IndexId(index), range, forward, all).expect("opens");
        let mut rows = 0;
        while cursor.next().expect("reads").is_some() {
            rows += 1;
        }
        rows
    }

    fn metric(&self, metric: Metric) -> u64 {
        self.runs.rt.metrics.get(metric)
    }
}

#[test]
fn a_full_disk_runs_only_compactions_that_free_space() {
    let disk = Disk::new();
    // Without garbage, but with an optional compaction left.
    (0..3).for_each(|i| disk.run(1, INS | FRESH, i * 20_000..(i + 1) * 20_000));
    // At rest by its sizes, with some garbage.
    disk.run(2, INS | FRESH, 0..40_000);
    disk.run(2, DEL, 0..3_500);
    // Garbage alone.
    disk.run(3, INS | FRESH, 0..20_000);
    disk.run(3, DEL, 0..20_000);
    let used = disk.is_full();
    disk.runs.set_short(true);
    while disk.metric(Metric::CompactionsFinished) == 0 {
        assert_eq!(disk.runs.compaction_beat().expect("merges"), Beat::More);
    }
    assert_eq!((disk.runs(1), disk.runs(2), disk.runs(3)), (3, 2, 0), "the most garbage is first");
    let most = disk.compaction();
    assert!(most <= used + 3 * PIECE, "{} bytes of the ballast", most - used);
    assert_eq!((disk.runs(1), disk.runs(2)), (3, 1));
    assert_eq!((disk.rows(1), disk.rows(2), disk.rows(3)), (60_000, 36_500, 0));
    let now = disk.sim.disk().used_bytes();
    assert!(now + (200 << 10) < used, "{now} bytes of {used}");
    // The rest waits until there is space.
    disk.sim.disk().set_capacity(None);
    disk.runs.set_short(false);
    disk.runs.compact_to_rest().expect("merges");
    assert_eq!((disk.runs(1), disk.rows(1)), (1, 60_000));
}

/// A snapshot needs the apparent garbage: the compaction stops before the ballast is used up, and
/// continues when there is space.
#[test]
fn a_compaction_that_frees_nothing_stops() {
    let disk = Disk::new();
    disk.run_with(1, INS | FRESH, 0..20_000, 100);
    let published = disk.commits.inner.lock().published;
    // The second snapshot keeps timestamps, so that the output is no smaller.
    disk.commits.inner.lock().snapshots.extend([Lsn(1), published]);
    disk.run(1, DEL, 0..19_000);
    let used = disk.is_full();
    disk.runs.set_short(true);
    let most = disk.compaction();
    assert!(most <= used + BALLAST, "{} bytes of the ballast", most - used);
    assert_eq!(
        (disk.metric(Metric::CompactionsAbandoned), disk.metric(Metric::CompactionsFinished)),
        (1, 0)
    );
    assert!(disk.metric(Metric::CompactionPieces) > 2);
    assert_eq!(disk.rows(1), 1_000);
    disk.commits.inner.lock().snapshots.clear();
    disk.sim.disk().set_capacity(None);
    disk.runs.set_short(false);
    disk.runs.compact_to_rest().expect("merges");
    assert_eq!((disk.runs(1), disk.rows(1)), (1, 1_000));
    assert_eq!(disk.runs.stats(IndexId(1)).run_entries, 1_000);
}

/// While the ballast is held: a compaction that would free space and finds none requests the
/// ballast.
#[test]
fn a_compaction_that_frees_space_may_have_the_ballast() {
    for has_garbage in [false, true] {
        let disk = Disk::new();
        disk.run(1, INS | FRESH, 0..20_000);
        disk.run(1, if has_garbage { DEL } else { INS | FRESH }, 10_000..20_000);
        let used = disk.is_full();
        disk.sim.disk().set_capacity(Some(used));
        for _ in 0..3 {
            let error = loop {
                match disk.runs.compaction_step(Spare::All) {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(error.code(), Code::DiskFull);
        }
        assert_eq!(disk.runs.needs_space(), has_garbage);
        disk.sim.disk().set_capacity(Some(used + BALLAST));
        disk.runs.set_short(true);
        disk.compaction();
        assert_eq!(
            (disk.runs(1), disk.runs.needs_space()),
            (if has_garbage { 1 } else { 2 }, false)
        );
    }
}

/// Garbage that a snapshot kept in one run is removed when the snapshot ends, once: not repeatedly
/// before that, and not if it is little.
#[test]
fn garbage_in_a_single_run_is_compacted_away() {
    let disk = Disk::new();
    let snapshot = || {
        let inner = &mut *disk.commits.inner.lock();
        inner.snapshots.push(inner.published);
    };
    (1..=3).for_each(|index| disk.run(index, INS | FRESH, 0..20_000));
    snapshot();
    disk.run(1, DEL, 0..15_000);
    disk.run(2, DEL, 0..4_000);
    // Old versions of two keys in three.
    disk.run_with(3, INS, 0..14_000, 4);
    snapshot();
    disk.run_with(3, INS, 0..14_000, 4);
    disk.runs.compact_to_rest().expect("merges");
    let entries = |index| disk.runs.stats(IndexId(index)).run_entries;
    let compactions = || disk.metric(Metric::CompactionsStarted);
    assert_eq!((disk.runs(1), disk.runs(2), disk.runs(3)), (1, 1, 1));
    assert_eq!((entries(1), entries(2), entries(3)), (35_000, 24_000, 48_000));
    let before = compactions();
    for _ in 0..3 {
        disk.runs.compact_to_rest().expect("merges");
    }
    assert_eq!(compactions(), before, "a snapshot needs it");
    assert!(disk.runs.next_compaction_in().is_some(), "it is looked after");
    disk.commits.inner.lock().snapshots.clear();
    disk.runs.compact_to_rest().expect("merges");
    assert_eq!((entries(1), entries(2), entries(3)), (5_000, 24_000, 20_000));
    assert_eq!(compactions(), before + 2);
    disk.runs.compact_to_rest().expect("merges");
    assert_eq!(compactions(), before + 2, "there is none any more");
    // On a full disk a sixteenth is worth it.
    disk.is_full();
    disk.runs.set_short(true);
    disk.compaction();
    assert_eq!((entries(1), entries(2), compactions()), (5_000, 16_000, before + 3));
    assert_eq!((disk.rows(1), disk.rows(2), disk.rows(3)), (5_000, 16_000, 20_000));
}
