//! The pins of a memtable generation and its low LSN (B3).
//!
//! An operation reads the log end, pins, and only then reserves its LSN. So no entry has an LSN
//! below `low`; a thread that reads the log end first and then `low` misses no entry; and a sealed
//! generation without pins is complete. The models of `crates/sim/tests/models` compile this file
//! against their own atomics.

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub(crate) struct Pins {
    count: AtomicU32,
    sealed: AtomicBool,
    low: AtomicU64,
}

impl Default for Pins {
    fn default() -> Pins {
        let (count, sealed) = (AtomicU32::new(0), AtomicBool::new(false));
        Pins { count, sealed, low: AtomicU64::new(u64::MAX) }
    }
}

impl Pins {
    /// Adds a pin; `log_end` was read before. The caller excludes sealing.
    pub fn pin(&self, log_end: u64) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.low.fetch_min(log_end, Ordering::SeqCst);
    }

    /// Removes a pin; true if it was the last pin of a sealed generation.
    pub fn unpin(&self) -> bool {
        let last = self.count.fetch_sub(1, Ordering::SeqCst) == 1;
        last && self.sealed.load(Ordering::SeqCst)
    }

    /// No pin is added after this; the caller excludes pinning.
    pub fn seal(&self) {
        self.sealed.store(true, Ordering::SeqCst);
    }

    pub fn is_pinned(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// The lowest LSN an entry may have; `None` while never pinned.
    pub fn low(&self) -> Option<u64> {
        Some(self.low.load(Ordering::SeqCst)).filter(|low| *low != u64::MAX)
    }

    /// Recovery: an entry with this LSN is added.
    pub fn lower(&self, lsn: u64) {
        self.low.fetch_min(lsn, Ordering::SeqCst);
    }
}
