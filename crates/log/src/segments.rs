//! The segment files: prepared ahead, written through, recycled behind the checkpoint.
//!
//! Invariants. Segments follow each other without a gap. A file under a segment's name always has
//! that segment's intact header: a new file gets its blocks, is zero-written if each commit waits
//! for the sync of its own write, and is synced, all under a temporary name, and is then renamed. A
//! recycled file first loses its name (durably), then gets its new header, then its new name. Other
//! content of a file never counts as log, because blocks carry their number and epoch. Temporary
//! files are removed at the next start. At least two segments lie ahead of the end before users are
//! admitted; a third grows as the log does. If the log shrinks, segments made for the larger log
//! are removed instead of recycled, from either end of the row, each durably before the next; one
//! stays. So are those that a log at rest does not need (`rest`). A pin keeps segments that lie
//! below the checkpoint for a reader (a backup). It never holds up a writer: further segments are
//! made meanwhile, and the pin breaks when it holds back more than its limit, or when there is no
//! space for another segment. `SegmentTable` is locked for table work only, never across I/O; one
//! thread at a time prepares and removes.

use crate::space::payload;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Cause, Code, DatabaseId, Error, Lsn, Result, sync::Mutex};
use evenkeel_format::wal::{
    BLOCK, BLOCKS_ALIGN, SEGMENT_HEADER, SegmentHeader, block_of, lsn_of, segment_number,
    segment_path,
};
use evenkeel_io::{AlignedBuf, File, OpenMode, Runtime};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const DIR: &str = "wal";
const NEW: &str = "wal/new.tmp";
const RECYCLE: &str = "wal/recycle.tmp";
const PROBE: &str = "wal/probe.tmp";
/// How long, and at what interval, a write is repeated that failed for want of a resource.
const SHORTAGE_NS: u64 = 60_000_000_000;
const SHORTAGE_REST: Duration = Duration::from_millis(20);

/// Bytes zero-written in one step.
const STEP: u64 = 1 << 20;
/// Size of the first segments: a new directory stays small.
const FIRST_SEGMENT: u64 = 1 << 20;
/// A log at rest keeps as many bytes as so many of them have.
const SMALL_SEGMENTS: u64 = 4;

/// Bytes of a segment file for a log of `log_bytes` (B1; below 32 MiB, in tests, a sixteenth).
pub(crate) fn segment_bytes(log_bytes: u64) -> u64 {
    let sixteenth = log_bytes / 16 / SEGMENT_HEADER as u64 * SEGMENT_HEADER as u64;
    if log_bytes >= 32 << 20 {
        sixteenth.clamp(4 << 20, 64 << 20)
    } else {
        sixteenth.max(8 * SEGMENT_HEADER as u64)
    }
}

#[derive(Clone)]
pub(crate) struct LogSegment {
    header: SegmentHeader,
    file: Arc<dyn File>,
}

/// Whether the log is used, for the number of its segments (`rest`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Users write, or have written a short time ago.
    #[default]
    Busy,
    /// Nothing was appended for a minute.
    Idle,
    /// Nothing will be appended any more.
    Closing,
}

#[derive(Default)]
struct SegmentTable {
    /// In order; the first may lie entirely below the checkpoint.
    segments: VecDeque<LogSegment>,
    /// Number of the next one.
    next_number: u64,
    /// Bytes of a new segment, after the first ones.
    segment_bytes: u64,
    /// Limit of the bytes of all segments, with two ahead.
    log_bytes: u64,
    /// No user is admitted yet: further segments are as small as those of a new directory.
    is_opening: bool,
    activity: Activity,
    /// Segments from here on are kept for a reader, though the checkpoint has passed them.
    pin: Option<Pin>,
}

/// A position that holds segments back.
#[derive(Clone, Copy)]
struct Pin {
    from: Lsn,
    /// Bytes of log below the checkpoint that it may hold back.
    limit: u64,
    /// It holds nothing back any more: it held more than its limit, or the disk became full.
    is_broken: bool,
}

/// The ends of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// The end of the last segment.
    pub(crate) end: Lsn,
    /// The end without the last two segments.
    pub(crate) user: Lsn,
}

