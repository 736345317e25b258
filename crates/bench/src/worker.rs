//! The loops of a client's threads: writer, deleter, querier. They share `Meters`, which the thread
//! that prints a line per second reads. They end when they have done their rows or reached their
//! deadline, or when `Meters` is stopped.

use crate::engine::{Engine, Failure};
use crate::error::BenchError;
use crate::options::{Options, Step};
use crate::response::Response;
use crate::result::DeviceSlow;
use crate::rows::{QueryMaker, Rng, Row, RowMaker};
use evenkeel_io::device_wait;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rounds of deletes between two searches for the lowest primary key.
const ROUNDS_PER_MIN: u64 = 1000;
/// Operations that the device delayed are listed from this length on.
const SLOW_NS: u64 = 10_000_000;

/// Kinds of operations, as indexes.
pub const INSERT: usize = 0;
/// See `INSERT`.
pub const DELETE: usize = 1;
/// See `INSERT`.
pub const QUERY: usize = 2;

/// The counts of all threads of a step, and the flag that stops them.
pub struct Meters {
    /// The start of the step.
    pub start: Instant,
    /// Rows inserted, rows deleted, queries.
    pub counts: [AtomicU64; 3],
    /// Longest operation since the last read, nanoseconds.
    pub max_ns: [AtomicU64; 3],
    /// Transactions retried.
    pub retries: [AtomicU64; 3],
    last_commit_ns: AtomicU64,
    gap_ns: AtomicU64,
    stopped: AtomicBool,
    stop_lock: Mutex<()>,
    stop_signal: Condvar,
}

impl Meters {
    /// Begins a step.
    pub fn new() -> Meters {
        Meters {
            start: Instant::now(),
            counts: Default::default(),
            max_ns: Default::default(),
            retries: Default::default(),
            last_commit_ns: AtomicU64::new(0),
            gap_ns: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            stop_lock: Mutex::new(()),
            stop_signal: Condvar::new(),
        }
    }

    /// Stops every thread.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        drop(self.stop_lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.stop_signal.notify_all();
    }

    /// True once stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Waits until `time` or the stop; returns true if stopped.
    pub fn wait_until(&self, time: Instant) -> bool {
        let mut guard = self.stop_lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_stopped() {
            let left = time.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.stop_signal.wait_timeout(guard, left);
            (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    fn done(&self, kind: usize, count: u64, begun: Instant, ended: Instant) -> u64 {
        let ns = ended.duration_since(begun).as_nanos() as u64;
        self.counts[kind].fetch_add(count, Relaxed);
        self.max_ns[kind].fetch_max(ns, Relaxed);
        if kind != QUERY {
            self.committed(ended);
        }
        ns
    }

    fn committed(&self, at: Instant) {
        let now = at.duration_since(self.start).as_nanos() as u64;
        let last = self.last_commit_ns.fetch_max(now, Relaxed);
        self.gap_ns.fetch_max(now.saturating_sub(last), Relaxed);
    }

    /// The longest time without a commit, up to now.
    pub fn longest_gap_ms(&self) -> f64 {
        self.committed(Instant::now());
        self.gap_ns.load(Relaxed) as f64 / 1e6
    }
}

impl Default for Meters {
    fn default() -> Meters {
        Meters::new()
    }
}

/// The rows loaded into a client's table; shared by its threads.
#[derive(Debug, Default)]
pub struct Progress {
    /// The number of the next row.
    pub next: AtomicU64,
    /// Rows deleted from the low end.
    pub deleted: AtomicU64,
}

/// When a writer begins its transactions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As soon as the last one has ended.
    Free,
    /// At a steady rate of rows per second.
    Steady(f64),
    /// At random times (Poisson) with this rate of rows per second.
    Random(f64),
}

/// The resources of a thread of a step.
pub struct Context<'a> {
    /// The store.
    pub engine: &'a dyn Engine,
    /// The options of the run.
    pub options: &'a Options,
    /// The step.
    pub step: &'a Step,
    /// How writers are paced.
    pub pace: Pace,
    /// Shared counts.
    pub meters: &'a Meters,
    /// Every client's table.
    pub clients: &'a [Progress],
}

/// The measurements of a thread.
#[derive(Default)]
pub struct Measured {
    /// Response times of inserts, deletes, queries.
    pub response: [Response; 3],
    /// Response times of inserts, measured from their intended start.
    pub intended: Response,
    /// The longest operation of which no single write or sync of the device took more than half.
    pub own_max_ns: u64,
    /// Long operations of which one write or sync took more than half.
    pub device_slow: Vec<DeviceSlow>,
    /// The end of the thread, after the start of the step.
    pub ended: Duration,
}

