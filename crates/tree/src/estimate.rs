//! Estimates of row counts by two bounded descents: one path per bound, and the counts of the nodes
//! on them. For all rows also some paths in between, because the nodes at the edges differ from the
//! others. Sampling of rows. Keys that split a tree into ranges of similar size, from its inner
//! nodes.
//!
//! The newest versions count as rows (`rows`): not a deleted row, even if an older snapshot still
//! needs it, and not the changes of an aborted transaction.

use crate::rows::Rows;
use crate::tree::{DescentGoal, Tree};
use evenkeel_base::{PageNo, Result};
use evenkeel_format::node::Node;
use evenkeel_pages::Access;
use std::ops::{Bound, Range};

/// The position of a bound in one node of its path.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Slots before the bound.
    at: usize,
    /// Children or rows before the bound.
    before: usize,
    /// Children or rows.
    count: usize,
    /// 1 if the child on the path is among them.
    own: usize,
    page: u64,
    /// The node is at the left or right edge of the tree, where nodes may hold few rows.
    at_left: bool,
    at_right: bool,
}

impl Place {
    /// Children or rows behind the bound, without the child on the path.
    fn behind(&self) -> usize {
        self.count.saturating_sub(self.before + self.own)
    }
}

/// The typical number of children or rows of the nodes of a level between two paths.
fn typical(low: Place, high: Place) -> f64 {
    let (low_count, high_count) = (low.count as f64, high.count as f64);
    match (low.at_left, high.at_right) {
        (true, true) => low_count.max(high_count),
        (true, false) => high_count,
        (false, true) => low_count,
        (false, false) => (low_count + high_count) / 2.0,
    }
}

/// Leaves between the ends that an estimate of all rows examines, about, and one of a range.
const LEAVES_OF_ALL: usize = 24;
const LEAVES_OF_RANGE: usize = 8;
/// Leaves that are additionally examined in one stretch, where rows begin or end in it.
const LOOKS_BETWEEN: usize = 8;

/// Estimates of ranges look between their ends if one row in this many is dead, or if some leaves
/// have this many times the rows of others.
const DEAD_SHARE: usize = 8;
const UNEVEN_TIMES: usize = 4;

/// The facts of a range: the paths to its ends, and the content of the leaves seen.
struct Known {
    low: Vec<Place>,
    high: Vec<Place>,
    /// Dead rows of the leaves seen, and all their rows.
    dead: usize,
    rows: usize,
    /// The fewest and the most rows of a leaf seen between the ends.
    fewest: usize,
    most: usize,
    /// Subtrees have dead notes.
    noted: bool,
}

impl Known {
    fn new() -> Known {
        let (low, high) = (Vec::new(), Vec::new());
        Known { low, high, dead: 0, rows: 0, fewest: usize::MAX, most: 0, noted: false }
    }

    fn see_leaf(&mut self, node: &Node<'_>, live: usize) {
        self.rows += node.count();
        self.dead += node.count() - live;
    }

    fn is_uneven(&self) -> bool {
        self.noted
            || self.dead * DEAD_SHARE > self.rows
            || self.fewest.saturating_mul(UNEVEN_TIMES) < self.most
    }
}

/// The level at which two paths diverge; none if they do not, or if the tree has changed in
/// between.
fn fork_of(low: &[Place], high: &[Place]) -> Option<usize> {
    let fork = low.iter().zip(high).position(|(low, high)| low.at != high.at)?;
    (low.len() == high.len() && low[fork].page == high[fork].page).then_some(fork)
}

