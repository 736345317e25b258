//! A server after a crash in virtual time: connections, a disk with one queue, cleaners. The dirty
//! pages are real: queues by age for the reported laws, the engine's buckets for ours.

use super::law::{self, State};
use super::setup::Setup;
use evenkeel_base::{Lsn, TreeId};
use evenkeel_io::Rng;
use evenkeel_pages::dirty::{Dirty, Surroundings};
use evenkeel_pages::pacing::{self, Quota};
use std::collections::VecDeque;

/// One step of the virtual clock.
const STEP_NS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// The pages belong to one table here; their number per table is another experiment.
const TREE: TreeId = TreeId(1);

/// Which law says how many pages to flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// As published.
    Published,
    /// With the case of no average handled.
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

/// Pages under way to the disk: when each batch is written, and what it holds.
type Batch = (u64, Vec<(u64, u32)>);

/// How dirty pages are kept, and who flushes.
trait Flusher {
    /// Pages became dirty at log end `end`.
    fn join(&mut self, end: u64, pages: u64, rng: &mut Rng);
    fn dirty(&self) -> u64;
    /// Age of the oldest change.
    fn age(&self, end: u64) -> u64;
    /// Evaluates the law if it is time; how many more pages it requests.
    fn tick(&mut self, now: u64, end: u64) -> u64;
    /// Pages that cleaners hand to the disk now, given how many are under way.
    fn submit(&mut self, under_way: u64) -> Vec<(u64, u32)>;
    /// They are written.
    fn written(&mut self, pages: &[(u64, u32)]);
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
        // The next round begins when every slot is done and a second is over.
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

    fn submit(&mut self, under_way: u64) -> Vec<(u64, u32)> {
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
        batch
    }

    fn written(&mut self, pages: &[(u64, u32)]) {
        self.writing -= pages.len() as u64;
        self.flushed += pages.len() as u64;
    }
}

impl Lists<'_> {
    fn waiting(&self) -> usize {
        self.lists.iter().zip(&self.left).map(|(l, left)| l.len().min(*left as usize)).sum()
    }
}

/// The engine's buckets, law and quota; its cleaners write a batch each at a time.
struct Buckets<'a> {
    setup: &'a Setup,
    dirty: Dirty,
    quota: Quota,
    rate: u64,
    next_ns: u64,
    end_at_tick: u64,
    draining: Vec<(u64, u32)>,
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
        if now < self.next_ns {
            return 0;
        }
        let is_first = self.next_ns == 0;
        self.next_ns = now + pacing::TICK_NS;
        let written = if is_first { 0 } else { end - self.end_at_tick };
        self.end_at_tick = end;
        let load = self.dirty.load(&Surroundings {
            end: Lsn(end),
            log_bytes: self.setup.log_bytes,
            log_bytes_per_sec: written * (SECOND / pacing::TICK_NS),
            frames: self.setup.hot_pages * 2,
            supply_pages: 0,
            previous_pages_per_sec: self.rate,
        });
        self.rate = pacing::pages_per_sec(&load);
        self.quota.refill(pacing::tick_quota(self.rate, pacing::TICK_NS, load.dirty_pages))
    }

    fn submit(&mut self, under_way: u64) -> Vec<(u64, u32)> {
        let room = (self.setup.cleaners * self.setup.batch_pages).saturating_sub(under_way);
        let mut batch = Vec::new();
        for _ in 0..self.quota.take(room) {
            if self.draining.is_empty() {
                let Some((bucket, frames)) = self.dirty.take_below(u64::MAX) else { break };
                self.draining = frames.into_iter().rev().map(|f| (bucket, f)).collect();
            }
            batch.extend(self.draining.pop());
        }
        batch
    }

    fn written(&mut self, pages: &[(u64, u32)]) {
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
            rate: 0,
            next_ns: 0,
            end_at_tick: 0,
            draining: Vec::new(),
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

/// A number per second of which whole ones happen.
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
    let mut rng = Rng::new(setup.seed ^ 0x9357);
    let mut flusher = flusher(setup, law);
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
        out.requested[second] += flusher.tick(now, end) as f64;
        let batch = flusher.submit(pages_under_way);
        if !batch.is_empty() {
            disk_free = disk_free.max(now) + page_ns(batch.len() as u64);
            pages_under_way += batch.len() as u64;
            under_way.push_back((disk_free, batch));
        }
        // Whoever comes to the disk now waits for what is queued; each transaction comes so often.
        let queue = disk_free.saturating_sub(now);
        out.queue[second] = out.queue[second].max(queue as f64 / SECOND as f64);
        if flusher.age(end) >= setup.log_bytes / 8 * 7 {
            continue;
        }
        let takes = setup.tx_ns as f64 + setup.disk_visits * queue as f64;
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
