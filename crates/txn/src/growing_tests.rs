//! Ranges of scans that grow row by row: the keys that they lock, and where they stop.

use crate::testing::*;
use crate::{Deadline, Grant, GrowingRange, LockSpace, Mode, Policy, TxnRef};
use evenkeel_base::Result;
use std::ops::Bound;

const T: LockSpace = LockSpace::Tree(TREE);
const S: Mode = Mode::Shared;
const X: Mode = Mode::Exclusive;

/// Keys of different lengths, in the order of their numbers.
fn key(n: u32) -> Vec<u8> {
    let mut key = n.to_be_bytes().to_vec();
    key.resize(4 + n as usize % 7, 1);
    key
}

fn row(w: &World, t: &TxnRef, n: u32, mode: Mode) -> Result<Grant> {
    w.txns.lock_row(t, (T, &key(n)), false, mode, Policy::NoWait)
}

fn is_free(w: &World, n: u32) -> bool {
    let t = w.txns.begin();
    let free = w.txns.check_write(&t, T, &key(n)).is_empty();
    assert_eq!(row(w, &t, n, X).is_ok(), free, "row {n}");
    w.txns.commit(&t).expect("ends");
    free
}

fn inserts(w: &World, t: &TxnRef, n: u32) -> bool {
    w.txns.check_insert(t, T, &key(n)).is_empty()
}

/// Locks these rows one by one, and makes a range of them.
fn begin(w: &World, t: &TxnRef, rows: &[u32], mode: Mode) -> Option<GrowingRange> {
    rows.iter().for_each(|n| assert!(row(w, t, *n, mode).is_ok()));
    let keys: Vec<_> = rows.iter().map(|n| key(*n)).collect();
    w.txns.range_of_rows(t, T, &keys, mode)
}

fn nothing_left(w: &World) {
    assert_eq!((w.txns.lock_bytes(), w.txns.locks.count()), (0, 0));
}

/// Up and down: the range locks the rows up to the last one, nothing behind it, and no gaps.
#[test]
fn a_range_grows_with_the_scan() {
    for down in [false, true] {
        let w = world(small());
        let (a, b) = (w.txns.begin(), w.txns.begin());
        let at = |i: u32| if down { 2_000 - 2 * i } else { 2 * i };
        let range = begin(&w, &a, &[at(0), at(1), at(2), at(3)], X).expect("free");
        let bytes = w.txns.lock_bytes();
        for i in 4..500 {
            assert!(is_free(&w, at(i)));
            assert!(w.txns.grow_range(&a, range, &key(at(i)), i % 50 == 0));
        }
        assert!((0..500).all(|i| !is_free(&w, at(i))) && is_free(&w, at(500)));
        assert!(inserts(&w, &b, at(250) + 1));
        assert_eq!(a.locked_rows(), 0);
        assert_eq!(w.txns.locks.locks_of(&a), 500);
        assert!(w.txns.lock_bytes() <= bytes + 4 * 7, "it takes no more memory");
        // Its own rows, once more.
        row(&w, &a, at(400), X).expect("has it");
        assert!(w.txns.grow_range(&a, range, &key(at(400)), false));
        assert_eq!((a.locked_rows(), w.txns.locks.locks_of(&a)), (0, 500));
        w.txns.shrink_range(&a, range, &key(at(499)), false);
        assert!(is_free(&w, at(499)) && !is_free(&w, at(498)));
        w.txns.commit(&a).expect("ends");
        w.txns.commit(&b).expect("ends");
        nothing_left(&w);
    }
}

/// A row that another transaction holds or waits for ends the range, and so does its range.
#[test]
fn a_range_stops_at_what_others_hold_or_wait_for() {
    let w = world(small());
    let (a, b, waiter) = (w.txns.begin(), w.txns.begin(), w.txns.begin());
    let range = begin(&w, &a, &[2, 4, 6, 8], S).expect("free");
    row(&w, &b, 10, S).expect("granted");
    assert!(!w.txns.grow_range(&a, range, &key(10), false), "shared with another one");
    // Behind it, in another leaf.
    assert!(!w.txns.grow_range(&a, range, &key(12), true));
    w.txns.unlock_row(&b, T, &key(10), S, false);
    assert!(w.txns.grow_range(&a, range, &key(12), true));
    let (from, to) = (key(15), key(17));
    let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
    w.txns.lock_range(&b, T, bounds, S, Policy::NoWait).expect("granted");
    assert!(!w.txns.grow_range(&a, range, &key(16), false));
    assert!(!w.txns.grow_range(&a, range, &key(20), true));
    assert!(w.txns.grow_range(&a, range, &key(14), false));
    std::thread::scope(|s| {
        row(&w, &b, 18, X).expect("granted");
        let wait = s.spawn(|| {
            w.txns.lock_row(&waiter, (T, &key(18)), false, S, Policy::Wait(Deadline::NEVER))
        });
        while w.txns.waiting() < 1 {
            std::thread::yield_now();
        }
        assert!(!w.txns.grow_range(&a, range, &key(18), false));
        w.txns.commit(&b).expect("ends");
        wait.join().expect("thread").expect("granted");
    });
    // An own lock of the row is no hindrance, a range in another mode is one.
    row(&w, &a, 16, X).expect("granted");
    assert!(w.txns.grow_range(&a, range, &key(16), true) && !is_free(&w, 16));
    let stronger = begin(&w, &a, &[30, 32, 34, 36], X).expect("free");
    assert!(w.txns.grow_range(&a, stronger, &key(38), false));
    w.txns.commit(&a).expect("ends");
    w.txns.commit(&waiter).expect("ends");
    nothing_left(&w);
}

/// A waiter is granted the row that a scan gives up, unless the scan has changed it.
#[test]
fn a_row_that_is_given_up_goes_to_its_waiter() {
    for written in [false, true] {
        let w = world(small());
        let (a, waiter) = (w.txns.begin(), w.txns.begin());
        let range = begin(&w, &a, &[2, 4, 6, 8], X).expect("free");
        assert!(w.txns.grow_range(&a, range, &key(10), false));
        std::thread::scope(|s| {
            let wait = s.spawn(|| {
                w.txns.lock_row(&waiter, (T, &key(10)), false, X, Policy::Wait(Deadline::NEVER))
            });
            while w.txns.waiting() < 1 {
                std::thread::yield_now();
            }
            w.txns.shrink_range(&a, range, &key(10), written);
            if written {
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert_eq!(w.txns.waiting(), 1);
                w.txns.commit(&a).expect("ends");
            }
            wait.join().expect("thread").expect("granted");
        });
        if !written {
            w.txns.commit(&a).expect("ends");
        }
        w.txns.commit(&waiter).expect("ends");
        nothing_left(&w);
    }
}
