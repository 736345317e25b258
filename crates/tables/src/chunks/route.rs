//! Sends an operation on a chunked table to the chunk of its row. Each function here is called by
//! the operation of the same name when its table is chunked, and calls that operation again for the
//! chunk.
//!
//! Who writes or locks enters the chunk, and stays in it until the transaction ends. A chunk that
//! was dropped meanwhile refuses it, and the way is looked for anew. Plain reads do not enter:
//! their snapshot keeps the chunk.

use crate::chunks::map::{Chunked, TimeChunk};
use crate::chunks::place::Place;
use crate::chunks::prune::Pruning;
use crate::range::{ByteRange, KeySet};
use crate::read::{LockWait, ReadView, check_full};
use crate::row::Row;
use crate::table::{Table, Use};
use crate::table_layout::KeyColumn;
use crate::transaction::TableTxn;
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::{ValueRef, limits};
use evenkeel_txn::Mode;
use std::collections::BTreeSet;
use std::sync::Arc;

impl TableTxn {
    /// Enters a chunk to write or lock rows; `None` if it was dropped.
    pub(super) fn enter_chunk(
        &mut self,
        table: &Arc<Table>,
        chunk: &TimeChunk,
    ) -> Result<Option<Arc<Table>>> {
        let chunk = chunk.table(table)?;
        match self.enter(&chunk, Use::Write) {
            Ok(()) => Ok(Some(chunk)),
            Err(error) if error.code() == Code::TableMissing && chunk.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The chunk of a place, entered for writing, and made if it does not exist.
    ///
    /// # Errors
    /// `RowChanged` if the place's chunk was dropped after this transaction's snapshot;
    /// `TooManyChunks`; those of storage.
    fn chunk_to_write(
        &mut self,
        table: &Arc<Table>,
        chunked: &Chunked,
        place: Place,
    ) -> Result<Arc<Table>> {
        loop {
            if let Some(chunk) = self.chunk_there(table, chunked, place)? {
                return Ok(chunk);
            }
            if self.is_in_statement() && self.limits_chunks {
                self.new_chunks += 1;
                check_new(table, self.new_chunks)?;
            }
            let store = self.store.clone();
            store.make_chunk(table, chunked, place)?;
        }
    }

    /// The live chunk of a place, entered for writing.
    fn chunk_there(
        &mut self,
        table: &Arc<Table>,
        chunked: &Chunked,
        place: Place,
    ) -> Result<Option<Arc<Table>>> {
        // A chunk that this transaction has entered is not dropped before its end.
        if let Some((whole, chunk, entered)) = &self.last_chunk
            && Arc::ptr_eq(whole, table)
            && chunk.covers(place)
        {
            return Ok(Some(entered.clone()));
        }
        self.enter_chunked(table, Use::Write)?;
        loop {
            let map = chunked.map();
            if let Some(at) = self.oldest_view()
                && map.dropped.iter().any(|c| c.covers(place) && c.dropped_at() > Some(at))
            {
                let error = Error::new(Code::RowChanged).with("table", &table.layout().def.name);
                return Err(error.with("why", "its chunk was dropped after the snapshot"));
            }
            let Some(chunk) = map.find(&chunked.placing, place) else { return Ok(None) };
            if let Some(entered) = self.enter_chunk(table, chunk)? {
                self.last_chunk = Some((table.clone(), chunk.clone(), entered.clone()));
                return Ok(Some(entered));
            }
        }
    }

    /// Calls `f` with the live chunk of a place, entered for writing; with the table's own empty
    /// tree if it has none. `f` may wait there for a lock, and meanwhile others may make the chunk
    /// and write the row: then `f` is called again, for the chunk.
    fn in_chunk_or_rest<R>(
        &mut self,
        table: &Arc<Table>,
        chunked: &Chunked,
        place: Place,
        mut f: impl FnMut(&mut TableTxn, &Arc<Table>) -> Result<R>,
    ) -> Result<R> {
        if let Some(chunk) = self.chunk_there(table, chunked, place)? {
            return f(self, &chunk);
        }
        let rest = chunked.rest(table)?;
        self.enter(&rest, Use::Write)?;
        let done = f(self, &rest)?;
        if fault_injection::is(Fault::ChunkMadeMeanwhileMissed) {
            return Ok(done);
        }
        match self.chunk_there(table, chunked, place)? {
            None => Ok(done),
            Some(chunk) => f(self, &chunk),
        }
    }

    /// Calls `f` with the chunk of a row to be inserted, or with the table if it is not chunked.
    pub(crate) fn in_chunk<R>(
        &mut self,
        table: &Arc<Table>,
        values: &[ValueRef<'_>],
        f: impl FnOnce(&mut TableTxn, &Arc<Table>) -> Result<R>,
    ) -> Result<R> {
        let Some(chunked) = table.chunked() else { return f(self, table) };
        let place = place_of(table, chunked, values)?;
        let chunk = self.chunk_to_write(table, chunked, place)?;
        f(self, &chunk)
    }

    /// The chunk of a row that an update moves out of `chunk`, entered.
    pub(crate) fn chunk_of_moved<'v>(
        &mut self,
        chunk: &Arc<Table>,
        value: &impl Fn(usize) -> Result<ValueRef<'v>>,
    ) -> Result<Arc<Table>> {
        let Some(table) = chunk.whole() else { return Ok(chunk.clone()) };
        let chunked = table.chunked().ok_or_else(|| Error::internal("a chunk of no table"))?;
        let place = chunked.placing.place(&table.layout(), value)?;
        self.chunk_to_write(&table, chunked, place)
    }

    /// Calls `f` with the chunk that may have the row of these clustered key bytes.
    pub(crate) fn in_chunk_of_key<R>(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        mut f: impl FnMut(&mut TableTxn, &Arc<Table>) -> Result<R>,
    ) -> Result<R> {
        let Some(chunked) = table.chunked() else { return f(self, table) };
        let place = chunked.placing.place_of_key(&table.layout(), key)?;
        self.in_chunk_or_rest(table, chunked, place, f)
    }

    /// Calls `f` with the chunk that may have the row of this primary key.
    pub(crate) fn in_chunk_of_primary(
        &mut self,
        table: &Arc<Table>,
        key: &[ValueRef<'_>],
        mut f: impl FnMut(&mut TableTxn, &Arc<Table>) -> Result<bool>,
    ) -> Result<bool> {
        let Some(chunked) = table.chunked() else { return f(self, table) };
        let Some(place) = chunked.placing.place_of_primary(&table.layout(), key)? else {
            self.enter_chunked(table, Use::Write)?;
            return Ok(false);
        };
        self.in_chunk_or_rest(table, chunked, place, f)
    }

    /// `get` of a chunked table.
    pub(crate) fn get_chunked(
        &mut self,
        table: &Arc<Table>,
        chunked: &Chunked,
        key: &[ValueRef<'_>],
        row: &mut Row,
    ) -> Result<bool> {
        if self.reads_lock() {
            return self.get_locked(table, key, self.get_mode(), LockWait::Wait, row);
        }
        self.enter_chunked(table, Use::Read)?;
        let view = self.view_of(table)?;
        let layout = table.layout();
        match chunked.placing.place_of_primary(&layout, key)? {
            None => Ok(false),
            Some(place) => {
                let key = layout.encode_whole(&layout.key, key)?;
                let key = key.ok_or_else(|| Error::internal("a key was encoded and is not"))?;
                self.get_at(table, chunked, (place, &key), &view, row)
            }
        }
    }

    /// `get_by_key` of a chunked table.
    pub(crate) fn get_by_key_chunked(
        &mut self,
        table: &Arc<Table>,
        chunked: &Chunked,
        key: &[u8],
        row: &mut Row,
    ) -> Result<bool> {
        if self.reads_lock() {
            return self.lock_by_key(table, key, self.get_mode(), LockWait::Wait, row);
        }
        self.enter_chunked(table, Use::Read)?;
        let view = self.view_of(table)?;
        let place = chunked.placing.place_of_key(&table.layout(), key)?;
        self.get_at(table, chunked, (place, key), &view, row)
    }

    fn get_at(
        &mut self,
        table: &Arc<Table>,
        chunked: &Chunked,
        (place, key): (Place, &[u8]),
        view: &ReadView,
        row: &mut Row,
    ) -> Result<bool> {
        let map = chunked.map();
        let (rt, at) = (&self.store.rt, view.snapshot.at);
        let seen = |chunk: &&Arc<TimeChunk>| {
            chunk.covers(place) && chunk.is_seen(rt, &chunked.changed, at)
        };
        // A chunk that was dropped after the snapshot has what the snapshot sees.
        let found = map.dropped.iter().find(seen);
        let found = found.or_else(|| map.find(&chunked.placing, place).filter(seen));
        let Some(chunk) = found else { return Ok(false) };
        let state = chunk.table(table)?.state();
        self.get_in_view(&state, key, view, row)
    }

    /// `get_many` of a chunked table.
    pub(crate) fn get_many_chunked(
        &mut self,
        table: &Arc<Table>,
        keys: &[&[ValueRef<'_>]],
        f: &mut dyn FnMut(usize, &Row) -> Result<()>,
    ) -> Result<()> {
        let (layout, mut sorted) = (table.layout(), Vec::with_capacity(keys.len()));
        for (i, key) in keys.iter().enumerate() {
            check_full(&layout, key.len(), layout.key.len())?;
            sorted.extend(layout.encode_whole(&layout.key, key)?.map(|bytes| (bytes, i)));
        }
        sorted.sort();
        let mut row = Row::new();
        for (bytes, i) in sorted {
            if self.get_by_key(table, &bytes, &mut row)? {
                f(i, &row)?;
            }
        }
        Ok(())
    }

    /// `insert_many` of a chunked table: the rows of each chunk together.
    pub(crate) fn insert_many_chunked<'v>(
        &mut self,
        table: &Arc<Table>,
        chunked: &Chunked,
        rows: &[&'v [ValueRef<'v>]],
    ) -> Result<Option<u64>> {
        if !self.is_in_statement() {
            self.new_chunks = 0;
        }
        let places = rows
            .iter()
            .map(|values| place_of(table, chunked, values))
            .collect::<Result<Vec<Place>>>()?;
        let map = chunked.map();
        let mut new = BTreeSet::new();
        for place in &places {
            if map.find(&chunked.placing, *place).is_none() {
                new.insert(chunked.placing.bounds(*place));
            }
        }
        if self.limits_chunks {
            check_new(table, self.new_chunks + new.len())?;
        }
        let mut order: Vec<usize> = (0..rows.len()).collect();
        // Numbers are given in the order of the rows.
        if table.layout().auto_increment.is_none() {
            order.sort_by_key(|at| chunked.placing.bounds(places[*at]));
        }
        let mut first = None;
        for group in order.chunk_by(|a, b| {
            chunked.placing.bounds(places[*a]) == chunked.placing.bounds(places[*b])
        }) {
            let chunk = self.chunk_to_write(table, chunked, places[group[0]])?;
            let rows: Vec<_> = group.iter().map(|at| rows[*at]).collect();
            let number = self.insert_rows(&chunk, rows.into_iter())?;
            first = first.or(number);
        }
        Ok(first)
    }

    /// The live chunks that may have keys of a range over a key of these parts, each with its part
    /// of the range.
    fn live_parts(
        &self,
        table: &Arc<Table>,
        parts: &[KeyColumn],
        (keys, range): (KeySet<'_>, &ByteRange),
    ) -> Result<Vec<(Arc<TimeChunk>, ByteRange)>> {
        let Some(chunked) = table.chunked() else { return Ok(Vec::new()) };
        let pruning = Pruning::new(&table.layout(), &chunked.placing, parts, keys)?;
        let map = chunked.map();
        let of_slot = map.live().filter(|chunk| chunk.is_live() && pruning.has_slot(chunk));
        let parts = of_slot.map(|chunk| (chunk.clone(), pruning.part_of(range, chunk)));
        Ok(parts.filter(|(_, part)| !part.is_empty()).collect())
    }

    /// `key_estimate` of a chunked table.
    pub(crate) fn key_estimate_chunked(
        &mut self,
        table: &Arc<Table>,
        keys: KeySet<'_>,
    ) -> Result<u64> {
        self.enter_chunked(table, Use::Read)?;
        let _keeps = self.store.txns.snapshot();
        let layout = table.layout();
        let range = layout.byte_range(&layout.key, keys)?;
        let mut rows = 0u64;
        for (chunk, part) in self.live_parts(table, &layout.key, (keys, &range))? {
            let chunk = chunk.table(table)?;
            let estimate = self.store.clustered_estimate(&chunk, &chunk.state(), &part)?;
            rows = rows.saturating_add(estimate);
        }
        Ok(rows)
    }

    /// `index_estimate` of a chunked table; counts at most `counted_max` entries of each chunk.
    pub(crate) fn index_estimate_chunked(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        keys: KeySet<'_>,
        counted_max: u64,
    ) -> Result<u64> {
        self.enter_chunked(table, Use::Read)?;
        let _keeps = self.store.txns.snapshot();
        let layout = table.layout();
        let of_index = layout.index_at(index)?;
        let range = layout.index_range(of_index, keys)?;
        let parts: Vec<KeyColumn> = of_index.parts.iter().chain(&layout.key).copied().collect();
        let mut rows = 0u64;
        for (chunk, part) in self.live_parts(table, &parts, (keys, &range))? {
            let own = chunk.table(table)?.layout().index_at(index)?.id;
            rows = rows.saturating_add(self.entries_in(own, part, counted_max)?);
        }
        Ok(rows)
    }

    /// `lock_range` of a chunked table: its locks are those of the table.
    pub(crate) fn lock_range_chunked(
        &mut self,
        table: &Arc<Table>,
        chunked: &Chunked,
        index: Option<usize>,
        keys: KeySet<'_>,
    ) -> Result<()> {
        self.enter_chunked(table, Use::Write)?;
        let rest = chunked.rest(table)?;
        self.enter(&rest, Use::Write)?;
        let layout = table.layout();
        let parts: Vec<KeyColumn> = match index {
            Some(index) => {
                layout.index_at(index)?.parts.iter().chain(&layout.key).copied().collect()
            }
            None => layout.key.clone(),
        };
        let range = match index {
            Some(index) => layout.index_range(layout.index_at(index)?, keys)?,
            None => layout.byte_range(&parts, keys)?,
        };
        // Others make no row in the range from now on. A chunk in which keys are locked is not
        // dropped.
        self.lock_range(&rest, index, keys)?;
        for (chunk, _) in self.live_parts(table, &parts, (keys, &range))? {
            self.enter_chunk(table, &chunk)?;
        }
        Ok(())
    }

    /// `get_locked` of a chunked table.
    pub(crate) fn get_locked_chunked(
        &mut self,
        table: &Arc<Table>,
        key: &[ValueRef<'_>],
        (mode, wait): (Mode, LockWait),
        row: &mut Row,
    ) -> Result<bool> {
        self.in_chunk_of_primary(table, key, |txn, chunk| {
            txn.get_locked(chunk, key, mode, wait, row)
        })
    }
}

/// The place of a whole row.
fn place_of(table: &Table, chunked: &Chunked, values: &[ValueRef<'_>]) -> Result<Place> {
    let layout = table.layout();
    layout.check_values(values)?;
    chunked.placing.place(&layout, &|column| Ok(values[column]))
}

fn check_new(table: &Table, count: usize) -> Result<()> {
    if count <= limits::CHUNKS_NEW_MAX {
        return Ok(());
    }
    let error = Error::new(Code::TooManyChunks).with("table", &table.layout().def.name);
    Err(error.with("count", count).with("limit", limits::CHUNKS_NEW_MAX))
}
