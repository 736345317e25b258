//! The owners of pages: the space map in memory, built at open from the map and owners pages.
//!
//! A mini-transaction picks pages here at once (so no other gets them) and logs the change of the
//! map pages in its own record at commit. [`PageSpace::commit`] then makes the pick final, and
//! [`PageSpace::abort`] reverts it. Extents that a mini-transaction takes are private to it until
//! it commits, so no other relies on an extent whose record may never be written.
//!
//! Life of an extent: blocks reserved -> `ready` -> owned -> freed (`pending`, with the LSN of its
//! record) -> record durable, no frame left, blocks punched -> `punched` -> blocks reserved again
//! -> `ready` (E2). An extent that is free at an open is `punched` at once, and `found`: it may
//! still have its blocks, so it is punched when there is time.

pub(crate) mod copy;
pub(crate) mod extents;
pub(crate) mod files;
pub(crate) mod page_set;
#[cfg(test)]
mod space_tests;

use crate::PageSet;
use evenkeel_base::{Code, Error, Lsn, PageNo, Result, TreeId, sync::Mutex};
use evenkeel_format::space::{ExtentState, Geometry, SEGMENT_EXTENTS, TREE_FRAGMENTS};
use evenkeel_io::{Event, EventLatch};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// One bit per page of an extent.
pub(crate) type Bits = [u64; 4];

struct Extent {
    tree: TreeId,
    incarnation: u32,
    state: ExtentState,
    used: u16,
    /// Free pages; `None`: none is free (or the extent is).
    free: Option<Box<Bits>>,
}

#[derive(Default)]
struct TreeSpace {
    fragments: BTreeSet<PageNo>,
    extents: BTreeSet<u32>,
    /// Those of `extents` with a free page.
    partial: BTreeSet<u32>,
}

/// An extent freed at `lsn`, on its way to being reusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub extent: u32,
    pub lsn: Lsn,
}

#[derive(Default)]
struct State {
    extents: Vec<Extent>,
    trees: BTreeMap<TreeId, TreeSpace>,
    /// Fragment extents with a free page.
    fragments: BTreeSet<u32>,
    ready: BTreeSet<u32>,
    punched: BTreeSet<u32>,
    /// The `punched` extents that were free at the open: after a crash they may have blocks.
    found: BTreeSet<u32>,
    /// In the order of their records, except those that are tried again.
    pending: VecDeque<Pending>,
    /// The newest record of all pending extents so far.
    newest_pending: Lsn,
}

/// A change of the map that a mini-transaction logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// An extent is allocated.
    Take { extent: u32, state: ExtentState, tree: TreeId, incarnation: u32 },
    /// An extent is freed.
    Give { extent: u32, incarnation: u32 },
    /// A page of a tree's extent is taken or freed.
    Used { page: PageNo, used: bool },
    /// A fragment page is taken by `owner`, or freed (`owner` zero) by `tree`.
    Owner { page: PageNo, owner: TreeId, tree: TreeId },
    /// A segment was added; the new number of segments.
    Segments(u32),
}

/// A page picked for a mini-transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub page: PageNo,
    pub incarnation: u32,
    pub fragment: bool,
    /// Its extent was taken for it.
    pub new_extent: Option<u32>,
}

/// Figures of the page space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// Segment files.
    pub segments: u32,
    /// Extents in them.
    pub extents: u32,
    /// Extents without an owner (with or without blocks).
    pub free_extents: u32,
    /// Free extents whose blocks were returned to the file system.
    pub punched_extents: u32,
    /// Freed extents on their way to being reusable.
    pub pending_extents: u32,
    /// Extents of single pages.
    pub fragment_extents: u32,
    /// Pages owned by trees.
    pub pages: u64,
    /// Trees that own pages.
    pub trees: usize,
}

/// Extents of a tree that are examined before the lock is released.
const EXTENTS_PER_LOOK: usize = 64;

/// One thread at a time grows the space; the others wait.
#[derive(Default)]
pub(crate) struct Growth {
    pub latch: EventLatch,
    pub reclaim: Arc<Event>,
}

pub(crate) struct PageSpace {
    pub growth: Growth,
    geometry: Geometry,
    state: Mutex<State>,
}

