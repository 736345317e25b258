//! A picture of one step of several runs in a file of its own, for a document: the rate of each
//! second, a line per run.

use super::chart::{Axis, Scale, path};
use super::overview::{called, middle_rate, step_of, unit};
use super::text::{count, escape};
use crate::error::BenchError;
use crate::result::StepResult;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const WIDTH: f64 = 720.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 60.0;
const PLOT: (f64, f64) = (636.0, 240.0);
/// Number of marks on the time axis, without that at its start.
const TIME_MARKS: usize = 4;
const COLOURS: [&str; 4] = ["#0b6fb8", "#e07b00", "#2f9e44", "#7048e8"];

/// Draws a step of the runs in these files.
///
/// # Errors
/// If a file cannot be read or has no such step, or the picture cannot be written.
pub fn write(step: &str, runs: &[PathBuf], svg: &Path) -> Result<(), BenchError> {
    let (mut lines, mut about) = (Vec::new(), String::new());
    for file in runs {
        let run = crate::diff::read(file)?;
        let found = step_of(&run, (step, 0)).filter(|step| !step.per_second.is_empty());
        if lines.is_empty() {
            about = super::conditions(&run);
        }
        let Some(found) = found.cloned() else {
            return Err(BenchError::file(file, format!("has no seconds of a step {step}")));
        };
        lines.push((called(&run), found));
    }
    std::fs::write(svg, picture(&about, &lines)).map_err(|e| BenchError::file(svg, e))
}

/// The picture: the machine and settings of the first run, and the named lines.
fn picture(about: &str, lines: &[(String, StepResult)]) -> String {
    let seconds = lines.iter().map(|(_, step)| step.per_second.len()).max().unwrap_or(1).max(1);
    let rates: Vec<Vec<f64>> = lines.iter().map(|(_, step)| step.rates()).collect();
    let highest = rates.iter().flatten().copied().fold(0.0, f64::max);
    let axis = Axis::new(Scale::Linear(count), highest);
    let below = TOP + PLOT.1;
    let height = below + 30.0 + 20.0 * lines.len() as f64;
    let (name, unit) = lines.first().map_or(("", ""), |(_, step)| (&step.name, unit(step)));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         width=\"{WIDTH}\" font-family=\"system-ui, DejaVu Sans, sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height:.0}\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"20\" font-weight=\"600\" fill=\"#1c2430\">{}: {unit}, second by \
         second</text>\n<text x=\"12\" y=\"40\" fill=\"#5b6675\">{about}</text>\n",
        escape(name)
    );
    for (share, label) in axis.marks() {
        let at = below - share * PLOT.1;
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {at:.1}h{}\" stroke=\"#dde2e8\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\" fill=\"#5b6675\">{label}</text>",
            PLOT.0,
            LEFT - 6.0,
            at + 4.0
        );
    }
    for mark in 0..=TIME_MARKS {
        let (share, second) = (mark as f64 / TIME_MARKS as f64, mark * seconds / TIME_MARKS);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{}\" fill=\"#5b6675\">{second} s</text>",
            LEFT + share * PLOT.0,
            below + 18.0,
            if mark == TIME_MARKS { "end" } else { "middle" }
        );
    }
    for (i, ((name, step), rates)) in lines.iter().zip(&rates).enumerate() {
        let point = |(second, rate): (usize, &f64)| {
            let x = LEFT + PLOT.0 * (second as f64 + 0.5) / seconds as f64;
            (x, below - PLOT.1 * axis.share(*rate))
        };
        let points: Vec<(f64, f64)> = rates.iter().enumerate().map(point).collect();
        let (colour, at) = (COLOURS[i % COLOURS.len()], below + 42.0 + 20.0 * i as f64);
        let _ = writeln!(
            out,
            "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <rect x=\"{LEFT}\" y=\"{:.0}\" width=\"14\" height=\"10\" fill=\"{colour}\"/><text \
             x=\"{}\" y=\"{at:.0}\" fill=\"#1c2430\">{}: {} in a middle second, {} in the \
             worst</text>",
            path(&points),
            at - 10.0,
            LEFT + 22.0,
            escape(name),
            count(middle_rate(step)),
            worst(rates)
        );
    }
    out + "</svg>\n"
}

/// The worst second that counts.
fn worst(rates: &[f64]) -> String {
    let counted = crate::figures::counted(rates);
    let all = if counted.is_empty() { rates } else { counted };
    count(all.iter().copied().fold(f64::INFINITY, f64::min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_point_for_each_second_of_its_run() {
        let of = |rates: &[f64]| StepResult {
            name: "l.i1".into(),
            per_second: rates.iter().map(|r| (*r, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)).collect(),
            ..StepResult::default()
        };
        let drawn = picture(
            "1 core",
            &[("A".into(), of(&[10.0, 20.0, 40.0])), ("B & C".into(), of(&[10.0, 5.0]))],
        );
        let lines: Vec<&str> =
            drawn.lines().filter(|line| line.contains("fill=\"none\"")).collect();
        let points = |line: &str| line.matches(['M', 'L']).count();
        assert_eq!(lines.iter().map(|line| points(line)).collect::<Vec<usize>>(), [3, 2]);
        assert!(lines[0].contains("382.00 180.00L594.00 60.00"), "half and all: {}", lines[0]);
        assert!(drawn.contains("A: 20 in a middle second, 10 in the worst"), "{drawn}");
        assert!(drawn.contains("B &amp; C: 7.50 in"), "{drawn}");
    }
}
