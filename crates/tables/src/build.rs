//! Adding indexes while writers go on (architecture 4.11, protocol F).
//!
//! 1. Barrier: the indexes are published as BUILDING at a new schema epoch; from now on every row
//!    operation writes their entries. Transactions that changed the table before are waited for.
//! 2. One scan of the table takes the latest committed version of each row and gives its entries
//!    to sorters; their runs become the oldest of each index.
//! 3. For unique indexes a second barrier makes changes check them too (a duplicate marks the build
//!    failed, the statement goes on), then one pass over the index proves uniqueness.
//! 4. One transaction on the catalog makes them VALID; older snapshots may not use them.
//!
//! Any row state is either seen by the scan or written after the barrier by a change that knows the
//! index; the build's runs are the oldest, so what changes wrote comes first. A crash or failure
//! before 4 leaves runs without a catalog row, which are dropped.

use crate::catalog::{NextId, run_spec};
use crate::overflow;
use crate::schema::{IndexDef, IndexSpec, TableDef};
use crate::store::Store;
use crate::table::{Table, TableState};
use evenkeel_base::{Code, Error, IndexId, Lsn, Result, Snapshot, TxnId, UndoNo};
use evenkeel_format::catalog::IndexState;
use evenkeel_format::record::cell_flags;
use evenkeel_runs::RunBuilder;
use evenkeel_tree::Direction;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Rows read under one registered snapshot: undo is not held back for the whole scan.
const SNAPSHOT_ROWS: u64 = 1024;

/// Phase of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BuildPhase {
    /// Not begun.
    Idle = 0,
    /// Waiting for transactions that changed the table before.
    Waiting = 1,
    /// Reading the table.
    Scanning = 2,
    /// Writing what is left of the runs.
    Writing = 3,
    /// Proving uniqueness.
    Checking = 4,
    /// Done.
    Done = 5,
}

/// Progress of a build, and the way to cancel it from another thread.
#[derive(Default)]
pub struct BuildProgress {
    phase: AtomicU8,
    rows_done: AtomicU64,
    rows_total: AtomicU64,
    cancelled: AtomicBool,
}

impl BuildProgress {
    /// Where it is.
    pub fn phase(&self) -> BuildPhase {
        match self.phase.load(Ordering::Relaxed) {
            0 => BuildPhase::Idle,
            1 => BuildPhase::Waiting,
            2 => BuildPhase::Scanning,
            3 => BuildPhase::Writing,
            4 => BuildPhase::Checking,
            _ => BuildPhase::Done,
        }
    }

    /// Rows read so far.
    pub fn rows_done(&self) -> u64 {
        self.rows_done.load(Ordering::Relaxed)
    }

    /// Rows the table had at the beginning, estimated.
    pub fn rows_total(&self) -> u64 {
        self.rows_total.load(Ordering::Relaxed)
    }

    /// Ends the build with `BuildCancelled`, leaving nothing behind.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    fn enter(&self, phase: BuildPhase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    fn check(&self) -> Result<()> {
        match self.cancelled.load(Ordering::SeqCst) {
            true => Err(Error::new(Code::BuildCancelled)),
            false => Ok(()),
        }
    }
}

impl Store {
    /// Adds indexes to a table in one pass over it, while others read and write.
    ///
    /// # Errors
    /// `TableMissing`, `IndexExists` and other faults of the definition, `TableBusy`,
    /// `DuplicateInBuild`, `BuildCancelled`; nothing is left behind then.
    pub fn add_indexes(
        self: &Arc<Self>,
        table: &str,
        specs: &[IndexSpec],
        progress: &BuildProgress,
    ) -> Result<()> {
        let (name, table) = (table, self.table(table)?);
        let _ddl = self.lock_ddl(name, &table)?;
        let old = table.state();
        let mut def = (*old.shape.def).clone();
        let mut added = Vec::new();
        for spec in specs {
            let id = IndexId(self.next_id(NextId::Index)?);
            def.push_index(spec, id, IndexState::Building)?;
            added.push(id);
        }
        for index in def.indexes.iter().filter(|i| added.contains(&i.id)) {
            self.runs.add_index(run_spec(index));
        }
        let built = self.build(&table, def, &added, progress);
        if built.is_err() {
            self.abandon(&table, &added);
        }
        table.clear_build();
        progress.enter(BuildPhase::Done);
        built
    }

