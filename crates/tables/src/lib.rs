//! Catalog, row and key work, table operations under transactions, constraints, online DDL.
//!
//! A [`Store`](store::Store) is all tables of one database over the layers below: rows in clustered
//! trees (`tree`), secondary indexes in `runs`, versions, locks and outcomes in `txn`, one log. A
//! row operation is one log record; its index entries ride in it (architecture 4.4).

pub mod range;
pub mod row;
pub mod schema;
pub mod shape;

pub use evenkeel_format::{ColumnType, Value, ValueRef};
pub use range::{ByteRange, Range};
pub use row::Row;
pub use schema::{ColumnSpec, IndexSpec, PartSpec, TableDef, TableSpec};
pub use shape::Shape;
