//! Nodes of the B+tree: slotted pages with fence keys, prefix truncation and key heads.
//!
//! A node fills the payload of a page (the bytes after the page header, at most 32 KiB). All
//! integers are little-endian; offsets count from the start of the payload.
//!
//! ```text
//!  0  u8   kind: 1 leaf, 2 inner (0: none, the page was freed; 3: overflow page, see `overflow`)
//!  1  u8   level: 0 in a leaf, the height above the leaves in an inner node
//!  2  u8   flags: 1 = no high fence (the node is the right edge), 2 = the parent's slot of this
//!          node says "dead since"
//!  3  u8   zero
//!  4  u16  slots
//!  6  u16  dead cells: cells of a leaf with DELETED
//!  8  u16  cells start: lowest byte of a cell
//! 10  u16  holes: unused bytes above cells start
//! 12  u16  length of the low fence
//! 14  u16  length of the high fence
//! 16  u16  length of the prefix
//! 18  u16  zero
//! 20  slots, 8 bytes each, in key order:
//!          u32 head (first four bytes of the key suffix, big-endian value, padded with zeros),
//!          u16 offset of the cell, u16 length of the cell
//! ..  free bytes
//! ..  cells, from cells start on, in any order, with holes
//! ..  low fence, high fence (they end the payload)
//!
//! leaf cell   u8 flags (`record::cell_flags`), u16 suffix length,
//!             [u64 transaction, u32 undo number] if STAMPED, suffix, row (the rest)
//! inner cell  u8 flags (1 = dead since), u64 child page, [u64 commit timestamp] if dead, suffix
//! ```
//!
//! Invariants (`Node::check` tells which one is broken):
//! * low <= every key < high; keys ascend strictly; the first key of an inner node is its low
//!   fence, so its children partition [low, high).
//! * prefix: every key of the node starts with it and cells store the rest. With a high fence it is
//!   the longest common prefix of both fences, so that every key that belongs here has it. At the
//!   right edge it is a prefix of the low fence that all present keys share (empty at first): a
//!   key without it ends the leaf.
//! * a slot of an inner node has a "dead since" exactly if its child has the flag; if the inner
//!   node has the flag itself, all its slots have one, none younger than the one above it.
//! * slots + cells + holes + fences fit; holes and dead cells are counted exactly.
//!
//! `check_page` refuses unknown kinds and flags and reserved bytes when a page is read.
//! `Node::parse` checks the header in O(1); every later access checks the cell it touches, so
//! damaged bytes give errors or wrong answers but never a panic. The functions that change a node
//! are deterministic: redo repeats them on the same bytes and gets the same bytes.

use crate::codec::Unknown;
use crate::record::cell_flags::{self, DELETED, STAMPED};
use evenkeel_base::{Code, Error, Lsn, PageNo, Result, Stamp, TxnId, UndoNo};

use crate::overflow::KIND_OVERFLOW;

pub use crate::node_edit::NodeMut;
use std::cmp::Ordering;

/// Kind byte of a page that is not a node (any more).
pub const KIND_NONE: u8 = 0;
/// Kind byte of a leaf.
pub const KIND_LEAF: u8 = 1;
/// Kind byte of an inner node.
pub const KIND_INNER: u8 = 2;

/// Bytes before the first slot.
pub const HEADER_BYTES: usize = 20;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 8;
/// Bytes of a stamp in a cell.
const STAMP_BYTES: usize = 12;
/// Bytes of a leaf cell beside stamp, suffix and row.
const LEAF_CELL_BYTES: usize = 3;
/// Bytes of an inner cell beside the timestamp and the suffix.
const INNER_CELL_BYTES: usize = 9;
/// Levels of a tree, at most: enough for 2^64 rows at the smallest fan-out.
pub const LEVELS_MAX: u8 = 32;

pub(crate) const FLAG_NO_HIGH: u8 = 1;
pub(crate) const FLAG_DEAD: u8 = 2;
const INNER_DEAD: u8 = 1;

/// Longest clustered key for a page size (E5).
pub const fn key_bytes_max(page_size: usize) -> usize {
    page_size / 5
}

/// Bytes of a page that two rows of the longest size with short keys do not use, half of them for
/// each.
const HALF_PAGE_BESIDE: usize = 66;
/// Bytes of a page with one row, without key, row and fences; a high fence may be one byte longer
/// than the key before it.
const ONE_ROW_BESIDE: usize =
    crate::page::HEADER_BYTES + HEADER_BYTES + SLOT_BYTES + LEAF_CELL_BYTES + STAMP_BYTES + 1;

