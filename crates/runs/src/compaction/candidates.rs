//! The indexes for which the compaction picker has to run: those that have changed since its last
//! run, not all indexes.
//!
//! The picker's answer for an index depends on the sizes of its runs, on which of them are being
//! compacted, on whether it is read, and on how much may be compacted now (the mode). So the picker
//! runs again for an index when its runs have changed or a compaction of it has ended (`note`),
//! when it is read for the first time since its last compaction (`Runs::cursor`), and for all of
//! `several` when the mode has changed. A compaction at rest that was wanted and not begun is
//! examined again when none is under way; one that snapshots have held back, when the oldest
//! snapshot has changed.

use evenkeel_base::{IndexId, Lsn};
use std::collections::BTreeSet;

/// The indexes to examine; `M`: the mode.
pub(crate) struct CompactionCandidates<M> {
    /// Indexes that can be compacted at all: with two runs or more, or with much garbage in a
    /// single one; no damaged ones.
    pub several: BTreeSet<IndexId>,
    /// Those of `several` that are not at rest.
    pub unrest: BTreeSet<IndexId>,
    changed: BTreeSet<IndexId>,
    wanted: BTreeSet<IndexId>,
    held: BTreeSet<IndexId>,
    mode: Option<M>,
    horizon: Lsn,
}

impl<M> Default for CompactionCandidates<M> {
    fn default() -> CompactionCandidates<M> {
        CompactionCandidates {
            several: BTreeSet::new(),
            unrest: BTreeSet::new(),
            changed: BTreeSet::new(),
            wanted: BTreeSet::new(),
            held: BTreeSet::new(),
            mode: None,
            horizon: Lsn::ZERO,
        }
    }
}

impl<M: Copy + PartialEq> CompactionCandidates<M> {
    /// The runs of an index have changed, or the set of those being compacted.
    pub(crate) fn note(&mut self, index: IndexId, is_several: bool, is_unrest: bool) {
        let put = |set: &mut BTreeSet<IndexId>, is: bool| match is {
            true => drop(set.insert(index)),
            false => drop(set.remove(&index)),
        };
        put(&mut self.several, is_several);
        put(&mut self.unrest, is_several && is_unrest);
        put(&mut self.changed, is_several);
        self.wanted.remove(&index);
        self.held.remove(&index);
    }

    /// The picker may answer differently for an index, if it is one of `several`.
    pub(crate) fn ask(&mut self, index: IndexId) {
        if self.several.contains(&index) {
            self.changed.insert(index);
        }
    }

    /// As `ask`, for many.
    pub(crate) fn ask_all(&mut self, indexes: Vec<IndexId>) {
        let is_several = |index: &IndexId| self.several.contains(index);
        let mut asked: BTreeSet<IndexId> = indexes.into_iter().filter(is_several).collect();
        self.changed.append(&mut asked);
    }

    /// The picker wants a compaction that was not begun.
    pub(crate) fn want(&mut self, index: IndexId) {
        self.wanted.insert(index);
    }

    /// The picker would want a compaction, but a snapshot holds it back.
    pub(crate) fn hold(&mut self, index: IndexId) {
        self.changed.remove(&index);
        if self.several.contains(&index) {
            self.held.insert(index);
        }
    }

    /// True for an index held back by snapshots or undecided transactions.
    pub(crate) fn is_held(&self, index: IndexId) -> bool {
        self.held.contains(&index)
    }

    /// True if some are held back.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// The indexes to examine now; `rests`: a compaction at rest is under way.
    pub(crate) fn take(&mut self, mode: M, horizon: Lsn, rests: bool) -> Vec<IndexId> {
        if self.mode.replace(mode) != Some(mode) {
            self.changed.clear();
            self.wanted.clear();
            self.held.clear();
            self.horizon = horizon;
            return self.several.iter().copied().collect();
        }
        let mut all = std::mem::take(&mut self.changed);
        if !rests {
            all.append(&mut self.wanted);
        }
        if horizon != self.horizon {
            self.horizon = horizon;
            all.append(&mut self.held);
        }
        all.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_indexes_are_not_compaction_candidates() {
        let mut due = CompactionCandidates::<u8>::default();
        let id = IndexId;
        (1..=4).for_each(|n| due.note(id(n), n != 4, true));
        assert_eq!(due.take(0, Lsn(5), false), [id(1), id(2), id(3)]);
        assert_eq!(due.take(0, Lsn(5), false), []);
        due.want(id(1));
        due.hold(id(2));
        assert_eq!(due.take(0, Lsn(5), true), []);
        assert_eq!(due.take(0, Lsn(6), true), [id(2)]);
        assert_eq!(due.take(0, Lsn(6), false), [id(1)]);
        due.ask(id(3));
        due.ask(id(4));
        due.want(id(1));
        due.hold(id(2));
        due.note(id(1), true, false);
        due.note(id(2), false, true);
        assert_eq!((due.unrest.len(), due.is_held(id(2))), (1, false));
        assert_eq!(due.take(0, Lsn(7), false), [id(1), id(3)]);
        assert_eq!(due.take(1, Lsn(7), true), [id(1), id(3)], "in another mode all");
        assert_eq!(due.take(1, Lsn(7), true), []);
    }
}
