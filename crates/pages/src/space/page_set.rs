//! A set of pages as bits, for checks that examine every page of a table: about a third of a byte
//! per page where pages are adjacent.

use evenkeel_base::PageNo;
use std::collections::HashMap;

/// Pages, in no order.
#[derive(Clone, Debug, Default)]
pub struct PageSet {
    /// By number / 64.
    words: HashMap<u64, u64>,
}

impl PageSet {
    /// Adds a page; false if it was there.
    pub fn insert(&mut self, page: PageNo) -> bool {
        let (word, bit) = (self.words.entry(page.0 / 64).or_default(), 1 << (page.0 % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// True if the page is there.
    pub fn contains(&self, page: PageNo) -> bool {
        self.words.get(&(page.0 / 64)).is_some_and(|word| word & (1 << (page.0 % 64)) != 0)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words.values().map(|word| word.count_ones() as usize).sum()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The pages that `other` does not contain.
    pub fn without<'s>(&'s self, other: &'s PageSet) -> impl Iterator<Item = PageNo> + 's {
        self.words.iter().flat_map(|(at, word)| {
            let left = word & !other.words.get(at).copied().unwrap_or(0);
            (0..64).filter(move |bit| left & (1 << bit) != 0).map(move |bit| PageNo(at * 64 + bit))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_page_set_holds_each_page_once(ours: Vec<u8>, theirs: Vec<u8>) {
            // Word borders, near and far.
            let page = |n: &u8| PageNo(u64::from(*n) * 21 + u64::from(*n / 128) * (1 << 40));
            let (mut set, mut other) = (PageSet::default(), PageSet::default());
            let mut model = BTreeSet::new();
            for n in &ours {
                prop_assert_eq!(set.insert(page(n)), model.insert(page(n)));
            }
            theirs.iter().for_each(|n| _ = other.insert(page(n)));
            prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
            for n in 0..=255 {
                prop_assert_eq!(set.contains(page(&n)), model.contains(&page(&n)));
            }
            let left: BTreeSet<PageNo> = set.without(&other).collect();
            let theirs: BTreeSet<PageNo> = theirs.iter().map(page).collect();
            prop_assert_eq!(left, model.difference(&theirs).copied().collect());
        }
    }
}
