//! The component: indexes, generations, views. Locking: `state` guards short memory work only; no
//! thread waits, reads or writes under it.

use crate::admission::SpaceQueues;
use crate::admission::pace::Pace;
use crate::compaction::{CompactionJobs, Ingest, READ_AHEAD, Together};
use crate::flush::{Fill, FlushJob, FlushMeter};
use crate::index_build::CHECK_EVERY;
use crate::latch::IoLatch;
use crate::memtable::leaves::{NewEntry, charge};
use crate::memtable::{GenPin, MemIter, Memtable};
use crate::read::cursor::prefix_end;
use crate::read::idle_cursor_views::IdleCursorViews;
use crate::read::row_shares::KnownShares;
use crate::read::run_iter::{BlockLoader, Bounds, Pass, RunIter};
use crate::read::source::{Direction, Merger, Source};
use crate::read::unique::{UniqueGuard, UniqueSlots};
use crate::restore::Restoring;
use crate::run::cache::{BlockCache, CachedBlocks};
use crate::run::file::Run;
use crate::run::filter_cache::FilterCache;
use crate::run::writer::Purpose;
use crate::state::{READ, RunsState, USED};
use crate::{CheckReport, DuplicateKey, IndexCursor, IndexSpec, IndexStats, KeyRange};
use crate::{ManifestLog, MemReserved, RunsOptions};
use evenkeel_base::sync::{Mutex, RwLock};
use evenkeel_base::{
    Cause, Code, CommitTable, Error, Generation, IndexId, Lsn, Result, Snapshot, Stamp, TxnState,
    metrics::{Metric, Metrics},
};
use evenkeel_format::record::Entry;
use evenkeel_format::run::hash_key;
use evenkeel_io::{Event, Runtime, Woken};
use evenkeel_sched::{GhostCache, RateLimiter, Scheduler};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long, and how often at most, a loan waits for memory that is not there yet.
const LEND_WAIT: Duration = Duration::from_millis(50);
const LEND_WAITS_MAX: usize = 10;

/// Fences may borrow one part in this many of the memory of run blocks.
const LOAN_PART: u64 = 2;

/// Views that idle cursors may keep; each holds a block of every run of its index in memory.
const IDLE_VIEWS_MAX: usize = 128;

/// Entries between two looks at whether a check was cancelled.
const ENTRIES_PER_POLL: u64 = 1024;

/// Memtable bytes of an entry: what to [`Runs::reserve`] for it.
pub const fn entry_bytes(key: usize, pk: usize, value: usize) -> usize {
    charge(key, pk, value)
}

/// Receives (pk, op, stamp, state) of a key's newest entry; false stops.
pub type CurrentFn<'a> = dyn FnMut(&[u8], u8, Stamp, TxnState) -> bool + 'a;

/// What a reader of one index reads.
pub(crate) struct IndexView {
    pub memtables: Arc<Vec<Arc<Memtable>>>,
    pub runs: Arc<Vec<Arc<Run>>>,
    pub version: u64,
}

/// Memory of run blocks that is lent.
pub struct Lent {
    runs: Arc<Runs>,
    bytes: u64,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.runs.lent_builds.fetch_sub(self.bytes, Ordering::SeqCst);
        self.runs.set_cache();
        self.runs.ghosts().wake();
    }
}

