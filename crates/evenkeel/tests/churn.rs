//! Tables that churn: rows are inserted at one end and deleted at the other, or the same column
//! changes over and over. The cost of an operation is counted in visited pages, so it does not
//! depend on the machine: it must be as low at the end as at the beginning; and so must the space
//! on disk.
//!
//! `cargo test --release -p evenkeel --test churn -- --ignored --nocapture` runs longer:
//! `EVENKEEL_CHURN` is the number of times that each table is replaced (default 100).

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Durability, Geometry, IndexSpec, Isolation, Metric,
    Options, TableSpec, Txn, Value,
};
use evenkeel_pages::visits;
use std::path::Path;
use std::time::{Duration, Instant};

/// Rows of a transaction.
const BATCH: i64 = 100;
const PAD: [u8; 100] = [7; 100];
/// The most pages that a search for the lowest row visits, whatever was deleted.
const SEARCH_PAGES: u64 = 32;
/// The most pages that 99 of 100 searches visit while rows are deleted: the lag that the background
/// may have. In a queue of 20,000 rows replaced five times, 3,000 are dead.
const LAG_PAGES: u64 = 512;
/// Rounds of inserts and deletes between two searches that are counted.
const SEARCH_ROUNDS: i64 = 10;
/// The values of a row and its entry of the index.
const ROW_BYTES: u64 = (8 + 8 + 100) + (8 + 8);
/// One memtable generation, which may have become a run that is not merged yet.
const GENERATION: u64 = 1 << 20;

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
    let geometry = Geometry { generation_bytes: Some(GENERATION), ..Geometry::default() };
    let options = options.geometry(geometry);
    Database::open_with(dir, options).expect("opens")
}

fn begin(db: &Database) -> Txn {
    db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins")
}

fn insert(db: &Database, ids: std::ops::Range<i64>) {
    let txn = begin(db);
    let table = txn.table("t").expect("table");
    for id in ids {
        table.insert(&[Int(id), Int(scatter(id)), Bytes(&PAD)]).expect("inserts");
    }
    txn.commit().expect("commits");
}

/// The lowest row, and the pages visited to find it.
fn lowest(db: &Database) -> (i64, u64) {
    let txn = begin(db);
    let before = visits();
    let row = txn.table("t").expect("table").first().expect("reads").expect("a row");
    let pages = visits() - before;
    let Int(id) = row.value("id").expect("id") else { panic!("an id") };
    (id, pages)
}

/// The same after the background has caught up with the deletes: its lag depends on the machine.
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

/// Bytes of the files below a directory, without the log, which has a fixed size.
fn space(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).expect("directory").flatten();
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() && entry.file_name() == "wal" => 0,
        Ok(data) if data.is_dir() => space(&entry.path()),
        Ok(data) => data.blocks() * 512,
        // It was removed meanwhile.
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

/// Bytes of the runs of its index.
fn index_bytes(db: &Database) -> u64 {
    db.table_stats().expect("figures")[0].indexes[0].run_bytes
}

/// The space that a table of `rows` rows may take, if it takes `space` just after a load: 1.3 of
/// that, and a tenth of the rows for partly used extents and runs not compacted yet.
fn most_of(rows: i64, space: u64) -> u64 {
    space * 13 / 10 + rows as u64 * ROW_BYTES / 10
}

/// The space of `rows` rows just after a load.
fn space_of(rows: i64) -> u64 {
    loaded(rows).0
}

/// The same, and of that the index.
fn loaded(rows: i64) -> (u64, u64) {
    let dir = tempfile::tempdir().expect("directory");
    let db = open(dir.path());
    db.create_table("t", &spec()).expect("creates");
    let row = |id| vec![Value::Int(id), Value::Int(scatter(id)), Value::Bytes(PAD.to_vec())];
    db.load_table("t", (0..rows).map(row)).expect("loads");
    let index = index_bytes(&db);
    db.close().expect("closes");
    (space(dir.path()), index)
}

/// The median of some counts, and the value that one in a hundred exceeds.
fn spread(counts: &mut [u64]) -> (u64, u64) {
    counts.sort_unstable();
    (counts[counts.len() / 2], counts[counts.len() * 99 / 100])
}

