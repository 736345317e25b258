//! Misuse and rare cases: scans that outlive their transaction, panics in a caller's code, bounds
//! that no key can have, transactions that repeat.

use evenkeel::ValueRef::{Decimal, Int, Text};
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Direction, IndexSpec, Isolation, Kind,
    LockWait, Options, Range, Result, Row, TableSpec, Value, ValueRef,
};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

const LEVELS: [Isolation; 4] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

/// A table `t` of rows 0 to 99: an id, a price in cents of two digits, a text.
fn database() -> Database {
    let db = Database::open_with("unused", Options::in_memory()).expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int16))
        .column(ColumnSpec::new("price", ColumnType::Decimal { precision: 4, scale: 1 }))
        .column(ColumnSpec::new("name", ColumnType::Text { max: 4 }).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_price", &["price"]))
        .index(IndexSpec::new("by_name", &["name"]));
    db.create_table("t", &spec).expect("creates");
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    for id in 0..100i64 {
        let name = format!("{id:02}");
        let row = [Int(id), Decimal(i128::from(id) * 5, 1), Text(&name)];
        txn.table("t").and_then(|t| t.insert(&row)).expect("inserts");
    }
    txn.commit().expect("commits");
    db
}

fn count(db: &Database) -> u64 {
    db.check().expect("checks").rows
}

#[test]
fn a_scan_after_its_transactions_end_returns_an_error() {
    for (level, access) in LEVELS
        .into_iter()
        .flat_map(|level| [Access::ReadWrite, Access::ReadOnly].map(|access| (level, access)))
    {
        for commits in [true, false] {
            let db = database();
            let txn = db.begin(level, access).expect("begins");
            let t = txn.table("t").expect("is there");
            let mut rows = t.scan(Range::ALL, Direction::Forward).expect("scans");
            let mut untouched = t.scan(Range::ALL, Direction::Backward).expect("scans");
            let mut entries = t
                .index("by_name")
                .and_then(|i| i.keys_only().scan(Range::ALL, Direction::Forward))
                .expect("scans");
            let mut row = Row::new();
            assert!(rows.next(&mut row).expect("reads") && entries.next(&mut row).expect("reads"));
            if commits {
                txn.commit().expect("commits");
            } else {
                drop(txn);
            }
            db.drop_table("t").expect("nobody uses it");
            let code = |result: Result<bool>| result.expect_err("it has ended").code();
            assert_eq!(code(rows.next(&mut row)), Code::TransactionEnded);
            assert_eq!(code(untouched.next(&mut row)), Code::TransactionEnded);
            assert_eq!(code(entries.next(&mut row)), Code::TransactionEnded);
            let again = rows.resume_after(&[]).expect_err("it has ended");
            assert_eq!(again.code(), Code::TransactionEnded);
        }
    }
}

/// Yields `after` rows, then panics.
fn panicking(after: i64) -> impl Iterator<Item = [Value; 3]> {
    (100..100 + after + 1).map(move |id| {
        assert!(id < 100 + after, "planted");
        [Value::Int(id), Value::Decimal(0, 1), Value::Null]
    })
}