impl Measured {
    /// Records an operation that has just ended, at this time after the start of the step.
    fn record(&mut self, kind: usize, ns: u64, at: Duration) {
        self.response[kind].record(ns);
        let device_ns = device_wait::take_longest_ns();
        if device_ns <= ns / 2 {
            self.own_max_ns = self.own_max_ns.max(ns);
        } else if ns >= SLOW_NS {
            let ms = |ns: u64| ns as f64 / 1e6;
            self.device_slow.push((at.as_secs_f64(), ms(ns), ms(device_ns)));
        }
    }
}

impl Context<'_> {
    fn deadline(&self) -> Option<Instant> {
        self.step.seconds.map(|s| self.meters.start + Duration::from_secs_f64(s))
    }

    fn over(&self) -> bool {
        self.meters.is_stopped() || self.deadline().is_some_and(|d| Instant::now() >= d)
    }

    /// Repeats one operation while it fails with `Retry`; `None` if the step was stopped meanwhile.
    fn repeat<T>(
        &self,
        kind: usize,
        mut operation: impl FnMut() -> Result<T, Failure>,
    ) -> Result<Option<T>, BenchError> {
        // Waits of the thread before this operation are not counted.
        device_wait::take_longest_ns();
        loop {
            match operation() {
                Ok(value) => return Ok(Some(value)),
                Err(Failure::Fatal(error)) => return Err(error),
                Err(Failure::Retry) => {
                    self.meters.retries[kind].fetch_add(1, Relaxed);
                    if self.meters.is_stopped() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn finish(&self, mut measured: Measured) -> Measured {
        measured.ended = self.meters.start.elapsed();
        measured
    }

    /// Inserts until the rows or the time of the step are used up. Notifies `inserted` after each
    /// commit.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn writer(
        &self,
        client: usize,
        inserted: Option<SyncSender<()>>,
    ) -> Result<Measured, BenchError> {
        let mut session = self.engine.session(client)?;
        let progress = &self.clients[client];
        let mut next = progress.next.load(Relaxed);
        let end = if self.step.seconds.is_some() { u64::MAX } else { next + self.step.rows };
        let mut maker = RowMaker::new(self.options.seed, client, &self.options.patterns, next);
        let mut rows = vec![Row::default(); self.step.batch];
        let mut schedule = Schedule::new(self, client);
        let mut measured = Measured::default();
        while next < end && !self.over() {
            let count = rows.len().min((end - next) as usize);
            let batch = &mut rows[..count];
            for (n, row) in (next..).zip(batch.iter_mut()) {
                maker.make(n, row);
            }
            let Some(intended) = schedule.wait(self, count) else { break };
            let begun = Instant::now();
            if self.repeat(INSERT, || session.insert(batch))?.is_none() {
                break;
            }
            let ended = Instant::now();
            let ns = self.meters.done(INSERT, count as u64, begun, ended);
            measured.record(INSERT, ns, self.meters.start.elapsed());
            if self.pace != Pace::Free {
                let intended = ended.saturating_duration_since(intended.min(begun));
                measured.intended.record(intended.as_nanos() as u64);
            }
            next += count as u64;
            progress.next.store(next, Relaxed);
            // A deleter that has ended has failed, and stops the step itself.
            if let Some(inserted) = &inserted {
                let _ = inserted.send(());
            }
        }
        Ok(self.finish(measured))
    }

    /// Deletes one batch from the low end for each inserted batch.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn deleter(&self, client: usize, inserted: &Receiver<()>) -> Result<Measured, BenchError> {
        let mut session = self.engine.session(client)?;
        let progress = &self.clients[client];
        let mut measured = Measured::default();
        let (mut from, mut round) = (None, 0u64);
        while inserted.recv().is_ok() && !self.meters.is_stopped() {
            let begun = Instant::now();
            if round.is_multiple_of(ROUNDS_PER_MIN) || from.is_none() {
                from = self.repeat(DELETE, || session.min_pk())?.flatten();
            }
            round += 1;
            let Some(low) = from else { continue };
            let deleted = self.repeat(DELETE, || session.delete_from(low, self.step.batch))?;
            let Some(deleted) = deleted else { break };
            let ns = self.meters.done(DELETE, deleted.rows, begun, Instant::now());
            measured.record(DELETE, ns, self.meters.start.elapsed());
            progress.deleted.fetch_add(deleted.rows, Relaxed);
            from = deleted.last.map(|last| last + 1);
        }
        Ok(self.finish(measured))
    }

    fn queries(&self, client: usize) -> QueryMaker {
        // Each step draws different queries.
        let step = self.step.name.bytes().fold(0u64, |n, b| n.wrapping_mul(31) + u64::from(b));
        let options = self.options;
        let seed = options.seed ^ (step << 20);
        QueryMaker::new(seed, client, &options.patterns, options.point_queries)
    }

    /// Updates random rows until the rows or the time of the step are used up. An updated row
    /// counts as an inserted one.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn updater(&self, client: usize) -> Result<Measured, BenchError> {
        let mut session = self.engine.session(client)?;
        let (mut random, mut measured) = (RandomRows::new(self, client), Measured::default());
        let mut left = if self.step.seconds.is_some() { u64::MAX } else { self.step.rows };
        while left > 0 && !self.over() {
            let count = self.step.batch.min(left as usize);
            let data = random.draw.data();
            let ids = random.ids(count);
            let begun = Instant::now();
            if self.repeat(INSERT, || session.update(ids, &data))?.is_none() {
                break;
            }
            let ns = self.meters.done(INSERT, count as u64, begun, Instant::now());
            measured.record(INSERT, ns, self.meters.start.elapsed());
            left -= count as u64;
        }
        Ok(self.finish(measured))
    }

    /// Reads random rows until the time of the step is used up. A row read counts as a query; a
    /// response time is that of a transaction.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn reader(&self, client: usize) -> Result<Measured, BenchError> {
        let mut session = self.engine.session(client)?;
        let (mut random, mut measured) = (RandomRows::new(self, client), Measured::default());
        while !self.over() {
            let ids = random.ids(self.step.batch);
            let begun = Instant::now();
            let Some(found) = self.repeat(QUERY, || session.read(ids))? else { break };
            let ns = self.meters.done(QUERY, found, begun, Instant::now());
            measured.record(QUERY, ns, self.meters.start.elapsed());
        }
        Ok(self.finish(measured))
    }

    /// Queries until the time of the step is used up.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn querier(&self, client: usize) -> Result<Measured, BenchError> {
        let mut session = self.engine.session(client)?;
        let progress = &self.clients[client];
        let mut queries = self.queries(client);
        let mut measured = Measured::default();
        while !self.over() {
            let low = progress.deleted.load(Relaxed);
            let query = queries.draw(low, progress.next.load(Relaxed));
            let begun = Instant::now();
            if self.repeat(QUERY, || session.query(&query))?.is_none() {
                break;
            }
            let ns = self.meters.done(QUERY, 1, begun, Instant::now());
            measured.record(QUERY, ns, self.meters.start.elapsed());
        }
        Ok(self.finish(measured))
    }
}

