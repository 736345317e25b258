//! The shared state: generations, indexes with their runs, files. Guarded by `Runs::state`; every
//! method here is short memory work.
//!
//! Invariants: `due.several` are the indexes that compactions and credit examine, so that nothing
//! walks all indexes. An index without runs, or with one that is left in its file
//! (`lazy_metadata`), takes at most 64 bytes (D2). `trimmed` are the runs with a `low`. A slice
//! belongs to one run at a time; `LiveFile::dead` names the runs to which slices of the file no
//! longer belong, for checkpoints.

use crate::compaction::candidates::CompactionCandidates;
use crate::compaction::{CompactionMode, Owing};
use crate::memtable::Memtable;
use crate::run::damage::DamagedFile;
use crate::run::file::{Run, RunFile, RunPlace, RunSegment};
use evenkeel_base::{Error, Generation, IndexId, Lsn, TxnId};
use evenkeel_format::run::{ManifestOp, SliceInfo};
use evenkeel_sched::laws::compaction::{Facts, is_restless, is_worth_freeing};
use evenkeel_sched::laws::depths::{RUNS_PACED, RUNS_TRIGGER};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

/// The runs of all indexes without runs.
static NO_RUNS: LazyLock<Arc<Vec<Arc<Run>>>> = LazyLock::new(Arc::default);

/// A cursor has read it since its last compaction began.
pub(crate) const READ: u8 = 1;
/// It was read since the clock of `lazy_metadata` passed it.
pub(crate) const USED: u8 = 2;
/// A file may have held a lost part of it (`damage`).
const DAMAGED: u8 = 4;

/// An index and its runs.
pub(crate) struct Index {
    /// `add_index` was called; otherwise its runs come from a restore.
    pub known: bool,
    pub unique_key: bool,
    pub building: bool,
    marks: AtomicU8,
    /// The file in which one of its runs is left (`lazy_metadata`); `runs` are the others.
    pub cold: Option<NonZeroU32>,
    pub valid_from: Lsn,
    /// Newest first (A3).
    pub runs: Arc<Vec<Arc<Run>>>,
}

impl Default for Index {
    fn default() -> Index {
        Index {
            known: false,
            unique_key: false,
            building: false,
            marks: AtomicU8::new(0),
            cold: None,
            valid_from: Lsn::ZERO,
            runs: NO_RUNS.clone(),
        }
    }
}

impl Index {
    /// True if it has a mark.
    pub(crate) fn is(&self, mark: u8) -> bool {
        self.marks.load(Relaxed) & mark != 0
    }

    /// True if nothing may be read through it any more.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is(DAMAGED)
    }

    /// Sets marks, without dirtying the cache line each time.
    pub(crate) fn set(&self, marks: u8) {
        if self.marks.load(Relaxed) & marks != marks {
            self.marks.fetch_or(marks, Relaxed);
        }
    }

    /// Clears a mark; returns whether it was set.
    pub(crate) fn take(&self, mark: u8) -> bool {
        self.is(mark) && self.marks.fetch_and(!mark, Relaxed) & mark != 0
    }

    /// Leaves its only run in this file.
    pub(crate) fn leave_in(&mut self, file: NonZeroU32) {
        self.runs = NO_RUNS.clone();
        self.cold = Some(file);
    }

    /// Bytes of the newest run.
    pub(crate) fn newest_bytes(&self) -> u64 {
        self.runs.first().map_or(0, |run| run.bytes)
    }

    /// The number of runs that may hold a key: the output of a compaction under way has none of its
    /// inputs' keys.
    pub(crate) fn depth(&self) -> usize {
        self.count() - self.runs.iter().filter(|run| run.growing).count()
    }

    /// Bytes of its runs in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }

    /// True if the index can be compacted.
    pub(crate) fn is_several(&self) -> bool {
        let is_worth = |run: &Arc<Run>| is_worth_freeing(run.bytes, run.garbage());
        self.count() > 1 || (!self.building && self.runs.iter().any(is_worth))
    }

    /// True if it can be compacted and is not at rest, as far as known.
    fn is_restless(&self) -> bool {
        let fact =
            |r: &Arc<Run>| Facts { bytes: r.bytes, garbage: r.garbage(), ..Facts::default() };
        self.cold.is_some() || is_restless(&self.runs.iter().map(fact).collect::<Vec<Facts>>())
    }

    /// The files of its slices.
    pub(crate) fn files(&self) -> impl Iterator<Item = u64> {
        let warm = self.runs.iter().flat_map(|run| &run.segments).map(|s| s.file.number);
        warm.chain(self.cold.map(|file| u64::from(file.get())))
    }

    fn add_runs(&mut self, new: impl IntoIterator<Item = Arc<Run>>) {
        let runs = Arc::make_mut(&mut self.runs);
        runs.extend(new);
        // The ages of runs are disjoint; those of a build are all zero and hold disjoint keys.
        runs.sort_by_key(|r| std::cmp::Reverse((r.age_high, r.number)));
    }
}

