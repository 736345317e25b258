//! Checks that the targets of the hand-written pages exist: links between pages, and the files that
//! `ARCHITECTURE.md` and the pages of `docs` name in backticks (`crates/log/src/{a,b}.rs`).

use std::fs;
use std::path::{Path, PathBuf};

/// Links and file names without a target.
pub fn check(root: &Path) -> Vec<String> {
    let mut pages = Vec::new();
    for name in ["README.md", "ARCHITECTURE.md", "STYLE.md", "CHANGELOG.md"] {
        pages.push(root.join(name));
    }
    walk(&root.join("docs"), &mut pages);
    let mut problems = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap_or_default();
        let dir = page.parent().unwrap_or(root);
        let short = page.strip_prefix(root).unwrap_or(&page).display();
        for target in links(&text).filter(|target| !dir.join(target).exists()) {
            problems.push(format!("{short}: a link leads nowhere: {target}"));
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

/// Targets of links to files, without the part behind `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("](").filter_map(|(at, _)| {
        let rest = &text[at + 2..];
        let link = &rest[..rest.find(')')?];
        let file = link.split('#').next().unwrap_or("");
        (!file.is_empty() && !link.contains("://")).then_some(file)
    })
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
        assert_eq!(links(text).collect::<Vec<_>>(), ["b.md", "f.md"]);
        assert_eq!(named(text).collect::<Vec<_>>(), ["crates/x/y.rs", "crates/x/z.rs"]);
        assert_eq!(named("`docs/format/*.md`").collect::<Vec<_>>(), ["docs/format/"]);
    }
}
