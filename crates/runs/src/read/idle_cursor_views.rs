//! The views of memtables and runs that cursors leave between the calls of a client that may stay
//! idle (D6), in a few slots. Every change of memtables or runs takes all of them away. Then, or if
//! another cursor needed the slot, the cursor seeks again from its key.
//!
//! Invariants: no slot keeps a view that was stored under an older version than the present one
//! (`put` checks under the slot's lock, and a new version is published before `clear`). There are
//! never more views than slots, however many cursors exist. Only `cursor` puts, only
//! `Runs::changed` clears. The models of `crates/sim/tests/models` compile this file against their
//! own locks and atomics.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The place of a stored view; never reused.
pub(crate) struct Ticket(u64);

/// The slots.
pub(crate) struct IdleCursorViews<T> {
    slots: Vec<Mutex<Option<(u64, T)>>>,
    next: AtomicU64,
}

impl<T> IdleCursorViews<T> {
    pub fn new(slots: usize) -> IdleCursorViews<T> {
        IdleCursorViews {
            slots: (0..slots).map(|_| Mutex::new(None)).collect(),
            next: AtomicU64::new(0),
        }
    }

    fn slot(&self, ticket: u64) -> &Mutex<Option<(u64, T)>> {
        &self.slots[ticket as usize % self.slots.len()]
    }

    /// Stores it in the least recently used slot, in place of its content; not if it `is_old`.
    pub fn put(&self, what: T, is_old: impl FnOnce() -> bool) -> Option<Ticket> {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let mut slot = self.slot(ticket).lock();
        if is_old() {
            return None;
        }
        let before = slot.replace((ticket, what));
        drop(slot);
        drop(before);
        Some(Ticket(ticket))
    }

    /// Takes it back, if it is still there.
    pub fn take(&self, ticket: &Ticket) -> Option<T> {
        let mut slot = self.slot(ticket.0).lock();
        slot.take_if(|(of, _)| *of == ticket.0).map(|(_, what)| what)
    }

    /// Releases everything; returns the number of views.
    pub fn clear(&self) -> u64 {
        let gone = |slot: &Mutex<Option<(u64, T)>>| slot.lock().take().is_some();
        self.slots.iter().map(|slot| u64::from(gone(slot))).sum()
    }
}
