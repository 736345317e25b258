//! Scans of chunked tables: the rows of all chunks in the order of a key.
//!
//! Each chunk that may hold keys of the range is a part, with bounds of the keys that it may have
//! there. Parts are merged by key. A part is opened when the merge reaches its bound, so a scan in
//! the order of time reads one chunk after the other, and a reader of few rows opens few chunks.
//!
//! Plain scans take the chunks that their snapshot sees. Locking scans enter every chunk of the
//! range at first, because a chunk that holds their locks must not be dropped. The next row of a
//! chunk is locked when the merge needs to know it.

use crate::chunks::map::{Chunked, TimeChunk};
use crate::chunks::prune::Pruning;
use crate::locked_scan::LockedScan;
use crate::range::{ByteRange, KeySet};
use crate::read::{LockWait, ReadView};
use crate::row::Row;
use crate::scan::{IndexScan, Locking, Scan};
use crate::store::Store;
use crate::table::{Table, Use};
use crate::table_layout::KeyColumn;
use crate::transaction::{Isolation, TableTxn};
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Error, Result};
use evenkeel_tree::Direction;
use evenkeel_txn::TxnRef;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

enum Source {
    Table(Box<Scan>),
    Index(Box<IndexScan>),
    Locked(Box<LockedScan>),
}

impl Source {
    /// Reads the next row, and its place in the order of the scan.
    fn next(&mut self, row: &mut Row, key: &mut Vec<u8>) -> Result<bool> {
        let found = match self {
            Source::Table(scan) => scan.next(row)?,
            Source::Index(scan) => return scan.next_keyed(row, key),
            Source::Locked(scan) => scan.next(row)?,
        };
        key.clear();
        match self {
            _ if !found => {}
            Source::Locked(scan) => {
                let (entry, pk) = scan.place();
                key.extend_from_slice(entry);
                key.extend_from_slice(pk);
            }
            _ => key.extend_from_slice(row.key()),
        }
        Ok(found)
    }
}

/// A chunk, or the table's own empty tree, in a scan.
struct Part {
    chunk: Option<Arc<TimeChunk>>,
    /// The keys that it may have.
    range: ByteRange,
    /// Once it is opened.
    source: Option<Source>,
    row: Row,
    key: Vec<u8>,
}

impl Part {
    fn new(chunk: Option<Arc<TimeChunk>>, range: ByteRange, source: Option<Source>) -> Part {
        Part { chunk, range, source, row: Row::new(), key: Vec::new() }
    }
}

/// A part whose next row was read; the greatest comes first.
struct Head {
    key: Vec<u8>,
    at: usize,
    backward: bool,
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        let order = self.key.cmp(&other.key);
        if self.backward { order } else { order.reverse() }
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

/// How a part is opened.
enum Opening {
    Table(ReadView),
    Index {
        view: ReadView,
        index: usize,
        keys_only: bool,
    },
    /// Its parts are open from the beginning.
    Locked {
        by_index: bool,
    },
}

/// A scan of a chunked table.
pub struct ChunkScan {
    store: Arc<Store>,
    whole: Arc<Table>,
    txn: TxnRef,
    opening: Opening,
    direction: Direction,
    parts: Vec<Part>,
    /// Parts that were not reached yet; the next one is the last.
    pending: Vec<usize>,
    heads: BinaryHeap<Head>,
    /// The part of the row given last, from which the next one is still to be read.
    last: Option<usize>,
    /// Parts that are opened continue behind this key.
    resume: Option<Vec<u8>>,
}

impl ChunkScan {
    /// The store it reads.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// All parts, as those that were not reached.
    fn begin(&mut self) {
        self.heads.clear();
        self.last = None;
        self.pending = (0..self.parts.len()).collect();
        let parts = &self.parts;
        match self.direction {
            Direction::Forward => {
                let lower = |at: &usize| &parts[*at].range.lower;
                self.pending.sort_by(|a, b| lower(b).cmp(lower(a)));
            }
            Direction::Backward => self.pending.sort_by(|a, b| {
                // No upper bound is the greatest.
                let (a, b) = (&parts[*a].range.upper, &parts[*b].range.upper);
                (a.is_none(), a).cmp(&(b.is_none(), b))
            }),
        }
    }

