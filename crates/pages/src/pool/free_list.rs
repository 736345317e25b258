//! The free list: credits, marks and events (P4), without the pages themselves, so that `evenkeel
//! lab` can drive it.
//!
//! A *credit* is the right to one free frame: `available` counts free frames without a credit.
//! Below the low-water mark an event wakes the provider, which works up to the high-water mark, a
//! few hundred frames above. No timer is involved. Frames are pushed to the list before `available`
//! grows and popped only by holders of a credit, so a pop with a credit always succeeds.

use crate::pool::frames::Frames;
use evenkeel_base::{Error, Result, sync::Mutex};
use evenkeel_io::Event;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::*};

/// Frames that a foreground search for a clean victim examines.
const FOREGROUND_SEARCH: usize = 64;
/// Dirty frames that such a search passes, at most.
const FOREGROUND_COLD: usize = 4;
/// Frames that a beat of the provider examines.
const BEAT_SEARCH: usize = 1024;
/// Frames that the provider refills at a time, at most: a few batches of the cleaner. With many
/// more, no pages are written for users while the frames last, and then the device is full of
/// writes for as long: users feel both.
const REFILL_MAX: i64 = 512;
/// Cold dirty frames that wait for the cleaner, at most.
pub(crate) const COLD_MAX: usize = 512;
/// Dirty frames that one beat of the provider meets, at most.
pub(crate) const BEAT_COLD: usize = COLD_MAX / 2;

/// Frames that a step examines in a pool of this many: in a small one each, twice for the clock.
pub(crate) fn beat_search(frames: usize) -> usize {
    BEAT_SEARCH.min(frames * 2)
}

/// What the clock did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Its page was clean and not in use: it is free.
    Freed,
    /// Its page is dirty and has to be written.
    Cold,
    /// It stays.
    Kept,
}

/// The result of a provider's step, and who works next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provided {
    /// Frames it freed.
    pub freed: usize,
    /// Dirty frames that it met.
    pub cold: usize,
    /// Dirty frames wait for the cleaner.
    pub wakes_cleaner: bool,
    /// Another step is needed: frames are wanted and may be found.
    pub goes_on: bool,
}

/// Frames without a page.
#[derive(Default)]
pub(crate) struct FrameLists {
    pub free: Vec<u32>,
    /// Free frames that were never used, which a list would take memory for. They are taken after
    /// those of the list, in order.
    unused: Range<u32>,
    /// Unusable frames without memory.
    pub retired: Vec<u32>,
}

impl FrameLists {
    /// Free frames.
    #[cfg(debug_assertions)]
    pub fn free_count(&self) -> usize {
        self.free.len() + self.unused.len()
    }

    /// Moves the frames that were never used to the list.
    pub fn list_unused(&mut self) {
        let unused = std::mem::take(&mut self.unused);
        self.free.splice(0..0, unused.rev());
    }
}

/// Credits for free frames, and the wake-ups.
pub struct FreeList {
    pub(crate) lists: Mutex<FrameLists>,
    available: AtomicI64,
    pub(crate) hand: AtomicUsize,
    /// Frames examined since the provider last found a usable one.
    fruitless: AtomicUsize,
    /// Below this the provider is woken; it works up to `high`.
    low: AtomicI64,
    pub(crate) woken: AtomicBool,
    /// A provider runs. Before (while the database opens) every thread helps itself.
    pub(crate) provided: AtomicBool,
    /// Notified when frames become free or evictable.
    pub(crate) freed: Arc<Event>,
    /// Wakes the provider.
    pub(crate) event: Arc<Event>,
    /// Dirty frames that the clock met: to be written ahead of need.
    pub(crate) cold: Mutex<Vec<u32>>,
    /// Those of them that a cleaner has taken and is writing.
    pub(crate) leaving: AtomicUsize,
}

