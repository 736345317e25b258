//! A cursor over one index at a snapshot: a merge of memtables and runs that returns only visible
//! live entries, in both directions, index-only if wanted.
//!
//! It keeps a key, not a view (D6): when memtables or runs have changed, or after 100 ms, it takes
//! the present view and seeks behind its last key. An idle cursor ([`IndexCursor::park`]) stores
//! its view where any change takes it away (`idle_cursor_views`); if nothing changed it continues
//! with that view. An entry is returned only if the view was still the present one after its
//! visibility was judged. So a transaction whose entries a flush has dropped may leave the commit
//! table (A5).
//!
//! Forward, the caller gets the bytes in place, in a block or a memtable. The cursor advances at
//! the next call, and copies the key only when it releases the view.

use crate::Runs;
use crate::read::idle_cursor_views::Ticket;
use crate::read::run_iter::{Bounds, Pass};
use crate::read::source::Item;
use crate::read::source::{Direction, Merger, Version};
use evenkeel_base::{IndexId, Lsn, Result, Snapshot, TxnId, metrics::Metric};
use evenkeel_format::record::entry_op;
use std::ops::Bound;
use std::sync::Arc;

const VIEW_NS_MAX: u64 = 100_000_000;
const CLOCK_EVERY: u32 = 256;
/// Entries that a scan skips before it tidies.
const SKIPPED_MAX: u64 = 32;

/// A range of an index. Bounds are prefixes of `column bytes ++ pk`: `Included` contains every key
/// that starts with the bound, `Excluded` none of them.
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
    pub(crate) fn resolve(self) -> (Vec<u8>, Option<Vec<u8>>) {
        let low = match self.lower {
            Bound::Unbounded => Some(Vec::new()),
            Bound::Included(key) => Some(key),
            Bound::Excluded(key) => prefix_end(&key),
        };
        let high = match self.upper {
            Bound::Unbounded => None,
            Bound::Included(key) => prefix_end(&key),
            Bound::Excluded(key) => Some(key),
        };
        // The prefix has no end above the lower bound: an empty range.
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
    /// Column bytes and clustered key together.
    pub key_and_pk: &'a [u8],
    /// Stored bytes.
    pub value: &'a [u8],
}

impl<'a> EntryRef<'a> {
    fn new(key_and_pk: &'a [u8], pk_len: usize, value: &'a [u8]) -> EntryRef<'a> {
        let (key, pk) = key_and_pk.split_at(key_and_pk.len() - pk_len);
        EntryRef { key, pk, key_and_pk, value }
    }
}

/// The entries that a cursor returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sees {
    /// Keys whose newest entry visible to the snapshot is an INS.
    #[default]
    Snapshot,
    /// READ UNCOMMITTED: keys whose newest entry of any transaction is an INS, unless it was
    /// undone.
    Newest,
    /// Keys of rows visible in the snapshot's version, or in a committed or own version after it.
    /// The caller checks the row, because there may be more keys.
    SnapshotOrLater,
}

/// The meaning of an entry for its key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    /// The key exists.
    Live,
    /// The key does not exist.
    Dead,
    /// An older entry decides.
    Nothing,
}

/// The progress of the cursor, relative to the position of its merger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the beginning of the range.
    Start,
    /// Forward: at `key`, not decided yet.
    At,
    /// `key` is decided: behind it.
    Behind,
    /// Forward: the merger stands on the entry that was returned last.
    Lent,
}

/// A cursor over one index.
pub struct IndexCursor {
    runs: Arc<Runs>,
    index: IndexId,
    snapshot: Snapshot,
    sees: Sees,
    direction: Direction,
    bounds: Arc<Bounds>,
    /// It reads the index once from end to end, past the cache.
    pass: Option<Arc<Pass>>,
    merger: Option<Merger>,
    /// The place of the merger while the cursor is idle.
    ticket: Option<Ticket>,
    view_version: u64,
    /// Zero: not known yet.
    view_until_ns: u64,
    calls: u32,
    place: Place,
    /// The key of `place`; in reverse also the entry that was returned last.
    key: Vec<u8>,
    pk_len: usize,
    value: Vec<u8>,
    done: bool,
    skipped: u64,
    undecided: Option<TxnId>,
    /// Forward: entries examined, and the number that ends the scan.
    passed: u64,
    passed_max: u64,
}