/// A new segment being prepared.
struct Growing {
    file: Arc<dyn File>,
    bytes: u64,
    done: u64,
}

pub(crate) struct Segments {
    rt: Arc<Runtime>,
    table: Mutex<SegmentTable>,
    growing: Mutex<Option<Growing>>,
    /// Writes are multiples of this many blocks.
    align: u64,
    /// Written bypassing the system's page cache.
    direct: bool,
}

/// The headers of the segments in a directory in order, without irrelevant ones below `from`, and
/// the size of each file.
///
/// # Errors
/// `BadEncoding` and others for a damaged header; `LogMissing` for a gap.
pub(crate) fn read_headers(rt: &Runtime, from: Option<Lsn>) -> Result<Vec<SegmentHeader>> {
    let mut headers: Vec<SegmentHeader> = Vec::new();
    let mut numbers: Vec<u64> =
        rt.env.list(DIR)?.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable_by_key(|n| std::cmp::Reverse(*n));
    for number in numbers {
        let path = segment_path(number);
        let file = rt.env.open(&path, OpenMode::READ)?;
        let mut bytes = vec![0; SEGMENT_HEADER];
        file.read_at(&mut bytes, 0)?;
        let at = |error: Error, offset: u64| error.with("file", &path).with("offset", offset);
        let header = SegmentHeader::decode(&bytes).map_err(|e| at(e, 0))?;
        let damaged = |offset, why| at(Error::new(Code::LogDamaged), offset).with("why", why);
        if header.database != rt.database() {
            return Err(at(Error::new(Code::OtherDatabase), 0)
                .with("found", format_args!("{:016x}", header.database.0))
                .with("database", format_args!("{:016x}", rt.database().0)));
        }
        if header.number != number {
            return Err(damaged(0, "its header has another number"));
        }
        let len = file.len()?;
        if len < header.file_bytes() {
            return Err(damaged(len, "the file is too short"));
        }
        if let Some(next) = headers.last()
            && (next.number != number + 1 || next.first_block != header.end_block())
        {
            return Err(Error::new(Code::LogMissing).with("file", segment_path(number + 1)));
        }
        headers.push(header);
        if from.is_some_and(|from| header.first_block <= block_of(from)) {
            break;
        }
    }
    headers.reverse();
    Ok(headers)
}

impl Segments {
    /// Opens or creates the segments so that blocks from `start` on can be written; everything
    /// below `start` is synced. Returns the segments, and the LSN at which the oldest one begins.
    ///
    /// # Errors
    /// Those of the environment and of `read_headers`.
    pub(crate) fn open(
        rt: &Arc<Runtime>,
        log_bytes: u64,
        start: Lsn,
        align_min: u64,
        direct: bool,
    ) -> Result<(Segments, Lsn)> {
        rt.env.create_dir(DIR)?;
        for name in [NEW, RECYCLE, PROBE] {
            rt.env.remove(name)?;
        }
        let align = probe_align(rt)?.max(align_min);
        let mut table =
            SegmentTable { next_number: 1, is_opening: true, ..SegmentTable::default() };
        table.set_log_bytes(log_bytes);
        let segments = Segments {
            rt: rt.clone(),
            table: Mutex::new(table),
            growing: Mutex::new(None),
            align,
            direct,
        };
        let oldest = segments.adopt(start)?;
        Ok((segments, oldest))
    }

