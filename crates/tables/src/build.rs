//! Adding indexes while writers continue (protocol F).
//!
//! 1. Barrier: the indexes are published as BUILDING at a new schema epoch; from now on every row
//!    operation writes their entries. The build waits for transactions that changed the table
//!    before.
//! 2. One scan of the table, by several threads, takes the latest committed version of each row and
//!    sorts its entries (`scan`); the resulting runs become the oldest of each index.
//! 3. For unique indexes a second barrier makes changes check them too (a duplicate fails the
//!    build, and the statement continues). Then one pass over the index proves uniqueness.
//! 4. One transaction on the catalog makes the indexes VALID; older snapshots may not use them.
//!
//! One build may add indexes to several tables: the barriers of all tables come first, then each
//! table is read and proved, and one transaction of step 4 covers all.
//!
//! Any row state is either seen by the scan or written after the barrier by a change that maintains
//! the index. The runs of the build are the oldest, so entries of changes take precedence. A crash
//! or failure before step 4 leaves runs without a catalog row, which are dropped.

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
use evenkeel_sched::BuildBudget;
use evenkeel_tree::LeafRow;
use evenkeel_txn::Txns;
use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

pub(crate) mod arena;
mod keys;
mod progress;
mod rebuild;
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

/// A table of a build, and the indexes that it gets.
pub(crate) struct BuildTarget {
    pub(crate) table: Arc<Table>,
    pub(crate) added: Vec<IndexId>,
}

impl BuildTarget {
    /// A change has met a duplicate in one of the indexes that are being proved.
    fn duplicate(&self) -> Error {
        let def = self.table.layout().def.clone();
        let mut unique = def.indexes.iter().filter(|i| i.entry.unique);
        let index = unique.find(|i| self.added.contains(&i.id));
        let name = index.map_or("", |i| i.name.as_str());
        Error::new(Code::DuplicateInBuild).with("table", &def.name).with("index", name)
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
        self.add_indexes_to(&[(table, specs)], progress)
    }

    /// Adds indexes to several tables, each named once, as one change: all become valid at once, or
    /// none. Writers of all the tables maintain the indexes from the beginning; the tables are read
    /// one after the other.
    ///
    /// # Errors
    /// As `add_indexes`.
    pub fn add_indexes_to(
        self: &Arc<Self>,
        tables: &[(&str, &[IndexSpec])],
        progress: &BuildProgress,
    ) -> Result<()> {
        let built = self.build_indexes(tables, progress);
        progress.end();
        built
    }

    fn build_indexes(
        self: &Arc<Self>,
        tables: &[(&str, &[IndexSpec])],
        progress: &BuildProgress,
    ) -> Result<()> {
        let tables = self.tables_by_id(tables)?;
        let mut held = Vec::new();
        for (name, table, _) in &tables {
            held.push(self.lock_to_build(name, table, progress)?);
        }
        let mut wanted = tables.iter().filter(|(_, _, specs)| !specs.is_empty()).peekable();
        if wanted.peek().is_none() {
            return Ok(());
        }
        let mut targets = Vec::new();
        let begun = wanted.try_for_each(|(_, table, specs)| {
            targets.push(self.begin_build(table, specs)?);
            Ok(())
        });
        let built = begun.and_then(|()| self.build(&targets, progress));
        for target in &targets {
            if built.is_err() {
                self.abandon(target);
            }
            target.table.clear_build();
        }
        built
    }

    /// The barrier: from here on writers of the table maintain the new indexes.
    pub(crate) fn begin_build(
        self: &Arc<Self>,
        table: &Arc<Table>,
        specs: &[IndexSpec],
    ) -> Result<BuildTarget> {
        // A change prepared during the previous build may have set the flag late.
        table.clear_build();
        let mut def = (*table.layout().def).clone();
        let mut added = Vec::new();
        for spec in specs {
            let id = IndexId(self.next_id(NextId::Index)?);
            def.push_index(spec, id, IndexState::Building, self.rules)?;
            added.push(id);
        }
        for index in def.indexes.iter().filter(|i| added.contains(&i.id)) {
            self.runs.add_index(run_spec(index));
        }
        let target = BuildTarget { table: table.clone(), added };
        match self.publish_def(table, def) {
            Ok(()) => Ok(target),
            Err(error) => {
                self.abandon(&target);
                Err(error)
            }
        }
    }

