//! Merging runs (D3): jobs cut in beats of at most 1 MiB, one job per range of neighbouring runs.
//! The outputs take the place of the inputs at the end of a job, in one manifest record; until then
//! they are orphans that a restart removes.

use crate::Runs;
use crate::build::CHECK_EVERY;
use crate::chain::{Chain, Rules};
use crate::file::{Run, RunFile, Segment};
use crate::policy::{Spare, choose, numbers, pick_rest, spare_beside};
use crate::run_iter::{Bounds, Loader, RunIter};
use crate::source::{Direction, Merger, Source};
use crate::state::{LiveFile, State};
use crate::writer::{Purpose, RunWriter, SliceStart, Written};
use evenkeel_base::journal::Law;
use evenkeel_base::{Beat, Cause, Code, IndexId, Kind, Lsn, Result, metrics::Metric};
use evenkeel_format::run::ManifestOp;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const BEAT_BYTES: u64 = 1 << 20;
const BEAT_ENTRIES: u64 = 16 << 10;
/// A run is cut into files of about this size.
pub(crate) const SEGMENT_BYTES: u64 = 48 << 20;
pub(crate) const READ_AHEAD: usize = 256 << 10;
/// Ingest is measured over this long at least.
const INGEST_WINDOW_NS: u64 = 1_000_000_000;
/// Merging that nobody waits for waits for a seat for so long before it looks whether there is some
/// that somebody waits for.
const SEAT_WAIT: Duration = Duration::from_millis(1);
/// No entry is charged less in a memtable.
const ENTRY_BYTES_LEAST: u64 = 32;

/// How fast entries come in.
#[derive(Default)]
pub(crate) struct Ingest {
    entries: u64,
    at_ns: u64,
    spare: Option<Spare>,
}

/// A merge under way.
pub(crate) struct MergeJob {
    index: IndexId,
    inputs: Vec<Arc<Run>>,
    bytes: u64,
    left: u64,
    is_bottom: bool,
    purpose: Purpose,
    merger: Merger,
    chain: Chain,
    start: SliceStart,
    writer: Option<RunWriter>,
    outputs: Vec<Written>,
    last_key: Vec<u8>,
}

impl MergeJob {
    fn abandon(self) -> Vec<u64> {
        if let Some(writer) = self.writer {
            writer.abandon();
        }
        self.outputs.iter().map(|o| o.number).collect()
    }
}

impl Runs {
    /// One step of merging runs.
    ///
    /// # Errors
    /// Of reading and writing; a failed write latches `health`, a full disk does not.
    pub fn merge_beat(&self) -> Result<Beat> {
        if self.rt.health.is_failed() {
            return Ok(Beat::Idle);
        }
        self.remove_doomed();
        self.merge_step(self.spare())
    }

    /// Merges every index to rest, whatever goes on.
    ///
    /// # Errors
    /// As `merge_beat`.
    pub fn merge_to_rest(&self) -> Result<()> {
        while self.merge_step(Spare::All)? == Beat::More {
            self.rt.step();
        }
        self.remove_doomed();
        Ok(())
    }

    /// How long an idle merge thread may wait for its event before the next beat; `None`: forever.
    pub fn next_merge_in(&self) -> Option<Duration> {
        let more = !self.state.read().doomed.is_empty() || self.is_rest_wanted();
        more.then_some(Duration::from_nanos(INGEST_WINDOW_NS))
    }

    /// Some index has more runs than at rest, and none of them is being merged.
    fn is_rest_wanted(&self) -> bool {
        let state = self.state.read();
        // Runs that stay marked as being merged are damaged, or a job has them already.
        let free = |id: &&IndexId| !state.merging.contains_key(id);
        let runs = |id| state.indexes.get(id).map(|i| sizes(&i.runs));
        state.several.iter().filter(free).filter_map(runs).any(|r| pick_rest(&r).is_some())
    }

