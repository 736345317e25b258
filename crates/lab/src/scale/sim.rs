//! Ingest, memtable, flushes and compactions of a large database in virtual time, on a disk of
//! given speed. The compaction picker, the order of compactions' beats, the credit of ingest, its
//! delays and the governor are the engine's own functions; runs are only sizes.
//!
//! Threads as in the engine: a page cleaner, a flush, compaction threads and an index build, each
//! with one beat of at most 1 MiB under way to the disk. The disk has one queue; commits go to the
//! same queue. One thread at a time has a beat of a compaction. If processor time counts, the
//! thread computes after the disk has served the beat.

use super::RowBytes;
use super::experiment::Setup;
use evenkeel_base::journal::Journal;
use evenkeel_base::{Cause, WaitEvents};
use evenkeel_sched::laws::compaction::{
    self, CompactionTurn, FREES_NOTHING, bytes_per_run, next_compaction, passes,
};
use evenkeel_sched::laws::depths::{GENERATIONS_MAX, RUNS_HELP, RUNS_TRIGGER};
use evenkeel_sched::laws::ingest::{
    allowed_bytes, compaction_rate, credit_bytes, enough_for_compactions, owed_bytes, pace_ns,
    pays_bytes, room_bytes, tight_ns, tightest,
};
use evenkeel_sched::{Class, Governor, PriorityGovernor};
use std::sync::Arc;

pub(super) const SECOND: u64 = 1_000_000_000;
/// One step of the virtual clock.
const STEP_NS: u64 = 10_000_000;
/// Bytes of a beat of background work.
const BEAT: u64 = 1 << 20;
/// Rows of a transaction.
const BATCH: u64 = 50;
/// Syncs of group commits in a step.
const SYNCS: u64 = 2;

/// Why ingest got fewer rows than it requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Memtable,
    CompactionDebt,
    /// Commits wait in the queue of the disk.
    Disk,
}

/// Figures of each interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// Rows per second.
    pub rows: Vec<f64>,
    /// Bytes that running compactions still have to read and write.
    pub debt: Vec<f64>,
    /// The most runs of an index.
    pub runs: Vec<f64>,
    /// Share of the requested rows that did not arrive, by [`Wait`].
    pub waits: [Vec<f64>; 3],
    /// Bytes read and written per second.
    pub moved: Vec<f64>,
    /// Total of rows.
    pub rows_all: f64,
    /// Bytes written during ingest.
    pub written_all: f64,
    /// The longest time of a commit in the queue, seconds.
    pub longest: f64,
    /// Compactions into a bottom run.
    pub into_bottom: f64,
    /// Bytes per second that the governor permits to background work, at most the disk's; that were
    /// required; and that were granted to work that may wait.
    pub budget: Vec<f64>,
    /// See above.
    pub required: Vec<f64>,
    /// See above.
    pub spare: Vec<f64>,
    /// Bytes of all indexes at the end.
    pub index_bytes: f64,
    /// Seconds until the index build was done.
    pub built: Option<f64>,
}

/// An index build: bytes of the table to read, and entries to write meanwhile. The entries are
/// compacted once more at the end, because the sorted runs are more than an index may have.
struct Build {
    read: u64,
    compaction: u64,
    written_per_mib: u64,
    free_at: u64,
    /// The next beat, once it was granted.
    granted: Option<Io>,
}

/// I/Os, bytes read, bytes written.
type Io = (u64, u64, u64);

impl Build {
    /// Its next beat, of at most this many bytes.
    fn next(&self, at_once: u64) -> Io {
        match self.read.min(at_once) {
            0 => (2, self.compaction.min(at_once), self.compaction.min(at_once)),
            part => (2, part, part * self.written_per_mib / BEAT),
        }
    }

    /// The beat is done; true if it was the last one.
    fn did(&mut self, (_, part, _): Io) -> bool {
        match self.read {
            0 => self.compaction -= part,
            _ => self.read -= part,
        }
        self.read == 0 && self.compaction == 0
    }
}

struct Run {
    number: u64,
    bytes: u64,
    busy: bool,
}

