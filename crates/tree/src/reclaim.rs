//! Reclaiming leaves that lost their rows (E6): a bounded queue that deletes and scans fill in
//! O(1), and a beat that empties it: it reorganizes a leaf, merges it with a neighbour (`merge`),
//! or, while a snapshot still needs its rows, notes since when it is dead (`dead`). Dropping an
//! entry is safe, because the next delete or scan there queues the leaf again; a scan that skips a
//! dead note queues its node if no snapshot needs it any more, and an inner node queues its
//! children.
//!
//! An entry is ready, or it waits for the purge horizon, or for transactions to end, which raises
//! no event: it is examined again after a second, and later if many wait, however fast the horizon
//! rises. A waiting entry does not hold up ready ones, and becomes ready when its leaf has lost its
//! last row.

use crate::reorganize::plan;
use crate::tree::{DescentGoal, Tree, Trees};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Cause, Kind, Lsn, PageNo, Result, TreeId, TxnId};
use evenkeel_format::node::Node;
use evenkeel_io::Event;
use evenkeel_pages::Access;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Ready leaves, at most, and as many waiting ones. Waiting leaves must not keep the others out,
/// because an old snapshot makes all deleted rows of a queue table wait.
const QUEUE_MAX: usize = 65_536;
/// Dead rows in a leaf at which a scan queues it for reorganization.
pub(crate) const SCAN_DEAD_MAX: usize = 32;
/// A leaf whose deletes are undecided is examined again after this time,
const OPEN_NS: u64 = 1_000_000_000;
/// or, so that others have their turn if there are many, after this for each waiting entry.
const OPEN_EACH_NS: u64 = 1_000_000;
/// Leaves to the right of the first that one beat continues with.
const BEAT_LEAVES_MAX: usize = 16;

#[derive(Clone, Copy)]
struct Entry {
    tree: TreeId,
    root: PageNo,
    leaf: PageNo,
    until: Until,
    /// The leaf has no live row: it is worth a look whatever it waits for.
    dead: bool,
}

/// What an entry waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Until {
    Ready,
    /// Nothing can be gained before the purge horizon reaches this.
    Horizon(Lsn),
    /// Nothing can be gained before transactions end: the time of the next look.
    Decided(u64),
}

type Name = (TreeId, PageNo);

#[derive(Default)]
struct Queue {
    ready: VecDeque<Entry>,
    /// Waiting entries, by what they wait for.
    waiting: BTreeMap<(Until, TreeId, PageNo), Entry>,
    /// What each leaf waits for.
    queued: HashMap<Name, Until>,
    /// The tree that a beat works on.
    busy: Option<TreeId>,
}

impl Queue {
    /// False if nothing changes.
    fn push(&mut self, entry: Entry) -> bool {
        let name = (entry.tree, entry.leaf);
        match self.queued.get(&name).copied() {
            Some(until) if until != Until::Ready && entry.dead => {
                self.waiting.remove(&(until, entry.tree, entry.leaf));
            }
            Some(_) => return false,
            None => {
                let others = match entry.until {
                    Until::Ready => self.ready.len(),
                    _ => self.waiting.len(),
                };
                if others >= QUEUE_MAX {
                    return false;
                }
            }
        }
        self.queued.insert(name, entry.until);
        if entry.until == Until::Ready {
            self.ready.push_back(entry);
        } else {
            self.waiting.insert((entry.until, entry.tree, entry.leaf), entry);
        }
        true
    }

    /// Takes an entry that the horizon has reached, otherwise one whose time has come, otherwise a
    /// ready one.
    fn take(&mut self, horizon: Lsn, now_ns: u64) -> Option<Entry> {
        let first = self.waiting.keys().next();
        let reached = first.filter(|(until, ..)| *until <= Until::Horizon(horizon));
        let times = (Until::Decided(0), TreeId::ZERO, PageNo(0))..;
        let timed = self.waiting.range(times).next().map(|(key, _)| key);
        let timed = timed.filter(|(until, ..)| *until <= Until::Decided(now_ns));
        let entry = match reached.or(timed).copied() {
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
        if self.queue.lock().push(entry) && entry.until == Until::Ready {
            self.event.notify();
        }
    }

    /// Takes a ready entry.
    fn take(&self, horizon: Lsn, now_ns: u64) -> Option<Entry> {
        self.queue.lock().take(horizon, now_ns)
    }

    /// How long an entry waits for transactions to end, nanoseconds.
    fn rest_ns(&self) -> u64 {
        OPEN_NS.max(self.queue.lock().waiting.len() as u64 * OPEN_EACH_NS)
    }

    /// Makes all entries that wait for transactions due now, as a second does.
    #[cfg(test)]
    pub(crate) fn pass_second(&self) {
        let mut queue = self.queue.lock();
        let timed = queue.waiting.split_off(&(Until::Decided(0), TreeId::ZERO, PageNo(0)));
        for (_, mut entry) in timed {
            entry.until = Until::Ready;
            queue.queued.remove(&(entry.tree, entry.leaf));
            queue.push(entry);
        }
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
    let (horizon, now_ns) = (trees.commits.horizon(), trees.rt.env.now_ns());
    let Some(entry) = trees.reclaim.take(horizon, now_ns) else { return Ok(Beat::Idle) };
    let tree = trees.open(entry.tree, entry.root);
    let result = tree.reclaim(entry.leaf);
    trees.reclaim.done();
    match result {
        // The tree is gone, or its damage concerns its readers.
        Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Corrupt) => Ok(Beat::More),
        result => result.map(|()| Beat::More),
    }
}

/// The next step for a leaf.
enum Next {
    Compact,
    Merge,
    MarkDead(Lsn),
    Wait(Until),
    Nothing,
}

impl Tree {
    fn ask_reclaim(&self, leaf: PageNo, until: Until) {
        let (tree, root) = (self.id(), self.root());
        self.trees().reclaim.push(Entry { tree, root, leaf, until, dead: false });
    }

