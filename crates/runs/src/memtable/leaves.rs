//! The ordered structure of one index of a memtable generation: leaves, each a sorted array of key
//! heads and entries behind a short mutex, under a directory of separators. Only elided pairs (D4)
//! are removed; their bytes stay in the arena.
//!
//! Order: key bytes (column bytes, then pk) by memcmp, then LSN *descending* (newest first), then
//! the newer entry first: a total order. Column bytes are prefix-free, so the concatenation sorts
//! like the tuple. A head is the first 16 bytes of a key as a number; keys are compared in the
//! arena only where heads are equal.
//!
//! Invariants: leaf i holds the entries at or above separator i - 1 and below separator i. A leaf
//! is locked only under the directory's lock; separators and the number of leaves change only under
//! its exclusive lock. No leaf is empty except the only one of an empty index. Every lock guards
//! memory work only. Only `memtable` may call this.

use crate::memtable::arena::{Arena, ArenaNode, item_bytes};
use evenkeel_base::sync::{Mutex, MutexGuard, RwLock};
use evenkeel_base::{IndexId, Lsn, Stamp, TxnId, UndoNo};
use evenkeel_format::head::{count_below, head_of};
use std::cmp::Ordering as Order;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Leaves between the ends of a range whose entries an estimate counts: each takes two dependent
/// reads of memory.
const COUNTED: usize = 8;
/// Entries of a leaf.
const LEAF: usize = 256;
/// The charge of an entry for its slot: 20 bytes in leaves that are 70 % full.
const SLOT_BYTES: usize = 28;

// An item of the arena: head, key (column bytes, pk), value.
const TXN: usize = 8;
const UNDO: usize = 16;
const KEY_LEN: usize = 20;
const PK_LEN: usize = 24;
const OP: usize = 28;
const HEAD: usize = 29;

/// The charge of an entry in bytes, given the lengths of its parts.
pub(crate) const fn charge(key: usize, pk: usize, value: usize) -> usize {
    item_bytes(HEAD + key + pk + value) + SLOT_BYTES
}

/// The parts of a new entry.
pub(crate) struct NewEntry<'a> {
    pub index: IndexId,
    pub op: u8,
    pub stamp: Stamp,
    pub lsn: Lsn,
    pub key: &'a [u8],
    pub pk: &'a [u8],
    pub value: &'a [u8],
}

impl NewEntry<'_> {
    /// Writes the entry into the arena.
    pub(crate) fn write(&self, arena: &Arena) -> ArenaNode {
        let mut head = [0; HEAD];
        head[..TXN].copy_from_slice(&self.lsn.0.to_le_bytes());
        head[TXN..UNDO].copy_from_slice(&self.stamp.txn.0.to_le_bytes());
        head[UNDO..KEY_LEN].copy_from_slice(&self.stamp.undo_no.0.to_le_bytes());
        let key_len = (self.key.len() + self.pk.len()) as u32;
        head[KEY_LEN..PK_LEN].copy_from_slice(&key_len.to_le_bytes());
        head[PK_LEN..OP].copy_from_slice(&(self.pk.len() as u32).to_le_bytes());
        head[OP] = self.op;
        arena.push([&head, self.key, self.pk, self.value])
    }
}

/// An entry in the arena.
#[derive(Clone, Copy)]
pub(crate) struct NodeRef<'a> {
    /// Column bytes, pk.
    pub key: &'a [u8],
    pub pk_len: usize,
    pub value: &'a [u8],
    pub op: u8,
    pub stamp: Stamp,
    pub lsn: Lsn,
}

