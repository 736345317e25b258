//! A table's definition as the catalog stores it, and the decoding of its rows from their stored
//! bytes. Made from the engine's definition (`dump`) or from catalog rows (`salvage`).
//!
//! Invariant: `live` lists the columns that are not dropped, by position; the values of a row are
//! in that order.

use evenkeel::{ColumnSpec, IndexSpec, PartSpec, TableDef, TableSpec};
use evenkeel_base::{Code, Error, Result, TableId};
use evenkeel_format::catalog::{
    ColumnEntry, IndexEntry, IndexState, PartCollation, PartEntry, ReferenceAction, TableEntry,
};
use evenkeel_format::overflow::OverflowRef;
use evenkeel_format::{
    Field, Form, KeyPart, RowColumn, RowLayout, Value, Weigher, row_version, text,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its id in the table.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// The catalog's entry.
    pub entry: ColumnEntry,
}

/// An index.
#[derive(Clone, Debug)]
pub struct Index {
    /// Its name.
    pub name: String,
    /// The catalog's entry.
    pub entry: IndexEntry,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// Tree, row format, primary key.
    pub entry: TableEntry,
    /// All columns ever, by id.
    pub columns: Vec<Column>,
    /// Its indexes.
    pub indexes: Vec<Index>,
    /// Its foreign keys.
    pub foreign_keys: Vec<ForeignKey>,
}

impl Definition {
    /// The engine's definition; `parent` has those of other tables.
    pub fn of(def: &TableDef, parent: &dyn Fn(TableId) -> Option<Arc<TableDef>>) -> Definition {
        let columns = def.columns.iter().map(|c| Column {
            id: c.id,
            name: c.name.clone(),
            entry: c.entry.clone(),
        });
        let indexes =
            def.indexes.iter().map(|i| Index { name: i.name.clone(), entry: i.entry.clone() });
        let mut made = Definition {
            name: def.name.clone(),
            entry: def.entry.clone(),
            columns: columns.collect(),
            indexes: indexes.collect(),
            foreign_keys: Vec::new(),
        };
        let empty = |id| Definition::of(&TableDef { foreign_keys: Vec::new(), ..id }, &|_| None);
        for key in &def.foreign_keys {
            let of_parent = parent(key.parent).map(|parent| empty(TableDef::clone(&parent)));
            let actions = (key.on_delete, key.on_update);
            let mut named =
                ForeignKey::new(&made, of_parent.as_ref(), &key.name, actions, &key.columns);
            if let Some(awaited) = &key.awaited {
                named.parent.clone_from(&awaited.table);
                named.parent_columns.clone_from(&awaited.columns);
                named.awaits = true;
            }
            made.foreign_keys.push(named);
        }
        made
    }
}

/// A collation's weights cannot be made here; a key part that holds them only says how many bytes
/// to skip.
fn part(entry: &PartEntry, column: &ColumnEntry) -> KeyPart {
    let form = match (entry.collation, entry.prefix) {
        (None, 0) => Form::Whole,
        (None, bytes) => Form::Prefix(bytes),
        (Some(collation), chars) => {
            Form::Weights { collation: collation.id, chars, by: Weigher::Missing }
        }
    };
    KeyPart { ty: column.ty, nullable: column.nullable, desc: entry.desc, form }
}

/// A foreign key, by names.
#[derive(Clone, Debug)]
pub struct ForeignKey {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<String>,
    /// The table that its rows refer to.
    pub parent: String,
    /// That table's columns.
    pub parent_columns: Vec<String>,
    /// What a delete of a parent row does.
    pub on_delete: ReferenceAction,
    /// What a change of a parent row's key does.
    pub on_update: ReferenceAction,
    /// The parent does not exist: the key waits for a table of its name.
    pub awaits: bool,
}

impl ForeignKey {
    /// Names of what the catalog has by ids; "?" for what is lost.
    pub fn new(
        child: &Definition,
        parent: Option<&Definition>,
        name: &str,
        (on_delete, on_update): (ReferenceAction, ReferenceAction),
        columns: &[(u16, u16)],
    ) -> ForeignKey {
        let own = columns.iter().map(|(id, _)| child.column_name(*id).to_string());
        let of_parent = columns.iter().map(|(_, id)| parent.map_or("?", |p| p.column_name(*id)));
        ForeignKey {
            name: name.to_string(),
            columns: own.collect(),
            parent: parent.map_or("?", |parent| &parent.name).to_string(),
            parent_columns: of_parent.map(str::to_string).collect(),
            on_delete,
            on_update,
            awaits: false,
        }
    }

