//! Figures of an open database (counters and gauges, waits by cause, tables and indexes) and the
//! check of the whole database.

use crate::Database;
use evenkeel_base::wait_event::StallFigures;
use evenkeel_base::{Cause, Code, Result, metrics::Metric};
use evenkeel_format::superblock::{self, Superblock};
use evenkeel_io::Rng;
pub use evenkeel_tables::TableCheck as CheckReport;
use evenkeel_tables::{Table, TableState};

/// Counters, gauges and waits at one moment.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// (name, unit, value) of every metric, in the order of `Metric::ALL`.
    pub metrics: Vec<(&'static str, &'static str, u64)>,
    /// Foreground waits by cause.
    pub stalls: Vec<(&'static str, StallFigures)>,
    /// Bytes of log that recovery would read now.
    pub log_age_bytes: u64,
}

impl Stats {
    /// The value of a metric.
    pub fn get(&self, metric: Metric) -> u64 {
        self.metrics.get(metric as usize).map_or(0, |m| m.2)
    }
}

/// What the superblock and the log say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Bytes of a page.
    pub page_size: u32,
    /// Random number drawn at creation.
    pub database_id: u64,
    /// True if the database had been closed before it was opened.
    pub clean: bool,
    /// Epoch of the log.
    pub epoch: u32,
    /// Where replay would start now.
    pub redo_lsn: u64,
    /// The newest checkpoint.
    pub checkpoint_lsn: u64,
    /// End of the log.
    pub log_end_lsn: u64,
    /// Format versions: superblock, page, log, run, catalog.
    pub versions: [u16; 5],
    /// Feature bits of the superblock: compatible, read-only, incompatible. A version that does not
    /// know a bit keeps it, may only read the directory, or refuses it.
    pub features: [u64; 3],
    /// The line of history that the directory belongs to, drawn at creation and by a restore; 0 in
    /// a directory of superblock version 1 that is open read-only.
    pub timeline: u128,
    /// The timeline that a restore took the directory from; 0 for none.
    pub parent_timeline: u128,
    /// Where this timeline left its parent.
    pub fork_lsn: u64,
}

/// Figures of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Name.
    pub name: String,
    /// Rows, estimated.
    pub rows_estimate: u64,
    /// Leaf pages of its tree; an estimate where there are more than 256.
    pub leaf_pages: u64,
    /// Bytes used in leaves, per 1,000 bytes of leaf; from 256 leaves where there are more.
    pub fill_per_mille: u64,
    /// Rows changed since the statistics of its keys were refreshed (by `analyze_table`, or
    /// automatically when a tenth has changed), counted since the open.
    pub changed_rows: u64,
    /// Milliseconds since that refresh; none if there was none since the open.
    pub analyzed_ms_ago: Option<u64>,
    /// Its indexes.
    pub indexes: Vec<IndexStats>,
}

/// Figures of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Name.
    pub name: String,
    /// Runs.
    pub runs: u64,
    /// Entries in runs, deleted and superseded ones included.
    pub run_entries: u64,
    /// Bytes of its runs.
    pub run_bytes: u64,
    /// Bytes of the fences and filters of its runs in memory.
    pub resident_bytes: u64,
}

impl Database {
    /// Counters, gauges and waits now.
    pub fn stats(&self) -> Stats {
        let rt = &self.engine.rt;
        self.engine.txns.tell_memory();
        let metric = |m: &Metric| (m.name(), m.unit(), rt.metrics.get(*m));
        let wait_event = |c: &Cause| (c.name(), rt.stalls.get(*c));
        Stats {
            metrics: Metric::ALL.iter().map(metric).collect(),
            stalls: Cause::ALL.iter().filter(|c| **c != Cause::Idle).map(wait_event).collect(),
            log_age_bytes: self.engine.log.age(),
        }
    }