    /// What may be merged beyond the needs of ingest, by what came in over the last second.
    fn spare(&self) -> Spare {
        let now = self.now_ns();
        let entries = self.rt.metrics.get(Metric::MemtableEntries);
        let mut ingest = self.ingest.lock();
        let ns = now.saturating_sub(ingest.at_ns);
        if ns >= INGEST_WINDOW_NS {
            let new = entries - ingest.entries;
            let average = {
                let active = self.state.read().memtables[0].clone();
                (active.bytes() / active.entries().max(1)).max(ENTRY_BYTES_LEAST)
            };
            let rate = u128::from(new * average) * 1_000_000_000 / u128::from(ns);
            ingest.spare = Some(spare_beside(rate as u64, self.generation_bytes()));
            (ingest.entries, ingest.at_ns) = (entries, now);
        }
        ingest.spare.unwrap_or(Spare::None)
    }

    fn merge_step(&self, spare: Spare) -> Result<Beat> {
        let mut seat = self.rt.try_seat();
        // Runs of a merge that waits for a seat would be missing where ingest needs one.
        self.begin_merges(if seat.is_some() { spare } else { Spare::None })?;
        // The job with the least left: runs go soonest (Luo and Carey 2019).
        let job = {
            let mut jobs = self.merge_jobs.lock();
            let must_wait = |job: &MergeJob| seat.is_none() && !job.purpose.required;
            let least = (0..jobs.len()).min_by_key(|i| (must_wait(&jobs[*i]), jobs[*i].left));
            least.map(|i| jobs.swap_remove(i))
        };
        let must_wait = match &job {
            Some(job) => !job.purpose.required,
            None => spare != Spare::None && self.is_rest_wanted(),
        };
        if must_wait && seat.is_none() {
            self.merge_jobs.lock().extend(job);
            // If it comes in time it is let go again: the beat begins anew.
            drop(self.rt.seat_for(SEAT_WAIT));
            return Ok(Beat::More);
        }
        let Some(mut job) = job else { return Ok(Beat::Idle) };
        if job.purpose.required {
            seat = None;
        }
        let _seat = seat;
        if self.is_gone(&job) {
            self.give_up(job);
            return Ok(Beat::More);
        }
        let before = job.left;
        match self.merge_some(&mut job) {
            Ok(false) => {
                self.issue_credit(before - job.left, &job.inputs, job.bytes);
                self.merge_jobs.lock().push(job);
                Ok(Beat::More)
            }
            Ok(true) => {
                let inputs = job.inputs.clone();
                self.finish_merge(job).map_err(|e| self.write_failed(e))?;
                self.issue_credit(before, &inputs, inputs.iter().map(|r| r.bytes).sum());
                *self.merge_full.lock() = None;
                Ok(Beat::More)
            }
            Err(error)
                if matches!(error.code(), Code::DiskFull | Code::LogFull | Code::WritesStopped) =>
            {
                self.give_up(job);
                // Ingest must not wait for a merge that finds no space.
                *self.merge_full.lock() = Some(error.clone());
                self.space_event.notify();
                Err(error)
            }
            Err(error) => {
                // A damaged input: these runs stay as they are (marked as being merged), the rest
                // goes on, and ingest must not wait for this merge.
                self.forgive_debt();
                self.remove_files(job.abandon());
                Err(if error.kind() == Kind::Corrupt { error } else { self.write_failed(error) })
            }
        }
    }

    fn is_gone(&self, job: &MergeJob) -> bool {
        !self.state.read().indexes.contains_key(&job.index)
    }

    fn give_up(&self, job: MergeJob) {
        self.rt.metrics.add(Metric::MergesGivenUp, 1);
        let numbers: Vec<u64> = job.inputs.iter().map(|r| r.number).collect();
        let index = job.index;
        self.remove_files(job.abandon());
        self.state.write().end_merging(index, &numbers);
    }

    fn remove_files(&self, numbers: Vec<u64>) {
        for number in numbers {
            let path = crate::file::path(number);
            if let Err(error) = self.rt.env.remove(&path) {
                log::warn!("{path}: cannot be removed, goes at the next start: {error}");
            }
        }
    }

