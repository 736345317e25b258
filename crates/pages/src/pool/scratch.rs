//! Reusable buffers for images of pages on their way into frames. A new buffer would be cleared,
//! every byte of it, just to be read into.
//!
//! A buffer holds what was last read into it. Memory, outside the budget: for reads in runs, `KEPT`
//! times a sixteenth of the pool, and at most 4 MiB. Only `pool` may use them.

use evenkeel_base::sync::Mutex;
use evenkeel_io::AlignedBuf;

/// Buffers kept, at most: hardly more threads read pages at the same time.
const KEPT: usize = 4;
/// Larger ones are not kept.
const KEPT_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct PageScratch {
    spare: Mutex<Vec<AlignedBuf>>,
}

impl PageScratch {
    /// A buffer of at least `len` bytes with arbitrary content.
    pub fn take(&self, len: usize) -> AlignedBuf {
        let kept = self.spare.lock().pop();
        kept.filter(|buf| buf.len() >= len).unwrap_or_else(|| AlignedBuf::new(len))
    }

    /// Gives it back.
    pub fn give_back(&self, buf: AlignedBuf) {
        let mut spare = self.spare.lock();
        if spare.len() < KEPT && buf.len() <= KEPT_BYTES_MAX {
            spare.push(buf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_enough_buffers_are_reused() {
        let scratch = PageScratch::default();
        let mut first = scratch.take(8192);
        first[0] = 7;
        scratch.give_back(first);
        let again = scratch.take(4096);
        assert!(again.len() == 8192 && again[0] == 7);
        scratch.give_back(again);
        assert_eq!(scratch.take(16384).len(), 16384);
        assert_eq!(scratch.take(1).len(), 1, "one that is too small is not kept");
        scratch.give_back(AlignedBuf::new(KEPT_BYTES_MAX + 1));
        (0..KEPT + 2).for_each(|_| scratch.give_back(AlignedBuf::new(1)));
        assert!(scratch.spare.lock().len() == KEPT, "no more are kept, nor larger ones");
    }
}
