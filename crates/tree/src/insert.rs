//! Inserting several rows together: as many of them as fit the leaf of the first one, under one
//! latch and in one record (ROWS).
//!
//! The rows come by ascending key. A visit of a leaf ends before a row that has a cell there
//! already, that its owner holds back, that belongs to the next leaf or no longer fits.

use crate::tree::Tree;
use crate::write::{BODY, fence_reserve};
use evenkeel_base::{Generation, IndexId, PageNo};
use evenkeel_base::{Lsn, Result, Stamp, TableId, UndoNo};
use evenkeel_format::node::{LeafCell, Node, NodeMut, SLOT_BYTES, compare, strip_prefix};
use evenkeel_format::record::{RecordKind, cell_flags};
use evenkeel_format::rows::{self, RowsHead, RowsPlace};
use evenkeel_log::Reserved;
use evenkeel_pages::Mtr;
use std::ops::Range;

/// A row to insert.
#[derive(Clone, Copy, Debug)]
pub struct NewRow<'a> {
    /// Clustered key; the keys of a list ascend.
    pub key: &'a [u8],
    /// The row's bytes.
    pub row: &'a [u8],
    /// The keys of its index entries as the record holds them (`rows::put_row`).
    pub tail: &'a [u8],
}

/// The common fields of the rows of a visit, for their record.
#[derive(Clone, Copy, Debug)]
pub struct RowsCommon<'a> {
    /// Stamp of the first one; the others have the following numbers.
    pub first: Stamp,
    /// The table.
    pub table: TableId,
    /// The memtable generation of the entries.
    pub generation: Generation,
    /// Index and op of each row's entries.
    pub entries: &'a [(IndexId, u8)],
}

/// Rows to insert, called back under the exclusive latch of their leaf.
pub trait LeafInserts {
    /// How many there are.
    fn len(&self) -> usize;
    /// True if there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// A row.
    fn row(&self, i: usize) -> NewRow<'_>;
    /// Called when rows fit, before `prepare`; false holds all of them back.
    fn enter(&mut self) -> bool;
    /// True if the row may be inserted now, where no cell is. Changes nothing outside.
    fn allows(&self, i: usize) -> bool;
    /// Called exactly once in a visit that inserts rows, when these are certain: pushes undo, pins
    /// the generation. Must neither wait nor fail.
    fn prepare(&mut self, rows: Range<usize>) -> RowsCommon<'_>;
    /// Called after the record was appended, the latch still held. Must neither wait nor fail.
    fn logged(&mut self, rows: Range<usize>, lsn: Lsn);
}

/// The result of a look at the next rows.
enum Visit {
    /// This many of them fit.
    Fit(usize),
    /// Not even the next one fits: its cell needs this many bytes beside its key.
    NoRoom(usize),
    /// The next one is held back, or has a cell.
    HeldBack,
}

impl Tree {
    /// Inserts rows from the `from`-th on, as many as one visit of a leaf takes; returns their
    /// number. None: `op` holds the `from`-th row back, or its key has a cell already. `reserved`
    /// pays for the record: keys, rows, tails, and the overhead by `rows`. The caller holds no
    /// latch.
    ///
    /// # Errors
    /// `KeyTooLong`, `RowTooLong`, those of log and pages; nothing has changed.
    pub fn insert_rows(
        &self,
        from: usize,
        reserved: &mut Reserved,
        op: &mut dyn LeafInserts,
    ) -> Result<usize> {
        let NewRow { key, row, .. } = op.row(from);
        self.check_lengths(key, row)?;
        let mut hint = self.edge_for(key);
        loop {
            let hinted = hint.is_some();
            let Some((mtr, slot)) = self.write_leaf(hint.take(), op.row(from).key)? else {
                self.trees().rt.step();
                continue;
            };
            let node = Node::parse(mtr.page(slot))?;
            if node.is_marked_dead() {
                // The parent must not have a dead note when a row arrives (E6).
                drop(mtr);
                self.clear_dead(0, op.row(from).key)?;
                continue;
            }
            match self.look(&node, from, op)? {
                Visit::HeldBack => return Ok(0),
                Visit::NoRoom(bytes) => {
                    drop(mtr);
                    self.make_room(op.row(from).key, bytes)?;
                }
                Visit::Fit(count) => {
                    let last = op.row(from + count - 1).key;
                    let appended = node.high().is_none() && is_above(&node, last);
                    if appended && !hinted {
                        self.remember_edge(mtr.page_no(slot), node.low());
                    }
                    self.put_rows(mtr, slot, from..from + count, reserved, op)?;
                    return Ok(count);
                }
            }
        }
    }

