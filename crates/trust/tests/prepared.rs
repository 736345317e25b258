//! A prepared transaction of any size does not delay the next open: recovery reads no more than the
//! log, and none of the transaction's undo. Until the transaction is decided, also through further
//! kills, stamps and entries alone lock its rows and unique keys (D5), and the checkpoint names its
//! tables. The transaction takes no memory. `EVENKEEL_PREPARED_ROWS` is the number of changes of
//! the larger one (10M in the release ladder).

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, Code, Database, Error, IndexSpec, Isolation, LockWait, Metric, RecoveryReport, Row,
};
use evenkeel_trust::restart::{self, GONE, LOG_BYTES, XID};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Runs a child. Returns its peak memory in KiB.
fn child(args: &[&str]) -> u64 {
    let out = Command::new(env!("CARGO_BIN_EXE_evenkeel-trust-child"));
    let out = { out }.args(args).output().expect("the child runs");
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(!text.is_empty() && !text.starts_with('E'), "{text}");
    println!("{}", text.trim());
    text.trim().rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

/// Requests of writers and locking readers for something that the prepared transaction holds.
#[derive(Clone, Copy, Debug)]
enum Touch {
    Update(i64),
    Delete(i64),
    Insert(i64, i64),
    Lock(i64),
}

fn touch(db: &Database, touch: Touch, wait: Duration) -> Result<(), Error> {
    let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    txn.set_lock_wait(wait);
    let table = txn.table("t")?;
    match touch {
        Touch::Update(id) => drop(table.update(&[Int(id)], &[(2, Bytes(b"mine"))])?),
        Touch::Delete(id) => drop(table.delete(&[Int(id)])?),
        Touch::Insert(id, value) => drop(table.insert(&[Int(id), Int(value), Bytes(b"mine")])?),
        Touch::Lock(id) => {
            table.get_for_update(&[Int(id)], LockWait::Wait, &mut Row::new())?;
        }
    }
    txn.rollback()
}

/// Checks what the first and the last changes hold: an updated row, an inserted row, keys of the
/// unique index that were removed and added. A schema change waits too.
fn all_is_locked(db: &Database, rows: i64) {
    let last = rows - 1;
    let free = -7;
    for one in [
        Touch::Update(0),
        Touch::Update(last * 2),
        Touch::Delete(rows / 2 * 2),
        Touch::Lock(0),
        Touch::Lock(last * 2 + 1),
        Touch::Insert(1, free),
        Touch::Insert(last * 2 + 1, free),
        Touch::Insert(free, 0),
        Touch::Insert(free, last),
        Touch::Insert(free, GONE),
        Touch::Insert(free, GONE - 1 - last),
    ] {
        let error = touch(db, one, Duration::from_millis(20)).expect_err("is locked");
        assert_eq!(error.code(), Code::LockWaitTimeout, "{one:?}: {error}");
    }
    touch(db, Touch::Insert(free, free), Duration::ZERO).expect("nobody holds that");
    db.set("lock_wait_timeout", 20).expect("set");
    let error = db.drop_table("t").expect_err("is in use");
    assert_eq!(error.code(), Code::TableBusy, "{error}");
    let index = [IndexSpec::new("by_pad", &["pad"])];
    let error = db.add_indexes("t", &index).expect_err("has writers");
    assert_eq!(error.code(), Code::TableBusy, "{error}");
    db.set("lock_wait_timeout", 50_000).expect("set");
    for id in [0, rows / 2, last] {
        assert_eq!((restart::value(db, id * 2), restart::value(db, id * 2 + 1)), (Some(id), None));
    }
}

/// Decides the transaction; waiting operations then continue.
fn decide(db: &Database, rows: i64, commit: bool) {
    let last = rows - 1;
    let long = Duration::from_secs(60);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = [Touch::Update(0), Touch::Update(last * 2), Touch::Insert(-7, last)]
            .map(|one| scope.spawn(move || touch(db, one, long)))
            .into();
        while db.stats().get(Metric::LockWaits) < 3 {
            std::thread::yield_now();
        }
        let done = if commit { db.commit_prepared(XID) } else { db.rollback_prepared(XID) };
        done.expect("decided");
        let ends = waiting.into_iter().map(|w| w.join().expect("no panic").map_err(|e| e.code()));
        let insert = if commit { Ok(()) } else { Err(Code::DuplicateKey) };
        assert_eq!(ends.collect::<Vec<_>>(), [Ok(()), Ok(()), insert]);
    });
    assert!(db.prepared().is_empty());
}

fn is_decided(db: &Database, rows: i64, commit: bool) {
    for id in [0, rows / 2, rows - 1] {
        let seen = (restart::value(db, id * 2), restart::value(db, id * 2 + 1));
        let wanted = if commit { (Some(GONE + id), Some(GONE - 1 - id)) } else { (Some(id), None) };
        assert_eq!(seen, wanted, "row {id}");
    }
}

/// Prepares, kills and opens. Returns the report of the open, and the peak memory of the children
/// that prepared and opened.
fn prepare_and_open(rows: i64, commit: bool) -> (RecoveryReport, u64) {
    let dir = tempfile::tempdir().expect("directory");
    let at: &Path = dir.path();
    let path = at.display().to_string();
    let preparing = child(&["prepare", &path, &rows.to_string()]);
    let first = {
        let db = restart::open(at).expect("opens");
        assert_eq!(db.prepared(), [XID]);
        all_is_locked(&db, rows);
        db.recovery()
    };
    println!("{} changes: {first:?}", 2 * rows);
    let opening = child(&["open", &path]).max(child(&["open", &path]));
    {
        let db = restart::open(at).expect("opens again");
        assert_eq!(db.prepared(), [XID]);
        all_is_locked(&db, rows);
        decide(&db, rows, commit);
    }
    child(&["open", &path]);
    let db = restart::open(at).expect("opens once more");
    assert!(db.prepared().is_empty());
    is_decided(&db, rows, commit);
    restart::await_reverted(&db, u64::MAX);
    is_decided(&db, rows, commit);
    let check = db.check().expect("check");
    let left = rows as u64 * if commit { 2 } else { 1 };
    assert_eq!((check.rows, check.problems.len()), (left, 0), "{:?}", check.problems);
    db.drop_table("t").expect("nobody uses it");
    (first, preparing.max(opening))
}

#[test]
fn opening_with_a_huge_prepared_transaction_costs_no_more_than_its_log() {
    let many = std::env::var("EVENKEEL_PREPARED_ROWS").ok().and_then(|v| v.parse().ok());
    let many = many.unwrap_or(200_000) / 2;
    let [(small, least), (large, most)] =
        [10_000, many].map(|rows| prepare_and_open(rows, rows > 10_000));
    for report in [&small, &large] {
        assert!(report.log_bytes <= LOG_BYTES, "{report:?}");
        assert!(report.page_reads <= LOG_BYTES / 4096, "{report:?}");
        assert!(report.read_bytes <= 6 * LOG_BYTES, "{report:?}");
    }
    // The small transaction did not fill the memory of run blocks and fences, 3/8 of 256 MiB.
    assert!(most <= least + (112 << 10), "{least} KiB, and {most} beside so many more rows");
    let (small, large) = (small.read_bytes, large.read_bytes);
    assert!(large <= small * 3 / 2, "{small} bytes read, and {large} beside ten times as much");
}

#[test]
fn rolling_back_a_prepared_transaction_after_kills_releases_everything() {
    prepare_and_open(20_000, false);
}
