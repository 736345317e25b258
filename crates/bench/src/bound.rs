//! Determines what bounded a step, by pure functions of the step's figures in the JSON. The rules
//! in their order: a requested rate that was reached bounds the step; otherwise busy processors do;
//! otherwise the largest part of the clients' time does. If an engine does not report its waits,
//! the bound is unknown.

use crate::figures::worst_and_middle;
use crate::result::{RunResult, StepResult};
use evenkeel_base::Cause;

/// From this share on the processors count as busy.
const CPU_BUSY: f64 = 0.85;
/// If the host took at least this share of the machine, the host bounded the step.
const HOST_TOOK: f64 = 0.15;
/// A second part of the clients' time is named if it is at least this share of the first part.
const SECOND_PART: f64 = 0.5;
/// The host explains the worst second if it took this much more of the machine than in the middle
/// second.
const HOST_TOOK_MORE: f64 = 0.1;
/// A wait explains the worst second if it is at least this share of the additional time of a row.
const EXPLAINS: f64 = 0.5;

/// The part of the system that bounded the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The storage device.
    Device,
    /// The engine's own background work and structures.
    Engine,
    /// Locks of other transactions.
    Locks,
    /// Processors.
    Cpu,
    /// Unknown.
    Unknown,
}

impl Side {
    /// The side that a cause of waits belongs to.
    pub fn of(cause: Cause) -> Side {
        match cause {
            Cause::LogSync | Cause::PageRead | Cause::DeviceSlow => Side::Device,
            Cause::LogSpace
            | Cause::FreeFrame
            | Cause::PageLatch
            | Cause::MemtableFull
            | Cause::CompactionDebt
            | Cause::Governor
            | Cause::Backup => Side::Engine,
            Cause::RowLock | Cause::Schema => Side::Locks,
            Cause::Processor => Side::Cpu,
            Cause::Unexplained | Cause::Idle => Side::Unknown,
        }
    }

    /// The name in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Side::Device => "the device",
            Side::Engine => "the engine",
            Side::Locks => "locks",
            Side::Cpu => "the CPU",
            Side::Unknown => "not known",
        }
    }
}

/// The cause of a wait in words, for readers of the report.
pub const fn words(cause: Cause) -> &'static str {
    match cause {
        Cause::LogSync => "syncs of the log",
        Cause::LogSpace => "space in the log",
        Cause::FreeFrame => "free page frames",
        Cause::PageRead => "reads",
        Cause::PageLatch => "page latches",
        Cause::MemtableFull => "memtable flushes",
        Cause::CompactionDebt => "compaction",
        Cause::Governor => "the I/O governor",
        Cause::RowLock => "row locks",
        Cause::Schema => "schema changes",
        Cause::DeviceSlow => "writes",
        Cause::Backup => "a backup",
        Cause::Processor => "waits for a free processor",
        Cause::Unexplained => "time without a recorded wait",
        Cause::Idle => "idle",
    }
}

/// A part of the clients' time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// The clients computed, each on one processor.
    Running,
    /// The clients waited for this cause.
    Waiting(Cause),
}

/// What bounded a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// The requested rate, which was reached.
    Rate,
    /// This many of all processors were busy.
    Processors(f64),
    /// The machine's host took this share of the processors.
    Host(f64),
    /// The largest parts of the clients' time, largest first, with their shares: one or two.
    Time(Vec<(Part, f64)>),
    /// The engine does not report its waits; this many processors were busy, if known.
    Unknown(Option<f64>),
}

impl Bound {
    /// One word for the bound: the name of a cause, or `rate`, `cpu`, `host`, `unknown`.
    pub fn key(&self) -> &'static str {
        match self {
            Bound::Rate => "rate",
            Bound::Processors(_) => "cpu",
            Bound::Host(_) => "host",
            Bound::Time(parts) => match parts.first() {
                Some((Part::Waiting(cause), _)) => cause.name(),
                Some((Part::Running, _)) => "client",
                None => "unknown",
            },
            Bound::Unknown(_) => "unknown",
        }
    }
}

/// Causes that only writing threads wait for; they do not bound queries.
const OF_WRITERS: [Cause; 4] =
    [Cause::LogSync, Cause::LogSpace, Cause::MemtableFull, Cause::CompactionDebt];

/// Causes that may bound the step.
fn causes_of(step: &StepResult) -> impl Iterator<Item = Cause> {
    let queries = step.queries();
    crate::engine::causes().filter(move |cause| !(queries && OF_WRITERS.contains(cause)))
}

