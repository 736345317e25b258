//! Options of a database. One table of settings (name, type, unit, range, default, when it may
//! change, meaning) checks the values and generates `docs/reference/settings.md`. Components such
//! as the environment come by builder method and are not settings.

use crate::background::workers::Workers;
use crate::memory::automatic_size::FIRST_BYTES;
use evenkeel_base::{Code, Error, Result};
use evenkeel_io::{Env, OverlayEnv, RealEnv, Runtime};
use evenkeel_tables::Collations;
use std::sync::{Arc, atomic::AtomicU64};
use std::{path::Path, time::Duration};

pub use evenkeel_log::Durability;
use evenkeel_sched::laws::compaction::{COMPACTION_HELPERS_MAX, compaction_helpers};

/// Mebibyte.
const MIB: u64 = 1 << 20;

/// Threads of one index build, at most.
const BUILD_THREADS_MAX: usize = 4;
/// Threads that run beats of compactions, beside the one that begins compactions.
pub(crate) const COMPACTION_HELPERS: [&str; COMPACTION_HELPERS_MAX] =
    ["ek-compact-2", "ek-compact-3", "ek-compact-4", "ek-compact-5"];
/// The twins of all compaction threads, of a lower priority.
pub(crate) const COMPACTION_TWINS: [&str; 1 + COMPACTION_HELPERS_MAX] =
    ["ek-compact-low", "ek-compact-low2", "ek-compact-low3", "ek-compact-low4", "ek-compact-low5"];

/// One setting, for checks and documentation.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Smallest value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// Default.
    pub default: u64,
    /// `create`: fixed when the database is created; `open`: chosen at each open; `online`: may
    /// change while open.
    pub when: &'static str,
    /// Meaning, and when to change it.
    pub doc: &'static str,
}

impl Setting {
    /// # Errors
    /// `OptionOutOfRange` naming the option, its value and its range.
    pub(crate) fn check(&self, value: u64) -> Result<()> {
        // Values up to the first size are accepted without a look at the machine.
        let fits = |max| (self.min..=max).contains(&value);
        let is_automatic = self.name == "memory_size" && value == 0;
        if is_automatic || fits(self.accepted()) || fits(self.max_here()) {
            return Ok(());
        }
        Err(self.out_of_range(value))
    }

    /// The value that every machine accepts: the default, or the first size of memory.
    fn accepted(&self) -> u64 {
        if self.name == "memory_size" { FIRST_BYTES } else { self.default }
    }

    /// The largest value on this machine or in this container. More memory than exists cannot be
    /// divided: the system refuses it at once, which ends the process, or kills the process later.
    fn max_here(&self) -> u64 {
        match self.name {
            "memory_size" => self.max_beside(evenkeel_io::real::memory_bytes()),
            _ => self.max,
        }
    }

    /// As `max_here`, on a machine with this much memory, as far as that is known.
    fn max_beside(&self, memory: Option<u64>) -> u64 {
        let memory = memory.unwrap_or(u64::MAX);
        if self.name == "memory_size" { self.max.min(memory).max(FIRST_BYTES) } else { self.max }
    }

    fn out_of_range(&self, value: u64) -> Error {
        Error::new(Code::OptionOutOfRange)
            .with("option", self.name)
            .with("value", value)
            .with("min", self.min)
            .with("max", self.max_here())
            .with("unit", self.unit)
    }
}

/// Every numeric setting.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "memory_size",
        unit: "bytes",
        min: 16 * MIB,
        max: 1 << 44,
        default: 0,
        when: "online",
        doc: "The one memory budget: page frames, memtables, run blocks, filters, log buffer, \
              undo. 0: automatic. It is 256 MiB at first (half of a smaller machine), grows while \
              caches want more and an eighth of the machine or of the container stays available, \
              to three quarters of it, and shrinks when less is available. Another value is fixed.",
    },
    Setting {
        name: "log_size",
        unit: "bytes",
        min: 32 * MIB,
        max: 1 << 40,
        default: 512 * MIB,
        when: "online",
        doc: "Largest length of the log between the checkpoint and its end. More means fewer page \
              writes and a longer recovery. Less while open: reached as checkpoints move, and \
              files that are too many go.",
    },
    Setting {
        name: "page_size",
        unit: "bytes",
        min: 4096,
        max: 16384,
        default: 4096,
        when: "create",
        doc: "Size of a page: 4096, 8192 or 16384. Larger pages suit scans, smaller ones random \
              updates.",
    },
    Setting {
        name: "durability",
        unit: "mode",
        min: 0,
        max: 2,
        default: 1,
        when: "online",
        doc: "1: a commit returns when it is synced; 2: when it is written, synced each second; 0: \
              at once, written and synced each second.",
    },
    Setting {
        name: "lock_wait_timeout",
        unit: "milliseconds",
        min: 0,
        max: 1_073_741_824_000,
        default: 50_000,
        when: "online",
        doc: "Longest wait for another transaction's lock. Deadlocks are found at once, whatever \
              it says.",
    },
    Setting {
        name: "doublewrite",
        unit: "0 or 1",
        min: 0,
        max: 1,
        default: 1,
        when: "open",
        doc: "Write pages twice so that a torn write can be repaired. Turn it off only on a device \
              that writes a page atomically.",
    },
];

