//! What callers give as a row or a key, as changes of a row, and as the name of a column. Each is
//! taken in several forms, so that callers write values as they have them.
//!
//! ```text
//! row, key   7, "Oslo", (7, "Oslo", None::<i64>), &[Int(7), Text("Oslo")], a record
//! changes    &[("people", 291_000)], (("city", "Oslo"), ("people", 1)), &[(2, Int(1))], ()
//! column     "people", 2
//! ```

use evenkeel_base::{Error, Result};
use evenkeel_format::{Value, ValueRef};
use smallvec::SmallVec;
use std::convert::Infallible;
use std::time::SystemTime;

/// Values of columns in their order: a row, a key or the beginning of a key. One value, a tuple of
/// values, or a slice of [`ValueRef`] or [`Value`].
pub trait Values {
    /// Calls `f` with the values.
    fn give<R>(self, f: impl FnOnce(&[ValueRef<'_>]) -> R) -> R;
}

type Borrowed<'v> = SmallVec<[ValueRef<'v>; 8]>;

macro_rules! slices {
    ($([$($of:tt)*] $ty:ty: $given:ident, $slice:expr;)*) => {$(
        impl<$($of)*> Values for $ty {
            fn give<R>(self, f: impl FnOnce(&[ValueRef<'_>]) -> R) -> R {
                let $given = self;
                f(&$slice)
            }
        }
    )*};
}

slices! {
    [] &[ValueRef<'_>]: given, given;
    [] &Vec<ValueRef<'_>>: given, given[..];
    [const N: usize] &[ValueRef<'_>; N]: given, given[..];
    [] &[Value]: given, given.iter().map(Value::as_ref).collect::<Borrowed<'_>>();
    [] &Vec<Value>: given, given.iter().map(Value::as_ref).collect::<Borrowed<'_>>();
    [] Vec<Value>: given, given.iter().map(Value::as_ref).collect::<Borrowed<'_>>();
    [const N: usize] &[Value; N]: given, given.each_ref().map(Value::as_ref);
    [const N: usize] [Value; N]: given, given.each_ref().map(Value::as_ref);
    [] &Value: given, [given.as_ref()];
    [] Value: given, [given.as_ref()];
    [] &String: given, [ValueRef::from(given)];
    [] &Vec<u8>: given, [ValueRef::from(given)];
    [const N: usize] &[u8; N]: given, [ValueRef::from(given)];
}

macro_rules! single {
    ($($ty:ty)*) => {
        slices! { $([] $ty: given, [ValueRef::from(given)];)* }
    };
}
single! { ValueRef<'_> bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 SystemTime &str &[u8] }

macro_rules! tuples {
    ($($given:ident: $ty:ident),+) => {
        impl<'v, $($ty: Into<ValueRef<'v>>),+> Values for ($($ty,)+) {
            fn give<R>(self, f: impl FnOnce(&[ValueRef<'_>]) -> R) -> R {
                let ($($given,)+) = self;
                f(&[$($given.into()),+])
            }
        }
    };
}
tuples!(a: A);
tuples!(a: A, b: B);
tuples!(a: A, b: B, c: C);
tuples!(a: A, b: B, c: C, d: D);
tuples!(a: A, b: B, c: C, d: D, e: E);
tuples!(a: A, b: B, c: C, d: D, e: E, g: G);
tuples!(a: A, b: B, c: C, d: D, e: E, g: G, h: H);
tuples!(a: A, b: B, c: C, d: D, e: E, g: G, h: H, i: I);
tuples!(a: A, b: B, c: C, d: D, e: E, g: G, h: H, i: I, j: J);
tuples!(a: A, b: B, c: C, d: D, e: E, g: G, h: H, i: I, j: J, k: K);
tuples!(a: A, b: B, c: C, d: D, e: E, g: G, h: H, i: I, j: J, k: K, l: L);
tuples!(a: A, b: B, c: C, d: D, e: E, g: G, h: H, i: I, j: J, k: K, l: L, m: M);

/// The columns of a table by their names.
pub trait Columns {
    /// The name of the column at a position.
    fn name_at(&self, position: usize) -> Option<&str>;
    /// The position of a column.
    ///
    /// # Errors
    /// `ColumnMissing`.
    fn position_of(&self, name: &str) -> Result<usize>;
}

/// A column of a table: its name, or its position.
pub trait ByColumn: Copy {
    /// Its position.
    ///
    /// # Errors
    /// `ColumnMissing` for a name that no column has.
    fn position(self, columns: &impl Columns) -> Result<usize>;
}

impl ByColumn for usize {
    fn position(self, _: &impl Columns) -> Result<usize> {
        Ok(self)
    }
}

impl ByColumn for &str {
    fn position(self, columns: &impl Columns) -> Result<usize> {
        columns.position_of(self)
    }
}

impl ByColumn for &&str {
    fn position(self, columns: &impl Columns) -> Result<usize> {
        columns.position_of(self)
    }
}

impl ByColumn for &String {
    fn position(self, columns: &impl Columns) -> Result<usize> {
        columns.position_of(self)
    }
}

/// At this position if the column there has the name; else by the name. Faster than a name alone,
/// and right also once columns have moved.
impl ByColumn for (usize, &str) {
    fn position(self, columns: &impl Columns) -> Result<usize> {
        match columns.name_at(self.0) {
            Some(name) if name == self.1 => Ok(self.0),
            _ => columns.position_of(self.1),
        }
    }
}

/// The errors with which a type may refuse a value ([`Row::get`](crate::Row::get)).
pub trait Refusal {
    /// As an error of the engine.
    fn into_error(self) -> Error;
}

impl Refusal for Error {
    fn into_error(self) -> Error {
        self
    }
}

impl Refusal for Infallible {
    fn into_error(self) -> Error {
        match self {}
    }
}

/// New values of some columns of a row: a slice of pairs (column, value), a tuple of such pairs,
/// whose values may be of different types, or `()` for none.
pub trait Changes {
    /// Calls `f` with the changes by position.
    ///
    /// # Errors
    /// `ColumnMissing`; what `f` returns.
    fn give<R>(
        self,
        columns: &impl Columns,
        f: impl FnOnce(&[(usize, ValueRef<'_>)]) -> Result<R>,
    ) -> Result<R>;
}

type Positioned<'v> = SmallVec<[(usize, ValueRef<'v>); 4]>;

impl<'v, C: ByColumn, V: Clone + Into<ValueRef<'v>>> Changes for &[(C, V)] {
    fn give<R>(
        self,
        columns: &impl Columns,
        f: impl FnOnce(&[(usize, ValueRef<'_>)]) -> Result<R>,
    ) -> Result<R> {
        let by_position = |(column, value): &(C, V)| {
            Ok((column.position(columns)?, Into::<ValueRef<'v>>::into(value.clone())))
        };
        f(&self.iter().map(by_position).collect::<Result<Positioned<'v>>>()?)
    }
}

macro_rules! changes {
    ($([$($of:tt)*] $ty:ty;)*) => {$(
        impl<'v, C: ByColumn, V: Clone + Into<ValueRef<'v>>, $($of)*> Changes for $ty {
            fn give<R>(
                self,
                columns: &impl Columns,
                f: impl FnOnce(&[(usize, ValueRef<'_>)]) -> Result<R>,
            ) -> Result<R> {
                Changes::give(&self[..], columns, f)
            }
        }
    )*};
}
changes! {
    [] &Vec<(C, V)>;
    [const N: usize] &[(C, V); N];
}

impl Changes for () {
    fn give<R>(
        self,
        _: &impl Columns,
        f: impl FnOnce(&[(usize, ValueRef<'_>)]) -> Result<R>,
    ) -> Result<R> {
        f(&[])
    }
}

macro_rules! change_tuples {
    ($($given:ident: $column:ident $value:ident),+) => {
        impl<'v, $($column: ByColumn, $value: Into<ValueRef<'v>>),+> Changes
            for ($(($column, $value),)+)
        {
            fn give<R>(
                self,
                columns: &impl Columns,
                f: impl FnOnce(&[(usize, ValueRef<'_>)]) -> Result<R>,
            ) -> Result<R> {
                let ($($given,)+) = self;
                f(&[$(($given.0.position(columns)?, $given.1.into())),+])
            }
        }
    };
}
change_tuples!(a: A V);
change_tuples!(a: A V, b: B W);
change_tuples!(a: A V, b: B W, c: C X);
change_tuples!(a: A V, b: B W, c: C X, d: D Y);
change_tuples!(a: A V, b: B W, c: C X, d: D Y, e: E Z);
change_tuples!(a: A V, b: B W, c: C X, d: D Y, e: E Z, g: G U);
