//! Checks the errors that doc comments promise. Each name in a section `# Errors` of the engine
//! must be an entry of the catalogue, `crates/base/src/codes.rs`, or one of its kinds.

use crate::source::Source;
use crate::tables::entries;
use std::collections::BTreeSet;

/// Promised errors that do not exist.
pub fn check(sources: &[Source], engine: &[&str]) -> Vec<String> {
    let catalogue = sources.iter().find(|s| s.path == "crates/base/src/codes.rs");
    let catalogue = entries(catalogue.map_or("", |s| &s.text), "codes", ';');
    let known: BTreeSet<&str> = catalogue
        .iter()
        .flat_map(|e| std::iter::once(&e.name).chain(e.values.first()).map(String::as_str))
        .collect();
    let of_engine = sources.iter().filter(|source| engine.contains(&source.package()));
    of_engine.flat_map(|source| find(source, &known)).collect()
}

fn find(source: &Source, known: &BTreeSet<&str>) -> Vec<String> {
    let (mut problems, mut inside) = (Vec::new(), false);
    for (i, line) in source.text.lines().enumerate() {
        let Some(doc) = line.trim_start().strip_prefix("///") else {
            inside = false;
            continue;
        };
        let promised = match doc.split_once("# Errors") {
            Some((_, behind)) => behind,
            None if inside && !doc.trim_start().starts_with('#') => doc,
            None => {
                inside = false;
                continue;
            }
        };
        inside = true;
        for name in promised.split('`').skip(1).step_by(2) {
            if is_name(name) && !known.contains(name) {
                let place = format!("{}:{}", source.path, i + 1);
                problems.push(format!("{place}: `{name}` is no error of the catalogue"));
            }
        }
    }
    problems
}

/// True if the text has the form of an error name: `DiskFull`.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(char::is_alphanumeric)
        && text.contains(|c: char| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promised_errors_that_do_not_exist_are_found() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let text = "/// Takes `Other`.\n///\n/// # Errors\n/// `DiskFull` (kind `Full`),\n\
                    /// `Wrong`; as `get`.\n///\n/// # Panics\n/// `Never`.\nfn one() {}\n\
                    /// Reads. # Errors: `Wrong`.\nfn two() {}\n/// Not `Wrong`.\nfn three() {}\n";
        let sources = [
            source("crates/base/src/codes.rs", "\ncodes! {\n    DiskFull = Full, \"a\";\n}\n"),
            source("crates/io/src/a.rs", text),
            source("crates/bench/src/a.rs", text),
        ];
        let found = check(&sources, &["base", "io"]);
        let wrong = "`Wrong` is no error of the catalogue";
        let at = |line: u32| format!("crates/io/src/a.rs:{line}: {wrong}");
        assert_eq!(found, [at(5), at(10)]);
    }
}
