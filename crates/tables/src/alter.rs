//! Changes of columns and indexes, several at once, of one table or of several, without rewriting
//! rows.
//!
//! A change is applied to a copy of the definition, made durable in one transaction on the catalog,
//! and then published. So after a crash the whole change is in force in all tables, or nothing of
//! it. `build` adds indexes to a table with rows; it may give them a provisional name, which a
//! later change replaces.

use crate::catalog::MARK;
use crate::foreign::{Link, LinkList};
use crate::load::Closed;
use crate::rules::KeyRules;
use crate::schema::{ColumnSpec, TableDef, check_index_name, check_name};
use crate::store::Store;
use crate::table::{SchemaWait, Table, TableState};
use evenkeel_base::{Code, Error, IndexId, Result};
use evenkeel_format::ColumnType;
use evenkeel_format::catalog::{PartEntry, entry_kind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What changes, in the order of its fields.
#[derive(Clone, Debug, Default)]
pub struct TableChange {
    /// Indexes to drop.
    pub drop_indexes: Vec<String>,
    /// Indexes to rename: (from, to).
    pub rename_indexes: Vec<(String, String)>,
    /// Columns to drop; none may be in a key that stays.
    pub drop_columns: Vec<String>,
    /// Columns to rename: (from, to), by the names before this change.
    pub rename_columns: Vec<(String, String)>,
    /// Columns of bytes or text whose greatest length grows, by their new names.
    pub widen_columns: Vec<(String, u32)>,
    /// Columns to add at the end; existing rows show their defaults.
    pub add_columns: Vec<ColumnSpec>,
    /// Foreign keys to drop. Indexes, columns and tables that only they needed may go in the same
    /// change.
    pub drop_foreign_keys: Vec<String>,
    /// Foreign keys that were proved (`Database::prove_foreign_keys`) and become permanent.
    pub add_foreign_keys: Vec<String>,
    /// A number of the caller's, kept with the table (`Database::table_info`) until another change
    /// sets one or it is forgotten (`Database::forget_mark`); 0 for none. After a crash it tells
    /// the caller whether this change was made.
    pub mark: u64,
}

/// A table and its changed definition.
pub(crate) struct Changed<'t> {
    table: &'t Arc<Table>,
    def: TableDef,
    /// Indexes that the new definition does not have.
    gone: Vec<IndexId>,
    /// The change waits for users of the table and keeps new ones out.
    moves: bool,
    mark: u64,
}

impl Changed<'_> {
    /// The links of keys that the new definition does not have.
    fn foreign_keys_dropped(&self) -> Vec<Arc<Link>> {
        let stays = |link: &Link| self.def.foreign_keys.iter().any(|k| k.number == link.key.number);
        let mut links = self.table.links.own();
        links.retain(|link| !link.is_provisional() && !stays(link));
        links
    }
}

impl TableChange {
    /// True if nothing is to change.
    pub fn is_empty(&self) -> bool {
        self.drop_indexes.is_empty()
            && self.rename_indexes.is_empty()
            && self.drop_columns.is_empty()
            && self.rename_columns.is_empty()
            && self.widen_columns.is_empty()
            && self.add_columns.is_empty()
            && self.drop_foreign_keys.is_empty()
            && self.add_foreign_keys.is_empty()
    }

    /// Returns the changed definition and the removed indexes.
    fn apply(&self, old: &TableDef, rules: KeyRules) -> Result<(TableDef, Vec<IndexId>)> {
        let mut def = old.clone();
        let mut gone = Vec::new();
        for name in &self.drop_foreign_keys {
            def.drop_foreign_key(name)?;
        }
        for name in &self.drop_indexes {
            gone.push(def.drop_index(name)?);
        }
        def.rename_indexes(&self.rename_indexes)?;
        def.check_index_count(&[])?;
        if !self.drop_columns.is_empty() || !self.add_columns.is_empty() {
            def.raise_format()?;
        }
        for name in &self.drop_columns {
            def.drop_column(name)?;
        }
        def.rename_columns(&self.rename_columns)?;
        def.widen_columns(&self.widen_columns, rules)?;
        for column in &self.add_columns {
            def.add_column(column)?;
        }
        if def.live_columns().is_empty() {
            return Err(Error::new(Code::DefinitionInvalid).with("why", "a table needs a column"));
        }
        Ok((def, gone))
    }

    /// True if the change removes something that transactions may know by its position, or moves
    /// what follows it. Readers do not use provisional indexes, so these are removed while the
    /// table is in use, as those of a failed build are. Writers maintain them in a final step, for
    /// which the publication waits.
    fn moves(&self, old: &TableDef, new: &TableDef) -> bool {
        let ids = |def: &TableDef| def.indexes.iter().map(|i| i.id).collect::<Vec<_>>();
        !self.drop_columns.is_empty()
            || self.drop_indexes.iter().any(|name| !name.starts_with(PROVISIONAL))
            || !ids(old).starts_with(&ids(new))
    }
}

