//! Foreign keys whose parent does not exist yet, is dropped, or is replaced by a copy: who refuses
//! what, and that a crash at any write leaves each schema change done or not done.

use evenkeel::ValueRef::{Int, Null};
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Error, ForeignKeySpec, IndexSpec, Isolation,
    Options, SchemaWait, TableRename, TableSpec, Txn,
};
use evenkeel_io::Env;
use evenkeel_io::sim::{CrashPolicy, SimEnv, catch_crash};
use std::sync::Arc;

fn parents(key: ColumnType) -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", key))
        .column(ColumnSpec::new("other", ColumnType::Int64).nullable())
        .primary_key(&["id"])
}

fn children(parent: &str) -> TableSpec {
    let mut key = ForeignKeySpec::new("of", &["parent"], parent, &["id"]);
    key.may_await = true;
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("parent", ColumnType::Int64).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_parent", &["parent"]))
        .foreign_key(key)
}

fn open(env: Arc<dyn Env>) -> Database {
    Database::open_with("db", Options::new().env(env)).expect("opens")
}

fn run(db: &Database, statement: impl FnOnce(&Txn) -> Result<(), Error>) -> Result<(), Error> {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    statement(&txn)?;
    txn.commit().map(|_| ())
}

fn insert_child(db: &Database, id: i64, parent: i64) -> Result<(), Error> {
    run(db, |txn| txn.table("c")?.insert(&[Int(id), Int(parent)]).map(|_| ()))
}

fn insert_parent(db: &Database, table: &str, id: i64) {
    run(db, |txn| txn.table(table)?.insert(&[Int(id), Null]).map(|_| ())).expect("inserts");
}

fn unforced<'a>() -> SchemaWait<'a> {
    SchemaWait::default()
}

fn forced<'a>() -> SchemaWait<'a> {
    let mut wait = SchemaWait::default();
    wait.leaves_children = true;
    wait
}