/// The spread in the first and in the last of `parts` parts.
fn ends(counts: &mut [u64], parts: usize) -> ((u64, u64), (u64, u64)) {
    let (part, all) = (counts.len() / parts, counts.len());
    (spread(&mut counts[..part]), spread(&mut counts[all - part..]))
}

/// Waits until a figure is at most this, and returns it: freed space is reclaimed in the
/// background, which takes time on a busy machine. Gives up if the figure has not fallen for two
/// minutes.
fn settles(most: u64, figure: impl Fn() -> u64) -> u64 {
    let (mut least, mut since) = (u64::MAX, Instant::now());
    loop {
        let now = figure();
        if now < least {
            (least, since) = (now, Instant::now());
        }
        if now <= most || since.elapsed() > Duration::from_secs(120) {
            return now;
        }
        std::thread::yield_now();
    }
}

/// A queue of `live` rows that is replaced `times` times. With `snapshots`, an old snapshot is held
/// for a fifth of the rows each time.
fn queue(live: i64, times: i64, snapshots: bool) {
    let dir = tempfile::tempdir().expect("directory");
    let db = open(dir.path());
    db.create_table("t", &spec()).expect("creates");
    (0..live / BATCH).for_each(|n| insert(&db, n * BATCH..(n + 1) * BATCH));
    let rounds = live * times / BATCH;
    // The rows of two snapshots come on top; files that have grown for them keep that room.
    let held = if snapshots { 2 * live as u64 / 5 * ROW_BYTES } else { 0 };
    let bound = most_of(live, space_of(live)) + held;
    let (mut searches, mut deletes, mut most) = (Vec::new(), Vec::new(), 0);
    let mut snapshot = None;
    for round in 0..rounds {
        if snapshots && round % (live / BATCH / 5) == 0 {
            let old = begin(&db);
            old.take_snapshot().expect("a snapshot");
            snapshot = Some(old);
        }
        let first = live + round * BATCH;
        insert(&db, first..first + BATCH);
        let low = round * BATCH;
        if round % SEARCH_ROUNDS == 0 {
            let (found, pages) = settled_lowest(&db);
            assert_eq!(found, low);
            searches.push(pages);
        }
        let txn = begin(&db);
        let table = txn.table("t").expect("table");
        for id in low..low + BATCH {
            let before = visits();
            assert!(table.delete(&[Int(id)]).expect("deletes"));
            deletes.push(visits() - before);
        }
        txn.commit().expect("commits");
        if round % (rounds / 10) == 0 {
            most = most.max(settles(bound, || space(dir.path())));
        }
    }
    drop(snapshot);
    let (search, delete) = (ends(&mut searches, 10), ends(&mut deletes, 10));
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
    // Each visited at most `SEARCH_PAGES`; the number of searches depends on timing.
    let ((first, _), (mut last, _)) = search;
    if last > first + 8 {
        last = settles(first + 8, || lowest(&db).1);
    }
    assert!(last <= first + 8, "a search visits {first} pages, at the end {last}");
    assert!(most <= bound && settled <= bound, "{most} and {settled} bytes of {bound}");
    let check = db.check().expect("checks");
    assert_eq!((check.rows, check.problems.len()), (live as u64, 0), "{:?}", check.problems);
}

/// A queue whose rows one thread inserts and another deletes, each row in its own transaction;
/// between its deletes the second thread searches for the lowest row, whatever the background's
/// lag. Returns the value that one search in a hundred exceeds, in the first fifth and in the last.
fn both_ends(live: i64, times: i64) -> (u64, u64) {
    let dir = tempfile::tempdir().expect("directory");
    let db = open(dir.path());
    db.create_table("t", &spec()).expect("creates");
    (0..live / BATCH).for_each(|n| insert(&db, n * BATCH..(n + 1) * BATCH));
    let (first, last) = (live, live + live * times);
    // Neither thread gets further ahead of the other than this.
    let (ahead, may_insert) = std::sync::mpsc::sync_channel::<()>(10);
    let (mut deletes, mut searches) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let db = &db;
        scope.spawn(move || {
            for from in (first..last).step_by(BATCH as usize) {
                insert(db, from..from + BATCH);
                if ahead.send(()).is_err() {
                    break;
                }
            }
        });
        for low in (0..last - first).step_by(BATCH as usize) {
            may_insert.recv().expect("rows are inserted");
            for id in low..low + BATCH {
                let before = visits();
                let txn = begin(db);
                assert!(txn.table("t").expect("table").delete(&[Int(id)]).expect("deletes"));
                txn.commit().expect("commits");
                deletes.push(visits() - before);
            }
            let (found, pages) = lowest(db);
            assert_eq!(found, low + BATCH);
            searches.push(pages);
        }
    });
    let most = searches.iter().max().copied();
    let (search, delete) = (ends(&mut searches, 5), ends(&mut deletes, 10));
    println!(
        "queue of {live} rows, replaced {times} times by two threads: pages visited (median, p99): \
         min(pk), first and last fifth {search:?}, at most {most:?}; delete, first and last tenth \
         {delete:?}"
    );
    let ((_, first), (_, last)) = delete;
    assert!(last <= first + 2, "a delete visits {first} pages, at the end {last}");
    let ((_, first), (_, last)) = search;
    assert!(last <= LAG_PAGES, "a search visits {last} pages at the end");
    let check = db.check().expect("checks");
    assert_eq!((check.rows, check.problems.len()), (live as u64, 0), "{:?}", check.problems);
    (first, last)
}

