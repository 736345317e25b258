//! Runs many seeds for tests, on as many threads as the machine has cores.

use crate::memory::Memory;
use crate::run::Config;
use crate::{Events, Outcome, run_seed};
use evenkeel_io::sim::drive_beside_others;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

/// A number from an environment variable.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Runs seeds on every core; returns their outcomes by seed.
pub fn run_all(
    first: u64,
    count: u64,
    config: Config,
    events: &Arc<Events>,
) -> Vec<(u64, Outcome)> {
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get().min(8));
    run_on(threads, (first, count), config, events)
}

/// The same on this many threads.
pub fn run_on(
    threads: usize,
    (first, count): (u64, u64),
    config: Config,
    events: &Arc<Events>,
) -> Vec<(u64, Outcome)> {
    let next = AtomicU64::new(first);
    let outcomes = Mutex::new(Vec::new());
    std::panic::set_hook(Box::new(|_| {}));
    let memory = Memory::default();
    let (running, done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let watched = &memory;
        scope.spawn(move || watched.watch(&done));
        for n in 0..threads {
            let running = running.clone();
            let (next, outcomes, memory) = (&next, &outcomes, &memory);
            scope.spawn(move || {
                let _running = running;
                if threads > 1 {
                    drive_beside_others(n);
                }
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    memory.begin(seed);
                    let mut outcome = caught(|| run_seed(seed, config, events));
                    outcome.resident = memory.end(seed);
                    outcomes.lock().expect("outcomes").push((seed, outcome));
                }
            });
        }
        drop(running);
    });
    let _ = std::panic::take_hook();
    let mut outcomes = outcomes.into_inner().expect("outcomes");
    outcomes.sort_by_key(|(seed, _)| *seed);
    outcomes
}

/// Runs a seed and turns its panic into a failure, so that the failure is reported with the seed's
/// number and the other seeds continue. (A simulation that hangs also ends with a panic.)
fn caught(seed: impl FnOnce() -> Outcome) -> Outcome {
    std::panic::catch_unwind(AssertUnwindSafe(seed)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("no text");
        Outcome { failure: Some(format!("panicked: {text}")), ..Outcome::default() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_of_its_seed() {
        let fails = |outcome: Outcome| outcome.failure.expect("a failure");
        assert_eq!(fails(caught(|| panic!("it hangs at {}", 7))), "panicked: it hangs at 7");
        assert_eq!(fails(caught(|| panic!("it hangs"))), "panicked: it hangs");
        assert!(caught(Outcome::default).failure.is_none());
    }
}
