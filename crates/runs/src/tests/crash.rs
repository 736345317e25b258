//! A crash at every change of the disk while generations are flushed, runs compacted, an index
//! built and an index dropped: afterwards every row of the log is found once, and no orphan file is
//! left.

use super::test_support::{Commits, Random, TestLog, stamp};
use crate::{
    Direction, IndexSpec, KeyRange, ManifestLog, Runs, RunsOptions, Unsorted, entry_bytes,
};
use evenkeel_base::{Beat, Generation, IndexId, Lsn, Result, Snapshot, TxnId, TxnState};
use evenkeel_base::{metrics::Metric, sync::Mutex};
use evenkeel_format::record::{Entry, entry_op};
use evenkeel_io::Runtime;
use evenkeel_io::sim::{Explore, SimDisk, is_crash};
use evenkeel_sched::Scheduler;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The state that survives beside the disk: the log.
#[derive(Default)]
struct Notes {
    log: Arc<TestLog>,
    commits: Arc<Commits>,
    rows: Mutex<Vec<(Lsn, Generation, u32, u64)>>,
    built: Mutex<bool>,
    dropped: Mutex<bool>,
    checkpoint: Mutex<(Lsn, Vec<u8>)>,
}

const OPTIONS: RunsOptions = RunsOptions { generation_bytes: 1 << 20, cache_bytes: 1 << 20 };
const BUILT: u64 = 1 << 40;

fn spec(id: u32, building: bool) -> IndexSpec {
    IndexSpec { id: IndexId(id), unique_key: id == 2, building, valid_from: Lsn::ZERO }
}

/// Random keys; the keys of index 2 ascend, so that compactions move its segments.
fn key(index: u32, n: u64) -> [u8; 8] {
    if index == 2 { n.to_be_bytes() } else { Random(n).next().to_be_bytes() }
}

fn flush(runs: &Runs) -> Result<()> {
    runs.seal_active();
    while runs.flush_beat()? == Beat::More {}
    Ok(())
}

fn script(rt: Arc<Runtime>, notes: &Notes) -> Result<()> {
    notes.log.end.store(1000, Ordering::SeqCst);
    let runs = Runs::create(Scheduler::new(rt), OPTIONS, notes.commits.clone())?;
    // Compactions of several pieces.
    runs.segment_bytes_set.store(8 << 10, Ordering::Relaxed);
    runs.attach_log(notes.log.clone());
    runs.finish_restore()?;
    (1..=3).for_each(|id| runs.add_index(spec(id, id == 3)));
    for round in 0..6u64 {
        for n in 0..300 {
            let n = round * 300 + n;
            let mut reserved = runs.reserve(3 * entry_bytes(8, 8, 0))?;
            let pin = runs.pin();
            let lsn = notes.log.next();
            notes.commits.set(TxnId(n + 1), TxnState::Committed(lsn));
            for index in 1..=3 {
                let (op, key) = (entry_op::INS | entry_op::FRESH, &key(index, n)[..]);
                let entry = Entry { index: IndexId(index), op, key, value: b"" };
                let pk = n.to_be_bytes();
                runs.insert(&pin, &mut reserved, &entry, &pk, stamp(n + 1, 1), lsn);
                notes.rows.lock().push((lsn, pin.generation(), index, n));
            }
        }
        flush(&runs)?;
        while runs.compaction_beat()? == Beat::More {}
        if round == 2 {
            let mut parts = Vec::new();
            for from in [BUILT, BUILT + 1500] {
                let mut piece = Unsorted::new(IndexId(3));
                for n in from..from + 1500 {
                    piece.push(&key(3, n), &n.to_be_bytes(), b"")?;
                }
                let plan = runs.plan_run(IndexId(3), vec![piece.sort()?], 2)?;
                (0..plan.parts()).try_for_each(|part| plan.write(part, &|| Ok(())))?;
                parts.push(plan.finish());
            }
            runs.install(IndexId(3), parts, &|_| Ok(()))?;
            *notes.built.lock() = true;
        }
        if round == 3 {
            let low = runs.low_lsn().unwrap_or(Lsn::MAX).min(notes.log.end());
            *notes.checkpoint.lock() = (low, runs.snapshot_blob());
        }
        if round == 4 {
            *notes.dropped.lock() = true;
            runs.drop_index(IndexId(1))?;
        }
    }
    runs.compact_to_rest()?;
    let metric = |m| runs.rt.metrics.get(m);
    assert!(
        metric(Metric::CompactionPieces) > metric(Metric::CompactionsFinished) + 10,
        "merges of several pieces"
    );
    assert!(metric(Metric::TrivialMoveBytes) > 0 && metric(Metric::RunPunchedBytes) > 0);
    Ok(())
}

