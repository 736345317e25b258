//! The number of entries in a short range, from the positions of its ends: for a run the places of
//! both ends in their blocks, for a memtable the entries themselves, which are few.
//!
//! Of each run at most two blocks are read, those in which a scan of the range begins and ends.
//! Nothing is merged, so an entry counts wherever it lies. `Counted::uncertain` says how wrong the
//! number of rows may be for that; the caller decides whether that is too much.
//!
//! Only `estimate` may call this.

use crate::Runs;
use crate::memtable::Memtable;
use crate::read::estimate::FEW;
use crate::read::run_iter::BlockLoader;
use crate::run::file::RunSegment;
use evenkeel_base::fault_injection::{Fault, is};
use evenkeel_base::{IndexId, Result, Snapshot, TxnId};
use evenkeel_format::record::entry_op::{DEL, FRESH, INS};

/// The entries of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// All of them; exact unless a run has a block that lies wholly within the range.
    pub entries: u64,
    /// About so many rows.
    pub rows: u64,
    /// By how much that may be wrong.
    pub uncertain: u64,
}

impl Counted {
    /// True if few of the entries may not be rows.
    pub fn is_certain(&self) -> bool {
        self.uncertain <= self.entries / FEW || is(Fault::EntriesTakenForRows)
    }

    /// Adds the entries of another source.
    pub fn add(&mut self, other: Counted) {
        self.entries += other.entries;
        self.rows += other.rows;
        self.uncertain += other.uncertain;
    }
}

impl Runs {
    /// The entries of a segment at or above `low` and below `high`. Blocks between those of the
    /// ends count with the segment's average.
    pub(crate) fn entries_by_position(
        &self,
        segment: &RunSegment,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<u64> {
        let info = &segment.info;
        let high = high.filter(|high| *high <= &info.max_key[..]);
        if low > &info.max_key[..] || high.is_some_and(|high| high <= &info.min_key[..]) {
            return Ok(0);
        }
        let (first, last) = {
            let fences = segment.fences()?;
            (fences.block_of(low), high.map_or(fences.blocks() - 1, |high| fences.block_of(high)))
        };
        let mut loader = BlockLoader::Cached(self.blocks.clone());
        let block = loader.load(segment, first)?;
        let before = block.entries_below(Some(low))?;
        if first == last {
            return Ok(block.entries_below(high)?.saturating_sub(before));
        }
        let between = u64::from(last.saturating_sub(first + 1)) * info.entries
            / u64::from(info.blocks.max(1));
        let behind = block.entries_below(None)?.saturating_sub(before);
        let block = loader.load(segment, last)?;
        Ok(behind + between + block.entries_below(high)?)
    }

    /// The entries of a memtable at or above `low` and below `high`. An INS that made its key live
    /// and that the snapshot sees is a row, unless a later entry removes it, which then is
    /// uncertain. At most `at_most` entries are examined; if there are more, all are uncertain.
    pub(crate) fn entries_in_memory(
        &self,
        memtable: &Memtable,
        index: IndexId,
        (low, high): (&[u8], Option<&[u8]>),
        snapshot: &Snapshot,
        at_most: u64,
    ) -> Counted {
        let mut found = Counted::default();
        let (commits, mut seen) = (self.commits(), TxnId::ZERO);
        memtable.each_between(index, low, high, |entry| {
            let txn = entry.stamp.txn;
            let is_seen = txn == seen && txn != TxnId::ZERO || {
                let is_whole = snapshot.sees_all_of(txn, commits);
                if is_whole {
                    seen = txn;
                }
                is_whole || snapshot.sees(entry.stamp, commits)
            };
            found.entries += 1;
            found.uncertain += match (is_seen, entry.op) {
                (true, op) if op == INS | FRESH => 0,
                // It is no row, and removes one.
                (_, DEL) => 2,
                _ => 1,
            };
            found.entries < at_most
        });
        found.rows = found.entries.saturating_sub(found.uncertain);
        if found.entries >= at_most {
            found.uncertain = found.entries;
        }
        found
    }
}
