//! The commit table: transaction id -> state and commit timestamp (protocols A1, A5).
//!
//! Ids from `floor` on have a slot, an atomic word read without a lock. Slots live in segments of
//! `SEGMENT_IDS`; a directory maps the number of a segment to a physical segment, which is recycled
//! when the floor passes it. Ids below the floor are in the map of exceptions, or absent: committed
//! and visible to every snapshot.
//!
//! Invariants: an id is copied into the exceptions before its segment leaves the directory; a slot
//! is stored only while its segment is in the directory; a segment number never comes back. So a
//! reader who finds the same directory entry before and after reading a slot read that id's slot.

use evenkeel_base::sync::{Mutex, RwLock};
use evenkeel_base::{Lsn, TxnId, TxnState, UndoNo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ids per segment.
pub(crate) const SEGMENT_IDS: u64 = 4096;
/// Segments that may be in the directory at once; beyond, the oldest goes to the exceptions.
const SEGMENTS_MAX: usize = 1 << 14;

/// Undo numbers `from <= no < below` of a transaction were reverted.
pub(crate) type DeadRange = (UndoNo, UndoNo);

/// An id that outlived its slot, or has facts beyond its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exception {
    pub state: TxnState,
    /// Aborted: the LSN of its END record, once all its rows are reverted.
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
}

pub(crate) struct CommitStates {
    next_id: AtomicU64,
    /// First id that has a slot; a multiple of `SEGMENT_IDS`.
    floor: AtomicU64,
    /// Number of the segment + 1 in the high 40 bits, physical segment in the low 24; 0: none.
    directory: Box<[AtomicU64]>,
    physical: Box<[OnceLock<Segment>]>,
    free: Mutex<FreeList>,
    facts: RwLock<Facts>,
    dead: RwLock<BTreeMap<TxnId, Vec<DeadRange>>>,
}

#[derive(Default)]
struct FreeList {
    recycled: Vec<u32>,
    used: u32,
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

impl CommitStates {
    pub fn new() -> CommitStates {
        CommitStates {
            next_id: AtomicU64::new(1),
            floor: AtomicU64::new(0),
            directory: (0..SEGMENTS_MAX).map(|_| AtomicU64::new(0)).collect(),
            physical: (0..SEGMENTS_MAX).map(|_| OnceLock::new()).collect(),
            free: Mutex::default(),
            facts: RwLock::default(),
            dead: RwLock::default(),
        }
    }

    /// Ids from `next` on are new: the floor goes up to the next segment. At restore only.
    pub fn start_ids_at(&self, next: TxnId) {
        let first = next.0.max(1).next_multiple_of(SEGMENT_IDS);
        self.next_id.fetch_max(first, Ordering::AcqRel);
        self.floor.fetch_max(first, Ordering::AcqRel);
    }

    /// An id was met in the log: at replay only. `finish_ids` begins above all of them.
    pub fn saw_id(&self, id: TxnId) {
        self.next_id.fetch_max(id.0 + 1, Ordering::AcqRel);
    }

    /// Every id met at replay is below the floor from now on.
    pub fn finish_ids(&self) {
        self.start_ids_at(self.next_id());
    }

    pub fn next_id(&self) -> TxnId {
        TxnId(self.next_id.load(Ordering::Acquire))
    }

    /// A new id, active.
    pub fn assign(&self) -> TxnId {
        let id = self.next_id.fetch_add(1, Ordering::AcqRel);
        self.ensure_segment(id / SEGMENT_IDS);
        TxnId(id)
    }

    fn entry(&self, number: u64) -> &AtomicU64 {
        &self.directory[(number % SEGMENTS_MAX as u64) as usize]
    }

