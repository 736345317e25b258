//! Rung 2 of the ladder: scripts that crash at each change of the disk in turn. Each disk that may
//! survive a crash is opened and verified in full. After a kill of the process the machine crashes
//! as well, once the next process has opened and closed the database.

use evenkeel::Result;
use evenkeel_base::sync::Mutex;
use evenkeel_io::sim::{CrashPolicy, Explore, Explored, SimOptions, Survivor, drive_beside_others};
use evenkeel_io::{SimDisk, SimEnv};
use evenkeel_sim::actor::{Actor, open};
use evenkeel_sim::model::Model;
use evenkeel_sim::scripts::{Script, check, check_reached, scripts, starts};
use evenkeel_sim::seeds::number;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of seeds of each script (more if its stride is longer), and the number of disks with
/// different bytes that all scripts together must leave.
const ROUNDS: u64 = 6;
const STATES: usize = 10_000;
/// Disks of each crash point and policy, unless `EVENKEEL_SIM_SURVIVORS` says so.
const SURVIVORS: u64 = 1;

fn explore(seed: u64, script: &Script, starts: &[(SimDisk, Model)]) -> Explored {
    let Script { name, stride, geometry, body, .. } = script;
    let start = &starts[(seed - 1) as usize % starts.len()];
    let nth = Explore::nth(seed - 1, *stride);
    let schedule = if script.is_scheduled { seed } else { nth.seed };
    let rounds = number("EVENKEEL_SIM_SURVIVORS", SURVIVORS);
    Explore { rounds, seed: schedule, ..nth }.run(
        &start.0,
        |sim, notes: &Arc<Mutex<Model>>| {
            *notes.lock() = start.1.clone();
            let run = || -> Result<()> {
                let mut actor = Actor::new(open(sim, *geometry)?, notes);
                body(sim, &mut actor)?;
                if !sim.is_crashed() {
                    check_reached(script, &actor.db);
                }
                actor.db.close()
            };
            match run() {
                Err(error) if !sim.is_crashed() => panic!("{name}: {error}"),
                _ => {}
            }
        },
        |sim, notes, which| {
            let model = notes.lock().clone();
            let mut done = check(sim, script, model.clone(), Some(which));
            if which.policy == CrashPolicy::Killed {
                done = done.and_then(|()| check_lost(sim, script, model, which));
            }
            if let Err(why) = done {
                panic!(
                    "script {name}, {which}: {why}\nreplay: EVENKEEL_SIM_SCRIPT='{name}' \
                     EVENKEEL_SIM_SURVIVORS={rounds} EVENKEEL_SIM_FROM={seed} \
                     cargo test -p evenkeel-sim --test crashes"
                );
            }
        },
    )
}

/// Crashes the machine after a kill and a life that ended with a close. Bytes that the killed
/// process had not synced, and that the next process has found, may be lost only now.
fn check_lost(
    sim: &SimEnv,
    script: &Script,
    mut model: Model,
    which: Survivor,
) -> std::result::Result<(), String> {
    // The next process has made durable what it found; the killed process had at least written it.
    model.killed();
    sim.disk().crash_now();
    sim.stop();
    let mut policies = CrashPolicy::ALL.iter().filter(|p| **p != CrashPolicy::Killed).cycle();
    let nth = which.change + 4 * which.round;
    let policy = *policies.nth(nth as usize).unwrap_or(&CrashPolicy::LoseAll);
    let lost = sim.disk().crash(policy, which.change);
    let after = SimEnv::on(lost, SimOptions::new(which.seed));
    let done = check(&after, script, model, None);
    after.stop();
    done.map_err(|why| format!("opened, closed, {policy:?}: {why}"))
}

/// Runs a script with these seeds on every core. Returns its crash points and states.
fn explore_all(seeds: Range<u64>, script: &Script) -> (u64, BTreeSet<u64>) {
    let (starts, next) = (starts(script), AtomicU64::new(seeds.start));
    let found = Mutex::new((0, BTreeSet::new()));
    std::thread::scope(|scope| {
        for n in 0..std::thread::available_parallelism().map_or(2, |n| n.get().min(8)) {
            let (starts, next, found, seeds) = (&starts, &next, &found, &seeds);
            scope.spawn(move || {
                drive_beside_others(n);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    let mut explored = explore(seed, script, starts);
                    let mut found = found.lock();
                    found.0 += explored.points;
                    found.1.append(&mut explored.states);
                }
            });
        }
    });
    found.into_inner()
}

#[test]
fn scripts_survive_a_crash_at_every_change() {
    let scripts = scripts();
    let var = |name: &str| std::env::var(name).ok();
    let only = var("EVENKEEL_SIM_SCRIPT").unwrap_or_default();
    let from = number("EVENKEEL_SIM_FROM", 1);
    let rounds = number("EVENKEEL_SIM_ROUNDS", if only.is_empty() { ROUNDS } else { 1 });
    // Enough rounds that the seeds together try every crash point, in one schedule or several.
    let of = |script: &Script| if only.is_empty() { rounds.max(script.stride) } else { rounds };
    assert!(scripts.iter().all(|script| ROUNDS.max(script.stride).is_multiple_of(script.stride)));
    let (mut all, mut points) = (BTreeSet::new(), 0);
    for script in scripts.iter().filter(|s| s.name.contains(&only)) {
        let (tried, mut states) = explore_all(from..from + of(script), script);
        println!("{tried:>6} points {:>6} states  {}", states.len(), script.name);
        script.seen.tell(of(script) >= script.stride);
        points += tried;
        all.append(&mut states);
    }
    println!("{points:>6} points {:>6} different states in all", all.len());
    let whole = only.is_empty() && rounds >= ROUNDS;
    assert!(!whole || all.len() >= STATES, "{} states, fewer than {STATES}", all.len());
}