fn reopen(rt: Arc<Runtime>, notes: &Notes) -> Result<Arc<Runs>> {
    let runs = Runs::create(Scheduler::new(rt), OPTIONS, notes.commits.clone())?;
    // The notes serve several survivors: events after the crash are not noted.
    let log = TestLog::default();
    log.end.store(notes.log.end.load(Ordering::SeqCst).max(1000), Ordering::SeqCst);
    runs.attach_log(Arc::new(log));
    let (from, blob) = notes.checkpoint.lock().clone();
    runs.restore(&blob)?;
    let records = notes.log.records.lock().clone();
    for (_, body) in records.iter().filter(|(lsn, _)| *lsn >= from) {
        runs.apply_manifest(body)?;
    }
    runs.finish_restore()?;
    let first = if *notes.dropped.lock() { 2 } else { 1 };
    (first..=3).for_each(|id| runs.add_index(spec(id, id == 3)));
    runs.drop_unknown()?;
    for (lsn, generation, index, n) in notes.rows.lock().iter().filter(|r| r.0 >= from) {
        let (op, key) = (entry_op::INS | entry_op::FRESH, &key(*index, *n)[..]);
        let entry = Entry { index: IndexId(*index), op, key, value: b"" };
        runs.replay_row(*lsn, *generation, stamp(n + 1, 1), &n.to_be_bytes(), &[entry])?;
    }
    Ok(runs)
}

fn rows(runs: &Arc<Runs>, index: u32) -> Result<Vec<u64>> {
    let snapshot = Snapshot::committed_at(Lsn::MAX);
    let mut cursor = runs.cursor(IndexId(index), KeyRange::all(), Direction::Forward, snapshot)?;
    let mut found = Vec::new();
    while let Some(entry) = cursor.next()? {
        let mut pk = [0; 8];
        pk.copy_from_slice(entry.pk);
        found.push(u64::from_be_bytes(pk));
    }
    found.sort_unstable();
    Ok(found)
}

#[test]
fn every_crash_point_keeps_every_row() {
    let explored = Explore::new(5).run(
        &SimDisk::new(5),
        |sim, notes: &Arc<Notes>| match script(sim.runtime(), notes) {
            // A crash may also hit the removal of a file, which is no error.
            Ok(()) => {}
            Err(error) => assert!(is_crash(&error) || sim.is_crashed(), "{error}"),
        },
        |sim, notes, which| {
            let runs = reopen(sim.runtime(), notes).unwrap_or_else(|e| panic!("{which}: {e}"));
            let first = if *notes.dropped.lock() { 2 } else { 1 };
            for index in first..=3u32 {
                let all = notes.rows.lock();
                let mut expected: Vec<u64> =
                    all.iter().filter(|r| r.2 == index).map(|r| r.3).collect();
                drop(all);
                let found = rows(&runs, index).unwrap_or_else(|e| panic!("{which}: {e}"));
                let has_built = found.iter().any(|n| *n >= BUILT);
                assert!(has_built || index < 3 || !*notes.built.lock(), "{which}");
                if has_built {
                    expected.extend(BUILT..BUILT + 3000);
                }
                assert_eq!(found, expected, "{which}, index {index}");
                runs.check(IndexId(index)).unwrap_or_else(|e| panic!("{which}: {e}"));
            }
            let live: Vec<String> =
                runs.state.read().files.keys().map(|n| crate::run::file::path(*n)).collect();
            runs.remove_doomed();
            let files: Vec<String> = sim.disk().paths();
            let runs_files: Vec<&String> = files.iter().filter(|p| p.ends_with(".run")).collect();
            assert_eq!(runs_files, live.iter().collect::<Vec<_>>(), "{which}");
            // The survivor continues to work.
            flush(&runs).and_then(|()| runs.compact_to_rest()).expect("goes on");
        },
    );
    assert!(explored.points > 30, "{explored:?}");
}
