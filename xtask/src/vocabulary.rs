//! Refuses retired words, and two types of the same name.
//!
//! `xtask/retired_words.tsv` has a line for each word: its kind, the word, and its replacement. A
//! `file` must not be the name of a source file. An `ident` must not be an identifier in Rust or
//! C++. A `name` must not be a metric, cause, law, error or table of the information schema, in
//! code, scripts and pages. A `heading` must not occur in a heading of a page.
//!
//! Within the crates of the engine, two types that are visible outside their files must have
//! different names; `xtask/same_names.tsv` lists the exceptions, each with its reason.

use crate::source::{Source, code, has_word};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const WORDS: &str = "xtask/retired_words.tsv";
const SAME: &str = "xtask/same_names.tsv";

/// Pages about the past, which may use the words of their time.
const HISTORY: [&str; 3] = ["CHANGELOG.md", "docs/rfcs", "xtask"];

struct Word<'a> {
    kind: &'a str,
    word: &'a str,
    instead: &'a str,
}

/// Every finding.
pub fn check(root: &Path, sources: &[Source], engine: &[&str]) -> Vec<String> {
    let text = fs::read_to_string(root.join(WORDS)).unwrap_or_default();
    let words = table(&text);
    let mut problems = Vec::new();
    if words.is_empty() {
        problems.push(format!("{WORDS}: no words"));
    }
    let others = others(root);
    for source in sources.iter().chain(&others).filter(|source| !is_history(&source.path)) {
        retired(source, &words, &mut problems);
    }
    let allowed = fs::read_to_string(root.join(SAME)).unwrap_or_default();
    problems.extend(same_names(sources, engine, &allowed));
    problems
}

fn is_history(path: &str) -> bool {
    HISTORY.iter().any(|part| path.starts_with(part))
}

fn table(text: &str) -> Vec<Word<'_>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let word = |line: &'_ str| -> Option<(usize, usize)> {
        let first = line.find('\t')?;
        Some((first, first + 1 + line[first + 1..].find('\t')?))
    };
    lines
        .filter_map(|line| {
            let (a, b) = word(line)?;
            Some(Word { kind: &line[..a], word: &line[a + 1..b], instead: &line[b + 1..] })
        })
        .collect()
}

/// Scripts, pages and the plugin.
pub fn others(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    for top in ["README.md", "ARCHITECTURE.md", "STYLE.md", "docs", "scripts", "plugin", "tools"] {
        walk(root, &root.join(top), &mut found);
    }
    found
}

fn walk(root: &Path, path: &Path, found: &mut Vec<Source>) {
    if path.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths.iter().for_each(|path| walk(root, path, found));
        return;
    }
    let kinds = ["md", "py", "sh", "cc", "h", "def", "test", "inc", "result"];
    let of_text = path.extension().and_then(|e| e.to_str()).is_some_and(|e| kinds.contains(&e));
    if of_text && let (Ok(text), Ok(short)) = (fs::read_to_string(path), path.strip_prefix(root)) {
        found.push(Source { path: short.to_string_lossy().into_owned(), text });
    }
}

fn retired(source: &Source, words: &[Word<'_>], problems: &mut Vec<String>) {
    let path = source.path.as_str();
    let is_code = [".rs", ".cc", ".h"].iter().any(|end| path.ends_with(end));
    let mut find = |at: usize, word: &Word<'_>| {
        problems.push(format!("{path}:{at}: retired: {}: {}", word.word, word.instead));
    };
    for word in words.iter().filter(|word| word.kind == "file" && path == word.word) {
        find(1, word);
    }
    for word in words {
        let suspect = |line: &str| match word.kind {
            "ident" => is_code && has_word(&without_strings(code(line)), word.word),
            // Result files of old runs have the old field names.
            "name" => has_name(line, word.word) && !line.contains("serde(alias"),
            "heading" => {
                path.ends_with(".md")
                    && line.starts_with('#')
                    && has_word(&line.to_lowercase(), word.word)
            }
            _ => false,
        };
        if word.kind == "heading" || source.text.contains(word.word) {
            let lines = source.text.lines().enumerate();
            lines.filter(|(_, line)| suspect(line)).for_each(|(i, _)| find(i + 1, word));
        }
    }
}

