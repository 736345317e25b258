//! Definitions: a caller's request (`TableSpec`, `ColumnSpec`, `IndexSpec`), the catalog's form
//! (`TableDef`), and the checks between the two (E5). No storage here.

use crate::alter::PROVISIONAL;
use crate::chunks::spec::Chunking;
use crate::foreign::{ForeignKeyDef, ForeignKeySpec};
use crate::rules::KeyRules;
use evenkeel_base::{Code, Error, IndexId, Result, TableId};
use evenkeel_format::catalog::{ColumnEntry, IndexEntry, IndexState, PartEntry, TableEntry};
use evenkeel_format::chunks::ChunkingEntry;
use evenkeel_format::{ColumnType, KeyPart, Value, limits};

/// A requested column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSpec {
    /// Name, unique in the table.
    pub name: String,
    /// Type.
    pub ty: ColumnType,
    /// True if it may be NULL.
    pub nullable: bool,
    /// The value if none is given; a column without a default that is not nullable needs a value.
    pub default: Option<Value>,
    /// NULL is replaced by the next number; at most one column, of an integer type.
    pub auto_increment: bool,
}

impl ColumnSpec {
    /// A column that is not nullable and has no default.
    pub fn new(name: &str, ty: ColumnType) -> ColumnSpec {
        let name = name.to_string();
        ColumnSpec { name, ty, nullable: false, default: None, auto_increment: false }
    }
    /// Allows NULL.
    #[must_use]
    pub fn nullable(mut self) -> ColumnSpec {
        self.nullable = true;
        self
    }
    /// Sets the default.
    #[must_use]
    pub fn default_value(mut self, value: impl Into<Value>) -> ColumnSpec {
        self.default = Some(value.into());
        self
    }
    /// Makes it the auto-increment column.
    #[must_use]
    pub fn auto_increment(mut self) -> ColumnSpec {
        self.auto_increment = true;
        self
    }
}

/// A part of a requested key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartSpec {
    /// Column name.
    pub column: String,
    /// Descending.
    pub desc: bool,
    /// Only this many first characters (bytes without a collation); 0 for all.
    pub prefix: u32,
    /// A collation of the embedding program; 0 for byte order.
    pub collation: u16,
}

impl From<&str> for PartSpec {
    /// Ascending, or descending for "name desc".
    fn from(text: &str) -> PartSpec {
        match text.strip_suffix(" desc") {
            Some(column) => PartSpec { desc: true, ..PartSpec::from(column) },
            None => PartSpec { column: text.to_string(), ..PartSpec::default() },
        }
    }
}

/// A requested secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// Name, unique in the table.
    pub name: String,
    /// Its parts.
    pub parts: Vec<PartSpec>,
    /// No two rows may have equal keys (except NULLs).
    pub unique: bool,
}

impl IndexSpec {
    /// An index over these parts ("name" or "name desc").
    pub fn new(name: &str, parts: &[&str]) -> IndexSpec {
        let parts = parts.iter().map(|p| PartSpec::from(*p)).collect();
        IndexSpec { name: name.to_string(), parts, unique: false }
    }
    /// Makes it unique.
    #[must_use]
    pub fn unique(mut self) -> IndexSpec {
        self.unique = true;
        self
    }
}

/// A requested table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableSpec {
    /// Columns in order.
    pub columns: Vec<ColumnSpec>,
    /// Parts of the primary key; without any the table is clustered on a hidden id.
    pub primary: Vec<PartSpec>,
    /// Secondary indexes.
    pub indexes: Vec<IndexSpec>,
    /// Foreign keys; each needs an index, or the primary key, that begins with its columns.
    pub foreign_keys: Vec<ForeignKeySpec>,
    /// How the table is cut into chunks, if it is.
    pub chunking: Option<Chunking>,
}

