//! Group commit: which thread writes and syncs for the others.
//!
//! The *leader* takes the buffer (a chunk only, if it just lacks room), writes it and syncs, one
//! leader at a time; meanwhile the next group gathers. The waiters of a group are woken together
//! when it is done. Of the next group only the first waiter, the *designated* leader, is woken, to
//! lead at once. So no timer is involved, and no thread is woken in vain. The *syncer* role is
//! taken for each sync, by a leader or by the beat of modes 0 and 2, because two concurrent syncs
//! could hide an error from one of them. Both roles are flags, not locks: no mutex is held across
//! I/O or waits. A commit of mode 2 that comes while a leader syncs waits for that sync.

use crate::buffer::Chunk;
use crate::shared::{Event, Shared};
use evenkeel_base::fault_injection::Fault;
use evenkeel_base::{Cause, Error, Lsn, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How far a waiter wants its record to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncGoal {
    Written,
    Durable,
}

/// What a waiter does next.
enum Turn {
    Lead,
    Wait { event: Arc<Event>, seen: u64, designated: bool },
}
/// Dropped by a thread that panics while it leads a group or syncs: writes stop, and waiting
/// threads get the error. Forgotten at the end of either.
struct LeftBehind<'s> {
    shared: &'s Shared,
    is_lead: bool,
}

impl Drop for LeftBehind<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            *(if self.is_lead { &mut state.leading } else { &mut state.syncing }) = false;
        }
        // Wakes all threads that wait for the log.
        let panicked = Error::internal("a thread panicked while it wrote the log");
        self.shared.rt.health.fail(panicked);
    }
}

/// Dropped by a designated leader that panics while it waits, as the simulator ends a thread: the
/// group chooses another leader. Forgotten when it is woken.
struct LeftWaiting<'s>(&'s Shared);

impl Drop for LeftWaiting<'_> {
    fn drop(&mut self) {
        self.0.hand_over_lead();
    }
}

impl Shared {
    fn reached(&self, lsn: Lsn, goal: SyncGoal) -> bool {
        let position = match goal {
            SyncGoal::Written => &self.written,
            SyncGoal::Durable => &self.durable,
        };
        position.load(Ordering::Acquire) > lsn.0
    }

    /// Waits, or leads the group that takes the record there.
    pub(crate) fn wait(&self, lsn: Lsn, goal: SyncGoal) -> Result<()> {
        let end = self.end.load(Ordering::Acquire);
        let lsn = lsn.min(Lsn(end.saturating_sub(1)));
        let mut designated = false;
        loop {
            if self.reached(lsn, goal) {
                if designated {
                    self.hand_over_lead();
                }
                return Ok(());
            }
            if let Err(stopped) = self.rt.health.check_writable() {
                // Another thread may have stopped writes: then no leader comes for this waiter.
                if designated {
                    self.hand_over_lead();
                }
                return Err(stopped);
            }
            match self.next_turn(lsn, goal, designated) {
                Turn::Lead => {
                    designated = false;
                    self.lead(goal == SyncGoal::Durable)?;
                }
                Turn::Wait { event, seen, designated: now } => {
                    designated = now;
                    if !self.reached(lsn, goal) && !self.rt.health.is_failed() {
                        let left = designated.then(|| LeftWaiting(self));
                        self.rt.wait(&event, seen, None, Cause::LogSync);
                        std::mem::forget(left);
                    }
                }
            }
        }
    }

    fn next_turn(&self, lsn: Lsn, goal: SyncGoal, designated: bool) -> Turn {
        let mut state = self.state.lock();
        let covered = lsn < state.group_end && (state.group_syncs || goal == SyncGoal::Written);
        if (designated || !state.next_leader) && state.take_lead() {
            state.next_leader = false;
            return Turn::Lead;
        }
        if state.leading && covered && !designated {
            let event = self.group_done[(state.group % 2) as usize].clone();
            return Turn::Wait { seen: event.now(), event, designated: false };
        }
        if designated || !state.next_leader {
            state.next_leader = true;
            let event = self.lead_next.clone();
            return Turn::Wait { seen: event.now(), event, designated: true };
        }
        let event = self.group_done[((state.group + 1) % 2) as usize].clone();
        Turn::Wait { seen: event.now(), event, designated: false }
    }

    /// The designated leader no longer needs the group, which chooses another leader.
    fn hand_over_lead(&self) {
        self.state.lock().next_leader = false;
        self.group_done.iter().for_each(|event| event.notify());
    }

    /// Leads one group if there is no leader; false if there is one.
    pub(crate) fn try_lead(&self, sync: bool) -> Result<bool> {
        let lead = self.state.lock().take_lead();
        if lead {
            self.lead(sync)?;
        }
        Ok(lead)
    }

