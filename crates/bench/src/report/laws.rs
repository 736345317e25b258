//! Charts of the inputs and outputs of the laws of background work, second by second.

use super::chart::{Chart, Form, Scale, Series};
use super::text::{bytes, count, micros};
use crate::result::StepResult;

/// One number of the decisions of a law: an input or output by name. `add` combines the values of
/// each second.
fn number(step: &StepResult, law: &str, name: &str, add: fn(u64, u64) -> u64) -> Vec<u64> {
    let mut seconds = vec![0; step.per_second.len()];
    let Some(decisions) = step.decisions.get(law) else { return seconds };
    let at = |names: &[String]| names.iter().position(|n| n == name);
    let (input, output) = (at(&decisions.inputs), at(&decisions.outputs));
    for (second, inputs, outputs) in &decisions.made {
        let value = match (input, output) {
            (Some(at), _) => inputs.get(at),
            (None, Some(at)) => outputs.get(at),
            (None, None) => None,
        };
        if let (Some(value), Some(all)) = (value, seconds.get_mut(*second)) {
            *all = add(*all, *value);
        }
    }
    seconds
}

/// The sum of a number over each second. If decisions were thinned out, those that were kept stand
/// for the others.
fn summed(step: &StepResult, law: &str, name: &str) -> Vec<u64> {
    let one_in = step.decisions.get(law).map_or(1, |decisions| decisions.one_in.max(1));
    number(step, law, name, u64::saturating_add).iter().map(|n| n * one_in).collect()
}

/// Bytes of the input runs of compactions that began in each second: required ones, or others.
fn merged(step: &StepResult, required: u64) -> Vec<u64> {
    let mut seconds = vec![0; step.per_second.len()];
    let Some(decisions) = step.decisions.get("compaction") else { return seconds };
    // The last input occurs once per run.
    let before = decisions.inputs.len().saturating_sub(1);
    for (second, inputs, outputs) in &decisions.made {
        if let ([first, end, why], Some(all)) = (&outputs[..], seconds.get_mut(*second))
            && *why == required
        {
            let runs = inputs.iter().skip(before + *first as usize).take((*end - *first) as usize);
            *all += runs.map(|run| run / 8).sum::<u64>() * decisions.one_in.max(1);
        }
    }
    seconds
}

/// The greatest number of compactions that waited for a beat at the same time: required ones, or
/// others.
fn waiting_merges(step: &StepResult, required: u64) -> Vec<u64> {
    let mut seconds = vec![0; step.per_second.len()];
    for (second, inputs, _) in step.decisions.get("compaction_turn").iter().flat_map(|d| &d.made) {
        let Some(most) = seconds.get_mut(*second) else { continue };
        let kinds = inputs.iter().skip(1).step_by(3);
        *most = kinds.filter(|kind| *kind % 2 == required).count().max(*most as usize) as u64;
    }
    seconds
}

/// Number of hand-overs of a kind (`what` of the law `handover`).
fn handed_over(step: &StepResult, kind: u64) -> Vec<u64> {
    let mut seconds = vec![0; step.per_second.len()];
    for (second, _, outputs) in step.decisions.get("handover").iter().flat_map(|d| &d.made) {
        if let (Some(all), true) = (seconds.get_mut(*second), outputs.first() == Some(&kind)) {
            *all += 1;
        }
    }
    seconds
}

/// The longest delay that a law gave one operation, microseconds.
fn longest_us(step: &StepResult, law: &str) -> Vec<u64> {
    number(step, law, "delay_ns", u64::max).iter().map(|ns| ns.div_ceil(1000)).collect()
}

/// How fast ingest was admitted, and the pace of flushes: id, title and line of each chart.
fn paces(step: &StepResult) -> [(&'static str, &'static str, Series); 3] {
    let slowest = |name, law| Series::new(name, 0, &slowest_us(step, law));
    let rest = Series::new("longest rest", 0, &longest_rest_us(step));
    let title = "Why ingest was slow: its pace while compactions were behind";
    [
        ("ingest-pace", title, slowest("a KiB takes", "pace")),
        ("flush-pace", "Pace of memtable flushes", slowest("a KiB took", "flush_pace")),
        ("flush-rest", "Rests of memtable flushes in no haste", rest),
    ]
}

