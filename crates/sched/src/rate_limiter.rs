//! A rate limiter: one shared queue in time, in which each insert takes the time of its bytes, so
//! any number of sessions share the rate. Ingest passes one at the rate of compactions, and one at
//! the rate of a flush.

use evenkeel_base::Cause;
use evenkeel_io::Runtime;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time that ingest leaves unused counts for this long.
const SLACK_NS: u64 = 2_000_000;
/// Shorter waits are accumulated to longer ones.
const WAIT_NS_LEAST: u64 = 200_000;
/// No single wait is longer.
const WAIT_NS_MAX: u64 = 200_000_000;

/// See the head of the file.
#[derive(Default)]
pub struct RateLimiter {
    /// Time per KiB of memtable bytes; 0: unlimited.
    ns_per_kib: AtomicU64,
    /// The time up to which bytes have been admitted.
    pub until_ns: AtomicU64,
}

impl RateLimiter {
    /// Sets the rate; returns the previous one.
    pub fn set(&self, ns_per_kib: u64) -> u64 {
        self.ns_per_kib.swap(ns_per_kib, Ordering::Relaxed)
    }

    /// The rate, nanoseconds for a KiB; 0: unlimited.
    pub fn ns_per_kib(&self) -> u64 {
        self.ns_per_kib.load(Ordering::Relaxed)
    }

    /// How long an insert of this many bytes waits, and by how much it has extended the queue, in
    /// nanoseconds.
    pub fn take(&self, bytes: u64, now_ns: impl FnOnce() -> u64) -> (u64, u64) {
        let ns_per_kib = self.ns_per_kib.load(Ordering::Relaxed);
        if ns_per_kib == 0 || bytes == 0 {
            return (0, 0);
        }
        let now = now_ns();
        let takes = bytes.saturating_mul(ns_per_kib) / 1024;
        // Time that is not waited for does not extend the queue.
        let most = now.saturating_add(WAIT_NS_MAX);
        let start = |until: u64| until.max(now.saturating_sub(SLACK_NS));
        let end = |until: u64| start(until).saturating_add(takes).min(most);
        let (Ok(until) | Err(until)) =
            self.until_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |u| Some(end(u)));
        let wait = end(until).saturating_sub(now);
        let grown = end(until).saturating_sub(start(until));
        (if wait < WAIT_NS_LEAST { 0 } else { wait }, grown)
    }

    /// Waits as long as an insert of this many bytes has to, under a cause; returns by how much it
    /// has extended the queue.
    pub fn pass(&self, rt: &Runtime, bytes: u64, cause: Cause) -> u64 {
        let (wait_ns, line_ns) = self.take(bytes, || rt.env.now_ns());
        if wait_ns > 0 {
            rt.delay(Duration::from_nanos(wait_ns), cause);
        }
        line_ns
    }

    /// Bytes that had extended the queue by this time were not written.
    pub fn give_back(&self, line_ns: u64) {
        if line_ns == 0 {
            return;
        }
        let less = |until: u64| Some(until.saturating_sub(line_ns));
        // The update never fails.
        let _ = self.until_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_inserting_threads_share_one_rate() {
        let pace = RateLimiter::default();
        let ms = 1_000_000;
        assert_eq!(pace.take(1 << 20, || unreachable!("no pace")), (0, 0));
        pace.set(ms);
        let at = 10_000 * ms;
        let take = |bytes, at| pace.take(bytes, || at).0;
        assert_eq!(take(2048, at), 0, "the slack");
        assert_eq!(take(1024, at), ms);
        assert_eq!(take(1024, at), 2 * ms, "behind the one before");
        assert_eq!(take(128, at + 2 * ms), 0, "too short to wait for");
        assert_eq!(take(128, at + 2 * ms), 250_000, "together they are not");
        assert_eq!(take(0, at), 0, "nothing waits for nothing");
        // The queue is never longer than the longest wait, whoever waits in it.
        (0..9).for_each(|_| assert_eq!(take(1 << 30, at), WAIT_NS_MAX));
        assert_eq!(take(1024, at + WAIT_NS_MAX), ms);
    }

    /// Time that was taken and not used is available to the next insert, and no more than that.
    #[test]
    fn returned_time_shortens_the_next_wait() {
        let pace = RateLimiter::default();
        let ms = 1_000_000;
        pace.set(ms);
        let at = 10_000 * ms;
        assert_eq!(pace.take(4096, || at), (2 * ms, 4 * ms));
        assert_eq!(pace.take(8192, || at), (10 * ms, 8 * ms));
        pace.give_back(8 * ms);
        assert_eq!(pace.take(1024, || at), (3 * ms, ms));
        // The time does not go below the end of the queue, so no more can be returned.
        assert_eq!(pace.take(1 << 30, || at), (WAIT_NS_MAX, WAIT_NS_MAX - 3 * ms));
    }
}
