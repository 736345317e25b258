//! Growth and shrinkage of the page space: segment files, extents with blocks, DROP, punching.

use crate::space::Change;
use crate::space::files::{self, DIRECTORY};
use crate::{Access, Pages, SPACE_LOG_BYTES, SpaceStats};
use evenkeel_base::{Beat, Cause, Code, Error, Result, TreeId};
use evenkeel_format::page;
use evenkeel_format::space::{ExtentState, MAX_SEGMENTS, SEGMENT_EXTENTS};
use evenkeel_io::{AlignedBuf, Event};
use evenkeel_log::Share;
use evenkeel_sched::Class;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

/// A file grows by this share of the space, between 1 and `GROW_MAX` extents.
const GROW_SHARE: u32 = 8;
const GROW_MAX: u32 = 64;
/// Extents one reclaim beat finishes.
const RECLAIM_EXTENTS: usize = 8;

impl Pages {
    /// Ensures that `want` extents can be allocated.
    ///
    /// # Errors
    /// `DiskFull` (nothing is lost; the next operation tries again), `SpaceLimit`.
    pub(crate) fn prepare_extents(&self, want: usize) -> Result<()> {
        if self.space.ready() >= want {
            return Ok(());
        }
        let _growing = self.space.growth.latch.lock(&self.rt, Cause::DeviceSlow);
        while self.space.ready() < want {
            self.rt.health.check_writable()?;
            match self.space.take_punched() {
                Some(extent) => match self.files.allocate(extent, 1) {
                    Ok(()) => self.space.backed(extent),
                    Err(error) => {
                        self.space.punched(extent);
                        return Err(error);
                    }
                },
                None => self.grow_file()?,
            }
        }
        Ok(())
    }

    fn grow_file(&self) -> Result<()> {
        let extents = self.space.extents();
        if extents.is_multiple_of(SEGMENT_EXTENTS) {
            return self.add_segment(extents / SEGMENT_EXTENTS);
        }
        let left = SEGMENT_EXTENTS - extents % SEGMENT_EXTENTS;
        let step = (extents / GROW_SHARE).clamp(1, GROW_MAX).min(left);
        let grown = match self.files.allocate(extents, step) {
            Err(e) if e.code().is_shortage() && step > 1 => {
                self.files.allocate(extents, 1).map(|()| 1)
            }
            other => other.map(|()| step),
        };
        self.space.grow(grown?);
        Ok(())
    }

    /// Makes a segment file with its map pages and syncs it. The record that counts it comes after,
    /// so a file without a record is simply made again.
    pub(crate) fn create_segment(&self, segment: u32) -> Result<()> {
        let file = self.files.open(segment, true)?;
        file.allocate(0, evenkeel_format::space::EXTENT_BYTES)?;
        let images = self.geometry.new_segment(segment);
        let size = self.page_size();
        let mut buf = AlignedBuf::new(images.len() * size);
        for (at, (_, image)) in images.iter().enumerate() {
            let place = &mut buf[at * size..(at + 1) * size];
            place.copy_from_slice(image);
            page::seal(place, self.rt.database());
        }
        file.write_at(&buf, 0)?;
        file.sync().map_err(|e| self.rt.health.fail(e))?;
        self.rt.env.sync_dir(DIRECTORY).map_err(|e| self.rt.health.fail(e))?;
        self.files.enter(segment, file);
        Ok(())
    }

    /// # Errors
    /// `SpaceLimit` for a segment beyond the last one.
    pub(crate) fn check_segment(&self, segment: u32) -> Result<()> {
        if segment < MAX_SEGMENTS {
            return Ok(());
        }
        Err(Error::new(Code::SpaceLimit).with("segments", segment).with("limit", MAX_SEGMENTS))
    }

    fn add_segment(&self, segment: u32) -> Result<()> {
        self.check_segment(segment)?;
        self.create_segment(segment)?;
        // The system's share, because an allocation with latched pages may be waiting for this.
        let mut reserved = self.log()?.reserve(SPACE_LOG_BYTES, Share::System)?;
        self.take_credits(1)?;
        let mut mtr = self.new_mtr(1);
        mtr.change(Change::Segments(segment + 1))?;
        mtr.commit(&mut reserved);
        self.space.add_segment();
        Ok(())
    }