/// The longest sleep of a flush.
fn longest_rest_us(step: &StepResult) -> Vec<u64> {
    number(step, "flush_rest", "rest_ns", u64::max).iter().map(|ns| ns.div_ceil(1000)).collect()
}

/// Operations of ingest in debt that had credit for their bytes, or had to wait for credit.
fn in_debt(step: &StepResult, granted: u64) -> Vec<u64> {
    let mut seconds = vec![0; step.per_second.len()];
    for (second, _, outputs) in step.decisions.get("debt").iter().flat_map(|d| &d.made) {
        if let (Some(all), true) = (seconds.get_mut(*second), outputs.first() == Some(&granted)) {
            *all += 1;
        }
    }
    seconds
}

/// The slowest pace of a second: microseconds per KiB of ingest.
fn slowest_us(step: &StepResult, law: &str) -> Vec<u64> {
    number(step, law, "ns_per_kib", u64::max).iter().map(|ns| ns.div_ceil(1000)).collect()
}

/// Classes of background I/O, with the names of the governor's fields.
const CLASSES: [&str; 6] =
    ["free_frames", "checkpoint", "flush", "compaction", "ddl", "maintenance"];

/// Bytes per second that each class requested from the governor, required and surplus.
fn asked(step: &StepResult) -> Vec<Series> {
    let of_class = |(i, class): (usize, &&str)| {
        let part = |kind: &str| number(step, "governor", &format!("{kind}_{class}"), u64::max);
        let both = part("required").into_iter().zip(part("surplus"));
        Series::new(class, i, &both.map(|(a, b)| a.saturating_add(b)).collect::<Vec<u64>>())
    };
    let all = CLASSES.iter().enumerate().map(of_class);
    all.filter(|s| s.values.iter().any(|v| *v > 0.0)).collect()
}

/// The lowest limit of each second that had a limit.
fn lowest(step: &StepResult, name: &str) -> Vec<u64> {
    let lowest = |a: u64, b: u64| match (a, b) {
        (a, u64::MAX) => a,
        (0, b) => b,
        (a, b) => a.min(b),
    };
    number(step, "governor", name, lowest)
}

/// What foreground I/O left to index builds, and what builds requested, in the seconds with a
/// build.
fn left_to_builds(step: &StepResult) -> [Vec<u64>; 2] {
    let (left, asked) =
        (lowest(step, "ddl_left"), number(step, "governor", "surplus_ddl", u64::max));
    let left = left.iter().zip(&asked).map(|(left, asked)| if *asked > 0 { *left } else { 0 });
    [left.collect(), asked]
}

/// Greatest sum of the waits of all sessions for the device in a second, in thousandths of a
/// second, for seconds with an index build.
fn waited_beside_builds(step: &StepResult) -> Vec<u64> {
    let [_, asked] = left_to_builds(step);
    let waited = number(step, "governor", "users_waited_permille", u64::max);
    waited.iter().zip(asked).map(|(ms, asked)| if asked > 0 { ms * 1000 } else { 0 }).collect()
}

