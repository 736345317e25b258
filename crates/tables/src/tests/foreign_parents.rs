//! Foreign keys to parents that are not unique: an index that begins with the columns, or a primary
//! key of more columns.

use super::foreign::refused;
use super::*;
use crate::ForeignKeyView;
use crate::ReferenceAction::{Cascade, SetNull};
use ValueRef::{Int, Null};
use evenkeel_base::Code;

/// How the rows with one value of `v` are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// An index of `v` alone.
    Same,
    /// An index that begins with `v`, descending.
    Longer,
    /// A unique index of more columns.
    Unique,
    /// The primary key begins with `v`.
    Primary,
}

pub(super) const SHAPES: [Shape; 4] = [Shape::Same, Shape::Longer, Shape::Unique, Shape::Primary];

fn int(name: &str) -> ColumnSpec {
    ColumnSpec::new(name, ColumnType::Int64)
}

impl Shape {
    /// (id int, v int, w int), with a key that begins with `v`; `v` takes NULL unless the primary
    /// key has it.
    pub(super) fn parents(self) -> TableSpec {
        let v = if self == Shape::Primary { int("v") } else { int("v").nullable() };
        let spec = TableSpec::new().column(int("id")).column(v).column(int("w"));
        match self {
            Shape::Same => spec.primary_key(&["id"]).index(IndexSpec::new("by_v", &["v"])),
            Shape::Longer => {
                spec.primary_key(&["id"]).index(IndexSpec::new("by_v", &["v desc", "w"]))
            }
            Shape::Unique => {
                spec.primary_key(&["id"]).index(IndexSpec::new("by_v", &["v", "id"]).unique())
            }
            Shape::Primary => spec.primary_key(&["v", "id"]),
        }
    }

    /// The primary key of a parent.
    pub(super) fn at(self, id: i64, v: i64) -> Vec<ValueRef<'static>> {
        match self {
            Shape::Primary => vec![Int(v), Int(id)],
            _ => vec![Int(id)],
        }
    }
}

