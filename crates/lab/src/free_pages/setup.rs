//! The parameters of a free-pages experiment.

use crate::outcome;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Sizes, times and rates; times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Frames of the pool.
    pub frames: u64,
    /// Instances of the pool, each with a free list and an LRU manager of its own.
    pub instances: u64,
    /// Threads; each reads a page that is not in the pool, and then computes.
    pub threads: u64,
    /// A thread computes this long between two pages in a burst.
    pub busy_ns: u64,
    /// ... and between bursts.
    pub quiet_ns: u64,
    /// A burst lasts this long.
    pub burst_ns: u64,
    /// ... and begins again this long after it ended.
    pub pause_ns: u64,
    /// One page in this many is changed.
    pub dirty_one_in: u64,
    /// Pages per second of the disk, reads and writes together.
    pub disk_pages_per_sec: u64,
    /// Time of a page on the disk, beyond its share of the rate.
    pub io_ns: u64,
    /// Frames that an LRU manager examines in a run.
    pub scan_depth: u64,
    /// The initial and the greatest sleep of an LRU manager.
    pub sleep_ns: u64,
    /// The sleep changes by this much.
    pub adjust_ns: u64,
    /// A thread that finds no free frame sleeps this long, then twice as long.
    pub retry_ns: u64,
    /// ... up to this.
    pub retry_most_ns: u64,
    /// A thread that was woken by an event runs after this long.
    pub wake_ns: u64,
    /// Time to examine one frame.
    pub step_ns: u64,
    /// Processor time to fall asleep and wake up again.
    pub run_ns: u64,
    /// Pages written at once.
    pub batch_pages: usize,
    /// Seconds shown.
    pub seconds: u64,
}

impl Setup {
    /// A pool of 4 GiB on a disk of 20,000 pages per second, both divided by `scale`.
    pub fn new(scale: u64, seed: u64) -> Setup {
        let scale = scale.max(1);
        let instances = 8;
        Setup {
            seed,
            frames: (262_144 / scale).max(1_024),
            instances,
            threads: 128,
            busy_ns: 5_000_000 * scale,
            quiet_ns: 200_000_000 * scale,
            burst_ns: 3_000_000_000,
            pause_ns: 2_000_000_000,
            dirty_one_in: 4,
            disk_pages_per_sec: (20_000 / scale).max(100),
            io_ns: 200_000,
            scan_depth: (1_024 / scale).max(16),
            sleep_ns: 1_000_000_000,
            adjust_ns: 50_000_000,
            retry_ns: 1_000_000,
            retry_most_ns: 100_000_000,
            wake_ns: 50_000,
            step_ns: 40,
            run_ns: 5_000,
            batch_pages: 64,
            seconds: 30,
        }
    }

    /// True in a burst.
    pub fn is_burst(&self, time: u64) -> bool {
        time % (self.burst_ns + self.pause_ns) >= self.pause_ns
    }

    /// Every number, for the report.
    pub fn settings(&self) -> BTreeMap<String, Value> {
        outcome::settings(&json!({
            "frames": self.frames,
            "instances": self.instances,
            "threads": self.threads,
            "busy_ns": self.busy_ns,
            "quiet_ns": self.quiet_ns,
            "burst_ns": self.burst_ns,
            "pause_ns": self.pause_ns,
            "dirty_one_in": self.dirty_one_in,
            "disk_pages_per_sec": self.disk_pages_per_sec,
            "io_ns": self.io_ns,
            "scan_depth": self.scan_depth,
            "sleep_ns": self.sleep_ns,
            "adjust_ns": self.adjust_ns,
            "retry_ns": self.retry_ns,
            "retry_most_ns": self.retry_most_ns,
            "wake_ns": self.wake_ns,
            "step_ns": self.step_ns,
            "run_ns": self.run_ns,
            "batch_pages": self.batch_pages,
            "seconds": self.seconds,
        }))
    }
}
