//! The quota of dirty pages that the cleaners draw from until the pacing law is evaluated again,
//! and the division of a beat between cold pages and old ones.

use evenkeel_base::sync::Mutex;
use evenkeel_sched::laws::pacing::{BatchQuota, TICK_NS, batch_quota, cold_most, issued};

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
