//! Backups on one thread: what happens at a certain moment of a backup is done by an environment of
//! the destination that calls a function when a certain file is opened. Backups beside writers are
//! in `writers_tests`.

use crate::backup::restore::{BackupSource, restore_backup_in, restore_from, verify_backup_in};
use crate::{
    Access, BackupPhase, BackupProgress, Code, ColumnSpec, ColumnType, Database, Direction, Error,
    Geometry, IndexSpec, Isolation, Metric, Options, Result, Row, TableSpec, Value,
};
use evenkeel_base::sync::Mutex;
use evenkeel_format::backup::{MANIFEST_FILE, MARKER_FILE, Piece};
use evenkeel_io::sim::{Fault, FaultKind, SimDisk, SimEnv, SimOptions, When};
use evenkeel_io::{Env, File, MemEnv, OpenMode, delegate_env};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Action = Box<dyn FnOnce() + Send>;

/// Calls an action when a path that starts so is opened, once.
pub(super) struct Hooked {
    inner: MemEnv,
    hook: Mutex<Option<(&'static str, Action)>>,
}

impl Env for Hooked {
    delegate_env!(inner: list, remove, rename, create_dir, sync_dir, now_ns, random, wait, spawn);

    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let action = {
            let mut hook = self.hook.lock();
            hook.take_if(|(prefix, _)| path.starts_with(*prefix))
        };
        if let Some((_, action)) = action {
            action();
        }
        self.inner.open(path, mode)
    }
}

pub(super) fn hooked(prefix: &'static str, action: impl FnOnce() + Send + 'static) -> Arc<Hooked> {
    let action: Action = Box::new(action);
    Arc::new(Hooked { inner: MemEnv::new(), hook: Mutex::new(Some((prefix, action))) })
}

pub(super) fn options() -> Options {
    let geometry = Geometry {
        generation_bytes: Some(64 << 10),
        logged_value_bytes: Some(8 << 10),
        ..Geometry::default()
    };
    Options { memory_size: 32 << 20, log_size: 32 << 20, ..Options::new() }.geometry(geometry)
}

pub(super) type Rows = BTreeMap<i64, (i64, Vec<u8>)>;

pub(super) fn source() -> Database {
    source_in(Arc::new(MemEnv::new()))
}

pub(super) fn source_in(env: Arc<dyn Env>) -> Database {
    let db = Database::open_with("source", options().env(env)).expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("a", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 1 << 24 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_a", &["a", "id"]))
        .index(IndexSpec::new("by_a_too", &["a"]));
    db.create_table("t", &spec).expect("makes");
    db
}

/// Bytes that differ from row to row.
pub(super) fn pad(id: i64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as i64 * 7 + id * 13) as u8).collect()
}

pub(super) fn put(db: &Database, ids: std::ops::Range<i64>, len: usize) {
    for some in ids.collect::<Vec<_>>().chunks(50) {
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        let table = txn.table("t").expect("there");
        for id in some {
            let row = [Value::Int(*id), Value::Int(id % 97), Value::Bytes(pad(*id, len))];
            let row: Vec<_> = row.iter().map(Value::as_ref).collect();
            table.put(&row).expect("puts");
        }
        txn.commit().expect("commits");
    }
}

pub(super) fn rows(db: &Database) -> Rows {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let table = txn.table("t").expect("there");
    let mut scan = table.scan(.., Direction::Forward).expect("scans");
    let (mut rows, mut row) = (Rows::new(), Row::new());
    while scan.next(&mut row).expect("reads") {
        let values = row.values().expect("decodes");
        let [Value::Int(id), Value::Int(a), Value::Bytes(pad)] = &values[..] else {
            panic!("{values:?}")
        };
        rows.insert(*id, (*a, pad.to_vec()));
    }
    rows
}

/// Restores a backup into memory and opens it; it must be free of problems.
pub(super) fn restored(backup: Arc<dyn Env>) -> Result<Database> {
    restored_onto(backup, &[])
}

