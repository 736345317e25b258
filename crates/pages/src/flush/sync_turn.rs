//! One sync of a file at a time. A write-back error is reported to one sync of an open file and to
//! none that comes later, whoever wrote the bytes that were lost: so a sync that fails stops writes
//! before the next one begins, and one that succeeds asks whether they have stopped.

use evenkeel_base::{Cause, Result};
use evenkeel_io::{EventLatch, File, Runtime};

/// Whose turn it is to sync a file.
#[derive(Default)]
pub(crate) struct SyncTurn(EventLatch);

impl SyncTurn {
    /// Syncs the file that this is the turn of: what the caller has written to it is durable.
    ///
    /// # Errors
    /// That of the sync, which has stopped writes; `WritesStopped` if another one failed.
    pub fn sync(&self, rt: &Runtime, file: &dyn File) -> Result<()> {
        let turn = self.0.lock(rt, Cause::DeviceSlow);
        file.sync().map_err(|error| rt.health.fail(error))?;
        drop(turn);
        rt.health.check_writable()
    }
}
