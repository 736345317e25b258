//! Lines in which operations wait for memtable space and for merge credit: first come, first
//! served (G1). Only the first of a line tries, so space that came is news for nobody else, and
//! who asks for little does not overtake who asks for much.
//!
//! Invariant: the first of a line is told of all that came after it looked. Who becomes the first
//! is told by who leaves.

use evenkeel_base::sync::Mutex;
use evenkeel_io::Event;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One line, of those who wait, each with his event.
#[derive(Default)]
pub(crate) struct WaitQueue {
    waiting: Mutex<VecDeque<Arc<Event>>>,
    length: AtomicUsize,
}

impl WaitQueue {
    /// How many wait.
    pub(crate) fn length(&self) -> usize {
        self.length.load(Ordering::SeqCst)
    }

    /// A place behind all others, until it is dropped.
    pub(crate) fn enter(&self) -> QueuePlace<'_> {
        let event = Arc::<Event>::default();
        let mut waiting = self.waiting.lock();
        waiting.push_back(event.clone());
        self.length.store(waiting.len(), Ordering::SeqCst);
        QueuePlace { line: self, event }
    }

    /// Something came for this line.
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

/// A place in a line.
pub(crate) struct QueuePlace<'l> {
    line: &'l WaitQueue,
    /// Something came, or it is the first now.
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

/// Who waits for space, and what tells them.
#[derive(Default)]
pub(crate) struct SpaceQueues {
    /// Space or credit came, or memory that index builds wait for.
    pub event: Arc<Event>,
    /// For bytes of the active generation.
    pub room: WaitQueue,
    pub credit: WaitQueue,
}

impl SpaceQueues {
    /// Something came.
    pub(crate) fn notify(&self) {
        self.event.notify();
        self.room.wake_first();
        self.credit.wake_first();
    }
}
