//! Read-only scan of the log, for recovery.
//!
//! The scan follows blocks by number. It ends at the first block that is invalid at its place or
//! belongs to an older epoch. It continues into a later epoch only at a block that is marked as the
//! first of its epoch and took over where the complete records end. Whether that is the end, and no
//! hole, is known only after the blocks behind were examined (`behind`).

use crate::ahead::{ChunkReader, ScanAhead, ScannedBlocks};
use crate::behind::{Behind, name_place};
use evenkeel_base::{Code, Error, Lsn, Result};
use evenkeel_format::record::RecordKind;
use evenkeel_format::wal::{
    self, BLOCKS_ALIGN, BlockHeader, EPOCH_START, FRAME, PAYLOAD, SegmentHeader, block_of, lsn_of,
    segment_path,
};
use evenkeel_io::{OpenMode, Runtime};
use std::sync::Arc;

/// Fewer blocks are read without read-ahead threads.
const AHEAD_BLOCKS_MIN: u64 = 128;

/// Receives the records of a scan in order.
pub trait Replay {
    /// One record. # Errors: end the scan and are returned by it.
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()>;
}

/// Where a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Behind the last complete record and its padding: `Log::create` starts from here.
    pub end: Lsn,
    /// Epoch of the last block seen; 0 if there was none.
    pub epoch: u32,
}

/// Scans the log from `from` (a record boundary; usually the checkpoint) to its end, or to the
/// first record at or behind `until` (the rest is then not examined).
///
/// # Errors
/// `LogDamaged`, `LogMissing`, `LogVersion`, `BadEncoding` if the log is damaged below a position
/// it states to be durable; those of `to` and of the environment.
pub fn replay(
    rt: &Arc<Runtime>,
    from: Lsn,
    until: Option<Lsn>,
    to: &mut dyn Replay,
) -> Result<LogEnd> {
    let (end, behind) = run(rt, from, until, to)?;
    behind.map_or(Ok(()), |behind| behind.check())?;
    Ok(end)
}

/// Scans the log from `from` to its end as `replay` does, except for the blocks behind: the caller
/// examines these before anything is written there.
///
/// # Errors
/// As `replay`.
pub fn replay_to_end(
    rt: &Arc<Runtime>,
    from: Lsn,
    to: &mut dyn Replay,
) -> Result<(LogEnd, Behind)> {
    let (end, behind) = run(rt, from, None, to)?;
    Ok((end, behind.ok_or_else(|| Error::internal("a scan of the log ended before its end"))?))
}

/// Scans a log that is being written, from `from` to the first record at or behind `until`, or to
/// the first one that is not written as a whole. What lies behind is not examined, because it is
/// being written.
pub(crate) fn replay_below(
    rt: &Arc<Runtime>,
    from: Lsn,
    until: Lsn,
    to: &mut dyn Replay,
) -> Result<LogEnd> {
    Ok(run(rt, from, Some(until), to)?.0)
}

fn run(
    rt: &Arc<Runtime>,
    from: Lsn,
    until: Option<Lsn>,
    to: &mut dyn Replay,
) -> Result<(LogEnd, Option<Behind>)> {
    let segments = crate::segments::read_headers(rt, Some(from))?;
    let mut blocks = Blocks::new(rt, segments, from, until)?;
    let scanned = scan(&mut blocks, from, until, to);
    let stopped = blocks.stop();
    let (end, broken) = scanned?;
    stopped?;
    let segments = blocks.segments;
    Ok((end, broken.map(|broken| Behind { rt: rt.clone(), segments, broken, end })))
}

