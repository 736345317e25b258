//! The inputs of the laws, computed by examining every page each time: a plain row of dirty pages
//! replaces flush lists, buckets, counters and a quota that workers share.

use super::law::{self, State};
use super::setup::Setup;
use super::sim::{Flusher, Page};
use evenkeel_io::Rng;
use evenkeel_log::Limits;
use evenkeel_sched::laws::pacing::{self, DUE_HORIZONS_SEC, Load, TICK_NS};

const SECOND: u64 = 1_000_000_000;

/// A page: the end of the log when it became dirty, its instance, and whether it is being written.
#[derive(Clone, Copy)]
struct Dirty {
    lsn: u64,
    instance: u64,
    writing: bool,
}

/// The reported laws.
pub struct Lists<'a> {
    setup: &'a Setup,
    repaired: bool,
    pages: Vec<Dirty>,
    /// The pages that each cleaner still has to flush.
    left: Vec<u64>,
    seconds: u64,
    next_ns: u64,
    /// Pages written, and those and the log's end when the average was last taken.
    written: u64,
    noted: (u64, u64),
    rates: (u64, u64),
}

impl<'a> Lists<'a> {
    /// The state without dirty pages.
    pub fn new(setup: &'a Setup, repaired: bool) -> Lists<'a> {
        Lists {
            setup,
            repaired,
            pages: Vec::new(),
            left: vec![0; setup.cleaners as usize],
            seconds: 0,
            next_ns: 0,
            written: 0,
            noted: (setup.first_end(), 0),
            rates: (0, 0),
        }
    }

    fn waiting(&self, instance: u64) -> impl Iterator<Item = &Dirty> {
        self.pages.iter().filter(move |p| !p.writing && p.instance == instance)
    }
}

impl Flusher for Lists<'_> {
    fn join(&mut self, end: u64, pages: u64, rng: &mut Rng) {
        for _ in 0..pages {
            let instance = rng.below(self.setup.cleaners);
            self.pages.push(Dirty { lsn: end, instance, writing: false });
        }
    }

    fn dirty(&self) -> u64 {
        self.pages.len() as u64
    }

    fn age(&self, end: u64) -> u64 {
        self.pages.iter().filter(|p| !p.writing).map(|p| end - p.lsn).max().unwrap_or(0)
    }

    fn tick(&mut self, now: u64, end: u64) -> u64 {
        let is_behind = |(i, left): (u64, &u64)| *left > 0 && self.waiting(i).count() > 0;
        if now < self.next_ns || (0..).zip(&self.left).any(is_behind) {
            return 0;
        }
        self.next_ns = now + SECOND;
        self.seconds += 1;
        if self.seconds > 30 {
            self.seconds = 1;
            self.rates = ((end - self.noted.0) / 30, (self.written - self.noted.1) / 30);
            self.noted = (end, self.written);
        }
        let age = self.age(end);
        let target = end - age + 3 * self.rates.0;
        let older = |i| self.waiting(i).filter(|p| p.lsn < target).count() as u64;
        let older: Vec<u64> = (0..self.setup.cleaners).map(older).collect();
        let state = State {
            age,
            log_bytes: self.setup.log_bytes,
            lsn_avg_rate: self.rates.0,
            avg_page_rate: self.rates.1,
            io_capacity: self.setup.io_capacity,
            io_capacity_max: self.setup.io_capacity_max,
        };
        let request = law::request(&state, &older, self.repaired);
        self.left = request.slots;
        request.pages
    }

    fn submit(&mut self, _now: u64, under_way: u64, _end: u64) -> (Vec<Page>, u64) {
        let mut batch = Vec::new();
        for instance in 0..self.setup.cleaners {
            while self.left[instance as usize] > 0
                && under_way + (batch.len() as u64) < self.setup.async_pages
                // They joined in the order of the log.
                && let Some(page) =
                    self.pages.iter_mut().find(|p| !p.writing && p.instance == instance)
            {
                page.writing = true;
                self.left[instance as usize] -= 1;
                batch.push((0, 0));
            }
        }
        (batch, 0)
    }

    fn delay(&self, end: u64) -> Option<u64> {
        (self.age(end) < self.setup.log_bytes / 8 * 7).then_some(0)
    }

    fn written(&mut self, pages: &[Page]) {
        for _ in pages {
            let at = self.pages.iter().position(|p| p.writing).expect("one is being written");
            self.pages.remove(at);
            self.written += 1;
        }
    }
}

