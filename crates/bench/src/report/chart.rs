//! One chart: an SVG that stretches to its container, with its labels as HTML around it, so that
//! they keep their size on a small screen. Up to two minutes each second is a bar, a group of
//! `data-second`. Longer steps are drawn as lines, or as areas if the series add up. `data-texts`
//! has the values of every second, which the script shows under the pointer.

use super::text::{escape, micros};
use crate::result::StepResult;
use std::fmt::Write;

/// Least number of seconds on the axis, so that a short step does not become one broad bar.
const AXIS_SECONDS_MIN: usize = 10;
/// Height of the drawing in its own units.
pub const HEIGHT: f64 = 100.0;
/// Longer steps are drawn as lines: bars would be narrower than a pixel on a small screen.
const BAR_SECONDS_MAX: usize = 120;
/// Separates the texts of two seconds; no text contains it.
pub const BETWEEN_TEXTS: &str = "|";

/// How values become heights.
#[derive(Clone, Copy)]
pub enum Scale {
    /// In proportion, shown by this function.
    Linear(fn(f64) -> String),
    /// Microseconds, on a logarithmic scale.
    Micros,
}

/// How several values of one second are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// On top of each other.
    Stack,
    /// The second series in front of the first, narrower.
    Pair,
}

/// A named row of values, one per second.
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its colour.
    pub colour: usize,
    /// The values.
    pub values: Vec<f64>,
}

impl Series {
    /// A series in the colour with that number.
    pub fn new(name: &str, colour: usize, values: &[u64]) -> Series {
        let values = values.iter().map(|v| *v as f64).collect();
        Series { name: name.to_string(), colour, values }
    }

    fn at(&self, second: usize) -> f64 {
        self.values.get(second).copied().unwrap_or(0.0)
    }
}

/// A chart.
pub struct Chart {
    /// Its name in the page.
    pub id: String,
    title: String,
    seconds: usize,
    series: Vec<Series>,
    form: Form,
    scale: Scale,
    /// The least upper end of the axis, so that two charts can be compared.
    least_top: f64,
    /// The least number of seconds on the axis, likewise.
    least_seconds: usize,
}

impl Chart {
    /// A chart of several series over the seconds of a step.
    pub fn new(
        id: &str,
        title: &str,
        step: &StepResult,
        series: Vec<Series>,
        form: Form,
        scale: Scale,
    ) -> Chart {
        let seconds = step.per_second.len();
        let (id, title) = (id.to_string(), title.to_string());
        let (least_top, least_seconds) = (0.0, AXIS_SECONDS_MIN);
        Chart { id, title, seconds, series, form, scale, least_top, least_seconds }
    }

    /// A chart of one series.
    pub fn single(
        id: &str,
        title: &str,
        step: &StepResult,
        values: Vec<f64>,
        scale: Scale,
    ) -> Chart {
        let series = vec![Series { name: String::new(), colour: 0, values }];
        Chart::new(id, title, step, series, Form::Stack, scale)
    }

    /// Gives two charts of the same figure the same axes.
    pub fn align(&mut self, other: &mut Chart) {
        let top = self.highest().max(other.highest());
        let seconds = self.seconds.max(other.seconds).max(AXIS_SECONDS_MIN);
        for chart in [self, other] {
            (chart.least_top, chart.least_seconds) = (top, seconds);
        }
    }

    /// Appends the chart to the page.
    pub fn draw(&self, page: &mut String) {
        let highest = self.highest().max(self.least_top);
        let axis = Axis::new(self.scale, highest);
        let class = if highest > 0.0 { "chart" } else { "chart empty" };
        let _ = write!(
            page,
            "<figure class=\"{class}\" data-chart=\"{}\">\n<figcaption>{}</figcaption>\n",
            self.id,
            escape(&self.title)
        );
        self.legend(page);
        page.push_str("<div class=\"plot\">\n");
        axis.draw_marks(page);
        let width = self.seconds.max(self.least_seconds);
        let texts: Vec<String> = (0..self.seconds).map(|second| self.text(second, &axis)).collect();
        let _ = writeln!(
            page,
            "<svg viewBox=\"0 0 {width} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{}\" data-texts=\"{}\">",
            escape(&self.title),
            escape(&texts.join(BETWEEN_TEXTS))
        );
        axis.draw_grid(page, width as f64);
        if width > BAR_SECONDS_MAX {
            self.lines(page, &axis);
        } else {
            (0..self.seconds).for_each(|second| self.bars(page, second, &axis));
        }
        let _ = write!(
            page,
            "\n</svg>\n</div>\n<div class=\"seconds\"><span>0</span><span>{}</span>\
             <span>{width} s</span></div>\n<output></output>\n</figure>\n",
            width / 2
        );
    }

    fn highest(&self) -> f64 {
        let of_second = |second| {
            let all = self.series.iter().map(|s| s.at(second));
            if self.form == Form::Stack { all.sum() } else { all.fold(0.0, f64::max) }
        };
        (0..self.seconds).map(of_second).fold(0.0, f64::max)
    }

