//! The files of a directory, read without the engine: superblock, pages and their copies in the
//! doublewrite file. Nothing is written. Every page returned has the right checksum and number.
//!
//! Identity: checksums need the database id, and places need the page size. Both come from a valid
//! slot of the superblock; else the id comes from the header of a log segment, and the page size is
//! the one with which pages verify.

use evenkeel_base::{Code, DatabaseId, Error, PageNo, Result};
use evenkeel_format::Reader;
use evenkeel_format::page::{self, PAGE_SIZES, RawPage};
use evenkeel_format::space::Geometry;
use evenkeel_format::superblock::{SLOT_BYTES, Superblock};
use evenkeel_format::wal::{SEGMENT_HEADER, SegmentHeader, segment_number};
use evenkeel_io::{Env, File, OpenMode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of the head of a region of the doublewrite file.
const DW_HEAD: usize = 4096;
/// Bytes of the images of a region.
const DW_IMAGES: usize = 1 << 20;
/// First bytes of a region.
const DW_MAGIC: u32 = u32::from_le_bytes(*b"EKDW");
/// Pages read at a time by a sweep.
const SWEEP_BYTES: usize = 1 << 20;
/// Pages examined to find the page size.
const PROBE_PAGES: u64 = 4096;

/// Takes a page with the right checksum.
pub type EachPage<'f> = dyn FnMut(PageNo, &[u8], From) -> Result<()> + 'f;

/// The segment files of pages, by number, with their lengths.
type Segments = BTreeMap<u32, (Arc<dyn File>, u64)>;

/// The directory.
pub struct Source {
    env: Arc<dyn Env>,
    /// The id in all checksums.
    pub database: DatabaseId,
    /// The places of pages.
    pub geometry: Geometry,
    /// The newer valid slot.
    pub superblock: Option<Superblock>,
    /// What is wrong with the slots, in sentences.
    pub problems: Vec<String>,
    segments: Segments,
    /// Held while the files are read.
    _lock: Option<Arc<dyn File>>,
    /// Undamaged copies of the doublewrite file: page -> newest image.
    copies: BTreeMap<u64, Vec<u8>>,
}

/// Where the bytes of a page come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Its place in a segment.
    Place,
    /// The doublewrite file, because it is damaged in its place.
    Copy,
    /// The doublewrite file, but the copy may be older than changes of which the log no longer has
    /// the records.
    OldCopy,
}

