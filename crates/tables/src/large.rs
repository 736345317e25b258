//! Values as streams: written ahead of their row, and read a page at a time (E4). Neither direction
//! holds more than a page of the value in memory.
//!
//! A value written ahead belongs to no row until a row takes it. If it is dropped before that, its
//! pages are freed in the background, as they are after a crash.

use crate::chains::{BegunChain, Chains};
use crate::store::Store;
use crate::table::{Table, Use};
use crate::transaction::TableTxn;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Code, Error, Result, Stamp, TreeId};
use evenkeel_format::ColumnType;
use evenkeel_format::undo::UndoRecord;
use evenkeel_io::Event;
use evenkeel_tree::{OverflowReader, OverflowRef, OverflowWriter, Patience, Tree};
use evenkeel_txn::SnapshotGuard;
use std::io;
use std::sync::Arc;

/// Owns a chain until a row record adopts it; abandons it when dropped.
struct Claim {
    chains: Arc<Chains>,
    background: Arc<Event>,
    begun: Arc<Mutex<Option<BegunChain>>>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(begun) = *self.begun.lock() else { return };
        if self.chains.abandon(begun) {
            self.background.notify();
        }
    }
}

/// A completely written chain; freed when dropped, unless a row record has adopted it.
pub(crate) struct ValueChain {
    reference: OverflowRef,
    _claim: Claim,
}

impl ValueChain {
    pub fn reference(&self) -> OverflowRef {
        self.reference
    }
}

/// Writes a chain; dropped before `finish`, the chain is freed.
pub(crate) struct ChainWriter {
    writer: OverflowWriter,
    claim: Claim,
}

impl ChainWriter {
    pub fn new(store: &Store, tree: &Tree, owner: Stamp, patience: Patience) -> ChainWriter {
        let begun = Arc::new(Mutex::new(None));
        let (chains, noted, id) = (store.chains.clone(), begun.clone(), tree.id());
        let watch = move |head| *noted.lock() = Some(chains.begin(head, id, owner));
        let writer = OverflowWriter::new(tree, owner).watched(Box::new(watch)).patient(patience);
        let (chains, background) = (store.chains.clone(), store.txns.event());
        ChainWriter { writer, claim: Claim { chains, background, begun } }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write(bytes)
    }

    pub fn finish(self) -> Result<ValueChain> {
        Ok(ValueChain { reference: self.writer.finish()?, _claim: self.claim })
    }
}

/// Writes a long value ahead of its row. `finish` returns the handle by which a row takes the
/// value; dropped before, the value is freed.
pub struct ValueWriter {
    writer: ChainWriter,
    tree: TreeId,
    len: u64,
    /// The bytes of a character whose end has not come yet; `None` once the value is not UTF-8.
    text: Option<Vec<u8>>,
}

impl ValueWriter {
    /// Appends bytes.
    ///
    /// # Errors
    /// `ValueTooLong` beyond 4 GiB - 1; those of storage.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write(bytes)?;
        self.len += bytes.len() as u64;
        self.text = self.text.take().and_then(|open| unfinished(open, bytes));
        Ok(())
    }

    /// Ends the value.
    ///
    /// # Errors
    /// Of storage.
    pub fn finish(self) -> Result<LargeValue> {
        let is_text = self.text.is_some_and(|open| open.is_empty());
        Ok(LargeValue { chain: self.writer.finish()?, tree: self.tree, is_text })
    }

    /// Bytes written.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl io::Write for ValueWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes of an incomplete character at the end of `open` and `bytes`; `None` if they are not
/// UTF-8.
fn unfinished(mut open: Vec<u8>, mut bytes: &[u8]) -> Option<Vec<u8>> {
    while !open.is_empty() && !bytes.is_empty() {
        open.push(bytes[0]);
        bytes = &bytes[1..];
        match std::str::from_utf8(&open) {
            Ok(_) => open.clear(),
            Err(error) if error.error_len().is_some() => return None,
            Err(_) => {}
        }
    }
    match std::str::from_utf8(bytes) {
        Ok(_) => Some(open),
        Err(error) if error.error_len().is_some() => None,
        Err(error) => Some(bytes[error.valid_up_to()..].to_vec()),
    }
}

