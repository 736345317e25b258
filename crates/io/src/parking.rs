//! How threads sleep until a counter moves on, where the system has no better way than a mutex and
//! a condition variable; the models of `crates/sim/tests/models` use this one. Only `event` calls
//! it, which sees to it that nobody is woken while nobody sleeps.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use std::time::Instant;

#[derive(Default)]
pub(crate) struct Parking {
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl Parking {
    /// Sleeps until somebody wakes all, but not if `count` is no longer `seen`, nor beyond the
    /// deadline. May return for no reason.
    pub(crate) fn sleep(&self, count: &AtomicU64, seen: u64, deadline: Option<Instant>) {
        let mut guard = self.mutex.lock();
        if count.load(Ordering::SeqCst) != seen {
            return;
        }
        match deadline {
            None => self.condvar.wait(&mut guard),
            Some(deadline) => {
                self.condvar.wait_until(&mut guard, deadline);
            }
        }
    }

    /// Wakes who sleeps for `count`, which has moved on.
    pub(crate) fn wake_all(&self, _count: &AtomicU64) {
        drop(self.mutex.lock());
        self.condvar.notify_all();
    }
}
