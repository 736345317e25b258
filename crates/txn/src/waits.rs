//! Waits for other transactions: in the queue of a key, for a range, or for the end of a
//! transaction.
//!
//! A waiter enters a queue, records its place, searches for a deadlock (`deadlock`), and sleeps
//! until it is granted what it waits for. The granting thread has changed the queue before it wakes
//! the waiter, so the waiter has nothing to check again.
//!
//! No thread may wait here while it holds a latch or a mutex.

use crate::owner::WaitPlace;
use crate::txns::Txns;
use crate::{TxnCore, TxnRef};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Cause, Code, CommitTable, Error, Result, TxnId};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The moment a lock wait gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<u64>);

impl Deadline {
    /// Waits as long as it takes.
    pub const NEVER: Deadline = Deadline(None);
}

/// The transactions that a report of a wait names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The wait is not reported.
    Nothing,
    /// Those that alone are in its way: the holders, and the nearest earlier request. A report
    /// costs the same however many wait.
    Nearest,
    /// All that precede it.
    All,
}

/// Hears of waits of transactions for others, by their tags (`TxnCore::set_tag`; 0 without), before
/// they begin and when another transaction comes in front. Called by the waiter, with no latch or
/// mutex of the engine held.
pub trait WaitWatch: Send + Sync {
    /// How the waits of `waiter` are to be reported.
    fn asks(&self, waiter: u64) -> Report {
        let _ = waiter;
        Report::All
    }

    /// `waiter` is about to wait for `others`, some of which may be named twice.
    fn begins(&self, waiter: u64, others: &[u64]);
}

/// Lets other threads run, in tests only: the races here are a few instructions wide.
#[inline(always)]
fn pause() {
    #[cfg(test)]
    std::thread::yield_now();
}

/// A wait under way. Unless it is granted it is withdrawn, also when it unwinds: a request of an
/// ended transaction would block others for ever.
struct Waits<'a, F: FnOnce()> {
    txns: &'a Txns,
    me: &'a TxnRef,
    withdraw: Option<F>,
}

impl<'a, F: FnOnce()> Waits<'a, F> {
    fn begin(txns: &'a Txns, me: &'a TxnRef, place: WaitPlace<TxnCore>, withdraw: F) -> Self {
        me.seat.sit(place);
        txns.waiting.fetch_add(1, Ordering::SeqCst);
        Waits { txns, me, withdraw: Some(withdraw) }
    }

    fn granted(mut self) {
        self.withdraw = None;
    }
}

impl<F: FnOnce()> Drop for Waits<'_, F> {
    fn drop(&mut self) {
        if let Some(withdraw) = self.withdraw.take() {
            withdraw();
        }
        self.me.seat.leave();
        self.txns.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Txns {
    /// The moment `timeout` from now.
    pub fn deadline(&self, timeout: Duration) -> Deadline {
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Deadline(Some(self.rt.env.now_ns().saturating_add(ns)))
    }

    /// Waits until `other` is decided. Returns at once if it is.
    ///
    /// # Errors
    /// `DeadlockVictim`, `LockWaitTimeout`, `StatementCancelled`.
    pub fn wait_for(&self, me: &TxnRef, other: TxnId, deadline: Deadline) -> Result<()> {
        debug_assert!(me.id() != other, "a transaction cannot wait for itself");
        loop {
            me.check_cancel()?;
            if !self.state(other).is_undecided() {
                return Ok(());
            }
            self.ensure_id(me);
            me.seat.begin();
            // If there is none, it has ended just now.
            if let Some(other) = self.active(other).filter(|other| other.add_waiter(me)) {
                let withdraw = || other.remove_waiter(me);
                self.wait_at(me, deadline, WaitPlace::End(other.clone()), withdraw)?;
            }
        }
    }

    /// Waits for a request at a place until it is granted; otherwise withdraws it. `Seat::begin`
    /// came before the request.
    pub(crate) fn wait_at(
        &self,
        me: &TxnRef,
        deadline: Deadline,
        place: WaitPlace<TxnCore>,
        withdraw: impl FnOnce(),
    ) -> Result<()> {
        let wait = Waits::begin(self, me, place.clone(), withdraw);
        let mut searched = false;
        loop {
            // Before the check of the cancellation, or the waiter would sleep over one that comes
            // between the two.
            let seen = me.wake().now();
            pause();
            me.check_cancel()?;
            if me.seat.is_granted() {
                wait.granted();
                return Ok(());
            }
            if me.seat.is_victim() {
                return Err(self.gives_up(me, &place, Code::DeadlockVictim));
            }
            let left = match deadline.0 {
                None => None,
                Some(at) => match at.saturating_sub(self.rt.env.now_ns()) {
                    0 => return Err(self.gives_up(me, &place, Code::LockWaitTimeout)),
                    ns => Some(Duration::from_nanos(ns)),
                },
            };
            if !searched {
                if self.deadlocks.search(&self.locks, me) {
                    return Err(self.gives_up(me, &place, Code::DeadlockVictim));
                }
                self.rt.metrics.add(Metric::LockWaits, 1);
                searched = true;
            }
            if let Some(watch) = self.watch.get()
                && me.seat.take_untold()
            {
                let len = match watch.asks(me.tag()) {
                    Report::Nothing => None,
                    Report::Nearest => Some(1),
                    Report::All => Some(usize::MAX),
                };
                if let Some(len) = len {
                    watch.begins(me.tag(), &self.locks.tags_before(me, &place, len));
                }
            }
            self.rt.wait(me.wake(), seen, left, Cause::RowLock);
        }
    }

    fn gives_up(&self, me: &TxnRef, place: &WaitPlace<TxnCore>, code: Code) -> Error {
        let metric = match code {
            Code::DeadlockVictim => Metric::Deadlocks,
            _ => Metric::LockTimeouts,
        };
        self.rt.metrics.add(metric, 1);
        let error = Error::new(code).with("txn", me.id());
        match self.locks.waits_for(me, place).first() {
            Some(other) => error.with("waits_for", other.id()),
            None => error,
        }
    }

    /// The transactions that a transaction waits for.
    pub(crate) fn waits_of(&self, t: &TxnRef) -> Vec<TxnId> {
        let waits_for = |(_, place)| self.locks.waits_for(t, &place);
        let mut ids: Vec<TxnId> =
            t.seat.place().map(waits_for).iter().flatten().map(|other| other.id()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Calls `watch` before every wait from now on; only the first call has an effect.
    pub fn watch_waits(&self, watch: Box<dyn WaitWatch>) {
        let _ = self.watch.set(watch);
    }

    /// The number of transactions that wait for another one.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
#[path = "waits_tests.rs"]
mod waits_tests;
