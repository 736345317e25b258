//! An event: a counter that grows with each notification. A waiter reads the counter, checks its
//! condition, and waits until the counter has advanced. So no wake-up is lost and no timer is
//! needed.
//!
//! ```text
//! loop { let seen = event.now(); if condition() { break } rt.wait(&event, seen, None, cause); }
//! ```

use crate::sync::Parking;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An event that threads wait for through `Env::wait`.
#[derive(Default)]
pub struct Event {
    count: AtomicU64,
    waiters: AtomicU32,
    parking: Parking,
}

impl Event {
    /// A new event.
    pub fn new() -> Event {
        Event::default()
    }

    /// The counter: read it before checking the condition.
    pub fn now(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Wakes every waiter. Change the condition before calling this.
    pub fn notify(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.parking.wake_all(&self.count);
        }
    }

    /// Blocks the OS thread until the counter differs from `seen` or the time has passed. For `Env`
    /// implementations only. Returns false on time-out.
    pub fn block(&self, seen: u64, timeout: Option<Duration>) -> bool {
        let deadline = timeout.map(|t| Instant::now() + t);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut woken = true;
        while self.now() == seen {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                woken = false;
                break;
            }
            self.parking.sleep(&self.count, seen, deadline);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        woken
    }
}