/// A file with live slices.
pub(crate) struct LiveFile {
    pub file: Arc<RunFile>,
    pub live: usize,
    /// Runs named in its footer to which the slices no longer belong.
    pub dead: Vec<(IndexId, u64)>,
    /// The runs of slices that were placed in another run.
    pub placed: BTreeMap<IndexId, RunPlace>,
}

impl LiveFile {
    /// A file of live slices only.
    pub(crate) fn new(file: Arc<RunFile>, live: usize) -> LiveFile {
        LiveFile { file, live, dead: Vec::new(), placed: BTreeMap::new() }
    }
}

/// The effect of a compaction, or of a piece of one, on the runs of an index.
pub(crate) struct Edit {
    pub index: IndexId,
    /// Each changed run, before the edit and its rest after it.
    pub inputs: Vec<(Arc<Run>, Option<Arc<Run>>)>,
    /// The output with all its segments so far; it replaces the run with its number.
    pub output: Option<Arc<Run>>,
    /// Segments of the output that were segments of inputs.
    pub relinked: Vec<Arc<RunSegment>>,
    /// Bytes of first segments that inputs have lost. Computed before the state is locked: it may
    /// read fences that were evicted, and all writers would wait for that.
    doomed: Vec<(Arc<RunSegment>, Range<u64>)>,
}

impl Edit {
    pub(crate) fn new(
        index: IndexId,
        inputs: Vec<(Arc<Run>, Option<Arc<Run>>)>,
        output: Option<Arc<Run>>,
        relinked: Vec<Arc<RunSegment>>,
    ) -> Edit {
        let cut = inputs.iter().filter_map(|(run, left)| Some((run, left.as_ref()?)));
        let doomed = cut.filter(|cut| cut.1.is_cut()).filter_map(|(run, left)| lost_of(run, left));
        let doomed = doomed.collect();
        Edit { index, inputs, output, relinked, doomed }
    }

    /// Segments of its output that lie in a file.
    pub(crate) fn segments_in(&self, file: u64) -> impl Iterator<Item = &Arc<RunSegment>> {
        let segments = self.output.iter().flat_map(|run| &run.segments);
        segments.filter(move |s| s.file.number == file)
    }

    /// Segments that the inputs lose for good.
    fn lost(&self) -> Vec<Arc<RunSegment>> {
        let left = self.inputs.iter().filter_map(|(_, left)| left.as_ref());
        let kept = left.flat_map(|run| &run.segments).chain(&self.relinked);
        // A file holds one slice of an index.
        let kept: HashSet<u64> = kept.map(|s| s.file.number).collect();
        let all = self.inputs.iter().flat_map(|(run, _)| &run.segments);
        all.filter(|s| !kept.contains(&s.file.number)).cloned().collect()
    }
}

/// The bytes of the first segment that a run has lost.
fn lost_of(before: &Run, left: &Run) -> Option<(Arc<RunSegment>, Range<u64>)> {
    let first = left.segments.first()?;
    let old = before.segments.iter().find(|s| s.file.number == first.file.number)?;
    let from = old.bytes_below(&before.low).map_or(old.info.position, |bytes| bytes.end);
    let to = old.bytes_below(&left.low).ok()?.end;
    Some((old.clone(), from..to))
}

