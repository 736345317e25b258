//! The laws of overload control: pure functions of counters, without a clock and without I/O.
//!
//! - [`depths`]: what the number of runs of an index means for writers and for compaction; the
//!   thresholds of the other laws are derived from its table.
//! - [`ingest`]: memtable room, credit, and the rates of ingest.
//! - [`compaction`]: which runs are compacted, and which compaction has the next beat.
//! - [`log_space`]: the delay of an operation beside an old log.
//! - [`pacing`]: how many dirty pages a second are flushed.
//!
//! The laws of background I/O and of processors are in [`crate::governor`],
//! [`crate::foreground_limit`] and `cpu`. Each crate evaluates the laws of its resources and
//! carries the result out. [`decide`] computes a recorded decision again.

pub mod compaction;
pub mod depths;
pub mod ingest;
pub mod log_space;
pub mod pacing;
#[cfg(test)]
mod pacing_tests;

use evenkeel_base::journal::Law;

/// The target of a resource, for its limit: below it nobody is delayed, and no background work is
/// urgent.
pub const fn target(limit: u64) -> u64 {
    limit / 4 * 3
}

/// The result of a law for these inputs, by the function that the engine itself calls. None if they
/// are not inputs of that law.
pub fn decide(law: Law, inputs: &[u64]) -> Option<Vec<u64>> {
    match law {
        Law::Flush => pacing::decide(inputs),
        Law::Compaction => compaction::decide(inputs),
        Law::CompactionTurn => compaction::decide_turn(inputs),
        Law::Governor => crate::governor::decide(inputs),
        Law::LogSpace => log_space::decide(inputs),
        Law::Handover | Law::Credit | Law::Debt | Law::Pace | Law::FlushPace | Law::FlushRest => {
            ingest::decide(law, inputs)
        }
    }
}
