//! Making room: splits of leaves and inner nodes, growth of the root. Each is one
//! mini-transaction that leaves the tree whole, so a crash or an error in between loses nothing.

use crate::tree::{DescentGoal, Tree, change, change_image};
use crate::write::fence_reserve;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::node::{
    HEADER_BYTES, InnerCell, LEVELS_MAX, Node, NodeMut, SLOT_BYTES, common_prefix, separator,
};
use evenkeel_format::record::cell_flags::FIRST;
use evenkeel_format::scratch::Scratch;
use evenkeel_format::tree_op::TreeOp;
use evenkeel_pages::Access;
use std::borrow::Cow;

/// Frames of a structure change: parent, node, its new sibling, and the pages that allocation
/// touches.
const SPLIT_FRAMES: usize = 4;

/// Where to cut a node: slots that stay, and the low fence of the new right sibling.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    keep: usize,
    sep: Vec<u8>,
}

/// Decides whether and where to cut a node under its latch; `None`: no longer needed.
type Plan<'p> = &'p dyn Fn(&Node<'_>) -> Option<Cut>;

impl Tree {
    /// Makes room in the leaf of `key` for a cell of `cell_bytes` beside its key: by reorganization
    /// if that gains enough, otherwise by a split.
    pub(crate) fn make_room(&self, key: &[u8], cell_bytes: usize) -> Result<()> {
        let full = self.is_full_edge(key)?;
        if !full && (self.compact_for(key, cell_bytes)? || self.fit_prefix_for(key, cell_bytes)?) {
            return Ok(());
        }
        self.split(0, key, &|node| cut_leaf(node, key, cell_bytes))
    }

    /// Makes room in the parent of the node of `level` that covers `key`; if the parent is the root
    /// this may take two calls.
    pub(crate) fn make_room_above(&self, level: u8, key: &[u8], bytes: usize) -> Result<()> {
        self.split(level + 1, key, &|node| cut_inner(node, bytes))
    }

    fn split(&self, level: u8, key: &[u8], plan: Plan<'_>) -> Result<()> {
        loop {
            let Some(node) = self.find_if_high(DescentGoal::At(key), level, Access::Normal)? else {
                return Ok(());
            };
            let is_root = node.page_no() == self.root();
            drop(node);
            if is_root {
                return self.grow_root(level, plan);
            }
            match self.split_once(level, key, plan)? {
                Split::Done => return Ok(()),
                Split::Again => self.trees().rt.step(),
                Split::DeadAbove => self.clear_dead(level + 1, key)?,
                Split::ParentFull(bytes) => {
                    self.split(level + 1, key, &|node| cut_inner(node, bytes))?;
                }
            }
        }
    }

    fn split_once(&self, level: u8, key: &[u8], plan: Plan<'_>) -> Result<Split> {
        let above = self.find_if_high(DescentGoal::At(key), level + 1, Access::Normal)?;
        // The node has become the root.
        let Some(parent_no) = above.map(|page| page.page_no()) else { return Ok(Split::Again) };
        let mut reserved = self.reserve_log_within()?;
        let mut mtr = self.pages().begin(SPLIT_FRAMES)?;
        let Some(parent) = self.write_node(&mut mtr, parent_no, level + 1, key)? else {
            return Ok(Split::Again);
        };
        let node = Node::parse(mtr.page(parent))?;
        if node.is_marked_dead() {
            return Ok(Split::DeadAbove);
        }
        let child_no = node.inner_cell(node.child_slot(key))?.child;
        let Some(left) = self.write_node(&mut mtr, child_no, level, key)? else {
            return Ok(Split::Again);
        };
        let Some(cut) = plan(&Node::parse(mtr.page(left))?) else { return Ok(Split::Done) };
        let parent_node = Node::parse(mtr.page(parent))?;
        let suffix = cut.sep.len() - parent_node.prefix().len();
        if child_cell_bytes(suffix) > parent_node.free_bytes() {
            return Ok(Split::ParentFull(child_cell_bytes(cut.sep.len())));
        }
        let right = mtr.alloc(self.id(), Some(child_no))?;
        let right_no = mtr.page_no(right);
        let mut page = Scratch::zeros(mtr.page(left).len());
        let old = Node::parse(mtr.page(left))?;
        let mut node = NodeMut::format(&mut page, level, &cut.sep, old.high())?;
        if level == 0 && cut.keep == old.count() && old.high().is_none() {
            node.set_prefix(prefix_ahead(old.low(), &cut.sep))?;
        }
        node.append_from(&old, cut.keep..old.count())?;
        let halves = [(child_no, 0..cut.keep), (right_no, cut.keep..old.count())];
        let young = if level == 0 { self.concurrent_leaves(&old, halves)? } else { Vec::new() };
        // All checks are done: the rest cannot fail on an intact page.
        let mut apply = || {
            change_image(&mut mtr, right, &mut node)?;
            change(&mut mtr, left, &TreeOp::Truncate { keep: cut.keep, high: &cut.sep })?;
            change(&mut mtr, parent, &TreeOp::InsertChild { child: right_no, key: &cut.sep })
        };
        apply().map_err(|e| self.trees().rt.health.fail(e))?;
        self.note_concurrent_insert(&young);
        mtr.commit(&mut reserved);
        self.trees().rt.metrics.add(Metric::Splits, 1);
        Ok(Split::Done)
    }

    /// Moves the root's content one level down; the caller then splits the node below.
    fn grow_root(&self, level: u8, plan: Plan<'_>) -> Result<()> {
        let mut reserved = self.reserve_log_within()?;
        let mut mtr = self.pages().begin(SPLIT_FRAMES)?;
        let root = mtr.write(self.root())?;
        let node = Node::parse(mtr.page(root))?;
        if node.level() != level || plan(&node).is_none() {
            return Ok(());
        }
        if level == LEVELS_MAX {
            return Err(Error::new(Code::TreeDamaged).with("tree", self.id()).with("level", level));
        }
        let mut page = mtr.page(root).to_vec();
        let mut old = NodeMut::parse(&mut page)?;
        let mut page = vec![0; mtr.page(root).len()];
        let mut new = NodeMut::format(&mut page, level + 1, b"", None)?;
        let child = mtr.alloc(self.id(), Some(self.root()))?;
        new.insert_inner(0, b"", &InnerCell { child: mtr.page_no(child), dead_since: None });
        let mut apply = || {
            change_image(&mut mtr, child, &mut old)?;
            change_image(&mut mtr, root, &mut new)
        };
        apply().map_err(|e| self.trees().rt.health.fail(e))?;
        mtr.commit(&mut reserved);
        Ok(())
    }
}

/// A guess of the prefix for the leaf that begins at `sep` when keys ascend: the bytes that `sep`
/// shares with a key that lies as far behind it, plus a quarter, as `low`, the beginning of the
/// leaf before, lies in front. So the leaf needs no other prefix when it is full. A key without the
/// prefix shortens it.
fn prefix_ahead(low: &[u8], sep: &[u8]) -> usize {
    let shared = common_prefix(low, sep);
    // The difference begins in the middle of eight bytes, so that a carry shows.
    let from = shared.saturating_sub(4);
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        let part = &key[from.min(key.len())..key.len().min(from + 8)];
        bytes[..part.len()].copy_from_slice(part);
        u64::from_be_bytes(bytes)
    };
    let (before, now) = (number(low), number(sep));
    let step = now.saturating_sub(before);
    let ahead = step.checked_add(step / 4).and_then(|step| now.checked_add(step));
    match ahead {
        Some(ahead) => sep.len().min(from + (now ^ ahead).leading_zeros() as usize / 8),
        None => shared.saturating_sub(1),
    }
}

