//! The memtable's ordered structure: a skip list in an arena, with concurrent inserts (CAS) and
//! lock-free reads. Nothing is ever removed; the arena goes as a whole.
//!
//! Order: key bytes by memcmp, then LSN *descending* (newest first). A key is
//! `index id (4, big-endian) ++ column bytes ++ pk`; column bytes are prefix-free, so the
//! concatenation sorts like the tuple.
//!
//! Invariants: a node is written completely before the first link to it is published (release), and
//! only its links change afterwards; a node is linked at level n only after level n - 1; a node
//! number is its position in the arena / 8, and 0 is "none". Only `memtable` may call this.
#![allow(unsafe_code)]

use evenkeel_base::sync::Mutex;
use evenkeel_base::{IndexId, Lsn, Stamp, TxnId, UndoNo};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cmp::Ordering as Order;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Large pages where the system gives them: a search touches a few dozen places.
const CHUNK: usize = 2 << 20;
const CHUNKS_MAX: usize = 1 << 13;
const HEIGHT_MAX: usize = 12;
const ALIGN: usize = 8;

// Node layout. Links (u32 each, level 0 last) lie before the node's address, so that a comparison
// and the step to the next node touch one cache line. From the address on: key length, pk length,
// key; then, 8-aligned: LSN, transaction, undo number, value length, op; then the value.
const PK_LEN: usize = 4;
const KEY: usize = 8;
const TAIL: usize = 25;
// Offsets in the tail.
const TXN: usize = 8;
const UNDO: usize = 16;
const VALUE_LEN: usize = 20;
const OP: usize = 24;

/// Bytes one entry takes at most, given the lengths of its parts.
pub(crate) const fn node_bytes_max(key: usize, pk: usize, value: usize) -> usize {
    node_bytes(HEIGHT_MAX, 4 + key + pk, value)
}

const fn links_bytes(height: usize) -> usize {
    (4 * height).next_multiple_of(ALIGN)
}

const fn node_bytes(height: usize, key: usize, value: usize) -> usize {
    let tail = (KEY + key).next_multiple_of(ALIGN);
    (links_bytes(height) + tail + TAIL + value).next_multiple_of(ALIGN)
}

/// What an insert brings.
pub(crate) struct NewEntry<'a> {
    pub index: IndexId,
    pub op: u8,
    pub stamp: Stamp,
    pub lsn: Lsn,
    pub key: &'a [u8],
    pub pk: &'a [u8],
    pub value: &'a [u8],
}

/// A node: its number in the arena, 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node(u32);

impl Node {
    pub(crate) const NONE: Node = Node(0);
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// A node's content.
#[derive(Clone, Copy)]
pub(crate) struct NodeRef<'a> {
    /// Index id, column bytes, pk.
    pub full_key: &'a [u8],
    pub pk_len: usize,
    pub value: &'a [u8],
    pub op: u8,
    pub stamp: Stamp,
    #[cfg(test)]
    pub lsn: Lsn,
}

/// A key to search for: its first 16 bytes as two numbers spare most calls of memcmp.
#[derive(Clone, Copy)]
struct Search<'a> {
    head: Option<[u64; 2]>,
    key: &'a [u8],
    lsn: u64,
}

impl<'a> Search<'a> {
    #[inline]
    fn new(key: &'a [u8], lsn: u64) -> Search<'a> {
        Search { head: key.first_chunk().map(head_of), key, lsn }
    }
}

#[inline]
fn head_of(bytes: &[u8; 16]) -> [u64; 2] {
    let n = u128::from_be_bytes(*bytes);
    [(n >> 64) as u64, n as u64]
}

pub(crate) struct SkipList {
    chunks: Box<[AtomicPtr<u8>]>,
    ready: AtomicUsize,
    position: AtomicUsize,
    head: [AtomicU32; HEIGHT_MAX],
    height: AtomicUsize,
    seed: AtomicU64,
    owned: Mutex<Vec<Owned>>,
}

struct Owned(NonNull<u8>, Layout);
// SAFETY: plain memory owned by the list; freed once, in `Drop` of the list.
unsafe impl Send for Owned {}

impl Drop for SkipList {
    fn drop(&mut self) {
        for Owned(ptr, layout) in self.owned.get_mut().drain(..) {
            // SAFETY: allocated in `grow` with this layout; `&mut self` means nobody reads it.
            unsafe { dealloc(ptr.as_ptr(), layout) }
        }
    }
}

impl SkipList {
    pub(crate) fn new() -> SkipList {
        SkipList {
            chunks: (0..CHUNKS_MAX).map(|_| AtomicPtr::default()).collect(),
            ready: AtomicUsize::new(0),
            position: AtomicUsize::new(ALIGN),
            head: std::array::from_fn(|_| AtomicU32::new(0)),
            height: AtomicUsize::new(1),
            seed: AtomicU64::new(0x9e37_79b9_7f4a_7c15),
            owned: Mutex::new(Vec::new()),
        }
    }

