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

const CHUNK: usize = 1 << 20;
const CHUNKS_MAX: usize = 1 << 14;
const HEIGHT_MAX: usize = 12;
const ALIGN: usize = 8;

// Node layout: fixed part, links (u32 each), key, value.
const LSN: usize = 0;
const TXN: usize = 8;
const UNDO: usize = 16;
const KEY_LEN: usize = 20;
const PK_LEN: usize = 24;
const VALUE_LEN: usize = 28;
const OP: usize = 32;
const HEIGHT: usize = 33;
const LINKS: usize = 36;

/// Bytes one entry takes at most, given the lengths of its parts.
pub(crate) const fn node_bytes_max(key: usize, pk: usize, value: usize) -> usize {
    (LINKS + 4 * HEIGHT_MAX + 4 + key + pk + value).next_multiple_of(ALIGN)
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
    pub lsn: Lsn,
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
        let Ok(layout) = Layout::from_size_align(count * CHUNK, 64) else {
            unreachable!("a chunk count is bounded by CHUNKS_MAX")
        };
        // SAFETY: the layout has a size above zero.
        let Some(base) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
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
        unsafe { AtomicU32::from_ptr(self.ptr(node).add(LINKS + 4 * level).cast::<u32>()) }
    }

    #[inline]
    fn key_of(&self, node: u32) -> (&[u8], u64) {
        let p = self.ptr(node);
        // SAFETY: the fixed part and the key were written before the node was published and never
        // change; the arena lives as long as `self`.
        unsafe {
            let key_len = p.add(KEY_LEN).cast::<u32>().read() as usize;
            let height = p.add(HEIGHT).read() as usize;
            let key = std::slice::from_raw_parts(p.add(LINKS + 4 * height), key_len);
            (key, p.add(LSN).cast::<u64>().read())
        }
    }

    /// The content of a node.
    pub(crate) fn get(&self, node: Node) -> NodeRef<'_> {
        let (full_key, lsn) = self.key_of(node.0);
        let p = self.ptr(node.0);
        // SAFETY: as in `key_of`; the value follows the key.
        unsafe {
            let value_len = p.add(VALUE_LEN).cast::<u32>().read() as usize;
            let value_at = full_key.as_ptr().add(full_key.len());
            NodeRef {
                full_key,
                pk_len: p.add(PK_LEN).cast::<u32>().read() as usize,
                value: std::slice::from_raw_parts(value_at, value_len),
                op: p.add(OP).read(),
                stamp: Stamp {
                    txn: TxnId(p.add(TXN).cast::<u64>().read()),
                    undo_no: UndoNo(p.add(UNDO).cast::<u32>().read()),
                },
                lsn: Lsn(lsn),
            }
        }
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
        let size = LINKS + 4 * height + key_len + e.value.len();
        let node = (self.allocate(size) / ALIGN) as u32;
        let p = self.ptr(node);
        // SAFETY: `allocate` gave `size` bytes to this thread alone; every write is inside them
        // and aligned (the node is 8-aligned).
        unsafe {
            p.add(LSN).cast::<u64>().write(e.lsn.0);
            p.add(TXN).cast::<u64>().write(e.stamp.txn.0);
            p.add(UNDO).cast::<u32>().write(e.stamp.undo_no.0);
            p.add(KEY_LEN).cast::<u32>().write(key_len as u32);
            p.add(PK_LEN).cast::<u32>().write(e.pk.len() as u32);
            p.add(VALUE_LEN).cast::<u32>().write(e.value.len() as u32);
            p.add(OP).write(e.op);
            p.add(HEIGHT).write(height as u8);
            p.add(HEIGHT + 1).cast::<[u8; 2]>().write([0; 2]);
            for level in 0..height {
                p.add(LINKS + 4 * level).cast::<u32>().write(0);
            }
            let mut at = p.add(LINKS + 4 * height);
            for part in [&e.index.0.to_be_bytes()[..], e.key, e.pk, e.value] {
                at.copy_from_nonoverlapping(part.as_ptr(), part.len());
                at = at.add(part.len());
            }
        }
        node
    }

    #[inline]
    fn is_before(&self, node: u32, key: &[u8], lsn: u64) -> bool {
        let (node_key, node_lsn) = self.key_of(node);
        match node_key.cmp(key) {
            Order::Less => true,
            Order::Greater => false,
            Order::Equal => node_lsn > lsn,
        }
    }

    /// From `from` at `level`: the last node before (key, lsn) and the one after it.
    #[inline]
    fn step(&self, from: u32, level: usize, key: &[u8], lsn: u64) -> (u32, u32) {
        let mut previous = from;
        loop {
            let next = self.link(previous, level).load(Ordering::Acquire);
            if next == 0 || !self.is_before(next, key, lsn) {
                return (previous, next);
            }
            previous = next;
        }
    }

    /// Inserts an entry and returns the bytes it took.
    pub(crate) fn insert(&self, entry: &NewEntry<'_>) -> usize {
        let height = self.random_height();
        let node = self.write_node(entry, height);
        let (key, lsn) = self.key_of(node);
        let top = self.height.fetch_max(height, Ordering::Relaxed).max(height);
        let mut splice = [(0u32, 0u32); HEIGHT_MAX];
        let mut from = 0;
        for level in (0..top).rev() {
            splice[level] = self.step(from, level, key, lsn);
            from = splice[level].0;
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
                *at = self.step(previous, level, key, lsn);
            }
        }
        LINKS + 4 * height + key.len() + entry.value.len()
    }

    fn find_last_before(&self, key: &[u8], lsn: u64) -> (u32, u32) {
        let mut from = 0;
        let mut found = (0, 0);
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            found = self.step(from, level, key, lsn);
            from = found.0;
        }
        found
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
        let (key, lsn) = self.key_of(node.0);
        Node(self.find_last_before(key, lsn).0)
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