struct Job {
    index: usize,
    runs: Vec<u64>,
    bytes: u64,
    left: u64,
    unpaid: u64,
    required: bool,
    /// A thread works on one of its beats until this time.
    busy_until: u64,
    /// Its next beat was granted.
    granted: bool,
}

/// A disk with one queue.
struct Disk {
    bytes_per_sec: u64,
    ios_per_sec: u64,
    free_at: u64,
    moved: u64,
    written: u64,
}

impl Disk {
    /// Queues a request; returns the nanoseconds from now until it is done.
    fn serve(&mut self, now: u64, ios: u64, read: u64, written: u64) -> u64 {
        let bytes = u128::from(read + written) * u128::from(SECOND);
        let ns = (bytes / u128::from(self.bytes_per_sec)) as u64 + ios * SECOND / self.ios_per_sec;
        self.free_at = self.free_at.max(now) + ns;
        self.moved += read + written;
        self.written += written;
        self.free_at - now
    }
}

struct World<'a> {
    setup: &'a Setup,
    row: RowBytes,
    disk: Disk,
    governor: PriorityGovernor,
    /// The waits of commits, as the governor sees them.
    wait_events: Arc<WaitEvents>,
    journal: Arc<Journal>,
    /// Bytes granted since the last interval: required, and other.
    granted: [u64; 2],
    indexes: Vec<Vec<Run>>,
    jobs: Vec<Job>,
    next_run: u64,
    /// Memory bytes of the active generation; bytes on disk that sealed generations still have to
    /// write.
    active: u64,
    sealed: Vec<u64>,
    /// Bytes of pages that must be flushed.
    pages: u64,
    credit: u64,
    /// Bytes that required compactions have moved since the last measurement, and the nanoseconds
    /// they took.
    compacted: (u64, u64),
    compaction_bytes_per_sec: u64,
    /// The time of the last flush of a generation, and the interval between the last two.
    flushed_at: u64,
    flush_ns: u64,
    /// Memory bytes that the pace has admitted and that have not arrived.
    paced: u64,
    /// The times at which the cleaner, the flush and the compaction threads are free again.
    free: [u64; 2],
    compactors: Vec<u64>,
    build: Option<Build>,
    out: Figures,
}

