//! The fuzz target `catalog_row`: bodies of catalog rows, decoded as each kind.

use evenkeel_base::{IndexId, Lsn, PageNo, Result, TableId, TreeId};
use evenkeel_format::catalog::{
    self, ForeignKeyColumnEntry, ForeignKeyEntry, ForeignKeyParentEntry, ReferenceAction,
};
use evenkeel_format::chunks::{ChunkEntry, ChunkingEntry, TimeUnit};
use evenkeel_format::{ColumnType, Value, limits};
use std::fmt::Debug;

/// Every combination of type and attributes.
pub const TYPES: [ColumnType; 12] = [
    ColumnType::Bool,
    ColumnType::Int8,
    ColumnType::UInt16,
    ColumnType::Int32,
    ColumnType::Int64,
    ColumnType::Float64,
    ColumnType::Decimal { precision: 20, scale: 3 },
    ColumnType::FixedBytes { len: 5 },
    ColumnType::Bytes { max: 100 },
    ColumnType::Text { max: 100 },
    ColumnType::Date,
    ColumnType::DateTime,
];

/// Decodes a body as each kind. An entry of a kind that newer formats have must encode to a body
/// that decodes to the same entry.
pub fn decode(data: &[u8]) {
    let _ = catalog::TableEntry::decode(data);
    if let Ok(column) = catalog::ColumnEntry::decode(data) {
        let _ = column.ty.check();
    }
    let _ = catalog::IndexEntry::decode(data);
    let _ = catalog::decode_counter(data);
    if let Ok(statistics) = catalog::StatisticsEntry::decode(data) {
        let _ = statistics.rows_per_key(1);
    }
    again(data, ForeignKeyEntry::decode, ForeignKeyEntry::encode);
    again(data, ForeignKeyColumnEntry::decode, ForeignKeyColumnEntry::encode);
    again(data, ForeignKeyParentEntry::decode, ForeignKeyParentEntry::encode);
    again(data, ChunkingEntry::decode, ChunkingEntry::encode);
    again(data, ChunkEntry::decode, ChunkEntry::encode);
    if let Ok(chunk) = ChunkEntry::decode(data) {
        assert!(chunk.indexes.len() <= limits::INDEXES_MAX && chunk.lo < chunk.hi, "{chunk:?}");
    }
}

fn again<T: Debug + PartialEq>(
    data: &[u8],
    decode: fn(&[u8]) -> Result<T>,
    encode: fn(&T, &mut Vec<u8>),
) {
    if let Ok(entry) = decode(data) {
        let mut body = Vec::new();
        encode(&entry, &mut body);
        assert_eq!(decode(&body).ok().as_ref(), Some(&entry));
    }
}

/// A body of each kind of catalog row, with no optional parts and with all of them.
pub fn corpus() -> Vec<Vec<u8>> {
    let collation = Some(catalog::PartCollation { id: 8, checksum: 77 });
    let all = catalog::PartEntry { column: 3, desc: true, prefix: 9, collation };
    let mut bodies = Vec::new();
    for parts in [vec![], vec![catalog::PartEntry::whole(0, false), all]] {
        let mut table = Vec::new();
        let entry = catalog::TableEntry {
            tree: TreeId(70),
            root: PageNo(1 << 33),
            hidden_key: parts.is_empty(),
            row_version: 3,
            next_column: 12,
            auto_increment: parts.first().map(|part| part.column),
            primary: parts.clone(),
        };
        entry.encode(&mut table);
        bodies.push(table);
        for state in [catalog::IndexState::Building, catalog::IndexState::Valid(Lsn(1 << 40))] {
            let (mut body, unique) = (Vec::new(), !parts.is_empty());
            let entry = catalog::IndexEntry { unique, primary: false, state, parts: parts.clone() };
            entry.encode(&mut body);
            bodies.push(body);
        }
    }
    let defaults = [None, Some(Value::Int(-5)), Some(Value::Bytes(b"default".to_vec()))];
    for (ty, default) in
        TYPES.into_iter().flat_map(|ty| defaults.clone().map(|default| (ty, default)))
    {
        let entry = catalog::ColumnEntry {
            position: 4,
            ty,
            nullable: default.is_none(),
            default,
            added_in: 2,
            dropped_in: 0,
        };
        let mut body = Vec::new();
        // A default of another type does not encode.
        if entry.encode(&mut body).is_ok() {
            bodies.push(body);
        }
    }
    for counter in [0, 1 << 60] {
        let mut body = Vec::new();
        catalog::encode_counter(counter, &mut body);
        bodies.push(body);
    }
    let mut body = Vec::new();
    catalog::StatisticsEntry { rows: 1 << 30, distinct: vec![3, 1000, 1 << 30] }.encode(&mut body);
    bodies.push(body);
    foreign_keys(&mut bodies);
    chunks(&mut bodies);
    bodies
}