/// An index whose column every row changes `times` times.
fn updates(rows: i64, times: i64) {
    let dir = tempfile::tempdir().expect("directory");
    let db = open(dir.path());
    db.create_table("t", &spec()).expect("creates");
    (0..rows / BATCH).for_each(|n| insert(&db, n * BATCH..(n + 1) * BATCH));
    let (space_loaded, index_loaded) = loaded(rows);
    let bound = most_of(rows, space_loaded);
    let index_bound = index_loaded * 13 / 10 + GENERATION;
    let (mut most, mut index) = (0, 0);
    for time in 1..=times {
        for batch in 0..rows / BATCH {
            let txn = begin(&db);
            let table = txn.table("t").expect("table");
            for n in batch * BATCH..(batch + 1) * BATCH {
                // Each row once, in mixed order.
                let id = n * 7_919 % rows;
                let value = Int(scatter(id + time * rows));
                assert!(table.update(&[Int(id)], &[(1, value)]).expect("updates"));
            }
            txn.commit().expect("commits");
        }
        most = most.max(settles(bound, || space(dir.path())));
        index = index.max(settles(index_bound, || index_bytes(&db)));
    }
    let flushed = db.stats().get(Metric::RunFlushBytes);
    assert!(flushed > 2 * index_bound, "{flushed} bytes flushed could not exceed {index_bound}");
    let settled = settles(bound, || space(dir.path()));
    println!(
        "{rows} rows, an indexed column changed {times} times: space at most {} KiB, at the end {} \
         KiB, bound {} KiB; index at most {} KiB, bound {} KiB, flushed {} KiB",
        most >> 10,
        settled >> 10,
        bound >> 10,
        index >> 10,
        index_bound >> 10,
        flushed >> 10
    );
    assert!(index <= index_bound, "the index has {index} bytes of {index_bound}");
    assert!(most <= bound && settled <= bound, "{most} and {settled} bytes of {bound}");
    let check = db.check().expect("checks");
    assert_eq!((check.rows, check.problems.len()), (rows as u64, 0), "{:?}", check.problems);
}

#[test]
fn the_cost_and_space_of_a_queue_stay_constant() {
    queue(100_000, 4, false);
}

#[test]
fn the_cost_and_space_of_a_queue_with_snapshots_stay_constant() {
    queue(100_000, 4, true);
}

#[test]
fn the_cost_of_a_queue_of_two_threads_stays_constant() {
    // The momentary lag of the background depends on the machine: it varies by a factor of two, and
    // a busy machine may try again.
    let flat = (0..3).any(|_| {
        let (first, last) = both_ends(20_000, 10);
        last <= 2 * first + LAG_PAGES / 8
    });
    assert!(flat, "searches visit ever more pages");
}

#[test]
fn an_index_under_constant_updates_does_not_grow() {
    updates(100_000, 5);
}

#[test]
#[ignore = "takes minutes"]
fn churn_over_many_rounds() {
    let times = std::env::var("EVENKEEL_CHURN").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    queue(200_000, times, false);
    queue(200_000, times, true);
    updates(100_000, times);
    // So large that costs which do not grow with the rows are negligible.
    queue(1_000_000, times / 10, false);
    updates(1_000_000, times / 10);
    both_ends(200_000, times / 10);
}
