//! The earlier backup on which an incremental one builds: which of its pieces are as they were.
//!
//! ```text
//! LSN of every change that an image of the base lacks >= `unchanged_below`
//! ```
//!
//! A page of which the newest change is below `unchanged_below` is therefore in the base as it is
//! now. That position is not the end of the base: a change between the two may be missing from the
//! image of the base, whose log has it, and that log is not part of the incremental backup. Files
//! of runs never change, and their numbers are not used again.

use crate::backup::restore::BackupSource;
use crate::engine::Engine;
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{Code, Error, Lsn, Result};
use evenkeel_format::backup::{BackupBase, BackupFile, Piece};
use std::collections::BTreeMap;
use std::path::Path;

/// Refuses a destination that is the base, or lies in it.
///
/// # Errors
/// `BackupBase`.
pub(super) fn check_apart(base: &Path, destination: &Path) -> Result<()> {
    // A base that is not there is told by what reads it.
    let Ok(base) = base.canonicalize() else { return Ok(()) };
    let whole = std::path::absolute(destination).unwrap_or_else(|_| destination.to_path_buf());
    let there = whole.ancestors().find_map(|dir| dir.canonicalize().ok());
    let why = match there {
        Some(there) if there == base && whole.exists() => "the new backup has the same directory",
        Some(there) if there.starts_with(&base) => "the directory of the new backup lies in it",
        _ => return Ok(()),
    };
    Err(Error::new(Code::BackupBase).with("backup", base.display()).with("why", why))
}

pub(super) struct Base {
    /// What the manifest of the new backup says about it.
    pub named: BackupBase,
    unchanged_below: Lsn,
    files: BTreeMap<String, BackupFile>,
}

impl Base {
    /// # Errors
    /// `BackupBase` if it is of another database, or of another line of history of this one.
    pub(super) fn new(engine: &Engine, from: &BackupSource) -> Result<Base> {
        let (manifest, superblock) = (&from.manifest, from.superblock()?);
        let present = engine.checkpointer.superblock();
        let refuse = |why: &str| {
            Err(Error::new(Code::BackupBase).with("backup", from.name()).with("why", why))
        };
        if manifest.database != present.database_id {
            return refuse("it is of another database");
        }
        if superblock.timeline.id != present.timeline.id || present.timeline.id == 0 {
            return refuse("the database has been restored from a backup since, or it has been");
        }
        let is_ahead = superblock.epoch > present.epoch || manifest.end > engine.log.end();
        if manifest.page_size != present.page_size || is_ahead {
            return refuse("the database has not reached its end");
        }
        let unchanged_below = match fault_injection::is(Fault::ChangedBelowEndNotCopied) {
            true => manifest.end,
            false => superblock.page_redo.max(superblock.redo),
        };
        let files = manifest.files.iter().map(|file| (file.path.clone(), file.clone()));
        Ok(Base { named: from.as_base(), unchanged_below, files: files.collect() })
    }

    /// True if the piece of a file whose newest change is this one need not be copied.
    pub(super) fn has(&self, path: &str, piece: u64, newest: Lsn) -> bool {
        let file = self.files.get(path);
        let is_there = file.and_then(|file| file.pieces.get(piece as usize));
        newest < self.unchanged_below && is_there.is_some_and(|piece| *piece != Piece::Zeros)
    }

    /// The pieces of a file that does not change, as the new backup names them.
    pub(super) fn whole(&self, path: &str, bytes: u64) -> Option<Vec<Piece>> {
        let file = self.files.get(path).filter(|file| file.bytes == bytes)?;
        let of_base = |piece: &Piece| match piece {
            Piece::Zeros => Piece::Zeros,
            Piece::Stored(_) | Piece::OfBase => Piece::OfBase,
        };
        Some(file.pieces.iter().map(of_base).collect())
    }
}
