//! State shared by the parts of the log: positions, the state behind the one short mutex, events.
//!
//! `state` is locked for memory work only, never across a wait, a step or I/O; it is taken before
//! the tables of `segments`, never after.

use crate::buffer::{Buffer, Chunk};
use crate::rest::EndWatch;
use crate::segments::Segments;
use crate::space::{FRAMES, Lack, LogSpace, Share};
use evenkeel_base::{Code, Error, Lsn, Result, sync::Mutex};
pub(crate) use evenkeel_io::Event;
use evenkeel_io::Runtime;
use evenkeel_sched::Admission;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Shared {
    pub(crate) rt: Arc<Runtime>,
    pub(crate) epoch: u32,
    /// First block of the epoch, and the position at which it took over.
    pub(crate) start: (u64, Lsn),
    /// The age at which users wait now, and the age by the configured size. The latter is lower if
    /// the size was reduced and the log is still older. Copies of `state`.
    pub(crate) user_limit: AtomicU64,
    pub(crate) capacity: AtomicU64,
    pub(crate) segments: Segments,
    pub(crate) state: Mutex<LogState>,
    /// Waiting reservations of each share.
    pub(crate) queues: [Admission; 4],
    pub(crate) end: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) durable: AtomicU64,
    pub(crate) checkpoint: AtomicU64,
    /// Time of the oldest unsynced commit of modes 0 and 2; 0: there is none.
    pub(crate) lazy_since: AtomicU64,
    /// What is known of the last append, to find a log at rest.
    pub(crate) watch: Mutex<EndWatch>,
    /// Notified when there is background work.
    pub(crate) work: Arc<Event>,
    /// The checkpointer's event; also notified when the end passes `pressure_at`.
    pub(crate) pressure: Arc<Event>,
    pub(crate) pressure_at: AtomicU64,
    /// Notified when a group is done, by the parity of its number.
    pub(crate) group_done: [Arc<Event>; 2],
    /// Wakes the designated leader of the next group.
    pub(crate) lead_next: Arc<Event>,
    /// Notified when the syncer role becomes free.
    pub(crate) sync_free: Arc<Event>,
}

pub(crate) struct LogState {
    pub(crate) buffer: Buffer,
    pub(crate) space: LogSpace,
    /// A leader is at work; its group has this number, ends here, and will be synced.
    pub(crate) leading: bool,
    pub(crate) group: u64,
    pub(crate) group_end: Lsn,
    pub(crate) group_syncs: bool,
    pub(crate) next_leader: bool,
    pub(crate) syncing: bool,
    pub(crate) preparing: bool,
    /// An empty list with room for a group.
    pub(crate) spare: Vec<Chunk>,
}

impl LogState {
    pub(crate) fn new(buffer: Buffer, space: LogSpace) -> LogState {
        LogState {
            group_end: buffer.end(),
            buffer,
            space,
            leading: false,
            group: 0,
            group_syncs: false,
            next_leader: false,
            syncing: false,
            preparing: false,
            spare: Vec::with_capacity(128),
        }
    }

    /// # Errors
    /// `LogTooLarge` for a reservation for which no checkpoint makes room.
    pub(crate) fn check_size(&self, share: Share, n: u64) -> Result<()> {
        let largest = self.space.largest(share);
        if n <= largest {
            return Ok(());
        }
        let error = Error::new(Code::LogTooLarge).with("bytes", n - FRAMES);
        Err(error.with("limit", largest))
    }

    /// Counts a reservation if nothing is lacking.
    pub(crate) fn admit(&mut self, share: Share, n: u64) -> Option<Lack> {
        let end = self.buffer.end();
        let lack = self.space.lack(end, share, n);
        if lack.is_none() {
            let need = self.space.buffer_need(end, n);
            self.buffer.grow(need);
            self.space.take(share, n);
        }
        lack
    }

    /// Becomes the leader if there is none.
    pub(crate) fn take_lead(&mut self) -> bool {
        if self.leading {
            return false;
        }
        self.leading = true;
        self.group += 1;
        true
    }
}
impl Shared {
    pub(crate) fn checkpoint_lsn(&self) -> Lsn {
        Lsn(self.checkpoint.load(Ordering::Acquire))
    }

    /// Updates the limits of users.
    pub(crate) fn note_limits(&self, state: &LogState) {
        self.user_limit.store(state.space.limits.user(), Ordering::Release);
        self.capacity.store(state.space.capacity(), Ordering::Release);
    }

    /// The checkpoint that the first ones in their queues need, if the age of the log holds them
    /// up.
    pub(crate) fn needed(&self) -> Option<Lsn> {
        let state = self.state.lock();
        let end = state.buffer.end();
        let of = |share: Share| {
            let wanted = self.queues[share as usize].first_wanted()?;
            let needed = state.space.needed(end, share, wanted);
            (needed > state.space.checkpoint).then_some(needed)
        };
        [Share::User, Share::System, Share::Within].into_iter().filter_map(of).max()
    }

    /// Space became available: wakes the first operation of each queue.
    pub(crate) fn wake_first(&self) {
        self.queues.iter().for_each(Admission::wake_first);
    }

    /// Wakes all operations that wait for space, not only those whose turn it may be.
    pub(crate) fn wake_waiting(&self) {
        self.queues.iter().for_each(Admission::wake_all);
    }

    /// Writes have stopped, here or elsewhere: wakes all waiting threads.
    pub(crate) fn wake_all(&self) {
        self.wake_waiting();
        self.group_done.iter().for_each(|event| event.notify());
        self.lead_next.notify();
        self.sync_free.notify();
    }
}
