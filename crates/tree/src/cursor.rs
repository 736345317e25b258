//! A cursor: copies one leaf at a time and holds no latch, frame or view between calls. It goes
//! from leaf to leaf by fences, so it survives any structure change; rows that change behind its
//! copy are judged by the reader's snapshot, which must be registered before `seek` (a reader
//! without a snapshot, such as a locking read, takes the key here and the row from `Tree::get`).

use crate::tree::{Goal, Tree};
use crate::write::LeafRow;
use evenkeel_base::{Code, Error, Lsn, PageNo, Result};
use evenkeel_format::node::Node;
use evenkeel_pages::Access;
use std::cmp::Ordering;
use std::ops::Bound;

/// Which way a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// Leaves that a scan asks to be read ahead.
const PREFETCH_LEAVES: usize = 16;
/// The same where leaves are used once: such a scan goes through to its end.
const PREFETCH_LEAVES_ONCE: usize = 64;
/// Leaves in a row before another scan reads ahead.
const SCAN_LEAVES: usize = 2;
/// A scan that starts again this often without progress met damage.
const RESTARTS_MAX: usize = 1_000;
/// Dead leaves below one parent that a scan asks to be reclaimed if no snapshot needs them.
const ASK_SKIPPED_MAX: usize = 16;

/// Walks the rows of a tree in key order, deleted ones included.
pub struct Cursor {
    tree: Tree,
    direction: Direction,
    access: Access,
    /// Subtrees dead since this or earlier are skipped unread (E6).
    skip_dead_at: Option<Lsn>,
    /// Copy of the present leaf's payload.
    leaf: Vec<u8>,
    /// Rows in it.
    count: usize,
    /// Forward: the next slot. Backward: one above the next slot.
    slot: usize,
    /// Leaves loaded since `seek`.
    leaves: usize,
    /// Leaves still ahead that were asked for.
    ahead: usize,
    key: Vec<u8>,
    goal: Vec<u8>,
    done: bool,
}

impl Tree {
    /// A cursor; `seek` comes first.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            tree: self.clone(),
            direction: Direction::Forward,
            access: Access::Normal,
            skip_dead_at: None,
            leaf: Vec::new(),
            count: 0,
            slot: 0,
            leaves: 0,
            ahead: 0,
            key: Vec::new(),
            goal: Vec::new(),
            done: true,
        }
    }
}

impl Cursor {
    /// For scans and builds: leaves are taken as used once (A5).
    pub fn set_use_once(&mut self, use_once: bool) {
        self.access = if use_once { Access::UseOnce } else { Access::Normal };
    }

    /// The reader's snapshot position: leaves that hold no row for it may be skipped unread.
    /// Only for readers who see nothing but committed rows at or below it and their own.
    pub fn set_snapshot(&mut self, at: Option<Lsn>) {
        self.skip_dead_at = at;
    }

    /// Goes before the first row that `bound` admits in this direction. `Unbounded` is the first
    /// row (forward) or the last (backward); `Included(k)` and `Excluded(k)` start at `k` or
    /// beside it.
    ///
    /// # Errors
    /// Of pages.
    pub fn seek(&mut self, bound: Bound<&[u8]>, direction: Direction) -> Result<()> {
        self.direction = direction;
        (self.leaves, self.ahead, self.done) = (0, 0, false);
        match (direction, bound) {
            (Direction::Forward, Bound::Unbounded) => self.load(Goal::At(b"")),
            (Direction::Forward, Bound::Included(key)) => {
                self.load(Goal::At(key))?;
                self.place(key, |slot, _| slot)
            }
            (Direction::Forward, Bound::Excluded(key)) => {
                self.load(Goal::At(key))?;
                self.place(key, |slot, equal| slot + usize::from(equal))
            }
            (Direction::Backward, Bound::Unbounded) => self.load(Goal::Last),
            (Direction::Backward, Bound::Included(key)) => {
                self.load(Goal::At(key))?;
                self.place(key, |slot, equal| slot + usize::from(equal))
            }
            (Direction::Backward, Bound::Excluded(b"")) => {
                self.done = true;
                Ok(())
            }
            (Direction::Backward, Bound::Excluded(key)) => {
                self.load(Goal::Before(key))?;
                self.place(key, |slot, _| slot)
            }
        }
    }

