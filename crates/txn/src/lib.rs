//! Transactions: stamps, snapshots, undo, locks, savepoints, prepared transactions.
//!
//! `Txns` is the entry point. A write takes these steps: `begin`; for each operation `reserve_undo`
//! (which may wait, without a latch), then under the leaf latch `next_stamp`, `check_write`,
//! `push_undo` and the log record; finally `commit`, and `Log::wait_commit` for the position that
//! it returned.
//!
//! To resolve the stamp of a row, a reader must hold the latch of the leaf from which it read the
//! row, or a snapshot taken before it read the row. Otherwise the id may have left the commit
//! table, and an absent id reads as committed (A5).
#![forbid(unsafe_code)]

mod background;
mod commit_table;
mod commit_ts_ranges;
mod deadlock;
mod escalation;
mod growing;
mod inspect;
mod intervals;
mod invariants;
mod lock_table;
mod locks;
mod owner;
mod packed_undo;
mod range_locks;
mod recovery;
mod rollback;
mod row_queue;
mod side_lists;
mod snapshots;
mod sync;
mod txn;
mod txns;
mod undo;
mod undo_files;
mod versions;
mod waits;

pub use inspect::{LockInfo, TxnInfo};
pub use locks::{Grant, GrowingRange, KeyBounds, LockSpace, Mode, Policy};
pub use recovery::CommittedIds;
pub use rollback::{RollbackRow, RolledBack};
pub use side_lists::SideLists;
pub use txn::{Phase, TxnCore, TxnRef};
pub use txns::{SnapshotGuard, TxnOptions, Txns};
pub use versions::UndoCopy;
pub use waits::{Deadline, Report, WaitWatch};

#[cfg(test)]
mod escalation_tests;
#[cfg(test)]
mod growing_tests;
#[cfg(test)]
mod intervals_tests;
#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod testing;
