//! Supply of frames: the free list, the clock, reading pages in.
//!
//! A *credit* is the right to one free frame: `available` counts free frames nobody has a credit
//! for. Frames are pushed to the list before `available` grows and popped only by holders of a
//! credit, so a pop with a credit always succeeds. Invariants: the foreground never writes a page;
//! it may take one clean victim by a bounded search, else it waits on the event (P4).

use crate::frames::{ExclusiveGuard, Frames};
use crate::{Access, Pages};
use evenkeel_base::{Beat, Cause, Code, Error, PageNo, Result, metrics::Metric, sync::Mutex};
use evenkeel_format::page::RawPage;
use evenkeel_io::{AlignedBuf, Event};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::*};
use std::time::Duration;

/// Frames a foreground search for a clean victim looks at.
const FOREGROUND_SEARCH: usize = 64;
/// Frames a supply beat looks at.
const BEAT_SEARCH: usize = 1024;
/// Cold dirty frames that wait for the cleaner, at most.
const COLD_MAX: usize = 512;
/// A pool that shrinks looks again this often at frames that were in use.
const SHRINK_AGAIN: Duration = Duration::from_millis(100);

/// Frames without a page.
#[derive(Default)]
pub(crate) struct Lists {
    pub free: Vec<u32>,
    /// Not to be used, and without memory.
    pub retired: Vec<u32>,
}

pub(crate) struct Supply {
    pub lists: Mutex<Lists>,
    available: AtomicI64,
    hand: AtomicUsize,
    /// Below this the provider is woken; it works up to twice as many.
    low: AtomicI64,
    woken: AtomicBool,
    /// A provider is at work. Before (while the database opens) every thread helps itself.
    provided: AtomicBool,
    /// Notified when frames become free or evictable.
    pub freed: Arc<Event>,
    /// Wakes the provider.
    pub event: Arc<Event>,
    /// Dirty frames the clock met: to be written ahead of need.
    pub cold: Mutex<Vec<u32>>,
}

impl Supply {
    pub fn new(frames: usize) -> Supply {
        let free = (0..frames as u32).rev().collect();
        let supply = Supply {
            lists: Mutex::new(Lists { free, retired: Vec::new() }),
            available: AtomicI64::new(frames as i64),
            hand: AtomicUsize::new(0),
            low: AtomicI64::new(0),
            woken: AtomicBool::new(false),
            provided: AtomicBool::new(false),
            freed: Arc::new(Event::new()),
            event: Arc::new(Event::new()),
            cold: Mutex::new(Vec::new()),
        };
        supply.set_marks(frames);
        supply
    }

    /// Sets the marks for a pool of so many frames.
    pub fn set_marks(&self, frames: usize) {
        self.low.store((frames / 32).clamp(4, 4096) as i64, Relaxed);
    }

    /// The low-water mark.
    pub fn low(&self) -> i64 {
        self.low.load(Relaxed)
    }

    /// Free frames without an owner.
    pub fn available(&self) -> i64 {
        self.available.load(SeqCst)
    }

    /// True if the provider should work.
    pub fn is_low(&self) -> bool {
        self.available() < self.low()
    }

    /// Takes up to `n` credits and leaves at least the low-water mark; how many.
    pub fn take_spare(&self, n: i64) -> i64 {
        let mut taken = 0;
        let low = self.low();
        let take = |now: i64| {
            taken = (now - low).clamp(0, n);
            Some(now - taken)
        };
        // The closure never refuses.
        let _ = self.available.fetch_update(SeqCst, SeqCst, take);
        taken
    }

    fn try_credits(&self, n: i64) -> bool {
        let take = |now: i64| (now >= n).then_some(now - n);
        if self.available.fetch_update(SeqCst, SeqCst, take).is_err() {
            return false;
        }
        self.wake_if_low();
        true
    }

    fn wake_if_low(&self) {
        if self.is_low() && !self.woken.swap(true, SeqCst) {
            self.event.notify();
        }
    }

    /// Gives credits back.
    pub fn return_credits(&self, n: usize) {
        if n > 0 {
            self.available.fetch_add(n as i64, SeqCst);
            self.freed.notify();
        }
    }

    fn pop(&self) -> Result<u32> {
        let frame = self.lists.lock().free.pop();
        frame.ok_or_else(|| Error::internal("a credit without a free frame"))
    }