/// Returns the end, and the first missing block unless the scan ended before.
fn scan(
    blocks: &mut Blocks,
    from: Lsn,
    until: Option<Lsn>,
    to: &mut dyn Replay,
) -> Result<(LogEnd, Option<u64>)> {
    // Block 0 is never written (LSN 0 means "none").
    let first = block_of(from).max(1);
    if blocks.segments.first().is_some_and(|s| s.first_block > first) {
        let name = segment_path(blocks.segments[0].number.saturating_sub(1));
        return Err(Error::new(Code::LogMissing).with("file", name).with("lsn", from));
    }
    let mut scan = Scan {
        pending: Vec::new(),
        pending_lsn: from,
        end: LogEnd { end: from, epoch: 0 },
        skip: if block_of(from) == first { (from.0 % PAYLOAD as u64) as usize } else { 0 },
        until,
        first: true,
    };
    let mut next = first;
    loop {
        if scan.is_over_at(lsn_of(next)) {
            return Ok((scan.end, None));
        }
        let epoch = scan.end.epoch;
        let found = match blocks.get(next)? {
            Some((header, payload)) if header.epoch >= epoch => Some((header, payload)),
            _ => None,
        };
        let goes_on = match found {
            Some((header, payload)) if scan.fits(&header) => {
                let goes_on = scan.block(&header, payload, to);
                goes_on.map_err(|e| name_place(&blocks.segments, e, next))?
            }
            // The epoch may have had to begin at a multiple of 4 KiB.
            _ => match blocks.epoch_start_behind(next, &scan)? {
                Some(start) => {
                    next = start;
                    continue;
                }
                None => return Ok((scan.end, Some(next))),
            },
        };
        if !goes_on {
            return Ok((scan.end, None));
        }
        next += 1;
    }
}

/// Checks the headers of the segments that a scan from `from` would read.
///
/// # Errors
/// `OtherDatabase` if one belongs to another database; `LogDamaged`, `LogMissing`, `LogVersion`,
/// `BadEncoding`; those of the environment.
pub fn check_segments(rt: &Runtime, from: Lsn) -> Result<()> {
    crate::segments::read_headers(rt, Some(from)).map(drop)
}

/// Syncs the segments that hold the log from `from` until `until`, because records that a scan has
/// read may never have been synced. Before this nothing that relies on them may be written.
///
/// # Errors
/// As `check_segments`; those of syncing.
pub fn sync_segments(rt: &Runtime, from: Lsn, until: Lsn) -> Result<()> {
    let mode = OpenMode { create: false, ..OpenMode::READ_WRITE };
    for header in crate::segments::read_headers(rt, Some(from))? {
        if header.first_block <= block_of(until) {
            rt.env.open(&segment_path(header.number), mode)?.sync()?;
        }
    }
    rt.env.sync_dir(crate::segments::DIR)?;
    rt.env.sync_dir("")
}

/// Assembles records from blocks.
struct Scan {
    /// Bytes of an incomplete record.
    pending: Vec<u8>,
    pending_lsn: Lsn,
    end: LogEnd,
    /// Payload bytes of the first block in front of `from`.
    skip: usize,
    until: Option<Lsn>,
    first: bool,
}

impl Scan {
    /// True if the block is valid at this place and continues the records read so far.
    fn fits(&self, header: &BlockHeader) -> bool {
        if self.first || header.epoch == self.end.epoch {
            return true;
        }
        header.flags == EPOCH_START && header.durable >= self.end.end
    }

    /// True if no further record is wanted.
    fn is_over_at(&self, next: Lsn) -> bool {
        let begun_before = |until| !self.pending.is_empty() && self.pending_lsn < until;
        self.until.is_some_and(|until| next >= until && !begun_before(until))
    }

    /// Processes a block; false once `until` is reached.
    fn block(&mut self, header: &BlockHeader, payload: &[u8], to: &mut dyn Replay) -> Result<bool> {
        if header.epoch != self.end.epoch {
            // A record that the epoch before left incomplete was never acknowledged.
            self.pending.clear();
            self.end.epoch = header.epoch;
        }
        self.first = false;
        let data = &payload[..usize::from(header.data_len)];
        let skip = std::mem::take(&mut self.skip).min(data.len());
        let mut rest = &data[skip..];
        let mut at = lsn_of(header.block).0 + skip as u64;
        if !self.pending.is_empty() {
            let missing = self.missing()?;
            let n = missing.min(rest.len());
            self.pending.extend_from_slice(&rest[..n]);
            (rest, at) = (&rest[n..], at + n as u64);
            // The length may be known only now.
            let missing = self.missing()?.min(rest.len());
            self.pending.extend_from_slice(&rest[..missing]);
            (rest, at) = (&rest[missing..], at + missing as u64);
            if self.missing()? == 0 {
                let record = std::mem::take(&mut self.pending);
                if let Some((kind, body)) = wal::split_record(&record)?
                    && !self.deliver(self.pending_lsn, kind, body, Lsn(at), to)?
                {
                    return Ok(false);
                }
                self.pending = record;
                self.pending.clear();
            }
        }
        while let Some((kind, body)) = wal::split_record(rest)? {
            let len = FRAME + body.len();
            if !self.deliver(Lsn(at), kind, body, Lsn(at + len as u64), to)? {
                return Ok(false);
            }
            (rest, at) = (&rest[len..], at + len as u64);
        }
        if !rest.is_empty() {
            if self.pending.is_empty() {
                self.pending_lsn = Lsn(at);
            }
            self.pending.extend_from_slice(rest);
        }
        if data.len() < PAYLOAD && !self.pending.is_empty() {
            return Err(damaged("a record runs into padding"));
        }
        if self.pending.is_empty() {
            // An empty block may be durable, too: the next epoch begins behind it.
            self.end.end = lsn_of(header.block + 1);
        }
        Ok(true)
    }

