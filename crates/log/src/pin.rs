//! A pin on the log: a reader that copies the log while it is written keeps the segments that it
//! has not read yet. Lifecycle: 1. pinned at the checkpoint, 2. advanced as the reader goes on,
//! 3. dropped. The pin may break in between (`segments`); the reader then gives up. Only a backup
//! pins the log.

use crate::Log;
use crate::replay::{LogEnd, Replay, replay_below};
use crate::shared::Shared;
use evenkeel_base::{Lsn, Result};
use evenkeel_format::wal::SegmentHeader;
use std::sync::Arc;

/// Keeps the log from a position on until it is dropped.
pub struct LogPin {
    shared: Arc<Shared>,
}

impl Log {
    /// Keeps the log from the checkpoint on; at most `limit_bytes` of it lie below a later
    /// checkpoint. None if the log is pinned already.
    pub fn pin(&self, limit_bytes: u64) -> Option<LogPin> {
        let shared = self.shared();
        let pinned = shared.segments.pin(self.checkpoint_lsn(), limit_bytes);
        pinned.then(|| LogPin { shared: shared.clone() })
    }
}

impl LogPin {
    /// The reader needs nothing below `to` any more. False if the pin is broken: segments that the
    /// reader needs may be gone.
    #[must_use]
    pub fn advance(&self, to: Lsn) -> bool {
        let holds = self.shared.segments.move_pin(to);
        if self.shared.has_surplus() {
            self.shared.work.notify();
        }
        holds
    }

    /// The headers of the segments that hold the log from a position on, in order.
    pub fn segments_from(&self, from: Lsn) -> Vec<SegmentHeader> {
        self.shared.segments.headers_from(from)
    }

    /// Scans the pinned log from `from` (a record boundary) to the first record at or behind
    /// `until`, which is durable, or to the first one that is not written as a whole. Returns the
    /// record boundary at which a later scan goes on.
    ///
    /// # Errors
    /// Those of `replay`, except damage behind `until`.
    pub fn scan(&self, from: Lsn, until: Lsn, to: &mut dyn Replay) -> Result<LogEnd> {
        replay_below(&self.shared.rt, from, until, to)
    }
}

impl Drop for LogPin {
    fn drop(&mut self) {
        self.shared.segments.unpin();
        if self.shared.wants_segment() || self.shared.has_surplus() {
            self.shared.work.notify();
        }
    }
}
