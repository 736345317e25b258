//! Copies pages, an extent at a time; each is one piece of its segment file.
//!
//! Invariant: every image that was copied has an LSN below the end of the log at the time of its
//! copy, and is whole (`evenkeel_pages`, `copy`). An extent is left to the base of an incremental
//! backup only if none of its pages has changed since (`base`).

use crate::backup::base::Base;
use crate::backup::destination::Destination;
use evenkeel_base::{Lsn, PageNo, Result};
use evenkeel_format::backup::PIECE_BYTES;
use evenkeel_format::page;
use evenkeel_format::space::{EXTENT_BYTES, Geometry, SEGMENT_EXTENTS};
use evenkeel_io::AlignedBuf;
use evenkeel_pages::{Pages, segment_file};
use std::collections::BTreeSet;
use std::sync::Arc;

const _: () = assert!(EXTENT_BYTES == PIECE_BYTES);

/// What became of an extent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Copied {
    /// It is not in use.
    Nothing,
    /// It is in the backup.
    Stored,
    /// It was read, and the base has it as it is.
    OfBase,
}

pub(super) struct PageCopy {
    pages: Arc<Pages>,
    geometry: Geometry,
    image: AlignedBuf,
    /// The newest change of all images copied so far.
    copied_to: Lsn,
}

/// The file of an extent, and its piece there.
fn place(extent: u32) -> (String, u64) {
    (segment_file(extent / SEGMENT_EXTENTS), u64::from(extent % SEGMENT_EXTENTS))
}

impl PageCopy {
    pub(super) fn new(pages: Arc<Pages>, page_size: usize) -> Result<PageCopy> {
        let geometry = Geometry::new(page_size)?;
        let image = AlignedBuf::new(EXTENT_BYTES as usize);
        Ok(PageCopy { pages, geometry, image, copied_to: Lsn::ZERO })
    }

    /// Copies an extent that is in use, unless the base has it as it is.
    ///
    /// # Errors
    /// Of a damaged page, and of the destination.
    pub(super) fn copy(
        &mut self,
        extent: u32,
        base: Option<&Base>,
        to: &mut Destination,
    ) -> Result<Copied> {
        if !self.pages.copy_extent(extent, &mut self.image)? {
            return Ok(Copied::Nothing);
        }
        let (path, piece) = place(extent);
        if base.is_some_and(|base| base.has(&path, piece, self.newest())) {
            to.leave_to_base(&path, piece);
            return Ok(Copied::OfBase);
        }
        self.copied_to = self.copied_to.max(self.newest());
        to.write(&path, piece, &mut self.image, EXTENT_BYTES as usize)?;
        Ok(Copied::Stored)
    }

    /// The newest change of all images copied so far.
    pub(super) fn copied_to(&self) -> Lsn {
        self.copied_to
    }

    /// The newest change of the pages of the extent that was read.
    fn newest(&self) -> Lsn {
        let pages = self.image.chunks_exact(self.geometry.page_size());
        pages.map(page::lsn).max().unwrap_or(Lsn::ZERO)
    }

    /// Pages in groups, those of each extent.
    pub(super) fn by_extent(&self, pages: &BTreeSet<PageNo>) -> Vec<Vec<PageNo>> {
        let of = |page: &PageNo| self.geometry.extent_of(*page).map(|(extent, _)| extent);
        let pages: Vec<PageNo> = pages.iter().copied().filter(|page| of(page).is_some()).collect();
        pages.chunk_by(|a, b| of(a) == of(b)).map(<[PageNo]>::to_vec).collect()
    }

    /// Copies pages of one extent again. Returns the newest LSN of their images; the largest one if
    /// a page is not in use any more: the record of that lies at an unknown place.
    ///
    /// # Errors
    /// As `copy`.
    pub(super) fn copy_again(&mut self, pages: &[PageNo], to: &mut Destination) -> Result<Lsn> {
        let Some((extent, _)) = pages.first().and_then(|page| self.geometry.extent_of(*page))
        else {
            return Ok(Lsn::ZERO);
        };
        let (path, piece) = place(extent);
        let (mut newest, size) = (Lsn::ZERO, self.geometry.page_size());
        if to.is_of_base(&path, piece) {
            // The piece becomes one of this backup: the other pages of the extent belong to it.
            if !self.pages.copy_extent(extent, &mut self.image)? {
                self.image.fill(0);
            }
            newest = self.newest();
        } else {
            to.read(&path, piece, &mut self.image)?;
        }
        let first = self.geometry.page_at(extent, 0).0;
        for page in pages {
            let at = (page.0 - first) as usize * size;
            let lsn = self.pages.copy_page(*page, &mut self.image[at..at + size])?;
            newest = newest.max(lsn.unwrap_or(Lsn(u64::MAX)));
        }
        self.copied_to = self.copied_to.max(self.newest());
        to.write(&path, piece, &mut self.image, EXTENT_BYTES as usize)?;
        Ok(newest)
    }

    /// Gives each segment file its present length: recovery finds every segment that the log
    /// counts, and room for pages that the log makes.
    ///
    /// # Errors
    /// Of the destination.
    pub(super) fn finish(&self, to: &mut Destination) -> Result<()> {
        for segment in 0..self.pages.segment_count() {
            to.close(&segment_file(segment), self.pages.segment_len(segment)?)?;
        }
        Ok(())
    }
}
