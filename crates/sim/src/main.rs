//! Replays seeds: `evenkeel-sim SEED`, or `evenkeel-sim FROM TO`. With `builds` before the numbers
//! it replays the seeds of index builds among rollbacks.

use evenkeel_sim::run::Config;
use evenkeel_sim::seeds::run_on;
use evenkeel_sim::{Events, run_seed};
use std::sync::Arc;

fn main() -> std::process::ExitCode {
    let builds = std::env::args().nth(1).is_some_and(|a| a == "builds");
    let config = if builds { Config::builds() } else { Config::default() };
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let from = args.first().copied().unwrap_or(1);
    let to = args.get(1).copied().unwrap_or(from);
    let events = Arc::new(Events::default());
    let mut failed = 0;
    if std::env::var_os("RUST_BACKTRACE").is_none_or(|v| v == "0") {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let mut outcomes = match from == to {
        true => vec![(from, run_seed(from, config, &events))],
        false => run_on(1, (from, to + 1 - from), config, &events),
    };
    for (seed, outcome) in &outcomes {
        if let Some(why) = &outcome.failure {
            failed += 1;
            println!("seed {seed}: {why}");
        }
    }
    outcomes.sort_by_key(|(_, o)| std::cmp::Reverse(o.resident));
    for (seed, outcome) in outcomes.iter().filter(|(_, o)| o.resident > 0).take(5) {
        println!("seed {seed}: {} MiB of memory", outcome.resident >> 20);
    }
    println!("{events}\n{} seeds, {failed} failed", to - from + 1);
    std::process::ExitCode::from(u8::from(failed > 0))
}