#[test]
fn a_panic_of_a_callers_iterator_leaves_no_half_statement() {
    let db = database();
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    let t = txn.table("t").expect("is there");
    assert!(t.delete(&[Int(5)]).expect("deletes"));
    let loads = catch_unwind(AssertUnwindSafe(|| t.bulk_load(panicking(20))));
    assert!(loads.is_err());
    let rows: Vec<[ValueRef<'_>; 3]> =
        (100..10_100).map(|id| [Int(id), Decimal(0, 1), ValueRef::Null]).collect();
    // More than one batch of rows, then a panic.
    let given = (0..10_001usize).map(|at| {
        assert!(at < 10_000, "planted");
        &rows[at][..]
    });
    let many = catch_unwind(AssertUnwindSafe(|| t.insert_many(given)));
    assert!(many.is_err());
    // The transaction continues with its earlier changes alone.
    t.insert(&[Int(101), Decimal(0, 1), ValueRef::Null]).expect("inserts");
    txn.commit().expect("commits");
    assert_eq!(count(&db), 100);

    db.truncate("t").expect("empties");
    let loads = catch_unwind(AssertUnwindSafe(|| db.load_table("t", panicking(20))));
    assert!(loads.is_err());
    assert_eq!(count(&db), 0);
    assert_eq!(db.load_table("t", panicking(20).take(20)).expect("loads"), 20);
    assert_eq!(count(&db), 20);
}

fn ids(db: &Database, index: Option<&str>, range: Range<'_>) -> Vec<i64> {
    let mut found = Vec::new();
    for level in LEVELS {
        let txn = db.begin(level, Access::ReadWrite).expect("begins");
        let t = txn.table("t").expect("is there");
        let (mut row, mut ids) = (Row::new(), Vec::new());
        let mut keep = |row: &Row| match row.value("id") {
            Ok(Int(id)) => ids.push(id),
            other => panic!("{other:?}"),
        };
        match index {
            None => {
                let mut scan = t.scan(range, Direction::Forward).expect("scans");
                while scan.next(&mut row).expect("reads") {
                    keep(&row);
                }
            }
            Some(index) => {
                let index = t.index(index).expect("is there");
                let mut scan = index.scan(range, Direction::Forward).expect("scans");
                while scan.next(&mut row).expect("reads") {
                    keep(&row);
                }
            }
        }
        ids.sort_unstable();
        found.push(ids);
    }
    found.dedup();
    assert_eq!(found.len(), 1, "levels differ");
    found.remove(0)
}

#[test]
fn a_bound_that_no_key_can_have_lies_between_the_keys_or_beyond_them() {
    let db = database();
    let all: Vec<i64> = (0..100).collect();
    let from = |values| Range { lower: Bound::Included(values), upper: Bound::Unbounded };
    let behind = |values| Range { lower: Bound::Excluded(values), upper: Bound::Unbounded };
    let to = |values| Range { lower: Bound::Unbounded, upper: Bound::Included(values) };
    let below = |values| Range { lower: Bound::Unbounded, upper: Bound::Excluded(values) };

    let (low, high) = ([Int(-100_000)], [Int(100_000)]);
    for range in [from(&low), behind(&low), to(&high), below(&high)] {
        assert_eq!(ids(&db, None, range), all);
    }
    for range in [from(&high), behind(&high), to(&low), below(&low)] {
        assert_eq!(ids(&db, None, range), []);
    }
    assert_eq!(ids(&db, None, Range::prefix(&high)), []);

    // 2.55 lies between the prices 2.5 and 3.0 of rows 5 and 6.
    let price = [Decimal(255, 2)];
    assert_eq!(ids(&db, Some("by_price"), from(&price)), all[6..]);
    assert_eq!(ids(&db, Some("by_price"), behind(&price)), all[6..]);
    assert_eq!(ids(&db, Some("by_price"), to(&price)), all[..6]);
    assert_eq!(ids(&db, Some("by_price"), below(&price)), all[..6]);

    let name = [Text("41234")];
    assert_eq!(ids(&db, Some("by_name"), from(&name)), all[42..]);
    assert_eq!(ids(&db, Some("by_name"), to(&name)), all[..42]);
}

#[test]
fn a_value_of_another_type_in_a_bound_is_an_error() {
    let db = database();
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly).expect("begins");
    let t = txn.table("t").expect("is there");
    let error = t.scan(Range::from(&[Text("a")]), Direction::Forward).err().expect("refused");
    assert_eq!(error.code(), Code::ValueType);
}

#[test]
fn transfers_between_two_accounts_repeat_until_they_commit() {
    for level in [Isolation::RepeatableRead, Isolation::Serializable] {
        let db = database();
        let (threads, transfers) = (8, 25);
        let tries = AtomicU64::new(0);
        let transfer = || {
            db.transact_with(level, |txn| {
                tries.fetch_add(1, Ordering::Relaxed);
                let t = txn.table("t")?;
                let mut prices = [0; 2];
                for (id, price) in [1, 2].into_iter().zip(&mut prices) {
                    let row = t.get(&[Int(id)])?.expect("it is there");
                    let Decimal(cents, _) = row.value("price")? else { panic!("no price") };
                    *price = cents;
                }
                t.update(&[Int(1)], &[(1, Decimal(prices[0] - 1, 1))])?;
                t.update(&[Int(2)], &[(1, Decimal(prices[1] + 1, 1))])
            })
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..transfers).for_each(|_| assert!(transfer().expect("commits"))));
            }
        });
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly).expect("begins");
        let t = txn.table("t").expect("is there");
        let price = |id| {
            t.get(&[Int(id)])
                .expect("reads")
                .expect("is there")
                .value("price")
                .map(|p| p.to_owned())
        };
        let moved = i128::from(threads * transfers);
        assert_eq!(price(1).expect("has it"), Value::Decimal(5 - moved, 1));
        assert_eq!(price(2).expect("has it"), Value::Decimal(10 + moved, 1));
        assert!(tries.load(Ordering::Relaxed) >= moved as u64);
    }
}

