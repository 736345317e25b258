//! Column types and values, and the one mapping between a value and the bits that rows and keys
//! store. Rows hold the bits little-endian, keys hold them big-endian in an order-preserving form.

use crate::limits;
use evenkeel_base::{Code, Error, Result};
use std::fmt;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// True or false.
    Bool,
    /// Signed, 1 byte.
    Int8,
    /// Signed, 2 bytes.
    Int16,
    /// Signed, 4 bytes.
    Int32,
    /// Signed, 8 bytes.
    Int64,
    /// Unsigned, 1 byte.
    UInt8,
    /// Unsigned, 2 bytes.
    UInt16,
    /// Unsigned, 4 bytes.
    UInt32,
    /// Unsigned, 8 bytes.
    UInt64,
    /// IEEE 754, 4 bytes; NaN sorts last, -0 is stored as 0.
    Float32,
    /// IEEE 754, 8 bytes; NaN sorts last, -0 is stored as 0.
    Float64,
    /// An exact number of `precision` digits, `scale` of them after the point.
    Decimal {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// Exactly `len` bytes.
    FixedBytes {
        /// Length.
        len: u16,
    },
    /// Up to `max` bytes.
    Bytes {
        /// Greatest length.
        max: u32,
    },
    /// UTF-8 of up to `max` bytes; compared by bytes.
    Text {
        /// Greatest length in bytes.
        max: u32,
    },
    /// Days since 1970-01-01.
    Date,
    /// Microseconds since 1970-01-01 00:00.
    DateTime,
}

impl ColumnType {
    /// Bytes in the fixed part of a row; `None` for types of variable length.
    pub const fn fixed_len(self) -> Option<usize> {
        use ColumnType::*;
        Some(match self {
            Bool | Int8 | UInt8 => 1,
            Int16 | UInt16 => 2,
            Int32 | UInt32 | Float32 | Date => 4,
            Int64 | UInt64 | Float64 | DateTime => 8,
            Decimal { precision, .. } => match precision {
                0..=2 => 1,
                3..=4 => 2,
                5..=9 => 4,
                10..=18 => 8,
                _ => 16,
            },
            FixedBytes { len } => len as usize,
            Bytes { .. } | Text { .. } => return None,
        })
    }

    /// True if a value is a number of bits (not a string of bytes).
    pub const fn is_scalar(self) -> bool {
        !matches!(
            self,
            ColumnType::FixedBytes { .. } | ColumnType::Bytes { .. } | ColumnType::Text { .. }
        )
    }

    /// True for the integer types an auto-increment column may have.
    pub const fn is_integer(self) -> bool {
        use ColumnType::*;
        matches!(self, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64)
    }

    /// The largest value of an integer type.
    pub const fn integer_max(self) -> u64 {
        use ColumnType::*;
        match self {
            Int8 => i8::MAX as u64,
            Int16 => i16::MAX as u64,
            Int32 => i32::MAX as u64,
            UInt8 => u8::MAX as u64,
            UInt16 => u16::MAX as u64,
            UInt32 => u32::MAX as u64,
            UInt64 => u64::MAX,
            _ => i64::MAX as u64,
        }
    }

    /// The most bytes that a key part of this type takes, the null byte not counted.
    pub const fn key_bytes_max(self) -> usize {
        match self {
            ColumnType::Bytes { max } | ColumnType::Text { max } => 2 * max as usize + 2,
            other => match other.fixed_len() {
                Some(n) => n,
                None => usize::MAX,
            },
        }
    }

    /// Number and two parameters of the type as the catalog stores them.
    pub const fn to_code(self) -> (u8, u32, u32) {
        use ColumnType::*;
        match self {
            Bool => (1, 0, 0),
            Int8 => (2, 0, 0),
            Int16 => (3, 0, 0),
            Int32 => (4, 0, 0),
            Int64 => (5, 0, 0),
            UInt8 => (6, 0, 0),
            UInt16 => (7, 0, 0),
            UInt32 => (8, 0, 0),
            UInt64 => (9, 0, 0),
            Float32 => (10, 0, 0),
            Float64 => (11, 0, 0),
            Decimal { precision, scale } => (12, precision as u32, scale as u32),
            FixedBytes { len } => (13, len as u32, 0),
            Bytes { max } => (14, max, 0),
            Text { max } => (15, max, 0),
            Date => (16, 0, 0),
            DateTime => (17, 0, 0),
        }
    }