impl TableSpec {
    /// A table without columns yet.
    pub fn new() -> TableSpec {
        TableSpec::default()
    }
    /// Adds a column.
    #[must_use]
    pub fn column(mut self, column: ColumnSpec) -> TableSpec {
        self.columns.push(column);
        self
    }
    /// Sets the primary key.
    #[must_use]
    pub fn primary_key(mut self, parts: &[&str]) -> TableSpec {
        self.primary = parts.iter().map(|p| PartSpec::from(*p)).collect();
        self
    }
    /// Adds an index.
    #[must_use]
    pub fn index(mut self, index: IndexSpec) -> TableSpec {
        self.indexes.push(index);
        self
    }
    /// Cuts the table into chunks.
    #[must_use]
    pub fn chunked(mut self, chunking: Chunking) -> TableSpec {
        self.chunking = Some(chunking);
        self
    }
    /// Adds a foreign key.
    #[must_use]
    pub fn foreign_key(mut self, key: ForeignKeySpec) -> TableSpec {
        self.foreign_keys.push(key);
        self
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDef {
    /// Its id, never reused in the table.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// The catalog's entry.
    pub entry: ColumnEntry,
}

impl ColumnDef {
    /// True while it is not dropped.
    pub fn is_live(&self) -> bool {
        self.entry.dropped_in == 0
    }
}

/// An index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDef {
    /// Its id, never reused in the database.
    pub id: IndexId,
    /// Its name.
    pub name: String,
    /// The catalog's entry.
    pub entry: IndexEntry,
}

/// A table in the catalog's form.
#[derive(Clone, Debug, PartialEq)]
pub struct TableDef {
    /// Its id, never reused.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// Tree, row format, keys.
    pub entry: TableEntry,
    /// All columns ever, by id.
    pub columns: Vec<ColumnDef>,
    /// Its indexes, by id.
    pub indexes: Vec<IndexDef>,
    /// Its foreign keys, by number.
    pub foreign_keys: Vec<ForeignKeyDef>,
    /// How it is cut into chunks, if it is.
    pub chunking: Option<ChunkingEntry>,
}

fn check_name_to(name: &str, limit: usize) -> Result<()> {
    if !name.is_empty() && name.len() <= limit && !name.contains('\0') {
        return Ok(());
    }
    Err(Error::new(Code::NameInvalid).with("bytes", name.len()).with("limit", limit))
}

/// Checks the name of a column. # Errors: `NameInvalid`.
pub fn check_name(name: &str) -> Result<()> {
    check_name_to(name, limits::NAME_BYTES_MAX)
}

/// Checks the name of an index, which may be a provisional one. # Errors: `NameInvalid`.
pub fn check_index_name(name: &str) -> Result<()> {
    check_name(name.strip_prefix(PROVISIONAL).filter(|rest| !rest.is_empty()).unwrap_or(name))
}

/// Checks the name of a table. # Errors: `NameInvalid`.
pub fn check_table_name(name: &str) -> Result<()> {
    check_name_to(name, limits::TABLE_NAME_BYTES_MAX)
}

fn too_many(code: Code, what: &str, have: usize, limit: usize) -> Result<()> {
    if have <= limit {
        return Ok(());
    }
    Err(Error::new(code).with("in", what).with("count", have).with("limit", limit))
}

impl TableDef {
    /// Checks `spec` and makes the definition; the caller gives the ids of tree and indexes.
    ///
    /// # Errors
    /// Faults of the definition, each by its own code.
    pub fn new(
        id: TableId,
        name: &str,
        spec: &TableSpec,
        mut next_index: impl FnMut() -> IndexId,
        rules: impl Into<KeyRules>,
    ) -> Result<TableDef> {
        let rules = rules.into();
        check_table_name(name)?;
        if spec.columns.is_empty() {
            return Err(Error::new(Code::DefinitionInvalid).with("why", "a table needs a column"));
        }
        let entry = TableEntry {
            tree: evenkeel_base::TreeId::ZERO,
            root: evenkeel_base::PageNo::ZERO,
            hidden_key: false,
            row_version: 1,
            next_column: 0,
            auto_increment: None,
            primary: Vec::new(),
        };
        let (columns, indexes, foreign_keys) = (vec![], vec![], vec![]);
        let (name, chunking) = (name.to_string(), None);
        let mut def = TableDef { id, name, entry, columns, indexes, foreign_keys, chunking };
        for column in &spec.columns {
            def.push_column(column)?;
        }
        def.set_primary(&spec.primary, rules, &mut next_index)?;
        for index in &spec.indexes {
            let state = IndexState::Valid(evenkeel_base::Lsn::ZERO);
            def.push_index(index, next_index(), state, rules)?;
        }
        def.chunking = def.chunking_of(spec)?;
        Ok(def)
    }

    /// Live columns in their order.
    pub fn live_columns(&self) -> Vec<&ColumnDef> {
        let mut live: Vec<_> = self.columns.iter().filter(|c| c.is_live()).collect();
        live.sort_by_key(|c| c.entry.position);
        live
    }