/// As `restored`, of an incremental backup with these bases.
pub(super) fn restored_onto(backup: Arc<dyn Env>, bases: &[Arc<dyn Env>]) -> Result<Database> {
    let checked = verify_backup_in(backup.clone(), "backup", bases)?;
    assert_eq!(checked.problems, [""; 0]);
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    restore_backup_in(backup, env.clone(), bases)?;
    let db = Database::open_with("restored", options().env(env))?;
    let problems = db.check()?.problems;
    match problems.first() {
        Some(problem) => Err(Error::internal("problems").with("first", problem)),
        None => Ok(db),
    }
}

/// Waits for what the background does; the limit guards against hanging.
pub(super) fn until(what: &str, ready: impl Fn() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed().as_secs() < 60, "{what} has not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(super) fn runs_of(db: &Database, index: usize) -> u64 {
    db.table_info("t").expect("there").indexes[index].0.runs
}

#[test]
fn a_restored_backup_is_the_database() {
    let db = source();
    put(&db, 0..3_000, 300);
    put(&db, 3_000..3_020, 60_000);
    until("a flush", || runs_of(&db, 0) > 0);
    // The log no longer makes the pages: recovery needs the images.
    db.checkpoint().expect("flushes");
    put(&db, 100..200, 250);
    let to = Arc::new(MemEnv::new());
    let progress = BackupProgress::default();
    let report = db.backup_in(to.clone(), "backup", &progress).expect("backs up");
    assert_eq!(progress.phase(), BackupPhase::Done);
    assert!(progress.bytes() >= 1 << 20 && progress.bytes_expected() >= progress.bytes());
    let checked = verify_backup_in(to.clone(), "backup", &[]).expect("verifies");
    assert_eq!((checked.report, checked.problems.len()), (report, 0));
    let before = rows(&db);
    put(&db, 0..100, 10);
    let again = restored(to).expect("restores");
    assert!(rows(&again) == before, "other rows");
    // It goes on as any database.
    put(&again, 5_000..5_100, 40);
    assert_eq!(rows(&again).len(), before.len() + 100);
}

/// Segments of the log grow to several pieces; a backup begins and ends at any place in them.
#[test]
fn a_backup_begins_and_ends_anywhere_in_a_segment() {
    let db = source();
    let mut begun_within = 0;
    for round in 0..14 {
        put(&db, 0..700 + round * 61, 1_000);
        db.checkpoint().expect("flushes");
        put(&db, 0..round * 200, 500);
        let to = Arc::new(MemEnv::new());
        db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect("backs up");
        let manifest = BackupSource::open(to.clone(), "backup").expect("opens").manifest;
        // Pieces that were not copied lie between the header and the first block.
        let begins_within = |pieces: &[Piece]| {
            pieces.windows(2).any(|two| two[0] == Piece::Zeros && two[1] != Piece::Zeros)
        };
        let mut log = manifest.files.iter().filter(|file| file.path.starts_with("wal/"));
        begun_within += u32::from(log.any(|file| begins_within(&file.pieces)));
        assert!(rows(&restored(to).expect("restores")) == rows(&db), "round {round}");
    }
    assert!(begun_within > 0, "every backup begins in a first piece");
}

#[test]
fn an_empty_database_is_backed_up_and_a_backup_of_the_copy_too() {
    let db = source();
    let to = Arc::new(MemEnv::new());
    db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect("backs up");
    let again = restored(to).expect("restores");
    put(&again, 0..10, 20);
    let to = Arc::new(MemEnv::new());
    again.backup_in(to.clone(), "backup", &BackupProgress::default()).expect("backs up");
    assert!(rows(&restored(to).expect("restores")) == rows(&again), "other rows");
}

/// Open transactions are rolled back in the copy, prepared ones stay prepared.
#[test]
fn undecided_transactions_are_as_after_a_crash() {
    let db = source();
    put(&db, 0..500, 100);
    let change = |ids: std::ops::Range<i64>| {
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        let table = txn.table("t").expect("there");
        for id in ids {
            assert!(table.delete(&[Value::Int(id).as_ref()]).expect("deletes"));
        }
        txn
    };
    let before = rows(&db);
    let _open = change(0..50);
    change(100..150).prepare(b"xid").expect("prepares");
    let to = Arc::new(MemEnv::new());
    db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect("backs up");
    let again = restored(to).expect("restores");
    assert_eq!(again.prepared(), [b"xid".to_vec()]);
    again.rollback_prepared(b"xid").expect("rolls back");
    assert!(rows(&again) == before, "other rows");
}

