//! Chunks come into being: loaded from the catalog, or made because a row needs one.
//!
//! A chunk is made in a transaction of its own, which is committed before the row is written (its
//! record precedes the row's in the log). A rollback of the row leaves an empty chunk.

use crate::catalog::{NextId, run_spec};
use crate::chunks::loading::Loading;
use crate::chunks::map::{Chunked, TimeChunk};
use crate::chunks::place::{Place, Placing};
use crate::schema::{IndexDef, TableDef};
use crate::store::Store;
use crate::table::Table;
use crate::table_layout::Layout;
use crate::transaction::TableTxn;
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Cause, Error, IndexId, Lsn, Result, TableId, TreeId};
use evenkeel_format::catalog::{IndexState, entry_kind};
use evenkeel_format::chunks::{ChunkEntry, ChunkingEntry};
use std::sync::Arc;

/// What is wrong with a chunk, beside the others before it.
fn fault(
    chunk: &ChunkEntry,
    placing: &Placing,
    def: &TableDef,
    before: Option<&ChunkEntry>,
) -> Option<&'static str> {
    let ids = def.indexes.iter().map(|index| index.id);
    let ChunkingEntry { from, to, slots, .. } = placing.entry;
    let fits = match (chunk.lo, chunk.hi) {
        (i64::MIN, hi) => hi == from,
        (lo, i64::MAX) => lo == to,
        (lo, hi) => from <= lo && hi <= to && chunk.slot < slots,
    };
    match before {
        _ if !ids.eq(chunk.indexes.iter().map(|(of_table, _)| *of_table)) => {
            Some("a chunk has other indexes than its table")
        }
        _ if !fits => Some("a chunk lies outside the times or slots of its table"),
        Some(before) if before.slot == chunk.slot && before.hi > chunk.lo => {
            Some("two chunks overlap")
        }
        _ => None,
    }
}

