//! The parts of an open database, made in the order that recovery needs, and its background
//! threads. Order of closing: threads first, then dirty pages, then the last checkpoint.

use crate::api::options::{COMPACTION_HELPERS, COMPACTION_TWINS, Options};
use crate::api::settings::Present;
use crate::background::ballast::Ballast;
use crate::background::checkpoint::{Checkpoint, Checkpointer, Recorded, Recorder};
use crate::background::compaction_priority::{CompactionPriority, Twin};
use crate::background::supervisor::Supervisor;
use crate::background::warm::{NEW_FILE, WARM_FILE, Warm};
use crate::backup::progress::Backups;
use crate::memory::automatic_size::AutomaticSize;
use crate::memory::memory_arbiter::MemoryArbiter;
use crate::memory::memory_budget::{self, MemoryBudget};
use crate::memory::memory_law::Division;
use crate::memory::memory_size::MemorySize;
use crate::open::checkpoint_copy::CheckpointCopies;
use crate::open::recovery::{Recovery, RecoveryReport};
use crate::open::superfile::{SUPER_FILE, SuperFile, draw_timeline};
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, CommitTable, DatabaseId, Error, Lsn, PageNo, Result};
use evenkeel_format::superblock::{Features, SUPERBLOCK_VERSION, Superblock, Timeline};
use evenkeel_io::{ABOVE_ROOT, File, OpenMode, Runtime, processor_ns};
use evenkeel_log::{Durability, Log, LogOptions};
use evenkeel_pages::{CLEANERS, Pages, PagesOptions};
use evenkeel_runs::{Runs, RunsOptions};
use evenkeel_sched::Scheduler;
use evenkeel_tables::{Chains, Store, StoreOptions, StoreParts};
use evenkeel_txn::{TxnOptions, Txns};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LOCK_FILE: &str = "evenkeel.lock";
/// Exists while a database is being created.
const CREATING_FILE: &str = "evenkeel.creating";
/// Surplus work waits this long for a seat before it looks again.
const SEAT_WAIT: Duration = Duration::from_millis(1);
/// A helper of compactions waits this long for a seat before it looks again.
const HELPER_SEAT_WAIT: Duration = Duration::from_millis(10);
/// A close writes pages for at most this time.
const CLOSE_FLUSH_NS: u64 = 3_000_000_000;
/// The name under which all compaction threads report a full disk to the ballast.
const COMPACTION: &str = "compaction";

type Lock = Option<Arc<dyn File>>;

/// An open database.
pub(crate) struct Engine {
    pub rt: Arc<Runtime>,
    pub sched: Arc<Scheduler>,
    pub log: Arc<Log>,
    pub pages: Arc<Pages>,
    pub runs: Arc<Runs>,
    pub txns: Arc<Txns>,
    pub store: Arc<Store>,
    pub checkpointer: Arc<Checkpointer>,
    /// What was wrong with the superblock's slots, and with the checkpoint record, at the open.
    superblock_found: Vec<String>,
    pub memory_size: Arc<MemorySize>,
    pub supervisor: Supervisor,
    pub backups: Backups,
    warm: Arc<Warm>,
    /// None where nothing is written.
    ballast: Option<Arc<Ballast>>,
    /// As given at open; `present` has the values that may change.
    pub options: Options,
    pub present: Present,
    pub recovery: RecoveryReport,
    pub closed: AtomicBool,
    /// The close has succeeded.
    is_settled: AtomicBool,
    _lock: Lock,
}

/// The layers before they are connected to a log.
struct Parts {
    sched: Arc<Scheduler>,
    pages: Arc<Pages>,
    txns: Arc<Txns>,
    chains: Arc<Chains>,
    runs: Arc<Runs>,
    shares: MemoryBudget,
    /// How memory is divided at first.
    division: Division,
    log_bytes: u64,
    listed_chains: Option<usize>,
}

