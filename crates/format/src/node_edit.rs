//! Changes of tree nodes: the second half of `node`, which has the layout and the rules.

use crate::node::{
    FLAG_DEAD, FLAG_NO_HIGH, HEADER_BYTES, InnerCell, KIND_INNER, KIND_LEAF, LEVELS_MAX, LeafCell,
    Node, SLOT_BYTES, bad, common_prefix, head_of, put_u16, strip_prefix, u16_at,
};
use crate::record::cell_flags::DELETED;
use crate::scratch::Scratch;
use evenkeel_base::Result;

/// A node for changing.
pub struct NodeMut<'a> {
    bytes: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    /// Reads the header. # Errors: `BadEncoding`.
    pub fn parse(bytes: &'a mut [u8]) -> Result<NodeMut<'a>> {
        Node::parse(bytes)?;
        Ok(NodeMut { bytes })
    }

    /// Makes an empty node. # Errors: `BadEncoding` if the fences do not fit.
    pub fn format(
        bytes: &'a mut [u8],
        level: u8,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<NodeMut<'a>> {
        let high_len = high.map_or(0, <[u8]>::len);
        let len = bytes.len();
        let fits = (HEADER_BYTES + low.len() + high_len..=usize::from(u16::MAX)).contains(&len);
        if !fits || level > LEVELS_MAX {
            return Err(bad("fences do not fit the page"));
        }
        let cells_end = len - low.len() - high_len;
        bytes[..HEADER_BYTES].fill(0);
        bytes[0] = if level == 0 { KIND_LEAF } else { KIND_INNER };
        bytes[1] = level;
        bytes[2] = if high.is_none() { FLAG_NO_HIGH } else { 0 };
        put_u16(bytes, 8, cells_end);
        put_u16(bytes, 12, low.len());
        put_u16(bytes, 14, high_len);
        put_u16(bytes, 16, high.map_or(0, |high| common_prefix(low, high)));
        bytes[cells_end..len - high_len].copy_from_slice(low);
        bytes[len - high_len..].copy_from_slice(high.unwrap_or(&[]));
        Ok(NodeMut { bytes })
    }

    /// The node for reading.
    pub fn node(&self) -> Node<'_> {
        match Node::parse(self.bytes) {
            Ok(node) => node,
            // `parse` or `format` accepted these bytes and every change keeps the header valid.
            Err(_) => unreachable!("a node became unreadable by its own change"),
        }
    }

    fn set_slot(&mut self, i: usize, head: u32, at: usize, len: usize) {
        let slot = &mut self.bytes[HEADER_BYTES + SLOT_BYTES * i..][..SLOT_BYTES];
        slot[..4].copy_from_slice(&head.to_le_bytes());
        put_u16(slot, 4, at);
        put_u16(slot, 6, len);
    }

    /// Moves `cells_start` and `holes` so that the cell's bytes are free.
    fn free_cell(&mut self, at: usize, len: usize) {
        let (start, holes) = (u16_at(self.bytes, 8), u16_at(self.bytes, 10));
        if at == start && len <= self.bytes.len() - start {
            put_u16(self.bytes, 8, start + len);
        } else {
            put_u16(self.bytes, 10, (holes + len).min(self.bytes.len()));
        }
    }

    /// Finds space for a cell next to `slots` slots; `None` if it does not fit.
    fn take_cell(&mut self, slots: usize, len: usize) -> Option<usize> {
        let slots_end = HEADER_BYTES + SLOT_BYTES * slots;
        if u16_at(self.bytes, 8) < slots_end + len {
            if u16_at(self.bytes, 8) + u16_at(self.bytes, 10) < slots_end + len {
                return None;
            }
            self.defragment();
            // The counts are damaged: there were no holes.
            if u16_at(self.bytes, 8) < slots_end + len {
                return None;
            }
        }
        let at = u16_at(self.bytes, 8) - len;
        put_u16(self.bytes, 8, at);
        Some(at)
    }

    /// Moves the cells together, so that holes become free bytes.
    fn defragment(&mut self) {
        let old = Scratch::copy_of(self.bytes);
        let Ok(node) = Node::parse(&old) else { return };
        let mut at = node.cells_end;
        for i in 0..node.count() {
            let (head, _, len) = node.slot(i);
            let cell = node.cell(i);
            let slots_end = HEADER_BYTES + SLOT_BYTES * node.count();
            if cell.len() != len || at < slots_end + len {
                return self.bytes.copy_from_slice(&old);
            }
            at -= len;
            self.bytes[at..at + len].copy_from_slice(cell);
            self.set_slot(i, head, at, len);
        }
        put_u16(self.bytes, 8, at);
        put_u16(self.bytes, 10, 0);
    }

    /// Inserts slot `i` with a cell of `len` bytes that `write` fills. False if it does not fit.
    fn insert_cell(
        &mut self,
        i: usize,
        key: &[u8],
        len: impl FnOnce(usize) -> usize,
        write: impl FnOnce(&mut [u8], &[u8]),
    ) -> bool {
        let count = u16_at(self.bytes, 4);
        let suffix = strip_prefix(key, self.node().prefix());
        let (Some(suffix), true) = (suffix, i <= count) else { return false };
        let len = len(suffix.len());
        let Some(at) = self.take_cell(count + 1, len) else { return false };
        write(&mut self.bytes[at..at + len], suffix);
        let from = HEADER_BYTES + SLOT_BYTES * i;
        self.bytes.copy_within(from..HEADER_BYTES + SLOT_BYTES * count, from + SLOT_BYTES);
        self.set_slot(i, head_of(suffix), at, len);
        put_u16(self.bytes, 4, count + 1);
        true
    }

    /// Replaces the cell of slot `i`, whose key is `key`. False if it does not fit.
    fn replace_cell(
        &mut self,
        i: usize,
        key: &[u8],
        len: impl FnOnce(usize) -> usize,
        write: impl FnOnce(&mut [u8], &[u8]),
    ) -> bool {
        let node = self.node();
        let (head, old_at, old_len) = node.slot(i);
        let (count, free) = (node.count(), node.free_bytes());
        let inside = old_at >= node.cells_start && old_at + old_len <= node.cells_end;
        let Some(suffix) = strip_prefix(key, node.prefix()) else { return false };
        let len = len(suffix.len());
        if i >= count || !inside || len > old_len + free {
            return false;
        }
        let at = if len <= old_len {
            let holes = u16_at(self.bytes, 10) + old_len - len;
            put_u16(self.bytes, 10, holes.min(self.bytes.len()));
            old_at
        } else {
            // An empty cell survives defragmenting; the new space is found without it.
            self.free_cell(old_at, old_len);
            self.set_slot(i, head, old_at, 0);
            match self.take_cell(count, len) {
                Some(at) => at,
                None => return false,
            }
        };
        write(&mut self.bytes[at..at + len], suffix);
        self.set_slot(i, head, at, len);
        true
    }

    fn count_dead(&mut self, before: u8, after: u8) {
        let dead = u16_at(self.bytes, 6) + usize::from(after & DELETED != 0);
        put_u16(self.bytes, 6, dead.saturating_sub(usize::from(before & DELETED != 0)));
    }

    fn flags(&self, i: usize) -> u8 {
        self.node().cell(i).first().copied().unwrap_or(0)
    }

    /// Inserts a leaf cell at slot `i`, found by `lower_bound`. False if it does not fit.
    pub fn insert_leaf(&mut self, i: usize, key: &[u8], cell: &LeafCell<'_>) -> bool {
        let done =
            self.insert_cell(i, key, |n| cell.cell_bytes(n), |out, suffix| cell.write(out, suffix));
        if done {
            self.count_dead(0, cell.flags);
        }
        done
    }

    /// Replaces the leaf cell of slot `i`, whose key is `key`. False if it does not fit.
    pub fn replace_leaf(&mut self, i: usize, key: &[u8], cell: &LeafCell<'_>) -> bool {
        let before = self.flags(i);
        let done = self.replace_cell(
            i,
            key,
            |n| cell.cell_bytes(n),
            |out, suffix| cell.write(out, suffix),
        );
        if done {
            self.count_dead(before, cell.flags);
        }
        done
    }

    /// Inserts a child at slot `i`. False if it does not fit.
    pub fn insert_inner(&mut self, i: usize, key: &[u8], cell: &InnerCell) -> bool {
        self.insert_cell(i, key, |n| cell.cell_bytes(n), |out, suffix| cell.write(out, suffix))
    }

    /// Replaces the child of slot `i`, keeping its key. False if it does not fit.
    pub fn replace_inner(&mut self, i: usize, cell: &InnerCell) -> bool {
        let key = self.node().key(i);
        self.replace_cell(i, &key, |n| cell.cell_bytes(n), |out, suffix| cell.write(out, suffix))
    }

    /// Removes slot `i`; nothing if there is none.
    pub fn remove(&mut self, i: usize) {
        let node = self.node();
        let (count, leaf) = (node.count(), node.is_leaf());
        let (_, at, len) = node.slot(i);
        if i >= count {
            return;
        }
        if leaf {
            self.count_dead(self.flags(i), 0);
        }
        self.free_cell(at, len);
        let to = HEADER_BYTES + SLOT_BYTES * i;
        self.bytes.copy_within(to + SLOT_BYTES..HEADER_BYTES + SLOT_BYTES * count, to);
        put_u16(self.bytes, 4, count - 1);
    }

    /// Sets whether the parent's slot of this node has a "dead since".
    pub fn mark_dead(&mut self, dead: bool) {
        self.bytes[2] = (self.bytes[2] & !FLAG_DEAD) | if dead { FLAG_DEAD } else { 0 };
    }

    /// Appends a slot, and space for its cell of `len` bytes, behind all others. `None` if it does
    /// not fit.
    #[inline]
    fn push_slot(&mut self, head: u32, len: usize) -> Option<&mut [u8]> {
        let count = u16_at(self.bytes, 4);
        let at = self.take_cell(count + 1, len)?;
        self.set_slot(count, head, at, len);
        put_u16(self.bytes, 4, count + 1);
        Some(&mut self.bytes[at..at + len])
    }

    /// Appends a leaf cell whose key is above all keys here, with the effect of `insert_leaf`
    /// behind the last slot. False if it does not fit.
    pub fn push_leaf(&mut self, key: &[u8], cell: &LeafCell<'_>) -> bool {
        // Not through `node`, which reads the whole header: this runs for each row of a load.
        let cells_end = self.bytes.len() - u16_at(self.bytes, 12) - u16_at(self.bytes, 14);
        let prefix = &self.bytes[cells_end..cells_end + u16_at(self.bytes, 16)];
        let Some(suffix) = strip_prefix(key, prefix) else { return false };
        let Some(out) = self.push_slot(head_of(suffix), cell.cell_bytes(suffix.len())) else {
            return false;
        };
        cell.write(out, suffix);
        self.count_dead(0, cell.flags);
        true
    }

    /// Appends the cells of a range of another node of the same level, whose keys are above all
    /// keys here. # Errors: `BadEncoding` if they do not fit.
    pub fn append_from(&mut self, from: &Node<'_>, range: std::ops::Range<usize>) -> Result<()> {
        if range.is_empty() {
            // Done, whatever the prefixes.
            return Ok(());
        }
        let node = self.node();
        let (leaf, prefix, old) = (node.is_leaf(), node.prefix().len(), from.prefix());
        let prefix_at = node.cells_end;
        // Both start with the shorter prefix; the rest of the old one is put back (`lead`), or the
        // rest of the new one is cut off each suffix.
        let shared = prefix.min(old.len());
        if leaf != from.is_leaf() || node.prefix()[..shared] != old[..shared] {
            return Err(bad("cells of another kind of node"));
        }
        let (lead, cut) = (&old[shared..], prefix - shared);
        let mut whole = lead.to_vec();
        for i in range {
            let Some((start, suffix, _)) = from.cell_parts(i) else {
                return Err(bad("cell outside the page"));
            };
            let more = &self.bytes[prefix_at + shared..prefix_at + prefix];
            if cut > 0 && suffix.get(..cut) != Some(more) {
                return Err(bad("cells do not fit"));
            }
            let suffix = &suffix[cut..];
            let head = if lead.is_empty() {
                head_of(suffix)
            } else {
                whole.truncate(lead.len());
                whole.extend_from_slice(suffix);
                head_of(&whole)
            };
            // The suffix and the bytes behind it are adjacent.
            let rest = &from.cell(i)[start.len() + cut..];
            let len = start.len() + lead.len() + rest.len();
            let Some(out) = self.push_slot(head, len) else {
                return Err(bad("cells do not fit"));
            };
            out[..start.len()].copy_from_slice(start);
            out[start.len()..start.len() + lead.len()].copy_from_slice(lead);
            out[start.len() + lead.len()..].copy_from_slice(rest);
            if leaf {
                put_u16(out, 1, lead.len() + suffix.len());
                self.count_dead(0, start[0]);
            }
        }
        Ok(())
    }

    /// Keeps the first `keep` slots and gives the node a new high fence (the left half of a
    /// split). # Errors: `BadEncoding`, with the node unchanged.
    pub fn truncate(&mut self, keep: usize, high: Option<&[u8]>) -> Result<()> {
        if keep >= self.node().count() && high.is_some_and(|high| self.raise_fence(high)) {
            return Ok(());
        }
        let old = Scratch::copy_of(self.bytes);
        let node = Node::parse(&old)?;
        let keep = keep.min(node.count());
        self.rebuild(&old, node.low(), high, 0, |to| to.append_from(&node, 0..keep))
    }

    /// Gives a node that keeps all cells a high fence that is not shorter than the present one and
    /// leaves its prefix unchanged: the cells move down by the difference, and nothing is
    /// rewritten. False, and nothing is done, if that does not apply.
    fn raise_fence(&mut self, high: &[u8]) -> bool {
        let node = self.node();
        let (count, len) = (node.count(), self.bytes.len());
        let (start, cells_end) = (node.cells_start, node.cells_end);
        let old_high = u16_at(self.bytes, 14);
        let Some(more) = high.len().checked_sub(old_high) else { return false };
        let inside = |i| {
            let (_, at, len) = node.slot(i);
            (start..=cells_end).contains(&at) && at + len <= cells_end
        };
        if start < HEADER_BYTES + SLOT_BYTES * count + more
            || common_prefix(node.low(), high) != node.prefix().len()
            || !(0..count).all(inside)
        {
            return false;
        }
        self.bytes.copy_within(start..len - old_high, start - more);
        self.bytes[len - high.len()..].copy_from_slice(high);
        for slot in self.bytes[HEADER_BYTES..][..SLOT_BYTES * count].chunks_exact_mut(SLOT_BYTES) {
            let at = u16_at(slot, 4) - more;
            put_u16(slot, 4, at);
        }
        put_u16(self.bytes, 8, start - more);
        put_u16(self.bytes, 14, high.len());
        self.bytes[2] &= !FLAG_NO_HIGH;
        true
    }

    /// Gives the node new fences, keeping all cells. # Errors: `BadEncoding`, node unchanged.
    pub fn set_fences(&mut self, low: &[u8], high: Option<&[u8]>) -> Result<()> {
        let old = Scratch::copy_of(self.bytes);
        let node = Node::parse(&old)?;
        self.rebuild(&old, low, high, 0, |to| to.append_from(&node, 0..node.count()))
    }

    /// Sets the prefix of a node at the right edge to this length of its low fence, which all its
    /// keys must share. # Errors: `BadEncoding`, node unchanged.
    pub fn set_prefix(&mut self, len: usize) -> Result<()> {
        let node = Node::parse(self.bytes)?;
        if node.high().is_some() || len > node.low().len() {
            return Err(bad("a prefix that the fences do not allow"));
        }
        if node.count() == 0 {
            put_u16(self.bytes, 16, len);
            return Ok(());
        }
        let old = Scratch::copy_of(self.bytes);
        let node = Node::parse(&old)?;
        self.rebuild(&old, node.low(), None, len, |to| to.append_from(&node, 0..node.count()))
    }

    /// Rewrites the node from an edited list of its leaf cells: `edit` returns the cell to keep, or
    /// `None` to drop it. # Errors: `BadEncoding`, node unchanged.
    pub fn compact<'c>(
        &mut self,
        old: &'c [u8],
        mut edit: impl FnMut(usize, LeafCell<'c>) -> Option<LeafCell<'c>>,
    ) -> Result<()> {
        let node = Node::parse(old)?;
        let high = node.high();
        self.rebuild(old, node.low(), high, node.prefix().len(), |to| {
            if to.node().prefix() != node.prefix() {
                return Err(bad("prefix does not fit the fences"));
            }
            for i in 0..node.count() {
                let Some(cell) = edit(i, node.leaf_cell(i)?) else { continue };
                let suffix = node.suffix(i);
                let len = cell.cell_bytes(suffix.len());
                let Some(out) = to.push_slot(head_of(suffix), len) else {
                    return Err(bad("cells do not fit"));
                };
                cell.write(out, suffix);
                to.count_dead(0, cell.flags);
            }
            Ok(())
        })
    }

    fn rebuild(
        &mut self,
        old: &[u8],
        low: &[u8],
        high: Option<&[u8]>,
        edge_prefix: usize,
        fill: impl FnOnce(&mut NodeMut<'_>) -> Result<()>,
    ) -> Result<()> {
        let fill_all = || {
            let mut to = NodeMut::format(self.bytes, old[1], low, high)?;
            to.bytes[2] |= old[2] & FLAG_DEAD;
            if high.is_none() {
                put_u16(to.bytes, 16, edge_prefix);
            }
            fill(&mut to)
        };
        let done = fill_all();
        if done.is_err() {
            self.bytes.copy_from_slice(old);
        }
        done
    }

    /// The node's bytes without free bytes: the slots and the cells, which are moved together
    /// first.
    pub fn image(&mut self) -> (&[u8], &[u8]) {
        if u16_at(self.bytes, 10) > 0 {
            self.defragment();
        }
        let slots_end = HEADER_BYTES + SLOT_BYTES * u16_at(self.bytes, 4);
        (&self.bytes[..slots_end], &self.bytes[u16_at(self.bytes, 8)..])
    }

    /// Restores the node from `image`. # Errors: `BadEncoding` if it is invalid.
    pub fn from_image(bytes: &'a mut [u8], image: &[u8]) -> Result<NodeMut<'a>> {
        let slots_end = HEADER_BYTES + SLOT_BYTES * u16_at(image, 4);
        let (Some(slots), Some(cells)) = (image.get(..slots_end), image.get(slots_end..)) else {
            return Err(bad("image ends too early"));
        };
        if image.len() > bytes.len() || bytes.len() - cells.len() != u16_at(image, 8) {
            return Err(bad("image of another page size"));
        }
        let cells_start = bytes.len() - cells.len();
        bytes[..slots_end].copy_from_slice(slots);
        bytes[cells_start..].copy_from_slice(cells);
        NodeMut::parse(bytes)
    }
}
