//! Scans of a table in primary key order and of an index in its order, in both directions.
//!
//! Between calls a plain scan holds a snapshot and a key, but no latch and no frame. It keeps a
//! view of the runs only until a flush, compaction or drop takes the view away (D6). Scans that
//! lock are in `locked_scan`.

mod count;

use crate::ahead::EntriesAhead;
use crate::locker::not_available;
use crate::range::{ByteRange, KeySet};
use crate::read::{LockWait, ReadView};
use crate::row::Row;
use crate::row_plan::RowPlan;
use crate::store::Store;
use crate::table::{Table, TableState, Use};
use crate::transaction::TableTxn;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{CommitTable, IndexId, Result, TxnId};
use evenkeel_format::ValueRef;
use evenkeel_format::node::compare;
use evenkeel_format::record::{cell_flags, entry_op};
use evenkeel_runs::{IndexCursor, KeyRange};
use evenkeel_tree::{Cursor, Direction};
use evenkeel_txn::{Mode, TxnRef};
use std::ops::Bound;
use std::sync::Arc;

/// The most rows that an index scan reads ahead. Unless the scan is index-only, these rows are
/// fetched in the order of their primary key.
pub(crate) const AHEAD_MAX: usize = 64;

/// The most entries that an index-only scan reads ahead; it fetches no rows.
const KEYS_AHEAD_MAX: usize = 256;

/// The number of rows read ahead at first.
const AHEAD_FIRST: usize = 4;

/// Rows skipped as invisible between two checks for cancellation.
const UNSEEN_ROWS: u32 = 1024;

/// A scan at a snapshot in primary key order.
pub struct Scan {
    store: Arc<Store>,
    state: Arc<TableState>,
    view: ReadView,
    cursor: Cursor,
    range: ByteRange,
    direction: Direction,
    started: bool,
    /// The last row of the cursor could not be read: the next call begins at it.
    again: bool,
    done: bool,
    /// The range holds one key, its lower end: the row is read in place, and no leaf is copied.
    point: bool,
    /// The transaction of the statement; a cancellation of the transaction ends the scan.
    txn: TxnRef,
    /// A transaction whose rows are all visible to the view.
    seen: TxnId,
    /// Rows returned but not counted yet.
    rows: u64,
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.count_rows();
    }
}

impl Scan {
    /// A scan of a range of the table's tree.
    pub(crate) fn over(
        (store, txn): (Arc<Store>, TxnRef),
        state: Arc<TableState>,
        view: ReadView,
        range: ByteRange,
        direction: Direction,
    ) -> Scan {
        let mut cursor = state.tree.cursor();
        if !view.dirty {
            cursor.set_snapshot(Some(view.snapshot.at));
        }
        cursor.set_use_once(range.upper.is_none() && range.lower.is_empty());
        Scan {
            done: range.is_empty(),
            store,
            state,
            view,
            cursor,
            range,
            direction,
            started: false,
            again: false,
            point: false,
            txn,
            seen: TxnId::ZERO,
            rows: 0,
        }
    }

    /// Not called for each row, because all threads share the counter.
    fn count_rows(&mut self) {
        self.store.rt.metrics.add(Metric::RowsRead, std::mem::take(&mut self.rows));
    }

    /// Continues behind a row, given by its clustered key bytes, wherever the scan stands, also
    /// after its end. A key in front of the range means its beginning.
    ///
    /// # Errors
    /// Of storage; then the scan has ended, unless this is called again.
    pub fn resume_after(&mut self, key: &[u8]) -> Result<()> {
        let in_front = match (self.direction, &self.range.upper) {
            (Direction::Forward, _) => key < &self.range.lower[..],
            (Direction::Backward, _) if self.point => key > &self.range.lower[..],
            (Direction::Backward, upper) => upper.as_ref().is_some_and(|upper| key >= &upper[..]),
        };
        (self.started, self.again) = (false, false);
        self.done = self.range.is_empty() || self.point && !in_front;
        if in_front || self.done {
            return Ok(());
        }
        // If the seek fails the scan must not begin anew somewhere else.
        self.done = true;
        seek(&mut self.cursor, &self.range, self.direction)?;
        self.cursor.resume_after(key)?;
        (self.started, self.done) = (true, false);
        Ok(())
    }