    /// Puts a free frame on its list: one that is not to be used any more on that of the retired.
    /// Such a frame must be `discarded`: false if it is not.
    #[must_use]
    pub fn push(&self, frame: u32, frames: &Frames, discarded: bool) -> bool {
        {
            let mut lists = self.lists.lock();
            if frame as usize >= frames.count() {
                if discarded {
                    lists.retired.push(frame);
                }
                return discarded;
            }
            lists.free.push(frame);
        }
        self.return_credits(1);
        true
    }
}

/// What the clock did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Freed,
    Cold,
    Kept,
}

impl Pages {
    /// Takes the right to `n` free frames; may wait (free_frame).
    ///
    /// # Errors
    /// `WritesStopped` when writes have stopped and only dirty pages are left.
    pub(crate) fn take_credits(&self, n: usize) -> Result<()> {
        if n == 0 || self.supply.try_credits(n as i64) {
            return Ok(());
        }
        loop {
            let seen = self.supply.freed.now();
            let mut search = FOREGROUND_SEARCH;
            if self.rt.health.is_failed() || !self.supply.provided.load(Relaxed) {
                // Nobody else will free a frame: look at each, twice for the clock.
                search = self.frames.count() * 2;
            }
            for _ in 0..search {
                if self.supply.available() >= n as i64 {
                    break;
                }
                self.clock_step();
            }
            if self.supply.try_credits(n as i64) {
                return Ok(());
            }
            self.rt.health.check_writable()?;
            self.supply.woken.store(true, SeqCst);
            self.supply.event.notify();
            self.rt.wait(&self.supply.freed, seen, None, Cause::FreeFrame);
        }
    }

