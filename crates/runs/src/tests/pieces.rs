//! Compactions in pieces: segments without overlap are moved, finished pieces stay, and the space
//! needed is that of a piece.

use super::test_support::{Commits, Fixture, Random, TestLog, spec, stamp};
use crate::{Direction, KeyRange, Runs, RunsOptions, entry_bytes};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, IndexId, Lsn, Snapshot, TxnId, TxnState};
use evenkeel_format::record::{Entry, entry_op};
use evenkeel_io::sim::SimEnv;
use evenkeel_sched::Scheduler;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const FRESH: u8 = entry_op::INS | entry_op::FRESH;

impl Fixture {
    fn metric(&self, metric: Metric) -> u64 {
        self.rt.metrics.get(metric)
    }

    /// Restarts over the same directory, with all records of the log.
    fn restart(&mut self) {
        self.reopen();
        let records = self.log.records.lock().clone();
        records.iter().for_each(|(_, body)| self.runs.apply_manifest(body).expect("applies"));
        self.runs.finish_restore().expect("opens");
        self.runs.add_index(spec(1, false, false));
    }

    fn keys(&self, direction: Direction) -> Vec<Vec<u8>> {
        let all = Snapshot::committed_at(Lsn::MAX);
        let range = KeyRange::all();
        let mut cursor = self.runs.cursor(IndexId(1), range, direction, all).expect("opens");
        let mut keys = Vec::new();
        while let Some(entry) = cursor.next().expect("reads") {
            keys.push(entry.key.to_vec());
        }
        keys
    }
}

/// The visible state of a compaction: its index, the number of its runs, and the remaining bytes,
/// which decrease.
#[test]
fn a_running_compaction_reports_its_remaining_bytes() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    for run in 0..4u32 {
        (0..9_000u32).for_each(|n| rig.put(1, FRESH, &(4 * n + run).to_be_bytes(), b"0123456789"));
        rig.flush();
    }
    assert_eq!(rig.runs.compactions_under_way(), []);
    let mut seen = Vec::new();
    while rig.runs.compaction_beat().expect("merges") == Beat::More {
        seen.extend(rig.runs.compactions_under_way());
    }
    assert!(seen.len() >= 2, "{seen:?}");
    assert!(seen.iter().all(|m| m.index == IndexId(1) && m.runs == 4 && m.bytes > 100_000));
    assert!(seen.windows(2).all(|two| two[1].left_bytes < two[0].left_bytes), "{seen:?}");
    assert_eq!(rig.runs.compactions_under_way(), [], "it has ended");
}

/// D3: an index on a timestamp is moved by compactions without writing.
#[test]
fn time_ordered_inserts_are_never_written_again() {
    let mut rig = Fixture::new(1 << 20);
    rig.set_segment_bytes(256 << 10);
    rig.runs.add_index(spec(1, false, false));
    let mut random = Random(1);
    let (mut at, mut keys) = (0u64, Vec::new());
    for flush in 0..60 {
        for _ in 0..2000 {
            at += 1 + random.below(1000);
            let key = [at.to_be_bytes(), random.next().to_be_bytes()].concat();
            rig.put(1, FRESH, &key, b"p");
            keys.push(key);
        }
        rig.flush();
        if flush % 3 == 0 {
            rig.runs.compact_to_rest().expect("merges");
            assert!(rig.runs.runs_max() <= 3);
        }
    }
    assert_eq!(rig.metric(Metric::CompactionWriteBytes), 0, "nothing was written twice");
    assert!(rig.metric(Metric::TrivialMoveBytes) > rig.metric(Metric::RunFlushBytes));
    for again in [false, true] {
        if again {
            rig.restart();
        }
        rig.runs.state.read().check();
        rig.runs.check(IndexId(1)).expect("sound");
        assert_eq!(rig.keys(Direction::Forward), keys);
        assert!(rig.keys(Direction::Reverse).iter().rev().eq(&keys));
    }
    // Keys in mixed order are written again, so the count above is meaningful.
    for _ in 0..4 {
        (0..2000).for_each(|_| rig.put(1, FRESH, &random.next().to_be_bytes(), b"p"));
        rig.flush();
    }
    rig.runs.compact_to_rest().expect("merges");
    assert!(rig.metric(Metric::CompactionWriteBytes) > 100_000);
}

