//! For the model of group commit: the state that the log's `commit` shares, with a device that
//! remembers what was written and synced.

pub(crate) use crate::event::Event;

use crate::buffer::{Buffer, Chunk};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::wait_until;
use evenkeel_base::health::Health;
use evenkeel_base::{Cause, Code, Error, Lsn, Result};
use evenkeel_sim::interleave::step;
use std::sync::Arc;
use std::time::Duration;

/// Stands for the runtime that the log uses.
#[derive(Default)]
pub(crate) struct Rt {
    pub(crate) health: Health,
}

impl Rt {
    pub(crate) fn database(&self) -> u64 {
        0
    }

    pub(crate) fn step(&self) {
        step();
    }

    pub(crate) fn waiting<R>(&self, _: Cause, work: impl FnOnce() -> R) -> R {
        work()
    }

    pub(crate) fn wait(&self, event: &Event, seen: u64, _: Option<Duration>, _: Cause) {
        event.block(seen, None);
    }

    pub(crate) fn wait_until(&self, event: &Event, _: Cause, condition: impl FnMut() -> bool) {
        wait_until(event, condition);
    }
}

/// Stands for the log's files.
#[derive(Default)]
pub(crate) struct Device {
    written: AtomicU64,
    pub(crate) synced: AtomicU64,
    syncing: AtomicU64,
    /// Planted fault: syncs do nothing.
    sync_skipped: bool,
    /// The sync that reaches this position fails; 0: none.
    pub(crate) fails_at: u64,
}

impl Device {
    pub(crate) fn failing_at(fails_at: u64) -> Device {
        Device { fails_at, ..Device::default() }
    }

    pub(crate) fn skipping_syncs() -> Device {
        Device { sync_skipped: true, ..Device::default() }
    }

    pub(crate) fn align(&self) -> usize {
        1
    }

    /// Writes a group up to `end`.
    pub(crate) fn write(&self, end: u64, _: &[u8]) -> Result<()> {
        let before = self.written.swap(end, Ordering::SeqCst);
        assert!(before <= end, "groups are written out of order");
        Ok(())
    }

    pub(crate) fn sync(&self, _: Lsn, to: Lsn) -> Result<()> {
        assert_eq!(self.syncing.fetch_add(1, Ordering::SeqCst), 0, "two syncs at once");
        let reached = self.written.load(Ordering::SeqCst);
        assert!(reached >= to.0, "synced before it was written");
        let fails = self.fails_at > 0 && reached >= self.fails_at;
        if !fails && !self.sync_skipped {
            self.synced.fetch_max(reached, Ordering::SeqCst);
        }
        self.syncing.fetch_sub(1, Ordering::SeqCst);
        if fails { Err(Error::new(Code::SyncFailed)) } else { Ok(()) }
    }
}

#[derive(Default)]
pub(crate) struct LogSpace {
    pub(crate) written: Lsn,
    pub(crate) buffer: u64,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) buffer: Buffer,
    pub(crate) space: LogSpace,
    pub(crate) leading: bool,
    pub(crate) group: u64,
    pub(crate) group_end: Lsn,
    pub(crate) group_syncs: bool,
    pub(crate) next_leader: bool,
    pub(crate) syncing: bool,
    pub(crate) spare: Vec<Chunk>,
}

impl State {
    pub(crate) fn take_lead(&mut self) -> bool {
        let free = !self.leading;
        if free {
            self.leading = true;
            self.group += 1;
        }
        free
    }
}

#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) rt: Rt,
    pub(crate) epoch: u32,
    pub(crate) start: (u64, Lsn),
    pub(crate) segments: Device,
    pub(crate) state: Mutex<State>,
    pub(crate) end: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) durable: AtomicU64,
    pub(crate) lazy_since: AtomicU64,
    pub(crate) group_done: [Arc<Event>; 2],
    pub(crate) lead_next: Arc<Event>,
    pub(crate) sync_free: Arc<Event>,
}

impl Shared {
    /// The device always has room.
    pub(crate) fn call_for_segment(&self) {}

    /// Nobody waits for room: `admission` is another model.
    pub(crate) fn wake_first(&self) {}
}
