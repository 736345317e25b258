//! The scan of an index build: several threads read disjoint key ranges of the table, sort the
//! entries of all its new indexes in one arena, and write them as runs (F4).
//!
//! The scan alternates between two steps, each done by all threads: *collect* until the arena is
//! full or the table is read, then *write* the collected entries as one run per index, cut by key
//! into one part per thread. Between the steps only this module's caller runs, so no thread with
//! work in hand is waited for. Work is taken from a list, so any number of helpers, even none,
//! completes it. Other threads notice the error of a thread within a few rows.
//!
//! Rows inserted during the build have all their entries from their inserters. The scan skips them,
//! and skips leaves that hold nothing else (`Tree::watch_concurrent_inserts`). Otherwise a build
//! would not end while writers insert faster than it reads.

use super::arena::BuildArena;
use super::keys::KeyCopier;
use super::{BuildPhase, BuildProgress, newest_committed};
use crate::overflow;
use crate::store::Store;
use crate::table::TableState;
use evenkeel_base::fault_injection;
use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Code, Error, IndexId, Result, TxnId};
use evenkeel_format::record::cell_flags;
use evenkeel_runs::{BuiltPart, CHECK_EVERY, RunPlan, Sorted, Unsorted};
use evenkeel_sched::{BuildBudget, Class};
use evenkeel_tree::{Direction, LeafRow};
use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Rows read under one registered snapshot, about: undo is not kept for the whole scan.
const SNAPSHOT_ROWS: u64 = 1024;
/// At most this many bytes of pages are read from storage before the governor is told.
const READ_BYTES: u64 = 128 << 10;
/// Rows read between two looks at the clock, which decide whether the thread yields (F4).
const CLOCK_ROWS: u64 = 64;
/// Ranges per thread: enough for all threads to end at about the same time.
const RANGES_PER_THREAD: usize = 16;
/// Pieces of the arena that one thread fills for one index, at least.
const PIECES: usize = 16;
/// Rows from whose entries the length of all entries is estimated.
const ROWS_SEEN: u64 = 64;
/// Fewer rows are enough if their entries have this many bytes.
const BYTES_SEEN: usize = 256 << 10;
/// The arena has this many bytes for each leaf known to be inserted during the build.
const ARENA_PER_LEAF: usize = 256;
/// Bytes of a piece, which is sorted in the cache of a core.
const PIECE_BYTES_MAX: usize = 1 << 20;
const PIECE_BYTES_MIN: usize = 4 << 10;
/// If tests make the arena smaller than in any database, pieces are small as well; otherwise the
/// open pieces alone would fill it.
const PIECES_MIN: usize = 32;
const PIECE_BYTES_LEAST: usize = 32;

/// Keys still to be read: from or behind `from`, below `to`.
struct KeyRange {
    from: Bound<Vec<u8>>,
    to: Vec<u8>,
}

/// State shared by the threads of a build.
struct Scan {
    store: Arc<Store>,
    state: Arc<TableState>,
    progress: BuildProgress,
    /// Transactions from this one on have written the entries of all rows that they inserted.
    came_from: TxnId,
    /// Positions of the new indexes in the table's layout, and the copiers of their keys.
    indexes: Vec<(usize, Option<KeyCopier>)>,
    /// The next range is the last element.
    todo: Mutex<Vec<KeyRange>>,
    /// The number of ranges, the ranges that are read, and the estimated rows of one.
    ranges: f64,
    read: AtomicUsize,
    rows_of_range: f64,
    /// Sorted pieces by index, and their bytes.
    pieces: Mutex<Vec<Vec<Sorted>>>,
    bytes: AtomicUsize,
    /// The bytes that pieces may take in the present arena, and the bytes of one piece.
    bytes_max: AtomicUsize,
    piece_bytes: AtomicUsize,
    /// The size of the arena when it is written.
    round_bytes: AtomicUsize,
    /// Bytes of the largest arena.
    arena_max: usize,
    /// Pieces that are open at once: one per thread and index.
    open: usize,
    /// Times the arena was written.
    rounds: AtomicU64,
    /// Threads at work, about.
    working: AtomicUsize,
    /// The work that threads may do before they yield to users.
    budget: BuildBudget,
    /// New indexes that have their built runs.
    installed: Mutex<Vec<IndexId>>,
    /// The first error of a thread; the other threads then end.
    error: Mutex<Option<Error>>,
    failed: AtomicBool,
}