    /// A live column by name. # Errors: `ColumnMissing`.
    pub fn column(&self, name: &str) -> Result<&ColumnDef> {
        let found = self.columns.iter().find(|c| c.is_live() && c.name == name);
        found.ok_or_else(|| {
            Error::new(Code::ColumnMissing).with("table", &self.name).with("column", name)
        })
    }

    /// A column by id; ids in key parts are checked when the definition is made or loaded.
    pub fn column_by_id(&self, id: u16) -> Option<&ColumnDef> {
        self.columns.iter().find(|c| c.id == id)
    }

    /// An index by name. # Errors: `IndexMissing`.
    pub fn index(&self, name: &str) -> Result<&IndexDef> {
        self.indexes.iter().find(|i| i.name == name).ok_or_else(|| {
            Error::new(Code::IndexMissing).with("table", &self.name).with("index", name)
        })
    }

    /// The specification from which an existing index could be made.
    ///
    /// # Errors
    /// `Internal` for a missing column.
    pub(crate) fn index_spec(&self, index: &IndexDef) -> Result<IndexSpec> {
        let part = |part: &PartEntry| {
            let column = self.column_by_id(part.column);
            let column = column.ok_or_else(|| Error::internal("an index of no column"))?;
            Ok(PartSpec {
                column: column.name.clone(),
                desc: part.desc,
                prefix: part.prefix,
                collation: part.collation.map_or(0, |collation| collation.id),
            })
        };
        let parts = index.entry.parts.iter().map(part).collect::<Result<_>>()?;
        Ok(IndexSpec { name: index.name.clone(), parts, unique: index.entry.unique })
    }

    /// Begins the next row format.
    ///
    /// # Errors
    /// `TooManyColumns` if there were too many formats.
    pub(crate) fn raise_format(&mut self) -> Result<()> {
        let formats = usize::from(self.entry.row_version) + 1;
        let limit = usize::from(limits::ROW_VERSIONS_MAX);
        too_many(Code::TooManyColumns, "row formats", formats, limit)?;
        self.entry.row_version += 1;
        Ok(())
    }

    /// Adds a column in the present row format (the caller raises it for an existing table).
    ///
    /// # Errors
    /// `ColumnExists`, `TooManyColumns`, `DefinitionInvalid`, `ValueType`, `ValueRange`.
    pub fn push_column(&mut self, spec: &ColumnSpec) -> Result<()> {
        check_name(&spec.name)?;
        spec.ty.check()?;
        let live = self.columns.iter().filter(|c| c.is_live()).count();
        too_many(Code::TooManyColumns, &self.name, live + 1, limits::COLUMNS_MAX)?;
        let ever = self.columns.len() + 1;
        too_many(Code::TooManyColumns, "columns ever", ever, limits::COLUMNS_EVER_MAX)?;
        if self.column(&spec.name).is_ok() {
            return Err(Error::new(Code::ColumnExists).with("column", &spec.name));
        }
        let last = self.columns.iter().filter(|c| c.is_live()).map(|c| c.entry.position + 1).max();
        let id = self.entry.next_column;
        let entry = ColumnEntry {
            position: last.unwrap_or(0),
            ty: spec.ty,
            nullable: spec.nullable,
            default: spec.default.clone(),
            added_in: self.entry.row_version,
            dropped_in: 0,
        };
        self.check_default(spec, &entry)?;
        if spec.auto_increment {
            let invalid = |why| {
                Error::new(Code::DefinitionInvalid).with("column", &spec.name).with("why", why)
            };
            if self.entry.auto_increment.is_some() {
                return Err(invalid("a table has one auto-increment column"));
            }
            if !spec.ty.is_integer() || spec.default.is_some() {
                return Err(invalid("auto-increment wants an integer without default"));
            }
            self.entry.auto_increment = Some(id);
        }
        self.entry.next_column = id + 1;
        self.columns.push(ColumnDef { id, name: spec.name.clone(), entry });
        Ok(())
    }

    fn check_default(&self, spec: &ColumnSpec, entry: &ColumnEntry) -> Result<()> {
        let mut bytes = Vec::new();
        let name = |e: Error| e.with("column", &spec.name);
        if let Some(value) = &spec.default {
            let part = KeyPart::whole(spec.ty, spec.nullable, false);
            part.encode(value.as_ref(), &mut bytes).map_err(name)?;
            let long = match value {
                Value::Bytes(bytes) => bytes.len(),
                Value::Text(text) => text.len(),
                _ => 0,
            };
            if long > limits::DEFAULT_BYTES_MAX {
                let error = Error::new(Code::DefinitionInvalid).with("why", "default too long");
                let error = error.with("bytes", long).with("limit", limits::DEFAULT_BYTES_MAX);
                return Err(name(error));
            }
        }
        entry.encode(&mut bytes).map_err(name)
    }

