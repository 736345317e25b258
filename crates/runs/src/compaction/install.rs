//! Replaces the inputs of a compaction by a piece of its output: first the manifest record, then
//! the view.

use super::job::{CompactionJob, JobPart};
use crate::Runs;
use crate::run::file::{Run, RunFile, RunPlace, RunSegment};
use crate::state::{Edit, LiveFile};
use evenkeel_base::{Cause, IndexId, Result, metrics::Metric};
use evenkeel_format::run::{ManifestOp, SliceInfo};
use evenkeel_io::IO_ALIGN;
use std::sync::Arc;

impl Runs {
    /// Installs the job's output for the keys below `to`; `None`: for all keys, and no piece
    /// follows. False (and nothing done) if the index was dropped meanwhile.
    pub(super) fn install_piece(&self, job: &mut CompactionJob, to: Option<&[u8]>) -> Result<bool> {
        let mut files = Vec::new();
        let (mut new, mut relinked) = (Vec::new(), Vec::new());
        if job.parts.iter().any(|part| matches!(part, JobPart::Written(_))) {
            self.sync_names()?;
        }
        for part in &job.parts {
            match part {
                JobPart::Written(written) => {
                    let bytes: u64 = written.slices.iter().map(SliceInfo::bytes).sum();
                    // The footer has a block of its own.
                    job.written += bytes.next_multiple_of(IO_ALIGN as u64) + IO_ALIGN as u64;
                    let file = RunFile::open(&self.rt, &self.filter_cache, written.number)?;
                    let slices = written.slices.iter().cloned();
                    new.extend(slices.map(|info| Arc::new(RunSegment::new(file.clone(), info))));
                    files.push(file);
                }
                JobPart::MovedSegments(segment) => {
                    relinked.push(Arc::new(segment.placed(RunPlace {
                        run: job.start.run,
                        age_low: job.start.age_low,
                        age_high: job.start.age_high,
                    })))
                }
            }
        }
        let taken: u64 = relinked.iter().map(|s| s.info.bytes()).sum();
        new.extend(relinked.iter().cloned());
        let edit = self.edit_of(job, to, new, relinked);
        let inputs = edit.inputs.clone();
        if !self.install_edits(vec![edit], files)? {
            self.rt.metrics.add(Metric::CompactionsAbandoned, 1);
            let numbers = job.files();
            job.parts.clear();
            self.remove_files(numbers);
            return Ok(false);
        }
        job.parts.clear();
        for (before, left) in inputs {
            let place = job.inputs.iter().position(|r| r.number == before.number);
            let Some(place) = place else { continue };
            let freed = before.bytes - left.as_ref().map_or(0, |left| left.bytes);
            // The block at the cut is freed only with its file.
            job.freed += freed.saturating_sub(if left.is_some() { IO_ALIGN as u64 } else { 0 });
            match left {
                Some(left) => job.inputs[place] = left,
                None => drop(job.inputs.remove(place)),
            }
        }
        let metrics = &self.rt.metrics;
        metrics.add(Metric::TrivialMoveBytes, taken);
        metrics.add(Metric::CompactionPieces, 1);
        if to.is_none() {
            self.state.write().end_merging(job.index, &job.numbers);
            metrics.add(Metric::CompactionsFinished, 1);
            metrics.add(Metric::CompactionsBottom, u64::from(job.is_bottom()));
        }
        self.compaction_event.notify();
        self.space.notify();
        Ok(true)
    }

    fn edit_of(
        &self,
        job: &CompactionJob,
        to: Option<&[u8]>,
        mut segments: Vec<Arc<RunSegment>>,
        relinked: Vec<Arc<RunSegment>>,
    ) -> Edit {
        {
            let state = self.state.read();
            let mut runs = state.indexes.get(&job.index).into_iter().flat_map(|i| &*i.runs);
            if let Some(before) = runs.find(|r| r.number == job.start.run) {
                segments.extend(before.segments.iter().cloned());
            }
        }
        let output = Run::new(segments).map(|run| Arc::new(Run { growing: to.is_some(), ..run }));
        let mut inputs = Vec::new();
        for run in &job.inputs {
            let Some(to) = to else {
                inputs.push((run.clone(), None));
                continue;
            };
            let is_touched = run.segments.first().is_some_and(|s| &s.info.min_key[..] < to);
            if is_touched {
                inputs.push((run.clone(), run.above(to).map(Arc::new)));
            }
        }
        Edit::new(job.index, inputs, output, relinked)
    }

    /// False (and nothing done) if none of the indexes exists any more.
    pub(super) fn install_edits(&self, edits: Vec<Edit>, files: Vec<Arc<RunFile>>) -> Result<bool> {
        let _edit = self.manifest.lock(&self.rt, Cause::Idle);
        let (edits, dropped): (Vec<Edit>, Vec<Edit>) = {
            let state = self.state.read();
            edits.into_iter().partition(|edit| state.indexes.contains_key(&edit.index))
        };
        if edits.is_empty() {
            return Ok(false);
        }
        let of_edits = |edits: &[Edit], file: &RunFile| -> Vec<(IndexId, u64)> {
            let segments = edits.iter().flat_map(|edit| edit.segments_in(file.number));
            segments.map(|s| s.home()).collect()
        };
        // None of the indexes of a file may exist any more.
        let (files, orphans): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| !of_edits(&edits, file).is_empty());
        let mut ops: Vec<ManifestOp> =
            files.iter().map(|file| ManifestOp::AddFile(file.number)).collect();
        ops.extend(self.state.read().edits_of(&edits));
        self.rt.step();
        self.append_manifest(&ops)?;
        {
            let mut state = self.state.write();
            for file in files {
                let mut known = LiveFile::new(file.clone(), of_edits(&edits, &file).len());
                known.dead = of_edits(&dropped, &file);
                state.files.insert(file.number, known);
            }
            state.doomed.extend(orphans);
            edits.iter().for_each(|edit| state.apply(edit));
            let indexes: Vec<IndexId> = edits.iter().map(|edit| edit.index).collect();
            // An output that nothing else holds may be left in its file.
            drop(edits);
            indexes.into_iter().for_each(|index| state.note_runs(index));
            self.changed(&state);
        }
        self.filter_cache.prune();
        self.manifest_done();
        Ok(true)
    }
}