    /// Takes over the existing files.
    fn adopt(&self, start: Lsn) -> Result<Lsn> {
        let start_block = block_of(start).next_multiple_of(BLOCKS_ALIGN);
        let mut found = Vec::new();
        for header in read_headers(&self.rt, None)? {
            let mode = OpenMode { create: false, direct: self.direct, ..OpenMode::READ_WRITE };
            let file = self.rt.env.open(&segment_path(header.number), mode)?;
            // The records that replay has read may never have been synced.
            if header.first_block <= start_block {
                file.sync()?;
            }
            found.push(LogSegment { header, file });
        }
        self.rt.env.sync_dir(DIR)?;
        self.rt.env.sync_dir("")?;
        let mut table = self.table.lock();
        if let Some(last) = found.last() {
            table.next_number = last.header.number + 1;
            if last.header.end_block() < block_of(start) {
                return Err(Error::new(Code::LogMissing)
                    .with("file", segment_path(table.next_number))
                    .with("lsn", start));
            }
        }
        if let Some(first) = found.first()
            && first.header.first_block > block_of(start).max(1)
        {
            let path = segment_path(first.header.number.saturating_sub(1));
            return Err(Error::new(Code::LogMissing).with("file", path).with("lsn", start));
        }
        table.segments = found.into();
        Ok(match table.segments.front() {
            Some(first) => lsn_of(first.header.first_block).min(start),
            None => start,
        })
    }

    /// Writes are multiples of this many blocks.
    pub(crate) fn align(&self) -> u64 {
        self.align
    }

    /// Changes the size of the log.
    pub(crate) fn set_log_bytes(&self, log_bytes: u64) {
        self.table.lock().set_log_bytes(log_bytes);
    }

    /// Users are admitted from now on.
    pub(crate) fn end_opening(&self) {
        self.table.lock().is_opening = false;
    }

    pub(crate) fn activity(&self) -> Activity {
        self.table.lock().activity
    }

    pub(crate) fn set_activity(&self, activity: Activity) {
        self.table.lock().activity = activity;
    }

    /// True if the log would give a segment back if it were at rest.
    pub(crate) fn has_recyclable(&self, checkpoint: Lsn) -> bool {
        let table = self.table.lock();
        table.segments.len() > 1 && table.recyclable(checkpoint)
    }

    /// Keeps the segments from `checkpoint` on until `unpin`; false if they are pinned already.
    pub(crate) fn pin(&self, checkpoint: Lsn, limit: u64) -> bool {
        let mut table = self.table.lock();
        if table.pin.is_some() {
            return false;
        }
        table.pin = Some(Pin { from: checkpoint, limit, is_broken: false });
        true
    }

    /// Moves the pin; false if it is broken.
    pub(crate) fn move_pin(&self, to: Lsn) -> bool {
        match &mut self.table.lock().pin {
            Some(pin) => {
                pin.from = pin.from.max(to);
                !pin.is_broken
            }
            None => false,
        }
    }

    /// Releases the segments.
    pub(crate) fn unpin(&self) {
        self.table.lock().pin = None;
    }

    /// The headers of the segments that hold the log from a position on, in order.
    pub(crate) fn headers_from(&self, from: Lsn) -> Vec<SegmentHeader> {
        let table = self.table.lock();
        let headers = table.segments.iter().map(|segment| segment.header);
        headers.filter(|header| lsn_of(header.end_block()) > from).collect()
    }

    /// The ends of the segments.
    pub(crate) fn prepared(&self) -> Prepared {
        let table = self.table.lock();
        let segments = &table.segments;
        let end = segments.back().map_or(0, |s| s.header.end_block());
        let user = match segments.len() {
            0 | 1 => 0,
            n => segments[n - 2].header.first_block,
        };
        Prepared { end: lsn_of(end), user: lsn_of(user) }
    }

    /// True if fewer than three segments lie ahead of a position, and one more is allowed.
    pub(crate) fn wants_more(&self, position: Lsn, checkpoint: Lsn) -> bool {
        let table = self.table.lock();
        let ahead = table.ahead(position);
        match table.activity {
            Activity::Busy => {
                ahead < 3 && (ahead < 2 || table.recyclable(checkpoint) || table.may_create())
            }
            Activity::Idle => ahead < 2,
            Activity::Closing => false,
        }
    }

