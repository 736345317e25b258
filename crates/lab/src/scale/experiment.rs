//! `lab scale`: databases and disks that cannot be tested directly. It simulates hours of ingest
//! into 1 TB and 10 TB, on a slow and a fast disk, in virtual time, and shows the debt of
//! compactions, the waits, and the rate of ingest.

use super::sim::{self, Figures};
use super::{RowBytes, debt, rows_per_sec, written_per_row};
use crate::outcome::{self, Axis, Chart, Column, FORMAT, Line, Outcome, Policy, Unit};
use serde_json::json;

/// One database on one disk.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its name in the report.
    pub name: &'static str,
    /// Bytes of rows and entries at the beginning.
    pub data_bytes: u64,
    /// Rows per second that arrive.
    pub rows_per_sec: u64,
    /// The disk, bytes per second.
    pub disk_bytes_per_sec: u64,
    /// I/Os per second of the disk.
    pub disk_ios_per_sec: u64,
    /// Bytes of a generation of the memtable.
    pub generation_bytes: u64,
    /// Connections; each inserts 50 rows per transaction.
    pub connections: u64,
    /// A transaction takes this long when the disk is idle.
    pub tx_ns: u64,
    /// Length in seconds; in the last sixth there is no ingest.
    pub seconds: u64,
    /// Points in a chart.
    pub points: u64,
    /// Processors; 0: computation takes no time, and one thread compacts.
    pub cores: u64,
    /// Bytes per second that a thread compacts on an idle disk; 0: computation takes no time.
    pub compacted_bytes_per_core: u64,
    /// An index on all rows is built meanwhile.
    pub builds: bool,
}

const TB: u64 = 1_000_000_000_000;
const MB: u64 = 1_000_000;
/// A slow disk and a fast one: bytes and I/Os per second.
pub(super) const SLOW: (u64, u64) = (100 * MB, 1_000);
pub(super) const FAST: (u64, u64) = (2_000 * MB, 200_000);
const HOURS: u64 = 36;

/// Bytes of runs per second that a thread compacts, counting only its computation.
const COMPACTED_PER_CORE: u64 = 50 * MB;

/// Attributes of a case other than its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForegroundLimit {
    Nothing,
    /// Processor time counts, with this many cores.
    Cores(u64),
    /// An index is built.
    Build,
}