/// All secondary indexes of one database.
pub struct Runs {
    pub(crate) rt: Arc<Runtime>,
    pub(crate) sched: Arc<Scheduler>,
    generation_bytes: AtomicU64,
    #[cfg(test)]
    pub(crate) segment_bytes_set: AtomicU64,
    cache_bytes: AtomicU64,
    /// Memory of run blocks that is lent now: to a third generation, to an index build.
    pub(crate) lent_memtables: AtomicU64,
    lent_builds: AtomicU64,
    /// Generations handed over because they were full.
    pub(crate) handovers: AtomicU64,
    commits: Arc<dyn CommitTable>,
    pub(crate) log: OnceLock<Arc<dyn ManifestLog>>,
    pub(crate) state: RwLock<RunsState>,
    pub(crate) version: AtomicU64,
    pub(crate) reserved: AtomicU64,
    pub(crate) next_file: AtomicU64,
    /// Held from the choice of manifest edits until they are in the view.
    pub(crate) manifest: IoLatch,
    /// The log end before the edits that are being appended; `u64::MAX`: none.
    pub(crate) manifest_low: AtomicU64,
    pub(crate) restoring: Mutex<Restoring>,
    /// Held by the thread in `flush_beat`.
    pub(crate) flushing: IoLatch,
    pub(crate) flush_job: Mutex<Option<Box<FlushJob>>>,
    pub(crate) fill: Mutex<Fill>,
    /// A checkpoint must reach this position.
    pub(crate) needed_lsn: AtomicU64,
    /// The part of the oldest generation that is flushed.
    pub(crate) flushed_permille: AtomicU64,
    pub(crate) compaction_jobs: Mutex<CompactionJobs>,
    pub(crate) together: Mutex<Together>,
    pub(crate) flush_event: Arc<Event>,
    pub(crate) compaction_event: Arc<Event>,
    pub(crate) pace: Pace,
    /// Limits ingest to the rate of a flush.
    pub(crate) flush_line: RateLimiter,
    pub(crate) flush_meter: Mutex<FlushMeter>,
    /// Some index has `RUNS_HELP` runs.
    pub(crate) is_help_wanted: AtomicBool,
    /// More compactions wait than one thread works on.
    pub(crate) help_event: Arc<Event>,
    /// Notified when memtable space or compaction credit becomes available.
    pub(crate) space: Arc<SpaceQueues>,
    /// Why compactions make no progress (there is no space), and whether they may use the ballast.
    pub(crate) compact_full: Mutex<Option<(Error, bool)>>,
    /// See `set_short`.
    pub(crate) is_short: AtomicBool,
    /// Indexes that were read for the first time since their last compaction began.
    pub(crate) read_lately: Mutex<Vec<IndexId>>,
    /// The number of indexes for which the picker ran.
    #[cfg(test)]
    pub(crate) asked: AtomicU64,
    /// Indexes whose compactions should have freed space and did not, since space became short.
    pub(crate) barren: Mutex<BTreeSet<IndexId>>,
    /// Failed reads of compactions of an index, since the last one that ended.
    pub(crate) read_failures: Mutex<BTreeMap<IndexId, u32>>,
    pub(crate) in_debt: AtomicBool,
    pub(crate) debtors: AtomicU64,
    pub(crate) credit: AtomicU64,
    pub(crate) ingest: Mutex<Ingest>,
    pub(crate) blocks: Arc<CachedBlocks>,
    pub(crate) filter_cache: Arc<FilterCache>,
    unique: Arc<UniqueSlots>,
    pub(crate) row_shares: KnownShares,
    /// Views of cursors whose clients may be idle; all of the present version.
    pub(crate) parked: IdleCursorViews<Merger>,
}

impl Runs {
    /// A component without indexes or runs; `attach_log`, then restore (see the crate's head).
    ///
    /// # Errors
    /// Of making the directory.
    pub fn create(
        sched: Arc<Scheduler>,
        options: RunsOptions,
        commits: Arc<dyn CommitTable>,
    ) -> Result<Arc<Runs>> {
        let rt = sched.runtime().clone();
        rt.env.create_dir("runs")?;
        rt.env.sync_dir("")?;
        let flush_event = Arc::new(Event::new());
        let active = Arc::new(Memtable::restoring(Generation(1), flush_event.clone()));
        let state = RunsState::new(active);
        let space = Arc::<SpaceQueues>::default();
        let told = space.clone();
        rt.health.on_failure(move || told.notify());
        let filter_cache = FilterCache::new(u64::MAX, rt.metrics.clone());
        let cache = BlockCache::new(options.cache_bytes, filter_cache.clone());
        let blocks = Arc::new(CachedBlocks { sched: sched.clone(), cache });
        let fill = Fill::since(rt.env.now_ns());
        Ok(Arc::new(Runs {
            rt,
            sched,
            generation_bytes: AtomicU64::new(options.generation_bytes),
            #[cfg(test)]
            segment_bytes_set: AtomicU64::new(0),
            cache_bytes: AtomicU64::new(options.cache_bytes),
            lent_memtables: AtomicU64::new(0),
            lent_builds: AtomicU64::new(0),
            handovers: AtomicU64::new(0),
            commits,
            log: OnceLock::new(),
            state: RwLock::new(state),
            version: AtomicU64::new(1),
            reserved: AtomicU64::new(0),
            next_file: AtomicU64::new(1),
            manifest: IoLatch::default(),
            manifest_low: AtomicU64::new(u64::MAX),
            restoring: Mutex::default(),
            flushing: IoLatch::default(),
            flush_job: Mutex::default(),
            fill: Mutex::new(fill),
            needed_lsn: AtomicU64::new(0),
            flushed_permille: AtomicU64::new(0),
            compaction_jobs: Mutex::default(),
            together: Mutex::default(),
            flush_event,
            compaction_event: Arc::default(),
            pace: Pace::default(),
            flush_line: RateLimiter::default(),
            flush_meter: Mutex::default(),
            is_help_wanted: AtomicBool::new(false),
            help_event: Arc::default(),
            space,
            compact_full: Mutex::default(),
            is_short: AtomicBool::new(false),
            read_lately: Mutex::default(),
            #[cfg(test)]
            asked: AtomicU64::new(0),
            barren: Mutex::default(),
            read_failures: Mutex::default(),
            in_debt: AtomicBool::new(false),
            debtors: AtomicU64::new(0),
            credit: AtomicU64::new(0),
            ingest: Mutex::default(),
            blocks,
            filter_cache,
            unique: UniqueSlots::new(),
            row_shares: KnownShares::default(),
            parked: IdleCursorViews::new(IDLE_VIEWS_MAX),
        }))
    }