/// The files of an index that is dropped while the first of them is copied stay until the backup
/// has ended, and go then.
#[test]
fn files_that_a_backup_copies_are_not_removed() {
    let db = source();
    put(&db, 0..4_000, 60);
    until("flushes", || runs_of(&db, 0) > 0 && runs_of(&db, 1) > 0);
    let (dropping, names) = (db.clone(), db.engine.rt.env.list("runs").expect("lists"));
    let to = hooked("runs/", move || {
        dropping.drop_index("t", "by_a").expect("drops");
        dropping.drop_index("t", "by_a_too").expect("drops");
        // Views that hold the files end, and what nobody holds is removed.
        for id in 0..20 {
            put(&dropping, 10_000 + id..10_001 + id, 10);
        }
        std::thread::sleep(Duration::from_millis(300));
    });
    db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect("backs up");
    let again = restored(to).expect("restores");
    assert!(rows(&again) == rows(&db), "other rows");
    let left = || db.engine.rt.env.list("runs").expect("lists");
    until("the removal", || names.iter().all(|name| !left().contains(name)));
}

/// A commit and a flush of its pages behind the end of a backup.
#[test]
fn pages_are_copied_before_the_end_is_fixed() {
    let db = source();
    put(&db, 0..2_000, 200);
    // The log no longer makes the pages: recovery needs the images.
    db.checkpoint().expect("flushes");
    let before = rows(&db);
    let writing = db.clone();
    // The superblock is written when the end of the log was copied.
    let to = hooked("superblock", move || {
        put(&writing, 500..600, 50);
        writing.checkpoint().expect("flushes");
    });
    db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect("backs up");
    assert!(rows(&restored(to).expect("restores")) == before, "other rows");
}

/// A long value is written past the log to pages that were copied before.
#[test]
fn pages_that_bypass_the_log_are_copied_when_the_log_names_them() {
    let db = source();
    put(&db, 0..2_000, 200);
    until("a flush", || runs_of(&db, 0) > 0);
    let writing = db.clone();
    let written = || db.stats().get(Metric::UnloggedValueBytes);
    let before = written();
    let to = hooked("runs/", move || put(&writing, 5_000..5_010, 100_000));
    db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect("backs up");
    assert!(written() > before, "the values went through the log");
    assert!(rows(&restored(to).expect("restores")) == rows(&db), "other rows");
}

#[test]
fn a_cancelled_backup_ends_and_leaves_nothing() {
    let db = source();
    put(&db, 0..2_000, 200);
    let progress = BackupProgress::default();
    let cancelling = progress.clone();
    let to = hooked("pages/", move || cancelling.cancel());
    let error = db.backup_in(to.clone(), "backup", &progress).expect_err("cancelled");
    assert_eq!(error.code(), Code::StatementCancelled);
    assert!(
        to.list("pages").expect("lists").is_empty()
            && to.open(MARKER_FILE, OpenMode::READ).is_err()
    );
    // Another one begins where it has ended.
    db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect("backs up");
    assert!(rows(&restored(to).expect("restores")) == rows(&db), "other rows");
}

#[test]
fn one_backup_runs_at_a_time_and_a_close_ends_it() {
    let db = source();
    put(&db, 0..2_000, 200);
    let (other, seen) = (db.clone(), Arc::new(AtomicBool::new(false)));
    let noted = seen.clone();
    let closer = Arc::new(Mutex::new(None));
    let closing = closer.clone();
    let to = hooked("pages/", move || {
        let error = other
            .backup_in(Arc::new(MemEnv::new()), "second", &BackupProgress::default())
            .expect_err("runs");
        assert_eq!(
            (error.code(), error.context("destination")),
            (Code::BackupRunning, Some("first"))
        );
        noted.store(true, Ordering::SeqCst);
        *closing.lock() = Some(std::thread::spawn(move || other.close()));
        std::thread::sleep(Duration::from_millis(50));
    });
    let error = db.backup_in(to, "first", &BackupProgress::default()).expect_err("closed");
    assert!(matches!(error.code(), Code::StatementCancelled | Code::DatabaseClosed), "{error}");
    assert!(seen.load(Ordering::SeqCst));
    let closed = closer.lock().take().expect("begun").join().expect("no panic");
    closed.expect("closes");
    let error = db.backup_in(Arc::new(MemEnv::new()), "late", &BackupProgress::default());
    assert_eq!(error.expect_err("closed").code(), Code::DatabaseClosed);
}

