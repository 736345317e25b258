//! The `evenkeel` command; this file only parses arguments. `bench` runs the insert benchmark,
//! `bench diff` compares two of its results, `lab` reproduces reported failures, `check` and `stat`
//! examine a database that no process has open, `backup` copies one, and checks and restores
//! copies, `dump` writes out what one holds, `salvage` saves what is left of a damaged one.
//! Exit codes: 0 done, 1 error, 2 wrong usage, 3 something missing, 130 Ctrl-C.

mod dump;

use clap::{Args, Parser, Subcommand};
use evenkeel_bench::{BenchError, Flags, diff, main_with, open_engine, report};
use evenkeel_lab::Experiment;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Evenkeel: a storage engine with an even rate under sustained writes.
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
    /// machine, 130 after Ctrl-C (the JSON is written nevertheless).
    Bench(Box<Bench>),
    /// Reproduce a reported failure of page flushing next to Evenkeel's mechanism, in virtual time
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
    /// Write the tables of a database as SQL or CSV, or show its pages, log, runs or catalog
    ///
    /// No process may have the database open. Tables are read through the engine, which recovers in
    /// memory and changes no byte; the other views read the files alone.
    /// Exit codes: 0 done, 1 damage, 2 could not read or write.
    Dump(Box<dump::DumpArgs>),
    /// Save what is left of a damaged database into a new one, or as SQL
    ///
    /// Reads every page, the doublewrite file and the log without the engine, and changes no byte
    /// of the directory. Reports which ranges of keys are lost, and sets rows aside that may not
    /// count. Exit codes: 0 everything was saved, 1 something is lost or set aside, 2 could not
    /// salvage.
    Salvage(dump::SalvageArgs),
    /// Back up a database that no process has open; check and restore backups
    ///
    /// A server or a program with the database open takes its own backups: SET GLOBAL
    /// evenkeel_backup_dir, Database::backup. Exit codes: 0 done, 1 damage, 2 could not.
    Backup(Backup),
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Backup {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    /// Directory of the database
    #[arg(required = true)]
    dir: Option<PathBuf>,
    /// Directory to write, empty or absent
    #[arg(required = true)]
    dest: Option<PathBuf>,
    /// Copy only what has changed since this earlier backup, which a restore then needs, too
    #[arg(long, value_name = "BACKUP")]
    base: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum BackupCommand {
    /// Compare the sizes and checksums of all files of a backup, and of the earlier ones on which
    /// it builds, with their manifests
    Verify {
        /// Directory of the backup
        backup: PathBuf,
        /// Look for the earlier backups in the directories that lie here, too, not only beside it
        #[arg(long, value_name = "DIR")]
        bases: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a database of a backup, in a directory that is empty or absent
    Restore {
        /// Directory of the backup
        backup: PathBuf,
        /// Directory of the new database
        dir: PathBuf,
        /// Look for the earlier backups on which it builds in the directories that lie here, too,
        /// not only beside it
        #[arg(long, value_name = "DIR")]
        bases: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
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
        /// Draw both runs as one HTML page instead of printing the table
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
        /// The JSON files; each becomes a line of the picture
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
        Command::Check(directory) => show(directory.json, &evenkeel_tools::check(&directory.dir)),
        Command::Stat(directory) => show(directory.json, &evenkeel_tools::stat(&directory.dir)),
        Command::Backup(backup) => back_up(backup),
        Command::Dump(args) => dump::dump(&args),
        Command::Salvage(args) => dump::salvage(&args),
    }
}

fn paths(of: &[PathBuf]) -> Vec<&Path> {
    of.iter().map(PathBuf::as_path).collect()
}

fn back_up(args: Backup) -> ExitCode {
    let (json, found) = match (args.command, args.dir, args.dest) {
        (Some(BackupCommand::Verify { backup, bases, json }), ..) => {
            (json, evenkeel_tools::backup::verify(&backup, &paths(&bases)))
        }
        (Some(BackupCommand::Restore { backup, dir, bases, json }), ..) => {
            (json, evenkeel_tools::backup::restore(&backup, &dir, &paths(&bases)))
        }
        (None, Some(dir), Some(dest)) => {
            (args.json, evenkeel_tools::backup::take(&dir, &dest, args.base.as_deref()))
        }
        (None, ..) => return ExitCode::from(2),
    };
    show(json, &found)
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

fn show(json: bool, found: &evenkeel_tools::Found) -> ExitCode {
    if json {
        println!("{:#}", found.json);
    } else {
        print!("{}", found.text);
    }
    ExitCode::from(found.outcome.exit_code())
}