    /// Waits at most `timeout` until the build is in a phase other than `known`; returns the phase.
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

    fn build(self: &Arc<Self>, targets: &[BuildTarget], progress: &BuildProgress) -> Result<()> {
        progress.enter(BuildPhase::Waiting);
        for target in targets {
            self.wait_writers(&target.table, progress)?;
        }
        for (at, target) in targets.iter().enumerate() {
            let (before, behind) = (&targets[..at], &targets[at + 1..]);
            let mut rows = 0;
            for BuildTarget { table, .. } in behind {
                rows += table.state().tree.estimate(Bound::Unbounded, Bound::Unbounded)?;
            }
            progress.begin_table(rows);
            // Fail early if a writer of a table that was proved has met a duplicate since.
            if let Some(failed) = before.iter().find(|t| t.table.build_failed()) {
                return Err(failed.duplicate());
            }
            self.build_one(target, progress)?;
        }
        progress.check()?;
        self.make_valid(targets)?;
        progress.complete();
        Ok(())
    }

    /// Reads one table and proves its unique indexes.
    fn build_one(self: &Arc<Self>, target: &BuildTarget, progress: &BuildProgress) -> Result<()> {
        let BuildTarget { table, added } = target;
        scan::build_runs(self, &table.state(), added, progress)?;
        if self.added(table, added).iter().any(|i| i.entry.unique) {
            let proved = self.prove_unique(table, added, progress);
            if proved.as_ref().is_err_and(|error| error.code() == Code::DuplicateInBuild) {
                progress.inner.duplicate_in.lock().clone_from(&table.layout().def.name);
            }
            return proved;
        }
        Ok(())
    }

    fn added(&self, table: &Table, added: &[IndexId]) -> Vec<IndexDef> {
        let def = table.layout().def.clone();
        def.indexes.iter().filter(|i| added.contains(&i.id)).cloned().collect()
    }