    /// Bytes of one memtable generation.
    pub(crate) fn generation_bytes(&self) -> u64 {
        self.generation_bytes.load(Ordering::Relaxed)
    }

    /// Changes the shares of memory while open: the active generation is handed over at the new
    /// size, and blocks beyond the new share are evicted.
    pub fn set_memory(&self, options: RunsOptions) {
        self.generation_bytes.store(options.generation_bytes, Ordering::Relaxed);
        self.cache_bytes.store(options.cache_bytes, Ordering::Relaxed);
        self.set_cache();
        self.filter_cache.shrink();
        self.blocks.cache.trim();
        self.space.notify();
    }

    /// Sets how many bytes of fences and filters stay in memory; no limit at first.
    pub fn set_resident_bytes(&self, bytes: u64) {
        self.filter_cache.set_limit(bytes);
        self.cool_down();
    }

    /// Bytes of fences, filters and footers in memory.
    pub fn resident_bytes(&self) -> u64 {
        self.filter_cache.bytes()
    }

    /// Lends memory of run blocks to an index build until the guard is dropped. If page frames have
    /// that memory (the ghost cache wakes their arbiter), waits a limited time for it, because
    /// frames in use may take long to free.
    pub fn lend(self: &Arc<Self>, bytes: u64) -> Lent {
        let lent = self.lent_builds.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.rt.metrics.add(Metric::BuildBorrowedBytes, bytes);
        self.set_cache();
        self.filter_cache.shrink();
        self.blocks.cache.trim();
        self.blocks.cache.ghosts().wake();
        for _ in 0..LEND_WAITS_MAX {
            let seen = self.space.event.now();
            let there = self.cache_bytes.load(Ordering::SeqCst);
            if there >= lent {
                break;
            }
            let event = &self.space.event;
            let woken = self.rt.wait(event, seen, Some(LEND_WAIT), Cause::FreeFrame);
            // No more memory arrives: all that can be lent is here.
            if woken == Woken::Timeout && self.cache_bytes.load(Ordering::SeqCst) == there {
                break;
            }
        }
        Lent { runs: self.clone(), bytes }
    }

    /// Bytes that run blocks can lend a build without memory from page frames: half of what they
    /// may use, minus what a third generation has of it.
    pub fn lends_at_once(&self) -> u64 {
        let load = |n: &AtomicU64| n.load(Ordering::SeqCst);
        let lent = load(&self.lent_builds) + load(&self.lent_memtables);
        (load(&self.cache_bytes) / 2).saturating_sub(lent)
    }

    /// Bytes of run blocks that a third generation has now.
    pub fn lent_to_memtables(&self) -> u64 {
        self.lent_memtables.load(Ordering::Relaxed)
    }

    /// Bytes lent to index builds now.
    pub fn lent_to_builds(&self) -> u64 {
        self.lent_builds.load(Ordering::SeqCst)
    }

    /// Bytes that run blocks may use and do not use.
    pub fn block_bytes_unused(&self) -> u64 {
        self.blocks.cache.bytes_unused()
    }

