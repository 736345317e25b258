//! Changes of the payload of a tree's pages, both for forward processing and for redo. Every
//! function is deterministic in the payload and the op, so redo of the logged ops gives the same
//! bytes. Callers: `tree` while the engine runs and recovers, `salvage` without the engine.

use crate::node::{InnerCell, LeafCell, Node, NodeMut};
use crate::overflow::set_next;
use crate::record::{LeafChange, cell_flags};
use crate::scratch::Scratch;
use crate::tree_op::{COMPACT_REMOVE, TreeOp};
use evenkeel_base::{Code, Error, PageNo, Result};

/// Applies the change of one leaf cell (ROW, REVERT, each of ROWS).
///
/// # Errors
/// `TreeOpMismatch` if it does not fit the page; `BadEncoding` if the page is no leaf.
pub fn apply_row(change: &LeafChange<'_>, page: &mut [u8]) -> Result<()> {
    let (slot, found) = Node::parse(page)?.lower_bound_append(change.key);
    if change.flags & cell_flags::REMOVE == 0 {
        let cell = LeafCell { flags: change.flags, stamp: change.stamp, row: change.row };
        return put_row(page, slot, found, change.key, &cell);
    }
    if !found {
        return Err(misfit("the row to remove is missing"));
    }
    NodeMut::parse(page)?.remove(slot);
    Ok(())
}

/// The error of a change that does not fit its page.
pub fn misfit(why: &'static str) -> Error {
    Error::new(Code::TreeOpMismatch).with("why", why)
}

/// Puts a cell at the slot that `lower_bound` returned.
///
/// # Errors
/// `TreeOpMismatch` if it does not fit.
pub fn put_row(
    page: &mut [u8],
    slot: usize,
    found: bool,
    key: &[u8],
    cell: &LeafCell<'_>,
) -> Result<()> {
    let mut node = NodeMut::parse(page)?;
    let done =
        if found { node.replace_leaf(slot, key, cell) } else { node.insert_leaf(slot, key, cell) };
    if done { Ok(()) } else { Err(misfit("the row does not fit")) }
}

/// Applies one op to a page's payload.
///
/// # Errors
/// `TreeOpMismatch` or `BadEncoding`: the op does not fit the page.
pub fn apply(op: &TreeOp<'_>, page: &mut [u8]) -> Result<()> {
    match *op {
        TreeOp::Image(image) => NodeMut::from_image(page, image).map(drop),
        TreeOp::InsertChild { child, key } => insert_child(page, child, key),
        TreeOp::SetChild { slot, child, dead_since } => {
            if NodeMut::parse(page)?.replace_inner(slot, &InnerCell { child, dead_since }) {
                Ok(())
            } else {
                Err(misfit("no such child, or it does not fit"))
            }
        }
        TreeOp::RemoveChild { slot } => {
            NodeMut::parse(page)?.remove(slot);
            Ok(())
        }
        TreeOp::Truncate { keep, high } => NodeMut::parse(page)?.truncate(keep, Some(high)),
        TreeOp::Fences { low, high } => NodeMut::parse(page)?.set_fences(low, high),
        TreeOp::Compact(items) => compact(page, items),
        TreeOp::MarkDead(dead) => {
            NodeMut::parse(page)?.mark_dead(dead);
            Ok(())
        }
        TreeOp::Overflow(bytes) => match page.get_mut(..bytes.len()) {
            Some(out) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(misfit("overflow page of another size")),
        },
        TreeOp::Prefix(len) => NodeMut::parse(page)?.set_prefix(len),
        TreeOp::OverflowNext(next) => set_next(page, next),
    }
}

fn insert_child(page: &mut [u8], child: PageNo, key: &[u8]) -> Result<()> {
    let mut node = NodeMut::parse(page)?;
    let (slot, found) = node.node().lower_bound(key);
    if found || !node.insert_inner(slot, key, &InnerCell { child, dead_since: None }) {
        return Err(misfit("the child exists or does not fit"));
    }
    Ok(())
}

fn compact(page: &mut [u8], items: &[u8]) -> Result<()> {
    let old = Scratch::copy_of(page);
    let mut items = items.as_chunks::<2>().0.iter().map(|c| u16::from_le_bytes(*c)).peekable();
    NodeMut::parse(page)?.compact(&old, |slot, mut cell| {
        let Some(item) = items.next_if(|i| usize::from(*i & !COMPACT_REMOVE) == slot) else {
            return Some(cell);
        };
        cell.flags &= !(cell_flags::STAMPED | cell_flags::FIRST);
        (item & COMPACT_REMOVE == 0).then_some(cell)
    })
}
