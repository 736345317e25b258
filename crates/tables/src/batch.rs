//! Inserts several rows as one statement. Rows are prepared one after the other as long as their
//! keys ascend. Then the tree puts as many of them as fit into a leaf at a time, under one latch
//! and in one record.
//!
//! A row with an obstacle (a cell at its key, another transaction's lock, a schema change) is
//! inserted singly by `insert`, which waits, rolls back or fails. Rows with overflow chains are
//! inserted singly too, and so are rows of tables with unique indexes, with indexes that store
//! values in entries, or with foreign keys.

use crate::table::{EpochPin, Table, TableState, Use};
use crate::table_layout::Layout;
use crate::transaction::TableTxn;
use crate::write::{Inserted, OnDuplicate};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, IndexId, Lsn, Result, Stamp, TreeId};
use evenkeel_format::node::compare;
use evenkeel_format::record::{Entry, entry_op};
use evenkeel_format::rows::{ROWS_HEAD_BYTES, ROWS_ROW_BYTES};
use evenkeel_format::undo::UndoRecord;
use evenkeel_format::{Reader, ValueRef, put_bytes};
use evenkeel_log::Share;
use evenkeel_runs::{GenPin, MemReserved, Runs, entry_bytes};
use evenkeel_tree::{LeafInserts, NewRow, RowsCommon};
use evenkeel_txn::{LockSpace, TxnRef, Txns};
use std::ops::Range;
use std::sync::Arc;

/// Rows of a batch, at most.
const BATCH_ROWS: usize = 256;
/// A batch is written at this size; a row of this size is inserted singly.
const BATCH_BYTES: usize = 32 << 10;
/// After this many attempts in a row that insert nothing, the rest is inserted singly.
const STOPS_MAX: usize = 2;
/// Assumed size of a row when memory is allocated.
const ROW_BYTES: usize = 128;
/// Bytes of a record's frame, and of an entry in its list of entries.
const FRAME_BYTES: usize = 8;
const HEAD_BYTES: usize = 6;

/// Prepared rows, in memory that is reused.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    rows: Vec<Place>,
    /// Index and operation of each row's entries.
    entries: Vec<(IndexId, u8)>,
    /// Scratch for the key of an entry.
    part: Vec<u8>,
}

/// The ends of a row's key, row and tail (`NewRow`) in the bytes, and the memtable bytes of its
/// entries.
#[derive(Clone, Copy)]
struct Place {
    memory: u32,
    start: u32,
    key: u32,
    row: u32,
    tail: u32,
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    #[inline]
    fn row(&self, i: usize) -> NewRow<'_> {
        let Place { start, key, row, tail, .. } = self.rows[i];
        let part = |from, to| &self.bytes[from as usize..to as usize];
        NewRow { key: part(start, key), row: part(key, row), tail: part(row, tail) }
    }

    fn is_full(&self) -> bool {
        self.rows.len() == BATCH_ROWS || self.bytes.len() >= BATCH_BYTES
    }

    /// Prepares a row. False: the row has to be inserted singly.
    ///
    /// # Errors
    /// Faults of the values; the row is then not in the batch.
    fn add<'v>(
        &mut self,
        state: &TableState,
        value: &impl Fn(usize) -> &'v ValueRef<'v>,
    ) -> Result<bool> {
        let start = self.bytes.len();
        let added = self.add_at(start, state, value);
        if !matches!(added, Ok(true)) {
            self.bytes.truncate(start);
        }
        match added {
            // Its longest values have to go to overflow chains.
            Err(error) if error.code() == Code::RowTooLong => Ok(false),
            added => added,
        }
    }

    fn add_at<'v>(
        &mut self,
        start: usize,
        state: &TableState,
        value: &impl Fn(usize) -> &'v ValueRef<'v>,
    ) -> Result<bool> {
        let layout = &state.layout;
        layout.encode_key(&|i| Ok(*value(i)), &mut self.bytes)?;
        let key = self.bytes.len();
        layout.encode_values(value, &mut self.bytes)?;
        let row = self.bytes.len();
        if row - key > state.tree.row_bytes_whole() || row - start > BATCH_BYTES {
            return Ok(false);
        }
        let mut memory = 0;
        for index in &layout.indexes {
            self.part.clear();
            index.encode(&|i| Ok(*value(i)), key - start, &mut self.part)?;
            put_bytes(&mut self.bytes, &self.part);
            memory += entry_bytes(self.part.len(), key - start, 0);
        }
        let tail = self.bytes.len();
        if tail - start > BATCH_BYTES {
            return Ok(false);
        }
        let [memory, start, key, row, tail] = [memory, start, key, row, tail].map(|at| at as u32);
        self.rows.push(Place { memory, start, key, row, tail });
        Ok(true)
    }

    /// True if the last row's key is not above the key of the one before it.
    fn last_is_out_of_order(&self) -> bool {
        match self.rows.len().checked_sub(2) {
            Some(before) => compare(self.row(before + 1).key, self.row(before).key).is_le(),
            None => false,
        }
    }

    /// Removes the last row.
    fn pop(&mut self) {
        let Some(place) = self.rows.pop() else { return };
        self.bytes.truncate(place.start as usize);
    }

    /// Log bytes that the rows from the `from`-th on may take, if each has its own record.
    fn log_bytes(&self, from: usize) -> usize {
        let beside = ROWS_HEAD_BYTES + ROWS_ROW_BYTES + FRAME_BYTES;
        let beside = beside + self.entries.len() * HEAD_BYTES;
        let start = self.rows.get(from).map_or(self.bytes.len(), |place| place.start as usize);
        self.bytes.len() - start + (self.rows.len() - from) * beside
    }

    /// Bytes of memory that the batch holds.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() + self.rows.capacity() * size_of::<Place>()
    }

    /// Memtable bytes of the rows from the `from`-th on.
    fn memory_bytes(&self, from: usize) -> usize {
        self.rows[from..].iter().map(|place| place.memory as usize).sum()
    }

    fn undo_bytes(&self, from: usize) -> usize {
        let key = |p: &Place| UndoRecord::encoded_len_max((p.key - p.start) as usize, 0);
        self.rows[from..].iter().map(key).sum()
    }
}