    /// Generations handed over because they were full, since the start.
    pub fn full_generations(&self) -> u64 {
        self.handovers.load(Ordering::Relaxed)
    }

    /// Blocks that left the cache; their misses show what more memory would save. Woken also when a
    /// full generation is handed over and when memory is lent.
    pub fn ghosts(&self) -> &GhostCache {
        self.blocks.cache.ghosts()
    }

    /// Sets the present limit of run blocks.
    pub(crate) fn set_cache(&self) {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let lent = load(&self.lent_memtables) + load(&self.lent_builds);
        let blocks = load(&self.cache_bytes).saturating_sub(lent);
        self.blocks.cache.set_bytes(blocks);
        self.filter_cache.set_loan(blocks / LOAN_PART);
    }

    /// Sets the log, once: manifest records go there.
    pub fn attach_log(&self, log: Arc<dyn ManifestLog>) {
        let _ = self.log.set(log);
    }

    /// Makes an index known (at open and at CREATE INDEX), before its first entry.
    pub fn add_index(&self, spec: IndexSpec) {
        let mut state = self.state.write();
        let index = state.indexes.entry(spec.id).or_default();
        index.known = true;
        index.unique_key = spec.unique_key;
        index.building = spec.building;
        index.valid_from = spec.valid_from;
        state.note_runs(spec.id);
        self.changed(&state);
    }

