//! The child process that the trust rungs kill or measure. `write DIR KIND [N]`: sessions commit
//! forever, or N times each, and print each commit on standard output after it is acknowledged.
//! `corpus` writes the inputs that a fuzz target begins with, `fuzz` runs the target.
#![forbid(unsafe_code)]

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Error, IndexSpec, Isolation, Metric, Options,
    Result, TableSpec, Value,
};
use evenkeel_trust::fuzz::Target;
use evenkeel_trust::work::{self, GONE, Kind, allocated_kib, empty_kib};
use evenkeel_trust::{drive, fuzz, restart};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        ["write", dir, kind] => write(Path::new(dir), named(kind), i64::MAX),
        ["write", dir, kind, commits] => {
            write(Path::new(dir), named(kind), commits.parse().unwrap_or(1000))
        }
        ["lose", dir, rows] => lose(Path::new(dir), rows.parse().unwrap_or(1000)),
        ["prepare", dir, rows] => prepare(Path::new(dir), rows.parse().unwrap_or(1000)),
        ["open", dir] => open(Path::new(dir)),
        ["revert", dir, rows] => revert(Path::new(dir), rows.parse().unwrap_or(1000)),
        ["update", dir, rows] => update(Path::new(dir), rows.parse().unwrap_or(1000)),
        ["build", dir, rows] => build(Path::new(dir), rows.parse().unwrap_or(1000)),
        ["corpus", target, dir] => corpus(target, Path::new(dir)),
        ["targets"] => {
            targets().for_each(|(name, _)| say(name));
            Ok(())
        }
        ["fuzz", target, dir, from, to] => {
            fuzz(target, Path::new(dir), from.parse().unwrap_or(0)..to.parse().unwrap_or(1000))
        }
        _ => usage(),
    };
    if let Err(error) = done {
        say(&format!("E {error}"));
        std::process::exit(1);
    }
}

fn named(kind: &str) -> Kind {
    Kind::named(kind).unwrap_or_else(|| usage())
}

fn usage() -> ! {
    say("usage: write DIR wide|narrow [N] | update|build|lose|prepare|revert DIR ROWS | open DIR");
    say("       corpus TARGET DIR | fuzz TARGET DIR FROM TO | targets");
    std::process::exit(2);
}

/// Writes the initial inputs of a fuzz target as files.
fn corpus(target: &str, dir: &Path) -> Result<()> {
    let io = |e: std::io::Error| Error::new(Code::WriteFailed).caused_by(e);
    std::fs::create_dir_all(dir).map_err(io)?;
    for (i, input) in fuzz::corpus(target).iter().enumerate() {
        std::fs::write(dir.join(format!("seed-{i:04}")), input).map_err(io)?;
    }
    Ok(())
}

fn targets() -> impl Iterator<Item = &'static Target> {
    fuzz::DECODERS.iter().chain(fuzz::DATABASES)
}

/// Runs a target over the inputs in a directory and one mutation of them for each seed. The target
/// `greedy` exceeds the memory limit.
fn fuzz(target: &str, dir: &Path, seeds: std::ops::Range<u64>) -> Result<()> {
    let io = |e: std::io::Error| Error::new(Code::FileOpen).caused_by(e);
    let mut files: Vec<_> = std::fs::read_dir(dir).map_err(io)?.flatten().collect();
    files.sort_by_key(std::fs::DirEntry::path);
    let inputs = files.iter().map(|file| std::fs::read(file.path()).map_err(io));
    let corpus = inputs.collect::<Result<Vec<_>>>()?;
    let found = targets().find(|(name, _)| *name == target).copied();
    let greedy = (target == "greedy").then_some(("greedy", drive::greedy as fn(&[u8])));
    let found = found.or(greedy).unwrap_or_else(|| usage());
    let drive::Seen { slowest_ms, before_kib, memory_kib } =
        drive::run(&found, &corpus, seeds.clone());
    say(&format!(
        "{target}: {} inputs, mutations {seeds:?}, the slowest {slowest_ms} ms, \
         {memory_kib} KiB beyond {before_kib} KiB",
        corpus.len()
    ));
    Ok(())
}

/// Writes a line with one system call, so that a kill leaves it whole or not at all.
fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

