//! Decisions of the background laws: recorded on request, and computed again from their inputs.

use crate::Database;
use evenkeel_base::journal::Decision;

impl Database {
    /// Turns the recording of background decisions (inputs and results) on or off.
    pub fn keep_decisions(&self, on: bool) {
        self.engine.rt.journal.keep(on);
    }

    /// The decisions since the last call; the newest 16,384.
    pub fn take_decisions(&self) -> Vec<Decision> {
        self.engine.rt.journal.take()
    }
}
