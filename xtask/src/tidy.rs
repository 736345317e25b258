//! Checks the rules of `STYLE.md` that a program can check. A finding is one line: file, line,
//! rule.
//!
//! Ratchet: `xtask/ratchet.txt` lists the files, functions and scripts of bash that are longer than
//! the limit, with their permitted length. The length may only decrease: a listed length above the
//! present one is a finding too.

use crate::source::{self, Source, code, has_word};
use crate::{
    circles, dashboards, docs, error_names, layers, licences, links, manifests, rules, string_names,
};
use crate::{test_filters, vocabulary};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const COLUMNS: usize = 100;
const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;
/// Scripts of bash, which is for glue: what is longer is written in Python.
const SCRIPT_LINES: usize = 60;

/// Files with tables of one entry per line, which may have long lines.
const WIDE: &[&str] = &["crates/base/src/codes.rs", "crates/base/src/metrics.rs"];

/// The engine: everything that the simulator must be able to drive.
const ENGINE: &[&str] =
    &["base", "io", "sched", "format", "log", "pages", "tree", "runs", "txn", "tables", "evenkeel"];

/// Words that no engine crate may contain, with their replacement.
const BANNED: &[(&str, &str)] = &[
    ("todo!", "finish it, or return an error"),
    ("unimplemented!", "finish it, or return an error"),
    ("dbg!", "use the log facade"),
    ("println!", "use the log facade"),
    ("eprintln!", "use the log facade"),
    ("thread::sleep", "wait for an event under a cause"),
];

/// Notes that belong in an issue.
const NOTES: &[&str] = &["FIXME", "XXX", "TODO", "HACK"];

/// Calls of the operating system: only `io` and tests may make them.
const OUTSIDE: &[(&str, &str)] = &[
    ("std::fs", "use evenkeel_io::Env"),
    ("Instant", "use Env::now_ns"),
    ("SystemTime::now", "use Env::now_ns"),
    ("thread::spawn", "use Runtime::spawn"),
    ("thread::Builder", "use Runtime::spawn"),
];

/// Crates that may contain `unsafe`.
const UNSAFE: &[&str] = &["io", "pages", "runs", "capi", "bench-compare"];

/// Every finding.
pub fn check(root: &Path) -> Vec<String> {
    let sources = source::all(root);
    let mut problems = layers::check(root);
    let mut lengths = BTreeMap::new();
    for source in &sources {
        head_comment(source, &mut problems);
        columns(source, &mut problems);
        words(source, &mut problems);
        measure(source, &mut lengths);
    }
    for script in vocabulary::others(root).iter().filter(|file| file.path.ends_with(".sh")) {
        measure_script(script, &mut lengths);
    }
    problems.extend(ratchet(root, &lengths));
    problems.extend(circles::check(root, &sources));
    problems.extend(docs::check(root));
    problems.extend(rules::check(root, &sources));
    problems.extend(test_filters::check(root, &sources));
    problems.extend(error_names::check(&sources, ENGINE));
    problems.extend(vocabulary::check(root, &sources, ENGINE));
    problems.extend(string_names::check(root));
    problems.extend(licences::check(root));
    problems.extend(links::check(root));
    problems.extend(dashboards::check(root));
    problems.extend(manifests::check(root, &sources));
    problems
}

fn head_comment(source: &Source, problems: &mut Vec<String>) {
    if !source.text.starts_with("//!") {
        problems
            .push(format!("{}:1: begin with a `//!` comment that says what it is", source.path));
    }
}

fn columns(source: &Source, problems: &mut Vec<String>) {
    if WIDE.contains(&source.path.as_str()) {
        return;
    }
    for (i, line) in source.text.lines().enumerate() {
        let width = line.chars().count();
        if width > COLUMNS {
            problems.push(format!("{}:{}: {width} columns", source.path, i + 1));
        }
    }
}

fn words(source: &Source, problems: &mut Vec<String>) {
    let package = source.package();
    if source.path.starts_with("xtask/") {
        return;
    }
    let mut find = |number: usize, word: &str, instead: &str| {
        problems.push(format!("{}:{number}: {word}: {instead}", source.path));
    };
    for (number, line) in source.lines_outside_tests() {
        for note in NOTES {
            if has_word(line, note) {
                find(number, note, "open an issue instead of a note");
            }
        }
        let code = code(line);
        if code.contains("allow(unsafe_code)") && !UNSAFE.contains(&package) {
            find(number, "unsafe", "only in io, pages, runs, capi and bench-compare");
        }
        if !ENGINE.contains(&package) {
            continue;
        }
        for (word, instead) in BANNED {
            if has_word(code, word.trim_end_matches('!')) && code.contains(word) {
                find(number, word, instead);
            }
        }
        for (word, instead) in OUTSIDE {
            if package != "io" && has_word(code, word) {
                find(number, word, instead);
            }
        }
    }
}

