//! Stamps, snapshots and the rule of visibility (protocols A1-A3, A5, C1).
//!
//! An operation is (txn id, undo_no). A commit timestamp (cts) is the LSN of the commit record. A
//! snapshot is one number: it sees every transaction whose cts is at or below it. A transaction id
//! absent from the commit table means committed and visible to every snapshot.

use crate::{Lsn, Result, TreeId, TxnId, UndoNo};

/// Identity of an operation, and so of the row version or index entry that it made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// The transaction; zero means "no stamp": committed and visible to all.
    pub txn: TxnId,
    /// The operation inside it.
    pub undo_no: UndoNo,
}

/// State of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnState {
    /// Running.
    Active,
    /// Prepared (two-phase commit): undecided, survives crashes.
    Prepared,
    /// Committed at this timestamp or somewhat later; no snapshot lies or will lie in between (RFC
    /// 17). `Lsn(0)` after it left the table: visible to everyone. The value is for comparisons
    /// with snapshots and the horizon; it does not order commits and is no log position.
    Committed(Lsn),
    /// Aborted; its rows may not have been rolled back yet.
    Aborted,
}

impl TxnState {
    /// Neither committed nor aborted.
    pub fn is_undecided(self) -> bool {
        matches!(self, TxnState::Active | TxnState::Prepared)
    }
}

/// Transaction id -> state and commit timestamp. Implemented by `txn`.
pub trait CommitTable: Send + Sync {
    /// The state; an id absent from the table is `Committed(Lsn(0))`.
    fn state(&self, txn: TxnId) -> TxnState;
    /// True if the operation was undone: its transaction aborted, or its undo_no lies in one of the
    /// transaction's dead ranges (A1).
    fn is_dead(&self, stamp: Stamp) -> bool;
    /// True if some operation of the transaction, which has committed, was undone, or if that is
    /// unknown.
    fn has_dead(&self, _txn: TxnId) -> bool {
        true
    }
    /// True if rows of an aborted transaction may not have been rolled back yet.
    fn is_reverting(&self) -> bool {
        true
    }
    /// True if a row of this key remains once this operation of an aborted transaction, and all
    /// that the transaction did to the row before, are undone. The caller keeps the version that
    /// the operation made from being undone meanwhile.
    ///
    /// # Errors
    /// Of reading undo.
    fn leaves_row(&self, _tree: TreeId, _key: &[u8], _stamp: Stamp) -> Result<bool> {
        Ok(true)
    }
    /// Every transaction with cts at or below this is visible to all present and future snapshots.
    fn horizon(&self) -> Lsn;
    /// True if some registered snapshot `s` has `low <= s < high` (D4: "a snapshot lies between").
    fn snapshot_between(&self, low: Lsn, high: Lsn) -> bool;
}

/// What a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Sees transactions with cts <= at. `Lsn::MAX` reads the newest committed state.
    pub at: Lsn,
    /// The reader's own transaction (zero: none).
    pub own: TxnId,
    /// Own operations with undo_no below this are seen (A6: no Halloween).
    pub own_below: UndoNo,
}

impl Snapshot {
    /// A snapshot of committed data at `at`, without a transaction of its own.
    pub fn committed_at(at: Lsn) -> Snapshot {
        Snapshot { at, own: TxnId::ZERO, own_below: UndoNo::ZERO }
    }

    /// True if the version made by `stamp` is visible: not undone, and either committed at or below
    /// `at` or made by the reader before its cursor.
    pub fn sees(&self, stamp: Stamp, table: &dyn CommitTable) -> bool {
        if stamp.txn == TxnId::ZERO {
            return true;
        }
        if stamp.txn == self.own {
            return stamp.undo_no < self.own_below && !table.is_dead(stamp);
        }
        self.sees_commit(stamp.txn, table) && !table.is_dead(stamp)
    }

    /// True if every version that this transaction has made is visible. That stays so.
    pub fn sees_all_of(&self, txn: TxnId, table: &dyn CommitTable) -> bool {
        txn != self.own && self.sees_commit(txn, table) && !table.has_dead(txn)
    }

    fn sees_commit(&self, txn: TxnId, table: &dyn CommitTable) -> bool {
        let planted = crate::fault_injection::is(crate::fault_injection::Fault::ReadTooNew);
        matches!(table.state(txn), TxnState::Committed(cts) if cts <= self.at || planted)
    }
}

/// A row version found in undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldVersion {
    /// The operation that made this version (zero stamp: visible to all).
    pub stamp: Stamp,
    /// The row bytes; `None` if the row did not exist or was deleted in this version.
    pub row: Option<Vec<u8>>,
}

/// Resolves a stamp to the version before it (C1): implemented over `txn`'s undo.
pub trait VersionSource: Send + Sync {
    /// The version that operation `stamp` on `key` of `tree` replaced.
    ///
    /// # Errors
    /// `Internal` if the undo was already freed: the caller must only follow stamps that it can
    /// see.
    fn before(&self, tree: TreeId, key: &[u8], stamp: Stamp) -> Result<OldVersion>;
}
