//! The commit table: transaction id -> state and commit timestamp (protocols A1, A5).
//!
//! A new id has a slot, an atomic word that is read without a lock. Slots live in segments of
//! neighbouring ids. A directory maps the number of a segment to a physical segment, which is
//! recycled when the segment retires. Ids of a retired segment with a fact of their own are in a
//! map of exceptions. The other ids have committed. While a snapshot may not see them, many
//! segments share one timestamp (a commit timestamp range, RFC 17); afterwards the ids are absent,
//! which means committed and visible to every snapshot. From the `floor` on a segment has slots or
//! is in a range. So the table has the slots that memtables need, a segment for each snapshot that
//! separates its commits, and little else.
//!
//! Invariants: an id is in the exceptions or in a range before its segment leaves the directory. A
//! slot is stored only while its segment is in the directory. A segment number is never reused. So
//! a reader that finds the same directory entry before and after reading a slot has read the slot
//! of its id.

use crate::commit_ts_ranges::{CommitTsRanges, Separators};
use evenkeel_base::sync::{Mutex, RwLock};
use evenkeel_base::{Lsn, TxnId, TxnState, UndoNo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Ids per segment.
pub(crate) const SEGMENT_IDS: u64 = 4096;
/// Segments between the floor and the newest, at most; beyond that the oldest segment with slots
/// becomes exceptions.
const SEGMENTS_MAX: usize = 1 << 14;
/// Physical segments whose places every table has.
const PHYSICAL_FIRST: usize = 512;
/// A beat ends after this many segments with commits that memtables need: the segments behind them
/// have such commits, too.
const LOOKS: u32 = 32;

/// Segments that retire in one beat: each retirement holds the write lock of the facts for a while.
const RETIRES: u32 = 16;

/// The operations with undo numbers `from <= no < below` of a transaction were undone.
pub(crate) type DeadRange = (UndoNo, UndoNo);

/// An id that outlived its slot, or has facts beyond its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exception {
    pub state: TxnState,
    /// Aborted: the LSN of its END record, once all its rows are rolled back.
    pub ended: Option<Lsn>,
}

struct Segment {
    slots: Box<[AtomicU64]>,
}

/// Facts outside the slots; changed rarely.
#[derive(Default)]
struct Facts {
    exceptions: BTreeMap<TxnId, Exception>,
    /// Aborted ids that still have a slot, with their END record.
    aborted: BTreeMap<TxnId, Option<Lsn>>,
    spans: CommitTsRanges,
}

/// What may leave the table at one moment (A5).
pub(crate) struct Trim<'a> {
    /// Below this neither a snapshot nor an unflushed generation needs a timestamp.
    pub gone: Lsn,
    /// Below this no unflushed generation needs a timestamp.
    pub flushed: Lsn,
    pub separators: &'a Separators,
    /// Runs have pending entries of this id (D1): whether it was undone is still needed.
    pub keep: &'a dyn Fn(TxnId) -> bool,
}

/// The least and the greatest timestamp of a segment's commits; zero: no commits.
type Commits = (Lsn, Lsn);

pub(crate) struct CommitStates {
    next_id: AtomicU64,
    /// Ids per segment: `1 << shift`.
    shift: u32,
    /// The first id that has a slot, or that may get one; the first of its segment.
    floor: AtomicU64,
    /// Number of the segment + 1 in the high 40 bits, physical segment in the low 24; 0: none.
    directory: Box<[AtomicU64]>,
    /// The first physical segments, and the others once there is one: their places alone would be a
    /// large part of the memory of a small database.
    physical: Box<[OnceLock<Segment>]>,
    physical_more: OnceLock<Box<[OnceLock<Segment>]>>,
    free: Mutex<FreeList>,
    facts: RwLock<Facts>,
    dead: RwLock<BTreeMap<TxnId, Vec<DeadRange>>>,
    /// Number of ids in `dead`: mostly zero, and then readers take no lock.
    dead_ids: AtomicUsize,
}

#[derive(Default)]
struct FreeList {
    recycled: Vec<u32>,
    used: u32,
    /// Segments with slots whose ids are all decided and whose commits snapshots separate.
    settled: BTreeMap<u64, Commits>,
}

// Slot words: state in the low 2 bits, bit 2 = has dead ranges, commit timestamp above. A new slot
// is zero: active.
const ACTIVE: u64 = 0;
const PREPARED: u64 = 1;
const COMMITTED: u64 = 2;
const ABORTED: u64 = 3;
const STATE_MASK: u64 = 3;
const DEAD: u64 = 4;
const CTS_SHIFT: u32 = 3;

