//! Rows that are found by a key which they lose before they are locked or changed (A7), or that
//! change while an update makes another row of them.

use super::collated::at_weights;
use super::*;
use evenkeel_base::{Code, Kind};

const A: &[ValueRef<'static>] = &[ValueRef::Text("a")];
const B: &[ValueRef<'static>] = &[ValueRef::Text("b")];

/// (name text primary key, too long for a clustered key; v) with the rows a and x.
fn named(db: &Db) -> Arc<Table> {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("name", ColumnType::Text { max: 2000 }))
        .column(ColumnSpec::new("v", ColumnType::Int32))
        .primary_key(&["name"]);
    let table = db.store.create_table("named", &spec).unwrap();
    assert!(table.layout().key.is_empty(), "clustered on a hidden id");
    let mut txn = db.begin();
    for name in ["a", "x"] {
        txn.insert(&table, &[ValueRef::Text(name), 1i64.into()]).unwrap();
    }
    commit(txn);
    table
}

/// The result of `act`, which waits for row `key` while another transaction has locked it and
/// changes it.
fn beside<R: Send>(
    db: &Db,
    table: &Arc<Table>,
    key: &[ValueRef<'_>],
    change: (usize, ValueRef<'_>),
    act: impl FnOnce(&mut TableTxn) -> R + Send,
) -> R {
    let mut holder = db.begin_at(Isolation::ReadCommitted);
    let (mode, wait) = (Mode::Exclusive, LockWait::Wait);
    assert!(holder.get_locked(table, key, mode, wait, &mut Row::new()).unwrap());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut txn = db.begin_at(Isolation::ReadCommitted);
            let done = act(&mut txn);
            commit(txn);
            done
        });
        while db.store.txns.waiting() < 1 {
            std::thread::yield_now();
        }
        assert!(holder.update(table, key, &[change]).unwrap());
        commit(holder);
        waiter.join().unwrap()
    })
}

#[test]
fn a_row_that_takes_another_primary_key_is_not_changed_by_the_old_one() {
    let db = Db::new();
    let table = named(&db);
    let other = (0, ValueRef::Text("b"));
    let v = (1, ValueRef::Int(7));
    let updated = beside(&db, &table, A, other, |txn| txn.update(&table, A, &[v]).unwrap());
    assert!(!updated, "there is no row a any more");
    assert_eq!(all_rows(&mut db.begin(), &table, Direction::Forward)[0][1], Value::Int(1));

    let back = (0, ValueRef::Text("a"));
    let deleted = beside(&db, &table, B, back, |txn| txn.delete(&table, B).unwrap());
    assert!(!deleted);
    let names = |rows: Vec<Vec<Value>>| rows.into_iter().map(|row| row[0].clone());
    let rows = all_rows(&mut db.begin(), &table, Direction::Forward);
    assert!(names(rows).eq([Value::from("a"), Value::from("x")]));

    let (locked, held) = beside(&db, &table, A, other, |txn| {
        let (mode, wait) = (Mode::Exclusive, LockWait::Wait);
        let locked = txn.get_locked(&table, A, mode, wait, &mut Row::new()).unwrap();
        (locked, txn.handle().locked_rows())
    });
    assert_eq!((locked, held), (false, 0));
    // A search by the current key works as usual.
    let mut txn = db.begin();
    assert!(txn.update(&table, B, &[v]).unwrap() && txn.delete(&table, B).unwrap());
}

#[test]
fn an_upsert_leaves_a_row_alone_that_has_lost_the_key() {
    let db = Db::new();
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    txn.insert(&table, &row_values(1, 10, None, Some(5))).unwrap();
    commit(txn);
    let inserted = beside(&db, &table, &[1i64.into()], (3, 6i64.into()), |txn| {
        txn.upsert(&table, &row_values(2, 20, None, Some(5)), &[(1, 99i64.into())]).unwrap()
    });
    assert!(inserted, "nobody has the key any more");
    let mut txn = db.begin();
    let rows = all_rows(&mut txn, &table, Direction::Forward);
    let row = |id, a, c| [Value::Int(id), Value::Int(a), Value::Null, Value::Int(c)];
    assert_eq!(rows, [row(1, 10, 6), row(2, 20, 5)]);
    check_indexes(&mut txn, &table);
    // A row that has the key is changed.
    let values = row_values(3, 30, None, Some(5));
    assert!(!txn.upsert(&table, &values, &[(1, 99i64.into())]).unwrap());
    assert_eq!(all_rows(&mut txn, &table, Direction::Forward)[1], row(2, 99, 5));
}

/// The other change is made when the update has read the row and is building its new key.
#[test]
fn a_row_that_moves_takes_a_change_along_that_came_meanwhile() {
    let db = Db::new();
    let part = PartSpec { collation: 8, ..PartSpec::from("name") };
    let mut spec = TableSpec::new()
        .column(ColumnSpec::new("name", ColumnType::Bytes { max: 20 }))
        .column(ColumnSpec::new("v", ColumnType::Int32))
        .index(IndexSpec::new("by_v", &["v"]));
    spec.primary = vec![part];
    let table = db.store.create_table("t", &spec).unwrap();
    assert!(!table.layout().key.is_empty(), "clustered on its primary key");
    let (from, to) = (ValueRef::Bytes(b"from"), ValueRef::Bytes(b"to"));
    let mut txn = db.begin();
    txn.insert(&table, &[from, 1i64.into()]).unwrap();
    commit(txn);

    let mut other = db.begin_at(Isolation::ReadCommitted);
    let t = table.clone();
    // The first key built is the search key.
    let came = at_weights(1, move || {
        assert!(other.update(&t, &[ValueRef::Bytes(b"from")], &[(1, 10i64.into())]).unwrap());
        commit(other);
    });
    let mut txn = db.begin_at(Isolation::ReadCommitted);
    assert!(txn.update(&table, &[from], &[(0, to)]).unwrap());
    assert!(came());
    commit(txn);
    let mut txn = db.begin();
    let rows = all_rows(&mut txn, &table, Direction::Forward);
    assert_eq!(rows, [[Value::Bytes(b"to".to_vec()), Value::Int(10)]]);
    check_indexes(&mut txn, &table);
}

/// A transaction that waits for an index key, before it waits for a row, is a victim like any
/// other.
#[test]
fn a_deadlock_on_the_way_to_a_row_rolls_back() {
    let db = Db::new();
    let table = named(&db);
    let rename = |txn: &mut TableTxn, from: &'static str, to: &'static str| {
        txn.update(&table, &[ValueRef::Text(from)], &[(0, ValueRef::Text(to))])
    };
    let (mut first, mut second) = (db.begin(), db.begin());
    rename(&mut first, "a", "a2").unwrap();
    rename(&mut second, "x", "x2").unwrap();
    std::thread::scope(|scope| {
        let first = &mut first;
        let waits = scope.spawn(move || rename(first, "x", "y"));
        while db.store.txns.waiting() < 1 {
            std::thread::yield_now();
        }
        let error = rename(&mut second, "a", "b").unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Deadlock, Code::DeadlockVictim));
        assert!(second.is_ended(), "others wait for what it holds");
        // The second transaction's key is restored.
        assert!(waits.join().unwrap().unwrap());
    });
}