    /// Panics if runs, files and indexes contradict each other. For debug builds.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
        self.state.read().check();
    }

    pub(crate) fn next_file(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::SeqCst)
    }

    /// Pins the active generation: in an operation's last step, before it reserves its LSN (B3).
    pub fn pin(&self) -> GenPin {
        let end = self.log.get().map_or(Lsn::ZERO, |log| log.end());
        self.state.read().memtables[0].pin(end)
    }

    /// Inserts an entry of a row operation. Never waits, never fails.
    pub fn insert(
        &self,
        pin: &GenPin,
        reserved: &mut MemReserved,
        entry: &Entry<'_>,
        pk: &[u8],
        stamp: Stamp,
        lsn: Lsn,
    ) {
        let entry = NewEntry {
            index: entry.index,
            op: entry.op,
            stamp,
            lsn,
            key: entry.key,
            pk,
            value: entry.value,
        };
        let bytes = pin.memtable().insert(&entry) as u64;
        let paid = bytes.min(reserved.bytes);
        reserved.bytes -= paid;
        self.reserved.fetch_sub(paid, Ordering::SeqCst);
        self.rt.metrics.add(Metric::MemtableEntries, 1);
        self.rt.metrics.add(Metric::MemtableBytes, bytes);
    }

    /// A cursor over a range of an index.
    ///
    /// # Errors
    /// `NotFound` if there is no such index.
    pub fn cursor(
        self: &Arc<Self>,
        index: IndexId,
        range: KeyRange,
        direction: Direction,
        snapshot: Snapshot,
    ) -> Result<IndexCursor> {
        let state = self.state.read();
        match state.indexes.get(&index) {
            None => return Err(Error::new(Code::IndexGone).with("index", index)),
            Some(known) if known.is(READ) => {}
            // Compactions prefer indexes that are read.
            Some(known) => {
                known.set(READ);
                if state.due.several.contains(&index) {
                    self.read_lately.lock().push(index);
                }
            }
        }
        drop(state);
        Ok(IndexCursor::new(self.clone(), index, range, direction, snapshot))
    }

    /// Reads the present state of a unique key (D5): for every pk under the column bytes `key`, the
    /// newest entry that was not undone, as (pk, op, stamp, state). `f` returns false to stop.
    ///
    /// # Errors
    /// Of reading and decoding storage.
    pub fn current(&self, index: IndexId, key: &[u8], f: &mut CurrentFn<'_>) -> Result<()> {
        let mut decided: Option<Vec<u8>> = None;
        while !self.current_in_view(index, (key, true), &mut decided, f)? {}
        Ok(())
    }

    /// As `current`, for every key that begins with the whole parts in `prefix`.
    ///
    /// # Errors
    /// As `current`.
    pub fn current_under(
        &self,
        index: IndexId,
        prefix: &[u8],
        f: &mut CurrentFn<'_>,
    ) -> Result<()> {
        let mut decided: Option<Vec<u8>> = None;
        while !self.current_in_view(index, (prefix, false), &mut decided, f)? {}
        Ok(())
    }

    /// Continues behind the last decided key; false if the view changed meanwhile. As with cursors
    /// an entry counts only if its view was still the present one after it was judged. Otherwise a
    /// flush may have dropped an undone entry whose id has left the commit table (A5).
    fn current_in_view(
        &self,
        index: IndexId,
        (key, is_whole): (&[u8], bool),
        decided: &mut Option<Vec<u8>>,
        f: &mut CurrentFn<'_>,
    ) -> Result<bool> {
        let view = self.view(index)?;
        let sources = self.sources_of_key(&view, index, (key, is_whole))?;
        let mut merger = Merger::new(sources, Direction::Forward);
        match decided {
            None => merger.seek(Some(key))?,
            Some(last) => merger.seek(Some(&[&last[..], &[0]].concat()))?,
        }
        while let Some(item) = merger.top().filter(|item| item.key.starts_with(key)) {
            let (stamp, state) = item.version.state(&*self.commits);
            let dead = state == TxnState::Aborted || self.commits.is_dead(stamp);
            if !dead && decided.as_deref() != Some(item.key) {
                if self.view_version() != view.version {
                    return Ok(false);
                }
                *decided = Some(item.key.to_vec());
                let pk = &item.key[item.key.len() - item.pk_len..];
                if !f(pk, item.op, stamp, state) {
                    break;
                }
            }
            merger.advance()?;
        }
        Ok(true)
    }

    /// The sources that may hold entries with these column bytes; filters know whole keys only.
    fn sources_of_key(
        &self,
        view: &IndexView,
        index: IndexId,
        (key, is_whole): (&[u8], bool),
    ) -> Result<Vec<Source>> {
        let (end, hash) = (prefix_end(key), hash_key(key));
        let memory = |m: &Arc<Memtable>| Source::Memory(MemIter::of_index(m.clone(), index));
        let mut sources: Vec<Source> = view.memtables.iter().map(memory).collect();
        let bounds = Arc::new(Bounds { low: key.to_vec(), high: end.clone() });
        for run in &*view.runs {
            if !is_whole || self.may_contain(run, key, end.as_deref(), hash)? {
                sources.push(self.run_source(run, &bounds, None));
            }
        }
        Ok(sources)
    }

    /// False if no segment of the run can hold column bytes with this hash.
    fn may_contain(&self, run: &Run, key: &[u8], end: Option<&[u8]>, hash: u64) -> Result<bool> {
        let from = run.segments.partition_point(|s| &s.info.max_key[..] < key);
        for segment in &run.segments[from..] {
            if end.is_some_and(|end| &segment.info.min_key[..] >= end) {
                break;
            }
            let Some(filter) = segment.filter()? else { return Ok(true) };
            self.rt.metrics.add(Metric::FilterProbes, 1);
            if filter.may_contain(hash) {
                return Ok(true);
            }
        }
        self.rt.metrics.add(Metric::FilterSkips, 1);
        Ok(false)
    }

    /// Latches the hash slot of a unique key (D5).
    pub fn unique_slot(&self, index: IndexId, key: &[u8]) -> UniqueGuard {
        self.unique.lock(&self.rt, UniqueSlots::slot_of(index, key))
    }

    /// Latches the hash slots of several unique keys, each once and in one order, so that two row
    /// operations cannot deadlock.
    pub fn unique_slots(&self, keys: &[(IndexId, &[u8])]) -> Vec<UniqueGuard> {
        let slots = keys.iter().map(|(index, key)| UniqueSlots::slot_of(*index, key));
        let slots: BTreeSet<usize> = slots.collect();
        slots.into_iter().map(|slot| self.unique.lock(&self.rt, slot)).collect()
    }

    /// Notified when there may be something to flush.
    pub fn flush_event(&self) -> Arc<Event> {
        self.flush_event.clone()
    }

    /// Notified when there may be something to compact.
    pub fn compaction_event(&self) -> Arc<Event> {
        self.compaction_event.clone()
    }

    /// Wakes the threads that drive `compaction_help_beat`.
    pub fn help_event(&self) -> Arc<Event> {
        self.help_event.clone()
    }

    /// The lowest LSN that an unflushed entry, or a manifest edit not yet in the view, may have.
    /// Read the log end first, then this (B3); `None`: nothing below that log end is unflushed.
    pub fn low_lsn(&self) -> Option<Lsn> {
        let state = self.state.read();
        let low = state.memtables.iter().filter_map(|m| m.low_lsn()).min();
        let manifest = Lsn(self.manifest_low.load(Ordering::SeqCst));
        Some(low.unwrap_or(Lsn::MAX).min(manifest)).filter(|low| *low != Lsn::MAX)
    }

    /// The index is VALID from this timestamp on: DEL entries may be dropped, and FRESH entries
    /// newer than it may be elided (D4, F2).
    pub fn set_valid(&self, index: IndexId, from: Lsn) {
        let mut state = self.state.write();
        if let Some(known) = state.indexes.get_mut(&index) {
            known.building = false;
            known.valid_from = from;
        }
        state.note_runs(index);
    }

    /// One pass over the whole index: the first two live rows with equal column bytes (F3). `skip`
    /// says which column bytes may repeat (NULL in them); `check` is called once per `CHECK_EVERY`
    /// entries and may end the pass with an error.
    ///
    /// # Errors
    /// Of reading storage; those of `check`.
    pub fn find_duplicate(
        self: &Arc<Self>,
        index: IndexId,
        snapshot: Snapshot,
        skip: &dyn Fn(&[u8]) -> bool,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Option<DuplicateKey>> {
        // Past the cache, which belongs to users.
        let pass = Pass::new(READ_AHEAD, Metric::BuildReadBytes, Purpose::BUILD);
        let mut cursor = self.cursor(index, KeyRange::all(), Direction::Forward, snapshot)?;
        cursor.set_pass(&pass);
        let (mut key, mut first_pk, mut count) = (Vec::new(), Vec::new(), 0u32);
        while let Some(entry) = cursor.next()? {
            if count > 0 && key == entry.key && !skip(entry.key) {
                let second_pk = entry.pk.to_vec();
                return Ok(Some(DuplicateKey { key, first_pk, second_pk }));
            }
            key.clear();
            key.extend_from_slice(entry.key);
            first_pk.clear();
            first_pk.extend_from_slice(entry.pk);
            count = count.wrapping_add(1).max(1);
            if count.is_multiple_of(CHECK_EVERY) {
                check(u64::from(CHECK_EVERY))?;
                let read = pass.take_unasked();
                if read > 0 {
                    // The wait for the governor may be long, and no view is held during it (D6).
                    cursor.let_go();
                    self.sched.ask(Purpose::BUILD.class, read, Purpose::BUILD.required);
                }
            }
        }
        // The bytes of a pass too short to have been reported.
        match pass.take_unasked() {
            0 => {}
            read => self.sched.ask(Purpose::BUILD.class, read, Purpose::BUILD.required),
        }
        Ok(None)
    }

    /// Reads every block of an index: checksums, order, counts.
    ///
    /// # Errors
    /// `Corrupt` naming the first damage; `NotFound`.
    pub fn check(&self, index: IndexId) -> Result<CheckReport> {
        self.check_until(index, &|_| Ok(()))
    }

    /// As `check`; `poll` is called now and then with the entries read so far.
    ///
    /// # Errors
    /// As `check`; that of `poll`.
    pub fn check_until(
        &self,
        index: IndexId,
        poll: &dyn Fn(u64) -> Result<()>,
    ) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        for run in &*self.view(index)?.runs {
            let loader = BlockLoader::sequential(
                &self.sched,
                1 << 20,
                Metric::RunBlockReadBytes,
                Purpose::CHECK,
            );
            let mut iter = RunIter::new(run.clone(), loader, Arc::default());
            iter.seek_at_least(&[])?;
            let (mut last, mut entries) = (Vec::new(), 0);
            while iter.is_valid() {
                if iter.key() < &last[..] {
                    return Err(Error::new(Code::RunDamaged)
                        .with("index", index)
                        .with("run", run.number)
                        .with("why", "keys are out of order"));
                }
                last.clear();
                last.extend_from_slice(iter.key());
                entries += 1;
                if entries % ENTRIES_PER_POLL == 0 {
                    poll(report.entries + entries)?;
                }
                iter.next()?;
            }
            // A part of a segment that a compaction has cut is dead.
            if entries != run.entries && !run.is_cut() {
                return Err(Error::new(Code::RunDamaged)
                    .with("index", index)
                    .with("run", run.number)
                    .with("why", format_args!("{entries} entries, {} expected", run.entries)));
            }
            report.entries += entries;
            report.blocks += run.segments.iter().map(|s| u64::from(s.info.blocks)).sum::<u64>();
            report.bytes += run.bytes;
        }
        Ok(report)
    }

    /// Figures of an index; zeros if there is none, and for parts that cannot be read.
    pub fn stats(&self, index: IndexId) -> IndexStats {
        // A reader gets the error if it cannot be read.
        let _ = self.warm(index);
        let state = self.state.read();
        let runs = state.indexes.get(&index).map(|i| i.runs.clone()).unwrap_or_default();
        IndexStats {
            runs: runs.len() as u64,
            segments: runs.iter().map(|r| r.segments.len() as u64).sum(),
            run_entries: runs.iter().map(|r| r.entries).sum(),
            run_deletes: runs.iter().map(|r| r.deletes).sum(),
            run_bytes: runs.iter().map(|r| r.bytes).sum(),
            resident_bytes: {
                let segments = runs.iter().flat_map(|r| &r.segments);
                segments.map(|s| s.resident_bytes()).sum()
            },
            memtable_entries: state.memtables.iter().map(|m| m.entries()).sum(),
        }
    }

    /// The approximate number of entries that a reader of the whole index meets: each deletion in
    /// its runs removes one. Those in memtables are not counted: they are few, or soon in runs.
    pub fn live_entries(&self, index: IndexId) -> u64 {
        let state = self.state.read();
        let runs = state.indexes.get(&index).map(|i| &i.runs[..]).unwrap_or_default();
        let (entries, deletes) =
            runs.iter().fold((0, 0), |(e, d), run| (e + run.entries, d + run.deletes));
        entries.saturating_sub(2 * deletes)
    }

    /// Memory in use: (memtables, cached blocks).
    pub fn memory(&self) -> (u64, u64) {
        let memtables = self.state.read().memtables.clone();
        (memtables.iter().map(|m| m.memory()).sum(), self.blocks.cache.bytes())
    }

    /// Removes all blocks from the cache.
    #[cfg(test)]
    pub(crate) fn drop_cache(&self) {
        self.blocks.cache.clear();
    }

    /// The most runs that any index has.
    pub fn runs_max(&self) -> usize {
        self.state.read().most_runs()
    }

    pub(crate) fn view(&self, index: IndexId) -> Result<IndexView> {
        loop {
            let state = self.state.read();
            let version = self.version.load(Ordering::SeqCst);
            match state.indexes.get(&index) {
                None => return Err(Error::new(Code::IndexGone).with("index", index)),
                Some(known) if known.is_damaged() => return Err(state.damage_of(index)),
                Some(known) if known.cold.is_some() => {}
                Some(known) => {
                    known.set(USED);
                    let (memtables, runs) = (state.memtables.clone(), known.runs.clone());
                    return Ok(IndexView { memtables, runs, version });
                }
            }
            drop(state);
            self.warm(index)?;
        }
    }

    fn run_source(&self, run: &Arc<Run>, bounds: &Arc<Bounds>, pass: Option<&Arc<Pass>>) -> Source {
        let loader = match pass {
            Some(pass) => BlockLoader::of_pass(&self.sched, pass),
            None => BlockLoader::Cached(self.blocks.clone()),
        };
        Source::Run(RunIter::new(run.clone(), loader, bounds.clone()))
    }

    /// The sources of an index in a view; the runs are read through the cache unless for a `pass`.
    pub(crate) fn sources(
        &self,
        view: &IndexView,
        index: IndexId,
        bounds: &Arc<Bounds>,
        pass: Option<&Arc<Pass>>,
    ) -> Vec<Source> {
        let mut sources = Vec::with_capacity(view.memtables.len() + view.runs.len());
        for memtable in view.memtables.iter().filter(|m| m.entries() > 0) {
            sources.push(Source::Memory(MemIter::of_index(memtable.clone(), index)));
        }
        sources.extend(view.runs.iter().map(|run| self.run_source(run, bounds, pass)));
        sources
    }

    pub(crate) fn view_version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.rt.env.now_ns()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.rt.metrics
    }

    pub(crate) fn commits(&self) -> &dyn CommitTable {
        &*self.commits
    }
}