impl TableTxn {
    /// Inserts rows as one statement: all or none. Returns the auto-increment number of the first
    /// row.
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_many<'v>(
        &mut self,
        table: &Arc<Table>,
        rows: impl ExactSizeIterator<Item = &'v [ValueRef<'v>]>,
    ) -> Result<Option<u64>> {
        // Undone together, behind what was locked before.
        self.undone_by_panic(|txn| {
            txn.statement(|txn| {
                if let Some(chunked) = table.chunked() {
                    return txn.insert_many_chunked(table, chunked, &rows.collect::<Vec<_>>());
                }
                txn.insert_rows(table, rows)
            })
        })
    }

    /// As `insert_many`, within a statement.
    pub(crate) fn insert_rows<'v>(
        &mut self,
        table: &Arc<Table>,
        rows: impl ExactSizeIterator<Item = &'v [ValueRef<'v>]>,
    ) -> Result<Option<u64>> {
        self.enter(table, Use::Write)?;
        let mut batch = std::mem::take(&mut self.buffers.get().batch);
        batch.clear();
        let done = self.insert_in_batches(table, rows, &mut batch);
        self.buffers.get().batch = batch;
        done
    }

    fn insert_in_batches<'v>(
        &mut self,
        table: &Arc<Table>,
        rows: impl ExactSizeIterator<Item = &'v [ValueRef<'v>]>,
        batch: &mut Batch,
    ) -> Result<Option<u64>> {
        let mut state = table.state();
        // The inputs of the batch's rows.
        let mut made: Vec<Made<'v>> = Vec::with_capacity(rows.len().min(BATCH_ROWS));
        batch.rows.reserve(rows.len().min(BATCH_ROWS));
        batch.bytes.reserve((rows.len() * ROW_BYTES).min(BATCH_BYTES));
        let mut first = None;
        for values in rows {
            let layout = &state.layout;
            layout.check_values(values)?;
            let row = match layout.auto_increment {
                None => Made { values, number: None, given: ValueRef::Null },
                Some(column) => {
                    let number =
                        self.store.auto_number(table, layout, column, values[column], None)?;
                    Made { values, number, given: number.map_or(ValueRef::Null, ValueRef::UInt) }
                }
            };
            first = first.or(row.number);
            if !self.add_to_batch(table, &state, &row, batch, &mut made)? {
                self.flush_batch(table, &state, batch, &mut made)?;
                self.insert_made(table, &row)?;
            }
            if batch.is_full() {
                self.flush_batch(table, &state, batch, &mut made)?;
            }
            if batch.rows.is_empty() {
                state = table.state();
            }
        }
        self.flush_batch(table, &state, batch, &mut made)?;
        Ok(first)
    }

    /// Adds a row to the batch; the batch is written first if the row's key lies before its last
    /// one. False: the row has to be inserted singly.
    fn add_to_batch<'v>(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        row: &Made<'v>,
        batch: &mut Batch,
        made: &mut Vec<Made<'v>>,
    ) -> Result<bool> {
        let layout = &state.layout;
        if batch.rows.is_empty() {
            batch.entries.clear();
            let entry = |index: &crate::table_layout::IndexLayout| {
                (index.id, entry_op::INS | entry_op::FRESH)
            };
            batch.entries.extend(layout.indexes.iter().map(entry));
        }
        if layout.key.is_empty()
            || layout.indexes.iter().any(|i| i.checks_unique() || i.stores())
            || table.links.get().is_some_and(|links| !links.parents.is_empty())
        {
            return Ok(false);
        }
        let auto = layout.auto_increment.filter(|_| row.number.is_some());
        let value = |i: usize| row.value(auto, i);
        match batch.add(state, &value) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => {
                // Report a fault of an earlier row first.
                self.flush_batch(table, state, batch, made)?;
                return Err(error);
            }
        }
        if batch.last_is_out_of_order() {
            batch.pop();
            self.flush_batch(table, state, batch, made)?;
            if !batch.add(state, &value)? {
                return Ok(false);
            }
        }
        made.push(*row);
        Ok(true)
    }

    fn insert_made(&mut self, table: &Arc<Table>, row: &Made<'_>) -> Result<()> {
        let done = self.insert_row(table, row.values, OnDuplicate::Fail, row.number)?;
        debug_assert!(matches!(done, Inserted::Done(_)), "a duplicate is an error");
        Ok(())
    }

    /// Inserts the rows of the batch and empties it.
    fn flush_batch(
        &mut self,
        table: &Arc<Table>,
        state: &Arc<TableState>,
        batch: &mut Batch,
        made: &mut Vec<Made<'_>>,
    ) -> Result<()> {
        let (mut done, mut stops) = (0, 0);
        while done < batch.rows.len() {
            let before = done;
            let gone = self.put_batch(table, state, batch, &mut done);
            self.store.rt.metrics.add(Metric::RowsInserted, (done - before) as u64);
            self.store.note_changes(table, (done - before) as u64);
            gone?;
            stops = if done > before { 0 } else { stops + 1 };
            // Insert the next row singly, with nothing reserved, so that it can wait. After a
            // schema change all rows are inserted singly, which prepares them anew; and so are they
            // when row after row is stopped, because each attempt reserves space for all rows that
            // are left.
            while done < batch.rows.len() {
                self.insert_made(table, &made[done])?;
                done += 1;
                if table.layout().epoch == state.layout.epoch && stops < STOPS_MAX {
                    break;
                }
            }
        }
        self.after_batch(&state.layout, batch)?;
        batch.clear();
        made.clear();
        Ok(())
    }

    /// Inserts rows of the batch from the `done`-th on until one is stopped.
    fn put_batch(
        &mut self,
        table: &Table,
        state: &TableState,
        batch: &Batch,
        done: &mut usize,
    ) -> Result<()> {
        self.inner.check_cancel()?;
        let store = self.store.clone();
        let (rows, from) = (batch.rows.len() - *done, *done);
        // Undo first, as in `TableTxn::reserve`.
        store.txns.reserve_undo_rows(&self.inner, batch.undo_bytes(from), rows)?;
        let (log, cancellation) = (batch.log_bytes(from), self.inner.cancellation());
        let mut log = store.log.reserve_cancellable(log, Share::User, cancellation)?;
        let mut memory = match batch.memory_bytes(from) {
            0 => None,
            bytes => Some(store.runs.reserve_cancellable(bytes, cancellation)?),
        };
        let mut op = BatchOp {
            runs: &store.runs,
            txns: &store.txns,
            table,
            tree: state.tree.id(),
            space: state.lock_space(),
            epoch: state.layout.epoch,
            txn: &self.inner,
            batch,
            memory: memory.as_mut(),
            epoch_pin: None,
            gen_pin: None,
            first: Stamp::default(),
        };
        while *done < batch.rows.len() {
            match state.tree.insert_rows(*done, &mut log, &mut op)? {
                0 => break,
                count => *done += count,
            }
        }
        Ok(())
    }

    /// Range locks on indexes: the writer inserts first and checks for locks afterwards (A7).
    fn after_batch(&mut self, layout: &Layout, batch: &Batch) -> Result<()> {
        let space = |index: &IndexId| LockSpace::Index(layout.locks_of(*index));
        let has_locks = |(index, _): &(IndexId, u8)| self.store.txns.has_locks(space(index));
        if !batch.entries.iter().any(has_locks) {
            return Ok(());
        }
        for i in 0..batch.rows.len() {
            let mut tail = Reader::new(batch.row(i).tail, "entries");
            for (index, _) in &batch.entries {
                self.wait_for_key(layout, *index, tail.bytes()?)?;
            }
        }
        Ok(())
    }
}

