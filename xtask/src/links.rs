//! Checks that the targets of the hand-written pages exist: links between pages with their anchors,
//! and files that pages name in backticks (`crates/log/src/{a,b}.rs`). Each page of `docs` is in
//! `docs/SUMMARY.md`, the contents of the manual; `scripts/manual.py` adds the RFCs to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Pages outside of `docs`.
const OTHERS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "STYLE.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "crates/README.md",
    "crates/evenkeel/README.md",
    "crates/trust/corpus/README.md",
    "plugin/mariadb/README.md",
    "plugin/mariadb/mysql-test/README.md",
];

/// Links and file names without a target, and pages that the manual lacks.
pub fn check(root: &Path) -> Vec<String> {
    let mut pages: Vec<_> = OTHERS.iter().map(|name| root.join(name)).collect();
    walk(&root.join("docs"), &mut pages);
    let mut problems = summary(root, &pages);
    let mut anchors_of = BTreeMap::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap_or_default();
        let dir = page.parent().unwrap_or(root);
        let short = page.strip_prefix(root).unwrap_or(&page).display();
        for (file, anchor) in links(&text) {
            let to = if file.is_empty() { page.clone() } else { dir.join(file) };
            if !to.exists() {
                problems.push(format!("{short}: a link leads nowhere: {file}"));
            } else if !anchor.is_empty() && to.extension().is_some_and(|e| e == "md") {
                let read = |to: &Path| anchors(&fs::read_to_string(to).unwrap_or_default());
                let known = anchors_of.entry(to.clone()).or_insert_with(|| read(&to));
                if !known.contains(anchor) {
                    problems.push(format!("{short}: no such heading: {file}#{anchor}"));
                }
            }
        }
        for name in named(&text).filter(|name| !root.join(name).exists()) {
            problems.push(format!("{short}: no such file: {name}"));
        }
    }
    problems
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// Pages of `docs` that the contents of the manual do not name exactly once.
fn summary(root: &Path, pages: &[PathBuf]) -> Vec<String> {
    let docs = root.join("docs");
    let text = fs::read_to_string(docs.join("SUMMARY.md")).unwrap_or_default();
    let named: Vec<_> = links(&text).map(|(file, _)| docs.join(file)).collect();
    let mut problems = Vec::new();
    for page in pages.iter().filter(|page| page.starts_with(&docs)) {
        let count = named.iter().filter(|name| *name == page).count();
        let short = page.strip_prefix(root).unwrap_or(page).display();
        let added = page.starts_with(docs.join("rfcs")) && !page.ends_with("README.md");
        if !page.ends_with("SUMMARY.md") && count != usize::from(!added) {
            problems.push(format!("docs/SUMMARY.md: names {short} {count} times"));
        }
    }
    problems
}

/// Targets of links within the repository: the file, which may be empty, and what is behind `#`.
fn links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices("](").filter_map(|(at, _)| {
        let rest = &text[at + 2..];
        let link = &rest[..rest.find(')')?];
        let is_ours = !link.is_empty() && !link.contains("://") && !link.contains([' ', '\n']);
        is_ours.then(|| link.split_once('#').unwrap_or((link, "")))
    })
}

/// The anchors of a page's headings, as mdBook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.starts_with("```");
        let title = line.trim_start_matches('#');
        if in_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let anchor: String = title.trim().to_lowercase().chars().filter(kept).collect();
        let anchor = anchor.replace(' ', "-");
        let repeated = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(repeated).find(|a| !found.contains(a));
        found.extend(free);
    }
    found
}

/// Files named in backticks by their path in the repository, with braces expanded.
fn named(text: &str) -> impl Iterator<Item = String> {
    let tops = ["crates/", "docs/", "xtask/", "scripts/", "tools/"];
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.filter(move |name| tops.iter().any(|top| name.starts_with(top))).flat_map(|name| {
        let name = name.split([' ', '*']).next().unwrap_or("");
        match (name.find('{'), name.find('}')) {
            (Some(open), Some(close)) if open < close => {
                let parts = name[open + 1..close].split(',');
                parts.map(|part| [&name[..open], part, &name[close + 1..]].concat()).collect()
            }
            _ => vec![name.to_string()],
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_links_and_files() {
        let text = "[a](b.md) [c](https://d) [e](f.md#g) [h](#i)\n`crates/x/{y,z}.rs` `cargo x`\n";
        let found = [("b.md", ""), ("f.md", "g"), ("", "i")];
        assert_eq!(links(text).collect::<Vec<_>>(), found);
        assert_eq!(named(text).collect::<Vec<_>>(), ["crates/x/y.rs", "crates/x/z.rs"]);
        assert_eq!(named("`docs/format/*.md`").collect::<Vec<_>>(), ["docs/format/"]);
    }

    #[test]
    fn anchors_are_those_of_headings() {
        let text = "# One, `two_three`: A-b\n```\n# code\n```\n## Again\n## Again\n#no\n";
        let found = anchors(text).into_iter().collect::<Vec<_>>();
        assert_eq!(found, ["again", "again-1", "one-two_three-a-b"]);
    }

    #[test]
    fn a_page_that_the_manual_lacks_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = |name: &str| root.join("docs").join(name);
        assert_eq!(summary(&root, &[page("glossary.md"), page("rfcs/0007-x.md")]), [""; 0]);
        assert_eq!(summary(&root, &[page("guide/nonesuch.md")]).len(), 1);
    }
}
