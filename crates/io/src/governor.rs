//! The governor of background I/O (architecture 4.13, protocol G2). Every background read or write
//! asks it first. Required work is never cut; the surplus is shaped.

/// Classes of background I/O, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Free frames.
    FrameSupply,
    /// Dirty pages to advance the checkpoint.
    Checkpoint,
    /// Memtable generations.
    MemtableFlush,
    /// Merges of runs.
    Merge,
    /// Index builds.
    Ddl,
}

/// Decides when background I/O may go.
pub trait Governor: Send + Sync {
    /// Asks to do `bytes` of I/O of a class; `required` work (what keeps a resource inside its
    /// limit) is granted at once. Returns the nanoseconds to wait before doing it (0: go). The
    /// caller waits with cause `governor` and need not ask again.
    fn grant(&self, class: Class, bytes: u64, required: bool, now_ns: u64) -> u64;
    /// Reports how long the device took, so that the surplus can be shaped.
    fn report(&self, class: Class, bytes: u64, device_ns: u64);
}

/// The first governor: grants everything; urgent classes are served by their own threads first.
#[derive(Default)]
pub struct PriorityGovernor;

impl Governor for PriorityGovernor {
    fn grant(&self, _class: Class, _bytes: u64, _required: bool, _now_ns: u64) -> u64 {
        0
    }
    fn report(&self, _class: Class, _bytes: u64, _device_ns: u64) {}
}
