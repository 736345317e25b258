//! Chunked tables through the library: a crash at each change of the disk, reads and writes of all
//! kinds, figures, and the superblock.

use evenkeel::ValueRef::{Float, Int};
use evenkeel::{
    Access, Chunking, ColumnSpec, ColumnType, Database, Direction, IndexSpec, Isolation, LockWait,
    Metric, Options, Row, SchemaWait, TableSpec, TimeUnit, Txn, Value, exactly,
};
use evenkeel_base::sync::Mutex;
use evenkeel_io::sim::{Explore, SimOptions};
use evenkeel_io::{Env, SimDisk, SimEnv};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const HOUR: i64 = 3_600;
/// 2024-01-01.
const START: i64 = 1_704_067_200;

/// (device int, at int, value float), clustered on (device, at); by_at.
fn readings(slots: u32) -> TableSpec {
    let by_hour = Chunking::by("at", Duration::from_secs(HOUR as u64)).unit(TimeUnit::Seconds);
    let by_hour = if slots > 1 { by_hour.space("device", slots) } else { by_hour };
    TableSpec::new()
        .column(ColumnSpec::new("device", ColumnType::Int32))
        .column(ColumnSpec::new("at", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Float64))
        .primary_key(&["device", "at"])
        .index(IndexSpec::new("by_at", &["at"]))
        .chunked(by_hour)
}

fn open(env: Arc<dyn Env>) -> Database {
    Database::open_with("db", Options::new().env(env)).expect("opens")
}

fn begin(db: &Database, isolation: Isolation) -> Txn {
    db.begin(isolation, Access::ReadWrite).expect("begins")
}

/// What a script has promised: the rows by hour and device with their values, and the drop of the
/// hours before 2.
#[derive(Clone, Default)]
struct Notes {
    rows: BTreeMap<(i64, i64), i64>,
    /// Being committed.
    doubtful: BTreeMap<(i64, i64), i64>,
    drop_begun: bool,
    drop_done: bool,
}

fn insert(db: &Database, notes: &Mutex<Notes>, rows: &[(i64, i64, i64)]) -> evenkeel::Result<()> {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    for (hour, device, value) in rows {
        let row = [Int(*device), Int(START + hour * HOUR), Float(*value as f64)];
        txn.table("r")?.insert(&row)?;
    }
    notes
        .lock()
        .doubtful
        .extend(rows.iter().map(|(hour, device, value)| ((*hour, *device), *value)));
    txn.commit()?;
    let mut notes = notes.lock();
    let done = std::mem::take(&mut notes.doubtful);
    notes.rows.extend(done);
    Ok(())
}

/// A disk with a table of three hours of two devices.
fn filled() -> SimDisk {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = open(sim.env());
    db.create_table("r", &readings(1)).expect("creates");
    let notes = Mutex::new(Notes::default());
    for hour in 0..3 {
        insert(&db, &notes, &[(hour, 1, hour), (hour, 2, hour)]).expect("inserts");
    }
    db.close().expect("closes");
    sim.stop();
    sim.disk().clone()
}

fn work(sim: &SimEnv, notes: &Mutex<Notes>) -> evenkeel::Result<()> {
    let db = Database::open_with("db", Options::new().env(sim.env()))?;
    // Two chunks in one transaction, beside one that stays open and has made a third.
    let open = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    open.table("r")?.insert(&[Int(3), Int(START + 9 * HOUR), Float(0.0)])?;
    insert(&db, notes, &[(4, 1, 4), (5, 1, 5)])?;
    notes.lock().drop_begun = true;
    let done = db.drop_chunks("r", START + 2 * HOUR, &SchemaWait::default())?;
    assert_eq!((done.dropped.len(), done.kept.len()), (2, 0));
    notes.lock().drop_done = true;
    // The dropped hours come back, in new chunks.
    insert(&db, notes, &[(0, 1, 70), (6, 2, 6)])?;
    db.checkpoint()?;
    drop(open);
    db.close()
}