/// The parents of the child's key: a table, or a name that is awaited.
fn parent_of(db: &Database) -> (String, bool) {
    let mut found = Vec::new();
    db.foreign_keys("c", false, &mut |view| {
        let awaited = view.key.awaited.as_ref().map(|awaited| awaited.table.clone());
        let parent = view.parent.map(|parent| parent.name.clone());
        found.push((awaited.clone().or(parent).expect("one of both"), awaited.is_some()));
    })
    .expect("there");
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn refused<T: std::fmt::Debug>(done: Result<T, Error>, code: Code, names: &[&str]) {
    let error = done.expect_err("is refused");
    assert_eq!(error.code(), code, "{error}");
    let text = error.to_string();
    names.iter().for_each(|name| assert!(text.contains(name), "{name}: {text}"));
}

/// The new parent has itself a key to the table that waits for it.
#[test]
fn tables_that_refer_to_each_other_are_made_one_after_the_other() {
    let db = open(SimEnv::new(1).env());
    let back = ForeignKeySpec::new("back", &["other"], "c", &["id"]);
    let both = parents(ColumnType::Int64).index(IndexSpec::new("by_other", &["other"]));
    db.create_table("c", &children("p")).expect("creates");
    db.create_table("p", &both.clone().foreign_key(back)).expect("creates");
    assert_eq!(parent_of(&db), ("p".to_string(), false));
    refused(insert_child(&db, 1, 1), Code::ParentRowMissing, &["constraint=of"]);
    insert_parent(&db, "p", 1);
    insert_child(&db, 1, 1).expect("its parent is there");
    let change =
        |to: i64| run(&db, |txn| txn.table("p")?.update(&[Int(1)], &[(1, Int(to))]).map(|_| ()));
    refused(change(2), Code::ParentRowMissing, &["constraint=back"]);
    change(1).expect("its parent is there");
    let delete = run(&db, |txn| txn.table("c")?.delete(&[Int(1)]).map(|_| ()));
    refused(delete, Code::RowReferenced, &["constraint=back"]);
    assert!(db.check().expect("checks").problems.is_empty());
}

#[test]
fn a_key_waits_for_its_parent() {
    let db = open(SimEnv::new(1).env());
    let strict = children("p").foreign_keys.remove(0);
    let strict = TableSpec { foreign_keys: vec![strict], ..children("p") };
    let mut at_once = strict.clone();
    at_once.foreign_keys[0].may_await = false;
    refused(db.create_table("c", &at_once), Code::TableMissing, &["p"]);
    db.create_table("c", &strict).expect("creates");
    assert_eq!(parent_of(&db), ("p".to_string(), true));
    refused(insert_child(&db, 1, 1), Code::ParentRowMissing, &["constraint=of", "parent=p"]);
    run(&db, |txn| txn.table("c")?.insert(&[Int(1), Null]).map(|_| ())).expect("refers to nothing");
    // A table that lacks what the key needs does not get the name.
    let wrong = db.create_table("p", &parents(ColumnType::Int32));
    refused(wrong, Code::ForeignKeyInvalid, &["constraint=of", "child=c", "type"]);
    let keyless = TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64));
    refused(db.create_table("p", &keyless), Code::ForeignKeyInvalid, &["no primary key"]);
    db.create_table("q", &parents(ColumnType::Int32)).expect("another name");
    refused(db.rename_table("q", "p"), Code::ForeignKeyInvalid, &["constraint=of"]);
    db.create_table("p", &parents(ColumnType::Int64)).expect("creates");
    assert_eq!(parent_of(&db), ("p".to_string(), false));
    refused(insert_child(&db, 2, 1), Code::ParentRowMissing, &["key=Int(1)"]);
    insert_parent(&db, "p", 1);
    insert_child(&db, 2, 1).expect("its parent is there");
    refused(db.drop_table("p"), Code::ForeignKeyNeeds, &["constraint=of", "child=c"]);
    refused(db.truncate("p"), Code::ForeignKeyNeeds, &["child=c"]);
    db.truncate_with("p", &forced()).expect("empties");
    assert_eq!(db.check_table("c").expect("checks").rows_without_parent, 1);
    db.drop_table_with("p", &forced()).expect("drops");
    assert_eq!(parent_of(&db), ("p".to_string(), true));
    assert_eq!(db.check_table("c").expect("checks").rows_without_parent, 1);
    refused(insert_child(&db, 3, 1), Code::ParentRowMissing, &["parent=p"]);
    db.create_table("r", &parents(ColumnType::Int64)).expect("creates");
    insert_parent(&db, "r", 1);
    db.rename_table("r", "p").expect("renames");
    insert_child(&db, 3, 1).expect("its parent is there");
    let delete = run(&db, |txn| txn.table("p")?.delete(&[Int(1)]).map(|_| ()));
    refused(delete, Code::RowReferenced, &["child=c"]);
    assert_eq!(db.check().expect("checks").problems, Vec::<String>::new());
    db.drop_table("c").expect("drops");
    db.drop_table("p").expect("nothing refers to it");
}

