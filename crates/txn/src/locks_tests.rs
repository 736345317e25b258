//! Conflicts, turns, ranges, memory, and deadlocks through locks and stamps together.

use super::*;
use crate::testing::*;
use evenkeel_base::Kind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const T: LockSpace = LockSpace::Tree(TreeId(1));
const S: Mode = Mode::Shared;
const X: Mode = Mode::Exclusive;

fn at(key: &[u8]) -> (LockSpace, &[u8]) {
    (T, key)
}

fn all<'a>() -> KeyBounds<'a> {
    (Bound::Unbounded, Bound::Unbounded)
}

fn bounds<'a>(low: &'a [u8], high: &'a [u8]) -> KeyBounds<'a> {
    (Bound::Included(low), Bound::Excluded(high))
}

fn row(w: &World, t: &TxnRef, key: &[u8], mode: Mode) -> Result<Grant> {
    w.txns.lock_row(t, at(key), false, mode, Policy::NoWait)
}

fn until_waiting(w: &World, n: usize) {
    while w.txns.waiting() < n {
        std::thread::yield_now();
    }
}

#[test]
fn shared_locks_share() {
    let w = world(small());
    let (a, b) = (w.txns.begin(), w.txns.begin());
    row(&w, &a, b"k", S).expect("granted");
    row(&w, &b, b"k", S).expect("shared");
    let error = row(&w, &a, b"k", X).expect_err("b holds it too");
    assert_eq!(error.code(), Code::LockNotAvailable);
    assert_eq!(
        w.txns.lock_row(&a, at(b"k"), false, X, Policy::Skip).expect("skips"),
        Grant::Skipped
    );
    w.txns.commit(&b).expect("ends");
    row(&w, &a, b"k", X).expect("upgraded");
    row(&w, &a, b"k", S).expect("has more");
    let c = w.txns.begin();
    assert!(row(&w, &c, b"k", S).is_err());
    assert_eq!(w.txns.try_lock_row(&c, at(b"k"), true, S).expect("asks"), Err(a.id()));
    row(&w, &c, b"other", X).expect("another key");
    w.txns
        .lock_row(&c, (LockSpace::Index(IndexId(1)), &b"k"[..]), false, X, Policy::NoWait)
        .expect("space");
    w.txns.commit(&a).expect("ends");
    row(&w, &c, b"k", X).expect("free");
    w.txns.abort(&c).expect("ends");
    assert_eq!((w.txns.lock_bytes(), w.txns.locks.count()), (0, 0));
}

#[test]
fn writers_respect_locks() {
    let w = world(small());
    let (a, b) = (w.txns.begin(), w.txns.begin());
    assert!(w.txns.check_write(&b, T, b"k").is_empty());
    row(&w, &a, b"k", S).expect("granted");
    assert_eq!(w.txns.check_write(&b, T, b"k"), [a.id()]);
    assert!(w.txns.check_write(&a, T, b"k").is_empty(), "its own lock");
    assert!(w.txns.check_write(&b, T, b"j").is_empty());
    w.txns.unlock_row(&a, T, b"k", S, false);
    assert!(w.txns.check_write(&b, T, b"k").is_empty());
    w.txns.lock_range(&a, T, bounds(b"c", b"f"), S, Policy::NoWait).expect("granted");
    for (key, free) in [(&b"b"[..], true), (b"c", false), (b"ez", false), (b"f", true)] {
        assert_eq!(w.txns.check_write(&b, T, key).is_empty(), free, "{key:?}");
    }
    assert!(w.txns.check_write(&b, LockSpace::Tree(TreeId(2)), b"d").is_empty());
    w.txns.commit(&a).expect("ends");
    assert!(w.txns.check_write(&b, T, b"d").is_empty());
}

#[test]
fn ranges_conflict_with_ranges_and_points() {
    let w = world(small());
    let (a, b) = (w.txns.begin(), w.txns.begin());
    let range =
        |t, low, high, mode| w.txns.lock_range(t, T, bounds(low, high), mode, Policy::NoWait);
    range(&a, b"c", b"f", S).expect("granted");
    range(&b, b"a", b"d", S).expect("shared");
    assert!(range(&b, b"e", b"z", X).is_err());
    range(&b, b"f", b"z", X).expect("does not touch");
    row(&w, &b, b"d", S).expect("shared");
    assert!(row(&w, &b, b"e", X).is_err());
    assert!(range(&a, b"x", b"y", S).is_err());
    assert!(range(&a, b"b", b"e", X).is_err(), "b holds a row and a range in it");
    w.txns.lock_range(&a, T, all(), S, Policy::Skip).expect("skips");
    w.txns.commit(&b).expect("ends");
    range(&a, b"b", b"e", X).expect("free");
    w.txns.lock_range(&a, T, all(), X, Policy::NoWait).expect("free");
    assert!(w.txns.check_write(&w.txns.begin(), T, b"").contains(&a.id()));
    w.txns.commit(&a).expect("ends");
    assert_eq!((w.txns.lock_bytes(), w.txns.locks.count()), (0, 0));
}

