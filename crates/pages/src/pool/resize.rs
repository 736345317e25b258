//! The pool grows and shrinks while it is in use (G3): `memory_size` may change.
//!
//! Growing makes frames, or takes back retired ones, at once. Shrinking marks the frames from the
//! new count on as unusable, and the frame provider empties them in beats: clean pages are evicted,
//! dirty ones go to the cleaner first, and the memory of an empty frame is returned to the system.
//! No thread waits, and a frame in use stays until its user releases it.
//!
//! Invariant: a retired frame holds no page, is on no other list, and its number is at or above
//! the count at the time it was retired; both change under the mutex of the lists.

use crate::Pages;
use crate::pool::frames::{FRAMES_MIN, check_pool};
use crate::pool::free_list::Clock;
use evenkeel_base::{Result, metrics::Metric, sync::Mutex};
use evenkeel_sched::GhostCache;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// Frames that one beat examines.
const BEAT_FRAMES: usize = 1024;
/// Frames added at once, after writes have stopped, for reads that find none.
const SPARE_STEP: usize = FRAMES_MIN;
/// Frames added in this way, at most: more than are in use at once.
const SPARE_MAX: usize = 2048;

#[derive(Default)]
pub(crate) struct Resizing {
    /// Frames added since writes stopped.
    spare: Mutex<usize>,
    hand: AtomicUsize,
}

impl Pages {
    /// Sets the size of the pool. Growing is done when this returns. Shrinking is begun, and
    /// completed by `free_frames_beat` and `clean_beat`. After writes have stopped the pool no
    /// longer shrinks, because dirty pages cannot leave it and reads need the clean frames.
    ///
    /// # Errors
    /// `PoolTooSmall`.
    pub fn resize(&self, pool_bytes: usize) -> Result<()> {
        check_pool(pool_bytes, self.page_size())?;
        let mut count = pool_bytes / self.page_size();
        let _one = self.resizing.spare.lock();
        if self.rt.health.is_failed() {
            count = count.max(self.frames.count());
        }
        self.have_frames(count);
        Ok(())
    }

    /// Adds some frames for reads after writes have stopped, if fewer than `wanted` are free: every
    /// page of the pool may be dirty and unwritable (principle 6: reads continue). No page becomes
    /// dirty any more, so these frames stay clean and are reused. False: enough were added.
    pub(crate) fn spare_frames(&self, wanted: i64) -> bool {
        let mut spare = self.resizing.spare.lock();
        if self.free_list.available() >= wanted {
            return true;
        }
        if *spare >= SPARE_MAX {
            return false;
        }
        *spare += SPARE_STEP;
        // From the frames that are not used now.
        let mut retired = self.free_list.lists.lock().retired.clone();
        retired.sort_unstable();
        let count = match retired.get(SPARE_STEP - 1) {
            Some(last) => *last as usize + 1,
            None => self.frames.made() + SPARE_STEP - retired.len(),
        };
        self.have_frames(count);
        true
    }

    /// Sets the number of used frames. The caller holds the lock of `resizing`.
    fn have_frames(&self, count: usize) {
        let made = self.frames.made();
        self.translation.grow(count);
        self.frames.grow(count);
        let usable = {
            let mut lists = self.free_list.lists.lock();
            lists.retired.extend(made as u32..self.frames.made() as u32);
            self.frames.set_count(count);
            let (back, retired) =
                lists.retired.iter().partition::<Vec<u32>, _>(|f| (**f as usize) < count);
            lists.retired = retired;
            lists.free.extend(&back);
            back.len()
        };
        self.free_list.set_marks(count);
        self.free_list.return_credits(usable);
        self.note_frames();
        self.free_list.event.notify();
        self.clean_event.notify();
    }

    /// The smallest pool, bytes of pages.
    pub fn bytes_min(&self) -> usize {
        FRAMES_MIN * self.page_size()
    }

    /// Pages that left the pool; their misses show what more frames would save.
    pub fn ghosts(&self) -> &GhostCache {
        &self.ghosts
    }

    /// Bytes of free frames beyond those that are kept for the next reads.
    pub fn unused_bytes(&self) -> usize {
        (self.free_list.available() - self.free_list.high()).max(0) as usize * self.page_size()
    }

    /// Frames that have memory: the size of the pool, or more while it shrinks.
    pub fn frames_with_memory(&self) -> usize {
        self.frames.made() - self.free_list.lists.lock().retired.len()
    }

    /// True while frames have to be emptied.
    pub(crate) fn is_shrinking(&self) -> bool {
        self.frames.count() < self.frames.made() && self.frames.count() < self.frames_with_memory()
    }

    pub(crate) fn note_frames(&self) {
        // Under the lock: of two writers of the gauge the later one has the later number.
        let lists = self.free_list.lists.lock();
        let frames = self.frames.made() - lists.retired.len();
        self.rt.metrics.set(Metric::PoolFrames, frames as u64);
    }

    /// Empties some of the unusable frames; true if there was progress.
    pub(crate) fn shrink_some(&self) -> bool {
        if !self.is_shrinking() {
            return false;
        }
        let before = self.frames_with_memory();
        self.retire_free();
        let (count, made) = (self.frames.count(), self.frames.made());
        let mut dirty = false;
        for _ in 0..BEAT_FRAMES.min(made - count) {
            let step = self.resizing.hand.fetch_add(1, Relaxed);
            let frame = count + step % (made - count);
            dirty |= self.evict(frame as u32) == Clock::Cold;
        }
        if dirty {
            self.clean_event.notify();
        }
        self.note_frames();
        self.frames_with_memory() < before
    }

    /// Retires frames of the free list.
    fn retire_free(&self) {
        let mut spare = self.free_list.take_spare(BEAT_FRAMES as i64);
        let mut gone = Vec::new();
        {
            let mut lists = self.free_list.lists.lock();
            let count = self.frames.count();
            lists.list_unused();
            lists.free.retain(|frame| {
                let goes = spare > 0 && *frame as usize >= count;
                if goes {
                    spare -= 1;
                    gone.push(*frame);
                }
                !goes
            });
        }
        self.free_list.return_credits(spare as usize);
        for frame in gone {
            self.release_frame(self.frames.exclusive(frame));
        }
    }
}

#[cfg(test)]
#[path = "resize_tests.rs"]
mod resize_tests;
