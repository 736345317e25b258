//! Values and keys as text for people: in reports of damage, dumps and CSV.

use crate::key::KeyPart;
use crate::types::Value;

/// A clustered key, or the beginning of one: `name = value, ...`. `parts` are those of the key with
/// the names of their columns; none: the key is a hidden id. What does not decode is shown as
/// hexadecimal digits.
pub fn key<'a>(parts: impl Iterator<Item = (&'a KeyPart, &'a str)>, key: &[u8]) -> String {
    let (mut text, mut rest, mut is_hidden) = (Vec::new(), key, true);
    for (part, name) in parts {
        is_hidden = false;
        if let Ok((value, behind)) = part.decode(rest) {
            text.push(format!("{name} = {}", quoted(&value)));
            rest = behind;
            continue;
        }
        // A fence is as short as possible. No key lies between it and itself with zeros behind,
        // which is a whole number; with a terminator it is the beginning of a string.
        let mut longer = rest.to_vec();
        match part.ty.fixed_len() {
            Some(len) => longer.resize(len + usize::from(part.nullable), 0),
            None => longer.extend([if part.desc { 0xff } else { 0 }; 2]),
        }
        if !rest.is_empty()
            && let Ok((value, _)) = part.decode(&longer)
        {
            text.push(format!("{name} = {}", quoted(&value)));
            rest = &[];
        }
        break;
    }
    let mut id = [0; 8];
    if let Some(to) = id.get_mut(..rest.len()).filter(|to| is_hidden && !to.is_empty()) {
        // So is a fence of hidden ids.
        to.copy_from_slice(rest);
        return format!("hidden id = {}", u64::from_be_bytes(id));
    }
    if !rest.is_empty() {
        text.push(format!("x'{}'", hex(rest)));
    }
    text.join(", ")
}

/// As `plain`, with text, and bytes that are readable text, in quotes.
fn quoted(value: &Value) -> String {
    let is_readable = |text: &&str| !text.chars().any(char::is_control);
    match value {
        Value::Text(v) => format!("'{v}'"),
        Value::Bytes(v) => match std::str::from_utf8(v).ok().filter(is_readable) {
            Some(text) => format!("'{text}'"),
            None => format!("x'{}'", hex(v)),
        },
        other => plain(other),
    }
}

/// Hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A value for people and for CSV: text as it is, bytes as hexadecimal digits.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_string(),
        Value::Bool(v) => v.to_string(),
        Value::Int(v) => v.to_string(),
        Value::UInt(v) => v.to_string(),
        Value::Float(v) => format!("{v:?}"),
        Value::Decimal(v, scale) => decimal(*v, *scale),
        Value::Bytes(v) => hex(v),
        Value::Text(v) => v.clone(),
        Value::Date(v) => date(i64::from(*v)),
        Value::DateTime(v) => datetime(*v),
    }
}

/// An exact number: the unscaled one with its point.
pub fn decimal(unscaled: i128, scale: u8) -> String {
    let digits = unscaled.unsigned_abs().to_string();
    let sign = if unscaled < 0 { "-" } else { "" };
    let scale = usize::from(scale);
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    format!("{sign}{whole}.{part}")
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
pub fn civil(days: i64) -> (i64, u32, u32) {
    // Days since 0000-03-01, in eras of 400 years (146,097 days), whose years begin in March.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + era * 400 + carry, month as u32, day as u32)
}

/// A day as `YYYY-MM-DD`.
pub fn date(days: i64) -> String {
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// A time as `YYYY-MM-DD HH:MM:SS.ffffff`.
pub fn datetime(micros: i64) -> String {
    let (days, within) = (micros.div_euclid(86_400_000_000), micros.rem_euclid(86_400_000_000));
    let (seconds, micros) = (within / 1_000_000, within % 1_000_000);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{} {hours:02}:{minutes:02}:{seconds:02}.{micros:06}", date(days))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ColumnType, ValueRef};

    #[test]
    fn values_are_shown_as_people_write_them() {
        assert_eq!(decimal(-5, 2), "-0.05");
        assert_eq!(decimal(12_345, 2), "123.45");
        assert_eq!(decimal(7, 0), "7");
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(-1), "1969-12-31");
        assert_eq!(date(19_782), "2024-02-29");
        assert_eq!(date(-719_162), "0001-01-01");
        assert_eq!(datetime(-1), "1969-12-31 23:59:59.999999");
        assert_eq!(datetime(951_782_400_000_001), "2000-02-29 00:00:00.000001");
    }

    #[test]
    fn every_day_follows_the_day_before() {
        let mut before = civil(-800_000);
        for days in -799_999..800_000 {
            let now = civil(days);
            let next_day = now.0 == before.0 && now.1 == before.1 && now.2 == before.2 + 1;
            let next_month = now.2 == 1 && (28..=31).contains(&before.2);
            assert!(next_day || next_month, "{before:?} then {now:?}");
            before = now;
        }
    }
    #[test]
    fn keys_and_fences_are_shown_by_column() {
        let id = KeyPart::whole(ColumnType::Int64, false, false);
        let day = KeyPart::whole(ColumnType::Date, true, true);
        let mut bytes = Vec::new();
        for (part, value) in [(&id, ValueRef::Int(-7)), (&day, ValueRef::Date(0))] {
            part.encode(value, &mut bytes).expect("encodes");
        }
        let parts = || [(&id, "id"), (&day, "day")].into_iter();
        assert_eq!(key(parts(), &bytes), "id = -7, day = 1970-01-01");
        assert_eq!(key(parts(), &bytes[..8]), "id = -7");
        assert_eq!(key(parts(), &[0x80]), "id = 0");
        assert_eq!(
            key(parts(), &[bytes, vec![1, 2]].concat()),
            "id = -7, day = 1970-01-01, x'0102'"
        );
        let name = KeyPart::whole(ColumnType::Text { max: 9 }, false, false);
        assert_eq!(key([(&name, "name")].into_iter(), b"An"), "name = 'An'");
        let none = || std::iter::empty::<(&KeyPart, &str)>();
        assert_eq!(key(none(), &9u64.to_be_bytes()), "hidden id = 9");
        assert_eq!(key(none(), &[0, 0, 0, 0, 0, 0, 1]), "hidden id = 256");
        assert_eq!(key(none(), &[1; 9]), "x'010101010101010101'");
        assert_eq!(key(none(), &[]), "");
    }
}
