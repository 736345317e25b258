//! Catalog entries: the `body` column of the system table, by kind. Each change of a body's layout
//! gets a new leading number; an unknown number is refused.
//!
//! ```text
//! table:   1, tree varint, root page varint, flags u8 (1: clustered on a hidden id),
//!          row version varint, next column id varint, auto-increment column + 1 varint,
//!          primary key: parts
//! column:  1, position varint, type (u8, varint, varint), flags u8 (1 nullable, 2 default),
//!          added in varint, dropped in varint, [default: row-encoded bytes]
//! index:   1, flags u8 (1 unique, 2 primary), state u8, valid from varint, parts
//! parts:   count varint, (column id varint, flags u8 (1 descending, 2 prefix, 4 collation),
//!          [prefix varint], [collation varint, checksum u32])
//! counter: 1, value varint
//! statistics: 1, rows varint, count varint, (different values varint)
//! foreign key: 1, parent table id varint, on delete u8, on update u8 (0 restrict, 1 no action,
//!          2 cascade, 3 set null), columns varint
//! foreign key column: 1, column id varint, parent's column id varint
//! foreign key parent: 1
//! ```
//! Tables and indexes with a prefix or a collation in their parts begin with 2 instead of 1.

use crate::types::{ColumnType, Value, ValueRef};
use crate::{Reader, key::KeyPart, put_bytes, put_varint};
use evenkeel_base::{Lsn, PageNo, Result, TableId, TreeId};

/// Kinds of catalog entries: the second part of the system table's key.
pub mod entry_kind {
    /// A table.
    pub const TABLE: u8 = 1;
    /// A column of a table.
    pub const COLUMN: u8 = 2;
    /// An index of a table.
    pub const INDEX: u8 = 3;
    /// A counter: of a table its auto-increment or hidden id, of table 0 the next ids.
    pub const COUNTER: u8 = 4;
    /// Statistics of the values of a key: of an index by its id, of the clustered key by 0.
    pub const STATISTICS: u8 = 5;
    /// A foreign key of a table, by its number in the table.
    pub const FOREIGN_KEY: u8 = 6;
    /// A column of a foreign key: the number of the key * 32 + the position of the column.
    pub const FOREIGN_KEY_COLUMN: u8 = 7;
    /// The name of a foreign key's parent that does not exist, by the number of the key.
    pub const FOREIGN_KEY_PARENT: u8 = 8;
    /// How a table is cut into chunks (`chunks::ChunkingEntry`).
    pub const CHUNKING: u8 = 9;
    /// A chunk of a table, by its number (`chunks::ChunkEntry`).
    pub const CHUNK: u8 = 10;
    // Kinds 11 to 31 are reserved: dictionaries, wrapped keys.
}

const VERSION: u64 = 1;
/// Version of a body with parts that are not whole columns in byte order.
const PARTS_VERSION: u64 = 2;

/// The collation of a key part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartCollation {
    /// Its number in the embedding program.
    pub id: u16,
    /// The result of `Collations::checksum` when the key was made.
    pub checksum: u32,
}

/// A part of a key: a column and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartEntry {
    /// Column id.
    pub column: u16,
    /// Descending.
    pub desc: bool,
    /// Only this many first characters (bytes without a collation), 0 for all.
    pub prefix: u32,
    /// Weights instead of bytes.
    pub collation: Option<PartCollation>,
}

impl PartEntry {
    /// A whole column in byte order.
    pub fn whole(column: u16, desc: bool) -> PartEntry {
        PartEntry { column, desc, prefix: 0, collation: None }
    }
}

mod part_flags {
    pub const DESC: u8 = 1;
    pub const PREFIX: u8 = 2;
    pub const COLLATION: u8 = 4;
}

fn parts_version(parts: &[PartEntry]) -> u64 {
    let plain = parts.iter().all(|p| p.prefix == 0 && p.collation.is_none());
    if plain { VERSION } else { PARTS_VERSION }
}

fn put_parts(out: &mut Vec<u8>, parts: &[PartEntry]) {
    put_varint(out, parts.len() as u64);
    for part in parts {
        put_varint(out, u64::from(part.column));
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        out.push(
            flag(part.desc, part_flags::DESC)
                | flag(part.prefix > 0, part_flags::PREFIX)
                | flag(part.collation.is_some(), part_flags::COLLATION),
        );
        if part.prefix > 0 {
            put_varint(out, u64::from(part.prefix));
        }
        if let Some(collation) = part.collation {
            put_varint(out, u64::from(collation.id));
            out.extend_from_slice(&collation.checksum.to_le_bytes());
        }
    }
}

