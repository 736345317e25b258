//! Lifecycle: phases, ids, prepared transactions, and the effects of a commit.

use super::*;
use crate::testing::*;
use evenkeel_base::Kind;
use evenkeel_format::limits;

#[test]
fn a_transaction_without_changes_writes_nothing() {
    let w = world(small());
    let end = w.log.end();
    let t = w.txns.begin();
    let _snapshot = w.txns.snapshot();
    assert_eq!(w.txns.commit(&t).expect("commits"), None);
    assert_eq!((t.id(), w.txns.next_id()), (TxnId::ZERO, TxnId(1)));
    let locker = w.txns.begin();
    let space = crate::LockSpace::Tree(TREE);
    w.txns
        .lock_row(&locker, (space, b"k"), false, crate::Mode::Shared, crate::Policy::NoWait)
        .expect("granted");
    w.txns.abort(&locker).expect("aborts");
    assert!(!w.txns.is_undecided(locker.id()));
    let prepared = w.txns.begin();
    assert!(!w.txns.prepare(&prepared, b"x").expect("nothing to prepare"));
    assert_eq!(w.log.end(), end);
    assert_eq!(w.txns.commit(&t).expect_err("ended").code(), Code::TxnEnded);
}

#[test]
fn a_commit_is_seen_by_later_snapshots_only() {
    let w = world(small());
    let rows = Rows::new(&w);
    let before = w.txns.snapshot();
    let t = w.txns.begin();
    rows.write(&t, b"k", b"v");
    let during = w.txns.snapshot();
    let lsn = w.txns.commit(&t).expect("commits").expect("changed");
    let after = w.txns.snapshot();
    assert_eq!(after.at(), lsn);
    assert_eq!(w.txns.state(t.id()), TxnState::Committed(lsn));
    let read = |s: &SnapshotGuard| rows.read(b"k", &s.committed());
    assert_eq!((read(&before), read(&during)), (None, None));
    assert_eq!(read(&after), Some(b"v".to_vec()));
    let at = before.at();
    drop(before);
    assert_eq!(w.txns.horizon(), at, "the other one keeps as much");
    drop(during);
    assert_eq!(w.txns.horizon(), lsn);
}

#[test]
fn prepared_transactions_are_decided_by_xid() {
    let w = world(small());
    let rows = Rows::new(&w);
    let xids = [b"x1", b"x2"];
    let t: Vec<TxnRef> = xids
        .iter()
        .map(|xid| {
            let t = w.txns.begin();
            rows.write(&t, *xid, b"v");
            assert!(w.txns.prepare(&t, *xid).expect("prepares"));
            assert_eq!(w.txns.state(t.id()), TxnState::Prepared);
            t
        })
        .collect();
    assert!(w.log.is_durable(Lsn(w.log.end().0 - 1)), "prepare is durable when it returns");
    assert_eq!(w.txns.reserve_undo(&t[0], 10).expect_err("prepared").code(), Code::TxnEnded);
    let other = w.txns.begin();
    rows.write(&other, b"k", b"v");
    let taken = w.txns.prepare(&other, b"x1").expect_err("taken");
    // No row of the transaction has a duplicate.
    assert_eq!((taken.code(), taken.kind()), (Code::XidInUse, Kind::Invalid));
    let long = vec![0; limits::XID_BYTES_MAX + 1];
    assert_eq!(w.txns.prepare(&other, &long).expect_err("too long").code(), Code::XidTooLong);
    let longest = vec![0; limits::XID_BYTES_MAX];
    let last = w.txns.begin();
    rows.write(&last, b"k2", b"v");
    w.txns.prepare(&last, &longest).expect("at the limit");
    w.txns.rollback_prepared(&longest).expect("rolls back");
    assert_eq!(w.txns.prepared_xids(), [b"x1".to_vec(), b"x2".to_vec()]);
    w.txns.commit_prepared(b"x1").expect("commits").expect("changed");
    w.txns.rollback_prepared(b"x2").expect("rolls back");
    assert_eq!(w.txns.commit_prepared(b"x1").expect_err("gone").kind(), Kind::NotFound);
    assert_eq!(w.txns.prepared_xids(), Vec::<Vec<u8>>::new());
    let now = w.txns.snapshot().committed();
    assert_eq!(rows.read(b"x1", &now), Some(b"v".to_vec()));
    assert_eq!(rows.read(b"x2", &now), None);
}

#[test]
fn commits_go_through_on_a_latched_log() {
    let w = world(small());
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    rows.write(&t, b"k", b"v");
    w.rt.health.fail(Error::new(Code::WriteFailed));
    let lsn = w.txns.commit(&t).expect("A2: it cannot fail").expect("changed");
    assert_eq!(w.txns.state(t.id()), TxnState::Committed(lsn));
    let error = w.txns.reserve_undo(&w.txns.begin(), 10).expect_err("no new writes");
    assert_eq!(error.kind(), Kind::ReadOnly);
}

