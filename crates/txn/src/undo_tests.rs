//! Chunks: lookups in memory and from files, memory counted, files freed.

use super::*;
use crate::testing::*;
use crate::{Phase, TxnOptions};
use evenkeel_base::{Beat, Code, CommitTable, Error, Kind, Stamp, VersionSource};
use evenkeel_format::record::{Before, RowKind};
use evenkeel_io::{Env, File, MemEnv, OpenMode, Runtime};
use std::sync::atomic::AtomicBool;

fn push(w: &World, t: &crate::TxnRef, no: u32, row: &[u8]) {
    let before = Before { flags: 2, stamp: Stamp { txn: TxnId(9), undo_no: UndoNo(no) }, row };
    w.txns.reserve_undo(t, UndoRecord::encoded_len_max(4, row.len())).expect("room");
    let stamp = w.txns.push_undo(t, RowKind::Update, TREE, &no.to_be_bytes(), Some(before));
    assert_eq!(stamp.undo_no.0, no);
}

fn check(w: &World, t: &crate::TxnCore, no: u32, row: &[u8]) {
    let stamp = Stamp { txn: t.id(), undo_no: UndoNo(no) };
    let old = w.txns.before(TREE, &no.to_be_bytes(), stamp).expect("undo");
    assert_eq!((old.stamp.undo_no.0, old.row.as_deref()), (no, Some(row)));
}

fn row_of(no: u32) -> Vec<u8> {
    vec![no as u8; (no as usize * 7) % 300]
}

#[test]
fn every_undo_record_is_found_in_memory_and_on_disk() {
    let w = world(small());
    let t = w.txns.begin();
    const N: u32 = 20_000;
    for no in 1..=N {
        push(&w, &t, no, &row_of(no));
        while w.txns.spill_beat().expect("spills") == Beat::More {}
        if no % 997 == 0 {
            check(&w, &t, no, &row_of(no));
            check(&w, &t, no / 2 + 1, &row_of(no / 2 + 1));
        }
    }
    assert!(w.txns.undo_bytes() <= 1 << 20);
    assert!(w.txns.undo_bytes_max() < N as usize * 150, "it was spilled");
    for no in (1..=N).step_by(13).chain([N]) {
        check(&w, &t, no, &row_of(no));
    }
    assert!(w.txns.undo_copy(Stamp { txn: t.id(), undo_no: UndoNo(N + 1) }).is_err());
    assert!(w.txns.undo_copy(Stamp { txn: TxnId(77), undo_no: UndoNo(1) }).is_err());
}

/// C2: a checkpoint's data about a transaction grows with the files that hold its undo and not with
/// its rows; records are found by it, in any order.
#[test]
fn a_checkpoint_lists_extents_of_undo() {
    const N: u32 = 60_000;
    let w = world(small());
    let t = w.txns.begin();
    for no in 1..=N {
        push(&w, &t, no, &row_of(no));
        while w.txns.spill_beat().expect("spills") == Beat::More {}
    }
    w.txns.checkpoint_undo(evenkeel_base::Lsn::MAX).expect("saves");
    let listed = |txns: &crate::Txns| txns.undo_of_txn(t.id()).expect("undo").synced();
    let extents = listed(&w.txns);
    let bytes: u64 = extents.iter().map(|(_, _, at)| u64::from(at.len)).sum();
    assert!(bytes > 100 * CHUNK_BYTES as u64, "{bytes} bytes: this shows nothing");
    let files = bytes.div_ceil(crate::undo_files::SEGMENT_BYTES);
    assert!(extents.len() as u64 <= files, "{} extents in {files} files", extents.len());
    let blob = w.txns.checkpoint_blob();
    assert!(blob.len() < 100, "{} bytes", blob.len());

    let again = crate::Txns::create(w.rt.clone(), small());
    again.restore(&blob).expect("restores");
    for no in (1..=N).rev().step_by(17).chain((1..=N).step_by(1_001)) {
        let stamp = Stamp { txn: t.id(), undo_no: UndoNo(no) };
        let copy = again.undo_copy(stamp).expect("is there");
        let record = copy.record().expect("decodes");
        assert_eq!((record.key, record.undo_no.0), (&no.to_be_bytes()[..], no));
        assert_eq!(record.before.expect("a row").row, row_of(no));
    }
    let stamp = Stamp { txn: t.id(), undo_no: UndoNo(N + 1) };
    assert!(again.undo_copy(stamp).is_err());
    // Extents are listed alike, split or not.
    let places = |extents: Vec<Saved>| -> Vec<_> {
        extents.into_iter().map(|(a, b, at)| (a, b, at.offset, at.len)).collect()
    };
    assert_eq!(places(listed(&again)), places(extents));
}