fn u16_of(r: &mut Reader<'_>) -> Result<u16> {
    u16::try_from(r.varint()?).map_err(|_| r.bad("number beyond 16 bits"))
}

fn parts(r: &mut Reader<'_>) -> Result<Vec<PartEntry>> {
    let count = r.varint()?;
    if count > crate::limits::KEY_PARTS_MAX as u64 {
        return Err(r.bad("too many key parts"));
    }
    (0..count).map(|_| part(r)).collect()
}

fn part(r: &mut Reader<'_>) -> Result<PartEntry> {
    let (column, flags) = (u16_of(r)?, r.u8()?);
    r.known("part_flags", flags, part_flags::DESC | part_flags::PREFIX | part_flags::COLLATION)?;
    let has = |flag: u8| flags & flag != 0;
    let prefix = if has(part_flags::PREFIX) { r.varint32()? } else { 0 };
    let collation = match has(part_flags::COLLATION) {
        true => Some(PartCollation { id: u16_of(r)?, checksum: r.u32()? }),
        false => None,
    };
    Ok(PartEntry { column, desc: has(part_flags::DESC), prefix, collation })
}

fn version(r: &mut Reader<'_>) -> Result<()> {
    match r.varint()? {
        VERSION => Ok(()),
        found => Err(r.newer("layout", found)),
    }
}

/// Reads the version of a body with parts.
fn version_with_parts(r: &mut Reader<'_>) -> Result<()> {
    match r.varint()? {
        VERSION | PARTS_VERSION => Ok(()),
        found => Err(r.newer("layout", found)),
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Its B+tree.
    pub tree: TreeId,
    /// The tree's root.
    pub root: PageNo,
    /// Clustered on a hidden id, because there is no primary key or it may be too long (E5).
    pub hidden_key: bool,
    /// The format in which new rows are written.
    pub row_version: u16,
    /// The next column id.
    pub next_column: u16,
    /// The auto-increment column.
    pub auto_increment: Option<u16>,
    /// Parts of the primary key (empty with a hidden id).
    pub primary: Vec<PartEntry>,
}

impl TableEntry {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, parts_version(&self.primary));
        put_varint(out, u64::from(self.tree.0));
        put_varint(out, self.root.0);
        out.push(u8::from(self.hidden_key));
        put_varint(out, u64::from(self.row_version));
        put_varint(out, u64::from(self.next_column));
        put_varint(out, self.auto_increment.map_or(0, |c| u64::from(c) + 1));
        put_parts(out, &self.primary);
    }

    /// Decodes. # Errors: `BadEncoding`, `NewerFormat`.
    pub fn decode(body: &[u8]) -> Result<TableEntry> {
        let mut r = Reader::new(body, "catalog table");
        version_with_parts(&mut r)?;
        let entry = TableEntry {
            tree: TreeId(r.varint32()?),
            root: PageNo(r.varint()?),
            hidden_key: r.flag("flags")?,
            row_version: u16_of(&mut r)?,
            next_column: u16_of(&mut r)?,
            auto_increment: u16_of(&mut r)?.checked_sub(1),
            primary: parts(&mut r)?,
        };
        r.finish()?;
        Ok(entry)
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnEntry {
    /// Its position among the columns of the table.
    pub position: u16,
    /// Its type.
    pub ty: ColumnType,
    /// True if it may be NULL.
    pub nullable: bool,
    /// Its value if none is given, and in older rows.
    pub default: Option<Value>,
    /// The first row format that contains it.
    pub added_in: u16,
    /// The first row format that no longer contains it; 0 while it lives.
    pub dropped_in: u16,
}

impl ColumnEntry {
    /// Appends the body. # Errors: `ValueType`, `ValueRange` for a default that does not fit.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        let (code, a, b) = self.ty.to_code();
        put_varint(out, VERSION);
        put_varint(out, u64::from(self.position));
        out.push(code);
        put_varint(out, u64::from(a));
        put_varint(out, u64::from(b));
        out.push(u8::from(self.nullable) | u8::from(self.default.is_some()) << 1);
        put_varint(out, u64::from(self.added_in));
        put_varint(out, u64::from(self.dropped_in));
        if let Some(default) = &self.default {
            // The key encoding is self-delimiting and supports every type.
            let mut bytes = Vec::new();
            self.default_part().encode(default.as_ref(), &mut bytes)?;
            put_bytes(out, &bytes);
        }
        Ok(())
    }

    fn default_part(&self) -> KeyPart {
        KeyPart::whole(self.ty, true, false)
    }

    /// Decodes. # Errors: `BadEncoding`, `NewerFormat`.
    pub fn decode(body: &[u8]) -> Result<ColumnEntry> {
        let mut r = Reader::new(body, "catalog column");
        version(&mut r)?;
        let position = u16_of(&mut r)?;
        let (code, a, b) = (r.u8()?, r.varint32()?, r.varint32()?);
        let ty = ColumnType::from_code(code, a, b).ok_or_else(|| match code {
            1..=17 => r.bad("parameters of a column type"),
            _ => r.newer("type", code),
        })?;
        let flags = r.u8()?;
        r.known("flags", flags, 3)?;
        let mut entry = ColumnEntry {
            position,
            ty,
            nullable: flags & 1 != 0,
            default: None,
            added_in: u16_of(&mut r)?,
            dropped_in: u16_of(&mut r)?,
        };
        if flags & 2 != 0 {
            let (value, rest) = entry.default_part().decode(r.bytes()?)?;
            if !rest.is_empty() {
                return Err(r.bad("bytes after the default"));
            }
            entry.default = Some(value);
        }
        r.finish()?;
        Ok(entry)
    }

    /// The default as a value (NULL if none is stored).
    pub fn default_value(&self) -> ValueRef<'_> {
        self.default.as_ref().map_or(ValueRef::Null, Value::as_ref)
    }
}

