//! Tables of records: a struct of the user's program is a row, [`record!`](crate::record) declares
//! both together. Everything here is written with the untyped interface (`TableRef`, `Row`).

use crate::api::database::Database;
use crate::api::scan::Scan;
use crate::api::table_ref::TableRef;
use crate::api::txn::Txn;
use evenkeel_base::{Error, Result};
use evenkeel_tables::{
    ColumnSpec, ColumnType, Direction, LockWait, Row, ScanRange, TableSpec, ValueRef, Values,
};
use std::marker::PhantomData;
use std::time::SystemTime;

/// A type of a record's field: its column type, and the way to and from values.
pub trait RecordField: Sized {
    /// The column's type, unless the record gives another one.
    const TYPE: ColumnType;
    /// The column may be NULL.
    const NULLABLE: bool = false;
    /// The field as a value.
    fn value(&self) -> ValueRef<'_>;
    /// The field of a value.
    ///
    /// # Errors
    /// `ValueConversion`.
    fn read(value: ValueRef<'_>) -> Result<Self>;
}

macro_rules! fields {
    ($([$($of:tt)*] $ty:ty: $column:expr, $field:ident => $value:expr;)*) => {$(
        impl<$($of)*> RecordField for $ty {
            const TYPE: ColumnType = $column;
            fn value(&self) -> ValueRef<'_> {
                let $field = self;
                $value
            }
            fn read(value: ValueRef<'_>) -> Result<Self> {
                <$ty>::try_from(value)
            }
        }
    )*};
}
fields! {
    [] bool: ColumnType::Bool, field => (*field).into();
    [] i8: ColumnType::Int8, field => (*field).into();
    [] i16: ColumnType::Int16, field => (*field).into();
    [] i32: ColumnType::Int32, field => (*field).into();
    [] i64: ColumnType::Int64, field => (*field).into();
    [] u8: ColumnType::UInt8, field => (*field).into();
    [] u16: ColumnType::UInt16, field => (*field).into();
    [] u32: ColumnType::UInt32, field => (*field).into();
    [] u64: ColumnType::UInt64, field => (*field).into();
    [] f32: ColumnType::Float32, field => (*field).into();
    [] f64: ColumnType::Float64, field => (*field).into();
    [] SystemTime: ColumnType::DateTime, field => (*field).into();
    [] String: ColumnType::Text { max: u32::MAX }, field => field.into();
    [] Vec<u8>: ColumnType::Bytes { max: u32::MAX }, field => field.into();
    [const N: usize] [u8; N]: ColumnType::FixedBytes { len: N as u16 }, field => field.into();
}

impl<T: RecordField> RecordField for Option<T> {
    const TYPE: ColumnType = T::TYPE;
    const NULLABLE: bool = true;
    fn value(&self) -> ValueRef<'_> {
        self.as_ref().map_or(ValueRef::Null, RecordField::value)
    }
    fn read(value: ValueRef<'_>) -> Result<Self> {
        match value {
            ValueRef::Null => Ok(None),
            value => T::read(value).map(Some),
        }
    }
}