fn bit(index: u32) -> (usize, u64) {
    (index as usize / 64, 1 << (index % 64))
}

/// The first set bit at or after `from`, wrapping round.
fn next_bit(bits: &Bits, from: u32, accept: impl Fn(u32) -> bool) -> Option<u32> {
    let set = |index: &u32| {
        let (word, mask) = bit(*index);
        bits[word] & mask != 0 && accept(*index)
    };
    (from..256).chain(0..from).find(set)
}

fn is_used(extent: &Extent, index: u32) -> bool {
    let (word, mask) = bit(index);
    extent.free.as_ref().is_none_or(|free| free[word] & mask == 0)
}

impl State {
    fn extent(&mut self, extent: u32) -> Option<&mut Extent> {
        self.extents.get_mut(extent as usize)
    }

    /// Adds or removes an extent in the sets of extents with a free page.
    fn list(&mut self, extent: u32) {
        let Some(e) = self.extents.get(extent as usize) else { return };
        let has_free = e.free.is_some();
        let set = match e.state {
            ExtentState::Fragments => &mut self.fragments,
            ExtentState::Tree => &mut self.trees.entry(e.tree).or_default().partial,
            ExtentState::Free => return,
        };
        if has_free {
            set.insert(extent);
        } else {
            set.remove(&extent);
        }
    }

    fn take_page(&mut self, extent: u32, from: u32, accept: impl Fn(u32) -> bool) -> Option<u32> {
        let e = self.extent(extent)?;
        let bits = e.free.as_mut()?;
        let index = next_bit(bits, from, accept)?;
        let (word, mask) = bit(index);
        bits[word] &= !mask;
        e.used += 1;
        if bits.iter().all(|w| *w == 0) {
            e.free = None;
        }
        Some(index)
    }

    fn free_page(&mut self, extent: u32, index: u32) {
        if let Some(e) = self.extent(extent) {
            let (word, mask) = bit(index);
            e.free.get_or_insert_default()[word] |= mask;
            e.used = e.used.saturating_sub(1);
        }
    }
}

impl PageSpace {
    pub fn new(geometry: Geometry) -> PageSpace {
        PageSpace { growth: Growth::default(), geometry, state: Mutex::default() }
    }

    fn all_pages(&self) -> Bits {
        let mut bits = [0; 4];
        bits[..self.geometry.extent_pages() as usize / 64].fill(u64::MAX);
        bits
    }

    /// Picks a page for `tree`: a fragment while the tree is small, else a page of its extents,
    /// near `near` if possible. `private` are extents that this mini-transaction took; pages for
    /// which `skip` is true are skipped. `None`: no extent is ready.
    pub fn pick(
        &self,
        tree: TreeId,
        near: Option<PageNo>,
        private: &[u32],
        skip: &dyn Fn(PageNo) -> bool,
    ) -> Option<Pick> {
        let mut state = self.state.lock();
        let near = near.and_then(|page| self.geometry.extent_of(page));
        let owned = state.trees.get(&tree);
        let (fragments, extents) = owned.map_or((0, 0), |t| (t.fragments.len(), t.extents.len()));
        let mine = |state: &State, extent: u32, wanted: ExtentState| {
            state.extents.get(extent as usize).is_some_and(|e| {
                e.state == wanted && (wanted == ExtentState::Fragments || e.tree == tree)
            })
        };
        let has_private = private.iter().any(|e| mine(&state, *e, ExtentState::Tree));
        let small = extents == 0 && !has_private && fragments < TREE_FRAGMENTS;
        let wanted = if small { ExtentState::Fragments } else { ExtentState::Tree };
        let mut candidates: Vec<(u32, u32)> = Vec::new();
        candidates.extend(near.filter(|(e, _)| mine(&state, *e, wanted)).map(|(e, i)| (e, i + 1)));
        candidates.extend(private.iter().filter(|e| mine(&state, **e, wanted)).map(|e| (*e, 0)));
        let listed = match wanted {
            ExtentState::Fragments => Some(&state.fragments),
            _ => state.trees.get(&tree).map(|t| &t.partial),
        };
        candidates.extend(listed.into_iter().flatten().take(8).map(|e| (*e, 0)));
        for (extent, from) in candidates {
            // Private extents of others are not listed and never come here.
            let listed = private.contains(&extent)
                || match wanted {
                    ExtentState::Fragments => state.fragments.contains(&extent),
                    _ => state.trees.get(&tree).is_some_and(|t| t.partial.contains(&extent)),
                };
            let accept = |index| !skip(self.geometry.page_at(extent, index));
            if listed && let Some(index) = state.take_page(extent, from, accept) {
                if !private.contains(&extent) {
                    state.list(extent);
                }
                return Some(self.picked(&state, extent, index, small, None));
            }
        }
        self.pick_in_new_extent(&mut state, tree, wanted, skip)
    }