    /// The store it reads.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Reads the next row; false at the end.
    ///
    /// # Errors
    /// Of storage. After a failed read the next call tries again.
    pub fn next(&mut self, row: &mut Row) -> Result<bool> {
        row.clear();
        if self.point {
            return self.read_point(row);
        }
        let found = self.find(|place, key, bytes| {
            row.set_table(&place.store.layout_for(place.state, bytes), key, bytes);
            place.store.load_in_view(place.state, place.view, row)
        });
        if found.is_err() {
            row.clear();
        }
        found
    }

    /// Reads the columns of a plan of the next row, without a copy of the row: its clustered key
    /// bytes, or none at the end. `row` is a buffer for what is not read so.
    ///
    /// # Errors
    /// As `next`.
    pub fn next_by<'s>(
        &'s mut self,
        plan: &mut RowPlan,
        row: &'s mut Row,
        mut give: impl FnMut(usize, ValueRef<'_>),
    ) -> Result<Option<&'s [u8]>> {
        if self.point {
            if !self.next(row)? {
                return Ok(None);
            }
            row.values_by(plan, give)?;
            return Ok(Some(row.key()));
        }
        let found = self.find(|place, key, bytes| {
            let layout = place.store.layout_for(place.state, bytes);
            if plan.give(&layout, (key, bytes), &mut give)? {
                return Ok(true);
            }
            row.set_table(&layout, key, bytes);
            let is_there = place.store.load_in_view(place.state, place.view, row)?;
            if is_there {
                row.values_at(plan.columns().iter().copied(), counted(&mut give))?;
            }
            Ok(is_there)
        })?;
        Ok(found.then(|| self.cursor.key()))
    }

    fn read_point(&mut self, row: &mut Row) -> Result<bool> {
        if self.done {
            return Ok(false);
        }
        let found = self.store.read_row(&self.state, &self.range.lower, &self.view, row)?;
        self.done = true;
        Ok(found)
    }

    /// Goes to where the next row is looked for.
    fn set_out(&mut self) -> Result<()> {
        if !self.started {
            seek(&mut self.cursor, &self.range, self.direction)?;
            self.started = true;
        } else if self.again {
            let key = self.cursor.key().to_vec();
            self.cursor.seek(Bound::Included(&key), self.direction)?;
            self.again = false;
        }
        Ok(())
    }

    /// Shows `take` the key and the bytes of the next row, until it takes one; false at the end.
    #[inline]
    fn find(
        &mut self,
        mut take: impl FnMut(Place<'_>, &[u8], &[u8]) -> Result<bool>,
    ) -> Result<bool> {
        if self.done {
            return Ok(false);
        }
        if !self.started || self.again {
            self.set_out()?;
        }
        let Scan { store, state, view, cursor, seen, txn, again, rows, .. } = self;
        let commits: &dyn CommitTable = &*store.txns;
        let mut passed = 0u32;
        while let Some((key, cell, is_behind)) = cursor.next_within()? {
            if is_behind {
                break;
            }
            passed += 1;
            if passed.is_multiple_of(UNSEEN_ROWS) {
                txn.check_cancel()?;
            }
            // A failure from here to the end concerns this row.
            *again = true;
            let place = Place { store, state, view };
            let is_taken = if view.sees_next_leaf(&cell, commits, seen) {
                cell.flags & cell_flags::DELETED == 0 && take(place, key, cell.row)?
            } else {
                match view.older(store, state.tree.id(), key, cell.stamp)? {
                    Some(bytes) => take(place, key, &bytes)?,
                    None => false,
                }
            };
            if !is_taken {
                continue;
            }
            *again = false;
            *rows += 1;
            if cursor.is_between_leaves() {
                store.rt.metrics.add(Metric::RowsRead, std::mem::take(rows));
            }
            return Ok(true);
        }
        self.done = true;
        Ok(false)
    }
}

