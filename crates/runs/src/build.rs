//! Index builds: entries in any order, sorted piece by piece in memory, the pieces merged and
//! written as the oldest runs of their index, without timestamps (F2, F4). Several threads may
//! collect and sort side by side, and then write the parts of a run side by side. Whoever drives
//! the build bounds the memory: pieces tell their size.

use crate::Runs;
use crate::file::{Run, RunFile, Segment, path};
use crate::merge::{READ_AHEAD, SEGMENT_BYTES};
use crate::run_iter::{Loader, RunIter};
use crate::source::{Direction, Merger, Source};
use crate::state::LiveFile;
use crate::writer::{RunWriter, SliceStart, Written};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Code, Error, Generation, IndexId, Lsn, Result, metrics::Metric};
use evenkeel_format::head::head_of;
use evenkeel_format::record::entry_op;
use evenkeel_format::run::{ENTRY_BYTES_MAX, ManifestOp, RunVersion};
use evenkeel_format::{Reader, put_varint};
use evenkeel_io::Class;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

/// Runs a build may leave; with more, they are merged once (F4).
const RUNS_MAX: usize = 8;
/// A sorted piece notes the position of every so many entries, for cutting it by key.
const MARK_EVERY: usize = 64;
/// Entries written between two questions whether to go on.
const CHECK_EVERY: u32 = 4096;

/// Entries of one index in any order, in memory: what one thread collects before it sorts.
pub struct Unsorted {
    index: IndexId,
    /// Entries: varint lengths of key with pk, pk and value, then the bytes.
    arena: Vec<u8>,
    /// First 12 bytes of the key (big-endian), then 32 bits of position.
    order: Vec<u128>,
}

impl Unsorted {
    /// Collects entries of an index.
    pub fn new(index: IndexId) -> Unsorted {
        Unsorted { index, arena: Vec::new(), order: Vec::new() }
    }

    /// The index.
    pub fn index(&self) -> IndexId {
        self.index
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.order.len() * size_of::<u128>()
    }

    /// Takes an entry; each (key, pk) once in all pieces of an index.
    ///
    /// # Errors
    /// `EntryTooLong`; `Internal` beyond 4 GiB.
    pub fn push(&mut self, key: &[u8], pk: &[u8], value: &[u8]) -> Result<()> {
        let bytes = key.len() + pk.len() + value.len();
        if bytes > ENTRY_BYTES_MAX || pk.len() > usize::from(u16::MAX) {
            return Err(Error::new(Code::EntryTooLong).with("index", self.index));
        }
        let at = u32::try_from(self.arena.len());
        let at = at.map_err(|_| Error::internal("a piece of a build beyond 4 GiB"))?;
        put_varint(&mut self.arena, (key.len() + pk.len()) as u64);
        put_varint(&mut self.arena, pk.len() as u64);
        put_varint(&mut self.arena, value.len() as u64);
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(pk);
        let first = head_of(&self.arena[start..]) >> 32 << 32;
        self.arena.extend_from_slice(value);
        self.order.push(first | u128::from(at));
        Ok(())
    }

    /// Sorts the entries and leaves this empty, with its memory.
    ///
    /// # Errors
    /// None but `Internal`.
    pub fn sort(&mut self) -> Result<Sorted> {
        let arena = &self.arena[..];
        // Compared in full only where the first bytes are equal.
        self.order.sort_unstable_by(|a, b| {
            let full = |at: u128| Item::read(&arena[at as u32 as usize..]).map(|i| i.key);
            (a >> 32).cmp(&(b >> 32)).then_with(|| full(*a).ok().cmp(&full(*b).ok()))
        });
        // Laid out anew in order: whoever merges reads front to back.
        let mut sorted = Sorted { bytes: Vec::with_capacity(arena.len()), marks: Vec::new() };
        for (n, at) in self.order.iter().enumerate() {
            if n % MARK_EVERY == 0 {
                sorted.marks.push(sorted.bytes.len() as u32);
            }
            let entry = &arena[*at as u32 as usize..];
            let len = entry.len() - Item::read(entry)?.rest.len();
            sorted.bytes.extend_from_slice(&entry[..len]);
        }
        self.arena.clear();
        self.order.clear();
        Ok(sorted)
    }
}

/// Entries in order, in memory.
pub struct Sorted {
    bytes: Vec<u8>,
    /// Positions of every `MARK_EVERY`th entry.
    marks: Vec<u32>,
}

impl Sorted {
    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.marks.len() * size_of::<u32>()
    }

    /// Position of the first entry not below `key`.
    fn position(&self, key: &[u8]) -> Result<usize> {
        let below =
            |mark: &u32| Item::read(&self.bytes[*mark as usize..]).is_ok_and(|item| item.key < key);
        let mark = self.marks.partition_point(below).saturating_sub(1);
        let mut at = self.marks.get(mark).map_or(0, |m| *m as usize);
        while at < self.bytes.len() {
            let item = Item::read(&self.bytes[at..])?;
            if item.key >= key {
                break;
            }
            at = self.bytes.len() - item.rest.len();
        }
        Ok(at)
    }
}

