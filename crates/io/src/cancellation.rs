//! Ending a wait of another thread: the canceller wakes the event on which the other thread waits.
//!
//! The waiter reads the event, checks its condition, registers the event on which it is about to
//! wait, and only then checks the cancellation. So a cancellation before that check is seen, and a
//! later one finds the event and advances it.

use crate::{Event, Runtime};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A cancellation of the work of one thread, which any thread may request.
#[derive(Default)]
pub struct Cancellation {
    is_asked: AtomicBool,
    waited_for: Mutex<Option<Arc<Event>>>,
}

impl Cancellation {
    /// Ends its waits, until `clear`.
    pub fn ask(&self) {
        self.is_asked.store(true, Ordering::SeqCst);
        let event = self.waited_for.lock().clone();
        if let Some(event) = event {
            event.notify();
        }
    }

    /// Clears the cancellation.
    pub fn clear(&self) {
        self.is_asked.store(false, Ordering::SeqCst);
    }

    /// # Errors
    /// `StatementCancelled` after `ask`.
    pub fn check(&self) -> Result<()> {
        match self.is_asked.load(Ordering::SeqCst) {
            true => Err(Error::new(Code::StatementCancelled)),
            false => Ok(()),
        }
    }
}

/// Asks all threads of one piece of background work to stop. They check it themselves; the request
/// also ends their pauses ([`Runtime::ask`]), so that none of them checks late.
#[derive(Default)]
pub struct Stop {
    is_asked: AtomicBool,
    event: Arc<Event>,
}

impl Stop {
    /// For good.
    pub fn ask(&self) {
        self.is_asked.store(true, Ordering::SeqCst);
        self.event.notify();
    }

    /// True after `ask`.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::SeqCst)
    }

    /// Waits so long, or until it is asked.
    pub fn pause(&self, rt: &Runtime, time: Duration, cause: Cause) {
        let seen = self.event.now();
        if !self.is_asked() {
            rt.wait(&self.event, seen, Some(time), cause);
        }
    }
}

impl Runtime {
    /// As `wait`, without a timeout; a cancellation, if one is given, ends it.
    ///
    /// # Errors
    /// `StatementCancelled`, if it was cancelled before the wait began.
    pub fn wait_cancellable(
        &self,
        event: &Arc<Event>,
        seen: u64,
        cause: Cause,
        cancellation: Option<&Cancellation>,
    ) -> Result<()> {
        let Some(cancellation) = cancellation else {
            self.wait(event, seen, None, cause);
            return Ok(());
        };
        *cancellation.waited_for.lock() = Some(event.clone());
        let begun = cancellation.check();
        if begun.is_ok() {
            self.wait(event, seen, None, cause);
        }
        *cancellation.waited_for.lock() = None;
        begun
    }
}