/// Longer rows move their longest values to overflow pages (E4), as far as possible.
pub const fn row_bytes_whole(page_size: usize) -> usize {
    page_size / 4
}

/// Longest row in a leaf under a clustered key of this length. About half a page; less with a long
/// key, because a leaf must take one row whatever its fences: then a split makes room for any row,
/// if necessary in a leaf of its own.
pub const fn row_bytes_max(page_size: usize, key_len: usize) -> usize {
    let half = page_size / 2 - HALF_PAGE_BESIDE;
    let longest = key_bytes_max(page_size);
    let key_len = if key_len < longest { key_len } else { longest };
    let alone = page_size - ONE_ROW_BESIDE - 2 * longest - key_len;
    if half < alone { half } else { alone }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..at + 2) {
        Some(b) => usize::from(u16::from_le_bytes([b[0], b[1]])),
        None => 0,
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
}

/// A node with fewer slots is searched by binary search alone.
const GUESS_SLOTS_MIN: usize = 16;
/// Slots between a guess and the next look, at most: half a cache line.
const GUESS_SLOTS: usize = 4;

/// The head of a key suffix.
pub(crate) fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<4>() {
        Some(chunk) => u32::from_be_bytes(*chunk),
        None => {
            let mut chunk = [0; 4];
            chunk[..suffix.len()].copy_from_slice(suffix);
            u32::from_be_bytes(chunk)
        }
    }
}

/// Compares as slices do. Not by `memcmp`: keys are short, and its vector loads reach beyond the
/// end of a frame, which costs microseconds if the memory behind was never touched.
pub fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (x, a_tail) = a.as_chunks::<8>();
    let (y, b_tail) = b.as_chunks::<8>();
    for (x, y) in x.iter().zip(y) {
        if x != y {
            return u64::from_be_bytes(*x).cmp(&u64::from_be_bytes(*y));
        }
    }
    // The rest of both: the shorter one has less than one chunk left.
    let shared = x.len().min(y.len()) * 8;
    let (a, b) = if x.len() == y.len() { (a_tail, b_tail) } else { (&a[shared..], &b[shared..]) };
    a.iter().cmp(b)
}

/// The rest behind the prefix; `None` if the key does not start with it.
pub fn strip_prefix<'k>(key: &'k [u8], prefix: &[u8]) -> Option<&'k [u8]> {
    let (head, rest) = key.split_at_checked(prefix.len())?;
    (compare(head, prefix) == Ordering::Equal).then_some(rest)
}

/// Length of the longest common prefix.
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let mut at = 0;
    while let (Some(x), Some(y)) = (a[at..].first_chunk(), b[at..].first_chunk()) {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return at + differ.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(x, y)| x == y).count()
}

/// The shortest key `s` with `left < s <= right`.
pub fn separator<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    debug_assert!(left < right);
    &right[..(common_prefix(left, right) + 1).min(right.len())]
}

#[cold]
pub(crate) fn bad(why: &'static str) -> Error {
    Error::new(Code::BadEncoding).with("what", "tree node").with("why", why)
}

/// A cell of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafCell<'a> {
    /// `record::cell_flags`.
    pub flags: u8,
    /// Zero unless `STAMPED`.
    pub stamp: Stamp,
    /// The row.
    pub row: &'a [u8],
}

impl LeafCell<'_> {
    /// Bytes of the cell with a key suffix of this length.
    pub fn cell_bytes(&self, suffix_len: usize) -> usize {
        let stamp = if self.flags & STAMPED != 0 { STAMP_BYTES } else { 0 };
        LEAF_CELL_BYTES + stamp + suffix_len + self.row.len()
    }

    #[inline]
    pub(crate) fn write(&self, out: &mut [u8], suffix: &[u8]) {
        out[0] = self.flags;
        put_u16(out, 1, suffix.len());
        let mut at = LEAF_CELL_BYTES;
        if self.flags & STAMPED != 0 {
            out[3..11].copy_from_slice(&self.stamp.txn.0.to_le_bytes());
            out[11..15].copy_from_slice(&self.stamp.undo_no.0.to_le_bytes());
            at += STAMP_BYTES;
        }
        out[at..at + suffix.len()].copy_from_slice(suffix);
        out[at + suffix.len()..].copy_from_slice(self.row);
    }
}

/// A cell of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerCell {
    /// The child.
    pub child: PageNo,
    /// Set if snapshots at or above this timestamp see no row in or below the child (E6).
    pub dead_since: Option<Lsn>,
}

