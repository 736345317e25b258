//! Locks of ranges of keys, held and requested, by space.
//!
//! A range first registers (`add`) and then looks for transactions in its way. Once registered it
//! blocks later requests even before it is granted. Requests of keys and ranges draw tickets from
//! one counter, each inside the critical section in which it registers; so of two conflicting
//! requests the later one sees the earlier one. The same holds between a transaction that scans
//! once its range is granted, and a writer that looks for locks once its write is visible (A7):
//! either the count here is raised before the writer looks, or the scan begins after the write. The
//! models of `crates/sim/tests/models` compile this file against their own locks and atomics.

use crate::intervals::{Intervals, KeySpan};
use crate::owner::{Mode, Owner, Prefix};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use evenkeel_base::TxnId;
use std::cmp::Ordering::Less;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;

/// Memory of a range beyond its bounds, which are stored twice: its lock, its node in the treap,
/// and entries of maps that are not full.
const RANGE_BYTES: usize = 448;

/// The keys of its span that a range locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Covers {
    /// Keys that have a row; other transactions may insert between them.
    Rows,
    /// Every key.
    All,
}

pub(crate) struct RangeLock<T> {
    pub owner: Arc<T>,
    pub mode: Mode,
    pub covers: Covers,
    pub granted: bool,
    pub span: KeySpan,
    /// The number of locks that it replaces.
    pub stands_for: usize,
    /// Keys whose queues are examined again when this range has gone.
    pub keys: BTreeSet<Arc<[u8]>>,
    /// Ranges that are examined again.
    pub ranges: BTreeSet<u64>,
}

impl<T: Owner> RangeLock<T> {
    pub fn new(owner: &Arc<T>, span: KeySpan, mode: Mode) -> Self {
        let (keys, ranges) = Default::default();
        let (owner, covers, stands_for) = (owner.clone(), Covers::All, 1);
        RangeLock { owner, mode, covers, granted: false, span, stands_for, keys, ranges }
    }

    pub fn bytes(&self) -> usize {
        range_bytes(&self.span)
    }

    fn asker(&self, ticket: u64) -> Asker<'_, T> {
        Asker { owner: &*self.owner, mode: self.mode, ticket, held: None, absent: false }
    }

    /// True if it blocks a request.
    fn is_against(&self, ticket: u64, by: &Asker<'_, T>) -> bool {
        // A request that is blocked by a lock of the other waits for the other.
        let waits_for_it = by.held.is_some_and(|held| held.conflicts(self.mode));
        (self.granted || (ticket < by.ticket && !waits_for_it))
            && self.owner.id() != by.owner.id()
            && self.mode.conflicts(by.mode)
            && !(by.absent && self.covers == Covers::Rows)
    }

    /// True if it belongs to `owner` and locks what it covers in at least this mode; `row`: the key
    /// has a row.
    fn has(&self, owner: &T, mode: Mode, row: bool) -> bool {
        self.granted
            && self.owner.id() == owner.id()
            && self.mode >= mode
            && (row || self.covers == Covers::All)
    }
}

pub(crate) fn range_bytes(span: &KeySpan) -> usize {
    2 * (span.low.len() + span.high.len()) + RANGE_BYTES
}

/// A request for a key or a range.
pub(crate) struct Asker<'a, T> {
    pub owner: &'a T,
    pub mode: Mode,
    /// The ticket of the request.
    pub ticket: u64,
    /// How the owner holds the key already.
    pub held: Option<Mode>,
    /// The requested key has no row.
    pub absent: bool,
}

struct InSpace<T> {
    /// By ticket.
    locks: BTreeMap<u64, RangeLock<T>>,
    spans: Intervals,
}

impl<T> Default for InSpace<T> {
    fn default() -> Self {
        InSpace { locks: BTreeMap::new(), spans: Intervals::default() }
    }
}

impl<T> InSpace<T> {
    fn insert(&mut self, ticket: u64, range: RangeLock<T>) {
        self.spans.insert(range.span.clone(), ticket);
        self.locks.insert(ticket, range);
    }
}