    fn pick_in_new_extent(
        &self,
        state: &mut State,
        tree: TreeId,
        wanted: ExtentState,
        skip: &dyn Fn(PageNo) -> bool,
    ) -> Option<Pick> {
        let extent = state.ready.pop_first()?;
        let mut bits = self.all_pages();
        let small = wanted == ExtentState::Fragments;
        if small {
            for index in 0..=self.geometry.owners_index(extent) {
                let (word, mask) = bit(index);
                bits[word] &= !mask;
            }
        }
        if let Some(e) = state.extent(extent) {
            e.state = wanted;
            e.tree = if small { TreeId::ZERO } else { tree };
            e.incarnation += 1;
            e.used = 0;
            e.free = Some(Box::new(bits));
        }
        let accept = |index| !skip(self.geometry.page_at(extent, index));
        let index = state.take_page(extent, 0, accept)?;
        Some(self.picked(state, extent, index, small, Some(extent)))
    }

    fn picked(
        &self,
        state: &State,
        extent: u32,
        index: u32,
        fragment: bool,
        new_extent: Option<u32>,
    ) -> Pick {
        let incarnation = state.extents.get(extent as usize).map_or(0, |e| e.incarnation);
        Pick { page: self.geometry.page_at(extent, index), incarnation, fragment, new_extent }
    }

    /// The change that frees a page. # Errors: `SpaceDamaged` if it is not in use.
    pub fn freeing(&self, page: PageNo, tree: TreeId) -> Result<Change> {
        let state = self.state.lock();
        let place = self.geometry.extent_of(page);
        let found = place.and_then(|(extent, index)| {
            let e = state.extents.get(extent as usize)?;
            let (word, mask) = bit(index);
            let used = e.free.as_ref().is_none_or(|bits| bits[word] & mask == 0);
            used.then_some(e.state)
        });
        match found {
            Some(ExtentState::Tree) => Ok(Change::Used { page, used: false }),
            Some(ExtentState::Fragments) => Ok(Change::Owner { page, owner: TreeId::ZERO, tree }),
            _ => Err(Error::new(Code::SpaceDamaged).with("page", page).with("why", "free twice")),
        }
    }

    /// Adds to `changes` the freeing of each tree extent whose last pages they free; such extents
    /// allocate no page from now on. `private` extents stay.
    pub fn close_empty(&self, changes: &mut Vec<Change>, private: &[u32]) {
        let mut freed: BTreeMap<u32, u16> = BTreeMap::new();
        for change in changes.iter() {
            if let Change::Used { page, used: false } = change
                && let Some((extent, _)) = self.geometry.extent_of(*page)
            {
                *freed.entry(extent).or_default() += 1;
            }
        }
        if freed.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for (extent, count) in freed {
            let Some(e) = state.extent(extent) else { continue };
            let planted = evenkeel_base::fault_injection::is(
                evenkeel_base::fault_injection::Fault::UsedExtentFreed,
            );
            let is_empty = e.used == count || (planted && e.used == count + 1);
            if is_empty && !private.contains(&extent) {
                let (tree, incarnation) = (e.tree, e.incarnation);
                e.free = None;
                if let Some(owned) = state.trees.get_mut(&tree) {
                    owned.partial.remove(&extent);
                }
                changes.push(Change::Give { extent, incarnation });
            }
        }
    }

