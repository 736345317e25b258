//! Index builds among savepoints, partial rollbacks, aborts, flushes, compactions and crashes, and
//! nothing else: few rows, a comparison of everything after each build. `EVENKEEL_SIM_BUILDS` says
//! how many seeds (default 600), `EVENKEEL_SIM_FROM` where they begin.

use evenkeel_sim::Events;
use evenkeel_sim::run::Config;
use evenkeel_sim::seeds::{number, run_all};
use std::sync::Arc;

/// What the seeds must reach together.
const EXPECTED: &[&str] = &[
    "build cut by crash",
    "build refused for duplicates",
    "built runs merged",
    "closed and reopened",
    "index built",
    "memtable flushed",
    "prepared transaction committed",
    "prepared transaction rolled back",
    "recovered",
    "recovery cut by crash",
    "rolled back to a savepoint",
    "runs merged into the bottom",
    "statement undone for a duplicate",
    "table busy",
    "transaction rolled back",
    "two indexes built in one pass",
    "undo spilled",
];

/// Seeds that reach all of that.
const SEEDS: u64 = 300;

#[test]
fn builds_among_rollbacks_find_every_row() {
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