    /// Sets the slot from where a key is; a leaf beyond the key (dead ones were skipped) keeps
    /// the slot that `load` chose.
    fn place(&mut self, key: &[u8], slot: impl FnOnce(usize, bool) -> usize) -> Result<()> {
        if self.done {
            return Ok(());
        }
        let node = Node::parse(&self.leaf)?;
        if node.covers(key) || node.covers_before(key) {
            let (at, equal) = node.lower_bound(key);
            self.slot = slot(at, equal);
        }
        Ok(())
    }

    /// The next row: its key and cell, valid until the next call. `None` at the end.
    ///
    /// # Errors
    /// Of pages.
    #[expect(clippy::should_implement_trait, reason = "lends from the cursor, and may fail")]
    pub fn next(&mut self) -> Result<Option<(&[u8], LeafRow<'_>)>> {
        while !self.done {
            let slot = match self.direction {
                Direction::Forward if self.slot < self.count => self.slot,
                Direction::Backward if self.slot > 0 => self.slot - 1,
                _ => {
                    self.next_leaf()?;
                    continue;
                }
            };
            self.slot = if self.direction == Direction::Forward { slot + 1 } else { slot };
            let node = Node::parse(&self.leaf)?;
            self.key.clear();
            node.key_to(slot, &mut self.key);
            return Ok(Some((&self.key, node.leaf_cell(slot)?.into())));
        }
        Ok(None)
    }

    fn next_leaf(&mut self) -> Result<()> {
        let node = Node::parse(&self.leaf)?;
        let mut goal = std::mem::take(&mut self.goal);
        goal.clear();
        match self.direction {
            Direction::Forward => match node.high() {
                Some(high) => goal.extend_from_slice(high),
                None => self.done = true,
            },
            Direction::Backward => {
                goal.extend_from_slice(node.low());
                self.done = goal.is_empty();
            }
        }
        let mut result = match self.direction {
            _ if self.done => Ok(()),
            Direction::Forward => self.load(Goal::At(&goal)),
            Direction::Backward => self.load(Goal::Before(&goal)),
        };
        if result.is_ok() {
            // The next leaf may have been merged with the one just left: begin behind that.
            result = self.place(&goal, |slot, _| slot);
        }
        self.goal = goal;
        result
    }

    /// Copies the leaf of the goal, or the next one behind dead leaves; `done` if there is none.
    fn load(&mut self, goal: Goal<'_>) -> Result<()> {
        let mut behind: Option<Vec<u8>> = None;
        let mut restarts = 0;
        loop {
            let goal = match (&behind, self.direction) {
                (None, _) => goal,
                (Some(key), Direction::Forward) => Goal::At(key),
                (Some(key), Direction::Backward) => Goal::Before(key),
            };
            match self.load_once(goal)? {
                Loaded::Yes => return Ok(()),
                Loaded::Skipped(Some(key)) => behind = Some(key),
                Loaded::Skipped(None) => {
                    self.done = true;
                    return Ok(());
                }
                Loaded::Again => restarts += 1,
            }
            if restarts > RESTARTS_MAX {
                return Err(Error::new(Code::TreeDamaged)
                    .with("tree", self.tree.id())
                    .with("why", "a scan finds no leaf"));
            }
            self.tree.trees().rt.step();
        }
    }

    fn load_once(&mut self, goal: Goal<'_>) -> Result<Loaded> {
        let tree = self.tree.clone();
        let parent = tree.find(goal, 1, Access::Normal)?;
        let node = Node::parse(&parent)?;
        let mut slot = goal.child_slot(&node);
        let (mut horizon, mut skips) = (Lsn::ZERO, 0);
        while let Some((leaf, since)) = self.dead_leaf(&node, slot)? {
            if skips == 0 {
                horizon = tree.trees().commits.horizon();
            }
            skips += 1;
            if skips <= ASK_SKIPPED_MAX {
                tree.note_skipped(leaf, since, horizon);
            }
            let next = match self.direction {
                Direction::Forward => slot + 1,
                Direction::Backward => slot.wrapping_sub(1),
            };
            if next >= node.count() {
                let behind = match self.direction {
                    Direction::Forward => node.high(),
                    Direction::Backward => Some(node.low()).filter(|low| !low.is_empty()),
                };
                return Ok(Loaded::Skipped(behind.map(<[u8]>::to_vec)));
            }
            slot = next;
        }
        let skipped = slot != goal.child_slot(&node);
        let page = node.inner_cell(slot)?.child;
        // Where the dead leaves end.
        let edge = match self.direction {
            _ if !skipped => Vec::new(),
            Direction::Forward => node.key(slot),
            Direction::Backward => node.key(slot + 1),
        };
        self.read_ahead(&node, slot);
        drop(parent);
        match self.direction {
            _ if !skipped => self.copy(page, goal),
            Direction::Forward => self.copy(page, Goal::At(&edge)),
            Direction::Backward => self.copy(page, Goal::Before(&edge)),
        }
    }

