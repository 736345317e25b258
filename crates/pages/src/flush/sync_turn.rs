//! One sync of a file at a time. A write-back error is reported to one sync of an open file and to
//! no later one, whichever thread wrote the lost bytes. So a failing sync stops writes before the
//! next one begins, and a successful one checks whether they have stopped.

use evenkeel_base::{Cause, Result};
use evenkeel_io::{EventLatch, File, Runtime};

/// The latch of the syncs of a file.
#[derive(Default)]
pub(crate) struct SyncTurn(EventLatch);

impl SyncTurn {
    /// Syncs the file: everything that the caller has written to it is then durable.
    ///
    /// # Errors
    /// That of the sync, which has stopped writes; `WritesStopped` if another sync failed.
    pub fn sync(&self, rt: &Runtime, file: &dyn File) -> Result<()> {
        let turn = self.0.lock(rt, Cause::DeviceSlow);
        file.sync().map_err(|error| rt.health.fail(error))?;
        drop(turn);
        rt.health.check_writable()
    }
}
