//! The pool at work: taking frames, the clock, reading pages in. Credits and marks are in
//! [`free_list`](crate::free_list). Invariants: the foreground never writes a page. It may take one
//! clean victim by a bounded search; otherwise it waits on the event (P4).

pub(crate) mod backing;
pub(crate) mod frames;
pub mod free_list;
pub mod hint;
pub(crate) mod latch;
pub(crate) mod page_table;
pub(crate) mod resize;
pub(crate) mod scratch;
pub(crate) mod segmented_vec;
pub(crate) mod visits;
pub(crate) mod warm;

use crate::pool::frames::ExclusiveGuard;
use crate::pool::free_list::{Clock, beat_search};
use crate::{Access, Pages};
use evenkeel_base::{Beat, Cause, Code, Error, PageNo, Result, metrics::Metric};
use evenkeel_io::Event;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

/// A shrinking pool looks again at this interval at frames that were in use.
const SHRINK_AGAIN: Duration = Duration::from_millis(100);

impl Pages {
    /// Takes the right to `n` free frames; may wait (free_frame).
    ///
    /// # Errors
    /// `DatabaseClosed` if it would have to wait; `WritesStopped` in recovery, and when all frames
    /// of the pool, those added since writes stopped included, are in use (`spare_frames`).
    pub(crate) fn take_credits(&self, n: usize) -> Result<()> {
        if n == 0 || self.free_list.try_credits(n as i64) {
            return Ok(());
        }
        loop {
            let seen = self.free_list.freed.now();
            let open = self.rt.health.check_open();
            let provided = self.free_list.provided.load(Relaxed);
            if open.is_err() || self.rt.health.is_failed() || !provided {
                // No other thread frees frames: examine each, twice for the clock.
                let all = self.frames.count() * 2;
                self.free_list.search(all, n as i64, usize::MAX, || self.clock_step());
            } else {
                self.free_list.search_own(n as i64, || self.clock_step());
            }
            if self.free_list.try_credits(n as i64) {
                return Ok(());
            }
            if let Err(stopped) = self.rt.health.check_writable() {
                let spare = provided && open.is_ok() && self.spare_frames(n as i64);
                if !spare {
                    return Err(stopped);
                }
                continue;
            }
            open?;
            if !provided {
                // There is no cleaner either, and other redo threads may have taken the frames that
                // were freed.
                self.make_room(n as i64)?;
                continue;
            }
            self.free_list.wake();
            self.rt.wait(&self.free_list.freed, seen, None, Cause::FreeFrame);
        }
    }

