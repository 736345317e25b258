//! Keys: order is preserved, round trip, prefix-free, junk never panics.

use super::*;
use crate::collation::{Collations, Weigher};
use proptest::prelude::*;
use std::cmp::Ordering;

fn column() -> impl Strategy<Value = ColumnType> {
    use ColumnType::*;
    prop_oneof![
        Just(Bool),
        Just(Int8),
        Just(Int16),
        Just(Int32),
        Just(Int64),
        Just(UInt8),
        Just(UInt16),
        Just(UInt32),
        Just(UInt64),
        Just(Float32),
        Just(Float64),
        Just(Date),
        Just(DateTime),
        Just(Bytes { max: 100 }),
        Just(Text { max: 400 }),
        Just(FixedBytes { len: 3 }),
        (1u8..=38).prop_map(|precision| Decimal { precision, scale: precision / 2 }),
    ]
}

/// A value of `ty` from raw material.
fn value(ty: ColumnType, raw: i128, bytes: &[u8], text: &str) -> Value {
    use ColumnType::*;
    match ty {
        Bool => Value::Bool(raw & 1 == 1),
        Int8 => Value::Int(i64::from(raw as i8)),
        Int16 => Value::Int(i64::from(raw as i16)),
        Int32 => Value::Int(i64::from(raw as i32)),
        Int64 => Value::Int(raw as i64),
        UInt8 => Value::UInt(u64::from(raw as u8)),
        UInt16 => Value::UInt(u64::from(raw as u16)),
        UInt32 => Value::UInt(u64::from(raw as u32)),
        UInt64 => Value::UInt(raw as u64),
        Float32 => Value::Float(f64::from(f32::from_bits(raw as u32) + 0.0)),
        Float64 => Value::Float(f64::from_bits(raw as u64) + 0.0),
        Decimal { precision, scale } => {
            Value::Decimal(raw % 10i128.pow(u32::from(precision)), scale)
        }
        FixedBytes { len } => {
            Value::Bytes((0..len as usize).map(|i| *bytes.get(i).unwrap_or(&0)).collect())
        }
        Bytes { .. } => Value::Bytes(bytes.to_vec()),
        Text { .. } => Value::Text(text.to_string()),
        Date => Value::Date(raw as i32),
        DateTime => Value::DateTime(raw as i64),
    }
}

fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Less,
        (_, Value::Null) => Ordering::Greater,
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::UInt(a), Value::UInt(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => {
            a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        (Value::Decimal(a, _), Value::Decimal(b, _)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (Value::Date(a), Value::Date(b)) => a.cmp(b),
        (Value::DateTime(a), Value::DateTime(b)) => a.cmp(b),
        _ => panic!("different types"),
    }
}

fn raw() -> impl Strategy<Value = (i128, Vec<u8>, String, u8)> {
    (
        prop_oneof![any::<i128>(), (-3i128..3)],
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff), any::<u8>()], 0..6),
        "[a-c\u{0}\u{e9}]{0,4}",
        0u8..8,
    )
}

/// Weights: half of each byte.
struct Halved;

impl Collations for Halved {
    fn weights(&self, _: u16, chars: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        out.extend(bytes.iter().take(chars as usize).map(|b| b / 2));
        Ok(())
    }

    fn bytes_max(&self, _: u16, chars: u32, _: u32) -> usize {
        2 * chars as usize
    }

    fn checksum(&self, _: u16) -> Option<u32> {
        Some(1)
    }
}

