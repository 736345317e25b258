//! Without snapshot isolation: changes and locks apply to the newest committed row, plain reads
//! keep the snapshot and see own changes; by the table and by every index.

use super::*;
use evenkeel_base::Kind;
use evenkeel_base::metrics::Metric;
use evenkeel_io::Rng;
use std::collections::BTreeMap;

const KEYS: u64 = 12;

type Rows = BTreeMap<i64, Vec<Value>>;

fn values(row: &[Value]) -> Vec<ValueRef<'_>> {
    row.iter().map(|v| v.as_ref()).collect()
}

fn seen(txn: &mut TableTxn, table: &Arc<Table>) -> Rows {
    let rows = all_rows(txn, table, Direction::Forward);
    rows.into_iter()
        .map(|row| match row[0] {
            Value::Int(id) => (id, row),
            ref other => panic!("{other:?}"),
        })
        .collect()
}

/// The row as a write finds it: locked, newest.
fn locked_a(txn: &mut TableTxn, table: &Arc<Table>, id: i64) -> Option<Value> {
    let mut row = Row::new();
    let found =
        txn.get_locked(table, &[id.into()], Mode::Exclusive, LockWait::Wait, &mut row).unwrap();
    found.then(|| row.value(1).unwrap().to_owned())
}

#[test]
fn a_younger_row_is_locked_and_changed() {
    for on in [true, false] {
        let db = Db::new();
        let table = db.store.create_table("t", &spec()).unwrap();
        let mut txn = db.begin();
        for id in 1..=4 {
            txn.insert(&table, &row_values(id, 10 * id, None, Some(id))).unwrap();
        }
        commit(txn);
        let mut old = db.begin();
        old.set_snapshot_isolation(on);
        let before = seen(&mut old, &table);
        let mut other = db.begin();
        other.update(&table, &[1i64.into()], &[(1, 11i64.into())]).unwrap();
        other.delete(&table, &[2i64.into()]).unwrap();
        other.insert(&table, &row_values(9, 90, None, Some(9))).unwrap();
        commit(other);
        let changes = [(3, ValueRef::Int(77))];
        if on {
            let changed = old.update(&table, &[1i64.into()], &changes).map_err(|e| e.kind());
            assert_eq!(changed, Err(Kind::Conflict));
            assert_eq!(db.store.rt.metrics.get(Metric::Conflicts), 1);
            continue;
        }
        assert_eq!(locked_a(&mut old, &table, 1), Some(Value::Int(11)));
        assert_eq!(locked_a(&mut old, &table, 2), None, "deleted since");
        assert_eq!(seen(&mut old, &table), before, "a lock changes nothing of what is read");
        // Another column than the newer one: the newer value is seen with it.
        assert!(old.update(&table, &[1i64.into()], &changes).unwrap());
        assert!(!old.update(&table, &[2i64.into()], &changes).unwrap());
        let now = seen(&mut old, &table);
        let newest: Vec<Value> = row_values(1, 11, None, Some(77)).map(|v| v.to_owned()).into();
        assert_eq!(now[&1], newest);
        assert_eq!(now[&2], before[&2], "the snapshot's row is still read");
        assert!(!now.contains_key(&9));
        check_indexes(&mut old, &table);
        // Locked: another transaction waits for it.
        let mut late = db.begin();
        late.set_lock_wait(Duration::ZERO);
        let refused = late.update(&table, &[1i64.into()], &changes).map_err(|e| e.kind());
        assert_eq!(refused, Err(Kind::LockTimeout));
        late.rollback().unwrap();
        assert_eq!(db.store.rt.metrics.get(Metric::Conflicts), 0);
        commit(old);
        check_indexes(&mut db.begin(), &table);
    }
}

/// Clustered on a hidden id: an entry of the primary key may belong to an older version.
#[test]
fn a_moved_long_primary_key_is_not_found_under_its_old_value() {
    let db = Db::new();
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Text { max: 2_000 }))
        .column(ColumnSpec::new("a", ColumnType::Int64))
        .primary_key(&["id"]);
    let table = db.store.create_table("long", &spec).unwrap();
    let key = |name: &'static str| [ValueRef::Text(name)];
    let get = |txn: &mut TableTxn, name| {
        let mut row = Row::new();
        let found = txn.get(&table, &key(name), &mut row).unwrap();
        found.then(|| row.value(1).unwrap().to_owned())
    };
    let mut txn = db.begin();
    txn.insert(&table, &[ValueRef::Text("one"), 1i64.into()]).unwrap();
    commit(txn);
    let mut old = db.begin();
    old.set_snapshot_isolation(false);
    assert_eq!(get(&mut old, "one"), Some(Value::Int(1)));
    let mut other = db.begin();
    other.update(&table, &key("one"), &[(0, ValueRef::Text("two"))]).unwrap();
    commit(other);
    assert!(!old.update(&table, &key("one"), &[(1, 5i64.into())]).unwrap(), "moved away");
    assert!(old.update(&table, &key("two"), &[(1, 6i64.into())]).unwrap());
    assert_eq!(get(&mut old, "two"), Some(Value::Int(6)));
    assert_eq!(get(&mut old, "one"), None, "the row is seen as it was changed");
    // An own row under a key for which the snapshot has another row.
    old.insert(&table, &[ValueRef::Text("one"), 7i64.into()]).unwrap();
    assert_eq!(get(&mut old, "one"), Some(Value::Int(7)));
}

