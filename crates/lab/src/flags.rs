//! The command line of `evenkeel lab`: texts and defaults, and their conversion to setups.

use crate::{Outcome, dirty_count, fan_out, flush_scan, free_pages, report, restart_flush, scale};
use clap::{Args, Subcommand};
use std::fmt;
use std::path::{Path, PathBuf};

/// An experiment with its flags.
#[derive(Subcommand, Clone, Debug)]
pub enum Experiment {
    /// Flush the pages of a new index: four ways to scan a flush list, and buckets instead (P1)
    FlushScan(FlushScan),
    /// Flush pages right after a crash: the published law, its repair, Evenkeel's law (P3)
    RestartFlush(RestartFlush),
    /// Provide free frames: by threads that sleep on timers, or by a thread that an event wakes
    /// (P4)
    FreePages(FreePages),
    /// Count the dirty pages of one table: by visiting all dirty pages, or by counters (P5)
    DirtyCount(DirtyCount),
    /// Run a query that does not name the chunk: search every chunk, or prune chunks (P7)
    FanOut(FanOut),
    /// Insert into 1 TB and 10 TB on a slow and a fast disk: compaction debt, waits, rows
    Scale(Scale),
}

fn within(least: u64, most: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(least..=most)
}

/// Flags of every experiment.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Divide the reported sizes by N
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1, 100_000))]
    pub scale: u64,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    /// Write the report: one HTML page that works offline
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write the outcome as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Flags of `flush-scan`. A flag that is not given has the reported value, divided by the scale.
#[derive(Args, Clone, Debug)]
pub struct FlushScan {
    #[command(flatten)]
    common: Common,
    /// Dirty pages [default: 8000000 / scale]
    #[arg(long, value_name = "N", value_parser = within(64, 100_000_000))]
    pages: Option<u64>,
    /// Dirty pages of the new index [default: 3000 / scale]
    #[arg(long, value_name = "N", value_parser = within(1, 10_000_000))]
    own: Option<u64>,
    /// Threads that write
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = within(1, 10_000))]
    writers: u64,
    /// Pages that each transaction reads into free frames and makes dirty
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1, 100))]
    pages_per_tx: u64,
    /// Instances of the pool, each with a flush list and mutex
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = within(1, 64))]
    instances: u64,
    /// Nanoseconds to look at one page of a list
    #[arg(long, value_name = "NS", default_value_t = 40)]
    step_ns: u64,
    /// Nanoseconds that a cleaner takes to hand one page to the disk
    #[arg(long, value_name = "NS", default_value_t = 20_000)]
    issue_ns: u64,
    /// Bytes the disk writes per second, in MB
    #[arg(long, value_name = "MB", default_value_t = 350, value_parser = within(1, 100_000))]
    disk_mb: u64,
    /// Follow the links of the list instead of counting: the same numbers, more slowly
    #[arg(long)]
    walk: bool,
}

/// Flags of `restart-flush`.
#[derive(Args, Clone, Debug)]
pub struct RestartFlush {
    #[command(flatten)]
    common: Common,
    /// Cleaner threads
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = within(1, 64))]
    cleaners: u64,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = within(1, 100_000))]
    connections: u64,
    /// Bytes of the log, in MiB [default: 1024 / scale]
    #[arg(long, value_name = "MIB", value_parser = within(1, 1 << 20))]
    log_mib: Option<u64>,
    /// Bytes the disk moves per second, in MB [default: 350 / scale]
    #[arg(long, value_name = "MB", value_parser = within(1, 100_000))]
    disk_mb: Option<u64>,
}

/// Flags of `free-pages`.
#[derive(Args, Clone, Debug)]
pub struct FreePages {
    #[command(flatten)]
    common: Common,
    /// Threads that read pages
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = within(1, 100_000))]
    threads: u64,
}

/// Flags of `dirty-count`.
#[derive(Args, Clone, Debug)]
pub struct DirtyCount {
    #[command(flatten)]
    common: Common,
    /// Tables [default: 600000 / scale]
    #[arg(long, value_name = "N", value_parser = within(1, 100_000_000))]
    tables: Option<u64>,
    /// Dirty pages [default: 4200000 / scale]
    #[arg(long, value_name = "N", value_parser = within(64, 100_000_000))]
    pages: Option<u64>,
}

