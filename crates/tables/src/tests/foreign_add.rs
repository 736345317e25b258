//! Foreign keys that are added to tables with rows, and dropped ones.

use super::foreign::{child_spec, parent_spec, refused};
use super::*;
use ValueRef::{Int, Null, Text};
use evenkeel_base::Code;

fn without_keys(mut spec: TableSpec) -> TableSpec {
    spec.foreign_keys.clear();
    spec
}

/// Parents 1, 2, 3 with codes "one", "two", "three"; children of these, without foreign keys.
fn strangers(db: &Db) -> (Arc<Table>, Arc<Table>) {
    let parent = db.store.create_table("p", &parent_spec()).unwrap();
    let child = db.store.create_table("c", &without_keys(child_spec())).unwrap();
    let mut txn = db.begin();
    for (id, code) in [(1, "one"), (2, "two"), (3, "three")] {
        txn.insert(&parent, &[Int(id), Text(code), Int(0)]).unwrap();
    }
    for id in 0..600 {
        let code = [Text("three"), Null, Text("one")][id as usize % 3];
        txn.insert(&child, &[Int(id), Int(1 + id % 2), code]).unwrap();
    }
    txn.insert(&child, &[Int(600), Null, Null]).unwrap();
    commit(txn);
    (parent, child)
}

fn keys() -> Vec<ForeignKeySpec> {
    child_spec().foreign_keys
}

fn add(db: &Db, specs: &[ForeignKeySpec]) -> Result<()> {
    db.store.add_foreign_keys("c", specs, true, &BuildProgress::default())
}

fn names(table: &Table) -> Vec<String> {
    table.layout().def.foreign_keys.iter().map(|key| key.name.clone()).collect()
}

#[test]
fn a_key_is_added_to_rows_that_keep_it() {
    let db = Db::new();
    let (parent, child) = strangers(&db);
    let progress = BuildProgress::default();
    db.store.add_foreign_keys("c", &keys(), true, &progress).unwrap();
    assert_eq!((progress.share(), progress.rows_done()), (1.0, 1202));
    assert_eq!(names(&child), ["to_id", "to_code"]);
    let mut txn = db.begin();
    refused(txn.insert(&child, &[Int(700), Int(9), Null]), Code::ParentRowMissing, &["to_id"]);
    refused(txn.delete(&parent, &[Int(1)]), Code::RowReferenced, &["to_id"]);
    refused(txn.delete(&parent, &[Int(3)]), Code::RowReferenced, &["to_code"]);
    let rows = [[Int(701), Int(9), Null], [Int(702), Int(1), Null]];
    let many = txn.insert_many(&child, rows.iter().map(|row| &row[..]));
    refused(many, Code::ParentRowMissing, &["to_id"]);
    commit(txn);
    refused(add(&db, &keys()[..1]), Code::ForeignKeyInvalid, &["exists"]);
    // Dropped keys are not enforced, and their numbers are free.
    db.store.drop_foreign_key("c", "to_id").unwrap();
    refused(db.store.drop_foreign_key("c", "to_id"), Code::ForeignKeyMissing, &["table=c"]);
    let mut txn = db.begin();
    txn.insert(&child, &[Int(700), Int(9), Null]).unwrap();
    refused(txn.insert(&child, &[Int(701), Null, Text("x")]), Code::ParentRowMissing, &[]);
    commit(txn);
    let change = TableChange {
        drop_foreign_keys: vec!["to_code".into()],
        drop_indexes: vec!["by_code".into()],
        ..TableChange::default()
    };
    db.store.alter_table("c", &change).unwrap();
    assert!(names(&child).is_empty());
    db.store.drop_table("p").unwrap();
}

#[test]
fn a_row_without_a_parent_fails_the_addition_and_is_named() {
    let db = Db::new();
    let (parent, child) = strangers(&db);
    let mut txn = db.begin();
    txn.insert(&child, &[Int(601), Int(2), Text("four")]).unwrap();
    commit(txn);
    let named = ["table=c", "constraint=to_code", "parent=p", "four", "primary_key=Int(601)"];
    refused(add(&db, &keys()), Code::ParentRowMissing, &named);
    // Neither key is left.
    assert!(names(&child).is_empty());
    let mut txn = db.begin();
    txn.insert(&child, &[Int(602), Int(9), Null]).unwrap();
    assert!(txn.delete(&parent, &[Int(1)]).unwrap());
    drop(txn);
    // Without a look at the rows it is there, and the check names the row.
    let progress = BuildProgress::default();
    db.store.add_foreign_keys("c", &keys(), false, &progress).unwrap();
    let report = db.store.check_table("c").unwrap();
    assert_eq!(report.rows_without_parent, 1, "{:?}", report.problems);
}

