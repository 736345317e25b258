//! Idle flush in virtual time (RFC 33). While nobody writes, the engine writes pages and memtables,
//! so an open after a crash has little to redo. A trickle of commits does not cause a page write
//! after each commit. After an idle flush the database does nothing.

use evenkeel::{Access, Database, Isolation, Metric, Options, RecoveryReport};
use evenkeel_base::{Cause, sync::Mutex};
use evenkeel_io::sim::{CrashPolicy, Session, SimOptions};
use evenkeel_io::{Env, Event, Rng, SimDisk, SimEnv};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

mod filled;
use filled::{ROWS, fill, opened, put};

const MIB: u64 = 1 << 20;
/// Of the log of 512 MiB, two parts of 128 may be left to redo.
const STAYS: u64 = 8 * MIB;

/// The segment files of the log, in order.
fn segments(sim: &SimEnv) -> Vec<String> {
    let mut names = sim.disk().paths();
    names.retain(|path| path.contains("wal/"));
    names.sort();
    names
}

fn filled(sim: &SimEnv) -> Arc<Database> {
    Arc::new(filled::filled(sim))
}

/// Lets this many seconds pass and calls `work` once in each.
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

/// Crashes the machine now. Returns what the next open reports.
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
fn an_idle_database_leaves_little_to_redo() {
    let mut reports = Vec::new();
    for seconds in [1, 130] {
        let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
        let db = filled(&sim);
        let busy = segments(&sim);
        pass(&sim, seconds, || ());
        let done = db.stats().get(Metric::FlushDone);
        let idle = db.stats().get(Metric::FlushReasonIdle);
        if seconds > 1 {
            assert!(done > ROWS as u64 / 8 && idle > done / 2, "{done} written, {idle} of them");
            // The log gave back the segments behind the checkpoint, not those ahead of its end.
            let left = segments(&sim);
            assert!(left.len() <= 5 && left[0] > busy[2], "{left:?} of {busy:?}");
            // Now the database does nothing.
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
    assert!(rested.log_bytes <= STAYS + MIB / 4 && rested.rows < ROWS as u64 / 4);
}

/// Idle flush also begins when no page is dirty, because the memtable keeps the log.
#[test]
fn an_idle_database_hands_its_memtable_over_without_dirty_pages() {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = filled(&sim);
    db.checkpoint().expect("writes all pages");
    pass(&sim, 60, || ());
    assert_eq!(db.stats().get(Metric::MemtableFlushes), 1);
    let report = crashed(&sim, db);
    assert!(report.log_bytes <= STAYS && report.rows == 0, "{report:?}");

    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    Arc::into_inner(filled(&sim)).expect("nobody else has it").close().expect("closes");
    let db = Arc::new(opened(&sim));
    assert!(db.recovery().clean && db.recovery().log_bytes > 30 * MIB);
    pass(&sim, 60, || ());
    let report = crashed(&sim, db);
    assert!(report.log_bytes <= STAYS && report.rows == 0, "{report:?}");
}

/// A read-only database writes nothing, because its writes go to memory and would take that memory
/// twice.
#[test]
fn a_read_only_database_writes_no_page() {
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

/// A page that each commit changes is written a few times during the trickle and in the pause after
/// it, not after each commit.
#[test]
fn a_trickle_of_commits_causes_few_page_writes() {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = filled(&sim);
    pass(&sim, 60, || ());
    let done = |db: &Database| db.stats().get(Metric::FlushDone);
    let before = done(&db);
    let (own, mut value) = (db.clone(), 0);
    pass(&sim, 100, move || {
        value += 1;
        put(&own, "t", 5..6, value);
    });
    let trickle = done(&db) - before;
    pass(&sim, 60, || ());
    let all = done(&db) - before;
    println!("{trickle} pages in 100 commits, {all} in all");
    // 110 KB of log exceed the growth that counts as idle: one idle flush happens during the
    // trickle, and one in the pause.
    assert!(trickle <= 10 && (1..=20).contains(&all), "{trickle} pages, {all} in all");
    // With a tenth of the commits, each is followed by an idle period, in which its page is
    // written.
    let before = done(&db);
    let (own, mut second) = (db.clone(), 0);
    pass(&sim, 100, move || {
        second += 1;
        if second % 10 == 0 {
            put(&own, "t", 5..6, second);
        }
    });
    let rare = done(&db) - before;
    assert!((5..=20).contains(&rare), "{rare} pages in 10 commits");
    Arc::into_inner(db).expect("the sessions have ended").close().expect("closes");
    sim.stop();
}

/// On a device that readers keep busy, idle flush gets a little in each second. Nearly all of the
/// 488 pages that the device moves in a second are the readers'.
#[test]
fn idle_flush_yields_to_readers_on_a_busy_device() {
    const OLD: i64 = 100_000;
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = opened(&sim);
    fill(&db, "old", OLD);
    db.close().expect("closes");
    let db = Arc::new(opened(&sim));
    // The governor would remember the rate of an unlimited device as the best rate of the slow one.
    sim.set_device(20_000_000);
    fill(&db, "t", ROWS);
    sim.set_device(2_000_000);
    let reads = Arc::new(AtomicU64::new(0));
    let until_ns = sim.now_ns() + 30_000_000_000;
    let reader = |n| {
        let (sim, db, reads) = (sim.clone(), db.clone(), reads.clone());
        Box::new(move || {
            let mut rng = Rng::new(n);
            while sim.now_ns() < until_ns {
                let txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly).expect("begins");
                let id = rng.below(OLD as u64) as i64;
                txn.table("old").expect("is there").get(id).expect("reads");
                reads.fetch_add(1, SeqCst);
            }
        }) as Session
    };
    let per_second = Arc::new(Mutex::new(Vec::new()));
    let (out, env, own, count) = (per_second.clone(), sim.clone(), db.clone(), reads.clone());
    let watch = Box::new(move || {
        let never = Arc::new(Event::new());
        for _ in 0..29 {
            env.wait(&never, 0, Some(Duration::from_secs(1)), Cause::Idle);
            let pages = own.stats().get(Metric::FlushReasonIdle);
            out.lock().push((count.swap(0, SeqCst), pages));
        }
    });
    sim.run(vec![watch, reader(1), reader(2), reader(3), reader(4)]);
    // In the first seconds earlier writes still occupy the device. In the last seconds no free
    // frames are left, and readers need pages to be written.
    let seconds = per_second.lock()[7..14].to_vec();
    println!("{seconds:?}");
    for pair in seconds.windows(2) {
        let (read, written) = (pair[1].0, pair[1].1 - pair[0].1);
        assert!(read >= 400 && (10..150).contains(&written), "{seconds:?}");
    }
    sim.set_device(0);
    pass(&sim, 60, || ());
    assert!(db.stats().get(Metric::FlushDone) > ROWS as u64 / 8);
    Arc::into_inner(db).expect("the sessions have ended").close().expect("closes");
    sim.stop();
}

/// On a full disk the pages already have their places, and the run of the memtable takes the
/// ballast. Readers continue. When there is space again, writes continue as usual.
#[test]
fn idle_flush_continues_on_a_full_disk() {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = filled(&sim);
    sim.disk().set_capacity(Some(sim.disk().used_bytes()));
    let own = db.clone();
    pass(&sim, 60, move || {
        let txn = own.begin(Isolation::ReadCommitted, Access::ReadOnly).expect("begins");
        let row = txn.table("t").expect("is there").get(7).expect("reads");
        assert!(row.is_some());
    });
    let done = db.stats().get(Metric::FlushDone);
    assert!((ROWS as u64 / 8..ROWS as u64 / 2).contains(&done), "{done} pages, none twice");
    sim.disk().set_capacity(None);
    pass(&sim, 60, || ());
    put(&db, "t", 5..6, 1);
    assert_eq!(db.stats().get(Metric::MemtableFlushes), 1);
    let report = crashed(&sim, db);
    assert!(report.log_bytes <= STAYS + MIB / 4 && report.rows < ROWS as u64 / 4, "{report:?}");
}

/// What is left to redo is a part of the log's present size.
#[test]
fn idle_flush_starts_again_when_the_log_size_changes() {
    for (log_size, stays) in [(64 * MIB, MIB), (2048 * MIB, 4 * STAYS)] {
        let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
        let db = filled(&sim);
        pass(&sim, 3, || ());
        db.set("log_size", log_size).expect("may change");
        pass(&sim, 60, || ());
        let report = crashed(&sim, db);
        println!("{log_size}: {report:?}");
        assert!(report.log_bytes <= stays + MIB / 4 && report.rows < ROWS as u64, "{report:?}");
    }
}
