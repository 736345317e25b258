//! The lock table: the queues of keys (`row_queue`), and ranges (`range_locks`). A request that
//! leaves a queue grants the requests that become grantable, and wakes only their transactions.
//!
//! Order of mutexes: the shard of a key (all shards where keys become ranges, `escalation`); then
//! the list of a transaction's locks, or the ranges of a space. No thread is woken and no range is
//! examined again under one of them. The result that a request found under the mutex of its key's
//! shard stays valid, because every later request sees it:
//! 1. A key draws its ticket, examines the ranges and enters its queue under the mutex of its
//!    shard. A range draws its ticket and enters its list under the mutex of its space, and then
//!    examines all shards. Of two conflicting requests the later one sees the earlier one.
//! 2. A request that is not granted has registered with one that blocks it (in the queue, a range's
//!    list or a key's list) in the section in which it saw that one. The blocking one finds it
//!    there when it leaves.
//!
//! The models of `crates/sim/tests/models` compile this file against their own locks and atomics.

use crate::intervals::KeySpan;
use crate::owner::{HeldLocks, Mode, Owner, Prefix, WaitPlace};
use crate::range_locks::{Asker, RangeLocks, range_bytes, space_of};
use crate::row_queue::{Holder, Keep, Point, Request};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use evenkeel_base::TxnId;
use smallvec::SmallVec;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::ops::Bound;
use std::sync::Arc;
// Pure counters, so models need not replace these atomics.
use std::sync::atomic::AtomicUsize;

pub(crate) type Points<T> = BTreeMap<Arc<[u8]>, Point<T>>;

/// An entry of a map of points, for its size.
type Entry = (Arc<[u8]>, Point<()>);

/// Memory of a lock beyond its key: its entry in nodes that are a little more than half full, its
/// entry in its owner's list, which may be half full too, and the overhead of the key's allocation.
pub(crate) const LOCK_BYTES: usize =
    size_of::<Entry>() * 8 / 5 + 2 * size_of::<Arc<[u8]>>() + 4 * size_of::<usize>();

pub(crate) struct Shard<T> {
    pub points: Mutex<Points<T>>,
    /// While it is zero a writer looks no further.
    pub count: AtomicU64,
}

pub(crate) struct LockTable<T> {
    shards: Box<[Shard<T>]>,
    ranges: RangeLocks<T>,
    pub(crate) tickets: AtomicU64,
    pub(crate) bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    /// The number of transactions that were woken.
    #[cfg(test)]
    pub woken: AtomicUsize,
}

/// A request for a key.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub mode: Mode,
    pub keep: Keep,
    /// The key has no row, so ranges that lock rows only do not block the request. The caller looks
    /// at the row again, whether or not the lock was granted.
    pub absent: bool,
}

/// The result of entering a queue.
pub(crate) enum Entered {
    /// No transaction is in the way.
    Granted,
    /// It waits in the queue with this ticket; true if it held the key already.
    Queued(Arc<[u8]>, u64, bool),
    /// The transaction whose stamp was in the way has ended.
    Ended,
}

/// Work to be done once no mutex is held.
pub(crate) struct After<T> {
    wake: SmallVec<[Arc<T>; 2]>,
    ranges: SmallVec<[(Prefix, u64); 1]>,
}

impl<T> Default for After<T> {
    fn default() -> Self {
        After { wake: SmallVec::new(), ranges: SmallVec::new() }
    }
}

impl<T: Owner> LockTable<T> {
    pub fn new(bytes_max: usize, shards: usize) -> Self {
        let shard = |_| Shard { points: Mutex::default(), count: AtomicU64::new(0) };
        LockTable {
            shards: (0..shards).map(shard).collect(),
            ranges: RangeLocks::new(shards),
            tickets: AtomicU64::new(1),
            bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(bytes_max),
            #[cfg(test)]
            woken: AtomicUsize::new(0),
        }
    }

    pub fn set_bytes_max(&self, bytes: usize) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn shard(&self, full: &[u8]) -> &Shard<T> {
        &self.shards[self.number_of(full)]
    }

