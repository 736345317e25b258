//! Redo of more pages than the pool holds: it writes some of them, after their log records are
//! durable (a page is written only when its last record is). A helper that panics ends the redo.
//! Pages that a checkpoint found clean are not read.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Durability, Geometry, IndexSpec, Isolation, Metric,
    Options, TableSpec,
};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Code, Result};
use evenkeel_io::sim::{CrashPolicy, SimDisk, SimEnv, SimOptions, catch_crash};
use evenkeel_io::{Env, File, OpenMode, RealEnv};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const ROWS: i64 = 20_000;
const BATCH: usize = 100;

/// A directory, and the list of its writes and syncs in order.
#[derive(Clone)]
struct Watched {
    inner: Arc<dyn Env>,
    seen: Arc<Mutex<Vec<(&'static str, String)>>>,
    /// The thread of this name that reads next panics.
    panics: Arc<Mutex<Option<&'static str>>>,
}

impl Watched {
    fn new(dir: &Path) -> Watched {
        let inner: Arc<dyn Env> = Arc::new(RealEnv::new(dir));
        Watched { inner, seen: Arc::default(), panics: Arc::default() }
    }

    fn note(&self, what: &'static str, path: &str) {
        self.seen.lock().push((what, path.to_string()));
    }
}

struct WatchedFile {
    inner: Arc<dyn File>,
    path: String,
    of: Watched,
}

impl WatchedFile {
    fn note(&self, what: &'static str) {
        self.of.note(what, &self.path);
    }
}

impl File for WatchedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.note("read");
        let name = std::thread::current().name().map(str::to_string);
        if self.of.panics.lock().take_if(|of| name.as_deref() == Some(*of)).is_some() {
            panic!("a planted panic");
        }
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.note("write");
        self.inner.write_at(buf, offset)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()?;
        self.note("sync");
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.note("change");
        self.inner.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.note("change");
        self.inner.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.note("change");
        self.inner.punch(offset, len)
    }
}

impl Env for Watched {
    evenkeel_io::delegate_env!(inner: list, create_dir, sync_dir, now_ns, random, wait, spawn);
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let was_there = self.inner.open(path, OpenMode::READ).is_ok();
        if mode.create && !was_there {
            self.note("change", path);
        }
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(WatchedFile { inner, path: path.to_string(), of: self.clone() }))
    }
    fn remove(&self, path: &str) -> Result<()> {
        self.note("change", path);
        self.inner.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.note("change", from);
        self.inner.rename(from, to)
    }
}

/// Copies the files of an open database in order of their names, the log last: pages that are
/// written meanwhile are no newer than the log.
fn copy_dir(from: &Path, to: &Path) {
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

fn spec() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("data", ColumnType::Bytes { max: 200 }))
        .primary_key(&["id"])
}

/// Inserts `rows` rows, a hundred in each transaction.
fn fill(db: &Database, rows: i64) {
    db.create_table("t", &spec()).expect("create");
    fill_more(db, 0..rows);
}

fn fill_more(db: &Database, ids: std::ops::Range<i64>) {
    for first in ids.step_by(BATCH) {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
        let table = txn.table("t").expect("table");
        for id in first..first + BATCH as i64 {
            table.insert(&[Int(id), Bytes(&[7; 200])]).expect("insert");
        }
        txn.commit().expect("commit");
    }
}

/// The files of a database that was killed, with `ROWS` rows in its log.
fn killed() -> tempfile::TempDir {
    killed_with(Durability::Write)
}

fn killed_with(durability: Durability) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("dir");
    let options = Options { durability, ..Options::new() };
    let db = Database::open_with(dir.path(), options).expect("open");
    fill(&db, ROWS);
    // The files in the state that a kill leaves.
    let copy = tempfile::tempdir().expect("dir");
    copy_dir(dir.path(), copy.path());
    drop(db);
    copy
}

/// Opens the database with a pool of fewer pages than redo needs.
fn open_small(watched: &Watched) -> Result<Database> {
    let geometry = Geometry { pool_bytes: Some(128 * 4096), ..Geometry::default() };
    let options = Options { memory_size: 16 << 20, ..Options::new() };
    let options = options.env(Arc::new(watched.clone())).geometry(geometry);
    Database::open_with("db", options)
}

