//! Reading single rows: at a snapshot, or the newest version under a lock.
//!
//! A snapshot read takes the leaf's version if the snapshot sees it, and otherwise follows older
//! versions through undo. A locking read takes the newest version (`locker`).

use crate::row::Row;
use crate::row_op::WriteStop;
use crate::row_plan::RowPlan;
use crate::scan::{Locking, counted};
use crate::store::Store;
use crate::table::{Table, TableState, Use};
use crate::table_layout::Layout;
use crate::transaction::TableTxn;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{
    CommitTable, Error, Result, Snapshot, Stamp, TreeId, TxnId, TxnState, VersionSource,
};
use evenkeel_format::ValueRef;
use evenkeel_format::record::cell_flags;
use evenkeel_runs::Sees;
use evenkeel_tree::LeafRow;
use evenkeel_txn::{Mode, SnapshotGuard};
use std::sync::Arc;

/// What to do about a row that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// Wait, as long as the transaction's lock timeout.
    Wait,
    /// Fail at once.
    NoWait,
    /// Skip the row.
    Skip,
}

/// What a plain read sees.
#[derive(Clone)]
pub(crate) struct ReadView {
    pub snapshot: Snapshot,
    /// READ UNCOMMITTED: the newest version of any transaction, unless it was undone.
    pub dirty: bool,
    /// An entry of an index counts only if the visible version of its row has that key (A7).
    pub rechecks: bool,
    /// The entries that its rows may have.
    pub entries: Sees,
    /// Keeps the snapshot registered.
    pub guard: Option<Arc<SnapshotGuard>>,
}

impl ReadView {
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

    /// As `sees_leaf`, for one row after the other: neighbours often belong to one transaction.
    /// `seen` is a transaction that is wholly visible, zero at first.
    #[inline]
    pub fn sees_next_leaf(
        &self,
        cell: &LeafRow<'_>,
        commits: &dyn CommitTable,
        seen: &mut TxnId,
    ) -> bool {
        let txn = cell.stamp.txn;
        if cell.flags & cell_flags::STAMPED == 0 || txn == *seen {
            return true;
        }
        if !self.dirty && self.snapshot.sees_all_of(txn, commits) {
            *seen = txn;
            return true;
        }
        self.sees(cell.stamp, commits)
    }

    /// The row in the newest visible version before the one that `stamp` made.
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
    /// Reads the row of `key` as `view` sees it, with its long values.
    pub(crate) fn read_row(
        &self,
        state: &TableState,
        key: &[u8],
        view: &ReadView,
        row: &mut Row,
    ) -> Result<bool> {
        let found = self.read(state, key, view, row)? && self.load_in_view(state, view, row)?;
        if found {
            self.rt.metrics.add(Metric::RowsRead, 1);
        }
        Ok(found)
    }