    /// True if a step of preparing a segment is due while the log is written at `position`. Zeros
    /// are written at the pace of the log: written all at once they would delay commits, and the
    /// segment is needed only when the current one is full.
    pub(crate) fn is_due(&self, position: Lsn, checkpoint: Lsn) -> bool {
        let growing = self.growing.lock().as_ref().map(|g| (g.done, g.bytes));
        if !self.wants_more(position, checkpoint) {
            return false;
        }
        let table = self.table.lock();
        // A growing segment is completed first.
        let is_at_hand = growing.is_none() && table.recyclable(checkpoint);
        if !self.direct || table.ahead(position) < 2 || is_at_hand {
            return true;
        }
        let (done, bytes) = growing.unwrap_or((0, 1));
        let (begun, all) = table.progress(position);
        u128::from(done) * u128::from(all) < u128::from(bytes) * u128::from(begun + begun / 4)
    }

    /// True if the segment of `end` and two ahead do not all exist yet.
    pub(crate) fn wants_first(&self, end: Lsn) -> bool {
        let table = self.table.lock();
        table.segments.back().is_none_or(|s| lsn_of(s.header.end_block()) <= end)
            || table.ahead(end) < 2
    }

    /// True if there is a segment below the checkpoint that will not be reused, or one that begins
    /// behind `kept`, or grows, and is larger than those of this size of the log. A log at rest has
    /// further ones.
    pub(crate) fn has_surplus(&self, kept: Lsn, checkpoint: Lsn) -> bool {
        let grows = self.growing.lock().as_ref().map_or(0, |growing| growing.bytes);
        let table = self.table.lock();
        table.surplus_behind(checkpoint) || table.surplus_ahead(kept) > 0 || table.is_large(grows)
    }

    /// Removes a segment below the checkpoint that will not be reused; false if there is none. One
    /// thread at a time, as for all preparation.
    ///
    /// # Errors
    /// Those of the environment; the segment is still there.
    pub(crate) fn remove_behind(&self, checkpoint: Lsn) -> Result<bool> {
        let old = {
            let mut table = self.table.lock();
            let is_surplus = table.surplus_behind(checkpoint);
            is_surplus.then(|| table.segments.pop_front()).flatten()
        };
        let Some(old) = old else { return Ok(false) };
        self.remove_oldest(old)?;
        Ok(true)
    }

    /// Takes the segments that begin behind `kept` and are larger than those of this size of the
    /// log from the table, in order, for `remove_ahead`.
    pub(crate) fn cut_ahead(&self, kept: Lsn) -> Vec<LogSegment> {
        let mut table = self.table.lock();
        let from = table.segments.len() - table.surplus_ahead(kept);
        let cut: Vec<LogSegment> = table.segments.drain(from..).collect();
        if let Some(first) = cut.first() {
            table.next_number = first.header.number;
        }
        cut
    }

    /// Removes the files of `cut_ahead`, and a growing one that is too large.
    ///
    /// # Errors
    /// Those of the environment; the segments of remaining files return to the table.
    pub(crate) fn remove_ahead(&self, mut cut: Vec<LogSegment>) -> Result<()> {
        // The last one first, and each durably before the next, so that a crash leaves no gap.
        while let Some(last) = cut.pop() {
            let path = segment_path(last.header.number);
            self.rt.remove_file(&path).inspect_err(|_| {
                let mut table = self.table.lock();
                table.next_number = last.header.number + 1;
                table.segments.extend(cut.drain(..).chain([last.clone()]));
            })?;
            self.sync_names()?;
        }
        let growing = self.take_growing()?;
        *self.growing.lock() = growing;
        Ok(())
    }

    /// One step (at most 1 MiB of writing) towards one more segment, by recycling or creating; true
    /// once it is ready. One thread at a time.
    ///
    /// # Errors
    /// `DiskFull`: nothing has changed, try again later. Others: see the environment.
    pub(crate) fn prepare_step(&self, start: Lsn, checkpoint: Lsn) -> Result<bool> {
        self.table.lock().check_pin(checkpoint);
        let mut growing = match self.take_growing()? {
            Some(growing) => growing,
            None => {
                if self.recycle(checkpoint)? {
                    return Ok(true);
                }
                self.begin_growing()?
            }
        };
        match self.grow(&mut growing) {
            Ok(false) => {
                *self.growing.lock() = Some(growing);
                Ok(false)
            }
            Ok(true) => {
                let header =
                    self.table.lock().next_header(growing.bytes, start, self.rt.database());
                self.write_header(&*growing.file, header)?;
                self.publish(NEW, header, growing.file)?;
                Ok(true)
            }
            Err(error) => {
                drop(growing);
                self.rt.env.remove(NEW)?;
                // What the pin holds back can be recycled instead.
                self.table.lock().break_pin();
                Err(error)
            }
        }
    }

