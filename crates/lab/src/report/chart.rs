//! A chart of lines, in two forms. A figure of the report has HTML labels around a drawing that
//! stretches, so that the labels keep their size on a small screen. An SVG file is for the
//! documents.

use super::escape;
use crate::outcome::{Axis, Chart, Line};
use std::fmt::Write;

/// Colours of the policies, in order.
const COLOURS: [&str; 8] =
    ["#0b6fb8", "#e07b00", "#2f9e44", "#c92a2a", "#7048e8", "#8d6346", "#0c8599", "#c2255c"];
/// Width and height of the drawing in a figure, in its own units.
const FIGURE: (f64, f64) = (1000.0, 400.0);
/// A line with at most this many points shows a dot for each.
const DOTS_MAX: usize = 24;

/// The ends of an axis, and its labelled marks.
struct Span {
    from: f64,
    to: f64,
    log: bool,
    marks: Vec<(f64, String)>,
}

impl Span {
    fn new(axis: &Axis, values: impl Iterator<Item = f64> + Clone) -> Span {
        let most = values.clone().fold(0.0, f64::max);
        if axis.log {
            let least = values.filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
            let least = if least.is_finite() { least } else { 1.0 };
            let (low, high) = (least.log10().floor(), most.max(least).log10().ceil());
            let high = high.max(low + 1.0);
            let step = ((high - low) / 6.0).ceil().max(1.0) as usize;
            let powers = (low as i32..=high as i32).step_by(step).map(|p| 10f64.powi(p));
            let span = Span { from: low, to: high, log: true, marks: Vec::new() };
            let marks = powers.map(|v| (span.share(v), axis.unit.show(v))).collect();
            return Span { marks, ..span };
        }
        let to = round_up(most);
        let marks = [0.0, 0.25, 0.5, 0.75, 1.0].map(|s| (s, axis.unit.show(s * to)));
        Span { from: 0.0, to, log: false, marks: marks.to_vec() }
    }

    /// The position of a value, 0 to 1. A value that a logarithmic axis cannot show lies at the
    /// lower end.
    fn share(&self, value: f64) -> f64 {
        let value = if self.log { value.max(1e-300).log10() } else { value };
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }
}

/// The next of a few round numbers.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let round = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = round.into_iter().find(|s| s * power >= value * 0.999_999);
    step.unwrap_or(10.0) * power
}

fn spans(chart: &Chart) -> (Span, Span) {
    let points = || chart.lines.iter().flat_map(|line| line.points.iter().copied());
    (Span::new(&chart.x, points().map(|p| p.0)), Span::new(&chart.y, points().map(|p| p.1)))
}

/// The box that lines are drawn in.
struct Field {
    x: Span,
    y: Span,
    left: f64,
    top: f64,
    size: (f64, f64),
}

impl Field {
    /// The positions of a line's points.
    fn places(&self, line: &Line) -> impl Iterator<Item = String> {
        let place = |(x, y): &(f64, f64)| {
            let px = self.left + self.x.share(*x) * self.size.0;
            let py = self.top + (1.0 - self.y.share(*y)) * self.size.1;
            format!("{px:.1} {py:.1}")
        };
        line.points.iter().map(place)
    }

    fn path(&self, line: &Line) -> String {
        match line.points.is_empty() {
            true => String::new(),
            false => format!("M{}", self.places(line).collect::<Vec<_>>().join("L")),
        }
    }

    fn dots(&self, line: &Line) -> String {
        if line.points.len() > DOTS_MAX {
            return String::new();
        }
        self.places(line).map(|place| format!("M{place}h0")).collect()
    }
}

/// Appends the chart as a figure.
pub fn figure(chart: &Chart, page: &mut String) {
    let (x, y) = spans(chart);
    let field = Field { x, y, left: 0.0, top: 0.0, size: FIGURE };
    let title = escape(&chart.title);
    let _ = write!(
        page,
        "<figure data-chart=\"{}\">\n<figcaption>{title}</figcaption>\n<p class=\"legend\">",
        chart.id
    );
    for line in &chart.lines {
        let (name, colour) = (escape(&line.name), line.colour % COLOURS.len());
        let _ =
            write!(page, "<span data-line=\"{name}\"><i class=\"c{colour}\"></i>{name}</span> ");
    }
    page.push_str("</p>\n<div class=\"plot\">\n");
    for (share, label) in &field.y.marks {
        let bottom = share * 100.0;
        let _ = writeln!(page, "<span class=\"mark\" style=\"bottom:{bottom:.1}%\">{label}</span>");
    }
    let (width, height) = FIGURE;
    let _ = writeln!(
        page,
        "<svg viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{title}\">"
    );
    for (share, _) in &field.y.marks {
        let _ =
            write!(page, "<path class=\"grid\" d=\"M0 {:.1}H{width}\"/>", height * (1.0 - share));
    }
    for line in &chart.lines {
        let colour = line.colour % COLOURS.len();
        let _ = write!(
            page,
            "\n<path class=\"line l{colour}\" data-points=\"{}\" d=\"{}\"/>\
             <path class=\"dots l{colour}\" d=\"{}\"/>",
            line.points.len(),
            field.path(line),
            field.dots(line)
        );
    }
    page.push_str("\n</svg>\n</div>\n<div class=\"along\">");
    for (share, label) in &field.x.marks {
        let left = share * 100.0;
        let _ = write!(page, "<span style=\"left:{left:.1}%\">{label}</span>");
    }
    let _ = write!(
        page,
        "</div>\n<p class=\"axes\">{} over {}</p>\n</figure>\n",
        escape(chart.y.name),
        escape(chart.x.name)
    );
}

