//! Runs one step: starts its threads, reads the meters each second, and adds up its figures.

use crate::engine::{Bytes, Counters, Engine, causes};
use crate::error::BenchError;
use crate::figures::evenness;
use crate::live::{Interval, Live, share_and_left};
use crate::machine::{self, Meter, Usage};
use crate::options::{Options, Step, StepKind};
use crate::response::Response;
use crate::result::{Decisions, Ops, SecondDetails, StepResult};
use crate::thinning::Thinning;
use crate::worker::{Context, DELETE, INSERT, Measured, Meters, Pace, Progress, QUERY};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The number of batches by which inserts may be ahead of the deletes that follow them.
const BATCHES_AHEAD: usize = 64;
/// The longest time until a Ctrl-C is noticed.
const TICK: Duration = Duration::from_millis(50);
/// The target rate counts as reached from this share on.
const RATE_MET: f64 = 0.95;

/// The resources of a step.
pub struct Stage<'a> {
    /// The store.
    pub engine: &'a dyn Engine,
    /// Measures its use of the machine.
    pub meter: &'a Meter,
    /// The options of the run.
    pub options: &'a Options,
    /// Every client's table.
    pub clients: &'a [Progress],
    /// Set by Ctrl-C.
    pub interrupted: &'a AtomicBool,
    /// Number of steps that follow, for the progress line.
    pub steps_after: usize,
}

type Worker<'scope> = ScopedJoinHandle<'scope, Result<Measured, BenchError>>;

