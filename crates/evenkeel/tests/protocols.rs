//! Failures that the protocols exist to prevent, seen from outside the library
//! (`docs/internals/protocol-tests.md`).

use evenkeel::ValueRef::{Int, Text};
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Direction, Geometry, IndexSpec, Isolation,
    LockWait, Options, Range, Row, TableSpec, Txn, Value,
};
use evenkeel_io::sim::{CrashPolicy, SimEnv};

fn spec() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("name", ColumnType::Text { max: 100 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_name", &["name"]))
}

/// Small enough for memtables to be flushed within a test.
fn options(sim: &SimEnv) -> Options {
    let geometry = Geometry { generation_bytes: Some(64 << 10), ..Geometry::default() };
    Options::new().env(sim.env()).geometry(geometry)
}

fn begin(db: &Database) -> Txn {
    db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin")
}

fn insert(txn: &mut Txn, ids: std::ops::Range<i64>, name: &str) {
    let table = txn.table("t").expect("table");
    for id in ids {
        table.insert(&[Int(id), Text(name)]).expect("insert");
    }
}

/// (name, id) of every entry of the index, read from the index alone.
fn entries(db: &Database) -> Vec<(String, i64)> {
    let txn = begin(db);
    let index = txn.table("t").expect("table").index("by_name").expect("index");
    let mut scan = index.keys_only().scan(Range::ALL, Direction::Forward).expect("scan");
    let (mut row, mut found) = (Row::new(), Vec::new());
    while scan.next(&mut row).expect("entry") {
        match (row.value("name").expect("name").to_owned(), row.value("id").expect("id")) {
            (Value::Text(name), Int(id)) => found.push((name, id)),
            other => panic!("{other:?}"),
        }
    }
    found
}

fn rows(db: &Database) -> Vec<(String, i64)> {
    let txn = begin(db);
    let mut scan =
        txn.table("t").expect("table").scan(Range::ALL, Direction::Forward).expect("scan");
    let (mut row, mut found) = (Row::new(), Vec::new());
    while scan.next(&mut row).expect("row") {
        match (row.value("name").expect("name").to_owned(), row.value("id").expect("id")) {
            (Value::Text(name), Int(id)) => found.push((name, id)),
            other => panic!("{other:?}"),
        }
    }
    found.sort();
    found
}

/// Runs `before` on a new database, cuts the power, and runs `after` on the recovered database.
fn crash_between(before: fn(&Database), after: fn(&Database)) {
    let sim = SimEnv::new(1);
    let (opts, disk) = (options(&sim), sim.disk().clone());
    sim.run(vec![Box::new(move || {
        let db = Database::open_with("simulated", opts).expect("open");
        db.create_table("t", &spec()).expect("create");
        before(&db);
        disk.crash_now();
        std::mem::forget(db);
    })]);
    let sim = sim.crash(CrashPolicy::LoseAll, 1);
    let opts = options(&sim);
    let (send, end) = std::sync::mpsc::channel();
    sim.run(vec![Box::new(move || {
        let db = Database::open_with("simulated", opts).expect("recover");
        assert!(!db.recovery().clean);
        after(&db);
        let _ = send.send(());
    })]);
    end.try_recv().expect("the check after the crash ran");
}

/// A1: a statement is rolled back and its transaction commits; neither log replay nor entries in
/// runs bring the statement's changes back.
#[test]
fn a_rolled_back_statement_stays_dead_after_a_crash() {
    fn work(db: &Database, checkpoint: bool) {
        let mut txn = begin(db);
        insert(&mut txn, 0..10, "kept");
        txn.savepoint("s").expect("savepoint");
        // Enough for several generations: some entries are in runs, undecided.
        insert(&mut txn, 10..2500, "gone");
        let renamed = [(1, Text("renamed"))];
        txn.table("t").expect("table").update(&[Int(3)], &renamed).expect("update");
        txn.rollback_to("s").expect("rollback");
        insert(&mut txn, 5000..5010, "kept");
        if checkpoint {
            db.checkpoint().expect("checkpoint");
        }
        txn.commit().expect("commit");
        assert_eq!(entries(db), rows(db));
    }
    fn check(db: &Database) {
        let kept: Vec<_> = (0..10).chain(5000..5010).map(|id| ("kept".to_string(), id)).collect();
        assert_eq!(rows(db), kept);
        assert_eq!(entries(db), kept);
        let report = db.check().expect("check");
        assert_eq!(report.problems.len(), 0, "{:?}", report.problems);
    }
    crash_between(|db| work(db, false), check);
    crash_between(|db| work(db, true), check);
}

/// A4: a change of bytes that a collation would not distinguish reaches the index.
#[test]
fn a_change_of_case_changes_the_index() {
    fn work(db: &Database) {
        let mut txn = begin(db);
        insert(&mut txn, 0..3, "anna");
        txn.commit().expect("commit");
        for (id, name) in [(0, "Anna"), (1, "anna "), (2, "ann\u{e4}")] {
            let txn = begin(db);
            let changes = [(1, Text(name))];
            assert!(txn.table("t").expect("table").update(&[Int(id)], &changes).expect("update"));
            txn.commit().expect("commit");
        }
        check(db);
    }
    fn check(db: &Database) {
        let expected = [("Anna", 0), ("anna ", 1), ("ann\u{e4}", 2)];
        assert_eq!(entries(db), expected.map(|(name, id)| (name.to_string(), id)));
        assert_eq!(rows(db), entries(db));
    }
    crash_between(work, check);
}

/// A transaction that has waited for a lock counts the rows that it then sees: if the lock were
/// released at prepare, it would not see the row inserted under the lock, and both would insert
/// (RFC 15).
#[test]
fn a_prepared_transaction_keeps_its_locks_until_it_is_decided() {
    let sim = SimEnv::new(4);
    let db = Database::open_with("/db", options(&sim)).expect("opens");
    db.create_table("t", &spec()).expect("table");
    let mut txn = begin(&db);
    insert(&mut txn, 1..2, "parent");
    txn.commit().expect("commits");
    let lock = |txn: &mut Txn, wait| {
        txn.table("t").expect("table").get_for_update(&[Int(1)], wait, &mut Row::new())
    };
    let mut a = begin(&db);
    assert!(lock(&mut a, LockWait::NoWait).expect("locks"));
    insert(&mut a, 10..11, "child");
    assert!(a.prepare(b"a").expect("prepares"));
    let mut b = begin(&db);
    b.set_lock_wait(std::time::Duration::ZERO);
    let refused = [LockWait::NoWait, LockWait::Wait].map(|w| lock(&mut b, w).unwrap_err().code());
    assert_eq!(refused, [Code::LockNotAvailable, Code::LockWaitTimeout]);
    assert_eq!(rows(&db).len(), 1);
    db.commit_prepared(b"a").expect("commits");
    assert!(lock(&mut b, LockWait::NoWait).expect("locks"));
    assert_eq!(rows(&db).len(), 2, "what was inserted under the lock is seen with it");
    b.rollback().expect("rolls back");
    assert!(db.locks(10).is_empty());

    // A restart forgets locks without changes; changed rows stay locked.
    let mut a = begin(&db);
    assert!(lock(&mut a, LockWait::NoWait).expect("locks"));
    insert(&mut a, 11..12, "child");
    assert!(a.prepare(b"a").expect("prepares"));
    db.close().expect("closes");
    let db = Database::open_with("/db", options(&sim)).expect("opens");
    let mut b = begin(&db);
    b.set_lock_wait(std::time::Duration::ZERO);
    assert!(lock(&mut b, LockWait::NoWait).expect("not durable"));
    let table = b.table("t").expect("table");
    let error = table.insert(&[Int(11), Text("child")]).expect_err("its stamp is its lock");
    assert_eq!(error.code(), Code::LockWaitTimeout);
    b.rollback().expect("rolls back");
    db.rollback_prepared(b"a").expect("rolls back");
}
