//! Where a value that no key of a column can hold lies among those keys: a bound of a range may be
//! a number beyond the column's domain, a decimal between two of the column's, bytes longer than it
//! takes. `tables::range` alone calls this.

use crate::key::{KeyPart, prefix_successor};
use crate::types::{ColumnType, ValueRef};
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
