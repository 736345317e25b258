//! The definition of a chunked table: a caller's request, the catalog's form, and the checks
//! between the two.

use crate::chunks::calendar;
use crate::chunks::spec::Chunking;
use crate::schema::{ColumnDef, TableDef, TableSpec};
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::catalog::PartEntry;
use evenkeel_format::chunks::{ChunkingEntry, TimeUnit};
use evenkeel_format::{ColumnType, limits};
use std::time::Duration;

/// 2000-01-01 and 2100-01-01, in seconds since 1970: times outside go to the catch-all chunks,
/// unless the definition says otherwise. A clock at 1970 then makes no chunks.
const FROM_S: i64 = 946_684_800;
const TO_S: i64 = 4_102_444_800;

/// Nanoseconds of a unit.
fn unit_ns(unit: TimeUnit) -> u128 {
    match unit {
        TimeUnit::Days | TimeUnit::PackedDays => 86_400_000_000_000,
        TimeUnit::Seconds | TimeUnit::PackedSeconds | TimeUnit::Timestamp => 1_000_000_000,
        TimeUnit::Milliseconds => 1_000_000,
        TimeUnit::Microseconds => 1_000,
        TimeUnit::Nanoseconds => 1,
    }
}

/// A time in a unit, if it is a whole number above zero.
fn in_units(time: Duration, unit: TimeUnit) -> Option<u64> {
    let (ns, unit) = (time.as_nanos(), unit_ns(unit));
    u64::try_from(ns / unit).ok().filter(|n| *n > 0 && ns.is_multiple_of(unit))
}

/// Seconds since 1970 in a unit; all units hold the years of `FROM_S` and `TO_S`.
fn at_seconds(seconds: i64, unit: TimeUnit) -> i64 {
    (i128::from(seconds) * 1_000_000_000 / unit_ns(unit) as i128) as i64
}

fn invalid(table: &str, why: &str) -> Error {
    Error::new(Code::ChunkingInvalid).with("table", table).with("why", why)
}

impl TableSpec {
    /// # Errors
    /// `ChunkingInvalid` for a table that need not survive a crash.
    pub(crate) fn check_permanent(&self, name: &str, temporary: bool) -> Result<()> {
        match temporary && self.chunking.is_some() {
            true => Err(invalid(name, "a temporary table has no chunks")),
            false => Ok(()),
        }
    }
}

/// The unit of a time column of this type.
fn unit_of(ty: ColumnType, given: Option<TimeUnit>) -> std::result::Result<TimeUnit, &'static str> {
    let own = match ty {
        ColumnType::Date => TimeUnit::Days,
        _ if given.is_some_and(calendar::is_packed) => {
            let fits = given.filter(|unit| calendar::fits(*unit, ty));
            return fits.ok_or("the type of the time column does not hold such times");
        }
        ColumnType::DateTime => TimeUnit::Microseconds,
        _ if ty.is_integer() => {
            return given.ok_or("the unit of an integer time column has to be given");
        }
        _ => return Err("a time column is a date, a date with time, or an integer"),
    };
    match given {
        Some(unit) if unit != own => Err("the type of the time column has another unit"),
        _ => Ok(own),
    }
}

impl TableDef {
    /// The chunking of a new table, whose other definition is checked.
    ///
    /// # Errors
    /// `ChunkingInvalid`, `ColumnMissing`.
    pub(crate) fn chunking_of(&self, spec: &TableSpec) -> Result<Option<ChunkingEntry>> {
        let Some(chunking) = &spec.chunking else { return Ok(None) };
        let entry = self.entry_of(chunking)?;
        if let Some(why) = entry.fault() {
            let error = invalid(&self.name, why).with("from", entry.from).with("to", entry.to);
            return Err(error.with("slots", entry.slots).with("limit", limits::CHUNK_SLOTS_MAX));
        }
        for id in [Some(entry.time), entry.space].into_iter().flatten() {
            let Some(column) = self.column_by_id(id) else { continue };
            if column.entry.nullable {
                return Err(self.wrong(column, "the column must not be nullable"));
            }
            if self.entry.auto_increment == Some(id) {
                return Err(self.wrong(column, "an auto-increment column does not tell the chunk"));
            }
            if id == entry.time && Some(id) == entry.space {
                return Err(self.wrong(column, "one column cannot tell both the time and the slot"));
            }
        }
        check_keys(self, &entry)?;
        if !spec.foreign_keys.is_empty() {
            return Err(invalid(&self.name, "a chunked table has no foreign keys"));
        }
        Ok(Some(entry))
    }

    fn wrong(&self, column: &ColumnDef, why: &str) -> Error {
        invalid(&self.name, why).with("column", &column.name)
    }

    /// A request in the catalog's form, unchecked.
    fn entry_of(&self, chunking: &Chunking) -> Result<ChunkingEntry> {
        let time = self.column(&chunking.time)?;
        let unit = unit_of(time.entry.ty, chunking.unit).map_err(|why| self.wrong(time, why))?;
        let units = |what: &'static str, time: Duration| {
            in_units(time, unit).ok_or_else(|| {
                let error = invalid(&self.name, "it is not a whole number of the column's unit");
                error.with(what, format_args!("{time:?}"))
            })
        };
        let width = units("width", chunking.width)?;
        let retain = chunking.retain.map_or(Ok(0), |time| units("retain", time))?;
        let years = (at_seconds(FROM_S, unit), at_seconds(TO_S, unit));
        let (from, to) = chunking.between.unwrap_or(years);
        let (space, slots) = match &chunking.space {
            None => (None, 1),
            Some((name, slots)) => (Some(self.column(name)?.id), *slots),
        };
        Ok(ChunkingEntry { time: time.id, unit, width, from, to, space, slots, retain })
    }
}

/// Keys that no two rows may share must tell the chunk: each is checked in one chunk only.
fn check_keys(def: &TableDef, entry: &ChunkingEntry) -> Result<()> {
    if def.entry.hidden_key {
        let why = "a chunked table needs a primary key that is no longer than a fifth of a page";
        return Err(invalid(&def.name, why));
    }
    let unique = def.indexes.iter().filter(|index| index.entry.unique);
    let unique = unique.map(|index| (&index.name[..], &index.entry.parts));
    for (name, parts) in std::iter::once(("primary", &def.entry.primary)).chain(unique) {
        for id in [Some(entry.time), entry.space].into_iter().flatten() {
            let holds = |part: &PartEntry| {
                part.column == id && part.prefix == 0 && part.collation.is_none()
            };
            if !parts.iter().any(holds) {
                let why = "a primary or unique key must hold the time column, and the column of \
                           the slots, as a whole";
                let column = def.column_by_id(id).map_or("", |column| &column.name);
                let error = invalid(&def.name, why).with("index", name);
                return Err(error.with("column", column));
            }
        }
    }
    Ok(())
}