pub(crate) struct RunsState {
    /// Newest first; [0] is active.
    pub memtables: Arc<Vec<Arc<Memtable>>>,
    pub indexes: BTreeMap<IndexId, Index>,
    /// Indexes that may have to be compacted.
    pub due: CompactionCandidates<CompactionMode>,
    /// Indexes with a single run that is in memory, its size; and the clock's hand
    /// (`lazy_metadata`).
    pub warm: BTreeMap<IndexId, u32>,
    pub warm_bytes: u64,
    pub hand: IndexId,
    /// Indexes with so many runs that ingest needs credit.
    pub deep: BTreeSet<IndexId>,
    /// Indexes with so many runs that ingest is limited to the rate of compactions.
    pub high: BTreeSet<IndexId>,
    /// For indexes with compactions under way, the numbers of the runs that are their inputs.
    pub merging: BTreeMap<IndexId, Vec<u64>>,
    pub files: BTreeMap<u64, LiveFile>,
    /// Files whose list of slices cannot be read.
    pub damaged: BTreeMap<u64, DamagedFile>,
    /// Files that the manifest names and that have nothing live: those of damaged indexes.
    pub dead_files: Vec<u64>,
    /// Indexes of the catalog that the manifest says are dropped, because they were damaged at an
    /// earlier start; and indexes found damaged while open, for which the manifest will say so.
    pub lost: HashSet<IndexId>,
    /// The errors of the latter.
    pub ruined: BTreeMap<IndexId, Error>,
    /// Files without a live slice, removed when no reader has them open.
    pub doomed: Vec<Arc<RunFile>>,
    /// Bytes of live files that are freed when no reader has the segment.
    pub doomed_bytes: Vec<(Arc<RunSegment>, Range<u64>)>,
    /// Runs that have lost their low end to a compaction.
    pub trimmed: BTreeSet<(IndexId, u64)>,
    /// This generation and all before it are in runs.
    pub flushed: Generation,
}

impl RunsState {
    /// A state with one memtable and nothing else.
    pub(crate) fn new(active: Arc<Memtable>) -> RunsState {
        RunsState {
            memtables: Arc::new(vec![active]),
            indexes: BTreeMap::new(),
            due: CompactionCandidates::default(),
            deep: BTreeSet::new(),
            high: BTreeSet::new(),
            warm: BTreeMap::new(),
            warm_bytes: 0,
            hand: IndexId::ZERO,
            merging: BTreeMap::new(),
            files: BTreeMap::new(),
            damaged: BTreeMap::new(),
            dead_files: Vec::new(),
            lost: HashSet::new(),
            ruined: BTreeMap::new(),
            doomed: Vec::new(),
            doomed_bytes: Vec::new(),
            trimmed: BTreeSet::new(),
            flushed: Generation::ZERO,
        }
    }

    /// Adds runs to an index; does nothing if it does not exist.
    pub(crate) fn add_runs(&mut self, index: IndexId, new: impl IntoIterator<Item = Arc<Run>>) {
        if let Some(known) = self.indexes.get_mut(&index) {
            known.add_runs(new);
        }
        self.note_runs(index);
    }

    /// The runs of an index have changed.
    pub(crate) fn note_runs(&mut self, index: IndexId) {
        let known = self.indexes.get(&index).filter(|i| !i.is_damaged());
        let depth = known.map_or(0, Index::depth);
        for (set, least) in [(&mut self.high, RUNS_PACED), (&mut self.deep, RUNS_TRIGGER)] {
            match depth >= least {
                true => set.insert(index),
                false => set.remove(&index),
            };
        }
        match known {
            // Its facts were determined when it was left in its file.
            Some(known) if known.count() == 1 && known.cold.is_some() => self.due.ask(index),
            Some(known) => self.due.note(index, known.is_several(), known.is_restless()),
            None => self.due.note(index, false, false),
        }
        self.note_cold(index);
    }