/// The first character of provisional names: the names of indexes built ahead of the change that
/// renames or drops them. No user's name begins with it, because SQL's names end at U+FFFF.
pub const PROVISIONAL: char = '\u{10FFFF}';

fn invalid(column: &str, why: &str) -> Error {
    Error::new(Code::DefinitionInvalid).with("column", column).with("why", why)
}

impl TableDef {
    /// A number that differs after each change of columns or indexes, except provisional ones.
    pub fn fingerprint(&self) -> u64 {
        let mut bytes = Vec::new();
        for column in &self.columns {
            bytes.extend_from_slice(column.name.as_bytes());
            // The default was encoded before, or the column would not exist.
            if column.entry.encode(&mut bytes).is_err() {
                bytes.push(0);
            }
        }
        for index in self.indexes.iter().filter(|i| !i.name.starts_with(PROVISIONAL)) {
            bytes.extend_from_slice(index.name.as_bytes());
            bytes.extend_from_slice(&index.id.0.to_le_bytes());
        }
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
    }

    fn drop_index(&mut self, name: &str) -> Result<IndexId> {
        let dropped = self.index(name)?;
        if dropped.entry.primary {
            return Err(Error::new(Code::ColumnInUse).with("index", name));
        }
        let id = dropped.id;
        self.indexes.retain(|i| i.id != id);
        Ok(id)
    }

    fn rename_indexes(&mut self, renames: &[(String, String)]) -> Result<()> {
        let mut ids = Vec::new();
        for (from, to) in renames {
            check_index_name(to)?;
            let index = self.index(from)?;
            if index.entry.primary || to == "primary" {
                return Err(Error::new(Code::ColumnInUse).with("index", from));
            }
            ids.push((index.id, to));
        }
        for index in &mut self.indexes {
            if let Some((_, to)) = ids.iter().find(|(id, _)| *id == index.id) {
                index.name = (*to).clone();
            }
        }
        let twice = |name: &str| self.indexes.iter().filter(|i| i.name == name).count() > 1;
        match renames.iter().find(|(_, to)| twice(to)) {
            Some((_, to)) => Err(Error::new(Code::IndexExists).with("index", to)),
            None => Ok(()),
        }
    }

    fn drop_column(&mut self, name: &str) -> Result<()> {
        let id = self.column(name)?.id;
        let in_key = |parts: &[PartEntry]| parts.iter().any(|p| p.column == id);
        if in_key(&self.entry.primary) || self.indexes.iter().any(|i| in_key(&i.entry.parts)) {
            return Err(Error::new(Code::ColumnInUse).with("column", name));
        }
        if self.entry.auto_increment == Some(id) {
            self.entry.auto_increment = None;
        }
        let version = self.entry.row_version;
        for column in self.columns.iter_mut().filter(|c| c.id == id) {
            column.entry.dropped_in = version;
        }
        Ok(())
    }

    fn rename_columns(&mut self, renames: &[(String, String)]) -> Result<()> {
        let mut ids = Vec::new();
        for (from, to) in renames {
            check_name(to)?;
            ids.push((self.column(from)?.id, to));
        }
        for column in &mut self.columns {
            if let Some((_, to)) = ids.iter().find(|(id, _)| *id == column.id) {
                column.name = (*to).clone();
            }
        }
        let count =
            |name: &str| self.columns.iter().filter(|c| c.is_live() && c.name == name).count();
        match renames.iter().find(|(_, to)| count(to) > 1) {
            Some((_, to)) => Err(Error::new(Code::ColumnExists).with("column", to)),
            None => Ok(()),
        }
    }

    /// Keys of such columns keep their encoding. But a clustered key has a bound, and the longest
    /// possible key must not exceed it.
    fn widen_columns(&mut self, columns: &[(String, u32)], rules: KeyRules) -> Result<()> {
        for (name, max) in columns {
            let id = self.widen_column(name, *max)?;
            let (bytes, limit) = (self.primary_bytes_max(rules), rules.key_bytes_max());
            if bytes > limit && self.entry.primary.iter().any(|p| p.column == id) {
                let error = invalid(name, "the primary key would be too long for a page");
                return Err(error.with("bytes", bytes).with("limit", limit));
            }
        }
        Ok(())
    }

    fn widen_column(&mut self, name: &str, max: u32) -> Result<u16> {
        let column = self.column(name)?;
        let id = column.id;
        let ty = match column.entry.ty {
            ColumnType::Bytes { max: old } if old <= max => ColumnType::Bytes { max },
            ColumnType::Text { max: old } if old <= max => ColumnType::Text { max },
            _ => return Err(invalid(name, "only the length of bytes or text may grow")),
        };
        for column in self.columns.iter_mut().filter(|c| c.id == id) {
            column.entry.ty = ty;
        }
        Ok(id)
    }

