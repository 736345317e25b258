//! Waits for log space, in simulated time, with a log far smaller than the bytes written. For every
//! operation that waits, some thread makes progress that frees log space.

use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Geometry, IndexSpec, Isolation, Metric, Options,
    Result, TableRef, TableSpec, ValueRef,
};
use evenkeel_base::Cause;
use evenkeel_io::sim::{Session, SimEnv};
use evenkeel_io::{Event, SimDisk};
use evenkeel_sim::actor::SMALL;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

fn rest(sim: &SimEnv, ms: u64) {
    let never = Arc::new(Event::new());
    sim.env().wait(&never, never.now(), Some(Duration::from_millis(ms)), Cause::Idle);
}

/// Runs sessions that must all end within `limit` of simulated time. If one does not, the machine
/// crashes, so the test fails instead of hanging.
fn within(sim: &SimEnv, limit: Duration, mut sessions: Vec<Session>) {
    let left = Arc::new(AtomicUsize::new(sessions.len()));
    let late = Arc::new(AtomicBool::new(false));
    for body in &mut sessions {
        let (left, inner) = (left.clone(), std::mem::replace(body, Box::new(|| ())));
        *body = Box::new(move || {
            inner();
            left.fetch_sub(1, Ordering::SeqCst);
        });
    }
    let (watched, flag) = (sim.clone(), late.clone());
    sessions.push(Box::new(move || {
        let end = watched.env().now_ns() + limit.as_nanos() as u64;
        while left.load(Ordering::SeqCst) > 0 {
            if watched.env().now_ns() > end {
                flag.store(true, Ordering::SeqCst);
                watched.disk().crash_now();
            }
            rest(&watched, 100);
        }
    }));
    sim.run(sessions);
    assert!(!late.load(Ordering::SeqCst), "still waiting after {limit:?} of simulated time");
}

fn open(sim: &SimEnv, geometry: Geometry) -> Database {
    Database::open_with("db", Options::new().env(sim.env()).geometry(geometry)).expect("opens")
}

fn part(number: usize) -> Vec<u8> {
    (0..4000).map(|i| ((i * 31) ^ (number * 7)) as u8).collect()
}

/// A value four times as long as the log. The memtable generation that took entries of catalog rows
/// is not handed over by any operation; it must nevertheless not keep the log.
#[test]
fn a_value_longer_than_the_log_is_written() {
    for seed in 1..=4 {
        let sim = SimEnv::on(SimDisk::new(seed), evenkeel_io::sim::SimOptions::new(seed));
        let db = open(&sim, SMALL);
        let spec = TableSpec::new()
            .column(ColumnSpec::new("id", ColumnType::Int64))
            .column(ColumnSpec::new("film", ColumnType::Bytes { max: u32::MAX }).nullable())
            .primary_key(&["id"]);
        db.create_table("films", &spec).expect("table");
        let writer = db.clone();
        within(
            &sim,
            Duration::from_secs(60),
            vec![Box::new(move || stream(&writer).expect("streams"))],
        );
        assert!(db.stats().stalls.iter().any(|(name, s)| *name == "log_space" && s.count > 0));
        drop(db);
    }
}

fn stream(db: &Database) -> Result<()> {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
    let films = txn.table("films")?;
    let mut film = films.large_value()?;
    (0..1000).for_each(|n| film.write_all(&part(n)).expect("writes"));
    let film = film.finish()?;
    films.insert_large(&[1i64.into(), ValueRef::Null], vec![(1, film)])?;
    txn.commit()?;
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    let row = txn.table("films")?.get(1)?.expect("a row");
    let mut reader = row.open_large(1)?;
    let mut bytes = vec![0; 4000];
    for n in 0..1000 {
        reader.read_exact(&mut bytes).expect("reads");
        assert!(bytes == part(n), "part {n}");
    }
    Ok(())
}

/// Three sessions update rows all over a table several times as large as the pool. Pages everywhere
/// are dirty, the log is reused many times, and no session waits for it for long.
#[test]
fn updates_continue_while_the_log_is_reused() {
    for seed in 1..=4u64 {
        let sim = SimEnv::on(SimDisk::new(seed), evenkeel_io::sim::SimOptions::new(seed));
        let db = open(&sim, SMALL);
        let spec = TableSpec::new()
            .column(ColumnSpec::new("id", ColumnType::Int64))
            .column(ColumnSpec::new("n", ColumnType::Int64))
            .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 1000 }))
            .primary_key(&["id"])
            .index(IndexSpec::new("by_n", &["n"]));
        db.create_table("t", &spec).expect("table");
        let sessions: Vec<Session> = (0..3i64)
            .map(|me| {
                let db = db.clone();
                Box::new(move || updates(&db, me).expect("updates")) as Session
            })
            .collect();
        within(&sim, Duration::from_secs(120), sessions);
        let check = db.check().expect("check");
        assert!(check.problems.is_empty(), "{:?}", check.problems);
        drop(db);
    }
}

