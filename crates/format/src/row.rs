//! Rows: one codec based on column types, so that tools and other formats can read them.
//!
//! ```text
//! flags u8      bits 0-1: width of the ends (0: 1 byte, 1: 2, 2: 4);
//!               bit 2: some value is a reference; bit 3 is reserved: a codec byte follows
//! version       varint, the row format of the table this row was written in
//! null bitmap   one bit per nullable column of that format, set = NULL
//! fixed part    the fixed-length columns at fixed offsets, little-endian; zeros for NULL
//! ends          per variable column the end of its bytes, counted from the first; with bit 2 the
//!               top bit of an end says: these bytes are a reference to overflow pages
//! variable part
//! ```
//!
//! A row holds the columns of its format that its clustered key does not give back. A column added
//! later is absent and reads as that column's default; a dropped one is skipped.

use crate::types::{ColumnType, ValueRef};
use crate::{Reader, put_varint};
use evenkeel_base::{Code, Error, Result};

const WIDTH_MASK: u8 = 3;
const HAS_REFERENCES: u8 = 4;
const KNOWN_FLAGS: u8 = WIDTH_MASK | HAS_REFERENCES;
const REFERENCE: u32 = 1 << 31;
/// The values of a row together, at most: more than the largest page takes. A longer row is refused
/// before its values are copied.
const VALUES_BYTES_MAX: u64 = 1 << 20;

/// A column of a row format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowColumn {
    /// Id of the column in its table, never reused.
    pub id: u16,
    /// Its type.
    pub ty: ColumnType,
    /// True if it may be NULL.
    pub nullable: bool,
}

