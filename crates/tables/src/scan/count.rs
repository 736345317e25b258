//! The exact number of rows that a reader sees, without reading the rows.
//!
//! Rows of the table are judged in their leaf, under its latch, and only a leaf with a version that
//! the snapshot does not see is copied; entries of an index are judged in the memtable or the run.
//! What is counted is what the scan would have returned: the same view judges both.

use super::{IndexScan, Scan};
use crate::range::Range;
use crate::read::ReadView;
use crate::row::Row;
use crate::table::Table;
use crate::table_layout::IndexLayout;
use crate::transaction::TableTxn;
use evenkeel_base::{CommitTable, Result};
use evenkeel_format::record::cell_flags;
use evenkeel_tree::{Direction, Passed};
use std::sync::Arc;

/// Entries that are counted between two checks for cancellation.
const ENTRIES_AT_ONCE: u64 = 4096;
/// An index is read instead of the rows if it takes at most this part of their bytes.
const INDEX_SHARE: u64 = 2;

impl Scan {
    /// Counts the rows that the scan would still return.
    ///
    /// # Errors
    /// `StatementCancelled`; of storage.
    pub fn count(mut self) -> Result<u64> {
        // A reader of uncommitted rows may find a row whose long values are gone, and skips it.
        if self.point || self.view.dirty || self.direction == Direction::Backward {
            return self.count_one_by_one();
        }
        if self.done {
            return Ok(0);
        }
        self.set_out()?;
        let mut count = 0;
        loop {
            self.txn.check_cancel()?;
            let Scan { store, view, cursor, seen, .. } = &mut self;
            let commits: &dyn CommitTable = &*store.txns;
            let passed = cursor.pass_leaf(|cell| {
                let is_seen = view.sees_next_leaf(&cell, commits, seen);
                count += u64::from(is_seen && cell.flags & cell_flags::DELETED == 0);
                is_seen
            })?;
            match passed {
                Passed::Leaf => {}
                Passed::Refused => count += u64::from(self.has_older()?),
                Passed::End => break,
            }
        }
        self.rows += count;
        Ok(count)
    }

    /// Moves over a row whose version in the leaf the snapshot does not see: does it see an older
    /// one?
    fn has_older(&mut self) -> Result<bool> {
        let Scan { store, state, view, cursor, .. } = self;
        let Some((key, cell, _)) = cursor.next_within()? else { return Ok(false) };
        Ok(view.older(store, state.tree.id(), key, cell.stamp)?.is_some())
    }

    fn count_one_by_one(&mut self) -> Result<u64> {
        let (mut row, mut count) = (Row::new(), 0);
        while self.next(&mut row)? {
            count += 1;
            if count % ENTRIES_AT_ONCE == 0 {
                self.txn.check_cancel()?;
            }
        }
        Ok(count)
    }
}

impl IndexScan {
    /// Counts the rows that the scan would still return.
    ///
    /// # Errors
    /// `StatementCancelled`; of storage.
    pub fn count(mut self) -> Result<u64> {
        let (mut row, mut count) = (Row::new(), 0);
        if self.view.rechecks || self.row_at < self.filled || !self.wanted.is_empty() {
            while self.next(&mut row)? {
                count += 1;
                if count % ENTRIES_AT_ONCE == 0 {
                    self.txn.check_cancel()?;
                }
            }
            return Ok(count);
        }
        // Those that were read ahead and not returned. Whole rows leave none.
        if self.keys_only {
            count += (self.entries.len() - self.at) as u64;
        }
        while !self.end {
            self.txn.check_cancel()?;
            let mut some = 0;
            let read = self.cursor.next_many(|_| {
                some += 1;
                some < ENTRIES_AT_ONCE
            });
            self.end = !self.store.read_index(read)?;
            self.cursor.park();
            count += some;
        }
        self.given += count;
        Ok(count)
    }
}

impl TableTxn {
    /// The exact number of rows of a table that this transaction sees. They are counted in the
    /// table; in the smallest index, if that is much smaller and the table is larger than half of
    /// the buffer pool, because then the bytes to be read decide.
    ///
    /// # Errors
    /// As `scan`; `StatementCancelled`; of storage.
    pub fn count(&mut self, table: &Arc<Table>) -> Result<u64> {
        if table.is_chunked() {
            return self.chunk_scan(table, None, Range::ALL, Direction::Forward)?.count();
        }
        // First use the table: a schema change must not move the index between here and the scan.
        self.use_table(table)?;
        let view = self.view_of(table)?;
        match self.small_index(table, &view)? {
            Some(index) => {
                self.index_scan(table, index, Range::ALL, Direction::Forward, true)?.count()
            }
            None => self.scan(table, Range::ALL, Direction::Forward)?.count(),
        }
    }

    fn small_index(&self, table: &Table, view: &ReadView) -> Result<Option<usize>> {
        let (store, state) = (&self.store, table.state());
        let leaves = store.size_estimate(table)?.leaves;
        if view.rechecks || leaves <= store.pages.frames_with_memory() as u64 / 2 {
            return Ok(None);
        }
        let most = leaves * store.pages.page_size() as u64 / INDEX_SHARE;
        let bytes = |index: &IndexLayout| store.runs.stats(index.id).run_bytes;
        let is_readable = |index: &IndexLayout| index.check_readable(view.snapshot.at).is_ok();
        let indexes = state.layout.indexes.iter().enumerate();
        let readable = indexes.filter(|(_, index)| is_readable(index));
        let sized = readable.map(|(at, index)| (bytes(index), at));
        Ok(sized.filter(|(bytes, _)| *bytes <= most).min().map(|(_, at)| at))
    }
}
