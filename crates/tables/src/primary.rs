//! Rows by primary key: by the clustered key itself or, in a table clustered on a hidden id,
//! through the primary key's index.
//!
//! That index is read in the same way as the row: by a plain read at its snapshot and without
//! waiting, by a locking read or a change in its present state (A7). Between the reads of index and
//! row another row may get the key, or the row another key. So the key is checked again when the
//! row is locked or changed, and if it differs by then the search begins again.

use crate::range::KeySet;
use crate::read::{LockWait, ReadView, check_full};
use crate::row::Row;
use crate::row_plan::RowPlan;
use crate::scan::{Locking, row_has_key};
use crate::table::{Table, TableState, Use};
use crate::transaction::TableTxn;
use crate::write::Target;
use evenkeel_base::{Code, Error, IndexId, Result, Snapshot};
use evenkeel_format::record::entry_op;
use evenkeel_format::{ValueRef, prefix_successor};
use evenkeel_runs::{Direction, KeyRange};
use evenkeel_txn::{LockSpace, Mode};
use std::ops::Bound;
use std::sync::Arc;

/// The key bytes by which a row was found in an index; the row counts only while it has this key.
pub(crate) type FoundBy<'a> = Option<(IndexId, &'a [u8])>;

/// How a primary key is searched.
enum Primary {
    /// The clustered key.
    Clustered(Vec<u8>),
    /// Key bytes in the primary key's index.
    Indexed(IndexId, Vec<u8>),
}

impl TableState {
    /// The clustered key that a range of the table names alone. `None` also if no row can have the
    /// key: such a range is empty, and its bytes are a place between keys that rows may have.
    pub(crate) fn point(&self, keys: KeySet<'_>) -> Result<Option<Vec<u8>>> {
        let parts = &self.layout.key;
        let KeySet::In(range) = keys else { return Ok(None) };
        match (range.lower, range.upper) {
            (Bound::Included(lower), Bound::Included(upper))
                if !parts.is_empty() && lower.len() == parts.len() && lower == upper =>
            {
                self.layout.encode_whole(parts, lower)
            }
            _ => Ok(None),
        }
    }