#[test]
fn a_transaction_repeats_for_conflicts_and_deadlocks_alone() {
    let db = database();
    let mut tries = 0;
    let error = db.transact(|txn| {
        tries += 1;
        txn.table("t")?.insert(&[Int(1), Decimal(0, 1), ValueRef::Null])
    });
    assert_eq!((error.expect_err("is there").code(), tries), (Code::DuplicateKey, 1));

    // Another transaction changes the row after the snapshot of the first try.
    let mut tries = 0;
    let mut row = Row::new();
    let done = db.transact(|txn| {
        tries += 1;
        assert!(txn.table("t")?.get(&[Int(7)])?.is_some());
        if tries == 1 {
            db.transact(|other| other.table("t")?.update(&[Int(7)], &[(1, Decimal(1, 1))]))?;
        }
        let t = txn.table("t")?;
        t.get_for_update(&[Int(7)], LockWait::Wait, &mut row)?;
        t.update(&[Int(7)], &[(1, Decimal(2, 1))])
    });
    assert_eq!((done.map_err(|error| error.kind()), tries), (Ok::<bool, Kind>(true), 2));
}

#[test]
fn an_empty_path_names_no_database() {
    let error = Database::open("").err().expect("refused");
    assert_eq!(error.code(), Code::NotADatabase);
}

#[test]
fn a_database_that_this_process_has_open_is_refused_with_its_own_pid() {
    let directory = std::env::temp_dir().join(format!("evenkeel-edges-{}", std::process::id()));
    let db = Database::open(&directory).expect("opens");
    let text = Database::open(&directory).err().expect("refused").to_string();
    assert!(text.contains(&format!("pid={}", std::process::id())), "{text}");
    db.close().expect("closes");
    std::fs::remove_dir_all(directory).expect("removes");
}

#[test]
fn read_only_opens_share_a_directory_and_keep_writers_out() {
    let directory = std::env::temp_dir().join(format!("evenkeel-share-{}", std::process::id()));
    Database::open(&directory)
        .and_then(|db| {
            let spec = TableSpec::new().column(ColumnSpec::new("a", ColumnType::Int64));
            db.create_table("t", &spec)?;
            db.close()
        })
        .expect("is made");
    let read_only = || Options { read_only: true, ..Options::new() };
    let readers: Vec<_> =
        (0..3).map(|_| Database::open_with(&directory, read_only()).expect("shares")).collect();
    assert!(readers.iter().all(|db| db.tables() == ["t"]));
    let refused = Database::open(&directory).err().expect("readers have it open");
    assert_eq!(refused.code(), Code::DirectoryBusy);
    // The pid in the lock file is that of a writer that has closed it.
    assert_eq!((refused.context("pid"), refused.context("opened")), (None, Some("read-only")));
    drop(readers);
    let writer = Database::open(&directory).expect("alone");
    let refused = Database::open_with(&directory, read_only()).err().map(|error| error.code());
    assert_eq!(refused, Some(Code::DirectoryBusy));
    writer.close().expect("closes");
    std::fs::remove_dir_all(directory).expect("removes");
}

#[test]
fn a_load_whose_rows_come_from_its_own_table_fails_at_once() {
    let db = database();
    db.truncate("t").expect("empties");
    let busy = |result: Result<u64>| {
        let error = result.expect_err("it would wait for itself");
        assert_eq!((error.code(), error.context("table")), (Code::TableBusy, Some("t")));
        assert_eq!(error.context("waited_ms"), None);
    };
    // A scan that began before, and one that begins when the first row is asked for.
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let own = txn.table("t").and_then(|t| t.scan(.., Direction::Forward)).expect("scans");
    busy(db.load_table("t", own.map(|row| row.and_then(|row| row.values()).expect("reads"))));
    drop(txn);

    let mut refused = None;
    let rows = std::iter::from_fn(|| {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
        refused = txn.table("t").and_then(|t| t.first()).err();
        None::<[Value; 3]>
    });
    assert_eq!(db.load_table("t", rows).expect("loads nothing"), 0);
    busy(Err(refused.expect("it would wait for itself")));
    let mut refused = None;
    let rows = std::iter::from_fn(|| {
        refused = db.truncate("t").err();
        None::<[Value; 3]>
    });
    assert_eq!(db.load_table("t", rows).expect("loads nothing"), 0);
    busy(Err(refused.expect("it would wait for itself")));
    assert_eq!(db.load_table("t", panicking(20).take(20)).expect("loads"), 20);
}

