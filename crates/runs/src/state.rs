//! The shared state: generations, indexes with their runs, files. Guarded by `Runs::state`; every
//! method here is short memory work.

use crate::file::{Run, RunFile, Segment};
use crate::memtable::Memtable;
use evenkeel_base::{Generation, IndexId, Lsn, TxnId};
use evenkeel_format::run::{ManifestOp, SliceInfo};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An index and its runs.
#[derive(Default)]
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
    /// Numbers of runs that are inputs of merges under way.
    pub merging: Vec<u64>,
}

impl Index {
    pub(crate) fn add_runs(&mut self, new: impl IntoIterator<Item = Arc<Run>>) {
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
    pub files: BTreeMap<u64, LiveFile>,
    /// Files without a live slice, removed when no reader has them open.
    pub doomed: Vec<Arc<RunFile>>,
    /// This generation and all before it are in runs.
    pub flushed: Generation,
}

impl State {
    /// Takes the slices of a new file into their runs, except those of dropped indexes; each is
    /// a run.
    pub(crate) fn add_file(&mut self, file: &Arc<RunFile>, slices: Vec<SliceInfo>) {
        let (mut live, mut dead) = (0, Vec::new());
        for info in slices {
            match self.indexes.get_mut(&info.index) {
                None => dead.push((info.index, info.run)),
                Some(index) => {
                    live += 1;
                    let run = Run::new(vec![Arc::new(Segment::new(file.clone(), info))]);
                    index.add_runs(run.map(Arc::new));
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
        let Some(known) = self.indexes.get_mut(&index) else { return };
        known.merging.retain(|n| !gone.contains(n));
        Arc::make_mut(&mut known.runs).retain(|r| !gone.contains(&r.number));
        known.add_runs(output);
        inputs.iter().for_each(|run| self.release(run));
    }

    /// Forgets an index; its runs' files go when nobody reads them.
    pub(crate) fn drop_index(&mut self, index: IndexId) {
        if let Some(index) = self.indexes.remove(&index) {
            index.runs.iter().for_each(|run| self.release(run));
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
        self.indexes.values().map(|i| i.runs.len()).max().unwrap_or(0)
    }
}
