//! Values of the simulated tables, and their conversion to and from the engine. Every table has its
//! key columns, then a, b, u. A heap also has n, a number that the engine assigns. Further columns
//! are added, renamed and dropped. A row of the model holds the values behind the key by column id.

use crate::kind::Kind;
use evenkeel::{ColumnSpec, ColumnType, IndexSpec, TableDef, TableSpec, Value, ValueRef};
use evenkeel_io::Rng;
use std::cmp::Ordering;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum V {
    /// NULL.
    Null,
    /// A number.
    Int(i64),
    /// A text.
    Text(String),
    /// No value: the column was dropped, or the reader's definition does not have it.
    Gone,
}

/// Values behind the key, by column id minus the number of key columns.
pub type Row = Vec<V>;

/// Number of values behind the key that every table has.
pub const BASE: usize = 3;
/// Position of u among them.
pub const U: usize = 2;
/// Position of b among them.
pub const B: usize = 1;
/// Position of n, in numbered tables.
pub const N: usize = BASE;
/// Name of the unique index.
pub const UNIQUE: &str = "uq_u";

impl V {
    /// Converts a value for the engine.
    pub fn value(&self) -> ValueRef<'_> {
        match self {
            V::Null | V::Gone => ValueRef::Null,
            V::Int(i) => ValueRef::Int(*i),
            V::Text(t) => ValueRef::Text(t),
        }
    }

    /// Converts a value from the engine.
    pub fn from_engine(value: ValueRef<'_>) -> V {
        match value {
            ValueRef::Null => V::Null,
            ValueRef::Int(i) => V::Int(i),
            ValueRef::Text(t) => V::Text(t.to_string()),
            other => panic!("a value of another type: {other:?}"),
        }
    }
}

/// The definition of a table by its name.
pub fn table_spec(table: &str) -> TableSpec {
    let kind = Kind::of(table);
    let spec = kind
        .spec()
        .column(ColumnSpec::new("a", ColumnType::Int32).nullable())
        .column(ColumnSpec::new("b", ColumnType::Text { max: 2_000_000 }).nullable())
        .column(ColumnSpec::new("u", ColumnType::Int64).nullable());
    let spec = match kind.is_numbered() {
        true => spec.column(ColumnSpec::new("n", ColumnType::Int64).auto_increment()),
        false => spec,
    };
    spec.index(index_spec("by_a")).index(index_spec(UNIQUE))
}

/// Every index that a table may have; the last one only if texts are short.
pub const INDEXES: &[&str] = &["by_a", "by_ba", UNIQUE, "by_u", "by_b"];

/// The definition of an index by its name.
pub fn index_spec(index: &str) -> IndexSpec {
    match index {
        "by_a" => IndexSpec::new("by_a", &["a"]),
        "by_ba" => IndexSpec::new("by_ba", &["u", "a desc"]),
        "by_b" => IndexSpec::new("by_b", &["b desc", "a"]),
        UNIQUE => IndexSpec::new(UNIQUE, &["u"]).unique(),
        other => IndexSpec::new(other, &["u desc"]),
    }
}

/// A column to add, by number.
pub fn added_column(number: u64, default: i64) -> ColumnSpec {
    let column = ColumnSpec::new(&format!("x{number}"), ColumnType::Int64).nullable();
    column.default_value(Value::Int(default))
}

/// Positions of the live columns: `Err` for a key column, `Ok` for a value.
pub fn live(def: &TableDef) -> Vec<Result<usize, usize>> {
    let keys = Kind::of(&def.name).key_columns();
    let place = |id: u16| usize::from(id).checked_sub(keys).ok_or(usize::from(id));
    def.live_columns().iter().map(|c| place(c.id)).collect()
}

/// A whole row, for the engine.
pub fn whole<'v>(def: &TableDef, key: &'v [V], row: &'v [V]) -> Vec<ValueRef<'v>> {
    let value = |place: Result<usize, usize>| match place {
        Ok(at) => row.get(at).map_or(ValueRef::Null, V::value),
        Err(at) => key[at].value(),
    };
    live(def).into_iter().map(value).collect()
}

/// The value that a row has in a column that was added after the row was written.
fn default_of(def: &TableDef, at: usize) -> V {
    let id = Kind::of(&def.name).key_columns() + at;
    let column = def.columns.iter().find(|c| usize::from(c.id) == id);
    match column.map(|c| c.entry.default.as_ref()) {
        Some(Some(value)) => V::from_engine(value.as_ref()),
        Some(None) => V::Null,
        None => V::Gone,
    }
}

