//! Ranges of keys given by values for the first parts of a key, turned into byte bounds.

use crate::table_layout::{IndexLayout, KeyColumn, Layout, too_many};
use crate::values::Values;
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::{ValueRef, prefix_successor};
use std::ops::{self, Bound, RangeFull};

/// A range of a primary key or an index. Each bound gives values for the first parts of the key; an
/// included bound contains every key that starts with them, an excluded one none of these.
#[derive(Clone, Copy, Debug)]
pub struct Range<'a> {
    /// Where it begins.
    pub lower: Bound<&'a [ValueRef<'a>]>,
    /// Where it ends.
    pub upper: Bound<&'a [ValueRef<'a>]>,
}

impl<'a> Range<'a> {
    /// Everything.
    pub const ALL: Range<'static> = Range { lower: Bound::Unbounded, upper: Bound::Unbounded };

    /// Every key that starts with these values.
    pub fn prefix(values: &'a [ValueRef<'a>]) -> Range<'a> {
        Range { lower: Bound::Included(values), upper: Bound::Included(values) }
    }

    /// From these values on.
    pub fn from(values: &'a [ValueRef<'a>]) -> Range<'a> {
        Range { lower: Bound::Included(values), upper: Bound::Unbounded }
    }
}

/// The keys that a scan goes through.
#[derive(Clone, Copy, Debug)]
pub enum KeySet<'a> {
    /// Those of a range.
    In(Range<'a>),
    /// Those that have these values in their first parts; of the last value, which is text or
    /// bytes, only the beginning is given.
    StartingWith(&'a [ValueRef<'a>]),
}

impl<'a> From<Range<'a>> for KeySet<'a> {
    fn from(range: Range<'a>) -> KeySet<'a> {
        KeySet::In(range)
    }
}