impl Parts {
    fn new(
        sched: &Arc<Scheduler>,
        options: &Options,
        page_size: u32,
        superblock: Option<&Superblock>,
    ) -> Result<Parts> {
        let shares = MemoryBudget::of(options.memory_size).with(&options.geometry);
        let redoes = superblock.is_some_and(|superblock| !superblock.clean);
        let division = shares.first_division(redoes);
        let log_bytes = options.geometry.log_bytes.unwrap_or(options.log_size);
        let pages_options = PagesOptions {
            page_size: page_size as usize,
            pool_bytes: memory_budget::pool_bytes(division.frames) as usize,
            doublewrite: options.doublewrite,
            log_bytes,
        };
        let pages = match superblock {
            None => Pages::create(sched.clone(), pages_options)?,
            Some(superblock) => Pages::open(sched.clone(), pages_options, superblock.page_redo)?,
        };
        pages.check_payloads_with(evenkeel_format::node::check_page);
        let default = TxnOptions::default();
        let txn_options = TxnOptions {
            undo_bytes: shares.undo_bytes as usize,
            lock_bytes: shares.lock_bytes as usize,
            segment_ids: options.geometry.commit_segment_ids.unwrap_or(default.segment_ids),
            ..default
        };
        let txns = Txns::create(sched.runtime().clone(), txn_options);
        let runs_options =
            RunsOptions { generation_bytes: division.generation, cache_bytes: division.blocks };
        let commits: Arc<dyn CommitTable> = txns.clone();
        let runs = Runs::create(sched.clone(), runs_options, commits)?;
        runs.set_resident_bytes(shares.resident_bytes);
        let chains = Arc::<Chains>::default();
        let sched = sched.clone();
        let listed_chains = options.geometry.listed_chains;
        Ok(Parts { sched, pages, txns, chains, runs, shares, division, log_bytes, listed_chains })
    }

    /// Begins a log epoch at `start` and connects every layer to it.
    fn connect(&self, epoch: u32, start: Lsn, durability: Durability) -> Result<Arc<Log>> {
        let log_options = LogOptions {
            log_bytes: self.log_bytes,
            buffer_bytes: self.shares.log_buffer_bytes as usize,
            epoch,
        };
        let log = match durability {
            Durability::Sync => Log::create(self.sched.runtime().clone(), log_options, start)?,
            // Commits wait for the write at most: it need not wait for the device.
            Durability::Write | Durability::Lazy => {
                Log::create_buffered(self.sched.runtime().clone(), log_options, start)?
            }
        };
        self.pages.attach_log(log.clone())?;
        self.txns.attach_log(log.clone());
        self.runs.attach_log(log.clone());
        Ok(log)
    }

    fn recorder(&self, log: &Arc<Log>) -> Recorder {
        Recorder {
            rt: self.sched.runtime().clone(),
            log: log.clone(),
            pages: self.pages.clone(),
            runs: self.runs.clone(),
            txns: self.txns.clone(),
            chains: self.chains.clone(),
            listed_chains: self.listed_chains,
        }
    }

    fn store_parts(&self, log: &Arc<Log>) -> StoreParts {
        StoreParts {
            sched: self.sched.clone(),
            log: log.clone(),
            pages: self.pages.clone(),
            runs: self.runs.clone(),
            txns: self.txns.clone(),
            chains: self.chains.clone(),
        }
    }
}

