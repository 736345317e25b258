//! The parameters of a flush-scan experiment.

use crate::outcome;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Sizes, times and rates; times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Dirty pages, of all instances.
    pub pages: u64,
    /// Those of the new index.
    pub own: u64,
    /// Instances of the pool, each with a flush list and a mutex of its own.
    pub instances: u64,
    /// Threads that write.
    pub writers: u64,
    /// A transaction takes this long when it waits for nothing.
    pub tx_ns: u64,
    /// Pages that a transaction reads into free frames and makes dirty.
    pub pages_per_tx: u64,
    /// Time of a visit of one page of a list.
    pub step_ns: u64,
    /// A scan releases the mutexes after this many steps.
    pub section_steps: u64,
    /// ... for this long.
    pub gap_ns: u64,
    /// All other threads hold the mutex this long per page.
    pub hold_ns: u64,
    /// A thread that finds the mutex taken polls it again after this long.
    pub poll_ns: u64,
    /// ... and sleeps after this many polls.
    pub polls: u64,
    /// A woken thread runs after about this long.
    pub wake_ns: u64,
    /// Reading or writing one page.
    pub io_ns: u64,
    /// The cleaner hands one page to the disk in this time.
    pub issue_ns: u64,
    /// Threads that handle completed writes.
    pub io_threads: u64,
    /// Free frames that the cleaner keeps in each instance.
    pub free_frames: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes the disk writes per second.
    pub disk_bytes_per_sec: u64,
    /// Log written per transaction, bytes.
    pub tx_log_bytes: u64,
    /// Age of the oldest page at the beginning, in eighths of the part of the log that users may
    /// fill.
    pub age_eighths: u64,
    /// Pages of other tables that became dirty during the index build, per page of the index.
    pub mixed: u64,
    /// Pages in use, and the neighbours on disk of pages that the cleaner writes, lie among this
    /// many of the newest pages of all instances.
    pub recent: u64,
    /// Percent of the pages in a batch of the cleaner that are such neighbours.
    pub neighbours_pct: u64,
    /// Seconds before the index is to be flushed.
    pub before_s: u64,
    /// Least number of seconds shown.
    pub shown_s: u64,
    /// An experiment ends after this many seconds.
    pub limit_s: u64,
    /// Walks of the list are counted instead of followed.
    pub jumps: bool,
}

impl Setup {
    /// The reported sizes, divided by `scale`.
    pub fn new(scale: u64, seed: u64) -> Setup {
        let scale = scale.max(1);
        Setup {
            seed,
            pages: (8_000_000 / scale).max(64),
            own: (3_000 / scale).max(8),
            instances: 8,
            writers: 64,
            tx_ns: 4_000_000,
            pages_per_tx: 1,
            step_ns: 40,
            section_steps: 1_024,
            gap_ns: 200,
            hold_ns: 300,
            poll_ns: 4_000,
            polls: 30,
            wake_ns: 50_000,
            io_ns: 200_000,
            issue_ns: 20_000,
            io_threads: 4,
            free_frames: (1_024 / scale).max(16),
            page_bytes: 16_384,
            disk_bytes_per_sec: 350_000_000,
            tx_log_bytes: 600,
            age_eighths: 3,
            mixed: 2,
            // As many pages as those among which the build's lie.
            recent: (3_000 / scale).max(8) * 3,
            neighbours_pct: 50,
            before_s: 5,
            shown_s: 30,
            limit_s: 1_000,
            jumps: true,
        }
    }

    /// Pages the disk writes per second.
    pub fn disk_pages_per_sec(&self) -> u64 {
        self.disk_bytes_per_sec / self.page_bytes
    }

    /// Every number, for the report.
    pub fn settings(&self) -> BTreeMap<String, Value> {
        outcome::settings(&json!({
            "pages": self.pages,
            "own": self.own,
            "instances": self.instances,
            "writers": self.writers,
            "tx_ns": self.tx_ns,
            "pages_per_tx": self.pages_per_tx,
            "step_ns": self.step_ns,
            "section_steps": self.section_steps,
            "gap_ns": self.gap_ns,
            "hold_ns": self.hold_ns,
            "poll_ns": self.poll_ns,
            "polls": self.polls,
            "wake_ns": self.wake_ns,
            "io_ns": self.io_ns,
            "issue_ns": self.issue_ns,
            "io_threads": self.io_threads,
            "free_frames": self.free_frames,
            "page_bytes": self.page_bytes,
            "disk_bytes_per_sec": self.disk_bytes_per_sec,
            "tx_log_bytes": self.tx_log_bytes,
            "age_eighths": self.age_eighths,
            "mixed": self.mixed,
            "recent": self.recent,
            "neighbours_pct": self.neighbours_pct,
            "limit_s": self.limit_s,
        }))
    }
}