/// State of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// Being built: every change writes it, and it is not readable (F1).
    Building,
    /// Its build is complete and its uniqueness is being proved: changes check it (F3).
    Checking,
    /// Usable by snapshots at or above this timestamp.
    Valid(Lsn),
}

/// An index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// No two rows have the same key (except NULLs).
    pub unique: bool,
    /// It is the primary key of a table that is clustered on a hidden id.
    pub primary: bool,
    /// Its state.
    pub state: IndexState,
    /// Its parts.
    pub parts: Vec<PartEntry>,
}

impl IndexEntry {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, parts_version(&self.parts));
        out.push(u8::from(self.unique) | u8::from(self.primary) << 1);
        let (state, from) = match self.state {
            IndexState::Building => (0, 0),
            IndexState::Checking => (1, 0),
            IndexState::Valid(from) => (2, from.0),
        };
        out.push(state);
        put_varint(out, from);
        put_parts(out, &self.parts);
    }

    /// Decodes. # Errors: `BadEncoding`, `NewerFormat`.
    pub fn decode(body: &[u8]) -> Result<IndexEntry> {
        let mut r = Reader::new(body, "catalog index");
        version_with_parts(&mut r)?;
        let flags = r.u8()?;
        r.known("flags", flags, 3)?;
        let (state, from) = (r.u8()?, Lsn(r.varint()?));
        let state = match state {
            0 => IndexState::Building,
            1 => IndexState::Checking,
            2 => IndexState::Valid(from),
            _ => return Err(r.newer("state", state)),
        };
        let parts = parts(&mut r)?;
        r.finish()?;
        Ok(IndexEntry { unique: flags & 1 != 0, primary: flags & 2 != 0, state, parts })
    }
}

/// Appends the body of a counter.
pub fn encode_counter(value: u64, out: &mut Vec<u8>) {
    put_varint(out, VERSION);
    put_varint(out, value);
}

/// Decodes a counter. # Errors: `BadEncoding`, `NewerFormat`.
pub fn decode_counter(body: &[u8]) -> Result<u64> {
    let mut r = Reader::new(body, "catalog counter");
    version(&mut r)?;
    let value = r.varint()?;
    r.finish()?;
    Ok(value)
}

/// The estimated number of different values of the first parts of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatisticsEntry {
    /// Rows at the time of the estimate.
    pub rows: u64,
    /// Different values of the first part, of the first two, and so on.
    pub distinct: Vec<u64>,
}

impl StatisticsEntry {
    /// Rows that share the values of the first `parts` parts, on average.
    pub fn rows_per_key(&self, parts: usize) -> Option<u64> {
        let distinct = *self.distinct.get(parts.checked_sub(1)?)?;
        Some(self.rows.saturating_add(distinct / 2).checked_div(distinct)?.max(1))
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, VERSION);
        put_varint(out, self.rows);
        put_varint(out, self.distinct.len() as u64);
        self.distinct.iter().for_each(|distinct| put_varint(out, *distinct));
    }

    /// Decodes. # Errors: `BadEncoding`, `NewerFormat`.
    pub fn decode(body: &[u8]) -> Result<StatisticsEntry> {
        let mut r = Reader::new(body, "catalog statistics");
        version(&mut r)?;
        let (rows, count) = (r.varint()?, r.varint()?);
        if count > crate::limits::KEY_PARTS_MAX as u64 {
            return Err(r.bad("too many key parts"));
        }
        let distinct = (0..count).map(|_| r.varint()).collect::<Result<_>>()?;
        r.finish()?;
        Ok(StatisticsEntry { rows, distinct })
    }
}

