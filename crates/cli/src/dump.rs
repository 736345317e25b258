//! Arguments of `evenkeel dump` and `evenkeel salvage`, and what the commands print.

use clap::{Args, ValueEnum};
use evenkeel_salvage::{Dump, Format, To, View, dump_exit_code};
use std::io::{BufWriter, ErrorKind, StdoutLock, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    /// CREATE TABLE and INSERT statements for MariaDB
    Sql,
    /// A head line, then one line for each row; NULL is \N
    Csv,
}

#[derive(Args)]
pub struct DumpArgs {
    /// Directory of the database, which no process has open
    dir: PathBuf,
    /// How to write tables
    #[arg(long, value_enum, default_value = "sql")]
    format: Form,
    /// Only this table; may be repeated
    #[arg(long = "table", value_name = "TABLE")]
    tables: Vec<String>,
    /// Write a file for each table into this directory instead of standard output
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Read a damaged database as `salvage` does, and print on standard error what is lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    view: ViewArgs,
}

#[derive(Args)]
#[group(multiple = false)]
struct ViewArgs {
    /// Show pages FIRST to LAST, one line each, without the engine
    #[arg(long, value_name = "FIRST..LAST", value_parser = pages)]
    #[arg(conflicts_with_all = ["tables", "to"])]
    pages: Option<(u64, u64)>,
    /// Show the records of the log from the redo position on, one line each
    #[arg(long, conflicts_with_all = ["tables", "to"])]
    log: bool,
    /// Show the run files and the slices in them, one line each
    #[arg(long, conflicts_with_all = ["tables", "to"])]
    runs: bool,
    /// Show the catalog's entries, one line each
    #[arg(long, conflicts_with_all = ["tables", "to"])]
    catalog: bool,
}

/// A range of pages; the last one is included.
fn pages(text: &str) -> Result<(u64, u64), String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
    let (first, last) = (number(first)?, number(last)?);
    if first > last { Err(format!("{first} is above {last}")) } else { Ok((first, last)) }
}

impl DumpArgs {
    fn request(&self) -> Dump {
        let format = match self.format {
            Form::Sql => Format::Sql,
            Form::Csv => Format::Csv,
        };
        Dump { dir: self.dir.clone(), format, tables: self.tables.clone(), to: self.to.clone() }
    }

    fn view(&self) -> Option<View> {
        let view = &self.view;
        match view.pages {
            Some((first, last)) => Some(View::Pages(first, last)),
            None if view.log => Some(View::Log),
            None if view.runs => Some(View::Runs),
            None if view.catalog => Some(View::Catalog),
            None => None,
        }
    }
}

/// Standard output. It notes that its reader has gone, as `evenkeel dump DIR | head` makes it: then
/// the dump ends without a message.
struct Output {
    to: BufWriter<StdoutLock<'static>>,
    has_no_reader: bool,
}

impl Output {
    fn new() -> Output {
        Output { to: BufWriter::new(stdout().lock()), has_no_reader: false }
    }

    fn noted<T>(&mut self, done: std::io::Result<T>) -> std::io::Result<T> {
        self.has_no_reader |= matches!(&done, Err(error) if error.kind() == ErrorKind::BrokenPipe);
        done
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let done = self.to.write(bytes);
        self.noted(done)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let done = self.to.flush();
        self.noted(done)
    }
}

/// Dumps a damaged database.
fn forced(args: &DumpArgs, out: &mut Output) -> ExitCode {
    let done = args.request().force(out);
    let flushed = out.flush();
    match (done, flushed) {
        _ if out.has_no_reader => ExitCode::from(2),
        (Ok(report), Ok(())) => {
            eprint!("{}", report.text());
            if report.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        (Err(error), _) => {
            eprintln!("evenkeel dump: {}: {error}", args.dir.display());
            ExitCode::from(2)
        }
        (Ok(_), Err(error)) => {
            eprintln!("evenkeel dump: standard output: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs `evenkeel dump`.
pub fn dump(args: &DumpArgs) -> ExitCode {
    let mut out = Output::new();
    let view = args.view();
    if args.force && view.is_none() {
        return forced(args, &mut out);
    }
    let done = match view {
        Some(view) => view.write(&args.dir, &mut out).map(|()| Vec::new()),
        None => args.request().run(&mut out),
    };
    let flushed = out.flush();
    match (done, flushed) {
        _ if out.has_no_reader => ExitCode::from(2),
        (Ok(dumped), Ok(())) => {
            for table in dumped {
                if let Some(file) = table.file {
                    println!("{}: {} rows, {}", table.table, table.rows, file.display());
                }
            }
            ExitCode::SUCCESS
        }
        (Err(error), _) => {
            eprintln!("evenkeel dump: {}: {error}", args.dir.display());
            ExitCode::from(dump_exit_code(&error))
        }
        (Ok(_), Err(error)) => {
            eprintln!("evenkeel dump: standard output: {error}");
            ExitCode::from(2)
        }
    }
}

#[derive(Args)]
pub struct SalvageArgs {
    /// Directory of the damaged database, which no process has open
    dir: PathBuf,
    /// Make a new database in this directory, which is empty or does not exist
    #[arg(long, value_name = "NEW", required_unless_present = "sql", conflicts_with = "sql")]
    to: Option<PathBuf>,
    /// Write SQL statements into this new file; rows set aside go to FILE.lost_and_found.csv
    #[arg(long, value_name = "FILE")]
    sql: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `evenkeel salvage`.
pub fn salvage(args: &SalvageArgs) -> ExitCode {
    let to = match (&args.to, &args.sql) {
        (Some(dir), _) => To::New(dir.clone()),
        (None, Some(file)) => To::Sql(file.clone()),
        // The parser requires one of them.
        (None, None) => return ExitCode::from(2),
    };
    match evenkeel_salvage::salvage(&args.dir, &to) {
        Ok(report) => {
            if args.json {
                println!("{:#}", report.json());
            } else {
                print!("{}", report.text());
            }
            if report.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(error) => {
            eprintln!("evenkeel salvage: {}: {error}", args.dir.display());
            ExitCode::from(2)
        }
    }
}
