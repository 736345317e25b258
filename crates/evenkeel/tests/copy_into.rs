//! Rows copied into a new table: in key order and in any other order, duplicates, and an abandoned
//! copy; and that the memory used does not grow with the rows.

use evenkeel::{
    Access, BuildProgress, Code, ColumnSpec, ColumnType, Database, IndexSpec, Isolation, Metric,
    Options, Row, TableCopy, TableSpec, Value, ValueRef,
};

const ROWS: i64 = 20_000;

fn spec() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("city", ColumnType::Int32))
        .column(ColumnSpec::new("code", ColumnType::Int64).nullable())
        .column(ColumnSpec::new("name", ColumnType::Text { max: 100_000 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_city", &["city"]))
        .index(IndexSpec::new("code", &["code"]).unique())
        .index(IndexSpec::new("by_code", &["code", "city"]))
}

fn row(id: i64, name: &str) -> Vec<Value> {
    let code = if id % 5 == 0 { Value::Null } else { Value::Int(-id) };
    vec![Value::Int(id), Value::Int(id * 7919 % 101), code, Value::Text(name.to_string())]
}

fn open() -> Database {
    let db = Database::open_with("copy", Options::in_memory()).expect("open");
    db.create_table("t", &spec()).expect("create");
    db
}

fn begin(db: &Database, leaves_out: bool) -> TableCopy {
    db.copy_into("t", leaves_out, &BuildProgress::default()).expect("begins")
}

fn push(copy: &mut TableCopy, row: &[Value]) -> Result<(), Code> {
    let values: Vec<ValueRef<'_>> = row.iter().map(Value::as_ref).collect();
    copy.push(&values).map_err(|error| error.code())
}

/// Checks the table and its indexes, and that it has this many rows and entries.
fn verify(db: &Database, rows: u64) {
    let check = db.check().expect("check");
    assert_eq!(
        (check.rows, check.entries, check.problems.len()),
        (rows, 3 * rows, 0),
        "{:?}",
        check.problems
    );
    let def = db.definition("t").expect("definition");
    let mut names: Vec<_> = def.indexes.iter().map(|index| index.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["by_city", "by_code", "code"]);
}

fn metric(db: &Database, metric: Metric) -> u64 {
    db.stats().get(metric)
}

#[test]
fn rows_in_order_are_loaded() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path()).expect("open");
    db.create_table("t", &spec()).expect("create");
    let before = (metric(&db, Metric::MemtableEntries), metric(&db, Metric::RowsInserted));
    let mut copy = begin(&db, false);
    for id in 0..ROWS {
        push(&mut copy, &row(id, "name")).expect("a row");
    }
    let undo = metric(&db, Metric::UndoBytes);
    assert!(copy.rows() == ROWS as u64 && undo < 10_000, "{undo} bytes of undo");
    copy.finish().expect("ends");
    drop(copy);
    assert_eq!(metric(&db, Metric::RowsLoaded), ROWS as u64);
    let after = (metric(&db, Metric::MemtableEntries), metric(&db, Metric::RowsInserted));
    assert_eq!(after.0 - before.0, 0, "entries of the table's indexes");
    assert!(after.1 - before.1 < 100, "rows of the catalog alone");
    verify(&db, ROWS as u64);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let taken: Vec<Value> = row(ROWS + 1, "n");
    let mut values: Vec<ValueRef<'_>> = taken.iter().map(Value::as_ref).collect();
    values[2] = ValueRef::Int(-7);
    let error = txn.table("t").expect("table").insert(&values).expect_err("code 7 is taken");
    assert_eq!((error.code(), error.context("index")), (Code::DuplicateKey, Some("code")));
    drop(txn);
    db.close().expect("close");
    let db = Database::open(dir.path()).expect("open");
    verify(&db, ROWS as u64);
}

#[test]
fn rows_from_a_long_one_on_are_inserted_in_small_transactions() {
    let db = open();
    let mut copy = begin(&db, false);
    let long = "long ".repeat(2_000);
    let mut most = 0;
    let commits = metric(&db, Metric::Commits);
    for n in 0..ROWS {
        // In order, sorted, and from the first long row on inserted.
        let id = if n < 500 { n } else { 500 + (n - 500) * 7919 % (ROWS - 500) };
        push(&mut copy, &row(id, if n % 1000 == 700 { &long } else { "n" })).expect("a row");
        most = most.max(metric(&db, Metric::UndoBytes));
    }
    assert!(most > 0 && most < 1 << 20, "{most} bytes of undo");
    copy.finish().expect("ends");
    let commits = metric(&db, Metric::Commits) - commits;
    assert!((20..40).contains(&commits), "{commits} commits");
    assert_eq!(metric(&db, Metric::RowsLoaded), 700);
    verify(&db, ROWS as u64);
}

