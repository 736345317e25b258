//! Merging neighbours (E6): an empty leaf is unlinked, two sparse nodes become one, an inner node
//! with a single child takes children from its neighbour, a root with a single inner child takes
//! that child's place. Each step is one mini-transaction. If both neighbours have dead notes so has
//! the result, and the note of their parent stays true.

use crate::split::range_bytes;
use crate::tree::{DescentGoal, Tree, change, change_image};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Lsn, Result};
use evenkeel_format::node::{InnerCell, KIND_NONE, Node, NodeMut, SLOT_BYTES};
use evenkeel_format::tree_op::TreeOp;
use evenkeel_pages::{Access, Mtr};

/// Frames of a merge: parent, both nodes, and the pages that freeing touches.
const MERGE_FRAMES: usize = 5;

/// How to join two neighbours.
enum Join {
    /// The left one is empty: the right one takes its range.
    KeepRight,
    /// The right one is empty: the left one takes its range.
    KeepLeft,
    /// Both fit the left one.
    Merge,
    /// One has a single child and they do not fit one page: share the children.
    Share,
    /// Nothing.
    Leave,
}

enum Step {
    Joined {
        parent_thin: bool,
    },
    Left,
    /// The parent has no other child.
    OnlyChild {
        parent_is_root: bool,
    },
}

impl Tree {
    /// Joins the node of `level` that covers `key` with a neighbour. False if that is not worth it.
    pub(crate) fn merge(&self, level: u8, key: &[u8]) -> Result<bool> {
        match self.merge_once(level, key)? {
            Step::Left => Ok(false),
            Step::Joined { parent_thin } => {
                self.trees().rt.metrics.add(Metric::LeafMerges, 1);
                if parent_thin {
                    self.merge_up(level + 1, key)?;
                }
                Ok(true)
            }
            Step::OnlyChild { parent_is_root: false } => self.merge_up(level + 1, key),
            Step::OnlyChild { parent_is_root: true } => Ok(false),
        }
    }

    /// Joins an inner node with a neighbour, or shrinks the root.
    fn merge_up(&self, level: u8, key: &[u8]) -> Result<bool> {
        let Some(page) = self.find_if_high(DescentGoal::At(key), level, Access::Normal)? else {
            return Ok(false);
        };
        let is_root = page.page_no() == self.root();
        drop(page);
        if is_root { self.shrink_root(level) } else { self.merge(level, key) }
    }

    fn merge_once(&self, level: u8, key: &[u8]) -> Result<Step> {
        let above = self.find_if_high(DescentGoal::At(key), level + 1, Access::Normal)?;
        let Some(parent_no) = above.map(|page| page.page_no()) else { return Ok(Step::Left) };
        let mut reserved = self.reserve_log()?;
        let mut mtr = self.pages().begin(MERGE_FRAMES)?;
        let Some(parent) = self.write_node(&mut mtr, parent_no, level + 1, key)? else {
            return Ok(Step::Left);
        };
        let node = Node::parse(mtr.page(parent))?;
        if node.count() < 2 {
            return Ok(Step::OnlyChild { parent_is_root: parent_no == self.root() });
        }
        let slot = node.child_slot(key).min(node.count() - 2);
        let (left_cell, right_cell) = (node.inner_cell(slot)?, node.inner_cell(slot + 1)?);
        let (left_key, right_key) = (node.key(slot), node.key(slot + 1));
        let left = self.write_node(&mut mtr, left_cell.child, level, &left_key)?;
        let right = self.write_node(&mut mtr, right_cell.child, level, &right_key)?;
        let (Some(left), Some(right)) = (left, right) else { return Ok(Step::Left) };
        let places = Places { parent, slot, left, right };
        let join = self.choose(&mtr, &places)?;
        match join {
            Join::Leave => return Ok(Step::Left),
            Join::KeepRight => mtr.free(left)?,
            Join::KeepLeft | Join::Merge => mtr.free(right)?,
            Join::Share => {}
        }
        if level == 0 {
            self.forget_concurrent_inserts([left_cell.child, right_cell.child]);
        }
        // Everything that can fail has been done.
        let done = match join {
            Join::Leave => Ok(()),
            Join::KeepRight => self.keep_right(&mut mtr, &places, right_cell),
            Join::KeepLeft => self.keep_left(&mut mtr, &places),
            Join::Merge => self.merge_left(&mut mtr, &places, left_cell, right_cell),
            Join::Share => self.share(&mut mtr, &places, left_cell, right_cell),
        };
        done.map_err(|e| self.trees().rt.health.fail(e))?;
        let node = Node::parse(mtr.page(parent))?;
        let parent_thin = node.count() == 1 || node.used_bytes() < node.payload_bytes() / 3;
        mtr.commit(&mut reserved);
        Ok(Step::Joined { parent_thin })
    }

