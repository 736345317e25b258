//! The tuned sleep by table, and what threads wait.

use super::providers::adjusted;
use super::setup::Setup;
use super::{events, run, timers};

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

#[test]
fn threads_sleep_beside_timers_and_not_beside_events() {
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
    // The pool is full of pages that nobody uses at first: a run is longer than these last.
    let (one, two) = (per_page(30), per_page(60));
    assert!(two < 1.2 * one && two < 3.0, "{one} {two}");
}
