//! Evenkeel: a storage engine that keeps an even keel under sustained writes.
//!
//! Tables with secondary indexes and transactions, in a directory that one process owns:
//!
//! ```
//! use evenkeel::ValueRef::{Int, Text};
//! use evenkeel::{
//!     Access, ColumnSpec, ColumnType, Database, IndexSpec, Isolation, Options, TableSpec,
//! };
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
//! let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
//! txn.table("people")?.insert(&[Int(1), Text("Ada")])?;
//! txn.commit()?;
//!
//! let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
//! let mut people = txn.table("people")?;
//! let row = people.get(&[Int(1)])?.expect("just inserted");
//! assert_eq!(row.get("name")?, Text("Ada"));
//! # Ok(())
//! # }
//! ```
//!
//! [`Database::open`] recovers after a crash: every acknowledged commit is there as a whole, and no
//! other transaction in part. Errors are one type, [`Error`], whose [`Kind`] says what to do.
#![forbid(unsafe_code)]

mod api;
mod background;
mod engine;
mod memory;
mod open;

pub use api::database::Database;
pub use api::index_ref::IndexRef;
pub use api::inspect::{LockFigures, MergeInfo, TableInfo, TableSize};
pub use api::options::{Durability, Geometry, Options, SETTINGS, Setting};
pub use api::scan::{IndexScan, Scan};
pub use api::statistics::KeyStatistics;
pub use api::stats::{CheckReport, IndexStats, Info, Stats, TableStats};
pub use api::txn::{Canceller, TableRef, Txn};
pub use background::decisions::decide;
pub use evenkeel_base::journal::{Decision, Law};
pub use evenkeel_base::wait_event::StallFigures;
pub use evenkeel_base::{Cause, Code, Error, Kind, Lsn, Result, metrics::Metric};
pub use evenkeel_io::ThreadWatch;
pub use evenkeel_pages::{Costs, costs};
pub use evenkeel_tables::Collations;
pub use evenkeel_tables::{
    Access, BuildPhase, BuildProgress, CheckProgress, CheckStage, ColumnSpec, ColumnType,
    Direction, Given, IndexSpec, Insertion, Isolation, LargeReader, LargeValue, LockWait,
    LockedScan, Locking, Mode, PROVISIONAL, PartSpec, Range, Row, RowPlan, SchemaWait, TableChange,
    TableCopy, TableDef, TableSpec, Value, ValueRef, ValueWriter, WaitWatch,
};
pub use evenkeel_txn::{Phase, TxnInfo};
pub use open::recovery::RecoveryReport;

/// Threads share a database; a transaction moves between threads.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn sent<T: Send>() {}
    shared::<Database>();
    sent::<Txn>();
    sent::<Scan>();
    sent::<IndexScan>();
};

/// The environment: for users' own tests and for the simulator.
pub mod io {
    pub use evenkeel_io::{
        AlignedBuf, Env, Event, File, MemEnv, OpenMode, RealEnv, Runtime, Task, Woken,
    };
}

/// The examples of the guide, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/embedding.md")]
struct Guide;

/// The example of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
