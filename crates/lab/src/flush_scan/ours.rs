//! The alternative to the flush list: the engine's own buckets of dirty pages, driven at the same
//! size by the same writers, and the engine's own index build, which dirties only pages of the
//! catalog.
//!
//! A build in the pool works as follows. Its runs go to the disk that the page cleaner uses, in
//! beats for which it asks the engine's governor. Then its pages join the buckets, are written at
//! once, and leave them. No transaction waits for the log here, so the governor sees no user wait.

use super::setup::Setup;
use evenkeel::{ColumnSpec, ColumnType, Database, IndexSpec, Metric, Options, TableSpec, Value};
use evenkeel_base::{Lsn, Result, TreeId};
use evenkeel_io::sim::SimOptions;
use evenkeel_io::{Rng, SimDisk, SimEnv};
use evenkeel_log::Limits;
use evenkeel_pages::CLEANERS;
use evenkeel_pages::dirty::{Dirty, Draining, Surroundings};
use evenkeel_pages::pacer::Pacer;
use evenkeel_pages::quota::{self, Quota};
use evenkeel_sched::laws::pacing::TICK_NS;
use evenkeel_sched::{Class, Governor, PriorityGovernor};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SECOND: u64 = 1_000_000_000;
/// A cleaner without a batch looks again after this time.
const IDLE_NS: u64 = 10_000_000;
/// Bytes of a beat of background work.
const BEAT_BYTES: u64 = 1 << 20;
/// Number of tables to which the dirty pages belong.
const TREES: u64 = 16;
/// The tree of the catalog's pages.
const CATALOG: TreeId = TreeId(TREES as u32 + 1);
/// The tree of a frame whose page became clean before the cleaner reached it.
const CLEAN: TreeId = TreeId(0);
/// Bytes of a row of the indexed table that the index holds: a number and the primary key.
const ENTRY_BYTES: u64 = 20;

/// The work of a build by the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Built {
    /// Rows of the table.
    pub rows: u64,
    /// Bytes written into runs.
    pub bytes: u64,
    /// Pages made dirty and flushed: those of the catalog.
    pub pages: u64,
}

/// Builds an index of about this many bytes with the engine, on a disk in memory in virtual time.
///
/// # Errors
/// Those of the engine.
pub fn build(bytes: u64, seed: u64) -> Result<Built> {
    let sim = SimEnv::on(SimDisk::new(seed), SimOptions::quiet(seed));
    let built = build_on(&sim, bytes / ENTRY_BYTES);
    sim.stop();
    built
}

fn build_on(sim: &SimEnv, rows: u64) -> Result<Built> {
    let db = Database::open_with("lab", Options::new().env(sim.env()))?;
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("k", ColumnType::Int32))
        .primary_key(&["id"]);
    db.create_table("small", &spec)?;
    let mut rng = Rng::new(sim.seed());
    let row = |id| [Value::Int(id), Value::Int(rng.below(1 << 31) as i64)];
    db.load_table("small", (0..rows as i64).map(row))?;
    db.checkpoint()?;
    let before = db.stats();
    db.add_indexes("small", &[IndexSpec::new("k", &["k"])])?;
    db.checkpoint()?;
    let after = db.stats();
    let grown = |metric| after.get(metric) - before.get(metric);
    let built =
        Built { rows, bytes: grown(Metric::BuildWriteBytes), pages: grown(Metric::PageWrites) };
    db.close()?;
    Ok(built)
}

/// The cost of the buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ours {
    /// Transactions ended in each second.
    pub done: Vec<u64>,
    /// The most entries visited while the mutex was held once.
    pub looks_most: u64,
    /// Entries visited in total.
    pub looks: u64,
    /// Pages that became dirty.
    pub joined: u64,
    /// Pages flushed.
    pub flushed: u64,
    /// Entries visited when the pages of the build joined and left.
    pub build_looks: u64,
    /// From the first byte that the build writes to its last page; `None`: it did not finish in
    /// time.
    pub ddl_s: Option<f64>,
}

/// A dirty page: its bucket and its frame.
type Page = (u64, u32);
type Pages = Vec<Page>;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A writer has finished the rest of its transaction.
    Body,
    /// A cleaner looks for a batch.
    Batch,
    /// The batch of a cleaner is on the disk.
    Written(Pages),
    /// The build requests its next beat.
    Build,
    /// The build writes this many bytes.
    Run(u64),
    /// The pages of the build are on the disk.
    Built(Pages),
}

/// The operations on the buckets, for a count by hand in a test.
#[cfg_attr(not(test), allow(dead_code))]
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A page joined at this end of the log.
    Join(Lsn),
    /// The page of a frame left the bucket that has this number.
    Leave(u64, u32),
    /// The pages that are older were counted.
    Older(Lsn),
    /// This many of the oldest pages were taken.
    Take(u64),
    /// The pacing law was evaluated at this time.
    Tick(u64, Surroundings),
}

