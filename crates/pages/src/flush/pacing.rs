//! The pacing law of the page cleaner: pages per second to flush, as a pure function of counters.
//! No clock, no I/O and no average over the past, so it is right from the first tick after a
//! restart (P3).
//!
//! `rate = max(max(over / H, due - next, share) + next + supply, quiet)`, where `over` are the
//! dirty pages older than the target age, `next` those the log will push over it within a second at
//! its present speed, and `due` the least rate with which no page grows older than the trigger: for
//! each of a few horizons the pages that will be older by then, divided by it. So an old log, as a
//! crash leaves it, is brought down over H = 30 s, and faster only if the trigger would be passed.
//! `share` are pages beyond the target share of the pool, to go within 10 s at the target and 1 s
//! at the trigger; `supply` cold dirty pages the clock met; `quiet` a part of the pages that the
//! idle flush writes (`idle_flush`), so few that readers do not notice. The rate moves by at most a
//! factor of two per tick.
//!
//! Beyond the trigger flushes are required (G2): [`required_age`].

use evenkeel_base::sync::Mutex;

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
/// Most pages that were dirty when the log became quiet are to be written within this many seconds.
const IDLE_HORIZON: f64 = 10.0;
/// At least this many of them per second, so that the last ones are written soon, too.
const IDLE_MIN: u64 = 512;
/// At most this many per second, because others may read meanwhile.
const IDLE_MAX: u64 = 2048;
/// The rate may always rise to this within one tick.
const STEP_MIN: u64 = 512;
/// Room that is left to a log, at least, when flushing becomes required.
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
    pub supply_pages: u64,
    /// Pages to be written because the log is quiet.
    pub quiet_pages: u64,
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
        all.extend([self.supply_pages, self.quiet_pages, self.previous_pages_per_sec]);
        all
    }

    /// The inverse of `numbers`.
    pub fn from_numbers(numbers: &[u64]) -> Option<Load> {
        let [dirty, target, trigger, over, next, age, age_target, age_trigger, rest @ ..] = numbers
        else {
            return None;
        };
        let [due @ .., supply, quiet, previous] = rest else { return None };
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
            supply_pages: *supply,
            quiet_pages: *quiet,
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
    pub supply: u64,
    /// Pages of the idle flush, if those are more than the others together.
    pub quiet: u64,
}

impl Terms {
    /// The total rate that they request.
    pub fn sum(&self) -> u64 {
        self.age + self.share + self.next + self.supply + self.quiet
    }

    /// The rate that the age of pages requests. Cold pages serve the other terms as well.
    pub fn aged(&self) -> u64 {
        self.age + self.next
    }

    /// True if only the idle flush requests pages, or the rate has not fallen yet: no page is
    /// needed.
    pub fn is_surplus(&self) -> bool {
        self.sum() == self.quiet
    }

    /// Divides a quota of pages among the terms, in proportion.
    pub fn divide(&self, quota: u64) -> Terms {
        let sum = u128::from(self.sum().max(1));
        let part = |term: u64| (u128::from(term) * u128::from(quota) / sum) as u64;
        let (share, next, supply) = (part(self.share), part(self.next), part(self.supply));
        let quiet = part(self.quiet);
        let age = if self.age == 0 { 0 } else { quota - share - next - supply - quiet };
        Terms { age, share, next, supply, quiet }
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
        supply: load.supply_pages * ticks_per_sec,
        quiet: 0,
    };
    let quiet = excess(load.quiet_pages.min(load.dirty_pages), IDLE_HORIZON);
    let quiet = quiet.clamp(IDLE_MIN, IDLE_MAX);
    // At most as many in a tick as there are, because the newest ones still change.
    let quiet = quiet.min(load.quiet_pages * ticks_per_sec);
    Terms { quiet: quiet.saturating_sub(others.sum()), ..others }
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

/// The pages that a beat of a cleaner writes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CleanerBeat {
    /// Cold pages, by frame.
    pub cold: Vec<u32>,
    /// Pages from the oldest buckets.
    pub old: BatchQuota,
    /// Pages that hold up the checkpoint and that no other worker is writing.
    pub required: u64,
}

/// What a worker does with a batch of `batch` pages, where `hold_up` pages hold up the checkpoint
/// and `in_flight` are being written: the latter still count as dirty and are not required of this
/// worker. Cold pages come first (`take_cold` returns up to the given number), but leave half of
/// the batch to old ones.
pub fn beat(
    quota: &Quota,
    now_ns: u64,
    batch: u64,
    hold_up: u64,
    in_flight: u64,
    take_cold: impl FnOnce(usize) -> Vec<u32>,
) -> CleanerBeat {
    let required = hold_up.saturating_sub(in_flight);
    let old = required.max(quota.aged(batch, now_ns));
    let cold = take_cold(cold_most(batch, old) as usize);
    let room = batch - cold.len() as u64;
    let old = batch_quota(quota.take(room, batch, now_ns), required, room);
    CleanerBeat { cold, old, required }
}

#[derive(Debug, Default)]
struct Issue {
    since_ns: u64,
    pages: u64,
    /// Those of them that the age of pages requests.
    aged: u64,
    taken: u64,
}

/// Pages that may be flushed until the next tick. All workers draw from it, so their total follows
/// the law whatever their number. Invariant: taken <= issued <= pages.
#[derive(Debug, Default)]
pub struct Quota(Mutex<Issue>);

impl Quota {
    /// A new tick: an unused quota is not carried over, because the law sees those pages as dirty.
    /// `aged` of the pages are requested by age. Returns the number of pages added to earlier
    /// requests.
    pub fn refill(&self, pages: u64, aged: u64, now_ns: u64) -> u64 {
        let mut issue = self.0.lock();
        let left = issue.pages - issue.taken;
        *issue = Issue { since_ns: now_ns, pages, aged, taken: 0 };
        pages.saturating_sub(left)
    }

    /// Issued and untaken pages of those requested by age.
    pub fn aged(&self, batch: u64, now_ns: u64) -> u64 {
        let issue = self.0.lock();
        let due = issued(issue.pages, batch, now_ns.saturating_sub(issue.since_ns));
        due.min(issue.aged).saturating_sub(issue.taken)
    }

    /// A worker's part: at most `max` of the issued pages, in batches of `batch`.
    pub fn take(&self, max: u64, batch: u64, now_ns: u64) -> u64 {
        let mut issue = self.0.lock();
        let due = issued(issue.pages, batch, now_ns.saturating_sub(issue.since_ns));
        let part = due.saturating_sub(issue.taken).min(max);
        issue.taken += part;
        part
    }

    /// Nanoseconds until more is issued; none: everything is taken, or some is available now.
    pub fn next_in(&self, batch: u64, now_ns: u64) -> Option<u64> {
        let issue = self.0.lock();
        if issue.taken >= issue.pages {
            return None;
        }
        let batches = issue.pages.div_ceil(batch.max(1));
        let next = u128::from(issue.taken / batch.max(1)) * u128::from(TICK_NS);
        let at = issue.since_ns + next.div_ceil(u128::from(batches)) as u64;
        (at > now_ns).then(|| at - now_ns)
    }
}