/// The input of a row of a batch: its values and its auto-increment number.
#[derive(Clone, Copy)]
struct Made<'v> {
    values: &'v [ValueRef<'v>],
    number: Option<u64>,
    /// The number as a value.
    given: ValueRef<'v>,
}

impl<'v> Made<'v> {
    #[inline]
    fn value(&self, auto: Option<usize>, i: usize) -> &ValueRef<'v> {
        // The number of values was checked against the columns.
        if auto == Some(i) { &self.given } else { &self.values[i] }
    }
}

/// The last step of the rows of a batch, under the latch of a leaf.
struct BatchOp<'a> {
    runs: &'a Runs,
    txns: &'a Txns,
    table: &'a Table,
    tree: TreeId,
    space: LockSpace,
    epoch: u64,
    txn: &'a TxnRef,
    batch: &'a Batch,
    memory: Option<&'a mut MemReserved>,
    epoch_pin: Option<EpochPin<'a>>,
    gen_pin: Option<GenPin>,
    first: Stamp,
}

impl LeafInserts for BatchOp<'_> {
    fn len(&self) -> usize {
        self.batch.rows.len()
    }

    fn row(&self, i: usize) -> NewRow<'_> {
        self.batch.row(i)
    }

    fn allows(&self, i: usize) -> bool {
        let key = self.batch.row(i).key;
        self.txns.check_insert(self.txn, self.space, key).is_empty()
    }

    fn enter(&mut self) -> bool {
        self.epoch_pin = self.table.pin(self.epoch);
        self.epoch_pin.is_some()
    }

    fn prepare(&mut self, rows: Range<usize>) -> RowsCommon<'_> {
        let mut keys = rows.map(|i| self.batch.row(i).key);
        self.first = self.txns.push_undo_inserts(self.txn, self.tree, &mut keys);
        let pin = self.runs.pin();
        let generation = pin.generation();
        self.gen_pin = Some(pin);
        let (first, table, entries) = (self.first, self.table.id(), &self.batch.entries[..]);
        RowsCommon { first, table, generation, entries }
    }

    fn logged(&mut self, rows: Range<usize>, lsn: Lsn) {
        let planted = evenkeel_base::fault_injection::is(
            evenkeel_base::fault_injection::Fault::EntryNotWritten,
        );
        if let (Some(pin), Some(memory), false) = (&self.gen_pin, &mut self.memory, planted) {
            let mut stamp = self.first;
            for i in rows {
                let NewRow { key: pk, tail, .. } = self.batch.row(i);
                let mut tail = Reader::new(tail, "entries");
                for (index, op) in &self.batch.entries {
                    // Encoded by this code, so it decodes.
                    let Ok(key) = tail.bytes() else { break };
                    let entry = Entry { index: *index, op: *op, key, value: &[] };
                    self.runs.insert(pin, memory, &entry, pk, stamp, lsn);
                }
                stamp.undo_no.0 += 1;
            }
        }
        self.gen_pin = None;
        self.epoch_pin = None;
    }
}