    /// The type of a stored code, `None` if there is no such type.
    pub fn from_code(code: u8, a: u32, b: u32) -> Option<ColumnType> {
        use ColumnType::*;
        let ty = match code {
            1 => Bool,
            2 => Int8,
            3 => Int16,
            4 => Int32,
            5 => Int64,
            6 => UInt8,
            7 => UInt16,
            8 => UInt32,
            9 => UInt64,
            10 => Float32,
            11 => Float64,
            12 => Decimal { precision: u8::try_from(a).ok()?, scale: u8::try_from(b).ok()? },
            13 => FixedBytes { len: u16::try_from(a).ok()? },
            14 => Bytes { max: a },
            15 => Text { max: a },
            16 => Date,
            17 => DateTime,
            _ => return None,
        };
        ty.check().ok().map(|()| ty)
    }

    /// Checks the parameters. # Errors: `DefinitionInvalid`.
    pub fn check(self) -> Result<()> {
        let bad = |why: &str| {
            Err(Error::new(Code::DefinitionInvalid).with("type", self).with("why", why))
        };
        match self {
            ColumnType::Decimal { precision, scale } => {
                if precision == 0 || precision > limits::DECIMAL_DIGITS_MAX {
                    return bad("a decimal has 1 to 38 digits");
                }
                if scale > precision {
                    return bad("more digits after the point than digits");
                }
            }
            ColumnType::FixedBytes { len } if len == 0 || len > limits::FIXED_BYTES_MAX => {
                return bad("a fixed-length column has 1 to 255 bytes");
            }
            _ => {}
        }
        Ok(())
    }

    /// True for types whose bits are a two's complement number.
    const fn is_signed(self) -> bool {
        use ColumnType::*;
        matches!(self, Int8 | Int16 | Int32 | Int64 | Decimal { .. } | Date | DateTime)
    }

    /// The number of a value that a signed integer or time column stores unchanged, if it fits: the
    /// result of `to_bits` in the common case.
    #[inline]
    pub(crate) fn to_number(self, value: &ValueRef<'_>) -> Option<i64> {
        use ColumnType::*;
        match (self, value) {
            (Int64, ValueRef::Int(i)) | (DateTime, ValueRef::DateTime(i)) => Some(*i),
            (Int32, ValueRef::Int(i)) => i32::try_from(*i).ok().map(i64::from),
            (Int16, ValueRef::Int(i)) => i16::try_from(*i).ok().map(i64::from),
            (Int8, ValueRef::Int(i)) => i8::try_from(*i).ok().map(i64::from),
            (Int64, ValueRef::UInt(u)) => i64::try_from(*u).ok(),
            _ => None,
        }
    }

    /// The bits of a scalar value, in the low `fixed_len` bytes.
    ///
    /// # Errors
    /// `ValueType` if the value is of another kind, `ValueRange` if it does not fit.
    pub fn to_bits(self, value: ValueRef<'_>) -> Result<u128> {
        use ColumnType::*;
        let number = match (self, value) {
            (Bool, ValueRef::Bool(b)) => return Ok(u128::from(b)),
            (Float32, ValueRef::Float(f)) => {
                let f = f as f32;
                return Ok(u128::from(if f.is_nan() { f32::NAN } else { f + 0.0 }.to_bits()));
            }
            (Float64, ValueRef::Float(f)) => {
                return Ok(u128::from(if f.is_nan() { f64::NAN } else { f + 0.0 }.to_bits()));
            }
            (Date, ValueRef::Date(d)) => i128::from(d),
            (DateTime, ValueRef::DateTime(t)) => i128::from(t),
            (Decimal { precision, scale }, v) => self.decimal(precision, scale, v)?,
            (t, ValueRef::Int(i)) if t.is_integer() => i128::from(i),
            (t, ValueRef::UInt(u)) if t.is_integer() => i128::from(u),
            _ => return Err(self.wrong_type(value)),
        };
        let bits = 8 * self.fixed_len().unwrap_or(16) as u32;
        if bits == 128 {
            return Ok(number as u128);
        }
        let (low, high) = if self.is_signed() {
            (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
        } else {
            (0, (1i128 << bits) - 1)
        };
        if number < low || number > high {
            return Err(self.out_of_range(value));
        }
        Ok(number as u128 & ((1u128 << bits) - 1))
    }

    fn decimal(self, precision: u8, scale: u8, value: ValueRef<'_>) -> Result<i128> {
        let (unscaled, have) = match value {
            ValueRef::Decimal(unscaled, have) => (unscaled, have),
            ValueRef::Int(i) => (i128::from(i), 0),
            ValueRef::UInt(u) => (i128::from(u), 0),
            _ => return Err(self.wrong_type(value)),
        };
        let step = 10i128.checked_pow(u32::from(scale.abs_diff(have)));
        let scaled = step
            .and_then(|step| match have > scale {
                // Further digits have to be zeros.
                true => (unscaled % step == 0).then(|| unscaled / step),
                false => unscaled.checked_mul(step),
            })
            .filter(|n| n.unsigned_abs() < 10u128.pow(u32::from(precision)));
        scaled.ok_or_else(|| self.out_of_range(value))
    }

    /// The value of scalar bits.
    pub fn from_bits(self, bits: u128) -> ValueRef<'static> {
        use ColumnType::*;
        let width = 8 * self.fixed_len().unwrap_or(16) as u32;
        let signed = || {
            let shift = 128 - width;
            ((bits << shift) as i128) >> shift
        };
        match self {
            Bool => ValueRef::Bool(bits != 0),
            Int8 | Int16 | Int32 | Int64 => ValueRef::Int(signed() as i64),
            UInt8 | UInt16 | UInt32 | UInt64 => ValueRef::UInt(bits as u64),
            Float32 => ValueRef::Float(f64::from(f32::from_bits(bits as u32))),
            Float64 => ValueRef::Float(f64::from_bits(bits as u64)),
            Decimal { scale, .. } => ValueRef::Decimal(signed(), scale),
            Date => ValueRef::Date(signed() as i32),
            DateTime => ValueRef::DateTime(signed() as i64),
            FixedBytes { .. } | Bytes { .. } | Text { .. } => ValueRef::Null,
        }
    }

