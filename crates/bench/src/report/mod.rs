//! The report: one self-contained HTML page, a pure function of the JSON of one or two runs. The
//! page makes no requests. It begins with a line per step and a chart of the whole run. Folds
//! follow: all charts of each step with a mark or point per second, all figures, the settings.

mod chart;
mod laws;
mod overview;
pub mod pair;
pub mod picture;
mod text;
mod verdict;

use crate::diff;
use crate::engine::{Bytes, OWN_CAUSES, causes};
use crate::error::BenchError;
use crate::result::{Machine, RunResult, Second, StepResult};
use chart::{Chart, Form, Scale, Series};
use overview::{Named, called};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use text::{bytes, count, escape, micros, ratio};

const STYLE: &str = include_str!("style.css");
/// Shown below the verdicts.
const EXPLAINED: &str = "Worst second: the slowest whole second without the first five and the \
                         last, of steps of 20 s and more. Bounded by: what took most of the \
                         clients' time, or processors that were all busy.";
const SCRIPT: &str = include_str!("script.js");

/// Reads the JSON of a run and writes its page.
///
/// # Errors
/// If the JSON cannot be read or the page cannot be written.
pub fn convert(json: &Path, html: &Path) -> Result<(), BenchError> {
    let run = diff::read(json)?;
    std::fs::write(html, page(&run)).map_err(|e| BenchError::file(html, e))
}

/// The page of a run.
pub fn page(run: &RunResult) -> String {
    let mut page = String::new();
    open(&mut page, &format!("{}: insert benchmark", called(run)));
    if run.interrupted {
        page.push_str("<p class=\"warn\">Interrupted: the last step is not complete.</p>\n");
    }
    let _ = writeln!(page, "<p>{}</p>", ran_on(run));
    page.push_str("<h2>Result</h2>\n<div class=\"verdicts\">\n");
    for (i, step) in run.steps.iter().enumerate() {
        page.push_str("<div class=\"of-step\">\n");
        verdict::title(&mut page, i, &step.name, step.seconds);
        verdict::line(&mut page, "", run, step);
        page.push_str("</div>\n");
    }
    let _ = writeln!(page, "</div>\n<p class=\"legend\">{EXPLAINED}</p>");
    page.push_str("<h2>The whole run, second by second</h2>\n");
    overview::draw(&mut page, &[Named { letter: "", run }]);
    page.push_str("<h2>Details</h2>\n");
    for (i, step) in run.steps.iter().enumerate() {
        section(&mut page, i, step);
    }
    page.push_str("<details><summary>All figures of each step</summary>\n");
    figures(&mut page, run);
    page.push_str("</details>\n<details><summary>Waits by cause, over all steps</summary>\n");
    waits(&mut page, run);
    page.push_str("</details>\n<details><summary>Machine and settings</summary>\n");
    head(&mut page, run);
    page.push_str("</details>\n");
    close(&mut page);
    page
}

/// Writes the beginning of a page.
fn open(page: &mut String, title: &str) {
    let title = escape(title);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<h1>{title}</h1>\n"
    );
}

/// The engine, the machine and the settings of a run, in a line.
fn ran_on(run: &RunResult) -> String {
    format!("{} {}; {}.", escape(&called(run)), escape(&run.version), conditions(run))
}

/// The machine and the settings of a run.
fn conditions(run: &RunResult) -> String {
    let setting = |name: &str| match &run.settings[name] {
        serde_json::Value::String(text) => escape(text),
        other => other.to_string(),
    };
    let clients = run.settings["clients"].as_u64().unwrap_or(1);
    let mut text = format!(
        "{} cores, {} of memory; {clients} client{}, rows {}",
        run.machine.cores,
        bytes(run.machine.memory_bytes as f64),
        if clients == 1 { "" } else { "s" },
        setting("rows")
    );
    // A server has settings of its own.
    if !run.engine.contains("://") {
        let (memory, durability) = (setting("memory"), setting("durability"));
        let _ = write!(text, ", memory of the engine {memory}, durability {durability}");
    }
    text
}

/// Writes the end of a page.
fn close(page: &mut String) {
    let _ = write!(page, "<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
}

/// Writes the machine and the settings of a run.
fn head(page: &mut String, run: &RunResult) {
    let Machine { cores, memory_bytes, filesystem, sync_us_p50, sync_us_p99, .. } = &run.machine;
    let _ = writeln!(
        page,
        "<p>Version {}. {cores} cores, {} of memory, {}, direct I/O {}; writing and syncing 4 KiB \
         takes {} (median), {} (99%). Peak memory {}, space {}.</p>\n<dl>",
        escape(&run.version),
        bytes(*memory_bytes as f64),
        escape(filesystem),
        if run.machine.direct_io { "on" } else { "off" },
        micros(*sync_us_p50),
        micros(*sync_us_p99),
        bytes(run.peak_memory_bytes as f64),
        bytes(run.space_bytes as f64)
    );
    for (name, pattern) in &run.patterns {
        let _ = writeln!(page, "<dt>pattern of {}</dt><dd>{}</dd>", escape(name), escape(pattern));
    }
    let details = run.engine_details.as_object().into_iter().flatten();
    for (name, value) in run.settings.as_object().into_iter().flatten().chain(details) {
        let value = value.as_str().map_or_else(|| value.to_string(), ToString::to_string);
        let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(&value));
    }
    page.push_str("</dl>\n");
}

