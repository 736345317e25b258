//! A thread's own waits for the device: the longest single one for a write or a sync, by which a
//! measurement sees which operation the device has made long, and the time of its reads of pages.

use evenkeel_base::Cause;
use std::cell::Cell;

thread_local! {
    static LONGEST_NS: Cell<u64> = const { Cell::new(0) };
    static PAGE_READ_NS: Cell<u64> = const { Cell::new(0) };
}

/// This thread has waited so long for a write or a sync.
pub fn note(ns: u64) {
    LONGEST_NS.set(LONGEST_NS.get().max(ns));
}

/// A wait of this thread was recorded.
pub(crate) fn recorded(cause: Cause, ns: u64) {
    if matches!(cause, Cause::LogSync | Cause::DeviceSlow) {
        note(ns);
    }
}

/// This thread has spent so long on a read of a page.
pub(crate) fn note_page_read(ns: u64) {
    PAGE_READ_NS.set(PAGE_READ_NS.get().wrapping_add(ns));
}

/// What reads of pages took since this was last asked, nanoseconds.
pub fn take_page_read_ns() -> u64 {
    PAGE_READ_NS.take()
}

/// The longest since this was last asked, nanoseconds.
pub fn take_longest_ns() -> u64 {
    LONGEST_NS.take()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimEnv;
    use std::time::Duration;

    #[test]
    fn waits_for_writes_and_syncs_count_and_no_others() {
        let rt = SimEnv::new(1).runtime();
        let waited = |cause, ms| rt.delay(Duration::from_millis(ms), cause);
        take_longest_ns();
        waited(Cause::PageRead, 3);
        waited(Cause::MemtableFull, 3);
        assert_eq!(take_longest_ns(), 0);
        waited(Cause::LogSync, 3);
        waited(Cause::DeviceSlow, 1);
        assert!(take_longest_ns() >= 3_000_000, "the longer one");
        assert_eq!(take_longest_ns(), 0, "asked before");
        waited(Cause::LogSync, 1);
        let of_another = std::thread::spawn(take_longest_ns).join();
        assert_eq!(of_another.ok(), Some(0));
    }
}
