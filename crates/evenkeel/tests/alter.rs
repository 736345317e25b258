//! Several changes of a table at once, and the figures that an open database shows.

use evenkeel::ValueRef::{Bytes, Int, Null};
use evenkeel::{
    Access, CheckStage, Code, ColumnSpec, ColumnType, Database, IndexSpec, Isolation, Options,
    PROVISIONAL, Phase, Row, SchemaWait, TableChange, TableSpec,
};
use evenkeel_format::limits::INDEXES_MAX;
use std::time::Duration;

fn made(db: &Database) {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("a", ColumnType::Int32).nullable())
        .column(ColumnSpec::new("b", ColumnType::Bytes { max: 3 }).nullable())
        .column(ColumnSpec::new("c", ColumnType::Int32).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_a", &["a"]))
        .index(IndexSpec::new("by_b", &["b"]));
    db.create_table("t", &spec).expect("makes");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    for id in 0..100i64 {
        txn.table("t")
            .expect("is there")
            .insert(&[Int(id), Int(id % 7), Bytes(b"xyz"), Int(1)])
            .expect("fits");
    }
    txn.commit().expect("commits");
}

fn names(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect()
}

fn all() -> TableChange {
    TableChange {
        drop_indexes: vec!["by_a".into()],
        rename_indexes: names(&[("by_b", "by_a")]),
        drop_columns: vec!["c".into()],
        rename_columns: names(&[("a", "b"), ("b", "a")]),
        widen_columns: vec![("a".into(), 10)],
        add_columns: vec![
            ColumnSpec::new("c", ColumnType::Int64).nullable(),
            ColumnSpec::new("d", ColumnType::Bytes { max: 5 }).default_value(&b"new"[..]),
        ],
        ..TableChange::default()
    }
}

#[test]
fn a_table_change_is_atomic_and_durable() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Database::open(dir.path()).expect("opens");
    made(&db);
    let before = db.definition("t").expect("is there");
    let number = db.table_info("t").expect("is there").definition;
    // The last part fails: no part is in force.
    let mut bad = all();
    bad.add_columns.push(ColumnSpec::new("b", ColumnType::Int64).nullable());
    let error = db.alter_table("t", &bad).expect_err("b is there twice");
    assert_eq!(error.code(), Code::ColumnExists);
    assert_eq!(db.definition("t").expect("is there"), before);
    for (change, code) in [
        (TableChange { drop_columns: vec!["b".into()], ..Default::default() }, Code::ColumnInUse),
        (TableChange { drop_indexes: vec!["no".into()], ..Default::default() }, Code::IndexMissing),
        (
            TableChange { rename_indexes: names(&[("by_a", "by_b")]), ..Default::default() },
            Code::IndexExists,
        ),
        (
            TableChange { widen_columns: vec![("b".into(), 2)], ..Default::default() },
            Code::DefinitionInvalid,
        ),
    ] {
        assert_eq!(db.alter_table("t", &change).expect_err("refused").code(), code);
    }
    assert_eq!(db.table_info("t").expect("is there").definition, number);
    db.alter_table("t", &all()).expect("changes");
    let after = db.table_info("t").expect("is there");
    assert_ne!(after.definition, number);
    db.close().expect("closes");

    let db = Database::open(dir.path()).expect("opens");
    assert_eq!(db.table_info("t").expect("is there"), after);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let table = txn.table("t").expect("is there");
    let row = table.get(&[Int(9)]).expect("reads").expect("is there");
    let shown: Vec<_> =
        ["id", "b", "a", "c", "d"].iter().map(|c| row.value(c).expect("c")).collect();
    assert_eq!(shown, [Int(9), Int(2), Bytes(b"xyz"), Null, Bytes(b"new")]);
    table.insert(&[Int(500), Int(1), Bytes(b"0123456789"), Int(5), Bytes(b"")]).expect("fits now");
    let mut scan = table
        .index("by_a")
        .expect("is there")
        .scan(evenkeel::Range::ALL, evenkeel::Direction::Forward)
        .expect("scans");
    let (mut row, mut rows) = (Row::new(), 0);
    while scan.next(&mut row).expect("reads") {
        rows += 1;
    }
    assert_eq!(rows, 101);
    drop(scan);
    txn.commit().expect("commits");
    let report = db.check_table("t").expect("checks");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(report.rows, 101);
}

