//! Mini-transactions: the only way to change a page. All pages stay latched until one record is
//! appended, so a crash keeps all of the change or nothing.
//!
//! Order of the final step (B3): the map pages are latched in ascending order (after all tree
//! pages; no thread waits for a tree page while it holds a map page, so there is no cycle), the
//! pages join the bucket of the present log end, the record is appended, page LSNs are set, latches
//! are released. From the bucket on nothing waits and nothing fails (B2).

use crate::pool::frames::{ExclusiveGuard, Frame, Pin};
use crate::space::{Change, Pick};
use crate::{Access, PageRead, Pages};
use evenkeel_base::{Error, Lsn, PageNo, Result, TreeId};
use evenkeel_format::page::{self, HEADER_BYTES, PageKind};
use evenkeel_format::record::{PageOp, RecordKind, put_page_op};
use evenkeel_format::space::{self, ExtentState, op};
use evenkeel_log::Reserved;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

/// Frames reserved besides the requested ones: for a map page and an owners page.
const SPACE_FRAMES: usize = 2;
/// Extents kept ready for allocations under latches.
const READY_EXTENTS: usize = 4;

struct Slot<'a> {
    guard: ExclusiveGuard<'a>,
    page: PageNo,
    changed: bool,
    fresh: bool,
    freed: bool,
}

/// A mini-transaction. Dropping it without commit reverts its allocations; existing pages must then
/// be unchanged.
pub struct Mtr<'a> {
    pages: &'a Pages,
    slots: Vec<Slot<'a>>,
    credits: usize,
    ops: Vec<u8>,
    changes: Vec<Change>,
    pins: Vec<(PageNo, Pin<'a>)>,
}

impl Pages {
    /// Begins a mini-transaction that may need `frames` frames for pages that it allocates or reads
    /// in. It may wait for them (free_frame), so the caller holds no latch. With more than one
    /// frame it also ensures that extents are ready for allocation.
    ///
    /// # Errors
    /// `WritesStopped`.
    pub fn begin(&self, frames: usize) -> Result<Mtr<'_>> {
        self.rt.health.check_writable()?;
        let credits = if frames > 1 { frames + SPACE_FRAMES } else { frames };
        if frames > 1 {
            // A full disk is reported by the allocation that finds no extent, not here.
            drop(self.prepare_extents(READY_EXTENTS));
        }
        self.take_credits(credits)?;
        Ok(self.new_mtr(credits))
    }

    pub(crate) fn new_mtr(&self, credits: usize) -> Mtr<'_> {
        Mtr {
            pages: self,
            slots: Vec::with_capacity(2),
            credits,
            ops: Vec::new(),
            changes: Vec::new(),
            pins: Vec::new(),
        }
    }

    /// Adds a changed frame to the bucket of the log end, if it was clean.
    pub(crate) fn join_dirty(&self, facts: &Frame, index: u32, end: Lsn, tree: TreeId) {
        if facts.dirty.load(Acquire) == 0 {
            let bucket = self.dirty.bucket_of(end);
            facts.tree.store(tree.0, Relaxed);
            facts.dirty.store(bucket + 1, Release);
            if self.dirty.join_bucket(bucket, end, index, tree) {
                self.clean_event.notify();
            }
        }
    }

    /// A page leaves a bucket: when the oldest change goes, the checkpoint may advance.
    pub(crate) fn left_bucket(&self, bucket: u64, tree: TreeId) {
        if self.dirty.leave(bucket, tree)
            && let Some(log) = self.log_if_attached()
        {
            log.pressure().notify();
        }
    }

    /// Drops the unwritten changes of a latched frame whose page no longer has an owner.
    pub(crate) fn drop_dirty(&self, facts: &Frame) {
        if let Some(bucket) = facts.dirty.swap(0, AcqRel).checked_sub(1) {
            self.left_bucket(bucket, TreeId(facts.tree.load(Relaxed)));
        }
    }
}

impl<'a> Mtr<'a> {
    fn slot_of(&self, page: PageNo) -> Option<usize> {
        self.slots.iter().position(|slot| slot.page == page)
    }

    fn push(&mut self, guard: ExclusiveGuard<'a>, page: PageNo) -> usize {
        self.slots.push(Slot { guard, page, changed: false, fresh: false, freed: false });
        self.slots.len() - 1
    }

