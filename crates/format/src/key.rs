//! Memcomparable keys: the byte order of encoded keys is the order of their values, part by part.
//!
//! ```text
//! part of a nullable column:  00 for NULL (first), else 01 and the value
//! scalar:                     big-endian bits, sign flipped; floats in total order
//! fixed bytes:                the bytes
//! bytes, text:                the bytes with 00 -> 00 FF, then 00 00
//! prefix, weights:            the bytes of `collation::Form` in the same way
//! descending part:            every byte of the part inverted
//! ```
//!
//! Every part is self-delimiting, so no encoded key is a proper prefix of another of the same
//! index, and a prefix of parts is a prefix of bytes.

use crate::collation::Form;
use crate::types::{ColumnType, Value, ValueRef};
use evenkeel_base::{Code, Error, Result};

/// How one part of a key is encoded.
#[derive(Clone, Copy, Debug)]
pub struct KeyPart {
    /// Type of the column.
    pub ty: ColumnType,
    /// True if it may be NULL.
    pub nullable: bool,
    /// Descending order.
    pub desc: bool,
    /// What it holds of the column.
    pub form: Form,
}

impl KeyPart {
    /// A part that holds the whole value.
    pub const fn whole(ty: ColumnType, nullable: bool, desc: bool) -> KeyPart {
        KeyPart { ty, nullable, desc, form: Form::Whole }
    }

    /// The most bytes this part takes.
    pub fn bytes_max(&self) -> usize {
        self.form.bytes_max(self.ty).saturating_add(usize::from(self.nullable))
    }

    /// The length of a value, if all values have the same.
    #[inline]
    fn fixed_len(&self) -> Option<usize> {
        if self.form.is_lossy() { None } else { self.ty.fixed_len() }
    }