/// The approximate number of rows between two paths. `None` if the tree has changed in between.
fn rows_between(low: &[Place], high: &[Place]) -> Option<u64> {
    if low.len() != high.len() {
        return None; // The tree grew or was lowered in between.
    }
    let Some(fork) = (0..low.len()).find(|i| low[*i].at != high[*i].at) else {
        return Some(0);
    };
    if low[fork].page != high[fork].page {
        return None;
    }
    if low[fork].at > high[fork].at {
        return Some(0); // An empty range.
    }
    if fork + 1 == low.len() {
        return Some(high[fork].before.saturating_sub(low[fork].before) as u64);
    }
    // Rows per subtree of each level below the fork, as on the paths.
    let mut rows = 1.0;
    let (mut behind_low, mut before_high) = (0.0, 0.0);
    for i in (fork + 1..low.len()).rev() {
        behind_low += low[i].behind() as f64 * rows;
        before_high += high[i].before as f64 * rows;
        rows *= typical(low[i], high[i]).max(1.0);
    }
    let subtrees = high[fork].before.saturating_sub(low[fork].before + low[fork].own);
    Some((behind_low + subtrees as f64 * rows + before_high) as u64)
}

/// Neighbouring children of one node that lie wholly in a range.
struct Stretch<'a> {
    /// The node.
    goal: DescentGoal<'a>,
    level: u8,
    slots: Range<usize>,
    /// The number of children without dead notes, and their approximate number of leaves.
    children: usize,
    leaves: f64,
}

/// The stretches between two paths that diverge at `fork`, without the leaves at their ends.
fn stretches<'a>(
    (low, high): (&[Place], &[Place]),
    fork: usize,
    (from, to): (DescentGoal<'a>, DescentGoal<'a>),
) -> Vec<Stretch<'a>> {
    let mut found = Vec::new();
    for i in fork..low.len() - 1 {
        let below = i + 1..low.len() - 1;
        let each: f64 = below.map(|i| typical(low[i], high[i]).max(1.0)).product();
        let mut add = |goal, slots, children: usize| {
            let (level, leaves) = ((low.len() - 1 - i) as u8, children as f64 * each);
            found.push(Stretch { goal, level, slots, children, leaves });
        };
        if i == fork {
            let children = high[i].before.saturating_sub(low[i].before + low[i].own);
            add(from, low[i].at + 1..high[i].at, children);
        } else {
            add(from, low[i].at + 1..usize::MAX, low[i].behind());
            add(to, 0..high[i].at, high[i].before);
        }
    }
    found.retain(|stretch| stretch.children > 0);
    found
}

/// The beginnings of some children of a node.
#[derive(Default)]
struct Begins {
    keys: Vec<u8>,
    ends: Vec<usize>,
}

impl Begins {
    fn push(&mut self, node: &Node<'_>, slot: usize) {
        // The first child begins where its parent does.
        match slot {
            0 => self.keys.extend_from_slice(node.low()),
            _ => node.key_to(slot, &mut self.keys),
        }
        self.ends.push(self.keys.len());
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn key(&self, nth: usize) -> &[u8] {
        let from = nth.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[from..self.ends[nth]]
    }
}

/// The result of a look: the rows and leaves of a child like the one there.
struct Seen {
    /// The part of the stretch before it.
    part: f64,
    rows: f64,
    leaves: f64,
}

/// The middles of this many equal parts.
fn even(parts: usize) -> Vec<f64> {
    (0..parts).map(|n| (n as f64 + 0.5) / parts as f64).collect()
}

/// The neighbours between which a look helps most: very different ones with leaves between them.
fn steepest(seen: &[Seen], leaves: f64) -> Option<usize> {
    let step = |at: usize| {
        let (a, b) = (&seen[at], &seen[at + 1]);
        let (fewest, most) = (a.rows.min(b.rows), a.rows.max(b.rows));
        let is_steep = fewest * (UNEVEN_TIMES as f64) < most && (b.part - a.part) * leaves >= 2.0;
        is_steep.then_some((most - fewest) * (b.part - a.part))
    };
    let steps = (1..seen.len()).filter_map(|at| Some((at - 1, step(at - 1)?)));
    steps.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}

/// The beginning of the child behind this part of some children of a node, and the part of the
/// child before that place.
fn child_at(node: &Node<'_>, slots: &[usize], part: f64) -> Option<(Vec<u8>, f64)> {
    let place = part * slots.len() as f64;
    let nth = (place as usize).min(slots.len().checked_sub(1)?);
    let slot = slots[nth];
    // The first child begins where its parent does.
    let key = if slot == 0 { node.low().to_vec() } else { node.key(slot) };
    Some((key, place - nth as f64))
}

/// The children of an inner node without dead notes.
fn children(node: &Node<'_>, slots: Range<usize>) -> Result<Vec<usize>> {
    let mut live = Vec::with_capacity(slots.len());
    for slot in slots {
        if node.inner_cell(slot)?.dead_since.is_none() {
            live.push(slot);
        }
    }
    Ok(live)
}

/// Up to this many leaves the figures are exact; otherwise this many leaves are sampled.
const LEAVES_SEEN: usize = 256;

/// The approximate size of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub rows: u64,
    /// Pages that hold them, without those of overflow chains.
    pub leaves: u64,
    /// Rows are distributed unevenly: many have been deleted, and their leaves still exist.
    pub is_uneven: bool,
}

