//! The page space: segment files of 1 GiB, extents of 1 MiB, and the pages that describe them. All
//! changes of these pages are page ops below 32; [`apply`] makes them, at run time and in redo
//! alike, so that both give the same bytes.
//!
//! Extent 0 of each segment begins with the segment's map pages, formatted when the file is made;
//! the rest of it holds fragment pages. Any fragment extent has one owners page (in extent 0 behind
//! the map pages, else its first page) that names the tree of each of its pages.
//!
//! ```text
//! map page payload:    segments u32 (map page 0 of segment 0 only), reserved 12, descriptors
//! descriptor:          tree u32, incarnation u32, state u8, reserved 3, used bits (1 per page)
//! owners page payload: tree u32 per page of the extent (0: free)
//! ```

use crate::codec::Unknown;
use crate::{Reader, page, put_varint};
use evenkeel_base::{Code, Error, Lsn, PageNo, Result, TreeId};
use page::{HEADER_BYTES, PageHeader, PageKind};
use std::ops::Range;

/// Bytes of a segment file.
pub const SEGMENT_BYTES: u64 = 1 << 30;
/// Bytes of an extent.
pub const EXTENT_BYTES: u64 = 1 << 20;
/// Extents of a segment.
pub const SEGMENT_EXTENTS: u32 = (SEGMENT_BYTES / EXTENT_BYTES) as u32;
/// A tree takes this many fragment pages before it takes extents.
pub const TREE_FRAGMENTS: usize = 32;
/// Segment files a page space may have (16 TiB).
pub const MAX_SEGMENTS: u32 = 16 * 1024;
/// The owner written in the owners page for pages of the space itself.
pub const SPACE_TREE: TreeId = TreeId(u32::MAX);

const MAP_HEAD: usize = 16;
const DESCRIPTOR_HEAD: usize = 12;

/// Page ops of this layer.
pub mod op {
    /// Formats a page: kind u8, tree u32, incarnation u32.
    pub const FORMAT: u8 = 0;
    /// Number of segments, in the first map page: u32.
    pub const SEGMENTS: u8 = 1;
    /// Allocates or frees an extent, with all its pages unused: slot u16, state u8, tree u32,
    /// incarnation u32.
    pub const EXTENT: u8 = 2;
    /// Marks a page of a tree's extent: slot u16, page u16, used u8.
    pub const USED: u8 = 3;
    /// Names the owner of a fragment page: page u16, tree u32.
    pub const OWNER: u8 = 4;
    /// Names pages whose content was written without redo and is durable (E3), in the record that
    /// makes them reachable: ranges of (first page varint, count varint). Changes nothing.
    pub const UNLOGGED: u8 = 5;
}

/// The use of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExtentState {
    /// No owner.
    Free = 0,
    /// Pages of one tree.
    Tree = 1,
    /// Single pages of many trees.
    Fragments = 2,
}

/// Checks that the payload of a map page holds nothing that this version does not know.
pub(crate) fn check_known_map(payload: &[u8], page: PageNo) -> std::result::Result<(), Unknown> {
    // Only the first map page of all says how many segments there are.
    let reserved = if page == PageNo::ZERO { 4 } else { 0 };
    let Ok(geometry) = Geometry::new(payload.len() + HEADER_BYTES) else { return Ok(()) };
    let (head, rest) = payload.split_at(MAP_HEAD);
    Unknown::check_zero("map_reserved", &head[reserved..])?;
    let bytes = geometry.descriptor_bytes();
    let (descriptors, rest) = rest.split_at(geometry.map_slots() as usize * bytes);
    for descriptor in descriptors.chunks_exact(bytes) {
        if ExtentState::from_u8(descriptor[8]).is_none() {
            return Err(Unknown { field: "extent_state", found: descriptor[8].into() });
        }
        Unknown::check_zero("extent_reserved", &descriptor[9..DESCRIPTOR_HEAD])?;
    }
    Unknown::check_zero("map_rest", rest)
}

/// Checks that the payload of an owners page holds nothing that this version does not know.
pub(crate) fn check_known_owners(payload: &[u8]) -> std::result::Result<(), Unknown> {
    let Ok(geometry) = Geometry::new(payload.len() + HEADER_BYTES) else { return Ok(()) };
    Unknown::check_zero("owners_rest", &payload[geometry.extent_pages() as usize * 4..])
}

