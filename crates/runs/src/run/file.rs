//! Run files open for reading: segments (slices), runs, and reading their envelopes.
//!
//! A run is a list of segments with disjoint ascending key ranges; everything below its `low` is
//! dead, because a compaction has taken it. Fences and filter of a segment are read on demand and
//! stay while there is memory for them (`filter_cache`).
//!
//! A slice belongs to the run that its footer names, or to one into which it was placed later. The
//! holder of a segment may read all of its slice above the `low` of its run. A segment that lost a
//! part to a compaction is another segment of the same slice, so the part's blocks can be freed
//! when the last reader of the old segment has gone.

use crate::run::filter_cache::{Cell, FilterCache};
use evenkeel_base::{Code, DatabaseId, Error, Generation, IndexId, Lsn, Result};
use evenkeel_format::run::{
    DataBlock, ENVELOPE, EnvelopeId, EnvelopeKind, Fences, Filter, PackedFooter, SliceInfo,
    Trailer, decode_footer, open,
};
use evenkeel_io::{AlignedBuf, File, IO_ALIGN, OpenMode, Runtime};
use evenkeel_sched::laws::compaction::garbage;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Path of a run file.
pub fn path(number: u64) -> String {
    format!("runs/{number:08}.run")
}

/// The number in a file name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".run")?.parse().ok()
}

/// A file of slices. It is removed from storage when nothing refers to it any more (`Runs` keeps
/// doomed files until then).
pub(crate) struct RunFile {
    pub number: u64,
    database: DatabaseId,
    file: Arc<dyn File>,
    filter_cache: Arc<FilterCache>,
    /// Holds the footer, if slices are read from it (`lazy_metadata`).
    footer: OnceLock<Arc<Cell>>,
}

impl RunFile {
    pub(crate) fn open(
        rt: &Runtime,
        filter_cache: &Arc<FilterCache>,
        number: u64,
    ) -> Result<Arc<RunFile>> {
        let file = rt.env.open(&path(number), OpenMode::READ.direct())?;
        let filter_cache = filter_cache.clone();
        let (database, footer) = (rt.database(), OnceLock::new());
        Ok(Arc::new(RunFile { number, database, file, filter_cache, footer }))
    }

    /// Reads the aligned blocks around `position..position + len`; the second value is the offset
    /// of `position` in the buffer.
    pub(crate) fn read(&self, position: u64, len: usize) -> Result<(AlignedBuf, usize)> {
        let align = IO_ALIGN as u64;
        let start = position / align * align;
        let end = (position + len as u64).next_multiple_of(align);
        let mut buf = AlignedBuf::new((end - start) as usize);
        self.file.read_at(&mut buf, start)?;
        Ok((buf, (position - start) as usize))
    }

    fn read_raw(&self, id: EnvelopeId, len: usize) -> Result<Box<[u8]>> {
        let (buf, at) = self.read(id.position, len)?;
        Ok(unpack(id, &buf[at..at + len])?.0)
    }

    pub(crate) fn database(&self) -> DatabaseId {
        self.database
    }

    pub(crate) fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn at(&self, error: Error, offset: u64) -> Error {
        error.with("file", path(self.number)).with("offset", offset)
    }

    /// Reads the trailer; also gives the length of the file.
    fn trailer(&self) -> Result<(Trailer, u64)> {
        let len = self.len()?;
        let align = IO_ALIGN as u64;
        let Some(last) = len.checked_sub(align).filter(|_| len.is_multiple_of(align)) else {
            return Err(self.at(Error::new(Code::ReadShort), len));
        };
        let (buf, _) = self.read(last, IO_ALIGN)?;
        let bytes = &buf[IO_ALIGN - Trailer::LEN..];
        let trailer = Trailer::decode(bytes, self.number, self.database);
        Ok((trailer.map_err(|e| e.with("offset", len - Trailer::LEN as u64))?, len))
    }

    /// Where the footer begins, if the trailer can be read.
    pub(crate) fn footer_position(&self) -> Option<u64> {
        self.trailer().ok().map(|(trailer, _)| trailer.footer_position)
    }

    /// Reads the footer; also gives the length of the file.
    fn read_footer(&self) -> Result<(Box<[u8]>, u64)> {
        let (trailer, len) = self.trailer()?;
        let end = trailer.footer_position.checked_add(u64::from(trailer.footer_len));
        if end.is_none_or(|end| end > len) {
            return Err(self.at(Error::new(Code::RunDamaged), trailer.footer_position));
        }
        let id = EnvelopeId {
            database: self.database,
            kind: EnvelopeKind::Footer,
            file: self.number,
            position: trailer.footer_position,
            index: IndexId::ZERO,
            number: 0,
        };
        Ok((self.read_raw(id, trailer.footer_len as usize)?, len))
    }

