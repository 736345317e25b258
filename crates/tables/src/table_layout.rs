//! `Layout`: a table definition compiled for row work: layouts by row format, key parts, the parts
//! of each index entry and the columns that it gives back. Immutable; a schema change makes a new
//! one with a higher epoch (F1).

use crate::foreign::KeyOf;
use crate::rules::KeyRules;
use crate::schema::{IndexDef, TableDef};
use crate::values::Columns;
use evenkeel_base::{Code, Error, IndexId, Lsn, Result};
use evenkeel_format::catalog::{ColumnEntry, IndexState, PartEntry};
use evenkeel_format::overflow::OverflowRef;
use evenkeel_format::row::{RowReader, VariablePlace};
use evenkeel_format::{
    Field, FixedPlace, KeyPart, RowColumn, RowLayout, Value, ValueRef, limits, put_varint,
    row_version,
};
use std::sync::{Arc, OnceLock};

/// A column inside a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyColumn {
    /// Position among the live columns.
    pub column: usize,
    /// How it is encoded.
    pub part: KeyPart,
}

/// A live column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its id.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Type, nullability, default.
    pub entry: ColumnEntry,
    /// The clustered key part that gives the column back; the row then does not hold it.
    pub from_key: Option<usize>,
}

struct Version {
    layout: RowLayout,
    /// Live column position -> slot of the layout.
    slots: Vec<Option<u16>>,
    /// Slot -> live column position.
    positions: Vec<Option<u16>>,
}

/// An index compiled for row work.
#[derive(Clone, Debug)]
pub struct IndexLayout {
    /// Its id.
    pub id: IndexId,
    /// Its name.
    pub name: String,
    /// True if it is unique.
    pub unique: bool,
    /// Its state.
    pub state: IndexState,
    /// Its columns.
    pub parts: Vec<KeyColumn>,
    /// Columns whose values an entry stores beside its key, because neither the key nor the
    /// clustered key gives them back.
    pub stored: Vec<usize>,
    /// Where each column lies in an entry (key, then clustered key), if no part varies in length.
    pub(crate) places: Option<Vec<Option<(usize, KeyPart)>>>,
}

/// See `IndexLayout::places`.
fn places(
    columns: usize,
    parts: &[KeyColumn],
    key: &[KeyColumn],
) -> Option<Vec<Option<(usize, KeyPart)>>> {
    let (mut places, mut at) = (vec![None; columns], 0);
    for KeyColumn { column, part } in parts.iter().chain(key) {
        if part.nullable || !part.ty.is_scalar() {
            return None;
        }
        places[*column] = Some((at, *part));
        at += part.ty.fixed_len()?;
    }
    Some(places)
}

/// See `IndexLayout::stored`.
fn stored(parts: &[KeyColumn], key: &[KeyColumn]) -> Vec<usize> {
    let mut stored = Vec::new();
    let whole = |column: usize| {
        parts.iter().chain(key).any(|p| p.column == column && !p.part.form.is_lossy())
    };
    for KeyColumn { column, part } in parts.iter().chain(key) {
        if part.form.is_stored() && !whole(*column) && !stored.contains(column) {
            stored.push(*column);
        }
    }
    stored
}

impl IndexLayout {
    /// Checks that a snapshot at `at` may read it. # Errors: `IndexTooNew`, `IndexMissing` while
    /// building.
    pub fn check_readable(&self, at: Lsn) -> Result<()> {
        match self.state {
            IndexState::Valid(from) if from <= at => Ok(()),
            IndexState::Valid(_) => Err(Error::new(Code::IndexTooNew).with("index", &self.name)),
            _ => Err(Error::new(Code::IndexMissing)
                .with("index", &self.name)
                .with("state", "being built")),
        }
    }

    /// True if an entry stores values beside its key.
    pub fn stores(&self) -> bool {
        !self.stored.is_empty()
    }

    /// True if its keys cannot be made here: a collation is missing or has changed.
    pub fn is_opaque(&self) -> bool {
        self.parts.iter().any(|p| p.part.form.is_missing())
    }

    /// True if an entry depends on the column at `position`.
    pub fn depends_on(&self, position: usize) -> bool {
        self.stored.contains(&position) || self.parts.iter().any(|p| p.column == position)
    }

