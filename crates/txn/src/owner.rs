//! What a transaction is to the lock table: who holds locks, and waits at one place at a time.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use evenkeel_base::TxnId;
use smallvec::SmallVec;
use std::sync::Arc;

/// What keys of one space begin with.
pub(crate) type Prefix = [u8; 5];

/// Lock mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Others may read with a shared lock.
    Shared,
    /// Nobody else may lock or write.
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
    /// What its owner calls it, for those who are told of waits.
    fn tag(&self) -> u64;
    /// Row operations so far: of a deadlock the one with the fewest gives up.
    fn operations(&self) -> u32;
    /// Statements and savepoints so far: what was undone to none of them was not undone alone.
    fn statement(&self) -> u32;
    fn held(&self) -> &Mutex<HeldLocks>;
    fn seat(&self) -> &WaitSeat<Self>;
    /// Wakes it, if it sleeps.
    fn notify(&self);
}

/// How far from its end a key is looked for in what a transaction holds.
const NEAR: usize = 8;

/// What one transaction holds.
#[derive(Default)]
pub(crate) struct HeldLocks {
    /// Keys of which it is a holder, and some of which it is none any more.
    keys: SmallVec<[Arc<[u8]>; 2]>,
    /// Not looked through for those again before there are more than so many.
    tidies_above: usize,
    /// Keys of which it is a holder.
    points: usize,
    /// How many of them it has asked for. The others it holds as who writes the row.
    pub asked: usize,
    /// Its ranges, held or asked for.
    pub ranges: SmallVec<[(Prefix, u64); 1]>,
    pub bytes: usize,
    /// Memory at which its keys become ranges next; zero before the first time.
    pub escalates_at: usize,
    /// It has ended: nobody enters a lock for it any more.
    pub closed: bool,
}

impl HeldLocks {
    /// Those of a transaction that has ended.
    pub fn closed() -> Self {
        HeldLocks { closed: true, ..HeldLocks::default() }
    }

    /// True if it has asked for nothing.
    pub fn is_empty(&self) -> bool {
        self.asked == 0 && self.ranges.is_empty()
    }

    /// Keys of which it is a holder; some of them are not that any more.
    pub fn keys(&self) -> &[Arc<[u8]>] {
        &self.keys
    }

    /// How many keys it is a holder of.
    pub fn points(&self) -> usize {
        self.points
    }

    /// True if it holds rows as who writes them.
    pub fn holds_written(&self) -> bool {
        self.points > self.asked
    }

    pub fn add_key(&mut self, key: &Arc<[u8]>) {
        self.keys.push(key.clone());
        self.points += 1;
    }

    /// It is no holder of a key any more. One that came long ago stays in the list until half of
    /// that has gone: nobody looks for it.
    pub fn remove_key(&mut self, key: &Arc<[u8]>) {
        self.points -= 1;
        let near = self.keys.iter().rev().take(NEAR).position(|k| Arc::ptr_eq(k, key));
        if let Some(from_end) = near {
            self.keys.swap_remove(self.keys.len() - 1 - from_end);
        } else if self.keys.len() > self.tidies_above.max(2 * (self.points + NEAR)) {
            self.tidy();
            // What is left beside its own others hold.
            let is_tidy = self.keys.len() <= self.points + self.points / 2 + NEAR;
            self.tidies_above = if is_tidy { 0 } else { 2 * self.keys.len() };
        }
    }

    /// Forgets the keys of points that are there no more: the table has let go of those.
    pub fn tidy(&mut self) {
        self.keys.retain(|key| Arc::strong_count(key) > 1);
        self.keys.shrink_to_fit();
    }

    /// It is no holder any more of so many keys that it has asked for; `tidy` comes later.
    pub fn remove_asked(&mut self, count: usize) {
        self.points -= count;
        self.asked -= count;
    }
}

/// Where a transaction waits.
pub(crate) enum WaitPlace<T> {
    /// In the queue of a key.
    Row(Arc<[u8]>, u64),
    /// For a range.
    Range(Prefix, u64),
    /// For the end of another one.
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
    /// Which of its waits.
    number: u64,
    place: Option<WaitPlace<T>>,
}

/// Where a transaction waits, and what became of that.
///
/// 1. `begin`; 2. it enters a queue, from where it may be granted at once; 3. `sit` says where;
/// 4. it looks for a deadlock and sleeps; 5. `leave`.
pub(crate) struct WaitSeat<T> {
    taken: Mutex<Taken<T>>,
    waits: AtomicBool,
    granted: AtomicBool,
    victim: AtomicBool,
    /// Somebody has come before it of whom it has not told yet.
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

    /// Where it waits, and which of its waits that is; nowhere if it is a victim on its way out.
    pub fn place(&self) -> Option<(u64, WaitPlace<T>)> {
        let taken = self.taken.lock();
        let place = taken.place.clone()?;
        (!self.is_victim()).then_some((taken.number, place))
    }

    /// It need not wait any more. Called under the mutex under which it would withdraw.
    pub fn grant(&self) {
        self.granted.store(true, Ordering::SeqCst);
    }

    pub fn is_granted(&self) -> bool {
        self.granted.load(Ordering::SeqCst)
    }

    /// It is to give up this wait, if it is in it still.
    pub fn make_victim(&self, number: u64) {
        let taken = self.taken.lock();
        if taken.number == number && taken.place.is_some() {
            self.victim.store(true, Ordering::SeqCst);
        }
    }

    pub fn is_victim(&self) -> bool {
        self.victim.load(Ordering::SeqCst)
    }

    /// Somebody comes before it.
    pub fn overtaken(&self) {
        self.untold.store(true, Ordering::SeqCst);
    }

    pub fn take_untold(&self) -> bool {
        self.untold.swap(false, Ordering::SeqCst)
    }
}
