//! Row operations one by one.

use super::*;
use crate::estimate::Moment;
use evenkeel_base::Code;

fn fill(db: &Db, rows: i64) -> Arc<Table> {
    let table = db.store.create_table("t", &spec()).unwrap();
    let mut txn = db.begin();
    let names: Vec<String> = (0..rows).map(|i| format!("n{}", i % 7)).collect();
    let values: Vec<[ValueRef<'_>; 4]> = (0..rows)
        .map(|i| row_values(i, i % 10, Some(&names[i as usize]), Some(1000 + i)))
        .collect();
    txn.insert_many(&table, values.iter().map(|v| &v[..])).unwrap();
    commit(txn);
    table
}

fn get(txn: &mut TableTxn, table: &Arc<Table>, id: i64) -> Option<Vec<Value>> {
    let mut row = Row::new();
    let found = txn.get(table, &[ValueRef::Int(id)], &mut row).unwrap();
    found.then(|| row.values().unwrap())
}

#[test]
fn insert_get_update_delete() {
    let db = Db::new();
    let table = fill(&db, 500);
    let mut txn = db.begin();
    check_indexes(&mut txn, &table);
    assert_eq!(get(&mut txn, &table, 3).unwrap()[3], Value::Int(1003));
    assert!(get(&mut txn, &table, 500).is_none());
    assert!(txn.update(&table, &[3i64.into()], &[(1, 77i64.into()), (2, ValueRef::Null)]).unwrap());
    assert!(!txn.update(&table, &[500i64.into()], &[(1, 77i64.into())]).unwrap());
    assert!(txn.delete(&table, &[4i64.into()]).unwrap());
    assert!(!txn.delete(&table, &[4i64.into()]).unwrap());
    assert!(get(&mut txn, &table, 4).is_none());
    assert_eq!(get(&mut txn, &table, 3).unwrap()[1..3], [Value::Int(77), Value::Null]);
    // The primary key changes: the row moves.
    assert!(txn.update(&table, &[5i64.into()], &[(0, 9000i64.into())]).unwrap());
    assert!(get(&mut txn, &table, 5).is_none());
    assert_eq!(get(&mut txn, &table, 9000).unwrap()[3], Value::Int(1005));
    // A deleted key can be used again.
    assert!(txn.insert(&table, &row_values(4, 1, None, None)).unwrap().is_none());
    check_indexes(&mut txn, &table);
    commit(txn);
    let mut txn = db.begin();
    check_indexes(&mut txn, &table);
    assert_eq!(all_rows(&mut txn, &table, Direction::Forward).len(), 500);
}

#[test]
fn duplicates_fail_the_statement_only() {
    let db = Db::new();
    let table = fill(&db, 20);
    let mut txn = db.begin();
    txn.insert(&table, &row_values(100, 1, None, Some(5000))).unwrap();
    let pk = txn.insert(&table, &row_values(3, 1, None, None)).unwrap_err();
    assert_eq!((pk.code(), pk.context("index")), (Code::DuplicateKey, Some("primary")));
    let unique = txn.insert(&table, &row_values(101, 1, None, Some(1003))).unwrap_err();
    assert_eq!((unique.code(), unique.context("index")), (Code::DuplicateKey, Some("by_c")));
    // Both keys are taken: the error names the primary key.
    let both = txn.insert(&table, &row_values(3, 1, None, Some(1004))).unwrap_err();
    assert_eq!((both.code(), both.context("index")), (Code::DuplicateKey, Some("primary")));
    let own = txn.insert(&table, &row_values(101, 1, None, Some(5000))).unwrap_err();
    assert_eq!(own.code(), Code::DuplicateKey);
    // A statement that fails half-way is rolled back.
    let rows = [row_values(200, 1, None, None), row_values(3, 1, None, None)];
    assert!(txn.insert_many(&table, rows.iter().map(|r| &r[..])).is_err());
    assert!(get(&mut txn, &table, 200).is_none());
    let update = txn.update(&table, &[3i64.into()], &[(3, 1004i64.into())]).unwrap_err();
    assert_eq!(update.code(), Code::DuplicateKey);
    // NULLs are not equal to each other.
    txn.insert(&table, &row_values(102, 1, None, None)).unwrap();
    txn.insert(&table, &row_values(103, 1, None, None)).unwrap();
    // A freed unique key can be used again, also in the same transaction.
    txn.delete(&table, &[3i64.into()]).unwrap();
    txn.insert(&table, &row_values(104, 1, None, Some(1003))).unwrap();
    check_indexes(&mut txn, &table);
    commit(txn);
    let mut txn = db.begin();
    check_indexes(&mut txn, &table);
    assert_eq!(all_rows(&mut txn, &table, Direction::Forward).len(), 23);
}

#[test]
fn insert_ignore_and_upsert_meet_a_duplicate() {
    let db = Db::new();
    let table = fill(&db, 10);
    let mut txn = db.begin();
    assert!(!txn.insert_or_ignore(&table, &row_values(3, 0, None, None)).unwrap());
    assert!(!txn.insert_or_ignore(&table, &row_values(33, 0, None, Some(1003))).unwrap());
    assert!(txn.insert_or_ignore(&table, &row_values(33, 0, None, Some(33))).unwrap());
    assert!(txn.upsert(&table, &row_values(34, 0, None, Some(34)), &[]).unwrap());
    assert!(!txn.upsert(&table, &row_values(3, 50, None, Some(1003)), &[]).unwrap());
    assert_eq!(get(&mut txn, &table, 3).unwrap()[1], Value::Int(50));
    // The row that holds the unique key is changed.
    let changes = [(1, ValueRef::Int(51))];
    assert!(!txn.upsert(&table, &row_values(99, 0, None, Some(1004)), &changes).unwrap());
    assert_eq!(get(&mut txn, &table, 4).unwrap()[1], Value::Int(51));
    check_indexes(&mut txn, &table);
    commit(txn);
}

/// The rows of a table by key, as `txn` sees them.
fn keys(txn: &mut TableTxn, table: &Arc<Table>) -> Vec<Value> {
    all_rows(txn, table, Direction::Forward).into_iter().map(|mut row| row.swap_remove(0)).collect()
}

#[test]
fn a_long_statement_that_fails_leaves_its_transaction() {
    let db = Db::new();
    let table = fill(&db, 1);
    for before in [true, false] {
        let mut txn = db.begin();
        assert_eq!(keys(&mut txn, &table), [Value::Int(0)]);
        let mut other = db.begin();
        other.insert(&table, &row_values(1, 1, Some("x"), None)).unwrap();
        commit(other);
        if before {
            txn.insert(&table, &row_values(500, 1, Some("x"), None)).unwrap();
        }
        txn.savepoint("s").unwrap();
        let failed = txn.statement(|txn| {
            for i in 1000..1100 {
                txn.insert(&table, &row_values(i, 1, Some("x"), None))?;
            }
            txn.insert(&table, &row_values(0, 1, Some("x"), None))
        });
        assert_eq!(failed.unwrap_err().code(), Code::DuplicateKey);
        assert!(!txn.is_ended());
        // It keeps its snapshot, and its locks work: the other transaction does not see its current
        // changes.
        let mine = |more: &[i64]| -> Vec<Value> {
            let first = [0, 500].into_iter().take(1 + usize::from(before));
            first.chain(more.iter().copied()).map(Value::Int).collect()
        };
        assert_eq!(keys(&mut txn, &table), mine(&[]));
        for i in 1000..1030 {
            txn.insert(&table, &row_values(i, 2, Some("y"), None)).unwrap();
        }
        check_indexes(&mut txn, &table);
        txn.rollback_to("s").unwrap();
        assert_eq!(keys(&mut txn, &table), mine(&[]));
        txn.insert(&table, &row_values(1001, 3, Some("z"), None)).unwrap();
        assert_eq!(keys(&mut txn, &table), mine(&[1001]));
        commit(txn);
        let mut txn = db.begin();
        let last = if before { vec![0, 1, 500, 1001] } else { vec![0, 1, 1001] };
        assert_eq!(keys(&mut txn, &table), last.into_iter().map(Value::Int).collect::<Vec<_>>());
        check_indexes(&mut txn, &table);
        for i in [1i64, 500, 1001] {
            txn.delete(&table, &[i.into()]).unwrap();
        }
        commit(txn);
    }
}

#[test]
fn rollback_savepoints_and_drop() {
    let db = Db::new();
    let table = fill(&db, 10);
    let mut txn = db.begin();
    txn.insert(&table, &row_values(100, 1, Some("x"), None)).unwrap();
    txn.savepoint("one").unwrap();
    txn.insert(&table, &row_values(101, 1, Some("x"), None)).unwrap();
    txn.update(&table, &[100i64.into()], &[(1, 5i64.into())]).unwrap();
    txn.delete(&table, &[3i64.into()]).unwrap();
    txn.savepoint("two").unwrap();
    txn.update(&table, &[100i64.into()], &[(1, 6i64.into())]).unwrap();
    txn.rollback_to("two").unwrap();
    assert_eq!(get(&mut txn, &table, 100).unwrap()[1], Value::Int(5));
    check_indexes(&mut txn, &table);
    txn.rollback_to("one").unwrap();
    assert_eq!(txn.rollback_to("two").unwrap_err().code(), Code::SavepointMissing);
    assert_eq!(get(&mut txn, &table, 100).unwrap()[1], Value::Int(1));
    assert!(get(&mut txn, &table, 101).is_none());
    check_indexes(&mut txn, &table);
    commit(txn);
    let mut txn = db.begin();
    check_indexes(&mut txn, &table);
    assert_eq!(all_rows(&mut txn, &table, Direction::Forward).len(), 11);
    for i in 0..10 {
        txn.update(&table, &[i64::into(i)], &[(1, 99i64.into())]).unwrap();
    }
    drop(txn);
    // Rows of an aborted transaction are rolled back on touch or in the background.
    let mut txn = db.begin();
    assert_eq!(get(&mut txn, &table, 3).unwrap()[1], Value::Int(3));
    txn.update(&table, &[3i64.into()], &[(1, 98i64.into())]).unwrap();
    check_indexes(&mut txn, &table);
    txn.rollback().unwrap();
    let mut txn = db.begin();
    check_indexes(&mut txn, &table);
    assert_eq!(get(&mut txn, &table, 3).unwrap()[1], Value::Int(3));
}

#[test]
fn ranges_of_table_and_indexes() {
    let db = Db::new();
    let table = fill(&db, 100);
    let mut txn = db.begin();
    let ids = |scan: &mut dyn FnMut(&mut Row) -> Result<bool>| {
        let (mut row, mut ids) = (Row::new(), Vec::new());
        while scan(&mut row).unwrap() {
            match row.value(0).unwrap() {
                ValueRef::Int(id) => ids.push(id),
                other => panic!("{other:?}"),
            }
        }
        ids
    };
    let (low, high) = ([ValueRef::Int(10)], [ValueRef::Int(13)]);
    use std::ops::Bound::*;
    let range = Range { lower: Excluded(&low), upper: Included(&high) };
    let mut scan = txn.scan(&table, range, Direction::Forward).unwrap();
    assert_eq!(ids(&mut |r| scan.next(r)), [11, 12, 13]);
    let mut scan = txn.scan(&table, range, Direction::Backward).unwrap();
    assert_eq!(ids(&mut |r| scan.next(r)), [13, 12, 11]);
    let three = [ValueRef::Int(3)];
    let by_a = table.layout().index("by_a").unwrap();
    let want: Vec<i64> = (0..10).map(|i| 10 * i + 3).collect();
    for keys_only in [true, false] {
        let range = Range::prefix(&three);
        let mut scan = txn.index_scan(&table, by_a, range, Direction::Forward, keys_only).unwrap();
        assert_eq!(ids(&mut |r| scan.next(r)), want);
        let mut scan = txn.index_scan(&table, by_a, range, Direction::Backward, keys_only).unwrap();
        let back: Vec<i64> = want.iter().rev().copied().collect();
        assert_eq!(ids(&mut |r| scan.next(r)), back);
    }
    let by_b = table.layout().index("by_b").unwrap();
    let n6 = [ValueRef::Text("n6")];
    let mut scan =
        txn.index_scan(&table, by_b, Range::from(&n6), Direction::Forward, true).unwrap();
    assert_eq!(ids(&mut |r| scan.next(r)).len(), 100);
    let n0 = [ValueRef::Text("n0")];
    let mut scan =
        txn.index_scan(&table, by_b, Range::from(&n0), Direction::Forward, true).unwrap();
    assert_eq!(ids(&mut |r| scan.next(r)).len(), 15, "descending: n0 is the last");
    let mut keys = Vec::new();
    let many: Vec<[ValueRef<'_>; 1]> = [5i64, 200, 7].map(|i| [i.into()]).to_vec();
    let many: Vec<&[ValueRef<'_>]> = many.iter().map(|k| &k[..]).collect();
    txn.get_many(&table, &many, &mut |i, row| {
        keys.push((i, row.value(0)?.to_owned()));
        Ok(())
    })
    .unwrap();
    assert_eq!(keys, [(0, Value::Int(5)), (2, Value::Int(7))]);
}

#[test]
fn hidden_keys_and_auto_increment() {
    let db = Db::new();
    let spec = TableSpec::new()
        .column(ColumnSpec::new("k", ColumnType::Text { max: 2000 }))
        .column(ColumnSpec::new("n", ColumnType::Int8).auto_increment())
        .primary_key(&["k"]);
    let table = db.store.create_table("h", &spec).unwrap();
    let mut txn = db.begin();
    assert_eq!(txn.insert(&table, &["x".into(), ValueRef::Null]).unwrap(), Some(1));
    let long = "y".repeat(500);
    assert_eq!(txn.insert(&table, &[long[..].into(), ValueRef::Null]).unwrap(), Some(2));
    let twice = txn.insert(&table, &["x".into(), ValueRef::Null]).unwrap_err();
    assert_eq!(twice.code(), Code::DuplicateKey);
    let mut row = Row::new();
    assert!(txn.get(&table, &[long[..].into()], &mut row).unwrap());
    assert_eq!(row.value(1).unwrap(), ValueRef::Int(2));
    assert!(txn.update(&table, &["x".into()], &[(0, "z".into())]).unwrap());
    assert!(!txn.get(&table, &["x".into()], &mut row).unwrap());
    assert!(txn.delete(&table, &["z".into()]).unwrap());
    assert_eq!(txn.insert(&table, &["v".into(), 100i64.into()]).unwrap(), None);
    drop(txn);
    // Numbers continue above the given one, though it was rolled back.
    let mut txn = db.begin();
    assert_eq!(txn.insert(&table, &["w".into(), ValueRef::Null]).unwrap(), Some(101));
    txn.insert(&table, &["w2".into(), 127i64.into()]).unwrap();
    let spent = txn.insert(&table, &["w3".into(), ValueRef::Null]).unwrap_err();
    assert_eq!(spent.code(), Code::AutoIncrementExhausted);
}

#[test]
fn long_values_go_to_overflow_pages() {
    let db = Db::new();
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("a", ColumnType::Bytes { max: 1 << 20 }).nullable())
        .column(ColumnSpec::new("b", ColumnType::Bytes { max: 1 << 20 }).nullable())
        .column(ColumnSpec::new("n", ColumnType::Int32))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_a", &["a"]));
    let table = db.store.create_table("t", &spec).unwrap();
    let mut txn = db.begin();
    let blob = |n: usize, seed: u8| -> Vec<u8> { (0..n).map(|i| seed ^ (i % 251) as u8).collect() };
    let (small, big) = (blob(3_000, 1), blob(300_000, 2));
    let values = |id: i64| [id.into(), ValueRef::Bytes(&small), ValueRef::Bytes(&big), 1i64.into()];
    for id in 0..5 {
        txn.insert(&table, &values(id)).unwrap();
    }
    txn.update(&table, &[1i64.into()], &[(3, 2i64.into())]).unwrap();
    txn.update(&table, &[2i64.into()], &[(2, ValueRef::Bytes(&small))]).unwrap();
    txn.update(&table, &[3i64.into()], &[(1, ValueRef::Null)]).unwrap();
    check_indexes(&mut txn, &table);
    commit(txn);
    let mut txn = db.begin();
    check_indexes(&mut txn, &table);
    let rows = all_rows(&mut txn, &table, Direction::Forward);
    assert_eq!(rows[1][1..], [Value::Bytes(small.clone()), Value::Bytes(big), Value::Int(2)]);
    assert_eq!(rows[2][2], Value::Bytes(small));
    assert_eq!(rows[3][1], Value::Null);
    txn.delete(&table, &[0i64.into()]).unwrap();
    txn.rollback().unwrap();
    let mut txn = db.begin();
    check_indexes(&mut txn, &table);
}

/// A scan of one key sees the same as a read of the key: the newest row, an older one, none.
#[test]
fn a_scan_of_one_key_equals_a_read_of_it() {
    let db = Db::new();
    let table = fill(&db, 60);
    let mut old = db.begin();
    assert!(old.get(&table, &[0i64.into()], &mut Row::new()).unwrap());
    let mut change = db.begin();
    for id in 0..20i64 {
        change.update(&table, &[id.into()], &[(1, 99i64.into())]).unwrap();
        change.delete(&table, &[(id + 20).into()]).unwrap();
    }
    change.insert(&table, &row_values(1000, 7, None, None)).unwrap();
    let check = |txn: &mut TableTxn, found: usize| {
        let mut seen = 0;
        for id in (-1..61i64).chain([1000]) {
            let key = [id.into()];
            let (mut read, mut scanned) = (Row::new(), Row::new());
            let is_there = txn.get(&table, &key, &mut read).unwrap();
            for direction in [Direction::Forward, Direction::Backward] {
                let mut scan = txn.scan(&table, Range::prefix(&key), direction).unwrap();
                assert_eq!(scan.next(&mut scanned).unwrap(), is_there, "{id}");
                if is_there {
                    assert_eq!(scanned.values().unwrap(), read.values().unwrap());
                }
                assert!(!scan.next(&mut scanned).unwrap(), "one row");
                let mut scan = txn.scan(&table, Range::prefix(&key), direction).unwrap();
                scan.resume_after(read.key()).unwrap();
                assert!(!is_there || !scan.next(&mut scanned).unwrap(), "behind it is none");
            }
            seen += usize::from(is_there);
        }
        assert_eq!(seen, found);
    };
    check(&mut old, 60);
    check(&mut change, 41);
    commit(change);
    check(&mut db.begin(), 41);
    check(&mut old, 60);
}

/// The row count is known without reading the tree, and is never that of another time.
#[test]
fn the_row_count_follows_the_table() {
    let db = Db::new();
    let table = fill(&db, 100);
    let rows = || db.store.size_estimate(&table).unwrap().rows;
    let known = || {
        let size = table.rows_known.get(table.state().tree.id(), Moment::now(&db.store));
        size.map(|size| size.rows)
    };
    assert_eq!((rows(), known()), (100, Some(100)), "nothing has changed");
    let mut txn = db.begin();
    txn.insert(&table, &row_values(1000, 7, None, None)).unwrap();
    commit(txn);
    assert_eq!((known(), rows()), (None, 101), "a small table has changed");
    for first in (2000..42_000).step_by(1000) {
        let values: Vec<_> =
            (first..first + 1000).map(|id| row_values(id, 1, None, Some(id))).collect();
        let mut txn = db.begin();
        txn.insert_many(&table, values.iter().map(|v| &v[..])).unwrap();
        commit(txn);
    }
    let many = rows();
    assert!((15_000..80_000).contains(&many), "{many}");
    db.store.truncate_table("t").unwrap();
    assert!(rows() <= 1, "{}", rows());
}