/// The content of a row for a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// The value itself.
    Value(ValueRef<'a>),
    /// The value lies in overflow pages: a reference that `tree` understands.
    Reference(&'a [u8]),
}

/// A `Field` by reference. Values are read in place: moving one copies it piece by piece, and
/// reading it back then waits for those stores, which costs more than encoding it.
enum FieldRef<'a> {
    Value(&'a ValueRef<'a>),
    Reference(&'a [u8]),
}

/// The source of an encoded row: `with` passes the i-th field.
trait Fields {
    fn with<R>(&self, i: usize, look: impl FnOnce(FieldRef<'_>) -> R) -> R;
}

/// Fields that are made on demand.
struct Made<F>(F);

impl<'v, F: Fn(usize) -> Field<'v>> Fields for Made<F> {
    fn with<R>(&self, i: usize, look: impl FnOnce(FieldRef<'_>) -> R) -> R {
        match &(self.0)(i) {
            Field::Value(value) => look(FieldRef::Value(value)),
            Field::Reference(bytes) => look(FieldRef::Reference(bytes)),
        }
    }
}

/// Values at hand.
struct Lent<F>(F);

impl<'a, F: Fn(usize) -> &'a ValueRef<'a>> Fields for Lent<F> {
    #[inline]
    fn with<R>(&self, i: usize, look: impl FnOnce(FieldRef<'_>) -> R) -> R {
        look(FieldRef::Value((self.0)(i)))
    }
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Fixed { offset: u32, len: u16 },
    Variable { ordinal: u16 },
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    place: Place,
    null_bit: Option<u16>,
}

/// The place of a column of fixed length, common to all rows of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedPlace {
    /// Offset from the beginning of the row.
    pub at: usize,
    /// Length.
    pub len: usize,
    /// The byte, and the bit in it, that mean NULL.
    pub null: Option<(usize, u8)>,
}

/// The place of a column of variable length, common to all rows of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariablePlace {
    /// Offset of the ends from the beginning of the row.
    ends_at: usize,
    /// The number of ends.
    count: usize,
    /// The column's number among them.
    ordinal: usize,
    /// The byte, and the bit in it, that mean NULL.
    pub null: Option<(usize, u8)>,
}

impl VariablePlace {
    /// The bytes of the column in a row of the format; `None` if the row does not hold them: some
    /// values are in overflow pages, or the row is damaged.
    #[inline]
    pub fn bytes<'r>(&self, row: &'r [u8]) -> Option<&'r [u8]> {
        let width = match row.first()? & (WIDTH_MASK | HAS_REFERENCES) {
            0 => 1,
            1 => 2,
            2 => 4,
            _ => return None,
        };
        let ends = row.get(self.ends_at..)?;
        let end = |ordinal: usize| -> Option<usize> {
            let end = ends.get(ordinal * width..(ordinal + 1) * width)?;
            Some(match *end {
                [a] => usize::from(a),
                [a, b] => usize::from(u16::from_le_bytes([a, b])),
                [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as usize,
                _ => return None,
            })
        };
        let start = if self.ordinal == 0 { 0 } else { end(self.ordinal - 1)? };
        ends.get(width * self.count..)?.get(start..end(self.ordinal)?)
    }
}

/// The layout of one row format, computed from its columns.
#[derive(Clone, Debug)]
pub struct RowLayout {
    version: u16,
    columns: Vec<RowColumn>,
    slots: Vec<Slot>,
    bitmap_len: usize,
    fixed_len: usize,
    variable_count: usize,
}

impl RowLayout {
    /// The layout of format `version` with these columns.
    pub fn new(version: u16, columns: Vec<RowColumn>) -> RowLayout {
        let (mut nullable, mut fixed, mut variable) = (0u16, 0u32, 0u16);
        let mut slots = Vec::with_capacity(columns.len());
        for column in &columns {
            let null_bit = column.nullable.then_some(nullable);
            nullable += u16::from(column.nullable);
            let place = match column.ty.fixed_len() {
                Some(len) => {
                    let place = Place::Fixed { offset: fixed, len: len as u16 };
                    fixed += len as u32;
                    place
                }
                None => {
                    variable += 1;
                    Place::Variable { ordinal: variable - 1 }
                }
            };
            slots.push(Slot { place, null_bit });
        }
        RowLayout {
            version,
            columns,
            slots,
            bitmap_len: usize::from(nullable).div_ceil(8),
            fixed_len: fixed as usize,
            variable_count: usize::from(variable),
        }
    }

    /// Its number.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Its columns in order.
    pub fn columns(&self) -> &[RowColumn] {
        &self.columns
    }

    /// The place of the i-th column, if it is one of fixed length.
    pub fn fixed_place(&self, i: usize) -> Option<FixedPlace> {
        let bitmap_at = self.bitmap_at();
        let slot = self.slots.get(i)?;
        let Place::Fixed { offset, len } = slot.place else { return None };
        let null = slot.null_bit.map(|bit| (bitmap_at + usize::from(bit / 8), 1 << (bit % 8)));
        let at = bitmap_at + self.bitmap_len + offset as usize;
        Some(FixedPlace { at, len: usize::from(len), null })
    }

    /// The place of the i-th column, if it is one of variable length.
    pub fn variable_place(&self, i: usize) -> Option<VariablePlace> {
        let slot = self.slots.get(i)?;
        let Place::Variable { ordinal } = slot.place else { return None };
        let (bitmap_at, ordinal) = (self.bitmap_at(), usize::from(ordinal));
        let null = slot.null_bit.map(|bit| (bitmap_at + usize::from(bit / 8), 1 << (bit % 8)));
        let ends_at = bitmap_at + self.bitmap_len + self.fixed_len;
        Some(VariablePlace { ends_at, count: self.variable_count, ordinal, null })
    }

    fn bitmap_at(&self) -> usize {
        let mut version = Vec::new();
        put_varint(&mut version, u64::from(self.version));
        1 + version.len()
    }

    /// Appends a row; `field(i)` gives the value of the i-th column of the format.
    ///
    /// # Errors
    /// `ValueType`, `ValueRange`, `NullNotAllowed`, `RowTooLong` if it is longer than any page;
    /// then `out` is unchanged.
    pub fn encode<'v>(&self, field: impl Fn(usize) -> Field<'v>, out: &mut Vec<u8>) -> Result<()> {
        self.encode_fields(&Made(field), out)
    }

    /// As `encode`, for values at hand, none of them in overflow pages.
    ///
    /// # Errors
    /// As `encode`.
    #[inline]
    pub fn encode_values<'v>(
        &self,
        value: impl Fn(usize) -> &'v ValueRef<'v>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.encode_fields(&Lent(value), out)
    }

    fn encode_fields(&self, fields: &impl Fields, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let done = self.encode_inner(fields, out);
        if done.is_err() {
            out.truncate(start);
        }
        done
    }

    /// Bytes of the shortest row: with empty or NULL values for all types of variable length.
    pub fn row_bytes_min(&self) -> usize {
        self.bitmap_at() + self.bitmap_len + self.fixed_len + self.variable_count
    }

    fn encode_inner(&self, fields: &impl Fields, out: &mut Vec<u8>) -> Result<()> {
        let flags_at = out.len();
        out.push(0);
        put_varint(out, u64::from(self.version));
        let bitmap_at = out.len();
        let fixed_at = bitmap_at + self.bitmap_len;
        out.resize(fixed_at + self.fixed_len, 0);
        let (mut total, mut references) = (0u64, false);
        for (i, (column, slot)) in self.columns.iter().zip(&self.slots).enumerate() {
            fields.with(i, |field| -> Result<()> {
                match (slot.place, field) {
                    (_, FieldRef::Value(ValueRef::Null)) => match slot.null_bit {
                        None => return Err(Error::new(Code::NullNotAllowed)),
                        Some(bit) => out[bitmap_at + usize::from(bit / 8)] |= 1 << (bit % 8),
                    },
                    (Place::Fixed { offset, len }, FieldRef::Value(value)) => {
                        let at = fixed_at + offset as usize;
                        put_fixed(column.ty, value, &mut out[at..at + usize::from(len)])?;
                    }
                    (Place::Fixed { .. }, FieldRef::Reference(_)) => {
                        return Err(Error::internal("a reference in a column of fixed length"));
                    }
                    (Place::Variable { .. }, FieldRef::Value(value)) => {
                        total += column.ty.to_bytes(*value)?.len() as u64;
                    }
                    (Place::Variable { .. }, FieldRef::Reference(bytes)) => {
                        total += bytes.len() as u64;
                        references = true;
                    }
                }
                Ok(())
            })?;
        }
        if self.variable_count > 0 {
            if total > VALUES_BYTES_MAX {
                return Err(Error::new(Code::RowTooLong).with("bytes", total));
            }
            let width = match total {
                _ if references => 2,
                0..=0xff => 0,
                0x100..=0xffff => 1,
                _ => 2,
            };
            out[flags_at] = width | if references { HAS_REFERENCES } else { 0 };
            self.encode_variable(fields, width, out)?;
        }
        Ok(())
    }

    fn encode_variable(&self, fields: &impl Fields, width: u8, out: &mut Vec<u8>) -> Result<()> {
        let width = 1usize << width;
        let mut end_at = out.len();
        out.resize(end_at + width * self.variable_count, 0);
        let base = out.len();
        for (i, (column, slot)) in self.columns.iter().zip(&self.slots).enumerate() {
            if matches!(slot.place, Place::Fixed { .. }) {
                continue;
            }
            let mark = fields.with(i, |field| -> Result<u32> {
                match field {
                    FieldRef::Value(ValueRef::Null) => {}
                    FieldRef::Value(value) => out.extend_from_slice(column.ty.to_bytes(*value)?),
                    FieldRef::Reference(bytes) => {
                        out.extend_from_slice(bytes);
                        return Ok(REFERENCE);
                    }
                }
                Ok(0)
            })?;
            let end = (out.len() - base) as u32 | mark;
            out[end_at..end_at + width].copy_from_slice(&end.to_le_bytes()[..width]);
            end_at += width;
        }
        Ok(())
    }

    /// Reads a row of this format. # Errors: `BadEncoding`, `NewerFormat`.
    #[inline]
    pub fn read<'r>(&self, row: &'r [u8]) -> Result<RowReader<'_, 'r>> {
        let mut r = Reader::new(row, "row");
        let flags = r.u8()?;
        r.known("flags", flags, KNOWN_FLAGS)?;
        if r.varint()? != u64::from(self.version) {
            return Err(r.bad("another row format"));
        }
        let bitmap = r.take(self.bitmap_len)?;
        let fixed = r.take(self.fixed_len)?;
        let width = match flags & WIDTH_MASK {
            3 => return Err(r.bad("unknown width")),
            w => 1usize << w,
        };
        let ends = r.take(width * self.variable_count)?;
        let references = flags & HAS_REFERENCES != 0;
        Ok(RowReader { layout: self, bitmap, fixed, ends, width, references, variable: r.rest() })
    }
}