    /// What the superblock and the log say now.
    pub fn info(&self) -> Info {
        let superblock = self.engine.checkpointer.superblock();
        let Superblock { features, timeline, .. } = superblock;
        Info {
            page_size: superblock.page_size,
            database_id: superblock.database_id.0,
            clean: self.engine.recovery.clean,
            epoch: superblock.epoch,
            redo_lsn: superblock.redo.0,
            checkpoint_lsn: superblock.checkpoint.0,
            log_end_lsn: self.engine.log.end().0,
            versions: [
                superblock.version,
                superblock::PAGE_VERSION,
                superblock::LOG_VERSION,
                superblock::RUN_VERSION,
                superblock::CATALOG_VERSION,
            ],
            features: [features.compatible, features.read_only, features.incompatible],
            timeline: timeline.id,
            parent_timeline: timeline.parent,
            fork_lsn: timeline.fork.0,
        }
    }

    /// Figures of every table; reads at most some hundred pages of each.
    ///
    /// # Errors
    /// Of storage.
    pub fn table_stats(&self) -> Result<Vec<TableStats>> {
        let mut tables = Vec::new();
        for name in self.tables() {
            match self.figures_of(&name, |table, state| self.stats_of(&name, table, state)) {
                Err(error) if error.code() == Code::TableMissing => {}
                stats => tables.push(stats?),
            }
        }
        Ok(tables)
    }

    /// Reads figures of a table without using it. Repeats the read if the table was dropped or
    /// emptied meanwhile, because the pages then belong to another table.
    pub(crate) fn figures_of<R>(
        &self,
        name: &str,
        read: impl Fn(&Table, &TableState) -> Result<R>,
    ) -> Result<R> {
        let store = &self.engine.store;
        loop {
            let table = store.table(name)?;
            let state = table.state();
            let figures = read(&table, &state);
            let tree = store.table(name).map(|table| table.state().tree.id());
            if figures.is_ok() || tree.is_ok_and(|tree| tree == state.tree.id()) {
                return figures;
            }
        }
    }

    fn stats_of(&self, name: &str, table: &Table, state: &TableState) -> Result<TableStats> {
        let mut stats = TableStats { name: name.to_string(), ..TableStats::default() };
        // Keeps the trees of dropped chunks.
        let _keeps = self.engine.txns.snapshot();
        stats.changed_rows = table.changes();
        stats.analyzed_ms_ago = self.engine.store.analyzed_ns_ago(table).map(|ns| ns / 1_000_000);
        let mut random = Rng::new(self.engine.rt.env.random());
        let draw = &mut |below: usize| random.below(below.max(1) as u64) as usize;
        let (mut used_bytes, mut bytes) = (0.0, 0.0);
        for tree in table.trees() {
            stats.rows_estimate += tree.estimate_all()?.rows;
            let leaves = tree.leaf_figures(draw)?;
            stats.leaf_pages += leaves.leaves.round() as u64;
            used_bytes += leaves.used_bytes;
            bytes += leaves.bytes;
        }
        stats.fill_per_mille = (1000.0 * used_bytes / bytes.max(1.0)) as u64;
        let indexes = &state.layout.def.indexes;
        stats.indexes = indexes.iter().map(|index| self.index_stats(table, index)).collect();
        Ok(stats)
    }

    /// Checks the superblock's slots and every table: tree structure, files of indexes, and each
    /// index against the rows in both directions. Writers continue. The database is intact if there
    /// are no problems.
    ///
    /// # Errors
    /// Errors that keep the check from continuing; damage is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        let mut all = CheckReport::default();
        all.problems.extend(self.engine.superblock_problems()?);
        for name in self.tables() {
            match self.engine.store.check_table(&name) {
                Ok(one) => {
                    all.rows += one.rows;
                    all.entries += one.entries;
                    all.problems.extend(one.problems);
                    all.notes.extend(one.notes);
                    let damaged = one.indexes_damaged.iter().map(|i| format!("{name}.{i}"));
                    all.indexes_damaged.extend(damaged);
                    all.rows_damaged |= one.rows_damaged;
                    all.pages_unreachable |= one.pages_unreachable;
                }
                Err(error) if error.code() == Code::TableMissing => {}
                Err(error) => all.problems.push(format!("table {name}: {error}")),
            }
        }
        Ok(all)
    }
}