/// The value at a position of a row.
pub fn value_at(row: &Row, def: &TableDef, at: usize) -> V {
    row.get(at).cloned().unwrap_or_else(|| default_of(def, at))
}

/// True if the row read equals the row expected. Columns that only one of them has are ignored.
pub fn same(read: Option<&Row>, want: Option<&Row>, def: &TableDef) -> bool {
    let (read, want) = match (read, want) {
        (None, None) => return true,
        (Some(read), Some(want)) => (read, want),
        _ => return false,
    };
    read.iter().enumerate().all(|(at, r)| {
        let same = |w: &V| *r == V::Gone || *w == V::Gone || r == w;
        want.get(at).map_or_else(|| same(&default_of(def, at)), same)
    })
}

/// One part of an index: the position of its value, and whether it is descending.
pub type Part = (Result<usize, usize>, bool);

/// The parts of an index.
pub fn index_parts(def: &TableDef, index: &str) -> Vec<Part> {
    let Ok(index) = def.index(index) else { return Vec::new() };
    let keys = Kind::of(&def.name).key_columns();
    let place = |id: u16| usize::from(id).checked_sub(keys).ok_or(usize::from(id));
    index.entry.parts.iter().map(|p| (place(p.column), p.desc)).collect()
}

/// The entry of a row in an index.
pub fn entry_of(def: &TableDef, parts: &[Part], id: i64, row: &Row) -> (Vec<V>, i64) {
    let key = Kind::of(&def.name).key(id);
    let value = |part: &Part| match part.0 {
        Ok(at) => value_at(row, def, at),
        Err(at) => key[at].clone(),
    };
    (parts.iter().map(value).collect(), id)
}

/// Orders entries as the index does; without a clustered key only by the columns.
pub fn compare(kind: Kind, parts: &[Part], a: &(Vec<V>, i64), b: &(Vec<V>, i64)) -> Ordering {
    let one = |(i, part): (usize, &Part)| {
        let order = a.0[i].cmp(&b.0[i]);
        if part.1 { order.reverse() } else { order }
    };
    let columns = parts.iter().enumerate().map(one).find(|o| *o != Ordering::Equal);
    columns.unwrap_or_else(|| match kind.is_clustered() {
        true => kind.rank(a.1).cmp(&kind.rank(b.1)),
        false => Ordering::Equal,
    })
}

/// Parameters for drawing values.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Length of most texts.
    pub text: u64,
    /// One text in this many is so long that it takes overflow pages; 0: none.
    pub large_one_in: u64,
    /// Range of the unique column.
    pub unique: u64,
}

/// A random row for the live columns, without the values that the engine assigns.
pub fn random_row(rng: &mut Rng, def: &TableDef, sizes: Sizes) -> Row {
    let mut row = Row::new();
    let numbered = Kind::of(&def.name).is_numbered();
    for at in live(def).into_iter().flatten() {
        row.resize(at, V::Gone);
        row.push(match numbered && at == N {
            true => V::Null,
            false => random_value(rng, at, sizes),
        });
    }
    row
}

/// A random value for the column at this position behind the key.
pub fn random_value(rng: &mut Rng, at: usize, sizes: Sizes) -> V {
    match at {
        0 if rng.one_in(8) => V::Null,
        0 => V::Int(rng.below(20) as i64 - 5),
        B if rng.one_in(8) => V::Null,
        B => {
            let large = rng.one_in(sizes.large_one_in);
            let len = match large {
                true if rng.one_in(20) => 200_000 + rng.below(800_000),
                true => 2_000 + rng.below(20_000),
                false => rng.below(sizes.text + 1),
            };
            let letter = char::from(b'a' + rng.below(26) as u8);
            V::Text(letter.to_string().repeat(len as usize))
        }
        U if rng.one_in(4) => V::Null,
        U => V::Int(rng.below(sizes.unique) as i64),
        _ => V::Int(rng.below(1000) as i64),
    }
}

/// A short form for messages.
pub fn short(row: Option<&Row>) -> String {
    let Some(row) = row else { return "none".to_string() };
    let one = |v: &V| match v {
        V::Text(t) => format!("{}*{}", t.get(..1).unwrap_or(""), t.len()),
        V::Int(i) => i.to_string(),
        V::Null => "NULL".to_string(),
        V::Gone => "-".to_string(),
    };
    row.iter().map(one).collect::<Vec<_>>().join(",")
}
