//! Ranges of keys given by values for the first parts of a key, turned into byte bounds.

use crate::table_layout::{IndexLayout, KeyColumn, Layout};
use evenkeel_base::{Code, Result};
use evenkeel_format::{ValueRef, prefix_successor};
use std::ops::Bound;

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

/// Byte bounds: keys `k` with `lower <= k`, and `k < upper` if there is an upper bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// Inclusive.
    pub lower: Vec<u8>,
    /// Exclusive; `None` is the end.
    pub upper: Option<Vec<u8>>,
}

impl ByteRange {
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
    pub fn index_range(&self, index: &IndexLayout, range: Range<'_>) -> Result<ByteRange> {
        let given = |bound: Bound<&[ValueRef<'_>]>| match bound {
            Bound::Included(values) | Bound::Excluded(values) => values.len(),
            Bound::Unbounded => 0,
        };
        if given(range.lower).max(given(range.upper)) <= index.parts.len() {
            return self.byte_range(&index.parts, range);
        }
        let parts: Vec<KeyColumn> = index.parts.iter().chain(&self.key).copied().collect();
        self.byte_range(&parts, range)
    }

    /// The byte bounds of the key bytes, without clustered keys, of the entries in a range of an
    /// index. A lock of the range covers these, because writers look for locks by key bytes alone.
    ///
    /// # Errors
    /// As `byte_range`.
    pub fn index_lock_range(&self, index: &IndexLayout, range: Range<'_>) -> Result<ByteRange> {
        let len = index.parts.len();
        let range = Range { lower: cut(range.lower, len), upper: cut(range.upper, len) };
        self.byte_range(&index.parts, range)
    }

    /// The byte bounds of a range with one clustered key: it begins with the key, and its end is
    /// not used.
    ///
    /// # Errors
    /// As `byte_range`.
    pub(crate) fn key_itself(&self, values: &[ValueRef<'_>]) -> Result<Option<ByteRange>> {
        let mut lower = Vec::new();
        match self.encode_prefix(&self.key, values, &mut lower) {
            Err(error) if error.code() == Code::ValueRange => Ok(None),
            encoded => encoded.map(|()| Some(ByteRange { lower, upper: None })),
        }
    }

    /// The byte bounds of a range over a key of these parts.
    ///
    /// # Errors
    /// `TooManyKeyParts`, `ValueType`, `ValueRange`.
    pub fn byte_range(&self, parts: &[KeyColumn], range: Range<'_>) -> Result<ByteRange> {
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
