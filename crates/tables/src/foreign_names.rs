//! Foreign keys whose parent does not exist, or is replaced by another table.
//!
//! A key may wait for its parent (`ForeignKeyDef::awaited`): it names a table and columns instead
//! of ids. While it waits, no row that refers to something passes its check. A table that gets the
//! awaited name, by its creation or by a rename, becomes the parent; it must have what the key
//! needs, or it does not get the name. A parent that is dropped although keys refer to it leaves
//! them waiting for its name.
//!
//! Each such change is one transaction on the catalog together with the creation, drop or rename.
//! Then the links are set, and a barrier in each child waits for the operations in their final
//! step: an operation has either written its row by then, or begins anew with the new links.
//!
//! The tables concerned are held in the order of their ids, before the latch of names. Which tables
//! wait for a name may change meanwhile, so it is looked up again behind the latches.

use crate::foreign::{Awaited, ForeignKeyDef, KeyOf, Link, LinkList};
use crate::schema::TableDef;
use crate::store::Store;
use crate::table::{SchemaWait, Table, TableState};
use crate::table_layout::Layout;
use crate::transaction::TableTxn;
use evenkeel_base::{Code, Error, Result, TableId};
use evenkeel_io::EventGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A table whose keys get another parent, or none, and its changed layout.
pub(crate) struct Rebound {
    child: Arc<Table>,
    layout: Arc<Layout>,
}

/// The renaming of a table, and what changes with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableRename<'a> {
    /// The name before.
    pub from: &'a str,
    /// The name from then on.
    pub to: &'a str,
    /// The table that the renamed one replaces, if it exists: foreign keys that referred to it
    /// refer to the renamed table from then on.
    pub replaced: Option<&'a str>,
    /// New names of foreign keys of the table: (from, to).
    pub foreign_keys: &'a [(String, String)],
}

/// A foreign key, with the definitions of its tables.
pub struct ForeignKeyView<'a> {
    /// The table that has the key.
    pub child: &'a TableDef,
    /// The table that its rows refer to, if that exists.
    pub parent: Option<&'a TableDef>,
    /// The parent's index with the key's columns; `None` if it is the primary key.
    pub parent_index: Option<&'a str>,
    /// The key.
    pub key: &'a ForeignKeyDef,
}

/// The id of a column by its name; names that differ only in case are equal if there is no other.
fn column_id(def: &TableDef, name: &str) -> Option<u16> {
    let live = def.live_columns();
    let exact = live.iter().find(|column| column.name == name);
    let other = || live.iter().find(|c| c.name.to_lowercase() == name.to_lowercase());
    exact.or_else(other).map(|column| column.id)
}

impl ForeignKeyDef {
    /// The key with this table as its parent, if that has what the key needs.
    fn bound_to(&self, child: &TableDef, parent: &TableDef, names: &[String]) -> Result<Self> {
        let refused = |why: String| {
            let error = Error::new(Code::ForeignKeyInvalid).with("constraint", &self.name);
            error.with("child", &child.name).with("why", why)
        };
        let mut key = ForeignKeyDef { parent: parent.id, awaited: None, ..self.clone() };
        for (pair, name) in key.columns.iter_mut().zip(names) {
            let gone = || refused(format!("table {} has no column {name}", parent.name));
            pair.1 = column_id(parent, name).ok_or_else(gone)?;
        }
        key.check(child, parent).map_err(refused)?;
        Ok(key)
    }

    /// The key without its parent, which it awaits from now on.
    fn awaiting(&self, parent: &TableDef) -> Result<Self> {
        let name = |pair: &(u16, u16)| {
            let column = parent.column_by_id(pair.1).map(|column| column.name.clone());
            column.ok_or_else(|| Error::internal("a foreign key has an unknown column"))
        };
        let columns = self.columns.iter().map(name).collect::<Result<Vec<_>>>()?;
        let awaited = Some(Awaited { table: parent.name.clone(), columns });
        let pairs = self.columns.iter().map(|pair| (pair.0, 0)).collect();
        Ok(ForeignKeyDef { parent: TableId::ZERO, columns: pairs, awaited, ..self.clone() })
    }

    /// The key bound to `parent`, if it waits for that name or refers to the table that `parent`
    /// replaces.
    fn heir(
        &self,
        child: &TableDef,
        parent: &TableDef,
        replaced: Option<&TableDef>,
    ) -> Result<Option<Self>> {
        let awaited = match (&self.awaited, replaced) {
            (Some(awaited), _) if awaited.table == parent.name => awaited.columns.clone(),
            (None, Some(old)) if self.parent == old.id => {
                self.awaiting(old)?.awaited.map_or_else(Vec::new, |awaited| awaited.columns)
            }
            _ => return Ok(None),
        };
        self.bound_to(child, parent, &awaited).map(Some)
    }

