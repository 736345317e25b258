//! A server after a crash in virtual time: connections, a disk with one queue, cleaners. The dirty
//! pages are real: queues by age for the reported laws, the engine's buckets for ours.

use super::law::{self, State};
use super::setup::Setup;
use evenkeel_base::{Lsn, TreeId};
use evenkeel_io::Rng;
use evenkeel_log::Limits;
use evenkeel_pages::dirty::{Dirty, Draining, Surroundings};
use evenkeel_pages::pacer::Pacer;
use evenkeel_pages::quota::{self, Quota};
use std::collections::VecDeque;

/// One step of the virtual clock.
const STEP_NS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// The pages belong to one table here; their number per table is another experiment.
const TREE: TreeId = TreeId(1);

/// The law that decides how many pages to flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// As published.
    Published,
    /// With the case without an average handled.
    Repaired,
    /// The engine's.
    Ours,
}

/// Figures of each second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seconds {
    /// Pages that the law says it requested.
    pub requested: Vec<f64>,
    /// Pages flushed.
    pub flushed: Vec<f64>,
    /// Transactions.
    pub done: Vec<f64>,
    /// The longest wait for the disk, seconds.
    pub queue: Vec<f64>,
}

/// A dirty page: its bucket and its frame.
pub(super) type Page = (u64, u32);

/// Pages under way to the disk: the time at which the batch is written, and its pages.
type Batch = (u64, Vec<Page>);

/// Keeps the dirty pages and flushes them.
pub(super) trait Flusher {
    /// Pages became dirty at log end `end`.
    fn join(&mut self, end: u64, pages: u64, rng: &mut Rng);
    /// Pages dirty.
    fn dirty(&self) -> u64;
    /// Age of the oldest change.
    fn age(&self, end: u64) -> u64;
    /// Evaluates the law if it is time; returns how many more pages it requests.
    fn tick(&mut self, now: u64, end: u64) -> u64;
    /// Pages that cleaners hand to the disk now, given how many are under way; and how many of them
    /// the cleaners request in addition to the law.
    fn submit(&mut self, now: u64, under_way: u64, end: u64) -> (Vec<Page>, u64);
    /// Delay of a transaction because the log is old, in nanoseconds; `None`: it waits.
    fn delay(&self, end: u64) -> Option<u64>;
    /// The pages were written.
    fn written(&mut self, pages: &[Page]);
}

/// Flush lists, one per instance, each with a cleaner.
struct Lists<'a> {
    setup: &'a Setup,
    repaired: bool,
    lists: Vec<VecDeque<u64>>,
    left: Vec<u64>,
    writing: u64,
    next_ns: u64,
    loops: u64,
    flushed: u64,
    state: State,
    end_at_average: u64,
    flushed_at_average: u64,
}

impl Flusher for Lists<'_> {
    fn join(&mut self, end: u64, pages: u64, rng: &mut Rng) {
        for _ in 0..pages {
            let instance = rng.below(self.lists.len() as u64) as usize;
            self.lists[instance].push_back(end);
        }
    }

    fn dirty(&self) -> u64 {
        self.lists.iter().map(|l| l.len() as u64).sum::<u64>() + self.writing
    }

    fn age(&self, end: u64) -> u64 {
        let oldest = self.lists.iter().filter_map(|l| l.front()).min();
        oldest.map_or(0, |oldest| end - oldest)
    }

    fn tick(&mut self, now: u64, end: u64) -> u64 {
        // The next round begins when every slot is done and a second has passed.
        if now < self.next_ns || (self.left.iter().any(|l| *l > 0) && self.waiting() > 0) {
            return 0;
        }
        self.next_ns = now + SECOND;
        self.loops += 1;
        if self.loops > law::AVERAGING_LOOPS {
            self.loops = 1;
            let loops = law::AVERAGING_LOOPS;
            self.state.lsn_avg_rate = (end - self.end_at_average) / loops;
            self.state.avg_page_rate = (self.flushed - self.flushed_at_average) / loops;
            (self.end_at_average, self.flushed_at_average) = (end, self.flushed);
        }
        self.state.age = self.age(end);
        let oldest = end - self.state.age;
        let target = oldest + self.state.lsn_avg_rate * law::SCAN_FACTOR;
        let older = |list: &VecDeque<u64>| list.partition_point(|lsn| *lsn < target) as u64;
        let older: Vec<u64> = self.lists.iter().map(older).collect();
        let request = law::request(&self.state, &older, self.repaired);
        self.left = request.slots;
        request.pages
    }

    fn submit(&mut self, _now: u64, under_way: u64, _end: u64) -> (Vec<Page>, u64) {
        let mut room = self.setup.async_pages.saturating_sub(under_way);
        let mut batch = Vec::new();
        for (list, left) in self.lists.iter_mut().zip(&mut self.left) {
            while room > 0 && *left > 0 && list.pop_front().is_some() {
                batch.push((0, 0));
                *left -= 1;
                room -= 1;
            }
        }
        self.writing += batch.len() as u64;
        (batch, 0)
    }

    fn delay(&self, end: u64) -> Option<u64> {
        (self.age(end) < self.setup.log_bytes / 8 * 7).then_some(0)
    }

    fn written(&mut self, pages: &[Page]) {
        self.writing -= pages.len() as u64;
        self.flushed += pages.len() as u64;
    }
}

