//! Catalog, row and key work, table operations under transactions, constraints, online DDL.
//!
//! A [`Store`] is all tables of one database over the layers below: rows in clustered trees
//! (`tree`), secondary indexes in `runs`, versions, locks and outcomes in `txn`, one log. A row
//! operation is one log record, which contains its index entries. [`TableTxn`] reads and changes
//! rows.
#![forbid(unsafe_code)]

mod ahead;
mod alter;
mod apply;
mod auto;
mod batch;
mod buffers;
mod build;
pub mod catalog;
mod chains;
mod check;
mod chunks;
mod copy;
mod damage;
mod ddl;
mod estimate;
mod foreign;
mod foreign_add;
mod foreign_cascade;
mod foreign_ddl;
mod foreign_look;
mod foreign_names;
mod foreign_rows;
mod gate;
mod large;
mod liveness;
mod load;
mod locked_scan;
mod locker;
mod open_trees;
mod overflow;
mod primary;
pub mod range;
mod read;
mod repair;
mod replay;
pub mod row;
mod row_op;
mod row_plan;
pub mod rules;
mod savepoints;
mod scan;
pub mod schema;
mod statistics;
mod stats_refresh;
mod store;
mod sync;
mod table;
mod table_handle;
pub mod table_layout;
mod transaction;
mod values;
mod write;
mod write_parts;

pub use alter::{PROVISIONAL, TableChange};
pub use build::{BuildPhase, BuildProgress};
pub use chains::Chains;
pub use check::{CheckProgress, CheckStage, TableCheck};
pub use chunks::{ChunkInfo, ChunkKept, ChunkScan, Chunking, ChunksDropped};
pub use copy::TableCopy;
pub use evenkeel_format::catalog::{ReferenceAction, StatisticsEntry};
pub use evenkeel_format::chunks::TimeUnit;
pub use evenkeel_format::{Collations, ColumnType, Value, ValueRef};
pub use evenkeel_tree::Direction;
pub use evenkeel_txn::{Mode, Report, WaitWatch};
pub use foreign::{Awaited, ForeignKeyDef, ForeignKeySpec};
pub use foreign_names::{ForeignKeyView, TableRename};
pub use large::{LargeReader, LargeValue, ValueWriter};
pub use liveness::Liveness;
pub use locked_scan::{Given, LockedScan};
pub use range::{
    ByteRange, Exactly, KeySet, Range, ScanRange, StartingWith, exactly, starting_with,
};
pub use read::LockWait;
pub use repair::{IndexRebuilt, LostRange, RepairScope, TableRepair};
pub use replay::{Replayer, replay_entries};
pub use row::Row;
pub use row_plan::RowPlan;
pub use scan::{IndexScan, Locking, Scan};
pub use schema::{ColumnSpec, IndexSpec, PartSpec, TableDef, TableSpec};
pub use store::{Store, StoreOptions, StoreParts};
pub use table::{SchemaWait, Table, TableState};
pub use table_handle::TableHandle;
pub use table_layout::Layout;
pub use transaction::{Access, Isolation, TableTxn};
pub use values::{ByColumn, Changes, Columns, Refusal, Values};
pub use write::Insertion;

#[cfg(test)]
mod tests;
