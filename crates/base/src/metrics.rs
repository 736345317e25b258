//! Counters and gauges, one table: name, unit and meaning generate `docs/reference/metrics.md`.
//! Each layer adds its own section. A counter only grows; a gauge is set.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! metrics {
    ($($(#[$attr:meta])* $name:ident = $text:literal, $unit:literal, $doc:literal;)*) => {
        /// A counter or gauge.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Metric { $(#[doc = $doc] $name,)* }
        impl Metric {
            /// Every metric in order.
            pub const ALL: &'static [Metric] = &[$(Metric::$name,)*];
            /// Name as shown to users.
            pub const fn name(self) -> &'static str { match self { $(Metric::$name => $text,)* } }
            /// Unit.
            pub const fn unit(self) -> &'static str { match self { $(Metric::$name => $unit,)* } }
            /// Meaning.
            pub const fn doc(self) -> &'static str { match self { $(Metric::$name => $doc,)* } }
        }
    };
}

metrics! {
    // -- io
    FileReads = "file_reads", "count", "Reads issued to files";
    FileReadBytes = "file_read_bytes", "bytes", "Bytes read from files";
    FileWrites = "file_writes", "count", "Writes issued to files";
    FileWriteBytes = "file_write_bytes", "bytes", "Bytes written to files";
    FileSyncs = "file_syncs", "count", "Syncs issued to files";
    PendingDeleteBytes = "pending_delete_bytes", "bytes", "Bytes of removed files and of dead parts of run files that the file system has not got back yet: they follow a piece at a time; space of dropped tables is not among them (gauge)";
    GovernorRequestedFreeFrames = "governor_requested_free_frames_bytes", "bytes", "Background I/O asked for to supply frames";
    GovernorGrantedFreeFrames = "governor_granted_free_frames_bytes", "bytes", "Background I/O granted to supply frames";
    GovernorRequestedCheckpoint = "governor_requested_checkpoint_bytes", "bytes", "Background I/O asked for to advance the checkpoint";
    GovernorGrantedCheckpoint = "governor_granted_checkpoint_bytes", "bytes", "Background I/O granted to advance the checkpoint";
    GovernorRequestedFlush = "governor_requested_flush_bytes", "bytes", "Background I/O asked for to flush memtables";
    GovernorGrantedFlush = "governor_granted_flush_bytes", "bytes", "Background I/O granted to flush memtables";
    GovernorRequestedCompaction = "governor_requested_compaction_bytes", "bytes", "Background I/O asked for by merges";
    GovernorGrantedCompaction = "governor_granted_compaction_bytes", "bytes", "Background I/O granted to merges";
    GovernorRequestedDdl = "governor_requested_ddl_bytes", "bytes", "Background I/O asked for by index builds and to renew statistics";
    GovernorGrantedDdl = "governor_granted_ddl_bytes", "bytes", "Background I/O granted to index builds and to renew statistics";
    GovernorRequestedMaintenance = "governor_requested_maintenance_bytes", "bytes", "Background I/O asked for to read hot pages in after an open and to give space back";
    GovernorGrantedMaintenance = "governor_granted_maintenance_bytes", "bytes", "Background I/O granted to read hot pages in after an open and to give space back";
    CpuYields = "cpu_yields", "count", "Times that index builds and merges gave the processor away after 1 ms of work";
    CpuBuildPauses = "cpu_build_pauses", "count", "Pauses of index builds that left the processor to users who were at work";
    CompactionPriorityChanges = "compaction_priority_changes", "count", "Times that merges went to threads that leave processors to users, or back since those starved";
    CpuSeatWaits = "cpu_seat_waits", "count", "Times that work nobody waits for waited because enough threads were at such work";
    // -- log
    LogBytes = "log_bytes", "bytes", "Bytes written to the log, padding included";
    LogPreparedBytes = "log_prepared_bytes", "bytes", "Bytes written to prepare log segments: zeros where commits wait for the sync, and headers";
    LogRecords = "log_records", "count", "Records appended to the log";
    LogSyncs = "log_syncs", "count", "Syncs of the log";
    LogRotations = "log_rotations", "count", "Log segments begun";
    LogRecycled = "log_recycled", "count", "Log segments used again behind the checkpoint";
    // -- pages
    PageReads = "page_reads", "count", "Pages read from storage";
    PageReadBytes = "page_read_bytes", "bytes", "Bytes of pages read from storage";
    PageWrites = "page_writes", "count", "Pages written in place";
    PageWriteBytes = "page_write_bytes", "bytes", "Bytes of pages written in place";
    DoublewriteBytes = "doublewrite_bytes", "bytes", "Bytes written to the doublewrite file";
    FlushRequested = "flush_requested_pages", "pages", "Pages asked to be flushed: by the pacing law, or by one of the other reasons below";
    FlushReasonAge = "flush_reason_age_pages", "pages", "Pages asked for because their changes are older than the target age";
    FlushReasonShare = "flush_reason_share_pages", "pages", "Pages asked for because too much of the pool is dirty";
    FlushReasonNext = "flush_reason_next_pages", "pages", "Pages asked for because the log will soon push them over the target age";
    FlushReasonFreeFrames = "flush_reason_free_frames_pages", "pages", "Cold dirty pages asked for because their frames are wanted";
    FlushReasonIdle = "flush_reason_idle_pages", "pages", "Pages asked for because nobody writes: the next start has less to redo";
    FlushReasonRequired = "flush_reason_required_pages", "pages", "Pages that a checkpoint needed for log space, or for a statement that waits, beyond what the law asked";
    FlushDone = "flush_done_pages", "pages", "Pages flushed";
    Checkpoints = "checkpoints", "count", "Checkpoints taken";
    DirtyPages = "dirty_pages", "pages", "Dirty pages now (gauge)";
    FreeFrames = "free_frames", "frames", "Free frames now (gauge)";
    MemoryFrames = "memory_frames_bytes", "bytes", "Memory that page frames have now, lent memory included (gauge)";
    MemoryBlocks = "memory_run_blocks_bytes", "bytes", "Memory that run blocks may use now, lent memory included (gauge)";
    MemoryGeneration = "memory_generation_bytes", "bytes", "Size at which a memtable generation is full now; two of them are kept (gauge)";
    MemoryMoves = "memory_moves", "count", "Times that frames, run blocks and memtables lent each other memory";
    PoolFrames = "pool_frames", "frames", "Frames of the pool that have memory (gauge)";
    Evictions = "evictions", "count", "Frames taken from clean pages";
    WarmPagesRead = "warm_pages_read", "pages", "Pages read in after the open because they were in use before";
    WarmPagesLeft = "warm_pages_left", "pages", "Pages in use before the open that were not looked at yet (gauge)";
    TornPagesRepaired = "torn_pages_repaired", "count", "Pages restored from the doublewrite file";
    // -- tree
    Splits = "splits", "count", "Page splits";
    LeafReorganizations = "leaf_reorganizations", "count", "Leaves compacted in place";
    LeafMerges = "leaf_merges", "count", "Leaves merged or unlinked";
    DeadNoted = "dead_leaves_noted", "count", "Leaves noted as dead, which younger snapshots skip";
    DeadInnerNoted = "dead_inner_pages_noted", "count", "Inner pages noted as dead with all that is below them";
    DeadSkips = "dead_skips", "count", "Times that readers skipped pages noted as dead";
    UnloggedValueBytes = "unlogged_value_bytes", "bytes", "Bytes of long values that went to their pages and not through the log";
    OverflowChainsSaved = "overflow_chains_saved", "count", "Long values that rows gave up and a snapshot keeps, listed in files of undo: too many for a checkpoint";
    // -- runs
    MemtableBytes = "memtable_bytes", "bytes", "Bytes in memtables now (gauge)";
    MemtableEntries = "memtable_entries", "count", "Entries written to memtables";
    MemtableFlushes = "memtable_flushes", "count", "Memtable generations flushed";
    RunFlushBytes = "run_flush_bytes", "bytes", "Bytes written by memtable flushes";
    CompactionsStarted = "compactions_started", "count", "Merges begun";
    CompactionsAbandoned = "compactions_abandoned", "count", "Merges given up: the index was dropped, the disk is full, a read failed";
    CompactionsFinished = "compactions_finished", "count", "Merges finished";
    CompactionsBottom = "compactions_bottom", "count", "Merges finished into a bottom run";
    CompactionPieces = "compaction_pieces", "count", "Finished pieces of merges put in the place of their inputs";
    TrivialMoveBytes = "trivial_move_bytes", "bytes", "Bytes of runs that merges took over without writing them";
    RunPunchedBytes = "run_punched_bytes", "bytes", "Bytes of run files given back before their file was removed";
    CompactionReadBytes = "compaction_read_bytes", "bytes", "Bytes read by merges";
    CompactionWriteBytes = "compaction_write_bytes", "bytes", "Bytes written by merges";
    RunBlockReads = "run_block_reads", "count", "Run blocks read from storage by readers";
    RunBlockReadBytes = "run_block_read_bytes", "bytes", "Bytes of run blocks read by readers";
    FilterCacheEvictions = "filter_cache_evictions", "count", "Segments whose fences and filter left memory for others";
    FiltersNotInMemory = "filters_not_in_memory", "count", "Bloom filters that were not asked, for want of memory";
    FilterProbes = "filter_probes", "count", "Bloom filter probes";
    FilterSkips = "filter_skips", "count", "Runs skipped by a Bloom filter";
    EntriesSkipped = "entries_skipped", "count", "Index entries skipped by scans";
    RunEntriesSkipped = "run_entries_skipped", "count", "Of these, entries of runs: merging begins where they are most";
    EntriesElided = "entries_elided", "count", "Index entries that scans took out of memtables with what cancels them";
    IdleCursorViewsTaken = "idle_cursor_views_taken", "count", "Index scans of idle clients that a flush, a merge or a drop made go on with a new view";
    BuildReadBytes = "build_read_bytes", "bytes", "Bytes read by index builds";
    BuildWriteBytes = "build_write_bytes", "bytes", "Bytes written by index builds";
    BuildCompactions = "build_compactions", "count", "Indexes of builds whose runs were too many and were merged";
    BuildBorrowedBytes = "build_borrowed_bytes", "bytes", "Memory that index builds asked others for";
    BuildHelpers = "build_helpers", "count", "Threads started to help index builds";
    // -- txn
    Commits = "commits", "count", "Transactions committed";
    Rollbacks = "rollbacks", "count", "Transactions rolled back";
    RollbacksOnTouch = "rollbacks_on_touch", "count", "Changes of aborted transactions reverted by a writer that met them";
    Conflicts = "conflicts", "count", "Snapshot conflicts raised";
    Deadlocks = "deadlocks", "count", "Deadlocks found";
    LockTimeouts = "lock_timeouts", "count", "Lock waits timed out";
    LockWaits = "lock_waits", "count", "Waits for row locks";
    UndoBytes = "undo_bytes", "bytes", "Bytes of undo in memory now: of transactions under way, of versions that snapshots need, and of up to 256 transactions that have ended since undo was cleared last (gauge)";
    CommitTableBytes = "commit_table_bytes", "bytes", "Bytes of transactions' states in memory (gauge)";
    UndoSpilledBytes = "undo_spilled_bytes", "bytes", "Bytes of undo written to files";
    RollingBackTxns = "rolling_back_txns", "count", "Aborted transactions whose rows are not all reverted now (gauge)";
    RowsRolledBack = "rows_rolled_back", "rows", "Row operations reverted";
    // -- tables
    RowsRead = "rows_read", "rows", "Rows returned by reads";
    RowsLoaded = "rows_loaded", "rows", "Rows that bulk loads and copying ALTERs put straight into new leaves: no undo, no locks";
    RowsInserted = "rows_inserted", "rows", "Rows inserted";
    RowsUpdated = "rows_updated", "rows", "Rows updated";
    RowsDeleted = "rows_deleted", "rows", "Rows deleted";
    StatisticsRefreshed = "statistics_refreshed", "count", "Times that the background renewed the statistics of a table's keys";
    StatisticsBlockReadBytes = "statistics_block_read_bytes", "bytes", "Of the bytes of run blocks read by readers, those for such statistics";
}

/// The values of all metrics of one database.
pub struct Metrics {
    values: Box<[AtomicU64]>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics { values: Metric::ALL.iter().map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Metrics {
    /// Adds to a counter.
    pub fn add(&self, metric: Metric, n: u64) {
        self.values[metric as usize].fetch_add(n, Ordering::Relaxed);
    }
    /// Subtracts from a gauge.
    pub fn sub(&self, metric: Metric, n: u64) {
        self.values[metric as usize].fetch_sub(n, Ordering::Relaxed);
    }
    /// Sets a gauge.
    pub fn set(&self, metric: Metric, n: u64) {
        self.values[metric as usize].store(n, Ordering::Relaxed);
    }
    /// The present value.
    pub fn get(&self, metric: Metric) -> u64 {
        self.values[metric as usize].load(Ordering::Relaxed)
    }
}
