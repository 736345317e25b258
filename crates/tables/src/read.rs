//! Reading single rows: at a snapshot, or the newest version under a lock.
//!
//! A snapshot read takes the leaf's version if it may see it, else walks older versions through
//! undo. A locking read looks at the newest version: stamp check and lock-table insert happen under
//! the leaf latch (A7); what is in the way is waited for with no latch held.

use crate::op::Stop;
use crate::row::Row;
use crate::shape::Shape;
use crate::store::Store;
use crate::table::{Table, TableState, Use};
use crate::transaction::{Isolation, Transaction};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{CommitTable, Error, Result, Snapshot, Stamp, TreeId, TxnState, VersionSource};
use evenkeel_format::record::cell_flags;
use evenkeel_tree::LeafRow;
use evenkeel_txn::{Grant, Mode, Policy, SnapshotGuard, Space};
use std::sync::Arc;

/// What to do about a row that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// Wait, as long as the transaction's lock timeout.
    Wait,
    /// Fail at once.
    NoWait,
    /// Leave the row out.
    Skip,
}

/// What a plain read sees.
#[derive(Clone)]
pub(crate) struct View {
    pub snapshot: Snapshot,
    /// READ UNCOMMITTED: the newest version, whoever made it, unless it was reverted.
    pub dirty: bool,
    /// Keeps the snapshot registered.
    pub guard: Option<Arc<SnapshotGuard>>,
}

impl View {
    fn sees(&self, stamp: Stamp, commits: &dyn CommitTable) -> bool {
        if self.dirty && stamp.txn.0 != 0 {
            return !commits.is_dead(stamp);
        }
        self.snapshot.sees(stamp, commits)
    }

    /// True if the leaf's version is the one to read.
    pub fn sees_leaf(&self, cell: &LeafRow<'_>, commits: &dyn CommitTable) -> bool {
        cell.flags & cell_flags::STAMPED == 0 || self.sees(cell.stamp, commits)
    }

    /// The row in the newest version that is seen behind the one that `stamp` made.
    pub fn older(
        &self,
        store: &Store,
        tree: TreeId,
        key: &[u8],
        stamp: Stamp,
    ) -> Result<Option<Vec<u8>>> {
        if !self.dirty {
            return Ok(store.txns.visible_before(tree, key, stamp, &self.snapshot)?.row);
        }
        let mut stamp = stamp;
        loop {
            let version = store.txns.before(tree, key, stamp)?;
            if self.sees(version.stamp, &*store.txns) {
                return Ok(version.row);
            }
            stamp = version.stamp;
        }
    }
}

impl Store {
    /// Reads the row of `key` as `view` sees it.
    pub(crate) fn read(
        &self,
        state: &TableState,
        key: &[u8],
        view: &View,
        row: &mut Row,
    ) -> Result<bool> {
        let mut older = None;
        let mut found = false;
        let commits: &dyn CommitTable = &*self.txns;
        state.tree.get(key, &mut |cell| {
            let Some(cell) = cell else { return };
            if !view.sees_leaf(&cell, commits) {
                older = Some(cell.stamp);
            } else if cell.flags & cell_flags::DELETED == 0 {
                row.set_table(&self.shape_for(state, cell.row), key, cell.row);
                found = true;
            }
        })?;
        if let Some(stamp) = older
            && let Some(bytes) = view.older(self, state.tree.id(), key, stamp)?
        {
            row.set_table(&self.shape_for(state, &bytes), key, &bytes);
            found = true;
        }
        Ok(found)
    }
}

/// Outcome of locking a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    /// Locked; the row is in the buffer.
    Row,
    /// There is no row.
    Absent,
    /// Another transaction holds it, and it is to be left out.
    Skipped,
}

impl Transaction {
    /// Reads the row with these clustered key bytes (`Row::key`).
    ///
    /// # Errors
    /// With SERIALIZABLE lock errors.
    pub fn get_by_key(&mut self, table: &Arc<Table>, key: &[u8], row: &mut Row) -> Result<bool> {
        row.clear();
        self.enter(table, Use::Read)?;
        if self.reads_lock() {
            return self.lock_by_key(table, key, Mode::Shared, LockWait::Wait, row);
        }
        let view = self.view()?;
        self.get_in_view(&table.state(), key, &view, row)
    }

    /// As `get_by_key`, of a plain read.
    pub(crate) fn get_in_view(
        &mut self,
        state: &TableState,
        key: &[u8],
        view: &View,
        row: &mut Row,
    ) -> Result<bool> {
        let found =
            self.store.read(state, key, view, row)? && self.store.load_in_view(state, view, row)?;
        if found {
            self.store.rt.metrics.add(Metric::RowsRead, 1);
        }
        Ok(found)
    }

