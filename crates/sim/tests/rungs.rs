//! Rung 1 of the ladder: seeds of the simulator, on as many threads as the machine has cores.
//! `EVENKEEL_SIM_SEEDS` says how many (default 600), `EVENKEEL_SIM_FROM` where they begin.

use evenkeel_sim::run::{Config, EXPECTED};
use evenkeel_sim::{Events, run_seed};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn seeds() {
    let (first, count) = (number("EVENKEEL_SIM_FROM", 1), number("EVENKEEL_SIM_SEEDS", 600));
    let (next, events) = (AtomicU64::new(first), Arc::new(Events::default()));
    let failures = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get().min(8));
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    if let Some(why) = run_seed(seed, Config::default(), &events).failure {
                        failures.lock().expect("failures").push((seed, why));
                    }
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    println!("{events}{} different events in {count} seeds", events.distinct());
    let mut failures = failures.into_inner().expect("failures");
    failures.sort();
    if let Some((seed, why)) = failures.first() {
        let failed = failures.len();
        let replay = format!("replay: cargo run --profile test -p evenkeel-sim -- {seed}");
        panic!("{failed} of {count} seeds failed.\nseed {seed}: {why}\n{replay}");
    }
    let missing = events.missing(EXPECTED);
    assert!(count < 600 || missing.is_empty(), "never happened: {missing:?}");
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in [3, 98, 550] {
        let run = || run_seed(seed, Config::default(), &Arc::default());
        let (a, b) = (run(), run());
        assert_eq!((a.trace, a.calls), (b.trace, b.calls), "seed {seed}");
    }
}