    fn choose(&self, mtr: &Mtr<'_>, at: &Places) -> Result<Join> {
        let left = Node::parse(mtr.page(at.left))?;
        let right = Node::parse(mtr.page(at.right))?;
        let (low, high, page) = (left.low(), right.high(), left.payload_bytes());
        let left_bytes = range_bytes(&left, 0..left.count(), low, high);
        let right_bytes = range_bytes(&right, 0..right.count(), low, high);
        let fences = range_bytes(&left, 0..0, low, high);
        if left.count() == 0 && right_bytes <= page {
            return Ok(Join::KeepRight);
        }
        if right.count() == 0 && left_bytes <= page {
            return Ok(Join::KeepLeft);
        }
        let single = !left.is_leaf() && (left.count() == 1 || right.count() == 1);
        // A single child prevents the merge of its leaf: any page will do.
        let most = if single { page } else { page * 3 / 4 };
        if left_bytes + right_bytes - fences <= most {
            return Ok(Join::Merge);
        }
        if !single {
            return Ok(Join::Leave);
        }
        Ok(if self.can_share(mtr, at)? { Join::Share } else { Join::Leave })
    }

    fn keep_right(&self, mtr: &mut Mtr<'_>, at: &Places, right: InnerCell) -> Result<()> {
        let (low, high) = at.outer_fences(mtr)?;
        change(mtr, at.right, &TreeOp::Fences { low: &low, high: high.as_deref() })?;
        let InnerCell { child, dead_since } = right;
        // Remove the slot behind first: a dead note needs its room.
        change(mtr, at.parent, &TreeOp::RemoveChild { slot: at.slot + 1 })?;
        change(mtr, at.parent, &TreeOp::SetChild { slot: at.slot, child, dead_since })?;
        wipe(mtr, at.left);
        Ok(())
    }

    fn keep_left(&self, mtr: &mut Mtr<'_>, at: &Places) -> Result<()> {
        let (low, high) = at.outer_fences(mtr)?;
        change(mtr, at.left, &TreeOp::Fences { low: &low, high: high.as_deref() })?;
        change(mtr, at.parent, &TreeOp::RemoveChild { slot: at.slot + 1 })?;
        wipe(mtr, at.right);
        Ok(())
    }

    fn merge_left(
        &self,
        mtr: &mut Mtr<'_>,
        at: &Places,
        left_cell: InnerCell,
        right_cell: InnerCell,
    ) -> Result<()> {
        let dead_since = both_dead_since(left_cell, right_cell);
        let (low, high) = at.outer_fences(mtr)?;
        let (left, right) = (Node::parse(mtr.page(at.left))?, Node::parse(mtr.page(at.right))?);
        let mut page = vec![0; left.payload_bytes()];
        let mut merged = NodeMut::format(&mut page, left.level(), &low, high.as_deref())?;
        merged.append_from(&left, 0..left.count())?;
        merged.append_from(&right, 0..right.count())?;
        merged.mark_dead(dead_since.is_some());
        change_image(mtr, at.left, &mut merged)?;
        change(mtr, at.parent, &TreeOp::RemoveChild { slot: at.slot + 1 })?;
        let child = left_cell.child;
        change(mtr, at.parent, &TreeOp::SetChild { slot: at.slot, child, dead_since })?;
        wipe(mtr, at.right);
        Ok(())
    }

    /// The separator of both halves if they share their children evenly.
    fn can_share(&self, mtr: &Mtr<'_>, at: &Places) -> Result<bool> {
        let parent = Node::parse(mtr.page(at.parent))?;
        let halves = at.halves(mtr)?;
        let (low, high) = at.outer_fences(mtr)?;
        let left = Node::parse(mtr.page(at.left))?;
        let right = Node::parse(mtr.page(at.right))?;
        let page = left.payload_bytes();
        let (from, sep) = (halves.left, &halves.sep);
        let move_right = from.min(left.count());
        let move_left = from - move_right;
        let fences_left = range_bytes(&left, 0..0, &low, Some(sep));
        let bytes_left = range_bytes(&left, 0..move_right, &low, Some(sep))
            + range_bytes(&right, 0..move_left, &low, Some(sep))
            - fences_left;
        let fences_right = range_bytes(&left, 0..0, sep, high.as_deref());
        let bytes_right = range_bytes(&left, move_right..left.count(), sep, high.as_deref())
            + range_bytes(&right, move_left..right.count(), sep, high.as_deref())
            - fences_right;
        let grows = (sep.len() + SLOT_BYTES).saturating_sub(parent.cell_len(at.slot + 1));
        let fits = bytes_left <= page && bytes_right <= page;
        Ok(fits && grows + 16 + sep.len() <= parent.free_bytes())
    }