fn check(sim: &SimEnv, notes: &Notes) -> Result<(), String> {
    let db = Database::open_with("db", Options::new().env(sim.env())).map_err(|e| e.to_string())?;
    let problems = db.check().map_err(|e| e.to_string())?.problems;
    if !problems.is_empty() {
        return Err(format!("{problems:?}"));
    }
    let mut found = BTreeMap::new();
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    for row in txn.table("r").expect("there").scan(.., Direction::Forward).expect("scans") {
        let row = row.map_err(|e| e.to_string())?;
        let hour = (row.get::<i64>("at").expect("a time") - START) / HOUR;
        let device: i64 = row.get("device").expect("a device");
        found.insert((hour, device), row.get::<f64>("value").expect("a value") as i64);
    }
    let first: BTreeMap<_, _> =
        (0..3).flat_map(|hour| [((hour, 1), hour), ((hour, 2), hour)]).collect();
    let is_old = |at: &(i64, i64)| at.0 < 2;
    let dropped: BTreeMap<_, _> =
        first.iter().filter(|(at, _)| !is_old(at)).map(|(at, v)| (*at, *v)).collect();
    // The drop is whole or has not happened; so is the commit in doubt.
    let bases = match (notes.drop_begun, notes.drop_done) {
        (false, _) => vec![&first],
        (true, false) => vec![&first, &dropped],
        (true, true) => vec![&dropped],
    };
    let matches = bases.into_iter().any(|base| {
        let mut sure = base.clone();
        sure.extend(&notes.rows);
        let mut all = sure.clone();
        all.extend(&notes.doubtful);
        found == sure || found == all
    });
    if !matches {
        return Err(format!("found {found:?}, promised {:?}", notes.rows));
    }
    // The database goes on: dropped chunks are made again.
    insert(&db, &Mutex::new(Notes::default()), &[(1, 9, 9), (8, 9, 9)])
        .map_err(|e| e.to_string())?;
    drop(txn);
    db.close().map_err(|e| e.to_string())
}

#[test]
fn a_crash_at_any_step_loses_no_row_and_no_drop() {
    let start = filled();
    let mut states = 0;
    for seed in 0..4 {
        let explored = Explore::nth(seed, 4).run(
            &start,
            |sim, notes: &Arc<Mutex<Notes>>| match work(sim, notes) {
                Err(error) if !sim.is_crashed() => panic!("{error}"),
                _ => {}
            },
            |sim, notes, which| {
                let notes = notes.lock().clone();
                if let Err(why) = check(sim, &notes) {
                    panic!("{which}: {why}");
                }
            },
        );
        states += explored.states.len();
    }
    println!("{states} different disks");
    assert!(states > 50, "{states}");
}

/// What the second script has promised.
#[derive(Clone, Default)]
struct Prepared {
    begun: bool,
    done: bool,
    drop_done: bool,
    committed: bool,
    second_drop_begun: bool,
    second_drop_done: bool,
}

/// A prepared transaction keeps its chunk from a drop until it is decided.
fn work_prepared(sim: &SimEnv, notes: &Mutex<Prepared>) -> evenkeel::Result<()> {
    let db = Database::open_with("db", Options::new().env(sim.env()))?;
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    txn.table("r")?.insert(&[Int(8), Int(START + HOUR), Float(8.0)])?;
    notes.lock().begun = true;
    txn.prepare(b"x")?;
    notes.lock().done = true;
    let wait = SchemaWait::default();
    let done = db.drop_chunks("r", START + 2 * HOUR, &wait)?;
    assert_eq!((done.dropped.len(), done.kept.len()), (1, 1));
    notes.lock().drop_done = true;
    db.checkpoint()?;
    db.commit_prepared(b"x")?;
    notes.lock().committed = true;
    notes.lock().second_drop_begun = true;
    let done = db.drop_chunks("r", START + 2 * HOUR, &wait)?;
    assert_eq!((done.dropped.len(), done.kept.len()), (1, 0));
    notes.lock().second_drop_done = true;
    db.close()
}

