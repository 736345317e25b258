//! The table of depths: what happens to writers and to compaction while an index has so many runs.
//!
//! A memtable flush adds a run to each index that has entries in the memtable; compaction removes
//! runs. All thresholds are rows of the one table [`DEPTHS`]: where a stage begins, the limit where
//! the table ends.

use crate::UNLIMITED;

/// The stages through which an index passes as it gets more runs. Each keeps what the ones before
/// it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Writers are free; compaction takes no more than its foreground limit.
    Free,
    /// Writers share a rate while the index is compacted.
    RateLimited,
    /// Further threads compact.
    Helped,
    /// Compaction is required: it takes the whole device.
    Urgent,
    /// Writers spend credit.
    InDebt,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    /// The stage that the index is in.
    pub stage: Stage,
    /// The rate of writers, in percent of what compaction can follow.
    pub ingest_percent: u64,
    /// The foreground limit of compaction, in percent of the rate that ingest needs in the long
    /// run.
    pub compaction_percent: u64,
}

const fn row(stage: Stage, ingest_percent: u64, compaction_percent: u64) -> Depth {
    Depth { stage, ingest_percent, compaction_percent }
}

/// By the number of runs; an index never has more than the last row says (D3). An index that is
/// deeper nevertheless is treated like the last row.
pub const DEPTHS: [Depth; 13] = [
    row(Stage::Free, UNLIMITED, 150),   // 0
    row(Stage::Free, UNLIMITED, 150),   // 1
    row(Stage::Free, UNLIMITED, 150),   // 2
    row(Stage::Free, UNLIMITED, 150),   // 3
    row(Stage::Free, UNLIMITED, 150),   // 4
    row(Stage::Free, UNLIMITED, 200),   // 5
    row(Stage::Free, UNLIMITED, 300),   // 6
    row(Stage::RateLimited, 160, 500),  // 7
    row(Stage::Helped, 130, 800),       // 8
    row(Stage::Urgent, 110, UNLIMITED), // 9
    // A little less than compaction can follow: here a constant overload settles.
    row(Stage::InDebt, 95, UNLIMITED), // 10
    row(Stage::InDebt, 60, UNLIMITED), // 11
    row(Stage::InDebt, 60, UNLIMITED), // 12
];

/// From this number of runs on writers are limited to the rate of compactions while one of the
/// index is under way.
pub const RUNS_PACED: usize = first(Stage::RateLimited);
/// From this number of runs on several threads compact. Below, one is enough, and users have the
/// other cores.
pub const RUNS_HELP: usize = first(Stage::Helped);
/// From this number of runs on compaction is required, and any cheap compaction is made.
pub const RUNS_HIGH: usize = first(Stage::Urgent);
/// From this number of runs on writers need credit.
pub const RUNS_TRIGGER: usize = first(Stage::InDebt);
/// An index never has more runs than this.
pub const RUNS_LIMIT: usize = DEPTHS.len() - 1;

/// Memtable generations, at most: the sealed ones still fit below the limit when debt begins.
pub const GENERATIONS_MAX: usize = RUNS_LIMIT - RUNS_TRIGGER + 1;

/// Neighbours of similar size that are compacted.
pub(crate) const TIER_RUNS: usize = 4;
/// The same where places are short: beside a compaction into the bottom, or from `TIERS_MANY` tiers
/// on.
pub const TIER_RUNS_SHORT: usize = TIER_RUNS - 1;
pub(crate) const TIERS_MANY: usize = 5;
/// Tiers that may remain while no compaction goes into the bottom.
pub(crate) const TIERS_MAX: usize = 6;
/// Runs that may remain at rest.
pub(crate) const RUNS_AT_REST: usize = 3;

impl Depth {
    /// The row of an index with so many runs.
    pub fn of(runs: u64) -> Depth {
        DEPTHS[usize::try_from(runs).unwrap_or(RUNS_LIMIT).min(RUNS_LIMIT)]
    }
}

/// The number of runs with which a stage begins.
const fn first(stage: Stage) -> usize {
    let mut runs = 0;
    while DEPTHS[runs].stage as u8 != stage as u8 {
        runs += 1;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each threshold has a reason at another place (the documents, the corpus of old decisions),
    /// so a changed table shows here.
    #[test]
    fn thresholds_are_rows_of_the_table() {
        let thresholds = [RUNS_PACED, RUNS_HELP, RUNS_HIGH, RUNS_TRIGGER, RUNS_LIMIT];
        assert_eq!(thresholds, [7, 8, 9, 10, 12]);
        assert_eq!((GENERATIONS_MAX, TIER_RUNS_SHORT), (3, 3));
        assert_eq!(Depth::of(u64::MAX).ingest_percent, Depth::of(12).ingest_percent);
    }

    /// More runs never speed writers up, and never slow compaction down.
    #[test]
    fn the_table_is_monotonous() {
        for pair in DEPTHS.windows(2) {
            assert!(pair[0].stage <= pair[1].stage);
            assert!(pair[0].ingest_percent >= pair[1].ingest_percent);
            assert!(pair[0].compaction_percent <= pair[1].compaction_percent);
        }
        for depth in DEPTHS {
            assert_eq!(depth.ingest_percent == UNLIMITED, depth.stage == Stage::Free);
            assert_eq!(depth.compaction_percent == UNLIMITED, depth.stage >= Stage::Urgent);
        }
    }
}
