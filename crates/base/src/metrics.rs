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
    PendingDeleteBytes = "pending_delete_bytes", "bytes", "Bytes of removed files and of dead parts of run files that are not yet returned to the file system, which happens a piece at a time; without the space of dropped tables (gauge)";
    GovernorRequestedFreeFrames = "governor_requested_free_frames_bytes", "bytes", "Background I/O requested to free frames";
    GovernorGrantedFreeFrames = "governor_granted_free_frames_bytes", "bytes", "Background I/O granted to free frames";
    GovernorRequestedCheckpoint = "governor_requested_checkpoint_bytes", "bytes", "Background I/O requested to advance the checkpoint";
    GovernorGrantedCheckpoint = "governor_granted_checkpoint_bytes", "bytes", "Background I/O granted to advance the checkpoint";
    GovernorRequestedFlush = "governor_requested_flush_bytes", "bytes", "Background I/O requested to flush memtables";
    GovernorGrantedFlush = "governor_granted_flush_bytes", "bytes", "Background I/O granted to flush memtables";
    GovernorRequestedCompaction = "governor_requested_compaction_bytes", "bytes", "Background I/O requested by compactions";
    GovernorGrantedCompaction = "governor_granted_compaction_bytes", "bytes", "Background I/O granted to compactions";
    GovernorRequestedDdl = "governor_requested_ddl_bytes", "bytes", "Background I/O requested by index builds and to refresh statistics";
    GovernorGrantedDdl = "governor_granted_ddl_bytes", "bytes", "Background I/O granted to index builds and to refresh statistics";
    GovernorRequestedMaintenance = "governor_requested_maintenance_bytes", "bytes", "Background I/O requested to read hot pages in after an open and to give space back";
    GovernorGrantedMaintenance = "governor_granted_maintenance_bytes", "bytes", "Background I/O granted to read hot pages in after an open and to give space back";
    CpuYields = "cpu_yields", "count", "Times that index builds and compactions yielded the processor after 1 ms of work";
    CpuBuildPauses = "cpu_build_pauses", "count", "Pauses of index builds that left the processor to users who were at work";
    CompactionPriorityChanges = "compaction_priority_changes", "count", "Times that compactions moved to threads of low priority, or back because those starved";
    CpuSeatWaits = "cpu_seat_waits", "count", "Times that work for which no user waits had no seat, because enough threads did such work";
    // -- log
    LogBytes = "log_bytes", "bytes", "Bytes written to the log, padding included";
    LogPreparedBytes = "log_prepared_bytes", "bytes", "Bytes written to prepare log segments: headers, and zeros where commits wait for the sync";
    LogRecords = "log_records", "count", "Records appended to the log";
    LogSyncs = "log_syncs", "count", "Syncs of the log";
    LogRotations = "log_rotations", "count", "Log segments begun";
    LogRecycled = "log_recycled", "count", "Log segments reused after a checkpoint freed them";
    // -- pages
    PageReads = "page_reads", "count", "Pages read from storage";
    PageReadBytes = "page_read_bytes", "bytes", "Bytes of pages read from storage";
    PageWrites = "page_writes", "count", "Pages written in place";
    PageWriteBytes = "page_write_bytes", "bytes", "Bytes of pages written in place";
    DoublewriteBytes = "doublewrite_bytes", "bytes", "Bytes written to the doublewrite file";
    FlushRequested = "flush_requested_pages", "pages", "Pages requested for a flush: by the pacing law, or for one of the other reasons below";
    FlushReasonAge = "flush_reason_age_pages", "pages", "Pages requested because their changes are older than the target age";
    FlushReasonShare = "flush_reason_share_pages", "pages", "Pages requested because too much of the pool is dirty";
    FlushReasonNext = "flush_reason_next_pages", "pages", "Pages requested because the log will soon push them over the target age";
    FlushReasonFreeFrames = "flush_reason_free_frames_pages", "pages", "Cold dirty pages requested because their frames are needed";
    FlushReasonIdle = "flush_reason_idle_pages", "pages", "Pages requested because nobody writes; the next open then has less to redo";
    FlushReasonRequired = "flush_reason_required_pages", "pages", "Pages that a checkpoint needed for log space, or for a waiting statement, beyond the pages of the law";
    FlushDone = "flush_done_pages", "pages", "Pages flushed";
    Checkpoints = "checkpoints", "count", "Checkpoints taken";
    BackupsCompleted = "backups_completed", "count", "Backups completed since the open";
    BackupsFailed = "backups_failed", "count", "Backups that failed or were cancelled since the open";
    BackupsRunning = "backups_running", "0 or 1", "A backup is running now (gauge)";
    BackupBytes = "backup_bytes", "bytes", "Bytes copied by backups";
    DirtyPages = "dirty_pages", "pages", "Dirty pages now (gauge)";
    FreeFrames = "free_frames", "frames", "Free frames now (gauge)";
    MemorySize = "memory_size_bytes", "bytes", "The memory budget now; it moves where memory_size is automatic (gauge)";
    MemoryFrames = "memory_frames_bytes", "bytes", "Memory of page frames now, borrowed memory included (gauge)";
    MemoryBlocks = "memory_run_blocks_bytes", "bytes", "Memory that run blocks may use now, borrowed memory included (gauge)";
    MemoryGeneration = "memory_generation_bytes", "bytes", "Size at which a memtable generation is full now; two of them are kept (gauge)";
    MemoryMoves = "memory_moves", "count", "Times that frames, run blocks and memtables lent each other memory";
    PoolFrames = "pool_frames", "frames", "Frames of the pool that have memory (gauge)";
    Evictions = "evictions", "count", "Clean pages evicted from their frames";
    WarmPagesRead = "warm_pages_read", "pages", "Pages read in after the open because they were in use before";
    WarmPagesLeft = "warm_pages_left", "pages", "Pages in use before the open that are still to be read in (gauge)";
    TornPagesRepaired = "torn_pages_repaired", "count", "Pages restored from the doublewrite file";
    // -- tree
    Splits = "splits", "count", "Page splits";
    LeafReorganizations = "leaf_reorganizations", "count", "Leaves rewritten in place without their dead rows";
    LeafMerges = "leaf_merges", "count", "Leaves merged or unlinked";
    DeadNoted = "dead_leaves_noted", "count", "Leaves noted as dead, which newer snapshots skip";
    DeadInnerNoted = "dead_inner_pages_noted", "count", "Inner pages noted as dead together with all pages below them";
    DeadSkips = "dead_skips", "count", "Times that readers skipped pages noted as dead";
    UnloggedValueBytes = "unlogged_value_bytes", "bytes", "Bytes of long values that were written to their pages without going through the log";
    OverflowChainsSaved = "overflow_chains_saved", "count", "Long values of deleted or changed rows that a snapshot still needs, listed in undo files because they are too many for a checkpoint";
    // -- runs
    MemtableBytes = "memtable_bytes", "bytes", "Bytes in memtables now (gauge)";
    MemtableEntries = "memtable_entries", "count", "Entries written to memtables";
    MemtableFlushes = "memtable_flushes", "count", "Memtable generations flushed";
    RunFlushBytes = "run_flush_bytes", "bytes", "Bytes written by memtable flushes";
    CompactionsStarted = "compactions_started", "count", "Compactions started";
    CompactionsAbandoned = "compactions_abandoned", "count", "Compactions abandoned because the index was dropped, the disk is full or a read failed";
    CompactionsFinished = "compactions_finished", "count", "Compactions finished";
    CompactionsBottom = "compactions_bottom", "count", "Compactions finished into a bottom run";
    CompactionPieces = "compaction_pieces", "count", "Finished pieces of compactions that replaced their inputs";
    TrivialMoveBytes = "trivial_move_bytes", "bytes", "Bytes of runs that compactions moved without rewriting them";
    RunPunchedBytes = "run_punched_bytes", "bytes", "Bytes of run files returned to the file system before their file was removed";
    CompactionReadBytes = "compaction_read_bytes", "bytes", "Bytes read by compactions";
    CompactionWriteBytes = "compaction_write_bytes", "bytes", "Bytes written by compactions";
    RunBlockReads = "run_block_reads", "count", "Run blocks read from storage by readers";
    RunBlockReadBytes = "run_block_read_bytes", "bytes", "Bytes of run blocks read by readers";
    FilterCacheEvictions = "filter_cache_evictions", "count", "Segments whose fences and filter were evicted for others";
    FiltersNotInMemory = "filters_not_in_memory", "count", "Probes skipped because the Bloom filter was not in memory";
    FilterProbes = "filter_probes", "count", "Bloom filter probes";
    FilterSkips = "filter_skips", "count", "Runs skipped by a Bloom filter";
    EntriesSkipped = "entries_skipped", "count", "Index entries skipped by scans";
    EstimateEntries = "estimate_entries", "count", "Index entries examined to estimate how many rows a range of an index has";
    RunEntriesSkipped = "run_entries_skipped", "count", "The part of `entries_skipped` in runs; compaction at rest begins with the index that has most of them";
    EntriesElided = "entries_elided", "count", "Index entries that scans removed from memtables together with the entries that cancel them";
    IdleCursorViewsTaken = "idle_cursor_views_taken", "count", "Index scans of idle clients that continue with a new view because a flush, a compaction or a drop took theirs";
    BuildReadBytes = "build_read_bytes", "bytes", "Bytes read by index builds";
    BuildWriteBytes = "build_write_bytes", "bytes", "Bytes written by index builds";
    BuildCompactions = "build_compactions", "count", "New indexes for which the build wrote so many runs that it compacted them";
    BuildBorrowedBytes = "build_borrowed_bytes", "bytes", "Memory that index builds borrowed from other shares";
    BuildHelpers = "build_helpers", "count", "Threads started to help index builds";
    // -- txn
    Commits = "commits", "count", "Transactions committed";
    Rollbacks = "rollbacks", "count", "Transactions rolled back";
    RollbacksOnTouch = "rollbacks_on_touch", "count", "Changes of aborted transactions that a writer met and rolled back";
    Conflicts = "conflicts", "count", "Snapshot conflicts raised";
    Deadlocks = "deadlocks", "count", "Deadlocks found";
    LockTimeouts = "lock_timeouts", "count", "Lock waits timed out";
    LockWaits = "lock_waits", "count", "Waits for row locks";
    UndoBytes = "undo_bytes", "bytes", "Bytes of undo in memory: of active transactions, of versions that snapshots need, and of up to 256 transactions that ended since the last purge (gauge)";
    CommitTableBytes = "commit_table_bytes", "bytes", "Bytes of transactions' states in memory (gauge)";
    UndoSpilledBytes = "undo_spilled_bytes", "bytes", "Bytes of undo written to files";
    RollingBackTxns = "rolling_back_txns", "count", "Aborted transactions whose rows are not all rolled back yet (gauge)";
    RowsRolledBack = "rows_rolled_back", "rows", "Row operations rolled back";
    // -- tables
    RowsRead = "rows_read", "rows", "Rows returned by reads";
    RowsLoaded = "rows_loaded", "rows", "Rows that bulk loads and copying ALTERs wrote directly into new leaves, without undo and locks";
    RowsInserted = "rows_inserted", "rows", "Rows inserted";
    RowsUpdated = "rows_updated", "rows", "Rows updated";
    RowsDeleted = "rows_deleted", "rows", "Rows deleted";
    RowsCascaded = "rows_cascaded", "rows", "Rows deleted or updated because a foreign key cascades; `rows_deleted` and `rows_updated` count them too";
    ChunksMade = "chunks_made", "count", "Chunks of chunked tables made because a row needed them";
    ChunksDropped = "chunks_dropped", "count", "Chunks of chunked tables dropped";
    ChunksOpened = "chunks_opened", "count", "Chunks that scans of chunked tables have opened";
    ChunksPrunedTime = "chunks_pruned_time", "count", "Chunks that scans of chunked tables did not need because of their times";
    ChunksPrunedSlot = "chunks_pruned_slot", "count", "Chunks that scans of chunked tables did not need because of their slots";
    StatisticsRefreshed = "statistics_refreshed", "count", "Times that the background refreshed the statistics of a table's keys";
    StatisticsBlockReadBytes = "statistics_block_read_bytes", "bytes", "The part of `run_block_read_bytes` that was read for the statistics of keys";
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
