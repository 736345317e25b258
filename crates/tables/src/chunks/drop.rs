//! Chunks go: `drop_chunks`, the list of chunks, and the removal of what dropped chunks have used.
//!
//! A drop goes so:
//! 1. Each chunk is closed: transactions that come to write in it wait. A chunk that a transaction
//!    has entered to write or lock rows is opened again and kept; the result names the transaction.
//! 2. The rows of the catalog are removed in one commit. Its timestamp is that of the drop.
//! 3. Those who waited find the chunk gone and look for their way anew: an insert makes a new
//!    chunk, an update finds no row.
//! 4. When no snapshot from before the drop is left, tree and indexes are removed. After a crash
//!    the next start removes them, as those of any dropped table.
//!
//! A reader that meets a chunk between 1 and 2 waits for the commit's timestamp, not for its sync.

use crate::chunks::map::{ChunkMap, Chunked, TimeChunk};
use crate::schema::TableDef;
use crate::store::Store;
use crate::table::{SchemaWait, Table};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, CommitTable, Error, Lsn, Result};
use evenkeel_log::Durability;
use std::sync::Arc;

/// A chunk of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Its number, which no other chunk ever has.
    pub number: u64,
    /// The first time it takes; none for the early catch-all chunk.
    pub from: Option<i64>,
    /// The first time behind it; none for the late catch-all chunk.
    pub to: Option<i64>,
    /// Its slot.
    pub slot: u32,
    /// Rows, estimated.
    pub rows: u64,
    /// Bytes of its leaves, estimated, and of the runs of its indexes.
    pub bytes: u64,
}

/// A chunk that was not dropped because a transaction has changed or locked rows in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkKept {
    /// Its number.
    pub number: u64,
    /// The transaction; 0 if it has no id yet.
    pub txn: u64,
}

/// What `drop_chunks` did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunksDropped {
    /// The numbers of the chunks that are gone.
    pub dropped: Vec<u64>,
    /// The timestamp of their drop; zero if there are none.
    pub at: Lsn,
    /// Chunks old enough that a transaction still needs; a later call drops them.
    pub kept: Vec<ChunkKept>,
}

impl Store {
    /// The chunks of a table, by slot and time.
    ///
    /// # Errors
    /// `TableMissing`; `ChunkingInvalid` if it is not chunked; of storage.
    pub fn chunks(self: &Arc<Self>, name: &str) -> Result<Vec<ChunkInfo>> {
        let table = self.table(name)?;
        let chunked = table.chunked().ok_or_else(|| not_chunked(name))?;
        // Keeps the chunks of the map.
        let _keeps = self.txns.snapshot();
        let (map, mut chunks) = (chunked.map(), Vec::new());
        for chunk in map.live() {
            // A drop of the whole table waits for no snapshot.
            let Some(_within) = self.open_trees.enter(chunk.number()) else { continue };
            chunks.push(self.chunk_info(&table, chunk)?);
        }
        Ok(chunks)
    }

    fn chunk_info(&self, table: &Arc<Table>, chunk: &TimeChunk) -> Result<ChunkInfo> {
        let size = self.size_estimate(&*chunk.table(table)?)?;
        let runs = chunk.indexes.iter().map(|(_, own)| self.runs.stats(*own).run_bytes);
        Ok(ChunkInfo {
            number: chunk.number().0.into(),
            from: (chunk.lo != i64::MIN).then_some(chunk.lo),
            to: (chunk.hi != i64::MAX).then_some(chunk.hi),
            slot: chunk.slot,
            rows: size.rows,
            bytes: size.leaves * self.pages.page_size() as u64 + runs.sum::<u64>(),
        })
    }

    /// Drops the chunks of a table that hold only times before `before`, all in one commit. Chunks
    /// in which a transaction has changed or locked rows are kept and named. Snapshots from before
    /// the drop continue to see the rows.
    ///
    /// # Errors
    /// `TableMissing`; `ChunkingInvalid` if it is not chunked; `TableBusy` if another schema change
    /// of the table takes too long.
    pub fn drop_chunks(
        self: &Arc<Self>,
        name: &str,
        before: i64,
        wait: &SchemaWait<'_>,
    ) -> Result<ChunksDropped> {
        let table = self.table(name)?;
        let chunked = table.chunked().ok_or_else(|| not_chunked(name))?;
        let _ddl = self.lock_ddl_any(name, &table, wait)?;
        self.rt.freeing(|| self.drop_chunks_now(&table, chunked, before))
    }

    /// Drops the chunks of a table that are older than its `retain` at the time `now`, which is
    /// given in the unit of its time column.
    ///
    /// # Errors
    /// As `drop_chunks`; `ChunkingInvalid` also if the table has no `retain`.
    pub fn expire_chunks(
        self: &Arc<Self>,
        name: &str,
        now: i64,
        wait: &SchemaWait<'_>,
    ) -> Result<ChunksDropped> {
        let table = self.table(name)?;
        let chunked = table.chunked().ok_or_else(|| not_chunked(name))?;
        let retain = chunked.placing.entry.retain;
        if retain == 0 {
            let error = Error::new(Code::ChunkingInvalid).with("table", name);
            return Err(error.with("why", "it was made without a time for which rows are kept"));
        }
        let before = i128::from(now) - i128::from(retain);
        let before = i64::try_from(before).unwrap_or(i64::MIN);
        self.drop_chunks(name, before, wait)
    }

