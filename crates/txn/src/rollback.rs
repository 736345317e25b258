//! Reverting operations: eagerly for statements and savepoints, in the background for aborted
//! transactions, both newest first, through `RollbackRow`, which `tables` implements (B6).

use crate::LockSpace;
use crate::txns::{OUTCOME_BYTES, Txns};
use crate::undo::TxnUndo;
use crate::{TxnRef, UndoCopy};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, Error, Kind, Lsn, Result, Stamp, TxnId, UndoNo};
use evenkeel_format::record::{Before, RecordKind, cell_flags, encode_txn};
use evenkeel_format::undo::UndoRecord;
use evenkeel_log::Share;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Operations reverted in one beat.
const BEAT_ROWS: u32 = 256;

/// Reverts one operation.
pub trait RollbackRow: Send + Sync {
    /// Puts the cell that operation `stamp` replaced back, with a REVERT record that names it. If
    /// the row does not carry this stamp (reverted already, or its object has vanished) it does
    /// nothing; but for an *undecided* transaction it logs a REVERT for every operation, because
    /// dead ranges are rebuilt from these records.
    ///
    /// # Errors
    /// Without space the revert is put off and tried again.
    fn revert(&self, stamp: Stamp, record: &UndoRecord<'_>) -> Result<()>;
}

/// What became of a rollback to a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolledBack {
    /// The operations from the mark on are reverted; the transaction goes on.
    ToMark,
    /// Those were all that it had done, and many: it was aborted. Nothing else is lost with it, so
    /// its owner may go on with a `TxnCore::successor`.
    Aborted,
}

/// An aborted transaction on its way back.
pub(crate) struct RollingBack {
    pub undo: Arc<TxnUndo>,
    /// Operations below this are still to be reverted.
    pub below: UndoNo,
    pub first_lsn: Lsn,
    /// A beat works on it, or its ABORT is not logged yet.
    pub busy: bool,
}

impl RollingBack {
    pub fn new(undo: Arc<TxnUndo>, first_lsn: Lsn, busy: bool) -> RollingBack {
        let below = UndoNo(undo.last().0 + 1);
        RollingBack { undo, below, first_lsn, busy }
    }
}

impl Txns {
    /// Reverts the operations of `t` from `mark` on: a failed statement, or ROLLBACK TO SAVEPOINT.
    /// May wait; the caller holds no latch. However many they are, what `t` did before them stays.
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
            // A revert may need room in a leaf. Users who are refused for want of space have what
            // they did reverted all the same: else the whole transaction would be given up for it.
            let step = step.and_then(|()| {
                let down = || self.roll_back_down_to(t, undo, to, &mut above, revert);
                self.rt.freeing(down)
            });
            if let Err(error) = step {
                // Only what is reverted is dead: the background does the rest.
                self.states.add_dead(t.id(), above, below);
                self.abort(t)?;
                return Err(error);
            }
            self.states.add_dead(t.id(), to, below);
        }
        Ok(RolledBack::ToMark)
    }

    /// Nothing but what it did from `mark` on ends with `t`: no earlier operation and no lock.
    fn is_all_it_has(&self, t: &TxnRef, mark: UndoNo) -> bool {
        mark.0 <= 1 && t.locks.lock().is_empty()
    }

    /// Before each step of an eager revert: a KILL that is younger than the revert ends it, the one
    /// that ended the statement does not; and as the background it lets users have the log first,
    /// but before the first step, which is all that most statements take.
    fn turn_of_rollback(&self, t: &TxnRef, cancelled_before: u64, reverted: u32) -> Result<()> {
        if t.cancelled_times() != cancelled_before {
            return Err(Error::new(Code::StatementCancelled).with("txn", t.id()));
        }
        if reverted == 0 { Ok(()) } else { self.wait_like_a_user() }
    }

    /// Reverts the operations below `above` that live, down to `to`; `above` tells how far it came.
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
                self.let_go_of_rolled_back(t, &reverted)?;
            }
            *above = no;
        }
        Ok(())
    }

    /// A row from which the last stamp of `t` has gone is no more held by it as who wrote it.
    fn let_go_of_rolled_back(&self, t: &TxnRef, reverted: &UndoCopy) -> Result<()> {
        if !t.locks.lock().holds_written() {
            return Ok(());
        }
        let record = reverted.record()?;
        let is_own = |b: &Before<'_>| b.flags & cell_flags::STAMPED != 0 && b.stamp.txn == t.id();
        if !record.before.as_ref().is_some_and(is_own) {
            self.row_unwritten(t, LockSpace::Tree(record.tree), record.key);
        }
        Ok(())
    }

    /// The compensation record of this operation is in the log (A1): from now on no checkpoint
    /// may miss that it is dead. Called under the leaf latch. What an aborted transaction did is
    /// dead anyway.
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

    /// Reverts some rows of an aborted transaction; the last one is followed by its END record. One
    /// whose rows or undo cannot be read does not hold up the others.
    ///
    /// # Errors
    /// Those of `revert` and of the log: tried again by the next beat.
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
            // Operations a statement or savepoint reverted before the abort are skipped.
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

    /// Reverts draw on the part of the log that users cannot have, so they would go on while users
    /// wait for space. A beat takes its turn among those first. (On a full disk it does not: once
    /// all is reverted, undo files go.)
    fn wait_like_a_user(&self) -> Result<()> {
        match self.log()?.reserve(0, Share::User) {
            Err(error) if !error.code().is_shortage() => Err(error),
            _ => Ok(()),
        }
    }

    /// The next transaction behind `after` that nobody works on.
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

    /// Operations of all transactions that were aborted in this life: those rows are others from
    /// the abort on, whenever they are reverted, and the log does not tell how many.
    pub fn aborted_rows(&self) -> u64 {
        self.aborted_rows.load(Ordering::Acquire)
    }

    /// Operations of aborted transactions that are still to be reverted, at most.
    pub fn reverting_rows(&self) -> u64 {
        self.reverting.lock().values().map(|r| u64::from(r.below.0.saturating_sub(1))).sum()
    }

    /// Aborted transactions whose rows are not all reverted.
    pub fn rolling_back_count(&self) -> usize {
        self.reverting.lock().len()
    }
}

#[cfg(test)]
#[path = "rollback_tests.rs"]
mod rollback_tests;
