//! A compaction under way, in the order of the keys. A piece ends where the file being written is
//! full; a segment of an input that overlaps no other segment is moved unchanged.

use super::trivial_move::{Keys, apart};
use crate::Runs;
use crate::compaction::version_filter::{Rules, VersionFilter};
use crate::index_build::CHECK_EVERY;
use crate::read::run_iter::{BlockLoader, Bounds, RunIter};
use crate::read::source::{Direction, Merger, Source};
use crate::run::file::{Run, RunSegment};
use crate::run::writer::{Purpose, RunWriter, SliceStart, Written};
use evenkeel_base::{Error, IndexId, Result, metrics::Metric};
use evenkeel_sched::laws::compaction::CompactionTurn;
use evenkeel_sched::laws::ingest::pays_bytes;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

const BEAT_BYTES: u64 = 1 << 20;
const BEAT_ENTRIES: u64 = 16 << 10;
pub(crate) const READ_AHEAD: usize = 256 << 10;
/// Segments of a piece, at most: its record stays far below the longest possible one.
const PARTS_MAX: usize = 1024;
/// A smaller segment (this part of a full one) is rewritten; otherwise small segments would only
/// accumulate.
const TRIVIAL_MOVE_PART: u64 = 32;

/// The description of a compaction to begin.
pub(super) struct Order {
    pub index: IndexId,
    pub inputs: Vec<Arc<Run>>,
    pub rules: Rules,
    pub unique_key: bool,
    /// Ingest needs it (G2).
    pub required: bool,
    /// See [`CompactionTurn`].
    pub gain: u64,
    /// It has to free space (G4).
    pub frees: bool,
    /// Its index is small (D2).
    pub small: bool,
}

/// A segment of the output.
pub(super) enum JobPart {
    Written(Written),
    /// A segment of an input, unchanged.
    MovedSegments(Arc<RunSegment>),
}

impl JobPart {
    fn file(&self) -> Option<u64> {
        match self {
            JobPart::Written(written) => Some(written.number),
            JobPart::MovedSegments(_) => None,
        }
    }
}

/// The progress of a beat.
pub(super) enum JobStep {
    More,
    /// All keys below this one are in the parts.
    Piece(Vec<u8>),
    End,
}

/// A compaction under way.
pub(crate) struct CompactionJob {
    pub(super) index: IndexId,
    /// The rest of the inputs: they lose their low end with each piece.
    pub(super) inputs: Vec<Arc<Run>>,
    /// The number of inputs.
    pub(super) count: usize,
    /// The runs that are marked as being compacted: inputs and output.
    pub(super) numbers: Vec<u64>,
    /// Bytes to read.
    pub(super) bytes: u64,
    pub(crate) left: u64,
    /// Bytes of ingest for which the rest still pays (G1).
    pub(crate) unpaid: u64,
    /// See [`CompactionTurn`].
    gain: u64,
    /// It was begun to free space.
    pub(super) frees: bool,
    /// Bytes written in installed pieces, and bytes that the inputs lost to these.
    pub(super) written: u64,
    pub(super) freed: u64,
    pub(super) purpose: Purpose,
    pub(crate) start: SliceStart,
    /// The parts of the present piece.
    pub(super) parts: Vec<JobPart>,
    entries: u64,
    chain: VersionFilter,
    /// Created at its first beat: its read-ahead takes memory, and only few of the begun
    /// compactions are worked on.
    merger: Option<Merger>,
    writer: Option<RunWriter>,
    /// Segments to move unchanged, in order; no source has them.
    trivial_moves: VecDeque<Arc<RunSegment>>,
    piece_bytes: u64,
}

impl CompactionJob {
    /// Ends it; returns the numbers of files that no record names.
    pub(super) fn abandon(self) -> Vec<u64> {
        let numbers = self.files();
        if let Some(writer) = self.writer {
            writer.abandon();
        }
        numbers
    }

    /// It has written more than it freed, by more than the files of two pieces: the garbage for
    /// which it was begun does not exist, or is still needed.
    pub(super) fn is_barren(&self) -> bool {
        self.frees && self.written > self.freed + 2 * self.piece_bytes
    }

    /// Files of the present piece.
    pub(super) fn files(&self) -> Vec<u64> {
        self.parts.iter().filter_map(JobPart::file).collect()
    }

