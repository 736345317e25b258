//! An event: a counter that grows with each notification. A waiter reads the counter, checks its
//! condition, and waits until the counter has advanced. So no wake-up is lost and no timer is
//! needed.
//!
//! ```text
//! loop { let seen = event.now(); if condition() { break } rt.wait(&event, seen, None, cause); }
//! ```
//!
//! One thread can wait for many events: it *watches* each of them with an event of its own, reads
//! all counters, and sleeps on its own event, which every notification of a watched event advances.
//! Invariant: the number of watchers grows before the watcher reads the counter, and a notification
//! advances the counter before it looks for watchers, so one of the two sees the other.

use crate::sync::Parking;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// One watcher in `Event::waiters`; sleeping threads count in the bits below.
const WATCHER: u64 = 1 << 32;

/// An event that threads wait for through `Env::wait`.
#[derive(Default)]
pub struct Event {
    count: AtomicU64,
    /// Threads that sleep, and in the high half watchers.
    waiters: AtomicU64,
    parking: Parking,
    /// Where watchers sleep.
    hub: OnceLock<Arc<Event>>,
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
        let waiters = self.waiters.load(Ordering::SeqCst);
        if waiters == 0 {
            return;
        }
        if !waiters.is_multiple_of(WATCHER) {
            self.parking.wake_all(&self.count);
        }
        if waiters >= WATCHER
            && let Some(hub) = self.hub.get()
        {
            hub.notify();
        }
    }

    /// From now on each notification also notifies `hub`, until `unwatch`. All watchers of one
    /// event have the same hub. Read the counter after this call.
    pub fn watch(&self, hub: &Arc<Event>) {
        let known = self.hub.get_or_init(|| hub.clone());
        debug_assert!(Arc::ptr_eq(known, hub), "a second hub is never notified");
        self.waiters.fetch_add(WATCHER, Ordering::SeqCst);
    }

    /// Ends one `watch`.
    pub fn unwatch(&self) {
        self.waiters.fetch_sub(WATCHER, Ordering::SeqCst);
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
