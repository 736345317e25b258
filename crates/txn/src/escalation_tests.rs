//! Memory of locks: own ranges, limits, and which keys are escalated to ranges.

use crate::testing::*;
use crate::{Deadline, Grant, KeyBounds, LockSpace, Mode, Policy, TxnOptions, TxnRef};
use evenkeel_base::{Code, Result};
use std::ops::Bound;

const T: LockSpace = LockSpace::Tree(TREE);
const S: Mode = Mode::Shared;
const X: Mode = Mode::Exclusive;

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn row(w: &World, t: &TxnRef, n: u32, mode: Mode) -> Result<Grant> {
    w.txns.lock_row(t, (T, &key(n)), false, mode, Policy::NoWait)
}

fn absent(w: &World, t: &TxnRef, n: u32) -> Result<Grant> {
    w.txns.lock_row(t, (T, &key(n)), true, X, Policy::NoWait)
}

fn range(w: &World, t: &TxnRef, from: u32, to: u32, mode: Mode) -> Result<Grant> {
    let (from, to) = (key(from), key(to));
    let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
    w.txns.lock_range(t, T, bounds, mode, Policy::NoWait)
}

fn points(t: &TxnRef) -> usize {
    t.locked_rows()
}

fn writes(w: &World, t: &TxnRef, n: u32) -> bool {
    w.txns.check_write(t, T, &key(n)).is_empty()
}

fn inserts(w: &World, t: &TxnRef, n: u32) -> bool {
    w.txns.check_insert(t, T, &key(n)).is_empty()
}

fn nothing_left(w: &World) {
    assert_eq!((w.txns.lock_bytes(), w.txns.locks.count()), (0, 0));
}

/// The numbers below `n` in mixed order.
fn shuffled(n: u32) -> impl Iterator<Item = u32> {
    (0..n).map(move |i| (u64::from(i) * 7_919 % u64::from(n)) as u32)
}

#[test]
fn own_ranges_lock_the_keys_in_them() {
    let w = world(small());
    let (a, b) = (w.txns.begin(), w.txns.begin());
    range(&w, &a, 10, 20, S).expect("granted");
    row(&w, &a, 15, S).expect("covered");
    absent(&w, &a, 16).expect("wants more");
    row(&w, &a, 17, X).expect("wants more");
    row(&w, &a, 21, S).expect("not covered");
    assert_eq!(points(&a), 3);
    row(&w, &b, 15, S).expect("shared");
    assert!(row(&w, &b, 17, S).is_err() && !writes(&w, &b, 15));
    let wait = Policy::Wait(Deadline::NEVER);
    w.txns.lock_row(&a, (T, &key(14)), false, S, wait).expect("covered");
    assert_eq!(points(&a), 3);
    w.txns.commit(&a).expect("ends");
    w.txns.commit(&b).expect("ends");
    nothing_left(&w);
}

/// Any number of locks in mixed order takes no more than a fraction of the memory.
#[test]
fn one_transaction_locks_any_number_of_rows() {
    let w = world(small());
    let t = w.txns.begin();
    let (mut peak, n) = (0, 200_003);
    for i in shuffled(n) {
        row(&w, &t, i, X).expect("there is room");
        peak = peak.max(w.txns.lock_bytes());
    }
    assert!(peak <= small().lock_bytes / 2, "{peak}");
    let other = w.txns.begin();
    assert!((0..n).step_by(997).all(|i| !writes(&w, &other, i) && row(&w, &other, i, S).is_err()));
    // The rows are locked, and the gaps between them are not.
    assert!(inserts(&w, &other, n / 2) && writes(&w, &other, n));
    w.txns.abort(&t).expect("ends");
    nothing_left(&w);
}

/// Locks, waits and ranges of other transactions divide the escalated ranges.
#[test]
fn escalation_stops_at_locks_and_waits_of_others() {
    let w = world(small());
    let (a, b, waiter) = (w.txns.begin(), w.txns.begin(), w.txns.begin());
    let (held, shared, awaited) = (100, 202, 300);
    row(&w, &b, held + 1, S).expect("granted");
    range(&w, &b, 401, 499, X).expect("granted");
    for i in (0..600).step_by(2).filter(|i| !(400..500).contains(i)) {
        row(&w, &a, i, S).expect("granted");
    }
    row(&w, &b, shared, S).expect("granted");
    std::thread::scope(|s| {
        let wait = s.spawn(|| {
            w.txns.lock_row(&waiter, (T, &key(awaited)), false, X, Policy::Wait(Deadline::NEVER))
        });
        while w.txns.waiting() < 1 {
            std::thread::yield_now();
        }
        w.txns.locks.escalate(&a);
        // Keys that other transactions hold or wait for stay keys.
        assert_eq!(points(&a), 2);
        assert_eq!(a.locks.lock().ranges.len(), 5);
        let other = w.txns.begin();
        for i in (0..600).step_by(2).filter(|i| !(400..500).contains(i)) {
            assert!(!writes(&w, &other, i), "{i}");
            // Where a transaction waits, no other one gets ahead of it.
            assert_eq!(row(&w, &other, i, S).is_err(), i == awaited, "{i}");
        }
        assert!(inserts(&w, &other, held - 1) && !writes(&w, &other, held + 1));
        // The holder of a key can still take it.
        row(&w, &b, held + 1, X).expect("its own");
        assert!(writes(&w, &b, held + 1) && writes(&w, &b, 450));
        w.txns.commit(&other).expect("ends");
        w.txns.commit(&a).expect("ends");
        wait.join().expect("thread").expect("granted");
    });
    for t in [&b, &waiter] {
        w.txns.commit(t).expect("ends");
    }
    nothing_left(&w);
}