/// A panic of a helper ends the open with an error, also if another thread waits for the helper's
/// work.
#[test]
fn a_helper_that_panics_ends_the_open() {
    let dir = killed();
    for helper in ["ek-log-read", "ek-redo", "ek-log-behind"] {
        let watched = Watched::new(dir.path());
        *watched.panics.lock() = Some(helper);
        let (send, ended) = std::sync::mpsc::channel();
        let own = watched.clone();
        std::thread::spawn(move || send.send(open_small(&own).map(drop)));
        let opened = ended.recv_timeout(Duration::from_secs(60));
        let error = opened.unwrap_or_else(|_| panic!("waits for ever after a panic of {helper}"));
        assert_eq!(error.expect_err(helper).code(), Code::Internal);
        assert_eq!(*watched.panics.lock(), None);
    }
    // The redo done so far does not matter to the next open.
    all_rows_are_there(&Watched::new(dir.path()));
}

#[test]
fn redo_syncs_the_log_before_it_writes_a_page() {
    let dir = killed();
    let watched = Watched::new(dir.path());
    let db = open_small(&watched).expect("recover");
    let seen = watched.seen.lock().clone();
    assert!(db.recovery().rows >= ROWS as u64, "the log is gone: nothing is tested");
    let is_page = |path: &str| path == "dw" || path.starts_with("pages/");
    let first = seen.iter().position(|(what, path)| *what == "write" && is_page(path));
    let first = first.expect("redo had no more pages than the pool holds");
    let logs = |what: &str| -> std::collections::BTreeSet<&String> {
        let wal = |path: &str| path.starts_with("wal/") && path.ends_with(".wal");
        let of = |(did, path): &&(&'static str, String)| *did == what && wal(path);
        seen[..first].iter().filter(of).map(|(_, path)| path).collect()
    };
    let (read, synced) = (logs("read"), logs("sync"));
    // The log is longer than two segments.
    assert!(synced.len() > 2 && synced.is_subset(&read), "{synced:?} of {read:?}");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
    let table = txn.table("t").expect("table");
    for id in [0, 1, ROWS / 2, ROWS - 1] {
        assert!(table.get(&[Int(id)]).expect("read").is_some(), "row {id}");
    }
    drop(txn);
    let check = db.check().expect("check");
    assert_eq!((check.rows, check.problems.len()), (ROWS as u64, 0), "{:?}", check.problems);
}

/// The segments of a log, in order.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(dir.join("wal")).expect("list");
    let mut names: Vec<PathBuf> = listed.map(|entry| entry.expect("entry").path()).collect();
    names.retain(|path| path.extension().is_some_and(|e| e == "wal"));
    names.sort();
    names
}

/// A directory whose log lacks one block; the file, and its former content.
fn with_hole(
    killed: &Path,
    (segment, at): (usize, usize),
) -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let dir = tempfile::tempdir().expect("dir");
    copy_dir(killed, dir.path());
    let file = segments(dir.path())[segment].clone();
    let whole = std::fs::read(&file).expect("a segment");
    let mut torn = whole.clone();
    torn[at..at + 512].fill(0);
    std::fs::write(&file, torn).expect("wiped");
    (dir, file, whole)
}

/// Opens the database with this hole in its log: every open is refused and changes no file; once
/// the hole is mended it opens. False if no part of the log lies behind the hole.
fn is_refused_whole(killed: &Path, hole: (usize, usize), verify: fn(&Watched)) -> bool {
    let (dir, file, whole) = with_hole(killed, hole);
    let watched = Watched::new(dir.path());
    let Err(error) = open_small(&watched) else { return false };
    let again = open_small(&watched).map(drop).expect_err("it still has a hole");
    assert_eq!((error.code(), again.code()), (Code::LogDamaged, Code::LogDamaged));
    let name = file.file_name().expect("a name").to_string_lossy().to_string();
    for text in [error.to_string(), again.to_string()] {
        assert!(text.contains(&name) && text.contains(&format!("offset={}", hole.1)), "{text}");
    }
    let seen = watched.seen.lock().clone();
    let is_change = |(did, _): &&(&str, String)| matches!(*did, "write" | "change");
    let changed: Vec<_> = seen.iter().filter(is_change).collect();
    assert!(changed.iter().all(|(_, path)| path == "evenkeel.lock"), "{hole:?}: {changed:?}");
    std::fs::write(file, whole).expect("mended");
    verify(&watched);
    true
}

/// A hole is not the end of the log. The log behind the hole is searched while redo runs, which has
/// more pages than the pool holds: redo writes none before the log is known to be whole.
#[test]
fn a_hole_in_the_log_is_refused_with_any_amount_behind_it() {
    let killed = killed_with(Durability::Sync);
    let mut segment = 1;
    while is_refused_whole(killed.path(), (segment, 4096 + 5 * 512), all_rows_are_there) {
        segment += 1;
    }
    assert!(segment > 3, "{segment}");
}

const VALUE_BYTES: usize = 3 << 20;

fn value_of(id: i64) -> Vec<u8> {
    (0..VALUE_BYTES).map(|at| (at / 1000) as u8 ^ id as u8).collect()
}