    /// True if the catalog has all of its names.
    pub fn is_known(&self) -> bool {
        let mut names = self.columns.iter().chain(&self.parent_columns).chain([&self.parent]);
        names.all(|name| name != "?")
    }
}

/// A table as this program can make it in a new database.
pub struct Rebuilt {
    /// What to create.
    pub spec: TableSpec,
    /// What differs from the original, in sentences.
    pub notes: Vec<String>,
}

impl Definition {
    /// The live columns, in order.
    pub fn live(&self) -> Vec<&Column> {
        let mut live: Vec<&Column> =
            self.columns.iter().filter(|c| c.entry.dropped_in == 0).collect();
        live.sort_by_key(|c| c.entry.position);
        live
    }

    /// Name of a column.
    pub fn column_name(&self, id: u16) -> &str {
        self.columns.iter().find(|c| c.id == id).map_or("?", |c| &c.name)
    }

    /// The parts of the primary key: of the clustered key, or of the index that stands in for it.
    pub fn primary(&self) -> &[PartEntry] {
        match self.indexes.iter().find(|i| i.entry.primary) {
            Some(index) => &index.entry.parts,
            None => &self.entry.primary,
        }
    }

    /// The indexes that are complete, without the one that stands in for the primary key.
    pub fn secondary(&self) -> impl Iterator<Item = &Index> {
        let valid = |i: &&Index| matches!(i.entry.state, IndexState::Valid(_));
        self.indexes.iter().filter(|i| !i.entry.primary).filter(valid)
    }

    /// The table for a new database, without the indexes that are ordered by collations, which only
    /// the server has, and without foreign keys (`foreign`).
    pub fn rebuilt(&self) -> Rebuilt {
        let (mut spec, mut notes) = (TableSpec::new(), Vec::new());
        for column in self.live() {
            spec = spec.column(ColumnSpec {
                name: column.name.clone(),
                ty: column.entry.ty,
                nullable: column.entry.nullable,
                default: column.entry.default.clone(),
                auto_increment: self.entry.auto_increment == Some(column.id),
            });
        }
        // The stored keys of the rows have the weights of the clustered key.
        match self.part_specs(self.primary(), self.has_primary_in_tree()) {
            Ok(parts) => spec.primary = parts,
            Err(why) => notes.push(format!("it has no primary key: {why}")),
        }
        for index in &self.indexes {
            if index.entry.primary {
                continue;
            }
            let (name, unique) = (index.name.clone(), index.entry.unique);
            if !matches!(index.entry.state, IndexState::Valid(_)) {
                notes.push(format!("index {name} is left out: its build had not ended"));
                continue;
            }
            match self.part_specs(&index.entry.parts, false) {
                Ok(parts) => spec = spec.index(IndexSpec { name, parts, unique }),
                Err(why) => notes.push(format!("index {name} is left out: {why}")),
            }
        }
        Rebuilt { spec, notes }
    }

    /// True if rows are stored by the primary key.
    fn has_primary_in_tree(&self) -> bool {
        !self.entry.hidden_key && !self.indexes.iter().any(|i| i.entry.primary)
    }

    /// The collations of the clustered key.
    pub fn collations(&self) -> impl Iterator<Item = PartCollation> {
        self.entry.primary.iter().filter_map(|part| part.collation)
    }

    /// The parts of a key; `has_weights`: those of collations are known.
    fn part_specs(
        &self,
        parts: &[PartEntry],
        has_weights: bool,
    ) -> std::result::Result<Vec<PartSpec>, String> {
        let one = |part: &PartEntry| match part.collation {
            Some(collation) if !has_weights => Err(format!(
                "column {} is ordered by collation {}, which only the server has",
                self.column_name(part.column),
                collation.id
            )),
            collation => Ok(PartSpec {
                column: self.column_name(part.column).to_string(),
                desc: part.desc,
                prefix: part.prefix,
                collation: collation.map_or(0, |collation| collation.id),
            }),
        };
        parts.iter().map(one).collect()
    }
}

/// The weights of a value in the stored key of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Number of the collation.
    pub collation: u16,
    /// Characters of the value that have weights; 0: all.
    pub chars: u32,
    /// The value.
    pub value: Vec<u8>,
    /// Its weights.
    pub weights: Vec<u8>,
}

/// Decodes rows of a table.
pub struct Decoder {
    live: Vec<Column>,
    /// Parts of the clustered key, each with the position of its live column.
    key: Vec<(usize, KeyPart)>,
    /// Row format -> its layout, and the slot of each live column.
    formats: BTreeMap<u16, (RowLayout, Vec<Option<usize>>)>,
}

