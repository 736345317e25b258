//! Runs one seed: a database that is opened, worked on, and then closed or crashed, several times.
//! Each open verifies the whole database.

use crate::events::Events;
use crate::expected::{METRIC_EVENTS, crash_name, crashed_in};
use crate::model::{Model, Phase, Table, describe};
use crate::session::Session;
use crate::values::{Sizes, table_spec};
use crate::verify::{Trouble, check_at, check_recovered};
use crate::world::{Shape, World};
use evenkeel::{
    Access, Cause, Database, Durability, Error, Geometry, Isolation, Kind, Options, Txn,
};
use evenkeel_base::{metrics::Metric, sync::Mutex};
use evenkeel_io::sim::{
    CrashPolicy, Fault, FaultKind, Session as Thread, SimOptions, When, catch_crash,
};
use evenkeel_io::{Env, Event, Rng, SimDisk, SimEnv};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What a seed has to do. The default includes everything.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Least number of opens.
    pub opens: u64,
    /// Least number of operations of all sessions together: the database is opened again until they
    /// are done.
    pub ops: u64,
    /// Whether there are schema changes.
    pub ddl: bool,
    /// Whether there are two-phase commits.
    pub xa: bool,
    /// Whether there are I/O errors and full disks.
    pub faults: bool,
    /// Whether there are only index builds among savepoints and rollbacks.
    pub builds: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { opens: 4, ops: 2_000, ddl: true, xa: true, faults: true, builds: false }
    }
}

impl Config {
    /// Index builds among savepoints, partial rollbacks, aborts, flushes, compactions and crashes.
    pub fn builds() -> Config {
        Config { opens: 3, ops: 1_200, faults: false, builds: true, ..Config::default() }
    }
}

/// The results of a seed.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The reason of its failure, if it failed.
    pub failure: Option<String>,
    /// Hash of the schedule: equal for equal runs.
    pub trace: u64,
    /// Number of I/O calls.
    pub calls: u64,
    /// Operations that sessions began: statements, savepoints and schema changes, but not the begin
    /// and end of transactions.
    pub ops: u64,
    /// Sessions between two opens.
    pub sessions: u64,
    /// Number of opens.
    pub opens: u64,
    /// The greatest memory of the process meanwhile, in bytes, if it was measured.
    pub resident: u64,
}

/// More opens than any seed needs.
const OPENS_MAX: u64 = 200;

/// How the time between two opens ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    Crash,
    /// The machine crashes at this change of the disk, if it gets there.
    CrashAt(u64),
    /// The same, but at this change during a close.
    CrashInClose(u64),
}

/// One life in this many is repeated on a disk that damages files.
const DAMAGED_ONE_IN: u64 = 24;

/// Damage that a disk does to files without reporting it.
#[derive(Clone, Copy, Debug)]
struct Damaging {
    kind: FaultKind,
    path: &'static str,
    /// The event to count if the engine detects the damage.
    found: &'static str,
    /// The damage happens at one of this many calls.
    within: u64,
}

impl Damaging {
    /// Lost and misdirected writes are drawn only for files that are written once, where the engine
    /// can detect a missing write. A page that was not written is an older version of the page, and
    /// no stored data shows that (E7: there is no tag map).
    fn draw(rng: &mut Rng) -> Damaging {
        let (pages, runs) = ("pages/", "runs/");
        let (kind, path, found, within) = match rng.below(6) {
            0 => (FaultKind::ReadFlip, pages, "rot met by a reader found", 200),
            1 => (FaultKind::ReadFlip, runs, "rot met by a reader found", 40),
            2 => (FaultKind::WriteFlip, pages, "flipped bit of a write found", 40),
            3 => (FaultKind::WriteFlip, runs, "flipped bit of a write found", 10),
            4 => (FaultKind::MisdirectedWrite, runs, "misdirected write found", 10),
            _ => (FaultKind::LostWrite, runs, "lost write found", 10),
        };
        Damaging { kind, path, found, within }
    }
}

