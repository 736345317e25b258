//! The main path end to end: create, load, index, commit, close, crash, reopen.

use evenkeel::ValueRef::{Int, Text};
use evenkeel::io::Env;
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Direction, Geometry, IndexSpec, Isolation,
    Metric, Options, Range, Row, TableSpec,
};
use std::sync::Arc;

fn spec() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("city", ColumnType::Int32))
        .column(ColumnSpec::new("name", ColumnType::Text { max: 100 }))
        .primary_key(&["id"])
}

fn load(db: &Database, from: i64, to: i64) {
    for batch in (from..to).step_by(50) {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
        let table = txn.table("t").expect("table");
        for id in batch..(batch + 50).min(to) {
            let name = format!("name-{id}");
            let row = [Int(id), Int((id * 7919) % 101), Text(&name)];
            table.insert(&row).expect("insert");
        }
        txn.commit().expect("commit");
    }
}

fn verify(db: &Database, rows: i64, indexed: bool) {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
    let table = txn.table("t").expect("table");
    let mut scan = table.scan(Range::ALL, Direction::Forward).expect("scan");
    let mut row = Row::new();
    let mut n = 0;
    while scan.next(&mut row).expect("row") {
        assert_eq!(row.value("id").expect("id"), Int(n));
        n += 1;
    }
    assert_eq!(n, rows);
    let check = db.check().expect("check");
    assert_eq!((check.rows, check.problems.len()), (rows as u64, 0), "{:?}", check.problems);
    if !indexed {
        return;
    }
    let index = table.index("by_city").expect("index").keys_only();
    let mut scan = index.scan(Range::ALL, Direction::Forward).expect("scan");
    let (mut n, mut last) = (0, (i64::MIN, i64::MIN));
    while scan.next(&mut row).expect("entry") {
        let (Int(city), Int(id)) = (row.value("city").expect("city"), row.value("id").expect("id"))
        else {
            panic!("types")
        };
        assert_eq!(city, (id * 7919) % 101);
        assert!((city, id) > last);
        last = (city, id);
        n += 1;
    }
    assert_eq!(n, rows);
}

#[test]
fn load_index_load_close_and_reopen() {
    let dir = tempfile::tempdir().expect("dir");
    let db = Database::open(dir.path()).expect("open");
    db.create_table("t", &spec()).expect("create");
    load(&db, 0, 20_000);
    verify(&db, 20_000, false);
    db.add_indexes("t", &[IndexSpec::new("by_city", &["city"])]).expect("add index");
    verify(&db, 20_000, true);
    load(&db, 20_000, 30_000);
    verify(&db, 30_000, true);
    db.close().expect("close");
    let db = Database::open(dir.path()).expect("reopen");
    assert!(db.recovery().clean);
    verify(&db, 30_000, true);
}

#[test]
fn a_process_that_dies_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().expect("dir");
    let db = Database::open(dir.path()).expect("open");
    let spec = spec().index(IndexSpec::new("by_city", &["city"]));
    db.create_table("t", &spec).expect("create");
    load(&db, 0, 5_000);
    // The files in the state that a kill leaves.
    let copy = tempfile::tempdir().expect("dir");
    copy_dir(dir.path(), copy.path());
    drop(db);
    let before = listing(copy.path());
    let read_only = Options { read_only: true, ..Options::new() };
    let db = Database::open_with(copy.path(), read_only).expect("open read-only");
    verify(&db, 5_000, true);
    assert!(db.begin(Isolation::RepeatableRead, Access::ReadWrite).is_err());
    assert!(Database::open(copy.path()).is_err(), "one process, one opener");
    db.close().expect("close");
    assert_eq!(listing(copy.path()), before, "a read-only open wrote something");
    let db = Database::open_with(copy.path(), Options::new()).expect("recover");
    assert!(!db.recovery().clean);
    assert!(db.recovery().rows > 0);
    verify(&db, 5_000, true);
    load(&db, 5_000, 6_000);
    verify(&db, 6_000, true);
}

/// The log of a killed process is longer than the `log_size` of the next open: that open rolls back
/// undecided transactions and takes checkpoints, and users write.
#[test]
fn a_log_longer_than_the_new_log_size_is_opened() {
    let dir = tempfile::tempdir().expect("dir");
    let options = |log| {
        let geometry = Geometry { log_bytes: Some(log), ..Geometry::default() };
        Options { memory_size: 256 << 20, ..Options::new().geometry(geometry) }
    };
    let db = Database::open_with(dir.path(), options(64 << 20)).expect("open");
    db.create_table("t", &spec().index(IndexSpec::new("by_city", &["city"]))).expect("create");
    load(&db, 0, 80_000);
    let loser = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    loser.table("t").expect("table").insert(&[Int(-1), Int(1), Text("")]).expect("insert");
    load(&db, 80_000, 80_001);
    let copy = tempfile::tempdir().expect("dir");
    copy_dir(dir.path(), copy.path());
    drop((loser, db));
    let small = 1 << 20;
    let db = Database::open_with(copy.path(), options(small)).expect("open with a smaller log");
    assert!(db.recovery().log_bytes > 3 * small, "{:?}", db.recovery());
    load(&db, 80_001, 90_000);
    verify(&db, 90_000, true);
    db.close().expect("close");
}

