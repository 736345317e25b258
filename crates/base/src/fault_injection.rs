//! Faults planted on purpose, to show that the tests catch them. No fault is armed until a test
//! arms it, and builds without debug assertions contain none of this code. It is not a Cargo
//! feature, because each feature would build every crate once more. One fault at a time is armed
//! for the whole process, by a test or by `EVENKEEL_PLANTED` in the environment of the process
//! (`scripts/test_planted.py`). The plugin has faults of its own
//! (`plugin/mariadb/fault_injection.h`).

/// A fault of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// The log is not synced before a commit is acknowledged.
    FsyncSkipped = 1,
    /// A commit is acknowledged before its record is written.
    AcknowledgedEarly,
    /// Pages are written in place without a doublewrite copy.
    DoublewriteSkipped,
    /// A page is written before the log that describes it.
    PageBeforeLog,
    /// A compaction that is not at the bottom drops DEL entries.
    DelDropped,
    /// The row of an undone operation stays as it is.
    UndoStepSkipped,
    /// A snapshot sees commits that it must not see.
    ReadTooNew,
    /// A new snapshot of a transaction is the oldest one that is held.
    ReadTooOld,
    /// The last entry of a row operation is not written to its index.
    EntryNotWritten,
    /// Recovery does not rebuild the memtable.
    MemtableNotRebuilt,
    /// Row locks are not taken.
    LockNotTaken,
    /// Unique keys are not looked up before a write.
    UniqueNotChecked,
    /// The checkpoint forgets the undo of open transactions.
    UndoNotSaved,
    /// Pages that were written before are not written again, so the next read returns the old
    /// image.
    StalePageServed,
    /// An extent is freed while one of its pages is in use.
    UsedExtentFreed,
    /// The log does not record the highest number of auto-increment columns.
    NumbersNotMarked,
    /// An index build skips rows that were inserted before it began.
    RowsPassed,
    /// At the end of a sync the log counts as durable up to its written end at that time.
    DurableAtSyncEnd,
    /// A checkpoint reads the end of the log after the oldest dirty page.
    LogEndReadLate,
    /// Each superblock is written to the first slot.
    FirstSlotOnly,
    /// Each copy of a checkpoint record is written to the first file.
    OneCheckpointCopy,
    /// A memtable is flushed though operations have it pinned.
    PinsIgnored,
    /// A sync of a real file does nothing.
    RealSyncSkipped,
    /// A sync of a real directory does nothing.
    RealNamesNotSynced,
    /// The name of a new database's directory is not made durable.
    RootNameNotSynced,
    /// A partial write of the system counts as whole.
    ShortWriteTaken,
    /// Files that a backup copies are removed and punched meanwhile.
    RemovalNotHeld,
    /// A backup copies pages again after it has fixed its end.
    PagesCopiedAfterEnd,
    /// A backup does not copy the pages that the log names as unlogged.
    UnloggedNotCopied,
    /// An incremental backup takes a page for unchanged if it was last changed before the end of
    /// its base.
    ChangedBelowEndNotCopied,
    /// A restore of an incremental backup leaves out the runs of its base.
    RunOfBaseNotRestored,
    /// A restore of an incremental backup takes any backup of the database for its base.
    AnyBaseTaken,
    /// READ UNCOMMITTED takes the entries of an index that its snapshot sees.
    UncommittedBySnapshot,
    /// A row that others may refer to is looked up in their table before it is deleted.
    ChildrenBeforeStamp,
    /// A new foreign key does not wait for operations that are in their final step in its parent.
    ParentBarrierSkipped,
    /// A row that refers to another one is written without a lock on the other one's key.
    ParentNotLocked,
    /// A deleted row counts as the parent of a row, if other rows may have its key.
    ParentWasThere,
    /// A look for rows of a key is not repeated if a row has left it meanwhile, nor one behind a
    /// cascade.
    LookedOnce,
    /// The dispatcher of shared threads does not look at an actor that has just left its thread.
    ParkedUnseen,
    /// A new foreign key is proved without a wait for transactions that wrote before it.
    KeyProvedEarly,
    /// A cascade leaves out rows that another transaction holds.
    CascadeSkipsLocked,
    /// An update by a cascade does not change the last index of its row.
    CascadeForgetsIndex,
    /// Handles of tables are not told that a name has become another table's.
    StaleTableHandle,
    /// The estimate of a short range takes each entry for a row.
    EntriesTakenForRows,
    /// Salvage keeps a foreign key that saved rows break.
    OrphansOverlooked,
    /// A drop of chunks does not keep writers out while it looks for them and commits.
    ChunkNotClosed,
    /// Two transactions that need the same chunk each make one.
    ChunkMadeTwice,
    /// A drop of chunks does not look for undecided writers.
    ChunkWritersIgnored,
    /// After a start a prepared transaction does not keep the chunks that it has changed.
    ChunkPreparedIgnored,
    /// A new chunk gets the number of one that was dropped.
    ChunkNumberReused,
    /// An operation that has waited where no chunk was does not look for a chunk made meanwhile.
    ChunkMadeMeanwhileMissed,
}

