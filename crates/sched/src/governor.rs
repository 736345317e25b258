//! The governor of background I/O (protocol G2). Every background read or write asks it first.
//! Required work is never cut, except compactions that ingest does not need at once, and these
//! never below the rate that follows ingest; surplus work is shaped.
//!
//! The law has two pure halves. [`budget`] is the number of bytes per second that background work
//! may request of the device: unlimited while the device is as fast as it was, less when batches of
//! the same shape take longer. [`divide`] distributes the budget to the classes: required work
//! first, then each class its minimum share, then the rest in order of priority. Only device time
//! counts, never a wait for other work, and the budget moves by at most a factor of two per tick.
//! While users wait for the device, index builds, and dirty pages of the idle flush, get what
//! [`beside`] leaves them, and compactions that are not urgent get the rate of
//! [`compactions_in_foreground_limit`].

use crate::foreground_limit::{
    ForegroundLimit, MERGE_AT_ONCE_NS, WAITED_PERMILLE, waited_permille,
};
use crate::foreground_limit::{beside, compactions_in_foreground_limit, page_cost, slice};
use evenkeel_base::journal::{Journal, Law};
use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, WaitEvents};
use std::sync::Arc;

/// Classes of background I/O, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Free frames.
    FreeFrames,
    /// Dirty pages to advance the checkpoint.
    Checkpoint,
    /// Memtable generations.
    MemtableFlush,
    /// Compactions of runs.
    Compaction,
    /// Index builds, and statistics of tables.
    Ddl,
    /// Hot pages after an open, and space returned to the file system.
    Maintenance,
}

impl Class {
    /// All classes, most urgent first.
    pub const ALL: [Class; CLASSES] = [
        Class::FreeFrames,
        Class::Checkpoint,
        Class::MemtableFlush,
        Class::Compaction,
        Class::Ddl,
        Class::Maintenance,
    ];

    /// The counters of requested and of granted bytes.
    pub const fn metrics(self) -> (Metric, Metric) {
        match self {
            Class::FreeFrames => {
                (Metric::GovernorRequestedFreeFrames, Metric::GovernorGrantedFreeFrames)
            }
            Class::Checkpoint => {
                (Metric::GovernorRequestedCheckpoint, Metric::GovernorGrantedCheckpoint)
            }
            Class::MemtableFlush => (Metric::GovernorRequestedFlush, Metric::GovernorGrantedFlush),
            Class::Compaction => {
                (Metric::GovernorRequestedCompaction, Metric::GovernorGrantedCompaction)
            }
            Class::Ddl => (Metric::GovernorRequestedDdl, Metric::GovernorGrantedDdl),
            Class::Maintenance => {
                (Metric::GovernorRequestedMaintenance, Metric::GovernorGrantedMaintenance)
            }
        }
    }
}

/// Number of classes.
pub const CLASSES: usize = 6;

/// Decides when background I/O may proceed.
pub trait Governor: Send + Sync {
    /// Requests `bytes` of I/O of a class. `required` work (which keeps a resource inside its
    /// limit) is granted at once, except compactions (`set_enough_for_compactions`). Returns the
    /// nanoseconds to wait before the I/O (0: none). The caller waits with cause `governor` and
    /// need not ask again.
    fn grant(&self, class: Class, bytes: u64, required: bool, now_ns: u64) -> u64;
    /// Sets the bytes per second that are enough for compactions that ingest needs; `UNLIMITED`: it
    /// needs them at once. Otherwise they are shaped although they are required. Until the first
    /// call ingest needs them at once.
    fn set_enough_for_compactions(&self, bytes_per_sec: u64);
    /// Sets whether users want all processors: compactions that ingest does not need at once then
    /// get exactly the rate that is enough.
    fn set_crowded(&self, crowded: bool);
    /// As `grant`, for surplus reads or writes of pages that are done and took `device_ns`. Returns
    /// the nanoseconds to wait before more of them.
    fn grant_pages(&self, class: Class, bytes: u64, device_ns: u64, now_ns: u64) -> u64;
    /// The most bytes of one read or write of a class.
    fn at_once(&self, class: Class, required: bool) -> u64;
    /// True if users, all together, wait so much for the device that an index build gets only a
    /// part of it: in the last 200 ms, or on average since the last request.
    fn users_wait(&self, now_ns: u64) -> bool;
    /// Reports how long the device took for `bytes` in `requests` consecutive requests, so that
    /// surplus work can be shaped.
    fn report(&self, class: Class, requests: u64, bytes: u64, device_ns: u64);
}

