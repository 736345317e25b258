//! The chart of a whole run, or of two: rate, worst response and waits by cause, a point per
//! second, each step in a band of its own. The width of a band is proportional to the length of its
//! step, but large enough for its name. Steps of the same name of two runs share a band.

use super::chart::{Axis, BETWEEN_TEXTS, HEIGHT, Scale, path};
use super::text::{count, escape, micros};
use crate::bound::words;
use crate::engine::causes;
use crate::figures::{counted, median};
use crate::result::{RunResult, StepResult};
use evenkeel_base::Cause;
use std::fmt::Write;

/// Width of the drawings in their own units.
const WIDTH: f64 = 1000.0;
/// The narrowest band, as a share of the width, and the share that all bands of this width may take
/// together.
const BAND_MIN: f64 = 0.08;
const BANDS_MIN: f64 = 0.6;
/// Rates above this multiple of the median are drawn at it.
const RATE_TOP: f64 = 2.0;
/// Number of causes with a colour of their own; the others are drawn as one.
const CAUSES_SHOWN: usize = 5;
/// Shown until the pointer is over the chart.
const HINT: &str = "Point at a chart to read a second.";
/// The colour of the other causes; no cause has it.
const OTHERS: usize = Cause::ALL.len() - 1;

/// A run, with its letter if there are two.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    /// `a` or `b`; empty for a single run.
    pub letter: &'a str,
    /// The run.
    pub run: &'a RunResult,
}

/// A step in the overview.
struct Band<'a> {
    name: &'a str,
    /// The step of each run; a run may lack it.
    steps: Vec<Option<&'a StepResult>>,
    /// Whole seconds of the longest of these steps.
    seconds: usize,
    /// The length of that step in seconds.
    length: f64,
    /// The median rate of the step, of two runs that of the faster: 100 % of the band.
    median: f64,
    left: f64,
    width: f64,
}

impl Band<'_> {
    /// The horizontal position of the middle of a second.
    fn x(&self, second: usize) -> f64 {
        WIDTH * (self.left + self.width * (second as f64 + 0.5) / self.seconds as f64)
    }

    /// The points of one value per second, extended to the edges of the band.
    fn points(&self, values: &[f64], height: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let (Some(first), Some(last)) = (values.first(), values.last()) else { return Vec::new() };
        let end = WIDTH * (self.left + self.width * values.len() as f64 / self.seconds as f64);
        let mut points = vec![(WIDTH * self.left, height(*first))];
        points.extend(values.iter().enumerate().map(|(i, value)| (self.x(i), height(*value))));
        points.push((end, height(*last)));
        points
    }
}

/// The rate of the middle second, which the worst second is compared with.
pub fn middle_rate(step: &StepResult) -> f64 {
    let rates = step.rates();
    let counting = counted(&rates);
    median(if counting.is_empty() { &rates } else { counting })
}

/// The name of a step, and its number among the run's steps of that name.
pub type Key<'a> = (&'a str, usize);

/// The steps of all runs in order, each once.
pub fn keys<'a>(runs: &[Named<'a>]) -> Vec<Key<'a>> {
    let mut keys: Vec<Key<'_>> = Vec::new();
    for of in runs {
        for (i, step) in of.run.steps.iter().enumerate() {
            let before = of.run.steps[..i].iter().filter(|other| other.name == step.name).count();
            let key = (step.name.as_str(), before);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    keys
}

/// The step of a run.
pub fn step_of<'a>(run: &'a RunResult, (name, which): Key<'_>) -> Option<&'a StepResult> {
    run.steps.iter().filter(|step| step.name == name).nth(which)
}

/// Shares of the width: proportional to the lengths, but not below the minimum.
fn widths(seconds: &[usize]) -> Vec<f64> {
    let least = BAND_MIN.min(BANDS_MIN / seconds.len().max(1) as f64);
    let all = seconds.iter().sum::<usize>().max(1) as f64;
    let rest = 1.0 - least * seconds.len() as f64;
    seconds.iter().map(|n| least + rest * *n as f64 / all).collect()
}

fn bands<'a>(runs: &[Named<'a>]) -> Vec<Band<'a>> {
    let mut bands: Vec<Band<'_>> = Vec::new();
    for key in keys(runs) {
        let (name, _) = key;
        let steps: Vec<_> = runs.iter().map(|of| step_of(of.run, key)).collect();
        let there = || steps.iter().flatten();
        let seconds = there().map(|step| step.per_second.len()).max().unwrap_or(0).max(1);
        let median = there().map(|step| middle_rate(step)).fold(0.0, f64::max);
        let median = if median > 0.0 { median } else { 1.0 };
        let length = there().map(|step| step.seconds).fold(0.0, f64::max);
        bands.push(Band { name, steps, seconds, length, median, left: 0.0, width: 0.0 });
    }
    let mut left = 0.0;
    for (i, width) in
        widths(&bands.iter().map(|band| band.seconds).collect::<Vec<usize>>()).iter().enumerate()
    {
        (bands[i].left, bands[i].width) = (left, *width);
        left += width;
    }
    bands
}

