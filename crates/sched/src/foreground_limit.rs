//! The foreground limit (G2): the part of the device that background work gets while users wait for
//! the device. Device times four times as long as the best may be caused by the load of users and
//! of the work that they need, so they do not show the cost of an index build to users: the time
//! for which its reads and writes precede theirs in the device's queue. This law bounds both
//! factors of that cost: the part of the device that builds get, and the length of one read or
//! write.

use crate::governor::UNLIMITED;

/// However long users wait, index builds get one part in this many of the device's best rate. On a
/// device with one queue, users that only wait for it then keep 0.88 of their rate; with an eighth
/// it was 0.83, with a quarter 0.71 (`sim/tests/under_load.rs`).
pub const BUILD_PART: u64 = 10;
/// If users wait less, the part of builds times the waits of users is this: the waits that builds
/// add grow with both, and 30 ms per second of all users together are not noticeable to any of
/// them.
pub const COST_PERMILLE: u64 = 30;
/// The longest time of one of their reads or writes on an idle device, about,
pub const AT_ONCE_NS: u64 = 1_000_000;
/// but at least this many bytes, because each request has a fixed cost.
pub const AT_ONCE_MIN: u64 = 64 << 10;
/// The longest time of one read or write of compactions while users wait. Compactions move more
/// than builds do, and each request costs a disk as much as many bytes.
pub const MERGE_AT_ONCE_NS: u64 = 2_000_000;
/// Users wait for the device if all of them together did for this part of the time.
pub const WAITED_PERMILLE: u64 = 10;
/// A byte of a page that is read or written singly costs the device as much as this many of a long
/// write, at most.
pub const PAGE_COST_MAX: u64 = 8;

/// The limit of builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForegroundLimit {
    /// Bytes per second that users leave them.
    pub most: u64,
    /// The part of it that they use.
    pub rate: u64,
    /// Bytes of one read or write.
    pub at_once: u64,
}

/// The law. All users together waited `waited_permille` for the device; a build would have `rate`;
/// `best` is the best rate of the device, bytes per second (0: unknown). The rate that users leave
/// moves by at most a factor of two from `before`: when it becomes bounded it begins at the best
/// rate, and when it rises it ends there.
pub fn beside(before: u64, waited_permille: u64, rate: u64, best: u64) -> ForegroundLimit {
    if best == 0 {
        return ForegroundLimit { most: UNLIMITED, rate, at_once: UNLIMITED };
    }
    let (lowest, highest) = match before {
        UNLIMITED => (best, UNLIMITED),
        before => ((before / 2).min(best), before.saturating_mul(2)),
    };
    match left(waited_permille, best).clamp(lowest.min(highest), highest) {
        most if most >= best.saturating_mul(2) => {
            ForegroundLimit { most: UNLIMITED, rate, at_once: UNLIMITED }
        }
        most => {
            let (most, at_once) = (most.max(1), slice(best, AT_ONCE_NS));
            ForegroundLimit { most, rate: rate.min(most), at_once }
        }
    }
}

/// The bytes that an idle device moves in this time, in whole slices, at least one.
pub fn slice(best: u64, ns: u64) -> u64 {
    let bytes = u128::from(best) * u128::from(ns) / 1_000_000_000;
    let bytes = u64::try_from(bytes).unwrap_or(UNLIMITED);
    (bytes / AT_ONCE_MIN * AT_ONCE_MIN).max(AT_ONCE_MIN)
}

/// Compactions that ingest needs, but not at once (G2): they would have `rate`; `enough` is the
/// rate at which they follow ingest; users leave `most` to a build. Never less than enough; and
/// while users wait, no more than enough or what users leave. Without this law a compaction into a
/// large bottom takes the whole device as long as it lasts, and leaves it idle until the next one.
/// While users want all processors (`crowded`) compactions get exactly `enough`, whatever the
/// device. Without a bound of `enough` the law sets none.
pub fn compactions_in_foreground_limit(rate: u64, most: u64, enough: u64, crowded: bool) -> u64 {
    match enough {
        UNLIMITED => rate,
        // Never zero: `enough` is unknown before the first flush.
        _ if crowded => enough.max(1),
        _ => rate.max(enough).min(most.max(enough)),
    }
}