    pub(super) fn turn(&self) -> CompactionTurn {
        let (required, left, gain) = (self.purpose.required, self.left, self.gain);
        CompactionTurn { required, owing_runs: 0, left, gain }
    }

    pub(super) fn is_bottom(&self) -> bool {
        self.chain.rules.bottom
    }

    /// True if some of it was read.
    pub(super) fn is_read(&self) -> bool {
        self.merger.is_some()
    }

    fn end_file(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.parts.extend(writer.finish()?.map(JobPart::Written));
        }
        Ok(())
    }
}

impl Runs {
    pub(super) fn begin_compaction(&self, order: Order) -> CompactionJob {
        let Order { index, inputs, rules, unique_key, required, gain, frees, .. } = order;
        let purpose = Purpose::compaction(required);
        let trivial_moves = self.segments_apart(&inputs, rules);
        let all = |f: fn(&RunSegment) -> u64| -> u64 {
            inputs.iter().flat_map(|r| &r.segments).map(|s| f(s)).sum()
        };
        let of_trivial_moves =
            |f: fn(&RunSegment) -> u64| trivial_moves.iter().map(|s| f(s)).sum::<u64>();
        let bytes = all(|s| s.info.bytes()) - of_trivial_moves(|s| s.info.bytes());
        let entries = all(|s| s.info.entries) - of_trivial_moves(|s| s.info.entries);
        let base = inputs.iter().flat_map(|r| &r.segments).map(|s| s.info.base_cts).min();
        self.rt.metrics.add(Metric::CompactionsStarted, 1);
        let start = SliceStart {
            index,
            run: self.next_file(),
            age_low: inputs.iter().map(|r| r.age_low).min().unwrap_or_default(),
            age_high: inputs.iter().map(|r| r.age_high).max().unwrap_or_default(),
            base_cts: base.unwrap_or_default(),
            unique_key,
        };
        let numbers = inputs.iter().map(|r| r.number).chain([start.run]).collect();
        CompactionJob {
            index,
            count: inputs.len(),
            numbers,
            bytes,
            left: bytes,
            unpaid: pays_bytes(inputs.len(), self.generation_bytes()),
            gain,
            frees,
            written: 0,
            freed: 0,
            inputs,
            purpose,
            start,
            parts: Vec::new(),
            entries,
            chain: VersionFilter::new(rules),
            merger: None,
            writer: None,
            trivial_moves,
            piece_bytes: self.piece_bytes(),
        }
    }

    /// Segments to move unchanged: no small ones, and none that a compaction would shrink or
    /// resolve.
    pub(super) fn segments_apart(
        &self,
        inputs: &[Arc<Run>],
        rules: Rules,
    ) -> VecDeque<Arc<RunSegment>> {
        let least = self.segment_bytes() / TRIVIAL_MOVE_PART;
        let keys: Vec<Vec<Keys<'_>>> = inputs.iter().map(|run| keys_of(run)).collect();
        let found = apart(&keys).into_iter().map(|(i, s)| (&inputs[i], &inputs[i].segments[s]));
        let fits = |run: &Run, s: &RunSegment| {
            s.info.bytes() >= least
                && s.info.pending.is_empty()
                && s.info.min_key >= run.low
                && (s.info.deletes == 0 || !rules.bottom || rules.building)
                // A single run is compacted for its garbage only.
                && (s.info.superseded == 0 || inputs.len() > 1)
        };
        found.filter(|(run, s)| fits(run, s)).map(|(_, s)| s.clone()).collect()
    }

    /// A merger of the inputs without the moved segments, from `low` on.
    pub(super) fn merger_of(
        &self,
        inputs: &[Arc<Run>],
        trivial_moves: &VecDeque<Arc<RunSegment>>,
        purpose: Purpose,
        low: Option<&[u8]>,
    ) -> Result<Merger> {
        let ahead = if inputs.len() > 16 { READ_AHEAD / 2 } else { READ_AHEAD };
        let all = Arc::<Bounds>::default();
        let taken: BTreeSet<u64> = trivial_moves.iter().map(|s| s.file.number).collect();
        let mut sources = Vec::new();
        for run in inputs {
            let read = run.segments.iter().filter(|s| !taken.contains(&s.file.number));
            let Some(rest) = Run::new(read.cloned().collect()) else { continue };
            let rest = Run { low: run.low.clone(), ..rest };
            let metric = Metric::CompactionReadBytes;
            let loader = BlockLoader::consuming(&self.blocks, ahead, metric, purpose);
            sources.push(Source::Run(RunIter::new(Arc::new(rest), loader, all.clone())));
        }
        let mut merger = Merger::new(sources, Direction::Forward);
        merger.seek(low)?;
        Ok(merger)
    }

