//! Leaf reorganization (B4): stamps that every snapshot sees past are dropped, and deleted rows
//! that no snapshot sees are removed. The record lists the slots. It is appended after the commit
//! records on which it relies, because a transaction's state changes only after its record is
//! appended.

use crate::concurrent_inserts::is_young;
use crate::tree::{DescentGoal, Tree, change};
use crate::write::fence_reserve;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{CommitTable, Lsn, Result, Stamp, TxnId, TxnState};
use evenkeel_format::node::{Node, SLOT_BYTES, common_prefix};
use evenkeel_format::record::cell_flags::{DELETED, STAMPED};
use evenkeel_format::tree_op::{COMPACT_REMOVE, TreeOp};
use evenkeel_pages::Access;

/// Bytes that dropping a stamp gains.
const STAMP_GAIN: usize = 12;

/// Rewriting a leaf must gain this part of a page; less is not worth a record. The part is small,
/// because a split costs more and leaves two leaves half full.
const WORTH_SHARE: usize = 64;

/// The effect of reorganizing a leaf.
#[derive(Default, Debug)]
pub(crate) struct Compaction {
    items: Vec<u8>,
    /// Bytes gained.
    pub(crate) gain: usize,
    /// Cells removed.
    pub(crate) removed: usize,
    /// Deleted cells that must stay for now.
    pub(crate) kept: usize,
    /// If all remaining cells are deleted and committed: since when no snapshot sees a row.
    pub(crate) dead_since: Option<Lsn>,
    /// For a remaining deleted cell it is undecided since when, or whether, it is deleted.
    pub(crate) is_open: bool,
    /// The newest commit of the deleted cells that must stay.
    pub(crate) youngest: Lsn,
}

/// Whether a cell's history is over for all snapshots.
enum Age {
    /// Every snapshot sees past it.
    Settled,
    /// Committed, but a snapshot may not see it.
    ConcurrentInserts(Lsn),
    /// Undecided, or waiting to be rolled back.
    Open,
}

fn age(commits: &dyn CommitTable, horizon: Lsn, stamp: Stamp, state: TxnState) -> Age {
    match state {
        TxnState::Committed(_) if commits.is_dead(stamp) => Age::Open,
        TxnState::Committed(cts) if cts <= horizon => Age::Settled,
        TxnState::Committed(cts) => Age::ConcurrentInserts(cts),
        TxnState::Active | TxnState::Prepared | TxnState::Aborted => Age::Open,
    }
}

/// Plans the reorganization of a leaf; concurrent inserts keep their stamps.
///
/// # Errors
/// `BadEncoding`.
pub(crate) fn plan(
    commits: &dyn CommitTable,
    node: &Node<'_>,
    concurrent_from: TxnId,
) -> Result<Compaction> {
    let horizon = commits.horizon();
    let mut plan = Compaction::default();
    let mut all_dead = Some(Lsn::ZERO);
    // The state of a transaction is looked up once, not for each of its rows.
    let (mut txn, mut state) = (TxnId::ZERO, TxnState::Committed(Lsn::ZERO));
    for slot in 0..node.count() {
        let cell = node.leaf_cell(slot)?;
        let deleted = cell.flags & DELETED != 0;
        let age = if cell.flags & STAMPED == 0 {
            Age::Settled
        } else {
            if cell.stamp.txn != txn {
                (txn, state) = (cell.stamp.txn, commits.state(cell.stamp.txn));
            }
            age(commits, horizon, cell.stamp, state)
        };
        match age {
            Age::Settled if deleted => {
                plan.items.extend((slot as u16 | COMPACT_REMOVE).to_le_bytes());
                plan.gain += node.cell_len(slot) + SLOT_BYTES;
                plan.removed += 1;
                continue;
            }
            Age::Settled if is_young(cell.flags, cell.stamp.txn, concurrent_from) => {}
            Age::Settled if cell.flags & STAMPED != 0 => {
                plan.items.extend((slot as u16).to_le_bytes());
                plan.gain += STAMP_GAIN;
            }
            _ => {}
        }
        plan.kept += usize::from(deleted);
        match age {
            Age::ConcurrentInserts(cts) if deleted => plan.youngest = plan.youngest.max(cts),
            Age::Open if deleted => plan.is_open = true,
            _ => {}
        }
        all_dead = match age {
            Age::ConcurrentInserts(cts) if deleted => all_dead.map(|since| since.max(cts)),
            _ => None,
        };
    }
    plan.dead_since = all_dead.filter(|_| plan.kept > 0);
    Ok(plan)
}

