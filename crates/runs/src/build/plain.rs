//! Entries of any kind, sorted piece by piece: keys and values as they are, in an arena, sorted by
//! their first bytes; the pieces of a run are merged by a heap. What `packed` cannot hold is here.
//!
//! Invariant: an arena holds whole entries only, one behind the other. Only `build` may call this.

use evenkeel_base::{Error, Result};
use evenkeel_format::head::head_of;
use evenkeel_format::{Reader, put_varint};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// A sorted piece notes the position of every so many entries, for cutting it by key.
const MARK_EVERY: usize = 64;

/// Entries in any order.
#[derive(Default)]
pub(super) struct Plain {
    /// Entries: varint lengths of key with pk, pk and value, then the bytes.
    arena: Vec<u8>,
    /// First 12 bytes of the key (big-endian), then 32 bits of position.
    order: Vec<u128>,
}

impl Plain {
    /// Memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.arena.len() + self.order.len() * size_of::<u128>()
    }

    /// Takes an entry; `key` ends with the pk.
    ///
    /// # Errors
    /// `Internal` beyond 4 GiB.
    pub(super) fn push(&mut self, key: &[u8], pk_len: usize, value: &[u8]) -> Result<()> {
        let at = u32::try_from(self.arena.len());
        let at = at.map_err(|_| Error::internal("a piece of a build beyond 4 GiB"))?;
        put_varint(&mut self.arena, key.len() as u64);
        put_varint(&mut self.arena, pk_len as u64);
        put_varint(&mut self.arena, value.len() as u64);
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        let first = head_of(&self.arena[start..]) >> 32 << 32;
        self.arena.extend_from_slice(value);
        self.order.push(first | u128::from(at));
        Ok(())
    }

    /// Sorts the entries and leaves this empty, with its memory.
    ///
    /// # Errors
    /// None but `Internal`.
    pub(super) fn sort(&mut self) -> Result<SortedPlain> {
        let arena = &self.arena[..];
        // Compared in full only where the first bytes are equal.
        self.order.sort_unstable_by(|a, b| {
            let full = |at: u128| Item::read(&arena[at as u32 as usize..]).map(|i| i.key);
            (a >> 32).cmp(&(b >> 32)).then_with(|| full(*a).ok().cmp(&full(*b).ok()))
        });
        // Laid out anew in order: whoever merges reads front to back.
        let mut sorted = SortedPlain { bytes: Vec::with_capacity(arena.len()), marks: Vec::new() };
        for (n, at) in self.order.iter().enumerate() {
            if n % MARK_EVERY == 0 {
                sorted.marks.push(sorted.bytes.len() as u32);
            }
            let entry = &arena[*at as u32 as usize..];
            let len = entry.len() - Item::read(entry)?.rest.len();
            sorted.bytes.extend_from_slice(&entry[..len]);
        }
        self.arena.clear();
        self.order.clear();
        Ok(sorted)
    }
}

/// Entries in order.
pub(super) struct SortedPlain {
    bytes: Vec<u8>,
    /// Positions of every `MARK_EVERY`th entry.
    marks: Vec<u32>,
}

impl SortedPlain {
    /// Memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + self.marks.len() * size_of::<u32>()
    }

    /// Position of the first entry not below `key`.
    fn position(&self, key: &[u8]) -> Result<usize> {
        let below =
            |mark: &u32| Item::read(&self.bytes[*mark as usize..]).is_ok_and(|item| item.key < key);
        let mark = self.marks.partition_point(below).saturating_sub(1);
        let mut at = self.marks.get(mark).map_or(0, |m| *m as usize);
        while at < self.bytes.len() {
            let item = Item::read(&self.bytes[at..])?;
            if item.key >= key {
                break;
            }
            at = self.bytes.len() - item.rest.len();
        }
        Ok(at)
    }
}

/// An entry at the head of a sorted piece. Ordered so that the greatest has the lowest key.
struct Item<'a> {
    head: u128,
    /// Column bytes and pk.
    key: &'a [u8],
    pk_len: usize,
    value: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Item<'a> {
    fn read(bytes: &'a [u8]) -> Result<Item<'a>> {
        // Short lengths, one byte each, are the rule.
        if let [key_len, pk_len, value_len, rest @ ..] = bytes
            && (key_len | pk_len | value_len) & 0x80 == 0
            && let Some((key, rest)) = rest.split_at_checked(usize::from(*key_len))
            && let Some((value, rest)) = rest.split_at_checked(usize::from(*value_len))
        {
            let pk_len = usize::from(*pk_len);
            return Ok(Item { head: head_of(key), key, pk_len, value, rest });
        }
        let mut r = Reader::new(bytes, "entry of a build");
        let (key_len, pk_len) = (r.varint()? as usize, r.varint()? as usize);
        let value_len = r.varint()? as usize;
        let (key, value) = (r.take(key_len)?, r.take(value_len)?);
        Ok(Item { head: head_of(key), key, pk_len, value, rest: r.rest() })
    }
}

impl Ord for Item<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.head.cmp(&self.head).then_with(|| other.key.cmp(self.key))
    }
}

impl PartialOrd for Item<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Item<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Item<'_> {}

/// Sorted pieces that become one run, cut by key into parts.
pub(super) struct Cut {
    pieces: Vec<SortedPlain>,
    /// Per part, where it begins in each piece; one more for the end.
    cuts: Vec<Vec<usize>>,
}

impl Cut {
    /// Cuts into about `parts` parts of equal size.
    ///
    /// # Errors
    /// None but `Internal`.
    pub(super) fn new(pieces: Vec<SortedPlain>, parts: usize) -> Result<Cut> {
        let mut samples = Vec::new();
        for piece in &pieces {
            for mark in &piece.marks {
                samples.push(Item::read(&piece.bytes[*mark as usize..])?.key);
            }
        }
        samples.sort_unstable();
        let mut cuts = vec![vec![0; pieces.len()]];
        for part in 1..parts {
            let Some(key) = samples.get(part * samples.len() / parts) else { continue };
            cuts.push(pieces.iter().map(|p| p.position(key)).collect::<Result<_>>()?);
        }
        cuts.push(pieces.iter().map(|p| p.bytes.len()).collect());
        Ok(Cut { pieces, cuts })
    }

    /// Number of parts.
    pub(super) fn parts(&self) -> usize {
        self.cuts.len() - 1
    }

    /// Hands the entries of a part in order to `take`: (key with pk, length of pk, value).
    pub(super) fn read(
        &self,
        part: usize,
        mut take: impl FnMut(&[u8], usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut heap = BinaryHeap::new();
        for (i, piece) in self.pieces.iter().enumerate() {
            let bytes = &piece.bytes[self.cuts[part][i]..self.cuts[part + 1][i]];
            if !bytes.is_empty() {
                heap.push(Item::read(bytes)?);
            }
        }
        while let Some(mut top) = heap.peek_mut() {
            take(top.key, top.pk_len, top.value)?;
            if top.rest.is_empty() {
                PeekMut::pop(top);
            } else {
                *top = Item::read(top.rest)?;
            }
        }
        Ok(())
    }
}