impl Engine {
    /// Opens or creates the database at `path`.
    pub(crate) fn open(path: &Path, mut options: Options) -> Result<Arc<Engine>> {
        options.check()?;
        let automatic =
            (options.memory_size == 0).then(|| AutomaticSize::of(options.machine_bytes()));
        if let Some(bounds) = automatic {
            options.memory_size = bounds.first;
        }
        if options.env.is_none() && path.as_os_str().is_empty() {
            return Err(Error::new(Code::NotADatabase).with("path", "an empty text"));
        }
        let rt = Runtime::new(options.environment(path));
        let sched = Scheduler::new(rt.clone());
        // A given environment has no known number of cores.
        if options.env.is_none() {
            rt.explain();
            sched.set_cores(evenkeel_io::real::cores());
        }
        let start = rt.env.now_ns();
        let names = rt.env.list("")?;
        let exists = names.iter().any(|n| n == SUPER_FILE);
        if !exists {
            check_may_create(path, &options, &names)?;
        }
        rt.env.create_dir("")?;
        let lock = take_lock(path, &options, &rt)?;
        let mut engine = if exists {
            Engine::open_existing(sched, options, lock)?
        } else {
            Engine::create(sched, options, lock)?
        };
        if !engine.options.read_only {
            let shares =
                MemoryBudget::of(engine.options.memory_size).with(&engine.options.geometry);
            let runs = engine.runs.clone();
            let tell = move |is_gone| runs.set_short(is_gone);
            engine.ballast = Some(Ballast::open(&engine.rt, shares.ballast_bytes(), tell)?);
            // Left by a crash while a list was written.
            if names.iter().any(|n| n == NEW_FILE) {
                engine.rt.env.remove(NEW_FILE)?;
            }
        }
        if names.iter().any(|n| n == WARM_FILE) {
            engine.warm = Arc::new(Warm::new(&engine.rt, &engine.pages, true));
        }
        let report = &mut engine.recovery;
        report.page_reads = engine.rt.metrics.get(Metric::PageReads);
        report.read_bytes = engine.rt.metrics.get(Metric::FileReadBytes);
        report.losers = engine.txns.rolling_back_count() as u64;
        report.ns = engine.rt.env.now_ns().saturating_sub(start);
        log::info!("{}: {}", path.display(), report);
        let engine = Arc::new(engine);
        log_failure(&engine.rt);
        if let Some(bounds) = automatic {
            engine.memory_size.follow(bounds)?;
        }
        engine.start_threads()?;
        Ok(engine)
    }

    /// Makes a new database. The superblock comes last: a directory with the marker file and
    /// without a superblock is a creation that was cut short, and is begun anew. The directory's
    /// own name is durable before the superblock has its name.
    fn create(sched: Arc<Scheduler>, options: Options, lock: Lock) -> Result<Engine> {
        let rt = sched.runtime();
        rt.env.open(CREATING_FILE, OpenMode::READ_WRITE)?.sync()?;
        rt.env.sync_dir("")?;
        if !fault_injection::is(Fault::RootNameNotSynced) {
            rt.env.sync_dir(ABOVE_ROOT)?;
        }
        for dir in ["wal", "pages", "runs", "undo"] {
            for name in rt.env.list(dir)? {
                rt.env.remove(&format!("{dir}/{name}"))?;
            }
        }
        rt.set_database(DatabaseId(rt.env.random()));
        let page_size = options.page_size_to_create();
        let parts = Parts::new(&sched, &options, page_size, None)?;
        let log = parts.connect(1, Lsn::ZERO, options.durability)?;
        parts.runs.finish_restore()?;
        let store = Store::create(parts.store_parts(&log), store_options(&options, &parts.shares))?;
        let recorder = parts.recorder(&log);
        let Recorded { redo, page_redo, checkpoint, behind } = recorder.record()?;
        let copies = CheckpointCopies::new();
        let copy = copies.keep(rt, &log, checkpoint, behind)?;
        let mut superblock = Superblock {
            version: SUPERBLOCK_VERSION,
            sequence: 1,
            database_id: rt.database(),
            page_size,
            epoch: 1,
            clean: false,
            checkpoint,
            redo,
            catalog_root: store.catalog_root(),
            page_redo,
            features: Features::default(),
            timeline: Timeline { id: draw_timeline(rt), ..Timeline::default() },
        };
        superblock.set_checkpoint_copy(copy.is_some());
        let superfile = SuperFile::create(rt, superblock)?;
        copies.named(copy);
        log.set_checkpoint(redo)?;
        rt.env.remove(CREATING_FILE)?;
        Engine::assemble(parts, recorder, store, (superfile, copies), options, lock)
    }