/// What a foreign key does when its parent row is deleted, or gets another key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReferenceAction {
    /// The change is refused while rows refer to the parent row.
    #[default]
    Restrict,
    /// As `Restrict`; a name of its own because programs show it.
    NoAction,
    /// Rows that refer to the parent row are deleted with it, or get its new key.
    Cascade,
    /// Rows that refer to the parent row get NULL in the columns of the key.
    SetNull,
}

impl ReferenceAction {
    fn code(self) -> u8 {
        match self {
            ReferenceAction::Restrict => 0,
            ReferenceAction::NoAction => 1,
            ReferenceAction::Cascade => 2,
            ReferenceAction::SetNull => 3,
        }
    }

    fn decode(r: &mut Reader<'_>, field: &'static str) -> Result<ReferenceAction> {
        match r.u8()? {
            0 => Ok(ReferenceAction::Restrict),
            1 => Ok(ReferenceAction::NoAction),
            2 => Ok(ReferenceAction::Cascade),
            3 => Ok(ReferenceAction::SetNull),
            code => Err(r.newer(field, code)),
        }
    }
}

/// A foreign key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignKeyEntry {
    /// The table that its rows refer to; zero: it does not exist, and an entry of its own
    /// (`ForeignKeyParentEntry`) has its name.
    pub parent: TableId,
    /// What a delete of a parent row does.
    pub on_delete: ReferenceAction,
    /// What a change of a parent row's key does.
    pub on_update: ReferenceAction,
    /// The number of its columns: as many entries of their own follow.
    pub columns: u8,
}

impl ForeignKeyEntry {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, VERSION);
        put_varint(out, u64::from(self.parent.0));
        out.push(self.on_delete.code());
        out.push(self.on_update.code());
        put_varint(out, u64::from(self.columns));
    }

    /// Decodes. # Errors: `BadEncoding`, `NewerFormat`.
    pub fn decode(body: &[u8]) -> Result<ForeignKeyEntry> {
        let mut r = Reader::new(body, "catalog foreign key");
        version(&mut r)?;
        let entry = ForeignKeyEntry {
            parent: TableId(r.varint32()?),
            on_delete: ReferenceAction::decode(&mut r, "on delete")?,
            on_update: ReferenceAction::decode(&mut r, "on update")?,
            columns: match r.varint()? {
                count @ 1..=32 => count as u8,
                _ => return Err(r.bad("number of columns of a foreign key")),
            },
        };
        r.finish()?;
        Ok(entry)
    }
}

/// A column of a foreign key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignKeyColumnEntry {
    /// Its id in the table that has the key.
    pub column: u16,
    /// The id of the parent's column whose values it has; zero, with the column's name as the name
    /// of the entry, if the parent does not exist.
    pub parent_column: u16,
}

impl ForeignKeyColumnEntry {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, VERSION);
        put_varint(out, u64::from(self.column));
        put_varint(out, u64::from(self.parent_column));
    }

    /// Decodes. # Errors: `BadEncoding`, `NewerFormat`.
    pub fn decode(body: &[u8]) -> Result<ForeignKeyColumnEntry> {
        let mut r = Reader::new(body, "catalog foreign key column");
        version(&mut r)?;
        let (column, parent_column) = (u16_of(&mut r)?, u16_of(&mut r)?);
        r.finish()?;
        Ok(ForeignKeyColumnEntry { column, parent_column })
    }
}

/// The parent of a foreign key while there is no such table; the entry's name is that table's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignKeyParentEntry;