    fn waits_for(&self, name: &str) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| awaited.table == name)
    }
}

/// Holds tables for a schema change; `Arc`s of the same tables keep them alive.
pub(crate) struct TablesHeld<'t> {
    _guards: Vec<EventGuard<'t>>,
}

impl Store {
    /// The other tables with a key that waits for a table of this name, by id.
    pub(crate) fn tables_awaiting(&self, name: &str) -> Vec<Arc<Table>> {
        if !self.catalog.may_await.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let waits = |table: &Arc<Table>| {
            let layout = table.layout();
            layout.def.name != name && layout.def.foreign_keys.iter().any(|k| k.waits_for(name))
        };
        let mut tables = self.catalog.tables();
        tables.retain(waits);
        tables.sort_by_key(|table| table.id());
        tables
    }

    /// Notes that a definition has a key that waits.
    pub(crate) fn note_awaiting(&self, def: &TableDef) {
        if def.foreign_keys.iter().any(|key| key.awaited.is_some()) {
            self.catalog.may_await.store(true, Ordering::SeqCst);
        }
    }

    /// Holds tables for one schema change, in the order of their ids, each once.
    pub(crate) fn hold_tables<'t>(
        &self,
        tables: &'t mut Vec<Arc<Table>>,
        wait: &SchemaWait<'_>,
    ) -> Result<TablesHeld<'t>> {
        tables.sort_by_key(|table| table.id());
        tables.dedup_by_key(|table| table.id());
        let mut guards = Vec::new();
        for table in tables.iter() {
            guards.push(self.lock_ddl(&table.layout().def.name, table, wait)?);
        }
        Ok(TablesHeld { _guards: guards })
    }

    /// Checks that the tables held are still those concerned.
    ///
    /// # Errors
    /// `TableBusy`.
    pub(crate) fn check_same(held: &[Arc<Table>], now: &[Arc<Table>]) -> Result<()> {
        let same = held.len() == now.len() && held.iter().zip(now).all(|(a, b)| Arc::ptr_eq(a, b));
        match same {
            true => Ok(()),
            false => Err(Error::new(Code::TableBusy)
                .with("why", "a foreign key to the table was added or dropped meanwhile")),
        }
    }

    /// The children of which keys wait for the name of `parent`, or refer to the table that it
    /// replaces, with these keys bound to it.
    pub(crate) fn bind_to(
        &self,
        parent: &TableDef,
        replaced: Option<&TableDef>,
        children: &[Arc<Table>],
    ) -> Result<Vec<Rebound>> {
        let bind = |child: &TableDef, key: &ForeignKeyDef| key.heir(child, parent, replaced);
        self.rebound(children, &bind)
    }

    /// The children of a table that is dropped: their keys wait for its name.
    pub(crate) fn leave_awaiting(
        &self,
        table: &Table,
        children: &[Arc<Table>],
    ) -> Result<Vec<Rebound>> {
        let parent = table.layout().def.clone();
        let leave = |_: &TableDef, key: &ForeignKeyDef| match key.parent == parent.id {
            true => key.awaiting(&parent).map(Some),
            false => Ok(None),
        };
        self.rebound(children, &leave)
    }

    fn rebound(&self, children: &[Arc<Table>], change: Change<'_>) -> Result<Vec<Rebound>> {
        let mut all = Vec::new();
        for child in children {
            let old = child.layout();
            let mut def = TableDef::clone(&old.def);
            if change_keys(&mut def, change)? {
                all.push(Rebound { child: child.clone(), layout: self.next_layout(&old, def)? });
            }
        }
        Ok(all)
    }

    /// The renamed table, whose own keys may be among those that get it as their parent.
    pub(crate) fn renamed(
        &self,
        table: &Arc<Table>,
        mut def: TableDef,
        replaced: Option<&TableDef>,
    ) -> Result<Rebound> {
        let parent = def.clone();
        change_keys(&mut def, &|child, key| key.heir(child, &parent, replaced))?;
        let layout = self.next_layout(&table.layout(), def)?;
        Ok(Rebound { child: table.clone(), layout })
    }

    /// Writes the changed definitions to the catalog.
    pub(crate) fn put_rebound(&self, txn: &mut TableTxn, rebound: &[Rebound]) -> Result<()> {
        rebound.iter().try_for_each(|Rebound { layout, .. }| self.put_table(txn, &layout.def))
    }

    /// Puts changed keys into force, when the catalog has them: the links, and behind them the
    /// barrier in each child. `parent` is the new parent, if there is one.
    pub(crate) fn publish_rebound(
        &self,
        rebound: Vec<Rebound>,
        parent: Option<&Arc<Table>>,
    ) -> Result<()> {
        for Rebound { child, layout } in rebound {
            self.note_awaiting(&layout.def);
            let links = child.links.get().map(|links| links.parents.clone()).unwrap_or_default();
            for link in links {
                let keys = &layout.def.foreign_keys;
                let key = keys.iter().find(|key| key.number == link.key.number);
                let Some(key) = key.filter(|key| **key != link.key) else { continue };
                let before = (!link.is_awaiting()).then(|| link.parent()).transpose()?;
                let parents = parent.into_iter().chain(&before);
                let of_key = parents.into_iter().find(|parent| parent.id() == key.parent).cloned();
                match of_key {
                    Some(parent) => {
                        LinkList::link(&Link::new(key.clone(), &child, &parent), &child, &parent);
                    }
                    None => LinkList::await_parent(&Link::awaiting(key.clone(), &child), &child),
                }
                // Behind the new link, because operations that meet the old one look for it.
                LinkList::replace(&link);
            }
            let state = child.state();
            // The barrier for another key of the same statement may have come between.
            let layout = match layout.epoch == state.layout.epoch + 1 {
                true => layout,
                false => self.next_layout(&state.layout, TableDef::clone(&layout.def))?,
            };
            child.publish(&self.rt, TableState { layout, tree: state.tree.clone() });
        }
        // Operations of the parent that do not know its new children have ended.
        match parent.filter(|parent| parent.links.get().is_some()) {
            Some(parent) => self.pass_barrier(parent),
            None => Ok(()),
        }
    }

    /// Calls `each` with the foreign keys of a table, by number, or with those that refer to it.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn foreign_keys(
        &self,
        table: &str,
        to_it: bool,
        each: &mut dyn FnMut(&ForeignKeyView<'_>),
    ) -> Result<()> {
        let Some(links) = self.table(table)?.links.get() else { return Ok(()) };
        let mut wanted = if to_it { links.children.clone() } else { links.parents.clone() };
        wanted.sort_by_key(|link| link.key.number);
        for link in wanted {
            let Some(child) = link.child() else { continue };
            let parent = match link.is_awaiting() {
                true => None,
                false => link.parent().ok().map(|parent| parent.layout().def.clone()),
            };
            let of_parent = parent.as_deref();
            let parent_index = of_parent.and_then(|def| match link.key.parent_key(def)? {
                KeyOf::Index(at) if !def.indexes[at].entry.primary => Some(&*def.indexes[at].name),
                _ => None,
            });
            let (child, key) = (child.layout().def.clone(), &link.key);
            each(&ForeignKeyView { child: &child, parent: of_parent, parent_index, key });
        }
        Ok(())
    }

    /// True if foreign keys refer to a table.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn is_referenced(&self, table: &str) -> Result<bool> {
        Ok(self.table(table)?.links.get().is_some_and(|links| !links.children.is_empty()))
    }

    /// Checks that the children of `old` could have `new` as their parent in its place.
    ///
    /// # Errors
    /// `TableMissing`; `ForeignKeyInvalid` naming the key and what it lacks.
    pub fn check_replacement(&self, old: &str, new: &str) -> Result<()> {
        let (old, new) = (self.table(old)?, self.table(new)?);
        let (old_def, new_def) = (old.layout().def.clone(), new.layout().def.clone());
        let mut children = children_of(&old);
        children.retain(|child| !Arc::ptr_eq(child, &new));
        let new_def = TableDef { name: old_def.name.clone(), ..TableDef::clone(&new_def) };
        self.bind_to(&new_def, Some(&old_def), &children)?;
        self.renamed(&new, new_def, Some(&old_def)).map(drop)
    }
}

/// The other tables with a key to this one, each once, by id.
pub(crate) fn children_of(table: &Arc<Table>) -> Vec<Arc<Table>> {
    let links = table.links.get();
    let children = links.iter().flat_map(|links| &links.children).filter_map(|link| link.child());
    let mut children: Vec<_> = children.filter(|child| !Arc::ptr_eq(child, table)).collect();
    children.sort_by_key(|child| child.id());
    children.dedup_by_key(|child| child.id());
    children
}

type Change<'a> = &'a dyn Fn(&TableDef, &ForeignKeyDef) -> Result<Option<ForeignKeyDef>>;

/// Changes the keys for which `change` has another form; true if there is one.
fn change_keys(def: &mut TableDef, change: Change<'_>) -> Result<bool> {
    let old = def.clone();
    for key in &mut def.foreign_keys {
        if let Some(changed) = change(&old, key)? {
            *key = changed;
        }
    }
    Ok(def.foreign_keys != old.foreign_keys)
}
