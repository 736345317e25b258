//! Estimates the number of rows in a range of an index. Fences and leaves of memtables give the
//! number of *entries*, including entries of deletes, superseded entries and entries of aborted
//! transactions. If these may be many, cursors examine a few entries at places spread over the
//! range, chosen by the positions of entries, and the share of rows among them is applied to the
//! others.
//!
//! What was found serves estimates of ranges within for a moment (`row_shares`).
//!
//! A short range is not read: the positions of its ends in the blocks of runs give the number of
//! its entries (`positions`), as long as few of them may not be rows. Otherwise a cursor counts.
//!
//! Bounds: at most `counted_max` rows and `ENTRIES_EACH` times as many entries are counted, of each
//! run at most two blocks are read for positions. At most
//! `ENTRIES_SEEN` entries at `PLACES` places are examined, and at each of a few more places as many
//! as at one of these, whatever the size of the index.

use crate::memtable::Memtable;
use crate::read::cursor::IndexCursor;
use crate::read::positions::Counted;
use crate::read::row_shares::{ReadAt, RowShares, ShareAt};
use crate::run::file::RunSegment;
use crate::{Direction, KeyRange, Runs};
use evenkeel_base::{IndexId, Lsn, Result, Snapshot, UndoNo, metrics::Metric};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// A range with this many times the entries of the rows to be counted is not counted.
const ENTRIES_EACH: u64 = 8;
/// Places of a range that are examined.
const PLACES: u64 = 16;
/// Entries that are examined at these places together.
const ENTRIES_SEEN: u64 = 1024;
/// Additional places, where rows begin or end within the range, that is, where neighbouring shares
/// of rows differ by this factor.
const PLACES_BETWEEN: u64 = 8;
const UNEVEN_TIMES: f64 = 4.0;
/// No additional place is looked for among fewer entries.
const ENTRIES_BETWEEN: u64 = 4 * ENTRIES_SEEN / PLACES;
/// Attempts, at most, if flushes and compactions interrupt.
const LOOKS: u32 = 4;
/// All entries count as rows if at most one in this many may not be a row or may remove one.
pub(crate) const FEW: u64 = 8;

/// The mark of a reader that has changed nothing.
const UNDO_NONE: UndoNo = UndoNo(1);

/// Sorted entries of one source in a range.
enum Part {
    Run(Arc<RunSegment>, Vec<u8>),
    Memory(Arc<Memtable>),
}

/// What is among some entries.
struct Examined {
    rows: u64,
    entries: u64,
    is_decided: bool,
}

/// The place behind which an additional one helps most: the share of the next place differs most.
fn steepest(seen: &[ShareAt]) -> Option<usize> {
    let step = |at: usize| {
        let (a, b) = (&seen[at], &seen[at + 1]);
        let (fewest, most) = (a.share.min(b.share), a.share.max(b.share));
        let is_steep = fewest * UNEVEN_TIMES < most && a.entries >= ENTRIES_BETWEEN && !a.is_last;
        is_steep.then_some((most - fewest) * a.entries as f64)
    };
    let steps = (1..seen.len()).filter_map(|at| Some((at - 1, step(at - 1)?)));
    steps.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}

/// The lower of two upper ends of ranges.
fn lower_end<'k>(a: Option<&'k [u8]>, b: Option<&'k [u8]>) -> Option<&'k [u8]> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (end, None) | (None, end) => end,
    }
}

/// How many of so many entries of a segment may not be rows, or may remove one.
fn doubtful_of(segment: &RunSegment, there: u64) -> u64 {
    let info = &segment.info;
    match info.pending.is_empty() {
        // Each delete removes another entry. Superseded entries are known only for segments
        // written since the open; for other segments their deletes are used.
        true => info.deletes.saturating_mul(2).max(info.superseded).min(there),
        false => there,
    }
}

/// The entries of a range.
struct Entries {
    index: IndexId,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    moment: ReadAt,
    parts: Vec<(Part, u64)>,
    count: u64,
    /// Entries that may not be rows.
    doubtful: u64,
}

