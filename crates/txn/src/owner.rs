//! The view that the lock table has of a transaction: it holds locks and waits at one place at a
//! time.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use evenkeel_base::TxnId;
use smallvec::SmallVec;
use std::sync::Arc;

/// The common first bytes of the keys of one space.
pub(crate) type Prefix = [u8; 5];

/// Lock mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Others may read with a shared lock.
    Shared,
    /// No other transaction may lock or write.
    Exclusive,
}

impl Mode {
    pub(crate) fn conflicts(self, other: Mode) -> bool {
        self == Mode::Exclusive || other == Mode::Exclusive
    }
}

/// A transaction, as the lock table sees it.
pub(crate) trait Owner: Send + Sync + Sized {
    fn id(&self) -> TxnId;
    /// The tag that its owner set, for watchers of waits.
    fn tag(&self) -> u64;
    /// Row operations so far: the victim of a deadlock is the transaction with the fewest.
    fn operations(&self) -> u32;
    /// Statements and savepoints so far: operations since the same number are undone together.
    fn statement(&self) -> u32;
    fn held(&self) -> &Mutex<HeldLocks>;
    fn seat(&self) -> &WaitSeat<Self>;
    /// Wakes it if it sleeps.
    fn notify(&self);
}

/// Search a key in the last entries of a transaction's list first, up to this distance from its
/// end.
const NEAR: usize = 8;

/// The locks of one transaction.
#[derive(Default)]
pub(crate) struct HeldLocks {
    /// Keys that it holds, and some that it no longer holds.
    keys: SmallVec<[Arc<[u8]>; 2]>,
    /// The list is tidied only when it is longer than this.
    tidies_above: usize,
    /// Number of keys that it holds.
    points: usize,
    /// Number of them that it has requested. The others it holds as the writer of the row.
    pub asked: usize,
    /// Its ranges, held or requested.
    pub ranges: SmallVec<[(Prefix, u64); 1]>,
    pub bytes: usize,
    /// Memory at which its keys next become ranges; zero before the first time.
    pub escalates_at: usize,
    /// It has ended: no lock may be entered for it any more.
    pub closed: bool,
}

impl HeldLocks {
    /// The locks of a transaction that has ended.
    pub fn closed() -> Self {
        HeldLocks { closed: true, ..HeldLocks::default() }
    }

    /// True if it has requested nothing.
    pub fn is_empty(&self) -> bool {
        self.asked == 0 && self.ranges.is_empty()
    }

    /// Keys that it holds, and some that it no longer holds.
    pub fn keys(&self) -> &[Arc<[u8]>] {
        &self.keys
    }

    /// The number of keys that it holds.
    pub fn points(&self) -> usize {
        self.points
    }

    /// True if it holds rows as their writer.
    pub fn holds_written(&self) -> bool {
        self.points > self.asked
    }

    pub fn add_key(&mut self, key: &Arc<[u8]>) {
        self.keys.push(key.clone());
        self.points += 1;
    }

    /// It no longer holds a key. A key that is not near the end stays in the list until half of the
    /// list is gone; it is not searched for.
    pub fn remove_key(&mut self, key: &Arc<[u8]>) {
        self.points -= 1;
        let near = self.keys.iter().rev().take(NEAR).position(|k| Arc::ptr_eq(k, key));
        if let Some(from_end) = near {
            self.keys.swap_remove(self.keys.len() - 1 - from_end);
        } else if self.keys.len() > self.tidies_above.max(2 * (self.points + NEAR)) {
            self.tidy();
            // The remaining references are of other owners.
            let is_tidy = self.keys.len() <= self.points + self.points / 2 + NEAR;
            self.tidies_above = if is_tidy { 0 } else { 2 * self.keys.len() };
        }
    }

    /// Removes the keys whose points the table has removed.
    pub fn tidy(&mut self) {
        self.keys.retain(|key| Arc::strong_count(key) > 1);
        self.keys.shrink_to_fit();
    }

