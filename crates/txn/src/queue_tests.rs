//! The queue of a row: which waiters are woken, in which order, which waits are reported, and the
//! cost of a lookup.

use crate::testing::*;
use crate::{Deadline, Grant, KeyBounds, LockSpace, Mode, Policy, Report, TxnRef, WaitWatch};
use evenkeel_base::{Code, IndexId, Kind, Result, TreeId};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

const T: LockSpace = LockSpace::Tree(TREE);
const S: Mode = Mode::Shared;
const X: Mode = Mode::Exclusive;
const WAIT: Policy = Policy::Wait(Deadline::NEVER);

fn at(key: &[u8]) -> (LockSpace, &[u8]) {
    (T, key)
}

fn until_waiting(w: &World, n: usize) {
    while w.txns.waiting() < n {
        std::thread::yield_now();
    }
}

fn woken(w: &World) -> usize {
    w.txns.locks.woken.swap(0, Ordering::SeqCst)
}

fn begin(w: &World, n: usize) -> Vec<TxnRef> {
    (0..n).map(|_| w.txns.begin()).collect()
}

/// Each waiter queues behind the one before it, and reports when it is granted.
fn wait_in_line<'s, 'e>(
    s: &'s Scope<'s, 'e>,
    w: &'e World,
    key: &'static [u8],
    line: &'e [(TxnRef, Mode)],
    send: &mpsc::Sender<usize>,
) -> Vec<ScopedJoinHandle<'s, Result<Grant>>> {
    let before = w.txns.waiting();
    let mut threads = Vec::new();
    for (n, (t, mode)) in line.iter().enumerate() {
        let send = send.clone();
        threads.push(s.spawn(move || {
            let granted = w.txns.lock_row(t, at(key), false, *mode, WAIT);
            send.send(n).expect("listens");
            granted
        }));
        until_waiting(w, before + n + 1);
    }
    threads
}

/// The row goes from each waiter to the next; no other waiter is woken, whatever else is released.
#[test]
fn a_release_wakes_only_the_waiters_that_it_grants() {
    let w = world(small());
    let holder = w.txns.begin();
    w.txns.lock_row(&holder, at(b"k"), false, X, Policy::NoWait).expect("granted");
    w.txns.lock_row(&holder, at(b"other"), false, X, Policy::NoWait).expect("granted");
    let modes = [X, X, S, S, X, S];
    let line: Vec<_> = modes.iter().map(|mode| (w.txns.begin(), *mode)).collect();
    let (send, granted) = mpsc::channel();
    std::thread::scope(|s| {
        let threads = wait_in_line(s, &w, b"k", &line, &send);
        woken(&w);
        w.txns.unlock_row(&holder, T, b"other", X, false);
        assert_eq!(woken(&w), 0, "another row was let go");
        let end = |who: &TxnRef, next: &[usize]| {
            w.txns.commit(who).expect("ends");
            assert_eq!(woken(&w), next.len());
            let mut got: Vec<_> = next.iter().map(|_| granted.recv().expect("granted")).collect();
            got.sort_unstable();
            assert_eq!(got, next);
        };
        end(&holder, &[0]);
        end(&line[0].0, &[1]);
        end(&line[1].0, &[2, 3]);
        end(&line[2].0, &[]);
        end(&line[3].0, &[4]);
        end(&line[4].0, &[5]);
        end(&line[5].0, &[]);
        for thread in threads {
            thread.join().expect("thread").expect("granted");
        }
    });
    assert_eq!(w.txns.locks.count(), 0);
}

/// Transactions that saw the stamp wait in the same queue; the first of them gets the row when the
/// stamp is decided, and later ones queue behind.
#[test]
fn the_writer_of_a_row_is_the_head_of_its_queue() {
    for commits in [true, false] {
        let w = world(small());
        let rows = Rows::new(&w);
        let t = begin(&w, 4);
        rows.write(&t[0], b"k", b"1");
        let (send, granted) = mpsc::channel();
        std::thread::scope(|s| {
            for (n, next) in [&t[1], &t[2]].into_iter().enumerate() {
                let (w, send, by) = (&w, send.clone(), Some(t[0].id()));
                s.spawn(move || {
                    let waited = w.txns.wait_write(next, at(b"k"), false, by, Deadline::NEVER);
                    assert!(waited.expect("granted"));
                    send.send(n).expect("listens");
                });
                until_waiting(w, n + 1);
            }
            woken(&w);
            match commits {
                true => drop(w.txns.commit(&t[0]).expect("ends")),
                false => w.txns.abort(&t[0]).expect("ends"),
            }
            assert_eq!((granted.recv(), woken(&w)), (Ok(0), 1));
            assert!(!w.txns.check_write(&t[3], T, b"k").is_empty(), "it came later");
            assert!(w.txns.check_write(&t[1], T, b"k").is_empty(), "it has the row");
            w.txns.commit(&t[1]).expect("ends");
            assert_eq!((granted.recv(), woken(&w)), (Ok(1), 1));
            w.txns.commit(&t[2]).expect("ends");
        });
        assert_eq!((w.txns.locks.count(), w.txns.lock_bytes()), (0, 0));
    }
}

