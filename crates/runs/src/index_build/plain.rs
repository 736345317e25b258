//! Entries of any kind, sorted piece by piece: keys and values unchanged, in an arena, sorted by
//! their first bytes and, where these are equal, by the next ones that differ. The pieces of a run
//! are cut into stretches of keys, and each stretch is sorted as a whole when it is written. For
//! entries that `packed` cannot hold.
//!
//! Invariant: an arena holds whole entries only, without gaps. Only `build` may call this.

use evenkeel_base::{Error, Result};
use evenkeel_format::head::head_of;
use evenkeel_format::node::common_prefix;
use evenkeel_format::{Reader, put_varint};

/// A sorted piece records a position after this many bytes, for cutting it by key.
const MARK_BYTES: usize = 4 << 10;
/// Bytes of a stretch, about: it is sorted in the cache of a core. If there are many pieces a
/// stretch has some bytes of each at least, because finding its beginning in a piece takes a
/// search. It may be longer by `MARK_BYTES`, or by an entry, of each piece.
const STRETCH_BYTES_MIN: usize = 256 << 10;
const STRETCH_BYTES_MAX: usize = 1 << 20;
const STRETCH_BYTES_OF_PIECE: usize = 4 << 10;
/// Number of stretches in a run with fewer bytes, about.
const STRETCHES: usize = 16;
/// Up to this many entries with the same first bytes are compared in full.
const FEW: usize = 8;
/// The next bytes are examined this many times; entries still equal are compared in full.
const LEVELS: usize = 16;

/// Entries in any order.
#[derive(Default)]
pub(super) struct Plain {
    /// Entries: varint lengths of key with pk, pk and value, then the bytes.
    arena: Vec<u8>,
    /// 12 bytes of the key (big-endian), at first the first ones, then 32 bits of position.
    order: Vec<u128>,
}

/// An entry of `order`.
fn ordered(bytes: &[u8], at: u32) -> u128 {
    head_of(bytes) >> 32 << 32 | u128::from(at)
}

/// The key of an entry of `order`.
fn key_of(arena: &[u8], entry: u128) -> &[u8] {
    Item::read(&arena[entry as u32 as usize..]).map_or(&[], |item| item.key)
}

impl Plain {
    /// Memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.arena.len() + self.order.len() * size_of::<u128>()
    }

    /// Position of the next entry.
    fn end(&self) -> Result<u32> {
        let beyond = |_| Error::internal("a piece of a build beyond 4 GiB");
        u32::try_from(self.arena.len()).map_err(beyond)
    }

    /// Adds an entry: the bytes of its columns, its pk and its value.
    ///
    /// # Errors
    /// `Internal` beyond 4 GiB.
    pub(super) fn push(&mut self, columns: &[u8], pk: &[u8], value: &[u8]) -> Result<()> {
        let at = self.end()?;
        put_varint(&mut self.arena, (columns.len() + pk.len()) as u64);
        put_varint(&mut self.arena, pk.len() as u64);
        put_varint(&mut self.arena, value.len() as u64);
        let key = self.arena.len();
        self.arena.extend_from_slice(columns);
        self.arena.extend_from_slice(pk);
        self.order.push(ordered(&self.arena[key..], at));
        self.arena.extend_from_slice(value);
        Ok(())
    }

    /// Adds a key with its pk, without a value.
    pub(super) fn push_key(&mut self, key: &[u8], pk_len: usize) -> Result<()> {
        let (columns, pk) = key.split_at(key.len().saturating_sub(pk_len));
        self.push(columns, pk, &[])
    }

    /// Adds entries in the form of a sorted piece.
    fn push_all(&mut self, mut bytes: &[u8]) -> Result<()> {
        let mut at = self.end()? as usize;
        self.arena.extend_from_slice(bytes);
        self.end()?;
        while !bytes.is_empty() {
            let item = Item::read(bytes)?;
            self.order.push(ordered(item.key, at as u32));
            at += bytes.len() - item.rest.len();
            bytes = item.rest;
        }
        Ok(())
    }

    /// Sorts `order`.
    fn arrange(&mut self) {
        let Plain { arena, order } = self;
        order.sort_unstable();
        for group in order.chunk_by_mut(|a, b| a >> 32 == b >> 32) {
            arrange_equal(arena, group, LEVELS);
        }
    }

    /// Passes the entries to `take` in the order of `arrange`: (key with pk, length of pk, value).
    fn each(&self, mut take: impl FnMut(&[u8], usize, &[u8]) -> Result<()>) -> Result<()> {
        self.order.iter().try_for_each(|at| {
            let item = Item::read(&self.arena[*at as u32 as usize..])?;
            take(item.key, item.pk_len, item.value)
        })
    }

    fn clear(&mut self) {
        self.arena.clear();
        self.order.clear();
    }

    /// Sorts the entries; this becomes empty and keeps its memory.
    ///
    /// # Errors
    /// Only `Internal`.
    pub(super) fn sort(&mut self) -> Result<SortedPlain> {
        self.arrange();
        let arena = &self.arena[..];
        // Copied in order, so that a later merge reads front to back.
        let mut sorted = SortedPlain { bytes: Vec::with_capacity(arena.len()), marks: Vec::new() };
        for at in &self.order {
            let end = sorted.bytes.len();
            if sorted.marks.last().is_none_or(|mark| end - *mark as usize >= MARK_BYTES) {
                sorted.marks.push(end as u32);
            }
            let entry = &arena[*at as u32 as usize..];
            let len = entry.len() - Item::read(entry)?.rest.len();
            sorted.bytes.extend_from_slice(&entry[..len]);
        }
        self.clear();
        Ok(sorted)
    }
}

