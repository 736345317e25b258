//! The insert benchmark on one other embedded engine: `evenkeel-bench-peers --engine rocksdb` with
//! the flags of `evenkeel bench`. Which engines are built in is a matter of features.

mod keys;
mod kv;
#[cfg(feature = "rocksdb")]
mod rocks;
mod sort;

use clap::Parser;
use evenkeel_bench::{BenchError, Engine, Flags, Options, main_with};
use std::process::ExitCode;

/// The insert benchmark on another embedded engine.
#[derive(Parser)]
#[command(max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

fn open(options: &Options) -> Result<Box<dyn Engine>, BenchError> {
    match options.engine.as_str() {
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Ok(Box::new(kv::KvEngine::new(rocks::Rocks::open(options)?, options)?)),
        other => Err(BenchError::Usage(format!("--engine: '{other}' is not built in"))),
    }
}

fn main() -> ExitCode {
    match Cli::parse().flags.options() {
        Ok(options) => main_with(&options, &open),
        Err(error) => {
            eprintln!("evenkeel-bench-peers: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
