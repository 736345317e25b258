//! What a row change is made ready in: memory that a thread keeps from one transaction to the next,
//! so that a short transaction, of a single change, does not ask the allocator for all of it.
//!
//! A transaction takes the thread's buffers with its first change and gives them back when it is
//! dropped, on whatever thread that is. Nothing but memory is kept: what lies in them is given up
//! before. Called by `transaction` and `write`.

use crate::batch::Batch;
use crate::large::{Given, ValueChain};
use crate::row_op::Entries;
use evenkeel_base::PageNo;
use evenkeel_format::overflow::ChainEdit;
use std::cell::Cell;

/// More than this goes back to the allocator: long rows are no reason to hold as much for ever.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Buffers of one session, reused from row to row.
#[derive(Default)]
pub(crate) struct Buffers {
    pub key: Vec<u8>,
    pub row: Vec<u8>,
    pub old_row: Vec<u8>,
    /// The leaf where the row was, if that is known.
    pub leaf: Option<PageNo>,
    pub entries: Entries,
    pub part: Vec<u8>,
    pub old_part: Vec<u8>,
    /// Values that entries keep beside their keys.
    pub stored: Vec<u8>,
    pub old_stored: Vec<u8>,
    pub logical: Vec<u8>,
    /// Unique keys to check: (position of the index, key bytes).
    pub unique: Vec<(usize, Vec<u8>)>,
    /// Overflow chains written for the prepared row.
    pub chains: Vec<ValueChain>,
    /// Long values that the statement gives for columns, written ahead.
    pub given: Vec<Given>,
    /// Chains that change hands with the prepared row.
    pub edits: Vec<ChainEdit>,
    /// Rows that are inserted together.
    pub batch: Batch,
}

impl Buffers {
    /// Only memory is left.
    fn clear(&mut self) {
        self.key.clear();
        self.unique.clear();
        self.chains.clear();
        self.given.clear();
        self.edits.clear();
    }

    /// Memory that they hold, but for lists of a few items.
    fn bytes(&self) -> usize {
        let parts = [
            &self.key,
            &self.row,
            &self.old_row,
            &self.part,
            &self.old_part,
            &self.stored,
            &self.old_stored,
            &self.logical,
        ];
        let parts: usize = parts.iter().map(|part| part.capacity()).sum();
        parts + self.entries.capacity_bytes() + self.batch.capacity_bytes()
    }
}

thread_local! {
    static KEPT: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// Those that the thread keeps, or new ones: a thread that ends keeps none any more.
fn of_thread() -> Box<Buffers> {
    KEPT.try_with(Cell::take).ok().flatten().unwrap_or_default()
}

/// The buffers of a transaction: none before its first change, and while a change has them.
#[derive(Default)]
pub(crate) struct Held(Option<Box<Buffers>>);

impl Held {
    /// Takes them for a change; `put` gives them back.
    pub fn take(&mut self) -> Box<Buffers> {
        let mut buffers = self.0.take().unwrap_or_else(of_thread);
        buffers.leaf = None;
        buffers
    }

    pub fn put(&mut self, buffers: Box<Buffers>) {
        self.0 = Some(buffers);
    }

    /// To look or put something into them, between changes.
    pub fn get(&mut self) -> &mut Buffers {
        self.0.get_or_insert_with(of_thread)
    }

    /// The key of the row that was prepared last; empty before.
    pub fn key(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |buffers| &buffers.key)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(mut buffers) = self.0.take() else { return };
        buffers.clear();
        if buffers.bytes() <= KEPT_BYTES_MAX {
            // A thread that ends has no place for them any more.
            let _ = KEPT.try_with(|kept| kept.set(Some(buffers)));
        }
    }
}