fn encode(state: TxnState) -> u64 {
    match state {
        TxnState::Active => ACTIVE,
        TxnState::Prepared => PREPARED,
        TxnState::Committed(cts) => COMMITTED | (cts.0 << CTS_SHIFT),
        TxnState::Aborted => ABORTED,
    }
}

fn decode(word: u64) -> TxnState {
    match word & STATE_MASK {
        ACTIVE => TxnState::Active,
        PREPARED => TxnState::Prepared,
        COMMITTED => TxnState::Committed(Lsn(word >> CTS_SHIFT)),
        _ => TxnState::Aborted,
    }
}

fn is_commit_until(state: TxnState, high: Lsn) -> bool {
    matches!(state, TxnState::Committed(cts) if cts <= high)
}

fn no_segments(count: usize) -> Box<[OnceLock<Segment>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

impl CommitStates {
    /// A table with segments of `ids`, a power of two.
    pub fn new(ids: u64) -> CommitStates {
        CommitStates::with_segments(ids, SEGMENTS_MAX)
    }

    fn with_segments(ids: u64, segments_max: usize) -> CommitStates {
        CommitStates {
            next_id: AtomicU64::new(1),
            shift: ids.next_power_of_two().trailing_zeros(),
            floor: AtomicU64::new(0),
            directory: (0..segments_max).map(|_| AtomicU64::new(0)).collect(),
            physical: no_segments(segments_max.min(PHYSICAL_FIRST)),
            physical_more: OnceLock::new(),
            free: Mutex::default(),
            facts: RwLock::default(),
            dead: RwLock::default(),
            dead_ids: AtomicUsize::new(0),
        }
    }

    /// Ids from `next` on are new: the floor rises to the next segment. At restore only.
    pub fn start_ids_at(&self, next: TxnId) {
        let first = next.0.max(1).next_multiple_of(self.segment_ids());
        self.next_id.fetch_max(first, Ordering::AcqRel);
        self.floor.fetch_max(first, Ordering::AcqRel);
    }

    /// The log contains this id: at replay only. `finish_ids` begins above all such ids.
    pub fn saw_id(&self, id: TxnId) {
        self.next_id.fetch_max(id.0 + 1, Ordering::AcqRel);
    }

    /// From now on every id met at replay is below the floor.
    pub fn finish_ids(&self) {
        self.start_ids_at(self.next_id());
    }

    pub fn next_id(&self) -> TxnId {
        TxnId(self.next_id.load(Ordering::Acquire))
    }

    /// A new id, active.
    pub fn assign(&self) -> TxnId {
        let id = self.next_id.fetch_add(1, Ordering::AcqRel);
        self.ensure_segment(id >> self.shift);
        TxnId(id)
    }

    fn segment_ids(&self) -> u64 {
        1 << self.shift
    }

    /// Number of the segment at the floor.
    fn lowest(&self) -> u64 {
        self.floor.load(Ordering::Acquire) >> self.shift
    }

    fn entry(&self, number: u64) -> &AtomicU64 {
        &self.directory[(number % self.directory.len() as u64) as usize]
    }

    fn has_slots(&self, number: u64) -> bool {
        self.entry(number).load(Ordering::Acquire) >> 24 == number + 1
    }

    fn ensure_segment(&self, number: u64) {
        if self.has_slots(number) {
            return;
        }
        let mut free = self.free.lock();
        let retired = number < self.lowest() || self.facts.read().spans.of(number).is_some();
        if retired || self.has_slots(number) {
            return;
        }
        while number.saturating_sub(self.lowest()) >= self.directory.len() as u64 {
            self.retire(&mut free, self.lowest(), None, &|_, _, _| false);
        }
        let physical = free.recycled.pop().unwrap_or_else(|| {
            free.used += 1;
            free.used - 1
        });
        let place = self.physical.get(physical as usize).unwrap_or_else(|| {
            let more = self.directory.len() - self.physical.len();
            let more = self.physical_more.get_or_init(|| no_segments(more));
            &more[physical as usize - self.physical.len()]
        });
        let segment = place.get_or_init(|| Segment {
            slots: (0..self.segment_ids()).map(|_| AtomicU64::new(ACTIVE)).collect(),
        });
        for slot in &segment.slots {
            slot.store(ACTIVE, Ordering::Release);
        }
        let entry = ((number + 1) << 24) | u64::from(physical);
        self.entry(number).store(entry, Ordering::Release);
    }

    #[inline]
    fn segment(&self, physical: usize) -> Option<&Segment> {
        match self.physical.get(physical) {
            Some(place) => place.get(),
            None => self.physical_more.get()?.get(physical - self.physical.len())?.get(),
        }
    }

    /// The slot of an id, with the directory entry by which it was found.
    fn slot(&self, id: TxnId) -> Option<(&AtomicU64, u64)> {
        let number = id.0 >> self.shift;
        let entry = self.entry(number).load(Ordering::Acquire);
        if entry >> 24 != number + 1 {
            return None;
        }
        let segment = self.segment((entry & 0xff_ffff) as usize)?;
        Some((&segment.slots[(id.0 & (self.segment_ids() - 1)) as usize], entry))
    }

    fn word(&self, id: TxnId) -> Option<u64> {
        let (slot, entry) = self.slot(id)?;
        let word = slot.load(Ordering::Acquire);
        // The segment may have been recycled meanwhile: then the entry has changed.
        let same = self.entry(id.0 >> self.shift).load(Ordering::Acquire) == entry;
        same.then_some(word)
    }

    pub fn state(&self, id: TxnId) -> TxnState {
        if id == TxnId::ZERO {
            return TxnState::Committed(Lsn::ZERO);
        }
        if let Some(word) = self.word(id) {
            return decode(word);
        }
        let facts = self.facts.read();
        if let Some(exception) = facts.exceptions.get(&id) {
            return exception.state;
        }
        match facts.spans.of(id.0 >> self.shift) {
            Some(span) => TxnState::Committed(span.low),
            // Above the floor there is always a slot or a range, once the id is assigned.
            None if id.0 >= self.floor.load(Ordering::Acquire) => TxnState::Active,
            None => TxnState::Committed(Lsn::ZERO),
        }
    }

    /// Sets the state of an assigned id. The caller owns the transaction.
    pub fn set(&self, id: TxnId, state: TxnState) {
        // Segments retire under the write lock of the facts, and only without undecided ids or with
        // these as exceptions. While the lock is held the place cannot move.
        let mut facts = self.facts.write();
        if let Some(exception) = facts.exceptions.get_mut(&id) {
            exception.state = state;
        } else if let Some((slot, _)) = self.slot(id) {
            let kept = slot.load(Ordering::Acquire) & DEAD;
            slot.store(encode(state) | kept, Ordering::Release);
            if state == TxnState::Aborted {
                facts.aborted.insert(id, None);
            }
        } else {
            facts.exceptions.insert(id, Exception { state, ended: None });
        }
    }

    /// Aborted and fully rolled back: the END record is at `lsn`.
    pub fn set_ended(&self, id: TxnId, lsn: Lsn) {
        let mut facts = self.facts.write();
        match facts.exceptions.get_mut(&id) {
            Some(exception) => exception.ended = Some(lsn),
            None => {
                facts.aborted.insert(id, Some(lsn));
            }
        }
    }

    /// Adds a dead range; neighbouring ranges are joined.
    pub fn add_dead(&self, id: TxnId, from: UndoNo, below: UndoNo) {
        if from >= below {
            return;
        }
        let mut dead = self.dead.write();
        let ranges = dead.entry(id).or_default();
        ranges.push((from, below));
        ranges.sort_unstable();
        let mut merged: Vec<DeadRange> = Vec::with_capacity(ranges.len());
        for &(from, below) in ranges.iter() {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(below),
                _ => merged.push((from, below)),
            }
        }
        *ranges = merged;
        self.dead_ids.store(dead.len(), Ordering::Release);
        drop(dead);
        let facts = self.facts.write();
        if let Some((slot, _)) = self.slot(id)
            && !facts.exceptions.contains_key(&id)
        {
            slot.fetch_or(DEAD, Ordering::AcqRel);
        }
    }

    pub fn is_dead(&self, id: TxnId, no: UndoNo) -> bool {
        if let Some(word) = self.word(id) {
            return word & STATE_MASK == ABORTED || (word & DEAD != 0 && self.in_dead(id, no));
        }
        self.state(id) == TxnState::Aborted || self.in_dead(id, no)
    }

    /// True if the operation itself was undone, whatever the outcome of its transaction.
    pub fn in_dead_range(&self, id: TxnId, no: UndoNo) -> bool {
        self.in_dead(id, no)
    }

    fn in_dead(&self, id: TxnId, no: UndoNo) -> bool {
        if self.dead_ids.load(Ordering::Acquire) == 0 {
            return false;
        }
        let dead = self.dead.read();
        let Some(ranges) = dead.get(&id) else { return false };
        let after = ranges.partition_point(|&(from, _)| from <= no);
        after > 0 && no < ranges[after - 1].1
    }

    pub fn dead_ranges(&self, id: TxnId) -> Vec<DeadRange> {
        self.dead.read().get(&id).cloned().unwrap_or_default()
    }

    /// Removes ids, or replaces their timestamps by a common one, segment by segment. Returns true
    /// if something was removed.
    pub fn trim(&self, trim: &Trim<'_>) -> bool {
        let may_leave = |id: TxnId, state: TxnState, ended: Option<Lsn>| {
            let over = match state {
                TxnState::Committed(cts) => cts < trim.gone,
                TxnState::Aborted => ended.is_some_and(|lsn| lsn < trim.gone),
                TxnState::Active | TxnState::Prepared => false,
            };
            // A committed id without dead ranges reads the same when it is absent.
            let plain = matches!(state, TxnState::Committed(_)) && !self.has_dead(id);
            over && (plain || !(trim.keep)(id))
        };
        let mut left = self.retire_some(trim, &may_leave);
        let mut facts = self.facts.write();
        if facts.spans.len() > 0 {
            left |= facts.spans.tidy(trim.separators, self.lowest(), trim.gone);
        }
        let mut removed = Vec::new();
        let Facts { exceptions, spans, .. } = &mut *facts;
        exceptions.retain(|id, e| {
            let number = id.0 >> self.shift;
            // In a range it reads as the others, which may be newer.
            let keep = match (spans.of(number), e.state) {
                (Some(span), TxnState::Committed(cts)) if span.high >= trim.gone => {
                    let changed = cts > Lsn::ZERO;
                    let is_flushed = cts < trim.flushed && !self.has_dead(*id);
                    changed && !(is_flushed && spans.take_in(number, cts, trim.separators))
                }
                (Some(span), _) if span.high >= trim.gone => true,
                _ => !may_leave(*id, e.state, e.ended),
            };
            if !keep {
                removed.push(*id);
            }
            keep
        });
        drop(facts);
        self.forget_dead(&removed) || left
    }

    /// Retires segments that no memtable needs and whose commits no snapshot separates.
    fn retire_some(
        &self,
        trim: &Trim<'_>,
        may_leave: &dyn Fn(TxnId, TxnState, Option<Lsn>) -> bool,
    ) -> bool {
        let mut free = self.free.lock();
        let (mut number, mut retired, mut needed) = (self.lowest(), 0, 0);
        // All its ids are assigned.
        let end = self.next_id.load(Ordering::Acquire) >> self.shift;
        while number < end && needed < LOOKS && retired < RETIRES {
            let span = self.facts.read().spans.of(number);
            if let Some(span) = span {
                number = span.last + 1;
                continue;
            }
            match self.commits_of(&mut free, number, trim.flushed) {
                Some((low, high)) if !trim.separators.any_between(low, high) => {
                    self.retire(&mut free, number, Some((low, high)), may_leave);
                    retired += 1;
                }
                Some(_) => {}
                None => needed += 1,
            }
            number += 1;
        }
        retired > 0
    }

    /// The commits of a segment with slots, if all are below `flushed`. Undecided ids are not
    /// counted: they become exceptions when the segment retires.
    fn commits_of(&self, free: &mut FreeList, number: u64, flushed: Lsn) -> Option<Commits> {
        if let Some(known) = free.settled.get(&number) {
            return Some(*known);
        }
        let entry = self.entry(number).load(Ordering::Acquire);
        if entry >> 24 != number + 1 {
            return None;
        }
        let segment = self.segment((entry & 0xff_ffff) as usize)?;
        let (mut low, mut high, mut decided) = (Lsn::MAX, Lsn::ZERO, true);
        for (i, slot) in (0..).zip(&segment.slots) {
            match decode(slot.load(Ordering::Acquire)) {
                TxnState::Committed(cts) if cts >= flushed => return None,
                TxnState::Committed(Lsn::ZERO) | TxnState::Aborted => {}
                TxnState::Committed(cts) => (low, high) = (low.min(cts), high.max(cts)),
                // There is no transaction 0.
                TxnState::Active | TxnState::Prepared => decided &= number + i == 0,
            }
        }
        let commits = (low.min(high), high);
        if decided {
            free.settled.insert(number, commits);
        }
        Some(commits)
    }

    /// Frees the slots of a segment. Ids that may not leave become exceptions, except committed
    /// ones if the segment becomes a range.
    fn retire(
        &self,
        free: &mut FreeList,
        number: u64,
        span: Option<Commits>,
        may_leave: &dyn Fn(TxnId, TxnState, Option<Lsn>) -> bool,
    ) {
        let first = number << self.shift;
        let mut facts = self.facts.write();
        let mut removed = Vec::new();
        let entry = self.entry(number).load(Ordering::Acquire);
        let mapped = entry >> 24 == number + 1;
        for id in (first.max(1)..first + self.segment_ids()).map(TxnId) {
            let word = self.slot(id).map_or(ACTIVE, |(slot, _)| slot.load(Ordering::Acquire));
            let state = decode(word);
            let ended = facts.aborted.remove(&id).flatten();
            // It may have committed since its segment was examined.
            if span.is_some_and(|(_, high)| word & DEAD == 0 && is_commit_until(state, high)) {
                continue;
            }
            if may_leave(id, state, ended) {
                if word & DEAD != 0 {
                    removed.push(id);
                }
            } else {
                facts.exceptions.insert(id, Exception { state, ended });
            }
        }
        if let Some((low, high)) = span {
            facts.spans.add(number, low, high);
        }
        if number == self.lowest() {
            let mut floor = number + 1;
            while let Some(span) = facts.spans.of(floor) {
                floor = span.last + 1;
            }
            self.floor.store(floor << self.shift, Ordering::Release);
        }
        if mapped {
            self.entry(number).store(0, Ordering::Release);
            free.recycled.push((entry & 0xff_ffff) as u32);
        }
        free.settled.remove(&number);
        drop(facts);
        self.forget_dead(&removed);
    }

    /// Removes their dead ranges; true if there were ids.
    fn forget_dead(&self, removed: &[TxnId]) -> bool {
        if !removed.is_empty() {
            let mut dead = self.dead.write();
            for id in removed {
                dead.remove(id);
            }
            self.dead_ids.store(dead.len(), Ordering::Release);
        }
        !removed.is_empty()
    }

    /// Memory of slots and exceptions, without that of dead ranges.
    pub fn bytes(&self) -> usize {
        let segments = self.free.lock().used as usize;
        let facts = self.facts.read();
        let exception = size_of::<(TxnId, Exception)>() * 3 / 2;
        segments * (8 << self.shift) + facts.exceptions.len() * exception
    }

    /// The ids that a checkpoint must name: those in `undecided`, aborted ones, and those with
    /// dead ranges, which pending entries in runs may need.
    pub fn for_checkpoint(&self, undecided: &[TxnId]) -> Vec<(TxnId, Exception, Vec<DeadRange>)> {
        let with_dead: Vec<TxnId> = self.dead.read().keys().copied().collect();
        let facts = self.facts.read();
        let aborted = facts.exceptions.iter().filter(|(_, e)| e.state == TxnState::Aborted);
        let mut ids: BTreeSet<TxnId> = undecided.iter().copied().collect();
        ids.extend(aborted.map(|(id, _)| *id));
        ids.extend(with_dead);
        ids.extend(facts.aborted.keys().copied());
        let known = |id: TxnId| match facts.exceptions.get(&id) {
            Some(exception) => Some(exception.clone()),
            None => self.word(id).map(|word| Exception {
                state: decode(word),
                ended: facts.aborted.get(&id).copied().flatten(),
            }),
        };
        let named: Vec<_> = ids.into_iter().filter_map(|id| Some((id, known(id)?))).collect();
        drop(facts);
        named.into_iter().map(|(id, e)| (id, e, self.dead_ranges(id))).collect()
    }

    /// Restores an id below the floor.
    pub fn restore(&self, id: TxnId, exception: Exception) {
        self.facts.write().exceptions.insert(id, exception);
    }

    /// Removes an id below the floor: it is committed and visible to all. At replay only.
    pub fn forget(&self, id: TxnId) {
        self.facts.write().exceptions.remove(&id);
        let mut dead = self.dead.write();
        dead.remove(&id);
        self.dead_ids.store(dead.len(), Ordering::Release);
    }

    pub fn has_dead(&self, id: TxnId) -> bool {
        self.dead_ids.load(Ordering::Acquire) > 0 && self.dead.read().contains_key(&id)
    }
}

#[cfg(test)]
#[path = "commit_table_tests.rs"]
mod commit_table_tests;