impl Fault {
    /// Every fault.
    pub const ALL: &'static [Fault] = &[
        Fault::FsyncSkipped,
        Fault::AcknowledgedEarly,
        Fault::DoublewriteSkipped,
        Fault::PageBeforeLog,
        Fault::DelDropped,
        Fault::UndoStepSkipped,
        Fault::ReadTooNew,
        Fault::ReadTooOld,
        Fault::EntryNotWritten,
        Fault::MemtableNotRebuilt,
        Fault::LockNotTaken,
        Fault::UniqueNotChecked,
        Fault::UndoNotSaved,
        Fault::StalePageServed,
        Fault::UsedExtentFreed,
        Fault::NumbersNotMarked,
        Fault::RowsPassed,
        Fault::DurableAtSyncEnd,
        Fault::LogEndReadLate,
        Fault::FirstSlotOnly,
        Fault::OneCheckpointCopy,
        Fault::PinsIgnored,
        Fault::RealSyncSkipped,
        Fault::RealNamesNotSynced,
        Fault::RootNameNotSynced,
        Fault::ShortWriteTaken,
        Fault::RemovalNotHeld,
        Fault::PagesCopiedAfterEnd,
        Fault::UnloggedNotCopied,
        Fault::ChangedBelowEndNotCopied,
        Fault::RunOfBaseNotRestored,
        Fault::AnyBaseTaken,
        Fault::UncommittedBySnapshot,
        Fault::ChildrenBeforeStamp,
        Fault::ParentBarrierSkipped,
        Fault::ParentNotLocked,
        Fault::ParentWasThere,
        Fault::LookedOnce,
        Fault::ParkedUnseen,
        Fault::KeyProvedEarly,
        Fault::CascadeSkipsLocked,
        Fault::CascadeForgetsIndex,
        Fault::StaleTableHandle,
        Fault::EntriesTakenForRows,
        Fault::OrphansOverlooked,
        Fault::ChunkNotClosed,
        Fault::ChunkMadeTwice,
        Fault::ChunkWritersIgnored,
        Fault::ChunkPreparedIgnored,
        Fault::ChunkNumberReused,
        Fault::ChunkMadeMeanwhileMissed,
    ];
}

/// The environment was not asked yet.
#[cfg(debug_assertions)]
const UNKNOWN: u8 = u8::MAX;

#[cfg(debug_assertions)]
static ARMED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(UNKNOWN);

/// The fault that `EVENKEEL_PLANTED` names: a process started with it has it from the beginning.
#[cfg(debug_assertions)]
#[cold]
fn arm_from_environment() -> u8 {
    let named = std::env::var("EVENKEEL_PLANTED").unwrap_or_default();
    let fault = Fault::ALL.iter().find(|fault| format!("{fault:?}") == named);
    let armed = fault.map_or(0, |fault| *fault as u8);
    ARMED.store(armed, std::sync::atomic::Ordering::SeqCst);
    armed
}

/// Arms a fault, or none.
#[cfg(debug_assertions)]
pub fn arm(fault: Option<Fault>) {
    ARMED.store(fault.map_or(0, |f| f as u8), std::sync::atomic::Ordering::SeqCst);
}

/// True if the fault is armed.
#[cfg(debug_assertions)]
pub fn is(fault: Fault) -> bool {
    let armed = match ARMED.load(std::sync::atomic::Ordering::Relaxed) {
        UNKNOWN => arm_from_environment(),
        armed => armed,
    };
    armed == fault as u8
}

/// False: this build has no planted faults.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn is(_: Fault) -> bool {
    false
}