    /// As `put_stored`, for a new entry whose key and clustered key take `keys_len` bytes.
    ///
    /// # Errors
    /// As `put_stored`; `EntryTooLong`.
    pub fn encode_stored<'v>(
        &self,
        value: &impl Fn(usize) -> Result<ValueRef<'v>>,
        keys_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        self.put_stored(value, out)?;
        self.check_len(keys_len + out.len() - start)
    }

    /// Appends the values that an entry stores beside its key: per column 0 for NULL, or length + 1
    /// and the bytes.
    ///
    /// # Errors
    /// Errors of getting a value; `ValueType`.
    pub fn put_stored<'v>(
        &self,
        value: &impl Fn(usize) -> Result<ValueRef<'v>>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        for column in &self.stored {
            match value(*column)? {
                ValueRef::Null => put_varint(out, 0),
                ValueRef::Bytes(bytes) => {
                    put_varint(out, bytes.len() as u64 + 1);
                    out.extend_from_slice(bytes);
                }
                _ => return Err(Error::new(Code::ValueType).with("index", &self.name)),
            }
        }
        Ok(())
    }

    fn check_len(&self, bytes: usize) -> Result<()> {
        if bytes <= limits::INDEX_ENTRY_BYTES_MAX {
            return Ok(());
        }
        Err(Error::new(Code::EntryTooLong)
            .with("index", &self.name)
            .with("bytes", bytes)
            .with("limit", limits::INDEX_ENTRY_BYTES_MAX))
    }

    /// True if some part of the encoded key is NULL. # Errors: `BadEncoding`.
    pub fn has_null(&self, key: &[u8]) -> Result<bool> {
        let mut rest = key;
        for part in &self.parts {
            if part.part.is_null(rest)? {
                return Ok(true);
            }
            rest = part.part.skip(rest)?;
        }
        Ok(false)
    }

    /// True if changes check its uniqueness.
    pub fn checks_unique(&self) -> bool {
        self.unique && !matches!(self.state, IndexState::Building)
    }

    /// Appends the key bytes of a row; true if no part is NULL.
    ///
    /// # Errors
    /// `EntryTooLong`, and errors of encoding a value.
    pub fn encode<'v>(
        &self,
        value: &impl Fn(usize) -> Result<ValueRef<'v>>,
        pk_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = out.len();
        let mut full = true;
        for part in &self.parts {
            let value = value(part.column)?;
            full &= !value.is_null();
            part.part.encode(value, out)?;
        }
        self.check_len(out.len() - start + pk_len)?;
        Ok(full)
    }
}

/// A table definition compiled for row work.
pub struct Layout {
    /// The definition.
    pub def: Arc<TableDef>,
    /// Number of this state of the schema; grows with each change (F1).
    pub epoch: u64,
    /// Live columns in order.
    pub columns: Vec<Column>,
    /// Parts of the clustered key; empty with a hidden id.
    pub key: Vec<KeyColumn>,
    /// Indexes.
    pub indexes: Vec<IndexLayout>,
    /// Position of the auto-increment column.
    pub auto_increment: Option<usize>,
    key_bytes_max: usize,
    versions: Vec<OnceLock<Version>>,
    /// In a chunk: for each index the one of the table, under whose id its keys are locked.
    lock_ids: Vec<(IndexId, IndexId)>,
}