/// How to open a database. `Default` suits a small application; every value is checked at open.
#[derive(Clone)]
pub struct Options {
    /// See `SETTINGS`; 0, the default, is automatic.
    pub memory_size: u64,
    /// See `SETTINGS`.
    pub log_size: u64,
    /// See `SETTINGS`; `None` takes the size of the existing database, or the default.
    pub page_size: Option<u32>,
    /// When a commit returns.
    pub durability: Durability,
    /// Longest wait for a lock.
    pub lock_wait_timeout: Duration,
    /// Write pages twice.
    pub doublewrite: bool,
    /// Open without writing a byte: what recovery changes stays in memory.
    pub read_only: bool,
    /// Create the database if the directory is empty or missing.
    pub create: bool,
    /// Where files lie; `None` is the operating system.
    pub env: Option<Arc<dyn Env>>,
    /// Collations of keys. Without them, tables with such keys can be read by their other keys
    /// only.
    pub collations: Option<&'static dyn Collations>,
    /// Small sizes for tests.
    pub geometry: Geometry,
}

/// Sizes that tests make small so that rare paths become common.
#[derive(Clone, Copy, Debug, Default)]
pub struct Geometry {
    /// Bytes of one memtable generation.
    pub generation_bytes: Option<u64>,
    /// Bytes of the buffer pool.
    pub pool_bytes: Option<u64>,
    /// Bytes of the log; may be below the minimum of `log_size`.
    pub log_bytes: Option<u64>,
    /// Bytes of undo kept in memory.
    pub undo_bytes: Option<u64>,
    /// Bytes of run blocks. If the pool's size is given too, the two lend each other memory.
    pub cache_bytes: Option<u64>,
    /// Bytes of fences and filters that stay in memory.
    pub resident_bytes: Option<u64>,
    /// Bytes of a long value that go through the log.
    pub logged_value_bytes: Option<u64>,
    /// Superseded chains of long values that a checkpoint lists one by one.
    pub listed_chains: Option<usize>,
    /// Bytes of the arena of an index build. With a few KiB even a small table gives several runs
    /// of each index.
    pub build_bytes: Option<u64>,
    /// Transactions whose states leave memory together; a power of two.
    pub commit_segment_ids: Option<u64>,
    /// Memory that the machine is taken to have, for an automatic `memory_size`.
    pub machine_bytes: Option<u64>,
    /// Actors share threads also in an environment that is given, those of this database alone.
    pub shared_threads: bool,
    /// Memory that the machine is taken to have available, read each time.
    pub available_bytes: Option<&'static AtomicU64>,
}

fn default_of(name: &str) -> u64 {
    SETTINGS.iter().find(|s| s.name == name).map_or(0, |s| s.default)
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_size: default_of("memory_size"),
            log_size: default_of("log_size"),
            page_size: None,
            durability: Durability::Sync,
            lock_wait_timeout: Duration::from_millis(default_of("lock_wait_timeout")),
            doublewrite: default_of("doublewrite") == 1,
            read_only: false,
            create: true,
            env: None,
            collations: None,
            geometry: Geometry::default(),
        }
    }
}

impl Options {
    /// Options with every value at its default.
    pub fn new() -> Options {
        Options::default()
    }

    /// Bytes of memory that this machine has, or the control group of the process (the lowest limit
    /// of the group and those above it); none if unknown. A larger `memory_size` is refused.
    pub fn machine_memory() -> Option<u64> {
        evenkeel_io::real::memory_bytes()
    }

    /// A database in memory, gone when it is dropped: for tests.
    pub fn in_memory() -> Options {
        Options::default().env(Arc::new(evenkeel_io::MemEnv::new()))
    }

