//! Undo of one transaction (protocols C1, C2): append-only chunks of encoded records in memory, a
//! directory of one entry per chunk, and chunks spilled to segment files.
//!
//! Records are addressed by undo_no only. Sealed chunks never change; a chunk that was saved to a
//! file drops its memory when room is needed. The oldest chunks are saved first, so the saved
//! chunks are always a prefix.

use crate::packed_undo::SMALL_BYTES;
use crate::undo_files::{Saved, SavedAt, UndoFiles};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Result, TreeId, TxnId, UndoNo};
use evenkeel_format::record::RowKind;
use evenkeel_format::undo::{UndoRecord, find_record};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A chunk is sealed at this size.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// One offset is kept per this many records.
const MARK_EVERY: u32 = 16;
/// Memory of a transaction's undo beyond its chunks, and of a chunk beyond its records.
const TXN_BYTES: usize = 256;
const CHUNK_ENTRY_BYTES: usize = 64;

/// Memory of a list that is not stored inline.
fn heap_bytes<T, const N: usize>(list: &SmallVec<[T; N]>) -> usize {
    if list.spilled() { list.capacity() * size_of::<T>() } else { 0 }
}

/// Consecutive records.
#[derive(Default)]
pub(crate) struct Body {
    pub bytes: Vec<u8>,
    /// (undo_no, offset) of each sixteenth record.
    marks: SmallVec<[(UndoNo, u32); 2]>,
    records: u32,
    pub first: UndoNo,
    pub last: UndoNo,
}

impl Body {
    /// A body over bytes read from a file.
    pub fn from_saved(bytes: Vec<u8>, first: UndoNo, last: UndoNo) -> Body {
        Body { bytes, marks: SmallVec::new(), records: 0, first, last }
    }

    fn push(&mut self, record: &UndoRecord<'_>) {
        if self.records == 0 {
            self.first = record.undo_no;
        }
        if self.records.is_multiple_of(MARK_EVERY) {
            self.marks.push((record.undo_no, self.bytes.len() as u32));
        }
        self.records += 1;
        self.last = record.undo_no;
        record.encode(&mut self.bytes);
    }

    fn find(&self, no: UndoNo) -> Result<Option<UndoRecord<'_>>> {
        let after = self.marks.partition_point(|(first, _)| *first <= no);
        let from = if after == 0 { 0 } else { self.marks[after - 1].1 as usize };
        find_record(&self.bytes[from..], no)
    }

    fn memory(&self) -> usize {
        self.bytes.capacity() + heap_bytes(&self.marks)
    }
}

/// A sealed chunk: in memory, saved, or both.
struct Chunk {
    first: UndoNo,
    last: UndoNo,
    memory: Option<Arc<Body>>,
    saved: Option<SavedAt>,
    /// Several saved chunks, as a checkpoint lists them: split when one of their records is
    /// requested.
    extent: bool,
}

impl Chunk {
    fn saved((first, last, at): Saved, extent: bool) -> Chunk {
        Chunk { first, last, memory: None, saved: Some(at), extent }
    }
}

#[derive(Default)]
struct Chunks {
    sealed: Vec<Chunk>,
    open: Body,
    /// Chunks before this one are saved.
    saved: usize,
    freed: bool,
    /// Trees that the records name, sorted, saved chunks included.
    trees: SmallVec<[TreeId; 4]>,
    /// The tree of the last record; it is among `trees`.
    tree: Option<TreeId>,
}

impl Chunks {
    fn push(&mut self, record: &UndoRecord<'_>) {
        if self.tree != Some(record.tree) {
            if let Err(at) = self.trees.binary_search(&record.tree) {
                self.trees.insert(at, record.tree);
            }
            self.tree = Some(record.tree);
        }
        self.open.push(record);
    }
}

/// The place of a record.
enum Found {
    Memory(Arc<Body>),
    File(Saved),
    Extent(Saved),
}

/// The undo of one transaction.
pub(crate) struct TxnUndo {
    pub id: TxnId,
    chunks: Mutex<Chunks>,
    memory: AtomicUsize,
}

impl TxnUndo {
    /// Empty undo, whose memory is counted in `used`.
    pub fn new(id: TxnId, used: &AtomicUsize) -> TxnUndo {
        used.fetch_add(TXN_BYTES, Ordering::Relaxed);
        TxnUndo { id, chunks: Mutex::default(), memory: AtomicUsize::new(TXN_BYTES) }
    }

    /// Its memory in bytes.
    pub fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    fn count(&self, used: &AtomicUsize, before: usize, after: usize) {
        for counter in [&self.memory, used] {
            if after >= before {
                counter.fetch_add(after - before, Ordering::SeqCst);
            } else {
                counter.fetch_sub(before - after, Ordering::SeqCst);
            }
        }
    }