impl Lists<'_> {
    fn waiting(&self) -> usize {
        self.lists.iter().zip(&self.left).map(|(l, left)| l.len().min(*left as usize)).sum()
    }
}

/// The engine's buckets, law and quota; each cleaner writes one batch at a time.
struct Buckets<'a> {
    setup: &'a Setup,
    dirty: Dirty,
    quota: Quota,
    pacer: Pacer,
    limits: Limits,
    draining: Draining,
    frame: u32,
}

impl Flusher for Buckets<'_> {
    fn join(&mut self, end: u64, pages: u64, _rng: &mut Rng) {
        for _ in 0..pages {
            self.frame = self.frame.wrapping_add(1);
            self.dirty.join(Lsn(end), self.frame, TREE);
        }
    }

    fn dirty(&self) -> u64 {
        self.dirty.total()
    }

    fn age(&self, end: u64) -> u64 {
        self.dirty.oldest().map_or(0, |oldest| end - oldest.0)
    }

    fn tick(&mut self, now: u64, end: u64) -> u64 {
        if self.pacer.next_in(now).is_some() {
            return 0;
        }
        let around = Surroundings {
            end: Lsn(end),
            log_bytes: self.limits.user(),
            frames: self.setup.hot_pages * 2,
            ..Surroundings::default()
        };
        self.pacer.tick(now, around, &self.dirty, &self.quota).asked
    }

    /// Beats of the cleaners without a batch under way. As in the engine, pages that hold up the
    /// checkpoint are written whatever the law decides (G2), and count as requested too.
    fn submit(&mut self, now: u64, under_way: u64, end: u64) -> (Vec<Page>, u64) {
        let required = Lsn(end.saturating_sub(self.pacer.required_age(self.limits.user())));
        let size = self.setup.batch_pages;
        let rest = self.setup.cleaners.saturating_sub(under_way.div_ceil(size));
        let (mut batch, mut more) = (Vec::new(), 0);
        for _ in 0..rest {
            let hold_up = self.dirty.older_than(required);
            let in_flight = under_way + batch.len() as u64;
            let none_cold = |_| Vec::new();
            let old = quota::beat(&self.quota, now, size, hold_up, in_flight, none_cold).old;
            let accept = |bucket, frame| {
                batch.push((bucket, frame));
                true
            };
            // Frames are numbered as pages are.
            let page = |frame| frame;
            let done = self.draining.take(&self.dirty, old.pages as usize, page, accept);
            more += old.beyond;
            if done == 0 {
                break;
            }
        }
        (batch, more)
    }

    fn delay(&self, end: u64) -> Option<u64> {
        let (age, bytes) = (self.age(end), self.setup.tx_log_bytes);
        let delay = self.limits.delay(age, bytes).map_or(0, |delay| delay.as_nanos() as u64);
        (age + bytes <= self.limits.user()).then_some(delay)
    }

    fn written(&mut self, pages: &[Page]) {
        for (bucket, _) in pages {
            self.dirty.leave(*bucket, TREE);
        }
    }
}