/// Nanoseconds between two evaluations of the law.
pub const TICK_NS: u64 = 100_000_000;
/// Each class has a right to one part in this many of the budget.
pub const MIN_SHARE: u64 = 16;
/// A budget without bound.
pub const UNLIMITED: u64 = u64::MAX;
/// The device may take this many times its best time per byte before surplus work is cut.
const SLOWER: u64 = 4;
/// The budget never falls further below the best rate than this factor.
const CUT_MAX: u64 = 64;
/// Longest wait for one grant: whatever the law says, work continues, because ingest may come to
/// need a compacting thread meanwhile.
const WAIT_MAX_NS: u64 = 100_000_000;
/// Longest wait of surplus work whose threads do nothing else, or whose required work others do;
/// KILL ends within 1 s.
const WAIT_MAX_OWN_NS: u64 = 500_000_000;
/// Ingest waits for compactions if all inserting threads together did for this part of the time;
/// that is forgotten within 46 s.
const DEBT_PERMILLE: u64 = 10;
/// Fewer bytes in a tick do not measure the device.
const SAMPLE_BYTES: u64 = 256 << 10;
/// Fewer batches do not measure their shape, if their bytes are fewer too.
const SAMPLE_BATCHES: u64 = 4;
/// Batches are classified by the logarithms of their bytes and of their requests.
const SIZES: usize = 24;
const COUNTS: usize = 8;

/// The requests of a class, bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Work that keeps a resource inside its limit.
    pub required: u64,
    /// The rest.
    pub surplus: u64,
}

/// Distributes a budget (bytes per second) among the surplus of the classes. Required work has been
/// granted already and counts against the budget; the minimum shares do not depend on it.
pub fn divide(budget: u64, demand: &[Demand; CLASSES]) -> [u64; CLASSES] {
    if budget == UNLIMITED {
        return [UNLIMITED; CLASSES];
    }
    let least = budget / MIN_SHARE;
    let mut rates = demand.map(|d| d.surplus.min(least));
    let taken = |sum: u64, n: u64| sum.saturating_add(n);
    let required = demand.iter().map(|d| d.required).fold(0, taken);
    let mut left = budget.saturating_sub(rates.iter().copied().fold(required, taken));
    for (rate, demand) in rates.iter_mut().zip(demand) {
        let more = (demand.surplus - *rate).min(left);
        *rate += more;
        left -= more;
    }
    // A class that asks for the first time, or for more than before, is not held to zero.
    rates.map(|rate| rate.max(least).max(1))
}

/// The budget for the next tick. `best` is the best rate of the device, bytes per second; `slower`
/// is the factor by which batches take longer now than at best, in sixteenths (16: as good as
/// ever).
pub fn budget(previous: u64, best: u64, slower: u64) -> u64 {
    let free = SLOWER * 16;
    let wanted = match slower <= free {
        true => UNLIMITED,
        false => {
            // The present rate of the device, and a part of it that is smaller the slower the
            // device is.
            let now = u128::from(best) * 16 / u128::from(slower);
            ((now * u128::from(free) / u128::from(slower)) as u64).max(best / CUT_MAX).max(1)
        }
    };
    let highest = previous.saturating_mul(2);
    // When the budget becomes bounded it starts at the best rate; when it rises it ends there.
    let lowest = if previous == UNLIMITED { best.max(1) } else { previous / 2 };
    match wanted.clamp(lowest.min(highest), highest) {
        rate if rate >= best.saturating_mul(2) => UNLIMITED,
        rate => rate,
    }
}