/// The least size of a piece in an arena of at most this size.
fn piece_bytes_min(arena: usize) -> usize {
    PIECE_BYTES_MIN.min(arena / PIECES_MIN).max(PIECE_BYTES_LEAST)
}

/// Reads the table and makes its entries the oldest runs of the indexes in `added`.
pub(crate) fn build_runs(
    store: &Arc<Store>,
    state: &Arc<TableState>,
    added: &[IndexId],
    progress: &BuildProgress,
) -> Result<()> {
    let _building = store.sched.building(progress.stop());
    // All transactions from this one on know the indexes.
    let planted = fault_injection::is(fault_injection::Fault::RowsPassed);
    let came_from = if planted { TxnId::ZERO } else { store.txns.next_id() };
    let watch =
        state.tree.watch_concurrent_inserts(came_from, store.build_arena_bytes() / ARENA_PER_LEAF);
    let most = store.build_arena_bytes();
    // One thread more than cores: while one waits for storage, the others work. But only as many as
    // have room for pieces: if open pieces filled the arena, each row would become a run.
    let least = 4 * piece_bytes_min(most) * (added.len() + 1);
    let mut threads = (store.build_threads.max(1) + 1).min((most / least).max(1));
    let mut scan = Scan::new(store, state, added, progress, threads, came_from)?;
    let foreseen_bytes = scan.foreseen_bytes()?;
    scan.budget = BuildBudget::for_entries(scan.foreseen_entries(), foreseen_bytes as u64);
    let scan = Arc::new(scan);
    // Run blocks lend the arena for the whole statement (F4, G3): the bytes of the entries, in
    // pieces for each thread. Few rows are read by as many threads as need no loan.
    let mut arena = BuildArena::new(store, added);
    if !arena.begin(foreseen_bytes, threads * least) {
        threads = threads.min((arena.bytes() / least).max(1));
    }
    scan.divide_anew(arena.bytes(), arena.round_bytes());
    let mut built: Vec<Vec<BuiltPart>> = added.iter().map(|_| Vec::new()).collect();
    loop {
        progress.begin(BuildPhase::Scanning, store.rt.env.now_ns());
        let ranges = scan.todo.lock().len();
        scan.in_parallel(threads.min(ranges), Scan::collect)?;
        let rounds = scan.rounds.load(Ordering::Relaxed) as usize;
        if !scan.todo.lock().is_empty() && arena.grow_full(rounds, scan.left()) {
            scan.divide_anew(arena.bytes(), arena.round_bytes());
            continue;
        }
        progress.begin(BuildPhase::Writing, store.rt.env.now_ns());
        for (built, part) in built.iter_mut().zip(scan.write(added, threads)?) {
            built.push(part);
        }
        if scan.todo.lock().is_empty() {
            break;
        }
    }
    drop(watch);
    install(&scan, added, built, threads)
}

/// Makes the written runs the oldest runs of the indexes.
fn install(
    scan: &Arc<Scan>,
    added: &[IndexId],
    built: Vec<Vec<BuiltPart>>,
    threads: usize,
) -> Result<()> {
    let Scan { store, progress, .. } = &**scan;
    // If many runs were written, the installation joins them first.
    let merged = |(id, parts): &(&IndexId, &Vec<BuiltPart>)| {
        let runs = parts.iter().filter(|part| !part.is_empty()).count();
        store.runs.are_too_many(**id, runs)
    };
    let merges = added.iter().zip(&built).filter(merged).count();
    progress.begin_merges(merges as u64, store.rt.env.now_ns());
    let full = |parts: &&Vec<BuiltPart>| parts.iter().any(|part| !part.is_empty());
    let to_install = built.iter().filter(full).count();
    let todo: Mutex<Vec<_>> = Mutex::new(added.iter().copied().zip(built).collect());
    scan.in_parallel(threads.min(to_install), move |scan| {
        loop {
            let Some((index, parts)) = todo.lock().pop() else { return Ok(()) };
            scan.check()?;
            scan.store.runs.install(index, parts, &|entries| {
                scan.progress.add_merged(entries, scan.store.rt.env.now_ns());
                scan.foresee_came();
                scan.store.rt.step();
                scan.check()
            })?;
            scan.installed.lock().push(index);
        }
    })
}

