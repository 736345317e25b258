//! Weights of collations for the primary keys of a new database. Only the server can make weights,
//! but the stored key of each row has its own: a row enters the new table with the weights that
//! came with it.
//!
//! Invariant: `weights` answers only for the row that `keep` was called for last.

use crate::definition::Kept;
use evenkeel::{Code, Collations, Error, Result};
use evenkeel_base::sync::Mutex;
use evenkeel_format::catalog::PartCollation;
use std::collections::BTreeMap;

/// See the module's documentation.
#[derive(Default)]
pub struct KeptWeights {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the collations that the catalog names, by their numbers.
    checksums: BTreeMap<u16, u32>,
    of_row: Vec<Kept>,
}

impl KeptWeights {
    /// For a database that is open as long as the process.
    pub fn new() -> &'static KeptWeights {
        Box::leak(Box::default())
    }

    /// The tables that are made from now on may use this collation.
    pub fn know(&self, collation: PartCollation) {
        self.state.lock().checksums.insert(collation.id, collation.checksum);
    }

    /// Keeps the weights of the row that is written next.
    pub fn keep(&self, of_row: Vec<Kept>) {
        self.state.lock().of_row = of_row;
    }
}

impl Collations for KeptWeights {
    fn weights(&self, collation: u16, chars: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let state = self.state.lock();
        let is_it = |kept: &&Kept| {
            (kept.collation, kept.chars) == (collation, chars) && kept.value == bytes
        };
        match state.of_row.iter().find(is_it) {
            Some(kept) => out.extend_from_slice(&kept.weights),
            None => return Err(Error::new(Code::CollationMissing).with("collation", collation)),
        }
        Ok(())
    }

    /// The keys had room in the tables that they come from.
    fn bytes_max(&self, _collation: u16, _chars: u32, _bytes: u32) -> usize {
        0
    }

    fn checksum(&self, collation: u16) -> Option<u32> {
        self.state.lock().checksums.get(&collation).copied()
    }
}
