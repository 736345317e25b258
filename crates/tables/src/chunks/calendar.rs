//! Times in columns that MariaDB keeps packed: DATE, DATETIME and TIMESTAMP (docs/format/row.md).
//!
//! The packed values have the order of time. A chunk is a range of them: `bound` is the inverse of
//! `time_of`. That server also admits dates that are none: a month or day 0 stands for the first
//! one, and a day beyond the end of its month for the last moment of the month, so the order stays.

use evenkeel_format::chunks::TimeUnit;
use evenkeel_format::{ColumnType, Value, ValueRef};

const DAY: i64 = 86_400;
/// What the server adds to the five bytes of a DATETIME.
const SIGN: u64 = 1 << 39;

/// True if the values of a time column have to be unpacked.
pub(super) fn is_packed(unit: TimeUnit) -> bool {
    matches!(unit, TimeUnit::PackedDays | TimeUnit::PackedSeconds | TimeUnit::Timestamp)
}

/// Whole bytes of a packed value; behind them comes the fraction of a second.
fn whole_bytes(unit: TimeUnit) -> usize {
    if unit == TimeUnit::PackedSeconds { 5 } else { 4 }
}

/// True if a column of this type may hold times of a packed unit.
pub(super) fn fits(unit: TimeUnit, ty: ColumnType) -> bool {
    match (unit, ty) {
        (TimeUnit::PackedDays, ColumnType::UInt32) => true,
        (TimeUnit::PackedDays, _) => false,
        (_, ColumnType::FixedBytes { len }) => {
            (0..=3).contains(&(i32::from(len) - whole_bytes(unit) as i32))
        }
        _ => false,
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so a leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The year, month and day of a number of days from 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + 400 * era + i64::from(month <= 2), month, day)
}

/// Days of a month.
fn length(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_of(next_year, next, 1) - days_of(year, month, 1)
}

/// Seconds since 1970 of a date that need not exist, and of a time of its day.
fn seconds_of((year, month, day): (i64, i64, i64), of_day: i64) -> i64 {
    let month = month.min(12);
    match (month, day) {
        (0, _) => days_of(year, 1, 1) * DAY,
        (_, 0) => days_of(year, month, 1) * DAY,
        _ if day > length(year, month) => days_of(year, month, length(year, month)) * DAY + DAY - 1,
        _ => days_of(year, month, day) * DAY + of_day,
    }
}

/// Seconds of the packed time of a day.
fn of_day(packed: u64) -> i64 {
    let (hour, minute, second) = (packed >> 12 & 31, packed >> 6 & 63, packed & 63);
    let seconds = match (hour, minute) {
        (24.., _) => DAY as u64 - 1,
        (_, 60..) => hour * 3600 + 3599,
        _ => hour * 3600 + minute * 60 + second.min(59),
    };
    seconds as i64
}

/// The time that a value says; `None` if its type is another one.
pub(super) fn time_of(unit: TimeUnit, value: ValueRef<'_>) -> Option<i64> {
    let number = match value {
        ValueRef::Bytes(bytes) if unit != TimeUnit::PackedDays => {
            let whole = bytes.get(..whole_bytes(unit))?;
            whole.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        }
        ValueRef::UInt(packed) if unit == TimeUnit::PackedDays => packed,
        ValueRef::Int(packed) if unit == TimeUnit::PackedDays => u64::try_from(packed).ok()?,
        _ => return None,
    };
    let part = |shift: u32, mask: u64| (number >> shift & mask) as i64;
    Some(match unit {
        TimeUnit::PackedDays => {
            seconds_of((part(9, u64::MAX), part(5, 15), part(0, 31)), 0).div_euclid(DAY)
        }
        TimeUnit::PackedSeconds => {
            let packed = number.saturating_sub(SIGN);
            let months = (packed >> 22) as i64;
            let date = (months / 13, months % 13, (packed >> 17 & 31) as i64);
            seconds_of(date, of_day(packed))
        }
        _ => number as i64,
    })
}

/// The least packed number that says this time or a later one; `None` if none does.
fn least(unit: TimeUnit, time: i64) -> Option<u64> {
    if unit == TimeUnit::Timestamp {
        return u32::try_from(time.max(0)).ok().map(u64::from);
    }
    let (days, of_day) = match unit {
        TimeUnit::PackedDays => (time, 0),
        _ => (time.div_euclid(DAY), time.rem_euclid(DAY)),
    };
    let in_calendar = days_of(0, 1, 1)..=days_of(9999, 12, 31);
    if days > *in_calendar.end() {
        return None;
    }
    let (year, month, day) = date_of(days.max(*in_calendar.start()));
    // Days and months 0 come first.
    let is_first = day == 1 && of_day == 0;
    let day = if is_first { 0 } else { day };
    let month = if is_first && month == 1 { 0 } else { month };
    let (year, month, day, of_day) = (year as u64, month as u64, day as u64, of_day as u64);
    Some(match unit {
        TimeUnit::PackedDays => year << 9 | month << 5 | day,
        _ => {
            let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
            let time = hour << 12 | minute << 6 | second;
            SIGN + ((year * 13 + month) << 22 | day << 17 | time)
        }
    })
}

/// The first value of a chunk that begins at a time, or the last possible one of a chunk that ends
/// before it.
pub(super) fn bound(unit: TimeUnit, ty: ColumnType, time: i64, is_last: bool) -> Option<Value> {
    let whole = least(unit, time)?;
    let ColumnType::FixedBytes { len } = ty else {
        return Some(Value::UInt(whole.checked_sub(u64::from(is_last))?));
    };
    let len = usize::from(len);
    let fraction = 8 * len.checked_sub(whole_bytes(unit))? as u32;
    let number = whole.checked_shl(fraction)?.checked_sub(u64::from(is_last))?;
    Some(Value::Bytes(number.to_be_bytes().get(8usize.checked_sub(len)?..)?.into()))
}

#[cfg(test)]
#[path = "calendar_tests.rs"]
mod tests;
