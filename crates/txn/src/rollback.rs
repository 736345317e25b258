//! Undoing operations: eagerly for statements and savepoints, in the background for aborted
//! transactions, both newest first, through `RollbackRow`, which `tables` implements (B6).

use crate::LockSpace;
use crate::txns::{OUTCOME_BYTES, Txns};
use crate::undo::TxnUndo;
use crate::{TxnRef, UndoCopy};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, Error, Kind, Lsn, Result, Stamp, TreeId, TxnId, UndoNo};
use evenkeel_format::record::{Before, RecordKind, cell_flags, encode_txn};
use evenkeel_format::undo::UndoRecord;
use evenkeel_log::Share;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Operations undone in one beat.
const BEAT_ROWS: u32 = 256;

/// Undoes one operation.
pub trait RollbackRow: Send + Sync {
    /// Restores the cell that operation `stamp` replaced, with a REVERT record that names the
    /// operation. If the row does not have this stamp (it was undone already, or its table has
    /// vanished) nothing is done. But for an *undecided* transaction a REVERT is logged for every
    /// operation, because dead ranges are rebuilt from these records.
    ///
    /// # Errors
    /// Without space the undoing is put off and tried again.
    fn revert(&self, stamp: Stamp, record: &UndoRecord<'_>) -> Result<()>;

    /// The tree by whose id the rows of a tree are locked.
    fn lock_tree(&self, tree: TreeId) -> TreeId {
        tree
    }
}

/// The outcome of a rollback to a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolledBack {
    /// The operations from the mark on are undone; the transaction continues.
    ToMark,
    /// Those were all its operations, and many: it was aborted. Nothing else is lost, so its owner
    /// may continue with a `TxnCore::successor`.
    Aborted,
}

/// An aborted transaction that is being rolled back.
pub(crate) struct RollingBack {
    pub undo: Arc<TxnUndo>,
    /// Operations below this are still to be undone.
    pub below: UndoNo,
    pub first_lsn: Lsn,
    /// A beat works on it, or its ABORT record is not logged yet.
    pub busy: bool,
}

impl RollingBack {
    pub fn new(undo: Arc<TxnUndo>, first_lsn: Lsn, busy: bool) -> RollingBack {
        let below = UndoNo(undo.last().0 + 1);
        RollingBack { undo, below, first_lsn, busy }
    }
}

impl Txns {
    /// Undoes the operations of `t` from `mark` on: a failed statement, or ROLLBACK TO SAVEPOINT.
    /// May wait; the caller holds no latch. Earlier operations of `t` stay, however many are
    /// undone.
    ///
    /// # Errors
    /// Those of `revert`, and `StatementCancelled` if `t` is cancelled after this began: then the
    /// whole transaction was aborted. `TxnEnded`.
    pub fn rollback_to(
        &self,
        t: &TxnRef,
        mark: UndoNo,
        revert: &dyn RollbackRow,
    ) -> Result<RolledBack> {
        t.check_open()?;
        let below = t.mark();
        if mark >= below {
            return Ok(RolledBack::ToMark);
        }
        if self.is_all_it_has(t, mark) && below.0 - mark.0 > self.eager_rollback_rows {
            self.abort(t)?;
            return Ok(RolledBack::Aborted);
        }
        let Some(undo) = t.undo.get() else { return Ok(RolledBack::ToMark) };
        let cancelled_before = t.cancelled_times();
        let mut above = below;
        while above > mark {
            let to = UndoNo(above.0.saturating_sub(BEAT_ROWS).max(mark.0));
            let step = self.turn_of_rollback(t, cancelled_before, below.0 - above.0);
            // Undoing may need room in a leaf. The changes of users who are refused for want of
            // space are undone all the same; otherwise the whole transaction would be aborted for
            // it.
            let step = step.and_then(|()| {
                let down = || self.roll_back_down_to(t, undo, to, &mut above, revert);
                self.rt.freeing(down)
            });
            if let Err(error) = step {
                // Only undone operations are dead: the background does the rest.
                self.states.add_dead(t.id(), above, below);
                self.abort(t)?;
                return Err(error);
            }
            self.states.add_dead(t.id(), to, below);
        }
        Ok(RolledBack::ToMark)
    }