    fn share(
        &self,
        mtr: &mut Mtr<'_>,
        at: &Places,
        left_cell: InnerCell,
        right_cell: InnerCell,
    ) -> Result<()> {
        let dead_since = both_dead_since(left_cell, right_cell);
        let halves = at.halves(mtr)?;
        let (low, high) = at.outer_fences(mtr)?;
        let (left, right) = (Node::parse(mtr.page(at.left))?, Node::parse(mtr.page(at.right))?);
        let from_left = halves.left.min(left.count());
        let from_right = halves.left - from_left;
        let mut page = vec![0; left.payload_bytes()];
        let mut new_left = NodeMut::format(&mut page, left.level(), &low, Some(&halves.sep))?;
        new_left.append_from(&left, 0..from_left)?;
        new_left.append_from(&right, 0..from_right)?;
        let mut page = vec![0; left.payload_bytes()];
        let mut new_right = NodeMut::format(&mut page, left.level(), &halves.sep, high.as_deref())?;
        new_right.append_from(&left, from_left..left.count())?;
        new_right.append_from(&right, from_right..right.count())?;
        for half in [&mut new_left, &mut new_right] {
            half.mark_dead(dead_since.is_some());
        }
        change_image(mtr, at.left, &mut new_left)?;
        change_image(mtr, at.right, &mut new_right)?;
        let (left, right) = (left_cell.child, right_cell.child);
        let slot = at.slot;
        change(mtr, at.parent, &TreeOp::RemoveChild { slot: slot + 1 })?;
        change(mtr, at.parent, &TreeOp::InsertChild { child: right, key: &halves.sep })?;
        change(mtr, at.parent, &TreeOp::SetChild { slot, child: left, dead_since })?;
        change(mtr, at.parent, &TreeOp::SetChild { slot: slot + 1, child: right, dead_since })
    }

    /// A root with a single inner child takes over the content of that child.
    fn shrink_root(&self, level: u8) -> Result<bool> {
        let mut reserved = self.reserve_log()?;
        let mut mtr = self.pages().begin(MERGE_FRAMES)?;
        let root = mtr.write(self.root())?;
        let node = Node::parse(mtr.page(root))?;
        if node.level() != level || level < 2 || node.count() != 1 {
            return Ok(false);
        }
        let child = node.inner_cell(0)?.child;
        let Some(child) = self.write_node(&mut mtr, child, level - 1, b"")? else {
            return Ok(false);
        };
        let mut page = mtr.page(child).to_vec();
        let mut node = NodeMut::parse(&mut page)?;
        // The root has no slot.
        node.mark_dead(false);
        mtr.free(child)?;
        change_image(&mut mtr, root, &mut node).map_err(|e| self.trees().rt.health.fail(e))?;
        wipe(&mut mtr, child);
        mtr.commit(&mut reserved);
        Ok(true)
    }
}

/// Since when two neighbours together are dead.
fn both_dead_since(left: InnerCell, right: InnerCell) -> Option<Lsn> {
    Some(left.dead_since?.max(right.dead_since?))
}

/// Two neighbours and the left one's slot in their parent.
struct Places {
    parent: usize,
    slot: usize,
    left: usize,
    right: usize,
}

struct Halves {
    /// Children of the left node afterwards.
    left: usize,
    sep: Vec<u8>,
}

impl Places {
    fn outer_fences(&self, mtr: &Mtr<'_>) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
        let low = Node::parse(mtr.page(self.left))?.low().to_vec();
        Ok((low, Node::parse(mtr.page(self.right))?.high().map(<[u8]>::to_vec)))
    }

    fn halves(&self, mtr: &Mtr<'_>) -> Result<Halves> {
        let (left, right) = (Node::parse(mtr.page(self.left))?, Node::parse(mtr.page(self.right))?);
        let both = left.count() + right.count();
        // The node with a single child gets another one.
        let half = if left.count() == 1 { both.div_ceil(2) } else { both / 2 };
        let sep = match half.checked_sub(left.count()) {
            None => left.key(half),
            Some(i) => right.key(i),
        };
        Ok(Halves { left: half, sep })
    }
}

/// Readers on their way to a page that leaves the tree see that it is no node. Not logged: no
/// reader needs a freed page after a crash.
fn wipe(mtr: &mut Mtr<'_>, slot: usize) {
    mtr.page_mut(slot)[0] = KIND_NONE;
}
