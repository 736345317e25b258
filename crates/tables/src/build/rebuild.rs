//! Building an existing index anew from the rows of its table, for `repair`.
//!
//! The new index has an id and runs of its own and is built like any other (`build`), while the old
//! one stays in force. Then one transaction on the catalog replaces the old index by the new one,
//! while no transaction uses the table, because positions of indexes change. So the catalog has one
//! of the two at every moment, and after a crash the runs of the other are dropped.

use super::{BuildPhase, BuildProgress, BuildTarget, as_build, by_users_name};
use crate::alter::PROVISIONAL;
use crate::load::Closed;
use crate::schema::{IndexDef, TableDef};
use crate::store::Store;
use crate::table::{SchemaWait, Table, TableState};
use evenkeel_base::{Error, IndexId, Lsn, Result};
use evenkeel_format::catalog::IndexState;
use std::sync::Arc;

impl Store {
    /// Builds an index of a table anew and returns the number of its entries; none if the table has
    /// no such index any more. Others read and write the table until the new index is complete.
    /// `rows_behind` rows will be read for other indexes afterwards.
    ///
    /// # Errors
    /// `DuplicateInBuild`, `TableBusy`, `BuildCancelled`, those of reading rows: the table then has
    /// the old index.
    pub(crate) fn rebuild_index(
        self: &Arc<Self>,
        name: &str,
        index: &str,
        progress: &BuildProgress,
        rows_behind: u64,
    ) -> Result<Option<u64>> {
        let table = &self.table(name)?;
        let _ddl = self.lock_to_build(name, table, progress)?;
        let def = table.layout().def.clone();
        let Ok(old) = def.index(index) else { return Ok(None) };
        let mut spec = def.index_spec(old)?;
        spec.name.insert(0, PROVISIONAL);
        let target = self.begin_build(table, &[spec])?;
        progress.begin_table(rows_behind);
        let built = self.build_alone(&target, progress).and_then(|entries| {
            self.put_in_place(name, &target, old, progress)?;
            Ok(Some(entries))
        });
        if built.is_err() {
            self.abandon(&target);
        }
        table.clear_build();
        built.map_err(|error| by_users_name(error, name))
    }

    /// Everything of a build up to the change of the catalog; the number of entries.
    pub(crate) fn build_alone(
        self: &Arc<Self>,
        target: &BuildTarget,
        progress: &BuildProgress,
    ) -> Result<u64> {
        progress.enter(BuildPhase::Waiting);
        self.wait_writers(&target.table, progress)?;
        self.build_one(target, progress)?;
        Ok(target.added.iter().map(|id| self.runs.stats(*id).run_entries).sum())
    }

    /// Replaces the old index by the new one in one change of the catalog.
    fn put_in_place(
        self: &Arc<Self>,
        name: &str,
        target: &BuildTarget,
        old: &IndexDef,
        progress: &BuildProgress,
    ) -> Result<()> {
        let BuildTarget { table, added } = target;
        let _closed = self.close_to_build(table, progress)?;
        let from = self.txns.published();
        // From here on a duplicate fails the statement that inserts it, not the build.
        if !table.decide_build() {
            return Err(target.duplicate());
        }
        let mut def = (*table.layout().def).clone();
        def.indexes.retain(|index| index.id != old.id);
        let new = become_as(&mut def, added, old, from)?;
        let layout = self.next_layout(&table.layout(), def)?;
        self.change_catalog_of(table, |txn| {
            self.remove_index(txn, table.id(), old.id)?;
            self.put_index(txn, table.id(), &new)
        })?;
        self.runs.set_valid(new.id, from);
        let tree = table.state().tree.clone();
        table.publish(&self.rt, TableState::new(layout, tree));
        self.forget_index(old.id);
        log::info!("table {name}: index {} was built anew", old.name);
        Ok(())
    }

    /// Keeps transactions out of a table until the result is dropped, and waits for those inside,
    /// unless the build is cancelled.
    pub(crate) fn close_to_build<'t>(
        &self,
        table: &'t Arc<Table>,
        progress: &BuildProgress,
    ) -> Result<Closed<'t>> {
        let cancelled = || progress.check().is_err();
        let timeout = Some(self.build_wait(progress));
        let wait = SchemaWait { timeout, cancelled: Some(&cancelled), ..SchemaWait::default() };
        progress.check()?;
        table.close(&self.rt, self.lock_wait(), &wait).map_err(as_build)?;
        Ok(Closed(table))
    }
}

/// The new index takes the name and the part of the old one.
fn become_as(def: &mut TableDef, added: &[IndexId], old: &IndexDef, from: Lsn) -> Result<IndexDef> {
    let new = def.indexes.iter_mut().find(|index| added.contains(&index.id));
    let new = new.ok_or_else(|| Error::internal("an index was built that is not there"))?;
    new.name.clone_from(&old.name);
    new.entry.primary = old.entry.primary;
    new.entry.state = IndexState::Valid(from);
    Ok(new.clone())
}
