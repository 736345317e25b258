//! Undo segments: append-only files `undo/NNNNNNNN.undo`. One writer at a time takes the turn,
//! appends frames, and syncs on the request of a checkpoint. A segment lives as long as a chunk
//! refers to it; then its file is removed, synced or not. Numbers are never reused.

use crate::undo::Body;
use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Code, Error, Kind, Result, TxnId, UndoNo};
use evenkeel_format::undo::{
    FRAME_HEADER_LEN, FrameId, SEGMENT_HEADER_LEN, check_frame, frame_claims, frame_header,
    segment_header,
};
use evenkeel_io::{Event, File, OpenMode, Runtime};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

const DIR: &str = "undo";
/// A new segment begins when the current one has this size: a file is freed as a whole.
pub(crate) const SEGMENT_BYTES: u64 = 4 << 20;
/// The current segment is abandoned, if it is not needed, when it has this size.
const GIVE_UP_BYTES: u64 = 1 << 20;
/// Chunks read from files that are cached.
const CACHED_CHUNKS: usize = 8;

fn path(number: u64) -> String {
    format!("{DIR}/{number:08}.undo")
}

/// One segment file. The last reference to it puts it on the list of files to remove.
pub(crate) struct UndoSegment {
    pub number: u64,
    file: Option<Arc<dyn File>>,
    /// Bytes known to be durable.
    synced: AtomicU64,
    removable: Arc<Mutex<Vec<u64>>>,
}

impl Drop for UndoSegment {
    fn drop(&mut self) {
        self.removable.lock().push(self.number);
    }
}

/// The place of a saved chunk, or of several adjacent ones of a transaction.
#[derive(Clone)]
pub(crate) struct SavedAt {
    pub segment: Arc<UndoSegment>,
    pub offset: u64,
    /// Headers and payloads.
    pub len: u32,
}

/// The first and the last record saved at a place, and the place.
pub(crate) type Saved = (UndoNo, UndoNo, SavedAt);

impl SavedAt {
    pub fn is_synced(&self) -> bool {
        self.end() <= self.segment.synced.load(Ordering::Acquire)
    }

    fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    /// Extends the place by one directly behind it; false if `next` is elsewhere.
    pub fn extend(&mut self, next: &SavedAt) -> bool {
        let adjacent = self.segment.number == next.segment.number && self.end() == next.offset;
        let len = self.len.checked_add(next.len).filter(|_| adjacent);
        self.len = len.unwrap_or(self.len);
        len.is_some()
    }
}

struct Current {
    segment: Arc<UndoSegment>,
    end: u64,
}

#[derive(Default)]
struct Writer {
    current: Option<Current>,
    /// Segments with bytes not synced, and their lengths.
    unsynced: Vec<(Arc<UndoSegment>, u64)>,
    /// A file was created since the directory was last synced.
    created: bool,
}

type Cache = VecDeque<((TxnId, UndoNo), Arc<Body>)>;

pub(crate) struct UndoFiles {
    rt: Arc<Runtime>,
    next_number: AtomicU64,
    busy: AtomicBool,
    turn_over: Arc<Event>,
    writer: Mutex<Writer>,
    removable: Arc<Mutex<Vec<u64>>>,
    /// Segments that a restore has opened, one object each.
    opened: Mutex<BTreeMap<u64, Weak<UndoSegment>>>,
    cache: Mutex<Cache>,
}

/// The right to write segments, held across I/O.
pub(crate) struct SpillTurn<'a>(&'a UndoFiles);

impl Drop for SpillTurn<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::SeqCst);
        self.0.turn_over.notify();
    }
}

impl UndoFiles {
    pub fn new(rt: Arc<Runtime>) -> UndoFiles {
        UndoFiles {
            rt,
            next_number: AtomicU64::new(1),
            busy: AtomicBool::new(false),
            turn_over: Arc::default(),
            writer: Mutex::default(),
            removable: Arc::default(),
            opened: Mutex::default(),
            cache: Mutex::default(),
        }
    }