impl Decoder {
    /// A decoder for a definition.
    ///
    /// # Errors
    /// `CatalogDamaged` naming what the definition lacks.
    pub fn new(def: &Definition) -> Result<Decoder> {
        let damaged = |what: &str| {
            Error::new(Code::CatalogDamaged).with("table", &def.name).with("what", what)
        };
        let known: Vec<u16> = def.columns.iter().map(|c| c.id).collect();
        if let Some(missing) = (0..def.entry.next_column).find(|id| !known.contains(id)) {
            return Err(damaged("a column's entry is lost").with("column_id", missing));
        }
        if def.entry.primary.is_empty() != def.entry.hidden_key {
            return Err(damaged("primary key and hidden id"));
        }
        let live: Vec<Column> = def.live().into_iter().cloned().collect();
        let mut key = Vec::new();
        for entry in &def.entry.primary {
            let position = live.iter().position(|c| c.id == entry.column);
            let position = position.ok_or_else(|| damaged("a key names an unknown column"))?;
            key.push((position, part(entry, &live[position].entry)));
        }
        let in_key: Vec<u16> = key
            .iter()
            .filter(|(_, part)| part.ty.is_scalar())
            .map(|(position, _)| live[*position].id)
            .collect();
        let mut formats = BTreeMap::new();
        for version in 0..=def.entry.row_version {
            let held = def.columns.iter().filter(|c| {
                let e = &c.entry;
                let there = e.added_in <= version && (e.dropped_in == 0 || e.dropped_in > version);
                there && !in_key.contains(&c.id)
            });
            let columns: Vec<RowColumn> = held
                .map(|c| RowColumn { id: c.id, ty: c.entry.ty, nullable: c.entry.nullable })
                .collect();
            let slots = live.iter().map(|l| columns.iter().position(|c| c.id == l.id)).collect();
            formats.insert(version, (RowLayout::new(version, columns), slots));
        }
        Ok(Decoder { live, key, formats })
    }

    /// The values of a row, in the order of the live columns; `chain` reads a long value.
    ///
    /// # Errors
    /// `BadEncoding`; those of `chain`, with the name of the column.
    pub fn values(
        &self,
        key: &[u8],
        row: &[u8],
        chain: &mut dyn FnMut(OverflowRef) -> Result<Vec<u8>>,
    ) -> Result<Vec<Value>> {
        let version = row_version(row)?;
        let Some((layout, slots)) = self.formats.get(&version) else {
            let error = Error::new(Code::BadEncoding).with("what", "row");
            return Err(error.with("row_format", version));
        };
        let mut values: Vec<Option<Value>> = vec![None; self.live.len()];
        let mut rest = key;
        for (position, part) in &self.key {
            let (value, behind) = part.decode(rest)?;
            rest = behind;
            if part.ty.is_scalar() {
                values[*position] = Some(value);
            }
        }
        if !rest.is_empty() && !self.key.is_empty() {
            return Err(Error::new(Code::BadEncoding).with("what", "bytes behind a key"));
        }
        let reader = layout.read(row)?;
        for (position, column) in self.live.iter().enumerate() {
            if values[position].is_some() {
                continue;
            }
            let value = match slots[position] {
                None => column.entry.default_value().to_owned(),
                Some(slot) => match reader.field(slot)? {
                    Field::Value(value) => value.to_owned(),
                    Field::Reference(reference) => {
                        let bytes = chain(OverflowRef::decode(reference)?)
                            .map_err(|e| e.with("column", &column.name))?;
                        column.entry.ty.from_own_bytes(bytes)?
                    }
                },
            };
            values[position] = Some(value);
        }
        Ok(values.into_iter().flatten().collect())
    }

    /// The weights in the stored key of a row with these values.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn weights(&self, key: &[u8], values: &[Value]) -> Result<Vec<Kept>> {
        let (mut kept, mut rest) = (Vec::new(), key);
        for (position, part) in &self.key {
            let Form::Weights { collation, chars, .. } = part.form else {
                rest = part.skip(rest)?;
                continue;
            };
            let (weights, behind) = part.decode(rest)?;
            rest = behind;
            if let (Value::Bytes(weights), Value::Bytes(value)) = (weights, &values[*position]) {
                kept.push(Kept { collation, chars, value: value.clone(), weights });
            }
        }
        Ok(kept)
    }

    /// A clustered key, or the beginning of one, as text.
    pub fn key_text(&self, key: &[u8]) -> String {
        let parts = self.key.iter();
        text::key(parts.map(|(position, part)| (part, &*self.live[*position].name)), key)
    }
}