    pub(crate) fn shards(&self) -> &[Shard<T>] {
        &self.shards
    }

    /// The number of the shard of a key.
    pub(crate) fn number_of(&self, full: &[u8]) -> usize {
        let (space, key) = full.split_at(space_of(full).len());
        self.number(space, key)
    }

    fn number(&self, space: &[u8], key: &[u8]) -> usize {
        let mut hasher = rustc_hash::FxHasher::default();
        hasher.write(space);
        hasher.write(key);
        hasher.finish() as usize % self.shards.len()
    }

    fn shard_of(&self, space: &[u8], key: &[u8]) -> &Shard<T> {
        &self.shards[self.number(space, key)]
    }

    /// False if no transaction can block a writer of the key: then `against_write` returns none.
    pub fn may_be_against(&self, space: &Prefix, key: &[u8]) -> bool {
        self.shard_of(space, key).count.load(Ordering::SeqCst) > 0 || self.ranges.may_have(space)
    }

    /// Takes the lock of a key if no transaction is in the way; otherwise returns one that is.
    /// `row`: the key has a row. If the owner's own range locks the key in the same mode, nothing
    /// is taken.
    pub fn try_point(
        &self,
        owner: &Arc<T>,
        full: &[u8],
        mode: Mode,
        row: bool,
    ) -> Result<(), TxnId> {
        let shard = self.shard(full);
        let mut points = shard.points.lock();
        if self.ranges.may_have(space_of(full))
            && !points.contains_key(full)
            && self.look(None, owner, full, (mode, !row))? >= Some(mode)
        {
            return Ok(());
        }
        // Most keys have no entry yet. The key is made before the search, so that one search of
        // the map finds the entry or the place of the new one.
        let mut entry = points.entry(Arc::from(full));
        let point = match &mut entry {
            Occupied(entry) => Some(entry.get_mut()),
            Vacant(_) => None,
        };
        if let Some(holder) = point.and_then(|p| p.holder_mut(owner))
            && holder.asked.is_some_and(|held| held >= mode)
        {
            holder.row |= row;
            return Ok(());
        }
        let point = match &entry {
            Occupied(entry) => Some(entry.get()),
            Vacant(_) => None,
        };
        if self.look(point, owner, full, (mode, !row))? >= Some(mode) {
            return Ok(());
        }
        let key = entry.key().clone();
        let point = entry.or_insert_with(|| {
            shard.count.fetch_add(1, Ordering::SeqCst);
            Point::default()
        });
        self.hold(&key, point, owner, Keep::Asked, mode);
        if let Some(holder) = point.holder_mut(owner) {
            holder.row = row;
        }
        Ok(())
    }

    /// How `owner` holds a key, by a key lock or a range.
    fn held_by(
        &self,
        point: Option<&Point<T>>,
        owner: &T,
        full: &[u8],
        absent: bool,
    ) -> Option<Mode> {
        let by_range = self.ranges.held(owner, full, !absent);
        point.and_then(|point| point.held_by(owner)).max(by_range)
    }

    /// How the ranges of `owner`, which does not queue, lock a key; or a transaction that blocks
    /// `owner` from it.
    fn look(
        &self,
        point: Option<&Point<T>>,
        owner: &Arc<T>,
        full: &[u8],
        (mode, absent): (Mode, bool),
    ) -> Result<Option<Mode>, TxnId> {
        if let Some(point) = point {
            if let Some(other) = point.holders_against(owner, mode).next() {
                return Err(other.id());
            }
            let waiter = point.requests_against(owner, mode, point.queue.len()).next();
            if let Some(waiter) = waiter
                && point.holder(owner).is_none()
                && !self.ranges.covers(owner, full)
            {
                return Err(waiter.owner.id());
            }
        }
        let held = point.and_then(|point| point.held_by(owner));
        self.ranges.look(Asker { owner: &**owner, mode, ticket: u64::MAX, held, absent }, full)
    }