/// A struct that is a row of a table; [`record!`](crate::record) implements it.
pub trait Record: Sized {
    /// The name of the table.
    const TABLE: &'static str;
    /// The definition of the table.
    fn spec() -> TableSpec;
    /// The record of a row. Columns are found by their names.
    ///
    /// # Errors
    /// `ColumnMissing`; `ValueConversion` naming the column.
    fn read(row: &Row) -> Result<Self>;
    /// Calls `f` with the names and values of all columns.
    fn give<R>(&self, f: impl FnOnce(&[(&'static str, ValueRef<'_>)]) -> R) -> R;
    /// Calls `f` with the values of the primary key.
    fn give_key<R>(&self, f: impl FnOnce(&[ValueRef<'_>]) -> R) -> R;
}

/// For `record!`: the column of a field.
#[doc(hidden)]
pub fn column_of<F: RecordField>(
    name: &str,
    ty: &[ColumnType],
    in_key: bool,
    auto: bool,
) -> ColumnSpec {
    let column = ColumnSpec::new(name, ty.first().copied().unwrap_or(F::TYPE));
    // A key column is never NULL; an optional one stands for a number that is not known yet.
    let column = if F::NULLABLE && !in_key { column.nullable() } else { column };
    if auto { column.auto_increment() } else { column }
}

/// For `record!`: the next field of a row.
#[doc(hidden)]
pub fn field_of<F: RecordField>(row: &Row, at: &mut usize, name: &'static str) -> Result<F> {
    let position = *at;
    *at += 1;
    F::read(row.value((position, name))?).map_err(|error: Error| error.with("column", name))
}

/// Declares a struct, and the table whose rows it is.
///
/// After the struct come the primary key, then the indexes; a part may be descending. A field's
/// type gives its column's type, unless another one follows `as`: a text or bytes of a key need a
/// greatest length. `Option` is a column that may be NULL. `auto(id)` names an auto-increment
/// column: its field is an `Option`, whose `None` asks for the next number.
///
/// ```
/// use evenkeel::{Database, Direction, Options, record};
///
/// record! {
///     /// A city.
///     #[derive(Clone, Debug, PartialEq)]
///     pub struct City in "cities" {
///         pub id: Option<i64>,
///         pub name: String as Text { max: 100 },
///         pub people: Option<u32>,
///     }
///     key(id)
///     auto(id)
///     index by_name(name)
///     unique by_size(people desc, name)
/// }
///
/// let db = Database::open_with("unused", Options::in_memory())?;
/// db.create_table_of::<City>()?;
/// db.transact(|txn| {
///     let cities = txn.records::<City>()?;
///     for (name, people) in [("Oslo", Some(700_000)), ("Bergen", None), ("Os", Some(14_000))] {
///         cities.insert(&City { id: None, name: name.to_string(), people })?;
///     }
///     let bergen = cities.get(2)?.expect("it was inserted");
///     assert_eq!((&bergen.name[..], bergen.people), ("Bergen", None));
///     cities.update(&City { people: Some(291_000), ..bergen })?;
///
///     let named = cities.by("by_name", evenkeel::starting_with("Os"), Direction::Forward)?;
///     let named = named.map(|city| Ok(city?.name)).collect::<evenkeel::Result<Vec<_>>>()?;
///     assert_eq!(named, ["Os", "Oslo"]);
///     Ok(())
/// })?;
/// # Ok::<(), evenkeel::Error>(())
/// ```
#[macro_export]
macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident in $table:literal {
            $($(#[$of_field:meta])* $field_vis:vis $field:ident: $ty:ty $(as $column:expr)?),+ $(,)?
        }
        key($($key:ident $($key_desc:ident)?),+ $(,)?)
        $(auto($auto:ident))?
        $(index $index:ident($($part:ident $($desc:ident)?),+ $(,)?))*
        $(unique $unique:ident($($of:ident $($of_desc:ident)?),+ $(,)?))*
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$of_field])* $field_vis $field: $ty),+
        }

        impl $crate::Record for $name {
            const TABLE: &'static str = $table;

            fn spec() -> $crate::TableSpec {
                #[allow(unused_imports)]
                use $crate::ColumnType::*;
                let keys = [$(stringify!($key)),+];
                let auto: &[&str] = &[$(stringify!($auto))?];
                $crate::TableSpec::new()
                    $(.column($crate::column_of::<$ty>(
                        stringify!($field),
                        &[$($column)?],
                        keys.contains(&stringify!($field)),
                        auto.contains(&stringify!($field)),
                    )))+
                    .primary_key(&[$(concat!(stringify!($key) $(, " ", stringify!($key_desc))?)),+])
                    $(.index($crate::IndexSpec::new(
                        stringify!($index),
                        &[$(concat!(stringify!($part) $(, " ", stringify!($desc))?)),+],
                    )))*
                    $(.index($crate::IndexSpec::new(
                        stringify!($unique),
                        &[$(concat!(stringify!($of) $(, " ", stringify!($of_desc))?)),+],
                    ).unique()))*
            }

            fn read(row: &$crate::Row) -> $crate::Result<Self> {
                let mut at = 0;
                Ok($name { $($field: $crate::field_of(row, &mut at, stringify!($field))?),+ })
            }

            fn give<R>(
                &self,
                f: impl FnOnce(&[(&'static str, $crate::ValueRef<'_>)]) -> R,
            ) -> R {
                f(&[$((stringify!($field), $crate::RecordField::value(&self.$field))),+])
            }

