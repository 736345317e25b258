//! Memory behind frames before their first use. The system gives memory when it is first written
//! to, cleared, two MiB at a time: milliseconds, in which whoever fills a new page would wait. The
//! frame provider asks for it a little ahead of the frames taken; the first pass of a recovery,
//! beside which a core is idle, for what the second will take.
//!
//! Frames that were never used are taken in ascending order (`FreeList`), those of the first bank
//! only are cared for, and a pool smaller than one large page is left alone. Nothing relies on it.

use crate::pool::frames::Frames;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Memory ahead of the frames taken.
const AHEAD_BYTES: usize = 8 << 20;
/// What the provider asks for at once: one large page.
const STEP_BYTES: usize = 2 << 20;

pub(crate) struct Backing {
    /// Frames of the first bank.
    count: u32,
    ahead: u32,
    step: u32,
    /// Frames below this have been asked for.
    done: AtomicU32,
    /// Frames below this shall be.
    wanted: AtomicU32,
}

impl Backing {
    pub fn new(count: usize, page_size: usize) -> Backing {
        let count = count as u32;
        let step = (STEP_BYTES / page_size) as u32;
        let done = AtomicU32::new(if count < step { count } else { 0 });
        let ahead = (AHEAD_BYTES / page_size) as u32;
        Backing { count, ahead, step, done, wanted: AtomicU32::new(0) }
    }

    /// Notes that a frame was taken. True: the provider should be woken.
    pub fn taken(&self, frame: u32) -> bool {
        let done = self.done.load(Relaxed);
        if done >= self.count || frame >= self.count || frame + self.ahead / 2 < done {
            return false;
        }
        let wanted = (frame + self.ahead).min(self.count);
        self.wanted.fetch_max(wanted, Relaxed) < wanted
    }

    /// So many frames are going to be taken. True: `prepare` has something to do.
    pub fn expect(&self, frames: usize) -> bool {
        let wanted = (frames as u32).min(self.count);
        self.wanted.fetch_max(wanted, Relaxed) < wanted && self.done.load(Relaxed) < wanted
    }

    /// Asks for the memory of some frames, for the provider alone. True if more is wanted.
    pub fn prepare(&self, frames: &Frames) -> bool {
        let done = self.done.load(Relaxed);
        // The pool may have become smaller.
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
    fn memory_is_asked_for_ahead_of_the_frames_taken_and_no_farther() {
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
        assert!(!backing.taken(count as u32), "of another bank");
        assert!(!Backing::new(64, 4096).taken(0), "too small");
        assert!(backing.expect(1000) && !backing.expect(900), "more than before");
        while backing.prepare(&frames) {}
        assert!(backing.done.load(Relaxed) == 1000 && backing.expect(count * 2));
        while backing.prepare(&frames) {}
        assert!(!backing.expect(count), "all have memory");
    }
}
