//! Ids, errors, visibility rules, waits by cause and metrics: the plain data that every layer
//! shares. This crate has no I/O, no threads and no clock, and depends on no other crate of ours.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("Evenkeel needs a 64-bit target: positions in files and memory have 64 bits");

pub mod beat;
pub mod codes;
pub mod error;
pub mod fault_injection;
pub mod health;
pub mod ids;
pub mod journal;
pub mod metrics;
pub mod sync;
pub mod visibility;
pub mod wait_event;

pub use beat::Beat;
pub use codes::Code;
pub use error::{Error, Kind, Result};
pub use health::Health;
pub use ids::{DatabaseId, Generation, IndexId, Lsn, PageNo, TableId, TreeId, TxnId, UndoNo};
pub use visibility::{CommitTable, OldVersion, Snapshot, Stamp, TxnState, VersionSource};
pub use wait_event::{Cause, WaitEvents};

/// CRC-32C of `bytes`, continued from `seed` (0 to start).
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(seed, bytes)
}
