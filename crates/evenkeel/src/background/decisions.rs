//! Decisions of the background's laws: kept when asked for, and made again from their inputs.

use crate::Database;
use evenkeel_base::journal::{Decision, Law};

impl Database {
    /// Has the decisions of the background kept from now on: what it looked at, and what it did.
    pub fn keep_decisions(&self, on: bool) {
        self.engine.rt.journal.keep(on);
    }

    /// The decisions since the last call; the newest 16,384.
    pub fn take_decisions(&self) -> Vec<Decision> {
        self.engine.rt.journal.take()
    }
}

/// What a law says to these inputs: what the engine itself called. None if they are not inputs of
/// that law.
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
