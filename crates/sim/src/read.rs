//! Reads tables and indexes in the terms of the model, and compares them.

use crate::kind::Kind;
use crate::values::{Part, Row, V, entry_of, live, same, short};
use evenkeel::{Code, Direction, Error, Range, TableDef, Txn};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// Rows of a table in the order in which they were read.
pub type InOrder = Vec<(i64, Row)>;

/// Entries of an index in the order in which they were read.
pub type Entries = Vec<(Vec<V>, i64)>;

/// Texts of at least this length are read a second time, as a stream.
const STREAMED: usize = 1_000;

fn value_of(row: &evenkeel::Row, position: usize) -> Result<V, Error> {
    let value = V::from_engine(row.value(position)?);
    if let V::Text(text) = &value
        && text.len() >= STREAMED
    {
        let (mut stream, mut streamed) = (row.open_large(position)?, String::new());
        stream.read_to_string(&mut streamed).map_err(|error| match error.downcast::<Error>() {
            Ok(error) => error,
            Err(error) => Error::internal(error),
        })?;
        assert!(*text == streamed, "a stream gives another text than the row");
    }
    Ok(value)
}

/// The number and the values of a row as it was read. A column that `def` does not have yet, or
/// that the row did not have, is `Gone`.
pub fn row_values(row: &evenkeel::Row, def: &TableDef) -> Result<(i64, Row), Error> {
    let kind = Kind::of(&def.name);
    let mut key = Vec::new();
    for position in 0..kind.key_columns() {
        key.push(V::from_engine(row.value(position)?));
    }
    let mut values = Row::new();
    let columns = def.live_columns();
    for (position, (column, place)) in columns.iter().zip(live(def)).enumerate() {
        let Ok(at) = place else { continue };
        values.resize(at, V::Gone);
        // Its position, unless the row's format differs from that of the definition.
        let here = row.len() == columns.len();
        values.push(match row.get(&column.name) {
            Ok(_) if here => value_of(row, position)?,
            Ok(value) => V::from_engine(value),
            Err(error) if error.code() == Code::ColumnMissing => V::Gone,
            Err(error) => return Err(error),
        });
    }
    Ok((kind.id(&key), values))
}

/// Reads the rows of a range in one direction, in the order in which the engine returns them.
///
/// # Errors
/// Those of the engine.
pub fn read_table(
    txn: &mut Txn,
    def: &TableDef,
    range: Range<'_>,
    direction: Direction,
) -> Result<InOrder, Error> {
    let mut scan = txn.table(&def.name)?.scan(range, direction)?;
    let mut row = evenkeel::Row::new();
    let mut rows = Vec::new();
    while scan.next(&mut row)? {
        rows.push(row_values(&row, def)?);
    }
    Ok(rows)
}

/// The part of an index to read, and how to read it.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// The index.
    pub index: &'a str,
    /// The parts of its key.
    pub parts: &'a [Part],
    /// The range to read.
    pub range: Range<'a>,
    /// The direction of the scan.
    pub direction: Direction,
    /// True: the table is not visited.
    pub keys_only: bool,
}

/// Reads an index; `between` is called after each row.
///
/// # Errors
/// Those of the engine.
pub fn read_index(
    txn: &mut Txn,
    def: &TableDef,
    how: How<'_>,
    between: &mut dyn FnMut(),
) -> Result<Entries, Error> {
    let kind = Kind::of(&def.name);
    // Index entries do not hold the columns of a hidden key: without the table the row cannot be
    // identified.
    let keys_only = how.keys_only && kind.is_clustered();
    let mut index = txn.table(&def.name)?.index(how.index)?;
    if keys_only {
        index = index.keys_only();
    }
    let mut scan = index.scan(how.range, how.direction)?;
    let mut row = evenkeel::Row::new();
    let mut entries = Vec::new();
    while scan.next(&mut row)? {
        let mut key = Vec::new();
        for position in 0..kind.key_columns() {
            key.push(V::from_engine(row.value(position)?));
        }
        let mut values = Vec::new();
        for (place, _) in how.parts {
            // Keys and base columns keep their positions.
            let position = place.map_or_else(|key| key, |at| kind.key_columns() + at);
            values.push(V::from_engine(row.value(position)?));
        }
        entries.push((values, kind.id(&key)));
        between();
    }
    Ok(entries)
}

/// The first difference between rows that were read, in forward order, and rows expected.
pub fn difference(
    read: &[(i64, Row)],
    expected: &BTreeMap<i64, &Row>,
    def: &TableDef,
) -> Option<String> {
    let found: BTreeMap<i64, &Row> = read.iter().map(|(id, row)| (*id, row)).collect();
    if found.len() != read.len() {
        return Some(format!("{} rows have {} keys", read.len(), found.len()));
    }
    let ids: BTreeSet<i64> = found.keys().chain(expected.keys()).copied().collect();
    for id in ids {
        let (have, want) = (found.get(&id).copied(), expected.get(&id).copied());
        if !same(have, want, def) {
            let (have, want) = (short(have), short(want));
            return Some(format!("row {id}: read {have}, expected {want}"));
        }
    }
    let kind = Kind::of(&def.name);
    let in_order = !kind.is_clustered() || read.is_sorted_by_key(|(id, _)| kind.rank(*id));
    (!in_order).then(|| "order".to_string())
}

/// The entries of these rows in an index, in index order.
pub fn entries_of(def: &TableDef, parts: &[Part], rows: &BTreeMap<i64, &Row>) -> Entries {
    let kind = Kind::of(&def.name);
    let mut all: Entries = rows.iter().map(|(id, row)| entry_of(def, parts, *id, row)).collect();
    all.sort_by(|a, b| crate::values::compare(kind, parts, a, b));
    all
}

/// The first difference between entries that were read in a direction and those wanted; `want` is
/// in forward order.
pub fn entries_differ(
    def: &TableDef,
    parts: &[Part],
    direction: Direction,
    mut read: Entries,
    want: &Entries,
) -> Option<String> {
    let kind = Kind::of(&def.name);
    if direction == Direction::Backward {
        read.reverse();
    }
    let in_order = read.is_sorted_by(|a, b| crate::values::compare(kind, parts, a, b).is_le());
    if in_order && read == *want {
        return None;
    }
    let (mut sorted, mut expected) = (read.clone(), want.clone());
    sorted.sort();
    expected.sort();
    if sorted == expected {
        // Without a clustered key the order of equal entries is unspecified.
        return (!in_order).then(|| format!("order of {read:?}"));
    }
    let lost: Vec<_> = want.iter().filter(|e| !read.contains(e)).take(3).collect();
    let extra: Vec<_> = read.iter().filter(|e| !want.contains(e)).take(3).collect();
    let (r, w) = (read.len(), want.len());
    Some(format!("{r} entries, expected {w}: missing {lost:?}, too much {extra:?}"))
}
