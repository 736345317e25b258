//! Inspects an open database: figures of one table without reading it, a check of one table,
//! transactions and locks.

use crate::Database;
use crate::api::stats::{CheckReport, IndexStats};
use evenkeel_base::{IndexId, Result};
use evenkeel_format::catalog::IndexState;
use evenkeel_runs::CompactionFigures;
use evenkeel_tables::schema::IndexDef;
use evenkeel_tables::{CheckProgress, Table, TableState};
use evenkeel_tree::Size;
use evenkeel_txn::{LockSpace, Mode, TxnInfo};
use std::collections::HashMap;

/// Figures of a table that cost a few page reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableInfo {
    /// Number of the table in the catalog, never reused.
    pub id: u32,
    /// Rows, estimated.
    pub rows_estimate: u64,
    /// Columns.
    pub columns: u64,
    /// Row formats that its rows may have: the number of changes of its columns plus one.
    pub row_formats: u64,
    /// Clustered on a hidden id: it has no primary key, or one that may be longer than a clustered
    /// key may be (a fifth of a page) and is therefore kept in an index. A read by such a key takes
    /// two steps.
    pub hidden_key: bool,
    /// A number that differs after each change of its columns or indexes.
    pub definition: u64,
    /// The mark of its last marked change, 0 for none (`TableChange::mark`).
    pub mark: u64,
    /// Bytes of the pages that belong to its rows: those of long values and free ones included.
    pub row_bytes: u64,
    /// Its indexes, and whether each may be read.
    pub indexes: Vec<(IndexStats, bool)>,
}

/// A lock that is held or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockFigures {
    /// Transaction.
    pub txn: u64,
    /// Table; empty if it was dropped meanwhile.
    pub table: String,
    /// Index; empty for the rows themselves.
    pub index: String,
    /// No other transaction may lock it.
    pub exclusive: bool,
    /// False while the transaction waits for it.
    pub granted: bool,
    /// A range of keys, not one.
    pub range: bool,
    /// The key as the engine encodes it, or the lower bound of the range.
    pub key: Vec<u8>,
}

/// A compaction that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MergeInfo {
    /// Table; empty if the index was dropped meanwhile, or is being built.
    pub table: String,
    /// Index; empty as `table` is.
    pub index: String,
    /// Runs that become one.
    pub runs: u64,
    /// Bytes of them that are done.
    pub bytes_done: u64,
    /// Bytes of them in all.
    pub bytes: u64,
    /// Writers need it; other compactions make reads faster or free space.
    pub required: bool,
}

/// The approximate size of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSize {
    /// Rows.
    pub rows: u64,
    /// Bytes of the pages that hold them.
    pub bytes: u64,
}

impl Database {
    /// The approximate number of rows of a table, cheap enough for every statement.
    ///
    /// # Errors
    /// `TableMissing`, `DatabaseClosed`, of storage.
    pub fn rows_estimate(&self, table: &str) -> Result<u64> {
        Ok(self.size_estimate(table)?.rows)
    }

    /// As `rows_estimate`, with the bytes of the pages that hold the rows, without overflow chains
    /// of long values.
    ///
    /// # Errors
    /// As `rows_estimate`.
    pub fn size_estimate(&self, table: &str) -> Result<TableSize> {
        self.check_open()?;
        let size = self.figures_of(table, |table, _| self.engine.store.size_estimate(table))?;
        Ok(self.size_of(size))
    }

    fn size_of(&self, size: Size) -> TableSize {
        let page_bytes = self.engine.pages.page_size() as u64;
        TableSize { rows: size.rows, bytes: size.leaves * page_bytes }
    }

    /// As `size_estimate`, of the table that has a handle's name now.
    ///
    /// # Errors
    /// As `size_estimate`.
    #[cfg(feature = "server")]
    pub fn size_estimate_of(&self, handle: &mut evenkeel_tables::TableHandle) -> Result<TableSize> {
        self.check_open()?;
        let table = self.engine.store.table_of(handle)?;
        match self.engine.store.size_estimate(&table) {
            Ok(size) => Ok(self.size_of(size)),
            // The table may have been dropped or emptied meanwhile.
            Err(_) => self.size_estimate(handle.name()),
        }
    }

    /// Figures of a table from its inner pages and the list of runs.
    ///
    /// # Errors
    /// `TableMissing`, and of storage.
    pub fn table_info(&self, table: &str) -> Result<TableInfo> {
        self.figures_of(table, |table, state| self.info_of(table, state))
    }

