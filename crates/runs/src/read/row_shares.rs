//! What estimates have found a moment ago: which share of the entries of a range are rows. Later
//! estimates of ranges within it use that, and examine no entry.
//!
//! A share is used for a range only if
//!
//! 1. it was found in a range that contains this one and has at most `WIDER` times its entries,
//! 2. no more than `KEPT_NS` have passed, and no flush, compaction or hand-over has changed what is
//!    read,
//! 3. memtables have grown by at most one entry for each `GROWN_PART` of that range.
//!
//! No more than `KEPT` are known at a time. Only `estimate` may call this.

use evenkeel_base::IndexId;
use evenkeel_base::sync::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// The shares found in a range hold for a range with half its entries.
const WIDER: u64 = 2;
/// How long shares are used.
const KEPT_NS: u64 = 1_000_000_000;
/// Entries of a range for each new entry of the memtables.
const GROWN_PART: u64 = 16;
/// Ranges whose shares are known.
const KEPT: usize = 64;

/// The result of examining some entries.
pub(crate) struct ShareAt {
    /// The key of the place.
    pub place: Vec<u8>,
    /// The part of the entries that are rows.
    pub share: f64,
    /// Entries from there to the next examined place.
    pub entries: u64,
    /// There is no further place between the two.
    pub is_last: bool,
    /// No entry was undecided, so that its share stays as it is.
    pub is_decided: bool,
}

/// What is read at a moment.
#[derive(Clone, Copy)]
pub(crate) struct ReadAt {
    /// The version of the view.
    pub version: u64,
    /// Entries in memtables.
    pub written: u64,
    pub now_ns: u64,
}

/// The shares of rows in a range, from its lower end on.
pub(crate) struct RowShares {
    pub index: IndexId,
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
    /// Entries of the range.
    pub entries: u64,
    pub moment: ReadAt,
    /// In the order of their places.
    pub seen: Vec<ShareAt>,
}

impl RowShares {
    /// True if it tells about a range of the same index with so many entries.
    fn tells(&self, low: &[u8], high: Option<&[u8]>, entries: u64, now: ReadAt) -> bool {
        let is_high_inside = match (&self.high, high) {
            (None, _) => true,
            (Some(end), Some(high)) => high <= &end[..],
            (Some(_), None) => false,
        };
        let (is_recent, is_same) = (self.is_recent(now.now_ns), self.moment.version == now.version);
        is_recent
            && is_same
            && self.entries / WIDER <= entries
            && now.written.abs_diff(self.moment.written) <= self.entries / GROWN_PART
            && &self.low[..] <= low
            && is_high_inside
    }

    fn is_recent(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.moment.now_ns) <= KEPT_NS
    }
}

/// The shares that are known, the oldest first.
#[derive(Default)]
pub(crate) struct KnownShares(Mutex<VecDeque<Arc<RowShares>>>);

impl KnownShares {
    /// Those that tell about a range.
    pub fn find(
        &self,
        index: IndexId,
        (low, high): (&[u8], Option<&[u8]>),
        entries: u64,
        now: ReadAt,
    ) -> Option<Arc<RowShares>> {
        let known = self.0.lock();
        let mut newest_first = known.iter().rev();
        newest_first.find(|k| k.index == index && k.tells(low, high, entries, now)).cloned()
    }

    /// Keeps new ones, unless undecided entries were among them.
    pub fn keep(&self, shares: &Arc<RowShares>) {
        if !shares.seen.iter().all(|seen| seen.is_decided) {
            return;
        }
        let mut known = self.0.lock();
        let now_ns = shares.moment.now_ns;
        while known.front().is_some_and(|old| known.len() >= KEPT || !old.is_recent(now_ns)) {
            known.pop_front();
        }
        known.push_back(shares.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(low: u8, high: Option<u8>, entries: u64, now_ns: u64) -> Arc<RowShares> {
        let seen =
            ShareAt { place: vec![low], share: 0.5, entries, is_last: true, is_decided: true };
        Arc::new(RowShares {
            index: IndexId(1),
            low: vec![low],
            high: high.map(|high| vec![high]),
            entries,
            moment: ReadAt { version: 1, written: 0, now_ns },
            seen: vec![seen],
        })
    }

    #[test]
    fn shares_tell_about_ranges_within_for_a_moment() {
        let known = KnownShares::default();
        known.keep(&shares(10, Some(20), 1000, 0));
        let then = ReadAt { version: 1, written: 62, now_ns: KEPT_NS };
        let finds = |index, low: u8, high: Option<u8>, entries, now| {
            let high = high.map(|high| vec![high]);
            known.find(IndexId(index), (&[low], high.as_deref()), entries, now).is_some()
        };
        assert!(finds(1, 10, Some(20), 1000, then) && finds(1, 15, Some(20), 500, then));
        assert!(!finds(2, 10, Some(20), 1000, then), "another index");
        assert!(!finds(1, 9, Some(20), 1000, then) && !finds(1, 10, None, 1000, then), "wider");
        assert!(!finds(1, 15, Some(16), 499, then), "much narrower");
        let later = [
            ReadAt { version: 2, ..then },
            ReadAt { written: 63, ..then },
            ReadAt { now_ns: KEPT_NS + 1, ..then },
        ];
        assert!(later.into_iter().all(|moment| !finds(1, 10, Some(20), 1000, moment)));
    }

    #[test]
    fn a_bounded_number_of_shares_is_kept_and_none_of_undecided_entries() {
        let known = KnownShares::default();
        let mut undecided = Arc::into_inner(shares(0, None, 100, 0)).expect("alone");
        undecided.seen[0].is_decided = false;
        known.keep(&Arc::new(undecided));
        assert_eq!(known.0.lock().len(), 0);
        (0..100).for_each(|n| known.keep(&shares(n, None, 100, 5)));
        assert_eq!(known.0.lock().len(), KEPT);
        known.keep(&shares(0, None, 100, 6 + KEPT_NS));
        assert_eq!(known.0.lock().len(), 1, "old ones leave");
    }
}
