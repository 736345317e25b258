//! `bench diff a.json b.json`: compares the figures of two runs, with their ratio.

use crate::error::BenchError;
use crate::result::{FORMAT, RunResult, StepResult};
use std::fmt::Write;
use std::path::Path;

/// Reads the JSON of a run.
///
/// # Errors
/// If the file is missing or does not hold the JSON of a run.
pub fn read(path: &Path) -> Result<RunResult, BenchError> {
    let text = std::fs::read_to_string(path).map_err(|e| BenchError::file(path, e))?;
    let result: RunResult = serde_json::from_str(&text).map_err(|e| BenchError::file(path, e))?;
    if result.format != FORMAT {
        return Err(BenchError::file(path, format!("format {}, not {FORMAT}", result.format)));
    }
    Ok(result)
}

type Figure = (&'static str, fn(&StepResult) -> Option<f64>);

const FIGURES: [Figure; 12] = [
    ("rows/s", |s| Some(s.rows_per_s)),
    ("deletes/s", |s| (s.deletes_per_s > 0.0).then_some(s.deletes_per_s)),
    ("queries/s", |s| s.queries().then_some(s.queries_per_s)),
    ("worst second / median", |s| s.worst_second_ratio),
    ("p5 second / median", |s| s.p5_second_ratio),
    ("longest gap, ms", |s| Some(s.longest_gap_ms)),
    ("longest operation, ms", |s| Some(s.max_op_ms)),
    ("p99 operation, ms", |s| Some(s.p99_op_ms)),
    ("bytes read per row", |s| Some(s.bytes_read_per_row)),
    ("bytes written per row", |s| Some(s.bytes_written_per_row)),
    ("CPU us per row", |s| Some(s.cpu_us_per_row)),
    ("space, MB", |s| Some(s.space_bytes as f64 / 1e6)),
];

/// The figures that both steps have: name, value in a, value in b.
pub fn figures(a: &StepResult, b: &StepResult) -> Vec<(&'static str, f64, f64)> {
    let both = FIGURES.iter().map(|(name, figure)| Some((*name, figure(a)?, figure(b)?)));
    both.flatten().collect()
}

/// The settings that differ: name, value in a, value in b. The directory of the files is not
/// compared.
pub fn settings(a: &RunResult, b: &RunResult) -> Vec<(String, String, String)> {
    let all = a.settings.as_object().into_iter().flatten();
    let different = all.filter(|(key, old)| b.settings[*key] != **old && *key != "dir");
    different
        .map(|(key, old)| (key.clone(), old.to_string(), b.settings[key].to_string()))
        .collect()
}

/// The comparison as text. Steps are matched by name; steps of only one run are listed.
pub fn table(a: &RunResult, b: &RunResult) -> String {
    let mut text = format!("a: {} {}\nb: {} {}\n", a.engine, a.version, b.engine, b.version);
    for (key, old, new) in settings(a, b) {
        let _ = writeln!(text, "setting {key}: a {old}, b {new}");
    }
    let _ = writeln!(text, "{:<34} {:>14} {:>14} {:>8}", "", "a", "b", "b/a");
    for step in &a.steps {
        let Some(other) = b.steps.iter().find(|s| s.name == step.name) else {
            let _ = writeln!(text, "{}: only in a", step.name);
            continue;
        };
        let _ = writeln!(text, "{}", step.name);
        for (name, x, y) in figures(step, other) {
            let ratio = if x == 0.0 { "-".into() } else { format!("{:.2}", y / x) };
            let _ = writeln!(text, "  {name:<32} {x:>14.2} {y:>14.2} {ratio:>8}");
        }
    }
    for step in b.steps.iter().filter(|s| a.steps.iter().all(|t| t.name != s.name)) {
        let _ = writeln!(text, "{}: only in b", step.name);
    }
    let peaks = [a, b].map(|r| r.peak_memory_bytes as f64 / 1e6);
    let ratio = if peaks[0] > 0.0 { peaks[1] / peaks[0] } else { 0.0 };
    let _ = writeln!(
        text,
        "{:<34} {:>14.2} {:>14.2} {ratio:>8.2}",
        "peak memory, MB", peaks[0], peaks[1]
    );
    text
}

#[cfg(test)]
mod tests {
    use crate::result::DeviceSlow;
    use crate::rows::Rng;

    /// Checks that the page which `bench report` draws from a JSON is the page of the run.
    #[test]
    fn figures_are_read_as_they_were_written() {
        let mut rng = Rng::new(1);
        for _ in 0..100_000 {
            let share = rng.unit();
            let written: DeviceSlow = (share, 1e3 * share, 1e9 / (1.0 + share));
            let json = serde_json::to_string(&written).expect("plain data");
            let read: DeviceSlow = serde_json::from_str(&json).expect("its own");
            assert_eq!(read, written, "{json}");
        }
    }
}