impl IndexCursor {
    pub(crate) fn new(
        runs: Arc<Runs>,
        index: IndexId,
        range: KeyRange,
        direction: Direction,
        snapshot: Snapshot,
    ) -> IndexCursor {
        let (low, high) = range.resolve();
        let done = high.as_ref().is_some_and(|high| *high <= low);
        IndexCursor {
            runs,
            index,
            snapshot,
            sees: Sees::Snapshot,
            direction,
            bounds: Arc::new(Bounds { low, high }),
            pass: None,
            merger: None,
            ticket: None,
            view_version: 0,
            view_until_ns: 0,
            calls: 0,
            place: Place::Start,
            key: Vec::new(),
            pk_len: 0,
            value: Vec::new(),
            done,
            skipped: 0,
            undecided: None,
            passed: 0,
            passed_max: u64::MAX,
        }
    }

    /// Forward: the scan ends behind the first key at which it has examined this many entries.
    pub(crate) fn set_limit(&mut self, entries: u64) {
        self.passed_max = entries;
    }

    /// Entries of the keys behind it, visible or not.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// True if it ended there, or may have.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.passed >= self.passed_max
    }

    /// Sets which entries it returns, before the first.
    pub fn set_sees(&mut self, sees: Sees) {
        self.sees = sees;
    }

    /// From now on it reads runs as part of this pass.
    pub(crate) fn set_pass(&mut self, pass: &Arc<Pass>) {
        self.pass = Some(pass.clone());
    }

    /// A transaction other than the snapshot's own that has an undecided entry, INS or DEL, among
    /// those passed so far: a locking read waits for it and reads again (A7).
    pub fn undecided(&self) -> Option<TxnId> {
        self.undecided
    }

    /// Makes the cursor idle: memtables and files can be released before the next call. To be
    /// called before returning to a client that may stay idle (D6).
    pub fn park(&mut self) {
        self.keep_key();
        if let Some(merger) = self.merger.take() {
            let (runs, version) = (&self.runs, self.view_version);
            self.ticket = runs.parked.put(merger, || runs.view_version() != version);
        }
    }

    /// Continues with the stored view, or without one.
    fn unpark(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.merger = self.runs.parked.take(&ticket);
        }
    }

    /// Releases the view; the next call takes another one and seeks behind its key.
    pub(crate) fn let_go(&mut self) {
        self.keep_key();
        self.merger = None;
        if self.place == Place::Lent {
            self.place = Place::Behind;
        }
    }

    /// Copies the key of the merger's position, if the position is there.
    fn keep_key(&mut self) {
        if self.place == Place::Lent
            && let Some(item) = self.merger.as_ref().and_then(Merger::top)
        {
            self.key.clear();
            self.key.extend_from_slice(item.key);
        }
    }

    fn is_view_old(&mut self) -> bool {
        self.unpark();
        if self.merger.is_none() || self.is_stale() {
            return true;
        }
        self.calls = self.calls.wrapping_add(1);
        if !self.calls.is_multiple_of(CLOCK_EVERY) {
            return false;
        }
        let now = self.runs.now_ns();
        if self.view_until_ns == 0 {
            self.view_until_ns = now + VIEW_NS_MAX;
        }
        now > self.view_until_ns
    }

    fn is_stale(&self) -> bool {
        self.runs.view_version() != self.view_version
    }

    fn take_view(&mut self) -> Result<()> {
        self.let_go();
        let view = self.runs.view(self.index)?;
        self.view_version = view.version;
        self.view_until_ns = 0;
        if self.place == Place::Behind && self.direction == Direction::Forward {
            self.key.push(0);
            self.place = Place::At;
        }
        let bound = match (self.place, self.direction) {
            (Place::Start, Direction::Forward) => Some(&self.bounds.low),
            (Place::Start, Direction::Reverse) => self.bounds.high.as_ref(),
            _ => Some(&self.key),
        };
        let sources = self.runs.sources(&view, self.index, &self.bounds, self.pass.as_ref());
        let mut merger = Merger::new(sources, self.direction);
        merger.seek(bound.map(Vec::as_slice))?;
        if let Some(pass) = &self.pass {
            pass.forget();
        }
        self.merger = Some(merger);
        Ok(())
    }

    /// The next visible live entry.
    ///
    /// # Errors
    /// Of reading and decoding storage; `NotFound` if the index was dropped.
    #[allow(clippy::should_implement_trait)] // It lends from the cursor; an iterator cannot.
    pub fn next(&mut self) -> Result<Option<EntryRef<'_>>> {
        let found = !self.done && self.find()?;
        if !found {
            self.end();
            return Ok(None);
        }
        if self.place != Place::Lent {
            return Ok(Some(EntryRef::new(&self.key, self.pk_len, &self.value)));
        }
        let top = self.merger.as_ref().and_then(Merger::top);
        Ok(top.map(|item| EntryRef::new(item.key, item.pk_len, item.value)))
    }

    /// Gives the next visible live entries to `take` until it wants no more; false at the end.
    /// Forward it goes from one to the next without taking up its view anew.
    ///
    /// # Errors
    /// As `next`, of an entry behind those that were taken.
    pub fn next_many(&mut self, mut take: impl FnMut(EntryRef<'_>) -> bool) -> Result<bool> {
        loop {
            match self.next()? {
                None => return Ok(false),
                Some(entry) if !take(entry) => return Ok(true),
                Some(_) => {}
            }
            if self.place != Place::Lent {
                continue;
            }
            let Some(mut merger) = self.merger.take() else { continue };
            let step = self.lend_on(&mut merger, &mut take);
            self.merger = Some(merger);
            match step {
                Ok(Step::Live) => return Ok(true),
                Ok(Step::End) => {
                    self.end();
                    return Ok(false);
                }
                Ok(Step::Stale) => {}
                Err(error) => {
                    self.let_go();
                    return Err(error);
                }
            }
        }
    }

    fn end(&mut self) {
        self.done = true;
        self.merger = None;
        self.count_skipped();
    }

    /// Forward, in the view that it has.
    fn lend_on(
        &mut self,
        merger: &mut Merger,
        take: &mut impl FnMut(EntryRef<'_>) -> bool,
    ) -> Result<Step> {
        loop {
            match self.forward(merger)? {
                Step::Live => {}
                step => return Ok(step),
            }
            if let Some(item) = merger.top()
                && !take(EntryRef::new(item.key, item.pk_len, item.value))
            {
                return Ok(Step::Live);
            }
        }
    }

    fn count_skipped(&mut self) {
        if self.skipped > 0 {
            self.runs.metrics().add(Metric::EntriesSkipped, self.skipped);
            // A reader of scattered places would find the entries removed at its next place.
            if self.skipped > SKIPPED_MAX && self.passed_max == u64::MAX {
                self.runs.tidy(self.index, &self.bounds, self.direction, self.skipped);
            }
            self.skipped = 0;
        }
    }

    /// Advances to the next visible live entry; false at the end. After an error it is where it
    /// was.
    fn find(&mut self) -> Result<bool> {
        loop {
            if self.is_view_old() {
                self.take_view()?;
            }
            let Some(mut merger) = self.merger.take() else { continue };
            let step = match self.direction {
                Direction::Forward => self.forward(&mut merger),
                Direction::Reverse => self.reverse(&mut merger),
            };
            self.merger = Some(merger);
            match step {
                Ok(Step::Live) => return Ok(true),
                Ok(Step::End) => return Ok(false),
                Ok(Step::Stale) => {}
                Err(error) => {
                    self.let_go();
                    return Err(error);
                }
            }
        }
    }

    #[inline]
    fn judge(&mut self, item: &Item<'_>) -> Says {
        if self.sees != Sees::Snapshot {
            return self.judge_later(item);
        }
        if item.version.is_visible(&self.snapshot, self.runs.commits()) {
            return if item.op & entry_op::INS != 0 { Says::Live } else { Says::Dead };
        }
        if self.undecided.is_none() {
            let (stamp, state) = item.version.state(self.runs.commits());
            if state.is_undecided() && stamp.txn != self.snapshot.own {
                self.undecided = Some(stamp.txn);
            }
        }
        Says::Nothing
    }

    /// For views that see more than the snapshot.
    fn judge_later(&self, item: &Item<'_>) -> Says {
        let commits = self.runs.commits();
        let is_live = item.op & entry_op::INS != 0;
        let counts = match (self.sees, item.version) {
            (Sees::Newest, Version::Stamped(stamp)) if stamp.txn != TxnId::ZERO => {
                !commits.is_dead(stamp)
            }
            (Sees::Newest, _) => true,
            // A later DEL does not matter to a reader of the snapshot's version of the row.
            (_, version) if is_live => {
                version.is_visible(&Snapshot { at: Lsn::MAX, ..self.snapshot }, commits)
            }
            (_, version) => version.is_visible(&self.snapshot, commits),
        };
        match (counts, is_live) {
            (false, _) => Says::Nothing,
            (true, true) => Says::Live,
            (true, false) => Says::Dead,
        }
    }

    fn forward(&mut self, merger: &mut Merger) -> Result<Step> {
        if self.place == Place::Lent {
            let older = merger.next_key()?;
            self.skipped += older;
            self.passed += 1 + older;
        }
        loop {
            // From here on the merger is past the last returned key, and no key is kept. If the
            // view changes, the search continues at the merger's key.
            let Some(item) = merger.top() else { return Ok(Step::End) };
            if self.bounds.is_above(item.key) || self.is_at_limit() {
                return Ok(Step::End);
            }
            let says = self.judge(&item);
            if says == Says::Live && !self.is_stale() {
                self.place = Place::Lent;
                return Ok(Step::Live);
            }
            self.key.clear();
            self.key.extend_from_slice(item.key);
            self.place = Place::At;
            if self.is_stale() {
                return Ok(Step::Stale);
            }
            let source = merger.first_source();
            self.pass(merger, Some(source));
            self.passed += 1;
            if says != Says::Nothing {
                let older = merger.next_key()?;
                self.skipped += older;
                self.passed += older;
            } else {
                merger.advance()?;
            }
        }
    }

    /// The entries of a key arrive oldest first: the last visible one decides.
    fn reverse(&mut self, merger: &mut Merger) -> Result<Step> {
        let mut key = Vec::new();
        while let Some(item) = merger.top() {
            if item.key < &self.bounds.low[..] {
                return Ok(Step::End);
            }
            key.clear();
            key.extend_from_slice(item.key);
            let pk_len = item.pk_len;
            let (mut live, mut shown) = (false, None);
            while let Some(item) = merger.top() {
                if item.key != key {
                    break;
                }
                let mut passed = Some(merger.first_source());
                let says = self.judge(&item);
                if says != Says::Nothing {
                    live = says == Says::Live;
                    self.value.clear();
                    self.value.extend_from_slice(item.value);
                    // The entry that it supersedes is passed over.
                    passed = std::mem::replace(&mut shown, passed);
                }
                self.pass(merger, passed);
                merger.advance()?;
            }
            if self.is_stale() {
                return Ok(Step::Stale);
            }
            std::mem::swap(&mut self.key, &mut key);
            self.pk_len = pk_len;
            self.place = Place::Behind;
            if live {
                return Ok(Step::Live);
            }
            self.pass(merger, shown);
        }
        Ok(Step::End)
    }

    /// An entry of this source was passed over.
    fn pass(&mut self, merger: &mut Merger, source: Option<u32>) {
        if let Some(source) = source {
            self.skipped += 1;
            merger.skip_of(source);
        }
    }
}

impl Drop for IndexCursor {
    fn drop(&mut self) {
        self.unpark();
        self.count_skipped();
    }
}

enum Step {
    /// The merger stands on the next entry (forward), or `key` and `value` hold it (reverse).
    Live,
    End,
    /// The view changed during the judgement: take it again.
    Stale,
}
