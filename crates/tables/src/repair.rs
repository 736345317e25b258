//! Repairing a damaged table from what can be read of it.
//!
//! A check says what is damaged. Indexes are built anew from the rows, one after the other
//! (`build::rebuild`). Damaged rows are given up only if the caller says so: then the rows that can
//! be read are copied into a new tree, with new indexes, which replaces the table's tree (`rows`).
//! Each of these changes is one transaction on the catalog, so a crash leaves the state before it
//! or after it. A table that is not damaged is not changed.

use crate::build::BuildProgress;
use crate::check::{CheckProgress, TableCheck};
use crate::store::Store;
use evenkeel_base::{Code, Error, Kind, Result};
use std::ops::Bound;
use std::sync::Arc;

mod rows;
mod words;

/// Lost ranges and keys that a report lists at most.
const LOST_MAX: usize = 1_000;

/// What a repair may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairScope {
    /// Indexes. If rows are damaged nothing is repaired.
    Indexes,
    /// Also rows: the rows that cannot be read are given up.
    Rows,
}

/// An index that was built anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRebuilt {
    /// Its name.
    pub index: String,
    /// Its entries.
    pub entries: u64,
}

/// Keys whose rows cannot be read. The range may have had no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The first key, in words.
    pub from: String,
    /// The first key behind the range, in words; empty if it is a single key.
    pub below: String,
    /// Why, with the page.
    pub why: String,
}

/// What a repair found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRepair {
    /// Rows of the table.
    pub rows: u64,
    /// The damage that the check found, a line for each problem.
    pub found: Vec<String>,
    /// Indexes that were built anew.
    pub rebuilt: Vec<IndexRebuilt>,
    /// Ranges of keys whose rows were given up, the first ones.
    pub lost: Vec<LostRange>,
    /// How many there are in all.
    pub lost_ranges: u64,
    /// The damage that is left, a line for each problem.
    pub problems: Vec<String>,
    /// Rows are damaged, and the repair was not to give them up: nothing was changed.
    pub rows_damaged: bool,
}

impl TableRepair {
    fn lose(&mut self, range: LostRange) {
        self.lost_ranges += 1;
        if self.lost.len() < LOST_MAX {
            self.lost.push(range);
        }
    }
}

impl Store {
    /// Checks a table and repairs what is damaged. Others read and write the table while its
    /// indexes are built, and wait while damaged rows are given up. `progress` cancels the repair;
    /// `watch` hears how far the check is.
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`, `BuildCancelled`; those of storage. Each index that was built
    /// before stays.
    pub fn repair_table(
        self: &Arc<Self>,
        name: &str,
        scope: RepairScope,
        progress: &BuildProgress,
        watch: &dyn Fn(CheckProgress),
    ) -> Result<TableRepair> {
        let done = self.repair(name, scope, progress, watch);
        progress.end();
        done
    }

    fn repair(
        self: &Arc<Self>,
        name: &str,
        scope: RepairScope,
        progress: &BuildProgress,
        watch: &dyn Fn(CheckProgress),
    ) -> Result<TableRepair> {
        let cancelled = |now: CheckProgress| {
            watch(now);
            progress.check().is_err()
        };
        let checked = self.check_table_until(name, &cancelled);
        // A check that was cancelled after it had found a problem returns what it has found.
        progress.check()?;
        let gives_up = scope == RepairScope::Rows;
        let checked = match checked {
            // A device that fails to read a page may fail each time.
            Err(error) if gives_up && error.code() == Code::ReadFailed => TableCheck {
                problems: vec![format!("table {name}: {error}")],
                rows_damaged: true,
                ..TableCheck::default()
            },
            checked => checked?,
        };
        let found = checked.problems.clone();
        let mut report = TableRepair { rows: checked.rows, found, ..TableRepair::default() };
        if gives_up && (checked.rows_damaged || checked.pages_unreachable) {
            self.keep_rows(name, progress, &mut report)?;
            return Ok(report);
        }
        if checked.rows_damaged {
            report.rows_damaged = true;
            report.problems = checked.problems;
            return Ok(report);
        }
        if checked.pages_unreachable {
            report.problems.push(format!(
                "table {name}: pages are in use that no row needs: they take space and do no harm"
            ));
        }
        if checked.rows_without_parent > 0 {
            report.problems.push(format!(
                "table {name}: {} references of rows are to rows that do not exist: insert these, \
                 or delete or change the rows that refer to them",
                checked.rows_without_parent
            ));
        }
        self.rebuild_indexes(name, &checked.indexes_damaged, progress, &mut report)?;
        Ok(report)
    }

    fn rebuild_indexes(
        self: &Arc<Self>,
        name: &str,
        indexes: &[String],
        progress: &BuildProgress,
        report: &mut TableRepair,
    ) -> Result<()> {
        let all = self.table(name)?.state().tree.estimate(Bound::Unbounded, Bound::Unbounded)?;
        for (n, index) in (1..).zip(indexes) {
            let behind = all * (indexes.len() as u64 - n);
            match self.rebuild_index(name, index, progress, behind) {
                Ok(Some(entries)) => {
                    report.rebuilt.push(IndexRebuilt { index: index.clone(), entries });
                }
                // Dropped since the check.
                Ok(None) => {}
                Err(error) if is_of_rows(&error) => {
                    let problem =
                        format!("table {name}: index {index} was not built anew: {error}");
                    report.problems.push(problem);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// True if an index cannot be built because of the rows; others may be.
fn is_of_rows(error: &Error) -> bool {
    error.code() == Code::DuplicateInBuild || error.kind() == Kind::Corrupt
}
