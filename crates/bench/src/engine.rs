//! The interface to the stores under test. `Engine` is a store with a table per client; `Session`
//! is one thread's use of one table. An adapter implements both for one store and holds no workload
//! logic.

use crate::error::BenchError;
use crate::machine::Server;
use crate::rows::{Query, Row};
use evenkeel_base::Cause;
use evenkeel_base::journal::Decision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why an operation of a session failed.
#[derive(Debug)]
pub enum Failure {
    /// A conflict or deadlock: the transaction was rolled back and may be retried.
    Retry,
    /// The run cannot continue.
    Fatal(BenchError),
}

impl<E: Into<BenchError>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Fatal(error.into())
    }
}

/// The result of a delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Rows deleted.
    pub rows: u64,
    /// The highest primary key deleted.
    pub last: Option<i64>,
}

/// A resource that is held until it is dropped, such as an open snapshot.
pub trait Held {}
impl<T> Held for T {}

/// A store under test.
pub trait Engine: Send + Sync {
    /// The version of the store, for the JSON.
    fn version(&self) -> String;
    /// The options in force of the store, and its statistics if it has any, for the JSON.
    fn details(&self) -> serde_json::Value;
    /// The server process, if the store runs in another process: its CPU, memory and storage are
    /// measured instead of those of this process.
    fn server(&self) -> Option<Server> {
        None
    }
    /// Creates the table of `client` with its primary key only.
    ///
    /// # Errors
    /// Those of the engine.
    fn create_table(&self, client: usize) -> Result<(), BenchError>;
    /// Creates the three secondary indexes of the table of `client` in one statement, and returns
    /// when they are durable and usable.
    ///
    /// # Errors
    /// Those of the engine.
    fn create_indexes(&self, client: usize) -> Result<(), BenchError>;
    /// A session on the table of `client`, made and used by one thread.
    ///
    /// # Errors
    /// Those of the engine.
    fn session<'a>(&'a self, client: usize) -> Result<Box<dyn Session + 'a>, BenchError>;
    /// A transaction with a snapshot of the table of `client`, open until dropped.
    ///
    /// # Errors
    /// Those of the engine.
    fn snapshot<'a>(&'a self, client: usize) -> Result<Box<dyn Held + 'a>, BenchError>;
    /// Counters since the store was opened.
    fn counters(&self) -> Counters;
    /// Decisions of background threads since the last call; empty if the engine does not report
    /// any.
    fn decisions(&self) -> Vec<Decision> {
        Vec::new()
    }
    /// Closes the store cleanly.
    ///
    /// # Errors
    /// Those of the engine.
    fn close(self: Box<Self>) -> Result<(), BenchError>;
}

/// One thread's use of one table. Each call is one transaction.
pub trait Session {
    /// Inserts the rows.
    ///
    /// # Errors
    /// `Retry` after a conflict, else the engine's error.
    fn insert(&mut self, rows: &[Row]) -> Result<(), Failure>;
    /// The lowest primary key.
    ///
    /// # Errors
    /// As those of `insert`.
    fn min_pk(&mut self) -> Result<Option<i64>, Failure>;
    /// Deletes the first `rows` rows with a primary key of at least `from`.
    ///
    /// # Errors
    /// As those of `insert`.
    fn delete_from(&mut self, from: i64, rows: usize) -> Result<Deleted, Failure>;
    /// Runs a query and reads every column it selects. Returns the rows found.
    ///
    /// # Errors
    /// As those of `insert`.
    fn query(&mut self, query: &Query) -> Result<u64, Failure>;
    /// Sets `data` of the rows with these primary keys. All the rows exist; a key may occur twice.
    ///
    /// # Errors
    /// As those of `insert`.
    fn update(&mut self, ids: &[i64], data: &str) -> Result<(), Failure>;
    /// Reads `price` of the rows with these primary keys, one after the other. Returns the number
    /// of rows found.
    ///
    /// # Errors
    /// As those of `insert`.
    fn read(&mut self, ids: &[i64]) -> Result<u64, Failure>;
}

/// Bytes by their purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bytes {
    /// Log written.
    pub wal: u64,
    /// Pages written in place.
    pub page: u64,
    /// Doublewrite copies written.
    pub doublewrite: u64,
    /// Runs written by memtable flushes.
    pub run_flush: u64,
    /// Read by compactions.
    #[serde(alias = "merge_read")]
    pub compaction_read: u64,
    /// Written by compactions.
    #[serde(alias = "merge_written")]
    pub compaction_written: u64,
    /// Read by index builds.
    pub build_read: u64,
    /// Written by index builds.
    pub build_written: u64,
    /// Read by foreground threads.
    pub foreground_read: u64,
    /// Written to prepare log segments.
    pub wal_prepared: u64,
    /// Undo written to files.
    pub undo: u64,
    /// Read for other reasons: recovery, checks, the catalog.
    pub other_read: u64,
    /// Written for other reasons: the superblock, headers of files.
    pub other_written: u64,
}

impl Bytes {
    /// The names of the classes, in the order of `values`.
    pub const NAMES: [&str; 13] = [
        "wal",
        "page",
        "doublewrite",
        "run_flush",
        "compaction_read",
        "compaction_written",
        "build_read",
        "build_written",
        "foreground_read",
        "wal_prepared",
        "undo",
        "other_read",
        "other_written",
    ];

