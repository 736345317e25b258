//! How many rows lie in a range of an index: counted up to a bound, estimated beyond it.

use crate::range::{ByteRange, Range};
use crate::scan::key_range;
use crate::table::{Table, Use};
use crate::transaction::Transaction;
use evenkeel_base::{IndexId, Lsn, Result, Snapshot};
use evenkeel_runs::Direction;
use std::sync::Arc;

/// Entries counted at most.
const COUNTED_MAX: u64 = 128;

impl Transaction {
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
        let shape = state.shape.index_at(index)?;
        let range = state.shape.index_range(shape, range)?;
        if range.is_empty() {
            return Ok(0);
        }
        self.entries_in(shape.id, range, COUNTED_MAX)
    }

    /// As `index_estimate`, of a range that is not empty; `counted_max` entries are counted at
    /// most.
    pub(crate) fn entries_in(
        &self,
        index: IndexId,
        range: ByteRange,
        counted_max: u64,
    ) -> Result<u64> {
        let guard = self.store.txns.snapshot();
        let own = self.inner.id();
        let snapshot = Snapshot { at: Lsn::MAX, own, own_below: self.inner.mark() };
        let range = key_range(range);
        let runs = &self.store.runs;
        let mut cursor = runs.cursor(index, range.clone(), Direction::Forward, snapshot)?;
        let mut counted = 0;
        while counted < counted_max {
            if cursor.next()?.is_none() {
                // What others have not committed yet may be there.
                return Ok(counted.max(u64::from(cursor.undecided().is_some())));
            }
            counted += 1;
        }
        drop((cursor, guard));
        Ok(runs.estimate(index, &range)?.max(counted))
    }
}
