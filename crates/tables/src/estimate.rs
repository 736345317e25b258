//! The number of rows in a range of an index: counted up to a bound, estimated beyond it.

use crate::range::{ByteRange, KeySet};
use crate::scan::key_range;
use crate::store::Store;
use crate::table::{Table, TableState, Use};
use crate::transaction::TableTxn;
use evenkeel_base::sync::RwLock;
use evenkeel_base::{IndexId, Lsn, Result, Snapshot, TreeId};
use evenkeel_tree::Size;
use std::ops::Bound;
use std::sync::Arc;

/// Entries counted at most.
const COUNTED_MAX: u64 = 128;
/// For tables with at least this many rows the number is not estimated anew at each change.
const STEADY_ROWS: u64 = 1_000;
/// Log bytes per row by which the number may be out of date. A row takes at least 60 bytes, so
/// about one row in seven can be new.
const STEADY_LOG_BYTES: u64 = 8;
/// The same for rows of aborted transactions, which lie together: a few leaves in a hundred make a
/// tree uneven.
const ABORTED_LOG_BYTES: u64 = 240;
/// The rows of a range count as exact if at most one in this many may not exist.
const DOUBTFUL: u64 = 8;

/// What may have changed the number of rows since: the length of the log, and the rows of aborted
/// transactions, which the log records only when they are rolled back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    log: Lsn,
    aborted_rows: u64,
}

impl Moment {
    pub fn now(store: &Store) -> Moment {
        Moment { log: store.log.end(), aborted_rows: store.txns.aborted_rows() }
    }

    /// Log bytes of the rows that may have changed since an earlier one.
    fn bytes_since(&self, earlier: Moment) -> u64 {
        let aborted = self.aborted_rows.saturating_sub(earlier.aborted_rows);
        let logged = self.log.0.saturating_sub(earlier.log.0);
        logged.saturating_add(aborted.saturating_mul(ABORTED_LOG_BYTES))
    }
}

/// The number of rows of a tree at a moment.
#[derive(Clone, Copy, Debug)]
struct RowsAt {
    tree: TreeId,
    at: Moment,
    size: Size,
}

/// The last estimate of a table. TRUNCATE gives the table another tree, for which there is no
/// estimate.
#[derive(Debug, Default)]
pub(crate) struct RowsKnown(RwLock<Option<RowsAt>>);

impl RowsKnown {
    /// The estimate, if not much can have changed since.
    pub fn get(&self, tree: TreeId, now: Moment) -> Option<Size> {
        let known = (*self.0.read()).filter(|known| known.tree == tree)?;
        let rows = known.size.rows;
        let behind = if rows >= STEADY_ROWS { rows.saturating_mul(STEADY_LOG_BYTES) } else { 0 };
        (now.bytes_since(known.at) <= behind).then_some(known.size)
    }
}

impl Store {
    /// The approximate size of a table: a present estimate for small tables and for tables that do
    /// not change, a slightly old one for large ones.
    ///
    /// # Errors
    /// Of storage.
    pub fn size_estimate(&self, table: &Table) -> Result<Size> {
        let (at, state) = (Moment::now(self), table.state());
        let tree = state.tree.id();
        if let Some(size) = table.rows_known.get(tree, at) {
            return Ok(size);
        }
        let size = match table.is_chunked() {
            false => state.tree.estimate_all()?,
            true => self.size_of_chunks(table)?,
        };
        *table.rows_known.0.write() = Some(RowsAt { tree, at, size });
        Ok(size)
    }
}

impl Store {
    fn size_of_chunks(&self, table: &Table) -> Result<Size> {
        let _keeps = self.txns.snapshot();
        let mut all = Size::default();
        for tree in table.trees() {
            let size = tree.estimate_all()?;
            (all.rows, all.leaves) = (all.rows + size.rows, all.leaves + size.leaves);
            all.is_uneven |= size.is_uneven;
        }
        Ok(all)
    }

    /// About how many rows of a table lie in a range of its clustered key; 0 only if there is none.
    /// The caller keeps the table in use.
    pub(crate) fn clustered_estimate(
        &self,
        table: &Table,
        state: &TableState,
        range: &ByteRange,
    ) -> Result<u64> {
        if range.is_empty() {
            return Ok(0);
        }
        let lower = Bound::Included(&range.lower[..]);
        let upper = range.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        if !self.size_estimate(table)?.is_uneven {
            let rows = state.tree.estimate(lower, upper)?;
            // All rows that are being rolled back may lie in the range, and the ends of the range
            // do not show that.
            if self.txns.reverting_rows() <= rows / DOUBTFUL {
                return Ok(rows);
            }
        }
        state.tree.estimate_uneven(lower, upper)
    }
}

impl TableTxn {
    /// About how many rows lie in a range of the clustered key; 0 only if there is none.
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`; faults of the range; of storage.
    pub fn key_estimate<'k>(
        &mut self,
        table: &Arc<Table>,
        keys: impl Into<KeySet<'k>>,
    ) -> Result<u64> {
        let keys = keys.into();
        if table.is_chunked() {
            return self.key_estimate_chunked(table, keys);
        }
        // Use the table first, so that its tree is not dropped.
        self.enter(table, Use::Read)?;
        let state = table.state();
        let range = state.layout.byte_range(&state.layout.key, keys)?;
        self.store.clustered_estimate(table, &state, &range)
    }

    /// About how many rows lie in a range of an index; 0 only if there is none.
    ///
    /// # Errors
    /// `IndexMissing`, faults of the range, of storage.
    pub fn index_estimate<'k>(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        keys: impl Into<KeySet<'k>>,
    ) -> Result<u64> {
        let keys = keys.into();
        if table.is_chunked() {
            return self.index_estimate_chunked(table, index, keys, COUNTED_MAX);
        }
        self.enter(table, Use::Read)?;
        let state = table.state();
        let layout = state.layout.index_at(index)?;
        let range = state.layout.index_range(layout, keys)?;
        if range.is_empty() {
            return Ok(0);
        }
        self.entries_in(layout.id, range, COUNTED_MAX)
    }

    /// As `index_estimate`, for a range that is not empty; counts at most `counted_max` entries.
    pub(crate) fn entries_in(
        &self,
        index: IndexId,
        range: ByteRange,
        counted_max: u64,
    ) -> Result<u64> {
        let _registered = self.store.txns.snapshot();
        let own = self.inner.id();
        let snapshot = Snapshot { at: Lsn::MAX, own, own_below: self.inner.mark() };
        let runs = &self.store.runs;
        self.store.read_index(runs.estimate(index, &key_range(range), snapshot, counted_max))
    }
}
