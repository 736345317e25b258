//! Backups beside writers of every kind. Each writer notes what it did with positions of the log;
//! the copy must hold what was done below its end, and nothing else. The seed is printed.

use crate::backup::backup_tests::{Rows, options, pad, restored_onto, rows, until};
use crate::{
    Access, ColumnSpec, ColumnType, Database, Geometry, IndexSpec, Isolation, Lsn, Metric, Options,
    TableSpec, Value, ValueRef,
};
use evenkeel_base::sync::Mutex;
use evenkeel_io::{Env, MemEnv, Rng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const WRITERS: i64 = 2;
/// Rows of each writer.
const ROWS: u64 = 400;
const BACKUPS: usize = 5;

/// The changes of a committed transaction, and its timestamp.
pub(super) type Done = (Lsn, Vec<(i64, Option<(i64, Vec<u8>)>)>);

/// A schema change: the end of the log before and behind it, the table, and whether it exists then.
struct Change {
    before: u64,
    behind: u64,
    table: String,
    /// Rows of the table; none if it was dropped.
    rows: Option<u64>,
}

pub(super) fn spec() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("a", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 1 << 24 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_a", &["a", "id"]))
}

/// Inserts, changes and deletes rows of its own; some are long, some transactions roll back.
fn write(db: &Database, number: i64, seed: u64, stop: &AtomicBool) -> Vec<Done> {
    let mut rng = Rng::new(seed ^ number as u64);
    let mut done = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        let mut changes = Vec::new();
        for _ in 0..=rng.below(6) {
            let id = rng.below(ROWS) as i64 * WRITERS + number;
            let table = txn.table("t").expect("there");
            if rng.below(4) == 0 {
                table.delete(&[ValueRef::Int(id)]).expect("deletes");
                changes.push((id, None));
                continue;
            }
            let len = match rng.below(40) {
                0 => 20_000 + rng.below(60_000),
                _ => rng.below(300),
            };
            let (a, pad) = (rng.below(1_000) as i64, pad(id + done.len() as i64, len as usize));
            let row = [ValueRef::Int(id), ValueRef::Int(a), ValueRef::Bytes(&pad)];
            table.put(&row).expect("puts");
            changes.push((id, Some((a, pad))));
        }
        if rng.below(8) == 0 {
            txn.rollback().expect("rolls back");
        } else {
            done.push((txn.commit().expect("commits"), changes));
        }
    }
    done
}

/// Makes tables and fills them at once, and drops earlier ones; adds an index to the table of the
/// writers and drops it.
fn change_schema(db: &Database, stop: &AtomicBool) -> Vec<Change> {
    let mut changes = Vec::new();
    let end = || db.info().log_end_lsn;
    let mut round = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let table = format!("loaded{round}");
        let rows = 500 + round * 10;
        db.create_table(&table, &spec()).expect("makes");
        let before = end();
        let row = |id| [Value::Int(id), Value::Int(id % 7), Value::from(pad(id, 200))];
        let loaded = db.load_table(&table, (0..rows as i64).map(row)).expect("loads");
        changes.push(Change { before, behind: end(), table, rows: Some(loaded) });
        db.add_indexes("t", &[IndexSpec::new("extra", &["a"])]).expect("builds");
        if let Some(old) = round.checked_sub(2) {
            let table = format!("loaded{old}");
            let before = end();
            db.drop_table(&table).expect("drops");
            changes.push(Change { before, behind: end(), table, rows: None });
        }
        db.drop_index("t", "extra").expect("drops");
        round += 1;
    }
    changes
}

/// The rows of the writers at a position of the log.
pub(super) fn expected(done: &[Vec<Done>], end: Lsn) -> Rows {
    let mut rows = Rows::new();
    for writer in done {
        for (_, changes) in writer.iter().take_while(|(lsn, _)| *lsn < end) {
            for (id, row) in changes {
                match row {
                    Some(row) => _ = rows.insert(*id, row.clone()),
                    None => _ = rows.remove(id),
                }
            }
        }
    }
    rows
}

