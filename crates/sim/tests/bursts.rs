//! Many sessions insert more than flushes can follow, on a slow device, in virtual time (G1). The
//! sessions get the rate that flushes can follow, and they never all stand still for a whole flush.

use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Durability, Geometry, IndexSpec, Isolation, Metric,
    Options, TableSpec, ValueRef,
};
use evenkeel_base::sync::Mutex;
use evenkeel_io::sim::{Session, SimOptions};
use evenkeel_io::{Env, Rng, SimDisk, SimEnv};
use std::sync::Arc;

const SESSIONS: u64 = 64;
const INDEXES: usize = 12;
/// Far more than a beat of a flush.
const GENERATION: u64 = 16 << 20;
const BYTES_PER_SEC: u64 = 8_000_000;
const MS: u64 = 1_000_000;
const BATCH: u64 = 10;

/// A table with rows of 80 bytes and an entry of the same size in each of many indexes. Commits do
/// not wait for a sync, so the sessions wait for the buffer of the log at first, then for flushes.
fn world(seed: u64) -> (SimEnv, Arc<Database>) {
    let options = SimOptions { latency: true, ..SimOptions::quiet(seed) };
    let sim = SimEnv::on(SimDisk::new(seed), options);
    let geometry = Geometry { generation_bytes: Some(GENERATION), ..Geometry::default() };
    let mut options = Options::new().env(sim.env()).geometry(geometry);
    options.durability = Durability::Lazy;
    let db = Database::open_with("db", options).expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 100 }))
        .primary_key(&["id"]);
    let index = |i| IndexSpec::new(&format!("by_pad_{i}"), &["pad"]);
    let spec = (0..INDEXES).map(index).fold(spec, TableSpec::index);
    db.create_table("t", &spec).expect("creates");
    (sim, Arc::new(db))
}

/// Runs sessions that each insert this many rows as fast as they can. Returns the times at which
/// rows were inserted.
fn insert(sim: &SimEnv, db: &Arc<Database>, rows: u64) -> Vec<u64> {
    let ended = Arc::new(Mutex::new(Vec::new()));
    let session = |session: u64| {
        let (sim, db, ended) = (sim.clone(), db.clone(), ended.clone());
        Box::new(move || {
            let mut rng = Rng::new(session);
            for batch in 0..rows / BATCH {
                let begun = db.begin(Isolation::ReadCommitted, Access::ReadWrite);
                let txn = begun.expect("begins");
                let table = txn.table("t").expect("table");
                for row in 0..BATCH {
                    let id = ((session << 32) + batch * BATCH + row) as i64;
                    let pad: Vec<u8> = (0..8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
                    let row = [ValueRef::Int(id), ValueRef::Bytes(&pad)];
                    table.insert(&row).expect("inserts");
                    ended.lock().push(sim.now_ns());
                }
                txn.commit().expect("commits");
            }
        }) as Session
    };
    sim.run((0..SESSIONS).map(session).collect());
    let mut ended = std::mem::take(&mut *ended.lock());
    ended.sort_unstable();
    ended
}

/// The longest time in which no session inserted a row, and the fewest rows of a whole second from
/// the fourth on.
fn evenness(begun: u64, ended: &[u64]) -> (u64, usize) {
    let gap = ended.windows(2).map(|pair| pair[1] - pair[0]).max().expect("some") / MS;
    let mut rows = Vec::new();
    for at in ended {
        let second = ((at - begun) / (1000 * MS)) as usize;
        rows.resize(rows.len().max(second + 1), 0);
        rows[second] += 1;
    }
    rows.pop();
    (gap, rows.into_iter().skip(3).min().expect("seconds"))
}

/// Runs twice as long, so all indexes have too many runs at the same time. Before the rate of
/// ingest followed from what all their compactions owe together
/// (`docs/rfcs/0030-ingest-rate-from-owed-compaction.md`), all sessions stood still for up to 3.6
/// s.
#[test]
fn compactions_due_together_slow_ingest_and_do_not_stop_it() {
    let (sim, db) = world(5);
    sim.set_device(BYTES_PER_SEC);
    let begun = sim.now_ns();
    let ended = insert(&sim, &db, 3_000);
    sim.set_device(0);
    let (gap, least) = evenness(begun, &ended);
    let took = (ended.last().expect("some") - begun) / MS;
    let rate = ended.len() as u64 * 1000 / took;
    let stats = db.stats();
    let debt =
        stats.stalls.iter().find(|(cause, _)| *cause == "compaction_debt").expect("a cause").1;
    println!("{took} ms, {rate} a second, {least} in the least, longest gap {gap} ms, {debt:?}");
    // Compactions are far behind, and ingest has the rate that they can follow.
    assert!(
        stats.get(Metric::CompactionsFinished) > 2 * INDEXES as u64
            && debt.over_1ms > 100 * SESSIONS
    );
    assert!(gap < 400, "nobody inserts for {gap} ms");
    assert!(least as u64 * 5 > rate, "{least} rows in a second of {rate}");
    Arc::into_inner(db).expect("the sessions have ended").close().expect("closes");
    sim.stop();
}

#[test]
fn writers_faster_than_a_flush_get_its_rate() {
    let (sim, db) = world(5);
    sim.set_device(BYTES_PER_SEC);
    let begun = sim.now_ns();
    let ended = insert(&sim, &db, 1_500);
    sim.set_device(0);
    let stats = db.stats();
    let flushes = stats.get(Metric::MemtableFlushes);
    let of = |name| stats.stalls.iter().find(|(cause, _)| *cause == name).expect("a cause").1;
    let waits = ["log_space", "memtable_full"].map(of);
    let (gap, _) = evenness(begun, &ended);
    let took = (ended.last().expect("some") - begun) / MS;
    println!("{took} ms, {flushes} flushes, longest gap {gap} ms, log and memtables {waits:?}");
    // All sessions wait for the log's buffer and for flushes, each of which takes seconds.
    assert!(flushes >= 5 && took / flushes > 2_000);
    assert!(waits.iter().all(|waits| waits.over_1ms > 10 * SESSIONS), "{waits:?}");
    assert!(gap < 400, "nobody inserts for {gap} ms");
    Arc::into_inner(db).expect("the sessions have ended").close().expect("closes");
    sim.stop();
}