impl ExtentState {
    fn from_u8(value: u8) -> Option<ExtentState> {
        [ExtentState::Free, ExtentState::Tree, ExtentState::Fragments]
            .into_iter()
            .find(|s| *s as u8 == value)
    }
}

/// A decoded extent descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its tree (`Tree` only).
    pub tree: TreeId,
    /// Grows each time the extent is allocated.
    pub incarnation: u32,
    /// Its use.
    pub state: ExtentState,
    /// One bit per page in use (`Tree` only).
    pub used: [u64; 4],
}

/// The places of all parts for one page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    page_size: usize,
}

impl Geometry {
    /// The geometry of a page size. # Errors: `BadPageSize`.
    pub fn new(page_size: usize) -> Result<Geometry> {
        if page::PAGE_SIZES.contains(&page_size) {
            return Ok(Geometry { page_size });
        }
        Err(Error::new(Code::BadPageSize).with("page_size", page_size))
    }
    /// Bytes of a page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }
    /// Pages of an extent (at most 256).
    pub fn extent_pages(&self) -> u32 {
        (EXTENT_BYTES / self.page_size as u64) as u32
    }
    /// Pages of a segment.
    pub fn segment_pages(&self) -> u64 {
        SEGMENT_BYTES / self.page_size as u64
    }
    fn descriptor_bytes(&self) -> usize {
        DESCRIPTOR_HEAD + self.extent_pages() as usize / 8
    }
    /// Descriptors of a map page.
    pub fn map_slots(&self) -> u32 {
        ((self.page_size - HEADER_BYTES - MAP_HEAD) / self.descriptor_bytes()) as u32
    }
    /// Map pages of a segment.
    pub fn segment_maps(&self) -> u32 {
        SEGMENT_EXTENTS.div_ceil(self.map_slots())
    }
    /// The extent of a page and the page's index in it. Beyond the largest space: `None`.
    pub fn extent_of(&self, page: PageNo) -> Option<(u32, u32)> {
        let extent = u32::try_from(page.0 / u64::from(self.extent_pages())).ok()?;
        if extent / SEGMENT_EXTENTS >= MAX_SEGMENTS {
            return None;
        }
        Some((extent, (page.0 % u64::from(self.extent_pages())) as u32))
    }
    /// The page at an index of an extent.
    pub fn page_at(&self, extent: u32, index: u32) -> PageNo {
        PageNo(u64::from(extent) * u64::from(self.extent_pages()) + u64::from(index))
    }
    /// Map page and slot of an extent.
    pub fn map_of(&self, extent: u32) -> (PageNo, u16) {
        let (segment, within) = (extent / SEGMENT_EXTENTS, extent % SEGMENT_EXTENTS);
        let first = self.page_at(segment * SEGMENT_EXTENTS, 0);
        (PageNo(first.0 + u64::from(within / self.map_slots())), (within % self.map_slots()) as u16)
    }
    /// The extent that `slot` of a map page describes. # Errors: `BadEncoding`.
    pub fn extent_in_map(&self, map: PageNo, slot: u16) -> Result<u32> {
        let found = self.extent_of(map).filter(|(extent, index)| {
            extent.is_multiple_of(SEGMENT_EXTENTS)
                && *index < self.segment_maps()
                && u32::from(slot) < self.map_slots()
        });
        match found {
            Some((extent, index)) => Ok(extent + index * self.map_slots() + u32::from(slot)),
            None => Err(Error::new(Code::BadEncoding).with("map", map).with("slot", slot)),
        }
    }
    /// Index of the owners page in a fragment extent; the pages before it are map pages.
    pub fn owners_index(&self, extent: u32) -> u32 {
        if extent.is_multiple_of(SEGMENT_EXTENTS) { self.segment_maps() } else { 0 }
    }
    /// The owners page of a fragment extent.
    pub fn owners_page(&self, extent: u32) -> PageNo {
        self.page_at(extent, self.owners_index(extent))
    }

