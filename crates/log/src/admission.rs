//! The waiting side of admission (G1): first come, first served in each share, and the preparing of
//! segments that a reservation may need.
//!
//! A waiter is woken by its own event whenever it may be its turn: space became free, a segment
//! stands, the one before it is gone, writes have stopped. The first in a queue helps itself where
//! it can: it writes the buffer, prepares a segment. For the age of the log it wakes the
//! checkpointer, which finds in `Log::needed` how far it has to come and sets those to work who
//! hold it up; each step of theirs wakes it again. So no timer takes part.

use crate::shared::{LogState, LogWaiters, Shared, notify};
use crate::space::Share;
use crate::space::{Lack, Throttle};
use evenkeel_base::journal::Law;
use evenkeel_base::{Cause, Code, Error, Lsn, Result};
use evenkeel_format::wal::lsn_of;
use evenkeel_io::{Cancellation, Event};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Shared {
    /// Prepares the first segments: one to write to and two ahead. On a full disk the first one
    /// is enough to open; users cannot write then.
    pub(crate) fn prepare_first(&self) -> Result<()> {
        self.note_prepared();
        let end = Lsn(self.end.load(Ordering::Acquire));
        while self.segments.wants_first(end) {
            match self.prepare() {
                Err(e) if e.code().is_shortage() && self.segments.prepared().end > end => {
                    log::warn!("no space to prepare log segments: {e}");
                    break;
                }
                other => other?,
            };
        }
        Ok(())
    }

    /// Admission learns where the segments end.
    fn note_prepared(&self) {
        let mut state = self.state.lock();
        self.note_prepared_in(&mut state);
    }

    fn note_prepared_in(&self, state: &mut LogState) {
        let prepared = self.segments.prepared();
        state.space.prepared = prepared.end;
        state.space.prepared_user = prepared.user;
    }

    /// A step of preparing a segment is due.
    pub(crate) fn wants_segment(&self) -> bool {
        let reach = {
            let state = self.state.lock();
            state.space.reach(state.buffer.end(), 0)
        };
        self.segments.is_due(reach, self.checkpoint_lsn())
    }

    /// Wakes who prepares segments as the log comes to need one: those who lack it would have to
    /// wait for all of it.
    pub(crate) fn call_for_segment(&self) {
        let is_at_it = self.state.lock().preparing;
        if !is_at_it && self.wants_segment() {
            self.work.notify();
        }
    }

    /// One step of preparing a segment; false if somebody else is at it.
    pub(crate) fn prepare(&self) -> Result<bool> {
        let start = lsn_of(self.start.0);
        self.preparing(|| self.segments.prepare_step(start, self.checkpoint_lsn()).map(|_| ()))
    }

    /// True if there are segments that a log of its size has no use for.
    pub(crate) fn has_surplus(&self) -> bool {
        let kept = self.kept(&self.state.lock());
        self.segments.has_surplus(kept, self.checkpoint_lsn())
    }

    /// One step of giving segments back that a log of its size has no use for; false if somebody
    /// else prepares some.
    pub(crate) fn give_back(&self) -> Result<bool> {
        self.preparing(|| {
            if self.segments.remove_behind(self.checkpoint_lsn())? {
                return Ok(());
            }
            let cut = {
                let mut state = self.state.lock();
                let cut = self.segments.cut_ahead(self.kept(&state));
                // From here on nobody is admitted to them.
                self.note_prepared_in(&mut state);
                cut
            };
            self.segments.remove_ahead(cut)
        })
    }

    /// Segments that begin behind this hold nothing and will hold nothing of what is admitted; on a
    /// full disk all are kept: commits and reverts have nothing else (G4).
    fn kept(&self, state: &LogState) -> Lsn {
        if self.rt.health.check_user().is_err() {
            return Lsn(u64::MAX);
        }
        // And some flushes amid the records of one reservation.
        Lsn(state.space.reach(state.buffer.end(), 0).0 + 64 * state.space.pad)
    }

    /// A step of who prepares segments or gives them back, one at a time; false if somebody else
    /// is at it.
    fn preparing(&self, step: impl FnOnce() -> Result<()>) -> Result<bool> {
        if std::mem::replace(&mut self.state.lock().preparing, true) {
            return Ok(false);
        }
        let result = step();
        self.note_prepared();
        let fronts = {
            let mut state = self.state.lock();
            state.preparing = false;
            state.fronts()
        };
        notify(fronts);
        match result {
            Ok(_) => Ok(true),
            Err(error) if error.code().is_shortage() => Err(error),
            Err(error) => Err(self.rt.health.fail(error)),
        }
    }

    /// Notes what a user's reservation met, the law of log space by its inputs, if somebody asked
    /// for that.
    pub(crate) fn note_throttle(&self, inputs: [u64; 4], met: Throttle) {
        let now = || self.rt.env.now_ns();
        let what = || (inputs.to_vec(), met.numbers());
        self.rt.journal.note_some(Law::LogSpace, now, what);
    }

    /// The slow path of `reserve`: first come, first served in each share.
    pub(crate) fn reserve_waiting(
        &self,
        share: Share,
        n: u64,
        cancellation: Option<&Cancellation>,
    ) -> Result<()> {
        let event = Arc::new(Event::new());
        let ticket = {
            let mut state = self.state.lock();
            state.next_ticket += 1;
            let ticket = state.next_ticket;
            state.queues[share as usize].push_back(LogWaiters { ticket, n, event: event.clone() });
            ticket
        };
        let result = self.wait_for_space(share, n, ticket, &event, cancellation);
        let fronts = {
            let mut state = self.state.lock();
            state.leave(share, ticket);
            state.fronts()
        };
        notify(fronts);
        result
    }

    fn wait_for_space(
        &self,
        share: Share,
        n: u64,
        ticket: u64,
        event: &Arc<Event>,
        cancellation: Option<&Cancellation>,
    ) -> Result<()> {
        loop {
            let seen = event.now();
            match share {
                Share::User | Share::Within => self.rt.check_wait()?,
                Share::System => {
                    self.rt.health.check_writable()?;
                    self.rt.health.check_open()?;
                }
                Share::Checkpoint => self.rt.health.check_writable()?,
            }
            let (lack, reach, unwritten) = {
                let mut state = self.state.lock();
                // The log may have become smaller than it was when this one came.
                state.check_size(share, n)?;
                let front = state.queues[share as usize].front().map(|w| w.ticket);
                let lack = if front == Some(ticket) { state.admit(share, n) } else { None };
                if front == Some(ticket) && lack.is_none() {
                    return Ok(());
                }
                let end = state.buffer.end();
                (lack, state.space.reach(end, n), end > state.space.written)
            };
            match lack {
                // Room that others have reserved and not used is theirs until they wake this one.
                Some(Lack::Buffer) if unwritten && self.try_make_room()? => continue,
                Some(Lack::Segments) if self.segments.wants_more(reach, self.checkpoint_lsn()) => {
                    if self.prepare()? {
                        continue;
                    }
                    // Somebody else is at it, who wakes this one.
                }
                Some(Lack::Age | Lack::Segments) if share == Share::Checkpoint => {
                    return Err(Error::new(Code::LogFull).with("bytes", n));
                }
                Some(Lack::Age | Lack::Segments) => self.pressure.notify(),
                Some(Lack::Buffer) | None => {}
            }
            self.rt.wait_cancellable(event, seen, Cause::LogSpace, cancellation)?;
        }
    }
}