fn flusher<'a>(setup: &'a Setup, law: Law) -> Box<dyn Flusher + 'a> {
    let instances = setup.cleaners as usize;
    match law {
        Law::Ours => Box::new(Buckets {
            setup,
            dirty: Dirty::new(setup.log_bytes),
            quota: Quota::default(),
            pacer: Pacer::default(),
            limits: Limits::of_log(setup.log_bytes),
            draining: Draining::default(),
            frame: 0,
        }),
        Law::Published | Law::Repaired => Box::new(Lists {
            setup,
            repaired: law == Law::Repaired,
            lists: vec![VecDeque::new(); instances],
            left: vec![0; instances],
            writing: 0,
            next_ns: 0,
            loops: 0,
            flushed: 0,
            state: State {
                log_bytes: setup.log_bytes,
                io_capacity: setup.io_capacity,
                io_capacity_max: setup.io_capacity_max,
                ..State::default()
            },
            end_at_average: setup.first_end(),
            flushed_at_average: 0,
        }),
    }
}

/// A rate per second, of which whole units happen.
#[derive(Default)]
struct Fraction(f64);

impl Fraction {
    fn whole(&mut self, more: f64) -> u64 {
        self.0 += more;
        let whole = self.0.floor();
        self.0 -= whole;
        whole as u64
    }
}

/// The first seconds after recovery under one law.
pub fn run(setup: &Setup, law: Law) -> Seconds {
    drive(setup, &mut *flusher(setup, law))
}

/// The first seconds after recovery.
pub(super) fn drive(setup: &Setup, flusher: &mut dyn Flusher) -> Seconds {
    let mut rng = Rng::new(setup.seed ^ 0x9357);
    let mut end = setup.first_end();
    let first = setup.first_dirty();
    for page in 0..first {
        let age = setup.first_age() * (first - page) / first;
        flusher.join(end - age, 1, &mut rng);
    }
    let seconds = setup.seconds as usize;
    let all = || vec![0.0; seconds];
    let mut out = Seconds { requested: all(), flushed: all(), done: all(), queue: all() };
    let mut under_way: VecDeque<Batch> = VecDeque::new();
    let (mut disk_free, mut pages_under_way) = (0u64, 0u64);
    let (mut done, mut dirtied, mut reads) =
        (Fraction::default(), Fraction::default(), Fraction::default());
    let page_ns = |pages: u64| pages * setup.page_bytes * SECOND / setup.disk_bytes_per_sec;
    for step in 0..setup.seconds * (SECOND / STEP_NS) {
        let now = step * STEP_NS;
        let second = (now / SECOND) as usize;
        while under_way.front().is_some_and(|b| b.0 <= now) {
            let Some((_, pages)) = under_way.pop_front() else { break };
            pages_under_way -= pages.len() as u64;
            out.flushed[second] += pages.len() as f64;
            flusher.written(&pages);
        }
        // The clock of a machine does not start with the server.
        let asked = flusher.tick(SECOND + now, end);
        let (batch, more) = flusher.submit(SECOND + now, pages_under_way, end);
        out.requested[second] += (asked + more) as f64;
        if !batch.is_empty() {
            disk_free = disk_free.max(now) + page_ns(batch.len() as u64);
            pages_under_way += batch.len() as u64;
            under_way.push_back((disk_free, batch));
        }
        // A transaction that reaches the disk now waits for the queue; each transaction does so
        // this often.
        let queue = disk_free.saturating_sub(now);
        out.queue[second] = out.queue[second].max(queue as f64 / SECOND as f64);
        let Some(delay) = flusher.delay(end) else { continue };
        let takes = (setup.tx_ns + delay) as f64 + setup.disk_visits * queue as f64;
        let ended = done.whole(setup.connections as f64 * STEP_NS as f64 / takes);
        out.done[second] += ended as f64;
        disk_free = disk_free.max(now) + page_ns(reads.whole(ended as f64 * setup.reads));
        let clean = 1.0 - (flusher.dirty() as f64 / setup.hot_pages as f64).min(1.0);
        for _ in 0..ended {
            end += setup.tx_log_bytes;
            flusher.join(end, dirtied.whole(clean), &mut rng);
        }
    }
    out
}
