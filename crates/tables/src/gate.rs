//! The gate of schema epochs (F1): row operations enter it in their last step, a schema change
//! shuts the present epoch and waits for those inside.
//!
//! An operation that enters counts itself first and then compares the epoch. A schema change that
//! shuts the gate changes the epoch first and then reads the count. So an operation either finds
//! the new epoch or is waited for. The models of `crates/sim/tests/models` compile this file
//! against their own atomics.

use crate::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct SchemaGate {
    epoch: AtomicU64,
    /// Operations inside, by parity of the epoch; schema changes are made one at a time.
    inside: [AtomicU64; 2],
}

impl SchemaGate {
    pub fn new(epoch: u64) -> SchemaGate {
        SchemaGate { epoch: AtomicU64::new(epoch), inside: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    fn count(&self, epoch: u64) -> &AtomicU64 {
        &self.inside[(epoch & 1) as usize]
    }

    /// Counts an operation in; false if the epoch differs. The operation calls `leave` in both
    /// cases.
    pub fn enter(&self, epoch: u64) -> bool {
        self.count(epoch).fetch_add(1, Ordering::SeqCst);
        self.is_open(epoch)
    }

    /// Counts an operation out; true if a schema change may wait for that.
    pub fn leave(&self, epoch: u64) -> bool {
        self.count(epoch).fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// True if this is the present epoch.
    pub fn is_open(&self, epoch: u64) -> bool {
        self.epoch.load(Ordering::SeqCst) == epoch
    }

    /// From here on operations find `epoch`.
    pub fn open(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::SeqCst);
    }

    /// True if no operation is inside with this epoch, which is no longer open.
    pub fn is_empty(&self, epoch: u64) -> bool {
        self.count(epoch).load(Ordering::SeqCst) == 0
    }
}