impl FreeList {
    /// For a pool of this many frames, all of them free.
    pub fn new(frames: usize) -> FreeList {
        let lists = FrameLists { unused: 0..frames as u32, ..FrameLists::default() };
        let free_list = FreeList {
            lists: Mutex::new(lists),
            available: AtomicI64::new(frames as i64),
            hand: AtomicUsize::new(0),
            fruitless: AtomicUsize::new(0),
            low: AtomicI64::new(0),
            woken: AtomicBool::new(false),
            provided: AtomicBool::new(false),
            freed: Arc::new(Event::new()),
            event: Arc::new(Event::new()),
            cold: Mutex::new(Vec::new()),
            leaving: AtomicUsize::new(0),
        };
        free_list.set_marks(frames);
        free_list
    }

    /// Sets the marks for a pool of this many frames.
    pub fn set_marks(&self, frames: usize) {
        self.low.store((frames / 32).clamp(4, 4096) as i64, Relaxed);
    }

    /// The low-water mark.
    pub fn low(&self) -> i64 {
        self.low.load(Relaxed)
    }

    /// The high-water mark, up to which the provider works.
    pub fn high(&self) -> i64 {
        let low = self.low();
        low + low.min(REFILL_MAX)
    }

    /// Notified when the provider has something to do.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Notified when frames become free or evictable: each thread that waits for one looks again.
    pub fn freed(&self) -> &Event {
        &self.freed
    }

    /// Wakes the provider for a thread that has found no frame.
    pub fn wake(&self) {
        self.woken.store(true, SeqCst);
        self.event.notify();
    }

    /// A provider's step in a pool of this many frames; `step` advances the clock by one frame.
    pub fn provide(&self, frames: usize, step: impl FnMut() -> Clock) -> Provided {
        // From now on it can be woken again.
        self.provided.store(true, Relaxed);
        self.woken.store(false, SeqCst);
        let queued = self.queued();
        let cold_wanted = self.cold_wanted(queued, self.leaving.load(Relaxed));
        if cold_wanted == 0 {
            return Provided { wakes_cleaner: queued > 0, ..Provided::default() };
        }
        let (freed, cold) = self.search(beat_search(frames), self.high(), cold_wanted, step);
        let goes_on = self.goes_on((freed, cold), frames);
        Provided { freed, cold, wakes_cleaner: queued + cold > 0, goes_on }
    }

    /// Ends a provider's step that examined up to `BEAT_SEARCH` of `frames`. True: another step is
    /// needed, because frames are wanted and may be found. A used frame is kept in the first round,
    /// so every frame is examined twice before the provider rests; dirty ones are left to the
    /// cleaner, which wakes it.
    fn goes_on(&self, (freed, cold): (usize, usize), frames: usize) -> bool {
        let hope = if freed > 0 || cold > 0 {
            self.fruitless.store(0, Relaxed);
            freed > 0
        } else {
            let looked = self.fruitless.fetch_add(BEAT_SEARCH, Relaxed);
            let hope = looked < frames * 2;
            if !hope {
                self.fruitless.store(0, Relaxed);
            }
            hope
        };
        let is_short = self.available() < self.high();
        if !is_short {
            // The next shortage begins a new search.
            self.fruitless.store(0, Relaxed);
        }
        hope && is_short
    }

    /// The number of dirty frames that a provider's step looks for, if `queued` wait for the
    /// cleaner and `leaving` are being written; those become free without the step. A batch more
    /// than wanted, so that the cleaner has full batches. If none are to be found the clock stands
    /// still: if it went on past dirty frames, it would take every clean page that was not used
    /// within a round, and advance faster the fewer of them there are. With a full queue it goes
    /// on, a few dirty frames at a time, because there may be clean ones.
    pub(crate) fn cold_wanted(&self, queued: usize, leaving: usize) -> usize {
        let coming = self.available() + (queued + leaving) as i64;
        let wanted = self.high() + self.high().min(BEAT_COLD as i64);
        let missing = (wanted - coming).max(0) as usize;
        missing.min(COLD_MAX.saturating_sub(queued).clamp(FOREGROUND_COLD, BEAT_COLD))
    }

