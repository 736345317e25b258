//! Tests of the adaptive sleep against its table, and of the waits of threads.

use super::providers::adjusted;
use super::setup::Setup;
use super::{by_hand, events, run, sim, timers};
use evenkeel_pages::free_list::FreeList;

#[test]
fn the_sleep_is_tuned_by_free_frames_and_the_last_run() {
    let setup = Setup::new(1, 1);
    let (half, step) = (setup.sleep_ns / 2, setup.adjust_ns);
    for (free, flushed, wanted, what) in [
        (0, 500, 0, "none left"),
        (setup.scan_depth / 2, 500, half + step, "well filled"),
        (setup.scan_depth / 10, 0, half + step, "nothing to flush"),
        (setup.scan_depth / 30, 500, half - step, "short"),
        (setup.scan_depth / 10, 500, half, "in between"),
    ] {
        assert_eq!(adjusted(half, free, flushed, &setup), wanted, "{what}");
    }
    assert_eq!(adjusted(setup.sleep_ns, setup.scan_depth, 1, &setup), setup.sleep_ns, "at most");
}

#[test]
fn every_page_read_had_a_frame_of_its_own() {
    // The run asserts that each frame given was free, and at its end that none was lost.
    for seed in 0..3 {
        let setup = Setup { frames: 1_024, seconds: 12, ..Setup::new(256, seed) };
        for figures in [timers(&setup), events(&setup)] {
            let late = figures.done[10..].iter().sum::<u64>();
            assert!(late > 0, "seed {seed}: {figures:?}");
            assert!(figures.free.iter().all(|free| *free <= setup.frames));
        }
    }
}

/// At a thousandth of the reported pages: every frame is examined for each decision.
#[test]
fn every_figure_is_that_of_a_count_by_hand() {
    for seed in 0..3 {
        // Threads read more often than the scale requires, so that frames run short.
        let (busy_ns, quiet_ns) = (500_000_000, 2_000_000_000);
        let setup = Setup { busy_ns, quiet_ns, dirty_one_in: 2, ..Setup::new(1000, seed) };
        for setup in [Setup { frames: 256, ..setup.clone() }, setup] {
            let by_hand = sim::run(&setup, &mut by_hand::Timers::new(&setup));
            assert_eq!(timers(&setup), by_hand, "seed {seed}");
            assert!(by_hand.waits > 0 && by_hand.looks > 0, "seed {seed}: {by_hand:?}");
            let by_hand = sim::run(&setup, &mut by_hand::Events::new(&setup));
            assert_eq!(events(&setup), by_hand, "seed {seed}");
            assert!(by_hand.runs > 10 && by_hand.looks > 0, "seed {seed}: {by_hand:?}");
        }
    }
}

/// The marks are proportional to the number of frames; the frames examined per page read are not.
#[test]
fn twice_the_frames_keep_a_larger_reserve_for_the_same_work() {
    let one = Setup::new(8, 4);
    let two = Setup { frames: 2 * one.frames, ..one.clone() };
    // Counts a later, long part of the run. At first the pool is full of unused pages, which the
    // clock visits once; it visits other pages twice, first all of them in one turn.
    let later = |setup: &Setup, run: fn(&Setup) -> sim::Figures| {
        let (short, long) = (run(&Setup { seconds: 60, ..setup.clone() }), run(setup));
        let pages = |figures: &sim::Figures| figures.done.iter().sum::<u64>();
        let looks = long.looks + long.own_looks - short.looks - short.own_looks;
        (looks as f64 / (pages(&long) - pages(&short)) as f64, long)
    };
    let most = |figures: &sim::Figures| figures.free.iter().copied().max().unwrap_or(0) as f64;
    let long = |setup: &Setup| Setup { seconds: 600, ..setup.clone() };
    let (per_page, figures) = later(&long(&one), events);
    let (per_page_of_two, figures_of_two) = later(&long(&two), events);
    let ratio = most(&figures_of_two) / most(&figures);
    let [high, high_of_two] =
        [&one, &two].map(|of| FreeList::new(of.frames as usize).high() as f64);
    assert!((ratio / (high_of_two / high) - 1.0).abs() < 0.1, "{ratio} times the free frames");
    assert!((per_page_of_two / per_page - 1.0).abs() < 0.1, "{per_page} {per_page_of_two}");
    // A manager examines a fixed number of frames per run, whatever the size of the pool, and
    // threads wait as long.
    let (_, one) = later(&long(&one), timers);
    let (_, two) = later(&long(&two), timers);
    assert!((two.looks as f64 / one.looks as f64 - 1.0).abs() < 0.1, "{one:?} {two:?}");
    assert!((two.waits as f64 / one.waits as f64 - 1.0).abs() < 0.3, "{one:?} {two:?}");
}

#[test]
fn threads_oversleep_with_timers_and_not_with_events() {
    let setup = Setup::new(8, 4);
    let (timers, events) = (timers(&setup), events(&setup));
    assert!(timers.waits > 10 * events.waits.max(1), "{timers:?} {events:?}");
    assert!(timers.longest_ns > 10 * events.longest_ns.max(1), "{timers:?} {events:?}");
    assert!(events.done.iter().sum::<u64>() >= timers.done.iter().sum::<u64>());
    assert_eq!(run(&setup).text(), run(&setup).text(), "it repeats");
}

#[test]
fn background_work_is_in_proportion_to_the_pages_read() {
    let per_page = |seconds| {
        let figures = events(&Setup { seconds, ..Setup::new(8, 4) });
        figures.looks as f64 / figures.done.iter().sum::<u64>() as f64
    };
    // At first the pool is full of unused pages, which the clock visits once and other pages twice;
    // the run is long enough to outlast them.
    let (one, two) = (per_page(120), per_page(240));
    assert!(two < 1.2 * one && two < 3.0, "{one} {two}");
}
