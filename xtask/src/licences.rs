//! The licences of all dependencies, from `cargo metadata`. `cargo deny` says the same and more,
//! but takes minutes to install; this runs everywhere.

use std::path::Path;
use std::process::Command;

/// As in `deny.toml`: compatible with GPL-2.0-only, so never Apache-2.0 alone.
const ALLOWED: &[&str] =
    &["MIT", "BSD-2-Clause", "BSD-3-Clause", "Zlib", "ISC", "Unicode-3.0", "Unlicense", "0BSD"];

/// Packages whose licence is not allowed.
pub fn check(root: &Path) -> Vec<String> {
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

/// Every part joined by AND needs one allowed alternative.
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
}