#[inline]
fn put_fixed(ty: ColumnType, value: &ValueRef<'_>, out: &mut [u8]) -> Result<()> {
    if let Some(number) = ty.to_number(value) {
        // The common case, without 128-bit arithmetic.
        match out.len() {
            8 => out.copy_from_slice(&number.to_le_bytes()),
            4 => out.copy_from_slice(&(number as i32).to_le_bytes()),
            len => out.copy_from_slice(&number.to_le_bytes()[..len]),
        }
    } else if ty.is_scalar() {
        let len = out.len();
        out.copy_from_slice(&ty.to_bits(*value)?.to_le_bytes()[..len]);
    } else {
        out.copy_from_slice(ty.to_bytes(*value)?);
    }
    Ok(())
}

/// A value of a scalar type in the form of a row.
#[inline]
pub fn scalar(ty: ColumnType, bytes: &[u8]) -> ValueRef<'static> {
    // The common types, without 128-bit arithmetic.
    match (ty, bytes) {
        (ColumnType::Int32, &[a, b, c, d]) => {
            ValueRef::Int(i64::from(i32::from_le_bytes([a, b, c, d])))
        }
        (ColumnType::Int64, &[a, b, c, d, e, f, g, h]) => {
            ValueRef::Int(i64::from_le_bytes([a, b, c, d, e, f, g, h]))
        }
        _ => {
            let mut le = [0u8; 16];
            le[..bytes.len()].copy_from_slice(bytes);
            ty.from_bits(u128::from_le_bytes(le))
        }
    }
}

