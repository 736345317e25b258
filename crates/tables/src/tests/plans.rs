//! Values read by a plan equal those that each row gives one by one, for any columns, rows and row
//! formats.

use super::*;
use crate::IndexScan;
use proptest::prelude::*;
use std::ops::Bound;

/// A column's possible types; the first two columns are the key.
fn column(position: usize, kind: u8, nullable: bool) -> ColumnSpec {
    let ty = match kind % 6 {
        0 => ColumnType::Int32,
        1 => ColumnType::Int64,
        2 => ColumnType::Text { max: 1 << 20 },
        3 => ColumnType::Bytes { max: 300 },
        4 => ColumnType::FixedBytes { len: 5 },
        _ => ColumnType::Decimal { precision: 20, scale: 2 },
    };
    let column = ColumnSpec::new(&format!("c{position}"), ty);
    if nullable { column.nullable() } else { column }
}

fn value(spec: &ColumnSpec, seed: u32) -> Value {
    if spec.nullable && seed.is_multiple_of(4) {
        return Value::Null;
    }
    let long = if seed.is_multiple_of(13) { 3_000 } else { 0 };
    match spec.ty {
        ColumnType::Int32 | ColumnType::Int64 => Value::Int(i64::from(seed) - 500),
        ColumnType::Text { .. } => Value::Text("t".repeat(seed as usize % 40 + long)),
        ColumnType::Bytes { .. } => Value::Bytes(vec![seed as u8; seed as usize % 290]),
        ColumnType::FixedBytes { .. } => Value::Bytes(vec![seed as u8; 5]),
        _ => Value::Decimal(i128::from(seed) * 1_000_000_007, 2),
    }
}

fn check(db: &Db, table: &Arc<Table>, plan: &mut RowPlan) {
    let mut txn = db.begin();
    let mut scan = txn.scan(table, Range::ALL, Direction::Forward).unwrap();
    let mut row = Row::new();
    let mut rows = 0;
    while scan.next(&mut row).unwrap() {
        let mut given = vec![None; plan.columns().len()];
        row.values_by(plan, |at, value| given[at] = Some(value.to_owned())).unwrap();
        let each: Vec<_> =
            plan.columns().iter().map(|at| Some(row.value(*at).unwrap().to_owned())).collect();
        assert_eq!(given, each, "row {rows}");
        rows += 1;
    }
    assert!(rows > 0);
}

/// Key and values of each row, read one by one from a buffer.
type Given = Vec<(Vec<u8>, Vec<Option<Value>>)>;

fn one_by_one(columns: &[usize], mut next: impl FnMut(&mut Row) -> bool) -> Given {
    let (mut row, mut all) = (Row::new(), Vec::new());
    while next(&mut row) {
        let values = columns.iter().map(|at| Some(row.value(*at).unwrap().to_owned()));
        all.push((row.key().to_vec(), values.collect()));
    }
    all
}

/// The same rows by `next_by` of a scan.
macro_rules! by_plan {
    ($scan:expr, $columns:expr) => {{
        let (mut scan, mut plan) = ($scan, RowPlan::new($columns.to_vec()));
        let (mut row, mut all) = (Row::new(), Given::new());
        loop {
            let mut values = vec![None; $columns.len()];
            let give = |at: usize, value: ValueRef<'_>| values[at] = Some(value.to_owned());
            let Some(key) = scan.next_by(&mut plan, &mut row, give).unwrap() else { break all };
            all.push((key.to_vec(), values));
        }
    }};
}

/// `get_by` gives what `get` gives, of the same key.
fn check_gets(txn: &mut TableTxn, table: &Arc<Table>, columns: &[usize], keys: &[Vec<Value>]) {
    let (mut plan, mut row, mut whole) = (RowPlan::new(columns.to_vec()), Row::new(), Row::new());
    for key in keys {
        let key: Vec<_> = key.iter().map(Value::as_ref).collect();
        let mut values = vec![None; columns.len()];
        let give = |at: usize, value: ValueRef<'_>| values[at] = Some(value.to_owned());
        let given = txn.get_by(table, &key, &mut plan, &mut row, give).unwrap();
        assert_eq!(given, txn.get(table, &key, &mut whole).unwrap(), "{key:?}");
        if given {
            let each = columns.iter().map(|at| Some(whole.value(*at).unwrap().to_owned()));
            assert_eq!((row.key(), values), (whole.key(), each.collect()), "{key:?}");
        }
    }
}