    /// `None` for a key that no row can have, because a value is beyond the domain of its column.
    fn primary(&self, values: &[ValueRef<'_>]) -> Result<Option<Primary>> {
        let layout = &self.layout;
        if !layout.key.is_empty() {
            check_full(layout, values.len(), layout.key.len())?;
            return Ok(layout.encode_whole(&layout.key, values)?.map(Primary::Clustered));
        }
        let primary = layout.def.indexes.iter().position(|i| i.entry.primary);
        let primary = primary.ok_or_else(|| {
            Error::new(Code::IndexMissing).with("table", &layout.def.name).with("index", "primary")
        })?;
        let index = &layout.indexes[primary];
        check_full(layout, values.len(), index.parts.len())?;
        let key = layout.encode_whole(&index.parts, values)?;
        Ok(key.map(|key| Primary::Indexed(index.id, key)))
    }
}

impl TableTxn {
    /// Reads the row with this primary key into `row`; false if there is none.
    ///
    /// # Errors
    /// `TableTooNew`, faults of the key; with SERIALIZABLE also lock errors.
    pub fn get(&mut self, table: &Arc<Table>, key: &[ValueRef<'_>], row: &mut Row) -> Result<bool> {
        row.clear();
        if let Some(chunked) = table.chunked() {
            return self.get_chunked(table, chunked, key, row);
        }
        self.enter(table, Use::Read)?;
        if self.reads_lock() {
            return self.get_locked(table, key, self.get_mode(), LockWait::Wait, row);
        }
        let view = self.view_of(table)?;
        let state = table.state();
        let key = match state.primary(key)? {
            None => None,
            Some(Primary::Clustered(key)) => Some(key),
            Some(Primary::Indexed(index, key)) if view.rechecks && !view.dirty => {
                return self.get_rechecked(&state, (index, &key), &view, row);
            }
            Some(Primary::Indexed(index, key)) => self.visible_pk(index, &key, &view)?,
        };
        key.map_or(Ok(false), |key| self.get_in_view(&state, &key, &view, row))
    }

    /// As `get`, and gives the columns of a plan. A plain read by the key on which the table is
    /// clustered gives them where they lie, without a copy of the row; `row` then has the row's key
    /// alone. Otherwise it has the row.
    ///
    /// # Errors
    /// As `get`.
    pub fn get_by(
        &mut self,
        table: &Arc<Table>,
        key: &[ValueRef<'_>],
        plan: &mut RowPlan,
        row: &mut Row,
        give: impl FnMut(usize, ValueRef<'_>),
    ) -> Result<bool> {
        if !self.reads_lock() && !table.is_chunked() {
            self.enter(table, Use::Read)?;
            let state = table.state();
            match state.primary(key)? {
                None => return Ok(false),
                Some(Primary::Clustered(key)) => {
                    row.clear();
                    let view = self.view_of(table)?;
                    return self.store.read_by(&state, &key, &view, (plan, row), give);
                }
                Some(Primary::Indexed(..)) => {}
            }
        }
        let found = self.get(table, key, row)?;
        if found {
            row.values_by(plan, give)?;
        }
        Ok(found)
    }

    /// Reads many rows by primary key, in its order; calls `f` with the position of each key that
    /// has a row.
    ///
    /// # Errors
    /// As `get`, and what `f` returns.
    pub fn get_many(
        &mut self,
        table: &Arc<Table>,
        keys: &[&[ValueRef<'_>]],
        f: &mut dyn FnMut(usize, &Row) -> Result<()>,
    ) -> Result<()> {
        if table.is_chunked() {
            return self.get_many_chunked(table, keys, f);
        }
        self.enter(table, Use::Read)?;
        let state = table.state();
        let mut sorted = Vec::with_capacity(keys.len());
        for (i, key) in keys.iter().enumerate() {
            match state.primary(key)? {
                None => {}
                Some(Primary::Clustered(bytes)) => sorted.push((bytes, true, i)),
                Some(Primary::Indexed(_, bytes)) => sorted.push((bytes, false, i)),
            }
        }
        sorted.sort();
        let mut row = Row::new();
        for (bytes, is_clustered, i) in sorted {
            let found = match is_clustered {
                true => self.get_by_key(table, &bytes, &mut row)?,
                false => self.get(table, keys[i], &mut row)?,
            };
            if found {
                f(i, &row)?;
            }
        }
        Ok(())
    }

    /// Locks the row with this primary key and reads its newest version; false if there is none or
    /// the row is skipped.
    ///
    /// # Errors
    /// `RowChanged`, lock errors, faults of the key.
    pub fn get_locked(
        &mut self,
        table: &Arc<Table>,
        key: &[ValueRef<'_>],
        mode: Mode,
        wait: LockWait,
        row: &mut Row,
    ) -> Result<bool> {
        row.clear();
        if table.is_chunked() {
            return self.get_locked_chunked(table, key, (mode, wait), row);
        }
        let locking = Locking { mode, wait };
        self.with_current(table, key, locking, |txn, key, found_by| match found_by {
            None => txn.lock_by_key(table, key, mode, wait, row),
            Some(found_by) => txn.lock_found(table, key, found_by, locking, row),
        })
    }

    /// Changes columns of the row with this primary key; false if there is none.
    ///
    /// # Errors
    /// `DuplicateKey`, `RowChanged`, lock errors, faults of the values.
    pub fn update(
        &mut self,
        table: &Arc<Table>,
        key: &[ValueRef<'_>],
        changes: &[(usize, ValueRef<'_>)],
    ) -> Result<bool> {
        if table.is_chunked() {
            return self
                .in_chunk_of_primary(table, key, |txn, table| txn.update(table, key, changes));
        }
        let locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };
        self.with_current(table, key, locking, |txn, key, found_by| {
            txn.statement(|txn| txn.update_row(table, Target::of(key, found_by), changes))
        })
    }

    /// Deletes the row with this primary key; false if there is none.
    ///
    /// # Errors
    /// `RowChanged`, lock errors.
    pub fn delete(&mut self, table: &Arc<Table>, key: &[ValueRef<'_>]) -> Result<bool> {
        if table.is_chunked() {
            return self.in_chunk_of_primary(table, key, |txn, table| txn.delete(table, key));
        }
        let locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };
        self.with_current(table, key, locking, |txn, key, found_by| {
            txn.statement(|txn| txn.delete_row(table, Target::of(key, found_by)))
        })
    }

    /// Locks a row that was found in an index and reads its newest version. False if the row is
    /// gone, is skipped, or has another key by now; then it is unlocked.
    fn lock_found(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        (index, found_by): (IndexId, &[u8]),
        Locking { mode, wait }: Locking,
        row: &mut Row,
    ) -> Result<bool> {
        let held = self.inner.locked_rows();
        if !self.lock_by_key(table, key, mode, wait, row)? {
            return Ok(false);
        }
        let state = table.state();
        let at = state.layout.indexes.iter().position(|i| i.id == index);
        let at = at.ok_or_else(|| Error::internal("the primary key's index is gone"))?;
        if row_has_key(&state, at, row, found_by)? {
            return Ok(true);
        }
        row.clear();
        if self.inner.locked_rows() > held {
            let space = state.lock_space();
            self.store.txns.unlock_row(&self.inner, space, key, mode, false);
        }
        Ok(false)
    }

    /// Calls `f` for the row that has this primary key now; false if there is none. `f` gets the
    /// clustered key, and the index key by which the row was found, if any; it returns false if the
    /// row is gone or has another key by now.
    fn with_current(
        &mut self,
        table: &Arc<Table>,
        values: &[ValueRef<'_>],
        locking: Locking,
        mut f: impl FnMut(&mut TableTxn, &[u8], FoundBy<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let mut tried: Option<Vec<u8>> = None;
        loop {
            let (index, key) = match table.state().primary(values)? {
                None => {
                    self.enter(table, Use::Write)?;
                    return Ok(false);
                }
                Some(Primary::Clustered(key)) => return f(self, &key, None),
                Some(Primary::Indexed(..)) => {
                    self.enter(table, Use::Write)?;
                    // A table in use keeps its indexes.
                    match table.state().primary(values)? {
                        None => return Ok(false),
                        Some(Primary::Clustered(key)) => return f(self, &key, None),
                        Some(Primary::Indexed(index, key)) => (index, key),
                    }
                }
            };
            // As a statement: a deadlock ends the transaction.
            let present = self.statement(|txn| txn.present_pk(index, &key, locking))?;
            let Some(pk) = present else { return Ok(false) };
            if f(self, &pk, Some((index, &key)))? {
                return Ok(true);
            }
            if tried.as_ref() == Some(&pk) {
                return Ok(false);
            }
            tried = Some(pk);
        }
    }

    /// The present row under a primary key. A transaction with a snapshot also gets a row that is
    /// gone since: to change or lock it is a conflict, which is found at the row (A6).
    fn present_pk(
        &mut self,
        index: IndexId,
        key: &[u8],
        locking: Locking,
    ) -> Result<Option<Vec<u8>>> {
        let mut found = self.current_pks(index, key, locking.wait)?;
        if found.is_empty() && self.locker().locks_absent(locking.wait) {
            // An absent key stays absent.
            let mut upper = key.to_vec();
            let upper = prefix_successor(&mut upper).then_some(upper);
            let range = crate::range::ByteRange { lower: key.to_vec(), upper };
            self.locker().lock_range(LockSpace::Index(index), &range, locking)?;
            found = self.current_pks(index, key, locking.wait)?;
        }
        if let Some(pk) = found.pop() {
            return Ok(Some(pk));
        }
        let Some(at) = self.snapshot_at() else { return Ok(None) };
        let snapshot = Snapshot { at, own: self.inner.id(), own_below: self.inner.mark() };
        Ok(self.pks(index, key, snapshot, 1)?.pop())
    }

    /// The row that a plain read finds under a primary key. The transaction's own row comes before
    /// the one that it replaced in a later state than the snapshot's.
    fn visible_pk(
        &mut self,
        index: IndexId,
        key: &[u8],
        view: &ReadView,
    ) -> Result<Option<Vec<u8>>> {
        let me = self.inner.id();
        let (mut own, mut any) = (None, None);
        let read = self.store.runs.current(index, key, &mut |pk, op, stamp, _| {
            if op & entry_op::INS != 0 {
                any = Some(pk.to_vec());
                if stamp.txn == me && me.0 != 0 {
                    own = Some(pk.to_vec());
                }
            }
            own.is_none()
        });
        self.store.read_index(read)?;
        if own.is_some() || (view.dirty && any.is_some()) {
            return Ok(own.or(any));
        }
        Ok(self.pks(index, key, view.snapshot, 1)?.pop())
    }

    /// As `get`, where an entry may belong to an older version of its row than the visible one.
    fn get_rechecked(
        &mut self,
        state: &TableState,
        (index, key): (IndexId, &[u8]),
        view: &ReadView,
        row: &mut Row,
    ) -> Result<bool> {
        let mut pks: Vec<_> = self.visible_pk(index, key, view)?.into_iter().collect();
        pks.extend(self.pks(index, key, view.snapshot, usize::MAX)?);
        let at = state.layout.indexes.iter().position(|i| i.id == index);
        let at = at.ok_or_else(|| Error::internal("the primary key's index is gone"))?;
        for pk in pks {
            if self.get_in_view(state, &pk, view, row)? && row_has_key(state, at, row, key)? {
                return Ok(true);
            }
        }
        row.clear();
        Ok(false)
    }

    /// Clustered keys, at most `most`, of the visible entries of a key.
    fn pks(
        &self,
        index: IndexId,
        key: &[u8],
        snapshot: Snapshot,
        most: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut upper = key.to_vec();
        let upper = match prefix_successor(&mut upper) {
            true => Bound::Excluded(upper),
            false => Bound::Unbounded,
        };
        let range = KeyRange { lower: Bound::Included(key.to_vec()), upper };
        let runs = &self.store.runs;
        let mut cursor = runs.cursor(index, range, Direction::Forward, snapshot)?;
        let mut found = Vec::new();
        while found.len() < most
            && let Some(entry) = self.store.read_index(cursor.next())?
        {
            found.push(entry.pk.to_vec());
        }
        Ok(found)
    }
}