impl World<'_> {
    fn debtors(&self) -> u64 {
        self.indexes.iter().filter(|runs| runs.len() >= RUNS_TRIGGER).count() as u64
    }

    fn most_runs(&self) -> usize {
        self.indexes.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn run_bytes(&self) -> u64 {
        self.row.run(self.setup.generation_bytes as f64) as u64
    }

    /// One step of ingest: returns the rows taken, and the wait that held them back most.
    fn ingest(&mut self, now: u64, wanted: u64) -> (u64, Option<Wait>) {
        let queue = self.disk.free_at.saturating_sub(now);
        self.out.longest = self.out.longest.max(queue as f64 / SECOND as f64);
        let memory = (self.row.indexes * self.row.entry_memory) as u64;
        let is_tight = self.sealed.len() + 1 == GENERATIONS_MAX;
        let mut takes = self.setup.tx_ns + queue;
        if is_tight {
            takes += tight_ns(memory, self.active, self.setup.generation_bytes) * BATCH;
        }
        let (mut rows, mut held) = (wanted, None);
        let mut limit = |most: u64, cause| {
            if most < rows {
                (rows, held) = (most, Some(cause));
            }
        };
        limit(self.setup.connections * BATCH * STEP_NS / takes, Wait::Disk);
        if let Some(paced) = self.pace() {
            limit(paced / memory, Wait::CompactionDebt);
        }
        let in_debt = self.debtors() > 0;
        if in_debt {
            limit(self.credit / memory, Wait::CompactionDebt);
        }
        if is_tight {
            let whole = self.run_bytes() * self.indexes.len() as u64;
            let flushed = whole.saturating_sub(self.sealed[0]) * 1000 / whole.max(1);
            let allowed = allowed_bytes(self.setup.generation_bytes, flushed);
            limit(allowed.saturating_sub(self.active) / memory, Wait::Memtable);
        }
        self.credit = if in_debt { self.credit - rows * memory } else { 0 };
        self.paced = self.paced.saturating_sub(rows * memory);
        self.active += rows * memory;
        if self.active + memory > self.setup.generation_bytes && !is_tight {
            self.active = 0;
            self.sealed.push(self.run_bytes() * self.indexes.len() as u64);
        }
        if rows > 0 {
            self.disk.serve(now, SYNCS, 0, (rows as f64 * self.row.log) as u64);
        }
        self.pages += (rows as f64 * self.row.row) as u64;
        self.note_waits(rows, queue, takes, held);
        (rows, held)
    }

    /// Each transaction waits for the sync of its commit, behind the present queue. If ingest is
    /// held back, every connection has a waiting transaction.
    fn note_waits(&self, rows: u64, queue: u64, takes: u64, held: Option<Wait>) {
        let syncs = rows * (queue + SECOND / self.setup.disk_ios_per_sec) / BATCH;
        self.wait_events.record(Cause::LogSync, syncs);
        let idle = (self.setup.connections * STEP_NS).saturating_sub(rows * takes / BATCH);
        match held {
            Some(Wait::CompactionDebt) => self.wait_events.record(Cause::CompactionDebt, idle),
            Some(Wait::Memtable) => self.wait_events.record(Cause::MemtableFull, idle),
            Some(Wait::Disk) | None => {}
        }
    }

    /// Memory bytes that the pace of compactions admits; `None`: no limit.
    fn pace(&mut self) -> Option<u64> {
        let of = |index: usize| self.jobs.iter().filter(move |j| j.index == index && j.required);
        let first = |index: usize| {
            let left = of(index).map(|job| job.left).min()?;
            let newest = self.indexes[index].first().map_or(0, |run| run.bytes);
            Some((self.indexes[index].len() as u64, owed_bytes(left, newest)))
        };
        let needed: Vec<(u64, u64)> = (0..self.indexes.len()).filter_map(first).collect();
        let runs = needed.iter().map(|(runs, _)| *runs).max().unwrap_or(0);
        let new = self.run_bytes();
        let generation = self.setup.generation_bytes;
        let owed = tightest(needed, self.sealed.len(), self.active, generation);
        let bytes = |runs: &Vec<Run>| runs.iter().map(|run| run.bytes).sum::<u64>() as f64;
        let moved = |runs| passes(bytes(runs) / new as f64) * new as f64;
        let moved: f64 = self.indexes.iter().map(moved).sum();
        let per_kib = (moved * 1024.0 / self.setup.generation_bytes as f64) as u64;
        let need = 2.0 * moved * SECOND as f64 / self.flush_ns.max(1) as f64;
        self.governor.set_enough_for_compactions(enough_for_compactions(runs, need as u64));
        let ns = pace_ns(runs, self.compaction_bytes_per_sec, per_kib, owed);
        if ns == 0 {
            self.paced = 0;
            return None;
        }
        let step = STEP_NS * 1024 / ns;
        self.paced = (self.paced + step).min(2 * step);
        Some(self.paced)
    }

    fn flushed(&mut self, now: u64) {
        let took = now.saturating_sub(std::mem::replace(&mut self.flushed_at, now));
        self.flush_ns = match self.flush_ns {
            0 => took,
            known => (known * 3 + took.min(4 * known)) / 4,
        };
    }

    /// Records the time of a beat of a required compaction.
    fn measure(&mut self, bytes: u64, ns: u64) {
        self.compacted = (self.compacted.0 + bytes, self.compacted.1 + ns);
        let (moved, took) = self.compacted;
        if let Some(rate) = compaction_rate(self.compaction_bytes_per_sec, moved, took) {
            self.compaction_bytes_per_sec = rate;
            self.compacted = (0, 0);
        }
    }

    /// The beats that background threads begin in this step.
    fn background(&mut self, now: u64, may_rest: bool) {
        let end = now + STEP_NS;
        while self.free[0] < end && self.pages >= BEAT {
            self.pages -= BEAT;
            let at = self.free[0].max(now);
            self.free[0] = at + self.beat(at, Class::Checkpoint, (2, 0, BEAT));
        }
        while self.free[1] < end && !self.sealed.is_empty() {
            let (at, part) = (self.free[1].max(now), self.sealed[0].min(BEAT));
            self.free[1] = at + self.beat(at, Class::MemtableFlush, (1, 0, part));
            self.sealed[0] -= part;
            if self.sealed[0] == 0 {
                self.sealed.remove(0);
                self.flushed(self.free[1]);
                let bytes = self.run_bytes();
                for runs in &mut self.indexes {
                    self.next_run += 1;
                    runs.insert(0, Run { number: self.next_run, bytes, busy: false });
                }
                self.begin(may_rest);
            }
        }
        for thread in 0..self.compactors.len() {
            while self.compactors[thread] < end {
                if may_rest {
                    self.begin(true);
                }
                if !self.compact(thread, self.compactors[thread].max(now)) {
                    break;
                }
            }
        }
        while self.build_beat(now, end) {}
    }

    /// A beat of the index build; false: it begins none before `end`.
    fn build_beat(&mut self, now: u64, end: u64) -> bool {
        let Some(build) = self.build.as_mut().filter(|build| build.free_at < end) else {
            return false;
        };
        let at = build.free_at.max(now);
        let Some(io) = build.granted.take() else {
            let io = build.next(self.governor.at_once(Class::Ddl, false).min(BEAT));
            build.granted = Some(io);
            let pause = self.ask(at, Class::Ddl, false, io.1 + io.2);
            self.build.iter_mut().for_each(|build| build.free_at = at + pause);
            return true;
        };
        let is_last = build.did(io);
        let ended = at + self.go(at, Class::Ddl, io);
        self.build.iter_mut().for_each(|build| build.free_at = ended);
        if is_last {
            self.build = None;
            self.out.built = Some(ended as f64 / SECOND as f64);
        }
        true
    }

    /// Requests a beat from the governor; returns the nanoseconds to wait before it goes to the
    /// disk.
    fn ask(&mut self, now: u64, class: Class, required: bool, bytes: u64) -> u64 {
        self.granted[usize::from(!required)] += bytes;
        self.governor.grant(class, bytes, required, now)
    }

    /// Executes a granted beat (I/Os, bytes read, bytes written); returns its time.
    fn go(&mut self, now: u64, class: Class, (ios, read, written): Io) -> u64 {
        let ns = self.disk.serve(now, ios, read, written);
        self.governor.report(class, ios, read + written, ns);
        ns
    }

    /// Required work is granted at once.
    fn beat(&mut self, now: u64, class: Class, io: Io) -> u64 {
        self.ask(now, class, true, io.1 + io.2);
        self.go(now, class, io)
    }

    fn begin(&mut self, may_rest: bool) {
        for (index, runs) in self.indexes.iter_mut().enumerate() {
            loop {
                let own = self.jobs.iter().filter(|job| job.index == index && job.required);
                let freeing = own.map(|job| bytes_per_run(job.left, job.runs.len())).min();
                let mut numbers = vec![u64::from(may_rest), freeing.unwrap_or(FREES_NOTHING)];
                numbers.extend(runs.iter().map(|r| r.bytes * 8 + u64::from(r.busy)));
                let chosen = compaction::decide(&numbers).unwrap_or_default();
                let [first, end, required] = chosen[..] else { break };
                let inputs = &mut runs[first as usize..end as usize];
                inputs.iter_mut().for_each(|r| r.busy = true);
                let bytes = inputs.iter().map(|r| r.bytes).sum();
                self.jobs.push(Job {
                    index,
                    runs: inputs.iter().map(|r| r.number).collect(),
                    bytes,
                    left: bytes,
                    unpaid: pays_bytes(inputs.len(), self.setup.generation_bytes),
                    required: required != 0,
                    busy_until: 0,
                    granted: false,
                });
            }
        }
    }

    /// A beat of the next compaction in turn, in this thread; false if this thread has none.
    fn compact(&mut self, thread: usize, now: u64) -> bool {
        let helps = thread > 0;
        if helps && self.most_runs() < RUNS_HELP {
            return false;
        }
        let free: Vec<usize> = (0..self.jobs.len())
            .filter(|at| self.jobs[*at].busy_until <= now && (!helps || self.jobs[*at].required))
            .collect();
        let turn = |at: &usize| {
            let job = &self.jobs[*at];
            let runs = self.indexes[job.index].len();
            let newest = self.indexes[job.index].first().map_or(0, |run| run.bytes);
            let is_short = owed_bytes(job.left, newest) > 0;
            let owing_runs = if runs >= RUNS_TRIGGER && is_short { runs } else { 0 };
            CompactionTurn { required: job.required, owing_runs, left: job.left, gain: 0 }
        };
        // Compactions that are not required get no thread during ingest: then none of them begins
        // either.
        let Some(at) = next_compaction(free.iter().map(turn), false).map(|i| free[i]) else {
            return false;
        };
        let (required, part) = (self.jobs[at].required, self.jobs[at].left.min(BEAT));
        if !std::mem::replace(&mut self.jobs[at].granted, true) {
            let pause = self.ask(now, Class::Compaction, required, 2 * part);
            if pause > 0 {
                self.compactors[thread] = now + pause;
                return true;
            }
        }
        self.jobs[at].granted = false;
        let took = self.go(now, Class::Compaction, (2, part, part)) + self.computes(part);
        self.compactors[thread] = now + took;
        self.jobs[at].busy_until = now + took;
        if required {
            // Several threads move a multiple of the bytes in that time.
            let threads = self.compactors.iter().filter(|free_at| **free_at > now).count() as u64;
            self.measure(part, took / threads.max(1));
        }
        self.pay(at, part);
        self.jobs[at].left -= part;
        if self.jobs[at].left == 0 {
            self.end(at);
        }
        true
    }

    /// Nanoseconds of processor time for a beat of a compaction.
    fn computes(&self, bytes: u64) -> u64 {
        (bytes * SECOND).checked_div(self.setup.compacted_bytes_per_core).unwrap_or(0)
    }

    fn pay(&mut self, at: usize, done: u64) {
        let (debtors, most) = (self.debtors(), self.most_runs());
        let generation = self.setup.generation_bytes;
        let room = room_bytes(most, self.sealed.len(), self.active, generation);
        let job = &mut self.jobs[at];
        if self.indexes[job.index].len() < RUNS_TRIGGER {
            return;
        }
        let pays = credit_bytes(job.unpaid, done, job.left);
        let new = (pays / debtors).min(room.saturating_sub(self.credit));
        self.credit += new;
        job.unpaid -= pays.min(new * debtors);
    }

    fn end(&mut self, at: usize) {
        let job = self.jobs.swap_remove(at);
        let runs = &mut self.indexes[job.index];
        let place = runs.iter().position(|r| job.runs.contains(&r.number)).unwrap_or(0);
        if place + job.runs.len() == runs.len() {
            self.out.into_bottom += 1.0;
        }
        self.next_run += 1;
        let run = Run { number: self.next_run, bytes: job.bytes, busy: false };
        runs.splice(place..place + job.runs.len(), [run]);
        self.begin(false);
    }
}