/// Reads a whole file of at most `limit` bytes; empty if it does not exist.
pub fn read_file(env: &dyn Env, path: &str, limit: u64) -> Result<Vec<u8>> {
    let file = match env.open(path, OpenMode::READ) {
        Err(error) if error.code() == Code::FileMissing => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut bytes = vec![0; file.len()?.min(limit) as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The valid slots of the superblock, the newer one, and sentences about the others.
fn superblock(env: &dyn Env) -> Result<(Option<Superblock>, Vec<String>)> {
    let bytes = read_file(env, "evenkeel.super", 2 * SLOT_BYTES as u64)?;
    let (mut best, mut problems): (Option<Superblock>, _) = (None, Vec::new());
    for slot in 0..2 {
        let at = slot * SLOT_BYTES;
        match Superblock::decode(bytes.get(at..at + SLOT_BYTES).unwrap_or_default())? {
            Some(found) if best.as_ref().is_none_or(|b| found.sequence > b.sequence) => {
                best = Some(found);
            }
            Some(_) => {}
            None => problems.push(format!("evenkeel.super: slot {slot} is damaged or missing")),
        }
    }
    Ok((best, problems))
}

/// The headers of the log's segments that decode, by number.
pub fn log_segments(env: &dyn Env) -> Result<(Vec<SegmentHeader>, Vec<String>)> {
    let (mut headers, mut problems) = (Vec::new(), Vec::new());
    for name in env.list("wal")? {
        let Some(number) = segment_number(&name) else { continue };
        let bytes = read_file(env, &format!("wal/{name}"), SEGMENT_HEADER as u64);
        match bytes.and_then(|bytes| SegmentHeader::decode(&bytes)) {
            Ok(header) if header.number == number => headers.push(header),
            Ok(header) => problems.push(format!("wal/{name}: is segment {}", header.number)),
            Err(error) => problems.push(format!("wal/{name}: {error}")),
        }
    }
    headers.sort_by_key(|header| header.first_block);
    Ok((headers, problems))
}

fn segment_files(env: &dyn Env) -> Result<Segments> {
    let mut segments = BTreeMap::new();
    for name in env.list("pages")? {
        let number = name.strip_suffix(".pg").and_then(|digits| digits.parse::<u32>().ok());
        if let Some(number) = number {
            let file = env.open(&format!("pages/{name}"), OpenMode::READ)?;
            let len = file.len()?;
            segments.insert(number, (file, len));
        }
    }
    Ok(segments)
}

/// The page size with which most of the first pages verify.
fn page_size(segments: &Segments, database: DatabaseId) -> Result<Option<usize>> {
    let mut best = (0, None);
    for size in PAGE_SIZES {
        let geometry = Geometry::new(size)?;
        let mut right = 0;
        for (number, (file, len)) in segments {
            let first = u64::from(*number) * geometry.segment_pages();
            for page in 0..(len / size as u64).min(PROBE_PAGES) {
                let mut bytes = vec![0; size];
                let read = file.read_at(&mut bytes, page * size as u64);
                let verified = RawPage(&bytes).verify(PageNo(first + page), database);
                right += usize::from(read.is_ok() && verified.is_ok());
            }
        }
        if right > best.0 {
            best = (right, Some(size));
        }
    }
    Ok(best.1)
}

impl Source {
    /// Opens a directory that no process has open for writing.
    ///
    /// # Errors
    /// `NotADatabase` if neither the superblock nor the log and the pages tell the database id and
    /// the page size; `NewerFormat`; `DirectoryBusy`; those of the environment.
    pub fn open(env: Arc<dyn Env>) -> Result<Source> {
        let (superblock, mut problems) = superblock(&*env)?;
        let segments = segment_files(&*env)?;
        let (database, size) = match &superblock {
            Some(found) => (found.database_id, found.page_size as usize),
            None => {
                let (headers, _) = log_segments(&*env)?;
                let lost = |why: &'static str| Error::new(Code::NotADatabase).with("why", why);
                let header = headers.last().ok_or_else(|| {
                    lost("no valid superblock, and no log segment names the database id")
                })?;
                let size = page_size(&segments, header.database)?
                    .ok_or_else(|| lost("no valid superblock, and no page that verifies"))?;
                problems.push(format!(
                    "no valid superblock: the database id is that of {}, the page size {size} that \
                     of its pages",
                    evenkeel_format::wal::segment_path(header.number)
                ));
                (header.database, size)
            }
        };
        let geometry = Geometry::new(size)?;
        let (_lock, copies) = (None, BTreeMap::new());
        let mut source =
            Source { env, database, geometry, superblock, problems, segments, _lock, copies };
        source.read_copies()?;
        Ok(source)
    }

    /// Keeps a lock on the directory.
    #[must_use]
    pub fn locked_by(self, lock: Option<Arc<dyn File>>) -> Source {
        Source { _lock: lock, ..self }
    }

    /// The environment.
    pub fn env(&self) -> &dyn Env {
        &*self.env
    }

    /// Numbers of the segment files.
    pub fn segments(&self) -> Vec<u32> {
        self.segments.keys().copied().collect()
    }

    /// Reads the doublewrite file. A damaged head or image is left out.
    fn read_copies(&mut self) -> Result<()> {
        let bytes = read_file(&*self.env, "dw", 1 << 30)?;
        let size = self.geometry.page_size();
        for region in bytes.chunks(DW_HEAD + DW_IMAGES) {
            let Some((head, images)) = region.split_at_checked(DW_HEAD) else { continue };
            let mut r = Reader::new(head, "doublewrite head");
            let (magic, crc, page_size, count) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
            let right = self.database.crc32c(&head[8..]) == crc && page_size as usize == size;
            if magic != DW_MAGIC || !right {
                continue;
            }
            for image in images.chunks_exact(size).take(count as usize) {
                let Ok(number) = r.u64().map(PageNo) else { break };
                if RawPage(image).verify(number, self.database).is_err() {
                    continue;
                }
                let newer = |old: &Vec<u8>| page::lsn(old) < page::lsn(image);
                if self.copies.get(&number.0).is_none_or(newer) {
                    self.copies.insert(number.0, image.to_vec());
                }
            }
        }
        Ok(())
    }

    /// The undamaged copy of a page.
    fn copy(&self, number: PageNo) -> Option<(Vec<u8>, From)> {
        let copy = self.copies.get(&number.0)?;
        let redo = self.superblock.as_ref().map(|s| s.page_redo);
        let from = match redo {
            Some(redo) if page::lsn(copy) >= redo => From::Copy,
            _ => From::OldCopy,
        };
        Some((copy.clone(), from))
    }

    /// A page with the right checksum, or nothing.
    pub fn page(&self, number: PageNo) -> Option<(Vec<u8>, From)> {
        let pages = self.geometry.segment_pages();
        let segment = u32::try_from(number.0 / pages).ok()?;
        let mut bytes = vec![0; self.geometry.page_size()];
        let offset = number.0 % pages * self.geometry.page_size() as u64;
        let read = self.segments.get(&segment).map(|(file, _)| file.read_at(&mut bytes, offset));
        match read {
            Some(Ok(())) if RawPage(&bytes).verify(number, self.database).is_ok() => {
                Some((bytes, From::Place))
            }
            _ => self.copy(number),
        }
    }

    /// The page behind the last one.
    pub fn end_page(&self) -> u64 {
        let size = self.geometry.page_size() as u64;
        let end = |(number, (_, len)): (&u32, &(_, u64))| {
            u64::from(*number) * self.geometry.segment_pages() + len / size
        };
        self.segments.iter().map(end).max().unwrap_or(0)
    }

    /// The bytes in a page's place, not verified.
    ///
    /// # Errors
    /// `FileMissing` without its segment; those of reading.
    pub fn raw_page(&self, number: PageNo) -> Result<Vec<u8>> {
        let pages = self.geometry.segment_pages();
        let segment = (number.0 / pages) as u32;
        let Some((file, _)) = self.segments.get(&segment) else {
            return Err(
                Error::new(Code::FileMissing).with("file", format!("pages/{segment:06}.pg"))
            );
        };
        let mut bytes = vec![0; self.geometry.page_size()];
        file.read_at(&mut bytes, number.0 % pages * self.geometry.page_size() as u64)?;
        Ok(bytes)
    }

    /// Calls `f` with every page that has the right checksum, in order; returns the numbers of
    /// pages that are neither right nor empty, as ranges.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn sweep(&self, f: &mut EachPage<'_>) -> Result<Damage> {
        let size = self.geometry.page_size();
        let mut damage = Damage::default();
        for (segment, (file, len)) in &self.segments {
            let first = u64::from(*segment) * self.geometry.segment_pages();
            let mut at = 0;
            while at < *len {
                let take = (len - at).min(SWEEP_BYTES as u64) as usize;
                let mut bytes = vec![0; take.next_multiple_of(size)];
                let whole = file.read_at(&mut bytes[..take], at).is_ok();
                for (i, piece) in bytes.chunks_exact_mut(size).enumerate() {
                    let number = PageNo(first + at / size as u64 + i as u64);
                    let place = at + (i * size) as u64;
                    let read = whole || file.read_at(piece, place).is_ok();
                    self.swept(number, piece, read, &mut damage, f)?;
                }
                at += take as u64;
            }
        }
        Ok(damage)
    }

    fn swept(
        &self,
        number: PageNo,
        bytes: &[u8],
        read: bool,
        damage: &mut Damage,
        f: &mut EachPage<'_>,
    ) -> Result<()> {
        damage.pages += 1;
        if read && RawPage(bytes).verify(number, self.database).is_ok() {
            damage.right += 1;
            return f(number, bytes, From::Place);
        }
        if let Some((copy, from)) = self.copy(number) {
            damage.copied += 1;
            return f(number, &copy, from);
        }
        if !read || !RawPage(bytes).is_zero() {
            damage.bad.push(number);
        }
        Ok(())
    }
}

/// What a sweep found.
#[derive(Clone, Debug, Default)]
pub struct Damage {
    /// Pages in the files.
    pub pages: u64,
    /// Pages with the right checksum in their place.
    pub right: u64,
    /// Damaged pages with an undamaged copy in the doublewrite file.
    pub copied: u64,
    /// Pages that are neither right nor empty, without a copy.
    pub bad: Vec<PageNo>,
}
