//! The result of an experiment: settings, a table of policies, and charts. JSON, the report and the
//! figures of `docs/lab.md` are all derived from it.

use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The unit of a number, which determines how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A count.
    Count,
    /// A count per second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A part of a whole, or a ratio.
    Share,
}

impl Unit {
    /// The number as text: three digits and a unit.
    pub fn show(self, n: f64) -> String {
        match self {
            Unit::Count => decimal(n),
            Unit::PerSecond => format!("{}/s", decimal(n)),
            Unit::Seconds => seconds(n),
            Unit::Bytes => bytes(n),
            Unit::Share => digits(n),
        }
    }
}

fn decimal(n: f64) -> String {
    match n.abs() {
        a if a >= 1e12 => format!("{}T", digits(n / 1e12)),
        a if a >= 1e9 => format!("{}G", digits(n / 1e9)),
        a if a >= 1e6 => format!("{}M", digits(n / 1e6)),
        a if a >= 1e3 => format!("{}k", digits(n / 1e3)),
        _ => digits(n),
    }
}

fn bytes(n: f64) -> String {
    let text = decimal(n);
    match text.chars().last() {
        Some('k') => format!("{} KB", &text[..text.len() - 1]),
        Some(suffix @ ('M' | 'G' | 'T')) => format!("{} {suffix}B", &text[..text.len() - 1]),
        _ => format!("{text} B"),
    }
}

fn seconds(n: f64) -> String {
    match n.abs() {
        a if a >= 1.0 || a == 0.0 => format!("{} s", digits(n)),
        a if a >= 1e-3 => format!("{} ms", digits(n * 1e3)),
        a if a >= 1e-6 => format!("{} \u{b5}s", digits(n * 1e6)),
        _ => format!("{} ns", digits(n * 1e9)),
    }
}

fn digits(n: f64) -> String {
    let text = match n.abs() {
        a if a >= 100.0 || a.fract() == 0.0 => format!("{n:.0}"),
        a if a >= 10.0 => format!("{n:.1}"),
        _ => format!("{n:.2}"),
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

/// A figure of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
}

/// A policy with its figures.
#[derive(Clone, Debug, Serialize)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// One value per column; `None`: the figure has no meaning for the policy, or was not reached.
    pub values: Vec<Option<f64>>,
}

/// One axis of a chart.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// The quantity on it.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Whether the scale is logarithmic.
    pub log: bool,
}

/// The values of one policy in a chart, ascending in x.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Name of the policy.
    pub name: String,
    /// Its colour, the same in every chart.
    pub colour: usize,
    /// (x, y).
    pub points: Vec<(f64, f64)>,
}

impl Line {
    /// A line with values at distances of `step` in x, from 0 on.
    pub fn each(name: &str, colour: usize, step: f64, values: impl Iterator<Item = f64>) -> Line {
        let points = (0u32..).zip(values).map(|(at, v)| (f64::from(at) * step, v));
        Line { name: name.into(), colour, points: points.collect() }
    }
}

/// A chart.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// Its name in file names and in tests.
    pub id: &'static str,
    /// The title of the chart.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines of the policies.
    pub lines: Vec<Line>,
}

/// The result of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Version of this structure; fields may be added, never renamed.
    pub format: u32,
    /// Its name on the command line.
    pub experiment: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The comparison in a sentence or two.
    pub question: &'static str,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Every parameter.
    pub settings: BTreeMap<String, Value>,
    /// The figures.
    pub columns: Vec<Column>,
    /// The policies.
    pub policies: Vec<Policy>,
    /// The charts.
    pub charts: Vec<Chart>,
}

/// The version of [`Outcome`].
pub const FORMAT: u32 = 1;

/// Settings by name, from a JSON object of them.
pub fn settings(all: &Value) -> BTreeMap<String, Value> {
    all.as_object().into_iter().flatten().map(|(n, v)| (n.clone(), v.clone())).collect()
}

impl Outcome {
    /// A figure of a policy.
    pub fn value(&self, policy: &str, column: &str) -> Option<f64> {
        let at = self.columns.iter().position(|c| c.name == column)?;
        self.policies.iter().find(|p| p.name == policy)?.values[at]
    }

    /// The figures as rows of cells: the header first, then a row per figure.
    pub fn cells(&self) -> Vec<Vec<String>> {
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(self.policies.iter().map(|p| p.name.clone()));
        for (at, column) in self.columns.iter().enumerate() {
            let mut row = vec![column.name.to_string()];
            let show = |v: &Option<f64>| v.map_or("\u{2013}".into(), |v| column.unit.show(v));
            row.extend(self.policies.iter().map(|p| show(&p.values[at])));
            rows.push(row);
        }
        rows
    }

    /// The table as text, with the seed that reproduces it.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}\nseed {}\n", self.title, self.question, self.seed);
        for (name, value) in &self.settings {
            let _ = writeln!(text, "  {name} = {value}");
        }
        let cells = self.cells();
        let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        for row in &cells {
            let _ = write!(text, "{:<width$}", row[0], width = width(0));
            for (at, cell) in row.iter().enumerate().skip(1) {
                let _ = write!(text, "  {cell:>width$}", width = width(at));
            }
            text.push('\n');
        }
        text
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (number, row) in self.cells().iter().enumerate() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if number == 0 {
                let _ = writeln!(text, "|{}", " --- |".repeat(row.len()));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(Unit::Count.show(0.0), "0");
        assert_eq!(Unit::Count.show(3_100_000_000.0), "3.1G");
        assert_eq!(Unit::PerSecond.show(52_345.0), "52.3k/s");
        assert_eq!(Unit::Seconds.show(0.000_041), "41 \u{b5}s");
        assert_eq!(Unit::Seconds.show(126.0), "126 s");
        assert_eq!(Unit::Bytes.show(49_152_000.0), "49.2 MB");
        assert_eq!(Unit::Bytes.show(12.0), "12 B");
        assert_eq!(Unit::Share.show(0.5), "0.5");
    }
}
