//! What a backup keeps from being removed, and the checkpoint at which it begins.
//!
//! Order: 1. the log is pinned at its checkpoint, 2. removals in `runs` and `undo` are held, 3. a
//! checkpoint is taken and the superblock read. A database that is open to read takes none: what it
//! writes stays in memory, and its positions would not be those of the directory. So all that this
//! superblock needs is kept, and so is every file that a later record names. Pages need no pin:
//! what a page loses when its extent is freed is not needed behind the record of that, which the
//! backup contains.

use crate::background::checkpoint::Checkpoint;
use crate::engine::Engine;
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::superblock::Superblock;
use evenkeel_io::RemovalHold;
use evenkeel_log::LogPin;

/// The directories in which nothing is removed.
const HELD: &[&str] = &["runs", "undo"];

/// Kept until it is dropped.
pub(super) struct Pins {
    pub log: LogPin,
    _files: RemovalHold,
    /// Names the checkpoint at which the backup begins.
    pub superblock: Superblock,
}

impl Pins {
    /// # Errors
    /// Of the checkpoint; `BackupRunning`.
    pub(super) fn take(engine: &Engine) -> Result<Pins> {
        let other = || Error::new(Code::BackupRunning);
        let limit = engine.options.geometry.log_bytes.unwrap_or(engine.options.log_size);
        let log = engine.log.pin(limit).ok_or_else(other)?;
        let files = engine.rt.hold_removals(HELD).ok_or_else(other)?;
        if !engine.options.read_only {
            engine.checkpointer.take(Checkpoint::Running)?;
        }
        let superblock = engine.checkpointer.superblock();
        Ok(Pins { log, _files: files, superblock })
    }
}
