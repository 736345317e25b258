//! Rows of a copy that do not arrive in key order: sorted in the arena of an index build, written
//! as runs of no index when it is full, and read back as one sequence.

use crate::build::BuildProgress;
use crate::build::arena::BuildArena;
use crate::catalog::NextId;
use crate::store::Store;
use evenkeel_base::{IndexId, Result};
use evenkeel_runs::{BuiltEntries, BuiltPart, Sorted, Unsorted};
use std::sync::Arc;

/// Bytes of a piece, which is sorted in the cache of a core.
const PIECE_BYTES: usize = 1 << 20;

/// The rows so far.
pub(super) struct Sorter {
    store: Arc<Store>,
    progress: BuildProgress,
    /// The id under which runs are written; no index has it.
    id: IndexId,
    open: Unsorted,
    pieces: Vec<Sorted>,
    bytes: usize,
    arena: BuildArena,
    runs: Vec<BuiltPart>,
    /// Appended to each key, so that rows of one key keep their order.
    number: u64,
}

impl Sorter {
    pub fn new(store: &Arc<Store>, progress: &BuildProgress) -> Result<Sorter> {
        let id = IndexId(store.next_id(NextId::Index)?);
        Ok(Sorter {
            store: store.clone(),
            progress: progress.clone(),
            id,
            open: Unsorted::new(id),
            pieces: Vec::new(),
            bytes: 0,
            arena: BuildArena::new(store, &[]),
            runs: Vec::new(),
            number: 0,
        })
    }

    pub fn push(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        self.open.push(key, &self.number.to_be_bytes(), row)?;
        self.number += 1;
        if self.open.bytes() < PIECE_BYTES.min(self.arena.bytes()) {
            return Ok(());
        }
        self.seal()?;
        let is_full = self.bytes >= self.arena.bytes();
        if is_full && !self.arena.grow_to_most() { self.write() } else { Ok(()) }
    }

    fn seal(&mut self) -> Result<()> {
        let piece = self.open.sort()?;
        self.bytes += piece.bytes();
        self.pieces.push(piece);
        Ok(())
    }

    /// Writes the content of the arena as a run.
    fn write(&mut self) -> Result<()> {
        let pieces = std::mem::take(&mut self.pieces);
        let plan = self.store.runs.plan_run(self.id, pieces, 1)?;
        for part in 0..plan.parts() {
            plan.write(part, &|| self.progress.check())?;
        }
        self.runs.push(plan.finish());
        self.bytes = 0;
        Ok(())
    }

    /// All rows in order.
    pub fn finish(mut self) -> Result<BuiltEntries> {
        self.seal()?;
        self.write()?;
        self.store.runs.read_built(std::mem::take(&mut self.runs))
    }
}
