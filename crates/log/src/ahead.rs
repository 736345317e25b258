//! Blocks of the log, read ahead of a scan: helpers take one chunk after another, read it and
//! verify every block in it (checksums are most of the work); the scan gets the chunks in order.
//!
//! Invariants: a chunk lies in one segment and is read once; `taken <= claimed <= taken + WINDOW`,
//! counted in chunks. A scan that goes back reads by itself. Only `replay` may call this.

use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, DatabaseId, Error, Result};
use evenkeel_format::wal::{
    BLOCK, BLOCK_HEADER, BlockHeader, SegmentHeader, block_number, segment_path,
};
use evenkeel_io::{Event, File, OpenMode, Runtime, Task};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of a chunk, at most: half a MiB stays in a core's cache from the read to the scan.
const CHUNK_BLOCKS: u64 = 1024;
/// Chunks that are being read or wait for the scan, at most.
pub(crate) const WINDOW: usize = 4;
const HELPERS: usize = 2;

/// Consecutive verified blocks.
#[derive(Default)]
pub(crate) struct ScannedBlocks {
    first: u64,
    bytes: Vec<u8>,
    /// None where the place has no valid block.
    headers: Vec<Option<BlockHeader>>,
}

impl ScannedBlocks {
    /// Reads blocks of a segment into the chunk, replacing its content.
    fn read(
        &mut self,
        rt: &Runtime,
        file: &dyn File,
        segment: &SegmentHeader,
        blocks: Range<u64>,
    ) -> Result<()> {
        self.headers.clear();
        self.bytes.resize((blocks.end - blocks.start) as usize * BLOCK, 0);
        file.read_at(&mut self.bytes, segment.offset_of(blocks.start))?;
        self.first = blocks.start;
        let database = rt.database();
        let blocks = blocks.zip(self.bytes.chunks_exact(BLOCK));
        for (number, bytes) in blocks {
            let valid = valid_block(number, bytes, database);
            let path = || segment_path(segment.number);
            let at = segment.offset_of(number);
            self.headers.push(valid.map_err(|e| e.with("file", path()).with("offset", at))?);
        }
        Ok(())
    }

    fn blocks(&self) -> Range<u64> {
        self.first..self.first + self.headers.len() as u64
    }

    /// The valid block of this number, which lies in the chunk; `None` if its place has none.
    pub(crate) fn get(&self, block: u64) -> Option<(BlockHeader, &[u8])> {
        let at = (block - self.first) as usize;
        let payload = &self.bytes[at * BLOCK + BLOCK_HEADER..(at + 1) * BLOCK];
        self.headers[at].map(|header| (header, payload))
    }

    pub(crate) fn holds(&self, block: u64) -> bool {
        self.blocks().contains(&block)
    }
}

/// The header of a block, if the block is valid and has this number.
///
/// # Errors
/// `LogVersion` if the block is whole and of a newer version.
pub(crate) fn valid_block(
    number: u64,
    bytes: &[u8],
    database: DatabaseId,
) -> Result<Option<BlockHeader>> {
    // A block that was never written, or written long ago, is not worth a checksum.
    if block_number(bytes) != Some(number) {
        return Ok(None);
    }
    BlockHeader::check_known(bytes, database)?;
    Ok(BlockHeader::decode(bytes, database))
}

/// Reads chunks of the segments it is given.
pub(crate) struct ChunkReader {
    rt: Arc<Runtime>,
    segments: Arc<[SegmentHeader]>,
    open: Option<(SegmentHeader, Arc<dyn File>)>,
}

impl ChunkReader {
    pub(crate) fn new(rt: &Arc<Runtime>, segments: &Arc<[SegmentHeader]>) -> ChunkReader {
        ChunkReader { rt: rt.clone(), segments: segments.clone(), open: None }
    }

    /// Reads the chunk that begins with `block` and ends before `end`; false if no segment holds
    /// that block.
    pub(crate) fn read(&mut self, chunk: &mut ScannedBlocks, block: u64, end: u64) -> Result<bool> {
        let Some(segment) = segment_of(&self.segments, block) else { return Ok(false) };
        let file = match &self.open {
            Some((open, file)) if *open == segment => file.clone(),
            _ => self.rt.env.open(&segment_path(segment.number), OpenMode::READ)?,
        };
        self.open = Some((segment, file.clone()));
        let blocks = block..chunk_end(&segment, block, end);
        chunk.read(&self.rt, &*file, &segment, blocks)?;
        Ok(true)
    }
}

/// The segment that holds a block.
pub(crate) fn segment_of(segments: &[SegmentHeader], block: u64) -> Option<SegmentHeader> {
    segments.iter().find(|s| s.first_block <= block && block < s.end_block()).copied()
}

fn chunk_end(segment: &SegmentHeader, block: u64, end: u64) -> u64 {
    (block + CHUNK_BLOCKS).min(segment.end_block()).min(end)
}

#[derive(Default)]
struct State {
    /// First block that no helper has claimed.
    next: u64,
    /// Chunks claimed and not yet passed to the scan.
    waiting: usize,
    /// Read, by their first block.
    ready: BTreeMap<u64, Result<ScannedBlocks>>,
    spare: Vec<ScannedBlocks>,
    /// Helpers that are still running.
    helpers: usize,
    /// A helper has panicked: the chunk that it had claimed does not come.
    panicked: bool,
    stopped: bool,
}

