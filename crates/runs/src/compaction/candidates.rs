//! Which indexes the policy of compactions has to be asked about: those that have changed since it
//! was asked last, not all there are.
//!
//! What it says of an index depends on the shape of its runs, on which of them are being merged, on
//! whether readers want it, and on how much may be merged now (the mode). So it is asked again
//! about an index when its runs have changed or a compaction of it has ended (`note`), when it is
//! read for the first time since its last merge (`Runs::cursor`), and about all of `several` when
//! the mode has changed. A compaction to rest that was wanted and not begun is looked at again when
//! none is under way; what snapshots have held back, when the oldest of them is another one.

use evenkeel_base::{IndexId, Lsn};
use std::collections::BTreeSet;

/// What to ask about; `M`: the mode.
pub(crate) struct CompactionCandidates<M> {
    /// Those that compactions may be for at all: with two runs or more, or with much garbage in a
    /// single one; but no damaged ones.
    pub several: BTreeSet<IndexId>,
    /// Those among them that are not at rest.
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
    /// The runs of an index have changed, or which of them are being merged.
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

    /// The policy may say something else about an index, if it is one of `several`.
    pub(crate) fn ask(&mut self, index: IndexId) {
        if self.several.contains(&index) {
            self.changed.insert(index);
        }
    }

    /// The same of many.
    pub(crate) fn ask_all(&mut self, indexes: Vec<IndexId>) {
        let is_several = |index: &IndexId| self.several.contains(index);
        let mut asked: BTreeSet<IndexId> = indexes.into_iter().filter(is_several).collect();
        self.changed.append(&mut asked);
    }

    /// It wants a compaction that was not begun.
    pub(crate) fn want(&mut self, index: IndexId) {
        self.wanted.insert(index);
    }

    /// It would, but for a snapshot.
    pub(crate) fn hold(&mut self, index: IndexId) {
        self.changed.remove(&index);
        if self.several.contains(&index) {
            self.held.insert(index);
        }
    }

    /// Those held back by snapshots or undecided transactions.
    pub(crate) fn is_held(&self, index: IndexId) -> bool {
        self.held.contains(&index)
    }

    /// Some are.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// About which to ask now; `rests`: a compaction to rest is under way.
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
    fn what_has_not_changed_is_not_asked_about() {
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
