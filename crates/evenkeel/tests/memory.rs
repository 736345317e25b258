//! Sharing of memory and log space: large transactions and their rollback; and the cost of inserts
//! into indexes far larger than memory.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, Cause, Code, ColumnSpec, ColumnType, Database, Direction, Geometry, IndexSpec,
    Isolation, Metric, Options, Range, Row, TableSpec, Value,
};
use evenkeel_io::Rng;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Runs `body` in a thread and fails after `time`: an operation under test may wait forever.
fn within(time: Duration, body: impl FnOnce() + Send + 'static) {
    let (done, over) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match over.recv_timeout(time) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("still waiting after {time:?}"),
        _ => thread.join().expect("no panic"),
    }
}

fn table(db: &Database) {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 200 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_value", &["value"]));
    db.create_table("t", &spec).expect("creates");
}

fn load(db: &Database, rows: i64) {
    load_more(db, 0..rows);
}

fn load_more(db: &Database, ids: std::ops::Range<i64>) {
    for from in ids.clone().step_by(1000) {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
        let t = txn.table("t").expect("table");
        for id in from..(from + 1000).min(ids.end) {
            t.insert(&[Int(id), Int(id), Bytes(&[id as u8; 60])]).expect("inserts");
        }
        txn.commit().expect("commits");
    }
}

/// Rolling back logs several times the log's size without an index entry: the generation that was
/// active at its start must not hold the log.
#[test]
fn a_rollback_larger_than_the_log_ends_and_users_get_log_space_meanwhile() {
    within(Duration::from_secs(600), || {
        const ROWS: i64 = 8_000;
        let geometry = Geometry { log_bytes: Some(1 << 20), ..Geometry::default() };
        let options = Options { memory_size: 16 << 20, ..Options::in_memory() };
        let db = Database::open_with("dir", options.geometry(geometry)).expect("opens");
        table(&db);
        load(&db, ROWS);
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
        let t = txn.table("t").expect("table");
        for id in 0..ROWS {
            assert!(t.update(&[Int(id)], &[(1, Int(-id - 1))]).expect("updates"));
        }
        let before = db.stats();
        txn.rollback().expect("rolls back");
        // The client was released at once: these inserts need log space during the rollback.
        for name in ["other", "another"] {
            let spec = TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64));
            db.create_table(name, &spec.primary_key(&["id"])).expect("creates");
        }
        while db.stats().get(Metric::RollingBackTxns) > 0 {
            std::thread::yield_now();
        }
        let reverted = db.stats().get(Metric::RowsRolledBack) - before.get(Metric::RowsRolledBack);
        assert_eq!(reverted, ROWS as u64);
        let check = db.check().expect("checks");
        assert_eq!((check.rows, check.problems.len()), (ROWS as u64, 0), "{:?}", check.problems);
    });
}

/// Rows that were changed under any memory size are all found, and a smaller size is reached.
#[test]
fn memory_size_changes_under_load() {
    within(Duration::from_secs(600), || {
        const ROWS: i64 = 20_000;
        let options = Options { memory_size: 64 << 20, ..Options::in_memory() };
        let db = Database::open_with("dir", options).expect("opens");
        table(&db);
        load(&db, ROWS);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 1..4 {
                    let access = Access::ReadWrite;
                    let txn = db.begin(Isolation::ReadCommitted, access).expect("begins");
                    let t = txn.table("t").expect("table");
                    for id in 0..ROWS {
                        let change = [(1, Int(id + round * ROWS))];
                        assert!(t.update(&[Int(id)], &change).expect("updates"));
                    }
                    txn.commit().expect("commits");
                }
            });
            let mut mib = 16;
            while !writer.is_finished() {
                mib = 16 + (mib * 7) % 130;
                db.set("memory_size", mib << 20).expect("any size in the range");
                std::thread::yield_now();
            }
        });
        db.set("memory_size", 16 << 20).expect("the least");
        assert_eq!(db.setting("memory_size").expect("known"), 16 << 20);
        let most = (16 << 20) / 4 / 4096;
        let start = Instant::now();
        while db.stats().get(Metric::PoolFrames) > most {
            assert!(start.elapsed() < Duration::from_secs(300), "frames are not given back");
            std::thread::yield_now();
        }
        db.set("memory_size", 256 << 20).expect("more than at open");
        assert!(db.stats().get(Metric::PoolFrames) > (256 << 20) / 5 / 4096);
        let check = db.check().expect("checks");
        assert_eq!((check.rows, check.problems.len()), (ROWS as u64, 0), "{:?}", check.problems);
    });
}

