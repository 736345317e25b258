//! A memtable generation: its entries in an arena, ordered by index; the pins of operations that
//! still write to it; its low LSN.
//!
//! Invariants (B3): every operation pins the generation before it reserves its LSN, so no entry has
//! an LSN below `low`; a sealed generation gets no new pins and is flushed only when it has none.

pub(crate) mod arena;
pub(crate) mod leaves;
#[cfg(test)]
mod leaves_tests;
pub(crate) mod pins;
pub(crate) mod tombstone_elision;

use crate::memtable::arena::{Arena, ArenaNode};
use crate::memtable::leaves::{Leaves, NewEntry, NodeRef, charge};
use crate::memtable::pins::Pins;
use crate::read::run_iter::Bounds;
use crate::read::source::Direction;
use evenkeel_base::{Generation, IndexId, Lsn, Result, sync::Mutex};
use evenkeel_io::{Event, Runtime};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Indexes are found by a hash of their id, without a lock.
const BUCKETS: usize = 64;
/// Entries prefetched ahead of a reader.
const AHEAD: usize = 6;
/// Threads that sort the entries of recovery, at most.
const PACK_THREADS: usize = 4;
/// An index needs this many entries to be worth a thread.
const PACK_ENTRIES_MIN: usize = 512;

type Bucket = OnceLock<Box<Slot>>;

struct Slot {
    index: IndexId,
    leaves: Arc<Leaves>,
    next: Bucket,
}

/// Entries by their index, in log order.
type Unsorted = BTreeMap<IndexId, Vec<ArenaNode>>;

pub(crate) struct Memtable {
    number: AtomicU64,
    arena: Arena,
    indexes: [Bucket; BUCKETS],
    pins: Pins,
    entries: AtomicU64,
    bytes: AtomicU64,
    unpinned: Arc<Event>,
    /// Recovery: entries that are not read yet; they are sorted at its end (B6).
    unsorted: Mutex<Option<Unsorted>>,
}

impl Memtable {
    /// The generation that recovery fills.
    pub(crate) fn restoring(number: Generation, unpinned: Arc<Event>) -> Memtable {
        let mut memtable = Memtable::new(number, unpinned);
        memtable.unsorted = Mutex::new(Some(Unsorted::new()));
        memtable
    }

    /// `unpinned` is notified when the last pin of the sealed generation goes.
    pub(crate) fn new(number: Generation, unpinned: Arc<Event>) -> Memtable {
        Memtable {
            number: AtomicU64::new(number.0),
            arena: Arena::default(),
            indexes: [const { OnceLock::new() }; BUCKETS],
            pins: Pins::default(),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            unpinned,
            unsorted: Mutex::default(),
        }
    }

    pub(crate) fn number(&self) -> Generation {
        Generation(self.number.load(Ordering::SeqCst))
    }

    /// Recovery: the generation also receives the entries of this generation number.
    pub(crate) fn raise_number(&self, number: Generation) {
        self.number.fetch_max(number.0, Ordering::SeqCst);
    }

    /// Makes a pin; `log_end` was read before. The caller excludes hand-over (state lock).
    pub(crate) fn pin(self: &Arc<Self>, log_end: Lsn) -> GenPin {
        self.pins.pin(log_end.0);
        GenPin { memtable: self.clone() }
    }

    /// No pin comes after this (state lock held exclusively).
    pub(crate) fn seal(&self) {
        self.pack();
        self.pins.seal();
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.is_pinned()
    }

    /// The lowest LSN an entry may have; `None` while never pinned.
    pub(crate) fn low_lsn(&self) -> Option<Lsn> {
        self.pins.low().map(Lsn)
    }

    pub(crate) fn lower(&self, lsn: Lsn) {
        self.pins.lower(lsn.0);
    }

    /// Inserts an entry and returns its charge in bytes.
    pub(crate) fn insert(&self, entry: &NewEntry<'_>) -> usize {
        let node = entry.write(&self.arena);
        self.leaves_to_fill(entry.index).insert(&self.arena, node);
        self.count(entry)
    }

