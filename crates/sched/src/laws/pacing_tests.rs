//! The pacing law by table and by property.

use crate::laws::pacing::{
    BatchQuota, DUE_HORIZONS_SEC, Load, TICK_NS, batch_quota, cold_most, pages_per_sec,
    required_age, terms, tick_quota, wanted_pages_per_sec,
};
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
fn flush_rate_by_load() {
    let rows: [(&str, Load, u64); 14] = [
        ("nothing dirty", idle(), 0),
        ("dirty but young", Load { dirty_pages: 50_000, ..idle() }, 0),
        (
            "young, the log pushes 900 pages a second over the target",
            Load { dirty_pages: 50_000, next_pages: 900, ..idle() },
            900,
        ),
        (
            "above the target: within 30 s",
            Load { dirty_pages: 50_000, over_pages: 12_000, age_bytes: 4 << 27, ..idle() },
            400,
        ),
        (
            "beyond the trigger, but the log stands: within 10 s what is beyond it",
            Load { dirty_pages: 50_000, over_pages: 12_000, due_pages: [9_000; 3], ..idle() },
            900,
        ),
        (
            "the log will push over the trigger what must be gone by then",
            Load {
                dirty_pages: 90_000,
                dirty_target_pages: 90_000,
                over_pages: 12_000,
                next_pages: 1_000,
                due_pages: [9_000, 40_000, 60_000],
                ..idle()
            },
            2_000,
        ),
        ("a little too much of the pool is dirty", Load { dirty_pages: 75_100, ..idle() }, 11),
        ("too much of the pool is dirty", Load { dirty_pages: 87_500, ..idle() }, 12_500),
        ("cold pages wait", Load { dirty_pages: 10, free_frames_pages: 7, ..idle() }, 70),
        (
            "nobody writes: most within 10 s",
            Load { dirty_pages: 50_000, idle_pages: 15_000, ..idle() },
            1_500,
        ),
        (
            "but not so many a second that readers notice",
            Load { dirty_pages: 70_000, idle_pages: 70_000, ..idle() },
            2_048,
        ),
        (
            "the last of them soon too",
            Load { dirty_pages: 1_500, idle_pages: 1_500, ..idle() },
            512,
        ),
        (
            "not more in a tick than there are",
            Load { dirty_pages: 1_500, idle_pages: 3, ..idle() },
            30,
        ),
        (
            "those that are old go faster than idle flush asks",
            Load {
                dirty_pages: 50_000,
                idle_pages: 40_000,
                over_pages: 12_000,
                next_pages: 5_000,
                ..idle()
            },
            5_400,
        ),
    ];
    for (what, load, wanted) in rows {
        assert_eq!(wanted_pages_per_sec(&load), wanted, "{what}");
    }
}

#[test]
fn cold_pages_leave_half_a_batch_to_old_ones() {
    for (old, cold) in [(0, 64), (1, 63), (31, 33), (32, 32), (10_000, 32)] {
        assert_eq!(cold_most(64, old), cold, "{old} old ones");
    }
    assert_eq!(cold_most(1, 10_000), 1);
}

#[test]
fn pages_that_hold_up_the_checkpoint_exceed_the_quota() {
    for (paced, required, room, pages, beyond, what) in [
        (0, 0, 64, 0, 0, "nothing asked for"),
        (40, 0, 64, 40, 0, "by the law"),
        (40, 30, 64, 40, 0, "required ones are among the oldest"),
        (40, 50, 64, 50, 10, "more is required"),
        (40, 10_000, 64, 64, 24, "no more than there is room"),
        (0, 10_000, 64, 64, 64, "the law asks for nothing"),
        (0, 10_000, 0, 0, 0, "no room"),
    ] {
        assert_eq!(batch_quota(paced, required, room), BatchQuota { pages, beyond }, "{what}");
    }
}