    fn ensure_segment(&self, number: u64) {
        let entry = self.entry(number);
        if entry.load(Ordering::Acquire) >> 24 == number + 1 {
            return;
        }
        let mut free = self.free.lock();
        let retired = number < self.floor.load(Ordering::Acquire) / SEGMENT_IDS;
        if retired || entry.load(Ordering::Acquire) >> 24 == number + 1 {
            return;
        }
        while number.saturating_sub(self.floor.load(Ordering::Acquire) / SEGMENT_IDS)
            >= SEGMENTS_MAX as u64
        {
            self.retire_lowest(&mut free, &|_, _, _| false);
        }
        let physical = free.recycled.pop().unwrap_or_else(|| {
            free.used += 1;
            free.used - 1
        });
        let segment = self.physical[physical as usize].get_or_init(|| Segment {
            slots: (0..SEGMENT_IDS).map(|_| AtomicU64::new(ACTIVE)).collect(),
        });
        for slot in &segment.slots {
            slot.store(ACTIVE, Ordering::Release);
        }
        entry.store(((number + 1) << 24) | u64::from(physical), Ordering::Release);
    }

    /// The slot of an id, with the directory entry it was found by.
    fn slot(&self, id: TxnId) -> Option<(&AtomicU64, u64)> {
        let number = id.0 / SEGMENT_IDS;
        let entry = self.entry(number).load(Ordering::Acquire);
        if entry >> 24 != number + 1 {
            return None;
        }
        let segment = self.physical[(entry & 0xff_ffff) as usize].get()?;
        Some((&segment.slots[(id.0 % SEGMENT_IDS) as usize], entry))
    }

    fn word(&self, id: TxnId) -> Option<u64> {
        let (slot, entry) = self.slot(id)?;
        let word = slot.load(Ordering::Acquire);
        // The segment may have been recycled meanwhile: then the entry has changed.
        let same = self.entry(id.0 / SEGMENT_IDS).load(Ordering::Acquire) == entry;
        same.then_some(word)
    }

    pub fn state(&self, id: TxnId) -> TxnState {
        if id == TxnId::ZERO {
            return TxnState::Committed(Lsn::ZERO);
        }
        if let Some(word) = self.word(id) {
            return decode(word);
        }
        match self.facts.read().exceptions.get(&id) {
            Some(exception) => exception.state,
            // Above the floor there is always a slot, once the id is assigned.
            None if id.0 >= self.floor.load(Ordering::Acquire) => TxnState::Active,
            None => TxnState::Committed(Lsn::ZERO),
        }
    }