struct Line {
    rt: Arc<Runtime>,
    segments: Arc<[SegmentHeader]>,
    /// Blocks from here on are not read.
    end: u64,
    state: Mutex<State>,
    changed: Arc<Event>,
}

impl Line {
    /// Claims the next chunk, with memory for it; `None` at the end.
    fn claim(&self) -> Option<(u64, ScannedBlocks)> {
        let ready = || {
            let state = self.state.lock();
            state.stopped || state.waiting < WINDOW
        };
        loop {
            self.rt.wait_until(&self.changed, Cause::Idle, ready);
            let mut state = self.state.lock();
            let block = state.next;
            let segment = segment_of(&self.segments, block);
            let segment = segment.filter(|_| block < self.end && !state.stopped)?;
            // Otherwise another helper was faster.
            if state.waiting < WINDOW {
                state.next = chunk_end(&segment, block, self.end);
                state.waiting += 1;
                return Some((block, state.spare.pop().unwrap_or_default()));
            }
        }
    }

    /// A helper's work.
    fn work(&self) {
        let _leaving = Leaving(self);
        let mut reader = ChunkReader::new(&self.rt, &self.segments);
        while let Some((block, mut chunk)) = self.claim() {
            let read = reader.read(&mut chunk, block, self.end).map(|_| chunk);
            self.state.lock().ready.insert(block, read);
            self.changed.notify();
            self.rt.step();
        }
    }
}

/// Reports the end of a helper for any reason, so that the scan does not wait for it.
struct Leaving<'a>(&'a Line);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.helpers -= 1;
        state.panicked |= std::thread::panicking();
        drop(state);
        self.0.changed.notify();
    }
}

/// The helpers, from the view of the scan.
pub(crate) struct ScanAhead {
    line: Arc<Line>,
    helpers: Vec<Box<dyn Task>>,
    /// First block of the next chunk that the scan gets.
    next: u64,
}

impl ScanAhead {
    /// Starts to read the blocks from `first` on, up to `end`.
    ///
    /// # Errors
    /// `ThreadSpawn`.
    pub(crate) fn start(
        rt: &Arc<Runtime>,
        segments: &Arc<[SegmentHeader]>,
        blocks: Range<u64>,
    ) -> Result<ScanAhead> {
        let (first, end) = (blocks.start, blocks.end);
        let state = Mutex::new(State { next: first, helpers: HELPERS, ..State::default() });
        let (rt, segments, changed) = (rt.clone(), segments.clone(), Arc::new(Event::new()));
        let line = Arc::new(Line { rt, segments, end, state, changed });
        let mut ahead = ScanAhead { line: line.clone(), helpers: Vec::new(), next: first };
        for _ in 0..HELPERS {
            let own = line.clone();
            match line.rt.spawn_needed("ek-log-read", move || own.work()) {
                Ok(helper) => ahead.helpers.push(helper),
                Err(error) => {
                    let _ = ahead.stop();
                    return Err(error);
                }
            }
        }
        Ok(ahead)
    }

    /// Replaces the content of `chunk` by the chunk that holds a block, reusing its memory. False
    /// if that chunk does not come: it was passed already, or lies behind the end.
    ///
    /// # Errors
    /// Those of reading; `Internal` if a helper has panicked.
    pub(crate) fn take(&mut self, block: u64, chunk: &mut ScannedBlocks) -> Result<bool> {
        loop {
            let segment = segment_of(&self.line.segments, self.next);
            let Some(segment) = segment.filter(|_| self.next <= block && block < self.line.end)
            else {
                return Ok(false);
            };
            let first = self.next;
            let ready = || {
                let state = self.line.state.lock();
                state.ready.contains_key(&first) || state.helpers == 0 || state.panicked
            };
            self.line.rt.wait_until(&self.line.changed, Cause::Idle, ready);
            self.next = chunk_end(&segment, first, self.line.end);
            let mut state = self.line.state.lock();
            let Some(read) = state.ready.remove(&first) else {
                let panicked = state.panicked;
                let error = || Error::internal("a helper that reads the log has panicked");
                return if panicked { Err(error()) } else { Ok(false) };
            };
            state.waiting -= 1;
            state.spare.push(std::mem::replace(chunk, read?));
            drop(state);
            self.line.changed.notify();
            if chunk.holds(block) {
                return Ok(true);
            }
        }
    }

    /// Chunks claimed and not yet passed to the scan.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.line.state.lock().waiting
    }

    /// Waits until nothing more can be read ahead; returns the number of chunks.
    #[cfg(test)]
    pub(crate) fn await_window(&self) -> usize {
        let read = || self.line.state.lock().ready.len();
        self.line.rt.wait_until(&self.line.changed, Cause::Idle, || read() >= WINDOW);
        read()
    }

    /// Ends the helpers, also after an error.
    ///
    /// # Errors
    /// That of a helper's thread.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.line.state.lock().stopped = true;
        self.line.changed.notify();
        let helpers = std::mem::take(&mut self.helpers);
        let joined: Vec<Result<()>> = helpers.into_iter().map(|helper| helper.join()).collect();
        joined.into_iter().collect()
    }
}

/// Ends the helpers also if the scan panics: no helper waits for ever.
impl Drop for ScanAhead {
    fn drop(&mut self) {
        self.line.state.lock().stopped = true;
        self.line.changed.notify();
    }
}