/// An entry at the head of a sorted piece. Ordered so that the greatest has the lowest key.
struct Item<'a> {
    head: u128,
    /// Column bytes and pk.
    key: &'a [u8],
    pk_len: usize,
    value: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Item<'a> {
    fn read(bytes: &'a [u8]) -> Result<Item<'a>> {
        // Short lengths, one byte each, are the rule.
        if let [key_len, pk_len, value_len, rest @ ..] = bytes
            && (key_len | pk_len | value_len) & 0x80 == 0
            && let Some((key, rest)) = rest.split_at_checked(usize::from(*key_len))
            && let Some((value, rest)) = rest.split_at_checked(usize::from(*value_len))
        {
            let pk_len = usize::from(*pk_len);
            return Ok(Item { head: head_of(key), key, pk_len, value, rest });
        }
        let mut r = Reader::new(bytes, "entry of a build");
        let (key_len, pk_len) = (r.varint()? as usize, r.varint()? as usize);
        let value_len = r.varint()? as usize;
        let (key, value) = (r.take(key_len)?, r.take(value_len)?);
        Ok(Item { head: head_of(key), key, pk_len, value, rest: r.rest() })
    }
}

impl Ord for Item<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.head.cmp(&self.head).then_with(|| other.key.cmp(self.key))
    }
}

impl PartialOrd for Item<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Item<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Item<'_> {}

/// What a build wrote: give all parts of an index to [`Runs::install`]. Dropped without that, its
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

/// One run to be written from sorted pieces, cut by key into parts that several threads write side
/// by side.
pub struct RunPlan {
    runs: Arc<Runs>,
    start: SliceStart,
    pieces: Vec<Sorted>,
    /// Per part, where it begins in each piece; one more for the end.
    cuts: Vec<Vec<usize>>,
    done: Mutex<Vec<(usize, BuiltPart)>>,
}

impl RunPlan {
    /// Number of parts.
    pub fn parts(&self) -> usize {
        self.cuts.len() - 1
    }

    /// Writes a part. `check` may end it with an error; nothing of the part stays then.
    ///
    /// # Errors
    /// Of writing, or what `check` says.
    pub fn write(&self, part: usize, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut heap = BinaryHeap::new();
        for (i, piece) in self.pieces.iter().enumerate() {
            let bytes = &piece.bytes[self.cuts[part][i]..self.cuts[part + 1][i]];
            if !bytes.is_empty() {
                heap.push(Item::read(bytes)?);
            }
        }
        if heap.is_empty() {
            return Ok(());
        }
        let mut out = Output::new(&self.runs, self.start)?;
        if let Err(error) = merge_pieces(heap, &mut out, check) {
            out.abandon();
            return Err(error);
        }
        let written = BuiltPart { runs: self.runs.clone(), sorted: vec![out.finish()?] };
        self.done.lock().push((part, written));
        Ok(())
    }

    /// The run, once all parts are written.
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

fn merge_pieces(
    mut heap: BinaryHeap<Item<'_>>,
    out: &mut Output<'_>,
    check: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let mut count = 0;
    while let Some(mut top) = heap.peek_mut() {
        out.push(top.key, top.pk_len, top.value)?;
        if top.rest.is_empty() {
            PeekMut::pop(top);
        } else {
            *top = Item::read(top.rest)?;
        }
        count += 1;
        if count % CHECK_EVERY == 0 {
            check()?;
        }
    }
    Ok(())
}

/// A run being written: files of `SEGMENT_BYTES`.
struct Output<'a> {
    runs: &'a Arc<Runs>,
    start: SliceStart,
    writer: RunWriter,
    done: Vec<Written>,
}

impl<'a> Output<'a> {
    fn new(runs: &'a Arc<Runs>, start: SliceStart) -> Result<Output<'a>> {
        let number = runs.next_file();
        let writer = RunWriter::create(&runs.rt, number, Class::Ddl, Metric::BuildWriteBytes)?;
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
    /// None but `Internal`.
    pub fn plan_run(
        self: &Arc<Self>,
        index: IndexId,
        pieces: Vec<Sorted>,
        parts: usize,
    ) -> Result<RunPlan> {
        let mut samples = Vec::new();
        for piece in &pieces {
            for mark in &piece.marks {
                samples.push(Item::read(&piece.bytes[*mark as usize..])?.key);
            }
        }
        samples.sort_unstable();
        let mut cuts = vec![vec![0; pieces.len()]];
        for part in 1..parts {
            let Some(key) = samples.get(part * samples.len() / parts) else { continue };
            cuts.push(pieces.iter().map(|p| p.position(key)).collect::<Result<_>>()?);
        }
        cuts.push(pieces.iter().map(|p| p.bytes.len()).collect());
        let start = self.build_start(index);
        Ok(RunPlan { runs: self.clone(), start, pieces, cuts, done: Mutex::default() })
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

    /// Makes built runs the oldest of their index, at once and durably; the index stays BUILDING
    /// until [`Runs::set_valid`]. More than 8 runs are merged into one first; `check` may end that
    /// with an error. Returns the LSN of the manifest record.
    ///
    /// # Errors
    /// Of writing; `IndexGone`; what `check` says. Nothing stays behind.
    pub fn install(
        self: &Arc<Self>,
        index: IndexId,
        mut parts: Vec<BuiltPart>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Lsn> {
        if parts.iter().map(|p| p.sorted.len()).sum::<usize>() > RUNS_MAX {
            parts = vec![self.merge_built(index, &parts, check)?];
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

    fn merge_built(
        self: &Arc<Self>,
        index: IndexId,
        parts: &[BuiltPart],
        check: &dyn Fn() -> Result<()>,
    ) -> Result<BuiltPart> {
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
        let mut out = Output::new(self, self.build_start(index))?;
        let mut count = 0u32;
        while let Some(item) = merger.top() {
            let pushed = out.push(item.key, item.pk_len, item.value);
            count = count.wrapping_add(1);
            let go_on = if count.is_multiple_of(CHECK_EVERY) { check() } else { Ok(()) };
            if let Err(error) = pushed.and(go_on).and_then(|()| merger.advance()) {
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
