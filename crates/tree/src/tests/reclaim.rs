//! Reorganization and reclaiming of leaves, and "dead since".

use super::*;
use evenkeel_base::metrics::Metric;
use evenkeel_io::{MemEnv, OpenMode};

const DELETED: u8 = cell_flags::DELETED;

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Leaves that a snapshot reader loads until it finds a live row.
fn first_live(db: &Db, tree: &Tree, at: Option<Lsn>) -> (Option<u64>, u64) {
    let mut cursor = tree.cursor();
    cursor.set_snapshot(at);
    cursor.seek(Bound::Unbounded, Direction::Forward).unwrap();
    let mut skipped = 0;
    while let Some((key, row)) = cursor.next().unwrap() {
        if row.flags & DELETED == 0 {
            return (Some(u64::from_be_bytes(key.try_into().unwrap())), skipped);
        }
        skipped += 1;
    }
    assert!(!db.rt.health.is_failed());
    (None, skipped)
}

#[test]
fn the_low_end_is_found_at_once_after_mass_deletes() {
    let db = Db::create(Arc::new(MemEnv::new()), 4_096);
    let tree = db.tree();
    const ROWS: u64 = 60_000;
    (0..ROWS).for_each(|n| _ = db.put(&tree, &key(n), plain(&[7; 60])));
    let before = check(&tree);
    assert!(before.levels >= 3);
    for n in 0..ROWS - 100 {
        db.put(&tree, &key(n), Put { flags: DELETED, txn: 9, row: &[7; 60] });
    }
    db.reclaim();
    let after = check(&tree);
    assert_eq!(first_live(&db, &tree, None), (Some(ROWS - 100), 0));
    assert_eq!(after.rows, 100);
    assert!(after.leaf_pages <= 4, "{after:?}");
    assert!(after.inner_pages <= 3, "{after:?}");
    assert_eq!(db.trees.reclaim_len(), 0);
    // And every row.
    (ROWS - 100..ROWS).for_each(|n| {
        db.put(&tree, &key(n), Put { flags: DELETED, txn: 9, row: &[7; 60] });
    });
    db.reclaim();
    let empty = check(&tree);
    assert_eq!((empty.rows, empty.leaf_pages, empty.levels), (0, 1, 2));
    (0..1_000).for_each(|n| _ = db.put(&tree, &key(n), plain(&[7; 60])));
    assert_eq!(check(&tree).rows, 1_000);
}

#[test]
fn random_deletes_leave_no_thin_leaves() {
    let db = Db::create(Arc::new(MemEnv::new()), 4_096);
    let tree = db.tree();
    (0..30_000).for_each(|n| _ = db.put(&tree, &key(n), plain(&[7; 60])));
    let before = check(&tree);
    let mut rand = Rand(11);
    let mut gone = std::collections::BTreeSet::new();
    while gone.len() < 27_000 {
        let n = rand.below(30_000);
        if gone.insert(n) {
            db.put(&tree, &key(n), Put { flags: DELETED, txn: 9, row: &[7; 60] });
        }
    }
    db.reclaim();
    let after = check(&tree);
    assert!(after.rows - after.rows_deleted == 3_000);
    assert!(after.leaf_pages * 4 < before.leaf_pages, "{before:?} {after:?}");
}

