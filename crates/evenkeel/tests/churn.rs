//! Tables that churn: rows come at one end and go at the other, or change the same column over and
//! over. What an operation costs is counted in pages visited, so it does not depend on the machine:
//! it must be as low at the end as at the beginning; and so must the space on disk.
//!
//! `cargo test --release -p evenkeel --test churn -- --ignored --nocapture` does it for longer:
//! `EVENKEEL_CHURN` says how many times over each table is replaced (default 100).

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Durability, IndexSpec, Isolation, Options, TableSpec,
    Txn, Value,
};
use evenkeel_pages::visits;
use std::path::Path;
use std::time::{Duration, Instant};

/// Rows of a transaction.
const BATCH: i64 = 100;
const PAD: [u8; 100] = [7; 100];
/// Pages that a search for the lowest row visits at most, whatever was deleted.
const SEARCH_PAGES: u64 = 32;
/// Rounds of inserts and deletes between two searches that are counted.
const SEARCH_ROUNDS: i64 = 10;
/// Space beside the rows that does not grow with them: extents begun, runs not merged yet.
const CONSTANT: u64 = 12 << 20;

fn spec() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 200 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_value", &["value"]))
}

/// A number that looks random.
fn scatter(n: i64) -> i64 {
    (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64 >> 20
}

fn open(dir: &Path) -> Database {
    let mut options = Options::new();
    options.memory_size = 32 << 20;
    options.log_size = 32 << 20;
    options.durability = Durability::Lazy;
    Database::open_with(dir, options).expect("opens")
}

fn begin(db: &Database) -> Txn {
    db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins")
}

fn insert(db: &Database, ids: std::ops::Range<i64>) {
    let mut txn = begin(db);
    let mut table = txn.table("t").expect("table");
    for id in ids {
        table.insert(&[Int(id), Int(scatter(id)), Bytes(&PAD)]).expect("inserts");
    }
    txn.commit().expect("commits");
}

/// The lowest row, and the pages visited to find it.
fn lowest(db: &Database) -> (i64, u64) {
    let mut txn = begin(db);
    let before = visits();
    let row = txn.table("t").expect("table").first().expect("reads").expect("a row");
    let pages = visits() - before;
    let Int(id) = row.get("id").expect("id") else { panic!("an id") };
    (id, pages)
}

/// The same once the background has caught up with the deletes: how far it lags behind is the
/// machine's business.
fn settled_lowest(db: &Database) -> (i64, u64) {
    let mut found = lowest(db);
    for _ in 0..24_000 {
        if found.1 <= SEARCH_PAGES {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        found = lowest(db);
    }
    assert!(found.1 <= SEARCH_PAGES, "a search for the lowest row visits {} pages", found.1);
    found
}

/// Bytes that files below a directory take, but for the log, which has a size of its own.
fn space(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).expect("directory").flatten();
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() && entry.file_name() == "wal" => 0,
        Ok(data) if data.is_dir() => space(&entry.path()),
        Ok(data) => data.blocks() * 512,
        // It went meanwhile.
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

/// What so many rows take that were just loaded.
fn space_of(rows: i64) -> u64 {
    let dir = tempfile::tempdir().expect("directory");
    let db = open(dir.path());
    db.create_table("t", &spec()).expect("creates");
    let row = |id| vec![Value::Int(id), Value::Int(scatter(id)), Value::Bytes(PAD.to_vec())];
    db.load_table("t", (0..rows).map(row)).expect("loads");
    db.close().expect("closes");
    space(dir.path())
}

/// The median of some counts, and what one in a hundred exceeds.
fn spread(counts: &mut [u64]) -> (u64, u64) {
    counts.sort_unstable();
    (counts[counts.len() / 2], counts[counts.len() * 99 / 100])
}

/// The spread in the first tenth and in the last.
fn ends(counts: &mut [u64]) -> ((u64, u64), (u64, u64)) {
    let (tenth, all) = (counts.len() / 10, counts.len());
    (spread(&mut counts[..tenth]), spread(&mut counts[all - tenth..]))
}

/// Waits until a figure is at most this, and gives it: what has been given up goes in the
/// background, which on a busy machine takes its time.
fn settles(most: u64, figure: impl Fn() -> u64) -> u64 {
    let start = Instant::now();
    while figure() > most && start.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(20));
    }
    figure()
}

