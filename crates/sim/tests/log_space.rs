//! Log space: whoever waits for it has somebody who makes progress for it, in simulated time, with
//! a log far smaller than what is written.

use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Geometry, IndexSpec, Isolation, Options, Result,
    TableSpec, ValueRef,
};
use evenkeel_base::Cause;
use evenkeel_io::sim::{Session, SimEnv};
use evenkeel_io::{Event, SimDisk};
use evenkeel_sim::actor::SMALL;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn rest(sim: &SimEnv, ms: u64) {
    let never = Arc::new(Event::new());
    sim.env().wait(&never, never.now(), Some(Duration::from_millis(ms)), Cause::Idle);
}

/// Runs sessions that must all be over within `limit` of simulated time; else the machine crashes
/// and the test fails instead of hanging.
fn within(sim: &SimEnv, limit: Duration, mut sessions: Vec<Session>) {
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(sessions.len()));
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

/// A value of four times the log. No operation comes that would hand the generation over that the
/// catalog rows went into: it must not hold the log.
#[test]
fn a_stream_longer_than_the_log_goes_through() {
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
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
    let mut films = txn.table("films")?;
    let mut film = films.large_value()?;
    (0..1000).for_each(|n| film.write_all(&part(n)).expect("writes"));
    let film = film.finish()?;
    films.insert_large(&[1i64.into(), ValueRef::Null], vec![(1, film)])?;
    txn.commit()?;
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    let row = txn.table("films")?.get(&[1i64.into()])?.expect("a row");
    let mut reader = row.open_large(1)?;
    let mut bytes = vec![0; 4000];
    for n in 0..1000 {
        reader.read_exact(&mut bytes).expect("reads");
        assert!(bytes == part(n), "part {n}");
    }
    Ok(())
}

/// Updates all over a table several times the pool, from three sessions: dirty pages everywhere,
/// the log turns over many times, nobody waits long for it.
#[test]
fn updates_of_many_pages_keep_going() {
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
            let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
            let mut t = txn.table("t")?;
            for i in 0..10 {
                let id = (batch * 10 + i) * 7919 % 200 * 3 + me;
                let pad = [round as u8; 700];
                t.upsert(&[id.into(), (round * 1000 + id).into(), ValueRef::Bytes(&pad)], &[])?;
            }
            txn.commit()?;
        }
    }
    Ok(())
}