impl Scan {
    fn new(
        store: &Arc<Store>,
        state: &Arc<TableState>,
        added: &[IndexId],
        progress: &BuildProgress,
        threads: usize,
        came_from: TxnId,
    ) -> Result<Scan> {
        let unknown = || Error::internal("a build of an unknown index");
        let position = |id: &IndexId| {
            state.layout.indexes.iter().position(|i| i.id == *id).ok_or_else(unknown)
        };
        let positions = added.iter().map(position).collect::<Result<Vec<_>>>()?;
        let copier = |i: usize| KeyCopier::new(&state.layout, &state.layout.indexes[i]);
        let indexes: Vec<_> = positions.into_iter().map(|i| (i, copier(i))).collect();
        let unique = indexes.iter().filter(|i| state.layout.indexes[i.0].unique).count();
        let rows = state.tree.estimate(Bound::Unbounded, Bound::Unbounded)?;
        progress.plan(rows, indexes.len() as u64, unique as u64);
        let mut todo = Vec::new();
        let mut from = Bound::Unbounded;
        for key in state.tree.split_points(threads * RANGES_PER_THREAD)? {
            let start = std::mem::replace(&mut from, Bound::Included(key.clone()));
            todo.push(KeyRange { from: start, to: key });
        }
        // Rows behind the present last one come during the build.
        let mut last = state.tree.cursor();
        last.seek(Bound::Unbounded, Direction::Backward)?;
        let end = last.next()?.map_or_else(Vec::new, |(key, _)| [key, &[0]].concat());
        todo.push(KeyRange { from, to: end });
        todo.reverse();
        let open = indexes.len() * threads;
        Ok(Scan {
            ranges: todo.len() as f64,
            read: AtomicUsize::new(0),
            rows_of_range: rows as f64 / todo.len() as f64,
            store: store.clone(),
            state: state.clone(),
            progress: progress.clone(),
            came_from,
            todo: Mutex::new(todo),
            pieces: Mutex::new(indexes.iter().map(|_| Vec::new()).collect()),
            bytes: AtomicUsize::new(0),
            rounds: AtomicU64::new(0),
            bytes_max: AtomicUsize::new(0),
            // Seal no piece before the arena is divided.
            piece_bytes: AtomicUsize::new(usize::MAX),
            round_bytes: AtomicUsize::new(store.build_arena_bytes()),
            arena_max: store.build_arena_bytes(),
            open,
            indexes,
            working: AtomicUsize::new(1),
            // No budget before the first rows were examined.
            budget: BuildBudget::default(),
            installed: Mutex::default(),
            error: Mutex::default(),
            failed: AtomicBool::new(false),
        })
    }

    /// Runs `work` in this thread and in helpers, at most as many in all as there are pieces of
    /// work; returns the first error of any of them.
    fn in_parallel(
        self: &Arc<Self>,
        threads: usize,
        work: impl Fn(&Scan) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        let (scan, work) = (self.clone(), Arc::new(work));
        let run = move || {
            scan.store.sched.begin_build_work();
            if let Err(error) = work(&scan) {
                scan.error.lock().get_or_insert(error);
                scan.failed.store(true, Ordering::SeqCst);
            }
        };
        self.working.store(threads.max(1), Ordering::Relaxed);
        let mut helpers = Vec::new();
        for _ in 1..threads {
            let (run, scan) = (run.clone(), self.clone());
            let work = move || {
                let _building = scan.store.sched.building(scan.progress.stop());
                run();
            };
            match self.store.rt.spawn("ek-build", work) {
                Ok(task) => {
                    self.store.rt.metrics.add(Metric::BuildHelpers, 1);
                    helpers.push(task);
                }
                // Work is taken from a list, so the existing threads do it.
                Err(error) => log::warn!("an index build goes on with fewer threads: {error}"),
            }
        }
        run();
        let joined: Vec<Result<()>> = helpers.into_iter().map(|task| task.join()).collect();
        match self.error.lock().take() {
            Some(error) => Err(error),
            None => joined.into_iter().collect(),
        }
    }

    /// Yields to others every 1 ms, unless the build is a small one.
    fn give_way(&self) {
        self.store.sched.give_way_to_users(self.working.load(Ordering::Relaxed), &self.budget);
    }

    /// Yields, then says whether the thread continues.
    fn check(&self) -> Result<()> {
        self.give_way();
        if self.failed.load(Ordering::Relaxed) {
            // Not reported: the first error is reported.
            return Err(Error::new(Code::BuildCancelled));
        }
        self.progress.check()
    }

