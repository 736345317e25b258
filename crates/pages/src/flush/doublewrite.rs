//! The doublewrite file: a batch of pages is written here and synced before it is written in place,
//! so that a page torn by a crash has a whole copy.
//!
//! The file has three regions, each of a head (`format::doublewrite`) and the images of a batch (1
//! MiB), each with its checksum.
//!
//! A region is reused only when its batch is synced in place; after a kill, by the next process. A
//! copy older than the point where redo begins is stale: its batch was synced in place before the
//! checkpoint could pass, and later writes may have needed no copy. [`Doublewrite::restore`]
//! ignores such copies.

use crate::flush::sync_turn::SyncTurn;
use crate::space::files::Files;
use evenkeel_base::{Code, Error, Lsn, PageNo, Result, metrics::Metric};
use evenkeel_format::doublewrite::{HEAD_BYTES, IMAGES_MAX, decode_head, encode_head};
use evenkeel_format::page::RawPage;
use evenkeel_format::space::Geometry;
use evenkeel_io::{AlignedBuf, File, IO_ALIGN, OpenMode, Runtime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Its file.
const PATH: &str = "dw";
/// Regions: batches that can be written at the same time, those of two cleaners and of a thread
/// that has pages written at once.
pub(crate) const REGIONS: usize = 3;
/// Bytes of images in a batch.
pub(crate) const BATCH_BYTES: usize = 1 << 20;
const _: () = assert!(HEAD_BYTES.is_multiple_of(IO_ALIGN) && BATCH_BYTES / 4096 <= IMAGES_MAX);

pub(crate) struct Doublewrite {
    rt: Arc<Runtime>,
    geometry: Geometry,
    enabled: bool,
    file: OnceLock<Arc<dyn File>>,
    /// Regions that have their blocks: fewer if the disk was full when an older directory was
    /// opened.
    regions: AtomicUsize,
    turn: SyncTurn,
}

impl Doublewrite {
    pub fn new(rt: Arc<Runtime>, geometry: Geometry, enabled: bool) -> Doublewrite {
        let regions = AtomicUsize::new(REGIONS);
        let (file, turn) = (OnceLock::new(), SyncTurn::default());
        Doublewrite { rt, geometry, enabled, file, regions, turn }
    }

    /// Makes the file with all its blocks, so that a full disk cannot stop the cleaner.
    pub fn create(&self) -> Result<()> {
        let file = self.rt.env.open(PATH, OpenMode::READ_WRITE.direct())?;
        Self::allocate(&*file)?;
        // Set once per open; a second call keeps the first file.
        let _ = self.file.set(file);
        Ok(())
    }

    fn allocate(file: &dyn File) -> Result<()> {
        file.allocate(0, Self::offset(REGIONS))?;
        file.sync()
    }

    /// Batches that can be written at the same time.
    pub fn regions(&self) -> usize {
        self.regions.load(Relaxed)
    }

    fn offset(region: usize) -> u64 {
        (region * (HEAD_BYTES + BATCH_BYTES)) as u64
    }

    /// Writes the images marked in `needed` to a region and syncs it. `images` are sealed and
    /// adjacent; `head` is a buffer for the head.
    pub fn write(
        &self,
        region: usize,
        head: &mut AlignedBuf,
        images: &[u8],
        pages: &[(PageNo, bool)],
    ) -> Result<()> {
        if !self.enabled || pages.iter().all(|(_, needed)| !needed) {
            return Ok(());
        }
        let Some(file) = self.file.get() else {
            return Err(Error::internal("no doublewrite file"));
        };
        let numbers = pages.iter().map(|(page, needed)| needed.then_some(*page));
        encode_head(self.geometry.page_size() as u32, numbers, self.rt.database(), head);
        let start = Self::offset(region);
        file.write_at(head, start)?;
        let size = self.geometry.page_size();
        let mut at = 0;
        for run in pages.chunk_by(|a, b| a.1 == b.1) {
            let bytes = &images[at * size..(at + run.len()) * size];
            if run[0].1 {
                file.write_at(bytes, start + (HEAD_BYTES + at * size) as u64)?;
                self.rt.metrics.add(Metric::DoublewriteBytes, bytes.len() as u64);
            }
            at += run.len();
        }
        self.turn.sync(&self.rt, &**file)
    }

    /// Replaces pages that are damaged in place by whole copies, and syncs every page that has a
    /// copy. Idempotent.
    pub fn restore(&self, files: &Files, redo_from: Lsn) -> Result<()> {
        match self.rt.env.open(PATH, OpenMode { create: false, ..OpenMode::READ_WRITE.direct() }) {
            Err(e) if e.code() == Code::FileMissing => return self.create(),
            Err(e) => return Err(e),
            Ok(file) => {
                // Older directories have fewer regions, which suffice if the disk is full.
                let len = file.len()?;
                if len < Self::offset(REGIONS) {
                    match Self::allocate(&*file) {
                        Err(e) if e.code().is_shortage() => {
                            let there = len / Self::offset(1);
                            self.regions.store((there as usize).max(1), Relaxed);
                        }
                        other => other?,
                    }
                }
                // Set once per open.
                let _ = self.file.set(file);
            }
        }
        let mut copies: BTreeMap<PageNo, (Lsn, AlignedBuf)> = BTreeMap::new();
        for region in 0..REGIONS {
            self.collect(region, redo_from, &mut copies)?;
        }
        let mut segments = BTreeSet::new();
        let mut in_place = AlignedBuf::new(self.geometry.page_size());
        for (page, (_, copy)) in &copies {
            // All zero: never written, which needed no copy, or freed.
            let damaged = files.read(*page, &mut in_place).err().is_some_and(|e| {
                // A page of a newer version is whole.
                matches!(e.code(), Code::PageChecksum | Code::PageIdentity)
            });
            if damaged {
                files.write(*page, copy)?;
                self.rt.metrics.add(Metric::TornPagesRepaired, 1);
            }
            // A whole page may not be synced either, after a process was killed: the next batch
            // overwrites its copy. A missing segment is examined later.
            segments.insert(files.place(*page).0);
        }
        for segment in segments.range(..files.segments()) {
            files.sync(*segment)?;
        }
        Ok(())
    }

    fn collect(
        &self,
        region: usize,
        redo_from: Lsn,
        copies: &mut BTreeMap<PageNo, (Lsn, AlignedBuf)>,
    ) -> Result<()> {
        let Some(file) = self.file.get() else { return Ok(()) };
        let start = Self::offset(region);
        let mut head = AlignedBuf::new(HEAD_BYTES);
        match file.read_at(&mut head, start) {
            Err(e) if e.code() == Code::ReadShort => return Ok(()),
            other => other?,
        }
        let page_size = self.geometry.page_size();
        let pages = decode_head(&head, page_size as u32, self.rt.database())
            .map_err(|e| e.with("file", PATH).with("offset", start))?;
        // Torn during its own write: nothing of that batch was written in place yet.
        let Some(pages) = pages.filter(|pages| pages.len() <= BATCH_BYTES / page_size) else {
            return Ok(());
        };
        for (at, page) in pages.into_iter().enumerate() {
            let mut image = AlignedBuf::new(page_size);
            let Some(page) = page else { continue };
            if file.read_at(&mut image, start + (HEAD_BYTES + at * page_size) as u64).is_err() {
                continue;
            }
            let Ok(verified) = RawPage(&image).verify(page, self.rt.database()) else { continue };
            let lsn = verified.header().lsn;
            let newer = copies.get(&page).is_none_or(|(other, _)| *other < lsn);
            if lsn >= redo_from && newer {
                copies.insert(page, (lsn, image));
            }
        }
        Ok(())
    }
}