    /// Makes changes final whose record has `lsn`.
    pub fn commit(&self, changes: &[Change], lsn: Lsn) {
        let mut state = self.state.lock();
        for change in changes {
            match *change {
                Change::Take { extent, state: kind, tree, .. } => {
                    if kind == ExtentState::Tree {
                        state.trees.entry(tree).or_default().extents.insert(extent);
                    }
                    state.list(extent);
                }
                Change::Give { extent, .. } => Self::give(&mut state, extent, lsn),
                Change::Used { page, used: false } => {
                    if let Some((extent, index)) = self.geometry.extent_of(page) {
                        state.free_page(extent, index);
                        state.list(extent);
                    }
                }
                Change::Owner { page, owner, tree } if owner == TreeId::ZERO => {
                    if let Some((extent, index)) = self.geometry.extent_of(page) {
                        state.free_page(extent, index);
                        state.list(extent);
                    }
                    if let Some(owned) = state.trees.get_mut(&tree) {
                        owned.fragments.remove(&page);
                    }
                    Self::forget_empty(&mut state, tree);
                }
                Change::Owner { page, owner, .. } => {
                    state.trees.entry(owner).or_default().fragments.insert(page);
                }
                Change::Used { .. } | Change::Segments(_) => {}
            }
        }
    }

    fn give(state: &mut State, extent: u32, lsn: Lsn) {
        let Some(e) = state.extent(extent) else { return };
        let tree = e.tree;
        (e.state, e.tree, e.used, e.free) = (ExtentState::Free, TreeId::ZERO, 0, None);
        if let Some(owned) = state.trees.get_mut(&tree) {
            owned.extents.remove(&extent);
            owned.partial.remove(&extent);
        }
        state.pending.push_back(Pending { extent, lsn });
        state.newest_pending = state.newest_pending.max(lsn);
        Self::forget_empty(state, tree);
    }

    fn forget_empty(state: &mut State, tree: TreeId) {
        let gone = |t: &TreeSpace| t.fragments.is_empty() && t.extents.is_empty();
        if state.trees.get(&tree).is_some_and(gone) {
            state.trees.remove(&tree);
        }
    }

    /// Reverts what a mini-transaction picked.
    pub fn abort(&self, changes: &[Change]) {
        let mut state = self.state.lock();
        for change in changes {
            match *change {
                Change::Used { page, used: true } => self.put_back(&mut state, page),
                Change::Owner { page, owner, .. } if owner != TreeId::ZERO => {
                    self.put_back(&mut state, page);
                }
                _ => {}
            }
        }
        for change in changes {
            if let Change::Take { extent, .. } = *change {
                state.fragments.remove(&extent);
                if let Some(e) = state.extent(extent) {
                    let tree = e.tree;
                    (e.state, e.tree, e.used, e.free) = (ExtentState::Free, TreeId::ZERO, 0, None);
                    if let Some(owned) = state.trees.get_mut(&tree) {
                        owned.partial.remove(&extent);
                    }
                    Self::forget_empty(&mut state, tree);
                }
                state.ready.insert(extent);
            }
        }
    }

    fn put_back(&self, state: &mut State, page: PageNo) {
        if let Some((extent, index)) = self.geometry.extent_of(page) {
            state.free_page(extent, index);
            state.list(extent);
        }
    }

    /// The property of a tree: its fragment pages, and its extents with their incarnation.
    pub fn of_tree(&self, tree: TreeId) -> (Vec<PageNo>, Vec<(u32, u32)>) {
        let state = self.state.lock();
        let Some(owned) = state.trees.get(&tree) else { return Default::default() };
        let incarnation = |e: &u32| state.extents.get(*e as usize).map_or(0, |e| e.incarnation);
        let extents = owned.extents.iter().map(|e| (*e, incarnation(e))).collect();
        (owned.fragments.iter().copied().collect(), extents)
    }

    /// The pages of a tree that are in use. The lock is held for a few extents at a time, so that
    /// other threads can allocate pages in between.
    pub fn used_by(&self, tree: TreeId) -> PageSet {
        let mut pages = PageSet::default();
        let mut next = Some(0);
        while let Some(from) = next {
            let state = self.state.lock();
            let Some(owned) = state.trees.get(&tree) else { break };
            if from == 0 {
                owned.fragments.iter().for_each(|page| _ = pages.insert(*page));
            }
            let some = owned.extents.range(from..).take(EXTENTS_PER_LOOK);
            next = some.fold(None, |_, extent| {
                if let Some(e) = state.extents.get(*extent as usize) {
                    let used = (0..self.geometry.extent_pages()).filter(|i| is_used(e, *i));
                    used.for_each(|i| _ = pages.insert(self.geometry.page_at(*extent, i)));
                }
                Some(extent + 1)
            });
        }
        pages
    }