type Column = (&'static str, fn(&StepResult) -> String);

const COLUMNS: [Column; 13] = [
    ("seconds", |s| format!("{:.1}", s.seconds)),
    ("rows/s", |s| count(s.rows_per_s)),
    ("deletes/s", |s| count(s.deletes_per_s)),
    ("queries/s", |s| count(s.queries_per_s)),
    ("worst second / median", |s| ratio(s.worst_second_ratio)),
    ("5th percentile second / median", |s| ratio(s.p5_second_ratio)),
    ("seconds below 50%, 10%", |s| format!("{}, {}", s.seconds_below_50, s.seconds_below_10)),
    ("longest gap", |s| micros(s.longest_gap_ms * 1e3)),
    ("longest operation", |s| micros(s.max_op_ms * 1e3)),
    ("p99 operation", |s| micros(s.p99_op_ms * 1e3)),
    ("read, written per row or query", |s| {
        format!("{}, {}", bytes(s.bytes_read_per_row), bytes(s.bytes_written_per_row))
    }),
    ("CPU per row or query", |s| micros(s.cpu_us_per_row)),
    ("space", |s| bytes(s.space_bytes as f64)),
];

fn figures(page: &mut String, run: &RunResult) {
    page.push_str("<div class=\"wide\"><table>\n<tr><th>step</th>");
    for (name, _) in COLUMNS {
        let _ = write!(page, "<th>{name}</th>");
    }
    page.push_str("</tr>\n");
    for (i, step) in run.steps.iter().enumerate() {
        let missed = if step.rate_met { "" } else { " <span class=\"warn\">rate missed</span>" };
        let name = escape(&step.name);
        let _ = write!(page, "<tr><th><a href=\"#step-{i}\">{name}</a>{missed}</th>");
        for (_, cell) in COLUMNS {
            let _ = write!(page, "<td>{}</td>", cell(step));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn waits(page: &mut String, run: &RunResult) {
    page.push_str(
        "<p>Seconds that foreground threads waited. Bold causes are the engine's own making.</p>\n\
         <ul class=\"causes\">\n",
    );
    for cause in causes() {
        let us = run.waits.get(cause.name()).copied().unwrap_or(0);
        let own = if OWN_CAUSES.contains(&cause) { " own" } else { "" };
        let none = if us == 0 { " none" } else { "" };
        let (name, time) = (cause.name(), us as f64 / 1e6);
        let _ = writeln!(
            page,
            "<li class=\"cause{own}{none}\" data-cause=\"{name}\">{name} <b>{time:.3}</b></li>"
        );
    }
    page.push_str("</ul>\n");
}

fn section(page: &mut String, number: usize, step: &StepResult) {
    let (seconds, charts) = (step.per_second.len(), charts(step));
    let _ = write!(
        page,
        "<details class=\"step\" id=\"step-{number}\" data-step=\"{name}\" \
         data-seconds=\"{seconds}\"><summary>{name}: {} charts</summary>\n<div class=\"charts\">\n",
        charts.len(),
        name = escape(&step.name)
    );
    for chart in charts {
        chart.draw(page);
    }
    page.push_str("</div>\n</details>\n");
}

fn charts(step: &StepResult) -> Vec<Chart> {
    let mut all = Vec::new();
    let column = |pick: fn(&Second) -> f64| step.per_second.iter().map(pick).collect::<Vec<f64>>();
    let kinds: [(&str, &str, Vec<f64>, Vec<f64>); 3] = [
        ("insert", "Rows inserted per second", column(|s| s.0), column(|s| s.3)),
        ("delete", "Rows deleted per second", column(|s| s.1), column(|s| s.4)),
        ("query", "Queries per second", column(|s| s.2), column(|s| s.5)),
    ];
    for (kind, title, rates, worst) in kinds {
        if rates.iter().chain(&worst).all(|v| *v == 0.0) {
            continue;
        }
        all.push(Chart::single(&format!("rate-{kind}"), title, step, rates, Scale::Linear(count)));
        let title = format!("Worst {kind} response");
        all.push(Chart::single(&format!("worst-{kind}"), &title, step, worst, Scale::Micros));
    }
    let details = &step.per_second_details;
    let series = |names: Vec<&str>, from: &BTreeMap<String, Vec<u64>>| {
        let values = |name: &str| from.get(name).cloned().unwrap_or_default();
        let all = names.into_iter().enumerate();
        let all = all.map(|(i, name)| Series::new(name, i, &values(name)));
        all.filter(|s| s.values.iter().any(|v| *v > 0.0)).collect::<Vec<Series>>()
    };
    let classes = series(Bytes::NAMES.to_vec(), &details.bytes);
    all.push(Chart::new(
        "bytes",
        "Bytes by class",
        step,
        classes,
        Form::Stack,
        Scale::Linear(bytes),
    ));
    let waits = series(causes().map(evenkeel_base::Cause::name).collect(), &details.waits);
    let scale = Scale::Linear(micros);
    all.push(Chart::new("waits", "Waits by cause, all threads", step, waits, Form::Stack, scale));
    let flush = vec![
        Series::new("requested", 8, &details.flush_requested),
        Series::new("done", 0, &details.flush_done),
    ];
    let scale = Scale::Linear(count);
    all.push(Chart::new(
        "flush",
        "Pages to flush: requested, done",
        step,
        flush,
        Form::Pair,
        scale,
    ));
    let why =
        series(details.flush_reasons.keys().map(String::as_str).collect(), &details.flush_reasons);
    all.push(Chart::new("why", "Why: pages requested by term", step, why, Form::Stack, scale));
    laws::draw(step, &mut all);
    let steal: Vec<f64> = step.per_second.iter().map(|s| s.6 * 100.0).collect();
    if steal.iter().any(|v| *v > 0.0) {
        let title = "CPU time stolen by the host, percent";
        all.push(Chart::single("steal", title, step, steal, Scale::Linear(count)));
    }
    all
}
