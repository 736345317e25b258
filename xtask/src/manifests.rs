//! Checks what crates.io, docs.rs and their readers need of each published crate: the fields of its
//! manifest, a readme, both licences, exact versions of our own crates, and no source file that
//! reads a file from outside of its crate. All other crates say that they are not published.

use crate::source::{Source, code};
use std::fs;
use std::path::{Component, Path};

/// The library and the layers that it is made of, by directory.
pub const PUBLISHED: &[&str] =
    &["base", "io", "sched", "format", "log", "pages", "tree", "runs", "txn", "tables", "evenkeel"];

/// What each manifest of a published crate has in `[package]`.
const INHERITED: &[&str] =
    &["version", "edition", "rust-version", "license", "keywords", "categories"];

const LICENCES: &[&str] = &["LICENSE-MIT", "LICENSE-APACHE"];

/// Of crates.io.
const KEYWORDS: usize = 5;
const KEYWORD_BYTES: usize = 20;

/// Every finding.
pub fn check(root: &Path, sources: &[Source]) -> Vec<String> {
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let mut problems = of_workspace(&workspace);
    for name in crates(root) {
        let folder = root.join("crates").join(&name);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        let found = of_manifest(&name, &manifest);
        problems.extend(found.into_iter().map(|what| format!("crates/{name}/Cargo.toml: {what}")));
        if !PUBLISHED.contains(&name.as_str()) {
            continue;
        }
        let readme = value(&manifest, "readme").unwrap_or_default();
        if !folder.join(readme).is_file() {
            problems.push(format!("crates/{name}/Cargo.toml: no such readme: {readme}"));
        }
        if folder.join("tests").is_dir() && !manifest.contains("\nexclude = [\"/tests\"]\n") {
            problems.push(format!("crates/{name}/Cargo.toml: needs `exclude = [\"/tests\"]`"));
        }
        for licence in LICENCES {
            let ours = fs::read(root.join(licence)).unwrap_or_default();
            if ours.is_empty() || fs::read(folder.join(licence)).unwrap_or_default() != ours {
                problems.push(format!("crates/{name}: {licence} is not that of the repository"));
            }
        }
    }
    problems.extend(sources.iter().flat_map(leaving));
    problems
}

fn crates(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().join("Cargo.toml").is_file());
    let mut names: Vec<_> =
        folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn package_name(directory: &str) -> String {
    if directory == "evenkeel" { directory.to_string() } else { format!("evenkeel-{directory}") }
}

/// The string that a key has anywhere in a manifest.
fn value<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = manifest.lines();
    lines.find_map(|l| l.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
}

/// The manifest of the workspace: keywords, and the versions that published crates depend on.
fn of_workspace(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    let keywords: Vec<_> = line("keywords = [").split('"').skip(1).step_by(2).collect();
    let is_keyword = |word: &&str| {
        word.len() <= KEYWORD_BYTES && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    };
    if keywords.is_empty() || keywords.len() > KEYWORDS || !keywords.iter().all(is_keyword) {
        problems.push(format!("Cargo.toml: keywords that crates.io refuses: {keywords:?}"));
    }
    let version = value(text, "version").unwrap_or_default();
    for name in PUBLISHED {
        let package = package_name(name);
        let wanted = format!("{package} = {{ path = \"crates/{name}\", version = \"={version}\"");
        if !line(&format!("{package} = ")).starts_with(&wanted) {
            problems.push(format!("Cargo.toml: a published crate is depended on as `{wanted}`"));
        }
    }
    problems
}

fn of_manifest(name: &str, manifest: &str) -> Vec<String> {
    let has = |line: &str| manifest.lines().any(|found| found == line);
    if !PUBLISHED.contains(&name) {
        let is_kept = has("publish.workspace = true");
        return if is_kept { Vec::new() } else { vec!["needs `publish.workspace = true`".into()] };
    }
    let mut problems = Vec::new();
    let mut wants = |is_right: bool, what: String| {
        if !is_right {
            problems.push(what);
        }
    };
    for key in INHERITED {
        wants(has(&format!("{key}.workspace = true")), format!("needs `{key}.workspace = true`"));
    }
    let package = package_name(name);
    wants(value(manifest, "name") == Some(&package), format!("is not named {package}"));
    wants(
        value(manifest, "description").is_some_and(|text| !text.is_empty()),
        "no description".into(),
    );
    let page = format!("https://docs.rs/{package}");
    wants(value(manifest, "documentation") == Some(&page), format!("documentation is not {page}"));
    wants(has("[package.metadata.docs.rs]"), "needs [package.metadata.docs.rs]".into());
    wants(!manifest.contains("publish"), "is published, and says something else".into());
    let mut is_dependency = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_dependency = line.contains("dependencies");
        }
        let used = line.split([' ', '.', '=']).next().unwrap_or_default();
        let short = used.strip_prefix("evenkeel-").unwrap_or(used);
        let is_ours = is_dependency && used.starts_with("evenkeel");
        wants(!is_ours || PUBLISHED.contains(&short), format!("{used} is not published"));
        // Cargo leaves a dependency on itself out of the package.
        let is_path = line.contains("path =") && !line.contains("path = \".\"");
        wants(!(is_dependency && is_path), format!("a path: {line}"));
    }
    problems
}