    /// True if the page is in use and belongs to the tree.
    pub fn is_used_by(&self, page: PageNo, tree: TreeId) -> bool {
        let state = self.state.lock();
        let Some(owned) = state.trees.get(&tree) else { return false };
        let Some((extent, index)) = self.geometry.extent_of(page) else { return false };
        owned.fragments.contains(&page)
            || (owned.extents.contains(&extent)
                && state.extents.get(extent as usize).is_some_and(|e| is_used(e, index)))
    }

    /// True if the page is in use: by a tree, or for the map itself.
    pub fn is_in_use(&self, page: PageNo) -> bool {
        let Some((extent, index)) = self.geometry.extent_of(page) else { return false };
        if extent.is_multiple_of(SEGMENT_EXTENTS) && index < self.geometry.segment_maps() {
            return true;
        }
        let state = self.state.lock();
        let of_extent = state.extents.get(extent as usize);
        of_extent.is_some_and(|e| e.state != ExtentState::Free && is_used(e, index))
    }

    /// The pages of an extent that are in use, one bit each; none if the extent is free or unknown.
    pub fn used_in(&self, extent: u32) -> Option<Bits> {
        let state = self.state.lock();
        let e = state.extents.get(extent as usize).filter(|e| e.state != ExtentState::Free)?;
        let mut used = self.all_pages();
        for (word, free) in used.iter_mut().zip(e.free.as_deref().copied().unwrap_or_default()) {
            *word &= !free;
        }
        Some(used)
    }

    /// Trees that own pages.
    pub fn trees(&self) -> Vec<TreeId> {
        self.state.lock().trees.keys().copied().collect()
    }

    /// Extents that can be allocated at once.
    pub fn ready(&self) -> usize {
        self.state.lock().ready.len()
    }

    /// Known extents.
    pub fn extents(&self) -> u32 {
        self.state.lock().extents.len() as u32
    }

    /// Adds `count` free extents with blocks behind the last one.
    pub fn grow(&self, count: u32) {
        let mut state = self.state.lock();
        for _ in 0..count {
            let extent = state.extents.len() as u32;
            state.extents.push(free_extent(0));
            state.ready.insert(extent);
        }
    }

    /// Adds extent 0 of a new segment.
    pub fn add_segment(&self) {
        let mut state = self.state.lock();
        let extent = state.extents.len() as u32;
        let owner = self.geometry.owners_index(extent);
        state.extents.push(self.fragment_extent(extent, 1, |index| index <= owner));
        state.list(extent);
    }

    fn fragment_extent(&self, _extent: u32, inc: u32, used: impl Fn(u32) -> bool) -> Extent {
        let mut bits = self.all_pages();
        let mut count = 0;
        for index in (0..self.geometry.extent_pages()).filter(|i| used(*i)) {
            let (word, mask) = bit(index);
            bits[word] &= !mask;
            count += 1;
        }
        let free = bits.iter().any(|w| *w != 0).then(|| Box::new(bits));
        Extent {
            tree: TreeId::ZERO,
            incarnation: inc,
            state: ExtentState::Fragments,
            used: count,
            free,
        }
    }

    /// Adds a fragment extent found at open, with the owners of its pages.
    pub fn load_fragments(&self, extent: u32, incarnation: u32, owners: &[TreeId]) {
        let used = |index: u32| {
            index <= self.geometry.owners_index(extent) || owners[index as usize] != TreeId::ZERO
        };
        let mut state = self.state.lock();
        state.extents.push(self.fragment_extent(extent, incarnation, used));
        state.list(extent);
        for index in self.geometry.owners_index(extent) + 1..self.geometry.extent_pages() {
            let tree = owners[index as usize];
            if tree != TreeId::ZERO {
                let page = self.geometry.page_at(extent, index);
                state.trees.entry(tree).or_default().fragments.insert(page);
            }
        }
    }