    fn open_existing(sched: Arc<Scheduler>, options: Options, lock: Lock) -> Result<Engine> {
        let rt = sched.runtime();
        let superfile = SuperFile::open(rt, true)?;
        let superblock = superfile.get();
        if !options.read_only {
            superfile.check_writable()?;
        }
        if let Some(asked) = options.page_size
            && asked != superblock.page_size
        {
            return Err(Error::new(Code::PageSizeMismatch)
                .with("asked", asked)
                .with("database", superblock.page_size));
        }
        rt.set_database(superblock.database_id);
        // Before pages are read: files put together from two databases are told by their log.
        evenkeel_log::check_segments(rt, superblock.redo)?;
        let copies = CheckpointCopies::open(rt, &superblock)?;
        let parts = Parts::new(&sched, &options, superblock.page_size, Some(&superblock))?;
        let mut report = RecoveryReport { clean: superblock.clean, ..RecoveryReport::default() };
        let recovery = Recovery {
            rt,
            pages: &parts.pages,
            runs: &parts.runs,
            txns: &parts.txns,
            chains: &parts.chains,
            superblock: superblock.clone(),
            memory_size: options.memory_size,
        };
        let end = recovery.run(&mut report)?;
        let root: PageNo = superblock.catalog_root;
        // A database that cannot be opened stays unchanged: everything indispensable is read before
        // anything is written. The exception is pages that redo wrote because they did not fit the
        // pool; they are as the log says, and the next open finds them so.
        parts.pages.load_space()?;
        evenkeel_tree::read_nodes(&parts.pages, evenkeel_tables::catalog::TREE, root)?;
        let epoch = end.epoch.max(superblock.epoch) + 1;
        let log = parts.connect(epoch, end.end, options.durability)?;
        log.set_checkpoint(superblock.redo)?;
        if !options.read_only {
            // The remains of a killed compaction may be large: the open does not wait for their
            // removal.
            rt.start_deletes();
        }
        parts.runs.finish_restore()?;
        parts.txns.finish_recovery()?;
        let store_options = store_options(&options, &parts.shares);
        let store = Store::open(parts.store_parts(&log), store_options, root)?;
        parts.runs.drop_unknown()?;
        superfile.update(rt, |s| {
            s.clean = false;
            s.epoch = epoch;
            // A reader's changes stay in memory, and it shows the directory as it is.
            if !options.read_only {
                s.convert(|| draw_timeline(rt));
            }
        })?;
        let recorder = parts.recorder(&log);
        let files = (superfile, copies);
        let mut engine = Engine::assemble(parts, recorder, store, files, options, lock)?;
        engine.recovery = report;
        Ok(engine)
    }

    fn assemble(
        parts: Parts,
        recorder: Recorder,
        store: Arc<Store>,
        (superfile, copies): (SuperFile, CheckpointCopies),
        options: Options,
        lock: Lock,
    ) -> Result<Engine> {
        let Parts { sched, pages, txns, runs, shares, division, .. } = parts;
        let rt = sched.runtime().clone();
        let lending = MemoryArbiter::new(&rt, &pages, &runs, &shares, division)?;
        let (bytes, geometry) = (options.memory_size, options.geometry);
        let memory_size = MemorySize::new(bytes, &lending, &txns, &store, &rt, geometry);
        let memory_size = Arc::new(memory_size);
        let log = recorder.log.clone();
        let superblock_found = [superfile.found(), copies.found()].concat();
        let checkpointer = Arc::new(Checkpointer::new(recorder, superfile, copies));
        if !options.read_only {
            let checkpointer = checkpointer.clone();
            store.on_features(move |bits| checkpointer.set_incompatible(bits))?;
        }
        Ok(Engine {
            memory_size,
            warm: Arc::new(Warm::new(&rt, &pages, false)),
            supervisor: Supervisor::new(rt.clone(), options.workers(&rt)),
            backups: Backups::default(),
            rt,
            sched,
            log,
            pages,
            runs,
            txns,
            store,
            checkpointer,
            superblock_found,
            present: Present::new(&options),
            options,
            ballast: None,
            recovery: RecoveryReport::default(),
            closed: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
            _lock: lock,
        })
    }

