//! Copied keys against encoded ones, for every type that can be copied.

use super::*;
use crate::schema::{ColumnSpec, IndexSpec, TableDef, TableSpec};
use evenkeel_base::{IndexId, TableId};
use evenkeel_format::{ColumnType, Field, Value, ValueRef};
use evenkeel_io::Rng;
use std::sync::Arc;

const TYPES: [ColumnType; 11] = [
    ColumnType::Bool,
    ColumnType::Int8,
    ColumnType::UInt8,
    ColumnType::Int16,
    ColumnType::UInt16,
    ColumnType::Int32,
    ColumnType::UInt32,
    ColumnType::Int64,
    ColumnType::UInt64,
    ColumnType::DateTime,
    ColumnType::Decimal { precision: 12, scale: 2 },
];

fn value(ty: ColumnType, rng: &mut Rng) -> Value {
    let bits = u128::from(rng.below(u64::MAX)) >> rng.below(64);
    let len = ty.fixed_len().unwrap();
    match ty {
        ColumnType::Bool => Value::Bool(bits & 1 == 1),
        ColumnType::Decimal { .. } => ty.from_bits(bits % 1_000_000_000_000).to_owned(),
        _ => ty.from_bits(bits & (u128::MAX >> (128 - 8 * len))).to_owned(),
    }
}

#[test]
fn copied_keys_are_the_encoded_ones() {
    let mut rng = Rng::new(3);
    let mut spec = TableSpec::new()
        .column(ColumnSpec::new("k1", ColumnType::Int32))
        .column(ColumnSpec::new("k2", ColumnType::Int64))
        .primary_key(&["k1 desc", "k2"]);
    for (i, ty) in TYPES.into_iter().enumerate() {
        spec = spec.column(ColumnSpec::new(&format!("c{i}"), ty));
        spec = spec.column(ColumnSpec::new(&format!("n{i}"), ty).nullable());
        let (c, n) = (format!("c{i}"), format!("n{i} desc"));
        spec = spec.index(IndexSpec::new(&format!("i{i}"), &[&c, "k2", &n, "k1"]));
    }
    spec = spec.column(ColumnSpec::new("text", ColumnType::Text { max: 9 }));
    spec = spec.column(ColumnSpec::new("float", ColumnType::Float64));
    spec = spec.index(IndexSpec::new("t", &["k1", "text"])).index(IndexSpec::new("f", &["float"]));
    let mut next = 0;
    let number = || {
        next += 1;
        IndexId(next)
    };
    let def = Arc::new(TableDef::new(TableId(1), "t", &spec, number, 4096).unwrap());
    let layout = Layout::new(def, 1, 4096).unwrap();
    for _ in 0..300 {
        let mut values: Vec<Value> = Vec::new();
        for column in &layout.columns {
            let entry = &column.entry;
            values.push(match entry.ty {
                ColumnType::Text { .. } => Value::from("text"),
                ColumnType::Float64 => Value::Float(0.5),
                _ if entry.nullable && rng.below(3) == 0 => Value::Null,
                ty => value(ty, &mut rng),
            });
        }
        let of = |i: usize| -> evenkeel_base::Result<ValueRef<'_>> { Ok(values[i].as_ref()) };
        let (mut key, mut row) = (Vec::new(), Vec::new());
        layout.encode_key(&of, &mut key).unwrap();
        layout.encode_row(&|i| of(i).map(Field::Value), &mut row).unwrap();
        for index in &layout.indexes {
            let Some(copier) = KeyCopier::new(&layout, index) else {
                assert!(["t", "f"].contains(&index.name.as_str()));
                continue;
            };
            let (mut want, mut found) = (Vec::new(), Vec::new());
            index.encode(&of, key.len(), &mut want).unwrap();
            assert!(copier.copy(&key, &row, &mut found));
            assert_eq!(found, want, "{} of {values:?}", index.name);
            found.clear();
            assert!(!copier.copy(&key, &row[..2], &mut found), "a row cut short");
            let other = [&row[..1], &[9], &row[2..]].concat();
            assert!(!copier.copy(&key, &other, &mut found), "another format");
        }
    }
}