fn devices_of_hour_1(db: &Database) -> Vec<i64> {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let table = txn.table("r").expect("there");
    let range = START + HOUR..START + 2 * HOUR;
    let scan = table.index("by_at").expect("there").scan(range, Direction::Forward);
    let devices: evenkeel::Result<Vec<i64>> =
        scan.expect("scans").map(|row| row?.get("device")).collect();
    devices.expect("reads")
}

fn check_prepared(sim: &SimEnv, notes: &Prepared) -> Result<(), String> {
    let db = Database::open_with("db", Options::new().env(sim.env())).map_err(|e| e.to_string())?;
    let problems = db.check().map_err(|e| e.to_string())?.problems;
    if !problems.is_empty() {
        return Err(format!("{problems:?}"));
    }
    let is_prepared = db.prepared() == [b"x".to_vec()];
    if is_prepared && (!notes.begun || notes.committed) {
        return Err("prepared although it is decided".into());
    }
    let wait = SchemaWait::default();
    if is_prepared {
        if devices_of_hour_1(&db) != [1, 2] {
            return Err("the chunk of a prepared transaction is gone".into());
        }
        let done = db.drop_chunks("r", START + 2 * HOUR, &wait).map_err(|e| e.to_string())?;
        if done.kept.len() != 1 || done.kept[0].txn == 0 {
            return Err(format!("a drop beside a prepared transaction: {done:?}"));
        }
        db.commit_prepared(b"x").map_err(|e| e.to_string())?;
        if devices_of_hour_1(&db) != [1, 2, 8] {
            return Err("the row of a prepared transaction is lost".into());
        }
    } else {
        let found = devices_of_hour_1(&db);
        let fits = match notes {
            Prepared { second_drop_done: true, .. } => found.is_empty(),
            Prepared { second_drop_begun: true, .. } => found.is_empty() || found == [1, 2, 8],
            // Its commit may or may not have happened.
            Prepared { done: true, .. } => found == [1, 2, 8],
            _ => found == [1, 2],
        };
        if !fits {
            return Err(format!("hour 1 has the devices {found:?}"));
        }
    }
    let first = db.chunks("r").map_err(|e| e.to_string())?[0].from;
    if notes.drop_done && first == Some(START) {
        return Err("a drop that was acknowledged is undone".into());
    }
    db.drop_chunks("r", START + 3 * HOUR, &wait).map_err(|e| e.to_string())?;
    match db.chunks("r").map_err(|e| e.to_string())?.is_empty() {
        true => db.close().map_err(|e| e.to_string()),
        false => Err("a chunk is kept for nobody".into()),
    }
}

#[test]
fn a_crash_at_any_step_keeps_the_chunk_of_a_prepared_transaction() {
    let start = filled();
    let mut states = 0;
    for seed in 0..4 {
        let explored = Explore::nth(seed, 4).run(
            &start,
            |sim, notes: &Arc<Mutex<Prepared>>| match work_prepared(sim, notes) {
                Err(error) if !sim.is_crashed() => panic!("{error}"),
                _ => {}
            },
            |sim, notes, which| {
                let notes = notes.lock().clone();
                if let Err(why) = check_prepared(sim, &notes) {
                    panic!("{which}: {why}");
                }
            },
        );
        states += explored.states.len();
    }
    println!("{states} different disks");
    assert!(states > 30, "{states}");
}

/// 100 rows of each of four devices, one each ten minutes.
fn loaded() -> Database {
    let db = Database::open_with("/chunks", Options::in_memory()).expect("opens");
    assert_eq!(db.info().features[2], 0);
    db.create_table("r", &readings(3)).expect("creates");
    assert_eq!(db.info().features[2], 4, "older versions are kept out");
    let txn = begin(&db, Isolation::ReadCommitted);
    let at = |n: i64| Value::Int(START + 600 * n);
    let rows = (0..4i64)
        .flat_map(|device| (0..100).map(move |n| [Value::Int(device), at(n), Value::Float(0.5)]));
    let loaded = txn.table("r").expect("there").bulk_load(rows);
    assert_eq!(loaded.expect("loads"), 400);
    txn.commit().expect("commits");
    db
}