    /// Bytes of the arena in use.
    pub(crate) fn bytes(&self) -> usize {
        self.position.load(Ordering::Relaxed)
    }

    fn allocate(&self, size: usize) -> usize {
        let size = size.next_multiple_of(ALIGN);
        loop {
            let at = self.position.load(Ordering::Relaxed);
            let fits =
                at % CHUNK + size <= CHUNK && at / CHUNK < self.ready.load(Ordering::Acquire);
            if fits {
                let swap = self.position.compare_exchange_weak(
                    at,
                    at + size,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                if swap.is_ok() {
                    return at;
                }
            } else if let Some(at) = self.grow(at, size) {
                return at;
            }
        }
    }

    /// Adds a chunk; an allocation beyond a chunk gets chunks of its own, which it returns.
    #[cold]
    fn grow(&self, seen: usize, size: usize) -> Option<usize> {
        let mut owned = self.owned.lock();
        let first = self.ready.load(Ordering::Relaxed);
        if size + ALIGN <= CHUNK && (self.position.load(Ordering::Relaxed) != seen) {
            return None;
        }
        // Position 0 of the arena is no node: the large ones start ALIGN into their chunk.
        let count = (size + ALIGN).div_ceil(CHUNK);
        assert!(first + count <= CHUNKS_MAX, "memtable arena beyond its reservation");
        let Ok(layout) = Layout::from_size_align(count * CHUNK, CHUNK) else {
            unreachable!("a chunk count is bounded by CHUNKS_MAX")
        };
        // SAFETY: the layout has a size above zero.
        let Some(base) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // SAFETY: the range is the allocation just made; the call is advice and may fail.
        unsafe { libc::madvise(base.as_ptr().cast(), count * CHUNK, libc::MADV_HUGEPAGE) };
        owned.push(Owned(base, layout));
        for i in 0..count {
            // SAFETY: i * CHUNK is inside the allocation of count * CHUNK bytes.
            let chunk = unsafe { base.as_ptr().add(i * CHUNK) };
            self.chunks[first + i].store(chunk, Ordering::Relaxed);
        }
        self.ready.store(first + count, Ordering::Release);
        if size + ALIGN > CHUNK {
            self.position.fetch_max((first + count) * CHUNK, Ordering::Relaxed);
            return Some(first * CHUNK + ALIGN);
        }
        self.position.fetch_max(first * CHUNK, Ordering::Relaxed);
        None
    }

    #[inline]
    fn ptr(&self, node: u32) -> *mut u8 {
        let at = node as usize * ALIGN;
        let chunk = self.chunks[at / CHUNK].load(Ordering::Relaxed);
        // SAFETY: a node number comes from `allocate`, so its chunk exists (its pointer was stored
        // before the node was published) and the offset is inside it.
        unsafe { chunk.add(at % CHUNK) }
    }

    #[inline]
    fn link(&self, node: u32, level: usize) -> &AtomicU32 {
        if node == 0 {
            return &self.head[level];
        }
        // SAFETY: the node has more than `level` links (it was reached at this level, or is the new
        // node with `level` below its height); they are 4-aligned and only used as atomics.
        unsafe { AtomicU32::from_ptr(self.ptr(node).sub(4 * (level + 1)).cast::<u32>()) }
    }

    #[inline]
    fn key_of(&self, node: u32) -> &[u8] {
        let p = self.ptr(node);
        // SAFETY: lengths and key were written before the node was published and never change; the
        // arena lives as long as `self`.
        unsafe { std::slice::from_raw_parts(p.add(KEY), p.cast::<u32>().read() as usize) }
    }

    #[inline]
    fn tail_of(&self, node: u32) -> *mut u8 {
        let tail = (KEY + self.key_of(node).len()).next_multiple_of(ALIGN);
        // SAFETY: the tail lies inside the node, behind its key.
        unsafe { self.ptr(node).add(tail) }
    }

    #[inline]
    fn lsn_of(&self, node: u32) -> u64 {
        // SAFETY: as in `key_of`; the tail starts with the LSN and is 8-aligned.
        unsafe { self.tail_of(node).cast::<u64>().read() }
    }

    /// The content of a node.
    pub(crate) fn get(&self, node: Node) -> NodeRef<'_> {
        let (p, tail) = (self.ptr(node.0), self.tail_of(node.0));
        // SAFETY: as in `key_of`; the value follows the tail.
        unsafe {
            let value_len = tail.add(VALUE_LEN).cast::<u32>().read() as usize;
            NodeRef {
                full_key: self.key_of(node.0),
                pk_len: p.add(PK_LEN).cast::<u32>().read() as usize,
                value: std::slice::from_raw_parts(tail.add(TAIL), value_len),
                op: tail.add(OP).read(),
                stamp: Stamp {
                    txn: TxnId(tail.add(TXN).cast::<u64>().read()),
                    undo_no: UndoNo(tail.add(UNDO).cast::<u32>().read()),
                },
                #[cfg(test)]
                lsn: Lsn(self.lsn_of(node.0)),
            }
        }
    }