/// An extent whose frames differ from the checkpoint's list is damage, reported with its place.
#[test]
fn damage_of_an_undo_extent_names_its_place() {
    let w = world(small());
    let t = w.txns.begin();
    (1..=3_000).for_each(|no| push(&w, &t, no, &row_of(no)));
    w.txns.checkpoint_undo(evenkeel_base::Lsn::MAX).expect("saves");
    let saved = w.txns.undo_of_txn(t.id()).expect("undo").synced().remove(0);
    let split = |(first, last, offset, len): (u32, u32, i64, i64), txn| {
        let mut bad = saved.clone();
        bad.0 = UndoNo((i64::from(bad.0.0) + i64::from(first)) as u32);
        bad.1 = UndoNo(bad.1.0 - last);
        bad.2.offset = (bad.2.offset as i64 + offset) as u64;
        bad.2.len = (i64::from(bad.2.len) + len) as u32;
        w.txns.files.split(&bad, txn).map(|chunks| chunks.len())
    };
    let whole = split((0, 0, 0, 0), t.id()).expect("as it was written");
    assert!(whole > 3);
    for bad in [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 8, -8), (0, 0, 0, -1), (0, 0, 0, 1)] {
        let error = split(bad, t.id()).expect_err("is refused");
        assert!(error.kind() == Kind::Corrupt || bad.3 > 0, "{bad:?}: {error}");
    }
    assert_eq!(split((0, 0, 0, 0), TxnId(77)).expect_err("another's").kind(), Kind::Corrupt);
}

#[test]
fn undo_and_files_go_when_no_snapshot_needs_them() {
    let w = world(small());
    let old = w.txns.snapshot();
    let t = w.txns.begin();
    for no in 1..=20_000 {
        push(&w, &t, no, &row_of(no));
        while w.txns.spill_beat().expect("spills") == Beat::More {}
    }
    let lsn = w.txns.commit(&t).expect("commits").expect("changed");
    assert_eq!(t.phase(), Phase::Committed);
    let purge = || while w.txns.purge_beat(None).expect("purges") == Beat::More {};
    w.log.wait_durable(lsn).expect("durable");
    purge();
    check(&w, &t, 5, &row_of(5));
    drop(old);
    purge();
    assert_eq!(w.txns.undo_bytes(), 0);
    assert_eq!(w.txns.history_len(), 0);
    assert!(w.txns.undo_copy(Stamp { txn: t.id(), undo_no: UndoNo(5) }).is_err());
}

#[test]
fn an_outcome_that_is_not_durable_keeps_its_undo() {
    let w = world(small());
    let t = w.txns.begin();
    push(&w, &t, 1, b"row");
    let lsn = w.txns.commit(&t).expect("commits").expect("changed");
    if !w.log.is_durable(lsn) {
        w.txns.purge_beat(None).expect("purges");
        assert_eq!(w.txns.history_len(), 1);
    }
    w.log.wait_durable(lsn).expect("durable");
    w.txns.purge_beat(None).expect("purges");
    assert_eq!(w.txns.history_len(), 0);
}

#[test]
fn writers_wait_for_undo_memory_until_a_spill() {
    let w = world(small());
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let (w, stop) = (&w, &stop);
        s.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if w.txns.spill_beat().expect("spills") == Beat::Idle {
                    std::thread::yield_now();
                }
            }
        });
        let writers: Vec<_> = (0..3)
            .map(|_| {
                s.spawn(move || {
                    let t = w.txns.begin();
                    for no in 1..=8000 {
                        push(w, &t, no, &row_of(no));
                        assert!(w.txns.undo_bytes() < (1 << 20) + 3 * 70_000);
                    }
                    (1..=8000).step_by(101).for_each(|no| check(w, &t, no, &row_of(no)));
                })
            })
            .collect();
        writers.into_iter().for_each(|t| t.join().expect("writer"));
        stop.store(true, Ordering::Relaxed);
    });
}