    /// As `insert`, in recovery: until `pack` there are no readers, so no order is needed.
    pub(crate) fn restore(&self, entry: &NewEntry<'_>) -> usize {
        let mut unsorted = self.unsorted.lock();
        let Some(list) = &mut *unsorted else {
            drop(unsorted);
            return self.insert(entry);
        };
        list.entry(entry.index).or_default().push(entry.write(&self.arena));
        self.count(entry)
    }

    /// Sorts the entries of `restore`, index by index, into full leaves; inserts are possible
    /// afterwards.
    pub(crate) fn pack(&self) {
        let Some(list) = self.unsorted.lock().take() else { return };
        for (index, nodes) in list {
            self.leaves_to_fill(index).fill(&self.arena, nodes);
        }
    }

    /// As `pack`, for several indexes at a time if that is worth threads; different indexes are
    /// independent. Returns the number of threads.
    ///
    /// # Errors
    /// That of a thread.
    pub(crate) fn pack_by_threads(self: &Arc<Self>, rt: &Runtime) -> Result<usize> {
        let Some(list) = self.unsorted.lock().take() else { return Ok(0) };
        let mut lists: Vec<(IndexId, Vec<ArenaNode>)> = list.into_iter().collect();
        // The longest list is taken first.
        lists.sort_by_key(|(_, nodes)| nodes.len());
        let large = lists.iter().filter(|(_, nodes)| nodes.len() >= PACK_ENTRIES_MIN).count();
        let lists = Arc::new(Mutex::new(lists));
        let start = |_| {
            let (memtable, lists) = (self.clone(), lists.clone());
            // If a thread cannot be started, the others do its work.
            rt.spawn("ek-pack", move || memtable.fill_each(&lists)).ok()
        };
        let helpers: Vec<_> = (1..large.min(PACK_THREADS)).filter_map(start).collect();
        self.fill_each(&lists);
        let threads = 1 + helpers.len();
        let joined: Vec<Result<()>> = helpers.into_iter().map(|helper| helper.join()).collect();
        joined.into_iter().collect::<Result<()>>()?;
        Ok(threads)
    }

    fn fill_each(&self, lists: &Mutex<Vec<(IndexId, Vec<ArenaNode>)>>) {
        loop {
            let Some((index, nodes)) = lists.lock().pop() else { return };
            self.leaves_to_fill(index).fill(&self.arena, nodes);
        }
    }

    fn count(&self, entry: &NewEntry<'_>) -> usize {
        let bytes = charge(entry.key.len(), entry.pk.len(), entry.value.len());
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        bytes
    }

    fn bucket(&self, index: IndexId) -> &Bucket {
        &self.indexes[index.0 as usize % BUCKETS]
    }

    #[inline]
    fn leaves_to_fill(&self, index: IndexId) -> &Leaves {
        let mut bucket = self.bucket(index);
        loop {
            let slot = bucket.get_or_init(|| {
                let leaves = Arc::<Leaves>::default();
                Box::new(Slot { index, leaves, next: Bucket::new() })
            });
            if slot.index == index {
                return &slot.leaves;
            }
            bucket = &slot.next;
        }
    }

    fn slots_of(bucket: &Bucket) -> impl Iterator<Item = &Slot> {
        let first = bucket.get().map(Box::as_ref);
        std::iter::successors(first, |slot| slot.next.get().map(Box::as_ref))
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.indexes.iter().flat_map(Memtable::slots_of)
    }

    fn leaves(&self, index: IndexId) -> Option<Arc<Leaves>> {
        let mut slots = Memtable::slots_of(self.bucket(index));
        slots.find(|slot| slot.index == index).map(|slot| slot.leaves.clone())
    }