    /// As `tidy`, for the last `count` keys of the list.
    pub fn tidy_last(&mut self, count: usize) {
        let from = self.keys.len().saturating_sub(count);
        let mut at = 0;
        self.keys.retain(|key| {
            at += 1;
            at <= from || Arc::strong_count(key) > 1
        });
    }

    /// It no longer holds `count` keys that it had requested; `tidy` follows.
    pub fn remove_asked(&mut self, count: usize) {
        self.points -= count;
        self.asked -= count;
    }
}

/// The place where a transaction waits.
pub(crate) enum WaitPlace<T> {
    /// In the queue of a key.
    Row(Arc<[u8]>, u64),
    /// For a range.
    Range(Prefix, u64),
    /// For the end of another transaction.
    End(Arc<T>),
}

impl<T> Clone for WaitPlace<T> {
    fn clone(&self) -> Self {
        match self {
            WaitPlace::Row(key, ticket) => WaitPlace::Row(key.clone(), *ticket),
            WaitPlace::Range(space, ticket) => WaitPlace::Range(*space, *ticket),
            WaitPlace::End(other) => WaitPlace::End(other.clone()),
        }
    }
}

struct Taken<T> {
    /// The number of this wait.
    number: u64,
    place: Option<WaitPlace<T>>,
}

/// The place where a transaction waits, and the outcome of the wait.
///
/// 1. `begin`; 2. it enters a queue, from where it may be granted at once; 3. `sit` says where;
/// 4. it looks for a deadlock and sleeps; 5. `leave`.
pub(crate) struct WaitSeat<T> {
    taken: Mutex<Taken<T>>,
    waits: AtomicBool,
    granted: AtomicBool,
    victim: AtomicBool,
    /// A transaction has come in front of it that it has not reported yet.
    untold: AtomicBool,
}

impl<T> Default for WaitSeat<T> {
    fn default() -> Self {
        WaitSeat {
            taken: Mutex::new(Taken { number: 0, place: None }),
            waits: AtomicBool::new(false),
            granted: AtomicBool::new(false),
            victim: AtomicBool::new(false),
            untold: AtomicBool::new(false),
        }
    }
}

impl<T> WaitSeat<T> {
    pub fn begin(&self) {
        self.granted.store(false, Ordering::SeqCst);
        self.victim.store(false, Ordering::SeqCst);
        self.untold.store(true, Ordering::SeqCst);
    }

    pub fn sit(&self, place: WaitPlace<T>) {
        let mut taken = self.taken.lock();
        taken.number += 1;
        taken.place = Some(place);
        self.waits.store(true, Ordering::SeqCst);
    }

    pub fn leave(&self) {
        let mut taken = self.taken.lock();
        taken.place = None;
        self.waits.store(false, Ordering::SeqCst);
        self.victim.store(false, Ordering::SeqCst);
    }

    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::SeqCst)
    }

    /// The place where it waits and the number of that wait; none if it is a victim that is
    /// leaving.
    pub fn place(&self) -> Option<(u64, WaitPlace<T>)> {
        let taken = self.taken.lock();
        let place = taken.place.clone()?;
        (!self.is_victim()).then_some((taken.number, place))
    }

    /// Its wait is over. Called under the mutex under which it would withdraw.
    pub fn grant(&self) {
        self.granted.store(true, Ordering::SeqCst);
    }

    pub fn is_granted(&self) -> bool {
        self.granted.load(Ordering::SeqCst)
    }

    /// Makes it give up this wait, if it still waits.
    pub fn make_victim(&self, number: u64) {
        let taken = self.taken.lock();
        if taken.number == number && taken.place.is_some() {
            self.victim.store(true, Ordering::SeqCst);
        }
    }

    pub fn is_victim(&self) -> bool {
        self.victim.load(Ordering::SeqCst)
    }

    /// Another transaction has come in front of it.
    pub fn overtaken(&self) {
        self.untold.store(true, Ordering::SeqCst);
    }

    pub fn take_untold(&self) -> bool {
        self.untold.swap(false, Ordering::SeqCst)
    }
}
