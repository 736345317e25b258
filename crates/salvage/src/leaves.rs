//! The leaves of each tree, and which of them counts for which keys.
//!
//! Leaves partition the keys of their tree. Where two of them overlap, one is of an earlier state
//! of the tree; the one with the greater LSN counts. Keys that no leaf covers are lost.

use crate::space::Use;
use evenkeel_base::{Lsn, PageNo, TreeId};
use std::collections::{BTreeMap, HashMap};

/// Keys from `low` on, below `high`; without a `high` to the end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRange {
    /// The first key.
    pub low: Vec<u8>,
    /// The key behind the last one.
    pub high: Option<Vec<u8>>,
}

impl KeyRange {
    /// True if the key is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.low.as_slice() <= key && self.high.as_deref().is_none_or(|high| key < high)
    }
}

/// A leaf.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Its page.
    pub page: PageNo,
    /// Its LSN.
    pub lsn: Lsn,
    /// Its fences.
    pub keys: KeyRange,
    /// What the map says of its page.
    pub usage: Use,
    /// The page may be older than changes whose records are gone.
    pub is_old: bool,
}

impl Leaf {
    /// True if its rows may go into the table.
    fn counts(&self) -> bool {
        self.usage != Use::Unlisted && !self.is_old
    }
}

/// The leaves of all trees.
#[derive(Default)]
pub struct Leaves {
    trees: HashMap<TreeId, Vec<Leaf>>,
}

/// A piece of the keys of a tree.
#[derive(Clone, Debug)]
pub enum Piece<'a> {
    /// This leaf counts here.
    Of(&'a Leaf, KeyRange),
    /// No leaf covers these keys.
    Lost(KeyRange),
}

impl Leaves {
    /// Adds a leaf.
    pub fn push(&mut self, tree: TreeId, leaf: Leaf) {
        self.trees.entry(tree).or_default().push(leaf);
    }

    /// The greatest LSN of a leaf.
    pub fn newest_lsn(&self) -> Option<Lsn> {
        self.trees.values().flatten().map(|leaf| leaf.lsn).max()
    }

    /// The trees with leaves, ascending.
    pub fn trees(&self) -> Vec<TreeId> {
        let mut trees: Vec<TreeId> = self.trees.keys().copied().collect();
        trees.sort();
        trees
    }

    /// All keys of a tree in ascending order, in pieces.
    pub fn pieces(&self, tree: TreeId) -> Vec<Piece<'_>> {
        let mut leaves: Vec<&Leaf> = self.all(tree).iter().filter(|l| l.counts()).collect();
        leaves.sort_by_key(|leaf| std::cmp::Reverse(leaf.lsn));
        // Low -> (high, leaf); the ranges do not overlap.
        let mut taken: BTreeMap<&[u8], (Option<&[u8]>, &Leaf)> = BTreeMap::new();
        for leaf in leaves {
            take(&mut taken, leaf);
        }
        let mut pieces = Vec::new();
        let mut at: Option<&[u8]> = Some(&[]);
        for (low, (high, leaf)) in taken {
            match at {
                Some(from) if from < low => pieces.push(Piece::Lost(range(from, Some(low)))),
                _ => {}
            }
            pieces.push(Piece::Of(leaf, range(low, high)));
            at = high;
        }
        if let Some(from) = at {
            pieces.push(Piece::Lost(range(from, None)));
        }
        pieces
    }

    fn all(&self, tree: TreeId) -> &[Leaf] {
        self.trees.get(&tree).map_or(&[], Vec::as_slice)
    }

    /// Leaves of a tree whose rows may not go into the table.
    pub fn others(&self, tree: TreeId) -> impl Iterator<Item = &Leaf> {
        self.all(tree).iter().filter(|leaf| !leaf.counts())
    }

    /// All leaves of a tree of which nothing is known.
    pub fn of_unknown(&self, tree: TreeId) -> &[Leaf] {
        self.all(tree)
    }
}

fn range(low: &[u8], high: Option<&[u8]>) -> KeyRange {
    KeyRange { low: low.to_vec(), high: high.map(<[u8]>::to_vec) }
}

/// Gives a leaf the keys between its fences that are not taken.
fn take<'a>(taken: &mut BTreeMap<&'a [u8], (Option<&'a [u8]>, &'a Leaf)>, leaf: &'a Leaf) {
    let (mut low, end) = (leaf.keys.low.as_slice(), leaf.keys.high.as_deref());
    let is_before_end = |key: &[u8]| end.is_none_or(|end| key < end);
    if let Some((_, (high, _))) = taken.range(..=low).next_back() {
        match high {
            None => return,
            Some(high) if *high > low => low = high,
            Some(_) => {}
        }
    }
    while is_before_end(low) {
        let next = taken.range(low..).next().map(|(low, (high, _))| (*low, *high));
        match next {
            Some((from, to)) if is_before_end(from) => {
                if low < from {
                    taken.insert(low, (Some(from), leaf));
                }
                match to {
                    Some(to) => low = to,
                    None => return,
                }
            }
            _ => {
                taken.insert(low, (end, leaf));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(lsn: u64, low: &[u8], high: Option<&[u8]>) -> Leaf {
        let (page, keys) = (PageNo(lsn), range(low, high));
        Leaf { page, lsn: Lsn(lsn), keys, usage: Use::Listed, is_old: false }
    }

    /// For random leaves the pieces name, for every key, the leaf with the greatest LSN that covers
    /// it, or say that it is lost.
    #[test]
    fn the_newest_leaf_counts_and_gaps_are_lost() {
        let mut random = evenkeel_io::Rng::new(7);
        for round in 0..2_000 {
            let mut leaves = Leaves::default();
            for lsn in 1..=random.below(8) {
                let (a, b) = (random.below(12) as u8, random.below(13) as u8);
                let low: &[u8] = if a == 0 { &[] } else { &[a] };
                let high = if b == 12 { None } else { Some([a.max(b) + 1]) };
                leaves.push(TreeId(1), leaf(lsn, low, high.as_ref().map(|h| &h[..])));
            }
            let pieces = leaves.pieces(TreeId(1));
            for key in 0..16u8 {
                let covers = |l: &&Leaf| l.keys.contains(&[key]);
                let best = leaves.all(TreeId(1)).iter().filter(covers).max_by_key(|l| l.lsn);
                let of = |piece: &&Piece<'_>| match piece {
                    Piece::Of(_, keys) | Piece::Lost(keys) => keys.contains(&[key]),
                };
                let found: Vec<_> = pieces.iter().filter(of).collect();
                assert_eq!(found.len(), 1, "round {round}, key {key}: {pieces:?}");
                match (found[0], best) {
                    (Piece::Of(leaf, _), Some(best)) => assert_eq!(leaf.lsn, best.lsn),
                    (Piece::Lost(_), None) => {}
                    other => panic!("round {round}, key {key}: {other:?}"),
                }
            }
        }
    }
}
