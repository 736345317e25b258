//! The pacing law of the page cleaner: pages per second to flush, as a pure function of counters.
//! It has no clock, no I/O and no average over the past, so it is right from the first tick after a
//! restart (P3).
//!
//! `rate = max(max(over / H, due - next, share) + next + free_frames, idle)`. `over` is the number
//! of dirty pages older than the target age. `next` is the number of pages that the log will push
//! over that age within a second at its present speed. `due` is the least rate with which no page
//! grows older than the trigger age: for each of a few horizons, the pages that will be older by
//! then, divided by the horizon. An old log, as a crash leaves it, is therefore brought down over H
//! = 30 s, and faster only if the trigger would be passed. `share` is the number of pages beyond
//! the target share of the pool, to be written within 10 s at the target and 1 s at the trigger.
//! `free_frames` is the number of cold dirty pages that the clock met. `idle` is a part of the
//! pages that the idle flush writes (`idle_flush`), so few that readers do not notice. The rate
//! changes by at most a factor of two in a tick.
//!
//! Beyond the trigger flushes are required (G2): [`required_age`].

/// Nanoseconds between two evaluations.
pub const TICK_NS: u64 = 100_000_000;
/// Pages older than the target age are to be written within this many seconds.
const AGE_HORIZON: f64 = 30.0;
/// Pages that will be older than the trigger in this many seconds are to be written by then.
pub const DUE_HORIZONS_SEC: [u64; 3] = [10, 20, 40];
/// Pages beyond the target share are to be written within this many seconds.
const SHARE_HORIZON_MAX: f64 = 10.0;
/// The same at the trigger.
const SHARE_HORIZON_MIN: f64 = 1.0;
/// Most pages that were dirty when the log became idle are to be written within this many seconds.
const IDLE_HORIZON: f64 = 10.0;
/// At least this many of them per second, so that the last ones are also written soon.
const IDLE_MIN: u64 = 512;
/// At most this many per second, because others may read meanwhile.
const IDLE_MAX: u64 = 2048;
/// The rate may always rise to this within one tick.
const STEP_MIN: u64 = 512;
/// The least room that is left in the log when flushing becomes required.
const REQUIRED_ROOM_MIN: u64 = 4 << 20;

/// The inputs of the law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Dirty pages in all.
    pub dirty_pages: u64,
    /// The target number of dirty pages.
    pub dirty_target_pages: u64,
    /// The number of dirty pages that is brought down within a second (trigger).
    pub dirty_trigger_pages: u64,
    /// Pages with changes older than the target age.
    pub over_pages: u64,
    /// Pages that the log will push over the target age within a second.
    pub next_pages: u64,
    /// Age of the oldest change, in bytes of log.
    pub age_bytes: u64,
    /// Target age.
    pub age_target_bytes: u64,
    /// Age that no page is to reach.
    pub age_trigger_bytes: u64,
    /// Pages that will be older than the trigger, for each horizon in seconds.
    pub due_pages: [u64; DUE_HORIZONS_SEC.len()],
    /// Cold dirty pages waiting to be written so that their frames become free.
    pub free_frames_pages: u64,
    /// Pages to be written because the log is idle.
    pub idle_pages: u64,
    /// The rate of the last tick.
    pub previous_pages_per_sec: u64,
}

impl Load {
    /// As numbers, in the order of the fields; `due_pages` before `free_frames_pages`.
    pub fn numbers(&self) -> Vec<u64> {
        let mut all = vec![
            self.dirty_pages,
            self.dirty_target_pages,
            self.dirty_trigger_pages,
            self.over_pages,
            self.next_pages,
            self.age_bytes,
            self.age_target_bytes,
            self.age_trigger_bytes,
        ];
        all.extend(self.due_pages);
        all.extend([self.free_frames_pages, self.idle_pages, self.previous_pages_per_sec]);
        all
    }

    /// The inverse of `numbers`.
    pub fn from_numbers(numbers: &[u64]) -> Option<Load> {
        let [dirty, target, trigger, over, next, age, age_target, age_trigger, rest @ ..] = numbers
        else {
            return None;
        };
        let [due @ .., free_frames, idle, previous] = rest else { return None };
        Some(Load {
            dirty_pages: *dirty,
            dirty_target_pages: *target,
            dirty_trigger_pages: *trigger,
            over_pages: *over,
            next_pages: *next,
            age_bytes: *age,
            age_target_bytes: *age_target,
            age_trigger_bytes: *age_trigger,
            due_pages: due.try_into().ok()?,
            free_frames_pages: *free_frames,
            idle_pages: *idle,
            previous_pages_per_sec: *previous,
        })
    }
}

/// The rate for a load given as numbers; none if they are not a load.
pub fn decide(inputs: &[u64]) -> Option<Vec<u64>> {
    Some(vec![pages_per_sec(&Load::from_numbers(inputs)?)])
}

/// 0 at the target, 1 at the trigger.
fn urgency(value: u64, target: u64, trigger: u64) -> f64 {
    if value <= target {
        return 0.0;
    }
    let span = trigger.saturating_sub(target).max(1);
    ((value - target) as f64 / span as f64).min(1.0)
}

