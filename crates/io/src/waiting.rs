//! Waits of users' threads, told to the embedding program while they last: one that runs its
//! sessions on few threads lets another one run meanwhile.

use crate::thread_waits::is_background;
use evenkeel_base::Cause;
use std::cell::Cell;
use std::sync::OnceLock;

/// Told of each wait of a thread that is not the engine's own: for a device, for the log, for other
/// threads or transactions, or for background work. The waiter calls it and may hold latches of the
/// engine, so it must not call the engine.
pub trait ThreadWatch: Send + Sync {
    /// This thread is about to wait.
    fn begins(&self, cause: Cause);
    /// It has waited.
    fn ends(&self);
}

/// Who is told, if anybody.
#[derive(Default)]
pub(crate) struct Watched(OnceLock<Box<dyn ThreadWatch>>);

thread_local! {
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

impl Watched {
    pub fn set(&self, watch: Box<dyn ThreadWatch>) {
        let _ = self.0.set(watch);
    }

    /// Tells of a wait until what is returned is dropped. Not of one within another, nor of those
    /// that are too short to tell of (page latches) or no user's.
    pub fn begins(&self, cause: Cause) -> Option<Waiting<'_>> {
        let watch = self.0.get()?;
        let told = !matches!(cause, Cause::Idle | Cause::Unexplained | Cause::PageLatch);
        if !told || is_background() || WAITS.replace(true) {
            return None;
        }
        // Also if it panics the wait is over.
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