/// Number of threads that do the operations which the step counts. Writers next to queries keep to
/// a rate and are mostly idle.
fn threads(run: &RunResult, step: &StepResult) -> f64 {
    let clients = run.settings["clients"].as_u64().unwrap_or(1).max(1) as f64;
    if step.rows_deleted > 0 && !step.queries() { 2.0 * clients } else { clients }
}

/// Processors that the store kept busy on average; `None` if its process could not be measured.
pub fn processors_busy(step: &StepResult) -> Option<f64> {
    let counted = if step.queries() { step.op.query.n } else { step.rows };
    let cpu_us = step.cpu_us_per_row * counted.max(1) as f64;
    (cpu_us > 0.0 && step.seconds > 0.0).then(|| cpu_us / 1e6 / step.seconds)
}

/// The share of the machine that its host took, on average over the step.
fn stolen(step: &StepResult) -> f64 {
    let shares = step.per_second.iter().map(|second| second.6);
    shares.sum::<f64>() / step.per_second.len().max(1) as f64
}

/// What bounded a step of a run.
pub fn bound(run: &RunResult, step: &StepResult) -> Bound {
    if step.rate_target.is_some() && step.rate_met && !step.queries() {
        return Bound::Rate;
    }
    let (busy, cores) = (processors_busy(step), run.machine.cores.max(1) as f64);
    let taken = stolen(step);
    if taken >= HOST_TOOK {
        return Bound::Host(taken);
    }
    if let Some(busy) = busy
        && busy >= CPU_BUSY * cores
    {
        return Bound::Processors(busy);
    }
    if step.waits.values().all(|us| *us == 0) {
        return Bound::Unknown(busy);
    }
    let time_us = threads(run, step) * step.seconds.max(1e-9) * 1e6;
    let share = |us: u64| us as f64 / time_us;
    let waited_us = |cause: Cause| step.waits.get(cause.name()).copied().unwrap_or(0);
    let waits = causes_of(step).map(|cause| (Part::Waiting(cause), share(waited_us(cause))));
    let mut parts: Vec<(Part, f64)> = waits.filter(|(_, share)| *share > 0.0).collect();
    // A client cannot have computed longer than all threads of the store together.
    let rest = 1.0 - parts.iter().map(|(_, share)| share).sum::<f64>();
    let running = rest.min(busy.map_or(1.0, |busy| busy * step.seconds * 1e6 / time_us));
    if running > 0.0 {
        parts.push((Part::Running, running));
    }
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let least = parts.first().map_or(0.0, |(_, share)| SECOND_PART * share);
    parts.retain(|(_, share)| *share >= least);
    parts.truncate(2);
    Bound::Time(parts)
}

/// Why the worst second was slower than the middle one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// The clients waited longer for one cause: microseconds per row or query, in the middle second
    /// and in the worst.
    Waited(Cause, f64, f64),
    /// The host took this much more of the machine.
    Stolen(f64),
    /// No recorded wait explains it.
    Unknown,
}

/// The worst second of a step that counts its seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    /// Its number, from 1.
    pub second: usize,
    /// Its rate.
    pub rate: f64,
    /// Its rate divided by the median.
    pub ratio: f64,
    /// Why it was slow.
    pub why: Why,
}

/// The worst second of a step; `None` if the step is too short.
pub fn worst(run: &RunResult, step: &StepResult) -> Option<Worst> {
    let (ratio, rates) = (step.worst_second_ratio?, step.rates());
    let (worst, middle) = worst_and_middle(&rates)?;
    let stolen = step.per_second[worst].6 - step.per_second[middle].6;
    let details = &step.per_second_details.waits;
    let per_row = |us: f64, second: usize| us / rates[second].max(1.0);
    let waited = |cause: Cause, second: usize| {
        let us = details.get(cause.name()).and_then(|all| all.get(second)).copied().unwrap_or(0);
        per_row(us as f64, second)
    };
    let second_us = threads(run, step) * 1e6;
    let slower_us = per_row(second_us, worst) - per_row(second_us, middle);
    let waits = causes_of(step).map(|cause| (cause, waited(cause, worst), waited(cause, middle)));
    let most = waits.max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)));
    let why = match most {
        _ if stolen >= HOST_TOOK_MORE => Why::Stolen(stolen),
        Some((cause, in_worst, in_middle))
            if slower_us > 0.0 && in_worst - in_middle >= EXPLAINS * slower_us =>
        {
            Why::Waited(cause, in_worst, in_middle)
        }
        _ => Why::Unknown,
    };
    Some(Worst { second: worst + 1, rate: rates[worst], ratio, why })
}

#[cfg(test)]
#[path = "bound_tests.rs"]
mod tests;