impl Entries {
    fn add(&mut self, part: Part, count: u64, doubtful: u64) {
        if count > 0 {
            self.parts.push((part, count));
            self.count += count;
            self.doubtful += doubtful.min(count);
        }
    }

    /// The entries in a part of the range.
    fn within(&self, low: &[u8], high: Option<&[u8]>) -> Result<Entries> {
        let mut found = Entries {
            index: self.index,
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
            moment: self.moment,
            parts: Vec::new(),
            count: 0,
            doubtful: 0,
        };
        for (part, _) in &self.parts {
            match part {
                Part::Run(segment, from) => {
                    let low = from.clone().max(low.to_vec());
                    let there = segment.entries_between(&low, high)?;
                    found.add(Part::Run(segment.clone(), low), there, there);
                }
                Part::Memory(memtable) => {
                    let there = memtable.estimate(self.index, low, high);
                    found.add(Part::Memory(memtable.clone()), there, there);
                }
            }
        }
        Ok(found)
    }

    /// Counts the entries from one examined place to the next.
    fn count_behind(&self, seen: &mut [ShareAt], at: usize) -> Result<()> {
        let next = seen.get(at + 1).map_or(self.high.as_deref(), |next| Some(&next.place[..]));
        let count = self.within(&seen[at].place, next)?.count;
        seen[at].entries = count;
        Ok(())
    }

    /// The approximate number of rows among them, by the shares of a range that contains this one.
    fn rows_by(&self, shares: &RowShares) -> Result<u64> {
        let seen = &shares.seen;
        let (mut rows, mut all) = (0.0, 0.0);
        let first = seen.partition_point(|one| one.place <= self.low).saturating_sub(1);
        for (at, one) in seen.iter().enumerate().skip(first) {
            let next = seen.get(at + 1);
            let end = next.map_or(shares.high.as_deref(), |next| Some(&next.place[..]));
            let low = (&one.place[..]).max(&self.low[..]);
            let high = lower_end(end, self.high.as_deref());
            if high.is_some_and(|high| high <= low) {
                break;
            }
            let is_whole = low == one.place && high == end;
            let entries = if is_whole { one.entries } else { self.within(low, high)?.count };
            rows += entries as f64 * (one.share + next.unwrap_or(one).share) / 2.0;
            all += entries as f64;
        }
        Ok((self.count as f64 * rows / f64::max(all, 1.0)) as u64)
    }

