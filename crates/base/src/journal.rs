//! A record of the decisions of the background laws and of their inputs. Each decision is a list of
//! numbers, so that it can be exported, drawn, and fed back to the law. Recording is off until it
//! is requested; then the newest [`DECISIONS_MAX`] decisions not yet taken are kept.
//!
//! A law is a pure function from `inputs` to `outputs`; [`Law::fields`] names the numbers.

use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Decisions kept, at most.
pub const DECISIONS_MAX: usize = 16_384;

/// A law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Law {
    /// The number of pages per second to flush.
    Flush,
    /// The choice of the runs to compact.
    Compaction,
    /// The rate of background I/O, and its classes.
    Governor,
    /// Whether a memtable generation is handed over, and the result of a reservation of its bytes.
    Handover,
    /// The credit that compaction pays to ingest.
    Credit,
    /// Whether ingest in debt has credit for its bytes.
    Debt,
    /// The rate limit of ingest while compactions are under way.
    Pace,
    /// How long a reservation of log bytes is delayed, and whether it waits.
    LogSpace,
    /// The rate limit of ingest while the allowed number of memtable generations waits for its
    /// flush.
    FlushPace,
    /// How long a memtable flush that is not urgent rests.
    FlushRest,
    /// Which of the waiting compactions gets the next beat.
    CompactionTurn,
}

impl Law {
    /// All laws.
    pub const ALL: [Law; 11] = [
        Law::Flush,
        Law::Compaction,
        Law::Governor,
        Law::Handover,
        Law::Credit,
        Law::Debt,
        Law::Pace,
        Law::LogSpace,
        Law::FlushPace,
        Law::FlushRest,
        Law::CompactionTurn,
    ];

    /// The name in JSON and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Law::Flush => "flush",
            Law::Compaction => "compaction",
            Law::Governor => "governor",
            Law::Handover => "handover",
            Law::Credit => "credit",
            Law::Debt => "debt",
            Law::Pace => "pace",
            Law::LogSpace => "log_space",
            Law::FlushPace => "flush_pace",
            Law::FlushRest => "flush_rest",
            Law::CompactionTurn => "compaction_turn",
        }
    }

    /// Names of the inputs and of the outputs. The last input of a compaction comes once per run,
    /// the last three of a compaction's turn once per waiting compaction.
    pub const fn fields(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Law::Flush => (
                &[
                    "dirty_pages",
                    "dirty_target_pages",
                    "dirty_trigger_pages",
                    "over_pages",
                    "next_pages",
                    "age_bytes",
                    "age_target_bytes",
                    "age_trigger_bytes",
                    "due_pages_10s",
                    "due_pages_20s",
                    "due_pages_40s",
                    "free_frames_pages",
                    "idle_pages",
                    "previous_pages_per_sec",
                ],
                &["pages_per_sec"],
            ),
            Law::Governor => (
                &[
                    "previous_bytes_per_sec",
                    "best_bytes_per_sec",
                    "slower_sixteenths",
                    "required_free_frames",
                    "required_checkpoint",
                    "required_flush",
                    "required_compaction",
                    "required_ddl",
                    "required_maintenance",
                    "surplus_free_frames",
                    "surplus_checkpoint",
                    "surplus_flush",
                    "surplus_compaction",
                    "surplus_ddl",
                    "surplus_maintenance",
                    "ddl_left_before",
                    "users_waited_permille",
                    "enough_for_compactions",
                    "processors_wanted",
                ],
                &[
                    "bytes_per_sec",
                    "rate_free_frames",
                    "rate_checkpoint",
                    "rate_flush",
                    "rate_compaction",
                    "rate_ddl",
                    "rate_maintenance",
                    "ddl_at_once",
                    "ddl_left",
                ],
            ),
            Law::Compaction
            | Law::CompactionTurn
            | Law::Handover
            | Law::Credit
            | Law::Debt
            | Law::Pace
            | Law::LogSpace
            | Law::FlushPace
            | Law::FlushRest => self.runs_fields(),
        }
    }

    /// The fields of the laws of flushes and compactions, and of the laws that delay ingest.
    const fn runs_fields(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Law::Compaction => (
                &["may_rest", "bytes_left_per_run_freed", "bytes_times_8_plus_flags"],
                &["first_run", "end_run", "required"],
            ),
            Law::CompactionTurn => (
                &["only_required", "owing_runs_times_2_plus_required", "left_bytes", "gain"],
                &["compaction"],
            ),
            // `what`: 0 room, 1 handed over because it is full, 2 wait, 3 room after the delay, 4
            // handed over because it holds the log, 5 room at the rate limit of a flush.
            Law::Handover => (
                &[
                    "wanted_bytes",
                    "active_bytes",
                    "reserved_bytes",
                    "generations",
                    "generation_bytes",
                    "low_lsn",
                    "needed_lsn",
                    "flushed_permille",
                    "flush_ns_per_kib",
                ],
                &["what", "delay_ns"],
            ),
            Law::Credit => (
                &[
                    "unpaid_bytes",
                    "done_bytes",
                    "left_bytes",
                    "indexes_in_debt",
                    "room_bytes",
                    "before_bytes",
                ],
                &["credit_bytes", "unpaid_bytes"],
            ),
            Law::Debt => (&["credit_bytes", "wanted_bytes"], &["granted", "left_bytes"]),
            Law::Pace => (
                &[
                    "runs",
                    "compaction_bytes_per_sec",
                    "compaction_bytes_per_kib",
                    "compaction_need_bytes_per_sec",
                    "owed_bytes",
                    "room_bytes",
                ],
                &["ns_per_kib", "enough_for_compactions"],
            ),
            Law::LogSpace => (
                &["limit_bytes", "age_bytes", "reserved_bytes", "wanted_bytes"],
                &["delay_ns", "waits"],
            ),
            Law::FlushPace => (
                &["whole_ns_per_kib", "entries_ns_per_kib", "done_bytes", "took_ns"],
                &["ns_per_kib"],
            ),
            Law::FlushRest => (&["done_permille", "took_ns", "fill_ns"], &["rest_ns"]),
            _ => (&[], &[]),
        }
    }
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The law.
    pub law: Law,
    /// Time by the clock of the environment.
    pub at_ns: u64,
    /// What the law looked at.
    pub inputs: Vec<u64>,
    /// What the law answered.
    pub outputs: Vec<u64>,
}