    /// Nothing may be read through the index any more.
    pub(crate) fn set_damaged(&mut self, index: IndexId) {
        if let Some(known) = self.indexes.get(&index) {
            known.set(DAMAGED);
        }
        self.note_runs(index);
    }

    /// These runs are no longer inputs or output of a compaction under way.
    pub(crate) fn end_merging(&mut self, index: IndexId, runs: &[u64]) {
        if let Some(merging) = self.merging.get_mut(&index) {
            merging.retain(|n| !runs.contains(n));
            if merging.is_empty() {
                self.merging.remove(&index);
            }
        }
        let Some(known) = self.indexes.get_mut(&index) else { return };
        let ended = |r: &Run| r.growing && runs.contains(&r.number);
        if known.runs.iter().any(|r| ended(r)) {
            for run in Arc::make_mut(&mut known.runs).iter_mut().filter(|r| ended(r)) {
                *run = Run::new(run.segments.clone()).map_or_else(|| run.clone(), Arc::new);
            }
        }
        self.note_runs(index);
    }

    /// Adds the slices of a new file as runs, except those of dropped indexes.
    pub(crate) fn add_file(&mut self, file: &Arc<RunFile>, slices: Vec<SliceInfo>) {
        let is_there = |info: &SliceInfo| self.indexes.contains_key(&info.index);
        let (slices, gone): (Vec<_>, Vec<_>) = slices.into_iter().partition(is_there);
        if slices.is_empty() {
            self.doomed.push(file.clone());
            return;
        }
        let mut known = LiveFile::new(file.clone(), slices.len());
        known.dead = gone.iter().map(|info| (info.index, info.run)).collect();
        self.files.insert(file.number, known);
        for info in slices {
            let index = info.index;
            let run = Run::new(vec![Arc::new(RunSegment::new(file.clone(), info))]);
            self.add_runs(index, run.map(Arc::new));
        }
    }

    /// Files without a live slice after one slice in each of these is removed.
    pub(crate) fn files_left_empty(&self, slices: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut gone: BTreeMap<u64, usize> = BTreeMap::new();
        slices.for_each(|file| *gone.entry(file).or_default() += 1);
        gone.retain(|file, count| self.files.get(file).is_some_and(|f| f.live <= *count));
        gone.into_keys().collect()
    }

    /// The manifest operations of edits made together, without new files.
    pub(crate) fn edits_of(&self, edits: &[Edit]) -> Vec<ManifestOp> {
        let mut ops = Vec::new();
        for Edit { index, inputs, relinked, .. } in edits {
            let index = *index;
            for segment in relinked {
                let Some(RunPlace { run, age_low, age_high }) = segment.place() else { continue };
                let file = segment.file.number;
                ops.push(ManifestOp::Place { index, file, run, age_low, age_high });
            }
            for (run, left) in inputs {
                ops.push(match left {
                    None => ManifestOp::RemoveRun(index, run.number),
                    Some(left) => ManifestOp::Trim(index, run.number, left.low.clone()),
                });
            }
        }
        let lost: Vec<Arc<RunSegment>> = edits.iter().flat_map(Edit::lost).collect();
        let empty = self.files_left_empty(lost.iter().map(|s| s.file.number));
        ops.extend(empty.into_iter().map(ManifestOp::RemoveFile));
        ops
    }

    /// A slice is dead: its file is removed with its last slice, otherwise its bytes are freed.
    fn release(&mut self, segment: &Arc<RunSegment>) {
        let number = segment.file.number;
        let Some(file) = self.files.get_mut(&number) else { return };
        file.live -= 1;
        if file.placed.remove(&segment.info.index).is_none() {
            file.dead.push(segment.home());
        }
        if file.live == 0 {
            self.doomed.extend(self.files.remove(&number).map(|f| f.file));
        } else {
            let start = segment.info.position;
            self.doomed_bytes.push((segment.clone(), start..start + segment.info.bytes()));
        }
    }

    /// As `release`, for a slice that is left in its file: its bytes are freed with the file.
    fn release_cold(&mut self, index: IndexId, number: u64) {
        let Some(file) = self.files.get_mut(&number) else { return };
        file.live -= 1;
        file.dead.push((index, number));
        if file.live == 0 {
            self.doomed.extend(self.files.remove(&number).map(|f| f.file));
        }
    }

