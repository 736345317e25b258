//! Index keys directly from stored rows. If all columns of an index are whole numbers at fixed
//! places and an entry stores nothing beside its key, the key is copied from the row without
//! decoding it.
//!
//! Invariant: a [`KeyCopier`] appends the same bytes as `IndexLayout::encode` for the same row. It
//! is made for one row format; rows of other formats are encoded value by value.

use crate::table_layout::{IndexLayout, Layout};
use evenkeel_format::{FixedPlace, KeyPart, row_version};

/// A column of a key.
enum Source {
    /// A whole number in the row.
    Row { place: FixedPlace, flip: u64, nullable: bool, desc: bool },
    /// Bytes of the clustered key; with `invert` all their bits change.
    Key { at: usize, len: usize, invert: bool },
}

/// Makes the keys of one index from rows of one format.
pub(super) struct KeyCopier {
    version: u16,
    sources: Vec<Source>,
}

impl KeyCopier {
    /// For rows of the present format; `None` if some column needs decoding, or if an entry stores
    /// values beside its key (of a clustered key that does not give them back).
    pub(super) fn new(layout: &Layout, index: &IndexLayout) -> Option<KeyCopier> {
        if index.stores() {
            return None;
        }
        let version = layout.def.entry.row_version;
        let source = |column: usize, part: &KeyPart| match layout.columns[column].from_key {
            Some(key_part) => Source::from_key(layout, key_part, part),
            None => {
                let place = layout.fixed_place(version, column)?;
                let (nullable, desc) = (part.nullable, part.desc);
                Some(Source::Row { place, flip: part.bits_flip()?, nullable, desc })
            }
        };
        let sources = index.parts.iter().map(|p| source(p.column, &p.part)).collect::<Option<_>>();
        sources.map(|sources| KeyCopier { version, sources })
    }

    /// Appends the key of a row; false if the row has another format or is too short.
    #[inline]
    pub(super) fn copy(&self, key: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
        if row_version(row).ok() != Some(self.version) {
            return false;
        }
        self.sources.iter().all(|source| source.append(key, row, out).is_some())
    }
}

impl Source {
    /// A column that only the clustered key holds.
    fn from_key(layout: &Layout, key_part: usize, part: &KeyPart) -> Option<Source> {
        let mut at = 0;
        for before in &layout.key[..key_part] {
            at += before.part.ty.fixed_len().filter(|_| !before.part.nullable)?;
        }
        let own = &layout.key[key_part].part;
        let fits = !own.nullable && !part.nullable && own.ty.is_scalar();
        let len = own.ty.fixed_len().filter(|_| fits)?;
        Some(Source::Key { at, len, invert: own.desc != part.desc })
    }

    #[inline]
    fn append(&self, key: &[u8], row: &[u8], out: &mut Vec<u8>) -> Option<()> {
        match *self {
            Source::Key { at, len, invert } => {
                let bytes = key.get(at..at + len)?;
                match invert {
                    false => out.extend_from_slice(bytes),
                    true => out.extend(bytes.iter().map(|b| !b)),
                }
            }
            Source::Row { place, flip, nullable, desc } => {
                if nullable {
                    let (byte, bit) = place.null?;
                    let is_null = row.get(byte)? & bit != 0;
                    out.push(u8::from(!is_null) ^ if desc { 0xff } else { 0 });
                    if is_null {
                        return Some(());
                    }
                }
                append_number(row.get(place.at..)?, place.len, flip, out)?;
            }
        }
        Some(())
    }
}

/// Appends a little-endian number of `len` bytes, changed by XOR, as a big-endian one.
#[inline]
fn append_number(bytes: &[u8], len: usize, flip: u64, out: &mut Vec<u8>) -> Option<()> {
    match len {
        8 => {
            let number = u64::from_le_bytes(*bytes.first_chunk()?) ^ flip;
            out.extend_from_slice(&number.to_be_bytes());
        }
        4 => {
            let number = u32::from_le_bytes(*bytes.first_chunk()?) ^ flip as u32;
            out.extend_from_slice(&number.to_be_bytes());
        }
        2 => {
            let number = u16::from_le_bytes(*bytes.first_chunk()?) ^ flip as u16;
            out.extend_from_slice(&number.to_be_bytes());
        }
        _ => out.push(*bytes.first().filter(|_| len == 1)? ^ flip as u8),
    }
    Some(())
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod keys_tests;