    /// Scalar bits in a form whose unsigned order is the order of the values.
    pub(crate) fn ordered_bits(self, bits: u128) -> u128 {
        let sign = 1u128 << (8 * self.fixed_len().unwrap_or(16) as u32 - 1);
        match self {
            ColumnType::Float32 | ColumnType::Float64 if bits & sign != 0 => !bits & (2 * sign - 1),
            ColumnType::Float32 | ColumnType::Float64 => bits | sign,
            _ if self.is_signed() => bits ^ sign,
            _ => bits,
        }
    }

    /// The inverse of `ordered_bits`.
    pub(crate) fn unordered_bits(self, bits: u128) -> u128 {
        let sign = 1u128 << (8 * self.fixed_len().unwrap_or(16) as u32 - 1);
        match self {
            ColumnType::Float32 | ColumnType::Float64 if bits & sign == 0 => !bits & (2 * sign - 1),
            ColumnType::Float32 | ColumnType::Float64 => bits ^ sign,
            _ if self.is_signed() => bits ^ sign,
            _ => bits,
        }
    }

    /// The bytes of a value of a byte type, length checked. # Errors: `ValueType`, `ValueRange`.
    pub fn to_bytes<'a>(self, value: ValueRef<'a>) -> Result<&'a [u8]> {
        let (bytes, fits) = match (self, value) {
            (ColumnType::FixedBytes { len }, ValueRef::Bytes(b)) => (b, b.len() == len as usize),
            (ColumnType::Bytes { max }, ValueRef::Bytes(b)) => (b, b.len() <= max as usize),
            (ColumnType::Bytes { max }, ValueRef::Text(t)) => {
                (t.as_bytes(), t.len() <= max as usize)
            }
            (ColumnType::Text { max }, ValueRef::Text(t)) => {
                (t.as_bytes(), t.len() <= max as usize)
            }
            _ => return Err(self.wrong_type(value)),
        };
        if fits { Ok(bytes) } else { Err(self.out_of_range(value)) }
    }

    /// The value of stored bytes. # Errors: `BadEncoding` for text that is not UTF-8.
    #[inline]
    pub fn from_bytes(self, bytes: &[u8]) -> Result<ValueRef<'_>> {
        match self {
            ColumnType::Text { .. } => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(ValueRef::Text(text)),
                Err(_) => {
                    Err(Error::new(Code::BadEncoding).with("what", "text").with("why", "no UTF-8"))
                }
            },
            _ => Ok(ValueRef::Bytes(bytes)),
        }
    }

    /// As `from_bytes`, for owned bytes, which are not copied.
    ///
    /// # Errors
    /// As `from_bytes`.
    pub fn from_own_bytes(self, bytes: Vec<u8>) -> Result<Value> {
        self.from_bytes(&bytes)?;
        match self {
            ColumnType::Text { .. } => match String::from_utf8(bytes) {
                Ok(text) => Ok(Value::Text(text)),
                Err(_) => Err(Error::internal("text that was UTF-8 is none")),
            },
            _ => Ok(Value::Bytes(bytes)),
        }
    }

    #[cold]
    fn wrong_type(self, value: ValueRef<'_>) -> Error {
        Error::new(Code::ValueType).with("type", self).with("value", value.brief())
    }

    #[cold]
    fn out_of_range(self, value: ValueRef<'_>) -> Error {
        Error::new(Code::ValueRange).with("type", self).with("value", value.brief())
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnType::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            ColumnType::FixedBytes { len } => write!(f, "fixed_bytes({len})"),
            ColumnType::Bytes { max } => write!(f, "bytes({max})"),
            ColumnType::Text { max } => write!(f, "text({max})"),
            other => f.write_str(&format!("{other:?}").to_lowercase()),
        }
    }
}