struct Pool<'a> {
    setup: &'a Setup,
    dirty: Dirty,
    rng: Rng,
    quota: Quota,
    pacer: Pacer,
    limits: Limits,
    governor: PriorityGovernor,
    around: Surroundings,
    /// Delay of a transaction because the log is old.
    delay_ns: u64,
    /// The tree of each page that was ever dirty; the page's number is its frame.
    trees: Vec<TreeId>,
    draining: Draining,
    /// Pages that are being written.
    in_flight: u64,
    mutex_free: u64,
    disk_free: u64,
    /// The remaining work of the build: bytes of runs, then pages.
    build: Built,
    ours: Ours,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    ops: Vec<Op>,
}

impl Pool<'_> {
    fn note(&mut self, op: Op) {
        if cfg!(test) {
            self.ops.push(op);
        }
    }

    /// Runs `f` under the mutex from `time` on; returns the time at which the mutex is free again.
    fn locked<T>(&mut self, time: u64, f: impl FnOnce(&mut Self) -> T) -> (u64, T) {
        let before = self.dirty.looks().all;
        let result = f(self);
        let looks = self.dirty.looks().all - before;
        self.mutex_free =
            self.mutex_free.max(time) + self.setup.hold_ns + looks * self.setup.step_ns;
        (self.mutex_free, result)
    }

    fn join(&mut self, tree: TreeId) -> Page {
        let (end, frame) = (self.around.end, self.trees.len() as u32);
        self.note(Op::Join(end));
        self.dirty.join(end, frame, tree);
        self.trees.push(tree);
        self.ours.joined += 1;
        (self.dirty.bucket_of(end), frame)
    }

    /// A page of one of the tables becomes dirty.
    fn change(&mut self) {
        self.around.end.0 += self.setup.tx_log_bytes / self.setup.pages_per_tx;
        let tree = TreeId(self.rng.below(TREES) as u32 + 1);
        self.join(tree);
    }

    fn at(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, event)));
    }

    /// The time at which the disk, which has one queue, has written this many bytes.
    fn disk(&mut self, time: u64, class: Class, bytes: u64) -> u64 {
        self.disk_free = self.disk_free.max(time) + bytes * SECOND / self.setup.disk_bytes_per_sec;
        let end = self.disk_free + self.setup.io_ns;
        self.governor.report(class, 1, bytes, end - time);
        end
    }

    fn body(&mut self, time: u64) {
        let mut end = time;
        for _ in 0..self.setup.pages_per_tx {
            end = self.locked(time, Pool::change).0;
        }
        let second = (end / SECOND) as usize;
        if self.ours.done.len() <= second {
            self.ours.done.resize(second + 1, 0);
        }
        self.ours.done[second] += 1;
        let takes = self.setup.tx_ns / 2 + self.rng.below(self.setup.tx_ns) + self.delay_ns;
        self.at(end + takes, Event::Body);
    }

    fn tick(&mut self, time: u64) {
        self.note(Op::Tick(time, self.around));
        let tick = |pool: &mut Self| {
            let around = pool.around;
            pool.pacer.tick(time, around, &pool.dirty, &pool.quota)
        };
        let tick = self.locked(time, tick).1;
        let delay = self.limits.delay(tick.load.age_bytes, self.setup.tx_log_bytes);
        self.delay_ns = delay.map_or(0, |delay| delay.as_nanos() as u64);
    }

    /// A beat of a cleaner.
    fn batch(&mut self, time: u64) {
        if self.pacer.next_in(time).is_none() {
            self.tick(time);
        }
        let most = (BEAT_BYTES / self.setup.page_bytes).max(1);
        let age = self.pacer.required_age(self.limits.user());
        let required = Lsn(self.around.end.0.saturating_sub(age));
        self.note(Op::Older(required));
        let hold_up = self.locked(time, |pool| pool.dirty.older_than(required)).1;
        let none_cold = |_| Vec::new();
        let beat = quota::beat(&self.quota, time, most, hold_up, self.in_flight, none_cold);
        self.note(Op::Take(beat.old.pages));
        let mut taken = Vec::new();
        self.locked(time, |pool| {
            let Pool { draining, dirty, trees, .. } = pool;
            // Frames are numbered as pages are.
            draining.take(
                dirty,
                beat.old.pages as usize,
                |frame| frame,
                |bucket, frame| {
                    let is_there = trees[frame as usize] != CLEAN;
                    if is_there {
                        taken.push((bucket, frame));
                    }
                    is_there
                },
            )
        });
        if taken.is_empty() {
            return self.at(time + IDLE_NS, Event::Batch);
        }
        self.in_flight += taken.len() as u64;
        let bytes = taken.len() as u64 * self.setup.page_bytes;
        // The work is required, as the engine's page cleaner reports it, and is granted at once.
        self.governor.grant(Class::Checkpoint, bytes, true, time);
        let end = self.disk(time, Class::Checkpoint, bytes);
        self.at(end, Event::Written(taken));
        let next = self.quota.next_in(most, end).unwrap_or(0).min(IDLE_NS);
        self.at(end + next, Event::Batch);
    }

    fn leave(&mut self, time: u64, pages: &[Page]) {
        self.in_flight -= pages.len() as u64;
        for (bucket, frame) in pages {
            let tree = std::mem::replace(&mut self.trees[*frame as usize], CLEAN);
            self.note(Op::Leave(*bucket, *frame));
            self.locked(time, |pool| pool.dirty.leave(*bucket, tree));
            self.ours.flushed += 1;
        }
    }

    /// The build requests its next beat. When its runs are on the disk it changes pages of the
    /// catalog, which are written at once, as by a checkpoint.
    fn build(&mut self, time: u64) {
        let part = self.build.bytes.min(BEAT_BYTES);
        if part > 0 {
            let pause = self.governor.grant(Class::Ddl, part, false, time);
            return self.at(time + pause, Event::Run(part));
        }
        let looks = self.dirty.looks().all;
        let pages = (0..self.build.pages).map(|_| self.locked(time, |p| p.join(CATALOG)).1);
        let pages: Pages = pages.collect();
        self.ours.build_looks += self.dirty.looks().all - looks;
        self.in_flight += self.build.pages;
        let bytes = self.build.pages * self.setup.page_bytes;
        self.governor.grant(Class::Checkpoint, bytes, true, time);
        let end = self.disk(time, Class::Checkpoint, bytes);
        self.at(end, Event::Built(pages));
    }

    fn built(&mut self, time: u64, pages: &[Page]) {
        let looks = self.dirty.looks().all;
        self.leave(time, pages);
        self.ours.build_looks += self.dirty.looks().all - looks;
        let began = self.setup.before_s * SECOND;
        self.ours.ddl_s = Some((self.mutex_free.max(time) - began) as f64 / SECOND as f64);
    }

    fn happens(&mut self, time: u64, event: Event) {
        match event {
            Event::Body => self.body(time),
            Event::Batch => self.batch(time),
            Event::Written(pages) => self.leave(time, &pages),
            Event::Build => self.build(time),
            Event::Run(part) => {
                self.build.bytes -= part;
                let end = self.disk(time, Class::Ddl, part);
                self.at(end, Event::Build);
            }
            Event::Built(pages) => self.built(time, &pages),
        }
    }
}

