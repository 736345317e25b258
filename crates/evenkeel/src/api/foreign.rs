//! Foreign keys of tables: adding and dropping them; and what a program needs that replaces tables
//! by copies and shows definitions.

use crate::api::database::Database;
use evenkeel_base::Result;
use evenkeel_tables::{BuildProgress, ForeignKeySpec, ForeignKeyView, SchemaWait, TableRename};

impl Database {
    /// Adds a foreign key to a table, while others read and write. New rows keep the key from the
    /// beginning; then the rows that are there are looked up by one pass over the table's index.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let towns = TableSpec::new().column(ColumnSpec::new("name", ColumnType::Text { max: 50 }));
    /// db.create_table("towns", &towns.primary_key(&["name"]))?;
    /// let key = ForeignKeySpec::new("lives_in", &["town"], "towns", &["name"]);
    /// let error = db.add_foreign_key("people", &key).expect_err("no town is there");
    /// assert_eq!(error.code(), Code::ParentRowMissing);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `add_foreign_keys`.
    pub fn add_foreign_key(&self, table: &str, key: &ForeignKeySpec) -> Result<()> {
        self.add_foreign_keys(table, std::slice::from_ref(key), true, &BuildProgress::default())
    }

    /// Adds foreign keys to a table, all or none. `progress` shows the progress and cancels the
    /// addition from another thread. If `validates` is false the rows that are there are not looked
    /// up; a check of the table then finds those that refer to nothing.
    ///
    /// # Errors
    /// `TableMissing`, `ForeignKeyInvalid` and other faults of the definition; `ParentRowMissing`
    /// names a row that refers to nothing; `TableBusy`, `BuildCancelled`. Nothing is left behind
    /// then.
    pub fn add_foreign_keys(
        &self,
        table: &str,
        keys: &[ForeignKeySpec],
        validates: bool,
        progress: &BuildProgress,
    ) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.add_foreign_keys(table, keys, validates, progress)
    }

    /// The first half of `add_foreign_keys`: the keys are enforced and proved, and exist in memory
    /// only. `TableChange::add_foreign_keys` makes them permanent, in one change with others;
    /// `forget_foreign_keys` removes them, and so does a crash.
    ///
    /// # Errors
    /// As `add_foreign_keys`.
    pub fn prove_foreign_keys(
        &self,
        table: &str,
        keys: &[ForeignKeySpec],
        validates: bool,
        progress: &BuildProgress,
    ) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.prove_foreign_keys(table, keys, validates, progress)
    }

    /// Removes the keys of a table that were proved and not made permanent.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn forget_foreign_keys(&self, table: &str) -> Result<()> {
        self.engine.store.forget_foreign_keys(table)
    }

    /// Drops a foreign key: one change of the catalog, which waits for nobody.
    ///
    /// # Errors
    /// `TableMissing`, `ForeignKeyMissing`, `TableBusy`.
    pub fn drop_foreign_key(&self, table: &str, key: &str) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.drop_foreign_key(table, key)
    }

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
