//! Row changes: insert, insert_or_ignore, upsert, update, delete.
//!
//! A change is prepared outside any latch (row and entries encoded, unique keys checked, space
//! reserved), then passed to the tree as one operation that checks again under the leaf latch
//! (`row_op`). Without a latch the transaction waits for obstacles, or rolls them back.

use crate::apply::Outcome;
use crate::buffers::Buffers;
use crate::large::{self, Given, LargeValue};
use crate::overflow;
use crate::primary::FoundBy;
use crate::read::newest_stop;
use crate::row::Row;
use crate::row_op::WriteStop;
use crate::table::{Table, TableState, Use};
use crate::table_layout::RowView;
use crate::transaction::TableTxn;
use crate::write_parts::{Applied, diff_entry, duplicate_key, has_key, list_edits, met};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Error, IndexId, Result, Stamp};
use evenkeel_format::record::{RowKind, cell_flags, entry_op};
use evenkeel_format::{Field, Value, ValueRef};
use evenkeel_txn::SnapshotGuard;
use std::sync::Arc;

/// So often the row that an index names may have another key; damage alone causes it for longer.
const MISSES_MAX: usize = 100;

/// What to do about an existing row that has one of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDuplicate {
    /// Fail with `DuplicateKey`.
    Fail,
    /// Keep that row and report it.
    Keep,
}

/// What an insert did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// The row is inserted; the value of its auto-increment column.
    Done(Option<u64>),
    /// An existing row with this clustered key has the primary or a unique key; for a unique index,
    /// the index and the key.
    Found(Vec<u8>, Option<(IndexId, Vec<u8>)>),
}

/// The result of an insert that reports an existing row instead of failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The row is inserted; the value of its auto-increment column.
    Done(Option<u64>),
    /// An existing row has the primary key (none), or the key of the unique index of this name.
    Taken(Option<String>),
}

/// How the current version of a row was found.
pub(crate) enum Current {
    /// No live row.
    Absent,
    /// A live row; its bytes are in the buffer.
    Live(Stamp, u8),
}

/// The row to be changed.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    key: &'a [u8],
    found_by: FoundBy<'a>,
    /// The buffer into which it was read.
    read: Option<&'a Row>,
}

impl<'a> Target<'a> {
    pub fn of(key: &'a [u8], found_by: FoundBy<'a>) -> Target<'a> {
        Target { key, found_by, read: None }
    }

    pub fn read(row: &'a Row) -> Target<'a> {
        Target { key: row.key(), found_by: None, read: Some(row) }
    }
}

/// The version from which a change is made.
enum Old {
    /// There is none.
    Absent,
    /// To be read again.
    Again,
    /// Its stamp and flags.
    Live(Stamp, u8),
}