    /// A free frame, latched, for the holder of a credit.
    pub(crate) fn take_frame(&self) -> Result<ExclusiveGuard<'_>> {
        let frame = self.free_list.pop()?;
        if self.backing.taken(frame) {
            self.free_list.event.notify();
        }
        Ok(self.frames.exclusive(frame))
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
        while !self.free_list.push(index, &self.frames, discarded) {
            // The pool shrank just now.
            self.frames.exclusive(index).discard();
            discarded = true;
        }
    }

    /// Reads a page in, with a credit of `credits` (taken if there is none). `None`: another thread
    /// has brought it in. Concurrent readers find the latched frame and wait for the read.
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
            // Another frame holds the page: this one never held it.
            guard.set_page(None);
            self.release_frame(guard);
            return Ok(None);
        }
        if access == Access::Normal {
            self.ghosts.missed(page.0);
        }
        crate::pages::note_asked(self.page_size());
        self.rt.step();
        let read = self.files.read(page, guard.bytes_mut()).map(|seen| *seen.header());
        let read = read.and_then(|header| self.check_in_use(page).map(|()| header));
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

    /// Refuses a page that is not in use. The storage may still have what lay there: the frames of
    /// a freed extent go before its blocks. A caller that got the number before the page was freed,
    /// such as a writer with a hint, would take that for the page. The frame's latch is held, so
    /// nobody can free a page that passes before its caller has it. Before the map is read, only
    /// recovery reads pages.
    fn check_in_use(&self, page: PageNo) -> Result<()> {
        if self.space_loaded.get().is_none() || self.space.is_in_use(page) {
            return Ok(());
        }
        let error = Error::new(Code::PageIdentity).with("page", page);
        Err(error.with("why", "the space map has the page as free"))
    }

    /// Reads neighbouring pages of one segment in with one read, for single use. Pages that are in
    /// memory are left alone; pages that do not verify or are not in use are left to their users.
    pub(crate) fn load_run(&self, first: PageNo, count: usize) -> Result<()> {
        self.take_credits(count)?;
        self.load_run_as(Access::UseOnce, first, count).map(|_| ())
    }

    /// As `load_run`, with `count` credits that the caller has taken; returns the number of pages.
    pub(crate) fn load_run_as(&self, access: Access, first: PageNo, count: usize) -> Result<usize> {
        let mut guards = Vec::with_capacity(count);
        for page in (first.0..).take(count).map(PageNo) {
            let beyond = self.geometry.extent_of(page).is_none();
            if beyond || self.translation.get(page).is_some() {
                self.free_list.return_credits(1);
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
        let Some(start) = guards.first().map(|(page, _)| *page) else { return Ok(0) };
        let end = guards.last().map_or(start.0, |(page, _)| page.0) + 1;
        self.rt.step();
        let size = self.page_size();
        let len = (end - start.0) as usize * size;
        let mut images = self.scratch.take(len);
        let read = self.files.read_run(start, &mut images[..len]);
        let mut brought = 0;
        for (page, mut guard) in guards {
            let at = (page.0 - start.0) as usize * size;
            let image = &images[at..at + size];
            let header = match self.files.verify(page, image) {
                Ok(seen) if read.is_ok() && self.check_in_use(page).is_ok() => *seen.header(),
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
            facts.referenced.store(u8::from(access == Access::Normal), Relaxed);
            brought += 1;
        }
        self.scratch.give_back(images);
        read.map(|()| brought)
    }

    /// Advances the clock by one frame.
    fn clock_step(&self) -> Clock {
        let index = self.free_list.hand.fetch_add(1, Relaxed) % self.frames.count();
        let facts = self.frames.facts(index as u32);
        if facts.page().is_some() && facts.referenced.swap(0, Relaxed) != 0 {
            return Clock::Kept;
        }
        self.evict(index as u32)
    }

    /// Empties a frame if its page is clean and unused.
    pub(crate) fn evict(&self, index: u32) -> Clock {
        let facts = self.frames.facts(index);
        if facts.page().is_none() || facts.is_latched() || facts.pins.load(Acquire) != 0 {
            return Clock::Kept;
        }
        if facts.writing.load(Acquire) {
            return Clock::Kept;
        }
        if facts.dirty.load(Acquire) != 0 {
            self.free_list.queue_cold(index);
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
        if let Some(page) = facts.page() {
            self.ghosts.evicted(page.0);
            // A frame that will be removed needs no memory.
            if (index as usize) < self.frames.count() {
                self.ghosts.wants_room();
            }
        }
        self.release_frame(guard);
        Clock::Freed
    }

    /// This many frames will be taken soon. True: `back_frames` has work.
    pub fn expect_frames(&self, count: usize) -> bool {
        self.backing.expect(count)
    }

    /// Backs some of the frames that will be taken with memory, before the frame provider runs;
    /// true if there is more to do. One caller.
    pub fn back_frames(&self) -> bool {
        self.backing.prepare(&self.frames)
    }

    /// One step of the frame provider: frees clean cold frames, hands dirty cold ones to the
    /// cleaner, and backs frames that are soon used with memory. Idle above the high-water mark,
    /// when only the cleaner can help, and when every frame is in use.
    ///
    /// # Errors
    /// None at present.
    pub fn free_frames_beat(&self) -> Result<Beat> {
        self.rt.step();
        let shrunk = self.shrink_some();
        let provided = self.free_list.provide(self.frames.count(), || self.clock_step());
        self.rt.metrics.set(Metric::FreeFrames, self.free_list.available().max(0) as u64);
        if provided.wakes_cleaner {
            self.clean_event.notify();
        }
        let prepares = self.backing.prepare(&self.frames);
        Ok(if shrunk || provided.goes_on || prepares { Beat::More } else { Beat::Idle })
    }

    /// Advances the clock until `wanted` frames are free or `cold_most` dirty ones were met, by a
    /// bounded number of frames. Returns the numbers of freed and of dirty frames.
    pub(crate) fn search(&self, wanted: i64, cold_most: usize) -> (usize, usize) {
        let most = beat_search(self.frames.count());
        self.free_list.search(most, wanted, cold_most, || self.clock_step())
    }

    /// How long the thread that drives `free_frames_beat` may sleep: a frame to be removed may have
    /// been latched, and its release raises no event.
    pub fn next_free_frames_in(&self) -> Option<Duration> {
        self.is_shrinking().then_some(SHRINK_AGAIN)
    }

    /// Wakes the frame provider.
    pub fn free_frames_event(&self) -> Arc<Event> {
        self.free_list.event.clone()
    }
}