impl Layout {
    /// Compiles `def`. # Errors: `CatalogDamaged` if it names missing columns.
    pub fn new(def: Arc<TableDef>, epoch: u64, rules: impl Into<KeyRules>) -> Result<Layout> {
        let rules = rules.into();
        let live = def.live_columns();
        let damaged = |what: &str| {
            Error::new(Code::CatalogDamaged).with("table", &def.name).with("what", what)
        };
        let key_columns = |parts: &[PartEntry]| -> Result<Vec<KeyColumn>> {
            let one = |part: &PartEntry| {
                let column = live.iter().position(|c| c.id == part.column);
                let column = column.ok_or_else(|| damaged("a key names an unknown column"))?;
                let entry = &live[column].entry;
                let (ty, nullable, form) = (entry.ty, entry.nullable, rules.form(part));
                Ok(KeyColumn { column, part: KeyPart { ty, nullable, desc: part.desc, form } })
            };
            parts.iter().map(one).collect()
        };
        let key = key_columns(&def.entry.primary)?;
        if key.is_empty() != def.entry.hidden_key {
            return Err(damaged("primary key and hidden id"));
        }
        let from_key = |position: usize| {
            key.iter().position(|k| k.column == position && k.part.ty.is_scalar())
        };
        let columns: Vec<Column> = live
            .iter()
            .enumerate()
            .map(|(i, c)| Column {
                id: c.id,
                name: c.name.clone(),
                entry: c.entry.clone(),
                from_key: from_key(i),
            })
            .collect();
        let compile = |i: &IndexDef| -> Result<IndexLayout> {
            let parts = key_columns(&i.entry.parts)?;
            let (id, name) = (i.id, i.name.clone());
            let places = places(live.len(), &parts, &key);
            let stored = stored(&parts, &key);
            let (unique, state) = (i.entry.unique, i.entry.state);
            Ok(IndexLayout { id, name, unique, state, parts, stored, places })
        };
        let indexes = def.indexes.iter().map(compile).collect::<Result<_>>()?;
        let auto = def.entry.auto_increment;
        let auto_increment = auto.and_then(|id| columns.iter().position(|c| c.id == id));
        let versions = (0..=def.entry.row_version).map(|_| OnceLock::new()).collect();
        let key_bytes_max = rules.key_bytes_max();
        let lock_ids = Vec::new();
        Ok(Layout {
            def,
            epoch,
            columns,
            key,
            indexes,
            auto_increment,
            key_bytes_max,
            versions,
            lock_ids,
        })
    }

    /// As the layout of a chunk, whose keys are locked under the ids of the table's indexes:
    /// `(index of the chunk, index of the table)`.
    pub(crate) fn locked_as(mut self, lock_ids: Vec<(IndexId, IndexId)>) -> Layout {
        self.lock_ids = lock_ids;
        self
    }

    pub(crate) fn lock_ids(&self) -> &[(IndexId, IndexId)] {
        &self.lock_ids
    }

    /// The index under whose id the keys of an index are locked.
    #[inline]
    pub(crate) fn locks_of(&self, index: IndexId) -> IndexId {
        self.lock_ids.iter().find(|(own, _)| *own == index).map_or(index, |(_, table)| *table)
    }

    #[inline]
    fn version(&self, number: u16) -> Result<&Version> {
        let cell = self.versions.get(usize::from(number)).ok_or_else(|| {
            Error::new(Code::BadEncoding).with("what", "row").with("row_format", number)
        })?;
        Ok(cell.get_or_init(|| {
            let in_key = |id: u16| self.columns.iter().any(|c| c.id == id && c.from_key.is_some());
            let held = self.def.columns.iter().filter(|c| {
                let e = &c.entry;
                let here = e.added_in <= number && (e.dropped_in == 0 || e.dropped_in > number);
                here && !in_key(c.id)
            });
            let columns: Vec<RowColumn> = held
                .map(|c| RowColumn { id: c.id, ty: c.entry.ty, nullable: c.entry.nullable })
                .collect();
            let slot = |id: u16| columns.iter().position(|c| c.id == id).map(|s| s as u16);
            let slots = self.columns.iter().map(|c| slot(c.id)).collect();
            let live = |id: u16| self.columns.iter().position(|c| c.id == id).map(|p| p as u16);
            let positions = columns.iter().map(|c| live(c.id)).collect();
            Version { layout: RowLayout::new(number, columns), slots, positions }
        }))
    }

    /// Where rows of a format hold the live column at `position`, if at a fixed place.
    pub(crate) fn fixed_place(&self, version: u16, position: usize) -> Option<FixedPlace> {
        let version = self.version(version).ok()?;
        version.layout.fixed_place(usize::from((*version.slots.get(position)?)?))
    }

    /// As `fixed_place`, for a column of variable length.
    pub(crate) fn variable_place(&self, version: u16, position: usize) -> Option<VariablePlace> {
        let version = self.version(version).ok()?;
        version.layout.variable_place(usize::from((*version.slots.get(position)?)?))
    }

    /// True if some key cannot be made here: its collation is missing, or has other weights than
    /// the existing keys. A copy of the table makes the keys anew.
    pub fn needs_rebuild(&self) -> bool {
        self.indexes.iter().any(IndexLayout::is_opaque)
            || self.key.iter().any(|p| p.part.form.is_missing())
    }

    /// Position of a live column. # Errors: `ColumnMissing`.
    pub fn column(&self, name: &str) -> Result<usize> {
        self.columns.iter().position(|c| c.name == name).ok_or_else(|| {
            Error::new(Code::ColumnMissing).with("table", &self.def.name).with("column", name)
        })
    }

