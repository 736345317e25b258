//! The automatic `memory_size`: the budget grows while caches want more than they have and the
//! machine has memory to spare, and gives memory back when the machine runs short of it.
//!
//! Why: a database that is opened without a choice would otherwise stay at the first size and read
//! pages from the device although the machine has free memory for them. Databases that read through
//! the page cache use that memory without asking; direct I/O does not.
//!
//! Invariants: the size stays between `first` and `most`; it grows only if more than `reserve`
//! stays available; if less is available it shrinks by the difference. The law is pure;
//! [`crate::memory::memory_size`] carries it out. A database at its first size is not woken by it.

use std::time::Duration;

/// The size at open, bytes, where the machine has twice as much.
pub(crate) const FIRST_BYTES: u64 = 256 << 20;
/// The smallest `memory_size`.
const LEAST_BYTES: u64 = 16 << 20;
/// A step of growth smaller than this is not worth a new division.
const STEP_BYTES_MIN: u64 = 8 << 20;
/// While the size is beyond the first one, available memory is looked at this often.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// The size does not grow for so long after memory was given back.
const PAUSE: Duration = Duration::from_secs(10);

/// The bounds between which the size moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AutomaticSize {
    /// The size at open, and the smallest one.
    pub first: u64,
    /// The largest size: three quarters of the machine or of the container.
    pub most: u64,
    /// Memory that stays available to others: an eighth of the machine or of the container.
    pub reserve: u64,
}

impl AutomaticSize {
    /// For a machine or a container with this much memory; the size is fixed if that is unknown.
    pub(crate) fn of(machine: Option<u64>) -> AutomaticSize {
        let Some(machine) = machine else {
            return AutomaticSize { first: FIRST_BYTES, most: FIRST_BYTES, reserve: 0 };
        };
        let first = (machine / 2).clamp(LEAST_BYTES, FIRST_BYTES);
        AutomaticSize { first, most: (machine / 4 * 3).max(first), reserve: machine / 8 }
    }

    /// The next size. `wants`: a cache evicted an entry, or could not keep one, that it would have
    /// kept with more memory. `available`: bytes that the machine can give without swapping.
    pub(crate) fn next(&self, now: u64, wants: bool, available: u64) -> u64 {
        let Some(spare) = available.checked_sub(self.reserve) else {
            let missing = self.reserve - available;
            return now.saturating_sub(missing).max(self.first).min(now);
        };
        // At most half of the spare memory: another database may grow at the same moment.
        let step = (now / 4).min(spare / 2).min(self.most.saturating_sub(now));
        if wants && step >= STEP_BYTES_MIN { now + step } else { now }
    }
}

/// An automatic size and the pause after it has shrunk.
#[derive(Debug)]
pub(crate) struct Following {
    bounds: AutomaticSize,
    /// No growth before this time, nanoseconds of the environment's clock.
    held_until_ns: u64,
}

impl Following {
    pub(crate) fn new(bounds: AutomaticSize) -> Following {
        Following { bounds, held_until_ns: 0 }
    }

    pub(crate) fn bounds(&self) -> AutomaticSize {
        self.bounds
    }

    /// The next size at this time; `now` if nothing changes.
    pub(crate) fn next(&mut self, now: u64, wants: bool, available: u64, now_ns: u64) -> u64 {
        let wants = wants && now_ns >= self.held_until_ns;
        let next = self.bounds.next(now, wants, available);
        if next < now {
            self.held_until_ns = now_ns + PAUSE.as_nanos() as u64;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn the_first_size_is_at_most_half_of_the_machine() {
        let of = |machine| AutomaticSize::of(Some(machine));
        assert_eq!(of(24 * GIB).first, FIRST_BYTES);
        assert_eq!((of(24 * GIB).most, of(24 * GIB).reserve), (18 * GIB, 3 * GIB));
        assert_eq!((of(512 * MIB).first, of(512 * MIB).most), (256 * MIB, 384 * MIB));
        assert_eq!((of(64 * MIB).first, of(8 * MIB).first), (32 * MIB, 16 * MIB));
        let unknown = AutomaticSize::of(None);
        assert_eq!(unknown.next(FIRST_BYTES, true, u64::MAX), FIRST_BYTES, "fixed");
    }

    #[test]
    fn a_cache_that_wants_memory_gets_a_quarter_more_while_there_is_some_to_spare() {
        let bounds = AutomaticSize::of(Some(24 * GIB));
        assert_eq!(bounds.next(256 * MIB, true, 20 * GIB), 320 * MIB);
        assert_eq!(bounds.next(256 * MIB, false, 20 * GIB), 256 * MIB, "nobody wants it");
        assert_eq!(
            bounds.next(4 * GIB, true, 4 * GIB),
            4 * GIB + 512 * MIB,
            "half of what is spare"
        );
        assert_eq!(bounds.next(4 * GIB, true, 3 * GIB), 4 * GIB, "nothing is spare");
        assert_eq!(bounds.next(18 * GIB, true, 5 * GIB), 18 * GIB, "the most");
    }

    #[test]
    fn a_machine_short_of_memory_gets_back_what_is_missing() {
        let bounds = AutomaticSize::of(Some(24 * GIB));
        assert_eq!(bounds.next(8 * GIB, true, 2 * GIB), 7 * GIB);
        assert_eq!(bounds.next(GIB, true, 0), FIRST_BYTES, "never below the first size");
        let mut following = Following::new(bounds);
        assert_eq!(following.next(8 * GIB, true, 2 * GIB, 1), 7 * GIB);
        assert_eq!(following.next(7 * GIB, true, 9 * GIB, 2), 7 * GIB, "a pause after that");
        let later = 2 + PAUSE.as_nanos() as u64;
        assert!(following.next(7 * GIB, true, 9 * GIB, later) > 7 * GIB);
    }

    proptest! {
        #[test]
        fn the_size_keeps_its_bounds(
            machine in 0..1u64 << 44, part in 0..1000u64, wants: bool, available in 0..1u64 << 44,
        ) {
            let bounds = AutomaticSize::of(Some(machine));
            let now = bounds.first + (bounds.most - bounds.first) / 1000 * part;
            let next = bounds.next(now, wants, available);
            prop_assert!((bounds.first..=bounds.most).contains(&next));
            let grows_into_spare = next <= now || now.abs_diff(next) <= available - bounds.reserve;
            prop_assert!(grows_into_spare);
            prop_assert!(wants || next <= now);
            prop_assert!(available < bounds.reserve || next >= now);
        }
    }
}
