//! Copies files that do not change, a piece at a time: those of runs, and undo, of which only what
//! the checkpoint names counts (undo files are appended to). The pins keep them.

use crate::backup::destination::Destination;
use evenkeel_base::Result;
use evenkeel_format::backup::PIECE_BYTES;
use evenkeel_io::{AlignedBuf, File, IO_ALIGN, OpenMode, Runtime};
use evenkeel_runs::file_path;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The paths of runs.
pub(super) fn runs(numbers: &BTreeSet<u64>) -> Vec<String> {
    numbers.iter().map(|number| file_path(*number)).collect()
}

/// The undo files that exist now. What is appended to them later is in the log.
///
/// # Errors
/// Those of the environment.
pub(super) fn undo(rt: &Runtime) -> Result<Vec<String>> {
    let names = rt.env.list("undo")?.into_iter();
    Ok(names.filter(|name| name.ends_with(".undo")).map(|name| format!("undo/{name}")).collect())
}

/// A file that is being copied.
pub(super) struct FileCopy {
    path: String,
    file: Arc<dyn File>,
    bytes: u64,
    next: u64,
    piece: AlignedBuf,
}

impl FileCopy {
    /// # Errors
    /// Of a file that cannot be opened.
    pub(super) fn begin(rt: &Runtime, path: String) -> Result<FileCopy> {
        // Whole blocks bypass the system's page cache, which holds what users read.
        let file = rt.env.open(&path, OpenMode::READ.direct())?;
        let bytes = file.len()?;
        let piece = AlignedBuf::new(PIECE_BYTES as usize);
        Ok(FileCopy { path, file, bytes, next: 0, piece })
    }

    /// Copies a piece, and returns its bytes; none when the file is copied and durable.
    ///
    /// # Errors
    /// Of a file that cannot be read, and of the destination.
    pub(super) fn step(&mut self, rt: &Runtime, to: &mut Destination) -> Result<Option<u64>> {
        let start = self.next * PIECE_BYTES;
        if start >= self.bytes {
            to.close(&self.path, self.bytes)?;
            return Ok(None);
        }
        let len = PIECE_BYTES.min(self.bytes - start) as usize;
        let whole = len / IO_ALIGN * IO_ALIGN;
        self.file.read_at(&mut self.piece[..whole], start)?;
        if whole < len {
            let rest = rt.env.open(&self.path, OpenMode::READ)?;
            rest.read_at(&mut self.piece[whole..len], start + whole as u64)?;
        }
        to.write(&self.path, self.next, &mut self.piece, len)?;
        self.next += 1;
        Ok(Some(len as u64))
    }
}
