//! The report: one self-contained HTML page, a pure function of an outcome. The page makes no
//! requests. Pictures for the documents are drawn from the same charts.

mod about;
mod chart;

use crate::outcome::Outcome;
use std::fmt::Write;

pub use chart::svg;

const STYLE: &str = include_str!("style.css");

/// Text that is safe in HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A folded list of names and descriptions.
fn list(title: &str, items: impl Iterator<Item = (String, String)>, page: &mut String) {
    let _ = writeln!(page, "<details><summary>{title}</summary>\n<dl>");
    for (name, text) in items {
        let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(&name), escape(&text));
    }
    page.push_str("</dl>\n</details>\n");
}

/// Policies, rows and settings with their descriptions.
fn explain(outcome: &Outcome, page: &mut String) {
    let policy = |name: &str| about::policy(outcome.experiment, name).unwrap_or_default().into();
    let policies = outcome.policies.iter().map(|one| (one.name.clone(), policy(&one.name)));
    let column = |name| about::column(name).unwrap_or_default().into();
    let columns = outcome.columns.iter().map(|one| (one.name.into(), column(one.name)));
    let settings = outcome.settings.iter().map(|(name, value)| {
        let about = about::setting(name).unwrap_or_default();
        (name.clone(), format!("{value} {}: {about}", about::unit(name)).replace(" :", ":"))
    });
    list("Policies", policies, page);
    list("What the rows say", columns, page);
    list("Settings", settings, page);
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
    let _ = writeln!(page, "<p class=\"says\">{}</p>", escape(&about::conclusion(outcome)));
    explain(outcome, &mut page);
    page.push_str("<div class=\"wide\"><table>\n");
    for (number, row) in outcome.cells().iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        let about = escape(about::column(&row[0]).unwrap_or_default());
        let _ = write!(page, "<tr><th title=\"{about}\">{}</th>", escape(&row[0]));
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
