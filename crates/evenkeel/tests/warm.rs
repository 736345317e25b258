//! Hot pages over a restart: with the list, rows that were in use are read without touching
//! storage; without it, or with a damaged one, they are read as usual.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Geometry, Isolation, Metric, Options, TableSpec,
};
use evenkeel_base::Cause;
use evenkeel_io::sim::{CrashPolicy, SimOptions};
use evenkeel_io::{Env, Event, MemEnv, OpenMode, Runtime, SimDisk, SimEnv};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROWS: i64 = 5_000;
const FILE: &str = "evenkeel.warm";

fn open(env: &Arc<MemEnv>) -> Database {
    Database::open_with("warm", Options::new().env(env.clone())).expect("opens")
}

fn fill(db: &Database) {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 100 }))
        .primary_key(&["id"]);
    db.create_table("t", &spec).expect("creates");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let table = txn.table("t").expect("table");
    for id in 0..ROWS {
        table.insert(&[Int(id), Bytes(&[id as u8; 80])]).expect("inserts");
    }
    txn.commit().expect("commits");
}

/// Reads rows all over the table; returns the pages read from storage.
fn reads(db: &Database) -> u64 {
    let before = db.stats().get(Metric::PageReads);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    for id in (0..ROWS).step_by(7) {
        let row = txn.table("t").expect("table").get(&[Int(id)]).expect("reads").expect("a row");
        assert!(matches!(row.value(1), Ok(Bytes(pad)) if pad == [id as u8; 80]), "row {id}");
    }
    db.stats().get(Metric::PageReads) - before
}

/// Waits until the list has been read in; returns the pages read for it.
fn warmed(db: &Database) -> u64 {
    let stats = || (db.stats().get(Metric::WarmPagesRead), db.stats().get(Metric::WarmPagesLeft));
    let start = Instant::now();
    loop {
        match stats() {
            (read, 0) if read > 0 => return read,
            now => assert!(start.elapsed() < Duration::from_secs(600), "read, left: {now:?}"),
        }
        std::thread::yield_now();
    }
}

/// A closed database whose pages were in use. The table was made in an earlier life, so that
/// recovery does not read its pages.
fn closed() -> Arc<MemEnv> {
    let env = Arc::new(MemEnv::new());
    let db = open(&env);
    fill(&db);
    db.close().expect("closes");
    let db = open(&env);
    reads(&db);
    db.close().expect("closes");
    env
}

fn list(env: &MemEnv) -> Vec<u8> {
    let file = env.open(FILE, OpenMode::READ).expect("the list is there");
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_at(&mut bytes, 0).expect("reads");
    bytes
}

#[test]
fn rows_in_use_before_a_restart_are_in_memory_after_it() {
    let env = closed();
    let db = open(&env);
    let brought = warmed(&db);
    assert_eq!(reads(&db), 0, "every page was there");
    println!("{brought} pages read in");
    // A life without reads keeps the list: its pages were read in.
    db.close().expect("closes");
    let db = open(&env);
    assert!(warmed(&db) >= brought * 9 / 10);
    db.close().expect("closes");
    // The control run: without the list each page is read when it is needed.
    env.remove(FILE).expect("removes");
    let db = open(&env);
    assert!(reads(&db) > 100, "so the list saved something");
    assert_eq!(db.stats().get(Metric::WarmPagesRead), 0);
}

#[test]
fn a_damaged_hot_page_list_is_no_error() {
    let env = closed();
    let good = list(&env);
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for bad in [Vec::new(), good[..good.len() / 2].to_vec(), flipped, vec![0; 10 << 20]] {
        let file = env.open(FILE, OpenMode::READ_WRITE).expect("opens");
        file.set_len(0).expect("cuts");
        file.write_at(&bad, 0).expect("writes");
        // A close before the thread has read the list keeps it: it might be valid.
        while list(&env) == bad {
            let db = open(&env);
            assert!(reads(&db) > 0);
            assert_eq!(db.stats().get(Metric::WarmPagesRead), 0);
            db.close().expect("closes, and writes a good one");
        }
        assert_eq!(list(&env)[..8], *b"EVKNWARM");
        let db = open(&env);
        warmed(&db);
        db.close().expect("closes");
    }
}

/// In virtual time, until the thread that reads the list has ended.
#[test]
fn no_page_of_a_damaged_list_is_read() {
    let sim = SimEnv::new(5);
    let env = sim.env();
    let (done, over) = std::sync::mpsc::channel();
    sim.run(vec![Box::new(move || {
        let rt = Runtime::new(env.clone());
        let open = || Database::open_with("warm", Options::new().env(env.clone())).expect("opens");
        let db = open();
        fill(&db);
        db.close().expect("closes");
        let db = open();
        reads(&db);
        db.close().expect("closes");
        let file = || env.open(FILE, OpenMode::READ_WRITE).expect("opens");
        let mut good = vec![0; file().len().expect("length") as usize];
        file().read_at(&mut good, 0).expect("reads");
        let brought = |list: &[u8]| {
            file().set_len(0).expect("cuts");
            file().write_at(list, 0).expect("writes");
            let db = open();
            let event = Arc::new(Event::new());
            rt.wait(&event, event.now(), Some(Duration::from_secs(1)), Cause::Idle);
            let brought = db.stats().get(Metric::WarmPagesRead);
            db.close().expect("closes");
            brought
        };
        assert!(brought(&good) > 100);
        for at in [12, 16, 21, good.len() / 2, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(brought(&bad), 0, "byte {at}");
        }
        assert_eq!(brought(&good[..good.len() - 1]), 0, "cut");
        assert!(brought(&good) > 100);
        let _ = done.send(());
    })]);
    over.try_recv().expect("the body ran to its end");
}

