//! Frames: one arena of page images and, per frame, a latch with its state. A guard is the only
//! access to the bytes of a frame: [`SharedGuard`] reads, [`ExclusiveGuard`] writes.
//!
//! Invariants: the bytes of a frame are accessed only through a guard of its latch. A thread that
//! waits for a latch waits on an event (never on a mutex) and may hold other latches. A thread that
//! latches a frame for a page compares the page number afterwards, because the frame may hold
//! another page by then. A waiting writer keeps new readers out, so readers cannot starve it;
//! therefore a thread must not latch a frame twice.
#![allow(unsafe_code)]

use crate::pool::hint;
use crate::pool::latch::{Attempt, PageLatch};
use crate::pool::segmented_vec::SegmentedVec;
use evenkeel_base::{Cause, Code, Error, PageNo};
use evenkeel_io::{Event, IO_ALIGN, Runtime};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Frames a pool must have.
pub(crate) const FRAMES_MIN: usize = 64;
const SPINS: u32 = 64;
const EVENT_SHARDS: usize = 64;

/// The first bytes of page images stay on small pages of the system: a small database then takes
/// the memory that it uses, and not at once a large page of 2 MiB.
pub(crate) const SMALL_PAGES_BYTES: usize = 2 << 20;

/// The state of one frame. Everything but `latch`, `pins` and `referenced` changes only under the
/// latch. Zero bytes are a free frame (`VecSegment`).
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Frame {
    latch: PageLatch,
    /// Holders that need the page resident without latching it.
    pub pins: AtomicU32,
    /// Page number + 1; 0 while the frame is free.
    page: AtomicU64,
    /// LSN of the page: its version, which never goes back.
    pub version: AtomicU64,
    /// Bucket + 1 of the oldest change that no write has captured; 0: clean.
    pub dirty: AtomicU64,
    /// Tree that the page counts for while it is dirty.
    pub tree: AtomicU32,
    /// Set by accesses, cleared by the clock.
    pub referenced: AtomicU8,
    /// Its image is being written and is not durable yet: it must not be evicted or written again.
    pub writing: AtomicBool,
    /// Being read from storage: waiters wait for the read.
    pub loading: AtomicBool,
    /// Never written since its page was allocated: needs no doublewrite copy.
    pub fresh: AtomicBool,
}

impl Frame {
    /// The page in this frame.
    pub fn page(&self) -> Option<PageNo> {
        self.page.load(Acquire).checked_sub(1).map(PageNo)
    }
    /// True if `page` is in this frame.
    pub fn holds(&self, page: PageNo) -> bool {
        self.page.load(Acquire) == page.0 + 1
    }
    /// Records an access, without dirtying the cache line if it is recorded already.
    pub fn touch(&self) {
        if self.referenced.load(Relaxed) == 0 {
            self.referenced.store(1, Relaxed);
        }
    }
    /// True while a thread holds the right to change the page.
    pub fn is_write_latched(&self) -> bool {
        self.latch.is_exclusive()
    }
    /// True if a thread holds or wants the latch.
    pub fn is_latched(&self) -> bool {
        self.latch.is_used()
    }
}

const _: () = assert!(!std::mem::needs_drop::<Frame>());

/// Zero bytes, aligned to `IO_ALIGN`, that take memory when they are first written.
struct Arena {
    raw: NonNull<u8>,
    layout: Layout,
    start: NonNull<u8>,
}

// SAFETY: the arena owns its memory; access to it is governed by the latches of `Frames`.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    fn new(bytes: usize) -> Arena {
        // The small alignment lets the allocator hand out fresh zero pages without touching them.
        let Ok(layout) = Layout::from_size_align(bytes + IO_ALIGN, 16) else {
            panic!("a pool of {bytes} bytes is beyond the address space")
        };
        // SAFETY: the layout has a size above zero.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(raw) = NonNull::new(raw) else { handle_alloc_error(layout) };
        // SAFETY: less than `IO_ALIGN` is skipped, and the allocation exceeds `bytes` by that much.
        let start = unsafe { raw.add(raw.as_ptr().align_offset(IO_ALIGN)) };
        Arena { raw, layout, start }
    }

    /// Requests large pages for all bytes but the first.
    fn request_large_pages(&mut self, bytes: usize) {
        // SAFETY: the arena holds `bytes` bytes behind its start, and is borrowed exclusively.
        let all = unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), bytes) };
        if let Some(rest) = all.get_mut(SMALL_PAGES_BYTES..) {
            evenkeel_io::large_pages(rest);
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.raw.as_ptr(), self.layout) }
    }
}

/// Frames made together.
struct VecSegment {
    arena: Arena,
    /// The states: a frame that was never used takes no memory for its state either.
    states: Arena,
    count: usize,
}

impl VecSegment {
    fn new(count: usize, page_size: usize) -> VecSegment {
        let mut arena = Arena::new(count * page_size);
        arena.request_large_pages(count * page_size);
        VecSegment { arena, states: Arena::new(count * size_of::<Frame>()), count }
    }