impl InnerCell {
    /// Bytes of the cell with a key suffix of this length.
    pub fn cell_bytes(&self, suffix_len: usize) -> usize {
        INNER_CELL_BYTES + if self.dead_since.is_some() { 8 } else { 0 } + suffix_len
    }

    pub(crate) fn write(&self, out: &mut [u8], suffix: &[u8]) {
        out[0] = if self.dead_since.is_some() { INNER_DEAD } else { 0 };
        out[1..9].copy_from_slice(&self.child.0.to_le_bytes());
        let mut at = INNER_CELL_BYTES;
        if let Some(cts) = self.dead_since {
            out[at..at + 8].copy_from_slice(&cts.0.to_le_bytes());
            at += 8;
        }
        out[at..].copy_from_slice(suffix);
    }
}

/// Checks that the payload of a whole tree page holds nothing that this version does not know,
/// cells and overflow pages included: once, when the page is read. Bytes that contradict
/// themselves pass; `Node::parse` and `Node::check` tell of them.
///
/// # Errors
/// `PageVersion` naming the field; the caller adds page, file and offset.
pub fn check_page(payload: &[u8]) -> Result<()> {
    check_known_but(payload, 0)
        .map_err(|unknown| Error::new(Code::PageVersion).with(unknown.field, unknown.found))
}

/// The same for an image of a node (`tree_op`), which lacks the bytes between slots and cells.
pub(crate) fn check_known_image(image: &[u8]) -> std::result::Result<(), Unknown> {
    let slots_end = HEADER_BYTES + SLOT_BYTES * u16_at(image, 4);
    check_known_but(image, u16_at(image, 8).saturating_sub(slots_end))
}

/// `missing` bytes in front of the cells are left out.
fn check_known_but(payload: &[u8], missing: usize) -> std::result::Result<(), Unknown> {
    let Some((head, _)) = payload.split_first_chunk::<HEADER_BYTES>() else { return Ok(()) };
    let known = match head[0] {
        KIND_NONE => return Ok(()),
        KIND_OVERFLOW => return Unknown::check_zero("zero", &head[1..4]),
        KIND_LEAF => cell_flags::IN_LEAF,
        KIND_INNER => INNER_DEAD,
        kind => return Err(Unknown { field: "node_kind", found: kind.into() }),
    };
    Unknown::check("node_flags", head[2], FLAG_NO_HIGH | FLAG_DEAD)?;
    Unknown::check_zero("zero", &head[3..4])?;
    Unknown::check_zero("zero2", &head[18..])?;
    let slots = payload.get(HEADER_BYTES..HEADER_BYTES + SLOT_BYTES * u16_at(payload, 4));
    let (slots, _) = slots.unwrap_or(&[]).as_chunks::<SLOT_BYTES>();
    // All flags first: nearly always all of them are known.
    let flags = |slot: &[u8; SLOT_BYTES]| {
        let at = u16_at(slot, 4).checked_sub(missing);
        at.and_then(|at| payload.get(at)).copied().unwrap_or(0)
    };
    let all = slots.iter().fold(0, |all, slot| all | flags(slot));
    Unknown::check("cell_flags", all, known)
}

/// The figures of a node's header as `Node::parse` found them. A reader of slot after slot of the
/// same bytes passes them on instead of parsing the header again.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeShape {
    count: usize,
    level: u8,
    cells_start: usize,
    cells_end: usize,
    prefix_len: usize,
}

/// A node for reading.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    bytes: &'a [u8],
    slots: &'a [[u8; SLOT_BYTES]],
    level: u8,
    pub(crate) cells_start: usize,
    pub(crate) cells_end: usize,
    prefix: &'a [u8],
}