/// A rollback to a savepoint releases a row that was changed behind it, and keeps a row that was
/// changed before too.
#[test]
fn a_rollback_to_a_savepoint_hands_the_row_over() {
    let w = world(small());
    let rows = Rows::new(&w);
    let (writer, next) = (w.txns.begin(), w.txns.begin());
    rows.write(&writer, b"before", b"1");
    let mark = writer.mark();
    rows.write(&writer, b"before", b"2");
    rows.write(&writer, b"k", b"1");
    std::thread::scope(|s| {
        let wait = |key: &'static [u8], deadline| {
            w.txns.wait_write(&next, at(key), false, Some(writer.id()), deadline)
        };
        let waiter = s.spawn(move || wait(b"k", Deadline::NEVER));
        until_waiting(&w, 1);
        w.txns.rollback_to(&writer, mark, &rows).expect("reverts");
        assert!(waiter.join().expect("thread").expect("granted"));
        let now = w.txns.deadline(Duration::from_millis(1));
        let error = wait(b"before", now).expect_err("still written by the other");
        assert_eq!(error.code(), Code::LockWaitTimeout);
    });
    w.txns.commit(&writer).expect("ends");
    w.txns.commit(&next).expect("ends");
    assert_eq!(w.txns.locks.count(), 0);
}

/// A writer waits for the transactions that share the row now, and no further one overtakes it.
#[test]
fn a_writer_is_not_overtaken_by_shared_locks() {
    let w = world(small());
    let t = begin(&w, 4);
    w.txns.lock_row(&t[0], at(b"k"), false, S, Policy::NoWait).expect("granted");
    std::thread::scope(|s| {
        let writer = s.spawn(|| w.txns.wait_write(&t[1], at(b"k"), false, None, Deadline::NEVER));
        until_waiting(&w, 1);
        let later =
            w.txns.lock_row(&t[2], at(b"k"), false, S, Policy::NoWait).expect_err("came later");
        assert_eq!(later.code(), Code::LockNotAvailable);
        assert_eq!(w.txns.try_lock_row(&t[2], at(b"k"), true, S).expect("asks"), Err(t[1].id()));
        let range = (Bound::Included(&b"a"[..]), Bound::Excluded(&b"z"[..]));
        let ranged = w.txns.lock_range(&t[2], T, range, S, Policy::NoWait);
        assert_eq!(ranged.expect_err("came later").code(), Code::LockNotAvailable);
        let reader = s.spawn(|| w.txns.lock_row(&t[3], at(b"k"), false, S, WAIT));
        until_waiting(&w, 2);
        w.txns.commit(&t[0]).expect("ends");
        assert!(writer.join().expect("thread").expect("granted"));
        assert!(!reader.is_finished());
        w.txns.commit(&t[1]).expect("ends");
        reader.join().expect("thread").expect("granted");
    });
}

/// The holder of a row that requests a stronger lock does not queue behind those that wait for it.
#[test]
fn an_upgrade_goes_to_the_front_of_the_queue() {
    let w = world(small());
    let t = begin(&w, 3);
    for t in &t[..2] {
        w.txns.lock_row(t, at(b"k"), false, S, Policy::NoWait).expect("granted");
    }
    std::thread::scope(|s| {
        let behind = s.spawn(|| w.txns.lock_row(&t[2], at(b"k"), false, X, WAIT));
        until_waiting(&w, 1);
        let upgrade = s.spawn(|| w.txns.wait_write(&t[0], at(b"k"), false, None, Deadline::NEVER));
        until_waiting(&w, 2);
        w.txns.commit(&t[1]).expect("ends");
        assert!(upgrade.join().expect("thread").expect("granted"));
        assert!(!behind.is_finished());
        w.txns.commit(&t[0]).expect("ends");
        behind.join().expect("thread").expect("granted");
    });
}