/// Sorts entries whose bytes examined so far are equal: by the bytes behind their whole common
/// prefix.
fn arrange_equal(arena: &[u8], group: &mut [u128], levels: usize) {
    if group.len() < 2 {
        return;
    }
    let first = key_of(arena, group[0]);
    let common = |common: usize, entry: &u128| {
        let key = key_of(arena, *entry);
        common_prefix(&first[..common], key)
    };
    let few = group.len() <= FEW || levels == 0;
    let common = if few { 0 } else { group.iter().fold(first.len(), common) };
    // A key that has ended is padded with zeros, so it may look like a longer one.
    if few || group.iter().any(|entry| key_of(arena, *entry).len() == common) {
        group.sort_unstable_by(|a, b| key_of(arena, *a).cmp(key_of(arena, *b)));
        return;
    }
    for entry in group.iter_mut() {
        *entry = ordered(&key_of(arena, *entry)[common..], *entry as u32);
    }
    group.sort_unstable();
    for group in group.chunk_by_mut(|a, b| a >> 32 == b >> 32) {
        arrange_equal(arena, group, levels - 1);
    }
}

/// Entries in order.
pub(super) struct SortedPlain {
    bytes: Vec<u8>,
    /// Positions of the first entry, and of one entry after each `MARK_BYTES`.
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

/// An entry in an arena.
struct Item<'a> {
    /// Column bytes and pk.
    key: &'a [u8],
    pk_len: usize,
    value: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Item<'a> {
    fn read(bytes: &'a [u8]) -> Result<Item<'a>> {
        // Short lengths of one byte each are the common case.
        if let [key_len, pk_len, value_len, rest @ ..] = bytes
            && (key_len | pk_len | value_len) & 0x80 == 0
            && let Some((key, rest)) = rest.split_at_checked(usize::from(*key_len))
            && let Some((value, rest)) = rest.split_at_checked(usize::from(*value_len))
        {
            let pk_len = usize::from(*pk_len);
            return Ok(Item { key, pk_len, value, rest });
        }
        let mut r = Reader::new(bytes, "entry of a build");
        let (key_len, pk_len) = (r.varint()? as usize, r.varint()? as usize);
        let value_len = r.varint()? as usize;
        let (key, value) = (r.take(key_len)?, r.take(value_len)?);
        Ok(Item { key, pk_len, value, rest: r.rest() })
    }
}

/// Sorted pieces that become one run, cut into stretches of keys.
pub(super) struct Stretches {
    pieces: Vec<SortedPlain>,
    /// Keys between the stretches, ascending.
    bounds: Vec<Vec<u8>>,
}

impl Stretches {
    /// # Errors
    /// Only `Internal`.
    pub(super) fn new(pieces: Vec<SortedPlain>) -> Result<Stretches> {
        // Each with the bytes up to the next sample of its piece.
        let mut samples: Vec<(&[u8], usize)> = Vec::new();
        for piece in &pieces {
            let ends = piece.marks.iter().skip(1).map(|end| *end as usize);
            for (mark, end) in piece.marks.iter().zip(ends.chain([piece.bytes.len()])) {
                let mark = *mark as usize;
                samples.push((Item::read(&piece.bytes[mark..])?.key, end - mark));
            }
        }
        samples.sort_unstable();
        let total: usize = samples.iter().map(|sample| sample.1).sum();
        let most = STRETCH_BYTES_OF_PIECE * pieces.len();
        let most = most.clamp(STRETCH_BYTES_MIN, STRETCH_BYTES_MAX).min(total / STRETCHES);
        let (mut bounds, mut bytes) = (Vec::new(), 0);
        for (key, more) in samples {
            if bytes > 0 && bytes + more > most {
                bounds.push(key.to_vec());
                bytes = 0;
            }
            bytes += more;
        }
        Ok(Stretches { pieces, bounds })
    }

    /// Number of stretches, at least 1.
    pub(super) fn count(&self) -> usize {
        self.bounds.len() + 1
    }

    /// The position in a piece at which a stretch begins.
    fn position(&self, stretch: usize, piece: &SortedPlain) -> Result<usize> {
        match stretch.checked_sub(1).map(|before| self.bounds.get(before)) {
            None => Ok(0),
            Some(None) => Ok(piece.bytes.len()),
            Some(Some(bound)) => piece.position(bound),
        }
    }

    /// Passes the entries of a stretch in order to `take`: (key with pk, length of pk, value).
    /// `entries` is memory for them.
    ///
    /// # Errors
    /// `Internal`; those of `take`.
    pub(super) fn read(
        &self,
        stretch: usize,
        entries: &mut Plain,
        take: impl FnMut(&[u8], usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        entries.clear();
        for piece in &self.pieces {
            let part = self.position(stretch, piece)?..self.position(stretch + 1, piece)?;
            let part = piece.bytes.get(part).ok_or_else(|| Error::internal("unsorted piece"))?;
            entries.push_all(part)?;
        }
        entries.arrange();
        entries.each(take)
    }
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod plain_tests;
