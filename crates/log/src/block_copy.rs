//! Blocks of the log that are kept a second time: read as they are, compared, and put back where
//! the log has lost them. The checkpointer keeps the blocks of the checkpoint record so.
//!
//! Invariants: only durable blocks are read, which nothing writes again while the superblock names
//! their checkpoint. A block is put back only where the log has no valid block of its number, or
//! one of an earlier epoch: then the write of the block was lost.

use crate::ahead::{segment_of, valid_block};
use crate::log::Log;
use crate::segments::read_headers;
use evenkeel_base::{Code, Error, Lsn, Result};
use evenkeel_format::wal::{BLOCK, PAYLOAD, SegmentHeader, block_of, lsn_of, segment_path};
use evenkeel_io::{OpenMode, Runtime};
use std::ops::Range;

impl Log {
    /// The blocks of the records from `first` up to `behind`, which are durable: the number of the
    /// first block, and the bytes of all.
    ///
    /// # Errors
    /// Those of the environment.
    pub fn read_blocks(&self, first: Lsn, behind: Lsn) -> Result<(u64, Vec<u8>)> {
        let shared = self.shared();
        let blocks = block_of(first)..behind.0.div_ceil(PAYLOAD as u64);
        let headers = shared.segments.headers_from(first);
        let mut bytes = vec![0; (blocks.end - blocks.start) as usize * BLOCK];
        read(&shared.rt, &headers, blocks.clone(), &mut bytes)?;
        Ok((blocks.start, bytes))
    }

    /// As the function `lost_blocks`, of the log that is open.
    ///
    /// # Errors
    /// As the function.
    pub fn lost_blocks(&self, first: u64, copies: &[u8]) -> Result<Vec<LostBlock>> {
        let shared = self.shared();
        lost(&shared.rt, &shared.segments.headers_from(lsn_of(first)), first, copies)
    }
}

/// Reads blocks of several segments. # Errors: `LogMissing`; those of the environment.
fn read(
    rt: &Runtime,
    segments: &[SegmentHeader],
    blocks: Range<u64>,
    bytes: &mut [u8],
) -> Result<()> {
    let mut next = blocks.start;
    while next < blocks.end {
        let Some(segment) = segment_of(segments, next) else {
            return Err(Error::new(Code::LogMissing).with("lsn", lsn_of(next)));
        };
        let behind = segment.end_block().min(blocks.end);
        let place = |block: u64| (block - blocks.start) as usize * BLOCK;
        let file = rt.env.open(&segment_path(segment.number), OpenMode::READ)?;
        file.read_at(&mut bytes[place(next)..place(behind)], segment.offset_of(next))?;
        next = behind;
    }
    Ok(())
}

/// A block that the log has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostBlock {
    /// Its number.
    pub number: u64,
    /// The file in which it should be.
    pub path: String,
    /// Its offset there.
    pub offset: u64,
}

/// Compares blocks of the log with copies of them, from block `first` on. Returns the blocks that
/// the log has lost and of which the copy is valid.
///
/// # Errors
/// `LogVersion` for blocks of a newer version; as `check_segments`; those of the environment.
pub fn lost_blocks(rt: &Runtime, first: u64, copies: &[u8]) -> Result<Vec<LostBlock>> {
    lost(rt, &read_headers(rt, Some(lsn_of(first)))?, first, copies)
}

fn lost(
    rt: &Runtime,
    segments: &[SegmentHeader],
    first: u64,
    copies: &[u8],
) -> Result<Vec<LostBlock>> {
    let blocks = first..first + (copies.len() / BLOCK) as u64;
    let mut bytes = vec![0; copies.len()];
    read(rt, segments, blocks.clone(), &mut bytes)?;
    let mut lost = Vec::new();
    let pairs = bytes.chunks_exact(BLOCK).zip(copies.chunks_exact(BLOCK));
    for (number, (found, copy)) in blocks.zip(pairs) {
        let Some(wanted) = valid_block(number, copy, rt.database())? else { continue };
        let found = valid_block(number, found, rt.database())?;
        if found.is_none_or(|found| found.epoch < wanted.epoch)
            && let Some(segment) = segment_of(segments, number)
        {
            let (path, offset) = (segment_path(segment.number), segment.offset_of(number));
            lost.push(LostBlock { number, path, offset });
        }
    }
    Ok(lost)
}

/// Writes copies of lost blocks to their places, durably; `first` is the number of the first copy.
///
/// # Errors
/// Those of the environment.
pub fn put_blocks(rt: &Runtime, first: u64, copies: &[u8], lost: &[LostBlock]) -> Result<()> {
    let mode = OpenMode { create: false, ..OpenMode::READ_WRITE };
    for block in lost {
        let file = rt.env.open(&block.path, mode)?;
        let at = (block.number - first) as usize * BLOCK;
        file.write_at(&copies[at..at + BLOCK], block.offset)?;
        file.sync()?;
    }
    Ok(())
}