fn write(dir: &Path, kind: Kind, last: i64) -> Result<()> {
    let db = work::open(dir, kind)?;
    let records = db.recovery().records;
    say(&format!("R {records}"));
    let mut threads = Vec::new();
    for session in 0..work::SESSIONS {
        let db = db.clone();
        threads.push(std::thread::spawn(move || session_loop(&db, kind, session, last)));
    }
    let changer = db.clone();
    threads.push(std::thread::spawn(move || index_loop(&changer, last)));
    for thread in threads {
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => say(&format!("E {error}")),
            Err(_) => say("E a thread panicked"),
        }
    }
    let check = db.check()?;
    say(&format!("C {} {} {:#?}", check.rows, check.entries, check.problems));
    Ok(())
}

/// With the least memory: loads rows, changes all of them in one transaction, rolls that back, and
/// drops the only table. Prints the peak memory, and the space of pages and runs on disk before and
/// after the DROP. (Large values: `evenkeel/tests/large_values.rs`.)
fn update(dir: &Path, rows: i64) -> Result<()> {
    let options = Options { memory_size: 16 << 20, log_size: 64 << 20, ..Options::default() };
    let db = Database::open_with(dir, options)?;
    let column = ColumnSpec::new;
    let spec = TableSpec::new()
        .column(column("id", ColumnType::Int64))
        .column(column("value", ColumnType::Int64))
        .column(column("pad", ColumnType::Bytes { max: 200 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_value", &["value"]));
    db.create_table("t", &spec)?;
    for from in (0..rows).step_by(1000) {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
        let table = txn.table("t")?;
        for id in from..(from + 1000).min(rows) {
            table.insert(&[Int(id), Int(id), Bytes(&[id as u8; 60])])?;
        }
        txn.commit()?;
    }
    say(&format!("loaded {}", peak_kib()));
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
    let table = txn.table("t")?;
    for id in 0..rows {
        table.update(&[Int(id)], &[(1, Int(-id - 1))])?;
    }
    say(&format!("updated {}", peak_kib()));
    txn.rollback()?;
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    for id in (0..rows).step_by(997) {
        let row = txn.table("t")?.get(&[Int(id)])?;
        let same = row.is_some_and(|row| matches!(row.value(1), Ok(Int(v)) if v == id));
        if !same {
            return Err(evenkeel::Error::new(evenkeel::Code::Internal).with("row", id));
        }
    }
    drop(txn);
    let check = db.check()?;
    say(&format!("reverted {} {} {}", peak_kib(), check.rows, check.problems.len()));
    let pages = || allocated_kib(&dir.join("pages"));
    let taken = || pages() + allocated_kib(&dir.join("runs"));
    let (before, bar) = (taken(), empty_kib(pages()));
    db.drop_table("t")?;
    // Gives up after two minutes without freed space.
    let (mut least, mut since) = (taken(), Instant::now());
    while least > bar && since.elapsed() < Duration::from_secs(120) {
        std::thread::yield_now();
        let now = taken();
        if now < least {
            (least, since) = (now, Instant::now());
        }
    }
    say(&format!("dropped {} {before} {} {bar}", taken(), peak_kib()));
    db.close()
}

/// With the least memory: loads rows and builds four indexes on them, one unique. Prints the peak
/// memory before and after.
fn build(dir: &Path, rows: i64) -> Result<()> {
    let options = Options { memory_size: 16 << 20, log_size: 64 << 20, ..Options::default() };
    let db = Database::open_with(dir, options)?;
    let column = ColumnSpec::new;
    let spec = TableSpec::new()
        .column(column("id", ColumnType::Int64))
        .column(column("value", ColumnType::Int64))
        .column(column("pad", ColumnType::Bytes { max: 200 }))
        .primary_key(&["id"]);
    db.create_table("t", &spec)?;
    let mix = |id: i64| (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let row = |id: i64| {
        let pad = [mix(id), mix(!id), mix(id ^ 7)].map(u64::to_be_bytes).concat();
        vec![Value::Int(id), Value::Int(mix(id) as i64 >> 2), Value::Bytes(pad)]
    };
    db.load_table("t", (0..rows).map(row))?;
    say(&format!("loaded {}", peak_kib()));
    let plain = [("by_value", "value"), ("by_pad", "pad")].map(|(n, c)| IndexSpec::new(n, &[c]));
    let both = IndexSpec::new("both", &["value", "pad"]);
    let unique = IndexSpec::new("unique", &["pad", "value"]).unique();
    let indexes: Vec<IndexSpec> = plain.into_iter().chain([both, unique]).collect();
    db.add_indexes("t", &indexes)?;
    let again = db.stats().get(Metric::BuildReadBytes);
    say(&format!("built {} {again}", peak_kib()));
    let check = db.check()?;
    say(&format!("checked {} {} {}", peak_kib(), check.rows, check.problems.len()));
    db.close()
}

/// Leaves an open transaction of `2 * rows` changes, as a kill would.
fn lose(dir: &Path, rows: i64) -> Result<()> {
    let db = restart::open(dir)?;
    let _txn = restart::lose(&db, rows)?;
    say("lost");
    std::process::abort()
}

/// Leaves a prepared transaction of `2 * rows` changes.
fn prepare(dir: &Path, rows: i64) -> Result<()> {
    let db = restart::open(dir)?;
    restart::prepare(&db, rows)?;
    say(&format!("prepared {}", peak_kib()));
    std::process::abort()
}

/// Opens the database and exits without closing it.
fn open(dir: &Path) -> Result<()> {
    let db = restart::open(dir)?;
    say(&format!("opened {:?} {}", db.recovery(), peak_kib()));
    std::process::abort()
}

/// Opens the database and exits without closing it when this many rows are rolled back.
fn revert(dir: &Path, rows: u64) -> Result<()> {
    let db = restart::open(dir)?;
    restart::await_reverted(&db, rows);
    say(&format!("reverted {}", db.stats().get(Metric::RowsRolledBack)));
    std::process::abort()
}

/// Peak memory of this process, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(u64::MAX)
}

/// Commits one transaction after the other, from the one after `last`.
fn session_loop(db: &Database, kind: Kind, session: i64, last: i64) -> Result<()> {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly)?;
    let marker = txn.table("t")?.get(&[Int(session)])?;
    let mut n = match marker.map(|row| row.value(3).map(|v| v.to_owned())).transpose()? {
        Some(evenkeel::Value::Int(n)) => n,
        _ => 0,
    };
    drop(txn);
    while n < last {
        n += 1;
        let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
        work::write(kind, &mut txn.table("t")?, session, n)?;
        if n % kind.back_one_in == 0 {
            // Changes that a savepoint undoes must not reappear.
            txn.savepoint("s")?;
            work::write(kind, &mut txn.table("t")?, session, n + 1_000_000)?;
            txn.rollback_to("s")?;
        }
        let number = work::renumber(&mut txn, session)?;
        txn.commit()?;
        say(&format!("A {session} {n} {number}"));
        if n % kind.abort_one_in == 0 {
            let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
            work::write(kind, &mut txn.table("t")?, session, n + 2_000_000)?;
            txn.rollback()?;
        }
    }
    Ok(())
}

/// Adds and drops indexes and a table forever.
fn index_loop(db: &Database, last: i64) -> Result<()> {
    let specs = work::extra_indexes();
    for spec in &specs {
        // A kill may have left one of the indexes.
        let definition = db.definition("t")?;
        if definition.index(&spec.name).is_ok() {
            db.drop_index("t", &spec.name)?;
        }
    }
    if db.definition(GONE).is_ok() {
        db.drop_table(GONE)?;
    }
    for i in 0.. {
        if last < i64::MAX && i > last / 10 {
            break;
        }
        say("B");
        db.add_indexes("t", &specs)?;
        let stats = db.stats();
        let (flushes, compactions) =
            (stats.get(Metric::MemtableFlushes), stats.get(Metric::CompactionsFinished));
        let (checkpoints, built) =
            (stats.get(Metric::Checkpoints), stats.get(Metric::BuildCompactions));
        say(&format!("V {flushes} {compactions} {checkpoints} {built}"));
        for spec in &specs {
            db.drop_index("t", &spec.name)?;
        }
        say("D");
        work::make_gone(db)?;
        say("T");
        db.drop_table(GONE)?;
        say("U");
    }
    Ok(())
}