    /// The growing segment; it is removed if it is now too large.
    fn take_growing(&self) -> Result<Option<Growing>> {
        let growing = self.growing.lock().take();
        if growing.as_ref().is_some_and(|growing| self.table.lock().is_large(growing.bytes)) {
            drop(growing);
            self.rt.env.remove(NEW)?;
            return Ok(None);
        }
        Ok(growing)
    }

    /// Removes the file of a segment that is not ready yet.
    ///
    /// # Errors
    /// Those of the environment.
    pub(crate) fn drop_growing(&self) -> Result<()> {
        let growing = self.growing.lock().take();
        growing.map_or(Ok(()), |_| self.rt.env.remove(NEW))
    }

    fn begin_growing(&self) -> Result<Growing> {
        let bytes = self.table.lock().next_bytes();
        self.rt.env.remove(NEW)?;
        let mode = OpenMode { direct: self.direct, ..OpenMode::READ_WRITE };
        let file = self.rt.env.open(NEW, mode)?;
        Ok(Growing { file, bytes, done: 0 })
    }

    fn grow(&self, growing: &mut Growing) -> Result<bool> {
        if growing.done == 0 {
            growing.file.allocate(0, growing.bytes)?;
        }
        if !self.direct {
            // In this mode the first write of a block is synced within a second, not by its commit.
            // The file system's bookkeeping of newly used blocks is then paid once for many, which
            // costs less than zeros for every byte of the log.
            growing.done = growing.bytes;
            return Ok(true);
        }
        let n = STEP.min(growing.bytes - growing.done);
        growing.file.write_at(&AlignedBuf::new(n as usize), growing.done)?;
        self.rt.metrics.add(Metric::LogPreparedBytes, n);
        growing.done += n;
        Ok(growing.done == growing.bytes)
    }

    fn write_header(&self, file: &dyn File, header: SegmentHeader) -> Result<()> {
        let mut bytes = AlignedBuf::new(SEGMENT_HEADER);
        header.encode(&mut bytes);
        file.write_at(&bytes, 0)?;
        self.rt.metrics.add(Metric::LogPreparedBytes, SEGMENT_HEADER as u64);
        Ok(())
    }

    /// Syncs a file with its new header and gives it its name.
    fn publish(&self, from: &str, header: SegmentHeader, file: Arc<dyn File>) -> Result<()> {
        file.sync()?;
        self.rt.env.rename(from, &segment_path(header.number))?;
        self.sync_names()?;
        let mut table = self.table.lock();
        table.next_number = header.number + 1;
        table.segments.push_back(LogSegment { header, file });
        Ok(())
    }

    /// Turns the oldest segment into the next one, if it lies below the checkpoint. A segment of
    /// another size, or an excess one, is removed instead.
    fn recycle(&self, checkpoint: Lsn) -> Result<bool> {
        loop {
            let (old, header) = {
                let mut table = self.table.lock();
                if !table.recyclable(checkpoint) {
                    return Ok(false);
                }
                let Some(old) = table.segments.pop_front() else { return Ok(false) };
                let bytes = old.header.file_bytes();
                let too_many = table.bytes() + table.segment_bytes > table.log_bytes;
                // The only segment says where the next one begins.
                let large = table.is_large(bytes) && !table.segments.is_empty();
                let fits = bytes >= table.next_bytes() && !large && !too_many;
                let header = table.next_header(bytes, checkpoint, self.rt.database());
                (old, fits.then_some(header))
            };
            let Some(header) = header else {
                self.remove_oldest(old)?;
                continue;
            };
            let path = segment_path(old.header.number);
            self.unless_named(self.rt.env.rename(&path, RECYCLE), old.clone())?;
            self.sync_names()?;
            self.write_header(&*old.file, header)?;
            self.publish(RECYCLE, header, old.file)?;
            self.rt.metrics.add(Metric::LogRecycled, 1);
            return Ok(true);
        }
    }

