//! Whether the database may write. A failed write or sync latches (principle 6): writes stop with
//! the first error and reads continue; the latch is never cleared while the database is open.
//! Users' writes are also refused while the disk is full (G4), and all waits end once the database
//! closes.

use crate::{Code, Error, Result, sync::Mutex};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this database may still write.
#[derive(Default)]
pub struct Health {
    failed: AtomicBool,
    first: Mutex<Option<Error>>,
    refused: AtomicBool,
    refusal: Mutex<Option<Error>>,
    closing: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

/// A sync or a write in place failed for want of a resource: the data that it should have made
/// durable may be lost.
fn lost_for_shortage(full: Error) -> Error {
    let mut error = Error::new(Code::WriteFailed);
    for name in ["file", "os"] {
        if let Some(value) = full.context(name) {
            error = error.with(name, value);
        }
    }
    error.caused_by(full)
}

/// Wakes threads that wait for something that a failure makes impossible.
type Waker = Box<dyn Fn() + Send + Sync>;

impl Health {
    /// Latches `error` as the reason why writes stop (the first one stays), wakes waiting threads,
    /// and returns the error. It is never returned as a shortage (`DiskFull`, `SystemLimit`), which
    /// would mean that nothing is lost and that the work is repeated. The caller holds no mutex
    /// that a waker takes.
    pub fn fail(&self, error: Error) -> Error {
        let error = if error.code().is_shortage() { lost_for_shortage(error) } else { error };
        let is_first = {
            let mut first = self.first.lock();
            let is_first = first.is_none();
            first.get_or_insert_with(|| error.clone());
            self.failed.store(true, Ordering::SeqCst);
            is_first
        };
        if is_first {
            self.wake();
        }
        error
    }

    fn wake(&self) {
        self.wakers.lock().iter().for_each(|wake| wake());
    }

    /// Registers `wake`, called when writes stop or are refused and when the database closes. So a
    /// thread that waits for background work by event needs no timer: it asks again when woken.
    /// `wake` must be short, must not fail and must not register anything here.
    pub fn on_failure(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.wakers.lock().push(Box::new(wake));
        if self.is_failed() {
            self.wake();
        }
    }

    /// Refuses users' writes with `error` until `allow`; background work continues.
    pub fn refuse(&self, error: Error) {
        *self.refusal.lock() = Some(error);
        self.refused.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Users may write again.
    pub fn allow(&self) {
        self.refused.store(false, Ordering::SeqCst);
        *self.refusal.lock() = None;
    }

    /// The database closes: threads that wait for background work give up.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Ok while users may write.
    ///
    /// # Errors
    /// `WritesStopped`; the error with which users' writes are refused.
    pub fn check_user(&self) -> Result<()> {
        self.check_writable()?;
        if self.refused.load(Ordering::Acquire)
            && let Some(error) = self.refusal.lock().clone()
        {
            return Err(error);
        }
        Ok(())
    }

    /// Ok while it makes sense to wait for background work.
    ///
    /// # Errors
    /// `DatabaseClosed`.
    pub fn check_open(&self) -> Result<()> {
        match self.closing.load(Ordering::Acquire) {
            true => Err(Error::new(Code::DatabaseClosed)),
            false => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_on_a_full_disk_stops_writes_and_is_not_retried() {
        let health = Health::default();
        let full = Error::new(Code::DiskFull).with("file", "wal/1").with("os", "no space");
        let told = health.fail(full);
        assert_eq!((told.code(), told.context("file")), (Code::WriteFailed, Some("wal/1")));
        let first = health.first_error().map(|error| error.code());
        assert_eq!((first, health.is_failed()), (Some(Code::WriteFailed), true));
        let refused = health.check_user().map_err(|error| error.code());
        assert_eq!(refused, Err(Code::WritesStopped));
    }
}
