//! Reclaiming leaves that lost their rows (E6): a bounded queue that deletes and scans feed in
//! O(1), and the beat that takes from it: compacts a leaf, merges it with a neighbour (`merge`),
//! or, while a snapshot still needs its rows, notes in the parent's slot since when it is dead.
//! Dropping an entry is safe: the next delete or scan there asks again.

use crate::compact::plan;
use crate::tree::{Goal, Tree, Trees, change};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Cause, Kind, Lsn, PageNo, Result, TreeId};
use evenkeel_format::node::Node;
use evenkeel_format::tree_op::TreeOp;
use evenkeel_io::Event;
use evenkeel_pages::Access;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Leaves that may wait.
const QUEUE_MAX: usize = 65_536;
/// Dead rows in a leaf that make a scan ask for compaction.
pub(crate) const SCAN_DEAD_MAX: usize = 32;
/// Leaves one beat follows to the right of the first.
const BEAT_LEAVES_MAX: usize = 16;

#[derive(Clone, Copy)]
struct Entry {
    tree: TreeId,
    root: PageNo,
    leaf: PageNo,
    /// Nothing to gain before the purge horizon has reached this.
    horizon: Lsn,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    queued: HashSet<(TreeId, PageNo)>,
    /// Tree that a beat works on.
    busy: Option<TreeId>,
}

/// The queue of all trees.
#[derive(Default)]
pub(crate) struct ReclaimQueue {
    queue: Mutex<Queue>,
    event: Arc<Event>,
    idle: Arc<Event>,
}

impl ReclaimQueue {
    pub(crate) fn event(&self) -> Arc<Event> {
        self.event.clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.lock().entries.len()
    }

    fn push(&self, entry: Entry) {
        let mut queue = self.queue.lock();
        if queue.entries.len() >= QUEUE_MAX || !queue.queued.insert((entry.tree, entry.leaf)) {
            return;
        }
        queue.entries.push_back(entry);
        drop(queue);
        if entry.horizon == Lsn::ZERO {
            self.event.notify();
        }
    }

    /// Takes the first entry that is ready; entries that are not move to the back.
    fn take(&self, horizon: Lsn) -> Option<Entry> {
        let mut queue = self.queue.lock();
        for _ in 0..queue.entries.len().min(64) {
            let entry = queue.entries.pop_front()?;
            if entry.horizon <= horizon {
                queue.queued.remove(&(entry.tree, entry.leaf));
                queue.busy = Some(entry.tree);
                return Some(entry);
            }
            queue.entries.push_back(entry);
        }
        None
    }

    fn done(&self) {
        self.queue.lock().busy = None;
        self.idle.notify();
    }

    /// Drops a tree's entries and waits until no beat works on it.
    pub(crate) fn forget(&self, trees: &Trees, tree: TreeId) {
        trees.rt.wait_until(&self.idle, Cause::Schema, || {
            let mut queue = self.queue.lock();
            queue.entries.retain(|entry| entry.tree != tree);
            queue.queued.retain(|(of, _)| *of != tree);
            queue.busy != Some(tree)
        });
    }
}

/// One beat. A second beat at the same time must not run: one thread drives it.
pub(crate) fn beat(trees: &Arc<Trees>) -> Result<Beat> {
    let Some(entry) = trees.reclaim.take(trees.commits.horizon()) else { return Ok(Beat::Idle) };
    let tree = trees.open(entry.tree, entry.root);
    let result = tree.reclaim(entry.leaf);
    trees.reclaim.done();
    match result {
        // The tree is gone, or its damage is the business of whoever reads it.
        Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Corrupt) => Ok(Beat::More),
        result => result.map(|()| Beat::More),
    }
}

/// What to do with a leaf next.
enum Next {
    Compact,
    Merge,
    MarkDead(Lsn),
    Wait(Lsn),
    Nothing,
}

impl Tree {
    fn ask_reclaim(&self, leaf: PageNo, horizon: Lsn) {
        let entry = Entry { tree: self.id(), root: self.root(), leaf, horizon };
        self.trees().reclaim.push(entry);
    }

    /// A row of this leaf was deleted.
    pub(crate) fn note_delete(&self, leaf: PageNo, payload: &[u8]) {
        let Ok(node) = Node::parse(payload) else { return };
        let live = node.count().saturating_sub(node.dead_count());
        // Cells taken as equally long: bytes of live rows below half a page.
        if live * node.used_bytes() <= node.count() * node.payload_bytes() / 2 {
            self.ask_reclaim(leaf, Lsn::ZERO);
        }
    }

