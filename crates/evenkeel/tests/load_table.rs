//! Loading an empty table at once: its content afterwards, and that a failed load leaves no trace.

use evenkeel::ValueRef::{Int, Null};
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Direction, IndexSpec, Isolation, Options,
    Range, Row, TableSpec, Value,
};

const ROWS: i64 = 20_000;

fn spec() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64).auto_increment())
        .column(ColumnSpec::new("city", ColumnType::Int32))
        .column(ColumnSpec::new("code", ColumnType::Int64).nullable())
        .column(ColumnSpec::new("name", ColumnType::Text { max: 100 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_city", &["city"]))
        .index(IndexSpec::new("by_name", &["name", "city"]))
        .index(IndexSpec::new("code", &["code"]).unique())
}

fn row(id: i64) -> Vec<Value> {
    let code = if id % 5 == 0 { Value::Null } else { Value::Int(-id) };
    let name = format!("name-{}", id * 7919 % ROWS);
    vec![Value::Int(id), Value::Int(id * 7919 % 101), code, Value::Text(name)]
}

fn open() -> Database {
    let db = Database::open_with("load", Options::in_memory()).expect("open");
    db.create_table("t", &spec()).expect("create");
    db
}

/// Checks the table and its indexes, and that they have this many rows.
fn verify(db: &Database, rows: u64) {
    let check = db.check().expect("check");
    assert_eq!((check.rows, check.problems.len()), (rows, 0), "{:?}", check.problems);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
    for name in ["by_city", "by_name", "code"] {
        let table = txn.table("t").expect("table");
        let index = table.index(name).expect("index").keys_only();
        let mut scan = index.scan(Range::ALL, Direction::Backward).expect("scan");
        let (mut entry, mut count) = (Row::new(), 0);
        while scan.next(&mut entry).expect("entry") {
            count += 1;
        }
        assert_eq!(count, rows, "{name}");
    }
}

#[test]
fn a_loaded_table_behaves_like_any_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = Options::new();
    options.memory_size = 16 << 20;
    let db = Database::open_with(dir.path(), options.clone()).expect("open");
    db.create_table("t", &spec()).expect("create");
    // Rows that were inserted and deleted leave an empty table.
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    txn.table("t").expect("table").insert(&[Int(9), Int(1), Int(-1), Null]).expect_err("no name");
    let name = evenkeel::ValueRef::Text("n");
    txn.table("t").expect("table").insert(&[Int(9), Int(1), Int(-1), name]).expect("insert");
    txn.commit().expect("commit");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    assert!(txn.table("t").expect("table").delete(&[Int(9)]).expect("delete"));
    txn.commit().expect("commit");
    assert_eq!(db.load_table("t", (1..=ROWS).map(row)).expect("load"), ROWS as u64);
    verify(&db, ROWS as u64);
    let error = db.load_table("t", [row(ROWS + 1)]).expect_err("it has rows");
    assert_eq!((error.code(), error.context("table")), (Code::TreeNotEmpty, Some("t")));
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let table = txn.table("t").expect("table");
    let number = table.insert(&[Null, Int(3), Int(7), name]).expect("insert");
    assert!(number > Some(ROWS as u64), "numbers go on above what was loaded: {number:?}");
    let error =
        table.insert(&[Int(ROWS + 9000), Int(3), Int(-7), name]).expect_err("code is taken");
    assert_eq!(error.code(), Code::DuplicateKey);
    assert!(table.delete(&[Int(17)]).expect("delete"));
    assert!(table.update(&[Int(18)], &[(1, Int(5000))]).expect("update"));
    txn.commit().expect("commit");
    verify(&db, ROWS as u64);
    db.close().expect("close");
    let db = Database::open_with(dir.path(), options).expect("open");
    verify(&db, ROWS as u64);
}

#[test]
fn a_failed_load_leaves_nothing() {
    let db = open();
    let wrong = (1..5000).chain([17]).map(row);
    let error = db.load_table("t", wrong).expect_err("not sorted");
    assert_eq!((error.code(), error.context("row")), (Code::RowsNotSorted, Some("4999")));
    verify(&db, 0);
    let twice = (1..5000).map(|id| {
        let mut row = row(id);
        row[2] = Value::Int(id % 4900);
        row
    });
    let error = db.load_table("t", twice).expect_err("a code comes twice");
    assert_eq!((error.code(), error.context("index")), (Code::DuplicateInBuild, Some("code")));
    verify(&db, 0);
    let short = [vec![Value::Int(1)]];
    assert_eq!(db.load_table("t", short).expect_err("a short row").code(), Code::WrongValueCount);
    assert_eq!(db.load_table("t", Vec::<Vec<Value>>::new()).expect("no rows"), 0);
    verify(&db, 0);
    assert_eq!(db.load_table("t", (1..=3).map(row)).expect("load"), 3);
    verify(&db, 3);
}
