//! What is made from a type is read back as it; what a type cannot hold is refused.

use super::*;
use proptest::prelude::*;
use std::fmt::Debug;

/// The value, read back as itself and as an option.
fn comes_back<T>(value: T)
where
    T: Clone + Debug + PartialEq + Into<Value>,
    T: for<'a> TryFrom<ValueRef<'a>, Error = Error>,
    Option<T>: for<'a> TryFrom<ValueRef<'a>, Error = Error>,
{
    let stored: Value = value.clone().into();
    assert_eq!(T::try_from(stored.as_ref()).expect("it holds it"), value);
    let optional = Option::<T>::try_from(stored.as_ref()).expect("it holds it");
    assert_eq!(optional, Some(value.clone()));
    assert_eq!(Value::from(optional), stored);
    assert_eq!(Option::<T>::try_from(ValueRef::Null).expect("NULL"), None);
    let refused = T::try_from(ValueRef::Null).expect_err("NULL is no value");
    assert_eq!(refused.code(), Code::ValueConversion);
}

proptest! {
    #[test]
    fn a_value_is_read_back_as_the_type_that_it_was_made_from(
        (a, b, c, d) in any::<(i8, i16, i32, i64)>(),
        (e, f, g, h) in any::<(u8, u16, u32, u64)>(),
        (truth, single, double) in any::<(bool, f32, f64)>(),
        (text, bytes, four) in any::<(String, Vec<u8>, [u8; 4])>(),
    ) {
        comes_back(a); comes_back(b); comes_back(c); comes_back(d);
        comes_back(e); comes_back(f); comes_back(g); comes_back(h);
        comes_back(truth); comes_back(single); comes_back(double);
        comes_back(text); comes_back(bytes); comes_back(four);
        let time = UNIX_EPOCH + Duration::from_micros(u64::from(g));
        comes_back(time);
    }

    #[test]
    fn a_number_is_read_as_every_type_whose_range_it_is_in(number: i64) {
        let value = ValueRef::from(number);
        prop_assert_eq!(u8::try_from(value).ok(), u8::try_from(number).ok());
        prop_assert_eq!(i32::try_from(value).ok(), i32::try_from(number).ok());
        prop_assert_eq!(u64::try_from(value).ok(), u64::try_from(number).ok());
    }
}

#[test]
fn an_error_names_the_value_and_the_wanted_type() {
    let error = u8::try_from(ValueRef::Int(256)).expect_err("it does not fit");
    assert_eq!((error.context("value"), error.context("wanted")), (Some("Int(256)"), Some("u8")));
    for refused in [
        String::try_from(ValueRef::Bytes(b"a")).err(),
        i64::try_from(ValueRef::Text("1")).err(),
        f32::try_from(ValueRef::Float(0.1)).err(),
        <[u8; 2]>::try_from(ValueRef::Bytes(b"abc")).err(),
        bool::try_from(ValueRef::Int(1)).err(),
    ] {
        assert_eq!(refused.expect("refused").code(), Code::ValueConversion);
    }
}

#[test]
fn times_before_1970_are_kept() {
    let time = UNIX_EPOCH - Duration::from_micros(1);
    assert_eq!(ValueRef::from(time), ValueRef::DateTime(-1));
    assert_eq!(SystemTime::try_from(ValueRef::DateTime(-1)).expect("it holds it"), time);
}