impl TableTxn {
    /// Inserts a row; `values` are all columns in order, NULL in the auto-increment column takes
    /// the next number. Returns that number.
    ///
    /// # Errors
    /// `DuplicateKey`, `RowChanged`, lock errors, and faults of the values.
    pub fn insert(&mut self, table: &Arc<Table>, values: &[ValueRef<'_>]) -> Result<Option<u64>> {
        let insert = |txn: &mut TableTxn, table: &Arc<Table>| {
            txn.insert_row(table, values, OnDuplicate::Fail, None)
        };
        self.statement(|txn| match txn.in_chunk(table, values, insert)? {
            Inserted::Done(number) => Ok(number),
            Inserted::Found(..) => Err(Error::internal("a duplicate was neither kept nor refused")),
        })
    }

    /// As `insert`, but an existing row with one of the keys costs no error message.
    ///
    /// # Errors
    /// As `insert`, duplicates excepted.
    pub fn insert_or_tell(
        &mut self,
        table: &Arc<Table>,
        values: &[ValueRef<'_>],
    ) -> Result<Insertion> {
        let insert = |txn: &mut TableTxn, table: &Arc<Table>| {
            Ok(match txn.insert_row(table, values, OnDuplicate::Keep, None)? {
                Inserted::Done(number) => Insertion::Done(number),
                Inserted::Found(_, None) => Insertion::Taken(None),
                Inserted::Found(_, Some((id, _))) => {
                    let layout = table.layout();
                    let index = layout.indexes.iter().find(|index| index.id == id);
                    Insertion::Taken(Some(index.map(|i| i.name.clone()).unwrap_or_default()))
                }
            })
        };
        self.statement(|txn| txn.in_chunk(table, values, insert))
    }

    /// As `insert`, with long values written ahead for some columns. If it fails they are freed.
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_large(
        &mut self,
        table: &Arc<Table>,
        values: &[ValueRef<'_>],
        large: Vec<(usize, LargeValue)>,
    ) -> Result<Option<u64>> {
        self.with_large(table, &large, |txn| txn.insert(table, values))
    }

    /// As `update`, with long values written ahead for some columns. If it fails they are freed.
    ///
    /// # Errors
    /// As `update`.
    pub fn update_large(
        &mut self,
        table: &Arc<Table>,
        key: &[ValueRef<'_>],
        changes: &[(usize, ValueRef<'_>)],
        large: Vec<(usize, LargeValue)>,
    ) -> Result<bool> {
        self.with_large(table, &large, |txn| txn.update(table, key, changes))
    }

    fn with_large<R>(
        &mut self,
        table: &Arc<Table>,
        large: &[(usize, LargeValue)],
        body: impl FnOnce(&mut TableTxn) -> Result<R>,
    ) -> Result<R> {
        // Enter before the check: from here on the table keeps its columns and indexes in place.
        self.enter(table, Use::Write)?;
        self.buffers.get().given = large::check(table, large)?;
        let done = body(self);
        self.buffers.get().given.clear();
        done
    }

    /// Inserts a row unless one of its keys is taken; true if it was inserted.
    ///
    /// # Errors
    /// As `insert`, duplicates excepted.
    pub fn insert_or_ignore(
        &mut self,
        table: &Arc<Table>,
        values: &[ValueRef<'_>],
    ) -> Result<bool> {
        let insert = |txn: &mut TableTxn, table: &Arc<Table>| {
            txn.insert_row(table, values, OnDuplicate::Keep, None)
        };
        self.statement(|txn| Ok(matches!(txn.in_chunk(table, values, insert)?, Inserted::Done(_))))
    }

    /// Inserts a row, or changes the row that has one of its keys by `changes` (all its columns if
    /// there are none); true if it was inserted.
    ///
    /// # Errors
    /// As `insert` and `update`.
    pub fn upsert(
        &mut self,
        table: &Arc<Table>,
        values: &[ValueRef<'_>],
        changes: &[(usize, ValueRef<'_>)],
    ) -> Result<bool> {
        self.statement(|txn| {
            txn.in_chunk(table, values, |txn, table| txn.upsert_row(table, values, changes))
        })
    }

    fn upsert_row(
        &mut self,
        table: &Arc<Table>,
        values: &[ValueRef<'_>],
        changes: &[(usize, ValueRef<'_>)],
    ) -> Result<bool> {
        let mut misses = 0;
        loop {
            let (found, by) = match self.insert_row(table, values, OnDuplicate::Keep, None)? {
                Inserted::Done(_) => return Ok(true),
                Inserted::Found(key, by) => (key, by),
            };
            let all: Vec<(usize, ValueRef<'_>)>;
            let changes = match changes.is_empty() {
                false => changes,
                true => {
                    // Without a value the auto-increment column keeps the row's own.
                    all = values.iter().copied().enumerate().collect();
                    let auto = table.layout().auto_increment;
                    &all.iter()
                        .copied()
                        .filter(|(i, v)| Some(*i) != auto || !v.is_null())
                        .collect::<Vec<_>>()[..]
                }
            };
            // During the wait the row may go or get another key: then the key is free.
            let found_by = by.as_ref().map(|(index, key)| (*index, &key[..]));
            if self.update_row(table, Target::of(&found, found_by), changes)? {
                return Ok(false);
            }
            self.inner.check_cancel()?;
            if let Some((id, _)) = found_by {
                misses += 1;
                if misses == MISSES_MAX {
                    let layout = table.layout();
                    let index = layout.indexes.iter().position(|index| index.id == id);
                    return Err(duplicate_key(&layout, index));
                }
            }
        }
    }

    /// Changes columns of the row with these clustered key bytes (`Row::key`).
    ///
    /// # Errors
    /// As `update`.
    pub fn update_by_key(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        changes: &[(usize, ValueRef<'_>)],
    ) -> Result<bool> {
        self.statement(|txn| {
            txn.in_chunk_of_key(table, key, |txn, table| {
                txn.update_row(table, Target::of(key, None), changes)
            })
        })
    }

    /// As `update_by_key`, for a row that was read. The row is not searched again if it was locked
    /// when it was read and has not changed since.
    ///
    /// # Errors
    /// As `update`.
    pub fn update_read(
        &mut self,
        table: &Arc<Table>,
        read: &Row,
        changes: &[(usize, ValueRef<'_>)],
    ) -> Result<bool> {
        self.statement(|txn| {
            txn.in_chunk_of_key(table, read.key(), |txn, table| {
                txn.update_row(table, Target::read(read), changes)
            })
        })
    }

    /// Deletes the row with these clustered key bytes (`Row::key`).
    ///
    /// # Errors
    /// As `delete`.
    pub fn delete_by_key(&mut self, table: &Arc<Table>, key: &[u8]) -> Result<bool> {
        self.statement(|txn| {
            txn.in_chunk_of_key(table, key, |txn, table| {
                txn.delete_row(table, Target::of(key, None))
            })
        })
    }

    /// As `delete_by_key`, for a row that was read, as in `update_read`.
    ///
    /// # Errors
    /// As `delete`.
    pub fn delete_read(&mut self, table: &Arc<Table>, read: &Row) -> Result<bool> {
        self.statement(|txn| {
            txn.in_chunk_of_key(table, read.key(), |txn, table| {
                txn.delete_row(table, Target::read(read))
            })
        })
    }

    /// Inserts a row; `number` is its auto-increment number from an earlier attempt, if any.
    pub(crate) fn insert_row(
        &mut self,
        table: &Arc<Table>,
        values: &[ValueRef<'_>],
        on_duplicate: OnDuplicate,
        number: Option<u64>,
    ) -> Result<Inserted> {
        self.enter(table, Use::Write)?;
        let mut buffers = self.buffers.take();
        let done = self.insert_with(table, values, on_duplicate, number, &mut buffers);
        self.buffers.put(buffers);
        self.settle(match &done {
            Ok(Inserted::Done(_)) => Outcome::Written,
            Ok(Inserted::Found(..)) => Outcome::Found,
            Err(error) if error.code() == Code::DuplicateKey => Outcome::Found,
            Err(_) => Outcome::Nothing,
        });
        match done {
            Ok(Inserted::Done(_)) => {
                self.store.rt.metrics.add(Metric::RowsInserted, 1);
                self.store.note_changes(table, 1);
                table.expect_rows_there(false);
            }
            Ok(Inserted::Found(_, None)) => table.expect_rows_there(true),
            Ok(Inserted::Found(..)) | Err(_) => {}
        }
        done
    }

    fn insert_with(
        &mut self,
        table: &Arc<Table>,
        values: &[ValueRef<'_>],
        on_duplicate: OnDuplicate,
        mut number: Option<u64>,
        b: &mut Buffers,
    ) -> Result<Inserted> {
        let mut hidden = None;
        let given = std::mem::take(&mut b.given);
        loop {
            let state = table.state();
            let layout = &state.layout;
            layout.check_values(values)?;
            let auto = layout.auto_increment;
            if let Some(column) = auto {
                number = self.store.auto_number(table, layout, column, values[column], number)?;
            }
            let value = |i: usize| match number {
                Some(n) if Some(i) == auto => Ok(ValueRef::UInt(n)),
                _ => Ok(values[i]),
            };
            b.key.clear();
            if layout.key.is_empty() {
                let id = match hidden {
                    Some(id) => id,
                    None => self.store.next_hidden(table)?,
                };
                hidden = Some(id);
                b.key.extend_from_slice(&id.to_be_bytes());
            } else {
                layout.encode_key(&value, &mut b.key)?;
            }
            b.unique.clear();
            if given.is_empty() && self.is_there(table, &state, &b.key)? {
                return met(on_duplicate, (&**layout, values), None, b.key.clone(), b);
            }
            let field = |i: usize| match given.iter().find(|g| g.position == i) {
                Some(given) => Ok(Field::Reference(&given.bytes)),
                None => value(i).map(Field::Value),
            };
            self.encode_row(&state, &field, b)?;
            list_edits(layout, None, &given, b)?;
            b.entries.clear();
            for (at, index) in layout.indexes.iter().enumerate() {
                b.part.clear();
                b.stored.clear();
                let full = index.encode(&value, b.key.len(), &mut b.part)?;
                index.encode_stored(&value, b.part.len() + b.key.len(), &mut b.stored)?;
                let op = entry_op::INS | entry_op::FRESH;
                b.entries.push(index.id, op, &b.part, &b.stored, b.key.len());
                if full && index.checks_unique() {
                    b.unique.push((at, b.part.clone()));
                }
            }
            match self.apply_insert(table, &state, &value, b)? {
                Applied::Done => return Ok(Inserted::Done(number)),
                Applied::Again => {}
                Applied::Duplicate(index, pk) => {
                    let (index, pk) = self.first_duplicate(&state, index, pk, b)?;
                    return met(on_duplicate, (&**layout, values), index, pk, b);
                }
            }
        }
    }

    /// True if recent inserts have met rows, a row with this clustered key exists, and no other
    /// transaction can change that answer. This is a look before the row is prepared and space is
    /// reserved; if it does not decide, the operation does under the leaf's exclusive latch.
    fn is_there(&self, table: &Table, state: &TableState, key: &[u8]) -> Result<bool> {
        if !table.expects_rows_there() || state.layout.key.is_empty() {
            return Ok(false);
        }
        let (store, me) = (&self.store, self.inner.id());
        let space = state.lock_space();
        let mut there = false;
        state.tree.get(key, &mut |cell| {
            let Some(cell) = cell.filter(|c| c.flags & cell_flags::DELETED == 0) else { return };
            let others = cell.flags & cell_flags::STAMPED != 0 && cell.stamp.txn != me;
            // A duplicate is no conflict, however new it is.
            let decided = !others || newest_stop(store, cell.stamp, None) == WriteStop::No;
            there = decided && store.txns.check_write(&self.inner, space, key).is_empty();
        })?;
        Ok(there)
    }

    /// The first taken key of the prepared row: the primary key if it is taken, although unique
    /// indexes are checked before the row is written (A1).
    fn first_duplicate(
        &mut self,
        state: &TableState,
        index: Option<usize>,
        pk: Vec<u8>,
        b: &mut Buffers,
    ) -> Result<(Option<usize>, Vec<u8>)> {
        if index.is_none() || state.layout.key.is_empty() {
            return Ok((index, pk));
        }
        match self.read_current(state, &b.key, &mut b.old_row)? {
            Current::Live(..) => Ok((None, b.key.clone())),
            Current::Absent => Ok((index, pk)),
        }
    }

    /// The present version of a row, its bytes in `row`: newest committed or own. Waits for an
    /// undecided version and rolls an aborted one back.
    pub(crate) fn read_current(
        &mut self,
        state: &TableState,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<Current> {
        loop {
            let store = self.store.clone();
            let (me, snapshot) = (self.inner.id(), self.snapshot_at());
            let mut stop = WriteStop::No;
            let mut found = Current::Absent;
            state.tree.get(key, &mut |cell| {
                let Some(cell) = cell else { return };
                if cell.flags & cell_flags::STAMPED != 0 && cell.stamp.txn != me {
                    stop = newest_stop(&store, cell.stamp, snapshot);
                }
                if stop == WriteStop::No && cell.flags & cell_flags::DELETED == 0 {
                    row.clear();
                    row.extend_from_slice(cell.row);
                    found = Current::Live(cell.stamp, cell.flags);
                }
            })?;
            if stop == WriteStop::No {
                return Ok(found);
            }
            self.give_way(state, key, stop)?;
        }
    }

    /// Changes columns of a row; false if it does not exist, or no longer has the key searched for.
    pub(crate) fn update_row(
        &mut self,
        table: &Arc<Table>,
        target: Target<'_>,
        changes: &[(usize, ValueRef<'_>)],
    ) -> Result<bool> {
        self.enter_to_change(table)?;
        let mut buffers = self.buffers.take();
        // The values are needed for another attempt; the caller who gave them removes them.
        let given = std::mem::take(&mut buffers.given);
        let done = self.update_with(table, target, changes, &given, &mut buffers);
        buffers.given = given;
        self.buffers.put(buffers);
        self.settle(Outcome::of(&done));
        if matches!(done, Ok(true)) {
            self.store.rt.metrics.add(Metric::RowsUpdated, 1);
            self.store.note_changes(table, 1);
        }
        done
    }

    fn update_with(
        &mut self,
        table: &Arc<Table>,
        Target { key, found_by, mut read }: Target<'_>,
        changes: &[(usize, ValueRef<'_>)],
        given: &[Given],
        b: &mut Buffers,
    ) -> Result<bool> {
        let mut guard = None;
        loop {
            let state = table.state();
            let layout = &state.layout;
            let expect = match self.read_old(&state, (key, &mut read), &mut guard, b)? {
                Old::Live(stamp, flags) => (stamp, flags),
                Old::Absent => return Ok(false),
                Old::Again => continue,
            };
            let old_row = std::mem::take(&mut b.old_row);
            let wanted = |i: usize, _: u32| layout.is_indexed(i);
            let loaded = overflow::load(&state.tree, layout, key, &old_row, &wanted)?;
            let old = layout.view(key, &old_row)?.with_loaded(&loaded);
            if !has_key(layout, &old, key.len(), found_by, b)? {
                return Ok(false);
            }
            let changed = |i: usize| changes.iter().rev().find(|c| c.0 == i).map(|c| c.1);
            if let Some((i, _)) = changes.iter().find(|c| c.0 >= layout.columns.len()) {
                return Err(Error::new(Code::ColumnMissing).with("position", i));
            }
            let value = |i: usize| changed(i).map_or_else(|| old.value(i), Ok);
            b.key.clear();
            if layout.key.is_empty() {
                b.key.extend_from_slice(key);
            } else {
                layout.encode_key(&value, &mut b.key)?;
            }
            if b.key != key {
                b.old_row.clone_from(&old_row);
                match self.move_row(table, &state, (key, expect, &old), &changed, given, b)? {
                    true => return Ok(true),
                    false => continue,
                }
            }
            let field = |i: usize| match given.iter().find(|g| g.position == i) {
                Some(given) => Ok(Field::Reference(&given.bytes)),
                None => changed(i).map_or_else(|| old.field(i), |v| Ok(Field::Value(v))),
            };
            self.encode_row(&state, &field, b)?;
            list_edits(layout, Some(&old_row), given, b)?;
            b.entries.clear();
            b.unique.clear();
            // Entries that the transaction's own snapshot does not show become its own.
            let renews = expect.1 & cell_flags::STAMPED != 0 && self.passes_over(expect.0);
            for (at, index) in layout.indexes.iter().enumerate() {
                let differs = renews || changes.iter().any(|c| index.depends_on(c.0));
                if differs && !self.forgets_index(layout, at) {
                    diff_entry(index, at, (&old, renews), &value, b)?;
                }
            }
            let foreign = self.foreign_of_update(table, &state, &|i| old.value(i), &value)?;
            b.old_row = old_row;
            let applied = self.apply(table, &state, RowKind::Update, Some(expect), b);
            match self.end_foreign(foreign, applied)? {
                Applied::Done => return Ok(true),
                Applied::Again => {}
                Applied::Duplicate(index, _) => {
                    return Err(duplicate_key(layout, index));
                }
            }
        }
    }

    /// Reads the version from which a change is made into `b.old_row`.
    fn read_old(
        &mut self,
        state: &TableState,
        (key, read): (&[u8], &mut Option<&Row>),
        guard: &mut Option<SnapshotGuard>,
        b: &mut Buffers,
    ) -> Result<Old> {
        b.leaf = None;
        let (stamp, flags) = match read.take().and_then(|row| row.found(state.tree.id(), key)) {
            // The latch holder checks whether it is still the newest.
            Some((place, row)) => {
                b.old_row.clear();
                b.old_row.extend_from_slice(row);
                b.leaf = Some(place.leaf);
                (place.stamp, place.flags)
            }
            None => match self.read_current(state, key, &mut b.old_row)? {
                Current::Live(stamp, flags) => (stamp, flags),
                Current::Absent => return Ok(Old::Absent),
            },
        };
        // Repeat with the present state if its format came while this waited for the row.
        let is_later = !state.layout.is_as_new_as(&b.old_row);
        let again = is_later || self.keep_chains(&b.old_row, guard);
        Ok(if again { Old::Again } else { Old::Live(stamp, flags) })
    }

    /// Reading a row's chains without a lock needs a snapshot from before the row was read. True if
    /// there was none: the row has to be read again.
    fn keep_chains(&self, row: &[u8], guard: &mut Option<SnapshotGuard>) -> bool {
        let again = guard.is_none() && evenkeel_format::row::has_references(row);
        if again {
            *guard = Some(self.store.txns.snapshot());
        }
        again
    }

    /// An update that changes the clustered key: delete and insert in one statement. Chains that
    /// the row keeps are copied, because each belongs to one key. False if the version in the
    /// buffers, from which the new row is made, is no longer the present one: nothing was done.
    fn move_row<'v>(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        (key, expect, old): (&[u8], (Stamp, u8), &RowView<'v>),
        changed: &impl Fn(usize) -> Option<ValueRef<'v>>,
        given: &[Given],
        b: &mut Buffers,
    ) -> Result<bool> {
        // A chunk may have to be made: before anything is changed.
        let new = |i: usize| changed(i).map_or_else(|| old.value(i), Ok);
        let target = self.chunk_of_moved(table, &new)?;
        let into = target.state();
        let (mut given, mut values, mut copies) = (given.to_vec(), Vec::new(), Vec::new());
        for position in 0..state.layout.columns.len() {
            let taken = given.iter().any(|g| g.position == position);
            values.push(match (taken, changed(position)) {
                (true, _) => Value::Null,
                (false, Some(value)) => value.to_owned(),
                (false, None) => match old.field(position)? {
                    Field::Reference(_) if state.layout.is_indexed(position) => {
                        old.value(position)?.to_owned()
                    }
                    Field::Reference(reference) => {
                        let chain = self.copy_chain(&state.tree, &into.tree, reference)?;
                        let mut bytes = Vec::new();
                        chain.reference().encode(&mut bytes);
                        given.push(Given { position, bytes });
                        copies.push(chain);
                        Value::Null
                    }
                    Field::Value(value) => value.to_owned(),
                },
            });
        }
        let values: Vec<ValueRef<'_>> = values.iter().map(|v| v.as_ref()).collect();
        let left = self.keys_left(table, state, &|i| old.value(i), Some(&|i| Ok(values[i])))?;
        let deleted = self.delete_version(table, state, key, (expect, None), b)?;
        if !matches!(deleted, Some(Applied::Done)) {
            return Ok(false);
        }
        b.given = given;
        self.insert_with(&target, &values, OnDuplicate::Fail, None, b)?;
        drop(copies);
        self.check_left(left)?;
        Ok(true)
    }

    /// Deletes a row; false if it does not exist, or has another key than it was found by.
    pub(crate) fn delete_row(&mut self, table: &Arc<Table>, target: Target<'_>) -> Result<bool> {
        self.enter_to_change(table)?;
        let mut buffers = self.buffers.take();
        let done = self.delete_with(table, target, &mut buffers);
        self.buffers.put(buffers);
        self.settle(Outcome::of(&done));
        if matches!(done, Ok(true)) {
            self.store.rt.metrics.add(Metric::RowsDeleted, 1);
            self.store.note_changes(table, 1);
        }
        done
    }

    fn delete_with(
        &mut self,
        table: &Arc<Table>,
        Target { key, found_by, mut read }: Target<'_>,
        b: &mut Buffers,
    ) -> Result<bool> {
        let mut guard = None;
        loop {
            let state = table.state();
            let expect = match self.read_old(&state, (key, &mut read), &mut guard, b)? {
                Old::Live(stamp, flags) => (stamp, flags),
                Old::Absent => return Ok(false),
                Old::Again => continue,
            };
            let left = self.keys_left_by_delete(table, &state, key, &b.old_row)?;
            match self.delete_version(table, &state, key, (expect, found_by), b)? {
                Some(Applied::Done) => return self.check_left(left).map(|()| true),
                Some(Applied::Again | Applied::Duplicate(..)) => {}
                None => return Ok(false),
            }
        }
    }

    /// Deletes the version of a row that is in the buffers; `None` if it has another key than the
    /// row was found by.
    fn delete_version(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        key: &[u8],
        (expect, found_by): ((Stamp, u8), FoundBy<'_>),
        b: &mut Buffers,
    ) -> Result<Option<Applied>> {
        b.key.clear();
        b.key.extend_from_slice(key);
        b.row.clear();
        b.chains.clear();
        let old_row = std::mem::take(&mut b.old_row);
        let listed = list_edits(&state.layout, Some(&old_row), &[], b);
        b.old_row = old_row;
        listed?;
        b.entries.clear();
        b.unique.clear();
        if !state.layout.indexes.is_empty() {
            let wanted = |i: usize, _: u32| state.layout.is_indexed(i);
            let loaded = overflow::load(&state.tree, &state.layout, key, &b.old_row, &wanted)?;
            let old = state.layout.view(key, &b.old_row)?.with_loaded(&loaded);
            for index in &state.layout.indexes {
                b.part.clear();
                index.encode(&|i| old.value(i), key.len(), &mut b.part)?;
                if found_by.is_some_and(|(id, found)| id == index.id && found != b.part) {
                    return Ok(None);
                }
                b.entries.push(index.id, entry_op::DEL, &b.part, &[], key.len());
            }
        }
        self.apply(table, state, RowKind::Delete, Some(expect), b).map(Some)
    }
}
