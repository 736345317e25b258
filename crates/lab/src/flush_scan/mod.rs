//! `lab flush-scan` (P1, P2): an index was built through the page pool without logging, and its
//! pages must be flushed before the index may be used. The way in which they are found among all
//! dirty pages decides whether writers slow down.

mod list;
mod ours;
mod policies;
mod setup;
#[cfg(test)]
mod tests;
mod world;

use crate::outcome::{Axis, Chart, Column, FORMAT, Line, Outcome, Policy, Unit};
use evenkeel_base::Result;
use evenkeel_io::Rng;
use list::FlushList;
use policies::{Scan, Scanner, Tally};
pub use setup::Setup;
use world::World;

const SECOND: f64 = 1e9;
/// The policies with a flush list, by name, and their colours.
const SCANS: [(&str, Scan, usize); 4] = [
    ("restart", Scan::Restart, 0),
    ("hazard pointer", Scan::Hazard, 1),
    ("optimistic, first version", Scan::Optimistic { latched: false }, 4),
    ("optimistic", Scan::Optimistic { latched: true }, 2),
];
/// The age at which writers wait, in eighths of the part of the log that users may fill.
const TRIGGER_EIGHTHS: u64 = 5;
/// The engine's policy.
const OURS: (&str, usize) = ("evenkeel", 3);

/// Pages of one instance from the oldest to the newest, true for those of the build. The build made
/// its pages dirty last, among pages that writers made dirty meanwhile.
fn layout(setup: &Setup, instance: u64) -> Vec<bool> {
    let part = |n: u64| n / setup.instances + u64::from(instance < n % setup.instances);
    let (pages, own) = (part(setup.pages), part(setup.own));
    let newest = (own * (1 + setup.mixed)).min(pages);
    let mut rng = Rng::new(setup.seed ^ (instance << 32));
    let mut left = own;
    let place = |at| {
        let rest = pages - at;
        let is = rest <= newest && rng.below(rest) < left;
        left -= u64::from(is);
        is
    };
    (0..pages).map(place).collect()
}

/// The results of one policy.
struct Scanned {
    tally: Tally,
    /// From the first visit to the last page; `None`: it did not end in time.
    ddl_s: Option<f64>,
    longest_ns: u64,
    /// Number of times that a writer found no free frame.
    frameless: u64,
    done: Vec<u64>,
}

fn run_scan(setup: &Setup, scan: Scan) -> Scanned {
    let list = |instance| FlushList::new(layout(setup, instance), setup.jumps);
    let mut world = World::new(setup, list(0));
    world.let_go(setup.before_s * SECOND as u64);
    let start = world.now;
    let (mut tally, mut whole) = (Tally::default(), true);
    for instance in 0..setup.instances {
        if instance > 0 {
            world.next_list(list(instance));
        }
        let (cost, ended) = Scanner::new(setup, &mut world).run(scan);
        tally.add(&cost);
        whole &= ended;
    }
    let ddl_s = whole.then_some((world.now - start) as f64 / SECOND);
    let end = ((world.now as f64 / SECOND).ceil() as u64 + setup.before_s).max(setup.shown_s);
    world.let_go(end * SECOND as u64 - world.now);
    let mut done = std::mem::take(&mut world.done);
    done.resize(end as usize, 0);
    Scanned { tally, ddl_s, longest_ns: world.longest_ns, frameless: world.frameless, done }
}

/// A setup without other threads.
fn alone(setup: &Setup) -> Setup {
    Setup { writers: 0, before_s: 0, shown_s: 0, limit_s: u64::MAX >> 32, ..setup.clone() }
}

/// A setup without other threads, in which the cleaner has already written all other pages.
fn idle(setup: &Setup) -> Setup {
    Setup { pages: setup.own, ..alone(setup) }
}

/// Steps of a policy without other threads, as in the theory.
fn quiet_steps(setup: &Setup, scan: Scan) -> u64 {
    run_scan(&alone(setup), scan).tally.steps
}

fn median(values: &[u64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).map_or(0.0, |v| *v as f64)
}

/// The worst of the whole seconds in which the pages were flushed; for a short flush, of the second
/// around it.
fn worst(done: &[u64], from: u64, seconds: f64) -> f64 {
    let to = (from as usize + seconds.ceil().max(1.0) as usize).min(done.len());
    done[(from as usize).min(to)..to].iter().min().map_or(0.0, |v| *v as f64)
}

const COLUMNS: [Column; 16] = [
    Column { name: "entries looked at", unit: Unit::Count },
    Column { name: "pages of the build flushed", unit: Unit::Count },
    Column { name: "scans from the tail", unit: Unit::Count },
    Column { name: "left to the second pass", unit: Unit::Count },
    Column { name: "place lost", unit: Unit::Count },
    Column { name: "page locks taken", unit: Unit::Count },
    Column { name: "longest hold of the mutex", unit: Unit::Seconds },
    Column { name: "longest hold, the log at its trigger", unit: Unit::Seconds },
    Column { name: "times a writer found no free frame", unit: Unit::Count },
    Column { name: "time for the DDL to flush", unit: Unit::Seconds },
    Column { name: "the same, no writers", unit: Unit::Seconds },
    Column { name: "the same, idle for long", unit: Unit::Seconds },
    Column { name: "bytes written for it", unit: Unit::Bytes },
    Column { name: "transactions per second before", unit: Unit::PerSecond },
    Column { name: "worst second meanwhile", unit: Unit::PerSecond },
    Column { name: "worst / before", unit: Unit::Share },
];

