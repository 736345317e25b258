//! What cursors leave behind between the calls of a client that may stay idle (D6): their views of
//! memtables and runs, in a few slots. Whoever changes what there is takes all of them away; then,
//! or when others needed the slot, the cursor seeks again from its key.
//!
//! Invariants: nothing stays in a slot that was put there under an older version than the present
//! one (`put` asks under the slot's lock, whoever makes a new version does so before `clear`);
//! there is never more than the slots hold, however many cursors there are. Only `cursor` puts,
//! only `Runs::changed` clears. The models of `crates/sim/tests/models` compile this file against
//! their own locks and atomics.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Where something was put; never given twice.
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

    /// Puts it into the slot used longest ago, in the place of what lies there; not if it
    /// `is_old`.
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

    /// Lets go of everything; how much that was.
    pub fn clear(&self) -> u64 {
        let gone = |slot: &Mutex<Option<(u64, T)>>| slot.lock().take().is_some();
        self.slots.iter().map(|slot| u64::from(gone(slot))).sum()
    }
}