#[inline]
fn u64_at(bytes: &[u8; HEAD], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[inline]
fn u32_at(bytes: &[u8; HEAD], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

impl<'a> NodeRef<'a> {
    #[inline]
    pub(crate) fn read(arena: &'a Arena, node: ArenaNode) -> NodeRef<'a> {
        let (head, bytes) = arena.get(node).split_first_chunk().expect("an entry has a head");
        let (key, value) = bytes.split_at(u32_at(head, KEY_LEN) as usize);
        NodeRef {
            key,
            pk_len: u32_at(head, PK_LEN) as usize,
            value,
            op: head[OP],
            stamp: Stamp { txn: TxnId(u64_at(head, TXN)), undo_no: UndoNo(u32_at(head, UNDO)) },
            lsn: Lsn(u64_at(head, 0)),
        }
    }
}

/// A place in the order, between entries: before the first entry that does not precede it.
#[derive(Clone, Copy)]
struct Place<'a> {
    head: u128,
    key: &'a [u8],
    lsn: u64,
    node: u32,
}

impl<'a> Place<'a> {
    /// Before every entry with `key` or a greater one.
    fn at_key(key: &'a [u8]) -> Place<'a> {
        Place { head: head_of(key), key, lsn: u64::MAX, node: u32::MAX }
    }

    fn before(arena: &'a Arena, node: ArenaNode) -> Place<'a> {
        let entry = NodeRef::read(arena, node);
        let (key, lsn) = (entry.key, entry.lsn.0);
        Place { head: head_of(key), key, lsn, node: node.number() }
    }

    fn after(arena: &'a Arena, node: ArenaNode) -> Place<'a> {
        let place = Place::before(arena, node);
        Place { node: place.node - 1, ..place }
    }

    /// Given equal heads: true if the entry lies before this place.
    fn is_behind(&self, arena: &Arena, node: ArenaNode) -> bool {
        let entry = NodeRef::read(arena, node);
        match entry.key.cmp(self.key) {
            Order::Less => true,
            Order::Greater => false,
            Order::Equal => (entry.lsn.0, node.number()) > (self.lsn, self.node),
        }
    }

    /// How many of these entries lie before this place.
    #[inline]
    fn find(&self, arena: &Arena, heads: &[u128], nodes: &[ArenaNode]) -> usize {
        let low = count_below(heads, self.head);
        if heads.get(low) != Some(&self.head) {
            return low;
        }
        let ties = heads[low..].partition_point(|head| *head == self.head);
        low + nodes[low..low + ties].partition_point(|node| self.is_behind(arena, *node))
    }
}

/// Sorted entries. The length is last, beside the lock's state.
#[repr(C)]
struct Leaf {
    heads: [u128; LEAF],
    nodes: [ArenaNode; LEAF],
    len: usize,
}

/// A leaf on cache lines of its own.
#[derive(Default)]
#[repr(align(64))]
struct Slot(Mutex<Leaf>);

impl Default for Leaf {
    fn default() -> Leaf {
        Leaf { heads: [0; LEAF], nodes: [ArenaNode::NONE; LEAF], len: 0 }
    }
}

impl Slot {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Leaf> {
        self.0.lock()
    }

    fn get_mut(&mut self) -> &mut Leaf {
        self.0.get_mut()
    }
}

impl Leaf {
    #[inline]
    fn find(&self, arena: &Arena, place: &Place<'_>) -> usize {
        place.find(arena, &self.heads[..self.len], &self.nodes[..self.len])
    }

    #[inline]
    fn insert(&mut self, at: usize, head: u128, node: ArenaNode) {
        self.heads.copy_within(at..self.len, at + 1);
        self.nodes.copy_within(at..self.len, at + 1);
        self.heads[at] = head;
        self.nodes[at] = node;
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        self.heads.copy_within(at + 1..self.len, at);
        self.nodes.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }

    /// Moves the entries from `at` on to a new leaf.
    fn split_off(&mut self, at: usize) -> Box<Slot> {
        let mut right = Box::<Slot>::default();
        let to = right.get_mut();
        to.len = self.len - at;
        to.heads[..to.len].copy_from_slice(&self.heads[at..self.len]);
        to.nodes[..to.len].copy_from_slice(&self.nodes[at..self.len]);
        self.len = at;
        right
    }
}

/// The order of two entries, whatever their heads are.
fn order(arena: &Arena, a: ArenaNode, b: ArenaNode) -> Order {
    let (left, right) = (NodeRef::read(arena, a), NodeRef::read(arena, b));
    let newest_first = (right.lsn, b.number()).cmp(&(left.lsn, a.number()));
    left.key.cmp(right.key).then(newest_first)
}

/// Leaves, with the separators between them.
struct Directory {
    heads: Vec<u128>,
    nodes: Vec<ArenaNode>,
    leaves: Vec<Box<Slot>>,
}

impl Directory {
    #[inline]
    fn find(&self, arena: &Arena, place: &Place<'_>) -> usize {
        place.find(arena, &self.heads, &self.nodes)
    }

    /// The ends of a range, as (leaf, entries of it before).
    fn ends(
        &self,
        arena: &Arena,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> ((usize, usize), (usize, usize)) {
        let place = |key| {
            let place = Place::at_key(key);
            let leaf = self.find(arena, &place);
            (leaf, self.leaves[leaf].lock().find(arena, &place))
        };
        let last = self.leaves.len() - 1;
        (place(low), high.map_or_else(|| (last, self.leaves[last].lock().len), place))
    }

    /// Adds a leaf at `at`, its first entry being its separator.
    fn add(&mut self, at: usize, mut leaf: Box<Slot>) {
        let first = leaf.get_mut();
        self.heads.insert(at - 1, first.heads[0]);
        self.nodes.insert(at - 1, first.nodes[0]);
        self.leaves.insert(at, leaf);
    }

    /// Inserts where there may be no room. A full leaf is split in half. At its end and at its
    /// beginning, where keys arrive in order, it stays full and the next or a new leaf takes the
    /// entry.
    fn insert(&mut self, arena: &Arena, place: &Place<'_>, node: ArenaNode) {
        let i = self.find(arena, place);
        let leaf = self.leaves[i].get_mut();
        let at = leaf.find(arena, place);
        if leaf.len < LEAF {
            leaf.insert(at, place.head, node);
        } else if at < LEAF {
            let right = leaf.split_off(if at == 0 { 0 } else { LEAF / 2 });
            self.add(i + 1, right);
            let (i, at) = if at <= LEAF / 2 { (i, at) } else { (i + 1, at - LEAF / 2) };
            self.leaves[i].get_mut().insert(at, place.head, node);
        } else {
            // Room of the next leaf is used first; otherwise descending keys would get a leaf each.
            match self.leaves.get_mut(i + 1).map(|next| next.get_mut()) {
                Some(next) if next.len < LEAF => {
                    next.insert(0, place.head, node);
                    self.heads[i] = place.head;
                    self.nodes[i] = node;
                }
                _ => {
                    let mut new = Box::<Slot>::default();
                    new.get_mut().insert(0, place.head, node);
                    self.add(i + 1, new);
                }
            }
        }
    }
}

impl Directory {
    /// Removes an entry; a leaf that becomes empty is removed. False if the entry does not exist.
    fn remove(&mut self, arena: &Arena, node: ArenaNode) -> bool {
        // It may be the separator of its leaf.
        let i = self.find(arena, &Place::after(arena, node));
        let leaf = self.leaves[i].get_mut();
        let at = leaf.find(arena, &Place::before(arena, node));
        if at == leaf.len || leaf.nodes[at] != node {
            return false;
        }
        leaf.remove(at);
        if leaf.len == 0 && self.leaves.len() > 1 {
            self.leaves.remove(i);
            self.heads.remove(i.saturating_sub(1));
            self.nodes.remove(i.saturating_sub(1));
        }
        true
    }
}

/// The entries of one index.
pub(crate) struct Leaves {
    directory: RwLock<Directory>,
    count: AtomicUsize,
}

impl Default for Leaves {
    fn default() -> Leaves {
        let (heads, nodes, leaves) = (Vec::new(), Vec::new(), vec![Box::<Slot>::default()]);
        let directory = RwLock::new(Directory { heads, nodes, leaves });
        Leaves { directory, count: AtomicUsize::new(1) }
    }
}

impl Leaves {
    /// Bytes of the leaves.
    pub(crate) fn bytes(&self) -> usize {
        self.count.load(Ordering::Relaxed) * size_of::<Slot>()
    }

    /// Inserts an entry of the arena.
    pub(crate) fn insert(&self, arena: &Arena, node: ArenaNode) {
        let place = Place::before(arena, node);
        {
            let directory = self.directory.read();
            let mut leaf = directory.leaves[directory.find(arena, &place)].lock();
            if leaf.len < LEAF {
                let at = leaf.find(arena, &place);
                leaf.insert(at, place.head, node);
                return;
            }
        }
        let mut directory = self.directory.write();
        directory.insert(arena, &place, node);
        self.count.store(directory.leaves.len(), Ordering::Relaxed);
    }

    /// Removes entries; returns their number. The caller excludes new readers (`elide`).
    pub(crate) fn remove(&self, arena: &Arena, nodes: &[ArenaNode]) -> usize {
        let mut directory = self.directory.write();
        let removed = nodes.iter().filter(|node| directory.remove(arena, **node)).count();
        self.count.store(directory.leaves.len(), Ordering::Relaxed);
        removed
    }

    /// The approximate number of entries at or above `low` and below `high`.
    pub(crate) fn estimate(&self, arena: &Arena, low: &[u8], high: Option<&[u8]>) -> u64 {
        let directory = self.directory.read();
        let ((from, before), (to, upto)) = directory.ends(arena, low, high);
        let between = directory.leaves.get(from..to).unwrap_or_default();
        // Few leaves are all counted; of many, evenly spread ones stand for the others.
        let step = between.len().div_ceil(COUNTED).max(1);
        let (mut entries, mut leaves) = (0, 0);
        for leaf in between.iter().step_by(step) {
            (entries, leaves) = (entries + leaf.lock().len, leaves + 1);
        }
        let entries = entries * between.len() / leaves.max(1);
        (entries + upto).saturating_sub(before) as u64
    }

    /// The key of an entry at or above `low` and below `high` with about `part` of these before it,
    /// in thousandths.
    pub(crate) fn key_at(
        &self,
        arena: &Arena,
        low: &[u8],
        high: Option<&[u8]>,
        part: usize,
    ) -> Option<Vec<u8>> {
        let directory = self.directory.read();
        let ((from, before), (to, upto)) = directory.ends(arena, low, high);
        // All leaves count alike, in thousandths.
        let wide = (to + 1).saturating_sub(from) * part;
        let (leaf, within) = (from + wide / 1000, wide % 1000);
        let entries = directory.leaves.get(leaf)?.lock();
        let first = if leaf == from { before } else { 0 };
        let end = if leaf == to { upto } else { entries.len };
        let at = first + end.checked_sub(first)? * within / 1000;
        let node = *entries.nodes[..end].get(at)?;
        Some(NodeRef::read(arena, node).key.to_vec())
    }

    /// Takes the entries of an empty index at once, in any order: sorts them into full leaves.
    pub(crate) fn fill(&self, arena: &Arena, nodes: Vec<ArenaNode>) {
        let mut directory = self.directory.write();
        if directory.leaves.iter_mut().any(|leaf| leaf.get_mut().len > 0) {
            drop(directory);
            nodes.into_iter().for_each(|node| self.insert(arena, node));
            return;
        }
        // The first 8 bytes of a key nearly always decide, without a look at the arena.
        let head = |node: ArenaNode| head_of(NodeRef::read(arena, node).key);
        let mut sorted: Vec<(u64, ArenaNode)> =
            nodes.into_iter().map(|node| ((head(node) >> 64) as u64, node)).collect();
        sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| order(arena, a.1, b.1)));
        for some in sorted.chunks(LEAF) {
            let mut slot = Box::<Slot>::default();
            let leaf = slot.get_mut();
            for (at, (_, node)) in some.iter().enumerate() {
                leaf.insert(at, head(*node), *node);
            }
            match directory.leaves[0].get_mut().len {
                0 => directory.leaves[0] = slot,
                _ => {
                    let at = directory.leaves.len();
                    directory.add(at, slot);
                }
            }
        }
        self.count.store(directory.leaves.len(), Ordering::Relaxed);
    }

    /// Copies the entries from a place on, up to the end of a leaf; none at the end.
    fn copy_from(&self, arena: &Arena, place: &Place<'_>, out: &mut Vec<ArenaNode>) {
        out.clear();
        let directory = self.directory.read();
        let from = directory.find(arena, place);
        for leaf in &directory.leaves[from..] {
            let leaf = leaf.lock();
            out.extend_from_slice(&leaf.nodes[leaf.find(arena, place)..leaf.len]);
            if !out.is_empty() {
                return;
            }
        }
    }

    /// Copies the entries before a place, from the beginning of a leaf on; none at the beginning.
    fn copy_to(&self, arena: &Arena, place: &Place<'_>, out: &mut Vec<ArenaNode>) {
        out.clear();
        let directory = self.directory.read();
        let last = directory.find(arena, place);
        for leaf in directory.leaves[..=last].iter().rev() {
            let leaf = leaf.lock();
            out.extend_from_slice(&leaf.nodes[..leaf.find(arena, place)]);
            if !out.is_empty() {
                return;
            }
        }
    }

    /// Copies a stretch of entries that starts with the first at or above `key`.
    pub(crate) fn copy_at_least(&self, arena: &Arena, key: &[u8], out: &mut Vec<ArenaNode>) {
        self.copy_from(arena, &Place::at_key(key), out);
    }

    /// Copies a stretch of entries that starts right after `node`.
    pub(crate) fn copy_after(&self, arena: &Arena, node: ArenaNode, out: &mut Vec<ArenaNode>) {
        self.copy_from(arena, &Place::after(arena, node), out);
    }

    /// Copies a stretch of entries that ends with the last below `key` (`None`: the last).
    pub(crate) fn copy_below(&self, arena: &Arena, key: Option<&[u8]>, out: &mut Vec<ArenaNode>) {
        match key {
            Some(key) => self.copy_to(arena, &Place::at_key(key), out),
            None => {
                out.clear();
                let directory = self.directory.read();
                if let Some(leaf) = directory.leaves.last() {
                    let leaf = leaf.lock();
                    out.extend_from_slice(&leaf.nodes[..leaf.len]);
                }
            }
        }
    }

    /// Copies a stretch of entries that ends right before `node`.
    pub(crate) fn copy_before(&self, arena: &Arena, node: ArenaNode, out: &mut Vec<ArenaNode>) {
        self.copy_to(arena, &Place::before(arena, node), out);
    }
}
