//! Sorted sources of entries (memtables and runs) and their merge by (key, pk), newest first among
//! equals (A3): the order of `sources` is their age, newest first.

use crate::memtable::MemIter;
use crate::run_iter::RunIter;
use evenkeel_base::{CommitTable, Lsn, Result, Snapshot, Stamp, TxnState};
use evenkeel_format::run::RunVersion;
use std::cmp::Ordering;

/// The time of an entry.
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

/// An entry where a source stands.
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

pub(crate) enum Source {
    Memory(MemIter),
    Run(Box<RunIter>),
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

/// A merge of sources: a binary heap of source numbers.
pub(crate) struct Merger {
    sources: Vec<Source>,
    heap: Vec<u32>,
    direction: Direction,
}

impl Merger {
    pub(crate) fn new(sources: Vec<Source>, direction: Direction) -> Merger {
        Merger { sources, heap: Vec::new(), direction }
    }

    /// Seeks every source (see `Source::seek`).
    pub(crate) fn seek(&mut self, bound: Option<&[u8]>) -> Result<()> {
        self.heap.clear();
        for source in &mut self.sources {
            source.seek(bound, self.direction)?;
        }
        self.rebuild();
        Ok(())
    }

    /// Builds the heap from where the sources stand.
    pub(crate) fn rebuild(&mut self) {
        self.heap.clear();
        for i in 0..self.sources.len() {
            if self.sources[i].item().is_some() {
                self.heap.push(i as u32);
            }
        }
        for i in (0..self.heap.len() / 2).rev() {
            self.sift(i);
        }
    }

    /// True if source `a` comes before `b`. Forward: newest first among equal keys; reverse: oldest
    /// first, so that the last visible one of a key is the newest.
    fn precedes(&self, a: u32, b: u32) -> bool {
        let (Some(x), Some(y)) = (self.sources[a as usize].item(), self.sources[b as usize].item())
        else {
            return false;
        };
        match (x.key.cmp(y.key), self.direction) {
            (Ordering::Equal, Direction::Forward) => a < b,
            (Ordering::Equal, Direction::Reverse) => a > b,
            (order, Direction::Forward) => order == Ordering::Less,
            (order, Direction::Reverse) => order == Ordering::Greater,
        }
    }

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
    pub(crate) fn top(&self) -> Option<Item<'_>> {
        self.heap.first().and_then(|i| self.sources[*i as usize].item())
    }

    /// Goes on to the next entry. After an error the merger must be sought again.
    pub(crate) fn advance(&mut self) -> Result<()> {
        let Some(first) = self.heap.first().copied() else { return Ok(()) };
        self.sources[first as usize].advance(self.direction)?;
        if self.sources[first as usize].item().is_none() {
            self.heap.swap_remove(0);
        }
        self.sift(0);
        Ok(())
    }
}
