//! Rung 1 of the ladder: seeds of the simulator, on as many threads as the machine has cores.
//! `EVENKEEL_SIM_SEEDS` is their number (default 2,000), `EVENKEEL_SIM_FROM` the first one.

use evenkeel_sim::expected::EXPECTED;
use evenkeel_sim::run::Config;
use evenkeel_sim::seeds::{number, run_all};
use evenkeel_sim::{Events, Outcome, run_seed};
use std::sync::Arc;

/// The least operations of a seed, the least sessions of a seed, and the number of seeds that every
/// change must pass.
const OPS: u64 = 2_000;
const SESSIONS: u64 = 3;
const SEEDS: u64 = 2_000;
/// With this many seeds, a few rare events may be missing.
const FEWER: u64 = 800;
const RARE: usize = 5;

#[test]
fn random_sessions_keep_every_promise_with_each_seed() {
    let (first, count) = (number("EVENKEEL_SIM_FROM", 1), number("EVENKEEL_SIM_SEEDS", SEEDS));
    let events = Arc::new(Events::default());
    let outcomes = run_all(first, count, Config::default(), &events);
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(|(_, o)| of(o)).sum::<u64>();
    let (ops, opens) = (sum(|o| o.ops), sum(|o| o.opens));
    println!("{events}{} different events in {count} seeds", events.distinct());
    println!("{ops} operations, {opens} opens, {} I/O calls", sum(|o| o.calls));
    if let Some((seed, most)) = outcomes.iter().max_by_key(|(_, o)| o.resident) {
        println!("at most {} MiB of memory, with seed {seed}", most.resident >> 20);
    }
    let failures: Vec<_> =
        outcomes.iter().filter_map(|(s, o)| Some((s, o.failure.as_ref()?))).collect();
    if let Some((seed, why)) = failures.first() {
        let failed = failures.len();
        let replay = format!("replay: cargo run --profile test -p evenkeel-sim -- {seed}");
        panic!("{failed} of {count} seeds failed.\nseed {seed}: {why}\n{replay}");
    }
    for (seed, outcome) in &outcomes {
        let (ops, sessions) = (outcome.ops, outcome.sessions);
        assert!(ops >= OPS && sessions >= SESSIONS, "seed {seed}: {ops} by {sessions} sessions");
    }
    let missing = events.missing(EXPECTED);
    let may_miss = match count {
        SEEDS.. => 0,
        FEWER.. => RARE,
        _ => EXPECTED.len(),
    };
    assert!(missing.len() <= may_miss, "never happened: {missing:?}");
    let beyond = events.beyond(EXPECTED);
    assert!(beyond.is_empty(), "counted, and not in the list of what must happen: {beyond:?}");
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in [3, 98, 550] {
        let run = || run_seed(seed, Config::default(), &Arc::default());
        let (a, b) = (run(), run());
        assert_eq!((a.trace, a.calls), (b.trace, b.calls), "seed {seed}");
    }
}
