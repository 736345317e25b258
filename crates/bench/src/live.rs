//! The output of a run. A line per second, and figures at the end of each step, go to stdout;
//! progress and the remaining time go to stderr if that is a terminal. Lines that do not describe a
//! second begin with `#`.

use crate::figures::{reached, worst_and_middle};
use crate::response::CLASS_NAMES;
use crate::result::{OpFigures, StepResult};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

/// The names of the 17 fields.
pub const HEADER: &str = "i_sec\tt_sec\ti_ips\tt_ips\ti_dps\tt_dps\ti_qps\tt_qps\tmax_i\tmax_d\t\
                          max_q\tt_ins\tt_del\tt_query\tretry_i\tretry_d\tretry_q";

/// The values of a line. Counts are since the step began, unless stated otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// Seconds since the last line.
    pub seconds: f64,
    /// Seconds since the step began.
    pub total_seconds: f64,
    /// Rows inserted, rows deleted, queries since the last line.
    pub counts: [u64; 3],
    /// Rows inserted, rows deleted, queries since the step began.
    pub totals: [u64; 3],
    /// Longest insert, delete, query that ended since the last line, microseconds.
    pub max_us: [f64; 3],
    /// Transactions retried since the step began.
    pub retries: [u64; 3],
}

impl Interval {
    /// Rates since the last line.
    pub fn rates(&self) -> [f64; 3] {
        self.counts.map(|n| n as f64 / self.seconds.max(1e-9))
    }

    /// The 17 fields, separated by tabs.
    pub fn line(&self) -> String {
        let mut line = format!("{:.1}\t{:.1}", self.seconds, self.total_seconds);
        for (rate, total) in self.rates().iter().zip(self.totals) {
            let average = total as f64 / self.total_seconds.max(1e-9);
            let _ = write!(line, "\t{rate:.0}\t{average:.0}");
        }
        for max in self.max_us {
            let _ = write!(line, "\t{max:.0}");
        }
        for n in self.totals.iter().chain(&self.retries) {
            let _ = write!(line, "\t{n}");
        }
        line
    }
}

/// The output streams of a run.
pub struct Live {
    progress: bool,
    shown: bool,
}

impl Default for Live {
    fn default() -> Live {
        Live { progress: std::io::stderr().is_terminal(), shown: false }
    }
}

impl Live {
    /// Prints a line to stdout. A closed pipe is not an error of the run.
    pub fn line(&mut self, text: &str) {
        self.clear();
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }

    /// Shows progress: `share` of the step is done, `left` seconds of it remain.
    pub fn progress(&mut self, step: &str, share: f64, left: f64, steps_after: usize) {
        if !self.progress {
            return;
        }
        let mut err = std::io::stderr().lock();
        let _ = write!(err, "\r\x1b[K{}", progress_text(step, share, left, steps_after));
        let _ = err.flush();
        self.shown = true;
    }

    /// Removes the progress line.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// Prints the figures of a step.
    pub fn step(&mut self, step: &StepResult) {
        for line in summary(step) {
            self.line(&format!("# {line}"));
        }
    }
}

/// The share of a step that is done and its remaining seconds, computed from the elapsed time and
/// the work done of the work to do. A step may take longer than that.
pub(crate) fn share_and_left(elapsed: f64, done: f64, to_do: f64) -> (f64, f64) {
    let share = (done / to_do.max(1e-9)).clamp(0.001, 1.0);
    (share, elapsed * (1.0 - share) / share)
}

/// The text that [`Live::progress`] shows.
fn progress_text(step: &str, share: f64, left: f64, steps_after: usize) -> String {
    let percent = share * 100.0;
    let more = match steps_after {
        0 => String::new(),
        1 => ", then 1 more step".to_string(),
        n => format!(", then {n} more steps"),
    };
    format!("{step}: {percent:.0}%, {left:.0} s left{more}")
}

