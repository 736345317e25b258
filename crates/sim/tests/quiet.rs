//! A database in which nobody writes, in virtual time: its pages and memtables are written, so that
//! a start after a crash has next to nothing to redo (RFC 33); a trickle of commits does not have
//! pages written again and again; a database at rest does nothing.

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
/// Of the log of 512 MiB, two parts of 128 may stay to be redone.
const STAYS: u64 = 8 * MIB;

fn filled(sim: &SimEnv) -> Arc<Database> {
    Arc::new(filled::filled(sim))
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
        let quiet = db.stats().get(Metric::FlushReasonIdle);
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
    assert!(rested.log_bytes <= STAYS + MIB / 4 && rested.rows < ROWS as u64 / 4);
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
    assert!(report.log_bytes <= STAYS && report.rows == 0, "{report:?}");

    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    Arc::into_inner(filled(&sim)).expect("nobody else has it").close().expect("closes");
    let db = Arc::new(opened(&sim));
    assert!(db.recovery().clean && db.recovery().log_bytes > 30 * MIB);
    pass(&sim, 60, || ());
    let report = crashed(&sim, db);
    assert!(report.log_bytes <= STAYS && report.rows == 0, "{report:?}");
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
        put(&own, "t", 5..6, value);
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
            put(&own, "t", 5..6, second);
        }
    });
    let rare = done(&db) - before;
    assert!((5..=20).contains(&rare), "{rare} pages in 10 commits");
    Arc::into_inner(db).expect("the sessions have ended").close().expect("closes");
    sim.stop();
}

/// Of a device that readers keep busy the rest has what they leave, a little each second: nearly
/// all of the 488 pages that it moves are theirs.
#[test]
fn readers_on_a_busy_device_come_first() {
    const OLD: i64 = 100_000;
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = opened(&sim);
    fill(&db, "old", OLD);
    db.close().expect("closes");
    let db = Arc::new(opened(&sim));
    // A device without a bound would be remembered as the best that the slow one can do.
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
                let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly).expect("begins");
                let id = rng.below(OLD as u64) as i64;
                txn.table("old").expect("is there").get(&[id.into()]).expect("reads");
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
    // In the first seconds what was written before still has the device; in the last ones there are
    // no free frames left, and readers need pages written for theirs.
    let seconds = per_second.lock()[8..15].to_vec();
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

/// On a full disk pages have their places, and the memtable's run that of the ballast; who reads
/// goes on. With room again it is as it always is.
#[test]
fn a_full_disk_ends_no_rest() {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = filled(&sim);
    sim.disk().set_capacity(Some(sim.disk().used_bytes()));
    let own = db.clone();
    pass(&sim, 60, move || {
        let mut txn = own.begin(Isolation::ReadCommitted, Access::ReadOnly).expect("begins");
        let row = txn.table("t").expect("is there").get(&[7.into()]).expect("reads");
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

/// What stays to be redone is a part of the log as large as it is now.
#[test]
fn a_log_that_changes_its_size_at_rest_rests_again() {
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
