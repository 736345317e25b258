//! Secondary indexes: one memtable and sorted runs, flushed and compacted in beats (protocols A3,
//! D, F).
//!
//! Life of an entry: a row operation reserves memtable bytes, pins the active generation, appends
//! its record and inserts its entries. A full (or old) generation is handed over and flushed as a
//! whole into one file, which holds a sorted slice per index and is named in a manifest record.
//! Slices are runs; runs that are neighbours in age are compacted until few are left, and finally
//! one bottom run.
//!
//! Order of an index: (column bytes, pk), then newest first by age; timestamps only decide the
//! visibility to snapshots (A3). Column bytes are memcomparable and prefix-free.
//!
//! Order at open: `create`, `attach_log`, `restore` (checkpoint), `apply_manifest` for every
//! manifest record of the log, `add_index` for every index of the catalog, `replay_row` for the row
//! records, `finish_restore`.
//!
//! For `txn` (A5): the id of an aborted transaction may leave the commit table only when
//! [`Runs::needs`] is false for it.

mod admission;
mod compaction;
mod flush;
mod index_build;
mod latch;
mod memtable;
mod read;
mod restore;
mod run;
mod runs;
mod state;
mod sync;
#[cfg(test)]
mod tests;

pub use admission::MemReserved;
pub use compaction::CompactionFigures;
pub use index_build::{
    BuiltEntries, BuiltPart, CHECK_EVERY, DuplicateKey, RunPlan, Sorted, Unsorted,
};
pub use memtable::GenPin;
pub use read::cursor::{EntryRef, IndexCursor, KeyRange, Sees};
pub use read::prune::{Asked, Summary, SummaryBuilder};
pub use read::run_iter::block_read_bytes;
pub use read::source::Direction;
pub use read::unique::UniqueGuard;
pub use run::file::path as file_path;
pub use runs::{CurrentFn, Lent, Runs, entry_bytes};

use evenkeel_base::{IndexId, Lsn, Result};
use evenkeel_format::record::RecordKind;

/// Sizes, all in bytes.
#[derive(Clone, Copy, Debug)]
pub struct RunsOptions {
    /// Bytes of one memtable generation; there are at most three.
    pub generation_bytes: u64,
    /// Decompressed run blocks kept in memory.
    pub cache_bytes: u64,
}

/// The facts of an index in `runs`.
#[derive(Clone, Copy, Debug)]
pub struct IndexSpec {
    /// Its id, never reused.
    pub id: IndexId,
    /// Its column bytes are checked to be unique: its runs carry filters over them.
    pub unique_key: bool,
    /// Its build is not installed yet: no DEL of it is dropped (F2).
    pub building: bool,
    /// The timestamp from which on it is VALID; zero if it was made with its table (D4).
    pub valid_from: Lsn,
}

/// Figures of one index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Runs.
    pub runs: u64,
    /// Their segments.
    pub segments: u64,
    /// Entries in runs, deleted and superseded ones included.
    pub run_entries: u64,
    /// Deletions among them.
    pub run_deletes: u64,
    /// Bytes of its runs on storage.
    pub run_bytes: u64,
    /// Bytes of its fences and filters in memory.
    pub resident_bytes: u64,
    /// Entries in memtables, of all indexes.
    pub memtable_entries: u64,
}

/// The functions of the log that `runs` needs: its end, its capacity, and manifest records.
pub trait ManifestLog: Send + Sync {
    /// End of the log.
    fn end(&self) -> Lsn;
    /// Bytes the log may hold.
    fn capacity(&self) -> u64;
    /// Appends a manifest record, from the part of the log that is reserved for such records and
    /// checkpoints, and waits until it is durable. Never waits for log space, because the waiters
    /// for space may wait for this record.
    ///
    /// # Errors
    /// Of the log.
    fn append_manifest(&self, body: &[u8]) -> Result<Lsn>;
    /// The lowest needed LSN has risen: the checkpoint may advance.
    fn low_lsn_moved(&self) {}
}

/// What [`Runs::check`] has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Blocks read.
    pub blocks: u64,
    /// Entries read.
    pub entries: u64,
    /// Bytes read.
    pub bytes: u64,
}

impl ManifestLog for evenkeel_log::Log {
    fn end(&self) -> Lsn {
        evenkeel_log::Log::end(self)
    }
    fn capacity(&self) -> u64 {
        evenkeel_log::Log::capacity(self)
    }
    fn append_manifest(&self, body: &[u8]) -> Result<Lsn> {
        let mut reserved = self.reserve(body.len(), evenkeel_log::Share::Checkpoint)?;
        let lsn = self.append(&mut reserved, RecordKind::Manifest, &[body]);
        self.wait_durable(lsn)?;
        Ok(lsn)
    }
    fn low_lsn_moved(&self) {
        self.pressure().notify();
    }
}
