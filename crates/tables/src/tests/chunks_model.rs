//! Random transactions on a chunked table and on a twin without chunks: every operation ends alike,
//! and every transaction and every kept snapshot reads the same rows in every order. A drop of
//! chunks is a delete of the same rows in the twin.

use super::chunks::{drop_before, readings, rows_by};
use super::*;
use crate::{Chunking, TimeUnit};
use ValueRef::{Int, Null};
use evenkeel_io::Rng;

const WIDTH: i64 = 100;
const TO: i64 = 1_000;

type Rows = Vec<(i64, i64, i64)>;

fn make(db: &Db, slots: u32, primary: &[&str]) -> [Arc<Table>; 2] {
    let width = Duration::from_secs(WIDTH as u64);
    let by = Chunking::by("ts", width).unit(TimeUnit::Seconds).between(0, TO);
    let by = if slots > 1 { by.space("dev", slots) } else { by };
    let spec = readings(by, primary);
    let twin = TableSpec { chunking: None, ..spec.clone() };
    [db.store.create_table("r", &spec).unwrap(), db.store.create_table("twin", &twin).unwrap()]
}

fn outcome<T>(done: Result<T>) -> std::result::Result<T, evenkeel_base::Code> {
    done.map_err(|error| error.code())
}

/// The primary key of a row, in the order of the key.
fn key(table: &Table, dev: i64, ts: i64) -> [ValueRef<'static>; 2] {
    let first = table.layout().key[0].column;
    if first == 0 { [Int(dev), Int(ts)] } else { [Int(ts), Int(dev)] }
}

fn time(rng: &mut Rng) -> i64 {
    rng.below(TO as u64 + 4 * WIDTH as u64) as i64 - 2 * WIDTH
}

fn step(rng: &mut Rng, txn: &mut TableTxn, tables: &[Arc<Table>; 2]) {
    let (dev, ts, v) = (rng.below(5) as i64, time(rng), rng.below(30) as i64);
    let (to, kind) = (time(rng), rng.below(9));
    let row = [Int(dev), Int(ts), Int(v), Null];
    let many: Vec<[ValueRef<'_>; 4]> =
        (0..8).map(|n| [Int((dev + n) % 5), Int(ts + 37 * n), Int(v), Null]).collect();
    let done: Vec<_> = tables
        .iter()
        .map(|table| {
            let key = key(table, dev, ts);
            let mut found = Row::new();
            outcome(match kind {
                0 | 1 => txn.insert(table, &row).map(|_| true),
                2 => txn.insert_or_ignore(table, &row),
                3 => txn.upsert(table, &row, &[(2, Int(v + 1))]),
                4 => txn.update(table, &key, &[(2, Int(v))]),
                5 => txn.update(table, &key, &[(1, Int(to))]),
                6 => txn.delete(table, &key),
                7 => txn.insert_many(table, many.iter().map(|row| &row[..])).map(|_| true),
                _ => txn.get(table, &key, &mut found).inspect(|there| {
                    assert!(!there || found.get::<i64>("ts").unwrap() == ts);
                }),
            })
        })
        .collect();
    assert_eq!(done[0], done[1], "operation {kind} of ({dev}, {ts})");
}

/// Rows of the twin.
fn plain(
    txn: &mut TableTxn,
    twin: &Arc<Table>,
    index: Option<(usize, bool)>,
    range: Range<'_>,
    direction: Direction,
) -> Rows {
    let (mut row, mut rows) = (Row::new(), Vec::new());
    let known = |row: &Row, at: usize| row.get::<i64>(at).unwrap_or(i64::MIN);
    let take = |row: &Row| (known(row, 0), known(row, 1), known(row, 2));
    match index {
        None => {
            let mut scan = txn.scan(twin, range, direction).unwrap();
            while scan.next(&mut row).unwrap() {
                rows.push(take(&row));
            }
        }
        Some((index, keys_only)) => {
            let mut scan = txn.index_scan(twin, index, range, direction, keys_only).unwrap();
            while scan.next(&mut row).unwrap() {
                rows.push(take(&row));
            }
        }
    }
    rows
}

fn compare(rng: &mut Rng, txn: &mut TableTxn, tables: &[Arc<Table>; 2]) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    for index in [None, Some((0, false)), Some((1, false)), Some((1, true)), Some((2, false))] {
        for direction in [Direction::Forward, Direction::Backward] {
            let value = |rng: &mut Rng| match rng.below(2) {
                0 => Int(rng.below(6) as i64),
                _ => Int(time(rng)),
            };
            let (a, b) = ([value(rng), value(rng)], [value(rng), value(rng)]);
            let b = if rng.below(2) == 0 { [a[0], b[1]] } else { b };
            let (la, lb) = (rng.below(3) as usize, rng.below(3) as usize);
            let bound = |rng: &mut Rng, values| match rng.below(3) {
                0 => Unbounded,
                1 => Included(values),
                _ => Excluded(values),
            };
            let range = Range { lower: bound(rng, &a[..la]), upper: bound(rng, &b[..lb]) };
            for range in [Range::ALL, range] {
                let found = rows_by(txn, &tables[0], index, range, direction);
                let expected = plain(txn, &tables[1], index, range, direction);
                assert_eq!(found, expected, "{index:?} {range:?} {direction:?}");
                let scan = txn.chunk_scan(&tables[0], index, range, direction).unwrap();
                assert_eq!(scan.count().unwrap(), expected.len() as u64);
            }
        }
    }
}

