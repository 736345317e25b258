//! A cursor: copies one leaf at a time and holds no latch, frame or view between calls. It moves
//! from leaf to leaf by fences, so it survives any structure change. Rows that change after the
//! copy are judged by the reader's snapshot, which must be registered before `seek`. (A reader
//! without a snapshot, such as a locking read, takes the key here and the row from `Tree::get`.)
//!
//! A reader that only counts rows copies no leaf: `pass_leaf` shows it the rows in place, under the
//! leaf's latch.

use crate::tree::{DescentGoal, Tree};
use crate::write::LeafRow;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, Error, Lsn, PageNo, Result};
use evenkeel_format::node::{Node, NodeShape, compare};
use evenkeel_pages::{Access, PageRead};
use std::cmp::Ordering;
use std::ops::{Bound, Range};

/// The direction of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// Leaves that a scan prefetches.
const PREFETCH_LEAVES: usize = 16;
/// The same for leaves that are used once: such a scan reads to the end.
const PREFETCH_LEAVES_ONCE: usize = 64;
/// Leaves in a row before another scan prefetches.
const SCAN_LEAVES: usize = 2;
/// A scan that restarts this often without progress has met damage.
const RESTARTS_MAX: usize = 1_000;
/// Dead children of one node that a scan queues for reclamation if no snapshot needs them.
const ASK_SKIPPED_MAX: usize = 16;

/// How a call of `Cursor::pass_leaf` has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The rows of a leaf were shown; there may be more.
    Leaf,
    /// At a row that the reader has refused: `next` returns that row.
    Refused,
    /// At the end.
    End,
}

/// Looks at the wanted slots of a leaf: the slot at which the cursor stops, if it is to stop there.
type Look<'l> = dyn FnMut(&Node<'_>, Range<usize>) -> Result<Option<usize>> + 'l;

/// Walks the rows of a tree in key order, deleted ones included.
pub struct Cursor {
    tree: Tree,
    direction: Direction,
    access: Access,
    /// Subtrees that are dead since this or earlier are skipped unread (E6).
    skip_dead_at: Option<Lsn>,
    /// Leaves with only concurrent inserts are skipped unread.
    skips_concurrent_inserts: bool,
    /// Keys behind this one, in the present direction, are not wanted.
    end: Option<Vec<u8>>,
    /// Copy of the present leaf's payload,
    leaf: Vec<u8>,
    /// and the page and version that were copied.
    copied: (PageNo, u64),
    /// What its header says.
    shape: NodeShape,
    /// Rows in it.
    count: usize,
    /// Forward: the next slot. Backward: one above the next slot.
    slot: usize,
    /// The first slot whose key is at or above `end`.
    end_slot: usize,
    /// The rows of the present leaf were shown in place: it was not copied, it has no more rows,
    /// and `goal` is its high fence.
    in_place: bool,
    /// Leaves loaded since `seek`.
    leaves: usize,
    /// The node above the leaves whose children were last examined for a common read.
    looked_at: PageNo,
    /// Leaves still ahead that were prefetched.
    ahead: usize,
    /// The next leaves as the node above named them, the nearest last. Hints: a leaf is taken only
    /// if its fences admit the goal.
    neighbours: Vec<PageNo>,
    key: Vec<u8>,
    /// Bytes that `key` shares with all keys of the leaf; 0 if it is of another leaf.
    key_prefix: usize,
    goal: Vec<u8>,
    done: bool,
}

impl Tree {
    /// A cursor; call `seek` first.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            tree: self.clone(),
            direction: Direction::Forward,
            access: Access::Normal,
            skip_dead_at: None,
            skips_concurrent_inserts: false,
            end: None,
            leaf: Vec::new(),
            copied: (PageNo::ZERO, 0),
            shape: NodeShape::default(),
            count: 0,
            slot: 0,
            end_slot: 0,
            in_place: false,
            leaves: 0,
            looked_at: PageNo::ZERO,
            ahead: 0,
            neighbours: Vec::new(),
            key: Vec::new(),
            key_prefix: 0,
            goal: Vec::new(),
            done: true,
        }
    }
}

