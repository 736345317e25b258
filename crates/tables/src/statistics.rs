//! Statistics of keys for an optimizer: how many different values the first parts of each key have.
//!
//! Rows are sampled from the clustered tree, and for each the number of rows that share its values
//! is determined. A group of `n` rows is sampled `n` times as often as a single row, so the mean of
//! `1/n` over the sampled rows is the number of groups per row. The cost is bounded for every
//! table: a fixed number of descents per part of a key. The numbers stay in the catalog until the
//! next time; a dropped key takes its numbers along, under the same latch (`ddl`) under which they
//! are written.

use crate::range::Range;
use crate::row::Row;
use crate::store::Store;
use crate::table::{SchemaWait, Table, TableState};
use crate::table_layout::{KeyColumn, Layout};
use crate::transaction::{Access, Isolation, TableTxn};
use evenkeel_base::sync::RwLock;
use evenkeel_base::{IndexId, Result};
use evenkeel_format::ValueRef;
use evenkeel_format::catalog::{IndexState, StatisticsEntry, entry_kind};
use evenkeel_io::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows sampled.
pub(crate) const ROWS_DRAWN: usize = 128;
/// Entries of a group that are counted, at most. The rest is estimated, with a precision of half a
/// block of each run at best.
const COUNTED_MAX: u64 = 4096;
/// Stands for the clustered key where an index is named.
pub(crate) const CLUSTERED: IndexId = IndexId::ZERO;

/// The known statistics of a table's keys.
#[derive(Default)]
pub(crate) struct Statistics(RwLock<BTreeMap<IndexId, StatisticsEntry>>);

impl Statistics {
    pub fn set(&self, of_keys: BTreeMap<IndexId, StatisticsEntry>) {
        *self.0.write() = of_keys;
    }
}

/// The keys that are analyzed.
fn keys(layout: &Layout) -> Vec<(IndexId, &[KeyColumn])> {
    let clustered = Some((CLUSTERED, &layout.key[..])).filter(|_| !layout.key.is_empty());
    let read = layout.indexes.iter().filter(|i| matches!(i.state, IndexState::Valid(_)));
    let read = read.filter(|i| !i.is_opaque()).map(|i| (i.id, &i.parts[..]));
    clustered.into_iter().chain(read).collect()
}

/// The results of the rows sampled so far.
pub(crate) struct Drawing {
    state: Arc<TableState>,
    /// Changed rows of the table when the sampling began.
    changes: u64,
    random: Rng,
    drawn: usize,
    /// The number of rows that the found rows stand for.
    stood_for: f64,
    /// For each key and number of parts: over the sampled rows, rows stood for by rows in the
    /// group.
    groups: Vec<Vec<f64>>,
}

impl Drawing {
    pub fn new(table: &Table) -> Drawing {
        let (changes, state) = (table.changes(), table.state());
        let groups = keys(&state.layout).iter().map(|(_, parts)| vec![0.0; parts.len()]).collect();
        // The same rows each time, so that plans change only when the data does.
        let random = Rng::new(u64::from(table.id().0));
        Drawing { state, changes, random, drawn: 0, stood_for: 0.0, groups }
    }

    /// The state of the table when the sampling began.
    pub fn state(&self) -> &TableState {
        &self.state
    }

    fn per_draw(&self, sum: f64) -> u64 {
        (sum / self.drawn.max(1) as f64).round() as u64
    }

    fn rows(&self) -> u64 {
        self.per_draw(self.stood_for)
    }

    fn entries(&self) -> BTreeMap<IndexId, StatisticsEntry> {
        let rows = self.rows();
        let keys = keys(&self.state.layout).into_iter().zip(&self.groups);
        let entry = |((id, _), groups): ((IndexId, &[KeyColumn]), &Vec<f64>)| {
            let distinct = groups.iter().map(|sum| self.per_draw(*sum).clamp(rows.min(1), rows));
            (id, StatisticsEntry { rows, distinct: distinct.collect() })
        };
        keys.map(entry).collect()
    }
}

impl Table {
    /// The statistics of the key of the index at a position (`None`: of the clustered key), if the
    /// table was analyzed since the key was made.
    pub fn statistics(&self, index: Option<usize>) -> Option<StatisticsEntry> {
        let layout = self.layout();
        let id = match index {
            None => CLUSTERED,
            Some(at) => layout.indexes.get(at)?.id,
        };
        self.statistics.0.read().get(&id).cloned()
    }
}

