//! How threads sleep until a counter advances, on systems with nothing better than a mutex and a
//! condition variable; the models of `crates/sim/tests/models` use this one. Only `event` calls it,
//! and it calls `wake_all` only while a thread sleeps.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use std::time::Instant;

#[derive(Default)]
pub(crate) struct Parking {
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl Parking {
    /// Sleeps until `wake_all`, unless `count` is no longer `seen`, and at most until the deadline.
    /// May return spuriously.
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

    /// Wakes the threads that sleep for `count`, which has advanced.
    pub(crate) fn wake_all(&self, _count: &AtomicU64) {
        drop(self.mutex.lock());
        self.condvar.notify_all();
    }
}
