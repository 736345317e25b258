//! The pages that the log changes, as the first pass of recovery finds them, so that the second
//! pass can read neighbours in together however far apart the log names them.
//!
//! They are kept by block of 64 neighbours. A hint: it is dropped if it is useless, because the
//! pages would not all fit the pool, or if it would grow without bound. Only `redo` may use it.

use evenkeel_base::PageNo;
use rustc_hash::FxHashMap;

/// Neighbours that are recorded, and may be read in, together.
pub const REDO_BLOCK_PAGES: u64 = 64;
/// One block per this many frames of the pool is recorded, at most.
const FRAMES_PER_BLOCK: usize = 4;

/// A set of pages.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// The pages of each block, one bit each.
    blocks: FxHashMap<u64, u64>,
    /// The last recorded block, to which most records belong, and its bits.
    last: (u64, u64),
    pages: usize,
    blocks_max: usize,
    pages_max: usize,
}

impl Touched {
    /// For a pool of this many frames; records nothing for 0.
    pub fn new(frames: usize) -> Touched {
        Touched {
            blocks_max: frames / FRAMES_PER_BLOCK,
            pages_max: frames - frames / 8,
            ..Touched::default()
        }
    }

    /// Adds a page.
    pub fn insert(&mut self, page: PageNo) {
        let (block, bit) = (page.0 / REDO_BLOCK_PAGES, 1 << (page.0 % REDO_BLOCK_PAGES));
        if self.last.0 == block && self.last.1 & bit != 0 || self.blocks_max == 0 {
            return;
        }
        if self.blocks.len() == self.blocks_max && !self.blocks.contains_key(&block) {
            *self = Touched::default();
            return;
        }
        let bits = self.blocks.entry(block).or_default();
        self.pages += usize::from(*bits & bit == 0);
        *bits |= bit;
        self.last = (block, *bits);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.pages
    }

    /// Stops recording: nothing is kept if there are more pages than room.
    pub fn finish(&mut self) {
        if self.pages > self.pages_max {
            *self = Touched::default();
        }
    }

    /// The recorded pages of the block of a page, ascending.
    pub fn beside(&self, page: PageNo) -> impl Iterator<Item = PageNo> + use<> {
        let block = page.0 / REDO_BLOCK_PAGES;
        let bits = self.blocks.get(&block).copied().unwrap_or(0);
        let is_in = move |i: &u64| bits >> i & 1 != 0;
        (0..REDO_BLOCK_PAGES).filter(is_in).map(move |i| PageNo(block * REDO_BLOCK_PAGES + i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// A set, unless there are too many blocks or pages: then it is empty.
        #[test]
        fn touched_pages_are_kept_in_full_or_not_at_all(
            pages in prop::collection::vec(0u64..4000, 0..300),
            frames in 0usize..600,
        ) {
            let mut touched = Touched::new(frames);
            pages.iter().for_each(|page| touched.insert(PageNo(*page)));
            let counted = touched.len();
            touched.finish();
            let pages: BTreeSet<u64> = pages.into_iter().collect();
            let blocks: BTreeSet<u64> = pages.iter().map(|page| page / REDO_BLOCK_PAGES).collect();
            let pages_max = frames - frames / 8;
            let fits =
                blocks.len() <= frames / FRAMES_PER_BLOCK && pages.len() <= pages_max;
            prop_assert!(!fits || counted == pages.len());
            for first in (0..=4000).step_by(REDO_BLOCK_PAGES as usize) {
                let found = touched.beside(PageNo(first + 5));
                let found: Vec<u64> = found.map(|page| page.0).collect();
                let expected: Vec<u64> = pages
                    .range(first..first + REDO_BLOCK_PAGES)
                    .copied()
                    .filter(|_| fits)
                    .collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
