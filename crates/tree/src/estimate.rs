//! Estimates of row counts by two bounded dives: one path per bound, counts of the nodes on them;
//! of all rows by some more paths between, for the nodes at the edges are not like the others.
//! Rows drawn at random. Keys that split a tree into ranges of similar size, from its inner nodes.

use crate::tree::{Goal, Tree};
use evenkeel_base::{PageNo, Result};
use evenkeel_format::node::Node;
use evenkeel_pages::Access;
use std::ops::{Bound, Range};

/// Where a bound lies in one node of its path.
#[derive(Clone, Copy, Debug)]
struct Place {
    slot: usize,
    count: usize,
    page: u64,
    /// The node lies at the left or right edge of the tree, where nodes may hold few.
    at_left: bool,
    at_right: bool,
}

/// How many children or rows the nodes of a level between two paths have, about.
fn typical(low: Place, high: Place) -> f64 {
    let (low_count, high_count) = (low.count as f64, high.count as f64);
    match (low.at_left, high.at_right) {
        (true, true) => low_count.max(high_count),
        (true, false) => high_count,
        (false, true) => low_count,
        (false, false) => (low_count + high_count) / 2.0,
    }
}

/// Subtrees between the edges that an estimate of all rows looks into.
const SUBTREES_SEEN: usize = 24;

/// Nodes seen on a level, and their children or rows.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    nodes: f64,
    count: f64,
}

/// About how many rows lie between two paths; `seen` is known of nodes between them, by level.
fn rows_between(low: &[Place], high: &[Place], seen: &[Seen]) -> u64 {
    if low.len() != high.len() {
        return 1; // The tree grew or was lowered in between.
    }
    let Some(fork) = (0..low.len()).find(|i| low[*i].slot != high[*i].slot) else {
        return 0;
    };
    if low[fork].page != high[fork].page || low[fork].slot > high[fork].slot {
        // Another shape in between, or an empty range.
        return u64::from(low[fork].page != high[fork].page);
    }
    if fork + 1 == low.len() {
        return (high[fork].slot - low[fork].slot) as u64;
    }
    // Rows per subtree of each level below the fork: from nodes between the paths, or on them.
    let mut rows = 1.0;
    let (mut behind_low, mut before_high) = (0.0, 0.0);
    for i in (fork + 1..low.len()).rev() {
        let level = low.len() - 1 - i;
        let beside = usize::from(level > 0);
        behind_low += low[i].count.saturating_sub(low[i].slot + beside) as f64 * rows;
        before_high += high[i].slot as f64 * rows;
        let between = seen.get(level).filter(|seen| seen.nodes > 0.0);
        let per_node =
            between.map_or_else(|| typical(low[i], high[i]), |seen| seen.count / seen.nodes);
        rows *= per_node.max(1.0);
    }
    let between = (high[fork].slot - low[fork].slot - 1) as f64 * rows;
    ((behind_low + between + before_high) as u64).max(1)
}

/// At most `wanted` of these slots, evenly spread.
fn spread(slots: Range<usize>, wanted: usize) -> impl Iterator<Item = usize> {
    let (from, len) = (slots.start, slots.len());
    let n = wanted.min(len);
    (0..n).map(move |i| from + (2 * i + 1) * len / (2 * n))
}

/// Leaves of which figures are told exactly, and leaves drawn for an estimate where there are more.
const LEAVES_SEEN: usize = 256;

/// How large a tree is, about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Deleted ones not yet removed included.
    pub rows: u64,
    /// Pages that hold them, without those of overflow chains.
    pub leaves: u64,
}

/// Figures of a tree's leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeafFigures {
    /// How many; an estimate where there are more than 256.
    pub leaves: f64,
    /// Bytes used in the leaves that were seen.
    pub used_bytes: f64,
    /// Bytes of the leaves that were seen.
    pub bytes: f64,
}

impl Tree {
    /// How many leaves there are and how full they are, by at most 256 of them: all, where there
    /// are no more, else drawn ones, each counted by what it stands for. `draw` gives a number
    /// below its argument.
    ///
    /// # Errors
    /// Of pages.
    pub fn leaf_figures(&self, draw: &mut dyn FnMut(usize) -> usize) -> Result<LeafFigures> {
        // The latch goes first: each look latches the root again, and a writer that waits for it in
        // between would be waited for.
        let (level, count) = {
            let root = self.pages().read(self.root(), Access::Normal)?;
            let root = Node::parse(&root)?;
            (root.level(), root.count())
        };
        let few = level == 1 && count <= LEAVES_SEEN;
        let looks = if few { count } else { LEAVES_SEEN };
        let mut sum = LeafFigures::default();
        for at in 0..if level == 0 { 1 } else { looks } {
            let mut one = |count: usize| if few { at } else { draw(count) };
            let (used, bytes, stands_for) = self.draw_leaf(&mut one)?;
            sum.used_bytes += used as f64 * stands_for;
            sum.bytes += bytes as f64 * stands_for;
            sum.leaves += if few { 1.0 } else { stands_for / looks.max(1) as f64 };
        }
        if level == 0 {
            sum.leaves = 1.0;
        }
        Ok(sum)
    }