#[test]
fn a_call_within_a_call_of_its_transaction_is_refused() {
    let db = database();
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let t = txn.table("t").expect("is there");
    let nested = |result: Result<()>| {
        assert_eq!(result.expect_err("nested").code(), Code::NestedCall);
    };
    let rows = (200..203i64).map(|id| {
        nested(t.get(1).map(|_| ()));
        nested(t.scan(.., Direction::Forward).map(|_| ()));
        nested(t.index("by_name").map(|_| ()));
        nested(txn.savepoint("s"));
        assert!(!txn.is_ended());
        [Value::Int(id), Value::Decimal(0, 1), Value::Null]
    });
    assert_eq!(t.bulk_load(rows).expect("loads"), 3);
    t.get_many(&[&[Int(1)], &[Int(2)]], &mut |_, _| {
        nested(t.delete(1).map(|_| ()));
        Ok(())
    })
    .expect("reads");
    // Scans are between calls while their rows are used.
    let mut deleted = 0;
    t.scan_for_update(200.., Direction::Forward, LockWait::Wait, &mut |row| {
        deleted += i32::from(t.delete_read(row)?);
        Ok(true)
    })
    .expect("scans");
    for row in t.scan(..2, Direction::Forward).expect("scans") {
        deleted += i32::from(
            t.delete(row.and_then(|row| row.get::<i64>("id")).expect("reads")).expect("deletes"),
        );
    }
    assert_eq!(deleted, 5);
    txn.commit().expect("commits");
    assert_eq!(count(&db), 98);
}

#[test]
fn several_tables_are_used_at_once() {
    let db = database();
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("name", ColumnType::Text { max: 4 }).nullable())
        .primary_key(&["id"]);
    db.create_table("names", &spec).expect("creates");
    let copied = db.transact(|txn| {
        let (t, names) = (txn.table("t")?, txn.table("names")?);
        let mut copied = 0;
        for row in t.scan(10..=19, Direction::Forward)? {
            let row = row?;
            names.insert((row.get::<i64>("id")?, row.get::<Option<&str>>("name")?))?;
            t.update(
                row.get::<i16>("id")?,
                (("name", None::<&str>), ("price", ValueRef::Decimal(1, 0))),
            )?;
            copied += 1;
        }
        Ok(copied)
    });
    assert_eq!(copied.expect("commits"), 10);
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly).expect("begins");
    let (t, names) = (txn.table("t").expect("is there"), txn.table("names").expect("is there"));
    let row = names.get(12).expect("reads").expect("is there");
    assert_eq!(row.get::<String>("name").expect("text"), "12");
    let row = t.get(12).expect("reads").expect("is there");
    assert_eq!(row.get::<Option<String>>("name").expect("NULL"), None);
    assert_eq!(row.value("price").expect("has it"), Decimal(10, 1));
    let error = row.get::<String>("name").expect_err("NULL is no text");
    assert_eq!(error.code(), Code::ValueConversion);
    assert_eq!((error.context("column"), error.context("wanted")), (Some("name"), Some("String")));
    assert_eq!(row.value("nobody").expect_err("no column").code(), Code::ColumnMissing);
    let error = t.update(1, &[("nobody", 1)]).expect_err("no column");
    assert_eq!((error.code(), error.context("column")), (Code::ColumnMissing, Some("nobody")));
}

#[test]
fn a_key_beyond_the_domain_of_its_column_has_no_row() {
    let db = database();
    db.transact(|txn| {
        let t = txn.table("t")?;
        assert!(t.get(100_000)?.is_none() && t.get(u64::MAX)?.is_none());
        assert!(!t.update(100_000, &[("name", "x")])? && !t.delete(-100_000)?);
        let mut row = Row::new();
        assert!(!t.get_for_update(100_000, LockWait::Wait, &mut row)?);
        t.get_many(&[&[Int(100_000)], &[Int(7)]], &mut |at, row| {
            assert_eq!((at, row.get::<i64>("id")?), (1, 7));
            Ok(())
        })?;
        let error = t.get("7").expect_err("another type");
        assert_eq!((error.code(), error.context("column")), (Code::ValueType, Some("id")));
        Ok(())
    })
    .expect("commits");
}