/// True if the leaf at the right edge, where keys and transactions ascend, begins with a stamp that
/// must stay: then the following stamps must stay, too.
fn begins_young(
    commits: &dyn CommitTable,
    node: &Node<'_>,
    concurrent_from: TxnId,
) -> Result<bool> {
    for slot in 0..node.count() {
        let cell = node.leaf_cell(slot)?;
        if cell.flags & STAMPED != 0 {
            let state = commits.state(cell.stamp.txn);
            let age = age(commits, commits.horizon(), cell.stamp, state);
            let keeps = is_young(cell.flags, cell.stamp.txn, concurrent_from);
            return Ok(keeps || !matches!(age, Age::Settled));
        }
    }
    Ok(node.dead_count() == 0)
}

impl Tree {
    /// True if neither a reorganization nor another prefix can help a full leaf at the right edge
    /// to which `key` is appended.
    pub(crate) fn is_full_edge(&self, key: &[u8]) -> Result<bool> {
        let page = self.find(DescentGoal::At(key), 0, Access::Normal)?;
        let node = Node::parse(&page)?;
        let appends = node.high().is_none() && node.lower_bound_append(key).0 == node.count();
        let prefix = common_prefix(node.low(), key);
        let gain = node.count() * prefix.saturating_sub(node.prefix().len());
        Ok(appends
            && prefix >= node.prefix().len()
            && gain < node.payload_bytes() / WORTH_SHARE
            && begins_young(&*self.trees().commits, &node, self.concurrent_from())?)
    }

    /// Reorganizes the leaf of `key` if that makes room for a cell of `cell_bytes` beside its key
    /// and is worth a record.
    pub(crate) fn compact_for(&self, key: &[u8], cell_bytes: usize) -> Result<bool> {
        self.compact(key, |node, plan| {
            let cell = cell_bytes + key.len() - node.prefix().len().min(key.len());
            let (need, worth) = match node.lower_bound(key) {
                // An update often needs only a stamp. The old cell's stamp may be part of the gain.
                (slot, true) => (cell + STAMP_GAIN - node.cell_len(slot).min(cell), 2 * STAMP_GAIN),
                (_, false) => (cell + SLOT_BYTES, node.payload_bytes() / WORTH_SHARE),
            };
            let room = node.free_bytes() + plan.gain;
            plan.gain >= worth && room >= need + fence_reserve(node, key)
        })
    }

    /// Gives a full leaf at the right edge the prefix that its keys and `key` share, if that makes
    /// room for a cell: a longer one if that gains enough, a shorter one if `key` needs it.
    /// (Elsewhere the fences determine the prefix.)
    pub(crate) fn fit_prefix_for(&self, key: &[u8], cell_bytes: usize) -> Result<bool> {
        let mut reserved = self.reserve_log_within()?;
        let Some((mut mtr, slot)) = self.write_leaf(None, key)? else { return Ok(false) };
        let node = Node::parse(mtr.page(slot))?;
        if node.high().is_some() {
            return Ok(false);
        }
        let last = node.count().checked_sub(1).map(|last| node.key(last));
        let greatest = last.unwrap_or_default().max(key.to_vec());
        let len = common_prefix(node.low(), &greatest);
        let gain = node.count() * len.saturating_sub(node.prefix().len());
        let loss = node.count() * node.prefix().len().saturating_sub(len);
        let need = SLOT_BYTES + cell_bytes + key.len() - len + fence_reserve(&node, key) + loss;
        let shorter = len < node.prefix().len();
        let worth = shorter || gain >= node.payload_bytes() / WORTH_SHARE;
        if len == node.prefix().len() || !worth || node.free_bytes() + gain < need {
            return Ok(false);
        }
        change(&mut mtr, slot, &TreeOp::Prefix(len)).map_err(|e| self.trees().rt.health.fail(e))?;
        mtr.commit(&mut reserved);
        Ok(true)
    }

    /// Reorganizes the leaf of `key` if `wanted` is true for the plan.
    pub(crate) fn compact(
        &self,
        key: &[u8],
        wanted: impl Fn(&Node<'_>, &Compaction) -> bool,
    ) -> Result<bool> {
        let mut reserved = self.reserve_log_within()?;
        let Some((mut mtr, slot)) = self.write_leaf(None, key)? else { return Ok(false) };
        let node = Node::parse(mtr.page(slot))?;
        let plan = plan(&*self.trees().commits, &node, self.concurrent_from())?;
        if plan.items.is_empty() || !wanted(&node, &plan) {
            return Ok(false);
        }
        change(&mut mtr, slot, &TreeOp::Compact(&plan.items))
            .map_err(|e| self.trees().rt.health.fail(e))?;
        mtr.commit(&mut reserved);
        self.trees().rt.metrics.add(Metric::LeafReorganizations, 1);
        Ok(true)
    }
}
