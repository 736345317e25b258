//! A process for the trust rungs to kill or to measure. `write DIR [N]`: sessions commit for ever
//! (or N times each), each commit is told on standard output once it is acknowledged.
#![forbid(unsafe_code)]

use evenkeel::ValueRef::Int;
use evenkeel::{Access, Database, Isolation, Metric, Result};
use evenkeel_trust::work;
use std::io::Write as _;
use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        ["write", dir] => write(Path::new(dir), i64::MAX),
        ["write", dir, commits] => write(Path::new(dir), commits.parse().unwrap_or(1000)),
        _ => {
            say("usage: write DIR [N]");
            std::process::exit(2);
        }
    };
    if let Err(error) = done {
        say(&format!("E {error}"));
        std::process::exit(1);
    }
}

/// One line in one system call, so that a kill leaves it whole or out.
fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

fn write(dir: &Path, last: i64) -> Result<()> {
    let db = work::open(dir)?;
    let records = db.recovery().records;
    say(&format!("R {records}"));
    let mut threads = Vec::new();
    for session in 0..work::SESSIONS {
        let db = db.clone();
        threads.push(std::thread::spawn(move || session_loop(&db, session, last)));
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

/// Commits one transaction after the other, going on behind the last one found.
fn session_loop(db: &Database, session: i64, last: i64) -> Result<()> {
    let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly)?;
    let marker = txn.table("t")?.get(&[Int(session)])?;
    let mut n = match marker.map(|row| row.value(3).map(|v| v.to_owned())).transpose()? {
        Some(evenkeel::Value::Int(n)) => n,
        _ => 0,
    };
    drop(txn);
    while n < last {
        n += 1;
        let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
        work::write(&mut txn.table("t")?, session, n)?;
        if n % 7 == 0 {
            // What a savepoint takes back must not come alive again.
            txn.savepoint("s")?;
            work::write(&mut txn.table("t")?, session, n + 1_000_000)?;
            txn.rollback_to("s")?;
        }
        txn.commit()?;
        say(&format!("A {session} {n}"));
        if n % 5 == 0 {
            let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
            work::write(&mut txn.table("t")?, session, n + 2_000_000)?;
            txn.rollback()?;
        }
    }
    Ok(())
}

/// Adds and drops indexes for ever.
fn index_loop(db: &Database, last: i64) -> Result<()> {
    let specs = work::extra_indexes();
    for spec in &specs {
        // A kill may have left one of them.
        let definition = db.definition("t")?;
        if definition.index(&spec.name).is_ok() {
            db.drop_index("t", &spec.name)?;
        }
    }
    for i in 0.. {
        if last < i64::MAX && i > last / 10 {
            break;
        }
        say("B");
        db.add_indexes("t", &specs)?;
        let stats = db.stats();
        let (flushes, merges) = (stats.get(Metric::MemtableFlushes), stats.get(Metric::Merges));
        say(&format!("V {flushes} {merges} {}", stats.get(Metric::Checkpoints)));
        for spec in &specs {
            db.drop_index("t", &spec.name)?;
        }
        say("D");
    }
    Ok(())
}
