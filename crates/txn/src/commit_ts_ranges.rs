//! Commit timestamp ranges of the commit table (RFC 17): neighbouring segments of ids whose commits
//! no snapshot separates, kept as one entry for any number of transactions.
//!
//! Invariant: no snapshot, present or future, lies in `low <= s < high` of a range (`Separators`).
//! So for each of its transactions `low` gives the same answers as the own timestamp: to snapshots,
//! to the horizon, and whether a snapshot lies between it and another commit. `low` is never above
//! the true timestamp, so where one event must follow another (FRESH after VALID) a commit appears
//! older at worst.

use evenkeel_base::Lsn;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitTsRange {
    /// Number of its last segment.
    pub last: u64,
    /// The least commit timestamp in it. Zero: it has no commits, and each id that leaves the
    /// exceptions is visible to all.
    pub low: Lsn,
    /// The greatest.
    pub high: Lsn,
}

impl CommitTsRange {
    fn with(self, next: CommitTsRange) -> CommitTsRange {
        CommitTsRange {
            last: next.last,
            low: self.low.min(next.low),
            high: self.high.max(next.high),
        }
    }
}

/// The commits that snapshots separate, as `Snapshots` saw them at one moment. This stays true for
/// commits published before that moment: later snapshots see all of them.
#[derive(Debug, Default)]
pub(crate) struct Separators {
    /// Commits above this were not published.
    pub published: Lsn,
    /// Ascending.
    pub at: Vec<Lsn>,
    /// Lower bound of snapshots that are being registered and may end anywhere above it.
    pub rising: Option<Lsn>,
}

impl Separators {
    /// True if some snapshot `s` may have `low <= s < high`.
    pub fn any_between(&self, low: Lsn, high: Lsn) -> bool {
        if self.published < high || self.rising.is_some_and(|at| at < high) {
            return true;
        }
        let first = self.at.partition_point(|at| *at < low);
        self.at.get(first).is_some_and(|at| *at < high)
    }
}

/// Ranges by the number of their first segment; they do not overlap.
#[derive(Debug, Default)]
pub(crate) struct CommitTsRanges {
    by_first: BTreeMap<u64, CommitTsRange>,
}

impl CommitTsRanges {
    /// The range that contains a segment.
    pub fn of(&self, segment: u64) -> Option<CommitTsRange> {
        let (_, span) = self.by_first.range(..=segment).next_back()?;
        (segment <= span.last).then_some(*span)
    }

    /// Makes a range of a segment that was in none.
    pub fn add(&mut self, segment: u64, low: Lsn, high: Lsn) {
        self.by_first.insert(segment, CommitTsRange { last: segment, low, high });
    }

    /// Extends the range of a segment by a commit, if no snapshot separates it from the others.
    pub fn take_in(&mut self, segment: u64, cts: Lsn, separators: &Separators) -> bool {
        let Some((_, span)) = self.by_first.range_mut(..=segment).next_back() else { return false };
        let wider = CommitTsRange { low: span.low.min(cts), high: span.high.max(cts), ..*span };
        let fits = segment <= span.last && !separators.any_between(wider.low, wider.high);
        if fits {
            *span = wider;
        }
        fits
    }

    /// Joins neighbours that no snapshot separates, and removes ranges below `floor` whose commits
    /// are all below `gone`. True if something was removed.
    pub fn tidy(&mut self, separators: &Separators, floor: u64, gone: Lsn) -> bool {
        let before = self.by_first.len();
        let spans = std::mem::take(&mut self.by_first);
        for (first, span) in spans {
            if span.last < floor && span.high < gone {
                continue;
            }
            if let Some(mut entry) = self.by_first.last_entry()
                && entry.get().last + 1 == first
            {
                let joined = entry.get().with(span);
                if !separators.any_between(joined.low, joined.high) {
                    entry.insert(joined);
                    continue;
                }
            }
            self.by_first.insert(first, span);
        }
        self.by_first.len() < before
    }

    pub fn len(&self) -> usize {
        self.by_first.len()
    }
}
