//! Reclaiming leaves that lost their rows (E6): a bounded queue that deletes and scans feed in
//! O(1), and the beat that takes from it: compacts a leaf, merges it with a neighbour (`merge`),
//! or, while a snapshot still needs its rows, notes since when it is dead (`dead`).
//! Dropping an entry is safe: the next delete or scan there asks again; a scan that skips what is
//! noted as dead asks for it if no snapshot needs it any more, and an inner node for its children.
//!
//! An entry is ready, or it waits for the purge horizon. One that waits keeps nobody from what is
//! ready, and becomes ready when its leaf has lost its last row.

use crate::compact::plan;
use crate::tree::{Goal, Tree, Trees};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Cause, Kind, Lsn, PageNo, Result, TreeId};
use evenkeel_format::node::Node;
use evenkeel_io::Event;
use evenkeel_pages::Access;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Leaves that are ready, at most; and as many that wait: those must not keep the others out, for
/// an old snapshot makes all that a queue table has deleted wait.
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
    /// The leaf holds no live row: it is worth a look whatever it waits for.
    dead: bool,
}

type Name = (TreeId, PageNo);

#[derive(Default)]
struct Queue {
    ready: VecDeque<Entry>,
    /// By what they wait for.
    waiting: BTreeMap<(Lsn, TreeId, PageNo), Entry>,
    /// What each leaf waits for; zero: it is ready.
    queued: HashMap<Name, Lsn>,
    /// Tree that a beat works on.
    busy: Option<TreeId>,
}

impl Queue {
    /// False if it changes nothing.
    fn push(&mut self, entry: Entry) -> bool {
        let name = (entry.tree, entry.leaf);
        match self.queued.get(&name).copied() {
            Some(horizon) if horizon > Lsn::ZERO && entry.dead => {
                self.waiting.remove(&(horizon, entry.tree, entry.leaf));
            }
            Some(_) => return false,
            None => {
                let others = match entry.horizon {
                    Lsn::ZERO => self.ready.len(),
                    _ => self.waiting.len(),
                };
                if others >= QUEUE_MAX {
                    return false;
                }
            }
        }
        self.queued.insert(name, entry.horizon);
        if entry.horizon == Lsn::ZERO {
            self.ready.push_back(entry);
        } else {
            self.waiting.insert((entry.horizon, entry.tree, entry.leaf), entry);
        }
        true
    }

    fn take(&mut self, horizon: Lsn) -> Option<Entry> {
        let waited = self.waiting.first_key_value().filter(|((until, ..), _)| *until <= horizon);
        let entry = match waited.map(|(key, _)| *key) {
            Some(key) => self.waiting.remove(&key)?,
            None => self.ready.pop_front()?,
        };
        self.queued.remove(&(entry.tree, entry.leaf));
        self.busy = Some(entry.tree);
        Some(entry)
    }

