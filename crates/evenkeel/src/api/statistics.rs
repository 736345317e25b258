//! Statistics of keys, for query planners.

use crate::Database;
use crate::api::txn::check_writable;
use evenkeel_base::Result;
pub use evenkeel_tables::StatisticsEntry as KeyStatistics;

impl Database {
    /// Estimates how many different values the first parts of each key of a table have, from a
    /// bounded number of sampled rows, and keeps the result for `key_statistics`. Writers continue.
    ///
    /// ```
    /// # use evenkeel::{Access, ColumnSpec, ColumnType, Database, IndexSpec, Isolation};
    /// # use evenkeel::{Options, TableSpec};
    /// # let db = Database::open_with("/statistics", Options::in_memory())?;
    /// # let spec = TableSpec::new()
    /// #     .column(ColumnSpec::new("id", ColumnType::Int64))
    /// #     .column(ColumnSpec::new("town", ColumnType::Int64))
    /// #     .primary_key(&["id"])
    /// #     .index(IndexSpec::new("by_town", &["town"]));
    /// # db.create_table("people", &spec)?;
    /// let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
    /// for id in 0..60i64 {
    ///     txn.table("people")?.insert((id, id % 4))?;
    /// }
    /// txn.commit()?;
    /// db.analyze_table("people")?;
    /// let towns = db.key_statistics("people", "by_town")?.expect("was analyzed");
    /// assert_eq!(towns.rows_per_key(1), Some(15));
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy` while a schema change takes too long, of storage.
    pub fn analyze_table(&self, table: &str) -> Result<()> {
        check_writable(&self.engine)?;
        self.engine.store.analyze_table(table)
    }

    /// As `analyze_table`, with the caller's wait for schema changes of the table.
    ///
    /// # Errors
    /// As `analyze_table`; `StatementCancelled`.
    #[cfg(feature = "server")]
    pub fn analyze_table_with(
        &self,
        table: &str,
        wait: &evenkeel_tables::SchemaWait<'_>,
    ) -> Result<()> {
        check_writable(&self.engine)?;
        self.engine.store.analyze_table_with(table, wait)
    }

    /// The last result of `analyze_table` for an index, or for the clustered key (`index` empty);
    /// none if the table was not analyzed since the key was made.
    ///
    /// # Errors
    /// `TableMissing`, `IndexMissing`.
    pub fn key_statistics(&self, table: &str, index: &str) -> Result<Option<KeyStatistics>> {
        let table = self.engine.store.table(table)?;
        let at = match index.is_empty() {
            true => None,
            false => Some(table.layout().index(index)?),
        };
        Ok(table.statistics(at))
    }
}