#[test]
fn settings_change_while_open_or_say_why_not() {
    let db = Database::open_with("dir", Options::in_memory()).expect("opens");
    table(&db);
    load(&db, 10);
    assert_eq!(db.setting("lock_wait_timeout").expect("known"), 50_000);
    db.set("lock_wait_timeout", 0).expect("may change");
    let begin = || db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let (one, other) = (begin(), begin());
    one.table("t").expect("table").update(&[Int(1)], &[(1, Int(5))]).expect("updates");
    let refused = other.table("t").expect("table").update(&[Int(1)], &[(1, Int(6))]);
    assert_eq!(refused.expect_err("locked").code(), Code::LockWaitTimeout);
    drop((one, other));
    // Commits wait for syncs with durability 1, unless the background has just made one, and for
    // none with 0.
    let waits = || {
        let stalls = db.stats().stalls;
        stalls.iter().find(|wait_event| wait_event.0 == Cause::LogSync.name()).expect("one").1.count
    };
    for (durability, least, most) in [(1, 1, u64::MAX), (0, 0, 0)] {
        db.set("durability", durability).expect("may change");
        let before = waits();
        for id in 20..40 {
            let txn = begin();
            let row = [Int(id + 100 * durability as i64), Int(id), Bytes(b"")];
            txn.table("t").expect("table").insert(&row).expect("inserts");
            txn.commit().expect("commits");
        }
        let waited = waits() - before;
        assert!((least..=most).contains(&waited), "durability {durability}: {waited} waits");
    }
    for (name, value, code) in [
        ("memory_size", 1, Code::OptionOutOfRange),
        ("durability", 3, Code::OptionOutOfRange),
        ("log_size", 1, Code::OptionOutOfRange),
        ("doublewrite", 0, Code::SettingFixed),
        ("page_size", 8192, Code::SettingFixed),
        ("nothing", 0, Code::SettingUnknown),
    ] {
        assert_eq!(db.set(name, value).expect_err(name).code(), code);
    }
    for setting in evenkeel::SETTINGS {
        let value = db.setting(setting.name).expect("each has a value");
        assert!((setting.min..=setting.max).contains(&value), "{}", setting.name);
    }
}

const LENT_ROWS: i64 = 120_000;

/// Looks each row up by its key, or each entry of the index: (pages, run blocks) read from storage.
fn look_up_all(db: &Database, by_index: bool) -> (u64, u64) {
    let stats = db.stats();
    let before = (stats.get(Metric::PageReads), stats.get(Metric::RunBlockReads));
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly).expect("begins");
    let mut row = Row::default();
    for n in 0..LENT_ROWS {
        let id = n * 7919 % LENT_ROWS;
        let t = txn.table("t").expect("table");
        if by_index {
            let index = t.index("by_value").expect("index").keys_only();
            let key = [Int(id)];
            let mut scan = index.scan(Range::prefix(&key), Direction::Forward).expect("scans");
            assert!(scan.next(&mut row).expect("reads"));
        } else {
            assert!(t.get(&[Int(id)]).expect("reads").is_some());
        }
    }
    let stats = db.stats();
    (stats.get(Metric::PageReads) - before.0, stats.get(Metric::RunBlockReads) - before.1)
}

/// Rows that do not fit in the share of frames, but do fit with memory unused by run blocks, are in
/// memory at the first read.
#[test]
fn a_load_takes_idle_memory_before_a_page_of_it_leaves() {
    within(Duration::from_secs(600), || {
        let options = Options { memory_size: 64 << 20, ..Options::in_memory() };
        let db = Database::open_with("dir", options).expect("opens");
        table(&db);
        let gauge = |metric| db.stats().get(metric);
        let frames = gauge(Metric::MemoryFrames);
        load(&db, LENT_ROWS * 3 / 2);
        let pages = gauge(Metric::MemoryFrames) / 4096;
        let read = look_up_all(&db, false).0;
        println!("{read} pages read, {pages} frames, {} at rest", frames / 4096);
        assert!(pages * 4096 > frames * 3 / 2, "frames took what was idle");
        // Some pages were evicted before the memory arrived: a few hundred misses wake the arbiter.
        assert!(read < 1000, "{read} pages read");
    });
}