/// Draws the decisions of a step; a law without decisions has no chart.
pub fn draw(step: &StepResult, all: &mut Vec<Chart>) {
    let (pages, size, time) = (Scale::Linear(count), Scale::Linear(bytes), Scale::Linear(micros));
    let mut chart = |id, title: &str, series: Vec<Series>, form, scale| {
        if series.iter().any(|s| s.values.iter().any(|v| *v > 0.0)) {
            all.push(Chart::new(id, title, step, series, form, scale));
        }
    };
    let flush = |name| number(step, "flush", name, u64::max);
    let series = vec![
        Series::new("trigger", 8, &flush("age_trigger_bytes")),
        Series::new("age", 0, &flush("age_bytes")),
    ];
    chart("age", "Why it flushed: age of the oldest change in the log", series, Form::Pair, size);
    let series = vec![
        Series::new("older than the target", 8, &flush("over_pages")),
        Series::new("decided per second", 0, &flush("pages_per_sec")),
    ];
    let title = "Why it flushed: pages older than the target age, and the rate decided";
    chart("pace", title, series, Form::Pair, pages);
    let series = vec![
        Series::new("full", 0, &handed_over(step, 1)),
        Series::new("holds the log", 1, &handed_over(step, 4)),
    ];
    let title = "Why a memtable was flushed: generations handed over";
    chart("handovers", title, series, Form::Stack, pages);
    let of_merges = |of: fn(&StepResult, u64) -> Vec<u64>| {
        let kinds = [("needed by ingest", 0, 1), ("to rest", 1, 0)];
        Vec::from(kinds.map(|(name, at, kind)| Series::new(name, at, &of(step, kind))))
    };
    chart("merges", "Compactions begun: bytes of runs", of_merges(merged), Form::Stack, size);
    let title = "Most compactions that waited for a turn at once";
    chart("merge-turns", title, of_merges(waiting_merges), Form::Stack, pages);
    let paid = summed(step, "credit", "credit_bytes");
    let series = vec![Series::new("credit", 0, &paid)];
    chart("credit", "Bytes of ingest that compactions paid for", series, Form::Stack, size);
    let series = vec![
        Series::new("granted", 0, &in_debt(step, 1)),
        Series::new("waits", 1, &in_debt(step, 0)),
    ];
    let title = "Why ingest waited for compactions: operations in debt, and their credit";
    chart("debt", title, series, Form::Stack, pages);
    let space = |name| number(step, "log_space", name, u64::max);
    let series = vec![
        Series::new("limit", 8, &space("limit_bytes")),
        Series::new("age", 0, &space("age_bytes")),
    ];
    let title = "Why ingest was delayed: age of the log, where it was";
    chart("log-space", title, series, Form::Pair, size);
    let series = vec![
        Series::new("memtable", 0, &longest_us(step, "handover")),
        Series::new("log space", 1, &longest_us(step, "log_space")),
    ];
    let title = "Longest delay that one operation was given";
    chart("delays", title, series, Form::Stack, time);
    for (id, title, series) in paces(step) {
        chart(id, title, vec![series], Form::Stack, time);
    }
    let title = "Background I/O asked of the governor, bytes per second";
    chart("governor", title, asked(step), Form::Stack, size);
    let series = vec![Series::new("budget", 0, &lowest(step, "bytes_per_sec"))];
    let title = "Budget of background I/O where the governor held it back, bytes per second";
    chart("budget", title, series, Form::Stack, size);
    let [left, asked] = left_to_builds(step);
    let series = vec![Series::new("asked", 8, &asked), Series::new("left by users", 0, &left)];
    let title = "Why an index build was slow: bytes per second it asked for and users left it";
    chart("build", title, series, Form::Pair, size);
    let title = "Waits of users for the device beside an index build, per second";
    let series = vec![Series::new("all users", 0, &waited_beside_builds(step))];
    chart("build-waits", title, series, Form::Stack, time);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Decisions;

    #[test]
    fn waiting_compactions_are_counted() {
        let mut step = StepResult { per_second: vec![Default::default(); 3], ..Default::default() };
        let made =
            |second, jobs: &[[u64; 3]]| (second, [&[0], jobs.as_flattened()].concat(), vec![0]);
        let needed = made(1, &[[1, 5, 0], [0, 9, 0], [23, 7, 1]]);
        let decisions =
            Decisions { made: vec![needed, made(1, &[[1, 5, 0]])], ..Decisions::default() };
        step.decisions.insert("compaction_turn".to_string(), decisions);
        assert_eq!([0, 1].map(|needed| waiting_merges(&step, needed)), [[0, 1, 0], [0, 2, 0]]);
        let mut all = Vec::new();
        draw(&step, &mut all);
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn seconds_of_a_law_are_those_in_which_it_decided() {
        let per_second = vec![Default::default(); 4];
        let mut step = StepResult { per_second, ..StepResult::default() };
        let mut add = |law: evenkeel::Law, made: Vec<(usize, Vec<u64>, Vec<u64>)>| {
            let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
            let (inputs, outputs) = law.fields();
            for (_, given, said) in &made {
                assert_eq!((given.len(), said.len()), (inputs.len(), outputs.len()), "{law:?}");
            }
            let (inputs, outputs) = (names(inputs), names(outputs));
            let decisions = Decisions { inputs, outputs, made, one_in: 1 };
            step.decisions.insert(law.name().to_string(), decisions);
        };
        // As many inputs as the law has.
        let inputs_of = |law: evenkeel::Law| vec![0; law.fields().0.len()];
        let asks = |surplus: u64| {
            let mut inputs = inputs_of(evenkeel::Law::Governor);
            (inputs[6], inputs[12]) = (5, surplus);
            inputs
        };
        let says = |budget: u64| [&[budget][..], &[1; 6], &[9, u64::MAX]].concat();
        // Sessions wait before the build begins, and leave it less and less.
        let build = |surplus: u64, waited: u64, left: u64| {
            let (mut inputs, mut outputs) = (inputs_of(evenkeel::Law::Governor), says(u64::MAX));
            (inputs[13], inputs[16], outputs[8]) = (surplus, waited, left);
            (inputs, outputs)
        };
        let mut made =
            vec![(0, asks(7), says(u64::MAX)), (1, asks(1), says(30)), (1, asks(2), says(20))];
        for (second, (inputs, outputs)) in [
            (1, build(0, 90, 70)),
            (2, build(8, 40, 60)),
            (2, build(6, 50, 50)),
            (3, build(9, 0, 99)),
        ] {
            made.push((second, inputs, outputs));
        }
        add(evenkeel::Law::Governor, made);
        add(
            evenkeel::Law::Handover,
            [(1, [1, 0]), (1, [4, 0]), (2, [3, 1500])]
                .map(|(second, said)| (second, inputs_of(evenkeel::Law::Handover), said.to_vec()))
                .to_vec(),
        );
        add(evenkeel::Law::Credit, vec![(3, vec![0; 6], vec![40, 0]), (3, vec![0; 6], vec![2, 0])]);
        add(evenkeel::Law::Debt, vec![(0, vec![9, 4], vec![1, 5]), (2, vec![3, 4], vec![0, 3])]);
        let pace = |ns: u64| (2, vec![8, 1_000, 1, 0, 0, 0], vec![ns, 70]);
        add(evenkeel::Law::Pace, vec![pace(1_538), pace(900)]);
        add(evenkeel::Law::FlushPace, vec![(1, vec![0; 4], vec![2_500])]);
        assert_eq!((in_debt(&step, 1), in_debt(&step, 0)), (vec![1, 0, 0, 0], vec![0, 0, 1, 0]));
        assert_eq!(slowest_us(&step, "pace"), [0, 0, 2, 0]);
        assert_eq!(lowest(&step, "bytes_per_sec"), [0, 20, 0, 0]);
        assert_eq!(left_to_builds(&step), [vec![0, 0, 50, 99], vec![0, 0, 8, 9]]);
        assert_eq!(waited_beside_builds(&step), [0, 0, 50_000, 0]);
        let asked = asked(&step);
        assert_eq!(asked.len(), 2, "only merges and builds asked");
        assert_eq!(asked[0].values, [12.0, 7.0, 0.0, 0.0]);
        assert_eq!(
            (handed_over(&step, 1), handed_over(&step, 4)),
            (vec![0, 1, 0, 0], vec![0, 1, 0, 0])
        );
        assert_eq!(longest_us(&step, "handover"), [0, 0, 2, 0]);
        let mut all = Vec::new();
        draw(&step, &mut all);
        let drawn =
            "hand-overs, credit, debt, delays, both paces, asked, budget, build, its users' waits";
        assert_eq!(slowest_us(&step, "flush_pace"), [0, 3, 0, 0]);
        assert_eq!(all.len(), 10, "{drawn}");
    }
}