/// Scans by a plan give the same as rows in a buffer: for rows and entries, in both directions, for
/// versions in the leaf and older ones, whether or not they end within a leaf.
fn check_scans(db: &Db, table: &Arc<Table>, columns: &[usize], keys: &[Vec<Value>]) {
    let mut reader = db.begin();
    reader.take_snapshot().unwrap();
    let mut writer = db.begin();
    for key in keys.iter().step_by(3) {
        let key: Vec<_> = key.iter().map(Value::as_ref).collect();
        writer.delete(table, &key).unwrap();
    }
    let layout = table.layout();
    let index = layout.index("i").map(|_| 0).ok();
    let of_entry: Vec<_> = columns.iter().copied().filter(|at| *at < 3).collect();
    let middle: Vec<_> = keys[keys.len() / 2].iter().map(Value::as_ref).collect();
    for direction in [Direction::Forward, Direction::Backward] {
        for lower in [Bound::Unbounded, Bound::Included(&middle[..])] {
            for upper in [Bound::Unbounded, Bound::Excluded(&middle[..])] {
                let range = Range { lower, upper };
                let mut scan = reader.scan(table, range, direction).unwrap();
                let wanted = one_by_one(columns, |row| scan.next(row).unwrap());
                let given = by_plan!(reader.scan(table, range, direction).unwrap(), columns);
                assert_eq!(given, wanted, "{range:?} {direction:?}");
            }
        }
        for keys_only in [false, true] {
            let Some(index) = index else { continue };
            let columns = if keys_only { &of_entry } else { columns };
            let mut scan = |columns: &mut dyn FnMut(IndexScan) -> Given| {
                let range = Range::ALL;
                columns(reader.index_scan(table, index, range, direction, keys_only).unwrap())
            };
            let wanted = scan(&mut |mut scan| one_by_one(columns, |row| scan.next(row).unwrap()));
            let given = scan(&mut |scan| by_plan!(scan, columns));
            assert_eq!(given, wanted, "index, keys only: {keys_only}, {direction:?}");
            let mut scan =
                reader.index_scan(table, index, Range::ALL, direction, keys_only).unwrap();
            let (mut plan, mut row, mut whole) = (RowPlan::new(vec![]), Row::new(), Row::new());
            while let Some(key) = scan.next_by(&mut plan, &mut row, |_, _| {}).unwrap() {
                let key = key.to_vec();
                assert!(scan.fetch_last(&row, &mut whole).unwrap());
                assert_eq!(whole.key(), key, "keys only: {keys_only}");
            }
            assert!(keys_only || given.len() == keys.len());
        }
    }
    check_gets(&mut reader, table, columns, keys);
    check_gets(&mut writer, table, columns, keys);
    let missing = [keys[0][0].clone(), Value::Int(-1)].to_vec();
    check_gets(&mut db.begin_at(Isolation::ReadUncommitted), table, columns, &[missing]);
    check_gets(&mut db.begin_at(Isolation::ReadUncommitted), table, columns, keys);
    drop(writer);
}

/// The primary key may be too long to be clustered on, or the reads lock: the row is read whole.
#[test]
fn gets_by_a_plan_of_other_tables_and_readers() {
    let db = Db::new();
    let column = |name| ColumnSpec::new(name, ColumnType::Text { max: 3000 });
    let long = TableSpec::new().column(column("a")).column(column("b")).primary_key(&["a"]);
    let table = db.store.create_table("long", &long).unwrap();
    assert!(table.layout().key.is_empty(), "clustered on a hidden number");
    let keys: Vec<Vec<Value>> = (0..5).map(|n| vec![Value::Text(format!("k{n}"))]).collect();
    let mut txn = db.begin();
    for key in &keys[1..] {
        txn.insert(&table, &[key[0].as_ref(), ValueRef::Text("b")]).unwrap();
    }
    check_gets(&mut txn, &table, &[1, 0], &keys);
    commit(txn);
    check_gets(&mut db.begin(), &table, &[1, 0], &keys);
    check_gets(&mut db.begin_at(Isolation::Serializable), &table, &[1], &keys);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn reads_by_a_plan_equal_reads_of_single_rows(
        kinds in prop::collection::vec((0u8..6, any::<bool>()), 1..7),
        wanted in prop::collection::vec(0usize..9, 0..9),
        seeds in prop::collection::vec(0u32..1000, 1..30),
        descending in any::<bool>(),
        narrow in any::<bool>(),
    ) {
        let db = Db::new();
        let first = if narrow { ColumnType::Int32 } else { ColumnType::Text { max: 20 } };
        let mut columns = vec![
            ColumnSpec::new("a", first),
            ColumnSpec::new("b", ColumnType::Int64),
        ];
        columns.extend(kinds.iter().enumerate().map(|(i, (kind, null))| column(i, *kind, *null)));
        let spec = columns.iter().cloned().fold(TableSpec::new(), TableSpec::column);
        let spec = spec.primary_key(&["a", if descending { "b desc" } else { "b" }]);
        // The index takes no long texts.
        let is_indexed = kinds[0].0 != 2;
        let part = if descending { "c0" } else { "c0 desc" };
        let spec = if is_indexed { spec.index(IndexSpec::new("i", &["b", part])) } else { spec };
        let table = db.store.create_table("t", &spec).unwrap();
        let key_of = |key: i64| {
            let text = || Value::Text(format!("k{}", key % 3));
            vec![if narrow { Value::Int(key % 3) } else { text() }, Value::Int(key)]
        };
        let insert = |columns: &[ColumnSpec], from: i64| {
            let mut txn = db.begin();
            for (n, seed) in seeds.iter().enumerate() {
                let mut row = key_of(from + n as i64);
                row.extend(columns[2..].iter().enumerate().map(|(i, c)| value(c, seed + i as u32)));
                let row: Vec<_> = row.iter().map(Value::as_ref).collect();
                txn.insert(&table, &row).unwrap();
            }
            commit(txn);
        };
        insert(&columns, 0);
        let keys: Vec<Vec<Value>> = (0..seeds.len() as i64).map(key_of).collect();
        let wanted: Vec<usize> = wanted.iter().map(|at| at % columns.len()).collect();
        let mut plan = RowPlan::new(wanted.clone());
        check(&db, &table, &mut plan);
        check_scans(&db, &table, &wanted, &keys);
        // Rows of two formats, by the plan that was made for one; and for a column that the older
        // rows lack.
        let added = ColumnSpec::new("added", ColumnType::Int64).nullable();
        db.store.add_column("t", &added).unwrap();
        columns.push(added);
        insert(&columns, 1_000);
        check(&db, &table, &mut plan);
        check(&db, &table, &mut RowPlan::new(vec![columns.len() - 1, 0, 1]));
        check_gets(&mut db.begin(), &table, &[columns.len() - 1, 2, 0], &keys);
    }
}
