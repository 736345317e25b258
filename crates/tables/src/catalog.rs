//! The catalog: rows of a system table, written in transactions like any other rows, and the tables
//! in memory that are made from them.
//!
//! The system table is clustered on (table, kind, item); `format::catalog` defines the bodies. Rows
//! of table 0 are the next ids. DDL changes the catalog one statement at a time; counters are
//! changed under their own latch.

use crate::chunks::loading::Loading as ChunkLoading;
use crate::foreign::ForeignLoading;
use crate::range::Range;
use crate::row::Row;
use crate::schema::{ColumnDef, ColumnSpec, IndexDef, TableDef, TableSpec};
use crate::store::Store;
use crate::table::{Counter, Table, TableState};
use crate::table_layout::Layout;
use crate::transaction::{Access, Isolation, TableTxn};
use evenkeel_base::fault_injection::{Fault, is};
use evenkeel_base::sync::RwLock;
use evenkeel_base::{Code, Error, IndexId, Lsn, Result, TableId, TreeId};
use evenkeel_format::catalog::{
    ColumnEntry, IndexEntry, StatisticsEntry, TableEntry, decode_counter, encode_counter,
    entry_kind,
};
use evenkeel_format::limits::TABLE_NAME_BYTES_MAX;
use evenkeel_format::{ColumnType, ValueRef};
use evenkeel_runs::IndexSpec as RunSpec;
use evenkeel_tree::{Direction, Tree};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The system table.
pub(crate) const TABLE: TableId = TableId(1);
/// Its tree.
pub const TREE: TreeId = TreeId(1);

/// Items of table 0: the next ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextId {
    Table = 0,
    Tree = 1,
    Index = 2,
}

/// Length of the names in it. The greatest length of a value does not appear in a row; it was 255
/// before.
const NAME_BYTES: u32 = TABLE_NAME_BYTES_MAX as u32;
/// First ids given to users' tables, trees and indexes.
const FIRST_ID: u64 = 16;

/// Counter items of a table.
pub(crate) const AUTO_INCREMENT: u32 = 0;
pub(crate) const HIDDEN_ID: u32 = 1;
/// The mark of the last change; not a counter.
pub(crate) const MARK: u32 = 2;
/// The number of these items.
pub(crate) const COUNTERS: u32 = 3;

/// The tables in memory.
pub(crate) struct Catalog {
    /// The system table itself.
    pub table: Arc<Table>,
    by_name: RwLock<BTreeMap<String, Arc<Table>>>,
    /// Grows with each change of `by_name`, under its lock.
    version: AtomicU64,
    /// The table of each chunk, by the chunk's tree.
    chunks: RwLock<HashMap<TreeId, Weak<Table>>>,
    next: [Counter; 3],
    /// A table has or had a foreign key that waits for its parent.
    pub may_await: AtomicBool,
}

fn system_def(tree: &Tree, page_size: usize) -> Result<TableDef> {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("table", ColumnType::UInt32))
        .column(ColumnSpec::new("kind", ColumnType::UInt8))
        .column(ColumnSpec::new("item", ColumnType::UInt32))
        .column(ColumnSpec::new("name", ColumnType::Text { max: NAME_BYTES }))
        .column(ColumnSpec::new("body", ColumnType::Bytes { max: 2048 }))
        .primary_key(&["table", "kind", "item"]);
    let mut def = TableDef::new(TABLE, "catalog", &spec, || IndexId::ZERO, page_size)?;
    def.entry.tree = tree.id();
    def.entry.root = tree.root();
    Ok(def)
}

impl Catalog {
    pub fn new(tree: Tree, page_size: usize) -> Result<Catalog> {
        let def = Arc::new(system_def(&tree, page_size)?);
        let layout = Arc::new(Layout::new(def, 1, page_size)?);
        let table = Table::new(TableState::new(layout, tree), 0, 0);
        table.changes.ignore();
        Ok(Catalog {
            table,
            by_name: RwLock::default(),
            version: AtomicU64::new(1),
            chunks: RwLock::default(),
            next: [(); 3].map(|()| Counter::new(FIRST_ID)),
            may_await: AtomicBool::new(false),
        })
    }

    pub fn find(&self, name: &str) -> Option<Arc<Table>> {
        self.by_name.read().get(name).cloned()
    }

    pub fn names(&self) -> Vec<String> {
        self.by_name.read().keys().cloned().collect()
    }

