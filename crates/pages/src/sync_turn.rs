//! One sync of a file at a time. A write-back error is reported to one sync of an open file and to
//! none that comes later, whoever wrote the bytes that were lost: so a sync that fails stops writes
//! before the next one begins, and one that succeeds asks whether they have stopped.

use evenkeel_base::{Cause, Result};
use evenkeel_io::{Event, File, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Whose turn it is to sync a file.
#[derive(Default)]
pub(crate) struct SyncTurn {
    taken: AtomicBool,
    ended: Arc<Event>,
}

/// Ends a turn, also by a panic.
struct Turn<'a>(&'a SyncTurn);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Release);
        self.0.ended.notify();
    }
}

impl SyncTurn {
    /// Syncs the file that this is the turn of: what the caller has written to it is durable.
    ///
    /// # Errors
    /// That of the sync, which has stopped writes; `WritesStopped` if another one failed.
    pub fn sync(&self, rt: &Runtime, file: &dyn File) -> Result<()> {
        let take = || !self.taken.swap(true, AcqRel);
        rt.wait_until(&self.ended, Cause::DeviceSlow, take);
        let turn = Turn(self);
        file.sync().map_err(|error| rt.health.fail(error))?;
        drop(turn);
        rt.health.check_writable()
    }
}
