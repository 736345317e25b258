//! The clock of the pacing law: when the law is evaluated, and what carries over to the next
//! evaluation. No I/O: the cleaner drives it under its mutex, `evenkeel lab` in virtual time.
//!
//! Invariants: the law is evaluated at most once per tick. The first tick does not know the speed
//! of the log, takes it as zero, and gives a whole tick's quota. An unused quota is not carried
//! over.

use crate::flush::dirty::{Dirty, Surroundings};
use crate::flush::idle_flush::{IdleFlush, IdleWatch};
use crate::flush::quota::Quota;
use evenkeel_base::Lsn;
use evenkeel_sched::laws::pacing::{self, Load, TICK_NS};

/// The last tick.
#[derive(Debug, Default)]
pub struct Pacer {
    /// Its time; 0: there was none.
    tick_ns: u64,
    /// End of the log then.
    end: Lsn,
    rate: u64,
    /// Bytes per second that were written to the log between the last two ticks.
    log_bytes_per_sec: u64,
    idle_flush: IdleFlush,
}

/// The results of a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// The inputs of the law.
    pub load: Load,
    /// Pages that it requested beyond the rest of the quota.
    pub asked: u64,
    /// The log became idle, or paused once more.
    pub rests: bool,
}

impl Pacer {
    /// Pages per second that the last tick requested.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// The age from which on flushes are required, at the last known speed of the log.
    pub fn required_age(&self, limit_bytes: u64) -> u64 {
        pacing::required_age(limit_bytes, self.log_bytes_per_sec)
    }

    /// The pages that are to be written while nobody writes, as long as that is so.
    pub fn idle_watch(&self, end: Lsn, log_bytes: u64) -> Option<IdleWatch> {
        self.idle_flush.is_idle(end, log_bytes)
    }

    /// Nanoseconds to the next tick; none: it is due.
    pub fn next_in(&self, now_ns: u64) -> Option<u64> {
        let elapsed = now_ns.saturating_sub(self.tick_ns);
        (elapsed < TICK_NS && self.tick_ns != 0).then(|| TICK_NS - elapsed)
    }

    /// Evaluates the law and refills the quota.
    pub fn tick(
        &mut self,
        now_ns: u64,
        around: Surroundings,
        dirty: &Dirty,
        quota: &Quota,
    ) -> Tick {
        let elapsed = now_ns.saturating_sub(self.tick_ns);
        let written = match self.tick_ns {
            0 => 0,
            _ => around.end.0.saturating_sub(self.end.0),
        };
        let log_bytes_per_sec =
            (u128::from(written) * 1_000_000_000 / u128::from(elapsed.max(1))) as u64;
        let mut rests = false;
        let cut = || {
            rests = true;
            dirty.cut();
            dirty.bucket_of(around.end)
        };
        let watch = match around.rests {
            true => self.idle_flush.look(now_ns, around.end, around.log_bytes, cut),
            false => None,
        };
        let idle_below = watch.map(|watch| watch.bucket);
        let load = dirty.load(&around, log_bytes_per_sec, idle_below, self.rate);
        let rate = pacing::pages_per_sec(&load);
        // An unused quota is not carried over: the law sees these pages as dirty.
        let quota_of = |rate| pacing::tick_quota(rate, elapsed.min(TICK_NS), load.dirty_pages);
        let aged = quota_of(rate.min(pacing::terms(&load).aged()));
        let asked = quota.refill(quota_of(rate), aged, now_ns);
        (self.tick_ns, self.end) = (now_ns.max(1), around.end);
        (self.rate, self.log_bytes_per_sec) = (rate, log_bytes_per_sec);
        Tick { load, asked, rests }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_base::TreeId;

    fn around(end: u64) -> Surroundings {
        let (log_bytes, frames) = (8_000_000, 100_000);
        Surroundings { end: Lsn(end), log_bytes, frames, ..Surroundings::default() }
    }

    #[test]
    fn a_tick_counts_the_pages_written_since_the_last_one() {
        let (dirty, quota, mut pacer) = (Dirty::new(8_000_000), Quota::default(), Pacer::default());
        // One page for each 1,000 bytes of log: the target age is 3,000,000.
        for frame in 0..3_000 {
            dirty.join(Lsn(u64::from(frame) * 1_000), frame, TreeId(1));
        }
        let start = 5_000_000_000;
        assert_eq!(pacer.next_in(start), None, "there was none yet");
        let first = pacer.tick(start, around(3_000_000), &dirty, &quota);
        assert_eq!((first.load.over_pages, first.load.next_pages, first.asked), (0, 0, 0));
        assert_eq!(pacer.next_in(start + 1), Some(TICK_NS - 1));
        assert_eq!(pacer.next_in(start + TICK_NS), None);
        let second = pacer.tick(start + TICK_NS, around(3_100_000), &dirty, &quota);
        // 1,000,000 bytes per second push 1,000 pages over the target, up to a bucket.
        let (over, next) = (second.load.over_pages, second.load.next_pages);
        let bucket = 8_000 / 128 + 1;
        assert!(over.abs_diff(100) <= bucket && next.abs_diff(1_000) <= bucket, "{over} {next}");
        // As many as the rate gives in a tick, and at most the limit of a standing start.
        assert_eq!((second.asked, pacer.rate()), (pacer.rate().div_ceil(10), 512));
        assert_eq!(quota.take(u64::MAX, u64::MAX, start + TICK_NS), second.asked);
    }
}
