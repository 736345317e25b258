//! Offline tools: `check`, `stat` and `backup` of a database that no process has open. They open it
//! read-only over an overlay: recovery runs in memory and does not change the directory. `backup`
//! also checks and restores backups.
#![forbid(unsafe_code)]

pub mod backup;

use evenkeel::{Code, Database, Error, Kind, Options, TableStats};
use serde_json::{Value, json};
use std::path::Path;

/// The outcome of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No damage was found, or the command was done.
    Clean,
    /// Damage was found.
    Damaged,
    /// The database could not be examined.
    CouldNot,
}

impl Outcome {
    /// The exit code of the process.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Clean => 0,
            Outcome::Damaged => 1,
            Outcome::CouldNot => 2,
        }
    }
}

/// The result of a tool, as text and as JSON.
#[derive(Clone, Debug)]
pub struct Found {
    /// The outcome.
    pub outcome: Outcome,
    /// Lines to print.
    pub text: String,
    /// The same result as JSON.
    pub json: Value,
}

/// The last line of a check that found damage.
const DAMAGED: &str = "DAMAGED: restore from a backup, repair the tables (REPAIR TABLE, \
                       Database::repair_table), or save all undamaged rows with `evenkeel salvage \
                       DIR --to NEW`\n";

pub(crate) fn open(dir: &Path) -> Result<Database, Error> {
    Database::open_with(dir, Options { read_only: true, create: false, ..Options::default() })
}

fn failed(dir: &Path, error: &Error) -> Found {
    // A missing file is one that the database needs.
    let is_damage = error.kind() == Kind::Corrupt || error.code() == Code::FileMissing;
    let outcome = if is_damage { Outcome::Damaged } else { Outcome::CouldNot };
    let problem = error.to_string();
    Found {
        outcome,
        text: format!("{}: {problem}\n", dir.display()),
        json: json!({"directory": dir.display().to_string(), "clean": false,
            "checked": outcome == Outcome::Damaged, "problems": [problem]}),
    }
}

/// Checks superblock, log, pages and runs by recovering them in memory, every tree's structure, and
/// every index against its table in both directions.
pub fn check(dir: &Path) -> Found {
    let checked = open(dir).and_then(|db| {
        let report = db.check()?;
        Ok((report, db.recovery(), db.tables().len()))
    });
    let (report, recovery, tables) = match checked {
        Ok(found) => found,
        Err(error) => return failed(dir, &error),
    };
    let clean = report.problems.is_empty();
    let mut text = format!(
        "{}: {tables} tables, {} rows, {} index entries; log {} records\n",
        dir.display(),
        report.rows,
        report.entries,
        recovery.records
    );
    for problem in &report.problems {
        text.push_str(problem);
        text.push('\n');
    }
    for note in &report.notes {
        text.push_str(note);
        text.push('\n');
    }
    text.push_str(if clean { "clean\n" } else { DAMAGED });
    let json = json!({
        "directory": dir.display().to_string(),
        "clean": clean,
        "checked": true,
        "tables": tables,
        "rows": report.rows,
        "entries": report.entries,
        "notes": report.notes,
        "log_records": recovery.records,
        "problems": report.problems,
    });
    Found { outcome: if clean { Outcome::Clean } else { Outcome::Damaged }, text, json }
}

/// Reports versions, tables and indexes, the log range, and space by kind of file.
pub fn stat(dir: &Path) -> Found {
    match open(dir).and_then(|db| stat_of(&db, dir)) {
        Ok(found) => found,
        Err(error) => failed(dir, &error),
    }
}