    #[inline]
    fn facts(&self) -> &[Frame] {
        let states = self.states.start.cast::<Frame>();
        // SAFETY: the arena holds `count` states, aligned to `IO_ALIGN`. All their fields are
        // atomics, for which zeros are a valid value, and they change through these alone.
        unsafe { std::slice::from_raw_parts(states.as_ptr(), self.count) }
    }
}

/// All frames. Those from `count` on must not be used: they are being emptied, or are empty and
/// without memory (`resize`).
pub(crate) struct Frames {
    segments: SegmentedVec<VecSegment>,
    count: AtomicUsize,
    page_size: usize,
    events: Vec<Arc<Event>>,
    rt: Arc<Runtime>,
}

/// # Errors: `PoolTooSmall`.
pub(crate) fn check_pool(pool_bytes: usize, page_size: usize) -> evenkeel_base::Result<()> {
    let least = FRAMES_MIN * page_size;
    if pool_bytes < least {
        let error = Error::new(Code::PoolTooSmall).with("pool_bytes", pool_bytes);
        return Err(error.with("at_least", least));
    }
    Ok(())
}

impl Frames {
    pub fn new(rt: Arc<Runtime>, count: usize, page_size: usize) -> Frames {
        Frames {
            segments: SegmentedVec::new(count, VecSegment::new(count, page_size)),
            count: AtomicUsize::new(count),
            page_size,
            events: (0..EVENT_SHARDS).map(|_| Arc::new(Event::new())).collect(),
            rt,
        }
    }

    /// Usable frames: those below this number.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Sets the number of usable frames; they exist already (`grow`).
    pub fn set_count(&self, count: usize) {
        self.count.store(count.min(self.made()), Relaxed);
    }

    /// Frames ever made.
    pub fn made(&self) -> usize {
        self.segments.len()
    }

    /// Makes frames until there are at least `count`.
    pub fn grow(&self, count: usize) {
        self.segments.grow(count, |added| VecSegment::new(added, self.page_size));
    }

    #[inline]
    fn segment(&self, index: u32) -> (&VecSegment, usize) {
        match self.segments.find(index as usize) {
            Some(found) => found,
            None => panic!("frame {index} was never made"),
        }
    }

    /// The state of a frame.
    #[inline]
    pub fn facts(&self, index: u32) -> &Frame {
        let (segment, at) = self.segment(index);
        &segment.facts()[at]
    }

    fn bytes_at(&self, index: u32) -> *mut u8 {
        let (segment, at) = self.segment(index);
        assert!(at < segment.count);
        // SAFETY: the arena holds `count * page_size` bytes behind `start`, and `at` is below that
        // number of frames.
        unsafe { segment.arena.start.as_ptr().add(at * self.page_size) }
    }

    /// Makes the system put memory behind empty frames, one after another: a single call for all
    /// would block other threads that map memory.
    pub fn populate(&self, frames: std::ops::Range<u32>) {
        for mut guard in frames.filter_map(|index| self.try_exclusive(index)) {
            let is_retired = guard.index() as usize >= self.count();
            if guard.facts().page().is_none() && !is_retired {
                guard.bytes_mut().iter_mut().step_by(IO_ALIGN).for_each(|byte| *byte = 0);
            }
        }
    }

    /// Prefetches what a search reads first while the latch is being taken: the header, the fences
    /// at the other end, and the slots of a leaf of some forty rows, for which a binary search
    /// would otherwise wait one after the other.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        let at = self.bytes_at(index);
        for offset in [0, self.page_size - 64, 64, 128, 192, 256, 320] {
            hint::line(at.wrapping_add(offset));
        }
    }

    fn event(&self, index: u32) -> &Arc<Event> {
        &self.events[index as usize % EVENT_SHARDS]
    }

    /// Waits until the latch may have changed, unless `announce` finds that a wait is not needed.
    fn wait(&self, index: u32, announce: impl Fn(&PageLatch) -> bool) {
        let frame = self.facts(index);
        let event = self.event(index);
        let seen = event.now();
        if announce(&frame.latch) {
            let loading = frame.loading.load(Relaxed);
            let cause = if loading { Cause::PageRead } else { Cause::PageLatch };
            self.rt.wait(event, seen, None, cause);
        }
    }

    /// Latches a frame for reading.
    pub fn shared(&self, index: u32) -> SharedGuard<'_> {
        self.prefetch(index);
        let latch = &self.facts(index).latch;
        let mut spins = 0;
        loop {
            match latch.shared() {
                Attempt::Taken => return SharedGuard { frames: self, index },
                Attempt::Lost => {}
                Attempt::Blocked if spins < SPINS => {
                    spins += 1;
                    std::hint::spin_loop();
                }
                Attempt::Blocked => self.wait(index, PageLatch::announce_reader),
            }
        }
    }

    /// Latches a frame for reading unless a writer may hold it.
    pub fn try_shared(&self, index: u32) -> Option<SharedGuard<'_>> {
        loop {
            match self.facts(index).latch.shared() {
                Attempt::Taken => return Some(SharedGuard { frames: self, index }),
                Attempt::Lost => {}
                Attempt::Blocked => return None,
            }
        }
    }

    /// Latches a frame for writing.
    pub fn exclusive(&self, index: u32) -> ExclusiveGuard<'_> {
        let mut spins = 0;
        loop {
            if let Some(guard) = self.try_exclusive(index) {
                return guard;
            }
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                self.wait(index, PageLatch::announce_writer);
            }
        }
    }

    /// Latches a frame for writing if it is free.
    pub fn try_exclusive(&self, index: u32) -> Option<ExclusiveGuard<'_>> {
        let taken = self.facts(index).latch.exclusive();
        taken.then(|| ExclusiveGuard { frames: self, index })
    }

    fn unlock_shared(&self, index: u32) {
        if self.facts(index).latch.unlock_shared() {
            self.event(index).notify();
        }
    }

    fn unlock_exclusive(&self, index: u32, readers: u32) {
        if self.facts(index).latch.unlock_exclusive(readers) {
            self.event(index).notify();
        }
    }
}