    /// Entries of an index that cancel: pairs of an entry and the following one of its key, for
    /// which `cancels` of (older, newer) is true. Searched among `limit` entries in this direction.
    pub(crate) fn pairs(
        self: &Arc<Self>,
        index: IndexId,
        bounds: &Bounds,
        direction: Direction,
        limit: u64,
        cancels: &dyn Fn(&NodeRef<'_>, &NodeRef<'_>) -> bool,
    ) -> Vec<ArenaNode> {
        let mut iter = MemIter::of_index(self.clone(), index);
        match direction {
            Direction::Forward => iter.seek_at_least(&bounds.low),
            Direction::Reverse => iter.seek_below(bounds.high.as_deref()),
        }
        let read = |node| NodeRef::read(&self.arena, node);
        let (mut found, mut versions) = (Vec::new(), Vec::<ArenaNode>::new());
        let mut end = |versions: &mut Vec<ArenaNode>| {
            if direction == Direction::Forward {
                versions.reverse();
            }
            // From old to new; the entry beneath a removed pair is compared with the next.
            let mut left: Vec<ArenaNode> = Vec::new();
            for node in versions.drain(..) {
                match left.last().copied().filter(|old| cancels(&read(*old), &read(node))) {
                    Some(old) => {
                        left.pop();
                        found.extend([old, node]);
                    }
                    None => left.push(node),
                }
            }
        };
        for _ in 0..limit {
            let Some(node) = iter.node() else { break };
            let key = read(node).key;
            if key < &bounds.low[..] || bounds.is_above(key) {
                break;
            }
            if versions.last().is_some_and(|last| read(*last).key != key) {
                end(&mut versions);
            }
            versions.push(node);
            match direction {
                Direction::Forward => iter.next(),
                Direction::Reverse => iter.previous(),
            }
        }
        end(&mut versions);
        found
    }

    /// Removes entries from the order; returns their number.
    pub(crate) fn remove(&self, index: IndexId, nodes: &[ArenaNode]) -> usize {
        self.leaves(index).map_or(0, |leaves| leaves.remove(&self.arena, nodes))
    }

    /// The approximate number of entries of an index at or above `low` and below `high`.
    pub(crate) fn estimate(&self, index: IndexId, low: &[u8], high: Option<&[u8]>) -> u64 {
        self.leaves(index).map_or(0, |leaves| leaves.estimate(&self.arena, low, high))
    }