/// A decision of a tick: the budget, the rate of each class, the bytes that index builds move at
/// once, and the rate that users leave them. The inputs are those of [`budget`]; then those of
/// [`divide`], the required work of each class and its surplus; then the rate that users left to
/// builds before and how much they waited for the device ([`beside`]); then the rate that is enough
/// for compactions, and whether users want all processors ([`compactions_in_foreground_limit`]).
///
/// None: these are not inputs.
pub fn decide(inputs: &[u64]) -> Option<Vec<u64>> {
    let [previous, best, slower, demand @ ..] = inputs else { return None };
    let (required, rest) = demand.split_at_checked(CLASSES)?;
    let (surplus, rest) = rest.split_at_checked(CLASSES)?;
    let &[left, waited, enough, crowded] = rest else { return None };
    let demand: [Demand; CLASSES] =
        std::array::from_fn(|i| Demand { required: required[i], surplus: surplus[i] });
    let merges = (enough, crowded != 0);
    Some(law((*previous, left), *best, *slower, &demand, waited, merges).outputs())
}

/// The results of the law.
struct Said {
    budget: u64,
    rates: [u64; CLASSES],
    /// The limit of index builds.
    beside: ForegroundLimit,
}

impl Said {
    fn outputs(&self) -> Vec<u64> {
        let of_builds = [self.beside.at_once, self.beside.most];
        [self.budget].into_iter().chain(self.rates).chain(of_builds).collect()
    }
}

/// The whole law. `previous` are the budget and the rate that users left to builds before; then the
/// waits of users, the rate that is enough for compactions, and whether users want all processors.
fn law(
    previous: (u64, u64),
    best: u64,
    slower: u64,
    demand: &[Demand; CLASSES],
    waited_permille: u64,
    (enough, crowded): (u64, bool),
) -> Said {
    let budget = if best == 0 { UNLIMITED } else { budget(previous.0, best, slower) };
    let mut rates = divide(budget, demand);
    let of_builds = &mut rates[Class::Ddl as usize];
    let beside = beside(previous.1, waited_permille, *of_builds, best);
    *of_builds = beside.rate;
    // Surplus of this class is dirty pages of the idle flush, and those that the law still requests
    // while its rate falls. They get the part that a build does not request of the rate that users
    // leave, and a little in any case.
    let of_rest = &mut rates[Class::Checkpoint as usize];
    let left = match beside.most {
        UNLIMITED => UNLIMITED,
        most => most.saturating_sub(demand[Class::Ddl as usize].surplus),
    };
    *of_rest = (*of_rest).min(left.max(beside.most / MIN_SHARE)).max(1);
    let of_merges = &mut rates[Class::Compaction as usize];
    *of_merges = compactions_in_foreground_limit(*of_merges, beside.most, enough, crowded);
    Said { budget, rates, beside }
}

/// The times of batches of one shape.
#[derive(Clone, Copy, Default)]
struct Shape {
    batches: u64,
    bytes: u64,
    ns: u64,
    /// The least nanoseconds for 64 KiB; 0: unknown. It rises slowly, because devices change.
    best: u64,
    /// It was measured; otherwise it is derived from other shapes.
    measured: bool,
}

/// The times of the batches of one class, by their shape: few bytes, many requests, or a following
/// sync make each byte take longer however idle the device is, so only like shapes are compared.
#[derive(Clone, Copy)]
struct Sample {
    /// By the logarithms of the requests and of the bytes.
    shapes: [[Shape; SIZES]; COUNTS],
}

impl Default for Sample {
    fn default() -> Self {
        Sample { shapes: [[Shape::default(); SIZES]; COUNTS] }
    }
}