    /// A key between the ends, in the middle of the largest part that has one.
    fn middle(&self) -> Result<Option<Vec<u8>>> {
        let mut largest_first: Vec<&(Part, u64)> = self.parts.iter().collect();
        largest_first.sort_by_key(|(_, count)| Reverse(*count));
        let is_between =
            |key: &Vec<u8>| self.low < *key && self.high.as_ref().is_none_or(|high| key < high);
        for (part, _) in largest_first {
            if let Some(key) = self.key_of(part, 500)?.filter(is_between) {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// The greatest of the keys near the last entries of the parts.
    fn last_key(&self) -> Result<Option<Vec<u8>>> {
        let mut last = None;
        for (part, _) in &self.parts {
            last = last.max(self.key_of(part, 999)?);
        }
        Ok(last)
    }

    /// A key with this many thousandths of a part's entries before it.
    fn key_of(&self, part: &Part, thousandths: usize) -> Result<Option<Vec<u8>>> {
        let high = self.high.as_deref();
        match part {
            Part::Run(segment, low) => segment.key_at(low, high, thousandths).map(Some),
            Part::Memory(memtable) => {
                Ok(memtable.key_at(self.index, (&self.low, high), thousandths))
            }
        }
    }

    /// A key with about `before` of the entries before it.
    fn key_at(&self, mut before: u64) -> Result<Option<Vec<u8>>> {
        for (part, count) in &self.parts {
            if before >= *count {
                before -= count;
                continue;
            }
            let thousandths = (u128::from(before) * 1000 / u128::from(*count)) as usize;
            return self.key_of(part, thousandths);
        }
        Ok(None)
    }
}

impl Runs {
    /// The approximate number of rows in a range for a snapshot: counted if they are fewer than
    /// `counted_max` and few other entries lie among them; otherwise estimated. Never 0 unless
    /// certain, because undecided entries of others may become rows.
    ///
    /// # Errors
    /// Of reading and decoding storage; `NotFound` if there is no such index.
    pub fn estimate(
        self: &Arc<Self>,
        index: IndexId,
        range: &KeyRange,
        snapshot: Snapshot,
        counted_max: u64,
    ) -> Result<u64> {
        let (low, high) = range.clone().resolve();
        if high.as_ref().is_some_and(|high| *high <= low) {
            return Ok(0);
        }
        let mut looks = 1;
        loop {
            let version = self.view_version();
            let rows = self.estimate_once(
                (index, low.clone(), high.clone()),
                range,
                snapshot,
                counted_max,
            )?;
            // A share found in a later view, after a flush or compaction, does not apply to the
            // entries of an earlier one.
            if looks == LOOKS || self.view_version() == version {
                return Ok(rows);
            }
            looks += 1;
        }
    }

    fn estimate_once(
        self: &Arc<Self>,
        (index, low, high): (IndexId, Vec<u8>, Option<Vec<u8>>),
        range: &KeyRange,
        snapshot: Snapshot,
        counted_max: u64,
    ) -> Result<u64> {
        let entries = self.entries_of(index, low, high)?;
        let mut counted = 0;
        if entries.count < ENTRIES_EACH * counted_max {
            let few = self.count_by_positions(&entries, snapshot, ENTRIES_EACH * counted_max)?;
            if few.is_certain() {
                return Ok(few.rows.max(u64::from(few.entries > 0)));
            }
            let mut cursor = self.estimating(&entries, range.clone(), snapshot);
            cursor.set_limit(ENTRIES_EACH * counted_max);
            cursor.next_many(|_| {
                counted += 1;
                counted < counted_max
            })?;
            self.rt.metrics.add(Metric::EstimateEntries, cursor.passed());
            if counted < counted_max && !cursor.is_at_limit() {
                return Ok(counted.max(u64::from(cursor.undecided().is_some())));
            }
        }
        let rows = match entries.doubtful > entries.count / FEW {
            true => self.rows_among(&entries, snapshot)?,
            false => entries.count,
        };
        Ok(rows.max(counted).max(1))
    }

    /// The number of entries of a short range by the positions of its ends.
    fn count_by_positions(
        &self,
        entries: &Entries,
        snapshot: Snapshot,
        at_most: u64,
    ) -> Result<Counted> {
        let high = entries.high.as_deref();
        let mut all = Counted::default();
        for (part, _) in &entries.parts {
            let found = match part {
                Part::Run(segment, low) => {
                    let there = self.entries_by_position(segment, low, high)?;
                    let uncertain = doubtful_of(segment, there);
                    Counted { entries: there, rows: there, uncertain }
                }
                Part::Memory(memtable) => {
                    let range = (&entries.low[..], high);
                    let found =
                        self.entries_in_memory(memtable, entries.index, range, &snapshot, at_most);
                    self.rt.metrics.add(Metric::EstimateEntries, found.entries);
                    found
                }
            };
            all.add(found);
        }
        Ok(all)
    }

    /// The numbers of a range from fences and leaves.
    fn entries_of(&self, index: IndexId, low: Vec<u8>, high: Option<Vec<u8>>) -> Result<Entries> {
        let view = self.view(index)?;
        let (parts, count, doubtful) = (Vec::new(), 0, 0);
        let written = view.memtables.iter().map(|memtable| memtable.entries()).sum();
        let moment = ReadAt { version: view.version, written, now_ns: self.now_ns() };
        let mut entries = Entries { index, low, high, moment, parts, count, doubtful };
        for run in &*view.runs {
            let low = entries.low.clone().max(run.low.clone());
            for segment in &run.segments {
                let there = segment.entries_within(&low, entries.high.as_deref())?;
                let doubtful = doubtful_of(segment, there);
                entries.add(Part::Run(segment.clone(), low.clone()), there, doubtful);
            }
        }
        for memtable in &*view.memtables {
            let there = memtable.estimate(index, &entries.low, entries.high.as_deref());
            entries.add(Part::Memory(memtable.clone()), there, there);
        }
        Ok(entries)
    }

    /// A cursor that does not count as a reader of the index.
    fn estimating(
        self: &Arc<Self>,
        entries: &Entries,
        range: KeyRange,
        snapshot: Snapshot,
    ) -> IndexCursor {
        IndexCursor::new(self.clone(), entries.index, range, Direction::Forward, snapshot)
    }

    /// The approximate number of rows among the entries, by shares that are known or found now.
    fn rows_among(self: &Arc<Self>, entries: &Entries, snapshot: Snapshot) -> Result<u64> {
        // Changes that the reader has made and not committed count for nobody else.
        let is_common = snapshot.at == Lsn::MAX && snapshot.own_below <= UNDO_NONE;
        let Entries { index, low, high, count, moment, .. } = entries;
        let range = (&low[..], high.as_deref());
        if is_common && let Some(known) = self.row_shares.find(*index, range, *count, *moment) {
            return entries.rows_by(&known);
        }
        let seen = self.shares(entries, snapshot)?;
        let (low, high) = (low.clone(), high.clone());
        let (index, count, moment) = (*index, *count, *moment);
        let found = Arc::new(RowShares { index, low, high, entries: count, moment, seen });
        if is_common {
            self.row_shares.keep(&found);
        }
        entries.rows_by(&found)
    }

    /// The shares of rows at places all over the range, and at more places between neighbours with
    /// very different shares.
    fn shares(self: &Arc<Self>, entries: &Entries, snapshot: Snapshot) -> Result<Vec<ShareAt>> {
        let mut places = BTreeSet::from([entries.low.clone()]);
        for i in 0..PLACES {
            let before = u128::from(entries.count) * u128::from(2 * i + 1) / u128::from(2 * PLACES);
            places.extend(entries.key_at(before as u64)?);
        }
        places.extend(entries.last_key()?);
        let mut seen = Vec::new();
        for place in places {
            seen.extend(self.look_at(entries, place, snapshot)?);
        }
        (0..seen.len()).try_for_each(|at| entries.count_behind(&mut seen, at))?;
        for _ in 0..PLACES_BETWEEN {
            let Some(at) = steepest(&seen) else { break };
            let between = entries.within(&seen[at].place, Some(&seen[at + 1].place))?;
            match between
                .middle()?
                .map(|key| self.look_at(entries, key, snapshot))
                .transpose()?
                .flatten()
            {
                Some(one) => seen.insert(at + 1, one),
                None => seen[at].is_last = true,
            }
            entries.count_behind(&mut seen, at)?;
            entries.count_behind(&mut seen, at + 1)?;
        }
        Ok(seen)
    }

    /// The share of rows among the entries from a place on; `None` if there are none.
    fn look_at(
        self: &Arc<Self>,
        entries: &Entries,
        place: Vec<u8>,
        snapshot: Snapshot,
    ) -> Result<Option<ShareAt>> {
        let found = self.examine(entries, place.clone(), snapshot, ENTRIES_SEEN / PLACES)?;
        let share = found.rows as f64 / found.entries.max(1) as f64;
        let is_decided = found.is_decided;
        let seen = ShareAt { place, share, entries: 0, is_last: false, is_decided };
        Ok((found.entries > 0).then_some(seen))
    }

    /// Examines up to `at_most` entries from a place on.
    fn examine(
        self: &Arc<Self>,
        entries: &Entries,
        place: Vec<u8>,
        snapshot: Snapshot,
        at_most: u64,
    ) -> Result<Examined> {
        let upper = entries.high.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let range = KeyRange { lower: Bound::Included(place), upper };
        let mut cursor = self.estimating(entries, range, snapshot);
        cursor.set_limit(at_most);
        let mut rows = 0;
        cursor.next_many(|_| {
            rows += 1;
            true
        })?;
        self.rt.metrics.add(Metric::EstimateEntries, cursor.passed());
        let is_decided = cursor.undecided().is_none();
        Ok(Examined { rows, entries: cursor.passed(), is_decided })
    }
}
