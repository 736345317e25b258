//! Copies the log while it is written. The copy has the segments of the log, under their names and
//! with their headers; blocks behind the end are zeros.
//!
//! ```text
//! redo <= copied <= scanned <= durable
//! ```
//!
//! A piece of a segment is copied once all its blocks are durable, and the pin then moves behind
//! it. The last piece, which is not full, is copied by `finish`, when the end is fixed.

use crate::backup::destination::Destination;
use crate::backup::log_watch::LogWatch;
use evenkeel_base::{Code, Error, Lsn, Result};
use evenkeel_format::backup::PIECE_BYTES;
use evenkeel_format::space::Geometry;
use evenkeel_format::superblock::Superblock;
use evenkeel_format::wal::{
    BLOCK, PAYLOAD, SEGMENT_HEADER, SegmentHeader, block_of, lsn_of, segment_path,
};
use evenkeel_io::{AlignedBuf, OpenMode, Runtime};
use evenkeel_log::LogPin;
use std::sync::Arc;

pub(super) struct LogCopy {
    rt: Arc<Runtime>,
    /// What the records say.
    pub watch: LogWatch,
    /// A record boundary: the records below were given to `watch`.
    scanned: Lsn,
    /// The blocks below this one were copied, or lie before the beginning.
    copied: u64,
    /// What lies below was read.
    durable: Lsn,
    /// Behind the last block that is wanted so far.
    end_block: u64,
    /// The segments that hold what was not copied yet, and the piece that is next.
    segments: Vec<SegmentHeader>,
    next_piece: u64,
    piece: AlignedBuf,
}

impl LogCopy {
    pub(super) fn new(
        rt: Arc<Runtime>,
        superblock: &Superblock,
        page_size: usize,
    ) -> Result<LogCopy> {
        let watch = LogWatch::new(Geometry::new(page_size)?, superblock.checkpoint);
        let first = block_of(superblock.redo);
        Ok(LogCopy {
            rt,
            watch,
            scanned: superblock.redo,
            copied: first,
            durable: superblock.redo,
            end_block: first,
            segments: Vec::new(),
            next_piece: 0,
            piece: AlignedBuf::new(PIECE_BYTES as usize),
        })
    }

    /// Behind the last whole record that was read.
    pub(super) fn end(&self) -> Lsn {
        self.scanned
    }

    /// Reads and copies what is durable below `durable`; returns the bytes written.
    ///
    /// # Errors
    /// `BackupBehindLog` if the pin is broken; those of the log and of the destination.
    pub(super) fn copy(&mut self, durable: Lsn, pin: &LogPin, to: &mut Destination) -> Result<u64> {
        self.check_pin(pin)?;
        if durable <= self.durable {
            return Ok(0);
        }
        let scanned = pin.scan(self.scanned, durable, &mut self.watch);
        // Without the pin the scan may have met anything.
        self.check_pin(pin)?;
        self.scanned = self.scanned.max(scanned?.end);
        self.durable = durable;
        self.end_block = self.end_block.max(durable.0.div_ceil(PAYLOAD as u64));
        let mut moved = 0;
        loop {
            if self.segments.is_empty() {
                moved += self.begin_segment(pin, to)?;
            }
            let Some(segment) = self.segments.first().copied() else { break };
            if piece_end(&segment, self.next_piece) > self.end_block {
                break;
            }
            moved += self.copy_piece(&segment, pin, to)?;
        }
        Ok(moved)
    }

    /// Begins with the segment of the next block. The first piece has its header, and is copied
    /// even if the backup begins further on.
    fn begin_segment(&mut self, pin: &LogPin, to: &mut Destination) -> Result<u64> {
        self.segments = pin.segments_from(lsn_of(self.copied));
        let Some(segment) = self.segments.first().copied() else { return Ok(0) };
        self.next_piece = 0;
        let first = piece_of(&segment, self.copied.max(segment.first_block));
        if first == 0 {
            return Ok(0);
        }
        let moved = self.copy_piece(&segment, pin, to)?;
        self.next_piece = first;
        Ok(moved)
    }

    /// Lets the log go that was copied.
    ///
    /// # Errors
    /// `BackupBehindLog` if the pin is broken: what was read since the last call may be wrong.
    fn check_pin(&self, pin: &LogPin) -> Result<()> {
        match pin.advance(lsn_of(self.copied)) {
            true => Ok(()),
            false => Err(Error::new(Code::BackupBehindLog).with("lsn", lsn_of(self.copied))),
        }
    }

    /// Copies the next piece of a segment, without the blocks from `end_block` on.
    fn copy_piece(
        &mut self,
        segment: &SegmentHeader,
        pin: &LogPin,
        to: &mut Destination,
    ) -> Result<u64> {
        let path = segment_path(segment.number);
        let start = self.next_piece * PIECE_BYTES;
        let len = PIECE_BYTES.min(segment.file_bytes() - start) as usize;
        let opened = self.rt.env.open(&path, OpenMode::READ.direct());
        let read = opened.and_then(|file| file.read_at(&mut self.piece[..len], start));
        self.check_pin(pin)?;
        read?;
        let wanted = match self.end_block < segment.end_block() {
            true => segment.offset_of(self.end_block.max(segment.first_block)) - start,
            false => len as u64,
        };
        self.piece[(wanted as usize).min(len)..len].fill(0);
        to.write(&path, self.next_piece, &mut self.piece, len)?;
        self.copied = piece_end(segment, self.next_piece).min(self.end_block).max(self.copied);
        self.next_piece += 1;
        if self.copied == segment.end_block() {
            to.close(&path, segment.file_bytes())?;
            (self.segments, self.next_piece) = (Vec::new(), 0);
        }
        Ok(len as u64)
    }

    /// # Errors
    /// `LogDamaged` if the scan ended before a record that is durable.
    pub(super) fn check_reached(&self, last: Lsn) -> Result<()> {
        if self.scanned >= last {
            return Ok(());
        }
        let error = Error::new(Code::LogDamaged).with("lsn", self.scanned);
        Err(error.with("durable", last).with("why", "a backup cannot read it to its end"))
    }

    /// Copies the last piece, when the end is fixed.
    ///
    /// # Errors
    /// Those of the log and of the destination; `CheckpointMissing`.
    pub(super) fn finish(&mut self, pin: &LogPin, to: &mut Destination) -> Result<()> {
        if !self.watch.has_checkpoint() {
            return Err(Error::new(Code::CheckpointMissing).with("lsn", self.scanned));
        }
        let Some(segment) = self.segments.first().copied() else { return Ok(()) };
        if self.end_block > self.copied {
            self.copy_piece(&segment, pin, to)?;
        }
        let path = segment_path(segment.number);
        if to.has(&path) {
            to.close(&path, segment.file_bytes())?;
        }
        Ok(())
    }
}

/// The piece of a segment's file that holds a block.
fn piece_of(segment: &SegmentHeader, block: u64) -> u64 {
    segment.offset_of(block) / PIECE_BYTES
}

/// The block behind the last one that lies in a piece as a whole. Pieces end between blocks.
fn piece_end(segment: &SegmentHeader, piece: u64) -> u64 {
    let end = ((piece + 1) * PIECE_BYTES).min(segment.file_bytes());
    segment.first_block + (end - SEGMENT_HEADER as u64) / BLOCK as u64
}
