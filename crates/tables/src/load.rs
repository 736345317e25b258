//! Loading an empty table at once: leaves are built one after the other from rows in key order in a
//! separate tree; the table's indexes are then built over it as by ADD INDEX; one transaction on
//! the catalog replaces the old tree and indexes.
//!
//! No other transaction uses the table meanwhile. A crash or an error before the catalog's commit
//! leaves the table as it was; pages and runs written until then belong to no table and are removed
//! at the next start, as for every schema change.

use crate::build::{BuildProgress, newest_committed, scan};
use crate::catalog::run_spec;
use crate::foreign::check_loadable;
use crate::store::Store;
use crate::table::{SchemaWait, Table, TableState};
use crate::values::Values;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Error, IndexId, Result, Stamp};
use evenkeel_format::{Field, ValueRef};
use evenkeel_tree::{BulkLoad, Direction, LeafRow};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Rows between two checks for cancellation.
const CHECK_EVERY: u64 = 1024;

impl Store {
    /// Fills an empty table with rows in ascending order of the primary key and returns their
    /// number. All or nothing; durable when this returns. Waits for the transactions that use the
    /// table and keeps others out of it.
    ///
    /// # Errors
    /// `TreeNotEmpty`, `RowsNotSorted` naming the row, `DuplicateInBuild`, `RowTooLong` (a row that
    /// does not fit a leaf must be inserted), faults of the values, `TableMissing`, `TableBusy`,
    /// `BuildCancelled`.
    pub fn load_table<R: Values>(
        self: &Arc<Self>,
        name: &str,
        rows: impl IntoIterator<Item = R>,
        progress: &BuildProgress,
    ) -> Result<u64> {
        let table = self.table(name)?;
        let wait = SchemaWait::default();
        let _ddl = self.lock_ddl(name, &table, &wait)?;
        check_loadable(&table)?;
        table.close_for_load(&self.rt, self.lock_wait(), &wait)?;
        let _closed = Closed(&table);
        self.load_closed(&table, &mut rows.into_iter(), progress)
    }

    fn load_closed<R: Values>(
        self: &Arc<Self>,
        table: &Arc<Table>,
        rows: &mut dyn Iterator<Item = R>,
        progress: &BuildProgress,
    ) -> Result<u64> {
        // Its own waits are no reason to hold the build of its indexes back.
        let _building = self.sched.building(progress.stop());
        let old = table.state();
        self.check_empty(&old)?;
        let new = self.successor(&old)?;
        for index in &new.layout.def.indexes {
            self.runs.add_index(run_spec(index));
        }
        let fill = || self.fill(table, &new, rows, progress);
        let filled = catch_unwind(AssertUnwindSafe(fill)).unwrap_or_else(|panic| {
            self.forget(&new);
            resume_unwind(panic)
        });
        let done = filled.and_then(|count| {
            progress.check()?;
            Ok((count, self.replace_in_catalog(&old, &new.layout.def)?))
        });
        match done {
            Ok((count, born)) => {
                self.replace(table, &old, &new, born);
                self.note_changes(table, count);
                Ok(count)
            }
            Err(error) => {
                self.forget(&new);
                Err(error)
            }
        }
    }

    pub(crate) fn check_empty(&self, state: &TableState) -> Result<()> {
        let guard = self.txns.snapshot();
        let mut cursor = state.tree.cursor();
        cursor.seek(Bound::Unbounded, Direction::Forward)?;
        while let Some((key, cell)) = cursor.next()? {
            if newest_committed(&self.txns, state.tree.id(), key, &cell)?.is_some() {
                let name = &state.layout.def.name;
                return Err(Error::new(Code::TreeNotEmpty).with("table", name));
            }
        }
        drop(guard);
        Ok(())
    }