    /// Makes room so that pushing `records` records of `bytes` together allocates nothing.
    pub fn reserve(&self, bytes: usize, records: usize, used: &AtomicUsize) {
        let mut chunks = self.chunks.lock();
        if chunks.open.bytes.len() + bytes > CHUNK_BYTES && chunks.open.records > 0 {
            self.seal(&mut chunks, used);
        }
        let before = chunks.open.memory();
        let len = chunks.open.bytes.len();
        if chunks.open.bytes.capacity() < len + bytes {
            let want = (len * 2).clamp(len + bytes, CHUNK_BYTES.max(len + bytes));
            chunks.open.bytes.reserve_exact(want - len);
        }
        chunks.open.marks.reserve(records / MARK_EVERY as usize + 1);
        let after = chunks.open.memory();
        self.count(used, before, after);
        // Operations reserved together belong to one table.
        let before = heap_bytes(&chunks.trees);
        chunks.trees.reserve(1);
        let after = heap_bytes(&chunks.trees);
        self.count(used, before, after);
    }

    /// Appends the records of inserts, numbered from `first` on; returns the last number.
    pub fn push_inserts(
        &self,
        first: UndoNo,
        tree: TreeId,
        keys: &mut dyn Iterator<Item = &[u8]>,
        used: &AtomicUsize,
    ) -> UndoNo {
        let mut chunks = self.chunks.lock();
        let before = chunks.open.memory();
        let mut undo_no = first;
        for key in keys {
            let kind = RowKind::Insert;
            chunks.push(&UndoRecord { undo_no, kind, tree, key, before: None });
            undo_no = UndoNo(undo_no.0 + 1);
        }
        let after = chunks.open.memory();
        self.count(used, before, after);
        if chunks.open.bytes.len() >= CHUNK_BYTES {
            self.seal(&mut chunks, used);
        }
        UndoNo(undo_no.0 - 1)
    }

    /// Appends a record; its number is larger than any before.
    pub fn push(&self, record: &UndoRecord<'_>, used: &AtomicUsize) {
        let mut chunks = self.chunks.lock();
        debug_assert!(chunks.open.records == 0 || chunks.open.last < record.undo_no);
        let before = chunks.open.memory();
        chunks.push(record);
        let after = chunks.open.memory();
        self.count(used, before, after);
        if chunks.open.bytes.len() >= CHUNK_BYTES {
            self.seal(&mut chunks, used);
        }
    }

    fn seal(&self, chunks: &mut Chunks, used: &AtomicUsize) {
        if chunks.open.records == 0 {
            return;
        }
        let body = std::mem::take(&mut chunks.open);
        let (first, last) = (body.first, body.last);
        let memory = Some(Arc::new(body));
        chunks.sealed.push(Chunk { first, last, memory, saved: None, extent: false });
        self.count(used, 0, CHUNK_ENTRY_BYTES);
    }

    /// Copies the encoded record `no` into `out` (a sequence of one record). False if there is no
    /// such record.
    pub fn fetch(&self, no: UndoNo, files: &UndoFiles, out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        loop {
            let found = {
                let chunks = self.chunks.lock();
                if chunks.open.records > 0 && no >= chunks.open.first {
                    return copy(&chunks.open, no, out);
                }
                let after = chunks.sealed.partition_point(|c| c.first <= no);
                let Some(chunk) = after.checked_sub(1).map(|i| &chunks.sealed[i]) else {
                    return Ok(false);
                };
                match (&chunk.memory, &chunk.saved) {
                    _ if no > chunk.last => return Ok(false),
                    (Some(body), _) => Found::Memory(body.clone()),
                    (None, Some(at)) => {
                        let saved = (chunk.first, chunk.last, at.clone());
                        if chunk.extent { Found::Extent(saved) } else { Found::File(saved) }
                    }
                    (None, None) => return Ok(false),
                }
            };
            return match found {
                Found::Memory(body) => copy(&body, no, out),
                Found::File((first, last, at)) => {
                    copy(&*files.read(&at, self.id, first, last)?, no, out)
                }
                Found::Extent(extent) => {
                    self.put_split(extent.0, files.split(&extent, self.id)?);
                    continue;
                }
            };
        }
    }

    /// Replaces an extent by its chunks.
    fn put_split(&self, first: UndoNo, saved: Vec<Saved>) {
        let mut chunks = self.chunks.lock();
        let Some(at) = chunks.sealed.iter().position(|c| c.extent && c.first == first) else {
            return; // Another thread did so, or it was freed.
        };
        chunks.saved += saved.len() - 1;
        chunks.sealed.splice(at..=at, saved.into_iter().map(|saved| Chunk::saved(saved, false)));
    }

