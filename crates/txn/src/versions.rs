//! Older versions of rows, found through undo (C1), and skip pointers over long chains (C3).
//!
//! A skip pointer says: from the version made by `from` on, every version up to the one that `to`
//! made was committed at or after `low`. So a reader below `low` goes on behind `to` at once. It
//! stays true for ever, and the undo of `to` is kept for every reader who may follow it.

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

/// A skip pointer spans so many versions.
const SPAN: usize = 64;
/// Skip pointers kept; beyond, all are dropped and found again.
const POINTERS_MAX: usize = 1 << 14;

#[derive(Default)]
pub(crate) struct SkipPointers {
    from: Mutex<HashMap<Stamp, (Lsn, Stamp)>>,
    /// Versions looked at by walks.
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

/// What a walk over versions has come across, to leave skip pointers behind.
#[derive(Default)]
struct Trail {
    from: Option<Stamp>,
    low: Lsn,
    steps: usize,
}

impl Txns {
    /// The undo record of an operation: what a writer needs who reverts a row on touch.
    ///
    /// # Errors
    /// `LogDamaged` if it is not there: whoever may see the stamp needs it, so nothing frees it
    /// before; a log that has lost its end behind a page that was written never had it.
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

    /// True if a row is left once the operation `stamp` of an aborted transaction is reverted, and
    /// what that transaction had done to the row before it. Of a row that it has changed very
    /// often that is not looked up.
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
