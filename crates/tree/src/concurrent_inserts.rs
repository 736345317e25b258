//! Rows inserted during an index build. The build tells its tree from which transaction on writers
//! insert rows together with the entries of the new index. It needs none of these rows, and if it
//! read them it would not end while writers insert faster than it reads.
//!
//! Two things identify such rows while the build reads: their stamps, which leaf reorganization
//! keeps (`cell_flags::FIRST`), and the *new* leaves. A leaf is new if it came out of a split since
//! the build began, with only such rows or none. Every later row of it is inserted where no row
//! was, so all rows that it ever has, and all that a rollback restores there, were made during the
//! build. That a leaf is new is recorded, and forgotten by a merge, under the latch of the leaf's
//! parent: a scan that checks under that latch may skip the leaf unread. The trees keep the record
//! by their ids, because a tree may have several handles (the reclaimer has its own).

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
    /// The number of watched trees: a copy of the size of `trees`.
    watched: AtomicUsize,
    trees: Mutex<HashMap<TreeId, Watched>>,
}

struct Watched {
    /// Rows inserted by transactions from this one on are concurrent inserts.
    from: TxnId,
    leaves: HashSet<PageNo>,
    leaves_max: usize,
}

impl ConcurrentInserts {
    /// Calls `f` with the watch of a tree, if a build reads it.
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

/// A build reads the tree while this exists.
pub struct ConcurrentInsertWatch {
    tree: Tree,
}

impl Drop for ConcurrentInsertWatch {
    fn drop(&mut self) {
        self.tree.young().set(self.tree.id(), None);
    }
}

/// True for a row inserted by transaction `from` or a later one.
pub(crate) fn is_young(flags: u8, txn: TxnId, from: TxnId) -> bool {
    flags & FIRST != 0 && txn >= from
}

impl Tree {
    /// From now on records rows that transactions from `from` on insert, and up to `leaves_max`
    /// leaves with only such rows. One build at a time.
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

    /// The first such transaction; `TxnId::MAX` without a build.
    pub(crate) fn concurrent_from(&self) -> TxnId {
        self.young().with(self.id(), |watched| watched.from).unwrap_or(TxnId::MAX)
    }

    /// The halves of a leaf, to become leaves of these numbers, that have only concurrent inserts,
    /// and the build for which they do.
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

    /// These leaves have only concurrent inserts of that build. Their parent is latched.
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

    /// These leaves are merged. Their parent is latched.
    pub(crate) fn forget_concurrent_inserts(&self, joined: [PageNo; 2]) {
        self.young().with(self.id(), |watched| {
            joined.iter().for_each(|leaf| _ = watched.leaves.remove(leaf));
        });
    }

    /// True if the leaf has only concurrent inserts. Its parent is latched.
    pub(crate) fn has_only_concurrent_inserts(&self, leaf: PageNo) -> bool {
        self.young().with(self.id(), |watched| watched.leaves.contains(&leaf)) == Some(true)
    }

    #[cfg(test)]
    pub(crate) fn concurrent_leaves_known(&self) -> usize {
        self.young().with(self.id(), |watched| watched.leaves.len()).unwrap_or(0)
    }
}