fn check_schema(db: &Database, changes: &[Change], end: Lsn) {
    // What was done below the end, and what may have been.
    let mut must: BTreeMap<&str, Option<u64>> = BTreeMap::new();
    let mut may = BTreeMap::new();
    for change in changes {
        if change.behind <= end.0 {
            must.insert(&change.table, change.rows);
        } else if change.before < end.0 {
            may.insert(&*change.table, change.rows);
        }
    }
    for (table, rows) in &must {
        let found = count(db, table);
        let is_fine = found == *rows || may.get(table).is_some_and(|other| found == *other);
        assert!(is_fine, "{table} has {found:?} rows at {end}, not {rows:?}");
    }
    for table in db.tables().iter().filter(|table| table.starts_with("loaded")) {
        let known = changes.iter().find(|change| change.table == **table);
        let begun = known.is_none_or(|change| change.before < end.0 || count(db, table) == Some(0));
        assert!(begun, "{table} was filled behind {end}");
    }
}

fn count(db: &Database, table: &str) -> Option<u64> {
    db.definition(table).ok()?;
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let mut scan = txn
        .table(table)
        .and_then(|table| table.scan(.., crate::Direction::Forward))
        .expect("scans");
    let (mut rows, mut row) = (0, crate::Row::new());
    while scan.next(&mut row).expect("reads") {
        rows += 1;
    }
    Some(rows)
}

#[test]
fn a_backup_beside_writers_is_the_database_at_its_end() {
    beside_writers(false);
}

#[test]
fn a_chain_beside_writers_is_the_database_at_each_end() {
    beside_writers(true);
}

/// Takes backups beside writers, each on its own or onto the one before.
fn beside_writers(is_chain: bool) {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let geometry = Geometry {
        generation_bytes: Some(32 << 10),
        logged_value_bytes: Some(8 << 10),
        undo_bytes: Some(64 << 10),
        pool_bytes: Some(2 << 20),
        ..Geometry::default()
    };
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let options: Options = options().geometry(geometry).env(env);
    let db = Database::open_with("source", options).expect("opens");
    db.create_table("t", &spec()).expect("makes");
    let stop = AtomicBool::new(false);
    let done: Mutex<Vec<Vec<Done>>> = Mutex::default();
    let changes = Mutex::default();
    let mut backups: Vec<(Arc<dyn Env>, Lsn)> = Vec::new();
    std::thread::scope(|scope| {
        for number in 0..WRITERS {
            let (db, stop, done) = (&db, &stop, &done);
            scope.spawn(move || done.lock().push(write(db, number, seed, stop)));
        }
        scope.spawn(|| *changes.lock() = change_schema(&db, &stop));
        let get = |metric| db.stats().get(metric);
        for round in 0..BACKUPS as u64 {
            // Each begins with something to do since the one before.
            let least = (round + 1) * 2;
            until("work", || {
                get(Metric::CompactionsFinished) >= least && get(Metric::MemtableFlushes) >= least
            });
            if round % 2 == 1 {
                // The log no longer makes the pages: recovery needs their images.
                db.checkpoint().expect("flushes");
            }
            let (to, progress): (Arc<dyn Env>, _) = (Arc::new(MemEnv::new()), Default::default());
            let report = match backups.last().filter(|_| is_chain) {
                Some((base, _)) => {
                    let base = (base.clone(), "base".to_string());
                    db.backup_onto_in(base, to.clone(), "backup", &progress)
                }
                None => db.backup_in(to.clone(), "backup", &progress),
            };
            backups.push((to, report.expect("backs up").end));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (done, changes) = (done.into_inner(), changes.into_inner());
    assert!(db.stats().get(Metric::UnloggedValueBytes) > 0, "every long value was logged");
    let all: Vec<Arc<dyn Env>> = backups.iter().map(|(to, _)| to.clone()).collect();
    for (to, end) in backups {
        let copy = restored_onto(to, &all).expect("restores");
        assert!(rows(&copy) == expected(&done, end), "another table at {end}");
        check_schema(&copy, &changes, end);
    }
    assert!(rows(&db) == expected(&done, Lsn(u64::MAX)), "the database itself");
}