#[test]
fn a_column_of_the_primary_key_grows_as_long_as_its_keys_fit_a_page() {
    let db = Database::open_with("/wider", Options::in_memory()).expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("name", ColumnType::Bytes { max: 3 }))
        .column(ColumnSpec::new("town", ColumnType::Bytes { max: 3 }))
        .primary_key(&["name", "town"])
        .index(IndexSpec::new("by_town", &["town"]));
    db.create_table("t", &spec).expect("makes");
    let insert = |name: &[u8]| {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
        txn.table("t").expect("is there").insert(&[Bytes(name), Bytes(b"x")])?;
        txn.commit()
    };
    insert(b"abc").expect("fits");
    let widen = |to: &[(&str, u32)]| TableChange {
        widen_columns: to.iter().map(|(name, max)| (name.to_string(), *max)).collect(),
        ..TableChange::default()
    };
    let may = |to: &[(&str, u32)]| db.may_widen("t", &widen(to).widen_columns).expect("looks");
    assert!(may(&[("name", 200)]) && may(&[("town", 200)]) && !may(&[("name", 2000)]));
    assert!(!may(&[("name", 2)]), "shorter");
    // Each of them alone would fit, both do not.
    let (one, both) = ([("name", 400)], [("name", 400), ("town", 400)]);
    assert!(may(&one) && !may(&both));
    let error = db.alter_table("t", &widen(&both)).expect_err("too long");
    assert_eq!(error.code(), Code::DefinitionInvalid);
    assert!(error.to_string().contains("limit"), "{error}");
    insert(b"abcd").expect_err("nothing has changed");
    db.alter_table("t", &widen(&one)).expect("grows");
    insert(&[b'z'; 400]).expect("fits now");
    insert(b"abc").expect_err("found by the key it had before");
    let report = db.check_table("t").expect("checks");
    assert!(report.problems.is_empty() && report.rows == 2, "{:?}", report.problems);
}

#[test]
fn provisional_indexes_do_not_count_as_a_change() {
    let db = Database::open_with("/provisional", Options::in_memory()).expect("opens");
    made(&db);
    let number = db.table_info("t").expect("is there").definition;
    let provisional = format!("{PROVISIONAL}by_c");
    db.add_indexes("t", &[IndexSpec::new(&provisional, &["c"])]).expect("builds");
    let info = db.table_info("t").expect("is there");
    assert_eq!((info.definition, info.indexes.len()), (number, 3));
    let rename_indexes = names(&[(provisional.as_str(), "by_c")]);
    let change = TableChange { rename_indexes, ..TableChange::default() };
    assert!(!change.is_empty() && TableChange::default().is_empty());
    db.alter_table("t", &change).expect("renames");
    let changed = db.table_info("t").expect("is there").definition;
    assert_ne!(changed, number);
    // A name of the form that a user may give.
    db.add_indexes("t", &[IndexSpec::new("#by_c", &["c"])]).expect("builds");
    assert_ne!(db.table_info("t").expect("is there").definition, changed);
}

#[test]
fn a_schema_change_waits_until_its_table_is_unused() {
    let db = Database::open_with("/unused", Options::in_memory()).expect("opens");
    made(&db);
    let mut wait = SchemaWait::default();
    wait.timeout = Some(Duration::from_millis(10));
    let waited = || db.wait_unused("t", &wait).map_err(|error| error.code());
    assert_eq!(waited(), Ok(()));
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    txn.table("t").expect("is there").delete(&[Int(1)]).expect("deletes");
    assert_eq!(waited(), Err(Code::TableBusy));
    assert!(txn.prepare(b"x").expect("prepares"));
    assert_eq!(waited(), Err(Code::TableBusy), "a prepared one has no handle and uses it");
    db.rollback_prepared(b"x").expect("rolls back");
    assert_eq!(waited(), Ok(()));
    // A later transaction finds the table as it was.
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    assert!(txn.table("t").expect("is there").get(&[Int(1)]).expect("reads").is_some());
    let error = db.wait_unused("none", &wait).expect_err("no such table");
    assert_eq!(error.code(), Code::TableMissing);
}