impl<T: Owner> InSpace<T> {
    fn grow(&mut self, owner: &T, ticket: u64, mode: Mode, key: &[u8]) -> Option<isize> {
        let InSpace { locks, spans } = self;
        let range = locks.get(&ticket)?;
        if range.covers != Covers::Rows || range.mode != mode {
            return None;
        }
        let (low, high) = (&range.span.low[..], &range.span.high[..]);
        let (from, last) = match key.cmp(low) {
            Less => (key, low),
            _ if key >= high => (high, key),
            _ => return Some(0),
        };
        let mut is_free = true;
        spans.touching(from, last, &mut |theirs| {
            is_free = locks[&theirs].owner.id() == owner.id();
            is_free
        });
        if !is_free {
            return None;
        }
        let range = locks.get_mut(&ticket)?;
        let before = range.bytes();
        if key < &range.span.low[..] {
            let span = KeySpan { low: key.to_vec(), high: range.span.high.clone() };
            spans.remove(&range.span.low, ticket);
            spans.insert(span.clone(), ticket);
            range.span = span;
        } else {
            range.span.high.clear();
            range.span.high.extend_from_slice(key);
            range.span.high.push(0);
            spans.set_high(&range.span.low, ticket, &range.span.high);
        }
        range.stands_for += 1;
        Some(range.bytes() as isize - before as isize)
    }

    fn shrink(&mut self, ticket: u64, key: &[u8]) -> Option<Freed> {
        let range = self.locks.get_mut(&ticket)?;
        let (span, before) = (range.span.without_end(key)?, range.bytes());
        self.spans.remove(&range.span.low, ticket);
        self.spans.insert(span.clone(), ticket);
        range.span = span;
        range.stands_for = range.stands_for.saturating_sub(1);
        let bytes = before.saturating_sub(range.bytes());
        Some(Freed { bytes, keys: take(&mut range.keys), ranges: take(&mut range.ranges) })
    }
}

/// The requests to examine again when a range has become smaller.
pub(crate) struct Freed {
    pub bytes: usize,
    pub keys: BTreeSet<Arc<[u8]>>,
    pub ranges: BTreeSet<u64>,
}

struct Shard<T> {
    spaces: Mutex<BTreeMap<Prefix, InSpace<T>>>,
    /// While it is zero a request looks no further.
    count: AtomicU64,
}

pub(crate) struct RangeLocks<T> {
    shards: Box<[Shard<T>]>,
}

/// The request of a registered range.
pub(crate) struct RangeRequest<T> {
    pub owner: Arc<T>,
    pub mode: Mode,
    pub span: KeySpan,
    pub granted: bool,
}

impl<T: Owner> RangeLocks<T> {
    pub fn new(shards: usize) -> Self {
        let shard = |_| Shard { spaces: Mutex::default(), count: AtomicU64::new(0) };
        RangeLocks { shards: (0..shards).map(shard).collect() }
    }

    fn shard(&self, space: &[u8]) -> &Shard<T> {
        let number = space.iter().fold(0usize, |sum, byte| sum.wrapping_mul(31) + *byte as usize);
        &self.shards[number % self.shards.len()]
    }

    /// Calls `f` with the ranges of a space.
    fn with<R>(&self, space: &[u8], f: impl FnOnce(&mut InSpace<T>) -> R) -> Option<R> {
        let shard = self.shard(space);
        if shard.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut spaces = shard.spaces.lock();
        spaces.get_mut(space).map(f)
    }

    /// Registers a range and returns its ticket; `None` if `owner` holds a range that covers it.
    pub fn add(
        &self,
        owner: &Arc<T>,
        space: Prefix,
        span: KeySpan,
        mode: Mode,
        tickets: &AtomicU64,
    ) -> Option<u64> {
        let shard = self.shard(&space);
        let mut spaces = shard.spaces.lock();
        let there = spaces.entry(space).or_default();
        let mut covered = false;
        there.spans.meeting(&span, &mut |ticket| {
            let theirs = &there.locks[&ticket];
            covered = theirs.has(owner, mode, false) && theirs.span.covers(&span);
            !covered
        });
        if covered {
            return None;
        }
        shard.count.fetch_add(1, Ordering::SeqCst);
        let ticket = tickets.fetch_add(1, Ordering::SeqCst);
        there.insert(ticket, RangeLock::new(owner, span, mode));
        Some(ticket)
    }

    /// Enters a range as granted, because the caller has seen that no key of it belongs to another
    /// transaction; false if another one's range overlaps it by now.
    pub fn add_granted(&self, space: &Prefix, ticket: u64, range: RangeLock<T>) -> bool {
        let shard = self.shard(space);
        let mut spaces = shard.spaces.lock();
        let there = spaces.entry(*space).or_default();
        let mut is_free = true;
        there.spans.meeting(&range.span, &mut |theirs| {
            is_free = there.locks[&theirs].owner.id() == range.owner.id();
            is_free
        });
        if is_free {
            shard.count.fetch_add(1, Ordering::SeqCst);
            there.insert(ticket, RangeLock { granted: true, ..range });
        }
        is_free
    }