#[test]
fn a_snapshot_keeps_rows_and_younger_readers_skip_them() {
    let db = Db::create(Arc::new(MemEnv::new()), 1_024);
    let tree = db.tree();
    const ROWS: u64 = 5_000;
    (0..ROWS).for_each(|n| _ = db.put(&tree, &key(n), plain(&[7; 60])));
    db.commits.states.lock().insert(TxnId(9), TxnState::Active);
    for n in 0..ROWS - 10 {
        db.put(&tree, &key(n), Put { flags: DELETED, txn: 9, row: &[7; 60] });
    }
    db.reclaim();
    assert_eq!(check(&tree).rows, ROWS, "nothing is decided");
    // Committed at 100, but a snapshot at 50 holds the horizon.
    db.commits.states.lock().insert(TxnId(9), TxnState::Committed(Lsn(100)));
    db.commits.horizon.store(50, Ordering::SeqCst);
    db.reclaim();
    assert_eq!(check(&tree).rows, ROWS);
    let (first, skipped) = first_live(&db, &tree, Some(Lsn(100)));
    assert_eq!(first, Some(ROWS - 10));
    assert!(skipped < 100, "{skipped} dead rows were read");
    assert_eq!(first_live(&db, &tree, Some(Lsn(99))), (Some(ROWS - 10), ROWS - 10));
    // A row that arrives in a dead leaf is seen.
    db.put(&tree, &key(77), plain(b"new"));
    assert_eq!(first_live(&db, &tree, Some(Lsn(100))).0, Some(77));
    check(&tree);
    // The snapshot ends.
    db.commits.horizon.store(100, Ordering::SeqCst);
    db.reclaim();
    assert_eq!(check(&tree).rows, 11);
    assert_eq!(first_live(&db, &tree, None), (Some(77), 0));
}

/// A queue beside an old snapshot: full inner nodes, leaves that were examined with half of their
/// rows left, and more leaves waiting for the horizon than one beat examines.
#[test]
fn beside_an_old_snapshot_the_low_end_is_found_at_once() {
    let db = Db::create(Arc::new(MemEnv::new()), 8_192);
    let tree = db.tree();
    const ROWS: u64 = 60_000;
    const BATCH: u64 = 250;
    (0..ROWS).for_each(|n| _ = db.put(&tree, &key(n), plain(&[7; 60])));
    db.commits.horizon.store(50, Ordering::SeqCst);
    let mut most = 0;
    for batch in 0..(ROWS - 1000) / BATCH {
        let (txn, cts) = (10 + batch, Lsn(100 + batch));
        db.commits.states.lock().insert(TxnId(txn), TxnState::Active);
        for n in batch * BATCH..(batch + 1) * BATCH {
            db.put(&tree, &key(n), Put { flags: DELETED, txn, row: &[7; 60] });
            // The background is awake: it examines leaves that are not dead yet.
            if n % 50 == 0 {
                db.reclaim();
            }
        }
        db.commits.states.lock().insert(TxnId(txn), TxnState::Committed(cts));
        let (first, skipped) = first_live(&db, &tree, Some(cts));
        assert_eq!(first, Some((batch + 1) * BATCH));
        most = skipped.max(most);
        db.reclaim();
    }
    assert!(most < 4 * BATCH, "{most} dead rows were read");
    assert_eq!(check(&tree).rows, ROWS, "the snapshot reads them all");
    // The snapshot ends. All waiting leaves are forgotten, as by a restart: scans request them
    // again.
    db.trees.reclaim.forget(&db.trees, tree.id());
    db.commits.horizon.store(1_000, Ordering::SeqCst);
    for _ in 0..200 {
        let first = first_live(&db, &tree, Some(Lsn(1_000))).0;
        assert_eq!(first, Some(ROWS - 1000));
        db.reclaim();
    }
    assert!(check(&tree).rows < 1000 + 200, "{:?}", check(&tree));
}

#[test]
fn a_scan_over_dead_rows_requests_reclaim() {
    let db = Db::create(Arc::new(MemEnv::new()), 256);
    let tree = db.tree();
    (0..45).for_each(|n| _ = db.put(&tree, &key(n), plain(&[7; 40])));
    db.commits.states.lock().insert(TxnId(9), TxnState::Committed(Lsn(10)));
    (0..40).for_each(|n| _ = db.put(&tree, &key(n), Put { flags: DELETED, txn: 9, row: &[] }));
    db.reclaim();
    db.commits.horizon.store(10, Ordering::SeqCst);
    assert_eq!(first_live(&db, &tree, None), (Some(40), 40));
    db.reclaim();
    assert_eq!(first_live(&db, &tree, None), (Some(40), 0));
    assert_eq!(db.rt.metrics.get(Metric::LeafReorganizations), 1);
}

