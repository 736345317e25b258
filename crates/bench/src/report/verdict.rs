//! The result of a step in one line: its rate, its worst second and what bounded it.

use super::overview::unit;
use super::text::{count, escape, micros, ratio};
use crate::bound::{Bound, Part, Side, Why, bound, words, worst};
use crate::result::{RunResult, StepResult};
use evenkeel_base::Cause;
use std::fmt::Write;

/// The operations of a step, in a few words.
pub fn about(name: &str) -> String {
    let (plain, open_loop) = match name.split_once('@') {
        Some((plain, percent)) => (plain, format!(" at {percent} % of that rate")),
        None => (name, String::new()),
    };
    let text = match plain {
        "l.i0" => "load, primary key only".to_string(),
        "l.x" => "create three indexes".to_string(),
        "l.i1" => "insert with the indexes".to_string(),
        "l.i2" => "the same in small transactions".to_string(),
        "u" => "update random rows".to_string(),
        "p" => "read random rows".to_string(),
        _ => match plain.strip_prefix('q').and_then(|rest| rest.split('.').next()) {
            Some(rate) => format!("query while {rate} rows/s are inserted"),
            None => String::new(),
        },
    };
    text + &open_loop
}

/// The rate in the verdict of a step: that of queries if it has any, else that of rows.
pub fn rate(step: &StepResult) -> f64 {
    if step.queries() { step.queries_per_s } else { step.rows_per_s }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// True if other processes used the processors that the clients needed.
fn waits_for_cpu(parts: &[(Part, f64)]) -> bool {
    parts.iter().any(|(part, _)| *part == Part::Waiting(Cause::Processor))
}

/// What bounded the step, and the figures that show it.
fn bound_text(run: &RunResult, step: &StepResult) -> (&'static str, String) {
    let cores = run.machine.cores;
    let busy = |busy: f64| format!("{busy:.1} of {cores} processors were busy");
    match bound(run, step) {
        Bound::Rate => ("the rate asked for", "it was met".to_string()),
        Bound::Processors(n) => (Side::Cpu.name(), busy(n)),
        Bound::Host(share) => ("the host", format!("it took {} of the processors", percent(share))),
        Bound::Unknown(None) => (Side::Unknown.name(), "the engine reports no waits".to_string()),
        Bound::Unknown(Some(n)) => {
            (Side::Unknown.name(), format!("the engine reports no waits; {}", busy(n)))
        }
        Bound::Time(parts) => {
            let who = match parts.first() {
                Some((Part::Running, _)) if waits_for_cpu(&parts) => Side::Cpu.name(),
                Some((Part::Running, _)) => "its clients' own CPU time",
                Some((Part::Waiting(cause), _)) => Side::of(*cause).name(),
                None => Side::Unknown.name(),
            };
            let all: Vec<String> = parts
                .iter()
                .map(|(part, share)| match part {
                    Part::Running => format!("computing {}", percent(*share)),
                    Part::Waiting(cause) => format!("{} {}", words(*cause), percent(*share)),
                })
                .collect();
            (who, format!("{} of the clients' time", all.join(", ")))
        }
    }
}

/// The worst second, and its reason if a wait explains it.
fn worst_text(run: &RunResult, step: &StepResult) -> String {
    let Some(worst) = worst(run, step) else {
        return "too short for a worst second".to_string();
    };
    let why = match worst.why {
        Why::Unknown => String::new(),
        Why::Stolen(share) => format!("; the host took {} more of the processors", percent(share)),
        Why::Waited(cause, in_worst, in_middle) => format!(
            "; {} {} a {}, {} in a middle second",
            words(cause),
            micros(in_worst),
            if step.queries() { "query" } else { "row" },
            micros(in_middle)
        ),
    };
    format!(
        "worst second {} ({} of the median, second {}){why}",
        count(worst.rate),
        ratio(Some(worst.ratio)),
        worst.second
    )
}

/// The longest operation, if the step has operations.
fn longest_text(step: &StepResult) -> String {
    if step.max_op_ms > 0.0 {
        format!("; longest operation {}", micros(step.max_op_ms * 1e3))
    } else {
        String::new()
    }
}

/// The line of a step of one run; `letter` identifies the run if there are two.
pub fn line(page: &mut String, letter: &str, run: &RunResult, step: &StepResult) {
    let (who, how) = bound_text(run, step);
    let key = bound(run, step).key();
    let missed = if step.rate_met { "" } else { " <span class=\"warn\">rate missed</span>" };
    let letter = if letter.is_empty() {
        String::new()
    } else {
        format!("<span class=\"run-{letter} letter\">{letter}</span> ")
    };
    let _ = writeln!(
        page,
        "<div class=\"verdict\" data-step-name=\"{name}\" data-rate=\"{rate}\" \
         data-worst=\"{worst}\" data-bound=\"{key}\"><span>{letter}<b>{shown}</b> {unit}{missed}\
         </span><span>{slow}{longest}</span><span>{by} <b>{who}</b>: {how}</span></div>",
        name = escape(&step.name),
        rate = rate(step),
        worst = step.worst_second_ratio.map_or(String::new(), |ratio| ratio.to_string()),
        shown = count(rate(step)),
        unit = unit(step),
        slow = worst_text(run, step),
        longest = longest_text(step),
        by = if key == "unknown" { "what bounded it is" } else { "bounded by" },
    );
}

/// The name of a step, linked to its charts.
pub fn title(page: &mut String, number: usize, name: &str, seconds: f64) {
    let _ = writeln!(
        page,
        "<div class=\"step-name\"><a href=\"#step-{number}\">{}</a> {}, {seconds:.0} s</div>",
        escape(name),
        escape(&about(name))
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_step_says_what_it_does() {
        for (name, text) in [
            ("l.i0", "load, primary key only"),
            ("q100.2", "query while 100 rows/s are inserted"),
            ("l.i1@60", "insert with the indexes at 60 % of that rate"),
            ("u", "update random rows"),
        ] {
            assert_eq!(about(name), text);
        }
    }
}