/// What a row of a scan is read by.
#[derive(Clone, Copy)]
struct Place<'s> {
    store: &'s Store,
    state: &'s Arc<TableState>,
    view: &'s ReadView,
}

/// Gives values with their number.
pub(crate) fn counted<'v>(mut give: impl FnMut(usize, ValueRef<'v>)) -> impl FnMut(ValueRef<'v>) {
    let mut at = 0;
    move |value| {
        give(at, value);
        at += 1;
    }
}

pub(crate) fn seek(cursor: &mut Cursor, range: &ByteRange, direction: Direction) -> Result<()> {
    cursor.set_end(match direction {
        Direction::Forward => range.upper.as_deref(),
        Direction::Backward => Some(&range.lower[..]).filter(|lower| !lower.is_empty()),
    });
    match (direction, &range.upper) {
        (Direction::Forward, _) if range.lower.is_empty() => {
            cursor.seek(Bound::Unbounded, direction)
        }
        (Direction::Forward, _) => cursor.seek(Bound::Included(&range.lower), direction),
        (Direction::Backward, None) => cursor.seek(Bound::Unbounded, direction),
        (Direction::Backward, Some(upper)) => cursor.seek(Bound::Excluded(upper), direction),
    }
}

#[inline]
pub(crate) fn is_past(range: &ByteRange, direction: Direction, key: &[u8]) -> bool {
    match direction {
        Direction::Forward => range.upper.as_ref().is_some_and(|u| compare(key, u).is_ge()),
        Direction::Backward => compare(key, &range.lower).is_lt(),
    }
}

/// A scan of an index at a snapshot.
///
/// It reads some entries ahead, and makes its cursor idle before it reads their rows or returns the
/// first of them. So memtables and files never wait for the client (D6).
pub struct IndexScan {
    store: Arc<Store>,
    state: Arc<TableState>,
    /// Position of the index in the layout.
    index: usize,
    view: ReadView,
    cursor: IndexCursor,
    /// The caller wants only columns of the entry.
    keys_only: bool,
    /// Entries read ahead, in the order of the index; in an index-only scan those from `at` on were
    /// not returned.
    entries: EntriesAhead,
    at: usize,
    /// Rows of entries: those from `row_at` on, below `filled`, were not returned.
    rows: Vec<Row>,
    row_at: usize,
    filled: usize,
    /// Entries whose rows are still to be fetched, in the order of their primary keys.
    wanted: Vec<usize>,
    /// The number of entries to read ahead next.
    want: usize,
    end: bool,
    /// The transaction of the statement.
    txn: TxnRef,
    /// Rows returned but not counted yet.
    given: u64,
}

impl Drop for IndexScan {
    fn drop(&mut self) {
        self.store.rt.metrics.add(Metric::RowsRead, self.given);
    }
}

impl IndexScan {
    /// A scan of a range of an index, given by its position, or of its keys only.
    pub(crate) fn over(
        (store, txn): (Arc<Store>, TxnRef),
        state: Arc<TableState>,
        view: ReadView,
        (index, keys_only): (usize, bool),
        range: ByteRange,
        direction: Direction,
    ) -> Result<IndexScan> {
        let (end, id) = (range.is_empty(), state.layout.index_at(index)?.id);
        let direction = index_direction(direction);
        let mut cursor = store.runs.cursor(id, key_range(range), direction, view.snapshot)?;
        cursor.set_sees(view.entries);
        Ok(IndexScan {
            store,
            state,
            index,
            // The key has to be checked again on the row.
            keys_only: keys_only && !view.rechecks,
            view,
            cursor,
            entries: EntriesAhead::default(),
            at: 0,
            rows: Vec::new(),
            row_at: 0,
            filled: 0,
            wanted: Vec::new(),
            want: AHEAD_FIRST,
            end,
            txn,
            given: 0,
        })
    }

