//! A memtable generation: a skip list, the pins of operations still writing to it, and its low LSN.
//!
//! Invariants (B3): every operation pins the generation before it reserves its LSN, so no entry has
//! an LSN below `low`; a sealed generation gets no new pins and is flushed only when it has none.

use crate::skiplist::{NewEntry, Node, NodeRef, SkipList};
use evenkeel_base::{Generation, IndexId, Lsn};
use evenkeel_io::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub(crate) struct Memtable {
    number: AtomicU64,
    list: SkipList,
    pins: AtomicU32,
    sealed: AtomicBool,
    low: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
    unpinned: Arc<Event>,
}

impl Memtable {
    /// `unpinned` is notified when the last pin of the sealed generation goes.
    pub(crate) fn new(number: Generation, unpinned: Arc<Event>) -> Memtable {
        Memtable {
            number: AtomicU64::new(number.0),
            list: SkipList::new(),
            pins: AtomicU32::new(0),
            sealed: AtomicBool::new(false),
            low: AtomicU64::new(u64::MAX),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            unpinned,
        }
    }

    pub(crate) fn number(&self) -> Generation {
        Generation(self.number.load(Ordering::SeqCst))
    }

    /// Recovery: it takes the entries of this generation, too.
    pub(crate) fn raise_number(&self, number: Generation) {
        self.number.fetch_max(number.0, Ordering::SeqCst);
    }

    /// A pin; `log_end` was read before. The caller keeps hand-over out (state lock).
    pub(crate) fn pin(self: &Arc<Self>, log_end: Lsn) -> GenPin {
        self.pins.fetch_add(1, Ordering::SeqCst);
        self.low.fetch_min(log_end.0, Ordering::SeqCst);
        GenPin { memtable: self.clone() }
    }

    /// No pin comes after this (state lock held exclusively).
    pub(crate) fn seal(&self) {
        self.sealed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::SeqCst) > 0
    }

    /// The lowest LSN an entry may have; `None` while never pinned.
    pub(crate) fn low_lsn(&self) -> Option<Lsn> {
        let low = self.low.load(Ordering::SeqCst);
        (low != u64::MAX).then_some(Lsn(low))
    }

    pub(crate) fn lower(&self, lsn: Lsn) {
        self.low.fetch_min(lsn.0, Ordering::SeqCst);
    }

    pub(crate) fn insert(&self, entry: &NewEntry<'_>) -> usize {
        let bytes = self.list.insert(entry);
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        bytes
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Bytes of its entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of its arena in use.
    pub(crate) fn arena_bytes(&self) -> u64 {
        self.list.bytes() as u64
    }
}

/// A pin of the active generation: it is not flushed before the pin is dropped.
pub struct GenPin {
    memtable: Arc<Memtable>,
}

impl GenPin {
    /// The generation's number, for the row record.
    pub fn generation(&self) -> Generation {
        self.memtable.number()
    }

    pub(crate) fn memtable(&self) -> &Memtable {
        &self.memtable
    }
}

impl Drop for GenPin {
    fn drop(&mut self) {
        let last = self.memtable.pins.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.memtable.sealed.load(Ordering::SeqCst) {
            self.memtable.unpinned.notify();
        }
    }
}

/// Walks the entries of one index, or of all, in either direction.
pub(crate) struct MemIter {
    memtable: Arc<Memtable>,
    /// Only entries with this prefix; empty: all.
    prefix: [u8; 4],
    whole: bool,
    node: Node,
}

impl MemIter {
    /// Over one index; not positioned yet.
    pub(crate) fn of_index(memtable: Arc<Memtable>, index: IndexId) -> MemIter {
        MemIter { memtable, prefix: index.0.to_be_bytes(), whole: false, node: Node::NONE }
    }

    /// Over all entries, at the first.
    pub(crate) fn of_all(memtable: Arc<Memtable>) -> MemIter {
        let node = memtable.list.first();
        MemIter { memtable, prefix: [0; 4], whole: true, node }
    }

    fn keep_inside(&mut self) {
        if !self.node.is_none() && !self.whole {
            let at = self.memtable.list.get(self.node);
            if at.full_key[..4] != self.prefix {
                self.node = Node::NONE;
            }
        }
    }

    /// To the first entry with a full key (index id first) at or above `full_key`.
    pub(crate) fn seek_at_least(&mut self, full_key: &[u8]) {
        self.node = self.memtable.list.first_at_least(full_key);
        self.keep_inside();
    }

    /// To the last entry with a full key below `full_key`.
    pub(crate) fn seek_below(&mut self, full_key: &[u8]) {
        self.node = self.memtable.list.last_below(full_key);
        self.keep_inside();
    }

    pub(crate) fn next(&mut self) {
        self.node = self.memtable.list.next(self.node);
        self.keep_inside();
    }

    pub(crate) fn previous(&mut self) {
        self.node = self.memtable.list.previous(self.node);
        self.keep_inside();
    }

    pub(crate) fn get(&self) -> Option<NodeRef<'_>> {
        (!self.node.is_none()).then(|| self.memtable.list.get(self.node))
    }
}
