//! Invariants of the whole engine, for debug builds; each layer has its own `check_invariants`.
//! The simulator checks them amid a life. `Engine::drop` checks behind every orderly close that
//! nothing is left that only a user or a thread may have: a lock, a pin, a latch, a reservation.

use crate::Database;
use crate::engine::Engine;

impl Database {
    /// Panics if the state in memory contradicts itself. Does nothing in a release build. For the
    /// simulator: no other thread may be inside a call, but at a wait.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        self.engine.check_invariants();
    }

    /// Panics if a lock, a snapshot, a pin or a reservation is left behind a close. Does nothing in
    /// a release build. For the simulator: neither a transaction nor a row has a handle any more.
    #[doc(hidden)]
    pub fn check_unused(&self) {
        self.engine.check_unused();
        let snapshots = self.engine.txns.snapshot_count();
        assert!(cfg!(not(debug_assertions)) || snapshots == 0, "{snapshots} snapshots are held");
    }
}

#[cfg(debug_assertions)]
impl Engine {
    fn check_invariants(&self) {
        self.pages.check_invariants();
        self.txns.check_invariants();
        self.runs.check_invariants();
    }

    /// Panics if something is left after a close that succeeded. A row with a long value may
    /// outlive the database, and holds a snapshot.
    pub(crate) fn check_unused(&self) {
        self.pages.check_unused();
        self.txns.check_unused();
        self.runs.check_invariants();
        self.log.check_unused(self.txns.prepared_count() > 0);
    }
}

#[cfg(not(debug_assertions))]
impl Engine {
    fn check_invariants(&self) {}

    pub(crate) fn check_unused(&self) {}
}
