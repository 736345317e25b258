//! Tests: the requests of the laws against a count by hand, and the throughput that they leave to
//! users.

use super::by_hand;
use super::overdone;
use super::run;
use super::setup::Setup;
use super::sim::{self, Law};

#[test]
fn the_published_law_flushes_as_many_times_its_budget_as_it_has_cleaners() {
    // A disk that keeps up with anything shows the law alone.
    for cleaners in [1, 2, 4] {
        let setup = Setup {
            cleaners,
            disk_bytes_per_sec: 1 << 40,
            async_pages: 1 << 20,
            seconds: 2,
            hot_pages: 10_000_000,
            ..Setup::new(1, 3)
        };
        let share = |law| overdone(&sim::run(&setup, law));
        let (published, repaired) = (share(Law::Published), share(Law::Repaired));
        assert!((published - cleaners as f64).abs() < 0.1, "{cleaners} cleaners: {published}");
        assert!((repaired - 1.0).abs() < 0.1, "{cleaners} cleaners: {repaired}");
    }
}

/// At a thousandth of the reported pages: every page is examined for each decision.
#[test]
fn every_figure_is_that_of_a_count_by_hand() {
    for seed in 0..3 {
        for (cleaners, first_age_pct) in [(1, 60), (8, 60), (8, 30), (3, 80)] {
            // On a disk this slow, reads of users would leave nothing to the laws.
            let reads = 0.0;
            let setup = Setup { cleaners, first_age_pct, reads, ..Setup::new(1000, seed) };
            for law in [Law::Published, Law::Repaired, Law::Ours] {
                let wanted = match law {
                    Law::Ours => sim::drive(&setup, &mut by_hand::Buckets::new(&setup)),
                    _ => {
                        let repaired = law == Law::Repaired;
                        sim::drive(&setup, &mut by_hand::Lists::new(&setup, repaired))
                    }
                };
                let what = format!("seed {seed}, {cleaners} cleaners, {first_age_pct}%, {law:?}");
                assert_eq!(sim::run(&setup, law), wanted, "{what}");
                assert!(wanted.flushed.iter().sum::<f64>() > 100.0, "{what}: {wanted:?}");
            }
        }
    }
}

/// Twice the pages in twice the log, with everything else unchanged. The reported laws, for which
/// no page is old without an average, request the same; Evenkeel's law requests twice as many old
/// pages.
#[test]
fn twice_the_old_pages_double_our_request_and_change_no_other() {
    let one = Setup { disk_bytes_per_sec: 1 << 40, seconds: 4, ..Setup::new(10, 3) };
    let (log_bytes, hot_pages) = (2 * one.log_bytes, 2 * one.hot_pages);
    let two = Setup { log_bytes, hot_pages, ..one.clone() };
    assert!(two.first_dirty().abs_diff(2 * one.first_dirty()) <= 1);
    let asked = |setup: &Setup, law| sim::run(setup, law).requested[0];
    for law in [Law::Published, Law::Repaired] {
        let (one, two) = (asked(&one, law), asked(&two, law));
        assert!((two / one - 1.0).abs() < 0.05, "{law:?}: {one} {two}");
    }
    // Without writing users the log pushes no page over the target age, so all requested pages are
    // old.
    let quiet = |setup: &Setup| asked(&Setup { connections: 0, ..setup.clone() }, Law::Ours);
    let (one, two) = (quiet(&one), quiet(&two));
    assert!((two / one - 2.0).abs() < 0.1, "{one} {two}");
}

/// Everything twice as large is flushed twice as fast, by each law.
#[test]
fn doubling_every_input_doubles_the_pages() {
    for law in [Law::Published, Law::Repaired, Law::Ours] {
        let pages = |scale| {
            let seconds = sim::run(&Setup::new(scale, 5), law);
            let first = |all: &[f64]| all[..30].iter().sum::<f64>();
            [first(&seconds.requested), first(&seconds.flushed)]
        };
        for (one, two) in pages(8).into_iter().zip(pages(4)) {
            assert!((two / one - 2.0).abs() < 0.15, "{law:?}: {one} {two}");
        }
    }
}

#[test]
fn ours_flushes_what_it_requests_whatever_the_number_of_cleaners() {
    let mut flushed = Vec::new();
    for cleaners in [1, 4, 16, 64] {
        let setup = Setup { cleaners, ..Setup::new(1, 3) };
        let seconds = sim::run(&setup, Law::Ours);
        // Pages requested in one second may be flushed in the next, but never more than requested.
        let (mut done, mut asked) = (0.0, 0.0);
        for (second, (more, wanted)) in seconds.flushed.iter().zip(&seconds.requested).enumerate() {
            done += more;
            asked += wanted;
            assert!(done <= asked, "second {second}: {done} of {asked}");
        }
        assert!(done > 0.9 * asked, "{done} of {asked}");
        flushed.push(seconds.flushed.iter().sum::<f64>());
    }
    let (least, most) = flushed.iter().fold((f64::MAX, 0f64), |(a, b), f| (a.min(*f), b.max(*f)));
    assert!(most < 1.2 * least, "{flushed:?}");
}

#[test]
fn our_law_has_no_slow_second() {
    let setup = Setup::new(1, 5);
    let outcome = run(&setup);
    let ratio = |name| outcome.value(name, "worst / last 10 s").expect("a ratio");
    assert!(ratio("published") < 0.5 * ratio("evenkeel"), "{}", outcome.text());
    let share = |name| outcome.value(name, "flushed / requested, first 30 s").expect("a ratio");
    assert!(share("published") > 4.0 && share("evenkeel") < 1.1, "{}", outcome.text());
    assert!(ratio("evenkeel") >= 0.9, "{}", outcome.text());
    assert_eq!(run(&Setup::new(1, 5)).text(), outcome.text(), "it repeats");
}

#[test]
fn a_smaller_machine_shows_the_same_picture() {
    for law in [Law::Published, Law::Ours] {
        let share = |scale| {
            let seconds = sim::run(&Setup { cleaners: 4, ..Setup::new(scale, 5) }, law);
            seconds.done[..30].iter().sum::<f64>() / seconds.done[30..].iter().sum::<f64>()
        };
        let (large, small) = (share(1), share(10));
        assert!((large / small - 1.0).abs() < 0.15, "{law:?}: {large} {small}");
    }
}

#[test]
fn no_second_after_a_crash_is_much_below_any_other_however_old_the_log_is() {
    // 70% of the log on disk is within 4% of where writers wait: there they are delayed too (G1).
    for (first_age_pct, least) in [(10, 0.9), (30, 0.9), (45, 0.9), (60, 0.9), (65, 0.9), (70, 0.8)]
    {
        let seconds = sim::run(&Setup { first_age_pct, ..Setup::new(1, 5) }, Law::Ours);
        let last = seconds.done[50..].iter().sum::<f64>() / 10.0;
        let worst = seconds.done.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(worst >= least * last, "{first_age_pct}%: {worst} of {last}: {:?}", seconds.done);
        for (flushed, requested) in seconds.flushed.iter().zip(&seconds.requested) {
            assert!(*flushed <= 1.1 * requested + 64.0, "{first_age_pct}%: {flushed} {requested}");
        }
    }
}
