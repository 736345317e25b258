//! The `evenkeel` command; this file only parses arguments. `bench` runs the insert benchmark,
//! `bench diff` compares two of its results, `lab` reproduces reported failures, `check` and `stat`
//! examine a database that no process has open.
//! Exit codes: 0 done, 1 error, 2 wrong usage, 3 something missing, 130 Ctrl-C.

use clap::{Args, Parser, Subcommand};
use evenkeel_bench::{BenchError, Flags, diff, main_with, open_engine, report};
use evenkeel_lab::Experiment;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Evenkeel: a storage engine that keeps an even keel under sustained writes.
#[derive(Parser)]
#[command(name = "evenkeel", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the insert benchmark: load, create indexes, insert more, query under inserts
    ///
    /// Prints one line of 17 tab-separated fields each second, and response-time histograms at the
    /// end of each step. Exit codes: 0 done, 1 error, 2 wrong usage, 3 something missing on this
    /// machine, 130 after Ctrl-C (the JSON is written all the same).
    Bench(Box<Bench>),
    /// Reproduce a reported failure of page flushing beside what replaces it, in virtual time
    ///
    /// Prints a table; docs/lab.md explains each experiment. Exit codes: 0 done, 1 error, 2 wrong
    /// usage.
    #[command(subcommand)]
    Lab(Experiment),
    /// Check a database that no process has open: its trees, runs and indexes
    ///
    /// Reads every page that a tree uses, every block of every run and the log that recovery needs,
    /// and compares each index with its table in both directions.
    /// Exit codes: 0 clean, 1 damage, 2 could not check.
    Check(Directory),
    /// Show versions, tables, indexes, log range and space of a database
    Stat(Directory),
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Bench {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Compare the JSON of two runs: every figure, and b / a
    Diff {
        /// The first result
        a: PathBuf,
        /// The second result
        b: PathBuf,
        /// Draw both as one HTML page, instead of the table
        #[arg(long, value_name = "HTML")]
        report: Option<PathBuf>,
    },
    /// Draw the report of a run from its JSON
    Report {
        /// The result
        json: PathBuf,
        /// The page to write
        html: PathBuf,
    },
    /// Draw the rate of each second of a step of several runs as an SVG picture
    Picture {
        /// Name of the step, such as l.i1
        step: String,
        /// The picture to write
        svg: PathBuf,
        /// The results, one line each
        #[arg(required = true)]
        json: Vec<PathBuf>,
    },
}

#[derive(Args)]
struct Directory {
    /// Directory of the database
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Bench(bench) => match bench.command {
            Some(BenchCommand::Diff { a, b, report }) => {
                end("bench diff", compare(&a, &b, report.as_deref()))
            }
            Some(BenchCommand::Report { json, html }) => {
                end("bench report", report::convert(&json, &html))
            }
            Some(BenchCommand::Picture { step, svg, json }) => {
                end("bench picture", report::picture::write(&step, &json, &svg))
            }
            None => match bench.flags.options() {
                Ok(options) => main_with(&options, &open_engine),
                Err(error) => end("bench", Err(error)),
            },
        },
        Command::Lab(experiment) => match experiment.run() {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("evenkeel lab: {error}");
                ExitCode::FAILURE
            }
        },
        Command::Check(directory) => show(&directory, evenkeel_tools::check(&directory.dir)),
        Command::Stat(directory) => show(&directory, evenkeel_tools::stat(&directory.dir)),
    }
}

/// Compares two runs: writes a page if one is requested, else prints a table.
fn compare(a: &Path, b: &Path, html: Option<&Path>) -> Result<(), BenchError> {
    let runs = (diff::read(a)?, diff::read(b)?);
    match html {
        Some(html) => report::pair::write([(a, &runs.0), (b, &runs.1)], html)?,
        None => print!("{}", diff::table(&runs.0, &runs.1)),
    }
    Ok(())
}

fn end(command: &str, result: Result<(), BenchError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evenkeel {command}: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn show(directory: &Directory, found: evenkeel_tools::Found) -> ExitCode {
    if directory.json {
        println!("{:#}", found.json);
    } else {
        print!("{}", found.text);
    }
    ExitCode::from(found.outcome.exit_code())
}
