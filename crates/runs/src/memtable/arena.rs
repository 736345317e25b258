//! The entries of a memtable generation: byte strings that many threads append and that never move,
//! change or disappear before the arena does.
//!
//! Invariants: an item is written completely before its [`ArenaNode`] leaves `push`. A thread
//! passes a node to another one only through a lock (release, acquire). A node is used only with
//! the arena that returned it; its number is its position / `ALIGN`, and 0 is none. Only `memtable`
//! and `leaves` may call this.
#![allow(unsafe_code)]

use evenkeel_base::sync::Mutex;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Large pages from the second chunk on, if the system supports them.
const CHUNK: usize = 2 << 20;
const CHUNKS_MAX: usize = 1 << 13;
const ALIGN: usize = 4;
/// The length of an item, before its bytes.
const LEN: usize = 4;

/// Bytes that an item of `len` bytes takes.
pub(crate) const fn item_bytes(len: usize) -> usize {
    (LEN + len).next_multiple_of(ALIGN)
}

/// An item of the arena. Of one thread's items the greater number is the newer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ArenaNode(u32);

impl ArenaNode {
    pub(crate) const NONE: ArenaNode = ArenaNode(0);

    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

pub(crate) struct Arena {
    chunks: Box<[AtomicPtr<u8>]>,
    ready: AtomicUsize,
    position: AtomicUsize,
    owned: Mutex<Vec<Owned>>,
}

struct Owned(NonNull<u8>, Layout);
// SAFETY: plain memory owned by the arena; freed once, in its `Drop`.
unsafe impl Send for Owned {}

impl Drop for Arena {
    fn drop(&mut self) {
        for Owned(ptr, layout) in self.owned.get_mut().drain(..) {
            // SAFETY: allocated in `grow` with this layout; `&mut self` excludes readers.
            unsafe { dealloc(ptr.as_ptr(), layout) }
        }
    }
}

impl Default for Arena {
    fn default() -> Arena {
        Arena {
            chunks: (0..CHUNKS_MAX).map(|_| AtomicPtr::default()).collect(),
            ready: AtomicUsize::new(0),
            position: AtomicUsize::new(ALIGN),
            owned: Mutex::new(Vec::new()),
        }
    }
}

impl Arena {
    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.position.load(Ordering::Relaxed)
    }

    fn allocate(&self, size: usize) -> usize {
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

    /// Adds a chunk. A larger allocation gets chunks of its own; the number of the first is
    /// returned.
    #[cold]
    fn grow(&self, seen: usize, size: usize) -> Option<usize> {
        let mut owned = self.owned.lock();
        let first = self.ready.load(Ordering::Relaxed);
        if size + ALIGN <= CHUNK && self.position.load(Ordering::Relaxed) != seen {
            return None;
        }
        // Position 0 of the arena is no node, so large items start ALIGN bytes into their chunk.
        let count = (size + ALIGN).div_ceil(CHUNK);
        assert!(first + count <= CHUNKS_MAX, "memtable arena beyond its reservation");
        let Ok(layout) = Layout::from_size_align(count * CHUNK, CHUNK) else {
            unreachable!("a chunk count is bounded by CHUNKS_MAX")
        };
        // SAFETY: the layout has a size above zero.
        let Some(base) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // The first chunk of a small database would take a whole large page for a few entries.
        if first > 0 {
            evenkeel_io::request_large_pages(base, count * CHUNK);
        }
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
    fn ptr(&self, node: ArenaNode) -> *mut u8 {
        let at = node.0 as usize * ALIGN;
        let chunk = self.chunks[at / CHUNK].load(Ordering::Relaxed);
        // SAFETY: a node's number comes from `allocate`, so its chunk exists (its pointer was
        // stored before the node was published) and the offset is inside it.
        unsafe { chunk.add(at % CHUNK) }
    }

    /// Appends an item: the parts one after another.
    pub(crate) fn push(&self, parts: [&[u8]; 4]) -> ArenaNode {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let at = self.allocate(item_bytes(len));
        let node = ArenaNode((at / ALIGN) as u32);
        let p = self.ptr(node);
        // SAFETY: `allocate` gave the bytes of the item to this thread alone, in one chunk or in
        // chunks that are one allocation; the length is 4-aligned and the parts end with the item.
        unsafe {
            p.cast::<u32>().write(len as u32);
            let mut to = p.add(LEN);
            for part in parts {
                to.copy_from_nonoverlapping(part.as_ptr(), part.len());
                to = to.add(part.len());
            }
        }
        node
    }

    /// The bytes of an item.
    #[inline]
    pub(crate) fn get(&self, node: ArenaNode) -> &[u8] {
        assert!(node != ArenaNode::NONE, "no item");
        let p = self.ptr(node);
        // SAFETY: length and bytes were written before the node was published and never change; the
        // arena lives as long as `self`.
        unsafe { std::slice::from_raw_parts(p.add(LEN), p.cast::<u32>().read() as usize) }
    }

    /// Prefetches an item.
    #[inline]
    pub(crate) fn prefetch(&self, node: ArenaNode) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch has no effect but on caches; the address is an item's.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.ptr(node).cast_const().cast()) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = node;
    }
}
