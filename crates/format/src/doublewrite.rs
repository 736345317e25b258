//! The head of a region of the doublewrite file `dw`: which pages its images are.
//!
//! ```text
//!  0 magic u32 "EKDW"    4 crc32c u32 of (database id, bytes 8..4096)    8 page size u32
//! 12 count u32          16 page numbers u64 x count (all ones: the image at this place belongs to
//!                          an older batch)                               the rest of 4,096: zero
//! ```

use crate::Reader;
use evenkeel_base::{DatabaseId, PageNo, Result};

/// Bytes of a head.
pub const HEAD_BYTES: usize = 4096;
/// Images of a batch, at most.
pub const IMAGES_MAX: usize = (HEAD_BYTES - NUMBERS_AT) / 8;
/// Number of an image that belongs to an older batch.
const ABSENT: u64 = u64::MAX;
const MAGIC: u32 = u32::from_le_bytes(*b"EKDW");
const NUMBERS_AT: usize = 16;

/// Writes a head over `out`. `pages` says for each image which page it is; `None` for one of an
/// older batch. Panics if `out` is not of `HEAD_BYTES` bytes, or there are too many images.
pub fn encode_head(
    page_size: u32,
    pages: impl ExactSizeIterator<Item = Option<PageNo>>,
    database: DatabaseId,
    out: &mut [u8],
) {
    assert!(out.len() == HEAD_BYTES && pages.len() <= IMAGES_MAX);
    out.fill(0);
    out[..4].copy_from_slice(&MAGIC.to_le_bytes());
    out[8..12].copy_from_slice(&page_size.to_le_bytes());
    out[12..16].copy_from_slice(&(pages.len() as u32).to_le_bytes());
    for (place, page) in out[NUMBERS_AT..].chunks_exact_mut(8).zip(pages) {
        place.copy_from_slice(&page.map_or(ABSENT, |page| page.0).to_le_bytes());
    }
    let crc = database.crc32c(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// The pages of the images behind a head, as `encode_head` was given them; `None` if the head was
/// torn during its own write, or never written, or is of another page size.
///
/// # Errors
/// `NewerFormat` if the head is whole and has a reserved byte that is not zero.
pub fn decode_head(
    head: &[u8],
    page_size: u32,
    database: DatabaseId,
) -> Result<Option<Vec<Option<PageNo>>>> {
    if head.len() != HEAD_BYTES {
        return Ok(None);
    }
    let mut r = Reader::new(head, "doublewrite head");
    let (magic, crc, size, count) = (r.u32()?, r.u32()?, r.u32()?, r.u32()? as usize);
    let whole = magic == MAGIC && crc == database.crc32c(&head[8..]);
    if !whole || size != page_size || count > IMAGES_MAX {
        return Ok(None);
    }
    let mut pages = Vec::with_capacity(count);
    for _ in 0..count {
        let number = r.u64()?;
        pages.push((number != ABSENT).then_some(PageNo(number)));
    }
    r.zero("rest", r.rest())?;
    Ok(Some(pages))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DB: DatabaseId = DatabaseId(9);

    #[test]
    fn a_head_gives_back_its_pages_and_a_torn_one_none() {
        let pages = [Some(PageNo(7)), None, Some(PageNo(1 << 40))];
        let mut head = vec![0xab; HEAD_BYTES];
        encode_head(8192, pages.into_iter(), DB, &mut head);
        assert_eq!(decode_head(&head, 8192, DB).expect("known"), Some(pages.to_vec()));
        assert_eq!(decode_head(&head, 4096, DB).expect("known"), None);
        assert_eq!(decode_head(&head, 8192, DatabaseId(8)).expect("known"), None);
        for at in 0..HEAD_BYTES {
            let mut torn = head.clone();
            torn[at] ^= 4;
            assert_eq!(decode_head(&torn, 8192, DB).expect("torn"), None, "byte {at}");
        }
        assert_eq!(decode_head(&head[1..], 8192, DB).expect("cut"), None);
    }
}