    fn copy(&mut self, page: PageNo, goal: Goal<'_>) -> Result<Loaded> {
        let tree = &self.tree;
        let leaf = match tree.pages().read(page, self.access) {
            Ok(leaf) => leaf,
            // Freed meanwhile, or damaged: `find` tells which.
            Err(_) => tree.find(goal, 0, self.access)?,
        };
        match Node::parse(&leaf) {
            Ok(node) if tree.accepts(leaf.tree(), &node, goal, 0) => {
                self.leaf.clear();
                self.leaf.extend_from_slice(&leaf);
                self.count = node.count();
                // The leaf may have been merged with what the cursor has passed already.
                self.slot = match goal {
                    Goal::At(key) | Goal::Before(key) => node.lower_bound(key).0,
                    Goal::Last => node.count(),
                };
                self.leaves += 1;
                tree.note_scan(leaf.page_no(), &node);
                Ok(Loaded::Yes)
            }
            _ => Ok(Loaded::Again),
        }
    }

    /// The leaf at a slot if it is to be skipped, and since when it is dead.
    fn dead_leaf(&self, node: &Node<'_>, slot: usize) -> Result<Option<(PageNo, Lsn)>> {
        let Some(at) = self.skip_dead_at else { return Ok(None) };
        let cell = node.inner_cell(slot)?;
        Ok(cell.dead_since.filter(|since| *since <= at).map(|since| (cell.child, since)))
    }

    /// Asks for the leaves after `slot` once this has become a scan.
    fn read_ahead(&mut self, node: &Node<'_>, slot: usize) {
        let (leaves, window) = match self.access {
            Access::Normal => (SCAN_LEAVES, PREFETCH_LEAVES),
            Access::UseOnce => (0, PREFETCH_LEAVES_ONCE),
        };
        if self.leaves < leaves || self.ahead > window / 2 {
            self.ahead = self.ahead.saturating_sub(1);
            return;
        }
        let mut pages = [PageNo::ZERO; PREFETCH_LEAVES_ONCE];
        let mut count = 0;
        for (i, page) in pages.iter_mut().take(window).enumerate() {
            let next = match self.direction {
                Direction::Forward => Some(slot + 1 + i),
                Direction::Backward => slot.checked_sub(1 + i),
            };
            let cell = next.filter(|s| *s < node.count()).map(|s| node.inner_cell(s));
            let Some(Ok(cell)) = cell else { break };
            *page = cell.child;
            count = i + 1;
        }
        self.tree.pages().prefetch(&pages[..count]);
        self.ahead = count;
    }

    /// The key of the row that `next` gave last.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// True if `next` goes to another leaf. A scan that takes the newest committed version of each
    /// row may let its snapshot go here, once it has registered the next one (A5).
    pub fn is_between_leaves(&self) -> bool {
        match self.direction {
            Direction::Forward => self.slot >= self.count,
            Direction::Backward => self.slot == 0,
        }
    }

    /// Goes on behind a key in the direction of the last `seek`.
    ///
    /// # Errors
    /// Of pages.
    pub fn resume_after(&mut self, key: &[u8]) -> Result<()> {
        self.seek(Bound::Excluded(key), self.direction)
    }

    /// True if `key` lies behind `end` in this direction: where a bounded scan stops.
    pub fn is_past(&self, key: &[u8], end: Bound<&[u8]>) -> bool {
        let (end, included) = match end {
            Bound::Unbounded => return false,
            Bound::Included(end) => (end, true),
            Bound::Excluded(end) => (end, false),
        };
        match key.cmp(end) {
            Ordering::Equal => !included,
            Ordering::Greater => self.direction == Direction::Forward,
            Ordering::Less => self.direction == Direction::Backward,
        }
    }
}

enum Loaded {
    Yes,
    Again,
    /// Everything up to this key is dead for this reader; `None`: up to the end.
    Skipped(Option<Vec<u8>>),
}
