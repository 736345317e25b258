//! The catalog, read from the rows of its tree: the tables that can be decoded, and those of which
//! something is missing.

use crate::definition::{Column, Decoder, Definition, ForeignKey, Index};
use crate::leaves::KeyRange;
use crate::picture::{Found, Picture};
use evenkeel_base::{Code, Error, Result, TreeId};
use evenkeel_format::catalog::{
    ColumnEntry, ForeignKeyColumnEntry, ForeignKeyEntry, ForeignKeyParentEntry, IndexEntry,
    PartEntry, TableEntry, decode_counter, entry_kind,
};
use evenkeel_format::chunks::ChunkEntry;
use evenkeel_format::limits::{KEY_PARTS_MAX, TABLE_NAME_BYTES_MAX};
use evenkeel_format::{ColumnType, Value};
use std::collections::BTreeMap;

/// The tree of the catalog; docs/format/row.md.
pub const TREE: TreeId = TreeId(1);

/// A table with everything known of it.
pub struct Known {
    /// Its definition.
    pub def: Definition,
    /// The next auto-increment number is not below this.
    pub counter: u64,
    /// Of a chunked table: the trees of its chunks, by their times. The table's own has no rows.
    pub chunks: Vec<TreeId>,
}

/// A row of the catalog.
pub struct Entry {
    /// Table, kind, item.
    pub key: (u32, u8, u32),
    /// Name.
    pub name: String,
    /// Body.
    pub body: Vec<u8>,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Catalog {
    /// Tables, by id.
    pub tables: Vec<Known>,
    /// Ranges of the catalog's keys that are lost, as text.
    pub lost: Vec<String>,
    /// What is wrong with entries, in sentences.
    pub problems: Vec<String>,
    /// Rows of the catalog that were set aside.
    pub aside: u64,
}

/// The definition of the catalog itself.
fn own() -> Definition {
    let text = ColumnType::Text { max: TABLE_NAME_BYTES_MAX as u32 };
    let body = ColumnType::Bytes { max: 2048 };
    let types = [
        ("table", ColumnType::UInt32),
        ("kind", ColumnType::UInt8),
        ("item", ColumnType::UInt32),
        ("name", text),
        ("body", body),
    ];
    let column = |(id, (name, ty)): (usize, (&str, ColumnType))| Column {
        id: id as u16,
        name: name.to_string(),
        entry: ColumnEntry {
            position: id as u16,
            ty,
            nullable: false,
            default: None,
            added_in: 1,
            dropped_in: 0,
        },
    };
    Definition {
        name: "catalog".to_string(),
        entry: TableEntry {
            tree: TREE,
            root: evenkeel_base::PageNo::ZERO,
            hidden_key: false,
            row_version: 1,
            next_column: types.len() as u16,
            auto_increment: None,
            primary: (0..3).map(|column| PartEntry::whole(column, false)).collect(),
        },
        columns: types.into_iter().enumerate().map(column).collect(),
        indexes: Vec::new(),
        foreign_keys: Vec::new(),
    }
}

fn entry(values: &[Value]) -> Result<Entry> {
    match values {
        [
            Value::UInt(table),
            Value::UInt(kind),
            Value::UInt(item),
            Value::Text(name),
            Value::Bytes(body),
        ] => Ok(Entry {
            key: (*table as u32, *kind as u8, *item as u32),
            name: name.clone(),
            body: body.clone(),
        }),
        _ => Err(Error::new(Code::CatalogDamaged).with("what", "columns of another type")),
    }
}

/// Calls `f` with each row of the catalog; the result has what is lost of it.
///
/// # Errors
/// Those of `f`.
pub fn each_entry(picture: &Picture, f: &mut dyn FnMut(Entry) -> Result<()>) -> Result<Catalog> {
    let decoder = Decoder::new(&own())?;
    let mut catalog = Catalog::default();
    picture.walk(TREE, &mut |found| {
        match found {
            Found::Row(row) => {
                let mut chain = |reference| picture.chain(TREE, reference);
                let values = decoder.values(row.key, row.row, &mut chain);
                match values.and_then(|values| entry(&values)) {
                    Ok(entry) => f(entry)?,
                    Err(error) => {
                        catalog.problems.push(format!("{}: {error}", decoder.key_text(row.key)));
                    }
                }
            }
            Found::Lost(keys) => catalog.lost.push(range_text(&decoder, &keys)),
            Found::SetAside(..) => catalog.aside += 1,
            Found::Superseded => {}
        }
        Ok(())
    })?;
    Ok(catalog)
}

/// A range of keys as text.
pub fn range_text(decoder: &Decoder, keys: &KeyRange) -> String {
    let low = match keys.low.is_empty() {
        true => "the first key".to_string(),
        false => format!("({})", decoder.key_text(&keys.low)),
    };
    match &keys.high {
        Some(high) if is_only(keys) => {
            format!("the key ({})", decoder.key_text(&high[..high.len() - 1]))
        }
        Some(high) => format!("from {low} to below ({})", decoder.key_text(high)),
        None => format!("from {low} to the last key"),
    }
}

/// True if the range has only its first key.
fn is_only(keys: &KeyRange) -> bool {
    keys.high.as_ref().is_some_and(|high| high.strip_suffix(&[0]) == Some(&keys.low[..]))
}

/// Columns of foreign keys: the name in the parent, and the entry.
type KeyColumns = BTreeMap<u32, (String, ForeignKeyColumnEntry)>;

/// Rows of one table while the catalog is read.
#[derive(Default)]
struct Loading {
    name: String,
    entry: Option<TableEntry>,
    columns: Vec<Column>,
    indexes: Vec<Index>,
    /// By number.
    foreign_keys: BTreeMap<u32, (String, ForeignKeyEntry)>,
    /// By item, with the name of the column of a parent that does not exist.
    foreign_key_columns: KeyColumns,
    /// Names of parents that do not exist, by number.
    foreign_key_parents: BTreeMap<u32, String>,
    counter: u64,
    /// First time, slot and tree of each chunk.
    chunks: Vec<(i64, u32, TreeId)>,
}

impl Loading {
    fn take(&mut self, from: Entry) -> Result<()> {
        let (_, kind, item) = from.key;
        match kind {
            entry_kind::TABLE => {
                self.entry = Some(TableEntry::decode(&from.body)?);
                self.name = from.name;
            }
            entry_kind::COLUMN => {
                let entry = ColumnEntry::decode(&from.body)?;
                self.columns.push(Column { id: item as u16, name: from.name, entry });
            }
            entry_kind::INDEX => {
                let entry = IndexEntry::decode(&from.body)?;
                self.indexes.push(Index { name: from.name, entry });
            }
            entry_kind::COUNTER if item == 0 => self.counter = decode_counter(&from.body)?,
            entry_kind::FOREIGN_KEY => {
                let key = ForeignKeyEntry::decode(&from.body)?;
                self.foreign_keys.insert(item, (from.name, key));
            }
            entry_kind::FOREIGN_KEY_COLUMN => {
                let column = ForeignKeyColumnEntry::decode(&from.body)?;
                self.foreign_key_columns.insert(item, (from.name, column));
            }
            entry_kind::FOREIGN_KEY_PARENT => {
                ForeignKeyParentEntry::decode(&from.body)?;
                self.foreign_key_parents.insert(item, from.name);
            }
            entry_kind::CHUNK => {
                let chunk = ChunkEntry::decode(&from.body)?;
                self.chunks.push((chunk.lo, chunk.slot, TreeId(item)));
            }
            // Other counters, statistics, and kinds of later versions are not needed.
            _ => {}
        }
        Ok(())
    }
}

impl Catalog {
    /// Reads the catalog.
    ///
    /// # Errors
    /// None of damage: what is lost is in the result.
    pub fn read(picture: &Picture) -> Result<Catalog> {
        let mut loading: BTreeMap<u32, Loading> = BTreeMap::new();
        let mut problems = Vec::new();
        let mut catalog = each_entry(picture, &mut |entry| {
            let (table, kind, item) = entry.key;
            if table != 0
                && let Err(error) = loading.entry(table).or_default().take(entry)
            {
                problems.push(format!("entry (table {table}, kind {kind}, item {item}): {error}"));
            }
            Ok(())
        })?;
        catalog.problems.append(&mut problems);
        let (mut ids, mut keys) = (Vec::new(), Vec::new());
        for (id, table) in loading {
            let Loading { name, entry, mut columns, indexes, counter, mut chunks, .. } = table;
            columns.sort_by_key(|column| column.id);
            chunks.sort_unstable();
            let chunks = chunks.into_iter().map(|(_, _, tree)| tree).collect();
            match entry {
                Some(entry) => {
                    let def =
                        Definition { name, entry, columns, indexes, foreign_keys: Vec::new() };
                    catalog.tables.push(Known { def, counter, chunks });
                    ids.push(id);
                    let parents = table.foreign_key_parents;
                    keys.push((table.foreign_keys, table.foreign_key_columns, parents));
                }
                // A counter that was written during the DROP of its table.
                None if columns.is_empty() && indexes.is_empty() => {}
                None => {
                    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
                    catalog.problems.push(format!(
                        "table {id}, whose name and tree are lost, has the columns {}",
                        names.join(", ")
                    ));
                }
            }
        }
        for (at, (keys, columns, parents)) in keys.into_iter().enumerate() {
            catalog.name_foreign_keys(at, &ids, &keys, (&columns, &parents));
        }
        Ok(catalog)
    }