    /// Opens the segment files that exist; the map determines later how many count.
    pub(crate) fn open_segments(&self) -> Result<()> {
        for (number, name) in self.rt.env.list(DIRECTORY)?.iter().enumerate() {
            let segment = number as u32;
            if files::path(segment) != format!("{DIRECTORY}/{name}") {
                break;
            }
            self.files.enter(segment, self.files.open(segment, false)?);
        }
        if self.files.segments() == 0 {
            return Err(Error::new(Code::FileMissing).with("file", files::path(0)));
        }
        Ok(())
    }

    /// Builds the map in memory from the map pages and owners pages, after redo: an open that fails
    /// here has written nothing. `attach_log` calls it unless it was called.
    ///
    /// # Errors
    /// `SpaceDamaged` and those of reading pages.
    pub fn load_space(&self) -> Result<()> {
        if self.space_loaded.get().is_some() {
            return Ok(());
        }
        let segments = {
            let first = self.read(evenkeel_base::PageNo(0), Access::Normal)?;
            self.geometry.segments(&first)?
        };
        if segments > self.files.segments() {
            let file = files::path(self.files.segments());
            return Err(Error::new(Code::FileMissing).with("file", file));
        }
        let in_file = self.files.extents(segments - 1)?;
        for segment in 0..segments {
            let first = segment * SEGMENT_EXTENTS;
            let mut count = SEGMENT_EXTENTS;
            if segment + 1 == segments {
                count = self.described_extents(first)?.max(in_file);
            }
            for extent in first..first + count {
                self.load_extent(extent)?;
            }
        }
        self.space_loaded.get_or_init(|| ());
        Ok(())
    }

    /// Extents of a segment up to the last one in use by the map.
    fn described_extents(&self, first: u32) -> Result<u32> {
        let mut count = 1;
        for extent in first..first + SEGMENT_EXTENTS {
            let (map, slot) = self.geometry.map_of(extent);
            let page = self.read(map, Access::Normal)?;
            if self.geometry.descriptor(&page, slot)?.state != ExtentState::Free {
                count = extent - first + 1;
            }
        }
        Ok(count)
    }

    fn load_extent(&self, extent: u32) -> Result<()> {
        let (map, slot) = self.geometry.map_of(extent);
        let d = self.geometry.descriptor(&self.read(map, Access::Normal)?, slot)?;
        match d.state {
            ExtentState::Free => self.space.load_free(extent, d.incarnation),
            ExtentState::Tree => {
                self.space.load_tree(extent, d.incarnation, d.tree, &d.used);
            }
            ExtentState::Fragments => {
                let page = self.read(self.geometry.owners_page(extent), Access::UseOnce)?;
                let owners: Result<Vec<TreeId>> = (0..self.geometry.extent_pages())
                    .map(|index| self.geometry.owner(&page, index))
                    .collect();
                self.space.load_fragments(extent, d.incarnation, &owners?);
            }
        }
        Ok(())
    }

    /// Frees all pages of a tree in O(extents), without touching its pages. May be repeated after a
    /// crash. The tree must have no users any more.
    ///
    /// # Errors
    /// Those of reserving log space, frames and reading map pages.
    pub fn free_tree(&self, tree: TreeId) -> Result<()> {
        let (fragments, extents) = self.space.of_tree(tree);
        let mut changes: Vec<(evenkeel_base::PageNo, Change)> = Vec::new();
        for page in fragments {
            let Some((extent, _)) = self.geometry.extent_of(page) else { continue };
            let change = Change::Owner { page, owner: TreeId::ZERO, tree };
            changes.push((self.geometry.owners_page(extent), change));
        }
        changes.sort_by_key(|(page, _)| *page);
        for (extent, incarnation) in extents {
            changes.push((self.geometry.map_of(extent).0, Change::Give { extent, incarnation }));
        }
        for group in changes.chunk_by(|a, b| a.0 == b.0) {
            let log = self.log()?;
            let mut reserved = log.reserve(group.len() * SPACE_LOG_BYTES, Share::User)?;
            let mut mtr = self.begin(1)?;
            for (_, change) in group {
                mtr.change(*change)?;
            }
            mtr.commit(&mut reserved);
        }
        Ok(())
    }