/// Runs as ingest leaves them shortly before a compaction into the bottom run, newest first.
fn tiers(bottom: u64, least: u64) -> Vec<u64> {
    let (mut tiers, mut size) = (vec![bottom], bottom / 10 * 4);
    while size > least {
        tiers.insert(0, size);
        size /= 4;
    }
    tiers
}

/// A build of one more index on all rows.
fn build(setup: &Setup, row: &RowBytes) -> Build {
    let rows = setup.data_bytes as f64 / row.stored();
    Build {
        read: (rows * row.row) as u64,
        compaction: (rows * row.entry_disk) as u64,
        written_per_mib: (BEAT as f64 * row.entry_disk / row.row) as u64,
        free_at: 0,
        granted: None,
    }
}

fn world(setup: &Setup) -> World<'_> {
    let row = RowBytes::TYPICAL;
    let bottom = (setup.data_bytes as f64 / row.stored() * row.entry_disk) as u64;
    let sizes = tiers(bottom, row.run(setup.generation_bytes as f64) as u64);
    let mut next_run = 0;
    let mut run = |bytes: &u64| {
        next_run += 1;
        Run { number: next_run, bytes: *bytes, busy: false }
    };
    let indexes = (0..row.indexes as usize).map(|_| sizes.iter().map(&mut run).collect());
    let indexes: Vec<Vec<Run>> = indexes.collect();
    let disk = Disk {
        bytes_per_sec: setup.disk_bytes_per_sec,
        ios_per_sec: setup.disk_ios_per_sec,
        free_at: 0,
        moved: 0,
        written: 0,
    };
    let (wait_events, journal) = (Arc::<WaitEvents>::default(), Arc::new(Journal::default()));
    journal.keep(true);
    World {
        setup,
        row,
        disk,
        governor: PriorityGovernor::new(wait_events.clone(), journal.clone()),
        wait_events,
        journal,
        granted: [0; 2],
        indexes,
        jobs: Vec::new(),
        next_run,
        active: 0,
        sealed: Vec::new(),
        pages: 0,
        credit: 0,
        compacted: (0, 0),
        compaction_bytes_per_sec: 0,
        flushed_at: 0,
        flush_ns: 0,
        paced: 0,
        free: [0; 2],
        compactors: vec![0; setup.compaction_threads()],
        build: setup.builds.then(|| build(setup, &row)),
        out: Figures::default(),
    }
}