    /// A failed sync of the directory stops writes, whatever the reason: a lost rename leaves a gap
    /// among the segments.
    fn sync_names(&self) -> Result<()> {
        self.rt.env.sync_dir(DIR).map_err(|error| self.rt.health.fail(error))
    }

    /// Removes the file of the former first segment.
    fn remove_oldest(&self, old: LogSegment) -> Result<()> {
        let path = segment_path(old.header.number);
        self.unless_named(self.rt.remove_file(&path), old)?;
        self.sync_names()
    }

    /// Puts a segment back whose file could not be renamed: if its name stayed and later segments
    /// were recycled, the next start would find a gap.
    fn unless_named(&self, taken: Result<()>, old: LogSegment) -> Result<()> {
        taken.inspect_err(|_| self.table.lock().segments.push_front(old))
    }

    /// Writes blocks; counts bytes and segments begun. Their blocks are reserved, so usually no
    /// space is needed. If the system is short of a resource all the same (memory; a file system
    /// that copies on write) nothing is lost, and the write is repeated for up to `SHORTAGE_NS`.
    pub(crate) fn write(&self, first_block: u64, bytes: &[u8]) -> Result<()> {
        let until_ns = self.rt.env.now_ns().saturating_add(SHORTAGE_NS);
        loop {
            let error = match self.write_once(first_block, bytes) {
                Err(error) if error.code().is_shortage() => error,
                other => return other,
            };
            if self.rt.env.now_ns() >= until_ns || self.rt.health.is_failed() {
                return Err(error);
            }
            log::warn!("the log cannot be written, which is tried again: {error}");
            self.rt.delay(SHORTAGE_REST, Cause::LogSync);
        }
    }

    fn write_once(&self, first_block: u64, mut bytes: &[u8]) -> Result<()> {
        let mut block = first_block;
        while !bytes.is_empty() {
            let segment = self.table.lock().find(block)?;
            let room = (segment.header.end_block() - block) * BLOCK as u64;
            let n = bytes.len().min(room as usize);
            segment.file.write_at(&bytes[..n], segment.header.offset_of(block))?;
            self.rt.metrics.add(Metric::LogBytes, n as u64);
            if block == segment.header.first_block {
                self.rt.metrics.add(Metric::LogRotations, 1);
            }
            block += (n / BLOCK) as u64;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    /// Syncs every segment with bytes in `from..to`, oldest first.
    pub(crate) fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        let mut block = block_of(from);
        while lsn_of(block) < to {
            let segment = self.table.lock().find(block)?;
            segment.file.sync()?;
            self.rt.metrics.add(Metric::LogSyncs, 1);
            block = segment.header.end_block();
        }
        Ok(())
    }
}

impl SegmentTable {
    fn set_log_bytes(&mut self, log_bytes: u64) {
        self.segment_bytes = segment_bytes(log_bytes);
        self.log_bytes = log_bytes.max(8 * self.segment_bytes);
    }

    fn may_create(&self) -> bool {
        self.bytes() + self.next_bytes() <= self.log_bytes
    }

    fn next_bytes(&self) -> u64 {
        let first = FIRST_SEGMENT.min(self.segment_bytes);
        match self.segments.back() {
            Some(last) if self.segments.len() >= 3 && !self.is_opening => {
                (last.header.file_bytes() * 2).clamp(first, self.segment_bytes)
            }
            _ => first,
        }
    }

    /// True if it was made for a larger log.
    fn is_large(&self, bytes: u64) -> bool {
        bytes > self.segment_bytes
    }

    /// True if it is not worth removing it: the next open would make it again. The logs of tests
    /// have smaller ones.
    fn is_small(&self, bytes: u64) -> bool {
        bytes <= FIRST_SEGMENT && self.segment_bytes > FIRST_SEGMENT
    }