enum Split {
    Done,
    Again,
    /// The parent has a dead note, which would be wrong for the new node (E6).
    DeadAbove,
    /// The parent has no room for a slot and cell of this size.
    ParentFull(usize),
}

/// Slot and cell of a child whose key has a suffix of this length.
fn child_cell_bytes(suffix_len: usize) -> usize {
    SLOT_BYTES + InnerCell { child: Default::default(), dead_since: None }.cell_bytes(suffix_len)
}

/// Bytes of a node with these fences that holds `cells` slots, cells and prefixes of `n` keys.
fn node_bytes(low: &[u8], high: Option<&[u8]>, n: usize, cells: usize) -> usize {
    let (high_len, prefix) = high.map_or((0, 0), |high| (high.len(), common_prefix(low, high)));
    HEADER_BYTES + low.len() + high_len + cells - n * prefix
}

/// Bytes of a node with these fences and a range of `node`'s cells.
pub(crate) fn range_bytes(
    node: &Node<'_>,
    range: std::ops::Range<usize>,
    low: &[u8],
    high: Option<&[u8]>,
) -> usize {
    node_bytes(low, high, range.len(), node.packed_bytes(range, 0))
}

/// Cuts an inner node that lacks `bytes` for a child. At the right edge all but the last child
/// stay, so that ascending inserts fill inner nodes, too.
fn cut_inner(node: &Node<'_>, bytes: usize) -> Option<Cut> {
    let count = node.count();
    if node.free_bytes() >= bytes || count < 2 {
        return None;
    }
    let middle = if node.high().is_none() { count - 1 } else { count / 2 };
    let cut = |keep: usize| Cut { keep, sep: node.key(keep) };
    let right_fits = |cut: &Cut| {
        let cells = cut.keep..count;
        range_bytes(node, cells, &cut.sep, node.high()) <= node.payload_bytes()
    };
    // With only the last child the right half always fits; the left half always does.
    Some(Some(cut(middle)).filter(right_fits).unwrap_or_else(|| cut(count - 1)))
}

