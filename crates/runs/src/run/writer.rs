//! Writes a run file front to back: direct I/O, large sequential writes, one buffer. Its blocks
//! also enter the cache: where there is room, or in place of blocks that a compaction has read.

use crate::run::cache::CachedBlocks;
use crate::run::file::path;
use evenkeel_base::{Generation, IndexId, Lsn, Result, TxnId, metrics::Metric};
use evenkeel_format::run::{
    BLOCK_BYTES, BlockBuilder, ENVELOPE, Envelope, EnvelopeId, EnvelopeKind, FencesBuilder,
    FilterBuilder, RunVersion, SliceInfo, Trailer, encode_footer, seal,
};
use evenkeel_io::{AlignedBuf, File, IO_ALIGN, OpenMode, Runtime};
use evenkeel_sched::{Class, Scheduler};
use std::collections::BTreeSet;
use std::sync::Arc;

const WRITE_BYTES: usize = 512 << 10;

/// What all slices of a run have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceStart {
    pub index: IndexId,
    /// The run's number; 0: the number of this file.
    pub run: u64,
    pub age_low: Generation,
    pub age_high: Generation,
    pub base_cts: Lsn,
    pub unique_key: bool,
}

/// A finished file, synced; its directory entry is not yet.
pub(crate) struct Written {
    pub number: u64,
    pub slices: Vec<SliceInfo>,
}

struct OpenSlice {
    info: SliceInfo,
    fences: FencesBuilder,
    filter: Option<FilterBuilder>,
    last_key: Option<Vec<u8>>,
    first_key: Vec<u8>,
    pending: BTreeSet<TxnId>,
}

/// The description of I/O of runs for the governor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose {
    pub class: Class,
    /// It keeps memtables or the number of runs inside their limits (G2).
    pub required: bool,
}

impl Purpose {
    pub const FLUSH: Purpose = Purpose { class: Class::MemtableFlush, required: true };
    pub const BUILD: Purpose = Purpose { class: Class::Ddl, required: false };
    /// Only a user waits for it.
    pub const CHECK: Purpose = Purpose { class: Class::Ddl, required: true };

    pub fn compaction(required: bool) -> Purpose {
        Purpose { class: Class::Compaction, required }
    }
}

pub(crate) struct RunWriter {
    sched: Arc<Scheduler>,
    blocks: Arc<CachedBlocks>,
    number: u64,
    purpose: Purpose,
    metric: Metric,
    file: Arc<dyn File>,
    buf: AlignedBuf,
    filled: usize,
    /// The file position of `buf`.
    written: u64,
    block: BlockBuilder,
    scratch: Vec<u8>,
    slice: Option<OpenSlice>,
    slices: Vec<SliceInfo>,
}

impl RunWriter {
    /// Creates the file; `metric` counts its bytes.
    pub(crate) fn create(
        blocks: &Arc<CachedBlocks>,
        number: u64,
        purpose: Purpose,
        metric: Metric,
    ) -> Result<RunWriter> {
        let rt = blocks.sched.runtime();
        let file = rt.env.open(&path(number), OpenMode::READ_WRITE.direct())?;
        if let Err(error) = file.set_len(0) {
            drop(file);
            remove(rt, number);
            return Err(error);
        }
        Ok(RunWriter {
            sched: blocks.sched.clone(),
            blocks: blocks.clone(),
            number,
            purpose,
            metric,
            file,
            buf: AlignedBuf::new(WRITE_BYTES),
            filled: 0,
            written: 0,
            block: BlockBuilder::new(Lsn::ZERO),
            scratch: Vec::new(),
            slice: None,
            slices: Vec::new(),
        })
    }

    fn position(&self) -> u64 {
        self.written + self.filled as u64
    }

