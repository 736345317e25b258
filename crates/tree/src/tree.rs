//! A tree: creating, opening, searching.

use crate::concurrent_inserts::ConcurrentInserts;
use crate::overflow::LOGGED_VALUE_BYTES;
use crate::reclaim::ReclaimQueue;
use crate::redo::apply;
use crate::unlogged_gate::{Patience, UnloggedGate};
use crate::write::LeafRow;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Code, CommitTable, Error, Kind, PageNo, Result, TreeId};
use evenkeel_format::node::{self, InnerCell, Node, NodeMut};
use evenkeel_format::tree_op::TreeOp;
use evenkeel_io::{Event, Runtime};
use evenkeel_log::{Log, Reserved, Share};
use evenkeel_pages::{Access, Mtr, PageRead, Pages};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A search that restarts this often without success has met damage, not other writers.
const RESTARTS_MAX: usize = 1_000;
/// The same for pages that cannot be read: a page may be freed after its parent was read.
const READ_RETRIES_MAX: usize = 8;

/// State shared by all trees of one database.
pub struct Trees {
    pub(crate) rt: Arc<Runtime>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) log: Arc<Log>,
    pub(crate) commits: Arc<dyn CommitTable>,
    pub(crate) reclaim: ReclaimQueue,
    pub(crate) young: ConcurrentInserts,
    logged_value_bytes: AtomicU64,
    pub(crate) unlogged_gate: UnloggedGate,
}

impl Trees {
    /// The trees in `pages`, logged in `log`.
    pub fn new(
        rt: Arc<Runtime>,
        pages: Arc<Pages>,
        log: Arc<Log>,
        commits: Arc<dyn CommitTable>,
    ) -> Arc<Trees> {
        let (reclaim, young) = (ReclaimQueue::default(), ConcurrentInserts::default());
        let logged_value_bytes = AtomicU64::new(LOGGED_VALUE_BYTES);
        let unlogged_gate = UnloggedGate::default();
        Arc::new(Trees {
            rt,
            pages,
            log,
            commits,
            reclaim,
            young,
            logged_value_bytes,
            unlogged_gate,
        })
    }

    /// The gate for writers of pages that bypass the log.
    pub fn unlogged_gate(&self) -> &UnloggedGate {
        &self.unlogged_gate
    }

    /// Changes the part of a long value that goes through the log, for tests.
    pub fn set_logged_value_bytes(&self, bytes: u64) {
        self.logged_value_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn logged_value_bytes(&self) -> u64 {
        self.logged_value_bytes.load(Ordering::Relaxed)
    }

    /// Makes an empty tree: a root with one leaf, one mini-transaction.
    ///
    /// # Errors
    /// Of log and pages: `WritesStopped`, `DiskFull`, I/O.
    pub fn create(self: &Arc<Self>, id: TreeId) -> Result<Tree> {
        let mut reserved = self.log.reserve(4 * self.pages.page_size(), Share::User)?;
        let mut mtr = self.pages.begin(3)?;
        let root_slot = mtr.alloc(id, None)?;
        let leaf_slot = mtr.alloc(id, Some(mtr.page_no(root_slot)))?;
        let mut page = vec![0; self.pages.payload_size()];
        let mut leaf = NodeMut::format(&mut page, 0, b"", None)?;
        change_image(&mut mtr, leaf_slot, &mut leaf)?;
        let child = InnerCell { child: mtr.page_no(leaf_slot), dead_since: None };
        let mut page = vec![0; self.pages.payload_size()];
        let mut root = NodeMut::format(&mut page, 1, b"", None)?;
        root.insert_inner(0, b"", &child);
        change_image(&mut mtr, root_slot, &mut root)?;
        let root = mtr.page_no(root_slot);
        mtr.commit(&mut reserved);
        Ok(self.open(id, root))
    }

    /// The tree with this root.
    pub fn open(self: &Arc<Self>, id: TreeId, root: PageNo) -> Tree {
        let inner = Inner { trees: self.clone(), id, root, edge: Mutex::default() };
        Tree { inner: Arc::new(inner) }
    }

    /// One beat of reclaiming leaves that lost their rows (E6).
    ///
    /// # Errors
    /// As a write.
    pub fn reclaim_beat(self: &Arc<Self>) -> Result<Beat> {
        crate::reclaim::beat(self)
    }

    /// Notified when there is something to reclaim. Beats are also due when the purge horizon has
    /// risen; the caller checks once a second while the queue is not empty.
    pub fn reclaim_event(&self) -> Arc<Event> {
        self.reclaim.event()
    }

    /// Leaves waiting to be reclaimed.
    pub fn reclaim_len(&self) -> usize {
        self.reclaim.len()
    }
}

/// The goal of a search.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DescentGoal<'k> {
    /// The node that covers the key.
    At(&'k [u8]),
    /// The node that covers the greatest key below this one.
    Before(&'k [u8]),
    /// The node at the right edge.
    Last,
}

impl DescentGoal<'_> {
    pub(crate) fn child_slot(&self, node: &Node<'_>) -> usize {
        match self {
            DescentGoal::At(key) => node.child_slot(key),
            DescentGoal::Before(key) => node.child_slot_before(key),
            DescentGoal::Last => node.count().saturating_sub(1),
        }
    }

    fn is_in(&self, node: &Node<'_>) -> bool {
        match self {
            DescentGoal::At(key) => node.covers(key),
            DescentGoal::Before(key) => node.covers_before(key),
            DescentGoal::Last => node.high().is_none(),
        }
    }
}

/// The right edge as it was last seen: the leaf without a high fence, and its low fence.
#[derive(Default)]
pub(crate) struct Edge {
    pub(crate) page: Option<PageNo>,
    pub(crate) low: Vec<u8>,
}

pub(crate) struct Inner {
    pub(crate) trees: Arc<Trees>,
    pub(crate) id: TreeId,
    pub(crate) root: PageNo,
    /// A hint only: the leaf is verified under its latch.
    pub(crate) edge: Mutex<Edge>,
}

/// A clustered tree. Clones are handles of the same tree.
#[derive(Clone)]
pub struct Tree {
    pub(crate) inner: Arc<Inner>,
}

impl Tree {
    /// The tree's id.
    pub fn id(&self) -> TreeId {
        self.inner.id
    }

