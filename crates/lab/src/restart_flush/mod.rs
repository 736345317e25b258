//! `lab restart-flush` (P3): after a crash the log is old, and the law that decides how many pages
//! to flush has no history yet.

#[cfg(test)]
mod by_hand;
mod law;
mod setup;
mod sim;
#[cfg(test)]
mod tests;

use crate::outcome::{Axis, Chart, Column, FORMAT, Line, Outcome, Policy, Unit};
pub use setup::Setup;
use sim::{Law, Seconds};

/// The laws by name.
const LAWS: [(&str, Law); 3] =
    [("published", Law::Published), ("repaired", Law::Repaired), ("evenkeel", Law::Ours)];
/// The published law runs this many seconds without history.
const FIRST_SECONDS: usize = law::AVERAGING_LOOPS as usize;

const COLUMNS: [Column; 8] = [
    Column { name: "pages requested per second, first 30 s", unit: Unit::PerSecond },
    Column { name: "pages flushed per second, first 30 s", unit: Unit::PerSecond },
    Column { name: "flushed / requested, first 30 s", unit: Unit::Share },
    Column { name: "longest wait for the disk", unit: Unit::Seconds },
    Column { name: "transactions per second, first 30 s", unit: Unit::PerSecond },
    Column { name: "worst second of the first 30", unit: Unit::PerSecond },
    Column { name: "transactions per second, last 10 s", unit: Unit::PerSecond },
    Column { name: "worst / last 10 s", unit: Unit::Share },
];

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Flushed / requested in the first seconds.
fn overdone(seconds: &Seconds) -> f64 {
    let first = FIRST_SECONDS.min(seconds.flushed.len());
    mean(&seconds.flushed[..first]) / mean(&seconds.requested[..first]).max(1e-9)
}

fn row(seconds: &Seconds) -> Vec<Option<f64>> {
    let first = FIRST_SECONDS.min(seconds.done.len());
    let last = mean(&seconds.done[seconds.done.len().saturating_sub(10)..]);
    let worst = seconds.done[..first].iter().copied().fold(f64::INFINITY, f64::min);
    let values = [
        mean(&seconds.requested[..first]),
        mean(&seconds.flushed[..first]),
        overdone(seconds),
        seconds.queue.iter().copied().fold(0.0, f64::max),
        mean(&seconds.done[..first]),
        worst,
        last,
        worst / last.max(1e-9),
    ];
    values.map(Some).to_vec()
}

/// Flushed / requested and transactions per second in the first seconds, by number of cleaners.
fn by_cleaners(setup: &Setup) -> (Vec<Line>, Vec<Line>) {
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for (colour, (name, law)) in LAWS.into_iter().enumerate() {
        let (mut ratio, mut rate) = (Vec::new(), Vec::new());
        for cleaners in (0..7).map(|power| 1 << power) {
            let setup = Setup { cleaners, seconds: law::AVERAGING_LOOPS, ..setup.clone() };
            let seconds = sim::run(&setup, law);
            ratio.push((cleaners as f64, overdone(&seconds)));
            rate.push((cleaners as f64, mean(&seconds.done)));
        }
        ratios.push(Line { name: name.into(), colour, points: ratio });
        rates.push(Line { name: name.into(), colour, points: rate });
    }
    (ratios, rates)
}

/// The experiment.
pub fn run(setup: &Setup) -> Outcome {
    let (mut policies, mut rates, mut flushed) = (Vec::new(), Vec::new(), Vec::new());
    for (colour, (name, law)) in LAWS.into_iter().enumerate() {
        let seconds = sim::run(setup, law);
        let line = |name: &str, colour, values: &[f64]| {
            Line::each(name, colour, 1.0, values.iter().copied())
        };
        rates.push(line(name, colour, &seconds.done));
        flushed.push(line(&format!("{name}: flushed"), colour, &seconds.flushed));
        let other = colour + LAWS.len();
        flushed.push(line(&format!("{name}: requested"), other, &seconds.requested));
        policies.push(Policy { name: name.into(), values: row(&seconds) });
    }
    let (ratios, by_number) = by_cleaners(setup);
    let axis = |name, unit, log| Axis { name, unit, log };
    let seconds = || axis("seconds after recovery", Unit::Seconds, false);
    let charts = vec![
        Chart {
            id: "throughput",
            title: "Transactions per second after a crash".into(),
            x: seconds(),
            y: axis("transactions per second", Unit::PerSecond, false),
            lines: rates,
        },
        Chart {
            id: "pages",
            title: "Pages per second: requested by the law, and flushed".into(),
            x: seconds(),
            y: axis("pages per second", Unit::PerSecond, false),
            lines: flushed,
        },
        Chart {
            id: "cleaners",
            title: "Pages flushed per page requested, first 30 s, by number of cleaners".into(),
            x: axis("cleaners", Unit::Count, true),
            y: axis("flushed / requested", Unit::Share, false),
            lines: ratios,
        },
        Chart {
            id: "cleaners-throughput",
            title: "Transactions per second, first 30 s, by number of cleaners".into(),
            x: axis("cleaners", Unit::Count, true),
            y: axis("transactions per second", Unit::PerSecond, false),
            lines: by_number,
        },
    ];
    Outcome {
        format: FORMAT,
        experiment: "restart-flush",
        title: "Flushing right after a crash",
        question: "Recovery left an old log and many dirty pages. How many pages per second does \
                   the law ask for while it has no history, how many are flushed, and what is left \
                   of the disk for the users?",
        seed: setup.seed,
        settings: setup.settings(),
        columns: COLUMNS.to_vec(),
        policies,
        charts,
    }
}