    fn build(
        self: &Arc<Self>,
        table: &Arc<Table>,
        def: TableDef,
        added: &[IndexId],
        progress: &BuildProgress,
    ) -> Result<()> {
        self.publish_def(table, def)?;
        progress.enter(BuildPhase::Waiting);
        let wait = self.options.lock_wait;
        table.wait_writers(&self.rt, wait, &|| progress.check())?;
        self.build_runs(table, added, progress)?;
        if self.added(table, added).iter().any(|i| i.entry.unique) {
            self.prove_unique(table, added, progress)?;
        }
        progress.check()?;
        self.make_valid(table, added)
    }

    fn added(&self, table: &Table, added: &[IndexId]) -> Vec<IndexDef> {
        let def = table.shape().def.clone();
        def.indexes.iter().filter(|i| added.contains(&i.id)).cloned().collect()
    }

    /// Publishes a definition in memory only.
    fn publish_def(&self, table: &Table, def: TableDef) -> Result<()> {
        let old = table.state();
        let shape = self.next_shape(&old.shape, def)?;
        table.publish(&self.rt, TableState { shape, tree: old.tree.clone() });
        Ok(())
    }

    /// The scan: one pass over the table for all indexes.
    fn build_runs(
        self: &Arc<Self>,
        table: &Arc<Table>,
        added: &[IndexId],
        progress: &BuildProgress,
    ) -> Result<()> {
        let state = table.state();
        let arena = self.options.build_arena_bytes / added.len().max(1);
        let mut builders: Vec<RunBuilder> =
            added.iter().map(|id| self.runs.build(*id, arena)).collect();
        let total = state.tree.estimate(Bound::Unbounded, Bound::Unbounded)?;
        progress.rows_total.store(total, Ordering::Relaxed);
        progress.enter(BuildPhase::Scanning);
        let mut from: Option<Vec<u8>> = None;
        loop {
            progress.check()?;
            self.rt.step();
            from = self.scan_slice(&state, from, &mut builders, progress)?;
            if from.is_none() {
                break;
            }
        }
        progress.enter(BuildPhase::Writing);
        for builder in builders {
            let index = builder.index();
            let part = builder.finish()?;
            progress.check()?;
            self.runs.install(index, vec![part])?;
        }
        Ok(())
    }

    /// Reads some rows after `from`; returns the last key, none at the end.
    fn scan_slice(
        &self,
        state: &TableState,
        from: Option<Vec<u8>>,
        builders: &mut [RunBuilder],
        progress: &BuildProgress,
    ) -> Result<Option<Vec<u8>>> {
        // Registered before the first leaf is read: undo and ids stay (A5).
        let _guard = self.txns.snapshot();
        let newest = Snapshot { at: Lsn::MAX, own: TxnId::ZERO, own_below: UndoNo::ZERO };
        let mut cursor = state.tree.cursor();
        cursor.set_use_once(true);
        match &from {
            Some(key) => cursor.seek(Bound::Excluded(key), Direction::Forward)?,
            None => cursor.seek(Bound::Unbounded, Direction::Forward)?,
        }
        let mut part = Vec::new();
        let mut rows = 0;
        while let Some((key, cell)) = cursor.next()? {
            let stamped = cell.flags & cell_flags::STAMPED != 0;
            if !stamped || newest.sees(cell.stamp, &*self.txns) {
                if cell.flags & cell_flags::DELETED == 0 {
                    push_entries(state, key, cell.row, builders, &mut part)?;
                }
            } else {
                let tree = state.tree.id();
                let version = self.txns.visible_before(tree, key, cell.stamp, &newest)?;
                if let Some(row) = version.row {
                    push_entries(state, key, &row, builders, &mut part)?;
                }
            }
            rows += 1;
            progress.rows_done.fetch_add(1, Ordering::Relaxed);
            if rows == SNAPSHOT_ROWS {
                return Ok(Some(key.to_vec()));
            }
        }
        Ok(None)
    }