    /// All transactions that block `owner` from writing a key: holders, ranges, or otherwise those
    /// that wait for it. `absent`: the key has no row now.
    pub fn against_write(&self, owner: &Arc<T>, full: &[u8], absent: bool) -> Vec<TxnId> {
        let mut found: Vec<TxnId> = Vec::new();
        let mode = Mode::Exclusive;
        let mut add = |other: &Arc<T>| {
            if !found.contains(&other.id()) {
                found.push(other.id());
            }
        };
        let shard = self.shard(full);
        let (mut waiter, mut held) = (None, None);
        if shard.count.load(Ordering::SeqCst) > 0
            && let Some(point) = shard.points.lock().get(full)
        {
            point.holders_against(owner, mode).for_each(&mut add);
            held = point.held_by(owner);
            if held.is_none() && !self.ranges.covers(owner, full) {
                let first = point.requests_against(owner, mode, point.queue.len()).last();
                waiter = first.map(|request| request.owner.clone());
            }
        }
        let held = held.max(self.ranges.held(owner, full, !absent));
        let by = Asker { owner: &**owner, mode, ticket: u64::MAX, held, absent };
        self.ranges.against(&by, full, &mut add);
        if let (true, Some(waiter)) = (found.is_empty(), waiter) {
            found.push(waiter.id());
        }
        found
    }

