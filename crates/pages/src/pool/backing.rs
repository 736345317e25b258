//! Memory behind frames before their first use. The system provides memory at the first write to
//! it, cleared, two MiB at a time: that takes milliseconds, for which a thread that fills a new
//! page would wait. The frame provider requests it a little ahead of the frames taken. The first
//! pass of a recovery, during which a core is idle, requests it for the frames of the second pass.
//!
//! Frames that were never used are taken in ascending order (`FreeList`). Only those of the first
//! segment are prepared, without the first ones, which have small pages of the system
//! (`SMALL_PAGES_BYTES`), and never more of them ahead than were taken: a small database has the
//! memory that it uses. Nothing relies on it.

use crate::pool::frames::{Frames, SMALL_PAGES_BYTES};
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Memory that is kept ready ahead of the frames taken.
const AHEAD_BYTES: usize = 8 << 20;
/// Memory that the provider requests at a time: one large page.
const STEP_BYTES: usize = 2 << 20;

pub(crate) struct Backing {
    /// Frames of the first segment.
    count: u32,
    ahead: u32,
    step: u32,
    /// Memory of frames below this has been requested.
    done: AtomicU32,
    /// Memory of frames below this is to be requested.
    wanted: AtomicU32,
}

impl Backing {
    pub fn new(count: usize, page_size: usize) -> Backing {
        let count = count as u32;
        let step = (STEP_BYTES / page_size) as u32;
        let done = AtomicU32::new(count.min((SMALL_PAGES_BYTES / page_size) as u32));
        let ahead = (AHEAD_BYTES / page_size) as u32;
        Backing { count, ahead, step, done, wanted: AtomicU32::new(0) }
    }

    /// Records that a frame was taken. True: the provider should be woken.
    pub fn taken(&self, frame: u32) -> bool {
        let done = self.done.load(Relaxed);
        let ahead = self.ahead.min(frame);
        if done >= self.count || frame >= self.count || frame + ahead / 2 < done {
            return false;
        }
        let wanted = (frame + ahead).min(self.count);
        self.wanted.fetch_max(wanted, Relaxed) < wanted
    }

    /// This many frames will be taken. True: `prepare` has work.
    pub fn expect(&self, frames: usize) -> bool {
        let wanted = (frames as u32).min(self.count);
        self.wanted.fetch_max(wanted, Relaxed) < wanted && self.done.load(Relaxed) < wanted
    }

    /// Requests the memory of some frames; only for the provider. True if more is wanted.
    pub fn prepare(&self, frames: &Frames) -> bool {
        let done = self.done.load(Relaxed);
        // The pool may have shrunk.
        let wanted = self.wanted.load(Relaxed).min(frames.count() as u32);
        if done < wanted {
            let end = (done + self.step).min(wanted);
            frames.populate(done..end);
            self.done.store(end, Relaxed);
        }
        self.done.load(Relaxed) < wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_committed_a_step_ahead_of_the_frames_in_use() {
        let rt = evenkeel_io::Runtime::new(std::sync::Arc::new(evenkeel_io::MemEnv::new()));
        let (count, page_size) = (2048, 16384);
        let frames = Frames::new(rt, count, page_size);
        let backing = Backing::new(count, page_size);
        assert!(!backing.prepare(&frames), "nothing was taken");
        for frame in 0..count as u32 {
            if backing.taken(frame) {
                while backing.prepare(&frames) {}
            }
            let done = backing.done.load(Relaxed);
            assert!(done > frame && done <= (frame + 512 + 128).min(2048), "{frame}: {done}");
        }
        assert!(!backing.taken(5), "all have memory");
        let backing = Backing::new(count, page_size);
        assert!(!backing.taken(count as u32), "of another segment");
        assert!(!Backing::new(64, 4096).taken(0), "too small");
        assert!(backing.expect(1000) && !backing.expect(900), "more than before");
        while backing.prepare(&frames) {}
        assert!(backing.done.load(Relaxed) == 1000 && backing.expect(count * 2));
        while backing.prepare(&frames) {}
        assert!(!backing.expect(count), "all have memory");
    }
}