#[test]
fn a_destination_with_files_is_refused() {
    let db = source();
    let to = Arc::new(MemEnv::new());
    to.open("mine", OpenMode::READ_WRITE).expect("makes");
    let error = db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect_err("full");
    assert_eq!((error.code(), error.context("found")), (Code::DirectoryNotEmpty, Some("mine")));
    let to = Arc::new(MemEnv::new());
    db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect("backs up");
    let again = db.backup_in(to, "backup", &BackupProgress::default()).expect_err("full");
    assert_eq!(again.code(), Code::DirectoryNotEmpty);
}

/// The writers go on, and the backup says why it has failed.
#[test]
fn a_backup_that_falls_behind_the_log_fails_and_writers_go_on() {
    let db = source();
    put(&db, 0..500, 200);
    let writing = db.clone();
    let to = hooked("pages/", move || {
        // The log wraps several times.
        for round in 0..40 {
            put(&writing, 0..2_000, 1_000 + round);
            writing.checkpoint().expect("flushes");
        }
    });
    let error = db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect_err("behind");
    assert_eq!(error.code(), Code::BackupBehindLog, "{error}");
    assert!(to.open(MARKER_FILE, OpenMode::READ).is_err());
    put(&db, 0..10, 1);
    let log = || -> u64 {
        let names = db.engine.rt.env.list("wal").expect("lists");
        let len = |name: &String| {
            let file = db.engine.rt.env.open(&format!("wal/{name}"), OpenMode::READ);
            file.and_then(|file| file.len()).unwrap_or(0)
        };
        names.iter().map(len).sum()
    };
    // What the pin held is given back.
    until("a smaller log", || {
        db.checkpoint().expect("takes");
        log() <= 40 << 20
    });
}

/// Each call of the destination fails in turn: with an error, or for want of space. The database
/// does not notice, and the destination has no marker.
#[test]
fn a_failing_destination_fails_the_backup_alone() {
    let db = source();
    put(&db, 0..300, 200);
    put(&db, 300..302, 50_000);
    until("a flush", || {
        put(&db, 0..300, 200);
        runs_of(&db, 0) > 0
    });
    let backup = |fault: Option<Fault>| {
        let disk = SimDisk::new(1);
        if let Some(fault) = fault {
            disk.inject(fault);
        }
        let sim = SimEnv::on(disk, SimOptions::quiet(1));
        let done = db.backup_in(sim.env(), "/mnt/b", &BackupProgress::default());
        (sim, done)
    };
    let (sim, done) = backup(None);
    done.expect("backs up");
    let calls = sim.disk().calls();
    assert!(calls > 30, "{calls} calls");
    use FaultKind::*;
    for kind in [WriteError, NoSpace, SyncError, NameError, NoSpaceForName, LookError, ShortWrite] {
        let mut failed = 0;
        for call in 1..=calls {
            let (sim, done) = backup(Some(Fault::new(kind, When::Call(call))));
            if sim.disk().faults_struck() == 0 {
                continue;
            }
            failed += 1;
            let is_marked = sim.disk().paths().iter().any(|path| path == MARKER_FILE);
            match done {
                Ok(_) => assert!(is_marked, "{kind:?} of call {call}: no marker"),
                Err(error) => {
                    assert_eq!(
                        error.context("destination").or(error.context("directory")),
                        Some("/mnt/b"),
                        "{kind:?} of call {call}: {error}"
                    );
                    assert!(!is_marked, "{kind:?} of call {call}: {error}");
                }
            }
            db.engine.rt.health.check_user().expect("writes go on");
        }
        assert!(failed > 0, "{kind:?} has struck no call");
    }
    put(&db, 0..10, 20);
    db.checkpoint().expect("goes on");
}