    /// As `next`; also gives the bytes of the entry, its key and the clustered key.
    pub(crate) fn next_keyed(&mut self, row: &mut Row, entry: &mut Vec<u8>) -> Result<bool> {
        entry.clear();
        if self.keys_only {
            let found = self.find_entry();
            if self.store.read_index(found)? {
                entry.extend_from_slice(self.entries.get(self.at).key);
            }
        }
        if !self.next(row)? {
            return Ok(false);
        }
        if !self.keys_only {
            put_key(&self.state, self.index, row, entry)?;
        }
        entry.extend_from_slice(row.key());
        Ok(true)
    }

    /// The store it reads.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Reads the next row; false at the end. An index-only scan gives the columns of the index and
    /// of the primary key.
    ///
    /// # Errors
    /// Of storage. After a failed read the next call tries again.
    pub fn next(&mut self, row: &mut Row) -> Result<bool> {
        row.clear();
        let found = if self.keys_only { self.next_entry(row) } else { self.next_row(row) };
        if found.is_err() {
            row.clear();
        }
        let found = self.store.read_index(found)?;
        self.given += u64::from(found);
        Ok(found)
    }

    /// As `Scan::next_by`. An index-only scan gives columns of the entry.
    ///
    /// # Errors
    /// As `next`.
    pub fn next_by<'s>(
        &'s mut self,
        plan: &mut RowPlan,
        row: &'s mut Row,
        mut give: impl FnMut(usize, ValueRef<'_>),
    ) -> Result<Option<&'s [u8]>> {
        if self.keys_only {
            let found = self.find_entry();
            if !self.store.read_index(found)? {
                return Ok(None);
            }
            let at = self.at;
            let entry = self.entries.get(at);
            if plan.give_entry(&self.state.layout, self.index, &entry, &mut give)? {
                if !row.is_empty() {
                    row.clear();
                }
                self.at += 1;
                self.given += 1;
                return Ok(Some(self.entries.pk(at)));
            }
        }
        if !self.next(row)? {
            return Ok(None);
        }
        row.values_by(plan, give)?;
        Ok(Some(row.key()))
    }

    /// Reads the row of the entry that `next_by` gave last, as `fetch_row`; `given` is the buffer
    /// that `next_by` had.
    ///
    /// # Errors
    /// Of storage.
    pub fn fetch_last(&self, given: &Row, row: &mut Row) -> Result<bool> {
        if !given.is_empty() {
            return self.fetch_row(given, row);
        }
        row.clear();
        let Some(last) = self.at.checked_sub(1) else { return Ok(false) };
        self.fetch_of(self.entries.pk(last), row)
    }

    /// Reads the row of an entry that the scan has returned, as the scan sees it; false if the row
    /// of a READ UNCOMMITTED scan has moved on.
    ///
    /// # Errors
    /// Of storage.
    pub fn fetch_row(&self, entry: &Row, row: &mut Row) -> Result<bool> {
        row.clear();
        self.fetch_of(entry.key(), row)
    }

    fn fetch_of(&self, key: &[u8], row: &mut Row) -> Result<bool> {
        Ok(self.store.read(&self.state, key, &self.view, row)?
            && self.store.load_in_view(&self.state, &self.view, row)?)
    }

    /// Sees to it that the next entry is at `at`; false at the end.
    #[inline]
    fn find_entry(&mut self) -> Result<bool> {
        if self.at < self.entries.len() {
            return Ok(true);
        }
        if self.end {
            return Ok(false);
        }
        self.read_entries()?;
        Ok(self.entries.len() > 0)
    }

    /// The next entry as a row.
    fn next_entry(&mut self, row: &mut Row) -> Result<bool> {
        if !self.find_entry()? {
            return Ok(false);
        }
        row.set_index(&self.state.layout, self.index, &self.entries.get(self.at))?;
        self.at += 1;
        Ok(true)
    }

    /// The next row of an entry.
    fn next_row(&mut self, row: &mut Row) -> Result<bool> {
        while self.row_at == self.filled {
            if self.wanted.is_empty() {
                if self.end {
                    return Ok(false);
                }
                self.collect()?;
            }
            self.fetch()?;
        }
        std::mem::swap(row, &mut self.rows[self.row_at]);
        self.row_at += 1;
        Ok(true)
    }

    /// Reads entries ahead, few at first for readers that want few.
    fn read_entries(&mut self) -> Result<()> {
        let want = self.want;
        self.want = (2 * want).min(if self.keys_only { KEYS_AHEAD_MAX } else { AHEAD_MAX });
        let entries = &mut self.entries;
        entries.clear();
        self.at = 0;
        let read = self.cursor.next_many(|entry| {
            entries.push(&entry);
            entries.len() < want
        });
        match read {
            Ok(more) => self.end = !more,
            // The error comes again, behind the entries before it.
            Err(_) if entries.len() > 0 => {}
            Err(error) => return Err(error),
        }
        self.cursor.park();
        Ok(())
    }

    /// Reads the entries of the next rows, and sorts them by their primary keys.
    fn collect(&mut self) -> Result<()> {
        self.read_entries()?;
        let entries = &self.entries;
        self.wanted.extend(0..entries.len());
        self.wanted.sort_unstable_by_key(|at| (entries.get(*at).pk, *at));
        Ok(())
    }

    /// Fetches rows in the order of their primary keys and keeps them in the order of the index.
    fn fetch(&mut self) -> Result<()> {
        (self.row_at, self.filled) = (0, 0);
        let (rows, entries) = (&mut self.rows, &self.entries);
        if rows.len() < entries.len() {
            rows.resize_with(entries.len(), Row::new);
        }
        let mut found = [false; AHEAD_MAX];
        for at in &self.wanted {
            let (row, entry) = (&mut rows[*at], entries.get(*at));
            // The row may have changed since its entry.
            found[*at] = self.store.read(&self.state, entry.pk, &self.view, row)?
                && self.store.load_in_view(&self.state, &self.view, row)?
                && (!self.view.rechecks || row_has_key(&self.state, self.index, row, entry.key)?);
        }
        for (at, _) in found.iter().enumerate().filter(|(_, found)| **found) {
            rows.swap(self.filled, at);
            self.filled += 1;
        }
        self.wanted.clear();
        Ok(())
    }
}