    /// Gives the table at a position its foreign keys, by names; `ids` are those of all tables.
    fn name_foreign_keys(
        &mut self,
        at: usize,
        ids: &[u32],
        keys: &BTreeMap<u32, (String, ForeignKeyEntry)>,
        (columns, parents): (&KeyColumns, &BTreeMap<u32, String>),
    ) {
        for (number, (name, entry)) in keys {
            let first = number.saturating_mul(KEY_PARTS_MAX as u32);
            let column = |position| columns.get(&first.saturating_add(position));
            let positions = 0..u32::from(entry.columns);
            // No column has this id, so its name is lost.
            let ids_of = |position| {
                column(position).map_or((u16::MAX, u16::MAX), |(_, c)| (c.column, c.parent_column))
            };
            let columns: Vec<(u16, u16)> = positions.clone().map(ids_of).collect();
            let names = positions.map(|p| column(p).map_or("?", |(name, _)| name).to_string());
            let names: Vec<String> = names.collect();
            let parent = ids.iter().position(|id| *id == entry.parent.0);
            let parent = parent.map(|parent| &self.tables[parent].def);
            let (actions, child) = ((entry.on_delete, entry.on_update), &self.tables[at].def);
            let mut key = ForeignKey::new(child, parent, name, actions, &columns);
            if let Some(parent) = parents.get(number) {
                (key.parent, key.parent_columns, key.awaits) = (parent.clone(), names, true);
            }
            self.tables[at].def.foreign_keys.push(key);
        }
    }
}
