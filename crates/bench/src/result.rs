//! The JSON of a run. Fields may be added, but never renamed: `bench diff` and the report read
//! files of earlier versions.

use crate::engine::{Bytes, Events};
use evenkeel_base::Cause;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of this schema.
pub const FORMAT: u32 = 1;

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// Version of the schema.
    pub format: u32,
    /// Name of the engine.
    pub engine: String,
    /// Version of the engine.
    pub version: String,
    /// Whether Ctrl-C ended the run.
    pub interrupted: bool,
    /// The machine that it ran on.
    pub machine: Machine,
    /// Every flag in force.
    pub settings: serde_json::Value,
    /// The engine's own options and statistics.
    #[serde(default)]
    pub engine_details: serde_json::Value,
    /// Index name to insert pattern.
    pub patterns: BTreeMap<String, String>,
    /// Steps in order.
    pub steps: Vec<StepResult>,
    /// Allocated bytes of the directory at the end.
    pub space_bytes: u64,
    /// Peak resident memory of the process.
    pub peak_memory_bytes: u64,
    /// Milliseconds to open the store.
    #[serde(default)]
    pub open_ms: f64,
    /// Milliseconds to close it.
    #[serde(default)]
    pub close_ms: f64,
    /// Microseconds waited by cause, over all steps.
    #[serde(alias = "stalls")]
    pub waits: BTreeMap<String, u64>,
}

/// The machine of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Number of cores.
    pub cores: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// File system of the directory.
    pub filesystem: String,
    /// True if direct I/O was requested and the file system supports it.
    pub direct_io: bool,
    /// Median time to write and sync 4 KiB into a preallocated file.
    pub sync_us_p50: f64,
    /// 99th percentile of the same.
    pub sync_us_p99: f64,
    /// Bytes that the device writes atomically; 0 if unknown.
    pub atomic_write_bytes: u64,
}

/// Response times of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpFigures {
    /// Number of operations.
    pub n: u64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest.
    pub max_us: f64,
    /// Counts up to 256us 1ms 4ms 16ms 64ms 256ms 1s 4s 16s, and above.
    pub histogram: [u64; 10],
}

/// Response times by kind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ops {
    /// Inserting transactions.
    pub insert: OpFigures,
    /// Deleting transactions.
    pub delete: OpFigures,
    /// Queries.
    pub query: OpFigures,
    /// Inserting transactions, measured from their intended start, if the writers are paced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insert_intended: Option<OpFigures>,
}

/// One second: inserts, deletes, queries per second; longest insert, delete, query in
/// microseconds; share of the machine stolen by its host; microseconds waited.
pub type Second = (f64, f64, f64, f64, f64, f64, f64, u64);

/// An operation more than half of whose time one write or sync of the device took: the second of
/// the step at which it ended, its milliseconds, the milliseconds of the write or sync.
pub type DeviceSlow = (f64, f64, f64);

/// Bytes and waits of each second, in addition to `per_second`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SecondDetails {
    /// Class to bytes per second.
    pub bytes: BTreeMap<String, Vec<u64>>,
    /// Cause to microseconds per second.
    #[serde(alias = "stalls")]
    pub waits: BTreeMap<String, Vec<u64>>,
    /// Pages that the flush law requested.
    pub flush_requested: Vec<u64>,
    /// Pages flushed.
    pub flush_done: Vec<u64>,
    /// Term of the law to the pages that it requested.
    #[serde(alias = "flush_why")]
    pub flush_reasons: BTreeMap<String, Vec<u64>>,
}

/// A decision: the second of the step in which it was made, counted from 0; the inputs of the law;
/// its outputs.
pub type Made = (usize, Vec<u64>, Vec<u64>);

/// The decisions of one law during a step: the law computes the outputs from the inputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Decisions {
    /// Names of the inputs; the last (of `compaction_turn` the last three) may occur any number of
    /// times.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// The decisions in order.
    pub made: Vec<Made>,
    /// One in this many decisions was kept. (0 in old files: of a long run they hold the first
    /// decisions.)
    pub one_in: u64,
}

