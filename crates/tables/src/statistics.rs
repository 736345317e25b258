//! Statistics of keys for an optimiser: how many different values the first parts of each key have.
//!
//! Rows are drawn from the clustered tree; each tells how many rows share its values. A group of
//! `n` rows is drawn `n` times as often as a single row, so the mean of `1/n` over the rows drawn
//! is the number of groups per row. Its cost is bounded whatever the table holds: so many dives per
//! part of a key. The numbers stay in the catalog until the next time; a key that goes takes its
//! own along, under the same latch (`ddl`) under which they are written.

use crate::range::Range;
use crate::row::Row;
use crate::shape::{KeyColumn, Shape};
use crate::store::Store;
use crate::table::{Table, TableState};
use crate::transaction::{Access, Isolation, Transaction};
use evenkeel_base::sync::RwLock;
use evenkeel_base::{IndexId, Result};
use evenkeel_format::ValueRef;
use evenkeel_format::catalog::{IndexState, StatisticsEntry, entry_kind};
use evenkeel_io::Rng;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Rows drawn.
const ROWS_DRAWN: usize = 128;
/// Entries of a group that are counted at most: what is beyond is estimated, which knows no less
/// than half a block of each run.
const COUNTED_MAX: u64 = 4096;
/// The clustered key where an index is named.
pub(crate) const CLUSTERED: IndexId = IndexId::ZERO;

/// What is known of the values of a table's keys.
#[derive(Default)]
pub(crate) struct Statistics(RwLock<BTreeMap<IndexId, StatisticsEntry>>);

impl Statistics {
    pub fn set(&self, of_keys: BTreeMap<IndexId, StatisticsEntry>) {
        *self.0.write() = of_keys;
    }
}

/// A key that is looked at.
struct Key<'s> {
    id: IndexId,
    parts: &'s [KeyColumn],
    /// Per number of parts: over the rows drawn, rows stood for by rows in the group.
    groups: Vec<f64>,
}

fn keys(shape: &Shape) -> Vec<Key<'_>> {
    let clustered = Some((CLUSTERED, &shape.key[..])).filter(|_| !shape.key.is_empty());
    let read = shape.indexes.iter().filter(|i| matches!(i.state, IndexState::Valid(_)));
    let read = read.filter(|i| !i.is_opaque()).map(|i| (i.id, &i.parts[..]));
    let one = |(id, parts): (IndexId, _)| Key { id, parts, groups: Vec::new() };
    clustered.into_iter().chain(read).map(one).collect()
}

impl Table {
    /// What is known of the values of the key of the index at a position (`None`: of the clustered
    /// key), if `Store::analyze_table` has looked since it was made.
    pub fn statistics(&self, index: Option<usize>) -> Option<StatisticsEntry> {
        let shape = self.shape();
        let id = match index {
            None => CLUSTERED,
            Some(at) => shape.indexes.get(at)?.id,
        };
        self.statistics.0.read().get(&id).cloned()
    }
}

impl Store {
    /// Finds out about how many different values the first parts of each key of a table have, and
    /// keeps that. Reads a bounded number of rows and ranges; writers go on.
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`, of storage.
    pub fn analyze_table(self: &Arc<Self>, name: &str) -> Result<()> {
        let table = self.table(name)?;
        let mut txn = self.begin(Isolation::ReadCommitted, Access::ReadOnly);
        // In use, the table keeps its indexes.
        txn.use_table(&table)?;
        let mut found = txn.draw_statistics(&table, ROWS_DRAWN)?;
        drop(txn);
        let _ddl = self.lock_ddl(name, &table)?;
        let shape = table.shape();
        found.retain(|id, _| *id == CLUSTERED || shape.indexes.iter().any(|i| i.id == *id));
        self.change_catalog(|txn| {
            for (id, entry) in &found {
                let mut body = Vec::new();
                entry.encode(&mut body);
                let key = (table.id().0, entry_kind::STATISTICS, id.0);
                self.put_entry(txn, key, "", &body)?;
            }
            Ok(())
        })?;
        table.statistics.set(found);
        Ok(())
    }
}

impl Transaction {
    fn draw_statistics(
        &mut self,
        table: &Arc<Table>,
        wanted: usize,
    ) -> Result<BTreeMap<IndexId, StatisticsEntry>> {
        let state = table.state();
        let mut keys = keys(&state.shape);
        keys.iter_mut().for_each(|key| key.groups = vec![0.0; key.parts.len()]);
        // The same rows each time: plans change when the data does.
        let mut random = Rng::new(u64::from(table.id().0));
        let (mut row, mut drawn, mut stood_for) = (Row::new(), 0, 0.0);
        for _ in 0..wanted {
            self.inner.check_cancel()?;
            let point = state.tree.draw(&mut |n| random.below(n as u64) as usize)?;
            drawn += 1;
            let Some((key, weight)) = point else { continue };
            if !self.get_by_key(table, &key, &mut row)? {
                continue;
            }
            stood_for += weight;
            for key in &mut keys {
                self.add_groups(&state, &row, weight, key)?;
            }
        }
        let per_draw = |sum: f64| (sum / f64::from(drawn.max(1))).round() as u64;
        let rows = per_draw(stood_for);
        let entry = |key: Key<'_>| {
            let distinct = key.groups.iter().map(|sum| per_draw(*sum).clamp(rows.min(1), rows));
            (key.id, StatisticsEntry { rows, distinct: distinct.collect() })
        };
        Ok(keys.into_iter().map(entry).collect())
    }

    /// Adds what a row drawn says of a key.
    fn add_groups(
        &self,
        state: &TableState,
        row: &Row,
        weight: f64,
        key: &mut Key<'_>,
    ) -> Result<()> {
        let values = key.parts.iter().map(|part| row.value(part.column));
        let values = values.collect::<Result<Vec<ValueRef<'_>>>>()?;
        let mut rows = u64::MAX;
        for (at, sum) in key.groups.iter_mut().enumerate() {
            if rows > 1 {
                let range = state.shape.byte_range(key.parts, Range::prefix(&values[..=at]))?;
                rows = if key.id == CLUSTERED {
                    let upper = range.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                    state.tree.estimate(Bound::Included(&range.lower), upper)?
                } else {
                    self.entries_in(key.id, range, COUNTED_MAX)?
                };
            }
            *sum += weight / rows.max(1) as f64;
        }
        Ok(())
    }
}
