//! What every component of one database shares: its environment, waits by cause, metrics, health.

use crate::counting::CountingEnv;
use crate::delete_scheduler::DeleteScheduler;
use crate::fork;
use crate::gate::ChangeGate;
use crate::thread_waits::{self, ExcludedWaits, count_wait};
use crate::waiting::{ThreadWatch, Watched};
use crate::{Env, Event, Task, Woken};
use evenkeel_base::journal::Journal;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, DatabaseId, Error, Health, Result, WaitEvents, metrics::Metrics};
use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{sync::Arc, time::Duration};

/// How long a thread that is needed is asked for, and how often.
const THREADS_WAIT: Duration = Duration::from_secs(2);
const THREADS_REST: Duration = Duration::from_millis(20);

/// Shared by all components of one database.
pub struct Runtime {
    /// The outside world; its I/O is counted in `metrics`.
    pub env: Arc<dyn Env>,
    /// Waits of foreground threads by cause.
    pub stalls: Arc<WaitEvents>,
    /// Counters and gauges.
    pub metrics: Arc<Metrics>,
    /// Set when a write failed.
    pub health: Health,
    /// Decisions of the background, where somebody asked for them.
    pub journal: Arc<Journal>,
    /// Operations are measured for what nothing explains.
    pub(crate) explaining: AtomicBool,
    never: Arc<Event>,
    pub(crate) trash: DeleteScheduler,
    database: AtomicU64,
    watched: Arc<Watched>,
    gate: Arc<ChangeGate>,
    fork_generation: u32,
}

thread_local! {
    static FREEING: Cell<bool> = const { Cell::new(false) };
}

impl Runtime {
    /// A runtime over `env`.
    pub fn new(env: Arc<dyn Env>) -> Arc<Runtime> {
        let metrics = Arc::new(Metrics::default());
        let journal = Arc::<Journal>::default();
        let stalls = Arc::<WaitEvents>::default();
        let watched = Arc::<Watched>::default();
        let gate = Arc::<ChangeGate>::default();
        let (counted, waited, told) = (metrics.clone(), stalls.clone(), watched.clone());
        let counting = CountingEnv::new(env, counted, waited, told, gate.clone());
        Arc::new(Runtime {
            env: Arc::new(counting),
            stalls,
            metrics,
            health: Health::default(),
            journal,
            explaining: AtomicBool::new(false),
            never: Arc::new(Event::new()),
            trash: DeleteScheduler::default(),
            database: AtomicU64::new(0),
            watched,
            gate,
            fork_generation: fork::generation(),
        })
    }

    /// True in a child that the process of this runtime has forked: its threads and locks are not
    /// there.
    pub fn is_forked(&self) -> bool {
        fork::present() != self.fork_generation
    }

    /// From now on what would change a file waits, until `allow_changes` or `refuse_changes`: who
    /// calls these waits for nobody.
    pub fn hold_changes(&self) {
        self.gate.close();
    }

    /// Files may be changed again.
    pub fn allow_changes(&self) {
        self.gate.open();
    }

    /// What would change a file fails with this, until `allow_changes`.
    pub fn refuse_changes(&self, error: Error) {
        self.gate.refuse(error);
    }

    /// The database whose files these are: bound into their checksums.
    pub fn database(&self) -> DatabaseId {
        DatabaseId(self.database.load(Ordering::Relaxed))
    }

    /// Says which database it is, before any other of its files is read or written.
    pub fn set_database(&self, id: DatabaseId) {
        self.database.store(id.0, Ordering::Relaxed);
    }

    /// Waits for an event under a named cause; counted unless the thread is a background one or
    /// the cause is `Idle`.
    pub fn wait(
        &self,
        event: &Arc<Event>,
        seen: u64,
        timeout: Option<Duration>,
        cause: Cause,
    ) -> Woken {
        self.waiting(cause, || self.env.wait(event, seen, timeout, cause))
    }

    /// Runs what takes this thread's time without being a wait for an event: I/O of the log; all
    /// other counts by itself. Counted like `wait`.
    pub fn waiting<R>(&self, cause: Cause, work: impl FnOnce() -> R) -> R {
        let start = self.env.now_ns();
        let told = self.watched.begins(cause);
        let done = work();
        drop(told);
        count_wait(&self.stalls, cause, self.env.now_ns().saturating_sub(start));
        done
    }

