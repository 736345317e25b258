//! `TableHandle`: a table by its name, for callers that use it again and again.
//!
//! At every moment a handle gives the table that a lookup of its name would give: the name is
//! looked up anew once any table was made, renamed or dropped since (`Catalog::version`). A table
//! that is altered or emptied stays the same table, whose state has moved on. A handle keeps no
//! table: one that is dropped leaves memory whatever handles there are.

use crate::store::Store;
use crate::table::Table;
use evenkeel_base::Result;
use std::sync::{Arc, Weak};

/// A table by its name.
#[derive(Debug)]
pub struct TableHandle {
    name: String,
    known: Weak<Table>,
    /// The version of the catalog by which `known` has the name; zero: none.
    at: u64,
}

impl TableHandle {
    /// Of the table that has this name when the handle is used; there may be none now.
    pub fn new(name: &str) -> TableHandle {
        TableHandle { name: name.to_string(), known: Weak::new(), at: 0 }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Store {
    /// The table that has the handle's name now.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn table_of(&self, handle: &mut TableHandle) -> Result<Arc<Table>> {
        // Before the lookup: a change between the two is then noticed the next time.
        let version = self.catalog.version();
        if handle.at == version
            && let Some(table) = handle.known.upgrade()
        {
            return Ok(table);
        }
        let table = self.table(&handle.name)?;
        (handle.known, handle.at) = (Arc::downgrade(&table), version);
        Ok(table)
    }
}