    /// A scan copied this leaf.
    pub(crate) fn note_scan(&self, leaf: PageNo, node: &Node<'_>) {
        if node.dead_count() > SCAN_DEAD_MAX || node.count() == 0 {
            self.ask_reclaim(leaf, Lsn::ZERO);
        }
    }

    /// Reclaims a leaf, and then what it was merged with as long as that helps.
    fn reclaim(&self, leaf: PageNo) -> Result<()> {
        let page = self.pages().read(leaf, Access::UseOnce)?;
        let node = Node::parse(&page)?;
        if page.tree() != self.id() || !node.is_leaf() {
            return Ok(());
        }
        let low = node.low().to_vec();
        drop(page);
        for _ in 0..BEAT_LEAVES_MAX {
            self.trees().rt.step();
            let (leaf, next) = self.next_step(&low)?;
            let went_on = match next {
                Next::Compact => self.compact(&low, |_, plan| plan.removed > 0)?,
                Next::Merge => self.merge(0, &low)?,
                Next::MarkDead(since) => {
                    self.mark_dead(&low)?;
                    self.ask_reclaim(leaf, since);
                    false
                }
                Next::Wait(horizon) => {
                    self.ask_reclaim(leaf, horizon);
                    false
                }
                Next::Nothing => false,
            };
            if !went_on {
                return Ok(());
            }
        }
        let leaf = self.leaf_no(&low)?;
        self.ask_reclaim(leaf, Lsn::ZERO);
        Ok(())
    }

    fn next_step(&self, low: &[u8]) -> Result<(PageNo, Next)> {
        let page = self.find(Goal::At(low), 0, Access::UseOnce)?;
        let node = Node::parse(&page)?;
        let commits = &*self.trees().commits;
        let plan = plan(commits, &node)?;
        let alone = low.is_empty() && node.high().is_none();
        let next = if plan.removed > 0 {
            Next::Compact
        } else if node.count() == 0 && !alone {
            Next::Merge
        } else if let Some(since) = plan.dead_since {
            if node.is_marked_dead() { Next::Wait(since) } else { Next::MarkDead(since) }
        } else if plan.kept > 0 {
            Next::Wait(Lsn(commits.horizon().0.saturating_add(1)))
        } else if node.used_bytes() < node.payload_bytes() / 2 && !alone {
            Next::Merge
        } else {
            Next::Nothing
        };
        Ok((page.page_no(), next))
    }

    /// Notes in the parent's slot that no snapshot from some timestamp on sees a row in the leaf
    /// of `key`. The leaf knows, so that whoever puts a row into it clears the note first.
    fn mark_dead(&self, key: &[u8]) -> Result<()> {
        self.set_dead(key, |node| Ok(plan(&*self.trees().commits, node)?.dead_since.map(Some)))
    }

    /// Takes the note away, before a row arrives.
    pub(crate) fn clear_dead(&self, key: &[u8]) -> Result<()> {
        self.set_dead(key, |node| Ok(node.is_marked_dead().then_some(None)))
    }

    /// Sets the note of the leaf of `key` to what `decide` says; `None`: leave it.
    fn set_dead(
        &self,
        key: &[u8],
        decide: impl Fn(&Node<'_>) -> Result<Option<Option<Lsn>>>,
    ) -> Result<()> {
        let parent_no = self.find(Goal::At(key), 1, Access::Normal)?.page_no();
        let mut reserved = self.reserve_log()?;
        let mut mtr = self.pages().begin(2)?;
        let Some(parent) = self.write_node(&mut mtr, parent_no, 1, key)? else { return Ok(()) };
        let node = Node::parse(mtr.page(parent))?;
        let slot = node.child_slot(key);
        let child = node.inner_cell(slot)?.child;
        let has_room = node.free_bytes() >= 8;
        let Some(leaf) = self.write_node(&mut mtr, child, 0, key)? else { return Ok(()) };
        let Some(dead_since) = decide(&Node::parse(mtr.page(leaf))?)? else { return Ok(()) };
        if dead_since.is_some() && !has_room {
            return Ok(());
        }
        let mut apply = || {
            change(&mut mtr, parent, &TreeOp::SetChild { slot, child, dead_since })?;
            change(&mut mtr, leaf, &TreeOp::MarkDead(dead_since.is_some()))
        };
        apply().map_err(|e| self.trees().rt.health.fail(e))?;
        mtr.commit(&mut reserved);
        Ok(())
    }
}