    /// A free frame, latched, for the holder of a credit.
    pub(crate) fn take_frame(&self) -> Result<ExclusiveGuard<'_>> {
        Ok(self.frames.exclusive(self.supply.pop()?))
    }

    /// Empties a latched frame whose page is installed, and puts it on the free list.
    pub(crate) fn release_frame(&self, mut guard: ExclusiveGuard<'_>) {
        if let Some(page) = guard.facts().page() {
            self.translation.remove(page);
        }
        guard.set_page(None);
        let facts = guard.facts();
        facts.loading.store(false, Relaxed);
        facts.fresh.store(false, Relaxed);
        facts.referenced.store(0, Relaxed);
        let index = guard.index();
        let mut discarded = index as usize >= self.frames.count();
        if discarded {
            guard.discard();
        }
        drop(guard);
        while !self.supply.push(index, &self.frames, discarded) {
            // The pool became smaller just now.
            self.frames.exclusive(index).discard();
            discarded = true;
        }
    }

    /// Reads a page in, given a credit in `credits` (taken if there is none). `None`: somebody else
    /// brought it in meanwhile. Concurrent readers find the latched frame and wait for the read.
    pub(crate) fn load(
        &self,
        page: PageNo,
        credits: &mut usize,
        access: Access,
    ) -> Result<Option<ExclusiveGuard<'_>>> {
        if self.geometry.extent_of(page).is_none() {
            return Err(Error::new(Code::PageBeyond).with("page", page));
        }
        if *credits == 0 {
            self.take_credits(1)?;
        } else {
            *credits -= 1;
        }
        let mut guard = self.take_frame()?;
        guard.set_page(Some(page));
        guard.facts().loading.store(true, Relaxed);
        if self.translation.install(page, guard.index()).is_err() {
            // Another frame holds the page: this one was never its.
            guard.set_page(None);
            self.release_frame(guard);
            return Ok(None);
        }
        self.rt.step();
        let read = self.files.read(page, guard.bytes_mut()).map(|seen| *seen.header());
        let facts = guard.facts();
        facts.loading.store(false, Relaxed);
        match read {
            Ok(header) => {
                facts.version.store(header.lsn.0, Release);
                facts.fresh.store(false, Relaxed);
                facts.referenced.store(u8::from(access == Access::Normal), Relaxed);
                Ok(Some(guard))
            }
            Err(error) => {
                self.release_frame(guard);
                Err(error)
            }
        }
    }

    /// Reads neighbouring pages of one segment in with one read, as used once; those that are there
    /// already are left alone, those that do not verify are left to whoever needs them.
    pub(crate) fn load_run(&self, first: PageNo, count: usize) -> Result<()> {
        self.take_credits(count)?;
        let mut guards = Vec::with_capacity(count);
        for page in (first.0..).take(count).map(PageNo) {
            let beyond = self.geometry.extent_of(page).is_none();
            if beyond || self.translation.get(page).is_some() {
                self.supply.return_credits(1);
                continue;
            }
            let mut guard = self.take_frame()?;
            guard.set_page(Some(page));
            guard.facts().loading.store(true, Relaxed);
            if self.translation.install(page, guard.index()).is_err() {
                guard.set_page(None);
                self.release_frame(guard);
                continue;
            }
            guards.push((page, guard));
        }
        let Some(start) = guards.first().map(|(page, _)| *page) else { return Ok(()) };
        let end = guards.last().map_or(start.0, |(page, _)| page.0) + 1;
        self.rt.step();
        let size = self.page_size();
        let mut images = AlignedBuf::new((end - start.0) as usize * size);
        let read = self.files.read_run(start, &mut images);
        for (page, mut guard) in guards {
            let at = (page.0 - start.0) as usize * size;
            let image = &images[at..at + size];
            let header = match RawPage(image).verify(page, self.rt.database()) {
                Ok(seen) if read.is_ok() => *seen.header(),
                _ => {
                    self.release_frame(guard);
                    continue;
                }
            };
            guard.bytes_mut().copy_from_slice(image);
            let facts = guard.facts();
            facts.loading.store(false, Relaxed);
            facts.version.store(header.lsn.0, Release);
            facts.fresh.store(false, Relaxed);
            facts.referenced.store(0, Relaxed);
        }
        read
    }

    /// Moves the clock on by one frame.
    fn clock_step(&self) -> Clock {
        let index = self.supply.hand.fetch_add(1, Relaxed) % self.frames.count();
        let facts = self.frames.facts(index as u32);
        if facts.page().is_some() && facts.referenced.swap(0, Relaxed) != 0 {
            return Clock::Kept;
        }
        self.evict(index as u32)
    }

    /// Empties a frame if its page is clean and nobody has it.
    pub(crate) fn evict(&self, index: u32) -> Clock {
        let facts = self.frames.facts(index);
        if facts.page().is_none() || facts.is_latched() || facts.pins.load(Acquire) != 0 {
            return Clock::Kept;
        }
        if facts.writing.load(Acquire) {
            return Clock::Kept;
        }
        if facts.dirty.load(Acquire) != 0 {
            let mut cold = self.supply.cold.lock();
            if cold.len() < COLD_MAX {
                cold.push(index);
            }
            return Clock::Cold;
        }
        let Some(guard) = self.frames.try_exclusive(index) else { return Clock::Kept };
        if facts.page().is_none()
            || facts.pins.load(Acquire) != 0
            || facts.dirty.load(Acquire) != 0
            || facts.writing.load(Acquire)
        {
            return Clock::Kept;
        }
        self.rt.metrics.add(Metric::Evictions, 1);
        self.release_frame(guard);
        Clock::Freed
    }

    /// One step of the frame provider: frees clean cold frames and hands dirty cold ones to the
    /// cleaner. Idle above the high-water mark, and when only the cleaner can help.
    ///
    /// # Errors
    /// None at present.
    pub fn supply_beat(&self) -> Result<Beat> {
        self.rt.step();
        self.supply.provided.store(true, Relaxed);
        self.supply.woken.store(false, SeqCst);
        let high = self.supply.low() * 2;
        let shrunk = self.shrink_some();
        let (freed, cold) = self.search(high);
        self.rt.metrics.set(Metric::FreeFrames, self.supply.available().max(0) as u64);
        if cold > 0 {
            self.clean_event.notify();
        }
        let needed = self.supply.available() < high;
        Ok(if shrunk || (freed > 0 && needed) { Beat::More } else { Beat::Idle })
    }

    /// Moves the clock on until `wanted` frames are free, by a bounded number of frames. Returns
    /// how many it freed and how many were dirty.
    pub(crate) fn search(&self, wanted: i64) -> (usize, usize) {
        let (mut freed, mut cold) = (0, 0);
        for _ in 0..BEAT_SEARCH.min(self.frames.count() * 2) {
            if self.supply.available() >= wanted || cold >= COLD_MAX / 2 {
                break;
            }
            match self.clock_step() {
                Clock::Freed => freed += 1,
                Clock::Cold => cold += 1,
                Clock::Kept => {}
            }
        }
        (freed, cold)
    }

    /// How long the thread that drives `supply_beat` may sleep: a frame that shall go may have been
    /// latched, and being let go raises no event.
    pub fn next_supply_in(&self) -> Option<Duration> {
        self.is_shrinking().then_some(SHRINK_AGAIN)
    }

    /// Wakes the frame provider.
    pub fn supply_event(&self) -> Arc<Event> {
        self.supply.event.clone()
    }
}