/// The first half enforces the keys; they end with the second half, or without it.
#[test]
fn a_proved_key_is_enforced_until_it_is_forgotten() {
    let db = Db::new();
    let (parent, child) = strangers(&db);
    let prove = || db.store.prove_foreign_keys("c", &keys(), true, &BuildProgress::default());
    prove().unwrap();
    assert!(names(&child).is_empty());
    refused(db.begin().insert(&child, &[Int(700), Int(9), Null]), Code::ParentRowMissing, &[]);
    refused(db.store.drop_table("p"), Code::ForeignKeyNeeds, &["to_code"]);
    refused(db.store.drop_index("p", "by_code"), Code::ForeignKeyNeeds, &["to_code"]);
    refused(db.store.drop_foreign_key("c", "to_id"), Code::ForeignKeyMissing, &[]);
    refused(prove(), Code::ForeignKeyInvalid, &["is being added"]);
    db.store.forget_foreign_keys("c").unwrap();
    assert!(db.begin().delete(&parent, &[Int(1)]).unwrap());
    prove().unwrap();
    let change = TableChange {
        add_foreign_keys: vec!["to_code".into()],
        rename_columns: vec![("code".into(), "sign".into())],
        ..TableChange::default()
    };
    db.store.alter_table("c", &change).unwrap();
    db.store.forget_foreign_keys("c").unwrap();
    assert_eq!(names(&child), ["to_code"]);
    let mut txn = db.begin();
    txn.insert(&child, &[Int(700), Int(9), Null]).unwrap();
    refused(txn.insert(&child, &[Int(701), Null, Text("x")]), Code::ParentRowMissing, &[]);
    let unknown = TableChange { add_foreign_keys: vec!["x".into()], ..TableChange::default() };
    refused(db.store.alter_table("c", &unknown), Code::ForeignKeyMissing, &["constraint=x"]);
}

/// Keys in another order, descending and with NULLs: the child's bytes become the parent's.
#[test]
fn keys_of_other_orders_are_proved() {
    let db = Db::new();
    let int = |name: &str| ColumnSpec::new(name, ColumnType::Int16);
    let text = |name: &str, max| ColumnSpec::new(name, ColumnType::Text { max });
    let parents = TableSpec::new()
        .column(int("a"))
        .column(text("b", 8).nullable())
        .column(int("c"))
        .primary_key(&["a", "c"])
        .index(IndexSpec::new("by", &["c desc", "b", "a desc"]).unique());
    let children = TableSpec::new()
        .column(int("id"))
        .column(int("x").nullable())
        .column(text("y", 9))
        .column(int("z").nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by", &["y desc", "x", "z desc", "id"]))
        .index(IndexSpec::new("short", &["z", "x desc"]));
    let parent = db.store.create_table("p", &parents).unwrap();
    let child = db.store.create_table("c", &children).unwrap();
    let mut txn = db.begin();
    let texts = ["", "a", "a\0", "a\0b", "b"];
    let mut id = 0;
    for a in -3..3 {
        for (c, b) in (0..5).zip(texts) {
            txn.insert(&parent, &[Int(a), Text(b), Int(c)]).unwrap();
            for z in [Int(c), Null] {
                id += 1;
                txn.insert(&child, &[Int(id), Int(a), Text(b), z]).unwrap();
            }
        }
    }
    commit(txn);
    let key = |own: &[&str], of: &[&str]| [ForeignKeySpec::new("k", own, "p", of)];
    let (long, short) = (key(&["x", "y", "z"], &["a", "b", "c"]), key(&["x", "z"], &["a", "c"]));
    for key in [&long, &short] {
        add(&db, key).unwrap();
        db.store.drop_foreign_key("c", "k").unwrap();
    }
    let mut txn = db.begin();
    txn.insert(&child, &[Int(0), Int(-3), Text("a\0c"), Int(3)]).unwrap();
    commit(txn);
    add(&db, &short).unwrap();
    db.store.drop_foreign_key("c", "k").unwrap();
    refused(add(&db, &long), Code::ParentRowMissing, &["primary_key=Int(0)", "key=Int(-3), "]);
    // The child's clustered key, and a table that refers to itself.
    let tree = TableSpec::new()
        .column(int("up"))
        .column(int("id"))
        .primary_key(&["up", "id"])
        .index(IndexSpec::new("by_id", &["id desc"]).unique());
    let tree = db.store.create_table("c2", &tree).unwrap();
    let mut txn = db.begin();
    (1..9).for_each(|id| {
        txn.insert(&tree, &[Int(id / 2), Int(id)]).unwrap();
    });
    commit(txn);
    let own = [ForeignKeySpec::new("own", &["up"], "c2", &["id"])];
    let added = |db: &Db| db.store.add_foreign_keys("c2", &own, true, &BuildProgress::default());
    refused(added(&db), Code::ParentRowMissing, &["primary_key=Int(0), Int(1)", "key=Int(0)"]);
    let mut txn = db.begin();
    txn.insert(&tree, &[Int(0), Int(0)]).unwrap();
    commit(txn);
    added(&db).unwrap();
}

/// The addition waits for transactions that wrote before it; a cancellation ends it.
#[test]
fn an_addition_waits_for_earlier_writers_and_is_cancelled() {
    let sizes = Sizes { lock_wait: Duration::from_millis(200), ..SMALL };
    let db = Db::create(Arc::new(MemEnv::new()), sizes);
    let (parent, child) = strangers(&db);
    let mut txn = db.begin();
    txn.insert(&child, &[Int(700), Int(9), Null]).unwrap();
    refused(add(&db, &keys()), Code::TableBusy, &["table=c"]);
    assert!(txn.delete(&parent, &[Int(1)]).unwrap());
    let progress = BuildProgress::default();
    progress.set_lock_wait(Duration::from_secs(60));
    std::thread::scope(|scope| {
        let adds = scope.spawn(|| db.store.add_foreign_keys("c", &keys(), true, &progress));
        db.store.wait_build(&progress, BuildPhase::Idle, Duration::from_secs(60));
        assert_eq!(progress.phase(), BuildPhase::Waiting);
        // Enforced already.
        let other = db.begin().insert(&child, &[Int(701), Int(9), Null]);
        refused(other, Code::ParentRowMissing, &[]);
        progress.cancel();
        refused(adds.join().unwrap(), Code::BuildCancelled, &[]);
    });
    commit(txn);
    refused(add(&db, &keys()), Code::ParentRowMissing, &["constraint=to_id"]);
    assert!(names(&child).is_empty());
}