    /// Reads the slices of the file.
    pub(crate) fn slices(&self) -> Result<Vec<SliceInfo>> {
        let (footer, len) = self.read_footer()?;
        let slices = decode_footer(&footer)?;
        if let Some(beyond) = slices.iter().find(|s| s.position + s.bytes() > len) {
            return Err(self.at(Error::new(Code::RunDamaged), beyond.position));
        }
        Ok(slices)
    }

    /// The slice of an index that has one in the file; the footer is read if it is not in memory.
    ///
    /// # Errors
    /// Of reading the footer; each names the file and the index.
    pub(crate) fn slice_of(&self, index: IndexId) -> Result<SliceInfo> {
        let listed = || -> Result<Option<SliceInfo>> {
            let cell = self.footer.get_or_init(|| self.filter_cache.cell());
            let footer = match cell.footer() {
                Some(footer) => footer,
                None => cell.keep_footer(PackedFooter::parse(self.read_footer()?.0)?),
            };
            footer.slice(index)
        };
        let missing = || Error::new(Code::RunDamaged).with("why", "its part is not listed");
        listed().and_then(|found| found.ok_or_else(missing)).map_err(|error| {
            let is_named = error.context("file").is_some();
            let error = if is_named { error } else { error.with("file", path(self.number)) };
            error.with("index", index)
        })
    }
}

/// Opens and decompresses an envelope; also tells whether it has pending entries.
pub(crate) fn unpack(id: EnvelopeId, bytes: &[u8]) -> Result<(Box<[u8]>, bool)> {
    let (raw, has_pending) = unpack_into(Vec::new(), id, bytes)?;
    Ok((raw.into(), has_pending))
}

/// As `unpack`, into existing memory if it is large enough.
fn unpack_into(mut raw: Vec<u8>, id: EnvelopeId, bytes: &[u8]) -> Result<(Vec<u8>, bool)> {
    let envelope = open(id, bytes)?;
    // The memory of a long block is not kept for short blocks.
    if !(envelope.raw_len..=2 * envelope.raw_len + 512).contains(&raw.capacity()) {
        // Rounded up, so that the next block fits it.
        raw = Vec::with_capacity(envelope.raw_len.next_multiple_of(512));
    }
    if !envelope.is_lz4 {
        raw.clear();
        raw.extend_from_slice(envelope.stored);
        return Ok((raw, envelope.has_pending));
    }
    raw.resize(envelope.raw_len, 0);
    match lz4_flex::block::decompress_into(envelope.stored, &mut raw) {
        Ok(n) if n == envelope.raw_len => Ok((raw, envelope.has_pending)),
        _ => Err(Error::new(Code::RunDamaged)
            .with("file", path(id.file))
            .with("offset", id.position)
            .with("index", id.index)
            .with("why", "compressed bytes")),
    }
}

/// The run that a slice belongs to, and the generations of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunPlace {
    pub run: u64,
    pub age_low: Generation,
    pub age_high: Generation,
}

/// A slice of a run.
pub(crate) struct RunSegment {
    pub file: Arc<RunFile>,
    /// As in the footer, except the run and its ages, which are the present ones.
    pub info: SliceInfo,
    /// The run that the footer names.
    home: u64,
    resident: Arc<Cell>,
}

impl RunSegment {
    pub(crate) fn new(file: Arc<RunFile>, info: SliceInfo) -> RunSegment {
        let (home, resident) = (info.run, file.filter_cache.cell());
        RunSegment { file, info, home, resident }
    }

    /// The same slice as a segment of another run.
    pub(crate) fn placed(&self, place: RunPlace) -> RunSegment {
        let (file, resident) = (self.file.clone(), self.resident.clone());
        let RunPlace { run, age_low, age_high } = place;
        let info = SliceInfo { run, age_low, age_high, ..self.info.clone() };
        RunSegment { file, info, home: self.home, resident }
    }

    /// Its present run, if that is not the one in its footer.
    pub(crate) fn place(&self) -> Option<RunPlace> {
        let SliceInfo { run, age_low, age_high, .. } = self.info;
        (run != self.home).then_some(RunPlace { run, age_low, age_high })
    }

    /// The run that its footer names.
    pub(crate) fn home(&self) -> (IndexId, u64) {
        (self.info.index, self.home)
    }

    /// The bytes of its file that hold only entries below a key, whole blocks.
    pub(crate) fn bytes_below(&self, low: &[u8]) -> Result<Range<u64>> {
        let start = self.info.position;
        if low > &self.info.max_key[..] {
            return Ok(start..start + self.info.bytes());
        }
        let fences = self.fences()?;
        Ok(start..fences.place(fences.block_of(low)).0)
    }

