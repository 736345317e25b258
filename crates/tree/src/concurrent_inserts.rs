//! What came beside a build of an index. The build tells its tree from which transaction on rows
//! were inserted by those who write the entries of the new index themselves; it needs none of
//! these rows, and would not end before writers who insert faster than it goes on beside them if
//! it read them.
//!
//! Two things tell such rows while the build reads: their stamps, which compaction leaves them
//! (`cell_flags::FIRST`), and the *young* leaves. A leaf is young if it came out of a split since
//! the build began, with nothing but such rows or none. Whatever comes into it later is inserted
//! where no row was, so all it ever has, and all that its rows are reverted to, was made beside
//! the build. That a leaf is young is noted, and forgotten by a merge, under the latch of the
//! leaf's parent: who looks under that latch may pass the leaf unread. The trees keep it by their
//! ids, for a tree may have several handles (the reclaimer has its own).

use crate::tree::Tree;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{PageNo, Result, TreeId, TxnId};
use evenkeel_format::node::{LeafCell, Node};
use evenkeel_format::record::cell_flags::FIRST;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the trees know of the builds that read them.
#[derive(Default)]
pub(crate) struct ConcurrentInserts {
    /// How many trees are watched: a copy of what `trees` says.
    watched: AtomicUsize,
    trees: Mutex<HashMap<TreeId, Watched>>,
}

struct Watched {
    /// Rows that transactions from this one on inserted are young.
    from: TxnId,
    leaves: HashSet<PageNo>,
    leaves_max: usize,
}

impl ConcurrentInserts {
    /// Does something with what is known of a tree, if a build reads it.
    fn with<R>(&self, tree: TreeId, f: impl FnOnce(&mut Watched) -> R) -> Option<R> {
        if self.watched.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.trees.lock().get_mut(&tree).map(f)
    }

    fn set(&self, tree: TreeId, watched: Option<Watched>) {
        let mut trees = self.trees.lock();
        match watched {
            Some(watched) => trees.insert(tree, watched),
            None => trees.remove(&tree),
        };
        self.watched.store(trees.len(), Ordering::Relaxed);
    }
}

/// A build reads the tree as long as this is there.
pub struct ConcurrentInsertWatch {
    tree: Tree,
}

impl Drop for ConcurrentInsertWatch {
    fn drop(&mut self) {
        self.tree.young().set(self.tree.id(), None);
    }
}

/// A row that was inserted by a transaction from this one on.
pub(crate) fn is_young(flags: u8, txn: TxnId, from: TxnId) -> bool {
    flags & FIRST != 0 && txn >= from
}

impl Tree {
    /// From now on rows are told that transactions from `from` on insert, and up to `leaves_max`
    /// leaves of nothing but these. One build at a time.
    pub fn watch_concurrent_inserts(
        &self,
        from: TxnId,
        leaves_max: usize,
    ) -> ConcurrentInsertWatch {
        let watched = Watched { from, leaves: HashSet::new(), leaves_max };
        self.young().set(self.id(), Some(watched));
        ConcurrentInsertWatch { tree: self.clone() }
    }

    fn young(&self) -> &ConcurrentInserts {
        &self.trees().young
    }

    /// `TxnId::MAX` without a build.
    pub(crate) fn concurrent_from(&self) -> TxnId {
        self.young().with(self.id(), |watched| watched.from).unwrap_or(TxnId::MAX)
    }

    /// Those halves of a leaf, to be leaves of these numbers, that have nothing but young rows, and
    /// for which build.
    pub(crate) fn concurrent_leaves(
        &self,
        leaf: &Node<'_>,
        halves: [(PageNo, Range<usize>); 2],
    ) -> Result<Vec<(PageNo, TxnId)>> {
        let (from, mut young) = (self.concurrent_from(), Vec::new());
        if from == TxnId::MAX {
            return Ok(young);
        }
        for (number, mut cells) in halves {
            let is_young = |slot| {
                let cell = leaf.leaf_cell(slot);
                cell.map(|LeafCell { flags, stamp, .. }| is_young(flags, stamp.txn, from))
            };
            let all = cells.try_fold(true, |all, slot| is_young(slot).map(|young| all && young))?;
            if all {
                young.push((number, from));
            }
        }
        Ok(young)
    }

    /// These leaves have only rows that are young for that build. Their parent is latched.
    pub(crate) fn note_concurrent_insert(&self, young: &[(PageNo, TxnId)]) {
        if young.is_empty() {
            return;
        }
        self.young().with(self.id(), |watched| {
            for (number, from) in young {
                if watched.from == *from && watched.leaves.len() < watched.leaves_max {
                    watched.leaves.insert(*number);
                }
            }
        });
    }

    /// These leaves are joined. Their parent is latched.
    pub(crate) fn forget_concurrent_inserts(&self, joined: [PageNo; 2]) {
        self.young().with(self.id(), |watched| {
            joined.iter().for_each(|leaf| _ = watched.leaves.remove(leaf));
        });
    }

    /// The leaf has nothing but young rows. Its parent is latched.
    pub(crate) fn has_only_concurrent_inserts(&self, leaf: PageNo) -> bool {
        self.young().with(self.id(), |watched| watched.leaves.contains(&leaf)) == Some(true)
    }

    #[cfg(test)]
    pub(crate) fn concurrent_leaves_known(&self) -> usize {
        self.young().with(self.id(), |watched| watched.leaves.len()).unwrap_or(0)
    }
}