#[test]
fn a_writer_is_not_starved_by_readers() {
    let w = world(small());
    let (a, b, c) = (w.txns.begin(), w.txns.begin(), w.txns.begin());
    row(&w, &a, b"k", S).expect("granted");
    std::thread::scope(|s| {
        let waiter =
            s.spawn(|| w.txns.lock_row(&b, at(b"k"), false, X, Policy::Wait(Deadline::NEVER)));
        until_waiting(&w, 1);
        assert!(row(&w, &c, b"k", S).is_err(), "b came first");
        w.txns.commit(&a).expect("ends");
        waiter.join().expect("thread").expect("granted");
    });
    w.txns.commit(&b).expect("ends");
    row(&w, &c, b"k", S).expect("free");
}

#[test]
fn a_waiter_that_gives_up_lets_others_pass() {
    let w = world(small());
    let (a, b, c) = (w.txns.begin(), w.txns.begin(), w.txns.begin());
    row(&w, &a, b"k", S).expect("granted");
    std::thread::scope(|s| {
        let waiter =
            s.spawn(|| w.txns.lock_row(&b, at(b"k"), false, X, Policy::Wait(Deadline::NEVER)));
        until_waiting(&w, 1);
        let third =
            s.spawn(|| w.txns.lock_row(&c, at(b"k"), false, S, Policy::Wait(Deadline::NEVER)));
        until_waiting(&w, 2);
        b.cancel();
        assert_eq!(waiter.join().expect("thread").expect_err("given up").kind(), Kind::Cancelled);
        third.join().expect("thread").expect("granted beside a");
    });
}

/// A receiver of wait reports that panics.
struct Panics;

impl crate::WaitWatch for Panics {
    fn begins(&self, _: u64, _: &[u64]) {
        panic!("told of a wait");
    }
}

#[test]
fn a_wait_that_unwinds_leaves_nothing_in_the_way() {
    let w = world(small());
    w.txns.watch_waits(Box::new(Panics));
    let (a, b, c) = (w.txns.begin(), w.txns.begin(), w.txns.begin());
    row(&w, &a, b"k", X).expect("granted");
    let unwinds = |ask: &dyn Fn() -> Result<Grant>| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).expect_err("unwinds");
    };
    let wait = Policy::Wait(Deadline::NEVER);
    unwinds(&|| w.txns.lock_row(&b, at(b"k"), false, X, wait));
    unwinds(&|| w.txns.lock_range(&b, T, bounds(b"a", b"z"), X, wait));
    w.txns.abort(&b).expect("ends");
    w.txns.abort(&a).expect("ends");
    // This would wait forever if a request of b were still in the queue.
    assert_eq!(w.txns.inspect_locks(10).len(), 0);
    w.txns.lock_row(&c, at(b"k"), false, X, wait).expect("granted");
    w.txns.lock_range(&c, T, bounds(b"a", b"z"), X, wait).expect("granted");
    w.txns.abort(&c).expect("ends");
    assert_eq!((w.txns.lock_bytes(), w.txns.waiting()), (0, 0));
}

#[test]
fn a_deadlock_through_a_lock_and_a_stamp() {
    let w = world(small());
    let rows = Rows::new(&w);
    let (a, b) = (w.txns.begin(), w.txns.begin());
    // a has written a row; b has locked another one.
    rows.write(&a, b"row", b"1");
    row(&w, &b, b"other", X).expect("granted");
    let policy = Policy::Wait(w.txns.deadline(Duration::from_secs(50)));
    std::thread::scope(|s| {
        let waiter = s.spawn(|| w.txns.wait_for(&b, a.id(), Deadline::NEVER));
        until_waiting(&w, 1);
        let closing = s.spawn(|| w.txns.lock_row(&a, at(b"other"), false, S, policy));
        let error = waiter.join().expect("thread").expect_err("b has done less");
        assert_eq!(error.kind(), Kind::Deadlock);
        w.txns.abort(&b).expect("aborts");
        closing.join().expect("thread").expect("granted");
    });
}