    /// Sets the state of an assigned id. The caller owns the transaction.
    pub fn set(&self, id: TxnId, state: TxnState) {
        // Only segments without undecided ids in them, or whose undecided ids are exceptions, are
        // retired, under the write lock of the facts: with it held the place cannot move.
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

    /// Aborted and fully reverted: the END record is at `lsn`.
    pub fn set_ended(&self, id: TxnId, lsn: Lsn) {
        let mut facts = self.facts.write();
        match facts.exceptions.get_mut(&id) {
            Some(exception) => exception.ended = Some(lsn),
            None => {
                facts.aborted.insert(id, Some(lsn));
            }
        }
    }

    /// Adds a dead range; neighbours merge.
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

    /// True if the operation itself was reverted, whatever became of its transaction.
    pub fn in_dead_range(&self, id: TxnId, no: UndoNo) -> bool {
        self.in_dead(id, no)
    }

    fn in_dead(&self, id: TxnId, no: UndoNo) -> bool {
        let dead = self.dead.read();
        let Some(ranges) = dead.get(&id) else { return false };
        let after = ranges.partition_point(|&(from, _)| from <= no);
        after > 0 && no < ranges[after - 1].1
    }

    pub fn dead_ranges(&self, id: TxnId) -> Vec<DeadRange> {
        self.dead.read().get(&id).cloned().unwrap_or_default()
    }

    /// Lets ids leave (A5): `gone` is a position below which neither a snapshot nor an unflushed
    /// generation needs a timestamp. Returns true if something left.
    #[cfg(test)]
    pub fn trim(&self, gone: Lsn) -> bool {
        self.trim_but(gone, &|_| false)
    }

    /// As `trim`; ids stay for which `keep` holds: runs have pending entries of theirs (D1).
    pub fn trim_but(&self, gone: Lsn, keep: &dyn Fn(TxnId) -> bool) -> bool {
        let may_leave = |id: TxnId, state: TxnState, ended: Option<Lsn>| {
            let over = match state {
                TxnState::Committed(cts) => cts < gone,
                TxnState::Aborted => ended.is_some_and(|lsn| lsn < gone),
                TxnState::Active | TxnState::Prepared => false,
            };
            // A committed one without dead ranges reads the same when it is absent.
            let plain = matches!(state, TxnState::Committed(_)) && !self.has_dead(id);
            over && (plain || !keep(id))
        };
        let mut left = false;
        {
            let mut free = self.free.lock();
            while self.lowest_is_settled(gone) {
                self.retire_lowest(&mut free, &may_leave);
                left = true;
            }
        }
        let mut facts = self.facts.write();
        let mut removed = Vec::new();
        facts.exceptions.retain(|id, e| {
            let keep = !may_leave(*id, e.state, e.ended);
            if !keep {
                removed.push(*id);
            }
            keep
        });
        drop(facts);
        if !removed.is_empty() {
            let mut dead = self.dead.write();
            for id in &removed {
                dead.remove(id);
            }
        }
        left || !removed.is_empty()
    }

    /// True if every id of the lowest segment is assigned and its committed ids may leave, so that
    /// only exceptions remain of it.
    fn lowest_is_settled(&self, gone: Lsn) -> bool {
        let floor = self.floor.load(Ordering::Acquire);
        let number = floor / SEGMENT_IDS;
        if floor + SEGMENT_IDS > self.next_id.load(Ordering::Acquire)
            || self.entry(number).load(Ordering::Acquire) >> 24 != number + 1
        {
            return false;
        }
        (floor..floor + SEGMENT_IDS).all(|id| match self.word(TxnId(id)).map(decode) {
            Some(TxnState::Committed(cts)) => cts < gone,
            _ => true,
        })
    }

    /// Moves the floor up by one segment; ids that may not leave become exceptions.
    fn retire_lowest(
        &self,
        free: &mut FreeList,
        may_leave: &dyn Fn(TxnId, TxnState, Option<Lsn>) -> bool,
    ) {
        let floor = self.floor.load(Ordering::Acquire);
        let number = floor / SEGMENT_IDS;
        let mut facts = self.facts.write();
        let mut removed = Vec::new();
        let entry = self.entry(number).load(Ordering::Acquire);
        let mapped = entry >> 24 == number + 1;
        for id in (floor.max(1)..floor + SEGMENT_IDS).map(TxnId) {
            let word = self.slot(id).map_or(ACTIVE, |(slot, _)| slot.load(Ordering::Acquire));
            let state = decode(word);
            let ended = facts.aborted.remove(&id).flatten();
            if may_leave(id, state, ended) {
                if word & DEAD != 0 {
                    removed.push(id);
                }
            } else {
                facts.exceptions.insert(id, Exception { state, ended });
            }
        }
        self.floor.store(floor + SEGMENT_IDS, Ordering::Release);
        if mapped {
            self.entry(number).store(0, Ordering::Release);
            free.recycled.push((entry & 0xff_ffff) as u32);
        }
        drop(facts);
        if !removed.is_empty() {
            let mut dead = self.dead.write();
            for id in &removed {
                dead.remove(id);
            }
        }
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

    /// Forgets an id below the floor: it is committed and visible to all. At replay only.
    pub fn forget(&self, id: TxnId) {
        self.facts.write().exceptions.remove(&id);
        self.dead.write().remove(&id);
    }

    pub fn has_dead(&self, id: TxnId) -> bool {
        self.dead.read().contains_key(&id)
    }
}

#[cfg(test)]
#[path = "commit_table_tests.rs"]
mod commit_table_tests;