    /// True if aborting `t` loses nothing but its operations from `mark` on: no earlier operation
    /// and no lock.
    fn is_all_it_has(&self, t: &TxnRef, mark: UndoNo) -> bool {
        mark.0 <= 1 && t.locks.lock().is_empty()
    }

    /// Before each step of an eager rollback. A KILL that came after the rollback began ends it;
    /// the KILL that ended the statement does not. Like the background, the rollback lets users
    /// have the log first, except before the first step, which is all that most statements need.
    fn turn_of_rollback(&self, t: &TxnRef, cancelled_before: u64, reverted: u32) -> Result<()> {
        if t.cancelled_times() != cancelled_before {
            return Err(Error::new(Code::StatementCancelled).with("txn", t.id()));
        }
        if reverted == 0 { Ok(()) } else { self.wait_like_a_user() }
    }

    /// Undoes the live operations below `above`, down to `to`; `above` returns the progress.
    fn roll_back_down_to(
        &self,
        t: &TxnRef,
        undo: &TxnUndo,
        to: UndoNo,
        above: &mut UndoNo,
        revert: &dyn RollbackRow,
    ) -> Result<()> {
        while *above > to {
            let no = UndoNo(above.0 - 1);
            if !self.states.is_dead(t.id(), no) {
                let reverted = self.roll_back_one(t.id(), undo, no, revert)?;
                self.let_go_of_rolled_back(t, &reverted, revert)?;
            }
            *above = no;
        }
        Ok(())
    }

    /// A row from which the last stamp of `t` has gone is no longer held by it as its writer.
    fn let_go_of_rolled_back(
        &self,
        t: &TxnRef,
        reverted: &UndoCopy,
        rows: &dyn RollbackRow,
    ) -> Result<()> {
        if !t.locks.lock().holds_written() {
            return Ok(());
        }
        let record = reverted.record()?;
        let is_own = |b: &Before<'_>| b.flags & cell_flags::STAMPED != 0 && b.stamp.txn == t.id();
        if !record.before.as_ref().is_some_and(is_own) {
            let space = LockSpace::Tree(rows.lock_tree(record.tree));
            self.row_unwritten(t, space, record.key);
        }
        Ok(())
    }

    /// The compensation record of this operation is in the log (A1): from now on every checkpoint
    /// must record that it is dead. Called under the leaf latch. The operations of an aborted
    /// transaction are dead in any case.
    pub fn note_rolled_back(&self, stamp: Stamp) {
        if self.states.state(stamp.txn).is_undecided() {
            self.states.add_dead(stamp.txn, stamp.undo_no, UndoNo(stamp.undo_no.0 + 1));
        }
    }

    fn roll_back_one(
        &self,
        id: TxnId,
        undo: &TxnUndo,
        no: UndoNo,
        revert: &dyn RollbackRow,
    ) -> Result<UndoCopy> {
        let mut copy = UndoCopy::default();
        if !undo.fetch(no, &self.files, &mut copy.bytes)? {
            let error = Error::internal("an operation has no undo record");
            return Err(error.with("txn", id).with("undo_no", no));
        }
        revert.revert(Stamp { txn: id, undo_no: no }, &copy.record()?)?;
        self.rt.metrics.add(Metric::RowsRolledBack, 1);
        Ok(copy)
    }

