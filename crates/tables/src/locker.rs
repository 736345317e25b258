//! The part of a transaction that a locking read needs, as a separate value that a scan can keep.
//! The check of the stamp and the insertion into the lock table happen under the leaf latch (A7);
//! the read waits for other transactions without a latch. Conflicts are judged by the snapshot that
//! the transaction held when the locker was made (A6).

use crate::range::ByteRange;
use crate::read::{LockWait, Locked, newest_stop};
use crate::row::{Row, VersionPlace};
use crate::row_op::WriteStop;
use crate::scan::Locking;
use crate::store::Store;
use crate::table::TableState;
use crate::transaction::Isolation;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Error, Kind, Lsn, PageNo, Result, Snapshot, Stamp, TxnId, UndoNo};
use evenkeel_format::record::cell_flags;
use evenkeel_tree::{Cursor, LeafRow};
use evenkeel_txn::{Deadline, Grant, GrowingRange, LockSpace, Mode, Phase, Policy, TxnRef};
use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// What was found under the latch of a leaf.
struct Looked {
    stop: WriteStop,
    outcome: Option<Locked>,
    /// The stamp of the newest version, if the transaction itself made it.
    own: Option<Stamp>,
}

/// Where to look for the row of a key.
#[derive(Clone, Copy)]
pub(crate) enum Where<'a> {
    /// Descend in the tree.
    Tree,
    /// At the position of a cursor, as long as its leaf is unchanged since the copy.
    Cursor(&'a Cursor),
}

impl Where<'_> {
    /// Calls `f` under the leaf's latch; returns the page, or none if the cursor's copy is old.
    fn look(
        self,
        state: &TableState,
        key: &[u8],
        f: &mut dyn FnMut(Option<LeafRow<'_>>),
    ) -> Result<Option<PageNo>> {
        match self {
            Where::Tree => state.tree.get(key, f).map(Some),
            Where::Cursor(cursor) => cursor.look_again(f),
        }
    }
}

/// The range that locks the rows of a scan, once the scan has locked many (RFC 40).
#[derive(Default)]
pub(crate) struct Growing {
    pub range: Cell<Option<GrowingRange>>,
    /// The scan has left the leaf of the last row in the range, or has read it anew.
    pub crosses: Cell<bool>,
    /// The last row was locked by the range.
    pub locked: Cell<bool>,
}

impl Growing {
    /// True if the range locks the last row.
    pub fn has_last(&self) -> bool {
        self.locked.get() && self.range.get().is_some()
    }
}

/// Locks rows and ranges for one transaction.
pub(crate) struct Locker {
    pub store: Arc<Store>,
    pub inner: TxnRef,
    pub isolation: Isolation,
    pub snapshot: Option<Lsn>,
    pub lock_wait: Duration,
    /// A range lock covers the rows: the locker waits for them but does not lock them one by one.
    pub covered: bool,
    pub growing: Growing,
    /// Rows inserted by own operations from this one on do not exist for it (A6: no Halloween).
    pub own_below: UndoNo,
}

impl Locker {
    pub fn deadline(&self) -> Deadline {
        self.store.txns.deadline(self.lock_wait)
    }

    /// Waits for another transaction to be decided.
    pub fn wait_txn(&self, other: TxnId) -> Result<()> {
        self.store.txns.wait_for(&self.inner, other, self.deadline())
    }

    /// True if an absent key must stay absent. Not for SKIP LOCKED, which would have to wait for
    /// the holders of the key.
    pub fn locks_absent(&self, wait: LockWait) -> bool {
        wait != LockWait::Skip
            && matches!(self.isolation, Isolation::RepeatableRead | Isolation::Serializable)
    }

    /// A deadlock ends the transaction, because others wait for its locks.
    pub fn ends<R>(&self, done: Result<R>) -> Result<R> {
        if done.as_ref().is_err_and(|e| e.kind() == Kind::Deadlock)
            && self.inner.phase() == Phase::Open
        {
            self.store.txns.abort(&self.inner)?;
        }
        done
    }

    /// Locks a row and reads its newest version; with `absent` a missing key is locked too.
    pub fn lock_row(
        &self,
        state: &TableState,
        key: &[u8],
        locking: Locking,
        absent: bool,
        row: &mut Row,
    ) -> Result<Locked> {
        self.lock_row_at(state, (key, Where::Tree), locking, absent, row)
    }

