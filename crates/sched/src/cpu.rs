//! Processor time of background work (protocols F4, G2).
//!
//! - Long work, such as an index build or a surplus compaction, calls [`Runtime::give_way`] after
//!   every few rows: after each 1 ms of work its thread yields the processor.
//! - A long index build leaves most of the processor to users: while users are active and the
//!   processor is contended, its threads together take a fifth of the cores
//!   ([`Runtime::give_way_to_users`]). A build that needs about a core-second in all runs like one
//!   more client ([`BuildBudget`]): at a fifth of the cores it would take several times as long,
//!   and users would lose as much in all.
//! - Surplus work is done by a background thread that holds one of max(1, cores / 4) *seats*.
//!   Required work needs no seat, nor does work for which a user waits.
//!
//! Invariant: 0 <= seats taken <= seats. A seat is taken for one beat, so that all get their turn.

use crate::Scheduler;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, metrics::Metric};
use evenkeel_io::{Event, Runtime};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Work continues this long without yielding.
pub const SLICE_NS: u64 = 1_000_000;
/// A thread that yields and gets the processor back only after this time shares it with others.
const SHARED_NS: u64 = 50_000;
/// Next to active users an index build gets one part in this many of the cores.
const BUILD_PART: u64 = 5;
/// A build is small if its expected processor time is at most this.
const SMALL_BUILD_NS: u64 = 1_000_000_000;
/// Processor time for one short entry of an index: reading its row, sorting and writing the entry.
/// From 200,000 rows and one index on two cores, idle: 0.30 s of two threads.
const BUILD_ENTRY_NS: u64 = 3_000;
/// Bytes of a short entry.
const SHORT_ENTRY_BYTES: u64 = 32;
/// Processor time per further byte: copying, comparing, checksumming and writing it. From 100,000
/// rows with keys of 67 and 607 bytes: 0.13 and 0.56 s.
const BUILD_BYTE_NS: u64 = 8;
/// The longest pause.
const PAUSE_NS_MAX: u64 = 20_000_000;

thread_local! {
    /// When this thread began to work, or last yielded.
    static BEGUN_NS: Cell<Option<u64>> = const { Cell::new(None) };
    /// The count of users' work at that time.
    static USERS_DID: Cell<u64> = const { Cell::new(0) };
}

/// How long one of `threads` that do one piece of work pauses so that together they have a fifth of
/// the cores, after it worked for `worked_ns` and then others for `others_ns`.
fn pause_ns(worked_ns: u64, others_ns: u64, threads: usize, cores: usize) -> u64 {
    if others_ns < SHARED_NS {
        return 0;
    }
    // Beyond two slices it did not work but waited.
    let worked_ns = worked_ns.min(2 * SLICE_NS);
    let turn = worked_ns.saturating_mul(BUILD_PART * threads as u64) / cores.max(1) as u64;
    turn.saturating_sub(worked_ns).saturating_sub(others_ns).min(PAUSE_NS_MAX)
}

/// Processor time that the threads of one small index build may take together without yielding. A
/// large build has none; a build wrongly considered small yields once its budget is used up.
#[derive(Default)]
pub struct BuildBudget {
    left_ns: AtomicU64,
}

impl BuildBudget {
    /// The budget of a build that makes about `entries` entries of `bytes` bytes in all its indexes
    /// together.
    pub fn for_entries(entries: u64, bytes: u64) -> BuildBudget {
        let long = bytes.saturating_sub(entries.saturating_mul(SHORT_ENTRY_BYTES));
        let work_ns = entries.saturating_mul(BUILD_ENTRY_NS);
        let work_ns = work_ns.saturating_add(long.saturating_mul(BUILD_BYTE_NS));
        let is_small = work_ns <= SMALL_BUILD_NS;
        // Half as much again, because the estimate of the entries may be too low.
        let left_ns = if is_small { SMALL_BUILD_NS + SMALL_BUILD_NS / 2 } else { 0 };
        BuildBudget { left_ns: AtomicU64::new(left_ns) }
    }