/// Pages that only the idle flush requests yield to other use of the device.
#[test]
fn only_pages_of_the_idle_flush_are_surplus() {
    let at_rest = Load { dirty_pages: 50_000, idle_pages: 40_000, ..idle() };
    assert!(terms(&at_rest).is_surplus() && terms(&idle()).is_surplus());
    for load in [
        Load { next_pages: 1, ..at_rest },
        Load { over_pages: 1, ..at_rest },
        Load { free_frames_pages: 1, ..at_rest },
        Load { due_pages: [0, 0, 1], ..at_rest },
        Load { dirty_pages: 75_001, ..at_rest },
    ] {
        assert!(!terms(&load).is_surplus(), "{load:?}");
    }
}

#[test]
fn a_need_for_free_frames_makes_no_page_old() {
    let load = Load { dirty_pages: 50_000, free_frames_pages: 500, ..idle() };
    assert_eq!((terms(&load).sum(), terms(&load).aged()), (5_000, 0));
    let load = Load { dirty_pages: 80_000, ..load };
    assert_eq!((terms(&load).aged(), terms(&load).share > 0), (0, true));
    let load = Load { over_pages: 12_000, next_pages: 900, age_bytes: 4 << 27, ..load };
    assert_eq!(terms(&load).aged(), 1_300);
}

#[test]
fn forced_flush_starts_half_a_second_before_the_log_limit() {
    let (mb, gb) = (1 << 20, 1 << 30);
    for (what, limit, speed, age) in [
        ("a log at rest", gb, 0, gb / 64 * 63),
        ("256 MiB a second", gb, 256 * mb, gb - 128 * mb),
        ("faster than anything", gb, 64 * gb, gb / 4 * 3),
        ("a small log", 64 * mb, 0, 60 * mb),
        ("the smallest", 16 * mb, 0, 12 * mb),
    ] {
        assert_eq!(required_age(limit, speed), age, "{what}");
    }
}

/// A log in buckets, a device, and writers that change new pages at an even rate; ticks of the law
/// as in the engine. Returns the highest age, and the pages flushed each second.
fn held_up(age_pct: u64, limit: u64, bytes_per_sec: u64, device: u64) -> (u64, Vec<u64>) {
    const BUCKETS: u64 = 128;
    let bucket = limit / BUCKETS;
    let pages_per_bucket = bucket / 4096;
    let mut buckets: std::collections::VecDeque<(u64, u64)> = (0..BUCKETS * age_pct / 100)
        .map(|n| (4 * limit - (BUCKETS * age_pct / 100 - n) * bucket, pages_per_bucket))
        .collect();
    let (mut end, mut rate, mut oldest, mut flushed) = (4 * limit, 0, 0, vec![0; 60]);
    for tick in 0..600 {
        let older = |lsn: u64| buckets.iter().filter(|b| b.0 < lsn).map(|b| b.1).sum::<u64>();
        let (target, trigger) = (limit / 8 * 3, limit / 8 * 5);
        let speed = if tick == 0 { 0 } else { bytes_per_sec };
        let age = end - buckets.front().map_or(end, |b| b.0);
        oldest = oldest.max(age);
        let over = older(end - target);
        let load = Load {
            dirty_pages: older(u64::MAX),
            dirty_target_pages: u64::MAX,
            dirty_trigger_pages: u64::MAX,
            over_pages: over,
            next_pages: older(end - target + speed) - over,
            age_bytes: age,
            age_target_bytes: target,
            age_trigger_bytes: trigger,
            due_pages: DUE_HORIZONS_SEC.map(|sec| older(end - trigger + speed * sec)),
            free_frames_pages: 0,
            idle_pages: 0,
            previous_pages_per_sec: rate,
        };
        rate = pages_per_sec(&load);
        let required = older(end - required_age(limit, speed).min(end));
        let (quota, room) = (tick_quota(rate, TICK_NS, load.dirty_pages), device / 10);
        let mut left = batch_quota(quota.min(room), required, room).pages;
        flushed[tick / 10] += left;
        while left > 0 && !buckets.is_empty() {
            let part = buckets[0].1.min(left);
            buckets[0].1 -= part;
            left -= part;
            if buckets[0].1 == 0 {
                buckets.pop_front();
            }
        }
        end += bytes_per_sec / 10;
        let new = bytes_per_sec / 10 / 4096;
        match buckets.back_mut() {
            Some(last) if end - last.0 < bucket => last.1 += new,
            _ => buckets.push_back((end, new)),
        }
    }
    (oldest, flushed)
}

