//! A transaction as its session sees it, and its parts that other threads use: its waiters, its
//! locks, its progress. It gets an id with its first write or lock.

use crate::owner::{HeldLocks, Owner, WaitSeat};
use crate::undo::TxnUndo;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Code, Error, Lsn, Result, Stamp, TxnId, UndoNo};
use evenkeel_io::{Cancellation, Event};
use evenkeel_log::Reserved;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A shared transaction.
pub type TxnRef = Arc<TxnCore>;

/// The phase of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Running.
    Open = 0,
    /// Prepared: only commit and rollback are allowed.
    Prepared = 1,
    /// Committed.
    Committed = 2,
    /// Aborted; its rows are rolled back in the background.
    Aborted = 3,
}

/// One transaction.
#[derive(Default)]
pub struct TxnCore {
    id: AtomicU64,
    phase: AtomicU8,
    /// Operations so far; the next one has this number plus one.
    undo_count: AtomicU32,
    /// Marks so far to which it may roll back.
    statement: AtomicU32,
    first_lsn: AtomicU64,
    canceller: Arc<Canceller>,
    /// The tag that its owner set.
    tag: AtomicU64,
    /// The place where it waits.
    pub(crate) seat: WaitSeat<TxnCore>,
    /// Log space of the COMMIT or ABORT record, taken at the first write.
    pub(crate) outcome_space: Mutex<Option<Reserved>>,
    pub(crate) undo: OnceLock<Arc<TxnUndo>>,
    waiters: Mutex<Waiters>,
    pub(crate) locks: Mutex<HeldLocks>,
    pub(crate) xid: OnceLock<Vec<u8>>,
    /// It is prepared and a thread decides it: other threads that come with its id are too late.
    pub(crate) decided: AtomicBool,
}

/// How other threads reach its owner; it outlives the transaction if a successor follows.
#[derive(Default)]
struct Canceller {
    cancellation: Cancellation,
    /// How often it was cancelled.
    times: AtomicU64,
    wake: OnceLock<Arc<Event>>,
}

#[derive(Default)]
struct Waiters {
    ended: bool,
    txns: BTreeMap<TxnId, TxnRef>,
}

impl TxnCore {
    /// The transaction with which its owner continues after this one: cancelling this one cancels
    /// that one.
    pub fn successor(&self) -> TxnRef {
        let canceller = self.canceller.clone();
        Arc::new(TxnCore { canceller, tag: AtomicU64::new(self.tag()), ..TxnCore::default() })
    }

    /// Its id; zero before the first write or lock.
    pub fn id(&self) -> TxnId {
        TxnId(self.id.load(Ordering::Acquire))
    }

    /// The tag that its owner set; 0 if none.
    pub fn tag(&self) -> u64 {
        self.tag.load(Ordering::Relaxed)
    }

    /// Sets the tag.
    pub fn set_tag(&self, tag: u64) {
        self.tag.store(tag, Ordering::Relaxed);
    }