    /// Level of the root. Merges may lower the tree at any moment: `find_if_high` tells.
    fn top(&self) -> Result<u8> {
        Ok(Node::parse(&self.pages().read(self.root(), Access::Normal)?)?.level())
    }

    /// Bytes used and bytes of a leaf, and how many it stands for: one over its chance.
    fn draw_leaf(&self, draw: &mut dyn FnMut(usize) -> usize) -> Result<(usize, usize, f64)> {
        let mut level = self.top()?;
        let (mut key, mut leaves) = (Vec::new(), 1.0);
        loop {
            let Some(page) = self.find_if_high(Goal::At(&key), level, Access::UseOnce)? else {
                (level, key, leaves) = (self.top()?, Vec::new(), 1.0);
                continue;
            };
            let node = Node::parse(&page)?;
            if level == 0 || node.count() == 0 {
                return Ok((node.used_bytes(), node.payload_bytes(), leaves));
            }
            let slot = draw(node.count()).min(node.count() - 1);
            leaves *= node.count() as f64;
            key = if slot == 0 { node.low().to_vec() } else { node.key(slot) };
            level -= 1;
        }
    }

    /// About how many rows lie between the bounds, deleted ones not yet removed included. Exact
    /// when both bounds fall into one leaf; never 0 unless certain.
    ///
    /// # Errors
    /// Of pages.
    pub fn estimate(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
        let end = match upper {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
        };
        let low = match lower {
            Bound::Unbounded => self.dive(Goal::At(b""), false)?,
            Bound::Included(key) => self.dive_reading(Goal::At(key), false, end)?,
            Bound::Excluded(key) => self.dive_reading(Goal::At(key), true, end)?,
        };
        let high = match upper {
            Bound::Unbounded => self.dive(Goal::Last, true)?,
            Bound::Included(key) => self.dive(Goal::At(key), true)?,
            Bound::Excluded(key) => self.dive(Goal::At(key), false)?,
        };
        Ok(rows_between(&low, &high, &[]))
    }

    /// About how many rows there are, as `estimate`, and nearer: some paths between the
    /// edges tell how full the nodes there are. Where keys ascend these are full, and the first
    /// leaf, which was split before that was known, is not.
    ///
    /// # Errors
    /// Of pages.
    pub fn estimate_all(&self) -> Result<Size> {
        let low = self.dive(Goal::At(b""), false)?;
        let high = self.dive(Goal::Last, true)?;
        let seen = self.look_between(&low, &high)?;
        let rows = rows_between(&low, &high, &seen);
        let leaf = match (seen.first().filter(|seen| seen.nodes > 0.0), low.last(), high.last()) {
            (Some(seen), ..) => seen.count / seen.nodes,
            (None, Some(low), Some(high)) => typical(*low, *high),
            _ => 1.0,
        };
        Ok(Size { rows, leaves: (rows as f64 / leaf.max(1.0)).ceil().max(1.0) as u64 })
    }

    /// Counts of nodes on paths between the edges, per level: below the fork of the two first, then
    /// beside them further down.
    fn look_between(&self, low: &[Place], high: &[Place]) -> Result<Vec<Seen>> {
        let mut seen = vec![Seen::default(); low.len()];
        let Some(fork) = low.iter().zip(high).position(|(low, high)| low.slot != high.slot) else {
            return Ok(seen);
        };
        let mut left = SUBTREES_SEEN;
        for i in fork..low.len().min(high.len()) - 1 {
            let level = (low.len() - 1 - i) as u8;
            let sides = match i == fork {
                true => [(Goal::At(b""), low[i].slot + 1..high[i].slot), (Goal::Last, 0..0)],
                false => {
                    [(Goal::At(b""), low[i].slot + 1..low[i].count), (Goal::Last, 0..high[i].slot)]
                }
            };
            let mut others = sides.iter().filter(|(_, slots)| !slots.is_empty()).count();
            for (goal, slots) in sides.into_iter().filter(|(_, slots)| !slots.is_empty()) {
                let wanted = left.div_ceil(others);
                others -= 1;
                let Some(page) = self.find_if_high(goal, level, Access::Normal)? else { continue };
                let node = Node::parse(&page)?;
                let begins = |slot| if slot == 0 { node.low().to_vec() } else { node.key(slot) };
                let there = spread(slots, wanted).filter(|slot| *slot < node.count());
                let keys: Vec<Vec<u8>> = there.map(begins).collect();
                drop(page);
                left -= keys.len();
                for key in keys {
                    self.count_down(&key, level - 1, &mut seen)?;
                }
            }
        }
        Ok(seen)
    }

