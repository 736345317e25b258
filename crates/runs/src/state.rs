//! The shared state: generations, indexes with their runs, files. Guarded by `Runs::state`; every
//! method here is short memory work.
//!
//! Invariant: `several` are the indexes with two runs or more: what merges and credit look at, so
//! that nothing walks all indexes. One without runs takes at most 64 bytes (D2).

use crate::file::{Run, RunFile, Segment};
use crate::memtable::Memtable;
use evenkeel_base::{Generation, IndexId, Lsn, TxnId};
use evenkeel_format::run::{ManifestOp, SliceInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

/// The runs of all indexes that have none.
static NO_RUNS: LazyLock<Arc<Vec<Arc<Run>>>> = LazyLock::new(Arc::default);

/// An index and its runs.
pub(crate) struct Index {
    /// `add_index` was called; else its runs come from a restore.
    pub known: bool,
    pub unique_key: bool,
    pub building: bool,
    pub valid_from: Lsn,
    /// Newest first (A3).
    pub runs: Arc<Vec<Arc<Run>>>,
    /// It was read by a cursor since its last merge began.
    pub read: AtomicBool,
}

impl Default for Index {
    fn default() -> Index {
        Index {
            known: false,
            unique_key: false,
            building: false,
            valid_from: Lsn::ZERO,
            runs: NO_RUNS.clone(),
            read: AtomicBool::new(false),
        }
    }
}

impl Index {
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
    /// Its dead slices.
    pub dead: Vec<(IndexId, u64)>,
}

pub(crate) struct State {
    /// Newest first; [0] is active.
    pub memtables: Arc<Vec<Arc<Memtable>>>,
    pub indexes: BTreeMap<IndexId, Index>,
    /// Those with two runs or more.
    pub several: BTreeSet<IndexId>,
    /// Numbers of runs that are inputs of merges under way, of indexes that have such.
    pub merging: BTreeMap<IndexId, Vec<u64>>,
    pub files: BTreeMap<u64, LiveFile>,
    /// Files without a live slice, removed when no reader has them open.
    pub doomed: Vec<Arc<RunFile>>,
    /// This generation and all before it are in runs.
    pub flushed: Generation,
}

impl State {
    /// With one memtable, and nothing else yet.
    pub(crate) fn new(active: Arc<Memtable>) -> State {
        State {
            memtables: Arc::new(vec![active]),
            indexes: BTreeMap::new(),
            several: BTreeSet::new(),
            merging: BTreeMap::new(),
            files: BTreeMap::new(),
            doomed: Vec::new(),
            flushed: Generation::ZERO,
        }
    }

    /// Gives an index more runs; nothing if it is not there.
    pub(crate) fn add_runs(&mut self, index: IndexId, new: impl IntoIterator<Item = Arc<Run>>) {
        if let Some(known) = self.indexes.get_mut(&index) {
            known.add_runs(new);
        }
        self.note_runs(index);
    }

    /// The runs of an index have changed.
    fn note_runs(&mut self, index: IndexId) {
        match self.indexes.get(&index).is_some_and(|i| i.runs.len() > 1) {
            true => self.several.insert(index),
            false => self.several.remove(&index),
        };
    }

    /// These runs are no longer inputs of a merge under way.
    pub(crate) fn end_merging(&mut self, index: IndexId, runs: &[u64]) {
        if let Some(merging) = self.merging.get_mut(&index) {
            merging.retain(|n| !runs.contains(n));
            if merging.is_empty() {
                self.merging.remove(&index);
            }
        }
    }

    /// Takes the slices of a new file into their runs, except those of dropped indexes; each is
    /// a run.
    pub(crate) fn add_file(&mut self, file: &Arc<RunFile>, slices: Vec<SliceInfo>) {
        let (mut live, mut dead) = (0, Vec::new());
        for info in slices {
            match self.indexes.get(&info.index) {
                None => dead.push((info.index, info.run)),
                Some(_) => {
                    live += 1;
                    let index = info.index;
                    let run = Run::new(vec![Arc::new(Segment::new(file.clone(), info))]);
                    self.add_runs(index, run.map(Arc::new));
                }
            }
        }
        if live > 0 {
            let number = file.number;
            self.files.insert(number, LiveFile { file: file.clone(), live, dead });
        } else {
            self.doomed.push(file.clone());
        }
    }

    /// Files that have no live slice once these runs are gone.
    pub(crate) fn files_left_empty(&self, runs: &[Arc<Run>]) -> impl Iterator<Item = u64> + use<> {
        let mut gone: BTreeMap<u64, usize> = BTreeMap::new();
        for segment in runs.iter().flat_map(|r| &r.segments) {
            *gone.entry(segment.file.number).or_default() += 1;
        }
        gone.retain(|file, count| self.files.get(file).is_some_and(|f| f.live <= *count));
        gone.into_keys()
    }

    fn release(&mut self, run: &Run) {
        for segment in &run.segments {
            let number = segment.file.number;
            if let Some(file) = self.files.get_mut(&number) {
                file.live -= 1;
                file.dead.push((run.index, run.number));
                if file.live == 0 {
                    self.doomed.extend(self.files.remove(&number).map(|f| f.file));
                }
            }
        }
    }

    /// Puts `output` in the place of `inputs`.
    pub(crate) fn replace_runs(
        &mut self,
        index: IndexId,
        inputs: &[Arc<Run>],
        output: Option<Arc<Run>>,
    ) {
        let gone: Vec<u64> = inputs.iter().map(|r| r.number).collect();
        self.end_merging(index, &gone);
        let Some(known) = self.indexes.get_mut(&index) else { return };
        Arc::make_mut(&mut known.runs).retain(|r| !gone.contains(&r.number));
        if known.runs.is_empty() {
            known.runs = NO_RUNS.clone();
        }
        self.add_runs(index, output);
        inputs.iter().for_each(|run| self.release(run));
    }

    /// Forgets an index; its runs' files go when nobody reads them.
    pub(crate) fn drop_index(&mut self, index: IndexId) {
        self.merging.remove(&index);
        if let Some(gone) = self.indexes.remove(&index) {
            self.note_runs(index);
            gone.runs.iter().for_each(|run| self.release(run));
        }
    }

    /// Everything a restart needs, as edits.
    pub(crate) fn edits(&self, next_file: u64) -> Vec<ManifestOp> {
        let mut ops = vec![ManifestOp::NextFile(next_file), ManifestOp::Flushed(self.flushed)];
        for (number, file) in &self.files {
            ops.push(ManifestOp::AddFile(*number));
            ops.extend(file.dead.iter().map(|(index, run)| ManifestOp::RemoveRun(*index, *run)));
        }
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

    /// The invariant of this file, and that runs said to be inputs of merges are there.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let several = self.indexes.iter().filter(|(_, i)| i.runs.len() > 1).map(|(id, _)| *id);
        assert_eq!(self.several, several.collect());
        for (id, merging) in &self.merging {
            let runs = &self.indexes[id].runs;
            assert!(!merging.is_empty());
            assert!(
                merging.iter().all(|n| runs.iter().any(|r| r.number == *n)),
                "{id}: {merging:?}"
            );
        }
    }

    /// How many runs each index has that has several.
    pub(crate) fn run_counts(&self) -> impl Iterator<Item = usize> {
        self.several.iter().filter_map(|id| self.indexes.get(id)).map(|i| i.runs.len())
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
        let mut state = State::new(Arc::new(Memtable::new(Generation(1), Arc::new(Event::new()))));
        for id in 0..600_000 {
            state.indexes.entry(IndexId(id)).or_default().known = true;
        }
        // Nothing of its own beside its place.
        assert!(state.indexes.values().all(|index| Arc::ptr_eq(&index.runs, &NO_RUNS)));
        assert!(state.several.is_empty() && state.merging.is_empty());
    }
}