    /// The slice of an input has become one of the output.
    fn trivial_move(&mut self, segment: &RunSegment) {
        let place = segment.place();
        let Some(file) = self.files.get_mut(&segment.file.number) else { return };
        if let Some(place) = place
            && file.placed.insert(segment.info.index, place).is_none()
        {
            file.dead.push(segment.home());
        }
    }

    /// Applies an edit.
    pub(crate) fn apply(&mut self, edit: &Edit) {
        let index = edit.index;
        let Some(known) = self.indexes.get_mut(&index) else { return };
        let output = edit.output.as_ref().map(|run| run.number);
        let gone = |n| output == Some(n) || edit.inputs.iter().any(|(run, _)| run.number == n);
        Arc::make_mut(&mut known.runs).retain(|r| !gone(r.number));
        if known.runs.is_empty() {
            known.runs = NO_RUNS.clone();
        }
        edit.relinked.iter().for_each(|segment| self.trivial_move(segment));
        edit.lost().iter().for_each(|segment| self.release(segment));
        for (run, left) in &edit.inputs {
            match left {
                None => self.trimmed.remove(&(index, run.number)),
                Some(_) => self.trimmed.insert((index, run.number)),
            };
        }
        self.doomed_bytes.extend(edit.doomed.iter().cloned());
        let left = edit.inputs.iter().filter_map(|(_, left)| left.clone());
        self.add_runs(index, left.chain(edit.output.clone()));
    }

    /// Removes an index; its runs' files are removed when they have no readers.
    pub(crate) fn drop_index(&mut self, index: IndexId) {
        self.merging.remove(&index);
        self.forget_damage(index);
        if let Some(gone) = self.indexes.remove(&index) {
            self.note_runs(index);
            for run in &*gone.runs {
                self.trimmed.remove(&(index, run.number));
                run.segments.iter().for_each(|segment| self.release(segment));
            }
            if let Some(file) = gone.cold {
                self.release_cold(index, u64::from(file.get()));
            }
        }
    }

    /// Everything a restart needs, as edits.
    pub(crate) fn edits(&self, next_file: u64) -> Vec<ManifestOp> {
        let mut ops = vec![ManifestOp::NextFile(next_file), ManifestOp::Flushed(self.flushed)];
        for (number, file) in &self.files {
            ops.push(ManifestOp::AddFile(*number));
            // A run that continues without a slice of this file was trimmed.
            let gone = file.dead.iter().filter(|name| !self.trimmed.contains(name));
            ops.extend(gone.map(|(index, run)| ManifestOp::RemoveRun(*index, *run)));
            ops.extend(file.placed.iter().map(|(index, place)| ManifestOp::Place {
                index: *index,
                file: *number,
                run: place.run,
                age_low: place.age_low,
                age_high: place.age_high,
            }));
        }
        for (index, number) in &self.trimmed {
            let mut runs = self.indexes.get(index).into_iter().flat_map(|i| &*i.runs);
            if let Some(run) = runs.find(|r| r.number == *number) {
                ops.push(ManifestOp::Trim(*index, *number, run.low.clone()));
            }
        }
        ops.extend(self.edits_of_damage());
        ops
    }

    /// True if a run has pending entries of the transaction.
    pub(crate) fn is_pending(&self, txn: TxnId) -> bool {
        let segments = self.indexes.values().flat_map(|i| &*i.runs).flat_map(|r| &r.segments);
        let mut pending = segments.map(|s| &s.info.pending);
        pending.any(|p| p.binary_search(&txn).is_ok())
    }

    /// The most runs any index has.
    pub(crate) fn most_runs(&self) -> usize {
        let several = self.run_counts().max();
        several.unwrap_or(usize::from(!self.files.is_empty()))
    }

