//! The entries that index builds collect and sort: packed if the keys allow it, and plain
//! otherwise. A collector begins packed and changes for good at the first entry that does not fit.

use super::packed::{self, Packed, SortedPacked};
use super::plain::{self, Plain, SortedPlain};
use evenkeel_base::{Code, Error, IndexId, Result};
use evenkeel_format::run::ENTRY_BYTES_MAX;

/// Entries of one index in any order, in memory: collected by one thread and not sorted yet.
pub struct Unsorted {
    index: IndexId,
    packed: Packed,
    plain: Option<Plain>,
}

impl Unsorted {
    /// Collects entries of an index.
    pub fn new(index: IndexId) -> Unsorted {
        Unsorted { index, packed: Packed::new(), plain: None }
    }

    /// The index.
    pub fn index(&self) -> IndexId {
        self.index
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        self.packed.bytes() + self.plain.as_ref().map_or(0, Plain::bytes)
    }

    /// Adds an entry; each (key, pk) may occur once in all pieces of an index.
    ///
    /// # Errors
    /// `EntryTooLong`; `Internal` beyond 4 GiB.
    #[inline]
    pub fn push(&mut self, key: &[u8], pk: &[u8], value: &[u8]) -> Result<()> {
        if self.plain.is_none() && value.is_empty() && self.packed.push(key, pk) {
            return Ok(());
        }
        self.push_plain(key, pk, value)
    }

    fn push_plain(&mut self, key: &[u8], pk: &[u8], value: &[u8]) -> Result<()> {
        let bytes = key.len() + pk.len() + value.len();
        if bytes > ENTRY_BYTES_MAX || pk.len() > usize::from(u16::MAX) {
            return Err(Error::new(Code::EntryTooLong).with("index", self.index));
        }
        let plain = self.plain.get_or_insert_default();
        self.packed.drain(|key, pk_len| plain.push_key(key, pk_len))?;
        plain.push(key, pk, value)
    }

    /// Sorts the entries; this becomes empty and keeps its memory.
    ///
    /// # Errors
    /// Only `Internal`.
    pub fn sort(&mut self) -> Result<Sorted> {
        Ok(Sorted(match &mut self.plain {
            None => Piece::Packed(self.packed.sort()),
            Some(plain) => Piece::Plain(plain.sort()?),
        }))
    }
}

/// Entries in order, in memory.
pub struct Sorted(Piece);

enum Piece {
    Packed(SortedPacked),
    Plain(SortedPlain),
}

impl Sorted {
    /// True if it has no entry.
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.0, Piece::Packed(piece) if piece.numbers.is_empty())
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Piece::Packed(piece) => piece.bytes(),
            Piece::Plain(piece) => piece.bytes(),
        }
    }
}

/// The entries of a run in order, cut by key into parts that several threads read concurrently.
pub(super) struct Ordered {
    stretches: Stretches,
    parts: usize,
}

/// The units that are sorted as a whole when they are read; a part consists of whole units.
enum Stretches {
    Packed(packed::Stretches),
    Plain(plain::Stretches),
}

impl Ordered {
    /// Cuts into about `parts` parts of equal size.
    ///
    /// # Errors
    /// Only `Internal`.
    pub(super) fn new(pieces: Vec<Sorted>, parts: usize) -> Result<Ordered> {
        let stretches = Stretches::new(pieces)?;
        let parts = parts.clamp(1, stretches.count());
        Ok(Ordered { stretches, parts })
    }

    /// Number of parts.
    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    /// Passes the entries of a part in order to `take`: (key with pk, length of pk, value).
    pub(super) fn read(
        &self,
        part: usize,
        mut take: impl FnMut(&[u8], usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let cut = |part: usize| part * self.stretches.count() / self.parts;
        let (mut numbers, mut entries) = (Vec::new(), Plain::default());
        for i in cut(part)..cut(part + 1) {
            match &self.stretches {
                Stretches::Plain(stretches) => stretches.read(i, &mut entries, &mut take)?,
                Stretches::Packed(stretches) => {
                    stretches.read(i, &mut numbers, |key, pk_len| take(key, pk_len, &[]))?;
                }
            }
        }
        Ok(())
    }
}

impl Stretches {
    fn new(pieces: Vec<Sorted>) -> Result<Stretches> {
        let (mut packed, mut plain) = (Vec::new(), Vec::new());
        for piece in pieces {
            match piece.0 {
                Piece::Packed(piece) if piece.numbers.is_empty() => {}
                Piece::Packed(piece) => packed.push(piece),
                Piece::Plain(piece) => plain.push(piece),
            }
        }
        if plain.is_empty() {
            match packed::Stretches::new(packed) {
                Ok(stretches) => return Ok(Stretches::Packed(stretches)),
                Err(pieces) => packed = pieces,
            }
        }
        for piece in packed {
            let mut unpacked = Plain::default();
            piece.each(|key, pk_len| unpacked.push_key(key, pk_len))?;
            plain.push(unpacked.sort()?);
        }
        Ok(Stretches::Plain(plain::Stretches::new(plain)?))
    }

    fn count(&self) -> usize {
        match self {
            Stretches::Packed(stretches) => stretches.count(),
            Stretches::Plain(stretches) => stretches.count(),
        }
    }
}