/// Name, bytes of data, disk, rows per second, attribute.
type Case = (&'static str, u64, (u64, u64), u64, ForegroundLimit);
const CASES: [Case; 8] = [
    ("150 GB, slow disk", TB * 3 / 20, SLOW, 30_000, ForegroundLimit::Nothing),
    ("1 TB, slow disk", TB, SLOW, 30_000, ForegroundLimit::Nothing),
    ("1 TB, slow disk, more than it can", TB, SLOW, 300_000, ForegroundLimit::Nothing),
    (BUILD, TB, SLOW, 30_000, ForegroundLimit::Build),
    ("10 TB, slow disk", 10 * TB, SLOW, 10_000, ForegroundLimit::Nothing),
    ("10 TB, fast disk", 10 * TB, FAST, 200_000, ForegroundLimit::Nothing),
    ("10 TB, fast disk, 2 cores", 10 * TB, FAST, 200_000, ForegroundLimit::Cores(2)),
    ("10 TB, fast disk, 64 cores", 10 * TB, FAST, 200_000, ForegroundLimit::Cores(64)),
];
/// The case in which the governor has work that may wait during ingest.
const BUILD: &str = "1 TB, slow disk, an index is built";

impl Setup {
    /// The cases, their sizes and their time divided by `scale`.
    pub fn all(scale: u64) -> Vec<Setup> {
        let scale = scale.max(1);
        let setup = |(name, data, disk, rows_per_sec, beside): Case| Setup {
            name,
            data_bytes: data / scale,
            rows_per_sec,
            disk_bytes_per_sec: disk.0,
            disk_ios_per_sec: disk.1,
            generation_bytes: (256 << 20) / scale,
            connections: 64,
            tx_ns: 5_000_000,
            seconds: (HOURS * 3600 / scale).max(60),
            points: 144,
            cores: if let ForegroundLimit::Cores(cores) = beside { cores } else { 0 },
            compacted_bytes_per_core: match beside {
                ForegroundLimit::Cores(_) => COMPACTED_PER_CORE,
                _ => 0,
            },
            builds: beside == ForegroundLimit::Build,
        };
        CASES.map(setup).to_vec()
    }

    /// The number of these steps during which rows arrive.
    pub(super) fn loaded_steps(&self, steps: u64) -> u64 {
        steps / 6 * 5
    }

    /// Number of compaction threads: one, and if the cores are known those that help (RFC 14).
    pub(super) fn compaction_threads(&self) -> usize {
        1 + if self.cores == 0 {
            0
        } else {
            evenkeel_sched::laws::compaction::compaction_helpers(self.cores as usize)
        }
    }

    /// Size of the index divided by that of a run of one generation.
    pub(super) fn ratio(&self) -> f64 {
        let row = RowBytes::TYPICAL;
        let index = self.data_bytes as f64 / row.stored() * row.entry_disk;
        index / row.run(self.generation_bytes as f64)
    }
}

const COLUMNS: [Column; 15] = [
    Column { name: "rows per second offered", unit: Unit::PerSecond },
    Column { name: "rows per second inserted", unit: Unit::PerSecond },
    Column { name: "the disk could take, by the formula", unit: Unit::PerSecond },
    Column { name: "worst interval / offered", unit: Unit::Share },
    Column { name: "bytes written per row", unit: Unit::Bytes },
    Column { name: "bytes written per row, by the formula", unit: Unit::Bytes },
    Column { name: "most runs of an index", unit: Unit::Count },
    Column { name: "compactions into a bottom run", unit: Unit::Count },
    Column { name: "largest compaction debt", unit: Unit::Bytes },
    Column { name: "largest debt, by the formula", unit: Unit::Bytes },
    Column { name: "rows held back by memtable space", unit: Unit::Share },
    Column { name: "rows held back by compaction debt", unit: Unit::Share },
    Column { name: "rows held back by the queue of the disk", unit: Unit::Share },
    Column { name: "longest queue of the disk", unit: Unit::Seconds },
    Column { name: "the index is built after", unit: Unit::Seconds },
];

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn row(setup: &Setup, figures: &Figures) -> Vec<Option<f64>> {
    let loaded = setup.loaded_steps(figures.rows.len() as u64) as usize;
    let rows = &figures.rows[..loaded];
    let (typical, ratio) = (RowBytes::TYPICAL, setup.ratio());
    let asked = setup.rows_per_sec as f64;
    let worst = rows.iter().copied().fold(f64::INFINITY, f64::min);
    let [memtable, in_debt, disk] = figures.waits.each_ref().map(|w| mean(&w[..loaded]));
    let values = [
        asked,
        mean(rows),
        rows_per_sec(&typical, ratio, setup.disk_bytes_per_sec as f64),
        worst / asked,
        figures.written_all / figures.rows_all.max(1.0),
        written_per_row(&typical, ratio),
        most(&figures.runs),
        figures.into_bottom,
        most(&figures.debt),
        debt(figures.index_bytes),
        memtable,
        in_debt,
        disk,
        figures.longest,
    ];
    values.into_iter().map(Some).chain([figures.built]).collect()
}

type Ran = (Setup, Figures);

fn chart(
    all: &[Ran],
    id: &'static str,
    title: &str,
    y: Axis,
    pick: impl Fn(&Setup, &Figures) -> Vec<f64>,
) -> Chart {
    let line = |(colour, (setup, figures)): (usize, &Ran)| {
        let hours = setup.seconds as f64 / setup.points as f64;
        Line::each(setup.name, colour, hours, pick(setup, figures).into_iter())
    };
    let x = Axis { name: "seconds", unit: Unit::Seconds, log: false };
    Chart { id, title: title.into(), x, y, lines: all.iter().enumerate().map(line).collect() }
}

/// The governor's grants next to ingest: to required and to surplus work.
fn governor(all: &[Ran]) -> Chart {
    let (x, y) = (
        Axis { name: "seconds", unit: Unit::Seconds, log: false },
        Axis { name: "bytes per second", unit: Unit::Bytes, log: false },
    );
    let mut lines = Vec::new();
    for (setup, figures) in all.iter().filter(|(setup, _)| setup.name == BUILD) {
        let each = setup.seconds as f64 / setup.points as f64;
        let mut line = |name, colour, values: &[f64]| {
            lines.push(Line::each(name, colour, each, values.iter().copied()));
        };
        line("budget, at most what the disk does", 0, &figures.budget);
        line("required: flushes, compactions that ingest needs", 1, &figures.required);
        line("granted to surplus work: the index build, compactions at rest", 2, &figures.spare);
    }
    Chart { id: "governor", title: format!("The governor: {BUILD}"), x, y, lines }
}

/// Runs each setup in a thread of its own: they share nothing.
fn run_all(setups: Vec<Setup>) -> Vec<Ran> {
    std::thread::scope(|scope| {
        let start = |setup| {
            scope.spawn(move || {
                let figures = sim::run(&setup);
                (setup, figures)
            })
        };
        let threads: Vec<_> = setups.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ran")).collect()
    })
}

/// The experiment, its sizes and times divided by `scale`. Nothing in it is random.
pub fn run(scale: u64, seed: u64) -> Outcome {
    let all = run_all(Setup::all(scale));
    let axis = |name, unit| Axis { name, unit, log: false };
    let share = |name| axis(name, Unit::Share);
    let short = |_: &Setup, f: &Figures| {
        (0..f.rows.len()).map(|i| f.waits.iter().map(|w| w[i]).sum::<f64>()).collect()
    };
    // Databases and disks differ by a factor of a hundred: each is drawn relative to its own size.
    let of = |values: &[f64], whole: f64| values.iter().map(|v| v / whole.max(1.0)).collect();
    let rows = |s: &Setup, f: &Figures| of(&f.rows, s.rows_per_sec as f64);
    let debt = |_: &Setup, f: &Figures| of(&f.debt, f.index_bytes);
    let moved = |s: &Setup, f: &Figures| of(&f.moved, s.disk_bytes_per_sec as f64);
    let runs = |_: &Setup, f: &Figures| f.runs.clone();
    let to_do = "Work left to the compactions that have begun / the bytes of all indexes";
    let charts = vec![
        chart(&all, "rows", "Rows inserted / rows offered", share("inserted / offered"), rows),
        chart(&all, "debt", to_do, share("debt / bytes of indexes"), debt),
        chart(&all, "runs", "Most runs of an index", axis("runs", Unit::Count), runs),
        chart(&all, "waits", "Rows that had to wait / rows offered", share("share"), short),
        chart(
            &all,
            "disk",
            "Bytes that the disk moves / the most that it can move",
            share("moved / most"),
            moved,
        ),
        governor(&all),
    ];
    let policies = all
        .iter()
        .map(|(setup, figures)| Policy { name: setup.name.into(), values: row(setup, figures) });
    let policies = policies.collect();
    let first = &all[0].0;
    Outcome {
        format: FORMAT,
        experiment: "scale",
        title: "Large databases on slow disks",
        question: "Clients insert rows for hours into a database far larger than memory. How much \
                   work do compactions owe, how many runs does a query read, and how long do \
                   clients wait?",
        seed,
        settings: outcome::settings(&json!({
            "scale": scale,
            "generation_bytes": first.generation_bytes,
            "connections": first.connections,
            "tx_ns": first.tx_ns,
            "compacted_bytes_per_core": COMPACTED_PER_CORE,
            "seconds": first.seconds,
            "slow_disk_bytes_per_sec": SLOW.0,
            "slow_disk_ios_per_sec": SLOW.1,
            "fast_disk_bytes_per_sec": FAST.0,
            "fast_disk_ios_per_sec": FAST.1,
        })),
        columns: COLUMNS.to_vec(),
        policies,
        charts,
    }
}

#[cfg(test)]
#[path = "experiment_tests.rs"]
mod experiment_tests;