    /// Appends the encoded value. # Errors: `ValueType`, `ValueRange`, `NullNotAllowed`.
    pub fn encode(&self, value: ValueRef<'_>, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        match (value.is_null(), self.nullable) {
            (true, true) => out.push(0),
            (true, false) => return Err(Error::new(Code::NullNotAllowed)),
            (false, nullable) => {
                if nullable {
                    out.push(1);
                }
                self.encode_value(value, out)?;
            }
        }
        if self.desc {
            out[start..].iter_mut().for_each(|b| *b = !*b);
        }
        Ok(())
    }

    /// For whole numbers of at most 8 bytes: the number with which the stored bits are combined by
    /// XOR to become, big-endian, the encoded value. `None` for other types.
    pub fn bits_flip(&self) -> Option<u64> {
        let len = self.ty.fixed_len().filter(|len| *len <= 8)?;
        let float = matches!(self.ty, ColumnType::Float32 | ColumnType::Float64);
        if float || !self.ty.is_scalar() {
            return None;
        }
        let all = u64::MAX >> (64 - 8 * len);
        Some(self.ty.ordered_bits(0) as u64 ^ if self.desc { all } else { 0 })
    }

    fn encode_value(&self, value: ValueRef<'_>, out: &mut Vec<u8>) -> Result<()> {
        if self.form.is_lossy() {
            let start = out.len();
            self.form.append(self.ty, value, out)?;
            if out[start..].contains(&0) {
                let bytes = out.split_off(start);
                escape(&bytes, out);
            } else {
                out.extend_from_slice(&END);
            }
            return Ok(());
        }
        if let Some(number) = self.ty.to_number(&value) {
            // The common case, without 128-bit arithmetic: sign flipped, big-endian.
            match self.ty.fixed_len() {
                Some(8) => out.extend_from_slice(&(number ^ i64::MIN).to_be_bytes()),
                Some(4) => out.extend_from_slice(&(number as i32 ^ i32::MIN).to_be_bytes()),
                Some(2) => out.extend_from_slice(&(number as i16 ^ i16::MIN).to_be_bytes()),
                _ => out.push((number as i8 ^ i8::MIN) as u8),
            }
            return Ok(());
        }
        if self.ty.is_scalar() {
            let bits = self.ty.ordered_bits(self.ty.to_bits(value)?);
            let len = self.ty.fixed_len().unwrap_or(16);
            out.extend_from_slice(&bits.to_be_bytes()[16 - len..]);
            return Ok(());
        }
        let bytes = self.ty.to_bytes(value)?;
        if self.ty.fixed_len().is_some() {
            out.extend_from_slice(bytes);
            return Ok(());
        }
        escape(bytes, out);
        Ok(())
    }

    /// True if the part holds a whole value of a scalar type: at most 16 bytes.
    #[inline]
    fn is_number(&self) -> bool {
        self.ty.is_scalar() && !self.form.is_lossy()
    }

    /// True if every value takes the same number of bytes, so that the next part begins at a fixed
    /// place.
    pub fn has_fixed_place(&self) -> bool {
        !self.nullable && self.is_number()
    }

    /// The byte that tells that a part that may be NULL is not NULL.
    pub fn not_null_byte(&self) -> Option<u8> {
        self.nullable.then_some(if self.desc { !1 } else { 1 })
    }

    /// The length of a value of a part that holds numbers.
    pub fn number_len(&self) -> Option<usize> {
        self.ty.fixed_len().filter(|_| self.is_number())
    }

    /// The value of a part that holds numbers, from as many bytes as `number_len` tells.
    #[inline]
    pub fn number(&self, bytes: &[u8]) -> ValueRef<'static> {
        self.scalar(bytes)
    }

    #[cold]
    fn bad(&self, why: &str) -> Error {
        Error::new(Code::BadEncoding).with("what", "key").with("type", self.ty).with("why", why)
    }

    /// Splits the encoded part off `key`: (is it NULL, its value bytes, the rest).
    #[inline]
    fn split<'k>(&self, key: &'k [u8]) -> Result<(bool, &'k [u8], &'k [u8])> {
        let flip = if self.desc { 0xff } else { 0 };
        let mut rest = key;
        if self.nullable {
            let (first, tail) = rest.split_first().ok_or_else(|| self.bad("ends too early"))?;
            rest = tail;
            match first ^ flip {
                0 => return Ok((true, &[], rest)),
                1 => {}
                _ => return Err(self.bad("unknown null byte")),
            }
        }
        let len = match self.fixed_len() {
            Some(len) => len,
            None => self.variable_len(rest, flip)?,
        };
        let (value, rest) = rest.split_at_checked(len).ok_or_else(|| self.bad("ends too early"))?;
        Ok((false, value, rest))
    }

    /// Length of an escaped value with its terminator.
    fn variable_len(&self, bytes: &[u8], flip: u8) -> Result<usize> {
        let mut i = 0;
        while i + 1 < bytes.len() {
            if bytes[i] != flip {
                i += 1;
                continue;
            }
            match bytes[i + 1] ^ flip {
                0 => return Ok(i + 2),
                0xff => i += 2,
                _ => return Err(self.bad("unknown escape")),
            }
        }
        Err(self.bad("no terminator"))
    }

    /// Decodes the first part of `key`; returns the value and the rest. A part without the whole
    /// value returns its bytes. # Errors: `BadEncoding`.
    pub fn decode<'k>(&self, key: &'k [u8]) -> Result<(Value, &'k [u8])> {
        let (null, bytes, rest) = self.split(key)?;
        if null {
            return Ok((Value::Null, rest));
        }
        let flip = if self.desc { 0xff } else { 0 };
        if self.is_number() {
            return Ok((self.scalar(bytes).to_owned(), rest));
        }
        let mut out = Vec::with_capacity(bytes.len());
        if self.fixed_len().is_some() {
            out.extend(bytes.iter().map(|b| b ^ flip));
        } else {
            let mut i = 0;
            while i + 2 < bytes.len() {
                out.push(bytes[i] ^ flip);
                i += if bytes[i] == flip { 2 } else { 1 };
            }
        }
        match self.ty {
            ColumnType::Text { .. } if !self.form.is_lossy() => match String::from_utf8(out) {
                Ok(text) => Ok((Value::Text(text), rest)),
                Err(_) => Err(self.bad("text is no UTF-8")),
            },
            _ => Ok((Value::Bytes(out), rest)),
        }
    }

    /// As `decode`; bytes that lie unchanged in the key are lent from there, others from `scratch`.
    /// # Errors: `BadEncoding`.
    pub fn decode_in<'k: 'r, 's: 'r, 'r>(
        &self,
        key: &'k [u8],
        scratch: &'s mut Vec<u8>,
    ) -> Result<(ValueRef<'r>, &'k [u8])> {
        let (null, bytes, rest) = self.split(key)?;
        if null {
            return Ok((ValueRef::Null, rest));
        }
        if self.is_number() {
            return Ok((self.scalar(bytes), rest));
        }
        let whole = match self.fixed_len() {
            Some(_) => bytes,
            None => &bytes[..bytes.len().saturating_sub(END.len())],
        };
        let is_escaped = self.fixed_len().is_none() && whole.contains(&0);
        if !self.desc && !is_escaped && !matches!(self.ty, ColumnType::Text { .. }) {
            return Ok((ValueRef::Bytes(whole), rest));
        }
        let (value, rest) = self.decode(key)?;
        scratch.clear();
        Ok(match value {
            Value::Bytes(bytes) => {
                scratch.extend_from_slice(&bytes);
                (ValueRef::Bytes(scratch), rest)
            }
            Value::Text(text) => {
                scratch.extend_from_slice(text.as_bytes());
                let text =
                    std::str::from_utf8(scratch).map_err(|_| self.bad("text is no UTF-8"))?;
                (ValueRef::Text(text), rest)
            }
            _ => return Err(self.bad("neither a number nor bytes")),
        })
    }

    #[inline]
    fn scalar(&self, bytes: &[u8]) -> ValueRef<'static> {
        // The common widths and types, without 128-bit arithmetic.
        let flip = if self.desc { u64::MAX } else { 0 };
        let (bits, unused) = match *bytes {
            [a, b, c, d] => (u64::from(u32::from_be_bytes([a, b, c, d])), 32),
            [a, b, c, d, e, f, g, h] => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 0),
            _ => return self.scalar_of_any_width(bytes),
        };
        let high = (bits ^ flip) << unused;
        let signed = ((high ^ 1 << 63) as i64) >> unused;
        match self.ty {
            ColumnType::Int32 | ColumnType::Int64 => ValueRef::Int(signed),
            ColumnType::UInt32 | ColumnType::UInt64 => ValueRef::UInt(high >> unused),
            ColumnType::Date => ValueRef::Date(signed as i32),
            ColumnType::DateTime => ValueRef::DateTime(signed),
            _ => self.scalar_of_any_width(bytes),
        }
    }

    fn scalar_of_any_width(&self, bytes: &[u8]) -> ValueRef<'static> {
        let flip = if self.desc { 0xff } else { 0 };
        let mut be = [0u8; 16];
        for (to, from) in be[16 - bytes.len()..].iter_mut().zip(bytes) {
            *to = from ^ flip;
        }
        self.ty.from_bits(self.ty.unordered_bits(u128::from_be_bytes(be)))
    }

    /// Decodes the first part of `key`, of a scalar type, without copying.
    /// # Errors: `BadEncoding`, also for a type of bytes.
    #[inline]
    pub fn decode_scalar(&self, key: &[u8]) -> Result<ValueRef<'static>> {
        let (null, bytes, _) = self.split(key)?;
        if null {
            return Ok(ValueRef::Null);
        }
        if !self.is_number() {
            return Err(self.bad("not a number"));
        }
        Ok(self.scalar(bytes))
    }

    /// The rest behind the first part of `key`. # Errors: `BadEncoding`.
    pub fn skip<'k>(&self, key: &'k [u8]) -> Result<&'k [u8]> {
        Ok(self.split(key)?.2)
    }

    /// True if the first part of `key` is NULL. # Errors: `BadEncoding`.
    pub fn is_null(&self, key: &[u8]) -> Result<bool> {
        Ok(self.split(key)?.0)
    }
}

/// The terminator of the bytes of a part.
const END: [u8; 2] = [0, 0];

/// Appends bytes, escaped, and their terminator.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    escape_open(bytes, out);
    out.extend_from_slice(&END);
}

/// Appends bytes, escaped, without a terminator: what longer ones begin with.
pub(crate) fn escape_open(bytes: &[u8], out: &mut Vec<u8>) {
    for (i, piece) in bytes.split(|b| *b == 0).enumerate() {
        if i > 0 {
            out.extend_from_slice(&[0, 0xff]);
        }
        out.extend_from_slice(piece);
    }
}

/// The smallest byte string above every string that starts with `prefix`, in place; false if there
/// is none (only FF bytes).
pub fn prefix_successor(prefix: &mut Vec<u8>) -> bool {
    while let Some(last) = prefix.last_mut() {
        if *last < 0xff {
            *last += 1;
            return true;
        }
        prefix.pop();
    }
    false
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod key_tests;