    fn forget(&mut self, tree: TreeId) {
        self.ready.retain(|entry| entry.tree != tree);
        self.waiting.retain(|_, entry| entry.tree != tree);
        self.queued.retain(|(of, _), _| *of != tree);
    }
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
        self.queue.lock().queued.len()
    }

    fn push(&self, entry: Entry) {
        if self.queue.lock().push(entry) && entry.horizon == Lsn::ZERO {
            self.event.notify();
        }
    }

    /// Takes an entry that is ready.
    fn take(&self, horizon: Lsn) -> Option<Entry> {
        self.queue.lock().take(horizon)
    }

    fn done(&self) {
        self.queue.lock().busy = None;
        self.idle.notify();
    }

    /// Drops a tree's entries and waits until no beat works on it.
    pub(crate) fn forget(&self, trees: &Trees, tree: TreeId) {
        trees.rt.wait_until(&self.idle, Cause::Schema, || {
            let mut queue = self.queue.lock();
            queue.forget(tree);
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
        let (tree, root) = (self.id(), self.root());
        self.trees().reclaim.push(Entry { tree, root, leaf, horizon, dead: false });
    }

    /// The same of a leaf without a live row, or of an inner node whose children are all dead.
    pub(crate) fn ask_dead(&self, leaf: PageNo) {
        let (tree, root, horizon) = (self.id(), self.root(), Lsn::ZERO);
        self.trees().reclaim.push(Entry { tree, root, leaf, horizon, dead: true });
    }

    /// A scan skips this node, noted as dead since `since`.
    pub(crate) fn note_skipped(&self, node: PageNo, since: Lsn, horizon: Lsn) {
        if since <= horizon {
            self.ask_reclaim(node, Lsn::ZERO);
        }
    }

    /// A row of this leaf was deleted.
    pub(crate) fn note_delete(&self, leaf: PageNo, payload: &[u8]) {
        let Ok(node) = Node::parse(payload) else { return };
        let live = node.count().saturating_sub(node.dead_count());
        // Cells taken as equally long: bytes of live rows below half a page.
        if live == 0 && !node.is_marked_dead() {
            self.ask_dead(leaf);
        } else if live * node.used_bytes() <= node.count() * node.payload_bytes() / 2 {
            self.ask_reclaim(leaf, Lsn::ZERO);
        }
    }

    /// A scan copied this leaf.
    pub(crate) fn note_scan(&self, leaf: PageNo, node: &Node<'_>) {
        if node.dead_count() == node.count() {
            match node.is_marked_dead() {
                false => self.ask_dead(leaf),
                true => self.ask_reclaim(leaf, Lsn::ZERO),
            }
        } else if node.dead_count() > SCAN_DEAD_MAX {
            self.ask_reclaim(leaf, Lsn::ZERO);
        }
    }

    fn reclaim(&self, page: PageNo) -> Result<()> {
        let page = self.pages().read(page, Access::UseOnce)?;
        let node = Node::parse(&page)?;
        if page.tree() != self.id() {
            return Ok(());
        }
        let (level, low) = (node.level(), node.low().to_vec());
        if level == 0 {
            drop(page);
            return self.reclaim_leaf(&low);
        }
        if node.is_marked_dead() {
            return self.ask_children(&node);
        }
        drop(page);
        self.mark_dead_from(level, &low)
    }

    /// Asks for the children of a dead node that no snapshot needs any more.
    fn ask_children(&self, node: &Node<'_>) -> Result<()> {
        let horizon = self.trees().commits.horizon();
        for slot in 0..node.count() {
            let cell = node.inner_cell(slot)?;
            if let Some(since) = cell.dead_since {
                self.note_skipped(cell.child, since, horizon);
            }
        }
        Ok(())
    }

    /// Reclaims a leaf, and then what it was merged with as long as that helps.
    fn reclaim_leaf(&self, low: &[u8]) -> Result<()> {
        for _ in 0..BEAT_LEAVES_MAX {
            self.trees().rt.step();
            let (leaf, next) = self.next_step(low)?;
            let went_on = match next {
                Next::Compact => self.compact(low, |_, plan| plan.removed > 0)?,
                Next::Merge => self.merge(0, low)?,
                Next::MarkDead(since) => {
                    self.mark_dead(low)?;
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
        let leaf = self.leaf_no(low)?;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that an old snapshot makes wait keeps nobody out who is ready; both are bounded.
    #[test]
    fn those_that_wait_leave_room_for_those_that_are_ready() {
        let mut queue = Queue::default();
        let mut push = |leaf: usize, horizon: u64| {
            let (tree, root, leaf) = (TreeId(7), PageNo(1), PageNo(leaf as u64));
            queue.push(Entry { tree, root, leaf, horizon: Lsn(horizon), dead: horizon == 0 })
        };
        assert!((0..QUEUE_MAX).all(|leaf| push(leaf, 100)));
        assert!(!push(QUEUE_MAX, 100), "as many wait as may");
        assert!((0..QUEUE_MAX).all(|leaf| push(2 * QUEUE_MAX + leaf, 0)));
        assert!(!push(4 * QUEUE_MAX, 0), "and as many are ready");
        assert_eq!(queue.take(Lsn(99)).map(|entry| entry.horizon), Some(Lsn::ZERO));
        assert_eq!(queue.take(Lsn(100)).map(|entry| entry.horizon), Some(Lsn(100)));
    }
}