/// A range that waits for the holder of a row does not block that holder.
#[test]
fn a_waiting_range_does_not_block_the_holder_of_a_row() {
    let w = world(small());
    let t = begin(&w, 2);
    w.txns.lock_row(&t[0], at(b"k"), false, S, Policy::NoWait).expect("granted");
    w.txns.lock_row(&t[0], at(b"x"), false, X, Policy::NoWait).expect("granted");
    let all: KeyBounds<'_> = (Bound::Unbounded, Bound::Unbounded);
    std::thread::scope(|s| {
        let range = s.spawn(|| w.txns.lock_range(&t[1], T, all, X, WAIT));
        until_waiting(&w, 1);
        for key in [b"k", b"x"] {
            assert!(w.txns.check_write(&t[0], T, key).is_empty());
            w.txns.lock_row(&t[0], at(key), false, X, Policy::NoWait).expect("nobody else has it");
        }
        assert!(!w.txns.check_write(&t[0], T, b"y").is_empty(), "it came later");
        w.txns.commit(&t[0]).expect("ends");
        range.join().expect("thread").expect("granted");
    });
}

/// However many wait, a further waiter searches for deadlocks through the holder alone.
#[test]
fn every_waiter_of_a_row_waits_for_its_holder_alone() {
    let w = world(small());
    let holder = w.txns.begin();
    w.txns.lock_row(&holder, at(b"k"), false, X, Policy::NoWait).expect("granted");
    let line: Vec<_> = (0..20).map(|_| (w.txns.begin(), X)).collect();
    let (send, _granted) = mpsc::channel();
    std::thread::scope(|s| {
        let threads = wait_in_line(s, &w, b"k", &line, &send);
        for (t, _) in &line {
            assert_eq!(w.txns.waits_of(t), [holder.id()]);
        }
        w.txns.commit(&holder).expect("ends");
        for ((t, _), thread) in line.iter().zip(threads) {
            thread.join().expect("thread").expect("granted");
            w.txns.commit(t).expect("ends");
        }
    });
}

/// Of transactions with equal work, the one with fewer locks gives up, though it is older.
#[test]
fn the_deadlock_victim_among_equals_holds_fewer_locks() {
    let w = world(small());
    let (few, many) = (w.txns.begin(), w.txns.begin());
    w.txns.lock_row(&few, at(b"a"), false, X, Policy::NoWait).expect("granted");
    for key in [b"b", b"c", b"d"] {
        w.txns.lock_row(&many, at(key), false, X, Policy::NoWait).expect("granted");
    }
    std::thread::scope(|s| {
        let waiter = s.spawn(|| w.txns.lock_row(&few, at(b"b"), false, X, WAIT));
        until_waiting(&w, 1);
        let closing = s.spawn(|| w.txns.lock_row(&many, at(b"a"), false, X, WAIT));
        let error = waiter.join().expect("thread").expect_err("holds less");
        assert_eq!(error.kind(), Kind::Deadlock);
        w.txns.abort(&few).expect("aborts");
        closing.join().expect("thread").expect("granted");
    });
}

/// A lookup of one key among many ranges visits few of them; without locks it visits none.
#[test]
fn a_write_examines_only_ranges_near_its_key() {
    let w = world(small());
    let t = begin(&w, 2);
    for n in 0..1000u32 {
        let (low, high) = ((2 * n).to_be_bytes(), (2 * n + 1).to_be_bytes());
        let range = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
        w.txns.lock_range(&t[0], T, range, S, Policy::NoWait).expect("granted");
    }
    let space = [1, 0, 0, 0, TREE.0 as u8];
    w.txns.locks.ranges().take_looked_at(&space);
    assert_eq!(w.txns.check_write(&t[1], T, &1000u32.to_be_bytes()), [t[0].id()]);
    assert!(w.txns.check_write(&t[1], T, &1001u32.to_be_bytes()).is_empty());
    let looked_at = w.txns.locks.ranges().take_looked_at(&space);
    assert!((1..=80).contains(&looked_at), "{looked_at} of 1000, twice");
}