/// A log size for which the age of the setup is reached when all these pages are dirty; at three
/// eighths, the target age, the cleaner must keep up. User transactions may fill the log except for
/// some segments.
pub fn log_bytes(setup: &Setup) -> u64 {
    let users = setup.pages * (setup.tx_log_bytes / setup.pages_per_tx) / setup.age_eighths * 8;
    (u128::from(users) * u128::from(users) / u128::from(Limits::of_log(users).user())) as u64
}

/// The pool without dirty pages.
fn pool<'a>(setup: &'a Setup, build: &Built) -> Pool<'a> {
    let log_bytes = log_bytes(setup);
    let frames = setup.pages / 2 * 3;
    let limits = Limits::of_log(log_bytes);
    Pool {
        setup,
        dirty: Dirty::new(log_bytes),
        rng: Rng::new(setup.seed ^ 0x0bc5),
        quota: Quota::default(),
        pacer: Pacer::default(),
        limits,
        governor: PriorityGovernor::default(),
        // As in the engine, the part of the log that users may fill.
        around: Surroundings { log_bytes: limits.user(), frames, ..Surroundings::default() },
        delay_ns: 0,
        trees: Vec::new(),
        draining: Draining::default(),
        in_flight: 0,
        mutex_free: 0,
        disk_free: 0,
        build: *build,
        ours: Ours::default(),
        events: BinaryHeap::new(),
        number: 0,
        ops: Vec::new(),
    }
}

/// The same writers on the engine's buckets for this many seconds, and from `before_s` on a build
/// that writes as much as this one did.
pub fn run(setup: &Setup, seconds: u64, build: &Built) -> Ours {
    run_noted(setup, seconds, build).0
}

/// The same, with the operations on the buckets from the first page on.
pub fn run_noted(setup: &Setup, seconds: u64, build: &Built) -> (Ours, Vec<Op>) {
    let mut pool = pool(setup, build);
    for _ in 0..setup.pages {
        pool.change();
    }
    pool.ours.joined = 0;
    let before = pool.dirty.looks().all;
    for _ in 0..setup.writers {
        let first = setup.tx_ns / 2 + pool.rng.below(setup.tx_ns);
        pool.at(first, Event::Body);
    }
    for _ in 0..CLEANERS {
        pool.at(TICK_NS, Event::Batch);
    }
    pool.at(setup.before_s * SECOND, Event::Build);
    while let Some(Reverse((time, _, event))) = pool.events.pop() {
        if time >= seconds * SECOND {
            break;
        }
        pool.happens(time, event);
    }
    pool.ours.looks = pool.dirty.looks().all - before;
    pool.ours.looks_most = pool.dirty.looks().most;
    (pool.ours, pool.ops)
}