    /// True if a range blocks a request for the key; the key is then examined again when that range
    /// goes.
    pub fn is_against(&self, by: &Asker<'_, T>, key: &Arc<[u8]>) -> bool {
        let look = |there: &mut InSpace<T>| {
            let mut found = None;
            there.spans.holding(key, &mut |theirs| {
                if there.locks[&theirs].is_against(theirs, by) {
                    found = Some(theirs);
                }
                found.is_none()
            });
            if let Some(range) = found.and_then(|found| there.locks.get_mut(&found)) {
                range.keys.insert(key.clone());
            }
            found.is_some()
        };
        self.with(space_of(key), look).unwrap_or(false)
    }

    /// Calls `f` with the owners of all ranges that block a request for a key.
    pub fn against(&self, by: &Asker<'_, T>, full: &[u8], f: &mut dyn FnMut(&Arc<T>)) {
        self.with(space_of(full), |there| {
            there.spans.holding(full, &mut |theirs| {
                let range = &there.locks[&theirs];
                if range.is_against(theirs, by) {
                    f(&range.owner);
                }
                true
            });
        });
    }

    /// True if `owner` holds a range that contains the key.
    pub fn covers(&self, owner: &T, full: &[u8]) -> bool {
        self.held(owner, full, true).is_some()
    }

    /// How `owner` holds the key by its ranges; `row`: whether the key has a row.
    pub fn held(&self, owner: &T, full: &[u8], row: bool) -> Option<Mode> {
        let look = |there: &mut InSpace<T>| {
            let mut held = None;
            there.spans.holding(full, &mut |theirs| {
                let range = &there.locks[&theirs];
                if range.has(owner, Mode::Shared, row) {
                    held = held.max(Some(range.mode));
                }
                true
            });
            held
        };
        self.with(space_of(full), look).flatten()
    }

    /// How the ranges of the asking transaction lock the key, or the owner of a range that blocks
    /// it. `by.held`: how it holds the key otherwise.
    pub fn look(&self, mut by: Asker<'_, T>, full: &[u8]) -> Result<Option<Mode>, TxnId> {
        let look = |there: &mut InSpace<T>| {
            let (mut held, mut others) = (None, false);
            there.spans.holding(full, &mut |theirs| {
                let range = &there.locks[&theirs];
                others |= range.owner.id() != by.owner.id();
                if range.has(by.owner, Mode::Shared, !by.absent) {
                    held = held.max(Some(range.mode));
                }
                true
            });
            by.held = by.held.max(held);
            let mut found = None;
            if others {
                there.spans.holding(full, &mut |theirs| {
                    let range = &there.locks[&theirs];
                    found = range.is_against(theirs, &by).then(|| range.owner.id());
                    found.is_none()
                });
            }
            found.map_or(Ok(held), Err)
        };
        self.with(space_of(full), look).unwrap_or(Ok(None))
    }

    /// Calls `f` with the ranges of others, held and requested, that overlap a span.
    pub fn of_others(&self, owner: &T, span: &KeySpan, f: &mut dyn FnMut(&KeySpan)) {
        self.with(space_of(&span.low), |there| {
            there.spans.meeting(span, &mut |theirs| {
                let range = &there.locks[&theirs];
                if range.owner.id() != owner.id() {
                    f(&range.span);
                }
                true
            });
        });
    }

    /// The number of locks that a range replaces.
    pub fn stands_for(&self, space: &Prefix, ticket: u64) -> usize {
        self.with(space, |there| there.locks.get(&ticket).map(|range| range.stands_for))
            .flatten()
            .unwrap_or_default()
    }

    pub fn asked(&self, space: &Prefix, ticket: u64) -> Option<RangeRequest<T>> {
        self.with(space, |there| {
            let range = there.locks.get(&ticket)?;
            let (owner, mode, granted) = (range.owner.clone(), range.mode, range.granted);
            Some(RangeRequest { owner, mode, span: range.span.clone(), granted })
        })?
    }

    /// Calls `f` with the owners of the ranges that block a registered one.
    pub fn before(&self, space: &Prefix, ticket: u64, f: &mut dyn FnMut(&Arc<T>)) {
        self.with(space, |there| {
            let Some(mine) = there.locks.get(&ticket).filter(|mine| !mine.span.is_empty()) else {
                return;
            };
            there.spans.meeting(&mine.span, &mut |theirs| {
                let range = &there.locks[&theirs];
                if theirs != ticket && range.is_against(theirs, &mine.asker(ticket)) {
                    f(&range.owner);
                }
                true
            });
        });
    }

