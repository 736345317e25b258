//! Copies rows into a new table that no other session knows, for a copying ALTER TABLE.
//!
//! While keys ascend, leaves are built one after the other in a separate tree (`load`), without
//! undo, locks or log records of the rows. At the first row in another order all rows are sorted
//! first (`sorter`). At a row that does not fit a leaf the loaded tree replaces the table's, and
//! further rows are inserted by transactions of a few rows each. If duplicates are left out, rows
//! are inserted from the beginning, because duplicates must be found as the rows arrive. In no case
//! does memory grow with the copy. Indexes that are not needed meanwhile are removed first and
//! built at the end, in one pass over the rows (`build`).
//!
//! The copy is not part of another transaction: the caller drops the table if the copy fails. A
//! crash leaves the table as the catalog has it: empty, with a part of the rows, or with all rows
//! but without some of its indexes.

use crate::build::BuildProgress;
use crate::catalog::run_spec;
use crate::foreign::check_loadable;
use crate::load::{Closed, Loader};
use crate::schema::{IndexDef, IndexSpec};
use crate::store::Store;
use crate::table::{SchemaWait, Table, TableState};
use crate::transaction::{Access, Isolation, TableTxn};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::ValueRef;
use evenkeel_log::Durability;
use evenkeel_tree::Direction;
use sorter::Sorter;
use std::ops::Bound;
use std::sync::Arc;

mod sorter;

/// Rows that a transaction of a copy inserts.
const ROWS_OF_TXN: u64 = 1_000;
/// Rows between two checks for cancellation.
const CHECK_EVERY: u64 = 1_024;

/// A copy under way. Dropped before `finish` it leaves a table with a part of the rows and of the
/// indexes.
pub struct TableCopy {
    store: Arc<Store>,
    table: Arc<Table>,
    name: String,
    progress: BuildProgress,
    /// The indexes built at the end.
    indexes: Vec<IndexSpec>,
    way: Way,
    leaves_out: bool,
    rows: u64,
    /// The key of a sorted row that has the key of an earlier one.
    duplicate: Option<Vec<u8>>,
}

/// How rows enter the table.
enum Way {
    Load {
        old: Arc<TableState>,
        loader: Box<Loader>,
        sorter: Option<Box<Sorter>>,
    },
    Insert {
        txn: Option<Box<TableTxn>>,
        rows: u64,
    },
    /// The copy has failed or is complete.
    Over,
}

impl Store {
    /// Begins to copy rows into an empty table that nobody else uses; `progress` cancels it. If the
    /// copy `leaves_out` duplicates, all unique keys are checked as rows arrive.
    ///
    /// # Errors
    /// `TableMissing`, `TreeNotEmpty`; those of storage.
    pub fn copy_into(
        self: &Arc<Self>,
        name: &str,
        leaves_out: bool,
        progress: &BuildProgress,
    ) -> Result<TableCopy> {
        let table = self.table(name)?;
        let ddl = self.lock_ddl(name, &table, &SchemaWait::default())?;
        check_loadable(&table)?;
        let old = table.state();
        self.check_empty(&old)?;
        let mut def = (*old.layout.def).clone();
        // A primary key too long to cluster on is checked as rows arrive.
        let is_late = |i: &&IndexDef| !(i.entry.primary || i.entry.unique && leaves_out);
        let late = def.indexes.iter().filter(is_late);
        let indexes = late.map(|i| def.index_spec(i)).collect::<Result<Vec<_>>>()?;
        def.indexes.retain(|i| !is_late(&i));
        let checks = !def.indexes.is_empty();
        let new = self.successor_as(&old, def)?;
        for index in &new.layout.def.indexes {
            self.runs.add_index(run_spec(index));
        }
        let loader = Loader::new(self, &table, &new, progress);
        let loader = loader.inspect_err(|_| self.forget(&new))?;
        let way = Way::Load { old, loader: Box::new(loader), sorter: None };
        drop(ddl);
        let mut copy = TableCopy {
            store: self.clone(),
            table,
            name: name.to_string(),
            progress: progress.clone(),
            indexes,
            way,
            leaves_out,
            rows: 0,
            duplicate: None,
        };
        if checks {
            copy.insert_from_now()?;
        }
        Ok(copy)
    }
}

