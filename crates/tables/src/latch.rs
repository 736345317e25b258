//! A latch that may be held across waits and I/O: an event and a flag, never a mutex (so that a
//! simulated thread that waits while holding it hands the baton on).

use evenkeel_base::{Cause, Code, Error, Result};
use evenkeel_io::{Event, Runtime, Woken};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An exclusive latch.
#[derive(Default)]
pub(crate) struct EventLatch {
    held: AtomicBool,
    freed: Arc<Event>,
}

/// Holds the latch until dropped.
pub(crate) struct EventGuard<'a>(&'a EventLatch);

impl EventLatch {
    /// Waits for the latch.
    pub fn lock(&self, rt: &Runtime, cause: Cause) -> EventGuard<'_> {
        rt.wait_until(&self.freed, cause, || self.try_take());
        EventGuard(self)
    }

    /// Waits for the latch, not longer than `timeout`. # Errors: `TableBusy`.
    pub fn lock_for(
        &self,
        rt: &Runtime,
        cause: Cause,
        timeout: Duration,
    ) -> Result<EventGuard<'_>> {
        wait_for(rt, &self.freed, cause, timeout, || self.try_take())?;
        Ok(EventGuard(self))
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

/// Waits until `ready`, not longer than `timeout`. # Errors: `TableBusy`.
pub(crate) fn wait_for(
    rt: &Runtime,
    event: &Arc<Event>,
    cause: Cause,
    timeout: Duration,
    mut ready: impl FnMut() -> bool,
) -> Result<()> {
    let until = rt.env.now_ns().saturating_add(timeout.as_nanos() as u64);
    loop {
        let seen = event.now();
        if ready() {
            return Ok(());
        }
        let left = Duration::from_nanos(until.saturating_sub(rt.env.now_ns()));
        let timed_out = || Err(Error::new(Code::TableBusy).with("waited_ms", timeout.as_millis()));
        if left.is_zero() {
            return timed_out();
        }
        if rt.wait(event, seen, Some(left), cause) == Woken::Timeout && !ready() {
            return timed_out();
        }
    }
}