#[test]
fn a_copy_reports_duplicates_at_its_end() {
    for of_primary in [false, true] {
        let db = open();
        let progress = BuildProgress::default();
        let mut copy = db.copy_into("t", false, &progress).expect("begins");
        for id in 0..3_000 {
            push(&mut copy, &row(id, "n")).expect("a row");
        }
        let mut twice = row(if of_primary { 17 } else { 9_000 }, "other");
        twice[2] = Value::Int(-8);
        push(&mut copy, &twice).expect("seen at the end");
        push(&mut copy, &row(20_000, "n")).expect("a row");
        let error = copy.finish().expect_err("a key comes twice");
        let expected = match of_primary {
            true => (Code::DuplicateKey, Some("primary")),
            false => (Code::DuplicateInBuild, Some("code")),
        };
        assert_eq!((error.code(), error.context("index")), expected);
        // The row that the error names can be shown.
        let (table, key) = (progress.duplicate_in(), progress.duplicate());
        assert_eq!(table, "t");
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
        let mut shown = Row::new();
        assert!(txn.table("t").expect("table").get_by_key(&key, &mut shown).expect("get"));
        drop(shown);
        drop(txn);
        drop(copy);
        db.drop_table("t").expect("it goes");
        assert!(db.check().expect("check").problems.is_empty());
    }
}

#[test]
fn rows_in_any_order_are_sorted() {
    for (memory, ascending) in [(16 << 20, 0), (64 << 20, 9_000), (64 << 20, ROWS - 1)] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = Options::new();
        options.memory_size = memory;
        let db = Database::open_with(dir.path(), options).expect("open");
        db.create_table("t", &spec()).expect("create");
        let long = "a name of some length ".repeat(30);
        let mut copy = begin(&db, false);
        let mut most = 0;
        for n in 0..ROWS {
            let id = if n < ascending { n + ROWS } else { n * 7919 % ROWS };
            if n >= ascending && n * 7919 % ROWS == 0 && n > 0 {
                continue;
            }
            push(&mut copy, &row(id, &long)).expect("a row");
            most = most.max(metric(&db, Metric::UndoBytes));
        }
        let rows = copy.rows();
        copy.finish().expect("ends");
        drop(copy);
        assert!(most < 10_000, "{most} bytes of undo");
        assert_eq!(metric(&db, Metric::RowsLoaded), rows);
        verify(&db, rows);
        // No file of the sort is left.
        let def = db.definition("t").expect("definition");
        assert_eq!(def.indexes.len(), 3);
        db.close().expect("close");
        let runs = std::fs::read_dir(dir.path().join("runs")).expect("runs").count();
        assert!(runs < 30, "{runs} files of runs");
    }
}

#[test]
fn a_copy_that_skips_rows_checks_unique_keys_row_by_row() {
    let db = open();
    let mut copy = begin(&db, true);
    assert_eq!(copy.late_indexes().collect::<Vec<_>>(), ["by_city", "by_code"]);
    for id in 0..3_000 {
        push(&mut copy, &row(id, "n")).expect("a row");
    }
    let mut twice = row(9_000, "n");
    twice[2] = Value::Int(-8);
    assert_eq!(push(&mut copy, &twice), Err(Code::DuplicateKey));
    assert_eq!(push(&mut copy, &row(8, "n")), Err(Code::DuplicateKey));
    copy.finish().expect("ends");
    drop(copy);
    verify(&db, 3_000);
}

#[test]
fn an_abandoned_copy_leaves_a_table_that_can_be_dropped() {
    for rows in [0, 2_500] {
        for order in [1, -1] {
            for cancels in [true, false] {
                let db = open();
                let progress = BuildProgress::default();
                let mut copy = db.copy_into("t", false, &progress).expect("begins");
                for id in 0..rows {
                    push(&mut copy, &row(id * order, "n")).expect("a row");
                }
                if cancels {
                    progress.cancel();
                    let error = copy.finish().expect_err("it was cancelled");
                    assert_eq!(error.code(), Code::BuildCancelled);
                }
                drop(copy);
                let check = db.check().expect("check");
                assert!(check.problems.is_empty(), "{:?}", check.problems);
                db.drop_table("t").expect("it goes");
                assert!(db.tables().is_empty());
            }
        }
    }
}

#[test]
fn a_table_with_rows_is_refused() {
    let db = open();
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let one: Vec<Value> = row(1, "n");
    let values: Vec<ValueRef<'_>> = one.iter().map(Value::as_ref).collect();
    txn.table("t").expect("table").insert(&values).expect("insert");
    txn.commit().expect("commit");
    let error = db.copy_into("t", false, &BuildProgress::default()).err().expect("it has a row");
    assert_eq!(error.code(), Code::TreeNotEmpty);
    verify(&db, 1);
}
