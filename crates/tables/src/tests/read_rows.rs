//! A change of a row that was read starts from the newest version, whatever the buffer holds:
//! locked or not, changed since by the transaction itself or by another, deleted, of another table
//! or leaf.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const IDS: i64 = 200;

type Model = BTreeMap<i64, (i64, Option<String>)>;

fn rows_of(model: &Model) -> Vec<Vec<Value>> {
    let row = |(id, (a, b)): (&i64, &(i64, Option<String>))| {
        row_values(*id, *a, b.as_deref(), Some(*id)).map(|value| value.to_owned()).to_vec()
    };
    model.iter().map(row).collect()
}

/// A step: its operation, row, buffer, and value.
type Step = (u8, i64, usize, i64);

fn step(
    txn: &mut TableTxn,
    [table, other]: [&Arc<Table>; 2],
    model: &mut Model,
    buffers: &mut [Row],
    (what, id, buffer, value): Step,
) {
    let row = &mut buffers[buffer];
    let key = [ValueRef::Int(id)];
    let id_of = |row: &Row| match row.value(0).unwrap() {
        ValueRef::Int(id) => id,
        other => panic!("{other:?}"),
    };
    match what {
        0..4 => {
            let from = if what == 3 { other } else { table };
            let found = txn.get_locked(from, &key, Mode::Exclusive, LockWait::Wait, row).unwrap();
            assert_eq!(found, what == 3 || model.contains_key(&id));
        }
        4 => assert_eq!(txn.get(table, &key, row).unwrap(), model.contains_key(&id)),
        5..8 if !row.is_empty() => {
            let text = format!("{value} of {id}");
            let mut changes = vec![(1, ValueRef::Int(value))];
            if what == 6 {
                changes = vec![(2, ValueRef::Text(&text))];
            }
            let there = model.get_mut(&id_of(row));
            assert_eq!(txn.update_read(table, row, &changes).unwrap(), there.is_some());
            match there {
                Some(there) if what == 6 => there.1 = Some(text),
                Some(there) => there.0 = value,
                None => {}
            }
        }
        8 if !row.is_empty() => {
            let was_there = model.remove(&id_of(row)).is_some();
            assert_eq!(txn.delete_read(table, row).unwrap(), was_there);
        }
        9 => {
            let done = txn.insert_or_ignore(table, &row_values(id, value, None, Some(id))).unwrap();
            assert_eq!(done, !model.contains_key(&id));
            model.entry(id).or_insert((value, None));
        }
        10 => {
            let done = txn.update(table, &key, &[(1, ValueRef::Int(value))]).unwrap();
            assert_eq!(done, model.contains_key(&id));
            model.entry(id).and_modify(|there| there.0 = value);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn changes_of_read_rows_agree_with_a_model(
        txns in prop::collection::vec(
            (any::<bool>(), prop::collection::vec((0u8..11, 0..IDS, 0usize..4, 0i64..1000), 1..40)),
            1..12,
        ),
    ) {
        let db = Db::new();
        let tables = ["t", "u"].map(|name| db.store.create_table(name, &spec()).unwrap());
        let mut model = Model::new();
        let mut txn = db.begin();
        for id in 0..IDS {
            for table in &tables {
                txn.insert(table, &row_values(id, id, None, Some(id))).unwrap();
            }
            model.insert(id, (id, None));
        }
        commit(txn);
        let mut buffers: Vec<Row> = (0..4).map(|_| Row::new()).collect();
        for (commits, steps) in txns {
            let mut txn = db.begin_at(Isolation::ReadCommitted);
            let before = model.clone();
            for of in steps {
                step(&mut txn, [&tables[0], &tables[1]], &mut model, &mut buffers, of);
            }
            if commits {
                commit(txn);
            } else {
                txn.rollback().unwrap();
                model = before;
            }
        }
        let mut txn = db.begin();
        prop_assert_eq!(all_rows(&mut txn, &tables[0], Direction::Forward), rows_of(&model));
        check_indexes(&mut txn, &tables[0]);
    }
}

/// A locked row is changed where it was found, without a descent from the root.
#[test]
fn a_locked_row_is_changed_without_a_second_search() {
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    for id in 0..2000 {
        txn.insert(&table, &row_values(id, id, Some("some text"), Some(id))).unwrap();
    }
    commit(txn);
    let mut visits = [0, 0];
    for (locks, visits) in visits.iter_mut().enumerate() {
        let mut txn = db.begin();
        let mut row = Row::new();
        let key = [ValueRef::Int(700)];
        match locks {
            0 => txn.get(&table, &key, &mut row).unwrap(),
            _ => txn.get_locked(&table, &key, Mode::Exclusive, LockWait::Wait, &mut row).unwrap(),
        };
        let before = evenkeel_pages::visits();
        assert!(txn.update_read(&table, &row, &[(2, ValueRef::Text("b"))]).unwrap());
        *visits = evenkeel_pages::visits() - before;
        txn.rollback().unwrap();
    }
    println!("pages looked at: {} by key, {} where it was found", visits[0], visits[1]);
    assert!(visits[1] == 1 && visits[0] > 3, "{visits:?}");
}
