//! Records: structs as rows, over all types of fields, after changes of the table, with errors that
//! name the column.

use evenkeel::{
    Code, ColumnSpec, ColumnType, Database, Direction, Options, Record, Result, Txn, Value,
    exactly, record,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

record! {
    /// Every type of a field.
    #[derive(Clone, Debug, PartialEq)]
    struct All in "all" {
        number: Option<u64>,
        truth: bool,
        small: i8,
        wide: i64,
        single: f32,
        double: Option<f64>,
        time: SystemTime,
        text: String as Text { max: 50 },
        bytes: Vec<u8>,
        four: [u8; 4],
        none: Option<[u8; 2]>,
    }
    key(number)
    auto(number)
    index by_text(text, small desc)
    unique by_four(four)
}

fn database() -> Database {
    let db = Database::open_with("unused", Options::in_memory()).expect("opens");
    db.create_table_of::<All>().expect("creates");
    db
}

fn record(n: u8) -> All {
    All {
        number: None,
        truth: n.is_multiple_of(2),
        small: (n % 100) as i8 - 50,
        wide: i64::from(n) << 40,
        single: f32::from(n) / 3.0,
        double: n.is_multiple_of(3).then_some(f64::from(n) / 7.0),
        time: UNIX_EPOCH + Duration::from_secs(n.into()),
        text: format!("text {}", n % 5),
        bytes: vec![n; n.into()],
        four: [n, 0, 255, n],
        none: n.is_multiple_of(4).then_some([n, n]),
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let db = database();
    let spec = All::spec();
    let nullable: Vec<bool> = spec.columns.iter().map(|column| column.nullable).collect();
    let expected = [5, 10].map(|at| (0..11).map(|i| i == at).collect::<Vec<_>>());
    assert!((0..11).all(|i| nullable[i] == (expected[0][i] || expected[1][i])));
    db.transact(|txn| {
        let all = txn.records::<All>()?;
        for n in 1..=20 {
            assert_eq!(all.insert(&record(n))?, Some(u64::from(n)));
        }
        Ok(())
    })
    .expect("commits");
    let with_number = |n: u8| All { number: Some(n.into()), ..record(n) };
    db.transact(|txn| {
        let all = txn.records::<All>()?;
        assert_eq!(all.get(7)?, Some(with_number(7)));
        assert_eq!(all.get(21)?, None);
        let found = all.scan(.., Direction::Backward)?.collect::<Result<Vec<_>>>()?;
        assert_eq!(found, (1..=20).rev().map(with_number).collect::<Vec<_>>());
        // Descending in the second part.
        let found = all.by("by_text", exactly("text 2"), Direction::Forward)?;
        let found = found.map(|found| Ok(found?.number)).collect::<Result<Vec<_>>>()?;
        assert_eq!(found, [17, 12, 7, 2].map(Some));

        let changed = All { bytes: vec![0; 30_000], ..with_number(7) };
        assert!(all.update(&changed)? && !all.update(&with_number(99))?);
        assert_eq!(all.get_for_update(7)?, Some(changed));
        assert!(!all.put(&with_number(7))? && all.put(&with_number(30))?);
        assert!(all.delete(30)? && !all.delete(30)?);
        assert_eq!(all.get(7)?, Some(with_number(7)));
        let taken = all.insert(&record(3)).expect_err("unique");
        assert_eq!((taken.code(), taken.context("index")), (Code::DuplicateKey, Some("by_four")));
        Ok(())
    })
    .expect("commits");
}

#[test]
fn columns_are_found_after_they_have_moved() {
    let db = database();
    db.transact(|txn| txn.records()?.insert(&record(4))).expect("commits");
    let column = |name: &str, ty| ColumnSpec::new(name, ty).nullable();
    db.drop_column("all", "truth").expect("drops");
    db.add_column("all", &column("truth", ColumnType::Bool)).expect("adds");
    db.add_column("all", &column("more", ColumnType::Int8)).expect("adds");
    let refused = db.transact(|txn| txn.records::<All>()?.get(1)).expect_err("truth is NULL");
    assert_eq!((refused.code(), refused.context("column")), (Code::ValueConversion, Some("truth")));
    db.transact(|txn| {
        let all = txn.records::<All>()?;
        assert!(all.table().update(1, &[("truth", true)])?);
        assert_eq!(all.get(1)?, Some(All { number: Some(1), ..record(4) }));
        // The names of a record's columns are those of the table, whatever their positions.
        let changed = All { number: Some(1), truth: false, ..record(4) };
        assert!(all.update(&changed)?);
        assert_eq!(all.get(1)?, Some(changed));
        let row = all.table().get(1)?.expect("is there");
        assert_eq!(row.values()?.last(), Some(&Value::Null));
        Ok(())
    })
    .expect("commits");
    db.drop_column("all", "wide").expect("drops");
    let refused = db.transact(|txn| txn.records::<All>()?.get(1)).expect_err("no column");
    assert_eq!((refused.code(), refused.context("column")), (Code::ColumnMissing, Some("wide")));
}

#[test]
fn records_are_loaded_as_they_are() {
    let db = database();
    let rows = (1..=200u8).map(|n| All { number: Some(n.into()), ..record(n) });
    assert_eq!(db.load_table("all", rows.clone()).expect("loads"), 200);
    let all = |txn: &Txn| txn.records::<All>()?.scan(.., Direction::Forward)?.collect();
    let found: Result<Vec<All>> = db.transact(all);
    assert_eq!(found.expect("reads"), rows.collect::<Vec<All>>());
}
