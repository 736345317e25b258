//! The list of hot pages: file `evenkeel.warm`, which contains only numbers of pages, read in by
//! the next open in the background. It is a hint: without the file, or if it does not verify,
//! nothing is read.
//!
//! ```text
//!   0  magic "EVKNWARM"                        8
//!   8  version u32                             4
//!  12  crc32c of the database id and the rest  4   (this field taken as zero)
//!  16  number of pages u32                     4
//!  20  page numbers, ascending, each as varint of its distance from the one before (from 0)
//! ```

use crate::{Reader, put_varint};
use evenkeel_base::{Code, DatabaseId, Error, PageNo, Result, crc32c};

/// Magic at the start of the file.
pub const MAGIC: &[u8; 8] = b"EVKNWARM";
/// Version of this layout.
pub const WARM_VERSION: u32 = 1;
/// Bytes before the page numbers.
pub const HEADER_BYTES: usize = 20;
/// Pages in a list, at most: 1 GiB of pages of 4 KiB.
pub const PAGES_MAX: usize = 1 << 18;
/// A file is not longer: a varint has at most ten bytes.
pub const FILE_BYTES_MAX: usize = HEADER_BYTES + PAGES_MAX * 10;

fn checksum(bytes: &[u8], database: DatabaseId) -> u32 {
    crc32c(crc32c(database.crc32c(&bytes[..12]), &[0; 4]), &bytes[16..])
}

/// Encodes an ascending list; pages beyond [`PAGES_MAX`] are left out.
pub fn encode(pages: &[PageNo], database: DatabaseId) -> Vec<u8> {
    let pages = &pages[..pages.len().min(PAGES_MAX)];
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&WARM_VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(pages.len() as u32).to_le_bytes());
    let mut before = 0;
    for page in pages {
        put_varint(&mut out, page.0.saturating_sub(before));
        before = page.0;
    }
    let crc = checksum(&out, database);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Decodes a file of this database.
///
/// # Errors
/// `BadEncoding`: another file, another database, or damage; `NewerFormat`: another version.
pub fn decode(bytes: &[u8], database: DatabaseId) -> Result<Vec<PageNo>> {
    let bad = |why: &str| {
        Error::new(Code::BadEncoding).with("what", "list of hot pages").with("why", why)
    };
    if bytes.len() < HEADER_BYTES || bytes.len() > FILE_BYTES_MAX {
        return Err(bad("its length"));
    }
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
    if &bytes[..8] != MAGIC {
        return Err(bad("its head"));
    }
    if word(12) != checksum(bytes, database) {
        return Err(bad("its checksum"));
    }
    if word(8) != WARM_VERSION {
        return Err(crate::codec::newer("list of hot pages", "version", word(8)));
    }
    let count = word(16) as usize;
    if count > PAGES_MAX || count > bytes.len() - HEADER_BYTES {
        return Err(bad("its number of pages"));
    }
    let mut r = Reader::new(&bytes[HEADER_BYTES..], "list of hot pages");
    let mut pages: Vec<PageNo> = Vec::with_capacity(count);
    for _ in 0..count {
        let step = r.varint()?;
        let page = match pages.last() {
            None => Some(step),
            Some(_) if step == 0 => None,
            Some(before) => before.0.checked_add(step),
        };
        pages.push(PageNo(page.ok_or_else(|| bad("pages out of order"))?));
    }
    r.finish()?;
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DB: DatabaseId = DatabaseId(7);

    #[test]
    fn a_hot_page_list_round_trips_and_damage_is_refused() {
        for pages in [vec![], vec![0], vec![5, 6, 7, 300, 1 << 40, u64::MAX]] {
            let pages: Vec<PageNo> = pages.into_iter().map(PageNo).collect();
            let bytes = encode(&pages, DB);
            assert_eq!(decode(&bytes, DB).expect("decodes"), pages);
            assert!(decode(&bytes, DatabaseId(8)).is_err(), "of another database");
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                assert!(decode(&damaged, DB).is_err(), "byte {at}");
                assert!(decode(&bytes[..at], DB).is_err(), "cut at {at}");
            }
        }
    }

    #[test]
    fn a_hot_page_list_is_bounded() {
        let pages: Vec<PageNo> = (0..PAGES_MAX as u64 + 5).map(PageNo).collect();
        let bytes = encode(&pages, DB);
        assert_eq!(decode(&bytes, DB).expect("decodes").len(), PAGES_MAX);
        assert!(decode(&vec![0; FILE_BYTES_MAX + 1], DB).is_err());
    }
}