impl Sample {
    fn add(&mut self, requests: u64, bytes: u64, ns: u64) {
        let log = |n: u64| n.max(1).ilog2() as usize;
        let shape = &mut self.shapes[log(requests).min(COUNTS - 1)][log(bytes).min(SIZES - 1)];
        shape.batches += 1;
        shape.bytes += bytes;
        shape.ns += ns;
    }

    /// Ends a tick; returns the slowdown against the best, in sixteenths.
    fn slower(&mut self, known: &Known) -> Option<u64> {
        if self.shapes.as_flattened().iter().map(|shape| shape.bytes).sum::<u64>() < SAMPLE_BYTES {
            return None;
        }
        let (mut took, mut best) = (0u64, 0u64);
        for (requests, sizes) in self.shapes.iter_mut().enumerate() {
            for (size, shape) in sizes.iter_mut().enumerate().filter(|(_, s)| s.batches > 0) {
                took = took.saturating_add(shape.ns.max(1));
                best = best.saturating_add(shape.end(known[requests][size]));
            }
        }
        Some(took.saturating_mul(16) / best.max(1))
    }

    fn rate(&self) -> u64 {
        let rate = |shape: &Shape| 65_536_000_000_000u64.checked_div(shape.best).unwrap_or(0);
        self.shapes.as_flattened().iter().map(rate).max().unwrap_or(0)
    }
}

impl Shape {
    /// Ends a tick; returns the least nanoseconds that this many bytes take. `known`: the bound for
    /// the shape that follows from others.
    fn end(&mut self, known: u64) -> u64 {
        let Shape { batches, bytes, ns, best, measured } = *self;
        let now = (ns.saturating_mul(65536) / bytes.max(1)).max(1);
        // The fastest of few batches does not show their usual time.
        let counts = batches >= SAMPLE_BATCHES || bytes >= SAMPLE_BYTES;
        let best = match (best, known) {
            (0, 0) => now,
            (0, known) => known.min(now),
            (best, _) => best,
        };
        *self = Shape { best: self.best, measured, ..Shape::default() };
        if counts {
            self.measured |= now <= 2 * best;
            let rises = if self.measured { 256 } else { 32 };
            self.best = now.min(best + best / rises + 1);
        }
        best.saturating_mul(bytes) / 65536
    }
}

/// The upper bound of the least time for 64 KiB in batches of each shape, derived from other
/// shapes; 0: unknown.
type Known = [[u64; SIZES]; COUNTS];

/// On an idle device a batch takes no longer than one with more bytes and at least as many
/// requests, and each byte no longer than in a batch with fewer bytes.
fn known(samples: &[Sample; CLASSES]) -> Known {
    let mut known = [[0; SIZES]; COUNTS];
    let all = samples.iter().flat_map(|sample| sample.shapes.iter().enumerate());
    for (requests, sizes) in all {
        for (size, shape) in sizes.iter().enumerate().filter(|(_, shape)| shape.measured) {
            for known in &mut known[..=requests] {
                for (other, known) in known.iter_mut().enumerate() {
                    let most = shape.best.saturating_mul(1 << size.saturating_sub(other));
                    *known = if *known == 0 { most } else { most.min(*known) };
                }
            }
        }
    }
    known
}

struct State {
    tick_ns: u64,
    budget: u64,
    asked: [Demand; CLASSES],
    rates: [u64; CLASSES],
    /// When the granted I/O of the class is used up.
    free_at_ns: [u64; CLASSES],
    samples: Box<[Sample; CLASSES]>,
    /// The best rate of the device, bytes per second; 0: unknown.
    best: u64,
    /// The total wait of users for the device at the last tick, and their wait during it.
    waited_ns: u64,
    waited_permille: u64,
    /// The result of `Governor::users_wait`.
    users_wait: bool,
    /// Bytes that index builds move at once, and the rate that users leave them.
    at_once: u64,
    left: u64,
    /// Bytes per second that are enough for compactions; no bound: ingest needs them at once.
    enough: u64,
    /// True while users want all processors.
    crowded: bool,
    /// The total wait of ingest for compactions at the last tick, and its recent part.
    debt_us: u64,
    debt_permille: u64,
}

