//! Dead notes (E6): parts of the tree that only older snapshots need are noted, so that newer
//! readers skip them unread. A slot of an inner node says since when no snapshot sees a row below
//! it; the child knows that the slot says so (`Node::is_marked_dead`).
//!
//! Invariants:
//! * A slot has the note exactly if its child has the mark: both change in one mini-transaction.
//! * The slots of a marked inner node all have the note, none newer than the node's own. So a note
//!   is set from the leaf upwards and removed from the top down.
//! * A marked leaf gets no row: a writer that adds one first removes the notes.
//!
//! Marks of inner nodes are hints: a missing one is set by the next leaf below, or when a scan has
//! passed a whole node in vain.

use crate::reorganize::plan;
use crate::tree::{DescentGoal, Tree, change};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Lsn, Result, TxnId};
use evenkeel_format::node::{LEVELS_MAX, Node};
use evenkeel_format::tree_op::TreeOp;
use evenkeel_pages::Access;

/// Bytes of a dead note in the parent's cell.
const DEAD_BYTES: usize = 8;
const MAKE_ROOM_MAX: usize = 4;

/// The new note of a node; `None`: leave it.
type Decide<'d> = &'d dyn Fn(&Node<'_>) -> Result<Option<Option<Lsn>>>;

/// The result of setting a note.
enum Noted {
    Done,
    /// The parent has no room for it.
    NoRoom,
    /// The parent itself is noted as dead.
    DeadAbove,
}

/// Since when all children of an inner node are dead.
pub(crate) fn all_dead_since(node: &Node<'_>) -> Result<Option<Lsn>> {
    let since = |slot: usize| Ok(node.inner_cell(slot)?.dead_since);
    // Rows disappear from one end, so the other end shows it at once.
    match node.count().checked_sub(1) {
        Some(last) if since(last)?.is_some() => {}
        _ => return Ok(None),
    }
    let mut youngest = Lsn::ZERO;
    for slot in 0..node.count() {
        let Some(since) = since(slot)? else { return Ok(None) };
        youngest = youngest.max(since);
    }
    Ok(Some(youngest))
}

impl Tree {
    /// Notes since when the leaf of `key` is dead, if it is, and the same for the nodes above it
    /// whose children are all dead.
    pub(crate) fn mark_dead(&self, key: &[u8]) -> Result<()> {
        self.set_dead(0, key, &|node| {
            let since = plan(&*self.trees().commits, node, TxnId::MAX)?.dead_since;
            Ok(since.filter(|_| !node.is_marked_dead()).map(Some))
        })?;
        self.mark_dead_from(1, key)
    }

    /// Notes for the node of `level` that covers `key`, and those above it, that all their children
    /// are dead, as far up as that is true.
    pub(crate) fn mark_dead_from(&self, level: u8, key: &[u8]) -> Result<()> {
        for level in level..LEVELS_MAX {
            let Some(page) = self.find_if_high(DescentGoal::At(key), level, Access::Normal)? else {
                return Ok(());
            };
            let node = Node::parse(&page)?;
            // The root has no slot.
            if page.page_no() == self.root()
                || node.is_marked_dead()
                || all_dead_since(&node)?.is_none()
            {
                return Ok(());
            }
            drop(page);
            self.set_dead(level, key, &|node| {
                Ok(all_dead_since(node)?.filter(|_| !node.is_marked_dead()).map(Some))
            })?;
            self.trees().rt.step();
        }
        Ok(())
    }

    /// Removes the note of the node of `level` that covers `key`, before it gets a child or a row
    /// that is not dead.
    pub(crate) fn clear_dead(&self, level: u8, key: &[u8]) -> Result<()> {
        self.set_dead(level, key, &|node| Ok(node.is_marked_dead().then_some(None)))
    }

    /// Sets a note by `decide`. A parent without room for it is split: with ascending keys inner
    /// nodes are full.
    fn set_dead(&self, level: u8, key: &[u8], decide: Decide<'_>) -> Result<()> {
        let mut rooms = 0;
        loop {
            match self.set_dead_once(level, key, decide)? {
                Noted::Done => return Ok(()),
                Noted::DeadAbove => self.clear_dead(level + 1, key)?,
                // A full root grows first.
                Noted::NoRoom if rooms < MAKE_ROOM_MAX => {
                    rooms += 1;
                    self.make_room_above(level, key, DEAD_BYTES)?;
                }
                Noted::NoRoom => return Ok(()),
            }
            self.trees().rt.step();
        }
    }

    fn set_dead_once(&self, level: u8, key: &[u8], decide: Decide<'_>) -> Result<Noted> {
        let above = self.find_if_high(DescentGoal::At(key), level + 1, Access::Normal)?;
        // The root has no slot for a note.
        let Some(parent_no) = above.map(|page| page.page_no()) else { return Ok(Noted::Done) };
        let mut reserved = self.reserve_log_within()?;
        let mut mtr = self.pages().begin(2)?;
        let Some(parent) = self.write_node(&mut mtr, parent_no, level + 1, key)? else {
            return Ok(Noted::Done);
        };
        let node = Node::parse(mtr.page(parent))?;
        let slot = node.child_slot(key);
        let child_no = node.inner_cell(slot)?.child;
        let (has_room, dead_above) = (node.free_bytes() >= DEAD_BYTES, node.is_marked_dead());
        let Some(child) = self.write_node(&mut mtr, child_no, level, key)? else {
            return Ok(Noted::Done);
        };
        let Some(dead_since) = decide(&Node::parse(mtr.page(child))?)? else {
            return Ok(Noted::Done);
        };
        match dead_since {
            Some(_) if !has_room => return Ok(Noted::NoRoom),
            None if dead_above => return Ok(Noted::DeadAbove),
            _ => {}
        }
        let mut apply = || {
            let set = TreeOp::SetChild { slot, child: child_no, dead_since };
            change(&mut mtr, parent, &set)?;
            change(&mut mtr, child, &TreeOp::MarkDead(dead_since.is_some()))
        };
        apply().map_err(|e| self.trees().rt.health.fail(e))?;
        mtr.commit(&mut reserved);
        if dead_since.is_some() {
            let noted = if level == 0 { Metric::DeadNoted } else { Metric::DeadInnerNoted };
            self.trees().rt.metrics.add(noted, 1);
        }
        Ok(Noted::Done)
    }
}