impl Cursor {
    /// For scans and builds: leaves are marked as used once (A5).
    pub fn set_use_once(&mut self, use_once: bool) {
        self.access = if use_once { Access::UseOnce } else { Access::Normal };
    }

    /// The reader's snapshot position: leaves without a row for it may be skipped unread. Only for
    /// readers that see just their own rows and committed rows at or below it; `Lsn::MAX` for
    /// readers of the newest versions.
    pub fn set_snapshot(&mut self, at: Option<Lsn>) {
        self.skip_dead_at = at;
    }

    /// For the build that watches (`Tree::watch_concurrent_inserts`), and forward only: leaves
    /// without a row for it are skipped unread.
    pub fn set_skip_concurrent_inserts(&mut self) {
        self.skips_concurrent_inserts = true;
    }

    /// Where the scan will end, in the direction of the next `seek`: no leaf behind it is
    /// prefetched, and the leaves of a short range are read together. A hint: rows behind it are
    /// returned all the same.
    pub fn set_end(&mut self, end: Option<&[u8]>) {
        match (end, &mut self.end) {
            (Some(end), Some(known)) => {
                known.clear();
                known.extend_from_slice(end);
            }
            (end, known) => *known = end.map(<[u8]>::to_vec),
        }
    }

    /// Moves before the first row that `bound` admits in this direction. `Unbounded` is the first
    /// row (forward) or the last (backward); `Included(k)` and `Excluded(k)` start at `k` or next
    /// to it.
    ///
    /// # Errors
    /// Of pages.
    pub fn seek(&mut self, bound: Bound<&[u8]>, direction: Direction) -> Result<()> {
        self.direction = direction;
        (self.leaves, self.ahead, self.done) = (0, 0, false);
        self.looked_at = PageNo::ZERO;
        self.neighbours.clear();
        let goal = match (direction, bound) {
            (Direction::Forward, Bound::Unbounded) => DescentGoal::At(b""),
            (Direction::Backward, Bound::Unbounded) => DescentGoal::Last,
            (Direction::Backward, Bound::Excluded(b"")) => {
                self.done = true;
                return Ok(());
            }
            (Direction::Backward, Bound::Excluded(key)) => DescentGoal::Before(key),
            (_, Bound::Included(key) | Bound::Excluded(key)) => DescentGoal::At(key),
        };
        self.load(goal, &mut copy_at_once)?;
        match (direction, bound) {
            (Direction::Forward, Bound::Excluded(key))
            | (Direction::Backward, Bound::Included(key)) => self.pass(key),
            _ => Ok(()),
        }
    }

    /// Moves behind a key from its slot, which `load` chose. If `load` skipped dead leaves it chose
    /// another slot, which is right: in a leaf beyond the key, or in one that was merged meanwhile
    /// with the key's leaf.
    fn pass(&mut self, key: &[u8]) -> Result<()> {
        if !self.done {
            let node = Node::parse(&self.leaf)?;
            let (slot, is_there) = node.lower_bound(key);
            if node.covers(key) && is_there && self.slot == slot {
                self.slot += 1;
            }
        }
        Ok(())
    }

    /// The next row: its key and cell, valid until the next call. `None` at the end.
    ///
    /// # Errors
    /// Of pages.
    #[expect(clippy::should_implement_trait, reason = "lends from the cursor, and may fail")]
    pub fn next(&mut self) -> Result<Option<(&[u8], LeafRow<'_>)>> {
        Ok(self.next_within()?.map(|(key, row, _)| (key, row)))
    }

