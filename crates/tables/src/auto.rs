//! Auto-increment: numbers are handed out from memory below a high-water mark in the catalog, which
//! is raised in steps; so they never go back, neither by a rollback nor by a crash.

use crate::catalog::AUTO_INCREMENT;
use crate::shape::Shape;
use crate::store::Store;
use crate::table::Table;
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::ValueRef;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Store {
    /// The number for the auto-increment column at `column`: the next one where NULL is given
    /// (`had`: the one it was given in an earlier attempt), none where a value is given.
    pub(crate) fn auto_number(
        self: &Arc<Self>,
        table: &Arc<Table>,
        shape: &Shape,
        column: usize,
        given: ValueRef<'_>,
        had: Option<u64>,
    ) -> Result<Option<u64>> {
        let raise = |high| self.log_counter(table.id(), AUTO_INCREMENT, high);
        let given = match given {
            ValueRef::Null => {
                if had.is_some() {
                    return Ok(had);
                }
                let number = self.next_number(&table.auto, &raise)?;
                if number > shape.columns[column].entry.ty.integer_max() {
                    return Err(Error::new(Code::AutoIncrementSpent)
                        .with("table", &shape.def.name)
                        .with("column", &shape.columns[column].name));
                }
                return Ok(Some(number));
            }
            ValueRef::Int(i) => u64::try_from(i).unwrap_or(0),
            ValueRef::UInt(u) => u,
            _ => return Ok(None),
        };
        // Numbers go on above a value that was given.
        if given >= table.auto.next.load(Ordering::SeqCst) && given < u64::MAX {
            table.auto.next.fetch_max(given + 1, Ordering::SeqCst);
            self.raise_above(&table.auto, given, &raise)?;
        }
        Ok(None)
    }
}