/// A table that fits only in lent memory is soon read without storage reads; reads by an index then
/// take the memory they need; a memtable that fills gets its own memory back.
#[test]
fn memory_moves_to_readers_and_back_to_writers() {
    within(Duration::from_secs(600), || {
        let options = Options { memory_size: 32 << 20, ..Options::in_memory() };
        let db = Database::open_with("dir", options).expect("opens");
        let gauge = |metric| db.stats().get(metric);
        let (frames, blocks) = (gauge(Metric::MemoryFrames), gauge(Metric::MemoryBlocks));
        let generation = gauge(Metric::MemoryGeneration);
        assert_eq!(generation, 4 << 20);
        table(&db);
        load(&db, LENT_ROWS);

        assert!(look_up_all(&db, false).0 > 0, "what memtables have idle is needed, too");
        // Memory is lent in the background: the number of passes that this takes depends on the
        // machine.
        let start = Instant::now();
        let goes_on = || {
            assert!(start.elapsed() < Duration::from_secs(300), "{:?}", db.stats().metrics);
            true
        };
        while look_up_all(&db, false).0 > 0 && goes_on() {}
        assert!(gauge(Metric::MemoryFrames) > frames * 3 / 2, "frames were lent memory");
        // From run blocks or from idle memtables: the law chooses the lender
        // (`memory_law_tests.rs`), and the choice depends on the reads of compactions of the load.
        // The sum never exceeds the total.
        let sum = || {
            gauge(Metric::MemoryFrames)
                + gauge(Metric::MemoryBlocks)
                + 2 * gauge(Metric::MemoryGeneration)
        };
        while sum() != frames + blocks + 2 * generation && goes_on() {
            std::thread::yield_now();
        }

        while look_up_all(&db, true).1 > 0 && goes_on() {}

        load_more(&db, LENT_ROWS..2 * LENT_ROWS);
        assert!(gauge(Metric::MemtableFlushes) > 0);
        while gauge(Metric::MemoryGeneration) < generation {
            std::thread::yield_now();
        }
        let sum = gauge(Metric::MemoryFrames) + gauge(Metric::MemoryBlocks) + 2 * generation;
        assert!(sum <= (32 << 20) / 32 * 26, "{sum}");
        let check = db.check().expect("checks");
        assert_eq!((check.rows, check.problems.len()), (2 * LENT_ROWS as u64, 0));
    });
}

