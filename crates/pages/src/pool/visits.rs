//! The number of pages that a thread has latched and read: the cost of an operation, independent of
//! other load on the machine. For tests that assert counts and not times, and for figures of a
//! statement.

use std::cell::Cell;

/// Pages a thread has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Pages latched, for reading or writing.
    pub visits: u64,
    /// Pages that the thread itself read from storage, without prefetches by others.
    pub reads: u64,
    /// How long these reads took.
    pub read_ns: u64,
}

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
    static READS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Pages that this thread has latched so far, for reading or writing.
pub fn visits() -> u64 {
    VISITS.get()
}

/// What this thread has used so far.
pub fn costs() -> Costs {
    let (reads, read_ns) = READS.get();
    Costs { visits: VISITS.get(), reads, read_ns }
}

#[inline]
pub(crate) fn count() {
    VISITS.set(VISITS.get().wrapping_add(1));
}

pub(crate) fn count_read(pages: usize, ns: u64) {
    let (reads, read_ns) = READS.get();
    READS.set((reads.wrapping_add(pages as u64), read_ns.wrapping_add(ns)));
}
