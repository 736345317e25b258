//! The law of log space (G1): no delay below the target of the log's age, then a delay in
//! proportion to age and bytes, and a wait at the limit. The log evaluates it for each reservation
//! of a user; who waits, and for what, is in the log's own arithmetic.

use crate::laws::target;

/// Longest delay of one operation between target and limit.
const DELAY_MAX_NS: u64 = 1_000_000;
/// An operation of this many bytes gets the whole delay.
const DELAY_BYTES: u64 = 4096;
/// Shorter delays are not worth a sleep.
const DELAY_MIN_NS: u64 = 20_000;

/// The effect of the log's age on a user's reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Its delay.
    pub delay_ns: u64,
    /// Then it waits for the checkpoint.
    pub waits: bool,
}

impl Throttle {
    /// In the form of the journal.
    pub fn numbers(self) -> Vec<u64> {
        vec![self.delay_ns, u64::from(self.waits)]
    }
}

/// The law. Inputs: limit, age, bytes reserved by others, bytes.
pub fn throttle([limit, age, reserved, bytes]: [u64; 4]) -> Throttle {
    let target = target(limit);
    let full = limit.saturating_sub(target).max(1);
    let part = age.saturating_sub(target).min(full);
    // At most 4096 million million.
    let whole = DELAY_MAX_NS * bytes.min(DELAY_BYTES) / DELAY_BYTES;
    let ns = (u128::from(whole) * u128::from(part) / u128::from(full)) as u64;
    let waits = age.saturating_add(reserved).saturating_add(bytes) > limit;
    Throttle { delay_ns: if ns >= DELAY_MIN_NS { ns } else { 0 }, waits }
}

/// The law for numbers in the form of the journal: limit, age, reserved, bytes. None: these are not
/// inputs.
pub fn decide(inputs: &[u64]) -> Option<Vec<u64>> {
    Some(throttle(inputs.try_into().ok()?).numbers())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_follows_bytes_and_age() {
        let (limit, target) = (384 << 20, 288 << 20);
        let delay = |age, bytes| throttle([limit, age, 0, bytes]).delay_ns;
        assert_eq!(delay(target, 1 << 20), 0);
        assert_eq!(delay(limit, 4096), DELAY_MAX_NS);
        assert_eq!(delay(limit * 2, 1 << 30), DELAY_MAX_NS);
        assert_eq!(delay((target + limit) / 2, 2048), 250_000);
        assert_eq!(delay(target + 1000, 100), 0, "too short to sleep");
    }

    #[test]
    fn the_delay_never_falls_with_age_or_bytes() {
        let mut rng = evenkeel_io::Rng::new(2);
        for _ in 0..20_000 {
            let limit = 1 + rng.below(1 << 20);
            let (age, reserved, bytes) = (rng.below(limit), rng.below(100 << 10), rng.below(9000));
            let law = throttle([limit, age, reserved, bytes]);
            assert!(law.delay_ns <= DELAY_MAX_NS && (age > limit / 4 * 3 || law.delay_ns == 0));
            assert!(throttle([limit, age + 5000, reserved, bytes]).delay_ns >= law.delay_ns);
            assert!(throttle([limit, age, reserved, bytes / 2]).delay_ns <= law.delay_ns);
            assert_eq!(law.waits, age + reserved + bytes > limit);
            let said = decide(&[limit, age, reserved, bytes]);
            assert_eq!(said, Some(vec![law.delay_ns, u64::from(law.waits)]));
        }
        assert_eq!(decide(&[1, 2, 3]), None);
        assert_eq!(decide(&[0, u64::MAX, u64::MAX, u64::MAX]), Some(vec![1_000_000, 1]));
    }
}