    /// Subtracts the time that a thread has worked; false if less is left.
    fn pays(&self, worked_ns: u64) -> bool {
        let take = |left: u64| left.checked_sub(worked_ns);
        self.left_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Seats for surplus work.
pub(crate) struct Seats {
    state: Mutex<State>,
    freed: Arc<Event>,
}

struct State {
    cores: usize,
    seats: usize,
    taken: usize,
}

impl Default for Seats {
    fn default() -> Seats {
        Seats { state: Mutex::new(State { cores: 1, seats: 1, taken: 0 }), freed: Arc::default() }
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

impl Scheduler {
    /// Says how many cores there are; one until then.
    pub fn set_cores(&self, cores: usize) {
        let mut state = self.seats.state.lock();
        (state.cores, state.seats) = (cores, (cores / 4).max(1));
        drop(state);
        self.seats.freed.notify();
    }

    /// Yields the processor if this thread has worked for 1 ms. The caller holds no `Mutex` and no
    /// latch.
    pub fn give_way(&self) {
        if self.slice_worked().is_some() {
            self.give_slice_away();
        }
    }

    /// As `give_way`, for one of the `threads` of an index build: they take at most a fifth of the
    /// cores while users are active and the processor is contended. While `budget` lasts the thread
    /// continues as any client's.
    pub fn give_way_to_users(&self, threads: usize, budget: &BuildBudget) {
        let Some(worked_ns) = self.slice_worked() else { return };
        if budget.pays(worked_ns.min(2 * SLICE_NS)) {
            BEGUN_NS.set(Some(BEGUN_NS.get().unwrap_or_default() + worked_ns));
            return;
        }
        let others_ns = self.give_slice_away();
        let did = self.users_did();
        if USERS_DID.replace(did) == did {
            return;
        }
        let cores = self.seats.state.lock().cores;
        let pause_ns = pause_ns(worked_ns, others_ns, threads, cores);
        if pause_ns > 0 {
            self.rt.metrics.add(Metric::CpuBuildPauses, 1);
            self.wait_once(Duration::from_nanos(pause_ns));
        }
    }

    /// A thread begins to work on an index build: its earlier work does not count.
    pub fn begin_build_work(&self) {
        BEGUN_NS.set(Some(self.rt.env.now_ns()));
        USERS_DID.set(self.users_did());
    }

    /// A number that grows with the work of users.
    fn users_did(&self) -> u64 {
        let of = |metric| self.rt.metrics.get(metric);
        of(Metric::Commits).wrapping_add(of(Metric::RowsRead))
    }

    /// Nanoseconds since this thread began to work or yielded; none in the first millisecond.
    fn slice_worked(&self) -> Option<u64> {
        let now = self.rt.env.now_ns();
        // The clock of another environment may have been ahead.
        let begun = BEGUN_NS.get().filter(|begun| *begun <= now).unwrap_or(now);
        BEGUN_NS.set(Some(begun));
        (now - begun >= SLICE_NS).then_some(now - begun)
    }

    /// Yields the processor once; returns the nanoseconds for which others had it.
    fn give_slice_away(&self) -> u64 {
        let now = self.rt.env.now_ns();
        self.rt.metrics.add(Metric::CpuYields, 1);
        self.wait_once(Duration::ZERO).saturating_sub(now)
    }

    /// Pauses for this time; returns when work begins again.
    fn wait_once(&self, time: Duration) -> u64 {
        let seen = self.never.now();
        self.rt.env.wait(&self.never, seen, Some(time), Cause::Idle);
        let now = self.rt.env.now_ns();
        BEGUN_NS.set(Some(now));
        now
    }

    /// A seat for surplus work; none if all are taken.
    pub fn try_seat(&self) -> Option<Seat<'_>> {
        if !Runtime::is_background() {
            return Some(Seat(None));
        }
        self.seats.take().then(|| Seat(Some(&self.seats)))
    }

    /// As `try_seat`; waits for a seat under the cause `governor`, at most `timeout`.
    pub fn seat_for(&self, timeout: Duration) -> Option<Seat<'_>> {
        let mut seat = self.try_seat();
        if seat.is_none() {
            self.rt.metrics.add(Metric::CpuSeatWaits, 1);
            self.rt.wait_at_most(&self.seats.freed, Cause::Governor, timeout, || {
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
