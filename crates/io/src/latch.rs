//! A latch that may be held across waits and I/O: an event and a flag, never a mutex (so that a
//! simulated thread that waits while holding it can pass the baton on).

use crate::{Event, Runtime};
use evenkeel_base::Cause;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An exclusive latch.
#[derive(Default)]
pub struct EventLatch {
    held: AtomicBool,
    freed: Arc<Event>,
}

/// Holds the latch until dropped.
pub struct EventGuard<'a>(&'a EventLatch);

impl EventLatch {
    /// Waits for the latch.
    pub fn lock(&self, rt: &Runtime, cause: Cause) -> EventGuard<'_> {
        rt.wait_until(&self.freed, cause, || self.try_take());
        EventGuard(self)
    }

    /// Waits for the latch, at most `timeout`: none if it was not available.
    pub fn lock_for(
        &self,
        rt: &Runtime,
        cause: Cause,
        timeout: Duration,
    ) -> Option<EventGuard<'_>> {
        let taken = rt.wait_at_most(&self.freed, cause, timeout, || self.try_take());
        // Not constructed before it is taken, because dropping a guard frees the latch.
        taken.then(|| EventGuard(self))
    }

    fn try_take(&self) -> bool {
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Drop for EventGuard<'_> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
        self.0.freed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemEnv;

    /// A thread that has waited in vain leaves the latch to its holder.
    #[test]
    fn a_timed_out_lock_leaves_the_latch_to_its_holder() {
        let rt = Runtime::new(Arc::new(MemEnv::new()));
        let latch = EventLatch::default();
        let held = latch.lock(&rt, Cause::Schema);
        for _ in 0..2 {
            assert!(latch.lock_for(&rt, Cause::Schema, Duration::ZERO).is_none());
        }
        drop(held);
        let held = latch.lock_for(&rt, Cause::Schema, Duration::ZERO);
        assert!(held.is_some() && latch.lock_for(&rt, Cause::Schema, Duration::ZERO).is_none());
    }
}
