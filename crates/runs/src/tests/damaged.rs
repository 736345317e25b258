//! Files without their footer: the indexes they damage, and how these indexes are dropped.

use super::test_support::{Fixture, spec};
use crate::run::damage::READ_TRIES;
use crate::{Direction, KeyRange};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, Error, IndexId, Lsn, Snapshot};
use evenkeel_format::record::entry_op;
use evenkeel_format::run::Trailer;
use evenkeel_io::Env;
use evenkeel_io::sim::{Fault, FaultKind, SimDisk, SimEnv, SimOptions, When};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const INS: u8 = entry_op::INS | entry_op::FRESH;
const ENTRIES: u32 = 200;

impl Fixture {
    fn file(&self, number: u64) -> PathBuf {
        self.dir.path().join(format!("runs/{number:08}.run"))
    }

    fn fill(&self, indexes: &[u32], from: u32) {
        for index in indexes {
            for n in from..from + ENTRIES {
                self.put(*index, INS, &n.to_be_bytes(), &n.to_be_bytes());
            }
        }
        self.flush();
    }

    /// Reopened from a checkpoint, with these indexes in the catalog.
    fn restart_from(&mut self, blob: &[u8], indexes: &[u32]) {
        self.reopen();
        self.runs.restore(blob).expect("restores");
        self.runs.finish_restore().expect("a damaged file does not keep it closed");
        indexes.iter().for_each(|id| self.runs.add_index(spec(*id, *id == 3, false)));
        self.runs.drop_unknown().expect("drops");
    }

    fn error_of(&self, index: u32) -> Option<Error> {
        let all = Snapshot::committed_at(Lsn::MAX);
        let cursor = self.runs.cursor(IndexId(index), KeyRange::all(), Direction::Forward, all);
        let error = cursor.expect("there").next().err();
        let by_key = self.runs.current(IndexId(index), &[0; 4], &mut |_, _, _, _| true).err();
        let estimate = self.runs.estimate(IndexId(index), &KeyRange::all(), all, 0).err();
        let check = self.runs.check(IndexId(index)).err();
        let said = |e: &Option<Error>| e.as_ref().map(ToString::to_string);
        for other in [&by_key, &estimate, &check] {
            assert_eq!(said(other), said(&error), "every way to read it says the same");
        }
        error
    }

    fn damaged(&self, among: &[u32]) -> Vec<u32> {
        among.iter().copied().filter(|index| self.error_of(*index).is_some()).collect()
    }
}

/// Three indexes in one file, a fourth one in a file of its own; 9 has no entry.
fn filled() -> (Fixture, Vec<u8>) {
    let rig = Fixture::new(1 << 20);
    [1, 3, 5, 7, 9].iter().for_each(|id| rig.runs.add_index(spec(*id, *id == 3, false)));
    rig.fill(&[1, 3, 5], 0);
    rig.fill(&[7], 0);
    let blob = rig.runs.snapshot_blob();
    (rig, blob)
}

const ALL: [u32; 5] = [1, 3, 5, 7, 9];

fn footer(bytes: &[u8]) -> usize {
    let at = bytes.len() - Trailer::LEN + 16 + 8;
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight")) as usize
}

