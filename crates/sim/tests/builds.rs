//! Index builds beside savepoints, partial rollbacks, aborts, flushes, compactions and crashes, and
//! nothing else. There are few rows, and each build is followed by a comparison of everything.
//! `EVENKEEL_SIM_BUILDS` is the number of seeds (default 600), `EVENKEEL_SIM_FROM` the first one.

use evenkeel_sim::Events;
use evenkeel_sim::run::Config;
use evenkeel_sim::seeds::{number, run_all};
use std::sync::Arc;

/// Events that the seeds together must reach.
const EXPECTED: &[&str] = &[
    "build cut by crash",
    "build refused for duplicates",
    "built runs compacted",
    "closed and reopened",
    "index built",
    "memtable flushed",
    "prepared transaction committed",
    "prepared transaction rolled back",
    "recovered",
    "recovery cut by crash",
    "rolled back to a savepoint",
    "runs compacted into the bottom",
    "statement undone for a duplicate",
    "table busy",
    "transaction rolled back",
    "two indexes built in one pass",
    "undo spilled",
];

/// The number of seeds from which on all events must occur.
const SEEDS: u64 = 300;

#[test]
fn index_builds_beside_rollbacks_find_every_row() {
    let (first, count) = (number("EVENKEEL_SIM_FROM", 1), number("EVENKEEL_SIM_BUILDS", 600));
    let events = Arc::new(Events::default());
    let outcomes = run_all(first, count, Config::builds(), &events);
    println!("{events}{} different events in {count} seeds", events.distinct());
    let failures: Vec<_> =
        outcomes.iter().filter_map(|(s, o)| Some((s, o.failure.as_ref()?))).collect();
    if let Some((seed, why)) = failures.first() {
        let failed = failures.len();
        let replay = format!("replay: cargo run --profile test -p evenkeel-sim -- builds {seed}");
        panic!("{failed} of {count} seeds failed.\nseed {seed}: {why}\n{replay}");
    }
    let missing = events.missing(EXPECTED);
    assert!(count < SEEDS || missing.is_empty(), "never happened: {missing:?}");
}
