//! Decisions of the background laws: recorded on request, and computed again from their inputs.

use crate::Database;
use evenkeel_base::journal::{Decision, Law};

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

/// The result of a law for these inputs, by the function that the engine itself calls. None if they
/// are not inputs of that law.
pub fn decide(law: Law, inputs: &[u64]) -> Option<Vec<u64>> {
    match law {
        Law::Flush => evenkeel_pages::pacing::decide(inputs),
        Law::Compaction => evenkeel_runs::decide_compaction(inputs),
        Law::CompactionTurn => evenkeel_runs::decide_compaction_turn(inputs),
        Law::Governor => evenkeel_sched::governor::decide(inputs),
        Law::Handover | Law::Credit | Law::Debt | Law::Pace | Law::FlushPace | Law::FlushRest => {
            evenkeel_runs::decide_throttle(law, inputs)
        }
        Law::LogSpace => evenkeel_log::decide_space(inputs),
    }
}
