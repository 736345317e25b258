//! Bulk load: builds the leaves of an empty tree directly and full from rows in key order, and then
//! the levels above them. The log records only the allocation of the pages, not their content (E3):
//! they are made durable before the record of the root, which is written last and names them. So
//! the tree is empty until `finish` and complete afterwards.

use crate::split::range_bytes;
use crate::tree::{DescentGoal, Tree, change_image};
use crate::unlogged_gate::Patience;
use crate::write::{LeafRow, fence_reserve};
use evenkeel_base::{Code, Error, PageNo, Result};
use evenkeel_format::node::{
    InnerCell, KIND_NONE, LeafCell, Node, NodeMut, SLOT_BYTES, common_prefix, separator,
};
use evenkeel_format::space::ranges_of;
use evenkeel_pages::Access;

/// Pages that one record names, and the most bytes of one such name.
const NAMES_MAX: usize = 100_000;
const NAME_BYTES: usize = 8;

/// The node of a level that is being filled.
struct Filling {
    page: Vec<u8>,
    /// Nodes of this level written so far.
    written: u64,
}

/// Pages written between two checks for cancellation.
const WRITTEN_AT_ONCE: usize = 512;

/// A bulk load in progress. Dropped before `finish`, it leaves an empty tree, and pages that only
/// `Tree::drop_all` frees.
pub struct BulkLoad {
    tree: Tree,
    /// From the leaves up.
    levels: Vec<Filling>,
    last_key: Vec<u8>,
    /// Pages written so far.
    pages: Vec<PageNo>,
    rows: u64,
    patience: Option<Patience>,
}

impl Tree {
    /// Starts a bulk load into this tree, which must be empty and unused by others.
    ///
    /// # Errors
    /// `TreeNotEmpty`; those of pages.
    pub fn bulk_load(&self) -> Result<BulkLoad> {
        let leaf = self.find(DescentGoal::Last, 0, Access::Normal)?;
        let node = Node::parse(&leaf)?;
        if node.count() != 0 || !node.low().is_empty() {
            return Err(Error::new(Code::TreeNotEmpty).with("tree", self.id()));
        }
        drop(leaf);
        let mut load = BulkLoad {
            tree: self.clone(),
            levels: Vec::new(),
            last_key: Vec::new(),
            pages: Vec::new(),
            rows: 0,
            patience: None,
        };
        load.begin_level(b"")?;
        Ok(load)
    }
}

impl BulkLoad {
    /// Asks `patience` while it waits for a backup.
    #[must_use]
    pub fn patient(mut self, patience: Patience) -> BulkLoad {
        self.patience = Some(patience);
        self
    }

    fn begin_level(&mut self, low: &[u8]) -> Result<()> {
        let mut page = vec![0; self.tree.pages().payload_size()];
        NodeMut::format(&mut page, self.levels.len() as u8, low, None)?;
        self.levels.push(Filling { page, written: 0 });
        Ok(())
    }

    /// Appends a row; keys must ascend.
    ///
    /// # Errors
    /// `KeyTooLong`, `RowTooLong`, `KeysNotAscending`; those of log and pages.
    pub fn push(&mut self, key: &[u8], row: LeafRow<'_>) -> Result<()> {
        self.tree.check_lengths(key, row.row)?;
        if self.rows > 0 && key <= self.last_key.as_slice() {
            return Err(Error::new(Code::KeysNotAscending).with("tree", self.tree.id()));
        }
        let cell = LeafCell { flags: row.flags, stamp: row.stamp, row: row.row };
        self.make_room(key, &cell)?;
        let mut node = NodeMut::parse(&mut self.levels[0].page)?;
        let at = node.node().count();
        if !node.insert_leaf(at, key, &cell) {
            return Err(Error::internal("a row does not fit an empty leaf"));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.rows += 1;
        Ok(())
    }

    /// Ends the filling leaf if a row no longer fits it.
    fn make_room(&mut self, key: &[u8], cell: &LeafCell<'_>) -> Result<()> {
        let fits = |node: &Node<'_>| {
            let need = SLOT_BYTES + cell.cell_bytes(key.len()) + fence_reserve(node, key);
            node.count() == 0 || key.starts_with(node.prefix()) && node.free_bytes() >= need
        };
        let page = &mut self.levels[0].page;
        if fits(&Node::parse(page)?) {
            return Ok(());
        }
        let mut node = NodeMut::parse(page)?;
        let (low, prefix) = (node.node().low(), node.node().prefix().len());
        let shared = common_prefix(low, key);
        let loss = node.node().count() * prefix.saturating_sub(shared);
        if shared != prefix && loss <= node.node().free_bytes() {
            node.set_prefix(shared)?;
        }
        while !fits(&Node::parse(&self.levels[0].page)?) {
            let (keep, sep) = self.leaf_end(key)?;
            self.write_node(0, keep, &sep)?;
        }
        Ok(())
    }