/// A long value that is written and belongs to no row yet; freed when dropped.
pub struct LargeValue {
    chain: ValueChain,
    tree: TreeId,
    is_text: bool,
}

impl LargeValue {
    /// Its bytes.
    pub fn len(&self) -> u64 {
        u64::from(self.chain.reference.len)
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Long values for columns of one row, checked, by position.
#[derive(Clone)]
pub(crate) struct Given {
    pub position: usize,
    /// The reference.
    pub bytes: Vec<u8>,
}

/// Checks long values against their columns.
pub(crate) fn check(table: &Table, large: &[(usize, LargeValue)]) -> Result<Vec<Given>> {
    let state = table.state();
    let mut given: Vec<Given> = Vec::with_capacity(large.len());
    for (position, value) in large {
        let column = state.layout.columns.get(*position);
        let column =
            column.ok_or_else(|| Error::new(Code::ColumnMissing).with("position", position))?;
        let named = |code| Error::new(code).with("column", &column.name);
        let max = match column.entry.ty {
            ColumnType::Bytes { max } => max,
            ColumnType::Text { max } if value.is_text => max,
            _ => return Err(named(Code::ValueType)),
        };
        if state.layout.is_indexed(*position) {
            return Err(named(Code::EntryTooLong).with("bytes", value.len()));
        }
        if value.len() > u64::from(max) {
            return Err(named(Code::ValueRange).with("bytes", value.len()).with("limit", max));
        }
        if value.tree != state.tree.id() || given.iter().any(|g| g.position == *position) {
            return Err(named(Code::ValueType).with("why", "written for another table or twice"));
        }
        let mut bytes = Vec::new();
        value.chain.reference.encode(&mut bytes);
        given.push(Given { position: *position, bytes });
    }
    Ok(given)
}

impl TableTxn {
    /// Begins a long value for a row of `table`, written before the row.
    ///
    /// # Errors
    /// `TransactionEnded`, `OpenedReadOnly`; those of storage.
    pub fn large_value(&mut self, table: &Arc<Table>) -> Result<ValueWriter> {
        self.enter(table, Use::Write)?;
        let state = table.state();
        let writer = self.chain_writer(&state.tree)?;
        Ok(ValueWriter { writer, tree: state.tree.id(), len: 0, text: Some(Vec::new()) })
    }

    /// A chain carries the stamp of the next operation, so the transaction needs its id now.
    pub(crate) fn chain_writer(&mut self, tree: &Tree) -> Result<ChainWriter> {
        self.store.txns.reserve_undo(&self.inner, UndoRecord::encoded_len_max(0, 0))?;
        Ok(ChainWriter::new(&self.store, tree, self.inner.next_stamp(), self.patience()))
    }

    /// How long a value waits for a backup: as long as a statement waits for a lock.
    fn patience(&self) -> Patience {
        let (check, limit) = (self.inner.cancel_check(), self.lock_wait());
        Arc::new(move |waited| {
            check()?;
            match waited < limit {
                true => Ok(()),
                false => Err(Error::new(Code::LockWaitTimeout).with("waits_for", "a backup")),
            }
        })
    }
}

enum Source {
    Bytes(Vec<u8>, usize),
    ValueChain { reader: Box<OverflowReader>, _guard: Arc<SnapshotGuard> },
}

/// Reads a value as a stream.
pub struct LargeReader(Source);

impl LargeReader {
    pub(crate) fn bytes(bytes: &[u8]) -> LargeReader {
        LargeReader(Source::Bytes(bytes.to_vec(), 0))
    }

    pub(crate) fn chain(tree: &Tree, chain: OverflowRef, guard: Arc<SnapshotGuard>) -> LargeReader {
        let reader = Box::new(OverflowReader::new(tree, chain));
        LargeReader(Source::ValueChain { reader, _guard: guard })
    }
}

impl io::Read for LargeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Source::Bytes(bytes, at) => {
                let n = buf.len().min(bytes.len() - *at);
                buf[..n].copy_from_slice(&bytes[*at..*at + n]);
                *at += n;
                Ok(n)
            }
            Source::ValueChain { reader, .. } => reader.read(buf).map_err(io::Error::other),
        }
    }
}