/// Figures of a tree's leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeafFigures {
    /// Their number; an estimate if there are more than 256.
    pub leaves: f64,
    /// Bytes used in the leaves that were seen.
    pub used_bytes: f64,
    /// Bytes of the leaves that were seen.
    pub bytes: f64,
}

/// How to descend to a bound.
#[derive(Clone, Copy)]
struct Dive<'a> {
    goal: DescentGoal<'a>,
    /// A row with the key of the bound lies before it.
    behind: bool,
    /// The end key of a range whose leaves are to be read together.
    end: Option<&'a [u8]>,
    /// Children with dead notes do not count.
    notes: bool,
}

fn key_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
    }
}

type End<'a> = (DescentGoal<'a>, bool);

/// The ends of a range, and whether a row with such a key lies before it.
fn ends<'a>(lower: Bound<&'a [u8]>, upper: Bound<&'a [u8]>) -> (End<'a>, End<'a>) {
    let from = match lower {
        Bound::Unbounded => (DescentGoal::At(&b""[..]), false),
        Bound::Included(key) => (DescentGoal::At(key), false),
        Bound::Excluded(key) => (DescentGoal::At(key), true),
    };
    let to = match upper {
        Bound::Unbounded => (DescentGoal::Last, true),
        Bound::Included(key) => (DescentGoal::At(key), true),
        Bound::Excluded(key) => (DescentGoal::At(key), false),
    };
    (from, to)
}

/// True if both paths end in the same leaf.
fn is_one_leaf(known: &Known) -> bool {
    let page = |path: &[Place]| path.last().map(|place| place.page);
    page(&known.low) == page(&known.high)
}

/// The number of rows; 0 only if one leaf holds the range.
fn at_least(known: &Known, rows: Option<u64>) -> u64 {
    rows.unwrap_or(1).max(u64::from(!is_one_leaf(known)))
}