struct Run<'e> {
    rng: Rng,
    shape: Shape,
    config: Config,
    disk: SimDisk,
    model: Arc<Mutex<Model>>,
    copies: Arc<Mutex<Vec<Arc<dyn Env>>>>,
    events: &'e Arc<Events>,
    counter: u64,
    outcome: Outcome,
    /// Kept until the machine has ended: the last handle closes the database.
    opened: Arc<Mutex<Option<Database>>>,
    /// The damage that the disk does to files in this life.
    damage: Option<Damaging>,
    /// Number of injected faults that took effect in the last life.
    struck: u64,
    /// The last life ended with a kill of the process, not with a crash of the machine.
    was_killed: bool,
}

fn draw_shape(rng: &mut Rng, config: &Config) -> Shape {
    if config.builds {
        return draw_builds(rng, config);
    }
    let sessions = 3 + rng.below(3) as usize;
    let one_of = |rng: &mut Rng, from: &[u64]| from[rng.below(from.len() as u64) as usize];
    Shape {
        sessions,
        ops: config.ops / config.opens / sessions as u64,
        keys: one_of(rng, &[12, 60, 300, 1_000]),
        sizes: Sizes {
            text: one_of(rng, &[5, 60, 400]),
            large_one_in: one_of(rng, &[0, 0, 20]),
            unique: one_of(rng, &[30, 500, 100_000]),
        },
        ddl_one_in: if config.ddl { one_of(rng, &[0, 10, 40]) } else { 0 },
        xa_one_in: if config.xa { one_of(rng, &[0, 4, 12]) } else { 0 },
        lazy_one_in: one_of(rng, &[0, 2, 5]),
        statements: one_of(rng, &[2, 5, 12]),
        deletes: one_of(rng, &[1, 4, 10]),
        // Tables of numbers and one or two other kinds.
        tables: 1 | 1 << rng.below(5) | 1 << rng.below(5),
        builds: false,
    }
}

/// Few rows, changed many times, and short transactions that roll back to savepoints.
fn draw_builds(rng: &mut Rng, config: &Config) -> Shape {
    let one_of = |rng: &mut Rng, from: &[u64]| from[rng.below(from.len() as u64) as usize];
    let sessions = 2 + rng.below(3) as usize;
    Shape {
        sessions,
        ops: config.ops / config.opens / sessions as u64,
        keys: one_of(rng, &[3, 12, 60, 200]),
        sizes: Sizes {
            text: one_of(rng, &[5, 60]),
            large_one_in: 0,
            unique: one_of(rng, &[30, 100_000]),
        },
        ddl_one_in: one_of(rng, &[2, 4, 8]),
        xa_one_in: if config.xa { one_of(rng, &[0, 0, 6]) } else { 0 },
        lazy_one_in: one_of(rng, &[0, 2]),
        statements: one_of(rng, &[1, 3, 8]),
        deletes: one_of(rng, &[1, 6]),
        tables: 1,
        builds: true,
    }
}

/// Runs a seed.
pub fn run_seed(seed: u64, config: Config, events: &Arc<Events>) -> Outcome {
    let mut rng = Rng::new(seed);
    let shape = draw_shape(&mut rng, &config);
    let mut run = Run {
        shape,
        config,
        disk: SimDisk::new(rng.next_u64()),
        model: Arc::default(),
        copies: Arc::default(),
        events,
        counter: 0,
        rng,
        outcome: Outcome::default(),
        opened: Arc::default(),
        damage: None,
        struck: 0,
        was_killed: false,
    };
    run.outcome.sessions = shape.sessions as u64;
    while run.outcome.opens < config.opens || run.outcome.ops < config.ops {
        if let Err(why) = run.one_open() {
            run.outcome.failure = Some(format!("open {}: {why}", run.outcome.opens));
            break;
        }
        run.outcome.opens += 1;
        if run.outcome.opens > OPENS_MAX {
            run.outcome.failure = Some("too few operations in too many lives".to_string());
            break;
        }
        if let Err(why) = run.maybe_damaged() {
            run.outcome.failure = Some(format!("damage after open {}: {why}", run.outcome.opens));
            break;
        }
    }
    if run.outcome.failure.is_none()
        && config.faults
        && let Err(why) = run.rot()
    {
        run.outcome.failure = Some(format!("rot at the end: {why}"));
    }
    run.outcome
}

