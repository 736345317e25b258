//! Admission: operations that lack a resource wait for it first come, first served (G1).
//!
//! A resource has one queue, and counts its tokens itself: log space under the log's mutex,
//! memtable bytes, credit and undo bytes in atomics. An *attempt* takes the tokens of an operation
//! or finds that they are lacking. Only the first of the queue attempts, so new tokens concern no
//! other, and a small request does not overtake a large one.
//!
//! ```text
//! arrive -> the queue is empty: attempt -> admitted
//!        -> enter the queue -> first? attempt -> admitted, or an error -> leave, wake the next one
//!                                        |
//!                                        +---> wait until woken -> first? ...
//! ```
//!
//! Invariants:
//! - The first of the queue is woken after everything that became available after its attempt, if
//!   whoever provides tokens (a background thread, or an operation that gives back tokens that it
//!   did not use) adds them first and then calls [`Admission::wake_first`].
//! - An operation that leaves, for whatever reason (admitted, cancelled, failed, panicked), wakes
//!   the new first one.
//! - No mutex is held during an attempt or a wait; an attempt may take mutexes of its resource, and
//!   whoever holds these may call every method here.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Event, Mutex};
use evenkeel_base::Result;
use std::collections::VecDeque;
use std::sync::Arc;

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The operation has its tokens.
    Admitted,
    /// The attempt has made room itself: another attempt follows at once.
    Retry,
    /// Tokens are lacking, or it is not this operation's turn: it waits until it is woken.
    Wait,
}

/// The queue of one resource.
#[derive(Default)]
pub struct Admission {
    waiting: Mutex<VecDeque<Waiter>>,
    /// The length of `waiting`: what an operation that need not wait reads.
    length: AtomicU64,
}

struct Waiter {
    event: Arc<Event>,
    wanted: u64,
}

impl Admission {
    /// The number of waiting operations.
    pub fn len(&self) -> usize {
        self.length.load(Ordering::SeqCst) as usize
    }

    /// True if no operation waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Admits an operation that wants so many tokens, at once if nobody waits and the attempt
    /// succeeds.
    ///
    /// `attempt` is told whether it is this operation's turn; `wait` waits for the event to pass
    /// the count, under the cause of the resource.
    ///
    /// # Errors
    /// Those of `attempt` and of `wait`, such as a cancellation.
    pub fn admit(
        &self,
        wanted: u64,
        mut attempt: impl FnMut(bool) -> Result<Tried>,
        mut wait: impl FnMut(&Arc<Event>, u64) -> Result<()>,
    ) -> Result<()> {
        if self.is_empty() && attempt(true)? == Tried::Admitted {
            return Ok(());
        }
        let place = self.enter(wanted);
        loop {
            let seen = place.event.now();
            match attempt(place.is_first())? {
                Tried::Admitted => return Ok(()),
                Tried::Retry => {}
                Tried::Wait => wait(&place.event, seen)?,
            }
        }
    }

    /// Tokens became available.
    pub fn wake_first(&self) {
        if self.is_empty() {
            return;
        }
        let first = self.waiting.lock().front().map(|waiter| waiter.event.clone());
        if let Some(event) = first {
            event.notify();
        }
    }

    /// What an attempt refuses has changed: also an operation whose turn it is not may end.
    pub fn wake_all(&self) {
        let all: Vec<Arc<Event>> = self.waiting.lock().iter().map(|w| w.event.clone()).collect();
        all.iter().for_each(|event| event.notify());
    }

    /// The tokens that the first of the queue wants.
    pub fn first_wanted(&self) -> Option<u64> {
        self.waiting.lock().front().map(|waiter| waiter.wanted)
    }

    /// A place at the end of the queue, until it is dropped.
    pub(crate) fn enter(&self, wanted: u64) -> QueuePlace<'_> {
        let event = Arc::<Event>::default();
        let mut waiting = self.waiting.lock();
        waiting.push_back(Waiter { event: event.clone(), wanted });
        self.length.store(waiting.len() as u64, Ordering::SeqCst);
        QueuePlace { queue: self, event }
    }
}

/// A place in a queue.
pub(crate) struct QueuePlace<'a> {
    queue: &'a Admission,
    /// Notified when tokens became available, or this place is now the first.
    pub(crate) event: Arc<Event>,
}

impl QueuePlace<'_> {
    pub(crate) fn is_first(&self) -> bool {
        let waiting = self.queue.waiting.lock();
        waiting.front().is_some_and(|first| Arc::ptr_eq(&first.event, &self.event))
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        {
            let mut waiting = self.queue.waiting.lock();
            waiting.retain(|waiter| !Arc::ptr_eq(&waiter.event, &self.event));
            self.queue.length.store(waiting.len() as u64, Ordering::SeqCst);
        }
        self.queue.wake_first();
    }
}
