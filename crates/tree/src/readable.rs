//! The leaves of a damaged tree that can be read, for a repair. A node is damaged if it cannot be
//! read or does not fit its parent.
//!
//! A leaf is found by its key from the root down, as in every search. Where the way ends at damage,
//! the lowest readable node above says how far the damage goes. Damage of an inner node hides its
//! leaves but does not destroy them: the map of the page space names the pages of the tree, and
//! each leaf says which keys it holds (`leaves_apart`). A page that the map names is in use, so it
//! is the present leaf of its keys.

use crate::tree::{DescentGoal, Tree};
use evenkeel_base::{Code, Error, Kind, PageNo, Result};
use evenkeel_format::node::Node;
use evenkeel_pages::Access;

/// Levels of a tree, at most.
const LEVELS_MAX: u8 = 32;
/// A page that storage does not give this often is lost; a device may fail once.
const READ_TRIES: usize = 4;
/// Pages looked at between two calls of `poll`.
const PAGES_PER_POLL: u64 = 64;

/// The leaf that covers a key, or the damage that hides this leaf.
#[derive(Debug)]
pub enum AtKey {
    /// A copy of the leaf.
    Leaf(Vec<u8>),
    /// A node that cannot be read.
    Damaged(Damaged),
}

/// A node that cannot be read.
#[derive(Debug)]
pub struct Damaged {
    /// The first key behind it; `None`: it is the last of its level.
    pub below: Option<Vec<u8>>,
    /// True if it is a leaf: then its rows are lost.
    pub is_leaf: bool,
    /// The error of reading it.
    pub error: Error,
}

/// A leaf found by a look at all pages of the tree, by its fences.
#[derive(Debug)]
pub struct LeafApart {
    /// Its first key.
    pub low: Vec<u8>,
    /// The first key behind it; `None`: it is the last.
    pub high: Option<Vec<u8>>,
    /// Its page.
    pub page: PageNo,
}

/// True if an error says that a page is lost.
fn is_loss(error: &Error) -> bool {
    error.kind() == Kind::Corrupt || error.code() == Code::ReadFailed
}

impl Tree {
    /// The leaf that covers `key`, or the damage that hides it.
    ///
    /// # Errors
    /// Those that are no damage.
    pub fn leaf_or_damage(&self, key: &[u8]) -> Result<AtKey> {
        let error = match self.readable_leaf(key) {
            Err(error) if is_loss(&error) => error,
            found => return found.map(AtKey::Leaf),
        };
        for level in 1..LEVELS_MAX {
            let found = match self.find_if_high(DescentGoal::At(key), level, Access::Normal) {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(above) if is_loss(&above) => continue,
                Err(other) => return Err(other),
            };
            let node = Node::parse(&found)?;
            let slot = node.child_slot(key);
            let next = (slot + 1 < node.count()).then(|| node.key(slot + 1));
            let below = next.or_else(|| node.high().map(<[u8]>::to_vec));
            let child = node.inner_cell(slot).map(|cell| cell.child);
            let named = error.context("page").is_some();
            let error = match child {
                Ok(page) if !named => error.with("page", page),
                _ => error,
            };
            return Ok(AtKey::Damaged(Damaged { below, is_leaf: level == 1, error }));
        }
        // The root itself.
        Ok(AtKey::Damaged(Damaged { below: None, is_leaf: false, error }))
    }

    fn readable_leaf(&self, key: &[u8]) -> Result<Vec<u8>> {
        let mut tries = 0;
        loop {
            let leaf = self.find(DescentGoal::At(key), 0, Access::UseOnce);
            tries += 1;
            match leaf {
                Err(error) if error.code() == Code::ReadFailed && tries < READ_TRIES => {}
                Err(error) => return Err(error),
                Ok(page) => {
                    Node::parse(&page)?.check().map_err(|e| e.with("page", page.page_no()))?;
                    return Ok(page.to_vec());
                }
            }
        }
    }

    /// The leaves of the tree among all its pages whose first key is at or above `low` and below
    /// `below`, in order. Second, the pages that cannot be read, each of which may be a leaf of
    /// these keys. `poll` is called now and then; its error ends the look.
    ///
    /// # Errors
    /// Those that are no damage; that of `poll`.
    pub fn leaves_apart(
        &self,
        low: &[u8],
        below: Option<&[u8]>,
        poll: &dyn Fn() -> Result<()>,
    ) -> Result<(Vec<LeafApart>, Vec<PageNo>)> {
        let (mut leaves, mut unreadable) = (Vec::new(), Vec::new());
        let pages = self.pages().used_by(self.id());
        for (n, page) in (1u64..).zip(pages.without(&Default::default())) {
            if n.is_multiple_of(PAGES_PER_POLL) {
                poll()?;
            }
            let found = match self.leaf_at(page) {
                Err(error) if is_loss(&error) => {
                    unreadable.push(page);
                    continue;
                }
                found => found?,
            };
            let wanted = |leaf: &LeafApart| {
                leaf.low.as_slice() >= low && below.is_none_or(|below| leaf.low.as_slice() < below)
            };
            leaves.extend(found.filter(wanted));
        }
        leaves.sort_by(|a: &LeafApart, b: &LeafApart| a.low.cmp(&b.low));
        unreadable.sort_unstable();
        Ok((leaves, unreadable))
    }

    /// The fences of a page if it is a leaf of this tree.
    fn leaf_at(&self, page: PageNo) -> Result<Option<LeafApart>> {
        let image = self.pages().read(page, Access::UseOnce)?;
        let Ok(node) = Node::parse(&image) else { return Ok(None) };
        if image.tree() != self.id() || !node.is_leaf() {
            return Ok(None);
        }
        node.check().map_err(|e| e.with("page", page))?;
        let (low, high) = (node.low().to_vec(), node.high().map(<[u8]>::to_vec));
        Ok(Some(LeafApart { low, high, page }))
    }

    /// A copy of a leaf that `leaves_apart` has found.
    ///
    /// # Errors
    /// Of pages; `TreeDamaged` if the page is no leaf of this tree any more.
    pub fn copy_leaf(&self, page: PageNo) -> Result<Vec<u8>> {
        let image = self.pages().read(page, Access::UseOnce)?;
        let is_leaf = Node::parse(&image).is_ok_and(|node| node.is_leaf());
        if image.tree() != self.id() || !is_leaf {
            let error = Error::new(Code::TreeDamaged).with("tree", self.id()).with("page", page);
            return Err(error.with("why", "a leaf has changed during a repair"));
        }
        Ok(image.to_vec())
    }
}

/// Calls `see` with the key and the row of each cell of a copied leaf, in order.
///
/// # Errors
/// `BadEncoding`; those of `see`.
pub fn rows_of_leaf(
    leaf: &[u8],
    see: &mut dyn FnMut(&[u8], crate::LeafRow<'_>) -> Result<()>,
) -> Result<()> {
    let node = Node::parse(leaf)?;
    let mut key = Vec::new();
    for slot in 0..node.count() {
        key.clear();
        node.key_to(slot, &mut key);
        see(&key, node.leaf_cell(slot)?.into())?;
    }
    Ok(())
}

/// The first key behind a copied leaf; `None` if it is the last.
///
/// # Errors
/// `BadEncoding`.
pub fn end_of_leaf(leaf: &[u8]) -> Result<Option<Vec<u8>>> {
    Ok(Node::parse(leaf)?.high().map(<[u8]>::to_vec))
}
