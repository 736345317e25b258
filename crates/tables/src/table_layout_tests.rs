//! Table layouts: rows written in one format are read through every later one; ranges convert to
//! byte bounds.

use super::*;
use crate::range::{ByteRange, Range};
use crate::schema::{ColumnSpec, IndexSpec, TableSpec};
use evenkeel_base::TableId;
use evenkeel_format::{ColumnType, Value};
use std::ops::Bound;

fn layout(def: TableDef, epoch: u64) -> Layout {
    Layout::new(Arc::new(def), epoch, 4096).unwrap()
}

fn base() -> TableDef {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("a", ColumnType::Int64))
        .column(ColumnSpec::new("b", ColumnType::Text { max: 20 }).nullable())
        .column(ColumnSpec::new("c", ColumnType::Int16))
        .primary_key(&["c desc", "a"])
        .index(IndexSpec::new("i", &["b", "a"]));
    TableDef::new(TableId(3), "t", &spec, || IndexId(9), 4096).unwrap()
}

fn encode(layout: &Layout, values: &[Value]) -> (Vec<u8>, Vec<u8>) {
    let (mut key, mut row) = (Vec::new(), Vec::new());
    layout.encode_key(&|i| Ok(values[i].as_ref()), &mut key).unwrap();
    layout.encode_row(&|i| Ok(Field::Value(values[i].as_ref())), &mut row).unwrap();
    (key, row)
}

#[test]
fn rows_of_old_formats_are_read_through_new_ones() {
    let mut def = base();
    let first = layout(def.clone(), 1);
    let values = [Value::Int(-5), Value::from("x"), Value::Int(7)];
    let (key, row) = encode(&first, &values);
    assert!(row.len() < 8, "key columns are not in the row");
    let check = |layout: &Layout, key: &[u8], row: &[u8], want: &[Value]| {
        let view = layout.view(key, row).unwrap();
        for (i, want) in want.iter().enumerate() {
            assert_eq!(view.value(i).unwrap(), want.as_ref());
        }
        assert!(view.value(want.len()).is_err());
    };
    check(&first, &key, &row, &values);
    // A column is added: old rows show its default.
    def.entry.row_version = 2;
    let column = ColumnSpec::new("d", ColumnType::Int32).default_value(42i64);
    def.push_column(&column).unwrap();
    let second = layout(def.clone(), 2);
    let mut wider = values.to_vec();
    wider.push(Value::Int(42));
    check(&second, &key, &row, &wider);
    wider[3] = Value::Int(43);
    let (key2, row2) = encode(&second, &wider);
    check(&second, &key2, &row2, &wider);
    // A column is dropped: rows of both formats are read without it.
    def.entry.row_version = 3;
    def.columns[1].entry.dropped_in = 3;
    def.indexes.clear();
    let third = layout(def.clone(), 3);
    check(&third, &key, &row, &[Value::Int(-5), Value::Int(7), Value::Int(42)]);
    check(&third, &key2, &row2, &[Value::Int(-5), Value::Int(7), Value::Int(43)]);
    // A row of a format that the catalog does not know is refused.
    assert!(first.view(&key2, &row2).is_err());
}

#[test]
fn ranges_convert_to_byte_bounds() {
    let layout = layout(base(), 1);
    let key = |c: i64, a: i64| {
        let mut out = Vec::new();
        let values = [ValueRef::Int(c), ValueRef::Int(a)];
        layout.encode_prefix(&layout.key, &values, &mut out).unwrap();
        out
    };
    let inside = |range: &ByteRange| {
        let mut found = Vec::new();
        for c in [9, 8, 7] {
            for a in [1, 2, 3] {
                if range.contains(&key(c, a)) {
                    found.push((c, a));
                }
            }
        }
        found
    };
    let range = |lower, upper| layout.byte_range(&layout.key, Range { lower, upper }).unwrap();
    let eight = [ValueRef::Int(8)];
    let eight_two = [ValueRef::Int(8), ValueRef::Int(2)];
    assert_eq!(inside(&range(Bound::Unbounded, Bound::Unbounded)).len(), 9);
    assert_eq!(
        inside(&range(Bound::Included(&eight), Bound::Included(&eight))),
        [(8, 1), (8, 2), (8, 3)]
    );
    // c is descending: after 8 comes 7.
    assert_eq!(inside(&range(Bound::Excluded(&eight), Bound::Unbounded)), [(7, 1), (7, 2), (7, 3)]);
    assert_eq!(inside(&range(Bound::Unbounded, Bound::Excluded(&eight_two))).len(), 4);
    assert_eq!(inside(&range(Bound::Unbounded, Bound::Included(&eight_two))).len(), 5);
    let nothing = range(Bound::Excluded(&eight_two), Bound::Included(&eight_two));
    assert!(nothing.is_empty());
}

#[test]
fn long_keys_and_entries_are_refused() {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("k", ColumnType::Bytes { max: 408 }))
        .column(ColumnSpec::new("v", ColumnType::Bytes { max: 1 << 20 }))
        .primary_key(&["k"])
        .index(IndexSpec::new("i", &["v"]));
    let def = TableDef::new(TableId(3), "t", &spec, || IndexId(9), 4096).unwrap();
    let layout = layout(def, 1);
    let zeros = vec![0u8; 1 << 20];
    let entry = |n: usize| {
        let value = |_: usize| Ok(ValueRef::Bytes(&zeros[..n]));
        layout.indexes[0].encode(&value, 8, &mut Vec::new())
    };
    // Zeros take two bytes each, the terminator two, and the clustered key 8.
    assert!(entry((limits::INDEX_ENTRY_BYTES_MAX - 10) / 2).is_ok());
    let beyond = entry((limits::INDEX_ENTRY_BYTES_MAX - 10) / 2 + 1);
    assert_eq!(beyond.err().map(|e| e.code()), Some(Code::EntryTooLong));
}
