//! Adds the names of table and index to errors of a damaged index. `runs` knows only ids.

use crate::Store;
use evenkeel_base::{Code, Error, IndexId, Result};

/// The context that names the place of the damage.
const PLACE: [&str; 4] = ["file", "offset", "block", "why"];

impl Store {
    /// A result of reading an index; an error of damage names table and index.
    #[inline]
    pub(crate) fn read_index<T>(&self, read: Result<T>) -> Result<T> {
        read.map_err(|error| match error.code() {
            Code::RunDamaged => self.name_damage(error),
            _ => error,
        })
    }

    fn name_damage(&self, error: Error) -> Error {
        let id = error.context("index").and_then(|id| id.parse().ok()).map(IndexId);
        let names = self.table_names();
        let mut layouts =
            names.iter().filter_map(|name| Some((name, self.table(name).ok()?.layout())));
        let named = layouts.find_map(|(table, layout)| {
            let index = layout.indexes.iter().find(|index| Some(index.id) == id)?;
            let named =
                Error::new(Code::RunDamaged).with("table", table).with("index", &index.name);
            let place = PLACE.iter().filter_map(|name| Some((*name, error.context(name)?)));
            Some(place.fold(named, |named, (name, value)| named.with(name, value)))
        });
        named.unwrap_or(error)
    }
}
