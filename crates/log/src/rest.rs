//! The log at rest: what a log that nobody writes gives back to the file system.
//!
//! A busy log keeps the segments behind the checkpoint and writes them again: their blocks are
//! allocated, so a commit needs no space. A log to which nothing was appended for a minute does
//! without them, and an orderly close also removes the segments that lie ahead of the end. The next
//! open then begins with segments as small as those of a new directory.
//!
//! Invariants. The segment of the end stays. While the database is open, at least two segments stay
//! ahead of it, so the first user after a rest does not wait for one. On a full disk all segments
//! ahead stay, because commits and rollback have no other space (G4). Called by `Log::beat`, with
//! the time at which that has work again, and by the close of the database.

use crate::segments::Activity;
use crate::shared::Shared;
use evenkeel_base::Lsn;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Modes 0 and 2 are synced this long after the first commit that is not.
const LAZY: Duration = Duration::from_secs(1);
/// A log that has not grown for so long is at rest.
pub(crate) const REST: Duration = Duration::from_secs(60);

/// The end of the log when the background looked last, and since when it has been there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndWatch {
    end: Lsn,
    since_ns: u64,
}

impl Shared {
    /// Finds out whether the log is at rest.
    pub(crate) fn watch_rest(&self) {
        let end = Lsn(self.end.load(Ordering::Acquire));
        let now_ns = self.rt.env.now_ns();
        let mut watch = self.watch.lock();
        if watch.end != end {
            *watch = EndWatch { end, since_ns: now_ns };
            self.segments.set_activity(Activity::Busy);
        } else if now_ns.saturating_sub(watch.since_ns) >= REST.as_nanos() as u64 {
            self.segments.set_activity(Activity::Idle);
        }
    }

    /// The time until the sync of modes 0 and 2 is due; `None`: no commit of theirs is unsynced.
    pub(crate) fn lazy_sync_in(&self) -> Option<Duration> {
        let since = self.lazy_since.load(Ordering::Acquire);
        let waited = Duration::from_nanos(self.rt.env.now_ns().saturating_sub(since));
        (since != 0).then(|| LAZY.saturating_sub(waited))
    }

    /// The time until the log may be at rest and then has a segment to give back.
    pub(crate) fn rest_in(&self) -> Option<Duration> {
        let is_busy = self.segments.activity() == Activity::Busy;
        if !is_busy || !self.segments.has_recyclable(self.checkpoint_lsn()) {
            return None;
        }
        let waited = self.rt.env.now_ns().saturating_sub(self.watch.lock().since_ns);
        Some(REST.saturating_sub(Duration::from_nanos(waited)))
    }
}
