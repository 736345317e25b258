//! Rows of a range of a table or an index as users read them; `txn` and `index_ref` begin scans.

use evenkeel_base::{Code, Error, Result};
use evenkeel_tables::{
    ChunkScan, Direction, IndexScan, KeySet, Liveness, LockedScan, Locking, Row, Scan as TableScan,
    Table, TableTxn,
};
use std::sync::Arc;

/// Rows of a range of a table or an index, one after the other.
///
/// A scan belongs to its transaction: once the transaction has ended, the scan answers
/// `TransactionEnded`. In a SERIALIZABLE transaction that may write, the call that makes the scan
/// locks the whole range, and rows are read as they are now. A scan that was asked to lock reads
/// them so too. Other scans read rows at the snapshot.
///
/// A scan is an iterator over rows. [`Scan::next`] with a row reads into a buffer that is used
/// again, and so is the faster way through many rows.
///
/// ```
#[doc = include_str!("people.md")]
/// let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
/// let mut towns = Vec::new();
/// for row in txn.table("people")?.scan(.., Direction::Forward)? {
///     towns.push(row?.get::<String>("town")?);
/// }
/// assert_eq!(towns, ["Oslo", "Bergen", "Oslo"]);
/// # Ok::<(), evenkeel::Error>(())
/// ```
pub struct Scan {
    rows: Rows,
    begun: bool,
    /// The iterator has met the end or an error.
    done: bool,
    liveness: Liveness,
}

pub(crate) enum Rows {
    Table(Box<TableScan>),
    Index(Box<IndexScan>),
    Locked(Box<LockedScan>),
    /// Of a chunked table, locked or not.
    Chunks(Box<ChunkScan>),
}

impl Rows {
    fn next(&mut self, row: &mut Row) -> Result<bool> {
        match self {
            Rows::Table(scan) => scan.next(row),
            Rows::Index(scan) => scan.next(row),
            Rows::Locked(scan) => scan.next(row),
            Rows::Chunks(scan) => scan.next(row),
        }
    }
}

impl Scan {
    /// The rows of a range of a chunked table: of its primary key, or of an index (its position and
    /// whether only keys are wanted); locked if that is said.
    pub(crate) fn of_chunks(
        txn: &mut TableTxn,
        table: &Arc<Table>,
        (index, keys_only): (Option<usize>, bool),
        keys: KeySet<'_>,
        direction: Direction,
        locking: Option<Locking>,
    ) -> Result<Rows> {
        let scan = match locking {
            None => txn.chunk_scan(table, index.map(|at| (at, keys_only)), keys, direction)?,
            Some(locking) => txn.chunk_locked_scan(table, index, keys, direction, locking)?,
        };
        Ok(Rows::Chunks(Box::new(scan)))
    }

    pub(crate) fn new(rows: Rows, liveness: Liveness) -> Self {
        Self { rows, begun: false, done: false, liveness }
    }

    /// Reads the next row into a reused buffer; false at the end.
    ///
    /// # Errors
    /// `TransactionEnded`; of storage; if the scan locks, `RowChanged` and lock errors.
    pub fn next(&mut self, row: &mut Row) -> Result<bool> {
        let found = match std::mem::replace(&mut self.begun, true) {
            false => self.first(row),
            true => self.rows.next(row),
        };
        // Afterwards: another thread may have ended the transaction meanwhile.
        self.liveness.check()?;
        found
    }

    /// The next row, in a buffer of its own; none at the end.
    ///
    /// # Errors
    /// As `next`.
    pub fn next_row(&mut self) -> Result<Option<Row>> {
        let mut row = Row::new();
        Ok(self.next(&mut row)?.then_some(row))
    }

    /// Nearly all reading and waiting of a short scan happens here, so this call is measured.
    fn first(&mut self, row: &mut Row) -> Result<bool> {
        let store = match &self.rows {
            Rows::Table(scan) => scan.store(),
            Rows::Index(scan) => scan.store(),
            Rows::Locked(scan) => scan.store(),
            Rows::Chunks(scan) => scan.store(),
        };
        let rt = store.runtime().clone();
        let operation = rt.operation();
        let found = self.rows.next(row);
        rt.operation_ends(operation);
        found
    }

