//! The cells of a leaf that are rows, for estimates and samples.
//!
//! A cell is a row if its newest version is one. The version of an aborted transaction does not
//! count, whether or not the background has rolled it back yet; the version that its rollback will
//! restore counts instead. A cell that such a transaction deleted is therefore a row, and a cell
//! that it inserted is none, even if the transaction changed the row afterwards or reused the cell
//! of a deleted row. So an estimate is the same at every moment of a rollback.
//!
//! The caller holds the leaf's latch: while the version is in the leaf, its undo record exists.

use evenkeel_base::{CommitTable, Result, TreeId, TxnId, TxnState};
use evenkeel_format::node::{LeafCell, Node};
use evenkeel_format::record::cell_flags::{DELETED, FIRST, STAMPED};
use std::ops::Range;

/// About how many cells of a leaf a count looks up in undo; the share of rows among them stands
/// for the other cells.
const ASKED_MAX: usize = 32;

/// Tells rows from other cells.
pub(crate) struct Rows<'a> {
    commits: &'a dyn CommitTable,
    tree: TreeId,
    is_reverting: bool,
    /// The last transaction looked up, and whether it was aborted; one lookup serves all its rows.
    known: (TxnId, bool),
}

impl<'a> Rows<'a> {
    /// For one leaf, whose latch the caller holds.
    pub fn new(commits: &'a dyn CommitTable, tree: TreeId) -> Rows<'a> {
        let is_reverting = commits.is_reverting();
        Rows { commits, tree, is_reverting, known: (TxnId::ZERO, false) }
    }

    /// All cells of the leaf are rows.
    fn are_all(&self, leaf: &Node<'_>) -> bool {
        leaf.dead_count() == 0 && !self.is_reverting
    }

    /// Whether a cell is a row; `None` if only undo can tell.
    fn is_row(&mut self, cell: &LeafCell<'_>) -> Option<bool> {
        if self.is_reverting && cell.flags & STAMPED != 0 {
            let txn = cell.stamp.txn;
            if self.known.0 != txn {
                self.known = (txn, self.commits.state(txn) == TxnState::Aborted);
            }
            if self.known.1 {
                return (cell.flags & FIRST != 0).then_some(false);
            }
        }
        Some(cell.flags & DELETED == 0)
    }

    fn leaves_row(&self, leaf: &Node<'_>, slot: usize) -> Result<bool> {
        self.commits.leaves_row(self.tree, &leaf.key(slot), leaf.leaf_cell(slot)?.stamp)
    }

    /// How many of the cells are rows. The count is exact if aborted transactions made at most
    /// `ASKED_MAX` of them, else an estimate; it is 0 only if no cell is a row for certain.
    pub fn count(&mut self, leaf: &Node<'_>, slots: Range<usize>) -> Result<usize> {
        if self.are_all(leaf) {
            return Ok(slots.len());
        }
        let (mut rows, mut unknown) = (0, Vec::new());
        for slot in slots {
            match self.is_row(&leaf.leaf_cell(slot)?) {
                Some(is_row) => rows += usize::from(is_row),
                None => unknown.push(slot),
            }
        }
        let each = unknown.len().div_ceil(ASKED_MAX).max(1);
        let (mut asked, mut left) = (0, 0);
        for slot in unknown.iter().step_by(each) {
            asked += 1;
            left += usize::from(self.leaves_row(leaf, *slot)?);
        }
        let about = (left * unknown.len()).checked_div(asked).unwrap_or(0);
        Ok(rows + about.max(usize::from(rows == 0 && asked < unknown.len())))
    }

    /// Which of a leaf's cells are rows.
    pub fn slots(&mut self, leaf: &Node<'_>) -> Result<Vec<usize>> {
        if self.are_all(leaf) {
            return Ok((0..leaf.count()).collect());
        }
        let mut rows = Vec::with_capacity(leaf.count());
        for slot in 0..leaf.count() {
            let is_row = match self.is_row(&leaf.leaf_cell(slot)?) {
                Some(is_row) => is_row,
                None => self.leaves_row(leaf, slot)?,
            };
            if is_row {
                rows.push(slot);
            }
        }
        Ok(rows)
    }
}