impl World<'_> {
    /// Ends an interval of this many seconds: records the governor's decisions and the bytes moved.
    fn sample(&mut self, sec: f64, rows: u64, moved: u64) {
        let debt = self.jobs.iter().map(|job| 2 * job.left).sum::<u64>() as f64;
        let most = self.most_runs() as f64;
        let rate = self.setup.disk_bytes_per_sec;
        let budgets = self.journal.take();
        let budgets = budgets.iter().filter_map(|d| d.outputs.first()).map(|b| (*b).min(rate));
        let (sum, count) = budgets.fold((0.0, 0.0), |(sum, n), b| (sum + b as f64, n + 1.0));
        let [required, spare] = std::mem::take(&mut self.granted);
        let out = &mut self.out;
        out.rows.push(rows as f64 / sec);
        out.debt.push(debt);
        out.runs.push(most);
        // Idle work makes no request: then there is no decision.
        out.budget.push(if count > 0.0 { sum / count } else { rate as f64 });
        out.required.push(required as f64 / sec);
        out.spare.push(spare as f64 / sec);
        out.moved.push(moved as f64 / sec);
        let bytes = self.indexes.iter().flatten().map(|run| run.bytes);
        out.index_bytes = bytes.sum::<u64>() as f64;
    }
}

/// Runs a setup.
pub(super) fn run(setup: &Setup) -> Figures {
    let mut world = world(setup);
    let steps = setup.seconds * (SECOND / STEP_NS);
    let interval = (steps / setup.points).max(1);
    let (mut rows_now, mut asked, mut short) = (0u64, 0u64, [0u64; 3]);
    let (mut moved, mut fraction) = (0u64, 0f64);
    for step in 0..steps {
        let now = step * STEP_NS;
        let is_loaded = step < setup.loaded_steps(steps);
        if is_loaded {
            fraction += setup.rows_per_sec as f64 * STEP_NS as f64 / SECOND as f64;
            let wanted = fraction as u64;
            fraction -= wanted as f64;
            let (rows, held) = world.ingest(now, wanted);
            (rows_now, asked) = (rows_now + rows, asked + wanted);
            if let Some(cause) = held {
                short[cause as usize] += wanted - rows;
            }
            world.out.rows_all += rows as f64;
            world.out.written_all = world.disk.written as f64;
        }
        world.background(now, !is_loaded);
        if (step + 1) % interval == 0 {
            let sec = (interval * STEP_NS) as f64 / SECOND as f64;
            world.sample(sec, std::mem::take(&mut rows_now), world.disk.moved - moved);
            moved = world.disk.moved;
            let out = &mut world.out;
            for (all, rows) in out.waits.iter_mut().zip(&mut short) {
                all.push(std::mem::take(rows) as f64 / asked.max(1) as f64);
            }
            asked = 0;
        }
    }
    world.out
}
