//! Run files open for reading: segments (slices), runs, and reading their envelopes.
//!
//! A run is a list of segments with disjoint ascending key ranges. Fences and filter of a segment
//! are read at first use and stay.

use evenkeel_base::{Code, DatabaseId, Error, Generation, IndexId, Result};
use evenkeel_format::run::{
    DataBlock, ENVELOPE, EnvelopeId, EnvelopeKind, Fences, Filter, SliceInfo, Trailer,
    decode_footer, open,
};
use evenkeel_io::{AlignedBuf, File, IO_ALIGN, OpenMode, Runtime};
use std::sync::{Arc, OnceLock};

/// Path of a run file.
pub(crate) fn path(number: u64) -> String {
    format!("runs/{number:08}.run")
}

/// The number in a file name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".run")?.parse().ok()
}

/// A file of slices. It is removed from storage when nobody refers to it any more (`Runs` keeps
/// doomed ones until then).
pub(crate) struct RunFile {
    pub number: u64,
    database: DatabaseId,
    file: Arc<dyn File>,
}

impl RunFile {
    pub(crate) fn open(rt: &Runtime, number: u64) -> Result<Arc<RunFile>> {
        let file = rt.env.open(&path(number), OpenMode::READ.direct())?;
        Ok(Arc::new(RunFile { number, database: rt.database(), file }))
    }

    /// Reads aligned around `position..position + len`; the second value is where it starts in the
    /// buffer.
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

    /// Reads the footer: the slices of the file.
    pub(crate) fn slices(&self) -> Result<Vec<SliceInfo>> {
        let len = self.file.len()?;
        let align = IO_ALIGN as u64;
        let Some(last) = len.checked_sub(align).filter(|_| len.is_multiple_of(align)) else {
            return Err(Error::new(Code::ReadShort).with("file", path(self.number)));
        };
        let (buf, _) = self.read(last, IO_ALIGN)?;
        let trailer = Trailer::decode(&buf[IO_ALIGN - Trailer::LEN..], self.number, self.database)?;
        let end = trailer.footer_position.checked_add(u64::from(trailer.footer_len));
        if end.is_none_or(|end| end > len) {
            return Err(Error::new(Code::RunDamaged).with("file", path(self.number)));
        }
        let id = EnvelopeId {
            database: self.database,
            kind: EnvelopeKind::Footer,
            file: self.number,
            position: trailer.footer_position,
            index: IndexId::ZERO,
            number: 0,
        };
        let slices = decode_footer(&self.read_raw(id, trailer.footer_len as usize)?)?;
        let fits = |s: &SliceInfo| s.position + s.bytes() <= len;
        if !slices.iter().all(fits) {
            return Err(Error::new(Code::RunDamaged).with("file", path(self.number)));
        }
        Ok(slices)
    }
}

/// Opens and decompresses an envelope; also tells whether it has pending entries.
pub(crate) fn unpack(id: EnvelopeId, bytes: &[u8]) -> Result<(Box<[u8]>, bool)> {
    let envelope = open(id, bytes)?;
    if !envelope.is_lz4 {
        return Ok((envelope.stored.into(), envelope.has_pending));
    }
    let mut raw = vec![0; envelope.raw_len];
    match lz4_flex::block::decompress_into(envelope.stored, &mut raw) {
        Ok(n) if n == envelope.raw_len => Ok((raw.into(), envelope.has_pending)),
        _ => Err(Error::new(Code::RunDamaged)
            .with("file", path(id.file))
            .with("position", id.position)
            .with("why", "compressed bytes")),
    }
}

/// Fences and filter of a segment.
pub(crate) struct Meta {
    pub fences: Fences,
    pub filter: Option<Filter>,
}

/// A slice of a run.
pub(crate) struct Segment {
    pub file: Arc<RunFile>,
    pub info: SliceInfo,
    meta: OnceLock<Meta>,
}

impl Segment {
    pub(crate) fn new(file: Arc<RunFile>, info: SliceInfo) -> Segment {
        Segment { file, info, meta: OnceLock::new() }
    }

    fn id(&self, kind: EnvelopeKind, position: u64, number: u32) -> EnvelopeId {
        let RunFile { number: file, database, .. } = *self.file;
        EnvelopeId { database, kind, file, position, index: self.info.index, number }
    }

    /// Fences and filter, read at first use.
    pub(crate) fn meta(&self) -> Result<&Meta> {
        if let Some(meta) = self.meta.get() {
            return Ok(meta);
        }
        let (info, end) = (&self.info, self.info.position + self.info.data_len);
        let id = self.id(EnvelopeKind::Fences, end, 0);
        let raw = self.file.read_raw(id, info.fences_len as usize)?;
        let fences = Fences::decode(&raw, info.position, info.data_len)?;
        if fences.blocks() != info.blocks {
            return Err(Error::new(Code::RunDamaged).with("file", path(self.file.number)));
        }
        let filter = match info.filter_len {
            0 => None,
            len => {
                let at = end + u64::from(info.fences_len);
                let id = self.id(EnvelopeKind::Filter, at, 0);
                Some(Filter::decode(self.file.read_raw(id, len as usize)?)?)
            }
        };
        Ok(self.meta.get_or_init(|| Meta { fences, filter }))
    }

    /// Bytes of fences and filter in memory.
    pub(crate) fn meta_memory(&self) -> usize {
        let filter = |m: &Meta| m.filter.as_ref().map_or(0, Filter::memory);
        self.meta.get().map_or(0, |m| m.fences.memory() + filter(m))
    }

    /// Decodes a block from its envelope's bytes.
    pub(crate) fn decode(&self, number: u32, position: u64, bytes: &[u8]) -> Result<DataBlock> {
        let id = self.id(EnvelopeKind::Data, position, number);
        DataBlock::parse(unpack(id, bytes)?.0)
    }

    /// Reads a block from storage; also gives the bytes read.
    pub(crate) fn read_block(&self, number: u32) -> Result<(DataBlock, u64)> {
        let (position, len) = self.meta()?.fences.place(number);
        if (len as usize) < ENVELOPE {
            return Err(Error::new(Code::RunDamaged).with("file", path(self.file.number)));
        }
        let (buf, at) = self.file.read(position, len as usize)?;
        let block = self.decode(number, position, &buf[at..at + len as usize])?;
        Ok((block, buf.len() as u64))
    }
}

/// A sorted run of one index.
pub(crate) struct Run {
    pub index: IndexId,
    pub number: u64,
    pub age_low: Generation,
    pub age_high: Generation,
    pub segments: Vec<Arc<Segment>>,
    pub bytes: u64,
    pub entries: u64,
    pub deletes: u64,
}

impl Run {
    /// A run of these segments (of one (index, run)); at least one.
    pub(crate) fn new(mut segments: Vec<Arc<Segment>>) -> Option<Run> {
        segments.sort_by(|a, b| a.info.min_key.cmp(&b.info.min_key));
        let first = &segments.first()?.info;
        let sum = |f: fn(&SliceInfo) -> u64| segments.iter().map(|s| f(&s.info)).sum();
        Some(Run {
            index: first.index,
            number: first.run,
            age_low: first.age_low,
            age_high: first.age_high,
            bytes: sum(SliceInfo::bytes),
            entries: sum(|s| s.entries),
            deletes: sum(|s| s.deletes),
            segments,
        })
    }
}
