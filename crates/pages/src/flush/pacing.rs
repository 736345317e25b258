//! The pacing law of the page cleaner: pages per second to flush, as a pure function of counters.
//! No clock, no I/O and no average over the past, so it is right from the first tick after a
//! restart (P3).
//!
//! `rate = max(max(over / H, due - next, share) + next + supply, quiet)`, where `over` are
//! the dirty pages older than the target age, `next` those the log will push over it within a
//! second at its present speed, and `due` the least rate with which no page grows older than the
//! trigger: for each of a few horizons the pages that will be older by then, divided by it. So an
//! old log, as a crash leaves it, is brought down over H = 30 s and not at once, and faster only
//! where the trigger would be passed.
//! `share` are pages beyond the target share of the pool, to go within 10 s at the target and 1 s
//! at the trigger; `supply` cold dirty pages the clock met; `quiet` a part of the pages that are to
//! go because nobody writes (`quiet`), never so many that who reads would notice. The rate moves by
//! at most a factor of two per tick.
//!
//! Beyond the trigger begins what is required (G2): [`required_age`].

use evenkeel_base::sync::Mutex;

/// Nanoseconds between two evaluations.
pub const TICK_NS: u64 = 100_000_000;
/// In so many seconds pages older than the target age are to go.
const AGE_HORIZON: f64 = 30.0;
/// Pages older than the trigger in so many seconds are to be gone by then.
pub const DUE_HORIZONS_SEC: [u64; 3] = [10, 20, 40];
/// In so many seconds pages beyond the target share are to go.
const SHARE_HORIZON_MAX: f64 = 10.0;
/// At the trigger.
const SHARE_HORIZON_MIN: f64 = 1.0;
/// In so many seconds most pages are to go that were dirty when the log became quiet.
const IDLE_HORIZON: f64 = 10.0;
/// So many pages of them a second at least: the last ones go soon too.
const IDLE_MIN: u64 = 512;
/// At most: others may read meanwhile.
const IDLE_MAX: u64 = 2048;
/// The rate may always rise to this within one tick.
const STEP_MIN: u64 = 512;
/// Room that is left to a log, at least, when flushing becomes required.
const REQUIRED_ROOM_MIN: u64 = 4 << 20;

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
    /// Age that no page is to reach.
    pub age_trigger_bytes: u64,
    /// Pages that are older than the trigger in so many seconds, by horizon.
    pub due_pages: [u64; DUE_HORIZONS_SEC.len()],
    /// Cold dirty pages waiting to be written so that their frames can be used.
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

/// The rate for a load given as numbers; none if they are not one.
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
    /// Pages to be written while nobody writes, where those are more than the others together.
    pub quiet: u64,
}

impl Terms {
    /// The rate they ask for together.
    pub fn sum(&self) -> u64 {
        self.age + self.share + self.next + self.supply + self.quiet
    }

    /// The rate that the age of pages asks for. The others are as well served by cold ones.
    pub fn aged(&self) -> u64 {
        self.age + self.next
    }