    fn info_of(&self, table: &Table, state: &TableState) -> Result<TableInfo> {
        let def = &state.layout.def;
        // Keeps the trees of dropped chunks.
        let _keeps = self.engine.txns.snapshot();
        let trees = table.trees();
        let indexes = def.indexes.iter().map(|index| {
            (self.index_stats(table, index), matches!(index.entry.state, IndexState::Valid(_)))
        });
        Ok(TableInfo {
            id: def.id.0,
            rows_estimate: self.engine.store.size_estimate(table)?.rows,
            columns: def.live_columns().len() as u64,
            row_formats: u64::from(def.entry.row_version),
            hidden_key: def.entry.hidden_key,
            definition: def.fingerprint(),
            mark: table.mark(),
            row_bytes: trees.iter().map(|t| self.engine.pages.space_bytes_of(t.id())).sum(),
            indexes: indexes.collect(),
        })
    }

    /// Figures of an index, in a chunked table of those of all chunks.
    pub(crate) fn index_stats(&self, table: &Table, index: &IndexDef) -> IndexStats {
        let mut stats = IndexStats { name: index.name.clone(), ..IndexStats::default() };
        for id in table.index_ids(index.id) {
            let runs = self.engine.runs.stats(id);
            stats.runs += runs.runs;
            stats.run_entries += runs.run_entries;
            stats.run_bytes += runs.run_bytes;
            stats.resident_bytes += runs.resident_bytes;
        }
        stats
    }

    /// Checks one table: tree structure, files of indexes, and each index against the rows in both
    /// directions. Writers continue. The table is intact if there are no problems.
    ///
    /// # Errors
    /// `TableMissing`; errors that keep the check from continuing.
    pub fn check_table(&self, table: &str) -> Result<CheckReport> {
        self.engine.store.check_table(table)
    }

    /// As `check_table`; `cancelled` hears the progress and ends the check by returning true.
    ///
    /// # Errors
    /// As `check_table`; `StatementCancelled`.
    pub fn check_table_until(
        &self,
        table: &str,
        cancelled: &dyn Fn(CheckProgress) -> bool,
    ) -> Result<CheckReport> {
        self.engine.store.check_table_until(table, cancelled)
    }

    /// True once a failed write or sync has stopped writes: reads go on, the next open recovers.
    pub fn writes_stopped(&self) -> bool {
        self.engine.rt.health.check_writable().is_err()
    }

    /// Compactions under way, except those of indexes so small that many are compacted at once.
    pub fn merges(&self) -> Vec<MergeInfo> {
        let merges = self.engine.runs.compactions_under_way();
        let mut names: HashMap<IndexId, (String, String)> = HashMap::new();
        let wanted = |id: IndexId| merges.iter().any(|merge| merge.index == id);
        for table in if merges.is_empty() { Vec::new() } else { self.tables() } {
            let Ok(found) = self.engine.store.table(&table) else { continue };
            let state = found.state();
            for index in &state.layout.def.indexes {
                for id in found.index_ids(index.id).into_iter().filter(|id| wanted(*id)) {
                    names.insert(id, (table.clone(), index.name.clone()));
                }
            }
        }
        let info = |merge: &CompactionFigures| {
            let (table, index) = names.get(&merge.index).cloned().unwrap_or_default();
            let bytes_done = merge.bytes.saturating_sub(merge.left_bytes);
            let (runs, bytes, required) = (merge.runs as u64, merge.bytes, merge.required);
            MergeInfo { table, index, runs, bytes_done, bytes, required }
        };
        merges.iter().map(info).collect()
    }

    /// Undecided transactions that have changed or locked something, by id.
    pub fn transactions(&self) -> Vec<TxnInfo> {
        self.engine.txns.inspect()
    }

    /// Locks on keys and ranges, `limit` at most. A changed row is locked by the change itself and
    /// is listed only while another transaction waits for it.
    pub fn locks(&self, limit: usize) -> Vec<LockFigures> {
        let states: Vec<_> = self
            .tables()
            .iter()
            .filter_map(|name| Some(self.engine.store.table(name).ok()?.state()))
            .collect();
        // Thousands of locks may belong to one lock space.
        let mut known: HashMap<LockSpace, (String, String)> = HashMap::new();
        let named = |space: LockSpace| -> Option<(String, String)> {
            states.iter().find_map(|state| {
                let def = &state.layout.def;
                match space {
                    LockSpace::Tree(id) | LockSpace::Keys(id) => {
                        (state.tree.id() == id).then(|| (def.name.clone(), String::new()))
                    }
                    LockSpace::Index(id) => {
                        let index = def.indexes.iter().find(|i| i.id == id)?;
                        Some((def.name.clone(), index.name.clone()))
                    }
                }
            })
        };
        let locks = self.engine.txns.inspect_locks(limit).into_iter().map(|lock| {
            let names = known.entry(lock.space);
            let (table, index) =
                names.or_insert_with(|| named(lock.space).unwrap_or_default()).clone();
            LockFigures {
                txn: lock.txn.0,
                table,
                index,
                exclusive: lock.mode == Mode::Exclusive,
                granted: lock.granted,
                range: lock.range,
                key: lock.key,
            }
        });
        locks.collect()
    }
}