    /// Position of an index. # Errors: `IndexMissing`.
    pub fn index(&self, name: &str) -> Result<usize> {
        self.indexes.iter().position(|i| i.name == name).ok_or_else(|| {
            Error::new(Code::IndexMissing).with("table", &self.def.name).with("index", name)
        })
    }

    /// The index at a position. # Errors: `IndexMissing`.
    pub fn index_at(&self, position: usize) -> Result<&IndexLayout> {
        self.indexes.get(position).ok_or_else(|| {
            Error::new(Code::IndexMissing).with("table", &self.def.name).with("position", position)
        })
    }

    /// Appends the clustered key of a row. # Errors: `KeyTooLong`, and errors of encoding.
    pub fn encode_key<'v>(
        &self,
        value: &impl Fn(usize) -> Result<ValueRef<'v>>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        for key in &self.key {
            let encoded = key.part.encode(value(key.column)?, out);
            encoded.map_err(|e| e.with("column", &self.columns[key.column].name))?;
        }
        self.check_key(&out[start..])
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        if key.len() <= self.key_bytes_max {
            return Ok(());
        }
        Err(Error::new(Code::KeyTooLong)
            .with("table", &self.def.name)
            .with("bytes", key.len())
            .with("limit", self.key_bytes_max))
    }

    /// Appends a prefix of a key given by values for its first parts.
    /// # Errors: `TooManyKeyParts`, and errors of encoding.
    pub fn encode_prefix(
        &self,
        parts: &[KeyColumn],
        values: &[ValueRef<'_>],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if values.len() > parts.len() {
            return Err(too_many(values.len(), parts.len()));
        }
        for (part, value) in parts.iter().zip(values) {
            let encoded = part.part.encode(*value, out);
            encoded.map_err(|e| e.with("column", &self.columns[part.column].name))?;
        }
        Ok(())
    }

    /// Bytes of the shortest row in the present format.
    pub(crate) fn row_bytes_min(&self) -> Result<usize> {
        Ok(self.version(self.def.entry.row_version)?.layout.row_bytes_min())
    }

    /// The parts of a key.
    pub(crate) fn key_parts(&self, of: KeyOf) -> &[KeyColumn] {
        match of {
            KeyOf::Clustered => &self.key,
            KeyOf::Index(at) => &self.indexes[at].parts,
        }
    }

    /// Rejects a table whose rows never fit a leaf: columns of fixed length cannot leave the row.
    ///
    /// # Errors
    /// `RowTooLong`.
    pub(crate) fn check_row_fits(&self, page_size: usize) -> Result<()> {
        let bytes = self.row_bytes_min()?;
        let limit = evenkeel_format::node::row_bytes_max(page_size, 0);
        if bytes <= limit {
            return Ok(());
        }
        let table = &self.def.name;
        let error = Error::new(Code::RowTooLong).with("table", table).with("bytes", bytes);
        Err(error.with("limit", limit).with("page_size", page_size))
    }

    /// Appends the row bytes in the present format. # Errors: those of encoding a value.
    pub fn encode_row<'v>(
        &self,
        field: &impl Fn(usize) -> Result<Field<'v>>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let version = self.version(self.def.entry.row_version)?;
        let failed = std::cell::RefCell::new(None);
        // Columns are encoded one by one: the last one is the one that does not fit.
        let last = std::cell::Cell::new(0);
        let encoded = version.layout.encode(
            |slot| {
                let position = version.positions[slot].map_or(0, usize::from);
                last.set(position);
                field(position).unwrap_or_else(|e| {
                    failed.borrow_mut().get_or_insert(e);
                    Field::Value(ValueRef::Null)
                })
            },
            out,
        );
        match failed.into_inner() {
            Some(error) => Err(error),
            None => encoded.map_err(|e| self.of_column(e, last.get())),
        }
    }

    /// True if the row's format is not newer than this layout.
    #[inline]
    pub(crate) fn is_as_new_as(&self, row: &[u8]) -> bool {
        row_version(row).is_ok_and(|number| usize::from(number) < self.versions.len())
    }

    /// Appends the row bytes in the present format, if every value is at hand.
    /// # Errors: those of encoding a value.
    pub fn encode_values<'v>(
        &self,
        value: &impl Fn(usize) -> &'v ValueRef<'v>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let version = self.version(self.def.entry.row_version)?;
        let last = std::cell::Cell::new(0);
        let encoded = version.layout.encode_values(
            |slot| {
                let position = version.positions[slot].map_or(0, usize::from);
                last.set(position);
                value(position)
            },
            out,
        );
        encoded.map_err(|e| self.of_column(e, last.get()))
    }

    #[cold]
    fn of_column(&self, error: Error, column: usize) -> Error {
        let column = self.columns.get(column).map_or("", |c| &c.name);
        error.with("table", &self.def.name).with("column", column)
    }

    /// Reads a stored row. # Errors: `BadEncoding`.
    #[inline]
    pub fn view<'s>(&'s self, key: &'s [u8], row: &'s [u8]) -> Result<RowView<'s>> {
        let version = self.version(row_version(row)?)?;
        Ok(RowView { layout: self, key, version, reader: version.layout.read(row)?, loaded: &[] })
    }

    /// True if the clustered key or some index has the column at `position`.
    pub fn is_indexed(&self, position: usize) -> bool {
        self.key.iter().any(|k| k.column == position)
            || self.indexes.iter().any(|i| i.depends_on(position))
    }

    /// The overflow chains that a stored row names, those of dropped columns included.
    /// # Errors: `BadEncoding`.
    pub fn chains(&self, row: &[u8]) -> Result<Vec<OverflowRef>> {
        let mut chains = Vec::new();
        if row.is_empty() || !evenkeel_format::row::has_references(row) {
            return Ok(chains);
        }
        let layout = &self.version(row_version(row)?)?.layout;
        let reader = layout.read(row)?;
        for slot in 0..layout.columns().len() {
            if let Field::Reference(reference) = reader.field(slot)? {
                chains.push(OverflowRef::decode(reference)?);
            }
        }
        Ok(chains)
    }

    /// Checks values given for a whole row. # Errors: `WrongValueCount`.
    pub fn check_values(&self, values: &[ValueRef<'_>]) -> Result<()> {
        if values.len() == self.columns.len() {
            return Ok(());
        }
        Err(Error::new(Code::WrongValueCount)
            .with("table", &self.def.name)
            .with("values", values.len())
            .with("columns", self.columns.len()))
    }
}