/// The longest response of each second, of all kinds; empty for a step without operations.
fn worst_us(step: &StepResult) -> Vec<f64> {
    let all: Vec<f64> = step.per_second.iter().map(|s| s.3.max(s.4).max(s.5)).collect();
    if all.iter().all(|us| *us == 0.0) { Vec::new() } else { all }
}

/// Draws the chart of the runs.
pub fn draw(page: &mut String, runs: &[Named<'_>]) {
    let bands = bands(runs);
    page.push_str("<figure class=\"overview\" data-chart=\"overview\">\n");
    if runs.len() > 1 {
        page.push_str("<p class=\"legend\">");
        for (i, of) in runs.iter().enumerate() {
            let _ = write!(page, "<span><i class=\"c{i}\"></i>{}</span> ", escape(of.letter));
        }
        page.push_str("</p>\n");
    }
    page.push_str("<nav class=\"bands\" aria-label=\"Steps\">\n");
    for (i, band) in bands.iter().enumerate() {
        let (left, width) = (band.left * 100.0, band.width * 100.0);
        let _ = writeln!(
            page,
            "<a href=\"#step-{i}\" data-band=\"{name}\" data-length=\"{seconds}\" title=\"{name}: \
             {length:.0} s\" style=\"left:{left:.3}%;width:{width:.3}%\">{name}<br>\
             <small>{length:.0} s</small></a>",
            name = escape(band.name),
            seconds = band.seconds,
            length = band.length
        );
    }
    page.push_str("</nav>\n");
    rates(page, &bands, runs);
    responses(page, &bands, runs);
    for (i, of) in runs.iter().enumerate() {
        waits(page, &bands, i, of);
    }
    let _ = write!(page, "<output>{HINT}</output>\n</figure>\n");
}

/// One drawing of the chart.
struct Drawing<'a> {
    kind: &'a str,
    title: &'a str,
    legend: &'a str,
    axis: &'a Axis,
    /// The texts of every second of every band.
    texts: &'a [String],
    /// Its lines or areas.
    svg: &'a str,
}

impl Drawing<'_> {
    fn draw(&self, page: &mut String, bands: &[Band<'_>]) {
        let (kind, title, legend) = (self.kind, escape(self.title), self.legend);
        let _ = write!(
            page,
            "<div class=\"drawing\" data-drawing=\"{kind}\">\n<h3>{title}</h3>\n{legend}\
             <div class=\"plot\">\n"
        );
        self.axis.draw_marks(page);
        let _ = writeln!(
            page,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{title}\" data-texts=\"{}\">",
            escape(&self.texts.join(BETWEEN_TEXTS))
        );
        for (i, band) in bands.iter().enumerate() {
            let (x, width) = (WIDTH * band.left, WIDTH * band.width);
            let shade = if i % 2 == 1 { "shade" } else { "clear" };
            let _ = write!(
                page,
                "<rect class=\"{shade}\" data-band=\"{}\" x=\"{x:.2}\" y=\"0\" \
                 width=\"{width:.2}\" height=\"{HEIGHT}\"/>\
                 <path class=\"edge\" d=\"M{x:.2} 0V{HEIGHT}\"/>",
                escape(band.name)
            );
        }
        self.axis.draw_grid(page, WIDTH);
        let _ = write!(page, "{}\n</svg>\n</div>\n</div>\n", self.svg);
    }
}