    /// The descriptor in `slot` of a map page's payload. # Errors: `BadEncoding`, `NewerFormat`.
    pub fn descriptor(&self, payload: &[u8], slot: u16) -> Result<Descriptor> {
        let size = self.descriptor_bytes();
        let at = MAP_HEAD + usize::from(slot) * size;
        let mut r = Reader::new(payload.get(at..at + size).unwrap_or(&[]), "extent descriptor");
        let (tree, incarnation, state) = (TreeId(r.u32()?), r.u32()?, r.u8()?);
        let Some(state) = ExtentState::from_u8(state) else {
            return Err(r.newer("state", state).with("slot", slot));
        };
        let reserved = r.take(3)?;
        r.zero("reserved", reserved)?;
        let mut used = [0u64; 4];
        for word in used.iter_mut().take(self.extent_pages() as usize / 64) {
            *word = r.u64()?;
        }
        Ok(Descriptor { tree, incarnation, state, used })
    }

    /// Number of segments in the first map page's payload. # Errors: `BadEncoding`.
    pub fn segments(&self, payload: &[u8]) -> Result<u32> {
        let mut r = Reader::new(payload, "first map page");
        let segments = r.u32()?;
        if segments == 0 || segments > MAX_SEGMENTS {
            return Err(r.bad("number of segments").with("segments", segments));
        }
        Ok(segments)
    }

    /// The owner of page `index` in an owners page's payload (zero: free). # Errors: `BadEncoding`.
    pub fn owner(&self, payload: &[u8], index: u32) -> Result<TreeId> {
        let at = index as usize * 4;
        let bytes = payload.get(at..at + 4).unwrap_or(&[]);
        Ok(TreeId(Reader::new(bytes, "owners page").u32()?))
    }

    /// The map pages and the owners page of a new segment, as (page number, unsealed image).
    pub fn new_segment(&self, segment: u32) -> Vec<(PageNo, Vec<u8>)> {
        let extent = segment * SEGMENT_EXTENTS;
        let owners = self.owners_index(extent);
        let image = |index: u32| {
            let kind = if index < owners { PageKind::SpaceMap } else { PageKind::Owners };
            let page_no = self.page_at(extent, index);
            let mut image = vec![0; self.page_size];
            let header =
                PageHeader { kind, page_no, lsn: Lsn::ZERO, tree: TreeId::ZERO, incarnation: 1 };
            page::format(&mut image, &header);
            let payload = &mut image[HEADER_BYTES..];
            if index == owners {
                for at in 0..=owners as usize {
                    payload[at * 4..at * 4 + 4].copy_from_slice(&SPACE_TREE.0.to_le_bytes());
                }
            } else if index == 0 {
                payload[..4].copy_from_slice(&u32::from(segment == 0).to_le_bytes());
                payload[MAP_HEAD + 4] = 1;
                payload[MAP_HEAD + 8] = ExtentState::Fragments as u8;
            }
            (page_no, image)
        };
        (0..=owners).map(image).collect()
    }

    /// Applies a page op below 32 to a whole page (header included); the caller sets the LSN.
    ///
    /// # Errors
    /// `BadEncoding`: an op that does not fit the page, which is then unchanged; `NewerFormat`: one
    /// that this version does not know.
    pub fn apply(&self, op: u8, payload: &[u8], page_no: PageNo, page: &mut [u8]) -> Result<()> {
        let mut r = Reader::new(payload, "space op");
        if op == op::FORMAT {
            let (kind, tree, incarnation) = (r.u8()?, TreeId(r.u32()?), r.u32()?);
            let Some(kind) = PageKind::from_u8(kind) else {
                return Err(r.newer("page_kind", kind));
            };
            r.finish()?;
            let header = PageHeader { kind, page_no, lsn: Lsn::ZERO, tree, incarnation };
            page::format(page, &header);
            return Ok(());
        }
        if op == op::UNLOGGED {
            return decode_unlogged(payload).map(|_| ());
        }
        let wanted = if op == op::OWNER { PageKind::Owners } else { PageKind::SpaceMap };
        if page::kind(page) != Some(wanted) {
            return Err(r.bad("a space op on a page of another kind").with("page", page_no));
        }
        let body = &mut page[HEADER_BYTES..];
        match op {
            op::SEGMENTS => {
                let segments = r.u32()?;
                body[..4].copy_from_slice(&segments.to_le_bytes());
            }
            op::EXTENT => {
                let (slot, state, tree, incarnation) = (r.u16()?, r.u8()?, r.u32()?, r.u32()?);
                let descriptor = self.slot(body, slot, &r)?;
                if ExtentState::from_u8(state).is_none() {
                    return Err(r.newer("state", state));
                }
                descriptor.fill(0);
                descriptor[..4].copy_from_slice(&tree.to_le_bytes());
                descriptor[4..8].copy_from_slice(&incarnation.to_le_bytes());
                descriptor[8] = state;
            }
            op::USED => {
                let (slot, index, used) = (r.u16()?, r.u16()?, r.flag("used")?);
                let bits = &mut self.slot(body, slot, &r)?[DESCRIPTOR_HEAD..];
                let Some(byte) = bits.get_mut(usize::from(index / 8)) else {
                    return Err(r.bad("page beyond the extent"));
                };
                let bit = 1 << (index % 8);
                *byte = if used { *byte | bit } else { *byte & !bit };
            }
            op::OWNER => {
                let (index, tree) = (r.u16()?, r.u32()?);
                if u32::from(index) >= self.extent_pages() {
                    return Err(r.bad("page beyond the extent"));
                }
                let at = usize::from(index) * 4;
                body[at..at + 4].copy_from_slice(&tree.to_le_bytes());
            }
            _ => return Err(r.newer("op", op)),
        }
        r.finish()
    }