impl Store {
    /// Estimates how many different values the first parts of each key of a table have, and keeps
    /// the result. Reads a bounded number of rows and ranges; writers continue.
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`, of storage.
    pub fn analyze_table(self: &Arc<Self>, name: &str) -> Result<()> {
        self.analyze_table_with(name, &SchemaWait::default())
    }

    /// As `analyze_table`, with the caller's wait, which also bounds the reading of rows.
    ///
    /// # Errors
    /// As `analyze_table`; `StatementCancelled`.
    pub fn analyze_table_with(self: &Arc<Self>, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        let table = self.table(name)?;
        let mut txn = self.begin(Isolation::ReadCommitted, Access::ReadOnly);
        // A table in use keeps its indexes.
        txn.use_table_with(&table, wait)?;
        let mut drawing = Drawing::new(&table);
        while txn.draw(&table, &mut drawing, 1)? {
            wait.check_cancel()?;
        }
        drop(txn);
        self.keep_statistics(&table, &drawing, wait)
    }

    /// Writes the results of the sampled rows to the catalog and puts them into force; waits for a
    /// schema change.
    pub(crate) fn keep_statistics(
        self: &Arc<Self>,
        table: &Arc<Table>,
        drawing: &Drawing,
        wait: &SchemaWait<'_>,
    ) -> Result<()> {
        let name = table.layout().def.name.clone();
        let _ddl = self.lock_ddl(&name, table, wait)?;
        let (layout, mut found) = (table.layout(), drawing.entries());
        found.retain(|id, _| *id == CLUSTERED || layout.indexes.iter().any(|i| i.id == *id));
        self.change_catalog_of(table, |txn| {
            for (id, entry) in &found {
                let mut body = Vec::new();
                entry.encode(&mut body);
                let key = (table.id().0, entry_kind::STATISTICS, id.0);
                self.put_entry(txn, key, "", &body)?;
            }
            Ok(())
        })?;
        table.statistics.set(found);
        table.changes.looked(drawing.changes, drawing.rows(), self.rt.env.now_ns());
        Ok(())
    }
}

impl TableTxn {
    /// Samples at most `rows` rows of a table that is in use; false when enough are sampled.
    pub(crate) fn draw(
        &mut self,
        table: &Arc<Table>,
        drawing: &mut Drawing,
        at_most: usize,
    ) -> Result<bool> {
        let state = drawing.state.clone();
        let keys = keys(&state.layout);
        let mut row = Row::new();
        for _ in 0..at_most.min(ROWS_DRAWN - drawing.drawn) {
            self.inner.check_cancel()?;
            let random = &mut drawing.random;
            let point = state.tree.draw(&mut |n| random.below(n as u64) as usize)?;
            drawing.drawn += 1;
            let Some((key, weight)) = point else { continue };
            if !self.get_by_key(table, &key, &mut row)? {
                continue;
            }
            drawing.stood_for += weight;
            for ((id, parts), groups) in keys.iter().zip(&mut drawing.groups) {
                self.add_groups((table, &state), &row, weight, (*id, parts), groups)?;
            }
        }
        Ok(drawing.drawn < ROWS_DRAWN)
    }

    /// Adds the result of a sampled row for a key.
    fn add_groups(
        &self,
        (table, state): (&Table, &TableState),
        row: &Row,
        weight: f64,
        (id, parts): (IndexId, &[KeyColumn]),
        groups: &mut [f64],
    ) -> Result<()> {
        let values = parts.iter().map(|part| row.value(part.column));
        let values = values.collect::<Result<Vec<ValueRef<'_>>>>()?;
        let mut rows = u64::MAX;
        for (at, sum) in groups.iter_mut().enumerate() {
            if rows > 1 {
                let range = state.layout.byte_range(parts, Range::prefix(&values[..=at]))?;
                rows = if id == CLUSTERED {
                    self.store.clustered_estimate(table, state, &range)?
                } else {
                    self.entries_in(id, range, COUNTED_MAX)?
                };
            }
            *sum += weight / rows.max(1) as f64;
        }
        Ok(())
    }
}