    /// Uses `env` instead of the operating system's files: a simulated disk, one whose writes fail,
    /// or memory that outlives the database:
    ///
    /// ```
    /// use evenkeel::{ColumnSpec, ColumnType, Database, Options, TableSpec, io::MemEnv};
    /// use std::sync::Arc;
    ///
    /// let disk = Arc::new(MemEnv::new());
    /// let db = Database::open_with("unused", Options::new().env(disk.clone()))?;
    /// let spec = TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64));
    /// db.create_table("t", &spec.primary_key(&["id"]))?;
    /// db.close()?;
    /// let db = Database::open_with("unused", Options::new().env(disk))?;
    /// assert!(db.tables() == ["t"] && db.recovery().clean);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Options {
        self.env = Some(env);
        self
    }

    /// Small sizes for tests.
    #[must_use]
    pub fn geometry(mut self, geometry: Geometry) -> Options {
        self.geometry = geometry;
        self
    }

    /// The environment that holds the files of the database at `path`.
    pub(crate) fn base_environment(&self, path: &Path) -> Arc<dyn Env> {
        self.env.clone().unwrap_or_else(|| Arc::new(RealEnv::new(path)))
    }

    /// The environment to use for the database at `path`.
    pub(crate) fn environment(&self, path: &Path) -> Arc<dyn Env> {
        let env = self.base_environment(path);
        if self.read_only { Arc::new(OverlayEnv::new(env)) } else { env }
    }

    /// Memory of the machine or of the container, for an automatic `memory_size`. A given
    /// environment has no known machine: the size then stays as it is at first.
    pub(crate) fn machine_bytes(&self) -> Option<u64> {
        let machine = || self.env.is_none().then(Options::machine_memory).flatten();
        self.geometry.machine_bytes.or_else(machine)
    }

    /// Compaction threads beside the one that begins compactions.
    pub(crate) fn compaction_helpers(&self) -> usize {
        compaction_helpers(if self.env.is_some() { 2 } else { evenkeel_io::real::cores() })
    }

    /// The threads that run the actors of a database with this runtime: those of the process. None:
    /// each actor has its own, in a given environment, which schedules threads itself.
    pub(crate) fn workers(&self, rt: &Arc<Runtime>) -> Option<Arc<Workers>> {
        match self.env {
            None => Some(Workers::of_process()),
            Some(_) => self.geometry.shared_threads.then(|| Workers::new(rt.clone())),
        }
    }

    /// Compaction threads have twins of a lower priority, except in a given environment, which
    /// schedules threads itself.
    pub(crate) fn has_twins(&self) -> bool {
        self.env.is_none()
    }

    /// Threads of one index build. A given environment has no known number of cores. It may be
    /// simulated, and then runs repeat only with the same number everywhere.
    pub(crate) fn build_threads(&self) -> usize {
        if self.env.is_some() { 2 } else { evenkeel_io::real::cores().min(BUILD_THREADS_MAX) }
    }

    /// The page size of a database to be created.
    pub(crate) fn page_size_to_create(&self) -> u32 {
        self.page_size.unwrap_or(default_of("page_size") as u32)
    }

    /// # Errors
    /// `OptionOutOfRange` naming the option, its value and its range.
    pub(crate) fn check(&self) -> Result<()> {
        let page_size = u64::from(self.page_size_to_create());
        let values = [
            ("memory_size", self.memory_size),
            ("log_size", self.log_size),
            ("page_size", page_size),
            (
                "lock_wait_timeout",
                self.lock_wait_timeout.as_millis().try_into().unwrap_or(u64::MAX),
            ),
        ];
        for (name, value) in values {
            let Some(setting) = SETTINGS.iter().find(|s| s.name == name) else { continue };
            if name == "page_size" && !value.is_power_of_two() {
                return Err(setting.out_of_range(value));
            }
            setting.check(value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(options: Options) -> Option<Code> {
        options.check().err().map(|error| error.code())
    }

    /// A small machine or container bounds the memory, but never below the default.
    #[test]
    fn the_default_fits_everywhere() {
        for setting in SETTINGS {
            let beside = |memory| setting.max_beside(memory);
            let is_memory = setting.name == "memory_size";
            let least = if is_memory { FIRST_BYTES } else { setting.max };
            assert_eq!((beside(Some(0)), beside(Some(100 * MIB))), (least, least));
            assert_eq!(beside(None), setting.max);
            let large = if is_memory { 3 << 30 } else { setting.max };
            assert_eq!(beside(Some(3 << 30)), large, "{}", setting.name);
            let is_automatic = is_memory && setting.default == 0;
            let fits = (setting.min..=least).contains(&setting.default);
            assert!(is_automatic || fits, "{}", setting.name);
        }
    }

    /// Every number that an application chooses is checked, at its bounds and one beyond.
    #[test]
    fn values_out_of_range_are_refused() {
        let with = |name: &str, value: u64| {
            let mut options = Options::in_memory();
            match name {
                "memory_size" => options.memory_size = value,
                "log_size" => options.log_size = value,
                "page_size" => options.page_size = Some(value as u32),
                "lock_wait_timeout" => options.lock_wait_timeout = Duration::from_millis(value),
                // Its type has no other values.
                "durability" | "doublewrite" => return None,
                other => panic!("{other} is not tried"),
            }
            Some(options)
        };
        let refused = Some(Code::OptionOutOfRange);
        for setting in SETTINGS {
            let (min, max) = (setting.min, setting.max_here());
            for value in [min, max] {
                assert_eq!(with(setting.name, value).and_then(code), None, "{}", setting.name);
            }
            let beyond = [min.wrapping_sub(1), max + 1, setting.max + 1, u64::MAX / 2];
            for value in beyond {
                let Some(options) = with(setting.name, value) else { continue };
                let error = options.check().expect_err(setting.name);
                assert_eq!(
                    (Some(error.code()), error.context("option")),
                    (refused, Some(setting.name))
                );
            }
        }
        assert_eq!(with("page_size", 5000).and_then(code), refused);
        let more = Options { memory_size: 1 << 44, ..Options::in_memory() };
        let error = crate::Database::open_with("dir", more).err().expect("nobody has as much");
        assert_eq!(Some(error.code()), refused);
        let db = crate::Database::open_with("dir", Options::in_memory()).expect("opens");
        let error = db.set("memory_size", 1 << 44).expect_err("nor later");
        assert_eq!(Some(error.code()), refused);
    }
}
