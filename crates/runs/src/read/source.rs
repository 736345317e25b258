//! Sorted sources of entries (memtables and runs) and their merge by (key, pk), newest first among
//! equals (A3): the order of `sources` is their age, newest first.

use crate::memtable::MemIter;
use crate::read::run_iter::RunIter;
use evenkeel_base::{CommitTable, Lsn, Result, Snapshot, Stamp, TxnState};
use evenkeel_format::head::head_of;
use evenkeel_format::run::RunVersion;
use std::cmp::Ordering;

/// The timestamp of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Committed at this timestamp (zero: visible to everyone).
    Committed(Lsn),
    /// To be resolved through the commit table.
    Stamped(Stamp),
}

impl Version {
    pub(crate) fn is_visible(self, snapshot: &Snapshot, commits: &dyn CommitTable) -> bool {
        match self {
            Version::Committed(cts) => cts <= snapshot.at,
            Version::Stamped(stamp) => snapshot.sees(stamp, commits),
        }
    }

    /// Stamp (zero if resolved) and state.
    pub(crate) fn state(self, commits: &dyn CommitTable) -> (Stamp, TxnState) {
        match self {
            Version::Committed(cts) => (Stamp::default(), TxnState::Committed(cts)),
            Version::Stamped(stamp) => (stamp, commits.state(stamp.txn)),
        }
    }
}

/// The entry at the position of a source.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    /// Column bytes, then pk.
    pub key: &'a [u8],
    pub pk_len: usize,
    pub value: &'a [u8],
    pub op: u8,
    pub version: Version,
}

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Reverse,
}

/// The variants are used equally often: a box would cost each reader an allocation for each run.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Source {
    Memory(MemIter),
    Run(RunIter),
}

impl Source {
    /// Forward: to the first entry at or above `bound` (`None`: the first). Reverse: to the last
    /// below it (`None`: the last).
    fn seek(&mut self, bound: Option<&[u8]>, direction: Direction) -> Result<()> {
        match (self, direction) {
            (Source::Memory(iter), Direction::Forward) => iter.seek_at_least(bound.unwrap_or(&[])),
            (Source::Memory(iter), Direction::Reverse) => iter.seek_below(bound),
            (Source::Run(iter), Direction::Forward) => {
                return iter.seek_at_least(bound.unwrap_or(&[]));
            }
            (Source::Run(iter), Direction::Reverse) => return iter.seek_below(bound),
        }
        Ok(())
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match self {
            Source::Memory(iter) => iter.key(),
            Source::Run(iter) => iter.is_valid().then(|| iter.key()),
        }
    }

    /// After a step forward: the present entry has the key of the one before.
    #[inline]
    fn repeats(&self) -> bool {
        match self {
            Source::Memory(iter) => iter.repeats(),
            Source::Run(iter) => iter.is_valid() && iter.entry().repeats,
        }
    }

    #[inline]
    pub(crate) fn item(&self) -> Option<Item<'_>> {
        match self {
            Source::Memory(iter) => iter.get().map(|node| Item {
                key: node.key,
                pk_len: node.pk_len,
                value: node.value,
                op: node.op,
                version: Version::Stamped(node.stamp),
            }),
            Source::Run(iter) => iter.is_valid().then(|| Item {
                key: iter.key(),
                pk_len: iter.entry().pk_len as usize,
                value: iter.value(),
                op: iter.entry().op,
                version: match iter.entry().version {
                    RunVersion::Committed(cts) => Version::Committed(cts),
                    RunVersion::Pending(stamp) => Version::Stamped(stamp),
                },
            }),
        }
    }

    #[inline]
    fn skip(&mut self) {
        if let Source::Run(iter) = self {
            iter.skip();
        }
    }

    #[inline]
    fn advance(&mut self, direction: Direction) -> Result<()> {
        match (self, direction) {
            (Source::Memory(iter), Direction::Forward) => iter.next(),
            (Source::Memory(iter), Direction::Reverse) => iter.previous(),
            (Source::Run(iter), Direction::Forward) => return iter.next(),
            (Source::Run(iter), Direction::Reverse) => return iter.previous(),
        }
        Ok(())
    }
}

/// A source positioned on an entry.
#[derive(Clone, Copy)]
struct Standing {
    /// Head of its key: most comparisons end here.
    head: u128,
    source: u32,
}