    /// Start producers before consumers: threads stop in the opposite order. A read-only database
    /// has only the actors that read pages in and free frames. What the others would write stays in
    /// memory (`OverlayEnv`) and is as large as what they would read.
    fn start_threads(&self) -> Result<()> {
        if self.options.read_only {
            return self.start_readers();
        }
        self.pages.rest_when_quiet();
        self.start_readers()?;
        self.start_writers()
    }

    fn start_readers(&self) -> Result<()> {
        let (sup, log) = (&self.supervisor, &self.log);
        let l = log.clone();
        let l2 = log.clone();
        sup.start_timed("ek-log", log.event(), move || l.beat(), move || l2.next_beat_in())?;
        let cleaners: [&str; CLEANERS] = ["ek-cleaner", "ek-cleaner-2"];
        for name in cleaners {
            let p = self.pages.clone();
            let p2 = p.clone();
            let rest = move || p2.next_clean_in();
            sup.start_timed(name, p.clean_event(), move || p.clean_beat(), rest)?;
        }
        let p = self.pages.clone();
        let p2 = p.clone();
        let rest = move || p2.next_free_frames_in();
        sup.start_timed("ek-frames", p.free_frames_event(), move || p.free_frames_beat(), rest)?;
        let p = self.pages.clone();
        sup.start("ek-prefetch", p.prefetch_event(), move || p.prefetch_beat())?;
        if self.warm.is_due() {
            let warm = self.warm.clone();
            sup.start("ek-warm", Arc::default(), move || warm.beat())?;
        }
        let (m, m2) = (self.memory_size.clone(), self.memory_size.clone());
        sup.start_timed("ek-memory", m.event(), move || m.beat(), move || m2.rest())
    }

    fn start_writers(&self) -> Result<()> {
        let (sup, log) = (&self.supervisor, &self.log);
        let (c, warm) = (self.checkpointer.clone(), self.warm.clone());
        let beat = move || {
            let before = c.superblock().sequence;
            let done = c.beat();
            if c.superblock().sequence != before {
                warm.save_if_old();
            }
            done
        };
        sup.start("ek-checkpoint", log.pressure(), self.required("checkpoint", beat))?;
        let rt = self.rt.clone();
        sup.start("ek-delete", rt.start_deletes(), move || rt.delete_beat())?;
        let p = self.pages.clone();
        sup.start("ek-extents", p.reclaim_event(), move || p.reclaim_beat())?;
        self.start_flusher()?;
        self.start_compactors()?;
        if let Some(b) = self.ballast.clone() {
            let b2 = b.clone();
            sup.start_timed("ek-ballast", b.event(), move || b.beat(), move || b2.rest())?;
        }
        let t = self.store.trees().clone();
        let t2 = t.clone();
        // A rising horizon raises no event: look again each second while dead leaves wait for it.
        let (s, s2) = (self.store.clone(), self.store.clone());
        let rest = move || {
            let leaves = (t2.reclaim_len() > 0).then_some(Duration::from_secs(1));
            [leaves, s2.next_statistics_in()].into_iter().flatten().min()
        };
        let sched = self.sched.clone();
        // Nobody waits for leaves or statistics.
        let leaves = move || match sched.seat_for(SEAT_WAIT) {
            Some(_seat) => match t.reclaim_beat()? {
                Beat::Idle => s.statistics_beat(),
                Beat::More => Ok(Beat::More),
            },
            None => Ok(Beat::More),
        };
        sup.start_timed("ek-leaves", self.store.trees().reclaim_event(), leaves, rest)?;
        let (s, t, r) = (self.store.clone(), self.txns.clone(), self.runs.clone());
        let l = log.clone();
        let mut orphans = true;
        let s2 = s.clone();
        // Chains wait for snapshots to end, which raises no event.
        let rest = move || s2.waits_for_snapshots().then_some(Duration::from_secs(1));
        let undo = move || {
            if std::mem::take(&mut orphans) {
                s.remove_orphans()?;
            }
            let reverted = s.rollback_beat();
            // Without an unflushed generation the next one may begin at the log's end. Read the end
            // first, or an id could leave the table while a generation still needs it (A5).
            let end = l.end();
            let low = r.low_lsn().unwrap_or(end);
            let pending = |id| r.is_pending(id) || s.is_needed(id);
            // Run each even if one finds the disk full: the others may free space.
            let others = [t.spill_beat(), t.purge_beat_but(Some(low), &pending), s.chain_beat()];
            others.into_iter().fold(reverted, |all, one| match (all, one) {
                (Err(error), _) | (_, Err(error)) => Err(error),
                (Ok(Beat::More), _) | (_, Ok(Beat::More)) => Ok(Beat::More),
                _ => Ok(Beat::Idle),
            })
        };
        let undo = self.required("undo", undo);
        sup.start_timed("ek-undo", self.txns.event(), undo, rest)
    }

