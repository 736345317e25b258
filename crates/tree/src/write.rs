//! Changing one row: decide, make room, prepare, log; everything but making room under one leaf
//! latch.

use crate::redo::put_row;
use crate::tree::Tree;
use evenkeel_base::{Code, Error, Lsn, PageNo, Result, Stamp};
use evenkeel_format::node::{LeafCell, Node, NodeMut, SLOT_BYTES, compare, strip_prefix};
use evenkeel_format::record::{LeafChange, RecordKind, cell_flags};
use evenkeel_log::Reserved;
use evenkeel_pages::Mtr;
use std::cell::Cell;

/// A row in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafRow<'a> {
    /// `record::cell_flags`.
    pub flags: u8,
    /// Zero unless `STAMPED`.
    pub stamp: Stamp,
    /// The row's bytes.
    pub row: &'a [u8],
}

impl<'a> From<LeafCell<'a>> for LeafRow<'a> {
    #[inline]
    fn from(cell: LeafCell<'a>) -> LeafRow<'a> {
        LeafRow { flags: cell.flags, stamp: cell.stamp, row: cell.row }
    }
}

/// The effect of a row change on its cell.
#[derive(Clone, Copy, Debug)]
pub enum LeafDecision<'a> {
    /// The change stops.
    Stop,
    /// The cell is replaced by this.
    Put {
        /// ROW or REVERT.
        kind: RecordKind,
        /// `record::cell_flags`; the stamp is kept only with `STAMPED`.
        flags: u8,
        /// The operation that made this version.
        stamp: Stamp,
        /// The row's bytes.
        row: &'a [u8],
    },
    /// The cell is removed; it must exist.
    Remove {
        /// ROW or REVERT.
        kind: RecordKind,
    },
}

/// A row change, called back under the exclusive latch of its leaf.
pub trait LeafOp {
    /// Reads the present cell and decides what to do. Changes nothing outside: it may be called
    /// again, after room was made or the leaf changed.
    ///
    /// # Errors
    /// The write ends with nothing changed.
    fn decide<'a>(&'a mut self, current: Option<LeafRow<'_>>) -> Result<LeafDecision<'a>>;

    /// Called exactly once, when the change is certain: pushes undo, pins the generation. Returns
    /// the logical part of the record. Must neither wait nor fail.
    fn prepare(&mut self, current: Option<LeafRow<'_>>) -> &[u8];

    /// Called after the record was appended, the latch still held. Must neither wait nor fail.
    fn logged(&mut self, lsn: Lsn);
}

thread_local! {
    /// Scratch for the record body, so that a write does not allocate.
    pub(crate) static BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The result of one attempt.
enum Attempt {
    Done(bool),
    /// The cell needs this many bytes beside its key.
    NoRoom(usize),
    /// The leaf has a dead note, which must be removed before a row arrives (E6).
    Marked,
}

/// The decided change, with the physical part of its record in the scratch.
struct Change {
    kind: RecordKind,
    flags: u8,
    stamp: Stamp,
    row_len: usize,
}

impl Change {
    fn is_remove(&self) -> bool {
        self.flags & cell_flags::REMOVE != 0
    }

    fn cell<'r>(&self, row: &'r [u8]) -> LeafCell<'r> {
        LeafCell { flags: self.flags, stamp: self.stamp, row }
    }
}

impl Tree {
    /// Changes the row of `key` as `op` decides. `reserved` pays for the op's own record: its key,
    /// row, logical part and 40 bytes; structure changes reserve by themselves. The caller holds no
    /// latch. Returns false if `op` decided to stop.
    ///
    /// # Errors
    /// `KeyTooLong`, `RowTooLong`, those of `op.decide`, of log and pages; nothing has changed.
    pub fn write(&self, key: &[u8], reserved: &mut Reserved, op: &mut dyn LeafOp) -> Result<bool> {
        self.write_near(None, key, reserved, op)
    }

    /// As `write`, with the leaf as `get` returned it, if known: if it is still the right one, no
    /// descent from the root is needed.
    ///
    /// # Errors
    /// As `write`.
    pub fn write_near(
        &self,
        leaf: Option<PageNo>,
        key: &[u8],
        reserved: &mut Reserved,
        op: &mut dyn LeafOp,
    ) -> Result<bool> {
        self.check_lengths(key, &[])?;
        let mut body = BODY.take();
        let hint = leaf.or_else(|| self.edge_for(key));
        let done = self.write_with(hint, key, reserved, op, &mut body);
        BODY.set(body);
        done
    }

    fn write_with(
        &self,
        mut hint: Option<PageNo>,
        key: &[u8],
        reserved: &mut Reserved,
        op: &mut dyn LeafOp,
        body: &mut Vec<u8>,
    ) -> Result<bool> {
        loop {
            let hinted = hint.is_some();
            let Some((mtr, slot)) = self.write_leaf(hint.take(), key)? else {
                self.trees().rt.step();
                continue;
            };
            match self.attempt(mtr, slot, key, reserved, op, body, hinted)? {
                Attempt::Done(changed) => return Ok(changed),
                Attempt::NoRoom(bytes) => self.make_room(key, bytes)?,
                Attempt::Marked => self.clear_dead(0, key)?,
            }
        }
    }

