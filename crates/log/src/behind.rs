//! The look behind the end of the log that a scan has found: a valid block there that states a
//! durable position beyond the end proves that the log was damaged, not cut (B1).
//!
//! Every block up to the end of the last segment is examined, which is the prepared part (three
//! segments, usually). So a scan passes the look to its caller, which has other work to do
//! meanwhile (RFC 37) and writes nothing behind the end before the look has ended.

use crate::ahead::{segment_of, valid_block};
use crate::replay::{LogEnd, damaged};
use evenkeel_base::{Error, Result};
use evenkeel_format::wal::{BLOCK, BLOCKS_ALIGN, SegmentHeader, lsn_of, segment_path};
use evenkeel_io::{AlignedBuf, OpenMode, Runtime};
use std::sync::Arc;

/// Blocks that are read at a time.
const READ_BLOCKS: u64 = (1 << 20) / BLOCK as u64;

/// The look at the blocks behind the end of a scan, still to be done.
#[must_use = "a hole in the log is not told from its end before this was looked at"]
pub struct Behind {
    pub(crate) rt: Arc<Runtime>,
    pub(crate) segments: Arc<[SegmentHeader]>,
    /// The block that the scan did not find, or found with another epoch.
    pub(crate) broken: u64,
    pub(crate) end: LogEnd,
}

impl Behind {
    /// Approximate number of bytes that the look will read.
    pub fn bytes(&self) -> u64 {
        let is_behind = |s: &&SegmentHeader| s.end_block() > self.broken;
        let segments = self.segments.iter().filter(is_behind);
        segments.map(|s| (s.end_block() - s.first_block.max(self.broken)) * BLOCK as u64).sum()
    }

    /// Checks that the log has a block of this epoch, which was begun, or of a later one: the start
    /// of an epoch is durable before anything mentions it. The block may have been the last one, so
    /// no other proves it. A scan that found no block at all is not checked: its caller notices the
    /// missing records.
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

    /// Examines every block. Blocks of epochs before the one that ends there do not count, because
    /// that epoch replaced them.
    ///
    /// # Errors
    /// `LogDamaged` if a block states that something the scan did not find was durable; those of
    /// reading.
    pub fn check(&self) -> Result<()> {
        // These blocks are not needed again: bypass the system's cache, if the storage allows it.
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

    /// Examines blocks from this one on.
    fn look(&self, first: u64, bytes: &[u8]) -> Result<()> {
        let database = self.rt.database();
        for (number, bytes) in (first..).zip(bytes.chunks_exact(BLOCK)) {
            let valid = valid_block(number, bytes, database);
            let valid = valid.map_err(|e| name_place(&self.segments, e, number))?;
            let Some(header) = valid else { continue };
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

/// Adds the place of a block to an error.
pub(crate) fn name_place(segments: &[SegmentHeader], error: Error, block: u64) -> Error {
    match segment_of(segments, block) {
        Some(s) => error.with("file", segment_path(s.number)).with("offset", s.offset_of(block)),
        None => error.with("block", block),
    }
}