    /// Counts the nodes on the path to a key, from a level on.
    fn count_down(&self, key: &[u8], level: u8, seen: &mut [Seen]) -> Result<()> {
        for level in (0..=level).rev() {
            let access = if level == 0 { Access::UseOnce } else { Access::Normal };
            let Some(page) = self.find_if_high(Goal::At(key), level, access)? else { continue };
            let seen = &mut seen[usize::from(level)];
            seen.nodes += 1.0;
            seen.count += Node::parse(&page)?.count() as f64;
        }
        Ok(())
    }

    /// The path to a bound. At the leaf the slot counts the rows before the bound: those below
    /// the key, and the key itself with `behind`.
    fn dive(&self, goal: Goal<'_>, behind: bool) -> Result<Vec<Place>> {
        self.dive_reading(goal, behind, None)
    }

    /// The same; where a range ends at `end`, and is short, its leaves are read together on the
    /// way: who asks for an estimate of one reads it soon.
    fn dive_reading(
        &self,
        goal: Goal<'_>,
        behind: bool,
        mut end: Option<&[u8]>,
    ) -> Result<Vec<Place>> {
        let (mut path, mut together) = (Vec::new(), Vec::new());
        let mut see = |page: PageNo, node: &Node<'_>| {
            if page == self.root() {
                path.clear();
            }
            let slot = match goal {
                _ if node.level() > 0 => goal.child_slot(node),
                Goal::Last => node.count(),
                Goal::At(key) | Goal::Before(key) => {
                    let (slot, equal) = node.lower_bound(key);
                    slot + usize::from(equal && behind)
                }
            };
            path.push(Place {
                slot,
                count: node.count(),
                page: page.0,
                at_left: node.low().is_empty(),
                at_right: node.high().is_none(),
            });
            if node.level() == 1
                && let Some(end) = end.take()
            {
                let edge = node.count().saturating_sub(1);
                let last = if node.covers(end) { node.child_slot(end) } else { edge };
                together = self.to_read_together(node, slot..=last);
            }
            together.is_empty()
        };
        self.find_seeing(goal, 0, Access::Normal, &mut see)?;
        if together.is_empty() {
            return Ok(path);
        }
        self.pages().read_together(&together);
        self.dive_reading(goal, behind, None)
    }

    /// The key of a row drawn from the leaves, deleted ones not yet removed included, and how many
    /// rows it stands for: one over the chance that it is drawn. `draw` gives a number below its
    /// argument. `None` if the leaf it comes to is empty.
    ///
    /// # Errors
    /// Of pages.
    pub fn draw(&self, draw: &mut dyn FnMut(usize) -> usize) -> Result<Option<(Vec<u8>, f64)>> {
        let mut level = self.top()?;
        let (mut key, mut rows) = (Vec::new(), 1.0);
        loop {
            let Some(page) = self.find_if_high(Goal::At(&key), level, Access::Normal)? else {
                (level, key, rows) = (self.top()?, Vec::new(), 1.0);
                continue;
            };
            let node = Node::parse(&page)?;
            if node.count() == 0 {
                return Ok(None);
            }
            let slot = draw(node.count()).min(node.count() - 1);
            rows *= node.count() as f64;
            let below = node.key(slot);
            if level == 0 {
                return Ok(Some((below, rows)));
            }
            // The first child begins where its parent does.
            key = if slot == 0 { node.low().to_vec() } else { below };
            level -= 1;
        }
    }

    /// Keys that split the rows into about `ranges` ranges of similar size, ascending; fewer if the
    /// tree is small. Reads at most about `ranges` inner nodes.
    ///
    /// # Errors
    /// Of pages.
    pub fn split_points(&self, ranges: usize) -> Result<Vec<Vec<u8>>> {
        let mut level = self.top()?;
        let mut keys = Vec::new();
        while level > 0 && keys.len() + 1 < ranges {
            keys = self.separators(level)?;
            level -= 1;
        }
        let children = keys.len() + 1;
        let mut chosen: Vec<usize> = (1..ranges).map(|i| i * children / ranges).collect();
        chosen.retain(|at| *at > 0);
        chosen.dedup();
        Ok(chosen.into_iter().map(|at| std::mem::take(&mut keys[at - 1])).collect())
    }

    /// Where the children of the inner nodes of a level begin, but for the first.
    fn separators(&self, level: u8) -> Result<Vec<Vec<u8>>> {
        let (mut keys, mut from) = (Vec::<Vec<u8>>::new(), Vec::new());
        loop {
            let Some(page) = self.find_if_high(Goal::At(&from), level, Access::Normal)? else {
                return Ok(keys);
            };
            let node = Node::parse(&page)?;
            for slot in 0..node.count() {
                let key = node.key(slot);
                // Nodes may have been merged meanwhile: never back.
                if keys.last().map_or(&[][..], |k| k) < &key[..] {
                    keys.push(key);
                }
            }
            match node.high() {
                Some(high) => from = high.to_vec(),
                None => return Ok(keys),
            }
        }
    }
}