    fn start_flusher(&self) -> Result<()> {
        let (r, r2) = (self.runs.clone(), self.runs.clone());
        let mut flush = self.required("flush", move || r.flush_beat());
        let flush = move || {
            flush().inspect(|beat| {
                if *beat == Beat::More {
                    r2.flush_rest();
                }
            })
        };
        self.supervisor.start("ek-flush", self.runs.flush_event(), flush)
    }

    fn start_compactors(&self) -> Result<()> {
        let (sup, r) = (&self.supervisor, self.runs.clone());
        let (begun, helped) = (r.compaction_event(), r.help_event());
        let rest = move || r.next_compaction_in();
        let helpers = &COMPACTION_HELPERS[..self.options.compaction_helpers()];
        if !self.options.has_twins() {
            sup.start_timed("ek-compact", begun, self.merging(), rest)?;
            return helpers.iter().try_for_each(|name| {
                let (beat, rest) = self.compaction_helping();
                sup.start_timed(name, helped.clone(), beat, rest)
            });
        }
        let events = [begun.clone(), helped.clone()];
        let precedence = CompactionPriority::new(self.sched.clone(), events);
        let [usual, low] = Twin::both(&precedence);
        let (both, rest) = (["ek-compact", COMPACTION_TWINS[0]], Arc::new(rest));
        for (name, twin) in both.into_iter().zip([usual, low]) {
            let (rest, has_turn) = (rest.clone(), twin.turn());
            let rest = move || if has_turn() { rest() } else { None };
            let is_low = twin.is_low();
            let beat = self.in_turn(twin, self.merging());
            sup.start_at(is_low, name, begun.clone(), beat, rest)?;
        }
        for names in helpers.iter().zip(&COMPACTION_TWINS[1..]) {
            let [usual, low] = Twin::both(&precedence);
            for (name, twin) in [(names.0, usual), (names.1, low)] {
                let is_low = twin.is_low();
                let (beat, rest) = self.compaction_helping();
                sup.start_at(is_low, name, helped.clone(), self.in_turn(twin, beat), rest)?;
            }
        }
        Ok(())
    }

