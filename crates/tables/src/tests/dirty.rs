//! READ UNCOMMITTED by every index: the same rows as the table, each found once, whatever open
//! transactions have changed and rolled back; and READ COMMITTED within one statement.

use super::*;
use evenkeel_base::Kind;
use evenkeel_io::Rng;
use std::collections::BTreeMap;

const WRITERS: i64 = 3;
const KEYS: u64 = 8;

type Rows = BTreeMap<i64, Vec<Value>>;

fn random_row(rng: &mut Rng, id: i64) -> [ValueRef<'static>; 4] {
    let b = [None, Some("x"), Some("yy")][rng.below(3) as usize];
    // Each writer has its own unique keys: writers do not wait for each other.
    let c = [None, Some(WRITERS * rng.below(9) as i64 + id % WRITERS)][rng.below(2) as usize];
    row_values(id, rng.below(4) as i64, b, c)
}

/// A change of one of the writer's current rows.
fn change(rng: &mut Rng, txn: &mut TableTxn, table: &Arc<Table>, id: i64, rows: &mut Rows) {
    let (key, row) = ([ValueRef::Int(id)], random_row(rng, id));
    let there = rows.contains_key(&id);
    let done = match (there, rng.below(3)) {
        (false, _) => txn.insert(table, &row).map(|_| {
            rows.insert(id, row.map(|v| v.to_owned()).into());
        }),
        (true, 0) => txn.delete(table, &key).map(|_| {
            rows.remove(&id);
        }),
        (true, _) => {
            let column = 1 + rng.below(3) as usize;
            txn.update(table, &key, &[(column, row[column])]).map(|_| {
                if let Some(there) = rows.get_mut(&id) {
                    there[column] = row[column].to_owned();
                }
            })
        }
    };
    if let Err(error) = done {
        assert_eq!(error.kind(), Kind::Duplicate);
    }
}

#[test]
fn read_uncommitted_finds_each_changed_row_once_by_every_index() {
    let seed = std::env::var("EVENKEEL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    println!("EVENKEEL_SEED={seed}");
    let mut rng = Rng::new(seed);
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    // For each writer: its transaction, and its rows now, at its savepoint, and committed.
    type Writer = (TableTxn, Rows, Rows, Rows);
    let begin = |rows: &Rows| -> Writer {
        let mut txn = db.begin();
        txn.savepoint("s").unwrap();
        (txn, rows.clone(), rows.clone(), rows.clone())
    };
    let mut writers: Vec<Writer> = (0..WRITERS).map(|_| begin(&Rows::new())).collect();
    let (mut undecided, mut undone) = (0, 0);
    for _ in 0..600 {
        let at = rng.below(WRITERS as u64) as usize;
        match rng.below(12) {
            0 => {
                let (txn, rows, _, _) = writers.remove(at);
                commit(txn);
                writers.insert(at, begin(&rows));
            }
            1 => {
                let (txn, _, _, committed) = writers.remove(at);
                txn.rollback().unwrap();
                writers.insert(at, begin(&committed));
                undone += 1;
            }
            2 => {
                let (txn, rows, saved, _) = &mut writers[at];
                txn.rollback_to("s").unwrap();
                *rows = saved.clone();
                undone += 1;
            }
            3 => {
                let (txn, rows, saved, _) = &mut writers[at];
                txn.savepoint("s").unwrap();
                *saved = rows.clone();
            }
            4 => db.store.runs.seal_active(),
            _ => {
                let id = WRITERS * rng.below(KEYS) as i64 + at as i64;
                let (txn, rows, _, _) = &mut writers[at];
                change(&mut rng, txn, &table, id, rows);
            }
        }
        let expected: Rows = writers.iter().flat_map(|(_, rows, _, _)| rows.clone()).collect();
        let mut dirty = db.begin_at(Isolation::ReadUncommitted);
        let found = all_rows(&mut dirty, &table, Direction::Forward);
        assert_eq!(found, expected.into_values().collect::<Vec<_>>());
        check_indexes(&mut dirty, &table);
        counting::check_counts(&mut dirty, &table);
        undecided += u32::from(writers.iter().any(|(_, rows, _, committed)| rows != committed));
    }
    println!("{undecided} reads beside undecided changes, {undone} times changes were taken back");
    assert!(undecided > 200 && undone > 50);
}

/// A trigger changes, and reads by an index, a row that others have changed since the statement's
/// snapshot was taken.
#[test]
fn a_statement_reads_by_index_what_it_has_changed_of_a_younger_row() {
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    for id in 1..=3 {
        txn.insert(&table, &row_values(id, 10 * id, None, Some(id))).unwrap();
    }
    commit(txn);
    let mut mine = db.begin_at(Isolation::ReadCommitted);
    mine.begin_statement();
    check_indexes(&mut mine, &table);
    let mut other = db.begin();
    other.update(&table, &[1i64.into()], &[(1, 11i64.into())]).unwrap();
    other.update(&table, &[2i64.into()], &[(1, 22i64.into())]).unwrap();
    commit(other);
    mine.update(&table, &[1i64.into()], &[(2, ValueRef::Text("x"))]).unwrap();
    let now = all_rows(&mut mine, &table, Direction::Forward);
    let a: Vec<_> = now.iter().map(|row| row[1].clone()).collect();
    assert_eq!(a, [Value::Int(11), Value::Int(20), Value::Int(30)], "its own, and the snapshot's");
    check_indexes(&mut mine, &table);
    mine.end_statement();
    mine.begin_statement();
    check_indexes(&mut mine, &table);
}