    /// Reads the next row; false at the end.
    ///
    /// # Errors
    /// As those of the scans of one table. After a failed read the next call tries again.
    pub fn next(&mut self, row: &mut Row) -> Result<bool> {
        row.clear();
        if let Some(at) = self.last {
            self.advance(at)?;
            self.last = None;
        }
        while self.reaches_next_part() {
            let Some(at) = self.pending.last().copied() else { break };
            self.open(at)?;
            self.pending.pop();
            // If this fails, the next call tries it again.
            self.last = Some(at);
            self.advance(at)?;
            self.last = None;
        }
        let Some(Head { key, at, .. }) = self.heads.pop() else { return Ok(false) };
        let part = &mut self.parts[at];
        part.key = key;
        std::mem::swap(row, &mut part.row);
        self.last = Some(at);
        Ok(true)
    }

    /// True if the next part may have a row in front of all that were read.
    fn reaches_next_part(&self) -> bool {
        match (self.pending.last().map(|at| &self.parts[*at].range), self.heads.peek()) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(range), Some(head)) => match self.direction {
                Direction::Forward => range.lower <= head.key,
                Direction::Backward => range.upper.as_ref().is_none_or(|upper| *upper > head.key),
            },
        }
    }

    fn advance(&mut self, at: usize) -> Result<()> {
        let backward = self.direction == Direction::Backward;
        let part = &mut self.parts[at];
        let Some(source) = &mut part.source else { return Ok(()) };
        let mut key = std::mem::take(&mut part.key);
        let found = source.next(&mut part.row, &mut key);
        if matches!(found, Ok(true)) {
            self.heads.push(Head { key, at, backward });
        } else {
            part.key = key;
        }
        found.map(|_| ())
    }

    fn open(&mut self, at: usize) -> Result<()> {
        let (part, direction) = (&mut self.parts[at], self.direction);
        if part.source.is_some() {
            return Ok(());
        }
        let Some(chunk) = &part.chunk else { return Ok(()) };
        let (state, range) = (chunk.table(&self.whole)?.state(), part.range.clone());
        let (store, txn) = (self.store.clone(), self.txn.clone());
        let source = match &self.opening {
            Opening::Table(view) => {
                let mut scan = Scan::over((store, txn), state, view.clone(), range, direction);
                if let Some(key) = &self.resume {
                    scan.resume_after(key)?;
                }
                Source::Table(Box::new(scan))
            }
            Opening::Index { view, index, keys_only } => {
                let kind = (*index, *keys_only);
                let scan =
                    IndexScan::over((store, txn), state, view.clone(), kind, range, direction)?;
                Source::Index(Box::new(scan))
            }
            Opening::Locked { .. } => return Ok(()),
        };
        part.source = Some(source);
        self.store.rt.metrics.add(Metric::ChunksOpened, 1);
        Ok(())
    }

    /// Counts the rows that it would still return.
    ///
    /// # Errors
    /// As `next`; `StatementCancelled`.
    pub fn count(mut self) -> Result<u64> {
        let is_new = self.pending.len() == self.parts.len() && self.resume.is_none();
        let mut count = 0;
        if is_new && !matches!(self.opening, Opening::Locked { .. }) {
            for at in 0..self.parts.len() {
                self.open(at)?;
                count += match self.parts[at].source.take() {
                    Some(Source::Table(scan)) => scan.count()?,
                    Some(Source::Index(scan)) => scan.count()?,
                    Some(Source::Locked(_)) | None => 0,
                };
            }
            return Ok(count);
        }
        let mut row = Row::new();
        while self.next(&mut row)? {
            count += 1;
            self.txn.check_cancel()?;
        }
        Ok(count)
    }

    /// Reads the whole row of an entry that an index-only scan has returned, as the scan sees it.
    ///
    /// # Errors
    /// Of storage.
    pub fn fetch_row(&self, entry: &Row, row: &mut Row) -> Result<bool> {
        let Opening::Index { keys_only: true, .. } = self.opening else {
            row.clone_from(entry);
            return Ok(true);
        };
        row.clear();
        let layout = self.whole.layout();
        let Some(chunked) = self.whole.chunked() else { return Ok(false) };
        let place = chunked.placing.place_of_key(&layout, entry.key())?;
        for part in &self.parts {
            if let (Some(chunk), Some(Source::Index(scan))) = (&part.chunk, &part.source)
                && chunk.covers(place)
                && scan.fetch_row(entry, row)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Releases the lock of the last row, as `LockedScan::unlock`.
    pub fn unlock(&mut self) {
        let part = self.last.and_then(|at| self.parts[at].source.as_mut());
        if let Some(Source::Locked(scan)) = part {
            scan.unlock();
        }
    }

    /// True if it goes in the order of an index.
    pub fn is_by_index(&self) -> bool {
        match self.opening {
            Opening::Table(_) => false,
            Opening::Index { .. } => true,
            Opening::Locked { by_index } => by_index,
        }
    }

    /// Continues behind a row of a scan in the order of the clustered key, given by the bytes of
    /// that key.
    ///
    /// # Errors
    /// Of storage.
    pub fn resume_after(&mut self, key: &[u8]) -> Result<()> {
        for part in &mut self.parts {
            match &mut part.source {
                Some(Source::Locked(scan)) => scan.resume_after(&[], key)?,
                source => *source = None,
            }
        }
        self.resume = Some(key.to_vec());
        self.begin();
        Ok(())
    }
}

/// A range of the primary key or of an index, prepared for its chunks.
struct Ranged {
    range: ByteRange,
    pruning: Pruning,
}

impl Ranged {
    fn new(
        table: &Table,
        chunked: &Chunked,
        index: Option<usize>,
        keys: KeySet<'_>,
    ) -> Result<Ranged> {
        let layout = table.layout();
        let (range, parts): (_, Vec<KeyColumn>) = match index {
            None => (layout.byte_range(&layout.key, keys)?, layout.key.clone()),
            Some(index) => {
                let index = layout.index_at(index)?;
                let parts = index.parts.iter().chain(&layout.key).copied().collect();
                (layout.index_range(index, keys)?, parts)
            }
        };
        let pruning = Pruning::new(&layout, &chunked.placing, &parts, keys)?;
        Ok(Ranged { range, pruning })
    }

    /// The part of the range that a chunk may hold; counts those that hold none.
    fn part(&self, store: &Store, chunk: &TimeChunk) -> Option<ByteRange> {
        if !self.pruning.has_slot(chunk) {
            store.rt.metrics.add(Metric::ChunksPrunedSlot, 1);
            return None;
        }
        let part = self.pruning.part_of(&self.range, chunk);
        if part.is_empty() {
            store.rt.metrics.add(Metric::ChunksPrunedTime, 1);
            return None;
        }
        Some(part)
    }
}

impl TableTxn {
    /// `scan` of a chunked table, or `index_scan` (the index and whether only keys are wanted).
    ///
    /// # Errors
    /// As `scan` and `index_scan`.
    pub fn chunk_scan<'k>(
        &mut self,
        table: &Arc<Table>,
        index: Option<(usize, bool)>,
        keys: impl Into<KeySet<'k>>,
        direction: Direction,
    ) -> Result<ChunkScan> {
        let chunked = table.chunked().ok_or_else(|| Error::internal("no chunked table"))?;
        self.enter_chunked(table, Use::Read)?;
        let view = self.view_of(table)?;
        let ranged = Ranged::new(table, chunked, index.map(|(at, _)| at), keys.into())?;
        // The snapshot comes first: see `ChunkMap`.
        let (map, at) = (chunked.map(), view.snapshot.at);
        let mut parts = Vec::new();
        for chunk in map.dropped.iter().chain(map.live()) {
            if chunk.is_seen(&self.store.rt, &chunked.changed, at)
                && let Some(range) = ranged.part(&self.store, chunk)
            {
                parts.push(Part::new(Some(chunk.clone()), range, None));
            }
        }
        let opening = match index {
            None => Opening::Table(view),
            Some((index, keys_only)) => Opening::Index { view, index, keys_only },
        };
        Ok(self.chunk_scan_of(table, opening, direction, parts))
    }

    fn chunk_scan_of(
        &self,
        table: &Arc<Table>,
        opening: Opening,
        direction: Direction,
        parts: Vec<Part>,
    ) -> ChunkScan {
        let mut scan = ChunkScan {
            store: self.store.clone(),
            whole: table.clone(),
            txn: self.inner.clone(),
            opening,
            direction,
            parts,
            pending: Vec::new(),
            heads: BinaryHeap::new(),
            last: None,
            resume: None,
        };
        scan.begin();
        scan
    }

    /// `locked_scan` of a chunked table, or `locked_index_scan`.
    ///
    /// # Errors
    /// As `locked_scan`; `RowChanged` if a chunk of the range was dropped after this transaction's
    /// snapshot.
    pub fn chunk_locked_scan<'k>(
        &mut self,
        table: &Arc<Table>,
        index: Option<usize>,
        keys: impl Into<KeySet<'k>>,
        direction: Direction,
        locking: Locking,
    ) -> Result<ChunkScan> {
        let (keys, state) = (keys.into(), table.state());
        let chunked = table.chunked().ok_or_else(|| Error::internal("no chunked table"))?;
        self.enter_chunked(table, Use::Write)?;
        let opening = Opening::Locked { by_index: index.is_some() };
        let begin = |txn: &mut TableTxn, table: &Arc<Table>| -> Result<Option<Source>> {
            let scan = match index {
                Some(index) => txn.locked_index_scan(table, index, keys, direction, locking),
                None => txn.locked_scan(table, keys, direction, locking),
            };
            Ok(Some(Source::Locked(Box::new(scan?))))
        };
        let rest = chunked.rest(table)?;
        // Locks an absent key where it has no chunk: the whole scan of the empty tree.
        let begin_rest = |txn: &mut TableTxn| -> Result<Option<Source>> {
            let mut source = begin(txn, &rest)?;
            let (mut row, mut key) = (Row::new(), Vec::new());
            match source.as_mut().map_or(Ok(false), |source| source.next(&mut row, &mut key))? {
                true => Err(Error::internal("a row that lies in no chunk")),
                false => Ok(source),
            }
        };
        if index.is_none()
            && let Some(key) = state.point(keys)?
        {
            let range = ByteRange { lower: key.clone(), upper: None };
            let source = self.in_chunk_of_key(table, &key, |txn, chunk| {
                if Arc::ptr_eq(chunk, &rest) { begin_rest(txn) } else { begin(txn, chunk) }
            })?;
            let parts = vec![Part::new(None, range, source)];
            return Ok(self.chunk_scan_of(table, opening, direction, parts));
        }
        let ranged = Ranged::new(table, chunked, index, keys)?;
        let mut parts = Vec::new();
        // A lock of the whole range keeps new chunks of the range away, so it comes first.
        let whole = self.isolation == Isolation::Serializable && locking.wait != LockWait::Skip;
        if whole {
            let source = begin(self, &rest)?;
            parts.push(Part::new(None, ranged.range.clone(), source));
        }
        self.enter_parts((table, chunked), &ranged, begin, &mut parts)?;
        if parts.is_empty() {
            // The lock of an absent unique key, for which this may wait. Meanwhile others may make
            // the chunk.
            begin_rest(self)?;
            if !fault_injection::is(Fault::ChunkMadeMeanwhileMissed) {
                self.enter_parts((table, chunked), &ranged, begin, &mut parts)?;
            }
        }
        Ok(self.chunk_scan_of(table, opening, direction, parts))
    }

    /// Enters the live chunks of a range and begins a scan of each.
    fn enter_parts(
        &mut self,
        (table, chunked): (&Arc<Table>, &Chunked),
        ranged: &Ranged,
        begin: impl Fn(&mut TableTxn, &Arc<Table>) -> Result<Option<Source>>,
        parts: &mut Vec<Part>,
    ) -> Result<()> {
        let map = chunked.map();
        self.check_dropped(table, ranged, &map.dropped)?;
        for chunk in map.live() {
            let Some(range) = ranged.part(&self.store, chunk) else { continue };
            match self.enter_chunk(table, chunk)? {
                Some(entered) => {
                    let source = begin(self, &entered)?;
                    self.store.rt.metrics.add(Metric::ChunksOpened, 1);
                    parts.push(Part::new(Some(chunk.clone()), range, source));
                }
                None => self.check_dropped(table, ranged, std::slice::from_ref(chunk))?,
            }
        }
        Ok(())
    }

    /// Rows that the transaction's snapshot sees and that are gone with their chunk are a conflict.
    fn check_dropped(
        &self,
        table: &Table,
        ranged: &Ranged,
        dropped: &[Arc<TimeChunk>],
    ) -> Result<()> {
        let Some(at) = self.snapshot_at() else { return Ok(()) };
        let is_in = |chunk: &&Arc<TimeChunk>| {
            let part = ranged.pruning.part_of(&ranged.range, chunk);
            chunk.dropped_at() > Some(at) && ranged.pruning.has_slot(chunk) && !part.is_empty()
        };
        match dropped.iter().find(is_in) {
            None => Ok(()),
            Some(_) => {
                let error = Error::new(Code::RowChanged).with("table", &table.layout().def.name);
                Err(error.with("why", "a chunk of the range was dropped after the snapshot"))
            }
        }
    }
}
