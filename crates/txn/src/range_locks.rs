//! Locks of ranges of keys, held and asked for.
//!
//! A range registers first (`add`) and then looks at who is in its way; registered, it blocks
//! others even before it is granted. So of two that conflict one sees the other; and of a locker
//! that scans once its range is granted, and a writer that asks for `blockers` once what it wrote
//! can be seen, one sees the other too (A7): either the count here is raised before the writer
//! looks, or the scan begins after the write. The models of `crates/sim/tests/models` compile this
//! file against their own locks and atomics.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use evenkeel_base::TxnId;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Memory of a lock beyond its key: map entry, holder, place in its owner's list.
pub(crate) const LOCK_BYTES: usize = 128;

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

/// A range of full keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub lower: Bound<Vec<u8>>,
    pub upper: Bound<Vec<u8>>,
}

/// True if a range ending at `upper` may share a key with one beginning at `lower`.
fn reaches(upper: &Bound<Vec<u8>>, lower: &Bound<Vec<u8>>) -> bool {
    match (upper, lower) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Included(u), Bound::Included(l)) => u >= l,
        (Bound::Included(u) | Bound::Excluded(u), Bound::Included(l) | Bound::Excluded(l)) => u > l,
    }
}

fn bound_len(bound: &Bound<Vec<u8>>) -> usize {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.len(),
        Bound::Unbounded => 0,
    }
}

impl Span {
    fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.lower {
            Bound::Included(low) => low.as_slice() <= key,
            Bound::Excluded(low) => low.as_slice() < key,
            Bound::Unbounded => true,
        };
        above
            && match &self.upper {
                Bound::Included(high) => key <= high.as_slice(),
                Bound::Excluded(high) => key < high.as_slice(),
                Bound::Unbounded => true,
            }
    }

    fn meets(&self, other: &Span) -> bool {
        reaches(&self.upper, &other.lower) && reaches(&other.upper, &self.lower)
    }

    pub fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(l), Bound::Included(u)) => l > u,
            (Bound::Included(l) | Bound::Excluded(l), Bound::Included(u) | Bound::Excluded(u)) => {
                l >= u
            }
        }
    }
}

pub(crate) struct RangeLock {
    pub ticket: u64,
    pub owner: TxnId,
    pub mode: Mode,
    pub granted: bool,
    pub span: Span,
}

impl RangeLock {
    pub fn bytes(&self) -> usize {
        bound_len(&self.span.lower) + bound_len(&self.span.upper) + LOCK_BYTES
    }
}

pub(crate) fn add_blocker(blockers: &mut Vec<TxnId>, id: TxnId) {
    if !blockers.contains(&id) {
        blockers.push(id);
    }
}

#[derive(Default)]
pub(crate) struct RangeLocks {
    /// By space.
    ranges: Mutex<BTreeMap<Prefix, Vec<RangeLock>>>,
    /// Who is to be kept out looks no further while it is zero.
    count: AtomicU64,
    next_ticket: AtomicU64,
}

impl RangeLocks {
    /// Registers a range: its ticket and its memory; `None` if `owner` holds one that covers it.
    pub fn add(&self, owner: TxnId, space: Prefix, span: Span, mode: Mode) -> Option<(u64, usize)> {
        let mut ranges = self.ranges.lock();
        let in_space = ranges.entry(space).or_default();
        let covers =
            |r: &RangeLock| r.granted && r.owner == owner && r.mode >= mode && r.span == span;
        if in_space.iter().any(covers) {
            return None;
        }
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        let range = RangeLock { ticket, owner, mode, granted: false, span };
        let bytes = range.bytes();
        in_space.push(range);
        self.count.fetch_add(1, Ordering::SeqCst);
        Some((ticket, bytes))
    }

    /// Owners of ranges that keep `me` from locking or writing the key `full`.
    pub fn blockers(&self, me: TxnId, full: &[u8], mode: Mode, blockers: &mut Vec<TxnId>) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let ranges = self.ranges.lock();
        let Some(in_space) = full.first_chunk().and_then(|p: &Prefix| ranges.get(p)) else {
            return;
        };
        for range in in_space {
            if range.owner != me && mode.conflicts(range.mode) && range.span.contains(full) {
                add_blocker(blockers, range.owner);
            }
        }
    }

    /// The mode of a registered range, and the owners of earlier ones that are in its way; `None`
    /// if it is not there.
    pub fn in_the_way(&self, space: Prefix, ticket: u64) -> Option<(Mode, Vec<TxnId>)> {
        let ranges = self.ranges.lock();
        let in_space = ranges.get(&space)?;
        let mine = in_space.iter().find(|r| r.ticket == ticket)?;
        let mut blockers = Vec::new();
        for r in in_space {
            if r.owner != mine.owner
                && r.mode.conflicts(mine.mode)
                && (r.granted || r.ticket < ticket)
                && r.span.meets(&mine.span)
            {
                add_blocker(&mut blockers, r.owner);
            }
        }
        Some((mine.mode, blockers))
    }

    pub fn grant(&self, space: Prefix, ticket: u64) {
        let mut ranges = self.ranges.lock();
        let in_space = ranges.entry(space).or_default();
        if let Some(mine) = in_space.iter_mut().find(|r| r.ticket == ticket) {
            mine.granted = true;
        }
    }

    /// Takes ranges away: how many, and their memory.
    pub fn remove(&self, gone: impl Fn(&RangeLock) -> bool) -> (usize, usize) {
        let mut removed = (0, 0);
        let mut ranges = self.ranges.lock();
        ranges.retain(|_, in_space| {
            in_space.retain(|r| {
                if gone(r) {
                    removed = (removed.0 + 1, removed.1 + r.bytes());
                }
                !gone(r)
            });
            !in_space.is_empty()
        });
        drop(ranges);
        self.count.fetch_sub(removed.0 as u64, Ordering::SeqCst);
        removed
    }

    /// Calls `f` with some of them, `limit` at most.
    pub fn each(&self, limit: usize, f: &mut dyn FnMut(&RangeLock)) {
        self.ranges.lock().values().flatten().take(limit).for_each(f);
    }
}