impl Run<'_> {
    fn options(&mut self, sim: &SimEnv) -> Options {
        let generation = match self.config.builds {
            true => 4 << (10 + self.rng.below(5)),
            false => 64 << 10,
        };
        // Builds of so few rows write several runs only if the arena is as small.
        let keys = self.shape.keys;
        let build_bytes = self.config.builds.then(|| keys << (2 + 2 * self.rng.below(3)));
        let geometry = Geometry {
            generation_bytes: Some(generation),
            build_bytes,
            pool_bytes: Some(64 * 4096),
            log_bytes: Some(1 << 20),
            undo_bytes: Some(64 << 10),
            // In some lives frames and run blocks share memory.
            cache_bytes: (self.rng.below(3) == 0).then_some(256 << 10),
            resident_bytes: Some(1 << 10),
            // In some lives only a part of a long value is logged, or nothing.
            logged_value_bytes: self.rng.one_in(2).then(|| 4_000 * self.rng.below(3)),
            // In some lives checkpoints list at most one chain, or none.
            listed_chains: self.rng.one_in(2).then(|| self.rng.below(2) as usize),
            commit_segment_ids: Some(16),
            machine_bytes: None,
            available_bytes: None,
            // In some lives actors share threads, as in the operating system's environment.
            shared_threads: sim.seed().is_multiple_of(4),
        };
        let mut options = Options::new().env(sim.env()).geometry(geometry);
        options.lock_wait_timeout = Duration::from_millis(20 + self.rng.below(2_000));
        // Sessions choose the durability of each commit. This chooses how the log is written: past
        // the system's page cache into files filled with zeros, or through the cache.
        let directly = self.rng.below(2) == 0;
        options.durability = if directly { Durability::Sync } else { Durability::Write };
        options
    }

    fn sim(&mut self) -> SimEnv {
        let disk = self.disk.clone();
        SimEnv::on(disk, SimOptions::new(self.rng.next_u64()))
    }

    fn draw_end(&mut self) -> End {
        // A seed whose lives crash early again and again gets a life without a crash, to make
        // progress.
        if self.outcome.opens > 3 * self.config.opens {
            return End::Close;
        }
        // A crash interrupts recovery from a kill more often, since that recovery meets writes that
        // are not synced yet.
        if self.was_killed && self.rng.one_in(2) {
            return End::CrashAt(1 + self.rng.below(120));
        }
        match self.rng.below(7) {
            0 => End::Close,
            1 => End::Crash,
            2 => End::CrashAt(1 + self.rng.below(60)),
            3 => End::CrashInClose(1 + self.rng.below(60)),
            _ => End::CrashAt(1 + self.rng.below(1_500)),
        }
    }

    /// Opens, verifies, works, then closes or crashes.
    fn one_open(&mut self) -> Result<(), String> {
        let sim = self.sim();
        let end = self.draw_end();
        if let End::CrashAt(change) = end {
            sim.disk().crash_at_change(change);
        }
        let options = self.options(&sim);
        let mut world = None;
        let done = self.live(&sim, options, end, &mut world);
        let done = match sim.panics().first() {
            Some(panic) if done.is_ok() => Err(panic.clone()),
            _ => done,
        };
        self.outcome.trace ^= sim.trace_hash();
        self.outcome.calls += sim.disk().calls();
        self.survive(&sim, done == Ok(true));
        let db = self.opened.lock().take();
        drop_world((world, db));
        done.map(|_| ())
    }

    /// After some lives, damages a copy of the files: at rest, or while one more life writes them.
    fn maybe_damaged(&mut self) -> Result<(), String> {
        if self.config.faults && self.rng.one_in(4) {
            self.rot().map_err(|why| format!("rot: {why}"))?;
        }
        if self.config.faults && self.rng.one_in(DAMAGED_ONE_IN) {
            self.damaged_life()?;
        }
        Ok(())
    }

    /// Runs a life on a disk that changes what it stores; the disk is discarded afterwards. In this
    /// life and the next the engine must refuse what it cannot read, or return correct rows.
    fn damaged_life(&mut self) -> Result<(), String> {
        let disk = self.disk.crash(CrashPolicy::Killed, 0);
        let (model, ops) = (self.model.lock().clone(), self.outcome.ops);
        let was_killed = self.was_killed;
        let damage = Damaging::draw(&mut self.rng);
        self.damage = Some(damage);
        let done = self.one_open();
        self.damage = None;
        let what = |why: String| format!("{:?} on {}: {why}", damage.kind, damage.path);
        done.map_err(what)?;
        if self.struck > 0 {
            let damaged = crate::rot::Damage::met(damage.path, damage.found);
            self.reopen_damaged(&self.disk.clone(), damaged).map_err(what)?;
        }
        (self.disk, self.outcome.ops, self.was_killed) = (disk, ops, was_killed);
        *self.model.lock() = model;
        Ok(())
    }

    /// Damages a copy of the surviving files and opens it.
    fn rot(&mut self) -> Result<(), String> {
        let copy = self.disk.crash(CrashPolicy::KeepAll, 0);
        match crate::rot::damage(&copy, &mut self.rng) {
            Some(damaged) => self.reopen_damaged(&copy, damaged),
            None => Ok(()),
        }
    }

    /// Opens a database on a damaged disk.
    fn reopen_damaged(
        &mut self,
        disk: &SimDisk,
        damaged: crate::rot::Damage,
    ) -> Result<(), String> {
        let sim = SimEnv::on(disk.clone(), SimOptions::new(self.rng.next_u64()));
        let options = self.options(&sim);
        let (model, events, on) = (self.model.clone(), self.events.clone(), sim.clone());
        let done = self.thread(&sim, "open", move || {
            crate::rot::check(&on, options, (&model, &events), &damaged);
        });
        sim.disk().crash_now();
        sim.stop();
        done
    }

    /// Runs a life up to the end of the machine; true if the database was closed.
    fn live(
        &mut self,
        sim: &SimEnv,
        options: Options,
        end: End,
        slot: &mut Option<Arc<World>>,
    ) -> Result<bool, String> {
        let Some(world) = self.open_and_verify(sim, options)? else { return Ok(false) };
        *slot = Some(world.clone());
        let mut closed = false;
        if !sim.is_crashed() {
            self.arm(sim, &world);
            self.work(sim, &world)?;
            sim.disk().clear_faults();
            self.space_comes_back(sim, &world)?;
        }
        if !sim.is_crashed() {
            self.verify_live(sim, &world)?;
        }
        if let End::CrashInClose(change) = end {
            sim.disk().crash_at_change(sim.disk().changes() + change);
        }
        if matches!(end, End::Close | End::CrashInClose(_)) && !sim.is_crashed() {
            closed = self.close(sim, &world)?;
            self.events.add("close cut by crash", u64::from(!closed && sim.is_crashed()));
        }
        self.count(&world);
        Ok(closed)
    }

    /// A kill of the process is twice as likely as a crash of the machine in any one way: what a
    /// killed process leaves unsynced is lost only by another crash.
    fn draw_policy(&mut self) -> CrashPolicy {
        let policies = CrashPolicy::ALL;
        let drawn = self.rng.below(policies.len() as u64 + 1) as usize;
        policies.get(drawn).copied().unwrap_or(CrashPolicy::Killed)
    }

    /// Ends the machine and keeps the files that survive.
    fn survive(&mut self, sim: &SimEnv, closed: bool) {
        self.struck = sim.disk().faults_struck();
        sim.disk().clear_faults();
        sim.disk().set_capacity(None);
        sim.disk().crash_now();
        sim.stop();
        if let Some(path) = sim.disk().crashed_in() {
            self.events.hit(crashed_in(&path));
        }
        let policy = self.draw_policy();
        self.was_killed = policy == CrashPolicy::Killed;
        self.events.hit(if closed { "closed and reopened" } else { crash_name(policy) });
        // A failed sync loses the writes before it.
        match self.struck == 0 {
            true if closed => self.model.lock().closed(),
            true if self.was_killed => self.model.lock().killed(),
            _ => self.model.lock().crashed(),
        }
        let loses_of_killed =
            policy != CrashPolicy::Killed && sim.disk().unsynced_of_killed("") > 0;
        self.disk = sim.disk().crash(policy, self.rng.next_u64());
        let left = |path: &str| u64::from(self.disk.unsynced_of_killed(path) > 0);
        self.events.add("crash of what a killed process left unsynced", loses_of_killed.into());
        self.events.add("killed with pages unsynced", left("pages/"));
        self.events.add("killed with log unsynced", left("wal/"));
        self.events.add("killed with the superblock unsynced", left("evenkeel.super"));
    }

    fn open_and_verify(
        &mut self,
        sim: &SimEnv,
        options: Options,
    ) -> Result<Option<Arc<World>>, String> {
        let slot = self.opened.clone();
        let (into, model, events) = (slot.clone(), self.model.clone(), self.events.clone());
        let cut = match sim.disk().paths().iter().any(|p| p.ends_with("evenkeel.super")) {
            true => "recovery cut by crash",
            false => "creation cut by crash",
        };
        let (on, shape) = (sim.clone(), self.shape);
        let faulty = self.config.faults && self.damage.is_none() && self.rng.one_in(12);
        if faulty {
            let kinds = [FaultKind::ReadError, FaultKind::WriteError, FaultKind::SyncError];
            let kind = kinds[self.rng.below(3) as usize];
            sim.disk().inject(Fault::new(kind, When::Nth(1 + self.rng.below(40))));
        }
        let relies = self.was_killed && self.damage.is_none() && self.rng.one_in(2);
        self.thread(sim, "open", move || {
            let opened = Database::open_with("db", options);
            on.disk().clear_faults();
            let db = match opened {
                Ok(db) => db,
                Err(error) if on.disk().faults_struck() > 0 && !on.is_crashed() => {
                    let io = matches!(error.kind(), Kind::Io | Kind::ReadOnly);
                    assert!(io, "open with an I/O error: {error}");
                    events.hit("EIO in recovery");
                    return;
                }
                Err(_) if on.is_crashed() => {
                    events.hit(cut);
                    return;
                }
                Err(error) => panic!("open: {error}"),
            };
            // However the log is written, commits are synced unless a session chooses otherwise.
            db.set("durability", 1).expect("durability changes while open");
            *into.lock() = Some(db.clone());
            if relies {
                return rely_on_found(&db, &on, &events);
            }
            let mut work = model.lock().clone();
            let checked = check_recovered(&db, &mut work);
            if std::env::var_os("EVENKEEL_SIM_TRACE").is_some() {
                eprintln!("opened: {checked:?}, {:?}", db.recovery());
            }
            match checked {
                Ok(lost) => {
                    events.add("commit lost that nobody was told of", lost);
                    events.add("prepared transaction recovered", work.prepared.len() as u64);
                    let before = model.lock();
                    let known = before.prepared.iter().filter(|(_, p)| p.phase == Phase::Sure);
                    let gone = known.filter(|(xid, _)| !work.prepared.contains_key(*xid));
                    let gone = gone.count() as u64;
                    events.add("prepared transaction lost that was not synced", gone);
                    drop(before);
                    *model.lock() = work;
                    make_tables(&db, &shape, &model, &on);
                }
                Err(_) if on.is_crashed() => {}
                Err(Trouble::Error(error)) => panic!("after recovery: {error}"),
                Err(Trouble::Differs(what)) => panic!("after recovery: {what}"),
            }
        })?;
        let db = slot.lock().clone();
        Ok(db.map(|db| self.world(sim, db)))
    }

    /// The state that the sessions of this life share.
    fn world(&self, sim: &SimEnv, db: Database) -> Arc<World> {
        let world = World {
            db,
            model: self.model.clone(),
            copies: self.copies.clone(),
            events: self.events.clone(),
            sim: sim.clone(),
            shape: self.shape,
            faulty: AtomicBool::new(sim.disk().faults_struck() > 0),
            syncs_fail: AtomicBool::new(false),
            may_be_full: AtomicBool::new(false),
            damage: self.damage.map(|damage| damage.found),
            ops: AtomicU64::new(0),
            unsure: Mutex::default(),
            counter: AtomicU64::new(self.counter),
        };
        // A dirty read sees the rows of prepared transactions.
        for prepared in self.model.lock().prepared.values() {
            let mut unsure = world.unsure.lock();
            prepared.effects.keys().for_each(|(_, id)| unsure.touch(*id));
        }
        Arc::new(world)
    }

    /// Injects faults in some runs.
    fn arm(&mut self, sim: &SimEnv, world: &World) {
        if !self.config.faults {
            return;
        }
        let rng = &mut self.rng;
        if let Some(damage) = self.damage {
            // Early enough that the fault takes effect at all.
            let nth = When::Nth(1 + rng.below(damage.within));
            sim.disk().inject(Fault::on(damage.path, damage.kind, nth));
            return;
        }
        let nth = When::Nth(1 + rng.below(400));
        let kind = match rng.below(24) {
            0 => FaultKind::WriteError,
            1 => FaultKind::ShortWrite,
            2 => FaultKind::SyncError,
            3 => FaultKind::NameError,
            4 => {
                let chance = When::Chance(1_000 + rng.below(20_000) as u32);
                sim.disk().inject(Fault::new(FaultKind::ReadError, chance));
                world.faulty.store(true, Ordering::SeqCst);
                return;
            }
            5 | 6 => {
                let room = rng.below(3) * (64 << 10);
                sim.disk().set_capacity(Some(sim.disk().used_bytes() + room));
                world.may_be_full.store(true, Ordering::SeqCst);
                return;
            }
            _ => return,
        };
        sim.disk().inject(Fault::new(kind, nth));
        world.syncs_fail.store(kind == FaultKind::SyncError, Ordering::SeqCst);
        world.faulty.store(true, Ordering::SeqCst);
    }

    /// After the disk was full: frees space, and checks that the sessions work again without a
    /// restart.
    fn space_comes_back(&mut self, sim: &SimEnv, world: &Arc<World>) -> Result<(), String> {
        if !world.may_be_full.load(Ordering::SeqCst) || sim.is_crashed() {
            return Ok(());
        }
        sim.disk().set_capacity(None);
        let env = sim.env();
        self.thread(sim, "rest", move || {
            let never = Arc::new(Event::new());
            env.wait(&never, never.now(), Some(Duration::from_secs(2)), Cause::Idle);
        })?;
        if sim.is_crashed() {
            return Ok(());
        }
        world.may_be_full.store(false, Ordering::SeqCst);
        self.work(sim, world)?;
        if !sim.is_crashed() {
            self.events.hit("disk full met and survived");
        }
        Ok(())
    }

    fn work(&mut self, sim: &SimEnv, world: &Arc<World>) -> Result<(), String> {
        let mut threads: Vec<Thread> = Vec::new();
        if self.rng.one_in(2) {
            let (world, wait) = (world.clone(), Duration::from_micros(1 << self.rng.below(18)));
            threads.push(Box::new(move || audit(&world, wait)));
        }
        for _ in 0..self.shape.sessions {
            let session = Session::new(world.clone(), self.rng.next_u64());
            threads.push(Box::new(move || session.run()));
        }
        let done = sim.try_run(threads);
        self.counter = world.next() + 1;
        self.outcome.ops += world.ops.swap(0, Ordering::SeqCst);
        done
    }

    /// Compares everything with the model, in the open database.
    fn verify_live(&mut self, sim: &SimEnv, world: &Arc<World>) -> Result<(), String> {
        let world = world.clone();
        self.thread(sim, "verify", move || {
            let model = world.model.lock().clone();
            let done = world.db.begin(Isolation::RepeatableRead, Access::ReadOnly);
            let done = done.and_then(|mut txn| {
                let at = newest_snapshot(&world, &mut txn)?;
                Ok(check_at(&mut txn, &world.db, &model, at, true))
            });
            match done {
                Ok(Ok(())) if world.faulty.load(Ordering::SeqCst) => {
                    world.events.hit("read everything after faults");
                }
                Ok(Ok(())) => {}
                _ if world.sim.is_crashed() => {}
                Ok(Err(Trouble::Error(error))) | Err(error) if world.is_damage(&error) => {}
                Ok(Err(Trouble::Differs(what))) => panic!("at the end: {what}"),
                Ok(Err(Trouble::Error(error))) | Err(error) => panic!("at the end: {error}"),
            }
        })
    }

    fn close(&mut self, sim: &SimEnv, world: &Arc<World>) -> Result<bool, String> {
        let (db, at) = (world.db.clone(), sim.clone());
        let faulty = world.faulty.load(Ordering::SeqCst);
        let on = world.clone();
        let closed = Arc::new(AtomicBool::new(false));
        let done = closed.clone();
        self.thread(sim, "close", move || match db.clone().close() {
            Ok(()) => {
                db.check_unused();
                done.store(true, Ordering::SeqCst);
            }
            Err(_) if at.is_crashed() => {}
            Err(_) if faulty => {}
            Err(error) if on.is_damage(&error) => {}
            Err(error) => panic!("close: {error}"),
        })?;
        let closed = closed.load(Ordering::SeqCst);
        if closed {
            let mut model = self.model.lock();
            let last = model.last();
            model.ack(last);
        }
        Ok(closed)
    }

    fn thread(
        &self,
        sim: &SimEnv,
        what: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), String> {
        let run = AssertUnwindSafe(|| sim.try_run(vec![Box::new(body)]));
        match catch_unwind(|| catch_crash(run)) {
            Ok(Some(done)) => done.map_err(|why| format!("{what}: {why}")),
            Ok(None) => Ok(()),
            Err(_) => Err(format!("{what}: the driver panicked")),
        }
    }

    fn count(&self, world: &World) {
        let stats = world.db.stats();
        for (metric, name) in METRIC_EVENTS {
            self.events.add(name, stats.get(*metric));
        }
        let merging = stats.get(Metric::CompactionsStarted);
        let ended =
            stats.get(Metric::CompactionsFinished) + stats.get(Metric::CompactionsAbandoned);
        if world.sim.is_crashed() && merging > ended {
            self.events.hit("compaction cut by crash");
        }
        let report = world.db.recovery();
        self.events.add("row replayed", report.rows);
        self.events.add("opened after a clean close", u64::from(report.clean));
        self.events.add("recovered", u64::from(!report.clean && report.records > 0));
    }
}