/// The cells of a leaf with the new cell among them.
struct Incoming<'a> {
    node: &'a Node<'a>,
    key: &'a [u8],
    /// Slot, cell and whole key.
    bytes: usize,
    at: usize,
    found: bool,
}

impl Incoming<'_> {
    fn count(&self) -> usize {
        self.node.count() + usize::from(!self.found)
    }
    /// The old slot at or behind virtual slot `i`.
    fn old(&self, i: usize) -> usize {
        if !self.found && i > self.at { i - 1 } else { i }
    }
    fn key(&self, i: usize) -> Cow<'_, [u8]> {
        if i == self.at { Cow::Borrowed(self.key) } else { Cow::Owned(self.node.key(self.old(i))) }
    }
    fn bytes(&self, i: usize) -> usize {
        if i == self.at {
            return self.bytes;
        }
        SLOT_BYTES + self.node.cell_len(self.old(i)) + self.node.prefix().len()
    }
    /// Cuts before virtual slot `b`, if both halves fit a page.
    fn cut(&self, b: usize, left: usize, total: usize) -> Option<Cut> {
        let (low, high) = (self.node.low(), self.node.high());
        let (before, behind) = (self.key(b - 1), self.key(b));
        if before >= behind {
            return None; // Damaged: `check` will name it.
        }
        let sep = separator(&before, &behind);
        let fence = fence_reserve(self.node, self.key);
        let page = self.node.payload_bytes();
        let left_bytes = node_bytes(low, Some(sep), b, left);
        let right_bytes = node_bytes(sep, high, self.count() - b, total - left) + fence;
        let fits = left_bytes <= page && right_bytes <= page;
        // The new cell does not exist yet: count the old slots on the left.
        let keep = if !self.found && b > self.at { b - 1 } else { b };
        fits.then(|| Cut { keep, sep: sep.to_vec() })
    }
}

