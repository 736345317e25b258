//! `IndexRef`: an index of a table, as a transaction sees it.

use crate::api::scan::{Rows, Scan};
use crate::api::txn::Txn;
use evenkeel_base::Result;
use evenkeel_tables::{
    Direction, KeySet, LockWait, Locking, Mode, Row, ScanRange, Table, TableTxn,
};
use std::sync::Arc;

/// An index in a transaction.
#[derive(Clone)]
pub struct IndexRef<'t> {
    txn: &'t Txn,
    table: Arc<Table>,
    position: usize,
    keys_only: bool,
}

impl<'t> IndexRef<'t> {
    pub(crate) fn new(txn: &'t Txn, table: Arc<Table>, position: usize) -> IndexRef<'t> {
        IndexRef { txn, table, position, keys_only: false }
    }

    /// Reads only columns of the index and of the primary key: the table is not visited.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    /// let by_town = txn.table("people")?.index("by_town")?.keys_only();
    /// let mut scan = by_town.scan(Range::prefix(&[Text("Oslo")]), Direction::Forward)?;
    /// let (mut row, mut ids) = (Row::new(), Vec::new());
    /// while scan.next(&mut row)? {
    ///     ids.push(row.value("id")?.to_owned());
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
    pub fn scan(&self, range: impl ScanRange, direction: Direction) -> Result<Scan> {
        let (table, at) = (&self.table, self.position);
        let begin = |txn: &mut TableTxn, keys: KeySet<'_>| {
            let rows = match txn.reads_lock() {
                locks if table.is_chunked() => {
                    let locking = locks.then_some(Locking::SHARED);
                    let by = (Some(at), self.keys_only);
                    Scan::of_chunks(txn, table, by, keys, direction, locking)?
                }
                true => {
                    let scan =
                        txn.locked_index_scan(table, at, keys, direction, Locking::SHARED)?;
                    Rows::Locked(Box::new(scan))
                }
                false => {
                    let scan = txn.index_scan(table, at, keys, direction, self.keys_only)?;
                    Rows::Index(Box::new(scan))
                }
            };
            Ok(Scan::new(rows, txn.liveness()))
        };
        range.give(|keys| self.txn.call(|txn| begin(txn, keys)))
    }

    /// As [`TableRef::locked_scan`](crate::TableRef::locked_scan), in the order of the index.
    ///
    /// # Errors
    /// Lock errors, faults of the range.
    pub fn locked_scan(
        &self,
        range: impl ScanRange,
        direction: Direction,
        locking: Locking,
    ) -> Result<Scan> {
        let (table, at) = (&self.table, self.position);
        let begin = |txn: &mut TableTxn, keys: KeySet<'_>| {
            let rows = match table.is_chunked() {
                true => {
                    let by = (Some(at), false);
                    Scan::of_chunks(txn, table, by, keys, direction, Some(locking))?
                }
                false => {
                    let scan = txn.locked_index_scan(table, at, keys, direction, locking)?;
                    Rows::Locked(Box::new(scan))
                }
            };
            Ok(Scan::new(rows, txn.liveness()))
        };
        range.give(|keys| self.txn.call(|txn| begin(txn, keys)))
    }

    /// Locks a range of keys exclusively, at every isolation level: no other transaction writes a
    /// row there until this one ends.
    ///
    /// # Errors
    /// As `locked_scan`.
    pub fn lock_range(&self, range: impl ScanRange) -> Result<()> {
        let (table, at) = (&self.table, Some(self.position));
        range.give(|keys| self.txn.call(|txn| txn.lock_range(table, at, keys)))
    }

    /// About how many rows a range holds: counted if they are few, else estimated. The estimate is
    /// within a factor of two unless many rows of the range were deleted or got other keys
    /// recently; their former entries may be counted, or hide as many others, until the index is
    /// compacted. Never 0 unless certain.
    ///
    /// # Errors
    /// As `scan`.
    pub fn count_estimate(&self, range: impl ScanRange) -> Result<u64> {
        let (table, at) = (&self.table, self.position);
        range.give(|keys| self.txn.call(|txn| txn.index_estimate(table, at, keys)))
    }

    /// The first row of a range.
    ///
    /// # Errors
    /// As `scan`.
    pub fn first(&self, range: impl ScanRange) -> Result<Option<Row>> {
        let mut row = Row::new();
        Ok(self.scan(range, Direction::Forward)?.next(&mut row)?.then_some(row))
    }

    /// The last row of a range.
    ///
    /// # Errors
    /// As `scan`.
    pub fn last(&self, range: impl ScanRange) -> Result<Option<Row>> {
        let mut row = Row::new();
        Ok(self.scan(range, Direction::Backward)?.next(&mut row)?.then_some(row))
    }

    /// Locks and reads the newest version of each row of a range; `f` returns false to stop.
    ///
    /// # Errors
    /// `RowChanged`, lock errors, what `f` returns.
    pub fn scan_for_update(
        &self,
        range: impl ScanRange,
        direction: Direction,
        wait: LockWait,
        f: &mut dyn FnMut(&Row) -> Result<bool>,
    ) -> Result<()> {
        let locking = Locking { mode: Mode::Exclusive, wait };
        self.locked_scan(range, direction, locking)?.each(f)
    }
}