    /// The table that lives in a tree.
    pub fn by_tree(&self, tree: TreeId) -> Option<Arc<Table>> {
        if let Some(whole) = self.whole_of(tree) {
            let map = whole.chunked()?.map();
            let mut chunks = map.live().chain(&map.dropped);
            return chunks.find(|chunk| chunk.number() == tree)?.table(&whole).ok();
        }
        let tables = self.by_name.read();
        tables.values().find(|t| t.state().tree.id() == tree).cloned()
    }

    /// The tables that live in these trees, sorted by name.
    pub fn by_trees(&self, trees: &HashSet<TreeId>) -> Vec<Arc<Table>> {
        let tables = self.by_name.read();
        let among = tables.values().filter(|t| trees.contains(&t.state().tree.id()));
        among.cloned().collect()
    }

    /// The table of the chunk that has this tree.
    pub fn whole_of(&self, tree: TreeId) -> Option<Arc<Table>> {
        self.chunks.read().get(&tree).and_then(Weak::upgrade)
    }

    pub fn put_chunk(&self, tree: TreeId, whole: &Arc<Table>) {
        self.chunks.write().insert(tree, Arc::downgrade(whole));
    }

    pub fn remove_chunk(&self, tree: TreeId) {
        self.chunks.write().remove(&tree);
    }

    /// The table with an id.
    pub fn by_id(&self, id: TableId) -> Option<Arc<Table>> {
        let tables = self.by_name.read();
        tables.values().find(|t| t.id() == id).cloned()
    }

    /// All tables.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Grows whenever a table gets, changes or loses its name: a table that was found by its name
    /// after a look at the version still has the name as long as the version is the same.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<Table>>)) {
        let mut tables = self.by_name.write();
        change(&mut tables);
        let planted = is(Fault::StaleTableHandle);
        self.version.fetch_add(u64::from(!planted), Ordering::Release);
    }

    pub fn put(&self, name: &str, table: Arc<Table>) {
        self.change(|tables| {
            tables.insert(name.to_string(), table);
        });
    }

    pub fn remove(&self, name: &str) {
        self.change(|tables| {
            tables.remove(name);
        });
    }

    /// Renames a table; at every moment it has a name.
    pub fn rename(&self, from: &str, to: &str) {
        self.change(|tables| {
            if let Some(table) = tables.remove(from) {
                tables.insert(to.to_string(), table);
            }
        });
    }
}

/// Rows of one table while the catalog is read.
#[derive(Default)]
struct Loading {
    name: String,
    entry: Option<TableEntry>,
    columns: Vec<ColumnDef>,
    indexes: Vec<IndexDef>,
    foreign_keys: ForeignLoading,
    chunks: ChunkLoading,
    counters: [u64; COUNTERS as usize],
    statistics: BTreeMap<IndexId, StatisticsEntry>,
}

fn damaged(table: u32, what: &str) -> Error {
    Error::new(Code::CatalogDamaged).with("table", table).with("what", what)
}

fn key_of(row: &Row) -> Result<(u32, u8, u32)> {
    match (row.value(0)?, row.value(1)?, row.value(2)?) {
        (ValueRef::UInt(table), ValueRef::UInt(kind), ValueRef::UInt(item)) => {
            Ok((table as u32, kind as u8, item as u32))
        }
        _ => Err(damaged(0, "key of another type")),
    }
}

/// Kinds up to 31 are reserved for later versions of this format, which say in the superblock that
/// there are such entries.
fn unknown_kind(table: u32, kind: u8) -> Error {
    let error = Error::new(Code::NewerFormat).with("part", "catalog").with("kind", kind);
    error.with("table", table)
}

impl Loading {
    /// A counter that was written during the DROP of its table; DROP now waits for such writes.
    fn is_leftover(&self) -> bool {
        self.entry.is_none() && self.columns.is_empty() && self.indexes.is_empty()
    }

