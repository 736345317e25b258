//! The segment files: positions, verified reads, writes, growth. Paths and offsets of pages appear
//! here and nowhere else; every error names file and offset.

use crate::flush::sync_turn::SyncTurn;
use evenkeel_base::{Code, Error, PageNo, Result, metrics::Metric, sync::RwLock};
use evenkeel_format::page::{PageKind, RawPage, VerifiedPage};
use evenkeel_format::space::{EXTENT_BYTES, Geometry, SEGMENT_EXTENTS};
use evenkeel_io::{File, OpenMode, Runtime};
use std::sync::{Arc, OnceLock};

/// Directory of the segment files.
pub(crate) const DIRECTORY: &str = "pages";

/// An open file and the latch of its syncs.
type Opened = (Arc<dyn File>, Arc<SyncTurn>);

/// Refuses the payload of a tree page that has something unknown in it.
pub(crate) type CheckPayload = fn(&[u8]) -> Result<()>;

pub(crate) struct Files {
    rt: Arc<Runtime>,
    geometry: Geometry,
    open: RwLock<Vec<Opened>>,
    /// What the owner of tree pages says of their payload; this layer does not know it.
    check_payload: OnceLock<CheckPayload>,
}

/// Path of a segment file.
pub(crate) fn path(segment: u32) -> String {
    format!("{DIRECTORY}/{segment:06}.pg")
}

impl Files {
    pub fn new(rt: Arc<Runtime>, geometry: Geometry) -> Files {
        Files { rt, geometry, open: RwLock::new(Vec::new()), check_payload: OnceLock::new() }
    }

    /// Opens the file of a segment, without adding it.
    pub fn open(&self, segment: u32, create: bool) -> Result<Arc<dyn File>> {
        self.rt.env.open(&path(segment), OpenMode { create, ..OpenMode::READ_WRITE.direct() })
    }

    /// Adds the file of a segment: the next one, or a replacement.
    pub fn enter(&self, segment: u32, file: Arc<dyn File>) {
        let mut open = self.open.write();
        open.truncate(segment as usize);
        open.push((file, Arc::default()));
    }

    /// Segments that are open.
    pub fn segments(&self) -> u32 {
        self.open.read().len() as u32
    }

    /// The file of a segment.
    pub fn segment(&self, segment: u32) -> Result<Arc<dyn File>> {
        Ok(self.opened(segment)?.0)
    }

    fn opened(&self, segment: u32) -> Result<Opened> {
        let found = self.open.read().get(segment as usize).cloned();
        found.ok_or_else(|| Error::new(Code::PageBeyond).with("file", path(segment)))
    }

    /// Makes the writes to a segment durable.
    ///
    /// # Errors
    /// As `SyncTurn::sync`.
    pub fn sync(&self, segment: u32) -> Result<()> {
        let (file, turn) = self.opened(segment)?;
        turn.sync(&self.rt, &*file)
    }

    /// Segment and byte offset of a page.
    pub fn place(&self, page: PageNo) -> (u32, u64) {
        let segment = page.0 / self.geometry.segment_pages();
        let within = page.0 % self.geometry.segment_pages();
        (segment as u32, within * self.geometry.page_size() as u64)
    }

    fn at(&self, error: Error, page: PageNo) -> Error {
        let (segment, offset) = self.place(page);
        error.with("file", path(segment)).with("offset", offset)
    }

    /// Tree pages that are read from now on are given to this check.
    pub fn check_payloads_with(&self, check: CheckPayload) {
        // Set once per open; there is one owner of tree pages.
        let _ = self.check_payload.set(check);
    }

    /// Reads a page and verifies it. # Errors: as `verify`; `PageBeyond`; `ReadFailed`.
    pub fn read<'a>(&self, page: PageNo, buf: &'a mut [u8]) -> Result<VerifiedPage<'a>> {
        self.read_raw(page, buf)?;
        self.verify(page, buf)
    }

    /// Verifies the image of a page.
    ///
    /// # Errors
    /// As `RawPage::verify`; those of the check of payloads.
    pub fn verify<'a>(&self, page: PageNo, image: &'a [u8]) -> Result<VerifiedPage<'a>> {
        let seen = RawPage(image).verify(page, self.rt.database()).map_err(|e| self.at(e, page))?;
        if let Some(check) = self.check_payload.get()
            && seen.header().kind == PageKind::Tree
        {
            check(seen.payload()).map_err(|e| self.at(e.with("page", page), page))?;
        }
        Ok(seen)
    }

    /// Reads consecutive pages from `first` on, unverified, all in one segment.
    pub fn read_run(&self, first: PageNo, images: &mut [u8]) -> Result<()> {
        self.read_raw(first, images)
    }

    fn read_raw(&self, page: PageNo, buf: &mut [u8]) -> Result<()> {
        let beyond = || self.at(Error::new(Code::PageBeyond).with("page", page), page);
        if self.geometry.extent_of(page).is_none() {
            return Err(beyond());
        }
        let (segment, offset) = self.place(page);
        let file = self.segment(segment).map_err(|_| beyond())?;
        let start = self.rt.env.now_ns();
        let result = file.read_at(buf, offset);
        let pages = buf.len() / self.geometry.page_size();
        crate::pool::visits::count_read(pages, self.rt.env.now_ns().saturating_sub(start));
        self.rt.metrics.add(Metric::PageReads, pages as u64);
        self.rt.metrics.add(Metric::PageReadBytes, buf.len() as u64);
        match result {
            Err(e) if e.code() == Code::ReadShort => Err(beyond().caused_by(e)),
            other => other,
        }
    }

    /// Writes consecutive pages from `first` on, all in one segment.
    pub fn write(&self, first: PageNo, images: &[u8]) -> Result<()> {
        let (segment, offset) = self.place(first);
        self.segment(segment)?.write_at(images, offset)?;
        let pages = images.len() / self.geometry.page_size();
        self.rt.metrics.add(Metric::PageWrites, pages as u64);
        self.rt.metrics.add(Metric::PageWriteBytes, images.len() as u64);
        Ok(())
    }

    /// Extents that the file of a segment holds.
    pub fn extents(&self, segment: u32) -> Result<u32> {
        let len = self.segment(segment)?.len()? / EXTENT_BYTES;
        Ok((len.min(u64::from(SEGMENT_EXTENTS))) as u32)
    }

    /// Backs `count` extents from `extent` on with blocks; they lie in one segment.
    pub fn allocate(&self, extent: u32, count: u32) -> Result<()> {
        let at = u64::from(extent % SEGMENT_EXTENTS) * EXTENT_BYTES;
        self.segment(extent / SEGMENT_EXTENTS)?.allocate(at, u64::from(count) * EXTENT_BYTES)
    }

    /// Frees the blocks of an extent.
    pub fn punch(&self, extent: u32) -> Result<()> {
        let at = u64::from(extent % SEGMENT_EXTENTS) * EXTENT_BYTES;
        self.segment(extent / SEGMENT_EXTENTS)?.punch(at, EXTENT_BYTES)
    }
}
