//! Memory and disk that run out, and the limits of keys, rows and values, at the limit and one
//! beyond. `EVENKEEL_UPDATE_ROWS` is the number of rows of the large update (5M in `make test`),
//! `EVENKEEL_BUILD_ROWS` that of the table whose indexes are built (5M in the release ladder).

use evenkeel::ValueRef::{Bytes, Int, Null};
use evenkeel::{
    Access, Chunking, Code, ColumnSpec, ColumnType, Database, ForeignKeySpec, Geometry, IndexSpec,
    Isolation, Kind, Options, ReferenceAction, TableRef, TableSpec, TimeUnit, Value,
};
use evenkeel_format::limits;
use evenkeel_io::{Env, MemEnv};
use evenkeel_trust::faulty::{self, FaultyEnv};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// The greatest peak memory of a process with a `memory_size` of 16 MiB.
const BAR_KIB: u64 = 16 * 1024 * 11 / 10 + 64 * 1024;

/// Runs a child that works on this many rows. The result looks up the number at a place of the line
/// that begins with a word.
fn child(work: &str, rows: u64) -> impl Fn(&str, usize) -> u64 {
    let dir = tempfile::tempdir().expect("directory");
    let out = Command::new(env!("CARGO_BIN_EXE_evenkeel-trust-child"))
        .args([work, &dir.path().display().to_string(), &rows.to_string()])
        .output()
        .expect("the child runs");
    let text = String::from_utf8(out.stdout).expect("text");
    println!("{rows} rows\n{text}");
    assert!(out.status.success(), "{text}");
    move |word, i| {
        let line = text.lines().find(|l| l.starts_with(word)).expect("the line");
        line.split(' ').nth(i).and_then(|n| n.parse().ok()).expect("a number")
    }
}

/// Builds four indexes with far more entries than fit in memory, so their runs are compacted; one
/// index is proved unique.
#[test]
fn a_build_of_several_indexes_stays_within_memory() {
    let rows = number("EVENKEEL_BUILD_ROWS", 500_000);
    let find = child("build", rows);
    assert_eq!((find("checked", 2), find("checked", 3)), (rows, 0));
    assert!(find("built", 2) > 20 * rows, "so they were compacted");
    assert!(find("built", 1) <= BAR_KIB, "peak over {BAR_KIB} KiB");
}

#[test]
fn a_large_update_and_its_rollback_stay_within_memory() {
    let rows = number("EVENKEEL_UPDATE_ROWS", 100_000);
    let find = child("update", rows);
    assert_eq!((find("reverted", 2), find("reverted", 3)), (rows, 0));
    assert!(find("dropped", 3) <= BAR_KIB, "peak over {BAR_KIB} KiB");
    let (left, before, bar) = (find("dropped", 1), find("dropped", 2), find("dropped", 4));
    println!("pages and runs: {before} KiB before DROP, {left} KiB after it, the bar is {bar}");
    assert!(before > 12 << 10, "{before} KiB is little to give back");
    assert!(
        left <= bar && bar < before / 2,
        "DROP gave too little back: {left} KiB of {before} are left"
    );
}

/// Repeats a write after the disk has space again: background work catches up first, then the
/// engine takes the ballast back (G4).
fn retry(write: impl Fn() -> evenkeel::Result<()>) {
    let start = Instant::now();
    while let Err(error) = write() {
        assert_eq!(error.kind(), Kind::Full, "{error}");
        assert!(start.elapsed() < Duration::from_secs(600), "writes do not go on: {error}");
        std::thread::yield_now();
    }
}

/// Waits until the writer has ended. False if it has written nothing for two minutes; even on a
/// slow machine a statement ends within that time.
fn ends(over: &Receiver<()>, acknowledged: &AtomicU64) -> bool {
    let mut seen = None;
    while over.recv_timeout(Duration::from_secs(120)) == Err(RecvTimeoutError::Timeout) {
        let now = Some(acknowledged.load(SeqCst));
        if now == seen {
            return false;
        }
        seen = now;
    }
    true
}