/// Lengths of files ("path") and functions ("path name") that are over their limit.
fn measure(source: &Source, lengths: &mut BTreeMap<String, usize>) {
    let lines: Vec<&str> = source.text.lines().collect();
    if lines.len() > FILE_LINES {
        lengths.insert(source.path.clone(), lines.len());
    }
    for (name, length) in functions(&lines) {
        if length > FUNCTION_LINES {
            lengths.insert(format!("{} {name}", source.path), length);
        }
    }
}

/// The length of a script of bash ("path") that is over its limit.
fn measure_script(script: &Source, lengths: &mut BTreeMap<String, usize>) {
    let lines = script.text.lines().count();
    if lines > SCRIPT_LINES {
        lengths.insert(script.path.clone(), lines);
    }
}

/// Functions with their lengths. In formatted code a brace below the `fn` ends the function.
fn functions(lines: &[&str]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let Some((before, after)) = code(text).split_once("fn ") else { continue };
        let modifiers = ["pub", "const", "unsafe", "async", "extern", "pub(crate)", "pub(super)"];
        if !before.split_whitespace().all(|word| modifiers.contains(&word)) {
            continue;
        }
        let close = format!("{}}}", &line[..line.len() - text.len()]);
        let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let one_line = text.ends_with(';') || (text.contains('{') && text.ends_with('}'));
        if one_line {
            continue;
        }
        if let Some(length) = lines[i..].iter().position(|l| *l == close) {
            found.push((name, length + 1));
        }
    }
    found
}

fn ratchet(root: &Path, lengths: &BTreeMap<String, usize>) -> Vec<String> {
    let text = fs::read_to_string(root.join("xtask/ratchet.txt")).unwrap_or_default();
    let mut listed = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some((what, length)) = line.rsplit_once(' ') {
            listed.insert(what.to_string(), length.parse().unwrap_or(0));
        }
    }
    let mut problems = Vec::new();
    for (what, length) in lengths {
        let limit = match what {
            _ if what.contains(' ') => FUNCTION_LINES,
            _ if what.ends_with(".sh") => SCRIPT_LINES,
            _ => FILE_LINES,
        };
        let may: usize = listed.remove(what).unwrap_or(limit);
        if *length > may {
            problems.push(format!("{what}: {length} lines, at most {may}: split it"));
        } else if *length < may {
            problems.push(format!("{what}: now {length} lines: lower it in xtask/ratchet.txt"));
        }
    }
    problems.extend(listed.keys().map(|what| format!("{what}: remove it from xtask/ratchet.txt")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let source = Source { path: path.to_string(), text: text.to_string() };
        let mut problems = Vec::new();
        head_comment(&source, &mut problems);
        columns(&source, &mut problems);
        words(&source, &mut problems);
        problems
    }

    #[test]
    fn engine_crates_may_not_touch_the_outside() {
        let text = "//! x\nuse std::time::Instant;\nfn f() { todo!() }\n";
        assert_eq!(findings("crates/log/src/a.rs", text).len(), 2);
        assert_eq!(findings("crates/io/src/a.rs", text).len(), 1);
        assert_eq!(findings("crates/bench/src/a.rs", text).len(), 0);
        assert_eq!(findings("crates/log/src/a_tests.rs", text).len(), 0);
    }

    #[test]
    fn inline_tests_and_comments_are_free() {
        let text = "//! x\n// an Instant later\n#[cfg(test)]\nmod tests {\n use std::fs;\n}\n";
        assert!(findings("crates/log/src/a.rs", text).is_empty());
        assert_eq!(findings("crates/log/src/a.rs", "fn f() {}\n").len(), 1);
    }

    #[test]
    fn long_lines_and_functions_are_found() {
        let long = format!("//! {}\n", "x".repeat(100));
        assert_eq!(findings("crates/log/src/a.rs", &long).len(), 1);
        let body = "    a();\n".repeat(80);
        let text = format!("pub fn f() {{\n{body}}}\nfn g() {{}}\n");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(functions(&lines), [("f".to_string(), 82)]);
    }

    #[test]
    fn long_scripts_of_bash_are_found() {
        let mut lengths = BTreeMap::new();
        for (path, lines) in [("scripts/short.sh", 60), ("scripts/long.sh", 61)] {
            let script = Source { path: path.to_string(), text: "true\n".repeat(lines) };
            measure_script(&script, &mut lengths);
        }
        assert_eq!(lengths, BTreeMap::from([("scripts/long.sh".to_string(), 61)]));
        let found = ratchet(Path::new("no such folder"), &lengths);
        assert_eq!(found, ["scripts/long.sh: 61 lines, at most 60: split it"]);
    }
}