/// Cuts a leaf so that `key` with a cell of `cell_bytes` beside it fits: behind the last row for
/// ascending inserts, behind the new one for ascending inserts within a leaf, else near the middle
/// of the bytes. `None`: it fits already.
fn cut_leaf(node: &Node<'_>, key: &[u8], cell_bytes: usize) -> Option<Cut> {
    let (at, found) = node.lower_bound(key);
    let bytes = SLOT_BYTES + cell_bytes + key.len();
    let new = Incoming { node, key, bytes, at, found };
    let n = new.count();
    let needed = (0..n).map(|i| new.bytes(i)).sum::<usize>();
    let needed = node_bytes(node.low(), node.high(), n, needed) + fence_reserve(node, key);
    if needed <= node.payload_bytes() {
        return None;
    }
    let appends = !found && at == node.count();
    if appends && n > 1 {
        // Ascending keys: the full leaf stays unchanged.
        let left = (0..n - 1).map(|i| new.bytes(i)).sum::<usize>();
        if let Some(cut) = new.cut(n - 1, left, left + new.bytes(n - 1)) {
            return Some(cut);
        }
    }
    if !found && follows_youngest(node, at) {
        // The writer that appends here will continue: rows behind its position move to the right,
        // and its leaves are full as at the right edge. Near the middle each would stay half full.
        for b in [at + 1, at] {
            let left = (0..b).map(|i| new.bytes(i)).sum::<usize>();
            let rest = (b..n).map(|i| new.bytes(i)).sum::<usize>();
            if let Some(cut) = new.cut(b, left, left + rest) {
                return Some(cut);
            }
        }
    }
    // Sizes left of each cut, and the cuts in the order of preference.
    let mut left = Vec::with_capacity(n);
    let mut sum = 0;
    for i in 0..n {
        left.push(sum);
        sum += new.bytes(i);
    }
    let mut cuts: Vec<usize> = (1..n).collect();
    let distance = |b: usize| if appends { n - b } else { left[b].abs_diff(sum / 2) };
    cuts.sort_by_key(|b| distance(*b));
    let best = cuts.iter().find_map(|b| new.cut(*b, left[*b], sum));
    best.or_else(|| cut_without(node))
}

/// True if the row before slot `at`, which is not the last one, is the newest among the recent rows
/// of the leaf: the next row is likely to come there, too.
fn follows_youngest(node: &Node<'_>, at: usize) -> bool {
    let stamp = |slot| node.leaf_cell(slot).map(|cell| (cell.flags & FIRST, cell.stamp)).ok();
    let Some((FIRST, youngest)) = at.checked_sub(1).and_then(stamp) else { return false };
    at < node.count()
        && (0..node.count()).all(|slot| stamp(slot).is_some_and(|(_, stamp)| stamp <= youngest))
}

/// A cut that only halves the present content: the next attempt has more room.
fn cut_without(node: &Node<'_>) -> Option<Cut> {
    let keep = node.count() / 2;
    if keep == 0 {
        return None;
    }
    let (before, behind) = (node.key(keep - 1), node.key(keep));
    (before < behind).then(|| Cut { keep, sep: separator(&before, &behind).to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_leaf_gets_the_prefix_that_its_keys_will_share() {
        let ahead = |low: u64, sep: u64| prefix_ahead(&low.to_be_bytes(), &sep.to_be_bytes());
        assert_eq!(ahead(0x0100, 0x0140), 7, "the next leaf ends at 0x0190");
        assert_eq!(ahead(0x01a0, 0x01e0), 6, "a carry");
        assert_eq!(ahead(0xff_ff80, 0xff_ffc0), 4, "a long carry");
        assert_eq!(ahead(1000 << 32, 1001 << 32), 3, "steps of 2^32");
        assert_eq!(ahead(0, u64::MAX - 1), 0, "nothing can lie so far ahead");
        assert_eq!(prefix_ahead(b"", b"abc"), 0);
        assert_eq!(prefix_ahead(b"ab", b"ab\0"), 3, "no number tells the step");
        let long = |last: &[u8]| [b"a long common beginning ".as_slice(), last].concat();
        assert_eq!(prefix_ahead(&long(b"10"), &long(b"16")), 25);
    }
}