/// A key without a row makes the range keep rows out; the range takes the strongest lock of its
/// keys.
#[test]
fn an_escalated_range_is_as_strong_as_its_keys() {
    for (is_absent, mode) in [(false, S), (true, S), (false, X)] {
        let w = world(small());
        let (a, b) = (w.txns.begin(), w.txns.begin());
        for i in 0..20 {
            row(&w, &a, 2 * i, S).expect("granted");
        }
        if is_absent {
            w.txns.lock_row(&a, (T, &key(9)), true, S, Policy::NoWait).expect("granted");
        }
        row(&w, &a, 20, mode).expect("granted");
        w.txns.locks.escalate(&a);
        assert_eq!(points(&a), 0);
        assert_eq!(w.txns.locks.locks_of(&a), 20 + usize::from(is_absent));
        assert_eq!(inserts(&w, &b, 9), !is_absent);
        assert_eq!(row(&w, &b, 20, S).is_ok(), mode == S);
        assert!(!writes(&w, &b, 10));
        row(&w, &a, 10, mode).expect("covered");
        assert_eq!(points(&a), 0);
        w.txns.commit(&a).expect("ends");
        w.txns.commit(&b).expect("ends");
        nothing_left(&w);
    }
}

/// A range that waits for a range does not block the holder of the latter.
#[test]
fn a_waiting_range_does_not_block_the_holder_of_a_range() {
    let w = world(small());
    let (a, b) = (w.txns.begin(), w.txns.begin());
    (0..20).for_each(|i| assert!(row(&w, &a, i, X).is_ok()));
    w.txns.locks.escalate(&a);
    let all: KeyBounds<'_> = (Bound::Unbounded, Bound::Unbounded);
    std::thread::scope(|s| {
        let wait = s.spawn(|| w.txns.lock_range(&b, T, all, S, Policy::Wait(Deadline::NEVER)));
        while w.txns.waiting() < 1 {
            std::thread::yield_now();
        }
        let ways = (writes(&w, &a, 7), row(&w, &a, 7, X).is_ok(), inserts(&w, &a, 100));
        let waited = w.txns.lock_row(&a, (T, &key(8)), false, X, Policy::Wait(Deadline::NEVER));
        w.txns.commit(&a).expect("ends");
        wait.join().expect("thread").expect("granted");
        assert_eq!((ways, waited.is_ok()), ((true, true, false), true));
    });
    w.txns.commit(&b).expect("ends");
    nothing_left(&w);
}

/// A transaction whose keys cannot be escalated is refused at its limit, and others are not.
#[test]
fn a_transaction_at_its_lock_limit_leaves_others_their_memory() {
    let limit = 100_000;
    let w = world(TxnOptions { lock_bytes: limit, ..small() });
    let (a, b, c) = (w.txns.begin(), w.txns.begin(), w.txns.begin());
    // Another transaction shares the range: no stretch is free of its locks.
    range(&w, &b, 0, 1_000_000, S).expect("granted");
    let refused = (0..10_000).find_map(|i| row(&w, &a, i, S).err()).expect("refused");
    assert_eq!(refused.code(), Code::LocksFull);
    let held = points(&a) as u32;
    assert!(held > 100 && w.txns.lock_bytes() < limit / 2 + 2_000);
    for i in 0..held / 4 {
        row(&w, &b, 2_000_000 + i, X).expect("others have room");
        row(&w, &c, 3_000_000 + i, X).expect("others have room");
    }
    // Its locks stay, and it gets more when that range is released.
    assert!((0..held).all(|i| row(&w, &c, i, X).is_err()));
    w.txns.unlock_row(&a, T, &key(7), S, false);
    row(&w, &a, 8_000, S).expect("there is room again");
    for t in [&a, &b, &c] {
        w.txns.abort(t).expect("ends");
    }
    nothing_left(&w);
}

/// A failed statement releases its own lock of the row; the lock of an earlier statement stays.
#[test]
fn a_changed_row_keeps_the_lock_of_an_earlier_statement() {
    let w = world(small());
    let (a, b) = (w.txns.begin(), w.txns.begin());
    row(&w, &a, 1, X).expect("granted");
    a.begin_statement();
    row(&w, &a, 2, X).expect("granted");
    row(&w, &a, 1, X).expect("has it");
    (1..=2).for_each(|n| w.txns.row_changed(&a, T, &key(n)));
    assert_eq!(points(&a), 1);
    assert!(!writes(&w, &b, 1) && writes(&w, &b, 2));
    w.txns.commit(&a).expect("ends");
    nothing_left(&w);
}

/// Releasing many locks one after the other, in any order, takes no search for each.
#[test]
fn unlocking_in_any_order_searches_no_list() {
    let w = world(TxnOptions { lock_bytes: 1 << 30, ..small() });
    let t = w.txns.begin();
    let n = 200_003;
    for i in 0..n {
        row(&w, &t, i, X).expect("granted");
    }
    let mut kept = 0;
    for (gone, i) in shuffled(n).enumerate() {
        w.txns.unlock_row(&t, T, &key(i), X, false);
        let held = t.locks.lock();
        assert_eq!(held.points(), n as usize - gone - 1);
        kept = kept.max(held.keys().len() - held.points());
    }
    assert!(kept <= n as usize / 2 + 16, "{kept} keys are kept for nothing");
    nothing_left(&w);
    w.txns.commit(&t).expect("ends");
}
