//! Runs the insert benchmark on several engines and compares them. It runs rounds in which each
//! engine has its turn, in a process of its own, so that memory, CPU and I/O are counted
//! separately. It prints medians and ratios, and writes every round as JSON.
//!
//! This crate has few dependencies. The other engines and their heavy dependencies are in `peers/`,
//! a workspace of its own, which is built when one of them is requested.

mod medians;
mod peers;

use clap::{CommandFactory, FromArgMatches, Parser};
use evenkeel_bench::{BenchError, Flags, RunResult, diff, main_with, open_engine};
use medians::{Comparison, Round};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Set in a child process, which runs one engine as `evenkeel bench` does.
const CHILD: &str = "EVENKEEL_COMPARE_CHILD";

/// Run the insert benchmark on several engines in alternating rounds; print medians and ratios
#[derive(Parser)]
#[command(name = "evenkeel-bench-compare", max_term_width = 100)]
struct Cli {
    /// Engines in order: evenkeel, null (the control), rocksdb, sqlite, lmdb, redb, fjall. Ratios
    /// are of the first to each other
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "evenkeel,null,rocksdb"
    )]
    engines: Vec<String>,
    /// Rounds that count. One whose control had a 5th-percentile second below 0.70 of its median or
    /// an operation over 50 ms (in steps of 20 s or more) is run again
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Rounds that are run again, in all; a disturbed one beyond these counts, and is said to be so
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeats: usize,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    let matches = Cli::command().mut_arg("engine", |a| a.hide(true)).get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let options = match cli.flags.options() {
        Ok(options) => options,
        Err(error) => return fail(&error),
    };
    if std::env::var_os(CHILD).is_some() {
        return main_with(&options, &open_engine);
    }
    match compare(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &BenchError) -> ExitCode {
    eprintln!("evenkeel-bench-compare: {error}");
    ExitCode::from(error.exit_code())
}

fn compare(cli: &Cli) -> Result<(), BenchError> {
    let binary = peers::build(&cli.engines)?;
    let dir = cli.flags.dir.clone().unwrap_or_else(|| PathBuf::from("evenkeel-compare"));
    let arguments = child_arguments();
    let mut comparison = Comparison::new(&cli.engines);
    let (mut counted, mut repeats) = (0, 0);
    while counted < cli.rounds {
        let mut round = Vec::new();
        for engine in &cli.engines {
            eprintln!("round {} of {}: {engine}", counted + 1, cli.rounds);
            round.push(one(engine, &binary, &dir, &arguments)?);
        }
        let disturbed = medians::disturbed(&round);
        let again = disturbed && repeats < cli.repeats;
        repeats += usize::from(again);
        counted += usize::from(!again);
        comparison.add(Round { results: round, disturbed, counts: !again });
        // Written after each round, so that a long comparison keeps its results if it is stopped.
        if let Some(path) = &cli.flags.json {
            let text = serde_json::to_string(&comparison.json());
            let text = text.map_err(|e| BenchError::file(path, e))?;
            std::fs::write(path, text + "\n").map_err(|e| BenchError::file(path, e))?;
        }
    }
    print!("{}", comparison.table());
    Ok(())
}

/// The flags of the children: all but those of this process.
fn child_arguments() -> Vec<String> {
    let own = ["--engines", "--rounds", "--json", "--report", "--dir", "--engine", "--repeats"];
    let mut rest = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or("");
        if !own.contains(&name) {
            rest.push(word);
        } else if !word.contains('=') {
            words.next();
        }
    }
    rest
}

/// Runs one engine in a process of its own, in an empty directory that is removed afterwards.
fn one(
    engine: &str,
    peers: &Path,
    dir: &Path,
    arguments: &[String],
) -> Result<RunResult, BenchError> {
    let store = dir.join(engine);
    let json = dir.join(format!("{engine}.json"));
    if store.exists() {
        let text = format!("{}: exists already: remove it", store.display());
        return Err(BenchError::Usage(text));
    }
    std::fs::create_dir_all(dir).map_err(|e| BenchError::file(dir, e))?;
    let own = std::env::current_exe().map_err(|e| BenchError::Failed(e.to_string()))?;
    let program = if peers::is_peer(engine) { peers } else { &own };
    let status = Command::new(program)
        .env(CHILD, "1")
        .args(arguments)
        .args(["--engine", engine, "--dir"])
        .arg(&store)
        .arg("--json")
        .arg(&json)
        .stdout(Stdio::from(log(dir, engine)?))
        .status();
    let status = status.map_err(|e| BenchError::file(program, e))?;
    // The directory of a failed run is kept for inspection.
    if !status.success() {
        return Err(BenchError::Failed(format!("{engine} ended with {status}")));
    }
    let result = diff::read(&json)?;
    std::fs::remove_dir_all(&store).map_err(|e| BenchError::file(&store, e))?;
    std::fs::remove_file(&json).map_err(|e| BenchError::file(&json, e))?;
    // Syncs before the next engine's turn, so that the removal does not slow that engine.
    let _ = Command::new("sync").status();
    Ok(result)
}

fn log(dir: &Path, engine: &str) -> Result<std::fs::File, BenchError> {
    let path = dir.join(format!("{engine}.log"));
    std::fs::File::create(&path).map_err(|e| BenchError::file(&path, e))
}
