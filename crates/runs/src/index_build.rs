//! Index builds (F2, F4): entries arrive in any order and are sorted piece by piece in memory. The
//! pieces are joined and written as the oldest runs of their index, without timestamps. Several
//! threads may collect and sort concurrently, and then write the parts of a run concurrently. The
//! driver of the build bounds the memory by the reported sizes of pieces. Keys that allow it are
//! packed into numbers (`packed`); others are kept as they are (`plain`).

use crate::Runs;
use crate::compaction::{READ_AHEAD, SEGMENT_BYTES};
use crate::read::run_iter::{BlockLoader, RunIter};
use crate::read::source::{Direction, Merger, Source};
use crate::run::file::{Run, RunFile, RunSegment, path};
use crate::run::writer::{Purpose, RunWriter, SliceStart, Written};
use crate::state::{Index, LiveFile};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Code, Error, Generation, IndexId, Lsn, Result, metrics::Metric};
use evenkeel_format::record::entry_op;
use evenkeel_format::run::{ManifestOp, RunVersion};
use evenkeel_sched::laws::depths::RUNS_TRIGGER;
use std::sync::Arc;

mod packed;
mod pieces;
mod plain;

use pieces::Ordered;
pub use pieces::{Sorted, Unsorted};

/// Runs that a build may leave; more are compacted once (F4).
const RUNS_MAX: usize = 8;
/// Read-ahead of all runs together that are compacted before they are installed: the less memory
/// there is, the more runs there are.
const AHEAD_ALL: usize = 2 << 20;
/// Read-ahead of each run, at least: less would cost more reads than it saves memory.
const AHEAD_MIN: usize = 16 << 10;
/// Entries between two checks for cancellation: far less than 1 ms of work (F4).
pub const CHECK_EVERY: u32 = 1024;

/// The output of a build: pass all parts of an index to [`Runs::install`]. If it is dropped before,
/// its files are removed.
pub struct BuiltPart {
    runs: Arc<Runs>,
    sorted: Vec<Vec<Written>>,
}

impl BuiltPart {
    /// True if it has no entry.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

impl Drop for BuiltPart {
    fn drop(&mut self) {
        for written in self.sorted.iter().flatten() {
            let path = path(written.number);
            if let Err(error) = self.runs.rt.remove_file(&path) {
                log::warn!("{path}: cannot be removed, goes at the next start: {error}");
            }
        }
    }
}

/// The entries of runs that belong to no index, in the order of their keys (`Runs::read_built`).
/// The runs are removed when this is dropped.
pub struct BuiltEntries {
    merger: Merger,
    is_begun: bool,
    _parts: Vec<BuiltPart>,
}

impl BuiltEntries {
    /// The next entry: its key, without the pk, and its value.
    ///
    /// # Errors
    /// Of reading.
    #[expect(clippy::should_implement_trait, reason = "what it gives is borrowed from it")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match self.is_begun {
            true => self.merger.advance()?,
            false => self.is_begun = true,
        }
        let entry = self.merger.top();
        Ok(entry.map(|item| (&item.key[..item.key.len() - item.pk_len], item.value)))
    }
}

/// One run to be written from sorted pieces, cut by key into parts that several threads write
/// concurrently.
pub struct RunPlan {
    runs: Arc<Runs>,
    start: SliceStart,
    entries: Ordered,
    /// There is nothing to write.
    is_empty: bool,
    done: Mutex<Vec<(usize, BuiltPart)>>,
}

impl RunPlan {
    /// Number of parts; none if there is nothing to write.
    pub fn parts(&self) -> usize {
        if self.is_empty { 0 } else { self.entries.parts() }
    }

    /// Writes a part. `check` may end it with an error; then nothing of the part remains.
    ///
    /// # Errors
    /// Of writing, or those of `check`.
    pub fn write(&self, part: usize, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut out: Option<Output<'_>> = None;
        let mut count = 0;
        let written = self.entries.read(part, |key, pk_len, value| {
            let out = match &mut out {
                Some(out) => out,
                None => out.insert(Output::new(&self.runs, self.start)?),
            };
            count += 1;
            if count % CHECK_EVERY == 0 {
                check()?;
            }
            out.push(key, pk_len, value)
        });
        let Some(out) = out else { return written };
        if let Err(error) = written {
            out.abandon();
            return Err(error);
        }
        let written = BuiltPart { runs: self.runs.clone(), sorted: vec![out.finish()?] };
        self.done.lock().push((part, written));
        Ok(())
    }

    /// Returns the run after all parts are written.
    pub fn finish(&self) -> BuiltPart {
        let mut done = std::mem::take(&mut *self.done.lock());
        done.sort_by_key(|(part, _)| *part);
        let mut run = Vec::new();
        for (_, mut part) in done {
            run.extend(std::mem::take(&mut part.sorted).into_iter().flatten());
        }
        let sorted = if run.is_empty() { Vec::new() } else { vec![run] };
        BuiltPart { runs: self.runs.clone(), sorted }
    }
}