/// A queue of `live` rows that is replaced `times` over. An old snapshot is held for a fifth of the
/// rows each time, if asked for.
fn queue(live: i64, times: i64, snapshots: bool) {
    let dir = tempfile::tempdir().expect("directory");
    let db = open(dir.path());
    db.create_table("t", &spec()).expect("creates");
    (0..live / BATCH).for_each(|n| insert(&db, n * BATCH..(n + 1) * BATCH));
    let rounds = live * times / BATCH;
    // What the rows of a held snapshot and of the generations take comes on top.
    let bound = space_of(live) * 13 / 10 + CONSTANT;
    let held_bytes = if snapshots { space_of(live / 4) } else { 0 };
    let (mut searches, mut deletes, mut most) = (Vec::new(), Vec::new(), 0);
    let mut held = None;
    for round in 0..rounds {
        if snapshots && round % (live / BATCH / 5) == 0 {
            let mut old = begin(&db);
            old.take_snapshot().expect("a snapshot");
            held = Some(old);
        }
        let first = live + round * BATCH;
        insert(&db, first..first + BATCH);
        let low = round * BATCH;
        if round % SEARCH_ROUNDS == 0 {
            let (found, pages) = settled_lowest(&db);
            assert_eq!(found, low);
            searches.push(pages);
        }
        let before = visits();
        let mut txn = begin(&db);
        let mut table = txn.table("t").expect("table");
        for id in low..low + BATCH {
            assert!(table.delete(&[Int(id)]).expect("deletes"));
        }
        txn.commit().expect("commits");
        deletes.push((visits() - before) / BATCH as u64);
        if round % (rounds / 10) == 0 {
            most = most.max(settles(bound + held_bytes, || space(dir.path())));
        }
    }
    drop(held);
    let (search, delete) = (ends(&mut searches), ends(&mut deletes));
    let settled = settles(bound, || space(dir.path()));
    println!(
        "queue of {live} rows, replaced {times} times, snapshots {snapshots}: pages visited \
         (median, p99) first and last tenth: min(pk) {search:?}, delete {delete:?}; space at \
         most {} KiB, at the end {} KiB, bound {} KiB",
        most >> 10,
        settled >> 10,
        bound >> 10
    );
    let ((_, first), (_, last)) = delete;
    assert!(last <= first + 2, "a delete visits {first} pages, at the end {last}");
    // Each visited at most `SEARCH_PAGES`; how many of them depends on the moment.
    let ((first, _), (mut last, _)) = search;
    if last > first + 8 {
        last = settles(first + 8, || lowest(&db).1);
    }
    assert!(last <= first + 8, "a search visits {first} pages, at the end {last}");
    assert!(
        most <= bound + held_bytes && settled <= bound,
        "{most} and {settled} bytes of {bound}"
    );
    let check = db.check().expect("checks");
    assert_eq!((check.rows, check.problems.len()), (live as u64, 0), "{:?}", check.problems);
}

/// An index whose column every row changes `times` over.
fn updates(rows: i64, times: i64) {
    let dir = tempfile::tempdir().expect("directory");
    let db = open(dir.path());
    db.create_table("t", &spec()).expect("creates");
    (0..rows / BATCH).for_each(|n| insert(&db, n * BATCH..(n + 1) * BATCH));
    let bound = space_of(rows) * 13 / 10 + CONSTANT;
    let (mut most, mut index) = (0, 0);
    for time in 1..=times {
        for batch in 0..rows / BATCH {
            let mut txn = begin(&db);
            let mut table = txn.table("t").expect("table");
            for n in batch * BATCH..(batch + 1) * BATCH {
                // Each row once, in no order.
                let id = n * 7_919 % rows;
                let value = Int(scatter(id + time * rows));
                assert!(table.update(&[Int(id)], &[(1, value)]).expect("updates"));
            }
            txn.commit().expect("commits");
        }
        most = most.max(settles(bound, || space(dir.path())));
        index = db.table_stats().expect("figures")[0].indexes[0].run_bytes;
    }
    let settled = settles(bound, || space(dir.path()));
    println!(
        "{rows} rows, an indexed column changed {times} times: space at most {} KiB, at the end {} \
         KiB, bound {} KiB; index {} KiB",
        most >> 10,
        settled >> 10,
        bound >> 10,
        index >> 10
    );
    assert!(most <= bound && settled <= bound, "{most} and {settled} bytes of {bound}");
    let check = db.check().expect("checks");
    assert_eq!((check.rows, check.problems.len()), (rows as u64, 0), "{:?}", check.problems);
}

#[test]
fn a_queue_costs_and_takes_no_more_in_the_end() {
    queue(50_000, 6, false);
}

#[test]
fn a_queue_beside_snapshots_costs_and_takes_no_more_in_the_end() {
    queue(50_000, 6, true);
}

#[test]
fn an_index_that_is_changed_all_the_time_does_not_grow() {
    updates(20_000, 10);
}

#[test]
#[ignore = "takes minutes"]
fn for_longer() {
    let times = std::env::var("EVENKEEL_CHURN").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    queue(200_000, times, false);
    queue(200_000, times, true);
    updates(100_000, times);
}