/// Drops chunks, and deletes their rows from the twin.
fn drop_both(db: &Db, rng: &mut Rng, tables: &[Arc<Table>; 2]) {
    let before = time(rng);
    let done = drop_before(db, before);
    assert_eq!(done.kept, []);
    let mut txn = db.begin();
    for (dev, ts, _) in plain(&mut txn, &tables[1], None, Range::ALL, Direction::Forward) {
        let end = if ts < 0 { 0 } else { (ts / WIDTH + 1) * WIDTH };
        if end <= before && ts < TO {
            assert!(txn.delete(&tables[1], &key(&tables[1], dev, ts)).unwrap());
        }
    }
    commit(txn);
}

fn run(seed: u64, transactions: u64, slots: u32, primary: &[&str]) {
    println!("seed {seed}, {slots} slots, clustered on {primary:?}");
    let mut rng = Rng::new(seed);
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let mut db = Db::create(env.clone(), SMALL);
    let root = db.store.catalog_root();
    let mut tables = make(&db, slots, primary);
    let mut history: Vec<(TableTxn, Rows)> = Vec::new();
    for _ in 0..transactions {
        let mut txn = db.begin();
        for _ in 0..rng.below(20) {
            match rng.below(15) {
                0 => txn.savepoint("s").unwrap(),
                1 => drop(txn.rollback_to("s")),
                _ => step(&mut rng, &mut txn, &tables),
            }
        }
        compare(&mut rng, &mut txn, &tables);
        match rng.below(4) {
            0 => txn.rollback().unwrap(),
            _ => drop(commit(txn)),
        }
        if rng.below(4) == 0 {
            drop_both(&db, &mut rng, &tables);
        }
        if rng.below(3) == 0 {
            let mut txn = db.begin();
            let seen = rows_by(&mut txn, &tables[0], None, Range::ALL, Direction::Forward);
            history.push((txn, seen));
        }
        for (txn, seen) in &mut history {
            let now = rows_by(txn, &tables[0], None, Range::ALL, Direction::Forward);
            assert_eq!(now, *seen, "as of an old snapshot");
            compare(&mut rng, txn, &tables);
        }
        if history.len() > 3 {
            history.remove(rng.below(4) as usize);
        }
        if rng.below(12) == 0 {
            history.clear();
            drop((tables, db));
            db = Db::open(env.clone(), SMALL, root);
            db.store.remove_orphans().unwrap();
            tables = ["r", "twin"].map(|name| db.store.table(name).unwrap());
        }
    }
    drop(history);
    for name in ["r", "twin"] {
        assert_eq!(db.store.check_table(name).unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_chunked_table_equals_its_twin() {
    run(1, 60, 1, &["dev", "ts"]);
    run(2, 60, 3, &["dev", "ts"]);
    run(3, 60, 1, &["ts desc", "dev"]);
    run(4, 60, 4, &["ts", "dev"]);
}