    /// Bytes of data so far, in all slices; those of the open block uncompressed.
    pub(crate) fn bytes(&self) -> u64 {
        self.position() + self.block.len() as u64
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(self.buf.len() - self.filled);
            self.buf[self.filled..self.filled + n].copy_from_slice(&bytes[..n]);
            self.filled += n;
            bytes = &bytes[n..];
            if self.filled == self.buf.len() {
                self.write_out()?;
            }
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<()> {
        let (sched, Purpose { class, required }) = (&self.sched, self.purpose);
        let rt = sched.runtime();
        let (all, mut done) = (self.filled as u64, 0);
        while done < all {
            let bytes = sched.at_once(class, all - done, required);
            sched.ask(class, bytes, required);
            let start = rt.env.now_ns();
            let part = &self.buf[done as usize..(done + bytes) as usize];
            self.file.write_at(part, self.written + done)?;
            // The duration of a small part among the writes of others does not measure the device.
            if bytes == all {
                sched.governor.report(class, 1, bytes, rt.env.now_ns().saturating_sub(start));
            }
            done += bytes;
        }
        rt.metrics.add(self.metric, all);
        self.written += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// Seals and writes an envelope; returns its length.
    fn put_envelope(
        &mut self,
        kind: EnvelopeKind,
        index: IndexId,
        number: u32,
        raw: &[u8],
        has_pending: bool,
    ) -> Result<u32> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
        // A filter is random: compressing it would be in vain.
        let packed = match kind {
            EnvelopeKind::Filter => None,
            _ => lz4_flex::block::compress_into(raw, &mut scratch).ok(),
        };
        let packed = packed.filter(|n| *n < raw.len() - raw.len() / 16);
        let stored = packed.map_or(raw, |n| &scratch[..n]);
        let position = self.position();
        let database = self.sched.runtime().database();
        let id = EnvelopeId { database, kind, file: self.number, position, index, number };
        let is_lz4 = packed.is_some();
        let head = seal(id, &Envelope { is_lz4, has_pending, raw_len: raw.len(), stored });
        let result = self.put(&head).and_then(|()| self.put(stored));
        let len = (ENVELOPE + stored.len()) as u32;
        self.scratch = scratch;
        result.map(|()| len)
    }

    /// Begins a slice; the one before was ended. Slices are in the order of their indexes, from
    /// which the repair of damage knows which indexes may have had one in unreadable bytes
    /// (`damage`).
    pub(crate) fn begin(&mut self, start: SliceStart) {
        debug_assert!(self.slices.last().is_none_or(|before| before.index <= start.index));
        let info = SliceInfo {
            index: start.index,
            run: if start.run == 0 { self.number } else { start.run },
            age_low: start.age_low,
            age_high: start.age_high,
            position: self.position(),
            base_cts: start.base_cts,
            ..SliceInfo::default()
        };
        self.block = BlockBuilder::new(start.base_cts);
        self.slice = Some(OpenSlice {
            info,
            fences: FencesBuilder::default(),
            filter: start.unique_key.then(FilterBuilder::default),
            last_key: None,
            first_key: Vec::new(),
            pending: BTreeSet::new(),
        });
    }

    /// Appends an entry to the slice, in order.
    pub(crate) fn push(
        &mut self,
        key: &[u8],
        pk_len: usize,
        op: u8,
        version: RunVersion,
        value: &[u8],
    ) -> Result<()> {
        let Some(slice) = &mut self.slice else { return Ok(()) };
        if self.block.is_empty() {
            slice.first_key.clear();
            slice.first_key.extend_from_slice(key);
        }
        if slice.info.entries == 0 {
            slice.info.min_key = key.to_vec();
        }
        slice.info.superseded += u64::from(!self.block.is_empty() && self.block.last_key() == key);
        self.block.push(key, pk_len, op, version, value);
        slice.info.entries += 1;
        slice.info.deletes += u64::from(op & evenkeel_format::record::entry_op::DEL != 0);
        match version {
            RunVersion::Pending(stamp) => {
                slice.pending.insert(stamp.txn);
            }
            RunVersion::Committed(cts) => slice.info.newest_cts = slice.info.newest_cts.max(cts),
        }
        if let Some(filter) = &mut slice.filter {
            filter.push(&key[..key.len() - pk_len]);
        }
        if self.block.len() >= BLOCK_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<()> {
        let Some(mut slice) = self.slice.take() else { return Ok(()) };
        let mut block = std::mem::replace(&mut self.block, BlockBuilder::new(Lsn::ZERO));
        let number = slice.fences.count();
        let pending = block.has_pending();
        let (raw, position) = (block.finish(), self.position());
        let len = self.put_envelope(EnvelopeKind::Data, slice.info.index, number, raw, pending);
        let len = len?;
        let inherits = self.purpose.class == Class::Compaction;
        self.blocks.cache.put_written(self.number, position, raw, inherits);
        slice.fences.push(slice.last_key.as_deref(), &slice.first_key, len);
        slice.info.data_len += u64::from(len);
        slice.info.blocks += 1;
        slice.last_key = Some(block.last_key().to_vec());
        block.clear();
        self.block = block;
        self.slice = Some(slice);
        Ok(())
    }

    /// Ends the slice; a slice without entries is not stored.
    pub(crate) fn end(&mut self) -> Result<()> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        let Some(slice) = self.slice.take() else { return Ok(()) };
        if slice.info.entries == 0 {
            return Ok(());
        }
        let mut info = slice.info;
        let fences = slice.fences.finish();
        info.fences_len = self.put_envelope(EnvelopeKind::Fences, info.index, 0, &fences, false)?;
        if let Some(filter) = slice.filter {
            let raw = filter.finish();
            info.filter_len =
                self.put_envelope(EnvelopeKind::Filter, info.index, 0, &raw, false)?;
        }
        info.max_key = slice.last_key.unwrap_or_default();
        info.pending = slice.pending.into_iter().collect();
        self.slices.push(info);
        Ok(())
    }

    fn pad(&mut self, to: usize) -> Result<()> {
        let zeros = [0; IO_ALIGN];
        let at = (self.position() % IO_ALIGN as u64) as usize;
        let n = (to + IO_ALIGN - at) % IO_ALIGN;
        self.put(&zeros[..n])
    }

    /// Writes the footer and syncs. `None` if there is no slice. In that case or after an error no
    /// file remains.
    pub(crate) fn finish(mut self) -> Result<Option<Written>> {
        match self.end().and_then(|()| self.write_footer()) {
            Ok(()) => {}
            Err(error) => {
                self.abandon();
                return Err(error);
            }
        }
        if self.slices.is_empty() {
            self.abandon();
            return Ok(None);
        }
        let slices = std::mem::take(&mut self.slices);
        Ok(Some(Written { number: self.number, slices }))
    }

    fn write_footer(&mut self) -> Result<()> {
        if self.slices.is_empty() {
            return Ok(());
        }
        self.pad(0)?;
        let footer_position = self.position();
        let raw = encode_footer(&self.slices);
        let footer_len = self.put_envelope(EnvelopeKind::Footer, IndexId::ZERO, 0, &raw, false)?;
        self.pad(IO_ALIGN - Trailer::LEN)?;
        let trailer = Trailer { file: self.number, footer_position, footer_len };
        self.put(&trailer.encode(self.sched.runtime().database()))?;
        if self.filled > 0 {
            self.write_out()?;
        }
        self.file.sync()
    }

    /// Removes the unfinished file.
    pub(crate) fn abandon(self) {
        let (sched, number) = (self.sched.clone(), self.number);
        drop(self);
        remove(sched.runtime(), number);
    }
}

fn remove(rt: &Runtime, number: u64) {
    let path = path(number);
    if let Err(error) = rt.remove_file(&path) {
        log::warn!("{path}: cannot be removed, goes at the next start: {error}");
    }
}
