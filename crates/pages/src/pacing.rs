//! The pacing law of the page cleaner: pages per second to flush, as a pure function of counters.
//! No clock, no I/O and no average over the past, so it is right from the first tick after a
//! restart (P3).
//!
//! `rate = over / H + next + supply`, where `over` are the dirty pages older than the target age
//! (or beyond the target share of the pool), `next` those the log will push over it within a
//! second at its present speed, `supply` cold dirty pages the clock met. H is the time in which the
//! excess is to go: 10 s just above the target, 1 s at the trigger, so the limit is never reached
//! while the device keeps up. The rate moves by at most a factor of two per tick.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Nanoseconds between two evaluations.
pub const TICK_NS: u64 = 100_000_000;
/// H at the target.
const HORIZON_MAX: f64 = 10.0;
/// H at the trigger and beyond.
const HORIZON_MIN: f64 = 1.0;
/// The rate may always rise to this within one tick.
const STEP_MIN: u64 = 512;

/// What the law looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Dirty pages in all.
    pub dirty_pages: u64,
    /// Dirty pages above which the pool's share is exceeded (target).
    pub dirty_target_pages: u64,
    /// Dirty pages at which it is to be brought down within a second (trigger).
    pub dirty_trigger_pages: u64,
    /// Pages with changes older than the target age.
    pub over_pages: u64,
    /// Pages that the log will push over the target age within a second.
    pub next_pages: u64,
    /// Age of the oldest change, in bytes of log.
    pub age_bytes: u64,
    /// Target age.
    pub age_target_bytes: u64,
    /// Age at which the excess is to go within a second.
    pub age_trigger_bytes: u64,
    /// Cold dirty pages waiting to be written so that their frames can be used.
    pub supply_pages: u64,
    /// The rate of the last tick.
    pub previous_pages_per_sec: u64,
}

/// 0 at the target, 1 at the trigger.
fn urgency(value: u64, target: u64, trigger: u64) -> f64 {
    if value <= target {
        return 0.0;
    }
    let span = trigger.saturating_sub(target).max(1);
    ((value - target) as f64 / span as f64).min(1.0)
}

/// Why the law asks: its terms, pages per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Pages older than the target age.
    pub age: u64,
    /// Pages beyond the pool's dirty share, where those are more.
    pub share: u64,
    /// Pages that the log pushes over the target age within a second.
    pub next: u64,
    /// Cold dirty pages whose frames are wanted.
    pub supply: u64,
}

impl Terms {
    /// The rate they ask for together.
    pub fn sum(&self) -> u64 {
        self.age + self.share + self.next + self.supply
    }

    /// Divides a quota of pages among the terms, in proportion.
    pub fn divide(&self, quota: u64) -> Terms {
        let sum = u128::from(self.sum().max(1));
        let part = |term: u64| (u128::from(term) * u128::from(quota) / sum) as u64;
        let (share, next, supply) = (part(self.share), part(self.next), part(self.supply));
        let age = if self.age == 0 { 0 } else { quota - share - next - supply };
        Terms { age, share, next, supply }
    }
}

/// What the load asks for, by term.
pub fn terms(load: &Load) -> Terms {
    let dirty_over = load.dirty_pages.saturating_sub(load.dirty_target_pages);
    let over = load.over_pages.max(dirty_over).min(load.dirty_pages);
    let by_age = urgency(load.age_bytes, load.age_target_bytes, load.age_trigger_bytes);
    let by_share = urgency(load.dirty_pages, load.dirty_target_pages, load.dirty_trigger_pages);
    let horizon = HORIZON_MAX - (HORIZON_MAX - HORIZON_MIN) * by_age.max(by_share);
    let excess = (over as f64 / horizon).ceil() as u64;
    let ticks_per_sec = 1_000_000_000 / TICK_NS;
    let aged = load.over_pages >= dirty_over;
    Terms {
        age: if aged { excess } else { 0 },
        share: if aged { 0 } else { excess },
        next: load.next_pages,
        supply: load.supply_pages * ticks_per_sec,
    }
}

/// The rate that the load asks for, before the slew limit.
pub fn wanted_pages_per_sec(load: &Load) -> u64 {
    terms(load).sum()
}

/// The rate for the next tick: what is wanted, slew-limited.
pub fn pages_per_sec(load: &Load) -> u64 {
    let previous = load.previous_pages_per_sec;
    let highest = previous.saturating_mul(2).max(STEP_MIN);
    let lowest = if previous <= STEP_MIN { 0 } else { previous / 2 };
    wanted_pages_per_sec(load).clamp(lowest, highest)
}

/// Pages to flush in a tick of `elapsed_ns`, never more than there are.
pub fn tick_quota(pages_per_sec: u64, elapsed_ns: u64, dirty_pages: u64) -> u64 {
    let elapsed = elapsed_ns.min(TICK_NS * 2);
    let quota = (u128::from(pages_per_sec) * u128::from(elapsed)).div_ceil(1_000_000_000);
    u64::try_from(quota).unwrap_or(u64::MAX).min(dirty_pages)
}

/// Pages that may be flushed until the next tick. All workers draw from it, so that what they do
/// together is what the law says, whatever their number.
#[derive(Debug, Default)]
pub struct Quota(AtomicU64);

impl Quota {
    /// A new tick: what the last one left over is not carried on, the law sees it as dirty pages.
    /// Returns how many pages this adds to what was asked for before.
    pub fn refill(&self, pages: u64) -> u64 {
        pages.saturating_sub(self.0.swap(pages, SeqCst))
    }

    /// A worker's part: at most `max`.
    pub fn take(&self, max: u64) -> u64 {
        let mut taken = 0;
        let take = |now: u64| {
            taken = now.min(max);
            Some(now - taken)
        };
        // The closure never refuses.
        let _ = self.0.fetch_update(SeqCst, SeqCst, take);
        taken
    }
}