/// A checkpoint discards the log of what a killed process wrote and this process has found. The
/// machine crashes before anything else is written.
fn rely_on_found(db: &Database, on: &SimEnv, events: &Events) {
    match db.checkpoint() {
        Ok(()) => events.hit("checkpoint and crash after a kill"),
        Err(_) if on.is_crashed() || on.disk().faults_struck() > 0 => {}
        Err(error) => panic!("checkpoint: {error}"),
    }
    on.disk().crash_now();
}

/// Creates the tables that are missing; each is in doubt until it exists.
fn make_tables(db: &Database, shape: &Shape, model: &Mutex<Model>, sim: &SimEnv) {
    let set = |name: &str, table: Table| model.lock().tables.insert(name.to_string(), table);
    for name in shape.tables() {
        let twin = name.replace('0', "1");
        let is_there = |n: &str| model.lock().tables.get(n).is_some_and(|t| t.tree != 0);
        if is_there(name) || is_there(&twin) {
            continue;
        }
        set(name, Table { in_doubt: true, ..Table::default() });
        match db.create_table(name, &table_spec(name)) {
            Ok(()) => {
                set(name, describe(db, name));
            }
            Err(_) if sim.is_crashed() || sim.disk().faults_struck() > 0 => return,
            Err(error) => panic!("create table {name}: {error}"),
        }
    }
}

