//! The place of a value among keys, against the order of the values.

use super::*;
use evenkeel_base::Code;
use proptest::prelude::*;

/// Which keys of `held` are in front of the value; the prefix stands for the key parts before this
/// one.
fn in_front(part: KeyPart, held: &[ValueRef<'_>], value: ValueRef<'_>) -> Vec<bool> {
    let prefix = b"p".to_vec();
    let mut place = prefix.clone();
    let refused = part.encode(value, &mut place).expect_err("it does not fit");
    assert_eq!(refused.code(), Code::ValueRange);
    place.truncate(prefix.len());
    let has_end = part.encode_gap(value, &mut place).expect("it has a place");
    let is_in_front = |held: &ValueRef<'_>| {
        let mut key = prefix.clone();
        part.encode(*held, &mut key).expect("it fits");
        !has_end || key < place
    };
    held.iter().map(is_in_front).collect()
}

fn check(ty: ColumnType, held: &[ValueRef<'_>], value: ValueRef<'_>, less: &dyn Fn(usize) -> bool) {
    for (nullable, desc) in [(false, false), (false, true), (true, false), (true, true)] {
        let part = KeyPart::whole(ty, nullable, desc);
        let expected: Vec<bool> = (0..held.len()).map(|at| less(at) != desc).collect();
        assert_eq!(in_front(part, held, value), expected, "{ty} {nullable} {desc} {value:?}");
        if nullable {
            // NULL comes first, or last in descending order.
            assert_eq!(in_front(part, &[ValueRef::Null], value), [!desc]);
        }
    }
}

/// Few different bytes, so that they often begin alike.
fn bytes(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], len)
}

proptest! {
    #[test]
    fn integers_beyond_the_domain_compare_by_value(
        held: Vec<i8>,
        beyond in prop_oneof![128i64.., ..-128i64],
    ) {
        let values: Vec<_> = held.iter().map(|i| ValueRef::Int(i64::from(*i))).collect();
        check(ColumnType::Int8, &values, ValueRef::Int(beyond), &|at| i64::from(held[at]) < beyond);
    }

    #[test]
    fn negative_numbers_sort_below_unsigned_ones(held: Vec<u8>, below in ..0i64) {
        let values: Vec<_> = held.iter().map(|u| ValueRef::UInt(u64::from(*u))).collect();
        check(ColumnType::UInt8, &values, ValueRef::Int(below), &|_| false);
    }

    #[test]
    fn decimals_with_more_digits_compare_by_value(
        held in prop::collection::vec(-9999i128..=9999, 0..20),
        cents: i32,
    ) {
        prop_assume!(cents % 10 != 0);
        let ty = ColumnType::Decimal { precision: 4, scale: 1 };
        let values: Vec<_> = held.iter().map(|d| ValueRef::Decimal(*d, 1)).collect();
        let value = ValueRef::Decimal(i128::from(cents), 2);
        check(ty, &values, value, &|at| held[at] * 10 < i128::from(cents));
    }

    #[test]
    fn bytes_of_another_length_compare_by_value(
        held in prop::collection::vec(bytes(2), 0..9),
        value in bytes(0..6),
    ) {
        prop_assume!(value.len() != 2);
        let values: Vec<_> = held.iter().map(|b| ValueRef::Bytes(b)).collect();
        let fixed = ColumnType::FixedBytes { len: 2 };
        check(fixed, &values, ValueRef::Bytes(&value), &|at| held[at] < value);
        prop_assume!(value.len() > 2);
        let up_to = ColumnType::Bytes { max: 2 };
        check(up_to, &values, ValueRef::Bytes(&value), &|at| held[at] < value);
    }

    #[test]
    fn text_longer_than_its_column_compares_by_value(
        held in prop::collection::vec("[a-bé]{0,2}", 0..9),
        value in "[a-bé]{5,7}",
    ) {
        let held: Vec<_> = held.into_iter().filter(|t| t.len() <= 4).collect();
        let values: Vec<_> = held.iter().map(|t| ValueRef::Text(t)).collect();
        check(ColumnType::Text { max: 4 }, &values, ValueRef::Text(&value), &|at| held[at] < value);
    }

    #[test]
    fn values_that_begin_alike_lie_between_two_places(
        held in prop::collection::vec(bytes(0..4), 0..9),
        start in bytes(0..5),
    ) {
        let up_to = ColumnType::Bytes { max: 3 };
        begin_alike(KeyPart::whole(up_to, false, false), &held, &start, &start);
        let fixed: Vec<_> = held.iter().filter(|b| b.len() == 3).cloned().collect();
        let whole = KeyPart::whole(ColumnType::FixedBytes { len: 3 }, false, false);
        begin_alike(whole, &fixed, &start, &start);
        // A key of two bytes judges by these.
        let prefix = KeyPart { form: Form::Prefix(2), ..KeyPart::whole(up_to, false, false) };
        if start.len() <= 3 {
            begin_alike(prefix, &held, &start, &start[..start.len().min(2)]);
        }
    }
}

/// Whether each value that a key can hold lies between the places of `start` exactly if it begins
/// with `judged`.
fn begin_alike(part: KeyPart, held: &[Vec<u8>], start: &[u8], judged: &[u8]) {
    for (nullable, desc) in [(false, false), (false, true), (true, false), (true, true)] {
        let part = KeyPart { nullable, desc, ..part };
        let mut lower = b"p".to_vec();
        let any = part.encode_start(ValueRef::Bytes(start), &mut lower).expect("bytes");
        let mut upper = lower.clone();
        let has_end = prefix_successor(&mut upper);
        let is_between = |value: ValueRef<'_>| {
            let mut key = b"p".to_vec();
            part.encode(value, &mut key).expect("it fits");
            any && key >= lower && (!has_end || key < upper)
        };
        for held in held {
            let expected = held.starts_with(judged);
            assert_eq!(is_between(ValueRef::Bytes(held)), expected, "{part:?} {held:?} {start:?}");
        }
        assert!(!nullable || !is_between(ValueRef::Null));
    }
}

#[test]
fn a_number_does_not_begin_with_another() {
    let part = KeyPart::whole(ColumnType::Int8, false, false);
    let error = part.encode_start(ValueRef::Int(1), &mut Vec::new()).expect_err("refused");
    assert_eq!(error.code(), Code::ValueType);
}