/// The figures of a step as lines.
pub fn summary(step: &StepResult) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: {} rows, {} deleted, {} queries in {:.1} s: \
         {:.0} rows/s, {:.0} deletes/s, {:.0} queries/s",
        step.name,
        step.rows,
        step.rows_deleted,
        step.op.query.n,
        step.seconds,
        step.rows_per_s,
        step.deletes_per_s,
        step.queries_per_s
    )];
    if let Some(rate) = step.rate_target {
        let met = if step.rate_met { "met" } else { "NOT met" };
        lines.push(format!("rate of {rate:.0} rows/s per client {met}"));
    }
    let kinds = [
        ("insert", Some(&step.op.insert)),
        ("insert from intended start", step.op.insert_intended.as_ref()),
        ("delete", Some(&step.op.delete)),
        ("query", Some(&step.op.query)),
    ];
    for (name, op) in kinds {
        lines.extend(op.filter(|op| op.n > 0).map(|op| response_line(name, op)));
    }
    let ratio = |r: Option<f64>| r.map_or("-".to_string(), |r| format!("{r:.2}"));
    lines.push(format!(
        "worst second {} of the median, p5 {}; below 50%: {} s, below 10%: {} s; \
         longest gap {:.1} ms",
        ratio(step.worst_second_ratio),
        ratio(step.p5_second_ratio),
        step.seconds_below_50,
        step.seconds_below_10,
        step.longest_gap_ms
    ));
    lines.extend(worst_second_line(step));
    let unit = unit(step);
    lines.push(format!(
        "per {unit}: {:.0} bytes read, {:.0} written, {:.2} us CPU; space {:.1} MB",
        step.bytes_read_per_row,
        step.bytes_written_per_row,
        step.cpu_us_per_row,
        step.space_bytes as f64 / 1e6
    ));
    let waits: Vec<String> = step
        .waits
        .iter()
        .filter(|(_, us)| **us > 0)
        .map(|(cause, us)| format!("{cause} {:.3} s", *us as f64 / 1e6))
        .collect();
    if let Some(share) = step.unexplained_share() {
        lines.push(format!("waits: {}; {:.1}% unexplained", waits.join(", "), share * 100.0));
    }
    lines.push(format!("rates that a share of the seconds reached:\t{}", reached_line(step)));
    lines
}

fn unit(step: &StepResult) -> &'static str {
    if step.queries() { "query" } else { "row" }
}

/// The bytes and waits of the worst second per row, next to those of the middle second. If the
/// bytes are equal and the waits are longer, the device was slow and not the engine.
fn worst_second_line(step: &StepResult) -> Option<String> {
    let rates = step.rates();
    let (worst, middle) = worst_and_middle(&rates)?;
    let details = &step.per_second_details;
    let per_row = |all: &[u64], second: usize| {
        all.get(second).copied().unwrap_or(0) as f64 / rates[second].max(1.0)
    };
    let beside = |all: &BTreeMap<String, Vec<u64>>, unit: &str| {
        let of = |(name, all): (&String, &Vec<u64>)| {
            let (worst, middle) = (per_row(all, worst), per_row(all, middle));
            let counts = worst.max(middle) >= 1.0;
            counts.then(|| format!("{name} {worst:.0} ({middle:.0}) {unit}"))
        };
        all.iter().filter_map(of).collect::<Vec<String>>()
    };
    let parts = [beside(&details.waits, "us"), beside(&details.bytes, "bytes")].concat();
    (!parts.is_empty()).then(|| {
        let (second, unit) = (worst + 1, unit(step));
        let rates = format!("{:.0} ({:.0})/s", rates[worst], rates[middle]);
        format!(
            "second {second}, the worst (a middle one): {rates}; per {unit} {}",
            parts.join(", ")
        )
    })
}

fn response_line(name: &str, op: &OpFigures) -> String {
    let classes: Vec<String> =
        CLASS_NAMES.iter().zip(op.histogram).map(|(name, n)| format!("{name}={n}")).collect();
    format!(
        "{name}: {} max={:.0}us p50={:.0}us p99={:.0}us p99.9={:.0}us",
        classes.join(" "),
        op.max_us,
        op.p50_us,
        op.p99_us,
        op.p999_us
    )
}