/// A run being written, as files of `SEGMENT_BYTES`.
struct Output<'a> {
    runs: &'a Arc<Runs>,
    start: SliceStart,
    writer: RunWriter,
    done: Vec<Written>,
}

impl<'a> Output<'a> {
    fn new(runs: &'a Arc<Runs>, start: SliceStart) -> Result<Output<'a>> {
        let number = runs.next_file();
        let writer =
            RunWriter::create(&runs.blocks, number, Purpose::BUILD, Metric::BuildWriteBytes)?;
        let mut output = Output { runs, start, writer, done: Vec::new() };
        output.writer.begin(start);
        Ok(output)
    }

    fn push(&mut self, key: &[u8], pk_len: usize, value: &[u8]) -> Result<()> {
        if self.writer.bytes() >= SEGMENT_BYTES {
            let number = self.runs.next_file();
            let metric = Metric::BuildWriteBytes;
            let new = RunWriter::create(&self.runs.blocks, number, Purpose::BUILD, metric)?;
            self.done.extend(std::mem::replace(&mut self.writer, new).finish()?);
            self.writer.begin(self.start);
        }
        let version = RunVersion::Committed(Lsn::ZERO);
        self.writer.push(key, pk_len, entry_op::INS, version, value)
    }

    fn finish(mut self) -> Result<Vec<Written>> {
        match self.writer.finish() {
            Ok(written) => self.done.extend(written),
            Err(error) => {
                drop(BuiltPart { runs: self.runs.clone(), sorted: vec![self.done] });
                return Err(error);
            }
        }
        Ok(self.done)
    }

    fn abandon(self) {
        drop(BuiltPart { runs: self.runs.clone(), sorted: vec![self.done] });
        self.writer.abandon();
    }
}

impl Runs {
    /// Plans one run of an index that is BUILDING, cut into about `parts` parts of equal size.
    ///
    /// # Errors
    /// Only `Internal`.
    pub fn plan_run(
        self: &Arc<Self>,
        index: IndexId,
        pieces: Vec<Sorted>,
        parts: usize,
    ) -> Result<RunPlan> {
        let is_empty = pieces.iter().all(Sorted::is_empty);
        let entries = Ordered::new(pieces, parts)?;
        let start = self.build_start(index);
        Ok(RunPlan { runs: self.clone(), start, entries, is_empty, done: Mutex::default() })
    }

    fn build_start(&self, index: IndexId) -> SliceStart {
        SliceStart {
            index,
            run: self.next_file(),
            age_low: Generation::ZERO,
            age_high: Generation::ZERO,
            base_cts: Lsn::ZERO,
            unique_key: self.state.read().indexes.get(&index).is_some_and(|i| i.unique_key),
        }
    }

