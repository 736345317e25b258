//! Packed entries: keys of one length in which at most 16 bytes vary. Such a key becomes one
//! number, made of its varying bytes, whose order is that of the keys; the other bytes are stored
//! once. Keys of integers and dates are of this kind, and most tables have no other indexes.
//!
//! Invariants: a number of a [`Packing`] unpacks to exactly its key; two numbers of one packing
//! compare as their keys do; no pk is longer than its key. Only `build` may call this.

use evenkeel_base::{Error, Result};

/// Keys longer than this are not packed.
pub(super) const KEY_MAX: usize = 64;
/// Bytes of a number.
const WORD: usize = 16;

/// A key (column bytes and pk), padded with zeros.
pub(super) type Padded = [u8; KEY_MAX];

/// Joins the parts of a key; `None` if it is too long.
#[inline]
pub(super) fn padded(key: &[u8], pk: &[u8]) -> Option<Padded> {
    let mut padded = [0; KEY_MAX];
    let (columns, rest) = padded.split_at_mut_checked(key.len())?;
    columns.copy_from_slice(key);
    rest.get_mut(..pk.len())?.copy_from_slice(pk);
    Some(padded)
}

/// How keys become numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packing {
    len: usize,
    pk_len: usize,
    /// The bytes that do not vary, zeros elsewhere, and a mask of these bytes.
    template: Padded,
    mask: Padded,
    /// The positions of the varying bytes, ascending.
    places: [u8; WORD],
    count: usize,
}

impl Packing {
    /// The packing of a single key.
    pub(super) fn of(key: &Padded, len: usize, pk_len: usize) -> Packing {
        let mut mask = [0; KEY_MAX];
        mask[..len].fill(0xff);
        Packing { len, pk_len, template: *key, mask, places: [0; WORD], count: 0 }
    }

    pub(super) fn is_for(&self, len: usize, pk_len: usize) -> bool {
        self.len == len && self.pk_len == pk_len
    }

    /// Lets every byte vary in which `key` differs; `None` if these are too many.
    fn widened(&self, key: &Padded) -> Option<Packing> {
        let mut wider = *self;
        wider.count = 0;
        for (at, byte) in key.iter().enumerate().take(self.len) {
            if self.mask[at] == 0 || *byte != self.template[at] {
                *wider.places.get_mut(wider.count)? = at as u8;
                wider.count += 1;
                (wider.template[at], wider.mask[at]) = (0, 0);
            }
        }
        Some(wider)
    }

    /// A packing for the keys of both; `None` if there is none.
    pub(super) fn union(&self, other: &Packing) -> Option<Packing> {
        if !self.is_for(other.len, other.pk_len) {
            return None;
        }
        // Bytes that vary in `other` must differ from the template here.
        let mut key = other.template;
        for place in &other.places[..other.count] {
            key[usize::from(*place)] = !self.template[usize::from(*place)];
        }
        self.widened(&key)
    }

    /// The number of a key of the right length; `None` if it differs in a byte that does not vary.
    #[inline]
    pub(super) fn pack(&self, key: &Padded) -> Option<u128> {
        let words = key.chunks_exact(8).zip(self.template.chunks_exact(8));
        let mut differ = 0;
        for ((key, template), mask) in words.zip(self.mask.chunks_exact(8)) {
            differ |= (word(key) ^ word(template)) & word(mask);
        }
        (differ == 0).then(|| self.gather(key))
    }

    #[inline]
    fn gather(&self, key: &Padded) -> u128 {
        let mut high = 0u64;
        let mut low = 0u64;
        let first = self.count.min(8);
        for place in &self.places[..first] {
            high = high << 8 | u64::from(key[usize::from(*place) % KEY_MAX]);
        }
        for place in &self.places[first..self.count] {
            low = low << 8 | u64::from(key[usize::from(*place) % KEY_MAX]);
        }
        u128::from(high) << (8 * (self.count - first)) | u128::from(low)
    }

    /// Sets the varying bytes of `key` from position `first` on.
    #[inline]
    pub(super) fn scatter(&self, number: u128, first: usize, key: &mut Padded) {
        let bytes = number.to_be_bytes();
        let bytes = &bytes[WORD - self.count..];
        for (place, byte) in self.places[..self.count].iter().zip(bytes).skip(first) {
            key[usize::from(*place) % KEY_MAX] = *byte;
        }
    }

    /// The key of a number.
    pub(super) fn unpack(&self, number: u128) -> Padded {
        let mut key = self.template;
        self.scatter(number, 0, &mut key);
        key
    }

    /// The position of the first varying byte in which two numbers differ; the count of varying
    /// bytes if there is none.
    #[inline]
    pub(super) fn first_difference(&self, a: u128, b: u128) -> usize {
        ((a ^ b).leading_zeros() as usize / 8 + self.count).saturating_sub(WORD).min(self.count)
    }

    /// Converts a number of `other`, whose keys all fit this packing.
    #[inline]
    fn convert(&self, other: &Packing, number: u128) -> u128 {
        self.gather(&other.unpack(number))
    }
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

/// Packed entries in any order.
pub(super) struct Packed {
    /// Set by the first key; it stays when the numbers are removed.
    packing: Option<Packing>,
    numbers: Vec<u128>,
}

impl Packed {
    pub(super) fn new() -> Packed {
        Packed { packing: None, numbers: Vec::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.numbers.len() * WORD
    }

    /// Adds an entry; false if it cannot be packed with the others.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8], pk: &[u8]) -> bool {
        let Some(padded) = padded(key, pk) else { return false };
        let len = key.len() + pk.len();
        let packing = self.packing.get_or_insert_with(|| Packing::of(&padded, len, pk.len()));
        if !packing.is_for(len, pk.len()) {
            return false;
        }
        let number = match packing.pack(&padded) {
            Some(number) => number,
            None => match self.widen(&padded) {
                Some(number) => number,
                None => return false,
            },
        };
        self.numbers.push(number);
        true
    }