fn foreign_keys(bodies: &mut Vec<Vec<u8>>) {
    let actions = [
        (ReferenceAction::Restrict, ReferenceAction::Cascade),
        (ReferenceAction::SetNull, ReferenceAction::NoAction),
    ];
    for (parent, columns) in [(0, 1), (9, 1), (1 << 31, 32)] {
        for (on_delete, on_update) in actions {
            let mut body = Vec::new();
            let parent = TableId(parent);
            ForeignKeyEntry { parent, on_delete, on_update, columns }.encode(&mut body);
            bodies.push(body);
        }
    }
    for (column, parent_column) in [(0, 0), (3, u16::MAX)] {
        let mut body = Vec::new();
        ForeignKeyColumnEntry { column, parent_column }.encode(&mut body);
        bodies.push(body);
    }
    let mut body = Vec::new();
    ForeignKeyParentEntry.encode(&mut body);
    bodies.push(body);
}

fn chunks(bodies: &mut Vec<Vec<u8>>) {
    for (unit, space, slots) in [(TimeUnit::Days, None, 1), (TimeUnit::Nanoseconds, Some(2), 256)] {
        let (width, from, to, retain) = (1 << 40, -(1 << 50), 1 << 60, u64::from(slots) - 1);
        let mut body = Vec::new();
        ChunkingEntry { time: 1, unit, width, from, to, space, slots, retain }.encode(&mut body);
        bodies.push(body);
    }
    for (lo, hi, slot, indexes) in
        [(i64::MIN, 0, 0, 0), (-5, 5, 3, 2), (7, i64::MAX, 0, limits::INDEXES_MAX as u32)]
    {
        let indexes = (0..indexes).map(|n| (IndexId(n * 100), IndexId(1 << 20 | n))).collect();
        let mut body = Vec::new();
        ChunkEntry { root: PageNo(1 << 33), lo, hi, slot, indexes }.encode(&mut body);
        bodies.push(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bodies of the corpus decode as a kind.
    fn decoded<T>(decode: fn(&[u8]) -> Result<T>) -> usize {
        corpus().iter().filter(|body| decode(body).is_ok()).count()
    }

    #[test]
    fn the_corpus_has_bodies_of_every_kind() {
        assert!(decoded(catalog::TableEntry::decode) >= 2);
        assert!(decoded(catalog::ColumnEntry::decode) >= TYPES.len());
        assert!(decoded(catalog::IndexEntry::decode) >= 4);
        assert!(decoded(catalog::decode_counter) >= 2);
        assert!(decoded(catalog::StatisticsEntry::decode) >= 1);
        assert!(decoded(ForeignKeyEntry::decode) >= 6);
        assert!(decoded(ForeignKeyColumnEntry::decode) >= 2);
        assert!(decoded(ForeignKeyParentEntry::decode) >= 1);
        assert!(decoded(ChunkingEntry::decode) >= 2);
        assert!(decoded(ChunkEntry::decode) >= 3);
    }
}