/// True if the line contains the name, alone or behind `Evenkeel_`.
fn has_name(line: &str, name: &str) -> bool {
    has_word(line, name)
        || has_word(line, &format!("Evenkeel_{name}"))
        || has_word(line, &format!("evenkeel_{name}"))
}

/// The line without its quoted strings.
fn without_strings(line: &str) -> String {
    line.split('"').step_by(2).collect::<Vec<_>>().join("\"")
}

/// Type names that two files of the engine make visible to other files.
fn same_names(sources: &[Source], engine: &[&str], allowed: &str) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|s| engine.contains(&s.package())) {
        for (number, line) in source.lines_outside_tests() {
            if let Some(name) = visible_type(line) {
                let place = format!("{}:{number}", source.path);
                places.entry(name.to_string()).or_default().push(place);
            }
        }
    }
    let lines = allowed.lines().filter(|line| !line.starts_with('#'));
    let mut allowed: BTreeSet<&str> = BTreeSet::new();
    let mut problems = Vec::new();
    for line in lines {
        match line.split_once('\t') {
            Some((name, reason)) if !reason.trim().is_empty() => drop(allowed.insert(name)),
            _ => problems.push(format!("{SAME}: no reason: {line}")),
        }
    }
    for (name, at) in places.iter().filter(|(_, at)| at.len() > 1) {
        if !allowed.remove(name.as_str()) {
            let at = at.join(", ");
            problems.push(format!("{at}: types of one name, `{name}`: give each its own"));
        }
    }
    let stale = allowed.iter().map(|name| format!("{SAME}: remove {name}: its name is its own"));
    problems.extend(stale);
    problems
}

/// The name of a type that the line defines with visibility outside the file.
fn visible_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(inner) => inner.strip_prefix("crate)")?,
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    let kinds = ["struct ", "enum ", "union ", "type ", "trait "];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn retired_words_are_found_where_they_count() {
        let words = table(
            "# no\nident\tGhosts\tGhostCache\nname\twal_syncs\tlog_syncs\n\
                           file\tcrates/a/src/old.rs\tnew\nheading\tstall\twait\n",
        );
        let found = |path: &str, text: &str| {
            let mut problems = Vec::new();
            retired(&source(path, text), &words, &mut problems);
            problems.len()
        };
        assert_eq!(found("crates/a/src/a.rs", "struct Ghosts;\n// Ghosts\nf(\"Ghosts\");\n"), 1);
        assert_eq!(found("scripts/a.py", "s[\"wal_syncs\"]\nEvenkeel_wal_syncs\nlog_syncs\n"), 2);
        assert_eq!(found("crates/a/src/old.rs", "fn f() {}\n"), 1);
        assert_eq!(found("docs/a.md", "## The stall\nA stall.\n"), 1);
    }

    #[test]
    fn types_of_one_name_are_found_and_reasons_are_asked_for() {
        let sources = [
            source("crates/io/src/a.rs", "pub struct Place;\npub(crate) enum One {}\n"),
            source("crates/log/src/b.rs", "pub(crate) struct Place<T>(T);\nstruct One;\n"),
            source("crates/bench/src/b.rs", "pub struct Place;\n"),
        ];
        let find = |allowed: &str| same_names(&sources, &["io", "log"], allowed);
        assert_eq!(find("").len(), 1);
        assert!(find("").remove(0).contains("`Place`"));
        assert!(find("Place\tthe two are one by design\n").is_empty());
        assert_eq!(find("Place\t \nOne\tnone\n").len(), 3);
    }
}