    fn add_column(&mut self, column: &ColumnSpec) -> Result<()> {
        let needs_value = !column.nullable && column.default.is_none();
        if needs_value || column.auto_increment {
            let why = "a column added later needs a default or to be nullable";
            return Err(invalid(&column.name, why));
        }
        self.push_column(column)
    }
}

impl Store {
    /// Changes columns and indexes of a table, all or nothing. If an index or a column is dropped,
    /// the call waits for transactions that use the table, so that the positions they know stay
    /// right. Provisional indexes behind all others are removed without a wait.
    ///
    /// # Errors `TableMissing`, `TableBusy`, and faults of the change, each by its own code.
    pub fn alter_table(self: &Arc<Self>, table: &str, change: &TableChange) -> Result<()> {
        self.alter_table_with(table, change, &SchemaWait::default())
    }

    /// As `alter_table`, with the caller's wait.
    ///
    /// # Errors
    /// As `alter_table`; `StatementCancelled`.
    pub fn alter_table_with(
        self: &Arc<Self>,
        table: &str,
        change: &TableChange,
        wait: &SchemaWait<'_>,
    ) -> Result<()> {
        self.alter_tables(&[(table, change)], wait)
    }

    /// Changes several tables, each named once, as one change: all or none, also after a crash.
    ///
    /// # Errors
    /// As `alter_table_with`; `DefinitionInvalid` if a table is named twice.
    pub fn alter_tables(
        self: &Arc<Self>,
        changes: &[(&str, &TableChange)],
        wait: &SchemaWait<'_>,
    ) -> Result<()> {
        let tables = self.tables_by_id(changes)?;
        let mut held = Vec::new();
        for (name, table, _) in &tables {
            held.push(self.lock_ddl(name, table, wait)?);
        }
        let mut changed = Vec::new();
        for (_, table, change) in &tables {
            let old = table.layout();
            let (mut def, gone) = change.apply(&old.def, self.rules)?;
            table.links.make_permanent(&change.add_foreign_keys, &mut def)?;
            let moves = change.moves(&old.def, &def);
            changed.push(Changed { table, def, gone, moves, mark: change.mark });
        }
        for Changed { table, .. } in &changed {
            let def_of = |table: &Arc<Table>| {
                let new = changed.iter().find(|changed| Arc::ptr_eq(changed.table, table));
                new.map_or_else(|| (*table.layout().def).clone(), |changed| changed.def.clone())
            };
            table.links.check_after(&def_of)?;
        }
        if changes.iter().any(|(_, change)| !change.add_foreign_keys.is_empty()) {
            changed.iter().try_for_each(|changed| self.announce_features(&changed.def))?;
        }
        let mut closed = Vec::new();
        for Changed { table, .. } in changed.iter().filter(|c| c.moves) {
            table.close(&self.rt, self.lock_wait(), wait)?;
            closed.push(Closed(table));
        }
        let gone: Vec<IndexId> = changed.iter().flat_map(|c| c.gone.clone()).collect();
        self.publish_changes(changed)?;
        drop(closed);
        gone.into_iter().for_each(|id| self.forget_index(id));
        Ok(())
    }

    /// Waits until no transaction uses a table; those that begin meanwhile wait.
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`, `StatementCancelled`.
    pub fn wait_unused(&self, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        let table = self.table(name)?;
        let _held = self.lock_ddl(name, &table, wait)?;
        table.close(&self.rt, self.lock_wait(), wait)?;
        drop(Closed(&table));
        Ok(())
    }

    /// Waits until every transaction that may have changed a table by now has ended, prepared ones
    /// included. Others continue to read and write.
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`, `StatementCancelled`.
    pub fn wait_unchanged(&self, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        let table = self.table(name)?;
        let timeout = wait.timeout.unwrap_or_else(|| self.lock_wait());
        let waited =
            wait.in_steps(timeout, |step| table.wait_writers(&self.rt, step, &|| Ok(())).ok());
        waited.map_err(|error| error.with("table", name))
    }

    /// True if these columns of a table may grow to these lengths without its rows being rewritten.
    ///
    /// # Errors
    /// `TableMissing`, `ColumnMissing`.
    pub fn may_widen(&self, table: &str, columns: &[(String, u32)]) -> Result<bool> {
        let mut def = TableDef::clone(&self.table(table)?.layout().def);
        for (name, _) in columns {
            def.column(name)?;
        }
        Ok(def.widen_columns(columns, self.rules).is_ok())
    }