#[test]
fn a_copy_takes_the_place_of_a_parent() {
    let db = open(SimEnv::new(2).env());
    db.create_table("p", &parents(ColumnType::Int64)).expect("creates");
    db.create_table("c", &children("p")).expect("creates");
    db.create_table("copy", &parents(ColumnType::Int64)).expect("creates");
    db.create_table("other", &parents(ColumnType::Int32)).expect("creates");
    insert_parent(&db, "p", 1);
    insert_parent(&db, "copy", 1);
    insert_child(&db, 1, 1).expect("its parent is there");
    db.check_replacement("p", "copy").expect("has what the key needs");
    refused(db.check_replacement("p", "other"), Code::ForeignKeyInvalid, &["constraint=of"]);
    db.rename_table("p", "old").expect("renames");
    assert_eq!(parent_of(&db), ("old".to_string(), false));
    let names = [("of".to_string(), "unused".to_string())];
    let rename = |from| TableRename { from, to: "p", replaced: Some("old"), foreign_keys: &names };
    let wrong = db.rename_table_as(&rename("other"), &unforced());
    refused(wrong, Code::ForeignKeyInvalid, &["constraint=of", "type"]);
    db.rename_table_as(&rename("copy"), &unforced()).expect("replaces");
    assert_eq!(parent_of(&db), ("p".to_string(), false));
    db.drop_table("old").expect("nothing refers to it");
    let delete = run(&db, |txn| txn.table("p")?.delete(&[Int(1)]).map(|_| ()));
    refused(delete, Code::RowReferenced, &["table=p", "child=c"]);
    refused(insert_child(&db, 2, 2), Code::ParentRowMissing, &["parent=p"]);
    // A key of the renamed table itself gets its new name.
    let names = [("of".to_string(), "to_p".to_string())];
    let rename = TableRename { from: "c", to: "d", replaced: None, foreign_keys: &names };
    db.rename_table_as(&rename, &unforced()).expect("renames");
    assert_eq!(db.definition("d").expect("there").foreign_keys[0].name, "to_p");
    let insert = run(&db, |txn| txn.table("d")?.insert(&[Int(2), Int(2)]).map(|_| ()));
    refused(insert, Code::ParentRowMissing, &["constraint=to_p"]);
    let delete = run(&db, |txn| txn.table("p")?.delete(&[Int(1)]).map(|_| ()));
    refused(delete, Code::RowReferenced, &["constraint=to_p", "child=d"]);
    assert_eq!(db.check().expect("checks").problems, Vec::<String>::new());
}

/// What a crash may leave: names of tables, and the parent of the key, if its table is there.
fn state(db: &Database) -> String {
    let tables = db.tables();
    let parent = tables.iter().any(|table| table == "c").then(|| parent_of(db));
    format!("{tables:?} {parent:?}")
}

type Step = fn(&Database) -> Result<(), Error>;

const STEPS: [Step; 8] = [
    |db| db.create_table("c", &children("p")),
    |db| db.create_table("p", &parents(ColumnType::Int64)),
    |db| db.create_table("copy", &parents(ColumnType::Int64)),
    |db| db.rename_table("p", "old"),
    |db| {
        let (from, to, replaced) = ("copy", "p", Some("old"));
        db.rename_table_as(
            &TableRename { from, to, replaced, foreign_keys: &[] },
            &SchemaWait::default(),
        )
    },
    |db| db.drop_table("old"),
    |db| db.drop_table_with("p", &forced()),
    |db| db.create_table("p", &parents(ColumnType::Int64)),
];

#[test]
fn a_crash_leaves_each_change_done_or_not_done() {
    // The states behind each step.
    let db = open(SimEnv::new(3).env());
    let mut states = vec![state(&db)];
    for step in STEPS {
        step(&db).expect("is possible");
        states.push(state(&db));
    }
    drop(db);
    let (mut crashes, mut between) = (0, 0);
    for call in 1u64.. {
        let sim = SimEnv::new(3);
        let db = open(sim.env());
        sim.disk().crash_at_change(sim.disk().changes() + call);
        let mut done = 0;
        let ended = catch_crash(|| {
            for step in STEPS {
                if step(&db).is_err() {
                    break;
                }
                done += 1;
            }
        });
        if ended.is_some() && !sim.disk().is_crashed() {
            assert_eq!(done, STEPS.len());
            break;
        }
        std::mem::forget(db);
        crashes += 1;
        let sim = sim.crash(CrashPolicy::LoseAll, call);
        let db = open(sim.env());
        let left = state(&db);
        let next = states.get(done + 1);
        assert!(
            left == states[done] || Some(&left) == next,
            "crash at {call}, {done} steps done: {left}, not {} or {next:?}",
            states[done]
        );
        between += usize::from(Some(&left) == next);
        assert_eq!(db.check().expect("checks").problems, Vec::<String>::new(), "crash at {call}");
    }
    println!("crashes: {crashes}, of them with the step under way done: {between}");
    assert!(crashes > 20, "{crashes}");
}