/// One line for each run over all bands, and the text of each second.
fn lines(
    bands: &[Band<'_>],
    runs: &[Named<'_>],
    values: impl Fn(&Band<'_>, &StepResult) -> Vec<f64>,
    height: impl Fn(f64) -> f64,
    show: impl Fn(&Band<'_>, &StepResult, f64) -> String,
) -> (String, Vec<String>) {
    let (mut svg, mut texts) = (String::new(), Vec::new());
    for band in bands {
        let mut of_band = vec![Vec::new(); band.seconds];
        for (i, step) in band.steps.iter().enumerate() {
            let Some(step) = step else { continue };
            let values = values(band, step);
            for (text, value) in of_band.iter_mut().zip(&values) {
                let letter = runs[i].letter;
                text.push(format!("{letter} {}", show(band, step, *value)).trim().to_string());
            }
            let points = band.points(&values, &height);
            let _ = write!(
                svg,
                "\n<path class=\"line s{i}\" data-band=\"{}\" data-points=\"{}\" d=\"{}\"/>",
                escape(band.name),
                values.len(),
                path(&points)
            );
        }
        texts.extend(of_band.into_iter().map(|all| all.join(", ")));
    }
    (svg, texts)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn rates(page: &mut String, bands: &[Band<'_>], runs: &[Named<'_>]) {
    let shares = |band: &Band<'_>, step: &StepResult| -> Vec<f64> {
        step.rates().iter().map(|rate| rate / band.median).collect()
    };
    let steps = bands.iter().flat_map(|band| band.steps.iter().flatten().map(move |s| (band, s)));
    let highest = steps.flat_map(|(band, step)| shares(band, step)).fold(1.0, f64::max);
    let axis = Axis::new(Scale::Linear(percent), highest.min(RATE_TOP));
    let height = |share: f64| HEIGHT * (1.0 - axis.share(share).min(1.0));
    let show = |band: &Band<'_>, step: &StepResult, share: f64| {
        format!("{} {} ({})", count(share * band.median), unit(step), percent(share))
    };
    let (svg, texts) = lines(bands, runs, shares, height, show);
    let title = if runs.len() > 1 {
        "Rate, 100 % is the median second of the step in the faster run"
    } else {
        "Rate, 100 % is the median second of its step"
    };
    Drawing { kind: "rate", title, legend: "", axis: &axis, texts: &texts, svg: &svg }
        .draw(page, bands);
}

/// The name of a run: the tables' engine of a server, else the engine.
pub fn called(run: &RunResult) -> String {
    let engine = run.engine.split("engine=").nth(1).and_then(|rest| rest.split('&').next());
    match engine.unwrap_or(&run.engine) {
        "ROCKSDB" => "MyRocks".to_string(),
        "EVENKEEL" | "evenkeel" => "Evenkeel".to_string(),
        "null" => "null (the control)".to_string(),
        other => other.split("://").next().unwrap_or(other).to_string(),
    }
}

/// The unit that a step counts.
pub fn unit(step: &StepResult) -> &'static str {
    if step.queries() { "queries/s" } else { "rows/s" }
}

fn responses(page: &mut String, bands: &[Band<'_>], runs: &[Named<'_>]) {
    let steps = bands.iter().flat_map(|band| band.steps.iter().flatten());
    let all: Vec<f64> = steps.flat_map(|step| worst_us(step)).filter(|us| *us > 0.0).collect();
    let lowest = all.iter().copied().fold(f64::INFINITY, f64::min);
    let axis = Axis::micros_between(
        if all.is_empty() { 1.0 } else { lowest },
        all.iter().copied().fold(0.0, f64::max),
    );
    let height = |us: f64| HEIGHT * (1.0 - axis.share(us));
    let (svg, texts) = lines(bands, runs, |_, step| worst_us(step), height, |_, _, us| micros(us));
    let title = "Longest transaction or query of each second";
    Drawing { kind: "response", title, legend: "", axis: &axis, texts: &texts, svg: &svg }
        .draw(page, bands);
}

/// The waits of a run: name, colour and, for each band, the microseconds of each second.
struct Waits {
    name: String,
    colour: usize,
    us: Vec<Vec<f64>>,
}

/// The causes with the longest waits, and the sum of the others.
fn waits_by_cause(bands: &[Band<'_>], run: usize) -> Vec<Waits> {
    let of_cause = |name: &str| -> Vec<Vec<f64>> {
        let of_band = |band: &Band<'_>| {
            let Some(step) = band.steps[run] else { return Vec::new() };
            let all = step.per_second_details.waits.get(name);
            let us = |i: usize| all.and_then(|all| all.get(i)).copied().unwrap_or(0) as f64;
            (0..step.per_second.len()).map(us).collect()
        };
        bands.iter().map(of_band).collect()
    };
    let mut all: Vec<Waits> = causes()
        .enumerate()
        .map(|(colour, cause)| Waits {
            name: words(cause).to_string(),
            colour,
            us: of_cause(cause.name()),
        })
        .collect();
    let total = |waits: &Waits| waits.us.iter().flatten().sum::<f64>();
    all.retain(|waits| total(waits) > 0.0);
    all.sort_by(|a, b| total(b).total_cmp(&total(a)));
    if all.len() > CAUSES_SHOWN + 1 {
        let rest = all.split_off(CAUSES_SHOWN);
        let mut us: Vec<Vec<f64>> = rest[0].us.clone();
        for other in &rest[1..] {
            for (sum, more) in us.iter_mut().flatten().zip(other.us.iter().flatten()) {
                *sum += more;
            }
        }
        all.push(Waits { name: "others".to_string(), colour: OTHERS, us });
    }
    all
}

fn waits(page: &mut String, bands: &[Band<'_>], run: usize, of: &Named<'_>) {
    let all = waits_by_cause(bands, run);
    let of_run = if of.letter.is_empty() { String::new() } else { format!(" of {}", of.letter) };
    let title = format!("Waits{of_run} by cause, of all threads together");
    if all.is_empty() {
        let _ = writeln!(
            page,
            "<div class=\"drawing\" data-drawing=\"waits\"><h3>{}</h3><p class=\"legend\">This \
             engine does not report what it waits for.</p></div>",
            escape(&title)
        );
        return;
    }
    let mut sums: Vec<Vec<f64>> = all[0].us.iter().map(|us| vec![0.0; us.len()]).collect();
    let mut texts: Vec<Vec<String>> = Vec::new();
    let mut layers = Vec::new();
    for waits in &all {
        let below = sums.clone();
        for (sum, us) in sums.iter_mut().flatten().zip(waits.us.iter().flatten()) {
            *sum += us;
        }
        layers.push((waits, below, sums.clone()));
    }
    for (at, band) in bands.iter().enumerate() {
        for second in 0..band.seconds {
            let of = |waits: &Waits| {
                let us = *waits.us[at].get(second)?;
                (us > 0.0).then(|| format!("{} {}", waits.name, micros(us)))
            };
            texts.push(all.iter().filter_map(of).collect());
        }
    }
    let texts: Vec<String> = texts.iter().map(|all| all.join(", ")).collect();
    let axis = Axis::new(Scale::Linear(micros), sums.iter().flatten().copied().fold(0.0, f64::max));
    let height = |us: f64| HEIGHT * (1.0 - axis.share(us));
    let (mut svg, mut legend) = (String::new(), String::from("<p class=\"legend\">"));
    for (waits, below, above) in layers {
        let name = escape(&waits.name);
        let _ = write!(legend, "<span><i class=\"c{}\"></i>{name}</span> ", waits.colour);
        for ((band, below), above) in bands.iter().zip(&below).zip(&above) {
            let mut points = band.points(above, height);
            points.extend(band.points(below, height).into_iter().rev());
            if !points.is_empty() {
                let (colour, data) = (waits.colour, path(&points));
                let _ = write!(
                    svg,
                    "\n<path class=\"area c{colour}\" data-cause-area=\"{name}\" d=\"{data}Z\"/>"
                );
            }
        }
    }
    legend.push_str("</p>\n");
    let (title, legend) = (&title, &legend);
    Drawing { kind: "waits", title, legend, axis: &axis, texts: &texts, svg: &svg }
        .draw(page, bands);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Machine;

    #[test]
    fn bands_fill_the_width_and_none_is_too_narrow_to_read() {
        for seconds in [vec![1], vec![1, 1, 3600], vec![5; 20], vec![300, 1, 0, 60, 60, 60, 60]] {
            let all = widths(&seconds);
            assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{seconds:?}");
            let least = BAND_MIN.min(BANDS_MIN / seconds.len() as f64);
            assert!(all.iter().all(|width| *width >= least), "{seconds:?}: {all:?}");
        }
        let all = widths(&[10, 20]);
        assert!(all[1] > all[0]);
    }

    #[test]
    fn steps_of_the_same_name_are_told_apart() {
        let run = |names: &[&str]| {
            let step = |name: &&str| StepResult { name: (*name).to_string(), ..<_>::default() };
            let mut run: RunResult = serde_json::from_value(serde_json::json!({
                "format": 1, "engine": "null", "version": "", "interrupted": false,
                "machine": Machine::default(), "settings": {}, "patterns": {}, "steps": [],
                "space_bytes": 0, "peak_memory_bytes": 0, "stalls": {}
            }))
            .expect("all fields");
            run.steps = names.iter().map(step).collect();
            run
        };
        let (a, b) = (run(&["l.i1", "u", "l.i1"]), run(&["l.i1", "p"]));
        let runs = [Named { letter: "a", run: &a }, Named { letter: "b", run: &b }];
        assert_eq!(keys(&runs), [("l.i1", 0), ("u", 0), ("l.i1", 1), ("p", 0)]);
        assert!(step_of(&a, ("l.i1", 1)).is_some() && step_of(&b, ("l.i1", 1)).is_none());
        assert_eq!(bands(&runs).len(), 4);
    }

    #[test]
    fn waits_beyond_the_longest_causes_are_one_layer_and_nothing_is_lost() {
        let mut step = StepResult { name: "l.i1".into(), ..<_>::default() };
        step.per_second = vec![<_>::default(); 3];
        for (i, cause) in causes().enumerate() {
            let us = vec![10 * (i as u64 + 1); 3];
            step.per_second_details.waits.insert(cause.name().to_string(), us);
        }
        let all: f64 = step.per_second_details.waits.values().flatten().map(|us| *us as f64).sum();
        let band = Band {
            name: "l.i1",
            steps: vec![Some(&step)],
            seconds: 3,
            length: 3.0,
            median: 1.0,
            left: 0.0,
            width: 1.0,
        };
        let found = waits_by_cause(&[band], 0);
        assert_eq!(found.len(), CAUSES_SHOWN + 1);
        assert_eq!(found[0].name, words(causes().last().expect("some")), "longest first");
        assert_eq!(found[CAUSES_SHOWN].name, "others");
        let drawn: f64 = found.iter().flat_map(|waits| waits.us.iter().flatten()).sum();
        assert!((drawn - all).abs() < 1e-9);
    }

    #[test]
    fn a_band_of_one_second_is_drawn_over_its_width() {
        let band = Band {
            name: "l.x",
            steps: Vec::new(),
            seconds: 1,
            length: 1.0,
            median: 1.0,
            left: 0.5,
            width: 0.25,
        };
        let points = band.points(&[7.0], |value| value);
        assert_eq!(points, [(500.0, 7.0), (625.0, 7.0), (750.0, 7.0)]);
        assert!(band.points(&[], |value| value).is_empty());
    }
}
