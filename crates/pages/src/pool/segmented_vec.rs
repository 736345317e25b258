//! An array that grows without moving its items: an initial segment, and further segments. Reading
//! takes no lock; the initial segment costs one comparison. One thread at a time may grow it (the
//! caller ensures that).

use std::sync::OnceLock;

/// Each added segment is at least half as large as all before it, so these exceed any memory.
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
    /// One segment of `len` items.
    pub fn new(len: usize, items: B) -> SegmentedVec<B> {
        let more = [const { OnceLock::new() }; SEGMENTS_MAX];
        SegmentedVec { first: VecSegment { end: len, items }, more }
    }

    /// Items in all segments.
    pub fn len(&self) -> usize {
        self.added().last().map_or(self.first.end, |segment| segment.end)
    }

    fn added(&self) -> impl Iterator<Item = &VecSegment<B>> {
        self.more.iter().map_while(OnceLock::get)
    }

    /// The segment that holds item `at`, and its index there.
    #[inline]
    pub fn find(&self, at: usize) -> Option<(&B, usize)> {
        if at < self.first.end {
            return Some((&self.first.items, at));
        }
        self.find_behind(at)
    }

    fn find_behind(&self, at: usize) -> Option<(&B, usize)> {
        let mut start = self.first.end;
        for segment in self.added() {
            if at < segment.end {
                return Some((&segment.items, at - start));
            }
            start = segment.end;
        }
        None
    }

    /// Adds a segment so that there are at least `len` items.
    pub fn grow(&self, len: usize, make: impl FnOnce(usize) -> B) {
        let now = self.len();
        if len <= now {
            return;
        }
        let added = (len - now).max(now / 2);
        if let Some(place) = self.more.iter().find(|segment| segment.get().is_none()) {
            place.get_or_init(|| VecSegment { end: now + added, items: make(added) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_places_while_the_vector_grows() {
        let next = std::cell::Cell::new(0usize);
        let make = |count: usize| -> Vec<usize> {
            let from = next.replace(next.get() + count);
            (from..from + count).collect()
        };
        let segments = SegmentedVec::new(10, make(10));
        for len in [5, 11, 12, 100, 101, 4000] {
            segments.grow(len, make);
            assert!(segments.len() >= len);
            for at in 0..segments.len() {
                let (segment, place) = segments.find(at).expect("there");
                assert_eq!(segment[place], at);
            }
            assert!(segments.find(segments.len()).is_none());
        }
    }
}