    /// Gives the columns of a plan of the row of `key` as `view` sees it, in the leaf where they
    /// lie. `row` gets the key, and the whole row if its columns are not read so.
    pub(crate) fn read_by(
        &self,
        state: &TableState,
        key: &[u8],
        view: &ReadView,
        (plan, row): (&mut RowPlan, &mut Row),
        mut give: impl FnMut(usize, ValueRef<'_>),
    ) -> Result<bool> {
        let (mut older, mut given) = (None, Ok(None));
        let mut take = |bytes: &[u8]| {
            let layout = self.layout_for(state, bytes);
            let is_given = plan.give(&layout, (key, bytes), &mut give)?;
            match is_given {
                true => row.set_key(key),
                false => row.set_table(&layout, key, bytes),
            }
            Ok(Some(is_given))
        };
        state.tree.get(key, &mut |cell| {
            let Some(cell) = cell else { return };
            if !view.sees_leaf(&cell, &*self.txns) {
                older = Some(cell.stamp);
            } else if cell.flags & cell_flags::DELETED == 0 {
                given = take(cell.row);
            }
        })?;
        if let Some(stamp) = older
            && let Some(bytes) = view.older(self, state.tree.id(), key, stamp)?
        {
            given = take(&bytes);
        }
        match given? {
            None => return Ok(false),
            Some(true) => {}
            Some(false) => {
                if !self.load_in_view(state, view, row)? {
                    return Ok(false);
                }
                row.values_at(plan.columns().iter().copied(), counted(give))?;
            }
        }
        self.rt.metrics.add(Metric::RowsRead, 1);
        Ok(true)
    }

    /// Reads the row of `key` as `view` sees it.
    pub(crate) fn read(
        &self,
        state: &TableState,
        key: &[u8],
        view: &ReadView,
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
                row.set_table(&self.layout_for(state, cell.row), key, cell.row);
                found = true;
            }
        })?;
        if let Some(stamp) = older
            && let Some(bytes) = view.older(self, state.tree.id(), key, stamp)?
        {
            row.set_table(&self.layout_for(state, &bytes), key, &bytes);
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
    /// Another transaction holds the row, and it is to be skipped.
    Skipped,
    /// The leaf has changed since a cursor copied it: search again.
    Moved,
}

impl TableTxn {
    /// Reads the row with these clustered key bytes (`Row::key`).
    ///
    /// # Errors
    /// `TableTooNew`; with SERIALIZABLE lock errors.
    pub fn get_by_key(&mut self, table: &Arc<Table>, key: &[u8], row: &mut Row) -> Result<bool> {
        row.clear();
        if let Some(chunked) = table.chunked() {
            return self.get_by_key_chunked(table, chunked, key, row);
        }
        self.enter(table, Use::Read)?;
        if self.reads_lock() {
            return self.lock_by_key(table, key, self.get_mode(), LockWait::Wait, row);
        }
        let view = self.view_of(table)?;
        self.get_in_view(&table.state(), key, &view, row)
    }

    /// As `get_by_key`, of a plain read.
    pub(crate) fn get_in_view(
        &mut self,
        state: &TableState,
        key: &[u8],
        view: &ReadView,
        row: &mut Row,
    ) -> Result<bool> {
        self.store.read_row(state, key, view, row)
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
        if table.is_chunked() {
            return self.in_chunk_of_key(table, key, |txn, table| {
                txn.lock_by_key(table, key, mode, wait, row)
            });
        }
        self.enter(table, Use::Write)?;
        let state = table.state();
        let (locker, locking) = (self.locker(), Locking { mode, wait });
        let absent = locker.locks_absent(wait);
        let locked = self.statement(|_| locker.lock_row(&state, key, locking, absent, row))?;
        if locked == Locked::Row {
            self.store.load_references(&state, row, None)?;
            self.store.rt.metrics.add(Metric::RowsRead, 1);
        }
        Ok(locked == Locked::Row)
    }
}

/// The obstacle if the newest version, made by another transaction, cannot be used as it is.
pub(crate) fn newest_stop(
    store: &Store,
    stamp: Stamp,
    snapshot: Option<evenkeel_base::Lsn>,
) -> WriteStop {
    match store.txns.state(stamp.txn) {
        TxnState::Active | TxnState::Prepared => WriteStop::Undecided(stamp.txn),
        TxnState::Aborted => WriteStop::Aborted(stamp),
        TxnState::Committed(_) if store.txns.is_dead(stamp) => WriteStop::Aborted(stamp),
        TxnState::Committed(cts) if snapshot.is_some_and(|at| cts > at) => {
            WriteStop::Conflict(stamp.txn)
        }
        TxnState::Committed(_) => WriteStop::No,
    }
}

pub(crate) fn check_full(layout: &Layout, have: usize, want: usize) -> Result<()> {
    if have == want {
        return Ok(());
    }
    Err(Error::new(evenkeel_base::Code::WrongValueCount)
        .with("table", &layout.def.name)
        .with("values", have)
        .with("key_parts", want))
}