    /// Adds a tree's extent found at open.
    pub fn load_tree(&self, extent: u32, incarnation: u32, tree: TreeId, used: &Bits) {
        let mut free = self.all_pages();
        for (word, bits) in free.iter_mut().zip(used) {
            *word &= !bits;
        }
        let count = used.iter().map(|w| w.count_ones() as u16).sum();
        let free = free.iter().any(|w| *w != 0).then(|| Box::new(free));
        let mut state = self.state.lock();
        state.extents.push(Extent {
            tree,
            incarnation,
            state: ExtentState::Tree,
            used: count,
            free,
        });
        state.trees.entry(tree).or_default().extents.insert(extent);
        state.list(extent);
    }

    /// Adds a free extent found at open. Whether it has blocks is unknown.
    pub fn load_free(&self, extent: u32, incarnation: u32) {
        let mut state = self.state.lock();
        state.extents.push(free_extent(incarnation));
        state.punched.insert(extent);
        state.found.insert(extent);
    }

    /// Takes up to `max` of those, for a caller that punches them and then calls `punched`.
    pub fn take_found(&self, max: usize) -> Vec<u32> {
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(extent) = state.found.pop_first()
        {
            // The others are in use again.
            if state.punched.remove(&extent) {
                taken.push(extent);
            }
        }
        taken
    }

    /// One of them could not be examined yet.
    pub fn retry_found(&self, extent: u32) {
        let mut state = self.state.lock();
        state.punched.insert(extent);
        state.found.insert(extent);
    }

    /// A free extent without blocks, for a caller that backs it and then calls `backed`.
    pub fn take_punched(&self) -> Option<u32> {
        self.state.lock().punched.pop_first()
    }

    /// A freed extent lost its blocks, or the attempt to back it failed.
    pub fn punched(&self, extent: u32) {
        self.state.lock().punched.insert(extent);
    }

    /// An extent has blocks again.
    pub fn backed(&self, extent: u32) {
        self.state.lock().ready.insert(extent);
    }

    /// Takes up to `max` freed extents whose record is durable.
    pub fn take_pending(&self, durable: Lsn, max: usize) -> Vec<Pending> {
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        // A tree of a terabyte leaves a million of them: do not examine all.
        while taken.len() < max
            && let Some(p) = state.pending.pop_front_if(|p| durable > p.lsn)
        {
            taken.push(p);
        }
        taken
    }

    /// Puts one back that could not be completed.
    pub fn retry_pending(&self, pending: Pending) {
        self.state.lock().pending.push_back(pending);
    }

    /// While freed extents are not reusable yet: an upper bound of the LSNs of their records.
    pub fn newest_pending(&self) -> Option<Lsn> {
        let state = self.state.lock();
        (!state.pending.is_empty()).then_some(state.newest_pending)
    }

    /// Pages that belong to a tree: single ones, and all of its extents, free pages included.
    pub fn pages_of(&self, tree: TreeId) -> u64 {
        let state = self.state.lock();
        let Some(space) = state.trees.get(&tree) else { return 0 };
        let in_extents = space.extents.len() as u64 * u64::from(self.geometry.extent_pages());
        space.fragments.len() as u64 + in_extents
    }

    /// Figures, from one pass over the extents.
    pub fn stats(&self) -> SpaceStats {
        let state = self.state.lock();
        let mut stats = SpaceStats {
            extents: state.extents.len() as u32,
            segments: (state.extents.len() as u32)
                .div_ceil(evenkeel_format::space::SEGMENT_EXTENTS),
            free_extents: (state.ready.len() + state.punched.len()) as u32,
            punched_extents: state.punched.len() as u32,
            pending_extents: state.pending.len() as u32,
            trees: state.trees.len(),
            ..SpaceStats::default()
        };
        for (number, e) in state.extents.iter().enumerate() {
            stats.pages += u64::from(e.used);
            if e.state == ExtentState::Fragments {
                stats.fragment_extents += 1;
                let own = self.geometry.owners_index(number as u32) + 1;
                stats.pages = stats.pages.saturating_sub(u64::from(own));
            }
        }
        stats
    }
}

fn free_extent(incarnation: u32) -> Extent {
    Extent { tree: TreeId::ZERO, incarnation, state: ExtentState::Free, used: 0, free: None }
}
