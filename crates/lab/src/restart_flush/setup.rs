//! The parameters of a restart-flush experiment.

use crate::outcome;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Sizes, times and rates.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Cleaner threads; the reported engine has as many pool instances.
    pub cleaners: u64,
    /// Bytes the log may hold.
    pub log_bytes: u64,
    /// Age at the end of recovery, percent of the log.
    pub first_age_pct: u64,
    /// Pages that the workload changes.
    pub hot_pages: u64,
    /// Connections.
    pub connections: u64,
    /// A transaction takes this long when the disk is idle.
    pub tx_ns: u64,
    /// Log of a transaction, bytes.
    pub tx_log_bytes: u64,
    /// Number of times that a transaction waits for the disk: for a read, for the log.
    pub disk_visits: f64,
    /// Pages it reads from the disk.
    pub reads: f64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes per second of the disk.
    pub disk_bytes_per_sec: u64,
    /// The disk's pages per second by the server's settings: for ordinary work, and the greatest.
    pub io_capacity: u64,
    /// See above.
    pub io_capacity_max: u64,
    /// The greatest number of page writes under way in the reported engine.
    pub async_pages: u64,
    /// Pages in a batch of one of our cleaners.
    pub batch_pages: u64,
    /// Seconds shown.
    pub seconds: u64,
}

impl Setup {
    /// The reported sizes, divided by `scale`: also the disk's speed and everything that depends on
    /// it.
    pub fn new(scale: u64, seed: u64) -> Setup {
        let scale = scale.max(1);
        Setup {
            seed,
            cleaners: 8,
            log_bytes: (1 << 30) / scale,
            first_age_pct: 60,
            hot_pages: (200_000 / scale).max(64),
            connections: 128,
            tx_ns: 8_000_000 * scale,
            tx_log_bytes: 2_000,
            disk_visits: 2.0,
            reads: 0.2,
            page_bytes: 16_384,
            disk_bytes_per_sec: (350_000_000 / scale).max(16_384),
            io_capacity: (10_000 / scale).max(1),
            io_capacity_max: (20_000 / scale).max(1),
            async_pages: (1_024 / scale).max(16),
            batch_pages: (64 / scale).max(1),
            seconds: 60,
        }
    }

    /// Age of the oldest change when recovery ends, bytes.
    pub fn first_age(&self) -> u64 {
        self.log_bytes / 100 * self.first_age_pct
    }

    /// End of the log at that time: behind all changes of dirty pages.
    pub fn first_end(&self) -> u64 {
        2 * self.log_bytes
    }

    /// Number of dirty pages at that time: as many as this much log changes, some of them more than
    /// once.
    pub fn first_dirty(&self) -> u64 {
        let changes = self.first_age() as f64 / self.tx_log_bytes as f64;
        let hot = self.hot_pages as f64;
        (hot * (1.0 - (-changes / hot).exp())) as u64
    }

    /// Every number, for the report.
    pub fn settings(&self) -> BTreeMap<String, Value> {
        outcome::settings(&json!({
            "cleaners": self.cleaners,
            "log_bytes": self.log_bytes,
            "first_age_pct": self.first_age_pct,
            "first_dirty_pages": self.first_dirty(),
            "hot_pages": self.hot_pages,
            "connections": self.connections,
            "tx_ns": self.tx_ns,
            "tx_log_bytes": self.tx_log_bytes,
            "disk_visits": self.disk_visits,
            "reads": self.reads,
            "page_bytes": self.page_bytes,
            "disk_bytes_per_sec": self.disk_bytes_per_sec,
            "io_capacity": self.io_capacity,
            "io_capacity_max": self.io_capacity_max,
            "async_pages": self.async_pages,
            "batch_pages": self.batch_pages,
            "seconds": self.seconds,
        }))
    }
}
