//! Tombstone elision (D4): a FRESH INS and the following DEL are removed from the memtables where a
//! scan has passed more than 32 dead entries. So a queue, which is filled at one end and emptied at
//! the other, is scanned at a constant cost.
//!
//! The conditions are those of a compaction (`version_filter`): both committed, no snapshot
//! between, the INS newer than its index's VALID. Both entries are removed together: no view is
//! taken meanwhile, and a cursor with an older view notices that it is old before it relies on what
//! it has judged. A flush has no view and walks from new to old: it may meet the DEL alone, which
//! does no harm.

use crate::Runs;
use crate::compaction::version_filter::Rules;
use crate::memtable::Memtable;
use crate::memtable::leaves::NodeRef;
use crate::read::run_iter::Bounds;
use crate::read::source::Direction;
use evenkeel_base::{CommitTable, IndexId, Lsn, TxnState, metrics::Metric};
use evenkeel_format::record::entry_op::{DEL, FRESH, INS};
use std::sync::Arc;

/// Entries that it looks at for each one it skipped, and at once at most.
const LOOKS: u64 = 3;
const LOOKS_MAX: u64 = 8192;

impl Runs {
    /// A scan of this range, from its beginning in this direction, has skipped this many entries.
    pub(crate) fn tidy(&self, index: IndexId, bounds: &Bounds, direction: Direction, skipped: u64) {
        let (memtables, rules) = {
            let state = self.state.read();
            let Some(known) = state.indexes.get(&index) else { return };
            let (building, valid_from) = (known.building, known.valid_from);
            let rules = Rules { building, valid_from, bottom: false, horizon: Lsn::ZERO };
            (state.memtables.clone(), rules)
        };
        let limit = (skipped * LOOKS).min(LOOKS_MAX);
        let commits = self.commits();
        let cancels = |old: &NodeRef<'_>, new: &NodeRef<'_>| cancel(rules, commits, old, new);
        let pairs = |m: &Arc<Memtable>| m.pairs(index, bounds, direction, limit, &cancels);
        let found: Vec<_> = memtables.iter().map(|m| (m, pairs(m))).collect();
        if found.iter().all(|(_, nodes)| nodes.is_empty()) {
            return;
        }
        let state = self.state.write();
        self.changed(&state);
        let removed: usize = found.iter().map(|(m, nodes)| m.remove(index, nodes)).sum();
        drop(state);
        self.rt.metrics.add(Metric::EntriesElided, removed as u64);
    }
}

/// True if `old` followed by `new`, on one key, cancel.
fn cancel(rules: Rules, commits: &dyn CommitTable, old: &NodeRef<'_>, new: &NodeRef<'_>) -> bool {
    if old.op & (INS | FRESH) != INS | FRESH || new.op & DEL == 0 {
        return false;
    }
    let cts = |node: &NodeRef<'_>| match commits.state(node.stamp.txn) {
        TxnState::Committed(cts) if !commits.is_dead(node.stamp) => Some(cts),
        _ => None,
    };
    let (Some(low), Some(high)) = (cts(old), cts(new)) else { return false };
    rules.fresh_counts(low) && !(low < high && commits.snapshot_between(low, high))
}