fn updates(db: &Database, me: i64) -> Result<()> {
    for round in 0..4i64 {
        for batch in 0..20 {
            let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
            let t = txn.table("t")?;
            for i in 0..10 {
                let id = (batch * 10 + i) * 7919 % 200 * 3 + me;
                let pad = [round as u8; 700];
                t.put(&[id.into(), (round * 1000 + id).into(), ValueRef::Bytes(&pad)])?;
            }
            txn.commit()?;
        }
    }
    Ok(())
}

/// The bytes of all log files, and of the largest one.
fn log_files(sim: &SimEnv) -> (u64, u64) {
    let disk = sim.disk();
    let paths = disk.paths().into_iter().filter(|path| path.contains("wal/"));
    let files = paths.filter_map(|path| disk.content(&path)).map(|bytes| bytes.len() as u64);
    files.fold((0, 0), |(sum, most), bytes| (sum + bytes, most.max(bytes)))
}

/// The log becomes larger and smaller again and again while three sessions write. No session waits
/// for long, and in the end the log files are as small as the last size that was set.
#[test]
fn the_log_changes_its_size_beside_writers() {
    let mut larger = 0;
    for seed in 1..=6u64 {
        let sim = SimEnv::on(SimDisk::new(seed), evenkeel_io::sim::SimOptions::new(seed));
        let db = open(&sim, SMALL);
        full_disk_table(&db, "t").expect("table");
        let left = Arc::new(AtomicUsize::new(3));
        let batches = Arc::new(AtomicI64::new(0));
        let mut sessions: Vec<Session> = Vec::new();
        for _ in 0..3 {
            let (db, left, batches) = (db.clone(), left.clone(), batches.clone());
            sessions.push(Box::new(move || {
                for _ in 0..80 {
                    write(&db, batches.fetch_add(1, Ordering::SeqCst)).expect("writes go on");
                }
                left.fetch_sub(1, Ordering::SeqCst);
            }));
        }
        let (sim2, db2, most) = (sim.clone(), db.clone(), Arc::new(AtomicU64::new(0)));
        let seen = most.clone();
        sessions.push(Box::new(move || {
            let (sim, db) = (sim2, db2);
            while left.load(Ordering::SeqCst) > 0 {
                let size = 1 << (20 + sim.env().random() % 4);
                db.set("log_size", size).expect("any size in the range");
                rest(&sim, 20 + sim.env().random() % 100);
                seen.fetch_max(log_files(&sim).1, Ordering::SeqCst);
            }
            db.set("log_size", 1 << 20).expect("the least");
            let next = batches.load(Ordering::SeqCst);
            (next..next + 100).for_each(|batch| write(&db, batch).expect("writes go on"));
            db.checkpoint().expect("a checkpoint");
            rest(&sim, 1000);
            let (bytes, largest) = log_files(&sim);
            assert!(bytes <= 1 << 20 && largest <= 64 << 10, "seed {seed}: {bytes}, {largest}");
        }));
        within(&sim, Duration::from_secs(120), sessions);
        // Segments grow with the log, but not each size lasts long enough for that.
        larger += usize::from(most.load(Ordering::SeqCst) > 64 << 10);
        let check = db.check().expect("check");
        assert_eq!((check.rows, check.problems.len()), (340 * ROWS as u64, 0));
        drop(db);
    }
    assert!(larger >= 2, "segments of a larger log with {larger} seeds");
}

const ROWS: i64 = 5;

/// Rows `batch * 5 ..`, one in three with a long value.
fn write(db: &Database, batch: i64) -> Result<()> {
    write_to(db, "t", batch)
}

fn write_to(db: &Database, table: &str, batch: i64) -> Result<()> {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    let t = txn.table(table)?;
    for id in batch * ROWS..(batch + 1) * ROWS {
        let pad = vec![batch as u8; if id % 3 == 0 { 9000 } else { 300 }];
        t.insert(&[id.into(), (id % 37).into(), ValueRef::Bytes(&pad)])?;
    }
    txn.commit().map(|_| ())
}