    /// Latches the leaf of a key in a separate mini-transaction, by the hint if there is one. None:
    /// the hinted page was no longer that leaf.
    pub(crate) fn write_leaf(
        &self,
        hint: Option<PageNo>,
        key: &[u8],
    ) -> Result<Option<(Mtr<'_>, usize)>> {
        // Descend first: the descent takes frames, and holding the leaf's frame while waiting for
        // another can deadlock once as many threads do so as there are frames.
        let page = match hint {
            Some(page) => page,
            None => self.leaf_no(key)?,
        };
        let mut mtr = self.pages().begin(1)?;
        match self.write_node(&mut mtr, page, 0, key) {
            Ok(slot) => Ok(slot.map(|slot| (mtr, slot))),
            // The hint may name a page that was freed.
            Err(_) if hint.is_some() => Ok(None),
            Err(error) => {
                drop(mtr);
                // And so may the descent, while this waited for a frame.
                if self.leaf_no(key)? == page { Err(error) } else { Ok(None) }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one step of write_with, split for length")]
    fn attempt(
        &self,
        mut mtr: Mtr<'_>,
        slot: usize,
        key: &[u8],
        reserved: &mut Reserved,
        op: &mut dyn LeafOp,
        body: &mut Vec<u8>,
        hinted: bool,
    ) -> Result<Attempt> {
        let node = Node::parse(mtr.page(slot))?;
        let (at, found) = node.lower_bound_append(key);
        let old = if found { Some(node.leaf_cell(at)?) } else { None };
        let page = mtr.page_no(slot);
        let Some(change) = self.decide(op, old, page, key, body)? else {
            return Ok(Attempt::Done(false));
        };
        let row = body.len() - change.row_len..body.len();
        if node.is_marked_dead() {
            return Ok(Attempt::Marked);
        }
        let cell = change.cell(&body[row.clone()]);
        if !change.is_remove() && !fits(&node, at, found, key, &cell) {
            return Ok(Attempt::NoRoom(cell.cell_bytes(0)));
        }
        let appended = at == node.count() && node.high().is_none();
        if appended && !hinted {
            self.remember_edge(page, node.low());
        }
        // From here on nothing waits and nothing fails (B2, B3).
        body.extend_from_slice(op.prepare(old.map(LeafRow::from)));
        let done = if change.is_remove() {
            NodeMut::parse(mtr.page_mut(slot)).map(|mut node| node.remove(at))
        } else {
            put_row(mtr.page_mut(slot), at, found, key, &change.cell(&body[row]))
        };
        done.map_err(|e| self.trees().rt.health.fail(e))?;
        if change.flags & (cell_flags::REMOVE | cell_flags::DELETED) != 0 {
            self.note_delete(page, mtr.page(slot));
        }
        mtr.commit_record(reserved, change.kind, &[body], |lsn| op.logged(lsn));
        Ok(Attempt::Done(true))
    }

    /// Calls `op` and encodes the physical part of its record into `body`.
    fn decide(
        &self,
        op: &mut dyn LeafOp,
        old: Option<LeafCell<'_>>,
        page: PageNo,
        key: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<Option<Change>> {
        let (kind, flags, stamp, row) = match op.decide(old.map(LeafRow::from))? {
            LeafDecision::Stop => return Ok(None),
            LeafDecision::Put { kind, flags, stamp, row } => (kind, flags, stamp, row),
            LeafDecision::Remove { .. } if old.is_none() => {
                return Err(Error::internal("a row change removes a row that is not there"));
            }
            LeafDecision::Remove { kind } => (kind, cell_flags::REMOVE, Stamp::default(), &[][..]),
        };
        self.check_lengths(key, row)?;
        let stamp = if flags & cell_flags::STAMPED != 0 { stamp } else { Stamp::default() };
        body.clear();
        LeafChange { page, tree: self.id(), flags, stamp, key, row, logical: &[] }.encode(body);
        Ok(Some(Change { kind, flags, stamp, row_len: row.len() }))
    }

    /// # Errors: `KeyTooLong`, `RowTooLong`.
    pub(crate) fn check_lengths(&self, key: &[u8], row: &[u8]) -> Result<()> {
        let too_long = |code, len, max| {
            Err(Error::new(code).with("tree", self.id()).with("bytes", len).with("limit", max))
        };
        if key.len() > self.key_bytes_max() {
            return too_long(Code::KeyTooLong, key.len(), self.key_bytes_max());
        }
        let row_max = self.row_bytes_max(key.len());
        if row.len() > row_max {
            return too_long(Code::RowTooLong, row.len(), row_max);
        }
        Ok(())
    }

    /// The leaf at the right edge, if the key is known to belong there.
    pub(crate) fn edge_for(&self, key: &[u8]) -> Option<PageNo> {
        let edge = self.inner.edge.lock();
        edge.page.filter(|_| compare(&edge.low, key).is_le())
    }

    pub(crate) fn remember_edge(&self, page: PageNo, low: &[u8]) {
        let mut edge = self.inner.edge.lock();
        edge.page = Some(page);
        edge.low.clear();
        edge.low.extend_from_slice(low);
    }
}

/// Bytes that stay free in a leaf at the right edge for the high fence that it gets when the next
/// leaf begins, so that a full leaf can be left full.
pub(crate) fn fence_reserve(node: &Node<'_>, key: &[u8]) -> usize {
    match (node.high(), node.count().checked_sub(1)) {
        (None, Some(last)) => (node.prefix().len() + node.suffix(last).len()).max(key.len()) + 1,
        (None, None) => key.len() + 1,
        (Some(_), _) => 0,
    }
}

/// True if the cell fits at the slot that `lower_bound` returned.
pub(crate) fn fits(
    node: &Node<'_>,
    at: usize,
    found: bool,
    key: &[u8],
    cell: &LeafCell<'_>,
) -> bool {
    let Some(suffix) = strip_prefix(key, node.prefix()) else { return false };
    let need = cell.cell_bytes(suffix.len());
    let fence = fence_reserve(node, key);
    if found {
        let old = node.cell_len(at);
        need <= old || need + fence <= old + node.free_bytes()
    } else {
        need + fence + SLOT_BYTES <= node.free_bytes()
    }
}