    /// The search of a thread that wants `wanted` frames and found fewer.
    pub fn search_own(&self, wanted: i64, step: impl FnMut() -> Clock) -> (usize, usize) {
        self.search(FOREGROUND_SEARCH, wanted, FOREGROUND_COLD, step)
    }

    /// Advances the clock with `step`, by at most `most` frames, until `wanted` frames are free or
    /// `cold_most` dirty ones were met. Returns the numbers of freed and of dirty frames.
    pub(crate) fn search(
        &self,
        most: usize,
        wanted: i64,
        cold_most: usize,
        mut step: impl FnMut() -> Clock,
    ) -> (usize, usize) {
        let (mut freed, mut cold) = (0, 0);
        for _ in 0..most {
            if self.available() >= wanted || cold >= cold_most {
                break;
            }
            match step() {
                Clock::Freed => freed += 1,
                Clock::Cold => cold += 1,
                Clock::Kept => {}
            }
        }
        (freed, cold)
    }

    /// The clock met a dirty frame: the cleaner has to write it, unless enough frames wait for
    /// that.
    pub fn queue_cold(&self, frame: u32) {
        let mut cold = self.cold.lock();
        if cold.len() < COLD_MAX {
            cold.push(frame);
        }
    }

    /// Dirty frames that wait for the cleaner.
    pub fn queued(&self) -> usize {
        self.cold.lock().len()
    }

    /// Dirty frames to be written next, at most `max`: they are leaving until `have_left`.
    pub fn take_cold(&self, max: usize) -> Vec<u32> {
        let mut cold = self.cold.lock();
        let keep = cold.len() - cold.len().min(max);
        let taken = cold.split_off(keep);
        self.leaving.fetch_add(taken.len(), Relaxed);
        taken
    }

    /// True while frames are wanted: a written page that was not used since the clock passed it
    /// then frees its frame at once. If the frame were left to the clock, the clock would have to
    /// come round once more, and in a pool that is nearly all dirty it would take every page that
    /// is clean meanwhile: inner pages, and pages just read.
    pub fn gives_up(&self) -> bool {
        self.available() < self.high()
    }

    /// This many frames of `take_cold` are done. The clock stood still for these: some may not have
    /// been written, and a thread that waits for more than the low mark has no other event.
    pub fn have_left(&self, frames: usize) {
        self.leaving.fetch_sub(frames, Relaxed);
        if frames > 0 && self.gives_up() {
            self.event.notify();
        }
    }

    /// Free frames without a credit.
    pub fn available(&self) -> i64 {
        self.available.load(SeqCst)
    }

    /// True if the provider should work.
    pub fn is_low(&self) -> bool {
        self.available() < self.low()
    }

    /// Takes up to `n` credits and leaves at least the low-water mark; returns their number.
    pub fn take_spare(&self, n: i64) -> i64 {
        let mut taken = 0;
        let low = self.low();
        let take = |now: i64| {
            taken = (now - low).clamp(0, n);
            Some(now - taken)
        };
        // The update never fails.
        let _ = self.available.fetch_update(SeqCst, SeqCst, take);
        taken
    }

    /// Takes `n` credits if available; wakes the provider when few are left.
    pub fn try_credits(&self, n: i64) -> bool {
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

    pub(crate) fn pop(&self) -> Result<u32> {
        let frame = {
            let mut lists = self.lists.lock();
            lists.free.pop().or_else(|| lists.unused.next())
        };
        frame.ok_or_else(|| Error::internal("a credit without a free frame"))
    }

    /// Puts a free frame on its list: an unusable one on the list of retired frames. Such a frame
    /// must be `discarded`: false if it is not.
    #[must_use]
    pub(crate) fn push(&self, frame: u32, frames: &Frames, discarded: bool) -> bool {
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