    /// True if a range blocks a registered one, which is examined again when that range has gone.
    pub fn is_before(&self, space: &Prefix, ticket: u64) -> bool {
        let look = |there: &mut InSpace<T>| {
            let mut found = None;
            let mine = there.locks.get(&ticket).filter(|mine| !mine.span.is_empty())?;
            there.spans.meeting(&mine.span, &mut |theirs| {
                let range = &there.locks[&theirs];
                if theirs != ticket && range.is_against(theirs, &mine.asker(ticket)) {
                    found = Some(theirs);
                }
                found.is_none()
            });
            there.locks.get_mut(&found?).map(|range| range.ranges.insert(ticket))
        };
        self.with(space, look).flatten().is_some()
    }

    /// Grants a registered range; returns its owner unless it was granted before.
    pub fn grant(&self, space: &Prefix, ticket: u64) -> Option<Arc<T>> {
        self.with(space, |there| {
            let range = there.locks.get_mut(&ticket).filter(|range| !range.granted)?;
            range.granted = true;
            range.owner.seat().grant();
            Some(range.owner.clone())
        })?
    }

    /// Extends a range of `owner` that locks rows in this mode to a key before or behind it, and
    /// returns by how much its memory has grown. None if another transaction has or wants a range
    /// in the stretch between. The caller has seen that no key there is another transaction's.
    pub fn grow(
        &self,
        owner: &T,
        (space, ticket): (&Prefix, u64),
        mode: Mode,
        key: &[u8],
    ) -> Option<isize> {
        self.with(space, |there| there.grow(owner, ticket, mode, key)).flatten()
    }

    /// Takes the first or the last key out of a range; none if the key is neither.
    pub fn shrink(&self, space: &Prefix, ticket: u64, key: &[u8]) -> Option<Freed> {
        self.with(space, |there| there.shrink(ticket, key)).flatten()
    }

    /// The keys that a range locks.
    pub fn span(&self, space: &Prefix, ticket: u64) -> Option<KeySpan> {
        self.with(space, |there| Some(there.locks.get(&ticket)?.span.clone())).flatten()
    }

    /// Removes a range.
    pub fn remove(&self, space: &Prefix, ticket: u64) -> Option<RangeLock<T>> {
        let shard = self.shard(space);
        let mut spaces = shard.spaces.lock();
        let there = spaces.get_mut(space)?;
        let range = there.locks.remove(&ticket)?;
        there.spans.remove(&range.span.low, ticket);
        if there.locks.is_empty() {
            spaces.remove(space);
        }
        shard.count.fetch_sub(1, Ordering::SeqCst);
        Some(range)
    }

    /// False if the space has no ranges.
    pub fn may_have(&self, space: &[u8]) -> bool {
        self.shard(space).count.load(Ordering::SeqCst) > 0
    }

    /// Calls `f` with some of them, `limit` at most.
    pub fn each(&self, limit: usize, f: &mut dyn FnMut(&RangeLock<T>)) {
        let mut left = limit;
        for shard in &self.shards {
            let spaces = shard.spaces.lock();
            for range in spaces.values().flat_map(|there| there.locks.values()).take(left) {
                f(range);
                left -= 1;
            }
        }
    }

    /// Calls `f` with each range; panics if two granted ones of different transactions conflict, or
    /// if the count of a shard or the tree of spans differs from its ranges.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self, f: &mut dyn FnMut(&RangeLock<T>)) {
        for shard in &self.shards {
            let spaces = shard.spaces.lock();
            let ranges: usize = spaces.values().map(|there| there.locks.len()).sum();
            assert_eq!(shard.count.load(Ordering::SeqCst), ranges as u64, "ranges of a shard");
            for there in spaces.values() {
                assert!(!there.locks.is_empty(), "a space without ranges");
                for (ticket, range) in &there.locks {
                    f(range);
                    let mut is_found = range.span.is_empty();
                    there.spans.meeting(&range.span, &mut |other| {
                        is_found |= other == *ticket;
                        let other = &there.locks[&other];
                        let conflicts = other.granted
                            && range.granted
                            && other.owner.id() != range.owner.id()
                            && other.mode.conflicts(range.mode);
                        assert!(!conflicts, "{} and {}", other.owner.id(), range.owner.id());
                        true
                    });
                    assert!(is_found, "the tree of spans lacks {:?}", range.span);
                }
            }
        }
    }

    /// Nodes that searches of a space have examined since the last call.
    #[cfg(test)]
    pub fn take_looked_at(&self, space: &Prefix) -> usize {
        self.with(space, |there| there.spans.take_looked_at()).unwrap_or_default()
    }
}

/// The space of a full key.
pub(crate) fn space_of(full: &[u8]) -> &[u8] {
    full.get(..size_of::<Prefix>()).unwrap_or(full)
}