#[test]
fn a_full_leaf_drops_settled_stamps_before_it_splits() {
    let db = Db::create(Arc::new(MemEnv::new()), 256);
    let tree = db.tree();
    db.commits.states.lock().insert(TxnId(9), TxnState::Active);
    db.commits.horizon.store(1_000, Ordering::SeqCst);
    (0..2_000).for_each(|n| _ = db.put(&tree, &key(n), Put { flags: 0, txn: 1, row: &[7; 40] }));
    let settled = check(&tree);
    let other = db.trees.create(TreeId(8)).unwrap();
    (0..2_000).for_each(|n| _ = db.put(&other, &key(n), Put { flags: 0, txn: 9, row: &[7; 40] }));
    let open = check(&other);
    assert!(settled.leaf_pages * 10 < open.leaf_pages * 9, "{settled:?} {open:?}");
}

/// The deletes of a transaction that stays open are not examined at each commit of others.
#[test]
fn undecided_deletes_are_not_examined_at_each_rise_of_the_horizon() {
    let sim = evenkeel_io::sim::SimEnv::new(1);
    let env = sim.env();
    let (send, end) = std::sync::mpsc::channel();
    sim.run(vec![Box::new(move || {
        let db = Db::create(env, 1_024);
        let tree = db.tree();
        const ROWS: u64 = 5_000;
        (0..ROWS).for_each(|n| _ = db.put(&tree, &key(n), plain(&[7; 60])));
        let leaves = check(&tree).leaf_pages;
        db.commits.states.lock().insert(TxnId(9), TxnState::Active);
        for n in 0..ROWS {
            db.put(&tree, &key(n), Put { flags: DELETED, txn: 9, row: &[7; 60] });
        }
        let beats = || {
            let mut beats = 0;
            while db.trees.reclaim_beat().unwrap() == Beat::More {
                beats += 1;
            }
            beats
        };
        assert!(beats() >= leaves);
        let began = db.rt.env.now_ns();
        let mut again = 0;
        for horizon in 1..=1_000 {
            db.commits.horizon.store(horizon, Ordering::SeqCst);
            again += beats();
        }
        let seconds = (db.rt.env.now_ns() - began) / 1_000_000_000;
        assert!(again <= leaves * (seconds + 1), "{again} looks at {leaves} leaves");
        db.commits.states.lock().insert(TxnId(9), TxnState::Committed(Lsn(1_000)));
        db.rt.delay(Duration::from_secs(1), Cause::Idle);
        beats();
        let empty = check(&tree);
        assert_eq!((empty.rows, empty.leaf_pages), (0, 1));
        send.send(()).unwrap();
    })]);
    end.try_recv().expect("the body ran to its end");
}

/// The frames of a freed extent go before its blocks: for a while the storage still has the leaves
/// that lay there. The writer that remembers one of them as the right edge must not find it again.
#[test]
fn a_row_does_not_go_to_a_freed_leaf_whose_blocks_are_still_there() {
    const ROWS: u64 = 4_000;
    let env = Arc::new(MemEnv::new());
    let db = Db::create(env.clone(), 4_096);
    let tree = db.tree();
    (0..ROWS).for_each(|n| _ = db.put(&tree, &key(n), plain(&[7; 1_000])));
    db.pages.flush_all().unwrap();
    let file = env.open("pages/000000.pg", OpenMode::READ_WRITE).unwrap();
    let mut leaves = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut leaves, 0).unwrap();
    for n in 10..ROWS {
        db.put(&tree, &key(n), Put { flags: DELETED, txn: 9, row: &[7; 1_000] });
    }
    db.reclaim();
    db.log.wait_durable(Lsn(db.log.end().0 - 1)).unwrap();
    while db.pages.reclaim_beat().unwrap() == Beat::More {}
    assert!(db.pages.space_stats().punched_extents >= 2, "{:?}", db.pages.space_stats());
    file.write_at(&leaves, 0).unwrap();
    db.put(&tree, &key(ROWS + 1), plain(&[8; 1_000]));
    assert_eq!(get(&tree, &key(ROWS + 1)), Some((0, vec![8; 1_000])));
    assert_eq!(check(&tree).rows, 11);
}
