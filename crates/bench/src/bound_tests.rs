//! Tests of the rules that determine what bounded a step: each rule alone, and its precedence over
//! the next.

use super::*;
use crate::result::Machine;
use serde_json::json;

fn run(clients: u64, cores: u64) -> RunResult {
    RunResult {
        format: 1,
        engine: "evenkeel".into(),
        version: String::new(),
        interrupted: false,
        machine: Machine { cores, ..Machine::default() },
        settings: json!({ "clients": clients }),
        engine_details: json!({}),
        patterns: Default::default(),
        steps: Vec::new(),
        space_bytes: 0,
        peak_memory_bytes: 0,
        open_ms: 0.0,
        close_ms: 0.0,
        waits: Default::default(),
    }
}

/// Ten seconds of inserts that kept this many processors busy, with waits in seconds.
fn step(processors: f64, waits: &[(Cause, f64)]) -> StepResult {
    let mut step = StepResult { name: "l.i1".into(), rows: 1_000, seconds: 10.0, ..<_>::default() };
    step.cpu_us_per_row = processors * 10.0 * 1e6 / 1_000.0;
    step.waits = crate::engine::Stalls::default().by_name();
    for (cause, seconds) in waits {
        step.waits.insert(cause.name().into(), (seconds * 1e6) as u64);
    }
    step.per_second = vec![(100.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0); 10];
    step
}

fn key(run: &RunResult, step: &StepResult) -> &'static str {
    bound(run, step).key()
}

#[test]
fn each_wait_that_takes_most_of_the_time_bounds_the_step() {
    for cause in crate::engine::causes() {
        let step = step(0.3, &[(cause, 6.0)]);
        assert_eq!(key(&run(1, 2), &step), cause.name());
        let Bound::Time(parts) = bound(&run(1, 2), &step) else { panic!("{cause:?}") };
        assert_eq!(parts[0], (Part::Waiting(cause), 0.6));
        assert_eq!(parts.get(1).map(|(part, _)| *part), Some(Part::Running), "half as much");
    }
}

#[test]
fn shares_are_of_the_time_of_all_clients() {
    let step = step(0.4, &[(Cause::LogSync, 20.0), (Cause::PageRead, 9.0)]);
    let Bound::Time(parts) = bound(&run(4, 2), &step) else { panic!("waits are known") };
    assert_eq!(parts, [(Part::Waiting(Cause::LogSync), 0.5)], "reads are below half of that");
}

#[test]
fn busy_processors_come_before_waits() {
    let waits = [(Cause::LogSync, 9.0)];
    assert_eq!(bound(&run(1, 2), &step(1.8, &waits)), Bound::Processors(1.8));
    assert_eq!(key(&run(1, 2), &step(1.6, &waits)), "log_sync", "1.6 of 2 are not all");
    assert_eq!(key(&run(1, 1), &step(0.9, &waits)), "cpu");
}

#[test]
fn a_client_that_computes_bounds_the_step_with_other_processors_idle() {
    let bound = bound(&run(1, 8), &step(1.5, &[(Cause::LogSync, 1.0)]));
    assert_eq!(bound, Bound::Time(vec![(Part::Running, 0.9)]));
    // The rest of the time was not computation: the CPU time is too small for that.
    let step = step(0.2, &[(Cause::LogSync, 3.0)]);
    assert_eq!(key(&run(1, 8), &step), "log_sync");
}

#[test]
fn a_rate_that_was_met_bounds_writers_and_not_queries() {
    let mut step = step(0.3, &[(Cause::PageRead, 6.0)]);
    (step.rate_target, step.rate_met) = (Some(100.0), true);
    assert_eq!(key(&run(1, 2), &step), "rate");
    step.rate_met = false;
    assert_eq!(key(&run(1, 2), &step), "page_read");
    (step.rate_met, step.op.query.n) = (true, 1_000);
    assert_eq!(key(&run(1, 2), &step), "page_read");
}

#[test]
fn what_writers_wait_for_bounds_no_query() {
    for cause in OF_WRITERS {
        let mut step = step(0.5, &[(cause, 9.0), (Cause::PageRead, 7.0)]);
        assert_eq!(key(&run(1, 2), &step), cause.name());
        step.op.query.n = 1_000;
        assert_eq!(key(&run(1, 2), &step), "page_read");
    }
}

#[test]
fn an_engine_without_wait_figures_has_no_known_bound() {
    let mut step = step(1.2, &[]);
    assert_eq!(bound(&run(1, 2), &step), Bound::Unknown(Some(1.2)));
    step.cpu_us_per_row = 0.0;
    assert_eq!(bound(&run(1, 2), &step), Bound::Unknown(None));
}

#[test]
fn the_host_comes_first() {
    let mut step = step(1.9, &[(Cause::LogSync, 9.0)]);
    step.per_second.iter_mut().for_each(|second| second.6 = 0.2);
    let Bound::Host(share) = bound(&run(1, 2), &step) else { panic!("a fifth was taken") };
    assert!((share - 0.2).abs() < 1e-9);
}

#[test]
fn deleters_are_clients_too() {
    let mut step = step(0.2, &[(Cause::LogSync, 12.0)]);
    step.rows_deleted = 1_000;
    assert_eq!(bound(&run(1, 2), &step), Bound::Time(vec![(Part::Waiting(Cause::LogSync), 0.6)]));
}

/// The middle second has 100 rows of 10 ms each, the worst second 40 rows of 25 ms.
#[test]
fn the_worst_second_is_explained_by_the_wait_that_a_row_had_longer() {
    let mut step = step(0.3, &[(Cause::LogSync, 6.0)]);
    step.per_second = vec![(100.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0); 30];
    step.per_second[17].0 = 40.0;
    step.worst_second_ratio = Some(0.4);
    let details = &mut step.per_second_details.waits;
    details.insert(Cause::LogSync.name().into(), vec![600_000; 30]);
    details.insert(Cause::CompactionDebt.name().into(), vec![0; 30]);
    let of = |step: &StepResult| worst(&run(1, 2), step).expect("long enough");
    let set = |cause: Cause, us: u64, step: &mut StepResult| {
        step.per_second_details.waits.get_mut(cause.name()).expect("there")[17] = us;
    };
    // The same time for fewer rows: the device was slower.
    let why = Why::Waited(Cause::LogSync, 15_000.0, 6_000.0);
    assert_eq!(of(&step), Worst { second: 18, rate: 40.0, ratio: 0.4, why });
    set(Cause::LogSync, 240_000, &mut step);
    assert_eq!(of(&step).why, Why::Unknown, "as long for a row as in other seconds");
    set(Cause::CompactionDebt, 200_000, &mut step);
    assert_eq!(of(&step).why, Why::Unknown, "a third of what a row took longer");
    set(Cause::CompactionDebt, 400_000, &mut step);
    assert_eq!(of(&step).why, Why::Waited(Cause::CompactionDebt, 10_000.0, 0.0));
    step.per_second[17].6 = 0.3;
    assert_eq!(of(&step).why, Why::Stolen(0.3));
    step.worst_second_ratio = None;
    assert_eq!(worst(&run(1, 2), &step), None);
}
