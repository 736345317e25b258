//! Chunks: lookups in memory and from files, memory counted, files freed.

use super::*;
use crate::testing::*;
use crate::{Phase, TxnOptions};
use evenkeel_base::{Beat, CommitTable, Kind, Stamp, VersionSource};
use evenkeel_format::record::{Before, RowKind};
use std::sync::atomic::AtomicBool;

fn push(w: &World, t: &crate::TxnRef, no: u32, row: &[u8]) {
    let before = Before { flags: 2, stamp: Stamp { txn: TxnId(9), undo_no: UndoNo(no) }, row };
    w.txns.reserve_undo(t, UndoRecord::encoded_len_max(4, row.len())).expect("room");
    let stamp = w.txns.push_undo(t, RowKind::Update, TREE, &no.to_be_bytes(), Some(before));
    assert_eq!(stamp.undo_no.0, no);
}

fn check(w: &World, t: &crate::Txn, no: u32, row: &[u8]) {
    let stamp = Stamp { txn: t.id(), undo_no: UndoNo(no) };
    let old = w.txns.before(TREE, &no.to_be_bytes(), stamp).expect("undo");
    assert_eq!((old.stamp.undo_no.0, old.row.as_deref()), (no, Some(row)));
}

fn row_of(no: u32) -> Vec<u8> {
    vec![no as u8; (no as usize * 7) % 300]
}

#[test]
fn each_record_is_found_wherever_it_is() {
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
fn writers_wait_for_room_and_spilling_makes_it() {
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

/// The directory is per chunk: five million operations in 16 MiB of memory_size (1/8 is undo).
#[test]
fn five_million_operations_in_little_memory() {
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