/// The disk becomes full at many points. Statements fail with `DiskFull`, nothing acknowledged is
/// lost, and writes continue in the same open database once there is space.
#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    let mut met = 0;
    for round in 0..12u64 {
        let (env, faults) = FaultyEnv::new();
        let geometry = Geometry {
            generation_bytes: Some(64 << 10),
            pool_bytes: Some(1 << 20),
            log_bytes: Some(1 << 20),
            ..Geometry::default()
        };
        let lock_wait_timeout = Duration::from_secs(5);
        let options = Options { lock_wait_timeout, ..Options::default() };
        let options = options.env(env.clone()).geometry(geometry);
        let db = Database::open_with("dir", options.clone()).expect("opens");
        let spec = TableSpec::new()
            .column(ColumnSpec::new("id", ColumnType::Int64))
            .column(ColumnSpec::new("value", ColumnType::Int64))
            .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 400 }))
            .primary_key(&["id"])
            .index(IndexSpec::new("by_value", &["value"]));
        db.create_table("t", &spec).expect("creates");
        let write = |id: i64| -> evenkeel::Result<()> {
            let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
            let table = txn.table("t")?;
            for row in id * 10..id * 10 + 10 {
                table.insert(&[Int(row), Int(row % 37), Bytes(&[7; 300])])?;
            }
            txn.commit().map(|_| ())
        };
        let acknowledged = AtomicU64::new(0);
        faults.capacity.store(env.used_bytes() + round * 170_000, SeqCst);
        let mut refused = None;
        std::thread::scope(|scope| {
            let (done, over) = std::sync::mpsc::channel::<()>();
            scope.spawn(|| {
                for id in 0..400 {
                    if let Err(error) = write(id) {
                        refused = Some(error);
                        break;
                    }
                    acknowledged.fetch_add(1, SeqCst);
                }
                drop(done);
            });
            // A full disk is an error, not a wait.
            let ended = ends(&over, &acknowledged);
            faults.capacity.store(0, SeqCst);
            assert!(ended, "round {round}: a writer waits on a full disk");
        });
        met += u64::from(faults.full.load(SeqCst) > 0);
        if let Some(error) = &refused {
            assert_eq!(error.kind(), Kind::Full, "round {round}: {error}");
        }
        retry(|| write(1000));
        for id in 1001..1010 {
            write(id).unwrap_or_else(|e| panic!("round {round}: writes do not go on: {e}"));
        }
        let rows = (acknowledged.load(SeqCst) + 10) * 10;
        let check = db.check().expect("check");
        assert_eq!((check.rows, check.problems.len()), (rows, 0), "{:?}", check.problems);
        db.close().expect("closes");
        let check = Database::open_with("dir", options).expect("reopens").check().expect("check");
        assert_eq!((check.rows, check.problems.len()), (rows, 0), "{:?}", check.problems);
    }
    println!("12 disks, {met} found full");
    assert!(met >= 6);
}

