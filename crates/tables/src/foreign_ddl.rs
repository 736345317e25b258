//! Schema changes of foreign keys: their rows in the catalog, and the links in memory.
//!
//! A new key takes effect in this order: the row of the catalog is durable; the links are set; a
//! barrier in each parent waits for operations in their final step that do not know the key (F1);
//! the child gets its name. An operation of a parent reads the links behind its state, so it either
//! knows the key or is waited for, and then its stamp is there before the first row of the child.

use crate::foreign::{ForeignKeyDef, Link, LinkList, column_item};
use crate::schema::{TableDef, TableSpec};
use crate::store::Store;
use crate::table::{Table, TableState};
use crate::transaction::TableTxn;
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{Code, Error, Result, TableId};
use evenkeel_format::catalog::{
    ForeignKeyColumnEntry, ForeignKeyEntry, ForeignKeyParentEntry, entry_kind,
};
use evenkeel_format::superblock;
use std::sync::Arc;

impl Store {
    /// Sets what records durably that the files may hold a feature, by its incompatible bit of the
    /// superblock; it is called before each table with a feature is made, and at once if there is
    /// one.
    ///
    /// # Errors
    /// Those of the call.
    pub fn on_features(
        &self,
        hook: impl Fn(u64) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        if self.feature_hook.set(Box::new(hook)).is_err() {
            return Err(Error::internal("set twice"));
        }
        self.catalog.tables().iter().try_for_each(|t| self.announce_features(&t.layout().def))
    }

    /// Records the features of a table that versions without them must not meet.
    pub(crate) fn announce_features(&self, def: &TableDef) -> Result<()> {
        let foreign_keys = if def.foreign_keys.is_empty() { 0 } else { superblock::FOREIGN_KEYS };
        let chunks = if def.chunking.is_none() { 0 } else { superblock::CHUNKED_TABLES };
        match self.feature_hook.get() {
            Some(hook) if foreign_keys | chunks != 0 => hook(foreign_keys | chunks),
            _ => Ok(()),
        }
    }

    /// The tables that a new table's foreign keys name, without itself, each once, by id.
    ///
    /// # Errors
    /// `TableMissing`; `ForeignKeyInvalid` if one of the tables is temporary.
    pub(crate) fn parents_of(
        &self,
        name: &str,
        spec: &TableSpec,
        temporary: bool,
    ) -> Result<Vec<Arc<Table>>> {
        let mut parents = Vec::new();
        for key in &spec.foreign_keys {
            let parent = match self.table(&key.parent) {
                _ if key.parent == name => None,
                Err(error) if key.may_await && error.code() == Code::TableMissing => None,
                found => Some(found?),
            };
            if temporary || parent.as_ref().is_some_and(|parent| parent.is_temporary()) {
                let error = Error::new(Code::ForeignKeyInvalid).with("constraint", &key.name);
                return Err(error.with("why", "a temporary table has no foreign keys"));
            }
            parents.extend(parent);
        }
        parents.sort_by_key(|parent| parent.id());
        parents.dedup_by_key(|parent| parent.id());
        Ok(parents)
    }

    pub(crate) fn put_foreign_key(
        &self,
        txn: &mut TableTxn,
        table: TableId,
        key: &ForeignKeyDef,
    ) -> Result<()> {
        let ForeignKeyDef { number, parent, on_delete, on_update, .. } = *key;
        let mut body = Vec::new();
        let columns = key.columns.len() as u8;
        ForeignKeyEntry { parent, on_delete, on_update, columns }.encode(&mut body);
        self.put_entry(txn, (table.0, entry_kind::FOREIGN_KEY, number), &key.name, &body)?;
        for (position, (column, parent_column)) in key.columns.iter().copied().enumerate() {
            body.clear();
            ForeignKeyColumnEntry { column, parent_column }.encode(&mut body);
            let item = column_item(number, position);
            let name = key.awaited.as_ref().map_or("", |awaited| &awaited.columns[position]);
            self.put_entry(txn, (table.0, entry_kind::FOREIGN_KEY_COLUMN, item), name, &body)?;
        }
        let of_parent = (table.0, entry_kind::FOREIGN_KEY_PARENT, number);
        match &key.awaited {
            Some(awaited) => {
                body.clear();
                ForeignKeyParentEntry.encode(&mut body);
                self.put_entry(txn, of_parent, &awaited.table, &body)
            }
            None => self.remove_entry(txn, of_parent),
        }
    }

    pub(crate) fn remove_foreign_key(
        &self,
        txn: &mut TableTxn,
        table: TableId,
        key: &ForeignKeyDef,
    ) -> Result<()> {
        self.remove_entry(txn, (table.0, entry_kind::FOREIGN_KEY, key.number))?;
        self.remove_entry(txn, (table.0, entry_kind::FOREIGN_KEY_PARENT, key.number))?;
        (0..key.columns.len()).try_for_each(|position| {
            let item = column_item(key.number, position);
            self.remove_entry(txn, (table.0, entry_kind::FOREIGN_KEY_COLUMN, item))
        })
    }

    /// Links a new table, which has no name yet, with its parents, whose schema changes the caller
    /// holds.
    pub(crate) fn link_new(&self, table: &Arc<Table>, parents: &[Arc<Table>]) -> Result<()> {
        for key in &table.layout().def.foreign_keys {
            if key.awaited.is_some() {
                LinkList::await_parent(&Link::awaiting(key.clone(), table), table);
                continue;
            }
            let own = std::slice::from_ref(table);
            let parent = own.iter().chain(parents).find(|parent| parent.id() == key.parent);
            let parent = parent.ok_or_else(|| Error::internal("a parent that was not found"))?;
            LinkList::link(&Link::new(key.clone(), table, parent), table, parent);
        }
        if fault_injection::is(Fault::ParentBarrierSkipped) {
            return Ok(());
        }
        parents.iter().try_for_each(|parent| self.pass_barrier(parent))
    }

    /// Waits for the operations that are in their final step in a table; later ones begin with the
    /// links as they are now.
    pub(crate) fn pass_barrier(&self, table: &Table) -> Result<()> {
        let old = table.state();
        let layout = self.next_layout(&old.layout, TableDef::clone(&old.layout.def))?;
        table.publish(&self.rt, TableState::new(layout, old.tree.clone()));
        Ok(())
    }

    /// Links all tables after the catalog was read.
    pub(crate) fn link_all(&self) -> Result<()> {
        for table in self.catalog.tables() {
            let def = table.layout().def.clone();
            self.note_awaiting(&def);
            for key in &def.foreign_keys {
                let damaged = |what: String| {
                    let error = Error::new(Code::CatalogDamaged).with("table", &def.name);
                    error.with("constraint", &key.name).with("what", what)
                };
                if key.awaited.is_some() {
                    key.check_child(&def).map_err(damaged)?;
                    LinkList::await_parent(&Link::awaiting(key.clone(), &table), &table);
                    continue;
                }
                let parent = self.catalog.by_id(key.parent);
                let parent = parent.ok_or_else(|| damaged("its parent is missing".to_string()))?;
                key.check(&def, &parent.layout().def).map_err(damaged)?;
                LinkList::link(&Link::new(key.clone(), &table, &parent), &table, &parent);
            }
        }
        Ok(())
    }
}
