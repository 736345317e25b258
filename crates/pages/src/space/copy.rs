//! Copies of pages for a backup, while the pages change.
//!
//! Invariants. An image is whole: it has its checksum, or it comes from the pool, under the latch.
//! Its LSN is below the end of the log at the time of the copy, and it lacks no change below the
//! position at which page redo began at that time. A page that was not in use when it was looked at
//! comes out as zeros: a later use of it begins with a FORMAT record behind that moment. Only a
//! backup calls this.

use crate::Pages;
use crate::space::files;
use evenkeel_base::{Cause, Lsn, PageNo, Result};
use evenkeel_format::page::{self, RawPage};
use evenkeel_format::space::EXTENT_BYTES;
use std::time::Duration;

/// How often a page is read whose image is not whole: a write of it may be under way each time.
const READ_TRIES: usize = 20;
const READ_REST: Duration = Duration::from_millis(1);

/// The path of a segment file.
pub fn segment_file(segment: u32) -> String {
    files::path(segment)
}

impl Pages {
    /// Extents of the page space, in use or not.
    pub fn extent_count(&self) -> u32 {
        self.space.extents()
    }

    /// Segment files.
    pub fn segment_count(&self) -> u32 {
        self.files.segments()
    }

    /// The length of a segment file.
    ///
    /// # Errors
    /// Those of the environment.
    pub fn segment_len(&self, segment: u32) -> Result<u64> {
        self.files.segment(segment)?.len()
    }

    /// Fills `image` (of `EXTENT_BYTES`) with the pages of an extent that are in use, and zeros for
    /// the others. False if the extent is free; `image` is then unchanged.
    ///
    /// # Errors
    /// Of a page that is damaged on storage and not in memory; `ReadFailed`.
    pub fn copy_extent(&self, extent: u32, image: &mut [u8]) -> Result<bool> {
        debug_assert!(image.len() as u64 == EXTENT_BYTES);
        let Some(used) = self.space.used_in(extent) else { return Ok(false) };
        self.files.read_run(self.geometry.page_at(extent, 0), image)?;
        for (index, image) in (0u32..).zip(image.chunks_exact_mut(self.page_size())) {
            let page = self.geometry.page_at(extent, index);
            if used[index as usize / 64] & 1 << (index % 64) == 0 {
                image.fill(0);
            } else if RawPage(image).verify(page, self.rt.database()).is_err() {
                self.copy_page(page, image)?;
            }
        }
        Ok(true)
    }

    /// Fills `image` with a page; returns its LSN. None, and zeros, if it is not in use.
    ///
    /// # Errors
    /// As `copy_extent`.
    pub fn copy_page(&self, page: PageNo, image: &mut [u8]) -> Result<Option<Lsn>> {
        let mut tries = 0;
        loop {
            let place = self.geometry.extent_of(page);
            let used = place.and_then(|(extent, index)| {
                let used = self.space.used_in(extent)?;
                (used[index as usize / 64] & 1 << (index % 64) != 0).then_some(())
            });
            if used.is_none() {
                image.fill(0);
                return Ok(None);
            }
            if let Some(frame) = self.translation.get(page) {
                let guard = self.frames.shared(frame);
                if guard.facts().holds(page) {
                    image.copy_from_slice(guard.bytes());
                    drop(guard);
                    page::seal(image, self.rt.database());
                    return Ok(Some(page::lsn(image)));
                }
            }
            tries += 1;
            match self.files.read(page, image) {
                Ok(seen) => return Ok(Some(seen.header().lsn)),
                Err(error) if tries >= READ_TRIES => return Err(error),
                Err(_) => self.rt.delay(READ_REST, Cause::PageRead),
            }
        }
    }
}