/// Flags of `fan-out`.
#[derive(Args, Clone, Debug)]
pub struct FanOut {
    #[command(flatten)]
    common: Common,
    /// Chunks of the largest division [default: 10000 / scale]
    #[arg(long, value_name = "N", value_parser = within(1, 100_000))]
    chunks: Option<u64>,
    /// Rows [default: 2000000 / scale]
    #[arg(long, value_name = "N", value_parser = within(1_000, 1_000_000_000))]
    rows: Option<u64>,
}

/// Flags of `scale`.
#[derive(Args, Clone, Debug)]
pub struct Scale {
    #[command(flatten)]
    common: Common,
}

/// Why an experiment failed.
#[derive(Debug)]
pub struct LabError(String);

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LabError {}

impl From<evenkeel_base::Error> for LabError {
    fn from(error: evenkeel_base::Error) -> LabError {
        LabError(error.to_string())
    }
}

impl FlushScan {
    fn setup(&self) -> flush_scan::Setup {
        let mut setup = flush_scan::Setup::new(self.common.scale, self.common.seed);
        setup.pages = self.pages.unwrap_or(setup.pages);
        setup.own = self.own.unwrap_or(setup.own).min(setup.pages);
        setup.writers = self.writers;
        setup.instances = self.instances;
        setup.pages_per_tx = self.pages_per_tx;
        setup.step_ns = self.step_ns;
        setup.issue_ns = self.issue_ns;
        setup.disk_bytes_per_sec = self.disk_mb * 1_000_000;
        setup.jumps = !self.walk;
        setup
    }
}

impl RestartFlush {
    fn setup(&self) -> restart_flush::Setup {
        let mut setup = restart_flush::Setup::new(self.common.scale, self.common.seed);
        setup.cleaners = self.cleaners;
        setup.connections = self.connections;
        setup.log_bytes = self.log_mib.map_or(setup.log_bytes, |mib| mib << 20);
        let disk = self.disk_mb.map(|mb| mb * 1_000_000);
        setup.disk_bytes_per_sec = disk.unwrap_or(setup.disk_bytes_per_sec);
        setup
    }
}

impl FreePages {
    fn setup(&self) -> free_pages::Setup {
        let setup = free_pages::Setup::new(self.common.scale, self.common.seed);
        free_pages::Setup { threads: self.threads, ..setup }
    }
}

impl DirtyCount {
    fn setup(&self) -> dirty_count::Setup {
        let setup = dirty_count::Setup::new(self.common.scale, self.common.seed);
        dirty_count::Setup {
            tables: self.tables.unwrap_or(setup.tables),
            pages: self.pages.unwrap_or(setup.pages),
            ..setup
        }
    }
}

impl FanOut {
    fn setup(&self) -> fan_out::Setup {
        let setup = fan_out::Setup::new(self.common.scale, self.common.seed);
        fan_out::Setup {
            chunks: self.chunks.unwrap_or(setup.chunks),
            rows: self.rows.unwrap_or(setup.rows),
            ..setup
        }
    }
}

impl Experiment {
    fn common(&self) -> &Common {
        match self {
            Experiment::FlushScan(flags) => &flags.common,
            Experiment::RestartFlush(flags) => &flags.common,
            Experiment::FreePages(flags) => &flags.common,
            Experiment::DirtyCount(flags) => &flags.common,
            Experiment::FanOut(flags) => &flags.common,
            Experiment::Scale(flags) => &flags.common,
        }
    }

    /// Runs the experiment and writes the requested files; returns the table as text.
    ///
    /// # Errors
    /// If the engine fails or a file cannot be written.
    pub fn run(&self) -> Result<String, LabError> {
        let outcome = match self {
            Experiment::FlushScan(flags) => flush_scan::run(&flags.setup())?,
            Experiment::RestartFlush(flags) => restart_flush::run(&flags.setup()),
            Experiment::FreePages(flags) => free_pages::run(&flags.setup()),
            Experiment::DirtyCount(flags) => dirty_count::run(&flags.setup()),
            Experiment::FanOut(flags) => fan_out::run(&flags.setup())?,
            Experiment::Scale(flags) => {
                scale::experiment::run(flags.common.scale, flags.common.seed)
            }
        };
        let common = self.common();
        if let Some(path) = &common.json {
            write(path, &json(&outcome)?)?;
        }
        if let Some(path) = &common.report {
            write(path, &report::page(&outcome))?;
        }
        Ok(outcome.text())
    }
}

fn json(outcome: &Outcome) -> Result<String, LabError> {
    serde_json::to_string(outcome).map_err(|e| LabError(e.to_string()))
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(path, text).map_err(|e| LabError(format!("{}: {e}", path.display())))
}
