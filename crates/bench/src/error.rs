//! Why a run ended early, and the exit code for it.

use std::fmt;

/// An error of the benchmark.
#[derive(Debug)]
pub enum BenchError {
    /// The run failed: exit code 1.
    Failed(String),
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// Something is missing on this machine: exit code 3.
    Missing(String),
}

impl BenchError {
    /// The exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            BenchError::Failed(_) => 1,
            BenchError::Usage(_) => 2,
            BenchError::Missing(_) => 3,
        }
    }

    /// Converts a failure on a file.
    pub fn file(path: &std::path::Path, error: impl fmt::Display) -> BenchError {
        BenchError::Failed(format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (BenchError::Failed(text) | BenchError::Usage(text) | BenchError::Missing(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for BenchError {}

impl From<evenkeel_base::Error> for BenchError {
    fn from(error: evenkeel_base::Error) -> BenchError {
        BenchError::Failed(error.to_string())
    }
}