    /// Undoes some operations of an aborted transaction; the last one is followed by its END
    /// record. A transaction whose rows or undo cannot be read does not hold up the others.
    ///
    /// # Errors
    /// Those of `revert` and of the log: the next beat tries again.
    pub fn rollback_beat(&self, revert: &dyn RollbackRow) -> Result<Beat> {
        if self.reverting.lock().is_empty() {
            return Ok(Beat::Idle);
        }
        self.wait_like_a_user()?;
        let (mut after, mut failed) = (TxnId::ZERO, None);
        while let Some((id, undo, below)) = self.take_rolling_back(after) {
            match self.roll_back_some(id, &undo, below, revert) {
                Ok(()) => return Ok(Beat::More),
                Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::Io) => {
                    failed.get_or_insert(e);
                    after = id;
                }
                Err(error) => return Err(error),
            }
        }
        failed.map_or(Ok(Beat::Idle), Err)
    }

    fn roll_back_some(
        &self,
        id: TxnId,
        undo: &TxnUndo,
        below: UndoNo,
        revert: &dyn RollbackRow,
    ) -> Result<()> {
        let to = below.0.saturating_sub(BEAT_ROWS).max(1);
        let mut reverted = below;
        let mut result = Ok(());
        for no in (to..below.0).rev().map(UndoNo) {
            // Skip operations that a statement or savepoint undid before the abort.
            if !self.states.in_dead_range(id, no) {
                result = self.roll_back_one(id, undo, no, revert).map(|_| ());
            }
            if result.is_err() {
                break;
            }
            reverted = no;
        }
        if result.is_ok() && reverted.0 <= 1 {
            result = self.log_end(id);
            if result.is_ok() {
                return Ok(());
            }
        }
        if let Some(reverting) = self.reverting.lock().get_mut(&id) {
            reverting.below = reverted;
            reverting.busy = false;
        }
        result
    }

    /// Rollback may use the part of the log that users cannot have, so it would continue while
    /// users wait for space. A beat therefore first queues among those users. (On a full disk it
    /// does not: once everything is rolled back, undo files are removed.)
    fn wait_like_a_user(&self) -> Result<()> {
        match self.log()?.reserve(0, Share::User) {
            Err(error) if !error.code().is_shortage() => Err(error),
            _ => Ok(()),
        }
    }

    /// The next transaction after `after` on which no beat works.
    fn take_rolling_back(&self, after: TxnId) -> Option<(TxnId, Arc<TxnUndo>, UndoNo)> {
        let mut reverting = self.reverting.lock();
        let mut behind = reverting.range_mut((Bound::Excluded(after), Bound::Unbounded));
        let (id, item) = behind.find(|(_, r)| !r.busy)?;
        item.busy = true;
        Some((*id, item.undo.clone(), item.below))
    }

    fn log_end(&self, id: TxnId) -> Result<()> {
        let log = self.log()?;
        let mut space = log.reserve(OUTCOME_BYTES, Share::System)?;
        let mut body = Vec::with_capacity(OUTCOME_BYTES);
        encode_txn(&mut body, id);
        let (lsn, ()) = log.append_with(&mut space, RecordKind::End, &[&body], |lsn| {
            self.states.set_ended(id, lsn);
        });
        self.reverting.lock().remove(&id);
        self.note_rolling_back();
        self.remember(lsn, id);
        Ok(())
    }

    pub(crate) fn note_rolling_back(&self) {
        self.rt.metrics.set(Metric::RollingBackTxns, self.rolling_back_count() as u64);
    }

    /// Operations of all transactions aborted since the open. Their rows count as changed from the
    /// abort on, whenever they are undone, and the log does not tell their number.
    pub fn aborted_rows(&self) -> u64 {
        self.aborted_rows.load(Ordering::Acquire)
    }

    /// Upper bound of the operations of aborted transactions that are still to be undone.
    pub fn reverting_rows(&self) -> u64 {
        self.reverting.lock().values().map(|r| u64::from(r.below.0.saturating_sub(1))).sum()
    }

    /// Aborted transactions whose rows are not all rolled back.
    pub fn rolling_back_count(&self) -> usize {
        self.reverting.lock().len()
    }
}

#[cfg(test)]
#[path = "rollback_tests.rs"]
mod rollback_tests;