impl Store {
    /// Opens the chunks of a table that was read from the catalog.
    ///
    /// # Errors
    /// `CatalogDamaged`.
    pub(crate) fn open_chunks(&self, table: &Arc<Table>, loading: Loading) -> Result<()> {
        let damaged = |what: &str| {
            let error = Error::new(evenkeel_base::Code::CatalogDamaged);
            error.with("table", &table.layout().def.name).with("what", what)
        };
        let Some(entry) = loading.chunking else {
            return match loading.chunks.is_empty() {
                true => Ok(()),
                false => Err(damaged("chunks of a table that is not chunked")),
            };
        };
        let layout = table.layout();
        let placing = Placing::new(&layout, entry)?;
        let mut entries: Vec<(u32, ChunkEntry)> = loading.chunks.into_iter().collect();
        entries.sort_by_key(|(_, chunk)| (chunk.slot, chunk.lo));
        let mut chunks = Vec::with_capacity(entries.len());
        for (at, (number, chunk)) in entries.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| &entries[before].1);
            if let Some(what) = fault(chunk, &placing, &layout.def, before) {
                return Err(damaged(what).with("chunk", number));
            }
            let tree = self.trees.open(TreeId(*number), chunk.root);
            let bounds = (chunk.lo, chunk.hi, chunk.slot);
            let chunk = TimeChunk::new(bounds, tree, chunk.indexes.clone());
            self.know_chunk(table, &chunk);
            chunks.push(chunk);
        }
        table.set_chunked(Chunked::new(placing, self.rules, chunks));
        Ok(())
    }

    /// Makes a table whose definition has a chunking a chunked one.
    ///
    /// # Errors
    /// `CatalogDamaged`.
    pub(crate) fn chunk_new(&self, table: &Arc<Table>, layout: &Layout) -> Result<()> {
        if let Some(entry) = layout.def.chunking {
            let placing = Placing::new(layout, entry)?;
            table.set_chunked(Chunked::new(placing, self.rules, Vec::new()));
        }
        Ok(())
    }

    /// Makes a chunk known to the other layers.
    fn know_chunk(&self, table: &Arc<Table>, chunk: &TimeChunk) {
        let def = table.layout().def.clone();
        for (index, (_, own)) in def.indexes.iter().zip(&chunk.indexes) {
            let state = IndexState::Valid(Lsn::ZERO);
            let mut index = IndexDef { id: *own, ..index.clone() };
            index.entry.state = state;
            self.runs.add_index(run_spec(&index));
        }
        self.catalog.put_chunk(chunk.number(), table);
        self.open_trees.insert(chunk.tree.clone());
    }

    /// Writes the row of a table's chunking.
    pub(crate) fn put_chunking(
        &self,
        txn: &mut TableTxn,
        table: TableId,
        entry: &ChunkingEntry,
    ) -> Result<()> {
        let mut body = Vec::new();
        entry.encode(&mut body);
        self.put_entry(txn, (table.0, entry_kind::CHUNKING, 0), "", &body)
    }

    /// Removes the rows of a table's chunks.
    pub(crate) fn remove_chunks(&self, txn: &mut TableTxn, table: &Table) -> Result<()> {
        let Some(chunked) = table.chunked() else { return Ok(()) };
        let map = chunked.map();
        map.live().try_for_each(|chunk| self.remove_chunk(txn, table.id(), chunk))
    }

    pub(crate) fn remove_chunk(
        &self,
        txn: &mut TableTxn,
        table: TableId,
        chunk: &TimeChunk,
    ) -> Result<()> {
        self.remove_entry(txn, (table.0, entry_kind::CHUNK, chunk.number().0))
    }

    /// The chunk of a place, which is made unless it exists.
    ///
    /// # Errors
    /// Of log and pages.
    pub(crate) fn make_chunk(
        self: &Arc<Self>,
        table: &Arc<Table>,
        chunked: &Chunked,
        place: Place,
    ) -> Result<Arc<TimeChunk>> {
        let before = chunked.map();
        let _making = chunked.making.lock(&self.rt, Cause::Schema);
        let planted = fault_injection::is(Fault::ChunkMadeTwice);
        let map = if planted { before } else { chunked.map() };
        // One that is about to be dropped counts: the caller waits for the outcome and comes again.
        if let Some(chunk) = map.find(&chunked.placing, place) {
            return Ok(chunk.clone());
        }
        let bounds = chunked.placing.bounds(place);
        let mut indexes = Vec::new();
        for index in &table.layout().def.indexes {
            indexes.push((index.id, IndexId(self.next_id(NextId::Index)?)));
        }
        let reused = map.dropped.last().filter(|_| fault_injection::is(Fault::ChunkNumberReused));
        let number = match reused {
            Some(chunk) => chunk.number(),
            None => TreeId(self.next_id(NextId::Tree)?),
        };
        let tree = self.trees.create(number)?;
        // Before the catalog has it: then nobody takes the tree for an orphan.
        self.open_trees.insert(tree.clone());
        let chunk = TimeChunk::new(bounds, tree.clone(), indexes);
        let put = self.put_chunk(table.id(), &chunk);
        put.inspect_err(|_| self.forget_tree(&tree))?;
        self.know_chunk(table, &chunk);
        chunked.change_map(|map| map.with(chunk.clone()));
        self.rt.metrics.add(Metric::ChunksMade, 1);
        Ok(chunk)
    }

    /// Commits the row of a new chunk. A later commit of its first row makes it durable.
    fn put_chunk(self: &Arc<Self>, table: TableId, chunk: &TimeChunk) -> Result<()> {
        let (lo, hi, slot) = (chunk.lo, chunk.hi, chunk.slot);
        let (root, indexes) = (chunk.tree.root(), chunk.indexes.clone());
        let mut body = Vec::new();
        ChunkEntry { root, lo, hi, slot, indexes }.encode(&mut body);
        let mut txn = self.catalog_txn();
        let key = (table.0, entry_kind::CHUNK, chunk.number().0);
        self.put_entry(&mut txn, key, "", &body)?;
        txn.commit_ordered()?;
        Ok(())
    }
}