fn full_disk_table(db: &Database, name: &str) -> Result<()> {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("n", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 10_000 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_n", &["n"]));
    db.create_table(name, &spec)
}

/// Writes until the disk is full, which must give an error and not a wait. Then either the disk
/// gets space and writes continue without a restart (true), or the database is closed on the full
/// disk (false).
fn full_disk(sim: &SimEnv, db: &Database, acknowledged: &AtomicI64) -> bool {
    let refused = loop {
        let batch = acknowledged.load(Ordering::SeqCst);
        match write(db, batch) {
            Ok(()) => acknowledged.fetch_add(1, Ordering::SeqCst),
            Err(error) => break error,
        };
        assert!(batch < 3000, "the disk never becomes full");
    };
    assert_eq!(refused.kind(), evenkeel::Kind::Full, "{refused}");
    if sim.env().random().is_multiple_of(2) {
        // A writer with an open transaction must not keep the database from closing.
        let left = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        if let Ok(t) = left.table("t") {
            let _ = t.insert(&[(-1i64).into(), 1i64.into(), ValueRef::Bytes(&[1; 9000])]);
        }
        match db.clone().close() {
            Ok(()) => {}
            Err(error) => assert_eq!(error.kind(), evenkeel::Kind::Full, "{error}"),
        }
        return false;
    }
    sim.disk().set_capacity(None);
    let mut tries = 0;
    while let Err(error) = write(db, acknowledged.load(Ordering::SeqCst)) {
        assert_eq!(error.kind(), evenkeel::Kind::Full, "{error}");
        tries += 1;
        assert!(tries < 100, "writes do not go on: {error}");
        rest(sim, 100);
    }
    acknowledged.fetch_add(1, Ordering::SeqCst);
    for _ in 0..20 {
        write(db, acknowledged.fetch_add(1, Ordering::SeqCst)).expect("writes go on");
    }
    true
}

/// The disk becomes full at many points of a workload with flushes, compactions and checkpoints.
#[test]
fn a_full_disk_is_an_error_and_never_a_wait() {
    let (mut went_on, mut closed) = (0, 0);
    for seed in 1..=40u64 {
        let sim = SimEnv::on(SimDisk::new(seed), evenkeel_io::sim::SimOptions::new(seed));
        let db = open(&sim, SMALL);
        full_disk_table(&db, "t").expect("table");
        let acknowledged = Arc::new(AtomicI64::new(0));
        let (sim2, sim3, db2, count) = (sim.clone(), sim.clone(), db.clone(), acknowledged.clone());
        let going = Arc::new(AtomicBool::new(false));
        let goes_on = going.clone();
        let writer: Session = Box::new(move || {
            goes_on.store(full_disk(&sim2, &db2, &count), Ordering::SeqCst);
        });
        let filler: Session = Box::new(move || {
            rest(&sim3, seed * 7);
            sim3.disk().set_capacity(Some(sim3.disk().used_bytes() + seed % 5 * 50_000));
        });
        within(&sim, Duration::from_secs(120), vec![writer, filler]);
        sim.disk().set_capacity(None);
        let rows = (acknowledged.load(Ordering::SeqCst) * ROWS) as u64;
        let db = match going.load(Ordering::SeqCst) {
            true => db,
            false => {
                drop(db);
                open(&sim, SMALL)
            }
        };
        let check = db.check().expect("check");
        assert_eq!((check.rows, check.problems.len()), (rows, 0), "{:?}", check.problems);
        *if going.load(Ordering::SeqCst) { &mut went_on } else { &mut closed } += 1;
        drop(db);
    }
    println!("{went_on} went on when there was space, {closed} were closed full");
    assert!(went_on > 5 && closed > 5);
}

/// Statements of many rows that wait for a row hold no log space meanwhile, because the transaction
/// that holds the row needs log space to end. Together these statements would hold all of the
/// users' log space.
#[test]
fn a_statement_that_waits_for_a_row_holds_no_log_space() {
    let sim = SimEnv::on(SimDisk::new(3), evenkeel_io::sim::SimOptions::new(3));
    let db = open(&sim, SMALL);
    full_disk_table(&db, "t").expect("table");
    let (first, sim2) = (db.clone(), sim.clone());
    let mut sessions: Vec<Session> = vec![Box::new(move || {
        let insert = || -> Result<()> {
            let txn = first.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
            let t = txn.table("t")?;
            t.insert(&[0i64.into(), 0i64.into(), ValueRef::Bytes(&[0; 900])])?;
            rest(&sim2, 2000);
            for id in 1..100i64 {
                t.insert(&[id.into(), id.into(), ValueRef::Bytes(&[0; 900])])?;
            }
            txn.rollback()
        };
        insert().expect("the holder goes on");
    })];
    for me in 1..=30i64 {
        let (db, sim) = (db.clone(), sim.clone());
        sessions.push(Box::new(move || {
            rest(&sim, 100);
            let pad = [1; 900];
            // The first row is the one that the holder has locked.
            let ids = (0..250).map(|i| if i == 0 { 0 } else { me * 1000 + i });
            let rows: Vec<[ValueRef<'_>; 3]> =
                ids.map(|id| [id.into(), id.into(), ValueRef::Bytes(&pad)]).collect();
            let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
            let many = txn.table("t").and_then(|t| t.insert_many(rows.iter().map(|r| &r[..])));
            match many {
                Ok(_) => drop(txn.commit().expect("commits")),
                Err(error) => assert_eq!(error.kind(), evenkeel::Kind::Duplicate, "{error}"),
            }
        }));
    }
    // The lock wait timeout is 50 s.
    within(&sim, Duration::from_secs(30), sessions);
    assert_eq!(db.check().expect("check").rows, 250);
    drop(db);
}

/// Changes the indexed column of rows of `t`, which needs no new pages.
fn churn(db: &Database, round: i64) -> Result<()> {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    let t = txn.table("t")?;
    for id in (0..20 * ROWS).filter(|id| id % 3 != 0) {
        t.update(id, &[(1, round * 7919 + id)])?;
    }
    txn.commit().map(|_| ())
}

fn holds_ballast(sim: &SimEnv) -> bool {
    let disk = sim.disk();
    let path = disk.paths().into_iter().find(|p| p.ends_with("evenkeel.ballast"));
    disk.content(&path.expect("a ballast")).is_some_and(|bytes| !bytes.is_empty())
}

/// The disk is full and the ballast is given away, so users' writes are refused. DROP of a table or
/// an index is not refused: it frees space, and writes continue on a disk that is no larger.
#[test]
fn a_table_can_be_dropped_on_a_full_disk() {
    for seed in 1..=6u64 {
        let sim = SimEnv::on(SimDisk::new(seed), evenkeel_io::sim::SimOptions::new(seed));
        let db = open(&sim, SMALL);
        let (sim2, db2) = (sim.clone(), db.clone());
        let session: Session = Box::new(move || {
            let (sim, db) = (sim2, db2);
            for table in ["t", "old"] {
                full_disk_table(&db, table).expect("table");
            }
            for batch in 0..60 {
                write_to(&db, "old", batch).expect("there is space");
                if batch < 20 {
                    write(&db, batch).expect("there is space");
                }
            }
            sim.disk().set_capacity(Some(sim.disk().used_bytes()));
            let mut round = 0;
            while holds_ballast(&sim) {
                if let Err(error) = churn(&db, round) {
                    assert_eq!(error.kind(), evenkeel::Kind::Full, "{error}");
                    rest(&sim, 10);
                }
                round += 1;
                assert!(round < 3000, "the ballast is never needed");
            }
            let refused = churn(&db, round).expect_err("users are refused");
            assert_eq!(refused.kind(), evenkeel::Kind::Full, "{refused}");
            match seed % 3 {
                0 => db.drop_index("old", "by_n").expect("an index goes on a full disk"),
                1 => db.truncate("old").expect("a table is emptied on a full disk"),
                _ => {}
            }
            db.drop_table("old").expect("a table goes on a full disk");
            let mut tries = 0;
            while let Err(error) = write(&db, 20) {
                assert_eq!(error.kind(), evenkeel::Kind::Full, "{error}");
                tries += 1;
                assert!(tries < 100, "writes do not go on: {error}");
                rest(&sim, 100);
            }
            (21..30).for_each(|batch| write(&db, batch).expect("writes go on"));
        });
        within(&sim, Duration::from_secs(120), vec![session]);
        let check = db.check().expect("check");
        assert_eq!((check.rows, check.problems.len()), (30 * ROWS as u64, 0));
        drop(db);
    }
}

/// Updates the indexed column of every row of `t`: more entries than a generation takes, so an
/// entry and its deletion lie in different runs.
fn churn_all(db: &Database, rows: i64, round: i64) -> Result<()> {
    for part in 0..10 {
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
        let t = txn.table("t")?;
        for id in part * rows / 10..(part + 1) * rows / 10 {
            t.update(id, &[(1, round * 7919 + id)])?;
        }
        txn.commit()?;
    }
    Ok(())
}

/// G4: old index entries that snapshots had needed fill the disk until the ballast is given away.
/// Compactions free the space of these entries, although the sizes of the runs call for no
/// compaction. The engine takes the ballast back without help from outside, and users continue.
#[test]
fn compactions_give_the_ballast_back() {
    const N: i64 = 1000;
    for seed in 1..=6u64 {
        let sim = SimEnv::on(SimDisk::new(seed), evenkeel_io::sim::SimOptions::new(seed));
        let db = open(&sim, SMALL);
        let (sim2, db2) = (sim.clone(), db.clone());
        let session: Session = Box::new(move || {
            let (sim, db) = (sim2, db2);
            full_disk_table(&db, "t").expect("table");
            for id in 0..N {
                let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
                let t = txn.table("t").expect("opens");
                t.insert(&[id.into(), id.into(), ValueRef::Bytes(b"pad")]).expect("there is space");
                txn.commit().expect("there is space");
            }
            let mut snapshots = Vec::new();
            for round in 1..15 {
                let old = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
                old.table("t").and_then(|t| t.get(0)).expect("reads");
                snapshots.push(old);
                churn_all(&db, N, round).expect("there is space");
            }
            // A compaction joins the entries into one run, and the snapshots still need them.
            rest(&sim, 5000);
            drop(snapshots);
            sim.disk().set_capacity(Some(sim.disk().used_bytes()));
            let mut round = 100;
            while holds_ballast(&sim) {
                if churn_all(&db, N, round).is_err() {
                    rest(&sim, 10);
                }
                round += 1;
                assert!(round < 3000, "the ballast is never needed");
            }
            let mut tries = 0;
            while !holds_ballast(&sim) {
                tries += 1;
                assert!(tries < 300, "seed {seed}: the ballast does not come back");
                rest(&sim, 100);
            }
            // The disk is as full as before, so new writes may need the ballast again.
            let mut tries = 0;
            while let Err(error) = churn_all(&db, 100, round) {
                assert_eq!(error.kind(), evenkeel::Kind::Full, "{error}");
                tries += 1;
                assert!(tries < 100, "seed {seed}: users do not go on: {error}");
                rest(&sim, 100);
            }
        });
        within(&sim, Duration::from_secs(240), vec![session]);
        let check = db.check().expect("check");
        assert_eq!((check.rows, check.problems.len()), (N as u64, 0));
        drop(db);
    }
}

/// The number of rows; each has one long value in a page of its own.
const FILMS: i64 = 14_000;

fn each_film(db: &Database, change: &dyn Fn(&mut TableRef<'_>, i64) -> Result<()>) -> Result<()> {
    for batch in 0..FILMS / 100 {
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
        let mut films = txn.table("films")?;
        (batch * 100..batch * 100 + 100).try_for_each(|id| change(&mut films, id))?;
        txn.commit()?;
    }
    Ok(())
}

/// An old snapshot keeps more long values of deleted rows than a checkpoint record can list one by
/// one. No writer waits for the end of the snapshot; when it ends, the values are freed.
#[test]
fn values_that_a_snapshot_keeps_do_not_fill_the_log() {
    let sim = SimEnv::on(SimDisk::new(5), evenkeel_io::sim::SimOptions::quiet(5));
    let db = open(&sim, SMALL);
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("film", ColumnType::Bytes { max: 10_000 }))
        .primary_key(&["id"]);
    db.create_table("films", &spec).expect("table");
    let (sim2, db2) = (sim.clone(), db.clone());
    let session: Session = Box::new(move || {
        let (sim, db) = (sim2, db2);
        let long = |n: u8| {
            move |films: &mut TableRef<'_>, id: i64| {
                films.put(&[id.into(), ValueRef::Bytes(&[n; 1500])]).map(|_| ())
            }
        };
        each_film(&db, &long(1)).expect("writes");
        let old = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
        old.table("films").and_then(|t| t.get(0)).expect("reads");
        each_film(&db, &|films, id| films.delete(id).map(|_| ())).expect("deletes");
        let before = db.stats().get(Metric::LogBytes);
        db.checkpoint().expect("a checkpoint");
        let bytes = db.stats().get(Metric::LogBytes) - before;
        assert!(bytes < 32 << 10, "{bytes} bytes of log for one checkpoint");
        drop(old);
        rest(&sim, 2000);
        each_film(&db, &long(2)).expect("writes go on");
    });
    within(&sim, Duration::from_secs(600), vec![session]);
    let check = db.check().expect("check");
    assert_eq!((check.rows, check.problems.len()), (FILMS as u64, 0), "{:?}", check.problems);
    drop(db);
}
