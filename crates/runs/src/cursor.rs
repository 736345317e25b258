//! A cursor over one index at a snapshot: merge of memtables and runs, visible live entries only,
//! both directions, covering.
//!
//! It keeps a key, not a view (D6): when memtables or runs changed, after 100 ms, or after
//! [`IndexCursor::park`], it takes the present view and seeks behind its last key. An entry is
//! returned only if the view was still the present one after its visibility was judged: so a
//! transaction whose entries a flush has dropped may leave the commit table (A5).

use crate::source::{Direction, Merger};
use crate::{Runs, source::Item};
use evenkeel_base::{IndexId, Result, Snapshot, TxnId, metrics::Metric};
use evenkeel_format::record::entry_op;
use std::ops::Bound;
use std::sync::Arc;

const VIEW_NS_MAX: u64 = 100_000_000;
const CLOCK_EVERY: u32 = 256;

/// A range of an index. Bounds are prefixes of `column bytes ++ pk`: `Included` takes in every key
/// that starts with the bound, `Excluded` leaves all of them out.
#[derive(Clone, Debug)]
pub struct KeyRange {
    /// Lower end.
    pub lower: Bound<Vec<u8>>,
    /// Upper end.
    pub upper: Bound<Vec<u8>>,
}

impl KeyRange {
    /// The whole index.
    pub fn all() -> KeyRange {
        KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// Every key that starts with `prefix`.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        KeyRange {
            lower: Bound::Included(prefix.to_vec()),
            upper: Bound::Included(prefix.to_vec()),
        }
    }

    /// As plain byte bounds: from `low` on, below `high` (`None`: to the end).
    pub(crate) fn resolve(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let low = match &self.lower {
            Bound::Unbounded => Some(Vec::new()),
            Bound::Included(key) => Some(key.clone()),
            Bound::Excluded(key) => prefix_end(key),
        };
        let high = match &self.upper {
            Bound::Unbounded => None,
            Bound::Included(key) => prefix_end(key),
            Bound::Excluded(key) => Some(key.clone()),
        };
        // No prefix end above the lower bound: an empty range.
        match low {
            Some(low) => (low, high),
            None => (Vec::new(), Some(Vec::new())),
        }
    }
}

/// The smallest byte string above every string that starts with `prefix`.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|b| *b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// A visible, live entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// Column bytes.
    pub key: &'a [u8],
    /// Clustered key.
    pub pk: &'a [u8],
    /// Stored bytes.
    pub value: &'a [u8],
}

/// A cursor over one index.
pub struct IndexCursor {
    runs: Arc<Runs>,
    index: IndexId,
    snapshot: Snapshot,
    direction: Direction,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    merger: Option<Merger>,
    view_version: u64,
    view_until_ns: u64,
    calls: u32,
    /// The last key that was decided (returned, or found deleted).
    key: Vec<u8>,
    pk_len: usize,
    has_key: bool,
    value: Vec<u8>,
    done: bool,
    skipped: u64,
    undecided: Option<TxnId>,
}

impl IndexCursor {
    pub(crate) fn new(
        runs: Arc<Runs>,
        index: IndexId,
        range: &KeyRange,
        direction: Direction,
        snapshot: Snapshot,
    ) -> IndexCursor {
        let (low, high) = range.resolve();
        let done = high.as_ref().is_some_and(|high| *high <= low);
        IndexCursor {
            runs,
            index,
            snapshot,
            direction,
            low,
            high,
            merger: None,
            view_version: 0,
            view_until_ns: 0,
            calls: 0,
            key: Vec::new(),
            pk_len: 0,
            has_key: false,
            value: Vec::new(),
            done,
            skipped: 0,
            undecided: None,
        }
    }

    /// A transaction that has an undecided entry, INS or DEL, among those passed so far, the
    /// snapshot's own apart: a locking read waits for it and reads again (A7).
    pub fn undecided(&self) -> Option<TxnId> {
        self.undecided
    }

    /// Releases memtables and files until the next call: call it before returning to a client that
    /// may stay idle (D6).
    pub fn park(&mut self) {
        self.merger = None;
    }

    fn is_view_old(&mut self) -> bool {
        self.calls = self.calls.wrapping_add(1);
        self.merger.is_none()
            || self.runs.view_version() != self.view_version
            || (self.calls.is_multiple_of(CLOCK_EVERY) && self.runs.now_ns() > self.view_until_ns)
    }

