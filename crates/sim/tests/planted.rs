//! Plants one fault after another in the engine, runs the rung that is named for the fault until
//! the rung catches it, and prints the table: `cargo test -p evenkeel-sim --test planted --
//! --nocapture`. A seed that also fails without the fault proves nothing and does not count.
//! `EVENKEEL_SIM_FAULT` selects faults by a part of their name. Faults exist only in builds with
//! debug assertions.
#![cfg(debug_assertions)]

use evenkeel_base::fault_injection::{Fault, arm};
use evenkeel_sim::run::Config;
use evenkeel_sim::run_seed;
use std::sync::Arc;

/// A rung that runs until it catches a fault: its name, and the failure that it reports for a seed.
struct Rung {
    name: &'static str,
    fails: fn(u64) -> Option<String>,
}

fn simulate(seed: u64, config: Config) -> Option<String> {
    run_seed(seed, config, &Arc::default()).failure
}

/// Crashes, faults of the disk, two-phase commits and schema changes: finds committed data that is
/// lost.
const CRASHES: Rung = Rung { name: "2 crashes", fails: |seed| simulate(seed, Config::default()) };

/// Sessions without faults of the disk: finds reads of what a session must not see.
const SESSIONS: Rung = Rung {
    name: "2 sessions",
    fails: |seed| simulate(seed, Config { faults: false, xa: false, ..Config::default() }),
};

/// Many crashes with little work between them, so that many crashes tear a page that is being
/// written.
const LIVES: Rung = Rung {
    name: "2 lives",
    fails: |seed| {
        let plain = Config { faults: false, xa: false, ddl: false, ..Config::default() };
        simulate(seed, Config { opens: 20, ..plain })
    },
};

/// The rung named for each fault.
fn rung(fault: Fault) -> Rung {
    match fault {
        Fault::ReadTooNew
        | Fault::ReadTooOld
        | Fault::EntryNotWritten
        | Fault::LockNotTaken
        | Fault::UniqueNotChecked
        | Fault::UndoStepSkipped
        | Fault::DelDropped
        | Fault::RowsPassed => SESSIONS,
        Fault::DoublewriteSkipped => LIVES,
        _ => CRASHES,
    }
}

/// The faults that a test of one crate catches; `scripts/test_planted.py` names that test and runs
/// it with the fault.
const ELSEWHERE: &[Fault] = &[
    Fault::DurableAtSyncEnd,
    Fault::LogEndReadLate,
    Fault::FirstSlotOnly,
    Fault::OneCheckpointCopy,
    Fault::PinsIgnored,
    Fault::RealSyncSkipped,
    Fault::RealNamesNotSynced,
    Fault::RootNameNotSynced,
    Fault::ShortWriteTaken,
    Fault::RemovalNotHeld,
    Fault::PagesCopiedAfterEnd,
    Fault::UnloggedNotCopied,
    Fault::ChangedBelowEndNotCopied,
    Fault::RunOfBaseNotRestored,
    Fault::AnyBaseTaken,
    Fault::UncommittedBySnapshot,
    Fault::StaleTableHandle,
    Fault::EntriesTakenForRows,
    Fault::ChildrenBeforeStamp,
    Fault::ParentBarrierSkipped,
    Fault::ParentNotLocked,
    Fault::ParentWasThere,
    Fault::LookedOnce,
    Fault::ParkedUnseen,
    Fault::KeyProvedEarly,
    Fault::CascadeSkipsLocked,
    Fault::CascadeForgetsIndex,
    Fault::OrphansOverlooked,
    Fault::ChunkNotClosed,
    Fault::ChunkMadeTwice,
    Fault::ChunkWritersIgnored,
    Fault::ChunkPreparedIgnored,
    Fault::ChunkNumberReused,
    Fault::ChunkMadeMeanwhileMissed,
];

#[test]
fn faults_caught_elsewhere_are_listed_in_the_script() {
    let script = include_str!("../../../scripts/test_planted.py");
    for fault in ELSEWHERE {
        assert!(script.contains(&format!("(\"{fault:?}\", ")), "{fault:?}");
    }
}

/// Seeds that a rung is given to catch a fault.
const SEEDS: u64 = 300;

#[test]
fn every_planted_fault_is_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("EVENKEEL_SIM_FAULT").unwrap_or_default();
    let mut missed = Vec::new();
    println!("{:<20} {:<12} {:>5}  what it says", "fault", "rung", "seed");
    let here = Fault::ALL.iter().filter(|fault| !ELSEWHERE.contains(fault));
    for fault in here.filter(|f| format!("{f:?}").contains(&only)) {
        let (name, rung) = (format!("{fault:?}"), rung(*fault));
        let with = |fault: Option<Fault>, seed| {
            arm(fault);
            let said = (rung.fails)(seed);
            arm(None);
            said
        };
        let caught = (1..=SEEDS).find_map(|seed| {
            let why = with(Some(*fault), seed)?;
            with(None, seed).is_none().then_some((seed, why))
        });
        match caught {
            Some((seed, why)) => {
                let why: String = why.chars().take(110).collect();
                println!("{name:<20} {:<12} {seed:>5}  {why}", rung.name);
            }
            None => {
                println!("{name:<20} {:<12} not caught in {SEEDS} seeds", rung.name);
                missed.push(*fault);
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