    fn legend(&self, page: &mut String) {
        if self.series.is_empty() {
            page.push_str("<p class=\"legend\">none</p>\n");
        } else if self.series.len() > 1 || !self.series[0].name.is_empty() {
            page.push_str("<p class=\"legend\">");
            for series in &self.series {
                let name = escape(&series.name);
                let _ = write!(
                    page,
                    "<span data-series=\"{name}\"><i class=\"c{}\"></i>{name}</span> ",
                    series.colour
                );
            }
            page.push_str("</p>\n");
        }
    }

    /// The values of a second as text.
    fn text(&self, second: usize, axis: &Axis) -> String {
        let of = |s: &Series| format!("{} {}", s.name, axis.show(s.at(second))).trim().to_string();
        let shown = self.series.iter().filter(|s| s.at(second) > 0.0 || s.name.is_empty());
        let text: Vec<String> = shown.map(of).collect();
        if text.is_empty() { "0".to_string() } else { text.join(", ") }
    }

    /// Draws lines through the middle of each second, or areas if several series add up.
    fn lines(&self, page: &mut String, axis: &Axis) {
        let adds_up = self.form == Form::Stack && self.series.len() > 1;
        let mut below = vec![0.0; self.seconds];
        for series in &self.series {
            let above: Vec<f64> = (0..self.seconds)
                .map(|i| series.at(i) + if adds_up { below[i] } else { 0.0 })
                .collect();
            let height = |value: f64| HEIGHT * (1.0 - axis.share(value));
            let point = |(i, value): (usize, &f64)| (i as f64 + 0.5, height(*value));
            let mut points: Vec<(f64, f64)> = above.iter().enumerate().map(point).collect();
            let (kind, end) = if adds_up { ("area c", "Z") } else { ("line s", "") };
            if adds_up {
                points.extend(below.iter().enumerate().map(point).rev());
            }
            let _ = write!(
                page,
                "\n<path class=\"{kind}{}\" data-points=\"{}\" d=\"{}{end}\"/>",
                series.colour,
                self.seconds,
                path(&points)
            );
            below = above;
        }
    }

    fn bars(&self, page: &mut String, second: usize, axis: &Axis) {
        const GAP: f64 = 0.05;
        let _ = write!(page, "\n<g data-second=\"{}\">", second + 1);
        let mut below = 0.0;
        for (i, series) in self.series.iter().enumerate() {
            let value = series.at(second);
            let (from, to) = match self.form {
                Form::Stack => (below, below + value),
                Form::Pair => (0.0, value),
            };
            below = to;
            let (from, to) = (HEIGHT * axis.share(from), HEIGHT * axis.share(to));
            if to > from {
                let inset = if self.form == Form::Pair && i == 1 { 0.25 } else { GAP };
                let _ = write!(
                    page,
                    "<rect class=\"c{}\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" \
                     height=\"{:.2}\"/>",
                    series.colour,
                    second as f64 + inset,
                    HEIGHT - to,
                    1.0 - 2.0 * inset,
                    to - from
                );
            }
        }
        page.push_str("</g>");
    }
}

/// The points of a line as the data of a path.
pub fn path(points: &[(f64, f64)]) -> String {
    let mut data = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        let _ = write!(data, "{}{x:.2} {y:.2}", if i == 0 { "M" } else { "L" });
    }
    data
}

/// The vertical axis: heights as shares of the whole, and labelled marks.
pub struct Axis {
    scale: Scale,
    /// For microseconds, the logarithms of both ends.
    bottom: f64,
    top: f64,
    marks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis for values up to `highest`.
    pub fn new(scale: Scale, highest: f64) -> Axis {
        match scale {
            Scale::Linear(show) => {
                let top = round_up(highest);
                let marks = [0.0, 0.5, 1.0].map(|share| (share, show(share * top)));
                Axis { scale, bottom: 0.0, top, marks: marks.to_vec() }
            }
            Scale::Micros => Axis::micros(0.0, highest.max(1.0).log10().ceil().max(3.0)),
        }
    }

    /// An axis of microseconds from `lowest` to `highest`, of at least two decades.
    pub fn micros_between(lowest: f64, highest: f64) -> Axis {
        let bottom = lowest.max(1.0).log10().floor();
        Axis::micros(bottom, highest.max(1.0).log10().ceil().max(bottom + 2.0))
    }

    fn micros(bottom: f64, top: f64) -> Axis {
        let decades = (bottom as i32..=top as i32).map(f64::from);
        let mark = |d: f64| ((d - bottom) / (top - bottom), micros(10f64.powf(d)));
        Axis { scale: Scale::Micros, bottom, top, marks: decades.map(mark).collect() }
    }

