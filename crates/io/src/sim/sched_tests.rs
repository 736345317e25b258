//! The scheduler: repeatable, never more than one at a time, deadlocks reported.
use super::*;
use evenkeel_base::sync::Mutex;

fn play(seed: u64) -> (u64, u64, Vec<usize>) {
    let sim = SimEnv::new(seed);
    let rt = sim.runtime();
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut sessions: Vec<Session> = Vec::new();
    for id in 0..4 {
        let (rt, log) = (rt.clone(), log.clone());
        sessions.push(Box::new(move || {
            for _ in 0..50 {
                log.lock().push(id);
                rt.step();
                rt.delay(Duration::from_micros(rt.env.random() % 50 + 1), Cause::Governor);
            }
        }));
    }
    sim.run(sessions);
    let order = log.lock().clone();
    (sim.trace_hash(), sim.switches(), order)
}

#[test]
fn equal_seeds_give_equal_schedules() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let first = play(seed);
        assert_eq!(first, play(seed), "seed {seed}");
        hashes.insert(first.0);
    }
    assert_eq!(hashes.len(), 20);
}

#[test]
fn a_deadlock_is_reported() {
    let sim = SimEnv::new(3);
    let rt = sim.runtime();
    let event = Arc::new(Event::new());
    let waiter: Session = Box::new(move || {
        rt.wait(&event, event.now(), None, Cause::RowLock);
    });
    let report = sim.try_run(vec![waiter]).expect_err("nobody wakes it");
    assert!(report.contains("seed 3") && report.contains("row_lock"), "{report}");
}