/// Most pages of a long value are written without redo: the log records their start, and at the end
/// of the value that they are in storage. A log with a hole between the two lacks the latter.
#[test]
fn pages_without_redo_survive_an_open_refused_for_a_hole() {
    let dir = tempfile::tempdir().expect("dir");
    let db = Database::open(dir.path()).expect("open");
    let column = ColumnSpec::new("data", ColumnType::Bytes { max: VALUE_BYTES as u32 });
    let table = TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64)).column(column);
    db.create_table("t", &table.primary_key(&["id"])).expect("create");
    for id in 0..3 {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
        let table = txn.table("t").expect("table");
        table.insert(&[Int(id), Bytes(&value_of(id))]).expect("insert");
        drop(table);
        txn.commit().expect("commit");
    }
    let copy = tempfile::tempdir().expect("dir");
    copy_dir(dir.path(), copy.path());
    drop(db);
    let values_are_there = |watched: &Watched| {
        let db = open_small(watched).expect("recovers");
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
        let table = txn.table("t").expect("table");
        for id in 0..3 {
            let row = table.get(&[Int(id)]).expect("read").expect("there");
            assert!(row.value("data").expect("data") == Bytes(&value_of(id)), "value {id}");
        }
    };
    let mut refused = 0;
    for (segment, file) in segments(copy.path()).iter().enumerate() {
        let bytes = std::fs::metadata(file).expect("a segment").len() as usize;
        for at in (4096 + 9 * 512..bytes).step_by(320 << 10) {
            refused += usize::from(is_refused_whole(copy.path(), (segment, at), values_are_there));
        }
    }
    println!("{refused} holes refused");
    assert!(refused > 6, "{refused}");
}

fn all_rows_are_there(watched: &Watched) {
    let check = open_small(watched).expect("recovers").check().expect("check");
    assert_eq!((check.rows, check.problems.len()), (ROWS as u64, 0), "{:?}", check.problems);
}

/// A killed process may never have synced pages that redo finds up to date: they are synced before
/// a checkpoint releases their log.
#[test]
fn pages_that_redo_finds_written_are_synced() {
    let dir = tempfile::tempdir().expect("dir");
    let db = open_small(&Watched::new(dir.path())).expect("open");
    fill(&db, ROWS);
    let copy = tempfile::tempdir().expect("dir");
    copy_dir(dir.path(), copy.path());
    drop(db);
    let watched = Watched::new(copy.path());
    // The pool holds all redone pages: redo writes none.
    let options = Options::new().env(Arc::new(watched.clone()));
    let db = Database::open_with("db", options).expect("recover");
    let seen = watched.seen.lock().clone();
    let at = |what: &str, of: &dyn Fn(&str) -> bool| {
        seen.iter().position(|(did, path)| *did == what && of(path))
    };
    let opened = at("write", &|path| path == "evenkeel.super").expect("the open is noted");
    let synced = at("sync", &|path| path.starts_with("pages/"));
    let written = at("write", &|path| path.starts_with("pages/")).unwrap_or(usize::MAX);
    let synced = synced.expect("pages were written before the kill, and are read by redo");
    assert!(synced < opened && opened < written, "{synced} {opened} {written}");
    drop(db);
}

/// A checkpoint that finds no dirty page: a page that the background changes meanwhile would move
/// the start of page redo back.
fn checkpoint_of_clean_pages(db: &Database) {
    for _ in 0..1000 {
        let before = db.stats().get(Metric::FlushDone);
        db.checkpoint().expect("checkpoint");
        if db.stats().get(Metric::FlushDone) == before {
            return;
        }
    }
    panic!("pages change all the time");
}

