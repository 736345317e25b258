//! One chart: an SVG that stretches to the width it is given, with its labels as HTML around it, so
//! that they keep their size on a small screen. Each second is one group with `data-second`, whose
//! `data-text` the script shows under the pointer.

use super::text::{escape, micros};
use crate::result::StepResult;
use std::fmt::Write;

/// Seconds on the axis at least, so that a short step does not become one broad bar.
const AXIS_SECONDS_MIN: usize = 10;
/// Height of the drawing in its own units.
const HEIGHT: f64 = 100.0;

/// How values become heights.
#[derive(Clone, Copy)]
pub enum Scale {
    /// In proportion, shown by this function.
    Linear(fn(f64) -> String),
    /// Microseconds, by their logarithm.
    Micros,
}

/// How several values of one second are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// On top of each other.
    Stack,
    /// The second in front of the first, narrower.
    Pair,
}

/// A named row of values, one per second.
pub struct Series {
    name: String,
    colour: usize,
    /// The values.
    pub values: Vec<f64>,
}

impl Series {
    /// A series in the colour of that number.
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
    id: String,
    title: String,
    seconds: usize,
    series: Vec<Series>,
    form: Form,
    scale: Scale,
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
        Chart { id: id.into(), title: title.into(), seconds, series, form, scale }
    }

    /// A chart of one series.
    pub fn bars(id: &str, title: &str, values: Vec<f64>, scale: Scale) -> Chart {
        let seconds = values.len();
        let series = vec![Series { name: String::new(), colour: 0, values }];
        Chart { id: id.into(), title: title.into(), seconds, series, form: Form::Stack, scale }
    }

    /// Appends it to the page.
    pub fn draw(&self, page: &mut String) {
        let axis = Axis::new(self.scale, self.highest());
        let class = if self.highest() > 0.0 { "chart" } else { "chart empty" };
        let _ = write!(
            page,
            "<figure class=\"{class}\" data-chart=\"{}\">\n<figcaption>{}</figcaption>\n",
            self.id,
            escape(&self.title)
        );
        self.legend(page);
        page.push_str("<div class=\"plot\">\n");
        for (share, label) in &axis.marks {
            let _ = writeln!(
                page,
                "<span class=\"mark\" style=\"bottom:{:.2}%\">{label}</span>",
                share * 100.0
            );
        }
        let width = self.seconds.max(AXIS_SECONDS_MIN);
        let _ = writeln!(
            page,
            "<svg viewBox=\"0 0 {width} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{}\">",
            escape(&self.title)
        );
        for (share, _) in &axis.marks {
            let y = HEIGHT * (1.0 - share);
            let _ = write!(page, "<path class=\"grid\" d=\"M0 {y:.2}H{width}\"/>");
        }
        for second in 0..self.seconds {
            self.second(page, second, &axis);
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

    fn second(&self, page: &mut String, second: usize, axis: &Axis) {
        let text: Vec<String> = self
            .series
            .iter()
            .filter(|s| s.at(second) > 0.0 || s.name.is_empty())
            .map(|s| format!("{} {}", s.name, axis.show(s.at(second))).trim().to_string())
            .collect();
        let text = if text.is_empty() { "0".to_string() } else { text.join(", ") };
        let _ =
            write!(page, "\n<g data-second=\"{}\" data-text=\"{}\">", second + 1, escape(&text));
        // Gaps between narrow bars would only shimmer.
        let gap = if self.seconds > 120 { 0.0 } else { 0.05 };
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
                let inset = if self.form == Form::Pair && i == 1 { 0.25 } else { gap };
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

/// The vertical axis: heights as shares of the whole, and labelled marks.
struct Axis {
    scale: Scale,
    top: f64,
    marks: Vec<(f64, String)>,
}

impl Axis {
    fn new(scale: Scale, highest: f64) -> Axis {
        match scale {
            Scale::Linear(show) => {
                let top = round_up(highest);
                let marks = [0.0, 0.5, 1.0].map(|share| (share, show(share * top)));
                Axis { scale, top, marks: marks.to_vec() }
            }
            Scale::Micros => {
                let top = highest.max(1.0).log10().ceil().max(3.0);
                let decades = (0..=top as i32).map(|d| (f64::from(d) / top, micros(10f64.powi(d))));
                Axis { scale, top, marks: decades.collect() }
            }
        }
    }

    fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear(_) => value / self.top,
            Scale::Micros => value.max(1.0).log10() / self.top,
        }
    }

    fn show(&self, value: f64) -> String {
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
        assert!(page.contains("data-text=\"a 1, b 1\"") && page.contains("data-text=\"0\""));
    }
}
