//! The latch of a failed write or fsync (principle 6): writes stop with the first error, reads go
//! on. Set once, never cleared while the database is open.

use crate::{Code, Error, Result, sync::Mutex};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this database may still write.
#[derive(Default)]
pub struct Health {
    failed: AtomicBool,
    first: Mutex<Option<Error>>,
    wakers: Mutex<Vec<Waker>>,
}

/// Wakes those who wait for something that a failure makes impossible.
type Waker = Box<dyn Fn() + Send + Sync>;

impl Health {
    /// Latches `error` as the reason why writes stop (the first one stays), wakes those who wait,
    /// and returns it. The caller holds no mutex that a waker takes.
    pub fn fail(&self, error: Error) -> Error {
        let is_first = {
            let mut first = self.first.lock();
            let is_first = first.is_none();
            first.get_or_insert_with(|| error.clone());
            self.failed.store(true, Ordering::SeqCst);
            is_first
        };
        if is_first {
            self.wakers.lock().iter().for_each(|wake| wake());
        }
        error
    }

    /// Has `wake` called once writes stop; at once if they have. So whoever waits for background
    /// work by event, and checks `is_failed` when woken, needs no timer. It must be short and must
    /// not fail or register anything here.
    pub fn on_failure(&self, wake: impl Fn() + Send + Sync + 'static) {
        let mut wakers = self.wakers.lock();
        if self.is_failed() {
            drop(wakers);
            wake();
        } else {
            wakers.push(Box::new(wake));
        }
    }

    /// True once a write or sync has failed.
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The error that stopped writes.
    pub fn first_error(&self) -> Option<Error> {
        self.first.lock().clone()
    }

    /// Ok while writes are allowed.
    ///
    /// # Errors
    /// `ReadOnly` naming the first failure.
    pub fn check_writable(&self) -> Result<()> {
        if !self.is_failed() {
            return Ok(());
        }
        let mut error = Error::new(Code::WritesStopped);
        if let Some(first) = self.first_error() {
            error = error.with("because", &first).caused_by(first);
        }
        Err(error)
    }
}
