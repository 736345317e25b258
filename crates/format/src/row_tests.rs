//! Rows: round trip, single columns, references, junk.

use super::*;
use crate::types::Value;
use proptest::prelude::*;

fn layout() -> RowLayout {
    use ColumnType::*;
    let types = [
        (Int32, false),
        (Text { max: 70_000 }, true),
        (Decimal { precision: 20, scale: 2 }, true),
        (Bytes { max: 70_000 }, false),
        (FixedBytes { len: 4 }, true),
        (Float32, false),
        (Bool, true),
    ];
    let columns = types.iter().enumerate();
    let column = |(i, (ty, nullable)): (usize, &(ColumnType, bool))| RowColumn {
        id: i as u16,
        ty: *ty,
        nullable: *nullable,
    };
    RowLayout::new(3, columns.map(column).collect())
}

fn encode(layout: &RowLayout, values: &[Value]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    layout.encode(|i| Field::Value(values[i].as_ref()), &mut out)?;
    Ok(out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 8))]
    #[test]
    fn rows_round_trip(int: i32, text in ".{0,300}", decimal in -10i128.pow(19)..10i128.pow(19),
                  bytes in prop::collection::vec(any::<u8>(), 0..70), nulls: u8, float: f32,
                  cut: prop::sample::Index) {
        let layout = layout();
        let or_null = |bit: u8, v: Value| if nulls & (1 << bit) != 0 { Value::Null } else { v };
        let float = if float.is_nan() { 0.0 } else { float + 0.0 };
        let values = [
            Value::Int(i64::from(int)),
            or_null(0, Value::Text(text)),
            or_null(1, Value::Decimal(decimal, 2)),
            Value::Bytes(bytes),
            or_null(2, Value::Bytes(vec![1, 2, 3, 4])),
            Value::from(float),
            or_null(3, Value::Bool(true)),
        ];
        let row = encode(&layout, &values).unwrap();
        prop_assert_eq!(row_version(&row).unwrap(), 3);
        let reader = layout.read(&row).unwrap();
        for (i, value) in values.iter().enumerate() {
            prop_assert_eq!(reader.field(i).unwrap(), Field::Value(value.as_ref()));
        }
        if let Ok(reader) = layout.read(&row[..cut.index(row.len())]) {
            (0..8).for_each(|i| drop(reader.field(i)));
        }
    }

    #[test]
    fn junk_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 2..80), head: bool) {
        if head {
            (bytes[0], bytes[1]) = (bytes[0] & 7, 3);
        }
        let layout = layout();
        if let Ok(reader) = layout.read(&bytes) {
            (0..8).for_each(|i| drop(reader.field(i)));
        }
    }
}

#[test]
fn references_are_told_from_values() {
    let layout = layout();
    let mut out = Vec::new();
    let values = [Value::Int(1), Value::from("t"), Value::Null, Value::Null, Value::Null];
    let field = |i: usize| match i {
        3 => Field::Reference(b"ref"),
        5 => Field::Value(ValueRef::Float(1.5)),
        6 => Field::Value(ValueRef::Null),
        i => Field::Value(values[i].as_ref()),
    };
    layout.encode(field, &mut out).unwrap();
    let reader = layout.read(&out).unwrap();
    assert_eq!(reader.field(3).unwrap(), Field::Reference(b"ref"));
    assert_eq!(reader.field(1).unwrap(), Field::Value(ValueRef::Text("t")));
}

#[test]
fn wrong_values_are_refused_and_leave_no_bytes() {
    use Value::*;
    let layout = layout();
    let good = [Int(1), Null, Null, Bytes(vec![]), Null, Float(0.0), Null];
    assert!(encode(&layout, &good).is_ok());
    let cases: [(usize, Value, Code); 6] = [
        (0, Null, Code::NullNotAllowed),
        (0, Int(1 << 31), Code::ValueRange),
        (0, Value::from("x"), Code::ValueType),
        (2, Decimal(1, 3), Code::ValueRange),
        (4, Bytes(vec![1]), Code::ValueRange),
        (3, Bytes(vec![0; 70_001]), Code::ValueRange),
    ];
    for (i, value, code) in cases {
        let mut values = good.clone();
        values[i] = value;
        assert_eq!(encode(&layout, &values).map_err(|e| e.code()).err(), Some(code));
    }
}

/// The row is refused before its values are copied, as they would go to overflow pages.
#[test]
fn a_row_longer_than_any_page_is_refused_before_it_is_copied() {
    let column = |id| RowColumn { id, ty: ColumnType::Bytes { max: u32::MAX }, nullable: true };
    let layout = RowLayout::new(3, vec![column(0), column(1)]);
    let value = vec![7; (VALUES_BYTES_MAX / 2) as usize + 1];
    let mut out = b"before".to_vec();
    let field = |_| Field::Value(ValueRef::Bytes(&value));
    let error = layout.encode(field, &mut out).expect_err("it is too long");
    assert_eq!((error.code(), out.as_slice()), (Code::RowTooLong, &b"before"[..]));
    assert!(out.capacity() < 100, "{}", out.capacity());
    let field = |i| Field::Value(if i == 0 { ValueRef::Bytes(&value) } else { ValueRef::Null });
    layout.encode(field, &mut out).expect("half of it");
}
