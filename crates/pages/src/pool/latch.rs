//! The latch of a frame, in one word: readers, a writer, and whether threads wait. It only decides;
//! `frames` does the waiting, on an event that is notified when an unlock says so.
//!
//! Invariants: a thread that announces its wait has read the event's counter before. An unlock that
//! lets a thread in clears the announcements and notifies afterwards. A waiting writer keeps new
//! readers out. The models of `crates/sim/tests/models` compile this file against their own
//! atomics.

use crate::sync::atomic::{AtomicU32, Ordering::*};

const EXCLUSIVE: u32 = 1 << 31;
const WAITING: u32 = 1 << 30;
const WRITER_WAITING: u32 = 1 << 29;
const READERS: u32 = WRITER_WAITING - 1;

/// The result of an attempt to latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Taken,
    /// The word changed meanwhile: try again at once.
    Lost,
    /// Another thread holds it.
    Blocked,
}

/// The word.
#[derive(Default)]
pub(crate) struct PageLatch(AtomicU32);

fn bars_readers(word: u32) -> bool {
    word & (EXCLUSIVE | WRITER_WAITING) != 0
}

fn bars_writers(word: u32) -> bool {
    word & (EXCLUSIVE | READERS) != 0
}

impl PageLatch {
    /// Takes it for reading.
    #[inline]
    pub fn shared(&self) -> Attempt {
        let now = self.0.load(Relaxed);
        if bars_readers(now) {
            return Attempt::Blocked;
        }
        match self.0.compare_exchange_weak(now, now + 1, Acquire, Relaxed) {
            Ok(_) => Attempt::Taken,
            Err(_) => Attempt::Lost,
        }
    }

    /// Takes it for writing.
    #[inline]
    pub fn exclusive(&self) -> bool {
        let now = self.0.load(Relaxed);
        !bars_writers(now)
            && self.0.compare_exchange(now, now | EXCLUSIVE, Acquire, Relaxed).is_ok()
    }

    /// Makes the only reader the writer.
    #[inline]
    pub fn upgrade(&self) -> bool {
        let now = self.0.load(Relaxed);
        let wanted = (now & !READERS) | EXCLUSIVE;
        now & (READERS | EXCLUSIVE) == 1
            && self.0.compare_exchange(now, wanted, Acquire, Relaxed).is_ok()
    }

    /// Announces a waiting reader; false if there is nothing to wait for, or the word changed.
    pub fn announce_reader(&self) -> bool {
        self.announce(WAITING, bars_readers)
    }

    /// Announces a waiting writer; false as above.
    pub fn announce_writer(&self) -> bool {
        self.announce(WRITER_WAITING, bars_writers)
    }

    fn announce(&self, flag: u32, blocked: fn(u32) -> bool) -> bool {
        let now = self.0.load(SeqCst);
        blocked(now) && self.0.compare_exchange(now, now | flag, SeqCst, SeqCst).is_ok()
    }

    /// A reader releases it; true if waiters are to be notified.
    #[inline]
    pub fn unlock_shared(&self) -> bool {
        let before = self.0.fetch_sub(1, SeqCst);
        let wake = before & READERS == 1 && before & (WAITING | WRITER_WAITING) != 0;
        if wake {
            self.0.fetch_and(!(WAITING | WRITER_WAITING), SeqCst);
        }
        wake
    }

    /// The writer releases it, or stays as this many readers; true if waiters are to be notified.
    #[inline]
    pub fn unlock_exclusive(&self, readers: u32) -> bool {
        let mut now = self.0.load(Relaxed);
        while let Err(other) = self.0.compare_exchange_weak(now, readers, SeqCst, Relaxed) {
            now = other;
        }
        now & (WAITING | WRITER_WAITING) != 0
    }

    /// True while a thread holds the right to write.
    pub fn is_exclusive(&self) -> bool {
        self.0.load(Acquire) & EXCLUSIVE != 0
    }

    /// True if a thread holds or wants it.
    pub fn is_used(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}