fn reached_line(step: &StepResult) -> String {
    let column = |pick: fn(&crate::result::Second) -> f64| {
        reached(&step.per_second.iter().map(pick).collect::<Vec<f64>>())
    };
    let kinds = [("ips", column(|s| s.0)), ("dps", column(|s| s.1)), ("qps", column(|s| s.2))];
    let parts: Vec<String> = kinds
        .iter()
        .filter(|(_, rates)| rates[0] > 0.0)
        .map(|(name, rates)| {
            let all = ["50%", "75%", "90%", "95%", "99%"].iter().zip(rates);
            let all: Vec<String> = all.map(|(share, rate)| format!("{share}={rate:.0}")).collect();
            format!("{name} {}", all.join(" "))
        })
        .collect();
    parts.join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_fields_of_the_header() {
        let interval = Interval {
            seconds: 1.004,
            total_seconds: 2.01,
            counts: [502, 0, 7],
            totals: [900, 0, 14],
            max_us: [1234.4, 0.0, 99.6],
            retries: [1, 2, 3],
        };
        let line = interval.line();
        assert_eq!(line, "1.0\t2.0\t500\t448\t0\t0\t7\t7\t1234\t0\t100\t900\t0\t14\t1\t2\t3");
        assert_eq!((HEADER.split('\t').count(), line.split('\t').count()), (17, 17));
        assert!(!HEADER.contains(' '));
    }

    #[test]
    fn a_summary_names_what_happened() {
        let mut step =
            StepResult { name: "q100.1".into(), rate_target: Some(100.0), ..<_>::default() };
        step.op.query.n = 5;
        step.waits.insert("log_sync".into(), 2_000_000);
        step.waits.insert("unexplained".into(), 40_000);
        step.per_second = vec![(100.0, 0.0, 9.0, 1.0, 0.0, 1.0, 0.0, 0)];
        let text = summary(&step).join("\n");
        let waits = "waits: log_sync 2.000 s, unexplained 0.040 s; 2.0% unexplained";
        for part in ["NOT met", "query: 256us=0", waits, "ips 50%=100", "per query"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(!text.contains("delete:"));
        step.waits.values_mut().for_each(|us| *us = 0);
        assert!(!summary(&step).join("\n").contains("waits:"), "nobody has waited");
    }

    #[test]
    fn progress_tells_share_and_time_left() {
        // Elapsed seconds, rows done, rows to do, steps that follow.
        let shown = [
            ((30.0, 250.0, 1000.0, 4), "u: 25%, 90 s left, then 4 more steps"),
            ((2.0, 1000.0, 1000.0, 1), "u: 100%, 0 s left, then 1 more step"),
            ((75.0, 75.0, 60.0, 0), "u: 100%, 0 s left"),
            ((1.0, 0.0, 1000.0, 0), "u: 0%, 999 s left"),
            ((1.0, 5.0, 0.0, 0), "u: 100%, 0 s left"),
        ];
        for ((elapsed, done, to_do, after), wanted) in shown {
            let (share, left) = share_and_left(elapsed, done, to_do);
            assert_eq!(progress_text("u", share, left, after), wanted);
        }
    }

    /// A second in which the device took ten times as long, with the same bytes for each row.
    #[test]
    fn the_worst_second_is_shown_beside_a_middle_one() {
        let mut step = StepResult { name: "u".into(), ..<_>::default() };
        step.per_second = vec![(5_000.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0); 30];
        let mut waits = vec![600_000; 30];
        let mut bytes = vec![5_000 * 4096; 30];
        (step.per_second[17].0, waits[17], bytes[17]) = (500.0, 620_000, 500 * 4096);
        let details = &mut step.per_second_details;
        details.waits.insert("page_read".into(), waits);
        details.waits.insert("free_frame".into(), vec![0; 30]);
        details.bytes.insert("foreground_read".into(), bytes);
        let text = summary(&step).join("\n");
        let line = "second 18, the worst (a middle one): 500 (5000)/s; per row \
                    page_read 1240 (120) us, foreground_read 4096 (4096) bytes";
        assert!(text.contains(line), "{line} in\n{text}");
        step.per_second.truncate(19);
        assert!(!summary(&step).join("\n").contains("a middle one"));
    }
}
