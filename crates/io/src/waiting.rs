//! Reports waits of users' threads to the embedding program while they last: a program that runs
//! its sessions on few threads can let another one run meanwhile.

use crate::thread_waits::is_background;
use evenkeel_base::Cause;
use std::cell::Cell;
use std::sync::OnceLock;

/// Hears of each wait of a thread that is not the engine's own: for a device, for the log, for
/// other threads or transactions, or for background work. The waiter calls it and may hold latches
/// of the engine, so it must not call the engine.
pub trait ThreadWatch: Send + Sync {
    /// This thread is about to wait.
    fn begins(&self, cause: Cause);
    /// Its wait has ended.
    fn ends(&self);
}

/// The watcher, if there is one.
#[derive(Default)]
pub(crate) struct Watched(OnceLock<Box<dyn ThreadWatch>>);

thread_local! {
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

impl Watched {
    pub fn set(&self, watch: Box<dyn ThreadWatch>) {
        let _ = self.0.set(watch);
    }

    /// Reports a wait until the returned value is dropped. Not one within another, nor waits that
    /// are too short to report (page latches) or not a user's.
    pub fn begins(&self, cause: Cause) -> Option<Waiting<'_>> {
        let watch = self.0.get()?;
        let told = !matches!(cause, Cause::Idle | Cause::Unexplained | Cause::PageLatch);
        if !told || is_background() || WAITS.replace(true) {
            return None;
        }
        // Dropped also at a panic, so that the wait ends.
        let waiting = Waiting(&**watch);
        watch.begins(cause);
        Some(waiting)
    }
}

pub(crate) struct Waiting<'w>(&'w dyn ThreadWatch);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        WAITS.set(false);
        self.0.ends();
    }
}