    /// As `ask`, for a leaf without a live row, or an inner node whose children are all dead.
    pub(crate) fn ask_dead(&self, leaf: PageNo) {
        let (tree, root, until) = (self.id(), self.root(), Until::Ready);
        self.trees().reclaim.push(Entry { tree, root, leaf, until, dead: true });
    }

    /// A scan skips this node, which is noted as dead since `since`.
    pub(crate) fn note_skipped(&self, node: PageNo, since: Lsn, horizon: Lsn) {
        if since <= horizon {
            self.ask_reclaim(node, Until::Ready);
        }
    }

    /// A row of this leaf was deleted.
    pub(crate) fn note_delete(&self, leaf: PageNo, payload: &[u8]) {
        let Ok(node) = Node::parse(payload) else { return };
        let live = node.count().saturating_sub(node.dead_count());
        // Assuming cells of equal length: the live rows take less than half a page.
        if live == 0 && !node.is_marked_dead() {
            self.ask_dead(leaf);
        } else if live * node.used_bytes() <= node.count() * node.payload_bytes() / 2 {
            self.ask_reclaim(leaf, Until::Ready);
        }
    }

    /// A scan copied this leaf.
    pub(crate) fn note_scan(&self, leaf: PageNo, node: &Node<'_>) {
        if node.dead_count() == node.count() {
            match node.is_marked_dead() {
                false => self.ask_dead(leaf),
                true => self.ask_reclaim(leaf, Until::Ready),
            }
        } else if node.dead_count() > SCAN_DEAD_MAX {
            self.ask_reclaim(leaf, Until::Ready);
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

    /// Queues the children of a dead node that no snapshot needs any more.
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

    /// Reclaims a leaf, and then the leaves with which it was merged, as long as that helps.
    fn reclaim_leaf(&self, low: &[u8]) -> Result<()> {
        for _ in 0..BEAT_LEAVES_MAX {
            self.trees().rt.step();
            let (leaf, next) = self.next_step(low)?;
            let went_on = match next {
                Next::Compact => self.compact(low, |_, plan| plan.removed > 0)?,
                Next::Merge => self.merge(0, low)?,
                Next::MarkDead(since) => {
                    self.mark_dead(low)?;
                    self.ask_reclaim(leaf, Until::Horizon(since));
                    false
                }
                Next::Wait(until) => {
                    self.ask_reclaim(leaf, until);
                    false
                }
                Next::Nothing => false,
            };
            if !went_on {
                return Ok(());
            }
        }
        let leaf = self.leaf_no(low)?;
        self.ask_reclaim(leaf, Until::Ready);
        Ok(())
    }

    fn next_step(&self, low: &[u8]) -> Result<(PageNo, Next)> {
        let page = self.find(DescentGoal::At(low), 0, Access::UseOnce)?;
        let node = Node::parse(&page)?;
        let commits = &*self.trees().commits;
        let plan = plan(commits, &node, TxnId::MAX)?;
        let alone = low.is_empty() && node.high().is_none();
        let next = if plan.removed > 0 {
            Next::Compact
        } else if node.count() == 0 && !alone {
            Next::Merge
        } else if let Some(since) = plan.dead_since {
            match node.is_marked_dead() {
                true => Next::Wait(Until::Horizon(since)),
                false => Next::MarkDead(since),
            }
        } else if plan.kept > 0 {
            Next::Wait(match plan.is_open {
                true => {
                    Until::Decided(self.trees().rt.env.now_ns() + self.trees().reclaim.rest_ns())
                }
                false => Until::Horizon(plan.youngest),
            })
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

    /// Entries that an old snapshot makes wait never keep ready ones out; both are bounded.
    #[test]
    fn waiting_leaves_do_not_keep_ready_ones_out_of_the_queue() {
        let mut queue = Queue::default();
        let mut push = |leaf: usize, horizon: u64| {
            let (tree, root, leaf) = (TreeId(7), PageNo(1), PageNo(leaf as u64));
            let until = if horizon == 0 { Until::Ready } else { Until::Horizon(Lsn(horizon)) };
            queue.push(Entry { tree, root, leaf, until, dead: horizon == 0 })
        };
        assert!((0..QUEUE_MAX).all(|leaf| push(leaf, 100)));
        assert!(!push(QUEUE_MAX, 100), "as many wait as may");
        assert!((0..QUEUE_MAX).all(|leaf| push(2 * QUEUE_MAX + leaf, 0)));
        assert!(!push(4 * QUEUE_MAX, 0), "and as many are ready");
        assert_eq!(queue.take(Lsn(99), 0).map(|entry| entry.until), Some(Until::Ready));
        let waited = Some(Until::Horizon(Lsn(100)));
        assert_eq!(queue.take(Lsn(100), 0).map(|entry| entry.until), waited);
    }
}