    /// Locks the row with these clustered key bytes and reads its newest version.
    ///
    /// # Errors
    /// As `get_locked`.
    pub fn lock_by_key(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        mode: Mode,
        wait: LockWait,
        row: &mut Row,
    ) -> Result<bool> {
        row.clear();
        self.enter(table, Use::Write)?;
        let state = table.state();
        let absent = self.isolation == Isolation::Serializable;
        let locked = self.statement(|t| t.lock_row(&state, key, mode, wait, absent, row))?;
        if locked == Locked::Row {
            self.store.load_references(&state, row, None)?;
            self.store.rt.metrics.add(Metric::RowsRead, 1);
        }
        Ok(locked == Locked::Row)
    }

    /// Locks a row and reads its newest version; with `absent` a missing key is locked too.
    pub(crate) fn lock_row(
        &mut self,
        state: &TableState,
        key: &[u8],
        mode: Mode,
        wait: LockWait,
        absent: bool,
        row: &mut Row,
    ) -> Result<Locked> {
        loop {
            let (stop, outcome) = self.look_and_lock(state, key, mode, absent, row)?;
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
            let space = Space::Tree(state.tree.id());
            match (stop, wait) {
                (Stop::Undecided(_) | Stop::Locked, LockWait::Skip) => return Ok(Locked::Skipped),
                (Stop::Undecided(by), LockWait::NoWait) => return Err(self.not_available(by)),
                (Stop::Locked, _) => {
                    let policy = match wait {
                        LockWait::Wait => Policy::Wait(self.deadline()),
                        LockWait::NoWait => Policy::NoWait,
                        LockWait::Skip => Policy::Skip,
                    };
                    let store = self.store.clone();
                    if store.txns.lock_row(&self.inner, space, key, mode, policy)? == Grant::Skipped
                    {
                        return Ok(Locked::Skipped);
                    }
                }
                (stop, _) => self.give_way(state, key, stop)?,
            }
        }
    }

    /// Looks at the newest version and locks it, under one leaf latch.
    fn look_and_lock(
        &mut self,
        state: &TableState,
        key: &[u8],
        mode: Mode,
        absent: bool,
        row: &mut Row,
    ) -> Result<(Stop, Option<Locked>)> {
        let (store, me) = (self.store.clone(), self.inner.id());
        let snapshot = self.snapshot_at();
        let space = Space::Tree(state.tree.id());
        let (mut stop, mut outcome, mut failed) = (Stop::No, None, None);
        state.tree.get(key, &mut |cell| {
            let stamped = cell.filter(|c| c.flags & cell_flags::STAMPED != 0);
            let own = stamped.is_some_and(|c| c.stamp.txn == me && me.0 != 0);
            if let Some(cell) = stamped.filter(|_| !own) {
                stop = newest_stop(&store, cell.stamp, snapshot);
                if stop != Stop::No {
                    return;
                }
            }
            let live = cell.filter(|c| c.flags & cell_flags::DELETED == 0);
            if live.is_none() && !absent {
                outcome = Some(Locked::Absent);
                return;
            }
            if !own {
                match store.txns.try_lock_row(&self.inner, space, key, mode) {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => {
                        stop = Stop::Locked;
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
                    row.set_table(&store.shape_for(state, cell.row), key, cell.row);
                    Locked::Row
                }
                None => Locked::Absent,
            });
        })?;
        match failed {
            Some(error) => Err(error),
            None => Ok((stop, outcome)),
        }
    }
}

/// Why the newest version, made by another transaction, cannot be taken as it is.
pub(crate) fn newest_stop(
    store: &Store,
    stamp: Stamp,
    snapshot: Option<evenkeel_base::Lsn>,
) -> Stop {
    match store.txns.state(stamp.txn) {
        TxnState::Active | TxnState::Prepared => Stop::Undecided(stamp.txn),
        TxnState::Aborted => Stop::Aborted(stamp),
        TxnState::Committed(_) if store.txns.is_dead(stamp) => Stop::Aborted(stamp),
        TxnState::Committed(cts) if snapshot.is_some_and(|at| cts > at) => {
            Stop::Conflict(stamp.txn)
        }
        TxnState::Committed(_) => Stop::No,
    }
}

pub(crate) fn check_full(shape: &Shape, have: usize, want: usize) -> Result<()> {
    if have == want {
        return Ok(());
    }
    Err(Error::new(evenkeel_base::Code::TooManyValues)
        .with("table", &shape.def.name)
        .with("values", have)
        .with("key_parts", want))
}