    /// Latches a page for writing and returns its slot (the existing one if it has it already).
    ///
    /// # Errors
    /// As `Pages::read`.
    pub fn write(&mut self, page: PageNo) -> Result<usize> {
        if let Some(slot) = self.slot_of(page) {
            return Ok(slot);
        }
        crate::pool::visits::count();
        let pages = self.pages;
        pages.rt.step();
        loop {
            if let Some(index) = pages.translation.get(page) {
                let guard = pages.frames.exclusive(index);
                if guard.facts().holds(page) {
                    guard.facts().touch();
                    return Ok(self.push(guard, page));
                }
            } else if let Some(guard) = pages.load(page, &mut self.credits, Access::Normal)? {
                return Ok(self.push(guard, page));
            }
        }
    }

    /// Turns a read latch into a write latch. The flag is false if others may have changed the page
    /// in between (the caller then reads it again).
    ///
    /// # Errors
    /// As `write`.
    pub fn read_to_write(&mut self, read: PageRead<'a>) -> Result<(usize, bool)> {
        let (page, version) = (read.page_no(), read.version());
        match read.guard.try_upgrade() {
            Ok(guard) => Ok((self.push(guard, page), true)),
            Err(guard) => {
                drop(guard);
                let slot = self.write(page)?;
                let unchanged = self.slots[slot].guard.facts().version.load(Acquire) == version;
                Ok((slot, unchanged))
            }
        }
    }

    /// Allocates a page for `tree`, near `near` if possible: zero payload, latched, formatted by
    /// this mini-transaction's record.
    ///
    /// # Errors
    /// `DiskFull`, `SpaceLimit`, and those of reading a map page. Drop the mini-transaction then.
    pub fn alloc(&mut self, tree: TreeId, near: Option<PageNo>) -> Result<usize> {
        let pages = self.pages;
        let mut skipped: Vec<PageNo> = Vec::new();
        let mut private: Vec<u32> = Vec::new();
        private.extend(self.changes.iter().filter_map(|c| match c {
            Change::Take { extent, .. } => Some(*extent),
            _ => None,
        }));
        loop {
            let skip = |page: PageNo| skipped.contains(&page);
            let Some(pick) = pages.space.pick(tree, near, &private, &skip) else {
                pages.prepare_extents(1)?;
                continue;
            };
            self.note_pick(&pick, tree, &mut private)?;
            if let Some(guard) = self.frame_for(pick.page, false)? {
                let slot = self.push(guard, pick.page);
                self.format_slot(slot, PageKind::Tree, tree, pick.incarnation);
                return Ok(slot);
            }
            // Another thread still holds the freed page's frame: use a different page.
            let change = self.changes.len() - 1;
            pages.space.abort(&self.changes.split_off(change));
            skipped.push(pick.page);
        }
    }

    /// Records the map changes of a pick, and pins the map pages.
    fn note_pick(&mut self, pick: &Pick, tree: TreeId, private: &mut Vec<u32>) -> Result<()> {
        let Pick { page, incarnation, fragment, new_extent } = *pick;
        let state = if fragment { ExtentState::Fragments } else { ExtentState::Tree };
        if let Some(extent) = new_extent {
            let tree = if fragment { TreeId::ZERO } else { tree };
            private.push(extent);
            self.changes.push(Change::Take { extent, state, tree, incarnation });
        }
        // Recorded before anything can fail, so that an abort reverts the pick.
        self.changes.push(match fragment {
            true => Change::Owner { page, owner: tree, tree },
            false => Change::Used { page, used: true },
        });
        let Some(extent) = self.pages.geometry.extent_of(page).map(|(e, _)| e) else {
            return Err(Error::internal("a pick beyond the space"));
        };
        if new_extent.is_some() || !fragment {
            self.pin(self.pages.geometry.map_of(extent).0)?;
        }
        if fragment {
            let owners = self.pages.geometry.owners_page(extent);
            if new_extent.is_none() {
                self.pin(owners)?;
            } else if let Some(guard) = self.frame_for(owners, true)? {
                let slot = self.push(guard, owners);
                self.format_slot(slot, PageKind::Owners, TreeId::ZERO, incarnation);
            }
        }
        Ok(())
    }