            fn give_key<R>(&self, f: impl FnOnce(&[$crate::ValueRef<'_>]) -> R) -> R {
                f(&[$($crate::RecordField::value(&self.$key)),+])
            }
        }

        impl $crate::Values for &$name {
            fn give<R>(self, f: impl FnOnce(&[$crate::ValueRef<'_>]) -> R) -> R {
                f(&[$($crate::RecordField::value(&self.$field)),+])
            }
        }

        impl $crate::Values for $name {
            fn give<R>(self, f: impl FnOnce(&[$crate::ValueRef<'_>]) -> R) -> R {
                $crate::Values::give(&self, f)
            }
        }
    };
}

impl Database {
    /// Makes the table of a record.
    ///
    /// # Errors
    /// As `create_table`.
    pub fn create_table_of<T: Record>(&self) -> Result<()> {
        self.create_table(T::TABLE, &T::spec())
    }
}

impl Txn {
    /// The table of a record.
    ///
    /// # Errors
    /// As `table`.
    pub fn records<T: Record>(&self) -> Result<Records<'_, T>> {
        Ok(Records { table: self.table(T::TABLE)?, of: PhantomData })
    }
}

/// A table of records in a transaction; see [`record!`](crate::record).
pub struct Records<'t, T> {
    table: TableRef<'t>,
    of: PhantomData<fn() -> T>,
}

impl<'t, T: Record> Records<'t, T> {
    /// The table, for what rows alone can do.
    pub fn table(&self) -> &TableRef<'t> {
        &self.table
    }

    /// Inserts a record; returns the number of its auto-increment column, if it has one.
    ///
    /// # Errors
    /// As [`TableRef::insert`].
    pub fn insert(&self, record: &T) -> Result<Option<u64>>
    where
        for<'r> &'r T: Values,
    {
        self.table.insert(record)
    }

    /// Inserts a record, or replaces the one that has its key; true if it was inserted.
    ///
    /// # Errors
    /// As [`TableRef::put`].
    pub fn put(&self, record: &T) -> Result<bool>
    where
        for<'r> &'r T: Values,
    {
        self.table.put(record)
    }

    /// Replaces the record that has this one's key; false if there is none.
    ///
    /// # Errors
    /// As [`TableRef::update`].
    pub fn update(&self, record: &T) -> Result<bool> {
        record.give_key(|key| record.give(|columns| self.table.update(key, columns)))
    }

    /// Reads a record by its primary key.
    ///
    /// # Errors
    /// As [`TableRef::get`] and [`Record::read`].
    pub fn get(&self, key: impl Values) -> Result<Option<T>> {
        self.table.get(key)?.map(|row| T::read(&row)).transpose()
    }

    /// Locks a record for writing and reads its newest version.
    ///
    /// # Errors
    /// As [`TableRef::get_for_update`] and [`Record::read`].
    pub fn get_for_update(&self, key: impl Values) -> Result<Option<T>> {
        let mut row = Row::new();
        match self.table.get_for_update(key, LockWait::Wait, &mut row)? {
            true => T::read(&row).map(Some),
            false => Ok(None),
        }
    }

    /// Deletes a record by its primary key; false if there is none.
    ///
    /// # Errors
    /// As [`TableRef::delete`].
    pub fn delete(&self, key: impl Values) -> Result<bool> {
        self.table.delete(key)
    }

    /// The records of a range of the primary key, in its order.
    ///
    /// # Errors
    /// As [`TableRef::scan`].
    pub fn scan(&self, range: impl ScanRange, direction: Direction) -> Result<RecordScan<T>> {
        Ok(RecordScan::new(self.table.scan(range, direction)?))
    }

    /// The records of a range of an index, in its order.
    ///
    /// # Errors
    /// As [`TableRef::index`] and [`IndexRef::scan`](crate::IndexRef::scan).
    pub fn by(
        &self,
        index: &str,
        range: impl ScanRange,
        direction: Direction,
    ) -> Result<RecordScan<T>> {
        Ok(RecordScan::new(self.table.index(index)?.scan(range, direction)?))
    }
}

/// Records, one after the other.
pub struct RecordScan<T> {
    rows: Scan,
    row: Row,
    done: bool,
    of: PhantomData<fn() -> T>,
}

impl<T: Record> RecordScan<T> {
    fn new(rows: Scan) -> Self {
        RecordScan { rows, row: Row::new(), done: false, of: PhantomData }
    }
}

/// Behind an error there are no more.
impl<T: Record> Iterator for RecordScan<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.done {
            return None;
        }
        let read = match self.rows.next(&mut self.row) {
            Ok(false) => None,
            Ok(true) => Some(T::read(&self.row)),
            Err(error) => Some(Err(error)),
        };
        self.done = !matches!(read, Some(Ok(_)));
        read
    }
}
