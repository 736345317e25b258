//! The versions of one (index, key, pk) that flushes and compactions keep (A3, D1, D4, F2).
//!
//! The versions are walked from old to new. Undone entries are dropped; decided ones get their
//! timestamp; undecided ones stay pending and hide nothing. Two neighbours that are both committed,
//! without a snapshot between them, combine into one:
//!
//! | newer | older | become |
//! |---|---|---|
//! | INS | FRESH INS | FRESH INS of the newer |
//! | INS | INS or DEL | INS of the newer, not fresh |
//! | DEL | FRESH INS | nothing |
//! | DEL | INS or DEL | DEL |
//!
//! Entries of one transaction share its timestamp, so no snapshot lies between them: they combine.
//! FRESH counts only if the INS is newer than its index's VALID, and never while BUILDING, because
//! the build's runs may hold the row beneath. The scan of a build takes everything committed up to
//! VALID, its own timestamp included. At the bottom nothing lies beneath, so a DEL there is
//! dropped.

use crate::read::source::{Item, Version};
use evenkeel_base::{CommitTable, Lsn, Result, TxnState};
use evenkeel_format::record::entry_op::{DEL, FRESH, INS};
use evenkeel_format::run::RunVersion;

/// What the position of the output allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The build of the index is not installed: DELs stay, and nothing is elided.
    pub building: bool,
    /// FRESH counts above this timestamp; zero: the index is as old as its table, so FRESH always
    /// counts.
    pub valid_from: Lsn,
    /// The oldest run of the index is among the inputs.
    pub bottom: bool,
    /// Timestamps at or below this may be dropped in the bottom run.
    pub horizon: Lsn,
}

impl Rules {
    /// True if a FRESH INS of this timestamp may be dropped with its DEL: no build's run also holds
    /// it.
    pub(crate) fn fresh_counts(&self, cts: Lsn) -> bool {
        !self.building && (cts > self.valid_from || self.valid_from == Lsn::ZERO)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    op: u8,
    version: RunVersion,
    value: (usize, usize),
}

/// Receives kept entries, newest first for each key: (key, pk length, op, version, value).
pub(crate) type Sink<'a> = dyn FnMut(&[u8], usize, u8, RunVersion, &[u8]) -> Result<()> + 'a;

/// Collects the entries of a key and passes on those that are kept.
pub(crate) struct VersionFilter {
    pub rules: Rules,
    key: Vec<u8>,
    pk_len: usize,
    /// Newest first.
    links: Vec<Link>,
    values: Vec<u8>,
    kept: Vec<Link>,
}

impl VersionFilter {
    pub(crate) fn new(rules: Rules) -> VersionFilter {
        VersionFilter {
            rules,
            key: Vec::new(),
            pk_len: 0,
            links: Vec::new(),
            values: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// True if the present versions belong to this key.
    #[inline]
    pub(crate) fn is_of(&self, key: &[u8]) -> bool {
        !self.links.is_empty() && self.key == key
    }

    /// Adds the next entry of a compaction (by key, newest first); ends the versions of the key
    /// before.
    pub(crate) fn push(
        &mut self,
        item: &Item<'_>,
        commits: &dyn CommitTable,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        if !self.links.is_empty() && item.key != self.key {
            self.end(commits, sink)?;
        }
        if self.links.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(item.key);
            self.pk_len = item.pk_len;
        }
        let start = self.values.len();
        self.values.extend_from_slice(item.value);
        let version = match item.version {
            Version::Committed(cts) => RunVersion::Committed(cts),
            Version::Stamped(stamp) => RunVersion::Pending(stamp),
        };
        self.links.push(Link { op: item.op, version, value: (start, self.values.len()) });
        Ok(())
    }

    /// Ends the versions of the present key.
    pub(crate) fn end(&mut self, commits: &dyn CommitTable, sink: &mut Sink<'_>) -> Result<()> {
        self.kept.clear();
        while let Some(mut link) = self.links.pop() {
            if self.resolve(&mut link, commits) {
                self.kept.push(link);
                self.combine(commits);
            }
        }
        let mut oldest = 0;
        let planted =
            evenkeel_base::fault_injection::is(evenkeel_base::fault_injection::Fault::DelDropped);
        if (self.rules.bottom && !self.rules.building) || planted {
            let drops = |l: &Link| l.op & DEL != 0 && matches!(l.version, RunVersion::Committed(_));
            oldest = self.kept.iter().take_while(|l| drops(l)).count();
        }
        for link in self.kept[oldest..].iter().rev() {
            let version = match link.version {
                RunVersion::Committed(cts) if self.rules.bottom && cts <= self.rules.horizon => {
                    RunVersion::Committed(Lsn::ZERO)
                }
                other => other,
            };
            let value = &self.values[link.value.0..link.value.1];
            sink(&self.key, self.pk_len, link.op, version, value)?;
        }
        self.values.clear();
        Ok(())
    }

    /// Replaces a decided stamp by its timestamp; false if the entry was undone.
    fn resolve(&self, link: &mut Link, commits: &dyn CommitTable) -> bool {
        let RunVersion::Pending(stamp) = link.version else { return true };
        if stamp.txn.0 == 0 {
            link.version = RunVersion::Committed(Lsn::ZERO);
            return true;
        }
        let state = commits.state(stamp.txn);
        if state == TxnState::Aborted || commits.is_dead(stamp) {
            return false;
        }
        if let TxnState::Committed(cts) = state {
            link.version = RunVersion::Committed(cts);
        }
        true
    }

    /// Combines the newest kept entries while possible.
    fn combine(&mut self, commits: &dyn CommitTable) {
        while let [.., older, newer] = self.kept[..] {
            let (RunVersion::Committed(low), RunVersion::Committed(high)) =
                (older.version, newer.version)
            else {
                return;
            };
            if low < high && commits.snapshot_between(low, high) {
                return;
            }
            let fresh = self.rules.fresh_counts(low) && older.op & (INS | FRESH) == INS | FRESH;
            self.kept.truncate(self.kept.len() - 2);
            if newer.op & INS != 0 {
                let op = if fresh { INS | FRESH } else { INS };
                self.kept.push(Link { op, ..newer });
            } else if !fresh {
                self.kept.push(Link { op: DEL, ..newer });
            }
        }
    }
}
