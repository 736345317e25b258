//! How many rows lie in a range of an index: counted up to a bound, estimated beyond it.

use crate::range::{ByteRange, Range};
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
/// The number of rows of a table that had this many is not estimated anew at each change.
const STEADY_ROWS: u64 = 1_000;
/// Log bytes by which it may be behind, per row: a row takes 60 bytes or more, so about one
/// in seven can be new.
const STEADY_LOG_BYTES: u64 = 8;
/// The same for rows of aborted transactions, which lie together: a few leaves in a hundred make a
/// tree uneven.
const ABORTED_LOG_BYTES: u64 = 240;
/// The rows of a range of which one in so many may be none count as rows.
const DOUBTFUL: u64 = 8;

/// What may have changed rows since: how long the log is, and how many rows went or came back at
/// once when their transactions were aborted, of which the log tells when they are reverted.
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

/// How many rows a tree had at a moment.
#[derive(Clone, Copy, Debug)]
struct RowsAt {
    tree: TreeId,
    at: Moment,
    size: Size,
}

/// What was last estimated of a table. TRUNCATE gives the table another tree, of which nothing is
/// known then.
#[derive(Debug, Default)]
pub(crate) struct RowsKnown(RwLock<Option<RowsAt>>);

impl RowsKnown {
    /// It, if not much can have changed since.
    pub fn get(&self, tree: TreeId, now: Moment) -> Option<Size> {
        let known = (*self.0.read()).filter(|known| known.tree == tree)?;
        let rows = known.size.rows;
        let behind = if rows >= STEADY_ROWS { rows.saturating_mul(STEADY_LOG_BYTES) } else { 0 };
        (now.bytes_since(known.at) <= behind).then_some(known.size)
    }
}

impl Store {
    /// About how large a table is: exactly as estimated now for small ones and for those nobody
    /// changes, a little behind for large ones.
    ///
    /// # Errors
    /// Of storage.
    pub fn size_estimate(&self, table: &Table) -> Result<Size> {
        let (at, state) = (Moment::now(self), table.state());
        let tree = state.tree.id();
        if let Some(size) = table.rows_known.get(tree, at) {
            return Ok(size);
        }
        let size = state.tree.estimate_all()?;
        *table.rows_known.0.write() = Some(RowsAt { tree, at, size });
        Ok(size)
    }
}

impl Store {
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
            // All that is being reverted may lie between the ends, which know nothing of it.
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
    /// `TableMissing`, `TableBusy`; what is wrong with the range, of storage.
    pub fn key_estimate(&mut self, table: &Arc<Table>, range: Range<'_>) -> Result<u64> {
        // First: nobody must drop the tree that is looked at.
        self.enter(table, Use::Read)?;
        let state = table.state();
        let range = state.layout.byte_range(&state.layout.key, range)?;
        self.store.clustered_estimate(table, &state, &range)
    }

    /// About how many rows lie in a range of an index; 0 only if there is none.
    ///
    /// # Errors
    /// `IndexMissing`, what is wrong with the range, of storage.
    pub fn index_estimate(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        range: Range<'_>,
    ) -> Result<u64> {
        self.enter(table, Use::Read)?;
        let state = table.state();
        let layout = state.layout.index_at(index)?;
        let range = state.layout.index_range(layout, range)?;
        if range.is_empty() {
            return Ok(0);
        }
        self.entries_in(layout.id, range, COUNTED_MAX)
    }

    /// As `index_estimate`, of a range that is not empty; `counted_max` entries are counted at
    /// most.
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