    /// Tells `watch` of the waits of users' threads from now on; the first one given stays.
    pub fn watch_threads(&self, watch: Box<dyn ThreadWatch>) {
        self.watched.set(watch);
    }

    /// This thread's waits for the device are not users' until the result is dropped
    /// (`WaitEvents::device_ns`).
    pub fn exclude_waits(&self) -> ExcludedWaits {
        ExcludedWaits::begin()
    }

    /// True on threads started by `spawn`.
    pub fn is_background() -> bool {
        thread_waits::is_background()
    }

    /// Ok if this thread may begin a write: users are refused while the disk is full.
    ///
    /// # Errors
    /// `WritesStopped`, `DiskFull`.
    pub fn check_write(&self) -> Result<()> {
        match thread_waits::is_background() || FREEING.get() {
            true => self.health.check_writable(),
            false => self.health.check_user(),
        }
    }

    /// Does a user's work that gives space back (DROP) or puts back what was there (a revert): it
    /// goes on where users' writes are refused because the disk is full, and may use what is kept
    /// for work that ends that.
    pub fn freeing<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Before(bool);
        impl Drop for Before {
            fn drop(&mut self) {
                FREEING.set(self.0);
            }
        }
        let _before = Before(FREEING.replace(true));
        work()
    }

    /// True within `freeing`.
    pub fn is_freeing(&self) -> bool {
        FREEING.get()
    }

    /// Ok if this thread may wait for background work before it writes.
    ///
    /// # Errors
    /// As `check_write`; `DatabaseClosed`.
    pub fn check_wait(&self) -> Result<()> {
        self.check_write()?;
        self.health.check_open()
    }

    /// Waits until `ready` says so; `ready` is checked before and after every notification.
    pub fn wait_until(&self, event: &Arc<Event>, cause: Cause, mut ready: impl FnMut() -> bool) {
        loop {
            let seen = event.now();
            if ready() {
                return;
            }
            self.wait(event, seen, None, cause);
        }
    }

    /// Waits until `ready` says so, not longer than `timeout`; false if it never did.
    pub fn wait_at_most(
        &self,
        event: &Arc<Event>,
        cause: Cause,
        timeout: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> bool {
        let until = self.env.now_ns().saturating_add(timeout.as_nanos() as u64);
        loop {
            let seen = event.now();
            if ready() {
                return true;
            }
            let left = Duration::from_nanos(until.saturating_sub(self.env.now_ns()));
            if left.is_zero() {
                return false;
            }
            if self.wait(event, seen, Some(left), cause) == Woken::Timeout && !ready() {
                return false;
            }
        }
    }

    /// A pacing delay (G1: at most 1 ms per row operation), under a cause.
    pub fn delay(&self, time: Duration, cause: Cause) {
        let seen = self.never.now();
        self.wait(&self.never, seen, Some(time), cause);
    }

    /// A point where the simulator may let another thread run; nothing in a real environment.
    /// Call it holding no `Mutex`.
    pub fn step(&self) {
        self.env.wait(&self.never, u64::MAX, Some(Duration::ZERO), Cause::Idle);
    }

    /// Starts a background thread; its waits are not counted as waits.
    ///
    /// # Errors
    /// `ThreadSpawn`.
    pub fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<Box<dyn Task>> {
        let body = move || {
            thread_waits::begin_background();
            body();
        };
        self.env.spawn(name, Box::new(body))
    }

    /// Starts a background thread that is needed: that the system has none to give is waited out,
    /// for `THREADS_WAIT`. Hold no latch.
    ///
    /// # Errors
    /// `ThreadSpawn`.
    pub fn spawn_needed(
        &self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<Box<dyn Task>> {
        // A start that fails drops what it was given.
        let body = Arc::new(Mutex::new(Some(body)));
        let until_ns = self.env.now_ns().saturating_add(THREADS_WAIT.as_nanos() as u64);
        loop {
            let own = body.clone();
            let run = move || {
                let body = own.lock().take();
                if let Some(body) = body {
                    body();
                }
            };
            match self.spawn(name, run) {
                Err(error) if self.env.now_ns() < until_ns => {
                    log::warn!("no thread can be started, which is tried again: {error}");
                    self.delay(THREADS_REST, Cause::Idle);
                }
                started => return started,
            }
        }
    }
}