    /// Hides a cache miss of the level below behind the comparison at this one.
    #[inline]
    fn prefetch(&self, node: u32) {
        #[cfg(target_arch = "x86_64")]
        if node != 0 {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch has no effect but on caches; the address is a node's.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.ptr(node).cast_const().cast()) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = node;
    }

    fn random_height(&self) -> usize {
        // A Weyl sequence through a mixer: 1/4 of the nodes reach each further level.
        let mut z = self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (1 + (z.trailing_zeros() / 2) as usize).min(HEIGHT_MAX)
    }

    fn write_node(&self, e: &NewEntry<'_>, height: usize) -> u32 {
        let key_len = 4 + e.key.len() + e.pk.len();
        let at = self.allocate(node_bytes(height, key_len, e.value.len())) + links_bytes(height);
        let node = (at / ALIGN) as u32;
        let p = self.ptr(node);
        // SAFETY: `allocate` gave the bytes of the node to this thread alone; every write is inside
        // them and aligned (node and tail are 8-aligned, links 4-aligned).
        unsafe {
            for level in 0..height {
                p.sub(4 * (level + 1)).cast::<u32>().write(0);
            }
            p.cast::<u32>().write(key_len as u32);
            p.add(PK_LEN).cast::<u32>().write(e.pk.len() as u32);
            let mut to = p.add(KEY);
            for part in [&e.index.0.to_be_bytes()[..], e.key, e.pk] {
                to.copy_from_nonoverlapping(part.as_ptr(), part.len());
                to = to.add(part.len());
            }
            let tail = p.add((KEY + key_len).next_multiple_of(ALIGN));
            tail.cast::<u64>().write(e.lsn.0);
            tail.add(TXN).cast::<u64>().write(e.stamp.txn.0);
            tail.add(UNDO).cast::<u32>().write(e.stamp.undo_no.0);
            tail.add(VALUE_LEN).cast::<u32>().write(e.value.len() as u32);
            tail.add(OP).write(e.op);
            tail.add(TAIL).copy_from_nonoverlapping(e.value.as_ptr(), e.value.len());
        }
        node
    }

    #[inline]
    fn is_before(&self, node: u32, search: &Search<'_>) -> bool {
        let key = self.key_of(node);
        if let (Some(a), Some(b)) = (key.first_chunk().map(head_of), search.head)
            && a != b
        {
            return a < b;
        }
        match key.cmp(search.key) {
            Order::Less => true,
            Order::Greater => false,
            Order::Equal => self.lsn_of(node) > search.lsn,
        }
    }

    /// From `from` at `level`: the last node before the key and the one after it. `bound` is known
    /// not to be before it.
    #[inline]
    fn step(&self, from: u32, level: usize, search: &Search<'_>, bound: u32) -> (u32, u32) {
        let mut previous = from;
        loop {
            let next = self.link(previous, level).load(Ordering::Acquire);
            if level > 0 {
                // If `next` is not before the key, the search goes on here.
                self.prefetch(self.link(previous, level - 1).load(Ordering::Relaxed));
            }
            if next == bound || next == 0 || !self.is_before(next, search) {
                return (previous, next);
            }
            previous = next;
        }
    }

    /// Inserts an entry and returns the bytes it took.
    pub(crate) fn insert(&self, entry: &NewEntry<'_>) -> usize {
        let height = self.random_height();
        let node = self.write_node(entry, height);
        let key = self.key_of(node);
        let search = Search::new(key, entry.lsn.0);
        let top = self.height.fetch_max(height, Ordering::Relaxed).max(height);
        let mut splice = [(0u32, 0u32); HEIGHT_MAX];
        let mut at = (0, 0);
        for level in (0..top).rev() {
            at = self.step(at.0, level, &search, at.1);
            splice[level] = at;
        }
        for (level, at) in splice.iter_mut().enumerate().take(height) {
            loop {
                let (previous, next) = *at;
                self.link(node, level).store(next, Ordering::Relaxed);
                let swap = self.link(previous, level).compare_exchange(
                    next,
                    node,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
                if swap.is_ok() {
                    break;
                }
                *at = self.step(previous, level, &search, 0);
            }
        }
        node_bytes(height, key.len(), entry.value.len())
    }

    fn find_last_before(&self, key: &[u8], lsn: u64) -> (u32, u32) {
        let search = Search::new(key, lsn);
        let mut at = (0, 0);
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            at = self.step(at.0, level, &search, at.1);
        }
        at
    }

    /// The first node at or after `key` (the newest of an equal key).
    pub(crate) fn first_at_least(&self, key: &[u8]) -> Node {
        Node(self.find_last_before(key, u64::MAX).1)
    }

    /// The last node with a key below `key`.
    pub(crate) fn last_below(&self, key: &[u8]) -> Node {
        Node(self.find_last_before(key, u64::MAX).0)
    }

    /// The node after this one.
    pub(crate) fn next(&self, node: Node) -> Node {
        Node(self.link(node.0, 0).load(Ordering::Acquire))
    }

    /// The node before this one, found from the top.
    pub(crate) fn previous(&self, node: Node) -> Node {
        Node(self.find_last_before(self.key_of(node.0), self.lsn_of(node.0)).0)
    }

    /// The first node.
    pub(crate) fn first(&self) -> Node {
        Node(self.head[0].load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn entry<'a>(key: &'a [u8], pk: &'a [u8], lsn: u64) -> NewEntry<'a> {
        NewEntry {
            index: IndexId(1),
            op: 1,
            stamp: Stamp { txn: TxnId(lsn), undo_no: UndoNo(1) },
            lsn: Lsn(lsn),
            key,
            pk,
            value: b"v",
        }
    }

    #[test]
    fn orders_by_key_then_newest_first() {
        let list = SkipList::new();
        let mut model = BTreeMap::new();
        let mut x = 12345u64;
        for lsn in 1..5000u64 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
            let key = ((x >> 33) % 700).to_be_bytes();
            list.insert(&entry(&key, b"p", lsn));
            model.insert((key, u64::MAX - lsn), ());
        }
        let mut node = list.first();
        for (key, back) in model.keys() {
            let at = list.get(node);
            assert_eq!((&at.full_key[4..12], at.lsn.0), (&key[..], u64::MAX - back));
            assert_eq!((at.pk_len, at.value), (1, &b"v"[..]));
            node = list.next(node);
        }
        assert!(node.is_none());
        let mut full = vec![0, 0, 0, 2];
        let mut node = list.last_below(&full);
        for (key, back) in model.keys().rev() {
            let at = list.get(node);
            assert_eq!((&at.full_key[4..12], at.lsn.0), (&key[..], u64::MAX - back));
            node = list.previous(node);
        }
        assert!(node.is_none());
        full[3] = 1;
        assert_eq!(list.first_at_least(&full), list.first());
    }

    #[test]
    fn large_entries_and_threads() {
        let list = SkipList::new();
        let big = vec![7u8; 3 << 20];
        list.insert(&entry(&big, b"p", 1));
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let list = &list;
                s.spawn(move || {
                    for i in 0..20_000u64 {
                        let lsn = 2 + i * 4 + t;
                        list.insert(&entry(&(i % 5000).to_be_bytes(), b"p", lsn));
                    }
                });
            }
        });
        let (mut node, mut count) = (list.first(), 0);
        let mut last: Option<(Vec<u8>, u64)> = None;
        while !node.is_none() {
            let at = list.get(node);
            let now = (at.full_key.to_vec(), u64::MAX - at.lsn.0);
            assert!(last.is_none_or(|l| l < now));
            last = Some(now);
            count += 1;
            node = list.next(node);
        }
        assert_eq!(count, 80_001);
    }
}