impl<'a> Node<'a> {
    /// Reads the header. # Errors: `BadEncoding` if it contradicts itself.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Node<'a>> {
        if bytes.len() < HEADER_BYTES || bytes.len() > usize::from(u16::MAX) {
            return Err(bad("length of the page"));
        }
        let level = bytes[1];
        let kind_fits = match bytes[0] {
            KIND_LEAF => level == 0,
            KIND_INNER => (1..=LEVELS_MAX).contains(&level),
            _ => false,
        };
        if !kind_fits {
            return Err(bad("kind or level"));
        }
        let cells_start = u16_at(bytes, 8);
        let (low, high, prefix) = (u16_at(bytes, 12), u16_at(bytes, 14), u16_at(bytes, 16));
        let slots_end = HEADER_BYTES + SLOT_BYTES * u16_at(bytes, 4);
        let Some(cells_end) = bytes.len().checked_sub(low + high) else {
            return Err(bad("length of the fences"));
        };
        if slots_end > cells_start || cells_start > cells_end || prefix > low {
            return Err(bad("slots, cells and fences overlap"));
        }
        let slots = bytes[HEADER_BYTES..slots_end].as_chunks().0;
        let prefix = &bytes[cells_end..cells_end + prefix];
        Ok(Node { bytes, slots, level, cells_start, cells_end, prefix })
    }

    /// What the header says.
    pub fn shape(&self) -> NodeShape {
        NodeShape {
            count: self.slots.len(),
            level: self.level,
            cells_start: self.cells_start,
            cells_end: self.cells_end,
            prefix_len: self.prefix.len(),
        }
    }

    /// The node of these bytes, whose shape is known.
    ///
    /// # Errors
    /// `BadEncoding` if the shape is that of a longer node.
    #[inline]
    pub fn of_shape(bytes: &'a [u8], shape: NodeShape) -> Result<Node<'a>> {
        let NodeShape { count, level, cells_start, cells_end, prefix_len } = shape;
        let slots = bytes.get(HEADER_BYTES..HEADER_BYTES + SLOT_BYTES * count);
        let prefix = bytes.get(cells_end..cells_end + prefix_len);
        let (Some(slots), Some(prefix)) = (slots, prefix) else {
            return Err(bad("shape of another node"));
        };
        Ok(Node { bytes, slots: slots.as_chunks().0, level, cells_start, cells_end, prefix })
    }

    /// True in a leaf.
    pub fn is_leaf(&self) -> bool {
        self.level == 0
    }
    /// Height above the leaves.
    pub fn level(&self) -> u8 {
        self.level
    }
    /// Number of slots.
    pub fn count(&self) -> usize {
        self.slots.len()
    }
    /// Cells with DELETED.
    pub fn dead_count(&self) -> usize {
        u16_at(self.bytes, 6)
    }
    /// True if the parent's slot of this node has a "dead since".
    pub fn is_marked_dead(&self) -> bool {
        self.bytes[2] & FLAG_DEAD != 0
    }
    /// Keys of the node are at or above this.
    pub fn low(&self) -> &'a [u8] {
        &self.bytes[self.cells_end..self.bytes.len() - u16_at(self.bytes, 14)]
    }
    /// Keys of the node are below this; `None` at the right edge.
    pub fn high(&self) -> Option<&'a [u8]> {
        let at = self.bytes.len() - u16_at(self.bytes, 14);
        (self.bytes[2] & FLAG_NO_HIGH == 0).then(|| &self.bytes[at..])
    }
    /// The common prefix of all keys of the node.
    pub fn prefix(&self) -> &'a [u8] {
        self.prefix
    }
    /// True if the key belongs here.
    pub fn covers(&self, key: &[u8]) -> bool {
        compare(self.low(), key).is_le()
            && self.high().is_none_or(|high| compare(key, high).is_lt())
    }
    /// True if the greatest key below `key` belongs here.
    pub fn covers_before(&self, key: &[u8]) -> bool {
        compare(self.low(), key).is_lt()
            && self.high().is_none_or(|high| compare(key, high).is_le())
    }

    /// Bytes available for an insert, slot included.
    pub fn free_bytes(&self) -> usize {
        let slots_end = HEADER_BYTES + SLOT_BYTES * self.count();
        (self.cells_start - slots_end + u16_at(self.bytes, 10)).min(self.bytes.len())
    }
    /// Bytes in use, header and fences included.
    pub fn used_bytes(&self) -> usize {
        self.bytes.len() - self.free_bytes()
    }
    /// Bytes of the payload.
    pub fn payload_bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(crate) fn slot(&self, i: usize) -> (u32, usize, usize) {
        match self.slots.get(i) {
            Some(s) => (
                u32::from_le_bytes([s[0], s[1], s[2], s[3]]),
                usize::from(u16::from_le_bytes([s[4], s[5]])),
                usize::from(u16::from_le_bytes([s[6], s[7]])),
            ),
            None => (0, 0, 0),
        }
    }

    /// The bytes of a cell; empty if the slot is damaged or missing.
    #[inline]
    pub(crate) fn cell(&self, i: usize) -> &'a [u8] {
        let (_, at, len) = self.slot(i);
        self.bytes.get(at..at + len).unwrap_or(&[])
    }

    /// Length of a cell.
    pub fn cell_len(&self, i: usize) -> usize {
        self.slot(i).2
    }

    /// The key of a slot without the prefix; empty if the cell is damaged.
    pub fn suffix(&self, i: usize) -> &'a [u8] {
        self.cell_parts(i).map_or(&[], |(_, suffix, _)| suffix)
    }

    /// A cell split into the part before its key suffix, the suffix, and the rest; `None` if it is
    /// damaged.
    pub(crate) fn cell_parts(&self, i: usize) -> Option<(&'a [u8], &'a [u8], &'a [u8])> {
        let cell = self.cell(i);
        let flags = *cell.first()?;
        let (start, end) = if self.is_leaf() {
            let start = LEAF_CELL_BYTES + if flags & STAMPED != 0 { STAMP_BYTES } else { 0 };
            (start, start + u16_at(cell, 1))
        } else {
            (INNER_CELL_BYTES + if flags & INNER_DEAD != 0 { 8 } else { 0 }, cell.len())
        };
        let (head, rest) = cell.split_at_checked(end)?;
        let (fixed, suffix) = head.split_at_checked(start)?;
        Some((fixed, suffix, rest))
    }

    /// Appends the key of a slot.
    pub fn key_to(&self, i: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(self.suffix(i));
    }

    /// The key of a slot.
    pub fn key(&self, i: usize) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.prefix.len() + self.suffix(i).len());
        self.key_to(i, &mut key);
        key
    }

    /// Compares the key of a slot with `key`.
    pub fn cmp_key(&self, i: usize, key: &[u8]) -> Ordering {
        match strip_prefix(key, self.prefix) {
            Some(suffix) => compare(self.suffix(i), suffix),
            None => compare(self.prefix, key),
        }
    }

    /// First slot whose key is at or above `key`, and whether it is equal. Binary search misses the
    /// cache at each step, so the first look is a guess and the next ones lie near the previous
    /// one, at doubling distances.
    pub fn lower_bound(&self, key: &[u8]) -> (usize, bool) {
        let Some(suffix) = strip_prefix(key, self.prefix) else {
            return (if compare(self.prefix, key).is_lt() { self.count() } else { 0 }, false);
        };
        let head = head_of(suffix);
        let (mut from, mut to) = (0, self.count());
        let (mut look, mut reach) = (self.guess(head), GUESS_SLOTS);
        while from < to {
            let ord = self.slot(look).0.cmp(&head).then_with(|| compare(self.suffix(look), suffix));
            match ord {
                Ordering::Less => from = look + 1,
                Ordering::Greater => to = look,
                Ordering::Equal => return (look, true),
            }
            look = from.midpoint(to).clamp(look.saturating_sub(reach), look + reach);
            reach *= 2;
        }
        (from, false)
    }

    /// The slot of `head` if heads were spread evenly, as those of numbers are.
    fn guess(&self, head: u32) -> usize {
        let count = self.slots.len();
        let (first, last) = self.heads_between();
        if count < GUESS_SLOTS_MIN || first >= last {
            return count / 2;
        }
        let above = u64::from(head.clamp(first, last) - first);
        (above * count as u64 / u64::from(last - first)).min(count as u64 - 1) as usize
    }

    /// Bounds of the heads of the slots. Those of the fences are at hand with the header; the last
    /// slot's head, at the right edge, costs one more cache miss.
    fn heads_between(&self) -> (u32, u32) {
        let head = |fence: &[u8]| head_of(fence.get(self.prefix.len()..).unwrap_or(&[]));
        match self.high() {
            Some(high) => (head(self.low()), head(high)),
            None => (self.slot(0).0, self.slot(self.count().saturating_sub(1)).0),
        }
    }

    /// As `lower_bound`, after a first try behind the last slot (for ascending inserts).
    pub fn lower_bound_append(&self, key: &[u8]) -> (usize, bool) {
        match self.count().checked_sub(1) {
            Some(last) if self.cmp_key(last, key) == Ordering::Less => (last + 1, false),
            _ => self.lower_bound(key),
        }
    }

    /// Slot of the child that covers `key` (the node must).
    pub fn child_slot(&self, key: &[u8]) -> usize {
        let (i, equal) = self.lower_bound(key);
        if equal { i } else { i.saturating_sub(1) }
    }

    /// Slot of the child that covers the greatest key below `key`.
    pub fn child_slot_before(&self, key: &[u8]) -> usize {
        self.lower_bound(key).0.saturating_sub(1)
    }

    /// A cell of a leaf. # Errors: `BadEncoding`.
    pub fn leaf_cell(&self, i: usize) -> Result<LeafCell<'a>> {
        Ok(self.leaf_row(i)?.1)
    }

    /// The key of a leaf's slot without the prefix, and its cell. # Errors: `BadEncoding`.
    #[inline]
    pub fn leaf_row(&self, i: usize) -> Result<(&'a [u8], LeafCell<'a>)> {
        let cell = self.cell(i);
        let Some(&flags) = cell.first() else { return Err(bad("cell outside the page")) };
        let mut at = LEAF_CELL_BYTES;
        let mut stamp = Stamp::default();
        if flags & STAMPED != 0 {
            let undo_no = cell.get(at + 8..at + STAMP_BYTES);
            let (Some(txn), Some(&[a, b, c, d])) = (u64_at(cell, at), undo_no) else {
                return Err(bad("stamp outside the cell"));
            };
            stamp = Stamp { txn: TxnId(txn), undo_no: UndoNo(u32::from_le_bytes([a, b, c, d])) };
            at += STAMP_BYTES;
        }
        let behind = cell.get(at..).and_then(|rest| rest.split_at_checked(u16_at(cell, 1)));
        match behind {
            Some((suffix, row)) if self.is_leaf() => Ok((suffix, LeafCell { flags, stamp, row })),
            _ => Err(bad("suffix outside the cell")),
        }
    }

    /// A cell of an inner node. # Errors: `BadEncoding`.
    pub fn inner_cell(&self, i: usize) -> Result<InnerCell> {
        let cell = self.cell(i);
        let (Some(&flags), Some(child), false) = (cell.first(), u64_at(cell, 1), self.is_leaf())
        else {
            return Err(bad("child outside the page"));
        };
        let dead_since = if flags & INNER_DEAD != 0 {
            Some(Lsn(u64_at(cell, INNER_CELL_BYTES).ok_or(bad("timestamp outside the cell"))?))
        } else {
            None
        };
        Ok(InnerCell { child: PageNo(child), dead_since })
    }

    /// Bytes of slots and cells of a range when stored with a prefix of this length.
    pub fn packed_bytes(&self, range: std::ops::Range<usize>, prefix_len: usize) -> usize {
        let cells: usize = range.clone().map(|i| self.cell_len(i)).sum();
        let stored = cells + range.len() * (SLOT_BYTES + self.prefix.len());
        stored.saturating_sub(range.len() * prefix_len)
    }

    /// Verifies every invariant of the node. # Errors: `BadEncoding` that names the broken one.
    pub fn check(&self) -> Result<()> {
        let (low, high) = (self.low(), self.high());
        if high.is_none() && u16_at(self.bytes, 14) != 0 {
            return Err(bad("a high fence at the right edge"));
        }
        if high.is_some_and(|high| low >= high) {
            return Err(bad("fences out of order"));
        }
        if high.is_some_and(|high| self.prefix.len() != common_prefix(low, high)) {
            return Err(bad("prefix does not fit the fences"));
        }
        let (mut cells, mut dead) = (0, 0);
        for i in 0..self.count() {
            self.check_slot(i)?;
            cells += self.cell_len(i);
            if self.is_leaf() && self.leaf_cell(i)?.flags & DELETED != 0 {
                dead += 1;
            }
        }
        if dead != self.dead_count() {
            return Err(bad("count of dead cells"));
        }
        if cells + u16_at(self.bytes, 10) != self.cells_end - self.cells_start {
            return Err(bad("cells and holes do not add up"));
        }
        if !self.is_leaf() && (self.count() == 0 || self.cmp_key(0, low) != Ordering::Equal) {
            return Err(bad("the first child does not start at the low fence"));
        }
        Ok(())
    }

    fn check_slot(&self, i: usize) -> Result<()> {
        let (head, at, len) = self.slot(i);
        if at < self.cells_start || at + len > self.cells_end {
            return Err(bad("cell outside the cells"));
        }
        if self.is_leaf() {
            self.leaf_cell(i)?;
        } else {
            self.inner_cell(i)?;
        }
        let key = self.key(i);
        if head != head_of(self.suffix(i)) {
            return Err(bad("head does not fit the key"));
        }
        if !self.covers(&key) {
            return Err(bad("key outside the fences"));
        }
        if i > 0 && self.cmp_key(i - 1, &key) != Ordering::Less {
            return Err(bad("keys out of order"));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