    /// Waits for a backup that holds the gate. The caller is about to write so many bytes that
    /// bypass the log, or a record that names such pages, and holds no latch, frame or reservation.
    ///
    /// # Errors
    /// Those of [`UnloggedGate::pass`].
    pub(crate) fn pass_unlogged_gate(
        &self,
        bytes: usize,
        patience: Option<&Patience>,
    ) -> Result<()> {
        let trees = self.trees();
        trees.unlogged_gate.pass(&trees.rt, bytes, patience)
    }

    /// The root page; never changes.
    pub fn root(&self) -> PageNo {
        self.inner.root
    }

    /// Longest key.
    pub fn key_bytes_max(&self) -> usize {
        node::key_bytes_max(self.pages().page_size())
    }

    /// Rows longer than this should move values to `OverflowWriter`.
    pub fn row_bytes_whole(&self) -> usize {
        node::row_bytes_whole(self.pages().page_size())
    }

    /// Longest row that a leaf takes under a key of this length.
    pub fn row_bytes_max(&self, key_len: usize) -> usize {
        node::row_bytes_max(self.pages().page_size(), key_len)
    }

    /// Frees all pages of the tree in O(extents) (E2). The tree must not be used afterwards.
    ///
    /// # Errors
    /// Of log and pages.
    pub fn drop_all(&self) -> Result<()> {
        self.trees().reclaim.forget(self.trees(), self.id());
        self.pages().free_tree(self.id())
    }

    pub(crate) fn pages(&self) -> &Arc<Pages> {
        &self.inner.trees.pages
    }

    pub(crate) fn trees(&self) -> &Arc<Trees> {
        &self.inner.trees
    }

    /// Log space for one structure change.
    pub(crate) fn reserve_log(&self) -> Result<Reserved> {
        self.reserve_log_and(0)
    }

    /// As `reserve_log`, for a change that makes room for an operation, which holds log space
    /// itself.
    pub(crate) fn reserve_log_within(&self) -> Result<Reserved> {
        let page = self.pages().page_size();
        self.trees().log.reserve(4 * page + 1024, Share::Within)
    }

    /// As `reserve_log`, with this many bytes more.
    pub(crate) fn reserve_log_and(&self, bytes: usize) -> Result<Reserved> {
        let page = self.pages().page_size();
        self.trees().log.reserve(4 * page + 1024 + bytes, Share::User)
    }

    /// Calls `f` with the row of `key` under the leaf's latch; returns the leaf's page, for
    /// `write_near`.
    ///
    /// # Errors
    /// Of pages: I/O, `Corrupt`.
    pub fn get(&self, key: &[u8], f: &mut dyn FnMut(Option<LeafRow<'_>>)) -> Result<PageNo> {
        let page = self.find(DescentGoal::At(key), 0, Access::Normal)?;
        let leaf = Node::parse(&page)?;
        match leaf.lower_bound(key) {
            (slot, true) => f(Some(leaf.leaf_cell(slot)?.into())),
            _ => f(None),
        }
        Ok(page.page_no())
    }

    /// True if a page is the node of this tree that the goal asks for.
    pub(crate) fn accepts(
        &self,
        tree: TreeId,
        node: &Node<'_>,
        goal: DescentGoal<'_>,
        level: u8,
    ) -> bool {
        tree == self.id() && node.level() == level && goal.is_in(node)
    }

    /// Latches the node of `level` at the goal; the tree has that level.
    pub(crate) fn find(
        &self,
        goal: DescentGoal<'_>,
        level: u8,
        access: Access,
    ) -> Result<PageRead<'_>> {
        self.find_if_high(goal, level, access)?.ok_or_else(|| self.no_path(level))
    }

