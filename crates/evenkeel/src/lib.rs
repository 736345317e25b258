//! Evenkeel: a storage engine that keeps an even keel under sustained writes.
//!
//! Tables with secondary indexes and transactions, in a directory that one process owns:
//!
//! ```
//! use evenkeel::{ColumnSpec, ColumnType, Database, Direction, IndexSpec, Options, TableSpec};
//!
//! # fn main() -> evenkeel::Result<()> {
//! let db = Database::open_with("unused", Options::in_memory())?;
//! let spec = TableSpec::new()
//!     .column(ColumnSpec::new("id", ColumnType::Int64))
//!     .column(ColumnSpec::new("name", ColumnType::Text { max: 100 }))
//!     .primary_key(&["id"])
//!     .index(IndexSpec::new("by_name", &["name"]));
//! db.create_table("people", &spec)?;
//!
//! db.transact(|txn| {
//!     let people = txn.table("people")?;
//!     people.insert((1, "Ada"))?;
//!     people.insert((2, "Bo"))?;
//!     people.update(2, &[("name", "Björn")])
//! })?;
//!
//! let names: Vec<String> = db.transact(|txn| {
//!     let by_name = txn.table("people")?.index("by_name")?;
//!     by_name.scan("B".., Direction::Forward)?.map(|row| row?.get("name")).collect()
//! })?;
//! assert_eq!(names, ["Björn"]);
//! # Ok(())
//! # }
//! ```
//!
//! # A tour
//!
//! 1. [`Database`] opens a directory, makes and changes tables, and shows figures. [`Options`] says
//!    how much memory it takes and when a commit returns ([`Durability`]).
//! 2. [`Database::transact`] runs a closure in a transaction and repeats it after a conflict;
//!    [`Database::begin`] gives a [`Txn`] to commit oneself.
//! 3. [`Txn::table`] gives a [`TableRef`], which inserts, reads and changes rows;
//!    [`TableRef::index`] gives an [`IndexRef`]. Any number of them live at once.
//! 4. What calls take: [`Values`] (a row, a key), [`Changes`] (of a row), [`ByColumn`] (a name or a
//!    position), [`ScanRange`] (`..`, `1..9`, [`exactly`], [`starting_with`]).
//! 5. What calls give: a [`Row`], whose [`get`](Row::get) reads a column as a type; a [`Scan`],
//!    which is an iterator over rows.
//! 6. [`record!`] makes a struct a row: [`Records`].
//!
//! [`Database::open`] recovers after a crash: every acknowledged commit is there as a whole, and no
//! other transaction in part. Errors are one type, [`Error`], whose [`Kind`] says what to do.
#![forbid(unsafe_code)]

mod api;
mod background;
mod backup;
mod engine;
mod invariants;
#[cfg(test)]
mod invariants_tests;
mod memory;
mod open;

pub use api::database::Database;
pub use api::index_ref::IndexRef;
pub use api::inspect::{LockFigures, MergeInfo, TableInfo, TableSize};
pub use api::options::{Durability, Geometry, Options, SETTINGS, Setting};
pub use api::records::{Record, RecordField, RecordScan, Records};
#[doc(hidden)]
pub use api::records::{column_of, field_of};
pub use api::scan::Scan;
pub use api::statistics::KeyStatistics;
pub use api::stats::{CheckReport, IndexStats, Info, Stats, TableStats};
pub use api::table_ref::TableRef;
pub use api::txn::{Canceller, Txn};
pub use backup::progress::{BackupPhase, BackupProgress, BackupReport};
pub use backup::restore::{
    BackupCheck, restore_backup, restore_backup_with, verify_backup, verify_backup_with,
};
#[doc(hidden)]
pub use backup::restore::{restore_backup_in, verify_backup_in};
pub use evenkeel_base::journal::{Decision, Law};
pub use evenkeel_base::wait_event::StallFigures;
pub use evenkeel_base::{Cause, Code, Error, Kind, Lsn, Result, metrics::Metric};
#[cfg(feature = "server")]
pub use evenkeel_io::ThreadWatch;
#[cfg(feature = "server")]
pub use evenkeel_pages::{Costs, costs};
pub use evenkeel_sched::laws::decide;
pub use evenkeel_tables::Collations;
pub use evenkeel_tables::{
    Access, Awaited, BuildPhase, BuildProgress, ByColumn, Changes, CheckProgress, CheckStage,
    ChunkInfo, ChunkKept, Chunking, ChunksDropped, ColumnSpec, ColumnType, Columns, Direction,
    Exactly, ForeignKeyDef, ForeignKeySpec, ForeignKeyView, Given, IndexRebuilt, IndexSpec,
    Insertion, Isolation, KeySet, LargeReader, LargeValue, LockWait, Locking, LostRange, Mode,
    PROVISIONAL, PartSpec, Range, ReferenceAction, Refusal, RepairScope, Report, Row, ScanRange,
    SchemaWait, StartingWith, TableChange, TableCopy, TableDef, TableRename, TableRepair,
    TableSpec, TimeUnit, Value, ValueRef, ValueWriter, Values, exactly, starting_with,
};
#[cfg(feature = "server")]
pub use evenkeel_tables::{RowPlan, TableHandle, WaitWatch};
pub use evenkeel_txn::{Phase, TxnInfo};
pub use open::recovery::RecoveryReport;

/// Threads share a database; a transaction moves between threads.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn sent<T: Send>() {}
    shared::<Database>();
    sent::<Txn>();
    sent::<Scan>();
};

/// The environment: for users' own tests and for the simulator.
pub mod io {
    pub use evenkeel_io::{
        AlignedBuf, Env, Event, File, MemEnv, OpenMode, RealEnv, Runtime, SubEnv, Task, Woken,
    };
}

/// The example of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