impl Stage<'_> {
    /// Runs a step.
    ///
    /// # Errors
    /// The first error of any of its threads.
    pub fn run(&self, step: &Step, pace: Pace, live: &mut Live) -> Result<StepResult, BenchError> {
        let usage = self.meter.usage();
        let meters = Meters::new();
        let mut recorder = Recorder::new(self, step, &meters);
        let context = Context {
            engine: self.engine,
            options: self.options,
            step,
            pace,
            meters: &meters,
            clients: self.clients,
        };
        let measured = std::thread::scope(|scope| {
            let workers = self.spawn(scope, &context);
            while workers.iter().any(|w| !w.is_finished()) {
                recorder.tick(live);
                if self.interrupted.load(Relaxed) {
                    meters.stop();
                }
            }
            // Threads that only wait, such as the holder of a snapshot, end now.
            meters.stop();
            join(workers)
        })?;
        recorder.last(live);
        Ok(self.result(step, &measured, recorder, usage))
    }

    fn spawn<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        context: &'env Context<'env>,
    ) -> Vec<Worker<'scope>> {
        let stop_on_error =
            |result: Result<Measured, BenchError>| result.inspect_err(|_| context.meters.stop());
        let mut workers = Vec::new();
        for client in 0..self.options.clients {
            if context.step.kind == StepKind::Index {
                workers.push(scope.spawn(move || {
                    context.engine.create_indexes(client)?;
                    Ok(Measured { ended: context.meters.start.elapsed(), ..Measured::default() })
                }));
                continue;
            }
            let random = match context.step.kind {
                StepKind::Update => Some(Context::updater as fn(&Context<'env>, usize) -> _),
                StepKind::Read => Some(Context::reader as fn(&Context<'env>, usize) -> _),
                _ => None,
            };
            if let Some(work) = random {
                workers.push(scope.spawn(move || stop_on_error(work(context, client))));
                continue;
            }
            let later = context.step.kind != StepKind::Load;
            let mut inserted = None;
            if self.options.deletes && later {
                let (tell, told) = sync_channel(BATCHES_AHEAD);
                inserted = Some(tell);
                let work = move || stop_on_error(context.deleter(client, &told));
                workers.push(scope.spawn(work));
            }
            workers.push(scope.spawn(move || stop_on_error(context.writer(client, inserted))));
            if matches!(context.step.kind, StepKind::Query { .. }) {
                workers.push(scope.spawn(move || stop_on_error(context.querier(client))));
            }
        }
        if let (Some(seconds), true) = (
            self.options.snapshot_seconds,
            !matches!(context.step.kind, StepKind::Load | StepKind::Index),
        ) {
            scope.spawn(move || {
                let until = context.meters.start + Duration::from_secs(seconds);
                match context.engine.snapshot(0) {
                    Ok(_held) => {
                        context.meters.wait_until(until);
                    }
                    Err(error) => eprintln!("no snapshot: {error}"),
                }
            });
        }
        workers
    }

    fn result(
        &self,
        step: &Step,
        measured: &[Measured],
        recorder: Recorder<'_>,
        before: Usage,
    ) -> StepResult {
        let meters = recorder.meters;
        let grown = self.engine.counters().since(&recorder.first);
        let used = self.meter.usage();
        let ended = measured.iter().map(|m| m.ended).max().unwrap_or_default();
        let seconds = ended.as_secs_f64().max(1e-9);
        let (op, every) = responses(measured);
        let [inserted, deleted, queries] =
            [INSERT, DELETE, QUERY].map(|k| meters.counts[k].load(Relaxed));
        let rows = if step.kind == StepKind::Index { self.rows_present() } else { inserted };
        let per = if queries > 0 { queries } else { rows }.max(1) as f64;
        let rows_per_s = rows as f64 / seconds;
        let target = match step.kind {
            StepKind::Query { rate } => Some(rate as f64),
            _ => None,
        };
        let (read, written) =
            (used.read_bytes - before.read_bytes, used.written_bytes - before.written_bytes);
        let mut result = StepResult {
            name: step.name.clone(),
            rows,
            rows_deleted: deleted,
            seconds,
            rows_per_s,
            deletes_per_s: deleted as f64 / seconds,
            queries_per_s: queries as f64 / seconds,
            rate_target: target,
            rate_met: target
                .is_none_or(|rate| rows_per_s >= RATE_MET * rate * self.options.clients as f64),
            longest_gap_ms: if step.kind == StepKind::Index { 0.0 } else { recorder.gap_ms },
            max_op_ms: every.max_us() / 1e3,
            max_op_own_ms: measured.iter().map(|m| m.own_max_ns).max().unwrap_or(0) as f64 / 1e6,
            device_slow: measured.iter().flat_map(|m| m.device_slow.iter().copied()).collect(),
            p99_op_ms: every.quantile_us(0.99) / 1e3,
            op,
            bytes_read_per_row: read as f64 / per,
            bytes_written_per_row: written as f64 / per,
            bytes_read: read,
            bytes_written: written,
            bytes: grown.bytes,
            events: grown.events,
            flush_requested: grown.flush_requested,
            flush_done: grown.flush_done,
            cpu_us_per_row: (used.cpu_us - before.cpu_us) / per,
            space_bytes: self.meter.space_bytes(),
            retries: std::array::from_fn(|k| meters.retries[k].load(Relaxed)),
            waits: grown.waits.by_name(),
            per_second: recorder.seconds,
            per_second_details: recorder.details,
            decisions: recorder.decisions,
            ..StepResult::default()
        };
        let even = evenness(&result.rates());
        result.worst_second_ratio = even.worst_second_ratio;
        result.p5_second_ratio = even.p5_second_ratio;
        result.seconds_below_50 = even.seconds_below_50;
        result.seconds_below_10 = even.seconds_below_10;
        result
    }

    fn rows_present(&self) -> u64 {
        self.clients.iter().map(|c| c.next.load(Relaxed) - c.deleted.load(Relaxed)).sum()
    }
}

/// Response times of all threads: by kind, and of all operations together.
fn responses(measured: &[Measured]) -> (Ops, Response) {
    let merged = |pick: &dyn Fn(&Measured) -> &Response| {
        let mut all = Response::default();
        measured.iter().for_each(|m| all.merge(pick(m)));
        all
    };
    let kinds = [INSERT, DELETE, QUERY].map(|kind| merged(&|m| &m.response[kind]));
    let intended = merged(&|m| &m.intended);
    let mut every = Response::default();
    kinds.iter().for_each(|kind| every.merge(kind));
    let op = Ops {
        insert: kinds[INSERT].figures(),
        delete: kinds[DELETE].figures(),
        query: kinds[QUERY].figures(),
        insert_intended: (intended.count() > 0).then(|| intended.figures()),
    };
    (op, every)
}

fn join(workers: Vec<Worker<'_>>) -> Result<Vec<Measured>, BenchError> {
    let panicked = || BenchError::Failed("a thread of the benchmark panicked".into());
    workers.into_iter().map(|w| w.join().map_err(|_| panicked())?).collect()
}

/// Reads the meters and counters each second.
struct Recorder<'a> {
    stage: &'a Stage<'a>,
    step: &'a Step,
    meters: &'a Meters,
    first: Counters,
    last: Counters,
    last_counts: [u64; 3],
    last_steal: (u64, u64),
    last_time: Duration,
    seconds: Vec<crate::result::Second>,
    details: SecondDetails,
    decisions: BTreeMap<String, Decisions>,
    thinnings: BTreeMap<&'static str, Thinning>,
    gap_ms: f64,
}

impl<'a> Recorder<'a> {
    fn new(stage: &'a Stage<'a>, step: &'a Step, meters: &'a Meters) -> Recorder<'a> {
        let first = stage.engine.counters();
        // Discards the decisions from before the step.
        drop(stage.engine.decisions());
        Recorder {
            stage,
            step,
            meters,
            last: first.clone(),
            first,
            last_counts: [0; 3],
            last_steal: machine::steal_ticks(),
            last_time: Duration::ZERO,
            seconds: Vec::new(),
            details: SecondDetails::default(),
            decisions: BTreeMap::new(),
            thinnings: BTreeMap::new(),
            gap_ms: 0.0,
        }
    }

    /// Waits for a short time, and records a second if one has ended.
    fn tick(&mut self, live: &mut Live) {
        let second = self.meters.start + self.last_time + Duration::from_secs(1);
        let until = second.min(Instant::now() + TICK);
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        if Instant::now() >= second {
            self.record(live, true);
            self.progress(live);
        }
    }

    /// Records the rest after the last whole second.
    fn last(&mut self, live: &mut Live) {
        self.gap_ms = self.meters.longest_gap_ms();
        // A step shorter than a second is recorded as one point, so that the report shows it.
        let only = self.seconds.is_empty();
        self.record(live, only);
        live.clear();
    }

    fn record(&mut self, live: &mut Live, keep: bool) {
        let now = self.meters.start.elapsed();
        let counters = self.stage.engine.counters();
        let grown = counters.since(&self.last);
        let indexing = self.step.kind == StepKind::Index;
        let totals: [u64; 3] = std::array::from_fn(|kind| match (kind, indexing) {
            (INSERT, true) => counters.rows_indexed.saturating_sub(self.first.rows_indexed),
            _ => self.meters.counts[kind].load(Relaxed),
        });
        let interval = Interval {
            seconds: (now - self.last_time).as_secs_f64(),
            total_seconds: now.as_secs_f64(),
            counts: std::array::from_fn(|k| totals[k].saturating_sub(self.last_counts[k])),
            totals,
            max_us: std::array::from_fn(|k| self.meters.max_ns[k].swap(0, Relaxed) as f64 / 1e3),
            retries: std::array::from_fn(|k| self.meters.retries[k].load(Relaxed)),
        };
        let steal = machine::steal_ticks();
        let (stolen, all) = (steal.0 - self.last_steal.0, steal.1 - self.last_steal.1);
        live.line(&interval.line());
        if keep {
            let [ips, dps, qps] = interval.rates();
            let [max_i, max_d, max_q] = interval.max_us;
            let share = stolen as f64 / all.max(1) as f64;
            let waited = grown.waits.total();
            self.seconds.push((ips, dps, qps, max_i, max_d, max_q, share, waited));
            self.detail(&grown);
        }
        self.note_decisions(self.seconds.len().saturating_sub(1));
        (self.last, self.last_counts, self.last_time) = (counters, totals, now);
        self.last_steal = steal;
    }

    fn detail(&mut self, grown: &Counters) {
        let at = self.seconds.len() - 1;
        let details = &mut self.details;
        for (name, n) in Bytes::NAMES.iter().zip(grown.bytes.values()) {
            details.bytes.entry((*name).to_string()).or_default().push(n);
        }
        for cause in causes() {
            let name = cause.name().to_string();
            details.waits.entry(name).or_default().push(grown.waits.get(cause));
        }
        for (name, n) in &grown.flush_reasons {
            let series = details.flush_reasons.entry(name.clone()).or_default();
            series.resize(at, 0);
            series.push(*n);
        }
        details.flush_requested.push(grown.flush_requested);
        details.flush_done.push(grown.flush_done);
    }

    fn note_decisions(&mut self, second: usize) {
        for decision in self.stage.engine.decisions() {
            let law = decision.law;
            let of_law = self.decisions.entry(law.name().to_string()).or_insert_with(|| {
                let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
                let (inputs, outputs) = law.fields();
                let (inputs, outputs) = (names(inputs), names(outputs));
                Decisions { inputs, outputs, ..Decisions::default() }
            });
            let thinning = self.thinnings.entry(law.name()).or_insert_with(|| Thinning::new(law));
            thinning.add(of_law, (second, decision.inputs, decision.outputs));
        }
    }

    fn progress(&self, live: &mut Live) {
        let elapsed = self.last_time.as_secs_f64();
        let done = self.last_counts[INSERT] as f64;
        let (done, to_do) = match (self.step.kind, self.step.seconds) {
            (_, Some(seconds)) => (elapsed, seconds),
            (StepKind::Index, _) => (done, self.stage.rows_present() as f64),
            _ => (done, (self.step.rows * self.stage.options.clients as u64) as f64),
        };
        let (share, left) = share_and_left(elapsed, done, to_do);
        live.progress(&self.step.name, share, left, self.stage.steps_after);
    }
}