    /// Packs all entries anew so that `key` fits; returns its number.
    #[cold]
    fn widen(&mut self, key: &Padded) -> Option<u128> {
        let old = self.packing?;
        let new = old.widened(key)?;
        self.numbers.iter_mut().for_each(|number| *number = new.convert(&old, *number));
        self.packing = Some(new);
        new.pack(key)
    }

    /// Returns the sorted entries and keeps the packing.
    pub(super) fn sort(&mut self) -> SortedPacked {
        let packing = self.packing.unwrap_or_else(|| Packing::of(&[0; KEY_MAX], 0, 0));
        let mut numbers = Vec::with_capacity(self.numbers.capacity());
        std::mem::swap(&mut numbers, &mut self.numbers);
        numbers.sort_unstable();
        numbers.shrink_to_fit();
        SortedPacked { packing, numbers }
    }

    /// Passes every entry to `take` as (key with pk, pk length) and removes it.
    pub(super) fn drain(&mut self, mut take: impl FnMut(&[u8], usize) -> Result<()>) -> Result<()> {
        let Some(packing) = self.packing.take() else { return Ok(()) };
        for number in std::mem::take(&mut self.numbers) {
            take(&packing.unpack(number)[..packing.len], packing.pk_len)?;
        }
        Ok(())
    }
}

/// Packed entries in order.
pub(super) struct SortedPacked {
    pub(super) packing: Packing,
    pub(super) numbers: Vec<u128>,
}

impl SortedPacked {
    pub(super) fn bytes(&self) -> usize {
        self.numbers.len() * WORD
    }

    /// Passes every entry to `take`: (key with pk, length of pk).
    pub(super) fn each(&self, mut take: impl FnMut(&[u8], usize) -> Result<()>) -> Result<()> {
        let Packing { len, pk_len, .. } = self.packing;
        self.numbers.iter().try_for_each(|n| take(&self.packing.unpack(*n)[..len], pk_len))
    }
}

/// A position is noted every so many entries, for cutting a run by key.
const SAMPLE_EVERY: usize = 256;
/// Entries sorted together when a run is written, about, in a large run.
const STRETCH_MAX: usize = 128 << 10;
const STRETCH_MIN: usize = 4 << 10;
/// Number of stretches in a smaller run.
const STRETCHES: usize = 16;

/// Sorted pieces that become one run. They are cut into stretches of keys, and each stretch is
/// sorted as a whole when it is written (joining the parts that are sorted already).
pub(super) struct Stretches {
    packing: Packing,
    pieces: Vec<SortedPacked>,
    /// Numbers between the stretches, ascending.
    bounds: Vec<u128>,
}

impl Stretches {
    /// # Errors
    /// Returns the pieces if they have no common packing.
    pub(super) fn new(pieces: Vec<SortedPacked>) -> std::result::Result<Self, Vec<SortedPacked>> {
        let mut packings = pieces.iter().map(|piece| piece.packing);
        let first = packings.next();
        let Some(packing) = first.and_then(|first| packings.try_fold(first, |a, b| a.union(&b)))
        else {
            return Err(pieces);
        };
        let (mut samples, mut total) = (Vec::new(), 0);
        for piece in &pieces {
            let some = piece.numbers.iter().step_by(SAMPLE_EVERY);
            samples.extend(some.map(|number| packing.convert(&piece.packing, *number)));
            total += piece.numbers.len();
        }
        samples.sort_unstable();
        let stretch = (total / STRETCHES).clamp(STRETCH_MIN, STRETCH_MAX) / SAMPLE_EVERY;
        let bounds = samples.into_iter().step_by(stretch).skip(1).collect();
        Ok(Stretches { packing, pieces, bounds })
    }

    /// Number of stretches, at least 1.
    pub(super) fn count(&self) -> usize {
        self.bounds.len() + 1
    }

    /// The position in a piece at which a stretch begins.
    fn position(&self, stretch: usize, piece: &SortedPacked) -> usize {
        match stretch.checked_sub(1).map(|before| self.bounds.get(before)) {
            None => 0,
            Some(None) => piece.numbers.len(),
            Some(Some(bound)) => {
                let below = |number: &u128| self.packing.convert(&piece.packing, *number) < *bound;
                piece.numbers.partition_point(below)
            }
        }
    }

    /// Passes the entries of a stretch in order to `take`: (key with pk, length of pk).
    pub(super) fn read(
        &self,
        stretch: usize,
        numbers: &mut Vec<u128>,
        mut take: impl FnMut(&[u8], usize) -> Result<()>,
    ) -> Result<()> {
        numbers.clear();
        for piece in &self.pieces {
            let part = self.position(stretch, piece)..self.position(stretch + 1, piece);
            let part = piece.numbers.get(part).ok_or_else(|| Error::internal("unsorted piece"))?;
            match piece.packing == self.packing {
                true => numbers.extend_from_slice(part),
                false => {
                    numbers.extend(part.iter().map(|n| self.packing.convert(&piece.packing, *n)))
                }
            }
        }
        // A stable sort, because it finds the sorted parts and merges them.
        numbers.sort();
        let mut key = self.packing.unpack(0);
        let mut last = 0;
        for number in numbers {
            let first = self.packing.first_difference(*number, last);
            self.packing.scatter(*number, first, &mut key);
            last = *number;
            take(&key[..self.packing.len], self.packing.pk_len)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod packed_tests;
