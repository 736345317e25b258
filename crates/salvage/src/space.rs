//! Which pages are in use, as the map pages and owners pages say.

use crate::source::Source;
use evenkeel_base::PageNo;
use evenkeel_format::page::{HEADER_BYTES, PageHeader, PageKind};
use evenkeel_format::space::{Descriptor, ExtentState};
use std::collections::BTreeMap;

/// What the map says of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The page belongs to the tree that its header names.
    Listed,
    /// The page is free, belongs to another tree, or its extent has another incarnation.
    Unlisted,
    /// The map page or owners page is damaged.
    Unknown,
}

/// The map pages and owners pages, read once.
#[derive(Default)]
pub struct Space {
    maps: BTreeMap<u64, Vec<u8>>,
    owners: BTreeMap<u64, Vec<u8>>,
}

impl Space {
    /// Takes a page if it is a map page or an owners page.
    pub fn take(&mut self, number: PageNo, kind: PageKind, bytes: &[u8]) {
        let payload = || bytes[HEADER_BYTES..].to_vec();
        match kind {
            PageKind::SpaceMap => drop(self.maps.insert(number.0, payload())),
            PageKind::Owners => drop(self.owners.insert(number.0, payload())),
            PageKind::Tree => {}
        }
    }

    /// The descriptor of an extent, if its map page is not damaged.
    pub fn descriptor(&self, source: &Source, extent: u32) -> Option<Descriptor> {
        let (map, slot) = source.geometry.map_of(extent);
        source.geometry.descriptor(self.maps.get(&map.0)?, slot).ok()
    }

    /// What the map says of a page of a tree.
    pub fn of(&self, source: &Source, header: &PageHeader) -> Use {
        let Some((extent, index)) = source.geometry.extent_of(header.page_no) else {
            return Use::Unlisted;
        };
        let Some(found) = self.descriptor(source, extent) else { return Use::Unknown };
        let listed = |is: bool| if is { Use::Listed } else { Use::Unlisted };
        if found.incarnation != header.incarnation {
            return Use::Unlisted;
        }
        match found.state {
            ExtentState::Free => Use::Unlisted,
            ExtentState::Tree => {
                let bit = found.used[index as usize / 64] >> (index % 64) & 1 == 1;
                listed(bit && found.tree == header.tree)
            }
            ExtentState::Fragments => {
                let page = source.geometry.owners_page(extent);
                let owner = self.owners.get(&page.0);
                match owner.map(|payload| source.geometry.owner(payload, index)) {
                    Some(Ok(owner)) => listed(owner == header.tree),
                    _ => Use::Unknown,
                }
            }
        }
    }
}