    /// Trees that own pages: after a crash, those that the catalog does not contain are freed.
    pub fn trees(&self) -> Vec<TreeId> {
        self.space.trees()
    }

    /// The pages of a tree that are in use. For checks.
    pub fn used_by(&self, tree: TreeId) -> crate::PageSet {
        self.space.used_by(tree)
    }

    /// True if the page is in use and belongs to the tree.
    pub fn is_used_by(&self, page: evenkeel_base::PageNo, tree: TreeId) -> bool {
        self.space.is_used_by(page, tree)
    }

    /// Figures of the page space.
    pub fn space_stats(&self) -> SpaceStats {
        self.space.stats()
    }

    /// Bytes of the pages that belong to a tree, those of its extents that are free included.
    pub fn space_bytes_of(&self, tree: TreeId) -> u64 {
        self.space.pages_of(tree) * self.page_size() as u64
    }

    /// One step of freeing extents (E2): waits for their records to be durable, drops their frames,
    /// punches their blocks. Extents that were free at the open are punched, too, because an extent
    /// freed just before a crash still has its blocks.
    ///
    /// # Errors
    /// Those of syncing the log.
    pub fn reclaim_beat(&self) -> Result<Beat> {
        self.rt.step();
        let seen = self.free_list.freed.now();
        let Some(newest) = self.space.newest_pending() else { return Ok(self.punch_found(seen)) };
        let log = self.log()?;
        log.wait_durable(newest)?;
        let mut busy = false;
        for pending in self.space.take_pending(log.durable(), RECLAIM_EXTENTS) {
            if self.drop_frames(pending.extent) {
                self.punch(pending.extent);
            } else {
                busy = true;
                self.space.retry_pending(pending);
            }
        }
        self.await_frames(busy, seen);
        Ok(Beat::More)
    }

    fn punch_found(&self, seen: u64) -> Beat {
        let found = self.space.take_found(RECLAIM_EXTENTS);
        let mut busy = false;
        for extent in &found {
            if self.drop_frames(*extent) {
                self.punch(*extent);
            } else {
                busy = true;
                self.space.retry_found(*extent);
            }
        }
        self.await_frames(busy, seen);
        if found.is_empty() { Beat::Idle } else { Beat::More }
    }

    fn await_frames(&self, busy: bool, seen: u64) {
        if busy {
            // A write of one of its pages is under way and notifies at its end.
            let time = Some(Duration::from_millis(100));
            self.rt.wait(&self.free_list.freed, seen, time, Cause::Idle);
        }
    }

    /// Wakes the thread that drives `reclaim_beat`.
    pub fn reclaim_event(&self) -> Arc<Event> {
        self.space.growth.reclaim.clone()
    }

    /// Removes every page of a freed extent from the pool, unwritten. False: one is still in use.
    fn drop_frames(&self, extent: u32) -> bool {
        (0..self.geometry.extent_pages()).all(|index| {
            let page = self.geometry.page_at(extent, index);
            let Some(frame) = self.translation.get(page) else { return true };
            let Some(guard) = self.frames.try_exclusive(frame) else { return false };
            let facts = guard.facts();
            if !facts.holds(page) {
                return true;
            }
            if facts.writing.load(Acquire) || facts.pins.load(Acquire) != 0 {
                return false;
            }
            self.drop_dirty(facts);
            self.release_frame(guard);
            true
        })
    }

    fn punch(&self, extent: u32) {
        let bytes = evenkeel_format::space::EXTENT_BYTES;
        self.sched.ask(Class::Maintenance, bytes, false);
        self.rt.give_back(|| {
            if let Err(error) = self.files.punch(extent) {
                // The blocks stay; the extent is as reusable as without them.
                log::warn!("extent {extent}: its blocks cannot be given back: {error}");
            }
            self.space.punched(extent);
        });
    }
}
