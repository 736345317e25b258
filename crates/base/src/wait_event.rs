//! Waits by cause (protocol G6). Every wait of a foreground or background thread is recorded under
//! one of these names; `wait_us{cause}` sums the waits of foreground threads.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a thread waits.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Cause { $($(#[$doc])* $name,)* }
        impl Cause {
            /// All causes in order.
            pub const ALL: &'static [Cause] = &[$(Cause::$name,)*];
            /// The name used in metrics, JSON and reports.
            pub const fn name(self) -> &'static str { match self { $(Cause::$name => $text,)* } }
        }
    };
}

causes! {
    /// For the log to become durable.
    LogSync = "log_sync",
    /// For space in the log (G1).
    LogSpace = "log_space",
    /// For a free frame in the pool.
    FreeFrame = "free_frame",
    /// For a page, a block of a run or undo read from storage.
    PageRead = "page_read",
    /// For a page latch.
    PageLatch = "page_latch",
    /// For memtable space.
    MemtableFull = "memtable_full",
    /// For compaction debt to be paid.
    CompactionDebt = "compaction_debt",
    /// For a grant of the I/O governor.
    Governor = "governor",
    /// For another transaction's row or key lock.
    RowLock = "row_lock",
    /// For a schema change barrier.
    Schema = "schema",
    /// For a write other than the log's: one of this thread (loads, long values, a growing segment
    /// file) or of another (undo that is written to files).
    DeviceSlow = "device_slow",
    /// For a backup, by writers of pages that bypass the log (long values, bulk loads) and are
    /// faster than the backup copies them.
    Backup = "backup",
    /// For a processor, in an operation of more than 1 ms: other threads held all processors.
    Processor = "processor",
    /// Wall time without a recorded wait or CPU time.
    Unexplained = "unexplained",
    /// A background actor waiting for work: not a wait.
    Idle = "idle",
}

/// Sums and counts per cause.
#[derive(Default)]
pub struct WaitEvents {
    ns: [AtomicU64; Cause::ALL.len()],
    count: [AtomicU64; Cause::ALL.len()],
    over_1ms: [AtomicU64; Cause::ALL.len()],
    max_ns: [AtomicU64; Cause::ALL.len()],
    /// Of what `device_ns` sums, the waits of those who build indexes.
    excluded_ns: AtomicU64,
}

/// One cause's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallFigures {
    /// Waits recorded.
    pub count: u64,
    /// Waits longer than 1 ms.
    pub over_1ms: u64,
    /// Total time waited, microseconds.
    pub us: u64,
    /// Longest single wait, microseconds.
    pub max_us: u64,
}

/// Waits for the device, or for background work that needs the device.
const OF_DEVICE: [Cause; 7] = [
    Cause::LogSync,
    Cause::LogSpace,
    Cause::FreeFrame,
    Cause::PageRead,
    Cause::MemtableFull,
    Cause::CompactionDebt,
    Cause::DeviceSlow,
];

impl WaitEvents {
    /// A wait that was recorded is not a user's: `device_ns` does not count it.
    pub fn exclude(&self, cause: Cause, ns: u64) {
        if OF_DEVICE.contains(&cause) {
            self.excluded_ns.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// Nanoseconds that users have waited for the device, or for background work that needs the
    /// device, without the waits of their own index builds.
    pub fn device_ns(&self) -> u64 {
        let all = OF_DEVICE.iter().map(|cause| self.ns[*cause as usize].load(Ordering::Relaxed));
        all.sum::<u64>().saturating_sub(self.excluded_ns.load(Ordering::Relaxed))
    }

    /// Records one wait of `ns` nanoseconds.
    pub fn record(&self, cause: Cause, ns: u64) {
        let i = cause as usize;
        self.ns[i].fetch_add(ns, Ordering::Relaxed);
        self.count[i].fetch_add(1, Ordering::Relaxed);
        if ns > 1_000_000 {
            self.over_1ms[i].fetch_add(1, Ordering::Relaxed);
        }
        self.max_ns[i].fetch_max(ns, Ordering::Relaxed);
    }

    /// The figures of one cause.
    pub fn get(&self, cause: Cause) -> StallFigures {
        let i = cause as usize;
        StallFigures {
            count: self.count[i].load(Ordering::Relaxed),
            over_1ms: self.over_1ms[i].load(Ordering::Relaxed),
            us: self.ns[i].load(Ordering::Relaxed) / 1000,
            max_us: self.max_ns[i].load(Ordering::Relaxed) / 1000,
        }
    }
}
