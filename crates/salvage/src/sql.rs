//! Definitions and values as SQL in MariaDB's dialect. Every value is written so that MariaDB reads
//! the same value back; a value that MariaDB cannot hold is an error, never another value.

use crate::definition::{Column, Definition, ForeignKey};
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::catalog::{PartEntry, ReferenceAction};
use evenkeel_format::text::{civil, date, datetime, decimal, hex};
use evenkeel_format::{ColumnType, Value};
use std::fmt::Write;

/// Longest VARBINARY or VARCHAR that this writes; longer types become BLOB or TEXT types. A row of
/// MariaDB has at most 65,535 bytes beside its BLOBs.
const VARIABLE_BYTES_MAX: u32 = 4_096;
/// Longest prefix of a BLOB or TEXT in a key: MariaDB's keys have at most 3,072 bytes, and a
/// character of utf8mb4 takes four of them.
const PREFIX_CHARS: u32 = 255;

/// Bytes of a character at most, in any character set of MariaDB.
const CHARACTER_BYTES_MAX: u32 = 4;
/// Bytes of a key of MariaDB at most.
const KEY_BYTES_MAX: u32 = 3_072;

/// A name in back quotes. A slash separates database and table, as in the server's names, which
/// write other characters as `@` and four hexadecimal digits.
pub fn table_name(name: &str) -> String {
    match name.rsplit_once('/') {
        Some((database, table)) => {
            format!("{}.{}", quoted(&decoded(database)), quoted(&decoded(table)))
        }
        None => quoted(name),
    }
}

/// The database of a server's table.
pub fn database_of(name: &str) -> Option<String> {
    name.rsplit_once('/').map(|(database, _)| quoted(&decoded(database)))
}

fn decoded(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some(at) = rest.find('@') {
        let code = rest.get(at + 1..at + 5).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(c) = code.and_then(char::from_u32) else {
            out.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        };
        out.push_str(&rest[..at]);
        out.push(c);
        rest = &rest[at + 5..];
    }
    out + rest
}

/// A name in back quotes.
pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// True if a key needs a prefix of a column of this type.
pub fn is_blob(ty: ColumnType) -> bool {
    matches!(ty, ColumnType::Bytes { max } | ColumnType::Text { max } if max > VARIABLE_BYTES_MAX)
}

fn type_name(ty: ColumnType) -> String {
    use ColumnType::*;
    let long = |max: u32, names: [&str; 3]| match max {
        0..=0xffff => names[0].to_string(),
        0x1_0000..=0xff_ffff => names[1].to_string(),
        _ => names[2].to_string(),
    };
    match ty {
        Bool => "BOOLEAN".to_string(),
        Int8 => "TINYINT".to_string(),
        Int16 => "SMALLINT".to_string(),
        Int32 => "INT".to_string(),
        Int64 => "BIGINT".to_string(),
        UInt8 => "TINYINT UNSIGNED".to_string(),
        UInt16 => "SMALLINT UNSIGNED".to_string(),
        UInt32 => "INT UNSIGNED".to_string(),
        UInt64 => "BIGINT UNSIGNED".to_string(),
        Float32 => "FLOAT".to_string(),
        Float64 => "DOUBLE".to_string(),
        Decimal { precision, scale } => format!("DECIMAL({precision},{scale})"),
        FixedBytes { len } => format!("BINARY({len})"),
        Bytes { max } if max <= VARIABLE_BYTES_MAX => format!("VARBINARY({max})"),
        Bytes { max } => long(max, ["BLOB", "MEDIUMBLOB", "LONGBLOB"]),
        Text { max } if max <= VARIABLE_BYTES_MAX => format!("VARCHAR({max})"),
        Text { max } => long(max, ["TEXT", "MEDIUMTEXT", "LONGTEXT"]),
        Date => "DATE".to_string(),
        DateTime => "DATETIME(6)".to_string(),
    }
}

fn column(def: &Definition, column: &Column) -> Result<String> {
    let mut text = format!("{} {}", quoted(&column.name), type_name(column.entry.ty));
    if !column.entry.nullable {
        text.push_str(" NOT NULL");
    }
    if let Some(default) = &column.entry.default {
        text.push_str(" DEFAULT ");
        let parts = if is_blob(column.entry.ty) { ("(", ")") } else { ("", "") };
        text.push_str(parts.0);
        literal(column.entry.ty, default, &mut text)?;
        text.push_str(parts.1);
    }
    if def.entry.auto_increment == Some(column.id) {
        text.push_str(" AUTO_INCREMENT");
    }
    Ok(text)
}