/// The invariant of snapshots under commits: a snapshot sees a transaction's rows all or not at
/// all, and never fewer commits than one before it.
#[test]
fn snapshots_are_whole_under_concurrent_commits() {
    let w = world(TxnOptions { undo_bytes: 64 << 20, ..small() });
    let rows = Rows::new(&w);
    let done = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for i in 0..2u8 {
            let (w, rows, done) = (&w, &rows, &done);
            s.spawn(move || {
                for n in 0..600u32 {
                    let t = w.txns.begin();
                    rows.write(&t, &[i, 0], &n.to_be_bytes());
                    rows.write(&t, &[i, 1], &n.to_be_bytes());
                    match n % 3 {
                        0 => w.txns.abort(&t).expect("aborts"),
                        _ => drop(w.txns.commit(&t).expect("commits")),
                    }
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        s.spawn(|| {
            while done.load(Ordering::SeqCst) < 2 {
                w.txns.rollback_beat(&rows).expect("reverts");
                w.txns.purge_beat(None).expect("purges");
            }
        });
        s.spawn(|| {
            let mut last = [None, None];
            while done.load(Ordering::SeqCst) < 2 {
                let guard = w.txns.snapshot();
                for i in 0..2u8 {
                    let pair = [0, 1].map(|k| rows.read(&[i, k], &guard.committed()));
                    assert_eq!(pair[0], pair[1]);
                    assert!(pair[0] >= last[i as usize]);
                    last[i as usize] = pair[0].clone();
                }
            }
        });
    });
}

/// Not a test of time: prints the cost of begin, snapshot and drop.
#[test]
#[ignore = "a measurement"]
fn prints_the_cost_of_begin_and_snapshot() {
    let w = world(TxnOptions::default());
    for _ in 0..3 {
        const N: u32 = 1_000_000;
        let start = w.rt.env.now_ns();
        for _ in 0..N {
            let t = w.txns.begin();
            let guard = w.txns.snapshot();
            std::hint::black_box(guard.view(&t));
            w.txns.commit(&t).expect("commits");
        }
        let ns = (w.rt.env.now_ns() - start) / u64::from(N);
        eprintln!("begin + snapshot + view + read-only commit + drop: {ns} ns");
        let t = w.txns.begin();
        w.txns.ensure_id(&t);
        let id = t.id();
        let start = w.rt.env.now_ns();
        for _ in 0..N {
            std::hint::black_box(w.txns.state(std::hint::black_box(id)));
        }
        let ns = (w.rt.env.now_ns() - start) as f64 / f64::from(N);
        eprintln!("state: {ns:.1} ns");
        let start = w.rt.env.now_ns();
        for i in 0..N {
            let t = w.txns.begin();
            w.txns.reserve_undo(&t, 100).expect("room");
            w.txns.push_undo(&t, RowKind::Insert, TREE, &i.to_be_bytes(), None);
            w.txns.commit(&t).expect("commits");
            if i % 1024 == 0 {
                w.log.wait_durable(w.txns.published()).expect("durable");
                w.log.set_checkpoint(w.txns.published()).expect("durable");
                w.log.beat().expect("segments");
                w.txns.purge_beat(None).expect("purges");
            }
        }
        let ns = (w.rt.env.now_ns() - start) / u64::from(N);
        eprintln!("begin + 1 undo + commit + purge: {ns} ns");
    }
}

#[test]
fn a_transaction_ends_at_its_last_operation() {
    let w = world(small());
    let rows = Rows::new(&w);
    let t = w.txns.begin();
    rows.write(&t, b"k", b"v");
    t.set_undo_count(limits::OPERATIONS_MAX - 1);
    w.txns.reserve_undo(&t, 10).expect("the last one, the limit");
    t.set_undo_count(limits::OPERATIONS_MAX);
    let error = w.txns.reserve_undo(&t, 10).expect_err("limits::OPERATIONS_MAX + 1");
    let text = error.to_string();
    assert_eq!(error.code(), Code::TxnTooLong);
    assert!(text.starts_with(Code::TxnTooLong.text()), "{text}");
    assert!(text.contains("operations=4000000000") && text.contains("limit="), "{text}");
    w.txns.commit(&t).expect("it can still end");
}

/// Two threads decide a prepared transaction by its id at the same time: one of them succeeds.
#[test]
fn a_prepared_transaction_is_decided_once() {
    const N: usize = 2000;
    let rt = Runtime::new(Arc::new(evenkeel_io::MemEnv::new()));
    let w = world_on(rt, TxnOptions::default());
    let rows = Rows::new(&w);
    let begin = std::sync::Barrier::new(2);
    let each = |decide: &(dyn Fn(&[u8]) -> bool + Sync)| -> Vec<bool> {
        let one = |n: usize| {
            begin.wait();
            let done = decide(&n.to_be_bytes());
            begin.wait();
            done
        };
        (0..N).map(one).collect()
    };
    for n in 0..N {
        let t = w.txns.begin();
        rows.write(&t, &n.to_be_bytes(), b"v");
        assert!(w.txns.prepare(&t, &n.to_be_bytes()).expect("prepares"));
        w.log.set_checkpoint(w.log.durable()).expect("room in the log");
    }
    let (committed, aborted) = std::thread::scope(|s| {
        let commits = s.spawn(|| each(&|xid| w.txns.commit_prepared(xid).is_ok()));
        let aborted = each(&|xid| w.txns.rollback_prepared(xid).is_ok());
        (commits.join().expect("thread"), aborted)
    });
    assert!(w.txns.prepared_xids().is_empty());
    rows.roll_back_all();
    let now = w.txns.snapshot().committed();
    for (n, (committed, aborted)) in committed.into_iter().zip(aborted).enumerate() {
        assert_ne!(committed, aborted, "{n} was decided by both or by neither");
        assert_eq!(rows.read(&n.to_be_bytes(), &now).is_some(), committed, "{n}");
    }
}
