//! A snapshot that is held while many transactions commit (RFC 17), in simulated time. Its memory
//! does not grow with the transactions. What it and other snapshots see does not change while rows
//! change, runs are compacted and an index is built.

use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, IndexSpec, Isolation, Metric, Options,
    Range, Result, Row, TableSpec, Txn, ValueRef,
};
use evenkeel_base::Cause;
use evenkeel_io::sim::{SimEnv, SimOptions};
use evenkeel_io::{Event, SimDisk};
use evenkeel_sim::actor::SMALL;
use std::sync::Arc;
use std::time::Duration;

const T: &str = "t";
const ROWS: i64 = 40;
const COMMITS: i64 = 12_000;
/// Transactions between two snapshots that are held.
const PERIOD: i64 = 3_000;

fn rest(sim: &SimEnv, ms: u64) {
    let never = Arc::new(Event::new());
    sim.env().wait(&never, never.now(), Some(Duration::from_millis(ms)), Cause::Idle);
}

fn table(db: &Database) {
    let int = |name| ColumnSpec::new(name, ColumnType::Int64);
    let spec = TableSpec::new().column(int("id")).column(int("a")).primary_key(&["id"]);
    db.create_table(T, &spec.index(IndexSpec::new("by_a", &["a"]))).expect("table");
}

/// One transaction: it gives a row a new value, or deletes the row and inserts it again.
fn change(db: &Database, n: i64) -> Result<()> {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    let id = n % ROWS;
    let t = txn.table(T)?;
    if n % 7 == 0 {
        assert!(t.delete(&[ValueRef::Int(id)])?);
        t.insert(&[ValueRef::Int(id), ValueRef::Int(n)])?;
    } else {
        assert!(t.update(&[ValueRef::Int(id)], &[(1, ValueRef::Int(n))])?);
    }
    txn.commit()?;
    Ok(())
}

/// The newest change of each row among the first `n` transactions.
fn expected(n: i64) -> Vec<i64> {
    let of = |id: i64| n - 1 - (n - 1 - id).rem_euclid(ROWS);
    let mut found: Vec<i64> = (0..ROWS).map(of).collect();
    found.sort_unstable();
    found
}

/// The values, by rows and by an index.
fn seen(txn: &mut Txn, index: &str) -> Result<(Vec<i64>, Vec<i64>)> {
    let (mut rows, mut entries, mut row) = (Vec::new(), Vec::new(), Row::new());
    let t = txn.table(T)?;
    let mut scan = t.scan(Range::ALL, Direction::Forward)?;
    while scan.next(&mut row)? {
        rows.push(int(row.value("a")?));
    }
    drop(scan);
    let index = t.index(index)?.keys_only();
    let mut scan = index.scan(Range::ALL, Direction::Forward)?;
    while scan.next(&mut row)? {
        entries.push(int(row.value("a")?));
    }
    rows.sort_unstable();
    Ok((rows, entries))
}

fn int(value: ValueRef<'_>) -> i64 {
    let ValueRef::Int(value) = value else { panic!("a value of another type") };
    value
}

fn holds(txn: &mut Txn, n: i64, index: &str) {
    let (rows, entries) = seen(txn, index).expect("reads");
    assert_eq!(rows, expected(n), "rows after {n}");
    assert_eq!(entries, expected(n), "entries of {index} after {n}");
}

#[test]
fn a_long_snapshot_costs_no_memory_for_each_transaction() {
    let sim = SimEnv::on(SimDisk::new(5), SimOptions::quiet(5));
    let options = Options::new().env(sim.env()).geometry(SMALL);
    let db = Database::open_with("db", options).expect("opens");
    table(&db);
    let ids = (0..ROWS).map(|id| vec![evenkeel::Value::Int(id), evenkeel::Value::Int(id)]);
    db.load_table(T, ids).expect("loads");
    let mut held: Vec<(Txn, i64)> = Vec::new();
    let mut most = 0;
    for n in ROWS..COMMITS {
        if n % PERIOD == 1_000 {
            let old = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
            old.take_snapshot().expect("snapshot");
            held.push((old, n));
        }
        change(&db, n).expect("changes");
        if n % 100 == 0 {
            rest(&sim, 50);
            most = most.max(db.stats().get(Metric::CommitTableBytes));
        }
    }
    assert_eq!(held.len(), 4);
    // A slot has eight bytes and a segment 16 slots. Slots are kept for what memtables need, and
    // one for each snapshot.
    assert!(most < 8 * COMMITS as u64 / 3, "{most} bytes");
    for (txn, n) in &mut held {
        holds(txn, *n, "by_a");
    }
    // The index becomes VALID behind all these snapshots, so only newer transactions read it. Its
    // entries are right after compactions that met timestamps of commit timestamp ranges.
    db.add_indexes(T, &[IndexSpec::new("by_a_again", &["a"])]).expect("builds");
    held.remove(2);
    held.remove(1);
    for n in COMMITS..2 * COMMITS {
        change(&db, n).expect("changes");
        if n % 100 == 0 {
            rest(&sim, 50);
        }
    }
    for (txn, n) in &mut held {
        holds(txn, *n, "by_a");
    }
    let mut young = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    holds(&mut young, 2 * COMMITS, "by_a_again");
    drop((held, young));
    let check = db.check().expect("checks");
    assert_eq!((check.rows, check.problems.len()), (ROWS as u64, 0), "{:?}", check.problems);
}