    /// As `next`, and whether the row lies behind what `set_end` said.
    ///
    /// # Errors
    /// As `next`.
    #[inline]
    pub fn next_within(&mut self) -> Result<Option<(&[u8], LeafRow<'_>, bool)>> {
        while !self.done {
            let slot = match self.direction {
                Direction::Forward if self.slot < self.count => self.slot,
                Direction::Backward if self.slot > 0 => self.slot - 1,
                _ => {
                    self.next_leaf(&mut copy_at_once)?;
                    continue;
                }
            };
            let node = Node::of_shape(&self.leaf, self.shape)?;
            let (suffix, cell) = node.leaf_row(slot)?;
            self.slot = if self.direction == Direction::Forward { slot + 1 } else { slot };
            if self.key_prefix == 0 {
                self.key.clear();
                self.key.extend_from_slice(node.prefix());
                self.key_prefix = node.prefix().len();
            } else {
                self.key.truncate(self.key_prefix);
            }
            self.key.extend_from_slice(suffix);
            let is_behind = match self.direction {
                Direction::Forward => slot >= self.end_slot,
                Direction::Backward => slot < self.end_slot,
            };
            return Ok(Some((&self.key, cell.into(), is_behind)));
        }
        Ok(None)
    }

    /// Shows `see` the remaining rows of the present leaf, or those of the next one, up to what
    /// `set_end` said, for as long as `see` returns true. Only for a cursor that goes forward.
    /// `see` may run under the latch of a leaf, so it must not wait and must not read this tree.
    ///
    /// # Errors
    /// Of pages. Some rows may then have been shown that the next call shows again.
    pub fn pass_leaf(&mut self, mut see: impl FnMut(LeafRow<'_>) -> bool) -> Result<Passed> {
        debug_assert!(self.direction == Direction::Forward);
        let mut look = |node: &Node<'_>, slots: Range<usize>| {
            for slot in slots {
                if !see(node.leaf_row(slot)?.1.into()) {
                    return Ok(Some(slot));
                }
            }
            Ok(None)
        };
        if self.done {
            return Ok(Passed::End);
        }
        if self.slot >= self.count {
            self.next_leaf(&mut look)?;
            return Ok(match self.in_place {
                _ if self.done => Passed::End,
                true => Passed::Leaf,
                false => Passed::Refused,
            });
        }
        let node = Node::of_shape(&self.leaf, self.shape)?;
        if let Some(slot) = look(&node, self.slot..self.end_slot.min(self.count))? {
            self.slot = slot;
            return Ok(Passed::Refused);
        }
        self.done = self.end_slot < self.count;
        self.slot = self.count;
        Ok(if self.done { Passed::End } else { Passed::Leaf })
    }

    fn next_leaf(&mut self, look: &mut Look<'_>) -> Result<()> {
        let mut goal = std::mem::take(&mut self.goal);
        if !self.in_place {
            let node = Node::parse(&self.leaf)?;
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
        }
        let result = match self.direction {
            _ if self.done => Ok(()),
            Direction::Forward => self.load(DescentGoal::At(&goal), look),
            Direction::Backward => self.load(DescentGoal::Before(&goal), look),
        };
        // A leaf that was shown in place has left its own high fence there.
        if result.is_err() || !self.in_place {
            self.goal = goal;
        }
        result
    }

