//! The latch of a failed write or fsync (principle 6): writes stop with the first error, reads go
//! on. Set once, never cleared while the database is open.

use crate::{Code, Error, Result, sync::Mutex};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this database may still write.
#[derive(Default)]
pub struct Health {
    failed: AtomicBool,
    first: Mutex<Option<Error>>,
}

impl Health {
    /// Latches `error` as the reason why writes stop (the first one stays) and returns it.
    pub fn fail(&self, error: Error) -> Error {
        let mut first = self.first.lock();
        if first.is_none() {
            *first = Some(error.clone());
        }
        self.failed.store(true, Ordering::Release);
        error
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
