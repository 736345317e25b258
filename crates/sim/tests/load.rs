//! Pages whose content is not in the log (E3). A load of a table is crashed at each change of the
//! disk: afterwards the table holds all rows or none, and all rows once the load has returned.
//! Damaged pages of a load and of a long value are found although replay visits them.

use evenkeel::{Access, Database, Error, Geometry, Isolation, Result, Value};
use evenkeel_base::sync::Mutex;
use evenkeel_io::sim::{CrashPolicy, Explore, SimOptions};
use evenkeel_io::{SimDisk, SimEnv};
use evenkeel_sim::actor::{Actor, SMALL, open};
use evenkeel_sim::model::Model;
use evenkeel_sim::values::table_spec;
use std::sync::Arc;

const T: &str = "num0";
const ROWS: i64 = 600;

fn rows() -> impl Iterator<Item = Vec<Value>> {
    (0..ROWS).map(|id| {
        let text = "x".repeat((id % 90) as usize);
        vec![Value::Int(id), Value::Int(id % 7), Value::Text(text), Value::Int(id)]
    })
}

/// A disk with an empty table.
fn base() -> SimDisk {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = open(&sim, SMALL).expect("create");
    db.create_table(T, &table_spec(T)).expect("table");
    db.close().expect("close");
    let disk = sim.disk().crash(CrashPolicy::KeepAll, 1);
    sim.disk().crash_now();
    sim.stop();
    disk
}

fn count(db: &Database) -> Result<u64> {
    let check = db.check()?;
    match check.problems.is_empty() {
        true => Ok(check.rows),
        false => Err(Error::internal(format!("{:?}", check.problems))),
    }
}

#[test]
fn a_load_survives_a_crash_whole_or_not_at_all() {
    let start = base();
    let (mut full, mut none) = (0, 0);
    let counts = Mutex::new((&mut full, &mut none));
    let explored = Explore { rounds: 2, ..Explore::new(3) }.run(
        &start,
        |sim, loaded: &Arc<Mutex<bool>>| {
            let run = || -> Result<()> {
                let db = open(sim, SMALL)?;
                assert_eq!(db.load_table(T, rows())?, ROWS as u64);
                *loaded.lock() = true;
                db.close()
            };
            match run() {
                Err(error) if !sim.is_crashed() => panic!("{error}"),
                _ => {}
            }
        },
        |sim, loaded, which| {
            let found = open(sim, SMALL).and_then(|db| count(&db)).unwrap_or_else(|error| {
                panic!("{which}: {error}");
            });
            let mut counts = counts.lock();
            match found {
                0 if !*loaded.lock() => *counts.1 += 1,
                _ => {
                    assert_eq!(found, ROWS as u64, "{which}");
                    *counts.0 += 1;
                }
            }
        },
    );
    println!(
        "{} points, {} states; {full} loaded, {none} not",
        explored.points,
        explored.states.len()
    );
    assert!(explored.points > 20 && full > 0 && none > 0);
}

/// Pages of a load are not in the log (E3): if replay visits such a page and its image is bad, that
/// is an error, not an empty page with which redo begins.
#[test]
fn a_damaged_page_of_a_load_is_an_error() {
    let sim = SimEnv::on(base(), SimOptions::quiet(2));
    let db = open(&sim, SMALL).expect("open");
    assert_eq!(db.load_table(T, rows()).expect("loads"), ROWS as u64);
    sim.disk().crash_now();
    let loaded = sim.disk().crash(CrashPolicy::LoseAll, 2);
    std::mem::forget(db);
    sim.stop();
    let refused = damage_each_page(&loaded, SMALL, |db| {
        assert_eq!(count(db)?, ROWS as u64);
        Ok(())
    });
    assert!(refused > 10, "{refused} pages refused");
}

/// The same for the pages of a long value that are not logged.
#[test]
fn a_damaged_page_of_a_long_value_is_an_error() {
    let geometry = Geometry { logged_value_bytes: Some(8 << 10), ..SMALL };
    let sim = SimEnv::on(base(), SimOptions::quiet(2));
    let model = Mutex::new(Model::default());
    let mut actor = Actor::new(open(&sim, geometry).expect("open"), &model);
    actor.put(T, 1, 1, 20, Some(1)).expect("puts");
    actor.stream(T, 1, 100_000).expect("streams");
    actor.commit().expect("commits");
    let kept = actor.db.clone();
    sim.disk().crash_now();
    let written = sim.disk().crash(CrashPolicy::LoseAll, 2);
    std::mem::forget((kept, actor));
    sim.stop();
    let refused = damage_each_page(&written, geometry, |db| {
        let check = db.check()?;
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
        let row = txn.table(T)?.get(1)?.expect("a row that was committed");
        let text = row.value("b")?.to_owned();
        assert!(matches!(&text, Value::Text(text) if text.len() == 100_000), "another value");
        match check.problems.first() {
            Some(problem) => Err(Error::internal(problem)),
            None => Ok(()),
        }
    });
    assert!((15..40).contains(&refused), "{refused} pages refused");
}

/// Damages each page in turn, then opens and checks the database. Returns the number of pages whose
/// damage makes that fail; the damage of any other page must have no effect.
fn damage_each_page(
    loaded: &SimDisk,
    geometry: Geometry,
    look: impl Fn(&Database) -> Result<()>,
) -> usize {
    let (mut refused, mut harmless) = (0, 0);
    let pages = loaded.paths().into_iter().find(|p| p.contains("pages/")).expect("pages");
    let content = loaded.content(&pages).expect("content");
    for (page, bytes) in content.chunks(4096).enumerate() {
        if bytes.iter().all(|b| *b == 0) {
            continue;
        }
        let disk = loaded.crash(CrashPolicy::KeepAll, 2);
        disk.corrupt(&pages, page as u64 * 4096, &[0; 4096]);
        let sim = SimEnv::on(disk, SimOptions::quiet(3));
        match open(&sim, geometry).and_then(|db| look(&db)) {
            Ok(()) => harmless += 1,
            Err(error) => {
                assert_eq!(error.kind(), evenkeel::Kind::Corrupt, "page {page}: {error}");
                refused += 1;
            }
        }
        sim.disk().crash_now();
        sim.stop();
    }
    println!("{refused} pages refused, {harmless} written again by redo");
    refused
}
