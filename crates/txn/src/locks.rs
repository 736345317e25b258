//! The lock table: S and X locks that locking reads take on rows they do not modify, on absent
//! keys, and on ranges (protocols A7, D5). The X lock of a modified row is its stamp; the lock of a
//! unique key is its undecided entry: neither is here.
//!
//! A key is locked in a space: a tree or an index. A point lock is decided under the mutex of its
//! shard, ranges (`range_locks`) included. A range registers first and then looks at the points; a
//! registered range blocks others even before it is granted, so of two that conflict one sees the
//! other.
//! Writers call `check_write` under the leaf latch, after they have written (ranges) or before
//! (points), and wait after letting the latch go.

use crate::inspect::LockInfo;
use crate::range_locks::{LOCK_BYTES, Prefix, RangeLock, RangeLocks, Span, add_blocker};
use crate::txns::Txns;
use crate::{Deadline, TxnRef};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Code, Error, IndexId, Result, TreeId, TxnId};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARDS: usize = 64;
pub use crate::range_locks::Mode;

/// What keys belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Clustered keys of a tree.
    Tree(TreeId),
    /// Column bytes of a secondary index.
    Index(IndexId),
}

/// What to do about a lock that another transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Wait for it.
    Wait(Deadline),
    /// Fail with `LockNotAvailable`.
    NoWait,
    /// Give `Grant::Skipped`.
    Skip,
}

/// Outcome of asking for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It is held now.
    Granted,
    /// `Policy::Skip` and another transaction holds it.
    Skipped,
}

/// Bounds of a range of keys in one space.
pub type KeyBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

#[derive(Default)]
struct Point {
    holders: SmallVec<[(TxnId, Mode); 1]>,
    queue: Vec<(TxnId, Mode)>,
}

type Shard = BTreeMap<Arc<[u8]>, Point>;

/// What one transaction holds.
#[derive(Default)]
pub(crate) struct HeldLocks {
    points: SmallVec<[Arc<[u8]>; 2]>,
    ranges: usize,
    bytes: usize,
}

impl HeldLocks {
    pub fn count(&self) -> usize {
        self.points.len()
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.ranges == 0
    }
}

pub(crate) struct LockTable {
    shards: [Mutex<Shard>; SHARDS],
    ranges: RangeLocks,
    /// Points and ranges, held or asked for: writers look no further while it is zero.
    count: AtomicUsize,
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

/// Space prefix; keys of one space are contiguous and ordered.
fn prefix(space: Space) -> Prefix {
    let (kind, id) = match space {
        Space::Tree(id) => (1, id.0),
        Space::Index(id) => (2, id.0),
    };
    let id = id.to_be_bytes();
    [kind, id[0], id[1], id[2], id[3]]
}

/// A key behind the prefix of its space; short ones ask for no memory.
type FullKey = SmallVec<[u8; 48]>;

fn full_key(space: Space, key: &[u8]) -> FullKey {
    let mut full = FullKey::with_capacity(5 + key.len());
    full.extend_from_slice(&prefix(space));
    full.extend_from_slice(key);
    full
}

fn full_span(space: Space, bounds: KeyBounds<'_>) -> Span {
    let lower = match bounds.0 {
        Bound::Unbounded => Bound::Included(prefix(space).to_vec()),
        bound => bound.map(|key| full_key(space, key).into_vec()),
    };
    let upper = match bounds.1 {
        Bound::Unbounded => {
            let [kind, rest @ ..] = prefix(space);
            Bound::Excluded(match u32::from_be_bytes(rest).checked_add(1) {
                Some(next) => [&[kind][..], &next.to_be_bytes()].concat(),
                None => vec![kind + 1],
            })
        }
        bound => bound.map(|key| full_key(space, key).into_vec()),
    };
    Span { lower, upper }
}

impl LockTable {
    pub fn new(bytes_max: usize) -> LockTable {
        LockTable {
            shards: std::array::from_fn(|_| Mutex::default()),
            ranges: RangeLocks::default(),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(bytes_max),
        }
    }

    pub fn set_bytes_max(&self, bytes: usize) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    fn shard(&self, full: &[u8]) -> &Mutex<Shard> {
        let mut hasher = FxHasher::default();
        hasher.write(full);
        &self.shards[hasher.finish() as usize % SHARDS]
    }

