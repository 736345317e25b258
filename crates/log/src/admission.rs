//! The waiting part of admission (G1): what a reservation does that lacks space, and the
//! preparation of segments that it may need. Each share has its queue, `evenkeel_sched::Admission`.
//!
//! The first of a queue is woken whenever it may be its turn: space became free, a segment is
//! ready, the operation before it has left, writes have stopped. It helps itself if it can: it
//! writes the buffer or prepares a segment. If the log is too old it wakes the checkpointer, which
//! reads the needed position from `Log::needed` and wakes the actors that hold it up; each step of
//! theirs wakes it again. So no timer is involved.

use crate::segments::Activity;
use crate::shared::{LogState, Shared};
use crate::space::Lack;
use crate::space::Share;
use evenkeel_base::journal::Law;
use evenkeel_base::{Cause, Code, Error, Lsn, Result};
use evenkeel_format::wal::lsn_of;
use evenkeel_io::Cancellation;
use evenkeel_sched::Tried;
use evenkeel_sched::laws::log_space::Throttle;
use std::sync::atomic::Ordering;

impl Shared {
    /// Prepares the first segments: one to write to and two ahead. On a full disk the first one is
    /// enough to open; users cannot write then.
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
        self.segments.end_opening();
        Ok(())
    }

    /// Passes the end of the segments to admission.
    fn note_prepared(&self) {
        let mut state = self.state.lock();
        self.note_prepared_in(&mut state);
    }

    fn note_prepared_in(&self, state: &mut LogState) {
        let prepared = self.segments.prepared();
        state.space.prepared = prepared.end;
        state.space.prepared_user = prepared.user;
    }

    /// True if a step of preparing a segment is due.
    pub(crate) fn wants_segment(&self) -> bool {
        let reach = {
            let state = self.state.lock();
            state.space.reach(state.buffer.end(), 0)
        };
        self.segments.is_due(reach, self.checkpoint_lsn())
    }

    /// Wakes the preparing thread as the log comes to need a segment: otherwise the operations that
    /// lack it would wait for the whole preparation.
    pub(crate) fn call_for_segment(&self) {
        let is_at_it = self.state.lock().preparing;
        if !is_at_it && self.wants_segment() {
            self.work.notify();
        }
    }

    /// One step of preparing a segment; false if another thread is preparing.
    pub(crate) fn prepare(&self) -> Result<bool> {
        let start = lsn_of(self.start.0);
        self.preparing(|| self.segments.prepare_step(start, self.checkpoint_lsn()).map(|_| ()))
    }

    /// True if there are segments that a log of this size does not need.
    pub(crate) fn has_surplus(&self) -> bool {
        let kept = self.kept(&self.state.lock());
        self.segments.has_surplus(kept, self.checkpoint_lsn())
    }

    /// One step of removing segments that a log of this size does not need; false if another thread
    /// is preparing.
    pub(crate) fn give_back(&self) -> Result<bool> {
        self.preparing(|| {
            if self.segments.remove_behind(self.checkpoint_lsn())? {
                return Ok(());
            }
            let cut = {
                let mut state = self.state.lock();
                let cut = self.segments.cut_ahead(self.kept(&state));
                // From here on no reservation may use them.
                self.note_prepared_in(&mut state);
                cut
            };
            self.segments.remove_ahead(cut)
        })
    }

    /// Segments that begin behind this position are empty and stay empty for all admitted
    /// reservations. On a full disk all are kept, because commits and rollback have no other space
    /// (G4).
    fn kept(&self, state: &LogState) -> Lsn {
        if self.rt.health.check_user().is_err() {
            return Lsn(u64::MAX);
        }
        // No reservation is used any more.
        if self.segments.activity() == Activity::Closing {
            return state.buffer.end();
        }
        // Plus some flushes amid the records of one reservation.
        Lsn(state.space.reach(state.buffer.end(), 0).0 + 64 * state.space.pad)
    }

    /// A step of preparing or removing segments, by one thread at a time; false if another thread
    /// is at work.
    fn preparing(&self, step: impl FnOnce() -> Result<()>) -> Result<bool> {
        if std::mem::replace(&mut self.state.lock().preparing, true) {
            return Ok(false);
        }
        let result = step();
        self.note_prepared();
        self.state.lock().preparing = false;
        self.wake_first();
        match result {
            Ok(_) => Ok(true),
            Err(error) if error.code().is_shortage() => Err(error),
            Err(error) => Err(self.rt.health.fail(error)),
        }
    }

    /// Records the law of log space for a user's reservation, if recording is on.
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
        self.queues[share as usize].admit(
            n,
            |is_first| self.attempt(share, n, is_first),
            |event, seen| self.rt.wait_cancellable(event, seen, Cause::LogSpace, cancellation),
        )
    }

    /// Takes the space if it is this reservation's turn and nothing is lacking. Otherwise provides
    /// what this thread can provide itself, and wakes whoever provides the rest.
    fn attempt(&self, share: Share, n: u64, is_first: bool) -> Result<Tried> {
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
            // The log may have shrunk since this reservation came.
            state.check_size(share, n)?;
            if !is_first {
                return Ok(Tried::Wait);
            }
            let Some(lack) = state.admit(share, n) else { return Ok(Tried::Admitted) };
            let end = state.buffer.end();
            (lack, state.space.reach(end, n), end > state.space.written)
        };
        let made_room = match lack {
            // Room that others have reserved and not used is theirs until they wake this one.
            Lack::Buffer => unwritten && self.try_make_room()?,
            // Another thread may be preparing; it wakes this one.
            Lack::Segments if self.segments.wants_more(reach, self.checkpoint_lsn()) => {
                self.prepare()?
            }
            Lack::Age | Lack::Segments if share == Share::Checkpoint => {
                return Err(Error::new(Code::LogFull).with("bytes", n));
            }
            Lack::Age | Lack::Segments => {
                self.pressure.notify();
                false
            }
        };
        Ok(if made_room { Tried::Retry } else { Tried::Wait })
    }
}