impl State {
    fn tick(&mut self, now_ns: u64, stalls: &WaitEvents, journal: &Journal) {
        let elapsed = now_ns.saturating_sub(self.tick_ns);
        if elapsed < TICK_NS {
            return;
        }
        let per_sec = |n: u64| (u128::from(n) * 1_000_000_000 / u128::from(elapsed)) as u64;
        let demand = std::mem::take(&mut self.asked)
            .map(|d| Demand { required: per_sec(d.required), surplus: per_sec(d.surplus) });
        let known = known(&self.samples);
        let slower = self.samples.iter_mut().filter_map(|sample| sample.slower(&known));
        let slower = slower.max().unwrap_or(16);
        let best = self.samples.iter().map(Sample::rate).max().unwrap_or(0);
        let waited_ns = stalls.device_ns();
        let more = waited_ns.saturating_sub(std::mem::replace(&mut self.waited_ns, waited_ns));
        // A tick in which no wait ended does not mean that the waits are over.
        let waits = waited_permille(more, elapsed);
        let before = std::mem::replace(&mut self.waited_permille, waits);
        let waited = waits.max(before);
        // Waits a second ago and older no longer count.
        let lately = if elapsed < 10 * TICK_NS { waited } else { waits };
        self.users_wait = best > 0 && lately >= WAITED_PERMILLE;
        let previous = (self.budget, self.left);
        self.note_debt(stalls.get(Cause::CompactionDebt).us, elapsed);
        let (enough, crowded) = (self.enough(), self.crowded);
        let said = law(previous, best, slower, &demand, waited, (enough, crowded));
        (self.budget, self.rates, self.best) = (said.budget, said.rates, best);
        (self.at_once, self.left) = (said.beside.at_once, said.beside.most);
        journal.note(Law::Governor, now_ns, || {
            let required = demand.iter().map(|d| d.required);
            let surplus = demand.iter().map(|d| d.surplus);
            let inputs = [previous.0, best, slower].into_iter().chain(required).chain(surplus);
            let of_merges = [enough, u64::from(crowded)];
            (inputs.chain([previous.1, waited]).chain(of_merges).collect(), said.outputs())
        });
        self.tick_ns = now_ns;
    }

    /// `debt_us` is the total wait of ingest for compactions. If it waited lately although they
    /// were urgent, compactions are not slowed however few runs there are, because ingest waits for
    /// them.
    fn note_debt(&mut self, debt_us: u64, elapsed_ns: u64) {
        let more = debt_us.saturating_sub(std::mem::replace(&mut self.debt_us, debt_us));
        let now = match self.enough {
            UNLIMITED => waited_permille(more.saturating_mul(1000), elapsed_ns),
            _ => 0,
        };
        self.debt_permille = now.min(1000).max(self.debt_permille * 99 / 100);
    }

    fn enough(&self) -> u64 {
        if self.debt_permille < DEBT_PERMILLE { self.enough } else { UNLIMITED }
    }

    /// True for work that is never held back: required work, and compactions that ingest needs at
    /// once.
    fn is_at_once(&self, class: Class, required: bool) -> bool {
        required && (class != Class::Compaction || self.enough() == UNLIMITED)
    }

    /// Bytes that compactions move at once while users wait.
    fn at_once_of_merges(&self) -> u64 {
        match self.at_once {
            UNLIMITED if !self.crowded => UNLIMITED,
            _ => slice(self.best, MERGE_AT_ONCE_NS),
        }
    }