    /// As `find`; `None` if the tree does not have that level (any more).
    pub(crate) fn find_if_high(
        &self,
        goal: DescentGoal<'_>,
        level: u8,
        access: Access,
    ) -> Result<Option<PageRead<'_>>> {
        self.find_seeing(goal, level, access, |_, _| true)
    }

    /// As `find_if_high`; calls `see` with each node on the way, from the root down, and again from
    /// the root if the search restarts. If `see` returns false the search ends without a node.
    pub(crate) fn find_seeing(
        &self,
        goal: DescentGoal<'_>,
        level: u8,
        access: Access,
        mut see: impl FnMut(PageNo, &Node<'_>) -> bool,
    ) -> Result<Option<PageRead<'_>>> {
        let mut read_errors = 0;
        for _ in 0..RESTARTS_MAX {
            match self.find_once(goal, level, access, &mut see) {
                Ok(Search::Found(page)) => return Ok(Some(page)),
                Ok(Search::TooLow | Search::Ended) => return Ok(None),
                Ok(Search::Again) => {}
                Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::NotFound) => {
                    read_errors += 1;
                    if read_errors > READ_RETRIES_MAX {
                        return Err(e.with("tree", self.id()));
                    }
                }
                Err(e) => return Err(e),
            }
            self.trees().rt.step();
        }
        Err(self.no_path(level))
    }

    fn no_path(&self, level: u8) -> Error {
        Error::new(Code::TreeDamaged)
            .with("tree", self.id())
            .with("level", level)
            .with("why", "no path leads to the key")
    }

    fn find_once(
        &self,
        goal: DescentGoal<'_>,
        level: u8,
        access: Access,
        see: &mut impl FnMut(PageNo, &Node<'_>) -> bool,
    ) -> Result<Search<'_>> {
        let mut page = self.pages().read(self.root(), Access::Normal)?;
        if page.tree() != self.id() {
            return Err(Error::new(Code::TreeGone).with("tree", self.id()));
        }
        let mut at = Node::parse(&page)?.level();
        if at < level {
            return Ok(Search::TooLow);
        }
        loop {
            let node = match Node::parse(&page) {
                Ok(node) if self.accepts(page.tree(), &node, goal, at) => node,
                _ => return Ok(Search::Again),
            };
            if !see(page.page_no(), &node) {
                return Ok(Search::Ended);
            }
            if at == level {
                return Ok(Search::Found(page));
            }
            let child = node.inner_cell(goal.child_slot(&node))?.child;
            drop(page);
            at -= 1;
            page = self.pages().read(child, if at == 0 { access } else { Access::Normal })?;
        }
    }

    /// Page number of the leaf for a key, unlatched.
    pub(crate) fn leaf_no(&self, key: &[u8]) -> Result<PageNo> {
        let parent = self.find(DescentGoal::At(key), 1, Access::Normal)?;
        let node = Node::parse(&parent)?;
        Ok(node.inner_cell(node.child_slot(key))?.child)
    }

    /// Latches the node of `level` that covers `key` exclusively. `None`: search again.
    pub(crate) fn write_node(
        &self,
        mtr: &mut Mtr<'_>,
        page: PageNo,
        level: u8,
        key: &[u8],
    ) -> Fixed {
        let slot = mtr.write(page)?;
        match Node::parse(mtr.page(slot)) {
            Ok(node) if self.accepts(mtr.tree(slot), &node, DescentGoal::At(key), level) => {
                Ok(Some(slot))
            }
            _ => Ok(None),
        }
    }
}

/// The result of a search from the root.
enum Search<'t> {
    Found(PageRead<'t>),
    /// The tree does not have that level.
    TooLow,
    /// `see` has ended the search.
    Ended,
    /// The page has changed: search again.
    Again,
}

/// A latched page of a mini-transaction, if it was the right one.
pub(crate) type Fixed = Result<Option<usize>>;

/// Applies an op to a latched page and logs it.
pub(crate) fn change(mtr: &mut Mtr<'_>, slot: usize, op: &TreeOp<'_>) -> Result<()> {
    apply(op, mtr.page_mut(slot))?;
    let mut payload = Vec::new();
    op.encode(&mut payload);
    mtr.op(slot, op.number(), &payload);
    Ok(())
}

/// Replaces the content of a latched page by that of a node and logs it.
pub(crate) fn change_image(mtr: &mut Mtr<'_>, slot: usize, node: &mut NodeMut<'_>) -> Result<()> {
    let (slots, cells) = node.image();
    let image = [slots, cells].concat();
    change(mtr, slot, &TreeOp::Image(&image))
}