    /// Its phase.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Open,
            1 => Phase::Prepared,
            2 => Phase::Committed,
            _ => Phase::Aborted,
        }
    }

    /// A mark for a statement or savepoint: rolling back to it undoes the operations from it on.
    pub fn mark(&self) -> UndoNo {
        UndoNo(self.undo_count.load(Ordering::Acquire) + 1)
    }

    /// Operations so far: the measure by which a deadlock's victim is chosen.
    pub fn undo_count(&self) -> u32 {
        self.undo_count.load(Ordering::Acquire)
    }

    /// Operations from now on may be undone alone: they belong to a statement, or follow a
    /// savepoint.
    pub fn begin_statement(&self) {
        self.statement.fetch_add(1, Ordering::Relaxed);
    }

    /// Rows that it holds in the lock table.
    pub fn locked_rows(&self) -> usize {
        self.locks.lock().asked
    }

    /// The stamp of the next operation. `Txns::reserve_undo` must come before.
    pub fn next_stamp(&self) -> Stamp {
        Stamp { txn: self.id(), undo_no: self.mark() }
    }

    /// Wakes it from any wait and makes waits fail with `Cancelled`, until `clear_cancel`.
    pub fn cancel(&self) {
        self.canceller.times.fetch_add(1, Ordering::SeqCst);
        self.cancellation().ask();
        self.wake().notify();
    }

    /// Clears a cancellation: the next statement may wait again.
    pub fn clear_cancel(&self) {
        self.cancellation().clear();
    }

    /// # Errors
    /// `StatementCancelled` after `cancel`.
    pub fn check_cancel(&self) -> Result<()> {
        self.cancellation().check().map_err(|error| error.with("txn", self.id()))
    }

    /// A check as `check_cancel` that does not borrow the transaction, for waits in other objects.
    /// It also sees the cancellation of later statements.
    pub fn cancel_check(&self) -> impl Fn() -> Result<()> + Send + Sync + use<> {
        let canceller = self.canceller.clone();
        move || canceller.cancellation.check()
    }

    /// For waits of its statements that are not for transactions: `cancel` ends them.
    pub fn cancellation(&self) -> &Cancellation {
        &self.canceller.cancellation
    }

    /// How often it was cancelled so far, cleared cancellations included.
    pub(crate) fn cancelled_times(&self) -> u64 {
        self.canceller.times.load(Ordering::SeqCst)
    }

    /// # Errors
    /// `TxnEnded` unless it is running.
    pub fn check_open(&self) -> Result<()> {
        match self.phase() {
            Phase::Open => Ok(()),
            phase => Err(Error::new(Code::TxnEnded)
                .with("txn", self.id())
                .with("state", format!("{phase:?}").to_lowercase())),
        }
    }

    /// A lower bound of the LSNs of its log records; `None` before its first write.
    pub fn first_lsn(&self) -> Option<Lsn> {
        Some(Lsn(self.first_lsn.load(Ordering::Acquire))).filter(|lsn| *lsn != Lsn::ZERO)
    }

    pub(crate) fn wake(&self) -> &Arc<Event> {
        self.canceller.wake.get_or_init(Arc::default)
    }

    pub(crate) fn set_id(&self, id: TxnId) {
        self.id.store(id.0, Ordering::Release);
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    pub(crate) fn set_first_lsn(&self, lsn: Lsn) {
        self.first_lsn.store(lsn.0.max(1), Ordering::Release);
    }

    pub(crate) fn set_undo_count(&self, count: u32) {
        self.undo_count.store(count, Ordering::Release);
    }

    /// Adds a waiter; false if it has ended, because then nothing would wake the waiter.
    pub(crate) fn add_waiter(&self, waiter: &TxnRef) -> bool {
        let mut waiters = self.waiters.lock();
        if !waiters.ended {
            waiters.txns.insert(waiter.id(), waiter.clone());
        }
        !waiters.ended
    }

    /// Removes a waiter that gives up.
    pub(crate) fn remove_waiter(&self, waiter: &TxnCore) {
        self.waiters.lock().txns.remove(&waiter.id());
    }

    /// It has ended: wakes all its waiters.
    pub(crate) fn wake_waiters(&self) {
        let woken = {
            let mut waiters = self.waiters.lock();
            waiters.ended = true;
            let woken = std::mem::take(&mut waiters.txns);
            woken.values().for_each(|waiter| waiter.seat.grant());
            woken
        };
        woken.values().for_each(|waiter| waiter.notify());
    }
}

impl Owner for TxnCore {
    fn id(&self) -> TxnId {
        TxnCore::id(self)
    }

    fn tag(&self) -> u64 {
        TxnCore::tag(self)
    }

    fn operations(&self) -> u32 {
        self.undo_count()
    }

    fn statement(&self) -> u32 {
        self.statement.load(Ordering::Relaxed)
    }

    fn held(&self) -> &Mutex<HeldLocks> {
        &self.locks
    }

    fn seat(&self) -> &WaitSeat<TxnCore> {
        &self.seat
    }

    fn notify(&self) {
        self.wake().notify();
    }
}