    /// As `lock_row`, for a row at which a cursor may stand.
    pub fn lock_row_at(
        &self,
        state: &TableState,
        (key, place): (&[u8], Where<'_>),
        locking: Locking,
        absent: bool,
        row: &mut Row,
    ) -> Result<Locked> {
        let mut took = false;
        let locked = self.lock_or_wait(state, (key, place), locking, absent, row, &mut took);
        // The lock was granted after a wait, and its row is gone or is skipped.
        let is_wanted = match &locked {
            Ok(locked) => *locked == Locked::Row || (*locked == Locked::Absent && absent),
            Err(_) => false,
        };
        if took && !is_wanted {
            let space = state.lock_space();
            self.store.txns.unlock_row(&self.inner, space, key, locking.mode, false);
        }
        locked
    }

    /// As `lock_row`; `took` becomes true if the lock was granted after a wait and is new.
    fn lock_or_wait(
        &self,
        state: &TableState,
        (key, mut place): (&[u8], Where<'_>),
        locking: Locking,
        absent: bool,
        row: &mut Row,
        took: &mut bool,
    ) -> Result<Locked> {
        let Locking { mode, wait } = locking;
        loop {
            self.inner.check_cancel()?;
            let looked = self.look_and_lock(state, (key, place), mode, absent, row)?;
            let Some(Looked { stop, outcome, own }) = looked else { return Ok(Locked::Moved) };
            // After a wait, look at the present row.
            place = Where::Tree;
            match outcome {
                Some(Locked::Row) if !self.was_there(state, key, own)? => {
                    row.clear();
                    return Ok(Locked::Absent);
                }
                Some(outcome) => return Ok(outcome),
                None => {}
            }
            let space = state.lock_space();
            let absent = stop == WriteStop::LockedAbsent;
            match (stop, wait) {
                (
                    WriteStop::Undecided(_) | WriteStop::Locked | WriteStop::LockedAbsent,
                    LockWait::Skip,
                ) => {
                    return Ok(Locked::Skipped);
                }
                (WriteStop::Undecided(by), LockWait::NoWait) => return Err(not_available(by)),
                (WriteStop::Undecided(by), LockWait::Wait) => {
                    let (txns, held) = (&self.store.txns, self.inner.locked_rows());
                    let (at, deadline) = ((space, key), self.deadline());
                    txns.lock_written_row(&self.inner, at, mode, self.covered, by, deadline)?;
                    *took |= self.inner.locked_rows() > held;
                }
                (WriteStop::Locked | WriteStop::LockedAbsent, _) => {
                    let policy = match wait {
                        LockWait::Wait => Policy::Wait(self.deadline()),
                        LockWait::NoWait => Policy::NoWait,
                        LockWait::Skip => Policy::Skip,
                    };
                    let (txns, at) = (&self.store.txns, (space, key));
                    let held = self.inner.locked_rows();
                    if txns.lock_row(&self.inner, at, absent, mode, policy)? == Grant::Skipped {
                        return Ok(Locked::Skipped);
                    }
                    *took |= self.inner.locked_rows() > held;
                }
                (stop, _) => self.give_way(state, key, stop)?,
            }
        }
    }

    /// Reads the newest version and locks it, under one leaf latch; none if the cursor's leaf has
    /// changed.
    fn look_and_lock(
        &self,
        state: &TableState,
        (key, place): (&[u8], Where<'_>),
        mode: Mode,
        absent: bool,
        row: &mut Row,
    ) -> Result<Option<Looked>> {
        let (store, me) = (&self.store, self.inner.id());
        let space = state.lock_space();
        let (mut stop, mut outcome, mut failed) = (WriteStop::No, None, None);
        let (mut own_stamp, mut version) = (None, None);
        let leaf = place.look(state, key, &mut |cell| {
            let stamped = cell.filter(|c| c.flags & cell_flags::STAMPED != 0);
            let own = stamped.is_some_and(|c| c.stamp.txn == me && me.0 != 0);
            own_stamp = stamped.filter(|_| own).map(|c| c.stamp);
            if let Some(cell) = stamped.filter(|_| !own) {
                stop = newest_stop(store, cell.stamp, self.snapshot);
                if stop != WriteStop::No {
                    self.growing.range.set(None);
                    return;
                }
            }
            let live = cell.filter(|c| c.flags & cell_flags::DELETED == 0);
            if live.is_none() && !absent {
                if own {
                    self.growing.range.set(None);
                }
                outcome = Some(Locked::Absent);
                return;
            }
            let is_plain = live.is_some() && !own && matches!(place, Where::Cursor(_));
            let grown = self.grow(key, is_plain, live.is_some() || own);
            if !own && !self.covered && !grown {
                match store.txns.try_lock_row(&self.inner, (space, key), live.is_some(), mode) {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => {
                        stop = if live.is_some() {
                            WriteStop::Locked
                        } else {
                            WriteStop::LockedAbsent
                        };
                        return;
                    }
                    Err(error) => {
                        failed = Some(error);
                        return;
                    }
                }
            }
            outcome = Some(match live {
                Some(cell) => {
                    row.set_table(&store.layout_for(state, cell.row), key, cell.row);
                    version = Some((cell.stamp, cell.flags));
                    Locked::Row
                }
                None => Locked::Absent,
            });
        })?;
        let Some(leaf) = leaf else { return Ok(None) };
        if let Some((stamp, flags)) = version {
            row.set_place(VersionPlace { tree: state.tree.id(), leaf, stamp, flags });
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Some(Looked { stop, outcome, own: own_stamp })),
        }
    }

    /// Locks a row by the range of the scan; false if there is none. The range ends at a row that
    /// is locked otherwise.
    fn grow(&self, key: &[u8], is_plain: bool, is_row: bool) -> bool {
        let Growing { range, crosses, locked } = &self.growing;
        locked.set(false);
        let Some(growing) = range.get() else { return false };
        let (txns, me) = (&self.store.txns, &self.inner);
        if is_plain && txns.grow_range(me, growing, key, crosses.get()) {
            crosses.set(false);
            locked.set(true);
        } else if is_row {
            range.set(None);
        }
        locked.get()
    }

    /// False if the newest version of the row under `key` is an own one and the row was inserted by
    /// operations that are not seen.
    fn was_there(&self, state: &TableState, key: &[u8], own: Option<Stamp>) -> Result<bool> {
        let Some(stamp) = own.filter(|stamp| stamp.undo_no >= self.own_below) else {
            return Ok(true);
        };
        let (own, own_below) = (self.inner.id(), self.own_below);
        let seen = Snapshot { at: Lsn::MAX, own, own_below };
        let before = self.store.txns.visible_before(state.tree.id(), key, stamp, &seen)?;
        Ok(before.row.is_some())
    }

    /// Removes an obstacle of a row operation other than an undecided transaction, without a latch.
    pub fn give_way(&self, state: &TableState, key: &[u8], stop: WriteStop) -> Result<()> {
        match stop {
            WriteStop::Aborted(stamp) => self.store.roll_back_on_touch(&state.tree, key, stamp),
            WriteStop::Conflict(other) => {
                self.store.rt.metrics.add(Metric::Conflicts, 1);
                Err(Error::new(Code::RowChanged)
                    .with("table", &state.layout.def.name)
                    .with("by", other))
            }
            _ => Ok(()),
        }
    }

    /// Locks a range of keys, before anything in it is read (A7).
    pub fn lock_range(&self, space: LockSpace, range: &ByteRange, locking: Locking) -> Result<()> {
        let lower = match range.lower.is_empty() {
            true => Bound::Unbounded,
            false => Bound::Included(&range.lower[..]),
        };
        let upper = range.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let policy = match locking.wait {
            LockWait::NoWait => Policy::NoWait,
            LockWait::Wait | LockWait::Skip => Policy::Wait(self.deadline()),
        };
        // A reader that had read before this point would miss concurrent writes here; simulations
        // switch threads here.
        self.store.rt.step();
        self.store.txns.lock_range(&self.inner, space, (lower, upper), locking.mode, policy)?;
        Ok(())
    }
}

pub(crate) fn not_available(by: TxnId) -> Error {
    Error::new(Code::LockNotAvailable).with("held_by", by)
}
