//! Medians over rounds, ratios of the first engine to the others, and the rule for disturbed
//! rounds.

use evenkeel_bench::RunResult;
use evenkeel_bench::figures::median;
use evenkeel_bench::result::StepResult;
use serde_json::{Value, json};
use std::fmt::Write;

/// A round is disturbed if the 5th-percentile second of its control is below this.
const CONTROL_P5_MIN: f64 = 0.70;
/// A round is disturbed if its control had an operation longer than this.
const CONTROL_OP_MAX_MS: f64 = 50.0;

type Figure = (&'static str, fn(&StepResult) -> Option<f64>);

const FIGURES: [Figure; 14] = [
    ("rows_per_s", |s| Some(s.rows_per_s)),
    ("queries_per_s", |s| s.queries().then_some(s.queries_per_s)),
    ("worst_second_ratio", |s| s.worst_second_ratio),
    ("p5_second_ratio", |s| s.p5_second_ratio),
    ("longest_gap_ms", |s| Some(s.longest_gap_ms)),
    ("max_op_ms", |s| Some(s.max_op_ms)),
    ("max_op_own_ms", |s| Some(s.max_op_own_ms)),
    ("p99_op_ms", |s| Some(s.p99_op_ms)),
    ("bytes_read_per_row", |s| Some(s.bytes_read_per_row)),
    ("bytes_written_per_row", |s| Some(s.bytes_written_per_row)),
    ("cpu_us_per_row", |s| Some(s.cpu_us_per_row)),
    ("space_bytes", |s| Some(s.space_bytes as f64)),
    ("seconds_below_50", |s| Some(s.seconds_below_50 as f64)),
    ("own_wait_share_max", own_wait_share),
];

/// The highest share of one client's time that waits within the engine took in a counted second.
fn own_wait_share(step: &StepResult) -> Option<f64> {
    use evenkeel_bench::engine::OWN_CAUSES;
    step.worst_second_ratio?;
    let waits = &step.per_second_details.waits;
    let waits = |i: usize| -> u64 {
        let of = |cause: &str| waits.get(cause).and_then(|v| v.get(i)).copied().unwrap_or(0);
        OWN_CAUSES.iter().map(|cause| of(cause.name())).sum()
    };
    let counted = 5..step.per_second.len().saturating_sub(1);
    Some(counted.map(waits).max().unwrap_or(0) as f64 / 1e6)
}

/// True if the machine disturbed the control of a round.
pub fn disturbed(round: &[RunResult]) -> bool {
    let Some(control) = round.iter().find(|r| r.engine == "null") else { return false };
    control.steps.iter().filter(|s| !s.queries()).any(|step| {
        step.p5_second_ratio
            .is_some_and(|p5| p5 < CONTROL_P5_MIN || step.max_op_ms > CONTROL_OP_MAX_MS)
    })
}

/// Each engine's turn.
pub struct Round {
    /// The result of each engine, in their order.
    pub results: Vec<RunResult>,
    /// Whether the control was disturbed.
    pub disturbed: bool,
    /// Whether the round counts; if not, it was repeated.
    pub counts: bool,
}

/// All rounds of a comparison.
pub struct Comparison {
    engines: Vec<String>,
    rounds: Vec<Round>,
}

impl Comparison {
    /// A comparison without rounds.
    pub fn new(engines: &[String]) -> Comparison {
        Comparison { engines: engines.to_vec(), rounds: Vec::new() }
    }

    /// Adds a round: one result per engine.
    pub fn add(&mut self, round: Round) {
        self.rounds.push(round);
    }

    fn counted(&self) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(|round| round.counts)
    }

    /// The median of a figure over the rounds that count.
    fn median(&self, engine: usize, step: &str, figure: &Figure) -> Option<f64> {
        let runs = self.counted().map(|round| &round.results[engine]);
        let steps = runs.flat_map(|run| run.steps.iter().filter(|s| s.name == step));
        let values: Vec<f64> = steps.filter_map(figure.1).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    fn peak_memory(&self, engine: usize) -> f64 {
        let of = |round: &Round| round.results[engine].peak_memory_bytes as f64;
        median(&self.counted().map(of).collect::<Vec<f64>>())
    }

    fn steps(&self) -> Vec<String> {
        let first = self.rounds.first().and_then(|round| round.results.first());
        first.map_or(Vec::new(), |r| r.steps.iter().map(|s| s.name.clone()).collect())
    }

    /// Every round, the medians, and the ratios of the first engine to each other one.
    pub fn json(&self) -> Value {
        let mut medians = json!({});
        let mut ratios = json!({});
        for (i, engine) in self.engines.iter().enumerate() {
            medians[engine]["peak_memory_bytes"] = self.peak_memory(i).into();
            for step in self.steps() {
                for figure in &FIGURES {
                    let Some(value) = self.median(i, &step, figure) else { continue };
                    medians[engine]["steps"][&step][figure.0] = value.into();
                    if i > 0
                        && value != 0.0
                        && let Some(first) = self.median(0, &step, figure)
                    {
                        ratios[engine][&step][figure.0] = (first / value).into();
                    }
                }
            }
        }
        let rounds: Vec<Value> = self
            .rounds
            .iter()
            .map(|Round { results, disturbed, counts }| {
                json!({"disturbed": disturbed, "counts": counts, "results": results})
            })
            .collect();
        json!({
            "format": 1, "engines": self.engines, "medians": medians, "ratios": ratios,
            "rounds": rounds,
        })
    }

    /// The medians side by side, and the ratios of the first engine to the others.
    pub fn table(&self) -> String {
        let counted = self.counted().count();
        let disturbed = self.counted().filter(|round| round.disturbed).count();
        let again = self.rounds.len() - counted;
        let mut text = format!(
            "medians of {counted} rounds, {disturbed} of them disturbed; {again} more were \
             disturbed and run again\n"
        );
        let _ = write!(text, "{:<26}", "");
        for engine in &self.engines {
            let _ = write!(text, "{engine:>16}");
        }
        for engine in &self.engines[1..] {
            let _ = write!(text, "{:>16}", format!("/ {engine}"));
        }
        text.push('\n');
        for step in self.steps() {
            let _ = writeln!(text, "{step}");
            for figure in &FIGURES {
                self.row(&mut text, figure.0, |i| self.median(i, &step, figure));
            }
        }
        self.row(&mut text, "peak_memory_bytes", |i| Some(self.peak_memory(i)));
        text
    }

    fn row(&self, text: &mut String, name: &str, value: impl Fn(usize) -> Option<f64>) {
        let values: Vec<Option<f64>> = (0..self.engines.len()).map(value).collect();
        if values.iter().all(Option::is_none) {
            return;
        }
        let _ = write!(text, "  {name:<24}");
        for value in &values {
            let shown = value.map_or("-".into(), |v| format!("{v:.2}"));
            let _ = write!(text, "{shown:>16}");
        }
        for value in &values[1..] {
            let ratio = match (values[0], value) {
                (Some(first), Some(other)) if *other != 0.0 => format!("{:.2}", first / other),
                _ => "-".into(),
            };
            let _ = write!(text, "{ratio:>16}");
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(engine: &str, rates: &[f64], p5: Option<f64>) -> RunResult {
        let steps: Vec<Value> = rates
            .iter()
            .enumerate()
            .map(|(i, rate)| {
                let step = StepResult {
                    name: format!("l.i{i}"),
                    rows_per_s: *rate,
                    p5_second_ratio: p5,
                    ..StepResult::default()
                };
                serde_json::to_value(step).expect("plain data")
            })
            .collect();
        serde_json::from_value(json!({
            "format": 1, "engine": engine, "version": "", "interrupted": false,
            "machine": evenkeel_bench::result::Machine::default(), "settings": {}, "patterns": {},
            "steps": steps, "space_bytes": 0, "peak_memory_bytes": 7, "waits": {},
        }))
        .expect("the schema")
    }

    #[test]
    fn medians_leave_disturbed_rounds_out() {
        let engines = ["a".to_string(), "null".to_string()];
        let mut comparison = Comparison::new(&engines);
        // The last round is not repeated: it counts, and is reported as disturbed.
        for (rate, p5) in [(10.0, 0.9), (1000.0, 0.3), (30.0, 0.8), (20.0, 0.4)] {
            let results = vec![run("a", &[rate], None), run("null", &[5.0], Some(p5))];
            let disturbed = disturbed(&results);
            assert_eq!(disturbed, p5 < 0.5);
            comparison.add(Round { results, disturbed, counts: rate != 1000.0 });
        }
        let json = comparison.json();
        assert_eq!(json["medians"]["a"]["steps"]["l.i0"]["rows_per_s"], 20.0);
        assert_eq!(json["ratios"]["null"]["l.i0"]["rows_per_s"], 4.0);
        assert_eq!(json["rounds"].as_array().map(Vec::len), Some(4));
        let table = comparison.table();
        let said = "medians of 3 rounds, 1 of them disturbed; 1 more were disturbed and run again";
        assert!(table.starts_with(said), "{table}");
        let last = &json["rounds"][3];
        assert!(last["disturbed"] == true && last["counts"] == true, "{last}");
        assert!(table.contains("/ null") && table.contains("4.00"), "{table}");
    }

    #[test]
    fn short_steps_never_count_as_disturbed() {
        assert!(!disturbed(&[run("null", &[1.0], None)]));
        assert!(!disturbed(&[run("a", &[1.0], Some(0.1))]));
        assert!(disturbed(&[run("null", &[1.0], Some(0.69))]));
    }
}