pub(crate) fn row_has_key(state: &TableState, index: usize, row: &Row, key: &[u8]) -> Result<bool> {
    let mut now = Vec::with_capacity(key.len());
    Ok(put_key(state, index, row, &mut now)? && now == key)
}

/// Appends a row's key of an index; false if the index is gone.
fn put_key(state: &TableState, index: usize, row: &Row, key: &mut Vec<u8>) -> Result<bool> {
    // The row may be in a later format, where positions differ.
    let layout = row.layout().unwrap_or(&state.layout);
    let id = state.layout.indexes[index].id;
    let Some(index) = layout.indexes.iter().find(|i| i.id == id) else { return Ok(false) };
    index.encode(&|i| row.value(i), row.key().len(), key)?;
    Ok(true)
}

pub(crate) fn index_direction(direction: Direction) -> evenkeel_runs::Direction {
    match direction {
        Direction::Forward => evenkeel_runs::Direction::Forward,
        Direction::Backward => evenkeel_runs::Direction::Reverse,
    }
}

pub(crate) fn key_range(range: ByteRange) -> KeyRange {
    KeyRange {
        lower: match range.lower.is_empty() {
            true => Bound::Unbounded,
            false => Bound::Included(range.lower),
        },
        upper: range.upper.map_or(Bound::Unbounded, Bound::Excluded),
    }
}

/// What a locking scan locks and how.
#[derive(Clone, Copy, Debug)]
pub struct Locking {
    /// Shared or exclusive.
    pub mode: Mode,
    /// What to do about rows that other transactions hold.
    pub wait: LockWait,
}

