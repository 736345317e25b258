//! Plants one fault after another into the engine and shows that the seeds of the simulator catch
//! each: `cargo test -p evenkeel-sim --features plant --test planted`.

use evenkeel_base::plant::{Fault, arm};
use evenkeel_sim::run::Config;
use evenkeel_sim::run_seed;
use std::sync::Arc;

#[test]
fn every_planted_fault_is_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("EVENKEEL_SIM_FAULT").unwrap_or_default();
    let mut missed = Vec::new();
    for fault in Fault::ALL.iter().filter(|f| format!("{f:?}").contains(&only)) {
        arm(Some(*fault));
        let caught = (1..=150).find_map(|seed| {
            let outcome = run_seed(seed, Config::default(), &Arc::default());
            outcome.failure.map(|why| (seed, why))
        });
        arm(None);
        match caught {
            Some((seed, why)) => {
                let why: String = why.chars().take(90).collect();
                println!("{:<20} rung 2, seed {seed:>3}: {why}", format!("{fault:?}"));
            }
            None => {
                println!("{:<20} not caught", format!("{fault:?}"));
                missed.push(*fault);
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