/// Tries each limit at its value and one beyond.
#[test]
fn limits_hold_at_the_limit_and_one_beyond() {
    let db = Database::open_with("dir", Options::in_memory()).expect("opens");
    let wide = |columns: usize| {
        let id = ColumnSpec::new("c0", ColumnType::Int8);
        (1..columns).fold(TableSpec::new().column(id).primary_key(&["c0"]), |spec, i| {
            spec.column(ColumnSpec::new(&format!("c{i}"), ColumnType::Int8).nullable())
        })
    };
    let parts = |n: usize| (1..=n).map(|i| format!("c{i}")).collect::<Vec<_>>();
    let over = |n: usize| {
        let names = parts(n);
        wide(40).index(IndexSpec::new("i", &names.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    let many = |n: usize| {
        (0..n).fold(wide(2), |spec, i| spec.index(IndexSpec::new(&format!("i{i}"), &["c1"])))
    };
    let tries = [
        (wide(limits::COLUMNS_MAX), wide(limits::COLUMNS_MAX + 1), Code::TooManyColumns),
        (over(limits::KEY_PARTS_MAX), over(limits::KEY_PARTS_MAX + 1), Code::TooManyKeyParts),
        (many(limits::INDEXES_MAX), many(limits::INDEXES_MAX + 1), Code::TooManyIndexes),
    ];
    for (at, beyond, code) in tries {
        db.create_table("limit", &at).unwrap_or_else(|e| panic!("{code:?} at the limit: {e}"));
        db.drop_table("limit").expect("drops");
        assert_eq!(db.create_table("limit", &beyond).expect_err("beyond").code(), code);
    }
    let name = |n: usize| "n".repeat(n);
    db.create_table(&name(limits::TABLE_NAME_BYTES_MAX), &wide(2)).expect("at the limit");
    let beyond = db.create_table(&name(limits::TABLE_NAME_BYTES_MAX + 1), &wide(2));
    assert_eq!(beyond.expect_err("beyond").code(), Code::NameInvalid);
    // The longest index entry: column bytes with their terminator, clustered key, stored bytes.
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("text", ColumnType::Bytes { max: 1 << 20 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("i", &["text"]));
    db.create_table("long", &spec).expect("creates");
    let insert = |id: i64, bytes: usize| {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
        txn.table("long")?.insert(&[Int(id), Bytes(&vec![b'x'; bytes])])?;
        txn.commit()
    };
    let other = 2 + 8;
    insert(1, limits::INDEX_ENTRY_BYTES_MAX - other).expect("at the limit");
    let beyond = insert(2, limits::INDEX_ENTRY_BYTES_MAX + 1 - other).expect_err("beyond");
    assert_eq!(beyond.code(), Code::EntryTooLong);
    // A default of the greatest length; each of its bytes takes two in a key.
    let column = |bytes: usize| {
        ColumnSpec::new("d", ColumnType::Bytes { max: 9999 }).default_value(vec![0u8; bytes])
    };
    db.add_column("long", &column(limits::DEFAULT_BYTES_MAX)).expect("at the limit");
    let beyond = db.create_table("d", &wide(2).column(column(limits::DEFAULT_BYTES_MAX + 1)));
    assert_eq!(beyond.expect_err("beyond").code(), Code::DefinitionInvalid);
    // Foreign keys, all of one column.
    db.create_table("wide", &wide(2)).expect("creates");
    let referring = |keys: usize| {
        (0..keys).fold(wide(2).index(IndexSpec::new("p", &["c1"])), |spec, n| {
            spec.foreign_key(ForeignKeySpec::new(&format!("f{n}"), &["c1"], "wide", &["c0"]))
        })
    };
    db.create_table("refers", &referring(limits::FOREIGN_KEYS_MAX)).expect("at the limit");
    let beyond = db.create_table("more", &referring(limits::FOREIGN_KEYS_MAX + 1));
    assert_eq!(beyond.expect_err("beyond").code(), Code::ForeignKeyInvalid);
    let check = db.check().expect("check");
    assert_eq!((check.rows, check.problems.len()), (1, 0), "{:?}", check.problems);
}

#[test]
fn a_cascade_of_foreign_keys_has_a_depth() {
    let db = Database::open_with("db", Options::in_memory()).expect("opens");
    let key = ForeignKeySpec::new("up", &["up"], "tree", &["id"]);
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("up", ColumnType::Int64).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_up", &["up"]))
        .foreign_key(key.on_delete(ReferenceAction::Cascade));
    db.create_table("tree", &spec).expect("creates");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let tree = txn.table("tree").expect("there");
    tree.insert(&[Int(0), Null]).expect("inserts");
    // As many rows below the one that is deleted as operations follow from its delete.
    let rows = (limits::CASCADE_DEPTH_MAX + 1) as i64;
    (1..=rows).for_each(|id| {
        tree.insert(&[Int(id), Int(id - 1)]).expect("inserts");
    });
    let beyond = tree.delete(&[Int(0)]).expect_err("CASCADE_DEPTH_MAX + 1");
    assert_eq!(beyond.code(), Code::CascadeTooDeep);
    assert!(tree.delete(&[Int(1)]).expect("at the limit"));
}

/// As `limits_hold_at_the_limit_and_one_beyond`, of chunked tables: slots, and new chunks of a
/// statement.
#[test]
fn limits_of_chunks_hold_at_the_limit_and_one_beyond() {
    let db = Database::open_with("dir", Options::in_memory()).expect("opens");
    let chunked = |slots: u32| {
        let by_second = Chunking::by("c1", Duration::from_secs(1)).unit(TimeUnit::Seconds);
        let by_second = by_second.space("c0", slots).between(0, 1 << 40);
        let column = |name| ColumnSpec::new(name, ColumnType::Int64);
        let spec = TableSpec::new().column(column("c0")).column(column("c1"));
        spec.primary_key(&["c0", "c1"]).chunked(by_second)
    };
    db.create_table("chunked", &chunked(limits::CHUNK_SLOTS_MAX)).expect("at the limit");
    let beyond = db.create_table("more", &chunked(limits::CHUNK_SLOTS_MAX + 1));
    assert_eq!(beyond.expect_err("beyond").code(), Code::ChunkingInvalid);
    let rows = |count: usize| (0..count as i64).map(|n| [Int(0), Int(n)]).collect::<Vec<_>>();
    let insert = |count: usize| {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
        txn.table("chunked")?.insert_many(rows(count).iter().map(|row| &row[..]))
    };
    let beyond = insert(limits::CHUNKS_NEW_MAX + 1).expect_err("beyond");
    assert_eq!(beyond.code(), Code::TooManyChunks);
    assert!(db.chunks("chunked").expect("lists").is_empty(), "it fails first");
    insert(limits::CHUNKS_NEW_MAX).expect("at the limit");
    assert_eq!(db.chunks("chunked").expect("lists").len(), limits::CHUNKS_NEW_MAX);
}

/// Checks that a test tries each constant of `format::limits` at the limit and one beyond.
#[test]
fn every_limit_is_tested_one_beyond() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).expect("it is there");
    let tests: String = [
        "tables/src/schema_tests.rs",
        "tables/src/table_layout_tests.rs",
        "tree/src/tests/model.rs",
        "txn/src/txns_tests.rs",
        "trust/tests/limits.rs",
    ]
    .map(read)
    .concat();
    let limits = read("format/src/limits.rs");
    let names = limits.lines().filter_map(|l| l.strip_prefix("pub const ")?.split(':').next());
    let without: Vec<&str> =
        names.filter(|name| !tests.contains(&format!("limits::{name} + 1"))).collect();
    assert!(without.is_empty(), "not tried one beyond: {without:?}");
}

/// A row of 1,000 columns of four bytes, with and without NULLs, in pages of 16 KiB, is inserted,
/// updated, indexed, altered, rolled back and recovered.
#[test]
fn a_row_may_have_a_thousand_columns() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let open = |env: &Arc<dyn Env>| {
        let options =
            Options { page_size: Some(16384), memory_size: 32 << 20, ..Options::default() };
        Database::open_with("dir", options.env(env.clone())).expect("opens")
    };
    let db = open(&env);
    let row = |id: i64, n: i64| -> Vec<Value> {
        (0..1_000).map(|i| Value::Int(if i == 0 { id } else { n + i })).collect()
    };
    for (name, nullable) in [("whole", false), ("sparse", true)] {
        let column = |i: usize| {
            let column = ColumnSpec::new(&format!("c{i}"), ColumnType::Int32);
            if nullable && i > 0 { column.nullable() } else { column }
        };
        let spec = (0..1_000).fold(TableSpec::new(), |spec, i| spec.column(column(i)));
        let spec = spec.primary_key(&["c0"]).index(IndexSpec::new("by_999", &["c999"]));
        db.create_table(name, &spec).expect("creates");
    }
    let write = |db: &Database, f: &dyn Fn(&mut TableRef<'_>, bool) -> evenkeel::Result<()>| {
        for (name, nullable) in [("whole", false), ("sparse", true)] {
            let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
            f(&mut txn.table(name).expect("there"), nullable).expect(name);
            txn.commit().expect("commits");
        }
    };
    write(&db, &|table, _| {
        (0..100).try_for_each(|n| {
            let values = row(n * 37 % 100, n);
            let values: Vec<_> = values.iter().map(Value::as_ref).collect();
            table.insert(&values).map(|_| ())
        })
    });
    write(&db, &|table, nullable| {
        (0..100).step_by(3).try_for_each(|id| {
            let value = if nullable { evenkeel::ValueRef::Null } else { Int(-id) };
            table.update(&[Int(id)], &[(500, value), (999, Int(id))]).map(|_| ())
        })
    });
    let lost = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    for id in 0..100 {
        lost.table("whole").expect("there").update(&[Int(id)], &[(1, Int(-7))]).expect("updates");
    }
    db.add_indexes("sparse", &[IndexSpec::new("by_500", &["c500"])]).expect("builds");
    db.add_column("sparse", &ColumnSpec::new("more", ColumnType::Int32).nullable()).expect("adds");
    // First the files of a killed process, then those of a close.
    let killed = faulty::copy(&*env);
    lost.rollback().expect("reverts");
    db.close().expect("closes");
    for env in [killed as Arc<dyn Env>, env] {
        let db = open(&env);
        for name in ["whole", "sparse"] {
            let report = db.check_table(name).expect("checks");
            assert_eq!((report.rows, report.problems), (100, vec![]), "{name}");
        }
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
        for id in 0..100 {
            let row = txn.table("whole").expect("there").get(&[Int(id)]).expect("reads");
            let row = row.expect("a row");
            let expected = if id % 3 == 0 { Int(id) } else { Int(id * 73 % 100 + 999) };
            assert_eq!(row.value(999).expect("a value"), expected);
            assert_ne!(row.value(1).expect("a value"), Int(-7), "it was rolled back");
        }
    }
}

/// Columns of fixed length cannot leave the row. The longest row has the documented length; one
/// byte more is refused.
#[test]
fn the_longest_row_is_half_a_page() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let options = Options { page_size: Some(16384), memory_size: 32 << 20, ..Options::default() };
    let db = Database::open_with("dir", options.env(env)).expect("opens");
    let row_of = |last: u16| -> evenkeel::Result<()> {
        let name = format!("t{last}");
        let fixed = |i: u16, len| ColumnSpec::new(&format!("f{i}"), ColumnType::FixedBytes { len });
        let spec = TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64));
        let spec = (0..31).fold(spec, |spec, i| spec.column(fixed(i, 255))).column(fixed(31, last));
        db.create_table(&name, &spec.primary_key(&["id"]))?;
        let bytes = [7; 255];
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
        for id in 0..10 {
            let mut row = vec![Int(id)];
            row.extend((0..31).map(|_| Bytes(&bytes)));
            row.push(Bytes(&bytes[..usize::from(last)]));
            txn.table(&name)?.insert(&row)?;
        }
        txn.commit().map(|_| ())
    };
    let first = (150..255).find(|last| row_of(*last).is_err()).expect("one is too long");
    let error = row_of(first + 1).expect_err("longer still");
    assert_eq!(error.code(), Code::RowTooLong);
    assert_eq!(error.context("limit"), Some("8126"), "{error}");
    assert_eq!(error.context("bytes"), Some("8128"), "{error}");
    // The table was refused, not its first row. A column that would make the table too wide is
    // refused too.
    assert!(!db.tables().contains(&format!("t{first}")));
    let wider = ColumnSpec::new("wider", ColumnType::Int64).nullable();
    let error = db.add_column(&format!("t{}", first - 1), &wider).expect_err("too wide");
    assert_eq!(error.code(), Code::RowTooLong);
    assert!(db.check().expect("checks").problems.is_empty());
}