/// While less than the spill trigger is in use, an operation that wants more than the room above
/// has undo spilled; operations that come later wait behind it and do not overtake.
#[test]
fn an_operation_larger_than_the_room_above_the_trigger_is_admitted_in_its_turn() {
    let w = world(small());
    let t = w.txns.begin();
    let trigger = w.txns.spill_trigger();
    let mut no = 0;
    while w.txns.undo_bytes() < trigger / 2 {
        no += 1;
        push(&w, &t, no, &row_of(no));
    }
    let most = w.txns.undo_bytes_max();
    let bytes = most - w.txns.undo_bytes() + 1;
    assert_eq!(w.txns.spill_beat().expect("nothing to do"), Beat::Idle, "below the trigger");
    std::thread::scope(|s| {
        let large = s.spawn(|| w.txns.reserve_undo(&t, bytes));
        while w.txns.undo_room.is_empty() {
            std::thread::yield_now();
        }
        let small = s.spawn(|| w.txns.reserve_undo(&w.txns.begin(), 100));
        while w.txns.undo_room.len() < 2 {
            std::thread::yield_now();
        }
        assert!(!small.is_finished() && !large.is_finished());
        while !large.is_finished() {
            w.txns.spill_beat().expect("spills");
        }
        large.join().expect("no panic").expect("room");
        while !small.is_finished() {
            w.txns.spill_beat().expect("spills");
        }
        small.join().expect("no panic").expect("room");
    });
    assert!(w.txns.undo_room.is_empty());
}

/// The directory is per chunk: five million operations in 16 MiB of memory_size (1/8 is undo).
#[test]
fn five_million_operations_keep_undo_within_its_memory() {
    let w = world(TxnOptions { undo_bytes: 2 << 20, ..small() });
    let t = w.txns.begin();
    let mut most = 0;
    for no in 1..=5_000_000u32 {
        w.txns.reserve_undo(&t, 64).expect("room");
        w.txns.push_undo(&t, RowKind::Insert, TREE, &no.to_be_bytes(), None);
        if no % 256 == 0 {
            while w.txns.spill_beat().expect("spills") == Beat::More {}
            most = most.max(w.txns.undo_bytes());
        }
    }
    assert!(most <= 2 << 20, "{most}");
    let stamp = Stamp { txn: t.id(), undo_no: UndoNo(1) };
    assert!(w.txns.before(TREE, &1u32.to_be_bytes(), stamp).expect("undo").row.is_none());
    assert!(w.txns.is_undecided(t.id()) && !w.txns.is_dead(stamp));
}

#[test]
fn a_damaged_segment_is_found() {
    use evenkeel_io::sim::{SimDisk, SimEnv};
    let sim = SimEnv::on(SimDisk::new(3), quiet(3));
    let w = world_on(sim.runtime(), small());
    let t = w.txns.begin();
    for no in 1..=8000 {
        push(&w, &t, no, &row_of(no));
        while w.txns.spill_beat().expect("spills") == Beat::More {}
    }
    check(&w, &t, 8000, &row_of(8000));
    assert!(sim.disk().flip_bit("undo/00000001.undo", 5000, 3));
    let stamp = Stamp { txn: t.id(), undo_no: UndoNo(1) };
    let error = w.txns.undo_copy(stamp).expect_err("damaged");
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.context("file").is_some_and(|f| f.contains("00000001")), "{error}");
}

/// A disk that is full when a file is synced.
struct FullAtSync(MemEnv, Arc<AtomicBool>);

struct FullFile(Arc<dyn File>, Arc<AtomicBool>);

impl File for FullFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.0.write_at(buf, offset)
    }
    fn sync(&self) -> Result<()> {
        match self.1.load(Ordering::SeqCst) {
            true => Err(Error::new(Code::DiskFull)),
            false => self.0.sync(),
        }
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.0.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.0.punch(offset, len)
    }
}

impl Env for FullAtSync {
    evenkeel_io::delegate_env! {
        0: list, remove, rename, create_dir, sync_dir, now_ns, random, wait, spawn
    }
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let file = self.0.open(path, mode)?;
        match path.ends_with(".undo") {
            true => Ok(Arc::new(FullFile(file, self.1.clone()))),
            false => Ok(file),
        }
    }
}

/// The next sync would succeed though the bytes are lost, and the next checkpoint would then miss
/// this undo: writes stop, as after any failed sync.
#[test]
fn a_sync_of_undo_that_finds_the_disk_full_stops_writes() {
    let full = Arc::new(AtomicBool::new(false));
    let rt = Runtime::new(Arc::new(FullAtSync(MemEnv::new(), full.clone())));
    let w = world_on(rt, small());
    let t = w.txns.begin();
    push(&w, &t, 1, b"row");
    full.store(true, Ordering::SeqCst);
    let error = w.txns.checkpoint_undo(evenkeel_base::Lsn::MAX).expect_err("not durable");
    assert_eq!(error.code(), Code::WriteFailed, "not a full disk, which is waited for");
    full.store(false, Ordering::SeqCst);
    assert_eq!(w.rt.check_write().expect_err("stopped").code(), Code::WritesStopped);
}