    fn take_view(&mut self) -> Result<()> {
        self.merger = None;
        let view = self.runs.view(self.index)?;
        self.view_version = view.version;
        self.view_until_ns = self.runs.now_ns() + VIEW_NS_MAX;
        let mut bound = Vec::new();
        let mut bounded = true;
        match self.direction {
            Direction::Forward if self.has_key => {
                bound.extend_from_slice(&self.key);
                bound.push(0);
            }
            Direction::Forward => bound.extend_from_slice(&self.low),
            Direction::Reverse if self.has_key => bound.extend_from_slice(&self.key),
            Direction::Reverse => match &self.high {
                Some(high) => bound.extend_from_slice(high),
                None => bounded = false,
            },
        }
        let sources = self.runs.sources(&view, self.index, &self.low, self.high.as_deref());
        let mut merger = Merger::new(sources, self.direction);
        merger.seek(bounded.then_some(&bound))?;
        self.merger = Some(merger);
        Ok(())
    }

    /// The next visible live entry.
    ///
    /// # Errors
    /// Of reading and decoding storage; `NotFound` if the index was dropped.
    #[allow(clippy::should_implement_trait)] // It lends from the cursor; an iterator cannot.
    pub fn next(&mut self) -> Result<Option<EntryRef<'_>>> {
        let found = !self.done && self.advance()?;
        if self.skipped > 0 {
            self.runs.metrics().add(Metric::EntriesSkipped, self.skipped);
            self.skipped = 0;
        }
        if !found {
            self.done = true;
            self.merger = None;
            return Ok(None);
        }
        let (key, pk) = self.key.split_at(self.key.len() - self.pk_len);
        Ok(Some(EntryRef { key, pk, value: &self.value }))
    }

    fn advance(&mut self) -> Result<bool> {
        loop {
            if self.is_view_old() {
                self.take_view()?;
            }
            let Some(mut merger) = self.merger.take() else { continue };
            let step = match self.direction {
                Direction::Forward => self.forward(&mut merger)?,
                Direction::Reverse => self.reverse(&mut merger)?,
            };
            match step {
                Step::Live => {
                    self.merger = Some(merger);
                    return Ok(true);
                }
                Step::End => return Ok(false),
                Step::Stale => {}
            }
        }
    }

    fn judge(&mut self, item: &Item<'_>) -> bool {
        let visible = item.version.is_visible(&self.snapshot, self.runs.commits());
        if !visible && self.undecided.is_none() {
            let (stamp, state) = item.version.state(self.runs.commits());
            if state.is_undecided() && stamp.txn != self.snapshot.own {
                self.undecided = Some(stamp.txn);
            }
        }
        visible
    }

    fn is_stale(&self) -> bool {
        self.runs.view_version() != self.view_version
    }

    fn forward(&mut self, merger: &mut Merger) -> Result<Step> {
        while let Some(item) = merger.top() {
            if self.high.as_ref().is_some_and(|high| item.key >= &high[..]) {
                return Ok(Step::End);
            }
            let decided = self.has_key && item.key == self.key;
            if decided || !self.judge(&item) {
                self.skipped += 1;
                merger.advance()?;
                continue;
            }
            if self.is_stale() {
                return Ok(Step::Stale);
            }
            self.key.clear();
            self.key.extend_from_slice(item.key);
            self.pk_len = item.pk_len;
            self.has_key = true;
            let live = item.op & entry_op::INS != 0;
            if live {
                self.value.clear();
                self.value.extend_from_slice(item.value);
            }
            merger.advance()?;
            if live {
                return Ok(Step::Live);
            }
            self.skipped += 1;
        }
        Ok(Step::End)
    }

    /// The entries of a key arrive oldest first: the last visible one decides.
    fn reverse(&mut self, merger: &mut Merger) -> Result<Step> {
        let mut key = Vec::new();
        while let Some(item) = merger.top() {
            if item.key < &self.low[..] {
                return Ok(Step::End);
            }
            key.clear();
            key.extend_from_slice(item.key);
            let pk_len = item.pk_len;
            let mut live = false;
            while let Some(item) = merger.top() {
                if item.key != key {
                    break;
                }
                if self.judge(&item) {
                    live = item.op & entry_op::INS != 0;
                    self.value.clear();
                    self.value.extend_from_slice(item.value);
                } else {
                    self.skipped += 1;
                }
                merger.advance()?;
            }
            if self.is_stale() {
                return Ok(Step::Stale);
            }
            std::mem::swap(&mut self.key, &mut key);
            self.pk_len = pk_len;
            self.has_key = true;
            if live {
                return Ok(Step::Live);
            }
            self.skipped += 1;
        }
        Ok(Step::End)
    }
}

enum Step {
    /// `key` and `value` hold the next entry.
    Live,
    End,
    /// The view changed while judging: take it again.
    Stale,
}