/// The right to read a frame's bytes.
pub(crate) struct SharedGuard<'a> {
    frames: &'a Frames,
    index: u32,
}

impl<'a> SharedGuard<'a> {
    pub fn index(&self) -> u32 {
        self.index
    }
    pub fn facts(&self) -> &'a Frame {
        self.frames.facts(self.index)
    }
    pub fn bytes(&self) -> &[u8] {
        let at = self.frames.bytes_at(self.index);
        // SAFETY: the memory is initialised and inside the arena; the shared latch, held as long as
        // `self`, keeps every `ExclusiveGuard` of this frame from existing.
        unsafe { std::slice::from_raw_parts(at, self.frames.page_size) }
    }
    /// Turns into an exclusive guard if no other reader has the frame.
    pub fn try_upgrade(self) -> Result<ExclusiveGuard<'a>, SharedGuard<'a>> {
        if self.facts().latch.upgrade() {
            let guard = ExclusiveGuard { frames: self.frames, index: self.index };
            std::mem::forget(self);
            return Ok(guard);
        }
        Err(self)
    }
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        self.frames.unlock_shared(self.index);
    }
}

/// The right to change a frame's bytes and state.
pub(crate) struct ExclusiveGuard<'a> {
    frames: &'a Frames,
    index: u32,
}

impl<'a> ExclusiveGuard<'a> {
    pub fn index(&self) -> u32 {
        self.index
    }
    pub fn facts(&self) -> &'a Frame {
        self.frames.facts(self.index)
    }
    pub fn bytes(&self) -> &[u8] {
        let at = self.frames.bytes_at(self.index);
        // SAFETY: as in `bytes_mut`; `self` is borrowed shared, so nobody writes meanwhile.
        unsafe { std::slice::from_raw_parts(at, self.frames.page_size) }
    }
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let at = self.frames.bytes_at(self.index);
        // SAFETY: the memory is initialised and inside the arena; the exclusive latch, held as long
        // as `self`, makes this the only guard of this frame, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(at, self.frames.page_size) }
    }
    /// Sets the page in this frame (`None`: the frame becomes free).
    pub fn set_page(&mut self, page: Option<PageNo>) {
        self.facts().page.store(page.map_or(0, |p| p.0 + 1), Release);
    }
    /// Returns the memory of an empty frame to the system; it reads as zeros from then on.
    pub fn discard(&mut self) {
        evenkeel_io::give_back(self.bytes_mut());
    }
    /// Turns into a shared guard without releasing the latch.
    pub fn downgrade(self) -> SharedGuard<'a> {
        self.frames.unlock_exclusive(self.index, 1);
        let guard = SharedGuard { frames: self.frames, index: self.index };
        std::mem::forget(self);
        guard
    }
}

impl Drop for ExclusiveGuard<'_> {
    fn drop(&mut self) {
        self.frames.unlock_exclusive(self.index, 0);
    }
}

/// Keeps a page resident without latching it. Made only from a guard, so that an eviction (under
/// the exclusive latch) sees every pin.
pub(crate) struct Pin<'a> {
    frames: &'a Frames,
    index: u32,
}

impl<'a> Pin<'a> {
    pub fn new(guard: &SharedGuard<'a>) -> Pin<'a> {
        guard.facts().pins.fetch_add(1, AcqRel);
        Pin { frames: guard.frames, index: guard.index }
    }
    /// Latches the pinned frame for writing.
    pub fn exclusive(&self) -> ExclusiveGuard<'a> {
        self.frames.exclusive(self.index)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.frames.facts(self.index).pins.fetch_sub(1, AcqRel);
    }
}