    /// The tables of these names with the value given for each, ordered by their ids, so that
    /// concurrent changes of several tables cannot deadlock.
    pub(crate) fn tables_by_id<'g, G: Copy>(
        &self,
        given: &[(&'g str, G)],
    ) -> Result<Vec<(&'g str, Arc<Table>, G)>> {
        let found = given.iter().map(|(name, given)| Ok((*name, self.table(name)?, *given)));
        let mut tables = found.collect::<Result<Vec<_>>>()?;
        tables.sort_by_key(|(_, table, _)| table.id());
        // The second change of the table would wait for the first.
        if let Some(twice) = tables.windows(2).find(|pair| pair[0].1.id() == pair[1].1.id()) {
            let error = Error::new(Code::DefinitionInvalid).with("table", twice[0].0);
            return Err(error.with("why", "the table is named twice"));
        }
        Ok(tables)
    }

    /// Makes changed definitions durable in one transaction, then publishes them.
    pub(crate) fn publish_changes(self: &Arc<Self>, changes: Vec<Changed<'_>>) -> Result<()> {
        let (mut layouts, mut dropped) = (Vec::new(), Vec::new());
        for change in &changes {
            dropped.push(change.foreign_keys_dropped());
            layouts.push(self.next_layout(&change.table.layout(), change.def.clone())?);
        }
        self.change_catalog(|txn| {
            for ((change, layout), dropped) in changes.iter().zip(&layouts).zip(&dropped) {
                let id = layout.def.id;
                for link in dropped {
                    self.remove_foreign_key(txn, id, &link.key)?;
                }
                for index in &change.gone {
                    self.remove_index(txn, id, *index)?;
                }
                self.put_table(txn, &layout.def)?;
                if change.mark != 0 {
                    self.put_counter(txn, (id, MARK), change.mark)?;
                }
            }
            Ok(())
        })?;
        dropped.iter().flatten().for_each(LinkList::cut);
        for (Changed { table, mark, .. }, layout) in changes.into_iter().zip(layouts) {
            let tree = table.state().tree.clone();
            table.links.are_permanent(&layout.def);
            self.note_awaiting(&layout.def);
            table.publish(&self.rt, TableState::new(layout, tree));
            if mark != 0 {
                table.mark.store(mark, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    /// Forgets the mark of a table's last change; durable with the next durable commit.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn forget_mark(self: &Arc<Self>, table: &str) -> Result<()> {
        let table = self.table(table)?;
        if table.mark.swap(0, Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let mut txn = self.catalog_txn();
        self.remove_entry(&mut txn, (table.id().0, entry_kind::COUNTER, MARK))?;
        txn.commit_ordered()?;
        Ok(())
    }

    /// Adds a column at the end; existing rows show its default. No row is rewritten.
    ///
    /// # Errors `TableMissing`, and faults of the column, each by its own code.
    pub fn add_column(self: &Arc<Self>, table: &str, column: &ColumnSpec) -> Result<()> {
        let add_columns = vec![column.clone()];
        self.alter_table(table, &TableChange { add_columns, ..TableChange::default() })
    }

    /// Drops a column that is in no key: waits for transactions that use the table. No row is
    /// rewritten.
    ///
    /// # Errors
    /// `TableMissing`, `ColumnMissing`, `TableBusy`, `ColumnInUse`, `DefinitionInvalid` for the
    /// last column.
    pub fn drop_column(self: &Arc<Self>, table: &str, column: &str) -> Result<()> {
        let drop_columns = vec![column.to_string()];
        self.alter_table(table, &TableChange { drop_columns, ..TableChange::default() })
    }

    /// Drops a foreign key of a table: one change of the catalog, which waits for nobody.
    ///
    /// # Errors
    /// `TableMissing`, `ForeignKeyMissing`, `TableBusy`.
    pub fn drop_foreign_key(self: &Arc<Self>, table: &str, name: &str) -> Result<()> {
        let drop_foreign_keys = vec![name.to_string()];
        self.alter_table(table, &TableChange { drop_foreign_keys, ..TableChange::default() })
    }

    /// Renames a column.
    ///
    /// # Errors
    /// `TableMissing`, `ColumnMissing`, `ColumnExists`, `NameInvalid`.
    pub fn rename_column(self: &Arc<Self>, table: &str, from: &str, to: &str) -> Result<()> {
        let rename_columns = vec![(from.to_string(), to.to_string())];
        self.alter_table(table, &TableChange { rename_columns, ..TableChange::default() })
    }

    /// Drops an index: waits for transactions that use the table, then frees its runs.
    ///
    /// # Errors
    /// `TableMissing`, `IndexMissing`, `TableBusy`, `ColumnInUse` for a primary key.
    pub fn drop_index(self: &Arc<Self>, table: &str, index: &str) -> Result<()> {
        let drop_indexes = vec![index.to_string()];
        let change = TableChange { drop_indexes, ..TableChange::default() };
        self.rt.freeing(|| self.alter_table(table, &change))
    }
}
