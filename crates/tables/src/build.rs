//! Adding indexes while writers go on (architecture 4.11, protocol F).
//!
//! 1. Barrier: the indexes are published as BUILDING at a new schema epoch; from now on every row
//!    operation writes their entries. Transactions that changed the table before are waited for.
//! 2. One scan of the table, by several threads, takes the latest committed version of each row and
//!    sorts its entries (`scan`); their runs become the oldest of each index.
//! 3. For unique indexes a second barrier makes changes check them too (a duplicate marks the build
//!    failed, the statement goes on), then one pass over the index proves uniqueness.
//! 4. One transaction on the catalog makes them VALID; older snapshots may not use them.
//!
//! Any row state is either seen by the scan or written after the barrier by a change that knows the
//! index; the build's runs are the oldest, so what changes wrote comes first. A crash or failure
//! before 4 leaves runs without a catalog row, which are dropped.

use crate::alter::PROVISIONAL;
use crate::catalog::{NextId, run_spec};
use crate::schema::{IndexDef, IndexSpec, TableDef};
use crate::store::Store;
use crate::table::{SchemaWait, Table, TableState};
use evenkeel_base::{Cause, Code, Error, IndexId, Lsn, Result, Snapshot, TreeId, TxnId, UndoNo};
use evenkeel_format::catalog::IndexState;
use evenkeel_format::record::cell_flags;
use evenkeel_io::EventGuard;
use evenkeel_log::Durability;
use evenkeel_tree::LeafRow;
use evenkeel_txn::Txns;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

mod keys;
mod progress;
pub(crate) mod scan;

