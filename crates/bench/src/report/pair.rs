//! The page of two runs: the settings that differ, for each step a line of each run and the ratio,
//! one chart of both over the whole run, and the charts of each step side by side with the same
//! axes.

use super::chart::Chart;
use super::overview::{self, Key, Named, keys, step_of};
use super::text::{count, escape};
use super::{EXPLAINED, charts, close, head, open, ran_on, verdict};
use crate::diff;
use crate::error::BenchError;
use crate::result::{RunResult, StepResult};
use std::fmt::Write;
use std::path::Path;

/// A run and the file that it was read from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The name of the file without its folder.
    pub file: &'a str,
    /// The run.
    pub run: &'a RunResult,
}

/// Writes the page of two runs that were read from these files.
///
/// # Errors
/// If the page cannot be written.
pub fn write([a, b]: [(&Path, &RunResult); 2], html: &Path) -> Result<(), BenchError> {
    let file = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (file_a, file_b) = (file(a.0), file(b.0));
    let text = page([Source { file: &file_a, run: a.1 }, Source { file: &file_b, run: b.1 }]);
    std::fs::write(html, text).map_err(|e| BenchError::file(html, e))
}

/// The page of two runs.
pub fn page(sources: [Source<'_>; 2]) -> String {
    let [a, b] = sources;
    let runs = [Named { letter: "a", run: a.run }, Named { letter: "b", run: b.run }];
    let mut page = String::new();
    open(&mut page, "Insert benchmark: two runs");
    for (of, source) in runs.iter().zip(&sources) {
        let _ = writeln!(
            page,
            "<p class=\"source\"><span class=\"run-{letter} letter\">{letter}</span> \
             <b>{}</b>: {}</p>",
            escape(source.file),
            ran_on(of.run),
            letter = of.letter
        );
    }
    differences(&mut page, a.run, b.run);
    let keys = keys(&runs);
    page.push_str("<h2>Result</h2>\n<div class=\"verdicts pair\">\n");
    for (i, key) in keys.iter().enumerate() {
        verdicts(&mut page, i, *key, &runs);
    }
    let _ = writeln!(page, "</div>\n<p class=\"legend\">{EXPLAINED}</p>");
    page.push_str("<h2>Both runs, second by second</h2>\n");
    overview::draw(&mut page, &runs);
    page.push_str("<h2>Details</h2>\n");
    for (i, key) in keys.iter().enumerate() {
        section(&mut page, i, *key, &runs);
    }
    figures(&mut page, &keys, a.run, b.run);
    for of in runs {
        let _ = writeln!(page, "<details><summary>Machine and settings of {}</summary>", of.letter);
        head(&mut page, of.run);
        page.push_str("</details>\n");
    }
    close(&mut page);
    page
}

fn differences(page: &mut String, a: &RunResult, b: &RunResult) {
    let different = diff::settings(a, b);
    if different.is_empty() {
        page.push_str("<p>The settings of both are the same.</p>\n");
        return;
    }
    page.push_str("<p>Settings that differ: ");
    let all: Vec<String> = different
        .iter()
        .map(|(name, a, b)| format!("{} (a {}, b {})", escape(name), escape(a), escape(b)))
        .collect();
    let _ = writeln!(page, "{}.</p>", all.join(", "));
}

fn verdicts(page: &mut String, number: usize, key: Key<'_>, runs: &[Named<'_>; 2]) {
    let steps = runs.map(|of| step_of(of.run, key));
    let seconds = steps.iter().flatten().map(|step| step.seconds).fold(0.0, f64::max);
    page.push_str("<div class=\"of-step\">\n");
    verdict::title(page, number, key.0, seconds);
    if let [Some(a), Some(b)] = steps
        && verdict::rate(a) > 0.0
    {
        let ratio = verdict::rate(b) / verdict::rate(a);
        let _ = writeln!(
            page,
            "<p class=\"ratio\" data-ratio=\"{ratio}\">b is {} x a</p>",
            if ratio < 100.0 { format!("{ratio:.2}") } else { count(ratio) }
        );
    }
    for (of, step) in runs.iter().zip(steps) {
        match step {
            Some(step) => verdict::line(page, of.letter, of.run, step),
            None => {
                let _ = writeln!(page, "<p class=\"verdict\">not in {}</p>", of.letter);
            }
        }
    }
    page.push_str("</div>\n");
}

fn section(page: &mut String, number: usize, key: Key<'_>, runs: &[Named<'_>; 2]) {
    let mut drawn: Vec<Vec<Chart>> =
        runs.iter().map(|of| step_of(of.run, key).map(charts).unwrap_or_default()).collect();
    let mut ids: Vec<String> = Vec::new();
    for chart in drawn.iter().flatten() {
        if !ids.contains(&chart.id) {
            ids.push(chart.id.clone());
        }
    }
    if let [a, b] = &mut drawn[..] {
        for chart in a {
            if let Some(other) = b.iter_mut().find(|other| other.id == chart.id) {
                chart.align(other);
            }
        }
    }
    let _ = write!(
        page,
        "<details class=\"step\" id=\"step-{number}\" data-step=\"{0}\"><summary>{0}: {1} charts \
         of each run</summary>\n<div class=\"charts two\">\n",
        escape(key.0),
        ids.len()
    );
    for id in &ids {
        for (of, charts) in runs.iter().zip(&drawn) {
            let _ = writeln!(
                page,
                "<div data-run=\"{letter}\"><span class=\"run-{letter} letter\">\
                 {letter}</span>",
                letter = of.letter
            );
            match charts.iter().find(|chart| chart.id == *id) {
                Some(chart) => chart.draw(page),
                None => page.push_str("<p class=\"legend\">nothing</p>\n"),
            }
            page.push_str("</div>\n");
        }
    }
    page.push_str("</div>\n</details>\n");
}

fn figures(page: &mut String, keys: &[Key<'_>], a: &RunResult, b: &RunResult) {
    page.push_str(
        "<details><summary>All figures</summary>\n<div class=\"wide\"><table>\n\
         <tr><th>figure</th><th>a</th><th>b</th><th>b/a</th></tr>\n",
    );
    let mut step_rows = |name: &str, of: [&StepResult; 2]| {
        let _ = writeln!(page, "<tr><th colspan=\"4\">{}</th></tr>", escape(name));
        for (name, x, y) in diff::figures(of[0], of[1]) {
            let ratio = if x == 0.0 { "\u{2013}".into() } else { format!("{:.2}", y / x) };
            let _ = writeln!(
                page,
                "<tr><th>{name}</th><td>{x:.2}</td><td>{y:.2}</td><td>{ratio}</td></tr>"
            );
        }
    };
    for key in keys {
        if let (Some(a), Some(b)) = (step_of(a, *key), step_of(b, *key)) {
            step_rows(key.0, [a, b]);
        }
    }
    page.push_str("</table></div>\n</details>\n");
}