/// The terms of the law, in pages per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Pages older than the target age.
    pub age: u64,
    /// Pages beyond the target share of dirty pages, if those are more.
    pub share: u64,
    /// Pages that the log pushes over the target age within a second.
    pub next: u64,
    /// Cold dirty pages whose frames are needed.
    pub free_frames: u64,
    /// Pages of the idle flush, if those are more than the others together.
    pub idle: u64,
}

impl Terms {
    /// The total rate that they request.
    pub fn sum(&self) -> u64 {
        self.age + self.share + self.next + self.free_frames + self.idle
    }

    /// The rate that the age of pages requests. Cold pages serve the other terms as well.
    pub fn aged(&self) -> u64 {
        self.age + self.next
    }

    /// True if only the idle flush requests pages, or the rate has not fallen yet: no page is
    /// needed.
    pub fn is_surplus(&self) -> bool {
        self.sum() == self.idle
    }

    /// Divides a quota of pages among the terms, in proportion.
    pub fn divide(&self, quota: u64) -> Terms {
        let sum = u128::from(self.sum().max(1));
        let part = |term: u64| (u128::from(term) * u128::from(quota) / sum) as u64;
        let (share, next, free_frames) =
            (part(self.share), part(self.next), part(self.free_frames));
        let idle = part(self.idle);
        let age = if self.age == 0 { 0 } else { quota - share - next - free_frames - idle };
        Terms { age, share, next, free_frames, idle }
    }
}

/// The request of the load, by term.
pub fn terms(load: &Load) -> Terms {
    let excess = |pages: u64, horizon: f64| (pages as f64 / horizon).ceil() as u64;
    let over = load.over_pages.min(load.dirty_pages);
    let due = load.due_pages.iter().zip(DUE_HORIZONS_SEC);
    let due = due.map(|(pages, sec)| excess((*pages).min(load.dirty_pages), sec as f64)).max();
    // The larger of the two: `due` contains the pages that the log pushes over the trigger.
    let age = excess(over, AGE_HORIZON).max(due.unwrap_or(0).saturating_sub(load.next_pages));
    let (target, trigger) = (load.dirty_target_pages, load.dirty_trigger_pages);
    let urgency = urgency(load.dirty_pages, target, trigger);
    let horizon = SHARE_HORIZON_MAX - (SHARE_HORIZON_MAX - SHARE_HORIZON_MIN) * urgency;
    let share = excess(load.dirty_pages.saturating_sub(target), horizon);
    let ticks_per_sec = 1_000_000_000 / TICK_NS;
    let others = Terms {
        age,
        share: share.saturating_sub(age),
        next: load.next_pages,
        free_frames: load.free_frames_pages * ticks_per_sec,
        idle: 0,
    };
    let idle = excess(load.idle_pages.min(load.dirty_pages), IDLE_HORIZON);
    let idle = idle.clamp(IDLE_MIN, IDLE_MAX);
    // At most as many in a tick as there are, because the newest ones still change.
    let idle = idle.min(load.idle_pages * ticks_per_sec);
    Terms { idle: idle.saturating_sub(others.sum()), ..others }
}

/// The age from which on flushes are required, at the speed of the device: the log would reach its
/// limit within half a second, which is a few evaluations of the law.
pub fn required_age(limit_bytes: u64, log_bytes_per_sec: u64) -> u64 {
    let room = (log_bytes_per_sec / 2).max(limit_bytes / 64).max(REQUIRED_ROOM_MIN);
    limit_bytes - room.min(limit_bytes / 4)
}

/// The rate that the load requests, before the slew limit.
pub fn wanted_pages_per_sec(load: &Load) -> u64 {
    terms(load).sum()
}

/// The rate for the next tick: the requested rate, slew-limited.
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

/// The pages of a tick's quota that may have been begun `elapsed_ns` after the tick: a batch at
/// once, then evenly, so that the device never gets a tick's work in one piece.
pub fn issued(quota: u64, batch: u64, elapsed_ns: u64) -> u64 {
    let batches = u128::from(quota.div_ceil(batch.max(1)));
    let due = u128::from(elapsed_ns) * batches / u128::from(TICK_NS) + 1;
    u64::try_from(due).unwrap_or(u64::MAX).saturating_mul(batch.max(1)).min(quota)
}

/// The most cold pages in a batch while `old` pages are due: those change too often to become cold,
/// and the log has no room unless they get at least half of the batch.
pub fn cold_most(batch: u64, old: u64) -> u64 {
    batch - old.min(batch / 2)
}

/// The part of a batch that is taken from the oldest pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchQuota {
    /// Pages.
    pub pages: u64,
    /// Those of them that the law has not requested.
    pub beyond: u64,
}

/// A batch with `room` takes the pages that the law has issued to it (`paced`), and `required`
/// pages, which hold up the checkpoint, whatever the law says (G2).
pub fn batch_quota(paced: u64, required: u64, room: u64) -> BatchQuota {
    let pages = paced.max(required.min(room));
    BatchQuota { pages, beyond: pages - paced }
}