pub use progress::BuildProgress;

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
    /// Writing what was read as runs; reading may go on afterwards.
    Writing = 3,
    /// Proving uniqueness.
    Checking = 4,
    /// Done.
    Done = 5,
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
        let built = self.build_indexes(table, specs, progress);
        progress.end();
        built
    }

    fn build_indexes(
        self: &Arc<Self>,
        table: &str,
        specs: &[IndexSpec],
        progress: &BuildProgress,
    ) -> Result<()> {
        let (name, table) = (table, self.table(table)?);
        let _ddl = self.lock_to_build(name, &table, progress)?;
        if specs.is_empty() {
            return Ok(());
        }
        // A change that was made ready beside the build before this one may have come late.
        table.clear_build();
        let old = table.state();
        let mut def = (*old.shape.def).clone();
        let mut added = Vec::new();
        for spec in specs {
            let id = IndexId(self.next_id(NextId::Index)?);
            def.push_index(spec, id, IndexState::Building, self.rules)?;
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
        built
    }

    /// Waits until the build is in another phase than `known`, not longer than `timeout`; tells it.
    pub fn wait_build(
        &self,
        progress: &BuildProgress,
        known: BuildPhase,
        timeout: Duration,
    ) -> BuildPhase {
        let changed = || progress.phase() != known;
        self.rt.wait_at_most(&progress.inner.entered, Cause::Idle, timeout, changed);
        progress.phase()
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
        self.wait_writers(table, progress)?;
        scan::build_runs(self, &table.state(), added, progress)?;
        if self.added(table, added).iter().any(|i| i.entry.unique) {
            self.prove_unique(table, added, progress)?;
        }
        progress.check()?;
        self.make_valid(table, added)?;
        progress.complete();
        Ok(())
    }

    fn added(&self, table: &Table, added: &[IndexId]) -> Vec<IndexDef> {
        let def = table.shape().def.clone();
        def.indexes.iter().filter(|i| added.contains(&i.id)).cloned().collect()
    }

    /// Waits for another schema change of the table, unless the build is cancelled.
    fn lock_to_build<'t>(
        &self,
        name: &str,
        table: &'t Arc<Table>,
        progress: &BuildProgress,
    ) -> Result<EventGuard<'t>> {
        let cancelled = || progress.check().is_err();
        let timeout = Some(self.build_wait(progress));
        let wait = SchemaWait { timeout, cancelled: Some(&cancelled), ..SchemaWait::default() };
        let locked = self.lock_ddl(name, table, &wait);
        locked.map_err(|error| match error.code() {
            Code::StatementCancelled => Error::new(Code::BuildCancelled),
            _ => error,
        })
    }

    fn build_wait(&self, progress: &BuildProgress) -> Duration {
        progress.inner.lock_wait.lock().unwrap_or_else(|| self.lock_wait())
    }

    /// The wait of a barrier: a lock wait with timeout, ended at once by `cancel` (F1).
    fn wait_writers(&self, table: &Table, progress: &BuildProgress) -> Result<()> {
        *progress.inner.waits_for.lock() = Some(table.users_event());
        let wait = self.build_wait(progress);
        let waited = table.wait_writers(&self.rt, wait, &|| progress.check());
        *progress.inner.waits_for.lock() = None;
        waited
    }

    /// Publishes a definition in memory only.
    fn publish_def(&self, table: &Table, def: TableDef) -> Result<()> {
        let old = table.state();
        let shape = self.next_shape(&old.shape, def)?;
        table.publish(&self.rt, TableState { shape, tree: old.tree.clone() });
        Ok(())
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
        self.wait_writers(table, progress)?;
        self.check_duplicates(&table.state(), added, progress, &|| table.build_failed())
    }

    /// Reads the unique ones of the added indexes at a snapshot; two rows of one key, or what
    /// `failed` says, are an error.
    pub(crate) fn check_duplicates(
        &self,
        state: &TableState,
        added: &[IndexId],
        progress: &BuildProgress,
        failed: &dyn Fn() -> bool,
    ) -> Result<()> {
        let _building = self.rt.building();
        let unique = state.shape.indexes.iter().filter(|i| added.contains(&i.id) && i.unique);
        progress.begin(BuildPhase::Checking, self.rt.env.now_ns());
        for (n, index) in (1..).zip(unique) {
            progress.check()?;
            let guard = self.txns.snapshot();
            let has_null = |key: &[u8]| index.has_null(key).unwrap_or(false);
            let snapshot = guard.committed();
            self.rt.begin_build_work();
            let check = |entries: u64| {
                progress.add_checked(entries, self.rt.env.now_ns());
                self.rt.step();
                self.rt.give_way_to_users(1);
                progress.check()
            };
            let found = self.runs.find_duplicate(index.id, snapshot, &has_null, &check)?;
            if let Some(found) = &found {
                (*progress.inner.duplicate.lock()).clone_from(&found.first_pk);
            }
            if found.is_some() || failed() {
                return Err(Error::new(Code::DuplicateInBuild).with("index", &index.name));
            }
            progress.checked_all_of(n, self.rt.env.now_ns());
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
        // Of indexes without a name of their own nobody is told: the change that names them lies
        // behind this one in the log, so it is not durable before.
        let mut new = def.indexes.iter().filter(|i| added.contains(&i.id));
        let durability = match new.all(|i| i.name.starts_with(PROVISIONAL)) {
            true => Durability::Lazy,
            false => Durability::Sync,
        };
        self.change_catalog_at(durability, |txn| {
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

/// The latest committed version of a row, from its cell; the caller's snapshot is older than the
/// cell's copy (A5).
pub(crate) fn newest_committed<'c>(
    txns: &Txns,
    tree: TreeId,
    key: &[u8],
    cell: &LeafRow<'c>,
) -> Result<Option<Cow<'c, [u8]>>> {
    let newest = Snapshot { at: Lsn::MAX, own: TxnId::ZERO, own_below: UndoNo::ZERO };
    let stamped = cell.flags & cell_flags::STAMPED != 0;
    if stamped && !newest.sees(cell.stamp, txns) {
        let before = txns.visible_before(tree, key, cell.stamp, &newest)?;
        return Ok(before.row.map(Cow::Owned));
    }
    let deleted = cell.flags & cell_flags::DELETED != 0;
    Ok((!deleted).then_some(Cow::Borrowed(cell.row)))
}