    /// Bytes that the pending record lacks, as far as known.
    fn missing(&self) -> Result<usize> {
        let have = self.pending.len();
        if have < FRAME {
            return Ok(FRAME - have);
        }
        wal::split_record(&self.pending)?; // checks the length
        let len = self.pending[..4].iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
        Ok(FRAME + len - have)
    }

    fn deliver(
        &mut self,
        lsn: Lsn,
        kind: RecordKind,
        body: &[u8],
        behind: Lsn,
        to: &mut dyn Replay,
    ) -> Result<bool> {
        if self.until.is_some_and(|until| lsn >= until) {
            return Ok(false);
        }
        to.record(lsn, kind, body)?;
        self.end.end = behind;
        Ok(true)
    }
}

pub(crate) fn damaged(why: &str) -> Error {
    Error::new(Code::LogDamaged).with("why", why)
}

/// Blocks by number, of which many are read at a time.
struct Blocks {
    segments: Arc<[SegmentHeader]>,
    reader: ChunkReader,
    /// The read-ahead, if much is to be read.
    ahead: Option<ScanAhead>,
    chunk: ScannedBlocks,
    /// The scan needs no block from here on.
    end: u64,
}

impl Blocks {
    fn new(
        rt: &Arc<Runtime>,
        segments: Vec<SegmentHeader>,
        from: Lsn,
        until: Option<Lsn>,
    ) -> Result<Blocks> {
        let segments: Arc<[SegmentHeader]> = segments.into();
        let first = block_of(from).max(1);
        let last = segments.last().map_or(0, |s| s.end_block());
        let end = until.map_or(last, |until| last.min(block_of(until) + 1));
        let is_long = end > first + AHEAD_BLOCKS_MIN;
        let ahead = is_long.then(|| ScanAhead::start(rt, &segments, first..end)).transpose()?;
        let reader = ChunkReader::new(rt, &segments);
        Ok(Blocks { segments, reader, ahead, chunk: ScannedBlocks::default(), end })
    }

    /// The valid block of this number, or `None` if its place has none.
    fn get(&mut self, block: u64) -> Result<Option<(BlockHeader, &[u8])>> {
        if !self.chunk.holds(block) && !self.load(block)? {
            return Ok(None);
        }
        Ok(self.chunk.get(block))
    }

    fn load(&mut self, block: u64) -> Result<bool> {
        if let Some(ahead) = &mut self.ahead
            && ahead.take(block, &mut self.chunk)?
        {
            return Ok(true);
        }
        let end = if block < self.end { self.end } else { u64::MAX };
        self.reader.read(&mut self.chunk, block, end)
    }

    fn stop(&mut self) -> Result<()> {
        self.ahead.as_mut().map_or(Ok(()), ScanAhead::stop)
    }

    /// The first block of the next epoch, if one took over at the present end of the scan.
    fn epoch_start_behind(&mut self, block: u64, scan: &Scan) -> Result<Option<u64>> {
        let start = block.next_multiple_of(BLOCKS_ALIGN);
        if start == block {
            return Ok(None);
        }
        Ok(match self.get(start)? {
            Some((h, _)) if h.epoch > scan.end.epoch && scan.fits(&h) => {
                (h.flags == EPOCH_START && h.durable <= lsn_of(block)).then_some(start)
            }
            _ => None,
        })
    }
}