    /// The beats of one of two twins.
    fn in_turn(
        &self,
        mut twin: Twin,
        mut beat: impl FnMut() -> Result<Beat> + Send + 'static,
    ) -> impl FnMut() -> Result<Beat> + Send + 'static {
        let env = self.rt.env.clone();
        let mut thread = None;
        move || {
            // The system counts for each thread.
            if thread.replace(std::thread::current().id()) != Some(std::thread::current().id()) {
                twin.begin_thread(processor_ns());
            }
            twin.beat(|| env.now_ns(), processor_ns, &mut beat)
        }
    }

    /// The beats of a helper, and how long it rests: a helper without a seat looks again.
    fn compaction_helping(
        &self,
    ) -> (
        impl FnMut() -> Result<Beat> + Send + 'static,
        impl Fn() -> Option<Duration> + Send + 'static,
    ) {
        let (r, ballast) = (self.runs.clone(), self.ballast.clone());
        let seats = self.supervisor.helper_seats();
        let waits = Arc::new(AtomicBool::new(false));
        let has_waited = waits.clone();
        let beat = move || {
            let seat = seats.as_ref().map(|seats| seats.take());
            waits.store(matches!(seat, Some(None)), Ordering::Relaxed);
            if matches!(seat, Some(None)) {
                return Ok(Beat::Idle);
            }
            let result = r.compaction_help_beat();
            if let (Some(ballast), true) = (&ballast, result.is_err() && r.needs_space()) {
                ballast.note(COMPACTION, &result);
                // The thread that begins compactions notes the end, so notify it afterwards.
                r.compaction_event().notify();
            }
            result
        };
        (beat, move || has_waited.load(Ordering::Relaxed).then_some(HELPER_SEAT_WAIT))
    }

    /// Wraps required work, which may use the ballast when the disk is full.
    fn required(
        &self,
        name: &'static str,
        mut beat: impl FnMut() -> Result<Beat> + Send + 'static,
    ) -> impl FnMut() -> Result<Beat> + Send + 'static {
        let ballast = self.ballast.clone();
        move || {
            let result = beat();
            if let Some(ballast) = &ballast {
                ballast.note(name, &result);
            }
            result
        }
    }

    /// A compaction that ingest needs, or that frees space, may use the ballast; an idle compaction
    /// may not. The work is done once no other thread compacts either.
    fn merging(&self) -> impl FnMut() -> Result<Beat> + Send + 'static {
        let (runs, ballast) = (self.runs.clone(), self.ballast.clone());
        move || {
            let result = runs.compaction_beat();
            let counts = match &result {
                Ok(Beat::More) => true,
                Ok(Beat::Idle) => !runs.are_compactions_needed(),
                Err(_) => runs.needs_space(),
            };
            if let (Some(ballast), true) = (&ballast, counts) {
                ballast.note(COMPACTION, &result);
            }
            result
        }
    }

    /// # Errors
    /// `DatabaseClosed`; `Forked`.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.rt.is_forked() {
            return Err(Error::new(Code::Forked).with("pid", std::process::id()));
        }
        match self.closed.load(Ordering::Acquire) {
            true => Err(Error::new(Code::DatabaseClosed)),
            false => Ok(()),
        }
    }

    /// Problems of the superblock's slots and of both homes of the checkpoint record. For a
    /// read-only database these are the ones found at the open, because its copy in memory is
    /// repaired.
    ///
    /// # Errors
    /// Those of the environment.
    pub(crate) fn superblock_problems(&self) -> Result<Vec<String>> {
        let mut problems = self.checkpointer.superblock_problems()?;
        if self.options.read_only {
            let found = self.superblock_found.iter().filter(|found| !problems.contains(found));
            problems.extend(found.cloned().collect::<Vec<_>>());
        }
        Ok(problems)
    }

    /// Closes: stops the threads, writes dirty pages for at most `CLOSE_FLUSH_NS`, and takes a last
    /// checkpoint. The next open redoes the pages that are left, as after a crash; writing all
    /// pages of a large pool could take too long. Transactions still open are undecided at the next
    /// open and are rolled back there.
    ///
    /// # Errors
    /// The error that stopped writes, or a failed write: the database recovers at the next open.
    pub(crate) fn close(&self) -> Result<()> {
        if self.rt.is_forked() {
            return Err(Error::new(Code::Forked).with("pid", std::process::id()));
        }
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.settle()?;
        self.is_settled.store(true, Ordering::Release);
        Ok(())
    }

    /// Stops the threads and leaves a directory that the next open finds in order.
    fn settle(&self) -> Result<()> {
        self.backups.close(&self.rt);
        // Threads that wait for something that cannot come (log space on a full disk) give up.
        self.rt.health.close();
        if !self.options.read_only
            && self.rt.health.check_writable().is_ok()
            && let Err(error) = self.store.settle_numbers()
        {
            log::warn!("numbers of auto-increment columns will have a gap: {error}");
        }
        let stopped = self.supervisor.stop();
        self.rt.stop_deletes();
        stopped?;
        if self.options.read_only {
            return Ok(());
        }
        self.rt.health.check_writable()?;
        let clean = self.pages.flush_until(self.rt.env.now_ns().saturating_add(CLOSE_FLUSH_NS))?;
        self.warm.save();
        let last = Checkpoint::Last { clean };
        match (self.checkpointer.take(last), &self.ballast) {
            (Err(error), Some(ballast)) if error.code().is_shortage() => {
                ballast.give(&error);
                self.checkpointer.take(last)
            }
            (done, _) => done,
        }?;
        match self.log.shrink_for_close() {
            Err(error) if error.code().is_shortage() => {
                log::warn!("files of the log that are not needed stay: {error}");
                Ok(())
            }
            done => done,
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A child leaves the database to the process that has opened it.
        if self.rt.is_forked() {
            return;
        }
        if let Err(error) = self.close() {
            log::error!("closing: {error}");
        }
        if self.is_settled.load(Ordering::Acquire) && !std::thread::panicking() {
            self.check_unused();
        }
    }
}