    /// Looks at the leaf of the goal, or at the next one behind dead leaves, and copies it if the
    /// look stops in it; `done` if there is none.
    fn load(&mut self, goal: DescentGoal<'_>, look: &mut Look<'_>) -> Result<()> {
        let mut behind: Option<Vec<u8>> = None;
        let mut restarts = 0;
        loop {
            let goal = match (&behind, self.direction) {
                (None, _) => goal,
                (Some(key), Direction::Forward) => DescentGoal::At(key),
                (Some(key), Direction::Backward) => DescentGoal::Before(key),
            };
            match self.load_once(goal, look)? {
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

    fn load_once(&mut self, goal: DescentGoal<'_>, look: &mut Look<'_>) -> Result<Loaded> {
        if let Some(page) = self.neighbours.pop() {
            self.ahead = self.ahead.saturating_sub(1);
            match self.visit(page, goal, look)? {
                Loaded::Again => self.neighbours.clear(),
                loaded => return Ok(loaded),
            }
        }
        let tree = self.tree.clone();
        let parent = tree.find(goal, 1, Access::Normal)?;
        let node = Node::parse(&parent)?;
        let slot = goal.child_slot(&node);
        if self.dead_child(&node, slot)?.is_some() {
            tree.trees().rt.metrics.add(Metric::DeadSkips, 1);
            return Ok(Loaded::Skipped(self.skip_dead(parent, goal)?));
        }
        let page = node.inner_cell(slot)?.child;
        if self.is_passed(page) {
            return Ok(Loaded::Skipped(self.behind_young(&node, slot)?));
        }
        let edge = self.last_slot(&node);
        let mut together = Vec::new();
        let above = std::mem::replace(&mut self.looked_at, parent.page_no());
        if above != self.looked_at && self.access == Access::Normal && self.end.is_some() {
            together = tree.to_read_together(&node, slot.min(edge)..=slot.max(edge));
        }
        self.read_ahead(&node, slot, edge);
        self.note_neighbours(&node, slot, edge)?;
        drop(parent);
        if !together.is_empty() {
            tree.pages().read_together(&together);
        }
        self.visit(page, goal, look)
    }

    /// The key behind the dead range that begins at the goal, by the highest node with a note;
    /// `None`: nothing follows. The child of `parent` at the goal is dead.
    fn skip_dead(&self, parent: PageRead<'_>, goal: DescentGoal<'_>) -> Result<Option<Vec<u8>>> {
        let node = Node::parse(&parent)?;
        let behind = self.behind_dead(&node, parent.page_no(), goal.child_slot(&node))?;
        if !node.is_marked_dead() {
            return Ok(behind);
        }
        // The node itself and its neighbours may be dead for this reader, too.
        let level = node.level() + 1;
        drop(parent);
        let Some(above) = self.tree.find_if_high(goal, level, Access::Normal)? else {
            return Ok(behind);
        };
        let node = Node::parse(&above)?;
        match self.dead_child(&node, goal.child_slot(&node))? {
            Some(_) => self.skip_dead(above, goal),
            None => Ok(behind),
        }
    }

    /// The key behind the dead children of a node from `slot` on.
    fn behind_dead(&self, node: &Node<'_>, page: PageNo, from: usize) -> Result<Option<Vec<u8>>> {
        let tree = &self.tree;
        let horizon = tree.trees().commits.horizon();
        let (mut slot, mut skips) = (from, 0);
        while let Some((child, since)) = self.dead_child(node, slot)? {
            skips += 1;
            if skips <= ASK_SKIPPED_MAX {
                tree.note_skipped(child, since, horizon);
            }
            let next = match self.direction {
                Direction::Forward => Some(slot + 1).filter(|next| *next < node.count()),
                Direction::Backward => slot.checked_sub(1),
            };
            match next {
                Some(next) => slot = next,
                None => {
                    if skips == node.count() && !node.is_marked_dead() && page != tree.root() {
                        // The node above has no note yet.
                        tree.ask_dead(page);
                    }
                    return Ok(match self.direction {
                        Direction::Forward => node.high().map(<[u8]>::to_vec),
                        Direction::Backward => Some(node.low().to_vec()).filter(|l| !l.is_empty()),
                    });
                }
            }
        }
        Ok(Some(match self.direction {
            Direction::Forward => node.key(slot),
            Direction::Backward => node.key(slot + 1),
        }))
    }

    fn is_passed(&self, leaf: PageNo) -> bool {
        self.skips_concurrent_inserts && self.tree.has_only_concurrent_inserts(leaf)
    }

    /// The key behind the children of a node from `slot` on that have only concurrent inserts.
    fn behind_young(&self, node: &Node<'_>, slot: usize) -> Result<Option<Vec<u8>>> {
        for next in slot + 1..node.count() {
            if !self.is_passed(node.inner_cell(next)?.child) {
                return Ok(Some(node.key(next)));
            }
        }
        Ok(node.high().map(<[u8]>::to_vec))
    }

    fn visit(
        &mut self,
        page: PageNo,
        goal: DescentGoal<'_>,
        look: &mut Look<'_>,
    ) -> Result<Loaded> {
        let tree = self.tree.clone();
        let leaf = match tree.pages().read(page, self.access) {
            Ok(leaf) => leaf,
            // Freed meanwhile, or damaged: `find` tells which.
            Err(_) => tree.find(goal, 0, self.access)?,
        };
        let node = match Node::parse(&leaf) {
            Ok(node) if tree.accepts(leaf.tree(), &node, goal, 0) => node,
            _ => return Ok(Loaded::Again),
        };
        // The leaf may have been merged with what the cursor has passed already.
        let slot = match goal {
            DescentGoal::At(key) if key == node.low() => 0,
            DescentGoal::Before(key) if node.high() == Some(key) => node.count(),
            DescentGoal::At(key) | DescentGoal::Before(key) => node.lower_bound(key).0,
            DescentGoal::Last => node.count(),
        };
        let end_slot = end_slot(&node, self.direction, self.end.as_deref());
        match look(&node, slot..end_slot)? {
            Some(slot) => self.copy(&leaf, &node, (slot, end_slot)),
            None => self.leave_in_place(&node, end_slot),
        }
        self.leaves += 1;
        tree.note_scan(leaf.page_no(), &node);
        Ok(Loaded::Yes)
    }

    fn copy(&mut self, leaf: &PageRead<'_>, node: &Node<'_>, (slot, end_slot): (usize, usize)) {
        self.leaf.clear();
        self.leaf.extend_from_slice(leaf);
        self.copied = (leaf.page_no(), leaf.version());
        self.shape = node.shape();
        self.count = node.count();
        self.key_prefix = 0;
        (self.slot, self.end_slot) = (slot, end_slot);
        self.in_place = false;
    }

    /// Goes behind the rows of a leaf that was not copied.
    fn leave_in_place(&mut self, node: &Node<'_>, end_slot: usize) {
        (self.slot, self.count, self.in_place) = (0, 0, true);
        self.goal.clear();
        match node.high() {
            Some(high) if end_slot >= node.count() => self.goal.extend_from_slice(high),
            _ => self.done = true,
        }
    }

    /// The child at a slot if it is dead for this reader, and since when.
    fn dead_child(&self, node: &Node<'_>, slot: usize) -> Result<Option<(PageNo, Lsn)>> {
        let Some(at) = self.skip_dead_at else { return Ok(None) };
        let cell = node.inner_cell(slot)?;
        Ok(cell.dead_since.filter(|since| *since <= at).map(|since| (cell.child, since)))
    }

    /// The last child of a node that the scan may need, in its direction.
    fn last_slot(&self, node: &Node<'_>) -> usize {
        match (self.direction, &self.end) {
            (Direction::Forward, Some(end)) if node.covers(end) => node.child_slot(end),
            (Direction::Forward, _) => node.count().saturating_sub(1),
            (Direction::Backward, Some(end)) if node.covers(end) => node.child_slot(end),
            (Direction::Backward, _) => 0,
        }
    }

    /// Leaves in a row before the scan prefetches, and leaves that it prefetches.
    fn window(&self) -> (usize, usize) {
        match self.access {
            Access::Normal => (SCAN_LEAVES, PREFETCH_LEAVES),
            Access::UseOnce => (0, PREFETCH_LEAVES_ONCE),
        }
    }

    /// Notes the leaves after `slot` that the scan visits before it prefetches again: so many it
    /// visits without a search. It stops at a leaf that it may skip unread.
    fn note_neighbours(&mut self, node: &Node<'_>, slot: usize, last: usize) -> Result<()> {
        self.neighbours.clear();
        let more = self.ahead.saturating_sub(self.window().1 / 2);
        for i in 1..=more {
            let next = match self.direction {
                Direction::Forward => Some(slot + i).filter(|next| *next <= last),
                Direction::Backward => slot.checked_sub(i).filter(|next| *next >= last),
            };
            let Some(next) = next.filter(|next| *next < node.count()) else { break };
            let page = node.inner_cell(next)?.child;
            if page == PageNo::ZERO
                || self.is_passed(page)
                || self.dead_child(node, next)?.is_some()
            {
                break;
            }
            self.neighbours.push(page);
        }
        self.neighbours.reverse();
        Ok(())
    }

    /// Prefetches the leaves after `slot`, up to `last`, once this has become a scan.
    fn read_ahead(&mut self, node: &Node<'_>, slot: usize, last: usize) {
        let (leaves, window) = self.window();
        if self.leaves < leaves || self.ahead > window / 2 {
            self.ahead = self.ahead.saturating_sub(1);
            return;
        }
        let mut pages = [PageNo::ZERO; PREFETCH_LEAVES_ONCE];
        let mut count = 0;
        for i in 0..window {
            let next = match self.direction {
                Direction::Forward => Some(slot + 1 + i).filter(|next| *next <= last),
                Direction::Backward => slot.checked_sub(1 + i).filter(|next| *next >= last),
            };
            let cell = next.filter(|s| *s < node.count()).map(|s| node.inner_cell(s));
            // Page 0 occurs only in a damaged node: its reader reports that.
            let Some(Ok(cell)) = cell else { break };
            if cell.child == PageNo::ZERO {
                break;
            }
            if !self.is_passed(cell.child) {
                pages[count] = cell.child;
                count += 1;
            }
        }
        self.tree.pages().prefetch(&pages[..count]);
        self.ahead = count;
    }

    /// The key of the row that `next` last returned.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// True if `next` moves to another leaf. A scan that takes the newest committed version of each
    /// row may release its snapshot here, after it has registered the next one (A5).
    pub fn is_between_leaves(&self) -> bool {
        match self.direction {
            Direction::Forward => self.slot >= self.count,
            Direction::Backward => self.slot == 0,
        }
    }

    /// Continues behind a key in the direction of the last `seek`.
    ///
    /// # Errors
    /// Of pages.
    pub fn resume_after(&mut self, key: &[u8]) -> Result<()> {
        self.seek(Bound::Excluded(key), self.direction)
    }

    /// Calls `f` with the present state of the row that `next` last returned, under the latch of
    /// its leaf, and returns the page. None, without a call, if the leaf has changed since it was
    /// copied. So a reader of the newest rows uses the copy as long as it is up to date.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn look_again(&self, f: &mut dyn FnMut(Option<LeafRow<'_>>)) -> Result<Option<PageNo>> {
        let (page, version) = self.copied;
        let last = match self.direction {
            Direction::Forward => self.slot.checked_sub(1),
            Direction::Backward => Some(self.slot),
        };
        // A page that can no longer be read is not the copied one.
        let Ok(leaf) = self.tree.pages().read(page, self.access) else { return Ok(None) };
        if leaf.version() != version || leaf.tree() != self.tree.id() {
            return Ok(None);
        }
        let node = Node::parse(&leaf)?;
        let Some(slot) = last.filter(|slot| *slot < node.count()) else { return Ok(None) };
        f(Some(node.leaf_cell(slot)?.into()));
        Ok(Some(page))
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

/// A look that stops at once.
fn copy_at_once(_: &Node<'_>, slots: Range<usize>) -> Result<Option<usize>> {
    Ok(Some(slots.start))
}

/// See `Cursor::end_slot`.
fn end_slot(node: &Node<'_>, direction: Direction, end: Option<&[u8]>) -> usize {
    match (end, direction) {
        (Some(end), _) if node.high().is_some_and(|high| compare(high, end).is_le()) => {
            node.count()
        }
        (Some(end), _) if compare(end, node.low()).is_le() => 0,
        (Some(end), _) => node.lower_bound(end).0,
        (None, Direction::Forward) => node.count(),
        (None, Direction::Backward) => 0,
    }
}

enum Loaded {
    Yes,
    Again,
    /// Everything up to this key is dead for this reader; `None`: up to the end.
    Skipped(Option<Vec<u8>>),
}
