//! What replaces the flush list: the engine's own buckets of dirty pages, driven at the same size
//! by the same writers, and the engine's own index build, which dirties one page: the catalog's.

use super::setup::Setup;
use evenkeel::{ColumnSpec, ColumnType, Database, IndexSpec, Metric, Options, TableSpec, Value};
use evenkeel_base::{Lsn, Result, TreeId};
use evenkeel_io::sim::SimOptions;
use evenkeel_io::{Rng, SimDisk, SimEnv};
use evenkeel_pages::dirty::{Dirty, Surroundings};
use evenkeel_pages::pacer::Pacer;
use evenkeel_pages::pacing::{Quota, TICK_NS};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SECOND: u64 = 1_000_000_000;
/// The cleaner writes a batch this often.
const BATCH_NS: u64 = 10_000_000;
/// Tables the dirty pages belong to.
const TREES: u64 = 16;
/// Bytes of a row of the indexed table that its index holds: a number and the primary key.
const ENTRY_BYTES: u64 = 20;

/// What a build by the engine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Built {
    /// Rows of the table.
    pub rows: u64,
    /// Bytes written into runs.
    pub bytes: u64,
    /// Pages made dirty and flushed: those of the catalog.
    pub pages: u64,
}

/// Builds an index of so many bytes with the engine, on a disk in memory whose time is virtual.
///
/// # Errors
/// Of the engine.
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

/// What the buckets cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ours {
    /// Transactions ended in each second.
    pub done: Vec<u64>,
    /// The most entries looked at while the mutex was held once.
    pub looks_most: u64,
    /// Entries looked at in all.
    pub looks: u64,
    /// Pages that became dirty.
    pub joined: u64,
    /// Pages flushed.
    pub flushed: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Body,
    Batch,
    Written(Vec<(u64, u32)>),
}

struct Pool<'a> {
    setup: &'a Setup,
    dirty: Dirty,
    rng: Rng,
    quota: Quota,
    pacer: Pacer,
    end: Lsn,
    /// The tree of each page ever dirty; its number serves as frame.
    trees: Vec<TreeId>,
    draining: Vec<(u64, u32)>,
    mutex_free: u64,
    ours: Ours,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
}

impl Pool<'_> {
    /// Runs `f` under the mutex from `time` on; when it is free again.
    fn locked<T>(&mut self, time: u64, f: impl FnOnce(&mut Self) -> T) -> (u64, T) {
        let before = self.dirty.looks().all;
        let result = f(self);
        let looks = self.dirty.looks().all - before;
        self.mutex_free =
            self.mutex_free.max(time) + self.setup.hold_ns + looks * self.setup.step_ns;
        (self.mutex_free, result)
    }

    fn join(&mut self) {
        self.end.0 += self.setup.tx_log_bytes / self.setup.pages_per_tx;
        let tree = TreeId(self.rng.below(TREES) as u32 + 1);
        self.dirty.join(self.end, self.trees.len() as u32, tree);
        self.trees.push(tree);
        self.ours.joined += 1;
    }

    fn at(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, event)));
    }

    fn body(&mut self, time: u64) {
        let mut end = time;
        for _ in 0..self.setup.pages_per_tx {
            end = self.locked(time, Pool::join).0;
        }
        let second = (end / SECOND) as usize;
        if self.ours.done.len() <= second {
            self.ours.done.resize(second + 1, 0);
        }
        self.ours.done[second] += 1;
        let next = end + self.setup.tx_ns / 2 + self.rng.below(self.setup.tx_ns);
        self.at(next, Event::Body);
    }

    fn batch(&mut self, time: u64, frames: u64, log_bytes: u64) {
        if self.pacer.next_in(time).is_none() {
            let around = Surroundings { end: self.end, log_bytes, frames, supply_pages: 0 };
            self.locked(time, |pool| pool.pacer.tick(time, around, &pool.dirty, &pool.quota));
        }
        let most = (self.setup.disk_pages_per_sec() * BATCH_NS / SECOND).max(1);
        let mut wanted = self.quota.take(most, most, time);
        let mut taken = Vec::new();
        while wanted > 0 {
            if self.draining.is_empty() {
                let found = self.locked(time, |pool| pool.dirty.take_below(u64::MAX)).1;
                let Some((bucket, frames)) = found else { break };
                self.draining = frames.into_iter().map(|frame| (bucket, frame)).collect();
            }
            taken.extend(self.draining.pop());
            wanted -= 1;
        }
        self.at(time + self.setup.io_ns, Event::Written(taken));
        self.at(time + BATCH_NS, Event::Batch);
    }

    fn written(&mut self, time: u64, pages: &[(u64, u32)]) {
        for (bucket, frame) in pages {
            let tree = self.trees[*frame as usize];
            self.locked(time, |pool| pool.dirty.leave(*bucket, tree));
            self.ours.flushed += 1;
        }
    }
}

/// The same writers on the engine's buckets for so many seconds.
pub fn run(setup: &Setup, seconds: u64) -> Ours {
    // A log whose target age is reached when all these pages are dirty: the cleaner must keep up.
    let per_page = setup.tx_log_bytes / setup.pages_per_tx;
    let log_bytes = setup.pages * per_page / 3 * 8;
    let frames = setup.pages / 2 * 3;
    let mut pool = Pool {
        setup,
        dirty: Dirty::new(log_bytes),
        rng: Rng::new(setup.seed ^ 0x0bc5),
        quota: Quota::default(),
        pacer: Pacer::default(),
        end: Lsn::ZERO,
        trees: Vec::new(),
        draining: Vec::new(),
        mutex_free: 0,
        ours: Ours::default(),
        events: BinaryHeap::new(),
        number: 0,
    };
    for _ in 0..setup.pages {
        pool.join();
    }
    pool.ours.joined = 0;
    let before = pool.dirty.looks().all;
    for _ in 0..setup.writers {
        let first = setup.tx_ns / 2 + pool.rng.below(setup.tx_ns);
        pool.at(first, Event::Body);
    }
    pool.at(TICK_NS, Event::Batch);
    while let Some(Reverse((time, _, event))) = pool.events.pop() {
        if time >= seconds * SECOND {
            break;
        }
        match event {
            Event::Body => pool.body(time),
            Event::Batch => pool.batch(time, frames, log_bytes),
            Event::Written(pages) => pool.written(time, &pages),
        }
    }
    pool.ours.looks = pool.dirty.looks().all - before;
    pool.ours.looks_most = pool.dirty.looks().most;
    pool.ours
}