    /// The number of rows from the `from`-th on that the leaf takes.
    fn look(&self, node: &Node<'_>, from: usize, op: &mut dyn LeafInserts) -> Result<Visit> {
        let mut fence = fence_reserve(node, op.row(from).key);
        let (mut need, mut count) = (0, 0);
        // Above the last key no search is needed.
        let mut above = false;
        for i in from..op.len() {
            let NewRow { key, row, .. } = op.row(i);
            if count > 0 && node.high().is_some_and(|high| compare(key, high).is_ge()) {
                break;
            }
            above = above || is_above(node, key);
            if (!above && node.lower_bound(key).1) || !op.allows(i) {
                break;
            }
            if count > 0 && self.check_lengths(key, row).is_err() {
                break;
            }
            let cell = cell(Stamp::default(), row);
            let Some(suffix) = strip_prefix(key, node.prefix()) else {
                return Ok(if count == 0 { no_room(&cell) } else { self.enter(count, op) });
            };
            need += cell.cell_bytes(suffix.len()) + SLOT_BYTES;
            if node.high().is_none() {
                fence = fence.max(key.len() + 1);
            }
            if need + fence > node.free_bytes() {
                return Ok(if count == 0 { no_room(&cell) } else { self.enter(count, op) });
            }
            count += 1;
        }
        Ok(self.enter(count, op))
    }

    fn enter(&self, count: usize, op: &mut dyn LeafInserts) -> Visit {
        if count > 0 && op.enter() { Visit::Fit(count) } else { Visit::HeldBack }
    }

    fn put_rows(
        &self,
        mut mtr: Mtr<'_>,
        slot: usize,
        range: Range<usize>,
        reserved: &mut Reserved,
        op: &mut dyn LeafInserts,
    ) -> Result<()> {
        let mut body = BODY.take();
        body.clear();
        // From here on nothing waits and nothing fails (B2, B3).
        let page = mtr.page_no(slot);
        let mut stamp = self.begin_record(page, range.clone(), op, &mut body);
        let done = NodeMut::parse(mtr.page_mut(slot)).and_then(|mut node| {
            let (mut before, mut above): (&[u8], _) = (&[], false);
            for i in range.clone() {
                let NewRow { key, row, tail } = op.row(i);
                rows::put_row(&mut body, before, key, row, tail);
                above = above || is_above(&node.node(), key);
                if !put_cell(&mut node, above, key, &cell(stamp, row)) {
                    return Err(crate::redo::misfit("the row does not fit"));
                }
                stamp.undo_no = UndoNo(stamp.undo_no.0 + 1);
                before = key;
            }
            Ok(())
        });
        done.map_err(|e| self.trees().rt.health.fail(e))?;
        let logged = |lsn| op.logged(range, lsn);
        mtr.commit_record(reserved, RecordKind::Rows, &[&body], logged);
        BODY.set(body);
        Ok(())
    }

    fn begin_record(
        &self,
        page: PageNo,
        range: Range<usize>,
        op: &mut dyn LeafInserts,
        body: &mut Vec<u8>,
    ) -> Stamp {
        let RowsCommon { first, table, generation, entries } = op.prepare(range);
        let place = RowsPlace { page, tree: self.id() };
        rows::begin_rows(body, place, &RowsHead { first, table, generation, entries });
        first
    }
}

fn no_room(cell: &LeafCell<'_>) -> Visit {
    Visit::NoRoom(cell.cell_bytes(0))
}

fn cell(stamp: Stamp, row: &[u8]) -> LeafCell<'_> {
    LeafCell { flags: cell_flags::STAMPED | cell_flags::FIRST, stamp, row }
}

/// True if the key is above all keys of the node.
fn is_above(node: &Node<'_>, key: &[u8]) -> bool {
    node.count().checked_sub(1).is_none_or(|last| node.cmp_key(last, key).is_lt())
}

fn put_cell(node: &mut NodeMut<'_>, above: bool, key: &[u8], cell: &LeafCell<'_>) -> bool {
    if above {
        return node.push_leaf(key, cell);
    }
    let (slot, found) = node.node().lower_bound(key);
    !found && node.insert_leaf(slot, key, cell)
}
