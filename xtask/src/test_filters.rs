//! Checks the test names in `cargo test` commands of scripts and pages: `cargo test` succeeds if
//! its filter matches no test, so a renamed test would no longer run.
//!
//! A command is `cargo test`, or `"${tests[@]}"` of the release ladder. Its filters are the words
//! that are neither options nor values of options. Each must be a part of the name of a test in the
//! file of `--test` or else in the package of `-p`.

use crate::source::Source;
use std::fs;
use std::path::Path;

/// What begins a command.
const COMMANDS: [&str; 2] = ["cargo test", "\"${tests[@]}\""];

/// Options whose next word is a value.
const VALUED: [&str; 9] = [
    "-p",
    "--test",
    "--profile",
    "--exclude",
    "--features",
    "--manifest-path",
    "--target",
    "--target-dir",
    "--test-threads",
];

/// Filters that match no test.
pub fn check(root: &Path, sources: &[Source]) -> Vec<String> {
    let texts = |dir: &str, end: &str| {
        let paths = fs::read_dir(root.join(dir)).into_iter().flatten().flatten();
        let mut paths: Vec<_> = paths.map(|entry| entry.path()).collect();
        paths.sort();
        let of = |path: &Path| path.extension().is_some_and(|found| found == end);
        let read = |path: &Path| Some((path.to_path_buf(), fs::read_to_string(path).ok()?));
        let paths = paths.into_iter().filter(|path| of(path));
        paths.filter_map(|path| read(&path)).collect::<Vec<_>>()
    };
    let scripts = texts("scripts", "sh").into_iter();
    let scripts = scripts.map(|(path, text)| (path, text.replace("\\\n", " ")));
    let pages = ["docs", "docs/internals", "docs/rfcs"].into_iter().flat_map(|d| texts(d, "md"));
    // A command on a page ends with its code span, which may continue on the next line.
    let pages = pages.map(|(path, text)| (path, text.replace('\n', " ").replace('`', "\n")));
    let mut problems = Vec::new();
    for (path, text) in scripts.chain(pages) {
        let short = path.strip_prefix(root).unwrap_or(&path).display();
        let found = find(&text, sources);
        problems.extend(found.into_iter().map(|what| format!("{short}: {what}")));
    }
    problems
}

fn find(text: &str, sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        for command in COMMANDS {
            if let Some((_, rest)) = line.split_once(command) {
                problems.extend(unmatched(rest, sources));
            }
        }
    }
    problems
}

/// The filters of one command that match no test.
fn unmatched(rest: &str, sources: &[Source]) -> Vec<String> {
    let (mut packages, mut file, mut filters) = (Vec::new(), None, Vec::new());
    let mut words = rest.split_whitespace();
    while let Some(word) = words.next() {
        if VALUED.contains(&word) {
            let value = words.next().unwrap_or_default();
            match word {
                "-p" => packages.push(value.strip_prefix("evenkeel-").unwrap_or(value)),
                "--test" => file = Some(value),
                _ => {}
            }
        } else if !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            filters.push(word);
        } else if !word.starts_with('-') {
            // The end of the command: a quotation, a variable, a pipe or the prose of a page.
            break;
        }
    }
    let is_searched = |source: &&Source| {
        let in_package = packages.is_empty() || packages.contains(&source.package());
        let in_file = file.is_none_or(|file| {
            let path = format!("/tests/{file}");
            source.path.ends_with(&format!("{path}.rs"))
                || source.path.contains(&format!("{path}/"))
        });
        in_package && in_file
    };
    let matches = |filter: &str| {
        let names = sources.iter().filter(is_searched).flat_map(|source| tests(&source.text));
        names.into_iter().any(|name| name.contains(filter))
    };
    filters.retain(|filter| !matches(filter));
    filters.iter().map(|filter| format!("no test matches `{filter}` of `cargo test`")).collect()
}

/// The names of the tests in a file.
fn tests(text: &str) -> Vec<&str> {
    let mut is_test = false;
    let mut names = Vec::new();
    for line in text.lines().map(str::trim) {
        is_test |= line == "#[test]";
        if is_test && let Some((name, _)) = line.strip_prefix("fn ").and_then(|l| l.split_once('('))
        {
            names.push(name);
            is_test = false;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_match_no_test_are_found() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let sources = [
            source("crates/log/tests/a.rs", "#[test]\nfn a_sync_fails() {}\nfn helper() {}\n"),
            source("crates/io/src/b.rs", "#[test]\n#[ignore]\nfn it_waits() {}\n"),
        ];
        let right = "rung cargo test --quiet -p evenkeel-log --test a a_sync -- --nocapture\n\
                     \"${tests[@]}\" -p evenkeel-io --lib -- --ignored it_waits\n\
                     # cargo test nothing\ncargo test -p evenkeel-io -- \"$@\"\n";
        assert!(find(right, &sources).is_empty(), "{:?}", find(right, &sources));
        for wrong in [
            "cargo test -p evenkeel-log --test a -- helper\n",
            "cargo test -p evenkeel-log it_waits\n",
            "\"${tests[@]}\" -p evenkeel-io --test a -- --nocapture a_sync\n",
        ] {
            assert_eq!(find(wrong, &sources).len(), 1, "{wrong}");
        }
    }
}