/// The engine's law.
pub struct Buckets<'a> {
    setup: &'a Setup,
    limits: Limits,
    pages: Vec<Dirty>,
    /// Bytes of log in a bucket.
    bucket: u64,
    /// The first change in the bucket of the oldest page, even if that page has left.
    lows: Vec<(u64, u64)>,
    /// The last tick: its time, the end of the log, the speed of the log, the rate.
    last: (u64, u64, u64, u64),
    /// The quota of the tick, and the part that was taken.
    quota: (u64, u64),
}

impl<'a> Buckets<'a> {
    /// The state without dirty pages.
    pub fn new(setup: &'a Setup) -> Buckets<'a> {
        Buckets {
            setup,
            limits: Limits::of_log(setup.log_bytes),
            pages: Vec::new(),
            bucket: (setup.log_bytes / 128).clamp(4 << 10, 4 << 20),
            lows: Vec::new(),
            last: (0, 0, 0, 0),
            quota: (0, 0),
        }
    }

    /// Pages in buckets that begin below this LSN.
    fn older(&self, lsn: u64) -> u64 {
        let begins = |p: &&Dirty| p.lsn / self.bucket * self.bucket < lsn;
        self.pages.iter().filter(begins).count() as u64
    }
}

impl Flusher for Buckets<'_> {
    fn join(&mut self, end: u64, pages: u64, _rng: &mut Rng) {
        for _ in 0..pages {
            let bucket = end / self.bucket;
            if !self.pages.iter().any(|p| p.lsn / self.bucket == bucket) {
                self.lows.retain(|low| low.0 != bucket);
                self.lows.push((bucket, end));
            }
            self.pages.push(Dirty { lsn: end, instance: 0, writing: false });
        }
    }

    fn dirty(&self) -> u64 {
        self.pages.len() as u64
    }

    fn age(&self, end: u64) -> u64 {
        let oldest = self.pages.iter().map(|p| p.lsn / self.bucket).min();
        let low = oldest.and_then(|oldest| self.lows.iter().find(|low| low.0 == oldest));
        low.map_or(0, |low| end - low.1)
    }

    fn tick(&mut self, now: u64, end: u64) -> u64 {
        let (tick_ns, tick_end, _, previous) = self.last;
        if tick_ns != 0 && now - tick_ns < TICK_NS {
            return 0;
        }
        let (elapsed, log) = (now - tick_ns, self.limits.user());
        let wrote = if tick_ns == 0 { 0 } else { end - tick_end };
        let speed = (u128::from(wrote) * u128::from(SECOND) / u128::from(elapsed)) as u64;
        let (target, trigger) = (log / 8 * 3, log / 8 * 5);
        let over = self.older(end.saturating_sub(target));
        let load = Load {
            dirty_pages: self.dirty(),
            dirty_target_pages: self.setup.hot_pages * 2 / 4 * 3,
            dirty_trigger_pages: self.setup.hot_pages * 2 / 8 * 7,
            over_pages: over,
            next_pages: self.older(end.saturating_sub(target) + speed) - over,
            age_bytes: self.age(end),
            age_target_bytes: target,
            age_trigger_bytes: trigger,
            due_pages: DUE_HORIZONS_SEC
                .map(|sec| self.older((end + speed * sec).saturating_sub(trigger))),
            free_frames_pages: 0,
            idle_pages: 0,
            previous_pages_per_sec: previous,
        };
        let rate = pacing::pages_per_sec(&load);
        let pages = pacing::tick_quota(rate, elapsed.min(TICK_NS), load.dirty_pages);
        let asked = pages.saturating_sub(self.quota.0 - self.quota.1);
        self.quota = (pages, 0);
        self.last = (now, end, speed, rate);
        asked
    }

    fn submit(&mut self, now: u64, under_way: u64, end: u64) -> (Vec<Page>, u64) {
        let beat = self.setup.batch_pages;
        let age = pacing::required_age(self.limits.user(), self.last.2);
        let busy = under_way.div_ceil(beat);
        let (mut batch, mut more) = (Vec::new(), 0);
        for _ in busy..self.setup.cleaners {
            let issued = pacing::issued(self.quota.0, beat, now - self.last.0);
            let paced = (issued - self.quota.1).min(beat);
            self.quota.1 += paced;
            // Pages that are being written are required of no other cleaner.
            let writing = self.pages.iter().filter(|p| p.writing).count() as u64;
            let required = self.older(end.saturating_sub(age)).saturating_sub(writing).min(beat);
            more += required.saturating_sub(paced);
            let mut done = 0;
            while done < paced.max(required)
                && let Some(at) = self.pages.iter().position(|p| !p.writing)
            {
                self.pages[at].writing = true;
                batch.push((0, 0));
                done += 1;
            }
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
        for _ in pages {
            let at = self.pages.iter().position(|p| p.writing).expect("one is being written");
            self.pages.remove(at);
        }
    }
}
