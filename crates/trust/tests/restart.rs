//! A killed transaction of any size does not delay the next open (B6): recovery reads no more than
//! the log and rolls nothing back, and the first query sees the rows as they were. The background
//! rolls the transaction back, also through a second kill. `EVENKEEL_LOSER_ROWS` is the size of the
//! larger transaction (10M changes in the release ladder).

use evenkeel::ValueRef::Int;
use evenkeel::{Access, Database, Direction, Isolation, Metric, Range, RecoveryReport, Row};
use evenkeel_trust::restart::{self, GONE, LOG_BYTES};
use std::path::Path;
use std::process::Command;

fn child(what: &str, dir: &Path, rows: u64) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_evenkeel-trust-child"))
        .args([what, &dir.display().to_string(), &rows.to_string()])
        .output()
        .expect("the child runs");
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(!text.starts_with('E'), "{text}");
    text
}

/// The number of entries at or above `from`, by an index-only scan.
fn entries_from(db: &Database, from: i64) -> usize {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
    let index = txn.table("t").expect("table").index("by_value").expect("index");
    let low = [Int(from)];
    let mut scan = index.keys_only().scan(Range::from(&low), Direction::Forward).expect("scan");
    let (mut row, mut found) = (Row::new(), 0);
    while scan.next(&mut row).expect("entry") {
        found += 1;
    }
    found
}

/// Checks, by key and by the index, that no change of the loser is visible.
fn sees_the_old_rows(db: &Database, rows: i64) {
    for id in [0, 1, rows / 3, rows / 2, rows - 2] {
        assert_eq!(restart::value(db, id * 2), Some(id), "row {id}");
        assert_eq!(restart::value(db, id * 2 + 1), None, "row put behind {id}");
    }
    assert_eq!(entries_from(db, rows - 10), 10);
    assert_eq!(entries_from(db, GONE - rows), 0);
}

/// Kills a process with an open transaction of `2 * rows` changes, opens the database, kills it
/// half-way through the rollback, and opens it again until the rollback ends. `None` if the
/// background had rolled everything back before the first queries of this thread.
fn lose_and_open(rows: i64) -> Option<RecoveryReport> {
    let dir = tempfile::tempdir().expect("directory");
    let changes = 2 * rows as u64;
    assert!(child("lose", dir.path(), rows as u64).starts_with("lost"));
    let first = {
        let db = restart::open(dir.path()).expect("opens");
        sees_the_old_rows(&db, rows);
        let stats = db.stats();
        println!("{changes} changes: {:?}", db.recovery());
        println!(
            "after the first queries: {} reverted, {} transactions left",
            stats.get(Metric::RowsRolledBack),
            stats.get(Metric::RollingBackTxns)
        );
        if stats.get(Metric::RollingBackTxns) == 0 {
            return None;
        }
        // The background starts with the newest change, so the lowest key comes last. A writer does
        // not wait for it.
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
        assert!(txn.table("t").expect("table").update(&[Int(0)], &[(1, Int(-1))]).expect("update"));
        txn.rollback().expect("back");
        let stats = db.stats();
        if stats.get(Metric::RollingBackTxns) == 0 {
            return None;
        }
        assert!(stats.get(Metric::RollbacksOnTouch) >= 1);
        db.recovery()
    };
    // Dropping the database closed it with the rollback unfinished. Now it is killed half-way
    // through.
    let text = child("revert", dir.path(), changes / 2);
    println!("killed: {}", text.trim());
    let db = restart::open(dir.path()).expect("opens again");
    sees_the_old_rows(&db, rows);
    restart::await_reverted(&db, u64::MAX);
    let again = db.stats().get(Metric::RowsRolledBack);
    println!("third life: {:?}, {again} reverted", db.recovery());
    assert!(again <= changes * 3 / 4, "{again} of {changes} reverted once more");
    sees_the_old_rows(&db, rows);
    let check = db.check().expect("check");
    assert_eq!((check.rows, check.problems.len()), (rows as u64, 0), "{:?}", check.problems);
    for report in [first, db.recovery()] {
        assert!(report.losers <= 2 && !report.clean, "{report:?}");
    }
    Some(first)
}

#[test]
fn opening_after_a_huge_loser_costs_no_more_than_its_log() {
    let many = std::env::var("EVENKEEL_LOSER_ROWS").ok().and_then(|v| v.parse().ok());
    for rows in [10_000, many.unwrap_or(200_000) / 2] {
        // On a busy machine a short rollback may end before the first query of this thread.
        let mut tries = [rows, 4 * rows, 16 * rows].into_iter();
        let report = tries.find_map(lose_and_open).expect("reverted before anybody asked");
        // Each record of the log touches its leaf and the nodes above it.
        assert!(report.log_bytes <= LOG_BYTES, "{report:?}");
        assert!(report.page_reads <= LOG_BYTES / 4096, "{report:?}");
        assert!(report.read_bytes <= 6 * LOG_BYTES, "{report:?}");
    }
}