    fn take(&mut self, table: u32, kind: u8, item: u32, name: &str, body: &[u8]) -> Result<()> {
        match kind {
            entry_kind::TABLE => {
                self.name = name.to_string();
                self.entry = Some(TableEntry::decode(body)?);
            }
            entry_kind::COLUMN => {
                let id = u16::try_from(item).map_err(|_| damaged(table, "column id"))?;
                let entry = ColumnEntry::decode(body)?;
                self.columns.push(ColumnDef { id, name: name.to_string(), entry });
            }
            entry_kind::INDEX => {
                let entry = IndexEntry::decode(body)?;
                self.indexes.push(IndexDef { id: IndexId(item), name: name.to_string(), entry });
            }
            entry_kind::COUNTER => match self.counters.get_mut(item as usize) {
                Some(counter) => *counter = decode_counter(body)?,
                None => return Err(damaged(table, "unknown counter")),
            },
            entry_kind::STATISTICS => {
                self.statistics.insert(IndexId(item), StatisticsEntry::decode(body)?);
            }
            entry_kind::FOREIGN_KEY => self.foreign_keys.take_key(item, name, body)?,
            entry_kind::FOREIGN_KEY_COLUMN => self.foreign_keys.take_column(item, name, body)?,
            entry_kind::FOREIGN_KEY_PARENT => self.foreign_keys.take_parent(item, name, body)?,
            entry_kind::CHUNKING => self.chunks.take_chunking(body)?,
            entry_kind::CHUNK => self.chunks.take_chunk(item, body)?,
            _ => return Err(unknown_kind(table, kind)),
        }
        Ok(())
    }
}

impl Store {
    /// Reads the catalog: tables, next ids, counters.
    pub(crate) fn load_catalog(self: &Arc<Self>) -> Result<()> {
        let mut txn = self.begin(Isolation::RepeatableRead, Access::ReadOnly);
        let mut scan = txn.scan(&self.catalog.table, Range::ALL, Direction::Forward)?;
        let mut row = Row::new();
        let mut tables: BTreeMap<u32, Loading> = BTreeMap::new();
        while scan.next(&mut row)? {
            let (table, kind, item) = key_of(&row)?;
            let (ValueRef::Text(name), ValueRef::Bytes(body)) = (row.value(3)?, row.value(4)?)
            else {
                return Err(damaged(table, "columns of another type"));
            };
            if table == 0 {
                match self.catalog.next.get(item as usize) {
                    Some(next) if kind == entry_kind::COUNTER => {
                        next.restart(decode_counter(body)?)
                    }
                    _ if kind > entry_kind::CHUNK => {
                        return Err(unknown_kind(0, kind));
                    }
                    _ => return Err(damaged(0, "unknown next id")),
                }
                continue;
            }
            tables.entry(table).or_default().take(table, kind, item, name, body)?;
        }
        for (id, loading) in tables {
            self.open_table(TableId(id), loading)?;
        }
        self.link_all()?;
        let trees = self.catalog.next[NextId::Tree as usize].next.load(Ordering::SeqCst);
        self.new_trees_from.store(trees, Ordering::SeqCst);
        Ok(())
    }

    fn open_table(self: &Arc<Self>, id: TableId, loading: Loading) -> Result<()> {
        if loading.is_leftover() {
            return Ok(());
        }
        let entry = loading.entry.ok_or_else(|| damaged(id.0, "no table entry"))?;
        let tree = self.trees.open(entry.tree, entry.root);
        let Loading { name, mut columns, indexes, counters, statistics, .. } = loading;
        columns.sort_by_key(|c| c.id);
        let foreign_keys = loading.foreign_keys.finish().map_err(|what| damaged(id.0, what))?;
        let chunking = loading.chunks.chunking;
        let def =
            TableDef { id, name: name.clone(), entry, columns, indexes, foreign_keys, chunking };
        for index in &def.indexes {
            self.runs.add_index(run_spec(index));
        }
        let layout = Arc::new(Layout::new(Arc::new(def), 1, self.rules)?);
        self.open_trees.insert(tree.clone());
        let table = Table::new(TableState::new(layout, tree), counters[0], counters[1]);
        table.mark.store(counters[MARK as usize], Ordering::SeqCst);
        let rows = statistics.values().map(|known| known.rows).max();
        table.changes.expect_rows(rows.unwrap_or(0));
        table.statistics.set(statistics);
        self.open_chunks(&table, loading.chunks)?;
        self.catalog.put(&name, table);
        Ok(())
    }

    /// A transaction that changes the catalog.
    pub(crate) fn catalog_txn(self: &Arc<Self>) -> TableTxn {
        self.begin(Isolation::ReadCommitted, Access::ReadWrite)
    }

