//! Random transactions against a model with history: every transaction and every kept snapshot
//! reads the rows of the model; indexes equal the table.

use super::*;
use evenkeel_base::Kind;
use evenkeel_io::Rng;
use std::collections::BTreeMap;

type State = BTreeMap<i64, Vec<Value>>;

const KEYS: u64 = 60;
const UNIQUE: u64 = 40;

fn random_row(rng: &mut Rng, id: i64) -> Vec<Value> {
    let text = match rng.below(4) {
        0 => Value::Null,
        n => Value::Text("x".repeat(n as usize * 13)),
    };
    let unique = match rng.below(3) {
        0 => Value::Null,
        _ => Value::Int(rng.below(UNIQUE) as i64),
    };
    vec![Value::Int(id), Value::Int(rng.below(8) as i64), text, unique]
}

fn refs(row: &[Value]) -> Vec<ValueRef<'_>> {
    row.iter().map(Value::as_ref).collect()
}

fn is_taken(state: &State, row: &[Value], but: i64) -> bool {
    row[3] != Value::Null && state.iter().any(|(id, r)| *id != but && r[3] == row[3])
}

/// One random row operation in the store and in the model; both must agree.
fn step(rng: &mut Rng, txn: &mut TableTxn, table: &Arc<Table>, state: &mut State) {
    let id = rng.below(KEYS) as i64;
    let row = random_row(rng, id);
    let values = refs(&row);
    match rng.below(6) {
        0 | 1 => {
            let duplicate = state.contains_key(&id) || is_taken(state, &row, id);
            match txn.insert(table, &values) {
                Ok(_) => assert!(!duplicate, "insert of {row:?} went through"),
                Err(e) => assert!(duplicate && e.kind() == Kind::Duplicate, "{e}"),
            }
            if !duplicate {
                state.insert(id, row);
            }
        }
        2 => {
            let duplicate = state.contains_key(&id) || is_taken(state, &row, id);
            assert_eq!(txn.insert_or_ignore(table, &values).unwrap(), !duplicate);
            if !duplicate {
                state.insert(id, row);
            }
        }
        3 => {
            // Changes one or two columns.
            let mut changes = vec![(1 + rng.below(3) as usize, ())];
            changes.push((1 + rng.below(3) as usize, ()));
            let changes: Vec<_> = changes.iter().map(|(c, ())| (*c, values[*c])).collect();
            let Some(old) = state.get(&id).cloned() else {
                assert!(!txn.update(table, &[id.into()], &changes).unwrap());
                return;
            };
            let mut new = old;
            changes.iter().for_each(|(c, v)| new[*c] = ValueRef::to_owned(*v));
            let duplicate = is_taken(state, &new, id);
            match txn.update(table, &[id.into()], &changes) {
                Ok(found) => assert!(found && !duplicate),
                Err(e) => assert!(duplicate && e.kind() == Kind::Duplicate, "{e}"),
            }
            if !duplicate {
                state.insert(id, new);
            }
        }
        4 => {
            let there = state.remove(&id).is_some();
            assert_eq!(txn.delete(table, &[id.into()]).unwrap(), there);
        }
        _ => {
            let mut found = Row::new();
            let there = txn.get(table, &[id.into()], &mut found).unwrap();
            assert_eq!(there.then(|| found.values().unwrap()), state.get(&id).cloned());
        }
    }
}

fn check(txn: &mut TableTxn, table: &Arc<Table>, state: &State) {
    let rows = all_rows(txn, table, Direction::Forward);
    assert_eq!(rows, state.values().cloned().collect::<Vec<_>>());
    check_indexes(txn, table);
    counting::check_counts(txn, table);
}

fn run(seed: u64, transactions: u64) {
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let db = Db::create(Arc::new(MemEnv::new()), Sizes { frames: 128, ..SMALL });
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut committed = State::new();
    let mut history: Vec<(TableTxn, State)> = Vec::new();
    for _ in 0..transactions {
        let mut txn = db.begin();
        let mut state = committed.clone();
        let mut savepoints: Vec<State> = Vec::new();
        for _ in 0..rng.below(25) {
            match rng.below(12) {
                0 => {
                    txn.savepoint(&format!("s{}", savepoints.len())).unwrap();
                    savepoints.push(state.clone());
                }
                1 if !savepoints.is_empty() => {
                    let at = rng.below(savepoints.len() as u64) as usize;
                    txn.rollback_to(&format!("s{at}")).unwrap();
                    state = savepoints[at].clone();
                    savepoints.truncate(at + 1);
                }
                _ => step(&mut rng, &mut txn, &table, &mut state),
            }
        }
        if rng.below(3) == 0 {
            check(&mut txn, &table, &state);
        }
        if rng.below(4) == 0 {
            txn.rollback().unwrap();
        } else {
            commit(txn);
            committed = state;
        }
        if rng.below(8) == 0 && history.len() < 4 {
            let mut reader = db.begin();
            reader.take_snapshot().unwrap();
            history.push((reader, committed.clone()));
        }
        if rng.below(10) == 0 && !history.is_empty() {
            let at = rng.below(history.len() as u64) as usize;
            let (mut reader, state) = history.swap_remove(at);
            check(&mut reader, &table, &state);
        }
    }
    for (mut reader, state) in history {
        check(&mut reader, &table, &state);
    }
    check(&mut db.begin(), &table, &committed);
}

#[test]
fn random_transactions_equal_the_model() {
    for seed in 0..12 {
        run(seed, 150);
    }
}

/// Transfers between accounts by several threads: the sum stays, and every snapshot sees it.
#[test]
fn concurrent_transfers_keep_the_sum() {
    const ACCOUNTS: i64 = 12;
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    for id in 0..ACCOUNTS {
        txn.insert(&table, &row_values(id, 100, None, Some(id))).unwrap();
    }
    commit(txn);
    let sum = |txn: &mut TableTxn| -> i64 {
        let rows = all_rows(txn, &table, Direction::Forward);
        assert_eq!(rows.len(), ACCOUNTS as usize);
        rows.iter().map(|r| if let Value::Int(a) = r[1] { a } else { 0 }).sum()
    };
    let transfer = |txn: &mut TableTxn, rng: &mut Rng| -> Result<()> {
        let mut row = Row::new();
        let from = rng.below(ACCOUNTS as u64) as i64;
        let to = rng.below(ACCOUNTS as u64) as i64;
        for (id, by) in [(from, -1), (to, 1)] {
            txn.get_locked(&table, &[id.into()], Mode::Exclusive, LockWait::Wait, &mut row)?;
            let ValueRef::Int(a) = row.value(1)? else { panic!("no number") };
            txn.update(&table, &[id.into()], &[(1, (a + by).into())])?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, transfer, sum) = (&db, &transfer, &sum);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..150 {
                    let mut txn = db.begin();
                    match transfer(&mut txn, &mut rng) {
                        Ok(()) if rng.below(5) > 0 => {
                            txn.commit(Durability::Lazy).unwrap();
                        }
                        Ok(()) => txn.rollback().unwrap(),
                        Err(e) => {
                            let repeat = [Kind::Deadlock, Kind::Conflict, Kind::LockTimeout];
                            assert!(repeat.contains(&e.kind()), "{e}");
                        }
                    }
                    if rng.below(10) == 0 {
                        assert_eq!(sum(&mut db.begin()), 100 * ACCOUNTS);
                    }
                }
            });
        }
    });
    let mut txn = db.begin();
    assert_eq!(sum(&mut txn), 100 * ACCOUNTS);
    check_indexes(&mut txn, &table);
}