#[test]
fn weight_keys_need_their_collation() {
    let ty = ColumnType::Bytes { max: 20 };
    for (by, code) in
        [(Weigher::Missing, Code::CollationMissing), (Weigher::Changed, Code::CollationChanged)]
    {
        let form = Form::Weights { collation: 7, chars: 0, by };
        let part = KeyPart { form, ..KeyPart::whole(ty, false, false) };
        let error = part.encode(ValueRef::Bytes(b"a"), &mut Vec::new()).unwrap_err();
        assert_eq!((error.code(), error.context("collation")), (code, Some("7")));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 16))]

    #[test]
    fn keys_keep_order_and_round_trip(
        columns in prop::collection::vec((column(), any::<bool>(), any::<bool>()), 1..4),
        raws in prop::collection::vec((raw(), raw()), 4),
    ) {
        let (mut a_key, mut b_key) = (Vec::new(), Vec::new());
        let mut expected = Ordering::Equal;
        let mut values = Vec::new();
        for ((ty, nullable, desc), (a, b)) in columns.iter().zip(&raws) {
            let part = KeyPart::whole(*ty, *nullable, *desc);
            let make = |r: &(i128, Vec<u8>, String, u8)| {
                if *nullable && r.3 == 0 { Value::Null } else { value(*ty, r.0, &r.1, &r.2) }
            };
            let (a, b) = (make(a), make(b));
            part.encode(a.as_ref(), &mut a_key).unwrap();
            part.encode(b.as_ref(), &mut b_key).unwrap();
            let order = compare(&a, &b);
            expected = expected.then(if *desc { order.reverse() } else { order });
            values.push((part, a));
        }
        prop_assert_eq!(a_key.cmp(&b_key), expected);
        if expected != Ordering::Equal {
            prop_assert!(!a_key.starts_with(&b_key) && !b_key.starts_with(&a_key));
        }
        let mut rest = &a_key[..];
        for (part, want) in &values {
            let (got, tail) = part.decode(rest).unwrap();
            prop_assert_eq!(part.skip(rest).unwrap(), tail);
            prop_assert!(rest.len() - tail.len() <= part.bytes_max());
            prop_assert_eq!(compare(&got, want), Ordering::Equal);
            rest = tail;
        }
        prop_assert!(rest.is_empty());
    }

    /// Keys of prefixes and weights: order and equality of what they hold, whole parts behind them.
    #[test]
    fn lossy_parts_are_split_and_ordered(
        a in prop::collection::vec(0u8..4, 0..9), b in prop::collection::vec(0u8..4, 0..9),
        prefix in 1u32..5, weights: bool, desc: bool, nullable: bool,
    ) {
        let ty = ColumnType::Bytes { max: 20 };
        let form = match weights {
            false => Form::Prefix(prefix),
            true => Form::Weights { collation: 1, chars: prefix, by: Weigher::By(&Halved) },
        };
        let part = KeyPart { form, ..KeyPart::whole(ty, nullable, desc) };
        let cut = |v: &[u8]| v[..v.len().min(prefix as usize)].to_vec();
        let seen = |v: &[u8]| -> Vec<u8> {
            if weights { cut(v).iter().map(|c| c / 2).collect() } else { cut(v) }
        };
        let key = |v: &[u8]| {
            let mut key = Vec::new();
            part.encode(ValueRef::Bytes(v), &mut key).unwrap();
            key.extend_from_slice(b"rest");
            key
        };
        let order = seen(&a).cmp(&seen(&b));
        let order = if desc { order.reverse() } else { order };
        prop_assert_eq!(key(&a).cmp(&key(&b)), order);
        let whole = key(&a);
        prop_assert_eq!(part.skip(&whole).unwrap(), b"rest");
        let (held, _) = part.decode(&whole).unwrap();
        prop_assert_eq!(held, Value::Bytes(seen(&a)));
        prop_assert!(whole.len() - 4 <= part.bytes_max());
    }

    #[test]
    fn junk_never_panics(ty in column(), nullable: bool, desc: bool,
                         bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let part = KeyPart::whole(ty, nullable, desc);
        let _ = part.decode(&bytes);
        let _ = part.decode_scalar(&bytes);
    }

    #[test]
    fn successor_bounds_the_prefix(prefix in prop::collection::vec(200u8.., 0..4),
                                   tail in prop::collection::vec(any::<u8>(), 0..4)) {
        let mut above = prefix.clone();
        let mut inside = prefix.clone();
        inside.extend_from_slice(&tail);
        if prefix_successor(&mut above) {
            prop_assert!(inside < above);
        }
    }
}
