//! Index builds: entries in any order, sorted in an arena, written as the oldest runs of their
//! index, without timestamps (F2, F4).

use crate::Runs;
use crate::file::{Run, RunFile, Segment, path};
use crate::merge::{READ_AHEAD, SEGMENT_BYTES};
use crate::run_iter::{Loader, RunIter};
use crate::source::{Direction, Merger, Source};
use crate::state::LiveFile;
use crate::writer::{RunWriter, SliceStart, Written};
use evenkeel_base::{Cause, Code, Error, Generation, IndexId, Lsn, Result, metrics::Metric};
use evenkeel_format::head::head_of;
use evenkeel_format::record::entry_op;
use evenkeel_format::run::{ENTRY_BYTES_MAX, ManifestOp, RunVersion};
use evenkeel_io::Class;
use std::sync::Arc;

/// Runs a build may leave; with more, they are merged once (F4).
const RUNS_MAX: usize = 8;
const HEAD: usize = 10;

/// Sorts the entries of one index that one thread produces. Several may work side by side, each
/// with its share of the arena.
pub struct RunBuilder {
    runs: Arc<Runs>,
    index: IndexId,
    /// Entries: key length u32, pk length u16, value length u32, then the bytes.
    arena: Vec<u8>,
    order: Vec<Place>,
    arena_bytes: usize,
    finished: BuiltPart,
}

/// An entry to sort: its head (see `head_of`), in halves, and its position. Packed to 20 bytes; few
/// heads are equal, so few comparisons go to the arena.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Place {
    high: u64,
    low: u64,
    at: u32,
}

/// What a builder wrote: give all parts of an index to [`Runs::install`]. Dropped without that, its
/// files are removed.
pub struct BuiltPart {
    runs: Arc<Runs>,
    sorted: Vec<Vec<Written>>,
}

impl Drop for BuiltPart {
    fn drop(&mut self) {
        for written in self.sorted.iter().flatten() {
            let path = path(written.number);
            if let Err(error) = self.runs.rt.env.remove(&path) {
                log::warn!("{path}: cannot be removed, goes at the next start: {error}");
            }
        }
    }
}

impl RunBuilder {
    pub(crate) fn new(runs: Arc<Runs>, index: IndexId, arena_bytes: usize) -> RunBuilder {
        let finished = BuiltPart { runs: runs.clone(), sorted: Vec::new() };
        let arena_bytes = arena_bytes.clamp(64 << 10, 1 << 31);
        let (arena, order) = (Vec::new(), Vec::new());
        RunBuilder { runs, index, arena, order, arena_bytes, finished }
    }

    /// The index.
    pub fn index(&self) -> IndexId {
        self.index
    }

    /// Takes an entry; each (key, pk) once.
    ///
    /// # Errors
    /// `EntryTooLong`; of writing a full arena.
    pub fn push(&mut self, key: &[u8], pk: &[u8], value: &[u8]) -> Result<()> {
        let bytes = key.len() + pk.len() + value.len();
        if bytes > ENTRY_BYTES_MAX || pk.len() > usize::from(u16::MAX) {
            return Err(Error::new(Code::EntryTooLong).with("index", self.index));
        }
        let order_bytes = size_of::<Place>() * (self.order.len() + 1);
        if self.arena.len() + HEAD + bytes + order_bytes > self.arena_bytes {
            self.spill()?;
        }
        let at = self.arena.len() as u32;
        self.arena.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.arena.extend_from_slice(&(pk.len() as u16).to_le_bytes());
        self.arena.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(pk);
        self.arena.extend_from_slice(value);
        let head = head_of(entry(&self.arena, at).0);
        self.order.push(Place { high: (head >> 64) as u64, low: head as u64, at });
        Ok(())
    }

    /// Sorts the arena and writes it as a run.
    fn spill(&mut self) -> Result<()> {
        if self.order.is_empty() {
            return Ok(());
        }
        let arena = &self.arena;
        let head = |place: &Place| (place.high, place.low);
        self.order.sort_unstable_by(|a, b| {
            head(a).cmp(&head(b)).then_with(|| entry(arena, a.at).0.cmp(entry(arena, b.at).0))
        });
        let mut out = Output::new(&self.runs, self.index)?;
        for place in &self.order {
            let (key, pk_len, value) = entry(arena, place.at);
            if let Err(error) = out.push(key, pk_len, value) {
                out.abandon();
                return Err(error);
            }
        }
        self.finished.sorted.push(out.finish()?);
        self.arena.clear();
        self.order.clear();
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// Of writing.
    pub fn finish(mut self) -> Result<BuiltPart> {
        self.spill()?;
        Ok(self.finished)
    }
}

/// Key and pk together, pk length, value.
fn entry(arena: &[u8], at: u32) -> (&[u8], usize, &[u8]) {
    let at = at as usize;
    let u32_at = |i: usize| {
        u32::from_le_bytes([arena[i], arena[i + 1], arena[i + 2], arena[i + 3]]) as usize
    };
    let pk_len = usize::from(u16::from_le_bytes([arena[at + 4], arena[at + 5]]));
    let (key_len, value_len) = (u32_at(at) + pk_len, u32_at(at + 6));
    let (key, rest) = arena[at + HEAD..].split_at(key_len);
    (key, pk_len, &rest[..value_len])
}

/// A run being written: files of `SEGMENT_BYTES`.
struct Output<'a> {
    runs: &'a Arc<Runs>,
    start: SliceStart,
    writer: RunWriter,
    done: Vec<Written>,
}

