//! The page: a header of 40 bytes whose checksum is bound to the page's identity, then the payload
//! of its owner. Bytes from storage are a [`RawPage`]; only [`RawPage::verify`] turns them into a
//! [`VerifiedPage`], and every read goes through it.
//!
//! ```text
//!  0 crc32c u32 (below)          8 page_no u64      24 tree u32          32 unused, zero
//!  4 version u8, 5 kind u8      16 page_lsn u64     28 incarnation u32   40 payload
//!  6 reserved u16
//! ```
//! The checksum covers the database id and bytes 4.. of the page, and so page number, incarnation
//! and LSN; the page number is also compared with the requested one. So bit rot, torn and
//! misdirected writes and pages of another database are all detected.
//!
//! A page whose checksum is right may still be the work of a newer version. `verify` refuses any
//! kind, flag or reserved byte that this version does not know, in the header and in the pages of
//! the space itself. `node::check_page` does the same for the payload of a tree page; the pool
//! calls both when it reads a page, so no search looks for such bytes again.

use crate::codec::Unknown;
use crate::space;
use evenkeel_base::{Code, DatabaseId, Error, Lsn, PageNo, Result, TreeId};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 40;
/// Version of the page layout.
pub const PAGE_VERSION: u8 = 1;
/// Page sizes that can be chosen at creation.
pub const PAGE_SIZES: [usize; 3] = [4096, 8192, 16384];

/// The kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// A page of a tree: `tree` owns the payload.
    Tree = 1,
    /// Extent descriptors (`space`).
    SpaceMap = 2,
    /// Owners of the pages of a fragment extent (`space`).
    Owners = 3,
}

impl PageKind {
    /// Decodes a kind; unknown ones give `None`.
    pub fn from_u8(value: u8) -> Option<PageKind> {
        [PageKind::Tree, PageKind::SpaceMap, PageKind::Owners]
            .into_iter()
            .find(|k| *k as u8 == value)
    }
}

/// The fields of the header, without the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// What the page holds.
    pub kind: PageKind,
    /// Its number.
    pub page_no: PageNo,
    /// LSN of the last record applied to it.
    pub lsn: Lsn,
    /// The tree that owns it (zero: the space itself).
    pub tree: TreeId,
    /// The use of its extent to which it belongs: grows each time the extent is allocated.
    pub incarnation: u32,
}

fn u32_at(page: &[u8], at: usize) -> u32 {
    match page.get(at..at + 4) {
        Some(b) => u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        None => 0,
    }
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from(u32_at(page, at)) | u64::from(u32_at(page, at + 4)) << 32
}

/// Makes `page` an empty page with this header (payload zero, not sealed).
pub fn format(page: &mut [u8], header: &PageHeader) {
    page.fill(0);
    page[4] = PAGE_VERSION;
    page[5] = header.kind as u8;
    page[8..16].copy_from_slice(&header.page_no.0.to_le_bytes());
    page[16..24].copy_from_slice(&header.lsn.0.to_le_bytes());
    page[24..28].copy_from_slice(&header.tree.0.to_le_bytes());
    page[28..32].copy_from_slice(&header.incarnation.to_le_bytes());
}

/// Sets the LSN of a page in memory.
pub fn set_lsn(page: &mut [u8], lsn: Lsn) {
    page[16..24].copy_from_slice(&lsn.0.to_le_bytes());
}

/// The LSN in the header.
pub fn lsn(page: &[u8]) -> Lsn {
    Lsn(u64_at(page, 16))
}

/// The tree in the header.
pub fn tree(page: &[u8]) -> TreeId {
    TreeId(u32_at(page, 24))
}

/// The page number in the header.
pub fn page_no(page: &[u8]) -> PageNo {
    PageNo(u64_at(page, 8))
}

/// The incarnation in the header.
pub fn incarnation(page: &[u8]) -> u32 {
    u32_at(page, 28)
}

/// The kind in the header, if it is valid.
pub fn kind(page: &[u8]) -> Option<PageKind> {
    PageKind::from_u8(page.get(5).copied().unwrap_or(0))
}

/// Sets the checksum: the last step before the image is written.
pub fn seal(page: &mut [u8], database: DatabaseId) {
    let crc = database.crc32c(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Unverified bytes from storage.
#[derive(Clone, Copy)]
pub struct RawPage<'a>(pub &'a [u8]);

/// A page with verified checksum and identity.
#[derive(Clone, Copy)]
pub struct VerifiedPage<'a> {
    bytes: &'a [u8],
    header: PageHeader,
}