/// Entries that are in no run keep the log, and with it the records of pages that were written long
/// ago: an open after a clean close finds those pages up to date and writes none of them.
#[test]
fn an_open_after_a_clean_close_writes_no_page() {
    let dir = tempfile::tempdir().expect("dir");
    let db = Database::open(dir.path()).expect("open");
    db.create_table("t", &spec().index(IndexSpec::new("by_city", &["city"]))).expect("create");
    load(&db, 0, 20_000);
    db.close().expect("close");
    let db = Database::open(dir.path()).expect("reopen");
    assert!(db.recovery().rows >= 20_000, "the log is gone: nothing is tested");
    db.checkpoint().expect("writes what is dirty");
    let written = db.stats().get(Metric::PageWrites);
    assert!(written <= 8, "{written} pages written");
    verify(&db, 20_000, true);
}

/// A read-only open starts no thread that compacts, flushes or takes checkpoints; and a transaction
/// gets an error if another clone closes the database.
#[test]
fn a_read_only_open_starts_no_writing_thread() {
    let env: Arc<dyn Env> = Arc::new(evenkeel_io::MemEnv::new());
    let geometry = Geometry { generation_bytes: Some(64 << 10), ..Geometry::default() };
    let options = |read_only| Options {
        read_only,
        memory_size: 16 << 20,
        ..Options::new().env(env.clone()).geometry(geometry)
    };
    let db = Database::open_with("db", options(false)).expect("open");
    db.create_table("t", &spec().index(IndexSpec::new("by_city", &["city"]))).expect("create");
    load(&db, 0, 12_000);
    let begin = || db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let (other, late) = (db.clone(), begin());
    other.close().expect("close");
    assert_eq!(late.table("t").err().expect("closed").code(), Code::DatabaseClosed);
    assert_eq!(late.commit().expect_err("closed").code(), Code::DatabaseClosed);
    assert_eq!(db.pass_number("t", 7).expect_err("closed").code(), Code::DatabaseClosed);
    drop(db);
    let db = Database::open_with("db", options(true)).expect("open read-only");
    verify(&db, 12_000, true);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let stats = db.stats();
    for nothing in [Metric::CompactionWriteBytes, Metric::RunFlushBytes, Metric::Checkpoints] {
        assert_eq!(stats.get(nothing), 0, "{}", nothing.name());
    }
    assert_eq!(db.commit_prepared(b"x").expect_err("read-only").code(), Code::OpenedReadOnly);
    db.close().expect("close");
}

fn listing(dir: &std::path::Path) -> Vec<(String, u64, std::time::SystemTime)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).expect("list") {
        let entry = entry.expect("entry");
        let meta = entry.metadata().expect("metadata");
        if meta.is_dir() {
            all.extend(listing(&entry.path()));
        } else {
            let name = entry.path().display().to_string();
            all.push((name, meta.len(), meta.modified().expect("time")));
        }
    }
    all.sort();
    all
}

/// Copies the files of an open database in order of their names, the log last: pages that are
/// written meanwhile are no newer than the log.
fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    let entries = std::fs::read_dir(from).expect("list").map(|entry| entry.expect("entry"));
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).expect("mkdir");
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).expect("copy");
        }
    }
}

#[test]
fn a_bulk_load_is_all_or_nothing() {
    use evenkeel::{Code, Value};
    let db = Database::open_with("memory", Options::in_memory()).expect("open");
    db.create_table("t", &spec()).expect("create");
    let row = |id: i64| {
        let city = (id * 7919) % 101;
        vec![Value::Int(id), Value::Int(city), Value::Text(format!("name-{id}"))]
    };
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let loaded = txn.table("t").expect("table").bulk_load((0..3000).map(row));
    assert_eq!(loaded.expect("load"), 3000);
    let wrong = (3000..3500).chain([17]).map(row);
    let error = txn.table("t").expect("table").bulk_load(wrong).expect_err("not sorted");
    assert_eq!((error.code(), error.context("row")), (Code::RowsNotSorted, Some("500")));
    txn.commit().expect("commit");
    verify(&db, 3000, false);
}

/// A bulk load whose transaction a deadlock rolls back says so.
#[test]
fn a_bulk_load_reports_a_deadlock() {
    use evenkeel::{Kind, Value};
    let db = Database::open_with("memory", Options::in_memory()).expect("open");
    db.create_table("t", &spec()).expect("create");
    let row = |id: i64| vec![Value::Int(id), Value::Int(1), Value::Text("name".into())];
    let begin = || db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let other = begin();
    other.table("t").expect("table").bulk_load((100..110).map(row)).expect("loads");
    std::thread::scope(|scope| {
        let victim = scope.spawn(|| {
            let txn = begin();
            txn.table("t").expect("table").bulk_load([row(50)]).expect("loads");
            let error = txn.table("t").expect("table").bulk_load([row(60), row(100)]);
            (error.expect_err("a deadlock").kind(), txn.is_ended())
        });
        while db.transactions().iter().all(|txn| txn.waits_for.is_empty()) {
            std::thread::yield_now();
        }
        other.table("t").expect("table").bulk_load([row(50)]).expect("the other one gives up");
        assert_eq!(victim.join().expect("thread"), (Kind::Deadlock, true));
    });
}