#[test]
fn a_full_destination_is_named_with_its_bytes() {
    let db = source();
    put(&db, 0..3_000, 300);
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(600 << 10));
    let sim = SimEnv::on(disk, SimOptions::quiet(1));
    let done = db.backup_in(sim.env(), "/mnt/b", &BackupProgress::default());
    let error = done.expect_err("full");
    assert_eq!(error.code(), Code::DiskFull, "{error}");
    assert_eq!(error.context("destination"), Some("/mnt/b"));
    assert!(error.context("bytes").is_some() && error.context("file").is_some(), "{error}");
    assert!(sim.disk().used_bytes() < 100 << 10, "its files stay");
    put(&db, 0..10, 20);
}

/// Removes, cuts and changes each file of a backup in turn.
#[test]
fn every_missing_or_changed_file_is_named() {
    let db = source();
    put(&db, 0..3_000, 100);
    until("a flush", || runs_of(&db, 0) > 0);
    let to = Arc::new(MemEnv::new());
    db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect("backs up");
    let whole = BackupSource::open(to.clone(), "backup").expect("opens").manifest;
    for file in whole.files.iter().filter(|file| file.bytes > 0) {
        for change in ["missing", "another size", "checksum"] {
            let copy = Arc::new(to.fork());
            let open = copy.open(&file.path, OpenMode::READ_WRITE).expect("there");
            match change {
                "missing" => copy.remove(&file.path).expect("removes"),
                "another size" => open.set_len(file.bytes - 1).expect("cuts"),
                _ => {
                    let at =
                        file.pieces.iter().position(|piece| *piece != Piece::Zeros).expect("bytes")
                            as u64;
                    let mut byte = [0];
                    open.read_at(&mut byte, at << 20).expect("reads");
                    open.write_at(&[byte[0] ^ 4], at << 20).expect("writes");
                }
            }
            let named = |error: &Error| {
                assert_eq!(error.code(), Code::BackupDamaged, "{error}");
                assert_eq!(error.context("file"), Some(&*file.path));
                assert_eq!(error.context("why"), Some(change));
            };
            let restored_to: Arc<dyn Env> = Arc::new(MemEnv::new());
            match BackupSource::open(copy.clone(), "backup") {
                // The superblock is read first.
                Err(error) => named(&error),
                Ok(source) => {
                    let found = verify_backup_in(copy, "backup", &[]).expect("reads").problems;
                    assert_eq!(found.len(), 1, "{found:?}");
                    assert!(
                        found[0].contains(&file.path) && found[0].contains(change),
                        "{found:?}"
                    );
                    let env = restored_to.clone();
                    named(&restore_from(&source, env, "restored", None).expect_err("damaged"));
                }
            }
            let is_database = restored_to.open("evenkeel.super", OpenMode::READ).is_ok();
            assert!(!is_database, "{} {change}: a database", file.path);
        }
    }
    for (path, code) in
        [(MARKER_FILE, Code::BackupIncomplete), (MANIFEST_FILE, Code::BackupDamaged)]
    {
        let copy = Arc::new(to.fork());
        copy.remove(path).expect("removes");
        assert_eq!(verify_backup_in(copy, "backup", &[]).expect_err(path).code(), code);
    }
}

#[test]
fn a_restore_checks_space_and_directory_before_the_first_byte() {
    let db = source();
    put(&db, 0..100, 100);
    let to = Arc::new(MemEnv::new());
    let report = db.backup_in(to.clone(), "backup", &BackupProgress::default()).expect("backs up");
    let source = BackupSource::open(to, "backup").expect("opens");
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let restore = |free| restore_from(&source, env.clone(), "restored", Some(free));
    let error = restore(report.bytes - 1).expect_err("no space");
    let bytes = report.bytes.to_string();
    assert_eq!((error.code(), error.context("bytes")), (Code::DiskFull, Some(&*bytes)));
    assert!(env.list("").expect("lists").is_empty());
    restore(report.bytes).expect("fits");
    assert_eq!(restore(u64::MAX).expect_err("not empty").code(), Code::DirectoryNotEmpty);
}
