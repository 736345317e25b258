//! Checks the licences of all dependencies, from `cargo metadata`, and their sources, from every
//! `Cargo.lock`. `cargo deny` checks the same and more, but takes minutes to install; this runs
//! everywhere.

use std::fs;
use std::path::Path;
use std::process::Command;

/// As in `deny.toml`: compatible with GPL-2.0-only, so Apache-2.0 alone is not allowed.
const ALLOWED: &[&str] = &[
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "Zlib",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "0BSD",
    "BSL-1.0",
];

/// The lock files; each belongs to a workspace of its own.
const LOCKS: &[&str] = &["Cargo.lock", "crates/bench-compare/peers/Cargo.lock", "fuzz/Cargo.lock"];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Packages whose licence or source is not allowed.
pub fn check(root: &Path) -> Vec<String> {
    let mut problems = licences(root);
    for lock in LOCKS {
        match fs::read_to_string(root.join(lock)) {
            Ok(text) => problems.extend(bad_sources(lock, &text)),
            Err(error) => problems.push(format!("{lock}: {error}")),
        }
    }
    problems
}

/// Packages of a `Cargo.lock` that are neither local nor from crates.io with a checksum.
fn bad_sources(lock: &str, text: &str) -> Vec<String> {
    let mut bad = Vec::new();
    for package in text.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let mut lines = package.lines();
            lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        let name = field("name").unwrap_or("?");
        match field("source") {
            // A local package, found by its path.
            None if name.starts_with("evenkeel") || name == "xtask" => {}
            None => bad.push(format!("{lock}: {name} is of a path, and not one of ours")),
            Some(source) if source != REGISTRY => {
                bad.push(format!("{lock}: {name} comes from {source}, not from crates.io"));
            }
            Some(_) if field("checksum").is_none() => {
                bad.push(format!("{lock}: {name} has no checksum"));
            }
            Some(_) => {}
        }
    }
    bad
}

fn licences(root: &Path) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output();
    let text = match output {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => return vec![String::from_utf8_lossy(&output.stderr).into_owned()],
        Err(error) => return vec![format!("cargo metadata: {error}")],
    };
    bad_packages(&String::from_utf8_lossy(&text))
}

fn bad_packages(metadata: &str) -> Vec<String> {
    let mut bad = Vec::new();
    for package in metadata.split("{\"name\":\"").skip(1) {
        let Some((name, rest)) = package.split_once("\",\"version\":\"") else { continue };
        let Some((_, rest)) = rest.split_once("\"license\":") else { continue };
        let licence = rest.strip_prefix('"').and_then(|r| r.split('"').next()).unwrap_or("none");
        if !allowed(licence) {
            bad.push(format!("dependency {name}: licence {licence} is not allowed (deny.toml)"));
        }
    }
    bad
}

/// True if every part joined by AND has an allowed alternative.
fn allowed(licence: &str) -> bool {
    licence.split(" AND ").all(|part| {
        part.replace('/', " OR ")
            .split(" OR ")
            .any(|one| ALLOWED.contains(&one.trim_matches(|c| " ()".contains(c))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apache_alone_is_refused() {
        assert!(allowed("MIT OR Apache-2.0") && allowed("Apache-2.0/MIT") && allowed("Zlib"));
        assert!(allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!allowed("Apache-2.0") && !allowed("GPL-3.0") && !allowed("none"));
        let text = r#"{"packages":[{"name":"a","version":"1","id":"x","license":"Apache-2.0"},
            {"name":"b","version":"1","id":"y","license":"MIT"}]}"#;
        assert_eq!(bad_packages(text).len(), 1);
    }

    #[test]
    fn sources_other_than_crates_io_are_refused() {
        let package = |name: &str, rest: &str| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\n{rest}\n")
        };
        let from = |source: &str| format!("source = \"{source}\"\nchecksum = \"00ff\"\n");
        let text = [
            "version = 4\n".to_string(),
            package("evenkeel-io", "dependencies = [\n \"good\",\n]\n"),
            package("good", &from(REGISTRY)),
            package("mirror", &from("registry+https://example.org/index")),
            package("branch", "source = \"git+https://example.org/branch?rev=1#1\"\n"),
            package("vendored", ""),
            package("unsigned", &format!("source = \"{REGISTRY}\"\n")),
        ];
        let found = bad_sources("Cargo.lock", &text.concat());
        let named = |name: &str| found.iter().any(|line| line.contains(&format!(" {name} ")));
        assert!(["mirror", "branch", "vendored", "unsigned"].iter().all(|n| named(n)), "{found:?}");
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(bad_sources("Cargo.lock", &text[..3].concat()), Vec::<String>::new());
    }
}