/// The bytes of a column that a part of a key has, 0 for all. A column that a collation orders is
/// written as bytes, and its prefix counts characters: with fewer bytes than they may have, a
/// unique key would refuse rows that differ.
fn prefix_bytes(part: &PartEntry) -> u32 {
    let bytes_of_char = if part.collation.is_some() { CHARACTER_BYTES_MAX } else { 1 };
    part.prefix.saturating_mul(bytes_of_char).min(KEY_BYTES_MAX)
}

fn len_max(ty: ColumnType) -> u32 {
    match ty {
        ColumnType::Bytes { max } | ColumnType::Text { max } => max,
        ColumnType::FixedBytes { len } => u32::from(len),
        _ => 0,
    }
}

/// The parts of a key that a collation orders, which the statements do not name.
fn collated(def: &Definition, name: &str, parts: &[PartEntry], out: &mut String) {
    for part in parts {
        let Some(collation) = part.collation else { continue };
        let (column, id) = (quoted(def.column_name(part.column)), collation.id);
        let line = format!(
            "-- Key {name}: column {column} was ordered by the collation with ID {id} of \
             information_schema.COLLATIONS; here it is ordered by its bytes."
        );
        let _ = writeln!(out, "{}", without_breaks(&line));
    }
}

/// In a comment a name must not begin a line.
pub fn without_breaks(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

fn key(def: &Definition, parts: &[PartEntry], unique: bool) -> String {
    let one = |part: &PartEntry| {
        let mut text = quoted(def.column_name(part.column));
        let ty = def.columns.iter().find(|c| c.id == part.column).map(|c| c.entry.ty);
        let prefix = prefix_bytes(part);
        let is_whole = ty.is_some_and(|ty| !is_blob(ty) && len_max(ty) <= prefix);
        if prefix > 0 && !is_whole {
            // Writing to a string cannot fail, here and below.
            let _ = write!(text, "({prefix})");
        } else if ty.is_some_and(is_blob) && !unique {
            let _ = write!(text, "({PREFIX_CHARS})");
        }
        if part.desc {
            text.push_str(" DESC");
        }
        text
    };
    parts.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The CREATE TABLE statement, with the database of a server's table. Foreign keys follow behind
/// all tables (`foreign_sql`).
///
/// # Errors
/// `ValueRange` for a default that MariaDB cannot hold.
pub fn create(def: &Definition) -> Result<String> {
    let mut lines = Vec::new();
    for live in def.live() {
        lines.push(column(def, live).map_err(|e| e.with("table", &def.name))?);
    }
    if !def.primary().is_empty() {
        lines.push(format!("PRIMARY KEY ({})", key(def, def.primary(), false)));
    }
    for index in def.secondary() {
        let (name, unique) = (quoted(&index.name), index.entry.unique);
        let kind = if unique { "UNIQUE KEY" } else { "KEY" };
        lines.push(format!("{kind} {name} ({})", key(def, &index.entry.parts, unique)));
    }
    let mut text = String::new();
    if let Some(database) = database_of(&def.name) {
        let _ = writeln!(text, "CREATE DATABASE IF NOT EXISTS {database};");
    }
    // Text is compared by its bytes, and trailing spaces count.
    let options = "ENGINE=EVENKEEL DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin";
    let name = table_name(&def.name);
    let _ = writeln!(text, "CREATE TABLE {name} (\n  {}\n) {options};", lines.join(",\n  "));
    collated(def, "PRIMARY", def.primary(), &mut text);
    for index in def.secondary() {
        collated(def, &quoted(&index.name), &index.entry.parts, &mut text);
    }
    Ok(text)
}

/// The statement that adds a foreign key, in one line.
pub fn foreign_key(def: &Definition, key: &ForeignKey) -> String {
    let list = |names: &[String]| names.iter().map(|n| quoted(n)).collect::<Vec<_>>().join(", ");
    let action = |action| match action {
        ReferenceAction::Restrict => "RESTRICT",
        ReferenceAction::NoAction => "NO ACTION",
        ReferenceAction::Cascade => "CASCADE",
        ReferenceAction::SetNull => "SET NULL",
    };
    let text = format!(
        "ALTER TABLE {} ADD CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {} ({}) ON DELETE {} ON \
         UPDATE {};",
        table_name(&def.name),
        quoted(&key.name),
        list(&key.columns),
        table_name(&key.parent),
        list(&key.parent_columns),
        action(key.on_delete),
        action(key.on_update)
    );
    without_breaks(&text)
}

/// Appends `(value, ...)`.
///
/// # Errors
/// `ValueRange` naming the column whose value MariaDB cannot hold.
pub fn row(columns: &[&Column], values: &[Value], out: &mut String) -> Result<()> {
    out.push('(');
    for (i, (column, value)) in columns.iter().zip(values).enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        literal(column.entry.ty, value, out).map_err(|e| e.with("column", &column.name))?;
    }
    out.push(')');
    Ok(())
}

fn literal(ty: ColumnType, value: &Value, out: &mut String) -> Result<()> {
    let beyond = |what: &str| {
        Err(Error::new(Code::ValueRange).with("value", what).with("why", "MariaDB cannot hold it"))
    };
    // MariaDB has the years 0 to 9999.
    let has_year = |days: i64| (0..=9_999).contains(&civil(days).0);
    match value {
        Value::Null => out.push_str("NULL"),
        Value::Bool(v) => out.push(if *v { '1' } else { '0' }),
        Value::Int(v) => out.push_str(&v.to_string()),
        Value::UInt(v) => out.push_str(&v.to_string()),
        Value::Float(v) if !v.is_finite() => return beyond(&v.to_string()),
        Value::Float(v) if ty == ColumnType::Float32 => out.push_str(&format!("{:e}", *v as f32)),
        Value::Float(v) => out.push_str(&format!("{v:e}")),
        Value::Decimal(v, scale) => out.push_str(&decimal(*v, *scale)),
        Value::Bytes(v) => {
            let _ = write!(out, "x'{}'", hex(v));
        }
        Value::Text(v) => text(v, out),
        Value::Date(v) if !has_year(i64::from(*v)) => return beyond(&date(i64::from(*v))),
        Value::Date(v) => {
            let _ = write!(out, "'{}'", date(i64::from(*v)));
        }
        Value::DateTime(v) if !has_year(v.div_euclid(86_400_000_000)) => {
            return beyond(&datetime(*v));
        }
        Value::DateTime(v) => {
            let _ = write!(out, "'{}'", datetime(*v));
        }
    }
    Ok(())
}

/// Text in quotes, with MariaDB's backslash escapes.
pub fn text(value: &str, out: &mut String) {
    out.push('\'');
    for c in value.chars() {
        match c {
            '\'' => out.push_str("\\'"),
            '\\' => out.push_str("\\\\"),
            '\0' => out.push_str("\\0"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\x1a' => out.push_str("\\Z"),
            other => out.push(other),
        }
    }
    out.push('\'');
}

/// Statements that make MariaDB read the rest as it is written, whatever its settings.
pub const BEGIN: &str = "SET NAMES utf8mb4;\nSET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO';\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn written(ty: ColumnType, value: Value) -> Result<String> {
        let mut out = String::new();
        literal(ty, &value, &mut out).map(|()| out)
    }

    #[test]
    fn names_of_the_server_are_decoded() {
        assert_eq!(table_name("t`x"), "`t``x`");
        assert_eq!(table_name("db/a@002db"), "`db`.`a-b`");
        assert_eq!(table_name("d@0024/@zz"), "`d$`.`@zz`");
        assert_eq!(table_name("d/é@"), "`d`.`é@`");
    }

    #[test]
    fn literals_are_what_the_server_reads_back() {
        let text = ColumnType::Text { max: 10 };
        assert_eq!(written(text, Value::from("a'\\\n")).expect("fits"), "'a\\'\\\\\\n'");
        let bytes = ColumnType::Bytes { max: 10 };
        assert_eq!(written(bytes, Value::Bytes(vec![0, 255])).expect("fits"), "x'00ff'");
        assert_eq!(written(ColumnType::Float64, Value::Float(0.1)).expect("fits"), "1e-1");
        assert!(written(ColumnType::Float64, Value::Float(f64::NAN)).is_err());
        assert!(written(ColumnType::Date, Value::Date(i32::MAX)).is_err());
    }
}
