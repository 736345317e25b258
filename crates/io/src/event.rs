//! An event: a counter that grows with each notification. A waiter reads the counter, checks its
//! condition, and waits until the counter has moved on; so no wake-up is lost and no timer needed.
//!
//! ```text
//! loop { let seen = event.now(); if condition() { break } rt.wait(&event, seen, None, cause); }
//! ```

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// An event that threads wait for through `Env::wait`.
#[derive(Default)]
pub struct Event {
    count: AtomicU64,
    waiters: AtomicU32,
    mutex: Mutex<()>,
    condvar: Condvar,
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
            drop(self.mutex.lock());
            self.condvar.notify_all();
        }
    }

    /// Blocks the OS thread until the counter differs from `seen` or the time is over. For `Env`
    /// implementations only. Returns false on time-out.
    pub fn block(&self, seen: u64, timeout: Option<Duration>) -> bool {
        let deadline = timeout.map(|t| Instant::now() + t);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.mutex.lock();
        let mut woken = true;
        while self.now() == seen {
            match deadline {
                None => self.condvar.wait(&mut guard),
                Some(d) => {
                    if self.condvar.wait_until(&mut guard, d).timed_out() && self.now() == seen {
                        woken = false;
                        break;
                    }
                }
            }
        }
        drop(guard);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        woken
    }
}
