//! Hash-slot latches of unique keys (D5): two inserts of one key take turns between their check and
//! their write. Built on events, because a holder reads storage; never a mutex.

use evenkeel_base::{Cause, IndexId};
use evenkeel_format::run::hash_key;
use evenkeel_io::{Event, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SLOTS: usize = 1024;

struct Slot {
    held: AtomicBool,
    freed: Arc<Event>,
}

fn slot_of(index: IndexId, key: &[u8]) -> usize {
    let hash = hash_key(key) ^ u64::from(index.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 32) as usize % SLOTS
}

/// The slots of one database.
pub(crate) struct UniqueSlots {
    slots: Box<[Slot]>,
}

impl UniqueSlots {
    pub(crate) fn new() -> Arc<UniqueSlots> {
        let slot = |_| Slot { held: AtomicBool::new(false), freed: Arc::new(Event::new()) };
        Arc::new(UniqueSlots { slots: (0..SLOTS).map(slot).collect() })
    }

    /// Latches the slot of a key; waits while another holds it.
    pub(crate) fn lock(self: &Arc<Self>, rt: &Runtime, index: IndexId, key: &[u8]) -> UniqueGuard {
        self.lock_slot(rt, slot_of(index, key))
    }

    /// Latches the slots of several keys, each once, in the one order that all threads follow.
    pub(crate) fn lock_all(
        self: &Arc<Self>,
        rt: &Runtime,
        keys: &[(IndexId, &[u8])],
    ) -> Vec<UniqueGuard> {
        let mut slots: Vec<usize> = keys.iter().map(|(index, key)| slot_of(*index, key)).collect();
        slots.sort_unstable();
        slots.dedup();
        slots.into_iter().map(|number| self.lock_slot(rt, number)).collect()
    }

    fn lock_slot(self: &Arc<Self>, rt: &Runtime, number: usize) -> UniqueGuard {
        let slot = &self.slots[number];
        rt.wait_until(&slot.freed, Cause::RowLock, || {
            slot.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        UniqueGuard { slots: self.clone(), number }
    }
}

/// Holds the slot of a unique key until dropped. Take slots of several keys in `slot` order and
/// each slot once: [`UniqueGuard::slot`].
pub struct UniqueGuard {
    slots: Arc<UniqueSlots>,
    number: usize,
}

impl UniqueGuard {
    /// The slot's number.
    pub fn slot(&self) -> usize {
        self.number
    }
}

impl Drop for UniqueGuard {
    fn drop(&mut self) {
        let slot = &self.slots.slots[self.number];
        slot.held.store(false, Ordering::Release);
        slot.freed.notify();
    }
}
