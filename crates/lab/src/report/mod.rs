//! The report: one self-contained HTML page, a pure function of an outcome. It makes no request
//! beyond itself. Pictures for the documents are drawn from the same charts.

mod chart;

use crate::outcome::Outcome;
use std::fmt::Write;

pub use chart::svg;

const STYLE: &str = include_str!("style.css");

/// Text that is safe in HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The page of an outcome.
pub fn page(outcome: &Outcome) -> String {
    let mut page = String::new();
    let title = format!("evenkeel lab {}", outcome.experiment);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body data-experiment=\"{}\">\n<h1>{}</h1>\n<p>{}</p>\n\
         <p><code>{title}</code>, seed {}. Time is virtual: a run repeats exactly.</p>\n",
        outcome.experiment,
        escape(outcome.title),
        escape(outcome.question),
        outcome.seed
    );
    page.push_str("<details><summary>Settings</summary>\n<dl>\n");
    for (name, value) in &outcome.settings {
        let value = escape(&value.to_string());
        let _ = writeln!(page, "<dt>{}</dt><dd>{value}</dd>", escape(name));
    }
    page.push_str("</dl>\n</details>\n<div class=\"wide\"><table>\n");
    for (number, row) in outcome.cells().iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        let _ = write!(page, "<tr><th>{}</th>", escape(&row[0]));
        for cell in &row[1..] {
            let _ = write!(page, "<{tag}>{}</{tag}>", escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n<div class=\"charts\">\n");
    for chart in &outcome.charts {
        chart::figure(chart, &mut page);
    }
    page.push_str("</div>\n</body>\n</html>\n");
    page
}