/// What callers give as the range of a scan: `..`, `7..`, `"a".."c"`, `(1, "a")..=(1, "c")`, a
/// [`Range`], [`exactly`] or [`starting_with`]. A bound holds values of the first parts of the key
/// ([`Values`]), in the order of the key: of a descending part the greater value comes first.
pub trait ScanRange {
    /// Calls `f` with the keys.
    fn give<R>(self, f: impl FnOnce(KeySet<'_>) -> R) -> R;
}

impl ScanRange for KeySet<'_> {
    fn give<R>(self, f: impl FnOnce(KeySet<'_>) -> R) -> R {
        f(self)
    }
}

impl ScanRange for Range<'_> {
    fn give<R>(self, f: impl FnOnce(KeySet<'_>) -> R) -> R {
        f(self.into())
    }
}

/// Calls `f` with the keys between two bounds.
fn between<R, V: Values>(lower: Bound<V>, upper: Bound<V>, f: impl FnOnce(KeySet<'_>) -> R) -> R {
    let with_upper = |lower: Bound<&[ValueRef<'_>]>| match upper {
        Bound::Unbounded => f(Range { lower, upper: Bound::Unbounded }.into()),
        Bound::Included(v) => v.give(|v| f(Range { lower, upper: Bound::Included(v) }.into())),
        Bound::Excluded(v) => v.give(|v| f(Range { lower, upper: Bound::Excluded(v) }.into())),
    };
    match lower {
        Bound::Unbounded => with_upper(Bound::Unbounded),
        Bound::Included(v) => v.give(|v| with_upper(Bound::Included(v))),
        Bound::Excluded(v) => v.give(|v| with_upper(Bound::Excluded(v))),
    }
}

impl ScanRange for RangeFull {
    fn give<R>(self, f: impl FnOnce(KeySet<'_>) -> R) -> R {
        f(Range::ALL.into())
    }
}

macro_rules! ranges {
    ($($ty:ty: $range:ident => $lower:expr, $upper:expr;)*) => {$(
        impl<V: Values> ScanRange for $ty {
            fn give<R>(self, f: impl FnOnce(KeySet<'_>) -> R) -> R {
                let $range = self;
                between($lower, $upper, f)
            }
        }
    )*};
}
ranges! {
    ops::Range<V>: range => Bound::Included(range.start), Bound::Excluded(range.end);
    ops::RangeFrom<V>: range => Bound::Included(range.start), Bound::Unbounded;
    ops::RangeTo<V>: range => Bound::Unbounded, Bound::Excluded(range.end);
    ops::RangeToInclusive<V>: range => Bound::Unbounded, Bound::Included(range.end);
    (Bound<V>, Bound<V>): range => range.0, range.1;
}

impl<V: Values> ScanRange for ops::RangeInclusive<V> {
    fn give<R>(self, f: impl FnOnce(KeySet<'_>) -> R) -> R {
        let (start, end) = self.into_inner();
        between(Bound::Included(start), Bound::Included(end), f)
    }
}

/// Made by [`exactly`].
#[derive(Clone, Copy, Debug)]
pub struct Exactly<V>(V);

/// Made by [`starting_with`].
#[derive(Clone, Copy, Debug)]
pub struct StartingWith<V>(V);

/// The keys that have these values in their first parts.
pub fn exactly<V: Values>(values: V) -> Exactly<V> {
    Exactly(values)
}

/// The keys that have these values in their first parts; of the last value, which is text or bytes,
/// only the beginning is given: `starting_with("Os")`, `starting_with((7, "Os"))`. Longer bytes
/// than a column takes match nothing.
pub fn starting_with<V: Values>(values: V) -> StartingWith<V> {
    StartingWith(values)
}

impl<V: Values> ScanRange for Exactly<V> {
    fn give<R>(self, f: impl FnOnce(KeySet<'_>) -> R) -> R {
        self.0.give(|values| f(Range::prefix(values).into()))
    }
}

impl<V: Values> ScanRange for StartingWith<V> {
    fn give<R>(self, f: impl FnOnce(KeySet<'_>) -> R) -> R {
        self.0.give(|values| f(KeySet::StartingWith(values)))
    }
}

/// Byte bounds: keys `k` with `lower <= k`, and `k < upper` if there is an upper bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// Inclusive.
    pub lower: Vec<u8>,
    /// Exclusive; `None` is the end.
    pub upper: Option<Vec<u8>>,
}

impl ByteRange {
    /// The keys that begin with these bytes.
    pub(crate) fn under(prefix: &[u8]) -> ByteRange {
        let mut end = prefix.to_vec();
        let upper = prefix_successor(&mut end).then_some(end);
        ByteRange { lower: prefix.to_vec(), upper }
    }

    /// True if no key is inside.
    pub fn is_empty(&self) -> bool {
        self.upper.as_ref().is_some_and(|u| *u <= self.lower)
    }

    /// True if `key` is inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.lower[..] && self.upper.as_ref().is_none_or(|u| key < &u[..])
    }
}

/// A bound for the first `len` parts of a key; a longer bound lies within their prefix.
fn cut<'v>(bound: Bound<&'v [ValueRef<'v>]>, len: usize) -> Bound<&'v [ValueRef<'v>]> {
    match bound {
        Bound::Included(values) | Bound::Excluded(values) if values.len() > len => {
            Bound::Included(&values[..len])
        }
        bound => bound,
    }
}

impl Layout {
    /// The byte bounds of a range over entries of an index. After the values of all its parts a
    /// bound may continue with those of the clustered key.
    ///
    /// # Errors
    /// As `byte_range`.
    pub fn index_range<'a>(
        &self,
        index: &IndexLayout,
        keys: impl Into<KeySet<'a>>,
    ) -> Result<ByteRange> {
        let keys = keys.into();
        let given = |bound: Bound<&[ValueRef<'_>]>| match bound {
            Bound::Included(values) | Bound::Excluded(values) => values.len(),
            Bound::Unbounded => 0,
        };
        let given = match keys {
            KeySet::In(range) => given(range.lower).max(given(range.upper)),
            KeySet::StartingWith(values) => values.len(),
        };
        if given <= index.parts.len() {
            return self.byte_range(&index.parts, keys);
        }
        let parts: Vec<KeyColumn> = index.parts.iter().chain(&self.key).copied().collect();
        self.byte_range(&parts, keys)
    }

    /// The byte bounds of the key bytes, without clustered keys, of the entries in a range of an
    /// index. A lock of the range covers these, because writers look for locks by key bytes alone.
    ///
    /// # Errors
    /// As `byte_range`.
    pub fn index_lock_range<'a>(
        &self,
        index: &IndexLayout,
        keys: impl Into<KeySet<'a>>,
    ) -> Result<ByteRange> {
        let len = index.parts.len();
        let keys = match keys.into() {
            KeySet::In(range) => {
                KeySet::In(Range { lower: cut(range.lower, len), upper: cut(range.upper, len) })
            }
            KeySet::StartingWith(values) if values.len() > len => {
                KeySet::In(Range::prefix(&values[..len]))
            }
            keys => keys,
        };
        self.byte_range(&index.parts, keys)
    }

    /// The bytes of a key of these parts; `None` if no key can have one of the values, because it
    /// is beyond the domain of its type, has more digits or is longer.
    ///
    /// # Errors
    /// As `byte_range`.
    pub(crate) fn encode_whole(
        &self,
        parts: &[KeyColumn],
        values: &[ValueRef<'_>],
    ) -> Result<Option<Vec<u8>>> {
        let mut key = Vec::new();
        match self.encode_prefix(parts, values, &mut key) {
            Err(error) if error.code() == Code::ValueRange => Ok(None),
            encoded => encoded.map(|()| Some(key)),
        }
    }

    /// The byte bounds of a range over a key of these parts.
    ///
    /// # Errors
    /// `TooManyKeyParts`, `ValueType`, `ValueRange`.
    pub fn byte_range<'a>(
        &self,
        parts: &[KeyColumn],
        keys: impl Into<KeySet<'a>>,
    ) -> Result<ByteRange> {
        let range = match keys.into() {
            KeySet::In(range) => range,
            KeySet::StartingWith(values) => return self.start_range(parts, values),
        };
        let lower = match range.lower {
            Bound::Unbounded => Some(Vec::new()),
            Bound::Included(values) => self.edge(parts, values, false)?,
            Bound::Excluded(values) => self.edge(parts, values, true)?,
        };
        let upper = match range.upper {
            Bound::Unbounded => None,
            Bound::Included(values) => self.edge(parts, values, true)?,
            Bound::Excluded(values) => self.edge(parts, values, false)?,
        };
        Ok(match lower {
            Some(lower) => ByteRange { lower, upper },
            None => ByteRange { lower: Vec::new(), upper: Some(Vec::new()) },
        })
    }

    /// The byte bounds of the keys that begin with these values, of which the last is a beginning.
    fn start_range(&self, parts: &[KeyColumn], values: &[ValueRef<'_>]) -> Result<ByteRange> {
        let nothing = ByteRange { lower: Vec::new(), upper: Some(Vec::new()) };
        let Some((last, before)) = values.split_last() else { return Ok(ByteRange::default()) };
        let Some(part) = parts.get(before.len()) else {
            return Err(too_many(values.len(), parts.len()));
        };
        let Some(mut lower) = self.encode_whole(parts, before)? else { return Ok(nothing) };
        let named = |error: Error| error.with("column", &self.columns[part.column].name);
        if !part.part.encode_start(*last, &mut lower).map_err(named)? {
            return Ok(nothing);
        }
        let mut upper = lower.clone();
        let upper = prefix_successor(&mut upper).then_some(upper);
        Ok(ByteRange { lower, upper })
    }

    /// The bytes that keys in front of these values are less than, and others are not: keys that
    /// begin with the values lie behind, or in front if `behind`. `None`: all keys lie in front. A
    /// value that no key can hold (beyond the domain of the type, with more digits, longer) has its
    /// place between those that keys can hold.
    fn edge(
        &self,
        parts: &[KeyColumn],
        values: &[ValueRef<'_>],
        behind: bool,
    ) -> Result<Option<Vec<u8>>> {
        let mut edge = Vec::new();
        let Err(error) = self.encode_prefix(parts, values, &mut edge) else {
            return Ok((!behind || prefix_successor(&mut edge)).then_some(edge));
        };
        if error.code() != Code::ValueRange {
            return Err(error);
        }
        edge.clear();
        for (part, value) in parts.iter().zip(values) {
            let len = edge.len();
            if part.part.encode(*value, &mut edge).is_err() {
                edge.truncate(len);
                let has_end = part.part.encode_gap(*value, &mut edge).ok_or(error)?;
                return Ok(has_end.then_some(edge));
            }
        }
        Err(error)
    }
}