impl Locking {
    /// Against changes; waits for other transactions.
    pub const SHARED: Locking = Locking { mode: Mode::Shared, wait: LockWait::Wait };
    /// For writing; waits for other transactions.
    pub const EXCLUSIVE: Locking = Locking { mode: Mode::Exclusive, wait: LockWait::Wait };

    /// Skips rows that other transactions hold.
    #[must_use]
    pub const fn skip_locked(self) -> Locking {
        Locking { wait: LockWait::Skip, ..self }
    }
}

impl TableTxn {
    /// A scan of the rows whose primary key lies in `range`. Reads that lock, as in SERIALIZABLE,
    /// use `locked_scan`.
    ///
    /// # Errors
    /// `TableTooNew`, faults of the range.
    pub fn scan<'k>(
        &mut self,
        table: &Arc<Table>,
        keys: impl Into<KeySet<'k>>,
        direction: Direction,
    ) -> Result<Scan> {
        let keys = keys.into();
        self.enter(table, Use::Read)?;
        let view = self.view_of(table)?;
        let state = table.state();
        let key = state.point(keys)?;
        let point = key.is_some();
        let range = match key {
            // Only the beginning counts.
            Some(lower) => ByteRange { lower, upper: None },
            None => state.layout.byte_range(&state.layout.key, keys)?,
        };
        let of = (self.store.clone(), self.inner.clone());
        let mut scan = Scan::over(of, state, view, range, direction);
        scan.point = point;
        Ok(scan)
    }

    /// A scan of the rows whose clustered key lies in `range`.
    ///
    /// # Errors
    /// `TableTooNew`.
    pub(crate) fn scan_bytes(
        &mut self,
        table: &Arc<Table>,
        range: ByteRange,
        direction: Direction,
    ) -> Result<Scan> {
        self.enter(table, Use::Read)?;
        let view = self.view_of(table)?;
        let of = (self.store.clone(), self.inner.clone());
        Ok(Scan::over(of, table.state(), view, range, direction))
    }

    /// A scan of the index at position `index` of the layout. `keys_only`: the caller wants only
    /// columns of the index and the primary key, so the table is not visited.
    ///
    /// # Errors
    /// `TableTooNew`, `IndexTooNew`, `IndexMissing` while it is being built, faults of the range.
    pub fn index_scan<'k>(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        keys: impl Into<KeySet<'k>>,
        direction: Direction,
        keys_only: bool,
    ) -> Result<IndexScan> {
        self.enter(table, Use::Read)?;
        let view = self.view_of(table)?;
        let state = table.state();
        let layout = &state.layout;
        let index_layout = layout.index_at(index)?;
        index_layout.check_readable(view.snapshot.at)?;
        let range = layout.index_range(index_layout, keys)?;
        let of = (self.store.clone(), self.inner.clone());
        IndexScan::over(of, state, view, (index, keys_only), range, direction)
    }

    /// Primary keys of the rows that have these key bytes, by their newest entries.
    pub(crate) fn current_pks(
        &mut self,
        index: IndexId,
        key: &[u8],
        wait: LockWait,
    ) -> Result<Vec<Vec<u8>>> {
        loop {
            let store = self.store.clone();
            let me = self.inner.id();
            let (mut live, mut undecided) = (Vec::new(), None);
            let read = store.runs.current(index, key, &mut |pk, op, stamp, state| {
                let other = stamp.txn.0 != 0 && stamp.txn != me;
                if other && state.is_undecided() {
                    undecided = Some(stamp.txn);
                    return wait == LockWait::Skip;
                }
                if op & entry_op::INS != 0 {
                    live.push(pk.to_vec());
                }
                true
            });
            store.read_index(read)?;
            match (undecided, wait) {
                (Some(other), LockWait::Wait) => self.wait_txn(other)?,
                (Some(other), LockWait::NoWait) => return Err(not_available(other)),
                _ => return Ok(live),
            }
        }
    }
}