    /// Seals the open chunk and returns the unsaved chunks, oldest first, up to `bytes_max`.
    pub fn unsaved(&self, bytes_max: usize, used: &AtomicUsize) -> Vec<Arc<Body>> {
        let mut chunks = self.chunks.lock();
        if chunks.freed {
            return Vec::new();
        }
        let sealed_unsaved = chunks.sealed.len() - chunks.saved;
        if sealed_unsaved == 0 || bytes_max == usize::MAX {
            self.seal(&mut chunks, used);
        }
        let mut bytes = 0;
        let unsaved = chunks.sealed[chunks.saved..].iter().filter_map(|c| c.memory.clone());
        unsaved
            .take_while(|body| {
                let first = bytes == 0;
                bytes += body.bytes.len();
                first || bytes <= bytes_max
            })
            .collect()
    }

    /// Records that the next unsaved chunks are saved at these places; false if the undo was freed
    /// meanwhile.
    pub fn saved(&self, places: &[SavedAt]) -> bool {
        let mut chunks = self.chunks.lock();
        if chunks.freed {
            return false;
        }
        let from = chunks.saved;
        for (chunk, at) in chunks.sealed[from..].iter_mut().zip(places) {
            chunk.saved = Some(at.clone());
        }
        chunks.saved += places.len();
        true
    }

    /// Drops the memory of saved chunks. Returns the bytes gained.
    pub fn drop_saved_memory(&self, used: &AtomicUsize) -> usize {
        let mut chunks = self.chunks.lock();
        let saved = chunks.saved;
        let mut gained = 0;
        // Saved chunks are dropped from the oldest on, so those still in memory are the last ones.
        for chunk in chunks.sealed[..saved].iter_mut().rev() {
            match chunk.memory.take() {
                Some(body) => gained += body.memory(),
                None => break,
            }
        }
        self.count(used, gained, 0);
        gained
    }

    /// True if saving could free some memory.
    pub fn has_records_in_memory(&self) -> bool {
        let chunks = self.chunks.lock();
        chunks.open.records > 0 || chunks.sealed.last().is_some_and(|c| c.memory.is_some())
    }

    /// The saved and synced chunks, oldest first, for a checkpoint's list; adjacent ones are joined
    /// to one extent.
    pub fn synced(&self) -> Vec<Saved> {
        let chunks = self.chunks.lock();
        let mut extents: Vec<Saved> = Vec::new();
        for chunk in &chunks.sealed[..chunks.saved] {
            let Some(at) = chunk.saved.as_ref().filter(|at| at.is_synced()) else { break };
            if let Some((_, last, extent)) = extents.last_mut()
                && extent.extend(at)
            {
                *last = chunk.last;
            } else {
                extents.push((chunk.first, chunk.last, at.clone()));
            }
        }
        extents
    }

    /// Trees that its records name, sorted.
    pub fn trees(&self) -> Vec<TreeId> {
        self.chunks.lock().trees.to_vec()
    }

    /// Restores the extents that a checkpoint listed, and the trees that they name. At restore.
    pub fn restore(&self, saved: Vec<Saved>, trees: Vec<TreeId>, used: &AtomicUsize) {
        let mut chunks = self.chunks.lock();
        chunks.trees = trees.into();
        chunks.trees.sort_unstable();
        self.count(used, 0, heap_bytes(&chunks.trees));
        self.count(used, 0, saved.len() * CHUNK_ENTRY_BYTES);
        chunks.saved = saved.len();
        chunks.sealed = saved.into_iter().map(|saved| Chunk::saved(saved, true)).collect();
    }

    /// The last record's number; zero if there is none.
    pub fn last(&self) -> UndoNo {
        let chunks = self.chunks.lock();
        match chunks.open.records {
            0 => chunks.sealed.last().map_or(UndoNo::ZERO, |c| c.last),
            _ => chunks.open.last,
        }
    }

    /// All records, if they are few and in memory. The transaction has ended.
    pub fn small_records(&self) -> Option<Vec<u8>> {
        let chunks = self.chunks.lock();
        let small = chunks.sealed.is_empty() && chunks.open.bytes.len() <= SMALL_BYTES;
        small.then(|| chunks.open.bytes.clone())
    }

    /// Frees memory and file space. No reader needs these records any more.
    pub fn free(&self, used: &AtomicUsize) {
        let mut chunks = self.chunks.lock();
        if chunks.freed {
            return;
        }
        *chunks = Chunks { freed: true, ..Chunks::default() };
        drop(chunks);
        used.fetch_sub(self.memory.swap(0, Ordering::Relaxed), Ordering::SeqCst);
    }
}

fn copy(body: &Body, no: UndoNo, out: &mut Vec<u8>) -> Result<bool> {
    match body.find(no)? {
        Some(record) => {
            record.encode(out);
            Ok(true)
        }
        None => Ok(false),
    }
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod undo_tests;
