//! The size of the log changes while the database is open.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Durability, Isolation, Options, TableSpec,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// Mebibyte.
const MIB: u64 = 1 << 20;

fn options(log_size: u64) -> Options {
    // No zeros are written ahead: only log records take time.
    let durability = Durability::Write;
    Options { memory_size: 32 * MIB, log_size, durability, ..Options::new() }
}

fn table(db: &Database) {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 10_000 }))
        .primary_key(&["id"]);
    db.create_table("t", &spec).expect("creates");
}

/// A transaction of 16 rows, about 128 KiB of log.
fn write(db: &Database, batch: i64) {
    let begun = db.begin(Isolation::ReadCommitted, Access::ReadWrite);
    let txn = begun.expect("begins");
    let t = txn.table("t").expect("table");
    for id in batch * 16..(batch + 1) * 16 {
        t.insert(&[Int(id), Bytes(&[batch as u8; 8_000])]).expect("inserts");
    }
    txn.commit().expect("commits");
}

/// Bytes of the log's files, and of the largest file.
fn log_files(dir: &Path) -> (u64, u64) {
    let files = std::fs::read_dir(dir.join("wal")).expect("a directory");
    // A file may be removed meanwhile.
    let lengths = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len()));
    lengths.fold((0, 0), |(sum, most), bytes| (sum + bytes, most.max(bytes)))
}

/// Two writers fill the log while its size is raised and lowered; the files reach the last size
/// while the writers continue.
#[test]
fn the_log_grows_and_shrinks_under_writers() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open_with(dir.path(), options(32 * MIB)).expect("opens");
    table(&db);
    let (batches, stop) = (AtomicI64::new(0), AtomicBool::new(false));
    let written = || batches.load(Ordering::SeqCst) as u64 * 128 * 1024;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    write(&db, batches.fetch_add(1, Ordering::SeqCst));
                }
            });
        }
        let start = Instant::now();
        let wait = |what: &str, is_so: &dyn Fn() -> bool| {
            while !is_so() {
                let late = start.elapsed() > Duration::from_secs(300);
                stop.store(late, Ordering::SeqCst);
                assert!(!late, "{what}: {:?} after {} bytes", log_files(dir.path()), written());
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait("writes", &|| written() > 40 * MIB);
        assert!(log_files(dir.path()).0 <= 40 * MIB);
        db.set("log_size", 256 * MIB).expect("more");
        assert_eq!(db.setting("log_size").expect("known"), 256 * MIB);
        wait("more is used", &|| {
            let (sum, largest) = log_files(dir.path());
            sum > 50 * MIB && largest == 16 * MIB
        });
        for mib in [64, 32, 128, 32] {
            db.set("log_size", mib * MIB).expect("any size in the range");
            let before = written();
            wait("writers go on", &|| written() > before + 4 * MIB);
        }
        wait("less is reached", &|| {
            let (sum, largest) = log_files(dir.path());
            sum <= 32 * MIB && largest <= 4 * MIB
        });
        stop.store(true, Ordering::SeqCst);
    });
    println!("{} bytes, {:?} of log", written(), log_files(dir.path()));
    let rows = 16 * batches.load(Ordering::SeqCst) as u64;
    let check = db.check().expect("checks");
    assert_eq!((check.rows, check.problems.len()), (rows, 0), "{:?}", check.problems);
    // The next open sets its own size.
    db.close().expect("closes");
    let db = Database::open_with(dir.path(), options(64 * MIB)).expect("opens");
    assert_eq!(db.setting("log_size").expect("known"), 64 * MIB);
}

/// Segments prepared for a longer log are removed even if no transaction writes.
#[test]
fn an_idle_log_gives_its_files_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open_with(dir.path(), options(256 * MIB)).expect("opens");
    table(&db);
    let mut batch = 0;
    while log_files(dir.path()).0 <= 50 * MIB {
        write(&db, batch);
        batch += 1;
    }
    db.set("log_size", 32 * MIB).expect("less");
    db.checkpoint().expect("a checkpoint");
    let start = Instant::now();
    // The segment that holds the end, and the prepared ones.
    while log_files(dir.path()).0 > (16 + 16) * MIB {
        let files = log_files(dir.path());
        assert!(start.elapsed() < Duration::from_secs(300), "{files:?} of {batch} batches");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_size_out_of_range_is_refused_as_at_open() {
    let db = Database::open_with("dir", Options::in_memory()).expect("opens");
    for size in [0, 32 * MIB - 1, (1 << 40) + 1] {
        let refused = db.set("log_size", size).expect_err("out of range");
        let options = Options { log_size: size, ..Options::in_memory() };
        let at_open = Database::open_with("dir", options).map(|_| ()).expect_err("out of range");
        assert_eq!(refused.code(), Code::OptionOutOfRange);
        assert_eq!(refused.to_string(), at_open.to_string());
    }
    assert_eq!(db.setting("log_size").expect("known"), 512 * MIB);
    let again = db.clone();
    db.close().expect("closes");
    assert_eq!(again.set("log_size", 64 * MIB).expect_err("closed").code(), Code::DatabaseClosed);
}