    /// Takes ranges and reads them until none is left or the arena is full.
    fn collect(&self) -> Result<()> {
        let mut collector = Collector::new(self);
        loop {
            let Some(range) = self.todo.lock().pop() else { break };
            if let Some(rest) = collector.read(range)? {
                self.todo.lock().push(rest);
                break;
            }
            self.read.fetch_add(1, Ordering::Relaxed);
        }
        (0..collector.open.len()).try_for_each(|i| collector.seal(i))
    }

    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.bytes_max.load(Ordering::Relaxed)
    }

    /// The estimated part of the table that is not read.
    fn left(&self) -> f64 {
        1.0 - self.read.load(Ordering::Relaxed) as f64 / self.ranges
    }

    /// The estimated number of entries of all the indexes.
    fn foreseen_entries(&self) -> u64 {
        (self.rows_of_range * self.ranges * self.indexes.len() as f64) as u64
    }

    /// The arena that all entries will need, estimated from the first rows.
    fn foreseen_bytes(&self) -> Result<usize> {
        let mut collector = Collector::new(self);
        let seen = collector.look()?;
        let bytes: usize = collector.open.iter().map(Unsorted::bytes).sum();
        // A quarter more, for pieces that are not full.
        let all = self.rows_of_range * self.ranges * bytes as f64 / seen.max(1) as f64;
        Ok((all * 1.25) as usize)
    }

    /// From now on the arena has `arena` bytes, and up to `round` when it is written.
    fn divide_anew(&self, arena: usize, round: usize) {
        let (piece, bytes_max) = self.divide(arena);
        self.piece_bytes.store(piece, Ordering::Relaxed);
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.round_bytes.store(round.max(arena), Ordering::Relaxed);
    }

    /// The bytes of a piece in an arena of this size, and of all sorted pieces: each thread has one
    /// open piece per index, and the copy of one while it is sorted.
    fn divide(&self, arena: usize) -> (usize, usize) {
        let least = piece_bytes_min(self.arena_max);
        let piece = (arena / (PIECES * self.open)).clamp(least, PIECE_BYTES_MAX);
        let copies = self.open / self.indexes.len();
        (piece, arena.saturating_sub(piece * (self.open + copies)))
    }

    /// Updates the expected number of rows: the more ranges are read the less the estimate counts.
    /// Ranges in work count as half done.
    fn foresee_rows(&self) {
        let at_work = self.working.load(Ordering::Relaxed) as f64 / 2.0;
        let read = (self.read.load(Ordering::Relaxed) as f64 + at_work).min(self.ranges);
        let (rows, part) = (self.progress.rows_done_here() as f64, read / self.ranges);
        let each = part * (rows / read) + (1.0 - part) * self.rows_of_range;
        self.progress.set_total_here((rows + (self.ranges - read) * each) as u64);
    }

    /// Updates the expected number of indexes whose runs are joined, from the `bytes` of entries
    /// that a thread has collected for `rows` rows in this round.
    fn foresee_merges(&self, bytes: u64, rows: u64) {
        let rounds = self.rounds.load(Ordering::Relaxed);
        let in_round = match rounds {
            0 => {
                let round = self.divide(self.round_bytes.load(Ordering::Relaxed)).1;
                rows * round as u64 / bytes.max(1)
            }
            rounds => self.progress.rows_written_here() / rounds,
        };
        let left = self.progress.rows_total_here();
        let left = left.saturating_sub(self.progress.rows_written_here());
        // An unexpected join is worse than an expected one that does not come.
        let left = left + left / 8;
        let runs = rounds + left.div_ceil(in_round.max(1));
        let id = |i: &(usize, Option<KeyCopier>)| self.state.layout.indexes[i.0].id;
        let merged = |id: &IndexId| self.store.runs.are_too_many(*id, runs as usize);
        let merged = self.indexes.iter().map(id).filter(merged).count();
        self.progress.foresee_merges(merged as u64);
    }

    /// Updates the expected number of writers' entries that the proof will meet: those in runs.
    fn foresee_came(&self) {
        let installed = self.installed.lock();
        let layout = &self.state.layout;
        let unique = self.indexes.iter().map(|i| &layout.indexes[i.0]).filter(|i| i.unique);
        let came = unique.map(|index| {
            let built = installed.contains(&index.id);
            let read = if built { self.progress.rows_total_here() } else { 0 };
            self.store.runs.live_entries(index.id).saturating_sub(read)
        });
        self.progress.foresee_came(came.sum());
    }

    /// Writes the collected entries as one run per index; the arena is then empty.
    fn write(self: &Arc<Self>, added: &[IndexId], threads: usize) -> Result<Vec<BuiltPart>> {
        let pieces: Vec<Vec<Sorted>> = self.pieces.lock().iter_mut().map(std::mem::take).collect();
        let mut plans: Vec<RunPlan> = Vec::new();
        for (index, pieces) in added.iter().zip(pieces) {
            plans.push(self.store.runs.plan_run(*index, pieces, threads)?);
        }
        let parts = |(i, plan): (usize, &RunPlan)| (0..plan.parts()).map(move |part| (i, part));
        let work: Vec<(usize, usize)> = plans.iter().enumerate().flat_map(parts).collect();
        let (plans, next) = (Arc::new(plans), AtomicUsize::new(0));
        let (shared, told) = (plans.clone(), AtomicU64::new(0));
        let indexes = added.len() as u64;
        // A row is written when the entries of all its indexes are written.
        let tell = move |scan: &Scan, entries: u64| {
            let before = told.fetch_add(entries, Ordering::Relaxed);
            let rows = (before + entries) / indexes - before / indexes;
            scan.progress.add_written(rows, scan.store.rt.env.now_ns());
        };
        self.in_parallel(threads.min(work.len()), move |scan| {
            while let Some((plan, part)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                scan.check()?;
                let last = Cell::new(0);
                shared[*plan].write(*part, &|| {
                    // An eighth counts only when the part is on disk: that much may be in buffers.
                    last.set(last.get() + u64::from(CHECK_EVERY) / 8);
                    tell(scan, u64::from(CHECK_EVERY) / 8 * 7);
                    scan.foresee_came();
                    scan.store.rt.step();
                    scan.check()
                })?;
                tell(scan, last.get());
            }
            Ok(())
        })?;
        let rest = self.progress.rows_done().saturating_sub(self.progress.rows_written());
        self.progress.add_written(rest, self.store.rt.env.now_ns());
        self.bytes.store(0, Ordering::Relaxed);
        self.rounds.fetch_add(1, Ordering::Relaxed);
        Ok(plans.iter().map(RunPlan::finish).collect())
    }
}