    fn entry<'a>(
        &self,
        shard: &Shard<T>,
        points: &'a mut Points<T>,
        full: &[u8],
    ) -> (Arc<[u8]>, &'a mut Point<T>) {
        let key = match points.get_key_value(full) {
            Some((key, _)) => key.clone(),
            None => Arc::from(full),
        };
        let point = points.entry(key.clone()).or_insert_with(|| {
            shard.count.fetch_add(1, Ordering::SeqCst);
            Point::default()
        });
        (key, point)
    }

    /// Enters the queue of a key. If `writer` is given, its stamp is in the way and it becomes a
    /// holder. The request may be granted before this returns, so `Seat::begin` comes before.
    pub fn enter(
        &self,
        owner: &Arc<T>,
        full: &[u8],
        Ask { mode, keep, absent }: Ask,
        writer: Option<&Arc<T>>,
    ) -> Entered {
        let mut told = After::default();
        let shard = self.shard(full);
        let mut points = shard.points.lock();
        let (key, point) = self.entry(shard, &mut points, full);
        if let Some(writer) = writer
            && !self.hold_written(&key, point, writer, &mut told)
        {
            self.drop_empty(shard, &mut points, full);
            return Entered::Ended;
        }
        let ticket = self.tickets.fetch_add(1, Ordering::SeqCst);
        let (by_point, by_range) = (point.held_by(owner), self.ranges.held(owner, full, !absent));
        let in_front = by_point.is_some() || self.ranges.covers(owner, full);
        let at = point.place_of(in_front);
        let by = Asker { owner: &**owner, mode, ticket, held: by_point.max(by_range), absent };
        let waits = point.holders_against(owner, mode).next().is_some()
            || point.requests_against(owner, mode, at).next().is_some()
            || self.ranges.is_against(&by, &key);
        let keep = match keep {
            Keep::Asked if by_range >= Some(mode) => Keep::Nothing,
            keep => keep,
        };
        if waits {
            let request = Request { owner: owner.clone(), mode, keep, ticket, absent, in_front };
            // Requests for more than a shared lock have queued behind the stamp, because it is a
            // holder.
            let behind = point.queue.iter().skip(at).filter(|r| r.mode == Mode::Shared);
            behind.for_each(|r| told.tell(&r.owner));
            point.queue.insert(at, request);
        } else if keep != Keep::Nothing {
            self.hold(&key, point, owner, keep, mode);
        } else {
            self.drop_empty(shard, &mut points, full);
        }
        drop(points);
        self.finish(told);
        if waits { Entered::Queued(key, ticket, by_point.is_some()) } else { Entered::Granted }
    }

    /// Makes a transaction whose stamp is on the row a holder; false if it has ended.
    pub(crate) fn hold_written(
        &self,
        key: &Arc<[u8]>,
        point: &mut Point<T>,
        writer: &Arc<T>,
        told: &mut After<T>,
    ) -> bool {
        if let Some(holder) = point.holder_mut(writer) {
            holder.writes = true;
            return true;
        }
        {
            let mut held = writer.held().lock();
            if held.closed {
                return false;
            }
            self.add_point(&mut held, key);
        }
        point.holders.push(Holder::new(writer, true));
        point.queue.iter().for_each(|request| told.tell(&request.owner));
        true
    }

    fn add_point(&self, held: &mut HeldLocks, key: &Arc<[u8]>) {
        let bytes = key.len() + LOCK_BYTES;
        held.add_key(key);
        held.bytes += bytes;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Makes `owner` a holder, or raises its hold.
    fn hold(&self, key: &Arc<[u8]>, point: &mut Point<T>, owner: &Arc<T>, keep: Keep, mode: Mode) {
        let mut held = owner.held().lock();
        if point.holder(owner).is_none() {
            self.add_point(&mut held, key);
            point.holders.push(Holder::new(owner, false));
        }
        let Some(holder) = point.holder_mut(owner) else { return };
        match keep {
            Keep::Asked => {
                if holder.asked.is_none() {
                    held.asked += 1;
                    holder.since = owner.statement();
                }
                holder.asked = holder.asked.max(Some(mode));
            }
            Keep::Writes => holder.writes = true,
            Keep::Nothing => {}
        }
    }

    /// A hold or request of a key has gone: grants what is grantable now, in the order of the
    /// queue.
    fn advance(&self, key: &Arc<[u8]>, point: &mut Point<T>, after: &mut After<T>) {
        if !point.ranges.is_empty()
            && let Some(space) = key.first_chunk()
        {
            after.ranges.extend(point.ranges.drain(..).map(|ticket| (*space, ticket)));
        }
        while let Some(first) = point.queue.front() {
            let Request { owner, mode, ticket, absent, .. } = first;
            let (mode, absent) = (*mode, *absent);
            let held = self.held_by(Some(&*point), owner, key, absent);
            let by = Asker { owner: &**owner, mode, ticket: *ticket, held, absent };
            if point.holders_against(owner, mode).next().is_some()
                || self.ranges.is_against(&by, key)
            {
                return;
            }
            let Some(Request { owner, mode, keep, .. }) = point.queue.pop_front() else { return };
            if keep != Keep::Nothing {
                self.hold(key, point, &owner, keep, mode);
            }
            owner.seat().grant();
            after.wake.push(owner);
        }
    }

    /// Changes an existing point; then grants and removes what follows from the change.
    fn change(
        &self,
        full: &[u8],
        after: &mut After<T>,
        f: impl FnOnce(&Arc<[u8]>, &mut Point<T>) -> bool,
    ) {
        let shard = self.shard(full);
        let mut points = shard.points.lock();
        let one = (Bound::Included(full), Bound::Included(full));
        let Some((key, point)) = points.range_mut::<[u8], _>(one).next() else { return };
        if f(key, point) {
            self.advance(key, point, after);
            if point.is_empty() {
                points.remove(full);
                shard.count.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    fn drop_empty(&self, shard: &Shard<T>, points: &mut Points<T>, full: &[u8]) {
        if points.get(full).is_some_and(Point::is_empty) {
            points.remove(full);
            shard.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Wakes transactions that were granted a lock, and has ranges examined again.
    pub(crate) fn finish(&self, mut after: After<T>) {
        loop {
            #[cfg(test)]
            self.woken.fetch_add(after.wake.len(), Ordering::SeqCst);
            after.wake.drain(..).for_each(|owner| owner.notify());
            let Some((space, ticket)) = after.ranges.pop() else { return };
            if let Some(owner) = self.look_again(&space, ticket) {
                after.wake.push(owner);
            }
        }
    }

    /// Leaves a queue before the grant; false if it was granted meanwhile.
    pub fn withdraw(&self, full: &[u8], ticket: u64) -> bool {
        let (mut after, mut found) = (After::default(), false);
        self.change(full, &mut after, |_, point| {
            let at = point.position(ticket);
            found = at.is_some();
            at.map(|at| point.queue.remove(at)).is_some()
        });
        self.finish(after);
        found
    }

    /// Reduces the hold of `owner` on a key. `less` changes the hold; an empty hold is removed.
    fn hold_less(&self, owner: &Arc<T>, full: &[u8], less: impl FnOnce(&mut Holder<T>, bool)) {
        let mut after = After::default();
        self.change(full, &mut after, |key, point| {
            let is_awaited = point.is_awaited();
            let Some(holder) = point.holder_mut(owner) else { return false };
            let asked = holder.asked;
            less(holder, is_awaited);
            let goes = holder.asked.is_none() && !holder.writes;
            let mut held = owner.held().lock();
            held.asked -= usize::from(asked.is_some() && holder.asked.is_none());
            if goes {
                let bytes = key.len() + LOCK_BYTES;
                held.remove_key(key);
                held.bytes -= bytes;
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                point.holders.retain(|h| h.owner.id() != owner.id());
            }
            true
        });
        self.finish(after);
    }

    /// Releases a lock that was requested in this mode. A lock that was raised since stays.
    /// `written`: the stamp of `owner` is on the row, so waiting transactions still wait for it.
    pub fn unlock(&self, owner: &Arc<T>, full: &[u8], mode: Mode, written: bool) {
        self.hold_less(owner, full, |holder, is_awaited| {
            if holder.asked.is_some_and(|asked| asked <= mode) {
                holder.asked = None;
                holder.writes |= written && is_awaited;
            }
        });
    }

    /// The stamp of `owner` holds the row now, so a lock that `owner` took in the same statement is
    /// released: a rollback of the change ends behind that lock too. A lock of an earlier statement
    /// stays.
    pub fn changed(&self, owner: &Arc<T>, full: &[u8]) {
        let now = owner.statement();
        self.hold_less(owner, full, |holder, is_awaited| {
            if holder.asked.is_some() && holder.since == now {
                holder.asked = None;
                holder.writes |= is_awaited;
            }
        });
    }

    /// The stamp of `owner` is no longer on a row, or will not be put there.
    pub fn unwritten(&self, owner: &Arc<T>, full: &[u8]) {
        self.hold_less(owner, full, |holder, _| holder.writes = false);
    }

    /// `owner` has stamped a row that it held in order to write: the stamp is its lock, unless
    /// another transaction waits.
    pub fn written(&self, owner: &Arc<T>, full: &[u8]) {
        self.hold_less(owner, full, |holder, is_awaited| holder.writes &= is_awaited);
    }

    /// Releases everything that `owner`, which has ended, holds.
    pub fn release_all(&self, owner: &Arc<T>) {
        let held = std::mem::replace(&mut *owner.held().lock(), HeldLocks::closed());
        let mut after = After::default();
        for key in held.keys() {
            self.release(owner, key, &mut after);
        }
        for (space, ticket) in &held.ranges {
            self.drop_range(space, *ticket, &mut after);
        }
        self.bytes.fetch_sub(held.bytes, Ordering::Relaxed);
        self.finish(after);
    }

    /// Removes `owner`, which has ended, from the holders of a key in its list.
    fn release(&self, owner: &T, key: &Arc<[u8]>, after: &mut After<T>) {
        let shard = self.shard(key);
        let mut points = shard.points.lock();
        // The list may name a key that it held before.
        let Occupied(mut entry) = points.entry(key.clone()) else { return };
        // Another one than the key of the list, if the entry was removed and made again.
        let key = entry.key().clone();
        let point = entry.get_mut();
        point.holders.retain(|h| h.owner.id() != owner.id());
        self.advance(&key, point, after);
        if point.is_empty() {
            entry.remove();
            shard.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Registers a range; `None` if `owner` holds one that covers it.
    pub fn add_range(
        &self,
        owner: &Arc<T>,
        space: Prefix,
        span: KeySpan,
        mode: Mode,
    ) -> Option<u64> {
        let bytes = range_bytes(&span);
        let ticket = self.ranges.add(owner, space, span, mode, &self.tickets)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut held = owner.held().lock();
        held.ranges.push((space, ticket));
        held.bytes += bytes;
        Some(ticket)
    }

    /// Looks for a transaction that blocks a registered range. If there is none, grants the range
    /// and returns its owner. Otherwise the range is examined again when the blocking one leaves.
    pub fn look_again(&self, space: &Prefix, ticket: u64) -> Option<Arc<T>> {
        let asked = self.ranges.asked(space, ticket).filter(|asked| !asked.granted)?;
        if self.ranges.is_before(space, ticket) {
            return None;
        }
        let in_a_shard = |shard: &Shard<T>| {
            let mut points = shard.points.lock();
            let found = points
                .range_mut::<[u8], _>(bounds(&asked.span))
                .find(|(_, point)| keeps_out(point, &asked.owner, asked.mode, ticket));
            if let Some((_, point)) = found {
                if !point.ranges.contains(&ticket) {
                    point.ranges.push(ticket);
                }
                return true;
            }
            false
        };
        if !asked.span.is_empty() && self.shards.iter().any(in_a_shard) {
            return None;
        }
        self.ranges.grant(space, ticket)
    }

    /// Removes a range that is no longer wanted, held or not.
    pub fn remove_range(&self, owner: &T, space: &Prefix, ticket: u64) {
        {
            let mut held = owner.held().lock();
            let Some(at) = held.ranges.iter().rposition(|(_, t)| *t == ticket) else { return };
            held.ranges.swap_remove(at);
        }
        let mut after = After::default();
        let bytes = self.drop_range(space, ticket, &mut after);
        owner.held().lock().bytes -= bytes;
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.finish(after);
    }

    fn drop_range(&self, space: &Prefix, ticket: u64, after: &mut After<T>) -> usize {
        let Some(range) = self.ranges.remove(space, ticket) else { return 0 };
        self.look_at_freed(space, &range.keys, &range.ranges, after);
        range.bytes()
    }

    /// A range has gone or become smaller: examines the queues of keys, and later the ranges, that
    /// waited for it.
    pub(crate) fn look_at_freed(
        &self,
        space: &Prefix,
        keys: &BTreeSet<Arc<[u8]>>,
        ranges: &BTreeSet<u64>,
        after: &mut After<T>,
    ) {
        after.ranges.extend(ranges.iter().map(|ticket| (*space, *ticket)));
        keys.iter().for_each(|key| self.change(key, after, |_, _| true));
    }

    /// Locks that `owner` holds or requests; for a range, those that it replaces.
    pub fn locks_of(&self, owner: &T) -> usize {
        let (points, ranges) = {
            let held = owner.held().lock();
            (held.points(), held.ranges.clone())
        };
        let of_range = |(space, ticket): &(Prefix, u64)| self.ranges.stands_for(space, *ticket);
        points + ranges.iter().map(of_range).sum::<usize>()
    }

    /// The transactions that `owner` waits for at its place. In a queue the holders stand for
    /// earlier requests, except for those that alone are in its way.
    pub fn waits_for(&self, owner: &Arc<T>, place: &WaitPlace<T>) -> Vec<Arc<T>> {
        let mut found = Vec::new();
        match place {
            WaitPlace::End(other) => found.push(other.clone()),
            WaitPlace::Row(key, ticket) => {
                let points = self.shard(key).points.lock();
                let Some(point) = points.get(key) else { return found };
                let Some(at) = point.position(*ticket) else { return found };
                let mode = point.queue[at].mode;
                found.extend(point.holders_against(owner, mode).cloned());
                if mode == Mode::Shared {
                    // A victim leaves the queue without a new search for cycles, so the request in
                    // front of it counts already.
                    let stays = |request: &&Request<T>| !request.owner.seat().is_victim();
                    let nearest = point.requests_against(owner, mode, at).find(stays);
                    found.extend(nearest.map(|request| request.owner.clone()));
                }
                let mut add = |range: &Arc<T>| found.push(range.clone());
                let absent = point.queue[at].absent;
                let held = self.held_by(Some(point), owner, key, absent);
                let by = Asker { owner: &**owner, mode, ticket: *ticket, held, absent };
                self.ranges.against(&by, key, &mut add);
            }
            WaitPlace::Range(space, ticket) => {
                let Some(asked) = self.ranges.asked(space, *ticket) else { return found };
                if asked.granted || asked.span.is_empty() {
                    return found;
                }
                self.ranges.before(space, *ticket, &mut |range| found.push(range.clone()));
                for shard in &self.shards {
                    let points = shard.points.lock();
                    for (_, point) in points.range::<[u8], _>(bounds(&asked.span)) {
                        found.extend(point.holders_against(owner, asked.mode).cloned());
                        let len = point.queue.len();
                        let waiting = point.requests_against(owner, asked.mode, len);
                        let earlier = waiting.filter(|request| request.ticket < *ticket);
                        found.extend(earlier.map(|request| request.owner.clone()));
                    }
                }
            }
        }
        found
    }

    /// Tags of the transactions that a waiter waits for, and of those that precede it in the queue,
    /// the nearest `len` of them; some of them twice.
    pub fn tags_before(&self, owner: &Arc<T>, place: &WaitPlace<T>, len: usize) -> Vec<u64> {
        let mut tags: Vec<u64> = self.waits_for(owner, place).iter().map(|t| t.tag()).collect();
        if let WaitPlace::Row(key, ticket) = place {
            let points = self.shard(key).points.lock();
            let point = points.get(key);
            if let Some((point, at)) = point.and_then(|p| p.position(*ticket).map(|at| (p, at))) {
                let before = point.requests_against(owner, point.queue[at].mode, at);
                tags.extend(before.take(len).map(|request| request.owner.tag()));
            }
        }
        tags
    }

    /// Calls `f` with each key, its holders and its waiters.
    pub fn each_point(&self, f: &mut dyn FnMut(&[u8], &Point<T>) -> bool) {
        for shard in &self.shards {
            if !shard.points.lock().iter().all(|(key, point)| f(key, point)) {
                return;
            }
        }
    }

    pub fn ranges(&self) -> &RangeLocks<T> {
        &self.ranges
    }

    /// True if some transaction holds or requests a lock in the space; otherwise no writer is
    /// blocked.
    pub fn may_have(&self, space: &Prefix) -> bool {
        self.shards.iter().any(|shard| shard.count.load(Ordering::SeqCst) > 0)
            || self.ranges.may_have(space)
    }

    /// Keys and ranges that are held or requested.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        let points: usize = self.shards.iter().map(|s| s.points.lock().len()).sum();
        let mut ranges = 0;
        self.ranges.each(usize::MAX, &mut |_| ranges += 1);
        let noted: u64 = self.shards.iter().map(|s| s.count.load(Ordering::SeqCst)).sum();
        assert_eq!(noted, points as u64, "points and how many are noted");
        points + ranges
    }
}

impl<T: Owner> After<T> {
    /// Wakes a transaction that has to report who came before it.
    fn tell(&mut self, owner: &Arc<T>) {
        owner.seat().overtaken();
        self.wake.push(owner.clone());
    }
}

pub(crate) fn bounds(span: &KeySpan) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(&span.low), Bound::Excluded(&span.high))
}

/// True if a holder or request of a key blocks a range.
fn keeps_out<T: Owner>(point: &Point<T>, owner: &T, mode: Mode, ticket: u64) -> bool {
    let mut earlier = point.requests_against(owner, mode, point.queue.len());
    point.holders_against(owner, mode).next().is_some() || earlier.any(|r| r.ticket < ticket)
}
