//! Checks and generators for the repository, run as `cargo xtask COMMAND`. This crate has no
//! dependencies, so that it builds in a second. `tidy` checks the rules of `STYLE.md` that a
//! program can check; `docs` writes `docs/reference` from the tables in the code.

mod circles;
mod dashboards;
mod docs;
mod error_names;
mod layers;
mod licences;
mod links;
mod manifests;
mod rules;
mod source;
mod string_names;
mod tables;
mod test_filters;
mod tidy;
mod vocabulary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(root) = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from) else {
        return ExitCode::from(2);
    };
    let problems = match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::check(&root),
        Some("docs") => docs::write(&root),
        _ => {
            eprintln!("usage: cargo xtask tidy | docs");
            return ExitCode::from(2);
        }
    };
    for problem in &problems {
        eprintln!("{problem}");
    }
    if problems.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("{} problems", problems.len());
    ExitCode::FAILURE
}
