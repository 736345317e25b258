//! Walks over versions, skip pointers over long chains.

use crate::testing::*;
use evenkeel_base::Snapshot;

fn number(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

#[test]
fn each_snapshot_sees_its_version() {
    let w = world(small());
    let rows = Rows::new(&w);
    let mut snapshots = vec![w.txns.snapshot()];
    for n in 1..=300 {
        let t = w.txns.begin();
        rows.write(&t, b"k", &number(n));
        w.txns.commit(&t).expect("commits");
        snapshots.push(w.txns.snapshot());
    }
    // Twice: the second time over skip pointers.
    for _ in 0..2 {
        for (n, snapshot) in snapshots.iter().enumerate() {
            let expected = (n > 0).then(|| number(n as u32).to_vec());
            assert_eq!(rows.read(b"k", &snapshot.committed()), expected, "version {n}");
        }
    }
    assert!(w.txns.skips.len() >= 4);
    // The newest one reads past an undecided and an aborted version.
    let t = w.txns.begin();
    rows.write(&t, b"k", &number(1000));
    let newest = snapshots[300].committed();
    assert_eq!(rows.read(b"k", &newest), Some(number(300).to_vec()));
    w.txns.abort(&t).expect("aborts");
    assert_eq!(rows.read(b"k", &newest), Some(number(300).to_vec()));
}

#[test]
fn a_cursor_sees_its_transactions_changes_made_before_it_opened() {
    let w = world(small());
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    let snapshot = w.txns.snapshot();
    rows.write(&t, b"k", b"1");
    let cursor = snapshot.view(&t);
    rows.write(&t, b"k", b"2");
    assert_eq!(rows.read(b"k", &cursor), Some(b"1".to_vec()));
    assert_eq!(rows.read(b"k", &snapshot.view(&t)), Some(b"2".to_vec()));
    assert_eq!(rows.read(b"k", &snapshot.committed()), None);
    let other = w.txns.begin();
    assert_eq!(rows.read(b"k", &w.txns.snapshot().view(&other)), None);
    w.txns.commit(&t).expect("commits");
    assert_eq!(rows.read(b"k", &snapshot.committed()), None, "younger than the snapshot");
    assert_eq!(rows.read(b"k", &w.txns.snapshot().committed()), Some(b"2".to_vec()));
    let everything = Snapshot::committed_at(evenkeel_base::Lsn::MAX);
    assert_eq!(rows.read(b"k", &everything), Some(b"2".to_vec()));
}

#[test]
fn long_chains_are_walked_in_spans() {
    let w = world(crate::TxnOptions::default());
    let rows = Rows::new(&w);
    let old = w.txns.snapshot();
    for n in 0..2000 {
        let t = w.txns.begin();
        rows.write(&t, b"k", &number(n));
        w.txns.commit(&t).expect("commits");
    }
    rows.read(b"k", &old.committed());
    let steps = || w.txns.skips.steps.load(std::sync::atomic::Ordering::Relaxed);
    let before = steps();
    assert_eq!(rows.read(b"k", &old.committed()), None);
    let walked = steps() - before;
    assert!(walked < 2000 / 64 + 70, "{walked} steps");
}