#[test]
fn an_upgrade_of_two_is_a_deadlock() {
    let w = world(small());
    let (a, b) = (w.txns.begin(), w.txns.begin());
    row(&w, &a, b"k", S).expect("granted");
    row(&w, &b, b"k", S).expect("granted");
    std::thread::scope(|s| {
        let waiter =
            s.spawn(|| w.txns.lock_row(&a, at(b"k"), false, X, Policy::Wait(Deadline::NEVER)));
        until_waiting(&w, 1);
        let error = w.txns.lock_row(&b, at(b"k"), false, X, Policy::Wait(Deadline::NEVER));
        assert_eq!(error.expect_err("the younger one").kind(), Kind::Deadlock);
        w.txns.abort(&b).expect("aborts");
        waiter.join().expect("thread").expect("granted");
    });
}

#[test]
fn a_million_changed_rows_need_no_lock_memory() {
    let w = world(small());
    let t = w.txns.begin();
    for i in 0..1_000_000u32 {
        let key = i.to_be_bytes();
        w.txns.reserve_undo(&t, 64).expect("room");
        assert!(w.txns.check_write(&t, T, &key).is_empty());
        w.txns.push_undo(&t, evenkeel_format::record::RowKind::Insert, TREE, &key, None);
        while w.txns.undo_bytes() > w.txns.undo_bytes_max() / 2 {
            if w.txns.spill_beat().expect("spills") == evenkeel_base::Beat::Idle {
                break;
            }
        }
    }
    assert_eq!(w.txns.lock_bytes(), 0);
    assert!(w.txns.undo_bytes() <= 1 << 20);
}

/// Deviates from D5 (RFC 15): no other transaction passes the locks of a prepared transaction until
/// it is decided.
#[test]
fn a_prepared_transaction_keeps_its_locks() {
    for commits in [true, false] {
        let w = world(small());
        let rows = Rows::new(&w);
        let (a, b, c) = (w.txns.begin(), w.txns.begin(), w.txns.begin());
        rows.write(&a, b"r", b"1");
        row(&w, &a, b"k", X).expect("granted");
        w.txns.lock_range(&a, T, bounds(b"m", b"p"), S, Policy::NoWait).expect("granted");
        std::thread::scope(|s| {
            let waiter =
                s.spawn(|| w.txns.lock_row(&b, at(b"k"), false, X, Policy::Wait(Deadline::NEVER)));
            until_waiting(&w, 1);
            assert!(w.txns.prepare(&a, b"xid").expect("prepares"));
            let error = row(&w, &c, b"k", S).expect_err("still held");
            assert_eq!(error.code(), Code::LockNotAvailable);
            assert_eq!(w.txns.check_write(&c, T, b"k"), [a.id()]);
            assert_eq!(w.txns.check_write(&c, T, b"n"), [a.id()]);
            let now = w.txns.deadline(Duration::ZERO);
            let error =
                w.txns.lock_row(&c, at(b"n"), false, X, Policy::Wait(now)).expect_err("held");
            assert_eq!(error.code(), Code::LockWaitTimeout);
            assert!(!waiter.is_finished(), "woken before the decision");
            let decided = match commits {
                true => w.txns.commit_prepared(b"xid").map(|_| ()),
                false => w.txns.rollback_prepared(b"xid"),
            };
            decided.expect("ends");
            waiter.join().expect("thread").expect("granted");
        });
        assert!(w.txns.check_write(&c, T, b"n").is_empty());
        [b, c].iter().for_each(|t| w.txns.abort(t).expect("ends"));
        assert_eq!((w.txns.lock_bytes(), w.txns.locks.count()), (0, 0));
    }
}

