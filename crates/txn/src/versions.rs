//! Older versions of rows, found through undo (C1), and skip pointers over long chains (C3).
//!
//! A skip pointer means: every version from the one made by `from` up to the one made by `to` was
//! committed at or after `low`. So a reader below `low` continues behind `to` at once. This stays
//! true for ever, and the undo of `to` is kept for every reader that may follow it.

use crate::txns::Txns;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{
    Code, CommitTable, Error, Lsn, OldVersion, Result, Snapshot, Stamp, TreeId, TxnState,
    VersionSource,
};
use evenkeel_format::record::cell_flags;
use evenkeel_format::undo::UndoRecord;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A skip pointer spans this many versions.
const SPAN: usize = 64;
/// Skip pointers kept; beyond that all are dropped and found again.
const POINTERS_MAX: usize = 1 << 14;

#[derive(Default)]
pub(crate) struct SkipPointers {
    from: Mutex<HashMap<Stamp, (Lsn, Stamp)>>,
    /// Versions that walks have examined.
    pub steps: AtomicU64,
}

impl SkipPointers {
    fn get(&self, from: Stamp, at: Lsn) -> Option<Stamp> {
        let (low, to) = *self.from.lock().get(&from)?;
        (at < low).then_some(to)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.from.lock().len()
    }

    fn add(&self, from: Stamp, low: Lsn, to: Stamp) {
        let mut pointers = self.from.lock();
        if pointers.len() >= POINTERS_MAX {
            pointers.clear();
        }
        pointers.insert(from, (low, to));
    }
}

/// An undo record copied out of its chunk.
#[derive(Clone, Debug, Default)]
pub struct UndoCopy {
    pub(crate) bytes: Vec<u8>,
}

impl UndoCopy {
    /// The record.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn record(&self) -> Result<UndoRecord<'_>> {
        match evenkeel_format::undo::records(&self.bytes).next() {
            Some(record) => record,
            None => Err(Error::internal("empty undo record")),
        }
    }
}

/// The versions that a walk has passed, from which it makes skip pointers.
#[derive(Default)]
struct Trail {
    from: Option<Stamp>,
    low: Lsn,
    steps: usize,
}

impl Txns {
    /// The undo record of an operation, for a writer that rolls a row back on touch.
    ///
    /// # Errors
    /// `LogDamaged` if it is missing: a stamp that can be seen keeps its undo, so only a log that
    /// lost its end behind a written page can lack it.
    pub fn undo_copy(&self, stamp: Stamp) -> Result<UndoCopy> {
        let mut copy = UndoCopy::default();
        let found = match self.undo_of_txn(stamp.txn) {
            Some(undo) => undo.fetch(stamp.undo_no, &self.files, &mut copy.bytes)?,
            None => false,
        };
        if !found && !self.fetch_packed(stamp, &mut copy.bytes)? {
            let error =
                Error::new(Code::LogDamaged).with("what", "undo of an operation is missing");
            return Err(error.with("txn", stamp.txn).with("undo_no", stamp.undo_no));
        }
        Ok(copy)
    }

    /// The newest version of a row that `snapshot` sees, beginning behind the version made by
    /// `stamp`, which it does not see. The result's row is `None` if there is none.
    ///
    /// # Errors
    /// As `before`.
    pub fn visible_before(
        &self,
        tree: TreeId,
        key: &[u8],
        mut stamp: Stamp,
        snapshot: &Snapshot,
    ) -> Result<OldVersion> {
        let mut trail = Trail::default();
        loop {
            if let Some(to) = self.skips.get(stamp, snapshot.at) {
                stamp = to;
                trail = Trail::default();
            } else {
                self.follow(&mut trail, stamp);
            }
            self.skips.steps.fetch_add(1, Ordering::Relaxed);
            let version = self.before(tree, key, stamp)?;
            // No stamp: visible to all, or there was no row before.
            if snapshot.sees(version.stamp, self) {
                return Ok(version);
            }
            stamp = version.stamp;
        }
    }

    /// True if a row remains once the operation `stamp` of an aborted transaction, and all that the
    /// transaction did to the row before, are undone. Also true, without a lookup, for a row that
    /// it has changed very often.
    ///
    /// # Errors
    /// As `before`.
    pub(crate) fn is_row_before(&self, tree: TreeId, key: &[u8], stamp: Stamp) -> Result<bool> {
        let mut of = stamp;
        for _ in 0..SPAN {
            let version = self.before(tree, key, of)?;
            if version.stamp.txn != stamp.txn {
                return Ok(version.row.is_some());
            }
            of = version.stamp;
        }
        Ok(true)
    }

    fn follow(&self, trail: &mut Trail, stamp: Stamp) {
        let cts = match self.state(stamp.txn) {
            TxnState::Committed(cts) if cts > Lsn::ZERO => cts,
            _ => {
                *trail = Trail::default();
                return;
            }
        };
        match trail.from {
            None => *trail = Trail { from: Some(stamp), low: cts, steps: 1 },
            Some(from) => {
                trail.low = trail.low.min(cts);
                trail.steps += 1;
                if trail.steps == SPAN {
                    self.skips.add(from, trail.low, stamp);
                    *trail = Trail::default();
                }
            }
        }
    }
}

impl VersionSource for Txns {
    fn before(&self, tree: TreeId, key: &[u8], stamp: Stamp) -> Result<OldVersion> {
        let copy = self.undo_copy(stamp)?;
        let record = copy.record()?;
        if record.tree != tree || record.key != key {
            let error = Error::internal("undo of another row");
            return Err(error.with("txn", stamp.txn).with("undo_no", stamp.undo_no));
        }
        Ok(match record.before {
            None => OldVersion { stamp: Stamp::default(), row: None },
            Some(before) => OldVersion {
                stamp: before.stamp,
                row: (before.flags & cell_flags::DELETED == 0).then(|| before.row.to_vec()),
            },
        })
    }
}

#[cfg(test)]
#[path = "versions_tests.rs"]
mod versions_tests;