    /// Makes built runs the oldest of their index, atomically and durably; the index stays BUILDING
    /// until [`Runs::set_valid`]. More than 8 runs are compacted into one first, and fewer if
    /// ingest would need credit with them. `check` is called at least once per `CHECK_EVERY`
    /// entries of that, and may end it with an error. Without a run, as for an empty table, nothing
    /// is written or synced.
    ///
    /// # Errors
    /// Of writing; `IndexGone`; those of `check`. Nothing of the runs remains, unless writes have
    /// stopped.
    pub fn install(
        self: &Arc<Self>,
        index: IndexId,
        mut parts: Vec<BuiltPart>,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<()> {
        if self.are_too_many(index, parts.iter().map(|p| p.sorted.len()).sum()) {
            parts = vec![self.compact_built(index, &parts, check)?];
            self.rt.metrics.add(Metric::BuildCompactions, 1);
        }
        if parts.iter().all(BuiltPart::is_empty) {
            return Ok(());
        }
        self.sync_names()?;
        let (mut files, mut built, mut ops) = (Vec::new(), Vec::new(), Vec::new());
        for written in parts.iter().flat_map(|p| &p.sorted) {
            let (run, opened) = self.open_built(written)?;
            ops.extend(opened.iter().map(|f| ManifestOp::AddFile(f.number)));
            files.extend(opened);
            built.extend(run.map(Arc::new));
        }
        let _edit = self.manifest.lock(&self.rt, Cause::Schema);
        if !self.state.read().indexes.contains_key(&index) {
            return Err(Error::new(Code::IndexGone).with("index", index));
        }
        self.rt.step();
        if let Err(error) = self.append_manifest(&ops) {
            // The record may be in the log and durable although its sync failed: its files stay. If
            // it is not durable, the next open removes them.
            if self.rt.health.is_failed() {
                parts.iter_mut().for_each(|part| part.sorted.clear());
            }
            return Err(error);
        }
        {
            let mut state = self.state.write();
            for file in files {
                state.files.insert(file.number, LiveFile::new(file, 1));
            }
            state.add_runs(index, built);
            self.changed(&state);
        }
        self.manifest_done();
        parts.iter_mut().for_each(|part| part.sorted.clear());
        self.compaction_event.notify();
        Ok(())
    }

    /// True if `built` runs have to be compacted before they are installed. Together with runs that
    /// ingest has added meanwhile they could exceed the limit of the index (D3), and all ingest
    /// would wait until compactions have reduced them (G1). Ingest needs that compaction soon in
    /// any case, and here no insert waits for it. Sealed generations count: they become runs before
    /// there is room for another.
    pub fn are_too_many(&self, index: IndexId, built: usize) -> bool {
        let state = self.state.read();
        let depth = state.indexes.get(&index).map_or(0, Index::depth);
        let more = depth + state.memtables.len() - 1;
        built > RUNS_MAX || (built > 1 && built + more >= RUNS_TRIGGER)
    }

    fn open_built(&self, written: &[Written]) -> Result<(Option<Run>, Vec<Arc<RunFile>>)> {
        let (mut segments, mut files) = (Vec::new(), Vec::new());
        for output in written {
            let file = RunFile::open(&self.rt, &self.filter_cache, output.number)?;
            for info in &output.slices {
                segments.push(Arc::new(RunSegment::new(file.clone(), info.clone())));
            }
            files.push(file);
        }
        Ok((Run::new(segments), files))
    }

    fn compact_built(
        self: &Arc<Self>,
        index: IndexId,
        parts: &[BuiltPart],
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<BuiltPart> {
        let mut merger = self.built_merger(parts)?;
        let mut out = Output::new(self, self.build_start(index))?;
        let mut count = 0u32;
        while let Some(item) = merger.top() {
            let pushed = out.push(item.key, item.pk_len, item.value);
            count = count.wrapping_add(1);
            let go_on = match count.is_multiple_of(CHECK_EVERY) {
                true => check(u64::from(CHECK_EVERY)),
                false => Ok(()),
            };
            if let Err(error) = pushed.and(go_on).and_then(|()| merger.advance()) {
                out.abandon();
                return Err(error);
            }
        }
        if let Err(error) = check(u64::from(count % CHECK_EVERY)) {
            out.abandon();
            return Err(error);
        }
        Ok(BuiltPart { runs: self.clone(), sorted: vec![out.finish()?] })
    }

    /// Reads runs that were written and are not installed, as one sequence.
    ///
    /// # Errors
    /// Of reading.
    pub fn read_built(self: &Arc<Self>, parts: Vec<BuiltPart>) -> Result<BuiltEntries> {
        let merger = self.built_merger(&parts)?;
        Ok(BuiltEntries { merger, is_begun: false, _parts: parts })
    }

    fn built_merger(self: &Arc<Self>, parts: &[BuiltPart]) -> Result<Merger> {
        let mut sources = Vec::new();
        let runs = parts.iter().map(|p| p.sorted.len()).sum();
        for (i, written) in parts.iter().flat_map(|p| &p.sorted).enumerate() {
            if let Some(run) = self.open_built(written)?.0 {
                let (ahead, metric) = (ahead_of_each(runs), Metric::BuildReadBytes);
                let loader = BlockLoader::consuming(&self.blocks, ahead, metric, Purpose::BUILD);
                let loader = loader.one_of(i, runs);
                sources.push(Source::Run(RunIter::new(Arc::new(run), loader, Arc::default())));
            }
        }
        let mut merger = Merger::new(sources, Direction::Forward);
        merger.seek(None)?;
        Ok(merger)
    }
}

/// The read-ahead of each of `runs` runs while they are compacted.
fn ahead_of_each(runs: usize) -> usize {
    (AHEAD_ALL / runs.max(1)).clamp(AHEAD_MIN, READ_AHEAD)
}

/// A duplicate found by [`Runs::find_duplicate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateKey {
    /// Column bytes.
    pub key: Vec<u8>,
    /// One clustered key.
    pub first_pk: Vec<u8>,
    /// Another.
    pub second_pk: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_runs_are_read_ahead_by_no_more_than_a_few() {
        assert_eq!(ahead_of_each(2), READ_AHEAD);
        assert_eq!(ahead_of_each(AHEAD_ALL / READ_AHEAD), READ_AHEAD);
        for runs in [9, 40, 128] {
            assert!(runs * ahead_of_each(runs) <= AHEAD_ALL, "{runs} runs");
        }
        assert_eq!(ahead_of_each(1_000), AHEAD_MIN);
    }
}