    /// The approximate number of its entries at or above `low` and below `high`. The numbers of
    /// adjacent ranges add up to that of the whole; a range within a block has none.
    pub(crate) fn entries_between(&self, low: &[u8], high: Option<&[u8]>) -> Result<u64> {
        let info = &self.info;
        if !self.meets(low, high) {
            return Ok(0);
        }
        if low <= &info.min_key[..] && high.is_none_or(|high| &info.max_key[..] < high) {
            return Ok(info.entries.max(1));
        }
        let fences = self.fences()?;
        let end = match high.filter(|high| *high <= &info.max_key[..]) {
            Some(high) => self.halves_before(&fences, high),
            None => 2 * fences.blocks(),
        };
        let halves = end.saturating_sub(self.halves_before(&fences, low));
        Ok(info.entries * u64::from(halves) / (2 * u64::from(info.blocks.max(1))))
    }

    /// True if an entry may be at or above `low` and below `high`.
    fn meets(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        low <= &self.info.max_key[..] && high.is_none_or(|high| &self.info.min_key[..] < high)
    }

    /// The position of a key in half blocks: even at the beginning of a block, odd within one.
    fn halves_before(&self, fences: &Fences, key: &[u8]) -> u32 {
        if key <= &self.info.min_key[..] {
            return 0;
        }
        let block = fences.block_of(key);
        let is_at_next = block + 1 < fences.blocks() && fences.key(block + 1) == key;
        2 * block + if is_at_next { 2 } else { 1 }
    }

    /// As `entries_between`, but 0 only if there is none: half a block stands for less than that.
    pub(crate) fn entries_within(&self, low: &[u8], high: Option<&[u8]>) -> Result<u64> {
        let half = self.info.entries / (2 * u64::from(self.info.blocks.max(1)));
        let least = if self.meets(low, high) { half.max(1) } else { 0 };
        Ok(self.entries_between(low, high)?.max(least))
    }

    /// The beginning of the block that has about `part` thousandths of the entries at or above
    /// `low` and below `high` before it.
    pub(crate) fn key_at(&self, low: &[u8], high: Option<&[u8]>, part: usize) -> Result<Vec<u8>> {
        let fences = self.fences()?;
        let from = self.halves_before(&fences, low) / 2;
        let to = high.map_or(fences.blocks() - 1, |high| fences.block_of(high));
        let blocks = u64::from((to + 1).saturating_sub(from));
        let at = (from + (blocks * part as u64 / 1000) as u32).min(to);
        let first = if at == 0 { &self.info.min_key[..] } else { fences.key(at) };
        Ok(first.max(low).to_vec())
    }

    fn id(&self, kind: EnvelopeKind, position: u64, number: u32) -> EnvelopeId {
        let RunFile { number: file, database, .. } = *self.file;
        EnvelopeId { database, kind, file, position, index: self.info.index, number }
    }

    fn damaged(&self, why: &str) -> Error {
        let error = Error::new(Code::RunDamaged).with("file", path(self.file.number));
        error.with("index", self.info.index).with("why", why)
    }

    /// The fences; read if they are not in memory.
    pub(crate) fn fences(&self) -> Result<Arc<Fences>> {
        if let Some(fences) = self.resident.fences() {
            return Ok(fences);
        }
        let (info, end) = (&self.info, self.info.position + self.info.data_len);
        let id = self.id(EnvelopeKind::Fences, end, 0);
        let raw = self.file.read_raw(id, info.fences_len as usize)?;
        let fences = Fences::decode(&raw, info.position, info.data_len)?;
        if fences.blocks() != info.blocks {
            return Err(self.damaged("fences"));
        }
        Ok(self.resident.keep_fences(fences))
    }

    /// The filter; none if there is none, or no room for it in memory.
    pub(crate) fn filter(&self) -> Result<Option<Arc<Filter>>> {
        if let Some(filter) = self.resident.filter() {
            return Ok(Some(filter));
        }
        let (info, len) = (&self.info, self.info.filter_len);
        if len == 0 || !self.file.filter_cache.admits_filter(u64::from(len)) {
            return Ok(None);
        }
        let at = info.position + info.data_len + u64::from(info.fences_len);
        let id = self.id(EnvelopeKind::Filter, at, 0);
        let filter = Filter::decode(self.file.read_raw(id, len as usize)?)?;
        Ok(Some(self.resident.keep_filter(filter)))
    }