/// Draws rows that exist when a step begins.
struct RandomRows {
    draw: QueryMaker,
    low: u64,
    high: u64,
    ids: Vec<i64>,
}

impl RandomRows {
    fn new(context: &Context<'_>, client: usize) -> RandomRows {
        let progress = &context.clients[client];
        let (low, high) = (progress.deleted.load(Relaxed), progress.next.load(Relaxed));
        RandomRows { draw: context.queries(client), low, high, ids: Vec::new() }
    }

    fn ids(&mut self, count: usize) -> &[i64] {
        let RandomRows { draw, low, high, ids } = self;
        ids.clear();
        ids.extend((0..count).map(|_| draw.id(*low, *high)));
        ids
    }
}

/// The intended starts of a writer's transactions.
struct Schedule {
    next: Instant,
    rng: Rng,
}

impl Schedule {
    fn new(context: &Context<'_>, client: usize) -> Schedule {
        // The starts of several clients' steady writers are spread over the interval.
        let share = client as f64 / context.options.clients as f64;
        let shift = match context.pace {
            Pace::Steady(rate) => share * context.step.batch as f64 / rate,
            _ => 0.0,
        };
        Schedule {
            next: context.meters.start + Duration::from_secs_f64(shift),
            rng: Rng::new(context.options.seed ^ client as u64),
        }
    }

    /// Waits for the next intended start and returns it; `None` if the step ends before.
    fn wait(&mut self, context: &Context<'_>, rows: usize) -> Option<Instant> {
        let interval = match context.pace {
            Pace::Free => return Some(Instant::now()),
            Pace::Steady(rate) => rows as f64 / rate,
            Pace::Random(rate) => -self.rng.unit().ln() * rows as f64 / rate,
        };
        let intended = self.next;
        self.next += Duration::from_secs_f64(interval);
        if context.deadline().is_some_and(|d| intended >= d) {
            return None;
        }
        (!context.meters.wait_until(intended)).then_some(intended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_one_write_made_long_is_not_the_longest() {
        let (mut measured, ms) = (Measured::default(), 1_000_000);
        let mut operation = |took: u64, device: u64| {
            device_wait::note(device * ms);
            measured.record(INSERT, took * ms, Duration::from_secs(took));
        };
        operation(20, 10);
        operation(60, 31);
        operation(9, 8);
        operation(4, 0);
        assert_eq!(measured.own_max_ns, 20 * ms);
        // Short operations are not listed.
        assert_eq!(measured.device_slow, [(60.0, 60.0, 31.0)]);
        assert_eq!(measured.response[INSERT].count(), 4);
    }
}
