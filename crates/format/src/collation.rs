//! Key parts whose bytes are not the column's: prefixes, and weights of a collation.
//!
//! The engine knows no collation. The embedding program gives [`Collations`]: weights whose byte
//! order is the collation's order. A key part escapes and terminates them like any other bytes, so
//! keys can be split, compared and merged without the collation; only encoding a key needs it.

use crate::types::{ColumnType, ValueRef};
use evenkeel_base::{Code, Error, Result};
use std::fmt;

/// The collations of the program that embeds the engine.
pub trait Collations: Send + Sync {
    /// Appends the weights of the first `chars` characters of `bytes` (0: all). Their order by
    /// bytes, in which a proper prefix is less, is the order of the collation; strings that the
    /// collation treats as equal have equal weights.
    ///
    /// # Errors
    /// `CollationMissing` if there is no such collation.
    fn weights(&self, collation: u16, chars: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<()>;

    /// The most bytes of weights, escaped, that a value of `bytes` bytes can have.
    fn bytes_max(&self, collation: u16, chars: u32, bytes: u32) -> usize;

    /// A number that changes when weights of the collation change; `None` if it does not exist.
    fn checksum(&self, collation: u16) -> Option<u32>;
}

/// The source of weights.
#[derive(Clone, Copy)]
pub enum Weigher {
    /// No collations were given, or not this one.
    Missing,
    /// The collation has changed since the key was made.
    Changed,
    /// These collations make them.
    By(&'static dyn Collations),
}

impl fmt::Debug for Weigher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Weigher::Missing => "Missing",
            Weigher::Changed => "Changed",
            Weigher::By(_) => "By",
        })
    }
}

/// What a key part holds of a column.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// The whole value, which the part gives back.
    Whole,
    /// The first bytes of the value.
    Prefix(u32),
    /// Weights of the first `chars` characters, 0 for all.
    Weights {
        /// Number of the collation in the embedding program.
        collation: u16,
        /// Characters.
        chars: u32,
        /// The source of the weights.
        by: Weigher,
    },
}

impl Form {
    /// True if the part does not give the value back.
    pub fn is_lossy(&self) -> bool {
        !matches!(self, Form::Whole)
    }

    /// True if an entry stores the value beside the part, so that it covers the column.
    pub fn is_stored(&self) -> bool {
        matches!(self, Form::Weights { chars: 0, .. })
    }

    /// True if the part cannot be encoded here.
    pub fn is_missing(&self) -> bool {
        matches!(self, Form::Weights { by: Weigher::Missing | Weigher::Changed, .. })
    }

    /// The most bytes that a part of this form takes, the null byte not counted.
    pub fn bytes_max(&self, ty: ColumnType) -> usize {
        let len = match ty {
            ColumnType::Bytes { max } | ColumnType::Text { max } => max,
            other => other.fixed_len().map_or(u32::MAX, |len| len as u32),
        };
        match *self {
            Form::Whole => ty.key_bytes_max(),
            Form::Prefix(bytes) => 2 * bytes.min(len) as usize + 2,
            Form::Weights { collation, chars, by: Weigher::By(by) } => {
                by.bytes_max(collation, chars, len).saturating_add(2)
            }
            Form::Weights { .. } => usize::MAX,
        }
    }

    /// Appends the bytes of a part that is not `Whole`, not escaped yet.
    pub(crate) fn append(
        &self,
        ty: ColumnType,
        value: ValueRef<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let bytes = match (ty, value) {
            // The value of a bound may have any length.
            (ColumnType::Bytes { .. }, ValueRef::Bytes(bytes)) => bytes,
            (ColumnType::FixedBytes { .. }, ValueRef::Bytes(bytes)) => bytes,
            (_, value) => ty.to_bytes(value)?,
        };
        match *self {
            Form::Whole => out.extend_from_slice(bytes),
            Form::Prefix(len) => out.extend_from_slice(&bytes[..bytes.len().min(len as usize)]),
            Form::Weights { collation, chars, by } => match by {
                Weigher::By(by) => by.weights(collation, chars, bytes, out)?,
                Weigher::Missing => {
                    return Err(Error::new(Code::CollationMissing).with("collation", collation));
                }
                Weigher::Changed => {
                    return Err(Error::new(Code::CollationChanged).with("collation", collation));
                }
            },
        }
        Ok(())
    }
}
