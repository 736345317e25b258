//! An array that grows without moving its items: the bank it was made with, and banks added behind.
//! Reading takes no lock; the first bank costs one comparison. Growing is done by one thread at a
//! time (the caller sees to that).

use std::sync::OnceLock;

/// Each bank added is at least half as large as all before it, so these reach beyond any memory.
const SEGMENTS_MAX: usize = 64;

pub(crate) struct SegmentedVec<B> {
    first: VecSegment<B>,
    more: [OnceLock<VecSegment<B>>; SEGMENTS_MAX],
}

struct VecSegment<B> {
    end: usize,
    items: B,
}

impl<B> SegmentedVec<B> {
    /// One bank of `len` items.
    pub fn new(len: usize, items: B) -> SegmentedVec<B> {
        let more = [const { OnceLock::new() }; SEGMENTS_MAX];
        SegmentedVec { first: VecSegment { end: len, items }, more }
    }

    /// Items in all banks.
    pub fn len(&self) -> usize {
        self.added().last().map_or(self.first.end, |bank| bank.end)
    }

    fn added(&self) -> impl Iterator<Item = &VecSegment<B>> {
        self.more.iter().map_while(OnceLock::get)
    }

    /// The bank that holds item `at`, and its place there.
    #[inline]
    pub fn find(&self, at: usize) -> Option<(&B, usize)> {
        if at < self.first.end {
            return Some((&self.first.items, at));
        }
        self.find_behind(at)
    }

    fn find_behind(&self, at: usize) -> Option<(&B, usize)> {
        let mut start = self.first.end;
        for bank in self.added() {
            if at < bank.end {
                return Some((&bank.items, at - start));
            }
            start = bank.end;
        }
        None
    }

    /// Adds a bank so that there are at least `len` items.
    pub fn grow(&self, len: usize, make: impl FnOnce(usize) -> B) {
        let now = self.len();
        if len <= now {
            return;
        }
        let added = (len - now).max(now / 2);
        if let Some(place) = self.more.iter().find(|bank| bank.get().is_none()) {
            place.get_or_init(|| VecSegment { end: now + added, items: make(added) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_places_while_it_grows() {
        let next = std::cell::Cell::new(0usize);
        let make = |count: usize| -> Vec<usize> {
            let from = next.replace(next.get() + count);
            (from..from + count).collect()
        };
        let banks = SegmentedVec::new(10, make(10));
        for len in [5, 11, 12, 100, 101, 4000] {
            banks.grow(len, make);
            assert!(banks.len() >= len);
            for at in 0..banks.len() {
                let (bank, place) = banks.find(at).expect("there");
                assert_eq!(bank[place], at);
            }
            assert!(banks.find(banks.len()).is_none());
        }
    }
}