/// The chart as a picture of its own.
pub fn svg(chart: &Chart) -> String {
    let (x, y) = spans(chart);
    let (left, top, size) = (78.0, 34.0, (600.0, 240.0));
    let field = Field { x, y, left, top, size };
    let rows = chart.lines.len() as f64;
    let height = top + size.1 + 52.0 + rows * 18.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 {height:.0}\" width=\"720\" \
         font-family=\"system-ui, DejaVu Sans, sans-serif\" font-size=\"13\">\n\
         <rect width=\"720\" height=\"{height:.0}\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"20\" font-weight=\"600\" fill=\"#1c2430\">{}</text>\n",
        escape(&chart.title)
    );
    for (share, label) in &field.y.marks {
        let at = top + (1.0 - share) * size.1;
        let _ = writeln!(
            out,
            "<path d=\"M{left} {at:.1}h{}\" stroke=\"#dde2e8\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\" fill=\"#5b6675\">{label}</text>",
            size.0,
            left - 6.0,
            at + 4.0
        );
    }
    for (share, label) in &field.x.marks {
        let (at, below) = (left + share * size.0, top + size.1 + 18.0);
        let _ = writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\" fill=\"#5b6675\">{label}\
             </text>"
        );
    }
    for line in &chart.lines {
        let colour = COLOURS[line.colour % COLOURS.len()];
        let _ = writeln!(
            out,
            "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <path d=\"{}\" stroke=\"{colour}\" stroke-width=\"6\" stroke-linecap=\"round\"/>",
            field.path(line),
            field.dots(line)
        );
    }
    let below = top + size.1 + 36.0;
    let _ = writeln!(
        out,
        "<text x=\"{:.0}\" y=\"{below}\" text-anchor=\"middle\" fill=\"#5b6675\">{} over {}</text>",
        left + size.0 / 2.0,
        escape(chart.y.name),
        escape(chart.x.name)
    );
    for (row, line) in chart.lines.iter().enumerate() {
        let at = below + 20.0 + row as f64 * 18.0;
        let colour = COLOURS[line.colour % COLOURS.len()];
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{:.0}\" width=\"14\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{at:.0}\" fill=\"#1c2430\">{}</text>",
            at - 10.0,
            left + 22.0,
            escape(&line.name)
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Unit;

    fn chart(log: bool) -> Chart {
        let axis = |name, log| Axis { name, unit: Unit::Count, log };
        let line = |name: &str, points: &[(f64, f64)]| Line {
            name: name.into(),
            colour: 0,
            points: points.to_vec(),
        };
        let lines = vec![line("a<b", &[(1.0, 10.0), (2.0, 1000.0)]), line("b", &[(1.0, 0.0)])];
        Chart { id: "c", title: "C".into(), x: axis("x", false), y: axis("y", log), lines }
    }

    #[test]
    fn every_point_lies_inside_and_is_counted() {
        for log in [false, true] {
            let mut page = String::new();
            figure(&chart(log), &mut page);
            assert!(page.contains("data-points=\"2\"") && page.contains("data-points=\"1\""));
            assert!(page.contains("a&lt;b") && !page.contains("a<b") && !page.contains("NaN"));
            let picture = svg(&chart(log));
            assert!(picture.contains("a&lt;b") && !picture.contains("NaN"));
        }
        let (_, y) = spans(&chart(true));
        assert_eq!((y.share(10.0), y.share(1000.0), y.share(0.0)), (0.0, 1.0, 0.0));
        assert!((y.share(100.0) - 0.5).abs() < 1e-9);
    }

    /// Labels are at the positions of their values: with four decades, and with so many that some
    /// labels are omitted.
    #[test]
    fn labels_along_the_axis_lie_where_their_values_do() {
        for (most, labels) in [
            (1_000.0, [("1", "0.0"), ("10", "33.3"), ("100", "66.7"), ("1k", "100.0")].as_slice()),
            (10_000.0, &[("1", "0.0"), ("10", "25.0"), ("100", "50.0"), ("10k", "100.0")]),
            (1e8, &[("1", "0.0"), ("100", "25.0"), ("10k", "50.0"), ("100M", "100.0")]),
        ] {
            let mut chart = chart(true);
            chart.x.log = true;
            chart.lines[0].points = vec![(1.0, 1.0), (most, 10.0)];
            let mut page = String::new();
            figure(&chart, &mut page);
            for (label, left) in labels {
                let wanted = format!("<span style=\"left:{left}%\">{label}</span>");
                assert!(page.contains(&wanted), "{wanted} up to {most}: {page}");
            }
        }
    }

    #[test]
    fn an_axis_ends_above_the_highest_value() {
        for (value, top) in [(0.0, 1.0), (2.9, 3.0), (61_000.0, 80_000.0), (0.3, 0.3)] {
            assert!((round_up(value) - top).abs() < 1e-9, "{value}");
        }
    }
}