impl Columns for Layout {
    fn name_at(&self, position: usize) -> Option<&str> {
        self.columns.get(position).map(|column| &column.name[..])
    }

    fn position_of(&self, name: &str) -> Result<usize> {
        self.column(name)
    }
}

/// More values than a key has parts.
pub(crate) fn too_many(values: usize, parts: usize) -> Error {
    Error::new(Code::TooManyKeyParts).with("values", values).with("parts", parts)
}

/// A stored row, read column by column.
pub struct RowView<'s> {
    layout: &'s Layout,
    key: &'s [u8],
    version: &'s Version,
    reader: RowReader<'s, 's>,
    loaded: &'s [(usize, Value)],
}

impl<'s> RowView<'s> {
    /// Sets the values that lie in overflow pages.
    #[must_use]
    pub fn with_loaded(mut self, loaded: &'s [(usize, Value)]) -> RowView<'s> {
        self.loaded = loaded;
        self
    }

    /// The stored field of the column at `position`. # Errors: `BadEncoding`, `ColumnMissing`.
    #[inline]
    pub fn field(&self, position: usize) -> Result<Field<'s>> {
        let Some(column) = self.layout.columns.get(position) else {
            return Err(Error::new(Code::ColumnMissing).with("position", position));
        };
        if let Some(part) = column.from_key {
            let mut rest = self.key;
            for before in &self.layout.key[..part] {
                rest = before.part.skip(rest)?;
            }
            return Ok(Field::Value(self.layout.key[part].part.decode_scalar(rest)?));
        }
        match self.version.slots[position] {
            Some(slot) => self.reader.field(usize::from(slot)),
            None => Ok(Field::Value(column.entry.default_value())),
        }
    }

    /// The value of a column that is not in overflow pages, or was loaded. # Errors: as `field`.
    #[inline]
    pub fn value(&self, position: usize) -> Result<ValueRef<'s>> {
        match self.field(position)? {
            Field::Value(value) => Ok(value),
            Field::Reference(_) => match self.loaded.iter().find(|l| l.0 == position) {
                Some((_, value)) => Ok(value.as_ref()),
                None => Err(Error::internal("a value in overflow pages was not loaded")),
            },
        }
    }
}

#[cfg(test)]
#[path = "table_layout_tests.rs"]
mod table_layout_tests;