/// A small slice is rewritten: otherwise files of one block each would accumulate.
#[test]
fn small_slices_are_merged() {
    let rig = Fixture::new(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    for n in 0..64u32 {
        (0..50).for_each(|i| rig.put(1, FRESH, &(n * 50 + i).to_be_bytes(), b"p"));
        rig.flush();
        rig.runs.compact_to_rest().expect("merges");
    }
    let stats = rig.runs.stats(IndexId(1));
    assert!(stats.segments <= 6, "{stats:?}");
    assert_eq!(rig.count(1), 3200);
}

/// Slices of other indexes in the file of a live slice give their bytes back.
#[test]
fn dead_slices_of_a_live_file_give_back_their_space() {
    let rig = Fixture::new(4 << 20);
    rig.set_segment_bytes(256 << 10);
    (1..=2).for_each(|index| rig.runs.add_index(spec(index, false, false)));
    let mut random = Random(3);
    for round in 0..8u64 {
        for n in 0..4000u64 {
            rig.put(1, FRESH, &(round * 4000 + n).to_be_bytes(), b"p");
            rig.put(2, FRESH, &random.next().to_be_bytes(), b"p");
        }
        rig.flush();
    }
    rig.runs.compact_to_rest().expect("merges");
    rig.runs.compaction_beat().expect("gives back");
    let dir = rig.dir.path().join("runs");
    let blocks = |path: std::path::PathBuf| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).expect("is there").blocks() * 512
    };
    let names = rig.rt.env.list("runs").expect("lists");
    let used: u64 = names.iter().map(|name| blocks(dir.join(name))).sum();
    let live: u64 = [1, 2].map(|i| rig.runs.stats(IndexId(i)).run_bytes).iter().sum();
    assert!(rig.metric(Metric::RunPunchedBytes) > live / 3);
    assert!(used < live + live / 4, "{used} bytes of files for {live}");
}

/// A compaction that a restart or a lack of space stopped between two pieces does not repeat them.
#[test]
fn finished_pieces_of_a_compaction_are_not_repeated() {
    let filled = || {
        let rig = Fixture::new(1 << 20);
        rig.runs.add_index(spec(1, false, false));
        rig.set_segment_bytes(16 << 10);
        let mut random = Random(9);
        for _ in 0..4 {
            (0..4000).for_each(|_| rig.put(1, FRESH, &random.next().to_be_bytes(), b"p"));
            rig.flush();
        }
        rig
    };
    let whole = filled();
    whole.runs.compact_to_rest().expect("merges");
    let whole = whole.metric(Metric::CompactionWriteBytes);
    let mut rig = filled();
    while rig.metric(Metric::CompactionPieces) < 4 {
        assert_eq!(rig.runs.compaction_beat().expect("merges"), Beat::More);
    }
    let first = rig.metric(Metric::CompactionWriteBytes);
    assert!(
        rig.metric(Metric::CompactionsFinished) == 0 && first > whole / 5,
        "{first} of {whole}"
    );
    assert_eq!(rig.runs.runs_max(), 4, "its output is not a run more");
    let blob = rig.runs.snapshot_blob();
    rig.restart();
    rig.set_segment_bytes(16 << 10);
    assert_eq!(rig.count(1), 16_000);
    assert_eq!(rig.runs.stats(IndexId(1)).runs, 5);
    rig.runs.compact_to_rest().expect("merges");
    let second = rig.metric(Metric::CompactionWriteBytes);
    assert!(first + second < whole + whole / 8, "{first} and {second} bytes for {whole}");
    assert_eq!(rig.metric(Metric::CompactionsStarted), 1);
    assert_eq!((rig.count(1), rig.runs.stats(IndexId(1)).runs), (16_000, 1));
    rig.runs.check(IndexId(1)).expect("sound");
    // A checkpoint in the middle of the compaction and the later records give the same state.
    let records = rig.log.records.lock().clone();
    rig.reopen();
    rig.runs.restore(&blob).expect("restores");
    let behind = records.iter().skip(8);
    behind.for_each(|(_, body)| rig.runs.apply_manifest(body).expect("applies"));
    rig.runs.finish_restore().expect("opens");
    assert_eq!(rig.runs.stats(IndexId(1)).runs, 1);
}

