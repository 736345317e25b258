//! The report: one HTML page that works offline.

use crate::result::RunResult;

/// The page of a run.
pub fn page(result: &RunResult) -> String {
    format!("<!doctype html><title>{}</title>", result.engine)
}