/// Two requests for X precede one for S, and each closes a cycle with it: when the nearer one gives
/// up, the other one still has to.
#[test]
fn a_second_cycle_behind_a_deadlock_victim_is_broken() {
    let w = world(small());
    let (a, b, c, d) = (w.txns.begin(), w.txns.begin(), w.txns.begin(), w.txns.begin());
    row(&w, &a, b"k", S).expect("free");
    row(&w, &d, b"j", X).expect("free");
    std::thread::scope(|s| {
        let waits = |t: &TxnRef, key: &'static [u8], mode| {
            let (w, t) = (&w, t.clone());
            s.spawn(move || {
                let policy = Policy::Wait(w.txns.deadline(Duration::from_secs(50)));
                let result = w.txns.lock_row(&t, at(key), false, mode, policy);
                w.txns.abort(&t).expect("ends");
                result.map_err(|error| error.code())
            })
        };
        let writers = [&b, &c].map(|t| {
            let before = w.txns.waiting();
            let waiter = waits(t, b"k", X);
            until_waiting(&w, before + 1);
            waiter
        });
        let reader = waits(&d, b"k", S);
        until_waiting(&w, 3);
        // Waits for `d`, which waits for both writers, which wait for this one.
        let closing = waits(&a, b"j", S);
        for writer in writers {
            assert_eq!(writer.join().expect("thread"), Err(Code::DeadlockVictim));
        }
        assert_eq!(reader.join().expect("thread"), Ok(Grant::Granted));
        assert_eq!(closing.join().expect("thread"), Ok(Grant::Granted));
    });
    assert_eq!((w.txns.lock_bytes(), w.txns.locks.count()), (0, 0));
}

/// Of two transactions with the same number of operations the one with fewer locks is the victim,
/// whether it is older or younger and whichever of the two closes the cycle. With the same number
/// of locks the younger one is the victim.
#[test]
fn fewer_locks_decide_between_transactions_with_equal_undo() {
    for (locks, victim) in [([1, 3], 0), ([3, 1], 1), ([2, 2], 1)] {
        for first in [0, 1] {
            let w = world(small());
            let t = [w.txns.begin(), w.txns.begin()];
            for (t, (names, n)) in t.iter().zip([b"acd", b"bef"].iter().zip(locks)) {
                for name in names.chunks(1).take(n) {
                    row(&w, t, name, X).expect("free");
                }
            }
            let wait = |i: usize| {
                let policy = Policy::Wait(w.txns.deadline(Duration::from_secs(50)));
                let result = w.txns.lock_row(&t[i], at([b"b", b"a"][i]), false, X, policy);
                w.txns.abort(&t[i]).expect("ends");
                result.map_err(|error| error.code())
            };
            let mut results = [Ok(Grant::Granted); 2];
            std::thread::scope(|s| {
                let waiter = s.spawn(|| wait(first));
                until_waiting(&w, 1);
                results[1 - first] = wait(1 - first);
                results[first] = waiter.join().expect("thread");
            });
            let case = format!("{locks:?}, {first} waits first");
            assert_eq!(results[victim], Err(Code::DeadlockVictim), "{case}");
            assert_eq!(results[1 - victim], Ok(Grant::Granted), "{case}");
        }
    }
}

/// Threads lock, check and release at random; a shadow table finds two holders that conflict.
#[test]
fn no_two_conflicting_holders() {
    let w = world(small());
    // Per key: readers in the low half, writers in the high half.
    let shadow: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|s| {
        for i in 0..4 {
            let (w, shadow) = (&w, &shadow);
            s.spawn(move || {
                let mut random = Random(i);
                for _ in 0..500 {
                    lock_some(w, shadow, &mut random);
                }
            });
        }
    });
    assert_eq!((w.txns.lock_bytes(), w.txns.locks.count()), (0, 0));
}

fn lock_some(w: &World, shadow: &[AtomicU64], random: &mut Random) {
    let t = w.txns.begin();
    let mut held: Vec<(usize, u64)> = Vec::new();
    for _ in 0..2 {
        let key = random.below(4) as usize;
        let (mode, unit) = if random.below(2) == 0 { (S, 1) } else { (X, 1 << 32) };
        if held.iter().any(|(k, _)| *k == key) {
            continue;
        }
        let policy = Policy::Wait(w.txns.deadline(Duration::from_secs(50)));
        let (name, next) = ([key as u8], [key as u8 + 1]);
        let granted = match random.below(2) {
            0 => w.txns.lock_row(&t, at(&name), false, mode, policy),
            _ => w.txns.lock_range(&t, T, bounds(&name, &next), mode, policy),
        };
        if let Err(error) = granted {
            assert_eq!(error.kind(), Kind::Deadlock);
            break;
        }
        let before = shadow[key].fetch_add(unit, Ordering::SeqCst);
        assert!(before >> 32 == 0, "a writer holds {key}");
        assert!(mode == S || before == 0, "readers hold {key}");
        held.push((key, unit));
    }
    for (key, unit) in held {
        shadow[key].fetch_sub(unit, Ordering::SeqCst);
    }
    w.txns.commit(&t).expect("ends");
}