#[test]
fn a_file_without_its_footer_damages_the_indexes_in_it() {
    type Spoil = fn(&mut Vec<u8>);
    let cases: [(&str, Spoil, &[u32]); 7] = [
        (
            "footer",
            |b| {
                let at = footer(b);
                b[at + 40] ^= 1;
            },
            &[1, 3, 5],
        ),
        (
            "trailer",
            |b| {
                let at = b.len() - 20;
                b[at] ^= 1;
            },
            &[1, 3, 5],
        ),
        (
            "last block",
            |b| {
                let at = b.len() - 4096;
                b[at..].fill(0);
            },
            &[1, 3, 5],
        ),
        // The first envelope: an index below the first intact one may have been in it.
        (
            "footer and head",
            |b| {
                let at = footer(b);
                b[at + 40] ^= 1;
                b[10] ^= 1;
            },
            &[1, 3, 5],
        ),
        // Other envelopes may have followed the part that is left.
        ("cut", |b| b.truncate(4096), &[1, 3, 5, 7, 9]),
        ("zeros", |b| b.fill(0), &[1, 3, 5, 7, 9]),
        ("empty", |b| b.clear(), &[1, 3, 5, 7, 9]),
    ];
    for (what, spoil, expected) in cases {
        let (mut rig, blob) = filled();
        let path = rig.file(1);
        let mut bytes = std::fs::read(&path).expect("the first file");
        spoil(&mut bytes);
        std::fs::write(&path, bytes).expect("written");
        rig.restart_from(&blob, &ALL);
        assert_eq!(rig.damaged(&ALL), expected, "{what}");
        let error = rig.error_of(3).expect("damaged");
        assert_eq!(error.code(), Code::RunDamaged);
        assert_eq!(error.context("file"), Some("runs/00000001.run"), "{what}");
        assert_eq!(error.context("index"), Some("3"), "{what}");
    }
    let (mut rig, blob) = filled();
    std::fs::remove_file(rig.file(1)).expect("removed");
    rig.restart_from(&blob, &ALL);
    assert_eq!(rig.damaged(&ALL), ALL, "nobody knows what was in a missing file");
}

/// Entries of a damaged index are not flushed and its runs are in no other index's way; each index
/// can be dropped, and the last drop removes the file. Then all is intact, after a restart too.
#[test]
fn a_damaged_index_ends_with_its_drop() {
    let (mut rig, blob) = filled();
    let path = rig.file(1);
    let whole = std::fs::read(&path).expect("the first file");
    let mut bytes = whole.clone();
    bytes.truncate(4096);
    std::fs::write(&path, &bytes).expect("written");
    rig.restart_from(&blob, &ALL);
    for round in 1..30 {
        rig.fill(&[3, 7], round * ENTRIES);
        while rig.runs.compaction_beat().expect("merges") == Beat::More {}
    }
    assert_eq!(rig.damaged(&ALL), ALL);
    // Index 11 is created later, and the bytes behind the cut may have been of any index but that
    // one.
    rig.runs.drop_index(IndexId(7)).expect("drops");
    rig.runs.add_index(spec(11, false, false));
    rig.fill(&[3, 11], 0);
    assert!(rig.runs.stats(IndexId(3)).runs < 2, "its entries are not written");
    let (blob, now) = (rig.runs.snapshot_blob(), [1, 3, 5, 9, 11]);
    for file in [&bytes, &whole] {
        // The file is restored, but entries were left out meanwhile.
        std::fs::write(&path, file).expect("written");
        rig.restart_from(&blob, &now);
        assert_eq!(rig.damaged(&now), [1, 3, 5, 9]);
        assert_eq!(rig.count(11), ENTRIES as usize);
    }
    std::fs::write(&path, &bytes).expect("written");
    rig.restart_from(&blob, &now);
    for id in [1, 5, 9] {
        rig.runs.drop_index(IndexId(id)).expect("drops");
        assert!(path.exists(), "index 3 is damaged by it still");
    }
    rig.runs.drop_index(IndexId(3)).expect("drops");
    assert!(!path.exists(), "its space is free");
    let blob = rig.runs.snapshot_blob();
    rig.restart_from(&blob, &[11]);
    assert_eq!(rig.damaged(&[11]), []);
    assert_eq!(rig.count(11), ENTRIES as usize);
}

