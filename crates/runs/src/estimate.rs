//! How many rows a range of an index holds, about. Fences and leaves of memtables tell how many
//! *entries* lie in it: those of deletes, those that others have taken the place of and those of
//! transactions that were rolled back included. Where these may be many, cursors look at a few
//! entries at places all over the range, drawn by where entries are, and the share of rows among
//! them stands for the others.
//!
//! Bounds: at most `counted_max` rows and `ENTRIES_EACH` times as many entries are counted, and
//! `ENTRIES_SEEN` entries at `PLACES` places are looked at, whatever the index holds.

use crate::cursor::IndexCursor;
use crate::file::Segment;
use crate::memtable::Memtable;
use crate::{Direction, KeyRange, Runs};
use evenkeel_base::{IndexId, Result, Snapshot};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// A range that holds so many times the entries of the rows that would be counted is not counted.
const ENTRIES_EACH: u64 = 8;
/// Places of a range that are looked at.
const PLACES: u64 = 16;
/// Entries that are looked at, at all places together.
const ENTRIES_SEEN: u64 = 1024;
/// Entries of which no more than one in so many can be no row, or take one away, count as rows.
const FEW: u64 = 8;

/// Sorted entries of one source in a range.
enum Part {
    Run(Arc<Segment>, Vec<u8>),
    Memory(Arc<Memtable>),
}

/// The entries of a range.
struct Entries {
    index: IndexId,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    parts: Vec<(Part, u64)>,
    count: u64,
    /// Those that may be no row.
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

    /// A key with about `before` of the entries before it.
    fn key_at(&self, mut before: u64) -> Result<Option<Vec<u8>>> {
        let high = self.high.as_deref();
        for (part, count) in &self.parts {
            if before >= *count {
                before -= count;
                continue;
            }
            let thousandths = (u128::from(before) * 1000 / u128::from(*count)) as usize;
            return match part {
                Part::Run(segment, low) => segment.key_at(low, high, thousandths).map(Some),
                Part::Memory(memtable) => {
                    Ok(memtable.key_at(self.index, (&self.low, high), thousandths))
                }
            };
        }
        Ok(None)
    }
}

impl Runs {
    /// About how many rows a range holds for a snapshot: counted, if they are fewer than
    /// `counted_max` and not too many other entries lie among them; else estimated. Never 0 unless
    /// certain: what others have not decided yet may become one.
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
        let entries = self.entries_of(index, low, high)?;
        let mut counted = 0;
        if entries.count < ENTRIES_EACH * counted_max {
            let mut cursor = self.estimating(&entries, range.clone(), snapshot);
            cursor.set_limit(ENTRIES_EACH * counted_max);
            while counted < counted_max && cursor.next()?.is_some() {
                counted += 1;
            }
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

    /// What fences and leaves tell of a range.
    fn entries_of(&self, index: IndexId, low: Vec<u8>, high: Option<Vec<u8>>) -> Result<Entries> {
        let view = self.view(index)?;
        let (parts, count, doubtful) = (Vec::new(), 0, 0);
        let mut entries = Entries { index, low, high, parts, count, doubtful };
        for run in &*view.runs {
            let low = entries.low.clone().max(run.low.clone());
            for segment in &run.segments {
                let there = segment.entries_between(&low, entries.high.as_deref())?;
                let info = &segment.info;
                let doubtful = match info.pending.is_empty() {
                    // Each delete takes another entry away. What is superseded is told only by who
                    // wrote the segment in this life; for the others their deletes stand.
                    true => info.deletes.saturating_mul(2).max(info.superseded),
                    false => there,
                };
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

    /// About how many of the entries are rows, by looks at some of them.
    fn rows_among(self: &Arc<Self>, entries: &Entries, snapshot: Snapshot) -> Result<u64> {
        let mut places = BTreeSet::new();
        for i in 0..PLACES {
            let before = u128::from(entries.count) * u128::from(2 * i + 1) / u128::from(2 * PLACES);
            places.extend(entries.key_at(before as u64)?);
        }
        let (mut share, mut looks) = (0.0, 0.0);
        let limit = ENTRIES_SEEN / (places.len() as u64).max(1);
        let upper = entries.high.clone().map_or(Bound::Unbounded, Bound::Excluded);
        for place in places {
            let range = KeyRange { lower: Bound::Included(place), upper: upper.clone() };
            let mut cursor = self.estimating(entries, range, snapshot);
            cursor.set_limit(limit);
            let mut rows = 0u64;
            while cursor.next()?.is_some() {
                rows += 1;
            }
            if cursor.passed() > 0 {
                share += rows as f64 / cursor.passed() as f64;
                looks += 1.0;
            }
        }
        Ok((entries.count as f64 * share / f64::max(looks, 1.0)) as u64)
    }
}