    /// A frame for a page whose content does not matter. `None` if another thread has the page
    /// latched. With `wait` it waits: only a late reader can hold a page of a new extent, and that
    /// reader holds nothing else.
    fn frame_for(&mut self, page: PageNo, wait: bool) -> Result<Option<ExclusiveGuard<'a>>> {
        let pages = self.pages;
        loop {
            if let Some(index) = pages.translation.get(page) {
                let guard = match wait {
                    true => Some(pages.frames.exclusive(index)),
                    false => pages.frames.try_exclusive(index),
                };
                match guard {
                    Some(guard) if guard.facts().holds(page) => return Ok(Some(guard)),
                    None => return Ok(None),
                    Some(_) => continue,
                }
            }
            if self.credits == 0 {
                pages.take_credits(1)?;
            } else {
                self.credits -= 1;
            }
            let mut guard = pages.take_frame()?;
            guard.set_page(Some(page));
            if pages.translation.install(page, guard.index()).is_ok() {
                return Ok(Some(guard));
            }
            guard.set_page(None);
            pages.release_frame(guard);
        }
    }

    fn format_slot(&mut self, slot: usize, kind: PageKind, tree: TreeId, incarnation: u32) {
        let payload = space::encode_format(kind, tree, incarnation);
        let s = &mut self.slots[slot];
        (s.changed, s.fresh) = (true, true);
        s.guard.facts().fresh.store(true, Relaxed);
        s.guard.facts().touch();
        apply(self.pages, &mut s.guard, s.page, op::FORMAT, &payload);
        put_page_op(&mut self.ops, PageOp { page: s.page, op: op::FORMAT, payload: &payload });
    }

    /// Keeps a map page in memory until commit.
    fn pin(&mut self, page: PageNo) -> Result<()> {
        if self.slot_of(page).is_some() || self.pins.iter().any(|(p, _)| *p == page) {
            return Ok(());
        }
        let pages = self.pages;
        let guard = loop {
            if let Some(index) = pages.translation.get(page) {
                let guard = pages.frames.shared(index);
                if guard.facts().holds(page) {
                    guard.facts().touch();
                    break guard;
                }
            } else if let Some(guard) = pages.load(page, &mut self.credits, Access::Normal)? {
                break guard.downgrade();
            }
        };
        self.pins.push((page, Pin::new(&guard)));
        Ok(())
    }

    /// Frees the page of a slot. It may be allocated again as soon as this commits.
    ///
    /// # Errors
    /// `SpaceDamaged` if it is free already; those of reading a map page.
    pub fn free(&mut self, slot: usize) -> Result<()> {
        let page = self.slots[slot].page;
        let tree = page::tree(self.slots[slot].guard.bytes());
        let change = self.pages.space.freeing(page, tree)?;
        let Some((extent, _)) = self.pages.geometry.extent_of(page) else {
            return Err(Error::internal("a page beyond the space"));
        };
        self.pin(match change {
            Change::Owner { .. } => self.pages.geometry.owners_page(extent),
            _ => self.pages.geometry.map_of(extent).0,
        })?;
        self.changes.push(change);
        self.slots[slot].freed = true;
        Ok(())
    }

    /// Logs a change of the map without a page of its own (DROP, new segments).
    pub(crate) fn change(&mut self, change: Change) -> Result<()> {
        self.pin(target(self.pages, &change).0)?;
        self.changes.push(change);
        Ok(())
    }

    /// The page number of a slot.
    pub fn page_no(&self, slot: usize) -> PageNo {
        self.slots[slot].page
    }

    /// The tree that owns the page of a slot.
    pub fn tree(&self, slot: usize) -> TreeId {
        page::tree(self.slots[slot].guard.bytes())
    }

    /// The LSN of the page of a slot.
    pub fn lsn(&self, slot: usize) -> Lsn {
        page::lsn(self.slots[slot].guard.bytes())
    }

    /// The payload of a slot.
    pub fn page(&self, slot: usize) -> &[u8] {
        &self.slots[slot].guard.bytes()[HEADER_BYTES..]
    }

    /// The payload of a slot, to be changed exactly as the queued ops describe. From here on the
    /// mini-transaction must be committed.
    pub fn page_mut(&mut self, slot: usize) -> &mut [u8] {
        let slot = &mut self.slots[slot];
        slot.changed = true;
        &mut slot.guard.bytes_mut()[HEADER_BYTES..]
    }

    /// Gives a page allocated by this mini-transaction a payload that is not logged (E3). The page
    /// must be durable ([`Pages::flush_pages`]) before a record makes it reachable and names it.
    pub fn write_unlogged(&mut self, slot: usize, payload: &[u8]) -> Result<()> {
        let slot = &mut self.slots[slot];
        if !slot.fresh || payload.len() != slot.guard.bytes().len() - HEADER_BYTES {
            return Err(Error::internal("an unlogged write of a page that is not new"));
        }
        slot.guard.bytes_mut()[HEADER_BYTES..].copy_from_slice(payload);
        Ok(())
    }

    /// Names unlogged pages, in ascending ranges, in this mini-transaction's record: the record of
    /// the page of a slot from which they are reached, or an earlier one.
    pub fn name_unlogged(&mut self, slot: usize, ranges: &[Range<u64>]) {
        let slot = &mut self.slots[slot];
        slot.changed = true;
        let payload = space::encode_unlogged(ranges);
        put_page_op(&mut self.ops, PageOp { page: slot.page, op: op::UNLOGGED, payload: &payload });
    }

    /// Queues a redo op (from 32 on) for the page of a slot.
    pub fn op(&mut self, slot: usize, op: u8, payload: &[u8]) {
        debug_assert!(op >= 32, "ops below 32 belong to the page space");
        let slot = &mut self.slots[slot];
        slot.changed = true;
        put_page_op(&mut self.ops, PageOp { page: slot.page, op, payload });
    }

    /// Appends one PAGE record with all ops, and releases the pages. Returns its LSN; the log end
    /// if there was nothing to log. `reserved` holds the bytes of the ops and [`SPACE_LOG_BYTES`]
    /// per page allocated or freed.
    ///
    /// [`SPACE_LOG_BYTES`]: crate::SPACE_LOG_BYTES
    pub fn commit(mut self, reserved: &mut Reserved) -> Lsn {
        let maps = self.apply_changes();
        let ops = std::mem::take(&mut self.ops);
        self.finish(maps, |log, changed| match changed {
            true => log.append(reserved, RecordKind::Page, &[&ops]),
            false => log.end(),
        })
    }

    /// As `commit`, with a record of the caller's that itself describes the change of the pages
    /// (ROW, REVERT); `f` runs with its LSN while the pages are still latched. No ops are queued.
    pub fn commit_record<R>(
        mut self,
        reserved: &mut Reserved,
        kind: RecordKind,
        body: &[&[u8]],
        f: impl FnOnce(Lsn) -> R,
    ) -> (Lsn, R) {
        debug_assert!(self.ops.is_empty() && self.changes.is_empty(), "ops need a PAGE record");
        let mut result = None;
        let lsn = self.finish(Vec::new(), |log, _| {
            let lsn = log.append(reserved, kind, body);
            result = Some(f(lsn));
            lsn
        });
        (lsn, result.expect("the record was appended"))
    }

    /// Latches the map pages, applies the changes of the map and queues their ops.
    fn apply_changes(&mut self) -> Vec<(PageNo, ExclusiveGuard<'a>)> {
        if self.changes.is_empty() {
            return Vec::new();
        }
        let mut private = Vec::new();
        for change in &self.changes {
            if let Change::Take { extent, .. } = change {
                private.push(*extent);
            }
        }
        self.pages.space.close_empty(&mut self.changes, &private);
        self.pins.sort_by_key(|(page, _)| *page);
        let mut maps: Vec<_> = self.pins.iter().map(|(p, pin)| (*p, pin.exclusive())).collect();
        for at in 0..self.changes.len() {
            let (page, op, payload) = target(self.pages, &self.changes[at]);
            let guard = match maps.iter_mut().find(|(p, _)| *p == page) {
                Some((_, guard)) => Some(guard),
                None => self.slots.iter_mut().find(|s| s.page == page).map(|s| &mut s.guard),
            };
            let Some(guard) = guard else {
                let error = Error::internal("a map page was not pinned").with("page", page);
                self.pages.rt.health.fail(error);
                continue;
            };
            apply(self.pages, guard, page, op, &payload);
            put_page_op(&mut self.ops, PageOp { page, op, payload: &payload });
        }
        maps
    }

    fn finish(
        &mut self,
        mut maps: Vec<(PageNo, ExclusiveGuard<'a>)>,
        append: impl FnOnce(&Arc<evenkeel_log::Log>, bool) -> Lsn,
    ) -> Lsn {
        let pages = self.pages;
        let mut slots = std::mem::take(&mut self.slots);
        let log = pages.log().expect("a mini-transaction begins after attach_log");
        // The version of a freed page advances too, so that holders of its token notice.
        let changed = || slots.iter().filter(|s| s.changed || s.freed).map(|s| &s.guard);
        let any = changed().next().is_some() || !maps.is_empty();
        let end = log.end();
        for guard in changed().chain(maps.iter().map(|(_, guard)| guard)) {
            let tree = page::tree(guard.bytes());
            pages.join_dirty(guard.facts(), guard.index(), end, tree);
        }
        let lsn = append(log, any);
        let changed = slots.iter_mut().filter(|s| s.changed || s.freed).map(|s| &mut s.guard);
        for guard in changed.chain(maps.iter_mut().map(|(_, guard)| guard)) {
            page::set_lsn(guard.bytes_mut(), lsn);
            guard.facts().version.store(lsn.0, Release);
        }
        if self.changes.is_empty() {
            return lsn;
        }
        pages.space.commit(&self.changes, lsn);
        if self.changes.iter().any(|c| matches!(c, Change::Give { .. })) {
            pages.reclaim_event().notify();
        }
        self.changes.clear();
        lsn
    }
}