    /// Takes the point lock, or gives those who are in the way; `queue` keeps `me`'s turn.
    fn try_point(&self, txn: &TxnRef, full: &[u8], mode: Mode, queue: bool) -> Vec<TxnId> {
        let me = txn.id();
        let mut shard = self.shard(full).lock();
        let mut blockers = Vec::new();
        let mut held = None;
        if let Some(point) = shard.get(full) {
            held = point.holders.iter().find(|(id, _)| *id == me).map(|(_, mode)| *mode);
            if held.is_some_and(|held| held >= mode) {
                return blockers;
            }
            let others = point.holders.iter().filter(|(id, _)| *id != me);
            // A holder who wants more goes before those who wait.
            let earlier = point.queue.iter().take_while(|(id, _)| *id != me && held.is_none());
            for (id, theirs) in others.chain(earlier) {
                if mode.conflicts(*theirs) {
                    add_blocker(&mut blockers, *id);
                }
            }
        }
        self.ranges.blockers(me, full, mode, &mut blockers);
        if !blockers.is_empty() && !queue {
            return blockers;
        }
        let key = match shard.get_key_value(full) {
            Some((key, _)) => key.clone(),
            None => Arc::from(full),
        };
        let point = shard.entry(key.clone()).or_insert_with(|| {
            self.count.fetch_add(1, Ordering::SeqCst);
            Point::default()
        });
        if !blockers.is_empty() {
            if !point.queue.iter().any(|(id, _)| *id == me) {
                point.queue.push((me, mode));
            }
            return blockers;
        }
        point.queue.retain(|(id, _)| *id != me);
        match point.holders.iter_mut().find(|(id, _)| *id == me) {
            Some((_, held)) => *held = mode,
            None => point.holders.push((me, mode)),
        }
        if held.is_none() {
            let mut locks = txn.locks.lock();
            let bytes = key.len() + LOCK_BYTES;
            locks.points.push(key);
            locks.bytes += bytes;
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        blockers
    }

    /// How `me` holds a point.
    fn held(&self, me: TxnId, full: &[u8]) -> Option<Mode> {
        let shard = self.shard(full).lock();
        shard.get(full)?.holders.iter().find(|(id, _)| *id == me).map(|(_, mode)| *mode)
    }

    /// Removes `me` from a point, as holder or from its queue.
    fn leave_point(&self, me: TxnId, full: &[u8], holder: bool) {
        let mut shard = self.shard(full).lock();
        let Some(point) = shard.get_mut(full) else { return };
        match holder {
            true => point.holders.retain(|(id, _)| *id != me),
            false => point.queue.retain(|(id, _)| *id != me),
        }
        if point.holders.is_empty() && point.queue.is_empty() {
            shard.remove(full);
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn check_memory(&self) -> Result<()> {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        if bytes < bytes_max {
            return Ok(());
        }
        Err(Error::new(Code::LocksFull).with("bytes", bytes).with("limit", bytes_max))
    }

    /// Registers a range; `None` if `txn` holds one that covers it.
    fn add_range(
        &self,
        txn: &TxnRef,
        space: Space,
        bounds: KeyBounds<'_>,
        mode: Mode,
    ) -> Option<u64> {
        let span = full_span(space, bounds);
        let (ticket, bytes) = self.ranges.add(txn.id(), prefix(space), span, mode)?;
        self.count.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut locks = txn.locks.lock();
        locks.ranges += 1;
        locks.bytes += bytes;
        Some(ticket)
    }

    /// Grants the registered range, or gives those who are in the way.
    fn try_range(&self, me: TxnId, space: Space, ticket: u64, bounds: KeyBounds<'_>) -> Vec<TxnId> {
        let Some((mode, mut blockers)) = self.ranges.in_the_way(prefix(space), ticket) else {
            return Vec::new();
        };
        let span = full_span(space, bounds);
        if !span.is_empty() {
            let key = |bound| Bound::map(bound, Vec::as_slice);
            let keys = (key(span.lower.as_ref()), key(span.upper.as_ref()));
            for shard in &self.shards {
                for point in shard.lock().range::<[u8], _>(keys).map(|(_, point)| point) {
                    for (id, theirs) in &point.holders {
                        if *id != me && mode.conflicts(*theirs) {
                            add_blocker(&mut blockers, *id);
                        }
                    }
                }
            }
        }
        if blockers.is_empty() {
            self.ranges.grant(prefix(space), ticket);
        }
        blockers
    }

    fn remove_ranges(&self, txn: &TxnRef, gone: impl Fn(&RangeLock) -> bool) {
        let removed = self.ranges.remove(gone);
        self.count.fetch_sub(removed.0, Ordering::SeqCst);
        self.bytes.fetch_sub(removed.1, Ordering::Relaxed);
        let mut locks = txn.locks.lock();
        locks.ranges -= removed.0;
        locks.bytes -= removed.1;
    }

    /// Releases everything `txn` holds; the caller wakes its waiters.
    pub fn release_all(&self, txn: &TxnRef) {
        let (points, ranges) = {
            let mut locks = txn.locks.lock();
            (std::mem::take(&mut locks.points), locks.ranges)
        };
        let me = txn.id();
        for key in &points {
            self.leave_point(me, key, true);
        }
        if ranges > 0 {
            self.remove_ranges(txn, |r| r.owner == me);
        }
        if !points.is_empty() {
            let bytes: usize = points.iter().map(|k| k.len() + LOCK_BYTES).sum();
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            txn.locks.lock().bytes -= bytes;
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Locks held and asked for, `limit` at most.
    pub fn inspect(&self, limit: usize) -> Vec<LockInfo> {
        let mut found = Vec::new();
        for shard in &self.shards {
            for (full, point) in shard.lock().iter() {
                if found.len() >= limit {
                    break;
                }
                let held = point.holders.iter().map(|h| (h, true));
                for ((txn, mode), granted) in held.chain(point.queue.iter().map(|q| (q, false))) {
                    found.extend(info(full, *txn, *mode, granted, false));
                }
            }
        }
        let room = limit.saturating_sub(found.len());
        self.ranges.each(room, &mut |range| {
            let lower = match &range.span.lower {
                Bound::Included(key) | Bound::Excluded(key) => key.as_slice(),
                Bound::Unbounded => &[],
            };
            found.extend(info(lower, range.owner, range.mode, range.granted, true));
        });
        found.truncate(limit);
        found
    }
}

/// `None` for a key without a space, which there is not.
fn info(full: &[u8], txn: TxnId, mode: Mode, granted: bool, range: bool) -> Option<LockInfo> {
    let (prefix, key) = full.split_at_checked(5)?;
    let id = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    let space = if prefix[0] == 1 { Space::Tree(TreeId(id)) } else { Space::Index(IndexId(id)) };
    Some(LockInfo { txn, space, mode, granted, range, key: key.to_vec() })
}

impl Txns {
    /// Locks a key, present or absent. May wait: the caller holds no latch.
    ///
    /// # Errors
    /// `DeadlockVictim`, `LockWaitTimeout`, `LockNotAvailable`, `StatementCancelled`, `LocksFull`,
    /// `TxnEnded`.
    pub fn lock_row(
        &self,
        me: &TxnRef,
        space: Space,
        key: &[u8],
        mode: Mode,
        policy: Policy,
    ) -> Result<Grant> {
        me.check_open()?;
        self.locks.check_memory()?;
        self.ensure_id(me);
        let full = full_key(space, key);
        let deadline = match policy {
            Policy::Wait(deadline) => deadline,
            _ => {
                let blockers = self.locks.try_point(me, &full, mode, false);
                return self.grant_or(policy, &blockers);
            }
        };
        let asked = Asked::new(me, || self.locks.leave_point(me.id(), &full, false));
        self.block_on(me, deadline, &mut || self.locks.try_point(me, &full, mode, true))?;
        asked.granted();
        // Those behind me in the queue look again: I am out of it.
        me.wake_waiters(false);
        Ok(Grant::Granted)
    }

    /// Locks a key if nobody is in the way; else gives who is. Never waits: may be called under a
    /// latch (A7: stamp check and lock-table insert happen under the leaf latch).
    ///
    /// # Errors
    /// `LocksFull`, `TxnEnded`.
    pub fn try_lock_row(
        &self,
        me: &TxnRef,
        space: Space,
        key: &[u8],
        mode: Mode,
    ) -> Result<std::result::Result<(), TxnId>> {
        me.check_open()?;
        self.locks.check_memory()?;
        self.ensure_id(me);
        if evenkeel_base::plant::is(evenkeel_base::plant::Fault::LockNotTaken) {
            return Ok(Ok(()));
        }
        let blockers = self.locks.try_point(me, &full_key(space, key), mode, false);
        Ok(blockers.first().map_or(Ok(()), |id| Err(*id)))
    }

    /// Locks a range of keys against writers and conflicting locks. The caller scans *after* it is
    /// granted. May wait: the caller holds no latch.
    ///
    /// # Errors
    /// As `lock_row`.
    pub fn lock_range(
        &self,
        me: &TxnRef,
        space: Space,
        bounds: KeyBounds<'_>,
        mode: Mode,
        policy: Policy,
    ) -> Result<Grant> {
        me.check_open()?;
        self.locks.check_memory()?;
        self.ensure_id(me);
        let id = me.id();
        let Some(ticket) = self.locks.add_range(me, space, bounds, mode) else {
            return Ok(Grant::Granted);
        };
        let gone = |r: &RangeLock| r.ticket == ticket;
        let asked = Asked::new(me, || self.locks.remove_ranges(me, gone));
        let granted = match policy {
            Policy::Wait(deadline) => self
                .block_on(me, deadline, &mut || self.locks.try_range(id, space, ticket, bounds))
                .map(|()| Grant::Granted),
            _ => self.grant_or(policy, &self.locks.try_range(id, space, ticket, bounds)),
        };
        if let Ok(Grant::Granted) = granted {
            asked.granted();
        }
        granted
    }

    fn grant_or(&self, policy: Policy, blockers: &[TxnId]) -> Result<Grant> {
        match blockers.first() {
            None => Ok(Grant::Granted),
            Some(_) if policy == Policy::Skip => Ok(Grant::Skipped),
            Some(id) => Err(Error::new(Code::LockNotAvailable).with("held_by", id)),
        }
    }

    /// Who keeps `me` from writing this key (insert, update or delete): holders of a lock on it or
    /// on a range around it. Never waits: call it under the leaf latch; if it is not empty, let the
    /// latch go, `wait_write`, and begin again.
    pub fn check_write(&self, me: &TxnRef, space: Space, key: &[u8]) -> Vec<TxnId> {
        let mut blockers = Vec::new();
        if self.locks.count.load(Ordering::SeqCst) == 0 {
            return blockers;
        }
        let full = full_key(space, key);
        let id = me.id();
        if let Some(point) = self.locks.shard(&full).lock().get(full.as_slice()) {
            for (holder, _) in point.holders.iter().filter(|(holder, _)| *holder != id) {
                add_blocker(&mut blockers, *holder);
            }
        }
        self.locks.ranges.blockers(id, &full, Mode::Exclusive, &mut blockers);
        blockers
    }

    /// True if somebody holds or asks for a lock of the table: else `check_write` gives nobody.
    pub fn has_locks(&self) -> bool {
        self.locks.count.load(Ordering::SeqCst) > 0
    }

    /// Waits until `check_write` gives nobody.
    ///
    /// # Errors
    /// `DeadlockVictim`, `LockWaitTimeout`, `StatementCancelled`.
    pub fn wait_write(
        &self,
        me: &TxnRef,
        space: Space,
        key: &[u8],
        deadline: Deadline,
    ) -> Result<()> {
        self.block_on(me, deadline, &mut || self.check_write(me, space, key))
    }

    /// Lets a row lock taken in this mode go before the end: READ COMMITTED does so for rows that
    /// did not match. One that was raised since stays: whoever raised it wants it.
    pub fn unlock_row(&self, me: &TxnRef, space: Space, key: &[u8], mode: Mode) {
        let full = full_key(space, key);
        if self.locks.held(me.id(), &full).is_none_or(|held| held > mode) {
            return;
        }
        {
            let mut locks = me.locks.lock();
            let Some(at) = locks.points.iter().rposition(|k| **k == *full) else { return };
            locks.points.swap_remove(at);
            let bytes = full.len() + LOCK_BYTES;
            locks.bytes -= bytes;
            self.locks.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.locks.leave_point(me.id(), &full, true);
        me.wake_waiters(false);
    }

    /// Memory of the lock table now.
    pub fn lock_bytes(&self) -> usize {
        self.locks.bytes()
    }
}

/// A lock that was asked for. Unless it is granted it is withdrawn, also where the wait unwinds:
/// what an ended transaction asks for would be in everybody's way for ever.
struct Asked<'a, F: Fn()> {
    me: &'a TxnRef,
    withdraw: F,
    is_granted: bool,
}

impl<'a, F: Fn()> Asked<'a, F> {
    fn new(me: &'a TxnRef, withdraw: F) -> Self {
        Asked { me, withdraw, is_granted: false }
    }

    fn granted(mut self) {
        self.is_granted = true;
    }
}

impl<F: Fn()> Drop for Asked<'_, F> {
    fn drop(&mut self) {
        if !self.is_granted {
            (self.withdraw)();
            self.me.wake_waiters(false);
        }
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod locks_tests;
