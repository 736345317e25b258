//! The quota of the cleaners, by property and by table.

use crate::flush::quota::{CleanerBeat, Quota, beat};
use evenkeel_sched::laws::pacing::{BatchQuota, TICK_NS, issued};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_quota_is_issued_evenly_and_whole(quota in 0..100_000u64, batch in 1..512u64,
        mut times in prop::collection::vec(0..2 * TICK_NS, 1..20))
    {
        prop_assert_eq!(issued(quota, batch, TICK_NS), quota);
        times.sort_unstable();
        let (all, mut taken) = (Quota::default(), 0);
        prop_assert_eq!(all.refill(quota, quota / 3, 7), quota);
        for elapsed in times {
            let due = issued(quota, batch, elapsed);
            // The issued pages are never more than a batch ahead of the even pace, and never behind
            // it.
            let even = u128::from(quota) * u128::from(elapsed.min(TICK_NS)) / u128::from(TICK_NS);
            prop_assert!(u128::from(due) >= even);
            prop_assert!(u128::from(due) <= even + 2 * u128::from(batch));
            let aged = all.aged(batch, 7 + elapsed);
            let part = all.take(u64::MAX, batch, 7 + elapsed);
            prop_assert_eq!(taken + part, due.max(taken));
            prop_assert_eq!(aged, due.min(quota / 3).saturating_sub(taken));
            taken += part;
            match all.next_in(batch, 7 + elapsed) {
                None => prop_assert_eq!(taken, quota),
                // Not a nanosecond earlier.
                Some(ns) => {
                    prop_assert!(issued(quota, batch, elapsed + ns) > due);
                    prop_assert_eq!(issued(quota, batch, elapsed + ns - 1), due);
                }
            }
        }
        prop_assert_eq!(all.refill(quota, 0, 9), taken);
        prop_assert_eq!(all.aged(batch, 9 + TICK_NS), 0);
    }
}

/// Pages that one cleaner writes are required of no other; cold pages leave half of a batch to old
/// ones.
#[test]
fn a_beat_skips_pages_that_another_cleaner_is_writing() {
    let quota = Quota::default();
    quota.refill(10, 0, 0);
    for (hold_up, in_flight, cold, pages, required) in [
        // The first batch contains the pages of the quota.
        (0, 0, 54, 10, 0),
        (0, 0, 64, 0, 0),
        (100, 0, 32, 32, 100),
        (100, 90, 54, 10, 10),
        (100, 100, 64, 0, 0),
        (100, 128, 64, 0, 0),
    ] {
        let mut most = 0;
        let take_cold = |n: usize| {
            most = n;
            vec![7; n.min(cold)]
        };
        let did = beat(&quota, 0, 64, hold_up, in_flight, take_cold);
        let beyond = pages.min(required);
        let wanted =
            CleanerBeat { cold: vec![7; cold], old: BatchQuota { pages, beyond }, required };
        assert_eq!(did, wanted, "{hold_up} hold up, {in_flight} in flight, at most {most} cold");
    }
}