/// A compaction reads a damaged block after it has installed pieces: its index is damaged for good,
/// and no other operation waits.
#[test]
fn a_block_that_a_compaction_cannot_read_damages_its_index() {
    let mut rig = Fixture::new(1 << 20);
    rig.set_segment_bytes(64 << 10);
    [1, 2, 3].iter().for_each(|id| rig.runs.add_index(spec(*id, false, false)));
    for run in 0..2u64 {
        for n in 0..8_000u64 {
            let key = (n * 2 + run).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            rig.put(1, INS, &(2 * n + run).to_be_bytes(), &key.to_be_bytes());
        }
        rig.flush();
    }
    let path = rig.file(1);
    let mut bytes = std::fs::read(&path).expect("reads");
    let late = bytes.len() / 4 * 3;
    bytes[late..late + 64].fill(0xee);
    std::fs::write(&path, bytes).expect("writes");
    rig.runs.compact_to_rest().expect("does not fail");
    let metric = |rig: &Fixture, m| rig.rt.metrics.get(m);
    assert!(metric(&rig, Metric::CompactionPieces) > 0, "it is met when pieces are installed");
    rig.runs.state.read().check();
    assert!(rig.runs.state.read().merging.is_empty());
    let begun = metric(&rig, Metric::CompactionsStarted);
    let said = rig.error_of(1).expect("damaged").to_string();
    assert!(said.contains("index=1") && said.contains("runs/00000001.run"), "{said}");
    // It takes entries like others, gathers no runs, and holds up no writer.
    let runs = rig.runs.stats(IndexId(1)).runs;
    for round in 0..8 {
        rig.fill(&[1, 2, 3], round * ENTRIES);
    }
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!(metric(&rig, Metric::CompactionsStarted) - begun, 2, "it is not merged again");
    assert_eq!((rig.runs.stats(IndexId(1)).runs, rig.count(2)), (runs, 8 * ENTRIES as usize));
    let blob = rig.runs.snapshot_blob();
    rig.restart_from(&blob, &[1, 2, 3]);
    assert_eq!(rig.damaged(&[1, 2, 3]), [1], "entries were flushed without it");
    rig.runs.drop_index(IndexId(1)).expect("drops");
    let blob = rig.runs.snapshot_blob();
    rig.restart_from(&blob, &[2, 3]);
    assert_eq!(rig.damaged(&[2, 3]), [] as [u32; 0]);
    assert_eq!((rig.count(2), rig.count(3)), (8 * ENTRIES as usize, 8 * ENTRIES as usize));
    assert!(!path.exists(), "its files go with it");
}

/// Runs `body` in a thread of a simulated disk.
fn on_disk(body: impl FnOnce(Arc<dyn Env>, SimDisk) + Send + 'static) {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let (env, disk) = (sim.env(), sim.disk().clone());
    let (done, over) = std::sync::mpsc::channel();
    sim.run(vec![Box::new(move || {
        body(env, disk);
        done.send(()).expect("heard");
    })]);
    over.try_recv().expect("the body ran to its end");
}

/// The device fails every read at the start of a compaction that ingest needs: writes stop, as they
/// do for a later failure. Otherwise a writer that waits for the compaction's credit would wait
/// forever.
#[test]
fn a_compaction_that_cannot_begin_stops_writes() {
    on_disk(|env, disk| {
        let rig = four_runs(env);
        disk.inject(Fault::on("runs/", FaultKind::ReadError, When::From(1)));
        let errors = (0..READ_TRIES).filter_map(|_| rig.runs.compaction_beat().err());
        let errors: Vec<Code> = errors.map(|error| error.code()).collect();
        assert_eq!(errors, [Code::ReadFailed], "the last of several tries");
        disk.clear_faults();
        assert!(rig.rt.health.is_failed());
        let refused = rig.runs.reserve(100).err().map(|error| error.code());
        assert_eq!(refused, Some(Code::WritesStopped));
        assert_eq!(rig.count(1), 1_600, "reads go on");
    });
}

/// Four runs of one index, which ingest needs compacted.
fn four_runs(env: Arc<dyn Env>) -> Fixture {
    let rig = Fixture::simulated(env, 1 << 20);
    rig.set_segment_bytes(16 << 10);
    rig.runs.add_index(spec(1, false, false));
    for run in 0..4u32 {
        (0..400u32).for_each(|n| rig.put(1, INS, &(4 * n + run).to_be_bytes(), b"0123456789"));
        rig.flush();
    }
    rig
}

