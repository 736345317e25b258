//! Schema changes: create, drop, rename, truncate. Columns and dropping an index are in `alter`,
//! adding indexes is in `build`.
//!
//! One schema change of a table runs at a time; changes that free space work also while the disk is
//! full (G4). Each is a transaction on the catalog's rows, durable before it takes effect in
//! memory. Trees and runs that a crash leaves without a catalog row are removed after the next
//! start. No row is rewritten.

use crate::catalog::{AUTO_INCREMENT, COUNTERS, NextId, run_spec};
use crate::foreign::foreign_keys_of;
use crate::foreign_names::{TableRename, children_of};
use crate::schema::{TableDef, TableSpec, check_table_name};
use crate::statistics::CLUSTERED;
use crate::store::Store;
use crate::table::{SchemaWait, Table, TableState};
use crate::table_layout::Layout;
use crate::transaction::TableTxn;
use evenkeel_base::{Cause, Code, Error, IndexId, Lsn, Result, TableId, TreeId};
use evenkeel_format::catalog::{IndexState, entry_kind};
use evenkeel_io::{EventGuard, EventLatch};
use evenkeel_log::Durability;
use evenkeel_tree::Tree;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Store {
    /// Makes a table.
    ///
    /// # Errors
    /// `TableExists`, and faults of the definition, each by its own code.
    pub fn create_table(self: &Arc<Self>, name: &str, spec: &TableSpec) -> Result<Arc<Table>> {
        self.create_table_as(name, spec, false)
    }

    /// Makes a table that is not needed after a crash: neither creating nor writing it waits for
    /// the log. After a crash it may exist, as intact as any table; the caller then drops it by its
    /// name.
    ///
    /// # Errors
    /// As `create_table`.
    pub fn create_temporary_table(
        self: &Arc<Self>,
        name: &str,
        spec: &TableSpec,
    ) -> Result<Arc<Table>> {
        self.create_table_as(name, spec, true)
    }

    fn create_table_as(
        self: &Arc<Self>,
        name: &str,
        spec: &TableSpec,
        temporary: bool,
    ) -> Result<Arc<Table>> {
        let wait = SchemaWait::default();
        spec.check_permanent(name, temporary)?;
        // In the order of rename: tables first, then names.
        let parents = self.parents_of(name, spec, temporary)?;
        let children = self.tables_awaiting(name);
        let mut concerned: Vec<_> = parents.iter().chain(&children).cloned().collect();
        let _held = self.hold_tables(&mut concerned, &wait)?;
        let _names = self.lock(&self.names, &wait)?;
        self.check_free(name)?;
        Self::check_same(&children, &self.tables_awaiting(name))?;
        let rules = self.rules;
        // Check with placeholder ids before any are used.
        let mut def = TableDef::new(TableId::ZERO, name, spec, || IndexId::ZERO, rules)?;
        def.foreign_keys = foreign_keys_of(&def, spec, &parents)?;
        Layout::new(Arc::new(def), 1, rules)?.check_row_fits(self.pages.page_size())?;
        let id = TableId(self.next_id(NextId::Table)?);
        let mut def = TableDef::new(id, name, spec, || IndexId::ZERO, rules)?;
        def.foreign_keys = foreign_keys_of(&def, spec, &parents)?;
        self.announce_features(&def)?;
        self.number_indexes(&mut def)?;
        let rebound = self.bind_to(&def, None, &children)?;
        let tree = self.new_tree(&mut def)?;
        let layout = Arc::new(Layout::new(Arc::new(def), 1, rules)?);
        let table = Table::new(TableState::new(layout.clone(), tree.clone()), 0, 0);
        table.set_temporary(temporary);
        self.chunk_new(&table, &layout)?;
        let put = |txn: &mut TableTxn| {
            self.put_table(txn, &layout.def)?;
            self.put_rebound(txn, &rebound)
        };
        let made = self.change_catalog_of(&table, put);
        let born = made.inspect_err(|_| self.forget_tree(&tree))?;
        for index in &layout.def.indexes {
            self.runs.add_index(run_spec(index));
        }
        table.set_born(born);
        self.note_awaiting(&layout.def);
        self.link_new(&table, &parents)?;
        self.publish_rebound(rebound, Some(&table))?;
        self.catalog.put(name, table.clone());
        if !temporary {
            self.tell_of_indexed_key(&layout.def);
        }
        Ok(table)
    }

    /// A read by a primary key that the table is not clustered on takes two steps: its owner may
    /// want a shorter key.
    fn tell_of_indexed_key(&self, def: &TableDef) {
        let Some(primary) = def.indexes.iter().find(|index| index.entry.primary) else { return };
        let (bytes, limit) =
            (def.key_bytes_max(&primary.entry.parts, self.rules), self.rules.key_bytes_max());
        log::info!(
            "table {}: its primary key may take {bytes} bytes, a clustered key {limit}: the key is \
             kept in an index, and a read by it takes two steps",
            def.name
        );
    }

    fn check_free(&self, name: &str) -> Result<()> {
        check_table_name(name)?;
        match self.catalog.find(name) {
            Some(_) => Err(Error::new(Code::TableExists).with("table", name)),
            None => Ok(()),
        }
    }

    /// Takes a latch of schema changes. # Errors: `TableBusy` after its timeout,
    /// `StatementCancelled`.
    fn lock<'l>(&self, latch: &'l EventLatch, wait: &SchemaWait<'_>) -> Result<EventGuard<'l>> {
        let timeout = wait.timeout.unwrap_or_else(|| self.lock_wait());
        wait.in_steps(timeout, |step| latch.lock_for(&self.rt, Cause::Schema, step))
    }

    /// Holds a table for one schema change.
    /// Not for chunked tables: most schema changes know nothing of chunks.
    pub(crate) fn lock_ddl<'t>(
        &self,
        name: &str,
        table: &'t Arc<Table>,
        wait: &SchemaWait<'_>,
    ) -> Result<EventGuard<'t>> {
        match table.is_chunked() {
            true => Err(table.refused_as_chunked()),
            false => self.lock_ddl_any(name, table, wait),
        }
    }

    /// As `lock_ddl`, for changes that know chunked tables.
    pub(crate) fn lock_ddl_any<'t>(
        &self,
        name: &str,
        table: &'t Arc<Table>,
        wait: &SchemaWait<'_>,
    ) -> Result<EventGuard<'t>> {
        table.check_not_loading()?;
        let guard = self.lock(&table.ddl, wait).map_err(|e| e.with("table", name))?;
        // The table may have been dropped or renamed meanwhile.
        match self.catalog.find(name) {
            Some(now) if Arc::ptr_eq(&now, table) => Ok(guard),
            _ => Err(Error::new(Code::TableMissing).with("table", name)),
        }
    }

    /// Gives all indexes new ids; they are valid from the beginning.
    fn number_indexes(self: &Arc<Self>, def: &mut TableDef) -> Result<()> {
        for index in &mut def.indexes {
            index.id = IndexId(self.next_id(NextId::Index)?);
            index.entry.state = IndexState::Valid(Lsn::ZERO);
        }
        Ok(())
    }

    fn new_tree(self: &Arc<Self>, def: &mut TableDef) -> Result<Tree> {
        let tree = self.trees.create(TreeId(self.next_id(NextId::Tree)?))?;
        def.entry.tree = tree.id();
        def.entry.root = tree.root();
        self.open_trees.insert(tree.clone());
        Ok(tree)
    }

    /// Frees a tree's pages. While rows of it are being rolled back this happens afterwards. The
    /// next start repeats a free that fails here.
    pub(crate) fn forget_tree(&self, tree: &Tree) {
        if self.open_trees.remove(&self.rt, tree, self.lock_wait()) {
            self.free_tree(tree);
        }
    }

    fn free_tree(&self, tree: &Tree) {
        if let Err(error) = tree.drop_all() {
            log::warn!("tree {}: pages not freed: {error}", tree.id());
        }
    }

    /// Frees trees that were dropped while in use.
    pub(crate) fn free_left_trees(&self) {
        for tree in self.open_trees.left_ones() {
            self.free_tree(&tree);
        }
    }

    pub(crate) fn forget_index(&self, id: IndexId) {
        if let Err(error) = self.runs.drop_index(id) {
            log::warn!("index {id}: runs not dropped: {error}");
        }
    }

    /// Runs a change of the catalog in a transaction and makes it durable. Returns its timestamp.
    pub(crate) fn change_catalog(
        self: &Arc<Self>,
        change: impl FnOnce(&mut TableTxn) -> Result<()>,
    ) -> Result<Lsn> {
        self.change_catalog_at(Durability::Sync, change)
    }

    /// As `change_catalog`, for a change of one table; a change of a temporary table is not synced.
    pub(crate) fn change_catalog_of(
        self: &Arc<Self>,
        table: &Table,
        change: impl FnOnce(&mut TableTxn) -> Result<()>,
    ) -> Result<Lsn> {
        let durability = match table.is_temporary() {
            true => Durability::Lazy,
            false => Durability::Sync,
        };
        self.change_catalog_at(durability, change)
    }

    /// As `change_catalog`, with the given durability.
    pub(crate) fn change_catalog_at(
        self: &Arc<Self>,
        durability: Durability,
        change: impl FnOnce(&mut TableTxn) -> Result<()>,
    ) -> Result<Lsn> {
        let mut txn = self.catalog_txn();
        change(&mut txn)?;
        txn.commit(durability)
    }

    /// Drops a table: waits for transactions that use it, then frees its space in O(extents).
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`.
    pub fn drop_table(self: &Arc<Self>, name: &str) -> Result<()> {
        self.drop_table_with(name, &SchemaWait::default())
    }

    /// As `drop_table`, with the caller's wait.
    ///
    /// # Errors
    /// As `drop_table`; `StatementCancelled`.
    pub fn drop_table_with(self: &Arc<Self>, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        self.rt.freeing(|| self.drop_table_now(name, wait))
    }

    fn drop_table_now(self: &Arc<Self>, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        let table = self.table(name)?;
        let children = match wait.leaves_children {
            true => children_of(&table),
            false => Vec::new(),
        };
        let mut concerned = vec![table.clone()];
        concerned.extend(children.iter().cloned());
        let _held = self.hold_tables(&mut concerned, wait)?;
        match wait.leaves_children {
            true => Self::check_same(&children, &children_of(&table))?,
            false => table.links.check_unreferenced(&table)?,
        }
        let rebound = self.leave_awaiting(&table, &children)?;
        table.close(&self.rt, self.lock_wait(), wait)?;
        let state = table.state();
        // Threads that write the counter without using the table find it gone afterwards.
        let counter = table.auto.raise.lock(&self.rt, Cause::Schema);
        let remove = |txn: &mut TableTxn| {
            self.remove_chunks(txn, &table)?;
            self.remove_table(txn, &state.layout.def)?;
            self.put_rebound(txn, &rebound)
        };
        let done = self.change_catalog_of(&table, remove);
        if let Err(error) = done {
            table.reopen(false);
            return Err(error);
        }
        self.catalog.remove(name);
        self.publish_rebound(rebound, None)?;
        table.links.unlink(&table);
        table.reopen(true);
        drop(counter);
        self.forget_chunks(&table);
        for index in &state.layout.def.indexes {
            self.forget_index(index.id);
        }
        self.forget_tree(&state.tree);
        Ok(())
    }

    fn remove_table(&self, txn: &mut TableTxn, def: &TableDef) -> Result<()> {
        for column in &def.columns {
            self.remove_entry(txn, (def.id.0, entry_kind::COLUMN, u32::from(column.id)))?;
        }
        for index in &def.indexes {
            self.remove_index(txn, def.id, index.id)?;
        }
        self.remove_index(txn, def.id, CLUSTERED)?;
        for key in &def.foreign_keys {
            self.remove_foreign_key(txn, def.id, key)?;
        }
        if def.chunking.is_some() {
            self.remove_entry(txn, (def.id.0, entry_kind::CHUNKING, 0))?;
        }
        for counter in 0..COUNTERS {
            self.remove_entry(txn, (def.id.0, entry_kind::COUNTER, counter))?;
        }
        self.remove_entry(txn, (def.id.0, entry_kind::TABLE, 0))
    }

    /// Renames a table.
    ///
    /// # Errors
    /// `TableMissing`, `TableExists`, `NameInvalid`.
    pub fn rename_table(self: &Arc<Self>, from: &str, to: &str) -> Result<()> {
        self.rename_table_with(from, to, &SchemaWait::default())
    }

    /// As `rename_table`, with the caller's wait for other schema changes.
    ///
    /// # Errors
    /// As `rename_table`; `TableBusy`, `StatementCancelled`.
    pub fn rename_table_with(
        self: &Arc<Self>,
        from: &str,
        to: &str,
        wait: &SchemaWait<'_>,
    ) -> Result<()> {
        self.rename_as(&TableRename { from, to, ..TableRename::default() }, wait)
    }

    /// As `rename_table_with`, with what a rename changes besides.
    ///
    /// # Errors
    /// As `rename_table_with`; `ForeignKeyInvalid` if the table lacks what a key needs.
    pub fn rename_as(
        self: &Arc<Self>,
        given: &TableRename<'_>,
        wait: &SchemaWait<'_>,
    ) -> Result<()> {
        let (from, to) = (given.from, given.to);
        let replaced = given.replaced.and_then(|name| self.catalog.find(name));
        let table = self.table(from)?;
        let heirs = || {
            let mut heirs = self.tables_awaiting(to);
            heirs.extend(replaced.iter().flat_map(children_of));
            heirs.retain(|child| !Arc::ptr_eq(child, &table));
            heirs.sort_by_key(|child| child.id());
            heirs.dedup_by_key(|child| child.id());
            heirs
        };
        let children = heirs();
        let mut concerned = vec![table.clone()];
        concerned.extend(replaced.iter().chain(&children).cloned());
        let _held = self.hold_tables(&mut concerned, wait)?;
        let _names = self.lock(&self.names, wait)?;
        self.check_free(to)?;
        Self::check_same(&children, &heirs())?;
        let mut def = (*table.layout().def).clone();
        def.name = to.to_string();
        for key in &mut def.foreign_keys {
            if let Some((_, name)) = given.foreign_keys.iter().find(|(from, _)| *from == key.name) {
                key.name.clone_from(name);
            }
        }
        let replaced = replaced.as_ref().map(|replaced| replaced.layout().def.clone());
        let mut rebound = self.bind_to(&def, replaced.as_deref(), &children)?;
        rebound.push(self.renamed(&table, def, replaced.as_deref())?);
        // The new name may be a permanent one. The sync of this change makes all earlier changes of
        // the table durable as well, because they precede it in the log.
        table.set_temporary(false);
        self.change_catalog(|txn| self.put_rebound(txn, &rebound))?;
        self.publish_rebound(rebound, Some(&table))?;
        self.catalog.rename(from, to);
        self.rename_chunks(&table, to)
    }

    /// Empties a table: waits for transactions that use it, then gives it a new tree and new
    /// indexes. Its auto-increment numbers continue.
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`.
    pub fn truncate_table(self: &Arc<Self>, name: &str) -> Result<()> {
        self.truncate_table_with(name, &SchemaWait::default())
    }

    /// As `truncate_table`, with the caller's wait.
    ///
    /// # Errors
    /// As `truncate_table`; `StatementCancelled`.
    pub fn truncate_table_with(self: &Arc<Self>, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        self.truncate_as(name, wait, false)
    }

    /// As `truncate_table_with`; the auto-increment numbers also begin at 1 again, in the same
    /// change, so that a crash leaves both done or neither.
    ///
    /// # Errors
    /// As `truncate_table_with`.
    pub fn truncate_and_restart(self: &Arc<Self>, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        self.truncate_as(name, wait, true)
    }

    fn truncate_as(
        self: &Arc<Self>,
        name: &str,
        wait: &SchemaWait<'_>,
        restart: bool,
    ) -> Result<()> {
        let table = self.table(name)?;
        let _ddl = self.lock_ddl_any(name, &table, wait)?;
        if !wait.leaves_children {
            table.links.check_unreferenced(&table)?;
        }
        table.close(&self.rt, self.lock_wait(), wait)?;
        let done = self.rt.freeing(|| self.truncate_closed(&table, restart));
        table.reopen(false);
        done
    }

    fn truncate_closed(self: &Arc<Self>, table: &Arc<Table>, restart: bool) -> Result<()> {
        if table.is_chunked() {
            return self.truncate_chunked(table, restart);
        }
        let old = table.state();
        let new = self.successor(&old)?;
        // Keep threads that do not use the table from raising the mark meanwhile.
        let counter = restart.then(|| table.auto.raise.lock(&self.rt, Cause::Schema));
        let born = self.change_catalog_of(table, |txn| {
            if restart {
                self.put_counter(txn, (table.id(), AUTO_INCREMENT), 1)?;
            }
            self.put_successor(txn, &old, &new.layout.def)
        });
        let born = born.inspect_err(|_| self.forget(&new))?;
        if restart {
            table.auto.restart(1);
        }
        drop(counter);
        for index in &new.layout.def.indexes {
            self.runs.add_index(run_spec(index));
        }
        self.replace(table, &old, &new, born);
        Ok(())
    }

    /// Empties a chunked table: all its chunks go.
    fn truncate_chunked(self: &Arc<Self>, table: &Arc<Table>, restart: bool) -> Result<()> {
        let counter = restart.then(|| table.auto.raise.lock(&self.rt, Cause::Schema));
        let born = self.change_catalog_of(table, |txn| {
            if restart {
                self.put_counter(txn, (table.id(), AUTO_INCREMENT), 1)?;
            }
            self.remove_chunks(txn, table)
        })?;
        if restart {
            table.auto.restart(1);
        }
        drop(counter);
        table.set_born(born);
        self.forget_chunks(table);
        Ok(())
    }

    /// The same table with an empty tree and new indexes, not yet visible.
    pub(crate) fn successor(self: &Arc<Self>, old: &TableState) -> Result<Arc<TableState>> {
        self.successor_as(old, (*old.layout.def).clone())
    }

    /// As `successor`, with another definition of the same columns.
    pub(crate) fn successor_as(
        self: &Arc<Self>,
        old: &TableState,
        mut def: TableDef,
    ) -> Result<Arc<TableState>> {
        self.number_indexes(&mut def)?;
        let tree = self.new_tree(&mut def)?;
        let layout = self.next_layout(&old.layout, def)?;
        Ok(Arc::new(TableState::new(layout, tree)))
    }

    /// Makes a successor durable. Returns its timestamp: older snapshots do not see its rows.
    pub(crate) fn replace_in_catalog(
        self: &Arc<Self>,
        old: &TableState,
        def: &TableDef,
    ) -> Result<Lsn> {
        self.change_catalog(|txn| self.put_successor(txn, old, def))
    }

    pub(crate) fn put_successor(
        &self,
        txn: &mut TableTxn,
        old: &TableState,
        def: &TableDef,
    ) -> Result<()> {
        for index in &old.layout.def.indexes {
            self.remove_index(txn, def.id, index.id)?;
        }
        self.remove_index(txn, def.id, CLUSTERED)?;
        self.put_table(txn, def)
    }

    /// Replaces a table's state by a successor and frees the space of the old state.
    pub(crate) fn replace(&self, table: &Table, old: &TableState, new: &TableState, born: Lsn) {
        table.set_born(born);
        let (layout, tree) = (new.layout.clone(), new.tree.clone());
        table.publish(&self.rt, TableState::new(layout, tree));
        table.statistics.set(BTreeMap::new());
        table.changes.restart();
        self.forget(old);
    }

    /// Frees the space of a state that belongs to no table.
    pub(crate) fn forget(&self, state: &TableState) {
        for index in &state.layout.def.indexes {
            self.forget_index(index.id);
        }
        self.forget_tree(&state.tree);
    }

    /// Declares that the rows of a table were copied into it from another table that it replaces:
    /// snapshots from now on may read it, older ones get `TableTooNew`.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn readable_from_now(&self, name: &str) -> Result<()> {
        self.table(name)?.set_born(self.txns.snapshot().at());
        Ok(())
    }

    /// Lets every snapshot read a table that only its owner knows, however new it is.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn readable_always(&self, name: &str) -> Result<()> {
        self.table(name)?.set_born(Lsn::ZERO);
        Ok(())
    }

    pub(crate) fn next_layout(&self, old: &Layout, def: TableDef) -> Result<Arc<Layout>> {
        let layout = Layout::new(Arc::new(def), old.epoch + 1, self.rules)?;
        layout.check_row_fits(self.pages.page_size())?;
        Ok(Arc::new(layout))
    }
}
