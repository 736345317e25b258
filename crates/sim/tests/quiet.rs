//! A database in which nobody writes, in virtual time: its pages and memtables are written, so that
//! a start after a crash has next to nothing to redo (RFC 33); a trickle of commits does not have
//! pages written again and again; a database at rest does nothing.

use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, IndexSpec, Isolation, Metric, Options,
    RecoveryReport, TableSpec, ValueRef,
};
use evenkeel_base::Cause;
use evenkeel_io::sim::{CrashPolicy, Session, SimOptions};
use evenkeel_io::{Env, Event, SimDisk, SimEnv};
use std::sync::Arc;
use std::time::Duration;

const ROWS: i64 = 30_000;
const ROW: [u8; 1000] = [7; 1000];
const MIB: u64 = 1 << 20;

fn opened(sim: &SimEnv) -> Database {
    let options = Options { memory_size: 128 << 20, ..Options::new() }.env(sim.env());
    Database::open_with("db", options).expect("opens")
}

fn put(db: &Database, ids: std::ops::Range<i64>, value: i64) {
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    for id in ids {
        let row = [ValueRef::Int(id), ValueRef::Int(value), ValueRef::Bytes(&ROW)];
        txn.table("t").expect("is there").upsert(&row, &[]).expect("fits");
    }
    txn.commit().expect("commits");
}

/// Rows of 30 MB, and an index of them; nothing of it is old enough to have to be written.
fn filled(sim: &SimEnv) -> Arc<Database> {
    let db = opened(sim);
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("a", ColumnType::Int64))
        .column(ColumnSpec::new("data", ColumnType::Bytes { max: 1000 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("a", &["a"]));
    db.create_table("t", &spec).expect("table");
    for first in (0..ROWS).step_by(100) {
        put(&db, first..first + 100, first);
    }
    Arc::new(db)
}

/// So many seconds pass, in each of which `work` is called.
fn pass(sim: &SimEnv, seconds: u64, mut work: impl FnMut() + Send + 'static) {
    let env = sim.clone();
    let session = move || {
        let never = Arc::new(Event::new());
        for _ in 0..seconds {
            work();
            env.wait(&never, 0, Some(Duration::from_secs(1)), Cause::Idle);
        }
    };
    sim.run(vec![Box::new(session) as Session]);
}

/// What an open finds after a crash now.
fn crashed(sim: &SimEnv, db: Arc<Database>) -> RecoveryReport {
    sim.disk().crash_now();
    let disk = sim.disk().crash(CrashPolicy::LoseAll, 2);
    std::mem::forget(db);
    sim.stop();
    let sim = SimEnv::on(disk, SimOptions::quiet(3));
    let db = opened(&sim);
    let report = db.recovery();
    let found = db.check().expect("checks");
    assert!(found.problems.is_empty() && found.rows == ROWS as u64, "{:?}", found.problems);
    db.close().expect("closes");
    sim.stop();
    report
}

#[test]
fn where_nobody_writes_a_start_has_next_to_nothing_to_redo() {
    let mut reports = Vec::new();
    for seconds in [1, 60] {
        let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
        let db = filled(&sim);
        pass(&sim, seconds, || ());
        let done = db.stats().get(Metric::FlushDone);
        let quiet = db.stats().get(Metric::FlushWhyQuiet);
        if seconds > 1 {
            assert!(done > ROWS as u64 / 8 && quiet > done / 2, "{done} written, {quiet} of them");
            // It is at rest now.
            let calls = |db: &Database| {
                let stats = db.stats();
                [Metric::FileWrites, Metric::FileReads, Metric::FileSyncs].map(|m| stats.get(m))
            };
            let before = calls(&db);
            pass(&sim, 60, || ());
            assert_eq!(calls(&db), before);
        }
        reports.push(crashed(&sim, db));
    }
    let [at_once, rested] = [reports[0], reports[1]];
    println!("{at_once:?}\n{rested:?}");
    assert!(at_once.log_bytes > 30 * MIB && at_once.rows >= ROWS as u64);
    // A 64th of the log of 512 MiB.
    assert!(rested.log_bytes <= 8 * MIB + MIB / 4 && rested.page_reads < 100);
}

/// Also where no page is dirty when the quiet begins: the memtable holds the log.
#[test]
fn a_memtable_is_handed_over_where_no_page_is_dirty() {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = filled(&sim);
    db.checkpoint().expect("writes all pages");
    pass(&sim, 60, || ());
    assert_eq!(db.stats().get(Metric::MemtableFlushes), 1);
    let report = crashed(&sim, db);
    assert!(report.log_bytes <= 8 * MIB && report.rows == 0, "{report:?}");

    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    Arc::into_inner(filled(&sim)).expect("nobody else has it").close().expect("closes");
    let db = Arc::new(opened(&sim));
    assert!(db.recovery().clean && db.recovery().log_bytes > 30 * MIB);
    pass(&sim, 60, || ());
    let report = crashed(&sim, db);
    assert!(report.log_bytes <= 8 * MIB && report.rows == 0, "{report:?}");
}

/// What is written would lie in memory once more.
#[test]
fn who_only_reads_writes_no_page() {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = filled(&sim);
    sim.disk().crash_now();
    let disk = sim.disk().crash(CrashPolicy::KeepAll, 2);
    std::mem::forget(db);
    sim.stop();
    let sim = SimEnv::on(disk, SimOptions::quiet(3));
    let options = Options { memory_size: 128 << 20, ..Options::new() }.env(sim.env());
    let options = Options { read_only: true, ..options };
    let db = Arc::new(Database::open_with("db", options).expect("opens"));
    assert!(db.recovery().rows >= ROWS as u64);
    pass(&sim, 60, || ());
    assert_eq!(db.stats().get(Metric::FlushDone), 0);
    Arc::into_inner(db).expect("the sessions have ended").close().expect("closes");
    sim.stop();
}

/// A page that each commit changes is written when the pause begins and when it ends, not behind
/// each of them.
#[test]
fn a_trickle_of_commits_has_hardly_a_page_written() {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = filled(&sim);
    pass(&sim, 60, || ());
    let done = |db: &Database| db.stats().get(Metric::FlushDone);
    let before = done(&db);
    let (own, mut value) = (db.clone(), 0);
    pass(&sim, 100, move || {
        value += 1;
        put(&own, 5..6, value);
    });
    let trickle = done(&db) - before;
    pass(&sim, 60, || ());
    let all = done(&db) - before;
    println!("{trickle} pages in 100 commits, {all} in all");
    // 110 KB of log are more than make it quiet once: a cut on the way, and one in the pause.
    assert!(trickle <= 10 && (1..=20).contains(&all), "{trickle} pages, {all} in all");
    // Ten times fewer: each has a still moment of its own behind it, and its page written.
    let before = done(&db);
    let (own, mut second) = (db.clone(), 0);
    pass(&sim, 100, move || {
        second += 1;
        if second % 10 == 0 {
            put(&own, 5..6, second);
        }
    });
    let rare = done(&db) - before;
    assert!((5..=20).contains(&rare), "{rare} pages in 10 commits");
    Arc::into_inner(db).expect("the sessions have ended").close().expect("closes");
    sim.stop();
}
