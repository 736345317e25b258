//! CASCADE and SET NULL: which rows they change, which statements they refuse, and which
//! transactions wait for each other.

use super::foreign::refused;
use super::*;
use crate::ReferenceAction::{self, Cascade, Restrict, SetNull};
use ValueRef::{Int, Null, Text};
use evenkeel_base::Code;
use evenkeel_base::metrics::Metric;
use evenkeel_format::limits::CASCADE_DEPTH_MAX;

fn int(name: &str) -> ColumnSpec {
    ColumnSpec::new(name, ColumnType::Int64)
}

/// (id int primary key, up int null), a key from `up` to the ids of a parent.
fn spec(parent: &str, on_delete: ReferenceAction, on_update: ReferenceAction) -> TableSpec {
    let key = ForeignKeySpec::new("up", &["up"], parent, &["id"]);
    TableSpec::new()
        .column(int("id"))
        .column(int("up").nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_up", &["up"]))
        .foreign_key(key.on_delete(on_delete).on_update(on_update))
}

fn root() -> TableSpec {
    TableSpec { foreign_keys: Vec::new(), ..spec("", Restrict, Restrict) }
}

fn rows(db: &Db, table: &Arc<Table>) -> Vec<(i64, Option<i64>)> {
    let mut txn = db.begin();
    check_indexes(&mut txn, table);
    let int = |value: &Value| match value {
        Value::Int(value) => Some(*value),
        _ => None,
    };
    let all = all_rows(&mut txn, table, Direction::Forward);
    all.iter().map(|row| (int(&row[0]).unwrap(), int(&row[1]))).collect()
}

fn put(db: &Db, table: &Arc<Table>, rows: &[(i64, Option<i64>)]) {
    let mut txn = db.begin();
    for (id, up) in rows {
        txn.insert(table, &[Int(*id), up.map_or(Null, Int)]).unwrap();
    }
    commit(txn);
}

fn cascaded(db: &Db) -> u64 {
    db.store.rt.metrics.get(Metric::RowsCascaded)
}

/// A root `r`, a table `m` that refers to it, and `l` that refers to `m`.
fn three(db: &Db, middle: ReferenceAction, low: ReferenceAction) -> [Arc<Table>; 3] {
    let create = |name, spec: TableSpec| db.store.create_table(name, &spec).unwrap();
    let tables = [
        create("r", root()),
        create("m", spec("r", middle, middle)),
        create("l", spec("m", low, low)),
    ];
    put(db, &tables[0], &[(1, None), (2, None)]);
    put(db, &tables[1], &[(10, Some(1)), (11, Some(1)), (12, Some(2)), (13, None)]);
    put(db, &tables[2], &[(100, Some(10)), (101, Some(11)), (102, Some(12)), (103, Some(10))]);
    tables
}

#[test]
fn deletes_cascade_and_set_null() {
    let db = Db::new();
    let [r, m, l] = three(&db, Cascade, SetNull);
    let mut txn = db.begin();
    assert!(txn.delete(&r, &[Int(1)]).unwrap());
    commit(txn);
    assert_eq!(rows(&db, &r), [(2, None)]);
    assert_eq!(rows(&db, &m), [(12, Some(2)), (13, None)]);
    assert_eq!(rows(&db, &l), [(100, None), (101, None), (102, Some(12)), (103, None)]);
    assert_eq!(cascaded(&db), 5);
}

#[test]
fn updates_cascade_to_the_rows_that_refer() {
    let db = Db::new();
    let [r, m, l] = three(&db, Cascade, Cascade);
    let mut txn = db.begin();
    assert!(txn.update(&r, &[Int(1)], &[(0, Int(7))]).unwrap());
    assert!(txn.update(&m, &[Int(10)], &[(0, Int(15)), (1, Int(2))]).unwrap());
    commit(txn);
    assert_eq!(rows(&db, &r), [(2, None), (7, None)]);
    assert_eq!(rows(&db, &m), [(11, Some(7)), (12, Some(2)), (13, None), (15, Some(2))]);
    let low = [(100, Some(15)), (101, Some(11)), (102, Some(12)), (103, Some(15))];
    assert_eq!(rows(&db, &l), low);
    assert_eq!(cascaded(&db), 4);
}

/// A row further down that may not go undoes the statement, with all that it has cascaded to.
#[test]
fn a_refusal_undoes_the_whole_cascade() {
    let db = Db::new();
    let [r, m, l] = three(&db, Cascade, Restrict);
    let before = [&r, &m, &l].map(|table| rows(&db, table));
    let mut txn = db.begin();
    txn.insert(&l, &[Int(200), Null]).unwrap();
    let names = ["table=m", "constraint=up", "child=l", "key=Int(10)"];
    refused(txn.delete(&r, &[Int(1)]), Code::RowReferenced, &names);
    let ids = [[Int(2)], [Int(1)]];
    assert!(txn.delete(&l, &[Int(102)]).unwrap());
    assert!(txn.delete(&r, &ids[0]).unwrap());
    refused(txn.delete(&r, &ids[1]), Code::RowReferenced, &names);
    txn.delete(&l, &[Int(200)]).unwrap();
    txn.rollback().unwrap();
    assert_eq!([&r, &m, &l].map(|table| rows(&db, table)), before);
}

#[test]
fn rows_of_one_table_cascade_to_each_other() {
    let db = Db::new();
    let t = db.store.create_table("t", &spec("t", Cascade, Restrict)).unwrap();
    put(&db, &t, &[(1, None), (2, Some(1)), (3, Some(2)), (4, Some(4)), (5, Some(2))]);
    let mut txn = db.begin();
    // A circle of two rows, and one that refers to itself.
    txn.insert(&t, &[Int(6), Null]).unwrap();
    txn.insert(&t, &[Int(7), Int(6)]).unwrap();
    txn.update(&t, &[Int(6)], &[(1, Int(7))]).unwrap();
    assert!(txn.delete(&t, &[Int(6)]).unwrap());
    assert!(txn.delete(&t, &[Int(4)]).unwrap());
    assert!(txn.delete(&t, &[Int(2)]).unwrap());
    commit(txn);
    assert_eq!(rows(&db, &t), [(1, None)]);
    // Without end an update could go round: it is refused.
    let t = db.store.create_table("u", &spec("u", SetNull, Cascade)).unwrap();
    put(&db, &t, &[(1, None), (2, Some(1)), (3, Some(2))]);
    let mut txn = db.begin();
    let why = ["table=u", "child=u", "why=the update would come back"];
    refused(txn.update(&t, &[Int(1)], &[(0, Int(9))]), Code::RowReferenced, &why);
    assert!(txn.update(&t, &[Int(3)], &[(0, Int(9))]).unwrap());
    assert!(txn.delete(&t, &[Int(1)]).unwrap());
    commit(txn);
    assert_eq!(rows(&db, &t), [(2, None), (9, Some(2))]);
}

#[test]
fn a_cascade_has_a_depth() {
    let db = Db::new();
    let t = db.store.create_table("t", &spec("t", Cascade, Restrict)).unwrap();
    let depth = CASCADE_DEPTH_MAX as i64;
    let chain: Vec<_> = (0..=depth + 1).map(|id| (id, (id > 0).then_some(id - 1))).collect();
    put(&db, &t, &chain);
    let mut txn = db.begin();
    let names = ["table=t", "constraint=up", "limit=15"];
    refused(txn.delete(&t, &[Int(0)]), Code::CascadeTooDeep, &names);
    assert_eq!(all_rows(&mut txn, &t, Direction::Forward).len(), chain.len());
    assert!(txn.delete(&t, &[Int(1)]).unwrap());
    commit(txn);
    assert_eq!(rows(&db, &t), [(0, None)]);
}

#[test]
fn what_a_child_cannot_take_is_refused() {
    let db = Db::new();
    let text = |max| ColumnSpec::new("code", ColumnType::Text { max });
    let parents = TableSpec::new()
        .column(text(20).nullable())
        .column(int("n"))
        .index(IndexSpec::new("by_code", &["code"]).unique());
    let parent = db.store.create_table("p", &parents).unwrap();
    let key = ForeignKeySpec::new("k", &["code"], "p", &["code"]).on_update(Cascade);
    let children = |key: &ForeignKeySpec| {
        let spec = TableSpec::new().column(int("id")).column(text(5)).primary_key(&["id"]);
        spec.index(IndexSpec::new("by_code", &["code", "id"])).foreign_key(key.clone())
    };
    for key in [key.clone().on_delete(SetNull), key.clone().on_update(SetNull)] {
        let made = db.store.create_table("c", &children(&key)).map(|_| ());
        refused(made, Code::ForeignKeyInvalid, &["SET NULL: column code takes no NULL"]);
    }
    let child = db.store.create_table("c", &children(&key)).unwrap();
    let mut txn = db.begin();
    txn.insert(&parent, &[Text("one"), Int(1)]).unwrap();
    txn.insert(&child, &[Int(1), Text("one")]).unwrap();
    let id = all_rows(&mut txn, &parent, Direction::Forward);
    assert_eq!(id.len(), 1);
    let mut row = Row::new();
    let mut scan = txn.scan(&parent, Range::ALL, Direction::Forward).unwrap();
    assert!(scan.next(&mut row).unwrap());
    let key = row.key().to_vec();
    let mut change = |to: ValueRef<'_>| txn.update_by_key(&parent, &key, &[(0, to)]);
    let names =
        ["table=p", "constraint=k", "child=c", "why=the new key does not fit", "column=code"];
    refused(change(Text("twenty")), Code::RowReferenced, &names);
    refused(change(Null), Code::RowReferenced, &names);
    assert!(change(Text("twelv")).unwrap());
    refused(txn.delete_by_key(&parent, &key), Code::RowReferenced, &[]);
    let found = all_rows(&mut txn, &child, Direction::Forward);
    assert_eq!(found[0][1], Value::Text("twelv".into()));
    check_indexes(&mut txn, &child);
}

/// A cascaded row keeps its other keys, and its unique ones.
#[test]
fn a_cascaded_row_keeps_its_other_keys() {
    let db = Db::new();
    let pair = |name: &str, index: &[&str]| {
        let spec = TableSpec::new().column(int("a")).column(int("b")).column(int("id"));
        spec.primary_key(&["id"]).index(IndexSpec::new(name, index).unique())
    };
    let first = db.store.create_table("first", &pair("by", &["a", "b"])).unwrap();
    let second = db.store.create_table("second", &pair("by", &["b", "a"])).unwrap();
    let of = |name: &str, to: &str, columns: &[&str]| {
        ForeignKeySpec::new(name, columns, to, columns).on_update(Cascade).on_delete(Cascade)
    };
    let spec = TableSpec::new()
        .column(int("id"))
        .column(int("a"))
        .column(int("b"))
        .primary_key(&["id"])
        .index(IndexSpec::new("one", &["a", "b"]).unique())
        .index(IndexSpec::new("two", &["b", "a"]))
        .foreign_key(of("to_first", "first", &["a", "b"]))
        .foreign_key(of("to_second", "second", &["b", "a"]));
    let child = db.store.create_table("c", &spec).unwrap();
    let mut txn = db.begin();
    for (table, rows) in [(&first, [(1, 1), (1, 2), (3, 3)]), (&second, [(1, 1), (1, 2), (2, 2)])] {
        for (id, (a, b)) in (0..).zip(rows) {
            txn.insert(table, &[Int(a), Int(b), Int(id)]).unwrap();
        }
    }
    txn.insert(&child, &[Int(1), Int(1), Int(1)]).unwrap();
    txn.insert(&child, &[Int(2), Int(1), Int(2)]).unwrap();
    let mut to = |a, b| txn.update(&first, &[Int(0)], &[(0, Int(a)), (1, Int(b))]);
    let missing = ["table=c", "constraint=to_second", "parent=second"];
    refused(to(2, 1), Code::ParentRowMissing, &missing);
    assert!(to(2, 2).unwrap());
    let rows = all_rows(&mut txn, &child, Direction::Forward);
    assert_eq!(rows[0], [1, 2, 2].map(Value::Int));
    // Two rows of the child would get one key.
    let unique = TableSpec::new()
        .column(int("id"))
        .column(int("up"))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_up", &["up"]))
        .index(IndexSpec::new("once", &["up"]).unique())
        .foreign_key(ForeignKeySpec::new("k", &["up"], "r", &["id"]).on_update(Cascade));
    let r = db.store.create_table("r", &root()).unwrap();
    let child = db.store.create_table("once", &unique).unwrap();
    txn.insert(&r, &[Int(1), Null]).unwrap();
    txn.insert(&child, &[Int(1), Int(1)]).unwrap();
    txn.set_foreign_key_checks(false);
    txn.insert(&child, &[Int(2), Int(5)]).unwrap();
    txn.set_foreign_key_checks(true);
    let names = ["table=once", "constraint=k", "index=once"];
    let twice = txn.update(&r, &[Int(1)], &[(0, Int(5))]);
    refused(twice, Code::CascadeDuplicate, &names);
    assert!(txn.update(&r, &[Int(1)], &[(0, Int(6))]).unwrap());
}

/// The child's rows keep the case of the parent's key, which its collation ignores.
#[test]
fn another_case_of_a_key_is_taken_along() {
    let db = Db::new();
    let folded =
        |column: &str| PartSpec { column: column.to_string(), collation: 1, ..PartSpec::default() };
    let name = || ColumnSpec::new("name", ColumnType::Bytes { max: 20 });
    let by = |unique| IndexSpec { name: "by".into(), parts: vec![folded("name")], unique };
    let spec = |unique| {
        let spec = TableSpec::new().column(int("id")).column(name());
        spec.primary_key(&["id"]).index(by(unique))
    };
    let key = ForeignKeySpec::new("k", &["name"], "p", &["name"]).on_update(Cascade);
    let parent = db.store.create_table("p", &spec(true)).unwrap();
    let child = db.store.create_table("c", &spec(false).foreign_key(key)).unwrap();
    let mut txn = db.begin();
    txn.insert(&parent, &[Int(1), ValueRef::Bytes(b"Anna")]).unwrap();
    txn.insert(&child, &[Int(1), ValueRef::Bytes(b"ANNA")]).unwrap();
    txn.insert(&child, &[Int(2), ValueRef::Bytes(b"anna")]).unwrap();
    for to in [&b"aNNa"[..], b"Berta"] {
        txn.update(&parent, &[Int(1)], &[(1, ValueRef::Bytes(to))]).unwrap();
        let rows = all_rows(&mut txn, &child, Direction::Forward);
        assert!(rows.iter().all(|row| row[1] == Value::Bytes(to.to_vec())), "{rows:?}");
        check_indexes(&mut txn, &child);
    }
}

#[test]
fn a_cascade_waits_for_rows_that_others_hold() {
    let sizes = Sizes { lock_wait: Duration::from_millis(200), ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let [r, m, l] = three(&db, Cascade, Cascade);
    let before = [&r, &m, &l].map(|table| rows(&db, table));
    // A row of the second level is changed by another transaction.
    let mut other = db.begin();
    other.update(&l, &[Int(103)], &[(1, Null)]).unwrap();
    let mut txn = db.begin();
    refused(txn.delete(&r, &[Int(1)]), Code::LockWaitTimeout, &[]);
    commit(txn);
    assert_eq!([&r, &m].map(|table| rows(&db, table)), [&before[0][..], &before[1]]);
    std::thread::scope(|scope| {
        let deletes = scope.spawn(|| {
            let mut txn = db.begin();
            txn.set_lock_wait(Duration::from_secs(60));
            txn.delete(&r, &[Int(1)]).map(|_| txn)
        });
        // The other one ends, and its row refers to the deleted one again.
        other.rollback().unwrap();
        commit(deletes.join().unwrap().unwrap());
    });
    assert_eq!(rows(&db, &l), [(102, Some(12))]);
    // A new child of a row that is being deleted waits, and then has no parent.
    let mut txn = db.begin();
    txn.delete(&r, &[Int(2)]).unwrap();
    let late = db.begin().insert(&m, &[Int(20), Int(2)]);
    refused(late, Code::LockWaitTimeout, &[]);
    commit(txn);
    refused(db.begin().insert(&m, &[Int(20), Int(2)]), Code::ParentRowMissing, &[]);
}

#[test]
fn a_row_newer_than_the_snapshot_is_a_conflict() {
    let db = Db::new();
    let [r, m, _] = three(&db, Cascade, Cascade);
    let mut txn = db.begin();
    txn.take_snapshot().unwrap();
    put(&db, &m, &[(14, Some(1))]);
    refused(txn.delete(&r, &[Int(1)]), Code::RowChanged, &["table=m"]);
    txn.set_snapshot_isolation(false);
    assert!(txn.delete(&r, &[Int(1)]).unwrap());
    commit(txn);
    assert_eq!(rows(&db, &m), [(12, Some(2)), (13, None)]);
}

/// Two cascades that want each other's rows: one is the victim, and its changes are gone.
#[test]
fn a_deadlock_inside_a_cascade_ends_one_transaction() {
    let db = Db::new();
    let [r, m, l] = three(&db, Cascade, Cascade);
    let (mut one, mut two) = (db.begin(), db.begin());
    one.update(&m, &[Int(12)], &[(1, Null)]).unwrap();
    two.update(&m, &[Int(11)], &[(1, Null)]).unwrap();
    let ended = std::thread::scope(|scope| {
        let first = scope.spawn(|| one.delete(&r, &[Int(1)]).map(|_| ()));
        let second = two.delete(&r, &[Int(2)]).map(|_| ());
        [first.join().unwrap(), second]
    });
    let failed: Vec<_> = ended.iter().filter_map(|done| done.as_ref().err()).collect();
    assert_eq!(failed.len(), 1, "{ended:?}");
    assert_eq!(failed[0].code(), Code::DeadlockVictim);
    let winner = if ended[0].is_ok() { one } else { two };
    commit(winner);
    let left = if ended[0].is_ok() { (2, None) } else { (1, None) };
    assert_eq!(rows(&db, &r), [left]);
    let (mut txn, ids) = (db.begin(), rows(&db, &m));
    let refers = rows(&db, &l).into_iter().filter_map(|(_, up)| up);
    assert!(refers.into_iter().all(|up| ids.iter().any(|(id, _)| *id == up)), "{ids:?}");
    check_indexes(&mut txn, &m);
}

/// A prepared cascade holds its rows; its rollback brings all of them back.
#[test]
fn a_prepared_cascade_is_rolled_back() {
    let db = Db::new();
    let tables = three(&db, Cascade, SetNull);
    let before = tables.each_ref().map(|table| rows(&db, table));
    let mut txn = db.begin();
    txn.delete(&tables[0], &[Int(1)]).unwrap();
    txn.prepare(b"x").unwrap();
    drop(txn);
    assert_eq!(db.store.prepared_tables(b"x").unwrap().len(), 3);
    db.store.rollback_prepared(b"x", Durability::Sync).unwrap();
    assert_eq!(tables.each_ref().map(|table| rows(&db, table)), before);
}
