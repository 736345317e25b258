//! Checked reading and appending of integers, varints and length-prefixed bytes.
//!
//! A varint is LEB128: 7 bits a byte, low bits first, at most 10 bytes. "bytes" are a varint length
//! and then that many bytes.

use evenkeel_base::{Code, Error, Result};
use std::fmt;

/// The error for whole bytes of a structure that hold an unknown value in a field.
#[cold]
pub fn newer(what: &str, field: &str, found: impl fmt::Display) -> Error {
    Error::new(Code::NewerFormat).with("part", what).with("field", field).with("found", found)
}

/// A field of whole bytes with a value that this version does not know; the decoder of the
/// structure makes its error from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub field: &'static str,
    pub found: u64,
}

impl Unknown {
    /// Ok if `found` has no bit beside those of `known`.
    #[inline]
    pub fn check(field: &'static str, found: u8, known: u8) -> std::result::Result<(), Unknown> {
        match found & !known {
            0 => Ok(()),
            _ => Err(Unknown { field, found: found.into() }),
        }
    }

    /// Ok if every byte is zero.
    #[inline]
    pub fn check_zero(field: &'static str, bytes: &[u8]) -> std::result::Result<(), Unknown> {
        match bytes.iter().find(|byte| **byte != 0) {
            None => Ok(()),
            Some(found) => Err(Unknown { field, found: (*found).into() }),
        }
    }
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads from a slice; every read is checked.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`; `what` names them in errors.
    pub fn new(bytes: &'a [u8], what: &'static str) -> Reader<'a> {
        Reader { rest: bytes, what }
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True at the end.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The error for these bytes.
    #[cold]
    pub fn bad(&self, why: &str) -> Error {
        Error::new(Code::BadEncoding).with("what", self.what).with("why", why)
    }

    /// The error for a flag, kind, version or reserved byte that this build does not know, in bytes
    /// whose checksum was right: no damage, but the work of a newer version.
    #[cold]
    pub fn newer(&self, field: &str, found: impl fmt::Display) -> Error {
        newer(self.what, field, found)
    }

    /// Ok if `found` has no bit beside those of `known`, as flags and reserved bytes must.
    ///
    /// # Errors
    /// `NewerFormat` naming the field and the unknown bits.
    #[inline]
    pub fn known(&self, field: &str, found: u8, known: u8) -> Result<()> {
        match found & !known {
            0 => Ok(()),
            unknown => Err(self.newer(field, format_args!("{unknown:#04x}"))),
        }
    }

    /// Ok if every one of these reserved bytes is zero.
    ///
    /// # Errors
    /// `NewerFormat` naming the field and the first other byte.
    pub fn zero(&self, field: &'static str, bytes: &[u8]) -> Result<()> {
        Unknown::check_zero(field, bytes).map_err(|unknown| self.newer(field, unknown.found))
    }

    /// The next `n` bytes. # Errors: `BadEncoding` past the end (all methods).
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(n) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(self.bad("ends too early")),
        }
    }

    /// A byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// A byte that is 0 or 1. # Errors: `NewerFormat` for another one.
    pub fn flag(&mut self, field: &str) -> Result<bool> {
        let byte = self.u8()?;
        self.known(field, byte, 1)?;
        Ok(byte == 1)
    }

    /// A little-endian u16.
    pub fn u16(&mut self) -> Result<u16> {
        let b = self.take(2)?;
        Ok(u16::from_le_bytes([b[0], b[1]]))
    }

    /// A little-endian u32.
    pub fn u32(&mut self) -> Result<u32> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// A little-endian u64.
    pub fn u64(&mut self) -> Result<u64> {
        let b = self.take(8)?;
        Ok(u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
    }

    /// A little-endian u128.
    pub fn u128(&mut self) -> Result<u128> {
        let (low, high) = (self.u64()?, self.u64()?);
        Ok(u128::from(low) | u128::from(high) << 64)
    }

    /// A varint.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        if let Some((first, rest)) = self.rest.split_first()
            && *first < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(*first));
        }
        match self.varint_in_word() {
            Some(value) => Ok(value),
            None => self.varint_by_bytes(),
        }
    }

    /// A varint of up to 8 bytes, if 8 bytes can be read: all of them at once.
    #[inline]
    fn varint_in_word(&mut self) -> Option<u64> {
        let word = u64::from_le_bytes(*self.rest.first_chunk()?);
        let ends = !word & 0x8080_8080_8080_8080;
        // The bits up to the first byte that ends the varint.
        let bits = word & (ends ^ ends.wrapping_sub(1));
        let pairs = (bits & 0x007f_007f_007f_007f) | (bits & 0x7f00_7f00_7f00_7f00) >> 1;
        let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
        let all = (fours & 0x0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4;
        let len = ends.trailing_zeros() as usize / 8 + 1;
        self.rest = self.rest.get(len..).filter(|_| ends != 0)?;
        Some(all)
    }

    /// Any varint, or the error.
    #[inline(never)]
    fn varint_by_bytes(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.bad("varint beyond 64 bits"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.bad("varint longer than 10 bytes"))
    }

    /// A varint that fits 32 bits.
    #[inline]
    pub fn varint32(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| self.bad("number beyond 32 bits"))
    }

    /// Length-prefixed bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let n = self.varint()?;
        match usize::try_from(n) {
            Ok(n) => self.take(n),
            Err(_) => Err(self.bad("length beyond memory")),
        }
    }

    /// Ok at the end. # Errors: `BadEncoding` if bytes are left.
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.bad("bytes left over")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A varint decodes to the value of its bytes whatever its length, also if it is longer than
    /// necessary, and whatever follows it or is missing behind it.
    #[test]
    fn varints_are_read_as_byte_by_byte() {
        let mut random = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let mut read = [0u32; 12];
        for _ in 0..200_000 {
            let continued = next() % 12;
            let mut bytes = Vec::new();
            for at in 0..next() % 20 {
                let byte = next() as u8;
                bytes.push(if at < continued { byte | 0x80 } else { byte });
            }
            if let Some(last) = bytes.get_mut(9) {
                // Otherwise hardly any varint of ten bytes fits 64 bits.
                *last &= 0x81;
            }
            let (mut one, mut other) = (Reader::new(&bytes, "test"), Reader::new(&bytes, "test"));
            match (one.varint(), other.varint_by_bytes()) {
                (Ok(value), Ok(expected)) => {
                    assert_eq!((value, one.rest()), (expected, other.rest()), "{bytes:x?}");
                    read[bytes.len() - one.rest().len()] += 1;
                }
                (Err(error), Err(expected)) => {
                    assert_eq!(error.to_string(), expected.to_string());
                    read[11] += 1;
                }
                (value, expected) => panic!("{value:?}, not {expected:?}, of {bytes:x?}"),
            }
        }
        assert!(read[1..].iter().all(|count| *count > 1000), "{read:?}");
        for value in (0..64).flat_map(|bit| [u64::MAX >> bit, 1 << bit]) {
            for behind in [0, 7, 8, 9] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                bytes.resize(bytes.len() + behind, 0xff);
                let mut r = Reader::new(&bytes, "test");
                assert_eq!((r.varint().expect("a varint"), r.rest().len()), (value, behind));
            }
        }
    }
}
