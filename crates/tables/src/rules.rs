//! What the encoding of keys depends on beside a table's definition: the page size, which bounds
//! clustered keys (E5), and the collations of the embedding program.

use crate::schema::PartSpec;
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::catalog::{PartCollation, PartEntry};
use evenkeel_format::{Collations, ColumnType, Form, Weigher, limits};

/// See the module's documentation.
#[derive(Clone, Copy)]
pub struct KeyRules {
    page_size: usize,
    collations: Option<&'static dyn Collations>,
}

impl From<usize> for KeyRules {
    /// Without collations, for a page size.
    fn from(page_size: usize) -> KeyRules {
        KeyRules { page_size, collations: None }
    }
}

impl KeyRules {
    /// With the collations of the embedding program, if it has any.
    pub fn new(page_size: usize, collations: Option<&'static dyn Collations>) -> KeyRules {
        KeyRules { page_size, collations }
    }

    /// Bytes of a clustered key at most.
    pub(crate) fn key_bytes_max(self) -> usize {
        self.page_size / limits::CLUSTERED_KEY_PAGE_SHARE
    }

    /// How parts of this kind are encoded here.
    pub(crate) fn form(self, part: &PartEntry) -> Form {
        match (part.collation, part.prefix) {
            (None, 0) => Form::Whole,
            (None, bytes) => Form::Prefix(bytes),
            (Some(PartCollation { id, checksum }), chars) => {
                let by = match self.collations {
                    None => Weigher::Missing,
                    Some(by) => match by.checksum(id) {
                        None => Weigher::Missing,
                        Some(now) if now != checksum => Weigher::Changed,
                        Some(_) => Weigher::By(by),
                    },
                };
                Form::Weights { collation: id, chars, by }
            }
        }
    }

    /// The part for a column's specification. # Errors: `DefinitionInvalid`, `CollationMissing`.
    pub(crate) fn part(self, spec: &PartSpec, column: u16, ty: ColumnType) -> Result<PartEntry> {
        let plain = spec.prefix == 0 && spec.collation == 0;
        let bytes = matches!(ty, ColumnType::Bytes { .. } | ColumnType::FixedBytes { .. });
        if !plain && !bytes {
            return Err(Error::new(Code::DefinitionInvalid)
                .with("column", &spec.column)
                .with("why", "only keys of bytes have prefixes and collations"));
        }
        let collation = match spec.collation {
            0 => None,
            id => {
                let checksum = self.collations.and_then(|by| by.checksum(id));
                let checksum = checksum
                    .ok_or_else(|| Error::new(Code::CollationMissing).with("collation", id))?;
                Some(PartCollation { id, checksum })
            }
        };
        Ok(PartEntry { column, desc: spec.desc, prefix: spec.prefix, collation })
    }
}