/// Says in the log why writes have stopped, once.
fn log_failure(rt: &Arc<Runtime>) {
    let (weak, said) = (Arc::downgrade(rt), AtomicBool::new(false));
    rt.health.on_failure(move || {
        let first = weak.upgrade().and_then(|rt| rt.health.first_error());
        if let Some(error) = first
            && !said.swap(true, Ordering::Relaxed)
        {
            log::error!("writes have stopped, reads go on: {error}");
        }
    });
}

/// One process owns a directory, or several read it; a read-only open locks it too, without
/// writing to it.
fn take_lock(path: &Path, options: &Options, rt: &Runtime) -> Result<Lock> {
    if !options.read_only {
        let mode = OpenMode { lock: true, ..OpenMode::READ_WRITE };
        return rt.env.open(LOCK_FILE, mode).map(Some);
    }
    let mode = OpenMode { lock: true, ..OpenMode::READ };
    match options.base_environment(path).open(LOCK_FILE, mode) {
        Ok(file) => Ok(Some(file)),
        // A copy without the lock file: no other process can have it open.
        Err(error) if error.code() == Code::FileMissing => Ok(None),
        Err(error) => Err(error),
    }
}

fn store_options(options: &Options, shares: &MemoryBudget) -> StoreOptions {
    StoreOptions {
        lock_wait: options.lock_wait_timeout,
        build_arena_bytes: shares.build_bytes as usize,
        build_threads: options.build_threads(),
        logged_value_bytes: options.geometry.logged_value_bytes,
        collations: options.collations,
        ..StoreOptions::default()
    }
}

/// # Errors
/// `FileMissing` where `create` is off, `DirectoryNotEmpty` where the directory holds other files.
fn check_may_create(path: &Path, options: &Options, names: &[String]) -> Result<()> {
    if !options.create || options.read_only {
        let found = names.first().map_or("nothing", String::as_str);
        let error = Error::new(Code::NotADatabase).with("directory", path.display());
        return Err(error.with("found", found));
    }
    let begun = names.iter().any(|n| n == CREATING_FILE);
    if let Some(other) = names.iter().find(|n| *n != LOCK_FILE)
        && !begun
    {
        return Err(Error::new(Code::DirectoryNotEmpty)
            .with("directory", path.display())
            .with("found", other));
    }
    Ok(())
}