    /// The inputs have changed: continues at `low` with the rest of them.
    pub(super) fn go_on_at(&self, job: &mut CompactionJob, low: &[u8]) -> Result<()> {
        job.merger = Some(self.merger_from(job, Some(low))?);
        Ok(())
    }

    fn merger_from(&self, job: &mut CompactionJob, low: Option<&[u8]>) -> Result<Merger> {
        let merger = self.merger_of(&job.inputs, &job.trivial_moves, job.purpose, low)?;
        job.chain.rules.horizon = self.commits().horizon();
        Ok(merger)
    }

    /// Compacts for a beat.
    pub(super) fn compact_some(&self, job: &mut CompactionJob) -> Result<JobStep> {
        let mut merger = match job.merger.take() {
            Some(merger) => merger,
            None => self.merger_from(job, None)?,
        };
        let step = self.merge_with(&mut merger, job);
        job.merger = Some(merger);
        step
    }

    fn merge_with(&self, merger: &mut Merger, job: &mut CompactionJob) -> Result<JobStep> {
        let average = (job.bytes / job.entries.max(1)).max(1);
        let count = (BEAT_BYTES / 2 / average).clamp(1, BEAT_ENTRIES);
        for done in 0..count {
            if !job.purpose.required && done.is_multiple_of(u64::from(CHECK_EVERY)) {
                self.sched.give_way();
            }
            if merger.top().is_none_or(|item| !job.chain.is_of(item.key))
                && let Some(step) = self.between_keys(merger, job)?
            {
                return Ok(step);
            }
            let CompactionJob { chain, start, writer, purpose, .. } = job;
            let Some(item) = merger.top() else { continue };
            chain.push(&item, self.commits(), &mut |key, pk_len, op, version, value| {
                self.writer_of(writer, start, *purpose)?.push(key, pk_len, op, version, value)
            })?;
            merger.advance()?;
        }
        job.left = job.left.saturating_sub(count * average).max(1);
        Ok(JobStep::More)
    }

    /// All entries of a key were read: moves segments that lie before the next key, and returns
    /// whether a piece ends here.
    fn between_keys(&self, merger: &Merger, job: &mut CompactionJob) -> Result<Option<JobStep>> {
        let CompactionJob { chain, start, writer, purpose, trivial_moves, .. } = job;
        chain.end(self.commits(), &mut |key, pk_len, op, version, value| {
            self.writer_of(writer, start, *purpose)?.push(key, pk_len, op, version, value)
        })?;
        let next = merger.top().map(|item| item.key);
        let before = |s: &&Arc<RunSegment>| next.is_none_or(|next| &s.info.max_key[..] < next);
        let passed = trivial_moves.iter().take_while(before).count();
        if passed > 0 {
            // Segments of a run must not overlap: the file must not reach over a moved segment.
            job.end_file()?;
            job.parts.extend(job.trivial_moves.drain(..passed).map(JobPart::MovedSegments));
        }
        let is_full = job.writer.as_ref().is_some_and(|w| w.bytes() >= job.piece_bytes);
        let Some(next) = merger.top() else {
            job.end_file()?;
            return Ok(Some(JobStep::End));
        };
        if !is_full && job.parts.len() < PARTS_MAX {
            return Ok(None);
        }
        let next = next.key.to_vec();
        job.end_file()?;
        Ok(Some(JobStep::Piece(next)))
    }

    fn writer_of<'w>(
        &self,
        writer: &'w mut Option<RunWriter>,
        start: &SliceStart,
        purpose: Purpose,
    ) -> Result<&'w mut RunWriter> {
        if writer.is_none() {
            let metric = Metric::CompactionWriteBytes;
            let mut new = RunWriter::create(&self.blocks, self.next_file(), purpose, metric)?;
            new.begin(*start);
            *writer = Some(new);
        }
        writer.as_mut().ok_or_else(|| Error::internal("no writer of a merge"))
    }
}

/// First and last key of each segment of a run.
fn keys_of(run: &Run) -> Vec<Keys<'_>> {
    let segments = run.segments.iter().map(|s| &s.info);
    segments.map(|s| ((&s.min_key[..]).max(&run.low[..]), &s.max_key[..])).collect()
}
