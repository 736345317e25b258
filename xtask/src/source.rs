//! Finds and reads the repository's Rust files, and distinguishes code from comments and tests.

use std::fs;
use std::path::Path;

/// One Rust file.
pub struct Source {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// The crate's directory name: "pages" for `crates/pages/src/pool.rs`.
    pub fn package(&self) -> &str {
        self.path.strip_prefix("crates/").and_then(|p| p.split('/').next()).unwrap_or("")
    }

    /// True for files that hold only tests.
    pub fn is_test_file(&self) -> bool {
        let inside = |dir: &str| self.path.contains(dir);
        self.path.ends_with("_tests.rs") || inside("/tests/") || inside("/examples/")
    }

    /// Lines with their numbers, up to the inline test module if there is one.
    pub fn lines_outside_tests(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let end = lines
            .windows(2)
            .position(|w| w[0].trim() == "#[cfg(test)]" && w[1].ends_with('{'))
            .unwrap_or(lines.len());
        let end = if self.is_test_file() { 0 } else { end };
        lines.into_iter().take(end).enumerate().map(|(i, line)| (i + 1, line))
    }
}

/// The part of a line before a `//` comment.
pub fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

/// True if `word` occurs in `text` without an adjacent letter, digit or `_`.
pub fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}

/// Every Rust file of the repository, sorted by path.
pub fn all(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    for top in ["crates", "xtask", "fuzz", "examples"] {
        walk(root, &root.join(top), &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if name != "target" {
                walk(root, &path, found);
            }
        } else if path.extension().is_some_and(|e| e == "rs")
            && let (Ok(text), Ok(short)) = (fs::read_to_string(&path), path.strip_prefix(root))
        {
            found.push(Source { path: short.to_string_lossy().into_owned(), text });
        }
    }
}
