//! Waits of one thread: whose they are, and where they count. A background thread's waits are
//! nobody's; those of a user's thread count by cause, and its waits for the device are users'
//! unless they are excluded.

use crate::device_wait;
use evenkeel_base::{Cause, WaitEvents};
use std::cell::Cell;

thread_local! {
    static BACKGROUND: Cell<bool> = const { Cell::new(false) };
    /// Its waits for the device are not users'.
    static EXCLUDED: Cell<bool> = const { Cell::new(false) };
    /// Nanoseconds of recorded waits of this thread.
    static ATTRIBUTED_NS: Cell<u64> = const { Cell::new(0) };
}

/// From now on this thread is a background one.
pub(crate) fn begin_background() {
    BACKGROUND.set(true);
}

pub(crate) fn is_background() -> bool {
    BACKGROUND.get()
}

/// Nanoseconds of recorded waits of this thread so far; they may wrap round.
pub(crate) fn attributed_ns() -> u64 {
    ATTRIBUTED_NS.get()
}

/// Until this is dropped, this thread's waits for the device are not users'.
pub struct ExcludedWaits {
    before: bool,
}

impl ExcludedWaits {
    pub(crate) fn begin() -> ExcludedWaits {
        ExcludedWaits { before: EXCLUDED.replace(true) }
    }
}

impl Drop for ExcludedWaits {
    fn drop(&mut self) {
        EXCLUDED.set(self.before);
    }
}

/// Counts time that this thread spent, unless it is a background one or had nothing to do.
pub(crate) fn count_wait(stalls: &WaitEvents, cause: Cause, ns: u64) {
    if cause == Cause::PageRead {
        device_wait::note_page_read(ns);
    }
    if cause != Cause::Idle && !BACKGROUND.get() {
        ATTRIBUTED_NS.set(ATTRIBUTED_NS.get().wrapping_add(ns));
        device_wait::recorded(cause, ns);
        stalls.record(cause, ns);
        if EXCLUDED.get() {
            stalls.exclude(cause, ns);
        }
    }
}
