//! `lab free-pages` (P4): threads need free frames to read pages into. Threads that sleep on timers
//! provide them, or one that is woken when they run short.

#[cfg(test)]
mod by_hand;
mod providers;
mod setup;
mod sim;
#[cfg(test)]
mod tests;

use crate::outcome::{Axis, Chart, Column, FORMAT, Line, Outcome, Policy, Unit};
use providers::{Events, Timers};
pub use setup::Setup;
use sim::Figures;

const SECOND: f64 = 1e9;

const COLUMNS: [Column; 14] = [
    Column { name: "pages read per second", unit: Unit::PerSecond },
    Column { name: "best second", unit: Unit::PerSecond },
    Column { name: "least free frames", unit: Unit::Count },
    Column { name: "times a thread found none", unit: Unit::Count },
    Column { name: "time threads waited for one", unit: Unit::Seconds },
    Column { name: "longest wait", unit: Unit::Seconds },
    Column { name: "time of sleeps begun on timers", unit: Unit::Seconds },
    Column { name: "time the background slept on timers", unit: Unit::Seconds },
    Column { name: "runs of the background", unit: Unit::Count },
    Column { name: "runs that found nothing to do", unit: Unit::Count },
    Column { name: "frames the background looked at", unit: Unit::Count },
    Column { name: "frames threads looked at", unit: Unit::Count },
    Column { name: "processor time of the background", unit: Unit::Seconds },
    Column { name: "processor time spent in vain", unit: Unit::Seconds },
];

fn timers(setup: &Setup) -> Figures {
    sim::run(setup, &mut Timers::new(setup))
}

fn events(setup: &Setup) -> Figures {
    sim::run(setup, &mut Events::new(setup))
}

fn row(figures: &Figures) -> Vec<Option<f64>> {
    let all = figures.done.iter().sum::<u64>() as f64;
    let least = |values: &[u64]| values.iter().min().map_or(0.0, |v| *v as f64);
    let values = [
        all / figures.done.len().max(1) as f64,
        figures.done.iter().max().map_or(0.0, |v| *v as f64),
        least(&figures.free),
        figures.waits as f64,
        figures.waited_ns as f64 / SECOND,
        figures.longest_ns as f64 / SECOND,
        figures.asleep_ns as f64 / SECOND,
        figures.manager_slept_ns as f64 / SECOND,
        figures.runs as f64,
        figures.idle_runs as f64,
        figures.looks as f64,
        figures.own_looks as f64,
        figures.busy_ns as f64 / SECOND,
        figures.vain_ns as f64 / SECOND,
    ];
    values.map(Some).to_vec()
}

/// The experiment.
pub fn run(setup: &Setup) -> Outcome {
    let all = [("timers", 0, timers(setup)), ("evenkeel", 3, events(setup))];
    let axis = |name, unit| Axis { name, unit, log: false };
    let chart = |id, title: &str, y, lines| {
        let x = axis("seconds", Unit::Seconds);
        Chart { id, title: title.into(), x, y, lines }
    };
    let line = |name: &str, colour, values: &[u64], step| {
        Line::each(name, colour, step, values.iter().map(|v| *v as f64))
    };
    let rates = all.iter().map(|(name, colour, f)| line(name, *colour, &f.done, 1.0));
    let free = all.iter().map(|(name, colour, f)| line(name, *colour, &f.free, 0.1));
    let charts = vec![
        chart("free", "Free frames", axis("free frames", Unit::Count), free.collect()),
        chart(
            "throughput",
            "Pages read per second",
            axis("pages per second", Unit::PerSecond),
            rates.collect(),
        ),
    ];
    let policy = |(name, _, figures): &(&str, usize, Figures)| Policy {
        name: (*name).into(),
        values: row(figures),
    };
    Outcome {
        format: FORMAT,
        experiment: "free-pages",
        title: "Free frames for pages to be read into",
        question: "Work comes in bursts, and every page that is read needs a free frame. Who sees \
                   to it that there are some, and how long do threads wait?",
        seed: setup.seed,
        settings: setup.settings(),
        columns: COLUMNS.to_vec(),
        policies: all.iter().map(policy).collect(),
        charts,
    }
}