/// Maintaining indexes that prove no uniqueness reads no page: three indexes of random values,
/// several times larger than memory, are flushed and compacted beside inserts of ascending keys.
#[test]
fn inserts_read_nothing_for_indexes_larger_than_memory() {
    within(Duration::from_secs(600), || {
        const THERE: i64 = 1_000_000;
        const MORE: i64 = 60_000;
        const MEMORY: u64 = 16 << 20;
        let geometry = Geometry { generation_bytes: Some(512 << 10), ..Geometry::default() };
        let options = Options { memory_size: MEMORY, ..Options::in_memory() };
        let db = Database::open_with("dir", options.geometry(geometry)).expect("opens");
        let int = |name| ColumnSpec::new(name, ColumnType::Int64);
        let spec =
            ["id", "a", "b", "c"].map(int).into_iter().fold(TableSpec::new(), |s, c| s.column(c));
        let indexed = |s: TableSpec, c: &&str| s.index(IndexSpec::new(c, &[*c]));
        let spec = ["a", "b", "c"].iter().fold(spec.primary_key(&["id"]), indexed);
        db.create_table("t", &spec).expect("creates");
        let mut rng = Rng::new(6);
        let mut number = move || rng.next_u64() as i64 >> 1;
        let mut row = |id| [id, number(), number(), number()];
        let rows = (0..THERE).map(|id| row(id).map(Value::Int).to_vec());
        assert_eq!(db.load_table("t", rows).expect("loads"), THERE as u64);
        let indexes = db.table_stats().expect("stats").swap_remove(0).indexes;
        let bytes: u64 = indexes.iter().map(|index| index.run_bytes).sum();
        assert!(bytes > 2 * MEMORY, "{bytes} bytes of indexes");
        let insert = |row: &mut dyn FnMut(i64) -> [i64; 4], ids: std::ops::Range<i64>| {
            for from in ids.clone().step_by(100) {
                let begun = db.begin(Isolation::RepeatableRead, Access::ReadWrite);
                let txn = begun.expect("begins");
                let t = txn.table("t").expect("table");
                for id in from..(from + 100).min(ids.end) {
                    t.insert(&row(id).map(Int)).expect("inserts");
                }
                txn.commit().expect("commits");
            }
        };
        // The last leaf of the table and the path to it are in memory from here on.
        insert(&mut row, THERE..THERE + 100);
        // Reads of any file that the thread waits for: not the reads of flushes, compactions or
        // statistics.
        let reads = |db: &Database| {
            let stalls = db.stats().stalls;
            let (_, reads) = stalls.iter().find(|s| s.0 == Cause::PageRead.name()).expect("one");
            reads.count
        };
        let background = [Metric::MemtableFlushes, Metric::CompactionReadBytes];
        let figures = || background.map(|metric| db.stats().get(metric));
        let (before, read_before) = (figures(), reads(&db));
        insert(&mut row, THERE + 100..THERE + MORE);
        let [flushes, merged]: [u64; 2] = std::array::from_fn(|i| figures()[i] - before[i]);
        let read = reads(&db) - read_before;
        println!("{bytes} bytes of indexes; {read} reads, {flushes} flushes, {merged} merged");
        assert!(flushes > 5 && merged > 0, "{flushes} flushes, {merged} bytes merged");
        assert_eq!(read, 0, "reads by {MORE} inserts");
        // Such a read would be counted.
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly).expect("begins");
        for id in (0..THERE).step_by(10_000) {
            assert!(txn.table("t").expect("table").get(&[Int(id)]).expect("reads").is_some());
        }
        drop(txn);
        assert!(reads(&db) > read_before, "of rows that are not in memory");
        let check = db.check().expect("checks");
        assert_eq!((check.rows, check.problems.len()), ((THERE + MORE) as u64, 0));
    });
}

/// The automatic size grows for caches that evict, up to three quarters of the machine, and shrinks
/// to the first size while the machine is short of memory. A size that is set stays, and 0 makes it
/// automatic again.
#[test]
fn an_automatic_memory_size_follows_what_the_machine_has() {
    static AVAILABLE: AtomicU64 = AtomicU64::new(1 << 30);
    const MIB: u64 = 1 << 20;
    within(Duration::from_secs(600), || {
        let geometry = Geometry {
            machine_bytes: Some(128 * MIB),
            available_bytes: Some(&AVAILABLE),
            ..Geometry::default()
        };
        let db = Database::open_with("dir", Options::in_memory().geometry(geometry));
        let db = db.expect("opens");
        table(&db);
        let size = || db.setting("memory_size").expect("known");
        assert_eq!(size(), 64 * MIB, "half of the machine");
        let start = Instant::now();
        let mut rows = 0;
        let mut load_until = |bytes: u64| {
            while size() != bytes {
                load_more(&db, rows..rows + 20_000);
                rows += 20_000;
                assert!(start.elapsed() < Duration::from_secs(300), "{}", size() / MIB);
            }
        };
        load_until(96 * MIB);
        AVAILABLE.store(8 * MIB, Ordering::Relaxed);
        while size() != 64 * MIB || db.stats().get(Metric::PoolFrames) > (64 * MIB) / 4096 {
            assert!(start.elapsed() < Duration::from_secs(300), "{}", size() / MIB);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(db.stats().get(Metric::MemorySize), 64 * MIB);
        AVAILABLE.store(1 << 30, Ordering::Relaxed);
        db.set("memory_size", 65 * MIB).expect("in the range");
        look_up_all(&db, false);
        look_up_all(&db, true);
        assert_eq!(size(), 65 * MIB, "a size that is set stays");
        db.set("memory_size", 0).expect("automatic");
        load_until(96 * MIB);
        let check = db.check().expect("checks");
        assert_eq!((check.rows, check.problems.len()), (rows as u64, 0), "{:?}", check.problems);
    });
}
