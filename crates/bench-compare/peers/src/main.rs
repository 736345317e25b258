//! The insert benchmark on one other embedded engine: `evenkeel-bench-peers --engine rocksdb` with
//! the flags of `evenkeel bench`. Which engines are built in is a matter of features.

#[cfg(feature = "fjall")]
mod fjall_store;
mod keys;
mod kv;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb_store;
#[cfg(feature = "rocksdb")]
mod rocks;
mod sort;
#[cfg(feature = "sqlite")]
mod sqlite;

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

/// The adapters over `kv` are unused in a build without any of their stores.
#[allow(dead_code)]
fn over<S: kv::Store + 'static>(
    store: S,
    options: &Options,
) -> Result<Box<dyn Engine>, BenchError> {
    Ok(Box::new(kv::KvEngine::new(store, options)?))
}

fn open(options: &Options) -> Result<Box<dyn Engine>, BenchError> {
    match options.engine.as_str() {
        #[cfg(feature = "rocksdb")]
        "rocksdb" => over(rocks::Rocks::open(options)?, options),
        #[cfg(feature = "redb")]
        "redb" => over(redb_store::Redb::open(options)?, options),
        #[cfg(feature = "fjall")]
        "fjall" => over(fjall_store::Fjall::open(options)?, options),
        #[cfg(feature = "lmdb")]
        "lmdb" => over(lmdb::Lmdb::open(options)?, options),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Box::new(sqlite::Sqlite::open(options)?)),
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