    fn slot<'a>(&self, body: &'a mut [u8], slot: u16, r: &Reader<'_>) -> Result<&'a mut [u8]> {
        let size = self.descriptor_bytes();
        let at = MAP_HEAD + usize::from(slot) * size;
        if u32::from(slot) >= self.map_slots() {
            return Err(r.bad("slot beyond the map page"));
        }
        Ok(&mut body[at..at + size])
    }
}

/// Payload of a FORMAT op.
pub fn encode_format(kind: PageKind, tree: TreeId, incarnation: u32) -> [u8; 9] {
    let mut out = [0; 9];
    out[0] = kind as u8;
    out[1..5].copy_from_slice(&tree.0.to_le_bytes());
    out[5..].copy_from_slice(&incarnation.to_le_bytes());
    out
}

/// Payload of an EXTENT op.
pub fn encode_extent(slot: u16, state: ExtentState, tree: TreeId, incarnation: u32) -> [u8; 11] {
    let mut out = [0; 11];
    out[..2].copy_from_slice(&slot.to_le_bytes());
    out[2] = state as u8;
    out[3..7].copy_from_slice(&tree.0.to_le_bytes());
    out[7..].copy_from_slice(&incarnation.to_le_bytes());
    out
}

/// Slot and state of an EXTENT op. # Errors: `BadEncoding`.
pub fn decode_extent(payload: &[u8]) -> Result<(u16, u8)> {
    let mut r = Reader::new(payload, "space op");
    Ok((r.u16()?, r.u8()?))
}

/// Payload of a USED op.
pub fn encode_used(slot: u16, index: u16, used: bool) -> [u8; 5] {
    let mut out = [0; 5];
    out[..2].copy_from_slice(&slot.to_le_bytes());
    out[2..4].copy_from_slice(&index.to_le_bytes());
    out[4] = u8::from(used);
    out
}

/// Slot, page index and mark of a USED op. # Errors: `BadEncoding`.
pub fn decode_used(payload: &[u8]) -> Result<(u16, u16, bool)> {
    let mut r = Reader::new(payload, "space op");
    Ok((r.u16()?, r.u16()?, r.flag("used")?))
}

/// Payload of an OWNER op.
pub fn encode_owner(index: u16, tree: TreeId) -> [u8; 6] {
    let mut out = [0; 6];
    out[..2].copy_from_slice(&index.to_le_bytes());
    out[2..].copy_from_slice(&tree.0.to_le_bytes());
    out
}

/// Page index and tree of an OWNER op. # Errors: `BadEncoding`.
pub fn decode_owner(payload: &[u8]) -> Result<(u16, TreeId)> {
    let mut r = Reader::new(payload, "space op");
    Ok((r.u16()?, TreeId(r.u32()?)))
}

/// The ranges of ascending pages.
pub fn ranges_of(pages: &[PageNo]) -> Vec<Range<u64>> {
    let ranges = pages.chunk_by(|a, b| a.0 + 1 == b.0);
    ranges.map(|range| range[0].0..range[0].0 + range.len() as u64).collect()
}