/// One step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepResult {
    /// Its name.
    pub name: String,
    /// Total of rows inserted; in `l.x` of rows indexed.
    pub rows: u64,
    /// Total of rows deleted.
    #[serde(default)]
    pub rows_deleted: u64,
    /// Length in seconds.
    pub seconds: f64,
    /// Rows inserted (indexed) per second.
    pub rows_per_s: f64,
    /// Rows deleted per second.
    pub deletes_per_s: f64,
    /// Queries per second.
    pub queries_per_s: f64,
    /// Rows per second and client that the writers should reach.
    pub rate_target: Option<f64>,
    /// The writers reached 95% of it.
    pub rate_met: bool,
    /// Lowest second divided by the median, without the first 5 seconds and the last; none under 20
    /// s. It counts queries in steps that query, else inserts.
    pub worst_second_ratio: Option<f64>,
    /// 5th-percentile second divided by the median.
    pub p5_second_ratio: Option<f64>,
    /// Seconds below 50% of the median.
    pub seconds_below_50: u64,
    /// Seconds below 10% of the median.
    pub seconds_below_10: u64,
    /// Longest time without a commit.
    pub longest_gap_ms: f64,
    /// Longest operation.
    pub max_op_ms: f64,
    /// The longest operation of which no single write or sync of the device took more than half.
    /// Servers do not report this: for them, the longest of all.
    #[serde(default)]
    pub max_op_own_ms: f64,
    /// The other operations, of 10 ms and more.
    #[serde(default)]
    pub device_slow: Vec<DeviceSlow>,
    /// 99th percentile of all operations.
    pub p99_op_ms: f64,
    /// Response times by kind.
    pub op: Ops,
    /// Bytes read by `/proc/PID/io`, per row; in steps that query, per query.
    pub bytes_read_per_row: f64,
    /// Bytes written by `/proc/PID/io`, likewise.
    pub bytes_written_per_row: f64,
    /// Bytes read by `/proc/PID/io`.
    #[serde(default)]
    pub bytes_read: u64,
    /// Bytes written by `/proc/PID/io`.
    #[serde(default)]
    pub bytes_written: u64,
    /// Bytes that the engine counted, by class.
    pub bytes: Bytes,
    /// Background events.
    pub events: Events,
    /// Pages that the flush law requested.
    pub flush_requested: u64,
    /// Pages flushed.
    pub flush_done: u64,
    /// CPU time of the process per row; in steps that query, per query.
    pub cpu_us_per_row: f64,
    /// Allocated bytes of the directory at the end of the step.
    pub space_bytes: u64,
    /// Transactions retried after a conflict: inserts, deletes, queries.
    #[serde(default)]
    pub retries: [u64; 3],
    /// Microseconds waited by cause.
    #[serde(alias = "stalls")]
    pub waits: BTreeMap<String, u64>,
    /// Whole seconds in order.
    pub per_second: Vec<Second>,
    /// More about the same seconds.
    #[serde(default)]
    pub per_second_details: SecondDetails,
    /// The decisions of background work, by law.
    #[serde(default)]
    pub decisions: BTreeMap<String, Decisions>,
}

impl StepResult {
    /// True if queries are the subject of the step.
    pub fn queries(&self) -> bool {
        self.op.query.n > 0
    }

    /// The share of all waits without a cause (G6); `None` if no thread has waited.
    pub fn unexplained_share(&self) -> Option<f64> {
        let all: u64 = self.waits.values().sum();
        let unexplained = self.waits.get(Cause::Unexplained.name()).copied().unwrap_or(0);
        (all > 0).then(|| unexplained as f64 / all as f64)
    }

    /// The rate of each whole second; the variance figures are computed from these.
    pub fn rates(&self) -> Vec<f64> {
        self.per_second.iter().map(|s| if self.queries() { s.2 } else { s.0 }).collect()
    }
}