impl TableCopy {
    /// Adds a row; `values` are all columns in order.
    ///
    /// # Errors
    /// `DuplicateKey` of a key that is checked as rows arrive: the row is left out, and the copy
    /// may continue. After any other error it may not; `BuildCancelled` if its progress was
    /// cancelled.
    pub fn push(&mut self, values: &[ValueRef<'_>]) -> Result<()> {
        self.push_row(values)?;
        self.rows += 1;
        Ok(())
    }

    fn push_row(&mut self, values: &[ValueRef<'_>]) -> Result<()> {
        if let Way::Load { loader, sorter, .. } = &mut self.way {
            let pushed = match sorter {
                None => loader.push(values),
                Some(sorter) => loader.encode(values).and_then(|(key, row)| sorter.push(key, row)),
            };
            match pushed {
                Ok(()) => return Ok(()),
                Err(error) if error.code() == Code::RowsNotSorted && !self.leaves_out => {
                    return self.sort_from_now(values);
                }
                Err(error) if matches!(error.code(), Code::RowsNotSorted | Code::RowTooLong) => {
                    self.insert_from_now()?;
                }
                Err(error) => return Err(error),
            }
        }
        self.insert(values)
    }

    fn insert(&mut self, values: &[ValueRef<'_>]) -> Result<()> {
        let Way::Insert { txn, rows } = &mut self.way else {
            return Err(Error::internal("a row for a copy that is over"));
        };
        let txn = match txn {
            Some(txn) => txn,
            None => {
                let begun = self.store.begin(Isolation::ReadCommitted, Access::ReadWrite);
                self.progress.insert_by(begun.handle())?;
                txn.insert(Box::new(begun))
            }
        };
        // If a wait was cancelled, the copy was cancelled.
        txn.insert(&self.table, values).or_else(|error| self.progress.check().and(Err(error)))?;
        *rows += 1;
        if *rows < ROWS_OF_TXN {
            return Ok(());
        }
        *rows = 0;
        self.commit()
    }

    /// Ends the transaction that inserts, if there is one.
    fn commit(&mut self) -> Result<()> {
        let Way::Insert { txn, .. } = &mut self.way else { return Ok(()) };
        txn.take().map_or(Ok(()), |txn| txn.commit(Durability::Lazy).map(drop))
    }

    /// The number of rows that were added.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The indexes that are built at the end.
    pub fn late_indexes(&self) -> impl Iterator<Item = &str> {
        self.indexes.iter().map(|index| index.name.as_str())
    }

    /// Completes the copy: all rows are in the table, the indexes are built, and both are durable
    /// when this returns.
    ///
    /// # Errors
    /// `DuplicateKey` and `DuplicateInBuild`, with details in the copy's progress; the row is then
    /// in the table. `BuildCancelled`; those of storage.
    pub fn finish(&mut self) -> Result<()> {
        let done = self.end();
        self.progress.end();
        done
    }

    fn end(&mut self) -> Result<()> {
        self.put_in_place()?;
        self.commit()?;
        self.way = Way::Over;
        if let Some(key) = self.duplicate.take() {
            self.progress.tell_duplicate(&self.name, &key);
            let error = Error::new(Code::DuplicateKey).with("table", &self.name);
            return Err(error.with("index", "primary"));
        }
        self.progress.check()?;
        if self.indexes.is_empty() {
            return self.store.log.wait_durable(self.store.log.end());
        }
        self.store.add_indexes(&self.name, &self.indexes, &self.progress)
    }

    /// A row came in another order: it is sorted together with all loaded rows and those that
    /// follow.
    fn sort_from_now(&mut self, values: &[ValueRef<'_>]) -> Result<()> {
        let Way::Load { old, loader, .. } = std::mem::replace(&mut self.way, Way::Over) else {
            return Err(Error::internal("rows are sorted that are not loaded"));
        };
        let loaded = loader.state().clone();
        let begun = Sorter::new(&self.store, &self.progress);
        let sorter = begun.and_then(|sorter| self.take_back(*loader, sorter));
        // The sorted rows have no index.
        let def = (*loaded.layout.def).clone();
        self.store.forget(&loaded);
        let mut sorter = sorter?;
        let new = self.store.successor_as(&old, def)?;
        let loader = Loader::new(&self.store, &self.table, &new, &self.progress);
        let mut loader = loader.inspect_err(|_| self.store.forget(&new))?;
        let (key, row) = loader.encode(values)?;
        sorter.push(key, row)?;
        let (loader, sorter) = (Box::new(loader), Some(Box::new(sorter)));
        self.way = Way::Load { old, loader, sorter };
        Ok(())
    }

    fn take_back(&self, loader: Loader, mut sorter: Sorter) -> Result<Sorter> {
        let state = loader.state().clone();
        loader.finish(&self.progress)?;
        let _snapshot = self.store.txns.snapshot();
        let mut cursor = state.tree.cursor();
        cursor.seek(Bound::Unbounded, Direction::Forward)?;
        let mut rows = 0u64;
        while let Some((key, cell)) = cursor.next()? {
            sorter.push(key, cell.row)?;
            rows += 1;
            if rows.is_multiple_of(CHECK_EVERY) {
                self.progress.check()?;
            }
        }
        Ok(sorter)
    }

    /// Inserts rows from the next one on.
    fn insert_from_now(&mut self) -> Result<()> {
        self.put_in_place()?;
        self.way = Way::Insert { txn: None, rows: 0 };
        Ok(())
    }

    /// Replaces the empty tree by the loaded one, if rows were loaded. Durable with the changes
    /// that follow.
    fn put_in_place(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.way, Way::Over) {
            Way::Load { old, mut loader, sorter } => {
                let new = loader.state().clone();
                let sorted = sorter.map_or(Ok(()), |s| self.load_sorted(&mut loader, *s));
                let done = sorted.and_then(|()| self.end_load(&old, *loader));
                done.inspect_err(|_| self.store.forget(&new))
            }
            Way::Over => Err(Error::internal("a copy that is over")),
            insert => {
                self.way = insert;
                Ok(())
            }
        }
    }

    /// Of rows with one key the first is loaded.
    fn load_sorted(&mut self, loader: &mut Loader, sorter: Sorter) -> Result<()> {
        let mut entries = sorter.finish()?;
        let mut rows = 0u64;
        while let Some((key, row)) = entries.next()? {
            match loader.push_encoded(key, row) {
                Err(error) if error.code() == Code::RowsNotSorted => {
                    self.duplicate.get_or_insert_with(|| key.to_vec());
                }
                pushed => pushed?,
            }
            rows += 1;
            if rows.is_multiple_of(CHECK_EVERY) {
                self.progress.check()?;
                self.store.rt.step();
            }
        }
        Ok(())
    }

    fn end_load(&self, old: &Arc<TableState>, loader: Loader) -> Result<()> {
        let (store, table, wait) = (&self.store, &self.table, SchemaWait::default());
        let _ddl = store.lock_ddl(&self.name, table, &wait)?;
        table.close(&store.rt, store.lock_wait(), &wait)?;
        let _closed = Closed(table);
        if !Arc::ptr_eq(&table.state(), old) {
            return Err(Error::internal("a table was changed while rows were copied into it"));
        }
        store.check_empty(old)?;
        let new = loader.state().clone();
        let rows = loader.finish(&self.progress)?;
        store.rt.metrics.add(Metric::RowsLoaded, rows);
        let change = |txn: &mut TableTxn| store.put_successor(txn, old, &new.layout.def);
        let born = store.change_catalog_at(Durability::Lazy, change)?;
        store.replace(table, old, &new, born);
        store.note_changes(table, rows);
        Ok(())
    }
}

impl Drop for TableCopy {
    fn drop(&mut self) {
        if let Way::Load { loader, .. } = std::mem::replace(&mut self.way, Way::Over) {
            let new = loader.state().clone();
            drop(loader);
            self.store.forget(&new);
        }
    }
}