/// Decisions that each operation makes for itself are recorded at most once in this interval.
pub const APART_NS: u64 = 10_000_000;

/// Decisions not yet taken.
#[derive(Default)]
pub struct Journal {
    on: AtomicBool,
    /// When a decision of each law was last recorded by `note_some`.
    last_ns: [AtomicU64; Law::ALL.len()],
    decisions: Mutex<VecDeque<Decision>>,
}

impl Journal {
    /// Turns recording on or off.
    pub fn keep(&self, on: bool) {
        self.on.store(on, Relaxed);
        if !on {
            self.decisions.lock().clear();
        }
    }

    /// Records a decision; `what` gives inputs and outputs and is not called while recording is
    /// off.
    pub fn note(&self, law: Law, at_ns: u64, what: impl FnOnce() -> (Vec<u64>, Vec<u64>)) {
        if !self.on.load(Relaxed) {
            return;
        }
        let (inputs, outputs) = what();
        let mut decisions = self.decisions.lock();
        if decisions.len() == DECISIONS_MAX {
            decisions.pop_front();
        }
        decisions.push_back(Decision { law, at_ns, inputs, outputs });
    }

    /// As `note`, for a law that many operations evaluate: records the first decision of each
    /// [`APART_NS`]. `at_ns` is not called while recording is off.
    pub fn note_some(
        &self,
        law: Law,
        at_ns: impl FnOnce() -> u64,
        what: impl FnOnce() -> (Vec<u64>, Vec<u64>),
    ) {
        if !self.on.load(Relaxed) {
            return;
        }
        let (now, last) = (at_ns(), &self.last_ns[law as usize]);
        let before = last.load(Relaxed);
        let is_first = before == 0 || now >= before.saturating_add(APART_NS);
        if is_first && last.compare_exchange(before, now.max(1), Relaxed, Relaxed).is_ok() {
            self.note(law, now, what);
        }
    }

    /// The decisions since the last call, in the order in which they were made.
    pub fn take(&self) -> Vec<Decision> {
        std::mem::take(&mut *self.decisions.lock()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_off_by_default_and_bounded() {
        let journal = Journal::default();
        journal.note(Law::Flush, 1, || unreachable!("it is off"));
        journal.note_some(Law::Debt, || unreachable!("off"), || unreachable!("it is off"));
        journal.keep(true);
        for at_ns in 0..DECISIONS_MAX as u64 + 5 {
            journal.note(Law::Compaction, at_ns, || (vec![at_ns], vec![1]));
        }
        let taken = journal.take();
        assert_eq!((taken.len(), taken[0].at_ns), (DECISIONS_MAX, 5));
        assert!(journal.take().is_empty());
        // Of many in a row the first of each interval is recorded; each law has its own interval.
        for at_ns in (0..10 * APART_NS).step_by(1_000_000) {
            journal.note_some(Law::Debt, || at_ns, || (vec![at_ns], vec![]));
        }
        journal.note_some(Law::Handover, || APART_NS, || (vec![], vec![]));
        assert_eq!(journal.take().len(), 11);
        journal.note(Law::Compaction, 1, || (vec![], vec![]));
        journal.keep(false);
        assert!(journal.take().is_empty());
    }
}
