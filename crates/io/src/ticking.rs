//! An environment for tests of periodic work: its clock advances with the work that reads it, so
//! such tests count and need no time.

use crate::{Env, Event, Woken};
use evenkeel_base::Cause;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An environment whose clock advances by a fixed amount at each reading.
pub struct TickingEnv {
    inner: Arc<dyn Env>,
    tick_ns: u64,
    now_ns: AtomicU64,
    yields: AtomicU64,
    waits: [AtomicU64; Cause::ALL.len()],
}

impl TickingEnv {
    /// Another environment with such a clock.
    pub fn new(inner: Arc<dyn Env>, tick_ns: u64) -> TickingEnv {
        let now_ns = AtomicU64::new(1_000_000_000);
        TickingEnv { inner, tick_ns, now_ns, yields: AtomicU64::new(0), waits: Default::default() }
    }

    /// The number of times that the processor was yielded.
    pub fn yields(&self) -> u64 {
        self.yields.load(Ordering::SeqCst)
    }

    /// The number of waits under a cause.
    pub fn waits(&self, cause: Cause) -> u64 {
        self.waits[cause as usize].load(Ordering::SeqCst)
    }
}

impl Env for TickingEnv {
    crate::delegate_env!(inner: open, list, remove, rename, create_dir, sync_dir, random, spawn);
    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(self.tick_ns, Ordering::SeqCst)
    }
    fn wait(&self, event: &Arc<Event>, seen: u64, time: Option<Duration>, c: Cause) -> Woken {
        self.waits[c as usize].fetch_add(1, Ordering::SeqCst);
        if time == Some(Duration::ZERO) && event.now() == seen {
            self.yields.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.wait(event, seen, time, c)
    }
}