impl ForeignKeyParentEntry {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, VERSION);
    }

    /// Decodes. # Errors: `BadEncoding`, `NewerFormat`.
    pub fn decode(body: &[u8]) -> Result<ForeignKeyParentEntry> {
        let mut r = Reader::new(body, "catalog foreign key parent");
        version(&mut r)?;
        r.finish()?;
        Ok(ForeignKeyParentEntry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_round_trip_and_give_averages() {
        let entry = StatisticsEntry { rows: 1000, distinct: vec![3, 600, u64::MAX, 0] };
        let mut body = Vec::new();
        entry.encode(&mut body);
        assert_eq!(StatisticsEntry::decode(&body).expect("decodes"), entry);
        (0..body.len()).for_each(|n| assert!(StatisticsEntry::decode(&body[..n]).is_err()));
        let averages: Vec<_> = (0..6).map(|parts| entry.rows_per_key(parts)).collect();
        assert_eq!(averages, [None, Some(333), Some(2), Some(1), None, None]);
        let most = StatisticsEntry { rows: u64::MAX, distinct: vec![2] };
        assert_eq!(most.rows_per_key(1), Some(u64::MAX / 2));
        let mut long = Vec::new();
        let parts = crate::limits::KEY_PARTS_MAX;
        StatisticsEntry { rows: 1, distinct: vec![1; parts] }.encode(&mut long);
        assert!(StatisticsEntry::decode(&long).is_ok());
        long.clear();
        StatisticsEntry { rows: 1, distinct: vec![1; parts + 1] }.encode(&mut long);
        assert!(StatisticsEntry::decode(&long).is_err());
    }

    #[test]
    fn foreign_keys_round_trip() {
        use ReferenceAction::{Cascade, NoAction, Restrict, SetNull};
        let (on_delete, on_update) = (NoAction, Restrict);
        let key = ForeignKeyEntry { parent: TableId(300), on_delete, on_update, columns: 32 };
        let mut body = Vec::new();
        for (on_delete, on_update) in [(Cascade, SetNull), (SetNull, Cascade), (NoAction, Restrict)]
        {
            let key = ForeignKeyEntry { on_delete, on_update, ..key };
            body.clear();
            key.encode(&mut body);
            assert_eq!(ForeignKeyEntry::decode(&body).expect("decodes"), key);
        }
        (0..body.len()).for_each(|n| assert!(ForeignKeyEntry::decode(&body[..n]).is_err()));
        for wrong in [ForeignKeyEntry { columns: 0, ..key }, ForeignKeyEntry { columns: 33, ..key }]
        {
            body.clear();
            wrong.encode(&mut body);
            assert!(ForeignKeyEntry::decode(&body).is_err(), "{wrong:?}");
        }
        let awaiting = ForeignKeyEntry { parent: TableId::ZERO, ..key };
        body.clear();
        awaiting.encode(&mut body);
        assert_eq!(ForeignKeyEntry::decode(&body).expect("decodes"), awaiting);
        body.clear();
        ForeignKeyParentEntry.encode(&mut body);
        ForeignKeyParentEntry::decode(&body).expect("decodes");
        for bad in [&[][..], &[2], &[1, 0]] {
            assert!(ForeignKeyParentEntry::decode(bad).is_err());
        }
        let column = ForeignKeyColumnEntry { column: 700, parent_column: 3 };
        body.clear();
        column.encode(&mut body);
        assert_eq!(ForeignKeyColumnEntry::decode(&body).expect("decodes"), column);
        (0..body.len()).for_each(|n| assert!(ForeignKeyColumnEntry::decode(&body[..n]).is_err()));
    }

    #[test]
    fn entries_round_trip() {
        let collation = Some(PartCollation { id: 45, checksum: 0x1234_5678 });
        let weighed = PartEntry { column: 700, desc: false, prefix: 300, collation };
        for primary in [
            vec![PartEntry::whole(3, true)],
            vec![PartEntry { prefix: 0, desc: true, ..weighed }, PartEntry::whole(3, false)],
            vec![weighed, PartEntry { column: 1, desc: true, prefix: 7, collation: None }],
        ] {
            round_trip(primary);
        }
    }

    fn round_trip(primary: Vec<PartEntry>) {
        let table = TableEntry {
            tree: TreeId(5),
            root: PageNo(900),
            hidden_key: false,
            row_version: 2,
            next_column: 9,
            auto_increment: Some(0),
            primary: primary.clone(),
        };
        let mut body = Vec::new();
        table.encode(&mut body);
        assert_eq!(TableEntry::decode(&body).expect("decodes"), table);
        (0..body.len()).for_each(|n| assert!(TableEntry::decode(&body[..n]).is_err()));
        for default in [None, Some(Value::Null), Some(Value::from("a\0b"))] {
            let column = ColumnEntry {
                position: 4,
                ty: ColumnType::Text { max: 9 },
                nullable: true,
                default,
                added_in: 1,
                dropped_in: 0,
            };
            body.clear();
            column.encode(&mut body).expect("encodes");
            assert_eq!(ColumnEntry::decode(&body).expect("decodes"), column);
            (0..body.len()).for_each(|n| assert!(ColumnEntry::decode(&body[..n]).is_err()));
        }
        let state = IndexState::Valid(Lsn(77));
        let index = IndexEntry { unique: true, primary: false, state, parts: primary };
        body.clear();
        index.encode(&mut body);
        assert_eq!(IndexEntry::decode(&body).expect("decodes"), index);
        (0..body.len()).for_each(|n| assert!(IndexEntry::decode(&body[..n]).is_err()));
    }
}