/// A value, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// No value.
    Null,
    /// For `Bool`.
    Bool(bool),
    /// For all integer types and decimals.
    Int(i64),
    /// For all integer types and decimals.
    UInt(u64),
    /// For both float types.
    Float(f64),
    /// Unscaled number and digits after the point.
    Decimal(i128, u8),
    /// For byte types.
    Bytes(&'a [u8]),
    /// For `Text` (and `Bytes`).
    Text(&'a str),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01 00:00.
    DateTime(i64),
}

impl ValueRef<'_> {
    /// True for NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, ValueRef::Null)
    }

    /// An owned copy.
    pub fn to_owned(self) -> Value {
        match self {
            ValueRef::Null => Value::Null,
            ValueRef::Bool(v) => Value::Bool(v),
            ValueRef::Int(v) => Value::Int(v),
            ValueRef::UInt(v) => Value::UInt(v),
            ValueRef::Float(v) => Value::Float(v),
            ValueRef::Decimal(v, s) => Value::Decimal(v, s),
            ValueRef::Bytes(v) => Value::Bytes(v.to_vec()),
            ValueRef::Text(v) => Value::Text(v.to_string()),
            ValueRef::Date(v) => Value::Date(v),
            ValueRef::DateTime(v) => Value::DateTime(v),
        }
    }

    /// A short text for messages.
    pub fn brief(&self) -> String {
        let mut text = format!("{self:?}");
        if text.len() > 60 {
            let cut = (0..=60).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
            text.truncate(cut);
            text.push_str("..");
        }
        text
    }
}

/// A value, owned.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// For `Bool`.
    Bool(bool),
    /// For all integer types and decimals.
    Int(i64),
    /// For all integer types and decimals.
    UInt(u64),
    /// For both float types.
    Float(f64),
    /// Unscaled number and digits after the point.
    Decimal(i128, u8),
    /// For byte types.
    Bytes(Vec<u8>),
    /// For `Text` (and `Bytes`).
    Text(String),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01 00:00.
    DateTime(i64),
}

impl Value {
    /// Borrows it.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Bool(v) => ValueRef::Bool(*v),
            Value::Int(v) => ValueRef::Int(*v),
            Value::UInt(v) => ValueRef::UInt(*v),
            Value::Float(v) => ValueRef::Float(*v),
            Value::Decimal(v, s) => ValueRef::Decimal(*v, *s),
            Value::Bytes(v) => ValueRef::Bytes(v),
            Value::Text(v) => ValueRef::Text(v),
            Value::Date(v) => ValueRef::Date(*v),
            Value::DateTime(v) => ValueRef::DateTime(*v),
        }
    }
}

macro_rules! from {
    ($($ty:ty => $variant:ident as $as:ty,)*) => {
        $(impl From<$ty> for Value {
            fn from(v: $ty) -> Value { Value::$variant(<$as>::from(v)) }
        }
        impl From<$ty> for ValueRef<'_> {
            fn from(v: $ty) -> Self { ValueRef::$variant(<$as>::from(v)) }
        })*
    };
}
from! {
    bool => Bool as bool,
    i8 => Int as i64, i16 => Int as i64, i32 => Int as i64, i64 => Int as i64,
    u8 => UInt as u64, u16 => UInt as u64, u32 => UInt as u64, u64 => UInt as u64,
    f32 => Float as f64, f64 => Float as f64,
}

impl From<&str> for Value {
    fn from(v: &str) -> Value {
        Value::Text(v.to_string())
    }
}
impl From<&[u8]> for Value {
    fn from(v: &[u8]) -> Value {
        Value::Bytes(v.to_vec())
    }
}
impl From<String> for Value {
    fn from(v: String) -> Value {
        Value::Text(v)
    }
}
impl From<Vec<u8>> for Value {
    fn from(v: Vec<u8>) -> Value {
        Value::Bytes(v)
    }
}
impl<'a> From<&'a str> for ValueRef<'a> {
    fn from(v: &'a str) -> Self {
        ValueRef::Text(v)
    }
}
impl<'a> From<&'a [u8]> for ValueRef<'a> {
    fn from(v: &'a [u8]) -> Self {
        ValueRef::Bytes(v)
    }
}
impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(v: &'a Value) -> Self {
        v.as_ref()
    }
}