/// Bytes per second that users leave to builds in the long run at this waiting time.
fn left(waited_permille: u64, best: u64) -> u64 {
    if waited_permille < WAITED_PERMILLE {
        return UNLIMITED;
    }
    let part = u128::from(best) * u128::from(COST_PERMILLE) / u128::from(waited_permille);
    (part as u64).clamp((best / BUILD_PART).max(1), best)
}

/// Users' waits in a tick, in thousandths of its time.
pub fn waited_permille(waited_ns: u64, elapsed_ns: u64) -> u64 {
    let permille = u128::from(waited_ns) * 1000 / u128::from(elapsed_ns.max(1));
    u64::try_from(permille).unwrap_or(u64::MAX)
}

/// The cost of reading or writing pages, in bytes of long writes: `bytes` that took `device_ns`.
pub fn page_cost(bytes: u64, device_ns: u64, best: u64) -> u64 {
    let moved = u128::from(device_ns) * u128::from(best) / 1_000_000_000;
    let most = bytes.saturating_mul(PAGE_COST_MAX);
    u64::try_from(moved).unwrap_or(u64::MAX).clamp(bytes, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_io::Rng;

    const MB: u64 = 1_000_000;

    #[test]
    fn background_rate_falls_with_users_waits_and_recovers() {
        let free = |rate| ForegroundLimit { most: UNLIMITED, rate, at_once: UNLIMITED };
        let none = UNLIMITED;
        assert_eq!(beside(none, 0, none, 400 * MB), free(none), "nobody waits");
        assert_eq!(beside(none, 9, 7, 400 * MB), free(7));
        assert_eq!(beside(none, 5000, none, 0), free(none), "nothing is known of the device");
        // The long-run rate: the longer users wait the lower, down to a tenth.
        let parts = [9, 10, 30, 40, 60, 100, 200, 300, 301, 60_000].map(|w| left(w, 400 * MB));
        assert_eq!(
            parts,
            [none, 400 * MB, 400 * MB, 300 * MB, 200 * MB, 120 * MB, 60 * MB]
                .into_iter()
                .chain([40 * MB; 3])
                .collect::<Vec<_>>()[..]
        );
        // By steps; 1 ms of a disk of 400 MB/s; a slow disk has requests of 64 KiB.
        let limited = |rate, at_once| ForegroundLimit { most: rate, rate, at_once };
        assert_eq!(beside(none, 300, none, 400 * MB), limited(400 * MB, 6 << 16));
        assert_eq!(beside(400 * MB, 300, none, 400 * MB), limited(200 * MB, 6 << 16));
        assert_eq!(beside(50 * MB, 300, none, 400 * MB), limited(40 * MB, 6 << 16));
        assert_eq!(beside(40 * MB, 10, none, 400 * MB), limited(80 * MB, 6 << 16));
        assert_eq!(beside(40 * MB, 0, none, 400 * MB), limited(80 * MB, 6 << 16));
        assert_eq!(beside(400 * MB, 0, none, 400 * MB), free(none));
        assert_eq!(beside(8 * MB, 300, none, 40 * MB), limited(4 * MB, 1 << 16));
        let less = ForegroundLimit { most: 4 * MB, rate: 3, at_once: 1 << 16 };
        assert_eq!(beside(4 * MB, 300, 3, 40 * MB), less, "others allow less");
        assert_eq!(waited_permille(30_000_000, 100_000_000), 300);
        assert_eq!(waited_permille(7, 0), 7000);
        // Pages of 16 KiB from a disk of 200 MB/s: 0.33 ms each, from memory, and with a queue.
        assert_eq!(page_cost(16 << 10, 330_000, 200 * MB), 66_000);
        assert_eq!(page_cost(16 << 10, 0, 200 * MB), 16 << 10);
        assert_eq!(page_cost(16 << 10, 9_000_000, 200 * MB), 128 << 10);
    }

    #[test]
    fn compactions_run_at_the_rate_of_ingest_while_users_wait() {
        let merges = |rate, most, enough| {
            compactions_in_foreground_limit(rate, most * MB, enough * MB, false) / MB
        };
        let (none, free) = (UNLIMITED, UNLIMITED / MB);
        for crowded in [false, true] {
            let found = compactions_in_foreground_limit(7, 4 * MB, none, crowded);
            assert_eq!(found, 7, "ingest needs them at once");
        }
        assert_eq!(
            compactions_in_foreground_limit(none, none, 15 * MB, false),
            none,
            "nobody waits"
        );
        for most in [none, 40 * MB, 4 * MB] {
            let found = compactions_in_foreground_limit(none, most, 15 * MB, true);
            assert_eq!(found, 15 * MB, "users want all processors");
            assert_eq!(compactions_in_foreground_limit(none, most, 0, true), 1, "nothing comes");
        }
        assert_eq!(merges(none, 4, 15), 15, "as much as is enough");
        assert_eq!(merges(none, 40, 15), 40, "or as users leave");
        assert_eq!(merges(none, 4, 0), 4, "nothing comes");
        // A device that became slow has less for all, but compactions never get less than enough.
        assert_eq!([merges(3 * MB, 4, 15), merges(3 * MB, free, 15)], [15, 15]);
        assert_eq!([merges(20 * MB, 4, 15), merges(20 * MB, free, 15)], [15, 20]);
    }

    #[test]
    fn users_keep_most_of_the_device_and_a_build_proceeds() {
        let seed = 9;
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        for _ in 0..20_000 {
            let mut number = |bits: u64| {
                let bits = rng.below(bits);
                rng.below(1 << bits)
            };
            let (waited, best, rate, more) = (number(14), number(40), number(40), number(30));
            let rate = if rate == 0 { UNLIMITED } else { rate };
            // A possible earlier value for this device: no bound, or below twice its best rate.
            let before =
                if number(2) == 0 { UNLIMITED } else { 1 + number(40) % (2 * best).max(1) };
            let found = beside(before, waited, rate, best);
            let at = format!("{before} {waited} {rate} {best}: {found:?}");
            // Never more than without the law, and never zero.
            assert!(found.most >= 1 && found.rate == rate.min(found.most), "{at}");
            match found.most {
                UNLIMITED => {
                    assert_eq!(found.at_once, UNLIMITED, "{at}");
                    let is_free = waited < WAITED_PERMILLE && before >= best;
                    assert!(best == 0 || is_free, "{at}");
                }
                most => {
                    assert!(most >= (best / BUILD_PART).min(before).max(1), "{at}");
                    assert!(found.at_once >= AT_ONCE_MIN, "{at}");
                    assert_eq!(found.at_once % AT_ONCE_MIN, 0, "{at}");
                    assert!(found.at_once <= (best / 1000).max(AT_ONCE_MIN), "{at}");
                    // By steps.
                    let lowest = if before == UNLIMITED { best } else { (before / 2).min(best) };
                    assert!(most >= lowest && most <= before.saturating_mul(2), "{at}");
                }
            }
            // Users that wait longer leave no more; of a better device they leave no less.
            let longer = beside(before, waited + more, rate, best);
            assert!(longer.rate <= found.rate && longer.at_once <= found.at_once, "{at}");
            if best > 0 && waited >= WAITED_PERMILLE {
                let better = beside(before, waited, rate, best + more);
                let is_more = better.rate >= found.rate && better.at_once >= found.at_once;
                assert!(is_more, "{at}: {better:?}");
            }
            // Soon the rate is the one for these waits, whatever it was before.
            let mut end = before;
            (0..45).for_each(|_| end = beside(end, waited, rate, best).most);
            let left = if best == 0 { UNLIMITED } else { left(waited, best) };
            assert_eq!(end, left, "{at}");
        }
    }
}
