//! What index builds leave of the device to users who wait for it (G2): the governor's law beside
//! them. Device time that is four times as long as at best may be the load that users and the work
//! that they need make; so it says nothing about what a build costs them, which is the time that
//! its reads and writes lie before theirs in the device's queue. Both of its factors are bounded:
//! the part of the device that builds have, and the length of one read or write.

use crate::governor::UNLIMITED;

/// Where users wait for the device, index builds have one of so many parts of what it moves at
/// best. Users keep 0.88 of their rate on a device with one queue that they use half of; with an
/// eighth it was 0.83, with a quarter 0.71 (`sim/tests/under_load.rs`).
pub const BUILD_PART: u64 = 10;
/// No read or write of theirs takes an idle device longer, about,
pub const AT_ONCE_NS: u64 = 1_000_000;
/// but for this many bytes, where each request has its price.
pub const AT_ONCE_MIN: u64 = 64 << 10;
/// Users wait for the device if all of them together did for this part of the time.
pub const WAITED_PERMILLE: u64 = 10;
/// A byte of a page read by itself costs the device as much as so many of a long write, at most.
pub const READ_COST_MAX: u64 = 8;

/// What builds may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes of one read or write.
    pub at_once: u64,
}

/// The law: users, all together, waited so much for the device; a build would have `rate`, and
/// `best` is the best rate of the device, bytes per second (0: not known).
pub fn beside(waited_permille: u64, rate: u64, best: u64) -> Beside {
    if waited_permille < WAITED_PERMILLE || best == 0 {
        return Beside { rate, at_once: UNLIMITED };
    }
    let slice = (u128::from(best) * u128::from(AT_ONCE_NS) / 1_000_000_000) as u64;
    let at_once = (slice / AT_ONCE_MIN * AT_ONCE_MIN).max(AT_ONCE_MIN);
    Beside { rate: rate.min((best / BUILD_PART).max(1)), at_once }
}

/// Users' waits of a tick, in thousandths of its time.
pub fn waited_permille(waited_ns: u64, elapsed_ns: u64) -> u64 {
    let permille = u128::from(waited_ns) * 1000 / u128::from(elapsed_ns.max(1));
    u64::try_from(permille).unwrap_or(u64::MAX)
}

/// What reading pages costs, in bytes of long writes: `bytes` that took `device_ns`.
pub fn read_cost(bytes: u64, device_ns: u64, best: u64) -> u64 {
    let moved = u128::from(device_ns) * u128::from(best) / 1_000_000_000;
    let most = bytes.saturating_mul(READ_COST_MAX);
    u64::try_from(moved).unwrap_or(u64::MAX).clamp(bytes, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    const MB: u64 = 1_000_000;

    #[test]
    fn the_table() {
        let free = |rate| Beside { rate, at_once: UNLIMITED };
        assert_eq!(beside(0, UNLIMITED, 400 * MB), free(UNLIMITED), "nobody waits");
        assert_eq!(beside(9, 7, 400 * MB), free(7));
        assert_eq!(beside(5000, UNLIMITED, 0), free(UNLIMITED), "nothing is known of the device");
        // 1 ms of a disk of 400 MB/s, and a tenth of it; a slow one has requests of 64 KiB.
        let limited = |rate, at_once| Beside { rate, at_once };
        assert_eq!(beside(10, UNLIMITED, 400 * MB), limited(40 * MB, 6 << 16));
        assert_eq!(beside(10, UNLIMITED, 40 * MB), limited(4 * MB, 1 << 16));
        assert_eq!(beside(10, 3, 40 * MB), limited(3, 1 << 16), "others allow less");
        assert_eq!(waited_permille(30_000_000, 100_000_000), 300);
        assert_eq!(waited_permille(7, 0), 7000);
        // Pages of 16 KiB from a disk of 200 MB/s: 0.33 ms each, from memory, and with a queue.
        assert_eq!(read_cost(16 << 10, 330_000, 200 * MB), 66_000);
        assert_eq!(read_cost(16 << 10, 0, 200 * MB), 16 << 10);
        assert_eq!(read_cost(16 << 10, 9_000_000, 200 * MB), 128 << 10);
    }

    #[test]
    fn users_keep_most_of_the_device_and_a_build_goes_on() {
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
            let found = beside(waited, rate, best);
            let at = format!("{waited} {rate} {best}: {found:?}");
            // Never more than without the law, and never nothing.
            assert!(found.rate <= rate && found.rate >= 1.min(rate), "{at}");
            match waited >= WAITED_PERMILLE && best > 0 {
                false => assert_eq!(found, Beside { rate, at_once: UNLIMITED }, "{at}"),
                true => {
                    assert!(found.rate <= (best / BUILD_PART).max(1), "{at}");
                    assert!(found.rate >= rate.min(best / BUILD_PART), "{at}");
                    assert!(found.at_once >= AT_ONCE_MIN, "{at}");
                    assert_eq!(found.at_once % AT_ONCE_MIN, 0, "{at}");
                    assert!(found.at_once <= (best / 1000).max(AT_ONCE_MIN), "{at}");
                }
            }
            // A better device gives more, users who wait longer leave no more.
            let better = beside(waited, rate, best + more);
            let is_more = better.rate >= found.rate && better.at_once >= found.at_once;
            assert!(best == 0 || is_more, "{at}: {better:?}");
            let longer = beside(waited + more, rate, best);
            assert!(longer.rate <= found.rate && longer.at_once <= found.at_once, "{at}");
        }
    }
}
