//! How many pages a thread has latched: what an operation costs, whatever else the machine does.
//! For tests that assert counts and not times.

use std::cell::Cell;

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// Pages that this thread has latched so far, for reading or writing.
pub fn visits() -> u64 {
    VISITS.get()
}

#[inline]
pub(crate) fn count() {
    VISITS.set(VISITS.get().wrapping_add(1));
}