    /// Nothing but quiet asks for pages, or the rate has not fallen yet: nobody needs them written.
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

/// What the load asks for, by term.
pub fn terms(load: &Load) -> Terms {
    let excess = |pages: u64, horizon: f64| (pages as f64 / horizon).ceil() as u64;
    let over = load.over_pages.min(load.dirty_pages);
    let due = load.due_pages.iter().zip(DUE_HORIZONS_SEC);
    let due = due.map(|(pages, sec)| excess((*pages).min(load.dirty_pages), sec as f64)).max();
    // Of the two the larger: what is due contains what the log pushes over the trigger.
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
    // Not more in a tick than there are: the next ones are changed still.
    let quiet = quiet.min(load.quiet_pages * ticks_per_sec);
    Terms { quiet: quiet.saturating_sub(others.sum()), ..others }
}

/// The age from which on pages are required to be written, at the speed of the device: where the
/// log would come to its limit within half a second, a few looks of the law.
pub fn required_age(limit_bytes: u64, log_bytes_per_sec: u64) -> u64 {
    let room = (log_bytes_per_sec / 2).max(limit_bytes / 64).max(REQUIRED_ROOM_MIN);
    limit_bytes - room.min(limit_bytes / 4)
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

/// How many pages of a tick's quota may have been begun `elapsed_ns` after the tick: a batch at
/// once, then evenly, so that the device is never given a tick's work in one piece.
pub fn issued(quota: u64, batch: u64, elapsed_ns: u64) -> u64 {
    let batches = u128::from(quota.div_ceil(batch.max(1)));
    let due = u128::from(elapsed_ns) * batches / u128::from(TICK_NS) + 1;
    u64::try_from(due).unwrap_or(u64::MAX).saturating_mul(batch.max(1)).min(quota)
}

/// Cold pages that a batch takes at most while so many old ones are due: those are changed too
/// often to become cold, and leave the log no room unless they get at least half of it.
pub fn cold_most(batch: u64, old: u64) -> u64 {
    batch - old.min(batch / 2)
}

/// How many of the oldest pages a batch takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchQuota {
    /// Pages.
    pub pages: u64,
    /// Those of them that the law has not requested.
    pub beyond: u64,
}

/// A batch with `room` for so many pages takes those that the law has issued to it (`paced`), and
/// `required` ones, which hold up the checkpoint, whatever the law says (G2).
pub fn batch_quota(paced: u64, required: u64, room: u64) -> BatchQuota {
    let pages = paced.max(required.min(room));
    BatchQuota { pages, beyond: pages - paced }
}

/// What a beat of a cleaner writes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CleanerBeat {
    /// Cold pages, by frame.
    pub cold: Vec<u32>,
    /// Of the oldest pages.
    pub old: BatchQuota,
    /// Pages that hold up the checkpoint and that nobody else is writing.
    pub required: u64,
}

/// What a worker does with a batch of `batch` pages, where `hold_up` pages hold up the checkpoint
/// and `in_flight` are being written: those count as dirty still, and are not required of this one.
/// Cold pages come first (`take_cold` gives up to so many), but leave half of it to old ones.
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
    /// Those of them that the age of pages asks for.
    aged: u64,
    taken: u64,
}

/// Pages that may be flushed until the next tick. All workers draw from it, so that what they do
/// together is what the law says, whatever their number. Invariant: taken <= issued <= pages.
#[derive(Debug, Default)]
pub struct Quota(Mutex<Issue>);

impl Quota {
    /// A new tick: what the last one left over is not carried on, the law sees it as dirty pages.
    /// `aged` of the pages are asked for by age. Returns how many pages this adds to what was asked
    /// for before.
    pub fn refill(&self, pages: u64, aged: u64, now_ns: u64) -> u64 {
        let mut issue = self.0.lock();
        let left = issue.pages - issue.taken;
        *issue = Issue { since_ns: now_ns, pages, aged, taken: 0 };
        pages.saturating_sub(left)
    }

    /// What is issued and not taken of the pages asked for by age.
    pub fn aged(&self, batch: u64, now_ns: u64) -> u64 {
        let issue = self.0.lock();
        let due = issued(issue.pages, batch, now_ns.saturating_sub(issue.since_ns));
        due.min(issue.aged).saturating_sub(issue.taken)
    }

    /// A worker's part: at most `max` of what is issued, in batches of `batch`.
    pub fn take(&self, max: u64, batch: u64, now_ns: u64) -> u64 {
        let mut issue = self.0.lock();
        let due = issued(issue.pages, batch, now_ns.saturating_sub(issue.since_ns));
        let part = due.saturating_sub(issue.taken).min(max);
        issue.taken += part;
        part
    }

    /// Nanoseconds until more is issued; none: it is all taken, or there is something now.
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