/// Drops the last handle of a database whose machine has crashed.
fn drop_world(world: (Option<Arc<World>>, Option<Database>)) {
    let _ = catch_unwind(AssertUnwindSafe(|| catch_crash(|| drop(world))));
}

/// Takes the snapshot of a transaction that has none. The snapshot must not be older than the
/// commits before it (A2).
fn newest_snapshot(world: &World, txn: &mut Txn) -> Result<u64, Error> {
    let newest = world.model.lock().last();
    let at = txn.take_snapshot()?.0;
    assert!(at >= newest, "a snapshot at {at} misses the commit at {newest}");
    Ok(at)
}

/// Holds a snapshot for a while, then reads everything as of it.
pub(crate) fn audit(world: &World, wait: Duration) {
    let begun = world.db.begin(Isolation::RepeatableRead, Access::ReadOnly);
    let done = begun.and_then(|mut txn| {
        let at = newest_snapshot(world, &mut txn)?;
        let (env, never) = (world.sim.env(), Arc::new(Event::new()));
        env.wait(&never, never.now(), Some(wait), Cause::Idle);
        let model = world.model.lock().clone();
        let late = model.last() > at;
        Ok((check_at(&mut txn, &world.db, &model, at, false), at, late))
    });
    match done {
        Ok((Ok(()), _, true)) => world.events.hit("old snapshot read in full"),
        Ok((Ok(()), _, false)) => {}
        _ if world.sim.is_crashed() => {}
        Ok((Err(Trouble::Differs(what)), at, _)) => panic!("snapshot {at}: {what}"),
        Ok((Err(Trouble::Error(error)), ..)) | Err(error) => {
            world.judge("old snapshot", &error);
        }
    }
}
