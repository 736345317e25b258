//! Places among the keys of a column that no value of it has. A bound of a range may be a number
//! beyond the column's domain, a decimal between two of the column's, bytes longer than it takes.
//! And values that begin alike lie between two such places. `tables::range` alone calls this.

use crate::collation::Form;
use crate::key::{KeyPart, escape_open, prefix_successor};
use crate::types::{ColumnType, ValueRef};
use evenkeel_base::{Code, Error, Result};
use std::borrow::Cow;

/// Where it lies among the values of a type, in ascending order.
enum Place<'v> {
    /// In front of all of them.
    First,
    /// Behind all of them.
    Last,
    /// Directly behind this one.
    Behind(ValueRef<'v>),
    /// In front of all that begin with these bytes, behind all that are less.
    Ahead(Cow<'v, [u8]>),
}

impl KeyPart {
    /// Appends the place of a value that `encode` refused with `ValueRange`: keys whose bytes are
    /// less lie in front of the value, others behind it. `Some(false)`: all keys that begin with
    /// what was in `out` lie in front; `out` is useless then. `None`: such a value has no place
    /// (collations).
    pub fn encode_gap(&self, value: ValueRef<'_>, out: &mut Vec<u8>) -> Option<bool> {
        if self.form.is_lossy() {
            return None;
        }
        let place = place(self.ty, value)?;
        let start = out.len();
        if self.nullable {
            out.push(if self.desc { !1 } else { 1 });
        }
        match (place, self.desc) {
            (Place::First, false) | (Place::Last, true) => Some(true),
            (Place::First, true) | (Place::Last, false) => Some(prefix_successor(out)),
            (Place::Behind(less), desc) => {
                out.truncate(start);
                self.encode_bytes_or_number(less, out)?;
                // Descending, what lies behind it in value lies in front of it in bytes.
                Some(desc || prefix_successor(out))
            }
            (Place::Ahead(bytes), false) => {
                out.extend_from_slice(&bytes);
                Some(true)
            }
            (Place::Ahead(bytes), true) => {
                out.extend(bytes.iter().map(|b| !b));
                Some(prefix_successor(out))
            }
        }
    }

    /// Appends what the bytes of every value begin with that itself begins with these bytes or this
    /// text; false if no value of the type can. A part that holds the beginning of values alone
    /// judges by that.
    ///
    /// # Errors
    /// `ValueType` unless both are bytes or text, and for weights of a collation.
    pub fn encode_start(&self, value: ValueRef<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let bytes = match (self.ty, value) {
            (ColumnType::FixedBytes { .. } | ColumnType::Bytes { .. }, ValueRef::Bytes(b)) => b,
            (ColumnType::Bytes { .. } | ColumnType::Text { .. }, ValueRef::Text(t)) => t.as_bytes(),
            _ => return Err(self.no_start(value)),
        };
        let is_fixed = matches!(self.ty, ColumnType::FixedBytes { .. });
        let max = match self.ty {
            ColumnType::FixedBytes { len } => usize::from(len),
            ColumnType::Bytes { max } | ColumnType::Text { max } => max as usize,
            _ => usize::MAX,
        };
        if bytes.len() > max {
            return Ok(false);
        }
        let (bytes, is_escaped) = match self.form {
            Form::Whole => (bytes, !is_fixed),
            Form::Prefix(len) => (&bytes[..bytes.len().min(len as usize)], true),
            Form::Weights { .. } => return Err(self.no_start(value)),
        };
        let start = out.len();
        if self.nullable {
            out.push(1);
        }
        match is_escaped {
            true => escape_open(bytes, out),
            false => out.extend_from_slice(bytes),
        }
        if self.desc {
            out[start..].iter_mut().for_each(|b| *b = !*b);
        }
        Ok(true)
    }

    fn no_start(&self, value: ValueRef<'_>) -> Error {
        Error::new(Code::ValueType)
            .with("type", self.ty)
            .with("value", value.brief())
            .with("why", "only bytes and texts in the order of their bytes begin with others")
    }

    /// As `encode`; text may end within a character.
    fn encode_bytes_or_number(&self, value: ValueRef<'_>, out: &mut Vec<u8>) -> Option<()> {
        let ty = match (self.ty, value) {
            (ColumnType::Text { max }, ValueRef::Bytes(_)) => ColumnType::Bytes { max },
            (ty, _) => ty,
        };
        KeyPart { ty, ..*self }.encode(value, out).ok()
    }
}

fn place(ty: ColumnType, value: ValueRef<'_>) -> Option<Place<'_>> {
    let by_sign = |negative| if negative { Place::First } else { Place::Last };
    match (ty, value) {
        (ColumnType::Decimal { scale, .. }, ValueRef::Decimal(unscaled, have)) if have > scale => {
            let Some(step) = 10i128.checked_pow(u32::from(have - scale)) else {
                return Some(by_sign(unscaled < 0));
            };
            let less = ValueRef::Decimal(unscaled.div_euclid(step), scale);
            match ty.to_bits(less) {
                Ok(_) => Some(Place::Behind(less)),
                // Its digits alone are too many.
                Err(_) => Some(by_sign(unscaled < 0)),
            }
        }
        (_, ValueRef::Int(i)) => Some(by_sign(i < 0)),
        (_, ValueRef::UInt(_)) => Some(Place::Last),
        (_, ValueRef::Decimal(unscaled, _)) => Some(by_sign(unscaled < 0)),
        (ColumnType::FixedBytes { len }, ValueRef::Bytes(bytes)) if bytes.len() < len as usize => {
            Some(Place::Ahead(Cow::Borrowed(bytes)))
        }
        (ColumnType::FixedBytes { len: max }, ValueRef::Bytes(bytes)) => {
            Some(Place::Behind(ValueRef::Bytes(&bytes[..max as usize])))
        }
        (ColumnType::Bytes { max } | ColumnType::Text { max }, ValueRef::Bytes(bytes)) => {
            Some(Place::Behind(ValueRef::Bytes(&bytes[..max as usize])))
        }
        (ColumnType::Bytes { max } | ColumnType::Text { max }, ValueRef::Text(text)) => {
            Some(Place::Behind(ValueRef::Bytes(&text.as_bytes()[..max as usize])))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "gap_tests.rs"]
mod gap_tests;