/// A lock of one row makes few writers of other rows search.
#[test]
fn a_row_lock_makes_few_other_writers_search() {
    let w = world(small());
    let t = w.txns.begin();
    w.txns.lock_row(&t, at(b"k"), false, X, Policy::NoWait).expect("granted");
    let space = [1, 0, 0, 0, TREE.0 as u8];
    let look = |n: &u32| w.txns.locks.may_be_against(&space, &n.to_be_bytes());
    let looking = (0..10_000u32).filter(look).count();
    assert!(looking < 1000, "{looking} of 10,000");
    let all = (Bound::Unbounded, Bound::Unbounded);
    w.txns.lock_range(&t, T, all, S, Policy::NoWait).expect("granted");
    assert!((0..10_000u32).all(|n| look(&n)));
    let others = (100..1100).filter(|n| {
        let (tree, index) = (LockSpace::Tree(TreeId(*n)), LockSpace::Index(IndexId(*n)));
        !w.txns.check_write(&w.txns.begin(), tree, b"k").is_empty()
            || !w.txns.check_write(&w.txns.begin(), index, b"k").is_empty()
    });
    assert_eq!(others.count(), 0);
}

/// The reports that came (the waiting transaction, and those it waits for), and the kind of report
/// that the watch asks for.
#[derive(Clone)]
struct Told(Arc<Mutex<Vec<Line>>>, Report);

type Line = (u64, Vec<u64>);

impl WaitWatch for Told {
    fn asks(&self, _: u64) -> Report {
        self.1
    }

    fn begins(&self, waiter: u64, others: &[u64]) {
        let mut others = others.to_vec();
        others.sort_unstable();
        others.dedup();
        self.0.lock().expect("told").push((waiter, others));
    }
}

impl Told {
    fn until(&self, waiter: u64, others: &[u64]) {
        loop {
            let told = self.0.lock().expect("told").clone();
            if told.iter().any(|(w, o)| *w == waiter && *o == others) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// The transactions in the first report of a wait, which may be still to come.
    fn of(&self, waiter: u64) -> Vec<u64> {
        loop {
            let told = self.0.lock().expect("told").clone();
            if let Some((_, others)) = told.into_iter().find(|(w, _)| *w == waiter) {
                return others;
            }
            std::thread::yield_now();
        }
    }
}

/// Each waiter reports every transaction before it, waiting ones included, and reports again when a
/// sharer of the row gets ahead of it.
#[test]
fn a_waiter_reports_every_transaction_before_it() {
    let w = world(small());
    let told = Told(Arc::default(), Report::All);
    w.txns.watch_waits(Box::new(told.clone()));
    let t = begin(&w, 5);
    (1..).zip(&t).for_each(|(tag, t)| t.set_tag(tag));
    for t in &t[..2] {
        w.txns.lock_row(t, at(b"k"), false, S, Policy::NoWait).expect("granted");
    }
    std::thread::scope(|s| {
        let wait = |n: usize, mode| {
            let (w, t) = (&w, &t);
            s.spawn(move || w.txns.lock_row(&t[n], at(b"k"), false, mode, WAIT))
        };
        let third = wait(2, X);
        told.until(3, &[1, 2]);
        let fourth = wait(3, X);
        told.until(4, &[1, 2, 3]);
        let fifth = wait(4, S);
        told.until(5, &[3, 4]);
        // The upgrade gets ahead of all; the fifth had no reason to wait for it before.
        let upgrade = wait(0, X);
        told.until(1, &[2]);
        told.until(5, &[1, 3, 4]);
        w.txns.commit(&t[1]).expect("ends");
        for (n, thread) in [(0, upgrade), (2, third), (3, fourth), (4, fifth)] {
            thread.join().expect("thread").expect("granted");
            w.txns.commit(&t[n]).expect("ends");
        }
    });
}

/// A report of the nearest names two transactions however many wait: the holder, and the one right
/// before the waiter. So each transaction that others wait for is named by the one behind it.
#[test]
fn a_report_of_the_nearest_has_the_same_length_however_many_wait() {
    let w = world(small());
    let told = Told(Arc::default(), Report::Nearest);
    w.txns.watch_waits(Box::new(told.clone()));
    let t = begin(&w, 12);
    (1..).zip(&t).for_each(|(tag, t)| t.set_tag(tag));
    w.txns.lock_row(&t[0], at(b"k"), false, X, Policy::NoWait).expect("granted");
    std::thread::scope(|s| {
        let mut threads = Vec::new();
        for (n, t) in t.iter().enumerate().skip(1) {
            let (w, tag) = (&w, n as u64 + 1);
            threads.push(s.spawn(move || w.txns.lock_row(t, at(b"k"), false, X, WAIT)));
            let before = if tag == 2 { vec![1] } else { vec![1, tag - 1] };
            assert_eq!(told.of(tag), before);
        }
        for (t, thread) in t.iter().zip(threads) {
            w.txns.commit(t).expect("ends");
            thread.join().expect("thread").expect("granted");
        }
    });
    assert_eq!(told.0.lock().expect("told").len(), 11, "one report of each wait");
}