/// (id int primary key, up int null), with this key of `up`.
pub(super) fn children(key: ForeignKeySpec) -> TableSpec {
    TableSpec::new()
        .column(int("id"))
        .column(int("up").nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_up", &["up", "id"]))
        .foreign_key(key)
}

pub(super) fn key() -> ForeignKeySpec {
    ForeignKeySpec::new("up", &["up"], "p", &["v"])
}

fn brief() -> Db {
    Db::create(Arc::new(MemEnv::new()), Sizes { lock_wait: Duration::from_millis(200), ..SMALL })
}

/// Parents 1 and 2 have the value 5, parent 3 has 6.
fn family(db: &Db, shape: Shape, key: ForeignKeySpec) -> [Arc<Table>; 2] {
    let parents = db.store.create_table("p", &shape.parents()).unwrap();
    let children = db.store.create_table("c", &children(key)).unwrap();
    let mut txn = db.begin();
    for (id, v) in [(1, 5), (2, 5), (3, 6)] {
        txn.insert(&parents, &[Int(id), Int(v), Int(id)]).unwrap();
    }
    commit(txn);
    [parents, children]
}

fn ups(txn: &mut TableTxn, children: &Arc<Table>) -> Vec<(Value, Value)> {
    check_indexes(txn, children);
    let rows = all_rows(txn, children, Direction::Forward);
    rows.iter().map(|row| (row[0].clone(), row[1].clone())).collect()
}

#[test]
fn a_child_needs_one_row_and_holds_all_of_them() {
    for shape in SHAPES {
        let db = Db::new();
        let [parents, children] = family(&db, shape, key());
        let mut txn = db.begin();
        txn.insert(&children, &[Int(1), Int(5)]).unwrap();
        txn.insert(&children, &[Int(2), Null]).unwrap();
        refused(txn.insert(&children, &[Int(3), Int(4)]), Code::ParentRowMissing, &["key=Int(4)"]);
        // The values of the key stay, whatever else changes.
        txn.update(&parents, &shape.at(1, 5), &[(2, Int(9))]).unwrap();
        txn.update(&parents, &shape.at(1, 5), &[(0, Int(10))]).unwrap();
        for id in [10, 2] {
            let at = shape.at(id, 5);
            refused(txn.delete(&parents, &at), Code::RowReferenced, &["child=c", "key=Int(5)"]);
            refused(txn.update(&parents, &at, &[(1, Int(7))]), Code::RowReferenced, &["Int(5)"]);
        }
        assert!(txn.delete(&parents, &shape.at(3, 6)).unwrap());
        refused(txn.insert(&children, &[Int(3), Int(6)]), Code::ParentRowMissing, &["key=Int(6)"]);
        assert!(txn.delete(&children, &[Int(1)]).unwrap());
        assert!(txn.delete(&parents, &shape.at(10, 5)).unwrap());
        txn.insert(&children, &[Int(1), Int(5)]).unwrap();
        assert!(txn.delete(&children, &[Int(1)]).unwrap());
        assert!(txn.delete(&parents, &shape.at(2, 5)).unwrap());
        refused(txn.insert(&children, &[Int(1), Int(5)]), Code::ParentRowMissing, &["key=Int(5)"]);
        check_indexes(&mut txn, &parents);
        commit(txn);
        let report = db.store.check_table("c").unwrap();
        assert_eq!((report.problems.len(), report.rows_without_parent), (0, 0), "{shape:?}");
    }
}

#[test]
fn parents_without_a_value_are_nobodys() {
    let db = Db::new();
    let [parents, children] = family(&db, Shape::Longer, key());
    let mut txn = db.begin();
    txn.insert(&parents, &[Int(7), Null, Int(0)]).unwrap();
    txn.insert(&children, &[Int(1), Null]).unwrap();
    assert!(txn.delete(&parents, &[Int(7)]).unwrap());
    txn.insert(&children, &[Int(2), Int(6)]).unwrap();
    refused(txn.update(&parents, &[Int(3)], &[(1, Null)]), Code::RowReferenced, &["key=Int(6)"]);
    txn.update(&children, &[Int(2)], &[(1, Null)]).unwrap();
    txn.update(&parents, &[Int(3)], &[(1, Null)]).unwrap();
    refused(txn.insert(&children, &[Int(3), Int(6)]), Code::ParentRowMissing, &[]);
    commit(txn);
    // A value that the child's column does not take.
    let mut strict = super::foreign_parents::children(key().on_update(Cascade));
    strict.columns[1].nullable = false;
    strict.foreign_keys[0].name = "strict".to_string();
    let strict = db.store.create_table("strict", &strict).unwrap();
    let mut txn = db.begin();
    txn.insert(&strict, &[Int(1), Int(5)]).unwrap();
    refused(
        txn.update(&parents, &[Int(1)], &[(1, Null)]),
        Code::RowReferenced,
        &["does not fit", "column=up"],
    );
    check_indexes(&mut txn, &strict);
}

/// One of several rows cascades, although another one has the same values: so does InnoDB.
#[test]
fn each_of_several_parents_cascades() {
    for shape in SHAPES {
        let db = Db::new();
        let cascades = key().on_delete(Cascade).on_update(Cascade);
        let [parents, children] = family(&db, shape, cascades);
        let mut txn = db.begin();
        for (id, up) in [(1, 5), (2, 5), (3, 6)] {
            txn.insert(&children, &[Int(id), Int(up)]).unwrap();
        }
        assert!(txn.update(&parents, &shape.at(2, 5), &[(1, Int(8))]).unwrap());
        let now = [(1, 8), (2, 8), (3, 6)].map(|(id, up)| (Value::Int(id), Value::Int(up)));
        assert_eq!(ups(&mut txn, &children), now, "{shape:?}");
        txn.insert(&children, &[Int(4), Int(5)]).unwrap();
        txn.insert(&parents, &[Int(4), Int(8), Int(0)]).unwrap();
        assert!(txn.delete(&parents, &shape.at(4, 8)).unwrap());
        let now = [(3, 6), (4, 5)].map(|(id, up)| (Value::Int(id), Value::Int(up)));
        assert_eq!(ups(&mut txn, &children), now, "{shape:?}");
    }
    let db = Db::new();
    let [parents, children] = family(&db, Shape::Longer, key().on_delete(SetNull));
    let mut txn = db.begin();
    txn.insert(&children, &[Int(1), Int(5)]).unwrap();
    assert!(txn.delete(&parents, &[Int(1)]).unwrap());
    assert_eq!(ups(&mut txn, &children), [(Value::Int(1), Value::Null)]);
}

#[test]
fn rows_refer_to_rows_of_their_own_table() {
    let db = Db::new();
    let spec = TableSpec::new()
        .column(int("id"))
        .column(int("v").nullable())
        .column(int("up").nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_v", &["v", "id"]))
        .index(IndexSpec::new("by_up", &["up"]))
        .foreign_key(ForeignKeySpec::new("up", &["up"], "t", &["v"]));
    let t = db.store.create_table("t", &spec).unwrap();
    let mut txn = db.begin();
    txn.insert(&t, &[Int(1), Int(5), Int(5)]).unwrap();
    txn.insert(&t, &[Int(2), Int(5), Null]).unwrap();
    refused(txn.insert(&t, &[Int(3), Int(6), Int(7)]), Code::ParentRowMissing, &["key=Int(7)"]);
    refused(txn.delete(&t, &[Int(2)]), Code::RowReferenced, &["key=Int(5)"]);
    assert!(txn.delete(&t, &[Int(1)]).unwrap());
    assert!(txn.delete(&t, &[Int(2)]).unwrap());
    refused(txn.insert(&t, &[Int(4), Int(6), Int(5)]), Code::ParentRowMissing, &["key=Int(5)"]);
}

/// The second one is made while a key of the first one waits for it.
#[test]
fn two_tables_refer_to_each_other() {
    let db = Db::new();
    let spec = |name: &str, parent: &str| {
        let key = ForeignKeySpec::new(name, &["up"], parent, &["id"]);
        children(ForeignKeySpec { may_await: true, ..key })
    };
    let a = db.store.create_table("a", &spec("to_b", "b")).unwrap();
    let b = db.store.create_table("b", &spec("to_a", "a")).unwrap();
    let mut txn = db.begin();
    txn.insert(&a, &[Int(1), Null]).unwrap();
    txn.insert(&b, &[Int(2), Int(1)]).unwrap();
    txn.update(&a, &[Int(1)], &[(1, Int(2))]).unwrap();
    refused(txn.insert(&a, &[Int(3), Int(3)]), Code::ParentRowMissing, &["to_b"]);
    refused(txn.delete(&a, &[Int(1)]), Code::RowReferenced, &["to_a"]);
    refused(txn.delete(&b, &[Int(2)]), Code::RowReferenced, &["to_b"]);
}

/// An undecided parent row is waited for only if there is no other one.
#[test]
fn undecided_parents_are_waited_for_if_there_is_no_other() {
    for shape in SHAPES {
        let db = brief();
        let [parents, children] = family(&db, shape, key());
        let mut deletes = db.begin();
        assert!(deletes.delete(&parents, &shape.at(1, 5)).unwrap());
        let mut refers = db.begin();
        refers.insert(&children, &[Int(1), Int(5)]).unwrap();
        refused(refers.delete(&parents, &shape.at(1, 5)), Code::LockWaitTimeout, &[]);
        // It has the value, and cannot leave before the child is decided.
        refused(deletes.delete(&parents, &shape.at(2, 5)), Code::LockWaitTimeout, &[]);
        refers.rollback().unwrap();
        assert!(deletes.delete(&parents, &shape.at(2, 5)).unwrap());
        let mut refers = db.begin();
        refused(refers.insert(&children, &[Int(1), Int(5)]), Code::LockWaitTimeout, &[]);
        deletes.rollback().unwrap();
        refers.insert(&children, &[Int(1), Int(5)]).unwrap();
        commit(refers);
        // Rows of its own count before they are decided, those of others do not.
        let mut own = db.begin();
        own.insert(&parents, &[Int(4), Int(7), Int(0)]).unwrap();
        own.insert(&children, &[Int(2), Int(7)]).unwrap();
        refused(db.begin().insert(&children, &[Int(3), Int(7)]), Code::LockWaitTimeout, &[]);
        own.rollback().unwrap();
        refused(db.begin().insert(&children, &[Int(3), Int(7)]), Code::ParentRowMissing, &[]);
    }
}

/// The key of the rows stays, so nobody waits.
#[test]
fn other_columns_of_a_parent_are_changed_while_rows_refer_to_it() {
    let db = brief();
    let [parents, children] = family(&db, Shape::Primary, key());
    let mut changes = db.begin();
    changes.update(&parents, &[Int(6), Int(3)], &[(2, Int(9))]).unwrap();
    let mut refers = db.begin();
    refers.insert(&children, &[Int(1), Int(6)]).unwrap();
    changes.update(&parents, &[Int(6), Int(3)], &[(2, Int(10))]).unwrap();
    commit(changes);
    commit(refers);
}

#[test]
fn a_key_is_added_to_rows_with_several_parents() {
    for shape in SHAPES {
        let db = Db::new();
        let parents = db.store.create_table("p", &shape.parents()).unwrap();
        let strangers = TableSpec { foreign_keys: Vec::new(), ..children(key()) };
        let child = db.store.create_table("c", &strangers).unwrap();
        let mut txn = db.begin();
        for id in 0..400 {
            txn.insert(&parents, &[Int(id), Int(id / 4 * 2), Int(0)]).unwrap();
            txn.insert(&child, &[Int(id), Int(id % 100 * 2)]).unwrap();
        }
        txn.insert(&child, &[Int(400), Null]).unwrap();
        commit(txn);
        let add = || db.store.add_foreign_keys("c", &[key()], true, &BuildProgress::default());
        for orphan in [-1, 1, 99, 197, 199, 1000] {
            let mut txn = db.begin();
            txn.insert(&child, &[Int(1000), Int(orphan)]).unwrap();
            commit(txn);
            let named = format!("key=Int({orphan})");
            refused(add(), Code::ParentRowMissing, &["table=c", "parent=p", &named]);
            let mut txn = db.begin();
            assert!(txn.delete(&child, &[Int(1000)]).unwrap());
            commit(txn);
        }
        add().unwrap();
        let mut txn = db.begin();
        refused(txn.insert(&child, &[Int(500), Int(3)]), Code::ParentRowMissing, &["up"]);
        refused(txn.delete(&parents, &shape.at(9, 4)), Code::RowReferenced, &["key=Int(4)"]);
        // Without checks rows lose their parents, and the check says so.
        txn.set_foreign_key_checks(false);
        for id in 8..12 {
            assert!(txn.delete(&parents, &shape.at(id, 4)).unwrap());
        }
        txn.insert(&child, &[Int(500), Int(3)]).unwrap();
        commit(txn);
        let report = db.store.check_table("c").unwrap();
        assert_eq!(report.rows_without_parent, 5, "{shape:?}: {:?}", report.problems);
    }
}

#[test]
fn schema_changes_leave_an_index_that_begins_with_the_columns() {
    let db = Db::new();
    let [parents, children] = family(&db, Shape::Longer, key());
    let store = &db.store;
    let mut txn = db.begin();
    txn.insert(&children, &[Int(1), Int(5)]).unwrap();
    commit(txn);
    refused(store.drop_index("p", "by_v"), Code::ForeignKeyNeeds, &["constraint=up", "begins"]);
    refused(store.drop_table("p"), Code::ForeignKeyNeeds, &[]);
    refused(store.truncate_table("p"), Code::ForeignKeyNeeds, &[]);
    // Another one takes its place; one with the beginning of a column would not.
    let other = IndexSpec::new("other", &["w", "v"]);
    let serves = IndexSpec::new("serves", &["v", "id"]).unique();
    let index_of = |table: &Arc<Table>| {
        let mut name = String::new();
        let mut see = |key: &ForeignKeyView<'_>| {
            name = key.parent_index.unwrap_or("primary").to_string();
        };
        store.foreign_keys(&table.layout().def.name, false, &mut see).unwrap();
        name
    };
    store.add_indexes("p", &[other], &BuildProgress::default()).unwrap();
    refused(store.drop_index("p", "by_v"), Code::ForeignKeyNeeds, &["begins"]);
    store.add_indexes("p", &[serves], &BuildProgress::default()).unwrap();
    assert_eq!(index_of(&children), "by_v");
    store.drop_index("p", "by_v").unwrap();
    assert_eq!(index_of(&children), "serves");
    refused(store.drop_index("p", "serves"), Code::ForeignKeyNeeds, &["constraint=up"]);
    let mut txn = db.begin();
    txn.insert(&children, &[Int(2), Int(6)]).unwrap();
    refused(txn.insert(&children, &[Int(3), Int(7)]), Code::ParentRowMissing, &["key=Int(7)"]);
    refused(txn.delete(&parents, &[Int(2)]), Code::RowReferenced, &["key=Int(5)"]);
    commit(txn);
    let of = |spec: TableSpec, name: &str| {
        store.create_table(name, &spec).unwrap();
        let key = ForeignKeySpec::new("k", &["t"], name, &["t"]);
        let bytes = ColumnSpec::new("t", ColumnType::Bytes { max: 30 });
        let child = TableSpec::new().column(bytes).index(IndexSpec::new("by_t", &["t"]));
        store.create_table(&format!("of_{name}"), &child.foreign_key(key)).map(drop)
    };
    let columns = |part: &str, prefix: u32| {
        let bytes = |name| ColumnSpec::new(name, ColumnType::Bytes { max: 30 });
        let mut index = IndexSpec::new("by_t", &["t", "u"]);
        for of in index.parts.iter_mut().filter(|of| of.column == part) {
            of.prefix = prefix;
        }
        TableSpec::new().column(bytes("t")).column(bytes("u")).index(index)
    };
    refused(of(columns("t", 5), "short"), Code::ForeignKeyInvalid, &["begins"]);
    of(columns("u", 5), "whole").unwrap();
}