/// The format in which `row` was written; every reader of a row begins here or with
/// `RowLayout::read`. # Errors: `BadEncoding`; `NewerFormat` for a flag that this version does not
/// know.
#[inline]
pub fn row_version(row: &[u8]) -> Result<u16> {
    match row {
        // Nearly all rows.
        [flags, version, ..] if *flags <= KNOWN_FLAGS && *version < 0x80 => Ok(u16::from(*version)),
        _ => long_row_version(row),
    }
}

#[cold]
fn long_row_version(row: &[u8]) -> Result<u16> {
    let mut r = Reader::new(row, "row");
    let flags = r.u8()?;
    r.known("flags", flags, KNOWN_FLAGS)?;
    u16::try_from(r.varint()?).map_err(|_| r.bad("row format beyond 16 bits"))
}

/// True if some value of the row lies in overflow pages.
#[inline]
pub fn has_references(row: &[u8]) -> bool {
    row.first().is_some_and(|flags| flags & HAS_REFERENCES != 0)
}

/// Decodes single columns of a row without the others.
#[derive(Clone, Copy, Debug)]
pub struct RowReader<'l, 'r> {
    layout: &'l RowLayout,
    bitmap: &'r [u8],
    fixed: &'r [u8],
    ends: &'r [u8],
    width: usize,
    references: bool,
    variable: &'r [u8],
}

impl<'r> RowReader<'_, 'r> {
    #[cold]
    fn bad(&self, why: &str) -> Error {
        Error::new(Code::BadEncoding).with("what", "row").with("why", why)
    }

    /// The i-th column of the format. # Errors: `BadEncoding`, also beyond the columns.
    #[inline]
    pub fn field(&self, i: usize) -> Result<Field<'r>> {
        let (Some(slot), Some(column)) = (self.layout.slots.get(i), self.layout.columns.get(i))
        else {
            return Err(self.bad("no such column"));
        };
        if let Some(bit) = slot.null_bit
            && self.bitmap[usize::from(bit / 8)] & (1 << (bit % 8)) != 0
        {
            return Ok(Field::Value(ValueRef::Null));
        }
        match slot.place {
            Place::Fixed { offset, len } => {
                let bytes = &self.fixed[offset as usize..offset as usize + usize::from(len)];
                Ok(Field::Value(match column.ty.is_scalar() {
                    true => scalar(column.ty, bytes),
                    false => ValueRef::Bytes(bytes),
                }))
            }
            Place::Variable { ordinal } => self.variable(usize::from(ordinal), column.ty),
        }
    }

    #[inline]
    fn variable(&self, ordinal: usize, ty: ColumnType) -> Result<Field<'r>> {
        let (start, _) = if ordinal == 0 { (0, false) } else { self.end(ordinal - 1) };
        let (end, reference) = self.end(ordinal);
        let bytes =
            self.variable.get(start..end).ok_or_else(|| self.bad("a value beyond the row"))?;
        if reference {
            return Ok(Field::Reference(bytes));
        }
        Ok(Field::Value(ty.from_bytes(bytes)?))
    }

    #[inline]
    fn end(&self, ordinal: usize) -> (usize, bool) {
        let at = ordinal * self.width;
        let end = match self.ends[at..at + self.width] {
            [a] => u32::from(a),
            [a, b] => u32::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => 0,
        };
        if self.references {
            ((end & !REFERENCE) as usize, end & REFERENCE != 0)
        } else {
            (end as usize, false)
        }
    }
}

#[cfg(test)]
#[path = "row_tests.rs"]
mod row_tests;