    /// Shows the entries of an index at or above `low` and below `high` to `each`, in their order,
    /// until it wants no more.
    pub(crate) fn each_between(
        &self,
        index: IndexId,
        low: &[u8],
        high: Option<&[u8]>,
        mut each: impl FnMut(&NodeRef<'_>) -> bool,
    ) {
        let Some(leaves) = self.leaves(index) else { return };
        let mut stretch = Vec::new();
        leaves.copy_at_least(&self.arena, low, &mut stretch);
        while let Some(last) = stretch.last().copied() {
            for node in &stretch {
                let entry = NodeRef::read(&self.arena, *node);
                if high.is_some_and(|high| entry.key >= high) || !each(&entry) {
                    return;
                }
            }
            leaves.copy_after(&self.arena, last, &mut stretch);
        }
    }

    /// The key of an entry in a range, as `Leaves::key_at`.
    pub(crate) fn key_at(
        &self,
        index: IndexId,
        (low, high): (&[u8], Option<&[u8]>),
        part: usize,
    ) -> Option<Vec<u8>> {
        self.leaves(index)?.key_at(&self.arena, low, high, part)
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Bytes of its entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of its arena and leaves in use.
    pub(crate) fn memory(&self) -> u64 {
        let leaves: usize = self.slots().map(|slot| slot.leaves.bytes()).sum();
        (self.arena.bytes() + leaves) as u64
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
        if self.memtable.pins.unpin() {
            self.memtable.unpinned.notify();
        }
    }
}

/// Walks the entries of one index, or of all, in either direction. It copies references to a
/// stretch of entries, at most a leaf, under the leaf's lock, and holds no lock between calls. It
/// meets every entry that existed when the stretch was copied, and may miss newer ones.
pub(crate) struct MemIter {
    memtable: Arc<Memtable>,
    index: IndexId,
    leaves: Option<Arc<Leaves>>,
    stretch: Vec<ArenaNode>,
    /// Index into `stretch`; at its end: not positioned.
    at: usize,
    /// Where the last step forward began.
    before: Option<ArenaNode>,
    /// The remaining indexes, the next one last.
    others: Vec<(IndexId, Arc<Leaves>)>,
}

impl MemIter {
    /// Over one index; not positioned yet.
    pub(crate) fn of_index(memtable: Arc<Memtable>, index: IndexId) -> MemIter {
        let (leaves, stretch, others) = (None, Vec::new(), Vec::new());
        MemIter { memtable, index, leaves, stretch, at: 0, before: None, others }
    }

    /// Over all entries, by index, positioned at the first: for a generation without writers.
    pub(crate) fn of_all(memtable: Arc<Memtable>) -> MemIter {
        let mut others: Vec<_> =
            memtable.slots().map(|slot| (slot.index, slot.leaves.clone())).collect();
        others.sort_unstable_by_key(|(index, _)| std::cmp::Reverse(*index));
        let mut iter = MemIter::of_index(memtable, IndexId(0));
        iter.others = others;
        iter.next_index();
        iter
    }

    /// The index of the present entry.
    pub(crate) fn index(&self) -> IndexId {
        self.index
    }

    fn next_index(&mut self) {
        while self.at == self.stretch.len()
            && let Some((index, leaves)) = self.others.pop()
        {
            self.index = index;
            leaves.copy_at_least(&self.memtable.arena, &[], &mut self.stretch);
            self.leaves = Some(leaves);
            self.at = 0;
        }
    }

    /// To the first entry with a key at or above `key`.
    pub(crate) fn seek_at_least(&mut self, key: &[u8]) {
        self.leaves = self.leaves.take().or_else(|| self.memtable.leaves(self.index));
        if let Some(leaves) = &self.leaves {
            leaves.copy_at_least(&self.memtable.arena, key, &mut self.stretch);
        }
        self.at = 0;
    }

    /// To the last entry with a key below `key` (`None`: the last).
    pub(crate) fn seek_below(&mut self, key: Option<&[u8]>) {
        self.leaves = self.leaves.take().or_else(|| self.memtable.leaves(self.index));
        if let Some(leaves) = &self.leaves {
            leaves.copy_below(&self.memtable.arena, key, &mut self.stretch);
        }
        self.at = self.stretch.len().saturating_sub(1);
    }

    #[inline]
    pub(crate) fn next(&mut self) {
        let Some(before) = self.stretch.get(self.at).copied() else { return };
        if self.at + 1 < self.stretch.len() {
            self.at += 1;
            if let Some(node) = self.stretch.get(self.at + AHEAD) {
                self.memtable.arena.prefetch(*node);
            }
        } else if let Some(leaves) = &self.leaves {
            leaves.copy_after(&self.memtable.arena, before, &mut self.stretch);
            self.at = 0;
            self.next_index();
        }
        self.before = Some(before);
    }

    /// After `next`: the present entry has the key of the one before it.
    #[inline]
    pub(crate) fn repeats(&self) -> bool {
        let key = |node| NodeRef::read(&self.memtable.arena, node).key;
        self.before.is_some_and(|before| self.key() == Some(key(before)))
    }

    /// The present key.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.get().map(|node| node.key)
    }

    #[inline]
    pub(crate) fn previous(&mut self) {
        if self.at > 0 {
            self.at -= 1;
        } else if let (Some(first), Some(leaves)) = (self.stretch.first().copied(), &self.leaves) {
            leaves.copy_before(&self.memtable.arena, first, &mut self.stretch);
            self.at = self.stretch.len().saturating_sub(1);
        }
    }

    /// The present entry, in the generation's arena.
    fn node(&self) -> Option<ArenaNode> {
        self.stretch.get(self.at).copied()
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<NodeRef<'_>> {
        let node = self.stretch.get(self.at)?;
        Some(NodeRef::read(&self.memtable.arena, *node))
    }
}
