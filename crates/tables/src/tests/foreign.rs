//! Foreign keys: which rows and schema changes they refuse, and which transactions wait for each
//! other.

use super::*;
use ValueRef::{Int, Null, Text};
use evenkeel_base::{Code, Error};

fn column(name: &str, ty: ColumnType) -> ColumnSpec {
    ColumnSpec::new(name, ty)
}

/// (id int primary key, code text unique null, n int).
pub(super) fn parent_spec() -> TableSpec {
    TableSpec::new()
        .column(column("id", ColumnType::Int64))
        .column(column("code", ColumnType::Text { max: 20 }).nullable())
        .column(column("n", ColumnType::Int32))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_code", &["code"]).unique())
}

/// (id int primary key, parent int null, code text null), keys on both.
pub(super) fn child_spec() -> TableSpec {
    TableSpec::new()
        .column(column("id", ColumnType::Int64))
        .column(column("parent", ColumnType::Int64).nullable())
        .column(column("code", ColumnType::Text { max: 30 }).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_parent", &["parent"]))
        .index(IndexSpec::new("by_code", &["code desc", "id"]))
        .foreign_key(ForeignKeySpec::new("to_id", &["parent"], "p", &["id"]))
        .foreign_key(ForeignKeySpec::new("to_code", &["code"], "p", &["code"]))
}

fn family(db: &Db) -> (Arc<Table>, Arc<Table>) {
    let parent = db.store.create_table("p", &parent_spec()).unwrap();
    let child = db.store.create_table("c", &child_spec()).unwrap();
    let mut txn = db.begin();
    for (id, code) in [(1, "one"), (2, "two"), (3, "three")] {
        txn.insert(&parent, &[Int(id), Text(code), Int(0)]).unwrap();
    }
    commit(txn);
    (parent, child)
}

pub(super) fn refused<T: std::fmt::Debug>(done: Result<T>, code: Code, names: &[&str]) -> Error {
    let error = done.expect_err("is refused");
    assert_eq!(error.code(), code, "{error}");
    let text = error.to_string();
    names.iter().for_each(|name| assert!(text.contains(name), "{name}: {text}"));
    error
}

#[test]
fn a_row_refers_to_a_parent_row_or_to_nothing() {
    let db = Db::new();
    let (_, child) = family(&db);
    let mut txn = db.begin();
    txn.insert(&child, &[Int(1), Int(1), Text("two")]).unwrap();
    txn.insert(&child, &[Int(2), Null, Text("one")]).unwrap();
    txn.insert(&child, &[Int(3), Null, Null]).unwrap();
    let missing = txn.insert(&child, &[Int(4), Int(9), Null]);
    let names = ["table=c", "constraint=to_id", "parent=p", "key=Int(9)"];
    refused(missing, Code::ParentRowMissing, &names);
    let missing = txn.insert(&child, &[Int(4), Int(1), Text("four")]);
    refused(missing, Code::ParentRowMissing, &["constraint=to_code", "key=", "four"]);
    // No parent can have so long a key.
    let long = "x".repeat(25);
    let missing = txn.insert(&child, &[Int(4), Int(1), Text(&long)]);
    refused(missing, Code::ParentRowMissing, &["constraint=to_code"]);
    refused(txn.update(&child, &[Int(1)], &[(1, Int(8))]), Code::ParentRowMissing, &["key=Int(8)"]);
    txn.update(&child, &[Int(1)], &[(1, Int(2)), (2, Null)]).unwrap();
    txn.update(&child, &[Int(1)], &[(0, Int(11))]).unwrap();
    let values: Vec<Value> = [Int(5), Int(7), Null].into_iter().map(ValueRef::to_owned).collect();
    let rows = [[Int(6), Int(3), Null], [values[0].as_ref(), values[1].as_ref(), Null]];
    let many = txn.insert_many(&child, rows.iter().map(|row| &row[..]));
    refused(many, Code::ParentRowMissing, &["key=Int(7)"]);
    let rows = all_rows(&mut txn, &child, Direction::Forward);
    let ids: Vec<_> = rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!(ids, [2, 3, 11].map(Value::Int));
    // A duplicate counts before a missing parent.
    assert!(!txn.insert_or_ignore(&child, &[Int(11), Int(9), Null]).unwrap());
    assert!(!txn.upsert(&child, &[Int(11), Int(9), Null], &[(1, Int(3))]).unwrap());
    refused(txn.insert(&child, &[Int(11), Int(9), Null]), Code::DuplicateKey, &["primary"]);
    check_indexes(&mut txn, &child);
}

#[test]
fn a_parent_row_stays_while_rows_refer_to_it() {
    let db = Db::new();
    let (parent, child) = family(&db);
    let mut txn = db.begin();
    txn.insert(&child, &[Int(1), Int(1), Text("two")]).unwrap();
    let names = ["table=p", "constraint=to_id", "child=c", "key=Int(1)"];
    refused(txn.delete(&parent, &[Int(1)]), Code::RowReferenced, &names);
    refused(txn.delete(&parent, &[Int(2)]), Code::RowReferenced, &["to_code", "two"]);
    refused(txn.update(&parent, &[Int(1)], &[(0, Int(4))]), Code::RowReferenced, &["key=Int(1)"]);
    let change = [(1, Text("zwei"))];
    refused(txn.update(&parent, &[Int(2)], &change), Code::RowReferenced, &["to_code"]);
    refused(txn.update(&parent, &[Int(2)], &[(1, Null)]), Code::RowReferenced, &["to_code"]);
    // Neither key changes, or only one to which no row refers.
    txn.update(&parent, &[Int(2)], &[(2, Int(5))]).unwrap();
    txn.update(&parent, &[Int(2)], &[(0, Int(20)), (2, Int(6))]).unwrap();
    txn.update(&parent, &[Int(1)], &[(1, Text("uno"))]).unwrap();
    assert!(txn.delete(&parent, &[Int(3)]).unwrap());
    assert!(txn.delete(&child, &[Int(1)]).unwrap());
    assert!(txn.delete(&parent, &[Int(1)]).unwrap());
    assert!(txn.delete(&parent, &[Int(20)]).unwrap());
    assert_eq!(all_rows(&mut txn, &parent, Direction::Forward).len(), 0);
    check_indexes(&mut txn, &parent);
}

#[test]
fn without_checks_rows_are_written_and_deleted() {
    let db = Db::new();
    let (parent, child) = family(&db);
    let mut txn = db.begin();
    txn.set_foreign_key_checks(false);
    txn.insert(&child, &[Int(1), Int(9), Null]).unwrap();
    txn.insert(&child, &[Int(2), Int(1), Null]).unwrap();
    assert!(txn.delete(&parent, &[Int(1)]).unwrap());
    txn.set_foreign_key_checks(true);
    // What is wrong already may stay.
    txn.update(&child, &[Int(1)], &[(2, Text("two"))]).unwrap();
    refused(txn.update(&child, &[Int(1)], &[(1, Int(8))]), Code::ParentRowMissing, &[]);
}

#[test]
fn a_row_refers_to_itself() {
    let db = Db::new();
    let spec = TableSpec::new()
        .column(column("id", ColumnType::Int64))
        .column(column("boss", ColumnType::Int64).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_boss", &["boss"]))
        .foreign_key(ForeignKeySpec::new("boss", &["boss"], "staff", &["id"]));
    let staff = db.store.create_table("staff", &spec).unwrap();
    let mut txn = db.begin();
    txn.insert(&staff, &[Int(1), Int(1)]).unwrap();
    refused(txn.insert(&staff, &[Int(2), Int(3)]), Code::ParentRowMissing, &["key=Int(3)"]);
    txn.insert(&staff, &[Int(2), Int(1)]).unwrap();
    refused(txn.delete(&staff, &[Int(1)]), Code::RowReferenced, &["table=staff", "child=staff"]);
    txn.delete(&staff, &[Int(2)]).unwrap();
    txn.update(&staff, &[Int(1)], &[(0, Int(5)), (1, Int(5))]).unwrap();
    txn.delete(&staff, &[Int(5)]).unwrap();
    commit(txn);
    db.store.truncate_table("staff").unwrap();
    db.store.drop_table("staff").unwrap();
}

/// The key is a part of both primary keys, in another order.
#[test]
fn keys_of_several_columns_use_primary_keys() {
    let db = Db::new();
    let spec = |primary: &[&str]| {
        let columns = ["w", "d", "o", "n"].map(|name| column(name, ColumnType::Int16));
        columns.into_iter().fold(TableSpec::new(), TableSpec::column).primary_key(primary)
    };
    let orders = db.store.create_table("orders", &spec(&["w", "d", "o"])).unwrap();
    let lines = spec(&["d", "w", "o", "n"]);
    let key = ForeignKeySpec::new("of", &["o", "w", "d"], "orders", &["o", "w", "d"]);
    let lines = db.store.create_table("lines", &lines.foreign_key(key)).unwrap();
    let mut txn = db.begin();
    txn.insert(&orders, &[Int(1), Int(2), Int(3), Int(0)]).unwrap();
    txn.insert(&orders, &[Int(1), Int(2), Int(4), Int(0)]).unwrap();
    let missing = txn.insert(&lines, &[Int(2), Int(1), Int(3), Int(7)]);
    refused(missing, Code::ParentRowMissing, &["key=Int(3), Int(2), Int(1)"]);
    txn.insert(&lines, &[Int(1), Int(2), Int(3), Int(7)]).unwrap();
    txn.insert(&lines, &[Int(1), Int(2), Int(3), Int(8)]).unwrap();
    let key = |o| [Int(1), Int(2), Int(o)];
    refused(txn.delete(&orders, &key(3)), Code::RowReferenced, &["key=Int(3), Int(1), Int(2)"]);
    assert!(txn.delete(&orders, &key(4)).unwrap());
    for n in [7, 8] {
        assert!(txn.delete(&lines, &[Int(2), Int(1), Int(3), Int(n)]).unwrap());
    }
    assert!(txn.delete(&orders, &key(3)).unwrap());
}

/// A child's lock is on the parent's key: it neither waits for nor conflicts with a change of the
/// parent's other columns.
#[test]
fn a_parent_row_is_changed_while_rows_refer_to_it() {
    let db = Db::create(
        Arc::new(MemEnv::new()),
        Sizes { lock_wait: Duration::from_millis(300), ..SMALL },
    );
    let (parent, child) = family(&db);
    let (mut changes, mut refers) = (db.begin(), db.begin());
    refers.take_snapshot().unwrap();
    changes.update(&parent, &[Int(1)], &[(2, Int(5))]).unwrap();
    refers.insert(&child, &[Int(1), Int(1), Text("one")]).unwrap();
    changes.update(&parent, &[Int(1)], &[(2, Int(6))]).unwrap();
    commit(changes);
    refers.insert(&child, &[Int(2), Int(1), Text("one")]).unwrap();
    // The row of an undecided transaction is not there yet, and may not be deleted either.
    let mut other = db.begin();
    other.insert(&parent, &[Int(4), Text("four"), Int(0)]).unwrap();
    let waits = refers.insert(&child, &[Int(3), Int(4), Null]);
    refused(waits, Code::LockWaitTimeout, &[]);
    let waits = refers.insert(&child, &[Int(3), Null, Text("four")]);
    refused(waits, Code::LockWaitTimeout, &[]);
    refused(other.delete(&parent, &[Int(1)]), Code::LockWaitTimeout, &[]);
    commit(refers);
    refused(other.delete(&parent, &[Int(1)]), Code::RowReferenced, &[]);
    commit(other);
    // A prepared row stands for its lock.
    let mut prepares = db.begin();
    prepares.insert(&child, &[Int(3), Int(4), Null]).unwrap();
    prepares.prepare(b"x").unwrap();
    refused(db.begin().delete(&parent, &[Int(4)]), Code::LockWaitTimeout, &[]);
    db.store.commit_prepared(b"x", Durability::Sync).unwrap();
    refused(db.begin().delete(&parent, &[Int(4)]), Code::RowReferenced, &[]);
}

#[test]
fn impossible_keys_are_refused_at_creation() {
    let db = Db::new();
    family(&db);
    let columns = ["k", "n"].map(|name| column(name, ColumnType::Int64));
    let second = columns.into_iter().fold(TableSpec::new(), TableSpec::column);
    let second = second.index(IndexSpec::new("n", &["k desc", "n"]).unique());
    db.store.create_table("q", &second).unwrap();
    let create = |change: &dyn Fn(TableSpec) -> TableSpec| {
        db.store.create_table("x", &change(child_spec())).map(|_| ())
    };
    let with = |key: ForeignKeySpec| {
        move |mut spec: TableSpec| {
            spec.foreign_keys = vec![key.clone()];
            spec
        }
    };
    let key = |own: &[&str], parent: &str, of: &[&str]| ForeignKeySpec::new("k", own, parent, of);
    let cases = [
        (key(&["parent"], "nobody", &["id"]), Code::TableMissing, "nobody"),
        (key(&["nobody"], "p", &["id"]), Code::ColumnMissing, "nobody"),
        (key(&["parent"], "p", &["nobody"]), Code::ColumnMissing, "nobody"),
        (key(&["parent"], "p", &["n"]), Code::ForeignKeyInvalid, "type"),
        (key(&["parent"], "p", &["id", "n"]), Code::ForeignKeyInvalid, "parent_columns=2"),
        (key(&[], "p", &[]), Code::ForeignKeyInvalid, "columns=0"),
        (key(&["parent", "parent"], "p", &["id", "n"]), Code::ForeignKeyInvalid, "twice"),
        (key(&["parent"], "q", &["n"]), Code::ForeignKeyInvalid, "no index that begins"),
        (
            ForeignKeySpec { name: String::new(), ..key(&["parent"], "p", &["id"]) },
            Code::NameInvalid,
            "",
        ),
    ];
    for (key, code, name) in cases {
        refused(create(&with(key)), code, &[name]);
    }
    refused(
        create(&|mut spec| {
            spec.indexes.clear();
            spec
        }),
        Code::ForeignKeyInvalid,
        &["no index that begins", "constraint=to_id"],
    );
    let twice =
        |spec: TableSpec| spec.foreign_key(ForeignKeySpec::new("to_id", &["parent"], "p", &["id"]));
    refused(create(&twice), Code::ForeignKeyInvalid, &["exists"]);
    let temporary = db.store.create_temporary_table("x", &child_spec());
    refused(temporary.map(|_| ()), Code::ForeignKeyInvalid, &["temporary"]);
    let most = evenkeel_format::limits::FOREIGN_KEYS_MAX;
    let many = |count: usize| {
        let key = |n| ForeignKeySpec::new(&format!("k{n}"), &["parent"], "p", &["id"]);
        let mut spec = child_spec();
        spec.foreign_keys = (0..count).map(key).collect();
        db.store.create_table("x", &spec).map(|_| ())
    };
    refused(many(most + 1), Code::ForeignKeyInvalid, &["count=65", "limit=64"]);
    many(most).unwrap();
    assert_eq!(db.store.table_names(), ["c", "p", "q", "x"]);
}

#[test]
fn schema_changes_leave_foreign_keys_what_they_need() {
    let db = Db::new();
    let (parent, child) = family(&db);
    let store = &db.store;
    // Two keys refer to it; the first by name is told.
    let names = ["table=p", "constraint=to_code", "child=c"];
    refused(store.drop_table("p"), Code::ForeignKeyNeeds, &names);
    refused(store.truncate_table("p"), Code::ForeignKeyNeeds, &names);
    refused(store.drop_index("p", "by_code"), Code::ForeignKeyNeeds, &["constraint=to_code"]);
    refused(store.drop_index("c", "by_parent"), Code::ForeignKeyNeeds, &["constraint=to_id"]);
    refused(store.drop_column("c", "parent"), Code::ColumnInUse, &[]);
    let change = TableChange {
        drop_indexes: vec!["by_parent".into()],
        drop_columns: vec!["parent".into()],
        ..TableChange::default()
    };
    refused(store.alter_table("c", &change), Code::ForeignKeyNeeds, &["constraint=to_id"]);
    let rows = [[Value::Int(1), Value::Null, Value::Null]];
    let load = store.load_table("c", rows, &BuildProgress::default());
    refused(load, Code::ForeignKeyNeeds, &["inserted"]);
    let copy = store.copy_into("c", false, &BuildProgress::default()).map(|_| ());
    refused(copy, Code::ForeignKeyNeeds, &["inserted"]);
    // Another index takes the place of the dropped one; names are free.
    store
        .add_indexes("c", &[IndexSpec::new("other", &["parent", "id"])], &BuildProgress::default())
        .unwrap();
    store.drop_index("c", "by_parent").unwrap();
    store.rename_table("p", "mother").unwrap();
    store.rename_column("mother", "id", "number").unwrap();
    store.rename_column("c", "parent", "mother").unwrap();
    let mut txn = db.begin();
    txn.insert(&child, &[Int(1), Int(1), Null]).unwrap();
    refused(txn.insert(&child, &[Int(2), Int(9), Null]), Code::ParentRowMissing, &["=mother"]);
    refused(txn.delete(&parent, &[Int(1)]), Code::RowReferenced, &["table=mother"]);
    drop(txn);
    store.truncate_table("c").unwrap();
    refused(db.begin().insert(&child, &[Int(2), Int(9), Null]), Code::ParentRowMissing, &[]);
    store.drop_table("c").unwrap();
    assert!(db.begin().delete(&parent, &[Int(1)]).unwrap());
    store.drop_index("mother", "by_code").unwrap();
    store.truncate_table("mother").unwrap();
    store.drop_table("mother").unwrap();
}