/// Four runs of random keys of a unique index on a simulated disk.
fn on_a_disk(rows: u64) -> (SimEnv, Arc<Runs>) {
    let sim = SimEnv::new(7);
    let (commits, log) = (Arc::<Commits>::default(), Arc::<TestLog>::default());
    let options = RunsOptions { generation_bytes: 8 << 20, cache_bytes: 1 << 20 };
    let runs =
        Runs::create(Scheduler::new(sim.runtime()), options, commits.clone()).expect("creates");
    runs.segment_bytes_set.store(64 << 10, Ordering::Relaxed);
    runs.attach_log(log.clone());
    runs.finish_restore().expect("starts");
    runs.add_index(spec(1, true, false));
    let mut random = Random(5);
    for _ in 0..4 {
        for _ in 0..rows / 4 {
            let key = random.next().to_be_bytes();
            let mut reserved = runs.reserve(entry_bytes(8, 1, 0)).expect("space");
            let (pin, lsn) = (runs.pin(), log.next());
            let entry = Entry { index: IndexId(1), op: FRESH, key: &key, value: b"" };
            runs.insert(&pin, &mut reserved, &entry, b"p", stamp(lsn.0, 1), lsn);
            commits.set(TxnId(lsn.0), TxnState::Committed(log.next()));
        }
        runs.seal_active();
        while runs.flush_beat().expect("flushes") == Beat::More {}
    }
    (sim, runs)
}

/// A long compaction on a disk with room for a few pieces.
#[test]
fn a_compaction_needs_the_space_of_a_piece() {
    let (sim, runs) = on_a_disk(80_000);
    let disk = sim.disk();
    let used = disk.used_bytes();
    assert!(used > 1 << 20);
    disk.set_capacity(Some(used + (128 << 10)));
    while runs.compaction_beat().expect("merges") == Beat::More {}
    assert_eq!(runs.stats(IndexId(1)).runs, 1);
    assert!(disk.used_bytes() < used + (16 << 10));
    runs.check(IndexId(1)).expect("sound");
}

/// G4: the disk is full at each write of a compaction in turn. No row is lost, no file is left
/// behind, and with the ballast the compaction finishes, whatever it needs.
#[test]
fn a_compaction_finishes_on_the_ballast_of_a_full_disk() {
    const BALLAST: u64 = 160 << 10;
    let mut struck = 0;
    for room in 0..u64::MAX {
        let (sim, runs) = on_a_disk(40_000);
        let disk = sim.disk();
        runs.set_memory(RunsOptions { generation_bytes: 1 << 20, cache_bytes: 1 << 20 });
        runs.segment_bytes_set.store(1 << 20, Ordering::Relaxed);
        let used = disk.used_bytes();
        disk.set_capacity(Some(used + room * (32 << 10)));
        let error = loop {
            match runs.compaction_beat() {
                Ok(Beat::More) => {}
                Ok(Beat::Idle) => break None,
                Err(error) => break Some(error),
            }
        };
        let Some(error) = error else { break };
        struck += 1;
        assert_eq!(error.code(), Code::DiskFull);
        assert!(runs.needs_space(), "ingest needs it");
        runs.state.read().check();
        runs.check(IndexId(1)).expect("sound");
        let files = disk.paths().iter().filter(|p| p.ends_with(".run")).count();
        assert_eq!(files, runs.state.read().files.len(), "no orphan");
        disk.set_capacity(Some(used + BALLAST));
        while runs.compaction_beat().expect("it has the ballast") == Beat::More {}
        assert!(!runs.needs_space());
        assert_eq!(runs.stats(IndexId(1)).run_entries, 40_000);
        assert_eq!(runs.stats(IndexId(1)).runs, 1);
        runs.check(IndexId(1)).expect("sound");
    }
    assert!(struck > 10, "{struck} writes");
}