    /// The number of rows that the filling leaf keeps, all if possible, and its high fence: with a
    /// fence in front of `key` its prefix may become shorter, so that not every row fits any more.
    fn leaf_end(&self, key: &[u8]) -> Result<(usize, Vec<u8>)> {
        let node = Node::parse(&self.levels[0].page)?;
        let count = node.count();
        for keep in (1..=count).rev() {
            let next = if keep == count { key.to_vec() } else { node.key(keep) };
            let sep = separator(&node.key(keep - 1), &next).to_vec();
            if range_bytes(&node, 0..keep, node.low(), Some(&sep)) <= node.payload_bytes() {
                return Ok((keep, sep));
            }
        }
        Err(Error::internal("a row does not fit a leaf of its own"))
    }

    /// Writes the first `keep` cells of a level's filling node, which ends at `high`; the next node
    /// begins there with the rest.
    fn write_node(&mut self, level: usize, keep: usize, high: &[u8]) -> Result<()> {
        let old = self.levels[level].page.clone();
        let old = Node::parse(&old)?;
        NodeMut::parse(&mut self.levels[level].page)?.truncate(keep, Some(high))?;
        self.store(level)?;
        let page = &mut self.levels[level].page;
        let mut next = NodeMut::format(page, level as u8, high, None)?;
        next.append_from(&old, keep..old.count())
    }

    /// Writes the filling node of a level to a new page and passes that to the level above.
    fn store(&mut self, level: usize) -> Result<()> {
        self.tree.pass_unlogged_gate(self.tree.pages().page_size(), self.patience.as_ref())?;
        let mut reserved = self.tree.reserve_log()?;
        let mut mtr = self.tree.pages().begin(2)?;
        let slot = mtr.alloc(self.tree.id(), self.pages.last().copied())?;
        let page = mtr.page_no(slot);
        let filling = &mut self.levels[level];
        let low = Node::parse(&filling.page)?.low().to_vec();
        mtr.write_unlogged(slot, &filling.page)?;
        mtr.commit(&mut reserved);
        filling.written += 1;
        self.pages.push(page);
        self.add_child(level + 1, &low, page)
    }

    fn add_child(&mut self, level: usize, key: &[u8], child: PageNo) -> Result<()> {
        if level == self.levels.len() {
            self.begin_level(key)?;
        }
        let cell = InnerCell { child, dead_since: None };
        let node = Node::parse(&self.levels[level].page)?;
        let need = SLOT_BYTES + cell.cell_bytes(key.len());
        let used = range_bytes(&node, 0..node.count(), node.low(), None);
        // The high fence, when it comes, is the key that no longer fits.
        if used + need + key.len() > node.payload_bytes() {
            let count = node.count();
            self.write_node(level, count, key)?;
        }
        let mut node = NodeMut::parse(&mut self.levels[level].page)?;
        let at = node.node().count();
        if node.insert_inner(at, key, &cell) {
            Ok(())
        } else {
            Err(Error::internal("a child does not fit an empty node"))
        }
    }

    /// Names pages in a record of their own, if the root's record has no room for them.
    fn name(&self, pages: &[PageNo]) -> Result<()> {
        self.tree.pass_unlogged_gate(0, self.patience.as_ref())?;
        let mut reserved = self.tree.reserve_log_and(pages.len() * NAME_BYTES)?;
        let mut mtr = self.tree.pages().begin(1)?;
        let root = mtr.write(self.tree.root())?;
        mtr.name_unlogged(root, &ranges_of(pages));
        mtr.commit(&mut reserved);
        Ok(())
    }

    /// Ends the load: writes the right edge and the root. Returns the number of rows. With much
    /// memory most pages are written only now: `go_on` is called every few pages.
    ///
    /// # Errors
    /// Of log and pages; of `go_on`.
    pub fn finish(mut self, go_on: &dyn Fn() -> Result<()>) -> Result<u64> {
        let mut level = 0;
        while level == 0 || level + 1 < self.levels.len() || self.levels[level].written > 0 {
            self.store(level)?;
            level += 1;
        }
        let tree = &self.tree;
        let old_leaf = {
            let root = tree.pages().read(tree.root(), Access::Normal)?;
            Node::parse(&root)?.inner_cell(0)?.child
        };
        self.pages.sort_unstable();
        for some in self.pages.chunks(WRITTEN_AT_ONCE) {
            go_on()?;
            tree.pages().flush_pages(&ranges_of(some))?;
        }
        let mut names = self.pages.chunks(NAMES_MAX).peekable();
        while let Some(some) = names.next_if(|some| some.len() == NAMES_MAX) {
            self.name(some)?;
        }
        let names = names.next().unwrap_or_default();
        self.tree.pass_unlogged_gate(0, self.patience.as_ref())?;
        let mut reserved = tree.reserve_log_and(names.len() * NAME_BYTES)?;
        let mut mtr = tree.pages().begin(3)?;
        let root = mtr.write(tree.root())?;
        let old_leaf = mtr.write(old_leaf)?;
        let mut top = NodeMut::parse(&mut self.levels[level].page)?;
        mtr.free(old_leaf)?;
        mtr.page_mut(old_leaf)[0] = KIND_NONE;
        mtr.name_unlogged(root, &ranges_of(names));
        change_image(&mut mtr, root, &mut top).map_err(|e| tree.trees().rt.health.fail(e))?;
        mtr.commit(&mut reserved);
        Ok(self.rows)
    }
}
