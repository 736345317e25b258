//! Kinds of tables. The beginning of a table's name determines its kind: how its rows are found and
//! in which order scans return them. The model identifies a row by one number; its key columns
//! follow from that number.

use crate::values::V;
use evenkeel::{ColumnSpec, ColumnType, TableSpec};

/// A kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Clustered on a number.
    Number,
    /// Clustered on a text.
    Text,
    /// Clustered on two numbers, the first one descending.
    Pair,
    /// The key is too long for a clustered key: the table has a hidden id, and the key is a unique
    /// index.
    Long,
    /// No key: the table has a hidden id. Its rows are only inserted and read, and the engine
    /// numbers them.
    Heap,
}

/// Names that tables may have. A table may be renamed to another name of the same kind.
pub const NAMES: &[&str] =
    &["num0", "num1", "text0", "text1", "pair0", "pair1", "long0", "long1", "heap0", "heap1"];

/// Rows of one group in a table of pairs.
const GROUP: i64 = 8;

impl Kind {
    /// The kind of a table.
    pub fn of(table: &str) -> Kind {
        match table.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "text" => Kind::Text,
            "pair" => Kind::Pair,
            "long" => Kind::Long,
            "heap" => Kind::Heap,
            _ => Kind::Number,
        }
    }

    /// Number of columns before the values. They find the row; in a heap they only identify it.
    pub fn key_columns(self) -> usize {
        if self == Kind::Pair { 2 } else { 1 }
    }

    /// True if rows can be found by key.
    pub fn has_key(self) -> bool {
        self != Kind::Heap
    }

    /// True if there is a column `n`, behind the values that every table has, whose values the
    /// engine assigns.
    pub fn is_numbered(self) -> bool {
        self == Kind::Heap
    }

    /// True if scans return rows in key order.
    pub fn is_clustered(self) -> bool {
        !matches!(self, Kind::Long | Kind::Heap)
    }

    /// Sort key of a row: orders rows as the table's key does.
    pub fn rank(self, id: i64) -> (i64, i64) {
        if self == Kind::Pair { (-id.div_euclid(GROUP), id) } else { (0, id) }
    }

    /// The key columns of a row.
    pub fn key(self, id: i64) -> Vec<V> {
        let tail = |most: usize| "k".repeat((id.unsigned_abs() as usize * 7) % most);
        match self {
            Kind::Number | Kind::Heap => vec![V::Int(id)],
            Kind::Text => vec![V::Text(format!("{id:06}{}", tail(90)))],
            Kind::Long => vec![V::Text(format!("{id:06}{}", tail(500)))],
            Kind::Pair => vec![V::Int(id.div_euclid(GROUP)), V::Int(id)],
        }
    }

    /// The number of the row with these key columns.
    pub fn id(self, key: &[V]) -> i64 {
        match key.get(self.key_columns() - 1) {
            Some(V::Int(i)) => *i,
            Some(V::Text(t)) => t.get(..6).and_then(|d| d.parse().ok()).unwrap_or(i64::MIN),
            _ => i64::MIN,
        }
    }

    /// The definition of the table without values and indexes.
    pub fn spec(self) -> TableSpec {
        let spec = TableSpec::new();
        let id = |ty| ColumnSpec::new("id", ty);
        match self {
            Kind::Number => spec.column(id(ColumnType::Int64)).primary_key(&["id"]),
            Kind::Heap => spec.column(id(ColumnType::Int64)),
            Kind::Text => spec.column(id(ColumnType::Text { max: 100 })).primary_key(&["id"]),
            Kind::Long => spec.column(id(ColumnType::Text { max: 2_000 })).primary_key(&["id"]),
            Kind::Pair => spec
                .column(ColumnSpec::new("g", ColumnType::Int32))
                .column(id(ColumnType::Int64))
                .primary_key(&["g desc", "id"]),
        }
    }
}
