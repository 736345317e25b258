//! The pacing law by table and by property.

use crate::pacing::{Load, TICK_NS, pages_per_sec, terms, tick_quota, wanted_pages_per_sec};
use proptest::prelude::*;

fn idle() -> Load {
    Load {
        dirty_target_pages: 75_000,
        dirty_trigger_pages: 87_500,
        age_target_bytes: 3 << 27,
        age_trigger_bytes: 5 << 27,
        ..Load::default()
    }
}

#[test]
fn table() {
    let rows: [(&str, Load, u64); 8] = [
        ("nothing dirty", idle(), 0),
        ("dirty but young", Load { dirty_pages: 50_000, ..idle() }, 0),
        (
            "young, the log pushes 900 pages a second over the target",
            Load { dirty_pages: 50_000, next_pages: 900, ..idle() },
            900,
        ),
        (
            "just above the target: a tenth of the excess",
            Load { dirty_pages: 50_000, over_pages: 10_000, age_bytes: 3 << 27, ..idle() },
            1_000,
        ),
        (
            "at the trigger: all of it within a second",
            Load { dirty_pages: 50_000, over_pages: 10_000, age_bytes: 5 << 27, ..idle() },
            10_000,
        ),
        (
            "half-way: 5.5 s",
            Load { dirty_pages: 50_000, over_pages: 11_000, age_bytes: 4 << 27, ..idle() },
            2_000,
        ),
        ("too much of the pool is dirty", Load { dirty_pages: 87_500, ..idle() }, 12_500),
        ("cold pages wait", Load { dirty_pages: 10, supply_pages: 7, ..idle() }, 70),
    ];
    for (what, load, wanted) in rows {
        assert_eq!(wanted_pages_per_sec(&load), wanted, "{what}");
    }
}

#[test]
fn the_first_tick_after_a_crash_needs_no_history() {
    // P3: 93% of the pool dirty and old, no tick before this one. The old law asked for everything
    // at once; this one rises by doubling and settles where the excess goes within the horizon.
    let mut load = Load { dirty_pages: 93_000, over_pages: 93_000, age_bytes: 4 << 27, ..idle() };
    let wanted = wanted_pages_per_sec(&load);
    let mut ticks = 0;
    while load.previous_pages_per_sec != wanted {
        let rate = pages_per_sec(&load);
        assert!(rate <= wanted && rate <= load.previous_pages_per_sec.max(256) * 2);
        load.previous_pages_per_sec = rate;
        ticks += 1;
    }
    assert!(ticks <= 9, "{ticks} ticks of 100 ms");
}

#[test]
fn a_restart_under_load_flushes_evenly() {
    // Four workers and a device of 20,000 pages/s; 60,000 old pages, 2,000 more come each second.
    let (mut old, mut rate, mut worst) = (60_000u64, 0, 0);
    for tick in 0..300 {
        old += 200;
        let load = Load {
            dirty_pages: old,
            over_pages: old,
            next_pages: 2_000,
            age_bytes: 7 << 26,
            previous_pages_per_sec: rate,
            ..idle()
        };
        rate = pages_per_sec(&load);
        let quota = tick_quota(rate, TICK_NS, old);
        assert!(quota * 10 <= rate + 10, "requested {quota} in tick {tick}");
        worst = worst.max(rate);
        old -= quota.min(2_000);
    }
    assert!(worst < 15_000, "never the whole device: {worst}");
    assert!(old < 8_000, "the excess went: {old}");
}

fn loads() -> impl Strategy<Value = Load> {
    let pages = 0..1_000_000u64;
    let ages = (0u64..1 << 32, 1u64..1 << 31, 1u64..1 << 31);
    (pages.clone(), pages.clone(), pages.clone(), 0..1000u64, ages, pages).prop_map(
        |(dirty, over, next, supply, (age, target, span), previous)| Load {
            dirty_pages: dirty,
            over_pages: over.min(dirty),
            next_pages: next.min(dirty),
            supply_pages: supply,
            age_bytes: age,
            age_target_bytes: target,
            age_trigger_bytes: target + span,
            previous_pages_per_sec: previous,
            ..idle()
        },
    )
}

proptest! {
    #[test]
    fn the_rate_is_slew_limited_and_never_stuck(load in loads()) {
        let (rate, previous) = (pages_per_sec(&load), load.previous_pages_per_sec);
        prop_assert!(rate <= (previous * 2).max(512));
        prop_assert!(rate >= previous / 2 || previous <= 512);
        let wanted = wanted_pages_per_sec(&load);
        prop_assert!(rate.abs_diff(wanted) <= previous.abs_diff(wanted) || previous <= 512);
        prop_assert!(wanted == 0 || rate > 0);
    }

    #[test]
    fn more_excess_never_flushes_less(load in loads(), more in 0..10_000u64) {
        let worse = Load {
            over_pages: load.over_pages + more,
            dirty_pages: load.dirty_pages + more,
            ..load
        };
        prop_assert!(wanted_pages_per_sec(&worse) >= wanted_pages_per_sec(&load));
        let older = Load { age_bytes: load.age_bytes + more * 4096, ..load };
        prop_assert!(wanted_pages_per_sec(&older) >= wanted_pages_per_sec(&load));
    }

    #[test]
    fn a_quota_is_the_rate_and_no_more_than_there_is(rate in 0..1u64 << 40, ns in 0..1u64 << 40,
        dirty in 0..1u64 << 30)
    {
        let quota = tick_quota(rate, ns, dirty);
        prop_assert!(quota <= dirty);
        let two_ticks = u128::from(rate) * 2 * u128::from(TICK_NS) / 1_000_000_000;
        prop_assert!(u128::from(quota) <= two_ticks + 1);
    }

    #[test]
    fn a_quota_is_divided_whole_among_terms_that_asked(load in loads(), quota in 0..1u64 << 30) {
        let asked = terms(&load);
        let why = asked.divide(quota);
        for (term, part) in [(asked.age, why.age), (asked.share, why.share),
            (asked.next, why.next), (asked.supply, why.supply)] {
            prop_assert!(term > 0 || part == 0);
        }
        prop_assert!(why.sum() <= quota);
        prop_assert!(asked.age == 0 || why.sum() == quota);
    }
}
