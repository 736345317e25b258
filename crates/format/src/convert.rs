//! Conversions between values and Rust's own types. A value is made from any type without loss
//! (`From`). It is read back as any type that holds it exactly (`TryFrom`); the error names the
//! value and the type. NULL is read as `None`.

use crate::types::{Value, ValueRef};
use evenkeel_base::{Code, Error};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

impl<'a> From<&'a String> for ValueRef<'a> {
    fn from(text: &'a String) -> Self {
        ValueRef::Text(text)
    }
}

impl<'a> From<&'a Vec<u8>> for ValueRef<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        ValueRef::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for ValueRef<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        ValueRef::Bytes(bytes)
    }
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(bytes: [u8; N]) -> Self {
        Value::Bytes(bytes.to_vec())
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Self {
        Value::Bytes(bytes.to_vec())
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Self {
        value.to_owned()
    }
}

/// `None` is NULL.
impl<'a, T: Into<ValueRef<'a>>> From<Option<T>> for ValueRef<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(ValueRef::Null, Into::into)
    }
}

/// `None` is NULL.
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Whole microseconds; what is beyond the type's range becomes its end.
fn micros(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |before| -before)
        }
    }
}

impl From<SystemTime> for ValueRef<'_> {
    fn from(time: SystemTime) -> Self {
        ValueRef::DateTime(micros(time))
    }
}

impl From<SystemTime> for Value {
    fn from(time: SystemTime) -> Self {
        Value::DateTime(micros(time))
    }
}

#[cold]
fn refused(value: ValueRef<'_>, wanted: &str) -> Error {
    Error::new(Code::ValueConversion).with("value", value.brief()).with("wanted", wanted)
}

/// Reading a value as a type, and as an option of it.
macro_rules! read_as {
    ($([$($of:tt)*] $ty:ty: $value:ident => $read:expr;)*) => {$(
        impl<$($of)*> TryFrom<ValueRef<$($of)*>> for $ty {
            type Error = Error;
            fn try_from($value: ValueRef<$($of)*>) -> Result<Self, Error> {
                $read.ok_or_else(|| refused($value, stringify!($ty)))
            }
        }
        impl<$($of)*> TryFrom<ValueRef<$($of)*>> for Option<$ty> {
            type Error = Error;
            fn try_from(value: ValueRef<$($of)*>) -> Result<Self, Error> {
                match value {
                    ValueRef::Null => Ok(None),
                    value => <$ty>::try_from(value).map(Some),
                }
            }
        }
    )*};
}

fn bool_of(value: ValueRef<'_>) -> Option<bool> {
    match value {
        ValueRef::Bool(value) => Some(value),
        _ => None,
    }
}

/// Any whole number.
fn whole(value: ValueRef<'_>) -> Option<i128> {
    match value {
        ValueRef::Int(number) => Some(number.into()),
        ValueRef::UInt(number) => Some(number.into()),
        ValueRef::Decimal(number, 0) => Some(number),
        _ => None,
    }
}

fn float(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Float(number) => Some(number),
        _ => None,
    }
}

fn single(value: ValueRef<'_>) -> Option<f32> {
    let number = float(value)?;
    let single = number as f32;
    (f64::from(single) == number || number.is_nan()).then_some(single)
}

fn text(value: ValueRef<'_>) -> Option<&str> {
    match value {
        ValueRef::Text(text) => Some(text),
        _ => None,
    }
}

fn bytes(value: ValueRef<'_>) -> Option<&[u8]> {
    match value {
        ValueRef::Bytes(bytes) => Some(bytes),
        ValueRef::Text(text) => Some(text.as_bytes()),
        _ => None,
    }
}

fn time(value: ValueRef<'_>) -> Option<SystemTime> {
    let ValueRef::DateTime(micros) = value else { return None };
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
}

macro_rules! read_as_whole {
    ($($ty:ident)*) => {
        read_as! { $(
            ['a] $ty: value => whole(value).and_then(|number| $ty::try_from(number).ok());
        )* }
    };
}
read_as_whole! { i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 }

read_as! {
    ['a] bool: value => bool_of(value);
    ['a] f32: value => single(value);
    ['a] f64: value => float(value);
    ['a] &'a str: value => text(value);
    ['a] String: value => text(value).map(str::to_string);
    ['a] &'a [u8]: value => bytes(value);
    ['a] Vec<u8>: value => bytes(value).map(<[u8]>::to_vec);
    ['a] SystemTime: value => time(value);
}

impl<const N: usize> TryFrom<ValueRef<'_>> for [u8; N] {
    type Error = Error;
    fn try_from(value: ValueRef<'_>) -> Result<Self, Error> {
        let array = bytes(value).and_then(|bytes| <[u8; N]>::try_from(bytes).ok());
        array.ok_or_else(|| refused(value, &format!("[u8; {N}]")))
    }
}

impl<const N: usize> TryFrom<ValueRef<'_>> for Option<[u8; N]> {
    type Error = Error;
    fn try_from(value: ValueRef<'_>) -> Result<Self, Error> {
        match value {
            ValueRef::Null => Ok(None),
            value => <[u8; N]>::try_from(value).map(Some),
        }
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod convert_tests;
