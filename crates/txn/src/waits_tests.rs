//! Waits end with the other transaction, by deadlock, by timeout, or by cancellation.

use crate::testing::*;
use crate::{Deadline, TxnRef};
use evenkeel_base::{Code, Kind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Waits until `n` transactions wait, without a clock.
fn until_waiting(w: &World, n: usize) {
    while w.txns.waiting() < n {
        std::thread::yield_now();
    }
}

fn writers(w: &World, rows: &Rows, n: usize) -> Vec<TxnRef> {
    (0..n)
        .map(|i| {
            let t = w.txns.begin();
            for k in 0..=i {
                rows.write(&t, format!("{i}-{k}").as_bytes(), b"x");
            }
            t
        })
        .collect()
}

#[test]
fn a_wait_ends_with_the_other_transaction() {
    for commit in [true, false] {
        let w = world(small());
        let rows = Rows::new(&w);
        let t = writers(&w, &rows, 2);
        let deadline = w.txns.deadline(Duration::from_secs(50));
        std::thread::scope(|s| {
            let waiter = s.spawn(|| w.txns.wait_for(&t[1], t[0].id(), deadline));
            until_waiting(&w, 1);
            match commit {
                true => drop(w.txns.commit(&t[0]).expect("commits")),
                false => w.txns.abort(&t[0]).expect("aborts"),
            }
            waiter.join().expect("thread").expect("granted");
        });
        assert_eq!(w.txns.waiting(), 0);
        w.txns.wait_for(&t[1], t[0].id(), Deadline::NEVER).expect("decided: no wait");
    }
}

/// The wait that closes the cycle finds it; the transaction with the fewest operations gives up,
/// although all would wait for 50 s.
fn cycle_of(n: usize) {
    let w = world(small());
    let rows = Rows::new(&w);
    // Transaction i has i + 1 operations: number 0 is the victim, whichever closes the cycle.
    let t = writers(&w, &rows, n);
    let (send, ended) = mpsc::channel();
    std::thread::scope(|s| {
        for i in 0..n {
            let (w, t, send) = (&w, &t, send.clone());
            s.spawn(move || {
                let deadline = w.txns.deadline(Duration::from_secs(50));
                let other = t[(i + 1) % n].id();
                let result = w.txns.wait_for(&t[i], other, deadline);
                let failed = result.is_err();
                // Reported before the other transaction is released.
                send.send((i, result.map_err(|e| e.kind()))).expect("listens");
                if failed {
                    w.txns.abort(&t[i]).expect("aborts");
                } else {
                    w.txns.commit(&t[i]).expect("commits");
                }
            });
        }
        let order: Vec<_> = (0..n).map(|_| ended.recv().expect("a result")).collect();
        assert_eq!(order[0], (0, Err(Kind::Deadlock)));
        assert!(order[1..].iter().all(|(_, r)| r.is_ok()), "{order:?}");
    });
    assert_eq!(w.rt.metrics.get(evenkeel_base::metrics::Metric::Deadlocks), 1);
}

#[test]
fn a_deadlock_of_two_is_broken() {
    cycle_of(2);
}

#[test]
fn a_deadlock_of_three_is_broken() {
    cycle_of(3);
}

#[test]
fn a_wait_times_out() {
    let w = world(small());
    let rows = Rows::new(&w);
    let t = writers(&w, &rows, 2);
    let deadline = w.txns.deadline(Duration::from_millis(20));
    let error = w.txns.wait_for(&t[1], t[0].id(), deadline).expect_err("times out");
    assert_eq!((error.kind(), error.code()), (Kind::LockTimeout, Code::LockWaitTimeout));
    assert_eq!(w.txns.waiting(), 0);
}

#[test]
fn a_cancelled_wait_ends_at_once() {
    let w = world(small());
    let rows = Rows::new(&w);
    let t = writers(&w, &rows, 2);
    std::thread::scope(|s| {
        let waiter = s.spawn(|| w.txns.wait_for(&t[1], t[0].id(), Deadline::NEVER));
        until_waiting(&w, 1);
        t[1].cancel();
        let error = waiter.join().expect("thread").expect_err("cancelled");
        assert_eq!(error.kind(), Kind::Cancelled);
    });
    t[1].clear_cancel();
    w.txns.commit(&t[0]).expect("commits");
    w.txns.wait_for(&t[1], t[0].id(), Deadline::NEVER).expect("may wait again");
}

/// Threads that write two random keys each, with real waits and deadlocks: every thread ends, and
/// each committed increment is found.
#[test]
fn contended_counters_lose_no_increment() {
    let w = world(small());
    let rows = Arc::new(Rows::new(&w));
    const KEYS: u64 = 4;
    const ROUNDS: u64 = 150;
    let done: u64 = std::thread::scope(|s| {
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let (w, rows) = (&w, rows.clone());
                s.spawn(move || {
                    let mut random = Random(i);
                    (0..ROUNDS).map(|_| increment_two(w, &rows, &mut random, KEYS)).sum::<u64>()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("thread")).sum()
    });
    let snapshot = w.txns.snapshot();
    let sum: u64 = (0..KEYS).map(|k| value(&rows, k, &snapshot.committed())).sum();
    assert_eq!(sum, 2 * done);
    assert_eq!((w.txns.waiting(), w.txns.all_active().len()), (0, 0));
}

fn value(rows: &Rows, key: u64, snapshot: &evenkeel_base::Snapshot) -> u64 {
    let row = rows.read(&key.to_be_bytes(), snapshot);
    row.map_or(0, |r| u64::from_be_bytes(r.try_into().expect("8 bytes")))
}

/// Returns 1 if it committed.
fn increment_two(w: &World, rows: &Rows, random: &mut Random, keys: u64) -> u64 {
    let t = w.txns.begin();
    let first = random.below(keys);
    for key in [first, (first + 1 + random.below(keys - 1)) % keys] {
        loop {
            // Locks the row by writing it, then reads the newest version under its own stamp.
            match rows.try_write(&t, &key.to_be_bytes(), Some(&[0; 8])).expect("writes") {
                Ok(stamp) => {
                    let copy = w.txns.undo_copy(stamp).expect("own undo");
                    let before = copy.record().expect("decodes").before.map(|b| b.row.to_vec());
                    let old = before.map_or(0, |r| u64::from_be_bytes(r.try_into().expect("8")));
                    rows.write(&t, &key.to_be_bytes(), &(old + 1).to_be_bytes());
                    break;
                }
                Err(holder) => {
                    let deadline = w.txns.deadline(Duration::from_secs(50));
                    if let Err(error) = w.txns.wait_for(&t, holder, deadline) {
                        assert_eq!(error.kind(), Kind::Deadlock);
                        w.txns.abort(&t).expect("aborts");
                        return 0;
                    }
                }
            }
        }
    }
    if random.below(5) == 0 {
        w.txns.abort(&t).expect("aborts");
        return 0;
    }
    w.txns.commit(&t).expect("commits");
    1
}

/// A cancellation at any moment just before a wait ends that wait.
#[test]
fn a_cancellation_just_before_a_wait_ends_it() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    const ROUNDS: usize = 1_000;
    let w = world(small());
    let rows = Rows::new(&w);
    let t = writers(&w, &rows, 2);
    let (begun, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let reaches = |counter: &AtomicUsize, round| {
        // With fewer cores than threads the other thread needs this one's core.
        let mut spins = 0u32;
        while counter.load(Ordering::SeqCst) < round {
            spins += 1;
            if spins < 500 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    };
    std::thread::scope(|s| {
        s.spawn(|| {
            for round in 1..=ROUNDS {
                reaches(&begun, round);
                (0..round % 300).for_each(|_| std::hint::spin_loop());
                t[1].cancel();
                cancelled.store(round, Ordering::SeqCst);
            }
        });
        let mut missed = 0;
        for round in 1..=ROUNDS {
            begun.store(round, Ordering::SeqCst);
            let wait = if missed == 0 { Duration::from_secs(60) } else { Duration::ZERO };
            let error = w.txns.wait_for(&t[1], t[0].id(), w.txns.deadline(wait));
            missed += usize::from(error.expect_err("no end of it").kind() != Kind::Cancelled);
            reaches(&cancelled, round);
            t[1].clear_cancel();
        }
        assert_eq!(missed, 0);
    });
}