fn stat_of(db: &Database, dir: &Path) -> Result<Found, Error> {
    let info = db.info();
    let mut text = String::new();
    let closed = match info.clean {
        true => "closed cleanly",
        false => "not closed, or not with all pages written: recovery at next open",
    };
    text += &format!("{}: page size {}, {closed}\n", dir.display(), info.page_size);
    let versions = info.versions;
    text += &format!("versions (superblock, page, log, run, catalog): {versions:?}\n");
    let [compatible, read_only, incompatible] = info.features;
    text += &format!(
        "features: compatible {compatible:#x}, read-only {read_only:#x}, incompatible \
         {incompatible:#x}\n"
    );
    let (timeline, parent) = (hex_timeline(info.timeline), hex_timeline(info.parent_timeline));
    text += &match info.parent_timeline {
        0 => format!("timeline: {timeline}\n"),
        _ => format!("timeline: {timeline}, left {parent} at {}\n", info.fork_lsn),
    };
    let (redo, end) = (info.redo_lsn, info.log_end_lsn);
    text += &format!("log: epoch {}, redo {redo}, end {end}\n", info.epoch);
    let mut tables = Vec::new();
    for table in db.table_stats()? {
        tables.push(table_figures(&table, u64::from(info.page_size), &mut text));
    }
    let mut space = serde_json::Map::new();
    for (kind, names) in SPACE {
        let bytes: u64 = names.iter().map(|name| allocated_bytes(&dir.join(name))).sum();
        text += &format!("space {kind}: {bytes} bytes\n");
        space.insert((*kind).to_string(), json!(bytes));
    }
    let json = json!({
        "directory": dir.display().to_string(),
        "page_size": info.page_size,
        "database_id": format!("{:016x}", info.database_id),
        "clean": info.clean,
        "versions": {"superblock": versions[0], "page": versions[1], "log": versions[2],
            "run": versions[3], "catalog": versions[4]},
        "features": {"compatible": compatible, "read_only": read_only,
            "incompatible": incompatible},
        "timeline": {"id": timeline, "parent": parent, "fork_lsn": info.fork_lsn},
        "log": {"epoch": info.epoch, "redo_lsn": redo, "checkpoint_lsn": info.checkpoint_lsn,
            "end_lsn": end},
        "tables": tables,
        "space_bytes": space,
    });
    Ok(Found { outcome: Outcome::Clean, text, json })
}

fn hex_timeline(timeline: u128) -> String {
    if timeline == 0 { "none".into() } else { format!("{timeline:032x}") }
}

/// The lines of a table and its indexes, and the same as JSON. The fill of an index is the share of
/// the entries in its runs that belong to a row and are not deleted or superseded.
fn table_figures(table: &TableStats, page_size: u64, text: &mut String) -> Value {
    let (rows, pages) = (table.rows_estimate, table.leaf_pages);
    let (bytes, fill) = (pages * page_size, table.fill_per_mille);
    *text += &format!(
        "table {}: ~{rows} rows, {pages} leaves, {bytes} bytes, {} % full\n",
        table.name,
        fill as f64 / 10.0
    );
    let mut indexes = Vec::new();
    for index in &table.indexes {
        let (runs, bytes, entries) = (index.runs, index.run_bytes, index.run_entries);
        let (name, live) = (&index.name, (rows * 1000).checked_div(entries).map(|n| n.min(1000)));
        let full =
            live.map_or("nothing in runs".into(), |n| format!("~{} % full", n as f64 / 10.0));
        *text += &format!(
            "  index {name}: ~{rows} rows, {runs} runs, {entries} entries, {bytes} bytes, {full}\n"
        );
        indexes.push(json!({"name": name, "rows_estimate": rows, "runs": runs,
            "entries": entries, "bytes": bytes, "fill_per_mille": live}));
    }
    json!({"name": table.name, "rows_estimate": rows, "leaf_pages": pages, "bytes": bytes,
        "fill_per_mille": fill, "indexes": indexes})
}

/// Kinds of space, with the files or directories of each.
const SPACE: &[(&str, &[&str])] = &[
    ("pages", &["pages"]),
    ("runs", &["runs"]),
    ("wal", &["wal"]),
    ("undo", &["undo"]),
    ("doublewrite", &["dw"]),
    ("ballast", &["evenkeel.ballast"]),
    ("superblock", &["evenkeel.super"]),
    ("checkpoint", &["evenkeel.checkpoint.0", "evenkeel.checkpoint.1"]),
    // The second file exists while the list is written, and after a crash during that.
    ("warm", &["evenkeel.warm", "evenkeel.warm.new"]),
];

/// Allocated bytes (blocks, not lengths) of a file, or of the files of a directory.
fn allocated_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let blocks = |m: std::fs::Metadata| m.blocks() * 512;
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().filter_map(|e| e.metadata().ok()).map(blocks).sum(),
        Err(_) => std::fs::metadata(path).map_or(0, blocks),
    }
}

/// The examples of the guide, run as tests: here, for the package of `evenkeel` has no file from
/// outside of its crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/embedding.md")]
struct Guide;

/// The example of the README of the repository, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