/// Payload of an UNLOGGED op; the ranges ascend.
pub fn encode_unlogged(ranges: &[Range<u64>]) -> Vec<u8> {
    let mut out = Vec::new();
    for range in ranges {
        put_varint(&mut out, range.start);
        put_varint(&mut out, range.end - range.start);
    }
    out
}

/// The ranges of an UNLOGGED op. # Errors: `BadEncoding`.
pub fn decode_unlogged(payload: &[u8]) -> Result<Vec<Range<u64>>> {
    let mut r = Reader::new(payload, "space op");
    let (mut ranges, mut least) = (Vec::new(), 0);
    while !r.rest().is_empty() {
        let (first, count) = (r.varint()?, r.varint()?);
        let end = first.checked_add(count).filter(|end| first >= least && *end <= 1 << 44);
        let Some(end) = end else { return Err(r.bad("pages out of order")) };
        ranges.push(first..end);
        least = end;
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_of_every_page_size() {
        for size in page::PAGE_SIZES {
            let g = Geometry::new(size).expect("a size");
            assert!(g.segment_maps() * g.map_slots() >= SEGMENT_EXTENTS);
            assert!(g.owners_index(0) < g.extent_pages() - 1);
            assert!(g.extent_pages() as usize * 4 <= size - HEADER_BYTES);
            for extent in [0, 1, 90, 1023, 1024, 5000] {
                let page = g.page_at(extent, 3);
                assert_eq!(g.extent_of(page), Some((extent, 3)));
                assert_eq!(g.map_of(extent).0.0 / g.segment_pages(), u64::from(extent / 1024));
            }
            assert_eq!(g.extent_of(PageNo(u64::MAX)), None);
        }
        assert!(Geometry::new(5000).is_err());
    }

    #[test]
    fn unlogged_pages_are_named_in_ranges() {
        let pages = [3, 4, 5, 9, 200, 201].map(PageNo);
        let payload = encode_unlogged(&ranges_of(&pages));
        assert_eq!(payload.len(), 7);
        assert_eq!(decode_unlogged(&payload).expect("decodes"), [3..6, 9..10, 200..202]);
        assert!(decode_unlogged(&[9, 1, 3, 1]).is_err(), "descending");
        assert!(decode_unlogged(&[9]).is_err(), "cut short");
    }

    #[test]
    fn space_operations_change_only_their_field() {
        let g = Geometry::new(4096).expect("a size");
        let mut pages = g.new_segment(0);
        let (no, image) = &mut pages[0];
        let run = |op, payload: &[u8], image: &mut Vec<u8>| g.apply(op, payload, *no, image);
        assert_eq!(g.segments(&image[HEADER_BYTES..]).expect("decodes"), 1);
        run(op::EXTENT, &encode_extent(5, ExtentState::Tree, TreeId(8), 3), image).expect("fits");
        run(op::USED, &encode_used(5, 200, true), image).expect("fits");
        let d = g.descriptor(&image[HEADER_BYTES..], 5).expect("decodes");
        assert_eq!((d.tree, d.incarnation, d.state), (TreeId(8), 3, ExtentState::Tree));
        assert_eq!(d.used, [0, 0, 0, 1 << 8]);
        let first = g.descriptor(&image[HEADER_BYTES..], 0).expect("decodes");
        assert_eq!(first.state, ExtentState::Fragments);
        let before = image.clone();
        assert!(
            run(op::EXTENT, &encode_extent(999, ExtentState::Tree, TreeId(8), 3), image).is_err()
        );
        assert!(run(op::USED, &encode_used(5, 256, true), image).is_err());
        assert!(run(op::OWNER, &encode_owner(5, TreeId(1)), image).is_err());
        assert!(run(31, &[], image).is_err());
        assert_eq!(&before, image);
        let (no, owners) = pages.last_mut().expect("owners page");
        g.apply(op::OWNER, &encode_owner(77, TreeId(4)), *no, owners).expect("fits");
        assert_eq!(g.owner(&owners[HEADER_BYTES..], 77).expect("decodes"), TreeId(4));
        assert_eq!(g.owner(&owners[HEADER_BYTES..], 0).expect("decodes"), SPACE_TREE);
    }
}
