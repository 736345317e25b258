//! The JSON of a run. Fields may be added, never renamed: `bench diff`, the report and whoever
//! keeps the files read it.

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
    /// Engine.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// Ended by Ctrl-C.
    pub interrupted: bool,
    /// What it ran on.
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

/// What a run ran on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Cores.
    pub cores: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// File system of the directory.
    pub filesystem: String,
    /// Direct I/O asked for and possible there.
    pub direct_io: bool,
    /// Median time to write and sync 4 KiB into a preallocated file.
    pub sync_us_p50: f64,
    /// 99th percentile of the same.
    pub sync_us_p99: f64,
    /// Bytes that the device writes atomically; 0 if it does not say.
    pub atomic_write_bytes: u64,
}

/// Response times of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpFigures {
    /// Operations.
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
    /// Inserting transactions counted from their intended start, where writers are paced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insert_intended: Option<OpFigures>,
}

/// One second: inserts, deletes, queries per second; longest insert, delete, query in
/// microseconds; share of the machine stolen by its host; microseconds waited.
pub type Second = (f64, f64, f64, f64, f64, f64, f64, u64);

/// An operation of which one write or sync of the device took more than half: when it ended,
/// seconds of the step; its milliseconds; those of the write or sync.
pub type DeviceSlow = (f64, f64, f64);

/// What each second moved and waited for, beside `per_second`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SecondDetails {
    /// Class to bytes per second.
    pub bytes: BTreeMap<String, Vec<u64>>,
    /// Cause to microseconds per second.
    #[serde(alias = "stalls")]
    pub waits: BTreeMap<String, Vec<u64>>,
    /// Pages that the flush law asked for.
    pub flush_requested: Vec<u64>,
    /// Pages flushed.
    pub flush_done: Vec<u64>,
    /// Term of the law to pages it asked for.
    #[serde(alias = "flush_why")]
    pub flush_reasons: BTreeMap<String, Vec<u64>>,
}

/// A decision: the second of the step, counted from 0, in which it was made; what the law looked
/// at; what it said.
pub type Made = (usize, Vec<u64>, Vec<u64>);

/// The decisions of one law during a step: fed to the law again, the inputs give the outputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Decisions {
    /// Names of the inputs; the last (of `compaction_turn` the last three) come any
    /// number of times.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// In order.
    pub made: Vec<Made>,
    /// Of so many one is there (0, as files of before have: of a long run the first ones).
    pub one_in: u64,
}

/// One step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepResult {
    /// Its name.
    pub name: String,
    /// Rows inserted, in all; in `l.x` rows indexed.
    pub rows: u64,
    /// Rows deleted, in all.
    #[serde(default)]
    pub rows_deleted: u64,
    /// Length.
    pub seconds: f64,
    /// Rows inserted (indexed) per second.
    pub rows_per_s: f64,
    /// Rows deleted per second.
    pub deletes_per_s: f64,
    /// Queries per second.
    pub queries_per_s: f64,
    /// Rows per second and client that the writers were to reach.
    pub rate_target: Option<f64>,
    /// They reached 95% of it.
    pub rate_met: bool,
    /// Lowest second / median, without the first 5 and the last; none under 20 s. Of queries in
    /// steps that query, else of inserts.
    pub worst_second_ratio: Option<f64>,
    /// 5th-percentile second / median.
    pub p5_second_ratio: Option<f64>,
    /// Seconds below 50% of the median.
    pub seconds_below_50: u64,
    /// Seconds below 10% of the median.
    pub seconds_below_10: u64,
    /// Longest time without a commit.
    pub longest_gap_ms: f64,
    /// Longest operation.
    pub max_op_ms: f64,
    /// The longest of those of which no single write or sync of the device took more than half;
    /// of servers, which do not say, the longest of all.
    #[serde(default)]
    pub max_op_own_ms: f64,
    /// The others, of 10 ms and more.
    #[serde(default)]
    pub device_slow: Vec<DeviceSlow>,
    /// 99th percentile of all operations.
    pub p99_op_ms: f64,
    /// Response times by kind.
    pub op: Ops,
    /// Of `/proc/PID/io`, per row; in steps that query, per query.
    pub bytes_read_per_row: f64,
    /// The same, written.
    pub bytes_written_per_row: f64,
    /// Of `/proc/PID/io`.
    #[serde(default)]
    pub bytes_read: u64,
    /// Of `/proc/PID/io`.
    #[serde(default)]
    pub bytes_written: u64,
    /// The engine's own count, by class.
    pub bytes: Bytes,
    /// Background events.
    pub events: Events,
    /// Pages that the flush law asked for.
    pub flush_requested: u64,
    /// Pages flushed.
    pub flush_done: u64,
    /// CPU time of the process per row; in steps that query, per query.
    pub cpu_us_per_row: f64,
    /// Allocated bytes of the directory at the end of the step.
    pub space_bytes: u64,
    /// Transactions repeated after a conflict: inserts, deletes, queries.
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
    /// What the background decided, by law.
    #[serde(default)]
    pub decisions: BTreeMap<String, Decisions>,
}

impl StepResult {
    /// True if queries are what the step is about.
    pub fn queries(&self) -> bool {
        self.op.query.n > 0
    }

    /// What nothing accounts for, as a share of all waits (G6); none if nobody has waited.
    pub fn unexplained_share(&self) -> Option<f64> {
        let all: u64 = self.waits.values().sum();
        let unexplained = self.waits.get(Cause::Unexplained.name()).copied().unwrap_or(0);
        (all > 0).then(|| unexplained as f64 / all as f64)
    }

    /// The rate of each whole second that the variance figures are about.
    pub fn rates(&self) -> Vec<f64> {
        self.per_second.iter().map(|s| if self.queries() { s.2 } else { s.0 }).collect()
    }
}