impl Drop for Mtr<'_> {
    fn drop(&mut self) {
        let pages = self.pages;
        for slot in std::mem::take(&mut self.slots) {
            if slot.fresh {
                // The page has no owner again; a write of its former content may be under way.
                pages.drop_dirty(slot.guard.facts());
                if !slot.guard.facts().writing.load(Acquire) {
                    pages.release_frame(slot.guard);
                }
            } else if slot.changed && !std::thread::panicking() {
                let error = Error::internal("a changed page was not committed");
                pages.rt.health.fail(error.with("page", slot.page));
            }
        }
        if !self.changes.is_empty() {
            pages.space.abort(&std::mem::take(&mut self.changes));
        }
        self.pins.clear();
        pages.free_list.return_credits(self.credits);
    }
}

fn apply(pages: &Pages, guard: &mut ExclusiveGuard<'_>, page: PageNo, op: u8, payload: &[u8]) {
    // A page being formatted is not read: its frame may be untouched, and reading it first makes
    // the system map it twice.
    let lsn = (op != op::FORMAT).then(|| page::lsn(guard.bytes()));
    if let Err(error) = pages.geometry.apply(op, payload, page, guard.bytes_mut()) {
        pages.rt.health.fail(error);
    }
    if let Some(lsn) = lsn {
        page::set_lsn(guard.bytes_mut(), lsn);
    }
}