    /// As `try_lead`, for the first thread that lacks room in the buffer. It writes no more of the
    /// buffer than makes room, because no thread behind it gets room before it does.
    pub(crate) fn try_make_room(&self) -> Result<bool> {
        let lead = self.state.lock().take_lead();
        if lead {
            self.lead_part(false, true)?;
        }
        Ok(lead)
    }

    /// The leader's work: take the buffer, write, sync, wake.
    fn lead(&self, sync: bool) -> Result<()> {
        self.lead_part(sync, false)
    }

    /// As `lead`; takes only the oldest full chunk of the buffer, if that is enough and there is
    /// one.
    fn lead_part(&self, sync: bool, one_is_enough: bool) -> Result<()> {
        let left = LeftBehind { shared: self, is_lead: true };
        self.rt.step();
        let group = {
            let mut state = self.state.lock();
            let mut group = std::mem::take(&mut state.spare);
            if one_is_enough {
                state.buffer.take_full(&mut group);
            }
            if group.is_empty() {
                state.buffer.seal(self.segments.align(), &mut group);
            }
            state.group_end = group.last().map_or(state.buffer.end(), Chunk::end);
            state.group_syncs = sync;
            self.end.store(state.buffer.end().0, Ordering::Release);
            group
        };
        let result = self.write_group(group).and_then(|()| match sync {
            true => self.sync_written(),
            false => Ok(()),
        });
        std::mem::forget(left);
        let (done, next) = {
            let mut state = self.state.lock();
            state.leading = false;
            (&self.group_done[(state.group % 2) as usize], state.next_leader)
        };
        done.notify();
        if next {
            self.lead_next.notify();
        }
        self.wake_first();
        result
    }

    /// Writes a group. Each chunk is returned when it is written, so a thread that waits for room
    /// does not wait for the whole group.
    fn write_group(&self, mut group: Vec<Chunk>) -> Result<()> {
        let durable = Lsn(self.durable.load(Ordering::Acquire));
        let mut result = self.rt.health.check_writable();
        group.reverse();
        while let Some(mut chunk) = group.pop() {
            if result.is_ok() {
                chunk.finish(self.rt.database(), self.epoch, durable, self.start);
                result = self
                    .on_device(|| self.segments.write(chunk.first_block(), chunk.used()))
                    .map_err(|error| self.rt.health.fail(error));
            }
            {
                let mut state = self.state.lock();
                if result.is_ok() {
                    state.space.written = chunk.end();
                    self.written.store(chunk.whole_end().0, Ordering::Release);
                }
                state.buffer.give_back(chunk);
            }
            self.wake_first();
        }
        self.state.lock().spare = group;
        self.call_for_segment();
        result
    }

    /// Records a wait for the device: the leader waits under the same cause as the others.
    fn on_device<R>(&self, f: impl FnOnce() -> R) -> R {
        self.rt.waiting(Cause::LogSync, f)
    }

    /// Syncs what is written; one thread at a time, so that an error is never missed.
    fn sync_written(&self) -> Result<()> {
        self.rt.wait_until(&self.sync_free, Cause::LogSync, || {
            !std::mem::replace(&mut self.state.lock().syncing, true)
        });
        let left = LeftBehind { shared: self, is_lead: false };
        let from = self.durable.load(Ordering::Acquire);
        let to = self.written.load(Ordering::Acquire);
        let result = self.rt.health.check_writable().and_then(|()| {
            self.rt.step();
            if evenkeel_base::fault_injection::is(Fault::FsyncSkipped) {
                return Ok(());
            }
            let synced = self.on_device(|| self.segments.sync(Lsn(from), Lsn(to)));
            synced.map_err(|error| self.rt.health.fail(error))
        });
        if result.is_ok() {
            let to = match evenkeel_base::fault_injection::is(Fault::DurableAtSyncEnd) {
                true => self.written.load(Ordering::Acquire),
                false => to,
            };
            self.durable.fetch_max(to, Ordering::AcqRel);
        }
        std::mem::forget(left);
        self.state.lock().syncing = false;
        self.sync_free.notify();
        result
    }

    /// The sync of modes 0 and 2.
    pub(crate) fn lazy_sync(&self) -> Result<()> {
        // Later commits start a second of their own.
        self.lazy_since.store(0, Ordering::Release);
        let end = self.end.load(Ordering::Acquire);
        self.wait(Lsn(end.saturating_sub(1)), SyncGoal::Written)?;
        self.sync_written()?;
        self.group_done.iter().for_each(|event| event.notify());
        self.lead_next.notify();
        Ok(())
    }

    /// True if half of the buffer waits to be written and no thread writes.
    pub(crate) fn buffer_fills(&self) -> bool {
        let state = self.state.lock();
        let unwritten = state.buffer.end().0 - state.space.written.0;
        !state.leading && unwritten > state.space.buffer / 2
    }
}
