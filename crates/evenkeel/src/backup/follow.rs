//! An armed backup between its copy and its end: it copies new log, pages and runs as they appear,
//! so that little is left when its end is asked for.
//!
//! It holds no snapshot, and the log is not synced for it. Pages that the log names as unlogged are
//! copied as they are named; files of runs are copied when they are listed, and removed from the
//! copy when they are not listed any more.

use crate::backup::{Backup, BackupPhase, file_copy};
use evenkeel_base::{Cause, Result};
use evenkeel_format::space::EXTENT_BYTES;
use evenkeel_io::OpenMode;
use std::time::Duration;

/// The interval at which it looks for new log, pages and runs.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

impl Backup<'_> {
    /// Copies new log, pages and runs until the end is asked for.
    pub(super) fn follow(&mut self) -> Result<()> {
        let Some(changed) = self.progress.changed() else { return Ok(()) };
        loop {
            let seen = changed.now();
            self.progress.leave(self.left()?);
            if self.progress.is_asked_for_end() {
                return Ok(());
            }
            self.moved(0)?;
            self.copy_named()?;
            let runs = file_copy::runs(&self.log.watch.runs()?);
            self.to.retain("runs/", |path| runs.iter().any(|run| run == path))?;
            self.copy_files(runs)?;
            self.engine.rt.wait(changed, seen, Some(LOOKS_EVERY), Cause::Idle);
        }
    }

    /// Copies the pages that the log has named as unlogged. Pages that are left when the end is
    /// asked for stay named.
    fn copy_named(&mut self) -> Result<()> {
        let named = self.pages.by_extent(&self.log.watch.take_unlogged());
        let mut named = named.into_iter();
        while let Some(pages) = named.next() {
            self.pages.copy_again(&pages, self.to)?;
            self.moved(EXTENT_BYTES)?;
            if self.leaves_following() {
                self.log.watch.give_back(named.flatten());
                return Ok(());
            }
        }
        Ok(())
    }

    /// True if the backup follows the log and its end was asked for.
    pub(super) fn leaves_following(&self) -> bool {
        self.progress.phase() == BackupPhase::Follow && self.progress.is_asked_for_end()
    }

    /// Bytes to copy, as far as is known.
    fn left(&self) -> Result<u64> {
        let log = self.engine.log.end().0.saturating_sub(self.log.end().0);
        let page_size = u64::from(self.pins.superblock.page_size);
        let mut bytes = log + self.log.watch.unlogged_count() as u64 * page_size;
        for path in file_copy::runs(&self.log.watch.runs()?) {
            if !self.to.has_whole(&path) {
                let file = self.engine.rt.env.open(&path, OpenMode::READ);
                bytes += file.and_then(|file| file.len()).unwrap_or(0);
            }
        }
        Ok(bytes)
    }
}