    /// Reads the columns of a plan of the next row, without a copy of the row: its clustered key
    /// bytes, or none at the end. `row` is a buffer for what is not read so.
    ///
    /// # Errors
    /// As `next`, and of [`Row::value`].
    #[inline]
    #[cfg(feature = "server")]
    pub fn next_by<'s>(
        &'s mut self,
        plan: &mut evenkeel_tables::RowPlan,
        row: &'s mut Row,
        give: impl FnMut(usize, evenkeel_tables::ValueRef<'_>),
    ) -> Result<Option<&'s [u8]>> {
        if !self.begun || matches!(self.rows, Rows::Locked(_) | Rows::Chunks(_)) {
            if !self.next(row)? {
                return Ok(None);
            }
            row.values_by(plan, give)?;
            return Ok(Some(row.key()));
        }
        let found = match &mut self.rows {
            Rows::Table(scan) => scan.next_by(plan, row, give),
            Rows::Index(scan) => scan.next_by(plan, row, give),
            Rows::Locked(_) | Rows::Chunks(_) => Ok(None),
        };
        self.liveness.check()?;
        found
    }

    /// As `next`, but returns a row that another transaction holds once, as it was committed last.
    /// The next call locks that row, unless `unlock` comes before. Only a scan that locks rows by
    /// their clustered keys meets such rows, and only in a table without chunks.
    ///
    /// # Errors
    /// As `next`.
    #[cfg(feature = "server")]
    pub fn next_or_peek(&mut self, row: &mut Row) -> Result<evenkeel_tables::Given> {
        use evenkeel_tables::Given;
        if let Rows::Locked(scan) = &mut self.rows {
            let given = scan.next_or_peek(row);
            self.liveness.check()?;
            return given;
        }
        Ok(if self.next(row)? { Given::Locked } else { Given::End })
    }

    /// Releases the lock of the last row, if this scan took it: the row is not wanted, or the
    /// transaction has changed it and holds it by the change as well.
    pub fn unlock(&mut self) {
        match &mut self.rows {
            Rows::Locked(scan) => scan.unlock(),
            Rows::Chunks(scan) => scan.unlock(),
            Rows::Table(_) | Rows::Index(_) => {}
        }
    }

    /// Counts the rows that it would still return, without reading them.
    ///
    /// # Errors
    /// As `next`; `StatementCancelled`.
    pub fn count(self) -> Result<u64> {
        let found = match self.rows {
            Rows::Table(scan) => (*scan).count(),
            Rows::Index(scan) => (*scan).count(),
            Rows::Locked(scan) => count_locked(*scan),
            Rows::Chunks(scan) => (*scan).count(),
        };
        self.liveness.check()?;
        found
    }

    /// Continues behind a row of a scan in the order of the clustered key, given by the row's
    /// clustered key bytes ([`Row::key`]), also after the scan's end.
    ///
    /// # Errors
    /// `TransactionEnded`; of storage; `DefinitionInvalid` for a scan in the order of an index.
    pub fn resume_after(&mut self, key: &[u8]) -> Result<()> {
        let found = match &mut self.rows {
            Rows::Table(scan) => scan.resume_after(key),
            Rows::Locked(scan) if !scan.is_by_index() => scan.resume_after(&[], key),
            Rows::Chunks(scan) if !scan.is_by_index() => scan.resume_after(key),
            _ => Err(Error::new(Code::DefinitionInvalid)
                .with("why", "a clustered key is no place in an index")),
        };
        self.liveness.check()?;
        self.done = false;
        found
    }

    /// Reads the whole row of an entry that an index-only scan has returned, as the scan sees it;
    /// false if the row of a READ UNCOMMITTED scan has moved on.
    ///
    /// # Errors
    /// `TransactionEnded`; of storage.
    pub fn fetch(&self, entry: &Row, row: &mut Row) -> Result<bool> {
        let found = match &self.rows {
            Rows::Index(scan) => scan.fetch_row(entry, row),
            Rows::Chunks(scan) => scan.fetch_row(entry, row),
            Rows::Table(_) | Rows::Locked(_) => {
                row.clone_from(entry);
                Ok(true)
            }
        };
        self.liveness.check()?;
        found
    }

    /// As `fetch`, of the entry that [`Scan::next_by`] gave last; `given` is the buffer that it
    /// had.
    ///
    /// # Errors
    /// As `fetch`.
    #[cfg(feature = "server")]
    pub fn fetch_last(&self, given: &Row, row: &mut Row) -> Result<bool> {
        match &self.rows {
            Rows::Index(scan) => {
                let found = scan.fetch_last(given, row);
                self.liveness.check()?;
                found
            }
            Rows::Table(_) | Rows::Locked(_) | Rows::Chunks(_) => self.fetch(given, row),
        }
    }

    /// Calls `f` with each remaining row; `f` returns false to stop.
    pub(crate) fn each(mut self, f: &mut dyn FnMut(&Row) -> Result<bool>) -> Result<()> {
        let mut row = Row::new();
        while self.next(&mut row)? {
            if !f(&row)? {
                break;
            }
        }
        Ok(())
    }
}

/// The rows, each in a buffer of its own. Behind an error there are no more.
impl Iterator for Scan {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        if self.done {
            return None;
        }
        let found = self.next_row().transpose();
        self.done = !matches!(found, Some(Ok(_)));
        found
    }
}

fn count_locked(mut scan: LockedScan) -> Result<u64> {
    let (mut row, mut count) = (Row::new(), 0);
    while scan.next(&mut row)? {
        count += 1;
    }
    Ok(count)
}