/// A device that fails once, at any read of a compaction: the compaction is repeated, without other
/// effects.
#[test]
fn a_read_of_a_compaction_that_fails_once_stops_nothing() {
    for read in 1.. {
        let struck = Arc::new(AtomicU64::new(0));
        let count = struck.clone();
        on_disk(move |env, disk| {
            let rig = four_runs(env);
            disk.inject(Fault::on("runs/", FaultKind::ReadError, When::Nth(read)));
            let mut beats = 0;
            while rig.runs.compaction_beat().expect("merges") == Beat::More {
                beats += 1;
                assert!(beats < 1_000, "it comes to an end");
            }
            assert!(!rig.rt.health.is_failed());
            assert_eq!(rig.runs.stats(IndexId(1)).runs, 1);
            rig.runs.state.read().check();
            count.store(disk.faults_struck(), Ordering::SeqCst);
            disk.clear_faults();
            assert_eq!((rig.count(1), rig.error_of(1).is_none()), (1_600, true));
        });
        if struck.load(Ordering::SeqCst) == 0 {
            assert!(read > 4, "{read} reads");
            return;
        }
    }
}

/// A device that fails once while the files are opened: no index is marked damaged. (An index that
/// is damaged at an open stays so, because the manifest records it.)
#[test]
fn a_read_of_an_open_that_fails_once_damages_nothing() {
    for kind in [FaultKind::ReadError, FaultKind::LookError] {
        for read in 1..=4 {
            on_disk(move |env, disk| {
                let mut rig = Fixture::simulated(env, 1 << 20);
                ALL.iter().for_each(|id| rig.runs.add_index(spec(*id, *id == 3, false)));
                rig.fill(&[1, 3, 5], 0);
                rig.fill(&[7], 0);
                let blob = rig.runs.snapshot_blob();
                rig.reopen();
                rig.runs.restore(&blob).expect("restores");
                disk.inject(Fault::on("runs/", kind, When::Nth(read)));
                let opened = rig.runs.finish_restore();
                assert_eq!(disk.faults_struck(), 1, "{kind:?} {read}");
                disk.clear_faults();
                if let Err(error) = opened {
                    // The content of the file is not the cause: this open fails, and the next one
                    // succeeds.
                    assert_eq!(error.code(), Code::FileOpen, "{kind:?} {read}");
                    return;
                }
                ALL.iter().for_each(|id| rig.runs.add_index(spec(*id, *id == 3, false)));
                assert_eq!(rig.damaged(&ALL), [] as [u32; 0], "{kind:?} {read}");
                assert_eq!((rig.count(1), rig.count(7)), (ENTRIES as usize, ENTRIES as usize));
            });
        }
    }
}

/// A sync that finds no space: for a new file, which is written again, it is a full disk; for the
/// names of all files it is a failed sync, because the name of another file may be lost with it.
#[test]
fn a_sync_of_names_without_space_stops_writes() {
    for (sync, expected) in [(1, Code::DiskFull), (2, Code::WriteFailed)] {
        on_disk(move |env, disk| {
            let rig = Fixture::simulated(env, 1 << 20);
            rig.runs.add_index(spec(1, false, false));
            rig.put(1, INS, b"key", b"row");
            rig.runs.seal_active();
            disk.inject(Fault::on("runs", FaultKind::NoSpaceForSync, When::Nth(sync)));
            let flushed = || loop {
                match rig.runs.flush_beat() {
                    Ok(Beat::More) => {}
                    other => return other.err().map(|error| error.code()),
                }
            };
            assert_eq!(flushed(), Some(expected));
            assert_eq!(rig.rt.health.is_failed(), sync == 2);
            assert_eq!(flushed(), None);
            let runs = if sync == 2 { 0 } else { 1 };
            assert_eq!((rig.runs.stats(IndexId(1)).runs, rig.count(1)), (runs, 1));
        });
    }
}