    /// True if the first segment is not needed and will not be reused.
    fn surplus_behind(&self, checkpoint: Lsn) -> bool {
        let first = self.segments.front().map_or(0, |s| s.header.file_bytes());
        let too_many = self.bytes() > self.log_bytes || self.is_large(first);
        let is_small = self.is_small(self.bytes() / SMALL_SEGMENTS);
        let may_go = too_many || self.activity != Activity::Busy && !is_small;
        self.segments.len() > 1 && self.recyclable(checkpoint) && may_go
    }

    /// The number of last segments that begin behind `kept` and were made for a larger log, or that
    /// a closing log has prepared.
    fn surplus_ahead(&self, kept: Lsn) -> usize {
        let is_surplus = |s: &&LogSegment| {
            let bytes = s.header.file_bytes();
            let is_closing = self.activity == Activity::Closing && !self.is_small(bytes);
            let may_go = is_closing || self.is_large(bytes);
            lsn_of(s.header.first_block) > kept && may_go
        };
        self.segments.iter().rev().take_while(is_surplus).count()
    }

    fn find(&self, block: u64) -> Result<LogSegment> {
        self.segments
            .iter()
            .rev()
            .find(|s| s.header.first_block <= block && block < s.header.end_block())
            .cloned()
            .ok_or_else(|| Error::internal("log block without a segment").with("block", block))
    }

    /// Segments that begin behind the segment of `end`.
    fn ahead(&self, end: Lsn) -> usize {
        self.segments.iter().filter(|s| lsn_of(s.header.first_block) > end).count()
    }

    /// The bytes of a position's segment before it, and of the whole segment.
    fn progress(&self, position: Lsn) -> (u64, u64) {
        let first = |segment: &LogSegment| lsn_of(segment.header.first_block);
        match self.segments.iter().rev().find(|segment| first(segment) <= position) {
            Some(segment) => {
                let start = first(segment).0;
                (position.0 - start, lsn_of(segment.header.end_block()).0 - start)
            }
            None => (0, 1),
        }
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.header.file_bytes()).sum()
    }

    /// Breaks the pin if it holds back more than its limit.
    fn check_pin(&mut self, checkpoint: Lsn) {
        if let Some(pin) = &self.pin
            && checkpoint.0.saturating_sub(pin.from.0) > payload(pin.limit)
        {
            self.break_pin();
        }
    }

    fn break_pin(&mut self) {
        if let Some(pin) = &mut self.pin {
            pin.is_broken = true;
        }
    }

    fn recyclable(&self, checkpoint: Lsn) -> bool {
        let pinned = self.pin.filter(|pin| !pin.is_broken).map_or(checkpoint, |pin| pin.from);
        let checkpoint = checkpoint.min(pinned);
        self.segments.front().is_some_and(|s| lsn_of(s.header.end_block()) <= checkpoint)
    }

    fn next_header(&self, file_bytes: u64, start: Lsn, database: DatabaseId) -> SegmentHeader {
        let first_block = match self.segments.back() {
            Some(last) => last.header.end_block(),
            // The log of a new directory begins with block 0, wherever its first epoch begins.
            None if block_of(start) <= BLOCKS_ALIGN => 0,
            None => block_of(start) / BLOCKS_ALIGN * BLOCKS_ALIGN,
        };
        let blocks = (file_bytes - SEGMENT_HEADER as u64) / BLOCK as u64;
        SegmentHeader { number: self.next_number, first_block, blocks, database }
    }
}

/// The alignment of a direct write in blocks: one if the device accepts 512 bytes, else eight (4
/// KiB).
fn probe_align(rt: &Runtime) -> Result<u64> {
    let bytes = AlignedBuf::new(2 * SEGMENT_HEADER);
    let small = rt.env.open(PROBE, OpenMode::READ_WRITE.direct()).and_then(|file| {
        file.write_at(&bytes, 0)?;
        file.write_at(&bytes[BLOCK..2 * BLOCK], BLOCK as u64)
    });
    rt.env.remove(PROBE)?;
    // A full disk also leads here: 4 KiB is right everywhere.
    Ok(if small.is_ok() { 1 } else { BLOCKS_ALIGN })
}