    pub fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::Acquire)
    }

    /// Numbers new segments from here on. At restore only.
    pub fn start_numbers_at(&self, number: u64) {
        self.next_number.fetch_max(number, Ordering::AcqRel);
    }

    /// Waits for the right to write.
    pub fn turn(&self) -> SpillTurn<'_> {
        self.rt.wait_until(&self.turn_over, Cause::DeviceSlow, || {
            !self.busy.swap(true, Ordering::SeqCst)
        });
        SpillTurn(self)
    }

    /// Opens a segment that a checkpoint lists. A missing one is not needed: it was removed after
    /// its transactions had ended. At restore only.
    pub fn open(&self, number: u64) -> Result<Arc<UndoSegment>> {
        if let Some(segment) = self.opened.lock().get(&number).and_then(Weak::upgrade) {
            return Ok(segment);
        }
        let opened = match self.rt.env.open(&path(number), OpenMode::READ) {
            Ok(file) => Some((file.len()?, file)),
            Err(e) if e.kind() == Kind::NotFound || e.code() == Code::FileMissing => None,
            Err(e) => return Err(e),
        };
        let (synced, file) = match opened {
            Some((len, file)) => (len, Some(file)),
            None => (0, None),
        };
        let removable = self.removable.clone();
        let segment = UndoSegment { number, file, synced: AtomicU64::new(synced), removable };
        let segment = Arc::new(segment);
        self.opened.lock().insert(number, Arc::downgrade(&segment));
        Ok(segment)
    }

    /// Lists the files that were not opened, for `remove_unused`; an open that fails later has thus
    /// removed nothing. At restore only, after all needed ones are open.
    pub fn give_up_others(&self) -> Result<()> {
        let opened = std::mem::take(&mut *self.opened.lock());
        for name in self.rt.env.list(DIR)? {
            let Some(number) = name.strip_suffix(".undo").and_then(|n| n.parse::<u64>().ok())
            else {
                continue;
            };
            self.start_numbers_at(number + 1);
            if opened.get(&number).is_none_or(|segment| segment.strong_count() == 0) {
                self.removable.lock().push(number);
            }
        }
        Ok(())
    }

    fn create_segment(&self) -> Result<Current> {
        let number = self.next_number.fetch_add(1, Ordering::AcqRel);
        self.rt.env.create_dir(DIR)?;
        let file = self.rt.env.open(&path(number), OpenMode::READ_WRITE)?;
        file.write_at(&segment_header(number, self.rt.database()), 0)?;
        let segment = Arc::new(UndoSegment {
            number,
            file: Some(file),
            synced: AtomicU64::new(0),
            removable: self.removable.clone(),
        });
        Ok(Current { segment, end: SEGMENT_HEADER_LEN as u64 })
    }

    /// Appends chunks of transactions as frames. Not synced yet.
    pub fn append(
        &self,
        _turn: &SpillTurn<'_>,
        chunks: &[(TxnId, Arc<Body>)],
    ) -> Result<Vec<SavedAt>> {
        let current = self.writer.lock().current.take();
        let mut current = match current {
            Some(current) if current.end < SEGMENT_BYTES => current,
            _ => {
                let created = self.create_segment()?;
                self.writer.lock().created = true;
                created
            }
        };
        let start = current.end;
        let mut bytes = Vec::new();
        let mut places = Vec::with_capacity(chunks.len());
        for (txn, body) in chunks {
            let offset = start + bytes.len() as u64;
            let segment = current.segment.number;
            let (first, last, database) = (body.first, body.last, self.rt.database());
            let id = FrameId { database, segment, offset, txn: *txn, first, last };
            bytes.extend_from_slice(&frame_header(&id, &body.bytes));
            bytes.extend_from_slice(&body.bytes);
            let len = (FRAME_HEADER_LEN + body.bytes.len()) as u32;
            places.push(SavedAt { segment: current.segment.clone(), offset, len });
        }
        let written = match &current.segment.file {
            Some(file) => file.write_at(&bytes, start),
            None => Err(Error::internal("undo segment without a file")),
        };
        if written.is_ok() {
            current.end += bytes.len() as u64;
            self.rt.metrics.add(Metric::UndoSpilledBytes, bytes.len() as u64);
        }
        let mut writer = self.writer.lock();
        if written.is_ok() {
            let segment = &current.segment;
            match writer.unsynced.iter_mut().find(|(s, _)| s.number == segment.number) {
                Some((_, end)) => *end = current.end,
                None => writer.unsynced.push((segment.clone(), current.end)),
            }
        }
        writer.current = Some(current);
        written.map(|()| places)
    }

    /// Makes everything appended durable. A failed sync stops writes, whatever the reason: the next
    /// sync would not report what this one has lost.
    pub fn sync(&self, _turn: &SpillTurn<'_>) -> Result<()> {
        let (unsynced, created) = {
            let mut writer = self.writer.lock();
            (std::mem::take(&mut writer.unsynced), std::mem::take(&mut writer.created))
        };
        for (segment, end) in &unsynced {
            if let Some(file) = &segment.file {
                file.sync().map_err(|e| self.rt.health.fail(e))?;
                segment.synced.fetch_max(*end, Ordering::AcqRel);
            }
        }
        if created {
            for dir in [DIR, ""] {
                self.rt.env.sync_dir(dir).map_err(|e| self.rt.health.fail(e))?;
            }
        }
        Ok(())
    }

    /// The chunks of an extent, by their headers. Their content is checked when they are read.
    pub fn split(&self, (first, last, at): &Saved, txn: TxnId) -> Result<Vec<Saved>> {
        let number = at.segment.number;
        let Some(file) = &at.segment.file else {
            return Err(Error::new(Code::FileMissing).with("file", path(number)));
        };
        let (mut chunks, mut offset, mut before) = (Vec::new(), at.offset, *first);
        while offset < at.end() {
            let mut header = [0; FRAME_HEADER_LEN];
            file.read_at(&mut header, offset)?;
            let place = |e: Error| e.with("file", path(number)).with("offset", offset);
            let (owner, from, to, len) = frame_claims(&header).map_err(place)?;
            let next = offset + (FRAME_HEADER_LEN + len) as u64;
            let fits = owner == txn && from >= before && to <= *last && next <= at.end();
            if !fits || (next == at.end()) != (to == *last) {
                return Err(place(Error::new(Code::BadEncoding).with("what", "undo extent")));
            }
            let len = (next - offset) as u32;
            chunks.push((from, to, SavedAt { segment: at.segment.clone(), offset, len }));
            (offset, before) = (next, UndoNo(to.0.saturating_add(1)));
        }
        Ok(chunks)
    }

    /// Reads a saved chunk.
    pub fn read(&self, at: &SavedAt, txn: TxnId, first: UndoNo, last: UndoNo) -> Result<Arc<Body>> {
        let key = (txn, first);
        if let Some((_, body)) = self.cache.lock().iter().find(|(k, _)| *k == key) {
            return Ok(body.clone());
        }
        let Some(bytes) = self.read_frame(at, txn, first, last)? else {
            return Err(Error::new(Code::FileMissing).with("file", path(at.segment.number)));
        };
        let body = Arc::new(Body::from_saved(bytes, first, last));
        let mut cache = self.cache.lock();
        if cache.len() >= CACHED_CHUNKS {
            cache.pop_front();
        }
        cache.push_back((key, body.clone()));
        Ok(body)
    }

    /// Reads a list that is not undo; `None` if its file was missing at the restore.
    pub fn read_list(&self, at: &SavedAt) -> Result<Option<Vec<u8>>> {
        self.read_frame(at, TxnId::ZERO, UndoNo::ZERO, UndoNo::ZERO)
    }

    fn read_frame(
        &self,
        at: &SavedAt,
        txn: TxnId,
        first: UndoNo,
        last: UndoNo,
    ) -> Result<Option<Vec<u8>>> {
        let Some(file) = &at.segment.file else { return Ok(None) };
        let (segment, offset) = (at.segment.number, at.offset);
        let mut bytes = vec![0; at.len as usize];
        file.read_at(&mut bytes, offset)?;
        let id = FrameId { database: self.rt.database(), segment, offset, txn, first, last };
        check_frame(&bytes, &id)
            .map_err(|e| e.with("file", path(segment)).with("offset", offset))?;
        bytes.drain(..FRAME_HEADER_LEN);
        Ok(Some(bytes))
    }

    /// Releases segments that no chunk refers to; they need no sync either.
    fn give_up_unused(&self) {
        let mut writer = self.writer.lock();
        let Writer { current, unsynced, .. } = &mut *writer;
        let unneeded = |segment: &Arc<UndoSegment>, held: usize| Arc::strong_count(segment) == held;
        let is = |(s, _): &(Arc<UndoSegment>, u64), number| s.number == number;
        *current = current.take().filter(|Current { segment, end }| {
            let listed = unsynced.iter().filter(|entry| is(entry, segment.number)).count();
            *end < GIVE_UP_BYTES || !unneeded(segment, 1 + listed)
        });
        // The current segment has one more reference.
        unsynced.retain(|(segment, _)| !unneeded(segment, 1));
    }

    /// Removes the files without references. True if there was one.
    pub fn remove_unused(&self) -> Result<bool> {
        self.give_up_unused();
        let unused = std::mem::take(&mut *self.removable.lock());
        for (i, number) in unused.iter().enumerate() {
            if let Err(e) = self.rt.remove_file(&path(*number)) {
                self.removable.lock().extend_from_slice(&unused[i..]);
                return Err(e);
            }
        }
        Ok(!unused.is_empty())
    }
}