/// Figures of tables are read during DROP and TRUNCATE: a dropped page is no damage.
#[test]
fn table_figures_are_read_during_drops() {
    use evenkeel::{Code, Value};
    let db = Database::open_with("memory", Options::in_memory()).expect("open");
    let fill = || {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
        let row = |id: i64| vec![Value::Int(id), Value::Int(1), Value::Text("name".into())];
        txn.table("t").expect("table").bulk_load((0..2000).map(row)).expect("loads");
        txn.commit().expect("commit");
    };
    use std::sync::atomic::{AtomicBool, Ordering};
    /// The reader also ends if the other threads fail.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                db.table_stats().expect("figures");
                let missing = |code| assert_eq!(code, Code::TableMissing);
                let _ = db.table_info("t").map_err(|error| missing(error.code()));
            }
        });
        for _ in 0..100 {
            db.create_table("t", &spec()).expect("create");
            fill();
            db.truncate("t").expect("truncate");
            fill();
            db.drop_table("t").expect("drop");
        }
        drop(over);
        reader.join().expect("reader");
    });
    // An unused handle does not keep its table.
    db.create_table("t", &spec()).expect("create");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let table = txn.table("t").expect("table");
    db.drop_table("t").expect("drop");
    let error = table.count_estimate(Range::ALL).expect_err("it is gone");
    assert_eq!(error.code(), Code::TableMissing);
}

/// Bytes allocated to a directory's files.
fn blocks_of(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("entry").path();
        let facts = std::fs::metadata(&path).expect("metadata");
        if facts.is_dir() { blocks_of(&path) } else { facts.blocks() * 512 }
    };
    std::fs::read_dir(dir).expect("list").map(of).sum()
}

#[test]
fn a_new_database_is_small() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open_with(dir.path(), Options::new()).expect("opens");
    let bytes = blocks_of(dir.path());
    // The bar is 40 MiB (E12). Ballast and log exist from the start.
    assert!((13 << 20..=28 << 20).contains(&bytes), "{bytes} bytes");
    db.close().expect("closes");
}

/// Users may take checkpoints concurrently with the background and each other.
#[test]
fn checkpoints_are_taken_one_at_a_time() {
    let db = Database::open_with("db", Options::in_memory()).expect("opens");
    db.create_table("t", &spec()).expect("creates");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| db.checkpoint().expect("a checkpoint")));
        }
    });
    db.close().expect("closes");
}

/// Sets version 1 of the log in the superblock and in each segment.
fn make_log_version_1(dir: &std::path::Path) {
    use evenkeel_base::{DatabaseId, crc32c};
    let path = dir.join("evenkeel.super");
    let mut bytes = std::fs::read(&path).expect("superblock");
    for slot in bytes.chunks_mut(4096).filter(|slot| slot.starts_with(b"EVENKEEL")) {
        slot[16..18].copy_from_slice(&1u16.to_le_bytes());
        let crc = crc32c(0, &slot[12..]);
        slot[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(&path, bytes).expect("superblock");
    for entry in std::fs::read_dir(dir.join("wal")).expect("list") {
        let path = entry.expect("entry").path();
        let mut bytes = std::fs::read(&path).expect("segment");
        if bytes.starts_with(b"EVKNWAL\0") {
            bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
            let own = DatabaseId(u64::from_le_bytes(bytes[40..48].try_into().expect("8 bytes")));
            let crc = crc32c(crc32c(own.crc32c(&bytes[..12]), &[0; 4]), &bytes[16..4096]);
            bytes[12..16].copy_from_slice(&crc.to_le_bytes());
            std::fs::write(&path, bytes).expect("segment");
        }
    }
}

/// A log of the previous version is recovered, and an older build is refused before any record is
/// written that it would misread.
#[test]
fn a_log_of_version_1_is_recovered_and_replaced() {
    let (of, copy) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
    let db = Database::open(of.path()).expect("open");
    db.create_table("t", &spec()).expect("create");
    load(&db, 0, 500);
    copy_dir(of.path(), copy.path());
    db.close().expect("close");
    make_log_version_1(copy.path());
    let db = Database::open(copy.path()).expect("a directory of version 1");
    let report = db.recovery();
    assert!(!report.clean && report.rows >= 500, "{report}");
    verify(&db, 500, false);
    let slots = std::fs::read(copy.path().join("evenkeel.super")).expect("superblock");
    let newest = |slot: &&[u8]| u64::from_le_bytes(slot[32..40].try_into().expect("8 bytes"));
    let slot = slots.chunks(4096).max_by_key(newest).expect("a slot");
    assert_eq!(slot[16], 2, "the version of the log");
    load(&db, 500, 600);
    verify(&db, 600, false);
    db.close().expect("close");
    let db = Database::open(copy.path()).expect("open");
    verify(&db, 600, false);
}
