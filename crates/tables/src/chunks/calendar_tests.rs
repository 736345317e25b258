//! Packed times: their order, their inverse, and dates that are none.

use super::*;

fn datetime(date: (u64, u64, u64), time: (u64, u64, u64), fraction: &[u8]) -> Vec<u8> {
    let packed = (date.0 * 13 + date.1) << 22 | date.2 << 17 | time.0 << 12 | time.1 << 6 | time.2;
    let mut bytes = (SIGN + packed).to_be_bytes()[3..].to_vec();
    bytes.extend_from_slice(fraction);
    bytes
}

fn says(bytes: &[u8]) -> i64 {
    time_of(TimeUnit::PackedSeconds, ValueRef::Bytes(bytes)).expect("a time")
}

#[test]
fn the_calendar_knows_every_day_of_ten_thousand_years() {
    let mut days = days_of(0, 1, 1);
    for year in 0..10_000 {
        for month in 1..=12 {
            for day in 1..=length(year, month) {
                assert_eq!(days_of(year, month, day), days, "{year}-{month}-{day}");
                assert_eq!(date_of(days), (year, month, day));
                days += 1;
            }
        }
    }
    assert_eq!((days_of(1970, 1, 1), days_of(2000, 3, 1), length(2100, 2)), (0, 11_017, 28));
}

#[test]
fn packed_times_say_seconds() {
    assert_eq!(says(&datetime((1970, 1, 1), (0, 0, 1), &[])), 1);
    assert_eq!(says(&datetime((2026, 11, 30), (23, 10, 7), &[9, 9, 9])), 1_796_080_207);
    let zero = says(&datetime((0, 0, 0), (0, 0, 0), &[]));
    assert_eq!(zero, days_of(0, 1, 1) * DAY, "a zero date is early");
    let stamp = |bytes: &[u8]| time_of(TimeUnit::Timestamp, ValueRef::Bytes(bytes));
    assert_eq!(stamp(&[0, 0, 1, 0, 0xff, 0xff, 0xff]), Some(256));
    assert_eq!(stamp(&[0, 0, 1]), None);
    let date = |y: u64, m: u64, d: u64| y << 9 | m << 5 | d;
    let day = |packed| time_of(TimeUnit::PackedDays, ValueRef::UInt(packed));
    assert_eq!(day(date(1970, 2, 1)), Some(31));
    assert_eq!(day(date(1970, 0, 0)), Some(0));
    assert_eq!(day(date(1970, 2, 31)), day(date(1970, 2, 28)));
}

/// Every packed date, also those that are none, with times of the day: later numbers never say
/// earlier times.
#[test]
fn the_order_of_packed_values_is_the_order_of_time() {
    let (mut before, mut before_day) = (i64::MIN, i64::MIN);
    for year in [0, 1, 1969, 1999, 2000, 2023, 2024, 9999] {
        for month in 0..=12 {
            for day in 0..32 {
                for time in [(0, 0, 0), (0, 0, 59), (7, 63, 63), (23, 59, 59), (31, 0, 0)] {
                    let now = says(&datetime((year, month, day), time, &[]));
                    assert!(now >= before, "{year}-{month}-{day} {time:?}");
                    before = now;
                }
                let value = ValueRef::UInt(year << 9 | month << 5 | day);
                let now = time_of(TimeUnit::PackedDays, value).expect("a day");
                assert!(now >= before_day, "{year}-{month}-{day}");
                before_day = now;
            }
        }
    }
}

/// The last value before a time says less, the first one from it on does not.
#[test]
fn bounds_of_chunks_separate_their_values() {
    let day = 24 * 3600;
    for len in [5, 6, 8] {
        let ty = ColumnType::FixedBytes { len };
        let dates = [(2000, 1, 1), (2024, 3, 1), (2023, 3, 1), (2023, 5, 17), (1969, 12, 31)];
        for at in dates.map(|(y, m, d)| days_of(y, m, d) * day) {
            for at in [at, at + 1, at + day - 1, at + 3600] {
                let unit = TimeUnit::PackedSeconds;
                let (first, last) = (bound(unit, ty, at, false), bound(unit, ty, at, true));
                let (first, last) = (first.expect("is there"), last.expect("is there"));
                assert!(time_of(unit, first.as_ref()).expect("a time") >= at, "{at} {first:?}");
                assert!(time_of(unit, last.as_ref()).expect("a time") < at, "{at} {last:?}");
            }
        }
    }
    for at in [0, 31, 59, 365, 19_782, 19_783] {
        let unit = TimeUnit::PackedDays;
        let of = |is_last| bound(unit, ColumnType::UInt32, at, is_last).expect("is there");
        assert!(time_of(unit, of(false).as_ref()) >= Some(at), "{at}");
        assert!(time_of(unit, of(true).as_ref()) < Some(at), "{at}");
    }
    let stamp = ColumnType::FixedBytes { len: 7 };
    let of = |at, is_last| bound(TimeUnit::Timestamp, stamp, at, is_last);
    assert_eq!(of(256, false), Some(Value::Bytes([0, 0, 1, 0, 0, 0, 0][..].into())));
    assert_eq!(of(256, true), Some(Value::Bytes([0, 0, 0, 255, 255, 255, 255][..].into())));
    assert_eq!((of(0, true), of(1 << 32, false)), (None, None), "no such values");
}