    /// Starts jobs wherever the policy asks for one.
    fn begin_merges(&self, spare: Spare) -> Result<()> {
        let mut chosen = Vec::new();
        let now = self.now_ns();
        {
            let mut state = self.state.write();
            let several: Vec<IndexId> = state.several.iter().copied().collect();
            let State { indexes, merging, .. } = &mut *state;
            for id in several {
                let Some(index) = indexes.get_mut(&id) else { continue };
                let mut busy = merging.remove(&id).unwrap_or_default();
                let may_rest = match spare {
                    Spare::None => false,
                    Spare::Read => index.read.load(Ordering::Relaxed),
                    Spare::All => true,
                };
                loop {
                    // What the policy wants under ingest keeps the runs inside their limit (G2).
                    let runs = index.runs.iter();
                    let runs: Vec<_> = runs.map(|r| (r.bytes, busy.contains(&r.number))).collect();
                    let Some((range, required)) = choose(&runs, may_rest) else { break };
                    let said = [range.start as u64, range.end as u64, u64::from(required)];
                    let what = || (numbers(&runs, may_rest), said.to_vec());
                    self.rt.journal.note(Law::Merge, now, what);
                    let inputs = index.runs[range.clone()].to_vec();
                    busy.extend(inputs.iter().map(|r| r.number));
                    index.read.store(false, Ordering::Relaxed);
                    let is_bottom = range.end == index.runs.len();
                    let rules = Rules {
                        building: index.building,
                        valid_from: index.valid_from,
                        bottom: is_bottom,
                        horizon: Lsn::ZERO,
                    };
                    chosen.push((id, inputs, rules, index.unique_key, required));
                }
                if !busy.is_empty() {
                    merging.insert(id, busy);
                }
            }
        }
        for (index, inputs, rules, unique_key, required) in chosen {
            let numbers: Vec<u64> = inputs.iter().map(|r| r.number).collect();
            match self.begin_merge(index, inputs, rules, unique_key, required) {
                Ok(job) => self.merge_jobs.lock().push(job),
                Err(error) if error.kind() == Kind::Corrupt => {
                    self.forgive_debt();
                    return Err(error);
                }
                Err(error) => {
                    self.state.write().end_merging(index, &numbers);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn begin_merge(
        &self,
        index: IndexId,
        inputs: Vec<Arc<Run>>,
        mut rules: Rules,
        unique_key: bool,
        required: bool,
    ) -> Result<MergeJob> {
        let purpose = Purpose::merge(required);
        rules.horizon = self.commits().horizon();
        let ahead = if inputs.len() > 16 { READ_AHEAD / 2 } else { READ_AHEAD };
        let all = Arc::<Bounds>::default();
        let source = |run: &Arc<Run>| {
            let loader = Loader::sequential(&self.rt, ahead, Metric::MergeReadBytes, purpose);
            Source::Run(RunIter::new(run.clone(), loader, all.clone()))
        };
        let mut merger = Merger::new(inputs.iter().map(source).collect(), Direction::Forward);
        merger.seek(None)?;
        let bytes = inputs.iter().map(|r| r.bytes).sum();
        let base = inputs.iter().flat_map(|r| &r.segments).map(|s| s.info.base_cts).min();
        self.rt.metrics.add(Metric::MergesBegun, 1);
        let start = SliceStart {
            index,
            run: 0,
            age_low: inputs.iter().map(|r| r.age_low).min().unwrap_or_default(),
            age_high: inputs.iter().map(|r| r.age_high).max().unwrap_or_default(),
            base_cts: base.unwrap_or_default(),
            unique_key,
        };
        Ok(MergeJob {
            index,
            bytes,
            left: bytes,
            is_bottom: rules.bottom,
            purpose,
            merger,
            chain: Chain::new(rules),
            start,
            writer: None,
            outputs: Vec::new(),
            last_key: Vec::new(),
            inputs,
        })
    }

    /// Merges for a beat; true at the end.
    fn merge_some(&self, job: &mut MergeJob) -> Result<bool> {
        let entries: u64 = job.inputs.iter().map(|r| r.entries).sum();
        let average = (job.bytes / entries.max(1)).max(1);
        let count = (BEAT_BYTES / 2 / average).clamp(1, BEAT_ENTRIES);
        let MergeJob { merger, chain, start, writer, outputs, last_key, purpose, .. } = job;
        let purpose = *purpose;
        let mut sink = |key: &[u8], pk_len: usize, op, version, value: &[u8]| {
            self.emit(
                (start, purpose),
                writer,
                outputs,
                last_key,
                (key, pk_len, op, version, value),
            )
        };
        for done in 0..count {
            if !purpose.required && done.is_multiple_of(u64::from(CHECK_EVERY)) {
                self.rt.give_way();
            }
            let Some(item) = merger.top() else {
                chain.end(self.commits(), &mut sink)?;
                if let Some(writer) = job.writer.take() {
                    job.outputs.extend(writer.finish()?);
                }
                return Ok(true);
            };
            chain.push(&item, self.commits(), &mut sink)?;
            merger.advance()?;
        }
        job.left = job.left.saturating_sub(count * average).max(1);
        Ok(false)
    }

    fn emit(
        &self,
        (start, purpose): (&mut SliceStart, Purpose),
        writer: &mut Option<RunWriter>,
        outputs: &mut Vec<Written>,
        last_key: &mut Vec<u8>,
        (key, pk_len, op, version, value): Entry<'_>,
    ) -> Result<()> {
        let is_full = writer.as_ref().is_some_and(|w| w.bytes() >= SEGMENT_BYTES);
        // All versions of a key stay in one segment.
        if is_full
            && last_key != key
            && let Some(full) = writer.take()
        {
            outputs.extend(full.finish()?);
        }
        let writer = match writer {
            Some(writer) => writer,
            None => {
                let number = self.next_file();
                if start.run == 0 {
                    start.run = number;
                }
                let metric = Metric::MergeWriteBytes;
                let mut new = RunWriter::create(&self.rt, number, purpose, metric)?;
                new.begin(*start);
                writer.insert(new)
            }
        };
        last_key.clear();
        last_key.extend_from_slice(key);
        writer.push(key, pk_len, op, version, value)
    }

    fn finish_merge(&self, job: MergeJob) -> Result<()> {
        let MergeJob { index, inputs, outputs, is_bottom, .. } = job;
        let mut segments = Vec::new();
        let mut files = Vec::new();
        let mut ops = Vec::new();
        if !outputs.is_empty() {
            self.rt.env.sync_dir("runs")?;
        }
        for output in outputs {
            let file = RunFile::open(&self.rt, output.number)?;
            ops.push(ManifestOp::AddFile(output.number));
            for info in output.slices {
                segments.push(Arc::new(Segment::new(file.clone(), info)));
            }
            files.push(file);
        }
        if !self.replace(index, &inputs, Run::new(segments).map(Arc::new), &files, ops)? {
            self.state.write().doomed.extend(files);
            self.rt.metrics.add(Metric::MergesGivenUp, 1);
            return Ok(());
        }
        self.rt.metrics.add(Metric::Merges, 1);
        if is_bottom {
            self.rt.metrics.add(Metric::MergesBottom, 1);
        }
        self.merge_event.notify();
        self.space_event.notify();
        Ok(())
    }

    /// Puts `output` in the place of `inputs`: manifest first, then the view. False (and nothing
    /// done) if the index was dropped meanwhile.
    fn replace(
        &self,
        index: IndexId,
        inputs: &[Arc<Run>],
        output: Option<Arc<Run>>,
        files: &[Arc<RunFile>],
        mut ops: Vec<ManifestOp>,
    ) -> Result<bool> {
        let _edit = self.manifest.lock(&self.rt, Cause::Idle);
        if !self.state.read().indexes.contains_key(&index) {
            return Ok(false);
        }
        ops.extend(inputs.iter().map(|run| ManifestOp::RemoveRun(index, run.number)));
        ops.extend(self.state.read().files_left_empty(inputs).map(ManifestOp::RemoveFile));
        self.rt.step();
        self.append_manifest(&ops)?;
        {
            let mut state = self.state.write();
            for file in files {
                let live = LiveFile { file: file.clone(), live: 1, dead: Vec::new() };
                state.files.insert(file.number, live);
            }
            state.replace_runs(index, inputs, output);
            self.changed(&state);
        }
        self.manifest_done();
        Ok(true)
    }
}

type Entry<'a> = (&'a [u8], usize, u8, evenkeel_format::run::RunVersion, &'a [u8]);

fn sizes(runs: &[Arc<Run>]) -> Vec<u64> {
    runs.iter().map(|r| r.bytes).collect()
}