    fn parts(&self, specs: &[PartSpec], what: &str, rules: KeyRules) -> Result<Vec<PartEntry>> {
        too_many(Code::TooManyKeyParts, what, specs.len(), limits::KEY_PARTS_MAX)?;
        let mut parts: Vec<PartEntry> = Vec::with_capacity(specs.len());
        for spec in specs {
            let column = self.column(&spec.column)?;
            if parts.iter().any(|p| p.column == column.id) {
                let why = "a column twice in one key";
                return Err(Error::new(Code::DefinitionInvalid)
                    .with("index", what)
                    .with("why", why));
            }
            parts.push(rules.part(spec, column.id, column.entry.ty)?);
        }
        Ok(parts)
    }

    fn set_primary(
        &mut self,
        specs: &[PartSpec],
        rules: KeyRules,
        next_index: &mut impl FnMut() -> IndexId,
    ) -> Result<()> {
        let parts = self.parts(specs, "primary", rules)?;
        for part in &parts {
            let column = &mut self.columns[usize::from(part.column)];
            if column.entry.nullable {
                let why = "a primary key column cannot be nullable";
                let error = Error::new(Code::DefinitionInvalid).with("column", &column.name);
                return Err(error.with("why", why));
            }
        }
        self.entry.primary = parts;
        let fits = self.primary_bytes_max(rules) <= rules.key_bytes_max();
        if !self.entry.primary.is_empty() && fits {
            return Ok(());
        }
        let parts = std::mem::take(&mut self.entry.primary);
        self.entry.hidden_key = true;
        if !parts.is_empty() {
            let state = IndexState::Valid(evenkeel_base::Lsn::ZERO);
            let entry = IndexEntry { unique: true, primary: true, state, parts };
            let name = "primary".to_string();
            self.indexes.push(IndexDef { id: next_index(), name, entry });
        }
        Ok(())
    }

    /// Bytes of a clustered key of columns, at most.
    pub(crate) fn primary_bytes_max(&self, rules: KeyRules) -> usize {
        self.key_bytes_max(&self.entry.primary, rules)
    }

    /// Bytes of a key of these parts, at most.
    pub(crate) fn key_bytes_max(&self, parts: &[PartEntry], rules: KeyRules) -> usize {
        parts.iter().fold(0usize, |sum, part| {
            let ty = self.columns[usize::from(part.column)].entry.ty;
            sum.saturating_add(rules.form(part).bytes_max(ty))
        })
    }

    /// Provisional indexes are counted apart, because the indexes that they replace exist until the
    /// change that names them.
    ///
    /// # Errors
    /// `TooManyIndexes`.
    pub(crate) fn check_index_count(&self, added: &[&str]) -> Result<()> {
        let names = || self.indexes.iter().map(|i| i.name.as_str()).chain(added.iter().copied());
        let provisional = names().filter(|name| name.starts_with(PROVISIONAL)).count();
        for count in [provisional, names().count() - provisional] {
            too_many(Code::TooManyIndexes, &self.name, count, limits::INDEXES_MAX)?;
        }
        Ok(())
    }

    /// Adds an index.
    ///
    /// # Errors
    /// `IndexExists`, `TooManyIndexes`, `TooManyKeyParts`, `ColumnMissing`, `DefinitionInvalid`,
    /// `CollationMissing`.
    pub fn push_index(
        &mut self,
        spec: &IndexSpec,
        id: IndexId,
        state: IndexState,
        rules: KeyRules,
    ) -> Result<()> {
        check_index_name(&spec.name)?;
        self.check_index_count(&[&spec.name])?;
        if spec.name == "primary" || self.index(&spec.name).is_ok() {
            return Err(Error::new(Code::IndexExists).with("index", &spec.name));
        }
        let parts = self.parts(&spec.parts, &spec.name, rules)?;
        if parts.is_empty() {
            return Err(Error::new(Code::DefinitionInvalid)
                .with("index", &spec.name)
                .with("why", "an index needs a column"));
        }
        let entry = IndexEntry { unique: spec.unique, primary: false, state, parts };
        self.indexes.push(IndexDef { id, name: spec.name.clone(), entry });
        Ok(())
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod schema_tests;