impl<'a> RawPage<'a> {
    /// True if every byte is zero: the page was never written, or its blocks were freed.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|b| *b == 0)
    }

    /// Checks length, version, checksum and identity, and that every kind, flag and reserved byte
    /// is known.
    ///
    /// # Errors
    /// `PageUnwritten` (all zero), `PageChecksum`, `PageIdentity`; `PageVersion` for a page that is
    /// whole, and is of a newer version; the caller adds file and offset.
    pub fn verify(self, page_no: PageNo, database: DatabaseId) -> Result<VerifiedPage<'a>> {
        let bytes = self.0;
        let fault = |code| Error::new(code).with("page", page_no);
        if bytes.len() < HEADER_BYTES {
            return Err(fault(Code::PageChecksum).with("bytes", bytes.len()));
        }
        let (wanted, found) = (u32_at(bytes, 0), database.crc32c(&bytes[4..]));
        if wanted != found {
            if self.is_zero() {
                return Err(fault(Code::PageUnwritten));
            }
            let error = fault(Code::PageChecksum);
            return Err(error
                .with("checksum_wanted", format_args!("{wanted:#010x}"))
                .with("checksum_found", format_args!("{found:#010x}")));
        }
        let number = self::page_no(bytes);
        if number != page_no {
            return Err(fault(Code::PageIdentity).with("page_found", number));
        }
        let kind = check_known(bytes).map_err(|unknown| unknown_in(page_no, &unknown))?;
        let header = PageHeader {
            kind,
            page_no,
            lsn: lsn(bytes),
            tree: tree(bytes),
            incarnation: incarnation(bytes),
        };
        Ok(VerifiedPage { bytes, header })
    }
}

#[cold]
fn unknown_in(page: PageNo, unknown: &Unknown) -> Error {
    Error::new(Code::PageVersion).with("page", page).with(unknown.field, unknown.found)
}

/// The kind of a page of which every kind, flag and reserved byte is known.
fn check_known(bytes: &[u8]) -> std::result::Result<PageKind, Unknown> {
    if bytes[4] != PAGE_VERSION {
        return Err(Unknown { field: "version", found: bytes[4].into() });
    }
    let Some(kind) = kind(bytes) else {
        return Err(Unknown { field: "kind", found: bytes[5].into() });
    };
    Unknown::check_zero("reserved", &bytes[6..8])?;
    Unknown::check_zero("unused", &bytes[32..HEADER_BYTES])?;
    let payload = &bytes[HEADER_BYTES..];
    match kind {
        PageKind::Tree => {}
        PageKind::SpaceMap => space::check_known_map(payload, page_no(bytes))?,
        PageKind::Owners => space::check_known_owners(payload)?,
    }
    Ok(kind)
}

impl<'a> VerifiedPage<'a> {
    /// The header.
    pub fn header(&self) -> &PageHeader {
        &self.header
    }
    /// The bytes of the owner.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DB: DatabaseId = DatabaseId(5);

    fn sample() -> Vec<u8> {
        let mut page = vec![0; 4096];
        let header = PageHeader {
            kind: PageKind::Tree,
            page_no: PageNo(77),
            lsn: Lsn(5),
            tree: TreeId(3),
            incarnation: 9,
        };
        format(&mut page, &header);
        page[100] = 42;
        seal(&mut page, DB);
        page
    }

    #[test]
    fn round_trip_and_identity() {
        let page = sample();
        let seen = RawPage(&page).verify(PageNo(77), DB).expect("is right");
        assert_eq!((seen.header().lsn, seen.header().tree), (Lsn(5), TreeId(3)));
        assert_eq!((seen.header().incarnation, seen.payload()[60]), (9, 42));
        let error = RawPage(&page).verify(PageNo(78), DB).err().expect("misdirected");
        assert_eq!(error.code(), Code::PageIdentity);
        assert_eq!(
            RawPage(&[0; 4096]).verify(PageNo(1), DB).err().map(|e| e.code()),
            Some(Code::PageUnwritten)
        );
        assert!(RawPage(&[]).verify(PageNo(0), DB).is_err());
    }

    #[test]
    fn every_bit_flip_and_tear_is_detected() {
        let good = sample();
        for bit in 0..good.len() * 8 {
            let mut page = good.clone();
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(RawPage(&page).verify(PageNo(77), DB).is_err(), "bit {bit}");
        }
        let mut newer = good.clone();
        set_lsn(&mut newer, Lsn(6));
        newer[4000] = 1;
        seal(&mut newer, DB);
        for sector in 1..8 {
            let mut torn = newer.clone();
            torn[sector * 512..].copy_from_slice(&good[sector * 512..]);
            assert!(RawPage(&torn).verify(PageNo(77), DB).is_err(), "sector {sector}");
        }
    }
}