    /// Its marks: heights as shares of the whole, with their labels.
    pub fn marks(&self) -> &[(f64, String)] {
        &self.marks
    }

    /// Draws the labels of its marks next to the drawing.
    pub fn draw_marks(&self, page: &mut String) {
        for (share, label) in &self.marks {
            let bottom = share * 100.0;
            let _ =
                writeln!(page, "<span class=\"mark\" style=\"bottom:{bottom:.2}%\">{label}</span>");
        }
    }

    /// Draws a line across the drawing at each mark.
    pub fn draw_grid(&self, page: &mut String, width: f64) {
        for (share, _) in &self.marks {
            let y = HEIGHT * (1.0 - share);
            let _ = write!(page, "<path class=\"grid\" d=\"M0 {y:.2}H{width}\"/>");
        }
    }

    /// The height of a value as a share of the whole.
    pub fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear(_) => value / self.top,
            Scale::Micros => {
                let above = value.max(1.0).log10() - self.bottom;
                (above / (self.top - self.bottom)).max(0.0)
            }
        }
    }

    /// A value as text.
    pub fn show(&self, value: f64) -> String {
        match self.scale {
            Scale::Linear(show) => show(value),
            Scale::Micros => micros(value),
        }
    }
}

/// The next of 1, 2, 4, 5, 8 times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0].into_iter().find(|s| s * power >= value * 0.999_999);
    step.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_above_the_highest_value() {
        for (value, top) in [(0.0, 1.0), (1.0, 1.0), (3.0, 4.0), (61_000.0, 80_000.0), (0.3, 0.4)] {
            assert!((round_up(value) - top).abs() < 1e-9, "{value}");
        }
        let axis = Axis::new(Scale::Micros, 20_000.0);
        assert_eq!(axis.marks.len(), 6);
        assert!(axis.share(20_000.0) < 1.0 && axis.share(0.0) == 0.0);
        let axis = Axis::micros_between(30_000.0, 60_000.0);
        let labels: Vec<&str> = axis.marks().iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["10 ms", "100 ms", "1 s"]);
        assert_eq!([0.0, 1e4, 1e5, 1e6].map(|us| axis.share(us)), [0.0, 0.0, 0.5, 1.0]);
    }

    #[test]
    fn every_second_is_one_group_even_when_nothing_happened() {
        let step = StepResult { per_second: vec![<_>::default(); 3], ..<_>::default() };
        let series = vec![Series::new("a", 0, &[1, 0, 2]), Series::new("b", 1, &[1, 0])];
        let mut page = String::new();
        let scale = Scale::Linear(super::super::text::count);
        Chart::new("x", "X", &step, series, Form::Stack, scale).draw(&mut page);
        assert_eq!(page.matches("data-second=").count(), 3);
        assert_eq!(page.matches("<rect").count(), 3);
        assert!(page.contains("data-texts=\"a 1, b 1|0|a 2\""));
    }

    #[test]
    fn beyond_two_minutes_every_series_is_one_line_with_a_point_a_second() {
        let drawn = |seconds: usize, form: Form| {
            let step = StepResult { per_second: vec![<_>::default(); seconds], ..<_>::default() };
            let values: Vec<u64> = (0..seconds as u64).map(|i| i % 2).collect();
            let series = vec![Series::new("a", 0, &values), Series::new("b", 1, &values)];
            let mut page = String::new();
            let scale = Scale::Linear(super::super::text::count);
            Chart::new("x", "X", &step, series, form, scale).draw(&mut page);
            let texts = page.split("data-texts=\"").nth(1).and_then(|t| t.split('"').next());
            assert_eq!(texts.map(|t| t.split(BETWEEN_TEXTS).count()), Some(seconds));
            ["<rect", "class=\"line", "class=\"area"].map(|what| page.matches(what).count())
        };
        assert_eq!(drawn(120, Form::Stack), [120, 0, 0], "two bars in every other second");
        assert_eq!(drawn(121, Form::Stack), [0, 0, 2]);
        assert_eq!(drawn(121, Form::Pair), [0, 2, 0]);
    }

    #[test]
    fn aligned_charts_have_the_same_axes() {
        let of = |values: &[u64]| {
            let step =
                StepResult { per_second: vec![<_>::default(); values.len()], ..<_>::default() };
            let series = vec![Series::new("a", 0, values)];
            Chart::new("x", "X", &step, series, Form::Stack, Scale::Micros)
        };
        let (mut a, mut b) = (of(&[5; 20]), of(&[900_000; 3]));
        a.align(&mut b);
        let axes = |chart: &Chart| {
            let mut page = String::new();
            chart.draw(&mut page);
            let view = page.split("viewBox=\"").nth(1).and_then(|t| t.split('"').next());
            (view.map(str::to_string), page.matches("class=\"mark\"").count())
        };
        assert_eq!(axes(&a), axes(&b));
        assert_eq!(axes(&a), (Some("0 0 20 100".to_string()), 7));
    }
}