    /// Bytes of fences and filter in memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.resident.bytes()
    }

    /// Decodes a block from its envelope's bytes, into `raw` if that is large enough.
    pub(crate) fn decode(
        &self,
        raw: Vec<u8>,
        number: u32,
        position: u64,
        bytes: &[u8],
    ) -> Result<DataBlock> {
        let id = self.id(EnvelopeKind::Data, position, number);
        DataBlock::parse(unpack_into(raw, id, bytes)?.0)
    }

    /// Reads a block from storage, into `raw` as `decode`; also gives the bytes read.
    pub(crate) fn read_block(&self, raw: Vec<u8>, number: u32) -> Result<(DataBlock, u64)> {
        let (position, len) = self.fences()?.place(number);
        if (len as usize) < ENVELOPE {
            return Err(self.damaged("fences"));
        }
        let (buf, at) = self.file.read(position, len as usize)?;
        let block = self.decode(raw, number, position, &buf[at..at + len as usize])?;
        Ok((block, buf.len() as u64))
    }
}

/// A sorted run of one index.
pub(crate) struct Run {
    pub number: u64,
    pub age_low: Generation,
    pub age_high: Generation,
    pub segments: Vec<Arc<RunSegment>>,
    /// Entries below are dead.
    pub low: Vec<u8>,
    /// The output of a compaction under way: it has keys that the inputs no longer have.
    pub growing: bool,
    /// For a cut segment approximately the rest; after a restart the whole segment.
    pub bytes: u64,
    pub entries: u64,
    pub deletes: u64,
    /// Entries below a newer one of their key, as far as known.
    pub superseded: u64,
    /// Any of its entries may be needed by snapshots below this; zero if unknown.
    pub settled: Lsn,
    /// Its entries that readers have passed over since the open: dead, superseded, or invisible to
    /// their snapshot.
    pub(crate) skipped: AtomicU64,
}

impl Run {
    /// A run of these segments (of one (index, run)); at least one.
    pub(crate) fn new(mut segments: Vec<Arc<RunSegment>>) -> Option<Run> {
        segments.sort_by(|a, b| a.info.min_key.cmp(&b.info.min_key));
        let first = &segments.first()?.info;
        let sum = |f: fn(&SliceInfo) -> u64| segments.iter().map(|s| f(&s.info)).sum();
        Some(Run {
            number: first.run,
            age_low: first.age_low,
            age_high: first.age_high,
            low: Vec::new(),
            growing: false,
            bytes: sum(SliceInfo::bytes),
            entries: sum(|s| s.entries),
            deletes: sum(|s| s.deletes),
            superseded: sum(|s| s.superseded),
            settled: segments.iter().map(|s| s.info.newest_cts).max().unwrap_or_default(),
            skipped: AtomicU64::new(0),
            segments,
        })
    }

    /// A reader has passed over this many of its entries; called once per scan.
    pub(crate) fn note_skipped(&self, entries: u64) {
        self.skipped.fetch_add(entries, Relaxed);
    }

    /// Its entries that readers have passed over.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Relaxed)
    }

    /// The run without the keys below `low`; `None` if nothing is left.
    pub(crate) fn above(&self, low: &[u8]) -> Option<Run> {
        let low = low.max(&self.low);
        let mut rest: Vec<Arc<RunSegment>> =
            self.segments.iter().filter(|s| &s.info.max_key[..] >= low).cloned().collect();
        let (mut bytes, mut part) = (0, 0.0);
        if let Some(first) = rest.first_mut()
            && &first.info.min_key[..] < low
        {
            let SliceInfo { run, age_low, age_high, .. } = first.info;
            *first = Arc::new(first.placed(RunPlace { run, age_low, age_high }));
            // A compaction has read the fences, so this mostly reads nothing.
            let gone = first.bytes_below(low).unwrap_or_default();
            bytes = gone.end - gone.start;
            part = bytes as f64 / first.info.bytes() as f64;
        }
        let mut run = Run { low: low.to_vec(), ..Run::new(rest)? };
        let cut = &run.segments[0].info;
        let gone = |n: u64| (n as f64 * part) as u64;
        run.entries -= gone(cut.entries);
        run.deletes -= gone(cut.deletes);
        run.bytes -= bytes;
        // The removed part is compacted; the rest keeps its proportion of the skipped entries.
        let skipped = u128::from(self.skipped()) * u128::from(run.bytes);
        run.skipped = AtomicU64::new((skipped / u128::from(self.bytes.max(1))) as u64);
        Some(run)
    }

    /// Bytes that a compaction of it down to the bottom frees.
    pub(crate) fn garbage(&self) -> u64 {
        garbage(self.bytes, self.entries, self.deletes, self.superseded)
    }

    /// True if a segment lies partly below `low`.
    pub(crate) fn is_cut(&self) -> bool {
        self.segments.first().is_some_and(|s| s.info.min_key < self.low)
    }
}
