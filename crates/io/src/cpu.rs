//! Processor time of background work (protocols F4, G2; architecture 4.13).
//!
//! - Work that takes long, an index build or a merge that nobody waits for, calls
//!   [`Runtime::give_way`] after every few rows: each 1 ms of work its thread gives the processor
//!   to whoever wants it.
//! - Work that nobody waits for is done by a background thread that has one of
//!   max(1, cores / 4) *seats*. Required work needs none, nor does what a user waits for.
//!
//! Invariant: 0 <= seats taken <= seats. A seat is taken for one beat, so that all come by turns.

use crate::{Event, Runtime};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, metrics::Metric};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Work goes on for so long without giving way.
pub const SLICE_NS: u64 = 1_000_000;

thread_local! {
    /// When this thread began to work, or gave way last.
    static BEGUN_NS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Seats for work that nobody waits for.
pub(crate) struct Seats {
    state: Mutex<State>,
    freed: Arc<Event>,
}

struct State {
    seats: usize,
    taken: usize,
}

impl Default for Seats {
    fn default() -> Seats {
        Seats { state: Mutex::new(State { seats: 1, taken: 0 }), freed: Arc::default() }
    }
}

impl Seats {
    fn take(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = state.taken < state.seats;
        state.taken += usize::from(is_free);
        is_free
    }
}

/// A seat, until dropped.
pub struct Seat<'a>(Option<&'a Seats>);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Some(seats) = self.0 {
            seats.state.lock().taken -= 1;
            seats.freed.notify();
        }
    }
}

impl Runtime {
    /// Says how many cores there are; one until then.
    pub fn set_cores(&self, cores: usize) {
        self.seats.state.lock().seats = (cores / 4).max(1);
        self.seats.freed.notify();
    }

    /// Gives the processor away if this thread has worked for 1 ms. Call it holding no `Mutex` and
    /// no latch.
    pub fn give_way(&self) {
        let now = self.env.now_ns();
        // The clock of another environment may have been ahead.
        let begun = BEGUN_NS.get().filter(|begun| *begun <= now).unwrap_or(now);
        BEGUN_NS.set(Some(begun));
        if now - begun >= SLICE_NS {
            self.metrics.add(Metric::CpuGivenWay, 1);
            let seen = self.never.now();
            self.env.wait(&self.never, seen, Some(Duration::ZERO), Cause::Idle);
            BEGUN_NS.set(Some(self.env.now_ns()));
        }
    }

    /// A seat for work that nobody waits for; none if all are taken.
    pub fn try_seat(&self) -> Option<Seat<'_>> {
        if !Runtime::is_background() {
            return Some(Seat(None));
        }
        self.seats.take().then(|| Seat(Some(&self.seats)))
    }

    /// The same; waits for one under the cause `governor`, not longer than `timeout`.
    pub fn seat_for(&self, timeout: Duration) -> Option<Seat<'_>> {
        let mut seat = self.try_seat();
        if seat.is_none() {
            self.metrics.add(Metric::CpuSeatWaits, 1);
            self.wait_at_most(&self.seats.freed, Cause::Governor, timeout, || {
                seat = self.try_seat();
                seat.is_some()
            });
        }
        seat
    }
}

#[cfg(test)]
#[path = "cpu_tests.rs"]
mod cpu_tests;