impl<'a> Output<'a> {
    fn new(runs: &'a Arc<Runs>, index: IndexId) -> Result<Output<'a>> {
        let number = runs.next_file();
        let writer = RunWriter::create(&runs.rt, number, Class::Ddl, Metric::BuildWriteBytes)?;
        let start = SliceStart {
            index,
            run: number,
            age_low: Generation::ZERO,
            age_high: Generation::ZERO,
            base_cts: Lsn::ZERO,
            unique_key: runs.state.read().indexes.get(&index).is_some_and(|i| i.unique_key),
        };
        let mut output = Output { runs, start, writer, done: Vec::new() };
        output.writer.begin(start);
        Ok(output)
    }

    fn push(&mut self, key: &[u8], pk_len: usize, value: &[u8]) -> Result<()> {
        if self.writer.bytes() >= SEGMENT_BYTES {
            let number = self.runs.next_file();
            let metric = Metric::BuildWriteBytes;
            let new = RunWriter::create(&self.runs.rt, number, Class::Ddl, metric)?;
            self.done.extend(std::mem::replace(&mut self.writer, new).finish()?);
            self.writer.begin(self.start);
        }
        let version = RunVersion::Committed(Lsn::ZERO);
        self.writer.push(key, pk_len, entry_op::INS, version, value)
    }

    fn finish(mut self) -> Result<Vec<Written>> {
        self.done.extend(self.writer.finish()?);
        Ok(self.done)
    }

    fn abandon(self) {
        drop(BuiltPart { runs: self.runs.clone(), sorted: vec![self.done] });
        self.writer.abandon();
    }
}

impl Runs {
    /// Makes built runs the oldest of their index, at once and durably; the index stays BUILDING
    /// until [`Runs::set_valid`]. More than 8 runs are merged into one first. Returns the LSN of
    /// the manifest record.
    ///
    /// # Errors
    /// Of writing; `IndexGone`. Nothing stays behind.
    pub fn install(self: &Arc<Self>, index: IndexId, mut parts: Vec<BuiltPart>) -> Result<Lsn> {
        if parts.iter().map(|p| p.sorted.len()).sum::<usize>() > RUNS_MAX {
            parts = vec![self.merge_built(index, &parts)?];
        }
        self.rt.env.sync_dir("runs")?;
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
        let lsn = self.append_manifest(&ops)?;
        {
            let mut state = self.state.write();
            for file in files {
                let live = LiveFile { file: file.clone(), live: 1, dead: Vec::new() };
                state.files.insert(file.number, live);
            }
            if let Some(index) = state.indexes.get_mut(&index) {
                index.add_runs(built);
            }
            self.changed(&state);
        }
        self.manifest_done();
        parts.iter_mut().for_each(|part| part.sorted.clear());
        self.merge_event.notify();
        Ok(lsn)
    }

    fn open_built(&self, written: &[Written]) -> Result<(Option<Run>, Vec<Arc<RunFile>>)> {
        let (mut segments, mut files) = (Vec::new(), Vec::new());
        for output in written {
            let file = RunFile::open(&self.rt, output.number)?;
            for info in &output.slices {
                segments.push(Arc::new(Segment::new(file.clone(), info.clone())));
            }
            files.push(file);
        }
        Ok((Run::new(segments), files))
    }

    fn merge_built(self: &Arc<Self>, index: IndexId, parts: &[BuiltPart]) -> Result<BuiltPart> {
        let mut sources = Vec::new();
        for written in parts.iter().flat_map(|p| &p.sorted) {
            if let Some(run) = self.open_built(written)?.0 {
                let loader = Loader::sequential(&self.rt, READ_AHEAD, Metric::BuildReadBytes);
                let iter = RunIter::new(Arc::new(run), loader, &[], None);
                sources.push(Source::Run(Box::new(iter)));
            }
        }
        let mut merger = Merger::new(sources, Direction::Forward);
        merger.seek(None)?;
        let mut out = Output::new(self, index)?;
        while let Some(item) = merger.top() {
            let pushed = out.push(item.key, item.pk_len, item.value);
            if let Err(error) = pushed.and_then(|()| merger.advance()) {
                out.abandon();
                return Err(error);
            }
        }
        Ok(BuiltPart { runs: self.clone(), sorted: vec![out.finish()?] })
    }
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