/// Files that a source file of a published crate includes from outside of the crate.
fn leaving(source: &Source) -> Vec<String> {
    let Some(within) = source.path.strip_prefix("crates/") else { return Vec::new() };
    let Some((name, path)) = within.split_once('/') else { return Vec::new() };
    // `exclude` keeps the crate's tests out of its package.
    if !PUBLISHED.contains(&name) || path.starts_with("tests/") {
        return Vec::new();
    }
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let mut problems = Vec::new();
    for (i, line) in source.text.lines().enumerate() {
        for call in ["include_str!(\"", "include_bytes!(\"", "include!(\"", "path = \""] {
            let Some((_, rest)) = code(line).split_once(call) else { continue };
            let included = rest.split('"').next().unwrap_or_default();
            if leaves(&folder.join(included)) {
                let at = format!("{}:{}", source.path, i + 1);
                problems.push(format!("{at}: {included} is outside of the published crate"));
            }
        }
    }
    problems
}

/// Whether a path leads out of the folder that it begins in.
fn leaves(path: &Path) -> bool {
    let mut depth = 0;
    for component in path.components() {
        depth += match component {
            Component::Normal(_) => 1,
            Component::ParentDir => -1,
            _ => 0,
        };
        if depth < 0 {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"[package]
name = "evenkeel-log"
description = "The log."
version.workspace = true
edition.workspace = true
rust-version.workspace = true
license.workspace = true
readme = "../README.md"
documentation = "https://docs.rs/evenkeel-log"
keywords.workspace = true
categories.workspace = true

[package.metadata.docs.rs]

[dependencies]
evenkeel-base.workspace = true
log.workspace = true
"#;

    #[test]
    fn each_field_that_is_missing_or_wrong_is_found() {
        assert_eq!(of_manifest("log", GOOD), Vec::<String>::new());
        let needed = GOOD.lines().skip(1).filter(|line| !line.starts_with("readme"));
        for line in needed.take_while(|line| *line != "[dependencies]") {
            let without: String =
                GOOD.lines().filter(|l| *l != line).map(|l| format!("{l}\n")).collect();
            let found = of_manifest("log", &without).len();
            assert_eq!(found, usize::from(!line.is_empty()), "without {line}");
        }
        let wrong = [
            ("evenkeel-base.workspace", "evenkeel-sim.workspace"),
            ("log.workspace = true\n", "log = { path = \"../x\" }\n"),
            ("[dependencies]", "publish = false\n[dependencies]"),
            ("docs.rs/evenkeel-log", "docs.rs/evenkeel"),
        ];
        for (from, to) in wrong {
            let changed = GOOD.replacen(from, to, 1);
            assert_eq!(of_manifest("log", &changed).len(), 1, "{to}");
        }
        assert_eq!(of_manifest("sim", GOOD).len(), 1);
        assert_eq!(of_manifest("sim", "publish.workspace = true\n").len(), 0);
    }

    #[test]
    fn dependencies_name_the_exact_version() {
        let mut text = "version = \"1.2.3\"\nkeywords = [\"a\", \"b-c\"]\n".to_string();
        for name in PUBLISHED {
            let package = package_name(name);
            text += &format!("{package} = {{ path = \"crates/{name}\", version = \"=1.2.3\" }}\n");
        }
        assert_eq!(of_workspace(&text), Vec::<String>::new());
        assert_eq!(of_workspace(&text.replacen("=1.2.3", "1.2.3", 1)).len(), 1);
        assert_eq!(
            of_workspace(&text.replace("version = \"1.2.3\"", "version = \"1.2.4\"")).len(),
            11
        );
        assert_eq!(of_workspace(&text.replace("b-c", "much-too-long-a-keyword")).len(), 1);
    }

    #[test]
    fn included_files_lie_in_the_crate() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let found = |path: &str, up: &str| {
            leaving(&source(path, &format!("#[doc = include_str!(\"{up}a.md\")]\n"))).len()
        };
        assert_eq!(found("crates/log/src/lib.rs", "../"), 0);
        assert_eq!(found("crates/log/src/lib.rs", "../../"), 1);
        assert_eq!(found("crates/log/src/deep/lib.rs", "../../"), 0);
        assert_eq!(found("crates/log/tests/lib.rs", "../../../"), 0);
        assert_eq!(found("crates/tools/src/lib.rs", "../../../"), 0);
    }
}