fn scanned_row(setup: &Setup, scanned: &Scanned, scan: Scan) -> Vec<Option<f64>> {
    let before = median(&scanned.done[..setup.before_s as usize]);
    let during = scanned.ddl_s.unwrap_or(setup.limit_s as f64);
    let worst = worst(&scanned.done, setup.before_s, during);
    let count = |n: u64| Some(n as f64);
    let is_optimistic = matches!(scan, Scan::Optimistic { .. });
    // The length of a section of the scan does not depend on the age of the log.
    let hold = Some(scanned.longest_ns as f64 / SECOND);
    vec![
        count(scanned.tally.steps),
        count(scanned.tally.flushed),
        count(scanned.tally.scans),
        is_optimistic.then_some(scanned.tally.missed as f64),
        is_optimistic.then_some(scanned.tally.lost as f64),
        is_optimistic.then_some(scanned.tally.page_locks as f64),
        hold,
        hold,
        count(scanned.frameless),
        scanned.ddl_s,
        run_scan(&alone(setup), scan).ddl_s,
        run_scan(&idle(setup), scan).ddl_s,
        count(scanned.tally.flushed * setup.page_bytes),
        Some(before),
        Some(worst),
        Some(worst / before.max(1.0)),
    ]
}

/// The time of the operation that visited the most buckets.
fn hold_s(setup: &Setup, ours: &ours::Ours) -> f64 {
    (setup.hold_ns + ours.looks_most * setup.step_ns) as f64 / SECOND
}

/// The longest hold when the oldest page has the greatest age before writers wait for their share
/// of the log: then the law sums the most buckets.
fn hold_with_an_old_log_s(setup: &Setup) -> f64 {
    let old = Setup { age_eighths: TRIGGER_EIGHTHS, ..setup.clone() };
    hold_s(&old, &ours::run(&old, 2, &ours::Built::default()))
}

fn ours_row(setup: &Setup, ours: &ours::Ours, built: &ours::Built) -> Vec<Option<f64>> {
    let before = median(&ours.done[..setup.before_s as usize]);
    let seconds = ours.ddl_s.unwrap_or(setup.shown_s as f64);
    let worst = worst(&ours.done, setup.before_s, seconds);
    vec![
        Some(ours.build_looks as f64),
        Some(built.pages as f64),
        None,
        None,
        None,
        None,
        Some(hold_s(setup, ours)),
        Some(hold_with_an_old_log_s(setup)),
        None,
        ours.ddl_s,
        ours::run(&alone(setup), setup.shown_s, built).ddl_s,
        ours::run(&idle(setup), setup.shown_s, built).ddl_s,
        Some(built.bytes as f64),
        Some(before),
        Some(worst),
        Some(worst / before.max(1.0)),
    ]
}

fn is_first_version(scan: Scan) -> bool {
    matches!(scan, Scan::Optimistic { latched: false })
}

fn counts(done: &[u64]) -> impl Iterator<Item = f64> {
    done.iter().map(|v| *v as f64)
}

/// Steps by number of dirty pages, which doubles up to the size of the setup.
fn growth(setup: &Setup) -> Vec<Line> {
    let mut lines = Vec::new();
    // Without other threads the two versions of the optimistic scan do the same.
    for (name, scan, colour) in SCANS.into_iter().filter(|s| !is_first_version(s.1)) {
        let points = (0..5).rev().map(|halvings| {
            let smaller = Setup { pages: setup.pages >> halvings, ..setup.clone() };
            (smaller.pages as f64, quiet_steps(&smaller, scan) as f64)
        });
        lines.push(Line { name: name.into(), colour, points: points.collect() });
    }
    lines
}

/// The experiment.
///
/// # Errors
/// Those of the engine, while it builds an index.
pub fn run(setup: &Setup) -> Result<Outcome> {
    let (mut policies, mut rates) = (Vec::new(), Vec::new());
    for (name, scan, colour) in SCANS {
        let scanned = run_scan(setup, scan);
        rates.push(Line::each(name, colour, 1.0, counts(&scanned.done)));
        let values = scanned_row(setup, &scanned, scan);
        policies.push(Policy { name: name.into(), values });
    }
    let built = ours::build(setup.own * setup.page_bytes, setup.seed)?;
    let ours = ours::run(setup, setup.shown_s, &built);
    rates.push(Line::each(OURS.0, OURS.1, 1.0, counts(&ours.done)));
    policies.push(Policy { name: OURS.0.into(), values: ours_row(setup, &ours, &built) });
    let mut settings = setup.settings();
    settings.insert("rows_indexed_by_evenkeel".into(), built.rows.into());
    let axis = |name, unit, log| Axis { name, unit, log };
    let charts = vec![
        Chart {
            id: "throughput",
            title: "Transactions per second while the pages of a new index are flushed".into(),
            x: axis("seconds", Unit::Seconds, false),
            y: axis("transactions per second", Unit::PerSecond, false),
            lines: rates,
        },
        Chart {
            id: "growth",
            title: "Entries looked at, by dirty pages in the pool".into(),
            x: axis("dirty pages", Unit::Count, true),
            y: axis("entries looked at", Unit::Count, true),
            lines: growth(setup),
        },
    ];
    Ok(Outcome {
        format: FORMAT,
        experiment: "flush-scan",
        title: "Finding the pages of a new index among all dirty pages",
        question: "An index was built through the page pool without redo; before it may be used, \
                   its pages must reach the disk. What does it cost to find them, and who waits?",
        seed: setup.seed,
        settings,
        columns: COLUMNS.to_vec(),
        policies,
        charts,
    })
}
