//! Queues in which operations wait for memtable space and for compaction credit: first come, first
//! served (G1). Only the first of a queue tries, so new space concerns no other, and a small
//! request does not overtake a large one.
//!
//! Invariant: the first of a queue is notified of everything that became available after it looked.
//! An operation that leaves notifies the new first one.

use evenkeel_base::sync::Mutex;
use evenkeel_io::Event;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One queue of waiting operations, each with its event.
#[derive(Default)]
pub(crate) struct WaitQueue {
    waiting: Mutex<VecDeque<Arc<Event>>>,
    length: AtomicUsize,
}

impl WaitQueue {
    /// The number of waiting operations.
    pub(crate) fn length(&self) -> usize {
        self.length.load(Ordering::SeqCst)
    }

    /// A place at the end of the queue, until it is dropped.
    pub(crate) fn enter(&self) -> QueuePlace<'_> {
        let event = Arc::<Event>::default();
        let mut waiting = self.waiting.lock();
        waiting.push_back(event.clone());
        self.length.store(waiting.len(), Ordering::SeqCst);
        QueuePlace { line: self, event }
    }

    /// Something became available for this queue.
    pub(crate) fn wake_first(&self) {
        if self.length() == 0 {
            return;
        }
        let first = self.waiting.lock().front().cloned();
        if let Some(event) = first {
            event.notify();
        }
    }
}

/// A place in a queue.
pub(crate) struct QueuePlace<'l> {
    line: &'l WaitQueue,
    /// Notified when something became available, or this place is now the first.
    pub event: Arc<Event>,
}

impl QueuePlace<'_> {
    pub(crate) fn is_first(&self) -> bool {
        self.line.waiting.lock().front().is_some_and(|first| Arc::ptr_eq(first, &self.event))
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        {
            let mut waiting = self.line.waiting.lock();
            waiting.retain(|event| !Arc::ptr_eq(event, &self.event));
            self.line.length.store(waiting.len(), Ordering::SeqCst);
        }
        self.line.wake_first();
    }
}

/// The queues for space, and their notifications.
#[derive(Default)]
pub(crate) struct SpaceQueues {
    /// Space or credit became available, or memory that index builds wait for.
    pub event: Arc<Event>,
    /// The queue for bytes of the active generation.
    pub room: WaitQueue,
    pub credit: WaitQueue,
}

impl SpaceQueues {
    /// Something became available.
    pub(crate) fn notify(&self) {
        self.event.notify();
        self.room.wake_first();
        self.credit.wake_first();
    }
}