fn random_row(rng: &mut Rng, id: i64) -> Vec<Value> {
    let text = match rng.below(3) {
        0 => Value::Null,
        n => Value::Text(["x", "yy"][n as usize - 1].into()),
    };
    let unique = match rng.below(3) {
        0 => Value::Null,
        _ => Value::Int(rng.below(40) as i64),
    };
    vec![Value::Int(id), Value::Int(rng.below(4) as i64), text, unique]
}

/// One random operation on the rows `newest`; returns the new state of the row.
fn step(rng: &mut Rng, txn: &mut TableTxn, table: &Arc<Table>, id: i64, newest: &Rows) -> Done {
    let key = [ValueRef::Int(id)];
    let row = random_row(rng, id);
    let there = newest.get(&id);
    match rng.below(4) {
        0 => match (txn.insert(table, &values(&row)), there) {
            (Ok(_), None) => Done::Row(id, Some(row)),
            (Ok(_), Some(_)) => panic!("{id} is there already"),
            (Err(e), _) => Done::Failed(e.kind()),
        },
        1 => match (txn.delete(table, &key), there) {
            (Ok(found), there) => {
                assert_eq!(found, there.is_some(), "{id}");
                if found { Done::Row(id, None) } else { Done::Nothing }
            }
            (Err(e), _) => Done::Failed(e.kind()),
        },
        _ => {
            let column = 1 + rng.below(3) as usize;
            match (txn.update(table, &key, &[(column, row[column].as_ref())]), there) {
                (Ok(false), None) => Done::Nothing,
                (Ok(true), Some(there)) => {
                    let mut now = there.clone();
                    now[column] = row[column].clone();
                    Done::Row(id, Some(now))
                }
                (Ok(found), there) => panic!("{id}: {found} and {there:?}"),
                (Err(e), _) => Done::Failed(e.kind()),
            }
        }
    }
}

enum Done {
    Row(i64, Option<Vec<Value>>),
    Nothing,
    Failed(Kind),
}

fn put(rows: &mut Rows, id: i64, row: &Option<Vec<Value>>) {
    match row {
        Some(row) => rows.insert(id, row.clone()),
        None => rows.remove(&id),
    };
}

/// Others commit; a transaction without conflicts changes and rolls back. It reads its snapshot
/// with its own rows on top, by the table and by every index; its changes started from the newest
/// rows.
#[test]
fn reads_beside_younger_rows_agree_with_a_model() {
    let seed = std::env::var("EVENKEEL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7);
    println!("EVENKEEL_SEED={seed}");
    let mut rng = Rng::new(seed);
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut committed = Rows::new();
    let (mut over, mut undone) = (0, 0);
    for _ in 0..40 {
        let mut mine = db.begin();
        mine.set_snapshot_isolation(false);
        let snapshot = seen(&mut mine, &table);
        assert_eq!(snapshot, committed);
        let mut own: BTreeMap<i64, Option<Vec<Value>>> = BTreeMap::new();
        let mut saved = own.clone();
        mine.savepoint("s").unwrap();
        for _ in 0..25 {
            let id = rng.below(KEYS) as i64;
            if rng.below(2) == 0 {
                let mut other = db.begin();
                other.set_lock_wait(Duration::ZERO);
                match step(&mut rng, &mut other, &table, id, &committed) {
                    Done::Row(id, row) => {
                        assert!(!own.contains_key(&id), "{id} is the other's");
                        put(&mut committed, id, &row);
                        commit(other);
                    }
                    Done::Nothing => other.rollback().unwrap(),
                    Done::Failed(Kind::LockTimeout | Kind::Duplicate) => {}
                    Done::Failed(kind) => panic!("{kind:?}"),
                }
                continue;
            }
            let mut newest = committed.clone();
            own.iter().for_each(|(id, row)| put(&mut newest, *id, row));
            match step(&mut rng, &mut mine, &table, id, &newest) {
                Done::Row(id, row) => {
                    over += u32::from(committed.get(&id) != snapshot.get(&id));
                    own.insert(id, row);
                }
                Done::Nothing | Done::Failed(Kind::Duplicate) => {}
                Done::Failed(kind) => panic!("{kind:?}"),
            }
            match rng.below(8) {
                0 => {
                    mine.savepoint("s").unwrap();
                    saved = own.clone();
                }
                1 => {
                    mine.rollback_to("s").unwrap();
                    own = saved.clone();
                    undone += 1;
                }
                _ => {}
            }
            let mut expected = snapshot.clone();
            own.iter().for_each(|(id, row)| put(&mut expected, *id, row));
            assert_eq!(seen(&mut mine, &table), expected);
            check_indexes(&mut mine, &table);
        }
        commit(mine);
        own.iter().for_each(|(id, row)| put(&mut committed, *id, row));
        assert_eq!(seen(&mut db.begin(), &table), committed);
        check_indexes(&mut db.begin(), &table);
    }
    println!("{over} changes of younger rows, {undone} taken back");
    assert!(over > 20 && undone > 20);
}
