//! Repair of a damaged table.

use crate::api::database::Database;
use evenkeel_base::Result;
use evenkeel_tables::{BuildProgress, CheckProgress, RepairScope, TableRepair};

impl Database {
    /// Checks a table and repairs what is damaged. Damaged indexes are built anew from the rows,
    /// while others read and write the table. If rows are damaged, [`RepairScope::Indexes`] changes
    /// nothing and says so in the report; [`RepairScope::Rows`] keeps the rows that can be read and
    /// reports the ranges of keys that are lost. It copies the table, so it needs space for a
    /// second one, and others wait for it. A table that is not damaged is not changed.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// # use evenkeel::RepairScope;
    /// let progress = BuildProgress::default();
    /// let report = db.repair_table("people", RepairScope::Indexes, &progress, &|_| {})?;
    /// assert!(report.rebuilt.is_empty() && report.problems.is_empty());
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`; `BuildCancelled` if `progress` was cancelled; those of storage.
    pub fn repair_table(
        &self,
        table: &str,
        scope: RepairScope,
        progress: &BuildProgress,
        watch: &dyn Fn(CheckProgress),
    ) -> Result<TableRepair> {
        self.check_ddl()?;
        self.engine.store.repair_table(table, scope, progress, watch)
    }
}