/// A kill some time after a list was saved: the next open, on a slow device, returns before the
/// pages are read in, and then they are read in.
#[test]
fn after_a_kill_the_hot_page_list_is_read_in_the_background() {
    const BYTES_PER_SEC: u64 = 1_000_000;
    let sim = SimEnv::on(SimDisk::new(6), SimOptions::quiet(6));
    let env = sim.env();
    sim.run(vec![Box::new(move || {
        // The log is so short that checkpoints start by themselves.
        let geometry = Geometry { log_bytes: Some(1 << 20), ..Geometry::default() };
        let options = Options::new().env(env.clone()).geometry(geometry);
        let open = || Database::open_with("warm", options.clone()).expect("opens");
        let db = open();
        fill(&db);
        db.close().expect("closes");
        // A life with pages in use long enough for a list, which ends in a kill.
        env.remove(FILE).expect("removes");
        let db = open();
        reads(&db);
        wait(&env, 61_000);
        let saved = || env.list("").expect("lists").iter().any(|name| name == FILE);
        for id in (0..ROWS).cycle().take_while(|_| !saved()).take(100_000) {
            let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
            let pad = Bytes(&[id as u8; 80]);
            txn.table("t").expect("table").update(&[Int(id)], &[(1, pad)]).expect("updates");
            txn.commit().expect("commits");
        }
        assert!(saved());
        std::mem::forget(db);
    })]);
    sim.disk().crash_now();
    let survivor = SimEnv::on(sim.disk().crash(CrashPolicy::KeepAll, 6), SimOptions::quiet(7));
    sim.stop();
    survivor.set_device(BYTES_PER_SEC);
    let (env, (done, over)) = (survivor.env(), std::sync::mpsc::channel());
    survivor.run(vec![Box::new(move || {
        let db = Database::open_with("warm", Options::new().env(env.clone())).expect("opens");
        let stats = || {
            let stats = db.stats();
            (stats.get(Metric::WarmPagesRead), stats.get(Metric::WarmPagesLeft))
        };
        let (mut ms, mut first) = (0, stats());
        // Until the thread has read the list.
        while first == (0, 0) {
            wait(&env, 1);
            (ms, first) = (ms + 1, stats());
            assert!(ms < 10_000, "nothing is read in");
        }
        while stats().1 > 0 {
            wait(&env, 1);
            ms += 1;
        }
        let read = stats().0;
        println!("after the open {first:?} pages read and left; all {read} in {ms} ms");
        assert!(read > 100 && first.0 < read / 2 && first.1 > read / 2, "open does not wait");
        assert_eq!(reads(&db), 0, "every page was there");
        db.close().expect("closes");
        let _ = done.send(());
    })]);
    over.try_recv().expect("the body ran to its end");
    survivor.stop();
}

fn wait(env: &Arc<dyn Env>, ms: u64) {
    let never = Arc::new(Event::new());
    env.wait(&never, 0, Some(Duration::from_millis(ms)), Cause::Idle);
}

/// A crash between writing the list and renaming it: the next open removes it, unless it is
/// read-only.
#[test]
fn a_half_written_hot_page_list_is_removed() {
    const NEW: &str = "evenkeel.warm.new";
    let env = closed();
    let file = env.open(NEW, OpenMode::READ_WRITE).expect("opens");
    file.write_at(&list(&env)[..100], 0).expect("writes");
    let lies = || env.list("").expect("lists").iter().any(|name| name == NEW);
    let mut options = Options::new().env(env.clone());
    options.read_only = true;
    drop(Database::open_with("warm", options).expect("opens"));
    assert!(lies());
    let db = open(&env);
    assert!(!lies());
    assert!(warmed(&db) > 0, "the list before it is good");
}

#[test]
fn an_empty_store_has_no_list_and_a_read_only_open_writes_none() {
    let env = Arc::new(MemEnv::new());
    open(&env).close().expect("closes");
    open(&env).close().expect("closes");
    assert!(!env.list("").expect("lists").iter().any(|name| name.contains("warm")));
    let db = open(&env);
    let (syncs, writes) = (db.stats().get(Metric::FileSyncs), db.stats().get(Metric::FileWrites));
    println!("an empty store opens with {syncs} syncs and {writes} writes");
    // The log and its directories, the superblock as found and as written; not the ballast, which
    // exists.
    assert!(syncs <= 7, "{syncs}");
    drop(db);
    let env = closed();
    let before = list(&env);
    let mut options = Options::new().env(env.clone());
    options.read_only = true;
    let db = Database::open_with("warm", options).expect("opens");
    warmed(&db);
    assert_eq!(reads(&db), 0);
    drop(db);
    assert_eq!(list(&env), before);
}
