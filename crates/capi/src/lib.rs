//! The engine behind a C interface. `plugin/mariadb/capi.h` declares the same functions for C++;
//! a test compares the two.
//!
//! Rules of this border: no panic crosses it (each function is a fence and reports `Internal`). A
//! pointer passed in is used only during the call, unless it is a handle of ours. Data returned
//! stays valid until the next call with the same handle. Handles are made and freed by the
//! functions named for that, and used by one thread at a time.
//!
//! `collations` (the embedding program's), `value` (values and errors), `database` (open, tables,
//! two-phase recovery), `table` (handles of tables), `transaction` (begin to end, reads, changes,
//! scans), `row` (what is read), `record` (rows put into records), `number` (auto-increment,
//! watched waits), `alter` (changes of tables), `chunks` (chunked tables), `foreign_spec` and
//! `foreign` (foreign keys), `copy` (rows into a new table), `inspect` (figures, locks, checks),
//! `repair`, `backup` (copies of the database), `statistics` (of keys), `messages` (to the
//! administrator).

pub mod alter;
pub mod backup;
pub mod chunks;
pub mod collations;
pub mod copy;
pub mod database;
pub mod foreign;
pub mod foreign_spec;
pub mod inspect;
pub mod messages;
pub mod number;
pub mod record;
pub mod repair;
pub mod row;
pub mod statistics;
pub mod table;
pub mod transaction;
pub mod value;

pub use value::{EkBytes, EkError, EkValue};

#[cfg(test)]
mod pointer_tests;