#[test]
fn an_old_log_is_brought_down_without_taking_the_device() {
    let limit = 1 << 30;
    // 24 MB/s of log change 6,000 pages a second: that many must be flushed to keep the age
    // constant.
    let (pace, device) = (24_576_000, 20_000);
    for age_pct in [40, 60, 80, 90] {
        let (oldest, flushed) = held_up(age_pct, limit, pace, device);
        assert!(oldest <= limit / 100 * (age_pct + 4).max(45), "{age_pct}%: {oldest}");
        let most = flushed.iter().max().expect("seconds");
        assert!(*most < 13_000, "{age_pct}%: {flushed:?}");
        let last = flushed.last().expect("seconds");
        assert!(last.abs_diff(6_000) < 1_200, "{age_pct}%: {flushed:?}");
    }
    // Faster than the device can flush: at the limit required work takes over, then the writers are
    // slowed.
    let (oldest, flushed) = held_up(60, limit, 4 * pace, 24_000);
    assert!(oldest <= limit && flushed.iter().all(|f| *f <= 24_000), "{oldest} {flushed:?}");
}

#[test]
fn the_first_tick_after_a_crash_needs_no_history() {
    // P3: 93% of the pool is dirty and old, with no earlier tick. The former law requested all of
    // it at once; this one doubles its rate until the excess is flushed within the horizon.
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
    // Four workers and a device of 20,000 pages/s; 60,000 old pages, and 2,000 more each second.
    let (mut old, mut rate, mut worst) = (60_000u64, 0, 0);
    for tick in 0..900 {
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
    let due = prop::array::uniform3(pages.clone());
    let more = (pages.clone(), due, pages.clone());
    (pages.clone(), pages.clone(), pages, 0..1000u64, ages, more).prop_map(
        |(dirty, over, next, free_frames, (age, target, span), (previous, due, idle_pages))| Load {
            due_pages: due,
            dirty_pages: dirty,
            over_pages: over.min(dirty),
            next_pages: next.min(dirty),
            free_frames_pages: free_frames,
            idle_pages: idle_pages.min(dirty),
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
        let quieter = Load { idle_pages: (load.idle_pages + more).min(load.dirty_pages), ..load };
        prop_assert!(wanted_pages_per_sec(&quieter) >= wanted_pages_per_sec(&load));
        prop_assert!(wanted_pages_per_sec(&load) >= load.idle_pages.div_ceil(10).min(2048));
        let later = Load { due_pages: load.due_pages.map(|pages| pages + more), ..load };
        prop_assert!(wanted_pages_per_sec(&later) >= wanted_pages_per_sec(&load));
        // Pages that are due by then are written by then.
        for (pages, sec) in load.due_pages.iter().zip(DUE_HORIZONS_SEC) {
            prop_assert!(wanted_pages_per_sec(&load) * sec >= *pages.min(&load.dirty_pages));
        }
    }

    #[test]
    fn a_quota_follows_the_rate_up_to_the_dirty_pages(rate in 0..1u64 << 40, ns in 0..1u64 << 40,
        dirty in 0..1u64 << 30)
    {
        let quota = tick_quota(rate, ns, dirty);
        prop_assert!(quota <= dirty);
        let two_ticks = u128::from(rate) * 2 * u128::from(TICK_NS) / 1_000_000_000;
        prop_assert!(u128::from(quota) <= two_ticks + 1);
    }

    #[test]
    fn a_quota_is_divided_in_full_among_requesting_terms(load in loads(), quota in 0..1u64 << 30) {
        let asked = terms(&load);
        let why = asked.divide(quota);
        for (term, part) in [(asked.age, why.age), (asked.share, why.share),
            (asked.next, why.next), (asked.free_frames, why.free_frames), (asked.idle, why.idle)] {
            prop_assert!(term > 0 || part == 0);
        }
        prop_assert!(why.sum() <= quota);
        prop_assert!(asked.age == 0 || why.sum() == quota);
    }
}
