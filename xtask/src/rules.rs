//! Checks the page that lists the tests of each rule: every test and file that it names must exist.

use crate::source::Source;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/internals/protocol-tests.md";

/// Names on the page that do not exist, and rules without a row.
pub fn check(root: &Path, sources: &[Source]) -> Vec<String> {
    let page = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    find(&page, sources)
}

fn find(page: &str, sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut report = |line: usize, what: &str| problems.push(format!("{PAGE}:{line}: {what}"));
    for (i, line) in page.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
        for name in line.split('`').skip(1).step_by(2).filter(|name| name.contains(".rs")) {
            let (path, test) = name.split_once("::").unwrap_or((name, ""));
            let named = |s: &&Source| s.path == path || s.path == format!("crates/{path}");
            match sources.iter().find(named) {
                None => report(i + 1, &format!("no file {path}")),
                Some(s) if !test.is_empty() && !has_test(&s.text, test) => {
                    report(i + 1, &format!("no test {name}"));
                }
                Some(_) => {}
            }
        }
    }
    for (section, last) in [('A', 8), ('B', 6), ('C', 3), ('D', 6), ('E', 7), ('F', 5), ('G', 7)] {
        for number in 1..=last {
            let row = format!("| {section}{number} |");
            if !page.lines().any(|line| line.starts_with(&row)) {
                report(1, &format!("no row for {section}{number}"));
            }
        }
    }
    problems
}

/// True if the text contains a test function of this name.
fn has_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let above =
            lines[..at].iter().rev().take_while(|l| l.starts_with("#[") || l.starts_with("//"));
        line.starts_with(&head) && above.into_iter().any(|l| *l == "#[test]")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_nowhere_are_found() {
        let text = "#[test]\nfn one() {}\nfn two() {}\n".to_string();
        let sources = [Source { path: "crates/log/src/a.rs".into(), text }];
        let names = ["log/src/a.rs", "log/src/a.rs::one", "log/src/a.rs::two", "log/src/b.rs"];
        let page: String = names.iter().map(|n| format!("| A1 | `{n}` |\n")).collect();
        let found = find(&page, &sources);
        assert_eq!(found.len(), 2 + 41, "{found:?}");
        assert!(found[0].ends_with(":3: no test log/src/a.rs::two"));
        assert!(found[1].ends_with(":4: no file log/src/b.rs"));
    }
}
