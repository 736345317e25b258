//! A latch that may be held across I/O. It is built on an event, so that waits go through the
//! environment.

use evenkeel_base::Cause;
use evenkeel_io::{Event, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub(crate) struct IoLatch {
    held: AtomicBool,
    freed: Arc<Event>,
}

impl IoLatch {
    /// Waits until the latch is free and takes it.
    pub(crate) fn lock(&self, rt: &Runtime, cause: Cause) -> LatchGuard<'_> {
        rt.wait_until(&self.freed, cause, || {
            self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        LatchGuard(self)
    }

    /// Releases the latch; for guards of other kinds, which call this.
    pub(crate) fn unlock(&self) {
        self.held.store(false, Ordering::Release);
        self.freed.notify();
    }
}

pub(crate) struct LatchGuard<'a>(&'a IoLatch);

impl Drop for LatchGuard<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}