const LEVELS: [Isolation; 3] =
    [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];

#[test]
fn a_chunked_table_is_read_like_others() {
    let db = loaded();
    let spans = 100 * 600 / HOUR;
    let chunks = db.chunks("r").expect("lists");
    assert!(chunks.len() as i64 > spans && chunks.iter().map(|c| c.rows).sum::<u64>() == 400);
    let info = db.table_info("r").expect("informs");
    let stats = db.table_stats().expect("figures");
    assert_eq!((info.rows_estimate, stats[0].rows_estimate), (400, 400));
    for isolation in LEVELS {
        let txn = begin(&db, isolation);
        let (table, mut row) = (txn.table("r").expect("there"), Row::new());
        let count = |scan: evenkeel::Result<evenkeel::Scan>| scan.and_then(|s| s.count());
        assert_eq!(count(table.scan(.., Direction::Forward)).expect("counts"), 400);
        assert_eq!(count(table.scan(exactly(2), Direction::Backward)).expect("counts"), 100);
        let by_at = table.index("by_at").expect("there");
        let range = START + 600..START + 1800;
        let at: evenkeel::Result<Vec<i64>> =
            by_at.scan(range, Direction::Forward).expect("scans").map(|r| r?.get("at")).collect();
        assert_eq!(at.expect("times"), [[START + 600; 4], [START + 1200; 4]].concat());
        let keys = by_at.clone().keys_only();
        let mut scan = keys.scan(START + 600.., Direction::Backward).expect("scans");
        assert!(scan.next(&mut row).expect("reads"));
        let mut whole = Row::new();
        assert!(scan.fetch(&row, &mut whole).expect("fetches"));
        assert_eq!(whole.get::<f64>("value").expect("a value"), 0.5);
        drop(scan);
        assert_eq!(by_at.count_estimate(exactly(START)).expect("estimates"), 4);
        assert!(table.count_estimate(exactly(1)).expect("estimates") > 0);
        let first = table.first().expect("reads").expect("a row");
        assert_eq!(first.get::<i64>("at").expect("a time"), START);
    }
    let stats = db.stats();
    assert!(stats.get(Metric::ChunksOpened) > 0 && stats.get(Metric::ChunksPrunedTime) > 0);
}

#[test]
fn a_chunked_table_is_written_like_others() {
    let db = loaded();
    let later = START + 50 * 86_400;
    for isolation in LEVELS {
        let txn = begin(&db, isolation);
        let (table, mut row) = (txn.table("r").expect("there"), Row::new());
        assert!(table.update((1, START), &[("at", START + 1)]).expect("moves within a chunk"));
        assert!(table.update((1, START + 1), &[("at", later)]).expect("moves to another one"));
        assert!(table.get_for_update((1, later), LockWait::Wait, &mut row).expect("locks"));
        assert!(table.delete_read(&row).expect("deletes"));
        assert!(table.put((1, START, 1.5)).expect("puts"), "inserted");
        let mut seen = 0;
        let mut each = |row: &Row| {
            seen += 1;
            Ok(row.get::<i64>("device")? == 3)
        };
        let scan = table.scan_for_update(exactly(3), Direction::Forward, LockWait::Wait, &mut each);
        scan.expect("locks");
        assert_eq!(seen, 100);
        txn.rollback().expect("rolls back");
    }
    let before = db.chunks("r").expect("lists").len() as u64;
    let done = db.drop_chunks("r", i64::MAX, &SchemaWait::default()).expect("drops");
    assert_eq!(done.dropped.len() as u64, before);
    assert_eq!(db.stats().get(Metric::ChunksDropped), before);
    assert_eq!(db.check().expect("checks").problems, Vec::<String>::new());
}
