//! A long snapshot over very many small transactions.

use super::*;
use crate::TxnOptions;
use crate::testing::*;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, VersionSource};
use evenkeel_format::record::{Before, RowKind};
use evenkeel_io::OpenMode;

#[test]
fn a_long_snapshot_costs_little_memory() {
    let w = world(TxnOptions { undo_bytes: 512 << 10, ..small() });
    let old = w.txns.snapshot();
    const N: u32 = 100_000;
    let mut stamps = Vec::new();
    let mut most = 0;
    // A long transaction: its id is far behind when it ends.
    let slow = w.txns.begin();
    push(&w, &slow, 0);
    for n in 1..=N {
        let t = w.txns.begin();
        stamps.push(push(&w, &t, n));
        if n == N / 2 {
            w.txns.commit(&slow).expect("commits");
        }
        w.txns.commit(&t).expect("commits");
        if n % 64 == 0 {
            w.log.wait_durable(w.txns.published()).expect("durable");
            w.log.set_checkpoint(w.txns.published()).expect("durable");
            w.log.beat().expect("segments");
            while w.txns.spill_beat().expect("spills") == Beat::More {}
            most = most.max(w.txns.undo_bytes());
        }
    }
    assert!(most <= 512 << 10, "{most}");
    assert!(w.txns.pack_count() > 20 && w.txns.pack_count() < 400, "{}", w.txns.pack_count());
    let mut random = Random(1);
    for _ in 0..2000 {
        let n = 1 + random.below(u64::from(N)) as u32;
        let old = w.txns.before(TREE, &n.to_be_bytes(), stamps[n as usize - 1]).expect("undo");
        assert_eq!(old.row.as_deref(), Some(&[n as u8; 30][..]));
    }
    let first = Stamp { txn: slow.id(), undo_no: UndoNo(1) };
    w.txns.before(TREE, &0u32.to_be_bytes(), first).expect("the slow one's");
    drop(old);
    w.log.wait_durable(w.txns.published()).expect("durable");
    while w.txns.purge_beat(None).expect("purges") == Beat::More {}
    assert_eq!((w.txns.undo_bytes(), w.txns.history_len(), w.txns.pack_count()), (0, 0, 0));
    assert!(w.txns.undo_copy(stamps[0]).is_err());
}

/// Bytes of undo on disk.
fn bytes_on_disk(w: &World) -> u64 {
    let names = w.rt.env.list("undo").expect("a directory");
    let len = |name: &String| w.rt.env.open(&format!("undo/{name}"), OpenMode::READ)?.len();
    names.iter().map(|name| len(name).expect("a file")).sum()
}

/// Snapshots begin and end: each segment is deleted with its last needed chunk, though no
/// checkpoint requested its sync and others are written all the time.
#[test]
fn undo_on_disk_does_not_grow_with_time() {
    let w = world(TxnOptions { undo_bytes: 512 << 10, ..small() });
    let (mut old, mut most) = (w.txns.snapshot(), 0);
    for n in 1..=60_000 {
        let t = w.txns.begin();
        push_row(&w, &t, n, &[n as u8; 400]);
        w.txns.commit(&t).expect("commits");
        if n % 5_000 == 0 {
            old = w.txns.snapshot();
        }
        if n % 64 == 0 {
            w.log.wait_durable(w.txns.published()).expect("durable");
            w.log.set_checkpoint(w.txns.published()).expect("durable");
            w.log.beat().expect("segments");
            while w.txns.spill_beat().expect("spills") == Beat::More {}
            w.txns.purge_beat(None).expect("purges");
            most = most.max(bytes_on_disk(&w));
        }
    }
    let spilled = w.rt.metrics.get(Metric::UndoSpilledBytes);
    assert!(spilled > 20 << 20, "{spilled} bytes spilled");
    // Undo of 5,000 transactions, and a segment that is needed in part.
    assert!(most < 10 << 20, "{most} bytes on disk");
    drop(old);
    w.log.wait_durable(w.txns.published()).expect("durable");
    while w.txns.purge_beat(None).expect("purges") == Beat::More {}
    assert!(bytes_on_disk(&w) < 1 << 20, "{} bytes on disk", bytes_on_disk(&w));
}

fn push(w: &World, t: &crate::TxnRef, n: u32) -> Stamp {
    push_row(w, t, n, &[n as u8; 30])
}

fn push_row(w: &World, t: &crate::TxnRef, n: u32, row: &[u8]) -> Stamp {
    let before = Before { flags: 0, stamp: Stamp::default(), row };
    w.txns.reserve_undo(t, 70 + row.len()).expect("room");
    w.txns.push_undo(t, RowKind::Update, TREE, &n.to_be_bytes(), Some(before))
}