    fn drop_chunks_now(
        self: &Arc<Self>,
        table: &Arc<Table>,
        chunked: &Chunked,
        before: i64,
    ) -> Result<ChunksDropped> {
        let mut done = ChunksDropped::default();
        let (map, mut old) = (chunked.map(), Vec::new());
        // First what may fail: a chunk that is closed must be opened again.
        for chunk in map.live().filter(|chunk| chunk.hi != i64::MAX && chunk.hi <= before) {
            old.push((chunk.clone(), chunk.table(table)?));
        }
        let mut closed = Vec::with_capacity(old.len());
        for (chunk, of_chunk) in old {
            match of_chunk.close_unless_written() {
                None => closed.push((chunk, of_chunk)),
                Some(txn) => {
                    let number = chunk.number().0.into();
                    done.kept.push(ChunkKept { number, txn: txn.0 });
                }
            }
        }
        if closed.is_empty() {
            return Ok(done);
        }
        let dropped = self.commit_drop(table, chunked, &closed);
        for (_, of_chunk) in &closed {
            of_chunk.reopen(dropped.is_ok());
        }
        done.at = dropped?;
        done.dropped = closed.iter().map(|(chunk, _)| chunk.number().0.into()).collect();
        self.rt.metrics.add(Metric::ChunksDropped, closed.len() as u64);
        self.log.wait_commit(done.at, Durability::Sync)?;
        // From now on their space may be given back.
        self.txns.event().notify();
        Ok(done)
    }

    /// Commits the removal of closed chunks and moves them in the map. Returns the timestamp.
    fn commit_drop(
        self: &Arc<Self>,
        table: &Arc<Table>,
        chunked: &Chunked,
        closed: &[(Arc<TimeChunk>, Arc<Table>)],
    ) -> Result<Lsn> {
        let mut txn = self.catalog_txn();
        for (chunk, _) in closed {
            self.remove_chunk(&mut txn, table.id(), chunk)?;
        }
        closed.iter().for_each(|(chunk, _)| chunk.set_dropping());
        let at = txn.commit_ordered();
        for (chunk, _) in closed {
            chunk.set_dropped(at.as_ref().ok().copied());
        }
        if at.is_ok() {
            chunked.change_map(ChunkMap::without_dropped);
        }
        chunked.changed.notify();
        at
    }

    /// Removes what dropped chunks have used and no snapshot needs any more. Before the drop is
    /// durable nothing is removed: after a crash the chunk may be there again. Returns the number
    /// of chunks that are left.
    pub(crate) fn free_dropped_chunks(&self) -> usize {
        let mut left = 0;
        for table in self.catalog.tables() {
            let Some(chunked) = table.chunked() else { continue };
            if chunked.map().dropped.is_empty() {
                continue;
            }
            let horizon = self.txns.horizon();
            let is_free = |chunk: &Arc<TimeChunk>| {
                chunk.dropped_at().is_some_and(|at| at <= horizon && self.log.is_durable(at))
            };
            let (mut free, mut rest) = (Vec::new(), 0);
            chunked.change_map(|map| {
                let mut map = map.clone();
                free = map.dropped.extract_if(.., |chunk| is_free(chunk)).collect();
                rest = map.dropped.len();
                map
            });
            left += rest;
            free.iter().for_each(|chunk| self.forget_chunk(chunk));
        }
        left
    }

    /// Dropped chunks that wait for snapshots.
    pub(crate) fn chunks_waiting(&self) -> usize {
        let tables = self.catalog.tables();
        let waiting = |table: &Arc<Table>| table.chunked().map_or(0, |c| c.map().dropped.len());
        tables.iter().map(waiting).sum()
    }

    fn forget_chunk(&self, chunk: &TimeChunk) {
        for (_, own) in &chunk.indexes {
            self.forget_index(*own);
        }
        self.forget_tree(&chunk.tree);
        self.catalog.remove_chunk(chunk.number());
    }

    /// Gives the chunks of a table its new name, which their errors show.
    pub(crate) fn rename_chunks(&self, table: &Table, to: &str) -> Result<()> {
        let Some(chunked) = table.chunked() else { return Ok(()) };
        for chunk in chunked.tables_made() {
            let state = chunk.state();
            let mut def = TableDef::clone(&state.layout.def);
            def.name = to.to_string();
            chunk.publish(&self.rt, state.with_definition(def, self.rules)?);
        }
        Ok(())
    }

    /// Removes what all chunks of a table have used, which is dropped or emptied and which nobody
    /// uses.
    pub(crate) fn forget_chunks(&self, table: &Table) {
        let Some(chunked) = table.chunked() else { return };
        // Taken in one step: the background must not remove a dropped chunk as well.
        let mut all = Vec::new();
        chunked.change_map(|map| {
            all = map.live().chain(&map.dropped).cloned().collect();
            ChunkMap::default()
        });
        all.iter().for_each(|chunk| self.forget_chunk(chunk));
    }
}

fn not_chunked(table: &str) -> Error {
    let error = Error::new(Code::ChunkingInvalid).with("table", table);
    error.with("why", "the table is not chunked")
}
