//! The embedded engine under the benchmark's trait.

use crate::engine::Engine;
use crate::error::BenchError;
use crate::options::Options;

/// Opens the engine in the options' directory.
///
/// # Errors
/// Whatever the engine says.
pub fn open(_options: &Options) -> Result<Box<dyn Engine>, BenchError> {
    Err(BenchError::Missing("this build has no embedded engine yet: use --engine null".to_string()))
}
