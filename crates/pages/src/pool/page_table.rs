//! The page table: page number -> frame, directly indexed. Each segment file has an array of
//! leaves, each leaf 64 pages. Lookups take no lock. Leaves come from chunks that are never freed
//! or resized, and an empty leaf is reused for other pages. So a lookup through a stale leaf may
//! return a wrong frame or none; callers compare the page number after latching, and confirm a miss
//! in [`install`], which runs under the mutex.
//!
//! Invariant: entries change only under the mutex; at most one frame holds a page.
//!
//! [`install`]: Translation::install

use crate::pool::segmented_vec::SegmentedVec;
use evenkeel_base::{PageNo, sync::Mutex};
use evenkeel_format::space::{Geometry, MAX_SEGMENTS};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Segments of the first array: others come as they are used.
const FIRST_SEGMENTS: usize = 64;
const LEAF_PAGES: usize = 64;
const CHUNK_LEAVES: usize = 64;

type Words = Box<[AtomicU32]>;

fn words(count: usize) -> Words {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

fn no_words(chunks: usize) -> Box<[OnceLock<Words>]> {
    (0..chunks).map(|_| OnceLock::new()).collect()
}

pub(crate) struct PageTable {
    segment_pages: u64,
    /// Per segment: leaf number + 1 for each 64 pages.
    segments: SegmentedVec<Box<[OnceLock<Words>]>>,
    /// Leaves: frame + 1 for each page.
    chunks: SegmentedVec<Box<[OnceLock<Words>]>>,
    leaves: Mutex<Leaves>,
}

#[derive(Default)]
struct Leaves {
    /// Pages present in each leaf.
    present: Vec<u8>,
    empty: Vec<u32>,
}

impl PageTable {
    pub fn new(geometry: Geometry, frames: usize) -> PageTable {
        let chunks = frames.div_ceil(CHUNK_LEAVES);
        PageTable {
            segment_pages: geometry.segment_pages(),
            segments: SegmentedVec::new(FIRST_SEGMENTS, no_words(FIRST_SEGMENTS)),
            chunks: SegmentedVec::new(chunks, no_words(chunks)),
            leaves: Mutex::new(Leaves::default()),
        }
    }

    /// Makes room for the pages of this many frames, before the first of them is used.
    pub fn grow(&self, frames: usize) {
        self.chunks.grow(frames.div_ceil(CHUNK_LEAVES), no_words);
    }

    /// The leaf numbers of a segment, if it has had a page in a frame.
    fn segment(&self, segment: usize) -> Option<&Words> {
        let (segments, at) = self.segments.find(segment)?;
        segments.get(at)?.get()
    }

    fn chunk(&self, leaf: usize) -> Option<&OnceLock<Words>> {
        let (segment, at) = self.chunks.find(leaf / CHUNK_LEAVES)?;
        segment.get(at)
    }

    fn place(&self, page: PageNo) -> (usize, usize, usize) {
        let within = (page.0 % self.segment_pages) as usize;
        ((page.0 / self.segment_pages) as usize, within / LEAF_PAGES, within % LEAF_PAGES)
    }

    /// The entry of page `at` of leaf number `leaf`; the chunk exists once the leaf was assigned.
    fn entry(&self, leaf: u32, at: usize) -> Option<&AtomicU32> {
        let leaf = leaf as usize;
        let chunk = self.chunk(leaf)?.get()?;
        chunk.get(leaf % CHUNK_LEAVES * LEAF_PAGES + at)
    }

    /// The frame that probably holds `page`.
    pub fn get(&self, page: PageNo) -> Option<u32> {
        let (segment, leaf, at) = self.place(page);
        let leaf = self.segment(segment)?.get(leaf)?.load(Acquire).checked_sub(1)?;
        self.entry(leaf, at)?.load(Acquire).checked_sub(1)
    }

    /// Enters `frame` as the holder of `page`. # Errors: the frame that holds it already.
    pub fn install(&self, page: PageNo, frame: u32) -> Result<(), u32> {
        let (segment, leaf_at, at) = self.place(page);
        assert!(segment < MAX_SEGMENTS as usize, "page {page} lies behind the last segment");
        let mut leaves = self.leaves.lock();
        self.segments.grow(segment + 1, no_words);
        let Some((segments, within)) = self.segments.find(segment) else { return Err(frame) };
        let segment = segments[within]
            .get_or_init(|| words((self.segment_pages as usize).div_ceil(LEAF_PAGES)));
        let leaf = match segment[leaf_at].load(Acquire).checked_sub(1) {
            Some(leaf) => leaf,
            None => {
                let leaf = leaves.empty.pop().unwrap_or_else(|| {
                    leaves.present.push(0);
                    leaves.present.len() as u32 - 1
                });
                // A leaf is assigned only together with a page, so there are never more leaves than
                // frames, for which the chunks are sized.
                let Some(chunk) = self.chunk(leaf as usize) else { return Err(frame) };
                chunk.get_or_init(|| words(CHUNK_LEAVES * LEAF_PAGES));
                segment[leaf_at].store(leaf + 1, Release);
                leaf
            }
        };
        let Some(entry) = self.entry(leaf, at) else { return Err(frame) };
        if let Some(other) = entry.load(Acquire).checked_sub(1) {
            return Err(other);
        }
        entry.store(frame + 1, Release);
        leaves.present[leaf as usize] += 1;
        Ok(())
    }

    /// Removes the entry of a resident page.
    pub fn remove(&self, page: PageNo) {
        let (segment, leaf_at, at) = self.place(page);
        let Some(segment) = self.segment(segment) else { return };
        let mut leaves = self.leaves.lock();
        let Some(leaf) = segment[leaf_at].load(Acquire).checked_sub(1) else { return };
        let Some(entry) = self.entry(leaf, at) else { return };
        if entry.swap(0, AcqRel) == 0 {
            return;
        }
        leaves.present[leaf as usize] -= 1;
        if leaves.present[leaf as usize] == 0 {
            segment[leaf_at].store(0, Release);
            leaves.empty.push(leaf);
        }
    }

    /// Leaves in use.
    #[cfg(test)]
    pub fn leaves_in_use(&self) -> usize {
        let leaves = self.leaves.lock();
        leaves.present.len() - leaves.empty.len()
    }
}