#[test]
fn indexes_are_replaced_in_a_table_with_the_most_indexes() {
    let db = Database::open_with("/most", Options::in_memory()).expect("opens");
    made(&db);
    let before = db.table_info("t").expect("is there").indexes.len();
    let more: Vec<_> =
        (before..INDEXES_MAX).map(|i| IndexSpec::new(&format!("i{i}"), &["c"])).collect();
    db.add_indexes("t", &more).expect("builds");
    let error = db.add_indexes("t", &[IndexSpec::new("more", &["c"])]).expect_err("one too many");
    assert_eq!(error.code(), Code::TooManyIndexes);
    let provisional = format!("{PROVISIONAL}other");
    db.add_indexes("t", &[IndexSpec::new(&provisional, &["c"])]).expect("builds");
    let rename_indexes = names(&[(provisional.as_str(), "other")]);
    let mut change = TableChange { rename_indexes, ..TableChange::default() };
    let error = db.alter_table("t", &change).expect_err("one too many");
    assert_eq!(error.code(), Code::TooManyIndexes);
    change.drop_indexes = vec![more[0].name.clone()];
    db.alter_table("t", &change).expect("takes its place");
    assert_eq!(db.table_info("t").expect("is there").indexes.len(), before + more.len());
    let report = db.check_table("t").expect("checks");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn a_check_can_be_cancelled_at_any_moment() {
    let db = Database::open_with("/cancelled", Options::in_memory()).expect("opens");
    made(&db);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    for id in 1000..2000 {
        txn.table("t").expect("is there").insert(&[Int(id), Int(1), Null, Null]).expect("fits");
    }
    txn.commit().expect("commits");
    let looks = std::cell::Cell::new(0);
    let all = |most: u32| {
        looks.set(0);
        db.check_table_until("t", &|_| {
            looks.set(looks.get() + 1);
            looks.get() > most
        })
    };
    assert!(all(u32::MAX).expect("checks").problems.is_empty());
    let asked = looks.get();
    assert!(asked > 10, "{asked}");
    for most in 0..asked {
        assert_eq!(all(most).expect_err("cancelled").code(), Code::StatementCancelled);
    }
}

#[test]
fn a_check_reports_its_progress() {
    let db = Database::open_with("/watched", Options::in_memory()).expect("opens");
    made(&db);
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    for id in 1000..9000 {
        txn.table("t").expect("is there").insert(&[Int(id), Int(1), Null, Null]).expect("fits");
    }
    txn.commit().expect("commits");
    let seen = std::cell::RefCell::new(Vec::new());
    let watch = |now: evenkeel::CheckProgress| {
        seen.borrow_mut().push((now.stage, now.share));
        false
    };
    assert!(db.check_table_until("t", &watch).expect("checks").problems.is_empty());
    let seen = seen.into_inner();
    assert!(seen.is_sorted(), "{seen:?}");
    for stage in [CheckStage::Pages, CheckStage::Rows, CheckStage::Indexes] {
        let shares: Vec<f64> = seen.iter().filter(|s| s.0 == stage).map(|s| s.1).collect();
        assert_eq!(shares[0], 0.0, "{stage:?}");
        let last = shares[shares.len() - 1];
        assert!((0.9..=1.0).contains(&last), "{stage:?} ends with {last}");
        let between = shares.iter().filter(|s| (0.1..0.9).contains(*s)).count();
        assert!(between >= 5, "{stage:?}: {shares:?}");
    }
}

#[test]
fn transactions_and_locks_are_listed() {
    let db = Database::open_with("/look", Options::in_memory()).expect("opens");
    made(&db);
    assert!(db.transactions().is_empty() && db.locks(10).is_empty());
    let reader = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let wait = evenkeel::LockWait::Wait;
    let mut row = Row::new();
    reader.table("t").expect("is there").get_for_share(&[Int(4)], wait, &mut row).expect("locks");
    let writer = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    writer.table("t").expect("is there").insert(&[Int(700), Null, Null, Null]).expect("inserts");
    let seen = db.transactions();
    assert_eq!(seen.iter().map(|t| t.operations).collect::<Vec<_>>(), [0, 1]);
    assert!(seen.iter().all(|t| t.phase == Phase::Open && t.waits_for.is_empty()));
    let locks = db.locks(10);
    assert_eq!(locks.len(), 1);
    let lock = &locks[0];
    assert_eq!((lock.txn, lock.table.as_str(), lock.index.as_str()), (seen[0].id.0, "t", ""));
    assert!(!lock.exclusive && lock.granted && !lock.range && !lock.key.is_empty());
    let writer_id = seen[1].id.0;
    let waiter = std::thread::spawn({
        let (db, key) = (db.clone(), [Int(4)]);
        move || {
            let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
            let mut row = Row::new();
            txn.table("t").expect("is there").get_for_update(&key, wait, &mut row).expect("locks")
        }
    });
    let waits = || db.transactions().iter().any(|t| t.waits_for == [seen[0].id]);
    while !waits() {
        std::thread::yield_now();
    }
    let asked = db.locks(10).into_iter().filter(|l| !l.granted).collect::<Vec<_>>();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].exclusive && asked[0].txn != writer_id);
    reader.commit().expect("commits");
    assert!(waiter.join().expect("ends"));
    writer.rollback().expect("rolls back");
    assert!(db.transactions().is_empty() && db.locks(10).is_empty());
    assert!(!db.writes_stopped());
}
