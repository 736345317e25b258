//! Rows of a range of a table or an index as users read them; `txn` and `index_ref` begin scans.

use evenkeel_base::Result;
use evenkeel_format::ValueRef;
use evenkeel_tables::{Liveness, LockWait, LockedScan, Locking, Mode, Row, RowPlan};

/// The lock that a read of a SERIALIZABLE transaction takes if the transaction may write.
pub(crate) const SHARED: Locking = Locking { mode: Mode::Shared, wait: LockWait::Wait };

/// Rows of a range, one after the other.
///
/// In a SERIALIZABLE transaction that may write, the call that makes the scan locks the whole
/// range, and rows are read as they are now. Otherwise rows are read at the snapshot.
pub struct Scan {
    rows: Rows<evenkeel_tables::Scan>,
    begun: bool,
    liveness: Liveness,
}

/// Rows of a range of an index; see [`Scan`].
pub struct IndexScan {
    rows: Rows<evenkeel_tables::IndexScan>,
    begun: bool,
    liveness: Liveness,
}

pub(crate) enum Rows<S> {
    Snapshot(S),
    Locked(Box<LockedScan>),
}

impl<S> Rows<S> {
    fn next(&mut self, row: &mut Row, next: fn(&mut S, &mut Row) -> Result<bool>) -> Result<bool> {
        match self {
            Rows::Snapshot(scan) => next(scan, row),
            Rows::Locked(rows) => rows.next(row),
        }
    }
}

impl Scan {
    pub(crate) fn new(rows: Rows<evenkeel_tables::Scan>, liveness: Liveness) -> Self {
        Self { rows, begun: false, liveness }
    }

    /// Reads the next row into a reused buffer; false at the end.
    ///
    /// # Errors
    /// `TransactionEnded`; of storage.
    pub fn next(&mut self, row: &mut Row) -> Result<bool> {
        let found = match std::mem::replace(&mut self.begun, true) {
            false => self.first(row),
            true => self.rows.next(row, evenkeel_tables::Scan::next),
        };
        // Afterwards: another thread may have ended the transaction meanwhile.
        self.liveness.check()?;
        found
    }

    /// Reads the columns of a plan of the next row, without a copy of the row: its clustered key
    /// bytes, or none at the end. `row` is a buffer for what is not read so.
    ///
    /// # Errors
    /// As `next`, and of [`Row::value`].
    #[inline]
    pub fn next_by<'s>(
        &'s mut self,
        plan: &mut RowPlan,
        row: &'s mut Row,
        give: impl FnMut(usize, ValueRef<'_>),
    ) -> Result<Option<&'s [u8]>> {
        if !self.begun || matches!(self.rows, Rows::Locked(_)) {
            if !self.next(row)? {
                return Ok(None);
            }
            row.values_by(plan, give)?;
            return Ok(Some(row.key()));
        }
        let Rows::Snapshot(scan) = &mut self.rows else { return Ok(None) };
        let found = scan.next_by(plan, row, give);
        self.liveness.check()?;
        found
    }

    /// Continues behind a row of the scan, given by its clustered key bytes ([`Row::key`]), also
    /// after the scan's end.
    ///
    /// # Errors
    /// `TransactionEnded`; of storage.
    pub fn resume_after(&mut self, key: &[u8]) -> Result<()> {
        let found = match &mut self.rows {
            Rows::Snapshot(scan) => scan.resume_after(key),
            Rows::Locked(scan) => scan.resume_after(&[], key),
        };
        self.liveness.check()?;
        found
    }

    /// Nearly all reading and waiting of a short scan happens here, so this call is measured.
    fn first(&mut self, row: &mut Row) -> Result<bool> {
        self.rows.next(row, |scan, row| {
            let rt = scan.store().runtime().clone();
            let operation = rt.operation();
            let found = scan.next(row);
            rt.operation_ends(operation);
            found
        })
    }
}

impl IndexScan {
    /// Reads the whole row of an entry that an index-only scan has returned, as the scan sees it;
    /// false if the row of a READ UNCOMMITTED scan has moved on.
    ///
    /// # Errors
    /// `TransactionEnded`; of storage.
    pub fn fetch(&self, entry: &Row, row: &mut Row) -> Result<bool> {
        let found = match &self.rows {
            Rows::Snapshot(scan) => scan.fetch_row(entry, row),
            Rows::Locked(_) => {
                row.clone_from(entry);
                Ok(true)
            }
        };
        self.liveness.check()?;
        found
    }

    /// As `fetch`, of the entry that [`IndexScan::next_by`] gave last; `given` is the buffer that
    /// it had.
    ///
    /// # Errors
    /// Of storage.
    pub fn fetch_last(&self, given: &Row, row: &mut Row) -> Result<bool> {
        match &self.rows {
            Rows::Snapshot(scan) => {
                let found = scan.fetch_last(given, row);
                self.liveness.check()?;
                found
            }
            Rows::Locked(_) => self.fetch(given, row),
        }
    }

    pub(crate) fn new(rows: Rows<evenkeel_tables::IndexScan>, liveness: Liveness) -> Self {
        Self { rows, begun: false, liveness }
    }

    /// Reads the next row into a reused buffer; false at the end.
    ///
    /// # Errors
    /// `TransactionEnded`; of storage.
    pub fn next(&mut self, row: &mut Row) -> Result<bool> {
        let found = match std::mem::replace(&mut self.begun, true) {
            false => self.first(row),
            true => self.rows.next(row, evenkeel_tables::IndexScan::next),
        };
        // Afterwards: another thread may have ended the transaction meanwhile.
        self.liveness.check()?;
        found
    }

    /// Reads the columns of a plan of the next row, without a copy of the row: its clustered key
    /// bytes, or none at the end. `row` is a buffer for what is not read so.
    ///
    /// # Errors
    /// As `next`, and of [`Row::value`].
    #[inline]
    pub fn next_by<'s>(
        &'s mut self,
        plan: &mut RowPlan,
        row: &'s mut Row,
        give: impl FnMut(usize, ValueRef<'_>),
    ) -> Result<Option<&'s [u8]>> {
        if !self.begun || matches!(self.rows, Rows::Locked(_)) {
            if !self.next(row)? {
                return Ok(None);
            }
            row.values_by(plan, give)?;
            return Ok(Some(row.key()));
        }
        let Rows::Snapshot(scan) = &mut self.rows else { return Ok(None) };
        let found = scan.next_by(plan, row, give);
        self.liveness.check()?;
        found
    }

    /// Nearly all reading and waiting of a short scan happens here, so this call is measured.
    fn first(&mut self, row: &mut Row) -> Result<bool> {
        self.rows.next(row, |scan, row| {
            let rt = scan.store().runtime().clone();
            let operation = rt.operation();
            let found = scan.next(row);
            rt.operation_ends(operation);
            found
        })
    }
}