    /// The wait of surplus of a class that counts as `cost` bytes.
    fn take(&mut self, class: Class, cost: u64, now_ns: u64) -> u64 {
        let has_others = class >= Class::Ddl || class == Class::Checkpoint;
        let wait_max = if has_others { WAIT_MAX_OWN_NS } else { WAIT_MAX_NS };
        let (rate, free_at_ns) = (self.rates[class as usize], &mut self.free_at_ns[class as usize]);
        if rate == UNLIMITED {
            *free_at_ns = now_ns;
            return 0;
        }
        let takes = u128::from(cost) * 1_000_000_000 / u128::from(rate);
        let wait = (*free_at_ns).saturating_sub(now_ns).min(wait_max);
        let takes = u64::try_from(takes).unwrap_or(u64::MAX).min(wait_max);
        *free_at_ns = now_ns + wait + takes;
        wait
    }
}

/// Grants by priority of classes: see the head of this file.
pub struct PriorityGovernor {
    state: Mutex<State>,
    stalls: Arc<WaitEvents>,
    journal: Arc<Journal>,
}

impl Default for PriorityGovernor {
    fn default() -> Self {
        PriorityGovernor::new(Arc::default(), Arc::default())
    }
}

impl PriorityGovernor {
    /// Reads the waits of users from `stalls`, and records its decisions in `journal`.
    pub fn new(stalls: Arc<WaitEvents>, journal: Arc<Journal>) -> Self {
        let state = State {
            tick_ns: 0,
            budget: UNLIMITED,
            asked: Default::default(),
            rates: [UNLIMITED; CLASSES],
            free_at_ns: [0; CLASSES],
            samples: Default::default(),
            best: 0,
            waited_ns: 0,
            waited_permille: 0,
            users_wait: false,
            at_once: UNLIMITED,
            left: UNLIMITED,
            enough: UNLIMITED,
            crowded: false,
            debt_us: 0,
            debt_permille: 0,
        };
        PriorityGovernor { state: Mutex::new(state), stalls, journal }
    }
}

impl Governor for PriorityGovernor {
    fn grant(&self, class: Class, bytes: u64, required: bool, now_ns: u64) -> u64 {
        let mut state = self.state.lock();
        state.tick(now_ns, &self.stalls, &self.journal);
        if state.is_at_once(class, required) {
            state.asked[class as usize].required += bytes;
            return 0;
        }
        state.asked[class as usize].surplus += bytes;
        state.take(class, bytes, now_ns)
    }

    fn set_enough_for_compactions(&self, bytes_per_sec: u64) {
        self.state.lock().enough = bytes_per_sec;
    }

    fn set_crowded(&self, crowded: bool) {
        self.state.lock().crowded = crowded;
    }

    fn grant_pages(&self, class: Class, bytes: u64, device_ns: u64, now_ns: u64) -> u64 {
        let mut state = self.state.lock();
        state.tick(now_ns, &self.stalls, &self.journal);
        state.asked[class as usize].surplus += bytes;
        let is_beside =
            matches!(class, Class::Ddl | Class::Checkpoint) && state.at_once != UNLIMITED;
        let cost = if is_beside { page_cost(bytes, device_ns, state.best) } else { bytes };
        state.take(class, cost, now_ns)
    }

    fn at_once(&self, class: Class, required: bool) -> u64 {
        let state = self.state.lock();
        match class {
            Class::Ddl | Class::Checkpoint if !required => state.at_once,
            Class::Compaction if !state.is_at_once(class, required) => state.at_once_of_merges(),
            _ => UNLIMITED,
        }
    }

    fn users_wait(&self, now_ns: u64) -> bool {
        let mut state = self.state.lock();
        state.tick(now_ns, &self.stalls, &self.journal);
        state.users_wait
    }

    fn report(&self, class: Class, requests: u64, bytes: u64, device_ns: u64) {
        let mut state = self.state.lock();
        state.samples[class as usize].add(requests, bytes, device_ns);
    }
}

#[cfg(test)]
#[path = "governor_tests.rs"]
mod governor_tests;
