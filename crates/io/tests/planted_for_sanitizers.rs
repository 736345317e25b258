//! Faults planted for the sanitizers, one in each test. `scripts/sanitize.py` runs each test under
//! the sanitizer that must report its fault, before that sanitizer runs the tests of the crates: a
//! sanitizer that lets its fault pass looks at nothing. All tests here are ignored by default: what
//! the faults do without a sanitizer is undefined.
//!
//! A fault `in_the_standard_library` is an access by the code of `core`, which a sanitizer sees
//! only if that library was compiled with it.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

const LEN: usize = 256;

/// Bytes that two threads use at once, against the rules.
struct Unguarded(UnsafeCell<[u8; LEN]>);

// SAFETY: there is none, on purpose.
unsafe impl Sync for Unguarded {}

impl Unguarded {
    fn start(&self) -> *mut u8 {
        self.0.get().cast()
    }
}

/// Two threads, one of which writes a byte while the other calls `other`. The threads meet by a
/// number that orders no other access, so each fault is a race however they are scheduled.
fn race(other: impl Fn(&Unguarded) + Sync) {
    let (bytes, arrived) = (Unguarded(UnsafeCell::new([b'a'; LEN])), AtomicU32::new(0));
    let meet = || {
        arrived.fetch_add(1, Relaxed);
        while arrived.load(Relaxed) < 2 {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            meet();
            // SAFETY: there is none: this is the fault.
            unsafe { bytes.start().write_volatile(b'b') };
        });
        scope.spawn(|| {
            meet();
            other(&bytes);
        });
    });
}

#[test]
#[ignore = "a fault, for the thread sanitizer and Miri"]
fn a_planted_data_race() {
    race(|bytes| {
        // SAFETY: there is none: this is the fault.
        let read = unsafe { bytes.start().read_volatile() };
        assert!(read == b'a' || read == b'b');
    });
}

#[test]
#[ignore = "a fault, for the thread sanitizer"]
fn a_planted_data_race_in_the_standard_library() {
    race(|bytes| {
        // SAFETY: there is none: this is the fault.
        let read = unsafe { std::slice::from_raw_parts(bytes.start(), LEN) };
        assert!(std::str::from_utf8(black_box(read)).is_ok());
    });
}

#[test]
#[ignore = "a fault, for the address sanitizer and Miri"]
fn a_planted_use_after_free() {
    let boxed = Box::into_raw(Box::new(7u64));
    // SAFETY: the box was just taken apart. There is none for what follows: it is the fault.
    unsafe {
        drop(Box::from_raw(boxed));
        black_box(black_box(boxed).read_volatile());
    }
}

#[test]
#[ignore = "a fault, for the address sanitizer"]
fn a_planted_read_out_of_bounds_in_the_standard_library() {
    let bytes = vec![b'a'; LEN];
    // SAFETY: there is none: this is the fault.
    let beyond = unsafe { std::slice::from_raw_parts(black_box(bytes.as_ptr()), LEN + 16) };
    black_box(std::str::from_utf8(black_box(beyond)).is_ok());
}

#[test]
#[ignore = "a fault, for the address sanitizer, which looks for leaks when the process ends"]
fn a_planted_leak() {
    black_box(Box::into_raw(Box::new([7u8; LEN])));
}

#[test]
#[ignore = "a fault, for Miri, which alone knows which reference may write"]
fn planted_undefined_behaviour() {
    let mut number = 7u32;
    let first = &raw mut number;
    // SAFETY: both pointers are valid, but the exclusive reference ends what the first may do with
    // it alive: this is the fault.
    unsafe {
        let second = &mut *first;
        first.write(8);
        *second += 1;
    }
    assert!(number > 0);
}