impl Tree {
    /// The number of leaves and their fill, from at most 256 of them: from all, or from sampled
    /// ones weighted by what each stands for. `draw` returns a number below its argument.
    ///
    /// # Errors
    /// Of pages.
    pub fn leaf_figures(&self, draw: &mut dyn FnMut(usize) -> usize) -> Result<LeafFigures> {
        // Release the latch first: each look latches the root again, and would wait for a writer
        // that waits for this latch.
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

    /// Level of the root. Merges may lower the tree at any moment, which `find_if_high` reports.
    fn top(&self) -> Result<u8> {
        Ok(Node::parse(&self.pages().read(self.root(), Access::Normal)?)?.level())
    }

    /// Bytes used and bytes of a sampled leaf, and the number it stands for: the inverse of its
    /// probability.
    fn draw_leaf(&self, draw: &mut dyn FnMut(usize) -> usize) -> Result<(usize, usize, f64)> {
        let mut level = self.top()?;
        let (mut key, mut leaves) = (Vec::new(), 1.0);
        loop {
            let Some(page) = self.find_if_high(DescentGoal::At(&key), level, Access::UseOnce)?
            else {
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

    /// The approximate number of rows between the bounds. Exact if both bounds fall into one leaf;
    /// never 0 unless certain. Reads only the paths to the two, unless many rows of the leaves at
    /// their ends are dead: then as `estimate_uneven`.
    ///
    /// # Errors
    /// Of pages.
    pub fn estimate(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
        let (mut known, end) = (Known::new(), key_of(upper));
        let ((from, behind_low), (to, behind_high)) = ends(lower, upper);
        let notes = false;
        known.low = self.dive(Dive { goal: from, behind: behind_low, end, notes }, &mut known)?;
        let high = Dive { goal: to, behind: behind_high, end: None, notes };
        known.high = self.dive(high, &mut known)?;
        if known.is_uneven() && !is_one_leaf(&known) {
            return self.estimate_uneven(lower, upper);
        }
        Ok(at_least(&known, rows_between(&known.low, &known.high)))
    }

    /// As `estimate`, for a tree with unevenly distributed rows (`Size::is_uneven`): the nodes at
    /// the two ends do not show how many lie between. So some of these are read too, and nodes with
    /// dead notes are skipped.
    ///
    /// # Errors
    /// Of pages.
    pub fn estimate_uneven(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<u64> {
        let mut known = Known::new();
        let found = self.look_within(lower, upper, LEAVES_OF_RANGE, &mut known)?;
        Ok(at_least(&known, found.map(|(rows, _)| rows)))
    }

    /// The approximate number of all rows, more exact than `estimate`: some leaves spread over the
    /// tree are read. With ascending keys these are full, but the first leaf, which was split
    /// before that was known, is not.
    ///
    /// # Errors
    /// Of pages.
    pub fn estimate_all(&self) -> Result<Size> {
        let mut known = Known::new();
        let all = (Bound::Unbounded, Bound::Unbounded);
        let (rows, leaves) =
            self.look_within(all.0, all.1, LEAVES_OF_ALL, &mut known)?.unwrap_or((1, 1));
        Ok(Size { rows, leaves, is_uneven: known.is_uneven() })
    }

    /// The approximate numbers of rows and leaves between the bounds, from the paths to them and
    /// about `looks` leaves in between; `None` if the tree has changed in between.
    fn look_within(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        looks: usize,
        known: &mut Known,
    ) -> Result<Option<(u64, u64)>> {
        let ((from, behind_low), (to, behind_high)) = ends(lower, upper);
        let notes = true;
        let low = self.dive(Dive { goal: from, behind: behind_low, end: None, notes }, known)?;
        let high = self.dive(Dive { goal: to, behind: behind_high, end: None, notes }, known)?;
        let fork = fork_of(&low, &high);
        let (first, last) = (low.last().copied(), high.last().copied());
        let (mut rows, mut leaves) = match (fork, first, last) {
            (Some(fork), Some(first), Some(last)) if fork + 1 < low.len() => {
                ((first.behind() + last.before) as f64, 2.0)
            }
            (_, Some(first), Some(last)) if first.page == last.page => {
                (last.before.saturating_sub(first.before) as f64, 1.0)
            }
            _ => return Ok(None),
        };
        if let Some(fork) = fork {
            let stretches = stretches((&low, &high), fork, (from, to));
            let all: f64 = stretches.iter().map(|stretch| stretch.leaves).sum();
            for stretch in stretches {
                let part = (looks as f64 * stretch.leaves / all.max(1.0)).round() as usize;
                let found = self.look_along(&stretch, part.max(1), known)?;
                (rows, leaves) = (rows + found.0, leaves + found.1);
            }
        }
        (known.low, known.high) = (low, high);
        Ok(Some((rows as u64, leaves as u64)))
    }

    /// The approximate numbers of rows and leaves of a stretch, from some leaves spread over it,
    /// and more where neighbouring leaves differ much.
    fn look_along(
        &self,
        stretch: &Stretch<'_>,
        looks: usize,
        known: &mut Known,
    ) -> Result<(f64, f64)> {
        let begins = self.begins(stretch)?;
        // Each leaf once if there are no more.
        let parts = if stretch.level == 1 && looks >= begins.len() {
            even(begins.len())
        } else {
            let edge = 0.5 / stretch.leaves.max(1.0);
            [vec![edge], even(looks), vec![1.0 - edge]].concat()
        };
        let mut seen = Vec::with_capacity(parts.len() + LOOKS_BETWEEN);
        for part in parts {
            seen.extend(self.look_at(stretch, &begins, part, known)?);
        }
        for _ in 0..LOOKS_BETWEEN {
            let Some(at) = steepest(&seen, stretch.leaves) else { break };
            let between = (seen[at].part + seen[at + 1].part) / 2.0;
            let found = self.look_at(stretch, &begins, between, known)?;
            seen.splice(at + 1..at + 1, found);
        }
        let (mut rows, mut leaves) = (0.0, 0.0);
        for (at, one) in seen.iter().enumerate() {
            // Each stands for the part that is nearer to it than to its neighbours.
            let middle = |other: &Seen| (one.part + other.part) / 2.0;
            let from = at.checked_sub(1).map_or(0.0, |before| middle(&seen[before]));
            let share = (seen.get(at + 1).map_or(1.0, middle) - from) * begins.len() as f64;
            (rows, leaves) = (rows + one.rows * share, leaves + one.leaves * share);
        }
        Ok((rows, leaves))
    }

    /// The beginnings of the children of a stretch without dead notes, all at one moment.
    fn begins(&self, stretch: &Stretch<'_>) -> Result<Begins> {
        let mut begins = Begins::default();
        if let Some(page) = self.find_if_high(stretch.goal, stretch.level, Access::Normal)? {
            let (node, slots) = (Node::parse(&page)?, &stretch.slots);
            let among = slots.start.min(node.count())..slots.end.min(node.count());
            children(&node, among)?.into_iter().for_each(|slot| begins.push(&node, slot));
        }
        Ok(begins)
    }

    /// Examines the leaf behind a part of a stretch; `None` if it has no children.
    fn look_at(
        &self,
        stretch: &Stretch<'_>,
        begins: &Begins,
        part: f64,
        known: &mut Known,
    ) -> Result<Option<Seen>> {
        let place = part * begins.len() as f64;
        let Some(last) = begins.len().checked_sub(1) else { return Ok(None) };
        let nth = (place as usize).min(last);
        let (key, level) = (begins.key(nth).to_vec(), stretch.level - 1);
        let (rows, leaves) = self.look_down(key, place - nth as f64, level, known)?;
        Ok(Some(Seen { part, rows, leaves }))
    }

    /// The approximate numbers of rows and leaves of the node of `level` at a key, from the leaf
    /// behind this part of it.
    fn look_down(
        &self,
        mut key: Vec<u8>,
        mut part: f64,
        level: u8,
        known: &mut Known,
    ) -> Result<(f64, f64)> {
        let mut leaves = 1.0;
        for level in (0..=level).rev() {
            let access = if level == 0 { Access::UseOnce } else { Access::Normal };
            let Some(page) = self.find_if_high(DescentGoal::At(&key), level, access)? else {
                continue;
            };
            let node = Node::parse(&page)?;
            // The node that began there has been merged into another one meanwhile.
            if node.low() != key {
                break;
            }
            if level == 0 {
                let live = self.rows().count(&node, 0..node.count())?;
                known.see_leaf(&node, live);
                known.fewest = known.fewest.min(live);
                known.most = known.most.max(live);
                return Ok((leaves * live as f64, leaves));
            }
            let live = children(&node, 0..node.count())?;
            known.noted |= live.len() < node.count();
            leaves *= live.len() as f64;
            let Some(next) = child_at(&node, &live, part) else { break };
            (key, part) = next;
        }
        Ok((0.0, 0.0))
    }

    fn rows(&self) -> Rows<'_> {
        Rows::new(&*self.trees().commits, self.id())
    }

    /// The path to a bound. If a short range ends at `end`, its leaves are read together on the
    /// way: a range whose estimate is requested is usually read soon.
    fn dive(&self, dive: Dive<'_>, known: &mut Known) -> Result<Vec<Place>> {
        let Dive { goal, behind, mut end, notes } = dive;
        let (mut path, mut together) = (Vec::new(), Vec::new());
        let mut damage = None;
        let mut see = |page: PageNo, node: &Node<'_>| {
            if page == self.root() {
                path.clear();
            }
            let at = match goal {
                _ if node.level() > 0 => goal.child_slot(node),
                DescentGoal::Last => node.count(),
                DescentGoal::At(key) | DescentGoal::Before(key) => {
                    let (slot, equal) = node.lower_bound(key);
                    slot + usize::from(equal && behind)
                }
            };
            match self.place(node, at, notes) {
                Ok(place) => path.push(Place { page: page.0, ..place }),
                Err(error) => damage = Some(error),
            }
            if let (0, Some(place)) = (node.level(), path.last()) {
                known.see_leaf(node, place.count);
            }
            if node.level() == 1
                && let Some(end) = end.take()
            {
                let edge = node.count().saturating_sub(1);
                let last = if node.covers(end) { node.child_slot(end) } else { edge };
                together = self.to_read_together(node, at..=last);
            }
            together.is_empty()
        };
        self.find_seeing(goal, 0, Access::Normal, &mut see)?;
        if let Some(damage) = damage {
            return Err(damage);
        }
        if together.is_empty() {
            return Ok(path);
        }
        self.pages().read_together(&together);
        self.dive(Dive { end: None, ..dive }, known)
    }

    /// The position of a slot among the rows or children of a node.
    fn place(&self, node: &Node<'_>, at: usize, notes: bool) -> Result<Place> {
        let (before, count, own) = match node.level() {
            0 => {
                let before = self.rows().count(node, 0..at)?;
                (before, before + self.rows().count(node, at..node.count())?, 0)
            }
            _ if notes => {
                let live = children(node, 0..node.count())?;
                let before = live.partition_point(|slot| *slot < at);
                (before, live.len(), usize::from(live.get(before) == Some(&at)))
            }
            _ => (at, node.count(), 1),
        };
        let (at_left, at_right) = (node.low().is_empty(), node.high().is_none());
        Ok(Place { at, before, count, own, page: 0, at_left, at_right })
    }

    /// The key of a row sampled from the leaves, and the number of rows it stands for: the inverse
    /// of its probability. `draw` returns a number below its argument. `None` if the chosen leaf
    /// has no row.
    ///
    /// # Errors
    /// Of pages.
    pub fn draw(&self, draw: &mut dyn FnMut(usize) -> usize) -> Result<Option<(Vec<u8>, f64)>> {
        let mut level = self.top()?;
        let (mut key, mut rows) = (Vec::new(), 1.0);
        loop {
            let Some(page) = self.find_if_high(DescentGoal::At(&key), level, Access::Normal)?
            else {
                (level, key, rows) = (self.top()?, Vec::new(), 1.0);
                continue;
            };
            let node = Node::parse(&page)?;
            let live = match level {
                0 => self.rows().slots(&node)?,
                _ => children(&node, 0..node.count())?,
            };
            let Some(last) = live.len().checked_sub(1) else { return Ok(None) };
            let slot = live[draw(live.len()).min(last)];
            rows *= live.len() as f64;
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

    /// The beginnings of the children of the inner nodes of a level, except the first.
    fn separators(&self, level: u8) -> Result<Vec<Vec<u8>>> {
        let (mut keys, mut from) = (Vec::<Vec<u8>>::new(), Vec::new());
        loop {
            let Some(page) = self.find_if_high(DescentGoal::At(&from), level, Access::Normal)?
            else {
                return Ok(keys);
            };
            let node = Node::parse(&page)?;
            for slot in 0..node.count() {
                let key = node.key(slot);
                // Nodes may have been merged meanwhile: keys never go back.
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