    /// Sets a row of the catalog.
    pub(crate) fn put_entry(
        &self,
        txn: &mut TableTxn,
        key: (u32, u8, u32),
        name: &str,
        body: &[u8],
    ) -> Result<()> {
        let values = [
            ValueRef::from(key.0),
            ValueRef::from(key.1),
            ValueRef::from(key.2),
            ValueRef::Text(name),
            ValueRef::Bytes(body),
        ];
        txn.upsert(&self.catalog.table, &values, &[(3, values[3]), (4, values[4])])?;
        Ok(())
    }

    /// Removes a row of the catalog.
    pub(crate) fn remove_entry(&self, txn: &mut TableTxn, key: (u32, u8, u32)) -> Result<()> {
        let key = [ValueRef::from(key.0), ValueRef::from(key.1), ValueRef::from(key.2)];
        txn.delete(&self.catalog.table, &key)?;
        Ok(())
    }

    /// Removes the catalog's rows of an index.
    pub(crate) fn remove_index(
        &self,
        txn: &mut TableTxn,
        table: TableId,
        index: IndexId,
    ) -> Result<()> {
        self.remove_entry(txn, (table.0, entry_kind::INDEX, index.0))?;
        self.remove_entry(txn, (table.0, entry_kind::STATISTICS, index.0))
    }

    /// Writes all rows of a table's definition.
    pub(crate) fn put_table(&self, txn: &mut TableTxn, def: &TableDef) -> Result<()> {
        let mut body = Vec::new();
        def.entry.encode(&mut body);
        self.put_entry(txn, (def.id.0, entry_kind::TABLE, 0), &def.name, &body)?;
        for column in &def.columns {
            body.clear();
            column.entry.encode(&mut body)?;
            let key = (def.id.0, entry_kind::COLUMN, u32::from(column.id));
            self.put_entry(txn, key, &column.name, &body)?;
        }
        for index in &def.indexes {
            self.put_index(txn, def.id, index)?;
        }
        if let Some(chunking) = &def.chunking {
            self.put_chunking(txn, def.id, chunking)?;
        }
        def.foreign_keys.iter().try_for_each(|key| self.put_foreign_key(txn, def.id, key))
    }

    /// Writes the row of an index.
    pub(crate) fn put_index(
        &self,
        txn: &mut TableTxn,
        table: TableId,
        index: &IndexDef,
    ) -> Result<()> {
        let mut body = Vec::new();
        index.entry.encode(&mut body);
        self.put_entry(txn, (table.0, entry_kind::INDEX, index.id.0), &index.name, &body)
    }

    /// The next id of a kind, never used before.
    pub(crate) fn next_id(self: &Arc<Self>, which: NextId) -> Result<u32> {
        let raise = |high| self.log_counter(TableId::ZERO, which as u32, high);
        let id = self.next_number(&self.catalog.next[which as usize], &raise)?;
        u32::try_from(id).map_err(|_| {
            Error::new(Code::DefinitionInvalid).with("why", "all 32-bit ids are used up")
        })
    }

    /// Raises a counter of a table in a transaction of its own, so that it does not go back with
    /// the user's transaction. A later commit of the user makes it durable, because it precedes
    /// that commit in the log.
    pub(crate) fn log_counter(
        self: &Arc<Self>,
        table: TableId,
        item: u32,
        high: u64,
    ) -> Result<()> {
        let mut txn = self.catalog_txn();
        self.put_counter(&mut txn, (table, item), high)?;
        txn.commit_ordered()?;
        Ok(())
    }

    /// Writes the row of a counter: (table, which).
    pub(crate) fn put_counter(
        &self,
        txn: &mut TableTxn,
        (table, item): (TableId, u32),
        high: u64,
    ) -> Result<()> {
        let mut body = Vec::new();
        encode_counter(high, &mut body);
        self.put_entry(txn, (table.0, entry_kind::COUNTER, item), "", &body)
    }

    /// The next hidden id of a table.
    pub(crate) fn next_hidden(self: &Arc<Self>, table: &Arc<Table>) -> Result<u64> {
        let raise = |high| self.log_counter(table.id(), HIDDEN_ID, high);
        self.next_number(&table.hidden, &raise)
    }
}

/// The description of an index for `runs`.
pub(crate) fn run_spec(index: &IndexDef) -> RunSpec {
    let (building, valid_from) = match index.entry.state {
        evenkeel_format::catalog::IndexState::Valid(from) => (false, from),
        _ => (true, Lsn::ZERO),
    };
    RunSpec { id: index.id, unique_key: index.entry.unique, building, valid_from }
}