    /// Waits for another schema change of the table, unless the build is cancelled.
    pub(crate) fn lock_to_build<'t>(
        &self,
        name: &str,
        table: &'t Arc<Table>,
        progress: &BuildProgress,
    ) -> Result<EventGuard<'t>> {
        let cancelled = || progress.check().is_err();
        let timeout = Some(self.build_wait(progress));
        let wait = SchemaWait { timeout, cancelled: Some(&cancelled), ..SchemaWait::default() };
        self.lock_ddl(name, table, &wait).map_err(as_build)
    }

    fn build_wait(&self, progress: &BuildProgress) -> Duration {
        progress.inner.lock_wait.lock().unwrap_or_else(|| self.lock_wait())
    }

    /// The wait of a barrier: like a lock wait, with a timeout; `cancel` ends it at once (F1).
    pub(crate) fn wait_writers(&self, table: &Table, progress: &BuildProgress) -> Result<()> {
        *progress.inner.waits_for.lock() = Some(table.users_event());
        let wait = self.build_wait(progress);
        let waited = table.wait_writers(&self.rt, wait, &|| progress.check());
        *progress.inner.waits_for.lock() = None;
        waited
    }

    /// Publishes a definition in memory only.
    fn publish_def(&self, table: &Table, def: TableDef) -> Result<()> {
        let old = table.state();
        let layout = self.next_layout(&old.layout, def)?;
        table.publish(&self.rt, TableState::new(layout, old.tree.clone()));
        Ok(())
    }

    /// F3: from here on changes check the indexes. Then a pass at a snapshot proves that no two
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

    /// Reads the unique indexes among the added ones at a snapshot. Two rows of one key, or a true
    /// `failed`, are an error.
    pub(crate) fn check_duplicates(
        &self,
        state: &TableState,
        added: &[IndexId],
        progress: &BuildProgress,
        failed: &dyn Fn() -> bool,
    ) -> Result<()> {
        let _building = self.sched.building(progress.stop());
        let unique = state.layout.indexes.iter().filter(|i| added.contains(&i.id) && i.unique);
        progress.begin(BuildPhase::Checking, self.rt.env.now_ns());
        let rows = state.tree.estimate(Bound::Unbounded, Bound::Unbounded)?;
        for (n, index) in (1..).zip(unique) {
            progress.check()?;
            let guard = self.txns.snapshot();
            let has_null = |key: &[u8]| index.has_null(key).unwrap_or(false);
            let snapshot = guard.committed();
            self.sched.begin_build_work();
            let bytes = self.runs.stats(index.id).run_bytes;
            let budget = BuildBudget::for_entries(rows, bytes);
            let check = |entries: u64| {
                progress.add_checked(entries, self.rt.env.now_ns());
                self.rt.step();
                self.sched.give_way_to_users(1, &budget);
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

    /// Makes the indexes of all tables valid in one change of the catalog.
    fn make_valid(self: &Arc<Self>, targets: &[BuildTarget]) -> Result<()> {
        // The catalog says VALID from the log position of this change on, and so does the state in
        // memory.
        let from = self.txns.published();
        let mut valid = Vec::new();
        for target in targets {
            let def = with_states(&target.table, &target.added, IndexState::Valid(from));
            // From here on a duplicate fails the statement that inserts it, not the build.
            if !target.table.decide_build() {
                return Err(target.duplicate());
            }
            valid.push((target, def));
        }
        let new = || {
            let of = |(target, def): &'_ (&BuildTarget, TableDef)| {
                let added = def.indexes.iter().filter(|i| target.added.contains(&i.id)).cloned();
                added.map(|index| (def.id, index)).collect::<Vec<_>>()
            };
            valid.iter().flat_map(of)
        };
        // Indexes with provisional names are not reported to the user yet. The change that names
        // them lies behind this one in the log, so it is not durable before this one.
        let durability = match new().all(|(_, index)| index.name.starts_with(PROVISIONAL)) {
            true => Durability::Lazy,
            false => Durability::Sync,
        };
        self.change_catalog_at(durability, |txn| {
            new().try_for_each(|(table, index)| self.put_index(txn, table, &index))
        })?;
        for (target, def) in valid {
            for id in &target.added {
                self.runs.set_valid(*id, from);
            }
            self.publish_def(&target.table, def)?;
        }
        Ok(())
    }

    /// Removes the indexes of a failed build again.
    pub(crate) fn abandon(&self, BuildTarget { table, added }: &BuildTarget) {
        let mut def = (*table.layout().def).clone();
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
    let mut def = (*table.layout().def).clone();
    for index in def.indexes.iter_mut().filter(|i| added.contains(&i.id)) {
        index.entry.state = state;
    }
    def
}

/// The latest committed version of a row, from its cell. The caller's snapshot must be older than
/// the copy of the cell (A5).
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

/// A duplicate in a build under a provisional name, by the names that users know.
pub(crate) fn by_users_name(error: Error, table: &str) -> Error {
    match (error.code(), error.context("index")) {
        (Code::DuplicateInBuild, Some(index)) => {
            let index = index.strip_prefix(PROVISIONAL).unwrap_or(index);
            Error::new(Code::DuplicateInBuild).with("table", table).with("index", index)
        }
        _ => error,
    }
}

/// A build is cancelled by its progress, and its errors say so.
fn as_build(error: Error) -> Error {
    match error.code() {
        Code::StatementCancelled => Error::new(Code::BuildCancelled),
        _ => error,
    }
}
