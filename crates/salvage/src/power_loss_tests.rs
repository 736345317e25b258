//! Salvage of the files that survive a simulated loss of power, which keeps, loses or tears writes
//! that were not synced. With the log, salvage finds the rows that the engine's own recovery finds
//! in the same files. Without the log, each row that salvage finds is one that a commit once gave
//! its key.
//!
//! A failing seed is in the message: `SALVAGE_SEED=n cargo test -p evenkeel-salvage power_seed --
//! --ignored`.

use super::salvage_tests::family::{FAMILY, has_key};
use super::salvage_tests::{Content, NAMES, World, fill, options, rows_of, salvaged_from};
use evenkeel::{Code, Database, Error};
use evenkeel_io::sim::{CrashPolicy, SimOptions, catch_crash};
use evenkeel_io::{Env, SharedRng as Rng, SimDisk, SimEnv};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The rows of the tables, and whether a foreign key is there.
type Tables = (BTreeMap<String, BTreeMap<i64, Content>>, bool);

/// Changes of the disk before the power fails.
const CHANGES_LEAST: u64 = 60;
const CHANGES_MORE: u64 = 1_500;

/// What one disk that may survive has shown.
#[derive(Default)]
struct Found {
    rows: usize,
    rows_without_log: usize,
}

/// The tables that the work has made; salvage adds `lost_and_found`.
fn tables_of(db: &Database) -> Tables {
    let of_model = |name: &String| NAMES.iter().chain(&FAMILY).any(|other| other == name);
    let names = db.tables().into_iter().filter(of_model);
    (names.map(|name| (name.clone(), rows_of(db, &name))).collect(), has_key(db))
}

fn is_no_database(error: &Error) -> bool {
    matches!(error.code(), Code::NotADatabase | Code::DirectoryNotEmpty)
}

/// Runs `f` on a copy of a disk.
fn on<R>(disk: SimDisk, f: impl FnOnce(Arc<dyn Env>) -> R) -> R {
    let sim = SimEnv::on(disk, SimOptions::quiet(1));
    let result = f(sim.env());
    sim.stop();
    result
}

/// Works until the power fails; the disk, and what its tables may hold.
fn cut(seed: u64, rng: &Rng) -> (SimEnv, World) {
    let sim = SimEnv::on(SimDisk::new(seed), SimOptions::new(seed));
    sim.disk().crash_at_change(CHANGES_LEAST + rng.below(CHANGES_MORE));
    let (mut world, mut next) = (World::default(), 0);
    let run = || {
        catch_crash(|| {
            let db = Database::open_with("unused", options(sim.env())).expect("opens");
            fill(rng, &db, &mut world, &mut next);
            // The power fails here at the latest.
            sim.disk().crash_now();
        });
    };
    let ended = catch_unwind(AssertUnwindSafe(run));
    assert!(ended.is_ok() || sim.is_crashed(), "seed {seed}: a panic without a crash");
    sim.disk().crash_now();
    sim.stop();
    (sim, world)
}

fn run(seed: u64) -> Found {
    let rng = Rng::new(seed);
    let (sim, world) = cut(seed, &rng);
    let mut found = Found::default();
    for policy in CrashPolicy::ALL.iter().filter(|policy| **policy != CrashPolicy::Killed) {
        let disk = || sim.disk().crash(*policy, seed);
        if !disk().paths().iter().any(|path| path.ends_with("evenkeel.super")) {
            continue;
        }
        let told = |what: &str| format!("seed {seed}, {policy:?}: {what}");
        let recovered =
            on(disk(), |env| Database::open_with("unused", options(env)).map(|db| tables_of(&db)));
        let recovered = match recovered {
            Ok(recovered) => recovered,
            // A power loss amid the creation of the database leaves none.
            Err(error) if world.ever.is_empty() => {
                assert!(is_no_database(&error), "{}", told(&error.to_string()));
                continue;
            }
            Err(error) => panic!("{}", told(&error.to_string())),
        };
        let (report, tables) = on(disk(), |env| {
            let (report, db) =
                salvaged_from(env).unwrap_or_else(|e| panic!("{}", told(&e.to_string())));
            assert!(db.check().expect("checks").problems.is_empty(), "{}", told("not clean"));
            (report, tables_of(&db))
        });
        assert!(tables == recovered, "{}", told(&report.text()));
        found.rows += tables.0.values().map(BTreeMap::len).sum::<usize>();
        let without = on(disk(), |env| {
            for name in env.list("wal").expect("lists") {
                env.remove(&format!("wal/{name}")).expect("removes");
            }
            salvaged_from(env).map(|(_, db)| tables_of(&db))
        });
        let without = without.unwrap_or_else(|e| panic!("{}", told(&e.to_string())));
        for (name, rows) in without.0 {
            for (key, content) in &rows {
                let ever = world.ever.iter().find(|((table, k), _)| *table == name && k == key);
                let is_known = ever.is_some_and(|(_, ever)| ever.contains(content));
                assert!(is_known, "{}", told(&format!("without the log: {name} {key}")));
            }
            found.rows_without_log += rows.len();
        }
    }
    found
}

fn run_all(seeds: std::ops::Range<u64>) {
    let mut sum = Found::default();
    for seed in seeds {
        let found = run(seed);
        sum.rows += found.rows;
        sum.rows_without_log += found.rows_without_log;
    }
    println!("{} rows with the log, {} without", sum.rows, sum.rows_without_log);
    assert!(sum.rows > 5_000 && sum.rows_without_log > 500, "too few rows: {}", sum.rows);
}

#[test]
fn salvage_after_a_power_loss_finds_what_recovery_finds() {
    run_all(0..12);
}

#[test]
#[ignore = "minutes"]
fn two_hundred_power_losses() {
    run_all(1000..1200);
}

#[test]
#[ignore = "for a seed that failed"]
fn power_seed() {
    let seed = std::env::var("SALVAGE_SEED").ok().and_then(|seed| seed.parse().ok());
    println!("{} rows", run(seed.expect("SALVAGE_SEED=n")).rows);
}