    fn fill<R: Values>(
        self: &Arc<Self>,
        table: &Arc<Table>,
        new: &Arc<TableState>,
        rows: &mut dyn Iterator<Item = R>,
        progress: &BuildProgress,
    ) -> Result<u64> {
        let mut loader = Loader::new(self, table, new, progress)?;
        for row in rows {
            row.give(|values| loader.push(values))?;
            if loader.count.is_multiple_of(CHECK_EVERY) {
                progress.check()?;
                self.rt.step();
            }
        }
        let count = loader.finish(progress)?;
        self.rt.metrics.add(Metric::RowsLoaded, count);
        let ids: Vec<IndexId> = new.layout.def.indexes.iter().map(|index| index.id).collect();
        if count > 0 && !ids.is_empty() {
            scan::build_runs(self, new, &ids, progress)?;
            self.check_duplicates(new, &ids, progress, &|| false)?;
        }
        Ok(count)
    }
}

/// Reopens a closed table, also if the caller's iterator panics.
pub(crate) struct Closed<'a>(pub &'a Table);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.reopen(false);
    }
}

/// Rows on their way into a new tree.
pub(crate) struct Loader {
    store: Arc<Store>,
    table: Arc<Table>,
    state: Arc<TableState>,
    tree: BulkLoad,
    key: Vec<u8>,
    row: Vec<u8>,
    count: u64,
}

impl Loader {
    /// For a table that will have `state`; `progress` cancels its waits.
    pub fn new(
        store: &Arc<Store>,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        progress: &BuildProgress,
    ) -> Result<Loader> {
        let progress = progress.clone();
        let patience = Arc::new(move |_| progress.check());
        Ok(Loader {
            store: store.clone(),
            table: table.clone(),
            state: state.clone(),
            tree: state.tree.bulk_load()?.patient(patience),
            key: Vec::new(),
            row: Vec::new(),
            count: 0,
        })
    }

    /// The state that is filled.
    pub fn state(&self) -> &Arc<TableState> {
        &self.state
    }

    /// All rows are in; returns their number.
    pub fn finish(self, progress: &BuildProgress) -> Result<u64> {
        self.tree.finish(&|| progress.check())
    }

    /// Encodes the key and the row of these values.
    pub fn encode(&mut self, values: &[ValueRef<'_>]) -> Result<(&[u8], &[u8])> {
        let layout = &self.state.layout;
        layout.check_values(values)?;
        let auto = layout.auto_increment;
        let number = match auto {
            Some(column) => {
                self.store.auto_number(&self.table, layout, column, values[column], None)?
            }
            None => None,
        };
        let value = |i: usize| match number {
            Some(n) if Some(i) == auto => Ok(ValueRef::UInt(n)),
            _ => Ok(values[i]),
        };
        self.key.clear();
        if layout.key.is_empty() {
            self.key.extend_from_slice(&self.store.next_hidden(&self.table)?.to_be_bytes());
        } else {
            layout.encode_key(&value, &mut self.key)?;
        }
        self.row.clear();
        layout.encode_row(&|i| value(i).map(Field::Value), &mut self.row)?;
        let (len, limit) = (self.row.len(), self.state.tree.row_bytes_max(self.key.len()));
        if len > limit {
            let error = Error::new(Code::RowTooLong).with("table", &layout.def.name);
            return Err(error.with("row", self.count).with("bytes", len).with("limit", limit));
        }
        Ok((&self.key, &self.row))
    }

    /// Adds the next row.
    pub fn push(&mut self, values: &[ValueRef<'_>]) -> Result<()> {
        self.encode(values)?;
        let (key, row) = (std::mem::take(&mut self.key), std::mem::take(&mut self.row));
        let pushed = self.push_encoded(&key, &row);
        (self.key, self.row) = (key, row);
        pushed
    }

    /// As `push`, for a key and a row from `encode`.
    pub fn push_encoded(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        let row = LeafRow { flags: 0, stamp: Stamp::default(), row };
        let named = |e: Error| match e.code() {
            Code::KeysNotAscending => Error::new(Code::RowsNotSorted),
            _ => e,
        };
        let pushed = self.tree.push(key, row).map_err(named);
        let name = &self.state.layout.def.name;
        pushed.map_err(|e| e.with("table", name).with("row", self.count))?;
        self.count += 1;
        Ok(())
    }
}
