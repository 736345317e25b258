//! Values of the simulated tables, and how they go to the engine and come back. Every table has the
//! columns id (key), a, b, u and then added ones named `x` and their default.

use evenkeel::{ColumnSpec, ColumnType, IndexSpec, TableDef, TableSpec, Value, ValueRef};
use evenkeel_io::Rng;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum V {
    /// NULL.
    Null,
    /// A number.
    Int(i64),
    /// A text.
    Text(String),
}

/// Values of the columns behind the key.
pub type Row = Vec<V>;

/// Columns that every table has.
pub const COLUMNS: usize = 4;
/// Name of the unique index.
pub const UNIQUE: &str = "uq_u";

impl V {
    /// For the engine.
    pub fn value(&self) -> ValueRef<'_> {
        match self {
            V::Null => ValueRef::Null,
            V::Int(i) => ValueRef::Int(*i),
            V::Text(t) => ValueRef::Text(t),
        }
    }

    /// From the engine.
    pub fn from_engine(value: ValueRef<'_>) -> V {
        match value {
            ValueRef::Null => V::Null,
            ValueRef::Int(i) => V::Int(i),
            ValueRef::Text(t) => V::Text(t.to_string()),
            other => panic!("a value of another type: {other:?}"),
        }
    }
}

/// The key column's value: a number, or in text tables a long text of the same order.
pub fn key_value(table: &str, id: i64) -> V {
    if table.starts_with("text") {
        let tail = "k".repeat((id.unsigned_abs() as usize * 7) % 90);
        V::Text(format!("{id:06}{tail}"))
    } else {
        V::Int(id)
    }
}

/// The number of a key value.
pub fn id_of(value: &V) -> i64 {
    match value {
        V::Int(i) => *i,
        V::Text(t) => t.get(..6).and_then(|d| d.parse().ok()).unwrap_or(i64::MIN),
        V::Null => i64::MIN,
    }
}

/// The definition of a table by its name.
pub fn table_spec(table: &str) -> TableSpec {
    let key = match table.starts_with("text") {
        true => ColumnType::Text { max: 100 },
        false => ColumnType::Int64,
    };
    TableSpec::new()
        .column(ColumnSpec::new("id", key))
        .column(ColumnSpec::new("a", ColumnType::Int32).nullable())
        .column(ColumnSpec::new("b", ColumnType::Text { max: 400_000 }).nullable())
        .column(ColumnSpec::new("u", ColumnType::Int64).nullable())
        .primary_key(&["id"])
        .index(index_spec("by_a"))
        .index(index_spec(UNIQUE))
}

/// Every index there may be.
pub const INDEXES: &[&str] = &["by_a", "by_ba", UNIQUE, "by_u"];

/// The definition of an index by its name.
pub fn index_spec(index: &str) -> IndexSpec {
    match index {
        "by_a" => IndexSpec::new("by_a", &["a"]),
        "by_ba" => IndexSpec::new("by_ba", &["u", "a desc"]),
        UNIQUE => IndexSpec::new(UNIQUE, &["u"]).unique(),
        other => IndexSpec::new(other, &["u desc"]),
    }
}

/// A column to add, by number.
pub fn added_column(default: i64) -> ColumnSpec {
    let column = ColumnSpec::new(&format!("x{default}"), ColumnType::Int64).nullable();
    column.default_value(Value::Int(default))
}

/// Fills columns that were added after the row was written.
pub fn pad(row: &mut Row, def: &TableDef) {
    while row.len() + 1 < def.columns.len() {
        let name = &def.columns[row.len() + 1].name;
        let default = name.strip_prefix('x').and_then(|n| n.parse().ok());
        row.push(default.map_or(V::Null, V::Int));
    }
}

/// A padded copy.
pub fn padded(row: &Row, def: &TableDef) -> Row {
    let mut row = row.clone();
    pad(&mut row, def);
    row
}

/// Positions (in the whole row) of an index's columns.
pub fn index_columns(def: &TableDef, index: &str) -> Vec<usize> {
    let Ok(index) = def.index(index) else { return Vec::new() };
    let position = |id: u16| def.columns.iter().position(|c| c.id == id);
    index.entry.parts.iter().filter_map(|p| position(p.column)).collect()
}

/// How large values are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Length of most texts.
    pub text: u64,
    /// One text in this many is large (overflow pages); 0: none.
    pub large_one_in: u64,
    /// Range of the unique column.
    pub unique: u64,
}

/// A random row with `columns` columns, the key not counted.
pub fn random_row(rng: &mut Rng, columns: usize, sizes: Sizes) -> Row {
    (0..columns).map(|c| random_value(rng, c, sizes)).collect()
}

/// A random value for the column at this place behind the key.
pub fn random_value(rng: &mut Rng, column: usize, sizes: Sizes) -> V {
    match column {
        0 if rng.one_in(8) => V::Null,
        0 => V::Int(rng.below(20) as i64 - 5),
        1 if rng.one_in(8) => V::Null,
        1 => {
            let large = rng.one_in(sizes.large_one_in);
            let len = if large { 2_000 + rng.below(20_000) } else { rng.below(sizes.text + 1) };
            let letter = char::from(b'a' + rng.below(26) as u8);
            V::Text(letter.to_string().repeat(len as usize))
        }
        2 if rng.one_in(4) => V::Null,
        2 => V::Int(rng.below(sizes.unique) as i64),
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
    };
    row.iter().map(one).collect::<Vec<_>>().join(",")
}
