//! Spans of the commit table (RFC 17): neighbouring segments of ids whose commits no snapshot tells
//! apart, kept as one entry however many transactions they are.
//!
//! Invariant: no snapshot, present or future, lies in `low <= s < high` of a span (`Separators`).
//! So `low` says of each of its transactions what its own timestamp would: to snapshots, to the
//! horizon, and whether a snapshot lies between it and another. It is never above the true one, so
//! what must have happened after something (FRESH after VALID) is taken for older at worst.

use evenkeel_base::Lsn;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitTsRange {
    /// Number of its last segment.
    pub last: u64,
    /// The least commit timestamp in it; zero: of none, and then each id that leaves the exceptions
    /// is visible to all.
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

/// Where the commits lie that snapshots must tell apart: what `Snapshots` saw at one moment. It
/// stays true for commits published before that moment: snapshots that come later see them all.
#[derive(Debug, Default)]
pub(crate) struct Separators {
    /// Commits above were not published.
    pub published: Lsn,
    /// Ascending.
    pub at: Vec<Lsn>,
    /// Lower bound of snapshots on their way, which may end anywhere above it.
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

/// Spans by the number of their first segment; they do not overlap.
#[derive(Debug, Default)]
pub(crate) struct CommitTsRanges {
    by_first: BTreeMap<u64, CommitTsRange>,
}

impl CommitTsRanges {
    /// The span that a segment is in.
    pub fn of(&self, segment: u64) -> Option<CommitTsRange> {
        let (_, span) = self.by_first.range(..=segment).next_back()?;
        (segment <= span.last).then_some(*span)
    }

    /// A segment that was in none is one from now on.
    pub fn add(&mut self, segment: u64, low: Lsn, high: Lsn) {
        self.by_first.insert(segment, CommitTsRange { last: segment, low, high });
    }

    /// Takes a commit in a segment of a span into it, if no snapshot tells it from the others.
    pub fn take_in(&mut self, segment: u64, cts: Lsn, separators: &Separators) -> bool {
        let Some((_, span)) = self.by_first.range_mut(..=segment).next_back() else { return false };
        let wider = CommitTsRange { low: span.low.min(cts), high: span.high.max(cts), ..*span };
        let fits = segment <= span.last && !separators.any_between(wider.low, wider.high);
        if fits {
            *span = wider;
        }
        fits
    }

    /// Joins neighbours that no snapshot tells apart, and forgets those of segments below `floor`
    /// whose commits are all below `gone`. True if something went.
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