/// Memtables need the log of the whole load, pages only the log of changes behind the checkpoint:
/// redo reads just the changed pages (the formula of `docs/scale.md`), after a kill and after a
/// close.
#[test]
fn pages_that_the_checkpoint_found_clean_are_not_read() {
    const APART: i64 = 400;
    let dir = tempfile::tempdir().expect("dir");
    let options = || Options { durability: Durability::Write, ..Options::new() };
    let db = Database::open_with(dir.path(), options()).expect("open");
    fill(&db, ROWS);
    let index = IndexSpec::new("by_data", &["data"]);
    db.add_indexes("t", &[index]).expect("index");
    fill_more(&db, ROWS..2 * ROWS);
    checkpoint_of_clean_pages(&db);
    let changed: Vec<i64> = (0..2 * ROWS).step_by(APART as usize).collect();
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let table = txn.table("t").expect("table");
    for id in &changed {
        assert!(table.update(&[Int(*id)], &[(1, Bytes(b"new"))]).expect("update"));
    }
    txn.commit().expect("commit");
    let copy = tempfile::tempdir().expect("dir");
    copy_dir(dir.path(), copy.path());
    db.close().expect("close");
    for (dir, most) in [(copy, changed.len() as u64 + 20), (dir, 20)] {
        let db = Database::open_with(dir.path(), options()).expect("recover");
        let report = db.recovery();
        println!("{report:?}");
        // Each row of the second half is in the log; a page has about 15 rows.
        assert!(report.rows >= ROWS as u64, "the log is gone: nothing is tested");
        assert!(report.page_reads <= most, "{} pages read", report.page_reads);
        let check = db.check().expect("check");
        assert_eq!(
            (check.rows, check.problems.len()),
            (2 * ROWS as u64, 0),
            "{:?}",
            check.problems
        );
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
        let table = txn.table("t").expect("table");
        for id in &changed {
            let row = table.get(&[Int(*id)]).expect("read").expect("there");
            assert_eq!(row.value("data").expect("data"), Bytes(b"new"), "row {id}");
        }
    }
}

const SIM_ROWS: i64 = 4000;
/// Points of power failure, spread over the writes of an open.
const POINTS: u64 = 12;

fn sim_open(sim: &SimEnv) -> Result<Database> {
    let geometry = Geometry { pool_bytes: Some(64 * 4096), ..Geometry::default() };
    let options = Options { durability: Durability::Write, ..Options::new() };
    Database::open_with("db", options.env(sim.env()).geometry(geometry))
}

/// A simulation whose process counts as killed: it no longer runs, while others use its disk. All
/// of its writes can be read there, and little of its log is durable. End it after a crash, so that
/// it does not continue.
fn killed_in_simulation() -> SimEnv {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let options = Options { durability: Durability::Write, ..Options::new() };
    let db = Database::open_with("db", options.env(sim.env())).expect("create");
    fill(&db, SIM_ROWS);
    std::mem::forget(db);
    // The lock of a killed process is released.
    sim.env().remove("evenkeel.lock").expect("unlock");
    sim
}

/// Opens the files that survive a power failure; returns the number of rows, which are the first
/// ones.
fn rows_of(survivor: SimDisk, which: &str) -> u64 {
    let sim = SimEnv::on(survivor, SimOptions::quiet(3));
    let db = sim_open(&sim).unwrap_or_else(|error| panic!("{which}: {error}"));
    let check = db.check().expect("check");
    assert_eq!(check.problems.len(), 0, "{which}: {:?}", check.problems);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
    let table = txn.table("t").expect("table");
    let has = |id| table.get(&[Int(id)]).expect("read").is_some();
    let rows = check.rows as i64;
    assert!(!has(rows) && (rows == 0 || has(0) && has(rows - 1)), "{which}: {rows} rows");
    drop(txn);
    assert_eq!(check.rows % BATCH as u64, 0, "{which}: half a transaction");
    drop(db);
    check.rows
}

/// The power fails while a redo of more pages than the pool holds writes some: no page may have
/// reached the disk before its records.
#[test]
fn power_fails_during_a_redo_of_more_pages_than_the_pool_holds() {
    let killed = killed_in_simulation();
    let before = killed.disk().changes();
    let durable = rows_of(killed.disk().crash(CrashPolicy::LoseAll, 1), "before the redo");
    assert!(durable < SIM_ROWS as u64, "all of the log was durable: nothing is tested");
    let sim = SimEnv::on(killed.disk().clone(), SimOptions::quiet(2));
    std::mem::forget(sim_open(&sim).expect("recover"));
    let changes = sim.disk().changes() - before;
    sim.disk().crash_now();
    [sim, killed].iter().for_each(SimEnv::stop);
    let (mut within_pages, mut most) = (0, 0);
    for point in 1..=POINTS {
        let killed = killed_in_simulation();
        let sim = SimEnv::on(killed.disk().clone(), SimOptions::quiet(2));
        sim.disk().crash_at_change(before + changes * point / POINTS);
        let opened = catch_crash(|| sim_open(&sim).map(std::mem::forget));
        assert!(sim.is_crashed(), "{opened:?}");
        [&sim, &killed].into_iter().for_each(SimEnv::stop);
        let path = sim.disk().crashed_in().unwrap_or_default();
        within_pages += u64::from(path.starts_with("pages/"));
        for policy in CrashPolicy::ALL {
            let which = format!("point {point} in {path}, {policy:?}");
            most = most.max(rows_of(sim.disk().crash(*policy, point), &which));
        }
    }
    assert!(within_pages > POINTS / 4, "redo had no more pages than the pool holds");
    assert_eq!(most, SIM_ROWS as u64);
}