    /// F3: from here on changes check the indexes; then a pass at a snapshot proves that no two
    /// rows have equal keys.
    fn prove_unique(
        self: &Arc<Self>,
        table: &Arc<Table>,
        added: &[IndexId],
        progress: &BuildProgress,
    ) -> Result<()> {
        progress.enter(BuildPhase::Checking);
        self.publish_def(table, with_states(table, added, IndexState::Checking))?;
        table.wait_writers(&self.rt, self.options.lock_wait, &|| progress.check())?;
        let state = table.state();
        for index in state.shape.indexes.iter().filter(|i| added.contains(&i.id) && i.unique) {
            progress.check()?;
            let guard = self.txns.snapshot();
            let has_null = |key: &[u8]| index.has_null(key).unwrap_or(false);
            let found = self.runs.find_duplicate(index.id, guard.committed(), &has_null)?;
            if found.is_some() || table.build_failed() {
                return Err(Error::new(Code::DuplicateInBuild).with("index", &index.name));
            }
        }
        Ok(())
    }

    fn make_valid(self: &Arc<Self>, table: &Arc<Table>, added: &[IndexId]) -> Result<()> {
        // The catalog says VALID from the beginning of the log position at which it is logged; the
        // state in memory says the same.
        let from = self.txns.published();
        let def = with_states(table, added, IndexState::Valid(from));
        // From here on a duplicate fails the statement that brings it, not the build.
        if !table.decide_build() {
            return Err(Error::new(Code::DuplicateInBuild).with("table", &def.name));
        }
        self.change_catalog(|txn| {
            for index in def.indexes.iter().filter(|i| added.contains(&i.id)) {
                self.put_index(txn, def.id, index)?;
            }
            Ok(())
        })?;
        for id in added {
            self.runs.set_valid(*id, from);
        }
        self.publish_def(table, def)
    }

    /// Takes the indexes of a failed build away again.
    fn abandon(&self, table: &Table, added: &[IndexId]) {
        let mut def = (*table.shape().def).clone();
        def.indexes.retain(|i| !added.contains(&i.id));
        if let Err(error) = self.publish_def(table, def) {
            log::warn!("table {}: {error}", table.id());
        }
        for id in added {
            if let Err(error) = self.runs.drop_index(*id) {
                log::warn!("index {id}: runs not dropped: {error}");
            }
        }
    }
}

/// The table's definition with the added indexes in another state.
fn with_states(table: &Table, added: &[IndexId], state: IndexState) -> TableDef {
    let mut def = (*table.shape().def).clone();
    for index in def.indexes.iter_mut().filter(|i| added.contains(&i.id)) {
        index.entry.state = state;
    }
    def
}

fn push_entries(
    state: &TableState,
    key: &[u8],
    row: &[u8],
    builders: &mut [RunBuilder],
    part: &mut Vec<u8>,
) -> Result<()> {
    let loaded = overflow::load(&state.tree, &state.shape, key, row)?;
    let view = state.shape.view(key, row)?.with_loaded(&loaded);
    for builder in builders {
        let index = state.shape.indexes.iter().find(|i| i.id == builder.index());
        let index = index.ok_or_else(|| Error::internal("a build of an unknown index"))?;
        part.clear();
        index.encode(&|i| view.value(i), key.len(), part)?;
        builder.push(part, key, &[])?;
    }
    Ok(())
}