/// A merge of sources: a binary heap of those positioned on an entry.
pub(crate) struct Merger {
    sources: Vec<Source>,
    heap: Vec<Standing>,
    direction: Direction,
}

impl Merger {
    pub(crate) fn new(sources: Vec<Source>, direction: Direction) -> Merger {
        let heap = Vec::with_capacity(sources.len());
        Merger { sources, heap, direction }
    }

    /// Seeks every source (see `Source::seek`).
    pub(crate) fn seek(&mut self, bound: Option<&[u8]>) -> Result<()> {
        self.heap.clear();
        for source in &mut self.sources {
            source.seek(bound, self.direction)?;
        }
        for (i, source) in (0..).zip(&self.sources) {
            if let Some(key) = source.key() {
                self.heap.push(Standing { head: head_of(key), source: i });
            }
        }
        for i in (0..self.heap.len() / 2).rev() {
            self.sift(i);
        }
        Ok(())
    }

    fn key(&self, of: Standing) -> &[u8] {
        self.sources[of.source as usize].key().unwrap_or(&[])
    }

    /// True if source `a` comes before `b`. Forward: newest first among equal keys; reverse: oldest
    /// first, so that the last visible entry of a key is the newest.
    #[inline]
    fn precedes(&self, a: Standing, b: Standing) -> bool {
        let order = match a.head.cmp(&b.head) {
            Ordering::Equal => self.key(a).cmp(self.key(b)),
            order => order,
        };
        match (order, self.direction) {
            (Ordering::Equal, Direction::Forward) => a.source < b.source,
            (Ordering::Equal, Direction::Reverse) => a.source > b.source,
            (order, Direction::Forward) => order == Ordering::Less,
            (order, Direction::Reverse) => order == Ordering::Greater,
        }
    }

    #[inline]
    fn sift(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let mut child = left;
            if right < self.heap.len() && self.precedes(self.heap[right], self.heap[left]) {
                child = right;
            }
            if !self.precedes(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }

    /// The first entry in order.
    #[inline]
    pub(crate) fn top(&self) -> Option<Item<'_>> {
        self.heap.first().and_then(|first| self.sources[first.source as usize].item())
    }

    /// The source of the first entry; 0 if there is none.
    #[inline]
    pub(crate) fn first_source(&self) -> u32 {
        self.heap.first().map_or(0, |first| first.source)
    }

    /// A reader passes over an entry of a source, which counts it.
    #[inline]
    pub(crate) fn skip_of(&mut self, source: u32) {
        self.sources[source as usize].skip();
    }

    /// Advances to the next entry. After an error the position is unchanged.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        let Some(first) = self.heap.first_mut() else { return Ok(()) };
        let source = &mut self.sources[first.source as usize];
        source.advance(self.direction)?;
        match source.key() {
            Some(key) => first.head = head_of(key),
            None => {
                self.heap.swap_remove(0);
            }
        }
        self.sift(0);
        Ok(())
    }

    /// Forward: advances to the next key, past all older entries of the present one. Returns the
    /// number of those. After an error the merger stands on an entry of the present key.
    pub(crate) fn next_key(&mut self) -> Result<u64> {
        if self.heap.len() == 1 {
            return self.next_key_alone();
        }
        let mut older = 0;
        while let Some(first) = self.heap.first().copied() {
            // Other sources with this key are right below the top of the heap.
            let is_same =
                |other: &Standing| other.head == first.head && self.key(*other) == self.key(first);
            let others = self.heap.iter().skip(1).take(2).any(is_same);
            if older > 0 {
                self.skip_of(first.source);
            }
            self.advance()?;
            if !others && !self.sources[first.source as usize].repeats() {
                break;
            }
            older += 1;
        }
        Ok(older)
    }

    /// `next_key` where one source alone stands on an entry: nothing is compared.
    fn next_key_alone(&mut self) -> Result<u64> {
        let Some(first) = self.heap.first_mut() else { return Ok(0) };
        let source = &mut self.sources[first.source as usize];
        let mut older = 0;
        loop {
            if older > 0 {
                source.skip();
            }
            source.advance(Direction::Forward)?;
            let Some(key) = source.key() else {
                self.heap.clear();
                return Ok(older);
            };
            if !source.repeats() {
                first.head = head_of(key);
                return Ok(older);
            }
            older += 1;
        }
    }
}