/// The page that a change of the map affects, and the op.
fn target(pages: &Pages, change: &Change) -> (PageNo, u8, Vec<u8>) {
    let g = &pages.geometry;
    // Picks come from the map, so they lie inside the space.
    let place = |page| g.extent_of(page).unwrap_or((0, 0));
    match *change {
        Change::Take { extent, state, tree, incarnation } => {
            let (map, slot) = g.map_of(extent);
            (map, op::EXTENT, space::encode_extent(slot, state, tree, incarnation).to_vec())
        }
        Change::Give { extent, incarnation } => {
            let (map, slot) = g.map_of(extent);
            let (state, tree) = (ExtentState::Free, TreeId::ZERO);
            (map, op::EXTENT, space::encode_extent(slot, state, tree, incarnation).to_vec())
        }
        Change::Used { page, used } => {
            let (extent, index) = place(page);
            let (map, slot) = g.map_of(extent);
            (map, op::USED, space::encode_used(slot, index as u16, used).to_vec())
        }
        Change::Owner { page, owner, .. } => {
            let (extent, index) = place(page);
            (g.owners_page(extent), op::OWNER, space::encode_owner(index as u16, owner).to_vec())
        }
        Change::Segments(count) => (PageNo(0), op::SEGMENTS, count.to_le_bytes().to_vec()),
    }
}
