//! `IndexRef`: an index of a table, as a transaction sees it.

use crate::api::scan::{IndexScan, Rows, SHARED};
use evenkeel_base::Result;
use evenkeel_tables::{
    Direction, LockWait, LockedScan, Locking, Mode, Range, Row, Table, TableTxn,
};
use std::sync::Arc;

/// An index in a transaction.
pub struct IndexRef<'t> {
    txn: &'t mut TableTxn,
    table: Arc<Table>,
    position: usize,
    keys_only: bool,
    reads_lock: bool,
}

impl<'t> IndexRef<'t> {
    pub(crate) fn new(
        txn: &'t mut TableTxn,
        table: Arc<Table>,
        position: usize,
        reads_lock: bool,
    ) -> IndexRef<'t> {
        IndexRef { txn, table, position, keys_only: false, reads_lock }
    }

    /// Reads only columns of the index and of the primary key: the table is not visited.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    /// let mut by_town = txn.table("people")?.index("by_town")?.keys_only();
    /// let mut scan = by_town.scan(Range::prefix(&[Text("Oslo")]), Direction::Forward)?;
    /// let (mut row, mut ids) = (Row::new(), Vec::new());
    /// while scan.next(&mut row)? {
    ///     ids.push(row.get("id")?.to_owned());
    /// }
    /// assert_eq!(ids, [Value::Int(1), Value::Int(3)]);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    #[must_use]
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// The rows of a range, in the order of the index.
    ///
    /// # Errors
    /// `IndexTooNew`, `TableTooNew` for a snapshot older than the index or table; faults of the
    /// range.
    pub fn scan(&mut self, range: Range<'_>, direction: Direction) -> Result<IndexScan> {
        let (table, at) = (&self.table, self.position);
        if !self.reads_lock {
            let scan = self.txn.index_scan(table, at, range, direction, self.keys_only)?;
            return Ok(IndexScan::new(Rows::Snapshot(scan), self.txn.liveness()));
        }
        let scan = self.txn.locked_index_scan(table, at, range, direction, SHARED)?;
        Ok(IndexScan::new(Rows::Locked(Box::new(scan)), self.txn.liveness()))
    }

    /// As [`TableRef::locked_scan`], in the order of the index.
    ///
    /// # Errors
    /// Lock errors, faults of the range.
    pub fn locked_scan(
        &mut self,
        range: Range<'_>,
        direction: Direction,
        locking: Locking,
    ) -> Result<LockedScan> {
        self.txn.locked_index_scan(&self.table, self.position, range, direction, locking)
    }

    /// Locks a range of keys exclusively, at every isolation level: no other transaction writes a
    /// row there until this one ends.
    ///
    /// # Errors
    /// As `locked_scan`.
    pub fn lock_range(&mut self, range: Range<'_>) -> Result<()> {
        self.txn.lock_range(&self.table, Some(self.position), range)
    }

    /// About how many rows a range holds: counted if they are few, else estimated. The estimate is
    /// within a factor of two unless many rows of the range were deleted or got other keys
    /// recently; their former entries may be counted, or hide as many others, until the index is
    /// compacted. Never 0 unless certain.
    ///
    /// # Errors
    /// As `scan`.
    pub fn count_estimate(&mut self, range: Range<'_>) -> Result<u64> {
        self.txn.index_estimate(&self.table, self.position, range)
    }

    /// The first row of a range.
    ///
    /// # Errors
    /// As `scan`.
    pub fn first(&mut self, range: Range<'_>) -> Result<Option<Row>> {
        let mut row = Row::new();
        Ok(self.scan(range, Direction::Forward)?.next(&mut row)?.then_some(row))
    }

    /// The last row of a range.
    ///
    /// # Errors
    /// As `scan`.
    pub fn last(&mut self, range: Range<'_>) -> Result<Option<Row>> {
        let mut row = Row::new();
        Ok(self.scan(range, Direction::Backward)?.next(&mut row)?.then_some(row))
    }

    /// Locks and reads the newest version of each row of a range; `f` returns false to stop.
    ///
    /// # Errors
    /// `RowChanged`, lock errors, what `f` returns.
    pub fn scan_for_update(
        &mut self,
        range: Range<'_>,
        direction: Direction,
        wait: LockWait,
        f: &mut dyn FnMut(&Row) -> Result<bool>,
    ) -> Result<()> {
        let locking = Locking { mode: Mode::Exclusive, wait };
        self.locked_scan(range, direction, locking)?.each(f)
    }
}