/// One thread's part of a collecting step.
struct Collector<'s> {
    scan: &'s Scan,
    /// By index.
    open: Vec<Unsorted>,
    key: Vec<u8>,
    /// The values that the entry stores beside its key.
    stored: Vec<u8>,
    /// Rows it has read, and bytes of the pieces it has sealed.
    rows: u64,
    sealed: u64,
}

impl<'s> Collector<'s> {
    fn new(scan: &'s Scan) -> Collector<'s> {
        let layout = &scan.state.layout;
        let open = scan.indexes.iter().map(|i| Unsorted::new(layout.indexes[i.0].id)).collect();
        Collector { scan, open, key: Vec::new(), stored: Vec::new(), rows: 0, sealed: 0 }
    }

    /// Reads the first few rows; returns their number.
    fn look(&mut self) -> Result<u64> {
        let _guard = self.scan.store.txns.snapshot();
        let mut cursor = self.scan.state.tree.cursor();
        cursor.seek(Bound::Unbounded, Direction::Forward)?;
        let mut rows = 0;
        let taken = |open: &[Unsorted]| open.iter().map(Unsorted::bytes).sum::<usize>();
        while rows < ROWS_SEEN
            && taken(&self.open) < BYTES_SEEN
            && let Some((key, cell)) = cursor.next()?
        {
            rows += u64::from(self.take(key, &cell)?);
        }
        Ok(rows)
    }

    /// Reads a range; returns the rest of it if the arena is full.
    fn read(&mut self, range: KeyRange) -> Result<Option<KeyRange>> {
        let (scan, store, state) = (self.scan, &self.scan.store, &self.scan.state);
        store.pages.take_asked_bytes();
        // The snapshot is registered before a leaf is read and as long as its copy is used: undo
        // and ids stay (A5).
        let mut guard = store.txns.snapshot();
        let mut cursor = state.tree.cursor();
        cursor.set_use_once(true);
        cursor.set_skip_concurrent_inserts();
        cursor.seek(range.from.as_ref().map(Vec::as_slice), Direction::Forward)?;
        let (mut passed, mut rows) = (0u64, 0u64);
        while let Some((key, cell)) = cursor.next()? {
            if *key >= range.to[..] {
                break;
            }
            rows += u64::from(self.take(key, &cell)?);
            passed += 1;
            let full = scan.is_full();
            if passed.is_multiple_of(CLOCK_ROWS) {
                scan.give_way();
            }
            let is_enough = passed >= SNAPSHOT_ROWS || store.pages.asked_bytes() >= READ_BYTES;
            let ends = is_enough && cursor.is_between_leaves();
            if !full && !ends {
                continue;
            }
            self.tell(std::mem::take(&mut rows));
            passed = 0;
            scan.check()?;
            store.rt.step();
            if full {
                let from = Bound::Excluded(cursor.key().to_vec());
                return Ok(Some(KeyRange { from, to: range.to }));
            }
            drop(guard);
            self.ask_for_reads();
            guard = store.txns.snapshot();
        }
        drop(guard);
        self.tell(rows);
        self.ask_for_reads();
        scan.check()?;
        Ok(None)
    }

    /// Reports the progress.
    fn tell(&mut self, rows: u64) {
        let scan = self.scan;
        scan.progress.add_rows(rows, scan.store.rt.env.now_ns());
        self.rows += rows;
        scan.foresee_rows();
        let open: usize = self.open.iter().map(Unsorted::bytes).sum();
        scan.foresee_merges(self.sealed + open as u64, self.rows);
        scan.foresee_came();
    }

    /// Reports the bytes read from storage to the governor, and waits as long as it says; pages
    /// that were in memory cost nothing. Holds neither latch nor snapshot.
    fn ask_for_reads(&self) {
        let Store { sched, pages, .. } = &*self.scan.store;
        match pages.take_asked_bytes() {
            0 => {}
            bytes => sched.ask_for_reads(Class::Ddl, bytes),
        }
    }

    /// Takes the latest committed version of a row; false if the row came during the build.
    fn take(&mut self, key: &[u8], cell: &LeafRow<'_>) -> Result<bool> {
        let (txns, tree) = (&self.scan.store.txns, self.scan.state.tree.id());
        if cell.flags & cell_flags::FIRST != 0 && cell.stamp.txn >= self.scan.came_from {
            return Ok(false);
        }
        if let Some(row) = newest_committed(txns, tree, key, cell)? {
            self.push(key, &row)?;
        }
        Ok(true)
    }

    fn push(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        let scan = self.scan;
        let mut to_decode = 0u64;
        for (i, (_, copier)) in scan.indexes.iter().enumerate() {
            self.key.clear();
            match copier {
                Some(copier) if copier.copy(key, row, &mut self.key) => {
                    self.stored.clear();
                    self.add(i, key)?;
                }
                _ => to_decode |= 1 << i,
            }
        }
        if to_decode != 0 { self.push_decoded(key, row, to_decode) } else { Ok(()) }
    }

    /// Encodes the keys of the indexes in the set `wanted` value by value.
    fn push_decoded(&mut self, key: &[u8], row: &[u8], wanted: u64) -> Result<()> {
        let scan = self.scan;
        let layout = &scan.state.layout;
        let loaded =
            overflow::load(&scan.state.tree, layout, key, row, &|i, _| layout.is_indexed(i))?;
        let view = layout.view(key, row)?.with_loaded(&loaded);
        for (i, (position, _)) in scan.indexes.iter().enumerate() {
            if wanted & 1 << i != 0 {
                self.key.clear();
                self.stored.clear();
                let index = &layout.indexes[*position];
                index.encode(&|i| view.value(i), key.len(), &mut self.key)?;
                let keys_len = self.key.len() + key.len();
                index.encode_stored(&|i| view.value(i), keys_len, &mut self.stored)?;
                self.add(i, key)?;
            }
        }
        Ok(())
    }

    /// Adds the last encoded key as an entry of an index.
    #[inline]
    fn add(&mut self, i: usize, pk: &[u8]) -> Result<()> {
        self.open[i].push(&self.key, pk, &self.stored)?;
        match self.open[i].bytes() >= self.scan.piece_bytes.load(Ordering::Relaxed) {
            true => self.seal(i),
            false => Ok(()),
        }
    }

    fn seal(&mut self, i: usize) -> Result<()> {
        let sorted = self.open[i].sort()?;
        self.sealed += sorted.bytes() as u64;
        self.scan.bytes.fetch_add(sorted.bytes(), Ordering::Relaxed);
        self.scan.pieces.lock()[i].push(sorted);
        Ok(())
    }
}
