//! Index builds: entries in any order, sorted in an arena, written as the oldest runs of their
//! index, without timestamps (F2, F4).

use crate::Runs;
use evenkeel_base::{IndexId, Lsn, Result};
use std::sync::Arc;

/// Sorts the entries of one index that one thread produces. Several may work side by side.
pub struct RunBuilder {
    runs: Arc<Runs>,
    index: IndexId,
    entries: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>,
}

/// What a builder wrote: give all parts of an index to [`Runs::install`]. Dropped without that, its
/// files are removed.
pub struct BuiltPart {
    pub(crate) entries: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>,
}

impl RunBuilder {
    pub(crate) fn new(runs: Arc<Runs>, index: IndexId, _arena_bytes: usize) -> RunBuilder {
        RunBuilder { runs, index, entries: Vec::new() }
    }

    /// The index.
    pub fn index(&self) -> IndexId {
        self.index
    }

    /// Takes an entry; each (key, pk) once.
    ///
    /// # Errors
    /// Of writing a full arena.
    pub fn push(&mut self, key: &[u8], pk: &[u8], value: &[u8]) -> Result<()> {
        self.runs.check_writable()?;
        self.entries.push((key.to_vec(), pk.to_vec(), value.to_vec()));
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// Of writing.
    pub fn finish(self) -> Result<BuiltPart> {
        Ok(BuiltPart { entries: self.entries })
    }
}

/// A duplicate found by [`Runs::find_duplicate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateKey {
    /// Column bytes.
    pub key: Vec<u8>,
    /// One clustered key.
    pub first_pk: Vec<u8>,
    /// Another.
    pub second_pk: Vec<u8>,
}
