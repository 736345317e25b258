//! Foreign keys of tables, for a program that replaces tables by copies and shows definitions.

use crate::api::database::Database;
use evenkeel_base::Result;
use evenkeel_tables::{ForeignKeyView, SchemaWait, TableRename};

impl Database {
    /// As `rename_table_with`, with what a rename changes besides.
    ///
    /// # Errors
    /// As `rename_table_with`; `ForeignKeyInvalid` if the table lacks what a key needs.
    pub fn rename_table_as(&self, given: &TableRename<'_>, wait: &SchemaWait<'_>) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.rename_as(given, wait)
    }

    /// Checks that `new` has what foreign keys to `old` need, which it is to replace.
    ///
    /// # Errors
    /// `TableMissing`; `ForeignKeyInvalid` naming the key and what it lacks.
    pub fn check_replacement(&self, old: &str, new: &str) -> Result<()> {
        self.engine.store.check_replacement(old, new)
    }

    /// Calls `each` with the foreign keys of a table, or with those that refer to it.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn foreign_keys(
        &self,
        table: &str,
        to_it: bool,
        each: &mut dyn FnMut(&ForeignKeyView<'_>),
    ) -> Result<()> {
        self.engine.store.foreign_keys(table, to_it, each)
    }

    /// True if foreign keys refer to a table.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn is_referenced(&self, table: &str) -> Result<bool> {
        self.engine.store.is_referenced(table)
    }
}
