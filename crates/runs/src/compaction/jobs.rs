//! The compactions under way and the threads that work on them: each has a beat in at most one
//! thread at a time. One thread begins compactions and runs beats of any; others
//! (`Runs::compaction_help_beat`) only run beats of those that ingest needs.

use super::job::CompactionJob;
use evenkeel_base::IndexId;
use evenkeel_sched::laws::compaction::{CompactionTurn, bytes_per_run, next_compaction};
use evenkeel_sched::laws::ingest::owed_bytes;
use std::collections::BTreeMap;

/// Indexes for which ingest needs credit: the number of their runs, and bytes of the newest.
pub(crate) type Owing = BTreeMap<IndexId, (usize, u64)>;

fn turn_of(job: &CompactionJob, owing: &Owing) -> CompactionTurn {
    let turn = job.turn();
    let is_short = |newest: &u64| owed_bytes(turn.left, *newest) > 0;
    let runs = owing.get(&job.index).filter(|(_, newest)| is_short(newest));
    CompactionTurn { owing_runs: runs.map_or(0, |(runs, _)| *runs), ..turn }
}

/// Compactions that were begun and have not ended.
#[derive(Default)]
pub(crate) struct CompactionJobs {
    waiting: Vec<CompactionJob>,
    /// Those that have a beat now, in their state before it.
    at_work: Vec<AtWork>,
}

#[derive(Clone, Copy)]
struct AtWork {
    run: u64,
    index: IndexId,
    turn: CompactionTurn,
    inputs: usize,
    bytes: u64,
}

/// The figures of a compaction under way, for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionFigures {
    /// Its index.
    pub index: IndexId,
    /// Runs that become one.
    pub runs: usize,
    /// Bytes of them in all, and those left to compact; at most one beat out of date.
    pub bytes: u64,
    /// See `bytes`.
    pub left_bytes: u64,
    /// Ingest needs it (G2).
    pub required: bool,
}

impl AtWork {
    fn of(job: &CompactionJob) -> AtWork {
        let (run, index, inputs) = (job.start.run, job.index, job.count);
        AtWork { run, index, turn: job.turn(), inputs, bytes: job.bytes }
    }
}

impl CompactionJobs {
    /// Adds a compaction that was begun, or has had its beat.
    pub(super) fn put(&mut self, job: CompactionJob) {
        self.waiting.push(job);
    }

    /// The compaction whose beat is next (see [`next_compaction`]), if it waits. `owing`: the
    /// indexes for which ingest needs credit. `told` hears the candidates and the choice.
    pub(super) fn take(
        &mut self,
        only_required: bool,
        owing: &Owing,
        told: impl FnOnce(&[CompactionTurn], usize),
    ) -> Option<CompactionJob> {
        let turns: Vec<CompactionTurn> =
            self.waiting.iter().map(|job| turn_of(job, owing)).collect();
        let at = next_compaction(turns.iter().copied(), only_required)?;
        told(&turns, at);
        Some(self.take_at(at))
    }

    /// As `take`, only for those that ingest needs.
    pub(crate) fn take_required(
        &mut self,
        owing: &Owing,
        told: impl FnOnce(&[CompactionTurn], usize),
    ) -> Option<CompactionJob> {
        let places: Vec<usize> =
            (0..self.waiting.len()).filter(|i| self.waiting[*i].turn().required).collect();
        let turns: Vec<CompactionTurn> =
            places.iter().map(|i| turn_of(&self.waiting[*i], owing)).collect();
        let at = next_compaction(turns.iter().copied(), true)?;
        told(&turns, at);
        Some(self.take_at(places[at]))
    }

    fn take_at(&mut self, at: usize) -> CompactionJob {
        let job = self.waiting.swap_remove(at);
        self.at_work.push(AtWork::of(&job));
        job
    }

    /// The beat of the compaction that writes this run is over. The thread that took it calls this
    /// once, before the job can be taken again; a job that does not wait again has ended.
    pub(super) fn rested(&mut self, run: u64) {
        self.at_work.retain(|job| job.run != run);
    }

    /// True if one that ingest needs waits for its beat.
    pub(super) fn is_one_needed_waiting(&self) -> bool {
        self.waiting.iter().any(|job| job.turn().required)
    }

    /// The indexes with one that ingest needs, and the bytes that the first to end has left.
    pub(crate) fn needed(&self) -> BTreeMap<IndexId, u64> {
        let mut least = BTreeMap::new();
        for job in self.all().filter(|job| job.turn.required) {
            let known = least.entry(job.index).or_insert(job.turn.left);
            *known = job.turn.left.min(*known);
        }
        least
    }

    /// True if several that ingest needs are waiting.
    pub(super) fn are_several_needed(&self) -> bool {
        self.waiting.iter().filter(|job| job.turn().required).count() > 1
    }

    /// True if ingest needs one of them.
    pub(super) fn is_needed(&self) -> bool {
        self.all().any(|job| job.turn.required)
    }

    fn all(&self) -> impl Iterator<Item = AtWork> {
        self.waiting.iter().map(AtWork::of).chain(self.at_work.iter().copied())
    }

    /// All of them.
    pub(crate) fn turns(&self) -> Vec<CompactionTurn> {
        self.all().map(|job| job.turn).collect()
    }

    /// Their figures.
    pub(crate) fn figures(&self) -> Vec<CompactionFigures> {
        let of = |job: AtWork| CompactionFigures {
            index: job.index,
            runs: job.inputs,
            bytes: job.bytes,
            left_bytes: job.turn.left,
            required: job.turn.required,
        };
        self.all().map(of).collect()
    }

    /// For each index with compactions that ingest needs: the fewest bytes that one has left per
    /// run that it removes.
    pub(super) fn freeing(&self) -> BTreeMap<IndexId, u64> {
        let mut least = BTreeMap::new();
        for job in self.all().filter(|job| job.turn.required) {
            let bytes = bytes_per_run(job.turn.left, job.inputs);
            let known = least.entry(job.index).or_insert(bytes);
            *known = bytes.min(*known);
        }
        least
    }

    /// The bytes that the first has left to read, and to pay.
    #[cfg(test)]
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.waiting.first().map(|job| (job.left, job.unpaid))
    }
}
