//! Hash-slot latches of unique keys (D5): two inserts of one key take turns between their check and
//! their write. They are held across reads of storage, so they are built on events.

use crate::latch::IoLatch;
use evenkeel_base::{Cause, IndexId};
use evenkeel_format::run::hash_key;
use evenkeel_io::Runtime;
use std::sync::Arc;

const SLOTS: usize = 1024;

/// The slots of one database.
pub(crate) struct UniqueSlots {
    slots: Box<[IoLatch]>,
}

impl UniqueSlots {
    pub(crate) fn new() -> Arc<UniqueSlots> {
        Arc::new(UniqueSlots { slots: (0..SLOTS).map(|_| IoLatch::default()).collect() })
    }

    /// The slot of a key.
    pub(crate) fn slot_of(index: IndexId, key: &[u8]) -> usize {
        let hash = hash_key(key) ^ u64::from(index.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize % SLOTS
    }

    /// Latches a slot; waits while another holds it.
    pub(crate) fn lock(self: &Arc<Self>, rt: &Runtime, number: usize) -> UniqueGuard {
        std::mem::forget(self.slots[number].lock(rt, Cause::RowLock));
        UniqueGuard { slots: self.clone(), number }
    }
}

/// Holds slots of unique keys until dropped.
pub struct UniqueGuard {
    slots: Arc<UniqueSlots>,
    number: usize,
}

impl Drop for UniqueGuard {
    fn drop(&mut self) {
        self.slots.slots[self.number].unlock();
    }
}