    /// All classes.
    pub fn values(&self) -> [u64; 13] {
        [
            self.wal,
            self.page,
            self.doublewrite,
            self.run_flush,
            self.compaction_read,
            self.compaction_written,
            self.build_read,
            self.build_written,
            self.foreground_read,
            self.wal_prepared,
            self.undo,
            self.other_read,
            self.other_written,
        ]
    }

    /// The inverse of `values`.
    pub fn from_values(v: [u64; 13]) -> Bytes {
        let [wal, page, doublewrite, run_flush, compaction_read, compaction_written, ..] = v;
        let [_, _, _, _, _, _, build_read, build_written, foreground_read, ..] = v;
        let [.., wal_prepared, undo, other_read, other_written] = v;
        Bytes {
            wal,
            page,
            doublewrite,
            run_flush,
            compaction_read,
            compaction_written,
            build_read,
            build_written,
            foreground_read,
            wal_prepared,
            undo,
            other_read,
            other_written,
        }
    }
}

/// Counts of background events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Events {
    /// Generations of memtables flushed.
    pub memtable_flushes: u64,
    /// Compactions finished.
    #[serde(alias = "merges")]
    pub compactions: u64,
    /// The compactions among them that wrote a bottom run.
    #[serde(alias = "merges_bottom")]
    pub compactions_bottom: u64,
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Log segments begun.
    pub log_rotations: u64,
}

/// An engine's counters at one moment, or their growth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Bytes by class.
    pub bytes: Bytes,
    /// Background events.
    pub events: Events,
    /// Pages that the flush law requested.
    pub flush_requested: u64,
    /// Pages flushed.
    pub flush_done: u64,
    /// Pages by the term of the law that requested them.
    pub flush_reasons: BTreeMap<String, u64>,
    /// Rows that index builds have read, for the progress line of `l.x`.
    pub rows_indexed: u64,
    /// Microseconds that foreground threads waited, by cause.
    pub waits: Stalls,
}

impl Counters {
    /// The growth since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        let (now, old) = (self.bytes.values(), earlier.bytes.values());
        let (e, f) = (&self.events, &earlier.events);
        let why = self.flush_reasons.iter().map(|(name, n)| {
            (name.clone(), n.saturating_sub(earlier.flush_reasons.get(name).copied().unwrap_or(0)))
        });
        Counters {
            bytes: Bytes::from_values(std::array::from_fn(|i| now[i].saturating_sub(old[i]))),
            events: Events {
                memtable_flushes: e.memtable_flushes.saturating_sub(f.memtable_flushes),
                compactions: e.compactions.saturating_sub(f.compactions),
                compactions_bottom: e.compactions_bottom.saturating_sub(f.compactions_bottom),
                checkpoints: e.checkpoints.saturating_sub(f.checkpoints),
                log_rotations: e.log_rotations.saturating_sub(f.log_rotations),
            },
            flush_requested: self.flush_requested.saturating_sub(earlier.flush_requested),
            flush_done: self.flush_done.saturating_sub(earlier.flush_done),
            flush_reasons: why.collect(),
            rows_indexed: self.rows_indexed.saturating_sub(earlier.rows_indexed),
            waits: self.waits.since(&earlier.waits),
        }
    }
}

/// The causes that count as waits, in order.
pub fn causes() -> impl Iterator<Item = Cause> {
    Cause::ALL.iter().copied().filter(|cause| *cause != Cause::Idle)
}

/// Causes within the engine: a limit on variance may attribute waits to the engine only for these.
pub const OWN_CAUSES: [Cause; 6] = [
    Cause::LogSpace,
    Cause::FreeFrame,
    Cause::PageLatch,
    Cause::MemtableFull,
    Cause::CompactionDebt,
    Cause::Governor,
];

/// Microseconds by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls([u64; Cause::ALL.len()]);

impl Stalls {
    /// Adds to one cause.
    pub fn add(&mut self, cause: Cause, us: u64) {
        self.0[cause as usize] += us;
    }

    /// The microseconds of one cause.
    pub fn get(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// The sum of all causes but `idle`.
    pub fn total(&self) -> u64 {
        causes().map(|cause| self.get(cause)).sum()
    }

    /// The growth since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Stalls) -> Stalls {
        Stalls(std::array::from_fn(|i| self.0[i].saturating_sub(earlier.0[i])))
    }

    /// The microseconds by name, with every cause.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        causes().map(|cause| (cause.name().to_string(), self.get(cause))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_subtract_and_never_go_below_zero() {
        let mut a = Counters::default();
        a.bytes.wal = 10;
        a.flush_reasons.insert("age".into(), 4);
        a.waits.add(Cause::LogSync, 7);
        let mut b = a.clone();
        b.bytes.wal = 25;
        b.flush_reasons.insert("age".into(), 9);
        b.waits.add(Cause::LogSync, 5);
        b.waits.add(Cause::Idle, 99);
        let grown = b.since(&a);
        assert_eq!((grown.bytes.wal, grown.flush_reasons["age"]), (15, 5));
        assert_eq!((grown.waits.get(Cause::LogSync), grown.waits.total()), (5, 5));
        assert_eq!(a.since(&b).bytes.wal, 0);
        assert_eq!(grown.waits.by_name().len(), Cause::ALL.len() - 1);
    }

    #[test]
    fn byte_classes_keep_their_order() {
        let values = std::array::from_fn(|i| i as u64 + 1);
        let bytes = Bytes::from_values(values);
        assert_eq!(bytes.values(), values);
        let json = serde_json::to_value(bytes).expect("plain data");
        for (name, value) in Bytes::NAMES.iter().zip(values) {
            assert_eq!(json[name], value);
        }
    }
}
