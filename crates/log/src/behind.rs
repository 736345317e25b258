//! What lies behind the end of the log that a scan has found: a block of its place that states a
//! durable position beyond the end proves that the log was damaged, not cut (B1).
//!
//! Every block up to the end of the last segment is looked at, which is as much as lies prepared
//! (three segments, as a rule). So a scan hands the look to its caller, who has other work to do
//! meanwhile (RFC 37) and begins nothing behind the end before the look is over.

use crate::ahead::{segment_of, valid_block};
use crate::replay::{LogEnd, damaged};
use evenkeel_base::{Error, Result};
use evenkeel_format::wal::{BLOCK, BLOCKS_ALIGN, SegmentHeader, lsn_of, segment_path};
use evenkeel_io::{AlignedBuf, OpenMode, Runtime};
use std::sync::Arc;

/// Blocks that are read at once.
const READ_BLOCKS: u64 = (1 << 20) / BLOCK as u64;

/// The look at what lies behind the end of a scan, still to be taken.
#[must_use = "a hole in the log is not told from its end before this was looked at"]
pub struct Behind {
    pub(crate) rt: Arc<Runtime>,
    pub(crate) segments: Arc<[SegmentHeader]>,
    /// The block that the scan did not find, or not of its epoch.
    pub(crate) broken: u64,
    pub(crate) end: LogEnd,
}

impl Behind {
    /// Bytes that the look will read, nearly.
    pub fn bytes(&self) -> u64 {
        let is_behind = |s: &&SegmentHeader| s.end_block() > self.broken;
        let segments = self.segments.iter().filter(is_behind);
        segments.map(|s| (s.end_block() - s.first_block.max(self.broken)) * BLOCK as u64).sum()
    }

    /// The log has to have a block of this epoch, which was begun, or of a younger one: its start
    /// is durable before anything says so. It may have been the last block, so that none tells.
    /// Nothing is said of a scan that found no block at all: its caller misses what it looks for.
    ///
    /// # Errors
    /// `LogDamaged` if the scan ended in an older one.
    pub fn check_epoch(&self, begun: u32) -> Result<()> {
        if self.end.epoch >= begun || self.end.epoch == 0 {
            return Ok(());
        }
        let error = damaged("it ends before the epoch that was begun last")
            .with("lsn", self.end.end)
            .with("epoch", self.end.epoch)
            .with("begun", begun);
        Err(name_place(&self.segments, error, self.broken))
    }

    /// Looks at every block. Blocks of epochs before the one that ends there do not count: it took
    /// over from them, whatever they say.
    ///
    /// # Errors
    /// `LogDamaged` if one states that what the scan did not find was durable; those of reading.
    pub fn check(&self) -> Result<()> {
        // Nobody needs these blocks again: past the system's cache, where the storage allows it.
        let mode = OpenMode::READ.direct();
        let mut buf = AlignedBuf::new(READ_BLOCKS as usize * BLOCK);
        for segment in self.segments.iter().filter(|s| s.end_block() > self.broken + 1) {
            let file = self.rt.env.open(&segment_path(segment.number), mode)?;
            let skipped = (self.broken + 1).saturating_sub(segment.first_block);
            let mut at = segment.first_block + skipped / BLOCKS_ALIGN * BLOCKS_ALIGN;
            while at < segment.end_block() {
                let behind = segment.end_block().min(at + READ_BLOCKS);
                let bytes = &mut buf[..(behind - at) as usize * BLOCK];
                file.read_at(bytes, segment.offset_of(at))?;
                self.look(at, bytes)?;
                at = behind;
                self.rt.step();
            }
        }
        Ok(())
    }

    /// Looks at blocks from this one on.
    fn look(&self, first: u64, bytes: &[u8]) -> Result<()> {
        let database = self.rt.database();
        for (number, bytes) in (first..).zip(bytes.chunks_exact(BLOCK)) {
            let Some(header) = valid_block(number, bytes, database) else { continue };
            let is_behind = number > self.broken && header.epoch >= self.end.epoch;
            if is_behind && header.durable > lsn_of(self.broken) {
                let error = damaged("a block is invalid")
                    .with("lsn", self.end.end)
                    .with("durable", header.durable)
                    .with("stated_by_block", number);
                return Err(name_place(&self.segments, error, self.broken));
            }
        }
        Ok(())
    }
}

/// Says where a block lies.
pub(crate) fn name_place(segments: &[SegmentHeader], error: Error, block: u64) -> Error {
    match segment_of(segments, block) {
        Some(s) => error.with("file", segment_path(s.number)).with("offset", s.offset_of(block)),
        None => error.with("block", block),
    }
}
