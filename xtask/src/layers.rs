//! The layers: which crate may depend on which. A dependency that is not listed here fails `tidy`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A crate's directory and the crates directly below it; indirect dependencies are allowed too.
const LAYERS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("io", &["base"]),
    ("sched", &["io"]),
    ("format", &["base"]),
    ("log", &["sched", "format"]),
    ("pages", &["log"]),
    ("tree", &["pages"]),
    ("runs", &["pages"]),
    ("txn", &["log"]),
    ("tables", &["tree", "runs", "txn"]),
    ("evenkeel", &["tables"]),
    ("capi", &["evenkeel"]),
    ("bench", &["evenkeel"]),
    ("lab", &["evenkeel"]),
    ("tools", &["evenkeel"]),
    ("salvage", &["evenkeel"]),
    ("cli", &["bench", "lab", "salvage", "tools"]),
    ("sim", &["evenkeel", "tools"]),
    ("trust", &["evenkeel", "tools"]),
    ("bench-compare", &["bench"]),
    ("xtask", &[]),
];

/// All crates that `package` may depend on.
fn below(package: &str) -> Option<BTreeSet<&'static str>> {
    let (_, direct) = LAYERS.iter().find(|(name, _)| *name == package)?;
    let mut all = BTreeSet::new();
    for lower in *direct {
        all.insert(*lower);
        all.extend(below(lower)?);
    }
    Some(all)
}

/// Dependencies that the layers do not allow.
pub fn check(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    let mut manifests = vec![("xtask".to_string(), root.join("xtask/Cargo.toml"))];
    for entry in fs::read_dir(root.join("crates")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            manifests.push((name, entry.path().join("Cargo.toml")));
        }
    }
    for (name, _) in LAYERS {
        if !manifests.iter().any(|(package, _)| package == name) {
            problems.push(format!("xtask/src/layers.rs: there is no crate {name}"));
        }
    }
    for (package, manifest) in manifests {
        let Some(allowed) = below(&package) else {
            problems.push(format!("crates/{package}: not in the layers of xtask/src/layers.rs"));
            continue;
        };
        let text = fs::read_to_string(&manifest).unwrap_or_default();
        for used in dependencies(&text) {
            if used != package && !allowed.contains(used.as_str()) {
                problems
                    .push(format!("crates/{package} must not depend on {used}: arrows point down"));
            }
        }
    }
    problems
}

/// Directory names of this repository's crates in any dependency section of a manifest.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.contains("dependencies");
        }
        let name: String =
            line.chars().take_while(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect();
        if inside && name == "evenkeel" {
            found.push(name);
        } else if inside && let Some(short) = name.strip_prefix("evenkeel-") {
            found.push(short.to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_crate_may_not_depend_on_a_higher_one() {
        let pages = below("pages").expect("listed");
        assert!(pages.contains("log") && pages.contains("base"));
        assert!(!pages.contains("tree") && !pages.contains("txn"));
        assert!(below("cli").expect("listed").contains("format"));
        assert!(below("nonesuch").is_none());
    }

    #[test]
    fn reads_every_dependency_section() {
        let text = "[package]\nname = \"evenkeel-x\"\n[dependencies]\nevenkeel-io = {}\n\
                    log = \"1\"\n[dev-dependencies]\nevenkeel = { path = \"..\" }\n[lints]\n";
        assert_eq!(dependencies(text), ["io", "evenkeel"]);
    }
}