    /// The invariants of this file, and that runs said to be inputs of compactions are there.
    #[cfg(any(debug_assertions, test))]
    pub(crate) fn check(&self) {
        let runs = || self.indexes.iter().flat_map(|(id, i)| i.runs.iter().map(move |r| (*id, r)));
        let trimmed = runs().filter(|(_, r)| !r.low.is_empty()).map(|(id, r)| (id, r.number));
        assert_eq!(self.trimmed, trimmed.collect());
        let mut live: BTreeMap<u64, usize> = BTreeMap::new();
        for (id, run) in runs() {
            assert!(run.segments.is_sorted_by(|a, b| a.info.max_key < b.info.min_key));
            for segment in &run.segments {
                assert_eq!(segment.info.run, run.number);
                assert!(segment.info.max_key >= run.low);
                *live.entry(segment.file.number).or_default() += 1;
                let placed = self.files[&segment.file.number].placed.get(&id).copied();
                assert_eq!(placed, segment.place());
            }
        }
        for (id, file) in self.indexes.iter().filter_map(|(id, i)| i.cold.map(|cold| (id, cold))) {
            let number = u64::from(file.get());
            *live.entry(number).or_default() += 1;
            assert!(!self.files[&number].dead.contains(&(*id, number)), "{id}");
            assert!(!self.files[&number].placed.contains_key(id), "{id}");
        }
        assert_eq!(live, self.files.iter().map(|(n, f)| (*n, f.live)).collect());
        let is_single = |i: &Index| i.cold.is_none() && i.runs.len() == 1;
        let single = self.indexes.iter().filter(|(_, i)| is_single(i)).map(|(id, _)| id);
        assert!(self.warm.keys().eq(single));
        assert_eq!(self.warm_bytes, self.warm.values().map(|bytes| u64::from(*bytes)).sum());
        for (id, i) in &self.indexes {
            let may_be = i.is_several() && !i.is_damaged();
            let is = self.due.several.contains(id);
            assert!(is == may_be || (is && i.cold.is_some() && i.count() == 1), "{id}");
        }
        assert!(self.due.several.iter().all(|id| self.indexes.contains_key(id)));
        for (set, least) in [(&self.high, RUNS_PACED), (&self.deep, RUNS_TRIGGER)] {
            let is_deep = |i: &Index| i.depth() >= least && !i.is_damaged();
            let deep = self.indexes.iter().filter(|(_, i)| is_deep(i)).map(|(id, _)| id);
            assert!(set.iter().eq(deep));
        }
        for (id, merging) in &self.merging {
            let runs = &self.indexes[id].runs;
            assert!(runs.iter().any(|r| merging.contains(&r.number)), "{id}: {merging:?}");
            assert!(runs.iter().all(|r| !r.growing || merging.contains(&r.number)));
        }
    }

    /// The most runs any index of those has that need credit.
    /// The indexes for which ingest needs credit.
    pub(crate) fn owing(&self) -> Owing {
        let of = |id: &IndexId| {
            let index = self.indexes.get(id)?;
            Some((*id, (index.depth(), index.newest_bytes())))
        };
        self.deep.iter().filter_map(of).collect()
    }

    pub(crate) fn deepest(&self) -> Option<usize> {
        self.deep.iter().filter_map(|id| self.indexes.get(id)).map(Index::depth).max()
    }

    /// The number of runs of each index that has several.
    fn run_counts(&self) -> impl Iterator<Item = usize> {
        self.due.several.iter().filter_map(|id| self.indexes.get(id)).map(Index::depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_io::Event;

    /// D2. A node of a `BTreeMap` has at least 6 of 11 places filled; six of them have one above.
    #[test]
    fn an_index_without_runs_takes_at_most_64_bytes() {
        const { assert!(11 * (size_of::<IndexId>() + size_of::<Index>()) + 16 + 20 <= 64 * 6) };
        let mut state =
            RunsState::new(Arc::new(Memtable::new(Generation(1), Arc::new(Event::new()))));
        for id in 0..600_000 {
            state.indexes.entry(IndexId(id)).or_default().known = true;
        }
        // Nothing of its own beside its entry.
        assert!(state.indexes.values().all(|index| Arc::ptr_eq(&index.runs, &NO_RUNS)));
        assert!(state.due.several.is_empty() && state.merging.is_empty());
    }
}
